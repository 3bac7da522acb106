"""Joint graphs that are drawn, and what a cut of one costs: shared by the exercises that split them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.fx.cases import seeded
from passlab.given.day14.partition import memory, part

aten = torch.ops.aten
#: Operations that the visible cases forbid to run twice.
DEAR = frozenset(
    {
        *(aten.mm.default, aten.addmm.default, aten.bmm.default),
        *(aten._softmax.default, aten.var_mean.correction),
    }
)
#: Functions that trust what a forward function has saved.
TRUSTING = (
    *(aten._softmax_backward_data, aten.sigmoid_backward, aten.slice_backward, aten.tanh_backward),
    *(aten.threshold_backward, aten.select_backward),
)


@cache
def _decompositions() -> dict:
    from torch._decomp import get_decompositions

    return get_decompositions(TRUSTING)


def traced(
    program: Callable[..., Sequence[Tensor]],
    shapes: Mapping[str, tuple[int, ...]],
    written: Mapping[str, tuple[int, ...]] | None = None,
    symbolic: bool = False,
) -> fx.GraphModule:
    """Return the joint graph of a program, as torch itself differentiates it.

    program(inputs by name) returns its outputs and then the new value of each input of `written`. The inputs of
    `shapes` get gradients. symbolic: whether sizes are symbols. Functions of torch that trust what a forward function
    has saved (`tanh_backward`) are written as other operations: they do not leave a notebook.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    written = written or {}
    inputs = [torch.randn(shape) for shape in shapes.values()] + [torch.rand(shape) + 0.5 for shape in written.values()]
    names = [*shapes, *written]
    with torch.no_grad():
        results = program(**dict(zip(names, inputs, strict=True)))
    outputs = len(results) - len(written)
    tangents = [torch.randn_like(result) for result in results[:outputs]]

    def run(*args: Any) -> list[Any]:
        with torch.enable_grad():
            leaves = [x.requires_grad_() for x in args[: len(shapes)]]
            results = program(**dict(zip(names, args, strict=False)))
            gradients = torch.autograd.grad(results[:outputs], leaves, args[len(names) :], allow_unused=True)
        return [*results[:outputs], *gradients, *results[outputs:]]

    mode = "symbolic" if symbolic else "fake"
    record: Any = make_fx  # its annotations are narrower than what it takes
    gm = record(run, _decompositions(), tracing_mode=mode)(*inputs, *tangents)
    placeholders = gm.graph.find_nodes(op="placeholder")
    for node, name in zip(placeholders, [*names, *(f"tangent_{i}" for i in range(outputs))], strict=True):
        node.name = node.target = name
    for node in gm.graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
    (end,) = gm.graph.find_nodes(op="output")
    results = list(end.args[0])
    with gm.graph.inserting_before(end):
        for name, value in zip(written, results[outputs + len(shapes) :], strict=True):
            target = placeholders[names.index(name)]
            gm.graph.call_function(aten.copy_.default, (target, value)).meta["val"] = target.meta["val"]
    end.args = (results[: outputs + len(shapes)],)
    needed = {end, *gm.graph.find_nodes(op="call_function", target=aten.copy_.default)}
    for node in reversed(gm.graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
        elif node.op != "placeholder":
            gm.graph.erase_node(node)
    gm.recompile()
    gm.meta["inputs"] = (*inputs, *tangents)
    return gm


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph of its own, with the same notes and inputs."""
    nodes = list(gm.graph.nodes)
    copy = part(gm, [n for n in nodes if n.op == "placeholder"], nodes[-1].args[0], [n for n in nodes if is_write(n)])
    copy.meta["inputs"] = tuple(value.clone() for value in gm.meta["inputs"])
    return copy


def is_write(node: fx.Node) -> bool:
    """Return whether a node writes into the memory of an operand."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def draws(node: fx.Node) -> bool:
    """Return whether a node draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


@dataclass(frozen=True)
class Joint:
    """A joint graph, taken apart.

    `forward`: the nodes that no tangent reaches, in order, without writes. `needed`: those of them that the gradients
    use, themselves or through nodes that a tangent reaches.
    """

    forward: tuple[fx.Node, ...]
    needed: frozenset[fx.Node]
    inputs: tuple[fx.Node, ...]
    tangents: tuple[fx.Node, ...]
    results: tuple[Any, ...]
    writes: tuple[fx.Node, ...]

    @classmethod
    def of(cls, gm: fx.GraphModule, outputs: int) -> Joint:
        nodes = list(gm.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        tangents = [node for node in placeholders if node.name.startswith("tangent")]
        writes = [node for node in nodes if is_write(node)]
        forward: dict[fx.Node, None] = {}
        for node in nodes[:-1]:
            if node not in tangents and node not in writes and forward.keys() >= set(node.all_input_nodes):
                forward[node] = None
        results = list(nodes[-1].args[0])
        live = {node for node in results[outputs:] if node is not None}
        for node in reversed(nodes):
            if node in live and node not in forward:
                live.update(node.all_input_nodes)
        return cls(
            *(tuple(forward), frozenset(node for node in live if node in forward)),
            *(tuple(node for node in placeholders if node not in tangents), tuple(tangents)),
            *(tuple(results), tuple(writes)),
        )

    def sizes(self) -> dict[fx.Node, int | None]:
        """Return forward node → bytes of saving it, or None for what is not to be saved.

        That is a tuple, and what is overwritten. A view costs as much as its base, from which it follows for nothing:
        so no cut is cheaper for saving both.
        """
        places_of: Any = memory
        overwritten = {places_of(node.args[0])[0] for node in self.writes}
        places = {node: memory(node) for node in self.forward}
        return {node: place[1] if place and place[0] not in overwritten else None for node, place in places.items()}

    def simple(self) -> int:
        """Return the bytes that are saved if nothing is computed twice: the memory of what the gradients use."""
        return sum(dict(place for node in self.needed if (place := memory(node))).values())

    def least(self, once: Collection[Any]) -> int:
        """Return the least bytes that can be saved if operations of `once` and random draws are not computed twice."""
        return sum(self.sizes()[node] or 0 for node in self.cut(once))

    def cut(self, once: Collection[Any]) -> list[fx.Node]:
        """Return a set of nodes that is least to save: a minimum cut (by OR-Tools)."""
        from ortools.graph.python import max_flow

        sizes, number = self.sizes(), {node: i for i, node in enumerate(self.forward)}
        infinite = sum(filter(None, sizes.values())) + 1
        source, sink = 2 * len(number), 2 * len(number) + 1
        flow = max_flow.SimpleMaxFlow()
        for node, i in number.items():
            size = sizes[node]
            flow.add_arc_with_capacity(2 * i, 2 * i + 1, infinite if size is None else size)
            if not repeatable(node, once):
                flow.add_arc_with_capacity(source, 2 * i, infinite)
            for operand in node.all_input_nodes:
                flow.add_arc_with_capacity(2 * number[operand] + 1, 2 * i, infinite)
            if node in self.needed:
                flow.add_arc_with_capacity(2 * i + 1, sink, infinite)
        flow.solve(source, sink)
        side = set(flow.get_source_side_min_cut())
        return [node for node, i in number.items() if 2 * i in side and 2 * i + 1 not in side]


def repeatable(node: fx.Node, once: Collection[Any]) -> bool:
    """Return whether a forward node may be computed a second time."""
    return node.op == "call_function" and node.target not in once and not draws(node)


# ---------------------------------------------------------------------------------------------------- drawn programs

UNARY = (torch.sin, torch.tanh, torch.exp, torch.sigmoid, torch.relu, torch.square, torch.cos)
BINARY = (torch.mul, torch.add, torch.sub, torch.mul)


def _normalized(x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, 1, keepdim=True, correction=0)
    return (x - mean) * (variance + 0.1).rsqrt()


_OF_ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "narrow": lambda x: x[:, : max(1, x.shape[1] // 3)],
    "mean": lambda x: x.mean(1, keepdim=True),
    "double": lambda x: torch.cat([x, x], 1),
    "softmax": lambda x: torch.softmax(x, -1),
    "norm": _normalized,
    "noise": lambda x: x * (torch.rand_like(x) > 0.3),
}
#: Operation → the width of its result, if it is not that of its operand.
_WIDTHS: dict[str, Callable[[int], int]] = {
    "narrow": lambda width: max(1, width // 3),
    "mean": lambda width: 1,
    "double": lambda width: 2 * width,
}


def _run(plan: list[tuple], **inputs: Tensor) -> list[Tensor]:
    """Return the results of a program, and what is to be written into its state."""
    values, new = [inputs["x"], inputs["y"]], []
    for kind, *rest in plan:
        x: Any = values[rest[-1]]
        if kind in ("unary", "binary"):
            value = rest[0](*(values[operand] for operand in rest[1:]))
        elif kind == "linear":
            value = F.linear(x, inputs[rest[0]])
        elif kind == "state":
            state = inputs["state"]
            new.append(0.9 * state + 0.1 * x.detach().mean())
            value = x * torch.cat([state] * 4)[: x.shape[1]].exp()
        else:
            value = _OF_ONE[kind](x)
        values.append(value)
    return [values[-1].sum(0), values[-2], *new]


def drawn(
    rng: random.Random, steps: int, *, noise: bool = False, state: bool = False, symbolic: bool = False
) -> Callable:
    """Return a function that builds the joint graph of a random program.

    noise: with a random mask. state: with an input that is read and written. symbolic: whether sizes are symbols.
    """
    rows = rng.randint(3, 9)
    widths = rng.sample(range(3, 24), 3)
    shapes: dict[str, tuple[int, ...]] = {"x": (rows, widths[0]), "y": (rows, widths[0])}
    written = {"state": (-(-widths[0] // 4),)} if state else {}
    plan: list[tuple] = []
    width = [widths[0], widths[0]]  # of each value so far

    def put(kind: str, *operands: Any, size: int) -> None:
        plan.append((kind, *operands))
        width.append(size)

    kinds = ["unary"] * 6 + ["binary"] * 4 + ["linear", "linear", "narrow", "softmax", "norm", "mean", "double"]
    for step in range(steps):
        at = rng.randrange(max(0, len(width) - 3), len(width))
        kind = rng.choice(kinds)
        if noise and step == steps // 2:
            put("noise", at, size=width[at])
        elif state and step == 1:
            put("state", 0, size=width[0])
        elif kind == "unary":
            put(kind, rng.choice(UNARY), at, size=width[at])
        elif kind == "binary":
            partners = [i for i, w in enumerate(width) if width[at] == w or 1 in (w, width[at])]
            other = rng.choice(partners)
            put(kind, rng.choice(BINARY), at, other, size=max(width[at], width[other]))
        elif kind == "linear":
            out = rng.choice(widths)
            shapes[f"w{step}"] = (out, width[at])
            put(kind, f"w{step}", at, size=out)
        else:
            put(kind, at, size=_WIDTHS.get(kind, int)(width[at]))

    return seeded(lambda: traced(partial(_run, plan), shapes, written, symbolic), rng.randrange(2**32))
