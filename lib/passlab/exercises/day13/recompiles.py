"""Day 13, recompiles: visible cases, the versions that Dynamo makes, and the judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from passlab.judge import Case, Finding, shown
from passlab.judge.expect import why_not_selective
from passlab.judge.forms import why_not_a_list

#: How many versions of a function Dynamo keeps; a test compares it with torch's own.
LIMIT = 8
#: dtype, shape, whether it needs a gradient
Tensor = tuple[str, tuple[int, ...], bool]
Call = tuple[dict[str, Any], bool]


def tensor(*shape: int, dtype: str = "float32", gradient: bool = False) -> Tensor:
    return dtype, shape, gradient


def call(gradients: bool = True, **arguments: Any) -> Call:
    """Return a call, and whether gradients are switched on."""
    return arguments, gradients


def sizes(*shapes: Sequence[int], **others: Any) -> list[Call]:
    """Return calls with a tensor x of one shape after the other."""
    return [call(x=tensor(*shape), **others) for shape in shapes]


def case(
    name: str, reads: Sequence[str], calls: list[Call], about: tuple[str, ...] = ("valid", "did", "spared")
) -> Case:
    """Return a case: the arguments that the function reads, and its calls.

    That the first call compiles needs no thought: where no other call does, the case is not about `did`.
    """
    if not any(count for count, _ in expected(reads, calls)[1:]):
        about = tuple(verdict for verdict in about if verdict != "did")
    return Case(name, lambda: (list(reads), list(calls)), about)


def cases() -> list[Case]:
    return [
        case("one size varies", ["x"], sizes((3, 4), (5, 4), (6, 4), (6, 7), (2, 9))),
        case("a size of one", ["x"], sizes((3, 4), (1, 4), (5, 4), (1, 4), (6, 4))),
        case(
            "types",
            ["x"],
            [call(x=tensor(3)), call(x=tensor(3, dtype="float64")), *sizes((3,)), call(x=tensor(3, gradient=True))],
        ),
        case("a number", ["x", "k"], [call(x=tensor(3), k=k) for k in (2, 2, 5, 1, 7, 7.0)]),
        case("an argument that is not read", ["x"], [call(x=tensor(3), k=k) for k in (2, 3, 4)]),
        case("more dimensions", ["x"], sizes((3,), (3, 4), (5, 6), (7,), (8,))),
        case(
            "flags",
            ["x", "flag"],
            [
                call(x=tensor(3), flag=True),
                call(x=tensor(3), flag=False),
                call(False, x=tensor(3), flag=True),
                call(x=tensor(3), flag=True),
            ],
        ),
    ]


@dataclass
class Version:
    """Code that was compiled once. `fixed`: what has to be equal, by its name; `symbols`: sizes of at least 2."""

    gradients: bool
    fixed: dict[Any, Any] = field(default_factory=dict)
    symbols: set[Any] = field(default_factory=set)

    def serves(self, facts: dict[Any, Any], gradients: bool) -> bool:
        """Return whether the guards hold for a call with these facts."""
        return self.why_not(facts, gradients) == ""

    def why_not(self, facts: dict[Any, Any], gradients: bool) -> str:
        """Return the first guard that does not hold, or ""."""
        if gradients != self.gradients:
            return f"gradients were switched {'on' if self.gradients else 'off'}"
        for name, fact in self.fixed.items():
            if facts.get(name) != fact:
                return f"{' '.join(map(str, name))} was {fact}"
        low = [name for name in self.symbols if facts[name] < 2]
        return f"{' '.join(map(str, low[0]))} is a symbol, 2 or more" if low else ""


def facts_of(reads: Sequence[str], arguments: dict[str, Any]) -> dict[Any, Any]:
    """Return what the guards of a call are about: (argument, what) → its value."""
    facts: dict[Any, Any] = {}
    for name in reads:
        value = arguments[name]
        if isinstance(value, tuple):
            facts[name, "dtype"], facts[name, "gradient"] = value[0], value[2]
            facts[name, "dimensions"] = len(value[1])
            facts |= {(name, "size", number): size for number, size in enumerate(value[1])}
        else:
            facts[name, "type"], facts[name, "value"] = type(value).__name__, value
    return facts


def expected(reads: Sequence[str], calls: Sequence[Call]) -> list[tuple[int, str]]:
    """Return for each call the number of graphs that it compiles, and why."""
    versions: list[Version] = []
    history: dict[Any, set] = {}
    answer = []
    for arguments, gradients in calls:
        facts = facts_of(reads, arguments)
        server = next((n for n, version in enumerate(versions) if version.serves(facts, gradients)), None)
        if server is not None:
            answer.append((0, f"version {server} serves it"))
            continue
        if len(versions) == LIMIT:
            answer.append((0, f"there are {LIMIT} versions already, so it runs as Python"))
            continue
        last = versions[-1].why_not(facts, gradients) if versions else "nothing is compiled yet"
        answer.append((1, f"no version serves it (the newest: {last})" if versions else last))
        version = Version(gradients)
        for name, fact in facts.items():
            history.setdefault(name, set()).add(fact)
        for name, fact in facts.items():
            varies = len(history[name]) > 1
            if name[1] == "size" and (varies or len(history[name[0], "dimensions"]) > 1) and fact > 1:
                version.symbols.add(name)
            elif not (name[1] == "value" and varies and type(fact) in (int, float)):
                version.fixed[name] = fact
        versions.append(version)
    return answer


def _title(number: int, one: Call) -> str:
    arguments, gradients = one
    text = ", ".join(f"{name} = {shown(value)}" for name, value in arguments.items())
    return f"Call {number} ({text}{'' if gradients else '; no gradients'})"


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Did: calls that compile are found. Spared: no others."""
    reads, calls = case.build()
    broken = why_not_a_list(value, f"a list with a number for each of the {len(calls)} calls", len(calls))
    for number, count in enumerate(value if not broken else ()):
        if type(count) is not int or not 0 <= count <= 10**6:
            broken = (
                broken or f"The entry of call {number} must be a number of graphs, 0 or more; it is {shown(count)}."
            )
    yield Finding("valid", not broken, broken)
    if broken:
        return
    messages = {"did": "", "spared": ""}
    truth = expected(reads, calls)
    for number, (claim, (count, reason)) in enumerate(zip(value, truth, strict=True)):
        verdict = "did" if claim < count else "spared"
        if claim != count and not messages[verdict]:
            does = "compiles a graph" if count else "compiles nothing"
            messages[verdict] = f"{_title(number, calls[number])} {does}: {reason}. You say {claim}."
    wrong = sum(claim > count for claim, (count, _) in zip(value, truth, strict=True))
    served = sum(count == 0 for count, _ in truth)
    messages["did"] = messages["did"] or why_not_selective(wrong, served, "calls that compile nothing")
    for verdict, text in messages.items():
        yield Finding(verdict, not text, text)
