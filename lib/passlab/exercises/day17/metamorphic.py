"""Day 17, laws as oracles: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from passlab.equivalence.seeds import own_seed
from passlab.fx.cases import graph
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.nodes import op_name
from passlab.fx.programs import Program
from passlab.judge import Case, Finding
from passlab.judge.forms import why_not_a_list

#: How many graphs an answer may return.
MOST = 8
#: Relative and absolute difference up to which results count as the same.
TOLERANCE = 2e-4

_SPELLINGS = {
    **dict.fromkeys(("truediv", "true_divide", "divide"), "div"),
    **{"subtract": "sub", "multiply": "mul", "absolute": "abs"},
}

#: node, its result and its operands as proxies → another result, or None where the compiler is right.
Fault = Callable[..., Any]


def operation(node: fx.Node) -> str:
    """Return the name of an operation, the same for all its spellings."""
    return _SPELLINGS.get(op_name(node), op_name(node))


def _dimension(node: fx.Node) -> Any:
    return node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)


def _wrong_where(name: str, is_where: Callable[..., Any]) -> Fault:
    """Return a fault: the results of an operation are too large by a quarter where a condition on operands holds."""

    def fault(node: fx.Node, result: Any, *operands: Any) -> Any:
        return torch.where(is_where(*operands), result * 1.25, result) if operation(node) == name else None

    return fault


def negative(name: str) -> Fault:
    return _wrong_where(name, lambda x, *_: x < 0)


def positive(name: str) -> Fault:
    return _wrong_where(name, lambda x, *_: x > 0)


def larger_first(name: str) -> Fault:
    return _wrong_where(name, lambda x, y, *_: x > y)


def last_entry(name: str) -> Fault:
    """Return a fault: the last entry along the dimension of a sum counts half as much again, that of a softmax comes
    out too large."""

    def fault(node: fx.Node, result: Any, x: Any, *_: Any) -> Any:
        dim = _dimension(node)
        if operation(node) != name or type(dim) is not int:
            return None
        if name == "softmax":
            return _last_too_large(result, dim)
        keepdim: Any = node.kwargs.get("keepdim", node.args[2] if len(node.args) > 2 else False)
        return result + 0.5 * torch.sum(torch.narrow(x, dim, -1, 1), dim, keepdim)

    return fault


def last_row(node: fx.Node, result: Any, *_: Any) -> Any:
    """Return a product of matrices whose last row is too large."""
    return _last_too_large(result, -2) if operation(node) == "matmul" else None


def _last_too_large(x: Any, dim: int) -> Any:
    place = torch.cumsum(torch.ones_like(x), dim)
    return torch.where(torch.eq(place, x.size(dim)), x * 1.25, x)


def in_a_row(first: str, second: str) -> Fault:
    """Return a fault: an operation is wrong if it reads the result of another one."""

    def fault(node: fx.Node, result: Any, *_: Any) -> Any:
        fused = operation(node) == second and any(operation(operand) == first for operand in node.all_input_nodes)
        return result * 1.25 if fused else None

    return fault


def shared(node: fx.Node, result: Any, *_: Any) -> Any:
    """Return a value that is too large if two nodes read it."""
    return result * 1.25 if len(node.users) > 1 else None


def compiled(gm: fx.GraphModule, fault: Fault) -> fx.GraphModule:
    """Return a graph that computes what a compiler with a fault makes of gm."""
    new = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    tracer = fx.proxy.GraphAppendingTracer(new)
    for node in gm.graph.nodes:
        copy = env[node] = new.node_copy(node, env.__getitem__)
        if node.op.startswith("call_"):
            proxies: Any = lambda n: fx.Proxy(n, tracer)  # noqa: E731
            operands: Any = fx.node.map_arg((*copy.args, *copy.kwargs.values()), proxies)
            wrong = fault(node, fx.Proxy(copy, tracer), *operands)
            env[node] = copy if wrong is None else wrong.node
    return fx.GraphModule(gm, new)


def law_case(
    name: str, build: Callable[[], fx.GraphModule], faults: dict[str, Fault], about: Sequence[str] = ()
) -> Case:
    """Return a case: a program, and what each of some compilers does wrong."""
    return Case(name, lambda: (build(),), tuple(about), expect=faults)


def cases() -> list[Case]:
    shape = (3, 4)
    return [
        law_case(
            "tanh",
            graph(lambda m, x, y: torch.add(torch.tanh(x), y), shape, shape),
            {"tanh is wrong for negative operands": negative("tanh")},
        ),
        law_case(
            "cos of a sum",
            graph(lambda m, x, y: torch.cos(torch.add(x, y)), shape, shape),
            {
                "cos is wrong for negative operands": negative("cos"),
                "add is wrong where the first operand is the larger one": larger_first("add"),
            },
        ),
        law_case(
            "sum of a matrix product",
            graph(lambda m, x, y: torch.sum(torch.matmul(x, y), 1), shape, (4, 3)),
            {
                "the last entry counts too much in a sum": last_entry("sum"),
                "the last row of a matrix product is wrong": last_row,
            },
        ),
        law_case(
            "exp of a quotient",
            graph(lambda m, x: torch.exp(torch.div(x, 3)), shape),
            {"div and exp in a row are wrong": in_a_row("div", "exp")},
        ),
        law_case(
            "a value that is read twice",
            graph(lambda m, x: torch.div(e := torch.exp(x), torch.sqrt(e)), shape),
            {"a value that two nodes read is wrong": shared},
        ),
    ]


# --------------------------------------------------------------------------------------------------------------- judge


def why_not_graphs(value: Any, before: fx.GraphModule) -> str:
    """Return why a value is not a list of graphs with the inputs of another one, or ""."""
    if reason := why_not_a_list(value, "a list of graphs"):
        return reason
    if len(value) not in range(1, MOST + 1):
        return f"Return 1 to {MOST} graphs; there are {len(value)}."
    for at, gm in enumerate(value):
        if not isinstance(gm, fx.GraphModule):
            return f"Entry {at} is of type {type(gm).__name__}; it must be a GraphModule."
        if reason := why_not_valid(before, gm):
            return f"Graph {at}: {reason}"
        if layers := gm.graph.find_nodes(op="call_module"):
            return f"Graph {at}: node {layers[0].name} calls a module. Use functions and methods of tensors."
    return ""


def difference(one: Any, other: Any) -> str:
    """Return where two results differ by more than rounding, or ""."""
    if not isinstance(other, Tensor) or (one.shape, one.dtype) != (other.shape, other.dtype):
        form = f"{other.dtype}{list(other.shape)}" if isinstance(other, Tensor) else type(other).__name__
        return f"the result is {form} instead of {one.dtype}{list(one.shape)}"
    wrong = ~torch.isclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    if not wrong.any():
        return ""
    at = tuple(int(place) for place in wrong.nonzero()[0]) if one.ndim else ()
    return f"element {list(at)} is {other[at].item():.4g} instead of {one[at].item():.4g}"


def _drawn(inputs: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Return inputs, and others of the same shapes. The last are whole numbers, with zeros."""
    generator = torch.Generator().manual_seed(own_seed(17))
    others = [tuple(2 * torch.randn(x.shape, generator=generator) for x in inputs) for _ in range(2)]
    orders = (torch.randperm(x.numel(), generator=generator).view(x.shape) for x in inputs)
    whole = tuple((order % 5 - 2).to(x.dtype) for order, x in zip(orders, inputs, strict=True))
    return [tuple(inputs), *others, whole]


def why_not_a_law(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return on which inputs a graph differs from another one, or ""."""
    one, other = Program(before), Program(after)
    for inputs in _drawn(before.meta["inputs"]):
        run = other.run(inputs)
        if run.error:
            return f"it cannot run: {str(run.error)[:200]}"
        if reason := difference(one.run(inputs).output, run.output):
            return reason
    return ""


def is_exposed(before: fx.GraphModule, others: Sequence[fx.GraphModule], fault: Fault) -> bool:
    """Return whether a compiler with a fault computes something else for one of the graphs than for the first."""
    inputs = before.meta["inputs"]
    left = Program(compiled(before, fault)).run(inputs).output
    runs = (Program(compiled(gm, fault)).run(inputs) for gm in others)
    return any(not run.error and difference(left, run.output) for run in runs)


def judge(case: Case, value: Any) -> Iterator[Finding]:
    (before,) = case.build()
    broken = why_not_graphs(value, before)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    graphs = [rebuild(gm) for gm in value]
    for at, gm in enumerate(graphs):
        if reason := why_not_a_law(before, gm):
            text = f"Graph {at} is another function, so that it raises a false alarm: {reason}."
            yield Finding("same", False, text, before=before, after=gm)
            return
    yield Finding("same", True)
    missed = next((name for name, fault in case.expect.items() if not is_exposed(before, graphs, fault)), "")
    alike = f"A compiler stays hidden, in which {missed}: it returns the same for all graphs."
    yield Finding("did", not missed, alike if missed else "", before=before)
