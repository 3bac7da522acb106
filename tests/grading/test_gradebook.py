"""The gradebook is made ready within a process that goes on to other work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from nbgrader.api import Gradebook, get_alembic_version
from sqlalchemy import create_engine, text
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


def test_a_new_gradebook_has_the_version_that_nbgrader_would_give_it(monkeypatch, tmp_path):
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without `alembic`, which nbgrader would start
    for _ in range(2):
        gradebook.prepare(Config({"CourseDirectory": {"db_url": url}}))
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with create_engine(url).connect() as connection:
        rows = connection.execute(text("SELECT version_num FROM alembic_version")).all()
    assert rows == [(get_alembic_version(),)]


def test_what_a_notebook_has_is_entered_at_once_or_not_at_all(tmp_path):
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    gradebook.prepare(Config({"CourseDirectory": {"db_url": url}}))

    def stored() -> list[str]:
        with Gradebook(url) as book:
            return [assignment.name for assignment in book.assignments]

    with pytest.raises(KeyError), gradebook.WritesAtOnce(url) as book:
        book.add_assignment("ps1")
        raise KeyError
    assert stored() == []
    with gradebook.WritesAtOnce(url) as book:
        for name in ("ps1", "ps2"):
            book.add_assignment(name)
            assert stored() == []
    assert stored() == ["ps1", "ps2"]
