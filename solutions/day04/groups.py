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
# # Day 4 · Fusion groups: exercises
#
# One question. It is stretch, about 75 minutes: harder, and for extra credit. Read the lesson first:
# [day04_fusion.ipynb](../../course/day04_fusion.ipynb).
#
# Write the answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day04.groups")` opens a hint, one of
# three. The check compares with the real Relay (TVM 0.17), so this notebook loads that TVM, and the other one of day 4
# the current TVM. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
from collections import Counter
from contextlib import suppress

from torch import fx

from passlab import check, exercises, hint, progress
from passlab.fx.dominators import nodes_between, post_dominators
from passlab.fx.patterns import Pattern, canonical, pattern

# %%
progress("day04")

# %% [markdown]
# ## 1 · The groups of FuseOps, on FX · stretch
#
# Which nodes become one kernel? Relay decides it by the op pattern of each node and by its post-dominator, the first
# node that every path from it to the output passes through. Do the same on an FX graph. `pattern(node)` and
# `post_dominators(graph)` are given; you find the groups. These are all the rules:
#
# **Edges.** An edge from an operand to a user has the pattern of the user, but 0 if that is 1 (broadcast) and the
# operand has the shape of the result. The *path pattern* of a node is the largest pattern of the edges on the paths
# from it to its post-dominator.
#
# **Groups.** At first each node is a group, and its *kind* is its pattern. A node's kind can change later, its pattern
# cannot; edges depend on the pattern, the table on the kind. The kind of a group is that of its last node. There are
# three phases; in each, all nodes from first to last get a turn, except those of kind 8 and those without a
# post-dominator. *Between* are the nodes on the paths from a node to its post-dominator. If the conditions in the table
# hold, the groups of the node and of those between join the group of the post-dominator. If one of them is of kind 4,
# the last node of the group they join is of kind 4 from then on.
#
# | kind of the node | phase | path pattern | groups between | group of the post-dominator |
# |---|---|---|---|---|
# | 0 or 1 | 1 and 2 | at most 3 | at most 2 | at most 4 |
# | 2 | 2 | any | at most 2 | at most 2 |
# | 4 (conv2d, linear, matmul, softmax, pooling) | 1 | 0 | at most 1 | at most 1 |
# | 0, 1 or 2 | 3 | any | at most 2 | at most 2, where the post-dominator itself is a `cat` |
#
# **Lists.** What `cat` reads is a list, a separate value for Relay: in phases 1 and 2 no group joins a `cat`, and
# none passes one that is between. No group ever joins the output.
#
# **Size.** Each node has a number, at first 1, a `cat` 2, for its list. When groups join another, its last node's
# number grows by the numbers of *their* last nodes, which keep theirs. Nothing joins if the number of the last node in
# the post-dominator's group, plus those of the node and of all between, is more than 256. This also bounds the work on
# a large graph: a node with more than 256 nodes between itself and its post-dominator need not be looked at.


# %%
def fusion_groups(gm: fx.GraphModule) -> list[list[str]]:
    """Find the groups that FuseOps would make of the graph, each one kernel.

    In:  a graph of functions with shapes on its nodes (`node.meta["tensor_meta"]`),
         operands before readers, without effects, and without nodes that the output
         does not need.
    Out: a list of groups. A group is a list of names of nodes. Each node that is called
         (all but inputs, attributes and the output) is in one group; the order, of
         groups and in them, is free. A `getitem` that takes a field of a tuple, as that
         which `chunk` gives, takes part like any node of pattern 2, but may be left out
         of the answer.
    Not to be called: tvm.relay.transform.FuseOps, tvm.relay.optimize, tvm.relay.build,
         tvm.relay.build_module.BuildModule, tvm.relay.vm.VMCompiler.

    Example:  sum(relu(x)) gives [["relu", "sum_1"]], relu(sum(x)) gives [["sum_1"],
              ["relu"]].
    """
    ### BEGIN SOLUTION
    most, nodes, behind = 256, list(gm.graph.nodes), post_dominators(gm.graph)
    own = {n: pattern(n) for n in nodes}
    is_cat = {n: canonical(n) == "cat" for n in nodes}
    # Of a group: what its last node says
    kind, size = (
        dict(own),
        {n: 1 + is_cat[n] for n in nodes},
    )
    parent = {n: n for n in nodes}

    def last(n):
        """Return the last node of the group of n."""
        while parent[n] is not n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    def edge(n, reader):
        return (
            Pattern.ELEMWISE
            if own[reader] == Pattern.BROADCAST and shape(n) == shape(reader)
            else own[reader]
        )

    def joins(n, phase, sink, between):
        inside = max((kind[last(m)] for m in between), default=Pattern.ELEMWISE)
        end = kind[last(sink)]
        if phase == 3:
            return max(kind[n], inside, end) <= Pattern.INJECTIVE
        if any(is_cat[m] for m in between):
            return False
        path = max(edge(m, reader) for m in [n, *between] for reader in m.users)
        if kind[n] == Pattern.OUT_ELEMWISE_FUSABLE:
            return (
                phase == 1
                and path == Pattern.ELEMWISE
                and max(inside, end) <= Pattern.BROADCAST
            )
        if kind[n] <= Pattern.BROADCAST:
            fits = inside <= Pattern.INJECTIVE and end <= Pattern.OUT_ELEMWISE_FUSABLE
            return fits and path <= Pattern.COMM_REDUCE
        return (
            kind[n] == Pattern.INJECTIVE
            and phase == 2
            and max(inside, end) <= Pattern.INJECTIVE
        )

    # As in FuseOps: a node joins the place where all its readers meet, with everything
    # on the way, so that a group has one result. Phase 1 takes products and
    # element-wise chains, phase 2 injective ones, phase 3 goes into a cat.
    for phase in (1, 2, 3):
        for n in nodes:
            sink = behind[n]
            if kind[n] == Pattern.OPAQUE or sink is None or sink.op == "output":
                continue
            if is_cat[sink] != (phase == 3) or (phase < 3 and last(n) is last(sink)):
                continue
            between = nodes_between(n, sink, most)
            if (
                between is None
                or size[last(sink)] + sum(size[m] for m in [n, *between]) > most
            ):
                continue
            if joins(n, phase, sink, between):
                for m in map(last, [n, *between]):
                    target = last(sink)
                    if m is not target:
                        parent[m], size[target] = target, size[target] + size[m]
                        kind[target] = (
                            kind[m]
                            if kind[m] == Pattern.OUT_ELEMWISE_FUSABLE
                            else kind[target]
                        )
    groups = {}
    for n in nodes:
        if n.op.startswith("call_"):
            groups.setdefault(last(n), []).append(n.name)
    return list(groups.values())


def shape(n):
    return getattr(n.meta.get("tensor_meta"), "shape", None)
    ### END SOLUTION


# %%
check("day04.groups", fusion_groups)

# %% [markdown]
# The kernels of ResNet-18 by your rules, the most frequent first:

# %%
with suppress(Exception):
    resnet = exercises.module("day04.groups").zoo("resnet18")()
    op = {node.name: canonical(node) for node in resnet.graph.nodes}
    kernels = Counter(
        " ".join(op[name] for name in group) for group in fusion_groups(resnet)
    )
    print(
        *(f"{number:3} × {kernel}" for kernel, number in kernels.most_common()),
        sep="\n",
    )
