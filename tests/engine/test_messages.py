"""Messages of every kind with every wrong type, size and nesting: each costs its sender, and nothing raises."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograder.engine import engine, messages
from autograder.engine.data import Cell, Job
from autograder.engine.outputs import ran
from passlab.process.messages import MessageError
from tests.support import amounts
from tests.support.flavours import python
from tests.support.parts import places, put

STATUS = {"status": "ok", "error": "", "printed": 0, "seconds": 0.5, "in_place": False}
OUTPUTS = [
    {"output_type": "stream", "name": "stdout", "text": "a"},
    {"output_type": "display_data", "data": {"text/plain": "a", "x/y": [1]}, "metadata": {}},
    {"output_type": "execute_result", "data": {"image/png": "aa"}, "metadata": {}, "execution_count": 2},
    {"output_type": "error", "ename": "E", "evalue": "e", "traceback": ["t"]},
]
VERDICT = {"exercise": "day03.cse", "points": 1.0, "total": 2.0, "seed": 2**127, "verdicts": {"did": True}}
CASE = {"name": "a", "hidden": True, "status": "ok", "lost": ["did"], "fingerprint": ""}
KEPT = {"findings": [["did", True, "", "a"]], "fingerprint": "", "drawn": None}
#: Message → a message that fits.
GOOD = {
    messages.Outcome: STATUS,
    messages.Begun: {"at": 0},
    messages.Ran: {"index": 0, "ran": {"outputs": OUTPUTS, "error": ""}},
    messages.Done: {"done": True},
    messages.Ended: {"code": -11},
    messages.Forked: {"pid": 7},
    messages.Used: {"cpu_seconds": 0.1},
    messages.Ready: {"ready": True},
    messages.Cases: {"about": [["did"], []], "visible": 1, "seconds": 5.0},
    messages.Judged: {"verdicts": [VERDICT | {"cases": [CASE]}]},
    messages.Found: {
        "verdicts": {"0": VERDICT},
        "fresh": [[["day03.cse", 3, 0, "a"], KEPT]],
        "mistakes": [[["day03.cse", 3, "a", 0], ["ok", [], ""]]],
    },
}
#: What stands where something else should, besides what hypothesis draws.
ODD = [
    *(None, True, -1, 2**64, 10**4000, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x" * 5_000, "\0", "\ud800", [], {}, [[]], {"a": {}}, [None] * 2_000, ["did"], {"text/plain": []}),
]
DEEP = b"[" * 20_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
FUZZ = settings(max_examples=4 * amounts.EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def bad(form):
    """Texts of messages of a form in which one part is another, or missing, or nested too deep."""
    where = list(places(GOOD[form]))
    wrong = st.builds(lambda at, odd: json.dumps(put(GOOD[form], at, odd)).encode(), st.sampled_from(where), JSON)
    mark = json.dumps("deep")
    deep = st.sampled_from(where).map(
        lambda at: json.dumps(put(GOOD[form], at, "deep")).replace(mark, DEEP.decode()).encode()
    )
    return wrong | deep | JSON.map(lambda value: json.dumps(value).encode()) | st.binary()


@pytest.mark.parametrize("form", GOOD, ids=lambda form: form.__name__)
def test_a_message_fits_or_is_garbled(form):
    assert isinstance(messages.reader(form)(json.dumps(GOOD[form]).encode()), form)

    @FUZZ
    @given(bad(form))
    def odd(text):
        with contextlib.suppress(MessageError):
            assert isinstance(messages.reader(form)(text), form)

    odd()


# ── In the engine ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Backends:
    """A backend whose workers send what they are told: texts on the control, and one for each case."""

    def __init__(self, control: list[bytes], question: bytes, payload: bytes = b""):
        self.control, self.question, self.payload = control, question, payload

    def case_data(self, slot, exercise, seed):
        return engine.CaseData(1.0, 1, [["did"], ["did"]], [b"", b""])

    @contextlib.contextmanager
    def worker(self, checks, result):
        pairs = [socket.socketpair() for _ in range(1 + len(checks))]
        sends = [self.control, *([self.question] * 2 for _ in checks)]
        threads = [
            threading.Thread(target=self._write, args=item) for item in zip((b for _, b in pairs), sends, strict=True)
        ]
        for thread in threads:
            thread.start()
        ours = [a for a, _ in pairs]
        worker = SimpleNamespace(control=ours[0], questions=dict(zip(checks, ours[1:], strict=True)), spent=lambda: 0.0)
        try:
            yield worker
        finally:
            for sock in ours:
                sock.close()
            for thread in threads:
                thread.join()

    def _write(self, sock, texts):
        with sock, contextlib.suppress(OSError):
            for text in texts:
                payload = b"" if texts is self.control else self.payload
                sock.sendall(struct.pack("!QQ", len(text), len(payload)) + text + payload)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(2**16):
                pass


def attempts(control: list[bytes], question: bytes, payload: bytes = b"") -> engine._Run:
    """Run a notebook of one cell and one question on such a worker."""
    cells = (Cell(0, "cell", "1"), Cell(1, "check", "", "day03.cse", "cse"))
    run = engine._Run(Job("ada", "day03", "optimizations", cells, 3), Backends(control, question, payload), 0, False)
    for _ in range(engine.MOST_STARTS):
        if run.attempt():
            break
    run.give_up()
    return run


def text(form) -> bytes:
    return json.dumps(GOOD[form]).encode()


CONTROL = [text(messages.Begun), text(messages.Ran), text(messages.Done)]


#: Four threads ask for readers of forms with the same forms inside, whose annotations are texts.
AT_ONCE = """
import sys, threading
from msgspec import Struct
from autograder.engine import messages

def form(name, fields):
    return type(Struct)(name, (Struct,), {"__annotations__": fields, "__module__": __name__})

rounds, threads = range(20), range(4)
parts = [[form("Part", {"value": "int"}) for _ in range(30)] for _ in rounds]
inner = [form("Inner", {f"part_{i}": f"parts[{at}][{i}] | None" for i in range(30)}) for at in rounds]
outer = [[form("Outer", {"one": f"inner[{at}]"}) for _ in threads] for at in rounds]
text = ('{"one": {' + ", ".join(f'"part_{i}": {{"value": 1}}' for i in range(30)) + "}}").encode()
barrier, values = threading.Barrier(len(threads)), []

def read(thread):
    for forms in outer:
        barrier.wait()
        values.append(messages.reader(forms[thread])(text).one.part_29.value)

sys.setswitchinterval(1e-6)
running = [threading.Thread(target=read, args=(thread,)) for thread in threads]
[one.start() for one in running]
[one.join() for one in running]
print(sum(values))
"""


def test_threads_can_complete_a_form_at_the_same_time():
    assert python(AT_ONCE) == "80"


def test_a_message_that_fits_counts():
    run = attempts(CONTROL, text(messages.Outcome), b"value")
    assert not run.result.ran[0].died and [head["status"] for head in run.heads[1]] == ["ok", "ok"]
    assert run.values[1] == [b"value"] * 2
    kinds = [output["output_type"] for output in run.result.ran[0].outputs]
    assert kinds == [output["output_type"] for output in OUTPUTS]


@settings(FUZZ, max_examples=2 * amounts.EXAMPLES)
@given(st.sampled_from(range(3)), st.data())
def test_whatever_a_worker_sends_of_cells_costs_its_cells(at, data):
    odd = data.draw(bad((messages.Begun, messages.Ran, messages.Done)[at]))
    run = attempts([odd if i == at else good for i, good in enumerate(CONTROL)], text(messages.Outcome))
    assert run.result.ran.keys() == {0} and not run._open()


@settings(FUZZ, max_examples=2 * amounts.EXAMPLES)
@given(bad(messages.Outcome), st.binary())
def test_whatever_a_worker_sends_of_a_case_costs_its_question(odd, payload):
    run = attempts(CONTROL, odd, payload)
    assert not run.result.ran[0].died and not run._open()
    for head in run.heads[1]:
        assert head["status"] in ("ok", "stub", "raised", "timeout", "refused", "missing", "died")
        assert len(head["error"]) <= 400 and head["error"].isprintable()


@FUZZ
@given(JSON)
def test_outputs_of_any_form_are_read(odd):
    assert isinstance(ran({"outputs": [odd], "error": odd}).outputs, list)


def test_cells_that_no_message_holds_cost_their_notebook_and_no_station(monkeypatch):
    monkeypatch.setattr(engine.sandbox, "missing", lambda: [])
    job = Job("ada", "day03", "optimizations", (Cell(0, "cell", "é" * 6 * 2**20),), 3)
    with engine.Engine(jobs=1) as one:
        backend = one.backends["torch"] = Backends(CONTROL, text(messages.Outcome))
        backend.hang_up = backend.close = lambda: None
        assert "too large" in one.grade(job).failure
        assert one.backends["torch"] is backend
