"""Which TVMs there are here, and how a test says which one it is about.

A process can hold only one TVM, and pytest holds the one named by `--tvm`: tests in tests/relay, tests/relax and
tests/tvm use it directly. Of a test with a parameter `flavour`, tests/tvm keeps what is about that one.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELAY_HERE = sys.platform == "linux" and platform.machine() == "x86_64"
FLAVOURS = ["relax"] + ["relay"] * RELAY_HERE
each_flavour = pytest.mark.parametrize("flavour", FLAVOURS)
relay_here = pytest.mark.skipif(not RELAY_HERE, reason="Relay's TVM is for Linux on x86-64")


@cache
def checked(script: Path, flavour: str, **more: str) -> dict:
    """What a script of checks prints as JSON on its last line: each flavour in a process of its own."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'lib'}", "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, str(script), flavour]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def python(code: str, **env: str) -> str:
    """What a fresh interpreter prints: for tests of what loading a TVM does to a process, or leaves behind."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
