"""The process in which modules are built and run: `requests` starts it and sends requests, each with its own socket.

    python -m passlab.building.server relax 5      (a flavour, and the number of the socket over which requests come)

It loads a compiler but never runs a kernel itself, so that it has one thread and may fork. Each child answers one
request.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from passlab.building.arrays import arrays, flat, spec
from passlab.building.compiler import Compiler, Executor, Failed, Unreachable
from passlab.building.requests import MEMORY_GIB, MOST_TENSORS, too_much
from passlab.graph import registry
from passlab.process.clock import cpu_time
from passlab.process.error_text import last_line
from passlab.process.forking import settle
from passlab.process.messages import receive, send
from passlab.process.server import Server

#: Seconds that the runs behind one measured time must take together.
_LONG_ENOUGH = 1e-3

# ── The child ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def answer(
    sock: socket.socket, own: Compiler, read: Callable[[str], Any], limit: Callable[[], None] = lambda: None
) -> None:
    """Answer the request on the socket, and the next ones, as long as each says that it may not be the last ("again").

    read(text): return the module of a text. limit(): limits the memory, except for a GPU, whose driver reserves
    terabytes of address space.
    """
    send(sock, {"ready": True})
    while True:
        head, payload = receive(sock, None, MOST_TENSORS)
        _answer(sock, own, head, payload, read, limit)
        if not head.get("again"):
            return


def _answer(
    sock: socket.socket,
    own: Compiler,
    head: dict[str, Any],
    payload: memoryview,
    read: Callable[[str], Any],
    limit: Callable[[], None],
) -> None:
    if head["do"] == "targets":
        reply = {"outputs": [], "kernels": own.targets(), "times": []}
        send(sock, reply | {"error": "", "stage": "", "beside": [], "allocations": None})
        return
    stage = "build"
    if "cuda" not in head["target"]:
        limit()
    try:
        text, payload = str(payload[: head["text"]], "utf-8"), payload[head["text"] :]
        params, payload = arrays(head["params"].values(), payload)
        inputs = []
        for specs in head["inputs"]:
            tensors, payload = arrays(specs, payload)
            inputs.append(tensors)
        send(sock, {"stage": "build"})
        program = own.build(read(text), dict(zip(head["params"], params, strict=True)), head)
        stage = "run"
        send(sock, {"stage": "run"})
        if head["threads"]:
            own.use_threads(head["threads"])
        if head["timed"]:
            _run_by_turns(sock, own, program)
            return
        ran = [own.outputs(program.call(values)()) for values in inputs]
        kernels, allocations = program.trace(inputs[0]) if inputs else ((), None)
        times = _times(program, inputs[0], head["repeats"]) if inputs else []
    except Failed as error:
        send(sock, {"error": str(error), "stage": stage})
    except MemoryError:
        send(sock, {"error": too_much(stage), "stage": stage})
    except Exception as error:
        if "bad_alloc" in str(error):
            reason = too_much(stage)
        else:
            reason = f"{own.who} cannot {stage} the module: {own.why(error) or type(error).__name__}."
        send(sock, {"error": reason, "stage": stage})
    else:
        outputs = [[spec(array) for array in arrays] for arrays in ran]
        reply = {"outputs": outputs, "kernels": list(kernels), "times": times, "allocations": allocations}
        send(sock, reply | {"error": "", "stage": "", "beside": []}, *(flat(array) for run in ran for array in run))


def _run_by_turns(sock: socket.socket, own: Compiler, program: Executor) -> None:
    """Run a program on request; the other end reads the clock between its messages.

    A run's inputs are copied before it, and its outputs are read after it.
    """
    values: list[np.ndarray] = []
    call, result = None, None
    while True:
        request, payload = receive(sock, None, MOST_TENSORS)
        match request["do"]:
            case "wait":
                send(sock, {})
            case "take":
                values, _ = arrays(request["inputs"], payload)
                call = program.call(values)
                send(sock, {})
            case "run":
                start = cpu_time()
                result = call()
                send(sock, {"seconds": cpu_time() - start})
            case "give":
                outputs = own.outputs(result)
                send(sock, {"outputs": [spec(array) for array in outputs]}, *map(flat, outputs))
            case _:
                kernels, allocations = program.trace(values) if values else ((), None)
                send(sock, {"kernels": list(kernels), "allocations": allocations})


def _times(program: Executor, values: list[np.ndarray], repeats: int) -> list[float]:
    """Return the seconds of a run by the clock, `repeats` times. All are on the same inputs, into the same buffers."""
    if not repeats:
        return []
    call, times = program.call(values), []
    call()  # the first run may start threads
    start = time.perf_counter()
    call()
    number = max(1, math.ceil(_LONG_ENOUGH / max(time.perf_counter() - start, 1e-7)))
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            call()
        times.append((time.perf_counter() - start) / number)
    return times


# ── The process that `requests` starts ────────────────────────────────────────────────────────────────────────────────


def _fork(keep: list[int]) -> int:
    pid = os.fork()
    if pid == 0:
        _die_with_parent()
        open_fds = sorted({0, 1, 2, *keep})
        for last, fd in zip(open_fds, [*open_fds[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            if fd > last + 1:  # os.closerange(0, 0) closes everything
                os.closerange(last + 1, fd)
    return pid


def _die_with_parent() -> None:
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _limit_memory() -> None:
    """Limit the memory beyond what the compiler itself takes, where the system reports that."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as statm:
        most = int(statm.read().split()[0]) * resource.getpagesize() + MEMORY_GIB * 2**30
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(flavour: str, number: str) -> None:
    control = socket.socket(fileno=int(number))
    own = registry.compiler(flavour)
    try:
        read = own.load()
    except Unreachable as why:
        message = str(why)
        Server(control, _fork, lambda sock: send(sock, {"unreachable": message}), last_line).serve()
        return
    own.rehearse()
    settle()
    Server(control, _fork, lambda sock: answer(sock, own, read, _limit_memory), last_line).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # skip the exit handlers: IREE's bindings would list everything that they have not freed
