"""What a judge speaks of: a case, what came back on it, what was found out, an exercise, and the whole judgement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The five verdicts, in the order in which a pass has to earn them.
VERDICTS = ("valid", "same", "did", "spared", "cost")

MEANING = {
    "valid": "the result is a well-formed graph",
    "same": "it computes the same function",
    "did": "it did what it must",
    "spared": "it left alone what it must not touch",
    "cost": "it saved what it promised",
}


@dataclass(frozen=True)
class Case:
    """One question to an answer.

    `build()` makes the positional arguments anew at every call, always the same ones, so that the judge compares with
    a copy that no learner has touched. `about` names the verdicts this case decides (all of the exercise's when empty):
    one of them that the judge could not reach counts as not held, and one that is not named can be lost here but not
    earned (a graph with nothing to fold says nothing about folding). `expect` and `inputs` are for the exercise's
    judge: `inputs()` gives example inputs for a graph.
    """

    name: str
    build: Callable[[], tuple]
    about: tuple[str, ...] = ()
    inputs: Callable[[], tuple] | None = None
    expect: Any = None


@dataclass(frozen=True)
class Outcome:
    """What came back from an answer on one case. `status`: ok, stub, raised, timeout.

    `in_place`: the value is one of the arguments, edited. `error_kind`: the class of the exception, if there was one.
    """

    status: str
    value: Any = None
    error: str = ""
    printed: int = 0
    seconds: float = 0.0
    in_place: bool = False
    error_kind: str = ""


@dataclass(frozen=True)
class Finding:
    """One verdict on one case. `before`, `after`: graphs worth drawing; `mark`: names of the nodes to look at."""

    verdict: str
    ok: bool
    message: str = ""
    case: str = ""
    before: Any = None
    after: Any = None
    mark: tuple[str, ...] = ()


def call_answer(answer: Callable, case: Case) -> Any:
    """The usual way to put a case to an answer: call it with the case's arguments."""
    return answer(*case.build())


@dataclass(frozen=True)
class Exercise:
    """What learner and grader share about one exercise: everything but the hidden cases.

    `points` gives each verdict its weight; `judge(case, value)` yields findings about a value that came back;
    `call(answer, case)` puts the case to the answer (exercises whose answer is a class have their own). In a day's list
    these stand in the exercise's own module (see `passlab.exercises`). `notebook`: where it stands, the day's first
    one if not said. `flavour`: what that notebook needs besides torch, "torch", "relay" or "relax": a process can hold
    only one TVM.
    """

    id: str
    title: str
    points: dict[str, float]
    difficulty: int
    minutes: int
    hints: tuple[str, ...]
    cases: Callable[[], Sequence[Case]] | None = None
    judge: Callable[[Case, Any], Iterable[Finding]] | None = None
    call: Callable[[Callable, Case], Any] | None = None
    seconds: float = 10.0
    notebook: str = ""
    flavour: str = "torch"

    def __post_init__(self):
        unknown = set(self.points) - set(VERDICTS)
        if unknown or "did" not in self.points:
            raise ValueError(
                f"{self.id}: points must name 'did' and only {', '.join(VERDICTS)}; got {list(self.points)}"
            )

    @property
    def total(self) -> float:
        return sum(self.points.values())

    @property
    def day(self) -> str:
        return self.id.split(".")[0]


@dataclass
class Judgement:
    """All findings on one answer, and the points that follow from them."""

    exercise: Exercise
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    attempted: bool = True
    seconds: float = 0.0

    @property
    def verdicts(self) -> dict[str, bool]:
        """Verdict → does it hold on every case that is about it? (False where no case reached it.)"""
        held = {}
        for verdict in self.exercise.points:
            about = [f.ok for f in self.findings if f.verdict == verdict]
            held[verdict] = bool(about) and all(about)
        return held

    @property
    def points(self) -> float:
        """The weights of the verdicts that hold; nothing at all for an answer that did its work on no case."""
        if not any(f.ok for f in self.findings if f.verdict == "did"):
            return 0.0
        return float(sum(self.exercise.points[v] for v, ok in self.verdicts.items() if ok))

    @property
    def total(self) -> float:
        return self.exercise.total

    @property
    def ok(self) -> bool:
        return math.isclose(self.points, self.total)

    @property
    def failure(self) -> Finding | None:
        """The finding to show first: a failed one with something to say, in the order of the verdicts."""
        failed = [f for f in self.findings if not f.ok]
        return min(failed, key=lambda f: (not f.message, VERDICTS.index(f.verdict)), default=None)

    def to_json(self) -> dict:
        return {
            "exercise": self.exercise.id,
            "points": self.points,
            "total": self.total,
            "attempted": self.attempted,
            "verdicts": self.verdicts,
            "message": self.failure.message if self.failure else "",
            "seconds": round(self.seconds, 3),
        }
