"""Growing: notebooks and folders that are small, and cost whoever reads, validates, renders or copies them far more.

The work beside them is ordinary and keeps its points: what is not looked at costs nothing.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from tests.attacks.attack import EARNED, Attack, Place, folder

_MIB = 2**20
_PIXEL = {"image/png": "AAAA"}


def _nb(name: str, tries: str, change: Callable[[dict], object]) -> Attack:
    def make(nb: NotebookNode) -> bytes:
        data = json.loads(nbformat.writes(nb))
        change(data)
        return json.dumps(data).encode()

    return Attack(name, tries, notebook=make)


def _tags(make: Callable[[int], object], number: int) -> Callable[[dict], None]:
    return lambda data: data["cells"][0]["metadata"].update(tags=[make(at) for at in range(number)])


def _cells(make: Callable[[], Iterable[NotebookNode]]) -> Callable[[dict], None]:
    return lambda data: data["cells"].extend(make())


def _texts(text: str, number: int = 10) -> Callable[[dict], None]:
    """The same text in many cells, each of them a little different: none has been rendered before."""
    return _cells(lambda: (new_markdown_cell(f"{at} {text}", id=f"text-{at}") for at in range(number)))


def _codes(text: str, number: int = 10) -> Callable[[dict], None]:
    return _cells(lambda: (new_code_cell(f"{text}# {at}", id=f"code-{at}") for at in range(number)))


def _printed(code: str) -> Callable[[dict], None]:
    return _cells(lambda: [new_code_cell(code, id="printed")])


def _picture_again(data: dict) -> None:
    cell = new_markdown_cell(
        "![](attachment:a)\n" * 1_100, id="again", attachments={"a": {"image/png": "A" * 4 * _MIB}}
    )
    data["cells"].append(cell)


def _to_itself(place: Place) -> None:
    for at in (place.own, place.notebook.parent):
        for name in ("again", "and again"):
            (at / name).symlink_to(".")
    (place.own / "above").symlink_to("..")


def _to_the_neighbours(place: Place) -> None:
    for number in range(50):
        (place.own / f"class {number}").symlink_to(place.submissions)
        (place.own / f"course {number}.ipynb").symlink_to(place.course / "solutions/day00/fx.ipynb")


def _deep(place: Place) -> None:
    Path(place.own, *"d" * 300).mkdir(parents=True)


def _wide(place: Place) -> None:
    for number in range(3_000):
        (place.own / f"folder {number}" / "inside").mkdir(parents=True)


def _packed(names: Iterable[str], at: str, more: bytes = b"") -> Callable[[Place], None]:
    """An archive in which each entry is 20 MiB of text, which packs to a fourth, and some bytes more."""

    def change(place: Place) -> None:
        (place.own / at).parent.mkdir(exist_ok=True)
        content = b"".join(b"%d\n" % number for number in range(3 * 10**6))[: 20 * _MIB] + more
        with zipfile.ZipFile(place.own / at, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, content)

    return change


ATTACKS = (
    _nb("tags-dicts", "30,000 tags that are dicts, each compared with each", _tags(lambda at: {"a": at}, 30_000)),
    _nb("tags-one-hash", "60,000 tags that are numbers of one hash", _tags(lambda at: at * (2**61 - 1), 60_000)),
    _nb("tags-again", "100,000 times the same tag", _tags(lambda at: "a", 100_000)),
    _nb(
        "metadata-wide",
        "100,000 metadata of a cell, of its execution and of the notebook",
        lambda data: (
            data["metadata"].update({f"m{at}": at for at in range(100_000)}),
            data["cells"][0]["metadata"].update(execution={f"e{at}": at for at in range(100_000)}),
        ),
    ),
    _nb(
        "attachments-many",
        "50,000 attached pictures",
        lambda data: data["cells"].append(
            new_markdown_cell("x", id="many") | {"attachments": {f"{at}.png": _PIXEL for at in range(50_000)}}
        ),
    ),
    _nb("attachment-again", "a picture of 4 MB that a text shows 1,100 times: a page of 4 GB", _picture_again),
    _nb(
        "outputs-many",
        "sixty thousand outputs that were handed in",
        lambda data: data["cells"].append(
            new_code_cell("1", id="many")
            | {"outputs": [{"output_type": "stream", "name": "stdout", "text": ["a"]}] * 60_000}
        ),
    ),
    _nb("code-lines", "empty lines that a lexer goes through again and again", _codes("\n " * 9_900)),
    _nb("code-strings", "strings that do not end", _codes("f'{" * 6_000)),
    _nb("markdown-links", "links that do not end", _texts("[a](" * 4_900)),
    _nb("markdown-marks", "marks of emphasis and of formulas that do not end", _texts("*a_ $ $$ ~~" * 1_700)),
    _nb("markdown-entities", "entities that are none", _texts("&a" * 9_900)),
    _nb(
        "markdown-shown",
        "a hundred outputs of Markdown that takes long to render",
        _printed(
            "from IPython.display import Markdown, display\n"
            "for at in range(100):\n    display(Markdown(f'{at} ' + '**a' * 6_600))"
        ),
    ),
    _nb("colours-shown", "a terminal's colours a hundred thousand times", _printed("print('\\x1b[31mx' * 100_000)")),
    folder("links-to-itself", "links to the folder in which they are", _to_itself),
    folder("links-to-neighbours", "links to the class and to the solutions", _to_the_neighbours),
    folder("folders-deep", "three hundred folders in each other", _deep),
    folder("folders-wide", "three thousand folders", _wide),
    folder(
        "zip-other-names",
        "an archive with 100 MB of notebooks that are not the course's",
        _packed([f"day00/{at}.ipynb" for at in range(5)], "more/a.zip"),
    ),
    folder(
        "zip-same-names",
        "an archive with 100 MB of copies of the notebook",
        _packed([f"{at}/day00/fx.ipynb" for at in range(5)], "day00/more/a.zip"),
    ),
    folder(
        "zip-too-large",
        "an archive above the notebook, with notebooks that are a little too large",
        _packed([f"{at}/day00/fx.ipynb" for at in range(12)], "a.zip", more=bytes(1)),
    ),
    _nb(
        "grown-honestly",
        "control: many cells with tags, pictures, code and Markdown",
        lambda data: data["cells"].extend(
            cell
            for at in range(60)
            for cell in (
                new_markdown_cell(
                    f"## Part {at}\n\n![p](attachment:a.png) *text*",
                    id=f"part-{at}",
                    metadata={"tags": ["a", "b"]},
                    attachments={"a.png": {"image/png": "AAAA" * 100}},
                ),
                new_code_cell(f"x{at} = [{at}]\n" * 20, id=f"honest-{at}", metadata={"tags": ["c"]}),
            )
        ),
    ),
)
assert all(attack.honest == EARNED for attack in ATTACKS)
