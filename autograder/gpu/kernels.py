"""Generated Triton kernels against eager torch: every function, type, shape, stride and edge value.

Each kernel computes several results of two inputs. The inputs hold NaN, infinities, both zeros, subnormals and the
largest numbers of their type among ordinary ones. On a GPU Triton compiles the kernels; without one its interpreter
runs the same source.
"""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from autograder.bench.figures import Figure, not_measured
from autograder.gpu.job import Job, each
from autograder.gpu.machine import compiler
from passlab.equivalence.values import Tolerance, compare

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
NUMBERS, ALL = FLOATS + WHOLE, (*FLOATS, *WHOLE, torch.bool)


# ------------------------------------------------------------------------------------------------ what is computed


# All results of a kernel lie in memory alike, so each is made of both inputs, and of x first.


def _chain(x: Tensor, y: Tensor) -> tuple:
    return torch.relu(x * 1.5 + 0.25) * 0.75 + 0.5 + y, torch.relu(x * y + 1) - y


def _arithmetic(x: Tensor, y: Tensor) -> tuple:
    return x + y, x - y, x * y, -x - y, x.abs() + y.abs(), x * 2 + y, 1 - x * y, x * x - y * y


def _division(x: Tensor, y: Tensor) -> tuple:
    return x / y, 1 / x - y, x / 3 - y, x * y.reciprocal()


def _order(x: Tensor, y: Tensor) -> tuple:
    return torch.maximum(x, y), torch.minimum(x, y), torch.where(x > y, x, y), x == y, x != y, x < y, x <= y, x >= y


def _limits(x: Tensor, y: Tensor) -> tuple:
    return torch.relu(x) + y, x.clamp(0, 2) + y, x + F.relu6(y), (x + y).clamp_min(1)


def _library(x: Tensor, y: Tensor) -> tuple:
    y = y.clamp(-20, 20)
    waves = torch.sin(x.clamp(-50, 50)) + y, torch.cos(x.clamp(-50, 50)) + y
    roots = x.abs().sqrt() + y, x.abs().rsqrt() + y
    return x.exp() + y, torch.exp2(x) + y, x.abs().log() + y, x.abs().log2() + y, torch.erf(x) + y, *roots, *waves


def _activations(x: Tensor, y: Tensor) -> tuple:
    x = x.clamp(-50, 50)
    return x.sigmoid() * y, F.silu(x) + y, torch.tanh(x) + y, F.gelu(x) + y, F.leaky_relu(x) * y


def _rounding(x: Tensor, y: Tensor) -> tuple:
    return x.floor() + y, x.ceil() - y


def _casts(x: Tensor, y: Tensor) -> tuple:
    both = torch.where(x == y, x, y)
    return both.float(), both.double(), both.half(), both.bool()


def _to_bfloat16(x: Tensor, y: Tensor) -> tuple:
    return (torch.where(x == y, x, y).bfloat16(),)


def _promotion(x: Tensor, y: Tensor) -> tuple:
    return x + y.float(), x * y.float() - 0.5, torch.where(x > 1, x, y.float())


def _logic(x: Tensor, y: Tensor) -> tuple:
    return x & y, x | y, x ^ y, ~x | y


#: Function → (types of its inputs, how many units in the last place it may be off).
#: Triton takes exp(x) for 2**(x·log2 e), whose error grows with x.
FUNCTIONS: dict[str, tuple[Callable, tuple, int]] = {
    "chain": (_chain, FLOATS, 8),
    "arithmetic": (_arithmetic, NUMBERS, 4),
    "division": (_division, FLOATS, 4),
    "order": (_order, ALL, 0),
    "limits": (_limits, NUMBERS, 4),
    "library": (_library, FLOATS, 128),
    "activations": (_activations, FLOATS, 128),
    "rounding": (_rounding, FLOATS, 4),
    "casts": (_casts, ALL, 1),
    "casts to bfloat16": (_to_bfloat16, ALL, 1),
    "promotion": (_promotion, ALL, 4),
    "logic": (_logic, (*WHOLE, torch.bool), 0),
}


def beyond_the_interpreter(function: str, dtype: torch.dtype) -> str:
    """Return what of these kernels Triton's interpreter cannot do, or ""."""
    if dtype == torch.bfloat16 or function == "casts to bfloat16":
        return "bfloat16: it truncates, takes subnormal numbers for 0, and makes no bfloat16 of integers"
    if (function, dtype) == ("logic", torch.uint8):
        return "~ of uint8: it overflows"
    return ""


# ------------------------------------------------------------------------------------------------ on what


def edges(dtype: torch.dtype) -> list:
    if dtype == torch.bool:
        return [True, False]
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return [0, 1, limits.max, limits.min, 2, limits.max - 1, 3]
    info = torch.finfo(dtype)
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0, info.max, info.min, info.tiny, -info.tiny, info.tiny / 4]
    return [*special, 1.0, -1.0, 0.5, info.eps, 3.0, -2.5]


def values(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    """Return a tensor whose every other element is an edge value."""
    draw = torch.Generator().manual_seed(seed)
    count, special = math.prod(shape), edges(dtype)
    ordinary = (torch.randn(count, generator=draw) * 3).to(dtype)
    at = torch.arange(0, count, 2)
    chosen = torch.tensor(special, dtype=torch.float64 if dtype.is_floating_point else torch.int64)
    ordinary[at] = chosen[(at // 2 * (2 * seed + 1) + seed) % len(special)].to(dtype)
    return ordinary.reshape(shape)


Pair = tuple[Tensor, Tensor]

#: Shapes, from an empty one to some that do not fill a block of the kernel.
SHAPES: dict[str, Callable[[torch.dtype], Pair]] = {
    "no dimensions": lambda t: (values(t), values(t, seed=1)),
    "one element": lambda t: (values(t, 1), values(t, 1, seed=1)),
    "no elements": lambda t: (values(t, 0, 5), values(t, 5, seed=1)),
    "1023 elements": lambda t: (values(t, 1023), values(t, 1023, seed=1)),
    "1024 elements": lambda t: (values(t, 1024), values(t, 1024, seed=1)),
    "1025 elements": lambda t: (values(t, 1025), values(t, 1025, seed=1)),
    "a matrix": lambda t: (values(t, 13, 77), values(t, 13, 77, seed=1)),
    "a row stretched": lambda t: (values(t, 7, 33), values(t, 33, seed=1)),
    "a column stretched": lambda t: (values(t, 7, 33), values(t, 7, 1, seed=1)),
    "both stretched": lambda t: (values(t, 9, 1, 16), values(t, 5, 1, seed=1)),
    "a number for all": lambda t: (values(t, 5, 9), values(t, seed=1)),
}
#: Strides: the layouts of day 5. A kernel reads its inputs where they are, without a copy.
STRIDES: dict[str, Callable[[torch.dtype], Pair]] = {
    "both transposed": lambda t: (values(t, 40, 52).t(), values(t, 40, 52, seed=1).t()),
    "one transposed": lambda t: (values(t, 40, 52).t(), values(t, 52, 40, seed=1)),
    "every second row": lambda t: (values(t, 40, 52)[::2], values(t, 40, 52, seed=1)[1::2]),
    "every second column": lambda t: (values(t, 40, 52)[:, ::2], values(t, 40, 26, seed=1)),
    "one element off": lambda t: (values(t, 1001)[1:], values(t, 1001, seed=1)[:-1]),
    "one row for all": lambda t: (values(t, 40, 52)[:1].expand(40, 52), values(t, 40, 52, seed=1)),
    "channels last": lambda t: _channels_last(values(t, 2, 8, 5, 6), values(t, 2, 8, 5, 6, seed=1)),
    "axes turned": lambda t: (values(t, 4, 5, 6).permute(2, 0, 1), values(t, 6, 4, 5, seed=1)),
    "a field of records": lambda t: (values(t, 500, 3)[:, 0], values(t, 500, 3, seed=1)[:, 2]),
}


def _channels_last(x: Tensor, y: Tensor) -> Pair:
    return x.to(memory_format=torch.channels_last), y.to(memory_format=torch.channels_last)


# ------------------------------------------------------------------------------------------------ the comparison


def place(tensor: Tensor, device: str) -> Tensor:
    """Return a tensor on a device with its strides, and its distance from the start of its memory."""
    storage = tensor.untyped_storage().to(device=torch.device(device))
    copy = torch.empty(0, dtype=tensor.dtype, device=device)
    return copy.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def compare_kernel(function: str, dtype: str, layout: str, device: str) -> dict[str, Any]:
    """Return how a kernel's results differ from torch's: {"wrong": a sentence or "", "refused": …, "error": ulps}."""
    from passlab.kernels import Kernel, Unsupported

    call, _, most = FUNCTIONS[function]
    row = {"function": function, "dtype": dtype, "layout": layout, "wrong": "", "refused": "", "error": 0.0}
    x, y = (place(t, device) for t in (SHAPES | STRIDES)[layout](getattr(torch, dtype)))
    expected = call(x, y)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of the interpreter: a division by zero is wanted here
            output = Kernel(torch.fx.symbolic_trace(call), backend="triton")(x, y)
    except Unsupported as error:
        return row | {"refused": str(error)}
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return row | {"wrong": f"it does not run: {type(error).__name__}: {lines[0][:200]} … {lines[-1][:200]}"}
    for at, (want, actual) in enumerate(zip(expected, output, strict=True)):
        eps = torch.finfo(want.dtype).eps if want.is_floating_point() else 0.0
        # In 16 bits one unit hides all errors of the float32 inside.
        units = most if eps < 1e-6 else min(most, 8)
        if differences := compare(want, actual, Tolerance(units * eps, None, sums=False), f"result {at}"):
            text = differences[0].sentence.replace(" before and ", " in torch and ").replace(" after", " in the kernel")
            return row | {"wrong": text}
        if eps and want.numel():
            off = (want.double() - actual.double()).abs() / (want.double().abs().clamp_min(1) * eps)
            row["error"] = max(row["error"], float(off.nan_to_num(0, 0, 0).max()))
    return row


def table(job: Job) -> tuple[list[tuple[str, str, str, str]], Counter[str]]:
    """Return the checks (function, type, layout, device), and how many there cannot be, by reason."""
    every, without = [], Counter()
    for function, (_, dtypes, _) in FUNCTIONS.items():
        for dtype in dtypes:
            layouts, name = (*SHAPES, *STRIDES), str(dtype).removeprefix("torch.")
            if job.interpret and (reason := beyond_the_interpreter(function, dtype)):
                without[reason] += len(layouts)
            else:
                every += [(function, name, layout, job.device) for layout in layouts]
    random.Random(job.seed).shuffle(every)  # where time runs out, what was reached is a fair sample
    return every[: job.sample] if job.sample else every, without


def kernels(job: Job) -> Iterator[Figure | str]:
    """Compare every kernel of the table with eager torch."""
    if importlib.util.find_spec("triton") is None:
        yield not_measured("Triton kernels", "the package triton is missing here")
        return
    if not (job.interpret or compiler()):
        yield not_measured("Triton kernels", "there is no C compiler, which Triton needs: install gcc, or set CC")
        return
    every, without = table(job)
    yield f"{len(every)} kernels"
    rows = defaultdict(list)
    stops = replace(job, until=job.until - 3)  # to tell of what there is
    for row in each(stops, compare_kernel, every):
        if isinstance(row, RuntimeError):
            yield Figure("a kernel's process", str(row), held=False)
        else:
            rows[row["function"]].append(row)
    compared = sum(map(len, rows.values()))
    for function in FUNCTIONS:
        yield from _figures(function, rows[function])
    if compared < len(every):
        yield not_measured(f"{len(every) - compared} of {len(every)} kernels", "the time of this part was over")
    for reason, count in without.items():
        yield not_measured(f"{count} kernels", f"Triton's interpreter cannot do {reason}")
    runner = "Triton's interpreter" if job.interpret else torch.cuda.get_device_name()
    yield Figure("kernels compared", str(compared), f"run by {runner}", value=float(compared))


def _figures(function: str, rows: list[dict]) -> Iterator[Figure]:
    """Yield the figure of a function, and one for each kernel that is wrong."""
    if not rows:
        return
    wrong, refused = [r for r in rows if r["wrong"]], [r for r in rows if r["refused"]]
    types, layouts = {r["dtype"] for r in rows}, {r["layout"] for r in rows}
    about = (
        f"{len(types)} types, {len(layouts)} shapes and strides; largest error {max(r['error'] for r in rows):.3g} ulp"
    )
    if refused:
        about += f"; {len(refused)} refused: {refused[0]['refused']}"
    good = len(rows) - len(wrong) - len(refused)
    yield Figure(f"{function}: as eager torch", f"{good} of {len(rows)}", about, "all", not wrong, float(good))
    for r in wrong[:5]:
        yield Figure(f"{function}, {r['dtype']}, {r['layout']}", f"wrong: {r['wrong']}", held=False)
