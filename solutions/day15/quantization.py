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
# # Day 15 · Quantization as a pass: exercises
#
# The core is questions 1, 2 and 3, about 110 minutes; the rest, about 175 minutes, is stretch: harder, and for extra
# credit. Read the lesson first: [day15_quantization.ipynb](../../course/day15_quantization.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day15.grid")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import math

import torch
from torch import fx
from torch.nn import functional as F

from passlab import check, hint, progress
from passlab.fx.nodes import attribute
from passlab.given.day15.fold import constant, window
from passlab.given.day15.insert import LAYERS, MOVES
from passlab.quantization import (
    dequantize,
    integer_conv2d,
    integer_linear,
    quantize,
    weight_scales,
)
from passlab.quantization.semantics import ends, fixed_points

# %% [markdown]
# ## 1 · A grid for a range
#
# A grid of b bits has the integers −2^(b−1) … 2^(b−1) − 1; q stands for scale · (q − zero_point). Its **ends** are the
# first and the last of these integers. `grid` returns the pair (scale, zero_point) for the values from `low` to `high`,
# or `None` if there is no grid. The laws:
#
# - A range has no grid if it is empty (low > high), or if an end is infinite or NaN. Every other range has one.
# - A range on one side of 0 is extended to 0. So is one with low = high, if that is not 0.
# - The scale is the extended range divided by the number of steps between the two ends of the grid.
# - The zero point is an `int`, and so that low is at the first end: the nearest integer; of two equally near ones, either.
# - If `symmetric`, the zero point is 0. The scale is the smallest with which the integers −n … n cover the range, where n
#   is the last end; the first one, −n − 1, is not counted on.
# - The range 0 … 0 has the scale 1 and the zero point 0.
# - float32 keeps all digits down to 2⁻¹²⁶, so a smaller scale becomes 2⁻¹²⁶; the zero point then goes with that scale.
#
# `low` and `high` are Python floats that float32 can hold, `bits` is 2 … 8. Scales are compared with a relative
# tolerance of 10⁻⁶.


# %%
def grid(low: float, high: float, bits: int, symmetric: bool) -> tuple | None:
    """Return (scale, zero_point) for the values low … high, None without a grid.

    Not to be called: passlab.quantization.grids.grid,
    passlab.quantization.grids.weight_scales.
    """
    ### BEGIN SOLUTION
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        return None
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return 1.0, 0
    first, last = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if symmetric:
        return max(max(-low, high) / last, 2.0**-126), 0
    scale = max((high - low) / (last - first), 2.0**-126)
    return scale, round(first - low / scale)
    ### END SOLUTION


# %%
check("day15.grid", grid)

# %% [markdown]
# ## 2 · Pairs in the right places
#
# `insert` gets a float graph whose weights are nodes (`get_attr`), and `grids`: name of a value → its (scale,
# zero_point). It returns the graph with **pairs**: a quantize, and a dequantize of the same grid that reads it.
#
# A **layer** calls one of `LAYERS`: `F.linear`, `F.conv2d`, or `torch.add`, the last only if it adds two values, both
# computed: neither is a number or a `get_attr`. All of them get these operands as positional arguments.
#
# - **Values**: each value that a layer reads or returns gets a pair, and whatever read the value reads the pair instead:
#   other nodes and the output, too. With its grid, the pair of v is
#   `dequantize(quantize(v, scale, zero_point, 8), scale, zero_point, 8)`.
# - **Moves**: where the operand of a layer is the result of one of `MOVES`, the pair belongs to what that moves, its first
#   operand; and so on, back to a node that is not one of them. What is moved itself gets no pair.
# - **Relu**: if nothing but one `torch.relu` reads what a layer returns, the pair belongs behind the relu, and not before it.
# - **Weights**: the second operand of `F.linear` and `F.conv2d`, always a `get_attr`, gets a pair, too:
#   `dequantize(quantize(w, s, 0, 8, axis=0), s, 0, 8, axis=0)`. Here s is a buffer, the node that `constant(gm, name,
#   weight_scales(weight))` returns. Only layers read w through the pair; its other readers still read the float. Biases
#   get no pair.
# - **Once**: there is one pair for each value, however many layers read or return it, and one for each weight, however
#   many layers have it: two `get_attr` nodes may name one tensor, by one name or by two.
# - Nothing else gets a pair, and nothing else changes.
#
# A weight is `attribute(gm, node.target)`. You may edit `gm` or make another graph.


# %%
def insert(gm: fx.GraphModule, grids: dict) -> fx.GraphModule:
    """Return the graph with pairs around its layers.

    Not to be called: passlab.quantization.insert.insert.
    """
    ### BEGIN SOLUTION

    def is_value(x):
        return isinstance(x, fx.Node) and x.op != "get_attr"

    def is_layer(node):
        if node.op != "call_function" or node.target not in LAYERS:
            return False
        return node.target is not torch.add or all(map(is_value, node.args))

    def pair(node, after, *grid, **how):
        with gm.graph.inserting_after(after):
            q = gm.graph.call_function(quantize, (node, *grid), how)
        with gm.graph.inserting_after(q):
            return gm.graph.call_function(dequantize, (q, *grid), how)

    layers = [node for node in gm.graph.nodes if is_layer(node)]
    roots = {}
    for layer in layers:
        for operand in layer.args[: 2 if layer.target is torch.add else 1]:
            while operand.target in MOVES:
                operand = operand.args[0]
            roots[operand] = None
        users = list(layer.users)
        alone = len(users) == 1 and users[0].target is torch.relu
        roots[users[0] if alone else layer] = None
    for root in roots:
        dq = pair(root, root, *grids[root.name], 8)
        q = dq.args[0]
        root.replace_all_uses_with(dq, lambda user, q=q: user is not q)

    pairs = {}
    for layer in layers:
        if layer.target is torch.add:
            continue
        weight = layer.args[1]
        value = attribute(gm, weight.target)
        if id(value) not in pairs:
            with gm.graph.inserting_after(weight):
                scale = constant(gm, f"{weight.name}_scale", weight_scales(value))
            pairs[id(value)] = pair(weight, scale, scale, 0, 8, axis=0)
        layer.replace_input_with(weight, pairs[id(value)])
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("day15.insert", insert)

# %% [markdown]
# ## 3 · Integers between the layers
#
# `fold` gets a graph with pairs and returns one whose layers compute with integers. Where a quantize reads a **layer**,
# `F.linear` or `F.conv2d`, or reads one `torch.relu` that reads a layer, it becomes one node that returns the same int8:
#
# ```
# integer_linear(x, weight, bias, x_zero, multiplier, shift, zero_point, low, high)
# integer_conv2d(x, weight, bias, *window(layer), x_zero, multiplier, shift, zero_point, low, high)
# ```
#
# if both operands of the layer are dequantized. Then `x` is `dequantize(q, scale, zero_point, bits)`, of an int8 q, the
# weight is `dequantize(quantize(w, s, 0, 8, axis=0), s, 0, 8, axis=0)`, with a `get_attr` for w and for s, one scale for
# each output, and the bias, the third operand, is a `get_attr`, None, or not there: no layer has other forms. `window`
# reads stride, padding, dilation and groups.
#
# The node's operands: `x` is q itself; the others in its first line are constants, nodes that `constant(gm, name, tensor)`
# puts into the graph.
#
# - **weight**: `quantize` of w, in int8. **bias**: b / (s_x · s_w), rounded to even, in int32; None without one.
# - **multiplier, shift**: `fixed_points(factors)` of the factors s_x · s_w / s_out, where s_out is the scale of the
#   quantize. These and the bias are computed in float64.
# - **x_zero, zero_point**: numbers, of the grid of x and that of the quantize. **low, high**: the ends of the latter, which may
#   have fewer than 8 bits (`ends(bits)`); with a relu, low is the integer that stands for 0.
#
# All else stays as it is:
#
# - A layer whose bias does not fit, since one of its integers has a magnitude of 2³¹ or more, stays in float. So does a layer
#   of which an operand is not dequantized.
# - What reads the *float* of a layer or of its relu goes on reading it. What reads the int8 reads the new node.
# - The output no longer needs what only folded layers have used: no weight in float, and no dequantize.
# - A weight that several layers read through one pair is stored **once** as integers.
#
# The result is compared bit by bit with the integers that the lesson states.


# %%
def fold(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with integer layers.

    Not to be called: passlab.quantization.fold.fold,
    passlab.quantization.fold.layer_of.
    """
    ### BEGIN SOLUTION

    def layer_before(q):
        node = q.args[0]
        if node.target is torch.relu:
            node = node.args[0]
        if node.target not in (F.linear, F.conv2d):
            return None
        x, weight = node.args[:2]
        return node if x.target is weight.target is dequantize else None

    weights = {}
    for q in gm.graph.find_nodes(op="call_function", target=quantize):
        layer = layer_before(q)
        if layer is None:
            continue
        x, weight, *rest = layer.args
        s_w = attribute(gm, weight.args[1].target).double()
        x_q, s_x, x_zero, _ = x.args
        _, s_out, zero_point, bits = q.args

        b = None
        if rest and rest[0] is not None:
            b = torch.round(attribute(gm, rest[0].target).double() / (s_x * s_w))
            if (b.abs() >= 2**31).any():
                continue
        low, high = ends(bits)
        if q.args[0] is not layer:
            low = zero_point

        def new(name, value, layer=layer):
            return constant(gm, f"{layer.name}_{name}", value)

        with gm.graph.inserting_before(q):
            if weight not in weights:
                w = attribute(gm, weight.args[0].args[0].target)
                w_q = quantize(w, s_w.float(), 0, 8, axis=0)
                weights[weight] = new("weight", w_q)
            bias = None if b is None else new("bias", b.to(torch.int32))
            multiplier, shift = fixed_points(s_x * s_w / s_out)
            factor = new("multiplier", multiplier), new("shift", shift)
            requantize = (*factor, zero_point, low, high)
            head = x_q, weights[weight], bias
            if layer.target is F.linear:
                args = *head, x_zero, *requantize
                node = gm.graph.call_function(integer_linear, args)
            else:
                args = *head, *window(layer), x_zero, *requantize
                node = gm.graph.call_function(integer_conv2d, args)
        q.replace_all_uses_with(node)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("day15.fold", fold)

# %% [markdown]
# ## 4 · Bytes that move · stretch
#
# A transpose of floats moves four bytes where one would do. These functions only move or choose elements; `MOVING` holds
# them, and they take one tensor or a list of tensors (`torch.cat`):
#
# reshape, flatten, transpose, permute, flip, roll, `x[…]` (`operator.getitem`), cat, and two that choose the largest,
# amax and max_pool2d.
#
# For t among them, and finite numbers, three laws hold bit for bit:
#
# 1. quantize(t(x)) = t(quantize(x)). If t reads several tensors, each is quantized.
# 2. t(dequantize(q)) = dequantize(t(q)), if all that t reads is dequantized *on one grid*: the same scale, zero point
#    and bits.
# 3. quantize(dequantize(q)) = q, on one grid.
#
# Apply them from left to right until none can be applied. The first only if the quantize is the *only* reader of t(x):
# otherwise t would run twice. A scale per channel belongs to an axis, so quantize and dequantize with `axis` stay where
# they are. All other functions (relu, average, sum …) compute, and stay what they are, on the same values.

# %%
from passlab.given.day15.move import MOVING


# %%
def move(gm: fx.GraphModule) -> fx.GraphModule:
    """Let what only moves elements move int8.

    In:  gm: a functional graph. Its pairs are nodes quantize(x, scale, zero_point,
         bits) and dequantize(q, scale, zero_point, bits); scale is a float. Or scale
         is a node, and there is the keyword argument axis: such nodes stay. The
         functions of MOVING may be called with keywords (torch.cat(tensors=[a, b])).
    Out: a graph with the same results, bit for bit, to which none of the three laws
         can be applied any more. Besides quantize and dequantize it calls the same
         functions as before, each as often. Nodes that nothing needs do not count,
         as readers neither.
    Not to be called: passlab.quantization.move.move.

    Example:  torch.tanh(torch.flatten(dequantize(q, 0.1, 0, 8)))
              becomes torch.tanh(dequantize(torch.flatten(q), 0.1, 0, 8)).
    """
    ### BEGIN SOLUTION
    graph = gm.graph
    graph.eliminate_dead_code()

    def grid(node, function):
        """The scale, zero point and bits of a node, None if it is no pair's."""
        plain = node.target is function and "axis" not in node.kwargs
        return node.args[1:] if plain else None

    todo = list(graph.nodes)
    while todo:
        q = todo.pop()
        if not grid(q, quantize):
            continue
        t = q.args[0]
        if t.target in MOVING and len(t.users) == 1:
            for x in t.all_input_nodes:
                with graph.inserting_before(t):
                    todo.append(graph.call_function(quantize, (x, *q.args[1:])))
                t.replace_input_with(x, todo[-1])
            q.replace_all_uses_with(t)

    for t in list(graph.nodes):
        grids = {grid(x, dequantize) for x in t.all_input_nodes}
        if t.target in MOVING and len(grids) == 1 and None not in grids:
            for dq in t.all_input_nodes:
                t.replace_input_with(dq, dq.args[0])
            with graph.inserting_after(t):
                new = graph.call_function(dequantize, (t, *grids.pop()))
            t.replace_all_uses_with(new, lambda user, new=new: user is not new)

    for q in graph.nodes:
        if grid(q, quantize) and grid(q.args[0], dequantize) == grid(q, quantize):
            q.replace_all_uses_with(q.args[0].args[0])
    graph.eliminate_dead_code()
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("day15.move", move)

# %% [markdown]
# ## 5 · Two in a byte · stretch
#
# Weights of 4 bits are still stored as floats, and quantized each time the network runs. Store their integers, two in
# a byte, and let the linear layers unpack them while they read.
#
# 1. A weight is a constant (a `get_attr` node) with `quantize` and `dequantize` behind it, with 4 bits and a scale for
#    each `group` of inputs. `quantize` can be called on tensors, so its integers are known now.
# 2. Of each two neighbours in a row, the first is the low half of a byte, the second the high half: a weight (outputs,
#    inputs) becomes a tensor of `uint8`, (outputs, inputs / 2). If the rows are odd, the integers are stored as int8.
# 3. `F.linear(x, weight, bias)` with such a weight becomes `linear_int4(x, packed, scale, bias)`. What else reads the
#    weight gets `dequantize(unpack(packed), …)`, with the other arguments of dequantize as they were; weights with odd
#    rows are dequantized for all of their readers.
# 4. What is stored twice is not saved. Several `get_attr` nodes may read the same weight, each with its own pair, and
#    all on the same grid: store it once, and unpack it at most once. And if something besides quantize reads the floats
#    of a weight, they have to stay: then leave the weight and its pairs as they are.
# 5. Pairs with other bits, pairs of what is computed, and weights without a pair, stay as they are.
#
# A constant is stored by `gm.register_buffer(name, tensor)`, read by `graph.get_attr(name)`. What counts is the bytes of
# all constants that the graph reads, each name once.

# %%
from passlab.given.day15.pack import linear_int4, unpack


# %%
def pack(gm: fx.GraphModule) -> fx.GraphModule:
    """Store weights of 4 bits packed, and let linear layers read them so.

    In:  gm: a graph whose weights are attributes of gm, float32, (outputs, inputs).
         Their pairs are quantize(weight, scale, 0, bits, group=...) and
         dequantize(q, scale, 0, bits, group=...), where scale is a constant, too.
         F.linear may be called with keywords.
    Out: a graph with the same results but for the rounding of float sums, which reads
         the fewest bytes of constants, and unpacks nothing outside linear_int4 that
         is not needed. All other functions are called as often as before.
         Nodes that nothing needs do not count, as readers neither.
    Not to be called: passlab.quantization.pack.pack_int4.

    Example:  of a row, the integers [-8, 7] become the byte 0x78:
              -8 is 1000, 7 is 0111, and the first is the low half.
    """
    ### BEGIN SOLUTION
    graph = gm.graph
    graph.eliminate_dead_code()

    def operands(input, weight, bias=None):
        return input, weight, bias

    def halves(q):
        return (q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4).to(torch.uint8)

    needed = {  # floats that something else reads
        node.target
        for node in graph.find_nodes(op="get_attr")
        if any(user.target is not quantize for user in node.users)
    }
    opened = {}  # weight → the node that unpacks it
    for dq in graph.find_nodes(op="call_function", target=dequantize):
        q = dq.args[0]
        weight, scale = q.args[:2]
        if weight.op != "get_attr" or q.args[3] != 4 or weight.target in needed:
            continue
        values = [getattr(gm, weight.target), getattr(gm, scale.target)]
        integers = quantize(*values, *q.args[2:], **q.kwargs)
        odd = integers.shape[1] % 2
        name = f"{weight.target}_int4"
        gm.register_buffer(name, integers if odd else halves(integers))
        with graph.inserting_before(q):
            packed = graph.get_attr(name)
        for user in list(dq.users):
            if user.target is F.linear and not odd:
                x, w, bias = operands(*user.args, **user.kwargs)
                if w is dq:
                    with graph.inserting_before(user):
                        args = (x, packed, scale, bias)
                        new = graph.call_function(linear_int4, args)
                    user.replace_all_uses_with(new)
        if odd:
            dq.replace_input_with(q, packed)
        elif dq.users:
            if name not in opened:
                with graph.inserting_before(q):
                    opened[name] = graph.call_function(unpack, (packed,))
            dq.replace_input_with(q, opened[name])
    graph.eliminate_dead_code()
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("day15.pack", pack)

# %% [markdown]
# ## 6 · Outliers into weights · stretch
#
# A few channels of an activation are a hundred times as large as the others, and set the scale of all. Divide each
# channel i by a factor sᵢ, and multiply the weights that read it by sᵢ: the function stays the same, and the channels
# become more alike.
#
# - **From** where: a layer `F.linear(x, weight, bias)` or `F.linear(x, weight)`, or a norm `F.layer_norm(x, sizes,
#   weight, bias)` over one dimension, perhaps with an eps behind. Its weight and bias are constants (`get_attr`), into
#   which 1/s goes: of a layer, into the rows of the weight and into the bias, if there is one. A norm has both, or
#   nothing moves from it.
# - **Over** what: any number of `torch.relu`, one after the other. Each must be the only reader of the value before it,
#   and relu(x / s) = relu(x) / s, because s > 0.
# - **Into** what: all readers of the value behind must be layers of constants that read it as their x. If anything else
#   reads it, nothing moves.
# - The factor: sᵢ = max|xᵢ|^α / max|wᵢ|^(1 − α). x is the value that the layers read (behind the relus): its maxima are
#   `largest[node.name]`. max|wᵢ| is over column i of the weights of *all* these layers. Maxima below 10⁻⁵ count as 10⁻⁵.
#   In a chain of layers a weight loses factors and gets others; all maxima are those of the given graph.
# - A constant may have other readers, which must get what they got before. So make new ones: `gm.register_buffer` and
#   `graph.get_attr`.


# %%
def migrate(gm: fx.GraphModule, largest: dict, alpha: float) -> fx.GraphModule:
    """Move factors from activations into the weights that read them.

    In:  gm: a graph; layers, norms and relus are called as above, by position.
         largest: name of a node → the largest magnitude of its value in each index of
         the last dimension, a vector,
         alpha: a number from 0 to 1.
    Out: a graph of the same calls in the same order, with other constants: each value
         from which a factor moves is divided by it, and all other values are the same.
    Not to be called: passlab.quantization.migrate.migrate.

    Example:  layer_norm(x, (2,), [1, 9], b) is read by one layer, with the columns
              [[1, 1]]. If largest is [1, 9] and alpha 0.5, s is [1, 3]: the norm gets
              the weight [1, 3], the layer [[1, 3]].
    """
    ### BEGIN SOLUTION
    graph = gm.graph

    def value(node):
        return getattr(gm, node.target)

    divided, multiplied = {}, {}
    for node in graph.nodes:
        if not is_layer(node) and not is_norm(node):
            continue
        x = node
        while [user.target for user in x.users] == [torch.relu]:
            (x,) = x.users
        layers = list(x.users)
        if layers and all(is_layer(user) and user.args[0] is x for user in layers):
            w = torch.cat([value(user.args[1]) for user in layers]).abs().amax(0)
            w, most = w.clamp(min=1e-5), largest[x.name].clamp(min=1e-5)
            divided[node] = most**alpha / w ** (1 - alpha)
            multiplied |= dict.fromkeys(layers, divided[node])

    for node in list(divided | multiplied):
        first = 2 if is_norm(node) else 1
        weight, bias = [*node.args[first : first + 2], None][:2]
        s = divided.get(node, torch.ones(len(value(weight))))
        w = value(weight) / (s if is_norm(node) else s[:, None])
        new = {first: w * multiplied.get(node, 1)}
        if bias is not None:
            new[first + 1] = value(bias) / s
        for place, tensor in new.items():
            name = f"{node.name}_constant{place}"
            gm.register_buffer(name, tensor)
            with graph.inserting_before(node):
                node.update_arg(place, graph.get_attr(name))
    graph.eliminate_dead_code()
    gm.recompile()
    return gm


def constants(parts):
    return all(part is None or part.op == "get_attr" for part in parts)


def is_layer(node):
    return node.target is F.linear and constants(node.args[1:])


def is_norm(node):
    if node.target is not F.layer_norm or len(node.args) < 4:
        return False
    weights = node.args[2:4]
    return len(node.args[1]) == 1 and None not in weights and constants(weights)
    ### END SOLUTION


# %%
check("day15.migrate", migrate)

# %% [markdown]
# ## 7 · A promise for all inputs · stretch
#
# A chain of layers, y = weight @ x + bias, with a relu between any two of them. Give each weight 2, 4, 8 or 32 bits (32:
# it stays as it is), so that the bytes are few, and the error of each output is at most `budget` for **all** inputs
# with low ≤ xᵢ ≤ high. It must be *proved* by this bound; all vectors are taken element by element:
#
# - m: how large can |x| be that a layer reads? Let lo ≤ x ≤ hi, at first low and high. Behind the layer, the least value
#   is W⁺ lo + W⁻ hi + bias and the largest W⁺ hi + W⁻ lo + bias, where W⁺ has the positive weights and 0 elsewhere, W⁻
#   the negative ones. A relu makes 0 of what is negative. m is the larger of |lo| and |hi|.
# - e: how far can x be off that a layer reads? At first 0. Behind the layer it is
#   |W| e + |Ŵ − W| (m + e), where Ŵ is what the weight has become. A relu lets it pass.
# - The error is the largest e behind the last layer.
#
# More bits in later layers never make up for too large an error: even with all of them at 32 bits, the error so far
# still grows with |W|. So a beginning that is over the budget even then need not be tried any further.
#
# | given | |
# |---|---|
# | `quantized(weight, bits)` | Ŵ |
# | `bytes_of(weight, bits)` | the bytes of a weight, with its scales |

# %%
from passlab.given.day15.plan import BITS, bytes_of, quantized


# %%
def plan(layers: list, low: float, high: float, budget: float) -> list:
    """Give each layer bits, so that the error is within a budget for all inputs.

    In:  layers: pairs (weight, bias) of tensors of float64, at most 8; a weight is
         (outputs, inputs),
         low, high: the ends of each input,
         budget: the error that is allowed, 0 or more.
    Out: a list of bits, one of 2, 4, 8, 32 for each layer, whose bound is within the
         budget. Complete: at most 5/4 of the fewest bytes. Efficient: the fewest.
    Not to be called: passlab.quantization.plan.plan.

    Example:  a budget of 0 leaves 32 bits to each layer, unless its weight is exact
              with fewer: [[1, -1, 0]] is, with 2 bits.
    """
    ### BEGIN SOLUTION
    lo = torch.full((layers[0][0].shape[1],), low, dtype=torch.float64)
    hi = torch.full_like(lo, high)
    steps = []  # of each layer: |W|, m, and choices of bits, bytes, |Ŵ − W|
    for weight, bias in layers:
        m = torch.maximum(lo.abs(), hi.abs())
        options = [
            (bits, bytes_of(weight, bits), (quantized(weight, bits) - weight).abs())
            for bits in BITS
        ]
        steps.append((weight.abs(), m, options))
        up, down = weight.clamp(min=0), weight.clamp(max=0)
        lo, hi = up @ lo + down @ hi + bias, up @ hi + down @ lo + bias
        lo, hi = lo.relu(), hi.relu()

    def final(at, e):
        """The error at the end, if all layers from here on are exact."""
        for w, _, _ in steps[at:]:
            e = w @ e
        return e.max()

    def fewest(at):
        return sum(min(size for _, size, _ in options) for _, _, options in steps[at:])

    best, best_size = None, float("inf")

    def search(bits, size, e):
        nonlocal best, best_size
        at = len(bits)
        if size + fewest(at) >= best_size or final(at, e) > budget:
            return
        if at == len(steps):
            best, best_size = bits, size
            return
        w, m, options = steps[at]
        for number, more, off in options:
            search([*bits, number], size + more, w @ e + off @ (m + e))

    search([], 0, torch.zeros_like(steps[0][1]))
    return best
    ### END SOLUTION


# %%
check("day15.plan", plan)

# %%
progress("day15")
