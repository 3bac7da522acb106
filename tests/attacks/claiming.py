"""Claiming: what a worker says of itself, in messages of unexpected forms; and where an answer stops.

An answer tells a hidden case from the visible ones. So it may do well on those and, on a hidden one, end in a way that
says something, or that would leave the verdicts from the visible ones alone.
"""

from __future__ import annotations

from autograder.toys.tiny_fx import QUESTIONS
from tests.attacks.attack import Attack, answer, cell
from tests.attacks.reading import _TELL

_DEEP = "value = 0\nfor _ in range(500):\n    value = [value]"
#: What stands where a word, a number or a list should.
_ODD = {
    "list": "value = []",
    "dict": "value = {'a': [1]}",
    "null": "value = None",
    "deep": _DEEP,
    "digits": "value = 10 ** 4000",
    "long": "value = 'x' * 3_000_000",
    "surrogate": "value = '\\ud800'",
    "nan": "value = float('nan')",
}

_HEAD = """
import autograder.engine.runner.worker as worker
{odd}
honest = worker.to_wire

def once(outcome):
    worker.to_wire, head = honest, honest(outcome)[0]
    return {head}, b""

def dce(gm):
    worker.to_wire = once
    return gm
"""
_CELL = """
import autograder.engine.runner.worker as worker
{odd}
worker.asdict = lambda ran: {report}
"""

#: Where in the report of a cell the odd value stands.
_REPORTS = {
    "whole": "value",
    "outputs": "{'outputs': value, 'error': value}",
    "output": "{'outputs': [value, {'output_type': value}], 'error': ''}",
    "text": "{'outputs': [{'output_type': 'stream', 'name': value, 'text': value}], 'error': ''}",
    "data": "{'outputs': [{'output_type': 'execute_result', 'data': {'text/plain': value}, 'execution_count': value}], "
    "'error': ''}",
}


def _heads() -> list[Attack]:
    items = []
    for name, odd in _ODD.items():
        tries = f"outcomes in which every field is of a wrong type: {name}"
        items.append(answer(f"head-{name}", tries, _HEAD.format(odd=odd, head="dict.fromkeys(head, value)")))
    for field in ("status", "error", "printed", "seconds", "in_place"):
        code = _HEAD.format(odd=_ODD["dict"], head=f"head | {{'{field}': value, 'error_kind': value}}")
        items.append(answer(f"head-{field}", f"outcomes in which {field} is a dict, and so is a field of old", code))
    return items


def _reports() -> list[Attack]:
    return [
        # The cells below are reported the same way, and lost with it.
        cell(
            f"report-{where}-{name}",
            f"the report of a cell holds what no report holds ({name})",
            _CELL.format(odd=_ODD[name], report=report),
            keeps=False,
        )
        for (where, report), name in zip(_REPORTS.items(), ("list", "null", "deep", "digits", "dict"), strict=True)
    ]


_STOPS = (
    _TELL
    + QUESTIONS["dce"].good.replace("def dce(gm)", "def good(gm)")
    + """
import autograder.engine.runner.worker as worker, os, time
honest = worker.to_wire

def claimed(status, said):
    more = {"status": status, "error": said, "error_kind": said, "in_place": True, "printed": 10**9}
    return lambda outcome: (honest(outcome)[0] | more, b"")

def dce(gm):
    if unseen(gm):
        {stops}
    return good(gm)
"""
)


def _stops(name: str, tries: str, stops: str) -> Attack:
    return answer(f"stops-{name}", tries, _STOPS.replace("{stops}", stops))


def _poisons(name: str, tries: str, claim: str, works: bool) -> Attack:
    """The very bytes of a right answer, with other words beside them: what is kept of them must not be these."""
    code = QUESTIONS["dce"].good + _HEAD.format(odd="", head=f"head | {claim}").replace(
        "def dce(gm)", "def once_more(gm)"
    )
    code = code.replace("worker.to_wire, head = honest, honest(outcome)[0]", "head, payload = honest(outcome)")
    code = code.replace(', b""', ", payload") + "\nworker.to_wire = once\n"
    return answer(f"poison-{name}", tries, code, works=works, keeps=False)


ATTACKS = (
    _poisons("status", "the bytes of a right answer, said to have raised", "{'status': 'raised', 'error': 'x'}", False),
    _poisons("timeout", "the bytes of a right answer, said to have come too late", "{'status': 'timeout'}", False),
    _poisons("refused", "the bytes of a right answer, said to be none", "{'status': 'refused', 'error': 'x'}", False),
    _poisons(
        "amounts",
        "the bytes of a right answer, said to have printed, lasted and edited more than any",
        "{'printed': 2**52, 'seconds': 1e15, 'in_place': True}",
        True,
    ),
    *_heads(),
    *_reports(),
    _stops("not-written", "right on visible cases, “not written” on hidden ones", "raise NotImplementedError"),
    _stops("exit", "right on visible cases, ends the process on hidden ones", "os._exit(7)"),
    _stops("loop", "right on visible cases, never ends on hidden ones", "while True: pass"),
    *(
        _stops(
            f"says-{status}",
            f"claims “{status}” of hidden cases, in words and numbers that hold the case",
            f"worker.to_wire = claimed({status!r}, tell(gm))",
        )
        for status in ("stub", "missing", "died", "refused", "timeout")
    ),
    _stops("raises-text", "raises a built-in exception on hidden cases, with the case", "raise KeyError(tell(gm))"),
)
