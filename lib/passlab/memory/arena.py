"""Run a graph in one arena, at the offsets of a plan.

    arena.run(gm, plan, *inputs)          # bit-equal to gm(*inputs)

Views need no care: an operation that returns a view of its operand returns a view into the arena. Only new storages
move to their offset: the operator writes there through `out=`, or the result is copied.
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
    """Return the graph's result, with its storages at the plan's offsets, on the device of the inputs.

    Raises BadPlan for an invalid plan. With `checked=False` any plan runs, and live storages that share bytes hold
    wrong numbers. `poison` fills the arena with 0xFF beforehand: floats are then NaN, which reveals reads of bytes that
    were not written.
    """
    if checked:
        check_plan(gm, plan, *inputs)
    device = next((value.device for value in inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))
    with torch.no_grad():
        try:
            memory = torch.empty(plan.arena + ALIGNMENT, dtype=torch.uint8, device=device)
        except (RuntimeError, TypeError):  # not enough memory, or not a number for torch
            raise BadPlan(f"The machine has no memory for an arena of {plan.arena:,} bytes: make it smaller.") from None
        memory = memory[-memory.data_ptr() % ALIGNMENT :][: plan.arena]
        if poison:
            memory.fill_(0xFF)
        return _Runner(gm, plan, memory, inputs).value()


class _Runner(fx.Interpreter):
    """Interpret a graph in the order of a plan, and move the new storages of each node to their offsets."""

    def __init__(self, gm: fx.GraphModule, plan: Plan, memory: torch.Tensor, inputs: tuple):
        super().__init__(gm, garbage_collect_values=False)
        self.plan, self.memory = plan, memory
        self.base = memory.data_ptr() - memory.untyped_storage().data_ptr()
        self.allocated: dict[str, list[str]] = {}  # node → names of its storages
        known, self.likes = recorded(gm, *inputs)
        for storage in known:
            if storage.kind == "value":
                self.allocated.setdefault(storage.name.split(".")[0], []).append(storage.name)
        self.args_iter = iter(inputs)
        self.direct = 0

    def value(self) -> Any:
        nodes = {node.name: node for node in self.module.graph.nodes}
        for node in nodes.values():  # inputs are in the order of the graph, not of the plan
            if node.op == "placeholder":
                self.env[node] = self.run_node(node)
        for name in self.plan.order:
            node = nodes[name]
            if node.op == "placeholder":
                continue
            if node.op == "output":
                return self.map_nodes_to_values(node.args[0], node)
            value = self._direct(node) if node.name in self.allocated else None
            self.env[node] = value if value is not None else self._copied(node, self.run_node(node))
        raise BadPlan("The order does not reach the output.")

    def _copied(self, node: fx.Node, value: Any) -> Any:
        """Return the value with each new storage copied to its offset in the arena."""
        places: dict[int, int] = {}
        names = iter(self.allocated.get(node.name, ()))
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

        return tree_map_only(torch.Tensor, move, value) if node.name in self.allocated else value

    def _known(self, node: fx.Node) -> set[int]:
        """Return the addresses of storages that are not new: the arena's and those of the node's operands."""
        known = {self.memory.untyped_storage().data_ptr()}
        for leaf in tree_leaves([self.env[operand] for operand in node.all_input_nodes]):
            if isinstance(leaf, torch.Tensor):
                known.add(leaf.untyped_storage().data_ptr())
        return known

    def _at(self, start: int, like: torch.Tensor, node: fx.Node) -> torch.Tensor:
        """Return a tensor with the layout of `like` whose storage starts at byte `start` of the arena's."""
        width, offset = like.dtype.itemsize, start - self.base
        if start % width:
            where = f"byte {offset} of the arena"
            raise BadPlan(f"{node.name}, of {like.dtype}, cannot start at {where}: align it to {width}.")
        tensor = torch.empty(0, dtype=like.dtype, device=self.memory.device)
        first = start // width + like.storage_offset()
        return tensor.set_(self.memory.untyped_storage(), first, like.size(), like.stride())

    def _direct(self, node: fx.Node) -> torch.Tensor | None:
        """Run the operator's `out=` overload into the arena; None without one or for an unsuitable layout."""
        like = self.likes[node.name]
        out = out_overload(node.target) if node.op == "call_function" else None
        if out is None or like is None or not like.numel():
            return None
        if like.storage_offset() or not like.is_contiguous() or like.untyped_storage().nbytes() != like.nbytes:
            return None
        start = self.plan.offsets[self.allocated[node.name][0]]
        end = start + like.nbytes
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        if any(self._meets(leaf, start, end) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)):
            return None  # torch refuses an output that overlaps an operand; a copy shows the effect of such a plan
        result = self._at(self.base + start, like, node)
        out(*args, **kwargs, out=result)
        self.direct += 1
        return result

    def _meets(self, tensor: torch.Tensor, start: int, end: int) -> bool:
        first = tensor.data_ptr() - self.memory.data_ptr()
        span = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        return first < end and start < first + span * tensor.dtype.itemsize


def _bytes(tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """Return bytes of a tensor's storage, as a view."""
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return view.set_(tensor.untyped_storage(), start, (count,), (1,))


@lru_cache(maxsize=1024)
def out_overload(target: Any) -> Any:
    """Return the overload of an ATen operator that takes the same arguments and writes its one result into `out`."""
    if not isinstance(target, torch._ops.OpOverload) or len(target._schema.returns) != 1:
        return None
    if torch.Tag.pointwise not in target.tags:  # others may round differently with `out`
        return None
    signature = [(a.name, str(a.type)) for a in target._schema.arguments]
    for name in target.overloadpacket.overloads():
        overload = getattr(target.overloadpacket, name)
        arguments = overload._schema.arguments
        outs = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        others = [(a.name, str(a.type)) for a in arguments if a not in outs]
        if [a.name for a in outs] == ["out"] and others == signature:
            return overload
    return None


def bit_equal(a: Any, b: Any) -> bool:
    """Return whether two results have the same shapes, dtypes and bits, NaN included."""
    left, right = tree_leaves(a), tree_leaves(b)
    return len(left) == len(right) and all(map(_same_bits, left, right))


def _same_bits(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return a == b
    if not isinstance(b, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return False
    flat = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(*flat) if a.numel() else True
