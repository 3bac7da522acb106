"""Code of exercises that the process which runs an answer may import, also during grading.

`module("day02.pass-manager")` is `day02/pass_manager.py`. Most exercises need no such module. It holds, as far as the
exercise has it,

    def call(answer, case): ...   # runs an answer on a case, if not by answer(*case.build())

the records, functions and modules that travel in its arguments and results (see `passlab.judge.travel`), and material
that its notebook shows. An answer may read and call all of it, so it holds nothing with which a value is compared: no
cases, no expected values, nothing that does the exercise. All that is in `passlab.exercises`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from passlab import course_paths

__path__ += course_paths.package_dirs("lib/passlab/given")


def module(exercise_id: str) -> ModuleType | None:
    """Import and return what an exercise gives, or None if there is no such module."""
    name = f"{__name__}.{exercise_id.replace('-', '_')}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return None
