"""Day 8, TVM today (Relax and TensorIR): its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; an exercise that names no notebook stands in the first
NOTEBOOKS = {"relax": "relax"}

EXERCISES = (
    Exercise(
        id="day08.port",
        title="Yesterday's pass, ported",
        points={"valid": 1, "same": 2, "did": 4, "spared": 3},
        difficulty=3,
        minutes=25,
        hints=(
            "Count first, rewrite then: how often each variable is read, in the bindings and in what the function "
            "returns. relax.analysis.post_order_visit(value, f) shows f every expression of a binding. A variable "
            "that is no relax.DataflowVar can be read outside its block.",
            "In visit_call_, begin with call = self.visit_expr_post_order(call): it visits the operands. call.op is a "
            "tvm.ir.Op, which has a name, or a relax.GlobalVar, which has none. self.lookup_binding(call.args[0]) is "
            "the call that made the operand, or None for an input.",
            "relax.BlockBuilder().function('fused', parameters, attrs={'Primitive': True}, private=True) makes the "
            "function; gv = self.builder_.add_func(function, name) puts it into the module, and tvm.ir.Call(gv, "
            "operands) calls it. tvm.ir.Call(conv.op, parameters, conv.attrs, conv.ty_args) is the same convolution "
            "of other operands. The old one is dead then: relax.transform.DeadCodeElimination().",
        ),
    ),
    Exercise(
        id="day08.pattern",
        title="Fusing by pattern, with a check",
        points={"valid": 1, "same": 1, "did": 3, "spared": 4},
        difficulty=3,
        minutes=20,
        hints=(
            "is_op('relax.add')(value, bias) is the pattern of a call, with a pattern for every operand; wildcard() "
            "takes any. The operands of add and multiply match either way round. Keep the patterns of the parts in "
            "variables: the check wants to ask about them.",
            "FuseOpsByPattern wants a list of (name, pattern, {name of a part: pattern}, check), and "
            "bind_constants=False. In the check, "
            "context.matched_bindings holds the variables of all three calls; the one whose value is "
            "context.matched_expr (same_as) is the result, and the others must have one reader and be a "
            "relax.DataflowVar.",
            "context.annotated_expr['product'] is the call: .attrs.data_layout, .attrs.kernel_layout, .ty.shape, "
            ".ty.dtype. Put ones in front of the bias's shape until it has as many dimensions as the product, and "
            "compare with ones and the size of the channels: dimension 1 of an image, the last one of a product.",
        ),
    ),
    Exercise(
        id="day08.policy",
        title="A fusion policy with a cost function",
        points={"valid": 1, "same": 1, "did": 3, "spared": 2, "cost": 4},
        difficulty=4,
        minutes=30,
        hints=(
            "Say which values are kept, that is, written by a kernel: what is returned, and what else? Then the "
            "groups follow: for each value that is kept, it and everything it needs up to values that are kept.",
            "Begin with everything kept, and ask price what it would cost to keep one value less. Take the one that "
            "saves most, and begin again. illegal tells which choices cannot be: give them the cost math.inf.",
            "Also try to keep one value more. there = program(module) once, then price(there, groups): with thirty "
            "operations that is thirty prices a round, and a round saves something or is the last.",
        ),
    ),
    Exercise(
        id="day08.schedule",
        title="A matmul and its schedule",
        points={"valid": 1, "same": 3, "did": 2, "cost": 4},
        difficulty=4,
        minutes=30,
        hints=(
            "Write it first without a schedule: two placeholders, a reduce_axis, te.compute, te.create_prim_func. "
            "In tvm.s_tir.Schedule(function) the block has the name that te.compute was given. The innermost loop of "
            "the textbook jumps through B with every step: which loop should be innermost instead?",
            "split(j, [None, 32]) and vectorize the inner part; split(i, [None, 8]) and unroll the inner part; put the "
            "loop that adds up around these two with reorder. parallel takes the outermost loop, or the fuse of "
            "several. Sizes that do not divide are TVM's care: it adds a condition.",
            "What a tile adds up should stay in registers: local = schedule.cache_write(block, 0, 'local') before the "
            "splits, and after the reorder schedule.reverse_compute_at(local, tile) with the loop right outside the "
            "one that adds up. decompose_reduction(block, that loop) moves the zeros out of it.",
        ),
        seconds=20.0,
    ),
    Exercise(
        id="day08.tuner",
        title="A tuner that learns",
        points={"valid": 1, "did": 5, "cost": 3},
        difficulty=4,
        minutes=20,
        hints=(
            "Make each candidate a vector of numbers. Sizes that double belong on a logarithmic scale, and words "
            "become one number each that is 0 or 1. Times that differ by factors do, too: predict their logarithm.",
            "With x = log2(rows) and y = log2(columns) a straight line has no best place in the middle: give the "
            "model x², y² and x·y as well. That is about ten numbers for sixteen measurements.",
            "np.linalg.lstsq would follow every accident of so few measurements. Ridge regression does not: "
            "np.linalg.solve(A.T @ A + 0.1 * np.eye(p), A.T @ y). Predict all candidates, leave out what was measured, "
            "and return the first k.",
        ),
    ),
    Exercise(
        id="day08.pipeline",
        title="A whole pipeline",
        points={"valid": 1, "same": 3, "did": 3, "cost": 4},
        difficulty=4,
        minutes=25,
        hints=(
            "Look at what TVM's default pipeline leaves: relax.get_default_pipeline, or kernels()(module).show(). "
            "Which operator stands between a convolution and its relu and is fused with neither? And which step that "
            "a CPU needs is missing altogether?",
            "relax.transform.DecomposeOpsForInference() writes a batch norm as element-wise operators, and after it "
            "CanonicalizeBindings() tidies up: both belong before LegalizeOps. kernels(before=[…], schedule=…) from "
            "passlab.relax.pipelines puts parts into their places; cpu_schedule there is a rule for every kernel.",
            "What a vector loads must lie side by side in memory: in NHWC these are the channels, and there are more "
            "of them than columns in a small image. ConvertLayout({'relax.nn.conv2d': ['NHWC', 'HWIO']}), then "
            "Normalize(). (The keys need their prefix, or nothing happens.)",
        ),
        seconds=120.0,
    ),
)
