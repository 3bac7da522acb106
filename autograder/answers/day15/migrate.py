"""Hidden cases and answers of day15.migrate."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from autograder.answers.day15._shared import alone_in_a_tuple
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day15.migrate import STAYS, constant, hot, layer, migrate_case, norm
from passlab.fx.cases import call, read
from passlab.fx.nodes import attribute
from passlab.judge import Case


def staying(n: int, k: int, base: dict[str, Any]) -> list[Case]:
    """Return cases in which channels stay where they are. n, k: widths; base: the constants of a norm."""

    def normed(m: Any, x: Any) -> Any:
        return call(F.layer_norm, x, (n,), m.g, m.b)

    @migrate_case("the norm is an output", (7, n), about=STAYS, v=(k, n), **base)
    def output(m: Any, x: Any) -> Any:
        y = normed(m, x)
        return F.linear(y, m.v), y

    @migrate_case("an activation as a weight", (n, n), about=STAYS, v=(k, n), **base)
    def as_weight(m: Any, x: Any) -> Any:
        y = normed(m, x)
        return torch.tanh(F.linear(torch.tanh(x), y)), torch.tanh(F.linear(y, m.v))

    @migrate_case("a function between that is no relu", (7, n), about=STAYS, v=(k, n), w=(n, k), **base)
    def between(m: Any, x: Any) -> Any:
        y = F.linear(torch.tanh(normed(m, x)), m.v)
        return F.linear(F.gelu(y), m.w), F.linear(F.gelu(x), m.v)

    @migrate_case("no bias, and two dimensions", (3, 4, n), about=STAYS, v=(k, n), h=(4, n), d=(4, n), **base)
    def other_norms(m: Any, x: Any) -> Any:
        y = call(F.layer_norm, x, (n,), m.g, None)
        z = call(F.layer_norm, x, (4, n), m.h, m.d)
        others = [call(F.layer_norm, x, (n,), *parts) for parts in ((m.g,), (None, m.b), ())]
        return tuple(torch.tanh(F.linear(value, m.v)) for value in (y, z, *others))

    @migrate_case("a weight that is computed", (7, n), about=STAYS, v=(k, n), **base)
    def computed(m: Any, x: Any) -> Any:
        return F.linear(normed(m, x), torch.tanh(m.v))

    @migrate_case("a bias that is computed", (7, n), about=STAYS, v=(k, n), c=(k,), w=(n, k), **base)
    def computed_bias(m: Any, x: Any) -> Any:
        y = F.linear(normed(m, x), m.v, torch.tanh(m.c))
        return F.linear(torch.relu(y), m.w)

    @migrate_case("one bias of two layers", (7, n), v=(k, n), u=(k, n), c=(k,), w=(n, k), t=(n, k))
    def shared_bias(m: Any, x: Any) -> Any:
        y, z = F.linear(x, m.v, m.c), F.linear(torch.tanh(x), m.u, m.c)
        return F.linear(torch.relu(y), m.w), F.linear(torch.relu(z), m.t)

    @migrate_case("a bias that others read", (7, n), v=(k, n), c=(k,), w=(n, k))
    def bias_elsewhere(m: Any, x: Any) -> Any:
        y = F.linear(torch.relu(F.linear(x, m.v, m.c)), m.w)
        return torch.tanh(y), read(x, "c") * x.sum()

    @migrate_case("a norm with a constant that is computed", (7, n), about=STAYS, v=(k, n), **base)
    def computed_norm(m: Any, x: Any) -> Any:
        y = call(F.layer_norm, x, (n,), torch.tanh(m.g), m.b)
        z = call(F.layer_norm, x, (n,), m.g, torch.tanh(m.b))
        return torch.tanh(F.linear(y, m.v)), torch.tanh(F.linear(z, m.v))

    norms = [output, as_weight, between, other_norms, computed, computed_bias]
    return [*norms, bias_elsewhere, shared_bias, *without_norm(n, k), computed_norm]


def without_norm(n: int, k: int) -> list[Case]:
    """Return cases of layers and relus alone. n, k: widths."""

    @migrate_case("a relu and a layer read it", (7, n), about=STAYS, v=(k, n), w=(n, k))
    def fork(m: Any, x: Any) -> Any:
        y = F.linear(x, m.v)
        return torch.tanh(F.linear(torch.relu(y), m.w)), torch.tanh(F.linear(y, m.w))

    @migrate_case("a relu has two readers", (7, n), about=STAYS, v=(k, n), w=(n, k))
    def relu_twice(m: Any, x: Any) -> Any:
        y = torch.relu(F.linear(x, m.v))
        return torch.tanh(F.linear(y, m.w)), torch.exp(-y)

    @migrate_case("a relu that is not torch.relu", (7, n), about=STAYS, v=(k, n), w=(n, k))
    def other_relu(m: Any, x: Any) -> Any:
        return F.linear(F.relu(F.linear(x, m.v)), m.w)

    @migrate_case("a layer before a relu is a result", (7, n), about=STAYS, v=(k, n), w=(n, k))
    def before_relu(m: Any, x: Any) -> Any:
        y = F.linear(x, m.v)
        return F.linear(torch.relu(y), m.w), y

    @migrate_case("as many outputs as inputs", (7, n), v=(n, n), w=(k, n))
    def square(m: Any, x: Any) -> Any:
        return F.linear(torch.relu(F.linear(x, m.v)), m.w)

    @migrate_case("a computed weight before a relu", (7, n), about=STAYS, v=(k, n), c=(k,), w=(n, k))
    def computed(m: Any, x: Any) -> Any:
        return F.linear(torch.relu(F.linear(x, torch.tanh(m.v), m.c)), m.w)

    @migrate_case("the first of two relus has another reader", (7, n), about=STAYS, v=(k, n), w=(n, k))
    def first_relu(m: Any, x: Any) -> Any:
        y = torch.relu(F.linear(x, m.v))
        return torch.tanh(F.linear(torch.relu(y), m.w)), torch.exp(-y)

    @migrate_case("three relus", (7, n), v=(k, n), w=(n, k))
    def relus(m: Any, x: Any) -> Any:
        return F.linear(torch.relu(torch.relu(torch.relu(F.linear(x, m.v)))), m.w)

    return [fork, relu_twice, other_relu, before_relu, square, computed, first_relu, relus]


def norms_before_a_layer(n: int, k: int, base: dict[str, Any], alpha: Callable[[], float]) -> list[Case]:
    """Return cases of a norm whose channels move, though other nodes read constants, or with constants of its own."""

    def normed(m: Any, x: Any) -> Any:
        return call(F.layer_norm, x, (n,), m.g, m.b)

    @migrate_case("a weight that others read", (7, n), alpha=alpha(), v=(n, n), **base)
    def weight_elsewhere(m: Any, x: Any) -> Any:
        return torch.tanh(F.linear(normed(m, x), m.v)), torch.matmul(x, read(x, "v"))

    @migrate_case("a norm's constants that others read", (7, n), alpha=alpha(), v=(n, n), **base)
    def norm_elsewhere(m: Any, x: Any) -> Any:
        y = torch.tanh(F.linear(normed(m, x), m.v))
        return call(F.layer_norm, y, (n,), read(x, "g"), read(x, "b")) * m.b

    @migrate_case("a norm with an eps of its own", (7, n), alpha=alpha(), v=(k, n), **base)
    def eps(m: Any, x: Any) -> Any:
        return F.linear(call(F.layer_norm, x, (n,), m.g, m.b, 0.01), m.v)

    @migrate_case("one weight behind two norms", (7, n), alpha=alpha(), h=(n,), v=(n, n), **base)
    def two_norms(m: Any, x: Any) -> Any:
        y = torch.tanh(F.linear(normed(m, x), m.v))
        return F.linear(call(F.layer_norm, y, (n,), m.h, m.b), m.v)

    @migrate_case("a relu behind a norm", (7, n), alpha=alpha(), v=(k, n), **base)
    def relu(m: Any, x: Any) -> Any:
        return F.linear(torch.relu(normed(m, x)), m.v)

    @migrate_case("the sizes of a norm in a list", (7, n), alpha=alpha(), v=(k, n), **base)
    def listed(m: Any, x: Any) -> Any:
        return F.linear(call(F.layer_norm, x, [n], m.g, m.b), m.v)

    norm_weight, column = hot(1, width=n, size=4e-5), torch.randn(k, n) * hot(2, width=n, size=4e-5)

    @migrate_case("maxima a little above the least", (7, n), v=column, g=norm_weight, b=torch.zeros(n))
    def small_maxima(m: Any, x: Any) -> Any:
        return F.linear(normed(m, x), m.v)

    return [weight_elsewhere, norm_elsewhere, eps, two_norms, relu, listed, small_maxima]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, k = rng.randint(5, 8), rng.randint(3, 4)
    channels = rng.sample(range(n), 2)
    size = rng.choice([30.0, 80.0])
    g = hot(*channels, width=n, size=size)

    def alpha() -> float:
        return rng.choice([0.25, 0.4, 0.6, 0.8])

    def normed(m: Any, x: Any) -> Any:
        return call(F.layer_norm, x, (n,), m.g, m.b)

    base = {"g": g, "b": (n,)}

    @migrate_case("drawn, a chain of layers", (7, n), alpha=alpha(), v=(k, n), c=(k,), w=(n, k), u=(2, n), **base)
    def chain(m: Any, x: Any) -> Any:
        y = torch.relu(F.linear(normed(m, x), m.v, m.c))
        return F.linear(torch.relu(F.linear(y, m.w)), m.u)

    @migrate_case("two relus", (7, n), alpha=alpha(), v=(k, n), c=(k,), w=(n, k))
    def relus(m: Any, x: Any) -> Any:
        return F.linear(torch.relu(torch.relu(F.linear(x, m.v, m.c))), m.w)

    @migrate_case("nothing between", (7, n), alpha=alpha(), v=(k, n), c=(k,), w=(n, k))
    def direct(m: Any, x: Any) -> Any:
        return F.linear(F.linear(x, m.v, m.c), m.w)

    @migrate_case("a relu of what is positive", torch.rand(7, n) + 0.1, alpha=alpha(), v=torch.rand(k, n), w=(n, k))
    def positive(m: Any, x: Any) -> Any:
        return F.linear(torch.relu(F.linear(x, m.v)), m.w)

    @migrate_case("alpha is 0", (7, n), alpha=0.0, v=(k, n), **base)
    def none(m: Any, x: Any) -> Any:
        return F.linear(normed(m, x), m.v)

    @migrate_case("alpha is 1", (2, 3, n), alpha=1.0, v=(k, n), w=(k, n), **base)
    def all_of_it(m: Any, x: Any) -> Any:
        y = normed(m, x)
        return F.linear(y, m.v) - F.linear(y, m.w)

    zero = g * (torch.arange(n) != channels[0])
    dead = torch.randn(k, n) * (torch.arange(n) != (channels[1] + 1) % n)

    @migrate_case("a channel that is always 0", (7, n), alpha=alpha(), g=zero, b=torch.zeros(n), v=(k, n))
    def always_zero(m: Any, x: Any) -> Any:
        return F.linear(normed(m, x), m.v)

    @migrate_case("a column of zeros", (7, n), alpha=alpha(), v=dead, **base)
    def column(m: Any, x: Any) -> Any:
        return F.linear(normed(m, x), m.v)

    return [
        *(chain, relus, direct, positive, none, all_of_it, always_zero, column),
        *norms_before_a_layer(n, k, base, alpha),
        *staying(n, k, base),
    ]


# ---------------------------------------------------------------------------------------------------- answers


@right("writes a new graph, from the end to the beginning of each way")
def backward(gm, largest, alpha):
    heads = {}  # value that layers read → those layers
    for node in gm.graph.nodes:
        readers = list(node.users)
        if readers and all(layer(user) and user.args[0] is node for user in readers):
            heads[node] = readers
    by, times = {}, {}
    for x, readers in heads.items():
        node = x
        while node.target is torch.relu and len(node.args[0].users) == 1:
            node = node.args[0]
        if layer(node) or norm(node):
            w = torch.stack([attribute(gm, r.args[1].target).abs().max(0).values for r in readers]).max(0).values
            s = torch.exp(alpha * largest[x.name].clip(1e-5).log() - (1 - alpha) * w.clip(1e-5).log())
            by[node] = s
            times.update({r: s for r in readers})
    graph, copies = fx.Graph(), {}

    def stored(value):
        name = f"new{len(dict(gm.named_buffers()))}"
        gm.register_buffer(name, value.detach())
        return graph.get_attr(name)

    for node in gm.graph.nodes:
        if constant(node) and all(u in by or u in times for u in node.users):
            continue
        copies[node] = copy = graph.node_copy(node, lambda x: copies.get(x))
        if node not in by and node not in times:
            continue
        at = 2 if norm(node) else 1
        values = [attribute(gm, part.target) if part is not None else None for part in node.args[at : at + 2]]
        with graph.inserting_before(copy):
            if norm(node):
                values = [value / by[node] for value in values]
            else:
                w = values[0] * times[node] if node in times else values[0]
                values[0] = (w.T / by[node]).T if node in by else w
                if len(values) > 1 and values[1] is not None and node in by:
                    values[1] = values[1] / by[node]
            new = [None if value is None else stored(value) for value in values]
        copy.args = (*copy.args[:at], *new, *copy.args[at + len(new) :])
    return fx.GraphModule(gm, graph)


@right("one way after the other; the maxima are taken first")
def in_turn(gm, largest, alpha):
    columns = {n: attribute(gm, n.args[1].target).abs().amax(0) for n in gm.graph.nodes if layer(n)}
    count = 0

    def change(node, place, factor):
        nonlocal count
        count += 1
        value = attribute(gm, node.args[place].target) * factor
        setattr(gm, f"changed{count}", torch.nn.Buffer(value))
        with gm.graph.inserting_before(node):
            node.update_arg(place, gm.graph.get_attr(f"changed{count}"))

    for node in list(gm.graph.nodes):
        if not (layer(node) or norm(node)):
            continue
        end = node
        while len(end.users) == 1 and next(iter(end.users)).target is torch.relu:
            end = next(iter(end.users))
        readers = list(end.users)
        if not readers or not all(r in columns and r.all_input_nodes.index(end) == 0 and layer(r) for r in readers):
            continue
        most = torch.stack([columns[r] for r in readers]).amax(0)
        s = torch.maximum(largest[end.name], torch.tensor(1e-5)).pow(alpha)
        s = s * torch.maximum(most, torch.tensor(1e-5)).pow(alpha - 1)
        at = 2 if norm(node) else 1
        change(node, at, 1 / s if norm(node) else 1 / s[:, None])
        if len(node.args) > at + 1 and node.args[at + 1] is not None:
            change(node, at + 1, 1 / s)
        for reader in readers:
            change(reader, 1, s)
    return gm


@wrong("same", "returns a tuple of one result in place of that result")
def in_a_tuple(gm, largest, alpha):
    return alone_in_a_tuple(in_turn(gm, largest, alpha))


@wrong("same", "writes into the constants")
def in_place(gm, largest, alpha):
    old = {n: n.args for n in gm.graph.nodes}
    in_turn(gm, largest, alpha)
    for node, args in old.items():
        for place, (was, new) in enumerate(zip(args, node.args, strict=True)):
            if constant(was) and was is not new:
                attribute(gm, was.target).data.copy_(attribute(gm, new.target))
                node.update_arg(place, was)
    return gm


norms_only = edited("did", "moves from norms alone")(("not is_layer(node) and not is_norm(node)", "not is_norm(node)"))
no_relu = edited("did", "stops at a relu")(
    ("while [user.target for user in x.users] == [torch.relu]: ...", "while False: ...")
)
first_weight = edited("did", "takes the maxima of the first weight alone")(
    ("torch.cat([value(user.args[1]) for user in layers])", "value(layers[0].args[1])")
)
maxima_before = edited("did", "takes the maxima before the relu")(("largest[x.name]", "largest[node.name]"))
one_maximum = edited("did", "takes the largest of all weights, not of each column")(
    (
        "torch.cat([value(user.args[1]) for user in layers]).abs().amax(0)",
        "torch.cat([value(user.args[1]) for user in layers]).abs().amax().expand(len(largest[x.name]))",
    )
)
no_bias = edited("same", "forgets to divide the bias")(("value(bias) / s", "value(bias)"))
as_columns = edited("same", "divides columns if a layer has as many outputs as inputs")(
    ("s if is_norm(node) else s[:, None]", "s if is_norm(node) or len(s) == value(weight).shape[1] else s[:, None]")
)
not_output = edited("spared", "does not take the output for a reader of what a relu reads")(
    (
        "while [user.target for user in x.users] == [torch.relu]: ...",
        "while [user.target for user in x.users if user.op != 'output'] == [torch.relu]: ...",
    ),
    ("(x,) = x.users", "(x,) = [user for user in x.users if user.op != 'output']"),
)
one_bias = edited("same", "gives two layers that share a bias one new bias")(
    (
        "name = f'{node.name}_constant{place}'",
        "name = f'{node.name}_constant{place}' if place == first else f'{bias.target}_divided'",
    )
)
any_reader = edited("same", "moves although others read the value")(
    ("layers = list(x.users)", "layers = [user for user in x.users if is_layer(user) and user.args[0] is x]")
)
no_least = edited("same", "divides by 0 where a channel is always 0")(
    ("largest[x.name].clamp(min=1e-05)", "largest[x.name]")
)
through_gelu = edited("same", "moves through any function of one number")(
    (
        "[user.target for user in x.users] == [torch.relu]",
        "[user.target for user in x.users] in ([torch.relu], [F.gelu], [torch.tanh])",
    )
)
two_at_most = edited("did", "moves over two relus at most")(
    (
        "while [user.target for user in x.users] == [torch.relu]: ...",
        "for _ in range(2):\n    if [user.target for user in x.users] == [torch.relu]:\n        (x,) = x.users",
    )
)
first_alone = edited("same", "asks for a single reader before the first relu alone")(
    (
        "while [user.target for user in x.users] == [torch.relu]: ...",
        "if [user.target for user in x.users] == [torch.relu]:\n"
        "    while relus := [user for user in x.users if user.target is torch.relu]:\n"
        "        x = relus[0]",
    )
)
norm_alone = edited("did", "moves over relus from layers alone")(
    (
        "while [user.target for user in x.users] == [torch.relu]: ...",
        "while is_layer(node) and [user.target for user in x.users] == [torch.relu]:\n    (x,) = x.users",
    )
)
sizes_in_tuple = edited("did", "compares the sizes with a tuple")(
    ("len(node.args[1]) == 1", "isinstance(node.args[1], tuple) and len(node.args[1]) == 1")
)
added = edited("did", "adds the least maximum to all others")(
    ("largest[x.name].clamp(min=1e-05)", "largest[x.name] + 1e-05"), ("w.clamp(min=1e-05)", "w + 1e-05")
)
computed_norm_bias = edited("same", "divides the weight of a norm alone if its bias is computed")(
    ("constants(weights)", "constants(weights[:1])"),
    ("if bias is not None: ...", "if bias is not None and bias.op == 'get_attr': ..."),
)
weight_of_source_unasked = edited("valid", "moves out of a layer whose weight is computed")(
    (
        "not is_layer(node) and not is_norm(node)",
        "not (node.target is F.linear and constants(node.args[2:])) and not is_norm(node)",
    )
)


EQUIVALENT = {("graph.eliminate_dead_code()", "pass"): "Nodes that nothing needs do not count."}
biases_may_be_computed = edited("valid", "takes a layer for constant whose bias is computed")(
    ("constants(node.args[1:])", "constants(node.args[1:2])")
)
every_relu = edited("spared", "moves over every function named relu")(
    (
        "while [user.target for user in x.users] == [torch.relu]: ...",
        "while [getattr(user.target, '__name__', '') for user in x.users] == ['relu']:\n    (x,) = x.users",
    )
)
bias_in_place = edited("same", "writes the new bias over the one that others read")(
    ("value(bias) / s", "value(bias).detach().div_(s)")
)
