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
# # Day 14 · Training as a pass: exercises
#
# Six questions. The core is questions 1, 2 and 3, about 120 minutes; the rest, about 180 minutes, is stretch: harder, and
# for extra credit. Read the lesson first: [day14_training.ipynb](../../course/day14_training.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day14.vjp")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import operator

import torch
from torch import Tensor, fx

from passlab import check, hint, progress
from passlab.autodiff import CONSTANT, RULES
from passlab.given.day14.backward import is_float, record, shares, values_of
from passlab.given.day14.vjp import OPERATIONS

# %% [markdown]
# ## 1 · A rule for each operation
#
# `g` is the gradient of a loss with respect to the result of an operation. Give its gradients with respect to the
# operation's arguments: the vector-Jacobian product. Your rules compute with tensors; each is called once, and what it
# computes is recorded as a graph (`make_fx`), which is then run on numbers. So a rule may look at shapes and types, but
# not at numbers.
#
# | op | the call | where the usual law does not decide |
# |---|---|---|
# | add | `x + alpha * y`: arguments x, y, `alpha=1` | |
# | mul, div | `x * y`, `x / y` | |
# | pow | `x ** n`, n a number | n = 0: the gradient is 0, for every x |
# | exp, sqrt, tanh | of `x` | the formula decides: 1 / (2 √0) is inf |
# | relu | of `x` | 0 where the result is 0 or less, otherwise g, also where x is NaN |
# | maximum | of `x` and `y` | g goes to the larger; equal ones get g / 2 each; if one is NaN, both get g |
# | where | `x` where `c`, otherwise `y`: arguments c, x, y | the side that was not chosen gets 0, whatever g is |
# | sum, amax | of `x` over `dim`: arguments x, dim, `keepdim=False` | amax: equal largest elements share g; if one is NaN, all get NaN |
# | norm | `√Σx²` over `dim`, `keepdim=False` | 0 for all x where the norm is 0 |
# | softmax | of `x` along `dim`, one number | |
# | expand, view | of `x` to `shape`, in which -1 means what it means in torch | |
# | permute | of `x` by `dims` | |
# | mm | the product of the matrices `x` and `y` | |
#
# `dim` and `dims` are lists of numbers, except for softmax; a negative one counts from the end. Tensors broadcast as in
# torch, and the operands may have different types. Beyond the table, NaN and inf come out as torch's formulas make them:
# `(g − Σ g·out)·out` for softmax, `g·x / norm` for norm, `-g·(x / y) / y` for div. `OPERATIONS` has the operations
# themselves, to try out.

# %%
OPERATIONS["norm"](torch.tensor([[3.0, 4.0]]), [1])


# %%
def vjp(op: str, g: Tensor, out: Tensor, *args, **kwargs) -> tuple:
    """Turn the gradient of an operation's result into gradients of its arguments.

    In:  op: a name of the table above,
         g: the gradient of the result, with its shape and dtype,
         out: the result,
         args, kwargs: what the operation was called with; alpha and keepdim are
         keywords, all else is positional.
    Out: a tuple with one entry for each of args: a tensor of the argument's shape and
         dtype, or None if the argument is not a tensor of floats.
    Not to be called: passlab.autodiff.rules.RULES,
         torch.autograd.forward_ad.make_dual, torch.autograd.graph._engine_run_backward.
         RULES is for question 2. Torch's own gradients end at the others; operations
         named …_backward cannot leave your notebook, either.

    Example:  vjp("exp", g, out, x) is (g * out,);
              vjp("sum", g, out, x, [0]) is (g.expand(x.shape), None).
    """
    ### BEGIN SOLUTION

    def spread(reduced, x, dim, keepdim):
        """The result of a reduction, copied to all elements that it was made of."""
        if not keepdim:
            for d in sorted(d % x.dim() for d in dim):
                reduced = reduced.unsqueeze(d)
        return reduced.expand(x.shape)

    def maximum(x, y):
        share = torch.where(x == y, g / 2, g)
        return share.masked_fill(x < y, 0), share.masked_fill(x > y, 0)

    def amax(x, dim, keepdim=False):
        chosen = x == spread(out, x, dim, keepdim)
        number = chosen.sum(dim, keepdim=True)
        return (spread(g, x, dim, keepdim) * chosen / number,)

    def norm(x, dim, keepdim=False):
        direction = x / spread(out, x, dim, keepdim)
        zero = spread(out, x, dim, keepdim) == 0
        return (spread(g, x, dim, keepdim) * direction.masked_fill(zero, 0),)

    def permute(x, dims):
        back = [0] * x.dim()
        for new, old in enumerate(dims):
            back[old] = new
        return (g.permute(back),)

    rules = {
        "add": lambda x, y, alpha=1: (g, g * alpha),
        "mul": lambda x, y: (g * y, g * x),
        "div": lambda x, y: (g / y, -g * (x / y) / y),
        "pow": lambda x, n: (g * (n * x ** (n - 1)) if n else torch.zeros_like(g),),
        "exp": lambda x: (g * out,),
        "sqrt": lambda x: (g / (2 * out),),
        "tanh": lambda x: (g * (1 - out * out),),
        "relu": lambda x: (g.masked_fill(out <= 0, 0),),
        "maximum": maximum,
        "where": lambda c, x, y: (None, g.masked_fill(~c, 0), g.masked_fill(c, 0)),
        "sum": lambda x, dim, keepdim=False: (spread(g, x, dim, keepdim),),
        "amax": amax,
        "norm": norm,
        "softmax": lambda x, dim: ((g - (g * out).sum(dim, keepdim=True)) * out,),
        "expand": lambda x, shape: (g,),
        "view": lambda x, shape: (g.reshape(x.shape),),
        "permute": permute,
        "mm": lambda x, y: (g @ y.T, x.T @ g),
    }
    gradients = list(rules[op](*args, **kwargs))
    gradients += [None] * (len(args) - len(gradients))
    return tuple(
        # what was copied is summed
        gradient.sum_to_size(x.shape).to(x.dtype)
        if isinstance(x, Tensor) and x.is_floating_point()
        else None
        for x, gradient in zip(args, gradients, strict=True)
    )
    ### END SOLUTION


# %%
check("day14.vjp", vjp)

# %% [markdown]
# ## 2 · Backwards through a graph
#
# From a forward graph, make the joint graph, which computes the gradients, too. The rules are there; what remains is the
# graph.
#
# - A value with several consumers gets the sum of their gradients, and the sum must be complete before it is passed on.
# - Gradients pass only nodes that depend on an input of floats, and whose value is a tensor of floats, or several tensors.
#   They do not pass an operation in `CONSTANT`.
# - An operation is without a rule if it is neither in `RULES` nor in `CONSTANT`, nor `operator.getitem`. If the
#   gradient of an output would have to pass it on its way to an input, raise ValueError with a message that contains
#   the node's name and the last line of `node.meta["stack_trace"]`, the source of the node. Elsewhere it is an
#   operation like any other.
#
# | given | |
# |---|---|
# | `is_float(node)` | whether its value is a tensor of floats |
# | `values_of(gm, inputs)` | node → value |
# | `shares(node, gradients, values)` | what a node's rule gives to its operands: pairs (operand, gradient), ready to be added. Of several results, it reads the gradients of their `getitem` nodes |
# | `record(run, examples)` | the graph of what a function does with tensors |

# %%
record(
    lambda x, w: [(x * w).sum()], [torch.ones(3), torch.ones(3)]
).graph.print_tabular()


# %%
def backward(gm: fx.GraphModule) -> fx.GraphModule:
    """Make the joint graph of a forward graph.

    In:  gm: a graph of ATen operations that write nothing. node.meta["val"] of each
         node is a tensor of its shape and type, without numbers (a tuple or list of
         them for several results). The output node returns a list of nodes, in which
         one may occur twice.
    Out: a graph whose inputs are those of gm in their order, and then one tangent for
         each output that is a tensor of floats, in order: the gradient of the loss by
         that output. It returns a list: the outputs of gm, then a gradient for each
         input that is a tensor of floats, in order; zeros if no output depends on it.
         It writes into none of its inputs, and has at most 5/4 of the operations that
         are needed, and 4 more.
    Not to be called: passlab.autodiff.joint.joint, passlab.autodiff.joint._backward,
         torch.autograd.graph._engine_run_backward.

    Example:  for y = x * w the joint graph computes y, tangent * w, tangent * x.
    """
    ### BEGIN SOLUTION
    inputs = gm.graph.find_nodes(op="placeholder")
    outputs = list(gm.graph.output_node().args[0])
    steps = [node for node in gm.graph.nodes if node.op == "call_function"]
    floats = [node for node in inputs if is_float(node)]
    ends = [node for node in outputs if is_float(node)]
    way = between(floats, steps, ends)

    def run(*args):
        values = values_of(gm, args[: len(inputs)])
        gradients = {}

        def add(node, gradient):
            old = gradients.get(node)
            gradients[node] = gradient if old is None else old + gradient

        for node, tangent in zip(ends, args[len(inputs) :], strict=True):
            add(node, tangent)
        for node in reversed(steps):
            if node in way:
                for operand, gradient in shares(node, gradients, values):
                    add(operand, gradient)
        for node in floats:
            gradients.setdefault(node, torch.zeros_like(values[node]))
        return [values[n] for n in outputs] + [gradients[n] for n in floats]

    return record(run, [node.meta["val"] for node in [*inputs, *ends]])


def between(floats, steps, ends):
    """The nodes that gradients pass from the ends to the inputs of floats."""
    # what a gradient can pass on its way to an input, and what an end needs
    passed, needed = set(floats), set(ends)
    for node in steps:
        carries = is_float(node) or not isinstance(node.meta["val"], Tensor)
        if carries and passed & {*node.all_input_nodes} and node.target not in CONSTANT:
            passed.add(node)
    for node in reversed(steps):
        if node in needed and node in passed:
            needed.update(node.all_input_nodes)
            if node.target not in RULES and node.target is not operator.getitem:
                line = node.meta["stack_trace"].strip().splitlines()[-1]
                raise ValueError(f"{node.name} has no rule: {line}")
    return needed & passed
    ### END SOLUTION


# %%
check("day14.backward", backward)

# %% [markdown]
# ## 3 · The cut
#
# A joint graph computes outputs and gradients. Training runs it in two parts: the forward graph computes the outputs,
# and keeps some values in memory; the backward graph takes these and the tangents, and computes the gradients. Split a
# joint graph so that few bytes are kept in between.
#
# The graph is functional ATen, with sizes that may be symbols (nodes of `aten.sym_size.int`). Its inputs whose names
# begin with `tangent` are the gradients of the outputs; its list of results has `outputs` outputs, then the gradients,
# which may be None. What no tangent reaches can be computed in the forward graph, and what the gradients read of it is
# either *saved* or *computed once more* in the backward graph, from other saved values. The laws:
#
# 1. The operations in `once`, and those that draw random numbers (`torch.Tag.nondeterministic_seeded` is in
#    `node.target.tags`), run as often in the two parts together as in the joint graph. All others may be computed
#    once more.
# 2. What counts is memory. A view keeps the whole memory alive that it looks into, and several values in one memory
#    count once. A saved input counts, too, and so does a saved output. `memory(node)` returns the name of the node
#    whose memory holds a value (for a view, the node into which it looks), and the bytes of that memory: a number (a
#    size) has 8 bytes. For a tuple (as of `var_mean`) it returns None: a tuple cannot be saved, its parts can.
# 3. `aten.copy_.default(x, value)` writes a new value into the input x, which belongs to the caller. These nodes come
#    last in the joint graph, and nothing reads them; in the forward graph they stay, and come last. When the backward
#    graph runs, x has been overwritten: save neither x nor a view of it.
#
# *Complete* is a cut with no more bytes than the memory of all forward values that the gradients read, directly or
# through nodes that a tangent reaches; *efficient* is one with the fewest bytes there are. Fewest bytes are a
# *minimum cut*, which `networkx` finds:
#
# - `net.add_edge(a, b, capacity=8)` is a pipe, and one without `capacity` is as wide as need be;
# - `nx.minimum_cut(net, source, sink)` returns the sum of the narrowest pipes that separate the two, and the two sets
#   of ends, the source's and the sink's. If nothing but unlimited pipes leads through, it raises `NetworkXUnbounded`.
#
# `part(joint, inputs, results, also=())` returns the graph that computes results (nodes or None) from inputs (nodes,
# which become placeholders), and keeps the nodes of `also`.

# %%
import networkx as nx

from passlab.given.day14.partition import memory, part


# %%
def partition(joint: fx.GraphModule, outputs: int, once: set) -> tuple:
    """Split a joint graph so that few bytes are saved between its two parts.

    In:  joint: a joint graph; each node has its value without data in meta["val"],
         outputs: how many of its results are outputs; the others are gradients,
         once: operations (targets of nodes) that are not to be computed twice.
    Out: a pair of GraphModules. The forward graph takes the inputs without the
         tangents, and returns a list: the outputs, then the saved values. The
         backward graph takes the saved values in that order (their names are free),
         then the tangents, and returns the list of gradients.
    Not to be called: passlab.autodiff.partition.partition,
         passlab.autodiff.partition.saved_values,
         passlab.autodiff.partition.saved_under_budget,
         torch._functorch.partitioners.min_cut_rematerialization_partition,
         torch._functorch.partitioners.default_partition.

    Example: for a joint graph of sin(exp(x)) with x of 8 bytes, the forward graph
             returns [sin, x]; the backward graph takes x and tangent_0, and computes
             exp once more. exp may be saved instead, for as many bytes, but not both.
    """
    ### BEGIN SOLUTION
    *nodes, end = joint.graph.nodes
    results = end.args[0]
    inputs = [node for node in nodes if node.op == "placeholder"]
    tangents = [node for node in inputs if node.name.startswith("tangent")]
    copy = torch.ops.aten.copy_.default
    writes = [node for node in nodes if node.target is copy]
    forward = set()  # what no tangent reaches
    for node in nodes:
        if node not in tangents + writes and forward.issuperset(node.all_input_nodes):
            forward.add(node)
    live = set(results[outputs:])
    for node in reversed(nodes):
        if node in live and node not in forward:
            live.update(node.all_input_nodes)

    net = nx.DiGraph()
    net.add_nodes_from(["inputs", "gradients"])
    written = {memory(node.args[0])[0] for node in writes}
    for node in [node for node in nodes if node in forward]:
        place, size = memory(node) or (None, None)
        saved = {} if place is None or place in written else {"capacity": size}
        net.add_edge((node, "before"), (node, "after"), **saved)
        tags = getattr(node.target, "tags", ())
        random = torch.Tag.nondeterministic_seeded in tags
        if node.op == "placeholder" or node.target in once or random:
            net.add_edge("inputs", (node, "before"))
        for operand in node.all_input_nodes:
            net.add_edge((operand, "after"), (node, "before"))
        if node in live:
            net.add_edge((node, "after"), "gradients")
    left = nx.minimum_cut(net, "inputs", "gradients")[1][0]
    cut = [n for n in nodes if (n, "before") in left and (n, "after") not in left]
    primals = [node for node in inputs if node not in tangents]
    return (
        part(joint, primals, results[:outputs] + cut, also=writes),
        part(joint, cut + tangents, results[outputs:]),
    )
    ### END SOLUTION


# %%
check("day14.partition", partition)

# %% [markdown]
# ## 4 · Once more, under a budget · stretch
#
# Now memory is short, and any operation may be computed once more, products, too. Rewrite a joint graph within the
# budget, so that the work of what is computed once more is least. The result is one graph, whose nodes say in which
# part they run:
#
# - a node whose name begins with `again` is *tagged*: it computes a value of the forward graph once more, behind the
#   cut. It depends on no tangent;
# - behind the cut are the tagged nodes, and all that a tangent reaches. All others belong to the forward graph, and
#   read nothing tagged; nor are outputs tagged.
#
# Kept are the values of the forward graph that nodes behind the cut read. As in question 3, memory counts
# (`memory(node)`), inputs count, and a tuple cannot be kept. The laws:
#
# 1. All that is kept has at most `budget` bytes. Such a graph exists.
# 2. The sum of `work_of(node)` over the tagged nodes is at most 1.1 times the least. A value that only gradients read
#    counts as well if it is tagged. Views are free.
# 3. No two nodes are *equal*: of the same target, args and kwargs, where operands have been merged already, and both
#    tagged or both not. The tag is a barrier: a tagged node is never merged with the value that it computes again.
#    The given graph has equal nodes, and merging them comes first: it can make two values one.
# 4. Nodes that draw random numbers are equal to nothing, and are never tagged.
#
# Nothing in these graphs is overwritten, and no size is a symbol. They are small: at most 16 memories come into
# question, so all sets of them can be tried; `cp_model` is quicker. The numbers `1`, `1.0` and `True` are different
# arguments.

# %%
from ortools.sat.python import cp_model

from passlab.autodiff import work_of


# %%
def recompute(joint: fx.GraphModule, outputs: int, budget: int) -> fx.GraphModule:
    """Merge equal nodes, and compute values once more, so that the budget suffices.

    In:  joint: a joint graph; each node has its value without data in meta["val"],
         outputs: how many of its results are outputs; the others are gradients,
         budget: the most bytes that are kept for what runs behind the cut.
    Out: a joint graph with the same inputs and results, in which the names of the
         nodes that are computed once more begin with "again".
    Time: 10 s of computing for each test case.
    Not to be called: passlab.autodiff.partition.partition,
         passlab.autodiff.partition.saved_under_budget.

    Example: exp(x @ w) under a budget that has no room for the result: the gradient of
             x @ w reads again_exp, which reads again_mm, which reads x and w. The
             output is exp, as before.
    """
    ### BEGIN SOLUTION
    *nodes, end = merged(joint).nodes
    forward, read = halves(nodes)
    keeps = cheapest(forward, read, budget)

    # the new graph, with each copy before its first reader
    result, old, new = fx.Graph(), {}, {}

    def behind(node):
        if node not in forward or node in keeps:
            return old[node]
        if node not in new:
            new[node] = result.node_copy(node, behind)
            new[node].name = f"again_{node.name}"
        return new[node]

    for node in nodes:
        old[node] = result.node_copy(node, old.get if node in forward else behind)
    result.node_copy(end, old.__getitem__)
    return fx.GraphModule({}, result)


def is_random(node):
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def merged(joint):
    """A copy of the graph in which equal nodes are one."""
    graph, copies, first = fx.Graph(), {}, {}
    for node in joint.graph.nodes:
        copies[node] = copy = graph.node_copy(node, copies.__getitem__)
        if not is_random(node):
            key = (copy.target, str(copy.args), str(copy.kwargs))
            copies[node] = first.setdefault(key, copy)
            if copies[node] is not copy:
                graph.erase_node(copy)
    return graph


def halves(nodes):
    """The nodes of the forward graph, in order, and what is read behind it."""
    forward, read = {}, set()
    for node in nodes:
        is_tangent = node.name.startswith("tangent")
        if not is_tangent and forward.keys() >= {*node.all_input_nodes}:
            forward[node] = None
        else:
            read.update(node.all_input_nodes)
    return forward, read


def cheapest(forward, read, budget):
    """The nodes to keep, so that the others take the least work once more."""
    model = cp_model.CpModel()
    places = {node: memory(node) for node in forward}
    keeps = {place: model.new_bool_var("") for place in set(places.values()) - {None}}
    again = {node: model.new_bool_var("") for node in places}
    available = {node: again[node] + keeps.get(places[node], 0) for node in places}
    for node in places:
        if node in read:
            model.add(available[node] >= 1)
        if node.op == "placeholder" or is_random(node):
            model.add(again[node] == 0)
        for operand in node.all_input_nodes:
            model.add(available[operand] >= again[node])
    model.add(sum(keep * place[1] for place, keep in keeps.items()) <= budget)
    model.minimize(sum(again[node] * work_of(node) for node in places))
    solver = cp_model.CpSolver()
    solver.solve(model)
    return {node for node in places if solver.value(keeps.get(places[node], 0))}
    ### END SOLUTION


# %%
check("day14.recompute", recompute)

# %% [markdown]
# ## 5 · A step in few kernels · stretch
#
# An optimizer updates each parameter by the same few element-wise operations. If the parameters of a group are one flat
# tensor, one kernel updates them all. Form the groups, and write the update of each as a graph.
#
# A parameter is a dictionary:
#
# | key | what it is |
# |---|---|
# | `name`, `shape`, `dtype` | a text; a tuple of numbers; `"float32"` or `"float64"` |
# | `memory` | a name for its memory. Parameters with the same memory are *one* tensor (shared weights), alike in all but the name; its gradient is the sum over all its uses already |
# | `gradients` | for each step, whether there is a gradient. Without one, torch.optim leaves a parameter, its state and its number of steps alone |
# | `options` | the options that were given; the others are the defaults of torch, `DEFAULTS[method]` |
#
# A group is a dictionary, too: `params`, the names of its parameters, and `graph`, a GraphModule. The graph takes p, g,
# the state, and t, and returns a list: the new p, and the new state.
#
# - p, g and each tensor of state are flat, of the group's dtype, with the parameters of the group one after the other.
#   `"sgd"` has one tensor of state, `"adam"` has two. They are zeros before the first step, and you decide what is in
#   them later; all are taken and returned, used or not.
# - t is a tensor of float64 without dimensions: the number of the step, 1 in the first one in which the group has
#   gradients. Steps without gradients do not count.
#
# The laws:
#
# 1. After each step, all parameters are what `torch.optim.SGD` or `torch.optim.Adam` with these options makes of them,
#    up to rounding. Two details of SGD: the momentum buffer after the first step is the gradient itself, without
#    dampening; with a momentum of 0, dampening means nothing. `maximize` turns the gradient round before anything else
#    is done with it. With `decoupled_weight_decay` (AdamW), p is first multiplied by 1 − lr · weight_decay, and the
#    gradient stays as it is; otherwise, weight_decay · p is added to the gradient.
# 2. The parameters of a group have the same dtype, the same options, all of them, and gradients in the same steps. An
#    option counts even where it changes nothing, as dampening does without momentum.
# 3. A tensor is stepped once, under one of its names; one that never has a gradient is in no group.
# 4. All operations are element-wise, so that a group is one kernel.
# 5. There are as few groups as can be.
#
# `fx.symbolic_trace` makes the graph of such a function, if the options are Python numbers around it.

# %%
from passlab.given.day14.optimizer import DEFAULTS

DEFAULTS["sgd"]


# %%
def fused(method: str, params: list[dict]) -> list[dict]:
    """Form few groups of parameters, and write the update of each as a graph.

    In:  method: "sgd" or "adam",
         params: parameters, see above.
    Out: a list of groups: {"params": [names], "graph": GraphModule}.

    Example: two parameters of float32 with the options {"lr": 0.1} and {"lr": 0.1,
             "momentum": 0}, and gradients in all steps, form one group. Its graph
             returns [p - 0.1 * g, state].
    """

    ### BEGIN SOLUTION
    def sgd(lr, momentum, dampening, weight_decay, nesterov, maximize):
        def step(p, g, speed, t):
            g = -g if maximize else g
            g = g + weight_decay * p
            damped = momentum * speed + (1 - dampening) * g
            speed = torch.where(t == 1, g, damped) if momentum else speed
            if momentum:
                g = g + momentum * speed if nesterov else speed
            return [p - lr * g, speed]

        return step

    def adam(lr, betas, eps, weight_decay, decoupled_weight_decay, maximize):
        def step(p, g, mean, square, t):
            g = -g if maximize else g
            if decoupled_weight_decay:
                p = p * (1 - lr * weight_decay)
            else:
                g = g + weight_decay * p
            mean = betas[0] * mean + (1 - betas[0]) * g
            square = betas[1] * square + (1 - betas[1]) * g * g
            size = lr / (1 - betas[0] ** t)
            root = (square / (1 - betas[1] ** t)) ** 0.5
            return [p - size * mean / (root + eps), mean, square]

        return step

    groups, stepped = {}, set()
    for one in params:
        if one["memory"] in stepped or not any(one["gradients"]):
            continue
        stepped.add(one["memory"])
        options = DEFAULTS[method] | one["options"]
        key = (one["dtype"], one["gradients"], *options.values())
        groups.setdefault(key, (options, []))[1].append(one["name"])
    update = {"sgd": sgd, "adam": adam}[method]
    return [
        {"params": names, "graph": fx.symbolic_trace(update(**options))}
        for options, names in groups.values()
    ]
    ### END SOLUTION


# %%
check("day14.optimizer", fused)

# %% [markdown]
# ## 6 · Forward mode · stretch
#
# Inputs change a little, by `change_x` and so on: how do the outputs change? The graph computes the outputs, and then the
# derivative of each along this direction (the Jacobian-vector product). The forward graphs have these operations, of
# `torch.ops.aten`:
#
# | operations | what is to know |
# |---|---|
# | `add.Tensor`, `sub.Tensor` | with `alpha`; an operand may be a number |
# | `mul.Tensor`, `div.Tensor`, `mm` | an operand of `mul` and `div` may be a number |
# | `exp`, `sin`, `cos`, `tanh`, `sigmoid`, `neg` | |
# | `relu` | the change, or 0 where the result is 0 or less |
# | `maximum`, `amax` | the change of the larger; at a tie the mean of the changes of those that are equal |
# | `where.self` | the change of the side that is chosen, whatever the other one is |
# | `_softmax` | (x, dim, False) |
# | `sum.dim_IntList`, `mean.dim`, `cat`, `stack`, `view`, `t`, `permute`, `expand`, `unsqueeze` | |
# | `split_with_sizes` and `operator.getitem` | |
# | `index.Tensor` | (x, [rows]) |
# | `_to_copy` | to another dtype |
# | `gt.Tensor`, `gt.Scalar`, `ones`, `scalar_tensor`, and operations on whole numbers | nothing changes |


# %%
def forward_mode(gm: fx.GraphModule) -> fx.GraphModule:
    """Make the graph of outputs and their derivatives along a direction.

    In:  gm: a graph of the operations above. node.meta["val"] of each node is a tensor
         of its shape and type (a tuple or list of them for several results).
    Out: a graph whose inputs are those of gm in their order, and then a change for each
         input that is a tensor of floats, in order. It returns a list: the outputs of
         gm, then the derivative of each output that is a tensor of floats, of its
         shape and type; zeros if it does not depend on such an input. At most six
         operations for each one of gm, and 4 more.
    Not to be called: passlab.autodiff.forward_mode.jvp, passlab.autodiff.joint.joint,
         torch.autograd.forward_ad.make_dual, torch.autograd.graph._engine_run_backward.
         Torch's own forward mode begins at make_dual.

    Example:  for y = x * w the graph computes y, change_x * w + x * change_w.
    """
    ### BEGIN SOLUTION
    inputs = gm.graph.find_nodes(op="placeholder")
    outputs = list(gm.graph.output_node().args[0])

    def run(*args):
        values = values_of(gm, args[: len(inputs)])
        changes = dict(zip(filter(is_float, inputs), args[len(inputs) :], strict=True))
        for node in gm.graph.nodes:
            out = values.get(node)
            whole = isinstance(out, Tensor) and not out.is_floating_point()
            if node.op != "call_function" or whole:
                continue
            operands = fx.node.map_arg(node.args, values.__getitem__)
            pairs = zip(node.args, operands, strict=True)
            moved = [change_of(changes, argument, value) for argument, value in pairs]
            if any(change is not None for change in moved):
                changes[node] = derivative(node, out, operands, moved)
        derivatives = []
        for node in filter(is_float, outputs):
            derivatives.append(changes[node] if node in changes else zero(values[node]))
        return [values[node] for node in outputs] + derivatives

    examples = [node.meta["val"] for node in [*inputs, *filter(is_float, inputs)]]
    return record(run, examples)


def zero(t):
    return torch.zeros_like(t) if isinstance(t, Tensor) else 0.0


def change_of(changes, argument, value):
    """The change of an argument, which may be a list; None if it does not change."""
    if isinstance(argument, fx.Node):
        return changes.get(argument)
    if isinstance(argument, list | tuple) and any(
        isinstance(part, fx.Node) and part in changes for part in argument
    ):
        pairs = zip(argument, value, strict=True)
        return [changes[part] if part in changes else zero(v) for part, v in pairs]
    return None


def derivative(node, out, args, moved):
    """The change of a result: args are the values, moved the changes of some."""
    op = node.target
    if op in (aten.mul.Tensor, aten.mm.default):
        return product(op, *args, *moved)
    # elsewhere, what does not change has the change zero
    pairs = zip(args, moved, strict=True)
    dx, *rest = (zero(x) if change is None else change for x, change in pairs)
    if op in SLOPES:
        return dx * SLOPES[op](args[0], out)
    if op is aten.div.Tensor:
        return (dx - out * rest[0]) / args[1]
    if op is aten.relu.default:
        return dx.masked_fill(out <= 0, 0)
    if op is aten.maximum.default:
        return maximum(dx, rest[0], *args)
    if op is aten.amax.default:
        return amax(dx, out, *args, **node.kwargs)
    if op is aten._softmax.default:
        return softmax(dx, out, *args)
    if op is aten.where.self:
        return op(args[0], *rest)
    if op in (aten.add.Tensor, aten.sub.Tensor):
        return op(dx, rest[0], **node.kwargs)
    # all others are linear in their first argument
    return op(dx, *args[1:], **node.kwargs)


aten = torch.ops.aten
SLOPES = {  # of what works element by element
    aten.exp.default: lambda x, out: out,
    aten.sin.default: lambda x, out: x.cos(),
    aten.cos.default: lambda x, out: -x.sin(),
    aten.tanh.default: lambda x, out: 1 - out * out,
    aten.sigmoid.default: lambda x, out: out * (1 - out),
}


def product(op, x, y, dx, dy):
    terms = [] if dx is None else [op(dx, y)]
    terms += [] if dy is None else [op(x, dy)]
    return sum(terms[1:], terms[0])


def softmax(dx, out, x, dim, half):
    return out * (dx - (out * dx).sum(dim, keepdim=True))


def maximum(dx, dy, x, y):
    tie = (dx + dy) / 2
    return torch.where(x == y, tie, torch.where(x > y, dx, dy))


def amax(dx, out, x, dim, keepdim=False):
    chosen = x == x.amax(dim, keepdim=True)
    total = torch.where(chosen, dx, 0.0).sum(dim, keepdim)
    return total / chosen.sum(dim, keepdim)
    ### END SOLUTION


# %%
check("day14.forward-mode", forward_mode)

# %%
progress("day14")
