"""Write cases over FX graphs: a program, and the expectations of a pass over it.

    @case("two equal products", graph(..., (2, 3), w=(3, 4)), did=[most("matmul", 1, "…")])
    def products(m, x):
        return x @ m.w + x @ m.w

An expectation is a function (before, after) → None, or a message that says what is wrong. It counts operations, and
asks neither for names nor for the order of nodes, so that every right answer meets it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, fx, nn

from passlab import judge
from passlab.fx.effects import effects
from passlab.fx.judge import judge_pass
from passlab.fx.nodes import attribute, op_name
from passlab.fx.reader import trace
from passlab.judge import Case, Expect, Finding, as_decorator, listed, plural
from passlab.judge.expect import Expectation

# ---------------------------------------------------------------------------------------------------- programs


def seeded(build: Callable[[], Any], seed: int = 0) -> Callable[[], Any]:
    """Make `build` draw the same random numbers at every call; the caller's random state does not change.

    A function that `seeded` or `graph` returned draws from this seed instead of its own.
    """
    unseeded = getattr(build, "unseeded", build)

    @wraps(unseeded)
    def again() -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed % 2**64)  # torch takes no wider ones
            return unseeded()

    setattr(again, "unseeded", unseeded)  # noqa: B010  (mypy knows no attributes of functions)
    return again


@as_decorator
def graph(body: Callable, *shapes: Any, training: bool = False, **parts: Any) -> Callable[[], fx.GraphModule]:
    """Return a function that traces `body(self, *inputs)` anew at every call, with shapes on the nodes.

    An input is a shape (normal numbers) or a tensor. `parts` are the attributes of `self`: a shape or tensor becomes a
    parameter, a callable (say `lambda: nn.Linear(4, 4)`) is called for what it makes.

    >>> graph(lambda m, x: m.lin(x) @ m.w, (2, 4), lin=lambda: nn.Linear(4, 4), w=(4, 4))
    """

    def build() -> fx.GraphModule:
        root = type("Program", (nn.Module,), {"forward": body})()
        for name, part in parts.items():
            value = torch.randn(part) if isinstance(part, tuple) else part() if callable(part) else part
            if isinstance(value, Tensor):  # torch.fx computes with buffers while it traces; parameters become get_attr
                value = nn.Parameter(value.clone(), requires_grad=False)
            setattr(root, name, value)
        inputs = [shape.clone() if isinstance(shape, Tensor) else torch.randn(shape) for shape in shapes]
        return trace(root.requires_grad_(False).train(training), *inputs)

    return seeded(build)


def call(target: Callable, *args: Any, **kwargs: Any) -> fx.Proxy:
    """Put a call of `target` into the graph that is being traced: for what tracing cannot see, as `x[0] = 1`."""
    tracer = next(a.tracer for a in args if isinstance(a, fx.Proxy))
    return tracer.create_proxy("call_function", target, args, kwargs)


def store(x: fx.Proxy, index: Any, value: Any) -> fx.Proxy:
    """Return x after `x[index] = value`."""
    return call(operator.setitem, x, index, value)


def read(x: fx.Proxy, name: str) -> fx.Proxy:
    """Read `self.name` once more, by a separate get_attr node (tracing makes one for each name)."""
    return x.tracer.create_proxy("get_attr", name, (), {})


# ---------------------------------------------------------------------------------------------------- counting


def live(gm: fx.GraphModule) -> list[fx.Node]:
    """Return the live nodes: those that the output needs, those with effects, and their operands."""
    nodes: set[fx.Node] = set()
    for node in reversed(gm.graph.nodes):
        if node in nodes or effects(node):
            nodes.update(node.all_input_nodes)
            nodes.add(node)
    return [node for node in gm.graph.nodes if node in nodes]


def parameters(gm: fx.GraphModule) -> int:
    """Count the floats in the parameters and buffers that live nodes use.

    A shared tensor counts once, and one of a single number, such as a scale, does not.
    """
    tensors: list[object] = []
    for node in live(gm):
        if node.op == "call_module":
            module = gm.get_submodule(node.target)
            tensors += [*module.parameters(), *module.buffers()]
        elif node.op == "get_attr":
            tensors.append(attribute(gm, node.target))
    floats = (t for t in tensors if isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() > 1)
    return sum({id(t): t.numel() for t in floats}.values())


# ---------------------------------------------------------------------------------------------------- expectations


def most(op: str, number: int, why: str, *, dead: bool = False) -> Expectation:
    """Expect at most `number` nodes with `op`. Dead nodes do not count, unless `dead`."""

    def count(after: fx.GraphModule) -> tuple[int, str]:
        nodes = [n for n in (after.graph.nodes if dead else live(after)) if op_name(n, after) == op]
        return len(nodes), f"{plural(len(nodes), f'{op} node')} ({listed(nodes)})"

    return judge.at_most(number, why, count)


def least(op: str, number: int, why: str) -> Expectation:
    """Expect at least `number` nodes with `op`. Dead nodes do not count."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        nodes = [n for n in live(after) if op_name(n, after) == op]
        if len(nodes) >= number:
            return None
        old = [n for n in before.graph.nodes if op_name(n, before) == op]
        if len(old) == number:
            return f"{why} {listed(old)} should have stayed" + ("." if number == 1 else f"; {len(nodes)} did.")
        return f"{why} Of {listed(old)}, {number} should have stayed; {len(nodes)} did."

    return law


def nodes(number: int, why: str, *, dead: bool = False) -> Expectation:
    """Expect at most `number` nodes in all, placeholders and output included. Dead ones do not count, unless `dead`."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        count = len(after.graph.nodes) if dead else len(live(after))
        if count <= number:
            return None
        return f"{why} {plural(len(before.graph.nodes), 'node')} became {count}; {number} are enough."

    return law


def expecting(**equivalence: Any) -> Callable[[Case, object], Iterator[Finding]]:
    """Return the judge: valid, same, then the expectations. Keyword arguments go to `equivalent`."""
    return judge.expecting(judge_pass, **equivalence)


@as_decorator
def unrun(body: Callable, shape: tuple[int, ...], **parts: tuple[int, ...]) -> Callable[[], fx.GraphModule]:
    """As `graph`, for a program that no machine has the memory to run: it is traced without data, which comes later."""

    def build() -> fx.GraphModule:
        empty = {name: torch.empty(size, device="meta") for name, size in parts.items()}
        gm = graph(body, torch.empty(shape, device="meta"), **empty)()
        for name, size in parts.items():
            setattr(gm, name, nn.Parameter(torch.randn(size), requires_grad=False))
        gm.meta["inputs"] = (torch.randn(shape),)
        return gm

    return seeded(build)


@as_decorator
def case(name: str, build: Callable[[], fx.GraphModule], *rest: Any, **expect: Sequence[Expectation]) -> Case:
    """Return a case about exactly the verdicts that something is expected of, besides valid and same.

    `rest` are the answer's further arguments.
    """
    about = ("valid", "same", *expect)
    return Case(name, lambda: (build(), *rest), about, expect=Expect(**expect))
