"""Relay's compiler; see `passlab.building.compiler`."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from passlab import relay
from passlab.process.error_text import last_line
from passlab.tvm.compiler import TVM

#: What compiles a module of Relay, and runs all passes on the way: closed where an exercise asks for one of these.
COMPILING = (
    "tvm.relay.optimize",
    "tvm.relay.build",
    "tvm.relay.build_module.BuildModule",
    "tvm.relay.vm.VMCompiler",
)


class Relay(TVM):
    """`diagnoses`: the findings of the type checker, which TVM's errors do not quote."""

    distribution = "bitblas"
    sources = ("tvm/compiler.py", "tvm/executors.py", "relay/executors.py")
    own = ("passlab.relay.", *TVM.shared)

    def __init__(self):
        self.diagnoses: list[str] = []

    def reach(self) -> ModuleType:
        return relay.reach()

    def executors(self) -> ModuleType:
        return importlib.import_module("passlab.relay.executors")

    def prepare(self) -> None:
        relay.prepare()

    def start(self) -> None:
        super().start()
        _meet_error(self.reach())

    def rehearse_notebook(self, net: Any, x: Any) -> None:
        import torch

        tvm = self.reach()
        module, params = tvm.relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", x.shape)])
        built = tvm.relay.build(module, "llvm", params=params)
        executor = importlib.import_module("tvm.contrib.graph_executor")
        executor.GraphModule(built["default"](tvm.cpu())).run()

    def load(self) -> Callable[[str], Any]:
        reach = super().load()
        self.executors().prepare(self.diagnoses)
        _meet_error(self.reach())
        return reach

    def why(self, error: Exception) -> str:
        return last_line(self.diagnoses[0]) if self.diagnoses else super().why(error)


def _meet_error(tvm: ModuleType) -> None:
    """Catch an error of TVM's. For the first one in a process, TVM reads the symbols of all libraries, which takes half
    a second; forks inherit them."""
    with contextlib.suppress(tvm.error.TVMError):
        tvm.relay.transform.InferType()("not a module")


COMPILER = Relay()
