"""Hidden cases and answers of day15.pack."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.nn import functional as F

from autograder.answers.day15._shared import alone_in_a_tuple, merge
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day15.pack import _operands, pack_case, pair
from passlab.fx.cases import call, read
from passlab.given.day15.pack import linear_int4, unpack
from passlab.judge import Case
from passlab.quantization import dequantize, quantize

#: What a case decides in which nothing is to be packed.
STAYS = ("valid", "same", "spared")


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    group = rng.choice([2, 4, 6])
    width, rows = group * rng.randint(2, 3), rng.randint(3, 7)
    wide = {"w": (rows, width), "group": group}
    square = {"w": (width, width), "group": group}
    odd = {"w": (rows, 9), "group": 3}

    def four(m: Any, x: Any = None, group: int = group) -> Any:
        """The pair of m.w; with x, by nodes of their own."""
        return pair(m.w, m.s, group) if x is None else pair(read(x, "w"), read(x, "s"), group)

    @pack_case("drawn, two layers", (2, 3, width), w=(rows * 2, width), w2=(rows, rows * 2), b=(rows,), group=2)
    def two(m: Any, x: Any) -> Any:
        y = torch.tanh(F.linear(x, pair(m.w, m.s, 2)))
        return F.linear(y, pair(m.w2, m.s2, 2), m.b) + y.sum()

    @pack_case("keywords", (2, width), b=(rows,), **wide)
    def keywords(m: Any, x: Any) -> Any:
        return F.linear(x, bias=m.b, weight=four(m))

    @pack_case("all by name", (2, width), b=(rows,), **wide)
    def by_name(m: Any, x: Any) -> Any:
        return F.linear(input=x, weight=four(m), bias=m.b)

    @pack_case("one pair, three readers", (2, width), **square)
    def readers(m: Any, x: Any) -> Any:
        weight = four(m)
        return F.linear(F.linear(x, weight), weight), torch.relu(weight)

    @pack_case("two pairs, and other readers", (2, width), **square)
    def two_pairs(m: Any, x: Any) -> Any:
        first, second = four(m), four(m, x)
        return F.linear(x, first) + first.sum(), F.linear(x, second) + second.sum()

    @pack_case("a weight as an input", (2, width), w2=(rows, width), s2=(rows, width // group), **square)
    def as_input(m: Any, x: Any) -> Any:
        return F.linear(four(m), m.w2) * x.sum()

    @pack_case("a weight times itself", (2, width), **square)
    def itself(m: Any, x: Any) -> Any:
        weight = four(m)
        return F.linear(weight, weight) * x.sum()

    @pack_case("odd rows", (2, 9), **odd)
    def odd_rows(m: Any, x: Any) -> Any:
        weight = four(m, group=3)
        return F.linear(x, weight), weight.sum()

    @pack_case("odd rows, twice", (2, 9), w=(9, 9), group=3)
    def odd_twice(m: Any, x: Any) -> Any:
        y = F.linear(x, four(m, group=3))
        return F.linear(torch.relu(y), pair(read(x, "w"), read(x, "s"), 3))

    return [
        *(two, keywords, by_name, readers, two_pairs, as_input, itself, odd_rows, odd_twice),
        *_next_door(group, width, rows),
        *_between(group, width, rows),
    ]


def _between(group: int, width: int, rows: int) -> list[Case]:
    """Return cases of several weights, several readers, and pairs of what is no weight."""
    wide = {"w": (rows, width), "group": group}

    @pack_case("two weights of one shape", (2, width), w2=(rows, width), **wide)
    def alike(m: Any, x: Any) -> Any:
        weights = pair(m.w, m.s, group), pair(m.w2, m.s2, group)
        return *(F.linear(x, weight) for weight in weights), *(weight.sum() for weight in weights)

    @pack_case("nothing needs what reads the floats", (2, width), **wide)
    def dead(m: Any, x: Any) -> Any:
        torch.tanh(m.w)
        weight = pair(m.w, m.s, group)
        torch.relu(weight)
        return F.linear(x, weight)

    @pack_case("readers in a list and by name", (2, width), torch.tensor([rows - 1, 0]), **wide)
    def by_name(m: Any, x: Any, index: Any) -> Any:
        weight = pair(m.w, m.s, group)
        return torch.cat([weight, x]), call(F.embedding, index, weight=weight)

    @pack_case("four bits of an activation", (rows, width), (rows, width), **wide)
    def activation(m: Any, x: Any, y: Any) -> Any:
        return F.linear(pair(torch.tanh(x), m.s, group), pair(m.w, m.s, group))

    @pack_case("the same layer twice", (2, width), **wide)
    def repeated(m: Any, x: Any) -> Any:
        weight = pair(m.w, m.s, group)
        return tuple(torch.relu(F.linear(x, weight)) for _ in range(2))

    @pack_case("an even number of odd rows", (2, 9), w=(4, 9), group=3)
    def even(m: Any, x: Any) -> Any:
        return F.linear(x, pair(m.w, m.s, 3))

    return [alike, dead, by_name, activation, repeated, even]


def _next_door(group: int, width: int, rows: int) -> list[Case]:
    """Return cases of other bits, other readers and other numbers."""
    wide = {"w": (rows, width), "group": group}

    @pack_case("the floats are needed", (2, width), about=STAYS, **wide)
    def needed(m: Any, x: Any) -> Any:
        return F.linear(x, pair(m.w, m.s, group)), m.w.abs()

    @pack_case("the floats are needed elsewhere", (2, width), about=STAYS, **wide)
    def elsewhere(m: Any, x: Any) -> Any:
        return F.linear(x, pair(m.w, m.s, group)) + F.linear(x, read(x, "w"))

    @pack_case("eight bits before four", (2, width), w=(6, width), w2=(rows, 6), group=1)
    def eight(m: Any, x: Any) -> Any:
        return F.linear(F.linear(x, pair(m.w, m.s, 1, 8)), pair(m.w2, m.s2, 1))

    @pack_case("a large batch and three dimensions", (2, 3, 2, width), b=(rows,), **wide)
    def batch(m: Any, x: Any) -> Any:
        return torch.relu(F.linear(torch.tanh(x), pair(m.w, m.s, group), m.b))

    @pack_case("two bits", (2, width), about=STAYS, **wide)
    def two_bits(m: Any, x: Any) -> Any:
        return F.linear(x, pair(m.w, m.s, group, 2))

    @pack_case("the floats are a result", (2, width), about=STAYS, **wide)
    def result(m: Any, x: Any) -> Any:
        return F.linear(x, pair(m.w, m.s, group)), m.w

    @pack_case("numbers beyond the grid", (2, width), largest=12, **wide)
    def beyond(m: Any, x: Any) -> Any:
        return F.linear(x, pair(m.w, m.s, group))

    @pack_case("a table", torch.tensor([rows - 1, 0, 1]), **wide)
    def table(m: Any, index: Any) -> Any:
        return F.embedding(index, pair(m.w, m.s, group)).relu()

    @pack_case("a weight behind its pair is a result", (2, width), **wide)
    def dequantized(m: Any, x: Any) -> Any:
        weight = pair(m.w, m.s, group)
        return F.linear(x, weight), weight

    return [needed, elsewhere, eight, batch, two_bits, result, beyond, table, dequantized]


# ---------------------------------------------------------------------------------------------------- answers


def _needed(gm):
    """The names of constants that something besides a quantize reads."""
    reads = [(node.target, user) for node in gm.graph.nodes if node.op == "get_attr" for user in node.users]
    return {name for name, user in reads if user.target is not quantize}


@right("in two walks: constants first, then their readers; a byte is 16 times the second half, plus the first")
def two_walks(gm):
    gm.graph.eliminate_dead_code()
    nodes, needed, constants = gm.graph, _needed(gm), {}
    for node in list(nodes.nodes):
        if node.target is quantize and node.args[0].op == "get_attr" and node.args[3] == 4:
            name = node.args[0].target
            if name in needed:
                continue
            if name not in constants:
                value = quantize(getattr(gm, name), getattr(gm, node.args[1].target), 0, 4, group=node.kwargs["group"])
                halves = value.long() % 16
                small = value if value.shape[1] % 2 else (halves[:, ::2] + 16 * halves[:, 1::2]).to(torch.uint8)
                gm.register_buffer(f"packed_{len(constants)}", small)
                with nodes.inserting_before(next(iter(nodes.nodes))):
                    constants[name] = nodes.get_attr(f"packed_{len(constants)}"), small.dtype == torch.uint8
    opened = {}
    for node in list(nodes.nodes):
        if node.target is not dequantize or node.args[3] != 4 or node.args[0].args[0].target not in constants:
            continue
        name = node.args[0].args[0].target
        constant, packed = constants[name]
        for user in list(node.users):
            if packed and user.target is F.linear and _operands(*user.args, **user.kwargs)[1] is node:
                x, _, bias = _operands(*user.args, **user.kwargs)
                user.target, user.args, user.kwargs = linear_int4, (x, constant, node.args[1]), {"bias": bias}
        if packed and node.users and name not in opened:
            with nodes.inserting_after(constant):
                opened[name] = nodes.call_function(unpack, (constant,))
        node.update_arg(0, opened.get(name, constant))
    nodes.eliminate_dead_code()
    return gm


@wrong("same", "returns a tuple of one result in place of that result")
def in_a_tuple(gm):
    return alone_in_a_tuple(two_walks(gm))


@right("builds a new graph")
def new_graph(gm):
    from torch import fx

    gm.graph.eliminate_dead_code()
    graph, values, needed, opened = fx.Graph(), {}, _needed(gm), {}

    def packed(dq):
        """The name of a weight that is packed, or None."""
        plain = dq.target is dequantize and dq.args[3] == 4 and dq.args[0].args[0].op == "get_attr"
        return dq.args[0].args[0].target if plain and dq.args[0].args[0].target not in needed else None

    def constant(dq):
        name = packed(dq)
        q = quantize(getattr(gm, name), getattr(gm, dq.args[1].target), *dq.args[2:], **dq.kwargs)
        low, high = (q.view(torch.uint8)[:, start::2] for start in (0, 1))
        value = q if q.shape[1] % 2 else low.bitwise_and(15).bitwise_or(high.bitwise_left_shift(4))
        setattr(gm, f"{name}_small", torch.nn.Buffer(value))
        return graph.get_attr(f"{name}_small"), value.dtype == torch.uint8

    def floats(node):
        name = packed(node)
        if name is None:
            return values[node]
        if name not in opened:
            opened[name], two = constant(node)
            opened[name] = graph.call_function(unpack, (opened[name],)) if two else opened[name]
        return graph.call_function(dequantize, (opened[name], values[node.args[1]], *node.args[2:]), node.kwargs)

    for node in gm.graph.nodes:
        if packed(node):
            continue
        if node.target is F.linear:
            x, weight, bias = _operands(*node.args, **node.kwargs)
            if packed(weight):
                small, two = constant(weight)
                if two:
                    parts = floats(x), small, values[weight.args[1]], bias and floats(bias)
                    values[node] = graph.call_function(linear_int4, parts)
                    continue
        values[node] = graph.node_copy(node, floats)
    result = fx.GraphModule(gm, graph)
    graph.eliminate_dead_code()
    return result


@wrong("did", "unpacks for each linear layer")
def unfused(gm):
    needed, graph = _needed(gm), gm.graph
    for node in list(graph.nodes):
        weight = node.args[0] if node.target is quantize and node.args[3] == 4 else None
        if weight is not None and weight.op == "get_attr" and weight.target not in needed:
            value = quantize(
                getattr(gm, weight.target), getattr(gm, node.args[1].target), *node.args[2:], **node.kwargs
            )
            name, odd = f"{weight.target}_small", value.shape[1] % 2
            low, high = (value[:, start::2].to(torch.uint8) & 15 for start in (0, 1)) if not odd else (None, None)
            gm.register_buffer(name, value if odd else low | high << 4)
            with graph.inserting_before(node):
                new = graph.get_attr(name)
                new = new if odd else graph.call_function(unpack, (new,))
            node.replace_all_uses_with(new)
    graph.eliminate_dead_code()
    return gm


high_first = edited("same", "puts the first number into the high half")(
    ("q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4", "q[:, 1::2] & 15 | (q[:, 0::2] & 15) << 4")
)
sign = edited("same", "lets the sign of the first number flow into the second")(
    ("q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4", "q[:, 0::2] | (q[:, 1::2] & 15) << 4")
)
no_bias = edited("same", "forgets the bias")(("(x, packed, scale, bias)", "(x, packed, scale)"))
any_operand = edited("same", "takes a weight for the second operand wherever it is read")(("w is dq", "True"))
any_bits = edited("spared", "packs weights of eight bits as well")(
    ("q.args[3] != 4 or weight.target in needed", "weight.target in needed"),
    ("quantize(*values, *q.args[2:], **q.kwargs)", "quantize(*values, 0, 4, **q.kwargs)"),
)
below_eight = edited("spared", "packs weights of two bits as if they had four")(
    ("q.args[3] != 4 or weight.target in needed", "q.args[3] >= 8 or weight.target in needed")
)
no_result = edited("spared", "forgets that returning the floats is reading them")(
    ("user.target is not quantize", "user.target is not quantize and user.op != 'output'")
)
unclamped = edited("same", "divides and rounds by itself, and lets what is beyond -8 and 7 wrap around")(
    (
        "quantize(*values, *q.args[2:], **q.kwargs)",
        "(values[0] / values[1].repeat_interleave(q.kwargs['group'], 1)).round().to(torch.int8)",
    )
)
bytes_too = edited("spared", "stores weights of eight bits as int8")(
    ("q.args[3] != 4", "q.args[3] not in (4, 8)"),
    ("odd = integers.shape[1] % 2", "odd = integers.shape[1] % 2 or q.args[3] == 8"),
)
no_output = edited("did", "unpacks for functions, and not for the output")(
    ("if dq.users: ...", "if any(user.users for user in dq.users): ...")
)
signed = edited("did", "stores the two halves as int8")(("torch.uint8", "torch.int8"))
layers_alone = edited("did", "packs only what a linear layer reads")(
    (
        "q.args[3] != 4 or weight.target in needed",
        "q.args[3] != 4 or weight.target in needed or F.linear not in [user.target for user in dq.users]",
    )
)
twice = edited("spared", "packs what is needed as floats, too")(
    ("q.args[3] != 4 or weight.target in needed", "q.args[3] != 4")
)
by_pair = edited("did", "stores a weight for each of its pairs")(("f'{weight.target}_int4'", "f'{q.name}_int4'"))
by_height = edited("same", "names constants by their number of rows, so that one replaces another")(
    ("f'{weight.target}_int4'", "f'int4_{len(integers)}'")
)
dead_reader = edited("did", "keeps floats that only dead nodes read")(
    ("graph = gm.graph\ngraph.eliminate_dead_code()", "graph = gm.graph")
)
by_position = edited("did", "unpacks for plain operands, not for those in lists or with names")(
    ("if dq.users: ...", "if any(dq in user.args or user.op == 'output' for user in dq.users): ...")
)
eight_bits = edited("spared", "says that the integers it unpacks have eight bits")(
    ("dq.replace_input_with(q, opened[name])", "dq.args = (opened[name], dq.args[1], 0, 8)")
)
odd_number = edited("valid", "asks whether the whole weight is odd, not its rows")(
    ("odd = integers.shape[1] % 2", "odd = integers.numel() % 2")
)
activation = edited("valid", "asks gm for the constant of an activation")(("weight.op != 'get_attr'", "False"))


@wrong("spared", "computes once what is written twice")
def merged(gm):
    return merge(two_walks(gm))


EQUIVALENT = {
    ("graph.eliminate_dead_code()", "pass"): "Nodes that nothing needs do not count.",
    ("gm.recompile()", "pass"): "the judge compiles the graph anew",
}
