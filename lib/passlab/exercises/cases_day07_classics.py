"""Day 7: visible cases of common subexpressions and of dead code, as function passes over Relay."""

from __future__ import annotations

from passlab.exercises.cases_day07_programs import (
    attributes_kept,
    case,
    field,
    least,
    let,
    lets,
    most,
    number,
    program,
    tuple_of,
    weight,
)
from passlab.judge import Case
from passlab.relay import relay

ONCE = "The same value is computed more than once."
OTHER = "They differ in an operand or a setting: they are not the same value."
DRAWS = "Every dropout draws its own mask (the operator has TOpIsStateful)."
UNREAD = "Nobody reads it and it has no effect."
EFFECT = "dropout has TOpIsStateful: it changes what later draws give, so it stays though nobody reads it."


def cse_cases() -> list[Case]:
    def products(x: relay.Var) -> relay.Expr:
        a = relay.nn.relu(relay.nn.dense(x, weight(4, 3)) + number(1))
        b = relay.nn.relu(relay.nn.dense(x, weight(4, 3)) + number(1))
        return relay.tanh(a) * relay.sigmoid(b)

    def parts(x: relay.Var) -> relay.Expr:
        def halves() -> relay.Expr:
            left, right = relay.split(x, 2, axis=1)
            return relay.concatenate([right, left], axis=1)

        return relay.exp(halves()) - halves()

    def settings(x: relay.Var) -> relay.Expr:
        leaky = relay.nn.leaky_relu(x, 0.1) + relay.nn.leaky_relu(x, 0.2)
        return leaky * relay.nn.softmax(x, axis=0) * relay.nn.softmax(x, axis=1)

    def operands(x: relay.Var, y: relay.Var) -> relay.Expr:
        return tuple_of(x - y, y - x, relay.tanh(x), relay.tanh(y))

    def constants(x: relay.Var) -> relay.Expr:
        # 0 and -0, one number and one row: equal as numbers, not as values
        zeros = relay.divide(number(1), x * number(0.0)) + relay.divide(number(1), x * number(-0.0))
        return tuple_of(zeros, x + weight(4, 4), x + weight(4, 4, seed=1))

    def draws(x: relay.Var) -> relay.Expr:
        twice = relay.nn.dropout(x, 0.5) + relay.nn.dropout(x, 0.5)
        return relay.tanh(x) * twice + relay.tanh(x)

    return [
        case(
            "the same, twice",
            program(products, (2, 3), note="kept"),
            did=[most(op, 1, ONCE) for op in ("nn.relu", "nn.dense", "add")],
            spared=[attributes_kept],
        ),
        case(
            "tuples and their fields",
            program(parts, (2, 4)),
            did=[most("split", 1, ONCE), most("concatenate", 1, ONCE)],
        ),
        case(
            "other settings",
            program(settings, (4, 4)),
            spared=[least("nn.leaky_relu", 2, OTHER), least("nn.softmax", 2, OTHER)],
        ),
        case(
            "other operands",
            program(operands, (2, 3), (2, 3)),
            run=False,
            spared=[least("subtract", 2, OTHER), least("tanh", 2, OTHER)],
        ),
        case(
            "other constants",
            program(constants, (4, 4)),
            run=False,
            spared=[
                least("multiply", 2, "0 and -0 are equal as numbers, but 1 / (x * 0) tells them apart."),
                least("add", 3, OTHER),
            ],
        ),
        case(
            "two dropouts",
            program(draws, (2, 3)),
            run=False,
            did=[most("tanh", 1, ONCE)],
            spared=[least("nn.dropout", 2, DRAWS)],
        ),
    ]


def dce_cases() -> list[Case]:
    def chain(x: relay.Var, mask: relay.Var) -> relay.Expr:
        return let(
            relay.nn.relu(x),
            lambda kept: let(
                relay.tanh(kept), lambda a: let(relay.exp(a) * a, lambda b: let(a + b, lambda _: kept + number(1)))
            ),
        )

    def fields(x: relay.Var, y: relay.Var) -> relay.Expr:
        pair = tuple_of(relay.nn.relu(x), relay.sigmoid(y))
        return let(tuple_of(relay.tanh(x), relay.exp(y)), lambda t: field(t, 0) * field(pair, 0))

    def both(x: relay.Var) -> relay.Expr:
        return let(tuple_of(relay.tanh(x), relay.exp(x)), lambda t: let(relay.sqrt(field(t, 1)), lambda _: t))

    def draws(x: relay.Var) -> relay.Expr:
        return let(relay.exp(relay.nn.dropout(x, 0.5)), lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))

    def drawn_field(x: relay.Var) -> relay.Expr:
        return let(
            tuple_of(relay.nn.dropout(x, 0.5), relay.nn.relu(x)),
            lambda t: let(relay.tanh(x), lambda _: field(t, 1)),
        )

    return [
        case(
            "a dead chain",
            program(chain, (2, 3), (2, 3), note="kept"),
            did=[*(most(op, 0, UNREAD) for op in ("tanh", "exp", "multiply")), lets(1, UNREAD)],
            spared=[least("nn.relu", 1, "It is read."), attributes_kept],
        ),
        case(
            "fields that nobody takes",
            program(fields, (2, 3), (2, 3)),
            did=[
                most("sigmoid", 0, "Only field 0 of its tuple is taken."),
                most("exp", 0, "Only field 0 of its tuple is taken."),
            ],
            spared=[least("tanh", 1, "It is read."), least("nn.relu", 1, "It is read.")],
        ),
        case(
            "the whole tuple is returned",
            program(both, (2, 3)),
            run=False,
            did=[most("sqrt", 0, UNREAD)],
            spared=[
                least("tanh", 1, "The tuple is returned as a whole."),
                least("exp", 1, "The tuple is returned as a whole."),
            ],
        ),
        case(
            "a draw nobody reads",
            program(draws, (2, 3)),
            did=[most("tanh", 0, UNREAD)],
            spared=[least("nn.dropout", 1, EFFECT)],
        ),
        case(
            "a draw in a field nobody takes",
            program(drawn_field, (2, 3)),
            run=False,
            did=[most("tanh", 0, UNREAD)],
            spared=[least("nn.dropout", 1, EFFECT), least("nn.relu", 1, "It is read.")],
        ),
    ]
