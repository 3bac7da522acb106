"""Hidden cases and answers of day02.equivalent."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from autograder.authoring.answers import edited, plain, right, wrong
from passlab.exercises.day02._shared import program
from passlab.exercises.day02.equivalent import APART, Pair, pair_case
from passlab.exercises.day02.equivalent import cases as visible
from passlab.exercises.day02.fold_batchnorm import batch_norm
from passlab.fx.cases import seeded
from passlab.fx.generate import random_graph
from passlab.judge import Case, core

# ---------------------------------------------------------------------------------------------------- hidden cases


def _conv_bn(eps: float, folded_eps: float | None = None) -> fx.GraphModule:
    """Return conv → batch norm; with `folded_eps`, folded with that eps. One seed gives the same weights."""
    conv2d, norm = nn.Conv2d(3, 4, 3), batch_norm(4, eps=eps).eval()
    x = torch.randn(2, 3, 6, 6)
    if folded_eps is None:
        return program(lambda m, x: m.bn(m.conv(x)), x, conv=conv2d, bn=norm)
    scale = norm.weight / (norm.running_var + folded_eps).sqrt()
    conv2d.bias = nn.Parameter((conv2d.bias - norm.running_mean) * scale + norm.bias)
    conv2d.weight = nn.Parameter(conv2d.weight * scale.reshape(-1, 1, 1, 1))
    return program(lambda m, x: m.conv(x), x, conv=conv2d)


def _image() -> tuple[Tensor, ...]:
    return (torch.randn(2, 3, 6, 6),)


def _fold_pair(name: str, folded_eps: float, expect: Pair, seed: int) -> Case:
    before, after = seeded(lambda: _conv_bn(0.01), seed), seeded(lambda: _conv_bn(0.01, folded_eps), seed)
    return pair_case(name, lambda: before(), lambda: after(), _image, expect)


def _generated_pairs(seed: int) -> list[Case]:
    def same() -> fx.GraphModule:
        return random_graph(seed, 25, mutation=True)

    def other() -> fx.GraphModule:
        gm = same()
        output = next(n for n in gm.graph.nodes if n.op == "output")
        node = next(n for n in output.all_input_nodes if n.meta["tensor_meta"].dtype == torch.float32)
        with gm.graph.inserting_before(output):
            moved = gm.graph.call_function(torch.add, (node, 0.01))
        output.replace_input_with(node, moved)
        gm.recompile()
        return gm

    def case(name: str, after: Callable, expect: Pair, verdict: str) -> Case:
        return Case(name, lambda: (same(), after(), same().meta["inputs"]), (verdict,), expect=expect)

    cases = [case("a generated program and itself", same, Pair(True, "They are the same graph."), "spared")]
    floats = next(n for n in same().graph.nodes if n.op == "output").all_input_nodes
    if any(n.meta["tensor_meta"].dtype == torch.float32 for n in floats):
        cases.append(case("a generated program, moved", other, Pair(False, "One output is 0.01 off."), "did"))
    return cases


def _body(function: Callable) -> Callable:
    return lambda m, x: function(x)


#: Name → before, after, example inputs, what it shows, and the differences where they are known.
Pairs = dict[str, tuple]


def _normal(*shape: int, dtype: torch.dtype = torch.float32) -> Callable:
    return lambda: (torch.randn(*shape, dtype=dtype),)


class _Sizes(NamedTuple):
    """The sizes of the inputs, a number that some programs add, and a row of zeros with a one."""

    rows: int
    columns: int
    shift: float
    pick: torch.Tensor

    def zeros(self) -> tuple:
        return (torch.zeros(self.rows, 4),)


def hidden(seed: int) -> list[Case]:
    """Return more ways to differ, and to look different."""
    rng = random.Random(seed)
    rows, columns, shift = rng.randint(3, 7), rng.randint(40, 90), rng.choice((0.25, 2.0, 3.0))
    s = _Sizes(rows, columns, shift, F.one_hot(torch.tensor(rng.randrange(columns)), columns))
    cases = [
        pair_case(name, _body(before), _body(after), inputs, Pair(same, *expect))
        for same, pairs in ((False, _differ(s)), (False, _differ_in_kind(s)), (True, _agree(s)))
        for name, (before, after, inputs, *expect) in pairs.items()
    ]
    return [*visible(), *map(core, _plain(s)), *cases, *_several_inputs(seed), *_generated_pairs(seed)]


def _differ(s: _Sizes) -> Pairs:
    """Return pairs whose numbers differ."""
    rows, columns, shift, pick = s
    zeros = s.zeros
    return {
        "a shift": (
            torch.abs, lambda x: x.abs() + shift, _normal(rows, columns), f"One adds {shift}.", (shift, shift**2)
        ),
        "both outputs are off": (
            lambda x: (x.abs(), x.sigmoid()), lambda x: (x.abs() + 0.25, x.sigmoid() - 0.5), _normal(5, 6),
            "The larger differences are those of the second output: 0.5, and 0.25 squared.", (0.5, 0.25)
        ),
        "zeros as the example": (
            lambda x: x * 2, lambda x: x * 3, zeros, "2·0 = 3·0; on other numbers the programs differ."
        ),
        "the example only": (
            lambda x: x * 1, lambda x: x.where(x != 0, 1), zeros, "They differ where x is 0, as in the example."
        ),
        "a special number in the example": (
            lambda x: x.sqrt(), lambda x: x.sqrt().where(x != shift, 0), lambda: (torch.full((3, 2), shift),),
            f"They differ where x is {shift}, as in the example.",
        ),
        "ordinary numbers only": (
            lambda x: x.tanh(), lambda x: x.clamp(-1, 1), zeros, "At 0 and at ±100 they agree, at 1 they do not."
        ),
        "infinity on one side": (
            torch.exp, lambda x: x.exp().clamp(max=1e30), _normal(rows, columns), "One overflows to inf, one does not."
        ),
        "large negative numbers": (
            lambda x: x, lambda x: x.clamp(min=-20), lambda: (torch.rand(rows, 2),), "They differ below -20."
        ),
        "one element of many": (
            torch.sigmoid, lambda x: x.sigmoid() + pick * 1e-3, _normal(rows, columns),
            "One column is 1e-3 off: an average over many elements hides it.",
        ),
        "large numbers only": (
            lambda x: x, lambda x: x.clamp(-20, 20), _normal(rows, columns),
            "They differ beyond 20: try large numbers too.",
        ),
        "one more output": (
            lambda x: (x, x + 1), lambda x: (x, x + 1, x), _normal(4),
            "Two outputs before, three after: there is nothing to subtract from the third.", APART
        ),
        "outputs in a list and a dict": (
            lambda x: (x, [x.abs(), {"last": x * 2}]), lambda x: (x, [x.abs(), {"last": x * 3}]), _normal(4),
            "The output in the dict differs.",
        ),
        "a positive example in float64": (
            torch.abs, lambda x: x * 1, lambda: (torch.rand(rows, 4, dtype=torch.float64) + 0.1,),
            "The example is positive; the programs differ on negative numbers, in float64 as in float32.",
        ),
    }  # fmt: skip


def _differ_in_kind(s: _Sizes) -> Pairs:
    """Return pairs that differ in shapes, dtypes, NaN and infinity, or in few bits."""
    zeros = s.zeros
    return {
        "another shape of as many elements": (
            lambda x: x.reshape(2, 6), lambda x: x.reshape(3, 4), _normal(12),
            "The shapes are (2, 6) and (3, 4), of the same twelve numbers.", APART
        ),
        "NaN in other places": (
            torch.log, lambda x: (-x).log(), _normal(4, 5), "Both give NaN, one for positive numbers.", APART
        ),
        "bytes that are three off": (
            lambda x: (x > 0).byte(), lambda x: (x > 0).byte() + 3, _normal(4, 5),
            "One adds 3; as bytes, 0 - 3 is 253.", (3.0, 9.0)
        ),
        "negative integers": (
            lambda x: (x > 0).long(), lambda x: (x > 0).long() - 3, _normal(4, 5), "One subtracts 3.", (3.0, 9.0)
        ),
        "float16, three hundred off": (
            torch.zeros_like, lambda x: torch.zeros_like(x) + 300, _normal(4, 5, dtype=torch.float16),
            "One adds 300, whose square is more than float16 can hold.", (300.0, 90_000.0)
        ),
        "two off, but not on the example": (
            lambda x: x.where(x == 0, 1), lambda x: x.where(x == 0, 3), zeros,
            "They differ by 2 where x is not 0; the differences are those of all trials.", (2.0, 4.0)
        ),
        "other shapes without elements": (
            lambda x: x[:0], lambda x: x[:0, :2], _normal(4, 5), "The shapes are (0, 5) and (0, 2).", APART
        ),
        "an index out of range": (
            lambda x: x.transpose(0, 1), lambda x: x.transpose(0, 3), _normal(3, 4),
            "after raises an IndexError.", APART
        ),
        "neighbours beyond 2**53": (
            lambda x: x + 0, lambda x: x + (x == 2**60).long(), lambda: (torch.tensor([2**60, 7]),),
            "Integers must be equal; 2**60 and 2**60 + 1 are one number in float64.",
        ),
        "another dtype": (
            lambda x: x * 1, lambda x: x.double(), _normal(4), "The values are equal, the dtype is not.", APART
        ),
        "plus and minus infinity": (
            lambda x: 1 / (x * 0).abs(), lambda x: -1 / (x * 0).abs(), _normal(4), "One gives inf, the other -inf."
        ),
        "large integers": (
            lambda x: x + 0, lambda x: x - (x == 2**40).long(), lambda: (torch.tensor([2**40, 7, -(2**53)]),),
            "Integers must be equal; 2**40 and 2**40 - 1 are close in float32 only.",
        ),
        "numbers of the size 1e-10": (
            lambda x: x * 1e-10, lambda x: x * 1.01e-10, _normal(4, 4),
            "The outputs are about 1e-10 and differ by one percent: rounding is less, the smaller the numbers.",
        ),
    }  # fmt: skip


def _agree(s: _Sizes) -> Pairs:
    """Return pairs that compute the same."""
    rows, columns, _, _ = s
    return {
        "infinity on both sides": (
            lambda x: torch.exp(x * 1e4), lambda x: torch.exp(1e4 * x), _normal(4, 5),
            "Both give inf and 0 at the same places; inf - inf is NaN.",
        ),
        "nothing but infinity": (
            lambda x: (x * 0).exp() / 0, lambda x: 1 / (x * 0).abs(), _normal(4, 5), "Both give inf everywhere.",
            (0.0, 0.0),
        ),
        "outputs without elements": (
            lambda x: (x * 2, x[:0], x[:0] > 0), lambda x: (x + x, x[:0] + x[:0], x[:0] > 1), _normal(4, 5),
            "Nothing is in the second and the third output.",
        ),
        "None beside a tensor": (
            lambda x: (x, None), lambda x: (x * 1, None), _normal(4), "Both return a tensor and None."
        ),
        "booleans": (lambda x: x > 0, lambda x: torch.gt(x, 0), _normal(4, 5), "Both give the same booleans."),
        "bfloat16": (
            lambda x: x * 3, lambda x: x + x + x, _normal(rows, columns, dtype=torch.bfloat16),
            "bfloat16 has 8 bits: two roundings may differ by a hundredth.",
        ),
        "float16 by way of float32": (
            lambda x: x * 3, lambda x: (x.float() * 3).half(), _normal(rows, columns, dtype=torch.float16),
            "On float16, which the programs take, both give the same float16.",
        ),
        "small numbers in another order": (
            lambda x: (x * 1e-5).sum(1), lambda x: (x.flip(1) * 1e-5).sum(1), _normal(rows, 300),
            "They add the same numbers in another order.",
        ),
        "an example that is overwritten": (
            lambda x: (x.mul_(2), x.sum())[1], lambda x: (x.mul_(2), x.sum())[1] * 1.0, _normal(6),
            "Both double their input in place.",
        ),
        "sums close to zero": (
            lambda x: x.sin() + 0.7 - 0.3, lambda x: x.sin() + (0.7 - 0.3), _normal(64, 64),
            "One rounds 0.7 + sin(x) first, so where the sum is near 0, it is off by the rounding of 0.7.",
        ),
        "one and the float after it": (
            torch.ones_like, lambda x: torch.ones_like(x) + 2**-23, _normal(3, 4),
            "They differ by one rounding, 2**-23: that is the difference, though they are the same.", (2**-23, 2**-46),
        ),
    }  # fmt: skip


def _several_inputs(seed: int) -> list[Case]:
    """Return cases of several inputs, and of folded batch norms."""
    return [
        pair_case(
            "a number among the inputs",
            lambda m, x, k: x * k,
            lambda m, x, k: k * x,
            lambda: (torch.randn(3), 2.5),
            Pair(True, "The second input is a Python number, which is passed on as it is."),
        ),
        pair_case(
            "a whole number and a mask, as they are",
            lambda m, x, k, mask: x.where(mask, 0) * k,
            lambda m, x, k, mask: x * 2,
            lambda: (torch.randn(3), torch.tensor(2), torch.ones(3, dtype=torch.bool)),
            Pair(True, "The second input is 2 and the third is all True. Leave integers and booleans as they are."),
        ),
        pair_case(
            "one writes into its first input",
            lambda m, x, y: x * y,
            lambda m, x, y: (x * y, x.add_(0.5))[0],
            lambda: (torch.randn(3), torch.randn(3)),
            Pair(False, "The outputs agree, but one program adds 0.5 to its first input.", (0.5, 0.25)),
        ),
        pair_case(
            "one writes into its second input",
            lambda m, x, y: x * y,
            lambda m, x, y: (x * y, y.add_(0.5))[0],
            lambda: (torch.randn(3), torch.randn(3)),
            Pair(False, "The outputs agree, but one program adds 0.5 to its second input.", (0.5, 0.25)),
        ),
        _fold_pair("a folded batch norm", 0.01, Pair(True, "Folding rounds the weights once more."), seed),
        _fold_pair("a batch norm folded without its eps", 0.0, Pair(False, "eps was left out."), seed),
    ]


def _plain(s: _Sizes) -> list[Case]:
    """Return the cases of the question's core."""
    rows, columns, shift, pick = s
    zeros = s.zeros
    return [
        pair_case(
            "plain: a shift",
            _body(torch.sigmoid),
            _body(lambda x: x.sigmoid() + shift),
            _normal(rows, columns),
            Pair(False, f"One adds {shift}.", (shift, shift**2)),
        ),
        pair_case(
            "plain: zeros as the example",
            _body(lambda x: x * 2 + 1),
            _body(lambda x: x * 3 + 1),
            zeros,
            Pair(False, "2·0 = 3·0; on other numbers the programs differ."),
        ),
        pair_case(
            "plain: one column of many",
            _body(torch.tanh),
            _body(lambda x: x.tanh() + pick * 0.1),
            _normal(rows, columns),
            Pair(False, "One column is 0.1 off."),
        ),
        pair_case(
            "plain: a sum in another order",
            _body(lambda x: x.abs().sum(1)),
            _body(lambda x: x.flip(1).abs().sum(1)),
            _normal(rows, columns),
            Pair(True, "They add the same numbers in another order."),
        ),
        pair_case(
            "plain: the example only",
            _body(lambda x: x * 1),
            _body(lambda x: x.where(x != 0, 1)),
            zeros,
            Pair(False, "They differ by 1 where x is 0, as in the example.", (1.0, 1.0)),
        ),
        pair_case(
            "plain: two off, but not on the example",
            _body(lambda x: x.where(x == 0, 2)),
            _body(lambda x: x.where(x == 0, 4)),
            zeros,
            Pair(False, "They differ by 2 where x is not 0; the differences are those of all trials.", (2.0, 4.0)),
        ),
        pair_case(
            "plain: ordinary numbers only",
            _body(lambda x: x.clamp(-1, 1)),
            _body(torch.tanh),
            lambda: (torch.zeros(2),),  # of many large numbers some are near 0
            Pair(False, "At 0 and at ±100 they agree, at 1 they do not."),
        ),
        pair_case(
            "plain: a thousandth more",
            _body(lambda x: x + x),
            _body(lambda x: x * 2.002),
            _normal(rows, columns),
            Pair(False, "In float32 a thousandth is many thousand rounding errors."),
        ),
        pair_case(
            "plain: the same numbers in other places",
            _body(lambda x: x * 2),
            _body(lambda x: x.flip(1) * 2),
            _normal(rows, columns),
            Pair(False, "Each row is reversed."),
        ),
        pair_case(
            "plain: one column for a square",
            _body(lambda x: x[:, :1].expand(rows, rows) + 1),
            _body(lambda x: x[:, :1] + 1),
            _normal(rows, columns),
            Pair(False, f"The shapes are ({rows}, {rows}) and ({rows}, 1): there is nothing to subtract.", APART),
        ),
        pair_case(
            "plain: four and the float after it",
            _body(lambda x: torch.full_like(x, 4.0)),
            _body(lambda x: torch.full_like(x, 4.0) + 2**-21),
            _normal(rows, columns),
            Pair(True, "They differ by one rounding, 2**-21, and that is the difference.", (2**-21, 2**-42)),
        ),
    ]


# ---------------------------------------------------------------------------------------------------- answers

INF = math.inf


def _is_float(x):
    return isinstance(x, Tensor) and x.is_floating_point()


def _draws(inputs):
    """Return the example, and random inputs of three sizes."""
    gen = torch.Generator().manual_seed(1)
    yield inputs
    for size in (1.0, 10.0, 300.0):
        yield tuple((size * torch.randn(x.shape, generator=gen)).to(x.dtype) if _is_float(x) else x for x in inputs)


def _run(program, inputs):
    inputs = copy.deepcopy(inputs)
    torch.manual_seed(0)
    with torch.no_grad():
        result = program(*inputs)
    return [x for x in pytree.tree_leaves((result, inputs)) if isinstance(x, Tensor)]


def _gap(a, b):
    """Return (same, max_abs, mse) of two tensors."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False, INF, INF
    allowed = 50 * torch.finfo(a.dtype).eps if a.is_floating_point() else 0.0
    equal = (a == b) | (a.isnan() & b.isnan())
    a, b = a.double(), b.double()
    if not (a.isfinite() & b.isfinite() | equal).all():
        return False, INF, INF
    error = (a - b).abs().masked_fill(equal, 0.0)
    size = a[a.isfinite()].abs().max().item() if a.isfinite().any() else 1.0
    largest, squares = (error.max().item(), error.square().mean().item()) if error.numel() else (0.0, 0.0)
    return largest <= allowed * size and (allowed > 0 or bool(equal.all())), largest, squares


def _compare(before, after, inputs, draws=_draws):
    same, max_abs, mse = True, 0.0, 0.0
    for args in draws(inputs):
        old = _run(before, args)
        try:
            new = _run(after, args)
        except Exception:
            return False, INF, INF
        if len(old) != len(new):
            return False, INF, INF
        for a, b in zip(old, new, strict=True):
            alike, largest, squares = _gap(a, b)
            same, max_abs, mse = same and alike, max(max_abs, largest), max(mse, squares)
    return same, max_abs, mse


@right("steps: run, compare, collect; NaN and inf by elementwise equality")
def in_steps(before, after, inputs):
    return _compare(before, after, inputs)


@right("compares with numpy, and takes the tolerance from the root mean square")
def with_numpy(before, after, inputs):
    same, max_abs, mse = True, 0.0, 0.0
    for args in _draws(inputs):
        try:
            pairs = _run(before, args), _run(after, args)
        except Exception:
            return False, INF, INF
        if [(t.shape, t.dtype) for t in pairs[0]] != [(t.shape, t.dtype) for t in pairs[1]]:
            return False, INF, INF
        for a, b in zip(*pairs, strict=True):
            if not a.is_floating_point():
                same = same and torch.equal(a, b)
                if not a.numel():
                    continue
                gap = np.abs(a.double().numpy() - b.double().numpy())
                max_abs, mse = max(max_abs, float(gap.max())), max(mse, float((gap**2).mean()))
                continue
            u, v = a.double().numpy(), b.double().numpy()
            odd = ~np.isfinite(u) | ~np.isfinite(v)
            if not np.array_equal(u[odd], v[odd], equal_nan=True):
                return False, INF, INF
            u, v = u[~odd], v[~odd]
            if not u.size:
                continue
            unit = float(torch.finfo(a.dtype).eps)
            same = same and bool(np.all(np.abs(u - v) <= 40 * unit * (np.sqrt(np.mean(u**2)) + np.abs(u))))
            max_abs, mse = max(max_abs, float(np.abs(u - v).max())), max(mse, float(((u - v) ** 2).mean()))
    return same, max_abs, mse


@plain("one float32 tensor: the example and one draw, with a relative tolerance")
def one_tensor(before, after, inputs):
    same, max_abs, mse = True, 0.0, 0.0
    for x in (inputs[0], torch.randn(inputs[0].shape)):
        a, b = before(x), after(x)
        if a.shape != b.shape:
            return False, INF, INF
        gap = (a - b).abs()
        same = same and bool(gap.max() <= 1e-5 * a.abs().max())
        max_abs, mse = max(max_abs, gap.max().item()), max(mse, gap.square().mean().item())
    return same, max_abs, mse


@wrong("did", "tries the example only, which is all positive or all zero", core=True)
def example_only(before, after, inputs):
    return _compare(before, after, inputs, draws=lambda inputs: [inputs])


ALLOWED = "32 * eps * a[~special].abs().max().item()"

never_the_example = edited("did", "tries random numbers only, and never the example", core=True)(
    ("trials = [inputs]", "trials = []")
)
first_output = edited("did", "compares the first output only")(
    ("result = ...", "result = ...\nresult = result[0] if isinstance(result, tuple) else result")
)
broadcasts = edited("did", "does not compare shapes: subtraction broadcasts one column over the square", core=True)(
    ("a.shape != b.shape or ...", "..."),
    ("a, b = a.double(), b.double()", "a, b = torch.broadcast_tensors(a.double(), b.double())"),
)
flat_tuples = edited("did", "looks for output tensors in one tuple, and not in a list or dict in it")(
    (
        "result = ...",
        "...\nresult = result if isinstance(result, tuple) else (result,)\n"
        "result = [x for x in result if isinstance(x, Tensor)]",
    )
)
nan_is_small = edited("did", "asks whether the error is larger than the tolerance: with NaN, it never is")(
    ("~(a.isfinite() & b.isfinite())", "torch.zeros_like(a, dtype=torch.bool)"),
    ("largest <= allowed", "not largest > allowed"),
)
one_tolerance = edited("did", "one tolerance, 1e-5, for every dtype and every size of numbers")((ALLOWED, "1e-5"))
one_is_the_least = edited("did", "allows small numbers the rounding of 1: a relative tolerance with a floor")(
    (ALLOWED, "32 * eps * max(1.0, a[~special].abs().max().item())")
)
a_hundredth = edited("did", "allows a hundredth, which is far more than rounding", core=True)(
    (ALLOWED, "1e-2 * a[~special].abs().max().item()")
)
only_large = edited("did", "draws large numbers only", core=True)(("(1, 100)", "(100,)"))
in_any_order = edited("did", "compares the numbers of both results, and not their places", core=True)(
    ("a, b = a.double(), b.double()", "a, b = (x.double().flatten().sort().values for x in (a, b))")
)
shapes_without_figures = edited("did", "gives 0 as the differences of other shapes and dtypes", core=True)(
    (
        "if a.shape != b.shape or a.dtype != b.dtype: ...",
        "if a.shape != b.shape or a.dtype != b.dtype:\n    return 0.0, 0.0, -1.0",
    )
)
each_by_itself = edited(
    "spared", "allows each element the rounding of its own size: where terms cancel, it is too little"
)((ALLOWED, "math.inf if bool((gap <= 32 * eps * a[~special].abs()).all()) else -1.0"))
no_figures_when_same = edited("spared", "gives 0 as the differences of what it calls the same", core=True)(
    ("return same, max_abs, mse", "return (True, 0.0, 0.0) if same else (same, max_abs, mse)")
)
equal_bits = edited("spared", "expects equal bits: calls every regrouped sum wrong", core=True)((ALLOWED, "0.0"))
nan_differs = edited("spared", "NaN is not equal to itself: calls two programs different that both give NaN")(
    ("...(a[special], b[special], equal_nan=True)", "...(a[special], b[special], equal_nan=False)")
)
ignores_mutation = edited("did", "looks at outputs only: misses what a program writes into its inputs")(
    ("(result, args)", "result")
)
first_input = edited("did", "compares what the programs write into their first input only")(
    ("(result, args)", "(result, args[0])")
)
outputs_measured = edited("did", "gives the figures of the outputs alone, not of what is written into the inputs")(
    (
        "max_abs, mse = max(max_abs, largest), max(mse, squared)",
        "if not any(b is x for x in new[len(new) - len(args) :]):\n"
        "    max_abs, mse = max(max_abs, largest), max(mse, squared)",
    )
)
shares_inputs = edited(
    "spared", "gives both programs the same tensors: the first one's writes are the second one's inputs"
)(("[x.clone() if isinstance(x, Tensor) else x for x in args]", "list(args)"), ("(result, args)", "result"))
stops_at_the_first = edited("did", "gives the figures of the first tensor that differs, not the largest of all")(
    (
        "max_abs, mse = max(max_abs, largest), max(mse, squared)",
        "...\nif not same:\n    return False, largest, squared",
    )
)
adds_up = edited("did", "adds up the mean squared differences of all tensors")(("max(mse, squared)", "mse + squared"))
runs_once_more = edited("spared", "runs a program once more, on the caller's tensors: one that writes changes them")(
    ("return same, max_abs, mse", "before(*inputs)\nreturn same, max_abs, mse")
)
no_seed = edited("spared", "does not set the seed: two dropouts draw other numbers")(
    ("        torch.manual_seed(0)\n", "")
)
random_indices = edited("spared", "draws random numbers in place of indices, too")(
    ("return isinstance(x, Tensor) and x.is_floating_point()", "return isinstance(x, Tensor)")
)
by_mse = edited("did", "judges by the mean squared error, which hides one wrong element among many")(
    ("largest <= allowed", "squared <= 1e-6 * a.double().nan_to_num(0.0, 0.0, 0.0).square().mean().item()")
)
lets_errors_through = edited(
    "did", "lets the error of a failing program through, or answers False with 0 as the difference"
)(("try: ...\nexcept Exception:\n    return False, math.inf, math.inf", "try: ...\nexcept Exception:\n    raise"))
other_integers = edited("spared", "draws other integers and booleans, too, small enough to be indices")(
    ("... if floats(x) else x", "... if floats(x) else torch.randint_like(x, 0, 2) if isinstance(x, Tensor) else x")
)
draws_in_float32_only = edited("did", "draws numbers for float32 only: float64 is run on the example alone")(
    ("x.is_floating_point()", "x.dtype == torch.float32")
)
draws_float32 = edited("spared", "draws float32 in place of every dtype")(("....to(x.dtype)", "..."))
counts_elements = edited("did", "compares the numbers of elements in place of the shapes")(
    ("a.shape != b.shape or ...", "a.numel() != b.numel() or ..."),
    ("a, b = a.double(), b.double()", "a, b = a.double().flatten(), b.double().flatten()"),
)
finite_without_a_partner = edited("did", "gives finite differences for another number of outputs")(
    (
        "if len(old) != len(new):\n    return False, math.inf, math.inf",
        "if len(old) != len(new):\n    return False, max_abs, mse",
    )
)
integers_as_floats = edited("did", "compares integers in float64, which rounds those beyond 2**53")(
    ("0.0 if torch.equal(a, b) else -1.0", "0.0")
)
integers_without_figures = edited("did", "gives 0 as the difference of integers")(
    ("gap = (a - b)[~special].abs()", "gap = (a - b)[~special].abs() * (eps > 0)")
)
nan_anywhere = edited("did", "asks whether both have a NaN, and not where")(
    (
        "a, b = a.double(), b.double()",
        "a, b = a.double(), b.double()\nif a.isnan().any() and b.isnan().any():\n"
        "    a, b = (x.masked_fill(a.isnan() | b.isnan(), 0.0) for x in (a, b))",
    )
)
runtime_errors_only = edited("did", "takes a RuntimeError for a difference, and lets other errors through")(
    (
        "try: ...\nexcept Exception:\n    return False, math.inf, math.inf",
        "try: ...\nexcept RuntimeError:\n    return False, math.inf, math.inf",
    )
)
differences_in_bytes = edited("did", "subtracts bytes as bytes: 0 - 3 is 253")(
    (
        "a, b = a.double(), b.double()",
        "if a.dtype == torch.uint8:\n    a, b = a - b, b - b\na, b = a.double(), b.double()",
    )
)
differences_in_float16 = edited("did", "subtracts and squares float16 as float16, which overflows")(
    ("a, b = a.double(), b.double()", "if a.dtype != torch.float16:\n    a, b = a.double(), b.double()")
)
figures_of_the_example = edited("did", "gives the differences on the example alone", core=True)(
    (
        "max_abs, mse = max(max_abs, largest), max(mse, squared)",
        "if args is inputs or math.isinf(largest):\n    max_abs, mse = max(max_abs, largest), max(mse, squared)",
    )
)
stumbles_over_nothing = edited("spared", "takes the maximum of a tensor without elements, which is an error")(
    ("special.all()", "special.any() and special.all()")
)
nothing_is_nothing = edited("did", "takes tensors without elements for equal, whatever their shapes")(
    (
        "if a.shape != b.shape or ...: ...",
        "if a.numel() == b.numel() == 0:\n    return 0.0, 0.0, 0.0\nif a.shape != b.shape or ...: ...",
    )
)
only_a_bool = edited("did", "answers yes or no, without the figures")(("return same, max_abs, mse", "return same"))


EQUIVALENT = {
    ("torch.manual_seed(0)", "torch.manual_seed(1)"): "any seed does",
    ("...().manual_seed(0)", "...().manual_seed(1)"): "any seed does",
    ("math.inf, 0.0", "math.inf, 1.0"): "inf is more than is allowed in any case",
    ("0.0, 0.0, 0.0", "0.0, 0.0, 1.0"): "no difference is allowed in any case",
    (
        "0.0 if torch.equal(a, b) else -1.0",
        "0.0 if torch.equal(a, b) else -2.0",
    ): "less than nothing is allowed in any case",
    ("32 * eps * ...", "33 * eps * ..."): "rounding is much less, errors are much more",
    ("torch.randn(x.shape, generator=gen)", "torch.randn(x.shape)"): "any numbers do",
    ("for size in (1, 100): ...", "for size in (2, 100): ..."): "any ordinary size does",
    ("for size in (1, 100): ...", "for size in (1, 101): ..."): "any large size does",
}
