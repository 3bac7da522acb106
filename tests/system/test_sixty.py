"""A class of sixty as students send it: in every layout all are counted, and each oddity is told to both sides."""

from __future__ import annotations

import contextlib
import csv
import html
import json
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from autograder.toys import hubs, sixty, tiny
from autograder.toys.classes import GOOD, submit
from tests.support import jupyter, postgres
from tests.system.test_cluster import part, said

LAYOUTS = [layout.replace(" ", "-") for layout in sixty.LAYOUTS]


@pytest.fixture(scope="module")
def notebooks(course):
    released = nbformat.read(course / "exercises/day00/tiny.ipynb", as_version=4)
    path = submit(course, "solved", GOOD, folder="solved")
    return sixty.Notebooks(nbformat.read(path, as_version=4), released, "day00", "tiny")


@pytest.fixture(scope="module")
def grade(course, notebooks):
    """`grade(layout, run, …)` writes the class if needed and grades it: what the command said, and its results."""

    def graded(layout, *words, run="", command="grade", **env):
        folder = course / f"sixty {layout}"
        if not folder.exists():
            sixty.write(folder, layout.replace("-", " "), notebooks)
        path = folder / ("class" if layout == "nbgrader" else "class.zip")
        run = "autograder/run" + ("" if layout == "nbgrader" and not run else f"-{run or layout}")
        roster = ("--roster", folder / "roster.csv")
        ended = tiny.run(
            course, "-m", "passlab.cli", command, path, *roster, *words, PASSLAB_RUN=run, COLUMNS="300", **env
        )
        return ended, course / run

    return graded


@pytest.fixture(scope="module")
def first(grade):
    """The results of each layout, graded once."""
    known = {}

    def results(layout):
        if layout not in known:
            known[layout] = grade(layout, "--seed", "5")
        return known[layout]

    return results


def read(path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def points(run) -> dict[str, list[str]]:
    """Learner → the points of each question; [] where there is no grade."""
    results: dict[str, list[str]] = {}
    for row in read(run / "grades.csv"):
        results.setdefault(row["learner"], []).extend([row["points"]] if row["question"] else [])
    return results


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_one_is_lost_and_all_have_the_points_of_their_kind(first, layout):
    ended, run = first(layout)
    assert "Traceback" not in ended.stderr and ended.returncode in (0, 1), ended.stderr[-3000:]
    seen = points(run)
    assert seen.keys() == sixty.KINDS.keys()
    full = ["3", "3", "3"]
    odd = {
        who: (kind.name, seen[who])
        for who, kind in sixty.KINDS.items()
        if seen[who] != {"all": full, "none": ["0", "0", "0"], "": []}.get(kind.points, seen[who])
        or (kind.points == "some" and not 0 < sum(map(float, seen[who])) < 9)
    }
    assert odd == {}
    report = html.unescape((run / "report.html").read_text())
    assert [who for who in sixty.KINDS if who not in report] == []
    lacking = sum(not kind.points for kind in sixty.KINDS.values())
    assert f"{60 - lacking} of 60 learners" in ended.stdout
    names = {row["Student"] for row in read(run / "canvas.csv")[1:]}
    assert names == {sixty.full_name(who) for who in sixty.KINDS}
    assert len(read(run / "moodle.csv")) == 60


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_oddity_is_in_the_report_and_in_the_feedback(first, layout):
    _, run = first(layout)
    report = html.unescape(re.sub(r"<[^>]*>", "", (run / "report.html").read_text()))
    silent = []
    for who, kind in sixty.KINDS.items():
        if kind.told and kind.only in ("", layout):
            if not any(re.search(kind.told, line) for line in report.splitlines() if who in line):
                silent.append((who, kind.name, "report"))
            if kind.points:
                page = html.unescape((run / "feedback" / who / "day00/tiny.html").read_text())
                silent += [] if re.search(kind.told, page) else [(who, kind.name, "feedback")]
    assert silent == []


def test_a_replay_and_a_regrade_find_the_same(grade, first):
    _, run = first("nbgrader")
    before = points(run)
    replayed, _ = grade("nbgrader", "--replay")
    assert "Every score is the same as the stored one." in replayed.stdout, replayed.stdout + replayed.stderr
    again, _ = grade("nbgrader", "--yes", command="regrade")
    assert "No score changes." in again.stdout and points(run) == before


def test_late_days_cost_points_only_those_who_were_late(course, grade, first):
    _, run = first("nbgrader")
    late = course / "autograder/run-late"
    shutil.copytree(run, late)
    settings = course / "autograder/nbgrader_config.py"
    text = settings.read_text()
    settings.write_text(f"{text}\nc.LateDays.per_day = 0.1\n")
    try:
        due = tiny.run(course, "-m", "passlab.cli", "due", "day00", sixty.DUE, PASSLAB_RUN="autograder/run-late")
        assert due.returncode == 0, due.stderr
        grade("nbgrader", run="late")
    finally:
        settings.write_text(text)
    totals = {row["identifier"]: row["day00"] for row in read(late / "moodle.csv")}
    less = {sixty.KINDS[who].name: total for who, total in totals.items() if total not in ("9", "-", "0")}
    assert less.pop("late") == "7.2" and set(less) == {"a crash", "an endless loop"}


def test_formgrader_has_the_names_of_the_roster(course, first):
    first("nbgrader")
    with jupyter.serving(course) as page:
        assert "formgrader" in page("formgrader/manage_students").lower()
        people = json.loads(page("formgrader/api/students"))
        submissions = json.loads(page("formgrader/api/submissions/day00"))
    names = {one["id"]: f"{one['first_name']} {one['last_name']}" for one in people}
    assert names == {who: sixty.full_name(who) for who in sixty.KINDS}
    known = {one["student"]: f"{one['first_name']} {one['last_name']}" for one in submissions if one["id"]}
    assert known == {who: names[who] for who, kind in sixty.KINDS.items() if kind.points}


def test_postgres_has_the_same_points(grade, first):
    with postgres.server() as server:
        ended, run = grade("nbgrader", "--seed", "5", "--db", server.new(), run="postgres")
    assert not list(run.glob("*.db")) and points(run) == points(first("nbgrader")[1]), ended.stderr


def test_a_cluster_of_two_workers_has_the_same_points(course, grade, first):
    with contextlib.ExitStack() as running:
        scheduler = running.enter_context(part(course, "--port", "0"))
        address = said(scheduler, r"Scheduler at: +(tls://\S+)")
        for _ in range(2):
            said(running.enter_context(part(course, address, "--threads", "1")), r"Start worker at: +(tls://\S+)")
        ended, run = grade("canvas", "--seed", "5", "--scheduler", address, run="cluster")
    assert points(run) == points(first("nbgrader")[1]), ended.stderr


#: Hand in, collect and grade on a hub, one section after the other.
HUB = """
import os, shutil, subprocess, sys
from datetime import UTC, datetime
from pathlib import Path

from autograder.hub import accounts
from autograder.toys import sixty

accounts.enter([(who, sixty.section(who)) for who in sixty.KINDS])
handed_in, roster = map(Path, sys.argv[1:])
for path in handed_in.iterdir():
    who, now = path.name, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
    inbound = accounts.folder() / "exchange" / accounts.course_id(sixty.section(who)) / "inbound"
    at = shutil.copytree(path / "day00", inbound / f"{who}+day00+{now}+x")
    (at / "timestamp.txt").write_text(now)
    for one in (at, *at.iterdir()):
        shutil.chown(one, who, who)
lines = roster.read_text(encoding="utf-8-sig").splitlines(keepends=True)
for section in ("", "evening"):
    run = f"autograder/run-hub{section}"
    os.environ |= {"PASSLAB_RUN": run, "PASSLAB_COURSE_ID": accounts.course_id(section)}
    own = [line for line in lines[1:] if sixty.section(line[:3]) == section]
    Path(f"{section}.csv").write_text("".join([lines[0], *own]))
    os.environ["PASSLAB_EXCHANGE"] = str(accounts.folder() / "exchange")
    subprocess.run([sys.executable, "-m", "nbgrader", "collect", "day00"], check=True)
    words = ["grade", f"{run}/submitted", "--roster", f"{section}.csv", "--seed", "5"]
    assert subprocess.run([sys.executable, "-m", "passlab.cli", *words]).returncode in (0, 1)
"""


def test_two_sections_of_a_hub_have_the_same_points(course, first, tmp_path):
    assert hubs.is_root(), "This test makes system users, on a copy of /etc: run it as root."
    expected = points(first("nbgrader")[1])
    folder = course / "sixty nbgrader"
    words = [*hubs.sealed(tmp_path), sys.executable, "-c", HUB, folder / "class", folder / "roster.csv"]
    env = tiny.environment(course) | {"PASSLAB_HUB": str(tmp_path / "hub")}
    done = subprocess.run(words, cwd=course, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    for section in ("", "evening"):
        own = {who: arguments for who, arguments in expected.items() if sixty.section(who) == section}
        run = course / f"autograder/run-hub{section}"
        assert points(run) == own, [row for row in read(run / "grades.csv") if not row["question"]]
