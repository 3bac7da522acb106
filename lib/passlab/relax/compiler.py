"""Relax's compiler; see `passlab.building.compiler`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from passlab import relax
from passlab.tvm.compiler import TVM


class Relax(TVM):
    distribution = "apache-tvm"
    sources = ("tvm/compiler.py", "tvm/executors.py", "relax/executors.py")
    own = ("passlab.relax.", *TVM.shared)

    def reach(self) -> ModuleType:
        return relax.reach()

    def executors(self) -> ModuleType:
        return importlib.import_module("passlab.relax.executors")

    def load(self) -> Callable[[str], Any]:
        reach = super().load()
        importlib.import_module("tvm.sym")
        return reach

    def rehearse_notebook(self, net: Any, x: Any) -> None:
        import torch

        tvm = self.reach()
        frontend = importlib.import_module("tvm.relax.frontend.torch")
        module = frontend.from_exported_program(torch.export.export(net, (x,)))
        tvm.relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())["main"](tvm.runtime.tensor(x.numpy()))


COMPILER = Relax()
