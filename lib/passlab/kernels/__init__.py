"""Compile groups of operations in an FX graph to kernels, which the graph calls in their place.

    after = fused(gm, [["mul", "add", "relu"]])      # `mul`, `add` and `relu` are one call of a Kernel
    launches(after, x)                               # one kernel where there were three
    one = kernel(subgraph(gm, ["mul", "add", "relu"]))
    print(one.source())                              # the kernel as TensorIR

A group may hold element-wise operations, broadcasts, views, `cat`, padding and reductions. TVM builds its kernel for
the CPU or a GPU; with backend="triton", Triton does. Tensors pass without a copy (DLPack), non-contiguous ones too: a
kernel is built for the shapes, strides and types of its inputs, and rebuilt for others. No gradient flows through a
kernel.

Reading order: groups (which are legal, cutting one out), primitives (a group as basic operations), code (these as
TensorIR), schedule (its loops), triton (the other backend), kernel (all of it, and the graph that calls kernels).
"""

from __future__ import annotations

from passlab.kernels.groups import Groups, execution_order, extract_group, illegal, kernel_check, subgraph
from passlab.kernels.kernel import BACKENDS, Kernel, fused, kernel, prim_func, triton_source
from passlab.kernels.primitives import Unsupported, state

__all__ = [
    "BACKENDS",
    "Groups",
    "Kernel",
    "Unsupported",
    "execution_order",
    "extract_group",
    "fused",
    "illegal",
    "kernel",
    "kernel_check",
    "prim_func",
    "state",
    "subgraph",
    "triton_source",
]
