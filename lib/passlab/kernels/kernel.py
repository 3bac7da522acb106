"""A group as one kernel: its TensorIR or Triton source, the built kernel, and the graph that calls it."""

from __future__ import annotations

import copy
import operator
import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from passlab.fx.measure import note_kernel
from passlab.fx.nodes import attribute, op_name
from passlab.kernels import code
from passlab.kernels.groups import Groups, example_inputs, execution_order, extract_group, illegal, value_of
from passlab.kernels.primitives import Unsupported, primitives, state
from passlab.kernels.schedule import DEFAULT, Knobs

if TYPE_CHECKING:
    import tvm

#: What kernels can be generated for.
BACKENDS = ("tvm", "triton")


def prim_func(gm: fx.GraphModule, *, strides: Sequence[Sequence[int]] | None = None) -> tvm.tirx.PrimFunc:
    """Return a graph that is one group as one unscheduled TensorIR function: its parameters are the inputs in order,
    parameters and buffers of the graph, then the outputs.

    strides: of the inputs, where they differ from those noted on the placeholders. A non-contiguous input is a flat
    parameter of all the elements that it spans. Raise Unsupported, which names the node.
    """
    examples = example_inputs(gm, strides=strides)
    program = primitives(gm, examples)
    return code.tensor_ir(program, _names(gm, program, examples))


def triton_source(gm: fx.GraphModule, name: str) -> tuple[str, list[str]]:
    """Return a graph that is one group as Triton source, and what the pointers of its kernel `name` are, in order:
    names of placeholders, parameters and buffers, then of nodes that the graph returns.

    The last parameter is BLOCK, and each program makes that many elements. Raise Unsupported, which names the node.
    """
    from passlab.kernels import triton

    examples = example_inputs(gm)
    program = primitives(gm, examples)
    placeholders = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    known = [n for n, x in zip(placeholders, examples, strict=True) if isinstance(x, torch.Tensor)] + [*state(gm)]
    written, (output,) = code.results(program), program.graph.find_nodes(op="output")
    returned = gm.graph.find_nodes(op="output")[0].all_input_nodes
    if written != list(output.args[0]):
        raise Unsupported(returned[0].name, "for Triton, each result of a group must be a tensor of its own")
    text = triton.source(program, _names(gm, program, examples), (), name)
    return text, [*(known[at] for at, _ in code.operands(program)), *(node.name for node in returned)]


def _names(gm: fx.GraphModule, program: fx.GraphModule, inputs: Sequence[Any]) -> list[str]:
    """Name a kernel's inputs for its source."""
    placeholders = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    names = [name for name, x in zip(placeholders, inputs, strict=False) if isinstance(x, torch.Tensor)] + [*state(gm)]
    return [re.sub(r"\W", "_", names[at]) for at, _ in code.operands(program)]


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
        written = code.results(program)
        layouts = [code.result_layout(node) for node in written]
        self.operand_layouts = [(at, code.layout(n.meta["val"], skips[at])) for at, n in code.operands(program)]
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
                args = (program, names, skips, self.device, backend, name, knobs)
                _cache[key] = _compile(*args) if written else (None, "")
            self.run, self.source = _cache[key]

    def __call__(self, tensors: Sequence[torch.Tensor], out: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        inputs = [self.to_kernel(layout.of(tensors[at])) for at, layout in self.operand_layouts]
        outputs = out or [
            torch.empty_strided(*form, dtype=dtype, device=self.device) for *form, dtype in self.result_layouts
        ]
        into = (m if d is None else m.permute(d) for m, d in zip(outputs, self.orders, strict=True))
        if self.run is not None:
            self.run(*inputs, *map(self.to_kernel, into))
        return [outputs[at] if new else tensors[at] for new, at in self.answer]


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
        result = place
        if result is None:
            result = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        run(*[inputs[at] if constant is None else constant for at, constant in sources], result)
        return result

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
        _without_fast_math()
        target = tvm.target.Target.from_device(tvm.cuda(device.index or 0)).with_host(host())
        return build_for_target(
            kernel_schedule.on_cuda(code.tensor_ir(program, names, skips, partial=False), target), target
        )
    function = code.tensor_ir(program, names, skips)
    rows = not any(map(code.is_product, program.graph.nodes))
    try:
        return build_for_target(kernel_schedule.on_cpu(function, knobs=knobs, rows=rows), host())
    except (ValueError, TypeError):  # TVM cannot vectorize some booleans
        return build_for_target(kernel_schedule.on_cpu(function, vectors=False, knobs=knobs, rows=rows), host())


def _without_fast_math() -> None:
    """Have TVM compile CUDA C by nvcc, if it is here, without fast math, its default: so that it computes what eager
    torch does. NVRTC cannot be told; its tanh is off by some 1e-5."""
    os.environ.setdefault("TVM_CUDA_NVCC_NO_FAST_MATH", "1")
    if shutil.which("nvcc"):
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")


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
        twin = Kernel(copy.deepcopy(self.gm, memo), backend=self.backend, knobs=self.knobs)
        twin._kernels, twin.training = self._kernels, self.training  # a built kernel depends on shapes, not on values
        return twin

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_kernels": {}}

    @property
    def variants(self) -> int:
        """For how many kinds of inputs the kernel was built."""
        return len(self._kernels)

    def source(self) -> str:
        """Return the code of the last build: TensorIR with its loops for the device, or Triton."""
        if not self._kernels:
            self.build(*example_inputs(self.gm))
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
                places = " and ".join(sorted(map(str, devices)))
                raise ValueError(f"The kernel {self.name} got tensors on {places}: move them to one device.")
            with _disable_current_modes():  # hide the build from modes that observe the program
                self._kernels[key] = _CompiledKernel(self.gm, inputs, skips, self.backend, self.name, self.knobs)
        return self._kernels[key]

    def forward(self, *inputs: Any, out: Sequence[torch.Tensor] | None = None) -> Any:
        """Run the kernel. out: fresh tensors for the results, laid out as the kernel itself would allocate them."""
        tensors = [x.detach() for x in inputs if isinstance(x, torch.Tensor)]
        tensors += [x.detach() for x in state(self.gm).values()] if self._has_state else []
        if any(not x.numel() or x.is_meta or isinstance(x, FakeTensor) for x in tensors):
            return self.gm(*inputs)
        skips = [code.elements_skipped(x) for x in tensors]
        if None in skips:
            tensors = [x if skip is not None else x.clone() for x, skip in zip(tensors, skips, strict=True)]
            skips = [skip or 0 for skip in skips]
        results = self._for(inputs, tensors, skips)(tensors, out)
        note_kernel(self.name)
        (output,) = self.gm.graph.find_nodes(op="output")
        values = iter(results)
        return fx.node.map_aggregate(output.args[0], lambda a: next(values) if isinstance(a, fx.Node) else a)

    def prepare(self, *inputs: Any, place: Callable[..., torch.Tensor | None] = lambda *layout: None) -> Callable:
        """Return the kernel as a function without checks, for inputs with these shapes, strides, types and alignment.

        place(number, shape, strides, dtype): a tensor that every call writes that result into, or None for a new one.
        """
        constants = [x.detach() for x in state(self.gm).values()]
        tensors = [*(x for x in inputs if isinstance(x, torch.Tensor)), *constants]
        skips = [code.elements_skipped(x) for x in tensors]
        if any(not x.numel() or x.is_meta for x in tensors) or None in skips:
            return self
        compiled = self._for(inputs, tensors, skips)
        (output,) = self.gm.graph.find_nodes(op="output")
        single = isinstance(output.args[0], fx.Node)
        where = [at for at, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        places = [place(at, *spec) for at, spec in enumerate(compiled.result_layouts)]
        plain = (
            compiled.to_kernel is not _bits
            and not any(compiled.orders)
            and not any(layout.flat for _, layout in compiled.operand_layouts)
        )
        if single and plain and compiled.run is not None and compiled.answer == [(True, 0)]:
            sources = [
                (where[at], None) if at < len(where) else (-1, tensors[at]) for at, _ in compiled.operand_layouts
            ]
            return _direct(compiled.run, sources, places[0], *compiled.result_layouts[0], compiled.device)

        def run(*inputs: Any) -> Any:
            outputs = [
                torch.empty_strided(shape, strides, dtype=dtype, device=compiled.device) if into is None else into
                for into, (shape, strides, dtype) in zip(places, compiled.result_layouts, strict=True)
            ]
            results = compiled([*(inputs[at] for at in where), *constants], outputs)
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
    compiled = Kernel(gm, backend=backend)
    if all(hasattr(value_of(node), "dtype") for node in gm.graph.find_nodes(op="placeholder")):
        compiled.build(*example_inputs(gm, device))
    return compiled


# ------------------------------------------------------------------------------------------------ the graph


def fused(gm: fx.GraphModule, groups: Groups, device: Any = None) -> fx.GraphModule:
    """Return the graph with each group replaced by a call of its kernel; `gm` is not changed.

    device: where it will run, if not where its tensors are now. Raise ValueError, with the reason, for groups that
    cannot be kernels.
    """
    if reason := illegal(gm, groups, accepts=lambda nodes: True):  # `kernel` raises where none can be made
        raise ValueError(reason)
    nodes = {node.name: node for node in gm.graph.nodes}
    where = {nodes[name]: number for number, group in enumerate(groups) for name in group}
    graph, new, kernels = fx.Graph(), {}, {}
    for step in execution_order(gm.graph, where):
        if step[0].op == "get_attr" and step[0].users and all(user in where for user in step[0].users):
            continue  # kernels hold their constants
        if step[0] not in where:
            new[step[0]] = graph.node_copy(step[0], new.__getitem__)
            continue
        part = extract_group(gm, step)
        part_kernel = kernel(part, device=device)
        target = part_kernel.name + (f"_{len(kernels)}" if part_kernel.name in kernels else "")
        kernels[target] = part_kernel
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
    attributes, missing = {}, object()
    for path in paths:
        value = attribute(gm, path, missing)
        if value is not missing:
            attributes[path] = value
    return attributes
