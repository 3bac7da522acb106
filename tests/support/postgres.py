"""A real PostgreSQL server of one's own, for tests: in a temporary folder, on a free port of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg


def tool(name: str) -> str:
    """One of the server's programs, on PATH or where Debian's package puts it."""
    found = shutil.which(name) or next(
        (str(p) for p in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None
    )
    assert found, f"These tests start a PostgreSQL server, and there is no {name}: apt install postgresql."
    return found


@dataclass
class Server:
    """A running server. `new()` makes an empty database in it and gives its URL."""

    folder: Path
    port: int
    count: int = 0

    def url(self, database: str) -> str:
        return f"postgresql://grader:secret@127.0.0.1:{self.port}/{database}"

    def new(self, options: str = "") -> str:
        self.count += 1
        name = f"course{self.count}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def socket_url(self, url: str) -> str:
        """The same database through the server's socket in the file system."""
        return f"postgresql://grader@/{url.rsplit('/', 1)[1]}?host={self.folder}&port={self.port}"


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Start a server and stop it again. It refuses to run as root, so there it runs as another user."""
    as_whom = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="passlab-pg-"))
    if as_whom:
        shutil.chown(folder, as_whom["user"], as_whom["group"])
    data = str(folder / "data")

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, **as_whom)
        log = folder / "log"
        assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")

    try:
        run(tool("initdb"), "-D", data, "-U", "grader", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={folder} -c fsync=off"
        run(tool("pg_ctl"), "-D", data, "-l", str(folder / "log"), "-w", "-o", options, "start")
        try:
            yield Server(folder, port)
        finally:
            run(tool("pg_ctl"), "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
