"""Cache the outputs of modules on disk, for graders and tests.

    os.environ["PASSLAB_BUILDS"] = "/course/.cache/passlab-builds"     # cache.FOLDER; without it, no cache

An entry holds the outputs, not the compiled library. A library is code made from a learner's module: loading it runs
that code, so it would have to be linked, stored and loaded inside the confined process that built it. Outputs are data:
the judge reads them with the same checks as a fresh reply (`requests`), and saves the run as well as the build.
Requests that measure times bypass the cache.

The key is a hash of everything that determines the outputs: the compiler and its version, the code that builds and
runs (`building.server`, the executors), the machine, and the request: the module's text, parameters, inputs, target,
pipeline and configuration. So an entry is about one module on one set of inputs, and a module that forges its outputs
can forge only its own, as it could without the cache. Failures, crashes and timeouts are not cached.

The verifier writes here, in a folder that no sandbox of learner code can see. Files appear atomically (a rename),
several processes may read and write at once, and the least recently used files are deleted above the limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import struct
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from passlab.graph import registry

FOLDER = "PASSLAB_BUILDS"
#: The cache of graders and proofs, below the project's root.
PLACE = ".cache/passlab-builds"
#: Most bytes of one entry, and of all.
MOST_EACH, MOST_BYTES = 16 * 2**20, 512 * 2**20
#: The folder is swept once a process has written this many entries.
_SWEEP_EVERY = 64

_HEAD = struct.Struct("!Q")
_written = 0


def folder() -> Path | None:
    """Return the folder named by the environment, or None."""
    path = os.environ.get(FOLDER)
    return Path(path) if path else None


def key(flavour: str, head: dict[str, Any], parts: Iterable[Any]) -> str:
    """Return the name of a request's entry, or "" for a request that bypasses the cache.

    head, parts: the request as `requests` sends it.
    """
    if folder() is None or head.get("do") != "run" or "cuda" in head["target"] or head["repeats"] or head["timed"]:
        return ""
    digest = hashlib.sha256(json.dumps([circumstances(flavour), head], sort_keys=True).encode())
    for part in parts:
        digest.update(part.reshape(-1).view(np.uint8) if isinstance(part, np.ndarray) else part)
    return digest.hexdigest()


@cache
def circumstances(flavour: str) -> list[str]:
    """Return everything besides the request that determines the outputs."""
    own, package = registry.compiler(flavour), Path(__file__).parent
    sources = [package / "server.py", *(package.parent / name for name in own.sources)]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:  # another system than Linux
        lines = [f"model name: {platform.processor()}"]
    processor = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    version = metadata.version(own.distribution)
    return [flavour, version, code, platform.machine(), *processor]


def load(name: str) -> tuple[dict, memoryview] | None:
    """Return an entry, a reply as the server sends it (head and payload), or None."""
    try:
        path = folder() / name
        data = path.read_bytes()
        (size,) = _HEAD.unpack_from(data)
        head = json.loads(data[_HEAD.size : _HEAD.size + size])
    except (OSError, ValueError, struct.error):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return head, memoryview(data)[_HEAD.size + size :]


def store(name: str, head: dict, payload: Any) -> None:
    """Write an entry; do nothing if that fails."""
    global _written
    text = json.dumps(head).encode()
    if len(text) + len(payload) > MOST_EACH:
        return
    with contextlib.suppress(OSError):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        _written += 1
        if _written % _SWEEP_EVERY == 1:
            sweep()
        number, path = tempfile.mkstemp(dir=folder(), prefix=".new-")
        try:
            with open(number, "wb") as file:
                file.write(_HEAD.pack(len(text)) + text)
                file.write(payload)
            os.chmod(path, 0o644)
            os.replace(path, folder() / name)
        except BaseException:
            os.unlink(path)
            raise


def sweep(most: int = MOST_BYTES) -> None:
    """Delete the entries used least recently until at most `most` bytes are left."""
    entries = []
    for entry in os.scandir(folder()):
        with contextlib.suppress(OSError):  # another process deleted it first
            stat = entry.stat()
            entries.append((stat.st_mtime, stat.st_size, entry.path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= most:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
