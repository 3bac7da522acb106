"""Loop nests as sets and maps of integers: the polyhedral model, through isl.

    from passlab.polyhedral import PROGRAMS, dependences, legal, skew, tile, violated
    jacobi = PROGRAMS["jacobi1d"]
    violated(dependences(jacobi), tile(jacobi.schedule, [0, 1], [4, 4]))      # ("S[0, 4]", "S[1, 3]")
    legal(jacobi, tile(skew(jacobi.schedule, 1, 0), [0, 1], [4, 4]))          # True

Reading order: `program` (statements with their domains and accesses), `parse` (from plain Python loops), `zoo`
(PROGRAMS), `schedules` (orders, and how to check them), `dependences` (what an order must preserve), `codegen` (loops
from an order), `tensor_ir` (the same loops in TensorIR, which TVM compiles).
"""

from passlab.polyhedral.codegen import ast, order, python_source, random_arrays, reference, run_python, times
from passlab.polyhedral.dependences import dependences, legal, parallel, violated
from passlab.polyhedral.parse import NotAffine, parse
from passlab.polyhedral.program import Program, Statement, fixed, pairs
from passlab.polyhedral.schedules import (
    depth,
    distribute,
    fuse,
    interchange,
    reverse,
    schedule_of,
    skew,
    tile,
    why_not_a_schedule,
)
from passlab.polyhedral.tensor_ir import compiled, prim_func, visits
from passlab.polyhedral.zoo import PROGRAMS

__all__ = [
    "PROGRAMS",
    "NotAffine",
    "Program",
    "Statement",
    "ast",
    "compiled",
    "dependences",
    "depth",
    "distribute",
    "fixed",
    "fuse",
    "interchange",
    "legal",
    "order",
    "pairs",
    "parallel",
    "parse",
    "prim_func",
    "python_source",
    "random_arrays",
    "reference",
    "reverse",
    "run_python",
    "schedule_of",
    "skew",
    "tile",
    "times",
    "violated",
    "visits",
    "why_not_a_schedule",
]
