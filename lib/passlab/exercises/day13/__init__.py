"""Day 13, torch.compile from inside: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"compile": "torch"}

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        id="day13.breaks",
        title="Where capture stops",
        section="Breaks",
        points={"valid": 1, "did": 3, "spared": 2, "same": 3},
        difficulty=2,
        minutes=45,
        hints=(
            "Execute the statements as Dynamo does: go through them with a dictionary from name to what is known of a "
            'value: "tensor", a number, or None for a number that is not known. The reason follows from the operation '
            "and the kinds of its operands.",
            "Count the operations since the last break. At a break, and at the end, the piece is a graph if there was "
            "one; then begin at 0. Lines that Python executes are not operations of a graph.",
            "An `if` and a `for` walk their own statements with the same function. Tell it whether it is inside a "
            "loop. There, capture does not stop but fails: return that to the caller, up to the function itself, and "
            "leave the operations of the last piece uncounted.",
        ),
        meaning={
            "did": "all of Dynamo's breaks are found, with their reasons",
            "spared": "no break is named where Dynamo has none",
            "same": "the number of graphs is right",
        },
        helps={"valid": 1, "did": 1, "spared": 3, "same": 2},
        closed=("passlab.capture.Capture", "passlab.capture.capture"),
    ),
    Exercise(
        id="day13.recompiles",
        title="When it compiles again",
        section="Guards",
        points={"valid": 1, "did": 4, "spared": 4},
        difficulty=2,
        minutes=40,
        hints=(
            "Keep a list of versions. First take a call apart: what is always fixed (types, dtypes, flags, numbers of "
            "dimensions, gradients), and what may be a symbol, the sizes and numbers, each under a name of its own.",
            "A version is what it fixes: two lists that must be equal, and a dictionary from size or number to the "
            "value it must have. For what is not in the dictionary, a size has to be 2 or more.",
            "Keep, for each size and number, the set of its values so far, and for each tensor the set of its numbers "
            "of dimensions. Add this call's before you decide what is a symbol: a size varies if its set, or that of "
            "the dimensions, has two members.",
        ),
        meaning={
            "did": "each call that compiles is found",
            "spared": "no call is named that an earlier version serves",
        },
        helps={"valid": 1, "did": 2, "spared": 3},
        closed=("passlab.capture.Capture", "passlab.capture.capture"),
    ),
    Exercise(
        id="day13.backend",
        title="A backend",
        section="A backend",
        points={"valid": 1, "same": 3, "did": 3, "spared": 1},
        difficulty=3,
        minutes=35,
        hints=(
            "Go through the nodes from the last to the first. The first element-wise one that you meet is the last of "
            "a kernel. Then go on towards the beginning and collect what belongs to it: at each node, all its readers "
            "have been decided.",
            "A node joins a kernel if it is element-wise, has users, and all its users are in the kernel already. The "
            "output node is a user; so is a node that writes into the value, or views it.",
            "Number the nodes first. If one of a node's operands is in written(gm.graph), the node may join only if no "
            "writing node has a number between its own and that of the kernel's last node.",
        ),
        meaning={
            "same": "it returns, writes and shares what it did",
            "did": "the kernels are few",
            "spared": "nothing is computed twice",
        },
        helps={"valid": 2, "same": 3, "did": 1, "spared": 2},
        closed=("passlab.exercises.day13.backend.groups",),
    ),
    Exercise(
        id="day13.functionalize",
        title="Without writes",
        section="Functionalisation",
        points={"valid": 1, "same": 4, "did": 3, "spared": 2},
        stretch=True,
        difficulty=4,
        minutes=55,
        hints=(
            "Build a new graph, node by node. Keep for each memory (an input, or what an operation computed) its value "
            "at present, and for each view the node that it looks into. To read a view is to read what it looks into, "
            "now, and to apply the view to that.",
            "A write computes the new value of a view from the present one. Then go up: put it back into the present "
            "value of the node that the view looks into, which gives that one's new value, and so on to the memory "
            "itself. The node that writes is from then on a view of all of its operand.",
            "The new value in the form of the old one is aten.copy.default(old, new). At the output, read the results "
            "first; then copy into each input whose value at present is not the input itself.",
        ),
        meaning={
            "did": "only the last nodes write",
            "spared": "each written input is copied into once, no other",
        },
        helps={"valid": 1, "same": 2, "did": 2, "spared": 3},
        closed=(
            "torch._functorch.eager_transforms.functionalize",
            "torch._subclasses.functional_tensor.FunctionalTensorMode",
            "passlab.capture.lowering.lower",
        ),
    ),
    Exercise(
        id="day13.decompose",
        title="Into few operations",
        section="Decompositions",
        points={"valid": 1, "same": 3, "did": 2, "spared": 5},
        stretch=True,
        difficulty=3,
        minutes=55,
        hints=(
            "Make a table from operation to a function of proxies, and write each function as the formula. Let them "
            "call each other: softplus and tanh need no new idea once log1p and expm1 are right. Then look at where "
            "each formula overflows, and where it subtracts two numbers that are almost equal.",
            "softmax does not change if a number is subtracted from all elements: take the largest. log_softmax is "
            "that difference less the logarithm of a sum. var: first the mean, then the distances from it. hypot: "
            "divide by the larger one. tanh(|x|) = -e / (e + 2) with e = expm1(-2|x|), softplus(x) = max(x, 0) + "
            "log1p(exp(-|x|)).",
            "log1p (by Kahan): u = 1 + x is rounded, but log(u) / (u - 1) changes so slowly that its product with x is "
            "right; where u is 1, the result is x. expm1 likewise: (u - 1) * (x / log(u)) with u = exp(x). Ask with "
            "torch.where for 0 and inf, where these are NaN.",
        ),
        meaning={
            "same": "it is right in float64, on ordinary numbers",
            "did": "only the few operations are left",
            "spared": "float32 is as accurate as before",
        },
        helps={"valid": 1, "same": 2, "did": 1, "spared": 3},
    ),
    Exercise(
        id="day13.one-graph",
        title="One graph",
        section="Control flow",
        points={"valid": 1, "same": 3, "did": 4, "cost": 1},
        stretch=True,
        difficulty=3,
        minutes=40,
        hints=(
            "Build one graph. `graph.graph_copy(part.graph, places)` appends another graph and returns its result; "
            "`places` maps each of its placeholders to a node of yours. Keep the state as a list of nodes: a step "
            "makes of it the next list.",
            "A step is torch.where(p, a, b) for each tensor of the state. A loop is `most` such steps: where the "
            "predicate is false, the state stays as it is, and so does the predicate.",
            "A branch that is not taken must not see the state. Give it torch.where(p, x, s) instead, with s from "
            "`safe`: where p is true that is the state, elsewhere a number at which all is finite. For the other "
            "branch it is the other way round. Then choose between the results as before.",
        ),
        meaning={
            "same": "the values are those of the program",
            "did": "the gradients are those of the branches taken",
            "cost": "each branch is in the graph once",
        },
        helps={"valid": 1, "same": 2, "did": 3, "cost": 2},
    ),
)
