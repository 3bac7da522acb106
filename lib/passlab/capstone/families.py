"""Models for the capstone: the zoo's families in other sizes, and random graphs.

    for model in hidden(seed=7):
        gm, inputs = model.graph(), model.inputs

A seed gives the same models in every process; two seeds give other sizes, weights and graphs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from passlab import models
from passlab.fx.generate import random_graph
from passlab.fx.reader import trace


@dataclass(frozen=True)
class Drawn:
    """A model: `make()` returns a new instance, the same each time; `inputs` are examples for it."""

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[Any, ...]

    def graph(self) -> fx.GraphModule:
        """Return the model as a torch.fx graph with shapes."""
        model = self.make()
        return model if isinstance(model, fx.GraphModule) else trace(model, *self.inputs)


def _x(*shape: int, seed: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)),)


def _mlp(rng: random.Random, seed: int) -> Drawn:
    widths = tuple(rng.choice((24, 48, 96, 160)) for _ in range(rng.randint(3, 5)))
    return Drawn("mlp", lambda: models.mlp(widths, seed=seed), _x(rng.choice((4, 16, 64)), widths[0], seed=seed))


def _convnet(rng: random.Random, seed: int) -> Drawn:
    classes, side = rng.randint(4, 20), rng.choice((16, 24, 32))
    return Drawn(
        "convnet", lambda: models.convnet(classes, seed=seed), _x(rng.choice((1, 2)), 3, side, side, seed=seed)
    )


def _skip(rng: random.Random, seed: int) -> Drawn:
    width, side = rng.choice((6, 12, 16)), rng.choice((16, 24, 32))
    return Drawn("skip", lambda: models.skip(width, seed=seed), _x(1, 3, side, side, seed=seed))


def _residual(rng: random.Random, seed: int) -> Drawn:
    channels, side = rng.choice((12, 16, 32)), rng.choice((8, 14, 20))
    return Drawn("residual", lambda: models.residual(channels, seed=seed), _x(2, channels, side, side, seed=seed))


def _resnet(rng: random.Random, seed: int) -> Drawn:
    width, side = rng.choice((8, 16, 24)), rng.choice((32, 48))
    return Drawn("resnet18", lambda: models.resnet18(10, width, seed=seed), _x(1, 3, side, side, seed=seed))


def _unet(rng: random.Random, seed: int) -> Drawn:
    width, depth = rng.choice((4, 8, 12)), rng.choice((2, 3))
    return Drawn("unet", lambda: models.unet(1, 2, width, depth, seed=seed), _x(1, 1, 32, 32, seed=seed))


def _attention(rng: random.Random, seed: int) -> Drawn:
    heads, each, tokens = rng.choice((2, 4)), rng.choice((8, 16)), rng.choice((8, 24, 48))
    width = heads * each
    return Drawn("attention", lambda: models.attention(width, heads, seed=seed), _x(2, tokens, width, seed=seed))


def _gpt(rng: random.Random, seed: int) -> Drawn:
    heads, each, tokens = rng.choice((2, 4)), rng.choice((16, 32)), rng.choice((16, 32))
    width = heads * each
    return Drawn("gpt", lambda: models.gpt(width, heads, tokens, seed=seed), _x(1, tokens, width, seed=seed))


def _vit(rng: random.Random, seed: int) -> Drawn:
    heads, depth = rng.choice((2, 4)), rng.choice((1, 2))
    width = heads * 16
    make = lambda: models.vit(32, 8, width, depth, heads, 10, seed=seed)  # noqa: E731
    return Drawn("vit", make, _x(1, 3, 32, 32, seed=seed))


def _lstm(rng: random.Random, seed: int) -> Drawn:
    width, hidden, steps = rng.choice((8, 16)), rng.choice((16, 48, 64)), rng.randint(3, 7)
    return Drawn("lstm", lambda: models.lstm(width, hidden, steps, seed=seed), _x(2, steps, width, seed=seed))


FAMILIES: dict[str, Callable[[random.Random, int], Drawn]] = {
    "mlp": _mlp,
    "convnet": _convnet,
    "skip": _skip,
    "residual": _residual,
    "resnet18": _resnet,
    "unet": _unet,
    "attention": _attention,
    "gpt": _gpt,
    "vit": _vit,
    "lstm": _lstm,
}


def drawn(family: str, seed: int) -> Drawn:
    """Return a model of a family, with sizes and weights drawn from a seed. Raises ValueError for an unknown family."""
    if family not in FAMILIES:
        raise ValueError(f"There is no family {family!r}; the families are {', '.join(FAMILIES)}.")
    return FAMILIES[family](random.Random(f"{family} {seed}"), seed % 2**31)


def generated(seed: int, size: int = 25, **features: bool) -> Drawn:
    """Return a random graph (`passlab.fx.generate`)."""
    gm = random_graph(seed, size, **features)
    return Drawn(f"random graph {seed}", lambda: random_graph(seed, size, **features), gm.meta["inputs"])


def hidden(seed: int, graphs: int = 2) -> list[Drawn]:
    """Return one model of each family, and random graphs, as a seed draws them."""
    models = [drawn(family, seed) for family in FAMILIES]
    return models + [generated(seed * 100 + at) for at in range(graphs)]
