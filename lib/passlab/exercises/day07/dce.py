"""Day 7, dead code, as a function pass: visible cases and judge."""

from __future__ import annotations

from typing import Any

from passlab.judge import Case, cases_in
from passlab.judge.expect import Expectation
from passlab.relay import relay, tvm
from passlab.relay.cases import (
    attributes_kept,
    case,
    expecting,
    field,
    least,
    let,
    most,
    number,
    program,
    tuple_of,
)

UNREAD = "It is unused and has no effect."
EFFECT = "dropout has TOpIsStateful: it changes later random draws, so it must stay although it is unused."


def has_effects(expr: Any) -> bool:
    """Return whether an expression calls something that may have effects: a stateful operator, or a function."""
    nodes: list[Any] = []
    relay.analysis.post_order_visit(expr, nodes.append)
    called = [node.op for node in nodes if isinstance(node, relay.Call)]
    return any(not isinstance(op, tvm.ir.Op) or op.get_attr("TOpIsStateful") for op in called)


def all_read(why: str) -> Expectation:
    """Expect that the body of every let reads its variable, unless the value has effects."""

    def law(before: Any, after: Any) -> str | None:
        unread: list[str] = []

        def visit(e: Any) -> None:
            if isinstance(e, relay.Let) and e.var not in relay.analysis.free_vars(e.body) and not has_effects(e.value):
                unread.append(f"%{e.var.name_hint}")

        for function in after.functions.values():
            relay.analysis.post_order_visit(function, visit)
        return f"{why} Still bound: {', '.join(unread[:5])}." if unread else None

    return law


@case(
    "a dead chain",
    program(..., (2, 3), (2, 3), note="kept"),
    did=[*(most(op, 0, UNREAD) for op in ("tanh", "exp", "multiply")), all_read(UNREAD)],
    spared=[least("nn.relu", 1, "It is used."), attributes_kept],
)
def chain(x: relay.Var, mask: relay.Var) -> relay.Expr:
    return let(
        relay.nn.relu(x),
        lambda r: let(relay.tanh(r), lambda a: let(relay.exp(a) * a, lambda b: let(a + b, lambda _: r + number(1)))),
    )


@case(
    "unused fields",
    program(..., (2, 3), (2, 3)),
    did=[
        most("sigmoid", 0, "Only field 0 of its tuple is used."),
        most("exp", 0, "Only field 0 of its tuple is used."),
    ],
    spared=[least("tanh", 1, "It is used."), least("nn.relu", 1, "It is used.")],
)
def fields(x: relay.Var, y: relay.Var) -> relay.Expr:
    pair = tuple_of(relay.nn.relu(x), relay.sigmoid(y))
    return let(tuple_of(relay.tanh(x), relay.exp(y)), lambda t: field(t, 0) * field(pair, 0))


@case(
    "the whole tuple is returned",
    program(..., (2, 3)),
    run=False,
    did=[most("sqrt", 0, UNREAD)],
    spared=[
        least("tanh", 1, "The tuple is returned as a whole."),
        least("exp", 1, "The tuple is returned as a whole."),
    ],
)
def both(x: relay.Var) -> relay.Expr:
    return let(tuple_of(relay.tanh(x), relay.exp(x)), lambda t: let(relay.sqrt(field(t, 1)), lambda _: t))


@case(
    "an unused draw",
    program(..., (2, 3)),
    did=[most("tanh", 0, UNREAD)],
    spared=[least("nn.dropout", 1, EFFECT)],
)
def draws(x: relay.Var) -> relay.Expr:
    return let(relay.exp(relay.nn.dropout(x, 0.5)), lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))


@case(
    "a draw in an unused field",
    program(..., (2, 3)),
    run=False,
    did=[most("tanh", 0, UNREAD)],
    spared=[least("nn.dropout", 1, EFFECT), least("nn.relu", 1, "It is used.")],
)
def drawn_field(x: relay.Var) -> relay.Expr:
    return let(
        tuple_of(relay.nn.dropout(x, 0.5), relay.nn.relu(x)),
        lambda t: let(relay.tanh(x), lambda _: field(t, 1)),
    )


def cases() -> list[Case]:
    return [*cases_in(__name__)]


judge = expecting()
