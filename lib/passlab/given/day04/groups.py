"""Day 4, FuseOps' groups: models as graphs of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab import models
from passlab.fx.reader import trace


def in_post_order(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the nodes that the output needs: inputs first, then operands before consumers, the first operand first."""
    [end] = gm.graph.find_nodes(op="output")
    ordered = dict.fromkeys(gm.graph.find_nodes(op="placeholder"))
    todo = [end]
    while todo:
        node = todo[-1]
        waiting = [n for n in node.all_input_nodes if n not in ordered]
        if waiting:
            todo.append(waiting[0])
        else:
            ordered[todo.pop()] = None
    made, copies = fx.Graph(), {}
    for node in ordered:
        copies[node] = made.node_copy(node, copies.__getitem__)
    found = fx.GraphModule(gm, made)
    found.meta.update(gm.meta)
    return found


class _Plain(fx.Transformer):
    """Replace modules by basic operations: a batch norm by a product and a sum, a Linear by a product and a bias."""

    def constant(self, name: str, value: torch.Tensor) -> fx.Proxy:
        name = name.replace(".", "_")
        self.module.register_buffer(name, value.detach().clone())
        return self.tracer.create_proxy("get_attr", name, (), {})

    def call_module(self, target: str, args: tuple, kwargs: dict) -> Any:
        layer, (x, *_) = self.module.get_submodule(target), args
        if isinstance(layer, nn.Linear | nn.Conv2d):
            w = self.constant(f"{target}_w", layer.weight)
            if isinstance(layer, nn.Linear):
                y, shape = F.linear(x, w), (-1,)
            else:
                y = F.conv2d(x, w, None, layer.stride, layer.padding, layer.dilation, layer.groups)
                shape = (-1, 1, 1)
            return y if layer.bias is None else y + self.constant(f"{target}_b", layer.bias.reshape(shape))
        if isinstance(layer, nn.BatchNorm2d):
            factor = layer.weight / torch.sqrt(layer.running_var + layer.eps)
            shift = layer.bias - layer.running_mean * factor
            scaled = x * self.constant(f"{target}_factor", factor.reshape(-1, 1, 1))
            return scaled + self.constant(f"{target}_shift", shift.reshape(-1, 1, 1))
        if isinstance(layer, nn.ReLU | nn.ReLU6):
            return torch.clamp(x, 0, 6) if isinstance(layer, nn.ReLU6) else torch.relu(x)
        if isinstance(layer, nn.MaxPool2d):
            return F.max_pool2d(x, layer.kernel_size, layer.stride, layer.padding)
        if isinstance(layer, nn.AdaptiveAvgPool2d):
            return F.adaptive_avg_pool2d(x, layer.output_size)
        if isinstance(layer, nn.Flatten):
            return x.flatten(layer.start_dim)
        return x if isinstance(layer, nn.Identity | nn.Dropout) else super().call_module(target, args, kwargs)


def plain(model: nn.Module, *inputs: torch.Tensor) -> fx.GraphModule:
    """Return the model as a graph of functions, with shapes, in post-order."""
    return in_post_order(trace(_Plain(fx.symbolic_trace(model.eval())).transform(), *inputs))


def zoo(name: str) -> Callable[[], fx.GraphModule]:
    return lambda: plain(models.ZOO[name].build(), *models.ZOO[name].inputs())
