"""Flavours of warm processes: the imports that are done once, before a process forks for each notebook.

    flavours.prepare("relay")    # outside the sandbox: steps that a confined process could not do
    flavours.warm("relay")       # in the process that will fork

A warm process runs torch on one thread and does not touch a GPU; otherwise its forks would hang or fail.
"""

from __future__ import annotations

import compileall
import importlib
import os
import pkgutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

#: Not imported: parts that graded code does not use (the command line), exercises and what they give, which each
#: flavour imports by itself, and JAX, which is large and rarely used, so that not every fork has to carry it.
_NOT_WARMED = (
    "passlab.cli",
    "passlab.exercises",
    "passlab.given",
    "passlab.jupyter",
    "passlab.formats.hlo",
    "passlab.formats.stablehlo",
)
#: Modules for one compiler only: prefix → the flavours that import it.
_OF = {
    "passlab.relay.": "relay",
    "passlab.relax.": "relax",
    "passlab.mlir.": "mlir",
    "passlab.tvm.tensorir": "relay relax",
    "passlab.tvm.visits": "relay relax",
}
#: Modules that onnx or passlab import at their first use, which takes from half a second to several.
_LATE = (
    "IPython.display",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "matplotlib.style",
    "networkx",
    "onnx",
    "onnx.reference",
    "torch.fx.passes.shape_prop",
)
#: Modules that torch imports when a model is exported. Relay's notebooks import models by torch.jit instead.
_EXPORTING = ("torch._dynamo", "torch._inductor.pattern_matcher", "torch.onnx")


@dataclass(frozen=True)
class Flavour:
    """`about`: what its notebooks use, for messages. `prepare`, `warm`: see the functions below."""

    about: str
    warm: Callable[[bool], None]
    prepare: Callable[[], None] = lambda: None


def _warm_torch(notebooks: bool) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking whether there is a GPU must not initialize it
    import torch

    torch.set_num_threads(1)
    import passlab

    for module in pkgutil.walk_packages(passlab.__path__, "passlab."):
        if not module.name.startswith((*_NOT_WARMED, *_OF)):
            importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)
    _rehearse_judging()
    if notebooks:
        _rehearse_export()


def _rehearsal() -> tuple:
    """Return a small model in eval mode and an input for it."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return net.requires_grad_(False).eval(), torch.ones(1, 3, 8, 8)


def _rehearse_judging() -> None:
    """Trace, draw and compare a model: each fills its tables at its first use."""
    from passlab import draw, equivalent, trace

    net, x = _rehearsal()
    graph = trace(net, x)
    equivalent(graph, net, (x,), devices=["cpu"])
    draw(graph)


def _rehearse_export() -> None:
    import torch

    for name in _EXPORTING:
        importlib.import_module(name)
    net, x = _rehearsal()
    torch.export.export(net, (x,))
    torch.jit.trace(net, x)


def _tvm_on_one_thread() -> None:
    """Keep TVM from starting threads, and its importers from starting one that watches a progress bar."""
    os.environ["TVM_NUM_THREADS"] = "1"
    from tqdm import tqdm

    tqdm.monitor_interval = 0


def _import_own(flavour: str) -> None:
    import passlab

    own = tuple(prefix for prefix, flavours in _OF.items() if flavour in flavours.split())
    for module in pkgutil.walk_packages(passlab.__path__, "passlab."):
        if module.name.startswith(own):
            importlib.import_module(module.name)


def _warm_relay(notebooks: bool) -> None:
    _warm_torch(False)
    _tvm_on_one_thread()
    import torch

    from passlab.relay import relay, tvm

    _import_own("relay")
    if not notebooks:
        return
    executor = importlib.import_module("tvm.contrib.graph_executor")
    net, x = _rehearsal()
    module, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", x.shape)])
    built = relay.build(module, "llvm", params=params)
    executor.GraphModule(built["default"](tvm.cpu())).run()


def _warm_relax(notebooks: bool) -> None:
    _warm_torch(notebooks)
    _tvm_on_one_thread()
    import torch

    from passlab.relax import relax, tvm

    _import_own("relax")
    if not notebooks:
        return
    frontend = importlib.import_module("tvm.relax.frontend.torch")
    net, x = _rehearsal()
    module = frontend.from_exported_program(torch.export.export(net, (x,)))
    relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())["main"](tvm.runtime.tensor(x.numpy()))


def _warm_mlir(notebooks: bool) -> None:
    """Import xDSL and MLIR, and parse with both. No program is compiled: that would start threads."""
    _warm_torch(notebooks)
    _import_own("mlir")
    mlir = importlib.import_module("passlab.mlir")
    module = mlir.parse(importlib.import_module("passlab.mlir.executors").smallest())
    mlir.verify(module)
    mlir.pipeline(module, "canonicalize")


def _prepare_relay() -> None:
    from passlab import relay

    relay.prepare()


FLAVOURS = {
    "torch": Flavour("torch, torch.fx and ONNX", _warm_torch),
    "relay": Flavour("torch and Relay (TVM 0.17)", _warm_relay, _prepare_relay),
    "relax": Flavour("torch and Relax (TVM 0.27)", _warm_relax),
    "mlir": Flavour("torch and MLIR (IREE, xDSL)", _warm_mlir),
}


def _flavour(name: str) -> Flavour:
    if name not in FLAVOURS:
        raise ValueError(f"There is no flavour {name!r}; expected one of {', '.join(FLAVOURS)}.")
    return FLAVOURS[name]


@cache
def _compile() -> None:
    """Compile the project's modules: a confined process could not keep the bytecode, and would do it at every start."""
    import autograder
    import passlab

    for package in (autograder, passlab):
        compileall.compile_dir(package.__path__[0], quiet=2)


def prepare(name: str) -> None:
    """Do what must be done once outside the sandbox. Raises Unreachable if it cannot be done."""
    _flavour(name).prepare()
    _compile()


def warm(name: str, notebooks: bool = True) -> None:
    """Import what judges of this flavour use, and unless `notebooks` is False what its notebooks do; use it once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _flavour(name).warm(notebooks)
