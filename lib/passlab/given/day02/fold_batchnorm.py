"""Day 2, fold batch norm into the convolution: how an answer runs on a case, and a look-alike in its graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from passlab.fx.judge import rebuild
from passlab.judge import Case, module_travels


@module_travels
class Centred(nn.BatchNorm2d):
    """A look-alike: a subclass of BatchNorm2d that computes something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y - y.mean()


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Run the pass. Return its graph, and the model as the pass left it."""
    (gm,) = case.build()
    model = rebuild(gm)  # a second graph that keeps the original modules, whatever the pass does to gm
    return {"graph": answer(gm), "model": model}
