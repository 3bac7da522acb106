"""The parts that the executors of both TVMs share.

`passlab.relay.executors` and `passlab.relax.executors` offer smallest() and build(module, params, head) for the process
that builds, and runner(module, target, pipeline, level) for this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Runner:
    """A module, built in this process. `give(arrays)` sets the inputs (`inputs` of them); `run()` waits for the
    outputs and returns them."""

    give: Callable[[list[np.ndarray]], None]
    run: Callable[[], list[Any]]
    inputs: int


def itemsize(dtype: Any) -> int:
    """Return the bytes of one element of a TVM dtype (bool may be called uint1)."""
    bits = re.search(r"\d+$", str(dtype))
    return -(-int(bits[0]) // 8) if bits else 1


def device_of(tvm: Any, target: Any) -> Any:
    return tvm.device(target.kind.name if target.kind.name != "llvm" else "cpu", 0)


def synced(device: Any, run: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Return a function that calls `run(*arguments)`, waits for the device, and returns the call's result."""

    def once() -> Any:
        result = run(*arguments)
        device.sync()
        return result

    return once


def context(tvm: Any, head: dict) -> Any:
    return tvm.transform.PassContext(opt_level=head["level"], disabled_pass=head["disabled"], config=head["config"])
