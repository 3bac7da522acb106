"""Day 8, TVM today (Relax and TensorIR): its exercises."""

from __future__ import annotations

from passlab.judge import Core, Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"relax": "relax"}

EXERCISES = (
    Exercise(
        id="day08.port",
        title="Yesterday's pass, ported",
        section="A mutator",
        points={"valid": 1, "same": 2, "did": 4, "spared": 3},
        difficulty=3,
        minutes=50,
        stretch=True,
        hints=(
            "First count, then rewrite: how often is each variable read, in the bindings and in what the function "
            "returns? relax.analysis.post_order_visit(value, f) calls f on every expression of a binding. A variable "
            "that is not a relax.DataflowVar can be read outside its block.",
            "In visit_call_, begin with call = self.visit_expr_post_order(call): it visits the operands. call.op is a "
            "tvm.ir.Op, which has a name, or a relax.GlobalVar, which does not. self.lookup_binding(call.args[0]) is "
            "the call that produced the operand, or None for an input.",
            "relax.BlockBuilder().function('fused', parameters, attrs={'Primitive': True}, private=True) makes the "
            "function; gv = self.builder_.add_func(function, name) puts it into the module, and tvm.ir.Call(gv, "
            "operands) calls it. tvm.ir.Call(conv.op, parameters, conv.attrs, conv.ty_args) is the same convolution "
            "with other operands. The old one is then dead: relax.transform.DeadCodeElimination().",
        ),
        helps={"same": 3, "did": 2, "spared": 1},
    ),
    Exercise(
        id="day08.pattern",
        title="Fusing by pattern, with a check",
        section="Fusing by pattern",
        points={"valid": 1, "same": 1, "did": 3, "spared": 4},
        difficulty=3,
        minutes=40,
        hints=(
            "is_op('relax.add')(value, bias) is the pattern of a call, with a pattern for every operand; wildcard() "
            "matches anything. The operands of add and multiply match in either order. Keep the patterns of the parts "
            "in variables: the check needs to refer to them.",
            "FuseOpsByPattern takes a list of (name, pattern, {name of a part: pattern}, check), and "
            "bind_constants=False. In the check, context.matched_bindings holds the variables of all three calls; the "
            "one whose value is context.matched_expr (same_as) is the result, and each of the others must have "
            "exactly one use and be a relax.DataflowVar.",
            "context.annotated_expr['product'] is the call: .attrs.data_layout, .attrs.kernel_layout, .ty.shape, "
            ".ty.dtype. Prepend ones to the bias's shape until it has as many dimensions as the product; then every "
            "dimension must be 1, except the channels, which must match: dimension 1 of an image, the last one of a "
            "product.",
        ),
        helps={"did": 1, "spared": 2},
    ),
    Exercise(
        id="day08.policy",
        title="A fusion policy with a cost function",
        section="A fusion policy of your own",
        points={"valid": 1, "same": 1, "did": 3, "spared": 2, "cost": 4},
        difficulty=4,
        minutes=45,
        stretch=True,
        hints=(
            "Decide which values are kept, that is, written by a kernel: those that are returned, and which others? "
            "The groups follow from that: each kept value forms a group with everything it needs, back to the next "
            "kept values.",
            "Start by keeping every value, and ask price what it would cost to keep one value less. Take the one that "
            "saves most, and repeat. illegal tells you which choices are not allowed: give them the cost math.inf.",
            "Also try keeping one value more. Compute there = program(module) once, then price(there, groups): with "
            "thirty operations that is thirty prices a round, and a round either saves something or is the last.",
        ),
        helps={"valid": 2, "did": 2, "spared": 1, "cost": 3},
    ),
    Exercise(
        id="day08.schedule",
        title="A matmul and its schedule",
        section="Schedules",
        points={"valid": 1, "same": 3, "did": 2, "cost": 4},
        difficulty=4,
        minutes=40,
        hints=(
            "Write it without a schedule first: two placeholders, a reduce_axis, te.compute, te.create_prim_func. In "
            "tvm.s_tir.Schedule(function) the block has the name that you gave te.compute. The innermost loop of the "
            "textbook version jumps through B with every step: which loop should be innermost instead?",
            "split(j, [None, 32]) and vectorize the inner part; split(i, [None, 8]) and unroll the inner part; use "
            "reorder to put the reduction loop around these two. If sizes do not divide evenly, TVM adds a condition.",
            "The sums of a tile should stay in registers: local = schedule.cache_write(block, 0, 'local') before the "
            "splits, and after the reorder schedule.reverse_compute_at(local, tile) with the loop just outside the "
            "reduction loop. decompose_reduction(block, that loop) moves the zero initialization out of it.",
        ),
        helps={"did": 1, "cost": 2},
        seconds=10.0,
        closed=(
            "passlab.relax.pipelines.cpu_schedule",
            "passlab.relax.cpu._tile",
            "passlab.kernels.schedule.on_cpu",
            "passlab.exercises.day08.tuner.scheduled",
        ),
    ),
    Exercise(
        id="day08.tuner",
        title="A tuner that learns",
        section="Tuning",
        points={"valid": 1, "did": 5, "cost": 3},
        difficulty=4,
        minutes=10,
        stretch=True,
        core=Core({"valid": 1, "did": 3, "cost": 1}, difficulty=2, minutes=25),
        hints=(
            "Turn each candidate into a vector of numbers. Sizes that double belong on a logarithmic scale, and each "
            "word becomes its own 0/1 feature. Times that differ by factors need a logarithm, too: predict that.",
            "With x = log2(rows) and y = log2(columns), a linear model cannot have its optimum in the middle: add x², "
            "y² and x·y as features. That makes about ten features for 24 measurements.",
            "np.linalg.lstsq(A, y)[0] are the weights; A has a row for each measurement and a column for each feature, "
            "one of which is always 1. Predict all candidates, leave out those already measured, and return the "
            "first k.",
        ),
        helps={"did": 1, "cost": 2},
    ),
    Exercise(
        id="day08.pipeline",
        title="A whole pipeline",
        section="Your own step in TVM's pipeline",
        points={"valid": 1, "same": 3, "did": 3, "cost": 4},
        difficulty=4,
        minutes=30,
        stretch=True,
        hints=(
            "Look at what TVM's default pipeline produces: relax.get_default_pipeline, or kernels()(module).show(). "
            "Which operator between a convolution and its relu is not fused with either? And which step that a CPU "
            "needs is missing altogether?",
            "relax.transform.DecomposeOpsForInference() writes a batch norm as element-wise operators, and "
            "CanonicalizeBindings() tidies up after it: both belong before LegalizeOps. kernels(before=[…], "
            "schedule=…) from passlab.relax.pipelines puts them into their places; cpu_schedule there is a rule for "
            "every kernel.",
            "The elements of a vector load must be contiguous in memory: in NHWC these are the channels, and there "
            "are more channels than columns in a small image. ConvertLayout({'relax.nn.conv2d': ['NHWC', 'HWIO']}), "
            "then Normalize(). (The keys need their prefix, or nothing happens.)",
        ),
        helps={"did": 1, "cost": 2},
        seconds=60.0,
    ),
)
