"""`make bench`, part hunt: how many of the bank's faulty passes drawn graphs expose, and how small failures become."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from autograder.bench.figures import Figure, apart, at_least, at_most

#: Graphs for each pass, calls of a pass while one failure is shrunk, and the share of failures that is.
GRAPHS, BUDGET, EVERY = 100, 200, 4


def hunt(largest: int) -> Iterator[Figure | str]:
    yield from apart(exposed, GRAPHS)


def exposed(graphs: int) -> Iterator[Figure | str]:
    """Put graphs through each faulty pass until one exposes it; shrink every fourth failure."""
    from autograder import faulty
    from passlab.fx.shrink import shrink
    from passlab.hunt import drawn_graph
    from passlab.hunt.oracle import why_wrong

    drawn = [drawn_graph(seed) for seed in range(graphs)]
    passes, hidden, sizes = faulty.passes(), [], []
    for number, (name, apply) in enumerate(passes.items()):
        yield name
        gm = next((gm for gm in drawn if why_wrong(apply, gm)), None)
        if gm is None:
            hidden.append(name)
        elif number % EVERY == 0:
            small = shrink(gm, partial(why_wrong, apply), BUDGET)  # type: ignore[arg-type]  # a text is true
            sizes.append(sum(node.op.startswith("call_") for node in small.graph.nodes))
    share = 1 - len(hidden) / len(passes)
    about = f"{len(passes) - len(hidden)} of {len(passes)}; not: {', '.join(hidden)}"
    yield at_least(f"faulty passes that {graphs} graphs expose, share", share, 0.95, "", about)
    if sizes:
        yield at_most("operations of a shrunk failure, median", median(sizes), 4, "", f"{len(sizes)} failures")
