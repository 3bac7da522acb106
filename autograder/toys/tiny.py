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

#: What is written of day00, besides its notebook.
FILES = {
    "lib/passlab/exercises/day00/__init__.py": """
from passlab.judge import Exercise

NOTEBOOKS = {"tiny": "torch"}


def _exercise(name, title):
    return Exercise(f"day00.{name}", title, {"did": 2.0, "spared": 1.0}, 1, 2, ("one", "two", "three"), seconds=1)


EXERCISES = (
    _exercise("double", "Twice as much"),
    _exercise("shout", "Louder"),
    _exercise("sort-words", "In order"),
)
""",
    "lib/passlab/exercises/day00/_shared.py": """
from passlab.judge import Finding


def judge(case, value):
    yield Finding("did", value == case.expect, f"Expected {case.expect!r}, got {value!r}.")
    yield Finding("spared", value is not None, "It gave nothing back.")
""",
}
_VISIBLE = """
from passlab.exercises.day00._shared import judge
from passlab.judge import Case


def cases():
    return [Case({case})]
"""
_HIDDEN = """
from passlab.judge import Case


def hidden(seed):
    return [Case("hiddenmarker", {case})]
"""
#: name → its visible case, and its hidden one
CASES = {
    "double": ('"two", lambda: (2,), expect=4', "lambda: (1000 + seed,), expect=2000 + 2 * seed"),
    "shout": ('"a word", lambda: ("ab",), expect="AB"', 'lambda: ("hiddenword",), expect="HIDDENWORD"'),
    "sort_words": (
        '"three", lambda: (["b", "a", "c"],), expect=["a", "b", "c"]',
        'lambda: (["z", "hiddenword"],), expect=["hiddenword", "z"]',
    ),
}
for _name, (_seen, _unseen) in CASES.items():
    FILES[f"lib/passlab/exercises/day00/{_name}.py"] = _VISIBLE.format(case=_seen)
    FILES[f"autograder/answers/day00/{_name}.py"] = _HIDDEN.format(case=_unseen)

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


def question(name: str, signature: str, body: str) -> str:
    """The cells of one question of day00: title, answer cell, check cell. `body`: the lines of the answer.

    The hidden half of the check cell is what grades where nbgrader does it in its own way.
    """
    function = signature.split("(")[0]
    return f'''
# %% [markdown]
# ## {name}

# %%
def {signature}:
    """One sentence."""
    ### BEGIN SOLUTION
{textwrap.indent(body, "    ")}
    ### END SOLUTION


# %%
check("day00.{name}", {function})
### BEGIN HIDDEN TESTS
from autograder.authoring.answers import grade

grade("day00.{name}", {function})
### END HIDDEN TESTS
'''


def notebook() -> str:
    """The authored notebook of the tiny day."""
    start = "# %% [markdown]\n# # Day 0 · Tiny\n\n# %%\nimport warnings\n\nfrom passlab import check\n"
    return HEADER + start + "".join(question(name, *parts) for name, parts in ANSWERS.items())


#: What warm processes rehearse for real notebooks, and no notebook of a small course does: 40 % of their start.
_UNUSED, _USED = "    if notebooks:\n        _rehearse_export()\n    else:\n", "    if not notebooks:\n"


def machinery(folder: Path) -> Path:
    """Copy the project without its days into a folder that does not exist yet. Warm processes export no model there."""
    folder.mkdir()
    skip = shutil.ignore_patterns("__pycache__", "day*", "run", "*.egg-info", "samples", "ledger.json")
    shutil.copytree(ROOT / "lib", folder / "lib", ignore=skip)
    shutil.copytree(ROOT / "autograder", folder / "autograder", ignore=skip)
    flavours = folder / "autograder/engine/flavours.py"
    text = flavours.read_text()
    assert text.count(_UNUSED) == 1
    flavours.write_text(text.replace(_UNUSED, _USED))
    for name in ("nbgrader_config.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("course", "exercises", "solutions/day00"):
        (folder / name).mkdir(parents=True)
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files into a course: path → text."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make(folder: Path) -> Path:
    """Write the tiny course into a folder that does not exist yet."""
    machinery(folder)
    write(folder, FILES | {"solutions/day00/tiny.py": notebook()})
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
