"""The passlab command, and what importing the library costs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from passlab import cli

ROOT = Path(__file__).resolve().parents[1]


def run(*words, cwd=ROOT, **environment):
    command, env = [sys.executable, "-m", "passlab.cli", *words], os.environ | environment
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


def test_help_names_every_command():
    out = run("--help", COLUMNS="200").stdout
    for command in ("doctor", "lab", "update", "release", "grade", "progress", "prove"):
        assert f" {command} " in out, command


@pytest.mark.parametrize(
    ("file", "start"),
    [
        ("course/index.ipynb", "work/course/index.ipynb"),
        ("exercises/day21/exercises.ipynb", "work"),  # a course of one's own without lessons
        ("course/notes.txt", ""),
    ],
)
def test_the_lab_opens_the_learner_s_copies(tmp_path, monkeypatch, file, start):
    for name in ("course", "exercises"):
        (tmp_path / name).mkdir()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text('{"cells": [], "metadata": {}}')
    commands = []
    monkeypatch.setenv("PASSLAB_COURSE", str(tmp_path))
    monkeypatch.setattr(subprocess, "call", lambda command, **_: commands.append(command) or 0)
    result = CliRunner().invoke(cli.app, ["lab", "--no-browser"])
    assert result.exit_code == 0, result.output
    assert f"--LabApp.default_url=/lab/tree/{start}" in commands[0]


@pytest.mark.parametrize(("words", "menus"), [([], False), (["--author"], True)])
def test_only_authors_have_the_menus_of_jupytext_and_nbgrader(tmp_path, monkeypatch, words, menus):
    for name in ("course", "exercises"):
        (tmp_path / name).mkdir()
    paths = []
    monkeypatch.setenv("PASSLAB_COURSE", str(tmp_path))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/theirs")
    monkeypatch.setattr(
        subprocess, "call", lambda command, env: paths.extend(env["JUPYTER_CONFIG_PATH"].split(":")) or 0
    )
    assert CliRunner().invoke(cli.app, ["lab", "--no-browser", *words]).exit_code == 0
    assert paths[-1] == "/theirs" and paths[-2].endswith("passlab/jupyter")
    pages = [Path(path, "labconfig/page_config.json") for path in paths]
    disabled = [json.loads(page.read_text())["disabledExtensions"] for page in pages if page.exists()]
    assert disabled == ([] if menus else [{"@jupyter/nbgrader": True, "jupyterlab-jupytext": True}])


def test_doctor_is_content_here_and_says_what_is_missing(monkeypatch):
    done = run("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.setitem(cli.LOOKS, "graphviz", (True, cli._tool("no-such-dot", "pictures", "install Graphviz")))
    result = CliRunner().invoke(cli.app, ["doctor"])
    assert result.exit_code == 1
    assert "install Graphviz" in result.output


def test_doctor_names_the_package_of_missing_headers(monkeypatch, tmp_path):
    assert cli._headers()[0]
    monkeypatch.setattr(cli.sysconfig, "get_path", lambda name: str(tmp_path))
    result = CliRunner().invoke(cli.app, ["doctor"], env={"COLUMNS": "300"})
    assert result.exit_code == 0 and "torch.compile" in result.output and "apt install python3-dev" in result.output


def test_doctor_survives_a_look_that_breaks(monkeypatch):
    def broken():
        raise OSError("libtorch.so: cannot open shared object file")

    monkeypatch.setitem(cli.LOOKS, "devices", (True, broken))
    result = CliRunner().invoke(cli.app, ["doctor"])
    assert result.exit_code == 1 and "cannot open shared object file" in result.output


def test_doctor_shows_the_rows_that_others_add(monkeypatch):
    class Point:
        def __init__(self, name, load):
            self.name, self.load = name, load

    def broken():
        raise ImportError("no module named sandbox")

    rows = {"sandbox: seccomp": (False, lambda: (True, "71 system calls are refused"))}
    points = {"passlab.doctor_checks": [Point("one", lambda: lambda: rows), Point("two", broken)]}
    monkeypatch.setattr(cli, "entry_points", lambda group: points.get(group, []))
    result = CliRunner().invoke(cli.app, ["doctor"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "71 system calls are refused" in result.output and "no module named sandbox" in result.output


def test_a_wrong_version_is_named(monkeypatch):
    import importlib.metadata

    monkeypatch.setattr(cli, "requires", lambda name: ["typer==0.0.1", "no-such-package==1"])
    assert importlib.metadata.version("typer")
    good, result = cli._packages()
    assert not good and "typer is" in result and "no-such-package is missing" in result


def test_progress_prints_every_day(tmp_path):
    done = run("progress", PASSLAB_PROGRESS=str(tmp_path / "progress.json"))
    assert done.returncode == 0
    assert all(f"{day}  Day" in done.stdout for day in ("day01", "day02", "day03")) and "0 of " in done.stdout
    done = run("progress", "day03", PASSLAB_PROGRESS=str(tmp_path / "progress.json"))
    assert "day03.cse" in done.stdout and "not attempted" in done.stdout


@pytest.mark.parametrize("name", ["passlab", "passlab.notebook.ui", "passlab.exercises", "passlab.graph"])
def test_importing_loads_no_framework(name):
    heavy = "torch tvm jax onnx matplotlib numpy IPython jinja2"
    code = f"import sys, {name}; print([m for m in {heavy.split()!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_every_public_name_is_there():
    import passlab

    for name in passlab.__all__:
        assert callable(getattr(passlab, name)) or name == "models", name
    with pytest.raises(AttributeError, match="It has: draw"):
        passlab.no_such_name  # noqa: B018
