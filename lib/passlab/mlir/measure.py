"""Launches, bytes and floating-point operations of one run of an MLIR module, read off the module.

A launch is one operation that would be a kernel of its own: each linalg operation, arithmetic on whole tensors, each
tensor operation that copies (pad, concat, …), each memref.copy, and each nest of loops around plain loads and stores,
once for all its loops.

Bytes: a linalg operation reads each of its inputs once, its destination only if its body uses it, and writes its
result once, without a cache or tiling. A nest of loops moves the bytes of its loads and stores, as often as it runs
them, in both arms of a branch. Views and allocations are free.

Floating-point operations: one for each arith and math operation on floats in a body, at each point of the loops.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from passlab.graph.cost import Cost, Measured
from passlab.mlir.modules import MLIRError, name_of, native, pipeline, value_names
from passlab.mlir.reader import as_module, functions, inside, type_of

if TYPE_CHECKING:
    from xdsl.ir import Operation, SSAValue

_COPIES = {"tensor.pad", "tensor.concat", "tensor.generate", "tensor.insert_slice", "tensor.gather", "memref.copy"}
_LOOPS = {"scf.for", "scf.parallel", "scf.forall", "scf.while", "affine.for", "affine.parallel"}
_LOADS = {"memref.load": 0, "affine.load": 0, "tensor.extract": 0}
_STORES = {"memref.store": 1, "affine.store": 1}
#: Operations on floats that are not arithmetic.
_NO_FLOPS = {"arith.constant", "arith.cmpf", "arith.select", "arith.extf", "arith.truncf", "arith.bitcast"}


def launches(module: Any, *inputs: Any) -> Measured:
    """Return the number of kernels that one run starts, each counted once however often a loop runs it."""
    counts = Counter(name_of(op) for op in kernels(as_module(module)))
    return Measured(sum(counts.values()), "launches", detail=counts)


def bytes_moved(module: Any, *inputs: Any) -> Measured:
    """Return the bytes that one run reads and writes; `.detail` has them by kernel. Raises MLIRError: unknown sizes."""
    module = as_module(module)
    names = value_names(module)
    traffic: dict[str, int] = {}
    for number, op in enumerate(kernels(module)):
        name = f"%{names[op.results[0]]}" if op.results else f"{name_of(op)} {number}"
        traffic[name] = traffic.get(name, 0) + _bytes(op) * _runs(op)
    return Measured(sum(traffic.values()), "bytes moved", detail=traffic)


def flops(module: Any, *inputs: Any) -> int:
    """Return the floating-point operations of one run. Raises MLIRError for loops of unknown length."""
    total = 0
    for op in kernels(_general(as_module(module))):
        if name_of(op).startswith("linalg."):
            each = sum(_is_flop(inner) for inner in inside(op))
            total += each and each * math.prod(extents(op)) * _runs(op)
        elif name_of(op).startswith(("arith.", "math.")):
            total += _is_flop(op) * math.prod(op.results[0].type.get_shape()) * _runs(op)
        elif name_of(op) in _LOOPS:
            total += sum(_runs(inner, stop=op) for inner in inside(op) if _is_flop(inner)) * _trips(op) * _runs(op)
    return total


def cost(module: Any, *inputs: Any) -> Cost:
    """Return the operations of a module, `launches` and `bytes_moved`."""
    module = as_module(module)
    count = sum(1 for _ in module.walk()) - 1
    return Cost(count, int(launches(module)), int(bytes_moved(module)))


def kernels(module: Any) -> Iterator[Operation]:
    """Yield the operations of a module's functions that would be kernels of their own, in the order of the text."""

    def walk(op: Operation) -> Iterator[Operation]:
        for inner in (inner for region in op.regions for block in region.blocks for inner in block.ops):
            bare = name_of(inner) in _LOOPS and not any(_is_kernel(part) for part in inside(inner))
            if bare or _is_kernel(inner):
                yield inner
            else:
                yield from walk(inner)

    for function in functions(module).values():
        yield from walk(function)


def _is_kernel(op: Operation) -> bool:
    name = name_of(op)
    if name.startswith(("arith.", "math.")) and name != "arith.constant":
        return any(map(_is_shaped, op.results))
    return (name.startswith("linalg.") and name not in ("linalg.yield", "linalg.index")) or name in _COPIES


def _general(module: Any) -> Any:
    """Return the module with its named operations as linalg.generic, whose bodies and maps can be read."""
    named = any(name_of(op).startswith("linalg.") and name_of(op) != "linalg.generic" for op in kernels(module))
    return pipeline(module, "linalg-generalize-named-ops") if named and native() else module


def extents(op: Operation) -> list[int]:
    """Return the length of each loop of a linalg.generic. Raises MLIRError for an unknown one."""
    maps = [attribute.data for attribute in op.properties["indexing_maps"].data]
    lengths: dict[int, int] = {}
    for map, operand in zip(maps, op.operands, strict=True):
        shape = type_of(operand.type)[0] or ()
        for result, size in zip(map.results, shape, strict=False):
            position = getattr(result, "position", None)
            if position is not None and type(size) is int:
                lengths[position] = size
    if len(lengths) < maps[0].num_dims:
        raise MLIRError(f"{name_of(op)}: the length of a loop is not known. Give every dimension a size.")
    return [lengths[i] for i in range(maps[0].num_dims)]


def _bytes(op: Operation) -> int:
    name = name_of(op)
    if name in _LOOPS:
        return _loop_bytes(op)
    size = {value: _size(value, op) for value in (*op.operands, *op.results) if _is_shaped(value)}
    if not name.startswith("linalg."):
        return sum(size[v] for v in (*op.operands[: 2 if name == "memref.copy" else None], *op.results) if v in size)
    outs = max(1, len(op.results)) if op.results else _outs(op)
    reads, writes = list(op.operands)[:-outs], list(op.operands)[-outs:]
    total = sum(size.get(value, 0) for value in dict.fromkeys(reads)) + sum(size.get(v, 0) for v in writes)
    arguments = op.regions[0].blocks[0].args if op.regions and op.regions[0].blocks else ()
    for value, argument in zip(writes, list(arguments)[-outs:], strict=False):
        total += size.get(value, 0) if any(True for _ in argument.uses) else 0
    return total


def _outs(op: Operation) -> int:
    sizes = op.properties.get("operandSegmentSizes") or op.attributes.get("operandSegmentSizes")
    return int(sizes.get_values()[-1]) if sizes is not None else 1


def _is_shaped(value: SSAValue) -> bool:
    return hasattr(value.type, "get_shape")


def _size(value: SSAValue, op: Operation) -> int:
    size = type_of(value.type)[2]
    if size is None:
        raise MLIRError(f"bytes_moved: {name_of(op)} has an operand of unknown size, {value.type}.")
    return size


def _loop_bytes(op: Operation) -> int:
    total = 0
    for inner in inside(op):
        name = name_of(inner)
        at = _LOADS.get(name, _STORES.get(name))
        if at is not None:
            element = type_of(inner.operands[at].type.element_type)[2] or 0
            total += element * _runs(inner, stop=op) * _trips(op)
    return total


def _runs(op: Operation, stop: Operation | None = None) -> int:
    """Return how often the loops around an operation run it, up to `stop`."""
    runs, parent = 1, op.parent_op()
    while parent is not None and parent is not stop:
        runs *= _trips(parent) if name_of(parent) in _LOOPS else 1
        parent = parent.parent_op()
    return runs


def _trips(op: Operation) -> int:
    """Return how often a loop runs its body. Raises MLIRError where its bounds are not numbers."""
    name = name_of(op)
    try:
        if name == "scf.for":
            lower, upper, step = (_number(value) for value in op.operands[:3])
            return max(0, -((lower - upper) // step))
        if name == "affine.for":
            lower, upper = (_constant(op.properties[bound].data) for bound in ("lowerBoundMap", "upperBoundMap"))
            return max(0, -((lower - upper) // op.properties["step"].value.data))
        if name == "scf.parallel":
            bounds = [_number(value) for value in op.operands]
            rank = len(op.regions[0].blocks[0].args)
            ways = zip(bounds[:rank], bounds[rank : 2 * rank], bounds[2 * rank : 3 * rank], strict=True)
            return math.prod(max(0, -((lower - upper) // step)) for lower, upper, step in ways)
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise MLIRError(f"{name}: the number of its iterations is not known. Its bounds must be constants.")


def _number(value: SSAValue) -> int:
    return value.owner.properties["value"].value.data


def _constant(map: Any) -> int:
    (result,) = map.results
    return result.value


def _is_flop(op: Operation) -> bool:
    name = name_of(op)
    known = name.startswith(("arith.", "math.")) and name not in _NO_FLOPS
    type = op.results[0].type if op.results else None
    return known and str(getattr(type, "element_type", type)) in ("f16", "bf16", "f32", "f64")
