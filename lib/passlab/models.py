"""The zoo: models small enough to read, with seeded weights, from one linear layer to ResNet-50.

    from passlab import models
    models.ZOO["resnet18"].build()      # as in the table, in eval mode, the same weights every time
    models.ZOO["resnet18"].inputs(4)    # example inputs for it, a batch of four
    models.vit(depth=2, seed=1)         # a model with other parameters

Reading order: the table and its seed, the weights, then the models from small to large. All of them go through
`torch.fx.symbolic_trace` and `torch.export.export`. Nothing is downloaded, and torch's global random state is neither
read nor changed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Model:
    """One row of the zoo: `build()` makes a new model, `inputs(batch=2, seed=0)` returns a tuple of example tensors."""

    name: str
    build: Callable[..., nn.Module]
    inputs: Callable[..., tuple[Tensor, ...]]


#: Name → model, from small to large.
ZOO: dict[str, Model] = {}


def zoo(*shape: int, **small) -> Callable:
    """Enter the decorated model into `ZOO`; its example inputs are normal numbers of shape (batch, *shape).

    The decorated function takes a `seed` and returns an eval-mode module without gradients. Its own defaults are the
    published architecture; `small` holds the arguments of the zoo's row, so that the row runs fast on a laptop.
    """

    def inputs(batch: int = 2, seed: int = 0) -> tuple[Tensor, ...]:
        return (torch.randn(batch, *shape, generator=torch.Generator().manual_seed(seed % 2**64)),)

    def enter(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        @functools.wraps(make)
        def build(*args, seed: int = 0, **kwargs) -> nn.Module:
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # torch's layers draw weights at construction
                model = make(*args, **kwargs)
            return fill(model, seed).requires_grad_(False).eval()

        ZOO[make.__name__] = Model(make.__name__, functools.partial(build, **small), inputs)
        return build

    return enter


def fill(model: nn.Module, seed: int) -> nn.Module:
    """Give `model` seeded weights that keep activations at about unit size, however deep it is.

    Convolutions are drawn as by He et al. (ICCV 2015), other matrices with variance 1 / inputs. Normalization layers
    get statistics and factors away from 0 and 1, so that a pass that drops one is caught; the last one of a residual
    branch is scaled down, or the sum would double the variance at every block.
    """
    rng = torch.Generator().manual_seed(seed % 2**64)
    for module in model.modules():
        norm = isinstance(module, (nn.BatchNorm2d, nn.LayerNorm))
        for name, p in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if name == "running_var" or (norm and name == "weight"):
                p.data.uniform_(0.7, 1.4, generator=rng)
            elif name in ("bias", "running_mean"):
                p.data.normal_(0, 0.1, generator=rng)
            elif isinstance(p, nn.Parameter):
                gain = 2 if isinstance(module, nn.Conv2d) else 1
                p.data.normal_(0, math.sqrt(gain / p[0].numel()), generator=rng)
    for module in model.modules():
        if isinstance(module, (Residual, Inverted)) and module.joins:
            module.last.weight.data *= 0.3
    return model


# Tiny ones.


class Tiny(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


@zoo(8)
def tiny(width: int = 8) -> nn.Module:
    """Return `relu(linear(x))`, the smallest model worth looking at."""
    return Tiny(width)


@zoo(16)
def mlp(widths: tuple[int, ...] = (16, 32, 32, 10)) -> nn.Module:
    """Return linear layers of the given widths with ReLU between them."""
    layers = []
    for wide, narrow in itertools.pairwise(widths):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class ConvNet(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.mean((2, 3)))


@zoo(3, 16, 16)
def convnet(classes: int = 10) -> nn.Module:
    """Return two convolutions with batch norm (one with a bias, one without), pooling, a classifier."""
    return ConvNet(classes)


class Skip(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.down = nn.Conv2d(3, width, 3, padding=1)
        self.deep = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.up = nn.Conv2d(3 * width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu(self.down(x))
        deep = F.relu(self.deep(F.max_pool2d(wide, 2)))
        return self.up(torch.cat([wide, F.interpolate(deep, scale_factor=2.0)], 1))


@zoo(3, 16, 16)
def skip(width: int = 8) -> nn.Module:
    """Return one step of a U-Net: down, up again, and the wide image joins by concatenation."""
    return Skip(width)


# ResNet: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, CVPR 2016.


class Residual(nn.Module):
    """`relu(branch(x) + shortcut(x))`. The branch is one convolution with batch norm per (kernel, stride, channels)."""

    joins = True

    def __init__(self, channels: int, branch: list[tuple[int, int, int]]):
        super().__init__()
        self.relu, self.depth, width, stride = nn.ReLU(), len(branch), channels, 1
        for i, (kernel, step, out) in enumerate(branch, 1):
            self.add_module(f"conv{i}", nn.Conv2d(width, out, kernel, step, kernel // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(out))
            width, stride = out, stride * step
        self.shortcut = None
        if (width, stride) != (channels, 1):
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    @property
    def last(self) -> nn.BatchNorm2d:
        return self.get_submodule(f"bn{self.depth}")

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(1, self.depth + 1):
            y = self.get_submodule(f"bn{i}")(self.get_submodule(f"conv{i}")(y))
            y = self.relu(y) if i < self.depth else y
        return self.relu(y + (x if self.shortcut is None else self.shortcut(x)))


def basic(channels: int, width: int, stride: int = 1) -> Residual:
    return Residual(channels, [(3, stride, width), (3, 1, width)])


def bottleneck(channels: int, width: int, stride: int = 1) -> Residual:
    return Residual(channels, [(1, 1, width), (3, stride, width), (1, 1, 4 * width)])


class ResNet(nn.Module):
    def __init__(self, block: Callable[..., Residual], blocks: tuple[int, ...], expand: int, classes: int, width: int):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.pool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        channels = width
        for stage, count in enumerate(blocks):
            layers, inner = [], width * 2**stage
            for i in range(count):
                layers.append(block(channels, inner, 2 if stage and not i else 1))
                channels = inner * expand
            self.add_module(f"stage{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.bn(self.conv(x))))
        x = self.stage4(self.stage3(self.stage2(self.stage1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


@zoo(8, 8, 8)
def residual(channels: int = 8) -> nn.Module:
    """Return one residual block: conv, bn, relu, conv, bn, add, relu."""
    return basic(channels, channels)


@zoo(3, 64, 64)
def resnet18(classes: int = 1000, width: int = 64) -> nn.Module:
    """Return ResNet-18: 11,689,512 parameters for 1000 classes. `width`: channels of its first stage."""
    return ResNet(basic, (2, 2, 2, 2), 1, classes, width)


@zoo(3, 64, 64)
def resnet50(classes: int = 1000) -> nn.Module:
    """Return ResNet-50: 25,557,032 parameters for 1000 classes."""
    return ResNet(bottleneck, (3, 4, 6, 3), 4, classes, 64)


# MobileNetV2: Sandler, Howard, Zhu, Zhmoginov, Chen, Inverted Residuals and Linear Bottlenecks, CVPR 2018.


def conv_bn(channels: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]


class Inverted(nn.Module):
    """Widen by `expand`, filter each channel alone, narrow without an activation; add `x` where the shape allows."""

    def __init__(self, channels: int, out: int, stride: int, expand: int):
        super().__init__()
        wide = channels * expand
        layers = [*conv_bn(channels, wide, 1), nn.ReLU6()] if expand > 1 else []
        layers += [*conv_bn(wide, wide, 3, stride, groups=wide), nn.ReLU6(), *conv_bn(wide, out, 1)]
        self.branch, self.joins = nn.Sequential(*layers), stride == 1 and channels == out

    @property
    def last(self) -> nn.BatchNorm2d:
        return self.branch[-1]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.joins else self.branch(x)


#: Table 2 of the paper: expansion, channels, blocks, stride of the first one.
MOBILENETV2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        layers, channels = [*conv_bn(3, 32, 3, 2), nn.ReLU6()], 32
        for expand, out, count, stride in MOBILENETV2:
            for i in range(count):
                layers.append(Inverted(channels, out, 1 if i else stride, expand))
                channels = out
        self.features = nn.Sequential(*layers, *conv_bn(channels, 1280, 1), nn.ReLU6())
        self.dropout, self.fc = nn.Dropout(0.2), nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.dropout(self.features(x).mean((2, 3))))


@zoo(3, 64, 64)
def mobilenetv2(classes: int = 1000) -> nn.Module:
    """Return MobileNetV2 of width 1.0: 3,504,872 parameters for 1000 classes."""
    return MobileNetV2(classes)


# U-Net: Ronneberger, Fischer, Brox, Convolutional Networks for Biomedical Image Segmentation, MICCAI 2015.


class UNet(nn.Module):
    """The paper's shape, with padded convolutions and batch norm, so that the output is as large as the input."""

    def __init__(self, channels: int, classes: int, width: int, depth: int):
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.down = nn.ModuleList(map(self.double, [channels, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(self.double(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def double(channels: int, out: int) -> nn.Sequential:
        return nn.Sequential(*conv_bn(channels, out), nn.ReLU(), *conv_bn(out, out), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.down[0](x), []
        for down in self.down[1:]:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x)


@zoo(1, 32, 32, width=8, depth=3)
def unet(channels: int = 1, classes: int = 2, width: int = 64, depth: int = 4) -> nn.Module:
    """Return U-Net: `depth` halvings of the image, each with its way across. Image sides are multiples of 2**depth."""
    return UNet(channels, classes, width, depth)


# Transformers: Vaswani et al., Attention Is All You Need, NeurIPS 2017, with the norms in front.


class Attention(nn.Module):
    """Multi-head self-attention, every operation written out. With `context` set, a token sees no later one."""

    def __init__(self, width: int, heads: int, context: int | None = None):
        super().__init__()
        self.heads, self.scale = heads, 1 / math.sqrt(width // heads)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        mask = None if context is None else torch.full((context, context), -math.inf).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) * self.scale
        scores = scores if self.mask is None else scores + self.mask
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TanhGELU(nn.Module):
    """GELU in the tanh form of Hendrycks and Gimpel (arXiv 1606.08415), written out as GPT-2 has it."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Block(nn.Module):
    """`x = x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    def __init__(self, width: int, heads: int, gelu: Callable[[], nn.Module], context: int | None = None):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, context)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), gelu(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


@zoo(8, 16)
def attention(width: int = 16, heads: int = 2) -> nn.Module:
    """Return multi-head self-attention on (batch, tokens, width)."""
    return Attention(width, heads)


@zoo(16, 64, width=64, heads=4, context=16)
def gpt(width: int = 768, heads: int = 12, context: int = 1024) -> nn.Module:
    """Return a decoder block of GPT-2 (Radford et al., 2019) on (batch, context, width): causal, with the tanh GELU."""
    return Block(width, heads, TanhGELU, context)


class ViT(nn.Module):
    def __init__(self, image: int, patch: int, width: int, depth: int, heads: int, classes: int):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, nn.GELU) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


@zoo(3, 32, 32, image=32, patch=8, width=64, depth=3, heads=4, classes=10)
def vit(image=224, patch=16, width=768, depth=12, heads=12, classes=1000) -> nn.Module:
    """Return ViT (Dosovitskiy et al., ICLR 2021); the defaults are ViT-B/16, 86,567,656 parameters."""
    return ViT(image, patch, width, depth, heads, classes)


class LSTM(nn.Module):
    """Hochreiter and Schmidhuber, Neural Computation 1997; the cell is written out, the loop over time unrolled."""

    def __init__(self, width: int, hidden: int, steps: int):
        super().__init__()
        self.hidden, self.steps = hidden, steps
        self.input, self.recur = nn.Linear(width, 4 * hidden), nn.Linear(hidden, 4 * hidden)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], self.hidden)
        states = []
        for t in range(self.steps):
            i, f, g, o = (self.input(x[:, t]) + self.recur(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, 1)


@zoo(6, 16)
def lstm(width: int = 16, hidden: int = 32, steps: int = 6) -> nn.Module:
    """Return an LSTM layer on (batch, steps, width): all hidden states, the same function as `torch.nn.LSTM`."""
    return LSTM(width, hidden, steps)
