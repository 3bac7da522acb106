"""Hidden cases and answers of day02.fuse-silu."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from autograder.authoring.answers import edited, right, something_to_do, wrong
from passlab.exercises.day02.fuse_silu import IMAGE
from passlab.judge import Case
from passlab.relax import relax, tvm
from passlab.relax.cases import case, module, op
from passlab.tvm.judge import bindings

# ---------------------------------------------------------------------------------------------------- hidden cases

Build = Callable[[], tvm.IRModule]


def _drawn(seed: int) -> Build:
    """Return products, sigmoids, and products with sigmoids of one's own and of others, at random."""

    def body(e: Any, x: Any, y: Any) -> Any:
        rng = random.Random(seed)
        values = [x, y, e(op.negative(x))]
        for _ in range(8):
            value, other = rng.choice(values[-4:]), rng.choice(values)
            kind = rng.choice("oorgts")
            if kind in "or":
                gate = e(op.sigmoid(value))
                values.append(e(op.multiply(value, gate) if kind == "o" else op.multiply(gate, value)))
                if rng.random() < 0.4:
                    values.append(e(op.add(gate, other)))
            elif kind == "g":
                values.append(e(op.multiply(value, e(op.sigmoid(other)))))
            elif kind == "t":
                values.append(e(op.multiply(value, e(op.tanh(value)))))
            else:
                values.append(e(op.sigmoid(value)))
        return e(op.add(values[-1], e(op.add(values[-2], values[-3]))))

    return lambda: relax.transform.DeadCodeElimination()(module(body, IMAGE, IMAGE)())


def _chain(e: Any, x: Any) -> Any:
    """Return a sigmoid of a sigmoid: the product of both is a silu of the inner one."""
    inner = e(op.sigmoid(x))
    outer = e(op.sigmoid(inner))
    return e(op.multiply(inner, outer)), e(op.multiply(outer, outer))


def _handed_out(e: Any, x: Any) -> Any:
    """Return a gate that leaves the block, so it is read."""
    gate = e(op.sigmoid(x), leave=True)
    return [e(op.multiply(x, gate), leave=True), gate]


def _symbolic(e: Any, x: Any) -> Any:
    return e(op.multiply(x, e(op.sigmoid(x))))


def _branches() -> tvm.IRModule:
    """Return a match in one arm of an if, whose gate was made before it; in the other the gate is of another value."""
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    flag = relax.Var("flag", relax.TensorType((), "bool"))
    builder = relax.BlockBuilder()

    def arm(body: Callable[[], Any]) -> relax.SeqExpr:
        builder._begin_binding_block()
        result = builder.emit(body())
        return relax.SeqExpr([builder._end_block()], result)

    with builder.function("main", [x, flag]):
        gate = builder.emit(op.sigmoid(x))
        one = arm(lambda: op.multiply(gate, x))
        other = arm(lambda: op.multiply(x, builder.emit(op.sigmoid(builder.emit(op.negative(x))))))
        builder.emit_func_output(builder.emit(relax.If(flag, one, other)))
    return builder.get()


def _with_kernel() -> tvm.IRModule:
    """Return a module in which the addition is a kernel already."""
    program = module(lambda e, x: e(op.add(x, e(op.multiply(x, e(op.sigmoid(x)))))), (5,))()
    return relax.transform.LegalizeOps(skip_ops=[MULTIPLY, SIGMOID])(program)


def _one_name() -> tvm.IRModule:
    """Return two inputs of one name: the sigmoid of the one is not a gate of the other."""
    x, other = (relax.Var("x", relax.TensorType((4,), "float32")) for _ in range(2))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, other]):
        gate = builder.emit(op.sigmoid(x))
        both = builder.emit(op.multiply(other, gate)), builder.emit(op.multiply(gate, x))
        builder.emit_func_output(builder.emit(op.add(*both)))
    return builder.get()


def _gated_layer(e: Any, x: Any, up: Any, gate: Any, down: Any) -> Any:
    """Return a gated layer as in many language models, with one more gate behind it, of another value."""
    gated = e(op.matmul(x, gate))
    wide = e(op.multiply(e(op.matmul(x, up)), e(op.multiply(gated, e(op.sigmoid(gated))))))
    return e(op.multiply(e(op.matmul(wide, down)), e(op.sigmoid(x))))


def _helper(e: Any, x: Any) -> Any:
    gate = e(op.sigmoid(x))
    return e(op.add(e(op.multiply(gate, x)), gate))


def _calls_helper(e: Any, x: Any) -> Any:
    return e(op.multiply(e(e.helper(x)), e(op.sigmoid(x))))


def _module_attribute() -> tvm.IRModule:
    return module(_symbolic, (5,))().with_attr("version", 3)


def _function_attribute() -> tvm.IRModule:
    program = module(_symbolic, (5,))()
    main = program.get_global_var("main")
    program.update_func(main, program[main].with_attr("num_input", 1))
    return program


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    all_of_them = ("did", "spared", "cost")
    n = tvm.tirx.Var("n", "int64")

    def drawn(i: int) -> Case:
        return case(f"drawn, number {i + 1}", _drawn(rng.randrange(10**6)), *all_of_them, run=not i)

    return [
        case("sigmoids of sigmoids", module(_chain, (5,)), *all_of_them),
        case("a gate that leaves its block", module(_handed_out, (5,)), *all_of_them),
        case("an unknown size, in half precision", module(_symbolic, ((n, 3), "float16")), *all_of_them, run=False),
        case("a function that is a kernel", _with_kernel, *all_of_them, run=False),
        case("two inputs of one name", _one_name, *all_of_them, run=False),
        case("an attribute of the module", _module_attribute, *all_of_them, run=False),
        case("an attribute of a function", _function_attribute, *all_of_them, run=False),
        case("branches", _branches, *all_of_them, run=False),
        case("a gated layer", module(_gated_layer, (3, 6), (6, 8), (6, 8), (8, 6)), *all_of_them),
        case("a helper's result is not a gate", module(_calls_helper, (5,), helper=_helper), *all_of_them, run=False),
        *(something_to_do("day02.fuse-silu", partial(drawn, i)) for i in range(4)),
    ]


# ---------------------------------------------------------------------------------------------------- answers

MULTIPLY, SIGMOID = "relax.multiply", "relax.sigmoid"


def _name(value):
    return value.op.name if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) else ""


def _both(a, b):
    return ((a, b), (b, a))


def _functions(module):
    return [variable for variable, function in module.functions.items() if isinstance(function, relax.Function)]


@relax.expr_functor.mutator
class _Silu(relax.PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        for x, gate in _both(*call.args) if _name(call) == MULTIPLY else ():
            bound = self.lookup_binding(gate) if isinstance(gate, relax.Var) else None
            if _name(bound) == SIGMOID and bound.args[0].same_as(x):
                return relax.op.nn.silu(x)
        return call


@right("asks for names of operators, and keeps the walk apart from the rule")
def by_rule(module):
    mutator = _Silu(module)
    for variable in _functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


@right("notes the gates of the old function first, and then visits what is kept")
def by_notes(module):
    @relax.expr_functor.mutator
    class Noted(relax.PyExprMutator):
        def visit_call_(self, call):
            if _name(call) == MULTIPLY:
                for x, gate in _both(*call.args):
                    if isinstance(gate, relax.Var) and gate in self.gates and self.gates[gate].same_as(x):
                        return relax.op.nn.silu(self.visit_expr(x))
            return self.visit_expr_post_order(call)

    mutator = Noted(module)
    for variable in _functions(module):
        pairs = bindings(module[variable])
        mutator.gates = {new: value.args[0] for new, value in pairs if _name(value) == SIGMOID}
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


@wrong("did", "overrides visit_call, which Relax never calls: nothing happens, and nothing says so")
def without_underscore(module):
    @relax.expr_functor.mutator
    class Deaf(relax.PyExprMutator):
        def visit_call(self, call):
            return relax.op.nn.silu(call.args[0]) if _name(call) == MULTIPLY else call

    mutator = Deaf(module)
    for variable in _functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


@wrong("did", "gives up where the sigmoid has another reader; it can simply stay")
def single_reader(module):
    @relax.expr_functor.mutator
    class Careful(relax.PyExprMutator):
        def visit_call_(self, call):
            if _name(call) == MULTIPLY:
                for x, gate in _both(*call.args):
                    bound = self.lookup_binding(gate) if isinstance(gate, relax.Var) else None
                    if _name(bound) == SIGMOID and bound.args[0].same_as(x) and self.readers[gate] == 1:
                        return relax.op.nn.silu(x)
            return call

    mutator = Careful(module)
    for variable in _functions(module):
        values = [value for _, value in bindings(module[variable]) if isinstance(value, relax.Call)]
        mutator.readers = Counter(a for value in values for a in value.args if isinstance(a, relax.Var))
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


@wrong("spared", "makes a module of the new functions, and forgets the attributes of the old one")
def functions_alone(module):
    done = by_rule(module)
    return tvm.IRModule(dict(done.functions.items()))


@wrong("spared", "takes parameters and body of each function over, and not its attributes")
def without_attributes(module):
    done = by_rule(module)
    for variable in _functions(done):
        f = done[variable]
        bare = relax.Function(f.params, f.body, f.ret_ty, f.is_pure)
        done.update_func(variable, bare.with_attr("global_symbol", f.attrs["global_symbol"]) if f.attrs else bare)
    return done


@wrong("spared", "writes the new functions into the module that it was given")
def into_the_given(module):
    mutator = _Silu(module)
    for variable in _functions(module):
        module.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(module)


one_order = edited("did", "looks for the gate on the right only; a product is the same in both orders")(
    ("((a, b), (b, a))", "((a, b),)")
)
any_gate = edited("same", "takes the sigmoid of any value for a gate")(("... and producer.args[0].same_as(x)", "..."))
by_name = edited("spared", "compares the names of variables, which may repeat")(
    ("producer.args[0].same_as(x)", "producer.args[0].name == x.name")
)
main_only = edited("did", "visits main, and no other function")(
    ("isinstance(function, relax.Function)", 'variable.name_hint == "main"')
)
not_cleaned = edited("cost", "leaves the unused sigmoids")(
    ("relax.transform.DeadCodeElimination()(mutator.builder_.get())", "mutator.builder_.get()")
)
names_of_all = edited(
    "valid", "asks every call for the name of its operator, though it may call a function of the module"
)(("call.op == MULTIPLY", 'call.op.name == "relax.multiply"'))
gate_only = edited("same", "writes sigmoid(x) where the product was: the gate instead of what it gates")(
    ("relax.op.nn.silu(x)", "relax.op.sigmoid(x)")
)
returns_nothing = edited("valid", "forgets to return the module")(("return ...(....get())", "...(....get())"))

EQUIVALENT = {
    (
        "call = self.visit_expr_post_order(call)",
        "pass",
    ): "an operand is a variable, which stays the same if the type of its value does",
}
