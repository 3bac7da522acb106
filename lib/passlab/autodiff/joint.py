"""Reverse-mode differentiation of a graph: from a forward graph to a joint graph, which also computes gradients."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from passlab.autodiff.rules import CONSTANT, RULES, fit
from passlab.fx.nodes import op_name
from passlab.fx.reader import describe
from passlab.judge.words import listed


class DifferentiationError(ValueError):
    """A graph that cannot be differentiated; the message names the node and, where it is known, the line."""


def joint(gm: fx.GraphModule, wrt: Sequence[str] | None = None) -> fx.GraphModule:
    """Return the joint graph of a functional ATen graph: its outputs, then the gradients of its inputs.

    It takes the inputs of `gm` and then, for each differentiable output, its *tangent*: the gradient of the loss by it
    (1 for a loss itself). wrt: names of the inputs whose gradients are wanted; by default all that are floats. An input
    that does not reach any output gets zeros. Types come from `node.meta["val"]`, which `lower` and torch.export write.

    The method: walk the graph backwards; each operation's rule (see `rules`) turns the gradient of its result into
    gradients of its operands, and where a value has several consumers, their gradients are added.

    Raises DifferentiationError if inputs are floats and no output is, and for an operation without a rule, a complex
    number that a gradient would pass, a write, an unknown type, and what is no graph.
    """
    if not isinstance(gm, fx.GraphModule):
        raise DifferentiationError(
            f"joint differentiates a graph; got a {type(gm).__name__}. Make the graph of a function or module first: "
            "passlab.capture.lower(f, *inputs).forward."
        )

    def gradients(inputs: list[Any], tangents: dict[fx.Node, Any], targets: list[fx.Node]) -> list[Any]:
        env = _forward(gm, inputs)
        grads = _backward(gm, env, dict(tangents), set(targets))
        return _returned(gm, env) + _or_zeros([grads.get(node) for node in targets], targets, env)

    _check(gm, _targets(gm, wrt), ends_of(gm))
    return _traced(gm, wrt, gradients)


def torch_joint(gm: fx.GraphModule, wrt: Sequence[str] | None = None) -> fx.GraphModule:
    """Return what `joint` returns, computed by torch's own autograd: the graph to compare it with.

    torch has no gradient of some inputs (the statistics of a batch norm): `wrt` must not name them. Raises
    DifferentiationError for an unknown type, and torch's own errors where it cannot differentiate.
    """

    def gradients(inputs: list[Any], tangents: dict[fx.Node, Any], targets: list[fx.Node]) -> list[Any]:
        places = gm.graph.find_nodes(op="placeholder")
        leaves = [x.detach().requires_grad_() if node in targets else x for node, x in zip(places, inputs, strict=True)]
        with torch.enable_grad():
            env = _forward(gm, leaves, {torch.ops.aten.copy.default: _copied})
            ends = [node for node in tangents if env[node].requires_grad]
            grads: Sequence[Any] = [None] * len(targets)
            if ends and targets:
                grads = torch.autograd.grad(
                    [env[node] for node in ends],
                    [env[node] for node in targets],
                    [tangents[node] for node in ends],
                    allow_unused=True,
                )
        outputs = [x.detach() if isinstance(x, Tensor) else x for x in _returned(gm, env)]
        return outputs + _or_zeros(grads, targets, env)

    return _traced(gm, wrt, gradients)


def _or_zeros(gradients: Sequence[Any], nodes: Sequence[fx.Node], env: dict[fx.Node, Any]) -> list[Any]:
    """Return the gradients of nodes, zeros in place of None."""
    return [torch.zeros_like(env[n]) if g is None else g for g, n in zip(gradients, nodes, strict=True)]


def _copied(x: Tensor, new: Tensor, wait: bool = False) -> Tensor:
    """Return what aten.copy returns, by operations of which torch has a derivative."""
    return new.to(x.dtype).expand(x.shape)


def _traced(gm: fx.GraphModule, wrt: Sequence[str] | None, gradients: Callable[..., list[Any]]) -> fx.GraphModule:
    """Return the graph of `gradients(inputs, {output: tangent}, targets)`."""
    inputs, ends, targets = gm.graph.find_nodes(op="placeholder"), ends_of(gm), _targets(gm, wrt)
    values = [_value(node) for node in inputs]

    def run(*args: Any) -> list[Any]:
        return gradients(list(args[: len(inputs)]), dict(zip(ends, args[len(inputs) :], strict=True)), targets)

    tangents = [torch.empty_like(_value(node)) for node in ends]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        result = make_fx(run, tracing_mode="fake")(*values, *tangents)
    name_inputs(result, [*(node.name for node in inputs), *(f"tangent_{node.name}" for node in ends)])
    return result


def outputs_of(gm: fx.GraphModule) -> list[Any]:
    """Return the outputs of a graph in one list: nodes, numbers and None."""
    return list(pytree.tree_leaves(gm.graph.find_nodes(op="output")[0].args[0]))


def ends_of(gm: fx.GraphModule) -> list[fx.Node]:
    """Return the outputs that are tensors of floats, each once."""
    return [node for node in dict.fromkeys(outputs_of(gm)) if isinstance(node, fx.Node) and differentiable(node)]


def _returned(gm: fx.GraphModule, env: dict[fx.Node, Any]) -> list[Any]:
    return [env[node] if isinstance(node, fx.Node) else node for node in outputs_of(gm)]


def _forward(
    gm: fx.GraphModule, inputs: Sequence[Any], instead: Mapping[Any, Callable] | None = None
) -> dict[fx.Node, Any]:
    """Return the value of each node. `instead`: operation → what to call in its place."""
    env: dict[fx.Node, Any] = {}
    rest = iter(inputs)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            env[node] = next(rest)
        elif node.op == "get_attr":
            env[node] = getattr(gm, node.target)
        elif node.op == "call_function":
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
            env[node] = (instead or {}).get(node.target, node.target)(*args, **kwargs)
    return env


def _backward(
    gm: fx.GraphModule, env: dict[fx.Node, Any], gradients: dict[fx.Node, Any], targets: set[fx.Node]
) -> dict[fx.Node, Any]:
    """Return node → gradient for the nodes that the targets reach, from the gradients of the outputs."""
    needed = _reached(gm, targets)
    for node in reversed(gm.graph.nodes):
        if node.op != "call_function" or node not in gradients or node not in needed:
            continue
        g = gradients[node]
        if node.target is operator.getitem:
            source, index = node.args
            parts = list(gradients.get(source, [None] * len(env[source])))
            parts[index] = g if parts[index] is None else parts[index] + g
            gradients[source] = tuple(parts)
        elif node.target not in CONSTANT:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
            back = RULES[node.target].apply(g, env[node], *args, **kwargs)
            for operand, gradient in _pairs(node.args, back):
                if operand in needed and gradient is not None:
                    gradient = fit(gradient, env[operand])
                    gradients[operand] = gradients[operand] + gradient if operand in gradients else gradient
    return gradients


def _pairs(args: Sequence[Any], gradients: Sequence[Any]) -> list[tuple[fx.Node, Any]]:
    """Return (operand, its gradient) for the operands that are nodes, those in lists, too."""
    pairs = []
    for arg, gradient in zip(args, gradients, strict=False):
        if isinstance(arg, fx.Node):
            pairs.append((arg, gradient))
        elif isinstance(arg, (list, tuple)) and gradient is not None:
            pairs += [(part, g) for part, g in zip(arg, gradient, strict=True) if isinstance(part, fx.Node)]
    return pairs


def _reached(gm: fx.GraphModule, targets: set[fx.Node]) -> set[fx.Node]:
    """Return the nodes whose value depends on a target in a way that a gradient can follow."""
    reached = set(targets)
    for node in gm.graph.nodes:
        follows = node.op == "call_function" and node.target not in CONSTANT
        floats = differentiable(node) or isinstance(node.meta.get("val"), (list, tuple))
        if follows and floats and not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
    return reached


def _value(node: fx.Node) -> Any:
    if "val" not in node.meta:
        raise DifferentiationError(
            f"The type of {node.name!r} is not known: its meta has no 'val'. Make the graph with passlab.capture.lower."
        )
    return node.meta["val"]


def differentiable(node: fx.Node) -> bool:
    """Return whether the value of a node is a tensor of floats (or of complex numbers, which are refused later)."""
    value = node.meta.get("val")
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _is_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_complex()


def _outputs(gm: fx.GraphModule) -> str:
    """Return the outputs of a graph with their types, as in "argmax: int64[3]"."""
    return listed([f"{one}: {describe(one.meta.get('val'))[1]}" for one in outputs_of(gm) if isinstance(one, fx.Node)])


def _targets(gm: fx.GraphModule, wrt: Sequence[str] | None) -> list[fx.Node]:
    """Return the inputs whose gradients are wanted."""
    inputs = gm.graph.find_nodes(op="placeholder")
    for node in inputs:
        _value(node)
    by_name = {node.name: node for node in inputs}
    if wrt is None:
        return [node for node in inputs if differentiable(node)]
    for name in wrt:
        if name not in by_name:
            raise DifferentiationError(f"wrt names {name!r}, which is not an input; inputs: {', '.join(by_name)}.")
        if not differentiable(by_name[name]):
            raise DifferentiationError(f"wrt names {name!r}, which is not a tensor of floats: it has no gradient.")
    return [by_name[name] for name in wrt]


def _check(gm: fx.GraphModule, targets: Sequence[fx.Node], ends: Sequence[fx.Node]) -> None:
    """Raise for what no gradient can pass."""
    if targets and not ends:
        raise DifferentiationError(
            f"No output is a tensor of floats ({_outputs(gm)}): integers have no gradient. Return the value that they "
            "are computed from, too, or convert one to floats."
        )
    needed, live = _reached(gm, set(targets)), set(ends)
    for node in reversed(gm.graph.nodes):
        if node.op in ("call_module", "call_method"):
            raise DifferentiationError(
                f"{node.name} is a {node.op}; joint wants ATen operations: use passlab.capture.lower."
            )
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            raise DifferentiationError(
                f"{node.name} writes in place ({schema.name}); make the graph functional first: use lower."
            )
        if node not in live or node not in needed or node.op != "call_function":
            continue
        live.update(node.all_input_nodes)
        parts = [one for one in (node, *node.all_input_nodes) if _is_complex(one)]
        if parts:
            raise DifferentiationError(
                f"{parts[0].name} is complex; these rules are for real numbers: compute both parts apart.{_line(node)}"
            )
        if node.target is not operator.getitem and node.target not in RULES:
            raise DifferentiationError(
                f"{node.name} calls {op_name(node)} ({node.target}), which has no rule in "
                f"passlab.autodiff.RULES: add one, or write the node as others.{_line(node)}"
            )


def _line(node: fx.Node) -> str:
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    places = [i for i, line in enumerate(lines) if line.startswith("File ")]
    return f" It comes from {lines[places[-1]].removeprefix('File ')}: {lines[places[-1] + 1]}" if places else ""


def name_inputs(gm: fx.GraphModule, names: Sequence[str]) -> None:
    """Rename the placeholders of a graph."""
    used: set[str] = set()
    for node, name in zip(gm.graph.find_nodes(op="placeholder"), names, strict=True):
        while name in used:  # a joint graph of a joint graph
            name += "_again"
        used.add(name)
        node.name = node.target = name
    gm.recompile()
