"""The worker: runs one notebook in a confined child of a warm parent.

The worker runs the cells from top to bottom, and then forks a child that runs the answers on the cases, so that no
output of a cell can hold a hidden case. Where a later cell changes what an answer uses, a child forked at the check
keeps the state. An answer whose exercise closes functions has a child that was forked before the first cell and runs
the cells itself (see `closed`). A question that ends its child, or has to be ended, costs only itself: the engine
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
from dataclasses import asdict
from functools import cache, partial
from typing import Any

from autograder.engine import wire
from autograder.engine.data import Cell
from autograder.engine.outcomes import failure, to_wire
from autograder.engine.runner.closed import close
from autograder.engine.runner.shell import Shell
from autograder.engine.sandbox import announce
from passlab import exercises
from passlab.judge import Case, run, unfit
from passlab.process.messages import Garbled, Gone, Late, receive, send


def serve(shell: Shell, reins: socket.socket, talks: list[socket.socket]) -> None:
    """Run the notebook that arrives over `reins`; the check cells use `talks` in order. Ends with the questions."""
    announce(reins)
    order, _ = receive(reins)
    cells = [Cell(**cell) for cell in order["cells"]]
    skip, snapshots, early = set(order["skip"]), set(order["snapshots"]), set(order["early"])
    checks = dict(zip((cell.index for cell in cells if cell.exercise), talks, strict=True))
    asked: dict[socket.socket, Cell] = {}
    apart: dict[socket.socket, tuple[socket.socket, int]] = {}
    failed: list[int] = []
    start = time.monotonic()

    def leave(questions: Collection[socket.socket]) -> None:
        """Close what a child for these questions does not need."""
        for sock in (reins, *(talk for talk in talks if talk not in questions), *(rein for rein, _ in apart.values())):
            sock.close()

    def child(questions: dict[socket.socket, Cell]) -> None:
        """Let a child run these questions: one forked now, or those that run the cells themselves.

        The latter have twice the time that the cells took here, and that of one cell; then they are ended.
        """
        here = {talk: cell for talk, cell in questions.items() if talk not in apart}
        if here and os.fork() == 0:
            leave(here)
            _answer(shell, here)
        there = [apart[talk] for talk in questions if talk in apart]
        now = time.monotonic()
        until = now + 2 * (now - start) + order["seconds"]
        for rein, _ in there:
            with contextlib.suppress(Gone):
                send(rein, {"skip": sorted(skip), "failed": failed, "seconds": order["seconds"]})
        for rein, pid in there:
            try:
                receive(rein, until)
            except Late:
                os.kill(pid, signal.SIGKILL)
            except (Gone, Garbled):  # its question tells
                pass
        for talk in questions:
            talk.close()

    closed = {c.index for c in cells if c.exercise and c.index not in skip and exercises.find(c.exercise).closed}
    if closed:
        shell.prepare((cell.source for cell in cells if not cell.exercise and cell.index not in skip), order["seconds"])
    for cell in cells:
        if cell.index in closed:
            ours, theirs = socket.socketpair()
            talk = checks[cell.index]
            pid = os.fork()
            if pid == 0:
                ours.close()
                leave([talk])
                _apart(
                    shell, theirs, talk, cell, [c for c in cells if c.index < cell.index or cell.index not in snapshots]
                )
            theirs.close()
            talk.close()  # nothing that a cell of this process leaves behind can answer in its place
            apart[talk] = ours, pid
    for cell in cells:
        if cell.exercise:
            if cell.index in snapshots and cell.index not in skip:
                child({checks[cell.index]: cell})
            elif cell.index not in skip:
                asked[checks[cell.index]] = cell
            if cell.index in early:  # the child runs its cases, in the state at this point
                send(reins, {"at": cell.index})
                skip = set(receive(reins)[0]["skip"])
            shell.skip()
        elif cell.index in skip:
            shell.skip()
        else:
            send(reins, {"at": cell.index})
            ran = shell.run(cell.source, order["seconds"])
            failed += [cell.index] if ran.error else []
            send(reins, {"ran": asdict(ran), "index": cell.index})
    child(asked)
    send(reins, {"done": True})
    while True:
        try:
            _, status = os.wait()
        except ChildProcessError:
            return
        if status:
            send(reins, {"code": os.waitstatus_to_exitcode(status)})


def _apart(shell: Shell, rein: socket.socket, talk: socket.socket, check: Cell, cells: list[Cell]) -> None:
    """Close what a question closes, run the cells when `rein` says so, and run the answer."""
    try:
        shell.mute()
        close(exercises.find(check.exercise).closed)
        order, _ = receive(rein)
        for cell in cells:
            if cell.exercise or cell.index in order["skip"]:
                shell.skip()
            else:
                shell.run_again(cell.source, order["seconds"], strict=cell.index in order["failed"])
        send(rein, {})
        rein.close()
        _answer(shell, {talk: check})
    finally:
        os._exit(1)


def _answer(shell: Shell, questions: dict[socket.socket, Cell]) -> None:
    """Run each socket's answer on the cases that arrive over it, until all sockets are closed; end the process."""
    try:
        shell.mute()
        answers: dict[socket.socket, tuple] = {}
        while questions:
            for talk in select.select(list(questions), [], [])[0]:
                try:
                    head, payload = receive(talk)
                except Gone:
                    del questions[talk]
                    continue
                if talk not in answers:
                    answers[talk] = _answer_of(shell, questions[talk])
                send(talk, *_outcome(*answers[talk], head["about"], bytes(payload)))
        os._exit(0)
    finally:
        os._exit(1)


def _answer_of(shell: Shell, cell: Cell) -> tuple:
    """Return the exercise, the answer, and why there is no answer, or ""."""
    exercise = exercises.find(cell.exercise)
    answer, error = shell.value(cell.answer, exercise.seconds)
    return exercise, answer, error or unfit(exercise, answer)


def _outcome(exercise: Any, answer: Any, error: str, about: list[str], payload: bytes) -> tuple[dict, bytes]:
    if error:
        return failure(error, "missing"), b""
    # `build` returns the judge's arguments every time: the answer gets exactly what the judge sent.
    try:
        return to_wire(run(exercise, answer, Case("", cache(partial(wire.decode, payload)), tuple(about))))
    except KeyboardInterrupt:  # raised by the answer: there is no keyboard here
        return failure("It raised KeyboardInterrupt.", "raised"), b""
