"""Load a TVM: 0.17, which has Relay, or today's, which has Relax; and tell which one this process holds."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from passlab.graph.registry import load


def reach(flavour: str) -> ModuleType:
    """Return `tvm` with "relay" or "relax", loaded. Raises Unreachable where this process cannot have it."""
    return load(flavour).reach()


def loaded() -> str:
    """Return which TVM this process has loaded: "relay" (0.17), "relax", or "" for none."""
    tvm = sys.modules.get("tvm")
    if tvm is None:
        return ""
    return "relay" if tvm.__version__.startswith("0.17") else "relax"


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
