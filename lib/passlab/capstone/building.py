"""Build a program from what a compiler handed over.

    program = build(compiled, inputs)
    program(*inputs)

It runs where the inputs are, on the CPU or a GPU. Each group is one step. On the CPU, oneDNN computes a convolution or
linear layer with what follows it, TVM the rest. On a GPU, a group's own Triton kernel runs if it has one; else torch's
operators compute convolutions and linear layers, in few tensors, and TVM, if it was built with CUDA, or Triton makes
the kernels. `Program.kinds` says what became of each step. What a kernel makes lies in one arena, where the plan says;
what the caller gets, and what torch's operators make, is allocated by torch. All checks of the inputs are at the
entrance.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from passlab.capstone import layouts, library, triton
from passlab.capstone.compiled import BadCompiled, Compiled, check_groups, with_shapes
from passlab.capstone.triton import Triton
from passlab.fx.effects import effects, has_effects
from passlab.fx.isolation import is_marked, refuse
from passlab.fx.measure import note_kernel
from passlab.fx.nodes import attribute
from passlab.fx.programs import copy_inputs
from passlab.judge.words import plural
from passlab.kernels import Kernel, execution_order, extract_group
from passlab.kernels.primitives import Unsupported, state
from passlab.kernels.schedule import Knobs
from passlab.memory.buffers import BadPlan
from passlab.memory.plan import ALIGNMENT, Plan, check_plan, planned
from passlab.memory.storages import CannotPlan, storages


class Group(nn.Module):
    """A group as one step that runs its nodes. Its results are new tensors, like those of a kernel."""

    def __init__(self, part: fx.GraphModule, name: str):
        super().__init__()
        self.gm, self.name = part, name

    def forward(self, *inputs: Any) -> Any:
        with _disable_current_modes():  # a mode that counts launches sees one
            result = self.gm(*inputs)
        note_kernel(self.name)
        return tree_map_only(torch.Tensor, _fresh, result)


def _fresh(value: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_like(value)
    with _disable_current_modes():
        return copy.copy_(value)


def grouped(
    graph: fx.GraphModule,
    groups: Sequence[Sequence[str]],
    inputs: Sequence[Any],
    layouts: Mapping[str, list[int]] = MappingProxyType({}),
) -> fx.GraphModule:
    """Return the graph with one node for each group, named after its last one; plans are made for this graph.

    A convolution or linear layer that is in no group becomes a group of its own. A value that `layouts` has stored in
    another order is converted by a node of its own, with `_stored` after its name. Raises BadCompiled.
    """
    compiled = Compiled(graph, groups, layouts=layouts)
    return lower(compiled, inputs, lambda part, nodes, match, head: Group(part, nodes[-1].name))


#: (graph of a group, its nodes, a library's call for it or None, its first node's name) → its module.
Make = Callable[[fx.GraphModule, list[fx.Node], library.Epilogue | None, str], nn.Module]


def _laid_out(compiled: Compiled, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return the graph with shapes, after a check of its groups, with values stored by the layouts."""
    gm = with_shapes(compiled.graph, inputs)
    check_groups(gm, compiled.groups)
    if not compiled.layouts:
        return gm
    if reason := layouts.why_not_stored(gm, compiled.groups, compiled.layouts):
        raise BadCompiled(reason)
    layouts.apply(gm, compiled.groups, compiled.layouts)
    after = with_shapes(gm, inputs)
    return with_shapes(after, inputs) if layouts.returned_as(after, gm) else after


def lower(compiled: Compiled, inputs: Sequence[Any], make: Make) -> fx.GraphModule:
    """Return the graph with each group replaced by a call of the module that `make` returns for it."""
    gm = _laid_out(compiled, inputs)
    groups = compiled.groups
    nodes = {node.name: node for node in gm.graph.nodes}
    group_of = {nodes[name]: at for at, group in enumerate(groups) for name in group}
    number = len(groups)
    for node in gm.graph.nodes:
        if node not in group_of and not effects(node) and library.match(gm, [node]):
            group_of[node], number = number, number + 1
    graph, copies, steps = fx.Graph(), {}, {}
    for step in execution_order(gm.graph, group_of):
        if step[0] not in group_of:
            copies[step[0]] = graph.node_copy(step[0], copies.__getitem__)
            continue
        part, match = extract_group(gm, step), library.match(gm, step)
        name = f"step_{len(steps)}"
        steps[name] = make(part, step, match, groups[group_of[step[0]]][0] if group_of[step[0]] < len(groups) else "")
        results = [nodes[name] for name in part.meta["outputs_of"]]
        called = graph.create_node(
            "call_module", name, tuple(copies[nodes[a]] for a in part.meta["inputs_of"]), name=step[-1].name
        )
        for at, node in enumerate(results):
            if len(results) > 1:
                copies[node] = graph.call_function(operator.getitem, (called, at))
                copies[node].meta["val"] = node.meta["val"]
            else:
                copies[node] = called
                called.meta["val"] = node.meta["val"]
    for node in reversed(graph.find_nodes(op="get_attr")):  # groups hold their own constants
        if not node.users:
            graph.erase_node(node)
    paths = {n.target for n in graph.nodes if n.op in ("get_attr", "call_module") and n.target not in steps}
    root = {path: attribute(gm, path) for path in paths}
    after = fx.GraphModule({**root, **steps}, graph)
    after.training = gm.training
    return after


# ------------------------------------------------------------------------------------------------ what runs


#: Kinds of steps.
LIBRARY, GENERATED, TRITON, OPERATOR = "library call", "generated kernel", "Triton kernel", "torch operator"


class _Step(nn.Module):
    """A group's kernel, made at its first call for inputs like those of that call. `places`: bytes of the arena, for
    each result."""

    kind = GENERATED

    def __init__(self, part: fx.GraphModule, name: str, knobs: Knobs):
        super().__init__()
        self.part, self.name, self.knobs = [part], name, knobs  # in a list: not a submodule
        self.run: Callable | None = None
        self.places: list[torch.Tensor] = []

    def forward(self, *inputs: Any) -> Any:
        if self.run is None:
            self.run = self._build_kernel(inputs)
        return self.run(*inputs)

    def _build_kernel(self, inputs: Sequence[Any]) -> Callable:
        backend = _backend(device_of(inputs))
        kernel = Kernel(self.part[0], backend=backend, knobs=self.knobs)
        try:
            return kernel.prepare(*inputs, place=self._output_at)
        except Unsupported:
            if backend == "triton":  # it has no reductions
                self.kind = OPERATOR
                return Group(self.part[0], self.name)
        # Torch takes an operation apart in another way where a library laid out its operands.
        likes = [node.meta["val"] for node in self.part[0].graph.find_nodes(op="placeholder")]
        run = kernel.prepare(*_as_traced(inputs, likes), place=self._output_at)
        return lambda *inputs: run(*_as_traced(inputs, likes))

    def _output_at(self, at: int, shape: tuple, strides: tuple, dtype: torch.dtype) -> torch.Tensor | None:
        if at >= len(self.places):
            return None
        return self.places[at].view(dtype).as_strided(shape, strides)


class TritonStep(_Step):
    """A group whose kernel was handed over as Triton source."""

    kind = TRITON

    def __init__(self, part: fx.GraphModule, name: str, head: str, kernel: Triton):
        super().__init__(part, name, Knobs())
        self.head, self.kernel = head, kernel

    def _build_kernel(self, inputs: Sequence[Any]) -> Callable:
        part, device = self.part[0], device_of(inputs)
        likes = [node.meta["val"] for node in part.graph.find_nodes(op="placeholder")]
        reads, constants = part.meta["inputs_of"], {name: x.detach() for name, x in state(part).items()}
        (output,) = part.graph.find_nodes(op="output")
        single = isinstance(output.args[0], fx.Node)
        examples = [torch.empty_like(node.meta["val"]) for node in output.all_input_nodes]
        forms = [(tuple(example.shape), example.stride(), example.dtype) for example in examples]
        start = self._call_kernel(triton.launcher, self.kernel, device)

        def run(*inputs: Any) -> Any:
            results = [self._output_at(at, *form) for at, form in enumerate(forms)]
            results = [
                torch.empty_strided(shape, strides, dtype=dtype, device=device) if place is None else place
                for place, (shape, strides, dtype) in zip(results, forms, strict=True)
            ]
            values = constants | dict(zip(reads, _as_traced(inputs, likes), strict=True))
            values |= zip(part.meta["outputs_of"], results, strict=True)
            with _disable_current_modes():
                self._call_kernel(start, *(values[name] for name in self.kernel.arguments))
            note_kernel(self.name)
            return results[0] if single else tuple(results)

        return run

    def _call_kernel(self, call: Callable, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:
            cause = error
            while cause.__cause__ is not None:  # the interpreter's own errors are vaguer
                cause = cause.__cause__
            message = (str(cause).strip() or type(cause).__name__).splitlines()[-1][:200]
            raise BadCompiled(f"The kernel of {self.head} does not run: {message}") from error


class _Call(nn.Module):
    """A group that a library computes. `like`: its result's layout in the graph, where that matters; `images`: whether
    it takes images with channels last."""

    kind = LIBRARY

    def __init__(self, run: Callable, like: torch.Tensor | None, images: bool):
        super().__init__()
        self.run, self.like, self.images = run, like, images

    def forward(self, *inputs: Any) -> Any:
        result = self.run(*inputs)
        return result if self.like is None else layouts.with_strides(result, self.like.stride())


def _as_traced(inputs: Sequence[Any], likes: Sequence[Any]) -> list:
    """Return inputs with the strides that they have in the graph."""
    pairs = zip(inputs, likes, strict=True)
    return [layouts.with_strides(x, like.stride()) if isinstance(x, torch.Tensor) else x for x, like in pairs]


def device_of(values: Any) -> torch.device:
    """Return the device of a program with these inputs: the GPU of one of them, else the CPU."""
    devices = [x.device for x in tree_leaves(values) if isinstance(x, torch.Tensor)]
    return next((device for device in devices if device.type == "cuda"), torch.device("cpu"))


def _backend(device: torch.device) -> str:
    """Return the compiler of kernels for a device: TVM, but Triton for a GPU that TVM was not built for."""
    if device.type != "cuda":
        return "tvm"
    try:
        from passlab.relax import tvm
    except ImportError:
        return "triton"
    return "tvm" if tvm.cuda(device.index or 0).exist else "triton"


class Program:
    """A built program: call it like the model, with inputs of the shapes and types that it was built for.

    `graph`: the steps that run; `plan`: order and places; `kinds`: name of a step → what runs there, such as "library
    call"; `launches` of a call are `counts(compiled, inputs).launches`. A call with other inputs raises ValueError.
    """

    def __init__(self, graph: fx.GraphModule, plan: Plan | None, inputs: Sequence[Any]):
        self.graph, self.plan = graph, plan
        self._likes = [_Like(x) if isinstance(x, torch.Tensor) else None for x in inputs]
        called = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        steps = {n.name: graph.get_submodule(n.target) for n in called if n.op == "call_module"}
        self.kinds = {n.name: getattr(steps.get(n.name), "kind", OPERATOR) for n in called}
        self._run = straight(graph)

    def __call__(self, *inputs: Any) -> Any:
        if len(inputs) != len(self._likes):
            raise ValueError(f"The program takes {plural(len(self._likes), 'input')}; got {len(inputs)}.")
        with torch.no_grad():
            pairs = enumerate(zip(inputs, self._likes, strict=True))
            return self._run(*[x if like is None else like.fit(x, at) for at, (x, like) in pairs])


class _Like:
    """An input's shape, strides, type and alignment."""

    def __init__(self, x: torch.Tensor):
        self.key, self.past = (x.shape, x.dtype, x.device), x.data_ptr() % ALIGNMENT
        self.stride = x.stride()

    def fit(self, x: torch.Tensor, at: int) -> torch.Tensor:
        if (x.shape, x.dtype, x.device) != self.key:
            shape, dtype, _ = self.key
            raise ValueError(f"Input {at} must be {dtype} of shape {tuple(shape)}: the program was built for that.")
        if x.stride() == self.stride and x.data_ptr() % ALIGNMENT == self.past:
            return x
        return torch.empty_strided(x.shape, self.stride, dtype=x.dtype, device=x.device).copy_(x)


def build(compiled: Compiled, inputs: Sequence[Any], parallel: bool = True, interpret: bool = False) -> Program:
    """Return the program of a compiler's data, for inputs like these, on their device. Raises BadCompiled.

    It runs once, on copies of the inputs, to build its kernels. parallel: whether kernels may use several cores if
    their schedules do. interpret: whether Triton's interpreter, which is slow, runs the given kernels on a CPU; by
    default their groups run as without them.
    """
    if is_marked(compiled.graph):
        refuse()
    device = device_of((tuple(inputs), *compiled.graph.parameters()))
    inputs = copy_inputs(tuple(inputs), str(device))
    steps = steps_of(compiled, inputs)
    plan = plan_of(compiled, inputs, steps)
    exact = has_effects(compiled.graph.graph)
    last = library.channels_last(step.gm for step in steps.children() if isinstance(step, Group))

    def make(part: fx.GraphModule, nodes: list[fx.Node], match: library.Epilogue | None, head: str) -> nn.Module:
        if (kernel := compiled.kernels.get(head)) is not None and (interpret or device.type == "cuda"):
            return TritonStep(part, nodes[-1].name, head, kernel)
        if match is not None and (call := library.call(match, last)) is not None:
            run, images = call
            return _Call(run, nodes[-1].meta["val"] if exact else None, images)
        knobs = Knobs(**compiled.schedules.get(head, {}))
        return _Step(part, nodes[-1].name, knobs if parallel else replace(knobs, parallel=False))

    gm = lower(compiled, inputs, make)
    if not exact:
        _place(gm, steps, plan, inputs, device)
        for node in gm.graph.find_nodes(op="call_method", target="view"):  # a library may lay its result out otherwise
            node.target = "reshape"
        _images_last(gm, compiled.layouts)
    if plan is not None:
        gm = _reorder(gm, plan)
    gm.recompile()
    with torch.no_grad(), torch.random.fork_rng(devices=gpus(device)):
        state = {name: t.clone() for name, t in gm.state_dict().items()} if exact else None
        outputs = gm(*copy_inputs(inputs, str(device)))
        if state is not None:
            gm.load_state_dict(state)
    _restore_outputs(gm, outputs)
    return Program(gm, plan, inputs)


def gpus(device: torch.device) -> list[int]:
    return list(range(torch.cuda.device_count())) if device.type == "cuda" else []


def check_kernel(part: fx.GraphModule, head: str, kernel: Triton) -> None:
    if reason := triton.why_not_launched(head, kernel) or triton.why_not_for_group(head, kernel, part):
        raise BadCompiled(reason)


def steps_of(compiled: Compiled, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return `grouped` of a Compiled, after a check of its Triton kernels. Raises BadCompiled."""

    def make(part: fx.GraphModule, nodes: list[fx.Node], match: library.Epilogue | None, head: str) -> nn.Module:
        if head in compiled.kernels:
            check_kernel(part, head, compiled.kernels[head])
        return Group(part, nodes[-1].name)

    return lower(compiled, inputs, make)


def plan_of(compiled: Compiled, inputs: Sequence[Any], steps: fx.GraphModule | None = None) -> Plan | None:
    """Return the plan, checked, or one by first fit; None if sizes depend on numbers. Raises BadCompiled.

    steps: the result of `steps_of`, if known.
    """
    gm = steps_of(compiled, inputs) if steps is None else steps
    try:
        if compiled.plan is None:
            return planned(gm, *inputs)
        check_plan(gm, compiled.plan, *inputs)
    except CannotPlan as error:
        if compiled.plan is not None:
            raise BadCompiled(f"This program cannot have a plan: {error}") from error
        return None
    except BadPlan as error:
        raise BadCompiled(f"The plan does not hold: {error}{_ungrouped(compiled, gm)}") from error
    return compiled.plan


def _ungrouped(compiled: Compiled, steps: fx.GraphModule) -> str:
    """Return a sentence about a node that the plan's order names and that is inside a group, or ""."""
    inner = {node.name for node in compiled.graph.graph.nodes} - {node.name for node in steps.graph.nodes}
    order = getattr(compiled.plan, "order", ())
    name = next((n for n in order if isinstance(n, str) and n in inner), "") if isinstance(order, list | tuple) else ""
    return f" {name} is inside a group: plan for the graph that grouped(graph, groups, inputs) returns." if name else ""


def _place(
    gm: fx.GraphModule, steps: fx.GraphModule, plan: Plan | None, inputs: Sequence[Any], device: torch.device
) -> None:
    """Give each kernel whose results the caller does not get its places in one arena."""
    if plan is None:
        return
    returned = {s.name for s in storages(steps, *inputs) if s.is_output}
    memory = torch.empty(plan.arena + ALIGNMENT, dtype=torch.uint8, device=device)
    memory = memory[-memory.data_ptr() % ALIGNMENT :][: plan.arena]
    for node in gm.graph.find_nodes(op="call_module"):
        step = gm.get_submodule(node.target)
        value = node.meta.get("val")
        if not isinstance(step, _Step) or not isinstance(value, torch.Tensor) or node.name in returned:
            continue
        at = plan.offsets.get(node.name)
        if at is not None and value.untyped_storage().nbytes() == value.nbytes and at % value.element_size() == 0:
            place = memory[at : at + value.nbytes]
            step.places = [place] if place.data_ptr() % value.element_size() == 0 else []


def _images_last(gm: fx.GraphModule, layouts: Mapping[str, list[int]]) -> None:
    """Convert input images to the layout of convolutions once: oneDNN would do it at every convolution.

    Inputs with a layout of their own keep it.
    """
    for node in gm.graph.find_nodes(op="placeholder"):
        if node.name in layouts:
            continue
        value, calls = node.meta.get("val"), [n for n in node.users if n.op == "call_module"]
        parts = (gm.get_submodule(n.target) for n in calls if n.args[:1] == (node,))
        if getattr(value, "ndim", 0) == 4 and any(isinstance(part, _Call) and part.images for part in parts):
            with gm.graph.inserting_after(node):
                last = gm.graph.call_method("contiguous", (), {"memory_format": torch.channels_last})
            node.replace_all_uses_with(last)
            last.args = (node,)


def _reorder(gm: fx.GraphModule, plan: Plan) -> fx.GraphModule:
    """Return the graph with its nodes in the order of the plan."""
    graph, copies = fx.Graph(), {}
    nodes = {node.name: node for node in gm.graph.nodes}
    inputs = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    entrance = [node.name for node in gm.graph.nodes if node.name not in plan.order]
    for name in (*inputs, *entrance, *(n for n in plan.order if n not in inputs)):
        copies[nodes[name]] = graph.node_copy(nodes[name], copies.__getitem__)
    after = fx.GraphModule(gm, graph)
    after.training = gm.training
    return after


def _restore_outputs(gm: fx.GraphModule, outputs: Any) -> None:
    """Restore the strides that outputs have in the graph, if a library chose others."""
    (output,) = gm.graph.find_nodes(op="output")
    values = iter(tree_leaves(outputs))

    def restore(node: fx.Node) -> fx.Node:
        value, like = next(values, None), node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not isinstance(like, torch.Tensor) or value.stride() == like.stride():
            return node
        with gm.graph.inserting_before(output):
            if like.is_contiguous():
                return gm.graph.call_method("contiguous", (node,))
            return node

    if all(isinstance(leaf, fx.Node) for leaf in tree_leaves(output.args[0])):
        output.args = (fx.node.map_arg(output.args[0], restore),)
        gm.recompile()


# ------------------------------------------------------------------------------------------------ straight-line code


def straight(gm: fx.GraphModule) -> Callable:
    """Return the graph as one Python function with a line per step that makes only the step's own call.

    Modules are called by their `forward` (they have no hooks), kernels without a module around them. A value is freed
    after its last use.
    """
    scope: dict[str, Any] = {}
    names = {node: f"v{at}" for at, node in enumerate(gm.graph.nodes)}
    last = {operand: node for node in gm.graph.nodes for operand in node.all_input_nodes}
    lines = []

    def bind(value: Any) -> str:
        name = f"c{len(scope)}"
        scope[name] = value
        return name

    def text(value: Any) -> str:
        if isinstance(value, fx.Node):
            return names[value]
        if isinstance(value, tuple | list) and any(isinstance(leaf, fx.Node) for leaf in tree_leaves(value)):
            inner = "".join(f"{text(part)}, " for part in value)
            return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
        if isinstance(value, slice):
            return f"{bind(slice)}({text(value.start)}, {text(value.stop)}, {text(value.step)})"
        if isinstance(value, dict):
            return "{" + "".join(f"{bind(key)}: {text(part)}, " for key, part in value.items()) + "}"
        return bind(value)

    for node in gm.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "get_attr":
            scope[names[node]] = attribute(gm, node.target)
            continue
        if node.op == "output":
            lines.append(f"return {text(node.args[0])}")
            continue
        args = [*map(text, node.args), *(f"{name}={text(value)}" for name, value in node.kwargs.items())]
        called = f"{args.pop(0)}.{node.target}" if node.op == "call_method" else bind(_function(gm, node))
        lines.append(f"{names[node]} = {called}({', '.join(args)})")
        dead = [names[a] for a in (*node.all_input_nodes, node) if last.get(a, a) is node and a.op != "get_attr"]
        lines += [f"{name} = None" for name in dead]
    inputs = ", ".join(names[node] for node in gm.graph.find_nodes(op="placeholder"))
    exec("\n    ".join([f"def run({inputs}):", *lines]), scope)
    return scope["run"]


#: Functions in Python → the ones that they call with the same operands.
_ENDS = {F.relu: torch.relu}


def _function(gm: fx.GraphModule, node: fx.Node) -> Callable:
    if node.op == "call_function":
        return node.target if node.kwargs or len(node.args) != 1 else _ENDS.get(node.target, node.target)
    part = gm.get_submodule(node.target)
    if isinstance(part, _Step):
        return part.run or part.forward
    if isinstance(part, _Call) and part.like is None:
        return part.run
    return torch.relu if type(part) is nn.ReLU and not part.inplace else part.forward
