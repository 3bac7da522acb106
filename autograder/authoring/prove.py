"""Prove the checks: run every exercise's reference, stub, wrong and right answers on visible and hidden cases.

The proof holds when reference and right answers have all points, the stub has none, nor has an answer that returns its
first argument unchanged, and every wrong answer loses the verdict that its misconception breaks. No two of them
lose the same verdicts on the same cases; of two that fail every case, the messages differ. A plain answer has all
points of its exercise's core (see `passlab.judge.Core`), and not all of the extra credit.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

from autograder.authoring import answers, source
from passlab import exercises
from passlab.building import cache
from passlab.judge import Case, Exercise, Finding, Judgement, judge, plural

if TYPE_CHECKING:  # `make gpu` proves without rich
    from rich.console import Console
    from rich.table import Table

#: How many answers an exercise needs, and how many its core.
WRONG, RIGHT = 6, 2
WRONG_IN_CORE, PLAIN = 2, 1


@dataclass
class Row:
    """The result of one answer. `lost`: verdicts lost on all cases; `should`: the one that a wrong answer must lose."""

    name: str
    kind: str
    visible: float
    points: float
    lost: list[str]
    should: str | None
    note: str
    message: str
    seconds: float
    problem: str = ""


@dataclass
class Proof:
    """The kill table of one exercise, and its problems."""

    exercise: str
    total: float
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds_visible: float = 0.0
    seconds_hidden: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.problems and not any(row.problem for row in self.rows)


def _problem(kind: str, should: str | None, visible: Judgement, full: Judgement) -> str:
    missing = [verdict for verdict, ok in full.verdicts.items() if not ok]
    if kind == "plain" and full.ok:
        return "has all points, those for extra credit, too: then it is not plain, but right"
    if kind in ("reference", "right") and not (full.ok and visible.ok):
        return "must have all points"
    if kind == "stub" and (full.points or full.attempted):
        return "must have no points, as not attempted"
    if kind == "unchanged" and (full.points or visible.points):
        cases = {f.case: None for f in full.findings if f.verdict == "did" and f.ok}
        return f"must have no points: it does nothing, and keeps 'did' on {', '.join(map(repr, cases))}"
    if kind == "wrong" and full.ok:
        return "survives: it has all points"
    if kind == "wrong" and should not in missing:
        return f"must lose {should!r}, but it loses {', '.join(missing)}"
    return ""


class _Result(NamedTuple):
    """The row of an answer, and its judgements on the visible and on the hidden cases, which may have been skipped."""

    row: Row
    answer: object
    seen: Judgement
    unseen: Judgement
    skipped: bool


def _put(
    exercise: Exercise, hidden: Sequence[Case], kind: str, answer: object, judge: Callable[..., Judgement], brief: bool
) -> _Result:
    """Put one answer through the visible and the hidden cases.

    brief: a wrong answer that already falls short as it should skips the hidden cases.
    """
    entry = getattr(answer, "mark", None)
    should, note = (entry.verdict, entry.note) if entry else (None, "")
    visible = judge(exercise, answer)
    short = kind == "wrong" and brief and should is not None and visible.verdicts.get(should) is False
    unseen = judge(exercise, answer, [] if short else hidden)
    full = Judgement(
        exercise,
        visible.findings + unseen.findings,
        attempted=visible.attempted and unseen.attempted,
        visible=len(visible.findings),
    )
    row = Row(
        name=getattr(answer, "__name__", kind) if entry else kind,
        kind=kind,
        visible=visible.points,
        points=full.points,
        lost=[verdict for verdict, ok in full.verdicts.items() if not ok],
        should=should,
        note=note,
        message=full.failure.message if full.failure else "",
        seconds=round(visible.seconds + unseen.seconds, 3),
        problem=_problem(kind, should, visible, full)
        or ", ".join(f"the case {name!r} cannot be built" for name in visible.unbuilt + unseen.unbuilt),
    )
    return _Result(row, answer, visible, unseen, short)


def _name_twins(
    exercise: Exercise, hidden: Sequence[Case], wrong: list[_Result], judge: Callable[..., Judgement]
) -> None:
    """Write it into the row of a wrong answer that it behaves as one before it."""
    alike: dict[frozenset, list[_Result]] = {}
    for result in wrong:
        alike.setdefault(frozenset((f.case, f.verdict) for f in result.seen.findings if not f.ok), []).append(result)
    for group in (group for group in alike.values() if len(group) > 1):
        first: dict[frozenset, str] = {}
        for row, answer, visible, unseen, skipped in group:
            judgement = judge(exercise, answer, hidden) if skipped else unseen
            twin = first.setdefault(_behaviour(visible.findings + judgement.findings), row.name)
            if twin != row.name and not row.problem:
                row.problem = (
                    f"behaves as {twin}: it loses the same verdicts on the same cases. "
                    "Keep one of them, or add a case that tells them apart"
                )


def _in_run(seed: int, judge: Callable[..., Judgement]) -> Callable[..., Judgement]:
    """Return a judge that compares programs on the inputs on which a run with this seed does."""

    def judge_in_run(*arguments: Any) -> Judgement:
        with answers.trials_of(seed):
            return judge(*arguments)

    return judge_in_run


def _behaviour(findings: list[Finding]) -> frozenset[tuple[str, str, str]]:
    """Return each case with each verdict that is lost there and, for an answer that fails every case, what is said.

    The search for misconceptions, too, distinguishes such answers by what they return.
    """
    failures = [finding for finding in findings if not finding.ok]
    fails_all = {finding.case for finding in failures} == {finding.case for finding in findings}
    return frozenset((finding.case, finding.verdict, finding.message * fails_all) for finding in failures)


def _answers(exercise_id: str) -> Iterable[tuple[str, object]]:
    yield "stub", answers.stub(exercise_id)  # first, so that the imports do not count towards the reference's times
    yield "reference", answers.reference(exercise_id)
    yield "unchanged", answers.unchanged
    for answer in answers.load(exercise_id):
        yield answers.kind(exercise_id, answer), answer


def _least_answers(exercise: Exercise) -> dict[str, int]:
    """Return how many answers of each kind an exercise needs."""
    if exercises.is_core(exercise.id):
        return {"wrong": WRONG_IN_CORE, "right": RIGHT}
    return {"wrong": WRONG, "right": RIGHT} | ({"plain": PLAIN} if exercise.core else {})


def prove(
    exercise_id: str,
    seed: int = 0,
    judge: Callable[..., Judgement] = judge,
    seeds: int = 1,
    brief: bool | None = None,
) -> Proof:
    """Return the kill table of one exercise. Never raises: an exception becomes a problem of the proof.

    `judge`: a replacement for `passlab.judge.judge`, with the same arguments. `seeds`: on how many seeds, from `seed`
    on, the reference and the right answers must have all points, and an answer that does nothing none. `brief`: see
    `_put`; by default for exercises whose programs have to be built, which takes seconds.
    """
    exercise = exercises.find(exercise_id)
    brief = exercise.flavour != "torch" if brief is None else brief
    proof = Proof(exercise.id, exercise.total, problems=answers.missing(exercise.id))
    if proof.problems:
        return proof
    try:
        entries = list(_answers(exercise.id))
        cases = answers.hidden_cases(exercise.id, seed)
    except Exception as error:
        proof.problems.append(f"its answers and hidden cases cannot be loaded: {type(error).__name__}: {error}")
        return proof
    for kind, least in _least_answers(exercise).items():
        number = sum(k == kind for k, _ in entries)
        if number < least:
            proof.problems.append(f"it has {plural(number, f'{kind} answer')}; {least} are needed")
    wrong: list[_Result] = []
    judge_in_run = _in_run(seed, judge)
    for kind, answer in entries:
        name = getattr(answer, "__name__", kind)
        try:
            result = _put(exercise, cases, kind, answer, judge_in_run, brief)
        except Exception as error:
            proof.problems.append(f"judging {name} raised {type(error).__name__}: {error}")
            continue
        proof.rows.append(result.row)
        wrong += [result] if kind == "wrong" else []
        if kind == "reference":
            proof.seconds_visible, proof.seconds_hidden = round(result.seen.seconds, 3), round(result.unseen.seconds, 3)
    try:
        _name_twins(exercise, cases, wrong, judge_in_run)
    except Exception as error:
        proof.problems.append(f"telling its wrong answers apart raised {type(error).__name__}: {error}")
    for later in range(seed + 1, seed + seeds):
        proof.problems += losses(exercise, later, [a for k, a in entries if k in ("reference", "right")], judge)
    return proof


def losses(
    exercise: Exercise, seed: int, right: Iterable[Any], judge: Callable[..., Judgement] = judge
) -> Iterator[str]:
    """Yield a sentence for each of these right answers that loses a point on the hidden cases of a seed.

    And one, if an answer that does nothing has points there.
    """
    cases, judge = answers.hidden_cases(exercise.id, seed), _in_run(seed, judge)
    for answer in right:
        result = judge(exercise, answer, cases)
        yield from (f"seed {seed}: the case {name!r} cannot be built" for name in result.unbuilt)
        if failure := result.failure:  # a verdict that no hidden case is about is earned on the visible ones
            name = getattr(answer, "__name__", "the reference")
            yield f"seed {seed}: {name} is right, but loses {failure.verdict} on {failure.case!r}: {failure.message}"
    idle = judge(exercise, answers.unchanged, cases)
    if reason := _problem("unchanged", None, idle, idle):
        yield f"seed {seed}: unchanged {reason}"


def _keep_builds() -> None:
    os.environ.setdefault(cache.FOLDER, str(source.ROOT / cache.PLACE))


def for_each(
    names: list[str],
    task: Callable[[str], Any],
    jobs: int = 0,
    console: Console | None = None,
    each: Callable[[str, Any], None] = lambda name, result: None,
) -> list[Any]:
    """Return `task(name)` for several exercises, called in separate processes, with a progress bar on `console`.

    Each flavour has its own processes, one flavour after the other: a process can hold only one TVM. Notebooks have
    kernels of their own, so theirs hold none. each: called with a name and its result as soon as it is there.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = max(1, min(jobs or cores, len(names)))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // jobs)))
    columns = (TextColumn("Proving"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    flavours = {name: "notebook" if name.endswith(".py") else exercises.find(name).flavour for name in names}
    results = {}
    with Progress(*columns, console=console, transient=True, disable=console is None or not console.is_terminal) as bar:
        row = bar.add_task("", total=len(names))
        for flavour in dict.fromkeys(flavours.values()):
            of_flavour = [name for name in names if flavours[name] == flavour]
            spawn = get_context("spawn")
            with ProcessPoolExecutor(min(jobs, len(of_flavour)), mp_context=spawn, initializer=_keep_builds) as pool:
                for name, result in zip(of_flavour, pool.map(task, of_flavour), strict=True):
                    results[name] = result
                    each(name, result)
                    bar.advance(row)
    return [results[name] for name in names]


def _table(proof: Proof) -> Table:
    from rich.markup import escape
    from rich.table import Table

    title = f"{proof.exercise}  (visible {proof.seconds_visible:.2f} s, hidden {proof.seconds_hidden:.2f} s)"
    table = Table(title=title, title_justify="left")
    for column in ("", "answer", "visible", "all", "lost", "what it shows"):
        table.add_column(column, justify="right" if column in ("visible", "all") else "left", overflow="fold")
    for row in proof.rows:
        verdicts = [f"[bold]{verdict}[/]" if verdict == row.should else verdict for verdict in row.lost]
        sign = "[red]✗[/]" if row.problem else "[green]✓[/]"
        of = f"{row.points:g}/{proof.total:g}"
        name = f"{row.kind}: {row.name}" if row.note else row.kind
        table.add_row(sign, name, f"{row.visible:g}", of, " ".join(verdicts), escape(row.note))
    return table


def choose(names: list[str]) -> list[str]:
    """Return the ids of these exercises, of all if there are none; [] after a sentence on stderr about a wrong name."""
    from rich.console import Console

    try:
        chosen = [exercises.find(name).id for name in names]
    except KeyError as error:
        Console(stderr=True).print(error.args[0], markup=False)
        return []
    return chosen or [e.id for day in exercises.days() for e in exercises.of_day(day)]


def print_proofs(proofs: list[Proof], as_json: bool, seed: int, seeds: int = 1) -> int:
    """Print the kill tables; return 1 if any proof fails."""
    from rich.console import Console
    from rich.markup import escape

    if as_json:
        print(json.dumps([asdict(proof) | {"ok": proof.ok} for proof in proofs], indent=1))
        return 0 if all(proof.ok for proof in proofs) else 1
    console = Console(width=None if sys.stdout.isatty() else 120)
    for proof in proofs:
        console.print(_table(proof))
        rows = [f"{row.name} {row.problem}. {row.message}" for row in proof.rows if row.problem]
        for problem in [*proof.problems, *rows]:
            console.print(f"[red]✗[/] {escape(proof.exercise)}: {escape(problem)}", soft_wrap=True)
    wrong = [(row.points, proof.total) for proof in proofs for row in proof.rows if row.kind == "wrong"]
    bad = [proof.exercise for proof in proofs if not proof.ok]
    killed, tries = sum(points < total for points, total in wrong), plural(len(wrong), "wrong answer")
    seeds_text = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
    console.print(f"{plural(len(proofs), 'exercise')}, {seeds_text}: {killed} of {tries} fall short.")
    console.print(f"[red]Not proved: {', '.join(bad)}[/]" if bad else "[green]The proof holds.[/]")
    return 1 if bad else 0
