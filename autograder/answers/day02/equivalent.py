"""Hidden cases and answers of day02.equivalent.

Most wrong answers are one working comparison with one thing left out.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from autograder.authoring.answers import right, wrong
from passlab.exercises.day02._shared import program
from passlab.exercises.day02.equivalent import Pair, pair_case
from passlab.exercises.day02.equivalent import cases as visible
from passlab.exercises.day02.fold_batchnorm import batch_norm
from passlab.fx.cases import seeded
from passlab.fx.generate import random_graph
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _conv_bn(eps: float, folded_eps: float | None = None) -> fx.GraphModule:
    """conv → batch norm; with `folded_eps`, folded with that eps. The same weights at each call from one seed."""
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


def hidden(seed: int) -> list[Case]:
    """More ways to differ, and to look different."""
    rng = random.Random(seed)
    rows, columns = rng.randint(3, 7), rng.randint(40, 90)
    shift = rng.choice((0.25, 2.0, 3.0))

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Callable:
        return lambda: (torch.randn(*shape, dtype=dtype),)

    big = lambda: (torch.tensor([2**40, 7, -(2**53)]),)  # noqa: E731
    pick = rng.randrange(columns)
    cases = [
        pair_case(
            "a shift",
            lambda m, x: x.abs(),
            lambda m, x: x.abs() + shift,
            normal(rows, columns),
            Pair(False, f"One adds {shift}.", (shift, shift**2)),
        ),
        pair_case(
            "zeros as the example",
            lambda m, x: x * 2,
            lambda m, x: x * 3,
            lambda: (torch.zeros(rows, 4),),
            Pair(False, "2·0 = 3·0; on other numbers the programs differ."),
        ),
        pair_case(
            "one element of many",
            lambda m, x: x.sigmoid(),
            lambda m, x: x.sigmoid() + F.one_hot(torch.tensor(pick), columns) * 1e-3,
            normal(rows, columns),
            Pair(False, "One column is 1e-3 off: an average over many elements hides it."),
        ),
        pair_case(
            "large numbers only",
            lambda m, x: x,
            lambda m, x: x.clamp(-20, 20),
            normal(rows, columns),
            Pair(False, "They differ beyond 20: try large numbers too."),
        ),
        pair_case(
            "one more output",
            lambda m, x: (x, x + 1),
            lambda m, x: (x, x + 1, x),
            normal(4),
            Pair(False, "Two outputs before, three after."),
        ),
        pair_case(
            "another dtype",
            lambda m, x: x * 1,
            lambda m, x: x.double(),
            normal(4),
            Pair(False, "The values are equal, the dtype is not."),
        ),
        pair_case(
            "plus and minus infinity",
            lambda m, x: 1 / (x * 0).abs(),
            lambda m, x: -1 / (x * 0).abs(),
            normal(4),
            Pair(False, "One gives inf, the other -inf."),
        ),
        pair_case(
            "large integers",
            lambda m, x: x + 0,
            lambda m, x: x - (x == 2**40).long(),
            big,
            Pair(False, "Integers must be equal; 2**40 and 2**40 - 1 are close in float32 only."),
        ),
        pair_case(
            "infinity on both sides",
            lambda m, x: torch.exp(x * 1e4),
            lambda m, x: torch.exp(1e4 * x),
            normal(4, 5),
            Pair(True, "Both give inf and 0 at the same places; inf - inf is NaN."),
        ),
        pair_case(
            "booleans",
            lambda m, x: x > 0,
            lambda m, x: torch.gt(x, 0),
            normal(4, 5),
            Pair(True, "Both give the same booleans."),
        ),
        pair_case(
            "bfloat16",
            lambda m, x: x * 3,
            lambda m, x: x + x + x,
            normal(rows, columns, dtype=torch.bfloat16),
            Pair(True, "bfloat16 has 8 bits: two roundings may differ by a hundredth."),
        ),
        pair_case(
            "small numbers in another order",
            lambda m, x: (x * 1e-5).sum(1),
            lambda m, x: (x.flip(1) * 1e-5).sum(1),
            normal(rows, 300),
            Pair(True, "They add the same numbers in another order."),
        ),
        pair_case(
            "an example that is written over",
            lambda m, x: (x.mul_(2), x.sum())[1],
            lambda m, x: (x.mul_(2), x.sum())[1] * 1.0,
            normal(6),
            Pair(True, "Both double their input in place."),
        ),
        _fold_pair("a folded batch norm", 0.01, Pair(True, "Folding rounds the weights once more."), seed),
        _fold_pair("a batch norm folded without its eps", 0.0, Pair(False, "eps was left out."), seed),
    ]
    return [*visible(), *cases, *_generated_pairs(seed)]


# ---------------------------------------------------------------------------------------------------- answers

INF = math.inf


def _is_float(x):
    return isinstance(x, Tensor) and x.is_floating_point()


def _draws(inputs):
    """The example, and random inputs of three sizes."""
    gen = torch.Generator().manual_seed(1)
    yield inputs
    for size in (1.0, 10.0, 300.0):
        yield tuple((size * torch.randn(x.shape, generator=gen)).to(x.dtype) if _is_float(x) else x for x in inputs)


def _run(program, inputs, own_copy=True, seed=0, with_inputs=True):
    inputs = copy.deepcopy(inputs) if own_copy else inputs
    if seed is not None:
        torch.manual_seed(seed)
    with torch.no_grad():
        result = program(*inputs)
    return [x for x in pytree.tree_leaves((result, inputs) if with_inputs else result) if isinstance(x, Tensor)]


def _tolerance(a):
    return 50 * torch.finfo(a.dtype).eps if a.is_floating_point() else 0.0


def _gap(a, b, tolerance=_tolerance, shapes=True, dtypes=True, relative=True):
    """(same, max_abs, mse) of two tensors."""
    if (shapes and a.shape != b.shape) or (dtypes and a.dtype != b.dtype):
        return False, INF, INF
    allowed = tolerance(a)
    a, b = a.double(), b.double()
    equal = (a == b) | (a.isnan() & b.isnan())
    if not (a.isfinite() & b.isfinite() | equal).all():
        return False, INF, INF
    error = (a - b).abs().masked_fill(equal, 0.0)
    size = a[a.isfinite()].abs().max().item() if relative and a.isfinite().any() else 1.0
    largest, squares = (error.max().item(), error.square().mean().item()) if error.numel() else (0.0, 0.0)
    return largest <= allowed * size, largest, squares


def _compare(before, after, inputs, draws=_draws, gap=_gap, count=True, failing=True, **run):
    same, max_abs, mse = True, 0.0, 0.0
    for args in draws(inputs):
        old = _run(before, args, **run)
        try:
            new = _run(after, args, **run)
        except Exception:
            if not failing:
                raise
            return False, INF, INF
        if count and len(old) != len(new):
            return False, INF, INF
        for a, b in zip(old, new, strict=False):
            alike, largest, squares = gap(a, b)
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


@wrong("did", "tries the example only, which is all positive or all zero")
def example_only(before, after, inputs):
    return _compare(before, after, inputs, draws=lambda inputs: [inputs])


@wrong("did", "compares the first output only")
def first_output(before, after, inputs):
    def first(program):
        def run(*args):
            result = program(*args)
            return result[0] if isinstance(result, tuple) else result

        return run

    return _compare(first(before), first(after), inputs)


@wrong("did", "does not compare shapes: subtraction broadcasts one column over the square")
def broadcasts(before, after, inputs):
    return _compare(before, after, inputs, gap=lambda a, b: _gap(a, b, shapes=False))


@wrong("did", "asks whether the error is larger than the tolerance: with NaN, it never is")
def nan_is_small(before, after, inputs):
    def gap(a, b):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False, INF, INF
        size = a.double().abs().nan_to_num(0.0, 0.0, 0.0).max().item()
        error = (a.double() - b.double()).abs()
        largest, squares = error.max().item(), error.square().mean().item()
        return not largest > _tolerance(a) * size, 0.0 if math.isnan(largest) else largest, max(0.0, squares)

    def compare(before, after, inputs):
        same, max_abs, mse = _compare(before, after, inputs, gap=gap)
        return same, max_abs, 0.0 if math.isnan(mse) else mse

    return compare(before, after, inputs)


@wrong("did", "one tolerance, 1e-5, for every dtype and every size of numbers")
def one_tolerance(before, after, inputs):
    return _compare(before, after, inputs, gap=lambda a, b: _gap(a, b, tolerance=lambda a: 1e-5, relative=False))


@wrong("did", "torch.allclose with its defaults: 1e-8 is nothing to it, even in float64")
def allclose(before, after, inputs):
    def gap(a, b):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False, INF, INF
        _, largest, squares = _gap(a, b)
        return torch.allclose(a, b, equal_nan=True), largest, squares

    return _compare(before, after, inputs, gap=gap)


@wrong("spared", "wants equal bits: every regrouped sum is called wrong")
def equal_bits(before, after, inputs):
    return _compare(before, after, inputs, gap=lambda a, b: _gap(a, b, tolerance=lambda a: 0.0))


@wrong("spared", "NaN is not equal to itself, so two programs that both give NaN are called different")
def nan_differs(before, after, inputs):
    def gap(a, b):
        same, largest, squares = _gap(a, b)
        return same and not bool(a.isnan().any()), largest, squares

    return _compare(before, after, inputs, gap=gap)


@wrong("did", "looks at outputs only: what a program writes into its inputs is not seen")
def ignores_mutation(before, after, inputs):
    return _compare(before, after, inputs, with_inputs=False)


@wrong("spared", "gives both programs the same tensors: the first one's writes are the second one's inputs")
def shares_inputs(before, after, inputs):
    return _compare(before, after, inputs, own_copy=False, with_inputs=False)


@wrong("spared", "does not set the seed: two dropouts draw other numbers")
def no_seed(before, after, inputs):
    return _compare(before, after, inputs, seed=None)


@wrong("spared", "draws random numbers in the place of indices too")
def random_indices(before, after, inputs):
    def draws(inputs):
        yield from _draws(inputs)
        yield tuple(torch.randn(x.shape).mul(9).to(x.dtype) if isinstance(x, Tensor) else x for x in inputs)

    return _compare(before, after, inputs, draws=draws)


@wrong("did", "judges by the mean squared error: one wrong element among many is averaged away")
def by_mse(before, after, inputs):
    def gap(a, b):
        _, largest, squares = _gap(a, b)
        size = a.double().nan_to_num(0.0, 0.0, 0.0).square().mean().item() if a.is_floating_point() else 0.0
        return squares <= 1e-6 * size, largest, squares

    return _compare(before, after, inputs, gap=gap)


@wrong("did", "lets the error of a failing program through instead of answering False")
def lets_errors_through(before, after, inputs):
    return _compare(before, after, inputs, failing=False)


@wrong("did", "answers yes or no, without the figures")
def only_a_bool(before, after, inputs):
    return _compare(before, after, inputs)[0]
