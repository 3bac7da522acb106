"""Every page of a built book in a browser: what axe finds, in light and dark colours and at a phone's width."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
}


def browser() -> str:
    """Return the path of a browser that can be used, or ""."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")


def violations(folder: Path, say: Callable[[str], None] = lambda line: None) -> tuple[int, list[str]]:
    """Return the pages read, each look counted, and one sentence for each rule of axe that one violates, with a place.

    Raises LookupError where no browser is installed.
    """
    from playwright.sync_api import sync_playwright

    if not (path := browser()):
        raise LookupError("No browser is here to open the pages in: install chromium (Debian: apt install chromium).")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            return read(opened, folder, say)
        finally:
            opened.close()


def read(opened, folder: Path, say: Callable[[str], None]) -> tuple[int, list[str]]:
    """Return what `violations` does, in an open browser."""
    from axe_playwright_python.sync_playwright import Axe

    pages, problems = [page for page in sorted(folder.rglob("*.html")) if "_static" not in page.parts], []
    for look, options in LOOKS.items():
        say(f"reading {len(pages)} pages: {look}")
        # Without motion: axe must not see a colour on its way to another.
        page = opened.new_page(reduced_motion="reduce", **options)
        for file in pages:
            page.goto(file.as_uri())
            for violation in Axe().run(page).response["violations"]:
                where = " ".join(map(str, violation["nodes"][0]["target"]))
                problems.append(f"{file.relative_to(folder)} ({look}): {violation['id']}, {violation['help']}: {where}")
        page.close()
    return len(LOOKS) * len(pages), problems
