"""Load Relax: TVM as it is today (apache-tvm 0.27).

    from passlab.relax import relax, tvm

TVM loads at the first use, with the setting to use all cores; by default it uses half of them.
"""

from __future__ import annotations

import os
from types import ModuleType

from passlab.building.compiler import Unreachable
from passlab.tvm.reach import cores, loaded


def reach() -> ModuleType:
    """Load and return the module `tvm`. Raises Unreachable if this process already holds the TVM of Relay."""
    if loaded() == "relay":
        raise Unreachable(
            "This process uses the TVM of Relay (0.17), and one process can use only one TVM. "
            "Restart the kernel to work with Relax."
        )
    os.environ.setdefault("TVM_NUM_THREADS", str(cores()))
    try:
        import tvm
    except (ImportError, OSError) as error:
        reason = str(error).split("\n")[0]
        raise Unreachable(f"Relax cannot be loaded here ({reason}). Run `make setup` to install apache-tvm.") from error
    return tvm


def __getattr__(name: str) -> ModuleType:
    if name == "tvm":
        return reach()
    if name == "relax":
        return reach().relax
    raise AttributeError(f"passlab.relax has no {name!r}. It has: reach, relax, tvm.")
