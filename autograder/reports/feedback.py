"""The learner's feedback: one page for one graded notebook, scores first, then the notebook as it ran.

Everything in a notebook but the verdicts is untrusted. Source and printed text are shown as text; Markdown is rendered
with its HTML escaped, aside, and shown as text where that takes too long; pictures become data of an <img>, where
nothing runs; other HTML goes into a sandboxed frame without scripts, which cannot reach the page around it. The page's
content security policy (`templates/page.html`) forbids everything else a second time. Verdicts come from the verifier
and are shown as they are, in panels that only grading makes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import unescape
from typing import Any, NamedTuple
from urllib.parse import unquote

from markupsafe import Markup
from nbformat.notebooknode import NotebookNode

from autograder.authoring.source import HIDDEN_TESTS, RUBRIC
from autograder.engine import bounded_call
from autograder.engine.data import NotebookResult, Verdict, only_on_the_cpu
from autograder.grading.paper import Marks, marks, question
from autograder.reports import rendering
from autograder.reports.lessons import Lessons, Section
from autograder.reports.pages import cut, page, plain

#: Most characters of a page to highlight and to render.
MOST_RENDERED = 200_000
#: Most texts that are rendered once for a whole class, and most characters of the HTML of one.
MOST_KNOWN, MOST_KEPT = 2_000, 50_000
#: Most characters of attached pictures on a page: a text may show each of them many times.
MOST_PICTURES = 32 * 2**20
MOST_OUTPUTS = 200
#: nbgrader's own comment on an unchanged answer.
UNANSWERED = "No response."

#: A picture as data. No other type is shown, whatever a cell or an attachment claims.
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")
_HIDDEN = re.compile(rf"^[ \t]*{HIDDEN_TESTS.begin}.*?(?:^[ \t]*{HIDDEN_TESTS.end}[^\n]*\n?|\Z)", re.S | re.M)
_RUBRIC = re.compile(rf"^{RUBRIC.begin}.*?(?:^{RUBRIC.end}[^\n]*\n?|\Z)", re.S | re.M)
_ATTACHED = re.compile(r'src="attachment:([^"]*)"')


def feedback(nb: NotebookNode, result: NotebookResult, final: Marks | None = None) -> str:
    """Return the page for one notebook with its outputs. `final`: the final marks; default, automatic grading's."""
    return draft(nb, result)(final or marks(nb, result))


def draft(
    nb: NotebookNode, result: NotebookResult, notes: Sequence[str] = (), lessons: Lessons | None = None
) -> Callable[[Marks], str]:
    """Render the texts of one notebook with its outputs; return the function that makes the page of its final marks.

    notes: what was repaired, renamed or left out before it was graded. lessons: where the lessons are read.
    """
    parts = [_part(cell, result.verdicts.get(index)) for index, cell in enumerate(nb.cells)]
    html = _rendered(text for part in parts for text in _texts(part))
    sections = {
        at: section
        for at, verdict in result.verdicts.items()
        if verdict.points < verdict.total and (section := (lessons or Lessons()).section(verdict.exercise))
    }
    return lambda final: _page(result, parts, final, html, notes, sections)


def _page(
    result: NotebookResult,
    parts: list[_Part],
    final: Marks,
    html: Mapping[_Text, Markup | None],
    notes: Sequence[str],
    sections: Mapping[int, Section],
) -> str:
    html = {**html, **_rendered(("markdown", _written(comment)) for comment in final.comments.values())}
    room = MOST_PICTURES

    def shown(kind: str, text: str) -> Markup:
        markup = html.get((kind, text))
        if markup is None:
            markup = Markup("<pre>{}</pre>" if kind == "markdown" else '<pre class="code">{}</pre>').format(cut(text))
        return markup

    def text(source: str, attachments: Mapping[str, dict] | None = None) -> Markup:
        """Return Markdown as HTML, with the pictures of its cell, which it may show many times, up to a limit."""

        @cache
        def picture(name: str) -> str:
            """Return the picture of this name. Some editors write a blank or an umlaut in it as in an address."""
            own = attachments or {}
            return _picture(own.get(name) or own.get(unquote(unescape(name))) or {})

        def address(match: re.Match[str]) -> str:
            nonlocal room
            if room > 0:
                room -= len(picture(match[1]))
            # Without an address there is no `src`: an empty one would mean the page itself.
            return f'src="{picture(match[1])}"' if room > 0 and picture(match[1]) else ""

        return Markup(_ATTACHED.sub(address, shown("markdown", _written(source))))

    return page(
        "feedback.html",
        result=result,
        notes=notes,
        given=final,
        on_cpu=[v.exercise for _, v in sorted(result.verdicts.items()) if only_on_the_cpu(v)],
        waiting=sum(mark.points is None for mark in final.points.values()),
        parts=parts,
        sections=sections,
        plainly=any(markup is None for markup in html.values()),
        question=question,
        code=lambda source: shown("code", plain(source)) if source else Markup(),
        without_hidden=_without_hidden,
        text=text,
        picture=_picture,
        traceback=_traceback,
        UNANSWERED=UNANSWERED,
        MOST_OUTPUTS=MOST_OUTPUTS,
    )


class _Part(NamedTuple):
    """A cell on the page. `name`: its grade id; `kind`: what to show it as."""

    cell: NotebookNode
    name: str
    kind: str
    verdict: Verdict | None


def _part(cell: NotebookNode, verdict: Verdict | None) -> _Part:
    meta = cell.metadata.get("nbgrader") or {}
    if cell.cell_type != "code":
        kind = "written" if meta.get("grade") or meta.get("solution") or meta.get("task") else "text"
    elif verdict or (meta.get("grade") and not meta.get("solution")):
        kind = "check"
    else:
        kind = "answer" if meta.get("solution") else "code"
    return _Part(cell, meta.get("grade_id", ""), kind, verdict)


def _traceback(output: dict) -> str:
    lines = "\n".join(map(plain, output.get("traceback") or []))
    return lines or f"{output.get('ename')}: {output.get('evalue')}"


# Text and code

#: "code" or "markdown", and a text without control characters.
_Text = tuple[str, str]


def _without_hidden(source: str) -> str:
    return _HIDDEN.sub("", plain(source)).rstrip()


def _written(source: str) -> str:
    return _RUBRIC.sub("", plain(source))


def _texts(part: _Part) -> Iterator[_Text]:
    """Yield what a cell shows as Markdown or as code, in the order of the page."""
    source = part.cell.source
    if part.kind in ("text", "written"):
        yield "markdown", _written(source)
        return
    yield "code", plain(_without_hidden(source) if part.kind == "check" else source)
    for output in part.cell.get("outputs", [])[:MOST_OUTPUTS]:
        if text := (output.get("data") or {}).get("text/markdown"):
            yield "markdown", _written(text)


#: Of short texts: the cells of a release are the same for a whole class.
_known: dict[_Text, Markup] = {}


def _rendered(texts: Iterable[_Text]) -> dict[_Text, Markup | None]:
    """Return text → its HTML; None for one that is too long, or if all texts together took too much time or memory."""
    html_of, room = dict.fromkeys(texts), MOST_RENDERED
    todo: list[_Text] = []
    for kind, text in html_of:
        room -= len(text)
        if known := _known.get((kind, text)):
            html_of[kind, text] = known
        elif room >= 0 and len(text) <= rendering.MOST_TEXT:
            todo.append((kind, text))
    if todo:
        pages = bounded_call.call(f"{rendering.__name__}:rendered", todo) or [None] * len(todo)
        for (kind, text), html in zip(todo, pages, strict=True):
            if html is not None:
                html = Markup(f'<pre class="code">{html}</pre>' if kind == "code" else html)
                html_of[kind, text] = html
                if len(html) <= MOST_KEPT:
                    _known[kind, text] = html
    while len(_known) > MOST_KNOWN:
        del _known[next(iter(_known))]
    return html_of


# Outputs


def _picture(data: dict) -> str:
    """Return the first picture among the forms of an output, as the address of an <img>; "" if there is none."""
    return next(filter(None, (_data(mime, value) for mime, value in data.items())), "")


def _data(mime: str, value: Any) -> str:
    """Return a picture as the address of an <img>, "" for anything else. In an <img>, SVG runs and loads nothing."""
    text = "".join(value) if isinstance(value, list) else value
    if mime in _PICTURES and isinstance(text, str) and _BASE64.fullmatch(text):
        return f"data:{mime};base64,{''.join(text.split())}"
    if mime == "image/svg+xml" and isinstance(text, str):
        return f"data:{mime};base64,{base64.b64encode(plain(text).encode()).decode()}"
    return ""
