"""Day 4, exercise 5: cases and judge of code generation. Answers are inspected here, and run elsewhere."""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from passlab.building.arrays import as_torch
from passlab.equivalence.trials import nearby
from passlab.equivalence.values import Tolerance, compare
from passlab.exercises._tensorir import FOREIGN, why_not_one_kernel
from passlab.fx.reader import trace
from passlab.judge import Case, Finding, as_decorator
from passlab.tvm import builds

#: The operations in the groups of this exercise, besides the method `to(dtype)`.
OPERATIONS = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.gt, operator.lt, operator.eq,
    torch.abs, torch.relu, torch.exp, torch.tanh, torch.sigmoid, torch.sqrt, torch.maximum, torch.minimum, torch.where,
}  # fmt: skip
#: TensorIR functions that cost as much as many additions.
DEAR = {"exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "tanh", "sigmoid", "sqrt", "rsqrt", "erf", "pow"}
DEAR |= {"sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan"}

#: Special values for the inputs, besides ordinary numbers.
EDGES = (0.0, -0.0, 1.0, math.nan, -2.5, math.inf, 0.5, -math.inf, -1.0)
WHOLE_EDGES = (0, 1, -1, 7, -1000, 1000)
#: How many steps in TensorIR an operation of the graph may take: relu takes care of NaN, operands are cast.
STEPS = 12


@as_decorator
def codegen_case(
    name: str, function: Callable, *inputs: torch.Tensor, edges: bool = True, about: tuple[str, ...] = ()
) -> Case:
    """Return a case: the graph of `function` on these inputs.

    edges: it is also run on NaN, infinities and the like (not for bfloat16: TVM's cast to it makes some NaNs infinite).
    about: verdicts; without `same` nothing is built.
    """
    return Case(name, lambda: (trace(function, *inputs),), about, expect=edges)


def cases() -> list[Case]:
    return [
        codegen_case("a chain", lambda x: torch.relu(x * 0.5 - 1), numbers(5, 7)),
        codegen_case("broadcasting", stretched, numbers(3, 1, 5), numbers(5), positive(4, 1)),
        codegen_case("two outputs and a value they share", shared, numbers(3, 11)),
        codegen_case("whole numbers", lambda n, x: torch.where(n < 0.5, n / 2, x * n), whole(13), numbers(2, 13)),
        codegen_case("bfloat16", mixed, half(17), half(17), edges=False),
        codegen_case("no elements", lambda x, y: x * y + 1, numbers(0, 5), numbers(5)),
        codegen_case("no dimensions", lambda x, y: (torch.tanh(x) - y, x < y), numbers(), numbers()),
    ]  # fmt: skip


def stretched(x: Any, b: Any, c: Any) -> Any:
    return torch.maximum(torch.sigmoid(x + b), x) / c


def mixed(x: Any, y: Any) -> Any:
    return torch.maximum(torch.exp(x), y) + 0.25


def shared(x: Any) -> Any:
    e = torch.exp(x)
    return e * e - e, e + 1.0


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def positive(*shape: int) -> torch.Tensor:
    return numbers(*shape).abs() + 0.5


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(1), dtype=torch.int32)


def half(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return numbers(*shape).to(dtype)


def judge(case: Case, value: object) -> Iterator[Finding]:
    (gm,) = case.build()
    broken, function = _misfit(gm, value)
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    inputs, outputs = ends(gm)
    elements = outputs[0].meta["tensor_meta"].shape.numel()
    work = Work.of(function, elements)
    written = [p.name for p in list(function.params)[: len(inputs)] if work.stores[p.__chandle__()]]
    yield Finding(
        "spared",
        not written,
        f"It writes to its input {written[0]}, which may have other consumers." if written else "",
    )
    fault = _why_not_one_kernel(function, work, len(inputs), elements)
    yield Finding("did", fault is None, fault or "")
    repeated = _again(gm, work, elements)
    yield Finding("cost", repeated is None, repeated or "")
    if not case.asks("same") or work.steps > 50 * _allowed(gm, elements):
        return  # building it could take hours
    wrong = _wrong(case, gm, function)
    yield Finding("same", wrong is None, wrong or "")


def ends(gm: fx.GraphModule) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return inputs and outputs of a graph, in order."""
    (returned,) = gm.graph.output_node().args
    return gm.graph.find_nodes(op="placeholder"), list(returned) if isinstance(returned, tuple | list) else [returned]


def _misfit(gm: fx.GraphModule, value: Any) -> tuple[str | None, Any]:
    """Return what is wrong with the value as a kernel for this graph, or None; and the kernel."""
    if reason := why_not_one_kernel(value, "a PrimFunc, or an IRModule that contains one"):
        return reason, None
    (function,) = value.functions.values()
    inputs, outputs = ends(gm)
    types = [f"{_dtype(n)} {list(n.meta['tensor_meta'].shape)}" for n in (*inputs, *outputs)]
    actual = [_type_text(parameter) for parameter in function.params]
    if actual != types:
        return f"The parameters must be {'; '.join(types)} (inputs, then outputs); they are {'; '.join(actual)}.", None
    if laid := [p.name for p in function.params if getattr(p.ty, "layout", None) is not None]:
        return f"The buffer {laid[0]} has a layout, which is not supported here. Use decl_buffer(…, layout=None).", None
    try:
        work = Work.of(function, outputs[0].meta["tensor_meta"].shape.numel())
    except Unread as error:
        return str(error), None
    if work.foreign:
        return f"The kernel calls code from elsewhere ({work.foreign[0]}). Write out what it computes.", None
    return None, function


def _dtype(node: fx.Node) -> str:
    return str(node.meta["tensor_meta"].dtype).removeprefix("torch.")


def _type_text(parameter: Any) -> str:
    shape = getattr(parameter.ty, "shape", None)
    if shape is None:
        return f"{parameter.name}, not a buffer"
    return f"{parameter.ty.dtype} {[getattr(size, 'value', str(size)) for size in shape]}"


class Unread(Exception):
    """The kernel contains a construct that this judge cannot count; the text names it and the remedy."""


def _length(loop: Any) -> int:
    """Return how often a loop runs. Raises Unread if that is not known."""
    if not isinstance(getattr(loop.extent, "value", None), int):
        raise Unread(f"The loop {loop.loop_var.name} must have a constant length: all shapes are known here.")
    return max(loop.extent.value, 0)


@dataclass
class Work:
    """The work of a kernel, counted from its text. `steps`: operations of all kinds; `dear`: calls of exp and the like;
    `stores`: how often each buffer is written, by handle; `always`: the same without the writes under a condition;
    `passes`: the same where no statement counts more often than there are `elements` in an output, and of the two
    branches of a condition the one that writes more often; `reads`: the buffers that are read;
    `largest`: the elements of the largest buffer it allocates."""

    elements: int
    steps: int = 0
    dear: int = 0
    largest: int = 0
    stores: Counter = field(default_factory=Counter)
    always: Counter = field(default_factory=Counter)
    passes: Counter = field(default_factory=Counter)
    reads: set = field(default_factory=set)
    foreign: list[str] = field(default_factory=list)
    _seen: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, function: Any, elements: int) -> Work:
        work = cls(elements)
        work.statement(function.body, 1)
        return work

    def statement(self, at: Any, times: int, always: bool = True) -> None:
        """Count a statement that runs `times` times, or at most as often if it does not run `always`."""
        kind = type(at).__name__
        if kind == "For":
            self.statement(at.body, times * _length(at), always)
        elif kind == "SeqStmt":
            for part in at.seq:
                self.statement(part, times, always)
        elif kind == "BufferStore":
            self.stores[at.buffer.__chandle__()] += times
            self.always[at.buffer.__chandle__()] += times * always
            self.passes[at.buffer.__chandle__()] += min(times, self.elements)
            self.expression(at.value, times)
        elif kind in ("Bind", "Evaluate"):
            self.expression(at.value, times)
        elif kind == "IfThenElse":
            self.expression(at.condition, times)
            before, branches = self.passes, []
            for part in filter(None, (at.then_case, at.else_case)):
                self.passes = before.copy()
                self.statement(part, times, always=False)
                branches.append(self.passes)
            self.passes = functools.reduce(operator.or_, branches)
        elif kind in ("AllocBuffer", "DeclBuffer"):
            self._holds(at.buffer)
        elif kind == "SBlockRealize":
            self._block(at.block, times, always and getattr(at.predicate, "value", 0) == 1)
        elif kind == "AttrStmt":
            self.statement(at.body, times, always)
        else:
            raise Unread(f"The kernel contains a {kind} statement; use only loops of constant length and stores.")

    def _block(self, block: Any, times: int, always: bool) -> None:
        if block.match_buffers:
            name = block.match_buffers[0].buffer.name
            raise Unread(f"The buffer {name} is another name for a part of a buffer; use the buffers themselves.")
        for buffer in block.alloc_buffers:
            self._holds(buffer)
        if block.init:
            self.statement(block.init, times, always=False)
        self.statement(block.body, times, always)

    def _holds(self, buffer: Any) -> None:
        sizes = [getattr(size, "value", math.inf) for size in buffer.ty.shape]
        self.largest = max(self.largest, math.prod(sizes))

    def expression(self, at: Any, times: int) -> None:
        steps, dear = self._cost(at)
        self.steps += times * steps
        self.dear += times * dear

    def _cost(self, at: Any) -> tuple[int, int]:
        """Return steps and calls of expensive functions. An expression in two places is computed twice."""
        key = at.__chandle__()
        if key not in self._seen:
            kind, steps, dear, parts = type(at).__name__, 1, 0, []
            if kind == "Call":
                name = getattr(at.op, "name", "").rpartition(".")[2]
                if not hasattr(at.op, "name") or name in FOREIGN:
                    self.foreign.append(name or "a function")
                parts, dear = list(at.args), int(name in DEAR)
            elif kind in ("Var", "IntImm", "FloatImm", "BufferLoad", "TensorLoad", "StringImm"):
                steps = 0
                if hasattr(at, "indices"):
                    self.reads.add((at.source if hasattr(at, "source") else at.buffer).__chandle__())
            else:
                names = ("a", "b", "value", "condition", "true_value", "false_value", "body", "base")
                parts = [getattr(at, name) for name in names if hasattr(at, name)]
            self._seen[key] = (0, 0)
            costs = [self._cost(part) for part in parts]
            self._seen[key] = steps + sum(s for s, _ in costs), dear + sum(d for _, d in costs)
        return self._seen[key]


def _why_not_one_kernel(function: Any, work: Work, inputs: int, elements: int) -> str | None:
    """Return why this is not one kernel that writes each element of its outputs once, or None."""
    if work.largest > 1:
        return (
            f"It allocates a buffer of {work.largest:,} elements between input and output: "
            "this is the buffer that fusion should eliminate. "
            "Keep a value inside the group in a buffer of one element."
        )
    for parameter in list(function.params)[inputs:]:
        at = parameter.__chandle__()
        times = work.stores[at]
        if times < elements or times > 2 * elements + 64 or work.always[at] > elements:
            return f"The output {parameter.name} has {elements:,} elements; the loops store {times:,} times to it."
        if at in work.reads and work.passes[at] >= 2 * elements > 0:
            return (
                f"Several loops store all {elements:,} elements of the output {parameter.name}: the first ones use it "
                "as a buffer between them. Store each element once, when it is final."
            )
    return None


def _again(gm: fx.GraphModule, work: Work, elements: int) -> str | None:
    """Return what is computed more often than in the graph, or None."""
    calls = [n for n in gm.graph.nodes if n.op == "call_function" and n.target.__name__ in DEAR]
    dear = max(work.dear, 0)
    if dear > len(calls) * elements:
        named = ", ".join(n.name for n in calls) or "none"
        return (
            f"It calls functions like exp {dear:,} times; the graph has {len(calls)} such operations ({named}) on "
            f"{elements:,} elements. Compute a value that is used twice only once."
        )
    if work.steps > _allowed(gm, elements):
        each = work.steps / max(elements, 1)
        return f"It does {each:,.0f} operations per element. Compute a value that is used twice only once."
    return None


def _allowed(gm: fx.GraphModule, elements: int) -> int:
    return STEPS * (2 + sum(n.op.startswith("call_") for n in gm.graph.nodes)) * elements


def _wrong(case: Case, gm: fx.GraphModule, function: Any) -> str | None:
    """Return where the kernel's outputs differ from torch's, or why it does not run, or None."""
    from passlab.relax import tvm

    ordinary = tuple(gm.meta["inputs"])
    trials = {"ordinary inputs": ordinary}
    if not _types(gm) & {torch.float16, torch.bfloat16}:  # where torch rounds before a comparison, a kernel may not
        trials["other inputs"] = nearby(ordinary)
    if case.expect:
        trials["NaN, infinities and the like"] = tuple(_edges(t, k) for k, t in enumerate(ordinary))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    built = builds.run_module(module, trials.values(), seconds=15)
    if built.error:
        return built.error
    for (name, inputs), outputs in zip(trials.items(), built.outputs, strict=True):
        right = gm(*inputs)
        right = right if isinstance(right, tuple | list) else (right,)
        for place, pair in enumerate(zip(right, map(as_torch, outputs), strict=True)):
            where = f"output {place}" if len(right) > 1 else "the output"
            if differences := compare(*pair, _tolerance(gm), where):
                message = (
                    differences[0]
                    .sentence.replace(" before and ", " in torch and ")
                    .replace(" after", " in the kernel")
                )
                return f"On {name} {message}."
    return None


def _edges(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """Return a tensor like this one, filled with special values in an order that depends on the input's number."""
    values = EDGES if tensor.is_floating_point() else WHOLE_EDGES if tensor.dtype != torch.bool else (True, False, True)
    step = (1, 2, 4)[number % 3]
    filled = [values[(number + step * k) % len(values)] for k in range(tensor.numel())]
    return torch.tensor(filled, dtype=tensor.dtype).reshape(tensor.shape)


def _tolerance(gm: fx.GraphModule) -> Tolerance:
    """Return the tolerance of the least precise type in the graph: torch rounds after each step, a kernel may not."""
    worst = max(_types(gm) or {torch.float32}, key=lambda dtype: torch.finfo(dtype).eps)
    return Tolerance.of(worst, depth=len(_values(gm)), sums=False)


def _types(gm: fx.GraphModule) -> set[torch.dtype]:
    """Return the float dtypes of a graph's values."""
    return {x.dtype for x in _values(gm) if x.dtype.is_floating_point}


def _values(gm: fx.GraphModule) -> list[Any]:
    return [n.meta["tensor_meta"] for n in gm.graph.nodes if "tensor_meta" in n.meta and n.op != "output"]
