"""Taking in submissions: odd folders, damaged notebooks, lost cells. No kernel runs here."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import time
import zipfile
from pathlib import PurePath

import nbformat
import pytest
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader import utils
from nbgrader.utils import determine_grade

from autograder import commands
from autograder.engine import outputs
from autograder.engine.data import NotebookResult, Ran, Verdict
from autograder.grading import files, intake, paper, reading
from autograder.grading.intake import VERDICT, UnreadableError, claims, collect, read, repair, submissions
from autograder.grading.paper import when
from autograder.grading.recorder import digest
from autograder.grading.roster import Learner

KNOWN = {"day01": {"graphs"}, "day02": {"passes"}}


@pytest.fixture(scope="module")
def authored(course):
    return nbformat.read(course / "solutions/day00/tiny.ipynb", as_version=4)


@pytest.fixture
def submitted(authored):
    return copy.deepcopy(authored)


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


def taken(folder, *paths, **more):
    """What is collected of a folder with notebooks at these paths."""
    for path in paths:
        touch(folder / path)
    return collect(folder, KNOWN, **more)


def said(result, learner=""):
    return " ".join(result.notes.get(learner, []))


# Where the notebooks lie


def test_the_expected_layout_needs_no_word(tmp_path):
    paths = {(who, "day01"): touch(tmp_path / who / "day01/graphs.ipynb") for who in ("ada", "grace hopper", "józsef")}
    result = collect(tmp_path, KNOWN)
    assert {key: s.notebooks["graphs"] for key, s in result.submissions.items()} == paths
    assert not result.notes and not any(s.notes for s in result.submissions.values())


def test_two_days_are_two_submissions(tmp_path):
    result = taken(tmp_path, "ada/day01/graphs.ipynb", "ada/day02/passes.ipynb")
    assert set(result.submissions) == {("ada", "day01"), ("ada", "day02")}


@pytest.mark.parametrize(
    "inside", ["unzipped/day01/graphs.ipynb", "day01/day01/graphs.ipynb", "graphs.ipynb", "a/b/day01/graphs.ipynb"]
)
def test_a_folder_too_many_or_too_few_is_found_and_named(tmp_path, inside):
    submission = taken(tmp_path, f"ada/{inside}", "bob/day01/graphs.ipynb").submissions["ada", "day01"]
    assert submission.notebooks == {"graphs": tmp_path / "ada" / inside}
    assert f"Taken from {inside}" in submission.notes[0]


def test_a_wrapper_around_the_class(tmp_path):
    inside = [f"class-2024/{learner}/day01/graphs.ipynb" for learner in ("ada", "bob")]
    result = taken(tmp_path, *inside, f"__MACOSX/{inside[0]}")
    assert set(result.submissions) == {("ada", "day01"), ("bob", "day01")}
    assert "class-2024" in said(result)


def test_a_class_of_one_is_no_wrapper(tmp_path):
    assert set(taken(tmp_path, "ada/day01/graphs.ipynb").submissions) == {("ada", "day01")}


def test_of_two_copies_the_outer_one_counts(tmp_path):
    result = taken(tmp_path, "ada/day01/graphs.ipynb", "ada/ada/day01/graphs.ipynb")
    submission = result.submissions["ada", "day01"]
    assert submission.notebooks == {"graphs": tmp_path / "ada/day01/graphs.ipynb"}
    assert "ada/day01/graphs.ipynb was not graded" in submission.notes[0]


def test_an_empty_folder_is_named(tmp_path):
    (tmp_path / "ada/day01").mkdir(parents=True)
    result = collect(tmp_path, KNOWN)
    assert not result.submissions and said(result, "ada") == "There is no notebook in this folder."


def test_unknown_assignment_and_notebook_are_named(tmp_path):
    result = taken(tmp_path, "ada/day77/graphs.ipynb", "bob/day01/graph theory.ipynb", "cyd/other/essay.ipynb")
    assert not result.submissions
    assert "unknown assignment 'day77'. Expected one of day01, day02." in said(result, "ada")
    assert "day01 has no notebook of that name. Expected: graphs.ipynb." in said(result, "bob")
    assert "unknown assignment 'other'" in said(result, "cyd")


@pytest.mark.parametrize(
    "name",
    [
        *("graphs (1).ipynb", "graphs-Copy1.ipynb", "Copy of graphs.ipynb", "graphs (1) (2).ipynb", "Graphs.ipynb"),
        *("graphs.IPYNB", "graphs.ipynb.txt", "graphs.ipynb.json", "GRAPHS - Copy.ipynb", "Kopie von graphs.ipynb"),
    ],
)
def test_a_copys_name_is_taken_with_a_note(tmp_path, name):
    submission = taken(tmp_path, f"ada/{name}", "bob/day01/graphs.ipynb").submissions["ada", "day01"]
    assert submission.notebooks == {"graphs": tmp_path / "ada" / name} and not submission.undecided
    assert submission.notes == [f"Taken from {name} (expected: day01/graphs.ipynb)."]


def notebook_of(path, *checks, ids=(), ink="1"):
    """A notebook that checks these exercises, and has cells with these nbgrader ids."""
    cells = [new_code_cell(f'check("{name}", f)') for name in checks] + [new_code_cell(ink) for _ in ids or "x"]
    for cell, name in zip(cells[len(checks) :], ids, strict=False):
        cell.metadata["nbgrader"] = {"grade_id": name}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    return path


def test_the_day_of_a_notebook_is_told_by_its_checks_or_its_ids(tmp_path):
    notebook_of(tmp_path / "ada/my homework.ipynb", "day01.count-kinds", "day01.levels", "day02.visitor")
    notebook_of(tmp_path / "bob/final.ipynb.txt", ids=["visitor", "visitor-check", "pass-manager"])
    notebook_of(tmp_path / "cyd/even.ipynb", "day01.levels", "day02.visitor")
    notebook_of(tmp_path / "dan/day02/graphs.ipynb", "day01.levels")
    zipped(tmp_path / "eve/HW.ZIP", {"x/mine.ipynb": (tmp_path / "ada/my homework.ipynb").read_text()})
    (tmp_path / "scratch").mkdir()
    shutil.move(tmp_path / "scratch", tmp_path.parent / f"{tmp_path.name}-scratch")
    result = collect(tmp_path, KNOWN, tmp_path.parent / f"{tmp_path.name}-scratch")
    places = {key: sorted(submission.notebooks) for key, submission in result.submissions.items()}
    assert places == {
        ("ada", "day01"): ["graphs"],
        ("bob", "day02"): ["passes"],
        ("dan", "day01"): ["graphs"],
        ("eve", "day01"): ["graphs"],
    }
    assert "even.ipynb: unknown notebook 'even.ipynb'" in said(result, "cyd")
    assert result.submissions["eve", "day01"].notes == [
        "Taken from HW.ZIP/x/mine.ipynb (expected: day01/graphs.ipynb)."
    ]


def test_of_two_that_claim_one_place_the_instructor_decides(tmp_path):
    notebook_of(tmp_path / "ada/day01/graphs.ipynb", "day01.levels")
    notebook_of(tmp_path / "ada/day01/graphs (1).ipynb", "day01.levels", ink="2")
    notebook_of(tmp_path / "bob/graphs.ipynb", "day01.levels")
    shutil.copy(tmp_path / "bob/graphs.ipynb", tmp_path / "bob/graphs-Copy1.ipynb")
    result = collect(tmp_path, KNOWN).submissions
    ada, bob = result["ada", "day01"], result["bob", "day01"]
    assert ada.undecided == (
        "day01/graphs.ipynb and day01/graphs (1).ipynb are both for day01/graphs.ipynb, and differ. Decide which one "
        "counts: remove the other, and grade again."
    )
    assert paper.read(ada).failure == ada.undecided and not paper.read(ada).notebooks
    assert not bob.undecided and "it is the same as" in " ".join(bob.notes) and len(bob.notebooks) == 1
    before = digest(ada)
    ada.undecided = ""
    assert digest(ada) != before, "a decision is graded, though the first file is the same"


def test_links_are_not_followed(tmp_path):
    secret = touch(tmp_path / "outside/graphs.ipynb")
    (tmp_path / "class/ada/day01").mkdir(parents=True)
    (tmp_path / "class/ada/day01/graphs.ipynb").symlink_to(secret)
    (tmp_path / "class/bob").mkdir()
    (tmp_path / "class/bob/day01").symlink_to(secret.parent)
    result = collect(tmp_path / "class", KNOWN)
    assert not result.submissions and "is a link" in said(result, "ada")


def test_names_that_nbgrader_reads_as_patterns(tmp_path):
    result = taken(tmp_path, "a[b]*/day01/graphs.ipynb", "a(b)_/day01/graphs.ipynb")
    ids = {s.notebooks["graphs"].parents[1].name: learner for (learner, _), s in result.submissions.items()}
    assert ids["a(b)_"] == "a(b)_" and ids["a[b]*"].startswith("a(b)_ (")
    assert any("a[b]*" in note for notes in result.notes.values() for note in notes)


@pytest.mark.parametrize("names", [("a*", "a_"), ("a_", "a?"), ("b*", "b?"), (" c", "c"), ("d*", "d_", "d?", "d* ")])
def test_nobody_gets_anothers_name_by_the_order_of_folders(tmp_path, names):
    result = taken(tmp_path, *(f"{name}/day01/graphs.ipynb" for name in names))
    ids = {s.notebooks["graphs"].parents[1].name: learner for (learner, _), s in result.submissions.items()}
    assert len(set(ids.values())) == len(names)
    for name, learner in ids.items():
        alone = "*" not in name and "?" not in name and name == name.strip()
        assert (learner == name) == alone and (alone or "Another learner" in said(result, learner))


def test_litter_and_strays(tmp_path):
    day = "ada/day01"
    checkpoint = f"{day}/.ipynb_checkpoints/graphs-checkpoint.ipynb"
    result = taken(tmp_path, checkpoint, f"{day}/graphs.ipynb", "lost.ipynb")
    assert set(result.submissions) == {("ada", "day01")} and "lost.ipynb is not in a learner's folder" in said(result)


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
        (b"\xff\xfe\x00binary", "not UTF-8 text"),
        (b"[1, 2]", "not a notebook"),
        (b'{"cells": []}', "no `nbformat`"),
        (json.dumps(valid() | {"nbformat": 99}).encode(), "format 99"),
        (json.dumps(valid() | {"cells": [{"cell_type": "spell", "source": ""}]}).encode(), "not a valid notebook"),
        (json.dumps(valid() | {"cells": {"a": 1}}).encode(), "not a valid notebook"),
        (json.dumps(valid() | {"cells": [3]}).encode(), "not a valid notebook"),
        (json.dumps(valid() | {"cells": [{"cell_type": "code"}]}).encode(), "not a valid notebook"),
        (deep(100_000).encode(), "nested too deeply"),
        (deep(900).encode(), "notebook"),
    ],
)
def test_what_is_no_notebook_is_said_in_a_sentence(tmp_path, content, sentence):
    path = tmp_path / "graphs.ipynb"
    path.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        read(path)
    message = str(caught.value)
    assert sentence in message and message.startswith("graphs.ipynb ") and message.endswith(".")
    assert "\n" not in message


def test_half_an_emoji_costs_its_cell_a_character_and_not_the_notebook(tmp_path):
    nb = valid()
    nb["cells"] += [{**nb["cells"][0], "id": "b", "source": "x = '\ud83d'"}]
    nb["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "\ud83d"}]
    path = touch(tmp_path / "ada/day01/graphs.ipynb")
    path.write_text(json.dumps(nb))
    found = read(path)
    assert found.metadata == {"damaged": [3]} and found.cells[2].source == "x = '?'"
    submission = collect(tmp_path, KNOWN).submissions["ada", "day01"]
    assert "damaged" not in paper.read(submission).notebooks["graphs"].metadata
    assert "was replaced by a question mark in cell 3." in submission.notes[0]


def test_a_huge_file_is_not_even_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 10)
    path = touch(tmp_path / "graphs.ipynb")
    path.write_text(json.dumps(valid()))
    with pytest.raises(UnreadableError, match="was not read"):
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


def test_of_outputs_stays_what_a_cell_may_show(tmp_path):
    nb = valid()
    printed = {"output_type": "stream", "name": "stdout", "text": ["3", ".0"]}
    forged = {"output_type": "display_data", "data": {VERDICT: {"points": 3}}, "metadata": {}}
    nb["cells"][0]["outputs"] = [printed, forged, {"output_type": "unknown"}, 7]
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(nb))
    assert read(path).cells[0].outputs == [printed | {"text": "3.0"}]
    nb["cells"][0]["outputs"] = [printed | {"text": "3" * (outputs.MOST_STORED + 1)}]
    path.write_text(json.dumps(nb))
    assert read(path).cells[0].outputs == [], "too large"


def test_what_grades_or_answers_keeps_no_output(submitted, authored):
    for cell in submitted.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "3.0"})]
    repair(submitted, authored)
    graded = [cell for cell in submitted.cells if cell.metadata.get("nbgrader") and cell.cell_type == "code"]
    assert graded and not any(cell.outputs for cell in graded)


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
    assert "Check cell 'double-check' was missing; it was restored." in notes
    assert "Answer cell 'shout' was missing; an empty one was added." in notes
    assert by_id(submitted)["shout"].source == ""
    assert by_id(submitted)["double-check"].source == by_id(authored)["double-check"].source


def test_everything_missing(submitted, authored):
    submitted.cells = []
    notes = repair(submitted, authored)
    assert len(notes) == 7 and notes[-1] == "A cell of imports was missing; it was restored."
    assert order(submitted) == order(authored) and submitted.cells[0].source.startswith("import warnings")
    nbformat.validate(submitted)


def test_no_answer_of_the_course_is_given_back(submitted, authored):
    drop(submitted, "double", "shout", "sort-words")
    repair(submitted, authored)
    assert "solutionmarker" not in nbformat.writes(submitted)


def test_changed_and_lost_ids_are_recognized_by_the_cell_id(submitted, authored):
    by_id(submitted)["shout"].metadata.nbgrader.grade_id = "mine"
    del by_id(submitted)["double"].metadata["nbgrader"]
    notes = " ".join(repair(submitted, authored))
    assert order(submitted) == order(authored) and "'double' had lost" in notes and "'shout' had lost" in notes


def as_an_editor_without_ids_saves_it(nb):
    """Drop nbgrader's metadata and the cells' ids."""
    for number, cell in enumerate(nb.cells):
        cell.metadata.pop("nbgrader", None)
        cell["id"] = f"submitted-{number}"


def test_a_notebook_without_metadata_and_ids_is_recognized_by_what_its_cells_say(submitted, authored):
    by_id(submitted)["shout"].source = "import re\n\ndef shout(word):\n    return word.upper()"
    for name in ("double-check", "shout-check", "sort-words-check"):
        by_id(submitted)[name].source = released(by_id(authored)[name].source)
    as_an_editor_without_ids_saves_it(submitted)
    notes = repair(submitted, authored)
    assert order(submitted) == order(authored) and len(submitted.cells) == len(authored.cells)
    assert by_id(submitted)["shout"].source.startswith("import re\n")
    assert notes == [f"Cell {name!r} had lost its ids; it was recognized by what it says." for name in order(authored)]


def test_an_answer_far_from_its_place_is_found_and_checked_there(submitted, authored):
    answer = by_id(submitted)["double"]
    drop(submitted, "double", "double-check")
    answer.metadata.pop("nbgrader")
    answer["id"] = "elsewhere"
    submitted.cells.append(answer)
    notes = " ".join(repair(submitted, authored))
    names = [cell.metadata.nbgrader.grade_id for cell in submitted.cells if "nbgrader" in cell.metadata]
    assert names.index("double-check") == names.index("double") + 1 and by_id(submitted)["double"] is answer
    assert "recognized by what it says" in notes and "Check cell 'double-check' was missing" in notes


@pytest.mark.parametrize("source", ["a=1\n" * 50_000, "x=" + "-" * 90_000 + "1", "x = \0"])
def test_cells_without_ids_cost_the_grader_no_time_and_no_memory_whatever_they_say(submitted, authored, source):
    """Each of them was parsed here once for each missing cell, which took minutes; or none of the notebook counted."""
    for number, cell in enumerate(submitted.cells):
        cell.metadata, cell.id = NotebookNode(), f"own-{number}"
    submitted.cells += [new_code_cell(source) for _ in range(10)]
    begin = time.thread_time()
    notes = repair(submitted, authored)
    assert time.thread_time() - begin < 2 and any("was missing" in note or "what it says" in note for note in notes)


def test_a_check_above_its_answer_is_moved_below_it(submitted, authored):
    at = submitted.cells.index(by_id(submitted)["shout"])
    submitted.cells.append(submitted.cells.pop(at))
    assert repair(submitted, authored) == ["The answer 'shout' stood below its check; it was checked where it stands."]
    assert order(submitted)[-2:] == ["shout", "shout-check"]


def test_a_cell_that_defines_something_else_is_no_answer(submitted, authored):
    as_an_editor_without_ids_saves_it(submitted)
    index = next(i for i, cell in enumerate(submitted.cells) if "def double" in cell.source)
    submitted.cells[index].source = "def redouble(x):\n    return 2 * x"
    assert "Answer cell 'double' was missing" in " ".join(repair(submitted, authored))


def test_prose_without_ids_is_the_text_below_its_question(authored):
    question, essay = new_markdown_cell("Explain.", id="why-rubric"), new_markdown_cell("", id="why")
    question.metadata["nbgrader"] = {"grade_id": "why-rubric", "locked": True, "grade": False, "solution": False}
    essay.metadata["nbgrader"] = {"grade_id": "why", "locked": False, "grade": True, "solution": True, "points": 2}
    authored = copy.deepcopy(authored)
    authored.cells += [question, essay]
    submitted = copy.deepcopy(authored)
    submitted.cells[-1].source = "Because."
    as_an_editor_without_ids_saves_it(submitted)
    repair(submitted, authored)
    assert by_id(submitted)["why"].source == "Because."


def test_imports_that_were_deleted_come_back_once(submitted, authored):
    drop(submitted, "cell-01")
    assert repair(submitted, authored) == ["A cell of imports was missing; it was restored."]
    assert submitted.cells[0].source == authored.cells[1].source
    assert repair(submitted, authored) == []


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
    assert "There are 2 cells" in repair(submitted, authored)[0]
    assert by_id(submitted)["double"] is twin and order(submitted).count("double") == 1


def test_metadata_always_comes_from_the_course(submitted, authored):
    by_id(submitted)["double-check"].metadata.nbgrader.update(points=1000, locked=False)
    by_id(submitted)["double"].metadata["nbgrader"] = {"grade_id": "double"}
    repair(submitted, authored)
    own, theirs = ({k: c.metadata.nbgrader for k, c in by_id(nb).items()} for nb in (submitted, authored))
    assert own == theirs


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


def test_a_folder_that_begins_with_a_dot_is_left_out_with_a_word(tmp_path):
    found = taken(
        tmp_path,
        ".bob/day01/graphs.ipynb",
        "ada/.day01/graphs.ipynb",
        "ada/day02/passes.ipynb",
        "ada/.ipynb_checkpoints/passes-checkpoint.ipynb",
        ".git/config",
    )
    assert found.submissions.keys() == {("ada", "day02")}
    sentence = "was left out, since its name begins with a dot: rename the folder to have it graded."
    assert said(found) == f".bob/ {sentence}" and said(found, "ada") == f".day01/ {sentence}"
    with zipfile.ZipFile(tmp_path / "ada/all.zip", "w") as archive:
        archive.writestr(".day01/graphs.ipynb", "{}")
    (tmp_path / "scratch").mkdir()
    found = taken(tmp_path, scratch=tmp_path / "scratch")
    assert f"all.zip/.day01/ {sentence}" in said(found, "ada")


def test_unreadable_files_are_named(tmp_path):
    (tmp_path / "class/ada/day01").mkdir(parents=True)
    os.mkfifo(tmp_path / "class/ada/day01/graphs.ipynb")
    found = collect(tmp_path / "class", KNOWN)
    assert not found.submissions and "not a regular file" in said(found, "ada")


# Locked cells


def released(text: str) -> str:
    """A check cell as learners have it."""
    return text.split("### BEGIN HIDDEN TESTS")[0].rstrip()


def test_locked_cells_come_from_the_course_and_only_changes_are_told(submitted, authored):
    for name in ("double-check", "shout-check", "sort-words-check"):
        by_id(submitted)[name].source = released(by_id(authored)[name].source)
    by_id(submitted)["shout-check"].source += "\nprint('full marks')"
    by_id(submitted)["shout-check"].metadata["tags"] = ["skip-execution", "raises-exception"]
    notes = repair(submitted, authored)
    assert notes == ["Cell 'shout-check' is read-only but had been changed; it was restored."]
    assert submitted == authored


def test_a_read_only_cell_without_points_is_put_back_too(submitted, authored):
    readonly = new_code_cell("SIZE = 3", id="size")
    readonly.metadata["nbgrader"] = {"grade_id": "size", "locked": True, "grade": False, "solution": False}
    authored = copy.deepcopy(authored)
    authored.cells.insert(2, readonly)
    own = copy.deepcopy(readonly)
    own.source = "SIZE = 10**9"
    submitted.cells.insert(2, own)
    assert "'size' is read-only" in repair(submitted, authored)[0]
    assert by_id(submitted)["size"].source == "SIZE = 3"


def test_answers_texts_and_own_cells_stay_the_learners(submitted, authored):
    essay = new_markdown_cell("Explain.", id="essay")
    essay.metadata["nbgrader"] = {"grade_id": "essay", "locked": False, "grade": True, "solution": True, "points": 2}
    authored = copy.deepcopy(authored)
    authored.cells.append(essay)
    result = copy.deepcopy(essay)
    result.source = "Because."
    own = new_code_cell("mine = 1", id="own")
    submitted.cells += [own, result]
    by_id(submitted)["double"].source = "def double(x): return 2 * x"
    assert repair(submitted, authored) == []
    assert by_id(submitted)["essay"].source == "Because." and "2 * x" in by_id(submitted)["double"].source
    assert submitted.cells[-2] is own


def test_a_check_cell_turned_to_text_is_the_courses_again(submitted, authored):
    at = next(i for i, cell in enumerate(submitted.cells) if cell.id == "double-check")
    text = new_markdown_cell("3.0", id="double-check")
    text.metadata["nbgrader"] = submitted.cells[at].metadata.nbgrader
    submitted.cells[at] = text
    assert "had become a markdown cell" in repair(submitted, authored)[0] and submitted == authored


def test_the_kernel_is_the_courses(submitted, authored):
    submitted.metadata["kernelspec"] = {"name": "mine", "display_name": "x", "language": "bash"}
    repair(submitted, authored)
    assert submitted.metadata.kernelspec == authored.metadata.kernelspec


# What a notebook must not be


def with_cells(cells) -> bytes:
    return json.dumps(valid() | {"cells": cells}).encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"nbformat": 4, "metadata": {"n": ' + b"9" * 5000 + b"}}", "thousands of digits"),
        (deep(150).encode(), "nested too deeply"),
        (b'{"nbformat": 4, "metadata": [' + b"[]," * 500_001 + b"[]]}", "500,000 values"),
        (with_cells([valid()["cells"][1]] * 2001), "2,001 cells"),
        (with_cells([{**valid()["cells"][1], "source": "x" * (2**20 + 1)}]), "cell 1 has 1,048,577 characters"),
        (json.dumps(valid() | {"nbformat": True}).encode(), "no `nbformat`"),
        (json.dumps(valid() | {"nbformat": -1}).encode(), "format -1"),
    ],
)
def test_the_limits_of_a_notebook(tmp_path, content, sentence):
    path = tmp_path / "graphs.ipynb"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match=sentence) as caught:
        read(path)
    assert len(str(caught.value)) < 300


def test_ids_that_no_notebook_may_have_are_replaced(tmp_path):
    path = tmp_path / "x.ipynb"
    cells = [{**valid()["cells"][0], "id": name} for name in ("../../etc", "a b", "x" * 65, "", "good")]
    path.write_bytes(with_cells(cells))
    assert [cell.id for cell in read(path).cells] == [*(f"submitted-{n}" for n in range(4)), "good"]


# Links and the layouts of Canvas and Moodle


def test_a_learners_folder_that_is_a_link_is_not_followed(tmp_path):
    touch(tmp_path / "class/bob/day01/graphs.ipynb")
    (tmp_path / "class/ada").symlink_to(tmp_path / "class/bob")
    found = collect(tmp_path / "class", KNOWN)
    assert set(found.submissions) == {("bob", "day01")} and "ada is a link and was not followed." in said(found)


def test_a_folder_that_becomes_a_link_later_is_not_followed(tmp_path):
    touch(tmp_path / "class/bob/day01/graphs.ipynb").write_text(json.dumps(valid()))
    touch(tmp_path / "class/ada/day01/graphs.ipynb")
    path = collect(tmp_path / "class", KNOWN).submissions["ada", "day01"].notebooks["graphs"]
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path / "class/bob/day01")
    with pytest.raises(UnreadableError, match="reached through one"):
        read(path)


def test_canvas(tmp_path):
    for name in (
        "lovelaceada_12_345_graphs.ipynb",
        "hoppergrace_LATE_13_346_graphs-1.ipynb",
        "hoppergrace_13_347_graphs.ipynb",
        "turingalan_14_348_passes-12.ipynb",
        "turingalan_14_349_other.ipynb",
    ):
        touch(tmp_path / name)
    found = collect(tmp_path, KNOWN, ids={"14": "alan"})
    assert {key: {n: p.name for n, p in s.notebooks.items()} for key, s in found.submissions.items()} == {
        ("lovelaceada_12", "day01"): {"graphs": "lovelaceada_12_345_graphs.ipynb"},
        ("hoppergrace_13", "day01"): {"graphs": "hoppergrace_LATE_13_346_graphs-1.ipynb"},
        ("alan", "day02"): {"passes": "turingalan_14_348_passes-12.ipynb"},
    }
    assert found.submissions["hoppergrace_13", "day01"].notes == [
        "graphs.ipynb was not graded: there is also hoppergrace_LATE_13_346_graphs-1.ipynb, which is a later attempt."
    ]
    assert "unknown notebook 'other.ipynb'" in said(found, "alan") and not said(found)
    assert "Canvas marks graphs-1.ipynb as late" in said(found, "hoppergrace_13")
    assert "as late" not in said(found, "lovelaceada_12") + said(found, "alan")


def test_moodle(tmp_path):
    touch(tmp_path / "Ada Lovelace_12_assignsubmission_file/graphs.ipynb")
    touch(tmp_path / "Ada Lovelace_13_assignsubmission_file_/graphs.ipynb")
    touch(tmp_path / "József A_14_assignsubmission_file/passes.ipynb")
    touch(tmp_path / "József A_14_assignsubmission_onlinetext/onlinetext.html")
    found = collect(tmp_path, KNOWN)
    learners = [("Ada Lovelace_12", "day01"), ("Ada Lovelace_13", "day01"), ("József A_14", "day02")]
    assert sorted(found.submissions) == learners
    assert not any(s.notes for s in found.submissions.values())
    assert found.notes.keys() == {"Ada Lovelace_12", "Ada Lovelace_13"}
    assert "this is number 12, besides 13" in said(found, "Ada Lovelace_12")


def test_a_roster_says_who_is_who_in_moodle_but_no_name_that_two_have(tmp_path):
    for name in ("Ada L_12", "Ada L_13", "Bob B_14", "Cyd C_15", "99_16"):
        touch(tmp_path / f"{name}_assignsubmission_file/graphs.ipynb")
    names = {"Ada L": "ada", "Bob B": "bob"}

    def learners(**more):
        return {learner for learner, _ in collect(tmp_path, KNOWN, **more).submissions}

    assert learners(names=names) == {"Ada L_12", "Ada L_13", "bob", "Cyd C_15", "99_16"}
    assert learners(names=names, moodle_ids={"13": "ada", "99": "eve"}) == {
        *("Ada L_12", "ada", "bob", "Cyd C_15", "99_16")
    }
    assert len(learners(names=names, moodle_ids={"15": "bob"})) == 5, "two folders for one learner are two"


def test_a_roster_decides_by_numbers_then_by_names_that_one_learner_has():
    canvas, moodle, names = commands._whose(
        {
            "ada": Learner("ada", "Ada L", canvas_id="1", moodle_id="12 57"),
            "bob": Learner("bob", "Bob B", canvas_id="2"),
            "rob": Learner("rob", "Bob B", canvas_id="2"),
            "Cyd C": Learner("Cyd C"),
            "dan": Learner("dan", "Dan D", moodle_id="12"),
        }
    )
    assert canvas == {"1": "ada"} and moodle == {"57": "ada"}
    assert names == {"bob": "bob", "rob": "rob", "Cyd C": "Cyd C"}


def test_a_moodle_download_of_one_learner_is_that_learners(tmp_path):
    found = taken(tmp_path, "Eve E_12_assignsubmission_file/ada/day01/graphs.ipynb")
    assert set(found.submissions) == {("Eve E_12", "day01")}


# The time of submission


@pytest.mark.parametrize("packed", ["day01/timestamp.txt", "timestamp.txt", "sub/day01/timestamp.txt"])
def test_no_learner_packs_a_time_of_submission(tmp_path, packed):
    notebook = str(PurePath(packed).with_name("graphs.ipynb"))
    entries = {notebook: "{}", packed: "2001-01-01 00:00:00 UTC"}
    (tmp_path / "scratch").mkdir()
    zipped(tmp_path / "class/ada/day01/hw.zip", entries)
    zipped(tmp_path / "class/bob/hw.zip", entries)
    zipped(tmp_path / "class/Cyd C_12_assignsubmission_file/hw.zip", entries)
    zipped(tmp_path / "class/dand_12_13_hw.zip", entries)
    for name in entries:
        touch(tmp_path / "class/Eve E_13_assignsubmission_file" / name)
        touch(tmp_path / "class/fay/day01/unpacked" / name)
    (tmp_path / "class/timestamp.txt").touch()
    found = collect(tmp_path / "class", KNOWN, tmp_path / "scratch")
    times = {learner: s.times for (learner, _), s in found.submissions.items()}
    assert times == {
        "ada": [tmp_path / "class/ada/day01/timestamp.txt"],
        "fay": [tmp_path / "class/fay/day01/timestamp.txt"],
        **{learner: [] for learner in ("bob", "Cyd C_12", "dand_12", "Eve E_13")},
    }
    assert "learners may have packed it" in " ".join(found.submissions["Eve E_13", "day01"].notes)


def test_the_collections_time_covers_whatever_was_handed_in_with_it(tmp_path):
    known = {"day01": {"graphs", "more"}, "day02": {"passes"}}
    for name in ("day01/graphs", "day02/day01/more", "day02/passes"):
        touch(tmp_path / "ada" / f"{name}.ipynb")
    for day, text in (("day01", "2030-01-01 10:00:00 UTC"), ("day02", "2030-01-09 09:00:00 CET")):
        (tmp_path / "ada" / day / "timestamp.txt").write_text(text)
    (tmp_path / "ada/day02/day01/timestamp.txt").write_text("2001-01-01")
    found = collect(tmp_path, known).submissions
    assert paper._latest(found["ada", "day01"]) == "2030-01-09 09:00:00 CET", "the later of two"
    assert paper._latest(found["ada", "day02"]) == "2030-01-09 09:00:00 CET"


def test_a_time_counts_whatever_is_around_it(tmp_path):
    touch(tmp_path / "ada/day01/graphs.ipynb")
    (tmp_path / "ada/day01/timestamp.txt").write_text(f"{' ' * 300}2030-01-09 09:00:00 UTC\n")
    submission = collect(tmp_path, {"day01": {"graphs"}}).submissions["ada", "day01"]
    assert paper._latest(submission) == "2030-01-09 09:00:00 UTC" and submission.notes == []


def test_a_time_that_is_not_read_is_told(tmp_path):
    touch(tmp_path / "ada/day01/graphs.ipynb")
    (tmp_path / "ada/day01/timestamp.txt").mkdir()
    submission = collect(tmp_path, {"day01": {"graphs"}}).submissions["ada", "day01"]
    assert paper._latest(submission) == "" and "counts as being on time" in submission.notes[0]


@pytest.mark.parametrize("zone", ["/zone", ":/zone", "../zone", "Europe/../zone"])
def test_no_file_is_read_for_a_time_zone(zone, tmp_path, monkeypatch):
    monkeypatch.setattr(utils, "parse_utc", lambda text: pytest.fail(f"{text} was parsed"))
    assert when(f"2030-01-01 10:00:00 {zone}") is None


@pytest.mark.parametrize("text", ["9" * 200, "1e400", "\0", "99:99", "2030-13-45", "UTC+99999", "1-1-1-1"])
def test_what_is_no_time_is_none(text, monkeypatch):
    assert when(text) is None
    monkeypatch.setattr(utils, "parse_utc", lambda text: [][1])
    assert when("2030-01-01") is None, "whatever the parser raises"


def test_a_name_that_is_no_text_can_be_reported(tmp_path):
    touch(tmp_path / "ada" / os.fsdecode(b"\xff.ipynb"))
    touch(tmp_path / os.fsdecode(b"bob\xff") / "day77/x.ipynb")
    found = collect(tmp_path, KNOWN)
    "".join((*found.notes, *(note for notes in found.notes.values() for note in notes))).encode()


def test_whatever_goes_wrong_with_one_learner_the_others_are_collected(tmp_path, monkeypatch):
    def odd(*_):
        raise IndexError("a bug")

    monkeypatch.setattr(files, "unpack", odd)
    zipped(tmp_path / "class/ada/hw.zip", {"graphs.ipynb": "{}"})
    found = taken(tmp_path / "class", "bob/day01/graphs.ipynb", scratch=tmp_path)
    assert set(found.submissions) == {("bob", "day01")} and "IndexError: a bug" in said(found, "ada")


# Archives


def zipped(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def test_a_class_in_one_zip_with_a_learners_zip_in_it(tmp_path):
    copy = zipped(tmp_path / "mine.zip", {"day02/passes.ipynb": "{}", "inner.zip": "not opened"})
    whole = zipped(
        tmp_path / "class.zip",
        {
            "class/ada/day01/graphs.ipynb": "{}",
            "class/bob/day01/graphs.ipynb": "{}",
            "class/bob/mine.zip": copy.read_bytes(),
            "class/../../evil/day01/graphs.ipynb": "{}",
            "class/cyd/hw.zip": b"PK no archive",
        },
    )
    (tmp_path / "scratch").mkdir()
    found = collect(whole, KNOWN, tmp_path / "scratch")
    assert set(found.submissions) == {("ada", "day01"), ("bob", "day01"), ("bob", "day02")}
    assert found.submissions["bob", "day02"].notes == [
        "Taken from mine.zip/day02/passes.ipynb (expected: day02/passes.ipynb)."
    ]
    assert "class/../../evil/day01/graphs.ipynb was skipped" in said(found) and not (tmp_path / "evil").exists()
    assert "hw.zip is damaged" in said(found, "cyd")


def test_only_what_is_filed_is_unpacked(tmp_path):
    (scratch := tmp_path / "scratch").mkdir()
    entries = {"deep/day01/graphs.ipynb": "{}", "day01/graphs.ipynb": "{}", "day01/other.ipynb": "{}"}
    zipped(tmp_path / "class/ada/hw.zip", entries | {"graphs.ipynb": "{}", ".hidden/day02/passes.ipynb": "{}"})
    found = collect(tmp_path / "class", KNOWN, scratch)
    unpacked = sorted(path.relative_to(scratch).as_posix() for path in scratch.rglob("*.ipynb"))
    assert unpacked == ["learner-1/day01/other.ipynb", "learner-1/graphs.ipynb"], "its checks may say what the other is"
    assert list(found.submissions) == [("ada", "day01")]
    assert "day01 has no notebook of that name" in said(found, "ada")


@pytest.mark.parametrize("whole", [False, True])
def test_a_learner_who_packs_too_much_for_a_small_disk_takes_nothing_from_the_next(tmp_path, monkeypatch, whole):
    usage = shutil.disk_usage(tmp_path)._replace(free=files.RESERVE + 20_000)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage)
    (scratch := tmp_path / "scratch").mkdir()
    large = {f"{day}.ipynb": " " * 20_000 for day in ("day01/graphs", "day02/passes")}
    zipped(tmp_path / "class/ada/hw.zip", large)
    zipped(tmp_path / "class/bob/hw.zip", {"day01/graphs.ipynb": "{}"})
    if whole:
        entries = {f"class/ada/{name}": text for name, text in large.items()} | {"class/bob/day01/graphs.ipynb": "{}"}
        found = collect(zipped(tmp_path / "class.zip", entries), KNOWN, scratch)
        why = said(found)
    else:
        found = collect(tmp_path / "class", KNOWN, scratch)
        why = said(found, "ada")
    assert list(found.submissions) == [("bob", "day01")]
    assert "the share of each in what is free" in why and "This is the disk of who grades" in why
    assert "there is no notebook in this archive" not in why


def test_a_full_disk_is_named_and_is_not_the_archives_fault(tmp_path, monkeypatch):
    def nothing_left(*_):
        raise files.DiskFullError("there is no space left in /tmp. This is the disk of who grades.")

    monkeypatch.setattr(files, "_fill", nothing_left)
    (scratch := tmp_path / "scratch").mkdir()
    zipped(tmp_path / "class/ada/hw.zip", {"day01/graphs.ipynb": "{}"})
    why = said(collect(tmp_path / "class", KNOWN, scratch), "ada")
    assert why == "hw.zip was not unpacked: there is no space left in /tmp. This is the disk of who grades."
    with pytest.raises(UnreadableError, match=r"class.zip was not unpacked: there is no space left in /tmp"):
        collect(zipped(tmp_path / "class.zip", {"ada/day01/graphs.ipynb": "{}"}), KNOWN, scratch)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("ada/day01/{}/graphs.ipynb", "bob/day01/graphs.ipynb"),
        ("class/ada/day01/{}/graphs.ipynb", "class/bob/day01/graphs.ipynb"),
        ("class/ada/{}/day01/graphs.ipynb", "class/bob/day01/graphs.ipynb"),
        ("ada/{}/graphs.ipynb", "bob/graphs.ipynb"),
        ("Ada A_12_assignsubmission_file/{}/graphs.ipynb", "Bob B_13_assignsubmission_file/graphs.ipynb"),
        ("ada_12_{}_graphs.ipynb", "bob_13_4_graphs.ipynb"),
    ],
)
def test_in_the_archive_of_a_class_one_learners_entries_leave_room_for_the_next(tmp_path, monkeypatch, mine, theirs):
    monkeypatch.setattr(files, "LEARNER_FILES", 5)
    (scratch := tmp_path / "scratch").mkdir()
    entries = {mine.format(number): "{}" for number in range(20)}
    path = zipped(tmp_path / "class.zip", {"__MACOSX/x": ""} | entries | {theirs: "{}", "roster.csv": ""})
    found = collect(path, KNOWN, scratch)
    assert len(list(scratch.rglob("*.ipynb"))) == 6, "five and one"
    assert any(name.lower().startswith("bob") for name, _ in found.submissions)


def test_without_a_place_to_unpack_archives_are_named(tmp_path):
    zipped(tmp_path / "class/ada/hw.zip", {"graphs.ipynb": "{}"})
    assert "hw.zip is an archive and was not unpacked" in said(collect(tmp_path / "class", KNOWN), "ada")
    with pytest.raises(UnreadableError, match="no folder to unpack it into"):
        collect(zipped(tmp_path / "class.zip", {}), KNOWN)
    with pytest.raises(UnreadableError, match="not a folder or an archive"):
        collect(touch(tmp_path / "class.rar"), KNOWN)


# To the engine and back


def test_a_job_has_the_cells_in_order_and_the_checks_from_the_course(submitted, authored):
    by_id(submitted)["double-check"].source = "check('day00.shout', cheat)"
    submitted.cells.insert(1, new_code_cell("own = 1", id="own"))
    submitted.cells.append(new_code_cell("   \n"))
    repair(submitted, authored)
    value = intake.job(submitted, authored, "ada", "day00", "tiny", 7)
    assert (value.learner, value.assignment, value.notebook, value.seed) == ("ada", "day00", "tiny", 7)
    assert [(c.name, c.exercise, c.answer) for c in value.cells][:4] == [
        ("own", "", ""),
        ("cell-01", "", ""),
        ("double", "", ""),
        ("double-check", "day00.double", "double"),
    ]
    assert [c.name for c in value.cells if c.exercise] == ["double-check", "shout-check", "sort-words-check"]
    assert not any(c.graded for c in value.cells)
    assert all(submitted.cells[c.index].source == c.source for c in value.cells)


def graded_cell(name: str, text: str, points: float):
    cell = new_code_cell(text, id=name)
    cell.metadata["nbgrader"] = {
        "grade_id": name, "grade": True, "solution": False, "locked": True, "points": points, "schema_version": 3,
    }  # fmt: skip
    return cell


def test_another_graded_cell_is_run_as_nbgrader_would(authored):
    authored = copy.deepcopy(authored)
    authored.cells.append(graded_cell("stock", "!true\n### BEGIN HIDDEN TESTS\nassert x\n### END HIDDEN TESTS", 2))
    submitted = copy.deepcopy(authored)
    by_id(submitted)["stock"].source = "!true"
    repair(submitted, authored)
    cell = intake.job(submitted, authored, "ada", "day00", "tiny", 7).cells[-1]
    assert cell.graded and not cell.exercise and "assert x" in cell.source


def a_verdict(points: float, **more) -> Verdict:
    return Verdict(
        "day00.double", points, 3.0, 7, {"did": points > 0}, "Said.", html="<b>card</b>", text="card", **more
    )


def index_of(nb, name):
    return next(i for i, cell in enumerate(nb.cells) if cell.id == name)


def test_nbgrader_reads_the_points_of_a_verdict(submitted):
    at = [index_of(submitted, f"{name}-check") for name in ("double", "shout", "sort-words")]
    crash = a_verdict(0.0, crash="It ended the Python process.")
    verdicts = {at[0]: a_verdict(1 / 3), at[1]: a_verdict(1000.0), at[2]: crash}
    ran = {2: Ran([{"output_type": "stream", "name": "stderr", "text": "careful"}])}
    intake.fill(submitted, NotebookResult("ada", "day00", "tiny", 7, ran=ran, verdicts=verdicts))
    nbformat.validate(submitted)
    checks = [submitted.cells[i] for i in at]
    assert [determine_grade(cell)[0] for cell in checks] == [0.3333, 3.0, 0.0]
    card = checks[0].outputs[0]
    assert card.data["text/plain"] == "card" and card.data["text/html"] == "<b>card</b>"
    message = card.data[VERDICT]
    assert (
        message["seed"] == 7 and message["verdicts"] == {"did": True} and not {"cases", "html", "text"} & set(message)
    )
    assert checks[2].outputs[-1].evalue == "It ended the Python process."
    counts = [cell.execution_count for cell in submitted.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)) and checks[0].outputs[1].execution_count == counts[2]


def test_a_question_of_which_nothing_is_known_gives_no_points(submitted):
    intake.fill(submitted, NotebookResult("ada", "day00", "tiny", 7, failure="no memory."))
    check = submitted.cells[index_of(submitted, "double-check")]
    assert determine_grade(check) == (0, 3.0) and "no memory" in check.outputs[0].evalue


@pytest.mark.parametrize(
    ("ran", "points"),
    [
        (Ran(), 2.0),
        (Ran([{"output_type": "stream", "name": "stderr", "text": "careful"}]), 2.0),
        (Ran([], "UsageError: no"), 0.0),
        (Ran([], "", died="It ended."), 0.0),
        (Ran([{"output_type": "error", "ename": "E", "evalue": "", "traceback": []}], "E"), 0.0),
        (Ran([{"output_type": "execute_result", "data": {"text/plain": "0.5"}, "metadata": {}}]), 0.5),
        (Ran([{"output_type": "execute_result", "data": {"text/plain": "50"}, "metadata": {}}]), 2.0),
        (Ran([{"output_type": "execute_result", "data": {"text/html": "50"}, "metadata": {}}]), 2.0),
        (Ran([{"output_type": "display_data", "data": {VERDICT: {"points": 9}}, "metadata": {}}]), 2.0),
    ],
)
def test_what_a_graded_cell_gave_is_what_nbgrader_reads(ran, points):
    nb = nbformat.v4.new_notebook(cells=[graded_cell("stock", "x", 2)])
    intake.fill(nb, NotebookResult("ada", "day00", "tiny", 7, ran={0: ran}))
    nbformat.validate(nb)
    assert determine_grade(nb.cells[0]) == (points, 2.0)
    assert not any(VERDICT in output.get("data", {}) for output in nb.cells[0].outputs)


# What one submission may cost


def test_an_old_heading_cannot_be_of_any_level(tmp_path):
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"metadata": {}}]}
    path = tmp_path / "graphs.ipynb"
    for level, source in ((2, ["A heading"]), (10**10, "x")):
        heading = {"cell_type": "heading", "level": level, "metadata": {}, "source": source}
        old["worksheets"][0]["cells"] = [heading]
        path.write_text(json.dumps(old))
        if level == 2:
            assert read(path).cells[0].source == "## A heading"
        else:
            with pytest.raises(UnreadableError, match="cannot be converted"):
                read(path)


def test_values_and_characters_are_counted_together(tmp_path, monkeypatch):
    path = tmp_path / "graphs.ipynb"
    nb = nbformat.v4.new_notebook(cells=[new_code_cell("x" * 60) for _ in range(4)], metadata={"a": [0] * 100})
    nbformat.write(nb, path)
    read(path)
    monkeypatch.setattr(reading, "MAX_PARTS", 100)
    assert "more than 100 values" in reading.parsed(path.read_bytes())
    monkeypatch.setattr(reading, "MAX_PARTS", 1_000)
    monkeypatch.setattr(reading, "MAX_SOURCES", 200)
    assert "240 characters in its cells" in reading.parsed(path.read_bytes())


def test_of_many_sentences_the_first_are_kept_and_the_long_are_cut(tmp_path):
    found = taken(tmp_path, "ada/day01/graphs.ipynb", *(f"ada/x/{number}.ipynb" for number in range(80)))
    assert len(found.notes["ada"]) == intake.MAX_NOTES + 1 and "There is more to tell" in found.notes["ada"][-1]
    found.note("bob", "x" * 10**6)
    assert len(found.notes["bob"][0]) < 2_000


def test_a_learner_has_so_many_archives_and_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LEARNER_BYTES", 1_000)
    monkeypatch.setattr(submissions, "MAX_ARCHIVES", 3)
    (scratch := tmp_path / "scratch").mkdir()
    for who in ("ada", "bob"):
        for number in range(5):
            path = tmp_path / f"class/{who}/day01/{number}.zip"
            path.parent.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(f"{number}/graphs.ipynb", "{" + " " * 600 + "}")
    found = collect(tmp_path / "class", KNOWN, scratch)
    assert [len([*scratch.rglob("*.ipynb")]), len([*scratch.iterdir()])] == [2, 6], "one and three of each"
    assert "more than 3 archives" in said(found, "bob") and set(found.submissions) == {
        ("ada", "day01"),
        ("bob", "day01"),
    }


@pytest.mark.parametrize("text", ["--", "1700000000", "yesterday", "0000-00-00"])
def test_a_time_that_cannot_be_read_is_named_for_its_learner(tmp_path, text):
    touch(tmp_path / "ada/day01/graphs.ipynb")
    (tmp_path / "ada/day01/timestamp.txt").write_text(text)
    submission = collect(tmp_path, KNOWN).submissions["ada", "day01"]
    assert paper._latest(submission) == ""
    assert f"timestamp.txt says {text!r}, which is not a time such as" in submission.notes[0]


def test_a_time_may_begin_with_a_byte_order_mark(tmp_path):
    touch(tmp_path / "ada/day01/graphs.ipynb")
    (tmp_path / "ada/day01/timestamp.txt").write_text("2026-11-26 10:00:00 UTC", encoding="utf-8-sig")
    submission = collect(tmp_path, KNOWN).submissions["ada", "day01"]
    assert paper._latest(submission) == "2026-11-26 10:00:00 UTC" and not submission.notes


# Downloads without folders or names, and groups


def test_moodle_without_folders(tmp_path):
    for name in ("Ada L_12_assignsubmission_file_graphs.ipynb", "Bob_B_13_assignsubmission_file_passes.ipynb"):
        touch(tmp_path / name)
    touch(tmp_path / "Ada L_14_assignsubmission_file_graphs (1).ipynb")
    found = collect(tmp_path, KNOWN, moodle_ids={"13": "bob"})
    assert set(found.submissions) == {("Ada L_12", "day01"), ("bob", "day02"), ("Ada L_14", "day01")}
    assert "this is number 12, besides 14" in said(found, "Ada L_12") and not said(found)


def test_the_class_of_a_moodle_archive_without_folders_shares_space(tmp_path):
    (scratch := tmp_path / "scratch").mkdir()
    names = [f"{who}_{n}_assignsubmission_file_graphs.ipynb" for n, who in enumerate(("Ada A", "Bob B"), 12)]
    path = zipped(tmp_path / "class.zip", dict.fromkeys(names, "{}"))
    assert set(collect(path, KNOWN, scratch).submissions) == {("Ada A_12", "day01"), ("Bob B_13", "day01")}
    assert set(submissions._whose([[name] for name in names], KNOWN).values()) == {"12", "13"}


def test_canvas_without_names(tmp_path):
    for name in ("anon_a1B2c_78_graphs.ipynb", "anon_12345_LATE_79_graphs-1.ipynb", "anon_12345_80_graphs.ipynb"):
        touch(tmp_path / name)
    found = collect(tmp_path, KNOWN, ids={"12345": "eve"})
    assert set(found.submissions) == {("anon_a1B2c", "day01"), ("anon_12345", "day01")}
    assert found.submissions["anon_12345", "day01"].notebooks["graphs"].name.startswith("anon_12345_LATE")
    assert "Canvas hid who this is" in said(found, "anon_a1B2c")


@pytest.mark.parametrize("who", ["x-Grace H_1", "x_13"])
def test_no_file_in_canvas_is_anothers_because_its_learner_named_it_as_moodle_does(tmp_path, who):
    """It took the place of the other's work, as a later attempt."""
    paths = ["hoppergrace_13_346_graphs.ipynb", f"mallorymal_14_347_{who}_assignsubmission_file_graphs-9.ipynb"]
    for path in paths:
        touch(tmp_path / path)
    found = collect(
        tmp_path, KNOWN, ids={"13": "grace", "14": "mal"}, moodle_ids={"13": "grace"}, names={"Grace H": "grace"}
    )
    assert found.submissions["grace", "day01"].notebooks["graphs"].name == paths[0]
    assert not found.submissions["grace", "day01"].notes
    assert set(submissions._whose([[path] for path in paths], KNOWN).values()) == {"13", "14"}


def test_blanks_between_the_endings_of_a_name_take_no_time(tmp_path):
    """With twice as many, it took longer than anybody waits, before a submission of the class was graded."""
    touch(tmp_path / "ada" / f"a{'   copy' * 16}!.ipynb")
    begin = time.process_time()
    assert "unknown notebook" in said(collect(tmp_path, KNOWN), "ada")
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("archive", ["a.zip", "day01.zip", "day01/a.zip", "day01/z.zip"])
def test_a_notebook_counts_and_not_the_archive_with_which_its_learner_began(tmp_path, archive):
    """An archive above it, or whose name came first, took its place: the notebook as it was released was graded."""
    (scratch := tmp_path / "scratch").mkdir()
    touch(tmp_path / "class/ada/day01/graphs.ipynb")
    zipped(tmp_path / "class/ada" / archive, {"day01/graphs.ipynb": "{}"})
    found = collect(tmp_path / "class", KNOWN, scratch)
    assert found.submissions["ada", "day01"].notebooks["graphs"] == tmp_path / "class/ada/day01/graphs.ipynb"


def test_what_notebooks_are_is_looked_up_for_so_long_only(tmp_path, monkeypatch):
    """Two thousand of 40 kB, in an archive of a tenth of a megabyte, took an hour before anything was graded."""
    monkeypatch.setattr(submissions, "MAX_READING", 0.2)
    places = iter([("day02", "passes"), *[None] * 50])
    monkeypatch.setattr(claims, "place", lambda path, known: time.sleep(0.05) or next(places))
    for number in range(50):
        touch(tmp_path / f"ada/mine {number:02}.ipynb")
    touch(tmp_path / "ada/day01/graphs.ipynb")
    found = collect(tmp_path, KNOWN)
    assert {*found.submissions} == {("ada", "day01"), ("ada", "day02")} and len([*places]) > 40
    assert "only those were read" in said(found, "ada")


def test_no_folder_has_the_id_that_another_gets(tmp_path):
    """Whoever called theirs like that got what somebody else had handed in."""
    other = f"a_b ({hashlib.sha256(b'a*b').hexdigest()[:8]})"
    for name in ("a*b", "a_b", other):
        touch(tmp_path / name / "day01/graphs.ipynb")
    found = {who: one.notebooks["graphs"].parts[-3] for (who, _), one in collect(tmp_path, KNOWN).submissions.items()}
    assert len(found) == 3 and (found["a_b"], found[other]) == ("a_b", other)


def test_nor_does_one_that_canvas_wrote_beside_it(tmp_path):
    (scratch := tmp_path / "scratch").mkdir()
    touch(tmp_path / "class/lovelaceada_12_345_graphs.ipynb")
    zipped(tmp_path / "class/lovelaceada_12_346_day01-7.zip", {"day01/graphs.ipynb": "{}"})
    submission = collect(tmp_path / "class", KNOWN, scratch).submissions["lovelaceada_12", "day01"]
    assert submission.notebooks["graphs"] == tmp_path / "class/lovelaceada_12_345_graphs.ipynb"
    assert "which is not in an archive" in submission.notes[0]


GROUPS = {"ada": "A", "bob": "A", "cyd": "A", "dan": "", "eve": "E", "fay": "E"}


def test_a_groups_submission_counts_for_each_member(tmp_path):
    touch(tmp_path / "bob/day01/graphs.ipynb")
    (tmp_path / "bob/day01/timestamp.txt").write_text("2026-11-26 10:00:00 UTC")
    touch(tmp_path / "dan/day01/graphs.ipynb")
    found = collect(tmp_path, KNOWN)
    intake.share(found, GROUPS)
    assert set(found.submissions) == {(who, "day01") for who in ("ada", "bob", "cyd", "dan")}
    bob, ada = found.submissions["bob", "day01"], found.submissions["ada", "day01"]
    assert (ada.notebooks, ada.times, ada.same_as) == (bob.notebooks, bob.times, bob) and bob.same_as is None
    assert ada.notes == ["Handed in by bob for the group A."] and not bob.notes


def test_moodles_files_of_a_group_are_one_submission(tmp_path):
    for name in ("Team A-Ada L_12", "Team A-Bob B_13"):
        touch(tmp_path / f"{name}_assignsubmission_file/graphs.ipynb")
    found = collect(tmp_path, KNOWN, names={"Ada L": "ada", "Bob B": "bob"})
    intake.share(found, GROUPS)
    assert set(found.submissions) == {(who, "day01") for who in ("ada", "bob", "cyd")}
    assert len({id(s.same_as or s) for s in found.submissions.values()}) == 1


def test_of_different_files_of_a_group_the_instructor_decides(tmp_path):
    notebook_of(tmp_path / "eve/day01/graphs.ipynb", "day01.levels", ink="1")
    notebook_of(tmp_path / "fay/day01/graphs.ipynb", "day01.levels", ink="2")
    found = collect(tmp_path, KNOWN)
    intake.share(found, GROUPS)
    for who in ("eve", "fay"):
        assert found.submissions[who, "day01"].undecided.startswith(
            "eve and fay of the group E handed in different files for day01. Decide which one counts"
        )


@pytest.mark.parametrize("other", ["Graphs.ipynb", "zz/graphs (1).ipynb"])
def test_a_file_without_a_check_of_the_course_is_no_rival(tmp_path, other):
    touch(tmp_path / "ada" / other)
    right = notebook_of(tmp_path / "ada/day01/graphs.ipynb", "day01.levels")
    submission = collect(tmp_path, KNOWN).submissions["ada", "day01"]
    assert submission.notebooks == {"graphs": right} and not submission.undecided
    assert f"{other} was not graded: it has no check of this course" in " ".join(submission.notes)
