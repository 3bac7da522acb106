"""Day 7, TVM Relay: its exercises."""

from __future__ import annotations

from passlab.judge import Core, Exercise
from passlab.relay.compiler import COMPILING

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"relay": "relay"}

EXERCISES = (
    Exercise(
        id="day07.pipeline-counts",
        title="Count operators after each pass",
        section="Passes and the context they run in",
        points={"valid": 1, "did": 4, "spared": 2},
        difficulty=1,
        minutes=15,
        hints=(
            "getattr(relay.transform, name)() makes the pass of that name; call the pass with a module. Its result is "
            "the input of the next pass.",
            "relay.analysis.post_order_visit(function, found.append) collects every expression of a function in a "
            "list, each once, including those of inner functions. A call of an operator is a relay.Call whose op is a "
            "tvm.ir.Op; its name is call.op.name. mod.functions.values() are the functions.",
            "A pass that you call directly runs whatever its level, but some passes consist of several, and those "
            "inside check their level: put the loop inside `with tvm.transform.PassContext(opt_level=4):`.",
        ),
        helps={"did": 2, "spared": 2},
        seconds=10.0,
    ),
    Exercise(
        id="day07.relu-to-clip",
        title="A chip without relu",
        section="Writing a pass",
        points={"valid": 1, "same": 2, "did": 4, "spared": 3},
        difficulty=3,
        minutes=40,
        hints=(
            "Begin with the clip alone: class M(relay.ExprMutator) with visit_call(self, call). For a relu, "
            "self.visit(call.args[0]) gives the new operand; for all other calls super().visit_call(call) does "
            "everything. mod['main'] goes in; tvm.IRModule.from_expr(…) and relay.transform.InferType() come after.",
            "Count uses before you change anything: visit main once with relay.analysis.post_order_visit, and for "
            "each Call count its args, for each Tuple its fields, for each Function its body, in a Counter of "
            "expressions.",
            "The function: data, weight = relay.var('data', conv.args[0].checked_type), …; relay.Function([data, "
            "weight], relay.nn.relu(relay.Call(conv.op, [data, weight], conv.attrs))), then .with_attr('Composite', "
            "'conv2d_relu') and .with_attr('Primitive', tvm.tir.IntImm('int32', 1)). Call it with the visited "
            "operands. In visit_function, return Primitive functions unchanged.",
        ),
        helps={"same": 3, "did": 1, "spared": 2},
    ),
    Exercise(
        id="day07.batchnorm",
        title="Batch norm is two operations",
        section="Removing batch norm",
        points={"valid": 1, "same": 3, "did": 3, "spared": 2, "cost": 1},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "The result of nn.batch_norm is a tuple of three. Only a TupleGetItem with index 0 reads the first of "
            "them: override visit_tuple_getitem(self, item), and leave the batch norm itself alone. There may be two "
            "such projections of one batch norm: keep what the first was replaced with.",
            "The operands are data, gamma, beta, moving_mean, moving_var; the settings are call.attrs.axis, .epsilon, "
            ".center and .scale. x * a + b with vectors a and b is right only if the channels are the last dimension: "
            "relay.expand_dims(a, axis=1, num_newaxis=n) appends n dimensions of size 1.",
            "n is the number of dimensions of x after the channels: rank - 1 - axis % rank. The number 1 and ε need "
            "the dtype of x: relay.const(value, dtype). relay.sqrt, relay.negative, and +, * and / between "
            "expressions do the rest.",
        ),
        helps={"same": 2, "did": 1, "spared": 1, "cost": 2},
    ),
    Exercise(
        id="day07.fusion-groups",
        title="Predict the groups of FuseOps",
        section="Fusion",
        points={"valid": 1, "did": 10, "spared": 3},
        difficulty=5,
        minutes=70,
        stretch=True,
        core=Core({"valid": 1, "did": 3, "spared": 2}, difficulty=1, minutes=25),
        hints=(
            "First make lists: the nodes in post-order, a dictionary from node to number, and for each node its kind "
            "and its consumers as (number, pattern of the edge). From then on work with numbers only.",
            "Post-dominators, from the last node to the first: begin with the first consumer; for each further one, "
            "step from post-dominator to post-dominator until both are the same. Always step the one nearer to the "
            "input: keep the depth of each node, 1 for those without a post-dominator, otherwise one more than its "
            "post-dominator's. If both have the same depth, step both. A node that steps adds its path pattern.",
            "Groups: a list with a set for each node, shared by the members, so that joining is one union and a loop. "
            "max(group) is the last node. Write one function that decides whether a node joins in a phase, row by row "
            "like the table, and try it on sum(relu(x)), relu(sum(x)), a diamond after a convolution, and split with "
            "concatenate.",
        ),
        helps={"did": 2, "spared": 3},
        seconds=10.0,
        closed=("tvm.relay.transform.FuseOps", *COMPILING),
    ),
    Exercise(
        id="day07.instrument",
        title="A pass instrument",
        section="Seeing what runs",
        points={"valid": 1, "same": 2, "did": 5},
        difficulty=2,
        minutes=30,
        stretch=True,
        hints=(
            "@tvm.instrument.pass_instrument makes an instrument from a class with the methods enter_pass_ctx(self), "
            "run_before_pass(self, mod, info) and run_after_pass(self, mod, info). When a run begins, which runs have "
            "started and not yet ended?",
            "Keep a list of open runs beside `rows`: its length is the depth of the run that begins now, and its last "
            "entry is the run that ends next. Append a row when the run begins, and fill it in when the run ends. "
            "Leave should_run out: a pass for which it does not return True is not run.",
            "relay.analysis.post_order_visit(function, visit) calls visit once for each expression of one function, "
            "including those of inner functions. mod.functions.values() has all functions; those of TIR are not "
            "relay.Function. Empty both lists in enter_pass_ctx, and in __init__ too.",
        ),
        helps={"same": 2, "did": 2},
    ),
    Exercise(
        id="day07.levels",
        title="What runs at which level",
        section="Passes and the context they run in",
        points={"valid": 1, "did": 3},
        difficulty=1,
        minutes=15,
        hints=(
            "You have the instrument. A table needs five contexts, one for each level.",
            "Use tvm.transform.PassContext(opt_level=level, disabled_pass=list(disabled), instruments=[PassLog()]), "
            "and inside it relay.optimize(mod, target='llvm').",
            "The level that a pass declares (info.opt_level) is not the answer: InlineGlobals declares 1 and runs at "
            "0, because it is called directly.",
        ),
        helps={"did": 2},
    ),
    Exercise(
        id="day07.cse",
        title="Common subexpressions, as a function pass",
        section="Equal subexpressions, other layouts",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "A relay.ExprMutator visits operands first: super().visit_call(call) returns the call with its new "
            "operands. Once equal operands are the same object, what can serve as a key for the call?",
            "TVM expressions hash and compare by identity, so (call.op, *call.args) can be a key once the operands "
            "are merged. Compare attributes with tvm.ir.structural_equal(a.attrs, b.attrs). Do not use "
            "structural_hash of whole expressions with map_free_vars=True: it treats relu(x) and relu(y) as equal.",
            "visit_constant: key (dtype, shape, data.numpy().tobytes()). visit_tuple: key (*fields). "
            "visit_tuple_getitem: key (tuple_value, index). Each returns self.first.setdefault(key, expression). A "
            "call whose op is not a tvm.ir.Op, or has op.get_attr('TOpIsStateful'), is returned unchanged.",
        ),
        helps={"same": 2, "did": 1, "spared": 2},
        closed=("tvm.relay.transform.EliminateCommonSubexpr", *COMPILING),
    ),
    Exercise(
        id="day07.dce",
        title="Dead code, as a function pass",
        section="Names, functions as values, effects",
        points={"valid": 1, "same": 1, "did": 3, "spared": 3},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "In visit_let, what do you need to know before you can tell that the variable is unused: the old body, or "
            "the new one?",
            "relay.analysis.free_vars(body) lists the variables that an expression reads from outside. For effects, "
            "visit the whole value with post_order_visit: relu(dropout(x)) has one, too.",
            "Before you visit the body, remember which variable is bound to which tuple. Then visit_tuple_getitem can "
            "return the field itself, and the tuple loses its last use, if no other field has an effect. ExprMutator "
            "rebuilds functions with their parameters and attributes; leave that to it.",
        ),
        helps={"did": 1, "spared": 2},
    ),
    Exercise(
        id="day07.dense-gelu",
        title="dense + bias + GELU, by pattern",
        section="Saying what, not how: patterns",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3},
        difficulty=4,
        minutes=50,
        stretch=True,
        hints=(
            "Write y as a pattern first, and use that same object in both places where y occurs. Operands of add and "
            "multiply are tried in both orders; | separates two ways to write something.",
            "pattern.partition(function, attributes, check=…) turns each match into a function call, and skips "
            "matches with an intermediate value that is read from outside. is_expr(relay.const(0.5, 'float32')) is a "
            "pattern for exactly this number. Use a new one for each place: one pattern object matches one "
            "expression, and two places may have two constants.",
            "check receives the matched expression and returns True or False. Walk down from it to the add or "
            "bias_add that has a dense as an operand; the other operand's checked_type.shape must be (units,), where "
            "units is the last dimension of the dense's shape, and bias_add's attrs.axis must be the last axis.",
        ),
        helps={"did": 1, "spared": 2},
    ),
    Exercise(
        id="day07.fold-and-time",
        title="How much does folding a BatchNorm gain?",
        section="How much it gains",
        points={"valid": 1, "same": 2, "did": 3, "spared": 2, "cost": 1},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "tvm.transform.Sequential([...])(mod) under `with tvm.transform.PassContext(opt_level=3)` folds. Look at "
            "the result: is there a multiply left? Which kernels does each build launch?",
            "For both builds use PassContext(opt_level=3, disabled_pass=['SimplifyInference', 'AlterOpLayout']). "
            "Unless you disable the first, the build folds the plain side too; unless you disable the second, the "
            "build fails; and disabling them on one side only is not a fair comparison.",
            "Use graph_executor.GraphModule(library['default'](tvm.cpu())) with set_input(name, x) and run(); name is "
            "mod['main'].params[0].name_hint. Run each once before you measure, then alternate, 20 times, with "
            "time.perf_counter around run(). Take statistics.median of each; the ratio is plain over folded.",
        ),
        helps={"did": 2, "spared": 2, "cost": 1},
        seconds=10.0,
    ),
)
