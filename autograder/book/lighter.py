"""Mend what Sphinx and its theme have written: icons that no page uses, and headings of tables that say nothing."""

from __future__ import annotations

import re
from pathlib import Path

#: An icon in the theme's script: its name, and its numbers and outline.
_ICON = re.compile(
    r'(?<=[{,])"?(?P<name>[\w-]+)"?:\[\d+,\d+,\[[^\]]*\],"[0-9a-f]+",(?:"[^"]*"|\["[^"]*","[^"]*"\])\],?'
)


def icons(folder: Path) -> int:
    """Remove the icons that no page below a folder shows, and return how many are left."""
    used: set[str] = set()
    scripts = [path for path in folder.rglob("*.js") if path.name != "fontawesome.js"]
    for path in [*folder.rglob("*.html"), *scripts]:
        used |= set(re.findall(r"\bfa-([a-z][\w-]*)", path.read_text(encoding="utf-8")))
    count = 0
    for path in folder.rglob("fontawesome.js"):
        text = path.read_text(encoding="utf-8")
        count += sum(match["name"] in used for match in _ICON.finditer(text))
        path.write_text(_ICON.sub(lambda match: match[0] if match["name"] in used else "", text), encoding="utf-8")
    return count


def corners(folder: Path) -> None:
    """Make empty headings of tables plain cells, in all pages below a folder: a screen reader would announce them."""
    for path in folder.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        if (mended := re.sub(r"<th\b[^>]*>\s*(<p></p>)?\s*</th>", "<td></td>", text)) != text:
            path.write_text(mended, encoding="utf-8")
