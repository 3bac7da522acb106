"""Compare two MLIR modules, or a module and a torch model, by running them on inputs that tell them apart.

    result = equivalent_modules(before, after)         # also passlab.equivalent(before, after)
    assert result, result.reason

Tensors and buffers compare alike: a module may be bufferized, or lowered to loops, and still be the same function. The
inputs are normal numbers, a ramp, edge values (0, -0, denormals, huge ones), inf and NaN; unknown dimensions get odd
sizes. The tolerance follows from dtype and depth (`passlab.equivalence.values`).

**Rounding is not meaning.** A difference is set aside where `before` moves as far when its inputs are nudged by a few
units of rounding, and, in modules that add numbers up, where one side is inf or NaN and so is the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from passlab.equivalence import Equivalence, locating
from passlab.equivalence.values import Difference, Errors, Tolerance, beyond_rounding, compare, leaves, nan_or_inf
from passlab.mlir.modules import MLIRError, copy, is_iree, name_of, value_names
from passlab.mlir.reader import as_module, functions, iterators, type_of
from passlab.mlir.run import run_all
from passlab.tvm.inputs import ALL_KINDS, after_example, check_kinds, nudged_inputs, plain, tensor

#: The sizes of unknown dimensions: in the first trials, and in the trial "sizes".
ODD = (5, 7)
#: Modules with more values than this are not searched for the place where they differ.
_MOST_SEARCHED = 80
_PHRASES = {
    "given": "On the given inputs",
    "ordinary": "On random inputs",
    "structured": "On inputs that are a ramp",
    "extreme": "On edge values (0, -0, tiny and huge numbers)",
    "nonfinite": "On inputs with inf and NaN",
    "sizes": "On inputs of another size",
}


def equivalent(
    before: Any,
    after: Any,
    inputs: Any = None,
    *,
    seed: int = 0,
    atol: float | None = None,
    rtol: float | None = None,
    trials: Sequence[str] | None = None,
    **unused: Any,
) -> Equivalence:
    """Carry out `passlab.equivalent` for MLIR: `trials` are `kinds`; modes, devices and aliasing mean nothing here."""
    return equivalent_modules(before, after, inputs, kinds=trials, seed=seed, atol=atol, rtol=rtol)


def equivalent_modules(
    before: Any,
    after: Any,
    inputs: Any = None,
    *,
    kinds: Sequence[str] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
    locate: bool = True,
    **how: Any,
) -> Equivalence:
    """Run `main` of both on the same inputs and return whether, and where, they differ.

    before, after   modules of xDSL or IREE, or one of them a torch model (anything callable on tensors).
    inputs          a tuple of arrays or tensors, a list of such tuples, or None: random ones of the types of `main`.
    kinds           inputs to try besides those given: names from `passlab.tvm.inputs.ALL_KINDS`, default all.
    atol, rtol      replace the tolerances that follow from dtype and depth.
    locate          on a difference, find the operation at which two modules differ first.
    how             for `passlab.mlir.run.run_all`: by, seconds.

    `first_diverging` of the result is the id of a node of passlab.view(after). Raises ValueError when there are no
    inputs to try, or `before` itself does not run. A failure of `after` is a result, not an exception.
    """
    sides = [_side(before, "before"), _side(after, "after")]
    pattern = next((side for side in sides if not isinstance(side, _Torch)), None)
    if pattern is None:
        raise ValueError("equivalent: one side must be a module of MLIR.")
    tried = _trials(pattern, inputs, ALL_KINDS if kinds is None else kinds, seed)
    floats = [t.dtype for t in map(tensor, tried[0][1]) if t.is_floating_point()] or [torch.float32]
    coarsest = max(floats, key=lambda dtype: torch.finfo(dtype).eps)
    depth, sums = max(_depth(it) for it in sides), any(_sums(it) for it in sides)
    derived = Tolerance.of(coarsest, depth, sums)
    tolerance = Tolerance(derived.rtol if rtol is None else rtol, atol, sums)
    try:
        expected = _outputs(sides[0], [given for _, given in tried], how)
    except MLIRError as error:
        raise ValueError(f"`before` itself does not run. {error}") from None
    errors, done = Errors(), []

    def differ(reason: str, given: tuple, far: Errors = errors) -> Equivalence:
        found = Equivalence(False, reason, far.mse, far.max_abs, far.max_ulp, trials=tuple(done), devices=("llvm",))
        names = _names(pattern, len(given))
        found.counterexample = dict(zip(names, map(tensor, given), strict=True))
        if not any(isinstance(side, _Torch) for side in sides):
            found.graph, found.graph_after = sides
        return found

    try:
        got = _outputs(sides[1], [given for _, given in tried], how)
    except MLIRError as error:
        return differ(f"`after` does not run. {error}", tried[0][1])
    for (kind, given), old, new in zip(tried, expected, got, strict=True):
        done.append(kind)
        far = errors if kind in ("given", "ordinary", "structured", "sizes") else Errors()
        for found in _differences(sides[0], old, new, given, tolerance, far, how):
            allowed = f"; rounding explains {tolerance.rtol:.1e} of its size" if found.bad is not None else ""
            result = differ(f"{_PHRASES[kind]}, {found.sentence}{allowed}.", given, far)
            if locate and locating() and result.graph is not None:
                with contextlib.suppress(Exception):  # the module cannot be taken apart: the message must do
                    if place := first_parting(*sides, given, tolerance):
                        result.first_diverging, result.reason = place[0], f"{result.reason} {place[1]}"
            return result
    return Equivalence(True, "", errors.mse, errors.max_abs, errors.max_ulp, devices=("llvm",), trials=tuple(done))


class _Torch:
    """A side that torch runs."""

    def __init__(self, model: Callable):
        self.model = model


def _side(value: Any, which: str) -> Any:
    """Return a module as xDSL's, or a torch model in a wrapper. Raises ValueError for anything else."""
    if hasattr(value, "walk") or is_iree(value):
        return as_module(value)
    if callable(value):
        return _Torch(value)
    found = "None: does the pass end with a return?" if value is None else f"a {type(value).__name__}"
    raise ValueError(f"equivalent compares modules of MLIR and torch models; `{which}` is {found}.")


def random_inputs(module: Any, seed: int = 0, kinds: Sequence[str] = ("ordinary",)) -> list[tuple[np.ndarray, ...]]:
    """Return inputs for `main` from the types of its arguments, one tuple of arrays or more for each of `kinds`."""
    return [given for _, given in _trials(as_module(module), None, kinds, seed)]


def _trials(module: Any, inputs: Any, kinds: Sequence[str], seed: int) -> list[tuple[str, tuple]]:
    """Return (kind, inputs) to run on."""
    check_kinds(kinds)
    rest = [kind for kind in kinds if kind != "sizes"]
    if inputs is not None:
        inputs = (inputs,) if isinstance(inputs, Tensor | np.ndarray) else inputs
        several = isinstance(inputs, list) and inputs and all(isinstance(given, tuple) for given in inputs)
        given = inputs if several else [tuple(inputs)]
        example, made = tuple(map(tensor, given[0])), [("given", tuple(plain(tensor(x)) for x in it)) for it in given]
    else:
        example, made = _example(module, seed, ODD[0]), []
        rest = rest or ["ordinary"]
    made += [(kind, tuple(map(plain, it))) for kind, it in after_example(example, seed, rest)]
    if inputs is None and "sizes" in kinds and _unknown(module):
        made.append(("sizes", tuple(map(plain, _example(module, seed + 1, ODD[1])))))
    return made


def _unknown(module: Any) -> bool:
    return any("?" in (type_of(it.type)[0] or ()) for it in _block(module).args)


def _block(module: Any) -> Any:
    if not (found := functions(module)):
        raise ValueError("The module has no function, so there is nothing to run.")
    return next(iter(found.values())).regions[0].blocks[0]


def _example(module: Any, seed: int, odd: int) -> tuple[Tensor, ...]:
    """Return random arguments for `main`; integers are 0 to 3, since they may be indices."""
    gen, made = torch.Generator().manual_seed(seed), []
    for argument in _block(module).args:
        shape, dtype, _ = type_of(argument.type)
        kind = getattr(torch, {"index": "int64"}.get(dtype or "", dtype or ""), None)
        if shape is None or not isinstance(kind, torch.dtype):
            raise ValueError(f"No random inputs for an argument of type {argument.type}: give inputs.")
        shape = tuple(odd if dim == "?" else dim for dim in shape)
        if kind.is_floating_point:
            made.append(torch.randn(shape, generator=gen, dtype=torch.float64).to(kind))
        else:
            made.append(torch.randint(0, 2 if kind == torch.bool else 4, shape, generator=gen).to(kind))
    return tuple(made)


def _names(module: Any, many: int) -> list[str]:
    names = value_names(module)
    known = [names.get(argument, "") for argument in _block(module).args]
    return [known[i] if i < len(known) and known[i] else f"input{i}" for i in range(many)]


def _depth(side: Any) -> int:
    if isinstance(side, _Torch):
        return 16
    return max(1, sum(name_of(op).startswith(("arith.", "math.", "linalg.")) for op in side.walk()))


def _sums(side: Any) -> bool:
    """Return whether a side may add up several numbers: a reduction, a named operation, a loop."""
    if isinstance(side, _Torch):
        return True
    return any(
        "reduction" in iterators(op)
        or name_of(op).startswith(("scf.for", "scf.while", "scf.parallel", "affine.for", "affine.parallel", "cf."))
        or any(word in name_of(op) for word in ("matmul", "matvec", "vecmat", "linalg.dot", "conv", "pool", "reduce"))
        for op in side.walk()
    )


def _outputs(side: Any, inputs: list[tuple], how: dict) -> list[list[Tensor]]:
    """Return the outputs for each tuple of inputs. Raises MLIRError."""
    if isinstance(side, _Torch):
        try:
            with torch.no_grad():
                ran = [side.model(*(tensor(x).clone() for x in given)) for given in inputs]
        except Exception as error:
            raise MLIRError(f"torch: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}") from error
        return [[t.detach() for t in leaves(output) if isinstance(t, Tensor)] for output in ran]
    return [[tensor(array) for array in arrays] for arrays in run_all(side, inputs, **how)]


def _differences(
    before: Any, old: list, new: list, given: tuple, tolerance: Tolerance, errors: Errors, how: dict
) -> list[Difference]:
    """Return the differences of one trial that rounding does not explain."""
    if len(old) != len(new):
        one, other = (f"{len(it)} output{'s' * (len(it) != 1)}" for it in (old, new))
        return [Difference(f"there {'is' if len(old) == 1 else 'are'} {one} before and {other} after")]
    found = compare(old, new, tolerance, "output", errors)
    if not found or any(d.bad is None for d in found):
        return [d for d in found if d.bad is None]
    for d in found if tolerance.sums else ():
        d.bad = d.bad & ~nan_or_inf(old[d.leaf], new[d.leaf])
    moved = _outputs(before, [nudged_inputs(given, sign) for sign in (1, -1)], how)
    return beyond_rounding(found, old, new, moved)


# ---------------------------------------------------------------------------------------------------- where they part


def first_parting(before: Any, after: Any, given: tuple, tolerance: Tolerance) -> tuple[str, str] | None:
    """Return the first operation of `after` whose value no operation of `before` has: its id in the view, a message.

    Otherwise the last operation of `before` whose value `after` does not compute. Values in another order count as
    equal if their shape differs as well. None for modules with buffers, many values, or several blocks.
    """
    old, new = (values(module, given) for module in (before, after))
    known = [*map(tensor, given)]
    for name, op, value in new:
        if not any(_agree(other, value, tolerance) for other in (*(one.tensor for one in old), *known)):
            return name, f"Look at {name} of after, {op}: no operation before has its value."
    for name, op, value in reversed(old):
        if not any(_agree(value, other, tolerance) for other in (*(one.tensor for one in new), *known)):
            return name, f"Look for {name} of before, {op}: no operation after has its value."
    return None


def _agree(one: Tensor, other: Tensor, tolerance: Tolerance) -> bool:
    if one.shape != other.shape and one.numel() == other.numel() and one.dtype == other.dtype:
        one, other = one.flatten().sort()[0], other.flatten().sort()[0]
    return not compare(one, other, tolerance)


class Value(NamedTuple):
    """A tensor or number that a program computes: its name in the view, and the operation that makes it."""

    name: str
    op: str
    tensor: Tensor


def values(module: Any, given: tuple) -> list[Value]:
    """Return the tensors and numbers that `main` computes.

    Raises MLIRError for a module that cannot be opened so.
    """
    from xdsl.dialects.builtin import FunctionType

    names = value_names(module)
    opened = copy(module)
    pairs = zip(_block(module).ops, _block(opened).ops, strict=True)
    found = [
        (f"%{names[old]}", name_of(op), new)
        for op, twin in pairs
        for old, new in zip(op.results, twin.results, strict=True)
        if type_of(old.type)[0] is not None
        and name_of(op) not in ("tensor.empty", "bufferization.alloc_tensor")
        and not str(old.type).startswith("memref")
    ]
    if len(found) > _MOST_SEARCHED:
        raise MLIRError(f"A module of {len(found)} values is not taken apart.")
    function = next(iter(functions(opened).values()))
    end = _block(opened).last_op
    end.operands = [value for *_, value in found]
    takes = function.properties["function_type"].inputs.data
    function.properties["function_type"] = FunctionType.from_lists(takes, [value.type for *_, value in found])
    (outputs,) = run_all(opened, [given], function=function.properties["sym_name"].data)
    return [Value(name, op, tensor(array)) for (name, op, _), array in zip(found, outputs, strict=True)]
