"""Day 3, graph-level optimizations: its exercises."""

from __future__ import annotations

from passlab.judge import Core, Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"optimizations": "torch"}

EXERCISES = (
    Exercise(
        id="day03.constant-folding",
        title="Constant folding",
        section="Constant folding",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3, "cost": 1},
        difficulty=3,
        minutes=25,
        stretch=True,
        core=Core({"valid": 1, "same": 1, "did": 3, "cost": 1}, difficulty=1, minutes=20),
        hints=(
            "Walk the nodes in order and keep a dictionary from node to value. A node gets a value if all its "
            "operands have one, it has no effects, and its memory is not written. It starts with the get_attr nodes.",
            "fx.Interpreter(gm).run_node(node) computes one node, given its operands' values in interpreter.env. "
            "Check the size first: node.meta['tensor_meta'] has shape and dtype, so shape.numel() * dtype.itemsize is "
            "known before anything is computed. For a node that returns several tensors it is a tuple.",
            "Only values that are read by a node without a value have to become buffers: gm.register_buffer(name, "
            "value.clone()), then with gm.graph.inserting_before(node): new = gm.graph.get_attr(name), and "
            "node.replace_all_uses_with(new). Put numbers into user.args with torch.fx.node.map_arg. At the end "
            "erase, in reverse order, the nodes that had a value and have no users.",
        ),
        closed=(
            "passlab.fx.stages.fold",
            "passlab.fx.torch_passes.fold",
            "passlab.capstone.reference.fold_constants",
            "torch.fx.experimental.const_fold.split_const_subgraphs",
            "torch._inductor.constant_folding.constant_fold",
        ),
        helps={"valid": 2, "same": 1, "did": 1, "spared": 1, "cost": 3},
    ),
    Exercise(
        id="day03.dce",
        title="Dead code elimination",
        section="Dead code elimination",
        points={"valid": 1, "same": 1, "did": 3, "spared": 3},
        difficulty=2,
        minutes=20,
        hints=(
            "When a node is erased, its operands may lose their last user. In which direction should you walk so that "
            "one pass is enough?",
            "The list of what must stay is long: methods that end in _, setitem, out=, inplace=True, assertions, "
            "random draws, and modules in training mode. effects(node) from passlab.fx.effects knows them all; it is "
            "empty for a pure node.",
            "for node in reversed(gm.graph.nodes): if not node.users and not effects(node): "
            "gm.graph.erase_node(node). Inputs and output have the effect 'signature'.",
        ),
        closed=(
            "passlab.fx.stages.dce",
            "passlab.fx.torch_passes.eliminate",
            "passlab.capstone.reference.dce",
            "passlab.quantization.graphs.prune",
        ),
        helps={"same": 2, "did": 1, "spared": 2},
        smaller=(
            "Write dce for graphs in which nothing has effects besides the inputs and the output: nothing writes, "
            "draws random numbers or may stop the program. Remove every unused node, and then its operands, if they "
            "are unused, too. Inputs stay, used or not."
        ),
    ),
    Exercise(
        id="day03.cse",
        title="Common subexpression elimination",
        section="Common subexpression elimination",
        points={"valid": 1, "same": 2, "did": 3, "spared": 4},
        difficulty=3,
        minutes=20,
        stretch=True,
        core=Core({"valid": 1, "same": 1, "did": 3, "spared": 2}, difficulty=1, minutes=15),
        hints=(
            "The key of a node is (op, target, operands, keywords), where merged operands count as one. Dictionary "
            "keys must be hashable: slices are not, and lists need care.",
            "1 == 1.0 == True for a dictionary, and 0.0 == -0.0. Their texts differ: repr(node.args) does for a key, "
            "since nodes appear in it by name. Sort the keywords. Nodes with effects get no key at all.",
            "written(gm.graph) is the set of nodes whose memory changes. Do not merge these (except get_attr nodes: "
            "two reads of an attribute refer to the same memory). For a node that reads one of them, put the number "
            "of writes and unknown calls seen so far into the key, so that one in between gives a different key.",
        ),
        closed=(
            "passlab.fx.stages.cse",
            "passlab.fx.torch_passes.merge",
            "passlab.capstone.reference.cse",
            "torch.fx.passes.dialect.common.cse_pass.CSEPass.call",
            "torch._functorch.compile_utils.fx_graph_cse",
        ),
        helps={"valid": 1, "same": 2, "did": 1, "spared": 2},
    ),
    Exercise(
        id="day03.simplify",
        title="Algebraic simplification",
        section="Algebraic simplification",
        points={"valid": 1, "same": 3, "did": 4, "spared": 4},
        difficulty=4,
        minutes=70,
        stretch=True,
        core=Core({"valid": 1, "same": 1, "did": 3, "spared": 1}, difficulty=1, minutes=20),
        hints=(
            "Make the table first: (op, test, replacement), one row for each law. The tests need to answer three "
            "questions: which number is this operand, does the result have the shape and dtype of x, and is x an "
            "integer tensor?",
            "Never: x / x, sqrt(x * x), exp(log(x)), log(exp(x)). For integers only: x + 0, x * 0, x - x. If the type "
            "stays the same: x ** 1, x ** 2 and, but for complex numbers, x - 0, x * 1, x / 1. Always: the rest, but "
            "compare the orders that two transposes give the dimensions (x.T is traced as getattr(x, 'T')), and skip "
            "calls with options (F.relu is traced with inplace=False, which does not count as an option).",
            "Walk once, in order. Replace the operands by what they have become so far, then apply laws to the node "
            "until none applies: each law gives either another node (remember it) or another op (node.target = …, "
            "node.args = …, and try again). Nodes in written(gm.graph) are off limits, both as x and as the node "
            "itself.",
        ),
        helps={"same": 2, "did": 1, "spared": 2},
    ),
    Exercise(
        id="day03.pipeline",
        title="The pipeline, to the fixpoint",
        section="In which order?",
        points={"valid": 1, "same": 1, "did": 3, "cost": 3},
        difficulty=3,
        minutes=30,
        stretch=True,
        hints=(
            "itertools.permutations gives the orders. What does a pass do to the graph it is given, and what does the "
            "next order start from?",
            "A sweep has changed nothing if the graph reads the same before and after it: comparing str(gm.graph) is "
            "enough here. Comparing the number of nodes is not enough: the stage double changes the graph without "
            "changing their number.",
            "Keep (graph, order, counts) of each order and take the min with the key (counts[-1], len(counts)). "
            "copy.deepcopy(gm) is an untouched copy.",
        ),
        helps={"same": 1, "did": 2, "cost": 1},
    ),
    Exercise(
        id="day03.gelu",
        title="A GELU matcher",
        section="Matching a pattern on a DAG",
        points={"valid": 1, "same": 1, "did": 3, "spared": 3, "cost": 1},
        difficulty=4,
        minutes=55,
        stretch=True,
        core=Core({"valid": 1, "same": 1, "did": 2, "spared": 2}, difficulty=1, minutes=20),
        hints=(
            "Start at the rare node: each erf or tanh. Its operand has to be a formula in x, and what is computed "
            "from it has to be 0.5 * x * (1 + it). The order of operands stops mattering if you flatten products and "
            "sums first.",
            "One way: read every formula as a polynomial in x and in g, the value of erf or tanh, as {(power of x, "
            "power of g): coefficient}. Sums add polynomials, products multiply them. The whole formula is {(1, 0): "
            "0.5, (1, 1): 0.5}; the operand of erf is {(1, 0): 0.7071…}.",
            "You do not know x: try every node that you can reach upwards from erf through arithmetic. For the last "
            "node of the formula, try the users of erf, their users, and so on, while they are arithmetic. Compare "
            "coefficients with math.isclose(…, rel_tol=1e-6), and give up on calls with keywords.",
        ),
        helps={"same": 2, "did": 1, "spared": 2},
    ),
    Exercise(
        id="day03.channels-last",
        title="Channels last, with the fewest conversions",
        section="Layout",
        points={"valid": 1, "same": 1, "did": 2, "spared": 2, "cost": 4},
        difficulty=5,
        minutes=30,
        stretch=True,
        core=Core({"valid": 1, "same": 1, "did": 2, "spared": 2, "cost": 1}, difficulty=1, minutes=20),
        hints=(
            "Decide for each node whether it is on the NCHW or on the NHWC side. Some have no choice. An image is "
            "converted if one of its consumers is on the other side, once for all of them.",
            "First make it right: an op that takes any layout works in NHWC if one of its images is NHWC. Then count. "
            "In conv(x) + a + b it would have been cheaper to convert back early: which sides of the free nodes give "
            "the fewest conversions? If there are few free nodes, try all combinations.",
            "In general it is a minimum cut: networkx.minimum_cut(net, 'NCHW', 'NHWC'). For each image p, add edges p "
            "→ ('to NHWC', p) and ('to NCHW', p) → p of capacity 1; for each consumer r of p, edges ('to NHWC', p) → "
            "r and r → ('to NCHW', p) without a capacity. Nodes without a choice get edges without a capacity, from "
            "'NCHW' to the node or from the node to 'NHWC'.",
        ),
        helps={"did": 1, "spared": 2, "cost": 2},
    ),
    Exercise(
        id="day03.shrinking",
        title="A program that shrinks at every stage",
        section="In which order?",
        points={"valid": 1, "same": 1, "did": 5, "cost": 1},
        difficulty=4,
        minutes=40,
        stretch=True,
        hints=(
            "Read passlab.fx.stages. For one sweep: tanh(w) * 2 for fold, where(c, y, y) for simplify, two equal "
            "relus for cse, and dce removes what the where no longer reads. Then combine them all into one result.",
            "For more sweeps, delay: a, b = relu(where(c, a, b)), relu(a) gives two relus that become equal only "
            "after the where has gone, and the where goes only after its own a and b have become equal.",
            "To give fold a constant in the second sweep, hide it behind where(c, w, w); for the third, behind "
            "where(c, w, w2), with w and w2 two get_attr nodes of the same attribute. Build the graph with "
            "fx.Graph(): call_function, get_attr, output. Give each where its own condition, so that dce has "
            "something to remove every time.",
        ),
        helps={"did": 1},
    ),
)
