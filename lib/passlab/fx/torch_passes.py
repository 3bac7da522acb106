"""torch's own passes over torch.fx, as functions from GraphModule to GraphModule. They may change their argument."""

from __future__ import annotations

from typing import Any

from torch import fx


def merge(gm: fx.GraphModule) -> fx.GraphModule:
    """Merge equal calls (torch's CSEPass)."""
    from torch.fx.passes.dialect.common.cse_pass import CSEPass

    result: Any = CSEPass()(gm)
    return result.graph_module


def eliminate(gm: fx.GraphModule) -> fx.GraphModule:
    """Remove nodes without users (torch's Graph.eliminate_dead_code)."""
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def fold(gm: fx.GraphModule) -> fx.GraphModule:
    """Compute what no input reaches (torch's split_const_subgraphs)."""
    from torch.fx.experimental.const_fold import split_const_subgraphs

    folded = split_const_subgraphs(gm)
    folded.run_folding()
    return fx.GraphModule(folded, folded.graph)


def fuse(gm: fx.GraphModule) -> fx.GraphModule:
    """Fold batch norms into convolutions (torch's optimization.fuse). The model must be in evaluation mode."""
    from torch.fx.experimental import optimization

    fused: Any = optimization.fuse(gm)
    return fused
