"""Helpers that scheduling rules for a CPU share: questions about a schedule, and steps that TVM may reject.

The rules themselves are `passlab.relax.pipelines.cpu_schedule` and `passlab.kernels.schedule.on_cpu`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

#: Steps of a loop nest below which a second core costs more than it saves: waking it takes several microseconds.
WORTH_A_CORE = 2**17


def blocks(schedule: Any) -> list:
    """Return the stages of a kernel, in order."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def is_spatial(schedule: Any, block: Any) -> bool:
    """Return whether a stage is free of reductions."""
    return not reduces(schedule.get(block))


def reduces(stage: Any) -> bool:
    return any(int(axis.iter_type) != 0 for axis in stage.iter_vars)


def tried(schedule: Any, *steps: Callable[[Any], None]) -> Any:
    """Return the schedule after the first step that TVM accepts, None if it accepts none."""
    from passlab.relax import tvm

    for step in steps:
        trial = schedule.copy()
        with contextlib.suppress(tvm.s_tir.ScheduleError):
            step(trial)
            return trial
    return None


def refuse(why: str) -> None:
    """Reject a step, as TVM does."""
    from passlab.relax import tvm

    raise tvm.s_tir.ScheduleError(why)


def variables(expr: Any) -> list:
    """Return the variables in an index, as often as they occur."""
    import tvm_ffi

    from passlab.relax import tvm

    found: list = []
    tvm_ffi.structural_walk(expr, (tvm.tirx.Var, found.append), order="post")
    return found
