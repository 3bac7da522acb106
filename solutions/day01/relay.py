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
# # Day 1 · A model is a graph: an exercise in Relay
#
# One question: number 8 of the day. It is stretch, about 30 minutes: harder, and for extra credit. It has a separate
# notebook because a process can hold only one TVM, and this one holds that of Relay (0.17). The lesson is
# [day01_graphs.ipynb](../../course/day01_graphs.ipynb), the other seven questions are in [graphs.ipynb](graphs.ipynb).
# If Relay is not available on your machine, the first cell tells you; then skip this notebook. For each test case an
# answer has five seconds of computing time, unless its text says otherwise.

# %%
from collections import Counter
from contextlib import suppress

import numpy as np
from IPython.display import display

from passlab import check, draw, hint, models, progress
from passlab.relay import relay, tvm
from passlab.tvm.importers import relay_module

# %%
progress("day01")

# %% [markdown]
# ## 8 · Read a Relay module · stretch
#
# Before a pass changes a module, it has to read it. A Relay function is an expression that refers to its operands,
# which refer to theirs; an expression that two others use is shared, not copied. There is no list of nodes:
# `relay.analysis.post_order_visit(expression, look)` walks them for you and calls `look` once for each expression.
#
# | expression | what it is | what it reads |
# |---|---|---|
# | `relay.Call` | `e.op` called; that is an operator (`tvm.ir.Op`, with a `name`) or a `relay.Function` | `e.args` |
# | `relay.Tuple` | several values as one | `e.fields` |
# | `relay.TupleGetItem` | one of them again | `e.tuple_value` |
# | `relay.Var` | a parameter: `name_hint`, `checked_type.shape`, `checked_type.dtype` | nothing |
# | `relay.Constant` | a tensor: `e.data.numpy()` | nothing |
# | `relay.Function` | its `params`, and its value, `body` | `e.body` |


# %%
def read_relay(module: tvm.IRModule) -> dict:
    """Describe a Relay module.

    In:  a module with types and one function, main, made of the expressions in the
         table above. All values are tensors of known shape, or tuples of them. There
         may be functions inside main, as fusion makes them.
    Out: a dict with four entries.
         "operators"   {name: how many calls of the operator there are}, also those in
                       the functions inside main. A call counts once, however often its
                       value is read, or the function that it is in is called.
         "readers"     {parameter of main: how many expressions read it}. One that reads
                       it twice is one reader. main reads its body, so a parameter that
                       is returned as it came has a reader, too.
         "parameters"  {parameter of main: its bytes}, for a tuple those of all its
                       tensors
         "constants"   the bytes of all constants together, inside functions, too. One
                       that is read several times is stored once.
         Parameters are listed by name, unused ones too; all numbers are ints.
    Time: 2 s of computing for each test case.

    Example:  main(%x: float32[2, 3]) = tanh(%x) * tanh(%x), where both are one tanh:
              {"operators": {"tanh": 1, "multiply": 1}, "readers": {"x": 1},
               "parameters": {"x": 24}, "constants": 0}
    """
    ### BEGIN SOLUTION
    main = module["main"]
    operators, readers, constants = Counter(), Counter([main.body]), []

    def look(e):
        if isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op):
            operators[e.op.name] += 1
        if isinstance(e, relay.Constant):
            constants.append(e.data.numpy().nbytes)
        # A set, because an expression that reads a value twice is one reader.
        readers.update(set(reads(e)))

    relay.analysis.post_order_visit(main, look)
    return {
        "operators": dict(operators),
        "readers": {p.name_hint: readers[p] for p in main.params},
        "parameters": {p.name_hint: size(p.checked_type) for p in main.params},
        "constants": sum(constants),
    }


def reads(e):
    if isinstance(e, relay.Call):
        return e.args
    if isinstance(e, relay.Tuple):
        return e.fields
    return [e.tuple_value] if isinstance(e, relay.TupleGetItem) else []


def size(kind):
    if isinstance(kind, tvm.ir.TupleType):
        return sum(map(size, kind.fields))
    return (
        int(np.prod([int(dim) for dim in kind.shape])) * np.dtype(kind.dtype).itemsize
    )
    ### END SOLUTION


# %%
check("day01.read-relay", read_relay)

# %% [markdown]
# Your answer about a network, before and after the operators have been fused: the same calls, in functions now.

# %%
with suppress(Exception):
    net = models.ZOO["residual"]
    module = relay_module(net.build(), *net.inputs())
    fused = relay.transform.FuseOps(2)(module)
    print(read_relay(module)["operators"] == read_relay(fused)["operators"])
    display(draw(fused, title="A residual block after FuseOps"))

# %%
progress("day01")
