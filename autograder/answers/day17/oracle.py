"""Hidden cases and answers of day17.oracle."""

from __future__ import annotations

import copy
import random
from math import isnan

import torch
import torch.nn.functional as F
from torch import nn

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day17.oracle import itself, numbers, pair
from passlab.fx.cases import store
from passlab.given.day17.oracle import widened
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, k = rng.randint(3, 6), rng.randint(2, 5)
    x, y, z = (numbers(rng, n, k) for _ in range(3))
    big, at = 10.0 ** rng.randint(6, 8), rng.randrange(n)
    odd = x.clone()
    odd[at, 0], odd[at, 1] = torch.nan, torch.inf
    long = numbers(rng, 1, 4000)
    memory = numbers(rng, 2 * n)
    number = rng.randint(2, 9)
    return [
        itself("a program and itself", lambda m, x, y: torch.relu(x) + y, x, y),
        *_same(n, x, y, z, big, odd, memory),
        *_limits(x, y),
        *_different(x, y, at, odd, long, memory, number),
        *_neither(x, y),
        *_kinds(x, y),
    ]


def _limits(x, y):
    """Cases near the limits that the rules state."""
    overflow, infinite = torch.full((3,), 2e38), x.clone()
    infinite[0, 0] = torch.inf
    return [
        pair(
            "off by less than a millionth",
            "same",
            "the difference is 3e-7 of the largest number",
            lambda m, x: x + 0,
            lambda m, x: x * (1 + 3e-7),
            x,
        ),
        pair(
            "off by more than a millionth",
            "different",
            "the difference is 3e-6 of the largest number",
            lambda m, x: x + 0,
            lambda m, x: x * (1 + 3e-6),
            x,
        ),
        pair(
            "small beside a large number",
            "same",
            "the difference is small beside the largest number of the tensor, if not beside the number itself",
            lambda m, x, y: torch.cat([x, (y * 1e-9 + 1e3) - 1e3]),
            lambda m, x, y: torch.cat([x, y * 1e-9]),
            *(x, y),
        ),
        pair(
            "wrong beside an infinity",
            "different",
            "the largest finite number counts",
            lambda m, x: x + 0,
            lambda m, x: torch.where(x.isfinite(), x * 1.01, x),
            infinite,
        ),
        pair(
            "infinities of another sign in float32",
            "different",
            "in float64 both are finite, and equal",
            lambda m, x: ((x + x) - 1.25 * x) - 1.25 * x,
            lambda m, x: ((-1.25 * x - 1.25 * x) + x) + x,
            overflow,
        ),
        pair(
            "another nesting",
            "different",
            "a tuple in the tuple",
            lambda m, x: (x, (x + 1, x + 2)),
            lambda m, x: (x, x + 1, x + 2),
            x,
        ),
        pair(
            "another nesting, and no run in float64",
            "different",
            "a tuple in the tuple; that float64 does not run comes after it",
            lambda m, x: (x, (x.to(torch.float32) @ x.new_ones(x.shape).t(), x)),
            lambda m, x: (x, x.to(torch.float32) @ x.new_ones(x.shape).t(), x),
            x,
        ),
        pair(
            "another shape, and no run in float64",
            "different",
            "keepdim; that float64 does not run comes after it",
            lambda m, x, y: (x.to(torch.float32) @ y.t()).argmax(1),
            lambda m, x, y: (x.to(torch.float32) @ y.t()).argmax(1, True),
            *(x, y),
        ),
        pair(
            "another shape in float64",
            "different",
            "in float32 both pick one number; in float64 before picks all",
            lambda m, x: _ones(x)[(1e8 + (_ones(x).cumsum(0) - 1).clamp(0, 1) > 1e8) | (_ones(x).cumsum(0) == 1)],
            lambda m, x: _ones(x)[_ones(x).cumsum(0) == 1],
            x[0],
        ),
        pair("nothing in it", "same", "the results have no numbers", lambda m, x: x[:0], lambda m, x: x[:0] * 2, x),
        pair(
            "a parameter is no longer written",
            "same",
            "what is written into parameters does not count",
            lambda m, x: (m.w.add_(1), x * 2)[1],
            lambda m, x: x + x,
            x,
            w=x[0] * 2,
        ),
        pair(
            "a buffer is no longer written",
            "same",
            "what is written into buffers does not count",
            lambda m, x: m.norm(x),
            lambda m, x: (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt(),
            x,
            norm=lambda: nn.BatchNorm1d(x.shape[1], affine=False),
        ),
    ]


def _ones(x):
    return x * 0 + 1


def _same(n, x, y, z, big, odd, memory):
    return [
        pair(
            "a sum in another order",
            "same",
            "in float64 the difference is gone",
            lambda m, x, y, z: (x * big + y) + (z - x * big),
            lambda m, x, y, z: (x * big - x * big) + (y + z),
            *(x, y, z),
        ),
        pair(
            "another accumulator",
            "same",
            "the sum in float64 is rounded once",
            lambda m, x: x.sum(1),
            lambda m, x: x.double().sum(1).float(),
            x,
        ),
        pair(
            "two formulas for a variance",
            "same",
            "over the reals they are equal, and in float64 the difference is gone",
            lambda m, x: ((x + 1000) * (x + 1000)).mean(0) - (x + 1000).mean(0) * (x + 1000).mean(0),
            lambda m, x: x.var(0, correction=0),
            x,
        ),
        pair(
            "a comparison near a jump",
            "same",
            "rounding decides in float32; in float64 both are above",
            lambda m, x, y: (x * big + (y.abs() + 1)) - x * big > 0,
            lambda m, x, y: (x * big - x * big) + (y.abs() + 1) > 0,
            *(x, y),
        ),
        pair(
            "NaN, inf and -0.0",
            "same",
            "NaN equals NaN, and -0.0 equals 0.0",
            lambda m, x: (x - x, x * 2, x.clamp(0, 0)),
            lambda m, x: (x * 1 - x, x + x, -x.clamp(0, 0)),
            odd,
        ),
        pair(
            "a plain NaN",
            "same",
            "NaN equals NaN, as a plain number, too",
            lambda m, x: x.sum().item(),
            lambda m, x: (x * 1).sum().item(),
            odd,
        ),
        pair(
            "a parameter is written",
            "same",
            "each run begins with the parameter as it is",
            lambda m, x: m.w.add_(1) + x,
            lambda m, x: x + m.w.add_(1),
            *(x,),
            w=x[0] * 2,
        ),
        pair(
            "the input is written, before it is read",
            "same",
            "each run begins with the inputs as they are",
            lambda m, x: x.mul_(2).sum(0),
            lambda m, x: x.mul_(2).sum(0) * 1,
            x,
        ),
        pair(
            "a write that gives something else the second time",
            "same",
            "each run begins with the inputs as they are",
            lambda m, x: x.log_() + 1,
            lambda m, x: 1 + x.log_(),
            x.abs() / 2 + 0.01,
        ),
        pair(
            "a parameter whose logarithm is taken in place",
            "same",
            "each run begins with the parameter as it is",
            lambda m, x: m.w.log_() + x,
            lambda m, x: x + m.w.log_(),
            x,
            w=x[0].abs() / 2 + 0.01,
        ),
        pair(
            "inputs that share memory",
            "same",
            "the write is seen through both",
            lambda m, x, y: x.add_(1) + y,
            lambda m, x, y: x.add_(1).add(y),
            *(memory[:n], memory[:n]),
        ),
        pair(
            "dropout that is switched off",
            "same",
            "it draws nothing",
            lambda m, x: F.dropout(x, 0.5, False) * 2,
            lambda m, x: x * 2,
            x,
        ),
        pair(
            "a layer, and its formula",
            "same",
            "the difference is rounding",
            lambda m, x: m.layer(x),
            lambda m, x: (x - x.mean(1, True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt(),
            x,
            layer=lambda: nn.LayerNorm(x.shape[1], elementwise_affine=False),
        ),
    ]


def _different(x, y, at, odd, long, memory, number):
    n = len(x)
    return [
        pair(
            "another number", "different", f"{number}, not {number + 1}", lambda m, x: x * number, _times(number + 1), x
        ),
        pair(
            "another eps",
            "different",
            "1e-3 instead of 1e-5, in float64, too",
            lambda m, x: x / (x.var(0) + 1e-5).sqrt(),
            lambda m, x: x / (x.var(0) + 1e-3).sqrt(),
            x,
        ),
        pair(
            "a sum in float16",
            "different",
            "it is rounded to 10 bits",
            lambda m, x: x.sum(1),
            lambda m, x: x.half().sum(1).float(),
            long,
        ),
        pair(
            "one element of many",
            "different",
            "one of 4,000 numbers is another one",
            lambda m, x: x * 1,
            lambda m, x: store(x * 1, (0, at), 0.0) * 1,
            long,
        ),
        pair(
            "numbers that are small",
            "different",
            "they are smaller than a millionth, and one is twice the other",
            lambda m, x: x * 1e-9,
            lambda m, x: x * 2e-9,
            x,
        ),
        pair(
            "small numbers beside large ones",
            "different",
            "each tensor is measured by its own numbers",
            lambda m, x: (x * 1e9, x * 2),
            lambda m, x: (x * 1e9, x * 3),
            x,
        ),
        pair(
            "NaN becomes 0",
            "different",
            "x * 0 is NaN for NaN and inf",
            lambda m, x: x * 0,
            lambda m, x: torch.zeros_like(x),
            odd,
        ),
        pair(
            "a plain NaN becomes a number",
            "different",
            "before returns NaN",
            lambda m, x: x.sum().item(),
            lambda m, x: x.nan_to_num().sum().item(),
            odd,
        ),
        pair(
            "inf of another sign", "different", "inf and -inf", lambda m, x: x / 0.0, lambda m, x: x / -0.0, y.abs() + 1
        ),
        pair(
            "an overflow in float32 alone",
            "different",
            "NaN where before has numbers: float64 does not show it",
            lambda m, x: torch.softmax(x * 10 + 100, 1),
            lambda m, x: (x * 10 + 100).exp() / (x * 10 + 100).exp().sum(1, True),
            x,
        ),
        pair("a type", "different", "float64", lambda m, x: x.sum(0), lambda m, x: x.double().sum(0), x),
        pair("a shape", "different", "keepdim", lambda m, x: x.sum(0), lambda m, x: x.sum(0, True), x),
        pair("a result less", "different", "one of two", lambda m, x: (x, x + 1), lambda m, x: (x + 1,), x),
        pair("integers", "different", "one more", lambda m, x: x.argmax(1), lambda m, x: x.argmax(1) + 1, x),
        pair(
            "large integers",
            "different",
            "one more: of integers none is rounded",
            lambda m, x: x.argmax(1) + 10**9,
            lambda m, x: x.argmax(1) + (10**9 + 1),
            x,
        ),
        pair("a number", "different", "size", lambda m, x: x.size(0), lambda m, x: x.size(0) + 1, x),
        pair("an error", "different", "after raises it", lambda m, x: x + 1, lambda m, x: (x + 1).view(-1, 1009), x),
        pair(
            "a write that is gone",
            "different",
            "the input is not written",
            lambda m, x: x.mul_(2) + 1,
            lambda m, x: x * 2 + 1,
            x,
        ),
        pair(
            "a write too many",
            "different",
            "the input is written",
            lambda m, x: x * 2 + 1,
            lambda m, x: x.mul_(2) + 1,
            x,
        ),
        pair(
            "a read before a write",
            "different",
            "y shares the memory of x, and is read too early",
            lambda m, x, y: x.add_(1) + y * 1,
            lambda m, x, y: (y * 1) + x.add_(1),
            *(memory[:n], memory[:n]),
        ),
        pair(
            "what is written through x overflows in y",
            "different",
            "y shares the memory of x: in float32, y * 1e10 is infinite",
            lambda m, x, y: (x.mul_(1e30), y * 1e10 / 1e10),
            lambda m, x, y: (x.mul_(1e30), y),
            *(memory[:n], memory[:n]),
        ),
    ]


def _times(number):
    return lambda m, x: x * number


def _neither(x, y):
    words = "cannot tell"
    return [
        pair(
            "two draws", words, "both draw", lambda m, x: x + torch.rand_like(x), lambda m, x: x + torch.rand_like(x), x
        ),
        pair(
            "draws that do not matter",
            words,
            "before draws random numbers",
            lambda m, x: x + torch.rand_like(x) * 0,
            lambda m, x: x * 1,
            x,
        ),
        pair(
            "a draw in after",
            words,
            "after draws random numbers",
            lambda m, x: x * 2,
            lambda m, x: F.dropout(x, 0.5, True) * 2,
            x,
        ),
        pair(
            "a draw before the error of after",
            words,
            "after draws random numbers, and then raises: the first rule comes first",
            lambda m, x: x * 2,
            lambda m, x: (x + torch.rand_like(x)).view(-1, 1009),
            x,
        ),
        pair(
            "a layer that draws",
            words,
            "dropout in training draws",
            lambda m, x: m.drop(x),
            lambda m, x: m.drop(x) * 1,
            x,
            drop=nn.Dropout,
        ),
        pair("both raise", words, "before raises", lambda m, x: x.view(-1, 1009), lambda m, x: x.view(-1, 1009), x),
        pair("before raises", words, "before raises", lambda m, x: x.view(-1, 1009), lambda m, x: x * 1, x),
        pair(
            "a type that the program names",
            words,
            "float32 times float64: it does not run with wide inputs",
            lambda m, x, y: x.to(torch.float32) @ y.t(),
            lambda m, x, y: (y @ x.to(torch.float32).t()).t(),
            *(x, y),
        ),
        pair(
            "a type that before alone names",
            words,
            "float32 times float64: before does not run with wide inputs",
            lambda m, x, y: x.to(torch.float32) @ y.t(),
            lambda m, x, y: x @ y.t(),
            *(x, y),
        ),
    ]


def _kinds(x, y):
    """Cases of each kind of outcome, and of numbers that are not finite, or 0."""
    large = torch.full((3,), 2e38)
    return [
        pair(
            "an infinity in float32 alone",
            "different",
            "inf where before has numbers: float64 does not show it",
            lambda m, x: x * 0.5 + x * 0.5,
            lambda m, x: (x + x) * 0.5,
            large,
        ),
        pair(
            "NaN in float64 alone",
            "different",
            "NaN where before has numbers: float32 does not show it, where the root is that of 0",
            lambda m, x: x * 2,
            lambda m, x: x * 2 + (-(x.abs() * 1e-30 * 1e-30)).sqrt(),
            x,
        ),
        pair(
            "zero, and nearly zero",
            "different",
            "the largest number of before is 0, and so is a millionth of it",
            lambda m, x: x * 0,
            lambda m, x: x * 0 + 1e-12,
            x,
        ),
        pair(
            "numbers in a dict",
            "different",
            "another number under a key",
            lambda m, x: {"sum": x + x, "next": x + 1},
            lambda m, x: {"sum": x * 2, "next": x + 2},
            x,
        ),
        pair(
            "a dict with another key",
            "different",
            "the key is another one",
            lambda m, x: {"sum": x + x},
            lambda m, x: {"total": x + x},
            x,
        ),
        pair(
            "numbers in a list",
            "different",
            "another number in a list",
            lambda m, x: [x + x, x + 1],
            lambda m, x: [x * 2, x + 2],
            x,
        ),
        pair(
            "a list in a dict",
            "same",
            "the same list under the same key",
            lambda m, x: {"both": [x + x, x.size(0)]},
            lambda m, x: {"both": [x * 2, x.size(0)]},
            x,
        ),
        pair("truth values", "different", "where x is positive", lambda m, x: x > 0, lambda m, x: x < 0, x),
        pair(
            "plain numbers that are nearly equal",
            "different",
            "plain numbers are not rounded",
            lambda m, x: x.size(0) * 0.1,
            lambda m, x: x.size(0) * 0.1000000001,
            x,
        ),
        pair(
            "a type that after names",
            "cannot tell",
            "float32 times float64: after does not run with wide inputs",
            lambda m, x, y: x @ y.t(),
            lambda m, x, y: x.to(torch.float32) @ y.t(),
            *(x, y),
        ),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _run(gm, inputs):
    """The outcome as a list of (path, value), or the error; and the generator's state after a seed."""
    torch.manual_seed(1)
    start = torch.get_rng_state()
    with torch.no_grad():
        try:
            value = gm.forward(*inputs)
        except Exception as error:
            return error, torch.equal(start, torch.get_rng_state())
    return _leaves((value, inputs)), torch.equal(start, torch.get_rng_state())


def _leaves(value, path=()):
    if isinstance(value, (tuple, list)):
        parts = [_leaves(part, (*path, i)) for i, part in enumerate(value)]
        return [(path, len(value)), *(leaf for part in parts for leaf in part)]
    if isinstance(value, dict):
        return [leaf for name, part in value.items() for leaf in _leaves(part, (*path, name))]
    return [(path, value)]


def _form(leaves):
    """What has to agree as it is, as plain data."""
    result = []
    for path, value in leaves:
        if isinstance(value, torch.Tensor):
            special = value.tolist() if value.is_floating_point() else []
            flat = str(special if value.is_floating_point() and not value.isfinite().all() else "")
            marks = [
                w if w in ("nan", "inf", "-inf") else "0"
                for w in flat.strip("[]").replace("[", "").replace("]", "").split(", ")
            ]
            result.append((path, value.dtype, value.shape, tuple(marks)))
        else:
            result.append((path, type(value)))
    return result


def _apart(old, new):
    """Whether two wide outcomes differ."""
    for (path, a), (other, b) in zip(old, new, strict=True):
        if path != other:
            return True
        if not isinstance(a, torch.Tensor):
            if a != b and not (isinstance(a, float) and isinstance(b, float) and isnan(a) and isnan(b)):
                return True
        elif a.shape != b.shape:
            return True
        elif a.is_floating_point():
            a, b = a.double(), b.double()
            both = a.isfinite() & b.isfinite()
            if ((a.isnan() != b.isnan()) | (a.isinf() != b.isinf())).any() or (a[a.isinf()] != b[a.isinf()]).any():
                return True
            scale = a[a.isfinite()].abs().amax() if a.isfinite().any() else 0.0
            if ((a - b).abs()[both] > 1e-6 * scale).any():
                return True
        elif (a != b).any():
            return True
    return False


@right("turns outcomes into plain lists, and compares what has to agree as it is as data")
def by_lists(before, after, inputs):
    old, quiet = _run(*copy.deepcopy((before, inputs)))
    new, silent = _run(*copy.deepcopy((after, inputs)))
    if isinstance(old, Exception) or not (quiet and silent):
        return "cannot tell"
    if isinstance(new, Exception) or _form(old) != _form(new):
        return "different"
    (old, _), (new, _) = _run(*widened(before, inputs)), _run(*widened(after, inputs))
    if isinstance(old, Exception) or isinstance(new, Exception):
        return "cannot tell"
    return "different" if _apart(old, new) else "same"


@right("runs all four programs first, and then goes through the rules")
def first_all(before, after, inputs):
    runs = [_run(*copy.deepcopy((gm, inputs))) for gm in (before, after)]
    wide = [_run(*widened(gm, inputs)) for gm in (before, after)]
    rules = [
        (isinstance(runs[0][0], Exception) or not all(quiet for _, quiet in runs), "cannot tell"),
        (isinstance(runs[1][0], Exception), "different"),
    ]
    for holds, word in rules:
        if holds:
            return word
    if _form(runs[0][0]) != _form(runs[1][0]):
        return "different"
    if any(isinstance(outcome, Exception) for outcome, _ in wide):
        return "cannot tell"
    return "different" if _apart(wide[0][0], wide[1][0]) else "same"


@wrong("spared", "every number has to be equal")
def exactly(before, after, inputs):
    old, _ = _run(*copy.deepcopy((before, inputs)))
    new, _ = _run(*copy.deepcopy((after, inputs)))
    if isinstance(old, Exception):
        return "cannot tell"
    if isinstance(new, Exception) or len(old) != len(new):
        return "different"
    return "same" if all(str(a) == str(b) for a, b in zip(old, new, strict=True)) else "different"


@wrong("did", "torch.allclose of the results, with its usual tolerances")
def all_close(before, after, inputs):
    torch.manual_seed(0)
    try:
        results = [gm(*(x.clone() for x in inputs)) for gm in (before, after)]
    except Exception:
        return "cannot tell"
    old, new = ([leaf for leaf in _leaves(result) if isinstance(leaf[1], torch.Tensor)] for result in results)
    return (
        "same"
        if all(
            a[1].shape == b[1].shape and torch.allclose(a[1], b[1].to(a[1].dtype), equal_nan=True)
            for a, b in zip(old, new, strict=False)
        )
        else "different"
    )


@wrong("did", "never raises an alarm")
def trusting(before, after, inputs):
    return "same"


@wrong("spared", "raises an alarm at every pair")
def alarmed(before, after, inputs):
    return "different"


@wrong("valid", "says True or False")
def truth(before, after, inputs):
    return by_lists(before, after, inputs) == "same"


no_copies = edited("spared", "runs both programs on the same inputs, one after the other")(
    ("run(*copy.deepcopy((gm, inputs)))", "run(gm, inputs)")
)
apart = edited("did", "copies each input by itself: they no longer share memory")(
    ("run(*copy.deepcopy((gm, inputs)))", "run(copy.deepcopy(gm), tuple(x.clone() for x in inputs))"),
    ("run(*widened(gm, inputs))[0]", "run(*widened(gm, [x.clone() for x in inputs]))[0]"),
)
apart_at_first = edited("did", "copies each input by itself where it runs the programs as they are")(
    ("run(*copy.deepcopy((gm, inputs)))", "run(copy.deepcopy(gm), tuple(x.clone() for x in inputs))")
)
parameters_stay = edited("spared", "copies the inputs, and lets runs write into the parameters")(
    ("run(*copy.deepcopy((gm, inputs)))", "run(gm, copy.deepcopy(inputs))")
)
results_alone = edited("did", "looks at the results, and not at the inputs afterwards")(
    ("[gm.forward(*inputs), *inputs]", "[gm.forward(*inputs)]")
)
wide_alone = edited("did", "compares in float64 alone: types and overflow do not show there")(
    ("outcomes[1] is None or not alike(*outcomes, numbers=False)", "outcomes[1] is None")
)
as_it_is = edited("spared", "compares in the program's own types, with the tolerance of float64")(
    ("run(*widened(gm, inputs))[0]", "run(*copy.deepcopy((gm, inputs)))[0]")
)
absolute = edited("did", "a millionth is small, whatever the numbers are")(("1e-6 * largest", "1e-6"))
generous = edited("did", "a thousandth of the largest number is rounding")(("1e-6 * largest", "1e-3 * largest"))
ten_times = edited("did", "a hundred thousandth is rounding")(("1e-6 * largest", "1e-5 * largest"))
a_tenth = edited("spared", "only a ten millionth is rounding")(("1e-6 * largest", "1e-7 * largest"))
each_number = edited("spared", "compares each number with its own size")(
    (
        "torch.allclose(a, b.to(a.dtype), 0, 1e-6 * largest, equal_nan=True)",
        "torch.allclose(b.to(a.dtype), a, 1e-6, 0, equal_nan=True)",
    )
)
infinite_size = edited("did", "takes an infinity for the largest number, beside which nothing differs")(
    ("a[finite].abs().max().item() if finite.any() else 0", "a.abs().max().item() if a.numel() else 0")
)
any_nesting = edited("did", "compares tensors, however they are nested")(("nesting == other", "len(old) == len(new)"))
with_parameters = edited("spared", "compares what parameters hold afterwards")(
    ("[gm.forward(*inputs), *inputs]", "[gm.forward(*inputs), *inputs, *gm.parameters()]")
)
no_nan = edited("spared", "NaN differs from NaN")(("torch.allclose(a, b, equal_nan=True)", "torch.equal(a, b)"))
no_plain_nan = edited("spared", "plain numbers are compared with ==, by which NaN differs from NaN")(
    ("(a == b or (a != a and b != b) or not numbers)", "(a == b or not numbers)")
)
any_plain_nan = edited("did", "beside a plain NaN nothing differs")(("(a != a and b != b)", "a != a or b != b"))
ignores_draws = edited("same", "with the same seed, random numbers are the same")(("drawn or ...", "False or ..."))
one_draw = edited("same", "only looks for draws of before")(
    ("drawn or (gm is before and outcome is None)", "gm is before and (drawn or outcome is None)")
)
errors_differ = edited("same", "two programs that raise errors do the same")(("None in wide", "False"))
crash = edited("did", "cannot tell where after raises an error")(
    ("drawn or (gm is before and outcome is None)", "drawn or outcome is None")
)
nesting_late = edited("did", "compares the nesting in float64 alone")(
    ("nesting == other", "len(old) == len(new) and (nesting == other or not numbers)")
)
shapes_late = edited("did", "compares shapes in float64 alone")(
    ("a.shape != b.shape", "numbers and a.shape != b.shape"),
    ("torch.allclose(a, b, equal_nan=True)", "a.shape == b.shape and torch.allclose(a, b, equal_nan=True)"),
)
shapes_once = edited("did", "compares no shapes in float64")(
    ("a.shape != b.shape", "not numbers and a.shape != b.shape")
)
with_buffers = edited("spared", "compares what buffers hold afterwards")(
    ("[gm.forward(*inputs), *inputs]", "[gm.forward(*inputs), *inputs, *gm.buffers()]")
)
error_first = edited("same", "an error of after decides, though it drew random numbers before")(
    ("drawn or (gm is before and outcome is None)", "gm is before if outcome is None else drawn")
)
infinities_in_both = edited("did", "compares infinities only where both programs have one")(
    (
        "x.masked_fill(x.isfinite(), 0)",
        "x.masked_fill((a.isfinite() | b.isfinite()) & ~x.isnan(), 0)",
    )
)
nan_is_near = edited("did", "asks whether a difference is larger than allowed, which a NaN never is")(
    (
        "torch.allclose(a, b.to(a.dtype), 0, 1e-6 * largest, equal_nan=True)",
        "not ((a - b).abs() > 1e-6 * largest).any()",
    )
)
beside_one = edited("did", "allows a millionth where before is 0")(("1e-6 * largest", "1e-6 * (largest or 1)"))
no_truth_values = edited("did", "compares no truth values")(
    ("not numbers or torch.equal(a, b)", "not numbers or a.dtype == torch.bool or torch.equal(a, b)")
)
plain_rounding = edited("did", "allows rounding for plain numbers, too")(
    ("(a == b or (a != a and b != b) or not numbers)", "(abs(a - b) <= 1e-6 * abs(a) or a != a or not numbers)")
)
before_must_run = edited("same", "takes an error of before, with wide inputs, for a difference")(
    ("None in wide", "wide[1] is None")
)
after_must_run = edited("same", "takes an error of after, with wide inputs, for a difference")(
    ("None in wide", "wide[0] is None")
)


def _changed(gm, change):
    """A copy of a program that returns `change` of what it returns."""
    gm = copy.deepcopy(gm)
    output = gm.graph.output_node()
    output.args = (change(output.args[0]),)
    gm.recompile()
    return gm


@wrong("did", "does not look into dicts")
def no_dicts(before, after, inputs):
    programs = (_changed(gm, lambda r: "a dict" if isinstance(r, dict) else r) for gm in (before, after))
    return by_lists(*programs, inputs)


@wrong("did", "compares the values of dicts, whatever their keys")
def no_keys(before, after, inputs):
    programs = (_changed(gm, lambda r: [*r.values()] if isinstance(r, dict) else r) for gm in (before, after))
    return by_lists(*programs, inputs)


@wrong("did", "does not look into lists")
def no_lists(before, after, inputs):
    programs = (_changed(gm, lambda r: "a list" if isinstance(r, list) else r) for gm in (before, after))
    return by_lists(*programs, inputs)
