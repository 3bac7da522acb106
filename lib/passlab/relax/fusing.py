"""Choose which operations of a Relax module share a kernel, and compute the cost.

    module = prepare(module)                 # operators become calls of TensorIR functions
    groups = [("lv", "lv1", "lv2")]          # names of bindings; an ungrouped operation is a separate kernel
    price(module, groups).microseconds
    fused = fuse(module, groups)             # each group one kernel, its loops merged

TVM's `FuseOps` decides by its own rule, and `FuseTIR` then puts the loop nests of a group one after the other. Here the
choice is yours, and the nests are merged: a kernel computes one value, its *result*, and recomputes the elements of the
other members of its group wherever it reads them. So an operation may be in several groups, and a value that another
kernel reads must be the result of a kernel.

Reading order: the model of a module, what groups cost, which groups are legal, two simple policies, the rewriting,
reading a module.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from passlab.graph.names import did_you_mean
from passlab.judge import listed, plural, shown
from passlab.relax.cpu import blocks, reduces
from passlab.relax.folding import fold_constants

if TYPE_CHECKING:
    import tvm

#: A step costs as much as an addition. Each of these TensorIR functions takes HEAVY steps more; a step of a reduction
#: takes REDUCE.
HEAVY_OPS = {"cos", "erf", "exp", "log", "pow", "sigmoid", "sin", "tan", "tanh"}
HEAVY, REDUCE = 30, 3
#: The machine that `price` assumes: microseconds per launch, kilobytes and steps per microsecond.
LAUNCH, KILOBYTES, STEPS = 2.0, 20.0, 12000.0

_OPAQUE = 8

Groups = Sequence[Sequence[str]]


# ------------------------------------------------------------------------------------------------ the model


@dataclass(frozen=True)
class Op:
    """An operation, named by its binding: a call of the TensorIR function `kernel`.

    `reads`: the names of its operands (constants are called "constant 0", …); `nbytes`: of its result. For each of the
    `elements` of the result it takes `steps` steps and reads its operands `loads` times: an addition has 1 and 1, exp
    31 and 1, a matrix product that adds up k products 3k and k. `reductions`: the number of its reducing loop nests.
    `pattern`: from AnnotateTIROpPattern (0 element-wise, 1 broadcast, 2 injective, 3 and 4 reducing, 8 opaque).
    """

    name: str
    kernel: str
    reads: tuple[str, ...]
    elements: int
    nbytes: int
    steps: float
    loads: float
    reductions: int
    pattern: int


@dataclass(frozen=True)
class Program:
    """A module's operations by name, in order; the bytes of every value by name; the names that it returns."""

    ops: dict[str, Op]
    nbytes: dict[str, int]
    returned: frozenset[str]

    def readers(self, name: str) -> list[str]:
        """Return the operations that read a value, in order."""
        return [op.name for op in self.ops.values() if name in op.reads]


# ------------------------------------------------------------------------------------------------ what groups cost


@dataclass(frozen=True)
class Price:
    """The cost of one run. `recomputed`: the steps repeated because a value was not stored."""

    kernels: int
    nbytes: int
    steps: float
    recomputed: float

    @property
    def microseconds(self) -> float:
        """Return the time on the machine of `price`: launches · 2 + kilobytes / 20 + steps / 12000."""
        return self.kernels * LAUNCH + self.nbytes / 1000 / KILOBYTES + self.steps / STEPS

    def __str__(self) -> str:
        repeats = f", {self.recomputed:,.0f} of them again" if self.recomputed else ""
        amounts = f"{plural(self.kernels, 'kernel')}, {self.nbytes:,} bytes, {self.steps:,.0f} steps{repeats}"
        return f"{self.microseconds:,.1f} µs: {amounts}"


def price(module: tvm.IRModule | Program, groups: Groups) -> Price:
    """Return the cost of a module with these groups. Raise ValueError, with the reason, for illegal groups.

    A kernel reads each of its inputs once and writes its result. An element of another member is computed as often as
    its busiest consumer in the group reads it: in `tanh(x) @ w` with 64 columns, 64 times.
    """
    whole = module if isinstance(module, Program) else program(module)
    if reason := illegal(whole, groups):
        raise ValueError(reason)
    kernels, nbytes, steps, once = _kernels(whole, groups), 0, 0.0, 0.0
    for result, group in kernels:
        nbytes += whole.nbytes[result] + sum(whole.nbytes[name] for name in _inputs(whole, group))
        times: dict[str, float] = {result: whole.ops[result].elements}
        for name in reversed(whole.ops):
            if name in group:
                op = whole.ops[name]
                steps += times[name] * op.steps
                for read in op.reads:
                    if read in group:
                        times[read] = max(times.get(read, 0.0), times[name] * op.loads)
    once = sum(op.elements * op.steps for op in whole.ops.values())
    return Price(len(kernels), nbytes, steps, max(0.0, steps - once))


def _kernels(whole: Program, groups: Groups) -> list[tuple[str, frozenset[str]]]:
    """Return (result, members) of every kernel, groups and ungrouped operations, in the order of results."""
    grouped = {name for group in groups for name in group}
    sets = [frozenset(group) for group in groups] + [frozenset([name]) for name in whole.ops if name not in grouped]
    order = list(whole.ops)
    return sorted(((_sinks(whole, group)[-1], group) for group in sets), key=lambda kernel: order.index(kernel[0]))


def _sinks(whole: Program, group: frozenset[str]) -> list[str]:
    """Return the members that no other member reads."""
    inside = {name for member in group for name in whole.ops[member].reads}
    return [name for name in whole.ops if name in group and name not in inside]


def _inputs(whole: Program, group: frozenset[str]) -> list[str]:
    """Return the values that the members read from outside the group."""
    reads = [name for member in whole.ops if member in group for name in whole.ops[member].reads]
    return [name for name in dict.fromkeys(reads) if name not in group]


# ------------------------------------------------------------------------------------------------ which groups can be


def illegal(module: tvm.IRModule | Program, groups: Groups) -> str | None:
    """Return why these groups cannot be kernels, in one sentence; None if they can."""
    whole = module if isinstance(module, Program) else program(module)
    if reason := _why_not_groups(whole, groups):
        return reason
    kernels = _kernels(whole, groups)
    results = [result for result, _ in kernels]
    for result, group in kernels:
        if reason := _why_not_kernel(whole, group):
            return reason
        if results.count(result) > 1:
            return f"Two groups have the result {result}: computing it twice gains nothing."
    return _why_not_written(whole, kernels) or None


def _why_not_groups(whole: Program, groups: Any) -> str:
    if not isinstance(groups, list | tuple):
        return f"Groups must be a list of tuples of names; got {type(groups).__name__}."
    for group in groups:
        if not isinstance(group, list | tuple | set | frozenset) or not all(isinstance(n, str) for n in group):
            return f"A group must be a tuple of names of bindings; got {shown(group)} ({type(group).__name__})."
        for name in group:
            if name not in whole.ops:
                return f"There is no operation {name!r} in this module.{did_you_mean(name, whole.ops)}"
        if len(set(group)) < len(group) or not group:
            return f"The group ({', '.join(group)}) {'is empty' if not group else 'names an operation twice'}."
    return ""


def _why_not_kernel(whole: Program, group: frozenset[str]) -> str:
    members = [op for op in whole.ops.values() if op.name in group]
    text = f"({', '.join(op.name for op in members)})"
    if len(sinks := _sinks(whole, group)) > 1:
        return f"The group {text} has {len(sinks)} results, {listed(sinks)}: a kernel writes one value."
    if len(group) == 1:
        return ""
    for name in group:
        if whole.ops[name].pattern >= _OPAQUE:
            return f"{name} ({whole.ops[name].kernel}) is opaque: nothing can share a kernel with it."
    reducing = [op for op in members if op.reductions]
    if sum(op.reductions for op in reducing) > 1:
        names = " and ".join(op.name for op in reducing)
        return f"The group {text} reduces more than once, in {names}: its loops cannot be merged."
    return ""


def _why_not_written(whole: Program, kernels: list[tuple[str, frozenset[str]]]) -> str:
    """Return why a value that is read outside its group is not written: it is not the result of a kernel."""
    results = {result for result, _ in kernels}
    reads = [(reader, name) for reader, group in kernels for name in _inputs(whole, group)]
    for reader, name in [*reads, *(("", name) for name in whole.returned)]:
        if name in whole.ops and name not in results:
            use = f"the kernel of {reader} reads" if reader else "the module returns"
            reason = f"No kernel writes {name}, and {use} it: it is inside a group but not its result"
            back = any(name in other and reader in _inputs(whole, other) for _, other in kernels)
            return f"{reason}{'. That group is not convex: a path leaves it and re-enters it' if back else ''}."
    return ""


# ------------------------------------------------------------------------------------------------ two simple policies


def nothing(module: tvm.IRModule) -> list[tuple[str, ...]]:
    """Fuse nothing: every operation is a kernel."""
    return []


def everything(module: tvm.IRModule) -> list[tuple[str, ...]]:
    """Fuse as much as possible: write only returned values, opaque ones, and reductions that feed another reduction."""
    whole = program(module)
    groups: dict[str, tuple[str, ...]] = {}
    todo = sorted(whole.returned, key=list(whole.ops).index)
    while todo:
        result = todo.pop()
        if result in groups:
            continue
        group, reductions = [], 0
        for name in reversed(whole.ops):
            op = whole.ops[name]
            if name != result and not any(name in whole.ops[member].reads for member in group):
                continue
            fits = reductions + op.reductions <= 1 and op.pattern < _OPAQUE
            if name == result or (fits and whole.ops[result].pattern < _OPAQUE):
                group.append(name)
                reductions += op.reductions
            else:
                todo.append(name)
        groups[result] = tuple(reversed(group))
    return list(groups.values())


def by(policy: Callable[[tvm.IRModule], Groups]) -> Callable[[tvm.IRModule], tvm.IRModule]:
    """Return the pass that fuses by a policy, for `passlab.relax.pipelines.pipeline(fuse=by(policy))`.

    A model with batch norms needs `before=[relax.transform.DecomposeOpsForInference()]` in the pipeline, too.
    """

    def fuse_by_policy(module: tvm.IRModule) -> tvm.IRModule:
        module = _readable(module)
        return fuse(module, policy(module))

    return fuse_by_policy


# ------------------------------------------------------------------------------------------------ the rewriting


def fuse(module: tvm.IRModule, groups: Groups, merge: Callable[[Any], Any] | None = None) -> tvm.IRModule:
    """Return the module with one kernel per group, whose loops `merge` merges (by default `merged`).

    Build it with pipeline="none": TVM's default one would fuse the rest. Raise ValueError, with the reason, for illegal
    groups.
    """
    from passlab.relax import relax, tvm

    whole = program(module)
    if reason := illegal(whole, groups):
        raise ValueError(reason)
    module = tvm.ir.load_json(tvm.ir.save_json(module))  # the passes below change types inside what they are given
    bindings = {binding.var.name: binding for binding in _bindings(module)}
    builder, new = relax.BlockBuilder(module), []
    kernels = dict(_kernels(whole, groups))
    for name, binding in bindings.items():
        group = [member for member in whole.ops if member in kernels.get(name, ())]
        if len(group) > 1:
            function, arguments = _primitive([bindings[member] for member in group])
            called = builder.add_func(function, "fused_" + "_".join(whole.ops[member].kernel for member in group))
            new.append(relax.VarBinding(binding.var, tvm.ir.Call(called, arguments)))
        elif name in kernels or name not in whole.ops:
            new.append(binding)
    main, fused = module["main"], builder.get()
    body = relax.SeqExpr([relax.DataflowBlock(new)], main.body.body)
    fused["main"] = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    names = ("Normalize", "FuseTIR", "DeadCodeElimination")
    fused = tvm.transform.Sequential([getattr(relax.transform, step)() for step in names])(fused)
    for variable, function in fused.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            fused.update_func(variable, (merge or merged)(function))
    return fused


def _primitive(bindings: list) -> tuple[Any, list]:
    """Return a function that computes the last of the bindings, and its arguments."""
    from passlab.relax import relax, tvm

    inside, new, arguments, parameters = {}, [], [], []

    def mapped(operand: Any) -> Any:
        for old, var in [*inside.items(), *zip(arguments, parameters, strict=True)]:
            if old.same_as(operand):
                return var
        arguments.append(operand)
        name = operand.name if isinstance(operand, relax.Var) else f"constant{len(arguments)}"
        parameters.append(relax.Var(name, operand.ty))
        return parameters[-1]

    for binding in bindings:
        call = binding.value
        operands = relax.Tuple([mapped(operand) for operand in call.args[1].fields])
        kind = relax.Var if binding is bindings[-1] else relax.DataflowVar
        inside[binding.var] = kind(binding.var.name, binding.var.ty)
        value = tvm.ir.Call(call.op, [call.args[0], operands, *call.args[2:]], call.attrs, call.ty_args)
        new.append(relax.VarBinding(inside[binding.var], value))
    result = inside[bindings[-1].var]
    body = relax.SeqExpr([relax.DataflowBlock(new)], result)
    return relax.Function(parameters, body, result.ty, True).with_attr("Primitive", True), arguments


def merged(kernel: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """Merge a function's loop nests into one: element-wise ones are computed where they are read.

    A reducing nest moves into the nest that reads it. With more than one of these, the function stays as it is.
    """
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(kernel)
    *before, last = blocks(schedule)
    reducing = [block for block in [*before, last] if reduces(schedule.get(block))]
    if len(reducing) > 1:
        return kernel
    for block in before:
        if block not in reducing:
            schedule.compute_inline(block)
    for block in reducing:
        if block is not last and (loops := schedule.get_loops(last)):
            alike = _spatial(schedule.get(block)) == _spatial(schedule.get(last))
            # A row at a time if that recomputes nothing: the loop over a row can then be vectorized.
            schedule.compute_at(block, loops[-2 if alike and len(loops) > 1 else -1])
    return schedule.mod["main"]


# ------------------------------------------------------------------------------------------------ reading a module


def prepare(module: tvm.IRModule) -> tvm.IRModule:
    """Legalize a module: operators become calls of TensorIR functions, each with its pattern; constants are folded."""
    from passlab.relax import relax, tvm

    passes = relax.transform
    steps = [passes.DecomposeOpsForInference(), passes.CanonicalizeBindings(), passes.LegalizeOps()]
    steps += [passes.AnnotateTIROpPattern(), fold_constants()]
    with tvm.target.Target("llvm"):
        return _readable(tvm.transform.Sequential(steps)(module))


def _readable(module: tvm.IRModule) -> tvm.IRModule:
    """Return a legalized module whose main is one dataflow block, in which no two bindings have the same name.

    TVM's passes know variables by identity: what DecomposeOpsForInference puts in may have names that are taken.
    """
    import tvm_ffi

    from passlab.relax import relax, tvm

    passes = [relax.transform.ConvertToDataflow(), relax.transform.DeadCodeElimination()]
    module = tvm.transform.Sequential(passes)(module)
    variables = [*module["main"].params, *(binding.var for binding in _bindings(module))]
    taken, seen, new = {variable.name for variable in variables}, set(), {}
    for variable in variables:
        if variable.name in seen:
            name = next(name for n in itertools.count(1) if (name := f"{variable.name}_{n}") not in taken)
            new[variable] = type(variable)(name, variable.ty)
            taken.add(name)
        seen.add(variable.name)
    if new:
        main = tvm_ffi.structural_map(module["main"], (relax.Var, lambda variable: new.get(variable, variable)))
        module.update_func(module.get_global_var("main"), main)
    return module


def program(module: tvm.IRModule) -> Program:
    """Read a prepared module. Raise ValueError for one that was not prepared, or has unknown shapes."""
    names = Counter(binding.var.name for binding in _bindings(module))
    if twice := next((name for name, times in names.items() if times > 1), ""):
        raise ValueError(f"main binds {twice} more than once, and groups are names: call prepare(module) first.")
    ops, nbytes, returned, constants = {}, {}, set(), []
    kernels = {variable.name_hint: function for variable, function in module.functions.items()}
    facts: dict[str, Work] = {}
    for parameter in module["main"].params:
        nbytes[parameter.name] = _nbytes(parameter)
    for binding in _bindings(module):
        name, value = binding.var.name, binding.value
        if not _is_call_tir(value):
            returned |= {variable.name for variable in _variables(value)}
            continue
        reads = []
        for operand in value.args[1].fields:
            reads.append(_name(operand, constants))
            nbytes.setdefault(reads[-1], _nbytes(operand))
        kernel = value.args[0].name_hint
        if kernel not in facts:
            facts[kernel] = _work(kernels[kernel])
        nbytes[name] = _nbytes(binding.var)
        elements = math.prod(_shape(binding.var))
        work = facts[kernel]
        each = (work.steps / elements, work.loads / elements) if elements else (0.0, 0.0)
        operands = tuple(dict.fromkeys(reads))
        ops[name] = Op(name, kernel, operands, elements, nbytes[name], *each, work.reductions, work.pattern)
    returned |= {variable.name for variable in _variables(module["main"].body.body)}
    return Program(ops, nbytes, frozenset(returned & ops.keys()))


def _bindings(module: tvm.IRModule) -> list:
    from passlab.relax import relax

    blocks = module["main"].body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
        raise ValueError(f"main has {len(blocks)} blocks; fusion needs one dataflow block: call prepare(module) first.")
    return list(blocks[0].bindings)


def _is_call_tir(value: Any) -> bool:
    return getattr(getattr(value, "op", None), "name", "") == "relax.call_tir"


def _variables(value: Any) -> list:
    from passlab.relax import relax

    return relax.analysis.free_vars(value)


def _name(operand: Any, constants: list) -> str:
    from passlab.relax import relax

    if isinstance(operand, relax.Var):
        return operand.name
    known = next((at for at, constant in enumerate(constants) if constant.same_as(operand)), len(constants))
    if known == len(constants):
        constants.append(operand)
    return f"constant {known}"


def _shape(value: Any) -> list[int]:
    from passlab.relax import relax

    if isinstance(value.ty, relax.TupleType):
        raise ValueError(f"{value} has several results, and a kernel writes one: DecomposeOpsForInference divides it.")
    if not isinstance(value.ty, relax.TensorType) or value.ty.shape is None:
        raise ValueError(f"{value} is not a tensor of known shape ({value.ty}): its kernel cannot be priced.")
    return [int(dim) for dim in value.ty.shape]


def _nbytes(value: Any) -> int:
    elements = math.prod(_shape(value))
    bits = int(str(value.ty.dtype).lstrip("abcdefghijklmnopqrstuvwxyz") or 8)
    return elements * ((bits + 7) // 8)


class Work(NamedTuple):
    """The total work of a TensorIR function; the fields are those of `Op`."""

    steps: float
    loads: float
    reductions: int
    pattern: int


def _work(kernel: tvm.tirx.PrimFunc) -> Work:
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(kernel)
    steps, loads, reductions = 0.0, 0.0, 0
    for handle in blocks(schedule):
        block = schedule.get(handle)
        runs = math.prod(int(axis.dom.extent) for axis in block.iter_vars)
        steps += runs * ((REDUCE if reduces(block) else 1) + HEAVY * _heavy(block.body))
        loads = max(loads, runs)
        reductions += reduces(block)
    return Work(steps, loads, reductions, int(kernel.attrs["op_pattern"]))


def _spatial(block: Any) -> list[int]:
    return [int(axis.dom.extent) for axis in block.iter_vars if int(axis.iter_type) == 0]


def _heavy(body: Any) -> int:
    """Count the calls of heavy functions in a block's body."""
    import tvm_ffi

    from passlab.relax import tvm

    names: list[str] = []
    tvm_ffi.structural_walk(body, (tvm.ir.Call, lambda call: names.append(getattr(call.op, "name", ""))), order="post")
    return sum(name.removeprefix("tirx.") in HEAVY_OPS for name in names)
