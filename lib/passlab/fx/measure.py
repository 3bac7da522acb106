"""Count the kernels that torch launches, the bytes that the nodes of a graph move, and the memory alive at one time.

Reading order: which operations do work, launches, memory, bytes, cost.
"""

from __future__ import annotations

import collections
import copy
import gc
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from passlab.fx.nodes import size_hint
from passlab.fx.reader import symbolic_trace
from passlab.graph.cost import Cost, Measured
from passlab.judge.words import plural


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def _memory(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {t.untyped_storage()._cdata for t in tensors}


def _size(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the elements of tensors; the same tensor twice counts once."""
    return sum(t.numel() * t.element_size() for t in {id(t): t for t in tensors}.values())


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class _Recorder(TorchDispatchMode):
    """Sees every ATen operation that runs: counts those that do work, follows the memory they make.

    An operation does work when it writes to the memory of a tensor. Views (`transpose`, `view`, `expand`: the result
    lives in an operand's memory) and bare allocations (`empty`) do none.
    """

    def __init__(self):
        super().__init__()
        self.kernels: collections.Counter[str] = collections.Counter()
        self.devices: set[torch.device] = set()
        self.sizes: dict[int, int] = {}  # memory that is alive now and was made under this mode
        self.live = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "prim":  # a tensor without data is asked for its device
            return func(*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE):
            with self:  # under inference_mode composite operations arrive whole: take them apart, as happens elsewhere
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        out = func(*args, **kwargs)
        operands, results = tensors((args, kwargs)), tensors(out)
        fresh = _memory(results) - _memory(operands)
        self.devices |= {t.device for t in operands + results}
        writes = func._schema.is_mutable and torch.Tag.inplace_view not in func.tags
        if writes or (fresh and "empty" not in func._schema.name):
            self.kernels[func._schema.name.replace("::", ".")] += 1
        for tensor in results:
            self.follow(tensor.untyped_storage(), fresh)
        return out

    def follow(self, storage: torch.UntypedStorage, fresh: set[int]) -> None:
        key = storage._cdata
        if key in fresh and key not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self.forget, key)

    def forget(self, key: int) -> None:
        self.live -= self.sizes.pop(key, 0)

    @property
    def device(self) -> torch.device:
        """The accelerator, if one took part, else the CPU."""
        return max(self.devices, key=lambda d: d.type == "cuda", default=torch.device("cpu"))


_recording: list[_Recorder] = []


def note_kernel(name: str) -> None:
    """Tell `launches` that a kernel from outside torch was launched."""
    for recorder in _recording:
        recorder.kernels[name] += 1


def _record(name: str, fn: Callable, args: tuple) -> _Recorder:
    if not callable(fn):
        raise TypeError(f"{name} wants a function or a module and its inputs; got {type(fn).__name__}.")
    recorder = _Recorder()
    if _is_compiled(fn):  # in a mode torch.compile runs the eager program, and goes on with it afterwards
        weights = list(fn.parameters()) if isinstance(fn, torch.nn.Module) else []
        recorder.devices = {t.device for t in tensors((args, weights))}
        if recorder.device.type != "cuda":
            raise ValueError(
                f"{name} cannot see into code that torch.compile made for a CPU: it would show the eager program. "
                "Measure the function that was compiled, or run it on CUDA."
            )
        return recorder
    with recorder:
        _recording.append(recorder)
        try:
            fn(*args)
        finally:
            _recording.remove(recorder)
    return recorder


def _is_compiled(fn: Any) -> bool:
    """Return whether `fn` is from torch.compile, or a Python function that names one that is."""
    if hasattr(fn, "_torchdynamo_orig_callable") or hasattr(fn, "_orig_mod"):
        return True
    if not inspect.isfunction(fn):
        return False
    names = inspect.getclosurevars(fn)
    return any(
        hasattr(value, "_torchdynamo_orig_callable") or hasattr(value, "_orig_mod")
        for value in [*names.nonlocals.values(), *names.globals.values()]
    )


def launches(fn: Callable, *args) -> Measured:
    """Count the kernels that `fn(*args)` starts: see `passlab.measure.launches`."""
    if isinstance(fn, torch.export.ExportedProgram):
        fn, args = _exported(fn, args)
    recorder = _record("launches", fn, args)
    kernels = recorder.kernels
    if recorder.device.type == "cuda":
        kernels = _cuda_kernels(fn, args)
    return Measured(kernels.total(), "launches", device_name(recorder.device), kernels)


def _cuda_kernels(fn: Callable, args: tuple) -> collections.Counter[str]:
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    fn(*args)  # whatever is compiled or tuned at the first call is done now
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        fn(*args)
        torch.cuda.synchronize()
    events = (e for e in profiled.profiler.kineto_results.events() if e.device_type() == DeviceType.CUDA)
    names = (e.name() for e in events if not e.is_user_annotation())
    return collections.Counter(name for name in names if not name.startswith(("Memcpy", "Memset")))


def device_name(device: torch.device) -> str:
    """Return a measurement's name for its device: "cpu" or "cuda:0 (NVIDIA …)"."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def machine_name(device: torch.device) -> str:
    """Return the name of what computes: "cpu, 2 threads" or "cuda:0 (NVIDIA …)"."""
    threads = f", {plural(torch.get_num_threads(), 'thread')}" if device.type == "cpu" else ""
    return device_name(device) + threads


def peak_memory(fn: Callable, *args) -> Measured:
    """Measure the peak number of bytes alive in tensors that `fn(*args)` allocates, its result included.

    Inputs and weights that existed before do not count. On a CPU every tensor is followed from its allocation to its
    release; memory that a kernel allocates for itself does not count. On CUDA the number is that of torch's allocator,
    which counts such memory and rounds up to 512 bytes.
    """
    if isinstance(fn, torch.export.ExportedProgram):
        fn, args = _exported(fn, args)
    recorder = _record("peak_memory", fn, args)
    peak, device = recorder.peak, recorder.device
    if device.type == "cuda":
        gc.collect()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        fn(*args)
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device) - before
    return Measured(peak, "bytes", device_name(device))


class _Traffic(torch.fx.Interpreter):
    """Runs a graph and prices each node: bytes it reads and writes. `moved`: node name → bytes."""

    def __init__(self, gm: torch.fx.GraphModule):
        super().__init__(gm)
        self.bytes_of: dict[str, int] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        if not n.op.startswith("call_"):
            return super().run_node(n)
        reads = tensors(self.fetch_args_kwargs_from_env(n))
        if n.op == "call_module":
            module = self.fetch_attr(n.target)
            state = [*module.named_parameters(), *module.named_buffers()]
            reads += [t for name, t in state if not name.endswith("num_batches_tracked")]
        version = [t._version for t in reads]
        result = super().run_node(n)
        memory = _memory(reads)
        fresh = [t for t in tensors(result) if t.untyped_storage()._cdata not in memory]
        changed = [t for t, v in zip(reads, version, strict=True) if t._version != v]
        if changed or (fresh and "empty" not in getattr(n.target, "__name__", str(n.target))):
            self.bytes_of[n.name] = _size(reads) + _size(fresh) + _size(changed)
        return result


def traffic(gm: torch.fx.GraphModule, *inputs) -> dict[str, int]:
    """Return node → bytes that it reads and writes in a run: see `passlab.measure.bytes_moved`."""
    interpreter = _Traffic(gm)
    interpreter.run(*inputs)
    return interpreter.bytes_of


def bytes_moved(program: Any, *inputs) -> Measured:
    """Sum the bytes that the nodes of a torch graph read and write: see `passlab.measure.bytes_moved`."""
    gm, inputs = _torch_graph(program, inputs)
    moved = _run(gm, inputs, "bytes_moved", traffic)
    return Measured(sum(moved.values()), "bytes moved", detail=moved)


def _torch_graph(program: Any, inputs: tuple) -> tuple[torch.fx.GraphModule | None, tuple]:
    """Return `program` as a GraphModule with inputs to run it on, or None where it is another IR."""
    if isinstance(program, torch.export.ExportedProgram):
        return _exported(program, inputs)
    if isinstance(program, torch.fx.Graph):
        program = torch.fx.GraphModule(program.owning_module or {}, program)
    if isinstance(program, torch.jit.ScriptModule):
        raise TypeError(
            "TorchScript has no graph of torch.fx to count in. Give the model that was scripted or traced, or "
            "torch.export.export(model, inputs)."
        )
    if isinstance(program, torch.nn.Module) and not isinstance(program, torch.fx.GraphModule):
        program = symbolic_trace(program)
    if not isinstance(program, torch.fx.GraphModule):
        return None, inputs
    return program, inputs or program.meta.get("inputs") or _zeros(program)


def _exported(program: torch.export.ExportedProgram, inputs: tuple) -> tuple[torch.fx.GraphModule, tuple]:
    args, kwargs = program.example_inputs
    return program.module(check_guards=False), inputs or (*args, *kwargs.values())


def _zeros(gm: torch.fx.GraphModule) -> tuple:
    """Return zeros of the shapes and dtypes noted on a graph's placeholders; a symbolic size is that of the capture."""
    zeros: list[Any] = []
    for node in gm.graph.find_nodes(op="placeholder"):
        known = next((node.meta[key] for key in ("tensor_meta", "val", "example_value") if key in node.meta), None)
        if known is None:
            raise ValueError(
                f"The shape of input {node.name!r} is not known. Give example inputs after the graph, "
                "or make the graph with passlab.trace(model, x)."
            )
        if isinstance(known, torch.SymInt):
            zeros.append(size_hint(known))
        else:
            zeros.append(torch.zeros([size_hint(dim) for dim in known.shape], dtype=known.dtype))
    return tuple(zeros)


def _gpus() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def _run(gm: torch.fx.GraphModule, inputs: tuple, name: str, measure: Callable) -> Any:
    """Return `measure(copy of gm, *copies of inputs)`: batch norm in training and in-place operations write to both."""
    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(_gpus()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns of its own tree specs when they are copied
        inputs = tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in inputs)
        try:
            return measure(copy.deepcopy(gm), *inputs)
        except Exception as error:
            raise RuntimeError(f"{name}: the graph does not run on these inputs: {error}") from error


def cost(program: Any, *inputs) -> Cost:
    """Return nodes (calls: neither inputs, weights nor output), `launches` and `bytes_moved` of a torch graph.

    Raises TypeError for a program without a graph.
    """
    gm, inputs = _torch_graph(program, inputs)
    if gm is None:
        raise TypeError(
            "cost wants a torch graph (GraphModule, Graph, ExportedProgram) or an IRModule; "
            f"got {type(program).__name__}. Import it into one of these; or bytes_moved counts what passlab.view shows."
        )
    nodes = sum(node.op.startswith("call_") for node in gm.graph.nodes)
    return Cost(nodes, int(_run(gm, inputs, "cost", launches)), int(bytes_moved(gm, *inputs)))
