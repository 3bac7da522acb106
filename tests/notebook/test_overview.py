"""The overview of points: the days first, and each day's questions."""

from dataclasses import replace

import pytest

from passlab import exercises
from passlab.judge import Case, Exercise, Finding, Written
from passlab.notebook import overview, ui
from passlab.notebook.project import remember

FOUR = Exercise(
    id="day00.four",
    title="Four",
    points={"valid": 1, "did": 2},
    difficulty=2,
    minutes=5,
    hints=("Count.", "Count to four.", "It is 4."),
    cases=lambda: [Case("the only one", lambda: (2, 2))],
    judge=lambda case, value: [Finding("valid", isinstance(value, int)), Finding("did", value == 4)],
)
MORE = replace(FOUR, id="day00.more", title="More <of it>", stretch=True, minutes=7)
TEXT = Written(id="day00.text", title="Why", points=10, difficulty=1, minutes=20)


@pytest.fixture(autouse=True)
def toy_course(monkeypatch, tmp_path):
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "work" / "progress.json"))
    monkeypatch.setattr(exercises, "days", lambda: ["day00", "day01"])
    monkeypatch.setattr(exercises, "title", lambda day: {"day00": "Day 0, counting"}.get(day, day))
    monkeypatch.setattr(exercises, "of_day", lambda day: (FOUR, MORE) if day == "day00" else ())
    monkeypatch.setattr(exercises, "written", lambda day: (TEXT,) if day == "day00" else ())


def shown(capsys, day=None):
    overview.progress(day)
    return capsys.readouterr().out.splitlines()


def test_without_a_day_the_days_are_shown_and_where_their_questions_are(capsys):
    lines = shown(capsys)
    words = " ".join(lines[0].split())
    assert words == "· day00 Day 0, counting 0 of 3 done 0 / 13 core 0 / 3 stretch 5 min left"
    assert lines[1:] == ["The questions of a day: progress('day00').", "0 of 13 core points, 0 of 3 stretch points"]


def test_a_day_is_done_with_its_core_and_counts_what_is_left(capsys):
    remember("day00.four", points=1, attempts=1)
    assert shown(capsys)[0].startswith("◐") and "0 of 3 done" in shown(capsys)[0]
    remember("day00.four", points=3, attempts=2)
    line = shown(capsys)[0]
    assert line.startswith("✓") and "1 of 3 done" in line and line.endswith("core done")


def test_a_day_shows_its_questions_in_four_states(capsys):
    def status():
        return [line.split("  ")[-1] for line in shown(capsys, "day00")[:3]]

    assert status() == ["not attempted", "not attempted", "graded by a person"]
    ui.check("four", lambda a, b: "x")
    remember("day00.more", points=1, attempts=1)
    capsys.readouterr()
    assert status() == ["not right yet", "partly right", "graded by a person"]
    ui.check("four", lambda a, b: 4)
    ui.check("four", lambda a, b: 5)
    lines = shown(capsys, "day00")
    assert "✓ day00.four" in "\n".join(lines) and lines[-1] == "3 of 13 core points, 1 of 3 stretch points"


def test_in_html_the_questions_are_folded_below_their_day_and_no_text_is_markup():
    day = overview.overview("day00")
    for is_open in (False, True):
        page = str(ui.templates().progress([day], "<tail>", is_open, "<note>"))
        assert page.index("Day 0, counting") < page.index("</summary>") < page.index("day00.four")
        assert ("<details open" in page) == is_open
        assert "More &lt;of it&gt;" in page and "&lt;tail&gt;" in page and "&lt;note&gt;" in page


def test_a_course_without_questions_and_an_unknown_day_are_told(capsys, monkeypatch):
    assert "No day 'day99'. The days are day00, day01." in shown(capsys, "day99")[0]
    monkeypatch.setattr(exercises, "days", lambda: ["day01"])
    assert shown(capsys) == ["No question has points."]


def test_the_titles_of_the_days_are_those_of_their_exercises(monkeypatch):
    monkeypatch.undo()
    assert exercises.title("day04") == "Day 4, fusion"
