"""Day 2, are two programs the same function?: visible cases and judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from passlab.exercises.day02._shared import program
from passlab.fx.cases import seeded
from passlab.judge import Case, Finding, core
from passlab.judge.forms import why_not_a_list


@dataclass(frozen=True)
class Pair:
    """The expected verdict on two programs. `figures`: max_abs and mse, where they are known."""

    same: bool
    why: str
    figures: tuple[float, float] | None = None


def pair_case(name: str, before: Callable, after: Callable, inputs: Callable[[], tuple], expect: Pair) -> Case:
    """Return a case whose arguments are two traced programs and example inputs; each is about one verdict.

    A program is a body (`lambda m, x: …`) or a function that makes a traced one.
    """

    def graph_of(part: Callable, args: tuple) -> fx.GraphModule:
        return part() if part.__code__.co_argcount == 0 else program(part, *args)

    def build() -> tuple:
        args = inputs()
        return graph_of(before, args), graph_of(after, args), args

    return Case(name, seeded(build), ("spared" if expect.same else "did",), expect=expect)


def judge(case: Case, record: dict[str, Any]) -> Iterator[Finding]:
    """Judge that different programs are told apart (did), and those that only round differently are not (spared)."""
    expect = case.expect
    verdict = "spared" if expect.same else "did"

    def wrong(message: str) -> Finding:
        before, after, _ = case.build()  # to be drawn
        return Finding(verdict, False, message, before=before, after=after)

    value = record["value"]
    if record["changed"]:
        yield wrong("A tensor of the caller has changed: run the programs on copies of the inputs.")
        return
    if broken := why_not_a_list(value, "(same, max_abs, mse), a bool and two numbers", 3):
        yield wrong(broken)
        return
    same, *figures = value
    if type(same) is not bool:
        yield wrong(f"The first value must be True or False; it was {same!r:.60}.")
        return
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and n == n for n in figures):
        yield wrong(f"max_abs and mse must be Python numbers, and not NaN; they were {figures!r:.80}. Try float(…).")
        return
    if same != expect.same:
        actual, expected = ("same", "different") if same else ("different", "same")
        yield wrong(f"Your answer is {actual}; expected {expected}. {expect.why}")
        return
    if expect.figures is not None:
        for label, expected, actual in zip(("max_abs", "mse"), expect.figures, figures, strict=True):
            if not math.isclose(actual, expected, rel_tol=0.1):
                about = "about " if math.isfinite(expected) else ""
                yield wrong(f"{label} should be {about}{expected:g}; yours is {actual:g}. {expect.why}")
                return
    yield Finding(verdict, True)


#: The differences of what cannot be subtracted: another shape or dtype, a NaN on one side, an error.
APART = (math.inf, math.inf)


def _normal(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[], tuple]:
    return lambda: (torch.randn(*shape, dtype=dtype),)


def _positive() -> tuple:
    return (torch.rand(4, 5) + 0.1,)


def _indices() -> tuple:
    return (torch.tensor([[0, 2, 1], [2, 2, 0]]),)


def _table() -> fx.GraphModule:
    weight = torch.arange(12.0).reshape(3, 4)
    return program(lambda m, i: F.embedding(i, m.weight) * 0.3, *_indices(), weight=nn.Parameter(weight))


def _prescaled_table() -> fx.GraphModule:
    weight = torch.arange(12.0).reshape(3, 4) * 0.3
    return program(lambda m, i: F.embedding(i, m.weight), *_indices(), weight=nn.Parameter(weight))


def cases() -> list[Case]:
    """Return the visible cases of `equivalent`."""
    plain = [
        pair_case(
            "plain: one adds a quarter",
            lambda m, x: torch.tanh(x),
            lambda m, x: torch.tanh(x) + 0.25,
            _normal(5, 6),
            Pair(
                False, "One adds 0.25 to every element: largest error 0.25, mean squared error 0.0625.", (0.25, 0.0625)
            ),
        ),
        pair_case(
            "plain: the example has no negative number",
            lambda m, x: torch.abs(x) + 1,
            lambda m, x: x + 1,
            _positive,
            Pair(False, "The example is positive; the programs differ on negative numbers. Draw your own."),
        ),
        pair_case(
            "plain: another shape",
            lambda m, x: x[:1].expand(3, 5) * 1.0,
            lambda m, x: x[:1] * 1.0,
            _normal(3, 5),
            Pair(False, "The shapes are (3, 5) and (1, 5); subtraction broadcasts and finds no difference."),
        ),
        pair_case(
            "plain: three times",
            lambda m, x: x * 3,
            lambda m, x: x + x + x,
            _normal(20, 30),
            Pair(True, "They round differently: float32 has 24 bits."),
        ),
    ]
    different = [
        pair_case(
            "one adds a half",
            lambda m, x: x * 2,
            lambda m, x: x * 2 + 0.5,
            _normal(6, 7),
            Pair(False, "One adds 0.5 to every element: largest error 0.5, mean squared error 0.25.", (0.5, 0.25)),
        ),
        pair_case(
            "the example holds no negative number",
            lambda m, x: torch.relu(x) * 3,
            lambda m, x: x * 3,
            _positive,
            Pair(
                False, "relu(x) is x for the positive example; the programs differ on negative numbers. Draw your own."
            ),
        ),
        pair_case(
            "the second of two outputs",
            lambda m, x: (x + 1, x - 1),
            lambda m, x: (x + 1, x - 2),
            _normal(5),
            Pair(False, "The first outputs are equal, but the second outputs are not."),
        ),
        pair_case(
            "one column for a square",
            lambda m, x: x[:, :1].expand(4, 4) * 1.0,
            lambda m, x: x[:, :1] * 1.0,
            _normal(4, 4),
            Pair(False, "The shapes are (4, 4) and (4, 1); subtraction broadcasts and finds no difference.", APART),
        ),
        pair_case(
            "a number for a NaN",
            lambda m, x: torch.log(x),
            lambda m, x: torch.log(torch.abs(x)),
            _normal(4, 4),
            Pair(
                False, "For negative numbers log gives NaN before, and a number after. NaN > tolerance is False.", APART
            ),
        ),
        pair_case(
            "float64 that went through float32",
            lambda m, x: x * 1.5,
            lambda m, x: x.float().double() * 1.5,
            _normal(4, 4, dtype=torch.float64),
            Pair(
                False,
                "In float64 an error of 1e-8 is ten million rounding errors. Derive the tolerance from the dtype.",
            ),
        ),
        pair_case(
            "numbers of the size 1e-6",
            lambda m, x: x * 1e-6,
            lambda m, x: x * 1.01e-6,
            _normal(4, 4),
            Pair(
                False,
                "The outputs are about 1e-6 and differ by one percent. Make the tolerance relative to their magnitude.",
            ),
        ),
        pair_case(
            "one writes into its input",
            lambda m, x: x + 1,
            lambda m, x: x.add_(1) + 0,
            _normal(4),
            Pair(False, "The outputs agree, but one program changes the tensor of its caller. Compare the inputs too."),
        ),
        pair_case(
            "one fails",
            lambda m, x: x.reshape(3, 4) + 1,
            lambda m, x: x.reshape(5, 4) + 1,
            _normal(12),
            Pair(False, "after raises an error where before gives a result.", APART),
        ),
    ]
    same = [
        pair_case(
            "a sum in another order",
            lambda m, x: (x * 1e4).sum(1),
            lambda m, x: (x.flip(1) * 1e4).sum(1),
            _normal(8, 300),
            Pair(True, "They add the same numbers in another order; near 1e5, float32 has rounding errors of 1e-2."),
        ),
        pair_case(
            "half precision",
            lambda m, x: x * 3,
            lambda m, x: x + x + x,
            _normal(40, 40, dtype=torch.float16),
            Pair(
                True,
                "float16 has 11 bits: two results may differ by a thousandth. Derive the tolerance from the dtype.",
            ),
        ),
        pair_case(
            "NaN on both sides",
            lambda m, x: torch.sqrt(x) * 2,
            lambda m, x: torch.sqrt(x) + torch.sqrt(x),
            _normal(4, 4),
            Pair(True, "Both give NaN in the same places, and equal numbers elsewhere."),
        ),
        pair_case(
            "both draw random numbers",
            lambda m, x: F.dropout(x, 0.5) + 1,
            lambda m, x: 1 + F.dropout(x, 0.5),
            _normal(30),
            Pair(True, "Both drop elements at random, with the same generator. Set its seed before each run."),
        ),
        pair_case(
            "both write into their input",
            lambda m, x: x.add_(1) * 2,
            lambda m, x: 2 * x.add_(1),
            _normal(4),
            Pair(True, "Both add 1 to their input. Copy the inputs before each run."),
        ),
        pair_case(
            "whole numbers that index a table",
            _table,
            _prescaled_table,
            _indices,
            Pair(
                True, "The input holds indices below 3. Draw new floating-point numbers, and leave integers as given."
            ),
        ),
    ]
    return [*map(core, plain), *different, *same]
