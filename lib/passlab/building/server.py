"""The process in which modules are built and run: `requests` starts it and sends requests, each with its own socket.

    python -m passlab.building.server relax 5      (a flavour, and the number of the socket over which requests come)

It loads TVM but never runs a kernel itself, so that it has one thread and may fork. Each child answers one request.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from passlab.building.arrays import arrays, dtype_of, flat, spec
from passlab.building.compiler import Executor, Failed, Unreachable
from passlab.building.requests import COMPILERS, MEMORY_GIB, MOST_TENSORS, too_much
from passlab.graph import registry
from passlab.process.clock import cpu_time
from passlab.process.messages import receive, send
from passlab.process.server import Server

#: Seconds that the runs behind one measured time must take together.
_LONG_ENOUGH = 1e-3

# ── The child ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def answer(
    sock: socket.socket, flavour: str, load: Callable[[str], Any], limit: Callable[[], None] = lambda: None
) -> None:
    """Answer the request that comes over the socket.

    load(text): return the module of a text. limit(): limits the memory, except for a GPU, whose driver reserves
    terabytes of address space.
    """
    send(sock, {"ready": True})
    head, payload = receive(sock, None, MOST_TENSORS)
    if head["do"] == "targets":
        send(sock, _reply(kernels=("llvm", *(["cuda"] if _cuda_works(flavour) else []))))
        return
    stage = "build"
    if "cuda" not in head["target"]:
        limit()
    try:
        texts = []
        for size in (head["text"], *head["beside"]):
            texts.append(str(payload[:size], "utf-8"))
            payload = payload[size:]
        params, payload = arrays(head["params"].values(), payload)
        given = []
        for specs in head["inputs"]:
            found, payload = arrays(specs, payload)
            given.append(found)
        send(sock, {"stage": "build"})
        build, plain = _executors(flavour).build, head | {"pipeline": None}
        others = [build(load(text), {}, plain) for text in texts[1:]]
        program = build(load(texts[0]), dict(zip(head["params"], params, strict=True)), head)
        stage = "run"
        send(sock, {"stage": "run"})
        if head["threads"]:
            _use_threads(head["threads"])
        ran, beside = [], []
        for values in given:
            ran.append(_run(program, values))  # first: no memory that it is given holds their results for these inputs
            beside.append([_run(other, values)[1] for other in others])
        kernels, allocations = program.trace(given[0]) if given else ((), None)
        if head["timed"]:
            times = [seconds for _, seconds in ran]
        else:
            times = _times(program, given[0], head["repeats"]) if given else []
    except Failed as error:
        send(sock, {"error": str(error), "stage": stage})
    except MemoryError:
        send(sock, {"error": too_much(stage), "stage": stage})
    except Exception as error:
        if "bad_alloc" in str(error):
            said = too_much(stage)
        else:
            why = telling(_diagnoses[0] if _diagnoses else str(error)) or type(error).__name__
            said = f"{COMPILERS[flavour]} cannot {stage} the module: {why}."
        send(sock, {"error": said, "stage": stage})
    else:
        outputs = [[spec(array) for array in found] for found, _ in ran]
        reply = _reply(outputs, kernels, times, list(zip(*beside, strict=True)), allocations)
        send(sock, reply, *(flat(array) for found, _ in ran for array in found))


def _reply(outputs=(), kernels=(), times=(), beside=(), allocations=None) -> dict:
    return {
        "error": "",
        "stage": "",
        "outputs": list(outputs),
        "kernels": list(kernels),
        "times": list(times),
        "beside": list(beside),
        "allocations": allocations,
    }


#: Diagnostics of Relay's type checker: its errors only say that there are some.
_diagnoses: list[str] = []

#: Lines of a TVM error that only locate it in TVM's source.
_STACK = re.compile(r"Traceback|File \"|\[bt\]|Stack trace|at |\d+: |\^+$|[-=!]{3,}|#\d+ |note: run with")

_PLACE = re.compile(r"(what\(\):\s+)?(\[[\d:]+\] \S+:\d+: )?(\w+Error: )?(Check failed: \(.*?\) is false: ?)?(?=.)")


def telling(text: str) -> str:
    """Return the most telling line of an error or of a process's output: the last one outside a stack."""
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line and not _STACK.match(line)]
    return _PLACE.sub("", lines[-1]).rstrip(".")[:250] if lines else ""


def _use_threads(count: int) -> None:
    """Limit TVM's kernels to `count` threads, at most the cores that the process may use."""
    import tvm

    big_cores = 1
    tvm.get_global_func("runtime.config_threadpool")(big_cores, count)


def _run(program: Executor, values: list[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """Return the outputs of one run, flat, and its seconds of CPU time: what all threads of this process spent.

    Inputs are copied and outputs read outside of the clock.
    """
    call = program.call(values)
    start = cpu_time()
    result = call()
    seconds = cpu_time() - start
    return [_flat_array(leaf) for leaf in _leaves(result)], seconds


def _times(program: Executor, values: list[np.ndarray], repeats: int) -> list[float]:
    """Return the seconds of a run by the clock, `repeats` times. All are on the same inputs, into the same buffers."""
    if not repeats:
        return []
    again, times = program.call(values), []
    again()  # the first run may start threads
    start = time.perf_counter()
    again()
    number = max(1, math.ceil(_LONG_ENOUGH / max(time.perf_counter() - start, 1e-7)))
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            again()
        times.append((time.perf_counter() - start) / number)
    return times


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the tensors of an output, nested in tuples."""
    if type(value).__name__ in ("Array", "ADT", "list", "tuple"):
        for at in range(len(value)):
            yield from _leaves(value[at])
    else:
        yield value


def _flat_array(value: Any) -> np.ndarray:
    """Return a tensor of TVM, a shape or a number as an array."""
    if type(value).__name__ in ("Shape", "ShapeTuple"):
        return np.array([int(n) for n in value], np.int64)
    if not hasattr(value, "numpy"):
        return np.asarray(value)
    array = np.asarray(value.numpy(), order="C")
    return array.view(dtype_of("bfloat16")) if str(value.dtype) == "bfloat16" else array  # 0.17 says uint16


def _executors(flavour: str) -> Any:
    return registry.load(f"{flavour}.executors")


def _try(flavour: str, target: str) -> Any:
    """Build a small module (x + x)."""
    head = {"target": target, "function": "main", "pipeline": None, "level": 3, "disabled": [], "config": {}}
    head["optimize"] = False
    own = _executors(flavour)
    return own.build(own.smallest(), {}, head)


def rehearse(flavour: str) -> None:
    """Build a module, so that all children inherit what a first build loads and caches.

    IREE keeps nothing from one build to the next, and would start threads, with which no process may fork.
    """
    if flavour != "mlir":
        _try(flavour, "llvm")


def _cuda_works(flavour: str) -> bool:
    """Return whether a module can be built for CUDA and run here."""
    with contextlib.suppress(Exception):
        if sys.modules["tvm"].cuda(0).exist:
            (found,) = _leaves(_try(flavour, "cuda").call([np.ones(4, np.float32)])())
            return bool((found.numpy() == 2).all())
    return False


# ── The process that `requests` starts ────────────────────────────────────────────────────────────────────────────────


def _fork(keep: list[int]) -> int:
    pid = os.fork()
    if pid == 0:
        _die_with_parent()
        kept = sorted({0, 1, 2, *keep})
        for last, fd in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            if fd > last + 1:  # os.closerange(0, 0) closes everything
                os.closerange(last + 1, fd)
    return pid


def _die_with_parent() -> None:
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _limit_memory() -> None:
    """Limit the memory beyond what TVM itself takes, where the system reports that."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as statm:
        most = int(statm.read().split()[0]) * resource.getpagesize() + MEMORY_GIB * 2**30
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def load_compiler(flavour: str) -> Callable[[str], Any]:
    """Load TVM, or what runs MLIR; return the function that makes modules from text. Raises Unreachable."""
    if flavour == "mlir":
        return _executors(flavour).loader()
    sys.modules["torch"] = None  # TVM imports torch where it finds it: a second, and 200 MB
    tvm = registry.load(flavour).reach()
    _executors(flavour).prepare(_diagnoses)
    return tvm.ir.load_json


def main(flavour: str, number: str) -> None:
    control = socket.socket(fileno=int(number))
    try:
        load = load_compiler(flavour)
    except Unreachable as why:
        said = str(why)
        Server(control, _fork, lambda sock: send(sock, {"unreachable": said}), telling).serve()
        return
    rehearse(flavour)
    gc.collect()
    gc.freeze()
    Server(control, _fork, lambda sock: answer(sock, flavour, load, _limit_memory), telling).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # nothing is left to be done, and IREE's bindings would list at length what they have not freed
