"""Day 4, fusion: its exercises."""

from __future__ import annotations

from passlab.judge import Core, Exercise
from passlab.relay.compiler import COMPILING

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"fusion": "relax", "groups": "relay"}

EXERCISES = (
    Exercise(
        id="day04.chains",
        title="Chains of element-wise operations",
        section="Who reads it, and where do they meet?",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3, "cost": 2},
        difficulty=2,
        minutes=25,
        hints=(
            "Begin with what may be in a group at all: pattern(node) is at most Pattern.BROADCAST, and neither the "
            "node nor an operand is in written(gm.graph). It is easiest to decide whether a node may join once all "
            "its consumers are already in groups. In which order should you walk?",
            "Walk the nodes from last to first. If all consumers of a node are in the same group, the node joins that "
            "group. Otherwise (they are in different groups, or one of them is not in a group) it becomes the last "
            "node of a new group.",
            "Identify a group by its last node: last = {}; for node in reversed(gm.graph.nodes): readers = "
            "{last.get(r) for r in node.users}. If that set has exactly one element, and it is not None, last[node] "
            "is that element; otherwise it is the node itself. At the end collect the names by last[node], in graph "
            "order.",
        ),
        helps={"same": 2, "did": 2, "spared": 2, "cost": 2},
        closed=("passlab.exercises.day04.chains.largest_groups",),
    ),
    Exercise(
        id="day04.groups",
        notebook="groups",
        title="The groups of FuseOps, on FX",
        section="Groups with a name",
        points={"valid": 1, "did": 8, "spared": 3},
        difficulty=5,
        minutes=75,
        stretch=True,
        hints=(
            "post_dominators(gm.graph) tells you where all paths from a node meet again, and nodes_between(node, "
            "sink, 256) which nodes are between, or None if there are too many. Every edge on these paths leads from "
            "the node, or from one in between, to one of its users. Try sum(relu(x)) and relu(sum(x)) on paper first.",
            "Groups that merge are a union-find: parent = {n: n for n in nodes}, and last(n) follows it up to a node "
            "that is its own parent. Attach the other nodes to the last node of the sink's group: the root is then "
            "always the last node of its group, and kind[last(n)] is what the table calls the kind of the group. Keep "
            "two dictionaries: the pattern of each node for edges, the kind for groups.",
            "Write one function joins(n, phase, sink, between), row by row like the table. Before you call it, skip "
            "the output; in phases 1 and 2 skip sinks that are a cat, in phase 3 skip all others; and in phases 1 and "
            "2 skip a node that is already in the sink's group. size[n] begins at 1, or at 2 for a cat.",
        ),
        helps={"did": 1},
        closed=("tvm.relay.transform.FuseOps", *COMPILING),
    ),
    Exercise(
        id="day04.convex",
        title="May this group be one kernel?",
        section="May these be one kernel?",
        points={"valid": 1, "did": 5, "spared": 4},
        difficulty=3,
        minutes=30,
        hints=(
            "A member for which effects(node) is not empty is reason enough to refuse. For the rest, walk the graph "
            "once, in its order: which nodes outside the group have to stay behind some member, directly or through "
            "other outside nodes?",
            "A node has to stay behind [*node.all_input_nodes, *memory_order(gm.graph)[node]]. all_input_nodes "
            "includes operands in lists and keywords; args alone does not.",
            "Keep a dictionary came_from: outside node → the node that it has to stay behind, if that is a member or "
            "is itself in came_from. A member that has to stay behind a node of came_from closes the path: follow "
            "came_from back to the member where the path began. Trying all paths takes forever where they fork and "
            "join.",
        ),
        helps={"did": 1, "spared": 1},
        closed=(
            "passlab.exercises.day04.convex.way_back",
            "passlab.kernels.groups._way_back",
            "passlab.kernels.groups._why_no_order",
        ),
    ),
    Exercise(
        id="day04.linear-act",
        title="Linear, bias and activation",
        section="Find, check, rewrite",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3, "cost": 1},
        difficulty=3,
        minutes=85,
        stretch=True,
        hints=(
            "Start at the activation and walk up: is its operand a product, or a sum of a product and a bias? Write "
            "one function that returns (x, weight, bias) for a node, however it is spelled, or None.",
            "Try both orders of the sum: for y, b in (node.args, node.args[::-1]). A value is read once if "
            "len(node.users) is 1 and it occurs once among the operands of that user. A bias has the shape "
            "(weight.shape[0],), and with kwargs (alpha, beta) nothing matches. The parameters of a module have paths "
            "such as 'fc.weight'.",
            "with gm.graph.inserting_before(activation): weight = gm.graph.get_attr('fc.weight'), then new = "
            "gm.graph.call_function(linear_act, (x, weight, bias, 'relu')). Redirect the users, then erase the "
            "activation, the sum, the product and w.t(), in this order, each if it has no users. Do not rewrite at "
            "all if x, weight or bias is in written(gm.graph), or if a get_attr of the same path is.",
        ),
        helps={"valid": 3, "same": 2, "did": 1, "spared": 2, "cost": 3},
        smaller=(
            "Find one spelling only: F.relu of F.linear(x, w, b), with x, w and b by position. Replace the two by "
            "linear_act(x, w, b, 'relu') if nothing but the relu reads the layer, and erase them. Ignore modules, "
            "products that are written out, other activations, dtypes, and memory that the program writes."
        ),
    ),
    Exercise(
        id="day04.attention",
        title="Attention as one op",
        section="Attention",
        points={"valid": 1, "same": 2, "did": 4, "spared": 4, "cost": 1},
        difficulty=4,
        minutes=125,
        stretch=True,
        hints=(
            "Begin at the last product and walk up, one step of the formula at a time: dropouts, softmax, mask, "
            "scale, scores. Each step is a function that looks at a node and returns what is above it, or None.",
            "An optional step returns its own operand when it is missing: no scale means scale 1.0, and x / c is x * "
            "(1 / c). Try a sum both ways: which side is the product? softmax may get its dimension as dim=, as its "
            "second operand or as module.dim; -1 and rank - 1 are the same dimension. A dropout that does nothing has "
            "no effects(node).",
            "masked_fill(mask, -inf) hides the positions where mask is True, attn_mask shows them: use "
            "torch.logical_not. Every value between the scores and the probabilities must have exactly one consumer, "
            "which reads it once. Finally compare shapes (leading dimensions of q, k, v; the scores before and after "
            "the mask) and dtypes, and pass scale=1.0 if the formula has no scale.",
        ),
        helps={"same": 3, "did": 2, "spared": 3},
        smaller=(
            "Find one spelling only: torch.softmax(q @ k.transpose(-2, -1) * c, -1) @ v, where c is a Python number. "
            "Replace it by F.scaled_dot_product_attention(q, k, v, scale=c) if each value in between has one user, and "
            "erase what is then unused. Ignore masks, dropouts, other scales and spellings, shapes and dtypes, and "
            "memory that the program writes."
        ),
    ),
    Exercise(
        id="day04.codegen",
        title="From a group to a kernel",
        section="From a group to a kernel",
        points={"valid": 1, "same": 4, "did": 2, "spared": 1, "cost": 2},
        difficulty=4,
        minutes=75,
        stretch=True,
        hints=(
            "Walk the graph once, in its order: a placeholder becomes a load, a call becomes one line that stores "
            "into a register (a buffer of one element, scope='local'), an output becomes a store. At the end wrap all "
            "lines in the loops, the last dimension first.",
            "A table from names to expressions is short: {'add': operator.add, 'exp': TIR.exp, …}[name](*operands). "
            "Cast every operand to the type in which the operation works before you combine them: the result's, "
            "or for a comparison torch.result_type(left, right), float32 in place of a half type.",
            "loops[len(loops) - len(shape):] are the loops that an operand of this shape follows; where its size is "
            "1, its index is 0. relu is Select(a < 0, 0, a): NaN is not less than 0. maximum is a if a > b or "
            "isnan(a), else b. to(float16) has to round, even if the next line computes in float32: cast there and "
            "back.",
        ),
        helps={"same": 3, "did": 1, "cost": 1},
        seconds=10.0,
    ),
    Exercise(
        id="day04.cost",
        title="To fuse or not",
        section="When not to fuse",
        points={"valid": 1, "did": 3, "spared": 3, "cost": 3},
        difficulty=4,
        minutes=35,
        stretch=True,
        core=Core({"valid": 1, "did": 2, "spared": 1, "cost": 1}, difficulty=2, minutes=25),
        hints=(
            "Price one kernel, and compare two sums: over the groups and the calls outside any group, and over all "
            "calls separately. A kernel costs its launch, plus the larger of bytes / bandwidth and steps · step.",
            "The heart of it is how often each node of a group is computed. Begin at the result, once for each of its "
            "elements, and go through the group backwards: an operand is computed as often as its consumer, times the "
            "number of its elements that one element of the consumer reads (1, or the length of what is summed).",
            "A value in two groups is simply paid for in both. Broadcasting needs no special case either: the operand "
            "is computed as often as its consumer, however small it is itself. Bytes: what the kernel reads from "
            "outside, and its result, each once.",
        ),
        helps={"did": 2, "cost": 1},
    ),
    Exercise(
        id="day04.measure",
        title="What fusion saves",
        section="Two bills",
        points={"valid": 1, "did": 4, "spared": 2, "cost": 3},
        difficulty=2,
        minutes=40,
        stretch=True,
        hints=(
            "Make one list of kernels first: before, each call is a kernel of one; after, the groups, and a kernel "
            "for each call outside any group. One function then makes a row of either list.",
            "For a kernel with the nodes `members`: it reads the set of all operands that are not members, and writes "
            "the set of members that have a user outside. Use sets, because each tensor is moved once.",
            "The size of a tensor is shape.numel() * dtype.itemsize, however often it is broadcast or read. Fusing "
            "does not change the operations. seconds is a sum over kernels, each with its own maximum.",
        ),
        meaning={
            "did": "the launches and the bytes are right",
            "spared": "the operations are counted right",
            "cost": "intensity, seconds and roof are right",
        },
        helps={"did": 2, "spared": 3, "cost": 3},
        closed=("passlab.exercises.day04.measure.priced",),
    ),
)
