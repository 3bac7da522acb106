"""The learner's copies in work/: made once, never overwritten, told about newer releases."""

from __future__ import annotations

import json
import os

import pytest

from passlab.notebook.workspace import prepare, writable_home


def notebook(release: str, text: str = "") -> str:
    return json.dumps({"cells": [text], "metadata": {"passlab": {"release": release}}})


@pytest.fixture
def course(tmp_path):
    (tmp_path / "exercises/day01").mkdir(parents=True)
    (tmp_path / "exercises/day01/graphs.ipynb").write_text(notebook("aaa"))
    return tmp_path


def test_new_exercises_are_copied_and_announced_once(course):
    assert prepare(course) == ["work/day01/graphs.ipynb is your copy of a new exercise."]
    assert (course / "work/day01/graphs.ipynb").read_text() == notebook("aaa")
    assert prepare(course) == []


def test_work_is_never_overwritten(course):
    prepare(course)
    mine = course / "work/day01/graphs.ipynb"
    mine.write_text(notebook("aaa", "my answer"))
    (course / "exercises/day01/graphs.ipynb").write_text(notebook("bbb"))
    [line] = prepare(course)
    assert "graphs.release-bbb.ipynb" in line and "Yours is untouched" in line
    assert mine.read_text() == notebook("aaa", "my answer")
    beside = course / "work/day01/graphs.release-bbb.ipynb"
    assert beside.read_text() == notebook("bbb")
    beside.write_text(notebook("bbb", "worked on"))
    assert prepare(course) == [] and beside.read_text() == notebook("bbb", "worked on")


def test_a_copy_that_was_saved_again_is_still_known(course):
    prepare(course)
    mine = course / "work/day01/graphs.ipynb"
    saved = json.loads(mine.read_text()) | {"cells": ["answer", "outputs"]}
    mine.write_text(json.dumps(saved, indent=4))
    assert prepare(course) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"metadata": 3}'])
def test_a_damaged_copy_is_left_as_it_is(course, content):
    mine = course / "work/day01/graphs.ipynb"
    mine.parent.mkdir(parents=True)
    mine.write_text(content)
    prepare(course)
    assert mine.read_text() == content
    assert (course / "work/day01/graphs.release-aaa.ipynb").exists()


def test_nothing_half_written_is_left(course, monkeypatch):
    def no_links(*_):
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    prepare(course)
    assert [p.name for p in (course / "work/day01").iterdir()] == ["graphs.ipynb"]
    assert (course / "work/day01/graphs.ipynb").read_text() == notebook("aaa")


def test_only_exercises_are_copied(course):
    checkpoints = course / "exercises/day01/.ipynb_checkpoints"
    checkpoints.mkdir()
    (checkpoints / "graphs-checkpoint.ipynb").write_text("{}")
    (course / "exercises/README.md").write_text("")
    assert len(prepare(course)) == 1


def test_a_home_that_can_be_written_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JUPYTER_RUNTIME_DIR", raising=False)
    writable_home()
    assert "JUPYTER_RUNTIME_DIR" not in os.environ


def test_without_a_home_jupyter_gets_a_place(monkeypatch):
    monkeypatch.setenv("HOME", "/dev/null/nowhere")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.delenv("XDG_CACHE_HOME")
    writable_home()
    place = os.environ["JUPYTER_RUNTIME_DIR"]
    os.makedirs(place)
    assert os.access(place, os.W_OK)
