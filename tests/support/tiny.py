"""A course of one tiny day, without torch, for tests of the frame: notebooks, grading, feedback.

`make(folder)` copies the project's machinery there and writes a day of three questions. Everything started with
`environment(folder)` uses that copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

EXERCISES = '''
"""Three small questions."""

from passlab.judge import Case, Exercise, Finding


def _judge(case, value):
    yield Finding("did", value == case.expect, f"Expected {case.expect!r}, got {value!r}.")
    yield Finding("spared", value is not None, "It gave nothing back.")


def _exercise(name, title, case):
    points, hints = {"did": 2.0, "spared": 1.0}, ("one", "two", "three")
    return Exercise(f"day00.{name}", title, points, 1, 2, hints, lambda: [case], _judge, seconds=1)


EXERCISES = (
    _exercise("double", "Twice as much", Case("two", lambda: (2,), expect=4)),
    _exercise("shout", "Louder", Case("a word", lambda: ("ab",), expect="AB")),
    _exercise("sort-words", "In order", Case("three", lambda: (["b", "a", "c"],), expect=["a", "b", "c"])),
)
'''

HIDDEN = '''
"""Hidden cases of the three small questions."""

from passlab.judge import Case

HIDDEN = {
    "day00.double": lambda seed: [Case("hiddenmarker", lambda: (1000 + seed,), expect=2000 + 2 * seed)],
    "day00.shout": lambda seed: [Case("hiddenmarker", lambda: ("hiddenword",), expect="HIDDENWORD")],
    "day00.sort-words": lambda seed: [Case("hiddenmarker", lambda: (["z", "hiddenword"],), expect=["hiddenword", "z"])],
}
'''

HEADER = """# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

"""

ANSWERS = {
    "double": ("double(x)", "return x + x  # solutionmarker"),
    "shout": ("shout(word)", "return word.upper()  # solutionmarker"),
    "sort-words": ("sort_words(words)", "return sorted(words)  # solutionmarker"),
}


def question(name: str, signature: str, body: str, points: float = 3) -> str:
    """The cells of one question of day00: title, answer cell, check cell. `body`: the lines of the answer."""
    function = signature.split("(")[0]
    meta = '"locked": {locked}, {points}"schema_version": 3, "solution": {solution}, "task": false'
    answer = meta.format(locked="false", points="", solution="true")
    check = meta.format(locked="true", points=f'"points": {points:g}, ', solution="false")
    return f'''
# %% [markdown]
# ## {name}

# %% nbgrader={{"grade": false, "grade_id": "{name}", {answer}}}
def {signature}:
    """One sentence."""
    ### BEGIN SOLUTION
{textwrap.indent(body, "    ")}
    ### END SOLUTION


# %% nbgrader={{"grade": true, "grade_id": "{name}-check", {check}}}
check("day00.{name}", {function})
### BEGIN HIDDEN TESTS
from autograder.authoring.checking import grade

grade("day00.{name}", {function})
### END HIDDEN TESTS
'''


def notebook() -> str:
    """The authored notebook of the tiny day."""
    start = "# %% [markdown]\n# # Day 0 · Tiny\n\n# %%\nimport warnings\n\nfrom passlab import check\n"
    return HEADER + start + "".join(question(name, *parts) for name, parts in ANSWERS.items())


def machinery(folder: Path) -> Path:
    """Copy the project without its days into a folder that does not exist yet."""
    folder.mkdir()
    skip = shutil.ignore_patterns("__pycache__", "day*", "run", "*.egg-info", "samples")
    shutil.copytree(ROOT / "lib", folder / "lib", ignore=skip)
    shutil.copytree(ROOT / "autograder", folder / "autograder", ignore=skip)
    for name in ("nbgrader_config.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("course", "exercises", "solutions/day00", "autograder/bank/day00"):
        (folder / name).mkdir(parents=True)
    (folder / "autograder/hidden").mkdir(exist_ok=True)
    return folder


def make(folder: Path) -> Path:
    """Write the tiny course into a folder that does not exist yet."""
    machinery(folder)
    (folder / "lib/passlab/exercises/day00.py").write_text(EXERCISES)
    (folder / "autograder/hidden/day00.py").write_text(HIDDEN)
    (folder / "solutions/day00/tiny.py").write_text(notebook())
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The environment in which `passlab` and `autograder` are the copies in `folder`."""
    dropped = ("PASSLAB_RUN", "PASSLAB_SEED", "PASSLAB_PROGRESS")
    env = {k: v for k, v in os.environ.items() if k not in dropped}
    return env | {"PYTHONPATH": f"{folder / 'lib'}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def run(
    folder: Path, *command: str, cwd: Path | None = None, input: str | None = None, **env: str
) -> subprocess.CompletedProcess:
    """Run a Python module or program of this environment inside the tiny course."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd or folder,
        env=environment(folder) | env,
        input=input,
        capture_output=True,
        text=True,
        timeout=300,
    )
