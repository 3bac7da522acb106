"""Hidden cases and answers of day07.dce.

Most wrong answers are the reference with one question left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from autograder.answers.day07._recipes import apply, generated, recipe, with_helper
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day07.dce import EFFECT, UNREAD, all_read, has_effects
from passlab.judge import Case
from passlab.judge.expect import Expectation
from passlab.relay import relay, tvm
from passlab.relay.cases import case, field, least, let, most, number, program, tuple_of

# ---------------------------------------------------------------------------------------------------- hidden cases


def named(steps: list[tuple], outputs: list[int], draw: int) -> Callable[[], tvm.IRModule]:
    """Return the program with a name for each step; after `draw` steps an unused value is drawn."""

    def body(x: relay.Var, y: relay.Var) -> relay.Expr:
        def rest(values: list[relay.Expr]) -> relay.Expr:
            at = len(values) - 2
            if at == len(steps):
                pair = tuple_of(values[-1], values[-2])
                return let(pair, lambda t: tuple_of(field(t, 0), *(values[i] for i in outputs)))
            step = let(apply(steps[at], values), lambda v: rest([*values, v]))
            return let(relay.nn.dropout(x, 0.5), lambda _: step) if at == draw else step

        return rest([x, y])

    return program(body, (2, 4), (2, 4))


def drawing(z: relay.Var) -> relay.Expr:
    return relay.nn.dropout(z, 0.5)


def called(x: relay.Var, helper: relay.GlobalVar) -> relay.Expr:
    return let(helper(x), lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))


def prunes(name: str, build: Callable[[], tvm.IRModule], *spared: Expectation, gone: str = "tanh") -> Case:
    return case(name, build, run=False, did=[most(gone, 0, UNREAD)], spared=spared)


READ, DRAWS = "It is read.", least("nn.dropout", 1, EFFECT)
BOTH = least("exp", 1, READ), least("nn.relu", 1, READ)
NOT_TAKEN = "No field that is taken needs it."


@prunes("a let in the value of a let", program(..., (2, 4)), *BOTH)
def nested(x: relay.Var) -> relay.Expr:
    inner = let(relay.tanh(x), lambda _: let(relay.exp(x), lambda b: relay.nn.relu(b)))
    return let(inner, lambda a: a * a)


@case(
    "tuples in tuples",
    program(..., (2, 4), (2, 4)),
    run=False,
    did=[most("sigmoid", 0, NOT_TAKEN), most("exp", 0, NOT_TAKEN)],
    spared=[least("tanh", 1, READ)],
)
def tuples(x: relay.Var, y: relay.Var) -> relay.Expr:
    inner = tuple_of(relay.tanh(x), relay.sigmoid(y))
    outer = tuple_of(inner, relay.exp(x))
    return let(outer, lambda t: let(field(t, 0), lambda u: field(field(t, 0), 0) + field(u, 0)))


@case(
    "fields of what is not a tuple",
    program(..., (2, 4)),
    did=[most("tanh", 0, UNREAD), all_read(UNREAD)],
    spared=[least("split", 1, "A call gives this tuple: one of its fields is read.")],
)
def split(x: relay.Var) -> relay.Expr:
    def rest(t: relay.Var) -> relay.Expr:
        return let(field(t, 1), lambda part: let(relay.tanh(part), lambda _: field(t, 0)))

    return let(relay.split(x, 2, axis=1).astuple(), rest)


@prunes("in a branch", program(..., (2, 4), (1,)), *BOTH)
def branch(x: relay.Var, flag: relay.Var) -> relay.Expr:
    yes = let(relay.tanh(x), lambda _: relay.nn.relu(x))
    return relay.If(relay.min(flag) > number(0), yes, let(relay.exp(x), lambda b: b))


@prunes("an unused choice", program(..., (2, 4), (1,)), BOTH[1])
def choice(x: relay.Var, flag: relay.Var) -> relay.Expr:
    return let(relay.If(relay.min(flag) > number(0), relay.tanh(x), x), lambda _: relay.nn.relu(x))


@prunes(
    "a call of a closure that draws",
    program(..., (2, 4)),
    least("nn.dropout", 1, "The function is called, and what it does is not known."),
    least("exp", 1, "The call of a function that draws reads it."),
)
def closure(x: relay.Var) -> relay.Expr:
    z = relay.var("z", shape=(2, 4))
    return let(
        relay.Function([z], relay.nn.dropout(z, 0.5)),
        lambda f: let(f(relay.exp(x)), lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x))),
    )


@case(
    "inside a closure",
    program(..., (2, 4)),
    run=False,
    did=[most("tanh", 0, UNREAD), most("sigmoid", 0, NOT_TAKEN), all_read(UNREAD)],
    spared=list(BOTH),
)
def in_closure(x: relay.Var) -> relay.Expr:
    z = relay.var("z", shape=(2, 4))
    inner = let(relay.tanh(z), lambda _: field(tuple_of(relay.nn.relu(z), relay.sigmoid(x)), 0))
    return let(relay.Function([z], inner), lambda f: f(relay.exp(x)))


@prunes("inside a function that is called where it stands", program(..., (2, 4)), *BOTH)
def in_literal(x: relay.Var) -> relay.Expr:
    z = relay.var("z", shape=(2, 4))
    inner = let(relay.exp(z), lambda value: let(relay.tanh(value), lambda _: relay.nn.relu(value)))
    return relay.Function([z], inner)(x)


@prunes("a function that is never called", program(..., (2, 4)), BOTH[1])
def unused_closure(x: relay.Var) -> relay.Expr:
    z = relay.var("z", shape=(2, 4))
    return let(relay.Function([z], relay.tanh(z)), lambda _: relay.nn.relu(x))


@prunes("a draw in a tuple without a name", program(..., (2, 4)), DRAWS)
def literal(x: relay.Var) -> relay.Expr:
    return let(relay.tanh(x), lambda _: field(tuple_of(relay.nn.dropout(x, 0.5), relay.nn.relu(x)), 1))


@prunes("what a draw reads", program(..., (2, 4)), DRAWS, least("tanh", 1, "The draw reads it."), gone="multiply")
def late(x: relay.Var) -> relay.Expr:
    return let(
        relay.tanh(x),
        lambda a: let(relay.exp(a), lambda b: let(relay.nn.dropout(b, 0.5), lambda _: let(a * b, lambda _: x))),
    )


@prunes("a draw in a branch", program(..., (2, 4), (1,)), DRAWS)
def drawn_branch(x: relay.Var, flag: relay.Var) -> relay.Expr:
    value = relay.If(relay.min(flag) > number(0), relay.nn.dropout(x, 0.5), x)
    return let(value, lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))


@prunes("a draw in the other branch", program(..., (2, 4), (1,)), DRAWS)
def drawn_else(x: relay.Var, flag: relay.Var) -> relay.Expr:
    value = relay.If(relay.min(flag) > number(0), x, relay.nn.dropout(x, 0.5))
    return let(value, lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))


@prunes("a draw in a condition", program(..., (2, 4), (1,)), DRAWS)
def drawn_condition(x: relay.Var, flag: relay.Var) -> relay.Expr:
    value = relay.If(relay.min(relay.nn.dropout(flag, 0.5)) > number(0), x, relay.exp(x))
    return let(value, lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))


@prunes("in the other branch", program(..., (2, 4), (1,)), *BOTH)
def other_branch(x: relay.Var, flag: relay.Var) -> relay.Expr:
    no = let(relay.tanh(x), lambda _: relay.nn.relu(x))
    return relay.If(relay.min(flag) > number(0), let(relay.exp(x), lambda b: b), no)


@prunes(
    "an unused call of a function where it stands",
    program(..., (2, 4)),
    least("nn.dropout", 1, "The function is called where it stands, and draws."),
)
def drawn_literal(x: relay.Var) -> relay.Expr:
    z = relay.var("z", shape=(2, 4))
    value = relay.Function([z], relay.nn.dropout(z, 0.5))(x)
    return let(value, lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))


def _always_drawn(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
    inside: list[tvm.ir.Op] = []

    def visit(e: relay.Expr) -> None:
        if isinstance(e, relay.If):
            for branch in (e.true_branch, e.false_branch):
                relay.analysis.post_order_visit(branch, inside.append)

    relay.analysis.post_order_visit(after["main"], visit)
    return (
        "The draw was moved into a branch: it is drawn before, whichever branch is taken."
        if relay.op.get("nn.dropout") in inside
        else None
    )


@prunes("a draw that one branch reads", program(..., (2, 4), (1,)), DRAWS, _always_drawn)
def drawn_before(x: relay.Var, flag: relay.Var) -> relay.Expr:
    def rest(drawn: relay.Var) -> relay.Expr:
        return let(relay.tanh(x), lambda _: relay.If(relay.min(flag) > number(0), drawn, x))

    return let(relay.nn.dropout(x, 0.5), rest)


@prunes("a draw in the value of a let", program(..., (2, 4)), DRAWS)
def drawn_let(x: relay.Var) -> relay.Expr:
    value = let(relay.nn.dropout(x, 0.5), lambda a: relay.exp(a))
    return let(value, lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))


@case(
    "a second name for a tuple",
    program(..., (2, 4)),
    run=False,
    did=[most("tanh", 0, NOT_TAKEN)],
    spared=[BOTH[1]],
)
def second_name(x: relay.Var) -> relay.Expr:
    pair = tuple_of(relay.nn.relu(x), relay.tanh(x))
    return let(pair, lambda t: let(t, lambda u: let(u, lambda v: field(v, 0))))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    length = rng.randint(12, 20)

    def long(x: relay.Var) -> relay.Expr:
        def rest(last: relay.Expr, left: int) -> relay.Expr:
            return let(relay.tanh(last), lambda v: rest(v, left - 1)) if left else relay.exp(x)

        return rest(x, length)

    return [
        case("a long dead chain", program(long, (2, 4)), did=[all_read(UNREAD), most("tanh", 0, UNREAD)]),
        nested,
        tuples,
        split,
        branch,
        choice,
        prunes("a call of a function that draws", with_helper(called, drawing), DRAWS, all_read(UNREAD), _calls_helper),
        closure,
        in_closure,
        in_literal,
        unused_closure,
        literal,
        late,
        drawn_branch,
        drawn_let,
        second_name,
        drawn_else,
        drawn_condition,
        other_branch,
        drawn_literal,
        drawn_before,
        *generated("dce", lambda: _with_names(rng), UNREAD, spared=[DRAWS]),
    ]


def _with_names(rng: random.Random) -> Callable[[], tvm.IRModule]:
    steps = recipe(rng, 8)
    return named(steps, rng.sample(range(10), 2), rng.randrange(8))


def _calls_helper(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
    nodes: list[relay.Expr] = []
    relay.analysis.post_order_visit(after["main"], nodes.append)
    if any(isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.GlobalVar) for e in nodes):
        return None
    return "@helper is not called any more: what another function does is not known here, and this one draws."


EQUIVALENT = {
    ("isinstance(known, relay.Tuple)", "True"): "what a variable stands for is asked again where it is read",
}

# ---------------------------------------------------------------------------------------------------- answers


def _expressions(expr):
    nodes = []
    relay.analysis.post_order_visit(expr, nodes.append)
    return nodes


class _Prune(relay.ExprMutator):
    """`effects` says of a value whether it must be kept; `late`: a body is searched after it is pruned."""

    def __init__(self, effects=has_effects, late=True):
        super().__init__()
        self.effects, self.late, self.bound = effects, late, {}

    def visit_let(self, let):
        value = self.visit(let.value)
        self.bound[let.var] = self.bound.get(value, value)
        body = self.visit(let.body)
        reads = _expressions(body if self.late else let.body)
        if let.var in reads or self.effects(value):
            return relay.Let(let.var, value, body)
        return body

    def visit_tuple_getitem(self, get):
        whole = self.visit(get.tuple_value)
        value = self.bound.get(whole, whole)
        if isinstance(value, relay.Tuple) and not any(self.effects(f) for f in value.fields):
            return value.fields[get.index]
        return relay.TupleGetItem(whole, get.index)


def _apply(module, prune):
    @relay.transform.function_pass(opt_level=0)
    def pruned(function, mod, context):
        return prune(function)

    return pruned(module)


@right("looks for the variable among the expressions of the body")
def by_search(mod):
    return _apply(mod, lambda f: _Prune().visit(f))


@right("gives every value a name before it looks, if nothing is drawn; the names of those that are read stay")
def with_names(mod):
    def named(function):
        return function if has_effects(function.body) else relay.transform.ToANormalFormExpr(function)

    return _apply(mod, lambda f: _Prune().visit(named(f)))


@right("sees through tuples, then lets TVM's own pass remove unused values")
def with_tvm(mod):
    mod = _apply(mod, lambda f: _Prune(effects=lambda e: not isinstance(e, relay.Tuple) or has_effects(e)).visit(f))
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


literals_only = edited(
    "did", "sees through tuples that stand where they are taken apart, not through those that have a name"
)(("self.tuples.get(whole, whole)", "whole"))
values_as_they_are = edited("did", "does not look into the values that are bound")(
    ("self.visit(let.value)", "let.value")
)
outside_only = edited("did", "never looks into inner functions")(
    (
        "def visit_let(self, let): ...",
        """
        def visit_call(self, call):
            return relay.Call(call.op, list(map(self.visit, call.args)), call.attrs)
        def visit_let(self, let):
            if isinstance(let.value, relay.Function):
                return relay.Let(let.var, let.value, self.visit(let.body))
            ...
        """,
    )
)
one_name = edited("did", "follows a tuple under the name that it is bound to, not under a second name")(
    ("self.tuples.get(value, value)", "value")
)
shallow = edited("spared", "looks for effects in operands, not in branches or in the values of a let")(
    (
        "relay.analysis.post_order_visit(expr, visit)",
        """
        todo = [expr]
        for e in todo:
            visit(e)
            todo.extend(
                e.args if isinstance(e, relay.Call) else
                e.fields if isinstance(e, relay.Tuple) else
                [e.tuple_value] if isinstance(e, relay.TupleGetItem) else []
            )
        """,
    )
)
keeps_choices = edited("did", "keeps a value with branches: one of them may do something")(
    (
        "if isinstance(e, relay.Call): ...",
        "if isinstance(e, relay.If):\n    effects.append(True)\nelif isinstance(e, relay.Call): ...",
    )
)
keeps_fields = edited("did", "keeps a name for a field, read or not")(
    ("has_effects(value) or ...", "isinstance(value, relay.TupleGetItem) or has_effects(value) or ...")
)
pure_closures = edited(
    "spared", "only the module's functions may do anything: those with a name of their own are pure"
)(
    (
        "not isinstance(e.op, tvm.ir.Op) or ...",
        "isinstance(e.op, relay.GlobalVar) or isinstance(e.op, tvm.ir.Op) and ...",
    )
)
no_effects = edited("spared", "removes unused values, even draws")(("return any(effects)", "return False"))
pure_functions = edited("spared", "calls of functions are pure: what they do is in another function")(
    ("not isinstance(e.op, tvm.ir.Op) or ...", "isinstance(e.op, tvm.ir.Op) and ...")
)


class _Skips(relay.ExprVisitor):
    """Looks for effects, but not in what `skips` names: functions that stand there, or a part of choices."""

    def __init__(self, skips):
        super().__init__()
        self.skips, self.found = skips, False

    def visit_call(self, call):
        if not (isinstance(call.op, relay.Function) and self.skips == "functions"):
            self.found |= not isinstance(call.op, tvm.ir.Op) or bool(call.op.get_attr("TOpIsStateful"))
        super().visit_call(call)

    def visit_function(self, function):
        if self.skips != "functions":
            super().visit_function(function)

    def visit_if(self, choice):
        for name in ("cond", "true_branch", "false_branch"):
            if name != self.skips:
                self.visit(getattr(choice, name))


def _without(skips):
    def effects(expr):
        visitor = _Skips(skips)
        visitor.visit(expr)
        return visitor.found

    return lambda mod: _apply(mod, lambda f: _Prune(effects=effects).visit(f))


@wrong("spared", "looks for effects in the first branch of a choice only")
def first_branch(mod):
    return _without("false_branch")(mod)


@wrong("spared", "looks for effects in the branches of a choice, not in its condition")
def not_the_condition(mod):
    return _without("cond")(mod)


@wrong("spared", "only a callee with a name may do anything: a function that stands there may not")
def literals_are_pure(mod):
    return _without("functions")(mod)


@wrong("did", "looks for dead code in the first branch of a choice only")
def prunes_one_branch(mod):
    class Prune(_Prune):
        def visit_if(self, choice):
            return relay.If(self.visit(choice.cond), self.visit(choice.true_branch), choice.false_branch)

    return _apply(mod, lambda f: Prune().visit(f))


@wrong("spared", "puts a value that is read once where it is read, draws included")
def puts_it_there(mod):
    class Prune(_Prune):
        def visit_let(self, let):
            let = super().visit_let(let)
            if isinstance(let, relay.Let) and let.var in _expressions(let.body):
                return relay.bind(let.body, {let.var: let.value})
            return let

    return _apply(mod, lambda f: Prune().visit(f))


@wrong("spared", "brings the program into graph form, where nothing is dead: draws without readers are gone with it")
def graph_form(mod):
    return by_search(relay.transform.ToGraphNormalForm()(mod))


@wrong("valid", "removes unused parameters, too: callers no longer fit")
def drops_parameters(mod):
    def prune(function):
        body = _Prune().visit(function).body
        read = relay.analysis.free_vars(body)
        return relay.Function([p for p in function.params if p in read], body, None, None, function.attrs)

    return _apply(mod, prune)


@wrong("valid", "returns the function and not the module")
def the_function(mod):
    return by_search(mod)["main"]
