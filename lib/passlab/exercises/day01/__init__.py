"""Day 1, a model is a graph: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; an exercise that names no notebook stands in the first
NOTEBOOKS = {"graphs": "torch", "relay": "relay"}

EXERCISES = (
    Exercise(
        id="day01.count-kinds",
        title="Count nodes by kind",
        points={"valid": 1, "did": 2, "spared": 1},
        difficulty=1,
        minutes=8,
        hints=(
            "Two questions for each node: which kind is it, and how many bytes does its value have? Write a small "
            "function for each. The opcode, node.op, says how to read the target.",
            "node.target is a function for call_function (use its __name__), a str for call_method, and for "
            "call_module the path of a module: gm.get_submodule(node.target). Ask 'in place?' before you look into "
            "the table, for relu_ and nn.ReLU(inplace=True) are memory.",
            "meta = node.meta.get('tensor_meta') is one TensorMetadata, a tuple of them, or None. One of them takes "
            "meta.shape.numel() * meta.dtype.itemsize bytes, None none. Begin with {kind: (0, 0) for kind in KINDS} "
            "and let the output node add one node and no bytes.",
        ),
        seconds=5,
    ),
    Exercise(
        id="day01.residual-edges",
        title="Find the residual edges",
        points={"valid": 1, "did": 3, "spared": 3, "cost": 1},
        difficulty=3,
        minutes=12,
        hints=(
            "Look at each addition b and at what it reads. A longer path from a to b must come in through another "
            "operand c of b. So the question is: can one get from a to c?",
            "For every node, collect the set of nodes above it, its ancestors: those that it reads, and their "
            "ancestors. In the order of gm.graph.nodes the sets of the operands are always there already.",
            "above[node] = union of {used} | above[used] over the operands that carry tensors. For an addition b: "
            "(a, b) is residual if a is in above[c] for some operand c of b. node.all_input_nodes finds operands in "
            "keywords too; skip those without used.meta['tensor_meta'].",
        ),
        seconds=5,
    ),
    Exercise(
        id="day01.levels",
        title="Depth, levels, and what may run in parallel",
        points={"valid": 1, "did": 3, "spared": 2, "cost": 2},
        difficulty=2,
        minutes=12,
        hints=(
            "A node's level is one more than the largest level among the working nodes that it reads. Take the nodes "
            "in the order of gm.graph.nodes, and those levels are known when you need them.",
            "Being on one level is enough to be parallel, and it is not needed: a short branch may run beside any part "
            "of a long one. The exact question is whether a path leads from one node to the other.",
            "Keep for each node the set of working nodes above it: for its operands, the operand and all above that. "
            "Two nodes may run in parallel if neither is in the other's set; as producers come first in the list, it "
            "is enough to look into the set of the later one.",
        ),
        seconds=5,
    ),
    Exercise(
        id="day01.match-onnx",
        title="Match FX nodes with ONNX nodes",
        points={"valid": 1, "did": 4, "spared": 3},
        difficulty=4,
        minutes=20,
        hints=(
            "Go backwards, from the output: you know which ONNX value is the output of the FX graph. The ONNX node "
            "that makes it belongs to the FX node that makes it. What that one reads are the next pairs.",
            "Keep a dict from FX node to the name of the ONNX value that it corresponds to, and walk "
            "reversed(gm.graph.nodes), so that all readers of a node come before it. From the FX operation you know "
            "which ONNX nodes to expect; the table above says which. A dropout hands its value on to what it reads.",
            "Merged is seen at the batch norm: the node that makes its value is a Conv. Give both FX nodes that Conv, "
            "and hand its first input on to what the convolution reads. Split: go through reversed(model.graph.node) "
            "and collect each node whose value the collected ones read, as long as its type is still expected "
            "(Counter(['Sigmoid', 'Mul'])). From the last one backwards, or the Add of a layer further up is taken for "
            "that of the GELU. What they read from elsewhere, initializers apart, is what the FX node reads.",
        ),
        seconds=5,
    ),
    Exercise(
        id="day01.swap-relu",
        title="Swap ReLU for LeakyReLU",
        points={"valid": 1, "same": 2, "did": 2, "spared": 2, "cost": 1},
        difficulty=2,
        minutes=12,
        hints=(
            "Ask each node what it calls, not what it is called: node.name and the name of a submodule are only names. "
            "The target of a call_function is the function itself, so compare with `is` or `in`.",
            "There is no method Tensor.leaky_relu, so the method form becomes a call_function of F.leaky_relu; you may "
            "turn all forms into that one. type(module) is nn.ReLU lets subclasses and other people's ReLU alone.",
            "Replace node by node: inplace = …; with gm.graph.inserting_before(node): new = "
            "gm.graph.call_function(F.leaky_relu, (x, slope, inplace)); node.replace_all_uses_with(new); "
            "gm.graph.erase_node(node). In place are: inplace=True as keyword or second operand, names that end in _, "
            "module.inplace. The operand x is node.args[0], or node.kwargs['input'].",
        ),
        seconds=5,
    ),
    Exercise(
        id="day01.propagate",
        title="Shapes and dtypes without data",
        points={"valid": 1, "did": 3, "spared": 2, "cost": 2},
        difficulty=3,
        minutes=15,
        hints=(
            "It is a loop over the nodes with a dict from node to value, where the values are meta tensors. What a "
            "node calls, you call: on meta tensors every operation of torch works out shape and dtype and no data.",
            "fx.node.map_arg(node.args, values.__getitem__) puts values in the place of nodes, in nested lists and "
            "slices too. Weights have data: for get_attr take the parameter .to('meta'), and call modules with weights "
            "on meta: torch.func.functional_call(module, weights, args, kwargs).",
            "Check before you call: opcode and target against the tables, type(module) against MODULES; else raise "
            "ValueError(f'{node.name}: …'). Put try/except around the call, and raise ValueError with node.name from "
            "what comes. weights = {k: t.to('meta') for k, t in module.state_dict().items()}.",
        ),
        seconds=5,
    ),
    Exercise(
        id="day01.to-ssa",
        title="Straight-line Python to SSA",
        points={"valid": 1, "same": 3, "did": 2, "spared": 2, "cost": 1},
        difficulty=3,
        minutes=15,
        hints=(
            "One dict is all the state: from each old name to the new name that holds its value now. A name that is "
            "not in it comes in from outside and keeps its name. Let the ast module tell names from all else.",
            "Order matters: first rename what the right side reads, with the dict as it is, and only then give the "
            "left side new names. That makes swaps right by itself. A new name must differ from every name that occurs "
            "anywhere in the source.",
            "An ast.NodeTransformer with visit_Name renames what is read; field names and keywords are no ast.Name, so "
            "it leaves them alone. Turn AugAssign(target, op, value) into Assign([target], BinOp(read of target, op, "
            "value)): ast.unparse sets the parentheses.",
        ),
        seconds=5,
    ),
    Exercise(
        id="day01.read-relay",
        notebook="relay",
        title="Read a Relay module",
        points={"valid": 1, "did": 3, "spared": 2},
        difficulty=2,
        minutes=15,
        hints=(
            "relay.analysis.post_order_visit(module['main'], look) calls look(e) once for every expression, also for "
            "those in the functions inside main. So look needs no memory of what is done; it only asks what e is.",
            "isinstance(e, relay.Call) with isinstance(e.op, tvm.ir.Op) is the call of an operator: e.op.name. What "
            "reads are calls (e.args), tuples (e.fields), items (e.tuple_value), and main, which reads its body.",
            "Compare a variable by itself, not by its name: parameter in main.params, or a dict with the parameters as "
            "keys. p.checked_type has shape and dtype, np.dtype(dtype).itemsize is the size of an element; "
            "e.data.numpy().nbytes is that of a constant.",
        ),
        seconds=15,
    ),
)
