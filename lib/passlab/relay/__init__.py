"""Load Relay: the last TVM that has it (0.17), which the wheel `bitblas` contains for Linux on x86-64.

    from passlab.relay import relay, tvm

TVM loads at the first use (`passlab.relay.library`), and `import tvm` returns the same one from then on.
"""

from __future__ import annotations

from types import ModuleType

from passlab.relay.library import prepare, reach

__all__ = ["prepare", "reach"]


def __getattr__(name: str) -> ModuleType:
    if name == "tvm":
        return reach()
    if name == "relay":
        return reach().relay
    raise AttributeError(f"passlab.relay has no {name!r}. It has: prepare, reach, relay, tvm.")
