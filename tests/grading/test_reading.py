"""Reading a submission: it costs in proportion to the file, whatever the file is made of."""

from __future__ import annotations

import json
from collections.abc import Callable

import nbformat
import pytest

from autograder.engine import bounded_call
from autograder.grading import reading
from autograder.grading.files import UnreadableError
from autograder.grading.paper import written
from tests.support import growth


def _code(**changes) -> dict:
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": "1", "outputs": [], "execution_count": None}
    return cell | changes


def _text(**changes) -> dict:
    return {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "text"} | changes


def _shown(**data) -> dict:
    return _code(outputs=[{"output_type": "display_data", "metadata": {}, "data": data}])


#: What the schema of a notebook has: name → n → the cells, or the notebook's other parts.
CONSTRUCTS: dict[str, Callable[[int], list | dict]] = {
    "tags that are dicts": lambda n: [_code(metadata={"tags": [{"a": at} for at in range(n)]})],
    "tags that are lists": lambda n: [_code(metadata={"tags": [[at, {}] for at in range(n)]})],
    "tags of one hash": lambda n: [_code(metadata={"tags": [at * (2**61 - 1) for at in range(n)]})],
    "tags that are texts": lambda n: [_text(metadata={"tags": [f"t{at}" for at in range(n)]})],
    "tags that are the same": lambda n: [_text(metadata={"tags": ["t"] * n})],
    "tags with commas": lambda n: [_text(metadata={"tags": ["," * at for at in range(n // 100)]})],
    "metadata of a cell": lambda n: [_code(metadata={f"m{at}": {"a": [at]} for at in range(n)})],
    "metadata of execution": lambda n: [_code(metadata={"execution": {f"m{at}": at for at in range(n)}})],
    "metadata of the notebook": lambda n: {"metadata": {f"m{at}": at for at in range(n)}},
    "authors": lambda n: {"metadata": {"authors": [{"name": at} for at in range(n)]}},
    "parts that there are not": lambda n: {f"p{at}": at for at in range(n)},
    "parts of a cell that there are not": lambda n: [_code(**{f"p{at}": at for at in range(n)})],
    "a name": lambda n: [_text(metadata={"name": "\n" * n})],
    "an id": lambda n: [_text(id="a" * n), _text(id="é" * n)],
    "a grade id": lambda n: [_code(metadata={"nbgrader": {"grade_id": "a" * n}})],
    "cells": lambda n: [_code(id=f"a{at}") for at in range(n // 10)],
    "cells of one id": lambda n: [_code() for at in range(n // 10)],
    "cells of one grade id": lambda n: [_code(metadata={"nbgrader": {"grade_id": "a"}}) for at in range(n // 10)],
    "a source": lambda n: [_code(source="a\n" * n)],
    "a source in lines": lambda n: [_code(source=["a\n"] * n)],
    "attachments": lambda n: [_text(attachments={f"{at}.png": {"image/png": "AAAA"} for at in range(n)})],
    "an attachment in lines": lambda n: [_text(attachments={"a.png": {"image/png": ["A"] * n}})],
    "an attachment of many types": lambda n: [_text(attachments={"a.png": {f"image/{at}": "A" for at in range(n)}})],
    "outputs": lambda n: [_code(outputs=[{"output_type": "stream", "name": "stdout", "text": "a"}] * n)],
    "outputs that are none": lambda n: [_code(outputs=[{"output_type": f"o{at}"} for at in range(n)])],
    "an output in lines": lambda n: [_shown(**{"text/plain": ["a\n"] * n})],
    "an output of many types": lambda n: [_shown(**{f"text/{at}": "a" for at in range(n)})],
    "an output of JSON": lambda n: [_shown(**{"application/json": [{"a": at} for at in range(n)]})],
    "a traceback": lambda n: [
        _code(outputs=[{"output_type": "error", "ename": "E", "evalue": "", "traceback": ["a"] * n}])
    ],
    "an error's name": lambda n: [
        _code(outputs=[{"output_type": "error", "ename": "E" * n, "evalue": "e" * n, "traceback": []}])
    ],
}


def _file(construct: str, n: int) -> bytes:
    value = CONSTRUCTS[construct](n)
    nb = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [_code()]}
    return json.dumps(nb | ({"cells": value} if isinstance(value, list) else value)).encode()


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_reading_and_writing_grow_as_the_file_does(construct, tmp_path):
    n = 2_500
    contents = {size: _file(construct, size) for size in (n, growth.STEP * n)}
    for size, content in contents.items():
        (tmp_path / f"{size}.ipynb").write_bytes(content)

    def graded(size: int) -> None:
        nbformat.validate(nb := reading.read(tmp_path / f"{size}.ipynb"))  # as nbgrader will
        written(nb)

    assert growth.ratio(lambda size: reading.parsed(contents[size]), n) <= growth.MOST
    assert growth.ratio(graded, n) <= growth.MOST


def test_what_takes_too_long_aside_is_damaged_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded_call, "call", lambda *_, **__: None)
    path = tmp_path / "x.ipynb"
    path.write_bytes(_file("a source", 1))
    with pytest.raises(UnreadableError, match=r"x.ipynb was not read: that takes more than 3 seconds or 2 GiB"):
        reading.read(path)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"cells": [{}]}', b'{"cells": [{"cell_type": "spell"}]}'])
def test_what_comes_back_is_of_the_form_or_nothing(tmp_path, monkeypatch, value):
    monkeypatch.setattr(bounded_call, "call", lambda *_, **__: value)
    path = tmp_path / "x.ipynb"
    path.write_bytes(b"")
    with pytest.raises(UnreadableError, match="was not read"):
        reading.read(path)


def test_what_the_grader_uses_of_a_notebook_arrives(tmp_path):
    cells = [
        _code(source=["a\n", "b"], metadata={"nbgrader": {"grade_id": "cse", "points": 99}, "tags": ["x"]}),
        _text(id="b", attachments={"a.png": {"image/png": ["AA", "AA"], "text/html": "<b>"}, "b": 3}),
        {"cell_type": "raw", "source": "raw"},
        _shown(**{"text/plain": ["a", "b"], "text/x-odd": "c"}) | {"id": "d"},
    ]
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "metadata": {"kernelspec": 3}, "cells": cells}))
    nb = reading.read(path)
    nbformat.validate(nb)
    assert [cell.source for cell in nb.cells] == ["a\nb", "text", "raw", "1"]
    assert [cell.metadata for cell in nb.cells] == [{"nbgrader": {"grade_id": "cse"}}, {}, {}, {}]
    assert [cell.id for cell in nb.cells] == ["a", "b", "submitted-2", "d"]
    assert nb.cells[1].attachments == {"a.png": {"image/png": "AAAA"}} and nb.metadata == {}
    assert nb.cells[3].outputs == [{"output_type": "display_data", "data": {"text/plain": "ab"}, "metadata": {}}]
