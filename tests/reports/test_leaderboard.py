"""The leaderboard: who is ranked, who ties, who is left out and why, and what its page tells of whom."""

import json
from datetime import datetime

import pytest

from autograder.engine.data import CaseResult, NotebookResult, Verdict
from autograder.engine.engine import AnswerRun
from autograder.grading import entries
from autograder.grading.entries import Board, Entry, Records
from autograder.grading.recorder import Recorder
from autograder.reports import leaderboard, ranking
from autograder.reports.leaderboard import About
from autograder.reports.ranking import Standing, front, pseudonyms, ranked
from tests.support import books
from tests.support.pages import acts

SALT = "5a" * 32
MODELS = ("resnet18", "gpt")
ABOUT = About("day12.compiler", "2026-06-01 12:00")
#: Elements that belong to the page: drawings, style, and its policy.
OWN = frozenset({"svg", "style", "meta"})


def row(seconds: float, spread: float = 0.01, **more) -> dict:
    """A row beside an eager of 1 ms; `spread`: as a share of the time."""
    counted = {"launches": 10, "bytes": 2_000_000, "peak": 300_000} | more
    return counted | {"seconds": seconds, "spread": spread * seconds, "ratio": seconds / 1e-3, "missing": ""}


EAGER = {"launches": 40, "bytes": 8_000_000, "peak": 600_000}
BASELINES = {
    model: {
        "eager": row(1e-3, **EAGER),
        "TVM": {"ratio": None, "seconds": None, "missing": "TVM cannot compile it."},
        "reference": row(4e-4, peak=200_000),
    }
    for model in MODELS
}


def rows(*seconds: float, **more) -> dict[str, dict]:
    return {model: row(time, **more) for model, time in zip(MODELS, seconds, strict=True)}


def standings(*named: tuple[str, dict]) -> list[Standing]:
    eager = {model: BASELINES[model]["eager"] for model in MODELS}
    return ranked([ranking.standing(name, own, eager) for name, own in named])


def test_the_mean_over_models_decides():
    first, second = standings(("a", rows(5e-4, 5e-4)), ("b", rows(1e-4, 9e-4)))
    assert (first.name, first.rank, second.name, second.rank) == ("b", 1, "a", 2)
    assert first.speedup == pytest.approx((10 * 10 / 9) ** 0.5) and second.speedup == pytest.approx(2)
    assert first.launches == pytest.approx(0.25) and first.peak == pytest.approx(0.5)


def test_what_the_spread_cannot_tell_apart_is_a_tie():
    close = [("a", rows(5e-4, 5e-4, spread=0.2)), ("b", rows(5.2e-4, 5e-4, spread=0.2)), ("c", rows(9e-4, 9e-4))]
    assert [(s.name, s.rank, s.tied) for s in standings(*close)] == [("a", 1, True), ("b", 1, True), ("c", 3, False)]
    separate = [(name, {model: one | {"spread": 1e-9} for model, one in own.items()}) for name, own in close]
    assert [(s.name, s.rank) for s in standings(*separate)] == [("a", 1), ("b", 2), ("c", 3)]


def test_speed_without_equivalence_has_no_rank():
    fast = rows(1e-5, 1e-5) | {"gpt": {"missing": "Not equivalent: speed does not count."}}
    slow, failed = standings(("fast", fast), ("slow", rows(2e-3, 2e-3)))
    assert (slow.name, slow.rank, slow.speedup) == ("slow", 1, pytest.approx(0.5))
    assert (failed.state, failed.rank, failed.speedup) == ("failed", None, None) and "gpt: Not equiv" in failed.why


@pytest.mark.parametrize(
    ("launches", "moved", "mark"),
    [((10, 9), 2_000_000, True), ((10, 10), 2_000_000, False), ((11, 5), 2_000_000, False), ((9, 9), 2_000_001, False)],
)
def test_beyond_the_course_is_fewer_launches_and_no_more_of_anything(launches, moved, mark):
    course = {model: BASELINES[model]["reference"] for model in MODELS}
    own = {m: row(1e-3, launches=n, bytes=moved) for m, n in zip(MODELS, launches, strict=True)}
    assert ranking.beyond(own, course) is mark
    assert not ranking.beyond(own, {}) and not ranking.beyond({}, course)


def test_the_page_marks_who_goes_beyond_the_course():
    entered = board()
    assert "★" not in leaderboard.page(lines(), BASELINES, ABOUT)
    entered.entries[0].rows = rows(3e-4, 5e-4, launches=9)
    ahead = leaderboard.standings(entered, kept(), HANDED_IN, {"dan"}, ABOUT.when, True)
    assert [one.name for one in ahead if one.beyond] == ["ada"]
    assert "★ beyond" in leaderboard.page(ahead, BASELINES, ABOUT)


def test_the_front_has_what_no_other_beats_in_both():
    points = {"a": (1.0, 1.0), "b": (0.5, 2.0), "c": (0.5, 3.0), "d": (0.9, 2.0), "e": (2.0, 0.5)}
    assert front(points) == ["b", "a", "e"]


def test_pseudonyms_stay_and_follow_from_the_salt_only():
    some = pseudonyms(["ada", "bob"], SALT)
    assert pseudonyms(["bob", "ada", "cyd"], SALT, some).items() > some.items()
    assert set(pseudonyms(["ada", "bob"], "a5" * 32).values()).isdisjoint(some.values())
    many = pseudonyms(map(str, range(3_000)), SALT)
    assert len(set(many.values())) == 3_000


# A class: ada has two entries, bob's computes something else, cyd has withdrawn, dan was late, eve has left


def board() -> Board:
    wrong = {model: {"missing": "Not equivalent: speed does not count."} for model in MODELS}
    return Board(
        [
            Entry("ada", "new", rows=rows(3e-4, 5e-4)),
            Entry("bob", "b", rows=wrong),
            Entry("cyd", "c", rows=rows(1e-4, 1e-4)),
            Entry("dan", "d", rows=rows(2e-4, 2e-4, peak=100_000)),
        ],
        BASELINES,
    )


HANDED_IN = {
    "ada": [(datetime(2026, 5, 1, 9), "old", 5.0), (datetime(2026, 5, 8, 9), "new", 12.0)],
    "eve": [(datetime(2026, 5, 1, 9), "e", 1.0)],
}


def kept() -> Records:
    return Records(SALT, withdrawn=["cyd"], races=[{"when": "2026-05-02 10:00", "entries": {"ada": ["old", 1.25]}}])


def lines(names: bool = True, remembered: Records | None = None) -> list[Standing]:
    return leaderboard.standings(board(), remembered or kept(), HANDED_IN, {"dan"}, ABOUT.when, names)


def test_late_failed_and_withdrawn_entries_have_no_rank():
    results = {one.name: one for one in lines()}
    assert list(results) == ["ada", "dan", "bob", "cyd", "eve"]
    assert [one.state for one in results.values()] == ["ranked", "late", "failed", "withdrawn", "withdrawn"]
    assert [one.rank for one in results.values()] == [1, None, None, None, None]
    assert results["dan"].speedup == pytest.approx(5) and results["cyd"].rows == {}


@pytest.mark.parametrize("learner", BASELINES["gpt"])
def test_a_learner_who_is_called_like_a_baseline_does_not_hide_it(learner):
    entered = Board([Entry(learner, "1", rows=rows(1e-4, 1e-4))], BASELINES)
    (one,) = leaderboard.standings(entered, kept(), {}, set(), "", True)
    assert one.name == f"{learner} (a learner)"


def test_the_history_has_the_points_and_what_was_measured_then():
    ada = lines()[0]
    assert [(entry["points"], entry["speedup"]) for entry in ada.history] == [(5.0, 1.25), (12.0, ada.speedup)]


def test_what_is_kept_is_for_the_owner_only_and_read_back(tmp_path):
    remembered = kept()
    lines(remembered=remembered)
    path = tmp_path / "run/leaderboard.private.json"
    entries.save(path, remembered)
    assert path.stat().st_mode & 0o777 == 0o600 and entries.load(path) == remembered
    assert remembered.races[-1]["entries"].keys() == {"ada", "dan"}
    path.write_text("[]")
    with pytest.raises(ValueError, match="Move it away"):
        entries.load(path)


def test_neither_page_nor_json_tells_who_is_who():
    anonymous = lines(names=False)
    for text in (leaderboard.page(anonymous, BASELINES, ABOUT), leaderboard.data(anonymous, BASELINES, ABOUT)):
        assert kept().salt not in text and not any(f'"{name}"' in text or f">{name}<" in text for name in HANDED_IN)
        assert anonymous[0].name in text
    assert ">ada<" in leaderboard.page(lines(), BASELINES, ABOUT)


def test_the_page_has_no_script_and_asks_for_nothing():
    hostile = [Standing('<script>alert("x")</script>', "failed", why="<img src=x onerror=alert(1)>")]
    page = leaderboard.page([*lines(), *hostile], BASELINES, ABOUT)
    assert acts(page, OWN) == [] and "script-src 'none'" in page and "<script" not in page


def test_the_page_tells_each_thing_in_words_too():
    page = leaderboard.page(lines(), BASELINES, ABOUT)
    assert "on the front: dan" in page and "TVM</b> did not run on resnet18, gpt" in page
    assert page.count("in numbers") == len(MODELS) and "ada: 2 entries" in page


def test_a_baseline_without_counts_is_not_left_out_silently():
    """torch.compile has times on all models, TVM on one: neither is in the plot, and the page says why."""
    uncounted = {"launches": None, "bytes": None, "peak": None}
    baselines = {model: rows | {"torch.compile": row(3e-4, **uncounted)} for model, rows in BASELINES.items()}
    baselines["gpt"] = baselines["gpt"] | {"TVM": row(3e-4, **uncounted)}
    page = leaderboard.page(lines(), baselines, ABOUT)
    assert f"<b>torch.compile</b>: {leaderboard.NOT_COUNTED}" in page and ">not counted</td>" in page
    assert "<b>TVM</b>: it ran on 1 of 2 models" in page and "<b>reference</b>" not in page
    every = {model: {"eager": rows["eager"]} for model, rows in BASELINES.items()}
    assert "Without a place here" not in leaderboard.page(lines(), every, ABOUT)


def test_a_class_without_any_program_has_a_page():
    nobody = leaderboard.standings(
        Board([Entry("ada", failure="No compiler was written.")]), kept(), {}, set(), "", True
    )
    page = leaderboard.page(nobody, {}, ABOUT)
    assert "No entry has a rank" in page and "No compiler was written." in page


def test_the_json_is_data():
    result = json.loads(leaderboard.data(lines(), BASELINES, ABOUT))
    assert result["standings"][0]["name"] == "ada" and result["baselines"].keys() == set(MODELS)


# Running and measuring


CASES = {"seen": ["did"], "convnet": ["same", "did"], "a trap": ["same"], "two parts": [], "mlp": ["did"]}


def verdict(**verdicts: str) -> Verdict:
    """A verdict on these cases. `lost`: case → the verdict that is lost there."""
    items = [CaseResult(name, name != "seen", "ok", (verdicts[name],) if name in verdicts else ()) for name in CASES]
    return Verdict("day12.compiler", 1, 2, 7, cases=items)


def answered(of: str) -> AnswerRun:
    number = range(len(CASES))
    return AnswerRun([*CASES.values()], [b"x%d" % n for n in number], [f"{of}{n}".encode() for n in number])


def test_hidden_models_race_and_traps_do_not():
    """Every learner's bytes reach that learner's row, over several draws, and only names of families are told."""
    ada, bob = Entry("ada"), Entry("bob", failure="It ended.", compiled={"mlp 1": b"never"})
    for _ in range(2):
        entries.sort_out(ada, verdict(convnet="cost"), answered("ada"))
    assert list(ada.compiled) == ["convnet 1", "graph 1", "mlp 1", "convnet 2", "graph 2", "mlp 2"]
    assert ada.compiled["graph 1"] == b"ada3" and ada.arguments["graph 2"] == b"x3"

    class Timer:
        def run(self, arguments, compiled):
            times = {name: row(len(data) / 1e4) for name, data in compiled.items()}
            assert {**compiled} == {"0": b"ada" + arguments[1:], "1": b"cyd__" + arguments[1:]}
            return {"eager": row(1e-3), **times}

    cyd = Entry("cyd")
    for _ in range(2):
        entries.sort_out(cyd, verdict(), answered("cyd__"))
    value = Board([bob, ada, cyd])
    entries.race(value, Timer())
    assert {row["seconds"] for row in ada.rows.values()} == {4e-4} and ada.rows.keys() == value.baselines.keys()
    assert {row["seconds"] for row in cyd.rows.values()} == {6e-4} and bob.rows == {}
    assert all(rows.keys() == {"eager"} for rows in value.baselines.values())


@pytest.mark.parametrize("told", [{"missing": "No program: bob copied."}, {"ratio": None}])
def test_a_board_says_in_its_own_words_what_could_not_be_measured(told):
    ada = Entry("ada", arguments={"mlp 1": b"x"}, compiled={"mlp 1": b"made"})

    class Timer:
        def run(self, arguments, compiled):
            return {"eager": row(1e-3), "0": row(1e-3) | told}

    entries.race(board := Board([ada]), Timer())
    (one,) = leaderboard.standings(board, kept(), {}, set(), "", True)
    assert (one.state, one.why) == ("failed", f"mlp 1: {entries.NOT_MEASURED}")


def test_the_gradebook_tells_entries_lateness_and_the_last_seed(tmp_path):
    books.make(tmp_path / "course")
    config = books.settings(tmp_path / "course")
    with Recorder(config) as recorder:
        for seed, digest in ((3, "one"), (4, "two"), (5, "two")):
            run = recorder.begin(seed)
            recorder.record(run, books.paper(config, "ada", {"one": 4}, seed=seed), digest)
            recorder.finish(run)
        handed_in, late, seed = recorder.entries("ps1", "one")
        assert [(digest, points) for _, digest, points in handed_in["ada"]] == [("one", 4), ("two", 4)]
        assert seed == 5 and late == set() and recorder.entries("ps2", "one") == ({}, set(), None)


@pytest.mark.parametrize(
    ("failure", "told", "said"),
    [
        ("The verifier has ended.", None, "The verifier has ended."),
        ("", Verdict("day12.compiler", 0, 5, 1, attempted=False), "No compiler was written."),
        ("", Verdict("day12.compiler", 0, 5, 1, crash="The cell above ended with E: bob copied."), entries.ENDED),
        ("", verdict(**{"a trap": "same"}), "Not equivalent, or no result, on 1 of 4 hidden graphs"),
        ("", verdict(seen="same", mlp="cost"), ""),
    ],
)
def test_what_may_not_race_says_why(failure, told, said):
    result = entries.why_not_raced(NotebookResult("ada", "day12", "capstone", 1, failure=failure), told)
    assert result.startswith(said) and bool(result) == bool(said)
