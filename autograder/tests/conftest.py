"""Fixtures: a tiny course in a folder with a space in its name, with its notebooks built."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import tiny


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A tiny course of its own for each test module, notebooks built."""
    folder = tiny.make(tmp_path_factory.mktemp("tiny") / "a course")
    built = tiny.run(folder, "-m", "autograder.notebooks")
    assert built.returncode == 0, built.stderr
    return folder


def pytest_terminal_summary(terminalreporter):
    """Print the tables that tests noted with `record_property("table", …)`."""
    for reports in (terminalreporter.stats.get(kind, ()) for kind in ("passed", "failed")):
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == "table":
                    terminalreporter.write_line(text)
