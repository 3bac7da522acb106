"""Shrinking a module of Relay or Relax to a smaller one that still fails.

    shrink(module, fails, budget=200)     # fails(module) -> bool

Both have one form: returned expressions, and *items* that are bound before (Relax's bindings; in Relay only lets, since
its other expressions are a graph already).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from passlab.equivalence import shrinking
from passlab.tvm.dialect import own
from passlab.tvm.modules import nodes, type_of, typed


def shrink(module: Any, fails: Callable[[Any], bool], budget: int = 300, *, drop_parameters: bool = False) -> Any:
    """Return a smaller well-typed module for which `fails` is still true, found with at most `budget` calls of it.

    Calls are replaced by an operand, a parameter or a constant of the same type; outputs and unused values are dropped,
    parameters only with `drop_parameters`. A `fails` that raises counts as false. Only `main` shrinks. Raises
    ValueError if `fails(module)` is false.
    """
    module = typed(module)
    if not fails(module):
        raise ValueError("shrink expects a module that fails, but `fails` is false for this one.")
    search = _Shrinker(own("shrink").Form(module), fails, budget - 1)
    small = search.run()
    if drop_parameters and search.attempt(_Edit(parameters=search.read_parameters())):
        small = search.state.program
    return small


class Form:
    """A module with its main function taken apart: `params`, `items` (variable, value) and `outputs`."""

    params: list[Any]
    items: list[tuple[Any, Any]]
    outputs: list[Any]

    def __init__(self, module: Any):
        self.program = module
        self.main = module["main"]
        self.params = list(self.main.params)
        self.items, self.outputs = self.take_apart()

    def take_apart(self) -> tuple[list, list]:
        """Return the items and the outputs."""
        raise NotImplementedError

    def nodes(self) -> list[Any]:
        """Return the replaceable expressions, operands first."""
        raise NotImplementedError

    def operands(self, node: Any) -> list[Any]:
        raise NotImplementedError

    def constant(self, type: Any) -> Any:
        """Return a constant of a type, or None for a type without constants."""
        raise NotImplementedError

    def unused(self) -> list[Any]:
        """Return the variables of unused items."""
        raise NotImplementedError

    def rebuild(self, outputs: list, drop: Sequence, replace: dict, parameters: Sequence) -> Any:
        """Return the edited module, without what has become unreachable."""
        raise NotImplementedError

    @property
    def size(self) -> tuple[int, int, int, int]:
        """The numbers of calls, other expressions, outputs and parameters, compared in this order."""
        return len(nodes(self.program, "main")), len(self.nodes()), len(self.outputs), len(self.params)

    def type(self, expr: Any) -> str:
        return str(type_of(expr))

    def stand_ins(self, node: Any) -> list[Any]:
        """Return replacements for a node: operands, parameters, a constant, all of its type."""
        kind = self.type(node)
        same = [e for e in [*self.operands(node), *self.params] if self.type(e) == kind]
        constant = self.constant(type_of(node))
        return [*same, *([] if constant is None else [constant])]

    def numbers(self, shape: Iterable[Any], dtype: str) -> Any:
        """Return a constant that is neither 0 nor 1 nor uniform."""
        shape = tuple(int(n) for n in shape)
        count = math.prod(shape)
        array = np.linspace(0.5, 1.5, count) if dtype.startswith("float") else np.arange(1, count + 1)
        return array.reshape(shape).astype(dtype)


@dataclass
class _Edit:
    """The changes to make; None: no change."""

    outputs: list | None = None
    drop: Sequence = ()
    replace: dict = field(default_factory=dict)
    parameters: Sequence | None = None


class _Shrinker(shrinking.Shrinker):
    state: Form

    def steps(self) -> Sequence[Callable[[], None]]:
        return self.return_one, self.drop_outputs, self.drop_unused, self.replace_nodes

    def edited(self, edit: _Edit) -> Form | None:
        form = self.state
        outputs = form.outputs if edit.outputs is None else edit.outputs
        parameters = form.params if edit.parameters is None else edit.parameters
        try:
            return type(form)(form.rebuild(outputs, edit.drop, edit.replace, parameters))
        except Exception:  # ill-typed, so not a candidate
            return None

    def return_one(self) -> None:
        """Return one inner node instead of all outputs: early ones first, at most 16 of them in one round."""
        nodes = [n for n in self.state.nodes() if not self.state.type(n).startswith(("(", "R.Tuple", "Tuple"))]
        unused = self.state.unused()
        for node in [*shrinking.sample(nodes), *nodes[-1:]]:
            if self.attempt(_Edit([node], unused)) or self.attempt(_Edit([node])):
                return

    def drop_outputs(self) -> None:
        i = len(self.state.outputs) - 1
        while i >= 0 and len(self.state.outputs) > 1:
            self.attempt(_Edit([e for j, e in enumerate(self.state.outputs) if j != i]))
            i -= 1

    def drop_unused(self) -> None:
        if self.attempt(_Edit(drop=self.state.unused())):
            return
        for i in reversed(range(len(self.state.unused()))):
            if i < len(self.state.unused()):
                self.attempt(_Edit(drop=[self.state.unused()[i]]))

    def replace_nodes(self) -> None:
        """Replace nodes, later ones first, by their stand-ins."""
        i = len(self.state.nodes()) - 1
        while i >= 0 and self.budget > 0:
            if i < len(self.state.nodes()):
                node = self.state.nodes()[i]
                any(self.attempt(_Edit(replace={node: other})) for other in self.state.stand_ins(node))
            i -= 1

    def read_parameters(self) -> list[Any]:
        form = self.state
        read = {o for node in form.nodes() for o in form.operands(node)} | set(form.outputs)
        return [p for p in form.params if p in read]
