"""Day 2, telling programs apart: cases and laws of `equivalent`, of the lost attribute, of the counterexample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from passlab.exercises.cases_day02_rewrites import ATTRIBUTES, plural, program, seeded
from passlab.fx.judge import rebuild, validate
from passlab.fx.ops import ConvReLU2d
from passlab.fx.suspects import SUSPECTS
from passlab.judge import Case, Finding

# ---------------------------------------------------------------------------------------------------- equivalent


@dataclass(frozen=True)
class Pair:
    """What a comparison must say about two programs. `figures`: max_abs and mse, where they are known."""

    same: bool
    why: str
    figures: tuple[float, float] | None = None


def pair_case(name: str, before: Callable, after: Callable, inputs: Callable[[], tuple], expect: Pair) -> Case:
    """A case whose arguments are two traced programs and example inputs; each is about one verdict.

    A program is a body (`lambda m, x: …`) or a function that makes a traced one.
    """

    def made(part: Callable, args: tuple) -> fx.GraphModule:
        return part() if part.__code__.co_argcount == 0 else program(part, *args)

    def build() -> tuple:
        args = inputs()
        return made(before, args), made(after, args), args

    return Case(name, seeded(build), ("spared" if expect.same else "did",), expect=expect)


def judge_equivalent(case: Case, value: Any) -> Iterator[Finding]:
    """Laws: different programs are told apart (did), programs that only round differently are not (spared)."""
    expect = case.expect
    verdict = "spared" if expect.same else "did"

    def wrong(message: str) -> Finding:
        before, after, _ = case.build()  # to be drawn
        return Finding(verdict, False, message, before=before, after=after)

    if not isinstance(value, tuple | list) or len(value) != 3:
        kind = "None" if value is None else f"{type(value).__name__}"
        yield wrong(f"Return (same, max_abs, mse): a bool and two numbers. It returned {kind}.")
        return
    same, *figures = value
    if type(same) is not bool:
        yield wrong(f"The first value must be True or False; it was {same!r:.60}.")
        return
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and n == n for n in figures):
        yield wrong(f"max_abs and mse must be Python numbers, and not NaN; they were {figures!r:.80}. Try float(…).")
        return
    if same != expect.same:
        yield wrong(f"You say {'same' if same else 'different'}. {expect.why}")
        return
    if expect.figures is not None:
        for label, wanted, got in zip(("max_abs", "mse"), expect.figures, figures, strict=True):
            if not math.isclose(got, wanted, rel_tol=0.1):
                yield wrong(f"{label} should be about {wanted:g}; yours is {got:g}. {expect.why}")
                return
    yield Finding(verdict, True)


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


def equivalent_cases() -> list[Case]:
    """The visible cases of `equivalent`."""
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
            Pair(False, "The first outputs are equal, the second ones are not."),
        ),
        pair_case(
            "one column for a square",
            lambda m, x: x[:, :1].expand(4, 4) * 1.0,
            lambda m, x: x[:, :1] * 1.0,
            _normal(4, 4),
            Pair(False, "The shapes are (4, 4) and (4, 1): subtraction broadcasts, and finds no difference."),
        ),
        pair_case(
            "a number for a NaN",
            lambda m, x: torch.log(x),
            lambda m, x: torch.log(torch.abs(x)),
            _normal(4, 4),
            Pair(False, "log of a negative number is NaN before, and a number after. NaN > tolerance is False."),
        ),
        pair_case(
            "float64 that went through float32",
            lambda m, x: x * 1.5,
            lambda m, x: x.float().double() * 1.5,
            _normal(4, 4, dtype=torch.float64),
            Pair(False, "In float64 an error of 1e-8 is ten million roundings. Take the tolerance from the dtype."),
        ),
        pair_case(
            "numbers of the size 1e-6",
            lambda m, x: x * 1e-6,
            lambda m, x: x * 1.01e-6,
            _normal(4, 4),
            Pair(False, "The outputs are of the size 1e-6 and one percent apart. Compare with their size."),
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
            Pair(False, "after raises an error where before gives a result."),
        ),
    ]
    same = [
        pair_case(
            "a sum in another order",
            lambda m, x: (x * 1e4).sum(1),
            lambda m, x: (x.flip(1) * 1e4).sum(1),
            _normal(8, 300),
            Pair(True, "They add the same numbers in another order; values of the size 1e5 round by 1e-2 in float32."),
        ),
        pair_case(
            "half precision",
            lambda m, x: x * 3,
            lambda m, x: x + x + x,
            _normal(40, 40, dtype=torch.float16),
            Pair(
                True,
                "float16 has 11 bits: two roundings may differ by a thousandth. Take the tolerance from the dtype.",
            ),
        ),
        pair_case(
            "NaN on both sides",
            lambda m, x: torch.sqrt(x) * 2,
            lambda m, x: torch.sqrt(x) + torch.sqrt(x),
            _normal(4, 4),
            Pair(True, "Both give NaN at the same places, and equal numbers elsewhere."),
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
            Pair(True, "Both add 1 to their input. Give each run a copy of its own."),
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
    return [*different, *same]


# ---------------------------------------------------------------------------------------------------- lost attribute


@dataclass(frozen=True)
class Planted:
    """What one planted pass did. `lost`: the attribute, or None for a pass that is right. `why`: to say to the learner.

    `weights`: how a pass that changes groups fills the larger kernel. "kept": not at all; "repeated": wrongly;
    "block": with zeros between the groups, which is right.
    """

    lost: str | None
    why: str
    weights: str = "kept"


def _widen(weight: Tensor, groups: int, how: str) -> Tensor:
    """The kernel of a grouped convolution for a convolution of one group."""
    if how == "repeated":
        return weight.repeat(1, groups, 1, 1)
    blocks = [torch.cat([w if i == j else 0 * w for j in range(groups)], 1) for i, w in enumerate(weight.chunk(groups))]
    return torch.cat(blocks)


def planted_case(name: str, layers: list[tuple[dict, dict]], size: int, expect: Planted, seed: int = 0) -> Case:
    """A case whose arguments are a stack of conv → relu, what a planted pass made of it, and example inputs.

    `layers`: for each convolution how it was made, and what the pass made different.
    """

    def build() -> tuple:
        old, new = [], []
        for made, changed in layers:
            conv = nn.Conv2d(**made)
            fused = ConvReLU2d(**(made | changed))
            weight = conv.weight.detach()
            if fused.groups < conv.groups and expect.weights != "kept":
                weight = _widen(weight, conv.groups, expect.weights)
            fused.weight = nn.Parameter(weight.clone())
            if fused.bias is not None:
                fused.bias = conv.bias
            old.append((conv, nn.ReLU()))
            new.append(fused)
        x = torch.randn(2, layers[0][0]["in_channels"], size, size)
        convs, relus = nn.ModuleList(c for c, _ in old), nn.ModuleList(r for _, r in old)

        def plain(m: Any, x: Tensor) -> Tensor:
            for conv, relu in zip(m.convs, m.relus, strict=True):
                x = relu(conv(x))
            return x

        def after(m: Any, x: Tensor) -> Tensor:
            for conv in m.convs:
                x = conv(x)
            return x

        before_gm = program(plain, x, convs=convs, relus=relus)
        return before_gm, program(after, x, convs=nn.ModuleList(new)), (x,)

    return Case(name, seeded(build, seed), ("spared" if expect.lost is None else "did",), expect=expect)


def judge_lost(case: Case, value: Any) -> Iterator[Finding]:
    """Laws: the attribute that made the difference is named (did), right passes are let go (spared)."""
    lost = case.expect.lost
    verdict = "spared" if lost is None else "did"
    if value is not None and not (isinstance(value, str) and value in ATTRIBUTES):
        message = f"Return one of {', '.join(ATTRIBUTES)}, or None; it returned {value!r:.60}."
    elif value == lost:
        yield Finding(verdict, True)
        return
    elif lost is None:
        message = f"You say that {value} was lost, and the two programs compute the same. {case.expect.why}"
    else:
        message = f"You say {'that nothing was lost' if value is None else value}. {case.expect.why}"
    before, after, _ = case.build()  # to be drawn
    yield Finding(verdict, False, message, before=before, after=after)


def conv(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> dict:
    """How a convolution is made."""
    return {"in_channels": inputs, "out_channels": outputs, "kernel_size": kernel, **options}


def lost_cases() -> list[Case]:
    """The visible cases of the lost attribute: eight planted passes."""
    odd = conv(4, 4, stride=2, padding=2, dilation=2, groups=2, padding_mode="reflect")
    plain = conv(4, 4, padding=1)
    same = conv(4, 4, padding="same", dilation=2)
    return [
        planted_case(
            "pass A",
            [(odd, {"padding": 0})],
            9,
            Planted("padding", "After, the first convolution pads by 0: the image shrinks."),
        ),
        planted_case(
            "pass B", [(plain, {}), (conv(4, 6, bias=True), {"bias": False})], 8, Planted("bias", "The bias is gone.")
        ),
        planted_case(
            "pass C",
            [(odd, {"groups": 1})],
            9,
            Planted(
                "groups", "After, groups is 1 and the weights have the shape for 2: the program fails when it runs."
            ),
        ),
        planted_case(
            "pass D",
            [(conv(4, 4, padding=0, padding_mode="circular"), {"padding_mode": "zeros"})],
            8,
            Planted(None, "padding_mode is another, but with padding 0 nothing is padded."),
        ),
        planted_case(
            "pass E",
            [(plain, {}), (odd, {"padding_mode": "zeros"})],
            9,
            Planted("padding_mode", "The second convolution pads with zeros instead of reflecting."),
        ),
        planted_case(
            "pass F",
            [(same, {"padding": 2}), (plain, {"bias": False})],
            8,
            Planted("bias", 'padding="same" became 2, which pads as much here; what makes the difference is the bias.'),
        ),
        planted_case(
            "pass G", [(plain, {}), (odd, {})], 9, Planted(None, "It is another graph, with every attribute.")
        ),
        planted_case(
            "pass H",
            [(plain, {}), (conv(4, 4, stride=2, padding=1), {"stride": 1})],
            8,
            Planted("stride", "The second convolution takes every position instead of every second one."),
        ),
    ]


# ---------------------------------------------------------------------------------------------------- counterexample

#: A counterexample larger than this explains little.
MOST_CALLS = 3


def _foreign(gm: fx.GraphModule) -> str | None:
    """A sentence about a node that runs code which is not torch's."""
    home = ("torch", "_operator", "math", "builtins", "passlab")
    for node in gm.graph.nodes:
        if node.op == "call_module":
            module = gm.get_submodule(node.target)
            if type(module).__module__.split(".")[0] not in home:
                return f"Node {node.name} calls a {type(module).__name__}, a module of your own. Use torch's."
        if node.op == "call_function":
            where = getattr(node.target, "__module__", None) or "torch"
            if where.split(".")[0] not in home:
                return f"Node {node.name} calls a function of your own. Use torch's."
    return None


def _copies(inputs: tuple) -> tuple:
    return tuple(x.detach().clone() if isinstance(x, Tensor) else x for x in inputs)


def _effect(gm: fx.GraphModule, inputs: tuple) -> list:
    """Everything a run shows to its caller: the outputs, and the inputs as they are afterwards."""
    mine, found = _copies(inputs), []
    torch.manual_seed(0)
    with torch.no_grad():
        result = gm.forward(*mine)  # not gm(…): when that fails, torch.fx imports its compiler to format the error
    fx.node.map_aggregate((result, mine), found.append)
    return found


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and repr(one) == repr(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    near = 64 * torch.finfo(one.dtype).eps
    return torch.allclose(
        one, other, rtol=near, atol=near * float(one.nan_to_num().abs().max() if one.numel() else 0), equal_nan=True
    )


def judge_counterexample(case: Case, value: Any) -> Iterator[Finding]:
    """Laws: a graph that runs (valid), that the named pass silently changes (did), and a small one (cost)."""
    name = case.build()[0]
    if not isinstance(value, tuple) or len(value) != 2:
        kind = "None" if value is None else type(value).__name__
        yield Finding("valid", False, f"Return (gm, inputs): a GraphModule and a tuple of inputs. It returned {kind}.")
        return
    gm, inputs = value
    if not isinstance(inputs, tuple):
        message = f"The inputs must be a tuple; they are a {type(inputs).__name__}. For one tensor, write (x,)."
        yield Finding("valid", False, message)
        return
    if not isinstance(gm, fx.GraphModule):
        message = f"The graph must be a torch.fx.GraphModule; it is a {type(gm).__name__}. Use fx.symbolic_trace(…)."
        yield Finding("valid", False, message)
        return
    problem = validate(None, gm) or _foreign(gm)
    if problem:
        yield Finding("valid", False, problem, before=gm)
        return
    before = rebuild(gm)
    try:
        expected = _effect(before, inputs)
    except Exception as error:
        message = f"Your graph does not run on your inputs: {type(error).__name__}: {str(error)[:120]}."
        yield Finding("valid", False, message, before=before)
        return
    yield Finding("valid", True)
    calls = sum(n.op.startswith("call_") for n in before.graph.nodes)
    message = f"{plural(calls, 'call')} in your graph; {MOST_CALLS} are enough. A small one shows the reason."
    yield Finding("cost", calls <= MOST_CALLS, "" if calls <= MOST_CALLS else message, before=before)
    after = rebuild(gm)
    old = [(n.name, n.op, n.target) for n in after.graph.nodes]
    try:
        after = rebuild(SUSPECTS[name](after))
        got = _effect(after, inputs)
    except Exception as error:
        message = f"{name} stops with an error on your graph ({type(error).__name__}: {str(error)[:100]}). "
        message += "Everybody would notice that. Look for a graph on which it gives a wrong result."
        yield Finding("did", False, message, before=before)
        return
    if [(n.name, n.op, n.target) for n in after.graph.nodes] == old:
        message = f"{name} finds nothing to rewrite in your graph. Start from the pattern that it matches."
        yield Finding("did", False, message, before=before)
        return
    if len(expected) == len(got) and all(map(_alike, expected, got)):
        message = f"{name} rewrote your graph, and the result is still right on your inputs. "
        message += "What did its author take for granted that need not hold?"
        yield Finding("did", False, message, before=before, after=after)
        return
    yield Finding("did", True)


def counterexample_cases() -> list[Case]:
    """One case for each suspect."""
    return [Case(name, lambda name=name: (name,)) for name in SUSPECTS]
