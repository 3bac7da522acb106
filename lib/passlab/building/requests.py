"""Ask another process to build and run a module.

    built = ask("relax", head, parts, seconds=60.0)
    built.outputs[0][0], built.kernels, built.error

A helper process for each compiler starts at the first use and stays. For every request it forks a child that builds,
runs and replies over the request's socket: a crash, too much memory or an endless loop costs that request only.
Requests that say so (`again`) share a child as long as they succeed. Modules travel as TVM's JSON or MLIR's text,
tensors as raw bytes; nothing is pickled.

A reply comes from a process that ran the module's code. Outputs can be compared with expected ones; kernel names and
the times of `repeats` are claims, to be trusted as far as the module is. Where a verdict depends on the time (`timed`),
each module has a process of its own, and the server reads from the kernel what it spends. Limits are on CPU time, too;
by the clock, as `passlab.process.clock` says.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from passlab.building import cache
from passlab.building.arrays import arrays, flat
from passlab.building.compiler import Unreachable
from passlab.graph import registry
from passlab.process.clock import Limit, wait
from passlab.process.messages import ClosedError, receive, send
from passlab.process.server import TELLS_TIME, Child, cpu_seconds, request

__all__ = ["Built", "Ended", "allow", "ask", "end", "helper", "targets", "use"]

MEMORY_GIB = 4
#: Seconds a helper may take to load its compiler and accept a request.
_START_SECONDS = 120.0
#: What a timed module may spend beside its runs, as a share of what those beside it do and in seconds: on taking inputs
#: and giving outputs, and on messages. More counts as part of its run, for it could compute there; as much is a
#: neighbour on the core.
_SHARE, _SPARE, _SPARE_OF_MESSAGES = 2.0, 1e-3, 1e-4
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


#: CPU seconds that builds and runs may still take; see `allow`.
_seconds_left = math.inf
#: Flavour → the child that has answered requests that share one; see `ask`.
_shared: dict[str, _Talk] = {}
#: The number of results so far that may differ next time: times, timeouts, crashes.
unsteady = 0


class Ended(BaseException):
    """The build process died. Judges must let this propagate: it is not a result about a module."""


def use(flavour: str, control: socket.socket) -> None:
    """Send requests to the running builder at the other end of `control` instead of starting a helper."""
    _helpers[flavour] = (control, None)


def allow(seconds: float) -> None:
    """Set the CPU seconds that all modules may take together from now on; a module beyond that has timed out.

    Requests from now on share no child with those before.
    """
    global _seconds_left
    while _shared:
        _shared.popitem()[1].close()
    _seconds_left = seconds


def helper(flavour: str) -> subprocess.Popen | None:
    """Return the process started for a flavour, or None before a request and after `use`."""
    return _helpers.get(flavour, (None, None))[1]


def _control(flavour: str) -> socket.socket:
    """Return the socket over which a helper takes requests: each is one byte that carries the request's own socket."""
    if flavour not in registry.COMPILERS:
        raise ValueError(f"No flavour {flavour!r}; choose one of {', '.join(registry.COMPILERS)}.")
    if not hasattr(os, "fork"):
        raise Unreachable("Modules are built and run in a forked process; this system cannot fork. Use Linux or WSL.")
    with _lock:
        if flavour not in _helpers:
            near, far = socket.socketpair()
            with far:
                process = subprocess.Popen(
                    [*_HELPER, flavour, str(far.fileno())],
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[far.fileno()],
                    start_new_session=True,  # so that Ctrl-C does not reach it
                )
            if not _helpers:
                atexit.register(_end_all, os.getpid())
            _helpers[flavour] = (near, process)
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
    if flavour in _shared:
        _shared.pop(flavour).close()
    control.close()
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


def ask(flavour: str, head: dict, parts: list, seconds: float) -> Built:
    """Return the reply to a request. head, parts: see `passlab.building.server`; seconds: for everything.

    A request whose head says "again" goes to the child of the one before it that did. If it fails there, a fresh child
    answers it: no failure depends on other modules. Raises Unreachable, Ended.
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
    talk = _ask_in_turns if head.get("timed") else _ask_once
    name = cache.key(flavour, head, parts)
    if name and (entry := cache.load(name)):
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, OverflowError):
            return _parse_reply(*entry, head)
    for _ in range(2):
        control = _control(flavour)
        try:
            return talk(flavour, control, head, parts, seconds, name)
        except (OSError, ClosedError):  # killed, or out of memory
            _give_up(flavour, control)
    return Built([], "The process that builds modules ended twice. Try again.", "crash")


def _request(control: socket.socket) -> Child:
    """Return a child that is ready for a request. Raises ClosedError, OSError, Unreachable."""
    child, reply = request(control, time.monotonic() + _START_SECONDS)
    if "unreachable" in reply:
        child.sock.close()
        raise Unreachable(reply["unreachable"])
    return child


def _give_up(flavour: str, control: socket.socket) -> None:
    """Forget a helper that has ended, unless another thread already has; the next request starts a new one."""
    with _lock:
        if flavour in _helpers and _helpers[flavour][0] is control:
            if _helpers[flavour][1] is None:
                raise Ended
            end(flavour)


class _Stopped(Exception):
    """A request has failed, for the reason in the message. `stage`: see `Built`."""

    def __init__(self, message: str, stage: str):
        super().__init__(message)
        self.stage = stage


class _Talk:
    """A child that builds and runs a module for one request, within its time. Closing it ends the child.

    `is_shared`: whether it has answered a request before.
    """

    def __init__(self, flavour: str, control: socket.socket, seconds: float):
        self.flavour, self.control, self.limit = flavour, control, Limit(min(seconds, _seconds_left))
        self.child, self.stage, self.is_shared = _request(control), "build", False
        self.spent = self.paid = 0.0

    def begin(self, seconds: float) -> None:
        """Begin another request, within its own time."""
        self.limit, self.stage, self.is_shared = Limit(min(seconds, _seconds_left)), "build", True

    def pay(self) -> None:
        """Take what the request has spent off what all may."""
        global _seconds_left
        _seconds_left -= self.spent
        self.paid, self.spent = self.paid + self.spent, 0.0

    def close(self) -> None:
        self.child.sock.close()
        self.pay()

    def cpu(self) -> float:
        """Return the CPU seconds that the child has spent on the request; by the clock where the system does not tell,
        or no more."""
        with contextlib.suppress(ClosedError, OSError):
            self.spent = cpu_seconds(self.control, self.child, time.monotonic() + _START_SECONDS) - self.paid
        if math.isnan(self.spent):
            self.spent = time.monotonic() - self.limit.start
        return self.spent

    def send(self, head: dict, *parts: Any) -> None:
        with contextlib.suppress(ClosedError):  # the cause is read next
            send(self.child.sock, head, *parts, deadline=time.monotonic() + _START_SECONDS)

    def receive(self) -> tuple[dict, memoryview]:
        """Return the next message that does not announce a stage. Raises _Stopped for a failure."""
        while True:
            try:
                wait(self.child.sock, self.limit, self.cpu)
                message, payload = receive(self.child.sock, time.monotonic() + _START_SECONDS, MOST_TENSORS)
            except TimeoutError:
                raise _Stopped(self._late(), "timeout") from None
            if "ended" in message:
                name = registry.compiler(self.flavour).who
                raise _Stopped(_exit_message(name, self.stage, message["ended"], _text(message["said"])), "crash")
            if "error" in message and (error := _text(message["error"])):
                if message["stage"] not in ("build", "run"):
                    raise ValueError(message["stage"])
                raise _Stopped(error, message["stage"])
            if "error" in message or "stage" not in message:
                return message, payload
            self.stage = "run" if message["stage"] == "run" else "build"

    def _late(self) -> str:
        name = registry.compiler(self.flavour).who
        progress = "The module was still running" if self.stage == "run" else f"{name} was still building the module"
        return f"{progress} after {max(self.limit.cpu, 0):.3g} s."


@contextlib.contextmanager
def _talk(flavour: str, control: socket.socket, seconds: float, again: bool) -> Iterator[_Talk]:
    """Provide a child for a request: a fresh one, or `again` that of the last such request, if it succeeded."""
    talk = _shared.pop(flavour, None) if again else None
    if talk is None:
        talk = _Talk(flavour, control, seconds)
    else:
        talk.begin(seconds)
    try:
        yield talk
    except BaseException:
        talk.close()
        raise
    if again:
        talk.pay()
        _shared[flavour] = talk
    else:
        talk.close()


@contextlib.contextmanager
def _reports_errors(control: socket.socket) -> Iterator[None]:
    """Raise _Stopped for a malformed message from a module; raise like `_request` if the helper has ended."""
    try:
        yield
    except (ClosedError, ValueError, TypeError, LookupError, AttributeError, OverflowError):
        _request(control).sock.close()
        message = "The module wrote into the connection of the process that ran it."
        raise _Stopped(message, "crash") from None


def _ask_once(flavour: str, control: socket.socket, head: dict, parts: list, seconds: float, name: str) -> Built:
    """Make one request. name: of its entry in the cache."""
    while True:
        try:
            with _talk(flavour, control, seconds, bool(head.get("again"))) as talk, _reports_errors(control):
                talk.send(head, *map(flat, parts))
                reply, payload = talk.receive()
                built = _parse_reply(reply, payload, head)
                talk.cpu()
            break
        except _Stopped as stopped:
            if not talk.is_shared:
                return Built([], str(stopped), stopped.stage)
    if name and built.ok:
        cache.store(name, reply, payload)
    return built


def _ask_in_turns(flavour: str, control: socket.socket, head: dict, parts: list, seconds: float, name: str) -> Built:
    """Build a module and its competitors (`beside`), each in a process of its own, and run them in turns on each input.

    Inputs are read before, and outputs after, the time that counts. That is the time that the module's process reports,
    but no less than the kernel's count for it, minus the usual cost of messages, taken from the competitors.
    """
    texts, tensors = parts[: 1 + len(head["beside"])], parts[1 + len(head["beside"]) :]
    params, inputs, at = tensors[: len(head["params"])], [], len(head["params"])
    for specs in head["inputs"]:
        inputs.append(tensors[at : at + len(specs)])
        at += len(specs)
    own = head | {"inputs": [], "beside": []}
    plain = own | {"params": {}, "pipeline": None}
    try:
        with contextlib.ExitStack() as stack, _reports_errors(control):
            sides = []
            for text in texts:
                request, bound = (plain, []) if sides else (own, params)
                side = stack.enter_context(contextlib.closing(_Side(flavour, control, seconds)))
                side.send(request | {"text": len(text)}, text, *map(flat, bound))
                sides.append(side)
            for side in sides:
                side.ask({"do": "wait"})
            for at, (specs, values) in enumerate(zip(head["inputs"], inputs, strict=True)):
                first = at % len(sides)  # who begins finds colder caches
                for side in (*sides[first:], *sides[:first]):
                    side.run(specs, values)
            built = [side.built() for side in sides]
    except _Stopped as stopped:
        return Built([], str(stopped), stopped.stage)
    if not sides[1:] or not inputs:
        return replace(built[0], times=tuple(map(sum, zip(built[0].times, sides[0].messages, strict=True))))
    own, *others = (statistics.median(side.aside) for side in sides)
    penalty = max(0.0, own - _SHARE * max(others) - _SPARE)
    message = _SHARE * max(statistics.median(side.messages) for side in sides[1:]) + _SPARE_OF_MESSAGES
    spent = zip(built[0].times, sides[0].messages, strict=True)
    times = tuple(max(claim, claim + besides - message) + penalty for claim, besides in spent)
    return replace(built[0], times=times, beside=tuple(built[1:]))


class _Side(_Talk):
    """A module that is timed. `times`: the reported time of each run. `messages`: the other time spent around it, and
    `aside` that on reading inputs and sending outputs."""

    def __init__(self, flavour: str, control: socket.socket, seconds: float):
        super().__init__(flavour, control, seconds)
        self.outputs: list[list[np.ndarray]] = []
        self.times: list[float] = []
        self.aside: list[float] = []
        self.messages: list[float] = []

    def ask(self, head: dict, *parts: Any) -> tuple[dict, memoryview]:
        self.send(head, *parts)
        return self.receive()

    def run(self, specs: list, values: list) -> None:
        marks = [self.cpu()]
        self.ask({"do": "take", "inputs": specs}, *map(flat, values))
        marks.append(self.cpu())
        seconds = float(self.ask({"do": "run"})[0]["seconds"])
        marks.append(self.cpu())
        reply, payload = self.ask({"do": "give"})
        outputs, rest = arrays(reply["outputs"], payload)
        if rest:
            raise ValueError("Expected the outputs of a run, and nothing else.")
        marks.append(self.cpu())
        take, run, give = (after - before for before, after in pairwise(marks))
        self.outputs.append(outputs)
        self.times.append(seconds)
        self.messages.append(run - seconds if TELLS_TIME else 0.0)
        self.aside.append(take + give)

    def built(self) -> Built:
        reply, _ = self.ask({"do": "tell"})
        kernels, count = tuple(_text(name) for name in reply["kernels"]), reply["allocations"]
        allocations = None if count is None else (int(count[0]), int(count[1]))
        return Built(self.outputs, "", "", kernels, tuple(self.times), (), allocations)


def _parse_reply(reply: dict, payload: memoryview, head: dict) -> Built:
    """Parse a reply. Untrusted: the module itself may have written it. Raises ValueError, TypeError, KeyError."""
    built, payload = _ran(reply, payload, head)
    others = []
    for entry in reply["beside"]:
        run, payload = _ran(entry, payload, head)
        others.append(run)
    if len(others) != len(head.get("beside", ())) or payload:
        raise ValueError(f"Expected the runs of {len(head.get('beside', ()))} modules beside it, and nothing else.")
    count = reply["allocations"]
    return replace(built, beside=tuple(others), allocations=None if count is None else (int(count[0]), int(count[1])))


def _ran(reply: dict, payload: memoryview, head: dict) -> tuple[Built, memoryview]:
    """Parse a reply about the runs of one module; return the rest of the payload, too. See `_parse_reply`."""
    outputs, runs = [], len(head.get("inputs", ()))
    for specs in reply["outputs"]:
        tensors, payload = arrays(specs, payload)
        outputs.append(tensors)
    if len(outputs) != runs:
        raise ValueError(f"Expected the outputs of {runs} runs.")
    times = tuple(float(second) for second in reply["times"])
    if head.get("timed") and len(times) != runs:
        raise ValueError("Expected the seconds of each run.")
    return Built(outputs, "", "", tuple(_text(name) for name in reply["kernels"]), times), payload


def _text(value: Any) -> str:
    """Return another process's text, short and printable. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"Expected text; got {type(value).__name__}.")
    return "".join(c if c.isprintable() else " " for c in value[:_MOST_TEXT]).strip()


_SIGNALS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "abort",
    signal.SIGKILL: "killed",
    signal.SIGFPE: "an integer was divided by zero, or the least one by −1",
}


def _exit_message(subject: str, stage: str, code: Any, text: str) -> str:
    """Return a message about how a child ended."""
    built = f"{subject} ended the process while it built the module"
    subject = "The module ended its process while it ran" if stage == "run" else built
    if type(code) is not int:
        raise ValueError(f"Expected an exit code; got {type(code).__name__}.")
    if "bad_alloc" in text or "out of memory" in text.lower() or "Cannot allocate memory" in text:
        return too_much(stage)
    cause = _SIGNALS.get(-code, f"signal {-code}" if code < 0 else f"exit code {code}")
    return f"{subject} ({cause}){': ' + text if text else ''}."


def too_much(stage: str) -> str:
    doing = "The module needed" if stage == "run" else "To build the module took"
    return f"{doing} more than {MEMORY_GIB} GiB of memory."
