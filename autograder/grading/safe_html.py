"""What nbgrader's pages (`nbgrader generate_feedback`, formgrader) show of learners: nothing in it runs or loads.

These pages lie in the instructor's origin, where a script could act as the instructor. Markdown is cleaned after it has
been rendered, outputs before; pictures are data of an <img>, where nothing runs; metadata that are not nbgrader's go.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

from bleach import ALLOWED_TAGS, Cleaner
from bleach.css_sanitizer import CSSSanitizer
from jinja2 import pass_context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbgrader.server_extensions.formgrader.base import BaseHandler
from traitlets import Bool

from autograder.grading.intake import VERDICT

#: Longer texts, in characters, are shown as text: rendering takes time that grows faster than they do.
MOST_RENDERED = 20_000
#: The most HTML of one output, and of a whole page its HTML and its Markdown, that is rendered; see `_weight`.
MOST_HTML, MOST_PAGE = 100_000, 500_000

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


def clean(text: str) -> str:
    """Return HTML without what runs, loads, or takes the place of the page around it."""
    if _weight(text) > MOST_HTML:
        return f"<p>{len(text):,} characters of HTML are not shown.</p>"
    cleaner = Cleaner(
        _TAGS, _allowed, ["http", "https", "mailto", "data"], strip_comments=True, css_sanitizer=CSSSanitizer()
    )
    return cleaner.clean(text)


def _weight(text: str) -> int:
    """Return the characters of HTML, tags counted twentyfold: thousands of open ones take seconds."""
    return len(text) + 20 * text.count("<")


def _within(resources: dict, text: str) -> bool:
    """Return whether a page whose `resources` these are may render this text as well."""
    resources["passlab_rendered"] = (resources.get("passlab_rendered") or 0) + _weight(text)
    return resources["passlab_rendered"] <= MOST_PAGE


@pass_context
def markdown(context, source: str) -> str:
    """Return Markdown as clean HTML: nbconvert's filter `markdown2html`."""
    attachments = context.get("cell", {}).get("attachments", {})
    if len(source) <= MOST_RENDERED and _within(context.get("resources", {}), source):
        try:
            return clean(
                MarkdownWithMath(renderer=IPythonRenderer(escape=False, attachments=attachments)).render(source)
            )
        except Exception:  # the renderer failed on the text: it is shown as it is
            pass
    return f"<pre>{html.escape(source)}</pre>"


class SafeHTML(SanitizeHTML):
    """nbconvert's sanitizer with what an output may show here. A verdict's card is the grader's and stays."""

    enabled = Bool(True).tag(config=True)
    safe_output_keys = frozenset(
        ("text/plain", "text/latex", "text/markdown", "image/png", "image/jpeg", "image/svg+xml")
    )

    def preprocess(self, nb, resources):
        nb.metadata = type(nb.metadata)(
            {name: nb.metadata[name] for name in ("kernelspec", "language_info") if name in nb.metadata}
        )
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell, resources, cell_index):
        cell.metadata = type(cell.metadata)({k: v for k, v in cell.metadata.items() if k == "nbgrader"})
        if cell.cell_type == "markdown":
            return cell, resources
        for output in cell.get("outputs", []):
            text = output.get("data", {}).get("text/html", "")
            if VERDICT not in output.get("data", {}) and text and not _within(resources, text):
                del output["data"]["text/html"]
        return super().preprocess_cell(cell, resources, cell_index)

    def sanitize_code_outputs(self, outputs):
        for output in outputs:
            data = output.get("data", {})
            if "metadata" in output:
                output["metadata"] = {}
            if VERDICT in data:  # only grading makes it: `intake`
                continue
            if "image/svg+xml" in data:  # the same picture as a frameless image
                data.pop("text/html", None)
            for key in data.keys() - self.safe_output_keys:
                if key == "text/html":
                    data[key] = self.sanitize_html_tags(data[key])
                else:
                    del data[key]
        return outputs

    def sanitize_html_tags(self, html_str):
        return clean(html_str)


#: formgrader's pages load and reach nothing but their own server. Their scripts stand in the page, between texts.
FORMGRADER = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
#: Templates that come before nbconvert's: formgrader needs nothing from the internet.
_TEMPLATES = Path(__file__).with_name("formgrade")


def guard_formgrader() -> None:
    """Have formgrader send its policy with each page, and load MathJax from nowhere."""
    BaseHandler.content_security_policy = FORMGRADER
    others = os.environ.get("JUPYTER_PATH", "").split(os.pathsep)
    os.environ["JUPYTER_PATH"] = os.pathsep.join(dict.fromkeys([str(_TEMPLATES), *filter(None, others)]))


class SafePage(HTMLExporter):
    """nbgrader's feedback page with a policy that forbids a second time what has been removed."""

    POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

    def from_notebook_node(self, nb, resources=None, **kw):
        page, resources = super().from_notebook_node(nb, resources, **kw)
        policy = f'<meta http-equiv="Content-Security-Policy" content="{self.POLICY}">'
        return page.replace("<head>", f"<head>{policy}", 1), resources
