"""Beyond one chip: a wafer of small cores, the cost of its messages, and the placement of a graph's operations.

    from passlab.wafer import Machine, Message, program, simulate
    line = Machine(1, 8)
    simulate(program(line, [Message(line.route((0, 7), (0, 0)), words=100)])).cycles      # 112

Reading order: `machine` (cores, links, routes), `program` (messages as data), `simulate` (the machine as events),
`model` (closed forms), `collectives` (reduce, broadcast, all-reduce), `matmul` (products on a mesh), `stencil`
(BiCGStab on the whole wafer), `scaling` (where it bends), `machines` (real wafers, with sources). Then the mapping of
graphs: `work` (operations and the words they exchange), `pieces` (operations cut for cores), `mapping` (placements and
their costs), `placing` (rows, greedy, search), `pictures`.
"""

from passlab.wafer.collectives import (
    TREES,
    all_reduce,
    broadcast_grid,
    broadcast_messages,
    reduce_grid,
    reduce_messages,
    reduce_rows,
)
from passlab.wafer.machine import Core, Link, Machine
from passlab.wafer.machines import WAFERS
from passlab.wafer.model import FORMULAS, Cost, bound, cost, numbers
from passlab.wafer.program import Message, Program, carried, join, on_lines, program, why_not_a_program
from passlab.wafer.simulate import Deadlock, Run, simulate

__all__ = [
    "FORMULAS",
    "TREES",
    "WAFERS",
    "Core",
    "Cost",
    "Deadlock",
    "Link",
    "Machine",
    "Message",
    "Program",
    "Run",
    "all_reduce",
    "bound",
    "broadcast_grid",
    "broadcast_messages",
    "carried",
    "cost",
    "join",
    "numbers",
    "on_lines",
    "program",
    "reduce_grid",
    "reduce_messages",
    "reduce_rows",
    "simulate",
    "why_not_a_program",
]
