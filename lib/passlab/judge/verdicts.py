"""The vocabulary of judging: a case, its outcome, a finding, an exercise, and the whole judgement.

A case can stand as a decorator above the program that it is about:

    @case("written through a view", graph(..., (2, 3)), spared=[least("mul", 2, TIME)])
    def views(m, x):
        …

`...` stands for the function below: `graph(..., (2, 3))` is a graph that lacks its program, and a case that lacks
something is a decorator. What it makes of the function, the `Case`, takes the function's name; `cases_in` finds it.
Cases that are drawn come from a function of a random generator, at its place among the others:

    @drawn
    def chains(rng):
        length = rng.randrange(4, 9)

        @case(f"a chain of {length}", graph(..., (2, 3)), did=[most("neg", length % 2, LAW)])
        def chain(m, x):
            …

        return [chain]
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

#: The keys of the five verdicts, in the order in which a pass has to earn them.
VERDICTS = ("valid", "same", "did", "spared", "cost")

#: What readers see in place of the keys.
WORDS = {"valid": "valid", "same": "equivalent", "did": "complete", "spared": "precise", "cost": "efficient"}

MEANING = {
    "valid": "the result has the required form",
    "same": "it computes the required function",
    "did": "it does everything that is required",
    "spared": "it changes and claims nothing that it must not",
    "cost": "it is as small and as fast as required",
}


@dataclass(frozen=True)
class Case:
    """One test case of an exercise.

    `build()` makes new, equal positional arguments at every call, so that the judge compares with a copy that no
    learner has touched. `about` names the verdicts this case decides (empty: all of the exercise's). One of these that
    the judge does not reach is lost; any other can be lost here but not earned (a graph with nothing to fold says
    nothing about folding). `expect` and `inputs` are for the exercise's judge: `inputs()` returns example inputs.
    `core`: a plain case, see `Core`.
    """

    name: str
    build: Callable[[], tuple]
    about: tuple[str, ...] = ()
    inputs: Callable[[], tuple] | None = None
    expect: Any = None
    core: bool = False

    def asks(self, verdict: str) -> bool:
        """Return whether this case decides a verdict."""
        return not self.about or verdict in self.about


def core(case: Case) -> Case:
    """Return a case as a plain one of its exercise (see `Core`); stands as a decorator above `@case`."""
    return replace(case, core=True)


@dataclass(frozen=True)
class Outcome:
    """The result of an answer on one case. `status`: ok, stub, raised, timeout; unbuilt: the case has no arguments.

    `in_place`: the value is one of the arguments, edited.
    """

    status: str
    value: Any = None
    error: str = ""
    printed: int = 0
    seconds: float = 0.0
    in_place: bool = False


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
    """Return the answer's result on the case's arguments: the default `Exercise.call`."""
    return answer(*case.build())


@dataclass(frozen=True)
class Core:
    """The core of a stretch exercise: the same function on its plain cases, for points that are not extra credit.

    It becomes a question of its own: of "day03.simplify" it is "day03.simplify-core", in the same section of the
    notebook, with the exercise's judge and hints. Its cases are those marked `core`. `points`, `difficulty` and
    `minutes` are as in `Exercise`.
    """

    points: dict[str, float]
    difficulty: int
    minutes: int


@dataclass(frozen=True)
class Exercise:
    """Everything about one exercise but its hidden cases: shared by learner and grader.

    `points` gives each verdict its weight; `judge(case, value)` yields findings on a returned value;
    `call(answer, case)` runs the answer on a case (an exercise whose answer is a class has its own). In a day's list
    these come from the exercise's own module (see `passlab.exercises`). `seconds`: the CPU time an answer may take for
    one case. `notebook`: default, the day's first.
    `flavour`: the compiler that the notebook needs: "torch", or one of `passlab.graph.registry.COMPILERS`.
    `stretch`: a harder question beyond the day's core; its points are extra credit. `core`: its own core, if any.
    `closed`: dotted names of the functions that do the exercise, and cannot be called while the answer runs.
    `section`: the heading of the section of the day's lesson that it belongs to, or "".
    `meaning`: verdict → what it says here, where `MEANING` would be wrong or too vague. `helps`: verdict → the number
    of the hint to open if it is lost. `smaller`: the text of a smaller version of the question,
    for learners who are stuck, or ""; its cases are those of `smaller_cases()`.
    """

    id: str
    title: str
    points: dict[str, float]
    difficulty: int
    minutes: int
    hints: tuple[str, ...]
    # None only until `passlab.exercises.of_day` takes them from the exercise's own module
    cases: Callable[[], Sequence[Case]] = None  # type: ignore[assignment]
    judge: Callable[[Case, Any], Iterable[Finding]] = None  # type: ignore[assignment]
    call: Callable[[Callable, Case], Any] = call_answer
    seconds: float = 5.0
    notebook: str = ""
    flavour: str = "torch"
    stretch: bool = False
    core: Core | None = None
    closed: tuple[str, ...] = ()
    section: str = ""
    meaning: Mapping[str, str] = field(default_factory=dict)
    helps: Mapping[str, int] = field(default_factory=dict)
    smaller: str = ""
    smaller_cases: Callable[[], Sequence[Case]] = None  # type: ignore[assignment]  # see `cases`

    def __post_init__(self):
        unknown = set(self.points) - set(VERDICTS)
        if unknown or "did" not in self.points:
            raise ValueError(
                f"{self.id}: points must name 'did' and only {', '.join(VERDICTS)}; got {list(self.points)}"
            )
        if self.core and not self.stretch:
            raise ValueError(f"{self.id}: only a stretch exercise has a core of its own; all of this one is core.")
        if unknown := (set(self.meaning) | set(self.helps)) - set(self.points):
            raise ValueError(f"{self.id}: meaning and helps name {', '.join(sorted(unknown))}, which gives no points.")
        if wrong := {n for n in self.helps.values() if not 1 <= n <= len(self.hints)}:
            raise ValueError(f"{self.id}: helps names hint {min(wrong)}; it has {len(self.hints)}.")

    @property
    def total(self) -> float:
        return sum(self.points.values())

    @property
    def day(self) -> str:
        return self.id.split(".")[0]


@dataclass(frozen=True)
class Written:
    """A question that learners answer in prose and a person grades, by a rubric that only graders see.

    `notebook`: default, the day's first. A day lists its own in `WRITTEN`; they belong to its core.
    """

    id: str
    title: str
    points: float
    difficulty: int
    minutes: int
    notebook: str = ""

    @property
    def day(self) -> str:
        return self.id.split(".")[0]


@dataclass
class Judgement:
    """All findings on one answer, and the resulting points. `unbuilt`: cases left out, as their `build` raises.

    `visible`: how many findings on visible cases stand before those on hidden ones; 0 where all count alike.
    """

    exercise: Exercise
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    attempted: bool = True
    seconds: float = 0.0
    unbuilt: list[str] = field(default_factory=list)
    visible: int = 0

    @property
    def verdicts(self) -> dict[str, bool]:
        """Return verdict → whether it holds on every case about it (False where no case reached it)."""
        by_verdict = {}
        for verdict in self.exercise.points:
            about = [f.ok for f in self.findings if f.verdict == verdict]
            by_verdict[verdict] = bool(about) and all(about)
        return by_verdict

    @property
    def points(self) -> float:
        """Return the weights of the verdicts that hold; 0 for an answer that loses `did` on every case.

        And 0 for one that loses it on every hidden case: it may know the visible ones by heart, and do nothing else.
        """
        hidden = [f.ok for f in self.findings[self.visible :] if f.verdict == "did"]
        if not any(hidden or (f.ok for f in self.findings if f.verdict == "did")):
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
        """Return the finding to show first: the first failed one with a message, in the order of the verdicts."""
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


class Unfinished:
    """A call that lacks a function: called with the function, it returns what the whole call returns."""

    def __init__(self, finish: Callable[[Callable], Any]):
        self._finish = finish

    def __call__(self, function: Callable) -> Any:
        return self._finish(function)


def as_decorator(make: Callable) -> Callable:
    """Let a call of `make` decorate a function, for which `...` stands among the arguments, or in one of them."""

    @wraps(make)
    def call(*args: Any, **options: Any) -> Any:
        if not any(value is ... or isinstance(value, Unfinished) for value in (*args, *options.values())):
            return make(*args, **options)

        def finish(function: Callable) -> Any:
            def filled(value: Any) -> Any:
                return function if value is ... else value(function) if isinstance(value, Unfinished) else value

            return make(*map(filled, args), **{name: filled(value) for name, value in options.items()})

        return Unfinished(finish)

    return call


@dataclass(frozen=True)
class Drawn:
    """A function that draws cases, among the cases of a module."""

    draw: Callable[[random.Random], Iterable[Case]]


def drawn(draw: Callable[[random.Random], Iterable[Case]]) -> Drawn:
    """Mark a function of a random generator that returns cases: `cases_in` puts them where the function stands."""
    return Drawn(draw)


def cases_in(module: str, seed: int | None = None) -> list[Case]:
    """Return the cases that a module defines outside its functions, in the order in which they are written.

    module: its name, which is `__name__` in the module itself. seed: of the one generator from which all functions
    marked `drawn` take their numbers, one after the other. Raises ValueError where they would need one and it is None.
    """
    rng = random.Random(seed)
    cases: list[Case] = []
    for value in vars(sys.modules[module]).values():
        if isinstance(value, Drawn):
            if seed is None:
                raise ValueError(f"{module} draws cases, and no seed is given. Write visible cases one by one.")
            cases += value.draw(rng)
        elif isinstance(value, Case):
            cases.append(value)
    return cases
