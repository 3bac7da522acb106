"""Random networks to quantize: convolutions, sums, activations, pools and products, with weights as nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F

#: Sizes of the feature maps: the first dimension is the batch.
BATCH, CHANNELS, SIDE = 2, 4, 6


def random_network(seed: int, layers: int = 8) -> fx.GraphModule:
    """Return a network of about `layers` layers, determined by its seed; `gm.meta["inputs"]` are inputs for it.

    Its graph is as `functional` leaves them, with shapes. Feature maps are (BATCH, CHANNELS, SIDE, SIDE); at the end
    they are averaged, or flattened, or multiplied with each other, and a linear layer follows.
    """
    return _Builder(seed).network(layers)


class _Builder:
    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.gm = fx.GraphModule(nn.Module(), fx.Graph())
        self.graph = self.gm.graph
        self.count = 0

    def network(self, layers: int) -> fx.GraphModule:
        x = self.graph.placeholder("x")
        self.maps = [x]
        steps: list[Callable[[fx.Node], fx.Node]] = [self.conv, self.conv, self.add, self.activation, self.pool]
        for _ in range(layers):
            # mostly the newest, so that the network is deep; sometimes one before, so that values have two readers
            value = self.maps[-1] if self.rng.random() < 0.8 else self.rng.choice(self.maps[-4:])
            self.maps.append(self.rng.choice(steps)(value))
        self.graph.output(self.head(self.maps[-1]))
        self.gm.recompile()
        inputs = (self.draw(BATCH, CHANNELS, SIDE, SIDE),)
        ShapeProp(self.gm).propagate(*inputs)
        self.gm.meta["inputs"] = inputs
        return self.gm.eval()

    def draw(self, *sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=self.generator)

    def weight(self, *sizes: int) -> fx.Node:
        name = f"p{self.count}"
        self.count += 1
        inputs = max(1, int(torch.Size(sizes[1:]).numel()))
        self.gm.register_buffer(name, self.draw(*sizes) / inputs**0.5)
        return self.graph.get_attr(name)

    def conv(self, x: fx.Node) -> fx.Node:
        groups, dilation, size = self.rng.choice([(1, 1, 3), (1, 1, 1), (CHANNELS, 1, 3), (2, 1, 3), (1, 2, 3)])
        weight = self.weight(CHANNELS, CHANNELS // groups, size, size)
        bias = self.weight(CHANNELS) if self.rng.random() < 0.7 else None
        padding = dilation * (size // 2)
        out = self.graph.call_function(F.conv2d, (x, weight, bias, 1, padding, dilation, groups))
        return self.activation(out) if self.rng.random() < 0.5 else out

    def add(self, x: fx.Node) -> fx.Node:
        out = self.graph.call_function(torch.add, (x, self.rng.choice(self.maps)))
        return self.graph.call_function(torch.relu, (out,)) if self.rng.random() < 0.5 else out

    def activation(self, x: fx.Node) -> fx.Node:
        choice: Any = self.rng.choice([torch.relu, F.relu6, F.gelu, torch.tanh, F.silu, "scaled", "written out"])
        if choice == "scaled":
            return self.graph.call_function(torch.mul, (x, self.rng.choice([0.5, 1.75])))
        if choice == "written out":  # a function of one value in several nodes
            return self.graph.call_function(torch.mul, (x, self.graph.call_function(torch.sigmoid, (x,))))
        return self.graph.call_function(choice, (x,))

    def pool(self, x: fx.Node) -> fx.Node:
        choice = self.rng.choice(["pool", "transpose", "reshape"])
        if choice == "pool":
            return self.graph.call_function(F.max_pool2d, (x, 3, 1, 1))
        if choice == "transpose":
            return self.graph.call_function(torch.transpose, (x, 2, 3))
        flat = self.graph.call_function(torch.flatten, (x, 2))
        return self.graph.call_method("reshape", (flat, BATCH, CHANNELS, SIDE, SIDE))

    def head(self, x: fx.Node) -> fx.Node:
        choice, inputs = self.rng.choice(["mean", "flat", "product"]), CHANNELS * SIDE**2
        if choice == "mean":
            x, inputs = self.graph.call_function(torch.mean, (x, (2, 3))), CHANNELS
        else:
            if choice == "product":
                other = self.graph.call_function(torch.transpose, (self.rng.choice(self.maps), 2, 3))
                x = self.graph.call_function(torch.matmul, (x, other))
            x = self.graph.call_function(torch.flatten, (x, 1))
        out = self.graph.call_function(F.linear, (x, self.weight(8, inputs), self.weight(8)))
        out = self.graph.call_function(torch.relu, (out,))
        return self.graph.call_function(F.linear, (out, self.weight(3, 8)))
