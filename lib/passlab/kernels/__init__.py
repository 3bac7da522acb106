"""Compile groups of operations in an FX graph to kernels, which the graph calls in their place.

    after = fused(gm, [["mul", "add", "relu"]])      # `mul`, `add` and `relu` are one call of a Kernel
    launches(after, x)                               # one kernel where there were three
    one = kernel(subgraph(gm, ["mul", "add", "relu"]))
    print(one.source())                              # the kernel as TensorIR

A group may hold element-wise operations, broadcasts, views and reductions. TVM builds its kernel for the CPU or a GPU;
with backend="triton", Triton does. Tensors pass without a copy (DLPack), non-contiguous ones too: a kernel is built for
the shapes, strides and types of its inputs, and rebuilt for others. No gradient flows through a kernel.

Reading order: which groups are legal, cutting a group out, the kernel, the graph that calls it.
"""

from __future__ import annotations

import collections
import copy
import difflib
import heapq
import operator
import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from passlab.fx.effects import EFFECTS, effects, has_effects, may_alias, memory_order, written
from passlab.fx.measure import note_kernel
from passlab.fx.nodes import attribute, op_name
from passlab.kernels import code as kernel_code
from passlab.kernels.primitives import Unsupported, primitives, state
from passlab.kernels.schedule import DEFAULT, Knobs

if TYPE_CHECKING:
    import tvm

#: What kernels can be generated for.
BACKENDS = ("tvm", "triton")

Groups = Sequence[Sequence[str]]


# ------------------------------------------------------------------------------------------------ which groups can be


def illegal(
    gm: fx.GraphModule, groups: Groups, accepts: Callable[[list[fx.Node]], bool] = lambda chosen: False
) -> str | None:
    """Return why these groups cannot be kernels, in one sentence that names a node; None if they can.

    The graph's nodes carry their shapes (`passlab.trace(model, x)`). accepts: whether the nodes of a group, in graph
    order, have a kernel from elsewhere, so that none needs to be made here.
    """
    nodes = {node.name: node for node in gm.graph.nodes}
    if not isinstance(groups, list | tuple):
        return f"Groups must be a list of lists of node names; got {type(groups).__name__}."
    where: dict[fx.Node, int] = {}  # node → its group
    for number, group in enumerate(groups):
        if not isinstance(group, list | tuple) or not group or not all(isinstance(name, str) for name in group):
            return f"A group must be a non-empty list of node names; got {str(group)[:60]!r}."
        for name in group:
            if name not in nodes:
                near = difflib.get_close_matches(name, nodes, 2, 0.5)
                hint = f" Did you mean {' or '.join(near)}?" if near else ""
                return f"There is no node {name!r} in this graph.{hint}"
            if nodes[name] in where:
                both = "in two groups" if where[nodes[name]] != number else "in its group twice"
                return f"Node {name!r} is {both}: only one kernel can take its place."
            where[nodes[name]] = number
    devices = _devices(gm)
    for node in where:
        if why := _unfit(node, devices):
            return why
    if why := _cut_off(gm.graph, where):
        return why
    return _cycle(gm.graph, groups, where) or next(
        filter(None, (_no_kernel(gm, chosen) for chosen in _select_nodes(gm, where) if not accepts(chosen))), None
    )


def _select_nodes(gm: fx.GraphModule, where: dict[fx.Node, int]) -> list[list[fx.Node]]:
    """Return the nodes of each group, in graph order."""
    found: dict[int, list[fx.Node]] = {number: [] for number in sorted(set(where.values()))}
    for node in gm.graph.nodes:
        if node in where:
            found[where[node]].append(node)
    return list(found.values())


def _unfit(node: fx.Node, devices: dict[fx.Node, str]) -> str | None:
    """Return why a node cannot be in any group, or None."""
    if node.op in ("placeholder", "output", "get_attr"):
        what = {"placeholder": "an input", "output": "the output", "get_attr": "a constant"}[node.op]
        return f"Node {node.name!r} is {what} of the graph: a kernel can hold only calls."
    if found := effects(node):
        effect = min(found, key=list(EFFECTS).index)
        return f"Node {node.name!r} has a side effect, which a kernel cannot have: {EFFECTS[effect]}."
    if isinstance(_value(node), int | float | torch.Size):
        return f"Node {node.name!r} makes {_value(node)!r}, which is not a tensor: a kernel writes tensors only."
    types: dict[torch.dtype, str] = {}
    for operand in node.all_input_nodes:
        value = _value(operand)
        if not hasattr(value, "dtype"):
            return f"Node {operand.name!r} has no shape: make the graph with passlab.trace(model, x)."
        if len(value.shape) and value.dtype != torch.bool:
            types.setdefault(value.dtype, operand.name)
    places = {devices[a]: a.name for a in node.all_input_nodes if a in devices and len(_value(a).shape)}
    if len(places) > 1:
        told = " and ".join(f"{name!r} on {device}" for device, name in places.items())
        return f"Node {node.name!r} reads {told}: a kernel runs on one device."
    if places and devices.get(node) not in (None, *places):
        return f"Node {node.name!r} moves a tensor from {next(iter(places))} to {devices[node]}: a kernel runs on one."
    if len(types) > 1:
        told = " and ".join(f"{name!r} ({str(dtype).removeprefix('torch.')})" for dtype, name in types.items())
        return f"Node {node.name!r} mixes {told}: put a cast before it."
    return None


def _cut_off(graph: fx.Graph, where: dict[fx.Node, int]) -> str | None:
    """Return why a group would cut a view off from memory that the program writes, or None."""
    if not has_effects(graph):
        return None
    changed = written(graph)
    for node in where:
        leaves = any(where.get(user) != where[node] for user in node.users)
        if node in changed and may_alias(node) and leaves:
            return (
                f"Node {node.name!r} is a view of memory that the program writes: what a kernel makes is a tensor of "
                "its own, which would not change with it."
            )
    return None


def _value(node: fx.Node) -> Any:
    """Return the metadata of a node's value: at least shape and dtype."""
    meta = node.meta
    found = meta.get("val", meta.get("tensor_meta", meta.get("example_value")))
    if found is None and node.op == "get_attr":
        return attribute(node.graph.owning_module, node.target)
    return found


def _devices(gm: fx.GraphModule) -> dict[fx.Node, str]:
    """Return the device of each node, as far as the graph tells, from inputs and constants on through moves."""
    found, given = {}, iter(gm.meta.get("inputs") or ())
    for node in gm.graph.nodes:
        known = (
            attribute(gm, node.target)
            if node.op == "get_attr"
            else next(given, None)
            if node.op == "placeholder"
            else None
        )
        device = getattr(_value(node), "device", None) or getattr(known, "device", None)
        if device is None:
            asked = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, str | torch.device)]
            named = [a for a in asked if re.fullmatch(r"(cpu|cuda|meta|mps|xpu)(:\d+)?", str(a))]
            device = named[0] if named else {"cpu": "cpu", "cuda": "cuda"}.get(str(node.target))
        if device is None:
            device = next((found[a] for a in node.all_input_nodes if a in found), None)
        if device is not None:
            found[node] = str(device)
    return found


def steps(graph: fx.Graph, where: dict[fx.Node, int]) -> list[list[fx.Node]]:
    """Return the steps of a graph in the order they run, each group as one step. `where`: node → group.

    A step waits for its operands, and keeps the order of writes and random draws (`memory_order`). Steps on a cycle,
    which wait for themselves, are left out. The order follows the graph where it can.
    """
    later = _later(graph)
    step = {node: where.get(node, node) for node in graph.nodes}
    members: dict[Any, list[fx.Node]] = {}
    for node, at in step.items():
        members.setdefault(at, []).append(node)
    waiting = dict.fromkeys(members, 0)
    for node, at in step.items():
        for user in later[node]:
            waiting[step[user]] += step[user] is not at
    place = {at: number for number, at in enumerate(members)}
    ready, order, steps = [place[at] for at, count in waiting.items() if not count], [], list(members)
    heapq.heapify(ready)
    while ready:
        at = steps[heapq.heappop(ready)]
        order.append(members[at])
        for user in (user for node in members[at] for user in later[node] if step[user] is not at):
            waiting[step[user]] -= 1
            if not waiting[step[user]]:
                heapq.heappush(ready, place[step[user]])
    return order


def _later(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return, for each node, those that have to run after it: its users, and what `memory_order` puts behind it."""
    later = {node: list(node.users) for node in graph.nodes}
    for node, before in (memory_order(graph) if has_effects(graph) else {}).items():
        for earlier in before:
            later[earlier].append(node)
    return later


def _cycle(graph: fx.Graph, groups: Groups, where: dict[fx.Node, int]) -> str | None:
    """Return why the groups form a cycle, or None. A kernel starts when all its inputs are ready and delivers its
    values at its end, so no path may leave a group and re-enter it, directly or through other groups.
    """
    ran = {node for nodes in steps(graph, where) for node in nodes}
    stuck = dict.fromkeys(where[node] for node in where if node not in ran)
    later = _later(graph) if stuck else {}
    for number in stuck:
        if (way := _way_back(where, number, later)) is not None:
            out, *through, back = (node.name for node in way)
            named = f"The group ({', '.join(groups[number])})"
            return (
                f"{named} has a cycle: {out!r} leaves it, and the path through {', '.join(map(repr, through))} "
                f"re-enters it at {back!r}."
            )
    return None


def _way_back(where: dict[fx.Node, int], number: int, later: dict[fx.Node, list[fx.Node]]) -> list[fx.Node] | None:
    """Return a path that leaves a group and re-enters it; its two ends are in the group."""
    members: dict[int, list[fx.Node]] = {}
    for node, at in where.items():
        members.setdefault(at, []).append(node)
    before: dict[fx.Node, fx.Node] = {}
    todo = collections.deque(members[number])
    while todo:
        node = todo.popleft()
        for user in later[node]:
            if where.get(user) == number:
                if where.get(node) != number:  # re-entered
                    way = [user, node]
                    while where.get(way[-1]) != number:
                        way.append(before[way[-1]])
                    return way[::-1]
            elif user not in before:
                before[user] = node
                todo.append(user)
                for other in members.get(where.get(user), ()):  # entering a group leads to all of its results
                    if other not in before:
                        before[other] = user
                        todo.append(other)
    return None


def _no_kernel(gm: fx.GraphModule, chosen: list[fx.Node]) -> str | None:
    try:
        part = cut(gm, chosen)
        primitives(part, _examples(part))
    except Unsupported as error:
        return str(error)
    return None


# ------------------------------------------------------------------------------------------------ cutting a group out


def subgraph(gm: fx.GraphModule, group: Sequence[str]) -> fx.GraphModule:
    """Cut a group out as a separate graph: its operands become placeholders, the values used outside its outputs.

    Parameters and modules are shared with `gm`. `meta["inputs_of"]` and `meta["outputs_of"]` name the nodes of `gm`
    that the placeholders and outputs stand for.
    """
    names = set(group)
    return cut(gm, [node for node in gm.graph.nodes if node.name in names])


def cut(gm: fx.GraphModule, chosen: list[fx.Node]) -> fx.GraphModule:
    """`subgraph` of nodes in graph order."""
    inside, graph, new = set(chosen), fx.Graph(), {}
    reads = list(dict.fromkeys(a for node in chosen for a in node.all_input_nodes if a not in inside))
    for node in reads:
        if node.op == "get_attr":
            new[node] = graph.node_copy(node)
        else:
            new[node] = graph.create_node("placeholder", node.name, name=node.name)
            new[node].meta = dict(node.meta)
    for node in chosen:
        new[node] = graph.node_copy(node, new.__getitem__)
    results = [node for node in chosen if any(user not in inside for user in node.users) or not node.users]
    made = tuple(new[node] for node in results)
    graph.output(made[0] if len(made) == 1 else made)
    part = fx.GraphModule(gm, graph)
    part.meta["inputs_of"] = [node.name for node in reads if node.op != "get_attr"]
    part.meta["outputs_of"] = [node.name for node in results]
    part.training = gm.training  # train() would change the modules, which gm shares
    return part


def _examples(gm: fx.GraphModule, device: Any = None, strides: Sequence[Sequence[int]] | None = None) -> tuple:
    """Return inputs without data, as the placeholders describe them."""
    found = []
    for at, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        value = _value(node)
        if not hasattr(value, "dtype"):
            raise ValueError(f"Input {node.name!r} has no shape: make the graph with passlab.trace(model, x).")
        steps = strides[at] if strides is not None else _strides(value)
        place = device or getattr(value, "device", None) or next((p.device for p in state(gm).values()), "cpu")
        with FakeTensorMode():
            found.append(torch.empty_strided(value.shape, steps, dtype=value.dtype, device=place))
    return tuple(found)


def _strides(value: Any) -> Sequence[int]:
    return value.stride() if isinstance(value, torch.Tensor) else value.stride


def prim_func(gm: fx.GraphModule, *, strides: Sequence[Sequence[int]] | None = None) -> tvm.tirx.PrimFunc:
    """Return a graph that is one group as one unscheduled TensorIR function: its parameters are the inputs in order,
    parameters and buffers of the graph, then the outputs.

    strides: of the inputs, where they differ from those noted on the placeholders. A non-contiguous input is a flat
    parameter of all the elements that it spans. Raise Unsupported, which names the node.
    """
    examples = _examples(gm, strides=strides)
    program = primitives(gm, examples)
    return kernel_code.tensor_ir(program, _names(gm, program, examples))


def triton_source(gm: fx.GraphModule, name: str) -> tuple[str, list[str]]:
    """Return a graph that is one group as Triton source, and what the pointers of its kernel `name` are, in order:
    names of placeholders, parameters and buffers, then of nodes that the graph returns.

    The last parameter is BLOCK, and each program makes that many elements. Raise Unsupported, which names the node.
    """
    from passlab.kernels import triton

    examples = _examples(gm)
    program = primitives(gm, examples)
    placeholders = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    known = [n for n, x in zip(placeholders, examples, strict=True) if isinstance(x, torch.Tensor)] + [*state(gm)]
    made, (output,) = kernel_code.results(program), program.graph.find_nodes(op="output")
    returned = gm.graph.find_nodes(op="output")[0].all_input_nodes
    if made != list(output.args[0]):
        raise Unsupported(returned[0].name, "for Triton, each result of a group must be a tensor of its own")
    text = triton.source(program, _names(gm, program, examples), (), name)
    return text, [*(known[at] for at, _ in kernel_code.operands(program)), *(node.name for node in returned)]


def _names(gm: fx.GraphModule, program: fx.GraphModule, inputs: Sequence[Any]) -> list[str]:
    """Name a kernel's inputs for its source."""
    placeholders = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    names = [name for name, x in zip(placeholders, inputs, strict=False) if isinstance(x, torch.Tensor)] + [*state(gm)]
    return [re.sub(r"\W", "_", names[at]) for at, _ in kernel_code.operands(program)]


# ------------------------------------------------------------------------------------------------ the kernel


class _CompiledKernel:
    """A compiled program, and how to allocate its outputs. `skips`: see `code.Layout`."""

    def __init__(
        self, gm: fx.GraphModule, inputs: Sequence[Any], skips: Sequence[int], backend: str, name: str, knobs: Knobs
    ):
        program = primitives(gm, inputs)
        names = _names(gm, program, inputs)
        (output,) = program.graph.find_nodes(op="output")
        placeholders = program.graph.find_nodes(op="placeholder")
        written = kernel_code.results(program)
        layouts = [kernel_code.result_layout(node) for node in written]
        self.operand_layouts = [
            (at, kernel_code.layout(n.meta["val"], skips[at])) for at, n in kernel_code.operands(program)
        ]
        self.orders = [dims if dims != tuple(range(len(dims))) else None for dims, _ in layouts]
        self.result_layouts = [
            (tuple(n.meta["val"].shape), strides, n.meta["val"].dtype)
            for n, (_, strides) in zip(written, layouts, strict=True)
        ]
        self.answer = [
            (False, placeholders.index(n)) if n in placeholders else (True, written.index(n)) for n in output.args[0]
        ]
        half = any(n.meta["val"].dtype == torch.bfloat16 for n in (*placeholders, *written))
        self.to_kernel = _bits if backend == "tvm" and half else lambda x: x
        values = [n.meta["val"] for n in placeholders]
        self.device = next((x.device for x in values if x.ndim), values[0].device)
        key = (name, knobs, program.code, backend, str(self.device), *names, *skips, *self.orders, *self.result_layouts)
        key += tuple((x.dtype, tuple(x.shape), x.stride()) for x in values)
        with _lock:
            if key not in _cache:
                how = (program, names, skips, self.device, backend, name, knobs)
                _cache[key] = _compile(*how) if written else (None, "")
            self.run, self.source = _cache[key]

    def __call__(self, tensors: Sequence[torch.Tensor], out: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        given = [self.to_kernel(seen.of(tensors[at])) for at, seen in self.operand_layouts]
        made = out or [
            torch.empty_strided(*how, dtype=dtype, device=self.device) for *how, dtype in self.result_layouts
        ]
        into = (m if d is None else m.permute(d) for m, d in zip(made, self.orders, strict=True))
        if self.run is not None:
            self.run(*given, *map(self.to_kernel, into))
        return [made[at] if new else tensors[at] for new, at in self.answer]


def _direct(
    run: Callable,
    sources: Sequence[tuple[int, torch.Tensor | None]],
    place: torch.Tensor | None,
    shape: tuple,
    strides: tuple,
    dtype: torch.dtype,
    device: torch.device,
) -> Callable:
    """Return a kernel of one result as a function. sources: for each operand, the number of an input, or the tensor."""

    def call(*inputs: torch.Tensor) -> torch.Tensor:
        made = place
        if made is None:
            made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        run(*[inputs[at] if held is None else held for at, held in sources], made)
        return made

    return call


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint16) if x.dtype == torch.bfloat16 else x


_cache: dict[tuple, tuple[Callable | None, str]] = {}
_lock = threading.RLock()


def _compile(
    program: fx.GraphModule,
    names: list[str],
    skips: Sequence[int],
    device: torch.device,
    backend: str,
    name: str,
    knobs: Knobs,
) -> tuple[Callable, str]:
    """Compile a program; return the callable that runs it on tensors, and its source."""
    if backend == "triton":
        from passlab.kernels import triton as kernel_triton

        return kernel_triton.build(program, names, skips, name, knobs.block)
    from passlab.kernels import schedule as kernel_schedule
    from passlab.relax import tvm
    from passlab.relax.pipelines import host

    def build_for_target(function: tvm.tirx.PrimFunc, target: Any) -> tuple[Callable, str]:
        module = tvm.IRModule({name: function.with_attr("global_symbol", name)})
        # TVM's common-subexpression pass fails when two outputs share a name; LLVM and nvcc have their own.
        with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):
            return tvm.compile(module, target)[name], function.script()

    if device.type == "cuda":
        target = tvm.target.Target.from_device(tvm.cuda(device.index or 0)).with_host(host())
        return build_for_target(
            kernel_schedule.on_cuda(kernel_code.tensor_ir(program, names, skips, partial=False), target), target
        )
    function = kernel_code.tensor_ir(program, names, skips)
    try:
        return build_for_target(kernel_schedule.on_cpu(function, knobs=knobs), host())
    except (ValueError, TypeError):  # TVM cannot vectorize some booleans
        return build_for_target(kernel_schedule.on_cpu(function, vectors=False, knobs=knobs), host())


class Kernel(nn.Module):
    """A group of operations as one kernel, called like its graph, with the same results.

    It is built for its first inputs, and again for inputs of another kind (`variants` counts). Empty inputs, and inputs
    on the device "meta", which have no data, go through the graph itself.
    """

    def __init__(self, gm: fx.GraphModule, *, backend: str = "tvm", knobs: Knobs = DEFAULT):
        super().__init__()
        self.gm, self.backend, self.knobs = gm, backend, knobs
        self.name = "fused_" + "_".join(_short(node) for node in gm.graph.nodes if node.op.startswith("call_"))[:60]
        self._kernels: dict[tuple, _CompiledKernel] = {}
        self._has_state = bool(state(gm))

    def __deepcopy__(self, memo: dict) -> Kernel:
        made = Kernel(copy.deepcopy(self.gm, memo), backend=self.backend, knobs=self.knobs)
        made._kernels, made.training = self._kernels, self.training  # a built kernel depends on shapes, not on values
        return made

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_built": {}}

    @property
    def variants(self) -> int:
        """For how many kinds of inputs the kernel was built."""
        return len(self._kernels)

    def source(self) -> str:
        """Return the code of the last build: TensorIR with its loops for the device, or Triton."""
        if not self._kernels:
            self.build(*_examples(self.gm))
        return list(self._kernels.values())[-1].source

    def build(self, *inputs: Any) -> None:
        """Build for inputs like these, unless that is done."""
        tensors = [*(x for x in inputs if isinstance(x, torch.Tensor)), *state(self.gm).values()]
        self._for(inputs, tensors, [0] * len(tensors))

    def _for(self, inputs: Sequence[Any], tensors: Sequence[torch.Tensor], skips: Sequence[int]) -> _CompiledKernel:
        key = tuple((x.shape, x.stride(), x.dtype, x.device) for x in tensors)
        key += (*skips, *((type(x), x) for x in inputs if not isinstance(x, torch.Tensor)))
        if key not in self._kernels:
            devices = {x.device for x in tensors if x.ndim}
            if len(devices) > 1:
                said = " and ".join(sorted(map(str, devices)))
                raise ValueError(f"The kernel {self.name} got tensors on {said}: move them to one device.")
            with _disable_current_modes():  # hide the build from modes that observe the program
                self._kernels[key] = _CompiledKernel(self.gm, inputs, skips, self.backend, self.name, self.knobs)
        return self._kernels[key]

    def forward(self, *inputs: Any, out: Sequence[torch.Tensor] | None = None) -> Any:
        """Run the kernel. out: fresh tensors for the results, laid out as the kernel itself would allocate them."""
        tensors = [x.detach() for x in inputs if isinstance(x, torch.Tensor)]
        tensors += [x.detach() for x in state(self.gm).values()] if self._has_state else []
        if any(not x.numel() or x.is_meta or isinstance(x, FakeTensor) for x in tensors):
            return self.gm(*inputs)
        skips = [kernel_code.elements_skipped(x) for x in tensors]
        if None in skips:
            tensors = [x if skip is not None else x.clone() for x, skip in zip(tensors, skips, strict=True)]
            skips = [skip or 0 for skip in skips]
        results = self._for(inputs, tensors, skips)(tensors, out)
        note_kernel(self.name)
        (output,) = self.gm.graph.find_nodes(op="output")
        found = iter(results)
        return fx.node.map_aggregate(output.args[0], lambda a: next(found) if isinstance(a, fx.Node) else a)

    def prepare(self, *inputs: Any, place: Callable[..., torch.Tensor | None] = lambda *how: None) -> Callable:
        """Return the kernel as a function without checks, for inputs with these shapes, strides, types and alignment.

        place(number, shape, strides, dtype): a tensor that every call writes that result into, or None for a new one.
        """
        held = [x.detach() for x in state(self.gm).values()]
        tensors = [*(x for x in inputs if isinstance(x, torch.Tensor)), *held]
        skips = [kernel_code.elements_skipped(x) for x in tensors]
        if any(not x.numel() or x.is_meta for x in tensors) or None in skips:
            return self
        compiled = self._for(inputs, tensors, skips)
        (output,) = self.gm.graph.find_nodes(op="output")
        single = isinstance(output.args[0], fx.Node)
        where = [at for at, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        places = [place(at, *how) for at, how in enumerate(compiled.result_layouts)]
        plain = (
            compiled.to_kernel is not _bits
            and not any(compiled.orders)
            and not any(seen.flat for _, seen in compiled.operand_layouts)
        )
        if single and plain and compiled.run is not None and compiled.answer == [(True, 0)]:
            sources = [
                (where[at], None) if at < len(where) else (-1, tensors[at]) for at, _ in compiled.operand_layouts
            ]
            return _direct(compiled.run, sources, places[0], *compiled.result_layouts[0], compiled.device)

        def run(*inputs: Any) -> Any:
            made = [
                torch.empty_strided(shape, strides, dtype=dtype, device=compiled.device) if into is None else into
                for into, (shape, strides, dtype) in zip(places, compiled.result_layouts, strict=True)
            ]
            results = compiled([*(inputs[at] for at in where), *held], made)
            return results[0] if single else tuple(results)

        return run

    def extra_repr(self) -> str:
        return f"{self.name}, built for {self.variants} kinds of inputs"


def _short(node: fx.Node) -> str:
    name = op_name(node)
    return name.lower() if node.op == "call_module" else re.sub(r"\W", "", name)


def kernel(gm: fx.GraphModule, *, device: Any = None, backend: str = "tvm") -> Kernel:
    """Compile a graph that is one group, for the shapes and types on its placeholders (if any).

    device: where to run it; by default, where its inputs are. backend: "tvm" or, on a GPU, "triton".
    Raise ValueError for another backend, and Unsupported, which names the node that cannot be compiled.
    """
    if backend not in BACKENDS:
        raise ValueError(f"There is no kernel backend {backend!r}; choose {' or '.join(BACKENDS)}.")
    made = Kernel(gm, backend=backend)
    if all(hasattr(_value(node), "dtype") for node in gm.graph.find_nodes(op="placeholder")):
        made.build(*_examples(gm, device))
    return made


# ------------------------------------------------------------------------------------------------ the graph


def fused(gm: fx.GraphModule, groups: Groups, device: Any = None) -> fx.GraphModule:
    """Return the graph with each group replaced by a call of its kernel; `gm` is not changed.

    device: where it will run, if not where its tensors are now. Raise ValueError, with the reason, for groups that
    cannot be kernels.
    """
    if why := illegal(gm, groups):
        raise ValueError(why)
    nodes = {node.name: node for node in gm.graph.nodes}
    where = {nodes[name]: number for number, group in enumerate(groups) for name in group}
    graph, new, kernels = fx.Graph(), {}, {}
    for step in steps(gm.graph, where):
        if step[0].op == "get_attr" and step[0].users and all(user in where for user in step[0].users):
            continue  # kernels hold their constants
        if step[0] not in where:
            new[step[0]] = graph.node_copy(step[0], new.__getitem__)
            continue
        part = cut(gm, step)
        made = kernel(part, device=device)
        target = made.name + (f"_{len(kernels)}" if made.name in kernels else "")
        kernels[target] = made
        call = graph.call_module(target, tuple(new[nodes[name]] for name in part.meta["inputs_of"]))
        written = [nodes[name] for name in part.meta["outputs_of"]]
        for at, node in enumerate(written):
            new[node] = call if len(written) == 1 else graph.call_function(operator.getitem, (call, at))
            new[node].meta = dict(node.meta)
    after = fx.GraphModule({**_used_attributes(gm, graph), **kernels}, graph, type(gm).__name__)
    after.meta.update(gm.meta)
    after.training = gm.training
    return after


def _used_attributes(gm: fx.GraphModule, graph: fx.Graph) -> dict[str, Any]:
    """Return the attributes and modules that a graph uses, by path."""
    paths = {node.target for node in graph.nodes if node.op in ("get_attr", "call_module")}
    found, missing = {}, object()
    for path in paths:
        held = attribute(gm, path, missing)
        if held is not missing:
            found[path] = held
    return found
