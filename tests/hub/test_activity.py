"""What a hub tells of the work on exercises: medians of a class, whatever learners write into their files."""

from __future__ import annotations

import json
import os

import pytest

from autograder.hub import activity
from autograder.reports.activity import ACTIVITY, Activity, gather, load, save
from autograder.reports.report import Facts, report
from passlab import course_paths
from tests.reports.test_items import rows


def progress(folder, name: str, record: object):
    path = folder / name / "work/progress.json"
    path.parent.mkdir(parents=True)
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    return path


def worked(checks: float, seconds: float) -> dict:
    return {"day01.levels": {"points": 1, "attempts": checks, "seconds": seconds, "checked": 1}}


def test_figures_are_medians_of_enough_learners(tmp_path):
    files = [progress(tmp_path, f"l{n}", worked(n + 1, 60 * n)) for n in range(5)]
    assert gather(files) == {"day01.levels": Activity(5, 3, 2)}
    assert gather(files[:4]) == {}, "of four, the figures could be told apart"


@pytest.mark.parametrize(
    "record",
    [
        *("", "[]", "7", "{", "[" * 100_000, '{"day01.levels": 3}', '{"day01.levels": {"attempts": NaN}}'),
        *(worked("many", 1), worked(-1, 1), worked(1e300, 1), {"day99.x": {"attempts": 1}}, "x" * 2_000_000),
    ],
)
def test_what_is_no_progress_does_not_count(tmp_path, record):
    files = [progress(tmp_path, f"l{n}", worked(2, 60)) for n in range(5)]
    odd = progress(tmp_path, "odd", record)
    assert gather([*files, odd, tmp_path / "missing/progress.json"]) == {"day01.levels": Activity(5, 2, 1)}


def test_a_link_is_not_followed(tmp_path):
    files = [progress(tmp_path, f"l{n}", worked(2, 60)) for n in range(5)]
    (tmp_path / "file").mkdir()
    (tmp_path / "file/progress.json").symlink_to(files[0])
    (tmp_path / "work").symlink_to(files[0].parent)
    assert gather([*files[1:], tmp_path / "file/progress.json", tmp_path / "work/progress.json"]) == {}


def test_only_the_owner_of_the_project_reads_it_and_the_report_shows_it(tmp_path):
    path = tmp_path / ACTIVITY
    save(path, {"day01.a": Activity(9, 3.5, 12.4)})
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    facts = Facts(activity=load(path), tries={("day01", "a"): [1, 2], ("day01", "b"): [1]})
    page = report(rows({"a": [1.0, 2], "b": [1.0, 2]}), [], facts)
    assert ">3.5</td><td" in page and ">12 min<" in page and ">1.5<" in page and ">–</td><td" in page
    without = report(rows({"a": [1.0]}), [], Facts(tries={("day01", "a"): [1, 1]}))
    assert "time on it" not in without and "submissions</button>" not in without
    path.write_text("question,learners\nx")
    assert load(path) == {} == load(tmp_path / "none.csv")


def test_root_makes_no_folder_that_the_owner_of_the_project_cannot_write(tmp_path, monkeypatch):
    """It did, for a section that was not graded yet: then nothing of it could be graded."""
    (tmp_path / "project").mkdir()
    os.chown(tmp_path / "project", 1234, 1234)
    monkeypatch.setattr(course_paths, "PROJECT", tmp_path / "project")
    path = tmp_path / "project/autograder/run/evening" / ACTIVITY
    save(path, {})
    assert {place.stat().st_uid for place in (path, *path.parents[:4])} == {1234}


def test_it_takes_root_and_a_section_that_exists(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PASSLAB_HUB", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert activity.main([]) == 1 and "Only root" in capsys.readouterr().err
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert activity.main(["night"]) == 1 and "'night'" in capsys.readouterr().err
