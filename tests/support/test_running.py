"""How tests are chosen and dealt out: by what changed, by how long they take, and a few of every part."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from autograder.authoring.source import ROOT
from tests.conftest import TVM
from tests.support import changed, quick, schedule


def reached(*paths: str) -> set[str]:
    return {
        test.relative_to(ROOT / "tests").as_posix()
        for test in ROOT.glob("tests/**/test_*.py")
        if changed.reaches(test, {*paths})
    }


@pytest.mark.parametrize(
    ("path", "inside", "outside"),
    [
        ("lib/passlab/wafer/stepped.py", "wafer/test_simulate.py", "fx/test_effects.py"),
        ("lib/passlab/wafer/model.py", "grading/test_grading.py", "polyhedral/test_polyhedral.py"),
        ("lib/passlab/graph/model.py", "drawing/test_drawing.py", "system/test_setup.py"),
        ("lib/setup.sh", "system/test_setup.py", "fx/test_effects.py"),
        ("docs/exercises.md", "authoring/test_new_exercise.py", "fx/test_effects.py"),
        ("course/day03_optimizations.py", "exercises/test_notebooks_run.py", "fx/test_effects.py"),
        ("tests/support/linalg.py", "mlir/test_fusing.py", "fx/test_effects.py"),
        ("tests/conftest.py", "fx/test_effects.py", "none"),
    ],
)
def test_a_change_reaches_what_imports_runs_or_names_it(path, inside, outside):
    assert (ROOT / path).exists()
    files = reached(path)
    assert inside in files and outside not in files


def test_a_commit_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no-such-commit is not a commit of this repository"):
        changed.changed_files("no-such-commit")


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
