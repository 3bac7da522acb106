"""Every lesson and every solution notebook ran from a fresh kernel as it is now, and some run anew."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import nbformat
import pytest

from autograder.authoring import notebooks
from autograder.authoring.source import ROOT
from autograder.proofs.notebooks import execute, problems, questions
from tests.support.amounts import DRAW, DRAWN_NOTEBOOKS, FULL, LESSONS
from tests.support.proofs import assert_proved

#: The largest first: they take longest.
NOTEBOOKS = sorted(notebooks.authored_paths(), key=lambda path: -path.stat().st_size)
NAMES = [str(path.relative_to(ROOT)) for path in NOTEBOOKS]
DRAWN = random.Random(f"notebooks {DRAW}").sample(NAMES, DRAWN_NOTEBOOKS)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_has_changed_since_it_ran(name):
    assert_proved(name)


@pytest.mark.parametrize("name", NAMES if FULL else DRAWN)
def test_runs(name):
    requests = questions(notebooks.notebook(ROOT / name))
    assert bool(requests) == name.startswith("solutions/")
    assert problems(name) == []


#: A program that keeps a core busy until it is ended, and where a notebook says which random numbers it draws.
BUSY = "while True: pass"
SEEDED = re.compile(r"\b(manual_seed|default_rng)\((\d+)\)")


@pytest.fixture
def load():
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    yield
    for process in processes:
        process.kill()
        process.wait()


if LESSONS > 1:  # in `make test-full`

    @pytest.mark.usefixtures("load")
    @pytest.mark.parametrize("time", range(1, LESSONS))
    @pytest.mark.parametrize("path", [path for path in NOTEBOOKS if "course" in path.parts], ids=lambda p: p.stem)
    def test_a_lesson_runs_under_load_with_other_random_numbers(path, time, tmp_path, monkeypatch):
        monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "progress.json"))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        nb = notebooks.notebook(path)
        for cell in nb.cells:
            cell.source = SEEDED.sub(rf"\g<1>(\g<2> + {1000 * time})", cell.source)
        execute(nb, path.parent, timeout=900)


@pytest.mark.parametrize(
    "cell", ["import warnings\nwarnings.warn('ours')", "1 / 0", "from passlab import graph\n'\\d'.nothing"]
)
def test_a_notebook_that_warns_or_fails_is_caught(cell, tmp_path):
    with pytest.raises(Exception, match=r"UserWarning|ZeroDivisionError|AttributeError"):
        execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)]), tmp_path)
