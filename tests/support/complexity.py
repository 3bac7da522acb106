"""Find functions that are too complex: none may be more so than tests/complexity.json allows.

python -m tests.support.complexity            # prints those that are
python -m tests.support.complexity --write    # lowers the numbers of tests/complexity.json

The limits for functions that are not in the file are in pyproject.toml: [tool.ruff.lint.mccabe] and [….pylint].
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from autograder.authoring.source import ROOT
from tests.support import ratchet

LIMITS = ROOT / "tests/complexity.json"
_DEFINITION = re.compile(r"(?:async\s+)?def\s+(\w+)")
_RUFF = ("--select", "C901,PLR0915", "--ignore-noqa", "--output-format", "json", "--no-cache")


def complex_functions(folders: Iterable[Path] = (ROOT / "lib", ROOT / "autograder")) -> Counter[str]:
    """Return "file: function, what is counted" → number, for the functions above the limits of pyproject.toml."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        *_RUFF,
        "--config",
        str(ROOT / "pyproject.toml"),
        *map(str, folders),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"ruff could not check the functions: {run.stderr or run.stdout}")
    numbers: Counter[str] = Counter()
    for row in json.loads(run.stdout):
        path = Path(row["filename"])
        line = path.read_text(encoding="utf-8").splitlines()[row["location"]["row"] - 1]
        name = _DEFINITION.search(line)[1]
        number = re.search(r"\((\d+) > \d+\)", row["message"])[1]
        measure = {"C901": "complexity", "PLR0915": "statements"}[row["code"]]
        place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        numbers[f"{place.as_posix()}: {name}, {measure}"] += int(number)  # two functions of one name count as one
    return numbers


if __name__ == "__main__":
    sys.exit(ratchet.main(LIMITS, complex_functions()))
