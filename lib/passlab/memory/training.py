"""Training graphs: one FX graph with the loss and all gradients.

gm, inputs = joint(model, *example)
loss, *gradients = gm(*inputs)
"""

from __future__ import annotations

import warnings

import torch
from torch import fx, nn

from passlab.fx.programs import needing_gradients


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
    `requires_grad` of the model's parameters is restored.
    """
    from torch._functorch.aot_autograd import aot_export_module

    with needing_gradients(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gm, signature = aot_export_module(_Loss(model), example, trace_joint=True, output_loss_index=0)
    tensors = dict(_Loss(model).named_parameters()) | dict(_Loss(model).named_buffers())
    names = [*signature.parameters, *signature.buffers]
    return fx.GraphModule(gm, gm.graph), (*(tensors[name].detach() for name in names), *example)


def forward(model: nn.Module, *example: torch.Tensor) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """Return a model's forward graph in ATen operators, and the inputs to run it on: parameters, buffers, example."""
    exported = torch.export.export(model, example).run_decompositions()
    signature = exported.graph_signature
    tensors = exported.state_dict | exported.constants
    rest = iter(example)
    inputs = tuple(tensors[s.target].detach() if s.target is not None else next(rest) for s in signature.input_specs)
    gm = exported.graph_module
    return fx.GraphModule(gm, gm.graph), inputs
