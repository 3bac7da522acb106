"""Lower linalg to loops by a schedule, and a torch model through all stages down to LLVM.

    loops = lower(bufferized, order=(0, 2, 1), tiles={1: 128, 2: 128}, jam={0: 4, 2: 4})
    for stage in lowering_stages(model, x): ...

A schedule is the order of the loops over the dimensions of a linalg.generic, the dimensions that are split into tiles
(their loops are outermost), and those that are jammed: each iteration computes several points. Jammed points share
their loads, and pass a result on in a value instead of in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passlab.mlir.modules import MLIRError, copy, name_of, pipeline

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

BUFFERIZE = "one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map}"
#: A schedule for linalg.matmul, whose dimensions are rows, columns and the one that is summed over.
MATMUL = {"order": (0, 2, 1), "tiles": {1: 128, 2: 128}, "jam": {0: 4, 2: 4}}


def bufferize(module: ModuleOp) -> ModuleOp:
    """Return a module whose tensors have become buffers, by MLIR's one-shot bufferization."""
    return pipeline(module, BUFFERIZE)


def lower(
    module: ModuleOp,
    order: Sequence[int] = (),
    tiles: Mapping[int, int] | None = None,
    jam: Mapping[int, int] | None = None,
) -> ModuleOp:
    """Return the module with loops in place of its linalg.generics on memrefs of known sizes.

    order, tiles, jam: the schedule, by number of the dimension. It applies to generics that have all these
    dimensions; others get loops in their own order. A dimension is jammed only if its size, or its tile, is a multiple
    of its jam. The last tile may be smaller. The buffer of a result must not be read through another operand.

    Raises MLIRError for a generic on tensors, and for unknown sizes.
    """
    from xdsl.dialects.linalg.ops import GenericOp

    lowered = pipeline(module, "linalg-generalize-named-ops") if _has_named_operations(module) else copy(module)
    tiles, jam = dict(tiles or {}), dict(jam or {})
    largest = max([*order, *tiles, *jam, -1])
    for op in [op for op in lowered.walk() if isinstance(op, GenericOp)]:
        dims = len(op.iterator_types.data)
        scheduled = dims == len(order) if order else largest < dims
        schedule = (order or range(dims), tiles, jam) if scheduled else (range(dims), {}, {})
        _Nest(op, *schedule).write()
    return lowered


def _has_named_operations(module: ModuleOp) -> bool:
    names = {name_of(op) for op in module.walk()}
    return any(name.startswith("linalg.") for name in names - {"linalg.generic", "linalg.yield", "linalg.index"})


class _Nest:
    def __init__(self, op: Any, order: Sequence[int], tiles: Mapping[int, int], jam: Mapping[int, int]):
        from xdsl.builder import Builder, InsertPoint

        self.op, self.order = op, list(order)
        self.maps = [map_.data for map_ in op.indexing_maps]
        self.sizes = self._sizes()
        self.tiles = {dim: n for dim, n in tiles.items() if n < self.sizes[dim]}
        self.jam = {dim: n for dim, n in jam.items() if self._divides(dim, n)}
        self.at = Builder(InsertPoint.before(op))
        self.numbers: dict[int, Any] = {}

    def _sizes(self) -> list[int]:
        from xdsl.ir.affine import AffineDimExpr

        sizes: dict[int, int] = {}
        for map_, value in zip(self.maps, self.op.operands, strict=True):
            if value.type.name == "tensor":
                raise MLIRError("lower takes linalg on memrefs: bufferize the module first.")
            for expr, size in zip(map_.results, getattr(value.type, "get_shape", tuple)(), strict=True):
                if isinstance(expr, AffineDimExpr):
                    sizes.setdefault(expr.position, size)
        count = len(self.op.iterator_types.data)
        if set(sizes) != set(range(count)) or min(sizes.values(), default=0) < 0:
            raise MLIRError("lower takes linalg.generics whose loops have known sizes.")
        return [sizes[dim] for dim in range(count)]

    def _divides(self, dim: int, step: int) -> bool:
        """Return whether each loop over a dimension, the whole or a tile, is a multiple of a step."""
        size, tile = self.sizes[dim], self.tiles.get(dim)
        return size % step == 0 if tile is None else size % tile == 0 and tile % step == 0

    def write(self) -> None:
        tiled = [dim for dim in self.order if dim in self.tiles]
        self._loops([(dim, True) for dim in tiled] + [(dim, False) for dim in self.order], {})
        self.op.detach()
        self.op.erase()

    def number(self, value: int) -> Any:
        from xdsl.dialects.arith import ConstantOp
        from xdsl.dialects.builtin import IndexType, IntegerAttr

        if value not in self.numbers:
            constant = ConstantOp(IntegerAttr(value, IndexType()))
            self.op.parent.insert_op_before(constant, self.outer) if hasattr(self, "outer") else self.at.insert(
                constant
            )
            self.numbers[value] = constant.result
        return self.numbers[value]

    def _loops(self, loops: list[tuple[int, bool]], indices: dict[int, Any]) -> None:
        """Write the loops that are left, around the body. indices: dimension → the index of its tile or point."""
        from xdsl.builder import Builder, InsertPoint
        from xdsl.dialects import scf
        from xdsl.dialects.builtin import IndexType
        from xdsl.ir import Block, Region

        if not loops:
            self._body(indices)
            return
        (dim, outside), rest = loops[0], loops[1:]
        size, low = self.sizes[dim], indices.get(dim)
        tile = self.tiles.get(dim, 0)
        if outside:
            step = tile
            bounds = self.number(0), self.number(size)
        elif low is None:
            step = self.jam.get(dim, 1)
            bounds = self.number(0), self.number(size)
        else:
            step = self.jam.get(dim, 1)
            bounds = low, self._end(low, tile, size)
        step_value = self.number(step)
        block = Block(arg_types=[IndexType()])
        kinds = self.op.iterator_types.data
        innermost = not rest and kinds[dim].data.value == "parallel" and step == 1
        if innermost:
            loop = scf.ParallelOp([bounds[0]], [bounds[1]], [step_value], Region(block))
        else:
            loop = scf.ForOp(*bounds, step_value, [], Region(block))
        self.at.insert(loop)
        if not hasattr(self, "outer"):
            self.outer = loop
        builder, self.at = self.at, Builder(InsertPoint.at_end(block))
        self._loops(rest, indices | {dim: block.args[0]})
        self.at.insert(scf.ReduceOp() if innermost else scf.YieldOp())
        self.at = builder

    def _end(self, low: Any, tile: int, size: int) -> Any:
        """Return where the tile that begins at `low` ends."""
        from xdsl.dialects import affine
        from xdsl.dialects.builtin import AffineMapAttr
        from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineMap

        end = AffineDimExpr(0) + tile
        if size % tile == 0:
            op = affine.ApplyOp([low], AffineMapAttr(AffineMap(1, 0, (end,))))
        else:
            map_ = AffineMapAttr(AffineMap(1, 0, (end, AffineConstantExpr(size))))
            op = affine.MinOp.create(operands=[low], result_types=[low.type], properties={"map": map_})
        self.at.insert(op)
        return op.results[0]

    def _body(self, indices: dict[int, Any]) -> None:
        """Write the body for each jammed point. Accesses of several points to one place share one value."""
        from xdsl.dialects import memref

        ins = len(self.op.inputs)
        elements: dict[tuple, Any] = {}
        places: dict[tuple, list[Any]] = {}
        dirty: dict[tuple, Any] = {}
        steps = {dim: range(n) for dim, n in self.jam.items() if dim in self.order}
        for offsets in product(*steps.values()):
            shift = dict(zip(steps, offsets, strict=True))
            values: dict[Any, Any] = {}
            block, keys = self.op.body.block, []
            for map_, value, arg in zip(self.maps, self.op.operands, block.args, strict=True):
                if value.type.name != "memref":
                    values[arg] = value
                    keys.append(None)
                    continue
                shifted = self._shift(map_, shift)
                key = (value, shifted)
                keys.append(key)
                if key not in places:
                    places[key] = [self._index(expr, indices) for expr in shifted.results]
                if key not in elements and arg.uses.get_length():
                    load = memref.LoadOp.get(value, places[key])
                    self.at.insert(load)
                    elements[key] = load.results[0]
                if key in elements:
                    values[arg] = elements[key]
            for op in block.ops:
                if op.name == "linalg.index":
                    values[op.results[0]] = self._index(self._shifted_dim(op.dim.value.data, shift), indices)
                elif op.name != "linalg.yield":
                    clone = op.clone(value_mapper=values)
                    self.at.insert(clone)
            for key, operand in zip(keys[ins:], block.last_op.operands, strict=True):
                elements[key] = dirty[key] = values.get(operand, operand)
        for key, value in dirty.items():
            self.at.insert(memref.StoreOp.get(value, key[0], places[key]))

    def _shift(self, map_: Any, shift: Mapping[int, int]) -> Any:
        from xdsl.ir.affine import AffineMap

        dims = [self._shifted_dim(dim, shift) for dim in range(map_.num_dims)]
        return AffineMap(map_.num_dims, 0, tuple(expr.replace_dims_and_symbols(dims, []) for expr in map_.results))

    def _shifted_dim(self, dim: int, shift: Mapping[int, int]) -> Any:
        from xdsl.ir.affine import AffineDimExpr

        return AffineDimExpr(dim) + shift[dim] if shift.get(dim) else AffineDimExpr(dim)

    def _index(self, expr: Any, indices: Mapping[int, Any]) -> Any:
        from xdsl.dialects import affine
        from xdsl.dialects.builtin import AffineMapAttr
        from xdsl.ir.affine import AffineDimExpr, AffineMap

        if isinstance(expr, AffineDimExpr):
            return indices[expr.position]
        dims = [indices[dim] for dim in range(len(self.sizes))]
        op = affine.ApplyOp(dims, AffineMapAttr(AffineMap(len(dims), 0, (expr,))))
        self.at.insert(op)
        return op.results[0]


# ---------------------------------------------------------------------------------------------------- all stages


@dataclass(frozen=True)
class Stage:
    """A program on one level. `value`: a module, or text. `arrays`: its inputs, or () if it does not run here."""

    name: str
    value: Any
    arrays: tuple[Any, ...] = ()


def lowering_stages(model: Any, *inputs: Any) -> list[Stage]:
    """Return a torch model on each level down to LLVM: torch's dialect, linalg, fused, bufferized, loops, jumps, LLVM.

    Modules run with their arrays (`run(stage.value, *stage.arrays)`). The LLVM is IREE's text of the fused module for
    this processor. Raises MLIRError for a model that cannot be imported.
    """
    from passlab.mlir.imports import from_torch

    imported = from_torch(model, *inputs)
    linalg = pipeline(imported.module, "linalg-generalize-named-ops")
    fused = pipeline(linalg, "linalg-fuse-elementwise-ops")
    buffers = bufferize(fused)
    loops = pipeline(buffers, "convert-linalg-to-loops, canonicalize, cse")
    modules = {
        "linalg": linalg,
        "fused": fused,
        "buffers": buffers,
        "loops": loops,
        "jumps": pipeline(loops, "convert-scf-to-cf"),
    }
    runnable = [Stage(name, module, imported.arrays) for name, module in modules.items()]
    return [Stage("torch", imported.before), *runnable, Stage("LLVM", llvm(fused))]


def llvm(module: ModuleOp) -> str:
    """Return the LLVM IR that IREE makes of a module of tensors, for this processor. Raises MLIRError."""
    from iree.compiler.api import Session, Source

    from passlab.mlir.executors import FLAGS
    from passlab.mlir.modules import generic

    with tempfile.TemporaryDirectory() as folder:
        session = Session()
        session.set_flags(*FLAGS, f"--iree-hal-dump-executable-intermediates-to={folder}")
        call = session.invocation()
        if not (call.parse_source(Source.wrap_buffer(session, generic(module).encode() + b"\0")) and call.execute()):
            raise MLIRError("IREE cannot lower the module to LLVM.")
        files = [*Path(folder).rglob("*.codegen.ll"), *Path(folder).rglob("*.ll")]
        if not files:
            raise MLIRError("IREE wrote no LLVM: nothing in the module is left to compute.")
        return files[0].read_text()
