"""Which cells are left out of a grade, from their text alone."""

from __future__ import annotations

import json

import nbformat
import pytest

from autograder.authoring.notebooks import assignments, source_notebook
from autograder.engine.data import NotebookResult, Ran
from autograder.grading import idle, intake

IMPORTS = """
import logging
import os
import random
import warnings
from contextlib import suppress

import torch
from IPython.display import display

from passlab import diff, draw, trace
from passlab.fx.effects import EFFECTS
"""
ANSWER = "def cse(gm):\n    return torch.relu(gm)"


def left_out(cell: str, answer: str = ANSWER, before: str = "0", after: str = "0") -> bool:
    """Return whether `cell`, the only candidate, is left out of a notebook with this answer."""
    sources = {0: IMPORTS, 1: before, 2: answer, 3: "cse", 4: cell, 5: after}
    return idle.skippable_cells(sources, {4}, [3]) == {4}


@pytest.mark.parametrize(
    "cell",
    [
        "draw(trace(cse, torch.randn(2)))",
        "with suppress(Exception):\n    x = torch.ones(2)\n    display(diff(cse(x), x, title='Twins'))",
        "class Twins(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.w = 1\nTwins()",
        "rows = []\nfor name in EFFECTS:\n    rows.append(name)\nprint(rows)",
        "print(torch.add(1, 2), [n.name for n in cse.graph.nodes])",
        "EFFECTS",
    ],
)
def test_a_cell_that_only_shows_something_is_left_out(cell):
    assert left_out(cell)


@pytest.mark.parametrize(
    "cell",
    [
        "%load_ext autoreload",
        "!ls",
        "get_ipython().run_line_magic('time', '')",
        "import math",
        "torch.manual_seed(0)",
        "random.seed(0)",
        "torch.set_default_dtype(torch.float64)",
        "torch.backends.cudnn.enabled = False",
        "torch.relu = torch.tanh",
        "os.environ['A'] = 'b'",
        "os.environ.setdefault('A', 'b')",
        "warnings.filterwarnings('ignore')",
        "logging.getLogger('torch').setLevel(40)",
        "EFFECTS.clear()",
        "EFFECTS.pop('writes')",
        "names = EFFECTS\nnames.update({})",
        "for each in EFFECTS.values():\n    each.clear()",
        "def f():\n    global cse\n    cse = None\nf()",
        "def f():\n    torch.relu = None\nf()",
        "exec('cse = None')",
        "open('/tmp/x', 'w')",
        "del cse",
        "cse.limit = 3",
        "@torch.library.register_fake('a::b')\ndef f(): ...",
    ],
)
def test_a_cell_that_does_something_else_is_run(cell):
    assert not left_out(cell)


def test_a_name_that_the_answer_uses_is_defined():
    assert not left_out("LIMIT = 3", "def cse(gm):\n    return gm if LIMIT else None")
    assert left_out("LIMIT = 3", "def cse(gm):\n    LIMIT = 1\n    return LIMIT")


def test_names_are_followed_through_the_cells_of_the_course():
    sources = {0: "a = 1", 1: "b = a + 1", 2: "def answer():\n    return b", 3: "answer", 4: "c = 4"}
    assert idle.skippable_cells(sources, {0, 1, 4}, [3]) == {4}


def test_an_object_that_others_use_may_be_changed_by_a_call():
    assert not left_out("display(cse(net))", before="net = trace(1)", after="print(net)")
    assert left_out("display(cse(net))", before="net = trace(1)")


def test_a_name_that_is_bound_again_before_its_use_is_not_needed():
    sources = {0: "for choose in (1, 2):\n    print(choose)", 1: "def choose():\n    return choose()", 2: "choose"}
    assert idle.skippable_cells(sources, {0}, [2]) == {0}
    assert not idle.skippable_cells(sources | {1: "print(choose)\nchoose = 1"}, {0}, [2])


@pytest.mark.parametrize(
    "own", ["globals()['x']", "eval('x')", "import __main__", "%time 1", "Out[3]", "_", "vars()", "sys.modules"]
)
def test_where_a_learner_can_reach_any_name_all_is_run(own):
    assert not left_out("print(torch.ones(1))", after=own)


def test_a_cell_that_python_refuses_needs_nothing():
    assert left_out("print(torch.ones(1))", answer="def cse(gm:\n")


def test_cells_that_reach_a_name_are_found():
    sources = {0: "def mine():\n    cse(1)", 1: "print(1)", 2: "mine()", 3: "cse(2)"}
    assert idle.dependent_cells(sources, {"cse"}) == {0, 2, 3}


# In the notebooks of the course


def _job(nb, authored, **more):
    return intake.job(nb, authored, "ada", "day03", "optimizations", 0, **more)


@pytest.fixture(scope="module")
def authored():
    return source_notebook("day03", "optimizations")


def _copy(nb):
    return nbformat.from_dict(nb)


def test_every_notebook_has_cells_that_only_show_something_and_none_of_them_grades():
    for assignment, names in assignments().items():
        for name in names:
            nb = source_notebook(assignment, name)
            cells = intake.job(_copy(nb), nb, "ada", assignment, name, 0).cells
            assert any(cell.idle for cell in cells), (assignment, name)
            assert not any(cell.idle for cell in cells if cell.exercise or cell.graded or "import " in cell.source)


def _show(nb):
    """A cell that shows something of an answer."""
    return next(cell for cell in nb.cells if "fold_constants(trace(Scores" in cell.source)


def test_what_a_learner_alters_or_adds_is_run(authored):
    nb = _copy(authored)
    _show(nb).source += "\n"
    nb.cells.append(nbformat.v4.new_code_cell("print('mine')"))
    for cell in nb.cells:  # what a learner writes beside a text does not count
        cell.metadata["tags"] = ["idle"]
    cells = {cell.source: cell for cell in _job(nb, authored).cells}
    assert not cells[_show(nb).source].idle
    assert not cells["print('mine')"].idle


def test_an_author_can_have_a_cell_run(authored):
    message = _copy(authored)
    _show(message).metadata["tags"] = ["runs"]
    of = {cell.source: cell.idle for cell in _job(_copy(authored), message).cells}
    assert not of[_show(message).source]
    assert not of['progress("day03")'] or any(of.values())


def test_all_can_be_run(authored):
    cells = _job(_copy(authored), authored, run_all=True).cells
    assert not any(cell.idle or cell.calls for cell in cells)


def test_what_was_handed_in_is_shown_and_said_to_be_so(authored, tmp_path):
    nb = _copy(authored)
    show = _show(nb)
    html = {"text/html": ["<b>", "mine</b>"], "application/x-verdict": "1"}
    show.outputs = [
        nbformat.from_dict({"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]}),
        nbformat.from_dict({"output_type": "display_data", "data": html, "metadata": {}}),
        nbformat.from_dict({"output_type": "made-up"}),
    ]
    path = tmp_path / "nb.ipynb"
    path.write_text(json.dumps(nb), encoding="utf-8")
    read = intake.read(path)
    at = next(i for i, cell in enumerate(read.cells) if cell.source == show.source)
    result = NotebookResult("ada", "day03", "optimizations", 0, ran={at: Ran(idle=True)})
    intake.fill(read, result)
    message, printed, drawn = read.cells[at].outputs
    assert message.text == f"{intake.AS_HANDED_IN}\n"
    assert printed.text == "a\nb\n"
    assert drawn.data == {"text/html": "<b>mine</b>"}
