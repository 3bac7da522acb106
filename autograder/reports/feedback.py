"""The learner's feedback: one page for one graded notebook, scores first, then the notebook as it ran.

Everything in a notebook but the verdicts is a stranger's text. Source and printed text are shown as text; Markdown is
rendered with its HTML escaped; pictures become data of an <img>, where nothing runs; other HTML goes into a sandboxed
frame without scripts, which cannot reach the page around it. The page's own policy (`pages.page`) forbids everything
else a second time. Verdicts come from the verifier and are shown as they are, in panels that only grading makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from nbformat.notebooknode import NotebookNode

from autograder.engine.data import NotebookResult
from autograder.reports.pages import BAD, BLUE, GOOD, INK, LINE, PALE, PAPER, bar, cut, esc, number, page, plain

#: More characters of one output, or of one cell, are not shown; cells of up to MOST_KEPT are rendered once for a class.
MOST_TEXT, MOST_COLOURED, MOST_KEPT = 50_000, 20_000, 10_000
MOST_OUTPUTS = 200
#: nbgrader's own comment on an answer that is as it was released.
UNANSWERED = "No response."

_CSS = f"""
header p{{margin:.2rem 0}}
.total{{font-size:1.15rem;font-weight:600}}
.cell{{margin:.9rem 0}}
.cell,.out{{contain:paint;overflow-wrap:anywhere}}
.code{{background:{PAPER};border:1px solid {LINE};border-radius:6px;margin:0;padding:.6rem .8rem;overflow-x:auto}}
.answer,.check,.written{{border:1px solid {LINE};border-radius:8px;margin:1.1rem 0;overflow:hidden}}
.check{{border-color:{INK}}}
.answer>h3,.check>h3,.written>h3{{display:flex;gap:1rem;justify-content:space-between;margin:0;padding:.45rem .8rem;
background:{PAPER};border-bottom:1px solid {LINE};font-size:.92rem}}
.check>h3{{background:{INK};color:#fff}}
.check>h3 a{{color:#fff;font-weight:400}}
.answer .code{{border:0;border-radius:0;background:#fff}}
.body{{padding:.7rem .8rem}}
.body>.code,.body>.out{{margin:0 0 .6rem}}
.misconception{{border-left:4px solid {BLUE};margin:.7rem 0 0;padding:.1rem 0 .1rem .7rem}}
.crash{{border-left:4px solid {BAD};margin:.7rem 0 0;padding:.1rem 0 .1rem .7rem}}
.comment{{border-top:1px solid {LINE};padding:.5rem .8rem}}
.comment p{{margin:.2rem 0}}
.out{{border-left:3px dotted {LINE};margin:.5rem 0 0 .2rem;padding:0 0 0 .8rem}}
.out pre{{margin:0;white-space:pre-wrap;max-height:30rem;overflow:auto}}
.out.error{{border-left:3px solid {BAD}}}
.out img{{max-width:100%;height:auto;display:block}}
.out iframe{{display:block;width:100%;height:16rem;border:0}}
.out>small{{display:block}}
.text{{max-width:48rem}}
.text img{{max-width:100%}}
.text pre{{background:{PAPER};padding:.6rem .8rem;border-radius:6px;overflow-x:auto}}
.text h1,.text h2,.text h3{{line-height:1.3}}
.good{{color:{GOOD}}}.bad{{color:{BAD}}}
.k,.kn,.kc,.ow,.kd{{color:#8250df}}.s1,.s2,.sd,.sa,.si,.se{{color:#0a5c2f}}.c1,.ch{{color:{PALE}}}
.mi,.mf{{color:#0b5cad}}.nf,.nc,.nd,.fm{{color:#953800}}
"""

#: Frames become as high as what is in them. They hold no scripts, so there is nothing in them to trust.
_SCRIPT = (
    "for(const f of document.querySelectorAll('iframe')){const fit=()=>{try{"
    "const h=Number(f.contentDocument.documentElement.scrollHeight);"
    "f.style.height=Math.min(Math.max(h||0,24),900)+'px'}catch{}};f.addEventListener('load',fit);fit()}"
)
_FRAME = "<!DOCTYPE html><style>body{margin:0;font:14px/1.5 system-ui,sans-serif;color:%s}</style>" % INK  # noqa: UP031

_COLUMNS = {"question": "", "points": " class=n", "": "", "what was found": ""}

#: A picture as data. No other type is shown, whatever a cell or an attachment claims.
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")
_HIDDEN = re.compile(r"^[ \t]*### BEGIN HIDDEN TESTS.*?(?:^[ \t]*### END HIDDEN TESTS[^\n]*\n?|\Z)", re.S | re.M)
_ATTACHED = re.compile(r'src="attachment:([^"]*)"')


@dataclass(frozen=True)
class Marks:
    """What a notebook got. `points`: grade id → (points, or None as long as a person has to grade it; of how many).
    `comments`: grade id → what a grader wrote about it."""

    points: Mapping[str, tuple[float | None, float]] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    late_penalty: float = 0.0


def marks(nb: NotebookNode, result: NotebookResult) -> Marks:
    """What grading by itself gives a notebook, before anyone else has looked at it."""
    found: dict[str, tuple[float | None, float]] = {}
    for index, cell in enumerate(nb.cells):
        meta = _meta(cell)
        if meta.get("grade") or meta.get("task"):
            verdict, ran, points = result.verdicts.get(index), result.ran.get(index), None
            if verdict:
                points = verdict.points
            elif ran and not meta.get("solution"):
                points = 0.0 if ran.error or ran.died else float(meta["points"])
            found[meta["grade_id"]] = (points, float(meta.get("points", 0)))
    return Marks(found)


def feedback(nb: NotebookNode, result: NotebookResult, given: Marks | None = None) -> str:
    """The page for one notebook that holds its outputs. `given`: what counts; else what grading by itself gives."""
    given = given or marks(nb, result)
    cells = "".join(_cell(index, cell, result, given) for index, cell in enumerate(nb.cells))
    title = f"{result.notebook} · {result.assignment} · {result.learner}"
    return page(title, _header(nb, result, given) + f"<main>{cells}</main>", _CSS, _SCRIPT, result.unsafe)


def _meta(cell: NotebookNode) -> dict:
    return cell.metadata.get("nbgrader") or {}


def _header(nb: NotebookNode, result: NotebookResult, given: Marks) -> str:
    got = sum(points or 0.0 for points, _ in given.points.values()) - given.late_penalty
    of = sum(most for _, most in given.points.values())
    waiting = sum(points is None for points, _ in given.points.values())
    lines = [f"<h1>{esc(result.notebook)}</h1><p class=pale>{esc(result.assignment)} · {esc(result.learner)}</p>"]
    lines.append(f'<p class="total">{number(got)} of {number(of)} points</p>')
    lines.append(
        "<p class=pale>Points count where they stand in a black frame; all else was shown by the notebook.</p>"
    )
    if waiting:
        lines.append(f"<p>{waiting} of the answers {'is' if waiting == 1 else 'are'} still to be read by a person.</p>")
    if result.failure:
        lines.append(f'<p class="crash">This notebook could not be graded: {esc(result.failure)}</p>')
    rows = "".join(_rows(nb, result, given))
    if given.late_penalty:
        off = f"<td class=n>−{number(given.late_penalty)}</td>"
        rows += f"<tr><td>Handed in late</td>{off}<td></td><td></td></tr>"
    if rows:
        head = "".join(f"<th scope=col{kind}>{name}</th>" for name, kind in _COLUMNS.items())
        head = f"<caption hidden>Points for each question</caption><thead><tr>{head}</tr></thead>"
        lines.append(f"<table>{head}<tbody>{rows}</tbody></table>")
    return f'<header id="top">{"".join(lines)}</header>'


def _rows(nb: NotebookNode, result: NotebookResult, given: Marks) -> Iterator[str]:
    for index, cell in enumerate(nb.cells):
        name = _meta(cell).get("grade_id", "")
        if name in given.points:
            points, most = given.points[name]
            verdict = result.verdicts.get(index)
            said = "to be graded" if points is None else ""
            if verdict:
                right = "right" if verdict.points >= verdict.total else "no points yet"
                said = verdict.crash or verdict.misconception or verdict.message or right
            link = f'<a href="#{esc(name)}">{esc(name.removesuffix("-check"))}</a>'
            share = bar((points or 0.0) / most if most else 0.0)
            got = f"<td class=n>{number(points)} of {number(most)}</td><td>{share}</td>"
            yield f"<tr><td>{link}</td>{got}<td>{esc(said)}</td></tr>"
        comment = given.comments.get(name)
        if comment and comment != UNANSWERED:  # of an empty answer the row of its check says so
            link = f'<a href="#comment-{esc(name)}">Comment</a>'
            yield f"<tr><td>{link}</td><td></td><td></td><td>on {esc(name)}</td></tr>"


def _cell(index: int, cell: NotebookNode, result: NotebookResult, given: Marks) -> str:
    meta = _meta(cell)
    if cell.cell_type != "code":
        inside = f'<div class="text">{_text(cell)}</div>'
        if meta.get("grade") or meta.get("solution") or meta.get("task"):
            return _panel("written", "Your answer", meta, f'<div class="body">{inside}</div>', given)
        return f'<div class="cell">{inside}</div>'
    if index in result.verdicts:
        return _check(index, cell, meta, result, given)
    shown = "".join(_outputs(cell.get("outputs", [])))
    if meta.get("grade") and not meta.get("solution"):
        source = _code(_HIDDEN.sub("", plain(cell.source)).rstrip())
        return _panel("check", "Check", meta, f'<div class="body">{source}{shown}</div>', given)
    source = _code(plain(cell.source))
    if meta.get("solution"):
        outputs = f'<div class="body">{shown}</div>' if shown else ""
        return _panel("answer", "Your answer", meta, source + outputs, given)
    return f'<div class="cell">{source}{shown}</div>'


def _check(index: int, cell: NotebookNode, meta: dict, result: NotebookResult, given: Marks) -> str:
    """The panel of a question: only the check that the learner saw, and the verifier's card."""
    verdict = result.verdicts[index]
    body = _code(_HIDDEN.sub("", plain(cell.source)).rstrip()) + verdict.html
    if verdict.misconception:
        body += f'<p class="misconception"><b>What this looks like:</b> {esc(verdict.misconception)}.</p>'
    if verdict.crash and verdict.crash != verdict.message:
        body += f'<p class="crash">{esc(verdict.crash)}</p>'
    return _panel("check", "Check", meta, f'<div class="body">{body}</div>', given)


def _panel(kind: str, title: str, meta: dict, body: str, given: Marks) -> str:
    name = meta.get("grade_id", "")
    anchor = f' id="{esc(name)}"' if name in given.points else ""
    points = ""
    if name in given.points:
        got, most = given.points[name]
        points = f"{number(got)} of {number(most)} points · "
    heading = (
        f'<h3><span>{title}: {esc(name.removesuffix("-check"))}</span><span>{points}<a href="#top">Top</a></span></h3>'
    )
    comment = given.comments.get(name) or ""
    if comment:
        comment = f'<div class="comment" id="comment-{esc(name)}"><b>Comment</b>{_markdown(plain(comment))}</div>'
    return f'<section class="{kind}"{anchor}>{heading}{body}{comment}</section>'


# Text and code


@cache
def _tools() -> tuple[Any, Any, Any]:
    """Markdown to HTML, a lexer for Python, and what colours its tokens: made once."""
    import mistune
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    renderer = mistune.HTMLRenderer(escape=True, allow_harmful_protocols=["attachment:"])
    render = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough", "math"])
    return render, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)


def _kept(render):
    """Remember what short texts become: the cells of a release are the same for a whole class."""
    remembered = lru_cache(2_000)(render)
    return lambda text: (remembered if len(text) <= MOST_KEPT else render)(text)


@_kept
def _code(source: str) -> str:
    if not source:
        return ""
    if len(source) > MOST_COLOURED:
        return f'<pre class="code">{esc(cut(source, MOST_TEXT))}</pre>'
    from pygments import highlight

    _, lexer, formatter = _tools()
    return f'<pre class="code">{highlight(source, lexer, formatter)}</pre>'


@_kept
def _markdown(text: str) -> str:
    if len(text) <= MOST_COLOURED:
        try:
            return _tools()[0](text)
        except Exception:  # so odd a text that the renderer gave up: it is shown as it is
            pass
    return f"<pre>{esc(cut(text, MOST_TEXT))}</pre>"


def _text(cell: NotebookNode) -> str:
    """A text cell, with its attachments put into it."""
    attachments = cell.get("attachments") or {}

    def attached(found: re.Match) -> str:
        shown = [_data(mime, data) for mime, data in (attachments.get(found[1]) or {}).items()]
        return f'src="{next(filter(None, shown), "")}"'

    return _ATTACHED.sub(attached, _markdown(plain(cell.source)))


# Outputs


def _data(mime: str, value: Any) -> str:
    """A picture as the address of an <img>, "" for anything else. In an <img>, SVG runs and loads nothing."""
    text = "".join(value) if isinstance(value, list) else value
    if mime in _PICTURES and isinstance(text, str) and _BASE64.fullmatch(text):
        return f"data:{mime};base64,{''.join(text.split())}"
    if mime == "image/svg+xml" and isinstance(text, str):
        import base64

        return f"data:{mime};base64,{base64.b64encode(plain(text).encode()).decode()}"
    return ""


def _outputs(outputs: list) -> Iterator[str]:
    for output in outputs[:MOST_OUTPUTS]:
        kind = output.get("output_type")
        if kind == "stream":
            yield _out(f"<pre>{esc(cut(plain(output.get('text', '')), MOST_TEXT))}</pre>")
        elif kind == "error":
            lines = "\n".join(map(plain, output.get("traceback") or []))
            text = lines or f"{output.get('ename')}: {output.get('evalue')}"
            yield _out(f"<pre>{esc(cut(text, MOST_TEXT))}</pre>", " error")
        elif kind in ("display_data", "execute_result"):
            yield _out(_shown(output.get("data") or {}))
    if len(outputs) > MOST_OUTPUTS:
        yield _out(f"<small>… {len(outputs):,} outputs in all</small>")


def _out(inside: str, kind: str = "") -> str:
    return f'<div class="out{kind}">{inside}</div>' if inside else ""


def _shown(data: dict) -> str:
    """The richest form of an output that can be shown safely."""
    if "text/html" in data:
        source = esc(_FRAME + plain(data["text/html"]))
        # Same origin, so that the page can ask how high it is; without allow-scripts nothing runs in it.
        return f'<iframe sandbox="allow-same-origin" title="Output of this cell" srcdoc="{source}"></iframe>'
    for mime, value in data.items():
        if address := _data(mime, value):
            return f'<img alt="Output of this cell" src="{address}">'
    if "text/markdown" in data:
        return f'<div class="text">{_ATTACHED.sub("", _markdown(plain(data["text/markdown"])))}</div>'
    return f"<pre>{esc(cut(plain(data['text/plain']), MOST_TEXT))}</pre>" if "text/plain" in data else ""
