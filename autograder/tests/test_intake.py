"""Taking in submissions: odd folders, damaged notebooks, lost cells. No kernel runs here."""

from __future__ import annotations

import copy
import json
import os

import nbformat
import pytest
import tiny
from nbformat.v4 import new_code_cell, new_markdown_cell

from autograder import intake, notebooks
from autograder.intake import Damaged, collect, read, repair

KNOWN = {"day01": {"graphs"}, "day02": {"passes"}}


@pytest.fixture(scope="module")
def authored(tmp_path_factory):
    path = tmp_path_factory.mktemp("authored") / "tiny.py"
    path.write_text(tiny.notebook())
    return notebooks.notebook(path)


@pytest.fixture
def submitted(authored):
    return copy.deepcopy(authored)


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


def said(found, learner=""):
    return " ".join(found.notes.get(learner, []))


# Where the notebooks lie


def test_the_expected_layout_needs_no_word(tmp_path):
    paths = {(who, "day01"): touch(tmp_path / who / "day01/graphs.ipynb") for who in ("ada", "grace hopper", "józsef")}
    found = collect(tmp_path, KNOWN)
    assert {key: s.notebooks["graphs"] for key, s in found.submissions.items()} == paths
    assert not found.notes and not any(s.notes for s in found.submissions.values())


def test_two_days_are_two_submissions(tmp_path):
    touch(tmp_path / "ada/day01/graphs.ipynb")
    touch(tmp_path / "ada/day02/passes.ipynb")
    assert set(collect(tmp_path, KNOWN).submissions) == {("ada", "day01"), ("ada", "day02")}


@pytest.mark.parametrize(
    "inside", ["unzipped/day01/graphs.ipynb", "day01/day01/graphs.ipynb", "graphs.ipynb", "a/b/day01/graphs.ipynb"]
)
def test_a_folder_too_many_or_too_few_is_found_and_named(tmp_path, inside):
    path = touch(tmp_path / "ada" / inside)
    touch(tmp_path / "bob/day01/graphs.ipynb")
    submission = collect(tmp_path, KNOWN).submissions["ada", "day01"]
    assert submission.notebooks == {"graphs": path}
    assert f"Taken from {inside}" in submission.notes[0]


def test_a_wrapper_around_the_class(tmp_path):
    touch(tmp_path / "class-2024/ada/day01/graphs.ipynb")
    touch(tmp_path / "class-2024/bob/day01/graphs.ipynb")
    touch(tmp_path / "__MACOSX/class-2024/ada/day01/graphs.ipynb")
    found = collect(tmp_path, KNOWN)
    assert set(found.submissions) == {("ada", "day01"), ("bob", "day01")}
    assert "class-2024" in said(found)


def test_a_class_of_one_is_no_wrapper(tmp_path):
    touch(tmp_path / "ada/day01/graphs.ipynb")
    assert set(collect(tmp_path, KNOWN).submissions) == {("ada", "day01")}


def test_of_two_copies_the_outer_one_counts(tmp_path):
    outer = touch(tmp_path / "ada/day01/graphs.ipynb")
    touch(tmp_path / "ada/ada/day01/graphs.ipynb")
    submission = collect(tmp_path, KNOWN).submissions["ada", "day01"]
    assert submission.notebooks == {"graphs": outer}
    assert "ada/day01/graphs.ipynb was not graded" in submission.notes[0]


def test_an_empty_folder_is_named(tmp_path):
    (tmp_path / "ada/day01").mkdir(parents=True)
    found = collect(tmp_path, KNOWN)
    assert not found.submissions and said(found, "ada") == "No notebook in this folder."


def test_unknown_assignment_and_notebook_are_named(tmp_path):
    touch(tmp_path / "ada/day77/graphs.ipynb")
    touch(tmp_path / "bob/day01/graphs (1).ipynb")
    touch(tmp_path / "cyd/other/essay.ipynb")
    found = collect(tmp_path, KNOWN)
    assert not found.submissions
    assert "unknown assignment 'day77'. Known: day01, day02." in said(found, "ada")
    assert "day01 has no notebook of that name. Expected: graphs.ipynb." in said(found, "bob")
    assert "unknown assignment 'other'" in said(found, "cyd")


def test_links_are_not_followed(tmp_path):
    secret = touch(tmp_path / "outside/graphs.ipynb")
    (tmp_path / "class/ada/day01").mkdir(parents=True)
    (tmp_path / "class/ada/day01/graphs.ipynb").symlink_to(secret)
    (tmp_path / "class/bob").mkdir()
    (tmp_path / "class/bob/day01").symlink_to(secret.parent)
    found = collect(tmp_path / "class", KNOWN)
    assert not found.submissions and "is a link" in said(found, "ada")


def test_names_that_nbgrader_reads_as_patterns(tmp_path):
    touch(tmp_path / "a[b]*/day01/graphs.ipynb")
    touch(tmp_path / "a(b)_/day01/graphs.ipynb")
    found = collect(tmp_path, KNOWN)
    assert {learner for learner, _ in found.submissions} == {"a(b)_", "a(b)_ (2)"}
    assert any("a[b]*" in note for notes in found.notes.values() for note in notes)


def test_litter_and_strays(tmp_path):
    touch(tmp_path / "ada/day01/.ipynb_checkpoints/graphs-checkpoint.ipynb")
    touch(tmp_path / "ada/day01/graphs.ipynb")
    touch(tmp_path / "lost.ipynb")
    found = collect(tmp_path, KNOWN)
    assert set(found.submissions) == {("ada", "day01")} and "lost.ipynb lies outside" in said(found)


# Reading


def valid() -> dict:
    nb = nbformat.v4.new_notebook(cells=[new_code_cell("1"), new_markdown_cell("text")])
    return json.loads(nbformat.writes(nb))


def deep(levels: int) -> str:
    return '{"nbformat": 4, "metadata": ' + '{"a": ' * levels + "1" + "}" * levels + "}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (json.dumps(valid()).encode()[:200], "is damaged"),
        (b"\xff\xfe\x00binary", "not text in UTF-8"),
        (b"[1, 2]", "no notebook"),
        (b'{"cells": []}', "no `nbformat`"),
        (json.dumps(valid() | {"nbformat": 99}).encode(), "format 99"),
        (json.dumps(valid() | {"cells": [{"cell_type": "spell", "source": ""}]}).encode(), "not a valid notebook"),
        (json.dumps(valid() | {"cells": {"a": 1}}).encode(), "not a valid notebook"),
        (json.dumps(valid() | {"cells": [3]}).encode(), "not a valid notebook"),
        (json.dumps(valid() | {"cells": [{"cell_type": "code"}]}).encode(), "not a valid notebook"),
        (json.dumps(valid() | {"cells": [{**valid()["cells"][0], "source": "\ud800"}]}).encode(), "lone surrogates"),
        (deep(100_000).encode(), "nested too deeply"),
        (deep(900).encode(), "notebook"),
    ],
)
def test_what_is_no_notebook_is_said_in_a_sentence(tmp_path, content, sentence):
    path = tmp_path / "graphs.ipynb"
    path.write_bytes(content)
    with pytest.raises(Damaged) as caught:
        read(path)
    message = str(caught.value)
    assert sentence in message and message.startswith("graphs.ipynb ") and message.endswith(".")
    assert "\n" not in message


def test_a_huge_file_is_not_even_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MAX_BYTES", 10)
    path = touch(tmp_path / "graphs.ipynb")
    path.write_text(json.dumps(valid()))
    with pytest.raises(Damaged, match="is not read"):
        read(path)


def test_older_formats_byte_order_marks_and_doubled_cell_ids_are_read(tmp_path):
    path = tmp_path / "old.ipynb"
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": "x"}, "worksheets": [{"cells": [], "metadata": {}}]}
    path.write_text(json.dumps(old))
    assert read(path).nbformat == 4
    doubled = valid()
    doubled["cells"][1]["id"] = doubled["cells"][0]["id"]
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(doubled).encode())
    ids = [cell.id for cell in read(path).cells]
    assert len(ids) == len(set(ids)) == 2


def test_outputs_are_dropped_on_reading(tmp_path):
    nb = valid()
    nb["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "3.0"}]
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(nb))
    assert read(path).cells[0].outputs == []


# Repairing


def by_id(nb):
    return {cell.metadata.nbgrader.grade_id: cell for cell in nb.cells if "nbgrader" in cell.metadata}


def order(nb):
    return [cell.metadata.nbgrader.grade_id for cell in nb.cells if "nbgrader" in cell.metadata]


def drop(nb, *names):
    nb.cells = [cell for cell in nb.cells if cell.id not in names]


def test_a_whole_submission_is_left_alone(submitted, authored):
    assert repair(submitted, authored) == [] and submitted == authored


def test_missing_cells_come_back_in_their_place(submitted, authored):
    drop(submitted, "double-check", "shout", "shout-check")
    notes = " ".join(repair(submitted, authored))
    assert order(submitted) == order(authored)
    assert "Check cell 'double-check' was missing; it was put back." in notes
    assert "Answer cell 'shout' is missing; it was put back empty." in notes
    assert by_id(submitted)["shout"].source == ""
    assert by_id(submitted)["double-check"].source == by_id(authored)["double-check"].source


def test_everything_missing(submitted, authored):
    submitted.cells = []
    assert len(repair(submitted, authored)) == 6 and order(submitted) == order(authored)
    nbformat.validate(submitted)


def test_no_answer_of_the_course_is_given_back(submitted, authored):
    drop(submitted, "double", "shout", "sort-words")
    repair(submitted, authored)
    assert "solutionmarker" not in nbformat.writes(submitted)


def test_changed_and_lost_ids_are_recognised_by_the_cell_id(submitted, authored):
    by_id(submitted)["shout"].metadata.nbgrader.grade_id = "mine"
    del by_id(submitted)["double"].metadata["nbgrader"]
    notes = " ".join(repair(submitted, authored))
    assert order(submitted) == order(authored) and "'double' had lost" in notes and "'shout' had lost" in notes


def test_an_unknown_id_is_named(submitted, authored):
    cell = new_code_cell("1")
    cell.metadata["nbgrader"] = {"grade_id": "bonus", "grade": True, "points": 100}
    submitted.cells.append(cell)
    assert "'bonus'" in repair(submitted, authored)[0] and order(submitted) == order(authored)


def test_of_doubled_ids_the_last_counts(submitted, authored):
    at = submitted.cells.index(by_id(submitted)["double"]) + 1
    twin = copy.deepcopy(by_id(submitted)["double"])
    twin.source, twin["id"] = "def double(x): return 0", "twin"
    submitted.cells.insert(at, twin)
    assert "is there 2 times; the last one was graded" in repair(submitted, authored)[0]
    assert by_id(submitted)["double"] is twin and order(submitted).count("double") == 1


def test_metadata_always_comes_from_the_course(submitted, authored):
    by_id(submitted)["double-check"].metadata.nbgrader.update(points=1000, locked=False)
    by_id(submitted)["double"].metadata["nbgrader"] = {"grade_id": "double"}
    repair(submitted, authored)
    assert {k: c.metadata.nbgrader for k, c in by_id(submitted).items()} == {
        k: c.metadata.nbgrader for k, c in by_id(authored).items()
    }


def test_a_cell_turned_to_text_is_turned_back(submitted, authored):
    at = next(i for i, cell in enumerate(submitted.cells) if cell.id == "double")
    text = new_markdown_cell("def double(x): return 2 * x")
    text.metadata["nbgrader"], text["id"] = submitted.cells[at].metadata.nbgrader, "double"
    submitted.cells[at] = text
    assert "had become a markdown cell" in repair(submitted, authored)[0]
    assert submitted.cells[at].cell_type == "code" and "2 * x" in submitted.cells[at].source


@pytest.mark.parametrize("meta", [None, 3, "text", [], {"grade_id": 5}, {"grade_id": ["x"]}, {"grade_id": None}])
def test_odd_metadata_does_not_stop_the_repair(submitted, authored, meta):
    submitted.cells[0].metadata["nbgrader"] = meta
    repair(submitted, authored)
    assert order(submitted) == order(authored)


def test_unreadable_files_are_named(tmp_path):
    path = tmp_path / "graphs.ipynb"
    os.mkfifo(path)
    touch(tmp_path / "class/ada/day01/graphs.ipynb").unlink()
    path.rename(tmp_path / "class/ada/day01/graphs.ipynb")
    assert not collect(tmp_path / "class", KNOWN).submissions
