"""Run MLIR: tensor programs by IREE, loops on buffers as C, and either by xDSL's interpreter.

    (y,) = run(module, x)                        # by IREE, or as C where there are buffers
    run(module, x, by="interpreter")             # slow: one element at a time, in Python
    seconds(module, x)                           # of single runs, warm

A module runs in another process, which it may end (`passlab.building`): a crash, an endless loop or too much memory
is an error. Its compiled code is kept in this process, so that the second run of the same text takes milliseconds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from passlab.building.arrays import spec
from passlab.building.requests import Built, ask
from passlab.judge.words import plural
from passlab.mlir import modules
from passlab.mlir.executors import DTYPES
from passlab.mlir.modules import MLIRError, from_iree, generic, is_iree, name_of, printed_lines

WAYS = ("iree", "c", "interpreter")
#: Operations that only C can run.
_LOOPS = re.compile(r"memref\.|affine\.(for|if|load|store|parallel)$")
#: How many bytes of compiled code are kept.
_MOST_CACHED = 64 * 2**20
_cache: dict[str, np.ndarray] = {}


def run(
    module: Any, *arrays: Any, function: str = "main", by: str | None = None, checks: bool = True, seconds: float = 60.0
) -> list[np.ndarray]:
    """Return what a function of the module returns for these arrays and numbers, which it does not change.

    A function without results returns its buffers (memrefs), as it leaves them. by: "iree", "c" or "interpreter".
    checks (C): stop at an access outside of a buffer, or to one that was freed. seconds: limit for all of it.

    Raises MLIRError: arrays that do not fit the function, an operation that cannot be lowered, a crash, or the time.
    """
    (results,) = run_all(module, [arrays], function=function, by=by, checks=checks, seconds=seconds)
    return results


def run_all(module: Any, inputs: Iterable[Sequence[Any]], **options: Any) -> list[list[np.ndarray]]:
    """Return the results for each tuple of inputs: the module is built once. Raises MLIRError. See `run`."""
    built = run_module(module, inputs, **options)
    if built.error:
        raise MLIRError(built.error)
    return built.outputs


def seconds(module: Any, *arrays: Any, repeats: int = 5, checks: bool = False, **options: Any) -> list[float]:
    """Return the seconds that each of `repeats` runs takes by the clock, warm and on one thread.

    A buffer that the function writes keeps what the run before left in it. Raises MLIRError. See `run`.
    """
    built = run_module(module, [arrays], repeats=repeats, checks=checks, **options)
    if built.error:
        raise MLIRError(built.error)
    return list(built.times)


def run_module(
    module: Any,
    inputs: Iterable[Sequence[Any]],
    *,
    function: str = "main",
    by: str | None = None,
    checks: bool = True,
    repeats: int = 0,
    timed: bool = False,
    seconds: float = 60.0,
) -> Built:
    """Return the results as `passlab.building.requests.Built`, with `error` and its `stage` where it fails.

    timed: `times[i]` is the CPU time of the run on the i-th inputs. Raises MLIRError for inputs that do not fit.
    """
    module = from_iree(module) if is_iree(module) else module
    types, results = _signature(module, function)
    by = by or ("c" if _has_loops(module) else "iree")
    if by not in WAYS:
        raise MLIRError(f"A module does not run by {by!r}; choose one of {', '.join(WAYS)}.")
    arguments = [_arguments(function, types, arrays) for arrays in inputs]
    text = generic(module)
    key = f"{by} {function} {checks} {hashlib.sha256(text.encode()).hexdigest()}"
    code, keep = _cache.get(key), by != "interpreter"
    params = {"code": code} if code is not None else {}
    payload = b"" if params else text.encode()
    head = {
        "do": "run",
        "text": len(payload),
        "params": {name: spec(array) for name, array in params.items()},
        "inputs": [[spec(array) for array in arrays] for arrays in arguments],
        "target": "llvm",
        "by": by,
        "function": function,
        "arguments": [kind for kind, _, _ in types],
        "results": [dtype for _, dtype, _ in results],
        "checks": checks,
        "keep": keep and not params and bool(arguments),
        "repeats": repeats,
        "timed": timed,
        "beside": [],
        "threads": 0,
    }
    built = ask("mlir", head, [payload, *params.values(), *(a for arrays in arguments for a in arrays)], seconds)
    if built.ok and head["keep"]:
        _keep(key, built.outputs[0].pop())
    return replace(built, error=with_places(module, built.error))


def _keep(known: str, code: np.ndarray) -> None:
    _cache[known] = code
    while sum(array.nbytes for array in _cache.values()) > _MOST_CACHED:
        del _cache[next(iter(_cache))]


def with_places(module: Any, error: str) -> str:
    """Return an error with each place in it as a line of `text(module)`: the builder knows the generic text only."""

    def place(match: re.Match) -> str:
        number = int(match[2])
        printed, lines = printed_lines(module, True)
        ops = [op for line, op in lines if line <= number][-1:] if match[1] == "line" else list(module.walk())[number:]
        printed, lines = printed_lines(module, False)
        at = next((line for line, op in lines if ops and op is ops[0]), 0)
        return f"(line {at}, `{printed.splitlines()[at - 1].strip()[:120]}`)" if at else ""

    return re.sub(r"⟨(line|op) (\d{1,6})⟩", place, error)


# ---------------------------------------------------------------------------------------------------- confinement


def confine() -> None:
    """Run MLIR's own code (its parser, verifier and passes) in another process only, from now on.

    For a process that judges untrusted modules: C++ may crash on them.
    """
    modules.elsewhere = passes


def why_not_parsed(text: str, seconds: float = 20.0) -> str:
    """Return why another process, which may have read others, cannot parse a text and print it again, or ""."""
    return _ask(text, [], strict=True, verified=False, seconds=seconds, again=True).error


def passes(text: str, steps: Sequence[str]) -> list[str]:
    """Return the text after each pass, from another process. Raises MLIRError."""
    built = _ask(text, steps, strict=False, verified=True, seconds=60.0)
    if built.error:
        raise MLIRError(built.error)
    return [array.tobytes().decode() for array in built.outputs[0]]


def _ask(
    text: str, steps: Sequence[str], *, strict: bool, verified: bool, seconds: float, again: bool = False
) -> Built:
    head = {"do": "run", "text": len(text.encode()), "params": {}, "inputs": [[]], "target": "llvm", "by": "passes"}
    head |= {"steps": list(steps), "strict": strict, "verified": verified, "keep": False}
    head |= {"repeats": 0, "timed": False, "beside": [], "threads": 0, "again": again}
    return ask("mlir", head, [text.encode()], seconds)


#: "tensor", "memref" or "scalar"; NumPy's dtype; the sizes, negative where unknown.
_Type = tuple[str, str, tuple[int, ...]]


def _signature(module: Any, function: str) -> tuple[list[_Type], list[_Type]]:
    """Return the types of a function's arguments and results. Raises MLIRError."""
    ops = getattr(module, "ops", None)
    if ops is None:
        raise MLIRError(f"run takes a module of MLIR; got {type(module).__name__}.")
    by_name = {op.sym_name.data: op for op in ops if name_of(op) == "func.func"}
    if function not in by_name:
        raise MLIRError(
            f"The module has no function @{function}; it has {', '.join(map('@'.__add__, by_name)) or 'none'}."
        )
    signature = by_name[function].function_type
    return [_type(function, t) for t in signature.inputs], [_type(function, t) for t in signature.outputs]


def _type(function: str, type_: Any) -> _Type:
    element = getattr(type_, "element_type", type_)
    kind = {"tensor": "tensor", "memref": "memref"}.get(type_.name, "scalar" if element is type_ else "")
    if not kind or str(element) not in DTYPES:
        raise MLIRError(
            f"@{function} takes or returns {type_}, which has no NumPy array: use tensors, memrefs or numbers of "
            f"{', '.join(DTYPES)}."
        )
    return kind, DTYPES[str(element)], tuple(type_.get_shape()) if kind != "scalar" else ()


def _arguments(function: str, types: list[_Type], arrays: Sequence[Any]) -> list[np.ndarray]:
    """Return the arrays as the function takes them. Raises MLIRError where they do not fit."""
    if len(arrays) != len(types):
        raise MLIRError(f"@{function} takes {plural(len(types), 'argument')}; got {len(arrays)}.")
    values = []
    for at, ((kind, dtype, shape), value) in enumerate(zip(types, arrays, strict=True), 1):
        value = value.detach().cpu().numpy() if hasattr(value, "detach") else value
        number = isinstance(value, bool | int | float)
        array = np.asarray(value, dtype) if number else np.asarray(value)
        fits = array.ndim == len(shape) and all(n < 0 or n == m for n, m in zip(shape, array.shape, strict=True))
        if array.dtype.name != dtype or not fits:
            expected, actual = _type_text(dtype, shape), _type_text(array.dtype.name, array.shape)
            raise MLIRError(f"Argument {at} of @{function} is a {kind} of {expected}; got {actual}.")
        values.append(np.ascontiguousarray(array) if array.ndim else array)
    return values


def _type_text(dtype: str, shape: Sequence[int]) -> str:
    return f"{'×'.join('?' if n < 0 else str(n) for n in shape)} {dtype}".strip()


def _has_loops(module: Any) -> bool:
    """Return whether only C can run the module: where it has buffers."""
    for op in module.walk():
        if _LOOPS.match(name_of(op)):
            return True
        if name_of(op) == "func.func" and any(type_.name == "memref" for type_ in op.function_type.inputs):
            return True
    return False
