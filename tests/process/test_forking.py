"""A process that loads without the garbage collector, and one whose memory is in huge pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[2] / "lib"


def run(folder: Path, text: str, *arguments: str) -> str:
    (folder / "loads.py").write_text(text)
    env = os.environ | {"PYTHONPATH": f"{LIB}{os.pathsep}{folder}"}
    command = [sys.executable, "-m", "passlab.process.forking", "loads", *arguments]
    result = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_garbage_is_collected_once_all_is_loaded(tmp_path):
    text = """
import gc, sys
from passlab.process.forking import settle
before = gc.isenabled()
settle()
print(__name__, sys.argv[1:], before, gc.isenabled(), gc.get_freeze_count() > 1000)
"""
    assert run(tmp_path, text, "relax", "5").strip() == "__main__ ['relax', '5'] False True True"


HUGE = """
from passlab.process.forking import collapse
held = [bytes(1000) for _ in range(60_000)]  # by Python's own allocator
def huge():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))
before = huge()
collapse()
print(huge() - before, set(map(len, held)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="MADV_COLLAPSE is Linux's")
def test_memory_is_put_into_huge_pages_and_stays_what_it_was(tmp_path):
    grown, lengths = run(tmp_path, HUGE).split(maxsplit=1)
    assert lengths.strip() == "{1000}"
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (6, 1):
        assert int(grown) > 20_000  # of some 60,000 KiB
