"""Day 14, training as a pass: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"training": "torch"}

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        id="day14.vjp",
        title="A rule for each operation",
        section="A rule for each operation",
        points={"valid": 1, "same": 3, "did": 4, "spared": 1},
        difficulty=2,
        minutes=40,
        hints=(
            "Begin with what all rules share: the last step, which brings a gradient into the shape and the dtype of "
            "its argument. Then most rules are one line of calculus.",
            "What forward copied, backward sums: g.sum_to_size(x.shape) undoes every broadcast, that of expand, too. "
            "What forward summed, backward copies: put the dimensions that are gone back with unsqueeze, the lowest "
            "first, then expand.",
            "At the edges, use torch.where or masked_fill with the condition of the table: a product with a mask makes "
            "NaN of inf * 0. For amax, chosen = x == (the maxima, spread over x), divided by chosen.sum(dim, "
            "keepdim=True). For softmax, (g - (g * out).sum(dim, keepdim=True)) * out.",
        ),
        meaning={
            "valid": "one entry for each argument",
            "did": "the gradients are right on ordinary numbers",
            "same": "at the edges they are torch's",
            "spared": "nothing else gets a gradient",
        },
        helps={"valid": 1, "same": 3, "did": 2, "spared": 1},
        closed=(
            "passlab.autodiff.rules.RULES",
            "torch.autograd.forward_ad.make_dual",
            "torch.autograd.graph._engine_run_backward",
        ),
    ),
    Exercise(
        id="day14.backward",
        title="Backwards through a graph",
        section="Forks add",
        points={"valid": 1, "same": 2, "did": 4, "spared": 2, "cost": 1},
        difficulty=2,
        minutes=40,
        hints=(
            "Write a function run(*args) that takes the inputs and the tangents, first computes the value of each "
            "node, and then the gradient of each node, in the reverse order. Then let record make a graph of it.",
            "Keep a dictionary from nodes to gradients, which begins with the tangents. In the reverse order, all "
            "consumers of a node come before it: when you reach it, its sum is complete. Never add in place: two "
            "operands may have been given the same tensor.",
            "First find the nodes that gradients can pass: go forward from the inputs of floats. Then go backward from "
            "the outputs: such a node that is needed and has no rule is the one to report.",
        ),
        meaning={
            "valid": "a graph with the right inputs and outputs",
            "did": "the gradients are torch's",
            "same": "outputs and inputs stay; edges are torch's",
            "spared": "it refuses what has no rule, and nothing else",
            "cost": "nothing is computed twice",
        },
        helps={"valid": 1, "same": 2, "did": 2, "spared": 3, "cost": 2},
        closed=(
            "passlab.autodiff.joint.joint",
            "passlab.autodiff.joint._backward",
            "torch.autograd.graph._engine_run_backward",
        ),
    ),
    Exercise(
        id="day14.partition",
        title="The cut",
        section="The cut",
        points={"valid": 1, "same": 3, "spared": 2, "did": 2, "cost": 3},
        difficulty=1,
        minutes=40,
        hints=(
            "Three sets of nodes come first: the forward nodes (no tangent among their ancestors), the live ones (walk "
            "back from the gradients, and stop at forward nodes), and those in both, which the gradients read. To save "
            "these is a valid cut already.",
            "Give each forward node two ends, before and after, and a pipe between them as wide as its memory: to cut "
            "the pipe is to save the value. Unlimited pipes lead from the end of an operand to the beginning of its "
            "reader, from the source to what cannot be computed once more, and from what the gradients read to the "
            "sink.",
            "A value that cannot be saved (a tuple, or what copy_ writes into) has an unlimited pipe of its own. Saved "
            "are the nodes whose beginning is on the source's side of the cut, and whose end is not. part(joint, "
            "primals, results[:outputs] + cut, also=writes) is the forward graph.",
        ),
        meaning={
            "valid": "two graphs with the right inputs and results",
            "spared": "nothing that must run once runs twice",
            "did": "no more is saved than the gradients read",
            "cost": "the fewest bytes are saved",
        },
        helps={"valid": 3, "same": 3, "spared": 2, "did": 1, "cost": 2},
        closed=(
            "passlab.autodiff.partition.partition",
            "passlab.autodiff.partition.saved_values",
            "passlab.autodiff.partition.saved_under_budget",
            "torch._functorch.partitioners.min_cut_rematerialization_partition",
            "torch._functorch.partitioners.default_partition",
        ),
    ),
    Exercise(
        id="day14.recompute",
        title="Once more, under a budget",
        section="Checkpointing is a choice of the cut",
        points={"valid": 1, "same": 3, "spared": 2, "did": 2, "cost": 4},
        difficulty=3,
        minutes=65,
        seconds=10.0,
        stretch=True,
        hints=(
            "Three steps: merge equal nodes into a new graph; decide what to keep; write the graph with tagged copies. "
            "Keep them apart: the second needs the merged graph, and nothing may be merged after the third.",
            "To decide: a 0-1 variable for each memory (kept) and one for each forward node (computed once more). What "
            "the gradients read is kept or computed once more, and so is each operand of what is computed once more. "
            "Inputs and random draws are never computed once more. The kept bytes fit the budget; minimize the work.",
            "To write: copy the nodes in order. The operands of a node that a tangent reaches come from a function "
            "behind(operand): the first copy, if its memory is kept; otherwise a second copy, made once, whose "
            'operands come from behind, too. Its name: copy.name = f"again_{node.name}".',
        ),
        meaning={
            "spared": "no equal nodes are left; tags are right",
            "did": "what is kept fits the budget",
            "cost": "the work is nearly the least",
        },
        helps={"valid": 3, "same": 1, "spared": 3, "did": 2, "cost": 2},
        closed=(
            "passlab.autodiff.partition.partition",
            "passlab.autodiff.partition.saved_under_budget",
        ),
    ),
    Exercise(
        id="day14.optimizer",
        title="A step in few kernels",
        section="One kernel for an update",
        points={"valid": 1, "same": 4, "spared": 2, "did": 3},
        difficulty=2,
        minutes=45,
        stretch=True,
        hints=(
            "Two questions: which parameters belong together, and what one update computes. The first is a dictionary "
            "from all that a group has in common to its names; the second a function of p, g, the state and t, which "
            "fx.symbolic_trace turns into a graph.",
            "The key of a group: the dtype, in which steps there are gradients, and all options, the defaults filled "
            "in: DEFAULTS[method] | one['options']. Before that, skip what never has a gradient, and a memory that has "
            "been seen.",
            "SGD: buffer = torch.where(t == 1, g, momentum * buffer + (1 - dampening) * g), only if momentum is not 0; "
            "Nesterov steps along g + momentum * buffer. Adam: two averages that begin with zeros; divide the first by "
            "1 - b1 ** t, the second by 1 - b2 ** t, then take the root, and add eps to that.",
        ),
        meaning={
            "valid": "groups whose graphs are one element-wise kernel",
            "same": "each step is that of torch.optim",
            "spared": "what shares a group may share it",
            "did": "as few groups as can be",
        },
        helps={"valid": 1, "same": 3, "spared": 2, "did": 2},
    ),
    Exercise(
        id="day14.forward-mode",
        title="Forward mode",
        section="Forward mode",
        points={"valid": 1, "same": 2, "did": 4, "cost": 1},
        difficulty=3,
        minutes=70,
        stretch=True,
        hints=(
            "Walk once through the graph, in its order. Keep two dictionaries: the value of each node, and the change "
            "of each node that has one. Then let record make a graph of it.",
            "Most operations are linear: applied to the change they give the change of the result. Of a product, each "
            "factor changes in turn. An element-wise function multiplies the change by its slope. What does not change "
            "has no entry, so that no zeros are computed with.",
            "A quotient: (dx - out * dy) / y. Softmax: out * (dx - (out * dx).sum(dim, keepdim=True)). amax: the sum "
            "of the changes of the chosen ones, divided by their number. A change has the shape of its value: that of "
            "x + b, where only b changes, has to be expanded.",
        ),
        meaning={
            "valid": "a graph with the right inputs and outputs",
            "did": "the derivatives are torch's",
            "same": "at kinks, ties and other edges, too",
            "cost": "all changes travel together",
        },
        helps={"valid": 1, "same": 3, "did": 2, "cost": 2},
        closed=(
            "passlab.autodiff.forward_mode.jvp",
            "passlab.autodiff.joint.joint",
            "torch.autograd.forward_ad.make_dual",
            "torch.autograd.graph._engine_run_backward",
        ),
    ),
)
