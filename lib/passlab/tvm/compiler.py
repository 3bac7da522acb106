"""The parts that the compilers of both TVMs share; see `passlab.building.compiler`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from passlab.building.arrays import dtype_of
from passlab.building.compiler import Compiler, Executor, Failed
from passlab.process.refusal import Refused

#: TVM's message → the message for learners.
_REMEDIES = (
    (re.compile(r"contains free variables: \[Var\((\w+).*"), r"nothing defines \1; make it a parameter, or bind it"),
    (
        re.compile(r"one or more error diagnostics were emitted.*"),
        "types do not fit, as where operands have two dtypes; relay.transform.InferType()(module) prints where",
    ),
    (re.compile(r".*Found null pointer node.*"), "a part of the program is None: does each visit_ method return?"),
)


class TVM(Compiler):
    """`reach`, `executors`: the module `tvm`, and the module of the package that builds, imported when called."""

    who = "TVM"
    shared = ("passlab.tvm.tensorir", "passlab.tvm.visits")

    def reach(self) -> ModuleType:
        raise NotImplementedError

    def executors(self) -> ModuleType:
        raise NotImplementedError

    def explain(self, text: str) -> str:
        for pattern, remedy in _REMEDIES:
            text = pattern.sub(remedy, text)
        return text

    def start(self) -> None:
        """Keep TVM from starting threads, and its importers from starting one that watches a progress bar."""
        os.environ["TVM_NUM_THREADS"] = "1"
        from tqdm import tqdm

        tqdm.monitor_interval = 0
        self.reach()

    def load(self) -> Callable[[str], Any]:
        sys.modules["torch"] = None  # TVM imports torch where it finds it: a second, and 200 MB
        return self.reach().ir.load_json

    def parse_untrusted(self, text: str) -> Any:
        from passlab.tvm import wire

        try:
            return wire.read(text.encode())
        except Refused as refused:
            raise Failed(str(refused)) from None

    def rehearse(self) -> None:
        self._smallest("llvm")

    def _smallest(self, target: str) -> Executor:
        """Build a small module (x + x)."""
        head = {"target": target, "function": "main", "pipeline": None, "level": 3, "disabled": [], "config": {}}
        return self.build(self.executors().smallest(), {}, head | {"optimize": False})

    def build(self, module: Any, params: dict[str, np.ndarray], head: dict) -> Executor:
        return self.executors().build(module, params, head)

    def targets(self) -> tuple[str, ...]:
        with contextlib.suppress(Exception):
            if self.reach().cuda(0).exist:
                (output,) = self.outputs(self._smallest("cuda").call([np.ones(4, np.float32)])())
                if (output == 2).all():
                    return ("llvm", "cuda")
        return ("llvm",)

    def use_threads(self, count: int) -> None:
        big_cores = 1
        self.reach().get_global_func("runtime.config_threadpool")(big_cores, count)

    def outputs(self, result: Any) -> list[np.ndarray]:
        return [_array(leaf) for leaf in _leaves(result)]


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the tensors of an output, nested in tuples."""
    if type(value).__name__ in ("Array", "ADT", "list", "tuple"):
        for at in range(len(value)):
            yield from _leaves(value[at])
    else:
        yield value


def _array(value: Any) -> np.ndarray:
    """Return a tensor of TVM, a shape or a number as an array."""
    if type(value).__name__ in ("Shape", "ShapeTuple"):
        return np.array([int(n) for n in value], np.int64)
    if not hasattr(value, "numpy"):
        return np.asarray(value)
    array = np.asarray(value.numpy(), order="C")
    return array.view(dtype_of("bfloat16")) if str(value.dtype) == "bfloat16" else array  # 0.17 says uint16
