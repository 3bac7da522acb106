"""Measure modules of Relay and Relax: kernels launched, bytes moved, memory allocated, and a way to time them.

    launches(module, x)                     # 4 launches on llvm: conv2d, relu ×2, dense
    bytes_moved(module)                     # read + written, from types
    allocations(module), allocations(module, planned=True)
    timed({"torch": model, "TVM": runner(module)}, x)

`passlab.launches`, `bytes_moved` and `cost` call these functions for modules. `passlab.tvm.builds` counts launches, in
another process; bytes follow from the types of the module as it is.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from passlab.graph import Cost, Measured
from passlab.judge.words import plural
from passlab.tvm import builds
from passlab.tvm.dialect import current_dialect, own
from passlab.tvm.executors import itemsize
from passlab.tvm.inputs import random_inputs
from passlab.tvm.modules import counts, functions, type_of, typed


def launches(module: Any, *inputs: Any, target: str = "llvm", **run: Any) -> Measured:
    """Return the number of kernels that one run of the built module starts. `.detail` has the count by name.

    run: for builds.run_module. TVM's default pipeline fuses first: `pipeline="none"` (Relax) counts the module's own
    calls, `level=0` (Relay) fuses nothing. Without inputs, random ones. Raises ValueError for a module that does not
    build or run. The number is reported by the process that ran the module, which the module could falsify.
    """
    names = _kernels("launches", module, inputs, target, run)
    return Measured(len(names), "launches", target, collections.Counter(names))


def kernels(module: Any, *inputs: Any, target: str = "llvm", **run: Any) -> tuple[str, ...]:
    """Return the names of the kernels that one run starts, in order. Arguments and errors as for `launches`."""
    return _kernels("kernels", module, inputs, target, run)


def _kernels(name: str, module: Any, inputs: tuple, target: str, run: dict) -> tuple[str, ...]:
    built = builds.run_module(module, [inputs or random_inputs(module, kinds=("ordinary",))[0]], target=target, **run)
    if not built.ok:
        raise ValueError(f"{name}: the module does not run on {target}: {built.error}")
    return built.kernels


def cost(module: Any, *inputs: Any, **run: Any) -> Cost:
    """Return the cost: operator calls in the module, `launches` of its build, `bytes_moved` by it as it is."""
    return Cost(counts(module).total(), int(launches(module, *inputs, **run)), int(bytes_moved(module)))


# ---------------------------------------------------------------------------------------------------- bytes


def bytes_moved(module: Any, *inputs: Any) -> Measured:
    """Return the bytes that `main` reads and writes.

    The model: each kernel reads each of its operands (weights too) from memory once, and writes its result there once.
    A kernel is a call of an operator, of a primitive function (made by FuseOps) or of a PrimFunc; the numbers follow
    from types alone. Tuples and pure changes of shape (reshape, squeeze, expand_dims) are free. Both sides of a branch
    count. `.detail` has the bytes by node of `passlab.view(module)`. Raises ValueError for a symbolic shape.
    """
    moved: dict[str, int] = {}
    key = current_dialect().key
    for id, operands, results in kernels_of(module):
        moved[id] = moved.get(id, 0) + sum(map(nbytes, {key(e): type_of(e) for e in operands}.values()))
        moved[id] += sum(map(nbytes, results))
    return Measured(sum(moved.values()), "bytes moved", detail=moved)


class Kernel(NamedTuple):
    """A kernel of `main`: the id of its node in the view, the expressions it reads, the types it writes."""

    id: str
    operands: list[Any]
    results: list[Any]


def kernels_of(module: Any) -> Iterator[Kernel]:
    """Yield the kernels of `main` of a module as it is. Raises ValueError for a module without `main`."""
    module = typed(module)
    inside = functions(module)
    if "main" not in inside:
        raise ValueError("bytes_moved expects a module with a function main of Relay or Relax.")
    yield from own("measure").traffic(module, inside["main"], "")


def fields(expr: Any) -> Iterator[Any]:
    """Yield the tensors of an operand: the fields of a literal tuple, else itself."""
    if isinstance(expr, current_dialect().Tuple):
        for field in expr.fields:
            yield from fields(field)
    else:
        yield expr


def nbytes(type_: Any) -> int:
    """Return the bytes of a tensor type, or of all tensors of a tuple. Raises ValueError for a symbolic shape."""
    if hasattr(type_, "fields"):
        return sum(map(nbytes, type_.fields))
    shape = getattr(type_, "shape", None)
    sizes = None if shape is None else [getattr(d, "value", None) for d in shape]
    if sizes is None or None in sizes:
        raise ValueError(
            f"bytes_moved: the size of {type_} is not known. Bind its symbolic dimensions to numbers first."
        )
    return math.prod(sizes) * itemsize(type_.dtype)


# ---------------------------------------------------------------------------------------------------- memory


@dataclass(frozen=True)
class Allocations:
    """The number of buffers that one run of `main` allocates for its results, and their bytes together."""

    count: int
    bytes: int

    def __repr__(self) -> str:
        return f"{self.count} allocations, {self.bytes:,} bytes"


def allocations(module: Any, planned: bool = False) -> Allocations:
    """Return what `main` allocates: one buffer for each result, or fewer after TVM's static memory planning.

    The kernels are those of the module as it is (fuse it first to see the effect); inputs, weights and reshapes do
    not count. Relax: legalized and lowered to explicit allocations, in this process (`StaticPlanBlockMemory` plans).
    Relay: the graph executor's plan for the module built at level 0, in another process; raises ValueError where it
    cannot be built. All branches count.
    """
    return own("measure").allocations(module, planned)


# ---------------------------------------------------------------------------------------------------- time


def runner(
    module: Any, *inputs: Any, target: str = "llvm", pipeline: Any = None, level: int = 3
) -> Callable[..., list[Any]]:
    """Return the module, built in this process, as a function for `timed`: Relay's graph executor or Relax's VM.

    `runner(module)(x)` waits for the outputs and returns a list of TVM's tensors. Inputs are copied only when they
    differ from those of the previous call, so that `timed` measures runs and not copies; `runner(module, x)()` sets
    them at the start. pipeline: Relax's passes (None: TVM's default for the target); level: Relay's opt_level.

    The module's code runs in this process: use it only for modules you trust. Raises what TVM raises.
    """
    built = own("executors").runner(module, target, pipeline, level)
    last: list[Any] = []

    def run(*arguments: Any) -> list[Any]:
        if arguments and not (
            len(last) == len(arguments) and all(a is b for a, b in zip(last, arguments, strict=True))
        ):
            built.give([_array(x) for x in arguments])
            last[:] = arguments
        if not last and built.inputs:
            number = plural(built.inputs, "input")
            raise ValueError(f"The module takes {number}; got {len(arguments)}: call runner(module)(x).")
        return built.run()

    if inputs:
        run(*inputs)
    return run


def _array(x: Any) -> np.ndarray:
    return x.detach().cpu().contiguous().numpy() if isinstance(x, torch.Tensor) else np.ascontiguousarray(x)
