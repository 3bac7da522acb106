"""Day 9, MLIR: its exercises."""

from __future__ import annotations

from passlab.judge import Core, Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"mlir": "mlir"}

EXERCISES = (
    Exercise(
        id="day09.nest",
        title="A linalg.generic is a loop nest",
        section="linalg: a loop nest without loops",
        points={"valid": 1, "did": 2, "same": 3, "spared": 2, "cost": 1},
        difficulty=2,
        minutes=35,
        seconds=2.0,
        hints=(
            "Begin with the operands: in0, in1, …, out0. zip them with op.indexing_maps.data; attr.data.results are "
            "the expressions of a map, and str(expr) writes one down, with floordiv and mod where Python has // and %.",
            "How often a loop runs: go through all operands and all expressions of their maps. Where an expression is "
            "an AffineDimExpr, the loop expr.position runs as often as the operand is long on that side, "
            "operand.type.get_shape(). An expression such as d0 + d1 says nothing.",
            "Keep a dictionary from the values of the body to their names. First give each argument of the block that "
            "has uses a name and read it; then each operation of the body, in order; then look up what linalg.yield "
            "gives, and write it.",
        ),
        helps={"did": 2, "same": 1, "spared": 3, "cost": 3},
    ),
    Exercise(
        id="day09.patterns",
        title="Rewrite patterns",
        section="Patterns",
        points={"valid": 2, "same": 2, "did": 3, "spared": 3, "cost": 1},
        difficulty=2,
        minutes=45,
        hints=(
            "One class for each law. In match_and_rewrite, ask for op.name and number(op.rhs), and call "
            "rewriter.replace(op, new operations, new results); where the new operation stands for the old one, the "
            "results can be left out. Swap never ends on two constants: what must it ask, too?",
            "number(op.rhs) == 0 is true for -0.0: math.copysign(1.0, number) tells them apart. A float's law needs "
            "what the table says of flags(op), which is a set: 'nsz' in flags(op), flags(op) >= {'nnan', 'nsz'}.",
            "The inner operation is op.lhs.owner; the owner of an argument is a block, which has no name. Replace by "
            "two operations: constant(c + d, op.rhs.type), and again(op, inner.lhs, its result, flags), with the flags "
            "that both have, without nsw and nuw. This pattern needs a larger benefit than the one that doubles.",
        ),
        helps={"valid": 1, "did": 1, "spared": 2, "same": 2, "cost": 3},
    ),
    Exercise(
        id="day09.fusion",
        title="Element-wise fusion",
        section="Fusion is a composition of maps",
        points={"valid": 1, "same": 3, "did": 4, "spared": 3},
        difficulty=4,
        minutes=45,
        stretch=True,
        core=Core({"valid": 1, "same": 1, "did": 3, "spared": 2}, difficulty=2, minutes=20),
        hints=(
            "Write two functions: one that says which input of a linalg.generic has a producer that may be fused, and "
            "one that builds the new operation. Go through the operations in order; one is done when no input is left.",
            "With out the producer's last map and read the consumer's map for the input: turned = "
            "out.inverse_permutation().compose(read), and a map of the producer's inputs becomes map.compose(turned). "
            "A map is a permutation if is_projected_permutation() holds and it has as many results as dimensions. "
            "value.has_one_use() says whether nothing else reads a value.",
            "Keep the inputs of the new operation in a dictionary from (value, map) to its argument, "
            "block.insert_arg(type, index), so that equal ones are one. inner.clone(values) copies an operation of a "
            "body with its operands exchanged, and enters its results. What the producer yields is the value of the "
            "consumer's argument. Rewriter.replace_op(old, new) exchanges the operations.",
        ),
        helps={"valid": 3, "same": 2, "did": 1, "spared": 1},
        closed=("passlab.mlir.modules.pipeline", "passlab.mlir.modules.passes"),
    ),
    Exercise(
        id="day09.pipeline",
        title="A pipeline, and what each step did",
        section="The ladder",
        points={"valid": 1, "did": 3, "same": 2, "cost": 2},
        difficulty=1,
        minutes=20,
        hints=(
            "Look at modules as places and at passes as roads: which search finds a shortest way? It needs a list of "
            "the modules that wait, with the steps that led there, and a set of those that were seen, by their text.",
            "Counter(op.name for op in module.walk()) counts in all regions. The dialect is the part before the "
            "dot. A pass that fails is not an edge; a pass that changes nothing leads where you are.",
            "Breadth first: take the first of the list; if it satisfies the goal, return its steps; else try every "
            "pass, and append the modules that are new. When the list is empty, return None.",
        ),
        helps={"did": 1, "same": 2, "cost": 3},
    ),
    Exercise(
        id="day09.reuse",
        title="Slots for buffers",
        section="Buffers: in place, freed, reused",
        points={"valid": 1, "same": 2, "did": 3, "spared": 4, "cost": 2},
        difficulty=4,
        minutes=60,
        stretch=True,
        hints=(
            "Two questions, one after the other: which buffers may a value be, and from where to where is a buffer "
            "live? Number the operations in the order of module.walk(); an operation with a region ends with the last "
            "operation in it.",
            "For names, keep a set of allocations for each value, collect pairs (a value, what it may be) in one walk, "
            "and join the sets of all pairs until no set grows. A loop gives four pairs for each of its iter_args: the "
            "block's argument and the result, each with what goes in and with what is passed on.",
            "If an operation touches a buffer, climb with parent_op() until you are in the block of its allocation, "
            "buffer.parent_block(): that operation, with all in it, is what touches the buffer. Then "
            "day 5's rule: a slot is free if its last buffer ended before this one starts. An element has "
            "buffer.memref.type.element_type.size bytes.",
        ),
        helps={"valid": 1, "same": 1, "did": 3, "spared": 2, "cost": 3},
        closed=("passlab.exercises.day09.reuse.lives", "passlab.exercises.day09.reuse.may_be"),
    ),
    Exercise(
        id="day09.loops",
        title="From linalg to loops",
        section="linalg: a loop nest without loops",
        points={"valid": 1, "same": 4, "did": 3, "spared": 1, "cost": 2},
        difficulty=3,
        minutes=55,
        stretch=True,
        hints=(
            "Work on one operation at a time, with a Builder in front of it: first the numbers, then a loop inside "
            "the loop before, then what a turn does. Remember the argument of each loop's block: these are the turn.",
            "A dictionary from values of the body to values in the loop does the copying: put in what each argument "
            "and each linalg.index means, then inner.clone(means) translates the operands and notes the results.",
            "For a result of a map: a dimension is turn[result.position]; anything else is "
            "affine.ApplyOp(turn, AffineMapAttr(AffineMap(map.num_dims, 0, (result,)))). A block for a loop: "
            "Block([scf.YieldOp()], arg_types=[IndexType()]), and Builder(InsertPoint.before(block.last_op)) goes on "
            "inside. scf.ForOp(start, end, step, [], block); memref.LoadOp.get(buffer, indices).res; "
            "memref.StoreOp.get(value, buffer, indices); memref.DimOp(buffer, place); "
            "arith.ConstantOp.from_int_and_width(n, IndexType()).",
        ),
        helps={"valid": 3, "same": 3, "did": 2, "spared": 1, "cost": 2},
        closed=(
            "passlab.mlir.pipeline",
            "passlab.mlir.passes",
            "xdsl.transforms.convert_linalg_to_loops.ConvertLinalgToLoopsPass.apply",
            "xdsl.transforms.loop_nest_lowering_utils.rewrite_linalg_structured_to_loops",
        ),
    ),
    Exercise(
        id="day09.dialect",
        title="A dialect of your own",
        section="A dialect is a few classes",
        points={"valid": 1, "same": 4, "did": 4, "spared": 2},
        difficulty=4,
        minutes=100,
        stretch=True,
        hints=(
            "Three parts: classes with @irdl_op_definition, whose verify_ raises VerifyException with the sentence; a "
            "Dialect of them, loaded into mlir.context(); and for each class a function that builds linalg in front of "
            "the operation.",
            "Write a helper that makes a linalg.generic from inputs, a start, maps and a body. All three operations "
            "are one or two of these: the product starts with the bias, spread over the rows by another generic; the "
            "sum starts with a linalg.fill of 0.",
            "LeakyReLU: arith.CmpfOp(x, zero, 'ogt'), arith.MulfOp(x, slope), arith.SelectOp. Maps: x (d0, d2), "
            "w (d1, d2), result (d0, d1) for the product; for the sum, all dimensions, and all but the axis.",
        ),
        helps={"valid": 1, "same": 3, "did": 1, "spared": 2},
    ),
)
