"""Day 4, fusion: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; an exercise that names no notebook stands in the first
NOTEBOOKS = {"fusion": "relax", "groups": "relay"}

EXERCISES = (
    Exercise(
        id="day04.chains",
        title="Chains of element-wise operations",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3, "cost": 2},
        difficulty=2,
        minutes=20,
        hints=(
            "Begin with what may be in a group at all: pattern(node) at most Pattern.BROADCAST, and neither the node "
            "nor an operand in written(gm.graph). For which nodes do you know best whether they may join: those whose "
            "readers you have already put into groups.",
            "Walk the nodes from the last to the first. A node joins the group of its readers if all its readers are "
            "in one and the same group. Otherwise, be it because one of them is in none, it is the last of a new one.",
            "Call a group by its last node: last = {}; for node in reversed(gm.graph.nodes): readers = {last.get(r) "
            "for r in node.users}. If that set has one element, and it is not None, last[node] is that element; else "
            "it is the node itself. At the end collect the names by last[node], in the order of the graph.",
        ),
    ),
    Exercise(
        id="day04.groups",
        notebook="groups",
        title="The groups of FuseOps, on FX",
        points={"valid": 1, "did": 8, "spared": 3},
        difficulty=5,
        minutes=35,
        hints=(
            "post_dominators(gm.graph) says where each node's ways meet, and nodes_between(node, sink, 256) what is "
            "between, or None if that is too much. All edges of the ways lead from the node, or one between, to its "
            "users. Try sum(relu(x)) and relu(sum(x)) on paper first.",
            "Groups that merge are a union-find: parent = {n: n for n in nodes}, and last(n) follows it up to a node "
            "that is its own parent. Hang the others under the last node of the sink's group: the root is then always "
            "the last of its group, and kind[last(n)] is what the table calls the kind of the group. Keep two "
            "dictionaries: the pattern of each node for edges, the kind for groups.",
            "One function joins(n, phase, sink, between), row by row like the table. Before you call it, skip the "
            "output, a sink that is a cat in phases 1 and 2, one that is none in phase 3, and in phases 1 and 2 a node "
            "whose group is the sink's already. size[n] begins at 1, or 2 for a cat.",
        ),
    ),
    Exercise(
        id="day04.convex",
        title="May this group be one kernel?",
        points={"valid": 1, "did": 5, "spared": 4},
        difficulty=3,
        minutes=20,
        hints=(
            "A member that has effects(node) is a reason by itself. For the rest walk the graph once, in its order: "
            "which nodes outside of the group have to stay behind some member, directly or by way of others outside?",
            "What a node has to stay behind is [*node.all_input_nodes, *memory_order(gm.graph)[node]]. all_input_nodes "
            "knows operands in lists and keywords, args alone does not.",
            "Keep a dictionary came_from: outside node → the node that it is behind, if that is a member or itself in "
            "came_from. A member that has to stay behind a node of came_from closes the way: follow came_from back to "
            "the member where it began. Trying all ways takes forever where they fork and join.",
        ),
    ),
    Exercise(
        id="day04.linear-act",
        title="Linear, bias and activation",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3, "cost": 1},
        difficulty=3,
        minutes=25,
        hints=(
            "Start at the activation and walk up: is its operand a product, or a sum of a product and a bias? Write "
            "one function that says (x, weight, bias) of a node, whatever its spelling, or None.",
            "Both orders of the sum: for y, b in (node.args, node.args[::-1]). A value is read once if len(node.users) "
            "is 1 and it stands once among the operands of that user. A bias has the shape (weight.shape[0],), and "
            "with kwargs (alpha, beta) nothing matches. Parameters of a module have the path 'fc.weight'.",
            "with gm.graph.inserting_before(activation): weight = gm.graph.get_attr('fc.weight'), then new = "
            "gm.graph.call_function(linear_act, (x, weight, bias, 'relu')). Hand over the users, then erase the "
            "activation, the sum, the product and w.t(), in this order, each if it has no users. Leave it all alone if "
            "x, weight or bias is in written(gm.graph), or a get_attr of the path of one.",
        ),
    ),
    Exercise(
        id="day04.attention",
        title="Attention as one op",
        points={"valid": 1, "same": 2, "did": 4, "spared": 4, "cost": 1},
        difficulty=4,
        minutes=35,
        hints=(
            "Begin at the last product and walk up, one step of the formula at a time: dropouts, softmax, mask, scale, "
            "scores. Each step is a function that looks at a node and gives what is above it, or None.",
            "A step that may be missing gives its own operand back: no scale is the scale 1.0, and x / c is x * (1 / "
            "c). A sum is tried both ways: which side is the product? softmax knows its dimension as dim=, as second "
            "operand, as module.dim; -1 and rank - 1 are one. A dropout that does nothing has no effects(node).",
            "masked_fill(mask, -inf) hides where mask is True, attn_mask shows where it is True: "
            "torch.logical_not. Every value between the scores and the probabilities has one reader, which reads it "
            "once. At last compare shapes (leading dimensions of q, k, v; the scores before and behind the mask) and "
            "dtypes, and pass scale=1.0 where there is none.",
        ),
    ),
    Exercise(
        id="day04.codegen",
        title="From a group to a kernel",
        points={"valid": 1, "same": 4, "did": 2, "spared": 1, "cost": 2},
        difficulty=4,
        minutes=35,
        hints=(
            "Walk the graph once, in its order: a placeholder becomes a load, a call becomes one line that stores into "
            "a register (a buffer of one element, scope='local'), an output a store. At the end put the loops around "
            "all lines, the last dimension first.",
            "A table from names to expressions is short: {'add': operator.add, 'exp': TIR.exp, …}[name](*operands). "
            "Cast every operand to the type in which the operation works before you combine them: the result's, "
            "or for a comparison torch.result_type(left, right), float32 in place of a half type.",
            "loops[len(loops) - len(shape):] are the loops that an operand of this shape goes along; where its size is "
            "1, its index is 0. relu is Select(a < 0, 0, a): NaN is not less than 0. maximum is a if a > b or "
            "isnan(a), else b. to(float16) has to round, though the next line takes float32: cast there and back.",
        ),
        seconds=20.0,
    ),
    Exercise(
        id="day04.cost",
        title="To fuse or not",
        points={"valid": 1, "did": 3, "spared": 3, "cost": 3},
        difficulty=4,
        minutes=35,
        hints=(
            "Price one kernel, and compare two sums: over the groups and what is in none, and over all calls. A kernel "
            "costs its launch, and the longer of bytes / bandwidth and steps · step.",
            "The heart is how often each node of a group is computed. Begin at the result, once for each of its "
            "elements, and go through the group backwards: an operand is computed as often as its reader is, times the "
            "elements of it that one element of the reader reads (1, or the length of what is added up).",
            "A value in two groups is paid in both, with no further thought. Broadcasting needs none either: the "
            "operand is computed as often as its reader, however small it is itself. Bytes: what the kernel reads from "
            "outside, and its result, each once.",
        ),
        seconds=60.0,
    ),
    Exercise(
        id="day04.measure",
        title="What fusion saves",
        points={"valid": 1, "did": 4, "spared": 2, "cost": 3},
        difficulty=2,
        minutes=20,
        hints=(
            "Make one list of kernels first: before, each call is a kernel of one; after, the groups and a kernel for "
            "each call that is in none. One function then makes a row of either list.",
            "Of a kernel with the nodes `members`: it reads the set of all operands that are no members, and writes "
            "the set of members that have a user which is no member. As sets, because each is moved once.",
            "A tensor's size is its own: shape.numel() * dtype.itemsize, however often it is broadcast or read. The "
            "operations do not change with fusing. seconds is a sum over kernels, each with a maximum of its own.",
        ),
    ),
)
