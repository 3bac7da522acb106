"""The worker: runs one notebook in a confined child of a warm parent.

The worker runs the cells from top to bottom, and then forks a child that runs the answers on the cases, so that no
output of a cell can hold a hidden case. Where a later cell changes what an answer uses, a child forked at the check
keeps the state. An answer whose exercise closes functions has a child that was forked before the first cell and runs
the cells itself (see `closed`). A function that an answer may call and not look into has a child, too (see `remote`). A
question that ends its child, or has to be ended, costs only itself: the engine
starts another worker for the remaining ones.

Nothing from a worker is trusted: a value is judged elsewhere, as data, and the rest is shown to the learner.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Collection
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any, NoReturn

from autograder.engine import wire
from autograder.engine.data import Cell
from autograder.engine.outcomes import failure, to_wire
from autograder.engine.runner import remote
from autograder.engine.runner.closed import close
from autograder.engine.runner.shell import Shell
from autograder.engine.sandbox import announce
from passlab import exercises
from passlab.judge import Case, Exercise, run, why_not_an_answer
from passlab.process.messages import ClosedError, DeadlineError, MessageError, receive, send


def serve(shell: Shell, control: socket.socket, questions: list[socket.socket]) -> None:
    """Run the notebook that arrives over `control`; its check cells use `questions` in order.

    Return when all have ended.
    """
    announce(control)
    order, _ = receive(control)
    notebook = _Notebook(shell, control, questions, order)
    notebook.serve_remote()
    notebook.isolate()
    notebook.run()
    send(control, {"done": True})
    while True:
        try:
            _, status = os.wait()
        except ChildProcessError:
            return
        if status:
            send(control, {"code": os.waitstatus_to_exitcode(status)})


class _Notebook:
    """The notebook of an order, and the children that answer its questions."""

    def __init__(self, shell: Shell, control: socket.socket, questions: list[socket.socket], order: dict[str, Any]):
        self.shell, self.control, self.questions = shell, control, questions
        self.seconds: float = order["seconds"]
        self.cells = [Cell(**cell) for cell in order["cells"]]
        self.skip, self.snapshots, self.early = set(order["skip"]), set(order["snapshots"]), set(order["early"])
        checks = (cell.index for cell in self.cells if cell.exercise)
        self.question = dict(zip(checks, questions, strict=True))
        self.failed: list[int] = []
        #: Question → control socket and process number of the child that runs the cells itself.
        self.isolated: dict[socket.socket, tuple[socket.socket, int]] = {}
        self.start = time.monotonic()

    def _checks(self) -> list[Cell]:
        """Return the check cells of the questions to run."""
        return [cell for cell in self.cells if cell.exercise and cell.index not in self.skip]

    def serve_remote(self) -> None:
        """Fork a child for each exercise with a service, before the first cell; its question leads to that."""
        for check in self._checks():
            if service := exercises.service(check.exercise):
                link, theirs = socket.socketpair()
                question = self.question[check.index]
                if os.fork() == 0:
                    link.close()
                    self._close_all_but([question])
                    self.shell.mute()
                    remote.serve(question, theirs, service)
                theirs.close()
                question.close()
                self.questions[self.questions.index(question)] = self.question[check.index] = link

    def isolate(self) -> None:
        """Fork a child for each exercise that closes functions, before the first cell."""
        checks = [cell for cell in self._checks() if exercises.find(cell.exercise).closed]
        if checks:
            texts = (cell.source for cell in self.cells if not cell.exercise and cell.index not in self.skip)
            self.shell.prepare(texts, self.seconds)
        for check in checks:
            ours, theirs = socket.socketpair()
            question = self.question[check.index]
            pid = os.fork()
            if pid == 0:
                ours.close()
                self._close_all_but([question])
                snapshot = check.index in self.snapshots
                cells = [cell for cell in self.cells if cell.index < check.index or not snapshot]
                _isolated(self.shell, theirs, question, check, cells)
            theirs.close()
            question.close()  # nothing that a cell of this process leaves behind can answer in its place
            self.isolated[question] = ours, pid

    def run(self) -> None:
        """Run the cells from top to bottom, then the questions that need no snapshot."""
        last: dict[socket.socket, Cell] = {}
        for cell in self.cells:
            if cell.exercise:
                if cell.index not in self.skip:
                    question = {self.question[cell.index]: cell}
                    if cell.index in self.snapshots:
                        self._answer(question)
                    else:
                        last |= question
                if cell.index in self.early:  # the child runs its cases, in the state at this point
                    send(self.control, {"at": cell.index})
                    self.skip = set(receive(self.control)[0]["skip"])
                self.shell.skip()
            elif cell.index in self.skip:
                self.shell.skip()
            else:
                self._run_cell(cell)
        self._answer(last)

    def _run_cell(self, cell: Cell) -> None:
        send(self.control, {"at": cell.index})
        ran = self.shell.run(cell.source, self.seconds)
        if ran.error:
            self.failed.append(cell.index)
        send(self.control, {"ran": asdict(ran), "index": cell.index})

    def _answer(self, questions: dict[socket.socket, Cell]) -> None:
        """Let children run these questions: one forked now, and those that run the cells themselves."""
        shared = {question: cell for question, cell in questions.items() if question not in self.isolated}
        if shared and os.fork() == 0:
            self._close_all_but(shared)
            _answer(self.shell, shared)
        self._resume([self.isolated[question] for question in questions if question in self.isolated])
        for question in questions:
            question.close()

    def _resume(self, children: list[tuple[socket.socket, int]]) -> None:
        """Let isolated children run the cells, for twice the time taken here and that of one cell; then end them."""
        now = time.monotonic()
        deadline = now + 2 * (now - self.start) + self.seconds
        order = {"skip": sorted(self.skip), "failed": self.failed, "seconds": self.seconds}
        for control, _ in children:
            with contextlib.suppress(ClosedError):
                send(control, order)
        for control, pid in children:
            try:
                receive(control, deadline)
            except DeadlineError:
                os.kill(pid, signal.SIGKILL)
            except (ClosedError, MessageError):  # its question tells
                pass

    def _close_all_but(self, questions: Collection[socket.socket]) -> None:
        """Close what a child for these questions does not need."""
        others = (question for question in self.questions if question not in questions)
        for sock in (self.control, *others, *(control for control, _ in self.isolated.values())):
            sock.close()


def _isolated(
    shell: Shell, control: socket.socket, question: socket.socket, check: Cell, cells: list[Cell]
) -> NoReturn:
    """Close what an exercise closes, run the cells when `control` says so, and run the answer."""
    try:
        shell.mute()
        close(exercises.find(check.exercise).closed)
        order, _ = receive(control)
        for cell in cells:
            if cell.exercise or cell.index in order["skip"]:
                shell.skip()
            else:
                shell.run_again(cell.source, order["seconds"], strict=cell.index in order["failed"])
        send(control, {})
        control.close()
        _answer(shell, {question: check})
    finally:
        os._exit(1)


def _answer(shell: Shell, questions: dict[socket.socket, Cell]) -> NoReturn:
    """Run each question's answer on the cases that arrive over its socket until all are closed; end the process."""
    try:
        shell.mute()
        answers: dict[socket.socket, tuple[Exercise, Any, str]] = {}
        while questions:
            for question in select.select(list(questions), [], [])[0]:
                try:
                    head, payload = receive(question)
                except ClosedError:
                    del questions[question]
                    continue
                if question not in answers:
                    answers[question] = _answer_of(shell, questions[question], question)
                exercise, answer, error = answers[question]
                build = cache(partial(wire.decode, bytes(payload)))  # the judge's arguments, every time
                send(question, *_outcome(exercise, answer, error, Case("", build, tuple(head["about"]))))
        os._exit(0)
    finally:
        os._exit(1)


def _answer_of(shell: Shell, cell: Cell, question: socket.socket) -> tuple[Exercise, Any, str]:
    """Return the exercise, the answer, and why there is no answer, or ""."""
    exercise = exercises.find(cell.exercise)
    if exercises.service(exercise.id):
        stub = remote.Stub(question)
        exercise = replace(exercise, call=partial(exercises.call_with_service, lambda case: (case.build(), stub)))
    answer, error = shell.value(cell.answer, exercise.seconds)
    return exercise, answer, error or why_not_an_answer(exercise, answer)


def _outcome(exercise: Exercise, answer: Any, error: str, case: Case) -> tuple[dict, bytes]:
    if error:
        return failure(error, "missing"), b""
    try:
        return to_wire(run(exercise, answer, case))
    except KeyboardInterrupt:  # raised by the answer: there is no keyboard here
        return failure("It raised KeyboardInterrupt.", "raised"), b""
