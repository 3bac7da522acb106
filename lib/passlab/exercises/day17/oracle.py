"""Day 17, an oracle: visible cases and judge."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passlab.judge import Case, Finding
from passlab.judge.forms import excerpt

#: Verdict → the word that it is about.
WORDS = {"spared": "same", "did": "different", "same": "cannot tell"}


def pair(name: str, word: str, why: str, before: Callable, after: Callable, *inputs: Tensor, **parts: Any) -> Case:
    """Return a case of two programs `body(m, *inputs)` on inputs that may share memory.

    word: what the oracle has to say, and `why`. parts: of m, which both programs share; tensors become parameters, a
    function is called for a module.
    """

    def build() -> tuple:
        torch.manual_seed(0)
        root = nn.Module()
        for part, value in parts.items():
            whole = value() if callable(value) else nn.Parameter(value.clone(), requires_grad=False)
            setattr(root, part, whole)
        programs = [_traced(root, body, len(inputs)) for body in (before, after)]
        return *programs, _copied(inputs)

    about = next(verdict for verdict, one in WORDS.items() if one == word)
    return Case(name, build, ("valid", about), expect=(word, why))


def itself(name: str, body: Callable, *inputs: Tensor) -> Case:
    """Return a case of a program and itself: who finds a difference there has found none anywhere."""
    case = pair(name, "same", "it is the same program", body, body, *inputs)
    return replace(case, expect=(*case.expect, "did"))


def _traced(root: nn.Module, body: Callable, count: int) -> fx.GraphModule:
    """Return a graph of body(root, *inputs), a program of `root`'s parts."""
    graph = fx.Graph()
    tracer = fx.Tracer()
    tracer.graph, tracer.root = graph, root
    proxies = [fx.Proxy(graph.placeholder(name), tracer) for name in "xyzt"[:count]]
    result = body(_Parts(root, tracer), *proxies)
    graph.output(tracer.create_arg(result))
    return fx.GraphModule(root, graph)


class _Parts:
    """The parts of a module while a body is recorded: each read is a node."""

    def __init__(self, root: nn.Module, tracer: fx.Tracer):
        self._root, self._tracer = root, tracer

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(self._root, name), Tensor):
            return self._tracer.create_proxy("get_attr", name, (), {})
        return lambda *args: self._tracer.create_proxy("call_module", name, args, {})


def _copied(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return copies that share memory where the inputs do."""
    return copy.deepcopy(inputs)


def numbers(rng: random.Random, *shape: int, scale: float = 1.0) -> Tensor:
    """Return normal numbers."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return scale * torch.randn(shape, generator=generator)


def cases() -> list[Case]:
    x, y = numbers(random.Random(1), 3, 4), numbers(random.Random(2), 3, 4)
    return [
        pair(
            "another order of sums",
            "same",
            "the difference is rounding: in float64 it is gone",
            lambda m, x, y: (x * 1e6 + y) - x * 1e6,
            lambda m, x, y: (x * 1e6 - x * 1e6) + y,
            x,
            y,
        ),
        pair("operands swapped", "different", "y - x", lambda m, x, y: x - y, lambda m, x, y: y - x, x, y),
        pair(
            "NaN in both",
            "same",
            "NaN equals NaN, and -0.0 equals 0.0",
            lambda m, x: (torch.log(x), x * 0.0),
            lambda m, x: (torch.log(x * 1.0), -(x * 0.0)),
            x,
        ),
        pair(
            "a write that is gone",
            "different",
            "the input x is no longer written",
            lambda m, x: x.mul_(2) + 1,
            lambda m, x: x * 2 + 1,
            x,
        ),
        pair("both write", "same", "both write 2 * x", lambda m, x: x.mul_(2) + 1, lambda m, x: x.mul_(2).add(1), x),
        pair(
            "another type",
            "different",
            "float64 instead of float32",
            lambda m, x: x.sum(0),
            lambda m, x: x.double().sum(0),
            x,
        ),
        pair(
            "random numbers",
            "cannot tell",
            "both draw random numbers",
            lambda m, x: F.dropout(x, 0.5, True),
            lambda m, x: F.dropout(x, 0.5, True),
            x,
        ),
        pair(
            "shapes that do not fit",
            "cannot tell",
            "before does not run on these inputs",
            lambda m, x, y: x @ y,
            lambda m, x, y: x @ y.t(),
            x,
            y,
        ),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    known = isinstance(value, str) and value in WORDS.values()
    words = ", ".join(map(repr, WORDS.values()))
    yield Finding("valid", known, "" if known else f"Return one of {words}; got {excerpt(value)}.")
    if not known:
        return
    word, reason, *found = case.expect
    verdict = next(verdict for verdict, one in WORDS.items() if one == word)
    before, after, _ = case.build()
    message = f"The answer is {value!r}; it must be {word!r}: {reason}."
    for lost in (verdict, *(found if value == "different" else ())):
        yield Finding(lost, value == word, message, before=before, after=after)
