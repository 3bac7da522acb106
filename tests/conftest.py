"""How the tests are run: which TVM pytest holds, which tests a change can reach, in which order, and what is shared.

One process can hold one TVM, so `make test` runs pytest three times: without one, with Relay's (`--tvm relay`), with
Relax's (`--tvm relax`). The folders named in `TVM` belong to the last two, tests/tvm to both.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from autograder.authoring import fresh
from autograder.toys import tiny
from tests.support import amounts, long, reach, schedule

expect.set_options(timeout=120_000)  # a page on a busy machine; Playwright waits for 5 s
gc.set_threshold(50_000)  # tests make objects by the thousand; to look through them after every 700 takes long

HERE = Path(__file__).parent
TVM = {"tvm": ("relay", "relax"), "relay": ("relay",), "relax": ("relax",)}


def place(path: Path | str) -> str:
    """A test file as the table above names its folder: "fx/test_effects.py"."""
    return Path(path).relative_to(HERE).as_posix()


def pytest_addoption(parser):
    parser.addoption(
        "--tvm", default="none", choices=["none", "relay", "relax"], help="hold it, and run its tests only"
    )
    parser.addoption("--changed", metavar="COMMIT", help="only tests that a change since this commit can reach")
    parser.addoption("--keep-seconds", action="store_true", help="write how long each file takes into seconds.json")
    parser.addoption("--keep-passed", action="store_true", help="write which long files pass into long.json")


def pytest_configure(config):
    if config.getoption("tvm") != "none":
        os.environ.setdefault("TVM_NUM_THREADS", "1")
    hypothesis.settings.register_profile("passlab", max_examples=amounts.EXAMPLES, deadline=None, derandomize=True)
    hypothesis.settings.load_profile("passlab")
    if not hasattr(config, "workerinput"):
        for line in fresh.build():  # the notebooks that version control does not have
            print(line)
        config.pluginmanager.register(schedule.Progress(config))
        if config.getoption("keep_passed"):
            options = config.option
            if options.keyword or options.markexpr or options.changed:
                raise pytest.UsageError("--keep-passed is about whole files: leave out -k, -m and --changed.")
            config.pluginmanager.register(long.Passed())
        named = config.args_source == config.ArgsSource.ARGS or config.getoption("changed")
        held = config.getoption("tvm")
        os.environ["PYTEST_LEFT_OUT"] = "\n".join(() if named else long.left_out(held))  # for the workers, too
        if held == "none" and not named:
            from tests.attacks import draw  # here alone, as it brings all attacks

            os.environ["PYTEST_ATTACKS"] = draw.extent()


def pytest_report_header(config):
    held = config.getoption("tvm")
    tried = f"{amounts.EXAMPLES} examples, {amounts.KILLS} kills, seeds {amounts.SEEDS}"
    head = [f"TVM held: {held}; {tried}, random numbers {amounts.RANDOM}, draw {amounts.DRAW}"]
    if names := os.environ["PYTEST_LEFT_OUT"].splitlines():
        counts = Counter(map(schedule.file_of, names))
        texts = (name if n == 1 else f"{name} ({n} tests)" for name, n in counts.items())
        head.append(f"drawn to be left out, having passed with this very code: {', '.join(texts)}")
    return head


def pytest_ignore_collect(collection_path, config):
    """Leave out the folders of other runs, except where the command line names them."""
    if not collection_path.is_relative_to(HERE) or collection_path == HERE:
        return None
    held = config.getoption("tvm")
    return True if held not in TVM.get(place(collection_path).split("/")[0], ("none",)) else None


def pytest_collection_modifyitems(config, items):
    held = {"none": "relax"}.get(config.getoption("tvm"), config.getoption("tvm"))
    kept, dropped, out = [], [], set(os.environ["PYTEST_LEFT_OUT"].splitlines())
    for item in items:
        at = place(item.path)
        flavour = getattr(item, "callspec", None) and item.callspec.params.get("flavour")
        foreign = at.startswith("tvm/") and flavour not in (None, held)
        (dropped if foreign or schedule.unit(item.nodeid) in out else kept).append(item)
    if base := config.getoption("changed"):
        files = {item.path for item in kept}
        try:
            paths = reach.changed_files(base)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        reached = {path for path in files if reach.reaches(path, paths)}
        dropped += [item for item in kept if item.path not in reached]
        kept = [item for item in kept if item.path in reached]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    seconds = schedule.expected(item.nodeid for item in kept)
    items[:] = sorted(kept, key=lambda item: (seconds[schedule.unit(item.nodeid)], schedule.unit(item.nodeid)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Begin each test with the same random numbers, whatever ran before it. Where others are wanted, a test draws them
    from a seed that it names when it fails; `make test-full` begins with new ones each time."""
    seed = zlib.crc32(f"{item.nodeid} {amounts.RANDOM}".encode())
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def pytest_xdist_make_scheduler(config, log):
    return schedule.TwoEnds(config, log)


@pytest.fixture(scope="session")
def once(tmp_path_factory) -> Callable[[str, Callable[[Path], None]], Path]:
    """`once(name, make)` is a path that `make(path)` has written, one time for all workers of this run."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def made(name: str, make: Callable[[Path], None]) -> Path:
        path, unfinished = folder / name, folder / f"{name}.unfinished"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                shutil.rmtree(unfinished, ignore_errors=True)  # of one that failed
                make(unfinished)
                unfinished.rename(path)
        return path

    return made


@pytest.fixture(scope="module")
def course(once, tmp_path_factory) -> Path:
    """A tiny course of its own for each test module, in a folder with a space in its name, notebooks built."""

    def build(folder: Path) -> None:
        tiny.make(folder)
        built = tiny.run(folder, "-m", "autograder.authoring.notebooks")
        assert built.returncode == 0, built.stderr

    return shutil.copytree(once("tiny", build), tmp_path_factory.mktemp("tiny") / "a course", symlinks=True)


@pytest.fixture(scope="module", autouse=True)
def no_tvm_is_left(request):
    """A TVM in this process would keep later tests from the other one, and it raises Python's recursion limit."""
    yield
    folders = {place(path).split("/")[0] for path in (request.path, *(item.path for item in request.session.items))}
    if not folders & set(TVM):  # else this process was told to hold one
        assert "tvm" not in sys.modules, f"{request.node.name} loaded TVM: use the fixture in_own_process"


@pytest.fixture(scope="session")
def in_own_process():
    """`in_own_process(exercise_id, function, *args)` calls a function where the exercise's compiler is.

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
