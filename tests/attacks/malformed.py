"""Malformed: files that are no notebooks, hardly notebooks, or too much of one."""

from __future__ import annotations

import json
from collections.abc import Callable

import nbformat
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from tests.attacks.attack import EARNED, Attack


def _text(nb: NotebookNode) -> str:
    return nbformat.writes(nb, version=nbformat.NO_CONVERT)


def _bytes(name: str, tries: str, make: Callable[[NotebookNode], bytes], honest: float = 0) -> Attack:
    """`honest`: what a lenient reader may find in it."""
    return Attack(name, tries, notebook=make, honest=honest, keeps=False)


def _changed(change: Callable[[dict], object]) -> Callable[[NotebookNode], bytes]:
    def make(nb: NotebookNode) -> bytes:
        data = json.loads(_text(nb))
        value = change(data)
        data = data if value is None else value
        try:
            return json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # halves of characters can only be written as escapes
            return json.dumps(data).encode()

    return make


def _data(name: str, tries: str, change: Callable[[dict], object], honest: float = EARNED) -> Attack:
    return _bytes(name, tries, _changed(change), honest)


def _each(**values) -> Callable[[dict], None]:
    def change(data: dict) -> None:
        for cell in data["cells"]:
            cell.update(values)

    return change


def _wrong_sources(data: dict) -> None:
    for cell, source in zip(data["cells"], (None, 5, [["a"]], {"a": 1}, [1, 2], True, [None]), strict=False):
        cell["source"] = source


def _null_metadata(data: dict) -> None:
    data["metadata"] = None
    _each(metadata=None)(data)


def _surrogates(data: dict) -> None:
    data["cells"][-1]["source"] += "\n# \ud800\udfff\udc00"
    data["metadata"]["\ud800"] = "\udc00"


def _headings(level: int) -> Callable[[NotebookNode], bytes]:
    """The notebook in the format of 2014, in which a heading has a level."""

    def make(nb: NotebookNode) -> bytes:
        data = json.loads(nbformat.writes(nbformat.convert(nb, 3), version=3))
        heading = {"cell_type": "heading", "level": level, "metadata": {}, "source": "A heading"}
        data["worksheets"][0]["cells"].insert(0, heading)
        return json.dumps(data).encode()

    return make


def _values(data: dict, many: int) -> None:
    """Values of two bytes that are written with a hundred each: a line of their own, indented."""
    deep: list = [0] * many
    for _ in range(90):
        deep = [deep]
    data["metadata"]["deep"] = deep


def _sources(characters: int, kind: str = "é") -> Callable[[dict], None]:
    """Comments of characters that take two bytes in the file, and six in a message to a worker."""

    def change(data: dict) -> None:
        text = "# " + kind * 900_000
        data["cells"] += [new_code_cell(text, id=f"long-{at}") for at in range(characters // 900_000)]

    return change


def _long_ids(data: dict) -> None:
    for number in range(300):
        meta = {"grade_id": f"{number}{'x' * 10_000}", "grade": True, "points": 5, "locked": True, "solution": False}
        data["cells"].append(new_code_cell("5.0", id=f"l{number}", metadata={"nbgrader": meta}))


ATTACKS = (
    _bytes("huge-heading", "an old format with a heading of level ten billion", _headings(10**10)),
    Attack("old-format", "control: the same format with a heading of level two", notebook=_headings(2)),
    _data("many-values", "two million numbers, ninety levels deep", lambda data: _values(data, 2_000_000), 0),
    Attack("some-values", "control: thousands of them", notebook=_changed(lambda data: _values(data, 5_000))),
    _data("escaped-sources", "comments of which a message is three times as long", _sources(9_000_000), 0),
    Attack("long-sources", "control: long comments", notebook=_changed(_sources(1_800_000))),
    _data("long-grade-ids", "three hundred ids of ten thousand characters, each of which is told", _long_ids),
    _data(
        "ends-again",
        "sixty cells, each of which ends the process, so that the notebook is run again and again",
        lambda data: data["cells"].extend(new_code_cell("import os; os._exit(0)", id=f"e{n}") for n in range(60)),
    ),
    _data(
        "long-cells",
        "cells that take nearly all the time that a cell may have",
        lambda data: data["cells"].extend(new_code_cell("import time; time.sleep(1.8)", id=f"s{n}") for n in range(4)),
    ),
    _bytes("empty", "a file of no bytes", lambda nb: b""),
    _bytes("truncated", "half a notebook", lambda nb: _text(nb).encode()[: len(_text(nb)) // 2]),
    _bytes("picture", "a picture", lambda nb: b"\x89PNG\r\n\x1a\n" + b"\0\xff" * 1000),
    _bytes(
        "pickle", "a pickle that runs a command", lambda nb: b"cos\nsystem\n(S'touch /var/tmp/plattack-pickle'\ntR."
    ),
    _bytes("nul-bytes", "a notebook with NUL bytes in it", lambda nb: _text(nb).replace("import", "im\0port").encode()),
    _bytes("utf-16", "a notebook in UTF-16", lambda nb: _text(nb).encode("utf-16"), EARNED),
    _bytes("yaml", "YAML that makes Python objects", lambda nb: b"!!python/object/apply:os.system ['touch plattack']"),
    _bytes("deep", "a hundred thousand brackets", lambda nb: b'{"nbformat": 4, "cells": ' + b"[" * 100_000),
    _bytes(
        "deep-and-whole",
        "deeply nested metadata, every bracket closed",
        lambda nb: _text(nb).encode().rstrip()[:-1] + b', "deep": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        EARNED,
    ),
    _bytes("huge", "30 MB of cells", lambda nb: _text(nb).encode() + b" " * 30_000_000),
    _bytes(
        "duplicate-keys",
        "every key is there twice",
        lambda nb: _text(nb).replace('"cells":', '"cells": [], "cells":').encode(),
        EARNED,
    ),
    _bytes(
        "not-finite",
        "NaN, infinities and numbers of ten thousand digits",
        lambda nb: (
            _text(nb)
            .replace('"points": 5', '"points": NaN, "more": -Infinity, "many": 1e999, "whole": ' + "9" * 10_000)
            .encode()
        ),
        EARNED,
    ),
    _data("no-notebook", "JSON, but a list", lambda data: [data], 0),
    _data("version-99", "a format that does not exist yet", lambda data: data.update(nbformat=99), 0),
    _data("version-3", "claims to be of an old format", lambda data: data.update(nbformat=3, nbformat_minor=0)),
    _data("version-text", "the version is text", lambda data: data.update(nbformat="4", nbformat_minor=[]), 0),
    _data("no-cells", "no cells", lambda data: data.pop("cells") and None, 0),
    _data("cells-dict", "the cells are a dict", lambda data: data.update(cells={"0": data["cells"]}), 0),
    _data("cells-null", "the cells are null", lambda data: data.update(cells=[None] * 10), 0),
    _data("wrong-sources", "sources that are no text", _wrong_sources),
    _data("null-metadata", "metadata are null everywhere", _null_metadata),
    _data("unknown-cells", "every cell is of a type that does not exist", _each(cell_type="quantum")),
    _data("duplicate-ids", "all cells have one id", _each(id="dce")),
    _data("odd-ids", "ids that are numbers", _each(id=7)),
    _data("surrogates", "halves of characters", _surrogates),
    _data(
        "forged-outputs",
        "outputs that say five points, of the grader's own type",
        _each(
            outputs=[
                new_output(
                    "execute_result",
                    {"text/plain": "5.0", "application/vnd.passlab.verdict+json": {"points": 5}},
                    execution_count=1,
                )
            ]
        ),
    ),
    _data(
        "many-cells",
        "two thousand cells",
        lambda data: data["cells"].extend(new_code_cell("1", id=f"c{n}") for n in range(2_000)),
    ),
    _data(
        "question-marks",
        "15 kB of questions to IPython, whose parser needs minutes for them",
        lambda data: data["cells"].append(new_code_cell("a?\n" * 5_000, id="marks")),
    ),
    _data(
        "hidden-tests-begin",
        "a locked cell in which 40,000 hidden tests begin and none ends",
        lambda data: (
            [
                cell.update(source="### BEGIN HIDDEN TESTS\n" * 40_000)
                for cell in data["cells"]
                if cell["metadata"].get("nbgrader", {}).get("locked")
            ]
            and None
        ),
    ),
    _data(
        "chained-cells",
        "three hundred cells, each of which needs the one above",
        lambda data: data["cells"].extend(new_code_cell(f"a{n} = a{n - 1}", id=f"a{n}") for n in range(300)),
    ),
    _data(
        "attachments",
        "attachments and metadata of ten megabytes",
        lambda data: data["cells"][0].update(attachments={"a.png": {"image/png": "A" * 10**7}}),
    ),
)
