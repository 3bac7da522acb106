"""Hidden cases and answers of day15.fold."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.answers.day15._shared import alone_in_a_tuple
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day15.fold import NONE, fold_case, layer_before, with_bits, without_pair
from passlab.fx.nodes import attribute
from passlab.given.day15.fold import constant, window
from passlab.judge import Case, drawn
from passlab.quantization import dequantize, integer_conv2d, integer_linear, quantize
from passlab.quantization.semantics import ends, fixed_points


@drawn
def ordinary(rng) -> list[Case]:
    n, k = rng.randint(2, 4), rng.randint(5, 7)

    @fold_case("drawn, values above 0", torch.rand(40, k) + 1, w=(n, k), b=(n,))
    def positive(m, x):
        return F.linear(x, m.w, m.b)

    @fold_case("drawn, three layers", (9, k), w=(k, k), v=(k, k), u=(n, k), b=(k,), c=(n,))
    def three(m, x):
        return F.linear(torch.relu(F.linear(F.linear(x, m.w, m.b), m.v)), m.u, m.c)

    @fold_case("drawn, convolutions", (2, 4, 9, 8), w=(4, 1, 3, 3), v=(n, 4, 1, 2), b=(4,))
    def convolutions(m, x):
        y = torch.relu(F.conv2d(x, m.w, m.b, (2, 1), (1, 2), 1, 4))
        return F.conv2d(y, m.v, None, dilation=(1, 2), stride=rng_stride)

    rng_stride = rng.choice([1, 2])

    @fold_case("drawn, few bits", (20, k), edit=with_bits(rng.randint(3, 6)), w=(n, k), b=(n,))
    def few(m, x):
        return torch.relu(F.linear(x, m.w, m.b))

    @fold_case("drawn, few bits behind, and eight before", (20, k), edit=behind(rng.randint(3, 6)), w=(n, k))
    def fewer(m, x):
        return F.linear(x, m.w)

    @fold_case("drawn, few bits without a relu", (20, k), edit=with_bits(rng.randint(3, 6)), w=(n, k))
    def few_plain(m, x):
        return F.linear(x, m.w)

    return [positive, three, convolutions, few, few_plain, fewer]


def behind(bits: int) -> Callable[[fx.GraphModule], None]:
    """Return an edit that puts the results of linear layers on grids of some bits, of half the range; nothing else."""

    def edit(gm: fx.GraphModule) -> None:
        for node in gm.graph.nodes:
            if node.name in ("linear_q", "linear_dq"):
                node.args = (node.args[0], node.args[1] * 2 ** (7 - bits), node.args[2] >> (8 - bits), bits)

    return edit


def _single(s_x: float, s_w: torch.Tensor) -> float:
    """Return in float32 the factor of the first output, which is 1 / 256."""
    return float((s_x * s_w / float(s_x * s_w[0].double() * 256))[0])


def exact(gm: fx.GraphModule) -> None:
    """Choose scales where a rounding of factors in float32 shows, or, with a bias, where one of the bias does."""
    dq_w = next(node for node in gm.graph.nodes if node.name == "w_dq")
    s_w = attribute(gm, dq_w.args[1].target)
    s_x = next(s for s in map(math.sqrt, range(2, 99)) if _single(s, s_w) != 2**-8)
    grid = s_x * s_w.double()
    if hasattr(gm, "b"):
        b = ((torch.arange(4000)[:, None] + 0.5) * grid).float()
        apart = torch.round(b / (s_x * s_w)) != torch.round(b.double() / grid)
        gm.b = nn.Parameter(b.gather(0, apart.int().argmax(0, keepdim=True))[0], requires_grad=False)
    for node in gm.graph.nodes:
        if node.name in ("x_q", "x_dq"):
            node.args = (node.args[0], s_x, 3, 8)
        if node.name in ("linear_q", "linear_dq"):
            node.args = (node.args[0], float(grid[0] * (100 if hasattr(gm, "b") else 256)), 1, 8)


def by_powers_of_two(gm: fx.GraphModule) -> None:
    """Choose scales with which the integers of a bias are k + 1/2: the grid of the sums is 2⁻⁹, the result's 2⁻⁸."""
    dq_w = next(node for node in gm.graph.nodes if node.name == "w_dq")
    setattr(gm, dq_w.args[1].target, torch.full((len(gm.b),), 2.0**-5))
    gm.b = nn.Parameter((torch.arange(len(gm.b)) - 4.5) * 2.0**-9, requires_grad=False)
    scales = {"x_q": 2.0**-4, "x_dq": 2.0**-4, "linear_q": 2.0**-8, "linear_dq": 2.0**-8}
    for node in gm.graph.nodes:
        if node.name in scales:
            node.args = (node.args[0], scales[node.name], *node.args[2:])


def at_the_end(sign: int) -> Callable[[fx.GraphModule], None]:
    """Return an edit with which the integer of the first bias is 2³¹ or -2³¹."""

    def edit(gm: fx.GraphModule) -> None:
        by_powers_of_two(gm)
        with torch.no_grad():
            gm.b[0] = sign * 2.0 ** (31 - 9)

    return edit


def rounded_to_the_end(gm: fx.GraphModule) -> None:
    """Choose scales with which the first bias is 2³¹ - 1/4 on its grid."""
    at_the_end(1)(gm)
    for node in gm.graph.nodes:
        if node.name in ("x_q", "x_dq"):
            node.args = (node.args[0], node.args[1] * (1 + 2.0**-33), *node.args[2:])


def around(zero_point: int, bits: int = 8) -> Callable[[fx.GraphModule], None]:
    """Return an edit that gives the results of relus a zero point, so that their grids have numbers below 0."""

    def edit(gm: fx.GraphModule) -> None:
        for node in gm.graph.nodes:
            if node.name.startswith("relu") and node.target in (quantize, dequantize):
                node.args = (node.args[0], node.args[1] * 2 ** (8 - bits), zero_point, bits)

    return edit


def pair_for_each_reader(gm: fx.GraphModule) -> None:
    """Let all that reads the layer, or a relu of it, read a pair of its own, on another grid."""
    values = {node.name: node for node in gm.graph.nodes}
    layer, dq = values["linear"], values["linear_dq"]
    relus = [user for user in dq.users if user.target is torch.relu]
    for relu in relus:
        relu.replace_input_with(dq, layer)
    read = [(value, user) for value in (layer, *relus) for user in value.users if user not in (*relus, dq.args[0])]
    for number, (value, user) in enumerate(read):
        grid = dq.args[1] * (1 + number / 4), 7 * number - 9, 8
        with gm.graph.inserting_before(user):
            q = gm.graph.call_function(quantize, (value, *grid))
            user.replace_input_with(value, gm.graph.call_function(dequantize, (q, *grid)))


def moved(gm: fx.GraphModule) -> None:
    """Let the flatten move integers."""
    values = {node.name: node for node in gm.graph.nodes}
    flat, dq = values["flatten"], values["exp_dq"]
    flat.replace_input_with(dq, dq.args[0])
    with gm.graph.inserting_after(flat):
        behind_it = gm.graph.call_function(dequantize, (flat, *dq.args[1:]))
    values["linear"].replace_input_with(flat, behind_it)


def integers_out(gm: fx.GraphModule) -> None:
    """Let the output read integers."""
    values = {node.name: node for node in gm.graph.nodes}
    gm.graph.output_node().replace_input_with(values["linear_dq"], values["linear_q"])


def summed_pair(gm: fx.GraphModule) -> None:
    """Let the sum of a weight read its pair."""
    values = {node.name: node for node in gm.graph.nodes}
    values["sum_1"].replace_input_with(values["w"], values["w_dq"])


def pair_for_each_layer(gm: fx.GraphModule) -> None:
    """Let the second layer read the weight through a pair of its own, with scales twice as large."""
    values = {node.name: node for node in gm.graph.nodes}
    layer, dq = values["linear_1"], values["w_dq"]
    with gm.graph.inserting_before(layer):
        grid = constant(gm, "wide", 2 * attribute(gm, dq.args[1].target)), 0, 8
        q = gm.graph.call_function(quantize, (dq.args[0].args[0], *grid), {"axis": 0})
        layer.replace_input_with(dq, gm.graph.call_function(dequantize, (q, *grid), {"axis": 0}))


def narrow_weights(gm: fx.GraphModule) -> None:
    """Halve the scales of the weight, so that half of its numbers are beyond the ends."""
    dq = next(node for node in gm.graph.nodes if node.name == "w_dq")
    setattr(gm, dq.args[1].target, attribute(gm, dq.args[1].target) / 2)


@drawn
def careful(rng) -> list[Case]:
    k = rng.randint(3, 6)

    @fold_case("halves", (6000, 2), edit=exact, w=(9, 2))
    def halves(m, x):
        return F.linear(x, m.w)

    @fold_case("halves in the bias", (6000, 2), edit=exact, w=(9, 2), b=(9,))
    def bias(m, x):
        return F.linear(x, m.w, m.b)

    @fold_case(
        "halves in the bias, by powers of two", 0.2 * torch.randn(400, 2), edit=by_powers_of_two, w=(9, 2), b=(9,)
    )
    def halves_of_two(m, x):
        return F.linear(x, m.w, m.b)

    @fold_case("relus on grids with numbers below 0", (9, k), edit=around(rng.randint(-90, 90)), w=(k, k), v=(k, k))
    def below(m, x):
        return torch.relu(F.linear(torch.relu(F.linear(x, m.w)), m.v))

    @fold_case("two results", (4, k), w=(k, k), v=(k, k))
    def two(m, x):
        y = F.linear(x, m.w)
        return y, F.linear(y, m.v)

    @fold_case("a relu on a grid of four bits", (9, k), edit=around(rng.randint(-4, 4), 4), w=(k, k))
    def few_below(m, x):
        return torch.relu(F.linear(x, m.w))

    @fold_case("an input that is moved as integers", (4, k, 1), edit=moved, w=(k, k))
    def integers(m, x):
        return F.linear(torch.flatten(torch.exp(x), 1), m.w)

    @fold_case("weights beyond the first integer", (9, k), edit=narrow_weights, w=-0.2 - torch.rand(k, k))
    def beyond(m, x):
        return F.linear(x, m.w)

    return [halves, bias, halves_of_two, below, few_below, *with_readers(k), two, integers, beyond]


def with_readers(k: int) -> list[Case]:
    """Return cases in which a pair, a bias or a layer has several readers. k: the width."""

    @fold_case("a weight with two other readers", (4, k), w=(k, k), v=(k, k))
    def weights(m, x):
        y = F.linear(F.linear(x, m.w), m.v)
        return F.linear(y, m.w), torch.sum(m.v, 1)

    @fold_case("weights of one pair in three layers", (4, k), w=(k, k), b=(k,))
    def thrice(m, x):
        return F.linear(torch.relu(F.linear(torch.relu(F.linear(x, m.w)), m.w, m.b)), m.w)

    @fold_case("a quantize for each reader", (9, k), edit=pair_for_each_reader, w=(k, k))
    def readers(m, x):
        y = F.linear(x, m.w)
        z = torch.relu(y)
        return torch.exp(y), torch.tanh(z), torch.sin(z), torch.cos(torch.relu(y))

    @fold_case("one bias of two layers", (9, k), w=(k, k), v=(k, k), b=(k,))
    def shared_bias(m, x):
        return F.linear(F.linear(x, m.w, m.b), m.v, m.b)

    @fold_case("a result in integers", (4, k), edit=integers_out, w=(k, k))
    def int8(m, x):
        return F.linear(x, m.w)

    @fold_case("the pair of a weight has another reader", (4, k), edit=summed_pair, w=(k, k))
    def summed(m, x):
        return F.linear(x, m.w), torch.sum(m.w, 1)

    @fold_case("one weight in two pairs", (4, k), edit=pair_for_each_layer, w=(k, k))
    def two_pairs(m, x):
        return F.linear(F.linear(x, m.w), m.w)

    return [weights, thrice, shared_bias, summed, readers, int8, two_pairs]


def float_reader(gm: fx.GraphModule) -> None:
    """Let the tanh read a layer, and the exp its relu, in float."""
    values = {node.name: node for node in gm.graph.nodes}
    values["tanh"].args = (values["linear"],)
    values["exp"].args = (values["relu"],)
    gm.recompile()


def float_of_layer(gm: fx.GraphModule) -> None:
    """Let the tanh read the layer in float, of whose relu the integers are read."""
    values = {node.name: node for node in gm.graph.nodes}
    values["tanh"].args = (values["linear"],)
    gm.recompile()


def float_of_relu(gm: fx.GraphModule) -> None:
    """Let the tanh read the relu in float."""
    values = {node.name: node for node in gm.graph.nodes}
    values["tanh"].args = (values["relu"],)
    gm.recompile()


def float_weight(gm: fx.GraphModule) -> None:
    """Take the pair of the weight v away."""
    without_pair("v")(gm)


@drawn
def spared(rng) -> list[Case]:
    k = rng.randint(3, 6)

    @fold_case("a bias that does not fit", (4, k), w=torch.rand(k, k) / 1e6, b=torch.rand(k) * 1e4, v=(k, k))
    def large(m, x):
        return F.linear(torch.tanh(F.linear(x, m.w, m.b)), m.v)

    @fold_case(
        "one bias of several does not fit", (4, k), about=NONE, w=(k, k), b=torch.tensor([1e9, *[0.1] * (k - 1)])
    )
    def one_large(m, x):
        return F.linear(x, m.w, m.b)

    @fold_case("a bias far below 0", (4, k), about=NONE, w=(k, k), b=torch.tensor([*[0.1] * (k - 1), -1e9]))
    def negative(m, x):
        return F.linear(x, m.w, m.b)

    @fold_case("floats are read, too", (4, k), edit=float_reader, w=(k, k), b=(k,))
    def floats(m, x):
        y = F.linear(x, m.w, m.b)
        z = torch.relu(y)
        return torch.tanh(y), torch.exp(z), z

    @fold_case("the float of a layer before a relu is read, too", (4, k), edit=float_of_layer, w=(k, k), b=(k,))
    def layer(m, x):
        z = torch.relu(F.linear(x, m.w, m.b))
        return z, torch.tanh(z)

    @fold_case("the float of a relu is read, too", (4, k), edit=float_of_relu, w=(k, k), b=(k,))
    def relu(m, x):
        z = torch.relu(F.linear(x, m.w, m.b))
        return z, torch.tanh(z)

    @fold_case("a weight in float", (4, k), edit=float_weight, w=(k, k), v=(k, k))
    def weight(m, x):
        return F.linear(F.linear(x, m.w), m.v)

    @fold_case("an input in float", (4, k), edit=without_pair("x"), w=(k, k), v=(k, k))
    def value(m, x):
        return F.linear(F.linear(x, m.w), m.v)

    @fold_case("a sum and other activations", (4, k), (4, k), edit=tanh_pair, w=(k, k), v=(k, k))
    def others(m, x, y):
        return F.linear(torch.add(torch.tanh(F.linear(x, m.w)), y), m.v)

    @fold_case("a relu after a relu", (4, k), edit=without_pair("relu"), w=(k, k), v=(k, k))
    def two_relus(m, x):
        return F.linear(torch.relu(torch.relu(F.linear(x, m.w))), m.v)

    cases = [large, one_large, negative, floats, layer, relu, two_relus, *ends_of_int32(k), weight, value, others]
    return [*cases, *flattened(k)]


def flattened(k: int) -> list[Case]:
    """Return cases in which a flatten lies between a layer and its pairs. k: the width."""

    @fold_case("a flatten between a dequantize and a layer", (4, 3, k), w=(2, k), v=(k, 6))
    def before(m, x):
        return F.linear(torch.flatten(F.linear(x, m.w), 1), m.v)

    @fold_case("a flatten between a layer and a quantize", (4, 3, k), about=NONE, edit=pair_of_flatten, w=(2, k))
    def behind_layer(m, x):
        return torch.exp(torch.flatten(F.linear(x, m.w), 1))

    return [before, behind_layer]


def pair_of_flatten(gm: fx.GraphModule) -> None:
    """Put the pair of the layer behind the flatten, which reads the layer."""
    values = {node.name: node for node in gm.graph.nodes}
    layer, flat, exp = values["linear"], values["flatten"], values["exp"]
    grid = 0.02, -9, 8
    flat.replace_input_with(flat.args[0], layer)
    with gm.graph.inserting_before(exp):
        q = gm.graph.call_function(quantize, (flat, *grid))
        exp.replace_input_with(flat, gm.graph.call_function(dequantize, (q, *grid)))


def ends_of_int32(k: int) -> list[Case]:
    """Return cases in which a bias lies at an end of int32. k: the width."""

    @fold_case("a bias of 2³¹", (4, k), about=NONE, edit=at_the_end(1), w=(k, k), b=(k,))
    def end(m, x):
        return F.linear(x, m.w, m.b)

    @fold_case("a bias of -2³¹", (4, k), about=NONE, edit=at_the_end(-1), w=(k, k), b=(k,))
    def negative_end(m, x):
        return F.linear(x, m.w, m.b)

    @fold_case("a bias that is rounded to 2³¹", (4, k), about=NONE, edit=rounded_to_the_end, w=(k, k), b=(k,))
    def rounded_end(m, x):
        return F.linear(x, m.w, m.b)

    return [end, negative_end, rounded_end]


def tanh_pair(gm: fx.GraphModule) -> None:
    """Take the pair of the first layer away, so that a quantize reads a tanh of it."""
    without_pair("linear")(gm)


# ---------------------------------------------------------------------------------------------------- answers


def _node(gm, graph, layer, q, copies, weights, number):
    """Return an integer layer in another graph, for a layer that folds."""
    x, weight, *rest = layer.args
    s_w = attribute(gm, weight.args[1].target).to(torch.float64)
    grid = s_w * x.args[1]

    def put(value, name):
        gm.register_buffer(name, value)
        return graph.get_attr(name)

    if weight not in weights:
        value = attribute(gm, weight.args[0].args[0].target)
        shape = [-1] + [1] * (value.dim() - 1)
        value = torch.round(value / s_w.float().reshape(shape)).clamp(-128, 127).to(torch.int8)
        weights[weight] = put(value, f"integers_{number}")
    bias = rest[0] if rest else layer.kwargs.get("bias")
    if bias is not None:
        bias = put(torch.round(attribute(gm, bias.target).double() / grid).int(), f"bias_{number}")
    multiplier, shift = fixed_points(grid / q.args[1])
    low, high = ends(q.args[3])
    low = low if q.args[0] is layer else q.args[2]
    rest = x.args[2], put(multiplier, f"m_{number}"), put(shift.to(torch.int8), f"s_{number}"), q.args[2], low, high
    start = copies[x.args[0]], weights[weight], bias
    if layer.target is F.linear:
        return graph.call_function(integer_linear, (*start, *rest))
    return graph.call_function(integer_conv2d, (*start, *window(layer), *rest))


@right("writes another graph of what the output needs")
def anew(gm):
    layers = {q: layer for q in gm.graph.nodes if (layer := layer_before(gm, q)) is not None}
    needed = {gm.graph.output_node()}
    for node in reversed(gm.graph.nodes):
        if node in needed:
            needed |= {layers[node].args[0].args[0]} if node in layers else {*node.all_input_nodes}
    graph, copies, weights = fx.Graph(), {}, {}
    for number, node in enumerate(gm.graph.nodes):
        if node.op == "placeholder":
            copies[node] = graph.node_copy(node)
        elif node in needed and node in layers:
            copies[node] = _node(gm, graph, layers[node], node, copies, weights, number)
        elif node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(gm, graph)


@wrong("same", "returns a tuple of one result in place of that result")
def in_a_tuple(gm):
    return alone_in_a_tuple(anew(gm))


@right("goes backwards, and lets unused nodes lie")
def backwards(gm):
    copies = {node: node for node in gm.graph.nodes}
    weights = {}
    for number, q in enumerate(reversed([*gm.graph.nodes])):
        layer = layer_before(gm, q)
        if layer is not None:
            with gm.graph.inserting_before(q):
                if layer.args[1] in weights:
                    weights[layer.args[1]] = gm.graph.get_attr(weights[layer.args[1]].target)
                node = _node(gm, gm.graph, layer, q, copies, weights, f"of_{number}")
            q.replace_all_uses_with(node)
            copies[q] = node
    gm.recompile()
    return gm


@wrong("did", "folds no more than the first layer")
def first(gm):
    layers = {q: layer for q in gm.graph.nodes if (layer := layer_before(gm, q)) is not None}
    for q, layer in [*layers.items()][:1]:
        with gm.graph.inserting_before(q):
            node = _node(gm, gm.graph, layer, q, {x: x for x in gm.graph.nodes}, {}, "only")
        q.replace_all_uses_with(node)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


one_for_all_pairs = edited("same", "stores the integers of a weight once, though its pairs have different scales")(
    ("weight not in weights", "(name := weight.args[0].args[0].target) not in weights"),
    ("weights[weight] = new('weight', w_q)", "weights[name] = new('weight', w_q)"),
    ("head = x_q, weights[weight], bias", "head = x_q, weights[name], bias"),
)
BY_CUTTING = "b = torch.trunc(attribute(gm, rest[0].target).double() / (s_x * s_w))"
no_relu = edited("same", "forgets that a relu cuts off at the zero point")(
    ("if q.args[0] is not layer: ...", "if False: ...")
)
relu_at_zero = edited("same", "lets a relu cut off at the integer 0")(("low = zero_point", "low = 0"))
through_relus = edited("spared", "folds a layer with all relus behind it")(
    ("if node.target is torch.relu: ...", "while node.target is torch.relu: ...")
)
no_x_zero = edited("same", "forgets the zero point of the input of a linear layer")(
    ("(*head, x_zero, *requantize)", "(*head, 0, *requantize)")
)
no_x_zero_conv = edited("same", "forgets the zero point of the input of a convolution")(
    ("(*head, *window(layer), x_zero, *requantize)", "(*head, *window(layer), 0, *requantize)")
)
eight = edited("same", "always saturates at the ends of 8 bits")(("ends(bits)", "ends(8)"))
of_input = edited("same", "saturates at the ends of the input's grid")(("ends(bits)", "ends(x.args[3])"))
halves_up = edited("same", "rounds halves of the bias up")(
    (
        "b = torch.round(attribute(gm, rest[0].target).double() / (s_x * s_w))",
        "b = torch.floor(attribute(gm, rest[0].target).double() / (s_x * s_w) + 0.5)",
    )
)
read_once = edited("did", "folds a layer only if nothing else reads it")(
    (
        "return node if x.target is weight.target is dequantize else None",
        "return node if x.target is weight.target is dequantize and len(node.users) == 1 else None",
    )
)
relu_read_once = edited("did", "folds a layer before a relu only if nothing else reads the relu")(
    ("node = node.args[0]", "node = node.args[0] if len(node.users) == 1 else node")
)
on_result = edited("same", "puts the bias on the grid of the result")(
    ("attribute(gm, rest[0].target).double() / (s_x * s_w)", "attribute(gm, rest[0].target).double() / s_out")
)
cut = edited("same", "cuts the bias off in place of rounding")(
    ("b = torch.round(attribute(gm, rest[0].target).double() / (s_x * s_w))", BY_CUTTING)
)
single = edited("same", "computes factors in float32")(
    ("fixed_points(s_x * s_w / s_out)", "fixed_points(s_x * s_w.float() / s_out)")
)
single_bias = edited("same", "computes the bias in float32")(
    ("attribute(gm, rest[0].target).double() / (s_x * s_w)", "attribute(gm, rest[0].target) / (s_x * s_w.float())")
)
one_factor = edited("same", "has one factor for all outputs")(
    ("fixed_points(s_x * s_w / s_out)", "fixed_points(s_x * s_w.max().expand(len(s_w)) / s_out)")
)
wide_bias = edited("valid", "keeps the bias in int64")(("b.to(torch.int32)", "b.to(torch.int64)"))
no_bias = edited("spared", "gives zeros to a layer without a bias")(("b = None", "b = torch.zeros(len(s_w))"))
wraps = edited("same", "lets a bias that does not fit wrap around")(
    ("if (b.abs() >= 2**31).any(): ...", "if False: ...")
)
one_more = edited("same", "takes 2³¹ for a number of int32")(("b.abs() >= 2**31", "b.abs() > 2**31"))
above = edited("same", "checks only the upper end of int32")(("b.abs() >= 2**31", "b >= 2**31"))
fits_unrounded = edited("same", "asks whether a bias fits before it is rounded")(
    (
        "(b.abs() >= 2**31).any()",
        "(attribute(gm, rest[0].target).double() / (s_x * s_w)).abs().max() >= 2**31",
    )
)
relu_of_eight = edited("same", "lets a relu cut off only on grids of eight bits")(
    ("if q.args[0] is not layer: ...", "if q.args[0] is not layer and bits == 8: ...")
)
one_quantize = edited("did", "folds a layer only if one quantize reads it")(
    (
        "if layer is None: ...",
        "if layer is None or sum(user.target is quantize for x in {layer, q.args[0]} for user in x.users) > 1: ...",
    )
)
first_grid = edited("same", "makes one integer layer for all quantizes of a layer")(
    ("weights = {}", "weights, integers = {}, {}"),
    (
        "if layer is None: ...",
        "if layer is None: ...\nif layer in integers:\n    q.replace_all_uses_with(integers[layer])\n    continue",
    ),
    ("q.replace_all_uses_with(node)", "integers[layer] = node\nq.replace_all_uses_with(node)"),
)
same_bias = edited("same", "stores a bias once, though two layers have other scales")(
    ("weights = {}", "weights, biases = {}, {}"),
    (
        "bias = None if b is None else new('bias', b.to(torch.int32))",
        "bias = None if b is None else biases.setdefault(rest[0], new('bias', b.to(torch.int32)))",
    ),
)
from_quantize = edited("did", "takes only what a quantize returned for integers")(
    (
        "x.target is weight.target is dequantize",
        "x.target is weight.target is dequantize and x.args[0].target in (quantize, integer_linear, integer_conv2d)",
    )
)
no_result = edited("did", "leaves a quantize whose integers are a result")(
    ("if layer is None: ...", "if layer is None or any(user.op == 'output' for user in q.users): ...")
)
layers_only = edited("did", "folds a layer only if all that reads the pair of its weight is a layer")(
    (
        "x.target is weight.target is dequantize",
        "x.target is weight.target is dequantize and {user.target for user in weight.users} <= {F.linear, F.conv2d}",
    )
)
symmetric = edited("same", "leaves out the first integer of a weight")(
    ("w_q = quantize(w, s_w.float(), 0, 8, axis=0)", "w_q = quantize(w, s_w.float(), 0, 8, axis=0).clamp(min=-127)")
)
all_must_fit = edited("same", "keeps a layer in float only if no bias fits")(
    ("(b.abs() >= 2**31).any()", "(b.abs() >= 2**31).all()")
)
each = edited("cost", "stores a shared weight once for each layer")(("weight not in weights", "True"))
float_input = edited("valid", "asks only for a weight with a pair")(
    ("x.target is weight.target is dequantize", "weight.target is dequantize")
)
no_convolution = edited("did", "folds linear layers only")(
    ("node.target not in (F.linear, F.conv2d)", "node.target is not F.linear")
)
through_flatten = edited("spared", "looks for the integers of a layer's input before a flatten")(
    (
        "return node if x.target is weight.target is dequantize else None",
        "source = x.args[0] if x.target is torch.flatten else x\n"
        "return node if source.target is weight.target is dequantize else None",
    ),
    (
        "x_q, s_x, x_zero, _ = x.args",
        "flat = x if x.target is torch.flatten else None\n"
        "x_q, s_x, x_zero, _ = x.args if flat is None else flat.args[0].args",
    ),
    (
        "head = x_q, weights[weight], bias",
        "if flat is not None:\n"
        "    x_q = gm.graph.call_function(torch.flatten, (x_q, *flat.args[1:]))\n"
        "head = x_q, weights[weight], bias",
    ),
)
before_flatten = edited("spared", "folds a layer although a quantize reads its flatten")(
    ("if node.target is torch.relu: ...", "if node.target in (torch.relu, torch.flatten): ...")
)
no_activated = edited("did", "does not look behind a relu")(("if node.target is torch.relu: ...", "if False: ..."))

EQUIVALENT = {
    ("quantize(w, s_w.float(), 0, 8, axis=0)", "quantize(w, s_w.float(), 0, 8)"): "a vector of scales is along axis 0",
}
