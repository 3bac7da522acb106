"""Day 14, optimizer: the options of torch's optimizers that an answer knows, with torch's own defaults."""

from __future__ import annotations

from typing import Any

#: Method → each of its options, with the value that counts where a parameter does not give it.
DEFAULTS: dict[str, dict[str, Any]] = {
    "sgd": {
        "lr": 1e-3,
        "momentum": 0.0,
        "dampening": 0.0,
        "weight_decay": 0.0,
        "nesterov": False,
        "maximize": False,
    },
    "adam": {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.0,
        "decoupled_weight_decay": False,
        "maximize": False,
    },
}
