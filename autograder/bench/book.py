"""`make bench`, part book: how soon the book is built, what its first page weighs, and what is wrong with its pages."""

from __future__ import annotations

from collections.abc import Iterator

from autograder.bench.figures import Figure, at_most, not_measured
from autograder.book import check, reading
from autograder.book.__main__ import WARM, build


def book(largest: int) -> Iterator[Figure | str]:
    """Measure the book: the first build where lessons have to be run, then one that finds their outputs stored."""
    yield "the book is built"
    first = build(lambda line: None)
    if first.ran:
        ran = f"{first.ran} of {first.lessons} lessons run"
        yield at_most("the book, built with lessons to run", first.seconds, first.limit(), " s", ran)
        yield "the book is built again"
        first = build(lambda line: None)
    yield at_most("the book, built with all outputs stored", first.seconds, WARM, " s", f"{first.ran} run")
    size = check.size(first.folder / "index.html") / 1e6
    yield at_most("first page with what it loads", size, check.FIRST / 1e6, " MB")
    faults = check.problems(first.folder)
    yield at_most("broken links, pictures without words", len(faults), 0, "", "; ".join(faults[:3]))
    yield "every page in a browser"
    try:
        pages, rows = reading.violations(first.folder)
    except LookupError as error:
        yield not_measured("violations that axe finds", str(error))
    else:
        details = "; ".join([f"{pages} pages: {', '.join(reading.LOOKS)}", *rows[:3]])
        yield at_most("violations that axe finds", len(rows), 0, "", details)
