"""Day 14, the backward pass: visible cases and judge."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from passlab.autodiff import joint
from passlab.equivalence.seeds import own_seed
from passlab.equivalence.trials import nearby
from passlab.equivalence.values import Tolerance, rms, wide
from passlab.exercises.day14.vjp import differentiable, numbers, row
from passlab.fx.judge import why_not_valid
from passlab.fx.programs import Program
from passlab.given.day14.backward import call, typed
from passlab.given.day14.vjp import quietly, without_lifts
from passlab.judge import Case, Finding, enough, plural

__all__ = ["call", "cases", "judge"]

ORDINARY = ("valid", "same", "did", "cost")
EDGE = ("valid", "same")
REFUSED = ("spared",)
ALLOWED = ("valid", "same", "did", "spared")
#: A graph may have this many operations for each one that the course's own has, and a few more.
SHARE, MORE = 1.25, 4


@dataclass(frozen=True)
class Refusal:
    """The node at which a graph has to be refused, and its line in the source."""

    node: str
    line: str


def traced(function: Callable[..., Sequence[Tensor]], *inputs: Tensor) -> fx.GraphModule:
    """Return the ATen graph of a function, with the inputs that it was made for."""
    with quietly(), torch.no_grad():
        gm = without_lifts(make_fx(lambda *args: list(function(*args)))(*inputs))
    names = function.__code__.co_varnames
    for node, name in zip(gm.graph.find_nodes(op="placeholder"), names, strict=False):
        node.name = node.target = name
    gm.recompile()
    gm.meta["inputs"] = tuple(inputs)
    return gm


def program(
    name: str,
    function: Callable[..., Sequence[Tensor]],
    *inputs: Tensor,
    about: tuple[str, ...] = ORDINARY,
    lines: Mapping[str, tuple[str, str]] | None = None,
    refused: str = "",
    frames: int = 2,
) -> Case:
    """Return a case: the graph of a function on inputs.

    lines: operation → (the name that its node gets, its line in the source). refused: the one of these at which the
    graph has to be refused. frames: of each node's stack trace.
    """
    lines = lines or {}

    def build() -> tuple:
        gm = traced(function, *(x.clone() for x in inputs))
        texts = {}
        for number, node in enumerate(n for n in gm.graph.nodes if n.op == "call_function"):
            op = getattr(node.target, "_opname", "")
            if op in lines:
                node.name, source = lines[op]
            else:
                source = f"h{number} = step{number}(h)"
            outer = '  File "train.py", line 7, in step\n    loss = model(x)\n' * (frames - 1)
            texts[node.name] = f'{outer}  File "model.py", line {20 + number}, in forward\n    {source}'
        gm.recompile()
        return gm, texts

    return Case(name, build, about, expect=Refusal(*lines[refused]) if refused else None)


# ---------------------------------------------------------------------------------------------------- visible cases


def line(x: Any, w: Any) -> tuple:
    return ((x @ w).tanh().sum(),)


def fork(x: Any, y: Any) -> tuple:
    z = x * y
    return (z.sin() + z * z, z)


def broadcast(x: Any, b: Any, c: Any) -> tuple:
    return ((x * b + c).exp().sum(0, keepdim=True) - b,)


def views(x: Any) -> tuple:
    parts = x.split([1, 2], 1)
    return torch.cat([x.t(), parts[1].t() * 3]).unsqueeze(0).expand(2, -1, -1), x.view(-1)


def largest(x: Any) -> tuple:
    values, places = x.max(1)
    return values * values, places


def looked_up(table: Any, rows: Any, w: Any) -> tuple:
    chosen = table[rows]
    return torch.where(rows.unsqueeze(1) > 0, chosen, w), rows + 1


def idle(x: Any, unused: Any, n: Any) -> tuple:
    return x.abs(), x > 0, x


def ladder(x: Any) -> tuple:
    for _ in range(4):
        x = x * x.sigmoid() + x
    return (x,)


def attention(q: Any, k: Any, v: Any) -> tuple:
    return (torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 2, -1).bmm(v),)


def product_so_far(x: Any, w: Any) -> tuple:
    return ((x * w).cumprod(0).sum(),)


def product_of_whole_numbers(x: Any, n: Any) -> tuple:
    return x * n.cumprod(0), x.cumsum(0)


def kinks(x: Any, y: Any) -> tuple:
    return x.relu() + y.abs(), torch.maximum(x, y).amax([0]), torch.linalg.vector_norm(y.relu(), 2, [0])


CUMPROD = {"cumprod": ("running", "products = torch.cumprod(scaled, 0)")}


def cases() -> list[Case]:
    x, y = numbers(2, 3), numbers(2, 3, seed=1)
    whole = torch.tensor([2, 0, 1, 2])
    return [
        program("a line", line, x, numbers(3, 4)),
        program("a fork", fork, x, y),
        program("broadcasting", broadcast, x, numbers(3), numbers(2, 1)),
        program("views", views, x),
        program("two results", largest, x),
        program("whole numbers", looked_up, numbers(3, 2), whole, numbers(2)),
        program("an unused input, and an input as output", idle, x, y, whole),
        program("a ladder", ladder, numbers(3) / 4),
        program("attention", attention, *(numbers(2, 3, 4, seed=n) for n in range(3))),
        program("edges: kinks and ties", kinks, row(0, 1, inf, nan, -1), row(0, 1, 0, 1, 0), about=EDGE),
        program("no rule", product_so_far, x, y, about=REFUSED, lines=CUMPROD, refused="cumprod"),
        program(
            "no rule, and none needed", product_of_whole_numbers, x, whole[1:3, None], about=ALLOWED, lines=CUMPROD
        ),
    ]


# ---------------------------------------------------------------------------------------------------- judge


@dataclass
class Gradients:
    """What torch says: the arguments of the joint graph, the results of the forward graph, input → gradient."""

    arguments: tuple
    outputs: list[Tensor]
    gradients: dict[str, Tensor]


def expected(gm: fx.GraphModule, inputs: Sequence[Any]) -> Gradients:
    """Return what a joint graph takes and returns on these inputs, by torch's own differentiation."""
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    outputs = list(gm(*leaves))
    ends = [out for out in outputs if differentiable(out)]
    tangents = [numbers(*out.shape, seed=own_seed(11 + i), dtype=out.dtype) for i, out in enumerate(ends)]
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    floats = {name: x for name, x in zip(names, leaves, strict=True) if x.requires_grad}
    pairs = [(out, g) for out, g in zip(ends, tangents, strict=True) if out.requires_grad]
    grads: Sequence[Tensor | None] = [None] * len(floats)
    if pairs and floats:
        grads = torch.autograd.grad(
            [out for out, _ in pairs], list(floats.values()), [g for _, g in pairs], allow_unused=True
        )
    gradients = {n: torch.zeros_like(x) if g is None else g for (n, x), g in zip(floats.items(), grads, strict=True)}
    return Gradients((*inputs, *tangents), [out.detach() for out in outputs], gradients)


def judge(case: Case, value: Any) -> Iterator[Finding]:
    gm, _ = case.build()
    refusal: Refusal | None = case.expect
    if not (isinstance(value, dict) and set(value) == {"graph", "refused"} and isinstance(value["refused"], str)):
        yield Finding("valid", False, "Return a GraphModule.")
        return
    if refusal:
        fault = _not_refused(refusal, value["refused"])
        yield Finding("spared", not fault, fault, before=gm, mark=(refusal.node,))
        return
    if "spared" in case.about:
        no = f"Refused, although no gradient has to pass an operation without a rule: {value['refused']:.120}"
        yield Finding("spared", not value["refused"], no if value["refused"] else "", before=gm)
        if value["refused"]:
            return
    after = value["graph"]
    given = gm.meta["inputs"]
    right = expected(gm, nearby(given) if case.asks("did") else given)
    fault = why_not_valid(None, after) or _misfit(gm, after, right)
    yield Finding("valid", not fault, fault, before=gm, after=after if isinstance(after, fx.GraphModule) else None)
    if fault:
        return
    run = Program(after).run(right.arguments)
    results = run.output if isinstance(run.output, tuple | list) else ()
    number = len(right.outputs)
    if run.error or len(results) != number + len(right.gradients):
        reason = str(run.error).partition("\n")[0][:160] if run.error else "it does not return what its graph says"
        yield Finding("did", False, f"The joint graph does not run: {reason}", before=gm, after=after)
        return
    written = next(
        (i for i, (x, y) in enumerate(zip(right.arguments, run.inputs, strict=True)) if _changed(x, y)), None
    )
    names = [node.name for node in after.graph.find_nodes(op="placeholder")]
    if written is not None:
        fault = f"The joint graph writes into its input {names[written]}, which is a tensor of the caller."
    else:
        fault = next(filter(None, map(_output, range(number), results, right.outputs)), "")
    wrong = _gradient(results[number:], right)
    if case.asks("did"):
        yield Finding("same", not fault, fault, before=gm, after=after)
        yield Finding("did", not wrong, wrong, before=gm, after=after)
    else:
        yield Finding("same", not (fault or wrong), fault or wrong, before=gm, after=after)
    if case.asks("cost"):
        fault = _too_many(case, gm, after)
        yield Finding("cost", not fault, fault, before=gm, after=after)


def _not_refused(refusal: Refusal, message: str) -> str:
    """Return what a refusal lacks, or ""."""
    if not message:
        return f"A gradient would have to pass {refusal.node}, which has no rule. Raise ValueError."
    if not re.search(rf"\b{re.escape(refusal.node)}\b", message):
        return f"Node {refusal.node} has no rule; the message does not name it: {message:.120}"
    if refusal.line not in message:
        return f"The message does not quote the line that made node {refusal.node}, {refusal.line!r}: {message:.160}"
    return ""


def _misfit(gm: fx.GraphModule, after: fx.GraphModule, right: Gradients) -> str:
    """Return how the inputs or the outputs of a joint graph are not those of the forward graph and of torch, or ""."""
    old = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    tangents = len(right.arguments) - len(old)
    inputs = f"{', '.join(old)}, and a tangent for each output that is a tensor of floats ({tangents})"
    results = f"{plural(len(right.outputs), 'output')}, then the gradients of {', '.join(right.gradients)}"
    lengths = len(right.arguments), len(right.outputs) + len(right.gradients)
    return why_not_called("joint graph", after, lengths, inputs, results)


def why_not_called(what: str, gm: fx.GraphModule, lengths: tuple[int, int], inputs: str, results: str) -> str:
    """Return why a graph does not take and return as many values as it should, or "". inputs, results: their names."""
    number = len(gm.graph.find_nodes(op="placeholder"))
    if number != lengths[0]:
        return f"The {what} takes {plural(number, 'input')}; it should take {lengths[0]}: {inputs}."
    values = gm.graph.output_node().args[0]
    number = len(values) if isinstance(values, tuple | list) else 1
    if not isinstance(values, tuple | list) or number != lengths[1]:
        return f"The {what} returns {plural(number, 'value')}; it should return {lengths[1]}: {results}."
    return ""


def _changed(x: Any, y: Any) -> bool:
    return isinstance(x, Tensor) and not (isinstance(y, Tensor) and torch.allclose(x, y, 0, 0, equal_nan=True))


def why_unequal(value: Any, want: Tensor) -> str:
    """Return how a tensor differs from what it should be, or ""."""
    if not isinstance(value, Tensor):
        return f"is {value!r:.40}, not a tensor"
    for part, has, should in (("shape", list(value.shape), list(want.shape)), ("dtype", value.dtype, want.dtype)):
        if has != should:
            return f"has the {part} {has}; it should have {should}"
    # Terms near 1 that cancel leave rounding errors, so a tensor of tiny numbers is not held to their own size.
    limit, right = 1e-4 if torch.float32 in (value.dtype, want.dtype) else 1e-9, wide(want).double()
    bad = Tolerance(limit, limit * max(rms(right), 0.01)).mismatches(right, wide(value).double()).nonzero()
    if not len(bad):
        return ""
    at = tuple(bad[0].tolist())
    where = f" at {list(at)}" if at else ""
    return f"is {value[at].item():.6g}{where}; it should be {want[at].item():.6g}"


def _output(at: int, value: Any, want: Tensor) -> str:
    reason = why_unequal(value, want)
    return f"Output {at} of the joint graph {reason}, as in the forward graph." if reason else ""


def _gradient(values: Sequence[Any], right: Gradients) -> str:
    for gradient, (name, want) in zip(values, right.gradients.items(), strict=True):
        if reason := why_unequal(gradient, want):
            return f"The gradient of {name} {reason}."
    return ""


#: Case → how many operations its joint graph may have, worked out once for all who are judged.
_most: dict[Case, int] = {}


def _too_many(case: Case, gm: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return how many operations a joint graph has beyond those that are needed, or ""."""
    if case not in _most:
        own = joint(typed(copy.deepcopy(gm)))  # to build the case anew takes far longer than a copy
        own.graph.eliminate_dead_code()
        _most[case] = int(SHARE * operations(own)) + MORE
    number, limit = operations(after), _most[case]
    if number <= limit:
        return ""
    return (
        f"The joint graph has {plural(number, 'operation')}; {enough(limit)}. Compute each forward value once, and "
        "add up the gradients of a value before they go on to its operands."
    )


def operations(gm: fx.GraphModule) -> int:
    return sum(node.op.startswith("call") for node in gm.graph.nodes)
