"""One read-only view of every IR: nodes, edges, kind, shape, dtype, bytes, text.

    view(torch.fx.symbolic_trace(model)).counts()     # {"compute": 2, "data": 2, "shape": 0, ...}

Reading order: `model` (a node, a graph), `registry` (which package knows which IR, and `view`), `table` (IRs compared),
`cost` (a number that says what it counts). `kinds` and `assemble` are for those who write a reader.
Whatever draws, counts or prices works on this view, so that it works on every IR. What an IR needs beyond that is in
the package of the IR, and loads when used.
"""

from passlab.graph.cost import Cost, Measured
from passlab.graph.model import KINDS, Graph, Node, breaks_ssa
from passlab.graph.registry import view
from passlab.graph.table import LEVELS, Table, table

__all__ = ["KINDS", "LEVELS", "Cost", "Graph", "Measured", "Node", "Table", "breaks_ssa", "table", "view"]
