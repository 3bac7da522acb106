"""Reaching Relax: TVM as it is today (apache-tvm 0.27).

    from passlab.relax import relax, tvm

TVM loads at the first use. It takes half of the cores unless told, when it loads, to take all.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType


class Unreachable(ImportError):
    """A compiler cannot be used in this process, or on this machine; the message says why and what to do."""

    def _render_traceback_(self) -> list[str]:  # what a notebook shows of it: the sentence alone
        return [str(self)]


def reach() -> ModuleType:
    """The module `tvm`, loaded. Raises Unreachable where this process holds the TVM of Relay already."""
    if loaded() == "relay":
        raise Unreachable(
            "This process uses the TVM of Relay (0.17), and one process can use only one TVM. "
            "Restart the kernel to work with Relax."
        )
    os.environ.setdefault("TVM_NUM_THREADS", str(cores()))
    try:
        import tvm
    except (ImportError, OSError) as error:
        why = str(error).split("\n")[0]
        raise Unreachable(f"Relax cannot be loaded here ({why}). Run `make setup` to install apache-tvm.") from error
    return tvm


def loaded() -> str:
    """Which TVM this process has loaded: "relay" (0.17), "relax", or "" for none."""
    tvm = sys.modules.get("tvm")
    if tvm is None:
        return ""
    return "relay" if tvm.__version__.startswith("0.17") else "relax"


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def __getattr__(name: str) -> ModuleType:
    if name == "tvm":
        return reach()
    if name == "relax":
        return reach().relax
    raise AttributeError(f"passlab.relax has no {name!r}. It has: loaded, reach, relax, tvm.")
