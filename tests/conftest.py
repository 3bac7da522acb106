"""Fixtures: a tiny course in a folder with a space in its name, with its notebooks built."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.support import tiny


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A tiny course of its own for each test module, notebooks built."""
    folder = tiny.make(tmp_path_factory.mktemp("tiny") / "a course")
    built = tiny.run(folder, "-m", "autograder.authoring.notebooks")
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module", autouse=True)
def no_tvm_is_left(request):
    """A TVM in this process would keep later tests from the other one, and it raises Python's recursion limit."""
    yield
    assert "tvm" not in sys.modules, f"{request.node.name} loaded TVM: use the fixture apart"


@pytest.fixture(scope="session")
def apart():
    """`apart(exercise_id, function, *args)` calls a function where the exercise's compiler is.

    A process can hold only one TVM, so this one holds none: each of the two has a process of its own, kept for the
    session. The function is one of a module, and what it raises is raised here.
    """
    from passlab import exercises

    pools: dict[str, ProcessPoolExecutor] = {}

    def call(exercise_id, function, *args):
        flavour = exercises.find(exercise_id).flavour
        if flavour == "torch":
            return function(*args)
        if flavour not in pools:
            pools[flavour] = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        try:
            return pools[flavour].submit(function, *args).result()
        except BrokenProcessPool:  # the compiler crashed: the next test gets a new process
            del pools[flavour]
            raise

    yield call
    for pool in pools.values():
        pool.shutdown()


def pytest_terminal_summary(terminalreporter):
    """Print the tables that tests noted with `record_property("table", …)`."""
    for reports in (terminalreporter.stats.get(kind, ()) for kind in ("passed", "failed")):
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == "table":
                    terminalreporter.write_line(text)
