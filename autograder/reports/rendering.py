"""Render learners' Markdown and colour their code. It runs aside: `rendered` is called there, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

#: Most characters of a text, and of the HTML made of it.
MOST_TEXT, MOST_HTML = 20_000, 1_000_000
#: Links lead to the web only.
_LINKS = ("https:", "http:", "mailto:", "#")


def rendered(texts: list[tuple[str, str]]) -> list[str | None]:
    """Return the HTML of each (kind, text), "code" or "markdown"; None for a text that cannot be rendered."""
    return [_html(kind, text) for kind, text in texts]


def _html(kind: str, text: str) -> str | None:
    try:
        html = _makers()[kind](text)
    except Exception:  # the renderer failed on the text
        return None
    return html if len(html) <= MOST_HTML else None


@cache
def _makers() -> dict[str, Callable[[str], str]]:
    import mistune
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    class Renderer(mistune.HTMLRenderer):
        """A picture that is not attached is a link: loading it tells who reads the page."""

        def image(self, text: str, url: str, title: str | None = None) -> str:
            return (super().image if url.startswith("attachment:") else self.link)(text, url, title)

        def link(self, text: str, url: str, title: str | None = None) -> str:
            return super().link(text, url if url.lower().startswith(_LINKS) else "#", title)

    renderer = Renderer(escape=True, allow_harmful_protocols=["attachment:"])
    to_html = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough", "math"])
    lexer, formatter = PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)
    return {"markdown": lambda text: str(to_html(text)), "code": lambda text: highlight(text, lexer, formatter)}
