"""`make book`: build the web book into `build/book/html`.

python -m autograder.book           # the same
python -m autograder.book --check   # then open each page in a browser, and print what axe finds
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from autograder.authoring import fresh, source
from autograder.book import check, lighter, pages, reading

#: Seconds for a build that finds the outputs of all lessons stored, and for one that has to run them.
WARM, COLD = 60, 900
#: Most violations that are printed.
FIRST = 10


class Book(NamedTuple):
    """A book: its folder, how many of its lessons had to be run, and the seconds that building took."""

    folder: Path
    ran: int
    lessons: int
    seconds: float

    def limit(self) -> int:
        return COLD if self.ran else WARM


def build(say: Callable[[str], None]) -> Book:
    """Build the book. Raise RuntimeError where Sphinx cannot."""
    from sphinx.cmd.build import build_main

    start, folder, ran = time.perf_counter(), source.COURSE / "build/book", []

    def running(line: str) -> None:
        ran.append(line)
        say(line)

    pages.write(folder / "source", folder / "stored", running)
    words = ["-q", "-b", "html", "-j", "auto", "-d", str(folder / "doctrees")]
    if status := build_main([*words, str(folder / "source"), str(folder / "html")]):
        raise RuntimeError(f"Sphinx ended with {status}; what it said is above.")
    lighter.icons(folder / "html")
    lighter.corners(folder / "html")
    return Book(folder / "html", len(ran), len(pages.days()), time.perf_counter() - start)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m autograder.book", description="Build the web book.")
    parser.add_argument("--check", action="store_true", help="open each page in a browser, and print what axe finds")
    options = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(line, flush=True)

    for line in fresh.build():
        say(line)
    try:
        book = build(say)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    faults = check.problems(book.folder)
    first = f"{check.size(book.folder / 'index.html') / 1000:.0f} kB of at most {check.FIRST / 1000:.0f}"
    say("\n".join(faults) or f"No broken link. First page: {first}.")
    ran = f"{book.ran} of {book.lessons} lessons run"
    over = "" if book.seconds <= book.limit() else ", which is exceeded"
    say(f"Built in {book.seconds:.0f} s, {ran} (limit: {book.limit()} s{over}): {book.folder / 'index.html'}")
    if options.check:
        try:
            pages, rows = reading.violations(book.folder, say)
        except LookupError as error:
            say(str(error))
        else:
            say("\n".join([f"axe: {len(rows)} violations on {pages} pages.", *rows[:FIRST]]))
            faults += rows
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
