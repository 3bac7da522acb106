"""Build and run modules of Relay and Relax in another process, because TVM may end the one it runs in.

    from passlab.tvm.builds import run_module
    built = run_module(module, [(x,)])         # built once, run on each tuple of inputs
    built.outputs[0][0], built.kernels, built.error

See `passlab.building` for that process. A module of either TVM can be built, whichever this process holds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from passlab.building import requests
from passlab.building.arrays import array_of, spec
from passlab.building.requests import Built
from passlab.tvm.reach import loaded

__all__ = ["Packed", "packed", "run_module", "targets"]

PIPELINES = (None, "none")
#: Bytes of module and tensors up to which optimizing the code takes longer than running it.
SMALL = 2**20


@dataclass(frozen=True)
class Packed:
    """A module as data, also of the TVM that this process does not hold. `params`: by name, bound when built."""

    flavour: str
    text: str
    params: Mapping[str, np.ndarray] | None = None


def packed(module: Any, params: Mapping[str, Any] | None = None) -> Packed:
    """Return a module or function as data. Raises TypeError for anything else."""
    if isinstance(module, Packed):
        return module
    tvm = sys.modules.get("tvm")
    if tvm is None or not isinstance(module, tvm.IRModule | tvm.ir.BaseFunc):
        raise TypeError(f"run_module expects an IRModule or a function of TVM; got {type(module).__name__}.")
    if not isinstance(module, tvm.IRModule):
        module = tvm.IRModule.from_expr(module)
    return Packed(loaded(), tvm.ir.save_json(module), {name: array_of(value) for name, value in (params or {}).items()})


def run_module(
    module: Any,
    inputs: Iterable[Sequence[Any]],
    *,
    target: str = "llvm",
    function: str = "main",
    pipeline: str | None = None,
    level: int = 3,
    disabled: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    repeats: int = 0,
    timed: bool = False,
    beside: Sequence[Any] = (),
    threads: int = 0,
    seconds: float = 60.0,
) -> Built:
    """Build a module once and run it on each tuple of inputs (NumPy arrays, torch tensors or numbers).

    level, disabled, config: of the PassContext for the build. pipeline (Relax): None is TVM's default for the target,
    "none" only lowers operators to loops (nothing is folded or fused). params: values for parameters, by name. repeats:
    number of further runs, on the first inputs and warm, that the clock times. timed: measure the runs on the inputs
    instead, for a verdict that depends on it; see below. threads: per kernel, 0 for one per core. seconds: limit for
    everything, once TVM is loaded.

    Where `timed`, `times[i]` is the CPU time that all threads of the module's process spent on the run that computed
    `outputs[i]`, as the operating system counts it: other programs do not add to it, and a second core does not shorten
    it. Copies are not included. Pass different inputs for each run and compare all outputs, so that a kernel gains
    nothing from skipping repeated work. beside: modules of the same signature to compare with, built by TVM's default
    pipeline. Each has a process of its own and runs right after each timed run, on the same inputs, so that
    `beside[k].times[i]` and `times[i]` are measured under the same load. (Another program on the core can halve the
    speed from one second to the next.)

    A module of TIR alone is called with the inputs and a buffer for each remaining parameter, which is an output.
    Raises ValueError for another pipeline or for `beside` without `timed`, and Unreachable where that TVM cannot be
    used on this machine.
    """
    if pipeline not in PIPELINES:
        raise ValueError(f"No pipeline {pipeline!r}: pass None for TVM's default, or 'none' to legalize only.")
    if beside and not timed:
        raise ValueError("beside=… compares times, but no run is timed: also pass timed=True, or omit beside.")
    module, others = packed(module, params), [packed(other).text.encode() for other in beside]
    bound = {name: array_of(value) for name, value in {**(module.params or {}), **(params or {})}.items()}
    batches = [[array_of(value) for value in values] for values in inputs]
    text = module.text.encode()
    size = len(text) + sum(array.nbytes for array in [*bound.values(), *(a for arrays in batches for a in arrays)])
    head = {
        "do": "run",
        "text": len(text),
        "params": {name: spec(array) for name, array in bound.items()},
        "inputs": [[spec(array) for array in arrays] for arrays in batches],
        "target": target,
        "function": function,
        "pipeline": pipeline,
        "level": level,
        "disabled": list(disabled),
        "config": dict(config or {}),
        "repeats": repeats,
        "timed": timed,
        "beside": [len(other) for other in others],
        "threads": threads,
        "optimize": bool(repeats) or timed or size > SMALL,
    }
    parts = [text, *others, *bound.values(), *(a for arrays in batches for a in arrays)]
    return requests.ask(module.flavour, head, parts, seconds)


def targets(flavour: str | None = None) -> tuple[str, ...]:
    """Return the targets that modules can be built for and run on here: ("llvm",), or ("llvm", "cuda").

    flavour: which TVM; default, the one that this process holds, else Relax's.
    """
    return requests.targets(flavour or loaded() or "relax")
