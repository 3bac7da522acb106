"""The loops of a schedule in TensorIR, and the order in which a TensorIR function visits iterations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from passlab.polyhedral.program import Program
from passlab.polyhedral.schedules import Schedule

if TYPE_CHECKING:
    import tvm


def prim_func(
    program: Program,
    schedule: Schedule,
    sizes: Mapping[str, int],
    parallel: Collection[int] = (),
    vectorize: Collection[int] = (),
    unroll: Collection[int] = (),
    dtype: str = "float32",
) -> tvm.tirx.PrimFunc:
    """The loops of a schedule as a TensorIR function. Its parameters are the program's arrays, in `program.arrays`'
    order, each both input and output.

    parallel, vectorize, unroll: dimensions of the times whose loops are marked so. Every statement is a block with the
    statement's name, whose values are its iteration, so that the function can be scheduled further by TVM.
    Raises ValueError for what is no schedule.
    """
    raise NotImplementedError


def visits(function: Any) -> list[tuple[str, tuple[int, ...]]]:
    """The iterations that a TensorIR function visits, ("S", (0, 1)), in order: its blocks, by name and values.

    Loops that are parallel, vectorized or unrolled are walked from their first turn to their last.
    """
    raise NotImplementedError
