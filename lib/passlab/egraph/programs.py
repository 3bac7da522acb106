"""Graphs of torch.fx as terms, with the type of each class, and back.

    graph = EGraph(Types(gm))
    roots = terms_of(gm, graph)
    saturate(graph, typed(LAWS))
    terms, launches, proved = cheapest_shared(graph, roots, launch)
    better = program_of(terms, gm)

The label of a call is its name ("add", "relu") if its operands are tensors and numbers by position, so that laws can be
written by hand; of another it is a `Call`, which holds what is not a tensor. Inputs, parameters and numbers are leaves.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from passlab.egraph.graph import Analysis, EGraph, Node, Term
from passlab.egraph.laws import Law, Match, Pattern
from passlab.fx.effects import has_effects
from passlab.fx.nodes import attribute, name_of

_OF_TORCH = "matmul relu exp log sqrt rsqrt tanh sigmoid abs square maximum minimum sin cos reciprocal where"
#: Name of a label → the function that a call of it becomes.
FUNCTIONS: dict[str, Callable] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "pow", "neg")},
    **{name: getattr(torch, name) for name in _OF_TORCH.split()},
}
_NAMES = {"div": "truediv", "mm": "matmul", "bmm": "matmul", "negative": "neg"}


@dataclass(frozen=True)
class Leaf:
    """An input of a program, a tensor that it holds, or a number in it. `kind`: "input", "attribute" or "number"."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Call:
    """A call that a law cannot name. `spec`: its arguments as a text, with "⟨0⟩" for its first tensor and so on."""

    op: str
    target: Any
    spec: str
    node: fx.Node = field(compare=False)

    def __str__(self) -> str:
        return name_of(self.target)


class TensorType(NamedTuple):
    shape: tuple[int, ...]
    dtype: torch.dtype


def number(value: float) -> Term:
    """Return a number as a term, for patterns: number(1) is an int, number(1.0) a float."""
    return (Leaf("number", repr(value)),)


def launch(label: Hashable) -> int:
    """Return 1 for what is computed, 0 for inputs, parameters and numbers: the cost that counts launches."""
    return int(not isinstance(label, Leaf))


def terms_of(gm: fx.GraphModule, graph: EGraph) -> list[int]:
    """Return the numbers of a program's results, in order, after adding all that they are made of.

    Raise ValueError for a program that writes, draws or prints: it is more than the terms of its results.
    """
    if has_effects(gm.graph):
        raise ValueError("The program has effects (it writes, draws or prints); only a program without is a term.")
    numbers: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            return [numbers[result] for result in node.all_input_nodes]
        if node.op in ("placeholder", "get_attr"):
            kind = "input" if node.op == "placeholder" else "attribute"
            numbers[node] = graph.add(Leaf(kind, str(node.target)))
            continue
        operands = [numbers[operand] for operand in node.all_input_nodes]
        name = _NAMES.get(name_of(node.target), name_of(node.target))
        plain = all(isinstance(arg, (fx.Node, int, float)) and not isinstance(arg, bool) for arg in node.args)
        if node.op != "call_module" and name in FUNCTIONS and plain and not node.kwargs:
            each = [numbers[a] if isinstance(a, fx.Node) else graph.add(*number(a)) for a in node.args]
            numbers[node] = graph.add(name, *each)
            continue
        numbers[node] = graph.add(Call(node.op, node.target, _spec(node), node), *operands)
    raise ValueError("The program has no output.")


def _spec(node: fx.Node) -> str:
    places = {operand: f"⟨{at}⟩" for at, operand in enumerate(node.all_input_nodes)}
    return repr(fx.node.map_arg((node.args, node.kwargs), lambda operand: places[operand]))


def program_of(terms: Sequence[Term], gm: fx.GraphModule) -> fx.GraphModule:
    """Return the program that computes terms from the inputs of `gm`, each shared part once.

    It returns what `gm` returns, in the same form, with one term for each result of `terms_of`.
    """
    graph = fx.Graph()
    built: dict[int, Any] = {}  # by the identity of a term: the hash of one that shares parts may take very long
    inputs = {str(node.target): graph.node_copy(node) for node in gm.graph.find_nodes(op="placeholder")}

    def value(term: Term) -> Any:
        label, *operands = term
        if isinstance(label, Leaf):
            if label.kind == "number":
                return _parsed(label.name)
            return inputs[label.name] if label.kind == "input" else graph.get_attr(label.name)
        values = [built[id(operand)] for operand in operands]
        if isinstance(label, Call):
            return graph.create_node(label.op, label.target, *_arguments(label, values))
        return graph.call_function(FUNCTIONS[label], tuple(values))

    todo = [*terms]
    while todo:
        waiting = [operand for operand in todo[-1][1:] if id(operand) not in built]
        todo += waiting
        if not waiting:
            term = todo.pop()
            if id(term) not in built:
                built[id(term)] = value(term)
    (output,) = gm.graph.find_nodes(op="output")
    results = dict(zip(output.all_input_nodes, [built[id(term)] for term in terms], strict=True))
    graph.output(fx.node.map_arg(output.args[0], lambda result: results[result]))
    return fx.GraphModule(gm, graph)


class Types(Analysis):
    """What each class is: the type of a tensor (or a tuple of them), or the text of a number.

    gm: the program, traced with its inputs. Two terms of different types never become equal: `union` raises TypeError,
    since a law was applied where it is false.
    """

    def __init__(self, gm: fx.GraphModule):
        self.gm, self._known = gm, dict[tuple, Any]()
        inputs = gm.graph.find_nodes(op="placeholder")
        self._inputs = {str(node.target): node.meta.get("tensor_meta") for node in inputs}
        if missing := [name for name, meta in self._inputs.items() if meta is None]:
            raise ValueError(f"Input {missing[0]} has no shape: trace the model with inputs, passlab.trace(model, x).")

    def make(self, graph: EGraph, node: Node) -> Any:
        return self.of(node[0], tuple(graph.facts[graph.find(operand)] for operand in node[1:]))

    def join(self, a: Any, b: Any) -> Any:
        if a != b:
            raise TypeError(f"A law made a value of type {a} equal to one of type {b}.")
        return a

    def of(self, label: Hashable, operands: tuple) -> Any:
        """Return the type of what a label makes of operands of these types."""
        key = label, operands
        if key not in self._known:
            self._known[key] = self._type(label, operands)
        return self._known[key]

    def _type(self, label: Any, operands: tuple) -> Any:
        if isinstance(label, Leaf):
            if label.kind == "number":
                return label.name
            value = self._inputs[label.name] if label.kind == "input" else attribute(self.gm, label.name)
            return TensorType(tuple(value.shape), value.dtype)
        values = [tree_map(_example, fact, is_leaf=lambda part: isinstance(part, TensorType)) for fact in operands]
        if isinstance(label, Call):
            args, kwargs = _arguments(label, values)
            target = label.target
            if label.op == "call_module":
                target = copy.deepcopy(self.gm.get_submodule(target)).to("meta")
            elif label.op == "call_method":
                target = getattr(Tensor, target)
            result = target(*args, **kwargs)
        else:
            result = FUNCTIONS[label](*values)
        return tree_map(_fact, tuple(result) if isinstance(result, torch.Size) else result)


class Folded(Types):
    """What `Types` knows, and numbers of numbers are computed: 2 · 2 is 4, and then nothing else."""

    def of(self, label: Hashable, operands: tuple) -> Any:
        if operands and all(isinstance(fact, str) for fact in operands) and label in FUNCTIONS:
            return repr(FUNCTIONS[str(label)](*map(_parsed, operands)))
        return super().of(label, operands)

    def modify(self, graph: EGraph, number: int) -> None:
        place = graph.find(number)
        if isinstance(graph.facts[place], str):
            leaf = graph.add(Leaf("number", graph.facts[place]))
            graph.union(place, leaf, "folded")
            place = graph.find(place)
            graph.nodes[place] = {node: None for node in graph.nodes[place] if isinstance(node[0], Leaf)}


def _arguments(label: Call, values: Sequence[Any]) -> tuple[tuple, dict]:
    """Return the arguments of a call with these values for its tensors."""
    named = dict(zip(label.node.all_input_nodes, values, strict=True))
    args, kwargs = fx.node.map_arg((label.node.args, dict(label.node.kwargs)), lambda operand: named[operand])
    return args, kwargs


def _fact(part: Any) -> Any:
    """Return the type of a tensor, a number as a text, and anything else as it is."""
    if isinstance(part, Tensor):
        return TensorType(tuple(part.shape), part.dtype)
    return repr(part) if isinstance(part, (int, float)) and not isinstance(part, bool) else part


def _example(fact: Any) -> Any:
    """Return a tensor of a type, without data, or the number that a text means; anything else as it is."""
    if isinstance(fact, TensorType):
        return torch.empty(fact.shape, dtype=fact.dtype, device="meta")
    return _parsed(fact) if isinstance(fact, str) else fact


def _parsed(text: str) -> float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def typed(laws: Sequence[Law]) -> list[Law]:
    """Return laws that apply only where both sides have one type, in a graph whose analysis is `Types`."""

    def same_type(law: Law) -> Law:
        def when(graph: EGraph, match: Match) -> bool:
            sides = (_type_of(graph, side, match) for side in (law.left, law.right))
            return next(sides) == next(sides) and (law.when is None or law.when(graph, match))

        return law._replace(when=when)

    return [same_type(law) for law in laws]


def _type_of(graph: EGraph, pattern: Pattern, match: Match) -> Any:
    if isinstance(pattern, str):
        return graph.facts[graph.find(match[pattern])]
    assert isinstance(graph.analysis, Types)
    try:
        return graph.analysis.of(pattern[0], tuple(_type_of(graph, operand, match) for operand in pattern[1:]))
    except (RuntimeError, TypeError):  # shapes that do not fit
        return object()
