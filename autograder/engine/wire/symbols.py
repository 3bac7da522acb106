"""Symbolic sizes as data: the notes on graphs that torch.compile captured.

A size that is a symbol, or made of symbols, travels as its text ("s77 - 1") and the number that it stood for. It comes
back as a symbol with that text, so that it is equal to, prints as, and stands for the same. What one is made of is not
taken apart: for torch, `s77 - 1` is then a symbol of its own. The text is never parsed.

A tensor without data (torch's FakeTensor) comes back as one with the same sizes, strides and dtype.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from passlab.process.refusal import Refused

Size = int | torch.SymInt

_TEXT = re.compile(r"[A-Za-z0-9_ .,+*/%()-]{1,1000}\Z")


def is_text(text: Any) -> bool:
    """Return whether `text` may name a symbolic size: it has no quotes and is on one line."""
    return type(text) is str and bool(_TEXT.match(text))


class _Origin(torch._guards.Source):
    """What torch calls a symbol where it says what it found out about it. (Its own sources import all of Dynamo.)"""

    def __init__(self, name: str):
        self.name = name


class Symbols:
    """The symbols and the tensors without data of one payload, which belong together. Made when one is met."""

    def __init__(self):
        self._sizes: dict[str, torch.SymInt] = {}
        self._env: Any = None
        self._mode: Any = None

    def size(self, text: str, number: int) -> torch.SymInt:
        """Return the symbolic size of this text, which stands for a number. One text stands for one number."""
        self._start()
        known = self._sizes.get(text)
        if known is None:
            known = self._sizes[text] = self._new(text, number)
        if known.node.hint != number:
            raise Refused("The payload has a symbolic size that stands for two numbers.")
        return known

    def _new(self, text: str, number: int) -> torch.SymInt:
        import sympy
        from torch.utils._sympy.numbers import int_oo
        from torch.utils._sympy.value_ranges import ValueRanges

        symbol = sympy.Symbol(text, integer=True)
        self._env.backed_var_to_val[symbol] = sympy.Integer(number)
        self._env.var_to_sources[symbol] = [_Origin(text)]
        self._env._update_var_to_range(symbol, ValueRanges(0 if number >= 0 else -int_oo, int_oo))
        return self._env.create_symintnode(symbol, hint=number)

    def tensor(self, sizes: Sequence[Size], strides: Sequence[Size], dtype: torch.dtype, grad: bool) -> torch.Tensor:
        """Return a tensor without data."""
        self._start()
        with self._mode:
            return torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype).requires_grad_(grad)

    def _start(self) -> None:
        if self._mode is None:
            from torch._subclasses.fake_tensor import FakeTensorMode
            from torch.fx.experimental.symbolic_shapes import ShapeEnv

            self._env = ShapeEnv()
            self._mode = FakeTensorMode(shape_env=self._env)
