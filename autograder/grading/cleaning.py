"""Render and clean what nbgrader's pages show of learners. It runs aside: these functions are called there."""

from __future__ import annotations

import re
from functools import cache

from bleach import ALLOWED_TAGS, Cleaner
from bleach.css_sanitizer import CSSSanitizer
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

_TAGS = {
    *ALLOWED_TAGS, "p", "h1", "h2", "h3", "h4", "h5", "h6", "br", "hr", "pre", "div", "span", "img", "del", "sub",
    "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "details", "summary", "dl", "dt", "dd", "sup",
}  # fmt: skip
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*")
#: The classes of highlighted code. Others are formgrader's: it does things when they are clicked.
_CLASS = re.compile(r"highlight|[a-z][a-z0-9]?")


def _allowed(tag: str, name: str, value: str) -> bool:
    match tag, name:
        case "img", "src":
            return bool(_PICTURE.fullmatch(value))
        case "a", "href":
            return value.startswith(("https:", "http:", "mailto:", "#"))
        case (("span" | "div" | "pre"), "class"):
            return bool(_CLASS.fullmatch(value))
    return name in ("alt", "title", "style", "align", "colspan", "rowspan", "start")


def cleaned(text: str) -> str:
    """Return HTML without what runs, loads, or takes the place of the page around it."""
    cleaner = Cleaner(
        _TAGS, _allowed, ["http", "https", "mailto", "data"], strip_comments=True, css_sanitizer=CSSSanitizer()
    )
    return cleaner.clean(text)


def rendered(source: str, attachments: dict) -> str:
    """Return Markdown as clean HTML."""
    return cleaned(MarkdownWithMath(renderer=IPythonRenderer(escape=False, attachments=attachments)).render(source))


@cache
def _highlighter() -> Highlight2HTML:
    return Highlight2HTML(pygments_lexer="ipython3")


def highlighted(source: str) -> str:
    """Return code as HTML."""
    return _highlighter()(source)
