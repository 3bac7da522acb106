"""Differentiation as a pass: rules for each operation, and graphs that compute gradients.

whole = joint(lower(model, x).forward)                # outputs, then the gradients of all inputs
forward, backward = partition(whole, num_fwd_outputs=1)
optimizer = Fused(ADAM, model.parameters())           # its step is one kernel for each group of parameters
"""

from passlab.autodiff.forward_mode import jvp
from passlab.autodiff.joint import DifferentiationError, joint, torch_joint
from passlab.autodiff.optimizer import ADAM, ADAMW, SGD, Fused, Method
from passlab.autodiff.partition import (
    EXPENSIVE,
    RECOMPUTED,
    bytes_of,
    partition,
    rejoin,
    saved_under_budget,
    saved_values,
    work_of,
)
from passlab.autodiff.rules import CONSTANT, RULES, Rule, fit

__all__ = [
    "ADAM",
    "ADAMW",
    "CONSTANT",
    "EXPENSIVE",
    "RECOMPUTED",
    "RULES",
    "SGD",
    "DifferentiationError",
    "Fused",
    "Method",
    "Rule",
    "bytes_of",
    "fit",
    "joint",
    "jvp",
    "partition",
    "rejoin",
    "saved_under_budget",
    "saved_values",
    "torch_joint",
    "work_of",
]
