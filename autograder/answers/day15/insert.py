"""Hidden cases and answers of day15.insert."""

from __future__ import annotations

import torch
from torch import fx
from torch.nn import functional as F

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day15.insert import NONE, insert_case, source
from passlab.fx.nodes import attribute
from passlab.given.day15.fold import constant
from passlab.given.day15.insert import LAYERS, MOVES
from passlab.judge import Case, drawn
from passlab.quantization import dequantize, quantize, weight_scales


@drawn
def ordinary(rng) -> list[Case]:
    n, k = rng.randint(2, 4), rng.randint(5, 7)

    @insert_case("drawn, a chain of moves", (2, n, k, k), (k, n), w=(k, n * k * k), v=(k, k))
    def moves(m, x, y):
        z = torch.flatten(torch.permute(torch.reshape(F.max_pool2d(x, 1), (2, n, k, k)), (0, 3, 1, 2)), 1)
        return torch.tanh(z), F.linear(z, m.w), torch.add(F.linear(torch.transpose(y, 0, 1), m.v), 1)

    @insert_case("drawn, relus", (n, k), w=(k, k), v=(k, k), b=(k,))
    def relus(m, x):
        y = F.linear(x, m.w)
        z = F.linear(torch.relu(y), m.v, m.b)
        return torch.relu(z), torch.exp(z), torch.sigmoid(y)

    @insert_case("drawn, a relu of a sum", (n, k), (n, k), w=(k, k))
    def relu_of_sum(m, x, y):
        z = torch.relu(torch.add(x, F.linear(y, m.w)))
        return torch.relu(z), torch.softmax(z, 1)

    @insert_case("drawn, a relu that nothing precedes", (n, k), w=(k, k))
    def relu_alone(m, x):
        return torch.tanh(F.linear(torch.relu(torch.exp(x)), m.w))

    @insert_case("drawn, the output reads a layer, too", (n, k), w=(k, k))
    def output(m, x):
        y = F.linear(x, m.w)
        return torch.relu(y), y

    @insert_case("drawn, a convolution of groups", (1, 2 * n, k, k), w=(2 * n, 2, 3, 3), b=(2 * n,))
    def groups(m, x):
        return F.conv2d(torch.relu(x), m.w, m.b, 2, 1, 1, n)

    @insert_case("drawn, relu after relu", (n, k), w=(k, k))
    def relu_after_relu(m, x):
        return torch.exp(torch.relu(torch.relu(F.linear(x, m.w))))

    @insert_case("two relus read a layer", (n, k), w=(k, k))
    def two_relus(m, x):
        y = F.linear(x, m.w)
        return torch.exp(torch.relu(y)), torch.tanh(torch.relu(y))

    @insert_case("a move between a layer and a relu", (n, k), w=(k, k))
    def relu_behind_move(m, x):
        return torch.relu(torch.transpose(F.linear(x, m.w), 0, 1))

    @insert_case("an input is a result, too", (n, k), w=(k, k))
    def input_is_result(m, x):
        return F.linear(x, m.w), x

    plain = [moves, relus, relu_of_sum, relu_alone, output, groups]
    return [*plain, relu_after_relu, two_relus, relu_behind_move, input_is_result]


@drawn
def once(rng) -> list[Case]:
    k = rng.randint(3, 6)

    @insert_case("three readers", (2, k), w=(k, k), v=(k, k), u=(k, 2))
    def readers(m, x):
        y = torch.tanh(x)
        return F.linear(y, m.w), F.linear(y, m.v), torch.add(F.linear(torch.transpose(y, 0, 1), m.u), y[0, 0])

    @insert_case("read directly and moved", (k, k), w=(k, k), v=(k, k))
    def both(m, x):
        y = torch.exp(x)
        return F.linear(y, m.w), F.linear(torch.transpose(y, 0, 1), m.v)

    @insert_case("a value twice in a sum", (k, k), (k, k))
    def doubled(m, x, y):
        return torch.add(x, x), torch.add(torch.transpose(y, 0, 1), y)

    @insert_case("one weight by two names", (2, k), ties={"v": "w"}, w=(k, k), v=(k, k))
    def tied(m, x):
        return F.linear(torch.tanh(F.linear(x, m.w)), m.v)

    @insert_case("a weight that something else reads", (2, k), w=(k, k))
    def other_reader(m, x):
        return F.linear(x, m.w), torch.sum(m.w, 1)

    @insert_case("a shared weight of two kinds of layers", (1, k, 3, 3), w=(k, k, 1, 1))
    def kinds(m, x):
        return F.conv2d(torch.tanh(F.conv2d(x, m.w)), m.w)

    return [readers, both, doubled, tied, other_reader, kinds]


@drawn
def little(rng) -> list[Case]:
    k = rng.randint(3, 6)

    @insert_case("sums with constants", (2, k), c=(k,), about=NONE)
    def constants(m, x):
        return torch.add(x, m.c), torch.add(x, 2.5), torch.add(m.c, torch.tanh(x)), torch.relu(x)

    @insert_case("a relu that is a result", (2, k), w=(k, k))
    def relu_last(m, x):
        return torch.relu(F.linear(x, m.w))

    @insert_case("a relu that is not torch.relu", (2, k), w=(k, k))
    def other_relu(m, x):
        return torch.exp(F.relu(F.linear(x, m.w)))

    @insert_case("a sum that is the input of nothing", (2, k), (2, k))
    def sums(m, x, y):
        return torch.softmax(torch.add(torch.flatten(x), torch.flatten(y)), 0)

    @insert_case("an average is no move", (1, 2, 4, 4), w=(k, 2, 1, 1))
    def average(m, x):
        return torch.tanh(F.conv2d(F.avg_pool2d(torch.exp(x), 2), m.w))

    @insert_case("two values side by side are no move", (2, k), (2, k), w=(k, 2 * k))
    def side_by_side(m, x, y):
        return torch.tanh(F.linear(torch.cat((torch.exp(x), y), 1), m.w))

    @insert_case("options of layers by name", (1, 2, 4, 4), (1, 2, 4, 4), w=(2, 2, 3, 3), b=(2,))
    def options(m, x, y):
        return torch.tanh(F.conv2d(torch.add(x, y, alpha=3), m.w, bias=m.b, padding=1))

    return [constants, relu_last, other_relu, sums, average, side_by_side, options]


EQUIVALENT = {
    ("2 if layer.target is torch.add else 1", "3 if layer.target is torch.add else 1"): "a sum has two operands",
    ("gm.recompile()", "pass"): "the judge compiles the graph anew",
}

# ---------------------------------------------------------------------------------------------------- answers


@right("writes another graph, and looks at readers first")
def anew(gm, grids):
    graph, copies, pairs = fx.Graph(), {}, {}
    targets = set()
    for node in gm.graph.nodes:
        if node.target not in LAYERS:
            continue
        both = node.args[:2] if node.target is torch.add else node.args[:1]
        if node.target is torch.add and not all(isinstance(x, fx.Node) and x.op != "get_attr" for x in both):
            continue
        targets |= {source(x) for x in both}
        readers = [*node.users]
        targets.add(readers[0] if len(readers) == 1 and readers[0].target is torch.relu else node)
    for node in gm.graph.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
        if node.target in (F.linear, F.conv2d):
            tensor = attribute(gm, node.args[1].target)
            if id(tensor) not in pairs:
                name = f"scales_{len(pairs)}"
                gm.register_buffer(name, weight_scales(tensor))
                q = graph.call_function(quantize, (args[1], graph.get_attr(name)), {"axis": 0})
                pairs[id(tensor)] = graph.call_function(dequantize, (q, q.args[1]), {"axis": 0})
            args = (args[0], pairs[id(tensor)], *args[2:])
        if node.op == "output":
            graph.output(*args)
            break
        copies[node] = graph.create_node(node.op, node.target, args, kwargs, node.name)
        if node in targets:
            on = {"scale": grids[node.name][0], "zero_point": grids[node.name][1], "bits": 8}
            q = graph.call_function(quantize, (copies[node],), on)
            copies[node] = graph.call_function(dequantize, (q,), on)
    return fx.GraphModule(gm, graph)


def is_layer(node):
    both = [x for x in node.args[:2] if isinstance(x, fx.Node) and x.op != "get_attr"]
    return node.target in LAYERS and (node.target is not torch.add or len(both) == 2)


def reaches(node):
    """Return whether a layer reads a value, through moves."""
    for user in node.users:
        place = user.args[:2] if user.target is torch.add else user.args[:1]
        if node in place and (is_layer(user) or (user.target in MOVES and reaches(user))):
            return True
    return False


def clipped(node):
    return len(node.users) == 1 and next(iter(node.users)).target is torch.relu


def needs_pair(node):
    if node.op in ("output", "get_attr"):
        return False
    if is_layer(node) and not clipped(node):
        return True
    if node.target is torch.relu and is_layer(node.args[0]) and clipped(node.args[0]):
        return True
    return node.target not in MOVES and reaches(node)


@right("goes backwards, and asks each value whether it needs a pair")
def asking(gm, grids):
    nodes, weights = [*gm.graph.nodes], {}
    needed = [node for node in reversed(nodes) if needs_pair(node)]
    for node in nodes:
        if node.target in (F.linear, F.conv2d):
            value = attribute(gm, node.args[1].target)
            if value.data_ptr() not in weights:
                with gm.graph.inserting_before(node):
                    scale = constant(gm, "scale", weight_scales(value))
                    q = gm.graph.call_function(quantize, (node.args[1], scale, 0, 8, 0))
                    weights[value.data_ptr()] = gm.graph.call_function(dequantize, (q, scale, 0, 8, 0))
            node.args = (node.args[0], weights[value.data_ptr()], *node.args[2:])
    for node in needed:
        users = [*node.users]
        with gm.graph.inserting_before(node.next):
            q = gm.graph.call_function(quantize, (node, *grids[node.name], 8))
            dq = gm.graph.call_function(dequantize, (q, *grids[node.name], 8))
        for user in users:
            user.replace_input_with(node, dq)
    gm.recompile()
    return gm


@wrong("cost", "gives each reader its own pair")
def for_each_reader(gm, grids):
    gm = asking(gm, grids)
    for dq in [*gm.graph.find_nodes(op="call_function", target=dequantize)]:
        for user in [*dq.users][1:]:
            with gm.graph.inserting_before(user):
                q = gm.graph.node_copy(dq.args[0], lambda x: x)
                copy = gm.graph.node_copy(dq, lambda x, q=q: q if x.target is quantize else x)
            user.replace_input_with(dq, copy)
    gm.recompile()
    return gm


@wrong("spared", "gives biases a pair, too")
def paired_biases(gm, grids):
    gm = asking(gm, grids)
    for layer in [node for node in gm.graph.nodes if node.target in (F.linear, F.conv2d)]:
        x, weight, *rest = layer.args
        if rest and rest[0] is not None:
            with gm.graph.inserting_before(layer):
                q = gm.graph.call_function(quantize, (rest[0], 2.0**-6, 0, 8))
                dq = gm.graph.call_function(dequantize, (q, 2.0**-6, 0, 8))
            layer.args = (x, weight, dq, *rest[1:])
    gm.recompile()
    return gm


moved_too = edited("did", "puts the pair behind what moves")(("while operand.target in MOVES: ...", "if False: ..."))
more_moves = edited("did", "takes averages and concatenations for moves")(
    (
        "while operand.target in MOVES: ...",
        "while operand.target in (*MOVES, F.avg_pool2d, torch.cat):\n    operand = operand.all_input_nodes[0]",
    )
)
no_options = edited("same", "loses what a layer is given by name")(
    ("gm.recompile()", "for layer in layers:\n    layer.kwargs = {}\ngm.recompile()")
)
one_move = edited("did", "goes back over one move only")(
    ("while operand.target in MOVES: ...", "if operand.target in MOVES: ...")
)
before_relu = edited("did", "puts the pair between a layer and its relu")(
    ("roots[users[0] if alone else layer] = None", "roots[layer] = None")
)
any_relu = edited("did", "puts the pair behind a relu, though something else reads the layer")(
    ("len(users) == 1 and users[0].target is torch.relu", "users[0].target is torch.relu")
)
all_relus = edited("did", "puts the pair behind the last of several relus")(
    (
        "roots[users[0] if alone else layer] = None",
        "root = users[0] if alone else layer\n"
        "while root is not layer and [x.target for x in root.users] == [torch.relu]:\n"
        "    (root,) = root.users\n"
        "roots[root] = None",
    )
)
first_relu = edited("did", "puts the pair behind one relu, though two read the layer")(
    ("len(users) == 1 and users[0].target is torch.relu", "{user.target for user in users} == {torch.relu}")
)
over_moves = edited("did", "looks for the relu behind what moves the result")(
    (
        "alone = len(users) == 1 and users[0].target is torch.relu",
        "while len(users) == 1 and users[0].target in MOVES:\n"
        "    users = list(users[0].users)\n"
        "alone = len(users) == 1 and users[0].target is torch.relu",
    )
)
no_input = edited("did", "lets the output read an input in float")(
    (
        "lambda user, q=q: user is not q",
        "lambda user, q=q, root=root: user is not q and (user.op, root.op) != ('output', 'placeholder')",
    )
)
inner_relu = edited("did", "leaves a pair between a layer and a relu that is a result")(
    (
        "len(users) == 1 and users[0].target is torch.relu",
        "len(users) == 1 and users[0].target is torch.relu and all(x.op != 'output' for x in users[0].users)",
    )
)
by_its_name = edited("did", "takes every function named relu for torch.relu")(
    (
        "len(users) == 1 and users[0].target is torch.relu",
        "len(users) == 1 and getattr(users[0].target, '__name__', '') == 'relu'",
    )
)
any_reader = edited("did", "puts the pair behind whatever is the only reader")(
    ("len(users) == 1 and users[0].target is torch.relu", "len(users) == 1 and users[0].op != 'output'")
)
no_results = edited("did", "gives pairs to what layers read, and none to what they return")(
    ("roots[users[0] if alone else layer] = None", "pass")
)
no_sums = edited("did", "takes only the first operand of a sum")(("2 if layer.target is torch.add else 1", "1"))
any_sum = edited("spared", "takes the sum with a constant for a layer")(
    ("all(map(is_value, node.args))", "all(isinstance(x, fx.Node) for x in node.args)"),
    (
        "while operand.target in MOVES: ...",
        "if operand.op == 'get_attr': continue\nwhile operand.target in MOVES:\n    operand = operand.args[0]",
    ),
)
by_name = edited("cost", "knows weights by name, so that one with two names is quantized twice")(
    ("id(value) not in pairs", "weight.target not in pairs"),
    (
        "pairs[id(value)] = pair(weight, scale, scale, 0, 8, axis=0)",
        "pairs[weight.target] = pair(weight, scale, scale, 0, 8, axis=0)",
    ),
    ("layer.replace_input_with(weight, pairs[id(value)])", "layer.replace_input_with(weight, pairs[weight.target])"),
)
by_node = edited("cost", "quantizes a weight once for each layer")(("id(value) not in pairs", "True"))
REDIRECTED = (
    "weight.replace_all_uses_with(pairs[id(value)], lambda x: x is layer or x.target not in (quantize, *LAYERS))"
)
every_reader = edited("spared", "lets all that reads a weight read its pair")(
    ("layer.replace_input_with(weight, pairs[id(value)])", REDIRECTED)
)
other_axis = edited("same", "gives a weight a scale for each input")(
    ("pair(weight, scale, scale, 0, 8, axis=0)", "pair(weight, scale, scale, 0, 8, axis=1)")
)
no_zero = edited("same", "forgets the zero point")(
    ("pair(root, root, *grids[root.name], 8)", "pair(root, root, grids[root.name][0], 0, 8)")
)
no_output = edited("did", "lets the output read floats")(
    ("lambda user, q=q: user is not q", "lambda user, q=q: user is not q and user.op != 'output'")
)
