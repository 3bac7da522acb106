"""The learner's feedback: one page for one graded notebook, scores first, then the notebook as it ran.

Everything in a notebook but the verdicts is untrusted. Source and printed text are shown as text; Markdown is rendered
with its HTML escaped; pictures become data of an <img>, where nothing runs; other HTML goes into a sandboxed frame
without scripts, which cannot reach the page around it. The page's content security policy (`templates/page.html`)
forbids everything else a second time. Verdicts come from the verifier and are shown as they are, in panels that only
grading makes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from markupsafe import Markup
from nbformat.notebooknode import NotebookNode

from autograder.authoring.source import HIDDEN_TESTS, RUBRIC
from autograder.engine.data import NotebookResult, Verdict, only_on_the_cpu
from autograder.grading.paper import Marks, marks, question
from autograder.reports.pages import cut, page, plain

#: Most characters of a cell to highlight, and to render once for a whole class.
MOST_COLOURED, MOST_KEPT = 20_000, 10_000
#: Most characters of a page to highlight and to render: rendering takes time that grows faster than a text does.
MOST_RENDERED = 200_000
MOST_OUTPUTS = 200
#: nbgrader's own comment on an unchanged answer.
UNANSWERED = "No response."

#: A picture as data. No other type is shown, whatever a cell or an attachment claims.
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")
_HIDDEN = re.compile(rf"^[ \t]*{HIDDEN_TESTS.begin}.*?(?:^[ \t]*{HIDDEN_TESTS.end}[^\n]*\n?|\Z)", re.S | re.M)
_RUBRIC = re.compile(rf"^{RUBRIC.begin}.*?(?:^{RUBRIC.end}[^\n]*\n?|\Z)", re.S | re.M)
_LINKS = ("https:", "http:", "mailto:", "#")
_ATTACHED = re.compile(r'src="attachment:([^"]*)"')


def feedback(nb: NotebookNode, result: NotebookResult, given: Marks | None = None) -> str:
    """Return the page for one notebook with its outputs. `given`: the final marks; default, automatic grading's."""
    given = given or marks(nb, result)
    left = MOST_RENDERED

    def within(render: Callable[..., Markup], text: str, *more: Any) -> Markup:
        """Render a text, or show it as it is once the page has rendered enough."""
        nonlocal left
        left -= len(text)
        return render(text, *more) if left >= 0 else Markup('<pre class="code">{}</pre>').format(cut(text))

    return page(
        "feedback.html",
        result=result,
        given=given,
        got=given.core + given.extra - given.late_penalty,
        on_cpu=[v.exercise for _, v in sorted(result.verdicts.items()) if only_on_the_cpu(v)],
        waiting=sum(mark.points is None for mark in given.points.values()),
        parts=[_part(cell, result.verdicts.get(index)) for index, cell in enumerate(nb.cells)],
        question=question,
        code=lambda source: within(_code, plain(source)),
        without_hidden=lambda source: _HIDDEN.sub("", plain(source)).rstrip(),
        text=lambda source, attachments=None: within(_text, _RUBRIC.sub("", plain(source)), attachments),
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


class _Tools(NamedTuple):
    """What renders Markdown, splits Python into tokens, and formats them."""

    render: Callable[[str], str]
    lexer: Any
    formatter: Any


@cache
def _tools() -> _Tools:
    import mistune
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    class Renderer(mistune.HTMLRenderer):
        """Links lead to the web only. A picture that is not attached is one: loading it tells who reads the page."""

        def image(self, text: str, url: str, title: str | None = None) -> str:
            return (super().image if url.startswith("attachment:") else self.link)(text, url, title)

        def link(self, text: str, url: str, title: str | None = None) -> str:
            return super().link(text, url if url.lower().startswith(_LINKS) else "#", title)

    renderer = Renderer(escape=True, allow_harmful_protocols=["attachment:"])
    render = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough", "math"])
    return _Tools(render, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True))


def _remember(render):
    """Cache the results for short texts: the cells of a release are the same for a whole class."""
    remembered = lru_cache(2_000)(render)
    return lambda text: (remembered if len(text) <= MOST_KEPT else render)(text)


@_remember
def _code(source: str) -> Markup:
    if not source:
        return Markup()
    if len(source) > MOST_COLOURED:
        return Markup('<pre class="code">{}</pre>').format(cut(source))
    from pygments import highlight

    tools = _tools()
    return Markup(f'<pre class="code">{highlight(source, tools.lexer, tools.formatter)}</pre>')


@_remember
def _markdown(text: str) -> Markup:
    if len(text) <= MOST_COLOURED:
        try:
            return Markup(_tools().render(text))
        except Exception:  # the renderer failed on the text: it is shown as it is
            pass
    return Markup("<pre>{}</pre>").format(cut(text))


def _text(text: str, attachments: Mapping[str, dict] | None = None) -> Markup:
    """Return Markdown as HTML, with the attachments of its cell inserted."""
    made = _markdown(text)
    return Markup(_ATTACHED.sub(lambda found: f'src="{_picture((attachments or {}).get(found[1]) or {})}"', made))


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
