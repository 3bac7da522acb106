"""Day 15, folding pairs into integer layers: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.equivalence.trials import nearby
from passlab.exercises.day15._results import constant_of, why_not_returned
from passlab.fx.cases import graph, live
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.nodes import attribute, op_name
from passlab.judge import Case, Finding, is_or_are, there_are
from passlab.quantization import dequantize, integer_conv2d, integer_linear, observe, quantize
from passlab.quantization.fold import definition, match
from passlab.quantization.graphs import argument, prune
from passlab.quantization.insert import insert

#: What a case decides in which nothing can be folded.
NONE = ("valid", "same", "spared")
#: By how much the inputs of the runs are multiplied: some values leave every grid.
SIZES = (1, 0.1, 40)
INTEGER = (integer_linear, integer_conv2d)


def fold_case(
    name: str,
    *shapes: Any,
    about: tuple[str, ...] = (),
    edit: Callable[[fx.GraphModule], None] | None = None,
    **parts: Any,
) -> Callable[[Callable], Case]:
    """Return a decorator that makes a case of a float program `body(m, *inputs)`; see `passlab.fx.cases.graph`.

    Pairs are put into it as the library does; `edit` changes the graph with pairs in place.
    """

    def case(body: Callable) -> Case:
        build = graph(body, *shapes, **parts)

        def arguments() -> tuple[fx.GraphModule]:
            gm = build()
            gm = insert(gm, observe(gm, [gm.meta["inputs"]]))
            if edit is not None:
                edit(gm)
                prune(gm)
            return (gm,)

        return Case(name, arguments, about)

    return case


def without_pair(*names: str) -> Callable[[fx.GraphModule], None]:
    """Return an edit after which what has read the pairs of some values reads the values."""

    def edit(gm: fx.GraphModule) -> None:
        for node in list(gm.graph.nodes):
            if node.target is dequantize and node.args[0].args[0].name in names:
                node.replace_all_uses_with(node.args[0].args[0])

    return edit


def with_bits(bits: int) -> Callable[[fx.GraphModule], None]:
    """Return an edit that puts all values on grids of some bits, with zero points that these have."""

    def edit(gm: fx.GraphModule) -> None:
        for node in gm.graph.nodes:
            if node.target in (quantize, dequantize) and isinstance(node.args[1], float):
                scale, zero_point = node.args[1] * 2 ** (8 - bits), node.args[2] >> (8 - bits)
                node.args = (node.args[0], scale, zero_point, bits)

    return edit


@fold_case("one layer", (2, 3), w=(4, 3), b=(4,))
def one(m: Any, x: Any) -> Any:
    return F.linear(x, m.w, m.b)


@fold_case("relu, and no bias", (5, 3), w=(4, 3))
def activated(m: Any, x: Any) -> Any:
    return torch.relu(F.linear(x, m.w))


@fold_case("two convolutions", (2, 3, 6, 6), w=(4, 3, 3, 3), b=(4,), v=(4, 2, 3, 3))
def convolutions(m: Any, x: Any) -> Any:
    y = torch.relu(F.conv2d(x, m.w, m.b, 2, 1))
    return F.conv2d(y, m.v, padding=1, groups=2)


@fold_case("a shared weight", (2, 3), w=(3, 3))
def shared(m: Any, x: Any) -> Any:
    return F.linear(F.linear(x, m.w), m.w)


@fold_case("a function that stays in float", (2, 4), w=(4, 4))
def softmax(m: Any, x: Any) -> Any:
    return torch.softmax(F.linear(x, m.w), 1)


@fold_case("no quantize behind it", (2, 4), about=NONE, edit=without_pair("linear"), w=(4, 4))
def bare(m: Any, x: Any) -> Any:
    return torch.tanh(F.linear(x, m.w))


# ---------------------------------------------------------------------------------------------------- the pattern


def layer_before(gm: fx.GraphModule, q: fx.Node) -> fx.Node | None:
    """Return the layer that a quantize makes an integer layer of, None if there is none."""
    if q.target is not quantize or not isinstance(q.args[1], float):
        return None
    node: Any = q.args[0]
    if node.target is torch.relu:
        node = node.args[0]
    if node.target not in (F.linear, F.conv2d):
        return None
    x, weight = node.args[:2]
    if x.target is not dequantize or weight.target is not dequantize:
        return None
    return node if fits(gm, x, weight, argument(node, 2, "bias")) else None


def fits(gm: fx.GraphModule, x: fx.Node, weight: Any, bias: Any) -> bool:
    """Return whether the integers of a bias are of int32."""
    if bias is None:
        return True
    grid = x.args[1] * attribute(gm, weight.args[1].target).double()
    return bool((torch.round(attribute(gm, bias.target).detach().double() / grid).abs() < 2**31).all())


class Stated(fx.Interpreter):
    """Run a graph with pairs: what folds by its definition in integers, all else as it stands."""

    def run_node(self, n: fx.Node) -> Any:
        gm: Any = self.module
        layer = match(n)
        if layer is None or layer_before(gm, n) is None:
            return super().run_node(n)
        return definition(gm, layer, n, self.env)


def needed(gm: fx.GraphModule) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return the nodes that are needed after the layers are folded, and the quantizes that become integer layers."""
    nodes: dict[Any, None] = {gm.graph.output_node(): None}
    folded: dict[fx.Node, None] = {}
    for node in reversed(gm.graph.nodes):
        if node in nodes and (layer := layer_before(gm, node)) is not None:
            del nodes[node]
            folded[node] = None
            dequantized: Any = layer.args[0]
            nodes[dequantized.args[0]] = None
        elif node in nodes:
            nodes |= dict.fromkeys(node.all_input_nodes)
    return list(nodes), list(folded)


def counts(nodes: list[fx.Node]) -> Counter[str]:
    """Return how often each function occurs besides integer layers."""
    return Counter(op_name(node) for node in nodes if node.op.startswith("call_") and node.target not in INTEGER)


# ---------------------------------------------------------------------------------------------------- the verdicts


def why_not_stated(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return where a graph differs from the stated integers, on ordinary, small and large inputs, or ""."""
    for size in SIZES:
        inputs = tuple(x * size for x in nearby(before.meta["inputs"]))
        with torch.no_grad():
            right = Stated(before, garbage_collect_values=False).run(*inputs)
        if reason := why_not_returned(right, after, inputs, partial(_why_other_integers, size)):
            return reason
    return ""


def _why_other_integers(size: float, a: Tensor, b: Tensor) -> str:
    """Compare bit for bit; `size`: that of the inputs."""
    if torch.equal(a, b):
        return ""
    where = tuple(int(i) for i in (a != b).nonzero()[0])
    count = f"{int((a != b).sum())} of {a.numel()} elements"
    return (
        f"differs from the stated integers in {count}, with inputs of about {size:g}: "
        f"at {list(where)} it is {b[where]:g}, not {a[where]:g}."
    )


def why_float(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return what is still computed in float, or ""."""
    required, folded = needed(before)
    nodes = live(after)
    integer = sum(node.target in INTEGER for node in nodes)
    if integer < len(folded):
        return f"{there_are(integer, 'integer layer')}; {len(folded)} {is_or_are(len(folded))} possible."
    old, new = counts(required), counts(nodes)
    excess = next((name for name in new if new[name] > old[name]), None)
    if excess is None:
        return ""
    return f"{there_are(new[excess], f'{excess} node')}; {old[excess]} {is_or_are(old[excess])} needed."


def why_too_much(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return which function is no longer computed in float, though it should be, or ""."""
    required, folded = needed(before)
    nodes = live(after)
    old, new = counts(required), counts(nodes)
    shortage = next((name for name in old if new[name] < old[name]), None)
    if shortage:
        return f"{there_are(new[shortage], f'{shortage} node')}; {old[shortage]} should stay."
    layers = [node for node in nodes if node.target in INTEGER]
    if len(layers) > len(folded):
        return f"There are {len(layers)} integer layers, where {len(folded)} can be."
    biases = sum(argument(node, 2, "bias") is not None for node in layers)
    floats: list[Any] = [layer_before(before, q) for q in folded]
    right = sum(argument(layer, 2, "bias") is not None for layer in floats)
    given = f"{there_are(biases, 'integer layer')} with a bias; {right} of the float layers "
    return f"{given}{'has' if right == 1 else 'have'} one: give the others None." if biases > right else ""


def why_stored_twice(after: fx.GraphModule) -> str:
    """Return which integers of weights are stored by two names, or ""."""
    names = {argument(node, 1, "weight").target for node in live(after) if node.target in INTEGER}
    tensors: list[tuple[str, Tensor]] = []
    for name in sorted(names):
        value = attribute(after, name)
        if twin := next((other for other, tensor in tensors if torch.equal(tensor, value)), None):
            return f"{twin} and {name} have the same integers."
        tensors.append((name, value))
    return ""


def why_operands(after: fx.GraphModule) -> str:
    """Return which integer layer has a weight that is not a constant of int8, or a bias that is not of int32, or ""."""
    for node in live(after):
        if node.target in INTEGER:
            value = constant_of(after, argument(node, 1, "weight"))
            if not isinstance(value, Tensor) or value.dtype != torch.int8:
                return f"The weight of {node.name}, its second operand, is not a get_attr of int8."
            bias = argument(node, 2, "bias")
            value = constant_of(after, bias)
            if bias is not None and (not isinstance(value, Tensor) or value.dtype != torch.int32):
                return f"The bias of {node.name}, its third operand, is neither None nor a get_attr of int32."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    (before,) = case.build()
    broken = why_not_valid(before, value) or why_operands(value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    after = rebuild(value)
    wrong = why_not_stated(before, after)
    yield Finding("same", not wrong, wrong, before=before, after=value)
    for verdict, reason in (
        ("spared", why_too_much(before, after)),
        ("did", why_float(before, after)),
        ("cost", why_stored_twice(after)),
    ):
        yield Finding(verdict, not reason, reason, before=before, after=value)
