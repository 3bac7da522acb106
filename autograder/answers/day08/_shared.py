"""What the exercises of day 8 share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from passlab.relax import relax
from passlab.relax.generate import random_relax

Build = Callable[[], Any]


def alive(build: Build) -> Build:
    """Return the module without unused values, about which these exercises say nothing."""
    return lambda: relax.transform.DeadCodeElimination()(build())


def generated(rng: random.Random, size: int, *features: str) -> Build:
    seed = rng.randrange(10**6)
    return alive(lambda: random_relax(seed, size, features))
