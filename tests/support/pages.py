"""What runs or loads in a page, told by a parser as lenient as a browser's."""

from __future__ import annotations

from bs4 import BeautifulSoup
from nbconvert.exporters import HTMLExporter
from nbformat.notebooknode import NotebookNode
from traitlets.config import Config

from autograder.grading.safe_html import FILTERS, SafeHTML

_FORBIDDEN = {"script", "iframe", "object", "embed", "base", "form", "meta", "link", "style", "svg", "math", "button"}
_FORBIDDEN |= {"input", "video", "audio", "area", "applet", "frame", "frameset", "template", "noscript", "portal"}


def acts(page: str, own: frozenset[str] = frozenset()) -> list[str]:
    """The elements and attributes of a page that run or load something, or stand over the page.

    own: elements that the page has of its own.
    """
    found = []
    for element in BeautifulSoup(page, "html.parser").find_all(True):
        found += [element.name] * (element.name in _FORBIDDEN - own)
        for name, value in element.attrs.items():
            text = " ".join(value) if isinstance(value, list) else value
            bad = name.startswith("on") or name in ("action", "formaction", "srcset", "poster", "background")
            bad |= name == "srcdoc" and "iframe" not in own
            bad |= name == "class" and "full-credit" in text
            bad |= name == "src" and not text.startswith("data:image/")
            bad |= name == "href" and not text.lower().startswith(("#", "https:", "http:", "mailto:"))
            bad |= name == "style" and ("url" in text or "position" in text)
            found += [f"{element.name} {name}={text}"] * bad
    return found


def nbgraders(nb: NotebookNode, kind: type[HTMLExporter] = HTMLExporter, **more) -> str:
    """A notebook as nbgrader's own commands and formgrader show it with this course's settings."""
    config = Config()
    config.HTMLExporter.preprocessors = [SafeHTML]
    config.HTMLExporter.filters = FILTERS
    config.HTMLExporter.update(more)
    resources = {"metadata": {"name": "n"}, "nbgrader": {"notebook": "n"}, "base_url": "", "index": 0, "total": 1}
    return kind(config=config).from_notebook_node(nb, resources)[0]
