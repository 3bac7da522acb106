"""Search real compilers for faults: differential testing with random graphs (as NNSmith, ASPLOS 2023, and others).

    for fault in hunt("relax", graphs=200):
        print(fault.report())

    python -m passlab.hunt relax --minutes 5

A fault breaks what its target promises: see `TARGETS`, each with its promise, and the graphs that keep to its
conditions. A graph that fails is shrunk; failures whose shrunk graphs look alike are one fault; a second oracle, which
knows nothing of the first, must agree.

Reading order: targets (what is tested), faults (what is told), graphs (what they are tested with), search (the loop),
forked (what may crash), known (what was found).
"""

from __future__ import annotations

from passlab.hunt.faults import Fault
from passlab.hunt.graphs import drawn_graph
from passlab.hunt.search import failure, hunt
from passlab.hunt.targets import TARGETS, Target

__all__ = ["TARGETS", "Fault", "Target", "drawn_graph", "failure", "hunt"]
