"""The engine on the tiny course: what a cell or a question does costs that much and no more."""

from __future__ import annotations

import json

import pytest

from autograder.toys import tiny
from autograder.toys.classes import GOOD
from tests.support.engine import grade, points


def notebook(**instead: str) -> list[tuple[str, str]]:
    """The cells of a notebook with the right answers, but for those given."""
    cells = []
    for name, good in GOOD.items():
        cells += [("", instead.get(name.replace("-", "_"), good)), (name, "")]
    return cells


FULL = [3.0, 3.0, 3.0]
LOST = [0.0, 3.0, 3.0]
LOOP = "def double(x):\n    while True: pass"
STUBBORN = (
    "import signal\ndef double(x):\n    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n    while True: pass"
)
#: A judge that quotes them says more than one message between processes may hold.
QUOTED = {name: f"def {name}(x):\n    return '&' * 1_800_000" for name in ("double", "shout", "sort_words")}
DEAF = "import signal\nfor s in (signal.SIGALRM, signal.SIGPROF): signal.signal(s, signal.SIG_IGN)\nwhile True: pass"

#: Learner → cells, and the points of the three questions. Something happens to almost everybody.
CLASS = {
    "perfect": (notebook(), FULL),
    "stub": (notebook(double="def double(x):\n    raise NotImplementedError()"), LOST),
    "wrong": (notebook(double="def double(x):\n    return 4"), [0.0, 3.0, 3.0]),
    "exit in the answer": (notebook(double="import os\ndef double(x):\n    os._exit(3)"), LOST),
    "crash in the answer": (notebook(double="import ctypes\ndef double(x):\n    ctypes.string_at(0)"), LOST),
    "loop in the answer": (notebook(double=LOOP), LOST),
    "loop that ignores signals": (notebook(double=STUBBORN), LOST),
    "exit in a cell": ([("", "import os; os._exit(1)"), *notebook()], FULL),
    "loop in a cell": ([("", "while True: pass"), ("", "print('on')"), *notebook()], FULL),
    "loop below an answer": (notebook(double=GOOD["double"] + "\nwhile True: pass"), FULL),
    "loop in a cell that ignores signals": ([("", DEAF), *notebook()], FULL),
    "memory": (notebook(double="def double(x):\n    return len(bytearray(3 * 2**30))"), LOST),
    "not defined": (notebook(shout="1 / 0"), [3.0, 0.0, 3.0]),
    "quoted at length": (notebook(**QUOTED), [0.0, 0.0, 0.0]),
    "state at the check": ([*notebook(), ("", "def double(x): return 0")], FULL),
    "left out": ([*notebook(), ("", "1 / 0", {"idle": True})], FULL),
    "calls a right answer": ([*notebook(), ("", "print(double(2))", {"calls": [1]})], FULL),
    "calls a loop": ([*notebook(double=LOOP), ("", "double(2)", {"calls": [1]}), ("", "print('on')")], LOST),
    "calls a loop that ignores signals": ([*notebook(double=STUBBORN), ("", "double(2)", {"calls": [1]})], LOST),
    "outputs": (
        [("", "print('hello'); 6 * 7"), ("", "import os\nos.environ.get('HOME'), os.getcwd()"), *notebook()],
        FULL,
    ),
}
#: Their answers pass on the word of a hidden case.
TELLING = {
    "hidden in an exception": notebook(shout="def shout(word):\n    raise type(word, (Exception,), {})(word)"),
    "hidden in the value": notebook(shout="def shout(word):\n    return 'it was ' + word"),
}


@pytest.fixture(scope="module")
def graded(course) -> dict[str, dict]:
    return grade(course, {learner: cells for learner, (cells, _) in CLASS.items()} | TELLING)


@pytest.mark.parametrize("learner", CLASS)
def test_each_question_has_the_points_of_its_own_answer(graded, learner):
    assert points(graded[learner]) == CLASS[learner][1]
    assert graded[learner]["failure"] == ""


def test_what_ended_a_cell_is_said_at_that_cell_and_the_others_have_run(graded):
    ran = graded["exit in a cell"]["ran"]
    assert "ended in this cell" in ran["0"]["died"] and not any(one["died"] for at, one in ran.items() if at != "0")
    ran = graded["loop in a cell that ignores signals"]["ran"]
    assert "could not be interrupted" in ran["0"]["died"]
    ran = graded["loop in a cell"]["ran"]
    assert not ran["0"]["died"] and "2 s" in ran["0"]["error"]
    assert ran["1"]["outputs"][0]["text"] == "on\n"


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        ("exit in the answer", "exit code 3"),
        ("crash in the answer", "segmentation fault"),
        ("loop in the answer", "used up its 1 s"),
        ("loop that ignores signals", "could not be interrupted"),
        ("memory", "MemoryError"),
        ("not defined", "The cell above ended with ZeroDivisionError"),
    ],
)
def test_the_verdict_says_what_happened(graded, learner, words):
    text = [verdict["message"] for verdict in graded[learner]["verdicts"].values()]
    assert any(words in message for message in text), text


def test_hidden_text_that_an_answer_passes_on_is_not_shown(graded):
    for learner in TELLING:
        verdict = next(v for v in graded[learner]["verdicts"].values() if v["exercise"] == "day00.shout")
        assert verdict["points"] < 3
        assert "hiddenword" not in json.dumps(
            [verdict["message"], verdict["html"], verdict["text"], graded[learner]["ran"]]
        )


def test_outputs_are_recorded_as_in_a_notebook(graded):
    ran = graded["outputs"]["ran"]
    assert ran["0"]["outputs"][0] == {"output_type": "stream", "name": "stdout", "text": "hello\n"}
    assert ran["0"]["outputs"][1]["data"] == {"text/plain": "42"}
    assert str(tiny.ROOT) not in ran["1"]["outputs"][0]["data"]["text/plain"]


def test_the_same_seed_gives_the_same_verdicts_and_another_seed_is_taken_over(course, graded):
    again = grade(course, {"perfect": notebook(), "wrong": notebook(double="def double(x):\n    return 4")})
    assert points(again["wrong"]) == points(graded["wrong"])
    # right for seed 3 alone: hidden cases really come from the seed
    lucky = "def double(x):\n    return 2006 if x > 100 else x + x"
    assert points(grade(course, {"lucky": notebook(double=lucky)})["lucky"])[0] == 3
    assert points(grade(course, {"lucky": notebook(double=lucky)}, seed=4)["lucky"])[0] < 3


KILLS = """
import os, signal, sys, threading
import psutil
from autograder.engine.data import Cell, Job
from autograder.engine.engine import Engine

cells = [Cell(0, "a", "import time; time.sleep(0.5)"), Cell(1, "b", "def double(x): return x + x")]
job = Job("ada", "day00", "tiny", (*cells, Cell(2, "c", "", "day00.double", "double")), 3)
with Engine(jobs=2) as engine:
    backend = engine.backend("torch")
    zygote = engine.zygotes[sys.argv[1]]
    processes = [zygote.process, *psutil.Process(zygote.process.pid).children(recursive=True)]
    victim = processes[0 if sys.argv[2] == "all" else -1]  # the last one is the fork
    threading.Timer(0.2, os.kill, (victim.pid, signal.SIGKILL)).start()
    result = engine.grade(job)
    same = engine.zygotes[sys.argv[1]] is zygote, engine.backend("torch") is backend
    print(*same, result.failure, result.verdicts[2].points)
"""


STARVED = """
import contextlib, os, signal, sys, threading, time
from autograder.engine import engine, sandbox
from autograder.engine.data import Cell, Job

real, seconds = engine._Run._cell, float(sys.argv[2])

def share(pid):  # a twentieth of the time, as on a machine with forty busy processes, or less on one that has some
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.38)
            enough, end = sandbox.cpu_seconds(pid) + 0.02, time.monotonic() + 1
            os.kill(pid, signal.SIGCONT)
            while sandbox.cpu_seconds(pid) < enough and time.monotonic() < end:
                time.sleep(0.005)

def cell(run, worker, cell):
    if "while" in cell.source:
        threading.Thread(target=share, args=(worker.pid,), daemon=True).start()
    return real(run, worker, cell)

engine._Run._cell, engine.CELL_SECONDS = cell, seconds
job = Job("ada", "day00", "tiny", (Cell(1, "b", sys.argv[1]), Cell(2, "c", "", "day00.double", "double")), 3)
with engine.Engine(jobs=1) as one:
    result = one.grade(job)
    print(result.ran[1].died, result.ran[1].error, result.verdicts[2].points)
"""


def test_a_busy_machine_stops_no_cell(course):
    """It needs 0.5 s of CPU time and takes more than 8 s by the clock, four times its limit and its grace time."""
    work = "\nimport time\nwhile time.process_time() - start < 0.5: pass"
    result = tiny.run(course, "-c", STARVED, GOOD["double"] + "\nimport time; start = time.process_time()" + work, "1")
    assert result.stdout.split() == ["3.0"], result.stdout + result.stderr


def test_a_loop_below_an_answer_costs_nothing_on_a_busy_machine(course):
    """The cell is stopped, and what it has defined stays, however late the machine lets it stop."""
    result = tiny.run(course, "-c", STARVED, GOOD["double"] + "\nwhile True: pass", "1")
    assert result.stdout.strip() == "OutOfTime: This cell ran longer than 1 s and was stopped. 3.0"


@pytest.mark.parametrize("part", ["one", "all"])
@pytest.mark.parametrize("role", ["runner", "verifier"])
def test_a_part_of_the_engine_that_is_killed_is_started_again_and_the_notebook_graded(course, role, part):
    """One flavour's process of a role ends without the others; with the zygote, all do."""
    ended = tiny.run(course, "-c", KILLS, role, part)
    assert ended.stdout.split() == [str(part == "one"), "False", "3.0"], ended.stdout + ended.stderr


def test_a_cell_that_is_left_out_is_not_run(graded):
    assert graded["left out"]["ran"]["6"] == {"outputs": [], "error": "", "died": "", "idle": True}


def test_a_cell_that_may_call_an_answer_runs_where_the_answer_ends(graded):
    assert _printed(graded["calls a right answer"], 6) == "4\n"


@pytest.mark.parametrize("learner", ["calls a loop", "calls a loop that ignores signals"])
def test_after_a_question_ran_out_of_time_no_cell_below_calls_its_answer(graded, learner):
    assert _printed(graded[learner], 6).startswith("Not run: double")


def test_other_cells_below_such_a_question_run(graded):
    assert _printed(graded["calls a loop"], 7) == "on\n"


def _printed(result: dict, index: int) -> str:
    return "".join(output["text"] for output in result["ran"][str(index)]["outputs"])


LATE = """
import sys, threading, time
from autograder.engine import engine as module
from autograder.engine.data import Cell, Job

module.NOTEBOOK_SECONDS = 4.0
module.CELL_SECONDS = 3.0
DEAF = "import signal\\nfor s in (signal.SIGALRM, signal.SIGPROF): signal.signal(s, signal.SIG_IGN)\\nwhile True: pass"
GOOD = "def double(x): return x + x"

def job(learner, *sources):
    cells = [Cell(at, str(at), source) for at, source in enumerate((*sources, GOOD))]
    return Job(learner, "day00", "tiny", (*cells, Cell(len(cells), "c", "", "day00.double", "double")), 3)

with module.Engine(jobs=2) as engine:
    backend, found = engine.backend("torch"), {}
    def grade(job):
        found[job.learner] = engine.grade(job)
    threads = [threading.Thread(target=grade, args=[job("slow", DEAF, DEAF, DEAF)])]
    others = [job(f"other {n}", "import time; time.sleep(2)") for n in range(3)]
    threads.append(threading.Thread(target=lambda: list(map(grade, others))))
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    slow, *rest = (found[name] for name in sorted(found, reverse=True))
    points = [f"{one.failure!r} {verdict.points:g}" for one in (slow, *rest) for verdict in one.verdicts.values()]
    print(engine.backend("torch") is backend, *points)
    print(found["slow"].verdicts[4].message)
"""


def test_a_notebook_that_uses_up_its_time_ends_its_own_worker_only(course):
    ended = tiny.run(course, "-c", LATE)
    message, why = ended.stdout.splitlines() or ["", ended.stderr]
    assert message.split() == ["True", *["''", "0"], *["''", "3"] * 3] and "they were over" in why, ended.stdout + why
