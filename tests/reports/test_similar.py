"""Which answers count as the same, and which say nothing."""

import random
import time

import pytest

from autograder.reports.similar import COMMON, digest, similar
from tests.support import growth

ORIGINAL = '''
import torch
from torch import fx

def dead(gm: fx.GraphModule) -> fx.GraphModule:
    """Remove what nobody reads."""
    # walk backwards
    for node in reversed(list(gm.graph.nodes)):
        if node.op == "output" or node.users:
            continue
        kept = [user for user in node.users if user.op != "call_function"]
        if len(kept) < 3 and not visit(node, limit=7):
            gm.graph.erase_node(node)
    gm.recompile()
    return gm

def visit(node, limit):
    return node.target is torch.relu and limit > 7
'''

RENAMED = '''
from torch import fx as f
import torch as t
def eliminate(module, ):
    for n in reversed(list(module.graph.nodes)):
        if (n.op == 'output'
            or n.users): continue
        left=[u for u in n.users if u.op!='call_function']
        if len(left)<3 and not look(n,bound=7): module.graph.erase_node(n)
    module.recompile() # done
    return module
def look(n, bound):
    """A helper."""
    "and a string that does nothing"
    return n.target is t.relu and bound>7
'''


def pairs(*answers, **more):
    result = similar([(f"learner-{n}", "dce", text) for n, text in enumerate(answers)], **more)
    return [(p.first, p.second, p.questions) for p in result.pairs]


def test_other_names_comments_layout_annotations_and_imports_are_the_same_answer():
    assert pairs(ORIGINAL, RENAMED) == [("learner-0", "learner-1", ("dce",))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("< 3", "< 4"),
        ("len(kept)", "sum(kept)"),
        ("torch.relu", "torch.gelu"),
        ("gm.recompile()", "gm.graph.lint()"),
        ("kept) <", "kept) <="),
        ('"output"', '"placeholder"'),
        ("visit(node, limit=7)", "visit(node, 7)"),
        ("user for user in node.users if user.op", "user for user in node.users if node.op"),
    ],
)
def test_a_difference_in_what_is_computed_counts(old, new):
    assert old in ORIGINAL
    assert pairs(ORIGINAL, ORIGINAL.replace(old, new)) == []


def test_elif_and_nonlocal_and_methods_under_other_names():
    one = "class A:\n    def go(self, x):\n        self.n = x\n        def f():\n            nonlocal x\n"
    one += (
        "            x = 1\n        if x:\n            return 1\n        elif self.n:\n            return self.go(2)\n"
    )
    other = "class B:\n def run(me, y):\n  me.n = y\n  def g():\n   nonlocal y\n   y = 1\n"
    other += "  if y:\n   return 1\n  else:\n   if me.n:\n    return me.run(2)\n"
    assert digest(one) == digest(other)


def test_stub_reference_and_short_answers_say_nothing():
    assert pairs(ORIGINAL, RENAMED, known={"dce": [RENAMED]}) == []
    assert len(pairs(ORIGINAL, RENAMED, known={"cse": [RENAMED]})) == 1
    assert pairs("def dce(gm):\n    return gm", "def dce(g):\n    return g") == []
    assert pairs("", "") == []


def test_what_many_have_is_counted_and_not_paired():
    result = similar([(f"learner-{n}", "dce", ORIGINAL) for n in range(COMMON + 1)])
    assert result.pairs == [] and result.common == [("dce", tuple(f"learner-{n}" for n in range(COMMON + 1)))]
    result = similar([(f"learner-{n}", "dce", ORIGINAL) for n in range(COMMON)])
    assert len(result.pairs) == COMMON * (COMMON - 1) // 2 and result.common == []


def test_pairs_with_most_questions_come_first_and_one_learner_is_no_pair():
    answers = [("ada", "dce", ORIGINAL), ("ada", "dce", RENAMED), ("bob", "dce", RENAMED)]
    answers += [(who, q, ORIGINAL) for who in ("cyd", "dan") for q in ("cse", "gelu")]
    result = similar(answers)
    assert [(p.first, p.second, p.questions) for p in result.pairs] == [
        ("cyd", "dan", ("cse", "gelu")),
        ("ada", "bob", ("dce",)),
    ]
    assert len(similar(answers, limit=1).pairs) == 1


HOSTILE = {
    "syntax error": "def dce(gm:\n    return (" + "gm + " * 200,
    "null byte": "x = 1\0" + "y = 2\n" * 200,
    "lone surrogate": "x = '\ud800'\n" * 100,
    "one megabyte": "x = 1\n" * 175_000,
    "parentheses": "(" * 49_000,
    "deep operators": "1" + "+1" * 24_000,
    "deep calls": "f" + "()" * 24_000,
    "huge number": "x = 0x" + "f" * 40_000 + "\n" + "y = 1\n" * 100,
    "quotes": '\\"""' * 2_400,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_cell_breaks_the_comparison_or_holds_it_up(name):
    start = time.process_time()
    assert len(pairs(HOSTILE[name], HOSTILE[name] + " ")) == 1
    assert time.process_time() - start < 20, "milliseconds; without limits some take minutes"


def _variant(rng: random.Random, number: int) -> str:
    """A program of its own, of the size of a real answer."""
    lines = [f"def answer_{number}(gm):", f"    total = {number}"]
    for n in range(30):
        lines.append(
            rng.choice(["    total += {}", "    for x in range({}): total -= x", "    total = total or {}"]).format(n)
        )
    return "\n".join([*lines, "    return total"])


def _class(size: int) -> list[tuple[str, str, str]]:
    rng = random.Random(0)
    return [(f"learner-{n}", f"q{q}", _variant(rng, n)) for n in range(size) for q in range(22)]


def test_the_time_grows_as_the_class_does():
    classes = {size: _class(size) for size in (125, 125 * growth.STEP)}
    assert growth.ratio(lambda size: similar(classes[size]), 125) <= growth.MOST


def test_one_who_copied_is_found_in_a_class_of_a_thousand():
    answers = _class(1000)
    copied = dict.fromkeys(["q3", "q4"])
    answers += [
        ("cheat", q, text.replace("total", "t")) for who, q, text in answers if who == "learner-5" and q in copied
    ]
    result = similar(answers)
    assert [(p.first, p.second, p.questions) for p in result.pairs] == [("cheat", "learner-5", ("q3", "q4"))]
