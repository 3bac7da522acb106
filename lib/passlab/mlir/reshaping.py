"""Reshapes move out of the way of fusion: the loops of a linalg.generic are split as a reshape splits its operand.

    %c = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x4x8xf32> into tensor<8x8xf32>
    %r = linalg.generic ins(%c, %b) …  (i, j) -> (i, j), (i, j) -> (j)       reads %x with loops (i0, i1, j)

A generic that reads a collapse_shape can read what is collapsed instead, and one whose result goes into an expand_shape
can make the expanded tensor itself. Its other operands are expanded to match, and those expansions move on, into what
makes the operands; its results are collapsed after it. So expand_shape rises, collapse_shape sinks, and two generics
between which a reshape stood meet. This is legal if each map only picks dimensions, each at most once; and as MLIR
does, a reshape that somebody else reads too stays where it is. Sizes must be static.

Source: "fold reshape by expansion", the patterns of MLIR's ElementwiseOpFusion.cpp and ReshapePatterns.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from passlab.mlir.groups import Group, Maps

EXPAND, COLLAPSE = "tensor.expand_shape", "tensor.collapse_shape"

#: For each axis of the smaller tensor, the sizes of those that it is split in.
Split = tuple[tuple[int, ...], ...]


def is_reshape(op: Any) -> bool:
    """Return whether this expands or collapses a tensor with axes, whose sizes are all known."""
    if getattr(op, "name", "") not in (EXPAND, COLLAPSE) or not op.reassociation.data:
        return False
    return all(-1 not in value.type.get_shape() for value in (op.operands[0], op.results[0]))


def _split(op: Any) -> Split:
    """Return the sizes by which a reshape splits or joins."""
    sizes = iter((op.results[0] if op.name == EXPAND else op.operands[0]).type.get_shape())
    return tuple(tuple(next(sizes) for _ in axes.data) for axes in op.reassociation.data)


def _flat(split: Split) -> tuple[int, ...]:
    return tuple(size for sizes in split for size in sizes)


@cache
def _axes(counts: tuple[int, ...]) -> Any:
    """Return the attribute that says which axes belong together. counts: axes in each group."""
    from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, i64

    groups = [range(end - count, end) for count, end in zip(counts, accumulate(counts), strict=True)]
    return ArrayAttr(ArrayAttr(IntegerAttr(axis, i64) for axis in group) for group in groups)


def _reshape(name: str, value: Any, split: Split) -> Any:
    """Return a new expand_shape or collapse_shape of a value."""
    from xdsl.dialects import tensor
    from xdsl.dialects.builtin import TensorType

    kind, axes = value.type.element_type, _axes(tuple(map(len, split)))
    if name == EXPAND:
        return tensor.ExpandShapeOp(value, [], axes, _flat(split), TensorType(kind, _flat(split)))
    made = TensorType(kind, [prod(sizes) for sizes in split])
    return tensor.CollapseShapeOp(operands=[value], result_types=[made], properties={"reassociation": axes})


def empty(like: Any, before: Any) -> Any:
    """Return a new tensor.empty of a type, put before an operation."""
    from xdsl.dialects.tensor import EmptyOp

    made = EmptyOp([], like)
    before.parent.insert_op_before(made, before)
    return made.results[0]


def erase(op: Any) -> None:
    op.detach()
    op.erase()


class Reshapes:
    """The reshapes of a module while its generics are fused. groups: result → the generics that become one.

    moved: whether any reshape has moved, so that another round may find more to fuse.
    """

    def __init__(self, groups: dict[Any, Group], maps: Maps):
        self.groups, self.maps, self.moved = groups, maps, False

    def visit(self, op: Any) -> Any:
        """Move an expand_shape up, or join a reshape with that before it; return the value that it has now."""
        result, source = op.results[0], op.operands[0]
        if result.type == source.type:
            return self._become(op, source)
        before = source.owner
        if is_reshape(before):
            return self._join(op, before)
        if op.name == COLLAPSE:
            return result
        if getattr(before, "name", "") == "linalg.fill":
            from xdsl.dialects.linalg.ops import FillOp

            made = FillOp(before.inputs, [empty(result.type, op)], [result.type])
            op.parent.insert_op_before(made, op)
            return self._become(op, made.results[0])
        group = self.groups.get(source)
        if group is None or sum(value.uses.get_length() for _, _, value in group.outs) != 1:
            return result
        map_ = next(map_ for _, map_, value in group.outs if value is source)
        if not self._splits(group, map_):
            return result
        self._split_loops(group, map_, _split(op), out=source)
        return self._become(op, source)

    def _become(self, op: Any, value: Any) -> Any:
        """Replace a reshape by a value."""
        self.moved = True
        before = op.operands[0].owner
        op.results[0].replace_all_uses_with(value)
        erase(op)
        if is_reshape(before) and not before.results[0].uses.get_length():
            erase(before)
        return value

    def _insert(self, made: Any, op: Any) -> Any:
        """Put a new reshape before another operation and move it on; return the value that it has then."""
        op.parent.insert_op_before(made, op)
        return self.visit(made)

    def _join(self, op: Any, before: Any) -> Any:
        """Two reshapes in a row become one, or none, or an expansion before a collapse."""
        value, first, second = before.operands[0], _split(before), _split(op)
        if before.name == op.name:
            outer, inner = (first, second) if op.name == EXPAND else (second, first)
            parts = iter(inner)
            joined = tuple(tuple(size for _ in sizes for size in next(parts)) for sizes in outer)
            return self._become(op, self._insert(_reshape(op.name, value, joined), op))
        if op.name == COLLAPSE:  # of an expansion: what it splits is joined again, or the other way round
            return self._regroup(op, value)
        if op.results[0].type == value.type and first == second:
            return self._become(op, value)
        if any(one != other and 1 not in (len(one), len(other)) for one, other in zip(first, second, strict=True)):
            return self._regroup(op, value)
        up, down = [], []  # the expansion, of what the collapse read; then the collapse
        for one, other in zip(first, second, strict=True):
            up += [(size,) for size in one] if len(one) > 1 else [other]
            down += [(size,) for size in other] if len(one) == 1 or one == other else [one]
        if any(len(sizes) != 1 for sizes in up):
            value = self._insert(_reshape(EXPAND, value, tuple(up)), op)
        if any(len(sizes) != 1 for sizes in down):
            value = self._insert(_reshape(COLLAPSE, value, tuple(down)), op)
        return self._become(op, value)

    def _regroup(self, op: Any, value: Any) -> Any:
        """Reshape a value to the type of a reshape's result in one step, if there is one."""
        old, new = value.type.get_shape(), op.results[0].type.get_shape()
        if len(old) == len(new):
            return self._become(op, value) if old == new else op.results[0]
        small, large, name = (old, new, EXPAND) if len(old) < len(new) else (new, old, COLLAPSE)
        split = _parts(small, large)
        if split is None:
            return op.results[0]
        return self._become(op, self._insert(_reshape(name, value, split), op))

    # ------------------------------------------------------------------------------------------------ splitting loops

    def take(self, group: Group, used: Any) -> bool:
        """Let a group read what one of its inputs collapses; return whether there was such an input."""
        for value, map_ in group.inputs:
            op = value.owner
            collapses = getattr(op, "name", "") == COLLAPSE and is_reshape(op)
            if collapses and used(value, group) == 1 and self._splits(group, map_):
                self._split_loops(group, map_, _split(op), source=(value, map_))
                op.results[0].replace_all_uses_with(op.operands[0])  # operands that no body reads
                erase(op)
                return True
        return False

    def _splits(self, group: Group, map_: int) -> bool:
        """Return whether the loops that a map reads may be split."""
        held = (*(other for _, other in group.inputs), *(other for _, other, _ in group.outs))
        values = (*(value for value, _ in group.inputs), *(value for value, _, _ in group.outs))
        return (
            bool(self.maps.data(map_).results)
            and all(self.maps.picks(other) for other in held)
            and all(-1 not in value.type.get_shape() for value in values if hasattr(value.type, "get_shape"))
        )

    def _split_loops(self, group: Group, map_: int, split: Split, source: Any = None, out: Any = None) -> None:
        """Split the loops of a group as the axes of the value that it reads or makes through a map.

        source: the input that a collapse_shape makes. out: the result that an expand_shape reads.
        """
        self.moved = True
        maps, last = self.maps, group.last
        sizes: list[tuple[int, ...]] = [(0,)] * group.loops  # one where the loop stays as it is
        for expr, parts in zip(maps.data(map_).results, split, strict=True):
            sizes[expr.position] = parts
        readers: dict[Any, list[Any]] = {}
        for arg, key in group.reads.items():
            readers.setdefault(key, []).append(arg)
        inputs: dict[tuple[Any, int], tuple[Any, int]] = {}
        for key in list(group.inputs):
            value, other = key
            made = value.owner if key == source else self._expansion(value, other, sizes)
            if made is not None:
                value = made.operands[0] if key == source else made.results[0]
                for arg in readers.get(key, ()):
                    generic = arg.owner.parent_op()
                    generic.operands[arg.index] = value
                if key != source:
                    value = self._insert(made, last)
            inputs[key] = (value, maps.split(other, tuple(map(len, sizes))))
        outs = []
        for init, other, result in group.outs:
            generic, made = result.owner, self._expansion(init, other, sizes)
            if made is not None:
                at = len(generic.inputs) + result.index
                if generic.body.block.args[at].uses.get_length():
                    generic.operands[at] = made.results[0]
                    init = self._insert(made, last)
                else:
                    generic.operands[at] = init = empty(made.results[0].type, last)
                    made.erase()
                result._type = init.type
                if result is not out:
                    after = _reshape(COLLAPSE, result, self._joins(init.type.get_shape(), other, sizes))
                    last.parent.insert_op_after(after, last)
                    result.replace_uses_with_if(after.results[0], lambda use, after=after: use.operation is not after)
            outs.append((init, maps.split(other, tuple(map(len, sizes))), result))
        inside = maps.joined(tuple(sizes))
        group.parts = [(part, maps.compose(own, inside)) for part, own in group.parts]
        group.reads = {arg: inputs.get(key, key) for arg, key in group.reads.items()}
        group.inputs, group.outs, group.split = dict.fromkeys(inputs.values()), outs, True
        group.kinds = [kind for kind, parts in zip(group.kinds, sizes, strict=True) for _ in parts]
        group.worklist = [key for key in group.inputs if key[0] in self.groups]

    def _joins(self, shape: Sequence[int], map_: int, sizes: list[tuple[int, ...]]) -> Split:
        """Return how the axes of a value are joined that a group of split loops reads or makes."""
        held = iter(shape)
        return tuple(tuple(next(held) for _ in sizes[expr.position]) for expr in self.maps.data(map_).results)

    def _expansion(self, value: Any, map_: int, sizes: list[tuple[int, ...]]) -> Any:
        """Return a new expand_shape of a value that is read through a map, or None if it is read as it is."""
        axes = [expr.position for expr in self.maps.data(map_).results]
        if all(len(sizes[axis]) == 1 for axis in axes):
            return None
        shape = value.type.get_shape()
        split = tuple(sizes[axis] if len(sizes[axis]) > 1 else (size,) for axis, size in zip(axes, shape, strict=True))
        return _reshape(EXPAND, value, split)


def _parts(small: Sequence[int], large: Sequence[int]) -> Split | None:
    """Return how the axes of one shape split into those of another, or None if they do not."""
    parts, at = [], 0
    for size in small:
        start, at = at, at + 1
        while at < len(large) and prod(large[start:at]) < size:
            at += 1
        if prod(large[start:at]) != size:
            return None
        parts.append(tuple(large[start:at]))
    rest = tuple(large[at:])
    if prod(rest) != 1:
        return None
    parts[-1] += rest
    return tuple(parts) if all(parts) else None
