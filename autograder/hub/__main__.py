"""`make hub`: JupyterHub for an instructor and the learners of a roster. It runs as root, because each learner is a
system user: `sudo make hub ROSTER=roster.csv`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from autograder.authoring import fresh
from autograder.grading.intake import UnreadableError
from autograder.grading.roster import read_roster
from autograder.hub import accounts
from autograder.hub.accounts import Refused
from passlab import course_paths

PROXY = "configurable-http-proxy@5.3.0"


def proxy() -> None:
    """Install configurable-http-proxy into the project's own folder if it is not there. Raise Refused if it cannot."""
    at = course_paths.PROJECT / ".venv/hub"
    if (at / "node_modules/.bin/configurable-http-proxy").exists():
        return
    for name in ("node", "npm"):
        if not shutil.which(name):
            raise Refused(f"JupyterHub's proxy needs Node.js, and {name} is not on the PATH (Debian: apt install npm).")
    at.mkdir(parents=True, exist_ok=True)
    words = ["npm", "install", "--prefix", str(at), "--no-audit", "--no-fund", "--ignore-scripts", PROXY]
    process = subprocess.run(words, capture_output=True, text=True)
    if process.returncode:
        raise Refused(
            f"npm could not install {PROXY}: {(process.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
        )


def prepare(roster: Path | None) -> list[str]:
    """Check this machine and make the accounts; return what to tell. Raise Refused if the hub cannot run here."""
    if os.geteuid() != 0:
        raise Refused(
            "The hub keeps learners apart as system users, which only root can make. Run `make setup` as yourself, "
            "then `sudo make hub`."
        )
    for name, package in (("bwrap", "bubblewrap"), ("setpriv", "util-linux"), ("useradd", "passwd")):
        accounts.program(name, package)
    proxy()
    try:
        learners = None if roster is None else [(one.id, one.section) for one in read_roster(roster).values()]
    except (OSError, UnreadableError) as error:
        raise Refused(f"The roster {roster} cannot be read: {error}") from None
    new = accounts.enter(learners)
    notes = [f"The instructor is {accounts.instructor()}, the owner of {course_paths.PROJECT}."]
    if new:
        notes.append(f"New accounts: {', '.join(one.id for one in new)}.")
    notes.append(f"Passwords are in {accounts.folder() / 'accounts.csv'}, which only root can read.")
    if not fresh.is_fresh():
        notes.append("The exercises are older than their sources: run `make notebooks` as yourself.")
    if len(accounts.read()) == 1:
        notes.append("There is no learner yet: make hub ROSTER=roster.csv, with the columns id and section.")
    return notes


def main(arguments: list[str]) -> int:
    try:
        print("\n".join(prepare(Path(arguments[0]) if arguments else None)), flush=True)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    config = Path(__file__).with_name("jupyterhub_config.py")
    os.chdir(accounts.folder() / "hub")
    os.execv(sys.executable, [sys.executable, "-m", "jupyterhub", "-f", str(config)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
