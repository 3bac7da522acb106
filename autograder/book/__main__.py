"""`make book`: build the web book into `build/book/html`."""

from __future__ import annotations

import sys
import time

from autograder.authoring import source
from autograder.book import check, lighter, pages


def main() -> int:
    from sphinx.cmd.build import build_main

    start = time.perf_counter()
    if stale := pages.released():
        print("\n".join([*stale, "Run `make notebooks` first."]), file=sys.stderr)
        return 1
    folder = source.COURSE / "build/book"
    pages.write(folder / "source", folder / "stored", say=lambda line: print(line, flush=True))
    words = ["-q", "-b", "html", "-j", "auto", "-d", str(folder / "doctrees")]
    status = build_main([*words, str(folder / "source"), str(folder / "html")])
    if status:
        return status
    lighter.icons(folder / "html")
    lighter.corners(folder / "html")
    said = check.problems(folder / "html")
    print("\n".join(said) or f"No broken link. First page: {check.size(folder / 'html/index.html') / 1000:.0f} kB.")
    print(f"Built in {time.perf_counter() - start:.0f} s: {folder / 'html/index.html'}")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
