"""Whether fusing makes a graph faster, by the clock: both sides of the choice, built and timed.

    both = Sides.of(gm, [["mul", "add"]], inputs)      # a kernel for each operation, and one for each group
    both.run()
    both.gain                                          # the speedup of fusing

`passlab.relax.fusing` makes a kernel of each group: it computes one value, and everything else in the group in place,
as often as it is read there. Both sides get the same rule of scheduling, run one after the other on one core, which
disturbs the clock least, and count with their least times.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from passlab.relax.cpu import cpu_schedule, host
from passlab.relax.fusing import fuse, merged, prepare
from passlab.relax.pipelines import kernels
from passlab.tvm import builds

#: Sides that differ by less than this factor are equally good.
CLOSE = 1.2

_AS_RELAX: dict[Any, str] = {
    operator.add: "add", operator.sub: "subtract", operator.mul: "multiply", torch.abs: "abs", torch.relu: "nn.relu",
    torch.exp: "exp", torch.erf: "erf", torch.tanh: "tanh", torch.sigmoid: "sigmoid", torch.matmul: "matmul",
}  # fmt: skip


def as_relax(gm: fx.GraphModule) -> Any:
    """Return the graph as a Relax module whose bindings have the names of the nodes."""
    from passlab.relax import relax

    builder, values = relax.BlockBuilder(), {}
    for node in gm.graph.find_nodes(op="placeholder"):
        shape = tuple(node.meta["tensor_meta"].shape)
        values[node] = relax.Var(node.name, relax.TensorType(shape, "float32"))
    returned: Any = gm.graph.output_node().args[0]
    with builder.function("main", list(values.values())):
        with builder.dataflow():
            for node in gm.graph.nodes:
                if node.op == "call_function":
                    emit = builder.emit_output if node is returned else builder.emit
                    values[node] = emit(_expression(node, values), node.name)
            result = values[returned] if isinstance(returned, fx.Node) else None
            if result is None:
                result = builder.emit_output(relax.Tuple([values[node] for node in returned]))
        builder.emit_func_output(result)
    return builder.get()


def _expression(node: fx.Node, values: dict) -> Any:
    from passlab.relax import relax

    if node.target is torch.sum:
        return relax.op.sum(values[node.args[0]], axis=[node.args[1]], keepdims=node.args[2])
    operands = [values[a] if isinstance(a, fx.Node) else relax.const(a, "float32") for a in node.args]
    return operator.attrgetter(_AS_RELAX[node.target])(relax.op)(*operands)


@dataclass
class Sides:
    """Two modules, with a kernel for each operation (`apart`) and for each group (`fused`), and the shortest time of
    each so far, in seconds."""

    modules: tuple[Any, Any]
    inputs: list[torch.Tensor]
    apart: float = float("inf")
    fused: float = float("inf")

    @classmethod
    def of(cls, gm: fx.GraphModule, groups: Sequence[Sequence[str]], inputs: list[torch.Tensor]) -> Sides:
        """Return both sides of a graph whose groups are given by the names of their nodes. Nothing runs yet."""
        module = prepare(as_relax(gm))
        scheduled = kernels(fuse=False, schedule=cpu_schedule)
        return cls((scheduled(module), scheduled(fuse(module, groups, in_place))), inputs)

    def run(self) -> None:
        """Time another round. Raise RuntimeError if a side cannot be built or run."""
        for name, module in zip(("apart", "fused"), self.modules, strict=True):
            built = builds.run_module(
                module, [self.inputs], target=str(host()), pipeline="none", repeats=3, threads=1, seconds=20
            )
            if not built.ok:
                raise RuntimeError(f"The module with the kernels {name} did not run: {built.error}")
            setattr(self, name, min(getattr(self, name), *built.times))

    @property
    def gain(self) -> float:
        """The speedup of fusing."""
        return self.apart / self.fused

    def wrong(self, choice: bool) -> bool:
        """Return whether the other side is clearly faster than this choice."""
        return self.gain < 1 / CLOSE if choice else self.gain > CLOSE


def in_place(kernel: Any) -> Any:
    """Return a kernel's loops as the schedule needs them: element-wise operations are computed where they are read.

    Sums go inside the loops that read them, unless there is one for each element: then the schedule puts the reader
    after each tile of sums, as it does where there is no reader.
    """
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(kernel)
    *before, last = schedule.get_child_blocks(schedule.get_sblock("root"))
    sums = [block for block in before if schedule.get(block).init is not None]
    if any(_sizes(schedule.get(block)) != _sizes(schedule.get(last)) for block in sums):
        return merged(kernel)
    for block in before:
        if block not in sums:
            schedule.compute_inline(block)
    return schedule.mod["main"]


def _sizes(block: Any) -> list[int]:
    """Return the lengths of the loops that are not reductions."""
    return [int(axis.dom.extent) for axis in block.iter_vars if int(axis.iter_type) == 0]
