"""Shared by all pages: templates, and cleaning of untrusted text."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")
#: Most characters shown of one text.
MOST_TEXT = 50_000

_CONTROL = {code: None for code in range(32) if chr(code) not in "\t\n"} | {127: None}
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def plain(value: Any) -> str:
    """Return any value as text that can be written and shown: without terminal colours and control characters."""
    text = "".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return _ANSI.sub("", text).translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


def cut(value: Any, most: int = MOST_TEXT) -> str:
    """Return the first `most` characters of a text, with a note of its length if it is longer."""
    text = plain(value)
    return text if len(text) <= most else f"{text[:most]}\n… {len(text):,} characters in all"


def number(value: float | None) -> str:
    """Return points without needless zeros; – where there are none yet."""
    return "–" if value is None else f"{round(value, 2):g}"


def people(count: int) -> str:
    return f"{count:,} learner{'' if count == 1 else 's'}"


def sha256(script: str) -> str:
    """Return the hash by which a content security policy allows a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def templates(folder: Path = TEMPLATES) -> Environment:
    """Make the environment of a folder of templates: every value is escaped unless its template says `safe`."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        trim_blocks=True,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if type(value) is Markup else plain(value),
    )
    environment.filters |= {"cut": cut, "number": number, "people": people, "sha256": sha256}
    return environment


def page(template: str, folder: Path = TEMPLATES, **facts: Any) -> str:
    """Return the page of a template, rendered with `facts`."""
    return templates(folder).get_template(template).render(facts)
