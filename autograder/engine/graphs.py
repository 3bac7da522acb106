"""Run the graphs that learners returned in disposable processes that know nothing.

The verifier must not run what a learner's pass returned: operators of torch that do not check what they are given read
and write anywhere in their process. So the engine starts a server (`autograder.engine.runner.programs`) in the sandbox
for learner code, which forks a child, confined like a worker, for each question. It is no fork of the process that
workers are forks of: where something lies in memory there says nothing about here. The verifier (`use`, `Disposable`)
has the other end of its socket. See `passlab.fx.isolation`, which sees to it that nothing runs past this module.

On a GPU (`passlab grade --device cuda`) this project's own programs run here, too, in a process apart from the
learner's graphs: the verifier itself never touches the GPU. Values come back on the CPU.

What does a reply prove? The outputs are what the graph computed or pretended to compute: either way they come from the
graph and its inputs alone, since the child knows nothing else, and the verifier compares them with the expected ones.
What a child spends is counted by the server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map_only

from autograder.engine import sandbox, wire
from autograder.engine.messages import GraphRan, reader
from autograder.engine.wire.kinds import is_word
from passlab.building.requests import Ended
from passlab.fx import isolation
from passlab.fx import values as _questions  # noqa: F401 (what `isolation.confined` may be asked is declared there)
from passlab.fx.isolation import ProcessLostError
from passlab.fx.programs import Program, Run, Trace, is_accelerator, preserve_state, rng_state
from passlab.process.clock import Limit, wait
from passlab.process.forking import settle
from passlab.process.messages import ClosedError, DeadlineError, MessageError, receive, send
from passlab.process.server import Child, Server, cpu_seconds, request

#: Of one process, which runs the graphs of a question.
LIMITS = sandbox.Limits(memory_mib=4096, cpu_s=20, processes=8)
#: The same on a GPU: the driver starts threads, reserves far more addresses than there is memory, and takes seconds to
#: start.
ON_GPU = sandbox.Limits(memory_mib=0, cpu_s=90, processes=64)
#: Seconds that a process may take to start, by the clock, since the server may have to load first; a message that has
#: begun may take as long. Seconds of CPU time that all graphs of a question may take together.
_START_SECONDS, SECONDS = 120.0, 60.0
#: CPU seconds that a process may have spent, by the clock, before the server is asked how many it was. To ask costs as
#: much as running a small graph.
_UNASKED_SECONDS = 0.25
_MOST = 2**27
_MOST_TEXT = 4_000

# ── The server ────────────────────────────────────────────────────────────────────────────────────────────────────────


def serve(control: socket.socket) -> None:
    """Serve requests until `control` is closed."""
    _rehearse()
    settle()  # the process that this one was forked from has its memory in huge pages
    on_gpu = sandbox.device().startswith("cuda")
    limits = ON_GPU if on_gpu else LIMITS
    Server(control, lambda keep: sandbox.enter(limits, keep, gpu=on_gpu), _answer).serve()


def _rehearse(device: str = "cpu") -> None:
    """Run a graph as a child does: on the CPU, so that all children inherit what a first run loads and caches; in a
    child on a GPU, so that a learner's graph does not pay for starting it."""
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).requires_grad_(False))
    for traced in (False, True):
        how = {"dtype": torch.float64, "device": device, "jitter": 0.0, "training": False, "traced": traced}
        _ran([], {"program": gm, "args": (torch.ones(1, 2),), "seed": 0, **how})


def _answer(sock: socket.socket) -> NoReturn:
    """Run the graphs that come over the socket until it is closed."""
    if is_accelerator(sandbox.device()):
        _rehearse(sandbox.device())
    send(sock, {"ready": True})
    programs: list[Program] = []
    state: dict[str, Any] = {}
    while True:
        _, payload = receive(sock, None, _MOST)
        asked = wire.decode(bytes(payload))
        send(sock, *(_called(state, **asked) if "function" in asked else _ran(programs, asked)))


def _called(state: dict[str, Any], function: str, arguments: tuple) -> tuple[dict[str, Any], bytes]:
    """Call a function of `isolation.CONFINED` or of `isolation.STATEFUL`, and return its dictionary."""
    try:
        if stateful := isolation.STATEFUL.get(function):
            return {}, wire.encode(stateful(state, *arguments))
        return {}, wire.encode(isolation.CONFINED[function](*arguments))
    except (Exception, SystemExit) as error:
        return {"error": (type(error).__name__, str(error)[:_MOST_TEXT])}, wire.encode({})


def _ran(programs: list[Program], asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Run a program and return what it did, as data. A program comes once; later requests have its place instead."""
    program, args, seed = (asked.pop(key) for key in ("program", "args", "seed"))
    try:
        if not isinstance(program, int):
            programs.append(Program(program))
            program = -1
        program = programs[program]
        with preserve_state(program):
            run = _on_cpu(program.run(args, seed, **asked))
    except (Exception, SystemExit) as error:
        run = Run(error=error, rng=rng_state())
    try:
        head, payload = _pack(run, len(args))
    except wire.Refused as error:
        head, payload = _pack(Run(error=error, rng=rng_state()), len(args))
    return head | {"lost": run.error is not None and not _usable(asked["device"])}, payload


def _usable(device: str) -> bool:
    """Return whether this process can still compute on a device: on a GPU, a failed assertion is the end of that."""
    if not is_accelerator(device):
        return True
    try:
        torch.get_device_module(device).synchronize()
    except RuntimeError:
        return False
    return True


def _on_cpu(run: Run) -> Run:
    """Return a run with its tensors on the CPU."""

    def move(value: Any) -> Any:
        return tree_map_only(Tensor, lambda t: t.cpu(), value)

    run.output, run.inputs, run.state = move(run.output), move(run.inputs), move(run.state)
    if run.trace is not None:
        run.trace.values = move(run.trace.values)
    return run


def _pack(run: Run, inputs: int) -> tuple[dict[str, Any], bytes]:
    trace, error = run.trace or Trace(fx.Graph()), run.error
    head = {
        "error": error and (type(error).__name__, str(error)[:_MOST_TEXT]),
        "drew": run.drew,
        "aliases": run.aliases,
        "draws": [name for name, _ in trace.draws],
        "writes": trace.writes,
        "failed": trace.failed,
    }
    outcome = (None, (None,) * inputs) if error else (run.output, run.inputs)
    value = [*outcome, {} if error else run.state, run.rng, trace.values, [state for _, state in trace.draws]]
    try:
        return head, wire.encode(value)
    except wire.Refused:  # the values of some node cannot travel, or all together not; without them less can be told
        value[4] = {}
        return head, wire.encode(value)


# ── The verifier's side ───────────────────────────────────────────────────────────────────────────────────────────────

_control: socket.socket | None = None
_process: Disposable | None = None
#: Runs this project's own programs where they do not run here, on a GPU: a process that no learner's graph has seen.
_trusted: Disposable | None = None
#: Seconds of CPU time that graphs may still take; see `allow`.
_seconds_left = SECONDS
#: How many runs so far gave no result: a crash, or time or memory that ran out.
unsteady = 0


def use(control: socket.socket, device: str = "cpu") -> None:
    """Have the server at the other end of `control` run all returned graphs from now on, and all graphs on `device`."""
    global _control
    _control = control
    isolation.use(_run, _call, device, _Apart)


def allow(seconds: float) -> None:
    """Set the CPU seconds that all graphs may take together from now on; one that comes after that is not run."""
    global _seconds_left
    _seconds_left = seconds


@contextlib.contextmanager
def _paying(process: Disposable) -> Iterator[Limit]:
    """Provide the limit for what a process is asked inside, and count what it spends. Raises ProcessLostError."""
    global _seconds_left, unsteady
    if _process is None:
        isolation.refuse()
    try:
        if _seconds_left <= 0:
            raise ProcessLostError("it was not run: the case before it had used up the time for all")
        process.start()
        limit = Limit(_seconds_left)
        try:
            yield limit
            _seconds_left -= process.spend()
            if process.lost:
                process.close()
        except ProcessLostError:
            _seconds_left -= process.unpaid()
            raise
    except ProcessLostError:
        unsteady += 1
        process.close()
        raise


def _run(program: Program, args: tuple, seed: int, *, device: str, **how: Any) -> Run:
    """Do what `Program.run` does, in the disposable process."""
    global _trusted
    if _process is None:
        isolation.refuse()
    if device not in ("cpu", isolation.device()):
        return Run(error=ProcessLostError(f"returned graphs run on {isolation.device()} only"))
    process = cast(Disposable, _process)
    if not program.isolated:
        process = _trusted = _trusted or Disposable()
    try:
        with _paying(process) as limit:
            return process.run(program, args, seed, how | {"device": device}, limit)
    except wire.Refused as refused:
        return Run(error=refused)
    except ProcessLostError as lost:
        return Run(error=lost, trace=Trace(cast(fx.Graph, program.graph)))


def _call(function: str, arguments: tuple) -> dict:
    """Call a function of `isolation.CONFINED` in a process that has run nothing else. Raises ProcessLostError."""
    with contextlib.closing(Disposable()) as process, _paying(process) as limit:
        return process.call(function, arguments, limit)


class _Apart(isolation.Process):
    """A process that keeps something between calls."""

    def __init__(self):
        self.process = Disposable()

    def call(self, function: Callable[..., dict], *arguments: Any) -> dict:
        with _paying(self.process) as limit:
            return self.process.call(isolation.name_of(function), arguments, limit)

    def seconds(self) -> float:
        self.process.start()
        return self.process.seconds()

    def close(self) -> None:
        self.process.close()


class Disposable:
    """A process that runs graphs. It starts when it is needed; after a crash, and when it has lost its GPU, anew.

    While a `with` block holds it, returned graphs run in it; outside such blocks none runs.
    """

    def __init__(self):
        self.child: Child | None = None
        self.programs: list[Program] = []
        self.paid = self.asked = self.total = 0.0
        self.lost = False

    @property
    def running(self) -> bool:
        return self.child is not None

    def start(self) -> None:
        if self.child is None:
            self.child = _connect()
            self.paid, self.asked = self.seconds(), time.monotonic()

    def spend(self) -> float:
        """Return the CPU seconds since the server was last asked for them, or since the start; 0.0 where they cannot be
        many by the clock: a later call has them, too. Raises ProcessLostError."""
        if (time.monotonic() - self.asked) * (os.cpu_count() or 1) < _UNASKED_SECONDS:
            return 0.0
        before, self.paid, self.asked = self.paid, self.seconds(), time.monotonic()
        return self.paid - before

    def unpaid(self) -> float:
        """Return the CPU seconds since `spend` was last called, also of a process that has ended."""
        with contextlib.suppress(ProcessLostError):
            self.seconds()
        return self.total - self.paid

    def seconds(self) -> float:
        """Return the CPU seconds that it has spent, by the server. Raises ProcessLostError."""
        try:
            assert _control and self.child, "it has started"
            self.total = cpu_seconds(_control, self.child, time.monotonic() + _START_SECONDS)
            return self.total
        except ClosedError:
            raise ProcessLostError("it ended the process that ran it") from None
        except OSError:
            raise Ended from None

    def __enter__(self) -> Disposable:
        global _process
        _process = self
        return self

    def __exit__(self, *_: object) -> None:
        global _process
        _process = None

    def close(self) -> None:
        if self.child is not None:
            self.child.sock.close()
        self.child, self.programs, self.lost = None, [], False

    def run(self, program: Program, args: tuple, seed: int, how: dict[str, Any], limit: Limit) -> Run:
        """Raises ProcessLostError, wire.Refused."""
        known = next((at for at, other in enumerate(self.programs) if other is program), None)
        asked = {"program": program.fn if known is None else known, "args": args, "seed": seed, **how}
        payload = wire.encode(asked)
        if known is None:
            self.programs.append(program)
        return self._request(
            payload, limit, lambda head, value: _read_run(head, value, len(args), how["traced"] and program.graph)
        )

    def call(self, function: str, arguments: tuple, limit: Limit) -> dict:
        """Raises ProcessLostError."""
        try:
            payload = wire.encode({"function": function, "arguments": arguments})
        except wire.Refused as refused:
            raise ProcessLostError(str(refused)) from None
        return self._request(payload, limit, _read_dictionary)

    def _request(self, payload: bytes, limit: Limit, read: Callable[[GraphRan, Any], Any]) -> Any:
        """Send a request, and return the checked reply. Raises ProcessLostError."""
        try:
            assert self.child, "it has started"
            sock = self.child.sock
            send(sock, {}, payload, deadline=time.monotonic() + _START_SECONDS)
            wait(sock, limit, self.unpaid)
            head, value = receive(sock, time.monotonic() + _START_SECONDS, _MOST, reader(GraphRan))
            if head.ended is None:
                self.lost = head.lost
                return read(head, wire.decode(bytes(value)))
            self.total = max(self.total, head.spent)
        except DeadlineError:
            raise ProcessLostError(_OUT_OF_TIME) from None
        except ClosedError:
            raise ProcessLostError("it ended the process that ran it") from None
        except (MessageError, wire.Refused):
            raise ProcessLostError("it wrote into the connection of the process that ran it") from None
        if head.ended == -signal.SIGKILL:
            raise ProcessLostError(_OUT_OF_TIME)
        raise ProcessLostError(
            f"it ended the process that ran it ({_SIGNALS.get(-head.ended, f'exit code {head.ended}')})"
        )


_OUT_OF_TIME = "it used up its time"
_SIGNALS = {signal.SIGSEGV: "segmentation fault", signal.SIGABRT: "abort", signal.SIGFPE: "division by zero"}


def _connect() -> Child:
    for _ in range(2):
        with contextlib.suppress(OSError, ClosedError, MessageError):
            assert _control, "`use` was called"
            child, reply = request(_control, time.monotonic() + _START_SECONDS)
            if "ready" in reply:
                return child
            child.sock.close()
    raise Ended


def _read_dictionary(head: GraphRan, value: Any) -> dict:
    """Return the dictionary of an untrusted reply: the graph may have written it.

    Raises MessageError, ProcessLostError.
    """
    if head.error is not None:
        raise ProcessLostError(f"it could not be examined ({head.error[0]}: {head.error[1][:200]})")
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise MessageError("something else than a dictionary")
    return value


def _read_run(head: GraphRan, value: Any, inputs: int, graph: fx.Graph | None) -> Run:
    """Return a reply as a Run. Untrusted: the graph may have written it. Raises MessageError."""
    fits = type(value) is list and len(value) == 6
    parts: tuple[Any, ...] = tuple(value) if fits else (None,) * 6
    output, after, state, rng, values, states = parts
    fits = fits and type(after) is tuple and len(after) == inputs and type(rng) is Tensor
    fits = fits and type(state) is dict and all(type(path) is str for path in state)
    fits = fits and all(isinstance(t, Tensor) for t in (*state.values(), *(states if type(states) is list else [None])))
    if not fits or type(values) is not dict or len(states) != len(head.draws):
        raise MessageError("something else than the result of a run")
    error, trace = None, None
    if head.error is not None:
        kind, text = head.error
        error = type(kind if is_word(kind) else "Error", (Exception,), {})(text)
    if graph:
        known = {node.name for node in graph.nodes}
        trace = Trace(
            graph,
            {name: kept for name, kept in values.items() if name in known},
            [(name, drawn) for name, drawn in zip(head.draws, states, strict=True) if name in known],
            [name for name in head.writes if name in known],
            head.failed if head.failed in known else None,
        )
    aliases = [(at, home) for at, home in head.aliases]
    return Run(output, after, state, rng, head.drew, aliases, error, trace)
