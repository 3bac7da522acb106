"""Compare two MLIR modules, or a module and a torch model, by running them on inputs that tell them apart.

    result = equivalent_modules(before, after)         # also passlab.equivalent(before, after)
    assert result, result.reason

Tensors and buffers compare alike: a module may be bufferized, or lowered to loops, and still be the same function. The
inputs are normal numbers, a ramp, edge values (0, -0, denormals, huge ones), inf and NaN; unknown dimensions get odd
sizes. `passlab.building.comparison` says how rounding is told from a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from passlab.building.comparison import Failure, ModuleComparison, TorchSide, Value
from passlab.building.inputs import ALL_KINDS, inputs_for, inputs_like, tensor
from passlab.building.parameters import Parameter
from passlab.equivalence.comparison import why_not_a_program
from passlab.equivalence.result import Equivalence, Options
from passlab.equivalence.seeds import own_seed
from passlab.mlir.modules import MLIRError, copy, is_iree, name_of, value_names
from passlab.mlir.reader import as_module, functions, iterators, type_of
from passlab.mlir.run import run_all, run_module

#: Modules with more values than this are not searched for the place where they differ.
_MOST_SEARCHED = 80


def equivalent(before: Any, after: Any, inputs: Any, options: Options) -> Equivalence:
    """Compare for `passlab.equivalent`; modes, devices and aliasing are ignored."""
    tolerances: dict[str, Any] = {"seed": options.seed, "atol": options.atol, "rtol": options.rtol}
    return equivalent_modules(before, after, inputs, kinds=options.trials, **tolerances)


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
    weights: Sequence[Any] = (),
    **options: Any,
) -> Equivalence:
    """Run `main` of both (or their only function) on the same inputs; return whether, and where, they differ.

    before, after   modules of xDSL or IREE, or one of them a torch model (anything callable on tensors).
    inputs          a tuple of arrays or tensors, a list of such tuples, or None: random ones of the types of `main`.
    kinds           inputs to try besides those given: names from `passlab.building.inputs.ALL_KINDS`, default all.
    atol, rtol      replace the tolerances that follow from dtype and depth.
    locate          on a difference, find the operation at which two modules differ first.
    weights         what modules take after the inputs, the same in each run: those of `from_torch`, beside its model.
    options         for `passlab.mlir.run.run_all`: by, seconds.

    `first_diverging` of the result is the id of a node of passlab.view(after). Raises ValueError when there are no
    inputs to try, or `before` itself does not run. A failure of `after` is a result, not an exception.
    """
    sides = _side(before, "before", options, weights), _side(after, "after", options, weights)
    modules = [side.module for side in sides if side.module is not None]
    if not modules:
        raise ValueError("equivalent: one side must be a module of MLIR.")
    kinds = ALL_KINDS if kinds is None else kinds
    drawn = own_seed(seed)
    trials = _inputs_of(modules[0], drawn, kinds) if inputs is None else inputs_like(inputs, drawn, kinds)
    return _Comparison(*sides, trials, Options(seed, atol, rtol), locate=locate).run()


class _Comparison(ModuleComparison):
    phrases: ClassVar[dict[str, str]] = {
        **ModuleComparison.phrases,
        "given": "On the given inputs",
        "extreme": "On edge values (0, -0, tiny and huge numbers)",
    }
    second = "`after`"


def random_inputs(module: Any, seed: int = 0, kinds: Sequence[str] = ("ordinary",)) -> list[tuple[np.ndarray, ...]]:
    """Return inputs for `main` from the types of its arguments, one tuple of arrays or more for each of `kinds`."""
    return [inputs for _, inputs in _inputs_of(as_module(module), seed, kinds)]


def _inputs_of(module: Any, seed: int, kinds: Sequence[str]) -> list[tuple[str, tuple]]:
    def parameters(odd: int) -> Iterator[Parameter]:
        for name, argument in zip(_names(module), _block(module).args, strict=True):
            shape, dtype, _ = type_of(argument.type)
            if shape is None or dtype is None:
                raise ValueError(f"No random inputs for an argument of type {argument.type}: give inputs.")
            sizes = tuple(odd if dim == "?" else dim for dim in shape)
            yield Parameter(name, sizes, "int64" if dtype == "index" else dtype, "?" in shape)

    return inputs_for(parameters, seed, kinds)


def _names(module: Any) -> list[str]:
    names = value_names(module)
    return [names.get(argument) or f"input{i}" for i, argument in enumerate(_block(module).args)]


def _block(module: Any) -> Any:
    if not (known := functions(module)):
        raise ValueError("The module has no function, so there is nothing to run.")
    return next(iter(known.values())).regions[0].blocks[0]


class _Module:
    """A side that IREE, C or xDSL's interpreter runs. options: for run_module. weights: they follow the inputs."""

    def __init__(self, module: Any, options: dict[str, Any], weights: Sequence[Any]):
        self.module, self.how, self.weights = module, options, tuple(weights)
        if len(names := [*functions(module)]) == 1:
            self.how = {"function": names[0], **options}

    def names(self) -> list[str]:
        return _names(self.module)

    def depth(self) -> int:
        return max(1, sum(name_of(op).startswith(("arith.", "math.", "linalg.")) for op in self.module.walk()))

    def sums(self) -> bool:
        """Return whether the module may add up several numbers: a reduction, a named operation, a loop."""
        return any(
            "reduction" in iterators(op)
            or name_of(op).startswith(("scf.for", "scf.while", "scf.parallel", "affine.for", "affine.parallel", "cf."))
            or any(
                word in name_of(op) for word in ("matmul", "matvec", "vecmat", "linalg.dot", "conv", "pool", "reduce")
            )
            for op in self.module.walk()
        )

    def dtypes(self) -> set[torch.dtype]:
        return set()  # those of the inputs decide

    def outputs(self, inputs: Sequence[tuple], target: str) -> list[list[Tensor]]:
        try:
            built = run_module(self.module, [(*args, *self.weights) for args in inputs], **self.how)
        except MLIRError as error:
            raise Failure(f"does not run. {str(error).rstrip('.')}.") from None
        if built.error:
            raise Failure(f"does not run. {built.error.rstrip('.')}.", built.stage)
        return [[tensor(array) for array in arrays] for arrays in built.outputs]

    def values(self, inputs: tuple) -> list[Value]:
        return values(self.module, (*inputs, *self.weights))


def _side(value: Any, name: str, options: dict[str, Any], weights: Sequence[Any]) -> _Module | TorchSide:
    """Return a module as xDSL's, or a torch model in a wrapper. Raises ValueError for anything else."""
    if hasattr(value, "walk") or is_iree(value):
        return _Module(as_module(value), options, weights)
    if callable(value):
        return TorchSide(value)
    raise ValueError(f"equivalent compares modules of MLIR and torch models; `{name}` is {why_not_a_program(value)}")


def values(module: Any, inputs: tuple, most: int = _MOST_SEARCHED) -> list[Value]:
    """Return the tensors and numbers that `main` computes.

    Raises MLIRError for a module of more values than `most`, or that cannot be opened so.
    """
    from xdsl.dialects.builtin import FunctionType

    names = value_names(module)
    opened = copy(module)
    pairs = zip(_block(module).ops, _block(opened).ops, strict=True)
    rows = [
        (f"%{names[old]}", name_of(op), new)
        for op, twin in pairs
        for old, new in zip(op.results, twin.results, strict=True)
        if type_of(old.type)[0] is not None
        and name_of(op) not in ("tensor.empty", "bufferization.alloc_tensor")
        and not str(old.type).startswith("memref")
    ]
    if len(rows) > most:
        raise MLIRError(f"A module of {len(rows)} values is not taken apart.")
    function = next(iter(functions(opened).values()))
    end = _block(opened).last_op
    end.operands = [value for *_, value in rows]
    takes = function.properties["function_type"].inputs.data
    function.properties["function_type"] = FunctionType.from_lists(takes, [value.type for *_, value in rows])
    (outputs,) = run_all(opened, [inputs], function=function.properties["sym_name"].data)
    return [Value(name, op, tensor(array)) for (name, op, _), array in zip(rows, outputs, strict=True)]
