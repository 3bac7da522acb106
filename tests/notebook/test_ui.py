"""The verbs of an exercise notebook: what they show, and that nothing a learner has is lost."""

import json
from dataclasses import replace

import pytest

from passlab import exercises, mlir
from passlab.graph import Graph, Node
from passlab.judge import Case, Exercise, Finding, Judgement
from passlab.notebook import project, ui
from passlab.notebook.project import load_progress, progress_file, remember


def judged(case, value):
    yield Finding("valid", isinstance(value, int), "Return a number.")
    yield Finding("did", value == 4, f"Expected 4 <nodes>, got {value}.")


TOY = Exercise(
    id="day00.four",
    title="Four",
    points={"valid": 1, "did": 2},
    difficulty=2,
    minutes=5,
    hints=("Count.", "Count to four.", "It is 4."),
    cases=lambda: [Case("the only one", lambda: (2, 2))],
    judge=judged,
)


@pytest.fixture(autouse=True)
def toy_day(monkeypatch, tmp_path):
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "work" / "progress.json"))
    monkeypatch.setattr(exercises, "days", lambda: ["day00"])
    monkeypatch.setattr(exercises, "of_day", lambda day: (TOY,))
    monkeypatch.setattr(exercises, "written", lambda day: ())


def test_check_shows_points_verdicts_and_one_sentence(capsys):
    ui.check("day00.four", lambda a, b: a + b)
    assert "Four: 3 of 3 points" in capsys.readouterr().out
    ui.check("four", lambda a, b: a - b)
    out = capsys.readouterr().out
    assert "Four: 0 of 3 points" in out
    assert "✓ valid" in out and "✗ complete" in out
    assert "Expected 4 <nodes>, got 0. On the case “the only one”." in out


def test_html_escapes_what_the_judge_says():
    from passlab.judge import judge

    page = ui.report(judge(TOY, lambda a, b: a - b))._repr_html_()
    assert "&lt;nodes&gt;" in page and "<nodes>" not in page


def test_no_text_of_a_card_is_markup():
    cards, evil = ui.templates(), "<script>'\""
    items = [
        cards.sentence(evil),
        cards.hints(evil, [evil], evil),
        cards.solution(evil, evil),
        cards.bar("9em", evil, 1, 2),
        cards.chip(evil, True, evil, evil),
        cards.question(evil, f"{evil}\n\n{evil} `{evil}`?", [evil], evil, None),
        cards.guessed(evil, f"{evil} `{evil}`", evil),
    ]
    shown = "&lt;script&gt;&#39;&#34;"
    assert [card.count(shown) for card in items] == [1, 3, 2, 1, 3, 6, 4]
    assert not any("<script>" in card for card in items)


def test_the_best_points_are_kept():
    for value in (4, 5):
        ui.check("four", lambda a, b, value=value: value)
    entry = load_progress()["day00.four"]
    assert (entry["points"], entry["total"], entry["attempts"], entry["hints"]) == (3.0, 3, 2, 0)


def test_the_time_between_checks_counts_and_pauses_do_not(monkeypatch):
    for now, seconds in ((1_000, 0), (1_060, 60), (1_000 + 2 * project.PAUSE, 60), (1_010 + 2 * project.PAUSE, 70)):
        monkeypatch.setattr(project.time, "time", lambda now=now: now)
        project.count_check("day00.four", 1, 3)
        assert load_progress()["day00.four"]["seconds"] == seconds
    monkeypatch.setattr(project.time, "time", lambda: 1_015 + 2 * project.PAUSE)
    project.count_check("day00.other", 1, 3)
    assert load_progress()["day00.other"]["seconds"] == 5, "since the last check of any exercise"
    monkeypatch.setattr(project.time, "time", lambda: 5)
    project.count_check("day00.four", 1, 3)
    assert load_progress()["day00.four"]["seconds"] == 70, "the clock was set back"


def test_a_stub_is_not_an_attempt(capsys):
    def stub(a, b):
        raise NotImplementedError()

    ui.check("four", stub)
    assert "not written yet" in capsys.readouterr().out
    assert load_progress() == {}


def test_hints_open_one_at_a_time(capsys):
    for opened in (1, 2, 3, 3):
        ui.hint("four")
        out = capsys.readouterr().out
        assert [text in out for text in TOY.hints] == [n < opened for n in range(3)]
    assert "That was the last one" in out


def test_a_lost_verdict_names_the_hint_that_helps(monkeypatch, capsys):
    monkeypatch.setattr(exercises, "of_day", lambda day: (replace(TOY, helps={"did": 2}),))
    ui.check("four", lambda a, b: "x")
    assert "Hint" not in capsys.readouterr().out
    ui.check("four", lambda a, b: 5)
    assert "Hint 2 is about this: hint('day00.four', 2)." in capsys.readouterr().out
    ui.hint("four", 2)
    out = capsys.readouterr().out
    assert [text in out for text in TOY.hints] == [True, True, False]
    ui.hint("four", 1)
    assert "Count to four." in capsys.readouterr().out and load_progress()["day00.four"]["hints"] == 2


def test_after_three_failures_there_is_less_to_do(monkeypatch, capsys):
    small = replace(TOY, smaller="Return 4.", smaller_cases=lambda: [Case("four", lambda: (4, 0))])
    monkeypatch.setattr(exercises, "of_day", lambda day: (small,))
    for offered in (False, False, True, True):
        ui.check("four", lambda a, b: 5)
        assert ("Stuck? smaller('day00.four')" in capsys.readouterr().out) == offered
    before = load_progress()
    ui.smaller("four")
    assert "Return 4. Check it with smaller('day00.four', …)" in capsys.readouterr().out
    ui.smaller("four", lambda a, b: a)
    out = capsys.readouterr().out
    assert "Four, the smaller version: 3 of 3 points" in out and "do not count" in out
    assert load_progress() == before
    ui.check("four", lambda a, b: 4)
    assert "Stuck?" not in capsys.readouterr().out


def test_an_exercise_without_a_smaller_version_says_so(capsys):
    ui.smaller("four")
    assert "day00.four has no smaller version" in capsys.readouterr().out


def test_words_of_an_exercise_replace_those_for_graphs(monkeypatch, capsys):
    monkeypatch.setattr(exercises, "of_day", lambda day: (replace(TOY, meaning={"valid": "it is a number"}),))
    ui.check("four", lambda a, b: 5)
    out = capsys.readouterr().out
    assert "it is a number" in out and "required form" not in out and "it does everything" in out
    assert "No law counts as long as “complete” is lost" in out


@pytest.mark.parametrize("wrong", [{"helps": {"did": 4}}, {"helps": {"same": 1}}, {"meaning": {"cost": "cheap"}}])
def test_a_verdict_or_hint_that_is_not_there_is_refused(wrong):
    with pytest.raises(ValueError, match=r"day00\.four"):
        replace(TOY, **wrong)


def test_an_unknown_name_gets_the_nearest(capsys):
    ui.check("day00.for", len)
    assert "Did you mean day00.four" in capsys.readouterr().out
    ui.hint("day99.four")
    assert "There is no day99. The days are day00." in capsys.readouterr().out


def test_a_damaged_progress_file_is_kept_aside(capsys):
    remember("day00.four", points=3)
    progress_file().write_text('{"day00.four": {"points"')
    assert load_progress() == {}
    assert "kept as progress.damaged.json" in capsys.readouterr().out
    aside = progress_file().with_name("progress.damaged.json")
    assert aside.read_text() == '{"day00.four": {"points"'
    remember("day00.four", points=1)
    assert json.loads(progress_file().read_text())["day00.four"]["points"] == 1


def test_a_progress_file_that_cannot_be_written_costs_nothing_else(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "file" / "progress.json"))
    ui.check("four", lambda a, b: 4)
    out = capsys.readouterr().out
    assert "Progress could not be saved" in out and "3 of 3 points" in out


def test_solution_says_where_there_is_none(capsys):
    ui.solution("four")
    assert "has no solution for day00.four" in capsys.readouterr().out


def test_an_ir_with_a_picture_of_its_own_draws_itself_in_a_card():
    module = mlir.parse("func.func @main(%x: f32) -> f32 {\n  %y = arith.negf %x : f32\n  return %y : f32\n}")
    cards = []
    for mark in ((), ("%y",)):
        failed = Finding("did", False, "No.", "one", before=module, mark=mark)
        cards.append(ui.report(Judgement(TOY, [failed]))._repr_html_())
    assert "func.func" in cards[0], "nested boxes"
    assert "func.func" not in cards[1], "nodes of the view, of which one is marked"


@pytest.mark.parametrize(("nodes", "boxes"), [(30, range(30, 34)), (400, range(2, 45)), (2000, range(1))])
def test_a_large_graph_is_drawn_in_groups_around_what_changed_and_a_huge_one_not_at_all(nodes, boxes):
    def chain(middle):
        ops = ["in", *("relu" if i % 3 else "exp" for i in range(nodes - 2)), "out"]
        ops[nodes // 2] = middle
        made = (Node(f"n{i}", op, "compute", (f"n{i - 1}",) if i else ()) for i, op in enumerate(ops))
        return Graph("chain", "test", tuple(made), (f"n{nodes - 1}",))

    failed = Finding("did", False, "No.", "one", before=chain("tanh"), after=chain("sinh"))
    drawn = ui.picture(Judgement(TOY, [failed]))
    assert (drawn.dot.count("[label=<") if drawn else 0) in boxes
    assert not drawn or ("tanh" in drawn.dot and "sinh" in drawn.dot)
