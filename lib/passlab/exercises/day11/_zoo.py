"""Shared by the exercises on placement: networks of drawn sizes, as operations and as pieces that talk."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import torch

from passlab import models
from passlab.judge import shown
from passlab.judge.forms import why_not_a_list
from passlab.judge.words import plural
from passlab.wafer.machine import Machine
from passlab.wafer.pieces import Pieces, cut
from passlab.wafer.work import Operation, work_of

#: family → (how to build it from drawn numbers, shape of an example)
FAMILIES = ("gpt", "mlp", "residual", "unet", "vit")


@lru_cache(maxsize=100)
def network(family: str, seed: int) -> tuple[Operation, ...]:
    """Return the operations of a network of the zoo's family, its sizes drawn from a seed."""
    rng = random.Random(seed)
    if family == "gpt":
        tokens, width = rng.choice((8, 16, 24)), rng.choice((48, 64, 96))
        model, shape = models.gpt(width, 4, tokens), (tokens, width)
    elif family == "mlp":
        widths = (16, *(rng.choice((32, 48, 64)) for _ in range(rng.randint(2, 4))), 10)
        model, shape = models.mlp(widths), (16,)
    elif family == "residual":
        channels = rng.choice((8, 12, 16))
        model, shape = models.residual(channels), (channels, 8, 8)
    elif family == "unet":
        model, shape = models.unet(width=rng.choice((4, 8)), depth=2), (1, rng.choice((16, 32)), 16)
    elif family == "resnet":
        model, shape = models.resnet18(100, width=rng.choice((12, 16, 20))), (3, 32, 32)
    else:
        model = models.vit(32, 8, rng.choice((48, 64, 96)), 1, 4, 10)
        shape = (3, 32, 32)
    return work_of(torch.fx.symbolic_trace(model), torch.zeros(1, *shape))


@lru_cache(maxsize=100)
def talk(family: str, seed: int, rows: int, columns: int) -> tuple[Pieces, tuple[tuple[int, int, int], ...]]:
    """Return a network in pieces for a grid, and the words that pieces send each other: (from, to, words)."""
    pieces = cut(network(family, seed), Machine(rows, columns))
    words = pieces.words.round().astype(int).clip(1)
    return pieces, tuple(zip(pieces.a.tolist(), pieces.b.tolist(), words.tolist(), strict=True))


def travelled(words: Any, place: Any) -> float:
    """Return words × hops, with tasks at given (row, column)."""
    return sum(number * (abs(place[a][0] - place[b][0]) + abs(place[a][1] - place[b][1])) for a, b, number in words)


def by_rows(count: int, columns: int) -> list[tuple[int, int]]:
    """Return the cores of tasks that lie row by row."""
    return [divmod(task, columns) for task in range(count)]


def wrong_cores(value: Any, count: int, rows: int, columns: int) -> str:
    """Return why a value does not give each of `count` tasks a core that no other has, or ""."""
    if wrong := why_not_a_list(value, "a list with one core (row, column) for each task"):
        return wrong
    if len(value) != count:
        return f"The list has {plural(len(value), 'core')} for {plural(count, 'task')}: one for each task, in order."
    machine, tasks = Machine(rows, columns), {}
    for task, core in enumerate(value):
        if not isinstance(core, list | tuple) or len(core) != 2 or any(type(x) is not int for x in core):
            return f"Task {task}: a core is (row, column), two whole numbers; {shown(core)} is not."
        if any(abs(x) > 10**9 for x in core):
            return f"Task {task}: its core is far off the grid of {rows} rows and {columns} columns."
        if off := machine.why_not_a_core(core):
            return f"Task {task}: {off}"
        if (other := tasks.setdefault(tuple(core), task)) != task:
            return f"Tasks {other} and {task} are both on core {tuple(core)}: each needs a core of its own."
    return ""
