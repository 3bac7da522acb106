"""Day 17, oracle: a program and its inputs in float64."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn


def widened(gm: fx.GraphModule, inputs: Sequence[Tensor]) -> tuple[fx.GraphModule, tuple[Tensor, ...]]:
    """Return a copy of a program and of its inputs in which all floats are float64.

    What shares memory shares it in the copy, too. Types that the program names itself stay as they are.
    """
    gm, inputs = copy.deepcopy((gm, tuple(inputs)))
    wide: dict[int, Tensor] = {}
    for module in gm.modules():
        homes: tuple[dict, ...] = (module._parameters, module._buffers, module.__dict__)
        for home in homes:
            for name, x in list(home.items()):
                if isinstance(x, Tensor):
                    home[name] = _widened(x, wide)
    return gm, tuple(_widened(x, wide) for x in inputs)


def _widened(x: Tensor, wide: dict[int, Tensor]) -> Tensor:
    """Return a tensor in float64. `wide`: address of a memory → all its numbers in float64."""
    if not x.is_floating_point() or not x.numel():
        return x
    storage = x.untyped_storage()
    if storage.data_ptr() not in wide:
        whole = torch.empty(0, dtype=x.dtype).set_(storage, 0, (storage.nbytes() // x.element_size(),), (1,))
        wide[storage.data_ptr()] = whole.double()
    result = wide[storage.data_ptr()].as_strided(x.size(), x.stride(), x.storage_offset())
    return nn.Parameter(result, requires_grad=False) if isinstance(x, nn.Parameter) else result
