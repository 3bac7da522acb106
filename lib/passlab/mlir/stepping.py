"""The greedy driver visit by visit: the operation, the pattern that rewrites it, the module, and the worklist.

rewrite_steps(module, [AddZero(), AsShift()])
"""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from passlab.drawing.picture import Picture, escape
from passlab.drawing.player import State, player
from passlab.drawing.stepping import STATES
from passlab.mlir.rewriting import Endless, Greedy, drive, first_line

_SIGNS = {"+": "new", "-": "gone", " ": ""}
_CSS = """
#ID .at{display:none}#ID pre{margin:2px 0;color:inherit;background:none;white-space:pre;line-height:1.5}
#ID .new{background:#e4f4ee;color:#00543c}#ID .gone{background:#fdf0e7;color:#8a3800}
#ID .now{font-weight:bold}
"""


class Visit(NamedTuple):
    """A visit of the driver. `operation` and those that are `waiting`, the next one first, are first lines.

    `done`: what became of the operation. `lines`: those of the module as (sign, text), "+" new, "-" gone, " " kept.
    """

    operation: str
    done: str
    lines: list[tuple[str, str]]
    waiting: list[str]


class _Watched(Greedy):
    """The driver's patterns, with a record of the first visits."""

    def __init__(self, module: ModuleOp, patterns: Sequence[RewritePattern]):
        super().__init__(module, patterns)
        self.module, self.total, self.visits = module, 0, list[Visit]()

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        self.total += 1
        if self.total > STATES:
            return super().match_and_rewrite(op, rewriter)
        before, operation, count = str(self.module).splitlines(), _texts(self.module)[op], len(self.log)
        super().match_and_rewrite(op, rewriter)
        note = "no pattern matches"
        if len(self.log) > count:
            note = f"{self.log[-1]} rewrites it"
        elif op.parent is None:
            note = "nothing reads it, so it is erased"
        texts, waiting = _texts(self.module), self.walker._worklist._map if self.walker else {}  # xDSL's is a stack
        lines = [(row[0], row[2:]) for row in difflib.ndiff(before, str(self.module).splitlines()) if row[0] in _SIGNS]
        self.visits.append(Visit(operation, note, lines, [texts[o] for o in reversed(waiting) if o in texts]))


def _texts(module: ModuleOp) -> dict[Operation, str]:
    """Return operation → its first line, with names as in the module's text where each line there is an operation."""
    operations, lines = list(module.walk()), [line.strip() for line in str(module).splitlines()]
    lines = [line.removesuffix(" {") for line in lines if line != "}"]
    if len(lines) != len(operations):
        lines = list(map(first_line, operations))
    return dict(zip(operations, lines, strict=True))


class RewriteSteps(Picture):
    """The result of `rewrite_steps`. `visits` are its states."""

    suffixes: Any = (".html", ".txt")

    def __init__(self, visits: list[Visit], title: str, note: str):
        self.visits = visits
        super().__init__("\n".join([title, *self._lines()]), "", title, note)

    def _lines(self) -> Iterator[str]:
        for i, visit in enumerate(self.visits, 1):
            yield f"{i}/{len(self.visits)}  {visit.operation}: {visit.done}. {_waiting(visit)}"
            if any(sign != " " for sign, _ in visit.lines):
                yield from (f"  {sign} {text}" for sign, text in visit.lines)

    @property
    def html(self) -> str:
        states, parts, count = [], [], len(self.visits)
        for i, visit in enumerate(self.visits):
            label = f"{i + 1} of {count}: {visit.operation}: {visit.done}"
            caption = f"<b>{i + 1}/{count}</b> <code>{escape(visit.operation)}</code>: {escape(visit.done)}."
            states.append(State(label, caption, f"ON.card .at{i}{{display:block}}"))
            rows = "\n".join(_row(sign, text, visit.operation) for sign, text in visit.lines)
            waiting = html.escape("\n".join(f"{n}. {text}" for n, text in enumerate(visit.waiting, 1)) or "empty")
            parts.append(f'<div class="at at{i}"><pre>{rows}</pre><b>Worklist</b><pre>{waiting}</pre></div>')
        return player(states, "".join(parts) + f"<p>{html.escape(self.note)}</p>" * bool(self.note), _CSS, self.title)


def _row(sign: str, text: str, operation: str) -> str:
    kind = _SIGNS[sign] or ("now" if text.strip().removesuffix(" {") == operation else "")
    return f'<span class="{kind}">{"−" if sign == "-" else sign} {html.escape(text)}</span>'


def _waiting(visit: Visit) -> str:
    return f"Waiting: {len(visit.waiting)}" + (f", next {visit.waiting[0]}" if visit.waiting else "")


def rewrite_steps(
    module: ModuleOp, patterns: Sequence[RewritePattern], title: str = "The driver, visit by visit"
) -> RewriteSteps:
    """Step through `rewrite` with buttons or the arrow keys; the module is not changed.

    Each state is a visit of an operation: what became of it, the module, and the worklist. Raises what a pattern
    raises. Of patterns that never stop, and of more visits than a screen holds, the first ones are shown.
    """
    watched = _Watched(module.clone(), patterns)
    note = ""
    try:
        drive(watched.module, watched)
    except Endless as error:
        note = str(error)
    if watched.total > STATES:
        note = f"{note} Only the first {STATES} of {watched.total} visits are shown.".strip()
    return RewriteSteps(watched.visits, title, note)
