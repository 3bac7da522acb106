"""Hidden cases and answers of day15.move."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from autograder.answers.day15._shared import alone_in_a_tuple, merge
from autograder.authoring.answers import edited, right, something_to_do, wrong
from passlab.exercises.day15.move import STAYS, Grid, dq, move_case, q
from passlab.given.day15.move import MOVING
from passlab.judge import Case
from passlab.quantization import dequantize, quantize

#: Functions of tensors (4, 4, 4) that return such tensors.
MOVED = (
    lambda x: torch.transpose(x, 0, 2),
    lambda x: torch.permute(x, (1, 2, 0)),
    lambda x: torch.reshape(torch.flatten(x, 1), (4, 4, 4)),
    lambda x: torch.flip(x, (1,)),
    lambda x: torch.roll(x, 1, 2),
    lambda x: torch.cat([x[:2], x[1:3]], 0),
    lambda x: F.max_pool2d(x, 3, 1, 1),
)
COMPUTED = (torch.relu, torch.tanh, lambda x: x * 0.5, lambda x: F.avg_pool2d(x, 3, 1, 1))


def random_body(rng: random.Random) -> Any:
    """Return a program of x and y, two tensors (4, 4, 4)."""
    seed = rng.randrange(2**31)

    def body(m: Any, x: Any, y: Any) -> tuple:
        draw = random.Random(seed)
        grids = [(round(draw.uniform(0.01, 0.1), 3), draw.randint(-5, 5), 8) for _ in range(2)]
        values = [x, y]
        for _ in range(draw.randint(9, 13)):
            value = values[-1] if draw.random() < 0.75 else draw.choice(values)
            kind = draw.random()
            if kind < 0.45:
                values.append(draw.choice(MOVED)(value))
            elif kind < 0.55:
                values.append(torch.cat([value[1:], draw.choice(values)[:1]], 0))
            elif kind < 0.7:
                values.append(draw.choice(COMPUTED)(value))
            else:
                grid = draw.choice(grids)
                values.append(dq(q(value, grid), grid))
        return values[-1], values[-2]

    return body


def _apart(n: int, m: int, grid: Grid) -> list[Case]:
    """Return cases that one function or one law alone decides."""

    @move_case("the largest of integers", (2, n, m))
    def largest_below(m: Any, x: Any) -> Any:
        return torch.exp(torch.amax(dq(q(x, grid), grid), (1, 2)))

    @move_case("another shape before a quantize", (n, m))
    def reshaped(m: Any, x: Any) -> Any:
        return q(torch.reshape(torch.tanh(x), (-1, 1)), grid)

    @move_case("grids of two axes", (n, n), scale=torch.rand(n) + 0.1, about=STAYS)
    def axes(m: Any, x: Any) -> Any:
        y = dq(q(x, (m.scale, 0, 8), axis=0), (m.scale, 0, 8), axis=0)
        return q(y, (m.scale, 0, 8), axis=1)

    @move_case("scales differ", (n, m), about=STAYS)
    def scales(m: Any, x: Any) -> Any:
        return q(dq(q(x, grid), grid), (2 * grid[0], *grid[1:]))

    @move_case("scales differ a little", (n, m), (n, m), about=STAYS)
    def near(m: Any, x: Any, y: Any) -> Any:
        return torch.cat([dq(q(x, grid), grid), dq(q(y), (grid[0] + 1e-6, *grid[1:]))], 0) + 1

    @move_case("one of three is a float", (n, m), (n, m), about=STAYS)
    def third(m: Any, x: Any, y: Any) -> Any:
        return torch.cat([dq(q(x, grid), grid), dq(q(y, grid), grid), torch.exp(x)], 0) + 1

    @move_case("bits of three differ, before a quantize", (n, m), (n, m), about=STAYS)
    def mixed(m: Any, x: Any, y: Any) -> Any:
        few = (*grid[:2], 4)
        both = torch.cat([dq(q(x, few), few), dq(q(y, grid), grid), dq(q(y, few), few)], 0)
        return q(both, few), both + 1

    return [largest_below, reshaped, axes, scales, near, third, mixed]


def _differing(n: int, m: int, grid: Grid, other: Grid) -> list[Case]:
    """Return cases of two grids, or of a grid and no grid."""

    @move_case("the grid of a channel", (n, m), scale=torch.rand(n) + 0.1, about=STAYS)
    def channel(m: Any, x: Any) -> Any:
        y = dq(q(x, (m.scale, 0, 8), axis=0), (m.scale, 0, 8), axis=0)
        z = q(torch.transpose(torch.exp(x), 0, 1), (m.scale, 0, 8), axis=1)
        return torch.exp(torch.transpose(y, 0, 1)), z

    @move_case("zero points differ", (n, m), (n, m), about=STAYS)
    def zero_points(m: Any, x: Any, y: Any) -> Any:
        a, b = dq(q(x, grid), grid), dq(q(y, other), other)
        return torch.cat([a, b], 0) + 1, q(a, other)

    @move_case("bits differ", (n, m), (n, m), about=STAYS)
    def bits(m: Any, x: Any, y: Any) -> Any:
        return q(dq(q(x, grid), grid), (*grid[:2], 4))

    @move_case("one of two is a float", (n, m), (n, m), about=STAYS)
    def half(m: Any, x: Any, y: Any) -> Any:
        return torch.cat([dq(q(x, grid), grid), torch.exp(y)], 0) + 1

    @move_case("one of two is a float, before a quantize", (n, m), (n, m))
    def half_before(m: Any, x: Any, y: Any) -> Any:
        return q(torch.cat([dq(q(x, grid), grid), torch.exp(y)], 0), grid)

    return [channel, zero_points, bits, half, half_before]


def _readers(n: int, m: int, grid: Grid, other: Grid) -> list[Case]:
    """Return cases of who reads what, and of grids of four bits."""
    few = (*grid[:2], 4)

    @move_case("two grids read it", (n, m), about=STAYS)
    def two(m: Any, x: Any) -> Any:
        y = torch.transpose(torch.exp(x), 0, 1)
        return q(y, grid), q(y, other)

    @move_case("nothing needs what else reads it", (n, m))
    def dead(m: Any, x: Any) -> Any:
        y = torch.transpose(torch.exp(x), 0, 1)
        torch.tanh(y)
        return q(y, grid)

    @move_case("four bits before a quantize", (n, m))
    def few_above(m: Any, x: Any) -> Any:
        return q(torch.transpose(torch.exp(x), 0, 1), few)

    @move_case("four bits behind a dequantize", (n, m))
    def few_below(m: Any, x: Any) -> Any:
        y = torch.transpose(dq(q(x, few), few), 0, 1)
        return q(y, few), y + 1

    @move_case("operands with keywords", (n, m), (n, m))
    def keywords(m: Any, x: Any, y: Any) -> Any:
        both = torch.cat(tensors=[dq(q(x, grid), grid), dq(q(y, grid), grid)], dim=1)
        flat = torch.flatten(input=torch.exp(x), start_dim=0)
        return torch.exp(both), q(torch.cat(tensors=[flat, torch.flip(flat, dims=(0,))], dim=0), grid)

    @move_case("written twice", (n, m))
    def repeated(m: Any, x: Any) -> Any:
        return tuple(torch.tanh(torch.flip(dq(q(x, grid), grid), (0,))) for _ in range(2))

    @move_case("there and back", (n, m))
    def back(m: Any, x: Any) -> Any:
        return q(torch.transpose(torch.transpose(torch.exp(x), 0, 1), 0, 1), grid)

    return [two, dead, few_above, few_below, keywords, repeated, back]


def _computing(n: int, m: int, grid: Grid) -> list[Case]:
    """Return cases of what looks as if it could move."""

    @move_case("zeros around a tensor", (n, m), about=STAYS)
    def padded(m: Any, x: Any) -> Any:
        on = (grid[0], 9, 8)
        return F.pad(dq(q(x, on), on), (1, 1)), q(F.pad(torch.exp(x), (1, 1)), on)

    @move_case("the smallest", (n, m), about=STAYS)
    def smallest(m: Any, x: Any) -> Any:
        return torch.exp(torch.amin(dq(q(x, grid), grid), 1)), q(torch.amin(torch.exp(x), 1), grid)

    @move_case("scales differ in the last digit", (n, m), (n, m), about=STAYS)
    def digit(m: Any, x: Any, y: Any) -> Any:
        near = (float(torch.nextafter(torch.tensor(grid[0]), torch.tensor(1.0))), *grid[1:])
        return torch.cat([dq(q(x, grid), grid), dq(q(y, near), near)], 0)

    @move_case("back onto the grid of a channel", (n, m), scale=torch.rand(n) + 0.1, about=STAYS)
    def channel(m: Any, x: Any) -> Any:
        y = dq(q(x, (m.scale, 0, 8), axis=0), (m.scale, 0, 8), axis=0)
        return q(y, (m.scale, 0, 8), axis=0)

    @move_case("a product and a clamp", (n, m), about=STAYS)
    def product(m: Any, x: Any) -> Any:
        y = dq(q(x, grid), grid)
        return y * 0.5, torch.clamp(y, 0.0, 1.0), q(torch.exp(x) * 0.5, grid)

    return [padded, smallest, digit, channel, product]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.randint(3, 5), rng.randint(3, 5)
    zero = rng.randint(-7, 6)
    grid, other = (0.04, zero, 8), (0.04, zero + 1, 8)

    def drawn(name: str) -> Case:
        return something_to_do("day15.move", lambda: move_case(name, (4, 4, 4), (4, 4, 4))(random_body(rng)))

    @move_case("a margin around a pool", (2, 3, 5, 5))
    def pool(m: Any, x: Any) -> Any:
        return torch.exp(F.max_pool2d(dq(q(x, grid), grid), 3, 2, 1))

    @move_case("the largest", (2, n, m))
    def largest(m: Any, x: Any) -> Any:
        return q(torch.amax(torch.tanh(x), (1, 2)), grid)

    @move_case("many in a row", (n, m))
    def row(m: Any, x: Any) -> Any:
        y = torch.flip(torch.transpose(torch.exp(x), 0, 1), (0,))
        return q(torch.roll(torch.flatten(y), 2, 0)[1:], grid)

    @move_case("many in a row, the other way", (n, m))
    def row_below(m: Any, x: Any) -> Any:
        y = torch.flip(torch.transpose(dq(q(x, grid), grid), 0, 1), (0,))
        return torch.exp(torch.roll(torch.flatten(y), 2, 0)[1:])

    @move_case("something else reads it", (n, m), about=STAYS)
    def shared(m: Any, x: Any) -> Any:
        y = torch.transpose(torch.exp(x), 0, 1)
        return q(y, grid), y + 1

    @move_case("the output reads it", (n, m), about=STAYS)
    def output(m: Any, x: Any) -> Any:
        y = torch.transpose(torch.exp(x), 0, 1)
        return q(y, grid), y

    differing = _differing(n, m, grid, other)

    @move_case("one tensor twice", (n, m))
    def twice(m: Any, x: Any) -> Any:
        y = dq(q(x, grid), grid)
        return torch.cat([y, y], 1) + 1, q(torch.cat([torch.exp(x)] * 2, 0), grid)

    @move_case("back onto the grid", (n, m))
    def back(m: Any, x: Any) -> Any:
        y = torch.transpose(dq(q(x, grid), grid), 0, 1)
        return q(y, grid), torch.tanh(y)

    @move_case("a sum and an average", (2, n, 4, 4), about=STAYS)
    def computed(m: Any, x: Any) -> Any:
        y = dq(q(x, grid), grid)
        return F.avg_pool2d(y, 2), q(torch.sum(torch.exp(x), 1), grid), q(torch.neg(y), grid)

    return [
        *(drawn(f"drawn, number {i + 1}") for i in range(4)),
        *(pool, largest, row, row_below, shared, output),
        *differing,
        *_apart(n, m, grid),
        *(twice, back, computed),
        *_readers(n, m, grid, other),
        *_computing(n, m, grid),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _grid(node, function):
    """The grid of a node with one scale, None for other nodes."""
    return node.args[1:] if node.target is function and isinstance(node.args[1], float) else None


@right("writes a new graph; a value is a node of floats, or one of integers and a grid")
def rewritten(gm):
    gm.graph.eliminate_dead_code()
    targets = {}  # node → the grid on which its only reader wants it
    for node in reversed(gm.graph.nodes):
        if len(node.users) == 1 and node.target in MOVING:
            (user,) = node.users
            targets[node] = _grid(user, quantize) or targets.get(user)
    graph, values = fx.Graph(), {}

    def floats(node):
        value, grid = values[node]
        return value if grid is None else graph.call_function(dequantize, (value, *grid))

    def integers(node, grid):
        return values[node][0] if values[node][1] == grid else graph.call_function(quantize, (floats(node), *grid))

    for node in gm.graph.nodes:
        grids = {values[x][1] for x in node.all_input_nodes}
        grid = targets.get(node) or (grids.pop() if len(grids) == 1 else None)
        if _grid(node, dequantize):
            values[node] = values[node.args[0]][0], node.args[1:]
        elif _grid(node, quantize):
            values[node] = integers(node.args[0], node.args[1:]), None
        elif node.target in MOVING and grid:
            values[node] = graph.node_copy(node, lambda x, grid=grid: integers(x, grid)), grid
        else:
            values[node] = graph.node_copy(node, floats), None
    return fx.GraphModule(gm, graph)


@right("applies one law at a time, until there is none")
def one_by_one(gm):
    gm.graph.eliminate_dead_code()
    while _step(gm):
        gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


@wrong("same", "returns a tuple of one result in place of that result")
def in_a_tuple(gm):
    return alone_in_a_tuple(one_by_one(gm))


def _step(gm):
    for node in gm.graph.nodes:
        grid = _grid(node, quantize)
        if grid and _grid(node.args[0], dequantize) == grid:
            node.replace_all_uses_with(node.args[0].args[0])
            return True
        if node.target not in MOVING:
            continue
        grids = [_grid(x, dequantize) for x in node.all_input_nodes]
        if grids[0] and all(grid == grids[0] for grid in grids):
            new = _over(gm, node, lambda x: x.args[0])
            with gm.graph.inserting_after(new):
                node.replace_all_uses_with(gm.graph.call_function(dequantize, (new, *grids[0])))
            return True
        user = next(iter(node.users), None)
        if len(node.users) == 1 and _grid(user, quantize):
            with gm.graph.inserting_before(node):
                pairs = {x: gm.graph.call_function(quantize, (x, *user.args[1:])) for x in node.all_input_nodes}
            user.replace_all_uses_with(_over(gm, node, pairs.get))
            return True
    return False


def _over(gm, node, operand):
    with gm.graph.inserting_before(node):
        return gm.graph.call_function(node.target, fx.map_arg(node.args, operand), fx.map_arg(node.kwargs, operand))


@wrong("did", "moves dequantize alone")
def below_only(gm):
    return _with(gm, above=False)


@wrong("did", "moves quantize alone")
def above_only(gm):
    return _with(gm, below=False)


def _lower(gm, node, grid):
    for x in node.all_input_nodes:
        node.replace_input_with(x, x.args[0])
    with gm.graph.inserting_after(node):
        new = gm.graph.call_function(dequantize, (node, *grid))
    node.replace_all_uses_with(new, lambda user: user is not new)


def _with(gm, above=True, below=True):
    for node in reversed(list(gm.graph.nodes)):
        while above and _grid(node, quantize) and node.args[0].target in MOVING and len(node.args[0].users) == 1:
            over = node.args[0]
            with gm.graph.inserting_before(over):
                pairs = [gm.graph.call_function(quantize, (x, *node.args[1:])) for x in over.all_input_nodes]
            for x, new in zip(over.all_input_nodes, pairs, strict=True):
                over.replace_input_with(x, new)
            node.replace_all_uses_with(over)
            gm.graph.erase_node(node)
            node = pairs[0]
    for node in list(gm.graph.nodes):
        grids = {_grid(x, dequantize) for x in node.all_input_nodes}
        if below and node.target in MOVING and len(grids) == 1 and None not in grids:
            _lower(gm, node, grids.pop())
    for node in gm.graph.nodes:
        if _grid(node, quantize) and _grid(node.args[0], dequantize) == _grid(node, quantize):
            node.replace_all_uses_with(node.args[0].args[0])
    gm.graph.eliminate_dead_code()
    return gm


@wrong("spared", "moves a quantize above what others read, and computes it twice")
def computed_twice(gm):
    for node in reversed(list(gm.graph.nodes)):
        if _grid(node, quantize) and node.args[0].target in MOVING and len(node.args[0].users) > 1:
            over = node.args[0]
            with gm.graph.inserting_before(over):
                pairs = {x: gm.graph.call_function(quantize, (x, *node.args[1:])) for x in over.all_input_nodes}
            node.replace_all_uses_with(_over(gm, over, pairs.get))
            gm.graph.erase_node(node)
    return one_by_one(gm)


no_third_law = edited("did", "leaves pairs on one grid")(
    ("grid(q, quantize) and grid(q.args[0], dequantize) == grid(q, quantize)", "False")
)
not_cat = edited("did", "moves over functions of one tensor alone")(
    ("t.target in MOVING and len(grids) == 1", "t.target in MOVING and t.target is not torch.cat and len(grids) == 1"),
    ("t.target in MOVING and len(t.users) == 1", "t.target in MOVING[:7] and len(t.users) == 1"),
)
any_grid = edited("same", "puts two grids onto one")(
    ("len(grids) == 1 and None not in grids", "None not in grids and t.all_input_nodes")
)
any_axis = edited("same", "moves the scales of channels")(
    ("node.target is function and 'axis' not in node.kwargs", "node.target is function")
)
any_zero = edited("same", "compares scales, and forgets zero points and bits")(
    (
        "grid(q.args[0], dequantize) == grid(q, quantize)",
        "(grid(q.args[0], dequantize) or [0])[0] == grid(q, quantize)[0]",
    )
)
any_scale = edited("same", "compares zero points and bits, and forgets scales")(
    (
        "grid(q.args[0], dequantize) == grid(q, quantize)",
        "(grid(q.args[0], dequantize) or [0])[1:] == grid(q, quantize)[1:]",
    )
)
OF_OPERANDS = "grids = {grid(x, dequantize) for x in t.all_input_nodes}"
near_scale = edited("same", "takes nearly equal scales for one")(
    (
        OF_OPERANDS,
        "grids = {(g := grid(x, dequantize)) and (round(g[0], 4), *g[1:]) for x in t.all_input_nodes}",
    )
)
any_bits = edited("same", "puts numbers of more bits onto a grid of fewer")(
    (OF_OPERANDS, "grids = {(g := grid(x, dequantize)) and g[:2]: g for x in t.all_input_nodes}"),
    ("*grids.pop()", "*next(iter(grids.values()))"),
)
two_of_three = edited("same", "looks at two operands, though three are read")(
    (OF_OPERANDS, "grids = {grid(x, dequantize) for x in t.all_input_nodes[:2]}")
)
any_reader = edited("same", "moves a quantize above what others read")(
    ("t.target in MOVING and len(t.users) == 1", "t.target in MOVING")
)
over_relu = edited("same", "moves a quantize above relu, as if 0 were the integer 0")(
    (
        "t.target in MOVING and len(t.users) == 1",
        "(t.target in MOVING or t.target is torch.relu) and len(t.users) == 1",
    )
)
not_amax = edited("did", "lets the largest be chosen of floats")(
    ("t.target in MOVING and len(grids) == 1", "t.target in MOVING and t.target is not torch.amax and len(grids) == 1")
)
quantized_twice = edited("same", "moves a quantize above what quantizes of other grids read, too")(
    (
        "t.target in MOVING and len(t.users) == 1",
        "t.target in MOVING and all(user.target is quantize for user in t.users)",
    )
)
dead_reader = edited("did", "counts readers that nothing needs")(
    ("graph = gm.graph\ngraph.eliminate_dead_code()", "graph = gm.graph")
)
always_eight = edited("same", "quantizes to eight bits what had fewer")(("(x, *q.args[1:])", "(x, *q.args[1:3], 8)"))
eight_below = edited("did", "dequantizes from eight bits what has fewer")(
    ("(t, *grids.pop())", "(t, *grids.pop()[:2], 8)")
)
by_position = edited("did", "does not see operands with keywords")(
    (OF_OPERANDS, "grids = {grid(x, dequantize) for x in t.all_input_nodes if t.args}")
)
over_pad = edited("same", "pads with the integer 0, which does not stand for 0")(
    ("t.target in MOVING and len(grids) == 1", "(t.target in MOVING or t.target is F.pad) and len(grids) == 1")
)
over_amin = edited("spared", "moves over the smallest as well, which is not in MOVING")(
    ("t.target in MOVING and len(grids) == 1", "(t.target in MOVING or t.target is torch.amin) and len(grids) == 1")
)
over_clamp = edited("same", "clamps integers between ends that are real numbers")(
    ("t.target in MOVING and len(grids) == 1", "(t.target in MOVING or t.target is torch.clamp) and len(grids) == 1")
)
last_digit = edited("same", "takes scales for one that differ in the last digit")(
    (
        OF_OPERANDS,
        "grids = {(g := grid(x, dequantize)) and (round(g[0], 7), *g[1:]) for x in t.all_input_nodes}",
    )
)
axis_pair = edited("spared", "removes a pair with a scale for each channel")(
    (
        "grid(q, quantize) and grid(q.args[0], dequantize) == grid(q, quantize)",
        "q.target is quantize and q.args[0].target is dequantize"
        " and (q.args[1:], q.kwargs) == (q.args[0].args[1:], q.args[0].kwargs)",
    )
)


@wrong("spared", "computes once what is written twice")
def merged(gm):
    return merge(one_by_one(gm))


@wrong("spared", "removes two transposes that undo each other")
def undone(gm):
    for node in one_by_one(gm).graph.nodes:
        inner = node.args[0] if node.target is torch.transpose else None
        if inner is not None and inner.target is torch.transpose and inner.args[1:] == node.args[1:]:
            node.replace_all_uses_with(inner.args[0])
    return gm


EQUIVALENT = {
    ("for t in list(graph.nodes): ...", "for t in (graph.nodes): ..."): "a graph may grow while its nodes are listed",
    ("graph.eliminate_dead_code()", "pass"): "Nodes that nothing needs do not count.",
    ("gm.recompile()", "pass"): "the judge compiles the graph anew",
}
