"""Which TVM this process holds, and how to get at one: 0.17, which has Relay, or today's, which has Relax."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from passlab.graph.registry import load


class Unreachable(ImportError):
    """A compiler cannot be used in this process, or on this machine; the message says why and what to do."""

    def _render_traceback_(self) -> list[str]:  # what a notebook shows of it: the sentence alone
        return [str(self)]


def reach(flavour: str) -> ModuleType:
    """Return `tvm` with "relay" or "relax", loaded. Raises Unreachable where this process cannot have it."""
    return load(flavour).reach()


def loaded() -> str:
    """Which TVM this process has loaded: "relay" (0.17), "relax", or "" for none."""
    tvm = sys.modules.get("tvm")
    if tvm is None:
        return ""
    return "relay" if tvm.__version__.startswith("0.17") else "relax"


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
