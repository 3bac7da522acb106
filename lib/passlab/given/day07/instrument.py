"""Day 7, a pass instrument: how an answer runs on a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from passlab.given.day07._shared import plain
from passlab.judge import Case
from passlab.relay import relay, tvm

#: For each context the names of passes, which make one Sequential. The instrument must report the last context only.
Contexts = Sequence[Sequence[str]]


class Failed(Exception):
    """The error raised by the pass "Fails"."""


def _fails(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    raise Failed


#: How long the pass "Waits" sleeps, in seconds.
PAUSE = 0.02


def _waits(module: Any, context: Any) -> Any:
    time.sleep(PAUSE)
    return module


def _add_kernel(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Put a function of TIR beside those of Relay, as lowering does."""
    a = tvm.te.placeholder((2, 3), name="a")
    kernel = tvm.te.create_prim_func([a, tvm.te.compute((2, 3), lambda i, j: a[i, j] * 2.0)])
    return tvm.IRModule({**module.functions, relay.GlobalVar("kernel"): kernel.with_attr("global_symbol", "kernel")})


def _drop_kernels(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    return tvm.IRModule({name: f for name, f in module.functions.items() if isinstance(f, relay.Function)})


_OWN = {"Fails": _fails, "Waits": _waits, "AddKernel": _add_kernel, "DropKernels": _drop_kernels}


def _pass(name: str) -> Any:
    """Return a pass. Several names with " + " between them are a Sequential of their own."""
    if " + " in name:
        return tvm.transform.Sequential([_pass(one) for one in name.split(" + ")])
    if name in _OWN:
        return tvm.transform.module_pass(_OWN[name], opt_level=0, name=name)
    return getattr(relay.transform, name)()


def run(module: tvm.IRModule, contexts: Contexts, level: int, instrument: Any) -> tvm.IRModule | None:
    """Return the module after the passes of the last context; None if one of them fails."""
    result = None
    for names in contexts:
        try:
            with tvm.transform.PassContext(opt_level=level, instruments=[instrument]):
                result = tvm.transform.Sequential([_pass(name) for name in names])(module)
        except Exception as error:
            if "Failed" not in f"{type(error).__name__} {error}":
                raise
            result = None
    return result


def call(answer: Callable, case: Case) -> dict[str, Any] | None:
    """Run the passes of the case under the learner's instrument.

    Return its rows, the resulting module, and how long all of it took, in seconds; None for no instrument.
    """
    module, contexts, level = case.build()
    log, start = answer(), time.perf_counter()
    if log is None:  # TVM crashes on it
        return None
    result = run(module, contexts, level, log)
    elapsed = time.perf_counter() - start
    rows = [{key: plain(entry) for key, entry in row.items()} for row in log.rows]
    return {"rows": rows, "module": result, "elapsed": elapsed}
