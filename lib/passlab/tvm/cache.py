"""What modules computed, kept on disk from one process to the next, for graders and tests.

    os.environ["PASSLAB_BUILDS"] = "/course/.cache/passlab-builds"     # cache.FOLDER; without it, nothing is kept

Kept are the outputs, not the compiled library. A library is code made from a learner's module: whoever loads it runs
that code, and it would have to be linked, stored and loaded inside of the confined process that built it. Outputs are
data: the judge reads them as it reads a fresh answer of that process, with the same checks (`builds`), and the build is
saved together with the run. Where times are asked for, nothing is kept and nothing is taken.

The key is a hash of all that decides the outputs: compiler and its version, the code that builds and runs
(`tvm.server`, the executors), the machine, and the request itself: the module's text, parameters, inputs, target,
pipeline and configuration. So an entry speaks of one module on one set of inputs, and a module that lies can lie only
about itself, as it could without the cache. What failed, crashed or ran out of time is not kept.

The verifier writes here, in a folder that no sandbox of learner code can see. Files appear whole (a rename), several
processes may read and write at once, and the files used least recently go when there are too many bytes.
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

FOLDER = "PASSLAB_BUILDS"
#: Where graders and proofs keep it, below the project.
PLACE = ".cache/passlab-builds"
#: Bytes of one entry, and of all.
MOST_EACH, MOST_BYTES = 16 * 2**20, 512 * 2**20
#: The folder is swept after so many entries that one process writes.
_SWEEP_EVERY = 64

_PACKAGES = {"relay": "bitblas", "relax": "apache-tvm"}
_HEAD = struct.Struct("!Q")
_written = 0


def folder() -> Path | None:
    """Return the folder that the environment names, or None."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else None


def key(flavour: str, head: dict[str, Any], parts: Iterable[Any]) -> str:
    """Return the name of a request's entry, or "" where nothing is to be kept or taken.

    head, parts: the request as `builds` sends it.
    """
    if folder() is None or head.get("do") != "run" or head["repeats"] or "cuda" in head["target"]:
        return ""
    digest = hashlib.sha256(json.dumps([_circumstances(flavour), head], sort_keys=True).encode())
    for part in parts:
        digest.update(part.reshape(-1).view(np.uint8) if isinstance(part, np.ndarray) else part)
    return digest.hexdigest()


@cache
def _circumstances(flavour: str) -> list[str]:
    """Everything besides the request that decides the outputs."""
    here = Path(__file__).parent
    sources = [here / "server.py", here / "executors.py", here.parent / flavour / "executors.py"]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:  # another system than Linux
        lines = [f"model name: {platform.processor()}"]
    processor = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    version = metadata.version(_PACKAGES[flavour])
    return [flavour, version, code, platform.machine(), *processor]


def load(name: str) -> tuple[dict, memoryview] | None:
    """Return an entry, an answer as the server sends it (head and payload), or None without one."""
    try:
        path = folder() / name
        data = path.read_bytes()
        (size,) = _HEAD.unpack_from(data)
        said = json.loads(data[_HEAD.size : _HEAD.size + size])
    except (OSError, ValueError, struct.error):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return said, memoryview(data)[_HEAD.size + size :]


def store(name: str, said: dict, payload: Any) -> None:
    """Write an entry; where that cannot be done, nothing happens."""
    global _written
    text = json.dumps(said).encode()
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
    found = []
    for entry in os.scandir(folder()):
        with contextlib.suppress(OSError):  # another process was faster
            stat = entry.stat()
            found.append((stat.st_mtime, stat.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
