"""Measuring modules of Relay and Relax: kernels launched, bytes moved, memory allocated, and a way to time them.

    launches(module, x)                     # 4 launches on llvm: conv2d, relu ×2, dense
    bytes_moved(module)                     # read + written, from types
    allocations(module), allocations(module, planned=True)
    timed({"torch": model, "TVM": runner(module)}, x)

`passlab.launches`, `bytes_moved` and `cost` come here when they are given a module. What TVM builds from a module is
asked of `passlab.tvm.builds`, in another process; what follows from types is read off the module as it stands.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from passlab.measure import Cost, Measured
from passlab.tvm import builds
from passlab.tvm.equivalent import random_inputs
from passlab.tvm.modules import (
    bindings,
    counts,
    functions,
    held,
    is_function,
    is_primitive,
    nodes,
    top_level,
    type_of,
    typed,
    view_ids,
)

#: operators of Relax that only give the same memory another shape
_FREE = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten", "relax.memory.view")
#: operators of Relax that take or give back memory, or hold it in place, and move none
_MEMORY = ("relax.builtin.alloc_tensor", "relax.memory.", "relax.vm.", "relax.shape_of", "relax.null_value")


def launches(module: Any, *inputs: Any, target: str = "llvm", **run: Any) -> Measured:
    """How many kernels one run starts of what TVM builds from the module. `.detail` has the count by name.

    run: for builds.run_module. TVM's own pipeline fuses before it counts: `pipeline="none"` (Relax) counts the calls
    that the module itself has, `level=0` (Relay) fuses nothing. Without inputs, random ones. Raises ValueError for a
    module that does not build or run. The number is the word of the process that ran the module.
    """
    given = inputs or random_inputs(module, kinds=("ordinary",))[0]
    built = builds.run_module(module, [given], target=target, **run)
    if not built.ok:
        raise ValueError(f"launches: the module does not run on {target}: {built.error}")
    return Measured(len(built.kernels), "launches", target, collections.Counter(built.kernels))


def kernels(module: Any, *inputs: Any, target: str = "llvm", **run: Any) -> tuple[str, ...]:
    """The names of the kernels that one run starts, in order. As `launches`."""
    given = inputs or random_inputs(module, kinds=("ordinary",))[0]
    built = builds.run_module(module, [given], target=target, **run)
    if not built.ok:
        raise ValueError(f"kernels: the module does not run on {target}: {built.error}")
    return built.kernels


def cost(module: Any, *inputs: Any, **run: Any) -> Cost:
    """Calls of operators in the module, `launches` of what is built from it, and `bytes_moved` by it as it stands."""
    return Cost(counts(module).total(), int(launches(module, *inputs, **run)), int(bytes_moved(module)))


# ---------------------------------------------------------------------------------------------------- bytes


def bytes_moved(module: Any) -> Measured:
    """Bytes that `main` reads and writes, by this model: each kernel reads each of its operands from memory once
    (weights too), and writes its result there once.

    A kernel is a call of an operator, of a primitive function (what FuseOps made) or of a PrimFunc; the numbers follow
    from types alone. Tuples are free, and so is what only gives memory another shape (reshape, squeeze, expand_dims).
    Of a branch both sides count. `.detail` has the bytes by node of `passlab.view(module)`. Raises ValueError for a
    symbolic shape.
    """
    moved: dict[str, int] = {}
    for id, operands, results in _traffic(module):
        moved[id] = moved.get(id, 0) + sum(map(_bytes, {_key(e): type_of(e) for e in operands}.values()))
        moved[id] += sum(map(_bytes, results))
    return Measured(sum(moved.values()), "bytes moved", detail=moved)


def _key(expr: Any) -> Any:
    return expr.handle.value if held()[0] == "relay" else expr.__chandle__()


def _traffic(module: Any) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """For each kernel of `main` the id of its node, the expressions it reads and the types it writes."""
    module = typed(module)
    inside = functions(module)
    if "main" not in inside:
        raise ValueError("bytes_moved wants a module with a function main of Relay or Relax.")
    read = _relay_traffic if held()[0] == "relay" else _relax_traffic
    yield from read(module, inside["main"], "")


def _relay_traffic(module: Any, function: Any, prefix: str) -> Iterator[tuple[str, list[Any], list[Any]]]:
    _, tvm = held()
    relay = tvm.relay
    ids = view_ids(function)
    for expr in top_level(function):
        if not isinstance(expr, relay.Call):
            continue
        id = prefix + ids.get(_key(expr), "call")
        called = module[expr.op] if isinstance(expr.op, tvm.ir.GlobalVar) else expr.op
        if is_function(called) and not is_primitive(called):
            yield from _relay_traffic(module, called, f"{id}/")
        elif not _relay_free(called):
            yield id, [part for arg in expr.args for part in _fields(arg)], [expr.checked_type]


def _relay_free(called: Any) -> bool:
    _, tvm = held()
    if isinstance(called, tvm.ir.Op):
        return bool(called.get_attr("TReshapeOp"))
    return is_function(called) and all(node.expr.op.get_attr("TReshapeOp") for node in nodes(called))


def _fields(expr: Any) -> Iterator[Any]:
    """The tensors that an operand is made of: the fields of a tuple that is written out, else itself."""
    _, tvm = held()
    kind = tvm.relay.Tuple if held()[0] == "relay" else tvm.relax.Tuple
    if isinstance(expr, kind):
        for field in expr.fields:
            yield from _fields(field)
    else:
        yield expr


def _relax_traffic(module: Any, function: Any, prefix: str) -> Iterator[tuple[str, list[Any], list[Any]]]:
    _, tvm = held()
    relax = tvm.relax
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
            yield id, _relax_operands(args, known), [value.ty]
        elif isinstance(op, tvm.ir.GlobalVar):
            called = module[op]
            if is_function(called) and not is_primitive(called):
                yield from _relax_traffic(module, called, f"{id}/")
            else:  # a fused function gives its result, a PrimFunc writes into its last operands
                yield id, _relax_operands(args, known), [value.ty] if is_function(called) else []


def _reshapes(function: Any) -> bool:
    _, tvm = held()
    return type(function).__name__ == "PrimFunc" and tvm.relax.analysis.has_reshape_pattern(function)


def _relax_operands(args: Iterable[Any], known: dict[Any, Any]) -> list[Any]:
    """The tensors among the operands; of a variable bound to a tuple, the fields."""
    _, tvm = held()
    relax, found = tvm.relax, []
    for arg in args:
        bound = known.get(arg) if isinstance(arg, relax.Var) else None
        for part in _fields(bound if isinstance(bound, relax.Tuple) else arg):
            if isinstance(type_of(part), relax.TensorType | tvm.ir.TupleType):
                found.append(part)
    return found


def _bytes(type_: Any) -> int:
    """Bytes of a tensor, or of all tensors of a tuple."""
    if hasattr(type_, "fields"):
        return sum(map(_bytes, type_.fields))
    shape = getattr(type_, "shape", None)
    sizes = None if shape is None else [getattr(d, "value", None) for d in shape]
    if sizes is None or None in sizes:
        raise ValueError(
            f"bytes_moved: the size of {type_} is not known. Bind its symbolic dimensions to numbers first."
        )
    return math.prod(sizes) * _itemsize(str(type_.dtype))


def _itemsize(dtype: str) -> int:
    bits = int("".join(c for c in dtype if c.isdigit()) or 8)
    return max(1, bits // 8)


# ---------------------------------------------------------------------------------------------------- memory


@dataclass(frozen=True)
class Allocations:
    """Pieces of memory that one run of `main` takes for what it computes, and their bytes together."""

    count: int
    bytes: int

    def __repr__(self) -> str:
        return f"{self.count} allocations, {self.bytes:,} bytes"


def allocations(module: Any, planned: bool = False) -> Allocations:
    """What `main` allocates: one piece for each result, or what is left after TVM's static planning of memory.

    The kernels are those of the module as it stands (fuse first, to see that); inputs and weights do not count, nor
    what only reshapes. Relax: legalized and lowered as far as its allocations, in this process
    (`StaticPlanBlockMemory` does the planning). Relay: the plan is that of the graph executor for the module built at
    level 0, in another process; ValueError where it cannot be built. A module with branches is counted in full.
    """
    flavour, _ = held()
    if flavour == "relax":
        return _relax_allocations(module, planned)
    if not planned:
        sizes = [sum(map(_bytes, results)) for _, _, results in _traffic(module)]
        return Allocations(len(sizes), sum(sizes))
    built = builds.run_module(module, random_inputs(module, kinds=("ordinary",)), level=0)
    if built.allocations is None:
        raise ValueError(f"allocations: there is no plan of memory for this module. {built.error}".strip())
    return Allocations(*built.allocations)


def _relax_allocations(module: Any, planned: bool) -> Allocations:
    _, tvm = held()
    passes = tvm.relax.transform
    fused = any(map(is_primitive, functions(module).values()))
    steps = [passes.LegalizeOps(), *([passes.FuseTIR()] if fused else []), passes.RewriteDataflowReshape()]
    steps += [passes.ToNonDataflow(), passes.RemovePurityChecking(), passes.CallTIRRewrite()]
    steps += [passes.StaticPlanBlockMemory()] if planned else []
    if not any(name.startswith(("relax.builtin.alloc", "relax.memory.alloc")) for name in counts(module)):
        module = tvm.transform.Sequential(steps)(module)
    found = []
    for node in nodes(module, "main"):
        if node.name == "relax.builtin.alloc_tensor":
            found.append(_bytes(node.var.ty))
        elif node.name == "relax.memory.alloc_storage":  # its size is in bytes, whatever its dtype
            found.append(math.prod(int(size) for size in node.expr.args[0].values))
    return Allocations(len(found), sum(found))


# ---------------------------------------------------------------------------------------------------- time


def runner(
    module: Any, *inputs: Any, target: str = "llvm", pipeline: Any = None, level: int = 3
) -> Callable[..., list[Any]]:
    """The module, built in this process, as a function of tensors, for `timed`: Relay's graph executor or Relax's VM.

    `runner(module)(x)` gives the outputs as a list of TVM's tensors, when they are there. Inputs are handed over when
    they are others than at the call before, so that `timed` prices runs and no copies; `runner(module, x)()` has them
    from the start. pipeline: for Relax, of passes (None: TVM's default one for the target); level: for Relay.

    The module's code runs here: for modules of one's own, in a lesson. Raises what TVM raises.
    """
    built = (_relay_built if held()[0] == "relay" else _relax_built)(module, target, pipeline, level)
    last: list[Any] = []

    def run(*given: Any) -> list[Any]:
        if given and not (len(last) == len(given) and all(a is b for a, b in zip(last, given, strict=True))):
            built.give([_array(x) for x in given])
            last[:] = given
        if not last and built.wanted:
            raise ValueError(f"The module wants {built.wanted} inputs: runner(module)(x).")
        return built.run()

    if inputs:
        run(*inputs)
    return run


def _array(x: Any) -> np.ndarray:
    return x.detach().cpu().contiguous().numpy() if isinstance(x, torch.Tensor) else np.ascontiguousarray(x)


@dataclass
class _Built:
    """`give(arrays)` sets the inputs, `run()` waits for the outputs. `wanted`: how many inputs there are."""

    give: Callable[[list[np.ndarray]], None]
    run: Callable[[], list[Any]]
    wanted: int


def _relay_built(module: Any, target: str, _: Any, level: int) -> _Built:
    _, tvm = held()
    from tvm.contrib import graph_executor

    if is_function(module):
        module = tvm.IRModule.from_expr(module)
    silent, tvm.autotvm.GLOBAL_SCOPE.silent = tvm.autotvm.GLOBAL_SCOPE.silent, True  # no advice to tune
    try:
        with tvm.transform.PassContext(opt_level=level):
            library = tvm.relay.build(module, target)
    finally:
        tvm.autotvm.GLOBAL_SCOPE.silent = silent
    device = tvm.device(target.split()[0], 0) if target != "llvm" else tvm.cpu()
    executor = graph_executor.GraphModule(library["default"](device))
    names = [p.name_hint for p in module["main"].params]

    def give(arrays: list[np.ndarray]) -> None:
        for name, array in zip(names, arrays, strict=True):
            executor.set_input(name, tvm.nd.array(array))

    def run() -> list[Any]:
        executor.run()
        device.sync()
        return [executor.get_output(i) for i in range(executor.get_num_outputs())]

    return _Built(give, run, len(names))


def _relax_built(module: Any, target: str, pipeline: Any, _: int) -> _Built:
    _, tvm = held()
    relax = tvm.relax
    if is_function(module):
        module = tvm.IRModule.from_expr(module)
    chosen = tvm.target.Target(target) if isinstance(target, str) else target
    if pipeline is None:
        pipeline = relax.get_default_pipeline(chosen)
    device = tvm.device(chosen.kind.name, 0) if chosen.kind.name != "llvm" else tvm.cpu()
    machine = relax.VirtualMachine(tvm.compile(module, chosen, relax_pipeline=pipeline), device)
    held_inputs: list[Any] = []

    def give(arrays: list[np.ndarray]) -> None:
        held_inputs[:] = [tvm.runtime.tensor(array, device) for array in arrays]

    def run() -> list[Any]:
        result = machine["main"](*held_inputs)
        device.sync()
        return list(_flat(result))

    return _Built(give, run, len(module["main"].params))


def _flat(value: Any) -> Iterator[Any]:
    if hasattr(value, "numpy"):
        yield value
    else:
        for part in value:
            yield from _flat(part)
