"""Where the project may lie: any folder, under /tmp, behind a link, without permission to write, for any user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import typer
from sqlalchemy.engine import make_url

from autograder import commands
from autograder.authoring import source
from autograder.grading import gradebook
from autograder.toys import tiny
from autograder.toys.classes import grades, hand_in
from tests.support import users

ROOT = tiny.ROOT
#: What is special to some program: a shell, make, SQLite, nbgrader's patterns, traitlets, Python's search path, HTML.
CHARACTERS = "ä b #c 'd' \"e\" [f] %41 ?g *h $HOME ${HOME} `i` & ; \\ <b> ~"
NAME = CHARACTERS + "x" * (200 - len(CHARACTERS))


@pytest.fixture(scope="module")
def course(request):
    """A tiny course under /tmp in a folder of that name, reached through a link, that nobody but root can write."""
    # Not in pytest's folder, which other users cannot enter.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="passlab-places-") as folder:
        os.chmod(folder, 0o755)
        real, link = Path(folder, NAME), Path(folder, "link")
        tiny.make(real)
        link.symlink_to(real, target_is_directory=True)
        built = tiny.run(link, "-m", "autograder.authoring.notebooks")
        assert built.returncode == 0, built.stderr
        hand_in(link, 3)
        Path(folder, "spare").mkdir()
        subprocess.run(["chmod", "-R", "a+rX,a-w", str(real)], check=True)
        yield link
        subprocess.run(["chmod", "-R", "u+w", str(real)], check=True)


def passlab(course: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    """Run `passlab` in the course as an ordinary user."""
    command = users.ordinary([sys.executable, "-m", "passlab.cli", *arguments], course.parent / "spare")
    env = tiny.environment(course) | {"PYTHONFAULTHANDLER": "1"} | env  # who ends by a signal says where
    return subprocess.run(command, cwd=course, env=env, capture_output=True, text=True, timeout=300)


def one_sentence(result: subprocess.CompletedProcess) -> str:
    assert result.returncode == 1 and "Traceback" not in result.stdout + result.stderr, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_a_read_only_project_grades_wherever_it_lies_and_whoever_grades(course):
    results = course.parent / "the 'results'"
    results.mkdir()
    results.chmod(0o777)
    before = sorted(course.rglob("*"))
    done = passlab(course, "grade", "class", "--seed", "1", PASSLAB_RUN=str(results))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SAWarning" not in done.stderr
    points = [points for _, _, points in grades(course, str(results))]
    assert [sum(map(float, points[n : n + 3])) for n in (0, 3, 6)] == [9, 6, 6]
    assert (results / "gradebook.db").is_file() and (results / "report.html").is_file()
    assert len(list(results.glob("feedback/*/day00/tiny.html"))) == 3
    assert sorted(course.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["class"], "autograder/run: Permission denied. Name a folder that you can write, such as PASSLAB_RUN=/"),
        ([], "Copy the project to a folder that you can write."),
    ],
    ids=["a class", "the sample class"],
)
def test_results_that_cannot_be_written_are_one_sentence(course, arguments, sentence):
    assert sentence in one_sentence(passlab(course, "grade", *arguments))


def test_a_colon_is_refused_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(source, "COURSE", Path("/one:two"))
    with pytest.raises(typer.Exit):
        commands.grade()
    assert "The path /one:two contains a colon" in capsys.readouterr().err


def test_the_gradebooks_address_names_its_file():
    run = Path("/tmp") / NAME
    url = make_url(gradebook.database(run))
    assert (url.database, url.query) == (str(run / "gradebook.db"), {"timeout": "60"})


# ── make and setup ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def made(tmp_path) -> Path:
    """A project that is set up, in a folder of that name; its Python says how it was called."""
    project = tmp_path / NAME
    (project / "lib").mkdir(parents=True)
    (project / ".venv/bin").mkdir(parents=True)
    for name in ("Makefile", "lib/setup.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    python = project / ".venv/bin/python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "HOME=$HOME"\n')
    python.chmod(0o755)
    for tool in ("python3", "dot", "bwrap", "c++"):
        shutil.copy(python, tmp_path / tool)
    pins = (project / "pyproject.toml").read_text()
    (project / ".venv/passlab-setup").write_text(f"{project.resolve()}\n{pins}")
    return project


def make(folder: Path, *arguments: str, **env: str) -> str:
    """What make's commands were given, one argument a line."""
    env = os.environ | {"PATH": f"{folder.parent}:{os.environ['PATH']}", "PWD": str(folder)} | env
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_make_hands_paths_over_as_they_are(made):
    folder = NAME.replace("$", "$$")  # make's own way to write a dollar
    assert f"\ngrade\n--release\n{NAME}\n" in make(made, "grade", f"SUBMISSIONS={folder}")
    assert f"autograder.hub\n{NAME}\n" in make(made, "hub", f"ROSTER={folder}")
    assert "HOME=/" in make(made, "lab") and f"HOME={made.resolve()}/.venv/home\n" in make(made, "lab", HOME="/nowhere")


def test_a_project_behind_a_link_is_the_same_project(made, tmp_path):
    """Otherwise its environment, of some gigabytes, would be made anew each time the way changes."""
    link = tmp_path / "link"
    link.symlink_to(made, target_is_directory=True)
    stamp = (made / ".venv/passlab-setup").read_text()
    assert "install" not in make(link, "setup")
    assert (made / ".venv/passlab-setup").read_text() == stamp
