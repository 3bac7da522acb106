"""Where the course lies: in this project, or in the folder that PASSLAB_COURSE names.

A course of one's own has the same folders as this project, as far as it needs them: solutions, exercises, course, and
the modules of its days in lib/passlab/exercises, lib/passlab/given and autograder/answers. It brings no other code.
"""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def external_course() -> Path | None:
    """Return the folder of a course outside this project, or None. Raise NotADirectoryError if there is none."""
    named = os.environ.get("PASSLAB_COURSE")
    if not named or Path(named).resolve() == PROJECT:
        return None
    folder = Path(named).expanduser().resolve()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"PASSLAB_COURSE names {folder}, which is not a folder: make it, or unset the variable."
        )
    return folder


def course() -> Path:
    """Return the folder of the course."""
    return external_course() or PROJECT


def package_dirs(package: str) -> list[str]:
    """Return where a course of one's own keeps its part of a package, such as "lib/passlab/given"; [] without one."""
    folder = external_course()
    return [str(folder / package)] if folder else []
