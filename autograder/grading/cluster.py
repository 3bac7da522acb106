"""Grading on many machines: the same class run, with notebooks sent to the workers of a Dask cluster.

A worker machine needs the project set up as here (`make setup`) and a Dask worker started in its folder:
`.venv/bin/dask worker tcp://scheduler:8786 --nworkers 1 --nthreads 4`. Each runs an engine of its own, sandbox and all;
what travels is a job and its result, as JSON. The gradebook stays here.
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

#: What decides about scores: a worker whose copy of it differs would grade something else.
DECIDES = ("lib/passlab/**/*.py", "autograder/**/*.py", "solutions/**/*.py", "pyproject.toml")
#: A notebook whose worker machine died is given to another one this often.
RETRIES = 3

_starting = threading.Lock()


class NoCluster(Exception):
    """The cluster cannot be used. The message says why and what to do."""


def edition() -> str:
    """A digest of everything that decides about scores, tests excluded."""
    told = hashlib.sha256()
    for path in sorted(p for pattern in DECIDES for p in source.ROOT.glob(pattern)):
        if "tests" not in path.parts:
            told.update(f"{path.relative_to(source.ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return told.hexdigest()[:16]


@cache
def _engine(unsafe: bool) -> Engine:
    """This worker machine's engine, for as long as its process lives."""
    return Engine(unsafe=unsafe)


def grade_here(job: str, unsafe: bool, wanted: str) -> str:
    """Run by a Dask worker: grade one notebook with this machine's engine. Job and result are JSON."""
    if edition() != wanted:
        raise NoCluster(f"{socket.gethostname()} has another edition of the course: update it and restart its worker.")
    with _starting:
        engine = _engine(unsafe)
    data = json.loads(job)
    data["cells"] = tuple(Cell(**cell) for cell in data["cells"])
    return json.dumps(to_json(engine.grade(Job(**data))))


class Cluster:
    """A Dask cluster with the engine's face: `jobs` and `grade`. Raises NoCluster."""

    def __init__(self, address: str, unsafe: bool = False):
        from distributed import Client

        if not re.fullmatch(r"[a-z]+://.+:\d+", address):
            raise NoCluster(f"{address} is no address of a Dask scheduler; expected tcp://host:8786, for example.")
        try:
            self.client = Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise NoCluster(f"No Dask scheduler answers at {address}: {error}") from None
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            self.client.close()
            raise NoCluster(f"The scheduler at {address} has no workers. Start some: dask worker {address}")
        self.jobs = sum(worker["nthreads"] for worker in workers.values())
        self.unsafe, self.edition = unsafe, edition()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_) -> None:
        self.client.close()

    def grade(self, job: Job) -> NotebookResult:
        """Grade on whichever machine is free; a machine that dies meanwhile is replaced by another."""
        from distributed import KilledWorker

        future = self.client.submit(
            grade_here, json.dumps(asdict(job)), self.unsafe, self.edition, pure=False, retries=RETRIES
        )
        try:
            return from_json(json.loads(future.result()))
        except (KilledWorker, NoCluster, Unsafe) as error:
            failure = str(error).split("\n")[0]
            return NotebookResult(job.learner, job.assignment, job.notebook, job.seed, failure=failure)
