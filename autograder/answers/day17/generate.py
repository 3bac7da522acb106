"""Hidden cases and answers of day17.generate."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.answers.day03 import cse, dce, simplify
from autograder.authoring.answers import Edit, edited, reference, right, wrong
from passlab.exercises.day17.generate import Suspects, generate_case
from passlab.given.day17.generate import program, read, store
from passlab.judge import Case

#: Name of a pass → wrong answers of its exercise of day 3 that go wrong on some graph: those of each case, others, and
#: how many of the others a case has. Of CSE's, only integers expose the first two.
POOLS: dict[str, tuple[list[Any], list[Any], int]] = {
    "cse": (
        [cse.python_equality, cse.equal_keywords_merge],
        [
            *(cse.no_keywords, cse.ignores_twins, cse.merges_draws, cse.ignores_time, cse.nodes_only),
            *(cse.ignores_weights, cse.modules_by_class, cse.views_are_references),
        ],
        6,
    ),
    "dce": (
        [
            *(dce.unread_is_dead, dce.torch_untold, dce.underscores, dce.forgets_draws, dce.forgets_writes),
            *(dce.modules_are_pure, dce.drops_inputs),
        ],
        [],
        0,
    ),
    "simplify": (
        [
            *(simplify.real_numbers, simplify.modules_by_name, simplify.forgets_types, simplify.forgets_options),
            *(simplify.any_two_transposes, simplify.forgets_writes, simplify.as_on_paper, simplify.wrapping),
        ],
        [],
        0,
    ),
}


@cache
def _passes(name: str) -> tuple[Callable, dict[str, Callable]]:
    """Return the right pass of a name, and note → faulty pass."""
    exercise = f"day03.{name}"
    always, others, _ = POOLS[name]
    built = [a.build(exercise, a.mark.note) if isinstance(a, Edit) else a for a in always + others]
    return reference(exercise), {answer.mark.note: answer for answer in built}


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    cases = []
    for name, (always, others, count) in POOLS.items():
        correct, faulty = _passes(name)
        notes = [answer.mark.note for answer in always + rng.sample(others, count)]
        cases.append(generate_case(name, Suspects(correct, {note: faulty[note] for note in notes})))
    return cases


# ---------------------------------------------------------------------------------------------------- answers

X = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 2.0]])
N = torch.arange(6).reshape(2, 3)
ODD = torch.tensor([0.0, torch.inf, torch.nan, -3.0, 1e30])
SMALL = torch.tensor([0, 1, 2], dtype=torch.uint8)
LAYERS = {"first": lambda: nn.Linear(3, 3), "second": lambda: nn.Linear(3, 3), "norm": lambda: nn.BatchNorm1d(3)}
NAMED = {"neg": nn.Tanh, "abs": nn.Tanh, "relu": lambda: nn.Linear(3, 3)}

#: Expressions of x of which each is nearly another one.
NEAR: list[Callable] = [
    *(lambda m, x: x * 1, lambda m, x: x * 1.0, lambda m, x: x * True, lambda m, x: x * 2, lambda m, x: x * 1.5),
    *(lambda m, x: x - 1, lambda m, x: 1 - x, lambda m, x: x[0], lambda m, x: x[1]),
    *(lambda m, x: x.clamp(min=1), lambda m, x: x.clamp(min=1.0), lambda m, x: x.clamp(min=2)),
    *(lambda m, x: x.to(torch.float64), lambda m, x: x.to(torch.int32)),
    *(lambda m, x: torch.sum(x, dim=0), lambda m, x: torch.sum(x, dim=1)),
    *(lambda m, x: x.unbind()[0], lambda m, x: x.unbind()[1]),
]
#: Expressions of x, a float, that give something else each time.
DRAWN: list[Callable] = [
    lambda m, x: F.dropout(x, training=True),
    lambda m, x: torch.rand_like(x),
    lambda m, x: m.first(x),
    lambda m, x: m.second(x),
    lambda m, x: m.norm(x),
]
#: What reads x, and may read it again after a write.
READERS: list[Callable] = [
    *(lambda m, x: x + 1, lambda m, x: x.view(-1) * 2, lambda m, x: x.t().reshape(-1)),
    *(lambda m, x: m.first(x), lambda m, x: read(x, "w") + x),
]
#: What has an effect on x.
EFFECTS: list[Callable] = [
    *(lambda m, x: x.add_(1), lambda m, x: x.mul_(2), lambda m, x: x.copy_(x * 3), lambda m, x: x.t().add_(1)),
    *(lambda m, x: store(x, 0, 1.0), lambda m, x: torch.add(x, 1, out=x), lambda m, x: F.relu(x, inplace=True)),
    *(lambda m, x: torch.rand_like(x), lambda m, x: F.dropout(x, training=True), lambda m, x: m.norm(x)),
]
#: Laws that hold for some numbers.
LAWS: list[Callable] = [
    *(lambda x: x + 0, lambda x: x * 0, lambda x: x - x, lambda x: x / x, lambda x: abs(-x), lambda x: x + (-x)),
    *(lambda x: torch.exp(torch.log(x)), lambda x: torch.sqrt(x * x), lambda x: F.relu(-x)),
    *(lambda x: torch.add(x, -x, alpha=2), lambda x: torch.add(0, x, alpha=2)),
    lambda x: torch.div(x, 1, rounding_mode="floor"),
]


def _twice(read_once):
    def body(m, x):
        memory = x * 1
        before = read_once(m, memory)
        memory.add_(1)
        read(x, "w").add_(1)
        read(x, "first.weight").add_(1)
        return before, read_once(m, memory), memory

    return body


def _late(law):
    def body(m, x):
        memory = x * 2
        same = law(memory)
        memory.add_(1)
        return same, memory

    return body


def _effect(effect):
    def body(m, x, y):
        memory = x * 1
        effect(m, memory)
        return memory + 1, torch.rand_like(memory)

    return body


def _pair(first, second):
    return lambda m, x: (first(m, x), second(m, x))


def _equal(m, x):
    one, other = x * 2, x * 2
    one.add_(1)
    return one, other


def _for_cse():
    yield from (program(_pair(f, g), N) for f, g in itertools.pairwise(NEAR))
    yield program(_pair(NEAR[3], NEAR[4]), X)
    pairs = [(f, f) for f in DRAWN if f is not DRAWN[3]] + [(DRAWN[2], DRAWN[3])]
    yield from (program(_pair(*pair), X, training=True, **LAYERS) for pair in pairs)
    yield from (program(_twice(reader), X, w=(3,), **LAYERS) for reader in READERS)
    yield program(lambda m, x, y: (x - y, y - x), X, X * 2)
    yield program(_equal, X)


def _for_dce():
    for effect in EFFECTS:
        yield program(_effect(effect), X, X, training=True, **LAYERS)


def _for_simplify():
    for law in LAWS:
        yield program(_plain(law), ODD)
    yield program(lambda m, x, u: (x + (-u), abs(-u)), N[0], SMALL)
    yield program(lambda m, x: (x * 1.0, x + 0.0), N)
    yield program(lambda m, x: (x * m.w, m.w * x), X[0], w=torch.ones(2, 3))
    yield program(lambda m, x, y: (x + y) - y, X, X * 1e9)
    yield program(lambda m, x: torch.transpose(torch.transpose(x, 0, 1), 0, 2), (2, 2, 2))
    yield program(_late(lambda x: x * 1), X)
    yield program(lambda m, x: (m.neg(m.neg(x)), m.abs(-x), m.relu(m.relu(x))), X, **NAMED)


def _plain(law):
    return lambda m, x: law(x)


_BY_NAME = {"cse": _for_cse, "dce": _for_dce, "simplify": _for_simplify}


@right("one graph for each thing that a pass may overlook")
def one_each(name):
    return list(_BY_NAME[name]())


@right("draws two expressions, inputs and effects at random, and lets chance do the rest")
def at_random(name):
    rng = random.Random(1)

    def of_values(m, x):
        return [f(m, x) for f in rng.sample(NEAR, 9)]

    def of_draws(m, x):
        return [f(m, x) for f in rng.choices(DRAWN, k=9)]

    def of_laws(m, x):
        return [law(x) for law in rng.sample(LAWS, 4)]

    if name == "cse":
        graphs = [program(of_values, N) for _ in range(28)]
        graphs += [program(of_draws, X, training=True, **LAYERS) for _ in range(8)]
        graphs += [program(_twice(reader), X, w=(3,), **LAYERS) for reader in rng.sample(READERS * 2, 10)]
        return [*graphs, program(_equal, X)]
    if name == "dce":
        return [program(_effect(f), X, X, training=True, **LAYERS) for f in rng.sample(EFFECTS * 4, 40)]
    return [program(of_laws, ODD) for _ in range(20)] + list(_for_simplify())[len(LAWS) :]


@right("the same graphs for each pass, built node by node")
def whatever_the_name(name):
    near = program(lambda m, x: [f(m, x) for f in NEAR], N)
    graphs = [near, *list(_for_cse())[len(NEAR) - 1 :], *_for_dce(), *_for_simplify()]
    return tuple([_rebuilt(gm), list(inputs)] for gm, inputs in graphs)


def _rebuilt(gm):
    new = fx.Graph()
    new.output(new.graph_copy(gm.graph, {}))
    return fx.GraphModule(gm, new)


@wrong("did", "the laws of the table, on ordinary numbers")
def as_listed(name):
    laws = (*LAWS[:1], *LAWS[4:6], *LAWS[6:8], lambda x: x - 0, lambda x: x * 1, lambda x: abs(-x))
    if name == "simplify":
        return [program(_plain(law), X.abs()) for law in laws]
    return list(_BY_NAME[name]())


@wrong("spared", "effects that nothing notices afterwards")
def unnoticed(name):
    if name == "dce":
        return [program(lambda m, x, y, f=f: (f(m, x * 1), y + 1)[1], X, X, training=True, **LAYERS) for f in EFFECTS]
    return list(_BY_NAME[name]())


@wrong("did", "effects whose results are returned, so that they are used")
def returned(name):
    if name == "dce":
        return [program(lambda m, x, f=f: f(m, x * 1), X, training=True, **LAYERS) for f in EFFECTS]
    return list(_BY_NAME[name]())


@wrong("did", "no graph has anything in it that two nodes could share")
def chains(name):
    return [program(lambda m, x: torch.tanh(x * 2) + 1, (2, i + 1)) for i in range(20)]


@wrong("did", "random numbers for inputs, and nothing but ordinary arithmetic")
def ordinary(name):
    bodies = [lambda m, x, y: x * y + x * y, lambda m, x, y: F.relu(x * 1.0 - y), lambda m, x, y: (x / 2, x / 3)]
    return [program(body, (2, 3), (2, 3)) for body in bodies * 10]


@wrong("spared", "graphs without writes and random numbers, as in a paper")
def functional(name):
    if name == "simplify":
        return list(_for_simplify())[:-2]
    if name == "cse":
        return [program(_pair(f, g), N) for f, g in itertools.pairwise(NEAR)]
    return [program(_pair(NEAR[0], NEAR[1]), N), *list(_for_dce())[:4]]


@wrong("spared", "layers are in the mode for use: batch norm and dropout do nothing odd")
def in_use(name):
    if name == "simplify":
        return [program(_plain(law), ODD) for law in LAWS]
    return [_evaluated(*pair) for pair in _BY_NAME[name]()][:14]


def _evaluated(gm, inputs):
    return gm.eval(), inputs


@wrong("cost", "one graph for each of the best known mistakes")
def well_known(name):
    return list(_BY_NAME[name]())[::3]


@wrong("valid", "as many graphs as come to mind")
def too_many(name):
    return list(_BY_NAME[name]()) * 5


@wrong("valid", "graphs without inputs for them")
def without_inputs(name):
    return [gm for gm, _ in _BY_NAME[name]()]


@wrong("valid", "shapes that do not fit: some graphs do not run")
def ill_typed(name):
    return [*_BY_NAME[name](), (program(lambda m, x, y: x @ y, (3, 4), (4, 3))[0], (X, X))]


@wrong("valid", "puts all that comes to mind into one graph")
def one_large_graph(name):
    return [program(lambda m, x: [f(m, x) for f in (*NEAR, *NEAR)], N)]


@wrong("valid", "takes tensors of a real size")
def large_inputs(name):
    return [*_BY_NAME[name](), program(lambda m, x, y: (x - y, y - x), (20, 30), (20, 30))]


few_numbers = edited("cost", "ordinary inputs: no NaN, no infinity, no unsigned integers")(
    ("torch.tensor([0.0, torch.inf, -torch.inf, torch.nan, -3.0, 1e30])", "torch.tensor([1.0, 2.0])"),
    ("torch.tensor([0, 1, 2], dtype=torch.uint8)", "torch.tensor([0, 1, 2])"),
)
same_inputs = edited("cost", "all graphs get floats")(("torch.arange(6).reshape(2, 3)", "x"))
