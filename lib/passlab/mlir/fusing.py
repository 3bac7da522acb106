"""Element-wise fusion of linalg on tensors: a producer's loops move into its only consumer.

    fused = fuse(module)        # a new module; MLIR's own pass is linalg-fuse-elementwise-ops

A consumer C reads the result of a producer P through C's indexing map m: at C's point c it wants element m(c). P
computes element r(p) at its point p. So P's body runs in C's loops at p = r⁻¹(m(c)), and P's operands, read there
through a map f, are read in C through f ∘ r⁻¹ ∘ m. This is legal, and removes P, if

- P's loops are all parallel, and r is a permutation, so that r⁻¹ exists;
- C reads the value as an input, and no other operation reads anything of P: else it would be computed twice, or kept;
- every loop of C still has a size: an operand with that loop's dimension alone as an axis.

Around it MLIR's pass does what this one does, too: copies vanish (maps all equal, body only yields), equal operands
become one, values of linalg.fill are used directly, what is unused is dropped, be it a generic or one of its
results, and an init that a body does not read is empty. Reshapes move through generics: `passlab.mlir.reshaping`. MLIR
also simplifies bodies further, which this pass does not. Both move a producer into the region of its only reader, even
into a loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from passlab.mlir.groups import Group, Maps
from passlab.mlir.modules import copy
from passlab.mlir.reshaping import COLLAPSE, EXPAND, Reshapes, empty, erase, is_reshape

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Block
    from xdsl.ir.affine import AffineMap


def fuse(module: ModuleOp) -> ModuleOp:
    """Return the module with its element-wise linalg.generics fused; the one given is not changed."""
    made = copy(module)
    while _fuse(made):
        pass
    return made


def _fuse(module: ModuleOp) -> bool:
    """Fuse what can be; return whether reshapes have moved, after which there may be more."""
    from xdsl.dialects.builtin import TensorType

    ops = [op for op in module.walk() if op.results and op.name in ("linalg.generic", EXPAND, COLLAPSE)]
    maps = Maps()
    ops = [kept for op in reversed(ops) if (kept := _prune(op, maps)) is not None][::-1]
    groups: dict[Any, Group] = {}  # by a result of the last generic
    reshapes = Reshapes(groups, maps)
    for op in ops:
        if op.parent is None:
            continue
        if op.name != "linalg.generic":
            if is_reshape(op):
                reshapes.visit(op)
            continue
        if not all(isinstance(value.type, TensorType) for value in op.outputs):
            continue
        group = _start(op, maps)
        if not _is_copy(group, maps):
            group.worklist += [value for value in group.inputs if value[0] in groups]
            _take(group, groups, maps)
            while reshapes.take(group, _count_uses):
                _take(group, groups, maps)
        if _is_copy(group, maps):
            _forward(group, groups)
            continue
        for result in op.results:
            groups[result] = group
    now: dict[Any, Any] = {}
    for group in dict.fromkeys(groups.values()):
        _write(group, maps, now)
    return reshapes.moved


def _take(group: Group, groups: dict[Any, Group], maps: Maps) -> None:
    """Move producers into a group until none fits."""
    while group.worklist:
        at = group.worklist.pop()
        if at in group.inputs and at[0] in groups and _fits(group, at, groups[at[0]], maps):
            _merge(group, at, groups, maps)


def _prune(op: Any, maps: Maps) -> Any:
    """Return what is left of an operation without its unused results, or None if it is erased.

    An init that the body of a generic does not read becomes a tensor.empty, since only its size matters.
    """
    if not any(result.uses.get_length() for result in op.results):
        erase(op)
        return None
    if op.name != "linalg.generic" or len(op.results) != len(op.outputs):
        return op
    args = op.body.block.args[len(op.inputs) :]
    for at, (arg, init) in enumerate(zip(args, op.outputs, strict=True), len(op.inputs)):
        made = getattr(init.owner, "name", "") in ("linalg.generic", EXPAND, COLLAPSE)
        if made and not arg.uses.get_length() and -1 not in init.type.get_shape():
            op.operands[at] = empty(init.type, op)
    kept = [at for at, result in enumerate(op.results) if result.uses.get_length() or not _droppable(op, at)]
    return op if len(kept) == len(op.results) else _without(op, kept, maps)


def _droppable(op: Any, at: int) -> bool:
    """Return whether only the result itself, which is unused, depends on its init."""
    uses = [*op.body.block.args[len(op.inputs) + at].uses]
    if not uses:
        return True
    results = uses[0].operation.results
    ends = [use for result in results for use in result.uses]
    return len(uses) == len(results) == len(ends) == 1 and (
        ends[0].operation is op.body.block.last_op and ends[0].index == at
    )


def _without(op: Any, kept: list[int], maps: Maps) -> Any:
    """Replace a generic by one with some of its results, if they still say how long its loops run."""
    from xdsl.dialects.builtin import ArrayAttr
    from xdsl.dialects.linalg import ops as linalg
    from xdsl.transforms.dead_code_elimination import is_trivially_dead

    count, block = len(op.inputs), op.body.block
    held = [*op.indexing_maps.data[:count], *(op.indexing_maps.data[count + at] for at in kept)]
    if not _covers(maps, [maps.number(map_.data) for map_ in held], len(op.iterator_types.data)):
        return op
    end = block.last_op
    block.add_op(linalg.YieldOp(*(end.operands[at] for at in kept)))
    erase(end)
    for inner in reversed([*block.ops]):
        if is_trivially_dead(inner) or (inner.name == "linalg.index" and not inner.results[0].uses.get_length()):
            erase(inner)
    for at in reversed(range(len(op.results))):
        if at not in kept:
            block.erase_arg(block.args[count + at])
    outs = [op.outputs[at] for at in kept]
    region = op.detach_region(op.body)
    made = linalg.GenericOp(
        list(op.inputs), outs, region, ArrayAttr(held), op.iterator_types, [value.type for value in outs]
    )
    op.parent.insert_op_before(made, op)
    for at, new in zip(kept, made.results, strict=True):
        new.name_hint = op.results[at].name_hint
        op.results[at].replace_all_uses_with(new)
    erase(op)
    return made


def _start(op: Any, maps: Maps) -> Group:
    """Return the group of one generic: equal operands read once, values of linalg.fill not at all."""
    held = [maps.number(map_.data) for map_ in op.indexing_maps]
    count, args = len(op.inputs), op.body.block.args
    outs = [(value, map_, result) for value, map_, result in zip(op.outputs, held[count:], op.results, strict=True)]
    group = Group(
        op, [(op, maps.identity(len(op.iterator_types.data)))], {}, outs, members={op}, kinds=[*op.iterator_types.data]
    )
    for value, map_, arg in zip(op.inputs, held[:count], args, strict=False):
        filled = value.owner
        if getattr(filled, "name", "") == "linalg.fill":
            arg.replace_all_uses_with(filled.inputs[0])
        elif arg.uses.get_length() or not _covers(maps, held[count:], group.loops):
            group.inputs[value, map_] = None
            group.reads[arg] = (value, map_)
    _simplify(op.body.block, group.reads)
    return group


#: f(x, x) = x.
_IDEMPOTENT = {
    f"arith.{name}"
    for name in ("maximumf", "minimumf", "maxnumf", "minnumf", "maxsi", "minsi", "maxui", "minui", "andi", "ori")
}


def _simplify(block: Block, reads: dict[Any, tuple[Any, int]]) -> None:
    """Read an operand that stands twice through one argument, and drop what then computes nothing."""
    first: dict[tuple[Any, int], Any] = {}
    for arg, key in reads.items():
        if first.setdefault(key, arg) is not arg:
            arg.replace_all_uses_with(first[key])
    for op in [op for op in block.ops if op.name in _IDEMPOTENT and op.operands[0] is op.operands[1]]:
        op.results[0].replace_all_uses_with(op.operands[0])
        erase(op)


def _fits(group: Group, at: tuple[Any, int], producer: Group, maps: Maps) -> bool:
    """Return whether a producer may move into the group that reads it at an input."""
    value, map_ = at
    uses = sum(_count_uses(result, group) for _, _, result in producer.outs)
    if uses != 1 or any(kind.data.value != "parallel" for kind in producer.kinds):
        return False
    back = maps.inverse(next(out for _, out, result in producer.outs if result is value))
    if back is None:
        return False
    inside = maps.compose(back, map_)
    for _, _, result in producer.outs:  # an init that is read: each element must be met once
        if _arg(producer, result).uses.get_length() and not maps.is_permutation(inside):
            return False
    outs = [out for _, out, _ in group.outs]
    if _covers(maps, outs, group.loops):
        return True
    rest = outs + [other for value, other in group.inputs if (value, other) != at]
    rest += [maps.compose(other, inside) for _, other in producer.inputs]
    return _covers(maps, rest, group.loops)


def _count_uses(result: Any, group: Group) -> int:
    """Return how often a value is used, where the group's parts count once for each map that they read it through."""
    others = sum(use.operation not in group.members for use in result.uses)
    return (
        others + sum(value is result for value, _ in group.inputs) + sum(value is result for value, _, _ in group.outs)
    )


def _merge(group: Group, at: tuple[Any, int], groups: dict[Any, Group], maps: Maps) -> None:
    """Move the producer of an input into the group."""
    value, map_ = at
    producer = groups.pop(value)
    inside = maps.compose(maps.inverse(next(out for _, out, result in producer.outs if result is value)), map_)
    del group.inputs[at]
    kept = [(v, maps.compose(out, inside), r) for v, out, r in producer.outs if _arg(producer, r).uses.get_length()]
    group.outs = kept + group.outs
    if maps.is_identity(inside):  # the usual case, and the one where long chains would take long
        group.worklist += [key for key in group.inputs if key in producer.inputs and key[0] in groups]  # now read once
        producer.inputs |= group.inputs
        producer.reads |= group.reads
        producer.parts += group.parts
        producer.members |= group.members
        group.inputs, group.reads = producer.inputs, producer.reads
        group.parts, group.members = producer.parts, producer.members
        return
    moved = {key: (key[0], maps.compose(key[1], inside)) for key in producer.inputs}
    for key in moved.values():
        group.inputs[key] = None
        if key[0] in groups:
            group.worklist.append(key)
    group.reads |= {arg: moved.get(key, key) for arg, key in producer.reads.items()}
    group.members |= producer.members
    group.parts = [(part, maps.compose(own, inside)) for part, own in producer.parts] + group.parts


def _arg(group: Group, result: Any) -> Any:
    """Return the argument of a body that holds a result's init."""
    op = result.owner
    return op.body.block.args[len(op.inputs) + result.index]


def _is_copy(group: Group, maps: Maps) -> bool:
    """Return whether all that a group does is to yield its operands as they are."""
    if any(len(part.body.block.ops) != 1 for part, _ in group.parts) or len(group.outs) != len(group.last.results):
        return False
    return all(
        found is not None and found[1] == map_ and found[0].type == result.type
        for (_, map_, result), found in zip(group.outs, _forwarded_inputs(group), strict=True)
    )


def _forwarded_inputs(group: Group) -> list[tuple[Any, int] | None]:
    """Return the input that each result of a copying group has, or None."""
    found = []
    for value in group.last.body.block.last_op.operands:
        while value not in group.reads:
            return [None] * len(group.outs)
        found.append(_source(group, value))
    return found


def _source(group: Group, arg: Any) -> tuple[Any, int] | None:
    """Return the input of the group that an argument holds, through parts that only yield."""
    key = group.reads.get(arg)
    while key is not None and key not in group.inputs:
        owner = key[0].owner
        key = group.reads.get(owner.body.block.last_op.operands[key[0].index])
    return key


def _forward(group: Group, groups: dict[Any, Group]) -> None:
    """Let the readers of a copy read what it copies."""
    for (_, _, result), found in zip(group.outs, _forwarded_inputs(group), strict=True):
        result.replace_all_uses_with(found[0])
    for part, _ in reversed(group.parts):
        erase(part)


def _covers(maps: Maps, held: Iterable[int], loops: int) -> bool:
    """Return whether each loop's dimension is an axis by itself in one of the maps."""
    return set().union(*(maps.plain(map_) for map_ in held)) >= set(range(loops))


# ---------------------------------------------------------------------------------------------------- writing


def _write(group: Group, maps: Maps, now: dict[Any, Any]) -> None:
    """Replace the generics of a group by one. now: result of a replaced generic → that of the one in its place."""
    from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr
    from xdsl.dialects.linalg import ops as linalg
    from xdsl.ir import Block, Region

    last = group.last
    if len(group.parts) == 1 and len(group.inputs) == len(last.inputs) and not group.split:
        return
    kept = [(value, map_) for value, map_, _ in group.outs]
    body = Block(arg_types=[getattr(v.type, "element_type", v.type) for v, _ in (*group.inputs, *kept)])
    place = dict(zip(group.inputs, body.args, strict=False))
    yields: dict[Any, Any] = {}  # result of a generic → what its body yields
    after = len(group.inputs)
    inits = {result: arg for (_, _, result), arg in zip(group.outs, body.args[after:], strict=True)}
    for part, own in group.parts:
        block = part.body.block
        for arg in block.args[: len(part.inputs)]:
            if arg in group.reads:
                key = group.reads[arg]
                arg.name_hint and key in place and setattr(place[key], "name_hint", arg.name_hint)
                arg.replace_all_uses_with(place[key] if key in place else yields[key[0]])
        for result, arg in zip(part.results, block.args[len(part.inputs) :], strict=True):
            if result in inits:
                arg.replace_all_uses_with(inits[result])
        end = block.last_op
        for op in [*block.ops][:-1]:
            op.detach()
            body.add_op(op)
            if op.name == "linalg.index" and not maps.is_identity(own):
                _index(op, maps.data(own), body)
        yields |= dict(zip(part.results, end.operands, strict=True))
    body.add_op(linalg.YieldOp(*(yields[result] for _, _, result in group.outs)))
    made = linalg.GenericOp(
        [now.get(value, value) for value, _ in group.inputs],
        [now.get(value, value) for value, _ in kept],
        Region(body),
        [AffineMapAttr(maps.data(map_)) for _, map_ in (*group.inputs, *kept)],
        ArrayAttr(group.kinds),
        [result.type for _, _, result in group.outs],
    )
    last.parent.insert_op_before(made, last)
    for (_, _, result), new in zip(group.outs, made.results, strict=True):
        new.name_hint = result.name_hint
        result.replace_all_uses_with(new)
        now[result] = new
    for part, _ in reversed(group.parts):
        erase(part)


def _index(op: Any, map_: AffineMap, body: Block) -> None:
    """Let a linalg.index of a producer count in the loops of the fused generic."""
    from xdsl.dialects import affine
    from xdsl.dialects.builtin import AffineMapAttr
    from xdsl.dialects.linalg import ops as linalg
    from xdsl.ir.affine import AffineMap

    loops = [linalg.IndexOp(dim) for dim in range(map_.num_dims)]
    apply = affine.ApplyOp(
        [loop.results[0] for loop in loops],
        AffineMapAttr(AffineMap(map_.num_dims, 0, (map_.results[op.dim.value.data],))),
    )
    body.add_ops([*loops, apply])
    op.results[0].replace_all_uses_with(apply.results[0])
    erase(op)
