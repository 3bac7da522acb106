"""A course of one small day of torch.fx passes: six exercises with cheap judges, for attacks and for the benchmark.

    folder = make(path)                                   # the project's machinery and day00, notebooks not yet built
    submission(folder, "ada", {"dce": QUESTIONS["dce"].right})

Every exercise has two visible cases and three hidden ones, a reference answer, a right one that differs, a wrong one.
The judge of a pass validates the graph, runs both graphs on one input, and counts which ops are left. Running all six
check cells takes about a tenth of a second, so what a grader adds around them shows.

Each hidden case holds marks (`MARKS`) in what nobody but the grader may see (its name, what it expects) and in what
an answer is given and must not pass on (a buffer's name, a number).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

from autograder.toys import classes, tiny

DAY, NOTEBOOK = "day00", "fx"

#: In the names and expectations of hidden cases; then in the graphs that answers are given.
SECRET, GIVEN = ("hiddenmarker", "expectmarker"), ("argmarker", "4104.06")
MARKS = (*SECRET, *GIVEN)


@dataclass(frozen=True)
class Question:
    """One exercise: the body of the reference answer, another right one as a whole cell, and a wrong one.

    `mistake`: what stands in the reference → what stands there in the wrong answer; `lost`: the verdict that it loses,
    with `note` its misconception. `closed`: the function of the library that does it.
    """

    title: str
    signature: str
    points: str
    cases: str
    hidden: str
    reference: str
    right: str
    mistake: dict[str, str]
    lost: str
    note: str
    closed: tuple[str, ...] = ()

    @property
    def good(self) -> str:
        """The reference as a learner's answer cell."""
        return f"def {self.signature}:\n{textwrap.indent(self.reference.strip(), '    ')}\n"

    @property
    def wrong(self) -> str:
        """The wrong answer as a cell."""
        text = self.good
        for fragment, instead in self.mistake.items():
            assert fragment in text
            text = text.replace(fragment, instead)
        return text

    @property
    def total(self) -> float:
        return sum(int(part.split("=")[1]) for part in self.points.split(","))


QUESTIONS = {
    "count-nodes": Question(
        "How often each op occurs",
        "count_nodes(gm)",
        "did=2, spared=1",
        """
        case("three ops", lambda x, w: (x + w).relu().relu(), {"add": 1, "relu": 2}),
        case("nothing", lambda x, w: x, {}, about=("spared",)),
        """,
        """
        case("a chain", lambda x, w: torch.tanh(torch.tanh(x)) + w + n, {"tanh": 2, "add": 2}, MARK),
        case("methods", lambda x, w: x.relu().neg() - w * n, {"relu": 1, "neg": 1, "sub": 1, "mul": 1}, MARK),
        case("no ops at all", lambda x, w: w, {}, MARK, about=("spared",)),
        """,
        """
counts = {}
for node in gm.graph.nodes:
    if node.op in ("call_function", "call_method"):
        name = node.target if node.op == "call_method" else node.target.__name__
        counts[name] = counts.get(name, 0) + 1
return counts
""",
        """
from collections import Counter

def count_nodes(gm):
    called = [n for n in gm.graph.nodes if n.op.startswith("call")]
    return dict(Counter(getattr(n.target, "__name__", n.target) for n in called))
""",
        {
            'node.op in ("call_function", "call_method")': "True",
            "node.target.__name__": 'getattr(node.target, "__name__", node.target)',
        },
        "spared",
        "inputs, attributes and the output are no ops",
    ),
    "identities": Question(
        "Without x * 1 and x + 0",
        "identities(gm)",
        "valid=1, same=1, did=2, spared=1",
        """
        case("times one", lambda x, w: (x * 1).relu() + 0, {"mul": 0, "add": 0, "relu": 1}),
        case("times two", lambda x, w: x * 2 + w, {"mul": 1, "add": 1}, about=TRAP),
        """,
        """
        case("twice", lambda x, w: (x * 1 * 1 + w) + 0, {"mul": 0, "add": 1}, MARK),
        case("a number", lambda x, w: x * n + w * 1, {"mul": 1, "add": 1}, MARK),
        case("zero minus", lambda x, w: (0 - x) * w + 1, {"sub": 1, "mul": 1, "add": 1}, MARK, about=TRAP),
        """,
        """
neutral = {operator.mul: 1, operator.add: 0}
for node in list(gm.graph.nodes):
    if node.op == "call_function" and node.target in neutral and node.args[1] == neutral[node.target]:
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
gm.recompile()
return gm
""",
        """
def identities(gm):
    graph, new = fx.Graph(), {}
    for node in gm.graph.nodes:
        if (node.target, *node.args[1:]) in ((operator.mul, 1), (operator.add, 0)):
            new[node] = new[node.args[0]]
        else:
            new[node] = graph.node_copy(node, new.__getitem__)
    return fx.GraphModule(gm, graph)
""",
        {"== neutral[node.target]": "in (0, 1)"},
        "spared",
        "adding one is taken for neutral",
    ),
    "dce": Question(
        "Dead code elimination",
        "dce(gm)",
        "valid=1, same=1, did=2, spared=1",
        """
        case("a dead chain", dead_chain, {"relu": 0, "tanh": 0, "add": 1}),
        case("a write", write, {"add_": 1, "neg": 1}, about=TRAP),
        """,
        """
        case("a longer chain", lambda x, w: dead_chain(torch.sin(x) + n, w), {"relu": 0, "tanh": 0, "sin": 1}, MARK),
        case("dead, with a write", lambda x, w: write(dead_chain(x, w), w), {"relu": 0, "add_": 1}, MARK),
        case("all live", lambda x, w: x.relu() * w + n, {"relu": 1, "mul": 1, "add": 1}, MARK, about=TRAP),
        """,
        """
for node in reversed(list(gm.graph.nodes)):
    writes = node.op == "call_method" and node.target.endswith("_")
    if node.op.startswith("call") and not node.users and not writes:
        gm.graph.erase_node(node)
gm.recompile()
return gm
""",
        """
def dce(gm):
    keep = [n for n in gm.graph.nodes if n.op in ("placeholder", "output") or str(n.target).endswith("_")]
    live = set()
    while keep:
        node = keep.pop()
        if node not in live:
            live.add(node)
            keep.extend(node.all_input_nodes)
    for node in reversed(list(gm.graph.nodes)):
        if node not in live:
            gm.graph.erase_node(node)
    return gm
""",
        {" and not writes": ""},
        "spared",
        "a write has no users and is needed all the same",
    ),
    "cse": Question(
        "Common subexpressions",
        "cse(gm)",
        "valid=1, same=1, did=2, spared=1",
        """
        case("twins", lambda x, w: x.relu() + x.relu(), {"relu": 1, "add": 1}),
        case("not twins", lambda x, w: (x * 2) + (x * 3), {"mul": 2, "add": 1}, about=TRAP),
        """,
        """
        case("twins of twins", lambda x, w: (x * n).relu() + (x * n).relu(), {"mul": 1, "relu": 1}, MARK),
        case("three", lambda x, w: (x + w) * (x + w) - (x + w), {"add": 1, "mul": 1, "sub": 1}, MARK),
        case("other side", lambda x, w: (x - w) * (w - x) + n, {"sub": 2, "mul": 1, "add": 1}, MARK, about=TRAP),
        """,
        """
seen = {}
for node in list(gm.graph.nodes):
    if node.op in ("placeholder", "output"):
        continue
    key = (node.op, node.target, node.args, tuple(node.kwargs.items()))
    if key in seen:
        node.replace_all_uses_with(seen[key])
        gm.graph.erase_node(node)
    else:
        seen[key] = node
gm.recompile()
return gm
""",
        """
def cse(gm):
    graph, new, table = fx.Graph(), {}, {}
    for node in gm.graph.nodes:
        args = tuple(new.get(a, a) if isinstance(a, fx.Node) else a for a in node.args)
        key = (node.op, node.target, args) if node.op not in ("placeholder", "output") else node
        if key not in table:
            table[key] = graph.node_copy(node, new.__getitem__)
        new[node] = table[key]
    return fx.GraphModule(gm, graph)
""",
        {"node.args, tuple(node.kwargs.items())": "tuple(a for a in node.args if isinstance(a, fx.Node))"},
        "spared",
        "operands that are numbers do not count: x * 2 is x * 3",
    ),
    "constant-fold": Question(
        "Constants, computed now",
        "constant_fold(gm)",
        "valid=1, same=1, did=2, spared=1",
        """
        case("one op", lambda x, w: torch.tanh(w) + x, {"tanh": 0, "add": 1}),
        case("nothing to fold", lambda x, w: torch.tanh(x) + w, {"tanh": 1, "add": 1}, about=TRAP),
        """,
        """
        case("a chain", lambda x, w: torch.exp(torch.tanh(w)) * x, {"exp": 0, "tanh": 0, "mul": 1}, MARK),
        case("two places", lambda x, w: torch.sin(w) * x + torch.cos(w), {"sin": 0, "cos": 0, "mul": 1}, MARK),
        case("mixed", lambda x, w: torch.sin(x * w) + torch.sin(w) * n, {"sin": 1, "mul": 1, "add": 1}, MARK),
        """,
        """
values = {}
for node in list(gm.graph.nodes):
    if node.op == "get_attr":
        values[node] = getattr(gm, node.target)
    elif node.op == "call_function" and all(n in values for n in node.all_input_nodes):
        values[node] = node.target(*(values.get(a, a) if isinstance(a, fx.Node) else a for a in node.args))
        name = f"folded_{len(values)}"
        gm.register_buffer(name, values[node])
        with gm.graph.inserting_before(node):
            new = gm.graph.get_attr(name)
        values[new] = values[node]
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
gm.recompile()
return gm
""",
        """
def constant_fold(gm):
    graph, new, known = fx.Graph(), {}, {}
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            known[node] = getattr(gm, node.target)
        if node.op == "call_function" and set(node.all_input_nodes) <= set(known):
            args = [known[a] if isinstance(a, fx.Node) else a for a in node.args]
            known[node] = node.target(*args)
            gm.register_buffer(node.name + "_value", known[node])
            new[node] = graph.get_attr(node.name + "_value")
        else:
            new[node] = graph.node_copy(node, new.__getitem__)
    return fx.GraphModule(gm, graph)
""",
        {'f"folded_{len(values)}"': '"folded"'},
        "same",
        "every constant goes into one buffer, so the last one wins",
        ("passlab.fx.stages.fold",),
    ),
    "functions": Question(
        "Methods become functions",
        "functions(gm)",
        "valid=1, same=1, did=2, spared=1",
        """
        case("relu", lambda x, w: x.relu() + w, {"method relu": 0, "relu": 1, "add": 1}),
        case("another method", lambda x, w: x.sigmoid().relu(), {"method sigmoid": 1, "method relu": 0, "relu": 1}),
        """,
        """
        case("two", lambda x, w: x.relu() + (w * n).relu(), {"method relu": 0, "relu": 2}, MARK),
        case("in a row", lambda x, w: (x - w).relu().relu(), {"method relu": 0, "relu": 2, "sub": 1}, MARK),
        case("none", lambda x, w: x.tanh() * w + n, {"method tanh": 1, "mul": 1, "add": 1}, MARK, about=TRAP),
        """,
        """
for node in gm.graph.nodes:
    if node.op == "call_method" and node.target == "relu":
        node.op, node.target = "call_function", torch.relu
gm.recompile()
return gm
""",
        """
def functions(gm):
    class Rewrite(fx.Transformer):
        def call_method(self, target, args, kwargs):
            if target == "relu":
                return self.call_function(torch.relu, args, kwargs)
            return super().call_method(target, args, kwargs)

    return Rewrite(gm).transform()
""",
        {' and node.target == "relu"': "", "torch.relu": "getattr(torch, node.target)"},
        "spared",
        "every method becomes a function, wanted or not",
    ),
}

#: What a whole submission is worth.
TOTAL = sum(question.total for question in QUESTIONS.values())

CASES = '''
"""Cases of the small passes: a program of x and one buffer, and how often each op must be left."""

import operator
from collections import Counter

import torch
from torch import fx, nn

from passlab.fx import programs
from passlab.fx.judge import rebuild, why_not_valid
from passlab.judge import Case, Finding

TRAP = ("valid", "same", "spared")  # a graph with nothing to do says nothing about doing it


class Program(nn.Module):
    """A function of x and of a buffer, called `name`."""

    def __init__(self, function, name):
        super().__init__()
        self.function, self.name = function, name
        self.register_buffer(name, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

    def forward(self, x):
        return self.function(x, getattr(self, self.name))


class Tracer(fx.Tracer):
    proxy_buffer_attributes = True


def traced(function, attribute):
    program = Program(function, attribute)
    return fx.GraphModule(program, Tracer().trace(program))


def dead_chain(x, w):
    torch.tanh(x.relu())
    return x + w


def write(x, w):
    y = x.neg()
    y.add_(w)
    return y


def case(title, function, expect, mark=("", "w", {}), about=()):
    """A case of a pass; `mark`: what is put before its name, the buffer's name, more to expect."""
    title, attribute, more = f"{mark[0]}{title}", mark[1], mark[2]
    return Case(title, lambda: (traced(function, attribute),), about, expect=(expect, more))


def ops(gm):
    """How often each op occurs; a method counts as itself and, to tell it from a function, as "method …"."""
    found = Counter()
    for node in gm.graph.nodes:
        if node.op == "call_function":
            found[node.target.__name__] += 1
        elif node.op == "call_method":
            found.update([node.target, f"method {node.target}"])
    return found


def judge_count(case, value):
    expect = case.expect[0]
    right = type(value) is dict and all(value.get(op) == n for op, n in expect.items())
    yield Finding("did", right, "An op is not counted, or not as often as it occurs.")
    yield Finding("spared", type(value) is dict and set(value) <= set(expect), "It counts something that is not an op.")


def judge_pass(case, value):
    before = case.build()[0]
    broken = why_not_valid(before, value)
    yield Finding("valid", not broken, broken, before=before)
    if broken:
        return
    after, x = rebuild(value), torch.linspace(-2.0, 3.0, 4).reshape(2, 2)
    old, new = (programs.Program(gm).run((x,)) for gm in (before, after))
    same = not new.error and torch.allclose(old.output, new.output)
    yield Finding("same", same, "It computes something else.", before=before, after=after)
    left = ops(after)
    if any(op.startswith("method") for op in case.expect[0]):
        left = Counter({op: n for op, n in left.items() if f"method {op}" not in left})
    wanted = {**case.expect[0], **case.expect[1]}
    todo = next((op for op, n in wanted.items() if left[op] > n), None)
    gone = next((op for op, n in wanted.items() if left[op] < n), None)
    yield Finding("did", todo is None, f"There is still too much of {todo}.", before=before, after=after)
    yield Finding("spared", gone is None, f"{gone} was needed.", before=before, after=after)
'''

EXERCISES = '''
"""Six small passes over torch.fx graphs."""

from passlab.judge import Exercise

NOTEBOOKS = {"fx": "torch"}
HINTS = ("one", "two", "three")

EXERCISES = (
'''

VISIBLE = '''
"""Visible cases of day00.{name}."""

import operator

import torch

from passlab.exercises.day00._shared import {judge} as judge
from passlab.exercises.day00._shared import TRAP, case, dead_chain, write


def cases():
    return [
{cases}
    ]
'''

SHARED = '''
"""What the hidden cases of the six small passes share. Their marks must never be seen outside the grader."""

import random

MARK = ("hiddenmarker ", "argmarker", {"expectmarker": 0})


def number(seed):
    """A number to compute with: 4104.0625, and something small that is drawn."""
    return 4104.0625 + random.Random(seed).randrange(8) / 2**12
'''

ANSWERS = '''
"""Hidden cases and answers of day00.{name}."""

import operator

import torch
from torch import fx

from autograder.answers.day00._shared import MARK, number
from autograder.authoring.answers import right, wrong
from passlab.exercises.day00._shared import TRAP, case, dead_chain, write


def hidden(seed):
    n = number(seed)
    return [
{cases}
    ]


{right}

{wrong}
'''

START = """# %% [markdown]
# # Day 0 · Six small passes

# %%
import operator

import torch
from torch import fx

from passlab import check
"""


def _cases(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text).strip(), " " * 8)


def _exercises() -> str:
    row = '    Exercise("day00.{}", "{}", dict({}), 1, 2, HINTS, seconds=1, closed={}),\n'
    rows = (row.format(name, q.title, q.points, q.closed) for name, q in QUESTIONS.items())
    return f"{EXERCISES}{''.join(rows)})\n"


def _visible(name: str) -> str:
    judge = "judge_count" if name == "count-nodes" else "judge_pass"
    return VISIBLE.format(name=name, judge=judge, cases=_cases(QUESTIONS[name].cases))


def _answers(name: str) -> str:
    q = QUESTIONS[name]
    definition = f"def {q.signature}:"
    marked = ('@right("made in another way")', definition.replace(name.replace("-", "_"), "another_way", 1))
    missed = (f'@wrong("{q.lost}", "{q.note}")', definition.replace(name.replace("-", "_"), "mistaken", 1))
    right, wrong = (q.right.replace(definition, "\n".join(marked)), q.wrong.replace(definition, "\n".join(missed)))
    return ANSWERS.format(name=name, cases=_cases(q.hidden), right=right, wrong=wrong)


def notebook() -> str:
    """The authored notebook."""
    parts = (tiny.question(name, q.signature, q.reference.strip()) for name, q in QUESTIONS.items())
    return tiny.HEADER + START + "".join(parts)


def make(folder: Path) -> Path:
    """Write the course into a folder that does not exist yet; `autograder.authoring.notebooks` builds its notebooks."""
    tiny.machinery(folder)
    exercises, answers = f"lib/passlab/exercises/{DAY}", f"autograder/answers/{DAY}"
    files = {
        f"{exercises}/__init__.py": _exercises(),
        f"{exercises}/_shared.py": CASES,
        f"{answers}/_shared.py": SHARED,
        f"solutions/{DAY}/{NOTEBOOK}.py": notebook(),
    }
    for name in QUESTIONS:
        module = name.replace("-", "_")
        files |= {f"{exercises}/{module}.py": _visible(name), f"{answers}/{module}.py": _answers(name)}
    tiny.write(folder, files)
    return folder


def submission(folder: Path, learner: str, answers: dict[str, str], where: Path | str = "class") -> Path:
    """Hand in the released notebook with these answer cells (question → source) under `where`."""
    return classes.submit(folder, learner, answers, where, f"{DAY}/{NOTEBOOK}.ipynb")
