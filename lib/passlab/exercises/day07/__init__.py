"""Day 7, TVM Relay: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; an exercise that names no notebook stands in the first
NOTEBOOKS = {"relay": "relay"}

EXERCISES = (
    Exercise(
        id="day07.pipeline-counts",
        title="What a pipeline leaves",
        points={"valid": 1, "did": 4, "spared": 2},
        difficulty=1,
        minutes=10,
        hints=(
            "getattr(relay.transform, name)() makes a pass of its name, and a pass is called with a module. What it "
            "gives is what the next one gets.",
            "relay.analysis.post_order_visit(function, found.append) puts every expression of a function into a list, "
            "each once, those of inner functions with them. A call of an operator is a relay.Call whose op is a "
            "tvm.ir.Op; its name is call.op.name. mod.functions.values() are the functions.",
            "A pass that is called runs whatever its level, but some passes are several in a row, and those inside "
            "ask for their level: wrap the loop into `with tvm.transform.PassContext(opt_level=4):`.",
        ),
        seconds=30.0,
    ),
    Exercise(
        id="day07.relu-to-clip",
        title="A chip without relu",
        points={"valid": 1, "same": 2, "did": 4, "spared": 3},
        difficulty=3,
        minutes=20,
        hints=(
            "Begin with the clip alone: class M(relay.ExprMutator) with visit_call(self, call). For a relu, what "
            "becomes of its operand says self.visit(call.args[0]); for all other calls super().visit_call(call) does "
            "everything. mod['main'] goes in, tvm.IRModule.from_expr(…) and relay.transform.InferType() come after.",
            "Count readers before you change anything: visit main once with relay.analysis.post_order_visit, and for "
            "each Call count its args, for each Tuple its fields, for each Function its body, in a Counter of "
            "expressions.",
            "The function: data, weight = relay.var('data', conv.args[0].checked_type), …; relay.Function([data, "
            "weight], relay.nn.relu(relay.Call(conv.op, [data, weight], conv.attrs))), then .with_attr('Composite', "
            "'conv2d_relu') and .with_attr('Primitive', tvm.tir.IntImm('int32', 1)). It is called with the visited "
            "operands. In visit_function, give back what is Primitive as it is.",
        ),
    ),
    Exercise(
        id="day07.batchnorm",
        title="Batch norm is two operations",
        points={"valid": 1, "same": 3, "did": 3, "spared": 2, "cost": 1},
        difficulty=3,
        minutes=20,
        hints=(
            "The result of nn.batch_norm is a tuple of three. Nobody but a TupleGetItem with index 0 reads the first "
            "of them: override visit_tuple_getitem(self, item), and leave the batch norm itself alone.",
            "The operands are data, gamma, beta, moving_mean, moving_var; the settings are call.attrs.axis, .epsilon, "
            ".center and .scale. x * a + b with vectors a and b is right only if the channels are the last dimension: "
            "relay.expand_dims(a, axis=1, num_newaxis=n) appends n dimensions of size 1.",
            "n is the number of dimensions of x behind the channels: rank - 1 - axis % rank. The number 1 and ε need "
            "the dtype of x: relay.const(value, dtype). relay.sqrt, relay.negative, and +, * and / between "
            "expressions do the rest.",
        ),
    ),
    Exercise(
        id="day07.fusion-groups",
        title="What FuseOps will do",
        points={"valid": 1, "did": 10, "spared": 3},
        difficulty=5,
        minutes=35,
        hints=(
            "First make lists: the nodes in post-order, a dictionary from node to number, for each node its kind and "
            "its readers as (number, pattern of the edge). Everything after that is about numbers.",
            "Post-dominators, from the last node to the first: begin with the first reader; for each further one, "
            "step from post-dominator to post-dominator until both are the same. It is always the one nearer to the "
            "input that steps: keep the depth of each node, 1 for those without a post-dominator, else one more than "
            "its post-dominator's. If both are as deep, both step. A node that steps adds its path pattern.",
            "Groups: a list with a set for each node, shared by the members, so that joining is one union and a loop. "
            "max(group) is the last node. Write one function that says whether a node joins in a phase, row by row "
            "like the table, and try it on sum(relu(x)), relu(sum(x)), a diamond behind a convolution, and split "
            "with concatenate.",
        ),
    ),
    Exercise(
        id="day07.instrument",
        title="A pass instrument",
        points={"valid": 1, "same": 2, "did": 5},
        difficulty=2,
        minutes=15,
        hints=(
            "@tvm.instrument.pass_instrument makes an instrument of a class with the methods enter_pass_ctx(self), "
            "run_before_pass(self, mod, info) and run_after_pass(self, mod, info). What is running, and has not "
            "ended, when a run begins?",
            "Keep a list of open runs beside `rows`: its length is the depth of what begins now, and its last entry "
            "is what ends now. A row is appended when the run begins, and filled in when it ends. Leave should_run "
            "out: a pass that it does not say True for is not run.",
            "relay.analysis.post_order_visit(function, visit) calls visit once for each expression of one function, "
            "those of inner functions included. mod.functions.values() has all functions; those of TIR are no "
            "relay.Function. enter_pass_ctx is where both lists become empty, __init__ is another such place.",
        ),
    ),
    Exercise(
        id="day07.levels",
        title="What runs at which level",
        points={"valid": 1, "did": 3},
        difficulty=1,
        minutes=5,
        hints=(
            "You have the instrument. A table needs five contexts, one for each level.",
            "tvm.transform.PassContext(opt_level=level, disabled_pass=list(disabled), instruments=[PassLog()]), and in "
            "it relay.optimize(mod, target='llvm').",
            "What a pass says of itself (info.opt_level) is not the answer: InlineGlobals says 1 and runs at 0: "
            "it is called directly.",
        ),
        seconds=30.0,
    ),
    Exercise(
        id="day07.cse",
        title="Common subexpressions, as a function pass",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3},
        difficulty=3,
        minutes=15,
        hints=(
            "A relay.ExprMutator visits operands first: super().visit_call(call) gives the call with its new operands. "
            "If equal operands have become one object, what is a key for the call?",
            "Expressions of TVM hash and compare by identity, so (call.op, *call.args) can be a key once the operands "
            "are merged. Settings are compared with tvm.ir.structural_equal(a.attrs, b.attrs). Not by structural_hash "
            "of whole expressions with map_free_vars=True: that finds relu(x) and relu(y) equal.",
            "visit_constant: key (dtype, shape, data.numpy().tobytes()). visit_tuple: key (*fields). "
            "visit_tuple_getitem: key (tuple_value, index). Each returns self.first.setdefault(key, expression). A "
            "call whose op is no tvm.ir.Op, or has op.get_attr('TOpIsStateful'), is returned as it is.",
        ),
    ),
    Exercise(
        id="day07.dce",
        title="Dead code, as a function pass",
        points={"valid": 1, "same": 1, "did": 3, "spared": 3},
        difficulty=3,
        minutes=15,
        hints=(
            "In visit_let, what do you have to know before you can say that the variable is not read: the body as it "
            "was, or the body as it will be?",
            "relay.analysis.free_vars(body) holds the variables that an expression reads from outside. For effects, "
            "visit the whole value with post_order_visit: relu(dropout(x)) has one, too.",
            "Remember which variable is bound to which tuple before you visit the body. Then visit_tuple_getitem can "
            "return the field itself, and the tuple loses its last reader, if no other field has an effect. Functions "
            "are made anew by ExprMutator with their parameters and attributes; leave that to it.",
        ),
    ),
    Exercise(
        id="day07.dense-gelu",
        title="dense + bias + GELU, by pattern",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3},
        difficulty=4,
        minutes=20,
        hints=(
            "Write y as a pattern first, and use that same object in both places where y stands. Operands of add and "
            "multiply are tried in both orders; | is for two ways to write something.",
            "pattern.partition(function, attributes, check=…) puts each match into a function, and leaves out what has "
            "a reader in its middle. is_expr(relay.const(0.5, 'float32')) is a pattern for this very number. Use a new "
            "one for each place: one pattern object is one expression, and two places may hold two constants.",
            "check gets the matched expression and says yes or no. Walk down from it to the add or bias_add with a "
            "dense for an operand; the other operand's checked_type.shape must be (units,), units being the last of "
            "the dense's shape, and bias_add's attrs.axis must be the last axis.",
        ),
    ),
    Exercise(
        id="day07.fold-and-time",
        title="What does folding a BatchNorm buy?",
        points={"valid": 1, "same": 2, "did": 3, "spared": 2, "cost": 1},
        difficulty=3,
        minutes=20,
        hints=(
            "tvm.transform.Sequential([...])(mod) under `with tvm.transform.PassContext(opt_level=3)` folds. Look at "
            "the result: is a multiply left? Which kernels does each build launch?",
            "Both builds: PassContext(opt_level=3, disabled_pass=['SimplifyInference', 'AlterOpLayout']). Without the "
            "first the build folds the plain side, without the second it fails, and one side only is no comparison.",
            "graph_executor.GraphModule(library['default'](tvm.cpu())) with set_input(name, x) and run(); name is "
            "mod['main'].params[0].name_hint. Run each once before you measure, then take turns, 20 times, with "
            "time.perf_counter around run(). statistics.median, and the ratio is plain over folded.",
        ),
        seconds=30.0,
    ),
)
