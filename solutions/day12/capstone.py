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
# # Day 12 · Capstone: exercises
#
# Five questions; a person reads your answer to the last. The core is questions 1, 2 and 5, about 95 minutes; the rest, about
# 85 minutes, is stretch: harder, and for extra credit. Read the lesson first:
# [day12_capstone.ipynb](../../course/day12_capstone.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses other models, newly drawn each time. `hint("day12.compiler")` opens a hint,
# three for each question. For each test case an answer has five seconds of computing time, unless its text says
# otherwise. You may copy your answers of earlier days.

# %%
from itertools import product

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from passlab import check, hint, progress
from passlab.capstone import Compiled, build, counts, groupable, grouped
from passlab.fx.effects import effects, written
from passlab.fx.judge import rebuild
from passlab.fx.patterns import canonical
from passlab.memory.allocate import ORDERS, best_fit, first_fit
from passlab.memory.buffers import height
from passlab.memory.liveness import liveness
from passlab.memory.order import best_order
from passlab.memory.plan import ALIGNMENT, Plan, planned
from passlab.memory.tasks import tasks_of

# %%
progress("day12")

# %% [markdown]
# ## 1 · A compiler of your own
#
# A compiler takes a traced model with example inputs and returns data, from which the grader builds the program:
# `Compiled(graph, groups=…)`. The graph may be any graph that computes the same function of the same inputs. Each group,
# a list of names of its nodes, becomes one kernel; every other node remains a call of torch.
#
# Save launches and bytes: on models that you have not seen, at least four fifths of what the course's compiler saves,
# and half on other graphs. A model whose result differs earns nothing. Launches decide whether your answer is complete,
# bytes whether it is efficient.
#
# - `why_not = groupable(graph, inputs)` tells which groups are legal: `why_not([["conv", "relu"], ["mul", "add"]])`
#   returns None, or a sentence. There are two kinds. A convolution or linear layer, then one sum, then one activation: a
#   call of oneDNN. Element-wise operations, reductions and views: a kernel by TVM.
# - `counts(compiled, inputs)` counts as the grader does. A view in the graph is free; at the end of a group it is a
#   copy.
# - Do not change operations that draw random numbers, nor values that are written (`effects`, `written`). Two equal
#   reads of memory that is written between them are two values.
# - Constants are the same only if their types and signs are: 1, 1.0 and True are three constants, 0.0 and -0.0 two.
# - Each layer has a mode of its own, whatever the mode of the model: a batch norm in training stays.
# - You may change the graph that you get, or copy it first.
# - Memory is limited: weights may grow by a tenth and 4 KiB, and the arena may exceed by as much that of the unchanged
#   model, in the order of its graph. The arena's limit holds in question 3, too.


# %%
def compile_model(gm: fx.GraphModule, inputs: tuple) -> Compiled:
    """A compiled model: fewer launches, fewer bytes, the same function.

    In:  a traced model with shapes on its nodes, in any mode, and example inputs for
         it.
    Out: Compiled(graph, groups): the rewritten graph, and lists of names of its nodes.
    Time: 30 s of computing for each test case.
    Not to be called: passlab.capstone.reference.compile,
        passlab.capstone.reference.library_groups,
        passlab.capstone.reference.kernel_groups, passlab.capstone.reference.plan,
        passlab.capstone.reference.fold_batchnorm,
        passlab.capstone.reference.fold_constants, passlab.capstone.reference.cse,
        passlab.capstone.reference.dce.

    Example: conv, bn, relu become one convolution in one group with relu:
             one launch instead of three.
    """

    ### BEGIN SOLUTION
    def module(node: fx.Node) -> nn.Module | None:
        return gm.get_submodule(node.target) if node.op == "call_module" else None

    gm = rebuild(gm)
    calls = [node.target for node in gm.graph.nodes]
    for bn in list(gm.graph.nodes):
        norm, conv = module(bn), bn.args[0] if bn.args else None
        if (
            type(norm) is not nn.BatchNorm2d
            or norm.training
            or not norm.track_running_stats
        ):
            continue
        if (
            type(module(conv)) is not nn.Conv2d
            or len(conv.users) != 1
            or calls.count(conv.target) > 1
        ):
            continue
        gm.add_submodule(
            f"folded_{conv.name}", fuse_conv_bn_eval(module(conv).eval(), norm)
        )
        conv.target = f"folded_{conv.name}"
        bn.replace_all_uses_with(conv)
        gm.graph.erase_node(bn)

    busy, first = written(gm.graph), {}
    for node in gm.graph.nodes:
        if (
            effects(node)
            or node in busy
            or any(operand in busy for operand in node.all_input_nodes)
        ):
            continue
        key = (node.op, node.target, repr((node.args, node.kwargs)))
        if first.setdefault(key, node) is not node:
            node.replace_all_uses_with(first[key])
    for node in reversed(list(gm.graph.nodes)):
        if not node.users and not effects(node):
            gm.graph.erase_node(node)

    why_not, groups, home = groupable(gm, inputs), [], {}
    for node in gm.graph.nodes:
        if not node.op.startswith("call_") or effects(node) or node in busy:
            continue
        for at in sorted(
            {home[operand] for operand in node.all_input_nodes if operand in home},
            reverse=True,
        ):
            longer = [*groups[:at], [*groups[at], node.name], *groups[at + 1 :]]
            if why_not(longer) is None:
                groups, home[node] = longer, at
                break
        else:
            if why_not([*groups, [node.name]]) is None:
                home[node] = len(groups)
                groups.append([node.name])

    views = (
        "transpose permute reshape view flatten unflatten squeeze unsqueeze chunk "
        "split getitem select"
    ).split()
    works = {node.name for node in gm.graph.nodes if canonical(node, gm) not in views}
    return Compiled(gm, [group for group in groups if len(works & set(group)) > 1])
    ### END SOLUTION


# %%
check("day12.compiler", compile_model)

# %% [markdown]
# ## 2 · Order and places
#
# All of day 5 in one function: the order of a compiled model's steps, and the offsets of their results in one arena.
# `grouped(graph, groups, inputs)` is the graph with one node for each group; plan for that graph. Writes, and draws of
# random numbers, keep the order that they have in it. Keep the arena within 5 % of the reference's. You may call all of
# `passlab.memory`.


# %%
def plan_model(graph: fx.GraphModule, groups: list[list[str]], inputs: tuple) -> Plan:
    """A plan with a small arena.

    In:  a graph, the groups of its nodes that are kernels, example inputs.
    Out: a Plan for grouped(graph, groups, inputs): order, offsets, arena.
    Time: 20 s of computing for each test case.
    Not to be called: passlab.capstone.reference.compile,
         passlab.capstone.reference.plan.

    Example: of two branches that are summed, the one that needs more memory on its way
             runs first.
    """
    ### BEGIN SOLUTION
    gm = grouped(graph, groups, inputs)
    orders = [[node.name for node in gm.graph.nodes]]
    if not written(gm.graph) and not any(
        effects(node) for node in gm.graph.nodes if node.op.startswith("call_")
    ):
        *steps, end = best_order(tasks_of(gm, *inputs)).order
        unused = [
            node.name
            for node in gm.graph.nodes
            if node.op.startswith("call_") and node.name not in steps
        ]
        orders.append(
            [
                *(name for name in orders[0] if name not in (*steps, *unused, end)),
                *steps,
                *unused,
                end,
            ]
        )
    plans = []
    for order in orders:
        buffers = liveness(gm, *inputs, order=order)
        for key, fit in product(ORDERS.values(), (first_fit, best_fit)):
            offsets = fit(buffers, key, ALIGNMENT)
            plans.append(Plan(tuple(order), offsets, height(buffers, offsets)))
    return min(plans, key=lambda plan: plan.arena)
    ### END SOLUTION


# %%
check("day12.plan", plan_model)

# %% [markdown]
# ## 3 · Faster · stretch
#
# Now the clock counts: the grader builds your program, runs it and the unchanged model in turns, and compares CPU time.
# A chain of element-wise operations over a large tensor may take at most half of eager's time (this decides whether your
# answer is complete), a convolutional model 95 % (whether it is efficient). As in question 1, a model whose result
# differs earns nothing, and draws and writes must not change. Besides graph and groups, `Compiled` takes:
#
# - `schedules`, a dictionary from a group's first node to the knobs of its loops, such as `{"mul": {"tile": 1024}}`
#   (`passlab.kernels.schedule.KNOBS` lists them). A knob can make loops slower, too: measure.
# - `plan`, for `grouped(graph, groups, inputs, layouts)`.
# - `layouts`, a dictionary from a value, or the path of a parameter such as `"conv.weight"`, to the order of its dimensions
#   in memory, each once: `[0, 2, 3, 1]` is channels last. Converting a value is a launch, and needs memory.
# - `kernels`, a dictionary from a group's first node to `Triton(source, name, arguments, grid, meta)`
#   (`help(passlab.capstone.Triton)`), for groups without a schedule. The text may hold functions with `@triton.jit` and
#   nothing else, and must compute what the group does, NaN included. On a CPU it is only compared, by Triton's
#   interpreter, and the group runs as without a kernel: it saves no time there.


# %%
def faster(gm: fx.GraphModule, inputs: tuple) -> Compiled:
    """A compiled model that takes less time.

    In:  a traced model in eval mode with shapes on its nodes, and example inputs for
         it.
    Out: Compiled(graph, groups, schedules, plan, kernels, layouts); arguments that are
         left out have defaults.
    Time: 30 s of computing for each test case.
    Not to be called: passlab.capstone.reference.compile,
        passlab.capstone.reference.library_groups,
        passlab.capstone.reference.kernel_groups, passlab.capstone.reference.plan,
        passlab.capstone.reference.fold_batchnorm,
        passlab.capstone.reference.fold_constants, passlab.capstone.reference.cse,
        passlab.capstone.reference.dce.
    """

    ### BEGIN SOLUTION
    def module(node: fx.Node) -> nn.Module | None:
        return gm.get_submodule(node.target) if node.op == "call_module" else None

    gm = rebuild(gm)
    for bn in list(gm.graph.nodes):
        norm, conv = module(bn), bn.args[0] if bn.args else None
        if (
            type(norm) is nn.BatchNorm2d
            and type(module(conv)) is nn.Conv2d
            and len(conv.users) == 1
        ):
            gm.add_submodule(
                f"folded_{conv.name}", fuse_conv_bn_eval(module(conv), norm)
            )
            conv.target = f"folded_{conv.name}"
            bn.replace_all_uses_with(conv)
            gm.graph.erase_node(bn)
    why_not, groups, home = groupable(gm, inputs), [], {}
    for node in gm.graph.nodes:
        if not node.op.startswith("call_"):
            continue
        for at in sorted(
            {home[operand] for operand in node.all_input_nodes if operand in home},
            reverse=True,
        ):
            longer = [*groups[:at], [*groups[at], node.name], *groups[at + 1 :]]
            if why_not(longer) is None:
                groups, home[node] = longer, at
                break
        else:
            if why_not([*groups, [node.name]]) is None:
                home[node] = len(groups)
                groups.append([node.name])
    groups = [group for group in groups if len(group) > 1]
    return Compiled(gm, groups, plan=planned(grouped(gm, groups, inputs), *inputs))
    ### END SOLUTION


# %%
check("day12.faster", faster)

# %% [markdown]
# ## 4 · Beyond the course · stretch
#
# The course's compiler groups for the clock: it merges only loops of one shape, and leaves alone a softmax with its
# scale and a concatenation with what follows. If only launches count, more can be saved. Take fewer than it on an LSTM,
# on attention, in a ViT and on a network with a skip connection (complete), and on no model more launches or more bytes
# (efficient). The leaderboard marks entries that do so.


# %%
def beyond(gm: fx.GraphModule, inputs: tuple) -> Compiled:
    """A compiled model that beats what the course's compiler makes of it.

    In:  a traced model with shapes on its nodes, in any mode, and example inputs for
         it.
    Out: Compiled(graph, groups), as in question 1; you may call compile_model.
    Time: 60 s of computing for each test case.
    Not to be called: passlab.capstone.reference.compile,
        passlab.capstone.reference.library_groups,
        passlab.capstone.reference.kernel_groups, passlab.capstone.reference.plan,
        passlab.capstone.reference.fold_batchnorm,
        passlab.capstone.reference.fold_constants, passlab.capstone.reference.cse,
        passlab.capstone.reference.dce.
    """

    ### BEGIN SOLUTION
    def size(node: fx.Node) -> int:
        meta = node.meta["tensor_meta"]
        parts = [meta] if hasattr(meta, "shape") else meta
        return sum(part.shape.numel() for part in parts)

    compiled = compile_model(gm, inputs)
    nodes = {node.name: node for node in compiled.graph.graph.nodes}
    place = {name: at for at, name in enumerate(nodes)}
    why_not = groupable(compiled.graph, inputs)
    groups = list(compiled.groups)
    grouped_names = {name for group in groups for name in group}
    groups += [
        [name]
        for name in nodes
        if name not in grouped_names and why_not([[name]]) is None
    ]
    home = {name: at for at, group in enumerate(groups) for name in group}
    edges = [
        (name, user.name)
        for name in home
        for user in nodes[name].users
        if user.name in home
    ]
    for name, user in sorted(
        edges, key=lambda edge: size(nodes[edge[0]]), reverse=True
    ):
        one, other = home[name], home[user]
        if one == other:
            continue
        union = sorted([*groups[one], *groups[other]], key=place.__getitem__)
        merged = [*groups]
        merged[one], merged[other] = union, []
        if why_not([group for group in merged if group]) is None:
            groups = merged
            home.update(dict.fromkeys(union, one))

    views = (
        "transpose permute reshape view flatten unflatten squeeze unsqueeze chunk "
        "split getitem select"
    ).split()
    works = {
        n for n, node in nodes.items() if canonical(node, compiled.graph) not in views
    }
    return Compiled(compiled.graph, [g for g in groups if len(works & set(g)) > 1])
    ### END SOLUTION


# %%
check("day12.beyond", beyond)

# %% [markdown]
# ## 5 · What you built, and why
#
# Write half a page, about a hundred words, for a reader who knows compilers but not yours. A person reads and
# grades it. Answer these questions, with numbers that you measured:
#
# - Which passes does your compiler have, in which order, and why in this order?
# - On one model: what did each of them save, in launches, bytes or time?
# - Where does it not help, or lose, and what is the reason?
# - How did you measure, and how sure are you?
#
# ### BEGIN MARK SCHEME day12.write-up
# 10 points in all; half points are fine. Grade what is said, not how long it is.
#
# | points | for |
# |---|---|
# | 3 | **Design.** The passes are named in their order, and the order has a reason: one pass makes room for another (folding before grouping), or must not come before it. 1 point for a list without reasons. |
# | 3 | **Evidence.** At least two passes have their own figures on a named model, before and after. 1 point for figures of the whole compiler only; none for "it is faster". |
# | 2 | **Limits.** A model or case where it does not help or loses, with a cause that fits: convolutions take the time, small tensors, a group that is not legal, draws or writes in the way. 1 point without a cause. |
# | 2 | **Measuring.** Turns or repeats, a median or minimum, and a spread; or counts, and why they need none. 1 point if one of them is missing. |
#
# A figure that cannot come from the learner's own compiler gets no points: run it.
# ### END MARK SCHEME

# %% [markdown]
# ### BEGIN SOLUTION
# My compiler folds batch norms, merges equal calls, removes dead ones, and then groups. Folding comes first, because a
# batch norm between convolution and ReLU keeps them from being one group; merging comes before grouping, so that no group
# computes a value twice.
#
# On the lesson's model, folding takes 24 launches to 21, merging and dead code to 19, grouping to 10. Bytes fall by a
# half. In 40 rounds by turns, the median was 0.6 of eager's, far outside the spread.
#
# On the GPT block it gains little: matrix products take the time, and its groups save only small tensors. Values
# that are written in place I leave as they are.
# ### END SOLUTION
