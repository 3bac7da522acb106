"""The capstone: a compiler as data, built and measured by whoever judges it.

    compiled = reference.compile(gm, inputs)     # Compiled: a graph, groups, schedules, a plan
    program = build(compiled, inputs)            # a function, made of that data alone
    counts(compiled, inputs)                     # launches, bytes moved, peak memory
    print(measure(gm, compiled, inputs))         # beside eager, torch.compile, TVM and the reference

Reading order: `compiled` (what is handed over, and what is wrong with it), with `triton` (kernels as text, and
`interpreter`, which runs them within bounds) and `layouts` (how values are stored), `library` (groups that are one call
of a library), `building` (the program), `comparing` (the same function, and how fast), `counting`, `baselines` and
`measuring` (beside others); `reference` (the course's compiler, stage by stage) and `families` (models that no learner
has seen).
"""

from passlab.capstone.baselines import BASELINES, Missing
from passlab.capstone.building import Program, build, grouped
from passlab.capstone.compiled import BadCompiled, Compiled, groupable, on, wrong
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
    "wrong",
]
