"""grades.csv, and the files for Canvas and Moodle, read back as those programs read them."""

import csv
import os
import re
from datetime import datetime
from types import SimpleNamespace

import pytest
from nbgrader.api import MissingEntry
from nbgrader.plugins import CsvExportPlugin

from autograder.grading.extra import ExtraCredit
from autograder.grading.recorder import Score
from autograder.grading.roster import Learner
from autograder.reports import exports
from autograder.reports.export_plugin import SafeCsv
from autograder.reports.exports import Row
from tests.support import synthetic

FORMULA = "=cmd|' /C calc'!A0"
EVIL = [
    *(FORMULA, "+1", "-2+3", "@SUM(A1)", "\tx", "＝1", " =1", '"=1"'),
    *(f"a{separator}{FORMULA}" for separator in (";", "\t", ",", "\n", "\r", "; ", ';"', ',"', ";;", ";\xa0", "\n\t")),
]


def read(path):
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines))


def test_grades_csv_keeps_its_columns_and_adds_misconception_and_status(tmp_path):
    results = synthetic.make(20, seed=3)
    exports.write_grades(tmp_path / "grades.csv", exports.rows(synthetic.scores(results)))
    header, *lines = read(tmp_path / "grades.csv")
    assert header[:8] == ["learner", "assignment", "question", "points", "max_points", "seed", "lost", "message"]
    assert header[8:] == ["misconception", "status", "credit"]
    assert len(lines) == 20 * sum(len(q) for q in synthetic.COURSE.values())
    total = sum(v.points for r in results for v in r.verdicts.values())
    assert sum(float(line[3]) for line in lines) == pytest.approx(total)
    assert {line[9] for line in lines} == {"right", "partly right", "wrong", "not attempted", "crashed"}
    shown = next(line for line in lines if line[8].startswith("merges"))
    assert shown[6] == "same spared" and shown[7]


def test_what_people_graded_and_what_was_not_handed_in():
    scores = [Score("n", "essay", None, 5), Score("n", "old", 0, 5, error="not handed in"), Score("n", "read", 2, 5)]
    result = exports.rows({("ada", "day01"): scores})
    assert [row.status for row in result] == ["to be graded", "not attempted", "partly right"]
    assert result[0].points is None and result[1].message == "not handed in"


def test_a_row_without_points_waits_for_a_person(tmp_path):
    rows = [Row("ada", "day01", "essay", None, 5, status="to be graded"), Row("ada", "day01", "dce", 4, 5)]
    exports.write_grades(tmp_path / "grades.csv", rows)
    assert read(tmp_path / "grades.csv")[1][3] == ""
    notes = exports.write_canvas(tmp_path / "canvas.csv", rows)
    assert notes == ["ada, day01: no grade, because an answer still has to be graded."]
    assert read(tmp_path / "canvas.csv")[2][5] == "" and read(tmp_path / "canvas.csv")[1][5] == "10"
    exports.write_moodle(tmp_path / "moodle.csv", rows)
    assert read(tmp_path / "moodle.csv")[1] == ["ada", "", "-"]


def test_extra_credit_counts_but_is_not_in_the_maximum(tmp_path):
    rows = [
        Row("ada", "day01", "a", 4, 4),
        Row("ada", "day01", "b", 3, 6, stretch=True),
        Row("bob", "day01", "a", 2, 4),
    ]
    exports.write_grades(tmp_path / "grades.csv", rows)
    assert [line[10] for line in read(tmp_path / "grades.csv")] == ["credit", "core", "extra", "core"]
    exports.write_canvas(tmp_path / "canvas.csv", rows)
    assert [line[5] for line in read(tmp_path / "canvas.csv")[1:]] == ["4", "7", "2"]
    assert exports.write_moodle(tmp_path / "moodle.csv", rows) == [
        "day01 is worth 4 points, and with extra credit there are up to 7: Moodle accepts more than the maximum only "
        "with unlimitedgrades on."
    ]


@pytest.mark.parametrize(
    ("setting", "grades"),
    [
        ({"weight": 0.5}, {"day01": ["4", "5.5", "2"]}),
        ({"most": 0.25}, {"day01": ["4", "5", "2"]}),
        ({"weight": 0.2, "most": 0.25}, {"day01": ["4", "4.6", "2"]}),
        ({"weight": 0.0}, {"day01": ["4", "4", "2"]}),
        ({"own_column": True}, {"day01": ["4", "4", "2"], "day01 extra": ["0", "3", ""]}),
        ({"own_column": True, "most": 0.5}, {"day01": ["4", "4", "2"], "day01 extra": ["0", "2", ""]}),
    ],
)
def test_an_instructor_says_how_much_extra_credit_counts(tmp_path, setting, grades):
    rows = [
        Row("ada", "day01", "a", 4, 4),
        Row("ada", "day01", "b", 3, 6, stretch=True),
        Row("bob", "day01", "a", 2, 4),
    ]
    exports.write_canvas(tmp_path / "canvas.csv", rows, credit=ExtraCredit(**setting))
    header, *lines = read(tmp_path / "canvas.csv")
    assert {name: [line[at] for line in lines] for at, name in enumerate(header) if at >= 5} == grades
    exports.write_moodle(tmp_path / "moodle.csv", rows, credit=ExtraCredit(**setting))
    in_moodle = [line[2:] for line in read(tmp_path / "moodle.csv")[1:]]
    assert in_moodle == [[column[at] or "-" for column in grades.values()] for at in (1, 2)]


def test_canvas_finds_header_points_possible_learners_and_grades(tmp_path):
    roster = {
        "ada": Learner("ada", "Lovelace, Ada", "ada@example.org", "A", "17", "S-1"),
        "bob": Learner("bob", "Builder, Bob"),
    }
    rows = [Row("ada", "day01", "a", 2.5, 4), Row("ada", "day01", "b", 3, 6), Row("ada", "day02", "c", 1, 2)]
    assert exports.write_canvas(tmp_path / "canvas.csv", rows, roster, {("ada", "day01"): 1.5}) == []
    header, possible, ada, bob = read(tmp_path / "canvas.csv")
    assert header == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "day01", "day02"]
    assert "Points Possible" in possible[0] and possible[5:] == ["10", "2"]
    assert ada == ["Lovelace, Ada", "17", "S-1", "ada", "A", "4", "1"]
    assert bob == ["Builder, Bob", "", "", "bob", "", "", ""]


def test_moodle_goes_by_email_when_everybody_has_one(tmp_path):
    rows = [Row("ada", "day01", "a", 2.5, 4), Row("bob", "day01", "a", 0, 4)]
    roster = {name: Learner(name, name.title(), f"{name}@example.org") for name in ("ada", "bob")}
    assert exports.write_moodle(tmp_path / "moodle.csv", rows, roster) == []
    header, ada, bob = read(tmp_path / "moodle.csv")
    assert header == ["identifier", "full name", "day01"]
    assert ada == ["ada@example.org", "Ada", "2.5"] and bob[2] == "0"
    exports.write_moodle(tmp_path / "moodle.csv", rows, {**roster, "bob": Learner("bob")})
    assert [line[0] for line in read(tmp_path / "moodle.csv")[1:]] == ["ada", "bob"]
    [note] = exports.write_moodle(tmp_path / "moodle.csv", [Row("ada", "day01", "a", 90, 120)])
    assert "unlimitedgrades" in note


@pytest.mark.parametrize("evil", EVIL)
def test_no_field_is_a_formula_and_the_learner_still_imports(tmp_path, evil):
    rows = [Row(evil, "day01", "a", 1, 2, message=evil, misconception=evil)]
    roster = {evil: Learner(evil, evil, "eve@example.org", evil, "99", "")}
    exports.write_grades(tmp_path / "grades.csv", rows)
    assert exports.write_canvas(tmp_path / "canvas.csv", rows, roster) == []
    assert exports.write_moodle(tmp_path / "moodle.csv", rows, roster) == []
    for name in ("grades.csv", "canvas.csv", "moodle.csv"):
        for line in read(tmp_path / name):
            assert not [field for field in line if field.startswith(tuple("=+-@\t\r＝"))], name
        text = (tmp_path / name).read_text(encoding="utf-8")
        for cut in (";", "\t", ",", ";\t,"):  # as a spreadsheet with another list separator cuts it, quotes or not
            fields = [field for line in text.splitlines() for field in re.split(f"[{cut}]", line)]
            assert not [field for field in fields if field.strip(' \xa0"').startswith(tuple("=+-@＝"))], (name, cut)
    assert read(tmp_path / "canvas.csv")[2][1] == "99"
    assert read(tmp_path / "moodle.csv")[1][0] == "eve@example.org"


def test_a_learner_whom_the_other_program_cannot_find_is_named(tmp_path):
    rows = [Row("=1+1", "day01", "a", 1, 2), Row("ada", "day01", "a", 1, 2)]
    [note] = exports.write_canvas(tmp_path / "canvas.csv", rows)
    assert note.startswith("=1+1: Canvas will not find") and "canvas_id" in note
    [note] = exports.write_moodle(tmp_path / "moodle.csv", rows)
    assert note.startswith("=1+1: left out") and "email" in note
    assert [line[0] for line in read(tmp_path / "moodle.csv")] == ["identifier", "ada"]


def test_a_message_with_numbers_stays_as_it_is():
    for text in ("Expected (1, -2), got a = b; then it stopped.", "a-b;c", "–1", "x@y.org", "1;2"):
        assert exports.harmless(text) == text


def test_nbgraders_own_export_has_its_columns_and_no_formula(tmp_path):
    assignment = SimpleNamespace(name="day01", duedate=None, max_score=4.0)
    evil = SimpleNamespace(id=f"x;{FORMULA}", last_name=None, first_name='Eve","Ada', email=FORMULA)
    ada = SimpleNamespace(id="ada", last_name="L", first_name="Ada", email="")

    def find(_, learner):
        if learner == "ada":
            raise MissingEntry
        return SimpleNamespace(timestamp=datetime(2030, 1, 2), score=3.0, late_submission_penalty=1.0)

    book = SimpleNamespace(assignments=[assignment], students=[ada, evil], find_submission=find)
    for plugin in (SafeCsv(to=str(tmp_path / "ours.csv")), CsvExportPlugin(to=str(tmp_path / "stock.csv"))):
        plugin.export(book)
    ours, stock = read(tmp_path / "ours.csv"), read(tmp_path / "stock.csv")
    assert ours[:2] == stock[:2]
    assert ours[2][2:] == [
        "2030-01-02 00:00:00",
        f"x;'{FORMULA}",
        "",
        'Eve","Ada',
        f"'{FORMULA}",
        "3.0",
        "1.0",
        "2.0",
        "4.0",
    ]
    SafeCsv(to=str(tmp_path / "one.csv"), student=["ada"], assignment=["day01"]).export(book)
    assert [line[3] for line in read(tmp_path / "one.csv")] == ["student_id", "ada"]


def test_any_text_can_be_written(tmp_path):
    exports.write_grades(tmp_path / "grades.csv", [Row("a\ud800\0b", 'x"y', "q,\nr", 1, 2, message="–\u202e\x1b[0m")])
    assert read(tmp_path / "grades.csv")[1][:3] == ["a?b", 'x"y', "q,\nr"]


@pytest.mark.parametrize("step", ["chmod", "replace"])
def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch, step):
    path = tmp_path / "grades.csv"
    exports.write_grades(path, [Row("ada", "day01", "a", 1, 2)])
    before = path.read_bytes()

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="full"):
        exports.write_grades(path, [Row("bob", "day01", "a", 1, 2)])
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["grades.csv"]
