"""The learner's copies in work/: what a learner wrote is never overwritten, what they only ran gives way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from passlab.notebook.workspace import prepare, writable_home

ROOT = Path(__file__).resolve().parents[2]


def notebook(release: str, *cells: str, **metadata) -> str:
    """Return a notebook of text cells; the first says which release it is."""
    texts = [{"cell_type": "markdown", "metadata": {}, "source": [text]} for text in (f"release {release}", *cells)]
    stamp = {"passlab": {"release": release}} | metadata
    return json.dumps({"cells": texts, "metadata": stamp, "nbformat": 4, "nbformat_minor": 5})


def texts(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]


def add(path: Path, text: str) -> None:
    """Add a cell, as a learner does."""
    nb = json.loads(path.read_text())
    nb["cells"].append({"cell_type": "markdown", "metadata": {}, "source": [text]})
    path.write_text(json.dumps(nb, indent=4))


def run(path: Path) -> None:
    """Save what running a notebook leaves in JupyterLab: outputs, counts, metadata, an empty cell at the end."""
    nb = json.loads(path.read_text())
    output = {"output_type": "stream", "name": "stdout", "text": ["42\n"]}
    code = {"cell_type": "code", "execution_count": 1, "metadata": {"scrolled": True}, "outputs": [output]}
    nb["cells"] = [cell | {"metadata": {"collapsed": True}} for cell in nb["cells"]] + [code | {"source": []}]
    nb["metadata"]["language_info"] = {"name": "python", "version": "3.11.7"}
    path.write_text(json.dumps(nb, indent=4))


@pytest.fixture
def course(tmp_path):
    (tmp_path / "exercises/day01").mkdir(parents=True)
    (tmp_path / "exercises/day01/graphs.ipynb").write_text(notebook("aaa"))
    return tmp_path


def test_new_exercises_are_copied_and_announced_once(course):
    assert prepare(course) == ["These are your copies of new lessons and exercises: work/day01/graphs.ipynb."]
    assert texts(course / "work/day01/graphs.ipynb") == ["release aaa"]
    assert prepare(course) == []


def test_work_is_never_overwritten(course):
    prepare(course)
    copy = course / "work/day01/graphs.ipynb"
    add(copy, "my answer")
    before = copy.read_bytes()
    (course / "exercises/day01/graphs.ipynb").write_text(notebook("bbb"))
    [line] = prepare(course)
    assert "graphs.release-bbb.ipynb" in line and "Yours is untouched" in line
    assert copy.read_bytes() == before
    neighbour = course / "work/day01/graphs.release-bbb.ipynb"
    assert texts(neighbour) == ["release bbb"]
    add(neighbour, "worked on")
    assert prepare(course) == [] and texts(neighbour) == ["release bbb", "worked on"]


@pytest.mark.parametrize("change", ["code", "order", "removal"])
def test_each_change_of_text_is_kept(course, change):
    source = course / "exercises/day01/graphs.ipynb"
    source.write_text(notebook("aaa", "one", "two"))
    prepare(course)
    copy = course / "work/day01/graphs.ipynb"
    nb = json.loads(copy.read_text())
    if change == "code":
        nb["cells"][1]["cell_type"] = "code"
    elif change == "order":
        nb["cells"].reverse()
    else:
        del nb["cells"][1]
    copy.write_text(json.dumps(nb))
    source.write_text(notebook("bbb", "one", "two"))
    prepare(course)
    assert json.loads(copy.read_text()) == nb


def test_a_copy_that_was_only_run_gives_way_to_a_newer_release(course):
    prepare(course)
    copy = course / "work/day01/graphs.ipynb"
    run(copy)
    assert prepare(course) == []
    (course / "exercises/day01/graphs.ipynb").write_text(notebook("bbb"))
    [line] = prepare(course)
    assert "replaced" in line and "work/day01/graphs.ipynb" in line
    assert texts(copy) == ["release bbb"]
    assert [path.name for path in copy.parent.iterdir()] == ["graphs.ipynb"]


def test_only_the_newest_release_stands_beside_a_copy_unless_one_was_written_in(course):
    prepare(course)
    source, folder = course / "exercises/day01/graphs.ipynb", course / "work/day01"
    add(folder / "graphs.ipynb", "my answer")
    for release in ("bbb", "ccc", "ddd"):
        source.write_text(notebook(release))
        prepare(course)
        if release == "ccc":
            add(folder / "graphs.release-ccc.ipynb", "a note")
    names = ["graphs.ipynb", "graphs.release-ccc.ipynb", "graphs.release-ddd.ipynb"]
    assert sorted(path.name for path in folder.iterdir()) == names


def test_a_copy_of_an_earlier_version_is_known_by_its_release(course):
    copy = course / "work/day01/graphs.ipynb"
    copy.parent.mkdir(parents=True)
    copy.write_text(notebook("aaa", "my answer"))
    assert prepare(course) == []
    (course / "exercises/day01/graphs.ipynb").write_text(notebook("bbb"))
    [line] = prepare(course)
    assert "graphs.release-bbb.ipynb" in line and copy.read_text() == notebook("aaa", "my answer")


def test_a_copy_that_its_owner_has_brought_up_to_date_gets_none_beside_it(course):
    prepare(course)
    (course / "exercises/day01/graphs.ipynb").write_text(notebook("bbb"))
    copy = course / "work/day01/graphs.ipynb"
    copy.write_text(copy.read_text().replace("release aaa", "release bbb"))
    assert prepare(course) == []


def test_lessons_are_copied_without_their_pair_and_their_links_lead_to_copies(course):
    links = "[exercise](../work/day01/graphs.ipynb) [lesson](day02.ipynb#top) ![](pictures/a.png) `f[i](j)` "
    links += '<img src="pictures/a.png"> [web](https://example.org/a.ipynb) [here](#below)'
    (course / "course/pictures").mkdir(parents=True)
    (course / "course/pictures/a.png").write_bytes(b"")
    (course / "course/day01.ipynb").write_text(notebook("l", links, jupytext={"formats": "ipynb,py:percent"}))
    (course / "course/day02.ipynb").write_text(notebook("m"))
    (course / "exercises/day01/graphs.ipynb").write_text(notebook("aaa", "[lesson](../../course/day01.ipynb)"))
    prepare(course)
    expected = "[exercise](../day01/graphs.ipynb) [lesson](day02.ipynb#top) ![](../../course/pictures/a.png) `f[i](j)` "
    expected += '<img src="../../course/pictures/a.png"> [web](https://example.org/a.ipynb) [here](#below)'
    assert texts(course / "work/course/day01.ipynb")[1] == expected
    assert texts(course / "work/day01/graphs.ipynb")[1] == "[lesson](../course/day01.ipynb)"
    assert "jupytext" not in json.loads((course / "work/course/day01.ipynb").read_text())["metadata"]


def test_all_links_between_the_notebooks_of_this_course_lead_to_copies(tmp_path):
    for folder in ("course", "exercises"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    [line] = prepare(tmp_path)
    copies = set((tmp_path / "work").glob("*/*.ipynb"))
    assert line.endswith(f": {len(copies)} notebooks in work/.")
    targets = {
        (path.parent / link).resolve()
        for path in copies
        for link in re.findall(r"\]\(([^)\s#]+\.ipynb)", "\n".join(texts(path)))
        if not link.startswith("https:")
    }
    index = tmp_path / "work/course/index.ipynb"
    assert targets <= copies and copies - {index} <= targets


def test_a_source_that_is_no_notebook_is_named(course):
    (course / "exercises/day01/graphs.ipynb").write_text("<<<<<<< HEAD")
    [line] = prepare(course)
    assert "exercises/day01/graphs.ipynb" in line and not (course / "work").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"metadata": 3}', '{"cells": [], "metadata": {"passlab": 3}}'])
def test_a_damaged_copy_is_left_as_it_is(course, content):
    copy = course / "work/day01/graphs.ipynb"
    copy.parent.mkdir(parents=True)
    copy.write_text(content)
    prepare(course)
    assert copy.read_text() == content
    assert (course / "work/day01/graphs.release-aaa.ipynb").exists()


def test_nothing_half_written_is_left(course, monkeypatch):
    def no_links(*_):
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    prepare(course)
    assert [p.name for p in (course / "work/day01").iterdir()] == ["graphs.ipynb"]
    assert texts(course / "work/day01/graphs.ipynb") == ["release aaa"]


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


def test_without_a_home_jupyter_gets_a_place_until_the_end(tmp_path):
    code = """
import os
from passlab.notebook.workspace import writable_home
writable_home()
os.makedirs(place := os.environ["JUPYTER_RUNTIME_DIR"])
print(os.access(place, os.W_OK), place)
"""
    names = ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR")
    env = {name: value for name, value in os.environ.items() if name not in (*names, "XDG_CACHE_HOME")}
    env |= {"HOME": "/dev/null/nowhere", "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    writable, place = done.stdout.split(maxsplit=1)
    assert writable == "True" and place.startswith(str(tmp_path)) and not list(tmp_path.iterdir())
