"""Read a submitted notebook: its bytes here, everything else aside, within a process's limits on time and memory.

What comes back is of a fixed form: of each cell its type, id, text and nbgrader id, the outputs that can be shown, and
the pictures that are attached to it. Nothing else of a notebook is used, so nothing else arrives: other metadata could
only cost time, here and wherever the notebook is validated later.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import nbformat
from msgspec import Meta, Struct
from nbformat.notebooknode import NotebookNode

from autograder.engine import bounded_call, messages, outputs
from autograder.grading import files
from autograder.grading.files import UnreadableError
from passlab.process.messages import MessageError

#: Far more than any ordinary notebook of this course has.
MAX_DEPTH = 100
MAX_PARTS = 500_000  # values in the file: texts, numbers, lists, objects
MAX_CELLS = 2_000
MAX_SOURCE = 2**20  # characters of one cell
MAX_SOURCES = 2 * MAX_SOURCE  # of all cells together: sent to a worker, each may take twelve bytes
MAX_NAME = 1_000  # characters of a grade id, and of the name of an attachment
MAX_LINES = 200  # of a traceback

#: The types of attachments that are shown.
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")

_ID = r"^[a-zA-Z0-9_-]{1,64}$"

Name = Annotated[str, Meta(max_length=MAX_NAME)]
Output = messages.Stream | messages.Failed | messages.Display | messages.Result
Data = Annotated[str, Meta(max_length=files.MAX_BYTES)]


class Cell(Struct):
    cell_type: Literal["code", "markdown", "raw"]
    id: Annotated[str, Meta(pattern=_ID)]
    source: Annotated[str, Meta(max_length=MAX_SOURCE)]
    grade_id: Name | None = None
    outputs: Annotated[list[Output], Meta(max_length=messages.MOST_OUTPUTS)] = []
    attachments: dict[Name, dict[Literal[PICTURES], Data]] = {}  # type: ignore[valid-type]  # a tuple of texts


class Notebook(Struct):
    cells: Annotated[list[Cell], Meta(max_length=MAX_CELLS)]
    damaged: Annotated[list[int], Meta(max_length=MAX_CELLS)] = []


def read(path: Path) -> NotebookNode:
    """Read a submitted notebook as nbformat 4. Raises UnreadableError, with the reason, if it is not a notebook.

    The metadata `damaged` of the notebook lists the cells, counted from 1, in which a character had to be replaced.
    """
    reply = bounded_call.call(f"{__name__}:parsed", data=files.read_bytes(path, files.MAX_BYTES))
    if isinstance(reply, str):
        raise UnreadableError(f"{path.name} {reply}")
    try:
        return _notebook(messages.reader(Notebook)(reply or b""))
    except MessageError:
        raise UnreadableError(
            f"{path.name} was not read: that takes more than {bounded_call.SECONDS} seconds or "
            f"{bounded_call.MEMORY // 2**30} GiB."
        ) from None


def _notebook(read: Notebook) -> NotebookNode:
    cells = []
    for cell in read.cells:
        node: dict[str, Any] = {"cell_type": cell.cell_type, "id": cell.id, "source": cell.source, "metadata": {}}
        if cell.grade_id is not None:
            node["metadata"]["nbgrader"] = {"grade_id": cell.grade_id}
        if cell.cell_type == "code":
            node |= {"execution_count": None, "outputs": msgspec.to_builtins(cell.outputs)}
            for output in node["outputs"]:
                if "data" in output:
                    output["metadata"] = {}
        elif cell.attachments:
            node["attachments"] = cell.attachments
        cells.append(node)
    metadata = {"damaged": read.damaged} if read.damaged else {}
    return nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells})


# Aside


class _NotebookError(Exception):
    """A file is not an ordinary notebook. The message continues a sentence that begins with its name."""


def parsed(content: bytes) -> bytes | str:
    """Return a submitted notebook as a message of the form Notebook, or the rest of a sentence on what is wrong."""
    try:
        cells = _cells(_document(content))
    except _NotebookError as why:
        return str(why)
    damaged = [number for number, cell in enumerate(cells, 1) if _valid(cell["source"]) != cell["source"]]
    for number in damaged:  # half of an emoji can be read from JSON, but not written
        cells[number - 1]["source"] = _valid(cells[number - 1]["source"])
    return msgspec.json.encode({"cells": cells, "damaged": damaged})


def _document(content: bytes) -> dict[str, Any]:
    """Return a notebook file as nbformat 4."""
    text, data = _json(content)
    if not isinstance(data, dict) or type(data.get("nbformat")) is not int:
        raise _NotebookError("is JSON, but not a notebook: it has no `nbformat`.")
    if not 1 <= data["nbformat"] <= 4:
        raise _NotebookError(f"has notebook format {data['nbformat']}; 4 is the newest that can be read.")
    parts, depth = _size(data)
    if depth > MAX_DEPTH:
        raise _NotebookError("is nested too deeply to be a notebook.")
    if parts > MAX_PARTS:  # written with a line for each
        raise _NotebookError(f"contains more than {MAX_PARTS:,} values; it was not read.")
    if data["nbformat"] < 4:
        try:
            data = nbformat.reads(text, as_version=4)
        except Exception:  # a heading of level 10**10 becomes as many characters
            raise _NotebookError(
                "has an old notebook format and cannot be converted; open it and save it again."
            ) from None
    return data


def _json(content: bytes) -> tuple[str, Any]:
    """Return the text of a file, and its value."""
    try:
        text = content.decode("utf-8-sig")
        if not text:
            raise _NotebookError("is empty.")
        if text.count("{") + text.count("[") > MAX_PARTS:
            raise _NotebookError(f"contains more than {MAX_PARTS:,} values; it was not read.")
        return text, json.loads(text)
    except UnicodeDecodeError:
        raise _NotebookError("is not UTF-8 text, so it is not a notebook.") from None
    except json.JSONDecodeError as error:
        raise _NotebookError(f"is damaged: line {error.lineno} is not valid JSON ({error.msg}).") from None
    except ValueError:
        raise _NotebookError("is damaged: it contains a number with thousands of digits.") from None
    except RecursionError:
        raise _NotebookError("is nested too deeply to be a notebook.") from None


def _size(data: object) -> tuple[int, int]:
    """Return how many values there are and how deep they are nested, without recursion: neither is bounded yet."""
    level, parts, depth = [data], 0, 0
    while level:
        parts += len(level)
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        depth += bool(level)
    return parts, depth


def _cells(data: dict[str, Any]) -> list[dict[str, Any]]:
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise _NotebookError("is not a valid notebook: it has no list of cells.")
    if len(cells) > MAX_CELLS:
        raise _NotebookError(f"has {len(cells):,} cells; the limit is {MAX_CELLS:,}.")
    nodes: list[dict[str, Any]] = []
    ids: set[str] = set()
    for number, cell in enumerate(cells, 1):
        kind = cell.get("cell_type") if isinstance(cell, dict) else None
        if kind not in ("code", "markdown", "raw"):
            raise _NotebookError(
                f"is not a valid notebook: cell {number} is not a cell for code, Markdown or raw text."
            )
        source = _text(cell.get("source"))
        if source is None:
            raise _NotebookError(f"is not a valid notebook: the source of cell {number} is not text.")
        if len(source) > MAX_SOURCE:
            raise _NotebookError(
                f"is too long: cell {number} has {len(source):,} characters; the limit is {MAX_SOURCE:,}."
            )
        name = cell.get("id")
        if not isinstance(name, str) or name in ids or not re.fullmatch(_ID, name):
            name = next(free for at in itertools.count(len(nodes)) if (free := f"submitted-{at}") not in ids)
        ids.add(name)
        node = {"cell_type": kind, "id": name, "source": source, "grade_id": _grade_id(cell)}
        if kind == "code":
            node["outputs"] = _outputs(cell)
        else:
            node["attachments"] = _attachments(cell)
        nodes.append(node)
    if (total := sum(len(cell["source"]) for cell in nodes)) > MAX_SOURCES:
        raise _NotebookError(f"has {total:,} characters in its cells; the limit is {MAX_SOURCES:,}.")
    return nodes


def _text(value: object) -> str | None:
    """Return a text of a notebook file, which may store it as a list of lines; None if it is not text."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value if isinstance(value, str) else None


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _grade_id(cell: dict[str, Any]) -> str | None:
    meta = cell.get("metadata")
    meta = meta.get("nbgrader") if isinstance(meta, dict) else None
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return _valid(name[:MAX_NAME]) if isinstance(name, str) else None


def _outputs(cell: dict[str, Any]) -> list[dict[str, Any]]:
    shown = outputs.from_file(cell.get("outputs"))
    for output in shown:
        if output["output_type"] == "error":
            del output["traceback"][MAX_LINES:]
        output.pop("execution_count", None)  # cells are numbered as they run
    return shown


def _attachments(cell: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the attached pictures: name → MIME type → data."""
    attached = cell.get("attachments")
    pictures: dict[str, dict[str, str]] = {}
    for name, bundle in attached.items() if isinstance(attached, dict) else ():
        if isinstance(bundle, dict) and len(name) <= MAX_NAME:
            texts = {mime: _text(bundle.get(mime)) for mime in PICTURES}
            if bundle_of_texts := {mime: _valid(text) for mime, text in texts.items() if text is not None}:
                pictures[_valid(name)] = bundle_of_texts
    return pictures
