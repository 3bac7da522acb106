"""Training graphs: one FX graph with the loss and all gradients.

gm, inputs = joint(model, *example)
loss, *gradients = gm(*inputs)
"""

from __future__ import annotations

import warnings

import torch
from torch import fx, nn


class _Loss(nn.Module):
    """The mean square of a model's output: a loss for models without labels."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.model(*inputs).square().mean(),)


def joint(model: nn.Module, *example: torch.Tensor) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """Return the joint forward and backward graph of a model, in ATen operators, and the inputs to run it on.

    Its inputs are the parameters, the buffers and the example; it returns the loss and a gradient for each parameter.
    The model's parameters are left as they are, apart from `requires_grad`, which is given back.
    """
    from torch._functorch.aot_autograd import aot_export_module

    asked = [parameter.requires_grad for parameter in model.parameters()]
    model.requires_grad_(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gm, signature = aot_export_module(_Loss(model), example, trace_joint=True, output_loss_index=0)
    finally:
        for parameter, before in zip(model.parameters(), asked, strict=True):
            parameter.requires_grad_(before)
    held = dict(_Loss(model).named_parameters()) | dict(_Loss(model).named_buffers())
    names = [*signature.parameters, *signature.buffers]
    return fx.GraphModule(gm, gm.graph), (*(held[name].detach() for name in names), *example)


def forward(model: nn.Module, *example: torch.Tensor) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """Return a model's forward graph in ATen operators, and the inputs to run it on: parameters, buffers, example."""
    exported = torch.export.export(model, example).run_decompositions()
    signature = exported.graph_signature
    lifted = exported.state_dict | exported.constants
    inputs = [lifted[spec.target] if spec.target is not None else None for spec in signature.input_specs]
    rest = iter(example)
    given = tuple(value.detach() if isinstance(value, torch.Tensor) else next(rest) for value in inputs)
    gm = exported.graph_module
    return fx.GraphModule(gm, gm.graph), given
