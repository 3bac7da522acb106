"""Hidden cases and answers of day17.shrink."""

from __future__ import annotations

import itertools
import random

from torch import Tensor, fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day17.shrink import LOWER, shrink_case
from passlab.fx.values import values_of
from passlab.judge import Case

STAGES = ("fold", "fuse", "simplify", "schedule", "vectorize")


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    cases = []
    for name in ("swapped", "other", "raises", "three", "long", "shapes", "shared", "both", "turned"):
        one, two, three, four, five = rng.sample(("tanh", "sigmoid", "neg", "abs", "sin", "cos", "relu"), 5)
        binary = rng.choice(("sub", "mul", "maximum"))
        instead = "sin" if one == "cos" else "cos"  # of no function above is it the same
        stage, other = rng.sample(STAGES, 2)
        if name in ("swapped", "other", "shared", "both"):  # one stage with two faults
            other = stage
        pattern, readers, result = {
            "swapped": (("sub", (one, "?x"), "?y"), 1, ("sub", "?y", (one, "?x"))),
            "other": ((one, (two, "?x")), 1, (instead, (two, "?x"))),
            "raises": ((binary, (one, "?x"), "?y"), 1, f"KeyError: '{one}'"),
            "three": (("sub", (binary, "?x", "?y"), (one, "?x")), 1, f"no kernel for {binary}"),
            "long": ((one, (two, (three, "?x"))), 1, (instead, (two, (three, "?x")))),
            "shapes": (("sum", ("transpose", "?x")), 1, "IndexError: dim is out of range"),
            "shared": ((binary, (one, "?x"), "?y"), 2, ("neg", (binary, (one, "?x"), "?y"))),
            "turned": ((binary, (one, "?x"), "?y"), 1, f"no room for {binary}"),
            "both": ((binary, (one, "?x"), (two, "?y")), 2, f"two readers of {one}"),
        }[name]
        own = (stage, pattern, readers, result)
        slip = (other, (four, (five, "?x")), 1, f"ValueError: {four}")
        first = rng.random() < 0.5
        faults = [LOWER, own, slip] if first else [own, slip, LOWER]
        size = 12 if readers > 1 else 18
        cases.append(shrink_case(name, rng.randrange(10**6), faults, size, int(first), name == "turned"))
    return cases


# ---------------------------------------------------------------------------------------------------- answers


def _part(gm, values, nodes):
    """The graph of some nodes, all of which are results. What else they read is an input."""
    graph, copies, inputs = fx.Graph(), {}, []
    for node in gm.graph.nodes:
        if node not in nodes and any(user in nodes for user in node.users):
            copies[node] = graph.placeholder(node.name)
            inputs.append(values[node])
    for node in gm.graph.nodes:
        if node in nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in gm.graph.nodes if node in nodes))
    return fx.GraphModule({}, graph), tuple(inputs)


@right("cuts out all connected parts of one operation, then of two, of three")
def from_below(gm, inputs, failure):
    reason, values = failure(gm, inputs), values_of(gm, inputs)
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    parts = [frozenset([node]) for node in calls]
    while True:
        for nodes in parts:
            small = _part(gm, values, nodes)
            if failure(*small) == reason:
                return small
        parts = dict.fromkeys(
            nodes | {other}
            for nodes in parts
            for node in nodes
            for other in (*node.all_input_nodes, *node.users)
            if other in calls and other not in nodes
        )


def _bisected(gm, inputs, failure):
    """The nodes that have to stay, as results, by halves (delta debugging)."""
    reason, values = failure(gm, inputs), values_of(gm, inputs)
    nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
    piece = len(nodes) // 2
    while piece:
        at = 0
        while at < len(nodes):
            rest = nodes[:at] + nodes[at + piece :]
            if rest and failure(*_part(gm, values, set(rest))) == reason:
                nodes = rest
            else:
                at += piece
        piece //= 2
    return _part(gm, values, set(nodes))


def _rebuilt(gm, inputs, outputs, instead):
    """A copy that returns other nodes; `instead`: node -> the node in its place, or
    a tensor, for a new input. It has what its results need, and nothing else."""
    graph, copies, used = fx.Graph(), {}, []
    by_node = dict(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True))
    by_node |= {node: x for node, x in instead.items() if isinstance(x, Tensor)}

    def needed(node):
        node = instead[node] if isinstance(instead.get(node), fx.Node) else node
        if node not in reached:
            reached.add(node)
            if node not in by_node:
                for operand in node.all_input_nodes:
                    needed(operand)
        return node

    reached = set()
    results = [needed(node) for node in outputs]
    for node in gm.graph.nodes:
        if node in reached and node in by_node:
            copies[node] = graph.placeholder(node.name)
            used.append(by_node[node])
    for node in gm.graph.nodes:
        if node in reached and node not in by_node:
            copies[node] = graph.node_copy(node, lambda n: copies[needed(n)])
    graph.output(tuple(copies[node] for node in results))
    return fx.GraphModule(gm, graph), tuple(used)


def _edits(gm, inputs, cut):
    """(outputs, instead) of each edit, those that remove most first."""
    outputs = list(gm.graph.output_node().args[0])
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    values = values_of(gm, inputs)
    yield from (([node], {}) for node in calls if [node] != outputs)
    for out in outputs:
        rest = [node for node in outputs if node is not out]
        if rest:
            yield rest, {}
        if out in calls:
            yield list(dict.fromkeys([*out.all_input_nodes, *rest])), {}
    if cut:
        yield from ((outputs, {node: values[node]}) for node in reversed(calls))
        for node in reversed(calls):  # its operands lose a reader, and get the output
            operands = [operand for operand in node.all_input_nodes if operand in calls]
            yield list(dict.fromkeys([*outputs, *operands])), {node: values[node]}
    for node in calls:
        for operand in node.all_input_nodes:
            if values[operand].shape == values[node].shape:
                yield outputs, {node: operand}


def _operations(gm):
    return sum(node.op == "call_function" for node in gm.graph.nodes)


@right("edits one by one, as in the lesson: returns inner nodes and operands, drops results, cuts off, bypasses")
def by_edits(gm, inputs, failure):
    return _edited(gm, inputs, failure)


def _edited(gm, inputs, failure, cut=True):
    reason = failure(gm, inputs)
    best = _rebuilt(gm, inputs, gm.graph.output_node().args[0], {})
    while True:
        for outputs, instead in _edits(*best, cut):
            smaller = _rebuilt(*best, outputs, instead)
            if _operations(smaller[0]) < _operations(best[0]) and failure(*smaller) == reason:
                best = smaller
                break
        else:
            return best


@wrong("cost", "edits one by one, without the one that cuts off")
def no_cuts(gm, inputs, failure):
    return _edited(gm, inputs, failure, cut=False)


@wrong("same", "any failure will do")
def any_failure(gm, inputs, failure):
    return _bisected(gm, inputs, lambda *pair: bool(failure(*pair)))


@wrong("same", "takes an error for an error, and other results for other results, wherever they come from")
def any_stage(gm, inputs, failure):
    return _bisected(gm, inputs, lambda *pair: failure(*pair).partition(" ")[2][:6])


@wrong("same", "looks only at the stage that fails, and not at how")
def any_failure_of_the_stage(gm, inputs, failure):
    return _bisected(gm, inputs, lambda *pair: failure(*pair).partition(" ")[0])


@wrong("same", "takes all errors of a stage for one")
def any_error_of_the_stage(gm, inputs, failure):
    return _bisected(gm, inputs, lambda *pair: failure(*pair).partition(":")[0])


@wrong("did", "returns the graph as it is")
def as_it_is(gm, inputs, failure):
    return gm, inputs


@wrong("valid", "returns the graph, and leaves it to others to find inputs")
def graph_alone(gm, inputs, failure):
    return _bisected(gm, inputs, failure)[0]


@wrong("valid", "keeps the inputs of the whole graph")
def old_inputs(gm, inputs, failure):
    return _bisected(gm, inputs, failure)[0], inputs


@wrong("spared", "keeps the inputs that nothing reads any more")
def unread_inputs(gm, inputs, failure):
    small, values = _bisected(gm, inputs, failure)
    first = next(iter(small.graph.nodes))
    with small.graph.inserting_before(first):
        small.graph.placeholder("unused")
    small.recompile()
    return small, (inputs[0], *values)


@wrong("did", "only drops results")
def results_alone(gm, inputs, failure):
    reason, results = failure(gm, inputs), list(gm.graph.output_node().args[0])
    best = gm, inputs
    for node in list(results):
        rest = [other for other in results if other is not node]
        small = _returning(gm, inputs, rest)
        if rest and failure(*small) == reason:
            best, results = small, rest
    return best


def _returning(gm, inputs, results):
    graph, needed = fx.Graph(), set(results)
    for node in reversed(gm.graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    copies, values = {}, []
    for node, value in itertools.zip_longest(gm.graph.nodes, inputs):
        if node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            values += [value] if node.op == "placeholder" else []
    graph.output(tuple(copies[node] for node in results))
    return fx.GraphModule({}, graph), tuple(values)


one_edit = edited("did", "leaves out half of the graph, and is done")(
    ("while length > 1 or nodes != before: ...", "for _ in range(1): ...")
)
coarse = edited("cost", "leaves out pairs, and no single operations")(("length > 1 or nodes != before", "length > 2"))
last_alone = edited("cost", "only the last value is a result: a fault that needs two readers is gone")(
    ("graph.output(tuple(copies[node] for node in nodes))", "graph.output((copies[nodes[-1]],))")
)
fresh_inputs = edited("cost", "gives zeros to new inputs")(
    ("given.append(values[node])", "given.append(0 * values[node])")
)

EQUIVALENT = {
    ("reversed(range(0, len(nodes), length))", "range(0, len(nodes), length)"): "pieces may be tried in any order",
    ("length > 1 or nodes != before", "length > 1"): "a second round of single nodes hardly ever removes one",
}
