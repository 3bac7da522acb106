"""Day 13, breaks: visible cases, what Dynamo does with them, and the judge."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from textwrap import dedent
from typing import Any

from passlab.given.day13.breaks import Statement, statements
from passlab.judge import Case, Finding, plural, shown
from passlab.judge.expect import why_not_selective
from passlab.judge.forms import why_not_a_list

#: Why a graph ends, as of `passlab.capture.REASONS` without its "other"; a test compares the two.
REASONS = ("branch", "number", "size", "builtin", "foreign", "disabled", "asked")
#: op → why a graph ends at it, whatever its operands.
_ALWAYS = {
    "item": "number",
    "nonzero": "size",
    "print": "builtin",
    "time.time": "foreign",
    "random.random": "foreign",
    "closed": "disabled",
    "graph_break": "asked",
}
#: op → why a graph ends at it, if its last operand is a tensor.
_OF_TENSORS = {"int": "number", "float": "number", "bool": "number", "[]": "size", "if": "branch"}
_NUMBERS: dict[str, Any] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    ">": operator.gt,
    "<": operator.lt,
    "int": int,
    "float": float,
    "bool": bool,
}
#: Operations that compute no tensor.
_NO_TENSOR = {*_ALWAYS, "int", "float", "bool", "dim", "numel"} - {"nonzero", "closed"}
ABOUT = ("valid", "did", "same", "spared")


def case(
    name: str, source: str, k: int = 2, taken: dict[int, bool] | None = None, about: tuple[str, ...] = ABOUT
) -> Case:
    """Return a case: a function of a tensor x and a number k, and the outcome of the conditions that Dynamo asks
    Python for, by line."""
    source = dedent(source).strip()
    return Case(name, lambda: (statements(source), {"x": "tensor", "k": k}, dict(taken or {})), about, expect=source)


def cases() -> list[Case]:
    return [
        case(
            "a print between",
            """
            def f(x, k):
                y = x.relu()
                print(y)
                z = y + 1
                return z
            """,
        ),
        case(
            "two conditions",
            """
            def f(x, k):
                y = x * k
                b = k > 3
                if b:
                    print(k)
                s = y.sum()
                c = s > 0
                if c:
                    y = y + 1
                return y
            """,
            taken={8: True},
        ),
        case(
            "numbers",
            """
            def f(x, k):
                s = x.sum()
                n = s.item()
                b = n > 0
                if b:
                    m = int(k)
                    y = x * m
                else:
                    print(n)
                    y = x + 1
                return y
            """,
            taken={5: True},
        ),
        case(
            "pieces without an operation",
            """
            def f(x, k):
                print(k)
                t = time.time()
                y = x.relu()
                graph_break()
                return y
            """,
        ),
        case(
            "a break in a loop",
            """
            def f(x, k):
                y = x.sigmoid()
                print(k)
                y = y + 1
                for i in range(3):
                    b = i > 1
                    if b:
                        print(i)
                    y = y * 2
                z = closed(y)
                return z
            """,
        ),
    ]


class _Python(Exception):
    """The rest of the function runs as Python."""


def expected(
    body: Sequence[Statement], arguments: dict[str, Any], branches: dict[int, bool]
) -> tuple[dict[int, str], int]:
    """Return line → reason of each break, and the number of graphs."""
    values = dict(arguments)
    reasons: dict[int, str] = {}
    graphs, operations = 0, 0

    def run(body: Sequence[Statement], looped: bool) -> None:
        nonlocal graphs, operations
        for s in body:
            operands = [values[o] if isinstance(o, str) else o for o in s.operands]
            reason = _ALWAYS.get(s.op) or (_OF_TENSORS.get(s.op) if operands and operands[-1] == "tensor" else None)
            if reason and looped:
                raise _Python
            if reason:
                reasons[s.line] = reason
                graphs, operations = graphs + (operations > 0), 0
            if s.op == "if":
                known = operands[0] not in ("tensor", None)
                run(s.body if (operands[0] if known else branches[s.line]) else s.orelse, looped)
            elif s.op == "for":
                count: Any = operands[0]
                for number in range(count):
                    values[s.result] = number
                    run(s.body, True)
            elif "tensor" in operands and s.op not in _NO_TENSOR:
                operations += s.op != "return" and not reason
                values[s.result] = "tensor"
            elif s.op in _NUMBERS and not {"tensor", None} & set(operands):
                values[s.result] = _NUMBERS[s.op](*operands)
            else:
                values[s.result] = None

    try:
        run(body, False)
    except _Python:
        operations = 0
    return reasons, graphs + (operations > 0)


def _invalid(lines: int, value: Any) -> str:
    form = "a pair, the list of breaks (line, reason) and the number of graphs"
    if fault := why_not_a_list(value, form, 2):
        return fault
    pairs, graphs = value
    if not isinstance(pairs, list | tuple | set | frozenset):
        return f"The breaks must be a list of (line, reason); they are {shown(pairs)}."
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            return f"A break is a pair (line, reason); one here is {shown(pair)}."
        line, reason = pair
        if type(line) is not int or not 1 <= line <= lines:
            return f"The line of a break is a number from 1 to {lines}; here it is {shown(line)}."
        if not isinstance(reason, str) or reason not in REASONS:
            return f"Line {line}: {shown(reason)} is not a reason. The reasons are {', '.join(REASONS)}."
    if type(graphs) is not int or not 0 <= graphs <= 10**6:
        return f"The number of graphs must be a whole number, 0 or more; it is {shown(graphs)}."
    return ""


def _lines(body: Sequence[Statement]) -> set[int]:
    """Return the lines of all statements."""
    return {line for s in body for line in ({s.line} | _lines(s.body) | _lines(s.orelse))}


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Did: Dynamo's breaks are found. Spared: no others. Same: the number of graphs."""
    source = case.expect.split("\n")
    broken = _invalid(len(source), value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    right, graphs = expected(*case.build())
    answer = [(line, reason) for line, reason in value[0]]
    message = ""
    for line, reason in right.items():
        if not message and (line, reason) not in answer:
            others = ", ".join(other for at, other in answer if at == line)
            message = f"Capture stops at line {line}, `{source[line - 1].strip()}`: {reason}. " + (
                f"You give the reason {others}." if others else "Your list lacks it."
            )
    free = _lines(case.build()[0]) - right.keys()
    wrong = len(free & {line for line, _ in answer})
    message = message or why_not_selective(wrong, len(free), "lines at which capture goes on")
    yield Finding("did", not message, message)
    message = ""
    for number, (line, reason) in enumerate(answer):
        where = f"line {line}, `{source[line - 1].strip()}`"
        if not message and line not in right:
            message = f"Your list has a break at {where} ({reason}). Dynamo has none there."
        elif not message and line in [at for at, _ in answer[:number]]:
            message = f"Your list has {where} twice."
    yield Finding("spared", not message, message)
    ends = f"{plural(len(right), 'break')} cut{'s' * (len(right) == 1)} the function" if right else "Nothing is cut"
    message = "" if value[1] == graphs else f"{ends}, and Dynamo makes {plural(graphs, 'graph')}; you say {value[1]}."
    yield Finding("same", not message, message)
