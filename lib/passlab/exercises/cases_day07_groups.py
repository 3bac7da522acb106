"""Day 7: which calls Relay's FuseOps puts into one kernel. Visible cases, and a judge that asks FuseOps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from unittest import mock

from passlab.exercises.cases_day07_counts import block
from passlab.exercises.cases_day07_programs import number, program, tuple_of, weight
from passlab.judge import Case, Finding
from passlab.relay import relay, tvm

#: As many nodes as FuseOps puts into one group unless it is told otherwise.
MAX_DEPTH = 256


def calls(module: tvm.IRModule) -> list[relay.Call]:
    """The calls of main, operands first: the numbering of this exercise."""
    found: list[Any] = []
    relay.analysis.post_order_visit(module["main"].body, found.append)
    return [e for e in found if isinstance(e, relay.Call)]


def fused_groups(module: tvm.IRModule, max_depth: int = MAX_DEPTH) -> list[list[int]]:
    """The groups that FuseOps makes: numbers of calls, sorted.

    FuseOps keeps no note of where a call came from, so the module before and the one after are walked side by side,
    the functions of the latter unfolded: the same operators stand in the same places.
    """
    with tvm.transform.PassContext(opt_level=3, config={"relay.FuseOps.max_depth": max_depth}):
        fused = relay.transform.FuseOps(fuse_opt_level=2)(module)
    number_of = {call: at for at, call in enumerate(calls(module))}
    groups: dict[Any, list[int]] = {}
    seen, todo = set(), [(module["main"].body, fused["main"].body, {}, None)]
    while todo:
        old, new, bound, kernel = todo.pop()
        while isinstance(new, relay.Var) and new in bound:
            new, bound, kernel = bound[new]
        if old in seen:
            continue
        seen.add(old)
        if isinstance(new, relay.Call) and isinstance(new.op, relay.Function):
            outside = {p: (argument, bound, kernel) for p, argument in zip(new.op.params, new.args, strict=True)}
            new, bound, kernel = new.op.body, outside, new
        if isinstance(old, relay.Call):
            groups.setdefault(kernel or old, []).append(number_of[old])
            parts = zip(old.args, new.args, strict=True)
        elif isinstance(old, relay.Tuple):
            parts = zip(old.fields, new.fields, strict=True)
        elif isinstance(old, relay.TupleGetItem):
            parts = [(old.tuple_value, new.tuple_value)]
        else:
            parts = []
        todo += [(mine, theirs, bound, kernel) for mine, theirs in parts]
    return sorted(sorted(group) for group in groups.values())


# ---------------------------------------------------------------------------------------------------- the judge


def call_groups(answer: Callable, case: Case) -> Any:
    """Put a case to an answer while FuseOps, which it is to foretell, is out of reach."""

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("FuseOps is what you foretell here: read the module instead")

    with mock.patch.object(relay.transform, "FuseOps", refuse):
        return answer(*case.build())


def _invalid(value: Any, number_of_calls: int) -> str | None:
    if not isinstance(value, list | tuple):
        return f"The answer is a list of groups; it is of type {type(value).__name__}."
    seen: set[int] = set()
    for group in value:
        if not isinstance(group, list | tuple | set | frozenset) or not group:
            return f"A group is a list of numbers of calls; one here is {str(group)[:60]!r}."
        for at in group:
            if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < number_of_calls:
                return f"A group holds {str(at)[:60]!r}; calls are numbered from 0 to {number_of_calls - 1}."
            if at in seen:
                return f"Call {at} is in two groups, or twice in one."
            seen.add(at)
    missing = [at for at in range(number_of_calls) if at not in seen]
    return (
        f"Call {missing[0]} is in no group: a call that is fused with nothing is a group of one." if missing else None
    )


def judge_groups(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: the groups share out the calls. Did: they are those of FuseOps. Spared: it joins all that they join."""
    module, *limit = case.build()
    names = [call.op.name for call in calls(module)]
    wrong = _invalid(value, len(names))
    yield Finding("valid", wrong is None, wrong or "", before=module)
    if wrong:
        return
    right = fused_groups(module, *limit)
    apart, joined = _first_split(right, value), _first_split(value, right)

    def pair(found: tuple[int, int]) -> str:
        return " and ".join(f"{names[at]} (call {at})" for at in found)

    split = f"FuseOps puts {pair(apart)} into one kernel; you keep them apart." if apart else ""
    yield Finding("did", not apart and not joined, split, before=module)
    merged = f"You put {pair(joined)} into one kernel; FuseOps keeps them apart." if joined else ""
    yield Finding("spared", not joined, merged, before=module)


def _first_split(groups: Any, others: Any) -> tuple[int, int] | None:
    """Two calls that are neighbours in one of `groups` and in different ones of `others`."""
    where = {at: number for number, group in enumerate(others) for at in group}
    for group in groups:
        members = sorted(group)
        for one, next_ in pairwise(members):
            if where[one] != where[next_]:
                return one, next_
    return None


def groups_case(name: str, build: Callable[[], tvm.IRModule], *limit: int) -> Case:
    return Case(name, lambda: (build(), *limit))


# ---------------------------------------------------------------------------------------------------- programs


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


def chain(x: relay.Var) -> relay.Expr:
    for at in range(12):
        x = relay.nn.relu(x) if at % 2 else relay.tanh(x)
    return x


SHAPE = (1, 4, 6, 6)


def groups_cases() -> list[Case]:
    return [
        groups_case("a block", simplified(program(block, SHAPE))),
        groups_case("reductions", program(reductions, (2, 6))),
        groups_case("a fork", program(fork, SHAPE)),
        groups_case("a fork that joins again", program(diamond, SHAPE)),
        groups_case("shapes after a convolution", program(shapes_after_conv, SHAPE)),
        groups_case("pieces", program(pieces, SHAPE)),
        groups_case("at most five", program(chain, (2, 3)), 5),
    ]
