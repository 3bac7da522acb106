"""The ledger: what has been proved as it is now.

`autograder/ledger.json` has a line for each exercise and each notebook: a digest of its files and of all that they
import, with the counts of its last full proof. `passlab prove` writes the line after a proof that holds. `make test`
fails for each that has changed since, and proves a few anew, drawn at random, so that a false ledger does not last.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from autograder.authoring import answers, notebooks, source
from autograder.proofs import imports
from passlab import exercises
from passlab.graph.registry import COMPILERS

LEDGER = source.COURSE / "autograder" / "ledger.json"
#: What proves.
_EXERCISE = ("autograder.proofs.wire",)
_NOTEBOOK = ("autograder.proofs.notebooks", "passlab.notebook.ui")
#: Parts of the engine that a proof imports for their counters, and does not run.
BYSTANDERS = tuple(str(source.ROOT / place) for place in ("autograder/engine/sandbox", "autograder/engine/graphs.py"))
_ID = re.compile(r'"(day\d\d\.[a-z0-9-]+)"')


def names() -> list[str]:
    """Return the ids of all exercises, and the paths of all notebooks in the course: "course/day01_graphs.py"."""
    return _exercise_ids() + [path.relative_to(source.COURSE).as_posix() for path in notebooks.authored_paths()]


def files(name: str) -> set[Path]:
    """Return the files that the proof of an exercise or a notebook depends on. Raises KeyError for an unknown id."""
    if name.endswith(".py"):
        path = source.COURSE / name
        roots = [module for i in _ids(path) for module in _modules(i)]
        return _without_bystanders(imports.closure([*_NOTEBOOK, *roots], [path]))
    exercise = exercises.find(name)
    bank = imports.closure([answers.module_name(exercise.id)])
    solutions = {_solution(i) for i in _exercise_ids() if imports.path_of(answers.module_name(i)) in bank}
    return _without_bystanders(bank | imports.closure([*_EXERCISE, *_modules(exercise.id)], solutions))


def _exercise_ids() -> list[str]:
    return [exercise.id for day in exercises.days() for exercise in exercises.of_day(day)]


def _ids(path: Path) -> list[str]:
    return sorted({*_exercise_ids()} & {*_ID.findall(path.read_text(encoding="utf-8"))})


def _modules(exercise_id: str) -> list[str]:
    """Return the modules of an exercise that learners have, those it closes, which are loaded to do it, and its
    compiler's."""
    exercise = exercises.find(exercise_id)
    own = exercises.module_name(exercise.id)
    compiler = [f"passlab.{exercise.flavour}", f"passlab.{exercise.flavour}.compiler"]
    closed = [name.rsplit(".", parts)[0] for name in exercise.closed for parts in (1, 2)]  # of functions and of methods
    return [own, own.replace(".exercises.", ".given."), *closed, *(compiler if exercise.flavour in COMPILERS else ())]


def _solution(exercise_id: str) -> Path:
    exercise = exercises.find(exercise_id)
    return source.COURSE / "solutions" / exercise.day / f"{exercise.notebook}.py"


def _without_bystanders(paths: Iterable[Path]) -> set[Path]:
    return {path for path in paths if not str(path).startswith(BYSTANDERS)}


@cache
def _content(path: Path) -> bytes:
    """Return what counts of a file: of a module its code, of anything else every byte.

    The comments of a solution divide it into cells and mark its answers, so they count.
    """
    is_module = path.suffix == ".py" and "solutions" not in path.relative_to(_home(path)).parts
    return hashlib.sha256(imports.read(path).code.encode() if is_module else path.read_bytes()).digest()


def _home(path: Path) -> Path:
    return source.COURSE if path.is_relative_to(source.COURSE) else source.ROOT


@cache
def _pins() -> bytes:
    """Return the pinned versions of the packages that proofs run with."""
    project = tomllib.loads((source.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return "\n".join(sorted(project["dependencies"])).encode()


def digest(name: str) -> str:
    """Return the digest of all that the proof of an exercise or a notebook depends on."""
    return digest_of(files(name))


def digest_of(paths: Iterable[Path]) -> str:
    """Return the digest of these files of the project, and of the pinned versions."""
    total = hashlib.sha256(_pins())
    for path in sorted(paths):
        total.update(path.relative_to(_home(path)).as_posix().encode() + b"\0" + _content(path))
    return total.hexdigest()[:16]


def read(path: Path = LEDGER) -> dict[str, dict]:
    """Return name → its line; {} without a ledger. Raises ValueError for one that is not JSON."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def stale(path: Path = LEDGER) -> list[str]:
    """Return the names of what has changed since its proof, or was never proved."""
    lines = read(path)
    return [name for name in names() if lines.get(name, {}).get("digest") != digest(name)]


def record(name: str, proved: str, counts: dict[str, int], path: Path = LEDGER) -> None:
    """Write the line of an exercise or a notebook, and drop the lines of those that the course no longer has.

    proved: the digest when its proof began.
    """
    lines = read(path) | {name: {"digest": proved} | counts}
    rows = (f'"{key}": {json.dumps(lines[key])}' for key in names() if key in lines)
    fresh = path.with_suffix(".tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    fresh.replace(path)
