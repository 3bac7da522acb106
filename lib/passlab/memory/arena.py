"""Run a graph in one arena, as its plan says.

    arena.run(gm, plan, *inputs)          # bit-equal to gm(*inputs)

Views need no care: an operation that returns a view of its operand returns a view into the arena. Only what an
operation makes anew has to get to its place: directly, through the operator's `out=`, or by a copy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map_only

from passlab.memory.buffers import BadPlan
from passlab.memory.plan import ALIGNMENT, Plan, check_plan
from passlab.memory.storages import recorded


def run(gm: fx.GraphModule, plan: Plan, *inputs: torch.Tensor, checked: bool = True, poison: bool = True) -> Any:
    """Return what the graph returns; what it makes lies at the plan's offsets, on the device of the inputs.

    Raises BadPlan first for a wrong plan. With `checked=False` it runs whatever the plan says, and where two live
    storages share bytes the numbers are wrong. `poison` fills the arena with 0xFF beforehand: floats are then NaN, so
    what is read before it is written cannot be missed.
    """
    if checked:
        check_plan(gm, plan, *inputs)
    device = next((value.device for value in inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))
    with torch.no_grad():
        try:
            memory = torch.empty(plan.arena + ALIGNMENT, dtype=torch.uint8, device=device)
        except (RuntimeError, TypeError):  # no memory; no number for torch
            raise BadPlan(f"The machine has no memory for an arena of {plan.arena:,} bytes: make it smaller.") from None
        memory = memory[-memory.data_ptr() % ALIGNMENT :][: plan.arena]
        if poison:
            memory.fill_(0xFF)
        return _Runner(gm, plan, memory, inputs).value()


class _Runner(fx.Interpreter):
    """Interpret a graph in the order of a plan, and bring what each node makes to its place."""

    def __init__(self, gm: fx.GraphModule, plan: Plan, memory: torch.Tensor, inputs: tuple):
        super().__init__(gm, garbage_collect_values=False)
        self.plan, self.memory = plan, memory
        self.base = memory.data_ptr() - memory.untyped_storage().data_ptr()
        self.made: dict[str, list[str]] = {}
        found, self.likes = recorded(gm, *inputs)
        for storage in found:
            if storage.kind == "value":
                self.made.setdefault(storage.name.split(".")[0], []).append(storage.name)
        self.args_iter = iter(inputs)
        self.direct = 0

    def value(self) -> Any:
        nodes = {node.name: node for node in self.module.graph.nodes}
        for node in nodes.values():  # inputs come in the order of the graph, whatever the plan's
            if node.op == "placeholder":
                self.env[node] = self.run_node(node)
        for name in self.plan.order:
            node = nodes[name]
            if node.op == "placeholder":
                continue
            if node.op == "output":
                return self.map_nodes_to_values(node.args[0], node)
            into = self._direct(node) if node.name in self.made else None
            self.env[node] = into if into is not None else self._placed(node, self.run_node(node))
        raise BadPlan("The order does not reach the output.")

    def _placed(self, node: fx.Node, value: Any) -> Any:
        """Return the value with each new storage moved to its place in the arena."""
        places: dict[int, int] = {}
        names = iter(self.made.get(node.name, ()))
        known = self._known(node)

        def move(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            key = storage.data_ptr()
            if not storage.nbytes() or key in known:
                return tensor
            if key not in places:
                places[key] = self.base + self.plan.offsets[next(names)]
                _bytes(self.memory, places[key], storage.nbytes()).copy_(_bytes(tensor, 0, storage.nbytes()))
            return self._at(places[key], tensor, node)

        return tree_map_only(torch.Tensor, move, value) if node.name in self.made else value

    def _known(self, node: fx.Node) -> set[int]:
        """Return where the storages begin that the node did not make: the arena, its operands, what modules hold."""
        known = {self.memory.untyped_storage().data_ptr()}
        for leaf in tree_leaves([self.env[operand] for operand in node.all_input_nodes]):
            if isinstance(leaf, torch.Tensor):
                known.add(leaf.untyped_storage().data_ptr())
        return known

    def _at(self, start: int, like: torch.Tensor, node: fx.Node) -> torch.Tensor:
        """Return a tensor in the arena, with the storage that begins at byte `start` laid out as that of `like`."""
        width, at = like.dtype.itemsize, start - self.base
        if start % width:
            raise BadPlan(f"Byte {at} of the arena is no place for {node.name}, of {like.dtype}: align it to {width}.")
        made = torch.empty(0, dtype=like.dtype, device=self.memory.device)
        first = start // width + like.storage_offset()
        return made.set_(self.memory.untyped_storage(), first, like.size(), like.stride())

    def _direct(self, node: fx.Node) -> torch.Tensor | None:
        """Run the operator's `out=` overload straight into the arena, if it has one and the result is known."""
        like = self.likes[node.name]
        out = out_overload(node.target) if node.op == "call_function" else None
        if out is None or like is None or not like.numel():
            return None
        if like.storage_offset() or not like.is_contiguous() or like.untyped_storage().nbytes() != like.nbytes:
            return None
        name = self.made[node.name][0]
        mine = (self.plan.offsets[name], self.plan.offsets[name] + like.nbytes)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        if any(self._meets(leaf, *mine) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)):
            return None  # torch refuses to write where it reads; a copy shows what such a plan does
        made = self._at(self.base + mine[0], like, node)
        out(*args, **kwargs, out=made)
        self.direct += 1
        return made

    def _meets(self, tensor: torch.Tensor, start: int, end: int) -> bool:
        first = tensor.data_ptr() - self.memory.data_ptr()
        span = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        return first < end and start < first + span * tensor.dtype.itemsize


def _bytes(tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """Return bytes of a tensor's storage, as a view."""
    made = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return made.set_(tensor.untyped_storage(), start, (count,), (1,))


@lru_cache(maxsize=1024)
def out_overload(target: Any) -> Any:
    """Return the overload of an ATen operator that takes the same arguments and writes its one result into `out`."""
    if not isinstance(target, torch._ops.OpOverload) or len(target._schema.returns) != 1:
        return None
    if torch.Tag.pointwise not in target.tags:  # others may round differently when they write elsewhere
        return None
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments]
    for name in target.overloadpacket.overloads():
        overload = getattr(target.overloadpacket, name)
        arguments = overload._schema.arguments
        outs = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        others = [(a.name, str(a.type)) for a in arguments if a not in outs]
        if [a.name for a in outs] == ["out"] and others == wanted:
            return overload
    return None


def bit_equal(one: Any, other: Any) -> bool:
    """Return whether two results have the same shapes, dtypes and bits, NaN included."""
    left, right = tree_leaves(one), tree_leaves(other)
    return len(left) == len(right) and all(map(_same_bits, left, right))


def _same_bits(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return one == other
    if not isinstance(other, torch.Tensor) or one.shape != other.shape or one.dtype != other.dtype:
        return False
    flat = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (one, other))
    return torch.equal(*flat) if one.numel() else True
