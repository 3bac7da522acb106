"""Day 12, the capstone: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise, Written

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"capstone": "relax"}

_CLOSED = tuple(
    f"passlab.capstone.reference.{name}"
    for name in "compile library_groups kernel_groups plan fold_batchnorm fold_constants cse dce".split()  # noqa: SIM905
)

EXERCISES = (
    Exercise(
        id="day12.compiler",
        title="A compiler of your own",
        section="Step by step",
        points={"valid": 1, "same": 3, "did": 4, "spared": 2, "cost": 3},
        difficulty=3,
        minutes=50,
        hints=(
            "Three steps: fold each batch norm into its convolution, merge equal calls and remove dead ones, then find "
            "groups. A node with effects(node), or in written(graph), takes part in none of them; and two equal calls "
            "that read one in written(graph) are not merged.",
            "Go through the nodes in order. Try the group of the latest operand, with the node at its end, then those "
            "of the other operands; if why_not of all groups is None, keep it. Otherwise the node may begin a group "
            "of its own, if why_not allows that.",
            "Keep the groups as lists of names, and for each node the number of its group. A group of views alone "
            "(transpose, chunk, getitem, …) would be a copy where there was none: leave it out, and single nodes, too.",
        ),
        helps={"valid": 2, "same": 1, "did": 2, "spared": 1, "cost": 3},
        closed=_CLOSED,
        seconds=30,
    ),
    Exercise(
        id="day12.plan",
        title="Order and places",
        section="Step by step",
        points={"valid": 2, "did": 3, "spared": 1},
        difficulty=2,
        minutes=25,
        hints=(
            "A plan is for the graph with one node for each group: gm = grouped(graph, groups, inputs). "
            "planned(gm, *inputs, allocate=…, order=…) makes one.",
            "Day 5 has orders with a low peak, best_order(tasks_of(gm, *inputs)).order, and two rules that place "
            "buffers, first_fit and best_fit, each with four ORDERS. Make all these plans, and keep the lowest arena.",
            "The order of tasks has only calls that something uses, and the output: put inputs and weights first, and "
            "calls that nothing uses before the output. tasks_of raises BadTasks for "
            "a graph that writes into memory, and an order may draw random numbers in other turns: leave those graphs "
            "in their own order. Ask for the effects of calls only: inputs and the output always have one.",
        ),
        helps={"valid": 1, "did": 2, "spared": 3},
        closed=("passlab.capstone.reference.compile", "passlab.capstone.reference.plan"),
        seconds=20,
    ),
    Exercise(
        id="day12.faster",
        title="Faster",
        section="Time, and how it lies",
        points={"valid": 1, "same": 1, "did": 3, "cost": 3},
        difficulty=4,
        minutes=45,
        stretch=True,
        hints=(
            "Begin with your compiler: groups of a convolution with its sum and its relu are one call of oneDNN, whose "
            "weights are laid out once.",
            "Long chains over large tensors wait for memory: every kernel less is one trip less. Measure with "
            'timed({"eager": gm, "mine": build(compiled, inputs)}, *inputs).',
            "A plan that lets the same memory be used again keeps it in the cache: return one with the groups.",
        ),
        helps={"valid": 1, "same": 1, "did": 2, "cost": 1},
        closed=_CLOSED,
        seconds=30,
    ),
    Exercise(
        id="day12.beyond",
        title="Beyond the course",
        section="How a compiler is judged",
        points={"valid": 1, "same": 1, "did": 2, "cost": 2},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "Begin with compile_model, and give each node that is in none of its groups, but may be in one, a group of "
            "its own: why_not([[node.name]]) is None.",
            "An edge from a node to its user leads from one group to another, or stays inside. Sort all edges by the "
            "size of the node's value, the largest first, and merge the two groups of each where why_not of all "
            "groups is still None.",
            "node.meta['tensor_meta'].shape.numel() is a size; chunk has a tuple of these. Names in a group stand in "
            "the order of the graph. At the end, leave out groups in which fewer than two nodes compute.",
        ),
        meaning={"did": "fewer launches than the course's", "cost": "no more than the course's on any model"},
        helps={"valid": 3, "same": 1, "did": 1, "cost": 2},
        closed=_CLOSED,
        seconds=60,
    ),
)

WRITTEN = (Written(id="day12.write-up", title="What you built, and why", points=10, difficulty=1, minutes=20),)
