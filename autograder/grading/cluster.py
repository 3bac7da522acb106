"""Grading on several machines: notebooks are sent to the workers of a Dask cluster.

Set up the project on each machine (`make setup`). `passlab cluster` starts the scheduler here and makes a certificate
for this cluster; with a copy of its folder, `passlab cluster tls://here:8786` starts a worker on another machine. Each
worker runs its own engine, sandbox included; only jobs and results travel, as JSON. The gradebook stays here.

Whoever may speak to a Dask scheduler or worker may run code on it, outside every sandbox. So both sides of each
connection have to show the cluster's certificate (mutual TLS), and a scheduler without is refused unless it is on this
machine, or the instructor insists.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache

from autograder.authoring import source
from autograder.engine import flavours
from autograder.engine.data import Cell, Job, NotebookResult, from_json, to_json
from autograder.engine.engine import Engine, UnsafeSandboxError

#: The files that scores depend on: a worker whose copies differ would grade differently.
DECIDES = ("lib/passlab/**/*.py", "autograder/**/*.py", "solutions/**/*.py", "pyproject.toml")
#: How often a notebook is sent to another machine after its machine died.
RETRIES = 3

_starting = threading.Lock()


#: The certificate of this course's cluster, and its key, which each of its machines has.
CERTIFICATE = "autograder/run/cluster"


class ClusterError(Exception):
    """The cluster cannot be used. The message names the cause and the remedy."""


def certificate(new: bool = False) -> dict[str, str]:
    """Return the files of this cluster's certificate, by Dask's names: ca-file, cert, key.

    new: make one if there is none; it is valid for a year. Raises ClusterError if there is none.
    """
    folder = source.ROOT / CERTIFICATE
    cert, key = folder / "certificate.pem", folder / "key.pem"
    if not (cert.is_file() and key.is_file()):
        if not new:
            raise ClusterError(
                f"This machine has no certificate of the cluster. Copy the folder {CERTIFICATE} from the machine on "
                "which `passlab cluster` runs, over a connection that nobody else can read."
            )
        from distributed.security import Security

        security = Security.temporary()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, text in ((key, security.tls_scheduler_key), (cert, security.tls_ca_file)):
            with open(path, "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as out:
                out.write(text)
    return {"ca-file": str(cert), "cert": str(cert), "key": str(key)}


def command(scheduler: str, threads: int, port: int) -> list[str]:
    """Return the command of a worker of a scheduler or, with "", of a scheduler at this port. Raises ClusterError."""
    if scheduler and not scheduler.startswith("tls://"):
        raise ClusterError(
            f"{scheduler} is not the address of a scheduler with TLS. Expected a form like tls://host:8786."
        )
    files = certificate(new=not scheduler)
    tls = [word for name, path in files.items() for word in (f"--tls-{name}", path)]
    if scheduler:
        role = ["worker", scheduler, "--nworkers", "1", "--nthreads", str(threads)]
    else:
        role = ["scheduler", "--protocol", "tls", "--port", str(port), "--no-show"]
    return [sys.executable, "-m", "dask", *role, "--no-dashboard", *tls]


def _is_here(address: str) -> bool:
    """Return whether an address is this machine's own, which no other machine can reach."""
    host = address.split("://")[1].rpartition(":")[0].strip("[]")
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(ip.split("%")[0]).is_loopback for ip in addresses)


def edition() -> str:
    """Return a digest of all files that scores depend on."""
    files_hash = hashlib.sha256()
    for root in dict.fromkeys((source.ROOT, source.COURSE)):
        for path in sorted(p for pattern in DECIDES for p in root.glob(pattern)):
            if "tests" not in path.parts:
                files_hash.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return files_hash.hexdigest()[:16]


@cache
def _engine(unsafe: bool) -> Engine:
    """Return this worker's engine, which lives as long as the worker's process."""
    return Engine(unsafe=unsafe)


def grade_here(job: str, unsafe: bool, version: str) -> str:
    """Grade one notebook with this machine's engine; called by a Dask worker. Job and result are JSON.

    wanted: the sender's `edition`. Raises ClusterError if this machine's copy of the course differs.
    """
    if edition() != version:
        raise ClusterError(
            f"{socket.gethostname()} has another edition of the course. Update it and restart its worker."
        )
    with _starting:
        engine = _engine(unsafe)
    data = json.loads(job)
    data["cells"] = tuple(Cell(**cell) for cell in data["cells"])
    return json.dumps(to_json(engine.grade(Job(**data))))


class Cluster:
    """A Dask cluster with the interface of Engine. Raises ClusterError if it cannot be used."""

    ready = flavours.FLAVOURS  # its machines start what they need

    def __init__(self, address: str, unsafe: bool = False, without_tls: bool = False):
        from distributed import Client
        from distributed.security import Security

        if not re.fullmatch(r"[a-z]+://.+:\d+", address):
            raise ClusterError(
                f"{address} is not the address of a Dask scheduler. Expected a form like tls://host:8786."
            )
        security = None
        if address.startswith("tls://"):
            files = certificate()
            names = {"tls_ca_file": files["ca-file"], "tls_client_cert": files["cert"], "tls_client_key": files["key"]}
            security = Security(require_encryption=True, **names)
        elif not without_tls and not _is_here(address):
            raise ClusterError(
                f"{address} is on the network and has no TLS: anybody there could run code on its machines. Start it "
                "with `passlab cluster`, or add --without-tls if nobody else can reach it."
            )
        try:
            self.client = Client(address, timeout="10s", set_as_default=False, security=security)
        except (OSError, ValueError) as error:
            raise ClusterError(f"No Dask scheduler answers at {address}: {error}") from None
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            self.client.close()
            raise ClusterError(f"The scheduler at {address} has no workers. Start one with: passlab cluster {address}")
        self.jobs = sum(worker["nthreads"] for worker in workers.values())
        self.unsafe, self.edition = unsafe, edition()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_) -> None:
        self.client.close()

    def expect(self, names: Iterable[str]) -> None:
        """Do nothing: see `ready`."""

    def grade(self, job: Job) -> NotebookResult:
        """Grade on any free machine; if it dies, the notebook goes to another one."""
        from distributed import KilledWorker

        future = self.client.submit(
            grade_here, json.dumps(asdict(job)), self.unsafe, self.edition, pure=False, retries=RETRIES
        )
        try:
            return from_json(json.loads(future.result()))
        except (KilledWorker, ClusterError, UnsafeSandboxError) as error:
            failure = str(error).split("\n")[0]
            return NotebookResult(job.learner, job.assignment, job.notebook, job.seed, failure=failure)
