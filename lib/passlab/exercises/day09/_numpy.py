"""Day 9: what a module of func, arith, math, tensor and linalg computes, with NumPy and nothing compiled.

An operation is applied to arrays as a whole, so a scalar function runs on a thousand inputs at once, and a
linalg.generic on its whole iteration space (one step for each point of its reductions).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, builtin, func, linalg, tensor
from xdsl.ir import Block, Operation, SSAValue

#: More iterations than this are not run, and tensors of more elements not made.
MOST = 2_000_000


class Unknown(ValueError):
    """An operation that the exercises of this day do not have."""


def dtype(of: Any) -> np.dtype:
    """Return the NumPy dtype of a scalar type, or of a tensor's elements. Raises Unknown for other types."""
    of = of.element_type if isinstance(of, builtin.TensorType) else of
    names = {"i1": "bool", "index": "int64", "f16": "float16", "f32": "float32", "f64": "float64"}
    name = names.get(str(of), f"int{str(of)[1:]}" if str(of) in ("i8", "i16", "i32", "i64") else None)
    if name is None:
        raise Unknown(f"The type {str(of)[:40]} does not occur in this exercise.")
    return np.dtype(name)


def evaluate(module: builtin.ModuleOp, *arrays: Any, function: str = "main") -> list[np.ndarray]:
    """Return the results of a function on arrays (or scalars), one array for each.

    `tensor.empty` is filled with 77, so that a read of unwritten memory shows. Raises Unknown.
    """
    (main,) = (op for op in module.walk() if isinstance(op, func.FuncOp) and op.sym_name.data == function)
    inputs = [
        np.asarray(array).astype(dtype(a.type), copy=False)
        for a, array in zip(main.body.block.args, arrays, strict=True)
    ]
    with np.errstate(all="ignore"):
        return _block(main.body.block, inputs, None, {})


def _block(
    block: Block, inputs: Sequence[Any], point: Sequence[Any] | None, outside: Mapping[SSAValue, Any]
) -> list[np.ndarray]:
    """Run a block. point: the coordinates of the iteration, for linalg.index. outside: the values around the block."""
    known = dict(outside) | dict(zip(block.args, inputs, strict=True))
    for op in block.ops:
        if any(value not in known for value in op.operands):
            raise Unknown(f"{op.name} reads a value that nothing has computed before it.")
        operands = [known[value] for value in op.operands]
        if isinstance(op, func.ReturnOp | linalg.ops.YieldOp):
            return operands
        known.update(zip(op.results, _results(op, operands, point, known), strict=True))
    return []


def _results(
    op: Operation, operands: list[Any], point: Sequence[Any] | None, known: Mapping[SSAValue, Any]
) -> list[Any]:
    match op:
        case arith.ConstantOp():
            return [_constant(op)]
        case tensor.EmptyOp():
            if np.prod(op.tensor.type.get_shape(), dtype=float) > MOST:
                raise Unknown(f"A tensor has more than {MOST:,} elements.")
            return [np.full(op.tensor.type.get_shape(), 77, dtype(op.tensor.type))]
        case linalg.ops.GenericOp():
            return _generic(op, operands, known)
        case linalg.ops.FillOp():
            return [np.full_like(operands[1], operands[0])]
        case linalg.ops.IndexOp():
            return [point[op.dim.value.data]]
        case arith.CmpfOp() | arith.CmpiOp():
            return [_COMPARE[type(op)][op.predicate.value.data](*operands)]
    if op.name in _CASTS:
        return [np.asarray(operands[0]).astype(dtype(op.results[0].type))]
    if op.name not in OPERATIONS:
        raise Unknown(f"{op.name} does not occur in this exercise.")
    return [np.asarray(OPERATIONS[op.name](*operands)).astype(dtype(op.results[0].type))]


def _constant(op: arith.ConstantOp) -> np.ndarray:
    value, kind = op.value, dtype(op.result.type)
    if isinstance(value, builtin.DenseIntOrFPElementsAttr):
        numbers = np.array(value.get_values())
        return np.broadcast_to(
            numbers if value.is_splat() else numbers.reshape(value.get_shape()), value.get_shape()
        ).astype(kind)
    return np.array(value.value.data).astype(kind)


def bounds(op: linalg.ops.GenericOp) -> dict[int, int]:
    """Return the number of iterations of each loop: that of a side indexed with it alone."""
    sizes: dict[int, int] = {}
    for operand, amap in zip(op.operands, op.indexing_maps.data, strict=True):
        shape = operand.type.get_shape() if isinstance(operand.type, builtin.TensorType) else ()
        for expr, size in zip(amap.data.results, shape, strict=True):
            sizes.setdefault(getattr(expr, "position", -1), size)
    sizes.pop(-1, None)
    return sizes


def _generic(op: linalg.ops.GenericOp, operands: list[Any], known: Mapping[SSAValue, Any]) -> list[np.ndarray]:
    known_sizes = bounds(op)
    sizes = [known_sizes[d] for d in range(len(op.iterator_types.data))]
    kinds = [kind.data.value for kind in op.iterator_types.data]
    maps = [amap.data for amap in op.indexing_maps.data]
    outs = [np.array(value) for value in operands[len(op.inputs) :]]
    arrays = [*operands[: len(op.inputs)], *outs]
    steps = [range(size) if kind == "reduction" else (None,) for size, kind in zip(sizes, kinds, strict=True)]
    if np.prod(sizes, dtype=float) > MOST:
        raise Unknown(f"The loops of this linalg.generic run more than {MOST:,} times.")
    grid = [
        None if kind == "reduction" else np.arange(size).reshape([-1 if e == d else 1 for e in range(len(sizes))])
        for d, (size, kind) in enumerate(zip(sizes, kinds, strict=True))
    ]
    space = [1 if kind == "reduction" else size for size, kind in zip(sizes, kinds, strict=True)]
    for step in itertools.product(*steps):
        point = [indices if at is None else at for at, indices in zip(step, grid, strict=True)]
        where = [tuple(np.broadcast_to(e.eval(point, []), space) for e in amap.results) for amap in maps]
        values = [array[at] if at else array for array, at in zip(arrays, where, strict=True)]
        for out, at, value in zip(
            outs, where[len(op.inputs) :], _block(op.body.block, values, point, known), strict=True
        ):
            out[at if at else ...] = np.broadcast_to(value, space) if at else np.reshape(value, ())
    return outs


_COMPARE: dict[type, list[Callable]] = {
    arith.CmpiOp: [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal],
    arith.CmpfOp: [
        lambda a, b: np.zeros(np.broadcast(a, b).shape, bool),
        np.equal,
        np.greater,
        np.greater_equal,
        np.less,
        np.less_equal,
    ],
}
_CASTS = {
    "arith.index_cast",
    "arith.sitofp",
    "arith.extf",
    "arith.truncf",
    "arith.extsi",
    "arith.trunci",
    "arith.fptosi",
}

#: operation → what it does to arrays; the result is then cast to the operation's type, which wraps integers
OPERATIONS: dict[str, Callable] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.negf": np.negative,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.select": np.where,
    "math.exp": np.exp,
    "math.tanh": np.tanh,
    "math.sqrt": np.sqrt,
    "math.absf": np.abs,
    "math.log": np.log,
}
