"""Which answers must be kept as they were at their check, because of what a later cell does."""

from __future__ import annotations

import pytest

from autograder.engine.data import Cell
from autograder.engine.runner.snapshots import checks_to_keep

ANSWER = (
    "TABLE = {}\n\ndef helper(x):\n    return TABLE.get(x, x)\n\ndef double(x):\n    y = helper(x)\n    return y + y"
)


def kept(later: str) -> bool:
    cells = [
        Cell(0, "start", "import math\nfrom passlab import check"),
        Cell(1, "double", ANSWER),
        Cell(2, "double-check", "", "day00.double", "double"),
        Cell(3, "later", later),
    ]
    return checks_to_keep(cells) == {2}


@pytest.mark.parametrize(
    "later",
    [
        "def helper(x):\n    return 0",
        "double = None",
        "from other import helper",
        "import numpy as helper",
        "class double: pass",
        "for helper in []: pass",
        "TABLE[1] = 2",
        "TABLE.update({1: 2})",
        "TABLE |= {1: 2}",
        "del TABLE",
        "helper.cache = {}",
        "def f():\n    global TABLE\n    TABLE = 1",
        "exec('TABLE = 1')",
        "globals()['TABLE'] = 1",
        "from other import *",
        "%run other.py",
        "torch.set_default_dtype(torch.float64)",
        "def f(:",
    ],
)
def test_a_cell_that_changes_what_the_answer_uses(later):
    assert kept(later)


@pytest.mark.parametrize(
    "later",
    [
        "print(double(2))",
        "x = y = 3\nresult = double(x)",
        "def shout(word):\n    helper = word\n    TABLE = helper\n    return TABLE",
        "import math",
        "check('day00.double', double)",
        "class Other:\n    double = 1\n    def helper(self): pass",
        "[double for double in ()]",
        "def f(g):\n    setattr(g, 'TABLE', 1)",
        "",
    ],
)
def test_a_cell_that_does_not(later):
    assert not kept(later)


def test_only_checks_above_the_change_are_kept():
    cells = [
        Cell(0, "a", "def a(): return b()\ndef b(): return 1"),
        Cell(1, "a-check", "", "day00.a", "a"),
        Cell(2, "b", "def b(): return 2"),
        Cell(3, "b-check", "", "day00.b", "b"),
    ]
    assert checks_to_keep(cells) == {1}
