"""A picture: DOT, its SVG (by Graphviz), and a text form."""

from __future__ import annotations

import html
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

#: Time limit for Graphviz. A picture within the limits of the drawing functions takes well under a second.
WAIT_SECONDS = 15

INK, PALE, BLUE, GREY = "#1A1A1A", "#5F5F5F", "#0072B2", "#8A8A8A"
#: Graphviz measures with the first font that it finds; Helvetica, Arial and Liberation Sans have equal widths.
FONT = "Helvetica,Arial,Liberation Sans,sans-serif"
#: White in JupyterLab's light and dark theme alike.
CARD = (
    f"background:#fff;color:{INK};color-scheme:light;border:1px solid #ddd;border-radius:8px;padding:8px;margin:4px 0;"
    "max-height:52rem;overflow:auto"
)
#: For screen readers: the name of a picture without a title.
NAMELESS = "A drawing"
NO_DOT = (
    "Graphviz's `dot` was not found, so there is only text: install it (apt install graphviz, brew install graphviz, "
    "or conda install graphviz) and run this again."
)


class Picture:
    """A picture for a notebook, with a text form for systems without Graphviz.

    `text` is its text form, `svg` the drawing ("" if Graphviz fails), `note` names omissions and problems. `tips` are
    the tooltips of the boxes n0, n1, … of `dot`.
    """

    #: Formats of `save`.
    suffixes = (".svg", ".png", ".html", ".txt", ".dot")

    def __init__(self, text: str, dot: str, title: str = "", note: str = "", tips: Sequence[str] = ()):
        self.text, self.dot, self.title, self._note, self._tips = text, dot, title, note, tips

    @cached_property
    def _drawn(self) -> tuple[str, str]:
        """Return (SVG, "") or ("", the reason for its absence); ("", "") for a picture that is HTML of its own."""
        svg, problem = self._render("svg")
        return (_embeddable(svg.decode(), self.title, self._tips) if svg else "", problem)

    def _render(self, form: str) -> tuple[bytes, str]:
        """Return (the picture as svg or png, "") or (b"", the reason for its absence)."""
        return graphviz(self.dot, form) if self.dot else (b"", "")

    @property
    def svg(self) -> str:
        return self._drawn[0]

    @property
    def note(self) -> str:
        return " ".join(filter(None, (self._note, self._drawn[1])))

    @property
    def html(self) -> str:
        """The picture on a white card."""
        if self.svg:
            return f'<div tabindex="0" style="{CARD}">{self.svg}</div>'
        note = f'<p style="margin:4px 0">{html.escape(self.note)}</p>' if self.note else ""
        text = f'<pre style="color:{INK};background:none">{html.escape(self.text)}</pre>'
        return f'<div tabindex="0" style="{CARD}">{text}{note}</div>'

    def save(self, path: str | Path) -> Path:
        """Write the picture to `path` in the format of its suffix.

        Raises ValueError for an unknown suffix, and RuntimeError if Graphviz is missing or fails.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in self.suffixes:
            raise ValueError(f"A picture can be saved as {', '.join(self.suffixes)}; got {path.name!r}.")
        if suffix == ".png":
            content, problem = self._render("png")
        else:
            name = {".txt": "plain"}.get(suffix, suffix[1:])
            content, problem = f"{getattr(self, name)}\n".encode(), self._drawn[1] if suffix == ".svg" else ""
        if problem:
            raise RuntimeError(f"{path} was not written. {problem} The .txt form needs no Graphviz.")
        path.write_bytes(content)
        return path

    @property
    def plain(self) -> str:
        """The text form with its note."""
        return "\n".join(filter(None, (self.text, self._note)))

    def __repr__(self) -> str:
        return self.plain

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": "\n".join(filter(None, (self.text, self.note)))}


def graphviz(source: str, form: str) -> tuple[bytes, str]:
    """Run `dot`; return (its output, "") or (b"", why it failed)."""
    dot = shutil.which("dot")
    if dot is None:
        return b"", NO_DOT
    command = [dot, f"-T{form}", *(["-Gdpi=192"] if form == "png" else [])]
    try:
        process = subprocess.run(command, input=source.encode(), capture_output=True, timeout=WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        reason = f"`dot` was still working after {WAIT_SECONDS} s"
        return b"", f"{reason}: a smaller limit, as in draw(g, limit=50), groups more."
    if process.returncode or not process.stdout:
        message = process.stderr.decode(errors="replace").strip().split("\n")[0][:200]
        return b"", f"`dot` failed ({message or f'exit status {process.returncode}'}), so there is only text."
    return process.stdout, ""


def _embeddable(svg: str, title: str, tips: Sequence[str]) -> str:
    """Adapt SVG to a page: without prolog, global style and ids, with tooltips, a name, and an adaptive size."""
    name = escape(title or NAMELESS)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\n?|<metadata>.*?</metadata>\n?|<defs>\s*<style.*?</defs>\n?", "", svg, flags=re.S)

    def tip(match: re.Match) -> str:
        return f"<title>{escape(tips[int(match[1])])}</title>" if match[1] else ""

    svg = re.sub(r"<title>(?:n(\d+)|[^<]*)</title>\n?", tip, svg)
    svg = re.sub(r'<g id="(?:tip(\d+)">|[^"]*")', lambda match: f"<g>{tip(match)}" if match[1] else "<g", svg)

    def head(match: re.Match) -> str:
        links, *points = match.groups()
        wide, high = (round(float(point) * 4 / 3) for point in points)
        style = f"width:100%;max-width:{wide}px;min-width:{min(wide, max(320, wide * 6 // 10))}px;height:auto"
        return f'<svg{links} role="img" aria-label="{name}" width="{wide}" height="{high}" style="{style}"'

    svg = re.sub(r'<svg( xmlns:xlink="[^"]*"|) width="([\d.]+)pt" height="([\d.]+)pt"', head, svg, count=1)
    return svg.replace(">", f"><title>{name}</title>", 1).strip()


def element(tag: str, *content: str, **attributes: Any) -> str:
    """Return an element of SVG, as in element("text", "x", font_size=9). Content is markup; None omits an attribute."""
    words = [tag]
    for name, value in attributes.items():
        if value is not None:
            text = f"{round(value, 2):g}" if isinstance(value, float) else escape(value)
            words.append(f'{name.rstrip("_").replace("_", "-")}="{text}"')
    return f"<{' '.join(words)}>{''.join(content)}</{tag}>" if content else f"<{' '.join(words)}/>"


def canvas(width: float, height: float, title: str, *content: str, **attributes: Any) -> str:
    """Return a drawing as SVG on white that adapts to the width of its page."""
    width, height, name = math.ceil(width), math.ceil(height), title or NAMELESS
    style = f"width:100%;max-width:{width}px;min-width:{min(width, 320)}px;height:auto"
    attributes |= {"viewBox": f"0 0 {width} {height}", "width": width, "height": height, "font_family": FONT}
    background = element("rect", width=width, height=height, fill="#fff")
    content = (element("title", escape(name)), background, *content)
    look = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria_label": name, "style": style}
    return element("svg", *content, **look, **attributes)


def escape(text: Any) -> str:
    """Escape any text for XML; unprintable characters become spaces."""
    return html.escape(printable(text))


def printable(text: Any) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text))


def cut(text: str, limit: int) -> str:
    """Cut text to `limit` characters, with … in place of the rest."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def size(count: float | None) -> str:
    """Format a number of bytes as 784 KiB; "" if unknown."""
    if count is None:
        return ""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(count) >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    number = f"{count:.0f}" if abs(count) >= 100 else f"{count:.1f}".removesuffix(".0")
    return f"{number} {units[0]}"


def rows(*lines: str) -> str:
    """Stack lines of marked-up text as an HTML-like label."""
    cells = "".join(f'<tr><td align="left">{line}</td></tr>' for line in lines if line)
    return f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{cells or "<tr><td></td></tr>"}</table>>'


def small(marked_up: str, colour: str = PALE, points: int = 9) -> str:
    return f'<font point-size="{points}" color="{colour}">{marked_up}</font>' if marked_up else ""


def bold(text: str) -> str:
    """Return plain text in bold; a space for "", because Graphviz rejects an empty tag."""
    return f"<b>{escape(text) or '&#160;'}</b>"
