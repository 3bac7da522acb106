"""Build the notebooks in exercises/ and solutions/ where needed: `python -m autograder.authoring.fresh`.

Loads nothing that takes time, so that `make lab` can ask each time.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys

from autograder.authoring import source
from passlab.notebook import built

#: What notebooks are built from besides their own `.py`: of a course, and of this project.
_LISTS = "lib/passlab/exercises/day*/__init__.py"
_BUILDERS = (
    *("autograder/authoring/notebooks.py", "autograder/authoring/source.py", "lib/passlab/notebook/cells.py"),
    *("autograder/grading/preprocessors.py", "autograder/nbgrader_config.py", "pyproject.toml"),
)


def digest() -> str:
    """Return a digest of all that the notebooks in exercises/ and solutions/ are built from."""
    course = (*source.notebooks(), *sorted(source.COURSE.glob(_LISTS)))
    rows = [f"{path.relative_to(source.COURSE)} {built.digest(path)}" for path in course]
    rows += [f"{name} {built.digest(source.ROOT / name)}" for name in _BUILDERS]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def is_fresh() -> bool:
    """Return whether every notebook is there that has a source, built from the sources as they are now."""
    root, paths = source.COURSE, source.notebooks()
    pairs = [path.with_suffix(".ipynb") for path in paths]
    pairs += [root / "exercises" / pair.parent.name / pair.name for pair in pairs]
    return not paths or (all(pair.exists() for pair in pairs) and built.sources(root) == digest())


def build() -> list[str]:
    """Build what is missing or older than its sources. Return lines to be shown; none if nothing was to be done."""
    if is_fresh():
        return []
    # In a process of its own, which nbgrader's settings change.
    command = [sys.executable, "-m", "autograder.authoring.notebooks", "--exercises"]
    process = subprocess.run(command, cwd=source.ROOT, capture_output=True, text=True)
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["the build ended without a word"])[-1]
        return [f"The exercises cannot be built: {reason}"]
    names = [line.removeprefix("wrote ") for line in process.stdout.splitlines() if line.startswith("wrote ")]
    moved = [f"{name}." for name in names if " " in name]
    count = f"{len(names)} notebook{'' if len(names) == 1 else 's'}"
    return [f"Built {count} from the sources.", *moved] if names else []


if __name__ == "__main__":
    for line in build():
        print(line)
