"""`make bench`, parts class, grading and load.

Part class grades the sample class three times: all cells without cached builds, which is the baseline; only what is
graded; and the same again with the cached builds of the second time. Parts grading and load measure the engine against
stock nbgrader, on the same submissions in the same run.

Their class belongs to the small torch.fx course in `autograder/toys/tiny_fx.py`: one notebook, six graded cells that
take about a tenth of a second, answers right, right in another way, and wrong.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograder.authoring.source import ROOT
from autograder.bench import drivers
from autograder.bench.drivers import answer, command
from autograder.bench.figures import Figure, at_least, at_most
from autograder.toys import tiny, tiny_fx
from passlab.building import cache

CLASS, FEW, SEVERAL, LOAD = 18, 27, 108, 1_000

#: Settings of stock nbgrader: its own executor and preprocessors, none of this course.
STOCK = """
c = get_config()
c.CourseDirectory.root = {root!r}
c.CourseDirectory.course_id = "stock"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "stock/release"
c.CourseDirectory.submitted_directory = "stock/submitted"
c.CourseDirectory.autograded_directory = "stock/autograded"
c.CourseDirectory.feedback_directory = "stock/feedback"
c.CourseDirectory.db_url = "sqlite:///{root}/stock/gradebook.db"
c.CourseDirectory.ignore = ["*.py"]
c.ClearSolutions.code_stub = {{"python": "raise NotImplementedError()"}}
"""

LOOP = """
def dce(gm):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""


def _answers(learner: int) -> dict[str, str]:
    kinds = ("good", "right", "good", "wrong", "good")
    return {
        name: getattr(question, kinds[(learner + k * (learner % 3 + 1)) % len(kinds)])
        for k, (name, question) in enumerate(tiny_fx.QUESTIONS.items())
    }


def small_course(folder: Path, learners: int) -> Path:
    course = tiny_fx.make(folder / "course")
    built = tiny.run(course, "-m", "autograder.authoring.notebooks")
    if built.returncode:
        raise RuntimeError(built.stderr.strip().split("\n")[-1])
    for learner in range(learners):
        tiny_fx.submission(course, f"learner-{learner:04}", _answers(learner))
    return course


def _drive(course: Path, n: int, jobs: int = 2, unsafe: bool = False, only: str = "*") -> dict[str, Any]:
    paths = [str(path) for path in sorted((course / "class").glob(f"{only}/*/*.ipynb"))]
    return answer(tiny.run(course, *command(drivers.grade, paths, n, jobs, unsafe)))


def _stock(course: Path) -> tuple[float, float, float, dict[str, list[float]]]:
    """Run `nbgrader autograde` and `generate_feedback` on `CLASS` submissions, and again, when nothing is left to do.

    Return the seconds per submission of the first and of both, the seconds that both take for nothing, and learner →
    points.
    """
    (course / "stock").mkdir()
    (course / "nbgrader_config.py").write_text(STOCK.format(root=str(course)))
    plain = ("-m", "nbgrader")
    tools = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "JUPYTER_PREFER_ENV_PATH": "1"}
    released = tiny.run(course, *plain, "generate_assignment", "day00", "--force", **tools)
    if released.returncode:
        raise RuntimeError(released.stderr.strip().split("\n")[-1])
    for path in sorted((course / "class").glob("*/day00/fx.ipynb"))[:CLASS]:
        target = course / "stock/submitted" / path.relative_to(course / "class")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    begin, took = time.perf_counter(), []
    for command_name in ("autograde", "generate_feedback") * 2:
        process = tiny.run(course, *plain, command_name, "day00", **tools)
        took.append(time.perf_counter() - begin)
        if process.returncode:
            raise RuntimeError(process.stderr.strip().split("\n")[-1])
    database = f"sqlite:///{course}/stock/gradebook.db"
    scores = answer(tiny.run(course, *command(drivers.stock_points, database), **tools))
    points = {learner: [row[f"{name}-check"] for name in tiny_fx.QUESTIONS] for learner, row in scores.items()}
    return took[0] / CLASS, took[1] / CLASS, took[3] - took[1], points


def _command(course: Path, run: str, folder: str = "class") -> tuple[float, list[tuple[int, float]]]:
    """Run `passlab grade`; return its seconds, and samples of (submissions done, MiB of the grader)."""
    argv = [sys.executable, "-m", "passlab.cli", "grade", folder, "--seed", "5"]
    env = tiny.environment(course) | {"PASSLAB_RUN": run}
    begin, sizes = time.perf_counter(), []
    grader = subprocess.Popen(argv, cwd=course, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    pages = course / run / "feedback"
    while grader.poll() is None:
        try:
            pages_there = len(os.listdir(pages)) if pages.exists() else 0
            resident = int(Path(f"/proc/{grader.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            sizes.append((pages_there, resident / 2**20))
        except (OSError, IndexError):
            pass
        time.sleep(0.2)
    if grader.returncode:
        raise RuntimeError(grader.stderr.read().strip().split("\n")[-1])
    return time.perf_counter() - begin, sizes


def grading(largest: int) -> Iterator[Any]:
    """Measure the engine on a class, against stock nbgrader on 18 of its submissions."""
    with tempfile.TemporaryDirectory(prefix="passlab-bench-") as scratch:
        course = small_course(Path(scratch), SEVERAL)
        yield "the engine, 20 and 140 notebooks"
        few, large = _drive(course, 20), _drive(course, 140)
        cpu = (large["cpu"] - few["cpu"]) / 120
        each = large["took"] / 140
        yield "without the sandbox, and one at a time"
        alone, bare = _drive(course, 60, jobs=1), _drive(course, 60, jobs=1, unsafe=True)
        yield "with gradebook and feedback"
        whole, _ = _command(course, "autograder/run")
        for learner in sorted((course / "class").iterdir())[:FEW]:
            shutil.copytree(learner, course / "few" / learner.name)
        part, _ = _command(course, "autograder/few", "few")
        further = (whole - part) / (SEVERAL - FEW)
        looping = {name: q.good for name, q in tiny_fx.QUESTIONS.items()}
        quick = _drive(course, 4, jobs=1, only="learner-0000")["seconds"]
        tiny_fx.submission(course, "loops", looping | {"dce": LOOP})
        limit = 1.0  # of every exercise in this course
        loop = _drive(course, 1, jobs=1, only="loops")["seconds"] - quick - limit
        yield "stock nbgrader on the same class"
        stock, stock_with_all, stock_start, points = _stock(course)

        base = f"stock nbgrader {stock:.3g} s each"
        yield at_least(
            "submissions per minute, over stock nbgrader", stock / each, 25, "x", f"{base}, engine {each:.3g} s"
        )
        yield at_most("CPU of all processes, per submission", cpu, 0.15, " s", base)
        with_all = whole / SEVERAL
        yield at_least(
            f"with feedback, gradebook, report and start, {SEVERAL} submissions",
            stock_with_all / with_all,
            8,
            "x",
            f"stock nbgrader with feedback {stock_with_all:.3g} s each, passlab grade {with_all:.3g} s",
        )
        stock_further = stock_with_all - stock_start / CLASS
        yield at_least(
            "with all that but the start, each further submission",
            stock_further / further,
            25,
            "x",
            f"stock nbgrader {stock_further:.3g} s, passlab grade {further:.3g} s; "
            f"their starts {stock_start:.3g} s and {whole - SEVERAL * further:.3g} s",
        )
        cost = 1000 * (alone["took"] - bare["took"]) / 60
        one = f"one at a time {1000 * alone['took'] / 60:.3g} ms, without sandbox {1000 * bare['took'] / 60:.3g} ms"
        yield at_most("the sandbox, per submission", cost, 30, " ms", one)
        yield at_most("a loop that swallows interrupts, over its limit", loop, 0.2, " s", f"limit {limit:g} s")
        yield at_most("start of a run, until the first results", few["start"], 10, " s")
        yield at_most("memory of a worker above its warm parent", large["peak"], 150, " MiB", "median of the peaks")
        same = sum(large["points"][learner] == expected for learner, expected in points.items())
        yield at_least(
            "submissions with the same points as stock nbgrader", 100 * same / CLASS, 100, " %", f"{CLASS} of them"
        )


#: The limits in seconds: for the perfect notebooks of a day; for `make grade` on the sample class (set when
#: it had seven days), and its first line.
PERFECT = {"day03": 1.5, "day04": 4.0, "day07": 10.0, "day08": 10.0}
WHOLE, FIRST = 120, 20
LINE = re.compile(
    r"(?P<learner>[\w-]+), (?P<assignment>\w+): (?P<points>[\d.]+) of [\d.]+ (extra )?points.*, (?P<seconds>[\d.]+) s"
)


@dataclass
class _Grading:
    """One grading of the sample class.

    `first`: seconds until the first line. `took`, `points`: by (learner, assignment). `questions`: seconds of each
    answer, by (question, learner).
    """

    seconds: float = 0.0
    first: float = 0.0
    took: dict[tuple[str, str], float] = field(default_factory=dict)
    points: dict[tuple[str, str], str] = field(default_factory=dict)
    questions: dict[tuple[str, str], float] = field(default_factory=dict)


def _grade_samples(run: str, builds: Path, *options: str) -> _Grading:
    argv = [sys.executable, "-m", "passlab.cli", "grade", "--seed", "7", *options]
    environment = os.environ | {"PASSLAB_RUN": run, cache.FOLDER: str(builds)}
    shutil.rmtree(ROOT / run, ignore_errors=True)
    graded, begin = _Grading(), time.perf_counter()
    with tempfile.TemporaryFile("w+") as noise:
        pipes = {"stdout": subprocess.PIPE, "stderr": noise, "text": True}
        with subprocess.Popen(argv, cwd=ROOT, env=environment, **pipes) as grader:
            for line in grader.stdout:
                if row := LINE.match(line):
                    graded.first = graded.first or time.perf_counter() - begin
                    key = row["learner"], row["assignment"]
                    graded.took[key], graded.points[key] = float(row["seconds"]), row["points"]
        graded.seconds = time.perf_counter() - begin
        noise.seek(0)
        lines = noise.read().strip().splitlines()[-1:]
    if not graded.took:
        raise RuntimeError(*lines)
    with contextlib.closing(sqlite3.connect(ROOT / run / "gradebook.db")) as book:
        for learner, assignment, question, verdict in book.execute(
            "SELECT learner, assignment, question, verdict FROM passlab_score"
        ):
            graded.questions[f"{assignment}.{question}", learner] = json.loads(verdict or "{}").get("seconds", 0.0)
    shutil.rmtree(ROOT / run, ignore_errors=True)
    return graded


def sample_class(largest: int) -> Iterator[Any]:
    """Grading the sample class: all of it, perfect notebooks, endless loops, and the slowest questions."""
    run, cache = "autograder/run/bench", ROOT / ".cache/bench-builds"
    shutil.rmtree(cache, ignore_errors=True)
    try:
        yield "grading the sample class, all cells, nothing kept"
        baseline = _grade_samples(run, cache, "--run-all")
        shutil.rmtree(cache, ignore_errors=True)
        yield f"{baseline.seconds:.0f} s; only what is graded, nothing kept"
        cold = _grade_samples(run, cache)
        yield f"{cold.seconds:.0f} s; with what was kept"
        warm = _grade_samples(run, cache)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    cores = f"{os.cpu_count()} cores"
    days = len({assignment for _, assignment in cold.took})
    base = f"{days} days; all run {baseline.seconds:.3g} s"
    yield at_most("grading the sample class", cold.seconds, WHOLE, " s", base)
    yield Figure("the same, faster than with all run", f"{baseline.seconds / cold.seconds:.3g}x", cores)
    yield Figure("the same, with the builds of the last time", f"{warm.seconds:.3g} s", cores)
    yield at_most("until the first verdict", cold.first, FIRST, " s", f"all run {baseline.first:.3g} s")
    for (learner, assignment), seconds in sorted(cold.took.items()):
        base = f"all run {baseline.took.get((learner, assignment), 0.0):.3g} s"
        if learner == "perfect" and assignment in PERFECT:
            yield at_most(f"{assignment}, perfect", seconds, PERFECT[assignment], " s", base)
        if learner == "endless-loop":
            quick = cold.took.get(("perfect", assignment), 0.0)
            limits = sum(s for (name, pupil), s in cold.questions.items() if _never_ends(name, pupil, assignment, cold))
            over = seconds - quick - limits
            base = f"limit {limits:.3g} s; {base}"
            yield at_most(f"{assignment}, an endless loop over its limit", over, 1, " s", base)
    differ = sum(cold.points[key] != points for key, points in baseline.points.items())
    of = f"{len(cold.points)} of them"
    yield at_most("submissions with other points than with all run", differ, 0, "", of)
    slow = sorted(cold.questions.items(), key=lambda item: -item[1])
    for (name, learner), seconds in [item for item in slow if item[0][1] == "perfect"][:10]:
        yield Figure(f"slow: {name}", f"{seconds:.3g} s", f"the answer of {learner}, all cases")


def _never_ends(question: str, learner: str, assignment: str, graded: _Grading) -> bool:
    """Return whether this question has the endless loop: only its answer takes seconds more than the perfect one."""
    own = learner == "endless-loop" and question.startswith(f"{assignment}.")
    return own and graded.questions[question, learner] > graded.questions.get((question, "perfect"), 0.0) + 2


def load(largest: int) -> Iterator[Any]:
    """Grade a thousand submissions in one run: none may be lost, and the grader's memory must not grow."""
    with tempfile.TemporaryDirectory(prefix="passlab-bench-") as scratch:
        yield f"writing {LOAD} submissions"
        course = small_course(Path(scratch), LOAD)
        yield f"grading {LOAD} submissions"
        took, sizes = _command(course, "autograder/run")
        with (course / "autograder/run/grades.csv").open(newline="") as lines:
            rows = sum(1 for _ in csv.DictReader(lines))
        early = max(size for count, size in sizes if LOAD // 10 <= count < LOAD // 5)
        late = max(size for count, size in sizes if 9 * LOAD // 10 <= count < LOAD)
        at_end = max(size for _, size in sizes)
        yield Figure(f"{LOAD} submissions, per minute", f"{60 * LOAD / took:.3g}", f"{took:.0f} s in all")
        yield at_most(
            "the grader's memory at 90 %, over that at 10 to 20 %", late / early, 1.15, "x", f"{early:.0f} MiB"
        )
        yield Figure("the grader's memory, with the report at the end", f"{at_end:.0f} MiB", f"{late:.0f} MiB")
        missing = LOAD * len(tiny_fx.QUESTIONS) - rows
        yield at_most("scores lost", missing, 0, "", f"{rows} scores")
