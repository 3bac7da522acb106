"""How fast a fused group is on the GPU, beside eager torch, torch.compile and a copy of the same run.

A group of element-wise operations can at best take as long as a copy of what it reads and writes: it has to read and
write just that. Launches are counted by torch's profiler, bytes by the profiler's allocations, by the model of
`passlab.bytes_moved` and, where there is one, by ncu's counters.
"""

from __future__ import annotations

import csv
import glob
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from autograder.bench.figures import Figure, at_least, at_most, not_measured
from autograder.gpu.job import Job
from passlab import bytes_moved, launches, timed, trace
from passlab.kernels import Kernel, subgraph
from passlab.kernels.schedule import Knobs
from passlab.memory.cache import SECTOR, WARP, touched

ELEMENTS = 2**28
#: Of the bandwidth of a copy, what a fused chain should reach.
GOAL = 0.85
#: How often a candidate is called before the clock is read, so that Python starts the next call while a kernel runs.
CALLS = 10


def five(x: torch.Tensor) -> torch.Tensor:
    """Day 4's chain: mul, add, relu, mul, add."""
    return torch.relu(x * 1.5 + 0.25) * 0.75 + 0.5


def scaled(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """Compute a chain with an operand that is broadcast along the rows."""
    return torch.sigmoid(x * row + 0.5) * x


def as_one_kernel(function: Callable, *inputs: torch.Tensor) -> tuple[Any, Kernel]:
    """Return a function's graph, and its operations as one Triton kernel."""
    gm = trace(function, *inputs)
    group = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    return gm, Kernel(subgraph(gm, group), backend="triton")


def chains(job: Job, elements: int = ELEMENTS, rounds: int = 15, compiled: bool = True) -> Iterator[Figure | str]:
    """Time the chains: eager, one kernel, torch.compile, a copy; and count launches and bytes."""
    for dtype in (torch.float32, torch.bfloat16):
        for function in (five, scaled):
            name = f"{function.__name__}, {elements / 1e6:.3g} M {str(dtype).removeprefix('torch.')}"
            if job.left < 15:
                yield not_measured(name, "the time of this part was over")
                continue
            yield f"{name}: building"
            x = torch.randn(elements // 1024, 1024, device=job.device).to(dtype)
            inputs = (x,) if function is five else (x, torch.randn(1024, device=job.device).to(dtype))
            yield from _chain(job, name, function, inputs, rounds, compiled)
            del x, inputs
            if not job.interpret:
                torch.cuda.empty_cache()


def _chain(job: Job, name: str, function: Callable, inputs: tuple, rounds: int, compiled: bool) -> Iterator:
    gm, one = as_one_kernel(function, *inputs)
    buffer = torch.empty_like(inputs[0])
    candidates = {
        "eager": gm,
        "one kernel": lambda *tensors: one(*tensors, out=[buffer]),
        "a copy": lambda x, *_: buffer.copy_(x),
        "torch.compile": torch.compile(function, dynamic=False),
    }
    if not compiled:
        del candidates["torch.compile"]
    else:
        try:
            candidates["torch.compile"](*inputs)
        except Exception as error:
            del candidates["torch.compile"]
            lines = str(error).strip().splitlines() or [""]
            yield not_measured(f"{name}: torch.compile", f"{type(error).__name__}: {lines[0][:160]}")
    expected, results = gm(*inputs), one(*inputs)
    off = float(((expected - results).abs() / expected.abs().clamp_min(1)).max())
    yield at_most(f"{name}: largest relative difference to eager", off, 8 * torch.finfo(expected.dtype).eps, "")
    del expected, results
    yield f"{name}: timing"
    calls = 1 if job.interpret else CALLS
    times = timed({candidate: often(call, calls) for candidate, call in candidates.items()}, *inputs, repeats=rounds)
    moved = 2 * inputs[0].nbytes
    seconds = {candidate: times[candidate].min / calls for candidate in candidates}
    about = ", ".join(f"{candidate} {t * 1e3:.3g} ms = {moved / t / 1e9:,.0f} GB/s" for candidate, t in seconds.items())
    ratio = seconds["a copy"] / seconds["one kernel"]
    if job.interpret:
        yield not_measured(f"{name}: bandwidth / that of a copy", "Triton's interpreter says nothing of speed")
    else:
        yield at_least(f"{name}: bandwidth / that of a copy", ratio, GOAL, "x", about)
        faster = seconds["eager"] / seconds["one kernel"]
        yield Figure(f"{name}: times as fast as eager", f"{faster:.3g}x", about, value=faster)
        if "torch.compile" in seconds:
            versus = seconds["one kernel"] / seconds["torch.compile"]
            yield at_most(f"{name}: time / torch.compile's", versus, 1.1, "x")
    counted = {"eager": gm, "one kernel": one, "torch.compile": candidates.get("torch.compile")}
    for candidate, call in counted.items():
        if call is None:
            continue
        count = launches(call, *inputs)
        target, holds = ("1", count == 1) if candidate == "one kernel" and not job.interpret else ("", None)
        yield Figure(f"{name}: launches, {candidate}", str(int(count)), count.device or "", target, holds)
        nbytes = f"{bytes_allocated(call, *inputs):,}"
        yield Figure(f"{name}: bytes allocated, {candidate}", nbytes, "by torch's profiler")
    model, least = int(bytes_moved(gm, *inputs)), sum(t.nbytes for t in inputs) + inputs[0].nbytes
    title = f"{name}: bytes moved, eager / one kernel, by the model"
    yield Figure(title, f"{model / least:.3g}x", f"{model:,} / {least:,}", value=model / least)


def often(call: Callable, calls: int) -> Callable:
    """Return a function that calls another one several times, and keeps the last result only."""

    def run(*tensors: Any) -> Any:
        for _ in range(calls):
            result = call(*tensors)
        return result

    return run


def bytes_allocated(fn: Callable, *inputs: torch.Tensor) -> int:
    """Return the bytes that `fn` allocates on the device of its inputs, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = inputs[0].is_cuda
    with profile(
        activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu, profile_memory=True, acc_events=True
    ) as profiled:
        fn(*inputs)
        if on_gpu:
            torch.cuda.synchronize()
    kind = "self_device_memory_usage" if on_gpu else "self_cpu_memory_usage"
    return sum(max(getattr(event, kind), 0) for event in profiled.events())


# ------------------------------------------------------------------------------------------------ coalescing

#: Layout of what a kernel reads → its elements' distance, in elements, for neighbouring threads.
READS = {"contiguous": 1, "every second column": 2, "every eighth column": 8, "transposed": 2048}
SIDE = 2048
#: Elements of a Triton program: one for each thread of its four warps, so that a warp's load reads 32 neighbours, as in
#: the model. Of more elements a thread takes four in a row: then the lanes of one load are four elements apart.
THREADS = 4 * WARP
_METRICS = {
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "sectors",
    "dram__bytes_read.sum": "read",
    "dram__bytes_write.sum": "written",
}


def read(layout: str, device: str, side: int = SIDE) -> torch.Tensor:
    """Return a matrix of `side` × `side` floats that lies in memory like this."""
    step = READS[layout]
    if layout == "transposed":
        return torch.randn(side, side, device=device).t()
    return torch.randn(side, side * step, device=device)[:, ::step]


def efficiency(layout: str) -> float:
    """Return, by day 5's model, the part that a warp uses of the sectors it reads."""
    addresses = [4 * READS[layout] * lane for lane in range(WARP)]
    return WARP * 4 / (SECTOR * len(touched(addresses, 4, SECTOR)))


def copy_kernel(layout: str, device: str, side: int = SIDE) -> tuple[Callable, torch.Tensor, torch.Tensor]:
    """Return a kernel that reads a layout and writes contiguously, its input, and where it writes."""
    x = read(layout, device, side)
    y = torch.zeros(side, side, device=device)
    one = Kernel(torch.fx.symbolic_trace(lambda y, x: y + x), backend="triton", knobs=Knobs(block=THREADS))
    return lambda x: one(y, x), x, y


def coalescing(job: Job) -> Iterator[Figure | str]:
    """Compare the sectors that kernels read with day 5's model: by ncu where it is, else by the clock only."""
    if job.interpret:
        yield not_measured("coalescing", "it is a matter of a GPU's memory")
        return
    candidates = {layout: copy_kernel(layout, job.device)[:2] for layout in READS}
    calls = 4 * CALLS
    times = timed({layout: often(lambda f=f, x=x: f(x), calls) for layout, (f, x) in candidates.items()}, repeats=15)
    for layout in READS:
        about = (
            f"{times[layout].min / calls * 1e6:.3g} µs; of what is read, {efficiency(layout):.3g} is used by the model"
        )
        ratio = times[layout].min / times["contiguous"].min
        yield Figure(f"coalescing: time of a {layout} read / contiguous", f"{ratio:.3g}x", about, value=ratio)
    program = ncu()
    if program is None:
        yield not_measured("coalescing, counted", "there is no ncu in PATH, /usr/local/cuda*/bin or /opt/nvidia")
        return
    yield f"counting with {program}"
    yield from _count_sectors(job, program)


def ncu() -> str | None:
    """Return the path of NVIDIA's profiler of kernels, or None."""
    places = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/nvidia/**/ncu")
    paths = [path for place in places for path in sorted(glob.glob(place)) if os.access(path, os.X_OK)]
    return shutil.which("ncu") or (paths[-1] if paths else None)


def _count_sectors(job: Job, program: str) -> Iterator[Figure | str]:
    """Run the kernels again under ncu, in a process of their own, and read its table."""
    command = [program, "--csv", "--print-units", "base", "--target-processes", "all", "--kernel-name", "regex:^fused"]
    command += ["--metrics", ",".join(_METRICS), sys.executable, "-m", "autograder.gpu.speed"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=max(job.left - 3, 1))
    except (OSError, subprocess.TimeoutExpired) as error:
        yield not_measured("coalescing, counted", f"ncu did not end: {type(error).__name__}")
        return
    rows = counters(process.stdout)
    if len(rows) != len(READS):
        lines = [line for line in (process.stdout + process.stderr).splitlines() if "ERR" in line or "rror" in line]
        reason = (lines or (process.stdout + process.stderr).strip().splitlines() or ["it said nothing"])[0]
        yield not_measured("coalescing, counted", f"ncu counted {len(rows)} of {len(READS)} kernels: {reason[:200]}")
        return
    for layout, row in zip(READS, rows, strict=True):
        # Each element of x and of y is read once, y contiguously.
        sectors = row["sectors"] - SIDE * SIDE * 4 / SECTOR
        used = SIDE * SIDE * 4 / (sectors * SECTOR)
        off = abs(used / efficiency(layout) - 1)
        about = f"{sectors:,.0f} sectors, {row['read']:,.0f} B from memory and {row['written']:,.0f} B to it, by ncu"
        about += f"; used {used:.3g}, the model says {efficiency(layout):.3g}"
        yield at_most(f"coalescing, {layout}: sectors, off the model by", off, 0.1, "", about)


def counters(text: str) -> list[dict[str, float]]:
    """Return ncu's counters, one dict for each kernel, in the order in which they ran."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(lines[start:]):
        if name := _METRICS.get(row.get("Metric Name", "")):
            kernels.setdefault(row["ID"], {})[name] = float(row["Metric Value"].replace(",", ""))
    return [row for row in kernels.values() if len(row) == len(_METRICS)]


def speed(job: Job) -> Iterator[Figure | str]:
    if job.interpret:
        yield from chains(job, elements=2**12, rounds=2, compiled=False)
    else:
        free, _ = torch.cuda.mem_get_info()
        yield from chains(job, elements=min(ELEMENTS, 2 ** int(math.log2(free / 64))))
    yield from coalescing(job)


if __name__ == "__main__":  # what ncu runs: each kernel once
    for layout in READS:
        call, x, _ = copy_kernel(layout, "cuda")
        call(x)
    torch.cuda.synchronize()
