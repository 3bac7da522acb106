"""What is wrong with a built book: links that lead nowhere, pages that load from elsewhere, pictures without words or
missing from the map, a heavy first page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

#: Bytes of the first page with all that it loads.
FIRST = 1_000_000
#: A card of the map without a picture.
CARD = re.compile(r'<li><a href="(day\w+)\.html"><b>')


class _Page(HTMLParser):
    """The ids of a page, where it leads, what it loads, and how many pictures of its own have no words."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.wordless = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        self.wordless += tag == "img" and values.get("src", "").startswith("data:") and not values.get("alt")
        loaded = values.get("src") or (values.get("href") if tag == "link" else "")
        if loaded and values.get("loading") != "lazy" and values.get("rel") not in ("search", "next", "prev", "author"):
            self.loads.append(loaded)


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(folder: Path) -> list[str]:
    """Return one sentence for each defect of the pages below a folder. Links out of the book are not followed."""
    pages = {path: _read(path) for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts}
    faults = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        if page.wordless:
            faults.append(f"{name} has {page.wordless} pictures without words: give their axes titles and labels.")
        for link in [*page.links, *page.loads]:
            address, part = urldefrag(link)
            if urlparse(address).scheme or link.startswith("//"):
                if link in page.loads and not link.startswith("data:"):
                    faults.append(f"{name} loads {link}: a page of the book must not load anything from elsewhere.")
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            target = Path(re.sub(r"\?.*$", "", str(target)))
            if not target.exists():
                faults.append(f"{name} leads to {link}, which is not there.")
            elif part and target in pages and unquote(part) not in pages[target].ids and part != "":
                faults.append(f"{name} leads to {link}: there is no {part} on that page.")
    for bare in CARD.findall((folder / "index.html").read_text(encoding="utf-8")):
        faults.append(f"index.html has no picture for {bare} on its map: let that lesson draw a graph.")
    if (first := size(folder / "index.html")) > FIRST:
        faults.append(f"The first page has {first:,} bytes with what it loads; the limit is {FIRST:,}.")
    return faults


def size(path: Path) -> int:
    """Return the bytes of a page and of what it loads at once."""
    page = _read(path)
    files = {(path.parent / re.sub(r"[?#].*$", "", unquote(url))).resolve() for url in page.loads if ":" not in url}
    return path.stat().st_size + sum(file.stat().st_size for file in files if file.is_file())
