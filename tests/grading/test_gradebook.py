"""The gradebook is made ready within a process that goes on to other work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from traitlets.config import Config

from autograder.grading import gradebook


@pytest.mark.parametrize("before", [None, "as it was"])
def test_a_variable_comes_back(monkeypatch, before):
    monkeypatch.delenv("PASSLAB_TEST", raising=False)
    if before is not None:
        monkeypatch.setenv("PASSLAB_TEST", before)
    with pytest.raises(KeyError), gradebook.variable("PASSLAB_TEST", "for a while"):
        assert os.environ["PASSLAB_TEST"] == "for a while"
        raise KeyError
    assert os.environ.get("PASSLAB_TEST") == before


def test_preparing_leaves_the_path_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    config = Config()
    config.CourseDirectory.db_url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    gradebook.prepare(config)
    assert (tmp_path / "gradebook.db").exists() and os.environ["PATH"] == "/usr/bin:/bin"


def test_alembic_is_found_where_the_path_does_not_lead_to_it(tmp_path):
    code = (
        "from traitlets.config import Config; from autograder.grading import gradebook; c = Config(); "
        f"c.CourseDirectory.db_url = 'sqlite:///{tmp_path / 'gradebook.db'}'; gradebook.prepare(c)"
    )
    env = os.environ | {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
