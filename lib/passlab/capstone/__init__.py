"""The capstone: a compiler's result as data, which the judge builds and measures.

    compiled = reference.compile(gm, inputs)     # Compiled: a graph, groups, schedules, a plan
    program = build(compiled, inputs)            # a function, made of that data alone
    counts(compiled, inputs)                     # launches, bytes moved, peak memory
    print(measure(gm, compiled, inputs))         # with eager, torch.compile, TVM and the reference

Reading order: `compiled` (the data, and its checks), with `triton` (kernels as text, and `interpreter`, which runs them
within bounds) and `layouts` (how values are stored), `library` (groups that are one call of a library), `building` (the
program), `comparing` (equivalence and speed), `counting`, `baselines` and `measuring` (against others); `reference`
(the course's compiler, stage by stage), `training` (its passes behind torch.compile) and `families` (models for hidden
cases).
"""

from passlab.capstone.baselines import BASELINES, Missing
from passlab.capstone.building import Program, build, grouped
from passlab.capstone.compiled import BadCompiled, Compiled, groupable, on, why_not_compiled
from passlab.capstone.counting import Counts, counts, examined
from passlab.capstone.measuring import Entry, Row, compare, measure
from passlab.capstone.triton import Triton

__all__ = [
    "BASELINES",
    "BadCompiled",
    "Compiled",
    "Counts",
    "Entry",
    "Missing",
    "Program",
    "Row",
    "Triton",
    "build",
    "compare",
    "counts",
    "examined",
    "groupable",
    "grouped",
    "measure",
    "on",
    "why_not_compiled",
]
