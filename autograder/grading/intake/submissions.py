"""Find the notebooks of each learner in the folders or archives of a class. Links are not followed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from stat import S_ISDIR

from autograder.grading import files
from autograder.grading.files import UnreadableError
from autograder.grading.intake import claims

#: The file with the time of submission, which nbgrader writes into learner/assignment/ when it collects.
TIMESTAMP = "timestamp.txt"

#: The most archives of one learner that are unpacked, and the most sentences about one learner.
MAX_ARCHIVES = 20
MAX_NOTES = 50
#: The seconds in which notebooks of one learner that are called something else are read, to tell what they are. One of
#: 40 kB in an old format takes two.
MAX_READING = 20

#: Characters that nbgrader reads as a pattern, and those that end a text in formgrader's pages, which escape nothing.
_PATTERN = str.maketrans({"[": "(", "]": ")", **dict.fromkeys('*?<>"&\\', "_")})
_LITTER = {"__MACOSX", "__pycache__", "node_modules"}
#: Jupyter's folder of older versions, never meant as a submission; other hidden folders with notebooks are named.
CHECKPOINTS = ".ipynb_checkpoints"
LEFT_OUT = "was left out, since its name begins with a dot: rename the folder to have it graded."
_ARCHIVES = (".zip", ".tar.gz", ".tgz")
#: How the names of notebooks end, in any case: some mailers and systems add an ending of their own.
_NOTEBOOKS = (".ipynb", ".ipynb.txt", ".ipynb.json")
#: How the names of files end that are unpacked of the archive of a class.
_HANDED_IN = (*_NOTEBOOKS, ".zip", TIMESTAMP, "roster.csv")
#: The end of the names that Canvas and Moodle give to submitted files.
_FILE = r"(?P<file>.+\.(?:ipynb(?:\.txt|\.json)?|zip))"
#: Canvas's names of submitted files: lovelaceada_12345_67890_graphs.ipynb, with _LATE after the learner's name if late.
_CANVAS = re.compile(r"(?P<who>[^_]+)_(?P<late>LATE_)?(?P<number>\d+)_\d+_" + _FILE, re.IGNORECASE)
#: What systems put around the name of a copy: graphs (1), graphs-Copy1, Copy of graphs. A blank between two endings
#: belongs to the second: with a choice for each, a name of 200 characters would take years.
_COPY = re.compile(
    r"(?:copy of |kopie von )?(?P<name>.+?)(?:\s*\(\d{1,4}\)|[\s_-]+(?:copy|kopie)(?:\s*\d{1,4})?)*\s*", re.IGNORECASE
)
#: The same where it grades without names: anon_a1b2C_67890_graphs.ipynb.
_ANONYMOUS = re.compile(r"(?P<number>anon_[A-Za-z0-9]{5})_(?P<late>LATE_)?\d+_" + _FILE, re.IGNORECASE)
#: Moodle's names of learners' folders: Ada Lovelace_12345_assignsubmission_file.
_MOODLE = re.compile(r"(?P<who>.+)_(?P<number>\d+)_assignsubmission_(?P<what>file|onlinetext)_?")
#: Moodle's names of files, in a download without folders: Ada Lovelace_12345_assignsubmission_file_graphs.ipynb.
_MOODLE_FILE = re.compile(r"(?P<who>.+?)_(?P<number>\d+)_assignsubmission_file_" + _FILE, re.IGNORECASE)
_MOODLE_FOLDER = "{who}_{number}_assignsubmission_file"


@dataclass
class Submission:
    """A learner's submission for one assignment: its notebooks by name, and notes for the report.

    `times`: the files with the times at which it was collected; never one that the learner may have packed.
    `undecided`: why it cannot be graded before the instructor decides: several files claim one place. "" otherwise.
    `same_as`: the submission of another member of the learner's group, which is graded for both.
    """

    learner: str
    assignment: str
    notebooks: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    times: list[Path] = field(default_factory=list)
    undecided: str = ""
    same_as: Submission | None = None

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
class ClassWork:
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
    """Return the notebooks below a folder, and then the zip archives, the shallowest first. Links are not followed.

    An archive beside a notebook is the one with which the work began, or a copy, whatever it is called.
    """
    entries = files.walk(path, lambda inside: inside.name.startswith(".") or inside.name in _LITTER)
    names = [e.path for e in entries if _is_handed_in(e.path.name) and not S_ISDIR(e.about.st_mode)]
    return [path / name for name in sorted(names, key=lambda name: (_is_zip(name.name), len(name.parts), name))]


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(_NOTEBOOKS)


def _is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")


def _is_handed_in(name: str) -> bool:
    return _is_notebook(name) or _is_zip(name)


def _stem(name: str) -> str:
    """Return the name of a notebook file without its endings, "graphs" of "graphs.IPYNB" and of "graphs.ipynb.txt"."""
    ending = next((ending for ending in sorted(_NOTEBOOKS, key=len, reverse=True) if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)]


def _left_out(path: Path) -> list[str]:
    """Return the folders in a folder that hold work and are left out, since their names begin with a dot."""
    with os.scandir(path) as entries:
        hidden = [one for one in islice(entries, files.ENTRIES) if one.name.startswith(".") and one.name != CHECKPOINTS]
        return sorted(one.name for one in hidden if one.is_dir(follow_symlinks=False) and _handed_in(Path(one.path)))


def _class_folder(path: Path, known: dict[str, set[str]], work: ClassWork) -> Path:
    """Return the folder with the learners: `path`, or the only folder in it, if unpacking added a level."""
    while True:
        inside = _folders(path)
        if len(inside) != 1 or any(_is_notebook(p.name) for p in path.iterdir()):
            return path
        if _MOODLE.fullmatch(inside[0].name):  # a class of one: what is below is the learner's
            return path
        below = {p.name for p in _folders(inside[0])}
        holds_learners = any(set(known) & {q.name for q in _folders(p)} for p in _folders(inside[0])) or any(
            _MOODLE.fullmatch(p.name) or _is_flat(p.name) for p in inside[0].iterdir()
        )
        if below & set(known) or not holds_learners or below == {inside[0].name}:
            return path
        work.note("", f"The learners' folders were found in {inside[0].name}/, one level deeper than expected.")
        path = inside[0]


def _learners(
    folders: list[Path], work: ClassWork, numbers: Mapping[str, str], names: Mapping[str, str]
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
        # of a group's submission, Moodle writes the group before the name: Team A-Ada Lovelace
        name = m and (names.get(m["who"]) or names.get(m["who"].partition("-")[2]))
        known = m and (numbers.get(m["number"]) or (len(having[m["who"]]) == 1 and name))
        ids[folder] = known or _usable(f"{m['who']}_{m['number']}" if m else folder.name)
        claims.setdefault(ids[folder], set()).add(m["number"] if m else folder.name)
    for folder, m in moodle.items():
        name = ids[folder]
        if len(claims[name]) > 1 and folder.name != name:
            digests = (hashlib.sha256(os.fsencode(folder.name) + bytes(at)).hexdigest()[:8] for at in count())
            ids[folder] = next(free for digest in digests if (free := f"{name} ({digest})") not in claims)
            claims[ids[folder]] = {folder.name}
            work.note(ids[folder], f"Another learner is also called {name!r}. If this one is meant, rename the folder.")
        if not m and name != folder.name:
            work.note(ids[folder], f"The folder is called {folder.name!r}, a name that nbgrader cannot use.")
        if m and len(having[m["who"]]) > 1 and m["number"] not in numbers:
            others = ", ".join(sorted(having[m["who"]] - {m["number"]}))
            work.note(
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
) -> ClassWork:
    """Find the submissions of a class, and note everything that is out of place.

    path: a folder in the layout learner/assignment/notebook.ipynb, or in that of Moodle or Canvas; or a .zip or .tar.gz
    of one. Learners may have submitted a .zip. known: assignment → names of its notebooks. scratch: an empty folder for
    unpacked archives; without one they are not unpacked. ids, moodle_ids: Canvas's and Moodle's number → learner.
    names: full name → learner, where Moodle's number is not known. Learners who are in none of them are called
    name_number. Raises UnreadableError if `path` is a file but not a readable archive.
    """
    work = ClassWork()
    if path.is_file():
        path = _unpack_class(path, scratch, known, work)
    home = _class_folder(path.resolve(), known, work)
    folders, single = _learners_folders(home, known, work), _flat_files(home)
    numbers = {match["number"] for _, match in single}
    search = _Search(work, known, scratch, len(folders) + len(numbers))
    for name in _left_out(home):
        work.note("", f"{files.printable(name)}/ {LEFT_OUT}")
    # Moodle's files without folders are as if they were in the folders that it makes otherwise.
    of_moodle = {file: home / _MOODLE_FOLDER.format(**match.groupdict()) for file, match in single if _is_moodle(match)}
    learners = _learners([*folders, *dict.fromkeys(of_moodle.values())], work, moodle_ids or {}, names or {})
    for folder in folders:
        moodle, learner = _MOODLE.fullmatch(folder.name), learners[folder]
        if not moodle:
            search.homes[learner] = folder
        with work.only(learner):
            if not search.below(learner, folder, as_expected=bool(moodle)):
                work.note(learner, "There is no notebook in this folder.")
    for file, match in single:
        if file in of_moodle:
            learner = learners[of_moodle[file]]
        elif "who" in match.groupdict():
            learner = (ids or {}).get(match["number"]) or _usable(f"{match['who']}_{match['number']}")
        else:
            learner = match["number"]
            work.note(
                learner, "Canvas hid who this is: to have grades for learners, reveal the names and export again."
            )
        if match.groupdict().get("late"):
            work.note(
                learner,
                f"Canvas marks {match['file']} as late, but does not say by how much: it counts as being on time.",
            )
        with work.only(learner):
            search.file(learner, file, Path(match["file"]), as_expected=True)
    for file in _notebooks(home):
        work.note("", f"{files.printable(file.name)} is not in a learner's folder and was not graded.")
    return work


def _learners_folders(home: Path, known: Collection[str], work: ClassWork) -> list[Path]:
    """Return the folders of learners, and note links and other folders."""
    folders = []
    for folder in _folders(home):
        moodle = _MOODLE.fullmatch(folder.name)
        if folder.name in known:
            work.note("", f"{folder.name}/ is named like an assignment; a learner's folder was expected here.")
        elif not (moodle and moodle["what"] == "onlinetext"):  # typed into the browser
            folders.append(folder)
    for path in sorted(home.iterdir()):
        if path.is_symlink():
            work.note("", f"{files.printable(path.name)} is a link and was not followed.")
    return folders


def _is_flat(name: str) -> bool:
    """Return whether this is the name of a file that Canvas or Moodle wrote beside those of other learners."""
    return bool(_of_canvas(name) or _MOODLE_FILE.fullmatch(name))


def _of_canvas(name: str) -> re.Match[str] | None:
    return _ANONYMOUS.fullmatch(name) or _CANVAS.fullmatch(name)


def _flat(names: Iterable[str]) -> dict[str, re.Match[str]]:
    """Return the name of each file that Canvas or Moodle wrote → its parts.

    A download is Canvas's if all of its files are: learners choose how a name ends, and one may look like Moodle's name
    of another learner's file.
    """
    flat = [name for name in names if _is_flat(name)]
    canvas = all(map(_of_canvas, flat))
    matches = {name: (not canvas and _MOODLE_FILE.fullmatch(name)) or _of_canvas(name) for name in flat}
    return {name: match for name, match in matches.items() if match}


def _is_moodle(match: re.Match[str]) -> bool:
    return match.re is _MOODLE_FILE


def _flat_files(home: Path) -> list[tuple[Path, re.Match[str]]]:
    """Return the files that Canvas or Moodle wrote, with their parts, archives last: see `_handed_in`. The last attempt
    counts, so it comes first."""
    paths = [path for path in home.iterdir() if not path.is_symlink()]
    flat = _flat(path.name for path in paths)
    matches = [(path, flat[path.name]) for path in paths if path.name in flat]
    return sorted(
        matches, key=lambda pair: (not _is_zip(pair[0].name), _attempt(pair[1]["file"]), pair[0]), reverse=True
    )


def _notebooks(home: Path) -> list[Path]:
    """Return the notebooks beside the learners' folders."""
    paths = [path for path in home.iterdir() if _is_notebook(path.name) and not path.is_symlink()]
    return sorted(path for path in paths if not _is_flat(path.name))


def _attempt(name: str) -> int:
    """Return the number that Canvas appends to the name of a resubmitted file; 0 without one."""
    match = re.fullmatch(r".+-(\d{1,6})", _stem(name) if _is_notebook(name) else Path(name).stem)
    return int(match[1]) if match else 0


def _unpack_class(path: Path, scratch: Path | None, known: Collection[str], work: ClassWork) -> Path:
    """Unpack the archive of a class and return its folder. Raises UnreadableError if the file is not an archive."""
    if not path.name.lower().endswith(_ARCHIVES):
        raise UnreadableError(
            f"{path.name} is not a folder or an archive. Expected a folder, or one of {', '.join(_ARCHIVES)}."
        )
    if scratch is None:
        raise UnreadableError(f"{path.name} is an archive, but there is no folder to unpack it into.")
    inside = scratch / "class"
    inside.mkdir()
    path = path.resolve()

    def share_name(parts: list[str]) -> str | None:
        return "/".join(parts).casefold() if parts[-1].lower().endswith(_HANDED_IN) else None

    whose = _whose([parts for parts in files.listed(path) if parts and share_name(parts)], known)
    learners = {*whose.values()}
    share = files.shares(inside, len(learners))
    shares = {learner: share() for learner in learners}
    try:
        notes = files.unpack(path, inside, share_name, lambda parts: shares[whose[tuple(parts)]])
    except files.DiskFullError as why:
        raise UnreadableError(f"{path.name} was not unpacked: {why}") from None
    for note in notes:
        work.note("", note)
    return inside


def _whose(paths: list[list[str]], known: Collection[str]) -> dict[tuple[str, ...], str]:
    """Return path in the archive of a class → the folder of its learner, or the number that Canvas or Moodle gave.

    All learners' folders are as deep as the first: a learner cannot put a file above their own.
    """

    def depth(path: list[str]) -> int | None:
        for at, part in enumerate(path):
            if part in known:
                return max(at - 1, 0)
            if _MOODLE.fullmatch(part) or _is_flat(part):
                return at
        return None

    depths = [at for at in map(depth, paths) if at is not None]
    depths = depths or [max(len(path) - 2, 0) for path in paths if _is_notebook(path[-1])]
    level = min(depths, default=0)
    part_of = {tuple(path): path[min(level, len(path) - 1)] for path in paths}
    flat = _flat({*part_of.values()})
    return {path: flat[part]["number"] if part in flat else part for path, part in part_of.items()}


class _Search:
    """Searches learners' folders, and files notebooks and notes in a ClassWork."""

    def __init__(self, work: ClassWork, known: dict[str, set[str]], scratch: Path | None, learners: int):
        self.work, self.known, self.scratch = work, known, scratch
        #: Learner → their archives so far, and what may still be unpacked of them.
        self.archives: Counter[str] = Counter()
        self.left: dict[str, files.Share] = defaultdict(files.shares(scratch, learners)) if scratch else {}
        self.owner = {notebook: assignment for assignment, names in known.items() for notebook in names}
        #: Learner → their folder, where its layout is nbgrader's: learner/assignment/timestamp.txt is the collection's.
        self.homes: dict[str, Path] = {}
        #: Notebooks whose place was told by something else than their exact name, and those of them without a check of
        #: the course, of which only a name like graphs (1) told it.
        self.guessed: set[Path] = set()
        self.unsure: set[Path] = set()
        #: Learner → the seconds that this has taken.
        self.reading: dict[str, float] = defaultdict(float)

    def below(self, learner: str, folder: Path, prefix: Path = Path(), as_expected=False, archives=True) -> bool:
        """File everything below a folder; return whether there was anything. `prefix`: the archive it came from."""
        paths = [p for p in _handed_in(folder) if archives or not _is_zip(p.name)]
        for name in _left_out(folder):
            self.work.note(learner, f"{prefix / files.printable(name)}/ {LEFT_OUT}")
        for p in paths:
            self.file(learner, p, prefix.joinpath(*map(files.printable, p.relative_to(folder).parts)), as_expected)
        return bool(paths)

    def file(self, learner: str, path: Path, inside: Path, as_expected: bool) -> None:
        """File one notebook or archive. `inside`: its path within the learner's submission."""
        if path.is_symlink():
            self.work.note(learner, f"{inside} is a link and was not followed: hand in the file itself.")
        elif not path.is_file():
            self.work.note(learner, f"{inside} is not a regular file and was not read.")
        elif _is_zip(path.name):
            self._archive(learner, path, inside)
        else:
            self._notebook(learner, path, inside, as_expected)

    def _archive(self, learner: str, path: Path, inside: Path) -> None:
        if self.scratch is None:
            self.work.note(learner, f"{inside} is an archive and was not unpacked: hand in the notebook itself.")
            return
        self.archives[learner] += 1
        if self.archives[learner] > MAX_ARCHIVES:
            self.work.note(learner, f"There are more than {MAX_ARCHIVES} archives; the rest was not unpacked.")
            return
        into = self.scratch / f"learner-{self.archives.total()}"
        into.mkdir()
        notebooks = 0

        def key(parts: list[str]) -> tuple[str, ...] | None:
            """Return the assignment and the name of a notebook that is still missing; its path, if that is not told."""
            nonlocal notebooks
            if not _is_notebook(parts[-1]) or any(part.startswith(".") or part in _LITTER for part in parts):
                if len(parts) > 1 and parts[0][0] == "." and parts[0] != CHECKPOINTS and _is_notebook(parts[-1]):
                    self.work.note(learner, f"{inside / files.printable(parts[0])}/ {LEFT_OUT}")
                return None
            notebooks += 1
            at = inside.joinpath(*map(files.printable, parts))
            place = self._named(at, as_expected=False)
            return tuple(parts) if place is None else None if self._filed(learner, None, at, *place) else place

        try:
            for note in files.unpack(path, into, key, lambda _: self.left[learner]):
                self.work.note(learner, note)
        except UnreadableError as why:
            self.work.note(learner, str(why))
        except files.DiskFullError as why:
            self.work.note(learner, f"{inside} was not unpacked: {why}")
        else:
            if not notebooks:
                self.work.note(learner, f"{inside}: there is no notebook in this archive.")
            self.below(learner, into, inside, archives=False)

    def _named(self, inside: Path, as_expected: bool) -> tuple[str, str] | None:
        """Return the assignment and the name of a notebook, if its path says both exactly."""
        name = inside.stem
        if as_expected and name not in self.owner and _attempt(inside.name):
            name = name.rpartition("-")[0]
        assignment = inside.parent.name if len(inside.parts) > 1 else None
        if assignment not in self.known:
            assignment = self.owner.get(name)
            if assignment is None or (len(inside.parts) == 2 and inside.parent.name.startswith("day")):
                return None
        return (assignment, name) if name in self.known[assignment] and inside.suffix == ".ipynb" else None

    def _guessed(self, learner: str, path: Path, inside: Path) -> tuple[str, str] | None:
        """Return the assignment and the name of a notebook by its checks, else by a name like graphs (1).ipynb."""
        if place := self._claimed(learner, path):
            return place
        self.unsure.add(path)
        bare = _COPY.fullmatch(_stem(inside.name))
        names = {name.casefold(): name for name in self.owner}
        name = names.get(bare["name"].strip().casefold()) if bare else None
        if name is None:
            return None
        folder = inside.parent.name if len(inside.parts) > 1 else ""
        if folder not in self.known and len(inside.parts) == 2 and folder.startswith("day"):
            return None
        assignment = folder if folder in self.known else self.owner[name]
        return (assignment, name) if name in self.known[assignment] else None

    def _claimed(self, learner: str, path: Path) -> tuple[str, str] | None:
        """Return the assignment and the name of a notebook by its checks; None after too many seconds for a learner."""
        if self.reading[learner] > MAX_READING:
            self.work.note(
                learner,
                f"Of notebooks that are not called like the course's, only those were read that took {MAX_READING} s "
                "in all: give the others the names that the course gave them.",
            )
            return None
        begin = time.monotonic()
        try:
            return claims.place(path, self.known)
        finally:
            self.reading[learner] += time.monotonic() - begin

    def _unknown(self, inside: Path) -> str:
        """Return a sentence on a notebook that belongs nowhere."""
        assignment = inside.parent.name if len(inside.parts) > 1 else None
        if assignment in self.known:
            expected = ", ".join(sorted(f"{name}.ipynb" for name in self.known[assignment]))
            return f"{inside}: {assignment} has no notebook of that name. Expected: {expected}."
        noun = f"assignment {assignment!r}" if assignment else f"notebook {inside.name!r}"
        return f"{inside}: unknown {noun}. Expected one of {', '.join(sorted(self.known))}."

    def _filed(self, learner: str, path: Path | None, inside: Path, assignment: str, name: str) -> bool:
        """Return whether there is this notebook already; if so, note which one is graded.

        Two with exact names are the learner's attempts, or copies in folders. Of others, if they differ, the instructor
        has to decide which one is meant. path: None for one that is still in an archive.
        """
        submission = self.work.submissions.get((learner, assignment))
        if submission is None or name not in submission.notebooks:
            return False
        first = submission.notebooks[name]
        shown = _below(first, learner)
        if path and (path in self.unsure) != (first in self.unsure):
            other = shown if first in self.unsure else inside
            submission.note(f"{other} was not graded: it has no check of this course, and there is another file.")
            return path in self.unsure
        if first not in self.guessed and path not in self.guessed:
            packed = any(map(_is_zip, inside.parts[:-1])) and not any(map(_is_zip, shown.parts[:-1]))
            reason = "is not in an archive" if packed else "is closer to the top"
            reason = "is a later attempt" if _attempt(first.name) else reason
            submission.note(f"{inside} was not graded: there is also {shown}, which {reason}.")
        elif path and _same(first, path):
            submission.note(f"{inside} was not graded: it is the same as {shown}.")
        else:
            submission.undecided = (
                f"{inside} and {shown} are both for {assignment}/{name}.ipynb, and differ. Decide which one counts: "
                "remove the other, and grade again."
            )
        return True

    def _notebook(self, learner: str, path: Path, inside: Path, as_expected: bool) -> None:
        place = self._named(inside, as_expected)
        if place is None:
            if (place := self._guessed(learner, path, inside)) is None:
                self.work.note(learner, self._unknown(inside))
                return
            self.guessed.add(path)
        if self._filed(learner, path, inside, *place):
            return
        assignment, name = place
        submission = self.work.submissions.setdefault((learner, assignment), Submission(learner, assignment))
        expected = f"{assignment}/{name}.ipynb"
        if path in self.guessed or (not as_expected and inside.parts != (assignment, path.name)):
            submission.note(f"Taken from {inside} (expected: {expected}).")
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


def _same(one: Path, other: Path) -> bool:
    """Return whether two submitted files have the same bytes."""
    try:
        return files.read_bytes(one) == files.read_bytes(other)
    except UnreadableError:
        return False


def _below(path: Path, learner: str) -> Path:
    """Return a path as the learner knows it: relative to the learner's folder if it is in there."""
    parts = path.parts
    return Path(*parts[parts.index(learner) + 1 :]) if learner in parts else Path(path.name)
