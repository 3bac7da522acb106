"""Hidden cases and answers of day03.pipeline."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from autograder.answers.day03._shared import Build
from autograder.authoring.answers import edited, reference, right, wrong
from passlab.exercises.day03.pipeline import SWEEP, Best, pipeline_case
from passlab.fx.cases import graph, read
from passlab.fx.stages import STAGES
from passlab.judge import Case, drawn

# ---------------------------------------------------------------------------------------------------- hidden cases


def best_of(build: Build, stages: tuple[str, ...]) -> Best:
    """Return what the best order reaches: the reference answer tries all of them."""
    _, _, counts = reference("day03.pipeline")(build(), {name: STAGES[name] for name in stages})
    return Best(counts[-1], len(counts))


@pipeline_case("constants behind a where", graph(..., (2, 3), w=(2, 3)), SWEEP, Best(4, 8))
def constants(m: Any, x: fx.Proxy) -> fx.Proxy:
    mask = x > 0
    w = torch.where(mask, m.w, read(x, "w"))
    return x + torch.tanh(torch.neg(torch.neg(w))) * 2


def scaled(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x) * 4 * 0.5
    z = torch.relu(x) * 2
    return torch.where(x > 0, y, z) * 2 * 2


twins = pipeline_case("scales and twins", graph(scaled, (2, 3)), ("double", "cse", "scale", "simplify"), Best(6, 8))


@pipeline_case("sooner or smaller", graph(..., (2, 3)), ("fold", "cse", "scale"), Best(5, 9))
def patient(m: Any, x: fx.Proxy) -> fx.Proxy:
    """Return a graph whose smallest form takes another sweep; other orders are done sooner, with more nodes."""
    y = torch.relu(x)
    once, _unread = y * 2, y * 2
    return y * 4 + once * 2


two_passes = pipeline_case("two passes", graph(scaled, (2, 3)), ("dce", "scale"), Best(9, 4))
one_pass_with_work = pipeline_case("one pass", graph(scaled, (2, 3)), ("scale",), Best(9, 2))


@drawn
def other_operands(rng: random.Random) -> list[Case]:
    factor = rng.choice((3, 5, 7))

    @pipeline_case("other operands", graph(..., (2, 3)), ("scale", "dce"), Best(5, 4))
    def program(m: Any, x: fx.Proxy) -> fx.Proxy:
        """Return a graph that keeps its nodes, names and calls, and gets other operands."""
        y = x * 3
        return y + y * factor

    return [program]


@drawn
def many_sweeps(rng: random.Random) -> list[Case]:
    sweeps = rng.randrange(8, 11)

    @pipeline_case("many sweeps", graph(..., (2, 3)), ("cse", "simplify"), Best(2 * sweeps + 3, 2 * sweeps + 2))
    def program(m: Any, x: fx.Proxy) -> fx.Proxy:
        """Return two relus that become one only after the where above them has gone, and the other way round."""
        a = b = x
        for i in range(sweeps):
            a, b = torch.relu(torch.where(x > i, a, b)), torch.relu(a)
        return a + b

    return [program]


exp = graph(lambda m, x: torch.exp(x), (2, 3))
one_pass = pipeline_case("one pass, nothing to do", exp, ("dce",), Best(3, 1))
nothing = pipeline_case("nothing to do", exp, ("cse", "dce", "simplify"), Best(3, 3))


@drawn
def random_graphs(rng: random.Random) -> Iterable[Case]:
    for i in range(3):
        depth, kinds = rng.randrange(2, 4), [rng.randrange(4) for _ in range(3)]
        stages = tuple(rng.sample(list(STAGES), rng.choice((3, 4))))
        build = _chain(depth, kinds)
        yield pipeline_case(f"drawn, number {i + 1}", build, stages, best_of(build, stages))


def _chain(depth: int, kinds: list[int]) -> Build:
    def body(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = x
        for _ in range(depth):
            for kind in kinds:
                if kind == 0:
                    y = torch.where(x > 0, torch.relu(y), torch.relu(y))
                elif kind == 1:
                    y = torch.neg(torch.neg(y)) + torch.tanh(m.w) * 3
                elif kind == 2:
                    y = y * 2 * 2
                else:
                    torch.exp(y)
                    y = torch.relu(y) * 2 + torch.relu(y) * 2
        return y

    return graph(body, (2, 3), w=(2, 3))


# ---------------------------------------------------------------------------------------------------- answers


def _wiring(gm):
    place = {node: i for i, node in enumerate(gm.graph.nodes)}
    return [(n.op, str(n.target), str(fx.node.map_arg((n.args, n.kwargs), lambda m: f"%{place[m]}"))) for n in place]


def _run(gm, passes):
    """Sweep until the graph is wired as before."""
    counts, last = [], None
    while last != _wiring(gm):
        last = _wiring(gm)
        for run in passes:
            gm = run(gm)
            counts.append(len(gm.graph.nodes))
    return gm, counts


def _all(gm, passes, orders=itertools.permutations, fresh=copy.deepcopy):
    results = []
    for order in orders(passes):
        result, counts = _run(fresh(gm), [passes[name] for name in order])
        results.append((result, list(order), counts))
    return min(results, key=lambda f: (f[2][-1], len(f[2])))


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
            result, counts = _run(copied(), [passes[name] for name in order])
            if best is None or (counts[-1], len(counts)) < (best[2][-1], len(best[2])):
                best = result, order, counts

    extend([])
    return best


@wrong("did", "tries every order on the graph that the order before left: nothing is copied")
def without_a_copy(gm, passes):
    return _all(gm, passes, fresh=lambda gm: gm)


@wrong("valid", "runs whichever pass helps most at the moment: that is not an order of all passes")
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


BEST = "(f[2][-1], len(f[2]))"


def _returns(result):
    """Return an edit: the answer makes its result from (done, order, counts) of the best order."""
    return "return min(results, key=...)", f"done, order, counts = min(results, key=...)\nreturn {result}"


one_sweep = edited("did", "one sweep is enough, or the last one, which changes nothing, does not count")(
    ("while (now := str(gm.graph)) != old: ...", "for now in range(1): ...")
)
two_sweeps = edited("did", "two sweeps are always enough, and never too many")(
    ("while (now := str(gm.graph)) != old: ...", "for now in range(2): ...")
)
some_sweeps = edited("did", "a fixed number of runs, ten for instance, is always enough")(
    ("(...) != old", "(...) != old and len(counts) < 10")
)
counts_only = edited("did", "stops when the number of nodes is the same as before, though the graph has changed")(
    ("str(gm.graph)", "len(gm.graph.nodes)")
)
count_each_sweep = edited("did", "writes one count for each sweep")(
    _returns("done, order, counts[len(passes) - 1 :: len(passes)]")
)
as_it_comes = edited("cost", "takes the order in which the passes are given")(
    ("itertools.permutations(passes)", "[tuple(passes)]")
)
nodes_only = edited(
    "cost", "counts nodes and not runs: of the orders with the fewest nodes, the one with the most sweeps"
)((BEST, "(f[2][-1], -len(f[2]))"))
runs_only = edited("cost", "the fewest runs are best, however many nodes are left")((BEST, "(len(f[2]), -f[2][-1])"))

EQUIVALENT = {
    ("list(order)", "order"): "the order is judged by its names, as a list or as a tuple",
}
