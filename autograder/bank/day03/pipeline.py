"""Bank of day03.pipeline."""

from __future__ import annotations

import copy
import itertools

from torch import fx

from autograder.bank import right, wrong


def _wiring(gm):
    place = {node: i for i, node in enumerate(gm.graph.nodes)}
    return [(n.op, str(n.target), str(fx.node.map_arg((n.args, n.kwargs), lambda m: f"%{place[m]}"))) for n in place]


def _run(gm, passes, done=_wiring, sweeps=None):
    """Sweep until `done(gm)` is as it was, or so many times."""
    counts, seen = [], None
    while seen != done(gm) if sweeps is None else len(counts) < sweeps * len(passes):
        seen = done(gm)
        for run in passes:
            gm = run(gm)
            counts.append(len(gm.graph.nodes))
    return gm, counts


def _all(gm, passes, key=lambda f: (f[2][-1], len(f[2])), orders=None, fresh=copy.deepcopy, **how):
    found = []
    for order in orders(passes) if orders else itertools.permutations(passes):
        done, counts = _run(fresh(gm), [passes[name] for name in order], **how)
        found.append((done, list(order), counts))
    return min(found, key=key)


@right("compares how the graph is wired, and looks through the orders from the end")
def wired(gm, passes):
    return _all(gm, passes, orders=lambda names: reversed(list(itertools.permutations(names))))


@right("grows the orders recursively, and copies by building the graph anew")
def recursively(gm, passes):
    best = None

    def copied():
        graph, new = fx.Graph(), {}
        for node in gm.graph.nodes:
            new[node] = graph.node_copy(node, new.__getitem__)
        return fx.GraphModule(gm, graph)

    def extend(order):
        nonlocal best
        for name in passes:
            if name not in order:
                extend([*order, name])
        if len(order) == len(passes):
            done, counts = _run(copied(), [passes[name] for name in order])
            if best is None or (counts[-1], len(counts)) < (best[2][-1], len(best[2])):
                best = done, order, counts

    extend([])
    return best


@wrong("did", "tries every order on the graph that the order before left: nothing is copied")
def without_a_copy(gm, passes):
    return _all(gm, passes, fresh=lambda gm: gm)


@wrong("did", "one sweep is enough")
def one_sweep(gm, passes):
    return _all(gm, passes, sweeps=1)


@wrong("did", "two sweeps are always enough, and never too many")
def two_sweeps(gm, passes):
    return _all(gm, passes, sweeps=2)


@wrong("did", "stops when the number of nodes is the same as before, though the graph is another")
def counts_only(gm, passes):
    return _all(gm, passes, done=lambda gm: len(gm.graph.nodes))


@wrong("did", "leaves out the last sweep: it changed nothing")
def hides_the_last_sweep(gm, passes):
    done, order, counts = _all(gm, passes)
    return done, order, counts[: -len(passes)] or counts


@wrong("did", "writes one count for each sweep")
def count_each_sweep(gm, passes):
    done, order, counts = _all(gm, passes)
    return done, order, counts[len(passes) - 1 :: len(passes)]


@wrong("did", "returns the graph of the last order with the name of the best")
def last_graph(gm, passes):
    _, order, counts = _all(gm, passes)
    return copy.deepcopy(gm), order, counts


@wrong("cost", "takes the order the passes came in")
def as_it_comes(gm, passes):
    return _all(gm, passes, orders=lambda names: [tuple(names)])


@wrong("cost", "counts nodes and not runs: of the orders with the fewest nodes, the one with the most sweeps")
def nodes_only(gm, passes):
    return _all(gm, passes, key=lambda f: (f[2][-1], -len(f[2])))


@wrong("cost", "the fewest runs are best, however many nodes are left")
def runs_only(gm, passes):
    return _all(gm, passes, key=lambda f: (len(f[2]), -f[2][-1]))


@wrong("valid", "runs whichever pass helps most at the moment: that is no order of all passes")
def greedy(gm, passes):
    order, counts = [], []
    while True:
        tried = {name: len(run(copy.deepcopy(gm)).graph.nodes) for name, run in passes.items()}
        name = min(tried, key=tried.get)
        if tried[name] >= len(gm.graph.nodes):
            return gm, order, counts
        gm = passes[name](gm)
        order.append(name)
        counts.append(len(gm.graph.nodes))


@wrong("valid", "returns the graph alone")
def graph_alone(gm, passes):
    return _all(gm, passes)[0]


@wrong("cost", "the shortest run first, the fewest nodes only among those")
def shortest_first(gm, passes):
    return _all(gm, passes, key=lambda f: (len(f[2]), f[2][-1]))
