"""Buffers to place by hand, by dragging or by keys, and first fit step by step.

    place(buffers)                             # drag each buffer, or move it with the arrow keys
    first_fit_steps(buffers, ORDERS["size"])   # where first fit places each, and why there

Both are HTML that needs no kernel. Their text form says the same without a picture.
"""

from __future__ import annotations

import html
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from passlab.drawing.picture import CARD, INK, Picture, element
from passlab.drawing.player import State, player
from passlab.judge.words import plural
from passlab.memory.allocate import ORDERS, Order, first_fit
from passlab.memory.buffers import Buffer, height, lower_bound

#: Pixels of a step and of a byte, and the room for the numbers of the offsets, beside and above the boxes.
STEP, BYTE, LEFT, HEAD = 56, 22, 28, 24
#: At most this many buffers, steps and bytes of all buffers together.
MOST = (20, 20, 60)
_SHADE, _NEW, _CLASH = "#DCE9F5", "#F6D9A8", "#D55E00"


class Grid(NamedTuple):
    """The plane of steps and bytes in which buffers are rectangles."""

    first: int
    steps: int
    nbytes: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return LEFT + self.steps * STEP + 2, (self.nbytes + 1) * BYTE

    def rectangle(self, buffer: Buffer, **attributes: str) -> str:
        """Return a buffer at offset 0 as an SVG group; a translation by -BYTE pixels is a byte up."""
        x, y = LEFT + (buffer.lower - self.first) * STEP, (self.nbytes - buffer.size) * BYTE
        width, tall = (buffer.upper - buffer.lower) * STEP, buffer.size * BYTE
        box = element("rect", x=x, y=y, width=width, height=tall, rx=3, fill=_SHADE, stroke=INK)
        label = element("text", html.escape(buffer.name), x=x + width / 2, y=y + tall / 2 + 5, text_anchor="middle")
        return element("g", box, label, **attributes)

    def frame(self, bound: int) -> str:
        """Return the axes: steps to the right, offsets upwards, and the bound as a dashed line."""
        width, bottom = LEFT + self.steps * STEP, self.nbytes * BYTE
        parts = [element("text", "offset in bytes", x=0, y=12 - HEAD, font_size=11)]
        parts.append(element("text", "step", x=LEFT - 6, y=bottom + 15, text_anchor="end", font_size=11))
        for step in range(self.steps):
            middle, number = LEFT + step * STEP + STEP / 2, str(self.first + step)
            parts.append(element("text", number, x=middle, y=bottom + 15, text_anchor="middle", font_size=11))
        for offset in range(0, self.nbytes + 1, 2):
            y = bottom - offset * BYTE
            parts.append(element("text", str(offset), x=LEFT - 6, y=y + 4, text_anchor="end", font_size=11))
            parts.append(element("line", x1=LEFT, x2=width, y1=y, y2=y, stroke="#eee"))
        y = bottom - bound * BYTE
        parts.append(element("line", x1=LEFT, x2=width, y1=y, y2=y, stroke=INK, stroke_dasharray="6 4"))
        return "".join(parts)

    def svg(self, content: str, name: str, role: str) -> str:
        """Return an SVG of this plane. role: "img", or "group" if its parts can be operated."""
        width, tall = self.size
        style = f"max-width:{width}px;width:100%;touch-action:none;font:13px Helvetica,Arial,sans-serif"
        box = f"0 {-HEAD} {width} {tall + HEAD}"
        return element("svg", content, viewBox=box, role=role, aria_label=name, style=style)


def _grid(buffers: Sequence[Buffer]) -> Grid:
    """Return a plane that holds all buffers on top of each other. Raises ValueError for too many, or none."""
    first = min((b.lower for b in buffers), default=0)
    grid = Grid(first, max((b.upper for b in buffers), default=0) - first, sum(b.size for b in buffers))
    counts = (len(buffers), grid.steps, grid.nbytes)
    if not buffers or any(count > most for count, most in zip(counts, MOST, strict=True)):
        raise ValueError(
            f"{counts[0]} buffers in {counts[1]} steps with {counts[2]} bytes cannot be placed by hand: choose 1 to "
            f"{MOST[0]} buffers, at most {MOST[1]} steps, and at most {MOST[2]} bytes together."
        )
    return grid


def _span(lower: int, upper: int) -> str:
    """Return the numbers from `lower` up to `upper`, which is not one of them: "2 to 6"."""
    return str(lower) if upper - lower == 1 else f"{lower} to {upper - 1}"


def _row(buffer: Buffer) -> str:
    steps = "step" if buffer.upper - buffer.lower == 1 else "steps"
    return f"{buffer.name}: {plural(buffer.size, 'byte')}, {steps} {_span(buffer.lower, buffer.upper)}"


class Place(Picture):
    """The result of `place`."""

    suffixes: Any = (".html", ".txt")

    def __init__(self, buffers: Sequence[Buffer], title: str):
        self.buffers, self.grid, self.bound = list(buffers), _grid(buffers), lower_bound(buffers)
        lines = [title, *map(_row, buffers), f"No arena is smaller than {self.bound} bytes."]
        lines.append(
            "With offsets of yours: check(buffers, offsets), height(buffers, offsets) of passlab.memory.buffers."
        )
        super().__init__("\n".join(lines), "", title)

    @property
    def html(self) -> str:
        one = f"place{uuid.uuid4().hex[:8]}"
        boxes = "".join(
            self.grid.rectangle(b, role="slider", tabindex="0", aria_label=_row(b), aria_orientation="vertical")
            for b in self.buffers
        )
        facts = {
            "buffers": [[b.name, b.lower, b.upper, b.size] for b in self.buffers],
            "bound": self.bound,
            "most": self.grid.nbytes,
            "byte": BYTE,
            "clash": _CLASH,
        }
        drawing = self.grid.svg(self.grid.frame(self.bound) + boxes, self.title, "group")
        data = json.dumps(facts).replace("<", "\\u003c")  # `<!--<script>` would keep the script open
        return (
            f'<div id="{one}" data-lm-suppress-shortcuts="true" style="{CARD}"><b>{html.escape(self.title)}</b>'
            "<p>Drag a buffer up or down, or move to it with Tab and use the arrow keys, Home and End. Time is fixed."
            f' <button type="button">Start again</button></p>{drawing}<p role="status"></p>'
            '<code style="color:inherit;background:none"></code>'
            f"<noscript><pre>{html.escape(self.text)}</pre></noscript></div>"
            f"<script>(() => {{{_script()}\nplace(document.getElementById({json.dumps(one)}), {data});}})();</script>"
        )


def _script() -> str:
    return Path(__file__).with_name("templates").joinpath("placing.js").read_text(encoding="utf-8")


def place(buffers: Sequence[Buffer], title: str = "Place these buffers") -> Place:
    """Show buffers, on top of each other at first, to be moved to better offsets by dragging or by keys.

    The status line has the height of the arena, the bound, and which buffers overlap; below it stand the offsets, to be
    copied. Raises ValueError for more than a screen holds.
    """
    return Place(buffers, title)


class FitSteps(Picture):
    """The result of `first_fit_steps`."""

    suffixes: Any = (".html", ".txt")

    def __init__(self, buffers: Sequence[Buffer], order: Order, title: str):
        self.buffers, self.offsets = sorted(buffers, key=order), first_fit(buffers, order)
        self.bound = lower_bound(buffers)
        self.grid = _grid(buffers)._replace(nbytes=height(buffers, self.offsets))
        super().__init__("\n".join([title, *map(self._line, range(len(buffers)))]), "", title)

    def _line(self, i: int) -> str:
        """Return the step in which buffer `i` is placed, in words."""
        buffer, before = self.buffers[i], self.buffers[:i]
        live = [b for b in before if b.lower < buffer.upper and buffer.lower < b.upper]
        places = sorted((self.offsets[b.name], self.offsets[b.name] + b.size, b.name) for b in live)
        neighbours = ", ".join(f"{name} at {_span(start, end)}" for start, end, name in places)
        offset, top = self.offsets[buffer.name], height(self.buffers[: i + 1], self.offsets)
        reason = f"live with it: {neighbours}" if neighbours else "nothing is live with it"
        lead = f"{i + 1}/{len(self.buffers)}  {_row(buffer)}; {reason}"
        return f"{lead}. Lowest free offset: {offset}. Height {top}, bound {self.bound}."

    @property
    def html(self) -> str:
        boxes, states = [], []
        for i, buffer in enumerate(self.buffers):
            box = self.grid.rectangle(buffer, class_=f"b{i}")
            up = -BYTE * self.offsets[buffer.name]
            boxes.append(element("g", box, transform=f"translate(0 {up})"))
            later = ",".join(f"ON.card .b{j}" for j in range(i + 1, len(self.buffers)))
            rules = f"ON.card .b{i} rect{{fill:{_NEW}}}" + (f"{later}{{display:none}}" if later else "")
            states.append(State(f"{i + 1} of {len(self.buffers)}: {buffer.name}", html.escape(self._line(i)), rules))
        drawing = self.grid.svg(self.grid.frame(self.bound) + "".join(boxes), self.title, "img")
        return player(states, drawing, title=self.title)


def first_fit_steps(
    buffers: Sequence[Buffer], order: Order = ORDERS["size"], title: str = "First fit, buffer by buffer"
) -> FitSteps:
    """Step through first fit with buttons or the arrow keys: each buffer in the order, and why it is placed there.

    Raises ValueError for more buffers than a screen holds.
    """
    return FitSteps(buffers, order, title)
