"""Who may log in to the hub, and the folders that this takes.

Everything lies in one folder, /srv/passlab or the one that PASSLAB_HUB names:

    accounts.csv     id, section and password of each person; only root can read it
    homes/ID         a learner's home folder, which belongs to the system user of that name
    exchange/COURSE  nbgrader's exchange, one course for each section
    hub/             the hub's own state; only root can read it
"""

from __future__ import annotations

import contextlib
import csv
import os
import pwd
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from passlab import course_paths

_ID, _SECTION = re.compile(r"[a-z_][a-z0-9_-]{0,30}"), re.compile(r"[a-z0-9-]{0,30}")
_PROGRAMS = "/usr/sbin:/sbin:/usr/bin:/bin"
#: Learners write their home folders, ~/.ssh/authorized_keys included: no other service lets them in past the hub.
_NO_LOGIN = "/usr/sbin/nologin"


class Refused(ValueError):
    """A roster or a machine that cannot be used; the message is a sentence for the person who runs the hub."""


class Account(NamedTuple):
    id: str
    section: str
    password: str


def folder() -> Path:
    return Path(os.environ.get("PASSLAB_HUB", "/srv/passlab"))


def instructor() -> str:
    """Return the instructor: the system user to whom the project belongs."""
    return pwd.getpwuid(course_paths.PROJECT.stat().st_uid).pw_name


def home(learner: str) -> Path:
    return folder() / "homes" / learner


def course_id(section: str) -> str:
    """Return nbgrader's course of a section; learners without a section are in the course "passlab"."""
    return f"passlab-{section}" if section else "passlab"


def read() -> dict[str, Account]:
    """Return id → account of everybody who may log in; empty before the first start."""
    path = folder() / "accounts.csv"
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as lines:
        return {row["id"]: Account(**row) for row in csv.DictReader(lines)}


def program(name: str, package: str) -> str:
    """Return the path of a system program. Raise Refused where it is missing, with the Debian package that has it."""
    executable = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_PROGRAMS}")
    if executable is None:
        raise Refused(f"The hub needs {name}, which this machine lacks (Debian: apt install {package}).")
    return executable


def enter(roster: Iterable[tuple[str, str]] | None) -> list[Account]:
    """Let the instructor and the learners of a roster, (id, section), log in, and no one else; None keeps the learners.

    Make what they lack: system users, home folders, passwords, the exchange. Return the new accounts. Raise Refused
    before anything is made if an id cannot be a system user, or is one that has nothing to do with the hub.
    """
    check_instructor(instructor())
    known = read()
    members = [(one.id, one.section) for one in known.values() if one.id != instructor()]
    learners = dict(members if roster is None else roster)
    for learner, section in learners.items():
        _check(learner, section)
    (folder() / "homes").mkdir(parents=True, exist_ok=True)
    (folder() / "hub").mkdir(mode=0o700, exist_ok=True)
    for learner in learners:
        _system_user(learner)
    for section in {"", *learners.values()}:
        _exchange(course_id(section))
    everybody = [
        Account(id, section, known[id].password if id in known else secrets.token_urlsafe(12))
        for id, section in {instructor(): "", **learners}.items()
    ]
    _write(everybody)
    return [account for account in everybody if account.id not in known]


def check_instructor(name: str) -> None:
    """Raise Refused if the hub would take a learner for the instructor, who is its administrator."""
    if name != name.lower():
        raise Refused(
            f"The instructor is {name}, and JupyterHub writes every name in lower case: whoever is called "
            f"{name.lower()} would be the instructor. Choose a name without capitals."
        )


def check_names(learner: str, section: str) -> None:
    """Raise Refused if an id cannot name a system user, or a section a folder."""
    if not _ID.fullmatch(learner):
        raise Refused(
            f"{learner!r} on the roster cannot be a system user: use up to 31 lower-case letters, digits, - and _."
        )
    if not _SECTION.fullmatch(section):
        raise Refused(f"{learner}'s section {section!r} cannot name a folder: use lower-case letters, digits and -.")


def _check(learner: str, section: str) -> None:
    check_names(learner, section)
    try:
        user = pwd.getpwnam(learner)
    except KeyError:
        return
    if Path(user.pw_dir) != home(learner):
        raise Refused(f"{learner} on the roster is a system user of this machine already: choose another id.")


def _system_user(learner: str) -> None:
    """Make a system user without a password or a login shell, with a home folder that no other learner can read."""
    at = home(learner)
    try:
        if pwd.getpwnam(learner).pw_shell != _NO_LOGIN:
            _call("usermod", ["--shell", _NO_LOGIN], learner)
    except KeyError:
        words = ["--create-home", "--home-dir", str(at), "--user-group", "--shell", _NO_LOGIN, "--comment", "PassLab"]
        _call("useradd", words, learner)
    user = pwd.getpwnam(learner)
    at.mkdir(exist_ok=True)
    handle = os.open(at, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in ("course", "work"):
            _own_folder(handle, name, user)
        os.fchown(handle, user.pw_uid, user.pw_gid)
        os.fchmod(handle, 0o700)
    finally:
        os.close(handle)


def _call(name: str, words: list[str], learner: str) -> None:
    """Make or change a system user. Raises Refused."""
    command = [program(name, "passwd"), *words, learner]
    process = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if process.returncode:
        raise Refused(f"The system user {learner} cannot be made: {process.stderr.strip()}") from None


def _own_folder(home: int, name: str, user: pwd.struct_passwd) -> None:
    """Make a folder in an open home folder, and give it to its owner.

    The owner may have put a link in its place, to a folder that root would then give away: what is no folder goes.
    """
    for _ in range(2):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=home)
        try:
            handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=home)
        except OSError:
            os.unlink(name, dir_fd=home)
            continue
        os.fchown(handle, user.pw_uid, user.pw_gid)
        os.close(handle)
        return
    raise Refused(f"{user.pw_dir}/{name} is no folder, and comes back: look at what {user.pw_name} runs.")


def _exchange(course: str) -> None:
    """Make nbgrader's exchange. Sticky bits keep learners from renaming what others have put there."""
    owner = course_paths.PROJECT.stat()
    root = folder() / "exchange"
    for path, mode in (
        (root, 0o1777),
        (root / course, 0o755),
        (root / course / "outbound", 0o755),
        (root / course / "inbound", 0o3733),
        (root / course / "feedback", 0o711),
    ):
        path.mkdir(exist_ok=True)
        os.chown(path, owner.st_uid, owner.st_gid)
        path.chmod(mode)


def _write(accounts: list[Account]) -> None:
    path = folder() / "accounts.csv"
    fresh = path.with_suffix(".new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", newline="", encoding="utf-8") as out:
        lines = csv.writer(out)
        lines.writerow(Account._fields)
        lines.writerows(accounts)
    fresh.replace(path)
