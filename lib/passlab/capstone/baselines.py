"""Baselines for a compiled model: each a function (graph, inputs) → a function of the inputs.

Graph and inputs are on the CPU or on a GPU, and so is what a baseline returns.
A baseline that is not available raises `Missing`, and the comparison reports it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from passlab.building.compiler import Unreachable
from passlab.capstone.building import build, device_of
from passlab.capstone.compiled import Compiled, on
from passlab.fx.programs import copy_inputs


class Missing(RuntimeError):
    """A baseline cannot run here, for the reason in the message."""


def eager(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
    """Return the model as it is: torch runs one operator after the other."""
    return _without_gradients(gm)


def torch_compile(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
    """Return the model by torch.compile, compiled for these inputs. It takes seconds to minutes, and a C++ compiler, or
    Triton for a GPU. Raises Missing where torch.compile fails."""
    if device_of(inputs).type == "cpu" and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        raise Missing("torch.compile needs a C++ compiler (g++ or clang++), and finds none")
    torch._dynamo.reset()
    compiled = _without_gradients(torch.compile(gm, dynamic=False))
    try:
        compiled(*inputs)
    except Exception as error:
        raise Missing(f"torch.compile failed: {type(error).__name__}: {str(error).splitlines()[0][:120]}") from error
    return compiled


def tvm(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
    """Return the model by TVM's default Relax pipeline, on its own virtual machine. Raises Missing where TVM fails."""
    try:
        from passlab.relax import relax
        from passlab.relax import tvm as compiler
        from passlab.relax.pipelines import host
    except Unreachable as error:
        raise Missing(str(error)) from error
    from tvm.relax.frontend.torch import from_exported_program

    gpu = device_of(inputs)
    on_gpu = gpu.type == "cuda"
    if on_gpu and not compiler.cuda(gpu.index or 0).exist:
        raise Missing("this TVM was built without CUDA")
    try:
        with torch.no_grad():
            exported = torch.export.export(on("cpu", Compiled(gm)).graph, copy_inputs(tuple(inputs)))
            module = from_exported_program(exported, unwrap_unit_return_tuple=True)
        device = compiler.cuda(gpu.index or 0) if on_gpu else compiler.cpu()
        target = compiler.target.Target.from_device(device).with_host(host()) if on_gpu else host()
        with target:
            built = compiler.compile(module, target, relax_pipeline=relax.get_default_pipeline(target))
        machine = relax.VirtualMachine(built, device)
    except Exception as error:
        raise Missing(f"TVM cannot compile it: {type(error).__name__}: {str(error).splitlines()[0][:120]}") from error
    main = machine["main"]
    return lambda *xs: main(*(compiler.runtime.from_dlpack(x.contiguous()) for x in xs))


def reference(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
    """Return the model by the course's own compiler."""
    from passlab.capstone.reference import compile

    return build(compile(gm, inputs), inputs)


#: Name in tables → `make(gm, inputs)`, a function of the inputs. It raises Missing where the tool is missing or fails.
BASELINES: dict[str, Callable[[fx.GraphModule, Sequence[Any]], Callable]] = {
    "eager": eager,
    "torch.compile": torch_compile,
    "TVM": tvm,
    "reference": reference,
}


def _without_gradients(fn: Callable) -> Callable:
    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return fn(*inputs)

    return run
