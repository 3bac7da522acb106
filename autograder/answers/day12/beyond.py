"""Hidden cases and answers of day12.beyond."""

from __future__ import annotations

import random

from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from autograder.answers.day12.compiler import batch_norm, kinds, last, signs, training
from autograder.authoring.answers import edited, reference, right, wrong
from passlab.capstone import Compiled, groupable, grouped
from passlab.capstone.compiled import with_shapes
from passlab.capstone.families import drawn
from passlab.exercises.day12._shared import graph_case
from passlab.exercises.day12.beyond import beyond_case
from passlab.exercises.day12.compiler import noisy, traced, written
from passlab.fx.cases import graph, seeded
from passlab.fx.effects import effects
from passlab.fx.judge import rebuild
from passlab.fx.patterns import canonical
from passlab.judge import Case
from passlab.memory.plan import planned


def hidden(seed: int) -> list[Case]:
    rng, trap = random.Random(seed), ("valid", "same")
    return [
        beyond_case(drawn(rng.choice(("attention", "skip")), seed)),
        beyond_case(drawn(rng.choice(("vit", "lstm")), seed)),
        beyond_case(drawn("gpt", seed)),
        beyond_case(drawn(rng.choice(("convnet", "residual")), seed)),
        traced("two draws", noisy, trap, seed, True),
        traced("a value is written, drawn", written, trap, seed),
        traced("zeros of two signs", signs, trap, seed),
        traced("ones of three types", kinds, trap, seed),
        graph_case(
            "batch norm in training",
            seeded(graph(training, (2, 3, 9, 9), training=True, conv=lambda: nn.Conv2d(3, 4, 3), bn=batch_norm), seed),
            trap,
        ),
    ]


_RETURN = "return Compiled(compiled.graph, ...)"

# ---------------------------------------------------------------------------------------------------- answers

as_before = edited("cost", "stops where the compiler of question 1 does")((_RETURN, "return compiled"))
no_groups = edited("did", "leaves every operation a launch of its own")((_RETURN, "return Compiled(compiled.graph)"))
not_asked = edited("valid", "merges without asking whether that is legal")(
    ("why_not([group for group in merged if group]) is None", "True")
)
returns_graph = edited("valid", "returns the graph, which is code")((_RETURN, "return compiled.graph"))
kernels_of_views = edited("did", "makes a kernel of each node that is left, views too: a copy where there was none")(
    ("len(works & set(g)) > 1", "g")
)


def _merged_equals(gm, may):
    """A copy in which calls of one function with equal arguments are one, of those that `may` accepts."""
    gm, first = rebuild(gm), {}
    for node in gm.graph.nodes:
        if may(node) and first.setdefault((node.target, node.args), node) is not node:
            node.replace_all_uses_with(first[node.target, node.args])
            gm.graph.erase_node(node)
    return gm


@wrong("same", "merges two draws of random numbers")
def merged_draws(gm, inputs):
    return reference("day12.beyond")(_merged_equals(gm, lambda node: "draws" in effects(node)), inputs)


@wrong("same", "takes constants that are equal for the same: 1 and 1.0, 0.0 and -0.0")
def equal_constants(gm, inputs):
    def may(node):
        constants = [x for x in node.args[1:] if not isinstance(x, fx.Node)]
        return node.op == "call_function" and constants and {*map(type, constants)} <= {bool, int, float}

    return reference("day12.beyond")(_merged_equals(gm, may), inputs)


@wrong("same", "compiles the model as if it were not in training")
def not_training(gm, inputs):
    return reference("day12.beyond")(rebuild(gm).eval(), inputs)


@right("hands over a plan with it, and weights with channels last")
def with_plan(gm, inputs):
    model = reference("day12.beyond")(gm, inputs)
    layouts = last(model.graph, inputs)
    steps = grouped(model.graph, model.groups, inputs, layouts)
    return Compiled(model.graph, model.groups, plan=planned(steps, *inputs), layouts=layouts)


@right("begins with single nodes, and goes through the edges until none can be merged")
def from_single_nodes(gm, inputs):
    gm = reference("day12.compiler")(gm, inputs).graph
    why_not, place = groupable(gm, inputs), {node.name: at for at, node in enumerate(gm.graph.nodes)}
    groups = [[node.name] for node in gm.graph.nodes if why_not([[node.name]]) is None]
    edges = [(node.name, user.name) for node in gm.graph.nodes for user in node.users]
    sizes = _sizes(gm, inputs)
    edges.sort(key=lambda edge: -sizes[edge[0]])
    while merged := next(filter(None, (_merged(groups, edge, why_not, place) for edge in edges)), None):
        groups = merged
    works = {node.name for node in gm.graph.nodes if canonical(node, gm) not in _VIEWS}
    return Compiled(gm, [group for group in groups if len(works & set(group)) > 1])


#: Operations that move no element, or only choose some.
_VIEWS = {"transpose", "permute", "reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "chunk", "getitem"}


def _sizes(gm, inputs):
    """Node → the bytes of its value."""
    values = {node.name: tree_leaves(node.meta.get("val")) for node in with_shapes(gm, inputs).graph.nodes}
    return {name: sum(t.nbytes for t in tensors if isinstance(t, Tensor)) for name, tensors in values.items()}


def _merged(groups, edge, why_not, place):
    """The groups with the two of an edge merged, or None."""
    ends = [group for group in groups if set(edge) & set(group)]
    if len(ends) < 2:
        return None
    union = sorted(ends[0] + ends[1], key=place.__getitem__)
    merged = [*(group for group in groups if group not in ends), union]
    return merged if why_not(merged) is None else None
