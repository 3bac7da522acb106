"""Bank of day02.fuse-silu. Most wrong answers are one working pass from which one piece of care is taken away."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from autograder.bank import right, wrong
from passlab.relax import relax, tvm
from passlab.tvm.judge import bindings

MULTIPLY, SIGMOID = "relax.multiply", "relax.sigmoid"


def _name(value):
    return value.op.name if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) else ""


def _both(a, b):
    return ((a, b), (b, a))


USUAL = SimpleNamespace(
    orders=_both,
    gates=(SIGMOID,),
    same=lambda gate, x: gate.args[0].same_as(x),
    functions=lambda module: [v for v, f in module.functions.items() if isinstance(f, relax.Function)],
    made=lambda x: relax.op.nn.silu(x),
    clean=relax.transform.DeadCodeElimination(),
)


def _with(**changes):
    return SimpleNamespace(**{**vars(USUAL), **changes})


@relax.expr_functor.mutator
class _Silu(relax.PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if _name(call) == MULTIPLY:
            for x, gate in self.how.orders(*call.args):
                bound = self.lookup_binding(gate) if isinstance(gate, relax.Var) else None
                if _name(bound) in self.how.gates and self.how.same(bound, x):
                    return self.how.made(x)
        return call


def _silu(module, how=USUAL):
    mutator = _Silu(module)
    mutator.how = how
    for variable in how.functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    module = mutator.builder_.get()
    return how.clean(module) if how.clean else module


@right("asks for names of operators, and keeps the walk apart from the rule")
def by_rule(module):
    return _silu(module)


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
    for variable in USUAL.functions(module):
        pairs = bindings(module[variable])
        mutator.gates = {made: value.args[0] for made, value in pairs if _name(value) == SIGMOID}
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


@wrong("did", "overrides visit_call, which Relax never calls: nothing happens, and nothing says so")
def without_underscore(module):
    @relax.expr_functor.mutator
    class Deaf(relax.PyExprMutator):
        def visit_call(self, call):
            return relax.op.nn.silu(call.args[0]) if _name(call) == MULTIPLY else call

    mutator = Deaf(module)
    for variable in USUAL.functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


@wrong("did", "looks for the gate on the right only; a product is the same in both orders")
def one_order(module):
    return _silu(module, _with(orders=lambda a, b: ((a, b),)))


@wrong("same", "takes the sigmoid of any value for a gate")
def any_gate(module):
    return _silu(module, _with(same=lambda gate, x: True))


@wrong("same", "takes tanh for a gate, too")
def tanh_too(module):
    return _silu(module, _with(gates=(SIGMOID, "relax.tanh")))


@wrong("did", "visits main, and no other function")
def main_only(module):
    return _silu(module, _with(functions=lambda module: [module.get_global_var("main")]))


@wrong("cost", "leaves the sigmoids that nobody reads")
def not_cleaned(module):
    return _silu(module, _with(clean=None))


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
    for variable in USUAL.functions(module):
        values = [value for _, value in bindings(module[variable]) if isinstance(value, relax.Call)]
        mutator.readers = Counter(a for value in values for a in value.args if isinstance(a, relax.Var))
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


@wrong("valid", "asks every call for the name of its operator; what is called may be a function of the module")
def names_of_all(module):
    @relax.expr_functor.mutator
    class Named(relax.PyExprMutator):
        def visit_call_(self, call):
            if call.op.name == MULTIPLY:
                for x, gate in _both(*call.args):
                    bound = self.lookup_binding(gate) if isinstance(gate, relax.Var) else None
                    if _name(bound) == SIGMOID and bound.args[0].same_as(x):
                        return relax.op.nn.silu(x)
            return call

    mutator = Named(module)
    for variable in USUAL.functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


@wrong("same", "writes sigmoid(x) where the product was: the gate instead of what it gates")
def gate_only(module):
    return _silu(module, _with(made=relax.op.sigmoid))


@wrong("valid", "forgets to return the module")
def returns_nothing(module):
    _silu(module)
