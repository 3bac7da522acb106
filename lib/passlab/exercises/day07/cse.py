"""Day 7, common subexpressions, as a function pass: visible cases and judge."""

from __future__ import annotations

from passlab.judge import Case, cases_in
from passlab.relay import relay
from passlab.relay.cases import attributes_kept, case, expecting, least, most, number, program, tuple_of, weight

ONCE = "The same value is computed more than once."
OTHER = "They differ in an operand or a setting: they do not have the same value."
DRAWS = "Every dropout draws its own mask (the operator has TOpIsStateful)."


@case(
    "the same, twice",
    program(..., (2, 3), note="kept"),
    did=[most(op, 1, ONCE) for op in ("nn.relu", "nn.dense", "add")],
    spared=[attributes_kept],
)
def products(x: relay.Var) -> relay.Expr:
    a = relay.nn.relu(relay.nn.dense(x, weight(4, 3)) + number(1))
    b = relay.nn.relu(relay.nn.dense(x, weight(4, 3)) + number(1))
    return relay.tanh(a) * relay.sigmoid(b)


@case(
    "tuples and their fields",
    program(..., (2, 4)),
    did=[most("split", 1, ONCE), most("concatenate", 1, ONCE)],
)
def parts(x: relay.Var) -> relay.Expr:
    def halves() -> relay.Expr:
        left, right = relay.split(x, 2, axis=1)
        return relay.concatenate([right, left], axis=1)

    return relay.exp(halves()) - halves()


@case(
    "other settings",
    program(..., (4, 4)),
    spared=[least("nn.leaky_relu", 2, OTHER), least("nn.softmax", 2, OTHER)],
)
def settings(x: relay.Var) -> relay.Expr:
    leaky = relay.nn.leaky_relu(x, 0.1) + relay.nn.leaky_relu(x, 0.2)
    return leaky * relay.nn.softmax(x, axis=0) * relay.nn.softmax(x, axis=1)


@case(
    "other operands",
    program(..., (2, 3), (2, 3)),
    run=False,
    spared=[least("subtract", 2, OTHER), least("tanh", 2, OTHER)],
)
def operands(x: relay.Var, y: relay.Var) -> relay.Expr:
    return tuple_of(x - y, y - x, relay.tanh(x), relay.tanh(y))


@case(
    "other constants",
    program(..., (4, 4)),
    run=False,
    spared=[
        least("multiply", 2, "0 and -0 are equal as numbers, but 1 / (x * 0) tells them apart."),
        least("add", 3, OTHER),
    ],
)
def constants(x: relay.Var) -> relay.Expr:
    # 0 and -0: equal as numbers, but different values
    zeros = relay.divide(number(1), x * number(0.0)) + relay.divide(number(1), x * number(-0.0))
    return tuple_of(zeros, x + weight(4, 4), x + weight(4, 4, seed=1))


@case(
    "two dropouts",
    program(..., (2, 3)),
    run=False,
    did=[most("tanh", 1, ONCE)],
    spared=[least("nn.dropout", 2, DRAWS)],
)
def draws(x: relay.Var) -> relay.Expr:
    twice = relay.nn.dropout(x, 0.5) + relay.nn.dropout(x, 0.5)
    return relay.tanh(x) * twice + relay.tanh(x)


def cases() -> list[Case]:
    return [*cases_in(__name__)]


judge = expecting()
