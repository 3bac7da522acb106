"""Count what one run of a Relax module moves and allocates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from passlab.relax import relax, tvm
from passlab.relax.dialect import bindings
from passlab.tvm.measure import Allocations, Kernel, fields, nbytes
from passlab.tvm.modules import counts, functions, is_function, is_primitive, nodes, type_of

#: operators that only change the shape, in the same memory
_FREE = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten", "relax.memory.view")
#: operators that allocate, free or keep memory, and move none
_MEMORY = ("relax.builtin.alloc_tensor", "relax.memory.", "relax.vm.", "relax.shape_of", "relax.null_value")


def traffic(module: Any, function: Any, prefix: str) -> Iterator[Kernel]:
    """Yield the kernels of a function, and of the functions that it calls."""
    known = {var: value for var, value in bindings(function)}
    for var, value in known.items():
        if not isinstance(value, relax.Call):
            continue
        id, op, args = prefix + var.name, value.op, list(value.args)
        if isinstance(op, tvm.ir.Op):
            if op.name in _FREE or op.name.startswith(_MEMORY):
                continue
            if op.name.startswith("relax.call_"):  # the function, a tuple of operands, perhaps a shape
                if isinstance(args[0], tvm.ir.GlobalVar) and _reshapes(module[args[0]]):
                    continue
                args = args[1:2]
            yield Kernel(id, _operands(args, known), [value.ty])
        elif isinstance(op, tvm.ir.GlobalVar):
            called = module[op]
            if is_function(called) and not is_primitive(called):
                yield from traffic(module, called, f"{id}/")
            else:  # a fused function returns its result, a PrimFunc writes into its last operands
                yield Kernel(id, _operands(args, known), [value.ty] if is_function(called) else [])


def _reshapes(function: Any) -> bool:
    return type(function).__name__ == "PrimFunc" and relax.analysis.has_reshape_pattern(function)


def _operands(args: Iterable[Any], known: dict[Any, Any]) -> list[Any]:
    """Return the tensors among the operands; for a variable bound to a tuple, the fields."""
    tensors = []
    for arg in args:
        bound = known.get(arg) if isinstance(arg, relax.Var) else None
        for part in fields(bound if isinstance(bound, relax.Tuple) else arg):
            if isinstance(type_of(part), relax.TensorType | tvm.ir.TupleType):
                tensors.append(part)
    return tensors


def allocations(module: Any, planned: bool) -> Allocations:
    """Return the allocations after legalizing and lowering in this process."""
    sizes = []
    for node in nodes(_lowered(module, planned), "main"):
        if node.name == "relax.builtin.alloc_tensor":
            sizes.append(nbytes(node.var.ty))
        elif node.name == "relax.memory.alloc_storage":  # its size is in bytes, whatever its dtype
            sizes.append(math.prod(int(size) for size in node.expr.args[0].values))
    return Allocations(len(sizes), sum(sizes))


def live_ranges(module: Any) -> list[tuple[str, int, int, int]]:
    """Return (name, first step, step after the last, bytes) of each buffer that `allocations` counts without a plan.

    A step is the position of a binding of `main` after lowering, and the return is the last step. A buffer is live
    until the last use of its views. `main` has no branches.
    """
    main = _lowered(module, planned=False)["main"]
    owners: dict[Any, Any] = {}  # variable → the name of its buffer; of a tuple, those of its fields
    sizes: dict[str, int] = {}
    touched: dict[str, list[int]] = {}

    def memory(expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return tuple(map(memory, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            fields_of = memory(expr.tuple_value)
            return fields_of[expr.index] if fields_of else ()
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name in _FREE:
            return memory(expr.args[0])
        return owners.get(expr, ()) if isinstance(expr, relax.Var) else ()

    def touch(owner: Any, step: int) -> None:
        for one in [owner] if isinstance(owner, str) else owner:
            touched[one].append(step) if isinstance(one, str) else touch(one, step)

    step = -1
    for step, (var, value) in enumerate(bindings(main)):
        op = value.op if isinstance(value, relax.Call) else None
        if isinstance(op, tvm.ir.Op) and op.name == "relax.builtin.alloc_tensor":
            owners[var], sizes[var.name], touched[var.name] = var.name, nbytes(var.ty), []
        elif op is not None and not (isinstance(op, tvm.ir.Op) and op.name in _FREE):
            touch(tuple(map(memory, value.args)), step)
        else:
            owners[var] = memory(value)
    touch(memory(main.body.body), step + 1)
    return [(name, min(steps), max(steps) + 1, sizes[name]) for name, steps in touched.items()]


def _lowered(module: Any, planned: bool) -> Any:
    """Return a module with explicit allocations; one that has them already is returned unchanged."""
    if any(name.startswith(("relax.builtin.alloc", "relax.memory.alloc")) for name in counts(module)):
        return module
    passes = relax.transform
    fused = any(map(is_primitive, functions(module).values()))
    steps = [passes.LegalizeOps(), *([passes.FuseTIR()] if fused else []), passes.RewriteDataflowReshape()]
    steps += [passes.ToNonDataflow(), passes.RemovePurityChecking(), passes.CallTIRRewrite()]
    steps += [passes.StaticPlanBlockMemory()] if planned else []
    return tvm.transform.Sequential(steps)(module)
