"""Bank of day07.dce. Most wrong answers are one working mutator that looks at too little."""

from __future__ import annotations

from autograder.bank import right, wrong
from passlab.relay import relay, tvm


def _expressions(expr):
    found = []
    relay.analysis.post_order_visit(expr, found.append)
    return found


def _stateful(call):
    return isinstance(call.op, tvm.ir.Op) and bool(call.op.get_attr("TOpIsStateful"))


def _unknown(call):
    return not isinstance(call.op, tvm.ir.Op)


def _anywhere(expr):
    return any(_stateful(e) or _unknown(e) for e in _expressions(expr) if isinstance(e, relay.Call))


def _never(expr):
    return False


class _Prune(relay.ExprMutator):
    """`effects` says of a value whether it must be kept; `known`: tuples that have a name are seen through."""

    def __init__(self, effects=_anywhere, known=True, literals=True, late=True, values=True):
        super().__init__()
        self.effects, self.known, self.literals, self.late, self.values = effects, known, literals, late, values
        self.bound = {}

    def visit_let(self, let):
        value = self.visit(let.value) if self.values else let.value
        self.bound[let.var] = value
        body = self.visit(let.body)
        reads = _expressions(body if self.late else let.body)
        if let.var in reads or self.effects(value):
            return relay.Let(let.var, value, body)
        return body

    def visit_tuple_getitem(self, get):
        whole = self.visit(get.tuple_value)
        made = self.bound.get(whole, whole) if self.known else whole
        literal = isinstance(made, relay.Tuple) and (self.literals or made is not whole)
        if literal and not any(self.effects(f) for f in made.fields):
            return made.fields[get.index]
        return relay.TupleGetItem(whole, get.index)


def _apply(module, prune):
    @relay.transform.function_pass(opt_level=0)
    def pruned(function, mod, context):
        return prune(function)

    return pruned(module)


@right("looks for the variable among the expressions of the body")
def by_search(mod):
    return _apply(mod, lambda f: _Prune().visit(f))


@right("sees through tuples, then lets TVM's own pass take away what nobody reads")
def with_tvm(mod):
    mod = _apply(mod, lambda f: _Prune(effects=lambda e: not isinstance(e, relay.Tuple) or _anywhere(e)).visit(f))
    while True:
        after = relay.transform.InferType()(relay.transform.DeadCodeElimination()(mod))
        if tvm.ir.structural_equal(after, mod):
            break
        mod = after
    return _apply(mod, lambda f: _Prune().visit(f))


@wrong("did", "asks whether the body as it was reads the variable: only the last of a dead chain goes")
def as_it_was(mod):
    return _apply(mod, lambda f: _Prune(late=False).visit(f))


@wrong("did", "TVM ships this pass: it leaves tuples alone")
def tvm_ships_it(mod):
    return relay.transform.DeadCodeElimination()(mod)


@wrong("did", "sees through tuples that stand where they are taken apart, not through those that have a name")
def literals_only(mod):
    return _apply(mod, lambda f: _Prune(known=False).visit(f))


@wrong("did", "sees through tuples that have a name, not through those that stand where they are taken apart")
def names_only(mod):
    return _apply(mod, lambda f: _Prune(literals=False).visit(f))


@wrong("did", "does not look into the values that are bound")
def values_as_they_are(mod):
    return _apply(mod, lambda f: _Prune(values=False).visit(f))


@wrong("spared", "what nobody reads can go, draws or not")
def no_effects(mod):
    return _apply(mod, lambda f: _Prune(effects=_never).visit(f))


@wrong("spared", "looks at the outermost operator only: relu(dropout(x)) draws, too")
def outermost(mod):
    def effects(expr):
        while isinstance(expr, relay.TupleGetItem):
            expr = expr.tuple_value
        return isinstance(expr, relay.Call) and (_stateful(expr) or _unknown(expr))

    return _apply(mod, lambda f: _Prune(effects=effects).visit(f))


@wrong("spared", "calls of functions are pure: what they do is in another function")
def pure_functions(mod):
    def effects(expr):
        return any(_stateful(e) for e in _expressions(expr) if isinstance(e, relay.Call))

    return _apply(mod, lambda f: _Prune(effects=effects).visit(f))


@wrong("spared", "brings the program into graph form, where nothing is dead: draws without readers are gone with it")
def graph_form(mod):
    return _apply(relay.transform.ToGraphNormalForm()(mod), lambda f: _Prune(effects=_never).visit(f))


@wrong("spared", "a field that is never taken can go, though the tuple is returned as a whole")
def zeros_for_fields(mod):
    def prune(function):
        function = _Prune().visit(function)
        everything = _expressions(function)
        taken = {(e.tuple_value, e.index) for e in everything if isinstance(e, relay.TupleGetItem)}

        class Zeros(relay.ExprMutator):
            def visit_let(self, let):
                value = self.visit(let.value)
                if isinstance(value, relay.Tuple) and not _anywhere(value):
                    kept = [
                        f if (let.var, i) in taken else relay.zeros_like(f.args[0]) if isinstance(f, relay.Call) else f
                        for i, f in enumerate(value.fields)
                    ]
                    value = relay.Tuple(kept)
                return relay.Let(let.var, value, self.visit(let.body))

        return Zeros().visit(function)

    return _apply(mod, prune)


@wrong("spared", "makes the function anew from parameters and body: its attributes are gone")
def bare_function(mod):
    def prune(function):
        made = _Prune().visit(function)
        return relay.Function(made.params, made.body)

    return _apply(mod, prune)


@wrong("valid", "a parameter that nobody reads is dead, too: callers no longer fit")
def drops_parameters(mod):
    def prune(function):
        body = _Prune().visit(function).body
        read = relay.analysis.free_vars(body)
        return relay.Function([p for p in function.params if p in read], body, None, None, function.attrs)

    return _apply(mod, prune)


@wrong("valid", "returns the function and not the module")
def the_function(mod):
    return by_search(mod)["main"]
