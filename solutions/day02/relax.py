# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Day 2 · Writing a pass: an exercise in Relax
#
# One question: number 8 of the day. It is stretch, about 35 minutes: harder, and for extra credit. It has a separate
# notebook because a process can hold only one TVM, and this one holds today's (0.27), with Relax. The lesson is
# [day02_passes.ipynb](../../course/day02_passes.ipynb), the other seven questions are in [passes.ipynb](passes.ipynb).
# For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
from contextlib import suppress

import torch
from IPython.display import display
from torch import nn

from passlab import check, diff, hint, progress
from passlab.relax import relax, tvm
from passlab.tvm.importers import relax_module

# %%
progress("day02")

# %% [markdown]
# ## 8 · The same pass in Relax · stretch
#
# In the lesson a pass for torch.fx turned `x * sigmoid(x)` into `silu(x)`. Here is the same law for Relax, with these
# differences:
#
# - A **mutator** rebuilds the function. It walks the bindings in order, and `visit_call_` (with the underscore) returns
#   the replacement of a call. Operands come before users, so their replacements are already known.
# - An operand is a **variable**. `self.lookup_binding(variable)` gives the expression that it is bound to.
# - A module has **several functions**, and the pass applies to each that is a `relax.Function`.
# - An unused binding does not disappear by itself: clean-up is a separate pass.


# %%
def fuse_silu(module: tvm.IRModule) -> tvm.IRModule:
    """x * sigmoid(x) = silu(x), for every x, in every function of the module.

    In:  a module of operators of Relax (relax.multiply, relax.sigmoid, …). It may have
         functions besides main, which are called, branches, and kernels (functions that
         are not a `relax.Function`).
    Out: a new module. Each relax.multiply of a value and the relax.sigmoid of this same
         value, in either order, is a call of relax.nn.silu. A sigmoid that is unused
         after that is gone; one with other users stays.
    Stays: everything else: products with the sigmoid of another value, other operators,
         functions (a private one that nothing calls may go), parameters, and the
         attributes of module and functions. The given module is not changed.
    Time: 2 s of computing for each test case.

    Example:  lv = sigmoid(x);  lv1 = multiply(lv, x);  lv2 = multiply(y, lv);
              gv = add(lv1, lv2)
    becomes   lv = sigmoid(x);  lv1 = silu(x);  lv2 = multiply(y, lv);
              gv = add(lv1, lv2)
    """
    ### BEGIN SOLUTION
    mutator = FuseSilu(module)
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    # Only when all products are rewritten is it known which sigmoids are unused.
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


MULTIPLY, SIGMOID = tvm.ir.Op.get("relax.multiply"), tvm.ir.Op.get("relax.sigmoid")


@relax.expr_functor.mutator
class FuseSilu(relax.PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if call.op == MULTIPLY:
            a, b = call.args
            # A product may have its operands either way round.
            for x, gate in ((a, b), (b, a)):
                producer = (
                    self.lookup_binding(gate) if isinstance(gate, relax.Var) else None
                )
                if (
                    isinstance(producer, relax.Call)
                    and producer.op == SIGMOID
                    and producer.args[0].same_as(x)
                ):
                    return relax.op.nn.silu(x)
        return call

    ### END SOLUTION


# %%
check("day02.fuse-silu", fuse_silu)

# %% [markdown]
# Your pass at work on a gated layer, as in many language models:


# %%
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = (
            nn.Linear(6, 8),
            nn.Linear(6, 8),
            nn.Linear(8, 6),
        )

    def forward(self, x):
        gate = self.gate(x)
        return self.down(self.up(x) * (gate * torch.sigmoid(gate)))


with suppress(Exception):
    gated = relax_module(Gated().eval(), torch.randn(3, 6))
    display(diff(gated, fuse_silu(gated), title="silu in a gated layer"))

# %%
progress("day02")
