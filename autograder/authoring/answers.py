"""The grader's part of an exercise: its hidden cases, and answers with known verdicts.

One module per exercise, `autograder/answers/day03/cse.py` for "day03.cse" (a hyphen becomes an underscore):

    @case("written through a view", graph(..., (2, 3)), spared=[…])
    def views(m, x): ...                            # a hidden case above its program (see `passlab.judge.verdicts`)

    @drawn
    def chains(rng): return [case(…), …]            # cases drawn from a random generator

    def hidden(seed) -> list[Case]: ...             # or all of them, where a function makes them

    @wrong("spared", "merges dropout nodes: every call draws new numbers")
    def merges_random(gm): ...                      # a plausible wrong answer, with its misconception

    any_dtype = edited("same", "merges casts to different types")(("op, dtype", "op"))
                                                    # the same, told as an edit of the reference

    @right("sorts the keys instead of numbering values")
    def by_sorting(gm): ...                         # a right answer unlike the reference

Of an exercise that has a core (see `passlab.judge.Core`), the core's hidden cases are those marked `@core`, and its
answers are the right ones, those marked `@plain`, and the wrong ones marked `core=True`, which lose in the core, too:

    @plain("rewrites x * 1 alone")
    def one_law(gm): ...                            # has all points of the core, and loses some of the extra credit
"""

# `find` gives every exercise a call, which its type leaves open.
# mypy: disable-error-code="misc"

from __future__ import annotations

import hashlib
import importlib
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from autograder.authoring.source import COURSE, answer_of, blank, find
from passlab import exercises
from passlab.equivalence.seeds import drawn_from
from passlab.judge import VERDICTS, Case, Exercise, Judgement, Outcome, cases_in, judge, judge_outcome
from passlab.notebook.cells import questions
from passlab.notebook.ui import report, show

#: A seed that cannot be guessed, by trying all of them, from what an answer sees of hidden cases.
SEED_BITS = 128
#: How many cases are drawn to find one in which there is something to do.
DRAWS = 100


@dataclass(frozen=True)
class Mark:
    """The purpose of an answer. `verdict`: the one that a wrong answer must lose. `core`: in the core, too."""

    kind: str
    verdict: str | None
    note: str
    core: bool = False

    def __post_init__(self) -> None:
        if not self.note.strip():
            raise ValueError("An answer needs one line: its misconception, or how it differs from the reference.")


def _wrong(verdict: str, note: str, core: bool) -> Mark:
    if verdict not in VERDICTS:
        raise ValueError(f"No verdict {verdict!r}; the verdicts are {', '.join(VERDICTS)}.")
    return Mark("wrong", verdict, note, core)


def _mark(mark: Mark) -> Callable[[Any], Any]:
    def decorate(answer: Any) -> Any:
        answer.mark = mark
        return answer

    return decorate


def wrong(verdict: str, note: str, core: bool = False) -> Callable[[Any], Any]:
    """Mark a wrong answer: the verdict it must lose (`core`: in the core, too), and its misconception in one line."""
    return _mark(_wrong(verdict, note, core))


def right(note: str) -> Callable[[Any], Any]:
    """Mark a right answer, and say in one line how it differs from the reference."""
    return _mark(Mark("right", None, note))


def plain(note: str) -> Callable[[Any], Any]:
    """Mark an answer that has all points of its exercise's core but not all of the extra credit, and say why."""
    return _mark(Mark("plain", None, note))


@dataclass(frozen=True)
class Edit:
    """A wrong answer that is the reference with some of its syntax exchanged: (old, new) pairs, one after the other."""

    mark: Mark
    changes: tuple[tuple[str, str], ...]

    def build(self, exercise_id: str, name: str) -> Any:
        """Return the answer under its name. Raises ValueError if an old fragment does not occur just once."""
        try:
            answer = answer_of(exercise_id, changes=self.changes)
        except ValueError as error:
            raise ValueError(f"{module_name(exercise_id)}.{name}: {error}") from None
        answer.__name__ = name
        return _mark(self.mark)(answer)


def edited(verdict: str, note: str, core: bool = False) -> Callable[..., Edit]:
    """Mark a wrong answer that is made of the reference, as `wrong` does. It is called with what is exchanged:

        edited("same", "merges casts to different types")(("op, dtype", "op"))

    (old, new) fragments of syntax, as in `autograder.authoring.edits`; each old one occurs once in the answer cell in
    `solutions/`.
    """
    mark = _wrong(verdict, note, core)

    def edit(*changes: tuple[str, str]) -> Edit:
        return Edit(mark, changes)

    return edit


def module_name(exercise_id: str) -> str:
    """Return the module of an exercise's answers: "day03.channels-last" → "autograder.answers.day03.channels_last"."""
    return f"autograder.answers.{exercises.whole(exercise_id).replace('-', '_')}"


def _module(exercise_id: str) -> ModuleType | None:
    name = module_name(exercise_id)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            return None
        raise


def load(exercise_id: str) -> list[Any]:
    """Return the marked answers of an exercise as written, each with its `Mark` as `.mark`; [] where it has none.

    Those of a core do not include the wrong answers that only the whole exercise knows.
    """
    module = _module(exercise_id)
    if module is None:
        return []
    is_core = exercises.is_core(exercise_id)
    marked = []
    for name, answer in vars(module).items():
        mark = getattr(answer, "mark", None)
        if not isinstance(mark, Mark) or (is_core and mark.kind == "wrong" and not mark.core):
            continue
        if isinstance(answer, Edit):
            marked.append(answer.build(exercise_id, name))
        elif answer.__module__ == module.__name__:
            marked.append(answer)
    return marked


def kind(exercise_id: str, answer: Any) -> str:
    """Return the kind of a marked answer in this exercise: a plain one is right in the core."""
    return "right" if exercises.is_core(exercise_id) and answer.mark.kind == "plain" else answer.mark.kind


def hidden_cases(exercise_id: str, seed: int) -> list[Case]:
    """Return the hidden cases of an exercise, drawn from `seed`. Raises KeyError for an exercise that has none."""
    exercise = exercises.find(exercise_id)
    home = _module(exercise.id)
    cases = _cases_of(home, seed) if home else ()
    if exercises.is_core(exercise.id):
        cases = tuple(case for case in cases if case.core)
    if not cases:
        path = module_name(exercise.id).replace(".", "/")
        raise KeyError(f"{exercise.id} has no hidden cases. Write them in {path}.py, above their programs.")
    return list(cases)


@lru_cache(maxsize=1)
def _cases_of(home: ModuleType, seed: int) -> tuple[Case, ...]:
    """Return the cases of a module. A core and its whole exercise, asked for one after the other, share them."""
    return tuple(home.hidden(seed) if hasattr(home, "hidden") else cases_in(home.__name__, seed))


def trial_seed(seed: int) -> int:
    """Return the seed of the inputs on which a run compares programs, of the run's own seed.

    They are the same for all learners, and cannot be told without the run's seed.
    """
    return int.from_bytes(hashlib.sha256(f"trials {seed}".encode()).digest()[:6])


def trials_of(seed: int) -> AbstractContextManager[None]:
    """Compare programs inside on the inputs on which a run with this seed does."""
    return drawn_from(trial_seed(seed))


def unchanged(first: Any, *_: Any) -> Any:
    """Return the first argument as it is: an answer that does nothing, and so must earn nothing."""
    return first


def something_to_do(exercise_id: str, draw: Callable[[], Case]) -> Case:
    """Return the first drawn case in which there is something to do: its program, left as it is, loses `did`.

    If `DRAWS` cases have none, the last one is returned, and is not about `did`: no answer can earn it there.
    """
    exercise = exercises.find(exercise_id)
    for _ in range(DRAWS):
        case = draw()
        if not _done_already(exercise, case):
            return case
    return replace(case, about=tuple(v for v in case.about or exercise.points if v != "did"))


def _done_already(exercise: Exercise, case: Case) -> bool:
    """Return whether a case's program, left as it is, keeps `did`. The program is not run."""
    findings = judge_outcome(exercise, replace(case, about=("did",)), Outcome("ok", exercise.call(unchanged, case)))
    return all(finding.ok for finding in findings)


def equivalent_mutants(exercise_id: str) -> dict[tuple[str, str], str]:
    """Return (old, new) → why this change of the reference, wherever old occurs, makes no difference (`EQUIVALENT`)."""
    return getattr(_module(exercises.find(exercise_id).id), "EQUIVALENT", {})


def reference(exercise_id: str) -> Any:
    """Return the course's own answer, taken from the answer cell in `solutions/`."""
    return answer_of(exercise_id)


def stub(exercise_id: str) -> Any:
    """Return the answer as the learner first meets it: `raise NotImplementedError()`."""
    return answer_of(exercise_id, blank(find(exercise_id).answer.text))


def missing(exercise_id: str) -> list[str]:
    """Return one sentence for each of an exercise's three files that is missing or does not mention it."""
    exercise = exercises.find(exercise_id)
    problems = []
    for module, noun in (
        (exercises.module_name(exercise.id), "the visible cases and the judge"),
        (module_name(exercise.id), "the hidden cases and the answers"),
    ):
        path = _path(module)
        if not path.is_file():
            problems.append(f"{path.relative_to(COURSE)} is missing: {noun} of {exercise.id} belong there.")
    path = COURSE / "solutions" / exercise.day / f"{exercise.notebook}.py"
    place = path.relative_to(COURSE)
    if not path.is_file():
        problems.append(f"{place} is missing: text and answer of {exercise.id} belong there.")
    elif exercise.id not in questions(path.read_text(encoding="utf-8")):
        problems.append(f"{place} has no answer with a cell check({exercise.id!r}, …) below it.")
    return problems


def strays() -> list[str]:
    """Return one sentence for each file, and each question, that belongs to no exercise."""
    ids = {exercise.id for day in exercises.days() for exercise in exercises.of_day(day)}
    own = {_path(name(i)) for i in ids for name in (exercises.module_name, module_name)}
    problems = []
    for path in sorted([*COURSE.glob("lib/passlab/exercises/day*/*.py"), *COURSE.glob("autograder/answers/day*/*.py")]):
        if path not in own and not path.stem.startswith("_"):
            problems.append(f"{path.relative_to(COURSE)} belongs to no exercise of {path.parent.name}.")
    for path in sorted(COURSE.glob("solutions/day*/*.py")):
        for name in questions(path.read_text(encoding="utf-8")):
            if name not in ids or exercises.find(name).notebook != path.stem:
                problems.append(f"{path.relative_to(COURSE)} checks {name!r}, which EXERCISES does not place there.")
    return problems


def _path(module: str) -> Path:
    """Return the file of a module of the course."""
    return COURSE / ("lib" if module.startswith("passlab.") else "") / f"{module.replace('.', '/')}.py"


@cache
def run_seed() -> int:
    """Return the seed of this run: PASSLAB_SEED, or a fresh one that stays the same as long as the process lives."""
    return int(os.environ.get("PASSLAB_SEED") or secrets.randbits(SEED_BITS))


def verdict(exercise_id: str, answer: Callable, seed: int) -> Judgement:
    """Judge an answer on the visible and on the hidden cases."""
    exercise = exercises.find(exercise_id)
    with trials_of(seed):
        visible = exercise.cases()
        return judge(exercise, answer, [*visible, *hidden_cases(exercise_id, seed)], len(visible))


def grade(exercise_id: str, answer: Callable) -> float:
    """Judge an answer on all cases, show the verdicts, and return the points: for notebooks that are run by hand.

    >>> grade("day03.cse", cse)
    """
    result = verdict(exercise_id, answer, run_seed())
    show(report(result))
    return min(round(result.points, 4), result.total)
