"""`make bench`, part hunt: how many of the bank's faulty passes drawn graphs expose, how small failures become, and
which faults pinned compilers have.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from autograder.bench.figures import Figure, apart, at_least, at_most

#: Graphs for each pass, calls of a pass while one failure is shrunk, and the share of failures that is.
GRAPHS, BUDGET, EVERY = 100, 200, 4


def hunt(largest: int) -> Iterator[Figure | str]:
    yield from apart(exposed, GRAPHS)
    yield from apart(pinned)


def exposed(graphs: int) -> Iterator[Figure | str]:
    """Put graphs through each faulty pass, small ones first, until one exposes it; shrink every fourth failure."""
    from autograder import faulty
    from passlab.fx.shrink import shrink
    from passlab.hunt import drawn_graph
    from passlab.hunt.oracle import why_wrong

    drawn = sorted((drawn_graph(seed) for seed in range(graphs)), key=lambda gm: len(gm.graph.nodes))
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


def pinned() -> Iterator[Figure | str]:
    """Count the known faults that pinned compilers still show, each confirmed by a second oracle."""
    from passlab.hunt.faults import version_of
    from passlab.hunt.known import KNOWN
    from passlab.hunt.targets import TARGETS

    shown: dict[str, list[str]] = {}
    for one in KNOWN:
        for name in one.targets:
            yield f"{name}: {one.title}"
            fault = one.fault(name) if version_of(TARGETS[name].package) else None
            if fault and fault.second:
                shown.setdefault(one.title, []).append(name)
    targets = sorted({name for names in shown.values() for name in names})
    yield at_least(
        "distinct faults of pinned compilers, each seen by two oracles", len(shown), 5, "", f"in {', '.join(targets)}"
    )
