"""The leaderboard: one page without scripts, and the same as JSON. Neither tells hidden cases, seeds or, unless asked
for, who is who.

    page(standings, baselines, About("day12.compiler", "2026-06-01 12:00"))
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from autograder.grading.entries import Board, Records
from autograder.reports import pages
from autograder.reports.ranking import Standing, beyond, figures, front, pseudonyms, ranked, standing
from passlab.drawing.axes import Plot
from passlab.drawing.charts import chart
from passlab.drawing.picture import BLUE, INK, PALE, size
from passlab.measure.clock import seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: How many of the best the bars of each model show.
MOST_BARS = 12
#: Why a baseline that runs may have no launches, bytes and peak memory.
NOT_COUNTED = "not counted: it hands over a finished program, not the graph, groups and plan that are counted"
Baselines = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class About:
    """What a board is about. `names`: whether it shows ids in place of pseudonyms."""

    exercise: str
    when: str
    device: str = ""
    names: bool = False
    unsafe: bool = False


@dataclass(frozen=True)
class _Point:
    """A competitor in the plane of time and memory, both as shares of eager's."""

    name: str
    time: float
    memory: float
    learner: bool


def page(standings: Sequence[Standing], baselines: Baselines, about: About) -> str:
    """Return the page. `standings`: ranked; `baselines`: model → baseline → row."""
    points = _points(standings, baselines)
    return pages.page(
        "leaderboard.html",
        about=about,
        unsafe=about.unsafe,
        racing=[one for one in standings if one.state in ("ranked", "late")],
        others=[one for one in standings if one.state not in ("ranked", "late")],
        baselines=[(name, figures(rows, _eager(baselines))) for name, rows in _by_name(baselines).items()],
        missing=_missing(baselines),
        pareto=_pareto(points) if len(points) > 1 else None,
        left_out=_left_out(baselines, points),
        front=front({point.name: (point.time, point.memory) for point in points}),
        models=[(model, _bars(model, times), times.items()) for model, times in _times(standings, baselines).items()],
        histories=[one for one in standings if len(one.history) > 1],
        share=lambda value: "–" if value is None else f"{100 * value:.0f} %",
        times=lambda value: "–" if value is None else f"{value:.2f} ×",
        seconds=lambda value: "–" if value is None else seconds(value),
        size=lambda value: "–" if value is None else size(value),
        count=lambda value: "–" if value is None else f"{value:,}",
    )


def standings(
    board: Board,
    records: Records,
    handed_in: Mapping[str, Sequence[tuple]],
    late: Collection[str],
    when: str,
    names: bool,
) -> list[Standing]:
    """Return the ranked lines of a board, and remember it in `records`.

    `handed_in`: learner → (when, fingerprint, points) of the submissions that were graded. Who has one, but no
    submission now, has withdrawn, as have those that `records` lists.
    """
    racers = {entry.learner: entry for entry in board.entries}
    active = [learner for learner in racers if learner not in records.withdrawn]
    records.names = pseudonyms({*racers, *handed_in}, records.salt, records.names)
    titles = _by_name(board.baselines)  # a learner's id may be one of them, such as eager
    eager, course = _eager(board.baselines), titles.get("reference", {})
    lines = []
    for learner in {**racers, **handed_in}:
        shown = f"{learner} (a learner)" if learner in titles else learner
        name = shown if names else records.names[learner]
        if learner not in active:
            lines.append(Standing(name, "withdrawn", why="Does not take part any more."))
            continue
        entry = racers[learner]
        mark = beyond(entry.rows, course)
        lines.append(standing(name, entry.rows, eager, learner in late, entry.failure, beyond=mark))
    current = {learner: one for learner, one in zip({**racers, **handed_in}, lines, strict=True) if one.speedup}
    records.races.append(
        {"when": when, "entries": {racer: [racers[racer].digest, one.speedup] for racer, one in current.items()}}
    )
    speedups = {(racer, *of) for race in records.races for racer, of in race["entries"].items()}
    last = {(racer, digest): speedup for racer, digest, speedup in sorted(speedups)}
    for learner, one in zip({**racers, **handed_in}, lines, strict=True):
        if one.state != "withdrawn":
            one.history = [
                {"when": f"{at:%Y-%m-%d %H:%M}", "points": points, "speedup": last.get((learner, digest))}
                for at, digest, points in handed_in.get(learner, ())
            ]
    return ranked(lines)


def data(standings: Sequence[Standing], baselines: Baselines, about: About) -> str:
    """Return the same as JSON."""
    board = {
        "exercise": about.exercise,
        "when": about.when,
        "device": about.device,
        "standings": [asdict(one) for one in standings],
        "baselines": baselines,
    }
    return json.dumps(board, indent=1, ensure_ascii=False) + "\n"


def _eager(baselines: Baselines) -> dict[str, Mapping[str, Any]]:
    return {model: rows["eager"] for model, rows in baselines.items()}


def _by_name(baselines: Baselines) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return baseline → model → row, of the models on which it ran."""
    table: dict[str, dict] = {}
    for model, rows in baselines.items():
        for name, row in rows.items():
            table.setdefault(name, {})
            if row.get("ratio"):
                table[name][model] = row
    return table


def _missing(baselines: Baselines) -> list[tuple[str, str]]:
    """Return (baseline, why it did not run and on what) for those that left out a model."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for model, rows in baselines.items():
        for name, row in rows.items():
            if row.get("missing"):
                reasons.setdefault((name, row["missing"]), []).append(model)
    return [(name, f"{', '.join(models)}: {reason}") for (name, reason), models in reasons.items()]


def _left_out(baselines: Baselines, points: Sequence[_Point]) -> list[tuple[str, str]]:
    """Return (baseline, why it has no place in the plane of time and memory)."""
    drawn, reasons = {point.name for point in points}, []
    for name, rows in _by_name(baselines).items():
        if name not in drawn:
            partly = f"it ran on {len(rows)} of {len(baselines)} models"
            reasons.append((name, partly if len(rows) < len(baselines) else NOT_COUNTED))
    return reasons


def _points(standings: Sequence[Standing], baselines: Baselines) -> list[_Point]:
    eager, every = _eager(baselines), len(baselines)
    known = [(one.name, one.speedup, one.peak, True) for one in standings if one.state in ("ranked", "late")]
    for name, rows in _by_name(baselines).items():
        measures = figures(rows, eager) if len(rows) == every else {}
        known.append((name, measures.get("speedup"), measures.get("peak"), False))
    return [_Point(name, 1 / speedup, peak, own) for name, speedup, peak, own in known if speedup and peak]


def _pareto(points: Sequence[_Point]) -> Plot:
    """Draw all competitors by time and peak memory, and the front of those that none beats in both."""
    best = front({point.name: (point.time, point.memory) for point in points})
    by_name = {point.name: point for point in points}
    lines = [f"{p.name}: time {p.time:.0%}, peak memory {p.memory:.0%} of eager's" for p in points]
    text = "\n".join(["time and peak memory", *lines, f"on the front: {', '.join(best)}"])

    def figure() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.6, 3.2))
        axes = figure.add_axes((0, 0, 1, 1))
        edge = [by_name[name] for name in best]
        right, top = (1.12 * max(getattr(p, quantity) for p in points) for quantity in ("time", "memory"))
        xs = [edge[0].time, *(p.time for p in edge), right]
        ys = [top, *(p.memory for p in edge), edge[-1].memory]
        axes.step(xs, ys, where="post", color=PALE, linewidth=1, zorder=1)
        for number, point in enumerate(points):
            at = (point.time, point.memory)
            look: dict[str, Any] = {"marker": "o" if point.learner else "s", "s": 34, "zorder": 2, "linewidths": 1.2}
            fill = (BLUE if point.learner else INK) if point.name in best else "white"
            axes.scatter(*at, facecolor=fill, edgecolor=BLUE if point.learner else INK, **look)
            axes.scatter(*at, s=80, alpha=0, gid=f"tip{number}", zorder=3)
            if point.name in best or not point.learner:
                axes.annotate(point.name, at, (6, 5 if point.learner else -11), textcoords="offset points", color=INK)
        axes.set(xlim=(0, right * 1.12), ylim=(0, top), xlabel="time, as a share of eager's")
        axes.set_ylabel("peak memory, as a share of eager's")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.spines[["top", "right"]].set_visible(False)
        return figure

    return Plot(text, figure, f"Time and peak memory. {'; '.join(lines)}.", lines)


def _times(standings: Sequence[Standing], baselines: Baselines) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return model → competitor → its row, of those with a time: the baselines first, then the best entries."""
    racing = [one for one in standings if one.state in ("ranked", "late")][:MOST_BARS]
    times = {}
    for model, rows in baselines.items():
        times[model] = {name: row for name, row in rows.items() if row.get("seconds")}
        times[model] |= {one.name: one.rows[model] for one in racing if model in one.rows}
    return times


def _bars(model: str, times: Mapping[str, Mapping[str, Any]]) -> Plot:
    return chart(f"{model}: a call", {name: float(f"{1e3 * row['seconds']:.3g}") for name, row in times.items()}, "ms")
