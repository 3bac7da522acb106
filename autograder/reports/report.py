"""The instructor's report on a graded class: one page, read without a server, printed if need be.

    report(rows(recorder.scores()), recorder.results(), Facts(…))

Points are the gradebook's (`exports.Row`); times, crashes and missing sandbox layers come from the results. Shades of
one blue and grey, with every number written out, so that no information depends on colour.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple, Protocol

from autograder.engine.data import NotebookResult, only_on_the_cpu
from autograder.reports import items
from autograder.reports.activity import Activity
from autograder.reports.exports import Row
from autograder.reports.items import Item
from autograder.reports.pages import page
from autograder.reports.similar import Similar
from passlab.drawing.axes import Plot
from passlab.drawing.picture import PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Layer(Protocol):
    """A layer of the sandbox on the machine that graded."""

    @property
    def name(self) -> str: ...
    @property
    def holds(self) -> bool: ...
    @property
    def needed(self) -> bool: ...
    @property
    def sentence(self) -> str: ...


@dataclass(frozen=True)
class Facts:
    """How a class was graded. `notes`: learner ("" for the whole class) → sentences; `unread`: (learner, sentence) for
    submissions that could not be read or graded; `seconds`, `graded`: of this run, which may have resumed an earlier
    one; `workers`: their number and machines, as text; `tries`: (assignment, question) → of each learner, how many
    submissions it took; `activity`: exercise → what a hub knows of the work on it."""

    when: str = ""
    seed: int | None = None
    seconds: float = 0.0
    graded: int = 0
    workers: str = ""
    layers: Sequence[Layer] = ()
    unsafe: bool = False
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unread: Sequence[tuple[str, str]] = ()
    similar: Similar = field(default_factory=Similar)
    tries: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    activity: Mapping[str, Activity] = field(default_factory=dict)


class _Question(NamedTuple):
    """A row of the questions: who got it right, what went wrong most often and how often, how long it took to judge.

    `tries`: the mean number of submissions up to the best one; `activity`: of the hub; None where they are not known.
    """

    assignment: str
    question: str
    stretch: bool
    right: float
    counts: Counter[str]
    label: str
    mean: float | None
    most: float
    misconception: str
    alike: int
    crashed: int
    median: float
    largest: float
    item: Item
    tries: float | None
    activity: Activity | None


class _Learner(NamedTuple):
    """A row of the learners. `points`: of the core in each assignment, if there are several, and in all; then extra."""

    name: str
    points: list[float | None]
    core: float
    crashed: int
    waiting: int


class _Chart(NamedTuple):
    """The distribution of an assignment's points over the class."""

    assignment: str
    median: float
    worth: float
    svg: str
    reliability: float | None


def report(rows: Sequence[Row], results: Sequence[NotebookResult], facts: Facts) -> str:
    """Return the page for a class."""
    assignments = sorted({row.assignment for row in rows})
    sums, worth = _totals([row for row in rows if not row.stretch])
    extra, most_extra = _totals([row for row in rows if row.stretch])
    several, reliability = assignments if len(assignments) > 1 else [], items.alpha(rows)
    return page(
        "report.html",
        assignments=assignments,
        submissions=len(sums),
        unsafe=facts.unsafe or any(result.unsafe for result in results),
        facts=facts,
        similar=facts.similar,
        unbuilt=_unbuilt(results),
        notes=sorted((learner, sentences) for learner, sentences in facts.notes.items() if sentences),
        questions=list(_questions(rows, results, facts)),
        several_tries=any(number > 1 for numbers in facts.tries.values() for number in numbers),
        charts=[
            _chart(name, [p for (_, of), p in sums.items() if of == name], worth.get(name, 0.0), reliability.get(name))
            for name in assignments
        ],
        learners=list(_learners(rows, sums, extra, several)),
        columns=[
            ("learner", False),
            *((name, True, worth[name]) for name in several),
            ("core", True, sum(worth.values())),
            *([("extra", True, sum(most_extra.values()))] if most_extra else []),
            ("share", False),
            ("crashed", True),
            ("to be read", True),
        ],
        worth=sum(worth.values()),
        on_cpu=_compared(results, gpu=False),
        on_gpu=_compared(results, gpu=True),
        took=_took(results),
        time=_time,
        long=_long,
    )


def _compared(results: Sequence[NotebookResult], gpu: bool) -> list[str]:
    """Return the exercises whose functions were compared on a GPU, or on the CPU only."""
    verdicts = [verdict for result in results for verdict in result.verdicts.values() if verdict.devices]
    return sorted({verdict.exercise for verdict in verdicts if only_on_the_cpu(verdict) is not gpu})


def _unbuilt(results: Sequence[NotebookResult]) -> list[tuple[str, int, str]]:
    """Return exercise, seed and name of the cases that could not be built."""
    verdicts = [verdict for result in results for verdict in result.verdicts.values()]
    return sorted({(verdict.exercise, verdict.seed, name) for verdict in verdicts for name in verdict.unbuilt})


def _questions(rows: Sequence[Row], results: Sequence[NotebookResult], facts: Facts) -> Iterator[_Question]:
    of: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        of[row.assignment, row.question].append(row)
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for result in results:
        for verdict in result.verdicts.values():
            seconds[result.assignment, verdict.exercise.split(".", 1)[-1]].append(verdict.seconds)
    analysis = items.analyse(rows)
    for (assignment, question), answers in sorted(of.items(), key=lambda item: item[0][0]):
        count = Counter("wrong" if row.status == "crashed" else row.status for row in answers)
        points = [row.points for row in answers if row.points is not None]
        notes = Counter(row.misconception for row in answers if row.misconception).most_common(1)
        took = seconds.get((assignment, question), [])
        yield _Question(
            assignment,
            question,
            stretch=answers[0].stretch,
            right=count["right"] / len(answers),
            counts=count,
            label=", ".join(f"{n:,} {name}" for name, n in count.most_common()),
            mean=fmean(points) if points else None,
            most=max(row.max_points for row in answers),
            misconception=notes[0][0] if notes else "",
            alike=notes[0][1] if notes else 0,
            crashed=sum(row.status == "crashed" for row in answers),
            median=median(took) if took else 0.0,
            largest=max(took, default=0.0),
            item=analysis.get((assignment, question), Item(None, None)),
            tries=fmean(tries) if (tries := facts.tries.get((assignment, question))) else None,
            activity=facts.activity.get(f"{assignment}.{question}"),
        )


def _totals(rows: Sequence[Row]) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Return (learner, assignment) → points, and assignment → most points."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    of: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        sums[row.learner, row.assignment] += row.points or 0.0
        of[row.learner, row.assignment] += row.max_points
    worth: dict[str, float] = {}
    for (_, assignment), most in of.items():
        worth[assignment] = max(worth.get(assignment, 0.0), most)
    return sums, worth


def _chart(assignment: str, points: Sequence[float], worth: float, reliability: float | None) -> _Chart:
    tenths = Counter(min(int(10 * p / worth), 9) if worth else 0 for p in points)
    return _Chart(assignment, median(points) if points else 0.0, worth, _histogram(tenths), reliability)


def _histogram(tenths: Counter[int]) -> str:
    """Return the learners in each tenth of the points, as SVG with numbers."""

    def figure() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2.8, 0.8))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 9.86))
        counts = [tenths[tenth] for tenth in range(10)]
        drawn = axes.bar(range(10), counts, width=0.86, align="edge", color="#0b5cad")
        axes.bar_label(drawn, [f"{count:,}" if count else "" for count in counts], padding=1, color=PALE)
        for tick, side in zip(axes.set_xticks([0, 9.86], ["0 %", "100 %"]), ("left", "right"), strict=True):
            tick.label1.set(horizontalalignment=side)
        axes.set_yticks([])
        axes.tick_params(length=0)
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.spines.bottom.set_color("#d0d7de")
        return figure

    label = "; ".join(f"{10 * t} to {10 * t + 10} %: {tenths[t]}" for t in range(10) if tenths[t])
    return Plot(label, figure, f"learners by share of the points: {label}", pad=0.02).svg


def _learners(
    rows: Sequence[Row],
    sums: Mapping[tuple[str, str], float],
    extra: Mapping[tuple[str, str], float],
    assignments: Sequence[str],
) -> Iterator[_Learner]:
    crashes = Counter(row.learner for row in rows if row.status == "crashed")
    waiting = Counter(row.learner for row in rows if row.status == "to be graded")
    core, stretch = ({row.learner: 0.0 for row in rows} for _ in range(2))
    for totals, points in ((core, sums), (stretch, extra)):
        for (learner, _), number in points.items():
            totals[learner] += number
    for learner, total in sorted(core.items()):
        earned = [sums.get((learner, assignment)) for assignment in assignments]
        in_all = [total, stretch[learner]] if extra else [total]
        yield _Learner(learner, [*earned, *in_all], total, crashes[learner], waiting[learner])


def _took(results: Sequence[NotebookResult]) -> str:
    """Return a text on the time and memory of a notebook; "" without results."""
    if not results:
        return ""
    seconds, peak = [r.seconds for r in results], max(r.peak_mib for r in results)
    cpu = f"{median(r.cpu_seconds for r in results):.2f} s of CPU time"
    took = f"median {median(seconds):.2f} s ({cpu}), largest {max(seconds):.1f} s"
    return took + (f", {peak:,.0f} MiB of memory at most" if peak else "")


def _time(seconds: float) -> str:
    if not seconds:
        return "–"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _long(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
