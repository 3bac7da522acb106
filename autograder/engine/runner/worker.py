"""The learner's side of the engine: runs in a confined child of a warm parent, one child for each notebook.

The worker runs the cells from top to bottom, and then forks a child that puts cases to the answers, so that no output
of a cell can hold a hidden case. Where a later cell changes what an answer uses, the state as it is at the check is
kept: in a child of its own, forked there. A question that ends its child, or has to be ended, costs itself alone: the
engine then begins a worker again for those that are left.

Nothing that comes out of here is believed: a value is judged elsewhere, as data, and the rest is shown to the learner.
"""

from __future__ import annotations

import os
import select
import socket
from dataclasses import asdict
from functools import cache, partial
from typing import Any

from autograder.engine import wire
from autograder.engine.data import Cell
from autograder.engine.outcomes import lost, told
from autograder.engine.runner.shell import Shell
from autograder.engine.sandbox import announce
from passlab import exercises
from passlab.judge import Case, run, unfit
from passlab.process.messages import Gone, receive, send


def serve(shell: Shell, reins: socket.socket, talks: list[socket.socket]) -> None:
    """Run the notebook that comes over `reins`; every check cell has the next of `talks`. Ends with the questions."""
    announce(reins)
    order, _ = receive(reins)
    cells = [Cell(**cell) for cell in order["cells"]]
    skip, snapshots, early = set(order["skip"]), set(order["snapshots"]), set(order["early"])
    checks = dict(zip((cell.index for cell in cells if cell.exercise), talks, strict=True))
    asked: dict[socket.socket, Cell] = {}

    def child(questions: dict[socket.socket, Cell]) -> None:
        """Leave questions to a child."""
        if os.fork() == 0:
            reins.close()
            for talk in talks:
                if talk not in questions:
                    talk.close()
            _answer(shell, questions)
        for talk in questions:
            talk.close()

    for cell in cells:
        if cell.exercise:
            if cell.index in snapshots and cell.index not in skip:
                child({checks[cell.index]: cell})
            elif cell.index not in skip:
                asked[checks[cell.index]] = cell
            if cell.index in early:  # its visible cases are put now, to the child
                skip = set(receive(reins)[0]["skip"])
            shell.skip()
        elif cell.index in skip:
            shell.skip()
        else:
            send(reins, {"at": cell.index})
            ran = shell.run(cell.source, order["seconds"])
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


def _answer(shell: Shell, questions: dict[socket.socket, Cell]) -> None:
    """Put the cases that come over each socket to its answer, until all sockets are closed, and end the process."""
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
                    answers[talk] = _wanted(shell, questions[talk])
                send(talk, *_outcome(*answers[talk], head["about"], bytes(payload)))
        os._exit(0)
    finally:
        os._exit(1)


def _wanted(shell: Shell, cell: Cell) -> tuple:
    """Exercise, answer, and why there is none."""
    exercise = exercises.find(cell.exercise)
    answer, error = shell.value(cell.answer, exercise.seconds)
    return exercise, answer, error or unfit(exercise, answer)


def _outcome(exercise: Any, answer: Any, error: str, about: list[str], payload: bytes) -> tuple[dict, bytes]:
    if error:
        return lost(error, "missing"), b""
    # One build, whoever asks how often: the answer gets what the judge sent.
    try:
        return told(run(exercise, answer, Case("", cache(partial(wire.decode, payload)), tuple(about))))
    except KeyboardInterrupt:  # raised by the answer: nobody presses keys here
        return lost("It raised KeyboardInterrupt.", "raised") | {"error_kind": "KeyboardInterrupt"}, b""
