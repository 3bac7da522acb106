"""Numbers that may only go down: name → number, in a JSON file. A name that the file does not have stands for 0."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path


def problems(path: Path, counted: Mapping[str, int]) -> list[str]:
    """Return a sentence for each number that differs from the one in the file."""
    limits, sentences = json.loads(path.read_text(encoding="utf-8")), []
    for name in sorted({*counted, *limits}):
        number, limit = counted.get(name, 0), limits.get(name, 0)
        if number > limit:
            sentences.append(f"{name}: {number}, but {path.name} allows {limit}.")
        elif number < limit:
            sentences.append(f"{name}: {number}, and {path.name} still allows {limit}: lower it with --write.")
    return sentences


def lower(path: Path, counted: Mapping[str, int]) -> None:
    """Lower the numbers in the file to those counted. None is raised, and those of 0 are left out."""
    limits = {name: min(limit, counted.get(name, 0)) for name, limit in json.loads(path.read_text()).items()}
    text = json.dumps({name: limits[name] for name in sorted(limits) if limits[name]}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def main(path: Path, counted: Mapping[str, int]) -> int:
    """Print what differs from the file, which `--write` lowers first. Return the exit status."""
    if "--write" in sys.argv[1:]:
        lower(path, counted)
    sentences = problems(path, counted)
    print("\n".join(sentences) or f"{path.name}: as recorded.")
    return 1 if sentences else 0
