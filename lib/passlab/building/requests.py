"""Ask another process to build and run a module.

    built = ask("relax", head, parts, seconds=60.0)
    built.outputs[0][0], built.kernels, built.error

A helper process for each compiler starts at the first use and stays. For every request it forks a child that builds,
runs and replies over the request's socket: a crash, too much memory or an endless loop costs that request only. Modules
travel as TVM's JSON or MLIR's text, tensors as raw bytes; nothing is pickled.

A reply comes from a process that ran the module's code. Outputs can be compared with expected ones; times and kernel
names are claims, to be trusted as far as the module is.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from passlab.building import cache
from passlab.building.arrays import arrays, flat
from passlab.building.compiler import Unreachable
from passlab.graph import registry
from passlab.process.messages import Gone, receive, send
from passlab.process.server import request

__all__ = ["Built", "Ended", "allow", "ask", "end", "helper", "targets", "use"]

MEMORY_GIB = 4
#: Seconds a helper may take to load its compiler and accept a request.
_START_SECONDS = 120.0
#: Bytes of tensors in one message.
MOST_TENSORS = 2**30
_MOST_TEXT = 300


@dataclass(frozen=True)
class Built:
    """The result of a build. `outputs`: for each tuple of inputs the outputs, flat.

    `error`: "" or a message, and the `stage` of the failure: build, run, crash or timeout. `kernels`: names of the
    kernels that one run launches, in order. `times`: seconds of single runs. `beside`: the same of each module that
    ran beside it; see `passlab.tvm.builds.run_module`. `allocations`: how many buffers one run allocates for its
    results, and their bytes, where the compiler reports them.
    """

    outputs: list[list[np.ndarray]]
    error: str = ""
    stage: str = ""
    kernels: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    beside: tuple[Built, ...] = ()
    allocations: tuple[int, int] | None = None

    @property
    def ok(self) -> bool:
        return not self.error


# ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: -P: no module in the current folder shadows one that TVM imports.
_HELPER = (sys.executable, "-P", "-m", "passlab.process.forking", "passlab.building.server")
_helpers: dict[str, tuple[socket.socket, subprocess.Popen | None]] = {}
_lock = threading.RLock()


#: Seconds of builds and runs that this process may still wait for; see `allow`.
_seconds_left = math.inf
#: How many results so far were of the moment: times, or none because time or memory ran out.
unsteady = 0


class Ended(BaseException):
    """The build process died. Judges must let this propagate: it says nothing about a module."""


def use(flavour: str, control: socket.socket) -> None:
    """Send requests to the running builder at the other end of `control` instead of starting a helper."""
    _helpers[flavour] = (control, None)


def allow(seconds: float) -> None:
    """Set the total seconds to wait for all modules from now on; a module beyond that has timed out."""
    global _seconds_left
    _seconds_left = seconds


def helper(flavour: str) -> subprocess.Popen | None:
    """Return the process started for a flavour, or None where there is none: before a request, and after `use`."""
    return _helpers.get(flavour, (None, None))[1]


def _control(flavour: str) -> socket.socket:
    """Return the socket over which a helper takes requests: each is one byte that carries the request's own socket."""
    if flavour not in registry.COMPILERS:
        raise ValueError(f"No flavour {flavour!r}; choose one of {', '.join(registry.COMPILERS)}.")
    if not hasattr(os, "fork"):
        raise Unreachable("Modules are built and run in a forked process; this system cannot fork. Use Linux or WSL.")
    with _lock:
        if flavour not in _helpers:
            ours, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(
                    [*_HELPER, flavour, str(theirs.fileno())],
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # so that Ctrl-C does not reach it
                )
            if not _helpers:
                atexit.register(_end_all, os.getpid())
            _helpers[flavour] = (ours, process)
        return _helpers[flavour][0]


def _environment() -> dict[str, str]:
    path = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _end_all(owner: int) -> None:
    """Close the helpers' sockets, which ends them."""
    if os.getpid() == owner:
        for flavour in list(_helpers):
            end(flavour)


def end(flavour: str) -> None:
    """End the process that builds for a flavour; the next request starts another."""
    control, process = _helpers.pop(flavour)
    control.close()
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


def ask(flavour: str, head: dict, parts: list, seconds: float) -> Built:
    """Return the reply to a request. head, parts: see `passlab.building.server`; seconds: for everything.

    Raises Unreachable, Ended.
    """
    global unsteady
    built = _reply(flavour, head, parts, seconds)
    unsteady += bool(head.get("repeats") or head.get("timed")) or built.stage in ("crash", "timeout")
    return built


def targets(flavour: str) -> tuple[str, ...]:
    """Return the targets that this compiler can build modules for and run them on here: ("llvm",) or more."""
    if flavour not in _targets:
        tried = ask(flavour, {"do": "targets"}, [], 60.0)  # a crash means that there is no such device
        _targets[flavour] = ("llvm", *(name for name in tried.kernels if name == "cuda"))
    return _targets[flavour]


_targets: dict[str, tuple[str, ...]] = {}


def _reply(flavour: str, head: dict, parts: list, seconds: float) -> Built:
    name = cache.key(flavour, head, parts)
    if name and (known := cache.load(name)):
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, OverflowError):
            return _parse_reply(*known, head)
    for _ in range(2):
        control = _control(flavour)
        try:
            with _request(control) as sock:
                return _talk(flavour, control, sock, head, parts, seconds, name)
        except (OSError, Gone):  # killed, or out of memory
            _give_up(flavour, control)
    return Built([], "The process that builds modules ended twice. Try again.", "crash")


def _request(control: socket.socket) -> socket.socket:
    """Return a new socket to a child that is ready for a request. Raises Gone, OSError, Unreachable."""
    child, said = request(control, time.monotonic() + _START_SECONDS)
    if "unreachable" in said:
        child.sock.close()
        raise Unreachable(said["unreachable"])
    return child.sock


def _give_up(flavour: str, control: socket.socket) -> None:
    """Forget a helper that has ended, unless another thread already has; the next request starts a new one."""
    with _lock:
        if flavour in _helpers and _helpers[flavour][0] is control:
            if _helpers[flavour][1] is None:
                raise Ended
            end(flavour)


def _talk(
    flavour: str, control: socket.socket, sock: socket.socket, head: dict, parts: list, seconds: float, name: str
) -> Built:
    """Make one request. Closing the socket ends the child that serves it. name: of its entry in the cache."""
    global _seconds_left
    who = registry.compiler(flavour).who
    stage, start, seconds = "build", time.monotonic(), min(seconds, _seconds_left)
    deadline = start + seconds
    try:
        with contextlib.suppress(Gone):  # the cause is read next
            send(sock, head, *map(flat, parts), deadline=deadline)
        while True:
            said, payload = receive(sock, deadline, MOST_TENSORS)
            if "ended" in said:
                return Built([], _exit_message(who, stage, said["ended"], _text(said["said"])), "crash")
            if "error" in said:
                built = _parse_reply(said, payload, head)
                if name and built.ok:
                    cache.store(name, said, payload)
                return built
            stage = "run" if said["stage"] == "run" else "build"
    except TimeoutError:
        doing = "The module was still running" if stage == "run" else f"{who} was still building the module"
        return Built([], f"{doing} after {max(seconds, 0):.3g} s.", "timeout")
    except (Gone, ValueError, TypeError, LookupError, AttributeError, OverflowError):
        _request(control).close()  # raises if it was the helper that ended
        return Built([], "The module wrote into the connection of the process that ran it.", "crash")
    finally:
        _seconds_left -= time.monotonic() - start


def _parse_reply(said: dict, payload: memoryview, head: dict) -> Built:
    """Parse a reply. Untrusted: the module itself may have written it. Raises ValueError, TypeError, KeyError."""
    error, stage = _text(said["error"]), said["stage"]
    if error:
        if stage not in ("build", "run"):
            raise ValueError(stage)
        return Built([], error, stage)
    built, payload = _ran(said, payload, head)
    beside = []
    for other in said["beside"]:
        found, payload = _ran(other, payload, head)
        beside.append(found)
    if len(beside) != len(head.get("beside", ())) or payload:
        raise ValueError(f"Expected the runs of {len(head.get('beside', ()))} modules beside it, and nothing else.")
    count = said["allocations"]
    return replace(built, beside=tuple(beside), allocations=None if count is None else (int(count[0]), int(count[1])))


def _ran(said: dict, payload: memoryview, head: dict) -> tuple[Built, memoryview]:
    """Parse what a reply says of the runs of one module; return the rest of the payload, too. See `_parse_reply`."""
    outputs, runs = [], len(head.get("inputs", ()))
    for specs in said["outputs"]:
        found, payload = arrays(specs, payload)
        outputs.append(found)
    if len(outputs) != runs:
        raise ValueError(f"Expected the outputs of {runs} runs.")
    times = tuple(float(second) for second in said["times"])
    if head.get("timed") and len(times) != runs:
        raise ValueError("Expected the seconds of each run.")
    return Built(outputs, "", "", tuple(_text(name) for name in said["kernels"]), times), payload


def _text(said: Any) -> str:
    """Return another process's text, short and printable. Raises ValueError for anything else."""
    if not isinstance(said, str):
        raise ValueError(f"Expected text; got {type(said).__name__}.")
    return "".join(c if c.isprintable() else " " for c in said[:_MOST_TEXT]).strip()


_SIGNALS = {signal.SIGSEGV: "segmentation fault", signal.SIGABRT: "abort", signal.SIGKILL: "killed"}


def _exit_message(who: str, stage: str, code: Any, said: str) -> str:
    """Return a message about how a child ended."""
    built = f"{who} ended the process while it built the module"
    who = "The module ended its process while it ran" if stage == "run" else built
    if type(code) is not int:
        raise ValueError(f"Expected an exit code; got {type(code).__name__}.")
    if "bad_alloc" in said or "out of memory" in said.lower() or "Cannot allocate memory" in said:
        return too_much(stage)
    how = _SIGNALS.get(-code, f"signal {-code}" if code < 0 else f"exit code {code}")
    return f"{who} ({how}){': ' + said if said else ''}."


def too_much(stage: str) -> str:
    doing = "The module needed" if stage == "run" else "To build the module took"
    return f"{doing} more than {MEMORY_GIB} GiB of memory."
