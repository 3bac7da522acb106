"""Day 7, what FuseOps will do: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from passlab.exercises._groups import without_groups
from passlab.exercises.day07._shared import block
from passlab.judge import Case, Finding, as_decorator, core
from passlab.judge.forms import why_not_groups
from passlab.relay import relay, tvm
from passlab.relay.cases import number, program, tuple_of, weight
from passlab.relay.groups import calls, fused_groups


def _invalid(value: Any, count: int) -> str:
    def why_not(at: Any) -> str:
        return "" if type(at) is int and 0 <= at < count else f"and calls are numbered from 0 to {count - 1}"

    return why_not_groups(value, "numbers of calls", why_not, range(count), "call")


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: each call is in one group. `did`: the groups are those of FuseOps. `spared`: none is too large."""
    module, *limit = case.build()
    names = [call.op.name for call in calls(module)]
    wrong = _invalid(value, len(names))
    yield Finding("valid", not wrong, wrong, before=module)
    if wrong:
        return
    right = fused_groups(module, *limit)
    cut, join = _first_split(right, value), _first_split(value, right)

    def pair(calls: tuple[int, int]) -> str:
        return " and ".join(f"{names[at]} (call {at})" for at in calls)

    split = f"FuseOps puts {pair(cut)} into one kernel, but you keep them apart." if cut else ""
    yield Finding("did", not cut and not join, split, before=module)
    merged = f"You put {pair(join)} into one kernel, but FuseOps keeps them apart." if join else ""
    yield Finding("spared", not join, merged, before=module)


def _first_split(groups: Any, others: Any) -> tuple[int, int] | None:
    """Return two neighbours in one of `groups` that are in different groups of `others`, or None."""
    where = {at: number for number, group in enumerate(others) for at in group}
    for group in groups:
        members = sorted(group)
        for one, next_ in pairwise(members):
            if where[one] != where[next_]:
                return one, next_
    return None


@as_decorator
def groups_case(name: str, build: Callable[[], tvm.IRModule], *limit: int) -> Case:
    return Case(name, lambda: (build(), *limit))


def conv(x: relay.Expr, channels: int = 4) -> relay.Expr:
    return relay.nn.conv2d(x, weight(channels, 4, 3, 3), channels=channels, kernel_size=(3, 3), padding=(1, 1))


def simplified(build: Callable[[], tvm.IRModule]) -> Callable[[], tvm.IRModule]:
    return lambda: relay.transform.SimplifyInference()(build())


def reductions(x: relay.Var) -> relay.Expr:
    return tuple_of(relay.sum(relay.nn.relu(x), axis=1), relay.nn.relu(relay.sum(x, axis=1)), relay.nn.softmax(x))


def fork(x: relay.Var) -> relay.Expr:
    c = conv(x)
    return tuple_of(relay.nn.relu(c), relay.sigmoid(c))


def diamond(x: relay.Var) -> relay.Expr:
    c = conv(x)
    return relay.nn.relu(c) + relay.sigmoid(c)


def pieces(x: relay.Var) -> relay.Expr:
    left, right = relay.split(relay.exp(x), 2, axis=1)
    return relay.nn.relu(relay.concatenate([relay.tanh(right), left], axis=1))


def shapes_after_conv(x: relay.Var) -> relay.Expr:
    c = relay.transpose(conv(x) * number(2.0), (0, 2, 3, 1))
    return relay.nn.relu(relay.reshape(c + weight(4), (1, -1)))


def plain_chain(x: relay.Var) -> relay.Expr:
    return relay.sigmoid(relay.sum(relay.transpose(relay.nn.relu(relay.tanh(x)), (0, 1, 3, 2)), axis=1))


def plain_convs(x: relay.Var) -> relay.Expr:
    left = relay.nn.relu(relay.add(conv(relay.exp(x)), weight(4, 1, 1)))
    return relay.nn.relu(left + relay.tanh(conv(relay.transpose(x, (0, 1, 3, 2)))))


def plain_shapes(x: relay.Var) -> relay.Expr:
    rows = relay.exp(relay.reshape(relay.tanh(relay.transpose(conv(x), (0, 2, 3, 1))), (-1, 4)))
    return relay.nn.softmax(relay.transpose(rows, (1, 0)))


def chain(x: relay.Var) -> relay.Expr:
    for at in range(12):
        x = relay.nn.relu(x) if at % 2 else relay.tanh(x)
    return x


SHAPE = (1, 4, 6, 6)


def cases() -> list[Case]:
    return [
        core(groups_case("plain: a chain", program(plain_chain, SHAPE))),
        core(groups_case("plain: two convolutions", program(plain_convs, SHAPE))),
        core(groups_case("plain: shapes", program(plain_shapes, SHAPE))),
        groups_case("a block", simplified(program(block, SHAPE))),
        groups_case("reductions", program(reductions, (2, 6))),
        without_groups(groups_case("a fork", program(fork, SHAPE))),
        groups_case("a fork that joins again", program(diamond, SHAPE)),
        groups_case("shapes after a convolution", program(shapes_after_conv, SHAPE)),
        groups_case("pieces", program(pieces, SHAPE)),
        groups_case("at most five", program(chain, (2, 3)), 5),
    ]
