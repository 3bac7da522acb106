"""What Sphinx reads: a folder of notebooks and Markdown, made anew for each build."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.authoring import source
from autograder.book import reference, stored
from autograder.reports.pages import page

LOOK = Path(__file__).with_name("look")
TEMPLATES = Path(__file__).with_name("templates")
#: Where `make lab` serves the course.
LAB = "http://localhost:8888/lab/tree"


class Day(NamedTuple):
    """A day on the map: its number, its lesson and exercises, what it needs, and what it gives."""

    number: int
    lesson: str
    exercises: tuple[str, ...]
    title: str
    needs: str
    gives: str


#: day → which days it builds on, and what somebody takes from it
MAP = {
    1: ("Python, a little PyTorch", "to read a graph in any IR"),
    2: ("day 1", "to write a pass, and to prove it"),
    3: ("day 2", "the classic optimizations, in a good order"),
    4: ("day 3", "fused groups, a kernel for each, and when not to fuse"),
    5: ("day 1", "plans that run a graph in a small arena"),
    6: ("day 1", "one solver for every dataflow question"),
    7: ("days 2 and 4", "passes in TVM's Relay"),
    8: ("day 7", "Relax, schedules in TensorIR, a tuner"),
    9: ("days 2 and 4", "dialects, lowering and bufferization in MLIR"),
    10: ("day 4", "loops as sets: legality, tiles, wavefronts"),
    11: ("days 4 and 5", "graphs on a wafer: placement and routes"),
    12: ("all of them", "a compiler of your own, on the leaderboard"),
    13: ("days 3, 4 and 6", "what torch.compile captures, and a backend of your own"),
    14: ("days 3 and 5", "gradients as a graph, and what training keeps in memory"),
    15: ("days 3 and 6", "a network in integers, with its errors proved"),
    16: ("day 3", "all rewrites at once, and laws that are proved"),
    17: ("days 2 and 3", "faults in real compilers, found, shrunk and reported"),
}


def days() -> list[Day]:
    """Return the days that have a lesson."""
    rows = []
    for path in sorted((source.COURSE / "course").glob("day*.py")):
        number = int(re.match(r"day(\d+)", path.stem)[1])
        title = re.search(r"^# # (.*)$", path.read_text(encoding="utf-8"), re.M)[1]
        title = re.sub(r"^Day \d+ · ", "", title)
        released = sorted((source.COURSE / "exercises" / f"day{number:02d}").glob("*.ipynb"))
        names = tuple(p.stem for p in released)
        rows.append(Day(number, path.stem, names, title, *MAP.get(number, ("the days before", "more"))))
    return rows


def write(folder: Path, cache: Path, say: Callable[[str], None] = lambda line: None) -> None:
    """Write the sources of the book into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(LOOK, folder)
    (folder / "exercises").mkdir()
    rows = days()
    pictures, every = {}, []
    for day in rows:
        nb = stored.execute(source.COURSE / "course" / f"{day.lesson}.py", cache, say)
        pictures[day.number] = _picture(nb, folder / "_static", day)
        every.append(nb)
        _prepare(nb, f"work/course/{day.lesson}.ipynb")
        nbformat.write(nb, folder / f"{day.lesson}.ipynb")
        for name in day.exercises:
            path = source.COURSE / "exercises" / f"day{day.number:02d}" / f"{name}.ipynb"
            every.append(nb := nbformat.read(path, as_version=4))
            _prepare(nb, f"work/day{day.number:02d}/{name}.ipynb")
            nbformat.write(nb, folder / "exercises" / f"day{day.number:02d}_{name}.ipynb")
    (folder / "index.md").write_text(_front(rows, pictures), encoding="utf-8")
    (folder / "library.md").write_text(reference.page(every), encoding="utf-8")
    for name in ("laws.md", "faults.md"):
        shutil.copy(source.ROOT / "docs" / name, folder)


# ---------------------------------------------------------------------------------------------------- a notebook


def _prepare(nb: NotebookNode, place: str) -> None:
    """Make a notebook fit for the book: links that stay in it, text beside pictures, a way into JupyterLab."""
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = formulas(_links(cell.source, place))
        else:
            cell.metadata.pop("nbgrader", None)
            cell.outputs = [_readable(output) for output in cell.get("outputs", ())]
    opened = f'<p class="open-in-lab"><a href="{LAB}/{place}">Open it in your JupyterLab</a> (after `make lab`)</p>'
    nb.cells.insert(
        1, nbformat.v4.new_markdown_cell(opened.replace("`make lab`", "<code>make lab</code>"), id="in-lab")
    )


def _links(text: str, place: str) -> str:
    """Return the Markdown of a notebook, with links to other notebooks that lead to pages of the book."""
    _, folder, _ = place.split("/")
    up = "" if folder == "course" else "../"
    text = re.sub(r"\]\(\.\./work/(day\d+)/([\w-]+)\.ipynb\)", rf"]({up}exercises/\1_\2.ipynb)", text)
    text = re.sub(r"\]\((?:\.\./)*course/([\w-]+)\.ipynb\)", rf"]({up}\1.ipynb)", text)
    if up:  # another notebook of the same day
        text = re.sub(r"\]\(([\w-]+)\.ipynb\)", rf"]({folder}_\1.ipynb)", text)
    return re.sub(r"\]\(index\.ipynb\)", f"]({up}index.md)", text)


def formulas(text: str) -> str:
    """Return Markdown with its formulas as MathML, which browsers show without a script."""
    from latex2mathml.converter import convert

    def display(match: re.Match) -> str:  # where it is too wide, it is scrolled, by keys as well
        return f'<span class="formula" tabindex="0">{convert(match[1].strip(), display="block")}</span>'

    parts = re.split(r"(```.*?```|`[^`\n]*`)", text, flags=re.S)  # code stays as it is
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"\$\$(.+?)\$\$", display, parts[i], flags=re.S)
        parts[i] = re.sub(r"(?<![\\$])\$(?![\s\d])([^$]+?)(?<!\s)\$", lambda m: convert(m[1]), parts[i])
    return "".join(parts)


def _readable(output: NotebookNode) -> NotebookNode:
    """Return an output with a text form beside its picture: for readers who hear the page."""
    data = output.get("data")
    if not data:
        return output
    words = "".join(data.get("text/plain", ""))
    if "text/html" in data and "<svg" in data["text/html"]:
        data["text/html"] = f'<figure class="drawn">{data["text/html"]}{_as_text(words)}</figure>'
    elif "image/png" in data:
        alt = "" if words.startswith("<") else html.escape(" ".join(words.split()))  # of the figure: `charts`
        coded = "".join(data.pop("image/png")).replace("\n", "")
        data["text/html"] = f'<figure class="drawn"><img alt="{alt}" src="data:image/png;base64,{coded}"></figure>'
    elif "image/svg+xml" in data:
        drawn = "".join(data.pop("image/svg+xml"))
        data["text/html"] = f'<figure class="drawn">{drawn}{_as_text(words)}</figure>'
    return output


def _as_text(words: str) -> str:
    return f'<details><summary>As text</summary><pre tabindex="0">{html.escape(words)}</pre></details>' if words else ""


def _picture(nb: NotebookNode, folder: Path, day: Day) -> str:
    """Store the first drawing of a lesson that is wide enough to tell something; return its file name, or ""."""
    for cell in nb.cells:
        for output in cell.get("outputs", ()):
            shown = "".join(output.get("data", {}).get("text/html", ""))
            for drawn in re.findall(r"<svg.*?</svg>", shown, re.S):
                if len(drawn) > 3000 and 'style="display' not in drawn:
                    if "xmlns=" not in drawn:
                        drawn = drawn.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
                    path = folder / f"{day.lesson}.svg"
                    path.write_text(drawn, encoding="utf-8")
                    return path.name
    return ""


# ---------------------------------------------------------------------------------------------------- other pages


def _front(rows: list[Day], pictures: dict[int, str]) -> str:
    """Return the front page: what the course is, and the map of its days."""
    about = (source.ROOT / "README.md").read_text(encoding="utf-8").split("## ")[0].split("\n\n", 1)[1]
    about = re.sub(r"<img [^>]*>\s*", "", about)
    return page("front.md", TEMPLATES, about=about.strip(), days=rows, pictures=pictures)
