"""Day 5, where everything goes: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from passlab import models
from passlab.judge import Case, Finding
from passlab.memory.arena import run
from passlab.memory.buffers import BadPlan, Buffer, aligned, height, instance, lower_bound, problem
from passlab.memory.liveness import liveness
from passlab.memory.plan import Plan
from passlab.memory.training import joint

#: What the arena may be, over the lower bound with rounded sizes: of a model, and of a hard instance.
ON_MODELS, ON_HARD = 1.15, 1.25


#: A name in the zoo, and whether it is trained.
Origin = tuple[str, bool]


class Limit(NamedTuple):
    """The limit of a case: an arena of at most `most` times the bound.

    origin: the program that runs in the arena of a wrong plan, if the names of the buffers are those of its nodes.
    """

    most: float
    origin: Origin | None = None


def offsets_case(
    name: str, build: Callable[[], Sequence[Buffer]], alignment: int, about: tuple[str, ...], limit: Limit
) -> Case:
    return Case(name, lambda: (list(build()), alignment), about, expect=limit)


def model_case(
    name: str, build: Callable[[], Sequence[Buffer]], alignment: int = 64, origin: Origin | None = None
) -> Case:
    return offsets_case(name, build, alignment, ("valid", "did"), Limit(ON_MODELS, origin))


def easy_case(name: str, buffers: Sequence[Buffer], alignment: int = 1) -> Case:
    return offsets_case(name, lambda: buffers, alignment, ("valid", "spared"), Limit(1.0))


def hard_case(name: str, build: Callable[[], Sequence[Buffer]]) -> Case:
    return offsets_case(name, build, 1, ("valid", "cost"), Limit(ON_HARD))


@cache
def program(model: str, training: bool = False) -> tuple[torch.fx.GraphModule, tuple[torch.Tensor, ...]]:
    """Return the graph of one of the zoo's models, and inputs for it."""
    row = models.ZOO[model]
    if training:
        return joint(row.build(), *row.inputs())
    return torch.fx.symbolic_trace(row.build()), tuple(row.inputs())


@cache
def zoo(model: str, training: bool = False) -> tuple[Buffer, ...]:
    """Return the buffers of one of the zoo's models."""
    gm, inputs = program(model, training)
    return tuple(liveness(gm, *inputs))


def shuffled(buffers: Sequence[Buffer], rng: random.Random) -> list[Buffer]:
    """Return the same instance with other names, in another order, at later times."""
    late, names = rng.randrange(100), rng.sample(range(10 * len(buffers)), len(buffers))
    copies = [Buffer(f"b{k}", b.lower + late, b.upper + late, b.size) for k, b in zip(names, buffers, strict=True)]
    rng.shuffle(copies)
    return copies


#: One after the other: where one ends, the next begins.
RELAY = [Buffer(f"t{i}", i, i + 1, 100) for i in range(6)]
#: `late` meets only `middle`, and fits where `first` was.
HOLE = [Buffer("first", 0, 2, 60), Buffer("middle", 1, 4, 50), Buffer("late", 3, 5, 40), Buffer("empty", 4, 5, 0)]


def running(name: str, model: str, training: bool = False) -> Case:
    """Return a case of a model of the zoo, which runs in the arena of a wrong plan."""
    return model_case(name, lambda: zoo(model, training), origin=(model, training))


def cases() -> list[Case]:
    return [
        easy_case("one after the other", RELAY),
        easy_case("a hole", HOLE),
        easy_case("aligned", [Buffer("a", 0, 2, 30), Buffer("b", 1, 3, 50), Buffer("c", 0, 3, 64)], 64),
        running("a convolutional net", "convnet"),
        running("attention", "attention"),
        running("training a residual block", "residual", training=True),
        hard_case("MiniMalloc's F", lambda: instance("F")),
    ]


def bound(buffers: Sequence[Buffer], alignment: int) -> int:
    """Return the largest sum of live bytes, each size rounded up as far as an aligned neighbour makes it."""
    return lower_bound([Buffer(b.name, b.lower, b.upper, aligned(b.size, alignment)) for b in buffers])


def harm(buffers: Sequence[Buffer], offsets: Mapping[str, int], origin: Origin) -> str:
    """Return a sentence about the wrong numbers that a model returns in an arena with overlaps; "" if there are none,
    or if the arena is absurdly large. All offsets are ints of these buffers, not negative."""
    arena = height(buffers, offsets)
    if arena > 4 * sum(buffer.size for buffer in buffers):
        return ""
    gm, inputs = program(*origin)
    plan = Plan(tuple(node.name for node in gm.graph.nodes), offsets, arena)
    try:
        results = tree_leaves(run(gm, plan, *inputs, checked=False))
    except (BadPlan, RuntimeError):
        return ""
    with torch.no_grad():
        true = tree_leaves(gm(*inputs))
    wrong = sum(int((one != other).sum()) for one, other in zip(results, true, strict=True))
    total = sum(one.numel() for one in true)
    return f" Run in this arena, {wrong} of the {total} numbers that the graph returns are wrong." if wrong else ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    buffers, alignment = case.build()
    most, origin = case.expect
    flaw = problem(buffers, value, alignment)
    broken = flaw.sentence if flaw else ""
    if flaw and flaw.overlap and origin:
        broken += harm(buffers, value, origin)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    arena, least = aligned(height(buffers, value), alignment), bound(buffers, alignment)
    fits = arena <= most * least
    limit = "and that can be reached" if most == 1 else f"and {most:g} times as many are allowed"
    message = f"Your arena has {arena} bytes. Up to {least} are live at once, {limit}."
    for verdict in ("did", "spared", "cost"):
        if case.asks(verdict):
            yield Finding(verdict, fits, "" if fits else message)
