"""Dataflow analysis of programs with control flow.

    program = parse(text)                       # or from_torchscript(f), from_stablehlo(text)
    solution = solve(program, LIVENESS)
    solution.before["loop"]                     # the fact at the start of a block
    flow(program, solution)                     # passlab.drawing: the blocks, and the facts on the edges

Reading order: `cfg` (blocks, edges, well-formedness), `text` (the text form), `order` (reverse post-order, loops),
`interpret` (an interpreter), `solver` (one solver for all analyses), `analyses` (each a table of direction, boundary,
initial value, merge, transfer), `equations` (value numbering). `random_programs` generates programs, `paths` merges
over paths by brute force; `torchscript` and `stablehlo` import real programs. On graphs of torch.fx: `ranges`
(intervals), `precision` (a safe float16 plan), `shapes` (symbolic sizes, and the constraints on them), and `predict`
(run times of operators).
"""

from passlab.dataflow.analyses import (
    ANALYSES,
    ANTICIPATED,
    AVAILABLE,
    CONSTANTS,
    DOMINATORS,
    INTERVALS,
    LIVENESS,
    REACHING,
)
from passlab.dataflow.cfg import Block, Instruction, Program, Terminator, predecessors, successors, why_not_a_program
from passlab.dataflow.equations import VALUES, redundant
from passlab.dataflow.interpret import COMMUTATIVE, OPS, Run, evaluate, run
from passlab.dataflow.order import depth_first_order, loop_heads, reducible, reverse_postorder
from passlab.dataflow.random_programs import random_program
from passlab.dataflow.solver import Analysis, DoesNotEnd, NotMonotone, Solution, round_robin, solve
from passlab.dataflow.stablehlo import from_stablehlo
from passlab.dataflow.text import parse, show
from passlab.dataflow.torchscript import from_torchscript

__all__ = [
    "ANALYSES",
    "ANTICIPATED",
    "AVAILABLE",
    "COMMUTATIVE",
    "CONSTANTS",
    "DOMINATORS",
    "INTERVALS",
    "LIVENESS",
    "OPS",
    "REACHING",
    "VALUES",
]
__all__ += ["Analysis", "Block", "DoesNotEnd", "Instruction", "NotMonotone", "Program", "Run", "Solution", "Terminator"]
__all__ += ["depth_first_order", "evaluate", "from_stablehlo", "from_torchscript", "loop_heads", "parse"]
__all__ += ["predecessors", "random_program", "reducible", "redundant", "reverse_postorder", "round_robin", "run"]
__all__ += ["show", "solve", "successors", "why_not_a_program"]
