"""Take in submissions: find notebooks in the submitted folders, and restore locked and missing cells.

Nothing here changes a submitted file or runs learner code.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from stat import S_ISDIR

import nbformat
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_output

from autograder.authoring.source import HIDDEN_TESTS, RUBRIC
from autograder.engine import aside
from autograder.engine.data import Cell, Job, NotebookResult, Ran, Verdict
from autograder.grading import files
from autograder.grading.files import Damaged, read_text
from autograder.grading.reading import read
from passlab.notebook.cells import check_call

__all__ = ["Class", "Damaged", "Submission", "collect", "fill", "job", "read", "read_text", "repair"]

#: The file with the time of submission, which nbgrader writes into learner/assignment/ when it collects.
TIMESTAMP = "timestamp.txt"
#: Marks the grader's verdict in a check cell's outputs.
VERDICT = "application/vnd.passlab.verdict+json"

#: The most archives of one learner that are unpacked, and the most sentences about one learner.
MAX_ARCHIVES = 20
MAX_NOTES = 50

#: Characters that nbgrader reads as a pattern, and those that end a text in formgrader's pages, which escape nothing.
_PATTERN = str.maketrans({"[": "(", "]": ")", **dict.fromkeys('*?<>"&\\', "_")})
_LITTER = {"__MACOSX", "__pycache__", "node_modules"}
#: Jupyter's folder of older versions, which nobody means to hand in; other hidden folders with notebooks are named.
CHECKPOINTS = ".ipynb_checkpoints"
LEFT_OUT = "was left out, since its name begins with a dot: rename the folder to have it graded."
_ARCHIVES = (".zip", ".tar.gz", ".tgz")
#: How the names of files end that are unpacked of the archive of a class.
_HANDED_IN = (".ipynb", ".zip", TIMESTAMP, "roster.csv")
#: Canvas's names of submitted files: lovelaceada_12345_67890_graphs.ipynb, with _LATE after the learner's name if late.
_CANVAS = re.compile(r"(?P<who>[^_]+)_(?:LATE_)?(?P<number>\d+)_\d+_(?P<file>.+\.(?:ipynb|zip))")
#: Moodle's names of learners' folders: Ada Lovelace_12345_assignsubmission_file.
_MOODLE = re.compile(r"(?P<who>.+)_(?P<number>\d+)_assignsubmission_(?P<what>file|onlinetext)_?")


@dataclass
class Submission:
    """A learner's submission for one assignment: its notebooks by name, and notes for the report.

    `times`: the files with the times at which it was collected; never one that the learner may have packed.
    """

    learner: str
    assignment: str
    notebooks: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    times: list[Path] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        _note(self.notes, sentence)


def _note(notes: list[str], sentence: str) -> None:
    """Add a sentence that is not there yet, cut to a readable length. A learner chooses how many there would be."""
    sentence = sentence if len(sentence) <= 1_000 else f"{sentence[:1_000]}…"
    if len(notes) < MAX_NOTES and sentence not in notes:
        notes.append(sentence)
    elif len(notes) == MAX_NOTES:
        notes.append(f"There is more to tell; only the first {MAX_NOTES} sentences are kept.")


@dataclass
class Class:
    """Everything found in a folder of submissions. `notes`: learner ("" for the whole class) → sentences."""

    submissions: dict[tuple[str, str], Submission] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def note(self, learner: str, sentence: str) -> None:
        _note(self.notes.setdefault(learner, []), sentence)

    @contextlib.contextmanager
    def only(self, learner: str) -> Iterator[None]:
        """Note whatever goes wrong inside as this learner's, and go on with the class."""
        try:
            yield
        except Exception as error:
            self.note(learner, f"Not everything could be read ({type(error).__name__}: {files.printable(str(error))}).")


def _folders(path: Path) -> list[Path]:
    return sorted(
        p
        for p in path.iterdir()
        if p.is_dir() and not p.is_symlink() and not p.name.startswith(".") and p.name not in _LITTER
    )


def _handed_in(path: Path) -> list[Path]:
    """Return the notebooks and zip archives below a folder, the shallowest first. Links are not followed."""
    found = files.walk(path, lambda inside: inside.name.startswith(".") or inside.name in _LITTER)
    names = [one.path for one in found if one.path.name.endswith((".ipynb", ".zip")) and not S_ISDIR(one.about.st_mode)]
    return [path / name for name in sorted(names, key=lambda name: (len(name.parts), name))]


def _left_out(path: Path) -> list[str]:
    """Return the folders in a folder that hold work and are left out, since their names begin with a dot."""
    with os.scandir(path) as entries:
        hidden = [one for one in islice(entries, files.ENTRIES) if one.name.startswith(".") and one.name != CHECKPOINTS]
        return sorted(one.name for one in hidden if one.is_dir(follow_symlinks=False) and _handed_in(Path(one.path)))


def _class_folder(path: Path, known: dict[str, set[str]], found: Class) -> Path:
    """Return the folder with the learners: `path`, or the only folder in it, if unpacking added a level."""
    while True:
        inside = _folders(path)
        if len(inside) != 1 or any(p.suffix == ".ipynb" for p in path.iterdir()):
            return path
        if _MOODLE.fullmatch(inside[0].name):  # a class of one: what is below is the learner's
            return path
        below = {p.name for p in _folders(inside[0])}
        holds_learners = any(set(known) & {q.name for q in _folders(p)} for p in _folders(inside[0])) or any(
            _MOODLE.fullmatch(p.name) or _CANVAS.fullmatch(p.name) for p in inside[0].iterdir()
        )
        if below & set(known) or not holds_learners or below == {inside[0].name}:
            return path
        found.note("", f"The learners' folders were found in {inside[0].name}/, one level deeper than expected.")
        path = inside[0]


def _learners(
    folders: list[Path], found: Class, numbers: Mapping[str, str], names: Mapping[str, str]
) -> dict[Path, str]:
    """Return folder → learner's id: its name without what nbgrader or its pages would take for something else.

    numbers, names: Moodle's number, or a full name that only one learner has → learner. Moodle's number decides; a name
    counts if no other folder has it; otherwise the number stays in the id. Two folders share an id only if Moodle gave
    them one number. Of others, the one that is called exactly so keeps it: no order decides whose work is whose.
    """
    moodle = {folder: _MOODLE.fullmatch(folder.name) for folder in folders}
    having: dict[str, set[str]] = {}
    for match in filter(None, moodle.values()):
        having.setdefault(match["who"], set()).add(match["number"])
    ids: dict[Path, str] = {}
    claims: dict[str, set[str]] = {}
    for folder, m in moodle.items():
        known = m and (numbers.get(m["number"]) or (len(having[m["who"]]) == 1 and names.get(m["who"])))
        ids[folder] = known or _usable(f"{m['who']}_{m['number']}" if m else folder.name)
        claims.setdefault(ids[folder], set()).add(m["number"] if m else folder.name)
    for folder, m in moodle.items():
        name = ids[folder]
        if len(claims[name]) > 1 and folder.name != name:
            ids[folder] = f"{name} ({hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:8]})"
            found.note(
                ids[folder], f"Another learner is also called {name!r}. If this one is meant, rename the folder."
            )
        if not m and name != folder.name:
            found.note(ids[folder], f"The folder is called {folder.name!r}, a name that nbgrader cannot use.")
        if m and len(having[m["who"]]) > 1 and m["number"] not in numbers:
            others = ", ".join(sorted(having[m["who"]] - {m["number"]}))
            found.note(
                ids[folder],
                f"Moodle has several learners called {files.printable(m['who'])!r}: this is number {m['number']}, "
                f"besides {others}. The column moodle_id of a roster tells who is who.",
            )
    return ids


def _usable(name: str) -> str:
    name = "".join(ch if ch.isprintable() else "_" for ch in name).translate(_PATTERN).strip()
    return f"_{name[1:]}" if name.startswith(".") else name or "_"  # ".." would be the folder above


def collect(
    path: Path,
    known: dict[str, set[str]],
    scratch: Path | None = None,
    ids: Mapping[str, str] | None = None,
    moodle_ids: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> Class:
    """Find the submissions of a class, and note everything that is out of place.

    path: a folder in the layout learner/assignment/notebook.ipynb, or in that of Moodle or Canvas; or a .zip or .tar.gz
    of one. Learners may have submitted a .zip. known: assignment → names of its notebooks. scratch: an empty folder for
    unpacked archives; without one they are not unpacked. ids, moodle_ids: Canvas's and Moodle's number → learner.
    names: full name → learner, where Moodle's number is not known. Learners who are in none of them are called
    name_number. Raises Damaged if `path` is a file but not a readable archive.
    """
    found = Class()
    if path.is_file():
        path = _unpack_class(path, scratch, known, found)
    home = _class_folder(path.resolve(), known, found)
    folders, flat, strays = [], [], []
    for folder in _folders(home):
        moodle = _MOODLE.fullmatch(folder.name)
        if folder.name in known:
            found.note("", f"{folder.name}/ is named like an assignment; a learner's folder was expected here.")
        elif not (moodle and moodle["what"] == "onlinetext"):  # typed into the browser
            folders.append(folder)
    for p in sorted(home.iterdir()):
        if p.is_symlink():
            found.note("", f"{files.printable(p.name)} is a link and was not followed.")
        elif canvas := _CANVAS.fullmatch(p.name):
            flat.append((p, canvas))
        elif p.suffix == ".ipynb":
            strays.append(p.name)
    search = _Search(found, known, scratch, len(folders) + len({canvas["number"] for _, canvas in flat}))
    for name in _left_out(home):
        found.note("", f"{files.printable(name)}/ {LEFT_OUT}")
    for folder, learner in _learners(folders, found, moodle_ids or {}, names or {}).items():
        moodle = _MOODLE.fullmatch(folder.name)
        if not moodle:
            search.homes[learner] = folder
        with found.only(learner):
            if not search.below(learner, folder, as_expected=bool(moodle)):
                found.note(learner, "There is no notebook in this folder.")
    # The last of several attempts (graphs.ipynb, graphs-1.ipynb, …) counts, so it is filed first.
    for p, canvas in sorted(flat, key=lambda one: (_attempt(one[1]["file"]), one[0]), reverse=True):
        number = canvas["number"]
        learner = (ids or {}).get(number) or _usable(f"{canvas['who']}_{number}")
        with found.only(learner):
            search.file(learner, p, Path(canvas["file"]), as_expected=True)
    for stray in strays:
        found.note("", f"{files.printable(stray)} is not in a learner's folder and was not graded.")
    return found


def _attempt(name: str) -> int:
    """Return the number that Canvas appends to the name of a resubmitted file; 0 without one."""
    again = re.fullmatch(r".+-(\d{1,6})", Path(name).stem)
    return int(again[1]) if again else 0


def _unpack_class(path: Path, scratch: Path | None, known: Collection[str], found: Class) -> Path:
    """Unpack the archive of a class and return its folder. Raises Damaged if the file is not an archive."""
    if not path.name.lower().endswith(_ARCHIVES):
        raise Damaged(
            f"{path.name} is not a folder or an archive. Expected a folder, or one of {', '.join(_ARCHIVES)}."
        )
    if scratch is None:
        raise Damaged(f"{path.name} is an archive, but there is no folder to unpack it into.")
    inside = scratch / "class"
    inside.mkdir()
    path = path.resolve()

    def wanted(parts: list[str]) -> str | None:
        return "/".join(parts).casefold() if parts[-1].lower().endswith(_HANDED_IN) else None

    whose = _whose([parts for parts in files.listed(path) if parts and wanted(parts)], known)
    learners = {*whose.values()}
    share = files.shares(inside, len(learners))
    left = {learner: share() for learner in learners}
    try:
        notes = files.unpack(path, inside, wanted, lambda parts: left[whose[tuple(parts)]])
    except files.Full as why:
        raise Damaged(f"{path.name} was not unpacked: {why}") from None
    for note in notes:
        found.note("", note)
    return inside


def _whose(paths: list[list[str]], known: Collection[str]) -> dict[tuple[str, ...], str]:
    """Return path in the archive of a class → the folder of its learner, or the number that Canvas gave.

    Learners' folders all lie as deep as the first of them: nobody can put a file above the own one.
    """

    def depth(path: list[str]) -> int | None:
        for at, part in enumerate(path):
            if part in known:
                return max(at - 1, 0)
            if _MOODLE.fullmatch(part) or _CANVAS.fullmatch(part):
                return at
        return None

    depths = [at for at in map(depth, paths) if at is not None]
    depths = depths or [max(len(path) - 2, 0) for path in paths if path[-1].endswith(".ipynb")]
    level = min(depths, default=0)
    whose = {}
    for path in paths:
        part = path[min(level, len(path) - 1)]
        canvas = _CANVAS.fullmatch(part)
        whose[tuple(path)] = canvas["number"] if canvas else part
    return whose


class _Search:
    """Searches learners' folders and files what it finds in a Class."""

    def __init__(self, found: Class, known: dict[str, set[str]], scratch: Path | None, learners: int):
        self.found, self.known, self.scratch = found, known, scratch
        #: Learner → their archives so far, and what may still be unpacked of them.
        self.archives: Counter[str] = Counter()
        self.left: dict[str, files.Share] = defaultdict(files.shares(scratch, learners)) if scratch else {}
        self.owner = {notebook: assignment for assignment, names in known.items() for notebook in names}
        #: Learner → their folder, where its layout is nbgrader's: learner/assignment/timestamp.txt is the collection's.
        self.homes: dict[str, Path] = {}

    def below(self, learner: str, folder: Path, prefix: Path = Path(), as_expected=False, archives=True) -> bool:
        """File everything below a folder; return whether there was anything. `prefix`: the archive it came from."""
        paths = [p for p in _handed_in(folder) if archives or p.suffix != ".zip"]
        for name in _left_out(folder):
            self.found.note(learner, f"{prefix / files.printable(name)}/ {LEFT_OUT}")
        for p in paths:
            self.file(learner, p, prefix.joinpath(*map(files.printable, p.relative_to(folder).parts)), as_expected)
        return bool(paths)

    def file(self, learner: str, path: Path, inside: Path, as_expected: bool) -> None:
        """File one notebook or archive. `inside`: its path within the learner's submission."""
        if path.is_symlink():
            self.found.note(learner, f"{inside} is a link and was not followed: hand in the file itself.")
        elif not path.is_file():
            self.found.note(learner, f"{inside} is not a regular file and was not read.")
        elif path.suffix == ".zip":
            self._archive(learner, path, inside)
        else:
            self._notebook(learner, path, inside, as_expected)

    def _archive(self, learner: str, path: Path, inside: Path) -> None:
        if self.scratch is None:
            self.found.note(learner, f"{inside} is an archive and was not unpacked: hand in the notebook itself.")
            return
        self.archives[learner] += 1
        if self.archives[learner] > MAX_ARCHIVES:
            self.found.note(learner, f"There are more than {MAX_ARCHIVES} archives; the rest was not unpacked.")
            return
        into = self.scratch / f"learner-{self.archives.total()}"
        into.mkdir()
        notebooks = 0

        def wanted(parts: list[str]) -> tuple[str, str] | None:
            """Return the assignment and the name of a notebook that is still missing."""
            nonlocal notebooks
            if not parts[-1].endswith(".ipynb") or any(part.startswith(".") or part in _LITTER for part in parts):
                if len(parts) > 1 and parts[0][0] == "." and parts[0] != CHECKPOINTS and parts[-1].endswith(".ipynb"):
                    self.found.note(learner, f"{inside / files.printable(parts[0])}/ {LEFT_OUT}")
                return None
            notebooks += 1
            at = inside.joinpath(*map(files.printable, parts))
            place = self._place(learner, at, as_expected=False)
            return None if place is None or self._filed(learner, at, *place) else place

        try:
            for note in files.unpack(path, into, wanted, lambda _: self.left[learner]):
                self.found.note(learner, note)
        except Damaged as why:
            self.found.note(learner, str(why))
        except files.Full as why:
            self.found.note(learner, f"{inside} was not unpacked: {why}")
        else:
            if not notebooks:
                self.found.note(learner, f"{inside}: there is no notebook in this archive.")
            self.below(learner, into, inside, archives=False)

    def _place(self, learner: str, inside: Path, as_expected: bool) -> tuple[str, str] | None:
        """Return the assignment and the name of a notebook; note it if there is none."""
        known, name = self.known, inside.stem
        if as_expected and name not in self.owner and _attempt(inside.name):
            name = name.rpartition("-")[0]
        assignment = inside.parent.name if len(inside.parts) > 1 else None
        if assignment not in known:
            guess = self.owner.get(name)
            if guess is None or (len(inside.parts) == 2 and (assignment or "").startswith("day")):
                what = f"assignment {assignment!r}" if assignment else f"notebook {inside.name!r}"
                self.found.note(learner, f"{inside}: unknown {what}. Expected one of {', '.join(sorted(known))}.")
                return None
            assignment = guess
        if name not in known[assignment]:
            expected = ", ".join(sorted(f"{n}.ipynb" for n in known[assignment]))
            self.found.note(learner, f"{inside}: {assignment} has no notebook of that name. Expected: {expected}.")
            return None
        return assignment, name

    def _filed(self, learner: str, inside: Path, assignment: str, name: str) -> bool:
        """Return whether there is this notebook already; if so, note which one is graded."""
        submission = self.found.submissions.get((learner, assignment))
        if submission is None or name not in submission.notebooks:
            return False
        kept = submission.notebooks[name]
        why = "is a later attempt" if _attempt(kept.name) else "is closer to the top"
        submission.note(f"{inside} was not graded: there is also {_below(kept, learner)}, which {why}.")
        return True

    def _notebook(self, learner: str, path: Path, inside: Path, as_expected: bool) -> None:
        place = self._place(learner, inside, as_expected)
        if place is None or self._filed(learner, inside, *place):
            return
        assignment, name = place
        submission = self.found.submissions.setdefault((learner, assignment), Submission(learner, assignment))
        if not as_expected and inside.parts != (assignment, path.name):
            submission.note(f"Taken from {inside} (expected: {assignment}/{path.name}).")
        submission.notebooks[name] = path
        self._time(submission, path, inside)

    def _time(self, submission: Submission, path: Path, inside: Path) -> None:
        """Add the time at which the folder with this notebook was collected, if the layout shows that."""
        home, handed_in = self.homes.get(submission.learner), inside.parts[0]
        collected = home / handed_in / TIMESTAMP if home and handed_in in self.known else None
        if collected and collected not in submission.times:
            submission.times.append(collected)
        packed = path.with_name(TIMESTAMP)
        if packed != collected and os.path.lexists(packed):
            submission.note(
                f"{inside.with_name(TIMESTAMP)} does not count, since learners may have packed it: a time of "
                "submission lies in learner/assignment/."
            )


def _below(path: Path, learner: str) -> Path:
    """Return a path as the learner knows it: relative to the learner's folder if it is in there."""
    parts = path.parts
    return Path(*parts[parts.index(learner) + 1 :]) if learner in parts else Path(path.name)


def _grade_id(cell: NotebookNode) -> str | None:
    meta = cell.metadata.get("nbgrader")
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def repair(nb: NotebookNode, authored: NotebookNode) -> list[str]:
    """Restore the cells and ids of the authored notebook in a submission, in place. Return a sentence per repair.

    Everything except the text of answer cells comes from the authored notebook: locked cells, hidden tests, points,
    ids, and the kernel. Cells are identified by their nbgrader id, otherwise by their cell id, which some editors keep
    when they drop the metadata. A missing answer cell is added empty, so that its question scores nothing.
    """
    known = {_grade_id(cell): cell for cell in authored.cells if _grade_id(cell)}
    by_cell_id = {cell.id: name for name, cell in known.items()}
    notes = []
    holders: dict[str, list[NotebookNode]] = {}
    strangers = []
    for cell in nb.cells:
        name = _grade_id(cell)
        if name and name in known:
            holders.setdefault(name, []).append(cell)
        else:
            strangers.append((name, cell))
    for name, cell in strangers:
        guess = by_cell_id.get(cell.id)
        if guess and guess not in holders:
            holders[guess] = [cell]
            notes.append(f"Cell {guess!r} had lost its nbgrader id; it was recognised by its cell id.")
        elif name is not None:
            notes.append(
                f"A cell has the id {files.printable(name)!r}, which this notebook does not have; it was not graded."
            )
            cell.metadata.pop("nbgrader", None)
        else:
            cell.metadata.pop("nbgrader", None)
    for name, cells in holders.items():
        for extra in cells[:-1]:
            extra.metadata.pop("nbgrader", None)
        if len(cells) > 1:
            notes.append(f"There are {len(cells)} cells {name!r}; the last one was graded.")
        cell, original = cells[-1], known[name]
        cell.metadata["nbgrader"] = copy.deepcopy(original.metadata["nbgrader"])
        if cell.cell_type != original.cell_type:
            notes.append(f"Cell {name!r} had become a {cell.cell_type} cell; it was changed back.")
        elif is_locked(original) and _visible_lines(cell.source) != _visible_lines(original.source):
            notes.append(f"Cell {name!r} is read-only but had been changed; it was restored.")
        if cell.cell_type != original.cell_type or is_locked(original):
            fresh = copy.deepcopy(original)
            if not is_locked(original):
                fresh.source = cell.source
            nb.cells[_index(nb, cell)] = holders[name][-1] = fresh
    _add_missing(nb, authored, holders, notes)
    for cell in nb.cells:
        if cell.cell_type == "code" and not _is_shown(cell):  # points are read from outputs: only grading makes these
            cell.outputs = []
    for name in ("kernelspec", "language_info"):
        nb.metadata.pop(name, None)
        if name in authored.metadata:
            nb.metadata[name] = copy.deepcopy(authored.metadata[name])
    return notes


def _visible_lines(text: str) -> list[str]:
    """Return the lines of a cell as learners get them: no hidden tests or rubric, and no space that editors change."""
    lines: list[str] = []
    begin = None
    for line in filter(str.strip, text.splitlines()):
        if begin is None and line.lstrip().startswith((HIDDEN_TESTS.begin, RUBRIC.begin)):
            begin = len(lines)
        lines.append(line.rstrip())
        if begin is not None and line.lstrip().startswith((HIDDEN_TESTS.end, RUBRIC.end)):
            del lines[begin:]
            begin = None
    return [line.lstrip() if not at else line for at, line in enumerate(lines)]  # as `strip` on the whole text


def _index(nb: NotebookNode, cell: NotebookNode) -> int:
    return next(i for i, c in enumerate(nb.cells) if c is cell)


def _add_missing(nb: NotebookNode, authored: NotebookNode, holders: dict, notes: list[str]) -> None:
    """Insert every missing cell right after its predecessor in the authored notebook."""
    before = -1
    for original in authored.cells:
        name = _grade_id(original)
        if name is None:
            continue
        if name not in holders:
            fresh = copy.deepcopy(original)
            meta = fresh.metadata["nbgrader"]
            if meta.get("solution"):
                fresh.source = ""
                notes.append(f"Answer cell {name!r} was missing; an empty one was added.")
            elif meta.get("grade"):
                notes.append(f"Check cell {name!r} was missing; it was restored.")
            nb.cells.insert(before + 1, fresh)
            before += 1
        else:
            before = _index(nb, holders[name][-1])
    used = Counter(cell.id for cell in nb.cells)
    for number, cell in enumerate(nb.cells):
        if used[cell.id] > 1 and not _grade_id(cell):
            cell["id"] = f"submitted-{number}"


# From the repaired notebook to the engine, and back


#: The tag with which an author marks a cell that must always run.
RUNS = "runs"
#: The texts that feedback shows for a cell that was not run.
AS_HANDED_IN = "Not run for the grade; as handed in:"
NOT_RUN = "Not run for the grade."


def job(
    nb: NotebookNode,
    authored: NotebookNode,
    learner: str,
    assignment: str,
    notebook: str,
    seed: int,
    run_all: bool = False,
) -> Job:
    """Return the engine's job for a repaired notebook: its code cells in order, without blank ones.

    Unless `run_all` is set, cells of the course that nothing graded depends on are marked as idle.
    """
    known = {_grade_id(cell): cell for cell in authored.cells if _grade_id(cell)}
    cells = []
    for index, cell in enumerate(nb.cells):
        if not _runs(cell):
            continue
        name, exercise, answer = _grade_id(cell), "", ""
        graded = name in known and is_autograded(known[name])
        if graded and (check := check_call(known[name].source)):
            exercise, answer, graded = check.exercise, ast.unparse(check.answer), False
        cells.append(Cell(index, name or cell.id, cell.source, exercise, answer, graded))
    if not run_all:
        cells = _mark_idle(cells, nb, authored)
    return Job(learner, assignment, notebook, tuple(cells), seed)


def _mark_idle(cells: list[Cell], nb: NotebookNode, authored: NotebookNode) -> list[Cell]:
    """Return the cells, with `idle` and `calls` set on those that may be skipped: always, or after a lost answer."""
    shown = {cell.source for cell in authored.cells if _is_shown(cell) and RUNS not in cell.metadata.get("tags", ())}
    free = [cell.index for cell in cells if _is_shown(nb.cells[cell.index])]
    course = [cell.index for cell in cells if cell.index in free and cell.source in shown]
    asked = [(cell.index, cell.answer if cell.exercise else cell.source) for cell in cells]
    checks = [cell.index for cell in cells if cell.exercise]
    planned = aside.call("autograder.grading.idle:plan", asked, course, free, checks) or ((), ())
    never, calls = set(planned[0]), {at: tuple(answers) for at, answers in planned[1]}
    return [replace(cell, idle=cell.index in never, calls=calls.get(cell.index, ())) for cell in cells]


def _is_shown(cell: NotebookNode) -> bool:
    """Return whether this is a code cell that is neither an answer cell nor a check cell."""
    meta = _meta(cell)
    return cell.cell_type == "code" and not meta.get("solution") and not meta.get("grade")


def _runs(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(cell.source.strip())


def _meta(cell: NotebookNode) -> dict:
    meta = cell.metadata.get("nbgrader")
    return meta if isinstance(meta, dict) else {}


def is_locked(cell: NotebookNode) -> bool:
    """Return whether learners may not edit this cell, by nbgrader's rules."""
    meta = _meta(cell)
    return not meta.get("solution") and bool(meta.get("grade") or meta.get("locked"))


def is_autograded(cell: NotebookNode) -> bool:
    """Return whether nbgrader reads the points of this cell from its outputs."""
    meta = _meta(cell)
    return cell.cell_type == "code" and bool(meta.get("grade")) and not meta.get("solution")


def fill(nb: NotebookNode, result: NotebookResult) -> None:
    """Write the outputs of a result into a repaired notebook, in place, as a run would have left them.

    nbgrader reads the points of a check cell from its last output and gives full points to a cell without outputs, so a
    graded cell without a result gets an error.
    """
    count = 0
    for index, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        handed_in, cell.outputs, cell.execution_count = cell.outputs, [], None
        verdict, ran = result.verdicts.get(index), result.ran.get(index)
        if _runs(cell):
            count += 1
            cell.execution_count = count
        if verdict is not None:
            cell.outputs = _verdict_outputs(verdict, float(_meta(cell).get("points", verdict.total)), count)
        elif ran is not None and ran.idle:
            note = f"{AS_HANDED_IN if handed_in else NOT_RUN}\n"
            cell.outputs = [new_output("stream", name="stdout", text=note), *_numbered(handed_in, count)]
        elif ran is not None:
            cell.outputs = _ran_outputs(ran, cell, count)
        elif is_autograded(cell):
            cell.outputs = [dead_output(f"This question was not graded: {result.failure or 'its cell did not run.'}")]


def dead_output(why: str) -> NotebookNode:
    """Return the output of a cell that ended the Python process."""
    return new_output("error", ename="KernelDied", evalue=why, traceback=[f"KernelDied: {why}"])


def _verdict_outputs(verdict: Verdict, most: float, count: int) -> list[NotebookNode]:
    """Return a verdict as the outputs of its check cell: the card, then the points or the error."""
    facts = {k: v for k, v in asdict(verdict).items() if k not in ("cases", "html", "text")}
    data = {VERDICT: facts, "text/plain": verdict.text or verdict.message or verdict.crash, "text/html": verdict.html}
    card = new_output("display_data", {mime: value for mime, value in data.items() if value})
    points = min(max(round(verdict.points, 4), 0.0), most)
    if verdict.crash and not points:
        return [card, dead_output(verdict.crash)]
    return [card, new_output("execute_result", {"text/plain": repr(points)}, execution_count=count)]


def _numbered(outputs: list[NotebookNode], count: int) -> list[NotebookNode]:
    for output in outputs:
        if output.output_type == "execute_result":
            output.execution_count = count
    return outputs


def _ran_outputs(ran: Ran, cell: NotebookNode, count: int) -> list[NotebookNode]:
    """Return the outputs of a cell that ran.

    nbgrader counts text on stderr as an error and the last result as points. In a graded cell, text therefore goes to
    stdout, and a result that nbgrader cannot use as points is only displayed.
    """
    outputs = [nbformat.from_dict(output) for output in ran.outputs]
    for output in outputs:
        output.get("data", {}).pop(VERDICT, None)  # reserved for the grader
        if output.output_type == "execute_result":
            output.execution_count = count
        if is_autograded(cell) and output.output_type == "stream":
            output.name = "stdout"
        elif is_autograded(cell) and output.output_type == "execute_result" and not _fair(output, cell):
            output.output_type = "display_data"
            del output["execution_count"]
    failed = any(output.output_type == "error" for output in outputs)
    if ran.died and not failed:
        outputs.append(dead_output(ran.died))
    elif ran.error and not failed:
        outputs.append(new_output("error", ename="Error", evalue=ran.error, traceback=[ran.error]))
    return outputs


def _fair(output: NotebookNode, cell: NotebookNode) -> bool:
    """Return whether nbgrader can read this result. It fails without text, and on more points than the maximum."""
    try:
        return not float(output.data["text/plain"]) > float(_meta(cell)["points"])
    except ValueError:
        return True
    except KeyError:
        return False
