"""What a class may have, in one folder or zip file: `passlab bundle FOLDER`.

README.md, Makefile        of the learners' own (`autograder/authoring/learner`)
pyproject.toml             the pinned versions, which set-up installs
lib/passlab-….whl          the library: visible cases and judges, but not the instructor's part, hidden cases or answers
lib/setup.sh               the same set-up as the project's
course/, exercises/        lessons and exercises, as they are released
solutions/day01/           only of days whose solutions are released; others.json has other right answers

A bundle can be written over an earlier one: files that it no longer has go, and what else is in the folder (`work/`,
`.venv/`, `.git/`) stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

from autograder.authoring import fresh, source
from passlab import course_paths, exercises
from passlab.notebook import others

LEARNER = Path(__file__).with_name("learner")
#: The list of its own files that a bundle has, by which it is recognized.
CONTENTS = ".passlab-bundle"
#: What learners' repositories do not track.
IGNORED = ".venv/\n/work/\n__pycache__/\n.ipynb_checkpoints/\n"
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
#: The dates of files in wheel and zip, so that the same content makes the same bytes: 1980-01-01, the first of zip.
_DATE = 315_532_800


class BundleError(Exception):
    """Why a bundle cannot be written, and what to do about it."""


def make(target: Path, days: Collection[str], solutions: Collection[str] = ()) -> list[str]:
    """Write the bundle of some days into a folder, or into a zip file if the name ends in .zip. Return its files.

    solutions: the days whose solutions it has. Raises BundleError.
    """
    if problems := [line for line in fresh.build() if "cannot be built" in line]:
        raise BundleError(problems[0])
    for path in sorted(source.COURSE.glob("course/*.py")):
        if not path.with_suffix(".ipynb").exists():
            raise BundleError(f"course/{path.stem}.ipynb is missing. Run `passlab release`, then this again.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "passlab-course")
        _fill(folder, set(days), set(solutions))
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        (folder / CONTENTS).write_text("\n".join(files) + "\n", encoding="utf-8")
        if target.suffix.lower() == ".zip":
            _zip(folder, target)
        else:
            _replace(folder, target)
    return files


def _fill(folder: Path, days: set[str], solutions: set[str]) -> None:
    shutil.copytree(LEARNER, folder)
    (folder / "lib").mkdir()
    shutil.copy(source.ROOT / "lib/setup.sh", folder / "lib")
    shutil.copy(source.ROOT / "LICENSE", folder)
    (folder / ".gitignore").write_text(IGNORED, encoding="utf-8")
    (folder / "pyproject.toml").write_text(_pins(), encoding="utf-8")
    _build_wheel(folder / "lib", days)
    for path in sorted(source.COURSE.glob("course/*.ipynb")):
        if path.stem.partition("_")[0] in days or not path.stem.startswith("day"):
            _copy(path, folder)
    if (pictures := source.COURSE / "course/pictures").is_dir():
        shutil.copytree(pictures, folder / "course/pictures")
    (folder / "course").mkdir(exist_ok=True)
    for day in sorted(days):
        for path in sorted(source.COURSE.glob(f"exercises/{day}/*.ipynb")):
            _copy(path, folder)
    for day in sorted(solutions):
        for path in source.notebooks(day):
            _copy(path, folder)
            _copy(path.with_suffix(".ipynb"), folder)
        bank = {e.id: others.in_bank(source.COURSE / "autograder/answers", e.id) for e in exercises.of_day(day)}
        text = json.dumps({name: answers for name, answers in bank.items() if answers}, indent=1)
        (folder / "solutions" / day / others.RELEASED).write_text(text + "\n", encoding="utf-8")


def _copy(path: Path, folder: Path) -> None:
    target = folder / path.relative_to(source.COURSE)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def _project() -> dict:
    return tomllib.loads((source.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _pins() -> str:
    """Return the pyproject.toml of a bundle, from which set-up reads what to install."""
    project = _project()
    rows = "".join(f"    {_quoted(pin)},\n" for pin in project["dependencies"])
    return (
        f'[project]\nname = "passlab-course"\nversion = "{project["version"]}"\n'
        f'requires-python = "{project["requires-python"]}"\ndependencies = [\n{rows}]\n'
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _build_wheel(target: Path, days: set[str]) -> None:
    """Build the wheel of the library, with the exercises of these days. Its version ends in a digest of its files."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "tree")
        library = tree / "passlab"
        shutil.copytree(source.ROOT / "lib/passlab", library, ignore=_SKIPPED)
        for package in ("exercises", "given"):
            if own := course_paths.package_dirs(f"lib/passlab/{package}"):
                shutil.copytree(own[0], library / package, ignore=_SKIPPED, dirs_exist_ok=True)
            for folder in library.glob(f"{package}/day*"):
                if folder.name not in days:
                    shutil.rmtree(folder)
        project = _project() | {"version": f"{_project()['version']}+{_digest(library)}"}
        (tree / "pyproject.toml").write_text(_build_file(project), encoding="utf-8")
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(_DATE)}
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
        process = subprocess.run([*command, "-w", target, tree], env=environment, capture_output=True, text=True)
        if process.returncode:
            raise BundleError(f"The wheel cannot be built: {(process.stderr.strip() or 'pip said nothing')[-800:]}")


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _build_file(project: dict) -> str:
    """Return what the wheel is built by: the project's, without the instructor's extras and commands."""
    data = tomllib.loads((source.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    files = ", ".join(map(_quoted, data["tool"]["setuptools"]["package-data"]["passlab"]))
    pins = "".join(f"    {_quoted(pin)},\n" for pin in project["dependencies"])
    return (
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
        f'[project]\nname = "passlab"\nversion = "{project["version"]}"\nlicense = "{project["license"]}"\n'
        f'description = {_quoted(project["description"])}\nrequires-python = "{project["requires-python"]}"\n'
        f'dependencies = [\n{pins}]\n\n[project.scripts]\npasslab = "passlab.cli:main"\n\n'
        f'[tool.setuptools.packages.find]\ninclude = ["passlab*"]\n\n'
        f"[tool.setuptools.package-data]\npasslab = [{files}]\n"
    )


def _zip(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder.parent).as_posix(), (1980, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


def _replace(folder: Path, target: Path) -> None:
    """Write the bundle into a folder: a new or an empty one, or one that holds an earlier bundle."""
    if target.exists() and not target.is_dir():
        raise BundleError(f"{target} is a file. Name a folder, or a file that ends in .zip.")
    present = [path.name for path in target.iterdir()] if target.exists() else []
    if present and set(present) != {".git"} and CONTENTS not in present:
        some = ", ".join(sorted(present)[:3])
        raise BundleError(f"{target} has files ({some}) and is not a bundle. Name another folder.")
    for name in _earlier(target):
        (target / name).unlink(missing_ok=True)
    shutil.copytree(folder, target, dirs_exist_ok=True)


def _earlier(target: Path) -> Iterator[str]:
    """Yield the files of an earlier bundle in a folder."""
    try:
        names = (target / CONTENTS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for name in names:
        if name and ".." not in Path(name).parts and not Path(name).is_absolute():
            yield name
