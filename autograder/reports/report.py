"""The instructor's report on a graded class: one page, read without a server, printed if need be.

    report(rows(recorder.scores()), recorder.results(), Facts(…))

Points are the gradebook's (`exports.Row`); times, crashes and what was unsafe come from the results. Shades of one
blue and grey, with every number written out, so that nothing hangs on telling colours apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from autograder.engine.data import NotebookResult
from autograder.reports.exports import Row
from autograder.reports.pages import BAD, BLUE, INK, LINE, PALE, bar, cut, esc, number, page
from autograder.reports.similar import Similar

_PARTS = {"right": BLUE, "partly right": "#7fb2e5", "wrong": "#8c959f", "not attempted": "#d8dee4"}

_CSS = f"""
body>*{{max-width:80rem}}
h1+p{{margin-top:0}}
.wide{{overflow-x:auto}}
table{{width:100%}}
thead th{{vertical-align:bottom;border-bottom:1px solid {PALE}}}
th button{{all:unset;cursor:pointer;text-align:inherit}}
th button:focus-visible{{outline:2px solid {BLUE};outline-offset:2px}}
th[aria-sort=ascending] button::after{{content:" ↑"}}
th[aria-sort=descending] button::after{{content:" ↓"}}
tbody th{{font-weight:500;color:{INK};font-size:1em;overflow-wrap:anywhere}}
table.questions tbody th{{white-space:nowrap}}
td.said{{overflow-wrap:anywhere;min-width:13rem}}td.said small{{white-space:nowrap}}
.parts{{display:flex;width:9rem;height:.8rem;margin-top:.35rem;border-radius:3px;overflow:hidden;gap:1px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}}
.key{{display:inline-block;width:.75rem;height:.75rem;border-radius:2px;margin:0 .35rem 0 1rem;vertical-align:-1px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}}
.key:first-child{{margin-left:0}}
.charts{{display:flex;flex-wrap:wrap;gap:1.5rem 2.5rem}}
figure{{margin:0}}
figcaption{{font-weight:600;margin-bottom:.3rem}}
svg text{{font:11px system-ui,sans-serif;fill:{PALE}}}
dl{{display:grid;grid-template-columns:max-content 1fr;gap:.35rem 1.4rem;margin:0}}
dt{{color:{PALE}}}dd{{margin:0;overflow-wrap:anywhere}}
ul{{margin:.2rem 0;padding-left:1.2rem}}li{{overflow-wrap:anywhere}}
.lost{{color:{BAD};font-weight:600}}
@media print{{body>*{{max-width:none}}thead{{display:table-header-group}}}}
"""

#: A click on a column's head sorts by it, and again the other way round.
_SCRIPT = """
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const head = button.parentElement, body = head.closest("table").tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending", column = head.cellIndex;
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
  const order = (a, b) => a - b || String(a).localeCompare(String(b), undefined, {numeric: true});
  const rows = [...body.rows].sort((a, b) => order(value(a), value(b)) * (up ? 1 : -1));
  body.append(...rows);
});
"""


class Layer(Protocol):
    """A layer of the sandbox, as it was found on the machine that graded."""

    name: str
    holds: bool
    sentence: str


@dataclass(frozen=True)
class Facts:
    """How a class was graded. `notes`: learner ("" for the whole class) → sentences; `unread`: (learner, sentence) for
    submissions that could not be read or graded; `seconds`, `graded`: of this run, which may have resumed an earlier
    one; `workers`: how many and where, in words."""

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


def report(rows: Sequence[Row], results: Sequence[NotebookResult], facts: Facts) -> str:
    """The page for a class."""
    assignments = list(dict.fromkeys(row.assignment for row in sorted(rows, key=lambda row: row.assignment)))
    learners = {row.learner for row in rows}
    unsafe = facts.unsafe or any(result.unsafe for result in results)
    title = f"Grading report · {', '.join(assignments)}" if assignments else "Grading report"
    said = f"{_people(len(learners))}, {len({(r.learner, r.assignment) for r in rows}):,} submissions"
    body = (
        f"<header><h1>{esc(title)}</h1><p class=pale>{said}{f' · {esc(facts.when)}' if facts.when else ''}</p></header>"
    )
    sections = [
        ("Questions", _questions(rows, results)),
        ("Points", _charts(rows, assignments)),
        ("Same answers", _similar(facts.similar)),
        ("Not read, and notes", _notes(facts)),
        ("How it was graded", _facts(facts, results, unsafe)),
        ("Learners", _learners(rows, assignments)),
    ]
    body += "".join(f"<section><h2>{name}</h2>{inside}</section>" for name, inside in sections if inside)
    return page(title, body, _CSS, _SCRIPT, unsafe)


def _table(caption: str, columns: Iterable[tuple[str, bool]], rows: str, kind: str = "") -> str:
    """A table that can be sorted. `columns`: (name, is it a number?)."""
    head = "".join(
        f'<th scope="col"{" class=n" if right else ""}><button type="button">{name}</button></th>'
        for name, right in columns
    )
    return (
        f'<div class="wide"><table class="{kind}"><caption hidden>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"


def _people(count: int) -> str:
    return f"{count:,} learner{'' if count == 1 else 's'}"


def _questions(rows: Sequence[Row], results: Sequence[NotebookResult]) -> str:
    """A line for each question: who got it right, what went wrong most often, how long it took."""
    of: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        of[row.assignment, row.question].append(row)
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for result in results:
        for verdict in result.verdicts.values():
            seconds[result.assignment, verdict.exercise.split(".", 1)[-1]].append(verdict.seconds)
    lines = []
    for (assignment, question), mine in sorted(of.items(), key=lambda item: item[0][0]):
        count = Counter("wrong" if row.status == "crashed" else row.status for row in mine)
        right, crashed = count["right"], sum(row.status == "crashed" for row in mine)
        parts = "".join(
            f'<i style="flex:{count[name]};background:{shade}"></i>' for name, shade in _PARTS.items() if count[name]
        )
        told = esc(", ".join(f"{n:,} {name}" for name, n in count.most_common()))
        points = [row.points for row in mine if row.points is not None]
        most = max(row.max_points for row in mine)
        mean = f"{number(sum(points) / len(points))} of {number(most)}" if points else "–"
        notes = Counter(row.misconception for row in mine if row.misconception).most_common(1)
        astray = count["wrong"] + count["partly right"]
        note = "<small>none known</small>" if astray else ""
        if notes:
            note = f"{esc(notes[0][0])} <small>({_people(notes[0][1])})</small>"
        took = seconds.get((assignment, question), [])
        cells = [
            f"<td>{esc(assignment)}</td>",
            f'<th scope="row">{esc(question)}</th>',
            f'<td class=n data-v="{right / len(mine):.4f}">{_percent(right, len(mine))}</td>',
            f'<td><span class="parts" role="img" aria-label="{told}" title="{told}">{parts}</span></td>',
            f'<td class=n data-v="{sum(points) / len(points) if points else 0:.4f}">{mean}</td>',
            f'<td class="said" data-v="{notes[0][1] if notes else 0}">{note}</td>',
            f'<td class="n{" lost" if crashed else ""}">{crashed or ""}</td>',
            f'<td class=n data-v="{median(took) if took else 0:.4f}">{_time(median(took)) if took else "–"}</td>',
            f'<td class=n data-v="{max(took, default=0):.4f}">{_time(max(took)) if took else "–"}</td>',
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    if not lines:
        return "<p>Nothing was graded.</p>"
    columns = [("assignment", False), ("question", False), ("right", True), ("how many", False), ("mean points", True)]
    columns += [("commonest misconception", False), ("crashed", True)]
    columns += [("median time", True), ("largest", True)]
    keys = "".join(f'<span class="key" style="background:{shade}"></span>{name}' for name, shade in _PARTS.items())
    caption = "For each question: how many have it right, and why not"
    return f"<p>{keys}</p>" + _table(caption, columns, "".join(lines), "questions")


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _totals(rows: Sequence[Row]) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """(learner, assignment) → points, and what each assignment is worth."""
    got: dict[tuple[str, str], float] = defaultdict(float)
    of: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        got[row.learner, row.assignment] += row.points or 0.0
        of[row.learner, row.assignment] += row.max_points
    worth: dict[str, float] = {}
    for (_, assignment), most in of.items():
        worth[assignment] = max(worth.get(assignment, 0.0), most)
    return got, worth


def _charts(rows: Sequence[Row], assignments: list[str]) -> str:
    """How the points of each assignment are spread over the class."""
    got, worth = _totals(rows)
    charts = []
    for assignment in assignments:
        points = [value for (_, name), value in got.items() if name == assignment]
        tenths = Counter(min(int(10 * p / worth[assignment]), 9) if worth[assignment] else 0 for p in points)
        middle = f"median {number(median(points))} of {number(worth[assignment])}"
        charts.append(
            f"<figure><figcaption>{esc(assignment)} <small>{middle}</small></figcaption>{_histogram(tenths)}</figure>"
        )
    return f'<div class="charts">{"".join(charts)}</div>'


def _histogram(tenths: Counter) -> str:
    """Learners in each tenth of the points, as SVG with its numbers."""
    most, shapes = max(tenths.values(), default=1), []
    for tenth in range(10):
        count, x = tenths[tenth], 28 * tenth
        high = 70 * count / most
        shapes.append(f'<rect x="{x}" y="{84 - high:.1f}" width="24" height="{high:.1f}" fill="{BLUE}"/>')
        shapes.append(f'<text x="{x + 12}" y="{80 - high:.1f}" text-anchor="middle">{count or ""}</text>')
    shapes.append(f'<path d="M0 84.5H276" stroke="{LINE}"/><text x="0" y="98">0 %</text>')
    shapes.append('<text x="276" y="98" text-anchor="end">100 %</text>')
    told = "; ".join(f"{10 * t} to {10 * t + 10} %: {tenths[t]}" for t in range(10) if tenths[t])
    label = f"learners by share of the points: {told}"
    return f'<svg role="img" aria-label="{label}" width="276" height="102">{"".join(shapes)}</svg>'


def _learners(rows: Sequence[Row], assignments: list[str]) -> str:
    got, worth = _totals(rows)
    crashes = Counter(row.learner for row in rows if row.status == "crashed")
    waiting = Counter(row.learner for row in rows if row.status == "to be graded")
    total_worth, lines = sum(worth.values()), []
    for learner in sorted({row.learner for row in rows}):
        total = sum(got.get((learner, assignment), 0.0) for assignment in assignments)
        cells = "".join(
            f"<td class=n>{number(got.get((learner, assignment)))}</td>"
            for assignment in assignments
            if len(assignments) > 1
        )
        share = bar(total / total_worth if total_worth else 0.0)
        cells += f"<td class=n>{number(total)}</td><td data-v={total:.2f}>{share}</td>"
        cells += f"<td class=n>{crashes[learner] or ''}</td><td class=n>{waiting[learner] or ''}</td>"
        lines.append(f'<tr><th scope="row">{esc(learner)}</th>{cells}</tr>')
    columns = [("learner", False)]
    columns += [(f"{esc(a)} <small>/{number(worth[a])}</small>", True) for a in assignments if len(assignments) > 1]
    columns += [(f"total <small>/{number(total_worth)}</small>", True), ("share", False)]
    columns += [("crashed", True), ("to be read", True)]
    return _table("Points of each learner", columns, "".join(lines)) if lines else ""


def _similar(found: Similar) -> str:
    if not found.pairs and not found.common:
        return ""
    lines = "".join(
        f'<tr><th scope="row">{esc(pair.first)}</th><td>{esc(pair.second)}</td><td class=n>{len(pair.questions)}</td>'
        f'<td class="said">{esc(", ".join(pair.questions))}</td></tr>'
        for pair in found.pairs
    )
    text = "<p>The same program once names, comments and layout no longer count: a reason to look, no proof.</p>"
    columns = [("learner", False), ("and", False), ("how many", True), ("questions", False)]
    if lines:
        text += _table("Pairs of learners with the same answers", columns, lines)
    if found.common:
        items = "".join(f"<li>{esc(question)}: {_people(count)}</li>" for question, count in found.common[:20])
        text += f"<p>One long answer that many have, and that is not the reference:</p><ul>{items}</ul>"
    return text


def _notes(facts: Facts) -> str:
    items = [f"<li><b>{esc(who)}</b>: {esc(cut(why, 1_000))}</li>" for who, why in facts.unread]
    for who, sentences in sorted((who, sentences) for who, sentences in facts.notes.items() if sentences):
        name = f"<b>{esc(who)}</b>: " if who else ""
        items.append(f"<li>{name}{esc(cut(' '.join(sentences), 1_000))}</li>")
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _facts(facts: Facts, results: Sequence[NotebookResult], unsafe: bool) -> str:
    lines: list[tuple[str, str]] = []
    if facts.seed is not None:
        lines.append(("hidden cases", f"drawn from the seed {facts.seed}; the same seed gives the same points"))
    if facts.graded and facts.seconds:
        pace = f"{60 * facts.graded / facts.seconds:,.0f} a minute"
        lines.append(("submissions", f"{facts.graded:,} in {_long(facts.seconds)}, {pace}"))
    if facts.workers:
        lines.append(("workers", esc(facts.workers)))
    if results:
        seconds, peak = [r.seconds for r in results], max(r.peak_mib for r in results)
        cpu = f"{median(r.cpu_seconds for r in results):.2f} s of CPU time"
        took = f"median {median(seconds):.2f} s ({cpu}), largest {max(seconds):.1f} s"
        lines.append(("a notebook", took + (f", {peak:,.0f} MiB of memory at most" if peak else "")))
    whole = "every layer that grading needs"
    lines.append(("sandbox", '<b class="lost">not whole</b>: --unsafe was asked for' if unsafe else whole))
    held = "".join(
        f"<li>{'✓' if layer.holds else '✗'} <b>{esc(layer.name)}</b>: {esc(layer.sentence)}</li>"
        for layer in facts.layers
    )
    if held:
        lines.append(("its layers", f"<ul>{held}</ul>"))
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in lines)}</dl>"


def _long(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
