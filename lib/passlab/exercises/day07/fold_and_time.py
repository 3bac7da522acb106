"""Day 7: visible cases of the measurement of what folding a batch norm buys.

While the answer works, a witness writes down what it builds and how long each run takes: what the answer says must fit
that. Both sides are built here again, in another process, their kernels counted and their outputs compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from passlab.building.arrays import as_torch
from passlab.building.requests import Built
from passlab.equivalence.seeds import own_seed
from passlab.equivalence.values import Tolerance, compare
from passlab.given.day07.fold_and_time import LEVEL, RUNS
from passlab.judge import Case, Finding
from passlab.judge.words import plural
from passlab.measure import seconds as duration
from passlab.relay import relay, tvm
from passlab.relay.cases import program, weight
from passlab.tvm import builds
from passlab.tvm.builds import packed
from passlab.tvm.judge import counts, first_difference, random_inputs, why_not_open, why_not_valid

#: Seconds between two looks at the clock in which another program may run.
HICCUP = 1e-4


def _unfit(before: tvm.IRModule, answer: Any) -> str | None:
    """Return why the answer is malformed, or None."""
    if not isinstance(answer, dict) or not {"plain", "folded", "ratio"} <= set(answer):
        return "Return a dict with plain, folded and ratio."
    for name in ("plain", "folded"):
        side = answer[name]
        if not isinstance(side, dict) or not {"module", "level", "disabled", "seconds"} <= set(side):
            return f"The side {name!r} must be a dict with module, level, disabled and seconds."
        if broken := why_not_valid(before, side["module"]) or why_not_open(before, side["module"]):
            return f"The side {name!r}: {broken}"
        if type(side["level"]) is not int or not all(isinstance(one, str) for one in side["disabled"]):
            return f"The side {name!r} must have an int as its level and names of passes in disabled."
    if not isinstance(answer["ratio"], int | float):
        return "The ratio must be a number."
    return None


def _unlike(before: tvm.IRModule, answer: dict) -> str | None:
    """Return how the two sides differ besides the folding, or None."""
    plain, folded = answer["plain"], answer["folded"]
    for name, side in (("plain", plain), ("folded", folded)):
        if side["level"] != LEVEL:
            return f"The side {name!r} is built at level {side['level']}; build both at level {LEVEL}."
    if odd := sorted(set(plain["disabled"]) ^ set(folded["disabled"])):
        return f"{odd[0]} is disabled for one side only, so the ratio measures that as well. Disable it for both."
    if difference := first_difference(before, plain["module"], ("the module given", "the plain side")):
        return f"The plain side must be the given module, unchanged. {difference}"
    return None


def _unfolded(folded: tvm.IRModule, limits: dict[str, int]) -> str | None:
    """Return which operator is left too often in the folded module, or None."""
    calls = counts(folded)
    name = next((op for op, limit in limits.items() if calls[op] > limit), None)
    if name is None:
        return None
    reason = {
        "nn.batch_norm": "SimplifyInference takes them apart",
        "multiply": "FoldScaleAxis moves a scale into the weights, in a Sequential only at level 3, and FoldConstant "
        "then computes these",
    }.get(name, "FoldConstant computes what is the same on every call")
    return f"The folded module has {calls[name]} {name}, {limits[name]} is possible: {reason}."


def _unmeasured(answer: dict) -> str | None:
    """Return why the times are not those of runs of the two sides, or the ratio does not follow from them, or None."""
    medians, runs = {}, answer["runs"]
    for name in ("plain", "folded"):
        seconds, claim = answer[name]["seconds"], [answer[name]["level"], sorted(answer[name]["disabled"])]
        if claim not in answer[name]["built"]:
            others = " and ".join(_build_text(*way) for way in answer[name]["built"]) or "not at all"
            return f"The side {name!r} says that it is built {_build_text(*claim)}. Your function builds it {others}."
        if len(seconds) < RUNS or not all(isinstance(s, float) and 0 < s < math.inf for s in seconds):
            return f"The side {name!r} has {plural(len(seconds), 'time')}; at least {RUNS} are needed, all above 0."
        if len(set(seconds)) == 1:
            return f"The side {name!r} has one time, {len(seconds)} times over; give the time of each run."
        medians[name] = statistics.median(seconds)
    reported = sum(len(answer[name]["seconds"]) for name in medians)
    if len(runs) < reported:
        return f"You report {reported} times, but your function ran the modules {len(runs)} times on the input given."
    least, most = min(run[0] for run in runs), max(run[1] for run in runs)
    for name, median in medians.items():
        if not 0.9 * least <= median <= 1.1 * most + HICCUP:
            return (
                f"The median of the side {name!r} is {duration(median)}, but the runs of your function took between "
                f"{duration(least)} and {duration(most)}."
            )
    ratio = medians["plain"] / medians["folded"]
    if math.isclose(ratio, answer["ratio"], rel_tol=1e-3):
        return None
    return f"The medians of your times give a ratio of {ratio:.3f}; yours is {answer['ratio']:.3f}."


def _build_text(level: int, disabled: list[str]) -> str:
    return f"at level {level} with {', '.join(disabled) or 'nothing'} disabled"


_cache: dict[tuple, Built] = {}


def _built(side: dict, inputs: list[tuple]) -> Built:
    """Build a side and run it on the inputs. Earlier builds are reused."""
    module = packed(side["module"])
    data = b"".join(array.tobytes() for arrays in inputs for array in arrays)
    key = (module.text, side["level"], tuple(sorted(side["disabled"])), data)
    if key not in _cache:
        built = builds.run_module(module, inputs, level=side["level"], disabled=side["disabled"])
        if not built.ok:
            return built
        if len(_cache) == 16:
            _cache.clear()
        _cache[key] = built
    return _cache[key]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    before, x = case.build()
    if broken := _unfit(before, value):
        yield Finding("valid", False, broken, before=before)
        return
    yield Finding("valid", True)
    after = value["folded"]["module"]

    def finding(verdict: str, sentence: str | None) -> Finding:
        return Finding(verdict, sentence is None, sentence or "", before=before, after=after)

    yield finding("spared", _unlike(before, value))
    inputs = [(x.numpy(),), *random_inputs(before, own_seed(1), ("ordinary",))]
    plain, folded = _built(value["plain"], inputs), _built(value["folded"], inputs)
    for name, built in (("plain", plain), ("folded", folded)):
        if not built.ok:
            off = ", ".join(value[name]["disabled"]) or "nothing"
            yield finding("did", f"With {off} disabled, the side {name!r} does not build or run: {built.error}")
            return
    norms = sum("batch_norm" in kernel for kernel in plain.kernels)
    present = counts(before)["nn.batch_norm"]
    unkept = (
        f"The plain side runs {norms} kernels of batch_norm, but the module has {present}: TVM decomposed the others "
        "during the build. Then both sides are folded, and the ratio compares a module with itself."
        if norms < present
        else None
    )
    yield finding("did", unkept or _unfolded(after, case.expect) or _unmeasured(value))
    yield finding("same", _difference(before, plain, folded))
    yield _saved(plain, folded, before, after)


def _difference(before: tvm.IRModule, plain: Built, folded: Built) -> str | None:
    """Return where the outputs of the two sides differ, or None."""
    allowed = Tolerance.of(torch.float32, counts(before).total())
    for old, new in zip(plain.outputs, folded.outputs, strict=True):
        differences = compare([as_torch(array) for array in old], [as_torch(array) for array in new], allowed)
        if differences:
            return f"The two sides compute different things: {differences[0].sentence}."
    return None


def _saved(plain: Built, folded: Built, before: tvm.IRModule, after: tvm.IRModule) -> Finding:
    """Judge the number of kernels, which is deterministic, as time is not."""
    few, unfolded = len(folded.kernels), len(plain.kernels)
    message = f"The folded side launches {few} kernels, the plain one {unfolded}."
    return Finding("cost", few < unfolded, message, before=before, after=after)


def norm(x: relay.Expr, channels: int, seed: int = 0) -> relay.Expr:
    """Return a batch norm with random statistics."""
    rng = np.random.default_rng(seed)
    stats = [relay.const(rng.uniform(0.5, 1.5, channels).astype("float32")) for _ in range(4)]
    return relay.nn.batch_norm(x, *stats)[0]


def conv(x: relay.Expr, inputs: int, outputs: int, seed: int = 0, **settings: Any) -> relay.Expr:
    """Return a convolution that keeps the size of its image."""
    kernel = weight(outputs, inputs // settings.get("groups", 1), 3, 3, seed=seed)
    return relay.nn.conv2d(x, kernel, channels=outputs, kernel_size=(3, 3), padding=(1, 1), **settings)


def network(name: str, body: Callable, *shape: int, **limits: int) -> Case:
    """Return a case of a network with one image as input. `limits`: how many of each operator folding may leave."""
    build = program(body, shape)

    def arguments() -> tuple:
        image = np.random.default_rng(7).standard_normal(shape).astype("float32")
        return build(), torch.from_numpy(image)

    none = {"nn.batch_norm": 0, "sqrt": 0, "rsqrt": 0, "divide": 0, "negative": 0, "expand_dims": 0}
    return Case(name, arguments, expect={**none, "multiply": 0, **limits})


def cases() -> list[Case]:
    def block(x: relay.Var) -> relay.Expr:
        return relay.nn.relu(norm(conv(x, 3, 4), 4))

    return [network("conv, batch norm, relu", block, 1, 3, 8, 8, add=1)]
