"""The project's git clone: which files have changes of their own, and how it gets the newest version."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from passlab.notebook import built

#: Folders with notebooks that can be run and saved where they are.
_NOTEBOOKS = ("course", "exercises", "solutions")


class UpdateError(Exception):
    """Why the clone cannot be updated, and what to do about it."""


def _git(folder: Path, *words: str) -> str:
    """Return what a git command prints. Raises UpdateError with git's own words."""
    try:
        result = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        raise UpdateError("git is not installed, or not on the PATH.") from None
    if result.returncode:
        raise UpdateError(f"`git {words[0]}` failed: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def _paths(folder: Path, *words: str) -> list[str]:
    """Return the paths that `git diff` lists, relative to a folder."""
    return _git(folder, "diff", "--name-only", "--no-renames", "--relative", "-z", *words).split("\0")[:-1]


def modified(folder: Path) -> list[str]:
    """Return the tracked files below a folder that differ from their last commit; [] if there is no clone."""
    try:
        return _paths(folder, "HEAD")
    except UpdateError:
        return []


def pull(project: Path) -> Iterator[str]:
    """Move a clone forward to the commit of its upstream. Yield a line for each thing done, to be shown.

    Notebooks that were saved where the new version changes them are moved into `work/` first. Raises UpdateError
    before anything is changed if there is no upstream, or files and commits of the clone's own are in the way.
    """
    upstream = _upstream(project)
    _git(project, "fetch", "--quiet")
    own, new = (int(n) for n in _git(project, "rev-list", "--left-right", "--count", f"HEAD...{upstream}").split())
    if not new:
        yield f"{upstream} has nothing new."
        return
    if own:
        log = _git(project, "log", "--format=%h %s", f"{upstream}..HEAD").splitlines()
        raise UpdateError(
            f"This clone has commits that {upstream} does not have: {'; '.join(log[:5])}{'; …' if own > 5 else ''}. "
            "Run `git pull --rebase --autostash` to put them on top of the new version."
        )
    for path in _in_the_way(project, upstream):
        target = copy_to_work(project, path)
        _git(project, "checkout", "--quiet", "--", path)
        yield f"{path} was saved with changes, and the new version changes it too. Yours is now {target}."
    _git(project, "merge", "--quiet", "--ff-only", upstream)
    head = _git(project, "log", "-1", "--format=%h of %cs").strip()
    yield f"Updated to {head}: {new} new commit{'s' if new > 1 else ''}."


def _upstream(project: Path) -> str:
    """Return the name of the branch that the clone follows, such as origin/main."""
    try:
        top = Path(_git(project, "rev-parse", "--show-toplevel").strip())
    except UpdateError as error:
        if "not a git repository" not in str(error):
            raise
        top = None
    if top is None or top.resolve() != project.resolve():
        raise UpdateError(
            f"{project} is not a git clone, so it cannot be updated in place. If you were given a zip file, unpack the "
            "newest one into the same place; else clone the project anew, and copy your folder `work` into the clone."
        )
    try:
        return _git(project, "rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}").strip()
    except UpdateError:
        raise UpdateError(
            "The branch of this clone follows no other, so there is nothing to update from. `git branch -vv` lists the "
            "branches; go to the right one (`git switch main`) or name its origin (`git branch -u origin/main`)."
        ) from None


def _in_the_way(project: Path, upstream: str) -> list[str]:
    """Return the saved notebooks to move before the update. Raises UpdateError for files that only their owner can."""
    new = set(_paths(project, "HEAD", upstream))
    changed, staged = set(_paths(project, "HEAD")) & new, set(_paths(project, "--cached", "HEAD")) & new
    added = _paths(project, "--diff-filter=A", "HEAD", upstream)
    if untracked := sorted(path for path in added if os.path.lexists(project / path)):
        raise UpdateError(
            f"The new version brings files for which you have your own of that name: {', '.join(untracked)}. "
            "Rename yours, then update again."
        )
    present = {path for path in changed if (project / path).exists()}
    notebooks = present.union(built.saved(project))
    saved = {path for path in present - staged if path.split("/")[0] in _NOTEBOOKS and _is_saved(Path(path), notebooks)}
    if others := sorted(changed - saved):
        raise UpdateError(
            f"You have changed files that the new version changes too: {', '.join(others)}. Put your changes away "
            f"(`git stash push -- {' '.join(others)}`), update again, then bring them back (`git stash pop`)."
        )
    return sorted(saved)


def _is_saved(path: Path, notebooks: set[str]) -> bool:
    """Return whether a changed file is a notebook, or the .py that JupyterLab saves with one of these."""
    return path.suffix == ".ipynb" or (path.suffix == ".py" and str(path.with_suffix(".ipynb")) in notebooks)


def copy_to_work(project: Path, path: str) -> Path:
    """Copy a saved file into `work/`, under a free name that says where it was. Return that path."""
    folder, *day, name = Path(path).parts
    stem, suffix = f"{Path(name).stem}.saved-in-{folder}", Path(name).suffix
    target = Path("work", *(day or [folder]), stem + suffix)
    number = 1
    (project / target).parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            with (project / target).open("xb") as out:
                out.write((project / path).read_bytes())
            return target
        except FileExistsError:
            number += 1
            target = target.with_name(f"{stem}-{number}{suffix}")
