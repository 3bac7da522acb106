"""How tests are chosen and dealt out: by what changed, by how long they take, and a few of every part."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from autograder.authoring.source import ROOT
from tests.conftest import TVM
from tests.support import long, quick, reach, schedule


def reached(*paths: str) -> set[str]:
    return {
        test.relative_to(ROOT / "tests").as_posix()
        for test in ROOT.glob("tests/**/test_*.py")
        if reach.reaches(test, {*paths})
    }


@pytest.mark.parametrize(
    ("path", "inside", "outside"),
    [
        ("lib/passlab/wafer/machine.py", "wafer/test_simulate.py", "fx/test_effects.py"),
        ("lib/passlab/wafer/model.py", "exercises/test_any_exercise.py", "grading/test_grading.py"),
        ("lib/passlab/graph/model.py", "drawing/test_drawing.py", "system/test_setup.py"),
        ("lib/setup.sh", "system/test_setup.py", "fx/test_effects.py"),
        ("docs/exercises.md", "authoring/test_new_exercise.py", "fx/test_effects.py"),
        ("course/day03_optimizations.py", "exercises/test_notebooks_run.py", "fx/test_effects.py"),
        ("tests/wafer/stepped.py", "wafer/test_simulate.py", "fx/test_effects.py"),
        ("tests/conftest.py", "fx/test_effects.py", "none"),
    ],
)
def test_a_change_reaches_what_imports_runs_or_names_it(path, inside, outside):
    assert (ROOT / path).exists()
    files = reached(path)
    assert inside in files and outside not in files


def test_a_commit_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no-such-commit is not a commit of this repository"):
        reach.changed_files("no-such-commit")


def dealt(worker: str) -> list[str]:
    """The units in the order in which one worker alone gets them."""
    units = ["tests/short.py", "tests/middle.py", "tests/long.py"]
    deal = object.__new__(schedule.TwoEnds)
    deal.workqueue = OrderedDict((unit, {f"{unit}::test": False}) for unit in units)
    node, order = Mock(gateway=SimpleNamespace(id=worker)), []
    node.send_runtest_some = order.extend
    deal.assigned_work, deal.registered_collections = {}, {node: [f"{unit}::test" for unit in units]}
    while deal.workqueue:
        deal._assign_work_unit(node)
    return [units[index] for index in order]


def test_one_worker_begins_with_the_longest_and_the_others_with_the_shortest():
    assert dealt("gw0") == ["tests/long.py", "tests/middle.py", "tests/short.py"]
    assert dealt("gw1") == ["tests/short.py", "tests/middle.py", "tests/long.py"]


def test_a_unit_takes_what_the_table_says_or_a_guess(monkeypatch):
    monkeypatch.setattr(schedule, "table", lambda: {"tests/fx/test_effects.py": 7.0})
    ids = ["tests/fx/test_effects.py::a", "tests/fx/test_effects.py::b", "tests/new.py::a", "tests/new.py::b"]
    assert schedule.expected(ids) == {"tests/fx/test_effects.py": 7.0, "tests/new.py": 2 * schedule.UNKNOWN}
    assert schedule.unit("tests/exercises/test_prove.py::a[b]") == "tests/exercises/test_prove.py::a[b]"


def test_a_line_a_minute_says_how_much_is_left(monkeypatch):
    lines, clock = [], iter([0.0, 0.0, 30.0, 61.0])
    terminal = SimpleNamespace(ensure_newline=lambda: None, write_line=lines.append)
    manager = SimpleNamespace(get_plugin=lambda name: terminal)
    monkeypatch.setattr(schedule, "table", lambda: {"tests/a.py": 30.0, "tests/b.py": 90.0})
    progress = schedule.Progress(SimpleNamespace(pluginmanager=manager), lambda: next(clock))
    progress.pytest_xdist_node_collection_finished(None, ["tests/a.py::one", "tests/b.py::one"])
    for when in ("setup", "teardown"):
        progress.pytest_runtest_logreport(SimpleNamespace(nodeid="tests/a.py::one", when=when, duration=15.0))
    assert lines == [" 25% of the work is done; about 3 min left"] and progress.seconds == {"tests/a.py": 30.0}


def test_every_part_has_quick_tests():
    chosen = quick.chosen()
    assert chosen.keys() == quick.folders().keys() and all(chosen.values())
    runs = quick.runs()
    assert set(runs) == {"none", "relax", *(["relay"] if schedule.RELAY else [])}
    for tvm, files in runs.items():
        folders = {file.removeprefix(str(quick.HERE)).split("/")[1] for file in files}
        assert all(tvm in TVM.get(folder, ("none",)) for folder in folders)


LONG = {"tests/hub/test_hub.py": 70.0, "tests/fx/test_effects.py": 0.2, "tests/test_reach.py": 50.0}
LONG |= {"tests/exercises/test_closed.py::one": 8.0, "tests/exercises/test_closed.py::two": 67.0}
LONG |= {"tests/exercises/test_prove.py::one": 80.0, "tests/relax/test_kernels.py::one": 55.0}


@pytest.fixture
def passed(tmp_path, monkeypatch):
    """A table of long files, and a function that writes down with which code some of them have passed."""
    monkeypatch.setattr(long, "PASSED", tmp_path / "long.json")
    monkeypatch.setattr(long.schedule, "table", lambda: LONG)
    monkeypatch.setattr(long, "digest", lambda name: "now")
    monkeypatch.delenv("PYTEST_LONG", raising=False)
    monkeypatch.setattr(long, "FULL", False)
    return lambda code, *names: long.PASSED.write_text(json.dumps(dict.fromkeys(names, code)))


def test_long_units_are_left_out_only_if_they_passed_with_the_same_code(passed, monkeypatch):
    assert long.left_out() == []
    passed("before", *long.lengths())
    assert long.left_out() == []
    passed("now", *long.lengths())
    out, relax = long.left_out(), long.left_out("relax")
    assert len({*map(schedule.file_of, long.lengths())}) == 4 and len(long.lengths()) == 5
    assert len(out + relax) == 4 and set(relax) <= {"tests/relax/test_kernels.py::one"}
    passed("now", "tests/test_reach.py")
    assert long.left_out() == [name for name in out if name == "tests/test_reach.py"]
    assert long.left_out("relax") == []
    passed("now", *long.lengths())
    monkeypatch.setenv("PYTEST_LONG", "all")
    assert long.left_out() == []


def test_a_run_writes_down_each_long_unit_that_passes_whole(passed, monkeypatch):
    one, two, hub, _, reach = long.lengths()
    tests = [one, two, f"{hub}::first", f"{hub}::second", f"{reach}::test", "tests/fx/test_effects.py::test"]

    def run(*ended, failed=()):
        plugin = long.Passed()
        plugin.pytest_xdist_node_collection_finished(None, tests)
        for test in ended:
            for when in ("setup", "call", "teardown"):
                report = SimpleNamespace(nodeid=test, when=when, failed=test in failed and when == "call")
                plugin.pytest_runtest_logreport(report)
        return json.loads(long.PASSED.read_text())

    passed("before", two, reach)
    assert run(*tests[2:], failed=[f"{reach}::test"]) == {two: "before", hub: "now"}
    monkeypatch.setattr(long, "digest", lambda name: "later")
    assert run(one, f"{hub}::first") == {two: "before", one: "later", hub: "now"}, "killed in the middle of a file"
    assert run(*tests[:3], failed=[one, f"{hub}::first"]) == {two: "later", hub: "now"}
    assert run(*tests[2:4], failed=[f"{hub}::first"]) == {two: "later"}


def test_a_part_of_a_file_is_not_written_down_as_the_file(passed):
    def start(*names):
        long.Passed().pytest_sessionstart(SimpleNamespace(config=SimpleNamespace(args=names)))

    start("tests/hub/test_hub.py", "tests/exercises/test_closed.py::one")
    with pytest.raises(pytest.UsageError, match=r"test_hub\.py::first is a part of one"):
        start("tests/hub/test_hub.py::first")


def test_each_draw_leaves_out_others(passed, monkeypatch):
    passed("now", *long.lengths())
    drawn = set()
    for number in range(30):
        monkeypatch.setattr(long, "DRAW", str(number))
        drawn.add((*long.left_out(), *long.left_out("relax")))
    assert len(drawn) == 5


def test_the_long_units_that_are_drawn_take_a_share_of_all_their_time_and_each_has_its_turn(passed, monkeypatch):
    table = {f"tests/a/test_{number}.py": 20.0 for number in range(60)} | {"tests/a/test_large.py": 600.0}
    monkeypatch.setattr(long.schedule, "table", lambda: table)
    passed("now", *long.lengths())
    turns = set()
    for number in range(400):
        monkeypatch.setattr(long, "DRAW", str(number))
        drawn = {*table} - {*long.left_out()}
        turns |= drawn
        assert drawn == {"tests/a/test_large.py"} or len(drawn) == 4  # a twentieth of 1,800 s
    assert turns == {*table}


#: What each of these reaches, the next test says.
REACHING = (
    "tests/hub/test_hub.py",  # a toy course alone
    "tests/system/test_leaderboard.py",  # one day of the course
    "tests/system/test_perfect.py",  # each of its days
    "tests/exercises/test_closed.py::test_no_other_function_does_the_exercise[day05.liveness]",  # an exercise
    "tests/fx/test_generate.py",  # what it imports
)
PROGRAMS = {"test_hub", "test_leaderboard", "test_perfect"}


def reaching(monkeypatch, name: str) -> set[str]:
    """The long units whose digest another text of a file changes."""
    before, content = [*map(long.digest, REACHING)], long.ledger._content
    monkeypatch.setattr(long.ledger, "_content", lambda p: b"x = 1" if p == long.ROOT / name else content(p))
    after = [*map(long.digest, REACHING)]
    monkeypatch.setattr(long.ledger, "_content", content)
    return {Path(schedule.file_of(unit)).stem for unit, a, b in zip(REACHING, before, after, strict=True) if a != b}


@pytest.mark.parametrize(
    "name, tests",
    {
        "tests/conftest.py": PROGRAMS | {"test_closed", "test_generate"},
        "lib/passlab/fx/effects.py": PROGRAMS | {"test_closed", "test_generate"},
        "lib/passlab/exercises/day11/scaling.py": {"test_perfect"},
        "autograder/answers/day11/scaling.py": {"test_perfect"},
        "lib/passlab/exercises/day05/liveness.py": {"test_perfect", "test_closed"},
        "lib/passlab/exercises/day12/compiler.py": {"test_perfect", "test_leaderboard"},
        "lib/passlab/wafer/mapping.py": {"test_perfect", "test_closed"},  # a function there may do any exercise
        "course/day11_wafer.py": {"test_perfect"},
        "autograder/hub/spawner.py": {"test_hub"},
        "autograder/engine/runner/warm.py": PROGRAMS,
        "autograder/reports/templates/report.html": PROGRAMS,
        "solutions/day01/graphs.py": {"test_perfect"},
        "tests/fx/test_generate.py": {"test_generate"},
        "CHANGELOG.md": set(),
    }.items(),
)
def test_a_unit_is_tried_again_after_a_change_that_reaches_it(monkeypatch, name, tests):
    assert (long.ROOT / name).is_file()
    assert reaching(monkeypatch, name) == tests
