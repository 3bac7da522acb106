"""Locks: one grading at a time writes into a folder of results; and who holds a lock that this process waits for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from autograder.grading import files

#: The file in a folder of results that is locked while they are written. It stays there.
LOCK = "grading.lock"
#: Seconds of waiting after which a message says for whom.
QUIET_SECONDS = 5.0


class LockedError(Exception):
    """Another process writes into a folder of results. The message names it."""


@contextlib.contextmanager
def only_grader(folder: Path) -> Iterator[None]:
    """Keep other gradings out of a folder of results, which is created if needed.

    Raises LockedError if another grading holds it, and OSError if it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{folder} is in use: {lock.read() or 'another process'} is grading into it. Wait until that has "
                "ended, or grade into another folder (PASSLAB_RUN=folder passlab grade …)."
            ) from None
        lock.truncate()
        lock.write(process(os.getpid()))
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


def process(pid: int) -> str:
    """Return what people know a process by: its id, its command without passwords, and when it started."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return f"process {pid}"
    if len(words) > 1 and Path(words[0]).name.startswith("python") and words[1] != "-c":
        words = words[2:] if words[1] == "-m" else words[1:]
    words[:1] = [Path(word).name for word in words[:1]]
    command = re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", shlex.join(words))
    command = files.printable(re.sub(r"(password=)[^&\s']*", r"\1***", command))
    return f"process {pid} ({command}, since {datetime.fromtimestamp(time.time() - age):%Y-%m-%d %H:%M})"


def holders(path: str | Path) -> str:
    """Return the other processes that have locked a file; "" if none is known."""
    try:
        about = os.stat(path)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return ""
    file = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    rows = [line.split() for line in lines if "->" not in line]  # "->": it waits for the lock itself
    pids = {int(row[4]) for row in rows if row[5] == file} - {os.getpid()}
    return " and ".join(map(process, sorted(pids)))


@contextlib.contextmanager
def naming_holders(path: str | Path, seconds: float) -> Iterator[None]:
    """While the code inside waits for a locked file, at most `seconds`, print once for whom."""

    def tell() -> None:
        if names := holders(path):
            print(f"Waiting for {path}, which is locked by {names}; for {seconds:.0f} s at most.", file=sys.stderr)

    timer = threading.Timer(QUIET_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
