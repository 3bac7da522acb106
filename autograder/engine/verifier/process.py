"""The verifier: holds the hidden cases, judges returned values, never runs learner code.

It is a fork of the verifier's zygote (`autograder.engine.zygote`), in a sandbox of its own, and gets a flavour, the
socket of the server that runs graphs (see `graphs`), that of the builder (flavours of a compiler only), and the sockets
for requests, one for each job of the engine.

A request is judged in a forked child, which a hostile value may crash: then each of its
questions gets a separate child, so that only the one that crashes is lost, and if it crashes there, too, another one
that does not search for its misconception. Graphs and modules that an answer returned
run in other processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from autograder.engine import flavours, graphs, sandbox
from autograder.engine.data import Verdict
from autograder.engine.messages import Found, reader
from autograder.engine.sandbox import address_space_mib
from autograder.engine.verifier.verdicts import (
    CaseFindings,
    Key,
    KnownCase,
    Misconceptions,
    Mistakes,
    Question,
    Result,
    cases_of,
    payloads,
    wrong_answers,
)
from passlab import exercises
from passlab.building import requests
from passlab.graph.registry import COMPILERS, compiler
from passlab.notebook import ui
from passlab.process.clock import Limit
from passlab.process.forking import settle
from passlab.process.messages import MOST_HEAD, ClosedError, MessageError, receive, send

#: Judging one question takes seconds of CPU time; only a hostile value takes longer. Graphs and modules run elsewhere,
#: and pay for themselves; a case's modules may take MODULES times what its exercise allows an answer.
MOST_SECONDS = 30
MODULES = 4.0
#: A child waits for graphs and modules, so by the clock it may take this many times what all of them may.
LONGEST = 20.0
MOST_MEMORY = 4 * 2**30
MOST_FINDINGS = 100_000
#: Bytes of a reply, for each question, that are not of its verdict.
_BESIDES = 100
#: Exit status of a child that could not judge because the builder has ended.
_NO_BUILDER = 3


@dataclass
class Request:
    """Questions of one submission, the child that judges some of them, and the verdicts so far, by place.

    `searching`: the child also searches for misconceptions.
    """

    sock: socket.socket
    questions: list[dict[str, Any]]
    values: list[list[bytes]]
    waiting: list[list[int]]
    verdicts: dict[int, dict] = field(default_factory=dict)
    pid: int = 0
    pipe: socket.socket | None = None
    deadline: float = 0.0
    searching: bool = True


class Verifier:
    """Answers requests on its sockets until they are closed. `findings`: findings of earlier questions."""

    def __init__(self, sockets: list[socket.socket]):
        self.findings: dict[Key, CaseFindings] = {}
        self.mistakes: Mistakes = {}
        self.running: dict[socket.socket, Request] = {}
        self.select = selectors.DefaultSelector()
        for sock in sockets:
            self.select.register(sock, selectors.EVENT_READ)

    def serve(self) -> None:
        while len(self.select.get_map()):
            for key, _ in self.select.select(timeout=0.5 if self.running else None):
                sock = cast(socket.socket, key.fileobj)
                if sock in self.running:
                    self._finish(self.running[sock])
                else:
                    self._handle(sock)
            for request in [r for r in self.running.values() if time.monotonic() > r.deadline]:
                os.kill(request.pid, signal.SIGKILL)  # its pipe closes, and the loop above sees it

    def _handle(self, sock: socket.socket) -> None:
        try:
            head, payload = receive(sock)
        except ClosedError:
            self.select.unregister(sock)
            return
        if "cases" in head:
            cases, visible = cases_of(head["cases"], head["seed"])
            about = [list(case.about) for case in cases]
            send(sock, {"about": about, "visible": visible, "seconds": exercises.find(head["cases"]).seconds})
            for data in payloads(head["cases"], head["seed"]):
                send(sock, {}, data)
            return
        values, at = [], 0
        for question in head["judge"]:
            mine = []
            for size in question["sizes"]:
                mine.append(bytes(payload[at : at + size]))
                at += size
            values.append(mine)
        self._start(Request(sock, head["judge"], values, [list(range(len(values)))]))

    def _start(self, request: Request) -> None:
        """Judge the next group of a request's questions in a child; if none is left, reply."""
        if not request.waiting:
            send(request.sock, {"verdicts": [request.verdicts[at] for at in range(len(request.questions))]})
            return
        pipe, theirs = socket.socketpair()
        request.pipe = pipe
        seconds = (MOST_SECONDS + graphs.SECONDS + _for_modules(request.questions[at]) for at in request.waiting[0])
        request.deadline = Limit(sum(seconds), longest=LONGEST).deadline
        request.pid = os.fork()
        if request.pid == 0:
            for sock in [cast(socket.socket, key.fileobj) for key in self.select.get_map().values()]:
                sock.close()
            pipe.close()
            self._child(request, theirs)
        theirs.close()
        self.running[pipe] = request
        self.select.register(pipe, selectors.EVENT_READ)

    def _child(self, request: Request, out: socket.socket) -> None:
        try:
            most = _limit_memory()
            _limit_time(MOST_SECONDS * len(request.waiting[0]))
            verdicts, fresh = {}, []
            misconceptions = Misconceptions(self.mistakes, request.searching)
            for at in request.waiting[0]:
                asked = request.questions[at]
                requests.allow(_for_modules(asked))
                graphs.allow(graphs.SECONDS)
                question = Question(asked["exercise"], asked["seed"], asked["heads"], request.values[at], self.findings)
                verdicts[at] = asdict(question.verdict(misconceptions))
                fresh += [(key, seen.to_json()) for key, seen in question.fresh.items()]
            if _peak() > most - MOST_MEMORY // 2:  # what was lost may have been lost for want of memory
                fresh = []
                misconceptions.fresh.clear()
            send(out, {"verdicts": verdicts, "fresh": fresh, "mistakes": list(misconceptions.fresh.items())})
            os._exit(0)
        except requests.Ended:
            os._exit(_NO_BUILDER)
        except BaseException:  # a bug in the judge, or out of memory: the instructor should see it
            traceback.print_exc()
        finally:
            os._exit(1)

    def _finish(self, request: Request) -> None:
        """Handle a child that has replied or died."""
        pipe = request.pipe
        assert pipe, "the request has a child"
        self.select.unregister(pipe)
        del self.running[pipe]
        group = request.waiting.pop(0)
        try:
            found, _ = receive(pipe, request.deadline + 1, 0, reader(Found))
            if found.verdicts.keys() != set(group):
                raise MessageError("verdicts on other questions")
            if len(self.findings) > MOST_FINDINGS:
                self.findings.clear()
            self.findings |= {key: CaseFindings.of(kept) for key, kept in found.fresh}
            self.mistakes |= {KnownCase(*key): Result(*result) for key, result in found.mistakes}
            for exercise in {request.questions[at]["exercise"] for at in group} & {key[0] for key, _ in found.mistakes}:
                wrong_answers(exercise)  # load here what the children after this one will need
            request.verdicts |= {at: _sendable(request, at, verdict) for at, verdict in found.verdicts.items()}
        except (ClosedError, MessageError):
            if len(group) > 1:
                request.waiting = [[at] for at in group]
            elif request.searching:  # a known wrong answer, stopped inside a compiler, can crash it, too
                request.searching, request.waiting = False, [group, *request.waiting]
            else:
                request.verdicts[group[0]] = asdict(_no_verdict(request.questions[group[0]]))
        pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(request.pid, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(request.pid, 0)[1]) == _NO_BUILDER:
            sys.exit("The builder has ended.")  # and the engine restarts all of them
        self._start(request)


def _sendable(request: Request, at: int, verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as data; one that is too large to be sent is that of an answer that could not be judged.

    All verdicts of a request are one message. If they were more than a message holds, this process would end, and with
    it what it does for others: so each question has its share.
    """
    data = asdict(verdict)
    share = MOST_HEAD // len(request.questions) - _BESIDES
    return data if len(json.dumps(data)) <= share else asdict(_no_verdict(request.questions[at]))


def _for_modules(question: dict[str, Any]) -> float:
    """Return the CPU seconds that building and running modules may take, all cases together."""
    exercise = exercises.find(question["exercise"])
    if exercise.flavour not in COMPILERS:
        return 0.0
    return MODULES * exercise.seconds * len(cases_of(exercise.id, question["seed"])[0])


def _limit_memory() -> int:
    """Limit this process's address space, and return the limit in bytes."""
    most = address_space_mib() * 2**20 + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return most


def _limit_time(seconds: int) -> None:
    """Limit this process's CPU time: at the end of it the kernel kills it."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _peak() -> int:
    """Return the largest address space, in bytes, that this process has had."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmPeak"))


def _no_verdict(question: dict[str, Any]) -> Verdict:
    """Return the verdict on an answer whose results could not be judged: it earns nothing."""
    exercise = exercises.find(question["exercise"])
    message = "What your code returned could not be judged: judging it ended the judge's process, or took too long."
    verdicts = dict.fromkeys(exercise.points, False)
    text = f"{exercise.title}: 0 of {exercise.total:g} points\n{message}"
    return Verdict(
        exercise.id,
        0.0,
        exercise.total,
        question["seed"],
        verdicts,
        message,
        text=text,
        html=f"<pre>{text}</pre>",
        crash=message,
    )


def load() -> None:
    """Import what judges of all flavours use."""
    flavours.share(notebooks=False)
    ui.templates()  # once here, not in every child


def main(flavour: str, *numbers: str) -> None:
    flavours.warm(flavour, notebooks=False)
    sockets = [socket.socket(fileno=int(number)) for number in numbers]
    graphs.use(sockets.pop(0), sandbox.device())
    if own := compiler(flavour):
        requests.use(flavour, sockets.pop(0))
        own.confine()
    settle()
    send(sockets[0], {"ready": True})
    Verifier(sockets).serve()
