"""The learner's side of the engine: runs in a confined child of a warm parent, one child for each notebook.

The worker runs the cells from top to bottom. Where a check cell stands it forks: that child keeps the state as it is at
this place and waits, until all cells have run and their outputs have left the worker, for cases to put to the answer.
So no output of a cell can hold a hidden case, and what happens to one question happens to its own process.

Nothing that comes out of here is believed: a value is judged elsewhere, as data, and the rest is shown to the learner.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import asdict

from autograder.engine import wire
from autograder.engine.data import Cell
from autograder.engine.frames import Gone, receive, send
from autograder.engine.outcomes import lost, told
from autograder.engine.sandbox import announce
from autograder.engine.shell import Shell
from passlab import exercises
from passlab.judge import Case, run, unfit


def serve(shell: Shell, reins: socket.socket, talks: list[socket.socket]) -> None:
    """Run the notebook that comes over `reins`; every check cell takes the next of `talks`. Ends with the questions."""
    announce(reins)
    order, _ = receive(reins)
    skip, parked = set(order["skip"]), {}
    for cell in (Cell(**cell) for cell in order["cells"]):
        if cell.exercise:
            talk = talks.pop(0)
            if cell.index not in skip:
                pid = os.fork()
                if pid == 0:
                    reins.close()
                    for other in talks:
                        other.close()
                    _question(shell, talk, cell)
                parked[pid] = cell.index
            talk.close()
            shell.skip()
        elif cell.index in skip:
            shell.skip()
        else:
            send(reins, {"at": cell.index})
            ran = shell.run(cell.source, order["seconds"])
            send(reins, {"ran": asdict(ran), "index": cell.index})
    send(reins, {"done": True})
    while parked:
        pid, status = os.wait()
        if pid in parked:
            send(reins, {"over": parked.pop(pid), "code": os.waitstatus_to_exitcode(status)})


def _question(shell: Shell, talk: socket.socket, cell: Cell) -> None:
    """Put the cases that come over `talk` to an answer, one after the other, and end the process."""
    try:
        exercise = exercises.find(cell.exercise)
        shell.mute()
        answer, error = shell.value(cell.answer, exercise.seconds)
        if not error and (why := unfit(exercise, answer)):
            error = why
        while True:
            head, payload = receive(talk)
            if error:
                send(talk, lost(error, "missing"))
                continue
            build = _once(lambda payload=payload: wire.decode(payload))
            outcome = run(exercise, answer, Case("", build, tuple(head["about"])))
            send(talk, *told(outcome))
    except Gone:
        os._exit(0)
    finally:
        os._exit(1)


def _once(make: Callable[[], tuple]) -> Callable[[], tuple]:
    """A case's `build` that gives the same arguments at every call: the answer gets what the judge sent."""
    made: list[tuple] = []

    def build() -> tuple:
        if not made:
            made.append(make())
        return made[0]

    return build
