"""Grading on several machines: notebooks are sent to the workers of a Dask cluster.

Set up the project on each machine (`make setup`) and start a Dask worker in its folder:
`.venv/bin/dask worker tcp://scheduler:8786 --nworkers 1 --nthreads 4`. Each worker runs its own engine, sandbox
included; only jobs and results travel, as JSON. The gradebook stays on this machine.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from dataclasses import asdict
from functools import cache

from autograder.authoring import source
from autograder.engine.data import Cell, Job, NotebookResult, from_json, to_json
from autograder.engine.engine import Engine, Unsafe

#: The files that scores depend on: a worker whose copies differ would grade differently.
DECIDES = ("lib/passlab/**/*.py", "autograder/**/*.py", "solutions/**/*.py", "pyproject.toml")
#: How often a notebook is sent to another machine after its machine died.
RETRIES = 3

_starting = threading.Lock()


class NoCluster(Exception):
    """The cluster cannot be used. The message tells why and what to do."""


def edition() -> str:
    """Return a digest of all files that scores depend on."""
    told = hashlib.sha256()
    for path in sorted(p for pattern in DECIDES for p in source.ROOT.glob(pattern)):
        if "tests" not in path.parts:
            told.update(f"{path.relative_to(source.ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return told.hexdigest()[:16]


@cache
def _engine(unsafe: bool) -> Engine:
    """Return this worker's engine, which lives as long as the worker's process."""
    return Engine(unsafe=unsafe)


def grade_here(job: str, unsafe: bool, wanted: str) -> str:
    """Grade one notebook with this machine's engine; called by a Dask worker. Job and result are JSON.

    wanted: the sender's `edition`. Raises NoCluster if this machine's copy of the course differs.
    """
    if edition() != wanted:
        raise NoCluster(f"{socket.gethostname()} has another edition of the course. Update it and restart its worker.")
    with _starting:
        engine = _engine(unsafe)
    data = json.loads(job)
    data["cells"] = tuple(Cell(**cell) for cell in data["cells"])
    return json.dumps(to_json(engine.grade(Job(**data))))


class Cluster:
    """A Dask cluster with the interface of Engine: `jobs` and `grade`. Raises NoCluster if it cannot be used."""

    def __init__(self, address: str, unsafe: bool = False):
        from distributed import Client

        if not re.fullmatch(r"[a-z]+://.+:\d+", address):
            raise NoCluster(f"{address} is not the address of a Dask scheduler. Expected a form like tcp://host:8786.")
        try:
            self.client = Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise NoCluster(f"No Dask scheduler answers at {address}: {error}") from None
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            self.client.close()
            raise NoCluster(f"The scheduler at {address} has no workers. Start one with: dask worker {address}")
        self.jobs = sum(worker["nthreads"] for worker in workers.values())
        self.unsafe, self.edition = unsafe, edition()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_) -> None:
        self.client.close()

    def grade(self, job: Job) -> NotebookResult:
        """Grade on any free machine; if it dies, the notebook goes to another one."""
        from distributed import KilledWorker

        future = self.client.submit(
            grade_here, json.dumps(asdict(job)), self.unsafe, self.edition, pure=False, retries=RETRIES
        )
        try:
            return from_json(json.loads(future.result()))
        except (KilledWorker, NoCluster, Unsafe) as error:
            failure = str(error).split("\n")[0]
            return NotebookResult(job.learner, job.assignment, job.notebook, job.seed, failure=failure)
