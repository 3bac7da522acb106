"""Day 1, a model is a graph: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"graphs": "torch", "relay": "relay"}

EXERCISES = (
    Exercise(
        id="day01.count-kinds",
        title="Count nodes by kind",
        section="Five kinds of node",
        closed=("passlab.graph.view",),
        points={"valid": 1, "did": 2, "spared": 1},
        difficulty=1,
        minutes=30,
        seconds=2.0,
        hints=(
            "There are two questions for each node: which kind is it, and how many bytes does its value take? Write a "
            "small function for each. The opcode, node.op, tells you how to read the target.",
            "node.target is a function for call_function (use its __name__), a str for call_method, and the path of a "
            "module for call_module: gm.get_submodule(node.target). Check for in-place operations before you look "
            "into the table: relu_ and nn.ReLU(inplace=True) are memory.",
            "meta = node.meta.get('tensor_meta') is one TensorMetadata, a tuple of them, or None. Each one takes "
            "meta.shape.numel() * meta.dtype.itemsize bytes; None takes no bytes. Start with {kind: (0, 0) for kind "
            "in KINDS}, and let the output node add one node and no bytes.",
        ),
        helps={"did": 2},
    ),
    Exercise(
        id="day01.residual-edges",
        title="Find the residual edges",
        section="Forks and joins",
        points={"valid": 1, "did": 3, "spared": 3, "cost": 1},
        difficulty=3,
        minutes=30,
        stretch=True,
        hints=(
            "Look at each addition b and at its operands. A longer path from a to b must enter b through another "
            "operand c. So the question is: is there a path from a to c?",
            "For every node, collect its ancestors: its operands, and their ancestors. If you go through "
            "gm.graph.nodes in order, the sets of the operands are always ready when you need them.",
            "above[node] = union of {used} | above[used] over the operands that carry tensors. For an addition b, (a, "
            "b) is residual if a is in above[c] for some operand c of b. node.all_input_nodes finds operands in "
            "keywords too; skip operands without used.meta['tensor_meta'].",
        ),
        helps={"did": 1, "spared": 1, "cost": 2},
    ),
    Exercise(
        id="day01.levels",
        title="Depth, levels, and what may run in parallel",
        section="Forks and joins",
        points={"valid": 1, "did": 3, "spared": 2, "cost": 2},
        difficulty=2,
        minutes=25,
        hints=(
            "A node's level is one more than the highest level among the working nodes that it reads. Go through "
            "gm.graph.nodes in order, and those levels are known by the time you need them.",
            "Two nodes on the same level can always run in parallel, but nodes on different levels sometimes can too: "
            "a short branch may run beside any part of a long one. The exact question is whether a path leads from "
            "one node to the other.",
            "For each node, keep the set of working nodes above it: each operand, and everything above that operand. "
            "Two nodes may run in parallel if neither is in the other's set. As producers come first in the list, it "
            "is enough to check the set of the later one.",
        ),
        helps={"did": 2, "spared": 2, "cost": 3},
    ),
    Exercise(
        id="day01.match-onnx",
        title="Match FX nodes with ONNX nodes",
        section="The same node in two graphs",
        points={"valid": 1, "did": 4, "spared": 3},
        difficulty=4,
        minutes=55,
        stretch=True,
        hints=(
            "Work backwards from the output: you know which ONNX value is the output of the FX graph. The ONNX node "
            "that produces it corresponds to the FX node that produces it. Their operands are the next pairs.",
            "Keep a dict from each FX node to the name of its ONNX value, and walk reversed(gm.graph.nodes), so that "
            "all consumers of a node come before it. The FX operation tells you which ONNX nodes to expect; see the "
            "table above. A dropout passes its value on to its operand.",
            "Merged: you notice it at the batch norm, whose value is produced by a Conv. Give that Conv to both FX "
            "nodes, and pass its first input on to the operand of the convolution. Split: go through "
            "reversed(model.graph.node) and collect each node whose value is read by a node you have already "
            "collected, as long as its type is still expected (Counter(['Sigmoid', 'Mul'])). Go from last to first; "
            "otherwise the Add of an earlier layer is mistaken for that of the GELU. What the collected nodes read "
            "from elsewhere, apart from initializers, is what the FX node reads.",
        ),
        helps={"did": 3, "spared": 1},
    ),
    Exercise(
        id="day01.swap-relu",
        title="Swap ReLU for LeakyReLU",
        section="Operations and the tensors between them",
        points={"valid": 1, "same": 2, "did": 2, "spared": 2, "cost": 1},
        difficulty=2,
        minutes=25,
        hints=(
            "Check what each node calls, not what it is named: node.name and the name of a submodule are only names. "
            "The target of a call_function is the function itself, so compare with `is` or `in`.",
            "There is no method Tensor.leaky_relu, so the method form becomes a call_function of F.leaky_relu; you "
            "may turn all forms into that one. `type(module) is nn.ReLU` leaves subclasses and other people's ReLU "
            "classes alone.",
            "Replace node by node: inplace = …; with gm.graph.inserting_before(node): new = "
            "gm.graph.call_function(F.leaky_relu, (x, slope, inplace)); node.replace_all_uses_with(new); "
            "gm.graph.erase_node(node). A ReLU is in place if inplace=True is its keyword or second operand, if its "
            "name ends in _, or if module.inplace is set. The operand x is node.args[0] or node.kwargs['input'].",
        ),
        helps={"valid": 3, "same": 3, "did": 2, "spared": 1, "cost": 3},
    ),
    Exercise(
        id="day01.propagate",
        title="Shapes and dtypes without data",
        section="Shapes and dtypes",
        points={"valid": 1, "did": 3, "spared": 2, "cost": 2},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "It is a loop over the nodes with a dict from node to value, where the values are meta tensors. Call "
            "whatever the node calls: on meta tensors, torch's operations work out shape and dtype without "
            "touching data.",
            "fx.node.map_arg(node.args, values.__getitem__) replaces nodes by their values, in nested lists and "
            "slices too. Weights have data: for get_attr take the parameter .to('meta'), and call modules with their "
            "weights on meta: torch.func.functional_call(module, weights, args, kwargs).",
            "Check before you call: opcode and target against the tables, type(module) against MODULES; otherwise "
            "raise ValueError(f'{node.name}: …'). Wrap the call in try/except, and turn any error into a ValueError "
            "with node.name. weights = {k: t.to('meta') for k, t in module.state_dict().items()}.",
        ),
        helps={"valid": 2, "did": 1, "spared": 3, "cost": 2},
    ),
    Exercise(
        id="day01.to-ssa",
        title="Straight-line Python to SSA",
        section="Every value gets one name",
        points={"valid": 1, "same": 3, "did": 2, "spared": 2, "cost": 1},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "One dict is all the state you need: it maps each old name to the new name that holds its current value. "
            "A name that is not in it comes in from outside and keeps its name. Let the ast module tell names from "
            "everything else.",
            "Order matters: first rename what the right side reads, with the dict as it is, and only then give the "
            "left side new names. With that, swaps come out right. A new name must differ from every name that occurs "
            "anywhere in the source.",
            "An ast.NodeTransformer with visit_Name renames what is read; field names and keywords are not ast.Name, "
            "so it leaves them alone. Turn AugAssign(target, op, value) into Assign([target], BinOp(read of target, "
            "op, value)); ast.unparse adds the parentheses.",
        ),
        helps={"valid": 3, "same": 2, "did": 1, "spared": 3},
    ),
    Exercise(
        id="day01.read-relay",
        notebook="relay",
        title="Read a Relay module",
        section="What each IR makes explicit",
        points={"valid": 1, "did": 3, "spared": 2},
        difficulty=2,
        minutes=30,
        seconds=2.0,
        stretch=True,
        hints=(
            "relay.analysis.post_order_visit(module['main'], look) calls look(e) exactly once for every expression, "
            "including those in functions inside main. So look need not remember what it has seen; it only checks "
            "what e is.",
            "isinstance(e, relay.Call) with isinstance(e.op, tvm.ir.Op) is a call of an operator, named e.op.name. "
            "The expressions that read others are calls (e.args), tuples (e.fields), tuple items (e.tuple_value), and "
            "main, which reads its body.",
            "Compare variables by identity, not by name: check membership in main.params, or use a dict with the "
            "parameters as keys. p.checked_type has shape and dtype, and np.dtype(dtype).itemsize is the size of one "
            "element; e.data.numpy().nbytes is the size of a constant.",
        ),
        helps={"did": 2, "spared": 1},
    ),
)
