"""Measuring: time, kernel launches, bytes moved, peak memory. What each number means is said where it is made.

    timed({"eager": model, "mine": fused}, x)     # a table: median, spread, minimum, ratio to the first
    launches(model, x)                            # 2 launches on cpu: aten.addmm, aten.relu
    bytes_moved(gm, x)                            # read + written, from shapes
    cost(gm, x)                                   # nodes, launches and bytes at once

Reading order: which operations do work, launches, bytes, memory, cost, time. Time depends on the machine; the other
four do not, and are the ones to assert on.
"""

from __future__ import annotations

import collections
import copy
import gc
import html
import inspect
import math
import statistics
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from passlab.tvm.modules import is_module


class Measured(int):
    """A number that remembers what it counts (`unit`), where it was measured (`device`, None for what follows from
    shapes alone) and what it is made of (`detail`: name → number)."""

    def __new__(cls, value: int, unit: str, device: str | None = None, detail: Mapping[str, int] | None = None):
        self = super().__new__(cls, value)
        self.unit, self.device, self.detail = unit, device, dict(detail or {})
        return self

    def __repr__(self) -> str:
        place = f" on {self.device}" if self.device else ""
        return f"{int(self):,} {self.unit if self != 1 else _SINGULAR[self.unit]}{place}{self._parts()}"

    def _parts(self) -> str:
        """The largest parts first, five at most: ": aten.relu ×2, aten.addmm"."""
        if self.unit != "launches" or not self:
            return ""
        largest = sorted(self.detail.items(), key=lambda part: -part[1])
        shown = [name + (f" ×{n}" if n > 1 else "") for name, n in largest[:5]]
        return ": " + ", ".join(shown) + (f" and {len(largest) - 5} more" if len(largest) > 5 else "")

    __str__ = int.__repr__


def _of_modules() -> Any:
    """What measures IRModules."""
    from passlab.tvm import measure as measure_tvm

    return measure_tvm


_SINGULAR = {"launches": "launch", "bytes": "byte", "bytes moved": "byte moved"}


def _tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def _memory(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {t.untyped_storage()._cdata for t in tensors}


def _size(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the elements of different tensors; the same tensor twice counts once."""
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
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE):
            with self:  # under inference_mode composite operations arrive whole: take them apart, as happens elsewhere
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        out = func(*args, **kwargs)
        operands, results = _tensors((args, kwargs)), _tensors(out)
        made = _memory(results) - _memory(operands)
        self.devices |= {t.device for t in operands + results}
        writes = func._schema.is_mutable and torch.Tag.inplace_view not in func.tags
        if writes or (made and "empty" not in func._schema.name):
            self.kernels[func._schema.name.replace("::", ".")] += 1
        for tensor in results:
            self.follow(tensor.untyped_storage(), made)
        return out

    def follow(self, storage: torch.UntypedStorage, made: set[int]) -> None:
        key = storage._cdata
        if key in made and key not in self.sizes:
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
    """A kernel was launched that is none of torch's: `launches` counts it."""
    for recorder in _recording:
        recorder.kernels[name] += 1


def _record(what: str, fn: Callable, args: tuple) -> _Recorder:
    if not callable(fn):
        raise TypeError(f"{what} wants a function or a module and its inputs; got {type(fn).__name__}.")
    with _Recorder() as recorder:
        _recording.append(recorder)
        try:
            fn(*args)
        finally:
            _recording.remove(recorder)
    if recorder.device.type != "cuda" and _is_compiled(fn):
        raise ValueError(
            f"{what} cannot see into code that torch.compile made for a CPU: it would show the eager program. "
            "Measure the function that was compiled, or run it on CUDA."
        )
    return recorder


def _is_compiled(fn: Any) -> bool:
    """Is `fn` from torch.compile, or a Python function that names one that is?"""
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
    """How many kernels `fn(*args)` starts.

    On a CPU: ATen operations that write to a tensor's memory (views and `empty` do not), each of which eager torch
    runs as one kernel call, and each call of a `passlab.kernels.Kernel`. On CUDA: kernels the profiler saw run, copies
    and fills not counted. `.detail` has the count by name. `fn` is called once on a CPU, three times on CUDA. Raises
    ValueError for torch.compile on a CPU.

    An IRModule is built by TVM, and the kernels of that are counted: see `passlab.tvm.measure.launches`.
    """
    if is_module(fn):
        return _of_modules().launches(fn, *args)
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
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        fn(*args)
        torch.cuda.synchronize()
    events = (e for e in seen.profiler.kineto_results.events() if e.device_type() == DeviceType.CUDA)
    names = (e.name() for e in events if not e.is_user_annotation())
    return collections.Counter(name for name in names if not name.startswith(("Memcpy", "Memset")))


def device_name(device: torch.device) -> str:
    """How a measurement names its device: "cpu" or "cuda:0 (NVIDIA …)"."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def peak_memory(fn: Callable, *args) -> Measured:
    """The most bytes alive at one time in tensors that `fn(*args)` makes, its result included.

    Inputs and weights that existed before do not count. On a CPU every tensor is followed from its making to its end;
    what a kernel allocates for itself is not seen. On CUDA it is what torch's allocator says, which sees that too and
    rounds up to 512 bytes.
    """
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
        self.moved: dict[str, int] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        if not n.op.startswith("call_"):
            return super().run_node(n)
        reads = _tensors(self.fetch_args_kwargs_from_env(n))
        if n.op == "call_module":
            module = self.fetch_attr(n.target)
            state = [*module.named_parameters(), *module.named_buffers()]
            reads += [t for name, t in state if not name.endswith("num_batches_tracked")]
        version = [t._version for t in reads]
        result = super().run_node(n)
        held, made = _memory(reads), [t for t in _tensors(result)]
        made = [t for t in made if t.untyped_storage()._cdata not in held]
        changed = [t for t, v in zip(reads, version, strict=True) if t._version != v]
        if changed or (made and "empty" not in getattr(n.target, "__name__", str(n.target))):
            self.moved[n.name] = _size(reads) + _size(made) + _size(changed)
        return result


def _traffic(gm: torch.fx.GraphModule, *inputs) -> dict[str, int]:
    interpreter = _Traffic(gm)
    interpreter.run(*inputs)
    return interpreter.moved


def bytes_moved(program: Any, *inputs) -> Measured:
    """Bytes that a graph reads and writes, by this model: every node reads each of its operands (weights too) from
    memory once, and writes its result there once; views and bare allocations (`empty`) are free.

    The numbers follow from shapes alone: no cache, no tiling. A torch graph is run once on `inputs` (if none are given:
    `gm.meta["inputs"]`, or zeros of the shapes on the placeholders) to see shapes and which results are views; the
    graph and the inputs stay as they are. An IRModule's kernels follow from its types (`passlab.tvm.measure`). Other
    IRs are counted on `passlab.view`: there compute and memory nodes move bytes. `.detail` has the bytes by node.
    """
    if is_module(program):
        return _of_modules().bytes_moved(program)
    import passlab.graph

    gm, inputs = _torch_graph(program, inputs)
    if gm is not None:
        moved = _run(gm, inputs, "bytes_moved", _traffic)
    else:
        graph = program if isinstance(program, passlab.graph.Graph) else passlab.graph.view(program, *inputs)
        moved = {}
        for node in graph.nodes:
            if node.kind in ("compute", "memory"):
                moved[node.id] = sum(_known(graph, id) for id in (node.id, *node.inputs))
    return Measured(sum(moved.values()), "bytes moved", detail=moved)


def _known(graph: Any, id: str) -> int:
    size = graph.node(id).bytes
    if size is None:
        raise ValueError(f"bytes_moved: the size of node {id!r} is not known. Give example inputs: bytes_moved(g, x).")
    return size


def _torch_graph(program: Any, inputs: tuple) -> tuple[torch.fx.GraphModule | None, tuple]:
    """`program` as a GraphModule with inputs to run it on, or None where it is another IR."""
    if isinstance(program, torch.export.ExportedProgram):
        args, kwargs = program.example_inputs
        return program.module(check_guards=False), inputs or (*args, *kwargs.values())
    if isinstance(program, torch.fx.Graph):
        program = torch.fx.GraphModule(program.owning_module or {}, program)
    if isinstance(program, torch.nn.Module) and not isinstance(program, torch.fx.GraphModule):
        program = torch.fx.symbolic_trace(program)
    if not isinstance(program, torch.fx.GraphModule):
        return None, inputs
    return program, inputs or program.meta.get("inputs") or _zeros(program)


def _zeros(gm: torch.fx.GraphModule) -> tuple:
    made = []
    for node in gm.graph.find_nodes(op="placeholder"):
        known = node.meta.get("tensor_meta", node.meta.get("val"))
        if known is None:
            raise ValueError(
                f"The shape of input {node.name!r} is not known. Give example inputs after the graph, "
                "or make the graph with passlab.trace(model, x)."
            )
        made.append(torch.zeros(known.shape, dtype=known.dtype))
    return tuple(made)


def _gpus() -> list[int]:
    return list(range(torch.cuda.device_count()))


def _run(gm: torch.fx.GraphModule, inputs: tuple, what: str, how: Callable) -> Any:
    """`how(copy of gm, *copies of inputs)`: batch norm in training and in-place operations write to both."""
    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(_gpus()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns of its own tree specs when they are copied
        inputs = tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in inputs)
        try:
            return how(copy.deepcopy(gm), *inputs)
        except Exception as error:
            raise RuntimeError(f"{what}: the graph does not run on these inputs: {error}") from error


@dataclass(frozen=True)
class Cost:
    """What a graph costs: calls in it, kernels it starts, bytes it moves."""

    nodes: int
    launches: int
    bytes: int


def cost(program: Any, *inputs) -> Cost:
    """Nodes (calls: neither inputs, weights nor output), `launches` and `bytes_moved` of a torch graph or IRModule."""
    if is_module(program):
        return _of_modules().cost(program, *inputs)
    gm, inputs = _torch_graph(program, inputs)
    if gm is None:
        raise TypeError(
            "cost wants a torch graph (GraphModule, Graph, ExportedProgram) or an IRModule; "
            f"got {type(program).__name__}."
        )
    nodes = sum(node.op.startswith("call_") for node in gm.graph.nodes)
    return Cost(nodes, int(_run(gm, inputs, "cost", launches)), int(bytes_moved(gm, *inputs)))


@dataclass(frozen=True)
class Row:
    """One candidate's times in seconds. `iqr`: third minus first quartile. `ratio`: to the first candidate."""

    name: str
    median: float
    iqr: float
    min: float
    ratio: float


@dataclass(frozen=True)
class Timing:
    """What `timed` found; shows itself as a table. `timing["mine"].ratio` is how often as long as the first it took."""

    rows: tuple[Row, ...]
    device: str
    repeats: int

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"There is no candidate {name!r}; there are {', '.join(row.name for row in self.rows)}.")

    def _cells(self) -> list[tuple[str, ...]]:
        head = ("", "median", "spread (IQR)", "minimum", f"ratio to {self.rows[0].name}")
        return [head] + [(r.name, *map(seconds, (r.median, r.iqr, r.min)), f"{r.ratio:.2f}") for r in self.rows]

    @property
    def _about(self) -> str:
        return f"{self.repeats} interleaved repeats on {self.device}"

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
        return "\n".join([*lines, self._about])

    def _repr_html_(self) -> str:
        rows = [
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            for tag, row in zip(["th"] + ["td"] * len(self.rows), self._cells(), strict=True)
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table>{body}<caption>{html.escape(self._about)}</caption></table>"


def seconds(t: float) -> str:
    """A time with three digits and its unit: 1.23 ms."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if t >= size:
            return f"{t / size:.3g} {unit}"
    return f"{t / 1e-9:.3g} ns"


def timed(candidates: Mapping[str, Callable], *inputs, repeats: int = 25, warmup: int = 3) -> Timing:
    """Time candidates against the first of them, so that the comparison stands even where the machine is busy.

    Each is called `warmup` times first. Then come `repeats` rounds, and in each round every candidate has its turn, in
    an order that rotates: what slows the machine down slows all of them. A fast candidate is called many times in
    its turn (at least half a millisecond). CUDA is synchronised before the clock is read. `ratio` is the median over
    the rounds of (candidate's time / first one's time in the same round). Candidates are called with `inputs`.
    """
    if not isinstance(candidates, Mapping) or not candidates or not all(callable(f) for f in candidates.values()):
        raise TypeError('timed wants functions by name: timed({"eager": f, "mine": g}, x).')
    if repeats < 2 or warmup < 1:
        raise ValueError(f"timed wants at least 2 repeats and 1 warm-up; got {repeats} and {warmup}.")
    device, calls = torch.device("cpu"), {}
    for name, fn in candidates.items():
        try:
            for _ in range(warmup):
                result = fn(*inputs)
        except Exception as error:
            raise RuntimeError(f"timed: {name!r} raised {type(error).__name__}: {error}") from error
        device = next((t.device for t in _tensors((result, inputs)) if t.device.type == "cuda"), device)
        calls[name] = max(1, math.ceil(5e-4 / max(_turn(fn, inputs, 1), 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    order, collecting = list(candidates), gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            for name in order:
                times[name].append(_turn(candidates[name], inputs, calls[name]))
            order.append(order.pop(0))
    finally:
        if collecting:
            gc.enable()
    first, rows = next(iter(times.values())), []
    for name, ts in times.items():
        low, mid, high = statistics.quantiles(ts, n=4, method="inclusive")
        ratio = statistics.median(t / base for t, base in zip(ts, first, strict=True))
        rows.append(Row(name, mid, high - low, min(ts), ratio))
    threads = torch.get_num_threads()
    threads = f", {threads} thread{'s' * (threads > 1)}" if device.type == "cpu" else ""
    return Timing(tuple(rows), device_name(device) + threads, repeats)


def _turn(fn: Callable, inputs: tuple, calls: int) -> float:
    """Seconds per call."""
    _synchronise()
    start = time.perf_counter()
    for _ in range(calls):
        fn(*inputs)
    _synchronise()
    return (time.perf_counter() - start) / calls


def _synchronise() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
