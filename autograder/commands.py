"""The instructor's commands of `passlab`: release, bundle, grade, regrade, due, extend, leaderboard, prove, new, …"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from autograder.authoring import samples, source
from autograder.grading import locks
from autograder.grading.intake import ClassWork, Submission, UnreadableError, collect, share
from passlab.notebook import built

if TYPE_CHECKING:
    from autograder.engine.engine import Engine
    from autograder.grading.class_run import GradedSubmission, Session
    from autograder.grading.cluster import Cluster
    from autograder.grading.recorder import Recorder
    from autograder.grading.roster import Learner
    from autograder.grading.scores import Run
    from autograder.reports.exports import Row
    from autograder.reports.report import Layer

RUN = "autograder/run"
SAMPLES_RUN = f"{RUN}/samples"
#: Why a learner on the roster has no grade.
ABSENT = "no notebook was handed in"
#: What to do after grading that could not store everything.
RESUME = "When that is mended, give the same command again: it grades what is left, on the same cases."


def _fail(sentence: str) -> NoReturn:
    Console(stderr=True).print(sentence, soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(1)


def _known() -> dict[str, set[str]]:
    from autograder.authoring.notebooks import assignments

    known = assignments()
    if not known:
        _fail("There is nothing to release: solutions/ has no day with a notebook.")
    return known


def release() -> None:
    """Rebuild the notebooks and the learners' exercises from their sources in solutions/ and course/."""
    from autograder.authoring import notebooks

    _known()
    _print_written(notebooks.build())
    Console().print("exercises/ is up to date.")


def bundle(
    target: Annotated[Path, typer.Argument(help="A folder, or a file that ends in .zip.")],
    day: Annotated[list[str] | None, typer.Option(help="Only this day (may be repeated).")] = None,
    solutions: Annotated[
        list[str] | None, typer.Option(help="Release the solutions of this day (may be repeated).")
    ] = None,
) -> None:
    """Make what learners of a class get: lessons, exercises and the library, without solutions, hidden cases, grader.

    Written over an earlier bundle, it updates that one; what learners have in `work` is not part of it.
    """
    from autograder.authoring import bundle as bundles
    from passlab.judge.words import plural

    days = _chosen(day, _known())
    unknown = [name for name in solutions or () if name not in days]
    if unknown:
        _fail(
            f"There is no {', '.join(unknown)} in the bundle to have the solutions of: its days are {', '.join(days)}."
        )
    try:
        files = bundles.make(target, days, solutions or ())
    except bundles.BundleError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{target} cannot be written: {error.strerror or error}.")
    contents = f"with the solutions of {', '.join(solutions)}" if solutions else "without solutions"
    count = f"{len(files)} files for {plural(len(days), 'day')}"
    _say(f"{target} has {count}, {contents}. Learners run `make lab` in it.")


def _print_written(names: list[str]) -> None:
    for name in names:
        Console().print(f"wrote {name}", markup=False, highlight=False)


Submissions = Annotated[
    Path | None,
    typer.Argument(
        help="The class: a folder (or .zip, .tar.gz) in the layout learner/assignment/notebook.ipynb, or a download "
        "from Canvas or Moodle. Default: the sample class."
    ),
]
Assignment = Annotated[list[str] | None, typer.Option(help="Only this assignment (may be repeated).")]
Jobs = Annotated[int, typer.Option(help="Number of notebooks graded at the same time; 0: one per core.")]
Roster = Annotated[
    Path | None,
    typer.Option(help="A CSV file with one learner per line (columns id, name, email, …). Others are not graded."),
]
Seed = Annotated[int | None, typer.Option(help="The seed of the hidden cases. Default: a new one.")]
Db = Annotated[str, typer.Option(help="The gradebook, e.g. postgresql://user@host/course. Default: a SQLite file.")]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Grade even if the sandbox lacks a required layer; every page then warns.")
]
RunAll = Annotated[
    bool, typer.Option("--run-all", help="Run all cells as nbgrader would, even those that only show something.")
]
Scheduler = Annotated[str, typer.Option(help="Grade on a cluster: the address that `passlab cluster` prints.")]
Device = Annotated[
    str, typer.Option(help="Where FX graphs are compared: cpu, or cuda on a machine with an NVIDIA GPU.")
]
WithoutTls = Annotated[
    bool, typer.Option("--without-tls", help="Use a scheduler that anybody who can reach it may run code on.")
]


def grade(
    submissions: Submissions = None,
    assignment: Assignment = None,
    jobs: Jobs = 0,
    roster: Roster = None,
    seed: Seed = None,
    db: Db = "",
    scheduler: Scheduler = "",
    without_tls: WithoutTls = False,
    run_all: RunAll = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Grade again on the stored cases, compare the scores, and write nothing.")
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="First rebuild the exercises, as `passlab release` does.")
    ] = False,
    unsafe: Unsafe = False,
    device: Device = "cpu",
    json: Annotated[
        bool, typer.Option("--json", help="Grade one notebook, and print the result as JSON. No gradebook is written.")
    ] = False,
) -> None:
    """Grade a class: run and judge every notebook, write feedback, grades and a report, and show the scores."""
    if json:
        raise typer.Exit(_grade_one(submissions, seed, unsafe, device))
    start = time.perf_counter()
    with _session(
        submissions, assignment, jobs, roster, db, scheduler, without_tls, unsafe, run_all, device, replay, release
    ) as work:
        if replay:
            from autograder.reports import tables

            changes = work.session.replay(work.tasks)
            Console().print(tables.changes(changes) if changes else "Every score is the same as the stored one.")
            raise typer.Exit(1 if changes or work.session.failures else 0)
        run = work.session.recorder.begin(seed)
        before = work.session.grade(work.tasks, run)
        if before:
            Console().print(f"Resumed: {before} submissions had been graded before this run was interrupted.")
        work.publish(run, time.perf_counter() - start, before)


def _grade_one(path: Path | None, seed: int | None, unsafe: bool, device: str) -> int:
    """Print the result of one notebook as JSON. Return 0 if it has all points of the core, 1 for fewer, 2 without."""
    from autograder.authoring.answers import run_seed
    from autograder.grading import single

    try:
        if path is None or not path.is_file():
            raise UnreadableError("Name one notebook: passlab grade --json day03.ipynb.")
        if reason := no_device(device, ""):
            raise UnreadableError(reason)
        _build(release=False, sample_class=False)
        with _grader(1, "", unsafe, False, device) as grader:
            result = single.grade_notebook(path, _known(), grader, run_seed() if seed is None else seed)
    except UnreadableError as error:
        print(single.line({"schema": single.SCHEMA, "error": str(error)}))
        return 2
    print(single.line(result))
    return 0 if result["core"]["points"] >= result["core"]["of"] else 1


def judge(
    answers: Annotated[
        Path | None, typer.Argument(help="A folder with answers: day03.cse.py or day03/cse.py for day03.cse.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task (may be repeated). Default: all.")] = None,
    seed: Seed = None,
    jobs: Jobs = 0,
    unsafe: Unsafe = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Print the tasks themselves instead.")] = False,
) -> None:
    """Judge answers that are Python files on visible and hidden cases, in the sandbox: one line of JSON for each."""
    from autograder.authoring.answers import run_seed
    from autograder.grading import single
    from passlab import exercises

    try:
        chosen = [exercises.find(name).id for name in task] if task else single.tasks()
        answer = single.answers(answers) if answers else {}
    except KeyError as error:
        _fail(error.args[0])
    if prompts:
        for name in chosen:
            print(single.line(single.prompt(name)))
        return
    if answers is None or not answers.is_dir():
        _fail("Name a folder with answers: passlab judge answers. `passlab judge --prompts` prints the tasks.")
    points, most, whole = 0.0, 0.0, 0
    with _grader(jobs, "", unsafe, False, "cpu") as grader:
        days = [name.split(".")[0] for name in chosen if exercises.whole(name) in answer]
        grader.expect(exercises.flavours(dict.fromkeys(days)))
        for row in single.judge_answers(answer, chosen, grader, run_seed() if seed is None else seed):
            print(single.line(row), flush=True)
            points, most, whole = points + row["points"], most + row["of"], whole + (row["points"] >= row["of"])
    Console(stderr=True, highlight=False).print(
        f"{whole} of {len(chosen)} tasks have all points; {points:g} of {most:g} points in all.", markup=False
    )


def regrade(
    submissions: Submissions = None,
    assignment: Assignment = None,
    jobs: Jobs = 0,
    roster: Roster = None,
    seed: Seed = None,
    db: Db = "",
    scheduler: Scheduler = "",
    without_tls: WithoutTls = False,
    run_all: RunAll = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
    unsafe: Unsafe = False,
    device: Device = "cpu",
) -> None:
    """Grade a class again, show the old and new points of every question that changes, and write them if you agree.

    It uses the stored hidden cases, so that only changes to a notebook or a check change a score; --seed draws others.
    """
    start = time.perf_counter()
    with _session(
        submissions, assignment, jobs, roster, db, scheduler, without_tls, unsafe, run_all, device, keep=True
    ) as work:
        from autograder.reports import tables

        run = work.session.recorder.begin(seed)
        changes, papers = work.session.regrade(work.tasks, run, fresh=seed is not None)
        console = Console(width=None if sys.stdout.isatty() else 140)
        console.print(tables.changes(changes) if changes else "No score changes.")
        if papers and not (yes or typer.confirm(f"Write the new scores of {len(papers)} submissions?")):
            console.print("Nothing was written.")
            raise typer.Exit(0)
        work.session.recorder.enter(work.roster.values())
        work.session.record(papers, run)
        work.publish(run, time.perf_counter() - start, 0)


def _place(submissions: Path | None) -> tuple[Path, str]:
    """Return the folder to grade, and the folder for the results, relative to the project."""
    if submissions is None:
        return source.COURSE / samples.FOLDER, os.environ.get("PASSLAB_RUN", SAMPLES_RUN)
    if not submissions.exists():
        _fail(f"{submissions} does not exist. Expected a folder in the layout learner/assignment/notebook.ipynb.")
    return submissions.resolve(), os.environ.get("PASSLAB_RUN", RUN)


@contextlib.contextmanager
def _results(folder: Path, sample: bool = False) -> Iterator[None]:
    """Keep other gradings out of the folder for the results, and see to it that it can be written.

    sample: it is that of the sample class, which is in the project as well.
    """
    named = "Name a folder that you can write, such as PASSLAB_RUN=/home/you/results passlab grade …"
    remedy = "Copy the project to a folder that you can write." if sample else named
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locks.only_grader(folder))
            tempfile.TemporaryFile(dir=folder).close()
        except locks.LockedError as error:
            _fail(str(error))
        except OSError as error:
            _fail(f"The results cannot be written to {folder}: {error.strerror}. {remedy}")
        yield


def _clear(folder: Path) -> None:
    """Remove everything from the folder for the results but its lock."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != locks.LOCK:
            path.unlink()


@contextlib.contextmanager
def _storing() -> Iterator[None]:
    """Turn an error of the disk into a failure that names the file. Raises GradebookError, or StorageError."""
    from autograder.grading.gradebook import unwritten

    try:
        yield
    except OSError as error:
        raise unwritten(error) from None


def _roster(file: Path | None, folder: Path) -> dict[str, Learner]:
    """Return the learners on the roster `file`, otherwise on `roster.csv` in the folder; empty without a roster."""
    from autograder.grading.roster import read_roster

    path = file or folder / "roster.csv"
    if path.is_file():
        try:
            return read_roster(path)
        except UnreadableError as error:
            _fail(f"The roster cannot be read. {error}")
    if file:
        _fail(f"The roster {file} does not exist.")
    return {}


def _whose(learners: dict[str, Learner]) -> tuple[dict[str, str], ...]:
    """Return Canvas's numbers, Moodle's numbers and full names → learner, without those that two learners have."""
    everybody, unique = learners.values(), []
    numbers = [(number, one.id) for one in everybody for number in one.moodle_id.split()]
    names = [(name, one.id) for one in everybody for name in {one.name, one.id}]
    for pairs in ([(one.canvas_id, one.id) for one in everybody], numbers, names):
        often = Counter(key for key, _ in pairs)
        unique.append({key: learner for key, learner in pairs if key and often[key] == 1})
    # Same name but another Moodle number: a different person.
    unique[2] = {name: learner for name, learner in unique[2].items() if not learners[learner].moodle_id}
    return tuple(unique)


def _set_aside(classwork: ClassWork, learners: dict[str, Learner]) -> None:
    """Remove the submissions of learners who are not on the roster, if there is one, and note their names."""
    for key in [key for key in classwork.submissions if learners and key[0] not in learners]:
        classwork.submissions.pop(key)
        classwork.note(key[0], f"{key[1]}: not graded, because this learner is not on the roster.")


def no_device(device: str, scheduler: str) -> str:
    """Return why graphs cannot be compared on a device, with the remedy, or ""."""
    if device == "cpu":
        return ""
    if device != "cuda":
        return f"There is no device {device!r}. Expected cpu or cuda."
    if scheduler:
        return "--device cuda goes with a GPU of this machine, and --scheduler with others. Leave one of them out."
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking whether there is a GPU must not initialize it
    import torch

    if torch.version.cuda is None:
        version = torch.__version__
        return f"--device cuda needs a torch with CUDA; this one is {version}. Install one, or leave --device out."
    if not torch.cuda.is_available():
        return "--device cuda needs an NVIDIA GPU, and torch finds none here: does nvidia-smi? Or leave --device out."
    return ""


def _grader(jobs: int, scheduler: str, unsafe: bool, without_tls: bool, device: str) -> Engine | Cluster:
    from autograder.engine import engine
    from autograder.grading import cluster

    try:
        if scheduler:
            return cluster.Cluster(scheduler, unsafe, without_tls)
        return engine.Engine(jobs, unsafe, device)
    except cluster.ClusterError as error:
        _fail(str(error))
    except engine.UnsafeSandboxError as error:
        _fail(f"{error} Untrusted code is not graded without it. If you trust these submissions, use --unsafe.")


class Work:
    """A class that is being graded: its submissions, the folder for the results, and the grading session."""

    def __init__(self, classwork: ClassWork, roster: dict[str, Learner], chosen: list[str], known: dict, run: str):
        self.classwork, self.roster, self.chosen, self.known, self.run = classwork, roster, chosen, known, run
        self.submissions = {key: s for key, s in classwork.submissions.items() if key[1] in chosen}
        self.session: Session

    @property
    def tasks(self) -> list[Submission]:
        return list(self.submissions.values())

    def publish(self, run: Run, seconds: float, before: int) -> None:
        """Write grades and the report, and print the table.

        Exit with 1 if a submission could not be recorded, or if none could be graded. Raises GradebookError if the
        files cannot be written, and StorageError if the gradebook cannot be read.
        """
        from autograder.engine import sandbox
        from autograder.grading.extra import ExtraCredit
        from autograder.reports import activity, exports, tables
        from autograder.reports.report import Facts, report
        from autograder.reports.similar import similar

        session, folder = self.session, source.COURSE / self.run
        scores = session.recorder.scores()
        rows = exports.rows(scores)
        penalties, credit = session.recorder.penalties(), ExtraCredit(config=session.recorder.config)
        with _storing():
            exports.write_grades(folder / "grades.csv", rows, without := self.without_grade(rows))
            notes = exports.write_canvas(folder / "canvas.csv", rows, self.roster, penalties, credit)
            notes += exports.write_moodle(folder / "moodle.csv", rows, self.roster, penalties, credit)
        failures = session.failures
        facts = Facts(
            when=f"{datetime.now():%Y-%m-%d %H:%M}",
            seed=run.seed,
            seconds=seconds,
            graded=len(self.submissions) - before - len(failures),
            workers=f"{session.grader.jobs} at once",
            layers=sandbox.layers(),
            unsafe=session.grader.unsafe,
            notes=self._notes(notes),
            unread=self._unread(without),
            similar=similar(session.answers, tables.no_evidence(self.chosen)),
            tries=session.recorder.tries(),
            activity=activity.load(folder / activity.ACTIVITY),
        )
        page = report(rows, session.recorder.results(), facts)
        with _storing():
            exports.write_text(folder / "report.html", page)
        unrecorded = "recorded" in session.missed.values()
        if not unrecorded and (session.recorded or not session.missed):
            session.recorder.finish(run)  # only now that the files exist: a killed run resumes and writes them
        tables.show(self.classwork, self.submissions, scores, failures, self.chosen, self.known)
        self._tail(seconds, facts.layers)
        if unrecorded or len(failures) == len(self.submissions) or any(not s.notebooks for s in self.tasks):
            raise typer.Exit(1)

    def without_grade(self, rows: Sequence[Row]) -> list[tuple[str, str, str]]:
        """Return learner, assignment and the reason, for everybody on the roster and for whom there is work."""
        graded, failures = {(row.learner, row.assignment) for row in rows}, self.session.failures
        learners = {*self.roster, *(learner for learner, _ in self.submissions)}
        keys = [(learner, assignment) for assignment in self.chosen for learner in sorted(learners)]
        return [(*key, failures.get(key, ABSENT)) for key in keys if key not in graded]

    def _unread(self, without: Sequence[tuple[str, str, str]]) -> list[tuple[str, str]]:
        """Return (learner, sentence) for what could not be graded, and for learners without a notebook of an assignment
        that others handed in."""
        failures, absent = self.session.failures, defaultdict(list)
        handed_in = {assignment for _, assignment in self.submissions}
        for learner, assignment, _ in without:
            if assignment in handed_in and (learner, assignment) not in failures:
                absent[learner].append(assignment)
        problems = [(learner, f"{assignment}: {reason}") for (learner, assignment), reason in failures.items()]
        return sorted([*problems, *((learner, f"{', '.join(days)}: {ABSENT}.") for learner, days in absent.items())])

    def _notes(self, exported: Sequence[str]) -> dict[str, list[str]]:
        """Return learner ("" for the class) → all that is to tell of them and of their submissions."""
        sentences_of = {name: list(sentences) for name, sentences in self.classwork.notes.items()}
        for (learner, assignment), submission in self.submissions.items():
            if submission.notes and (learner, assignment) not in self.session.failures:
                sentences_of.setdefault(learner, []).extend(f"{assignment}: {note}" for note in submission.notes)
        sentences_of.setdefault("", []).extend(exported)
        return sentences_of

    def _learners(self) -> str:
        """Return how many learners were graded, and who was not."""
        missed = self.session.missed
        handed_in = {learner for learner, _ in self.submissions}
        graded = {learner for learner, assignment in self.submissions if (learner, assignment) not in missed}
        everybody = {*self.roster, *handed_in, *filter(None, self.classwork.notes)}
        absent = sorted(everybody - graded)
        some = ", ".join(
            f"{name} ({'not graded' if name in handed_in else 'nothing to grade'})" for name in absent[:10]
        )
        remainder = f" and {len(absent) - 10} more, named in the report" if len(absent) > 10 else ""
        return f"{len(graded)} of {len(everybody)} learners" + (f"; not {some}{remainder}" if absent else "")

    def _tail(self, seconds: float, layers: Sequence[Layer]) -> None:
        from passlab.judge.words import listed

        console = Console(soft_wrap=True, highlight=False)
        handed_in, missed, run = len(self.submissions), self.session.missed, self.run
        reasons = ", ".join(f"{n} could not be {verb}" for verb, n in sorted(Counter(missed.values()).items()))
        graded = f"{handed_in - len(missed)} of {handed_in} submissions{f' ({reasons})' if reasons else ''}"
        console.print(f"Graded {graded} in {seconds:.0f} s: {self._learners()}.", markup=False)
        console.print(f"Report:   {run}/report.html", markup=False)
        console.print(f"Grades:   {run}/grades.csv (and canvas.csv, moodle.csv for import)", markup=False)
        console.print(f"Feedback: {run}/feedback/<learner>/<assignment>/<notebook>.html", markup=False)
        if self.run != RUN:
            console.print(f"In formgrader: PASSLAB_RUN={shlex.quote(run)} make lab", markup=False)
        if "recorded" in missed.values():
            console.print(f"Not everything is recorded. {RESUME}", markup=False)
        if self.session.grader.unsafe:
            lacking = listed([f"“{layer.name}”" for layer in layers if layer.needed and not layer.holds])
            console.print(
                f"WARNING: graded with --unsafe, without the whole sandbox{f' ({lacking})' if lacking else ''}. "
                "Learners' code was not kept from this machine and its files: it could read hidden cases and other "
                "learners' work, and change grades. Every page says so, too.",
                markup=False,
            )


def _unusable_path() -> str:
    """Return why the project or the course cannot be where it is, or ""."""
    for path in (source.ROOT, source.COURSE):
        if ":" in str(path):
            return (
                f"The path {path} contains a colon, which separates folders in Python's search path. Rename the "
                "folder, or move the project."
            )
    return ""


def _chosen(assignments: list[str] | None, known: Collection[str]) -> list[str]:
    """Return the assignments to grade, all if none is named."""
    chosen = assignments or sorted(known)
    if unknown := [name for name in chosen if name not in known]:
        _fail(f"There is no assignment {', '.join(unknown)}. Expected one of {', '.join(sorted(known))}.")
    return chosen


def _build(release: bool, sample_class: bool) -> None:
    """Build the exercises, for a release or where a new clone lacks them; and the sample class."""
    from autograder.authoring import notebooks

    if release:
        _print_written(notebooks.build(lessons=False))
    elif not built.sources(source.COURSE):  # a new clone
        notebooks.build(lessons=False)
    if sample_class:
        try:
            samples.build()
        except OSError as error:
            _fail(f"The sample class cannot be written: {error}. Copy the project to a folder that you can write.")


@contextlib.contextmanager
def _session(
    submissions,
    assignment,
    jobs,
    roster,
    db,
    scheduler,
    without_tls,
    unsafe,
    run_all,
    device,
    keep,
    release=False,
) -> Iterator[Work]:
    """Provide everything that grading needs, from the submissions to a gradebook that contains the release.

    Processes start in the background, and meanwhile files are written and read.
    """
    from passlab import exercises
    from passlab.notebook.workspace import writable_home

    if reason := no_device(device, scheduler) or _unusable_path():
        _fail(reason)
    folder, run = _place(submissions)
    fresh = submissions is None and "PASSLAB_RUN" not in os.environ and not keep
    os.environ["PASSLAB_RUN"] = run
    if db:
        os.environ["PASSLAB_DB"] = db
    known = _known()
    chosen = _chosen(assignment, known)
    writable_home()
    with (
        _results(source.COURSE / run, submissions is None),
        tempfile.TemporaryDirectory(prefix="passlab-") as scratch,
        _grader(jobs, scheduler, unsafe, without_tls, device) as grader,
    ):
        if fresh:  # the sample class gets a new gradebook every time
            _clear(source.COURSE / run)
        if submissions is None:
            grader.expect(exercises.flavours(chosen))
        _build(release, sample_class=submissions is None)
        learners = _roster(roster, folder)
        try:
            classwork = collect(folder, known, Path(scratch), *_whose(learners))
        except UnreadableError as error:
            _fail(str(error))
        _set_aside(classwork, learners)
        share(classwork, {one.id: one.group for one in learners.values()})
        work = Work(classwork, learners, chosen, known, run)
        if not work.submissions and not classwork.notes:
            _fail(
                f"{folder} contains no submission. Expected the layout learner/assignment/notebook.ipynb, "
                "for example ada/day01/graphs.ipynb."
            )
        assignments = sorted({s.assignment for s in work.tasks})
        if submissions is not None:
            grader.expect(exercises.flavours(assignments))

        # These import nbgrader, which takes a while.
        from autograder.grading.class_run import Session
        from autograder.grading.gradebook import GradebookError
        from autograder.reports.feedback import draft
        from autograder.reports.lessons import Lessons

        try:
            with _gradebook(assignments) as recorder, _bar(work) as advance:
                page = partial(draft, lessons=Lessons(config=recorder.config))
                work.session = Session(recorder, grader, source.COURSE / run / "submitted", page, advance, run_all)
                if not keep:  # a replay writes nothing, and a regrade only when told to
                    recorder.enter(learners.values())
                yield work
        except GradebookError as error:
            recorded = f"What is recorded stays: {work.session.recorded} of {len(work.submissions)} submissions."
            _fail(f"Grading stopped. {error} {recorded} {RESUME}")


@contextlib.contextmanager
def _gradebook(assignments: list[str]):
    """Provide a recorder whose gradebook contains the questions of these assignments."""
    from autograder.authoring import notebooks
    from autograder.grading.gradebook import GradebookError, StorageError, enter_release, place
    from autograder.grading.recorder import Recorder

    if stale := notebooks.stale_solutions(assignments):
        _fail(f"{', '.join(stale)}: not built from the .py file of the same name. Run `passlab release` first.")
    try:
        config = source.settings()
        recorder = Recorder(config)
    except StorageError as error:
        _fail(f"{error} Nothing was graded. {RESUME}")
    except (GradebookError, ValueError) as error:
        _fail(str(error))
    with recorder:
        try:
            enter_release(config, assignments)
        except StorageError as error:
            _fail(f"The questions cannot be entered into the gradebook. {error} Nothing was graded. {RESUME}")
        except GradebookError as error:
            _fail(
                f"The questions cannot be entered into the gradebook: {error}. If the notebooks have changed "
                f"since the class was last graded, move {place(config)} away and grade again."
            )
        yield recorder


@contextlib.contextmanager
def _bar(work: Work):
    """Show a progress bar on a terminal, and print a line for each graded submission."""
    from autograder.reports import tables

    terminal = Console(stderr=True)
    columns = (TextColumn("Grading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("", total=len(work.submissions))

        def advance(paper: GradedSubmission | None) -> None:
            bar.advance(task)
            if paper is not None:
                above = bar.console if terminal.is_terminal and sys.stdout.isatty() else Console()
                above.print(tables.line(paper), markup=False, highlight=False, soft_wrap=True)
                sys.stdout.flush()

        yield advance


def due(
    assignment: Annotated[str, typer.Argument(help="An assignment: day03.")],
    time: Annotated[str, typer.Argument(help="Its due date: '2027-03-01 23:59 UTC'.")],
    db: Annotated[str, typer.Option(help="The gradebook's database. Default: SQLite in autograder/run.")] = "",
) -> None:
    """Set the due date of an assignment."""
    from autograder.grading.paper import when

    parsed = when(time)
    if parsed is None:
        _fail(f"{time!r} is not a time such as '2027-03-01 23:59 UTC'.")
    with _recorder(assignment, db) as recorder:
        recorder.set_due(assignment, parsed)
    _say(f"{assignment} is due {parsed:%Y-%m-%d %H:%M} UTC. What is late is counted when it is graded.")


def extend(
    assignment: Annotated[str, typer.Argument(help="An assignment: day03.")],
    learner: Annotated[str, typer.Argument(help="A learner's id.")],
    days: Annotated[float, typer.Argument(help="How many days more; 0 takes an extension back.")],
    db: Annotated[str, typer.Option(help="The gradebook's database. Default: SQLite in autograder/run.")] = "",
) -> None:
    """Give one learner more time than the due date says, before or after something was handed in."""
    if not 0 <= days <= 3650:
        _fail(f"An extension is 0 days or more, and at most ten years; got {days:g}.")
    with _recorder(assignment, db) as recorder:
        handed_in = recorder.extend(assignment, learner, days)
    effect = "Grade again, and it counts" if handed_in else f"Nothing of {learner}'s is graded yet: it will count then"
    _say(f"{learner} has {days:g} {'day' if days == 1 else 'days'} more for {assignment}. {effect}.")


@contextlib.contextmanager
def _recorder(assignment: str, db: str) -> Iterator[Recorder]:
    """Provide the gradebook, for a command about one assignment."""
    from autograder.grading.gradebook import GradebookError
    from autograder.grading.recorder import Recorder

    _chosen([assignment], _known())
    os.environ.setdefault("PASSLAB_RUN", RUN)
    if db:
        os.environ["PASSLAB_DB"] = db
    try:
        with Recorder(source.settings()) as recorder:
            yield recorder
    except (GradebookError, ValueError) as error:
        _fail(str(error))


def _say(sentence: str) -> None:
    Console(soft_wrap=True, highlight=False).print(sentence, markup=False)


def leaderboard(
    submissions: Annotated[
        Path | None, typer.Argument(help="The class, as for `passlab grade`. Default: the one that was graded last.")
    ] = None,
    exercise: Annotated[str, typer.Option(help="The exercise whose answers are compilers.")] = "day12.compiler",
    names: Annotated[bool, typer.Option("--names", help="Show learners' ids instead of pseudonyms.")] = False,
    withdraw: Annotated[list[str] | None, typer.Option(help="A learner who takes part no more (repeatable).")] = None,
    readmit: Annotated[list[str] | None, typer.Option(help="A learner who takes part again (repeatable).")] = None,
    without: Annotated[list[str] | None, typer.Option(help="A baseline to leave out, such as torch.compile.")] = None,
    repeats: Annotated[int, typer.Option(min=2, help="The rounds in which each competitor has a turn.")] = 25,
    draws: Annotated[int, typer.Option(min=1, help="How often the hidden models are drawn, from seeds in a row.")] = 2,
    seed: Seed = None,
    db: Db = "",
    unsafe: Unsafe = False,
    device: Annotated[
        str, typer.Option(help="Where programs run: cpu, or cuda on a machine with an NVIDIA GPU.")
    ] = "cpu",
) -> None:
    """Run the compilers of a graded class again on its hidden models, measure them by turns, and write a page.

    The models are those of the class's last grading, from its stored seed.
    """
    from autograder.engine.engine import Engine, UnsafeSandboxError
    from autograder.engine.timing import ModelTimer, TimingError
    from autograder.grading import entries
    from autograder.reports import leaderboard as boards
    from passlab import exercises

    try:
        day, question = exercises.find(exercise).id.split(".")
    except KeyError as error:
        _fail(str(error.args[0]))
    if reason := no_device(device, ""):
        _fail(reason)
    run = os.environ.setdefault("PASSLAB_RUN", RUN)
    if db:
        os.environ["PASSLAB_DB"] = db
    folder = source.COURSE / run
    graded = submissions.resolve() if submissions else folder / "submitted"
    if not graded.exists():
        _fail(f"{graded} does not exist: grade the class first (`passlab grade path`).")
    console = Console(soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="passlab-") as scratch:
        classwork = collect(graded, _known(), Path(scratch))
        tasks = [one for (_, assignment), one in sorted(classwork.submissions.items()) if assignment == day]
        with _results(folder), _gradebook([day]) as recorder:
            handed_in, late, last = recorder.entries(day, question)
        if not tasks and not handed_in:
            _fail(f"{graded} contains no submission of {day}.")
        seed = last if seed is None else seed
        if seed is None:
            _fail(f"{day} has not been graded yet, so there is no stored seed: `passlab grade path`, or --seed.")
        try:
            records = entries.load(folder / "leaderboard.private.json")
            records.withdrawn = sorted({*records.withdrawn, *(withdraw or ())} - {*(readmit or ())})
            racing = [one for one in tasks if one.learner not in records.withdrawn]
            with Engine(1, unsafe, device) as engine:
                console.print(f"Running {len(racing)} compilers.", markup=False)
                board = entries.collect(racing, engine, exercise, range(seed, seed + draws))
            with ModelTimer(unsafe, repeats, tuple(without or ()), device) as race:
                entries.race(board, race, lambda model: console.print(f"Measured {model}.", markup=False))
        except (UnsafeSandboxError, TimingError, ValueError) as error:
            _fail(str(error))
    when = f"{datetime.now():%Y-%m-%d %H:%M}"
    standings = boards.standings(board, records, handed_in, late, when, names)
    about = boards.About(exercise, when, device if device != "cpu" else "", names, unsafe)
    for name, text in (("html", boards.page), ("json", boards.data)):
        (folder / f"leaderboard.{name}").write_text(text(standings, board.baselines, about), encoding="utf-8")
    entries.save(folder / "leaderboard.private.json", records)
    for one in standings:
        figure = f"{one.speedup:.2f} × as fast as eager" if one.speedup else one.why
        console.print(f"{one.rank or one.state:>9}  {one.name}: {figure}", markup=False)
    console.print(f"Leaderboard: {run}/leaderboard.html (and leaderboard.json)", markup=False)


def prove(
    exercise: Annotated[list[str] | None, typer.Option(help="Only this exercise (may be repeated).")] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only exercises and notebooks that have changed since their last proof.")
    ] = False,
    notebooks: Annotated[
        bool, typer.Option("--notebooks", help="Run every lesson and every solution from a fresh kernel, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    jobs: Annotated[int, typer.Option(help="Number of exercises proved at the same time; 0: one per core.")] = 0,
    seed: Annotated[int, typer.Option(help="The seed of the hidden cases.")] = 0,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from this one on, that right answers must pass.")] = 1,
    mutants: Annotated[int, typer.Option(help="Number of small changes of each reference to try instead.")] = 0,
) -> None:
    """Prove the checks: reference, stub, wrong and alternative answers must each get the expected points.

    What holds is written into autograder/ledger.json, which `make test` compares with the files as they are.
    """
    if mutants:
        from autograder.authoring import mutants as mutating

        raise typer.Exit(mutating.main(exercise or [], json, jobs, mutants, range(seed, seed + max(seeds, 3))))
    from autograder.proofs import command

    raise typer.Exit(command.main(exercise or [], stale, notebooks, json, jobs, seed, seeds))


def new(
    exercise: Annotated[str, typer.Argument(help="Its id: a day and a name, such as day03.strength-reduction.")],
    like: Annotated[
        str,
        typer.Option(
            help="An exercise of its kind: day03.cse for FX, day07.cse Relay, day08.port Relax, day09.patterns MLIR."
        ),
    ] = "",
    title: Annotated[str, typer.Option(help="Its title. Default: its name.")] = "",
    stretch: Annotated[bool, typer.Option("--stretch", help="It goes beyond the core; its points are extra.")] = False,
) -> None:
    """Write the files of a new exercise: a small one that works, to be changed piece by piece."""
    from autograder.authoring import new as making

    try:
        paths = making.write(exercise, like, title, stretch)
    except (ValueError, KeyError) as error:
        _fail(str(error.args[0]))
    console = Console(soft_wrap=True, highlight=False)
    for path in paths:
        console.print(f"wrote {path.relative_to(source.COURSE)}", markup=False)
    console.print("Still missing:", *(f"- {line}" for line in making.remaining_steps()), sep="\n", markup=False)
    console.print(f"Try it: passlab prove --exercise {exercise}", markup=False)


def cluster(
    scheduler: Annotated[
        str, typer.Argument(help="Start a worker of this scheduler. Default: start a scheduler.")
    ] = "",
    port: Annotated[int, typer.Option(help="The port of the scheduler.")] = 8786,
    threads: Annotated[int, typer.Option(help="How many notebooks a worker grades at once; 0: one per core.")] = 0,
) -> None:
    """Start this machine's part of a cluster for grading, the scheduler or a worker; both ends show a certificate."""
    from autograder.grading import cluster as clusters

    try:
        words = clusters.command(scheduler, threads or os.cpu_count() or 1, port)
    except clusters.ClusterError as error:
        _fail(str(error))
    if not scheduler:
        address = f"tls://{socket.getfqdn()}:{port}"
        Console().print(
            f"On each other machine: set the project up in a folder, copy {clusters.CERTIFICATE} into it, and run\n"
            f"    passlab cluster {address}\nThen here, in another terminal: passlab grade path --scheduler {address}",
            soft_wrap=True,
            highlight=False,
        )
    os.chdir(source.ROOT)
    os.execv(words[0], words)
