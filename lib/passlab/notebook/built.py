"""The notebooks that version control does not have: built in the clone, in exercises/ and solutions/.

A file beside them, which the build writes, holds a digest of what they were built from, and one of each notebook. So it
is known whether there is something to build, and whether a notebook has been saved with changes since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

RECORD = "exercises/.built.json"


def digest(path: Path) -> str:
    """Return a digest of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(root: Path) -> dict:
    try:
        return json.loads((root / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def write(root: Path, sources: str, paths: Iterable[Path]) -> None:
    """Record which notebooks were built. sources: the digest of what they were built from."""
    notebooks = _read(root).get("notebooks", {}) | {str(path.relative_to(root)): digest(path) for path in sorted(paths)}
    text = json.dumps({"sources": sources, "notebooks": notebooks}, indent=0) + "\n"
    (root / RECORD).parent.mkdir(exist_ok=True)
    (root / RECORD).write_text(text, encoding="utf-8")


def sources(root: Path) -> str:
    """Return the digest of what the notebooks were built from; "" if they were not."""
    return _read(root).get("sources", "")


def is_as_built(root: Path, path: Path) -> bool:
    """Return whether a file has not been saved since it was built."""
    return path.is_file() and _read(root).get("notebooks", {}).get(str(path.relative_to(root))) == digest(path)


def saved(root: Path) -> list[str]:
    """Return the exercises and solutions that were saved with other bytes since, relative to the course's folder."""
    rows = _read(root).get("notebooks", {}).items()
    rows = [(root / name, built) for name, built in rows if not name.startswith("course/")]
    return [str(path.relative_to(root)) for path, built in rows if path.is_file() and digest(path) != built]
