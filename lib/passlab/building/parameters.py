"""Parameters of modules. Without torch, which the process that builds for TVM does not load."""

from __future__ import annotations

from typing import NamedTuple


class Parameter(NamedTuple):
    """A parameter of `main`: a shape it accepts, and whether that was chosen (for a dimension of unknown size)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    symbolic: bool
