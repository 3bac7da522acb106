"""Where the attacks take place: a small course, a class of all attacks and three honest learners, graded in one run.

What can be seen from outside is noted before and after: files, the gradebook, processes, what came over the network.
"""

from __future__ import annotations

import contextlib
import csv
import os
import re
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from autograder.grading import intake
from autograder.reports.exports import harmless
from autograder.toys import tiny, tiny_fx
from tests.attacks.attack import GOOD, MARK, Attack, Place

#: They hand in the reference answers; one has been graded the day before.
HONEST = ("aa-before", "m-between", "zz-after")
YESTERDAY = "yesterday"
SEED = 7

#: Time limits for a course whose cells take milliseconds: file → (text there, text instead).
_SHORT = {
    "autograder/engine/engine.py": ("CELL_SECONDS = 30.0", "CELL_SECONDS = 2.0"),
    "autograder/engine/verifier/process.py": ("MOST_SECONDS = 30", "MOST_SECONDS = 2"),
    "autograder/engine/graphs.py": ("cpu_s=20", "cpu_s=2"),
}
#: Where an attack may have left a file called by its mark.
_ELSEWHERE = {"/", "/tmp", "/dev", "/run", "/etc", "/opt", "/srv", "/mnt", "/media", "/boot", "/home"}
_ELSEWHERE |= {"/var/tmp", "/var/spool/cron", "/dev/shm", "/etc/cron.d", "/usr/lib", "/usr/local/bin"}


@dataclass
class Field:
    """The course after the run. `learner`: an attack's name → what the grader calls it, for those that were found."""

    course: Path
    attacks: dict[str, Attack]
    learner: dict[str, str] = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)
    seconds: float = 0.0
    printed: str = ""
    changed: list[str] = field(default_factory=list)
    arrived: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    yesterday: tuple = ((), ())

    def points(self, learner: str) -> float:
        return sum(float(row["points"] or 0) for row in self.rows if row["learner"] == learner)

    def got(self, name: str) -> float:
        return self.points(self.learner.get(name, name))

    def pages(self, name: str) -> Iterator[tuple[str, str]]:
        """What its learner can look at afterwards: feedback, and what the cells that are not checked have shown."""
        run, learner = self.course / "autograder/run", self.learner.get(name, name)
        for path in (run / "feedback" / learner).rglob("*.html"):
            yield path.name, path.read_text(encoding="utf-8")
        for path in (run / "autograded" / learner).rglob("*.ipynb"):
            for cell in nbformat.read(path, as_version=4).cells:
                if not cell.metadata.get("nbgrader", {}).get("grade"):
                    yield f"{path.name}, cell {cell.id}", str(cell.get("outputs", ""))

    def outcome(self, name: str) -> str:
        """What came of an attack, in a line: what was said where it did not hold back."""
        if name not in self.learner or not any(row["learner"] == self.learner[name] for row in self.rows):
            return "not graded"
        message = [row["message"] for row in self.rows if row["learner"] == self.learner[name]]
        sentence = [text for text in message if text and "Not written yet" not in text]
        return re.sub(r"\s+", " ", sentence[0])[:100] if sentence else "as if nothing had been tried"


def prepare(folder: Path, attacks: dict[str, Attack]) -> Field:
    """The course, with everybody's submissions."""
    course = tiny_fx.make(folder)
    for name, (old, new) in _SHORT.items():
        text = (course / name).read_text()
        assert old in text, f"{name} has no {old!r} any more"
        (course / name).write_text(text.replace(old, new))
    built = tiny.run(course, "-m", "autograder.authoring.notebooks")
    assert built.returncode == 0, built.stderr
    (folder.parent / "home").mkdir()
    tiny_fx.submission(course, YESTERDAY, GOOD, course / "earlier")
    for learner in HONEST:
        tiny_fx.submission(course, learner, GOOD)
    return Field(course, attacks)


def hand_in(ground: Field, port: int) -> None:
    """Write every attack's submission."""
    submissions = ground.course / "class"
    words = {
        "@COURSE@": str(ground.course),
        "@CLASS@": str(submissions),
        "@HOME@": str(ground.course.parent / "home"),
        "@PORT@": str(port),
        "@PID@": str(os.getpid()),
        "@PIDNS@": os.readlink("/proc/self/ns/pid"),
    }
    for attack in ground.attacks.values():
        cells = {
            name: re.sub("|".join(words), lambda item: words[item[0]], text) for name, text in attack.cells.items()
        }
        path = tiny_fx.submission(ground.course, attack.name, cells)
        if attack.notebook:
            value = attack.notebook(nbformat.read(path, as_version=4))
            path.write_bytes(value if isinstance(value, bytes) else nbformat.writes(value).encode())
        if attack.folder:
            attack.folder(Place(ground.course, submissions, path.parents[1]))


def names(ground: Field, folder: Path) -> dict[str, str]:
    """An attack's name → the learner that its submission is taken for. (Some rename their folder.)"""
    folder.mkdir()
    result = intake.collect(ground.course / "class", {tiny_fx.DAY: {tiny_fx.NOTEBOOK}}, folder)
    values = {
        s.notebooks[tiny_fx.NOTEBOOK].parents[1].name: s.learner for s in result.submissions.values() if s.notebooks
    }
    renamed = [folder for folder in values if folder not in ground.attacks and folder not in HONEST]
    known = {name: name for name in ground.attacks if any(s.learner == name for s in result.submissions.values())}
    known |= {name: values[name] for name in ground.attacks if name in values}
    strange = {attack.name: attack.renames for attack in ground.attacks.values() if attack.renames}
    return known | {name: values[folder] for name, folder in strange.items() if folder in renamed}


def grade(ground: Field, folder: str, timeout: float) -> str:
    """Grade a folder of submissions as an instructor would; return what was printed."""
    env = tiny.environment(ground.course) | {"HOME": str(ground.course.parent / "home"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "passlab.cli", "grade", folder, "--seed", str(SEED), "--jobs", "2"]
    done = subprocess.run(command, cwd=ground.course, env=env, capture_output=True, text=True, timeout=timeout)
    assert "Graded" in done.stdout, done.stdout + done.stderr
    return done.stdout + done.stderr


def run(folder: Path, attacks: dict[str, Attack], timeout: float = 900) -> Field:
    """Everything: yesterday's grading, the class, and what can be seen of it afterwards."""
    ground = prepare(folder, attacks)
    grade(ground, "earlier", 120)
    before = _of(ground, YESTERDAY)
    with listening(ground) as port:
        hand_in(ground, port)
        ground.learner = names(ground, folder.parent / "unpacked")
        files = _files(ground.course)
        start = time.monotonic()
        ground.printed = grade(ground, "class", timeout)
        ground.seconds = time.monotonic() - start
    ground.left = _processes(ground.course)
    after = _files(ground.course)
    changed = sorted(str(path) for path in {*files, *after} if files.get(path) != after.get(path))
    ground.changed = changed + _marked(ground)
    ground.yesterday = (before, _of(ground, YESTERDAY))
    with (ground.course / "autograder/run/grades.csv").open(newline="", encoding="utf-8") as lines:
        ground.rows = list(csv.DictReader(lines))
    written = {harmless(learner): learner for learner in ground.learner.values()}  # as a spreadsheet may have it
    for row in ground.rows:
        row["learner"] = written.get(row["learner"], row["learner"])
    return ground


@contextlib.contextmanager
def listening(ground: Field) -> Iterator[int]:
    """Ears for whoever calls: TCP and UDP on a port of this machine, and an abstract socket."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind(f"\0{MARK}-{port}")
            unix.listen()
            yield port
            for name, sock, ask in (("TCP", tcp, "accept"), ("UDP", udp, "recvfrom"), ("abstract", unix, "accept")):
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    getattr(sock, ask)(*((100,) if ask == "recvfrom" else ()))
                    ground.arrived.append(name)


def _files(course: Path) -> dict[Path, tuple]:
    """Size and time of every file that grading has no business with: the course, the class, Python's packages."""
    results = {}
    for top in (course, course.parent / "home", Path(sysconfig.get_path("purelib"))):
        for folder, below, inside in os.walk(top):
            if Path(folder) == course / "autograder":
                below.remove("run")
            below[:] = [name for name in below if name not in ("__pycache__", ".cache")]
            for name in inside:
                path = Path(folder, name)
                state = path.lstat()
                results[path] = (state.st_size, state.st_mtime_ns, state.st_mode, state.st_nlink)
    return results


def _marked(ground: Field) -> list[str]:
    """Files that carry the attacks' mark where no attack may write."""
    tops = [*map(Path, _ELSEWHERE), Path.home(), tiny.ROOT]
    outside = [path for top in tops if top.is_dir() for path in top.glob(f"*{MARK}*")]
    inside = [p for p in ground.course.rglob("*.pyc") if f"# {MARK}".encode() in p.read_bytes()]
    return sorted(map(str, [*outside, *inside]))


def _of(ground: Field, learner: str) -> tuple:
    """All that is stored of a learner: rows of the gradebook, bytes of files. And the triggers that there are."""
    run = ground.course / "autograder/run"
    with contextlib.closing(sqlite3.connect(run / "gradebook.db")) as book:
        rows = book.execute(
            "select grade.* from grade join submitted_notebook on grade.notebook_id = submitted_notebook.id "
            "join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id "
            "where submitted_assignment.student_id = ? order by grade.id",
            (learner,),
        ).fetchall()
        triggers = book.execute("select name from sqlite_master where type = 'trigger'").fetchall()
    files = {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file() and learner in p.parts}
    return rows, triggers, files


def _processes(course: Path) -> list[str]:
    """Processes that came from this grading: they carry its folder, or the attacks' mark."""
    time.sleep(0.5)  # what has been killed needs a moment to be gone
    marks, result = (str(course).encode(), MARK.encode()), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                command, environment = ((entry / name).read_bytes() for name in ("cmdline", "environ"))
                if any(mark in command + environment for mark in marks):
                    result.append(f"{entry.name}: {command[:200]!r}")
    return result
