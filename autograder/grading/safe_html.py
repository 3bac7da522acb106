"""What nbgrader's pages (`nbgrader generate_feedback`, formgrader) show of learners: nothing in it runs or loads.

These pages share the instructor's origin, where a script could act as the instructor. Markdown is cleaned after it has
been rendered, outputs before; pictures are data of an <img>, where nothing runs; metadata that are not nbgrader's go.
All of that is done aside; where it takes too long, the rest of the page is shown as text.
"""

from __future__ import annotations

import html
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, pass_context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters import ansi2html, strip_ansi
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbgrader.server_extensions.formgrader import handlers
from nbgrader.server_extensions.formgrader.base import BaseHandler
from nbgrader.server_extensions.formgrader.handlers import SubmissionFilesHandler
from traitlets import Bool

from autograder.engine import bounded_call
from autograder.grading import cleaning
from autograder.grading.intake import VERDICT

#: Longer texts, in characters, are shown as text: rendering takes time that grows faster than they do.
MOST_RENDERED = 20_000
#: The most HTML of one output, and of a whole page its HTML, Markdown and code, that is rendered; see `_weight`.
MOST_HTML, MOST_PAGE = 100_000, 500_000

#: The most escapes of a terminal in a text times its characters: nbconvert copies the rest of the text for each.
MOST_COLOURED = 10**8


def clean(text: str) -> str:
    """Return HTML without what runs, loads, or takes the place of the page around it."""
    html = bounded_call.call(f"{cleaning.__name__}:cleaned", text) if _weight(text) <= MOST_HTML else None
    return f"<p>{len(text):,} characters of HTML are not shown.</p>" if html is None else html


def _weight(text: str) -> int:
    """Return the characters of HTML, tags counted twentyfold: thousands of open ones take seconds."""
    return len(text) + 20 * text.count("<")


def _within(resources: dict, text: str) -> bool:
    """Return whether a page whose `resources` these are may render this text as well."""
    resources["passlab_rendered"] = (resources.get("passlab_rendered") or 0) + _weight(text)
    return resources["passlab_rendered"] <= MOST_PAGE


def _no_more(resources: dict) -> None:
    """Render nothing more on a page on which one text took too long."""
    resources["passlab_rendered"] = 2 * MOST_PAGE


@pass_context
def markdown(context, source: str) -> str:
    """Return Markdown as clean HTML: nbconvert's filter `markdown2html`."""
    attachments = context.get("cell", {}).get("attachments", {})
    if len(source) <= MOST_RENDERED and _within(resources := context.get("resources", {}), source):
        page = bounded_call.call(f"{cleaning.__name__}:rendered", source, attachments)
        if page is not None:
            return page
        _no_more(resources)
    return f"<pre>{html.escape(source)}</pre>"


@pass_context
def highlight(context, source: str, language: str | None = None, metadata: dict | None = None) -> str:
    """Return code as HTML: nbconvert's filter `highlight_code`."""
    if len(source) <= MOST_RENDERED and _within(resources := context.get("resources", {}), source):
        page = bounded_call.call(f"{cleaning.__name__}:highlighted", source)
        if page is not None:
            return page
        _no_more(resources)
    return f'<div class="highlight"><pre>{html.escape(source)}</pre></div>'


def ansi(text: str) -> str:
    """Return what was printed as HTML, with a terminal's colours: nbconvert's filter `ansi2html`."""
    return ansi2html(text) if len(text) * text.count("\x1b") <= MOST_COLOURED else html.escape(strip_ansi(text))


#: For nbconvert's pages.
FILTERS = {"markdown2html": markdown, "highlight_code": highlight, "ansi2html": ansi}


#: What formgrader's page of a submission says of its learner, who has chosen the name, in Canvas for example.
_OF_LEARNERS = {"student", "last_name", "first_name", "notebook_path"}


class SafeHTML(SanitizeHTML):
    """nbconvert's sanitizer with what an output may show here. A verdict's card is the grader's and stays."""

    enabled = Bool(True).tag(config=True)
    safe_output_keys = frozenset(  # type: ignore[assignment]  # it is only read
        ("text/plain", "text/latex", "text/markdown", "image/png", "image/jpeg", "image/svg+xml")
    )

    def preprocess(self, nb, resources):
        nb.metadata = type(nb.metadata)(
            {name: nb.metadata[name] for name in ("kernelspec", "language_info") if name in nb.metadata}
        )
        for name in _OF_LEARNERS & set(resources):  # nbgrader's template writes them as they are
            resources[name] = html.escape(str(resources[name] or ""))
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


#: formgrader's pages load and reach nothing but their own server. Their scripts are in the page, between texts.
FORMGRADER = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
#: Files that learners handed in beside a notebook have no part in formgrader's origin, whatever they are.
BESIDE = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'"
#: Templates that come before nbconvert's: formgrader needs nothing from the internet.
_TEMPLATES = Path(__file__).with_name("formgrade")


class _AsData(FileSystemLoader):
    """Templates of formgrader, with what they write into a script as JSON."""

    def get_source(self, environment, template):
        text, *rest = super().get_source(environment, template)
        return re.sub(r'= "{{ (\w+) }}";', r"= {{ \1 | tojson }};", text), *rest


@cache
def _templates() -> Environment:
    return Environment(loader=_AsData([handlers.template_path]), autoescape=True)


def _render(self: BaseHandler, name: str, **facts: Any) -> str:
    """Render a page of formgrader. nbgrader escapes nothing, whatever a link to the page has in place of a name."""
    return _templates().get_template(name).render(facts)


def guard_formgrader() -> None:
    """Have formgrader escape what it shows, send its policy with each page, and another with learners' files, and load
    MathJax from nowhere."""
    BaseHandler.render = _render
    BaseHandler.content_security_policy = FORMGRADER
    SubmissionFilesHandler.content_security_policy = BESIDE
    others = os.environ.get("JUPYTER_PATH", "").split(os.pathsep)
    os.environ["JUPYTER_PATH"] = os.pathsep.join(dict.fromkeys([str(_TEMPLATES), *filter(None, others)]))


class SafePage(HTMLExporter):
    """nbgrader's feedback page with a policy that forbids a second time what has been removed."""

    POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

    def from_notebook_node(self, nb, resources=None, **kw):
        page, resources = super().from_notebook_node(nb, resources, **kw)
        policy = f'<meta http-equiv="Content-Security-Policy" content="{self.POLICY}">'
        return page.replace("<head>", f"<head>{policy}", 1), resources
