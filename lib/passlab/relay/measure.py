"""Count what one run of a Relay module moves and allocates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.relay import relay, tvm
from passlab.relay.dialect import key, top_level, view_ids
from passlab.tvm import builds
from passlab.tvm.inputs import random_inputs
from passlab.tvm.measure import Allocations, Kernel, fields, kernels_of, nbytes
from passlab.tvm.modules import is_function, is_primitive, nodes


def traffic(module: Any, function: Any, prefix: str) -> Iterator[Kernel]:
    """Yield the kernels of a function, and of the functions that it calls."""
    ids = view_ids(function)
    for expr in top_level(function):
        if not isinstance(expr, relay.Call):
            continue
        id = prefix + ids.get(key(expr), "call")
        called = module[expr.op] if isinstance(expr.op, tvm.ir.GlobalVar) else expr.op
        if is_function(called) and not is_primitive(called):
            yield from traffic(module, called, f"{id}/")
        elif not _is_free(called):
            yield Kernel(id, [part for arg in expr.args for part in fields(arg)], [expr.checked_type])


def _is_free(called: Any) -> bool:
    if isinstance(called, tvm.ir.Op):
        return bool(called.get_attr("TReshapeOp"))
    return is_function(called) and all(node.expr.op.get_attr("TReshapeOp") for node in nodes(called))


def allocations(module: Any, planned: bool) -> Allocations:
    """Return the allocations in the plan of the graph executor, which another process builds. Raises ValueError."""
    if not planned:
        sizes = [sum(map(nbytes, kernel.results)) for kernel in kernels_of(module)]
        return Allocations(len(sizes), sum(sizes))
    built = builds.run_module(module, random_inputs(module, kinds=("ordinary",)), level=0)
    if built.allocations is None:
        raise ValueError(f"allocations: no memory plan for this module. {built.error}".strip())
    return Allocations(*built.allocations)
