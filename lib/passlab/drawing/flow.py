"""Pictures of control flow: blocks with their instructions, the facts that flow between them, and the solver's visits.

    flow(program)                         # blocks and edges
    flow(program, solution)               # each edge with its fact
    flow_steps(program, solution)         # visit by visit: facts in the blocks, changes in orange
    hasse(facts, merge)                   # the lattice of some facts

Program and solution are those of `passlab.dataflow`, or anything with the same fields: `name` and `blocks` (with
`name`, `instructions`, `terminator`), and `before`, `after`, `edges`, `log`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from typing import Any

from passlab.drawing.picture import BLUE, FONT, GREY, INK, PALE, Picture, cut, escape, printable
from passlab.drawing.player import State, player

#: Maximum number of blocks and of visits in a drawing; the text form has all of them.
BLOCKS, VISITS = 80, 100
#: Maximum number of characters of an instruction or a fact.
WIDE = 44

_MONO = "DejaVu Sans Mono,Menlo,Consolas,monospace"
_ORANGE = "#D55E00"
_LOOP, _HEAD, _FACT = "#E69F00", "#DCE9F5", "#F4F8FB"
_CSS = "#ID pre,#ID text.fact{display:none}"


def fact_text(fact: Any, limit: int = WIDE) -> str:
    """Return a fact as text of at most `limit` characters: sets and dictionaries sorted, "unreached" for None."""
    if fact is None:
        return "unreached"
    if isinstance(fact, set | frozenset):
        words = sorted(element if isinstance(element, str) else _words(element) for element in fact)
    elif isinstance(fact, dict):
        words = [f"{key}={_value(value)}" for key, value in sorted(fact.items())]
    else:
        return cut(str(fact), limit)
    return cut(f"{{{', '.join(words)}}}", limit)


def _words(value: Any) -> str:
    return " ".join(map(_words, value)) if isinstance(value, tuple) else str(value)


def _value(value: Any) -> str:
    """Return a number, or an interval; the ends of the 32-bit numbers are called min and max."""
    if not isinstance(value, tuple):
        return str(value)
    ends = {-(2**31): "min", 2**31 - 1: "max", 2**31 - 2: "max-1"}
    return "..".join(ends.get(end, str(end)) for end in value)


def flow(program: Any, solution: Any = None, title: str = "") -> Picture:
    """Draw the blocks of a program, and on each edge the fact of a solution. Back edges are orange."""
    labels = {edge: fact_text(fact) for edge, fact in solution.edges.items()} if solution else {}
    lines = [program_head(program)]
    for block in program.blocks:
        lines += [f"{block.name}:", *(f"  {line}" for line in (*block.instructions, block.terminator))]
        lines += [f"    → {to}  {labels.get((block.name, to), '')}".rstrip() for to in block.terminator.targets]
    if len(program.blocks) > BLOCKS:
        note = f"{len(program.blocks)} blocks are too many to draw (at most {BLOCKS})."
        return Picture("\n".join(lines), "digraph { }", title, note)
    return Picture("\n".join(lines), _dot(program, labels, title or program_head(program)), title)


def program_head(program: Any) -> str:
    return f"{program.name}({', '.join(program.parameters)})"


class FlowSteps(Picture):
    """The result of `flow_steps`: one drawing with the facts after every visit, of which CSS shows one."""

    suffixes = (".html", ".txt")

    def __init__(self, program: Any, solution: Any, title: str):
        self.log = solution.log[:VISITS]
        self.names = [block.name for block in program.blocks]
        total = len(solution.log)
        note = f"Only the first {VISITS} of {total} visits are shown." if total > VISITS else ""
        self.facts = self._facts()
        super().__init__("\n".join(self._lines()), self._drawing(program, title), title, note)

    def _facts(self) -> list[dict[str, tuple[str, str]]]:
        """Return, after each visit, the facts of the blocks visited so far, as text."""
        facts: dict[str, tuple[str, str]] = {}
        states = []
        for visit in self.log:
            facts = {**facts, visit.block: (fact_text(visit.before), fact_text(visit.after))}
            states.append(facts)
        return states

    def _lines(self) -> list[str]:
        wide = max(map(len, self.names))
        return [
            f"{i + 1:>3}  {visit.block:<{wide}}  {fact_text(visit.before)} | {fact_text(visit.after)}"
            f"{'  changed' if visit.changed else ''}"
            for i, visit in enumerate(self.log)
        ]

    def _drawing(self, program: Any, title: str) -> str:
        widest = {}
        for name in self.names:
            rows = [facts[name] for facts in self.facts if name in facts] or [("", "")]
            widest[name] = tuple(max(column, key=len) for column in zip(*rows, strict=True))
        marks = {name: [f"mark{i}" for i, v in enumerate(self.log) if v.block == name] for name in self.names}
        return _dot(program, {}, title or program_head(program), widest, marks)

    @property
    def svg(self) -> str:
        """The drawing, with each fact as one text for each visit."""
        slots = {_slot(number, k): (name, k) for number, name in enumerate(self.names) for k in (0, 1)}

        def texts(match: re.Match) -> str:
            return self._texts(match[1], *slots[match[2]]) if match[2] in slots else match[0]

        return re.sub(r'<text ([^>]*?) fill="(#fe\w+)">[^<]*</text>', texts, super().svg)

    def _texts(self, place: str, name: str, k: int) -> str:
        texts, last = [], ""
        for i, facts in enumerate(self.facts):
            text = facts.get(name, ("", ""))[k]
            colour = _ORANGE if text != last else PALE
            texts.append(f'<text class="fact at{i}" {place} fill="{colour}">{escape(text)}</text>')
            last = text
        return "".join(texts)

    @property
    def html(self) -> str:
        states, count = [], len(self.log)
        for i, visit in enumerate(self.log):
            rules = (
                f"ON.card pre.at{i}{{display:block}}ON.card text.at{i}{{display:inline}}"
                f"ON.card .mark{i} polygon[fill=none]{{stroke:{INK};stroke-width:2.6}}"
            )
            when, change = f"visit {i + 1} of {count}", "its fact has changed" if visit.changed else "no change"
            caption = f"<b>{when}</b>: {escape(visit.block)}, {change}"
            states.append(State(f"{when}: {visit.block}, {change}", caption, rules))
        body = self.svg or f"<pre style='display:block'>{html.escape(self.text)}</pre><p>{html.escape(self.note)}</p>"
        return player(states, body, _CSS)


def flow_steps(program: Any, solution: Any, title: str = "") -> FlowSteps:
    """Step through the visits of a solver with buttons or the arrow keys, without a kernel.

    Each block shows the facts at its start and its end; changes of the visit are orange. Raises ValueError for a
    solution without visits, or a program of too many blocks to draw.
    """
    if not solution.log:
        raise ValueError(f"flow_steps: the solution of {program.name} has no visits in its log, so there are no steps.")
    if len(program.blocks) > BLOCKS:
        raise ValueError(f"flow_steps: {program.name} has {len(program.blocks)} blocks, at most {BLOCKS} are drawn.")
    return FlowSteps(program, solution, title)


def _slot(number: int, k: int) -> str:
    """Return a colour as a placeholder: it marks the position of a fact in the drawing."""
    return f"#fe{number:02x}{0xD0 + k:02x}"


def _dot(program: Any, labels: dict, title: str, facts: dict | None = None, marks: dict | None = None) -> str:
    ids = {block.name: f"b{i}" for i, block in enumerate(program.blocks)}
    lines = [
        f'digraph {{ rankdir=TB; nodesep=.45; ranksep=.5; bgcolor="transparent"; fontname="{FONT}"; fontsize=14;',
        f'  labelloc=t; labeljust=l; label=<<b>{escape(title)}</b>>; fontcolor="{INK}";',
        f'  node [shape=plain, fontname="{_MONO}", fontsize=11, fontcolor="{INK}"];',
        f'  edge [fontname="{_MONO}", fontsize=10, fontcolor="{BLUE}", color="{GREY}", arrowsize=.7];',
    ]
    for number, block in enumerate(program.blocks):
        mark = f' class="{" ".join((marks or {}).get(block.name, ()))}"' if marks else ""
        lines.append(f"  {ids[block.name]} [label=<{_box(number, block, (facts or {}).get(block.name))}>{mark}];")
    back = set(_back_edges(program))
    for block in program.blocks:
        for i, target in enumerate(block.terminator.targets):
            branch = ("yes ", "no ")[i] if len(block.terminator.targets) == 2 else ""
            label = f"{branch}{labels.get((block.name, target), '')}".strip()
            colour = f', color="{_LOOP}", penwidth=2' if (block.name, target) in back else ""
            lines.append(f'  {ids[block.name]} -> {ids[target]} [label="  {_quoted(label)}  "{colour}];')
    return "\n".join([*lines, "}"])


def _box(number: int, block: Any, facts: tuple[str, str] | None) -> str:
    """Return a block as an HTML-like table: its name, its lines, and room for the facts at its start and end."""

    def fact(k: int) -> str:
        if not facts:
            return ""
        text = escape(facts[k]) or " "
        font = f'<font color="{_slot(number, k)}" point-size="10">{text}</font>'
        return f'<tr><td align="left" bgcolor="{_FACT}">{font}</td></tr>'

    code = "".join(f'{escape(cut(str(line), WIDE))}<br align="left"/>' for line in block.instructions)
    end = f'<font color="{PALE}">{escape(cut(str(block.terminator), WIDE))}</font><br align="left"/>'
    head = f'<tr><td align="left" bgcolor="{_HEAD}"><b>{escape(block.name)}</b></td></tr>'
    body = f'<tr><td align="left" balign="left" bgcolor="#FFFFFF">{code}{end}</td></tr>'
    table = f'<table border="1" color="{GREY}" cellborder="0" cellspacing="0" cellpadding="5">'
    return f"{table}{head}{fact(0)}{body}{fact(1)}</table>"


def _quoted(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def _back_edges(program: Any) -> list[tuple[str, str]]:
    """Return the edges to a block on the current path of a depth-first walk from the entry."""
    targets = {block.name: block.terminator.targets for block in program.blocks}
    entry = program.blocks[0].name
    edges, visited, path = [], {entry}, {entry: iter(targets[entry])}
    while path:
        block, rest = next(reversed(path.items()))
        target = next(rest, None)
        if target is None:
            del path[block]
        elif target in path:
            edges.append((block, target))
        elif target not in visited:
            visited.add(target)
            path[target] = iter(targets[target])
    return edges


def hasse(
    facts: Sequence[Any], merge: Callable[[Any, Any], Any], path: Sequence[Any] = (), title: str = "Lattice"
) -> Picture:
    """Draw the lattice of some facts: a line leads up from each to the next ones above it. `path`: those in orange.

        hasse([None, {"x": 0}, {"x": 1}, {}], CONSTANTS.merge)

    A fact is below another if merging the two gives the other.
    """
    above = {i: {j for j, b in enumerate(facts) if i != j and merge(a, b) == b} for i, a in enumerate(facts)}
    texts = [fact_text(fact) for fact in facts]
    lines = [
        f'digraph {{ rankdir=BT; nodesep=.3; ranksep=.35; bgcolor="transparent"; fontname="{FONT}"; fontsize=14;',
        f'  labelloc=t; labeljust=l; label=<<b>{escape(title)}</b>>; fontcolor="{INK}";',
        f'  node [shape=box, height=.3, color="{GREY}", fontname="{_MONO}", fontsize=11, fontcolor="{INK}"];',
        f'  edge [dir=none, color="{GREY}"];',
    ]
    rows = []
    for i, higher in above.items():
        mark = f', color="{_ORANGE}", penwidth=2' if facts[i] in path else ""
        lines.append(f'  f{i} [label="{_quoted(texts[i])}"{mark}];')
        covers = [j for j in sorted(higher) if not any(j in above[k] for k in higher)]
        lines += [f"  f{i} -> f{j};" for j in covers]
        rows.append(f"{texts[i]} below {', '.join(texts[j] for j in covers) or 'nothing'}")
    return Picture("\n".join(rows), "\n".join([*lines, "}"]), title)
