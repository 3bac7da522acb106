"""The learner's own copies of lessons and exercises, in `work/`. What a learner wrote is never overwritten.

course/day03_optimizations.ipynb       → work/course/day03_optimizations.ipynb
exercises/day03/optimizations.ipynb    → work/day03/optimizations.ipynb

A copy carries in its metadata a digest of its text and code as they were copied (`passlab.copied`). As long as they
still have it, whatever was run and saved, a newer release takes the place of the copy. `python -m
passlab.notebook.workspace` has the exercises built, makes the copies, and says which.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

from passlab.notebook import built, clone
from passlab.notebook.project import root as course_root

_LINK = re.compile(r"""(\]\(|(?:src|href)=")(?![a-z]+:|[#/])([^)"\s#]+)""")


def _digest(nb: dict) -> str:
    """Return a digest of a notebook's text and code. Outputs, metadata and empty cells do not count."""
    texts = [[cell["cell_type"], "".join(cell["source"])] for cell in nb["cells"]]
    return hashlib.sha256(json.dumps([text for text in texts if text[1].strip()]).encode()).hexdigest()[:12]


def _stamp(nb: dict, key: str) -> str | None:
    return nb["metadata"].get("passlab", {}).get(key)


def _read(path: Path) -> dict | None:
    """Return a notebook, or None if the file cannot be read as one."""
    try:
        nb = json.loads(path.read_text(encoding="utf-8"))
        _digest(nb), _stamp(nb, "copied")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return nb


def _untouched(nb: dict) -> bool:
    return _stamp(nb, "copied") == _digest(nb)


def _language() -> dict:
    """Return what JupyterLab writes about the language into a notebook that it opens with this Python's kernel."""
    from ipykernel.ipkernel import IPythonKernel  # takes a while, and is needed only where something is copied

    return IPythonKernel.language_info


def _write(nb: dict, target: Path, replace: bool = False) -> None:
    """Write a notebook atomically, ready to be opened: if JupyterLab had to add the language, what was only opened
    would count as changed. Raises FileExistsError if there is a file that it is not to replace.
    """
    nb["metadata"]["language_info"] = _language()
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    handle, fresh = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(fresh, 0o644)
        if replace:
            os.replace(fresh, target)
            return
        try:
            os.link(fresh, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            with target.open("x", encoding="utf-8") as out:
                out.write(text)
    finally:
        Path(fresh).unlink(missing_ok=True)


def _relocate(text: str, source: Path, copies: dict[Path, Path]) -> str:
    """Return the Markdown of a copy: its links lead to other copies, and to the same pictures as in the source."""

    def link(match: re.Match) -> str:
        goal = Path(os.path.normpath(source.parent / match[2]))
        if goal not in copies and goal not in copies.values() and not goal.exists():
            return match[0]
        return match[1] + os.path.relpath(copies.get(goal, goal), copies[source].parent)

    return _LINK.sub(link, text)


def _copy_of(source: Path, copies: dict[Path, Path]) -> dict | None:
    """Return a notebook as it goes into `work/`; None if it cannot be read."""
    if (nb := _read(source)) is None:
        return None
    nb["metadata"].pop("jupytext", None)  # only the source is half of a pair
    for cell in nb["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = _relocate("".join(cell["source"]), source, copies).splitlines(keepends=True)
    nb["metadata"].setdefault("passlab", {})["copied"] = _digest(nb)
    return nb


def _beside(nb: dict, target: Path) -> Path | None:
    """Put a newer release beside a copy, in place of older ones that are untouched. None if it is there already."""
    beside = target.with_name(f"{target.stem}.release-{_stamp(nb, 'release') or _stamp(nb, 'copied')}.ipynb")
    if beside.exists():
        return None
    _write(nb, beside)
    for older in target.parent.glob(f"{target.stem}.release-*.ipynb"):
        if older != beside and (old := _read(older)) and _untouched(old):
            older.unlink()
    return beside


def build() -> list[str]:
    """Have the exercises built that are missing or outdated. Return lines to be shown.

    What builds them is the instructor's part of the project, which names itself in the group `passlab.builds`. Learners
    who do not have it were given the exercises.
    """
    lines = []
    for point in entry_points(group="passlab.builds"):
        with contextlib.suppress(ModuleNotFoundError):
            lines += point.load()()
    return lines


def prepare(root: Path) -> list[str]:
    """Copy the lessons and exercises that are not in `root/work` yet, and bring newer releases of the others.

    Return lines about what was done, to be shown. Raises OSError if `work` cannot be written.
    """
    copies = {path: root / "work/course" / path.name for path in sorted(root.glob("course/*.ipynb"))}
    exercises = sorted(root.glob("exercises/day*/*.ipynb"))
    copies |= {path: root / "work" / path.parent.name / path.name for path in exercises}
    changed = {root / path for path in (*clone.modified(root), *built.saved(root))}
    fresh, replaced, notes = [], [], []
    for source, target in copies.items():
        name = str(target.relative_to(root))
        if (nb := _copy_of(source, copies)) is None:
            notes.append(f"{source.relative_to(root)} is not a notebook: restore it, for example by `git checkout`.")
        elif not target.exists():
            if source in changed:  # nobody else has this text, so the copy is never replaced
                del nb["metadata"]["passlab"]["copied"]
            _write(nb, target)
            fresh.append(name)
        elif source in changed or ((copied := _read(target)) and _is_release(copied, nb)):
            continue
        elif copied and _untouched(copied):
            _write(nb, target, replace=True)
            replaced.append(name)
        elif beside := _beside(nb, target):
            notes.append(
                f"There is a newer release of {name}. Yours is untouched; the new one is {beside.name} beside it."
            )
    if replaced:
        notes.insert(0, f"Newer releases have replaced copies in which you had written nothing: {', '.join(replaced)}.")
    if fresh:
        names = ", ".join(fresh) if len(fresh) < 6 else f"{len(fresh)} notebooks in work/"
        notes.insert(0, f"These are your copies of new lessons and exercises: {names}.")
    return notes


def _is_release(copied: dict, nb: dict) -> bool:
    """Return whether a copy was made from this release, or its owner has brought it up to it."""
    same = [key for key in ("copied", "release") if _stamp(copied, key) and _stamp(copied, key) == _stamp(nb, key)]
    return bool(same) or _digest(copied) == _digest(nb)


def writable_home() -> None:
    """Give Jupyter, IPython and matplotlib a folder until this process ends if the home folder is read-only."""
    home = Path(os.path.expanduser("~"))
    if os.access(home, os.W_OK):
        return
    spare = Path(tempfile.mkdtemp(prefix="passlab-"))
    atexit.register(shutil.rmtree, spare, ignore_errors=True)
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        os.environ.setdefault(name, str(spare / name.lower()))
    os.environ.setdefault("XDG_CACHE_HOME", str(spare / "cache"))


if __name__ == "__main__":
    folder = course_root()
    for line in (*build(), *(prepare(folder) if folder else ())):
        print(line)
