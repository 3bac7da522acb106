"""The fused groups of FuseOps, which two exercises predict: as TVM makes them, and the numbering of their calls."""

from __future__ import annotations

from typing import Any

from passlab.relay import relay, tvm

#: FuseOps' default for the most nodes of one group.
MAX_DEPTH = 256


def calls(module: tvm.IRModule) -> list[relay.Call]:
    """Return the calls of main, operands first: their positions are the numbering of these exercises."""
    exprs: list[Any] = []
    relay.analysis.post_order_visit(module["main"].body, exprs.append)
    return [e for e in exprs if isinstance(e, relay.Call)]


def fused_groups(module: tvm.IRModule, max_depth: int = MAX_DEPTH) -> list[list[int]]:
    """Return the groups that FuseOps makes: numbers of calls, sorted.

    FuseOps does not record where a call came from, so this walks the modules before and after side by side, looking
    into the functions of the latter: the operators are the same, in the same order.
    """
    with tvm.transform.PassContext(opt_level=3, config={"relay.FuseOps.max_depth": max_depth}):
        fused = relay.transform.FuseOps(fuse_opt_level=2)(module)
    number_of = {call: at for at, call in enumerate(calls(module))}
    groups: dict[Any, list[int]] = {}
    visited, todo = set(), [(module["main"].body, fused["main"].body, {}, None)]
    while todo:
        old, new, bound, kernel = todo.pop()
        while isinstance(new, relay.Var) and new in bound:
            new, bound, kernel = bound[new]
        if old in visited:
            continue
        visited.add(old)
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
        todo += [(part, twin, bound, kernel) for part, twin in parts]
    return sorted(sorted(group) for group in groups.values())
