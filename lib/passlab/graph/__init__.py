"""One read-only view of every IR: nodes, edges, kind, shape, dtype, bytes, text.

    view(torch.fx.symbolic_trace(model)).counts()     # {"compute": 2, "data": 2, "shape": 0, ...}

Reading order: `model` (a node, a graph), `registry` (which package handles which IR, and `view`), `table` (IRs
compared), `cost` (a number with its unit). `kinds` and `assemble` are for authors of readers.
Drawing, counting and pricing use this view alone, so they work on every IR. Anything else that an IR needs is in its
package, which loads when used.
"""

from passlab.graph.cost import Cost, Measured
from passlab.graph.model import KINDS, Graph, Node, why_not_ssa
from passlab.graph.registry import view
from passlab.graph.table import LEVELS, Table, table

__all__ = ["KINDS", "LEVELS", "Cost", "Graph", "Measured", "Node", "Table", "table", "view", "why_not_ssa"]
