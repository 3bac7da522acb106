"""Flavours of warm processes: the imports that are done once, before a process forks for each notebook.

    flavours.prepare("relay")          # outside the sandbox: steps that a confined process could not do
    flavours.share(notebooks=True)     # in the process of which those of all flavours are forks
    flavours.warm("relay")             # in the process that will fork workers; all of it, where nothing is shared

A warm process runs torch on one thread and does not touch a GPU; otherwise its forks would hang or fail.
"""

from __future__ import annotations

import compileall
import importlib
import os
import pkgutil
import warnings
from functools import cache

from passlab.graph.registry import COMPILERS, compiler

#: Not imported: parts that graded code does not use (commands, what JupyterLab loads), exercises and what they give,
#: which each flavour imports by itself, and JAX, which is large and rarely used: not every fork has to carry it.
_NOT_WARMED = (
    "passlab.cli",
    "passlab.exercises",
    "passlab.given",
    "passlab.hunt.__main__",
    "passlab.jupyter",
    "passlab.notebook.files",
    "passlab.formats.hlo",
    "passlab.formats.stablehlo",
)
#: Modules that onnx or passlab import at their first use, which takes from half a second to several.
_LATE = (
    "networkx",
    "onnx",
    "onnx.reference",
    "torch.fx.passes.shape_prop",
)
#: The same of notebooks, which draw charts, and import a solver that many of their processes would load anew.
_IN_NOTEBOOKS = (
    "IPython.display",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "matplotlib.style",
    "ortools.sat.python.cp_model",
)
#: Modules that torch imports when a model is exported.
_EXPORTING = ("torch._dynamo", "torch._inductor.pattern_matcher", "torch.onnx")
FLAVOURS = ("torch", *COMPILERS)
#: Whether this process, or the one that it is a fork of, has called `share`.
_is_shared = False


def share(notebooks: bool) -> None:
    """Import what judges of all flavours use, and with `notebooks` what their notebooks do; use it once."""
    global _is_shared
    os.environ["OMP_NUM_THREADS"] = "1"  # before anything imports NumPy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _warm_torch(notebooks)
    _is_shared = True


def _warm_torch(notebooks: bool) -> None:
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking whether there is a GPU must not initialize it
    import torch

    torch.set_num_threads(1)
    import passlab

    of_compilers = [prefix for flavour in COMPILERS for prefix in compiler(flavour).own]
    for module in pkgutil.walk_packages(passlab.__path__, "passlab."):
        if not module.name.startswith((*_NOT_WARMED, *of_compilers)):
            importlib.import_module(module.name)
    for name in (*_LATE, *(_IN_NOTEBOOKS if notebooks else ())):
        importlib.import_module(name)
    # Where there is no GPU, a build of torch for CUDA counts one as soon as a FakeTensorMode has been used. If the
    # first backward pass comes after that, it starts threads for it, and then no fork can compute gradients.
    torch.ones(1, requires_grad=True).sum().backward()
    _rehearse_judging()
    if notebooks:
        _rehearse_export()
    else:
        _rehearse_recording()


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


def _rehearse_recording() -> None:
    """Record a function on tensors without data, as judges of joint graphs do: that imports all of Dynamo."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    for mode in ("fake", "symbolic"):
        make_fx(torch.neg, tracing_mode=mode)(torch.ones(2))


def _import_all(prefixes: tuple[str, ...]) -> None:
    import passlab

    for module in pkgutil.walk_packages(passlab.__path__, "passlab."):
        if module.name.startswith(prefixes):
            importlib.import_module(module.name)


@cache
def _compile() -> None:
    """Compile the project's modules: a confined process could not keep the bytecode, and would do it at every start."""
    import autograder
    import passlab

    for package in (autograder, passlab):
        compileall.compile_dir(package.__path__[0], quiet=2)


def prepare(name: str) -> None:
    """Do what must be done once outside the sandbox. Raises Unreachable if it cannot be done."""
    if own := compiler(name):
        own.prepare()
    _compile()


def warm(name: str, notebooks: bool = True) -> None:
    """Import what judges of this flavour use, and unless `notebooks` is False what its notebooks do; use it once."""
    if not _is_shared:
        share(notebooks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = compiler(name)
        if own is not None:
            own.start()
            _import_all(own.own)
            if notebooks:
                own.rehearse_notebook(*_rehearsal())


def import_given(flavour: str) -> None:
    """Import what a flavour's exercises give. Their judges are not in this process, nor where it could read them."""
    from passlab import exercises

    for day in exercises.days():
        for exercise in exercises.of_day(day):
            if exercise.flavour == flavour:
                exercises.given_module(exercise.id)
