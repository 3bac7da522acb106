"""Day 13, a backend: visible cases, the fewest kernels, and the judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from passlab.equivalence import equivalent
from passlab.fx.effects import effects, written
from passlab.fx.judge import why_not_valid
from passlab.fx.nodes import attribute, why_not_ordered
from passlab.fx.values import values_of
from passlab.given.day13.backend import elementwise
from passlab.judge import Case, Finding, listed, plural

WIDTH = 4
#: The example inputs have three rows.
ROWS = 3


def handed_over(body: Callable, *inputs: str, seed: int = 0) -> fx.GraphModule:
    """Return a graph as Dynamo hands it over to a backend, of a function whose tensors have a symbolic number of rows.

    `inputs`: the names of the inputs; "s" and a number is a size, `w` a matrix, any other a tensor of `ROWS` rows.
    """
    graph, draw, examples = fx.Graph(), torch.Generator().manual_seed(seed), []
    tracer = fx.proxy.GraphAppendingTracer(graph)
    proxies = []
    for name in inputs:
        node = graph.placeholder(name)
        size = name[0] == "s" and name[1:].isdigit()
        node.type = torch.SymInt if size else Tensor
        shape = (WIDTH, WIDTH) if name == "w" else (ROWS, WIDTH)
        examples.append(ROWS if size else torch.randn(shape, generator=draw))
        proxies.append(fx.Proxy(node, tracer))
    results = body(*proxies)
    graph.output(tuple(x.node if isinstance(x, fx.Proxy) else x for x in results))
    gm = fx.GraphModule({}, graph)
    gm.meta["inputs"] = tuple(examples)
    return gm


def groups(gm: fx.GraphModule) -> list[list[fx.Node]]:
    """Return the kernels of a graph: from each last node, all that only it reads and that may move to it."""
    nodes = list(gm.graph.nodes)
    place = {node: at for at, node in enumerate(nodes)}
    memory = written(gm.graph)
    writes = [at for node, at in place.items() if "writes" in effects(node)]
    kernels: list[list[fx.Node]] = []
    members: set[fx.Node] = set()
    for last in reversed(nodes):
        if last in members or not elementwise(last):
            continue
        group = [last]
        for node in reversed(nodes[: place[last]]):
            inside = elementwise(node) and node not in members and node.users and set(node.users) <= set(group)
            late = any(operand in memory for operand in node.all_input_nodes)
            if inside and not (late and any(place[node] < at < place[last] for at in writes)):
                group.append(node)
        members |= set(group)
        kernels.append(group[::-1])
    return kernels


def case(
    name: str,
    body: Callable,
    *inputs: str,
    about: Sequence[str] = ("valid", "same", "did", "spared"),
    seed: int = 0,
) -> Case:
    build = lambda: (handed_over(body, *inputs, seed=seed),)  # noqa: E731
    return Case(name, build, tuple(about), expect=lambda: len(groups(build()[0])))


def chain(s0: Any, x: Any) -> tuple:
    return ((x * s0).relu() + 1).view(s0, 2, 2), s0 * 2


def forks(s0: Any, x: Any, y: Any) -> tuple:
    a = torch.exp(x)
    b = a.neg()
    c = (a * b).tanh() + a
    return c, b


def diamond(s0: Any, x: Any, y: Any) -> tuple:
    a = x.sigmoid()
    return ((a * y) + (a - y).relu()), x[1:]


def returned(s0: Any, x: Any) -> tuple:
    u = torch.relu(x)
    v = u * 2
    return u, (v + 1).neg(), v.view(s0, 2, 2)


def behind(s0: Any, x: Any, w: Any) -> tuple:
    a = x * 2
    x.add_(1)
    b = a + x
    return b.relu(), torch.matmul(x, w).exp().neg()


def unmoved(s0: Any, x: Any, w: Any) -> tuple:
    a = torch.matmul(x, w).relu()
    b = a * 2
    x.add_(b)
    return (b + 1).neg(), x.sum(0)


def cases() -> list[Case]:
    return [
        case("a chain, with sizes", chain, "s0", "x"),
        case("a fork and a value that is returned", forks, "s0", "x", "y"),
        case("a fork that joins again", diamond, "s0", "x", "y"),
        case("returned, and viewed", returned, "s0", "x"),
        case("an input is written between", behind, "s0", "x", "w"),
        case("a write that nothing is read across", unmoved, "s0", "x", "w"),
    ]


# ---------------------------------------------------------------------------------------------------- judge


def _kernels(gm: fx.GraphModule) -> list[fx.Node]:
    return list(gm.graph.find_nodes(op="call_module"))


def _why_not_kernels(gm: fx.GraphModule) -> str:
    return next((reason for node in _kernels(gm) if (reason := _why_not_a_kernel(gm, node))), "")


def _why_not_a_kernel(gm: fx.GraphModule, call: fx.Node) -> str:
    """Return why a node does not call a kernel: one result, computed element by element."""
    body = attribute(gm, str(call.target))
    if not isinstance(body, fx.GraphModule):
        return f"Node {call.name} calls {call.target!r}, which is not a kernel. Make kernels with `kernel`."
    if reason := why_not_ordered(body.graph):
        return f"In the kernel {call.target}: {reason}"
    outputs = body.graph.find_nodes(op="output")
    if len(outputs) != 1 or not isinstance(outputs[0].args[0], fx.Node):
        return f"The kernel {call.target} must have one result."
    inputs = body.graph.find_nodes(op="placeholder")
    if len(inputs) != len(call.args) or call.kwargs:
        return f"The kernel {call.target} takes {plural(len(inputs), 'value')}; node {call.name} gives another number."
    for node in body.graph.nodes:
        if node.op not in ("placeholder", "output") and not elementwise(node):
            return f"The kernel {call.target} holds {node.name}, which does not compute element by element."
        if node.op.startswith("call_") and not node.users:
            return f"The kernel {call.target} computes {node.name}, and does not use it."
    return ""


def flat(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph with the operations of its kernels in their place."""
    graph = fx.Graph()
    copies: dict[fx.Node, Any] = {}
    for node in gm.graph.nodes:
        if node.op != "call_module":
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        body = attribute(gm, str(node.target)).graph
        operands = [copies.get(value, value) for value in node.args]
        copies[node] = graph.graph_copy(body, dict(zip(body.find_nodes(op="placeholder"), operands, strict=True)))
    return fx.GraphModule(gm, graph)


def _memories(gm: fx.GraphModule, inputs: tuple) -> list[int]:
    """Return, for each tensor that a graph returns, the first input or result that shares its memory, by number."""
    values = values_of(gm, inputs)
    places: dict[int, int] = {}
    *nodes, output = gm.graph.nodes
    parts = [values[node] for node in nodes if node.op == "placeholder"]
    tensors = [t for t in (*parts, *tree_leaves(values[output])) if isinstance(t, Tensor)]
    return [places.setdefault(t.untyped_storage()._cdata, at) for at, t in enumerate(tensors)]


def _work(gm: fx.GraphModule) -> int:
    return sum(map(elementwise, gm.graph.nodes))


def _launches(gm: fx.GraphModule) -> int:
    return len(_kernels(gm)) + _work(gm)


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: its kernels are kernels. `same`: results, writes and shared memory. `did`: kernels are few.
    `spared`: nothing is computed twice, and nothing is lost."""
    (before,) = case.build()
    reason = "" if isinstance(value, fx.GraphModule) else why_not_valid(before, value)
    reason = reason or why_not_ordered(value.graph) or _why_not_kernels(value)
    after = None if reason else flat(value)
    reason = reason or why_not_valid(before, after)
    yield Finding("valid", not reason, reason, before=before)
    if reason or after is None:
        return
    inputs = before.meta["inputs"]
    result = equivalent(before, after, inputs, aliasing=True)
    reason = "" if result.ok else result.reason
    if not reason and _memories(before, inputs) != _memories(after, inputs):
        reason = "Two results that were tensors of their own share memory now, or two that shared it do not."
    yield Finding("same", not reason, reason, before=before, after=value)
    limit, number = case.expect(), _launches(value)
    alone = [node for node in value.graph.nodes if elementwise(node)]
    rest = f" Not in a kernel yet: {listed(alone)}." if alone else ""
    enough = "1 is" if limit == 1 else f"{limit} are"
    reason = f"The element-wise operations take {plural(number, 'launch', 'launches')}; {enough} enough.{rest}"
    yield Finding("did", number <= limit, "" if number <= limit else reason, before=before, after=value)
    old, new = _work(before), _work(after)
    reason = f"The graph had {plural(old, 'element-wise operation')} and has {new}: compute each once."
    yield Finding("spared", old == new, "" if old == new else reason, before=before, after=value)
