"""The engine: runs a prepared notebook and returns its outputs and verdicts.

    with Engine(jobs=2) as engine:
        result = engine.grade(job)

This process is trusted. It runs no learner code and decodes no learner values: it starts the sandboxed processes,
enforces time limits, and carries bytes between them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, cast

import msgspec

from autograder.engine import bounded_call, flavours, messages, outputs, sandbox
from autograder.engine.data import Cell, Job, NotebookResult, Ran, Verdict
from autograder.engine.messages import Message, reader
from autograder.engine.outcomes import failure, plain
from autograder.engine.runner import snapshots
from autograder.engine.sandbox.cgroups import Group
from passlab import exercises
from passlab.building import cache
from passlab.graph.registry import COMPILERS
from passlab.process.clock import Limit, wait
from passlab.process.messages import MOST_PAYLOAD, ClosedError, DeadlineError, MessageError, receive, send

#: A cell is interrupted after CELL_SECONDS of CPU time, an answer after its exercise's limit; by the clock as `Limit`
#: says. If that does not stop it, its process is killed after the grace time, which is CPU time, too. (An interrupted
#: cell still has to render its traceback.)
CELL_SECONDS = 30.0
CELL_GRACE, GRACE = 1.0, 0.1
#: The limit for a whole notebook, restarts included; and, by the clock, for the rest of a message that has begun.
NOTEBOOK_SECONDS, MESSAGE_SECONDS = 900.0, 120.0
OUT_OF_TIME = (
    f"Not run, or not to the end: the whole notebook has {NOTEBOOK_SECONDS / 60:g} minutes, and they were over."
)
#: How often a notebook is run from the top again after a cell or a question ended its process.
MOST_STARTS = 25
#: The results of TVM modules, kept from one grading to the next. See `passlab.building.cache`.
BUILDS = os.environ.get(cache.FOLDER) or sandbox.ROOT / cache.PLACE
#: The limit, in characters, for the outputs of a notebook's cells together.
MOST_SHOWN = 16 * 2**20
#: How much is sent to the verifier at once, and how much an answer may return for all its test cases together.
BATCH_BYTES, MOST_BYTES = 32 * 2**20, 48 * 2**20


class UnsafeSandboxError(Exception):
    """This machine cannot confine learner code. The message names the missing layers and the remedies."""


class EngineError(Exception):
    """One of the engine's own processes has ended."""


@dataclass
class Worker:
    """A confined process that runs one notebook, its control socket, and a socket for each question.

    `pid`: its id here, outside of the sandbox's namespace.
    """

    pid: int
    control: socket.socket
    questions: dict[int, socket.socket]
    group: Group
    start: float = field(default_factory=time.monotonic)

    def spent(self) -> float:
        """Return the CPU seconds of all its processes so far; where the kernel does not tell, the time by the clock.

        Without a control group, those that lost their parent do not count.
        """
        if self.group and (used := self.group.cpu_seconds()):
            return used
        return sandbox.cpu_seconds(self.pid) if sys.platform == "linux" else time.monotonic() - self.start


@dataclass(frozen=True)
class CaseData:
    """The test cases of an exercise as they are sent.

    `seconds`: the limit of CPU time for a case. `visible`: the number of visible cases, which come first. `about`,
    `arguments`: for each case, the verdicts that it tests and its encoded arguments.
    """

    seconds: float
    visible: int
    about: list[list[str]]
    arguments: list[bytes]


@dataclass(frozen=True)
class AnswerRun:
    """What an answer was given and what it returned, case by case, encoded; b"" where it returned nothing.

    `about`: the verdicts that a case tests; all if there are none.
    """

    about: list[list[str]]
    arguments: list[bytes]
    values: list[bytes]


def _order(sock: socket.socket, order: dict[str, Any], form: type[Message], fds: Iterable[int] = ()) -> Message:
    """Return the reply of a process that forks others to an order. Raises EngineError."""
    try:
        socket.send_fds(sock, [json.dumps(order).encode()], list(fds))
        reply = sock.recv(2**16)
    except OSError:
        reply = b""
    try:
        return reader(cast(Any, form))(reply)
    except MessageError:
        raise EngineError("The warm parent has ended.") from None


class Zygote:
    """A process of which those of all flavours in one kind of sandbox are forks; see `autograder.engine.zygote`.

    They end with it, and it ends when it is closed.
    """

    #: role → the module of its processes
    MODULES: ClassVar[dict[str, str]] = {
        "runner": "autograder.engine.runner.warm",
        "verifier": "autograder.engine.verifier.process",
    }

    def __init__(self, role: str, unsafe: bool, device: str):
        self.lock, self.has_ended = threading.Lock(), False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        module = "autograder.engine.zygote"
        self.process = _start(role, module, [self.MODULES[role], str(theirs.fileno())], [theirs], unsafe, device)

    def _order(self, order: dict[str, Any], form: type[Message], fds: Iterable[int] = ()) -> Message:
        with self.lock:
            try:
                return _order(self.control, order, form, fds)
            except EngineError:
                self.has_ended = True
                raise

    def fork(self, flavour: str, sockets: Sequence[socket.socket]) -> int:
        """Start the process of a flavour, which gets these sockets; return its number in there. Raises EngineError."""
        pid = self._order({"flavour": flavour}, messages.Forked, [sock.fileno() for sock in sockets]).pid
        for sock in sockets:
            sock.close()
        return pid

    def end(self, pid: int) -> None:
        """End a process that was forked, if it has not ended."""
        with contextlib.suppress(EngineError):  # the zygote has ended, and all its forks with it
            self._order({"end": pid}, messages.Used)

    def hang_up(self) -> None:
        """Have the process end, without waiting for that."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)  # another thread may be waiting for a reply
        self.control.close()

    def close(self) -> None:
        self.hang_up()
        _wait(self.process)


def _wait(process: subprocess.Popen) -> None:
    """Wait until a process ends of itself, and kill it if that takes long."""
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class BackendProcesses:
    """The processes of one flavour: a warm parent that forks workers; a verifier with a socket for each slot; a server
    that runs graphs for it, and, for a compiler's flavour, a builder.

    zygote(role): the zygote of which the first two are forks. The others run what learners return, so that addresses in
    a worker must say nothing of theirs.
    """

    def __init__(
        self, flavour: str, slots: int, zygote: Callable[[str], Zygote], unsafe: bool = False, device: str = "cpu"
    ):
        try:
            flavours.prepare(flavour)
        except ImportError as unreachable:
            raise EngineError(str(unreachable)) from None
        self.lock = threading.Lock()
        self.cases: dict[tuple[str, int], CaseData] = {}
        runner, verifier = zygote("runner"), zygote("verifier")  # they load while the others start
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        graphs, runs = socket.socketpair()
        self.slots, ends = zip(*(socket.socketpair() for _ in range(slots)), strict=True)
        self.programs = self._launch("autograder.engine.runner.programs", flavour, runs, unsafe, device)
        self.processes = [self.programs]
        if flavour in COMPILERS:
            asks, builder = socket.socketpair()
            self.builder = self._launch("autograder.engine.verifier.builder", flavour, builder, unsafe)
            self.processes.append(self.builder)
            ends = (asks, *ends)
        self.forks = [
            (runner, runner.fork(flavour, [theirs])),
            (verifier, verifier.fork(flavour, [graphs, *ends])),
        ]
        try:
            if not self.control.recv(2**16):
                raise EngineError(f"The warm parent for {flavour} did not start.")
            receive(self.slots[0], form=reader(messages.Ready))
        except (ClosedError, MessageError):
            raise EngineError(f"The verifier for {flavour} did not start.") from None

    @staticmethod
    def _launch(module: str, flavour: str, sock: socket.socket, unsafe: bool, device: str = "cpu") -> subprocess.Popen:
        return _start("runner", module, [flavour, str(sock.fileno())], [sock], unsafe, device)

    def hang_up(self) -> None:
        """Have the processes end, without waiting for that."""
        for sock in (self.control, *self.slots):
            sock.close()
        for zygote, pid in self.forks:
            zygote.end(pid)

    def close(self) -> None:
        self.hang_up()
        for process in self.processes:
            _wait(process)

    def _order(self, order: dict[str, Any], form: type[Message], fds: Sequence[int] = ()) -> Message:
        with self.lock:
            return _order(self.control, order, form, fds)

    @contextlib.contextmanager
    def worker(self, checks: list[int], result: NotebookResult) -> Iterator[Worker]:
        """Provide a fresh worker. On exit it and its descendants are killed and their cost is added to `result`."""
        limits = sandbox.Limits()
        pairs = [socket.socketpair() for _ in range(1 + len(checks))]
        ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
        with contextlib.ExitStack() as later:
            for sock in (*ours, *theirs):
                later.callback(sock.close)
            # Entered by the grader and before the fork, so that the group is removed after the worker has ended.
            group = later.enter_context(sandbox.cgroup(secrets.token_hex(4), limits))
            order, fds = {"fork": True, "limits": asdict(limits)}, [sock.fileno() for sock in theirs]
            pid = self._order(order, messages.Forked, fds).pid
            later.callback(self._end, pid, group, result)
            for sock in theirs:
                sock.close()
            ours[0].settimeout(CELL_SECONDS)
            try:
                group.add(outside := sandbox.pid_of(ours[0]))
            except OSError as error:
                raise EngineError(f"A worker did not start: {error}") from None
            yield Worker(outside, ours[0], dict(zip(checks, ours[1:], strict=True)), group)

    def _end(self, pid: int, group: Group, result: NotebookResult) -> None:
        """Kill a worker and its descendants, and record the resources they used."""
        used = self._order({"end": pid}, messages.Used).cpu_seconds
        result.peak_mib = max(result.peak_mib, group.peak_mib() if group else 0.0)
        result.cpu_seconds += (group.cpu_seconds() if group else 0.0) or used

    def case_data(self, slot: int, exercise: str, seed: int) -> CaseData:
        """Return the test cases of an exercise, asking the verifier for them once. Raises EngineError."""
        if (exercise, seed) not in self.cases:
            try:
                send(self.slots[slot], {"cases": exercise, "seed": seed})
                head, _ = receive(self.slots[slot], form=reader(messages.Cases))
                data = [bytes(receive(self.slots[slot])[1]) for _ in head.about]
            except (ClosedError, MessageError):
                raise EngineError("The verifier has ended.") from None
            self.cases[exercise, seed] = CaseData(head.seconds, head.visible, head.about, data)
        return self.cases[exercise, seed]

    def judge(self, slot: int, questions: list[dict], values: list[list[bytes]]) -> list[Verdict]:
        """Return the verifier's verdicts on questions of one submission. Raises EngineError."""
        try:
            send(self.slots[slot], {"judge": questions}, b"".join(data for answers in values for data in answers))
            verdicts = receive(self.slots[slot], form=reader(messages.Judged))[0].verdicts
        except (ClosedError, MessageError):
            raise EngineError("The verifier has ended.") from None
        if [verdict.exercise for verdict in verdicts] != [question["exercise"] for question in questions]:
            raise EngineError("The verifier has answered something else.")
        return verdicts


def _start(
    role: str, module: str, arguments: list[str], sockets: list[socket.socket], unsafe: bool, device: str
) -> subprocess.Popen:
    fds = [sock.fileno() for sock in sockets]
    argv = [sys.executable, "-m", "passlab.process.forking", module, *arguments]
    # Results of modules are cached where learner code cannot reach them; without the sandbox there is no such place.
    keeps = _keeps() if role == "verifier" and not unsafe else {}
    process = sandbox.launch(
        role, argv, fds=fds, writable=keeps.values(), environment=keeps, unsafe=unsafe, device=device
    )
    for sock in sockets:
        sock.close()
    return process


def _keeps() -> dict[str, str]:
    """Return the variable with the folder of the cache; {} where it cannot be written, as in a read-only project."""
    with contextlib.suppress(OSError):
        os.makedirs(BUILDS, mode=0o700, exist_ok=True)
        if os.access(BUILDS, os.W_OK):
            return {cache.FOLDER: str(BUILDS)}
    return {}


class Engine:
    """Grades up to `jobs` notebooks at once, each from its own thread (0: one per core). `device`: where FX graphs are
    compared, "cpu" or "cuda".

    Raises UnsafeSandboxError if the sandbox lacks a required layer, unless `unsafe` is set.
    """

    def __init__(self, jobs: int = 0, unsafe: bool = False, device: str = "cpu"):
        missing = sandbox.missing()
        if missing and not unsafe:
            raise UnsafeSandboxError(" ".join(missing))
        self.jobs, self.unsafe, self.device = jobs or len(os.sched_getaffinity(0)), bool(missing), device
        self.free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(self.jobs):
            self.free.put(slot)
        self.backends: dict[str, BackendProcesses] = {}
        self.zygotes: dict[str, Zygote] = {}
        self.lock = threading.Lock()
        self.starting: dict[str, threading.Lock] = {}
        self.has_graded = threading.Event()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        processes: list[BackendProcesses | Zygote] = [*self.backends.values(), *self.zygotes.values()]
        for one in processes:  # first, so that they end at the same time
            one.hang_up()
        for one in processes:
            one.close()
        self.backends.clear()
        self.zygotes.clear()

    @property
    def ready(self) -> Collection[str]:
        """The flavours whose processes have started."""
        return self.backends.keys()

    def expect(self, names: Iterable[str]) -> None:
        """Start the processes of these flavours in the background, one after the other, the second after the first
        verdict: notebooks that need them will come, in this order."""

        def start() -> None:
            for flavour in names:
                with contextlib.suppress(EngineError):  # the notebook will meet it again, and say so
                    self.backend(flavour)
                self.has_graded.wait()

        threading.Thread(target=start, daemon=True).start()

    def backend(self, flavour: str) -> BackendProcesses:
        with self.lock:  # held briefly: only notebooks of the same flavour wait while it starts
            starting = self.starting.setdefault(flavour, threading.Lock())
        with starting:
            if flavour not in self.backends:
                self.backends[flavour] = BackendProcesses(flavour, self.jobs, self._zygote, self.unsafe, self.device)
        return self.backends[flavour]

    def _zygote(self, role: str) -> Zygote:
        """Return the zygote of a role; a new one if there is none, or the last has ended."""
        with self.lock:
            if role in self.zygotes and self.zygotes[role].has_ended:
                self.zygotes.pop(role).close()
            if role not in self.zygotes:
                self.zygotes[role] = Zygote(role, self.unsafe, self.device)
            return self.zygotes[role]

    def grade(self, job: Job, kept: dict[str, AnswerRun] | None = None) -> NotebookResult:
        """Run a notebook and judge its answers. Nothing that the notebook does makes it raise.

        kept: receives exercise id → what its answer was given and what it returned, as bytes.
        """
        slot = self.free.get()
        try:
            for last in (False, True):
                backend = None
                try:
                    backend = self.backend(_flavour(job))
                    result = self._grade(job, backend, slot, kept)
                    self.has_graded.set()
                    return result
                except MessageError as large:  # its cells are more than one message holds: nothing was sent
                    return self._failure(job, f"Its cells are too large to be sent ({large}).")
                except EngineError as broken:
                    self._drop(backend)
                    if last:
                        return self._failure(job, str(broken))
            raise AssertionError("the last attempt ends in a result")
        finally:
            self.free.put(slot)

    def _failure(self, job: Job, why: str) -> NotebookResult:
        return NotebookResult(job.learner, job.assignment, job.notebook, job.seed, failure=why, unsafe=self.unsafe)

    def _drop(self, backend: BackendProcesses | None) -> None:
        """Take a broken backend out of use; the next notebook of its flavour starts a new one."""
        with self.lock:
            for flavour in [name for name, other in self.backends.items() if other is backend]:
                self.backends.pop(flavour).close()

    def _grade(
        self, job: Job, backend: BackendProcesses, slot: int, kept: dict[str, AnswerRun] | None
    ) -> NotebookResult:
        start = time.monotonic()
        run = _Run(job, backend, slot, unsafe=self.unsafe)
        for _ in range(MOST_STARTS):
            if run.late or run.attempt():
                break
        run.give_up()
        run.judge()
        if kept is not None:
            kept |= {
                cell.exercise: AnswerRun(run.data[at].about, run.data[at].arguments, run.values[at])
                for at, cell in run.checks.items()
            }
        run.result.seconds = time.monotonic() - start
        return run.result


def _flavour(job: Job) -> str:
    """Return the flavour of a notebook's exercises. Raises ValueError if they have several."""
    flavours_used = {exercises.find(cell.exercise).flavour for cell in job.cells if cell.exercise}
    if len(flavours_used) > 1:
        raise ValueError(f"{job.assignment}/{job.notebook} has exercises of several flavours: {sorted(flavours_used)}.")
    return flavours_used.pop() if flavours_used else "torch"


#: After one of these outcomes an answer gets no more test cases.
_LAST = ("died", "stub", "timeout", "missing")


class _Run:
    """The run of one notebook: results of cells, outcomes of questions, and the cells to skip (`dead`)."""

    def __init__(self, job: Job, backend: BackendProcesses, slot: int, unsafe: bool):
        self.job, self.backend, self.slot = job, backend, slot
        self.result = NotebookResult(job.learner, job.assignment, job.notebook, job.seed, unsafe=unsafe)
        self.cells = {cell.index: cell for cell in job.cells if not cell.exercise}
        self.checks = {cell.index: cell for cell in job.cells if cell.exercise}
        self.data = {at: backend.case_data(slot, cell.exercise, job.seed) for at, cell in self.checks.items()}
        self.idle = {cell.index for cell in job.cells if cell.idle}
        self.result.ran = {at: Ran(idle=True) for at in self.idle}
        #: Questions that run at the position of their check, before a cell below may call an answer that never ends.
        self.early = {at for cell in job.cells for at in cell.calls}
        cells = [asdict(cell) for cell in job.cells if not cell.idle]
        needed = bounded_call.call(f"{snapshots.__name__}:needed_of", cells)
        self.snapshots = sorted({*(self.checks if needed is None else needed), *self.early})
        self.shown = 0
        self.dead: set[int] = set()
        self.heads: dict[int, list[dict]] = {at: [] for at in self.checks}
        self.values: dict[int, list[bytes]] = {at: [] for at in self.checks}
        self.took: dict[int, float] = dict.fromkeys(self.checks, 0.0)
        self.limit = Limit(NOTEBOOK_SECONDS, patience=1, longest=4)
        self.worker: Worker | None = None

    @property
    def late(self) -> bool:
        """Return whether the time for the whole notebook is over. That ends its own worker, and nothing else."""
        return self.limit.over(self.result.cpu_seconds + (self.worker.spent() if self.worker else 0.0))

    def _open(self) -> list[Cell]:
        """Return the check cells of questions that still have test cases to run."""
        return [cell for at, cell in self.checks.items() if not self._is_settled(at, len(self.data[at].arguments))]

    def _is_settled(self, at: int, cases: int) -> bool:
        heads = self.heads[at]
        return len(heads) >= cases or any(head.get("status") in _LAST for head in heads[-1:])

    def attempt(self) -> bool:
        """Run the notebook from the top, without cells that ended a worker before and without finished questions.

        An answer that never ends costs its question's time limit, whatever comes below it: the visible cases of a
        question run before any cell that may call its answer and only shows something, and that cell is skipped once
        the answer is lost. Other cells still run, since graded code may need what they define. Other questions whose
        answers call it still run too: they have their own points and limits.

        Return False if a cell or question ended the worker and the rest has to be run again without it.
        """
        open_ = {cell.index for cell in self._open()}
        skip = self.idle | self.dead | (self.checks.keys() - open_) | self._lost_with_answers()
        early = self.early & open_
        order = {"cells": [asdict(cell) for cell in self.job.cells], "skip": sorted(skip)}
        order |= {"snapshots": self.snapshots, "early": sorted(early)}
        with self._fork_worker() as worker:
            try:
                send(worker.control, order | {"seconds": CELL_SECONDS}, deadline=self.limit.deadline)
            except ClosedError:
                raise EngineError("A worker did not start.") from None
            except DeadlineError:
                return False
            for cell in self.job.cells:
                if cell.index in early:
                    self._ready(worker, messages.Begun)
                    if not self._question(worker, cell, hidden=False):
                        return not self._open()
                    skip |= self._lost_with_answers()
                    with contextlib.suppress(ClosedError, DeadlineError):  # a failure also shows in the next cell
                        send(worker.control, {"skip": sorted(skip)}, deadline=self.limit.deadline)
                if not cell.exercise and cell.index not in skip and (why := self._cell(worker, cell)):
                    self.result.ran[cell.index] = outputs.dead(why)
                    self.dead.add(cell.index)
                    return False
            self._ready(worker, messages.Done)
            # Hidden cases come last: by then, no output that the learner sees verbatim can reveal them.
            for hidden in (False, True):
                for cell in self._open():
                    if not self._question(worker, cell, hidden):
                        return not self._open()
        return True

    def _lost_with_answers(self) -> set[int]:
        """Record and return the cells to skip because they may call an answer that timed out or ended its process."""
        lost = {at for at, heads in self.heads.items() if heads and heads[-1].get("status") in ("timeout", "died")}
        causes = {cell.index: self.checks[min(lost & {*cell.calls})] for cell in self.job.cells if lost & {*cell.calls}}
        for at, check in causes.items():
            why = f"Not run: {check.answer}, which this cell may call, ended its process or exceeded the time limit."
            self.result.ran.setdefault(at, outputs.not_run(why))
        return causes.keys() - self.dead

    def _ready(self, worker: Worker, form: type[Message]) -> None:
        """Wait until questions can be asked: some have a process that runs the cells again. A failure shows in them."""
        with contextlib.suppress(ClosedError, DeadlineError, MessageError):
            self._receive(worker, worker.control, CELL_SECONDS * (1 + len(self.checks)), 0, form)

    @contextlib.contextmanager
    def _fork_worker(self) -> Iterator[Worker]:
        with self.backend.worker(list(self.checks), self.result) as worker:
            self.worker = worker
            try:
                yield worker
            finally:
                self.worker = None

    def _receive(
        self, worker: Worker, sock: socket.socket, seconds: float, most_payload: int, form: type[Message]
    ) -> tuple[Any, memoryview]:
        """Return a message from a worker. Raises like `receive`: DeadlineError after `seconds` of CPU time."""
        before = worker.spent()
        wait(sock, Limit(seconds), lambda: math.inf if self.late else worker.spent() - before)
        return receive(sock, time.monotonic() + MESSAGE_SECONDS, most_payload, reader(cast(Any, form)))

    def _cell(self, worker: Worker, cell: Cell) -> str:
        """Wait while a cell runs. Return why the worker must be killed, or ""."""
        try:
            begun, _ = self._receive(worker, worker.control, CELL_SECONDS, 0, messages.Begun)
            head, _ = self._receive(worker, worker.control, CELL_SECONDS + CELL_GRACE, 0, messages.Ran)
        except DeadlineError:
            return (
                OUT_OF_TIME
                if self.late
                else f"This cell ran longer than {CELL_SECONDS:g} s and could not be interrupted."
            )
        except ClosedError:
            return "The Python process ended in this cell (a crash, too much memory, or a call of exit)."
        except MessageError as what:
            return f"This cell wrote to the grader's connection ({what})."
        if begun.at != cell.index or head.index != cell.index:
            return "This cell wrote to the grader's connection."
        ran = outputs.ran(msgspec.to_builtins(head.ran), MOST_SHOWN - self.shown)
        self.shown += outputs.size(ran.outputs)
        self.result.ran[cell.index] = ran
        return ""

    def _question(self, worker: Worker, cell: Cell, hidden: bool) -> bool:
        """Run the visible or the hidden cases of a question. Return False if the worker has ended or must be killed."""
        data, heads, values = self.data[cell.index], self.heads[cell.index], self.values[cell.index]
        question, start, sound = worker.questions[cell.index], time.monotonic(), True
        most = len(data.arguments) if hidden else data.visible
        while not self._is_settled(cell.index, most):
            at, value = len(heads), b""
            try:
                asked = time.monotonic() + MESSAGE_SECONDS
                send(question, {"about": data.about[at]}, data.arguments[at], deadline=asked)
                outcome, payload = self._receive(worker, question, data.seconds + GRACE, MOST_PAYLOAD, messages.Outcome)
                head, value = plain(outcome), bytes(payload)
            except DeadlineError:
                used_up = f"Your answer used up its {data.seconds:g} s and could not be interrupted."
                head, sound = failure(OUT_OF_TIME if self.late else used_up), False
            except ClosedError:
                head, sound = failure(f"The Python process ended while your answer ran{_how(worker)}."), False
            except MessageError as what:
                head, sound = failure(f"Your answer wrote to the grader's connection ({what})."), False
            if sum(map(len, values)) + len(value) > MOST_BYTES:
                head, value = failure(f"Your answer returned more than {MOST_BYTES >> 20} MiB in all."), b""
            heads.append(head)
            values.append(value)
        self.took[cell.index] += time.monotonic() - start
        return sound

    def give_up(self) -> None:
        """Mark everything that has not run yet: the time is over, or too many parts have ended the process."""
        often = f"Not run: grading this notebook stopped after it had ended the Python process {MOST_STARTS} times."
        why = OUT_OF_TIME if self.late else often
        for at in self.cells:
            self.result.ran.setdefault(at, outputs.dead(why))
        for cell in self._open():
            self.heads[cell.index].append(failure(why))
            self.values[cell.index].append(b"")

    def judge(self) -> None:
        """Ask the verifier for the verdicts, in batches of bounded size."""
        above = ""
        for cell in self.job.cells:
            if not cell.exercise:
                above = self.result.ran[cell.index].error
            elif above and self.heads[cell.index][0].get("status") == "missing":
                self.heads[cell.index][:] = [failure(f"The cell above ended with {above}", "missing")]
        batch: list[int] = []
        size = 0
        for at in [*self.checks, None]:
            more = sum(map(len, self.values[at])) if at is not None else 0
            if batch and (at is None or size + more > BATCH_BYTES):
                questions = [
                    {
                        "exercise": self.checks[i].exercise,
                        "seed": self.job.seed,
                        "heads": self.heads[i],
                        "sizes": list(map(len, self.values[i])),
                    }
                    for i in batch
                ]
                found = self.backend.judge(self.slot, questions, [self.values[i] for i in batch])
                for i, verdict in zip(batch, found, strict=True):
                    verdict.seconds = round(self.took[i], 4)
                    self.result.verdicts[i] = verdict
                batch, size = [], 0
            if at is not None:
                batch.append(at)
                size += more


_SIGNALS = {
    signal.SIGSEGV: "it crashed, a segmentation fault",
    signal.SIGABRT: "it was aborted",
    signal.SIGKILL: "it was killed, perhaps for using too much memory",
}


def _how(worker: Worker) -> str:
    """Return how a child of the worker ended, as far as the worker knows: " (it crashed, …)", or ""."""
    with contextlib.suppress(ClosedError, DeadlineError, MessageError):
        code = receive(worker.control, time.monotonic() + GRACE, 0, reader(messages.Ended))[0].code
        return f" ({_SIGNALS.get(-code, f'exit code {code}' if code >= 0 else f'signal {-code}')})"
    return ""
