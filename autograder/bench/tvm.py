"""`make bench`, part tvm: models built by Relay and Relax against torch and TVM's own default, in the same run.

A process can hold only one TVM, so each flavour has its own process. Ratios are medians over rounds in which all
candidates take turns. Only wall time accounts for several cores: on a busy machine, repeat the part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autograder.bench.figures import Figure, apart, at_most, versus

#: Rounds for candidates that take a second, and for those that take milliseconds.
FEW, MANY = 5, 15


def tvm(largest: int) -> Iterator[Figure | str]:
    """Measure both flavours, each in a separate process."""
    for figures in (relax_figures, relay_figures):
        yield f"{figures.__name__}: starting"
        yield from apart(figures)


# What is compared


def agreement(name: str, expected: Any, result: Any) -> Figure:
    """Return the largest difference to torch, relative to the root mean square of torch's output."""
    import torch

    actual = result if isinstance(result, torch.Tensor) else torch.from_numpy(result[0].numpy())
    off = float((actual - expected).abs().max() / expected.square().mean().sqrt())
    return at_most(f"{name}: largest difference to torch / rms", off, 1e-4, "")


def seconds(candidates: dict[str, Any], *inputs: Any, repeats: int, warmup: int = 3) -> dict[str, float]:
    """Return name → seconds of candidates that take turns: medians over rounds of the ratios to the first."""
    from passlab.measure import timed

    times = timed(candidates, *inputs, repeats=repeats, warmup=warmup)
    first = times[next(iter(candidates))]
    return {name: first.median * times[name].ratio for name in candidates}


def models() -> dict[str, tuple[Any, tuple]]:
    import torch

    from passlab import models as zoo

    draw = torch.Generator().manual_seed(0)
    image, tokens = torch.randn(1, 3, 224, 224, generator=draw), torch.randn(1, 128, 512, generator=draw)
    return {
        "ResNet-18": (zoo.resnet18(), (image,)),
        "transformer block": (zoo.gpt(width=512, heads=8, context=128), (tokens,)),
    }


# Relax


def relax_figures() -> Iterator[Figure | str]:
    yield from relax_models()
    yield from element_wise()
    yield from matmuls()


def relax_models() -> Iterator[Figure | str]:
    import torch

    from autograder.authoring.answers import reference
    from passlab.relax.pipelines import host, kernels, pipeline
    from passlab.tvm.importers import relax_module
    from passlab.tvm.measure import allocations, runner

    own = reference("day08.pipeline")
    for name, (model, inputs) in models().items():
        yield f"Relax, {name}: importing and building"
        module = relax_module(model, *inputs)
        better = own(module)
        candidates = {
            "torch eager": model,
            "torch.compile": torch.compile(model),
            "TVM's default": runner(module, target=str(host())),
            "the course's pipeline": runner(better, target=str(host()), pipeline=pipeline(fuse=False)),
        }
        with torch.no_grad():
            expected = model(*inputs)
            yield agreement(f"Relax, {name}", expected, candidates["the course's pipeline"](*inputs))
            yield f"Relax, {name}: timing"
            times = seconds(candidates, *inputs, repeats=FEW, warmup=1)
        least = 8 if name == "ResNet-18" else None
        yield versus(f"Relax, {name}", times, "the course's pipeline", "TVM's default", least)
        for other in ("torch eager", "torch.compile"):
            yield versus(f"Relax, {name}", times, "the course's pipeline", other)
        if name == "ResNet-18":
            for kind, built in (("unfused", kernels(fuse=False)(module)), ("fused", kernels()(module))):
                before, after = allocations(built), allocations(built, planned=True)
                note = f"{before.count} → {after.count}, {before.bytes / 1e6:.1f} MB → {after.bytes / 1e6:.1f} MB"
                ratio = after.bytes / before.bytes
                yield at_most(f"memory planning, {name} {kind}: bytes after / before", ratio, 0.6, "x", note)


def element_wise() -> Iterator[Figure | str]:
    """Time six cheap operations on 4096², where only memory traffic counts."""
    import torch
    from torch import nn

    from passlab.relax.pipelines import cpu_schedule, host, pipeline
    from passlab.tvm.importers import relax_module
    from passlab.tvm.measure import runner

    class Six(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.abs((x * 0.5 + 1.0) - 0.25) * 2.0)

    x, machine = torch.randn(4096, 4096), str(host())
    module = relax_module(Six().eval(), x)
    candidates = {
        "torch eager": Six(),
        "torch.compile": torch.compile(Six()),
        "TVM unfused": runner(module, target=machine, pipeline=pipeline(fuse=False, schedule=cpu_schedule)),
        "TVM fused": runner(module, target=machine, pipeline=pipeline(schedule=cpu_schedule)),
    }
    yield "six element-wise operations on 4096²"
    with torch.no_grad():
        yield agreement("six operations", Six()(x), candidates["TVM fused"](x))
        times = seconds(candidates, x, repeats=MANY)
    yield versus("six operations, 4096²", times, "TVM fused", "torch eager", 4)
    yield versus("six operations, 4096²", times, "TVM fused", "TVM unfused", 1.8)
    yield versus("six operations, 4096²", times, "TVM fused", "torch.compile")


def matmuls() -> Iterator[Figure | str]:
    """Time matmuls: scheduled by hand against the textbook's loops, tuned against torch."""
    import torch

    from autograder.authoring.answers import reference
    from passlab.exercises.day08.schedule import naive
    from passlab.relax import tvm
    from passlab.relax.pipelines import host, tune

    def kernel(source: Any) -> Callable[..., Any]:
        module = source if isinstance(source, tvm.IRModule) else tvm.IRModule({"main": source})
        main = tvm.compile(module, host())["main"]

        def run(*tensors: Any) -> Any:
            main(*(tvm.runtime.from_dlpack(t) for t in tensors))
            return tensors[-1]

        return run

    for n in (512, 1024):
        name = f"matmul {n}³"
        a, b, c = torch.randn(n, n), torch.randn(n, n), torch.zeros(n, n)
        yield f"{name}: tuning, 16 trials"
        tuned = tune(naive(n, n, n), "metaschedule", 16, progress=lambda *_: None)
        candidates = {
            "torch.matmul": lambda x, y, z: torch.matmul(x, y, out=z),
            "the naive nest": kernel(naive(n, n, n)),
            "a schedule by hand": kernel(reference("day08.schedule")(n, n, n)),
            "tuned, 16 trials": kernel(tuned.best.function.with_attr("global_symbol", "main")),
        }
        yield f"{name}: timing"
        yield agreement(f"{name} by hand", a @ b, candidates["a schedule by hand"](a, b, c).clone())
        yield agreement(f"{name} tuned", a @ b, candidates["tuned, 16 trials"](a, b, c).clone())
        times = seconds(candidates, a, b, c, repeats=FEW, warmup=1)
        yield versus(name, times, "a schedule by hand", "the naive nest", 20)
        yield versus(name, times, "tuned, 16 trials", "torch.matmul", 0.5)
        yield versus(name, times, "a schedule by hand", "torch.matmul")


# Relay


def relay_figures() -> Iterator[Figure | str]:
    import torch

    from passlab.tvm.importers import relay_module
    from passlab.tvm.measure import runner

    flags = Path("/proc/cpuinfo").read_text().split()  # this TVM's LLVM does not know current processors by name
    named = {"avx512f": "skylake-avx512", "avx2": "core-avx2"}
    target = f"llvm -mcpu={next((named[flag] for flag in named if flag in flags), 'x86-64')}"
    for name, (model, inputs) in models().items():
        yield f"Relay, {name}: importing and building"
        module = relay_module(model, *inputs)
        candidates = {
            "torch eager": model,
            "torch.compile": torch.compile(model),
            "TVM's default": runner(module, target=target, level=2),
            "Relay at level 3": runner(module, target=target, level=3),
        }
        with torch.no_grad():
            yield agreement(f"Relay, {name}", model(*inputs), candidates["Relay at level 3"](*inputs))
            yield f"Relay, {name}: timing"
            times = seconds(candidates, *inputs, repeats=FEW, warmup=1)
        for other in ("TVM's default", "torch eager", "torch.compile"):
            yield versus(f"Relay, {name}", times, "Relay at level 3", other)
