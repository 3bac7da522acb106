"""Hidden cases and answers of day14.forward-mode."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from math import nan
from typing import Any

import torch
from torch import Tensor, fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day14.backward import program
from passlab.exercises.day14.forward_mode import EDGE, ORDINARY
from passlab.exercises.day14.vjp import numbers, row
from passlab.given.day14.backward import record
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def grown(x: Any, b: Any) -> tuple:
    ones = torch.ones(2, 3, dtype=torch.float64)
    return ones + b, ones - b, b - ones * 2, x + 1


def alphas(x: Any, y: Any) -> tuple:
    return torch.add(x, y, alpha=-2), torch.sub(x, y, alpha=0.5)


def quotients(x: Any, y: Any, n: Any) -> tuple:
    return x / 3, x / y, x / n, n / y


def factors(x: Any, w: Any) -> tuple:
    ones = torch.ones(3, 3, dtype=torch.float64)
    return x @ ones, ones @ x, x @ w, x * 2.5, -x


def two_types(x: Any, y: Any) -> tuple:
    return x.double() * y, (x * y).float(), torch.ones(3, dtype=torch.float64) - x


def cut_off(x: Any) -> tuple:
    whole = x.long()
    return x * whole.double(), whole.double().sin()


def lists(x: Any, n: Any) -> tuple:
    still = torch.ones(2, 3, dtype=torch.float64)
    return torch.cat([x, still]), torch.stack([still, x, x * x], 1), n.split([1, 2])[1]


def parts(x: Any, i: Any) -> tuple:
    a, b, c = x.split([1, 2, 1], 1)
    return a * b + c, x[i], x[i].sum([0]), i + 1


def largest(x: Any) -> tuple:
    return x.amax([0]), x.amax([0, 1], True), x.amax([1], True), x.unsqueeze(0).amax([-1])


def means(x: Any) -> tuple:
    return x.mean([0]), x.mean([0, -1], True), x - x.mean([1], True)


def chosen(x: Any, y: Any) -> tuple:
    return torch.where(x > 0, x, y), torch.maximum(x, y.sum([0])), torch.where(x > y, x * y, 1.0)


def twice(x: Any) -> tuple:
    y = x.tanh()
    return y, y.sum([0]), y, x


def still(n: Any, m: Any) -> tuple:
    return n + m, n.double(), n > m


def slopes(x: Any) -> tuple:
    return x.exp().sin(), x.cos().tanh(), x.sigmoid().exp(), torch.softmax(x, 0), torch.softmax(x.relu(), -1)


def layers(x: Any, *ws: Any) -> tuple:
    for w in (*ws, *ws):
        x = (x * w).sin()
    return (x,)


def ties(x: Any, y: Any) -> tuple:
    return x.amax([1]), x.relu(), torch.stack([x, y]).amax([0, 2])


def equal(x: Any, y: Any) -> tuple:
    return (torch.maximum(x, y),)


def outside(x: Any, y: Any) -> tuple:
    return (torch.where(x > 0, x, x / y),)


STEPS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda x, y, w: x.tanh() + y,
    lambda x, y, w: x * y.sigmoid(),
    lambda x, y, w: torch.maximum(x, y) - y.relu(),
    lambda x, y, w: torch.softmax(x, 1) * y.sum([1], True),
    lambda x, y, w: (x - y.mean([0])).sin(),
    lambda x, y, w: x.mm(w).cos() * y,
    lambda x, y, w: torch.cat(list(x.split([1, w.shape[0] - 1], 1))[::-1], 1) * y.exp().tanh(),
    lambda x, y, w: x / (y * y + 1),
    lambda x, y, w: torch.stack([x, y], 1).amax([1]) * x.unsqueeze(0).expand(2, -1, -1).sum([0]),
    lambda x, y, w: torch.where(x > y, x * 2, -y),
    lambda x, y, w: torch.stack([x, y]).view(2, -1).sum([0]).view(y.shape) * y,
)


def drawn_program(rng: random.Random, name: str) -> Case:
    a, b = rng.randrange(2, 4), rng.randrange(2, 5)
    plan = [(rng.choice(STEPS), rng.randrange(3), rng.randrange(3)) for _ in range(6)]
    index = rng.randrange(3, 8)

    def run(x: Any, y: Any, w: Any, v: Any) -> tuple:
        values = [x, y, v.expand(a, b)]
        for step, i, j in plan:
            values.append(step(values[-1 - i], values[-1 - j], w))
        return values[index], values[-1]

    shapes = (a, b), (a, b), (b, b), (a, 1)
    inputs = [numbers(*shape, seed=rng.randrange(2**31)) / 2 for shape in shapes]
    return program(name, run, *inputs, about=ORDINARY)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def drawn(*shape: int) -> Tensor:
        return numbers(*shape, seed=rng.randrange(2**31))

    x, y = drawn(2, 3), drawn(2, 3)
    whole = torch.tensor([rng.randrange(3) for _ in range(4)])
    single = numbers(2, 3, dtype=torch.float32, seed=rng.randrange(2**31))
    matrix = torch.stack([row(1, 1, 0), row(2, 3, 3), row(0, 0, 0)])
    return [
        program("a row that is broadcast to what does not change", grown, x, drawn(3), about=ORDINARY),
        program("alphas", alphas, x, y, about=ORDINARY),
        program("quotients", quotients, x, y, torch.tensor([1, 2, 4]), about=ORDINARY),
        program("factors", factors, drawn(3, 3), drawn(3, 2), about=ORDINARY),
        program("two types", two_types, single, drawn(3), about=ORDINARY),
        program("whole numbers between", cut_off, 3 * x, about=ORDINARY),
        program("lists, some of which changes", lists, x, torch.arange(3), about=EDGE),
        program("parts", parts, drawn(3, 4), whole[:2], about=ORDINARY),
        program("largest", largest, drawn(3, 2), about=ORDINARY),
        program("means", means, x, about=ORDINARY),
        program("choices", chosen, x, y, about=ORDINARY),
        program("an output twice, and an input", twice, x, about=EDGE),
        program("nothing changes", still, whole, whole.flip(0), about=EDGE),
        program("slopes", slopes, x / 2, about=ORDINARY),
        program("layers", layers, *(drawn(2) for _ in range(8)), about=ORDINARY),
        *(drawn_program(rng, f"drawn {n}") for n in range(3)),
        program(
            "edges: ties of rows", ties, matrix, torch.stack([row(1, 0, 0), row(2, 4, 3), row(0, 1, -1)]), about=EDGE
        ),
        program("edges: equal operands", equal, row(1, 0, 2), row(1, 1, 2), about=EDGE),
        program("edges: relu of NaN", lambda x: (x.relu(),), row(nan, 0, 1), about=EDGE),
        program("edges: the other side is not finite", outside, row(1, -1, 2), row(0, 1, 2), about=EDGE),
    ]


# ---------------------------------------------------------------------------------------------------- answers


aten = torch.ops.aten


class Pairs(fx.Interpreter):
    """`moves`: node → change, for what changes."""

    def __init__(self, gm, changes):
        super().__init__(gm, garbage_collect_values=False)
        self.moves = changes

    def run_node(self, node):
        out = super().run_node(node)
        self.at = node
        plain = isinstance(out, Tensor) and not out.is_floating_point()
        if node.op == "call_function" and not plain and set(self.moves) & set(node.all_input_nodes):
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            self.moves[node] = self.change(node, out, args, kwargs)
        return out

    def moved(self, i):
        """The change of argument i, zeros where there is none."""
        argument = self.at.args[i]
        if isinstance(argument, list | tuple):
            return [self.moves.get(part, torch.zeros_like(self.env[part])) for part in argument]
        if argument in self.moves:
            return self.moves[argument]
        return torch.zeros_like(self.env[argument]) if isinstance(argument, fx.Node) else torch.zeros(())

    def change(self, node, out, args, kwargs):
        op = node.target
        x, dx = args[0], self.moved(0)
        if op in (aten.add.Tensor, aten.sub.Tensor):
            sign = kwargs.get("alpha", 1) * (1 if op is aten.add.Tensor else -1)
            return (dx + sign * self.moved(1)).to(out.dtype).expand(out.shape)
        if op in (aten.mul.Tensor, aten.mm.default):
            moving = [i for i in (0, 1) if node.args[i] in self.moves]
            terms = [op(self.moved(0), args[1]) if i == 0 else op(x, self.moved(1)) for i in moving]
            return terms[0] if len(terms) == 1 else terms[0] + terms[1]
        if op is aten.div.Tensor:
            top = dx if node.args[1] not in self.moves else dx - out * self.moved(1)
            return top / args[1]
        if op is aten.where.self:
            return torch.where(args[0], self.moved(1), self.moved(2))
        if op is aten.maximum.default:
            dy = self.moved(1)
            share = torch.where(x == args[1], 0.5, (x > args[1]).to(out.dtype))
            return share * dx + (1 - share) * dy
        if op is aten.amax.default:
            dims = args[1]
            keep = args[2] if len(args) > 2 else False
            mask = (x == torch.amax(x, dims, True)).to(out.dtype)
            return (mask * dx).sum(dims, keep) / mask.sum(dims, keep)
        if op is aten._softmax.default:
            return out * dx - out * (out * dx).sum(args[1], True)
        one = {
            aten.exp.default: lambda: dx * out,
            aten.sin.default: lambda: x.cos() * dx,
            aten.cos.default: lambda: -dx * x.sin(),
            aten.tanh.default: lambda: dx - dx * out.square(),
            aten.sigmoid.default: lambda: (out - out * out) * dx,
            aten.relu.default: lambda: torch.where(x <= 0, 0.0, dx),
        }
        return one[op]() if op in one else op(dx, *args[1:], **kwargs)


@right("lets an interpreter run on pairs of a value and its change")
def dual_numbers(gm):
    inputs = gm.graph.find_nodes(op="placeholder")
    outputs = list(gm.graph.output_node().args[0])
    floats = [node for node in inputs if node.meta["val"].is_floating_point()]

    def run(*args):
        changes = dict(zip(floats, args[len(inputs) :], strict=True))
        runner = Pairs(gm, changes)
        results = list(runner.run(*args[: len(inputs)]))
        for node in outputs:
            if node.meta["val"].is_floating_point():
                results.append(changes.get(node, torch.zeros_like(runner.env[node])))
        return results

    return record(run, [node.meta["val"] for node in inputs + floats])


class Changes:
    """The graph of changes as it is written. `copies`: node → its copy; `moves`: node → proxy of its change."""

    def __init__(self):
        self.graph, self.copies, self.moves = fx.Graph(), {}, {}

    def zeros(self, node):
        return fx.Proxy(self.graph.call_function(aten.zeros_like.default, (self.copies[node],)))

    def of(self, argument):
        if isinstance(argument, list | tuple):
            return [self.of(part) for part in argument]
        if not isinstance(argument, fx.Node):
            return 0.0
        return self.moves[argument] if argument in self.moves else self.zeros(argument)

    def call(self, op, *args, **kwargs):
        bare = fx.node.map_aggregate((args, kwargs), lambda a: a.node if isinstance(a, fx.Proxy) else a)
        return fx.Proxy(self.graph.call_function(op, *bare))

    def change(self, node):
        op, call, out = node.target, self.call, fx.Proxy(self.copies[node])
        args = fx.node.map_arg(node.args, lambda n: fx.Proxy(self.copies[n]))
        x, dx = args[0], self.of(node.args[0])
        if op in (aten.add.Tensor, aten.sub.Tensor):
            dx = dx if isinstance(dx, fx.Proxy) else self.zeros(node)
            total = call(op, dx, self.of(node.args[1]), **node.kwargs)
            return call(aten.expand.default, total, list(node.meta["val"].shape)).to(node.meta["val"].dtype)
        if op in (aten.mul.Tensor, aten.mm.default):
            first = call(op, dx, args[1]) if node.args[0] in self.moves else None
            second = call(op, x, self.of(node.args[1])) if node.args[1] in self.moves else None
            return first if second is None else second if first is None else first + second
        if op is aten.div.Tensor:
            return (dx - out * self.of(node.args[1]) if node.args[1] in self.moves else dx) / args[1]
        if op is aten.where.self:
            return call(op, x, self.of(node.args[1]), self.of(node.args[2]))
        if op is aten.maximum.default:
            dy = self.of(node.args[1])
            half = call(aten.mul.Tensor, dx + dy, 0.5)
            side = call(aten.where.self, call(aten.gt.Tensor, x, args[1]), dx, dy)
            return call(aten.where.self, call(aten.eq.Tensor, x, args[1]), half, side)
        if op is aten.amax.default:
            mask = call(aten.eq.Tensor, x, call(op, x, node.args[1], True))
            keep = node.args[2] if len(node.args) > 2 else False
            count = call(aten.sum.dim_IntList, mask, node.args[1], keep)
            return call(aten.sum.dim_IntList, dx * mask, node.args[1], keep) / count
        if op is aten._softmax.default:
            return out * (dx - call(aten.sum.dim_IntList, out * dx, [node.args[1]], True))
        change = change_of_one(op, call, x, dx, out)
        return call(op, dx, *args[1:], **node.kwargs) if change is None else change


def change_of_one(op, call, x, dx, out):
    if op is aten.relu.default:
        return call(aten.masked_fill.Scalar, dx, call(aten.le.Scalar, out, 0), 0)
    if op is aten.exp.default:
        return dx * out
    if op is aten.sin.default:
        return dx * call(aten.cos.default, x)
    if op is aten.cos.default:
        return call(aten.neg.default, dx * call(aten.sin.default, x))
    if op is aten.tanh.default:
        return dx * call(aten.rsub.Scalar, out * out, 1)
    if op is aten.sigmoid.default:
        return dx * out * call(aten.rsub.Scalar, out, 1)
    return None


@right("writes the nodes of the changes into the graph itself, with proxies")
def with_proxies(gm):
    changes = Changes()
    graph, copies, moves = changes.graph, changes.copies, changes.moves
    inputs = gm.graph.find_nodes(op="placeholder")
    floats = [node for node in inputs if node.meta["val"].is_floating_point()]
    for node in inputs:
        copies[node] = graph.node_copy(node)
    for i, node in enumerate(floats):
        moves[node] = fx.Proxy(graph.placeholder(f"change_{i}"))
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        copies[node] = graph.node_copy(node, copies.__getitem__)
        value = node.meta["val"]
        plain = isinstance(value, Tensor) and not value.is_floating_point()
        if node.op == "call_function" and not plain and set(moves) & set(node.all_input_nodes):
            moves[node] = changes.change(node)
    results = list(gm.graph.output_node().args[0])
    ends = [node for node in results if node.meta["val"].is_floating_point()]
    graph.output([copies[n] for n in results] + [changes.of(n).node for n in ends])
    graph.eliminate_dead_code()
    return fx.GraphModule(gm, graph)


product = edited("did", "multiplies the changes of the factors")(
    (
        "terms = [] if dx is None else [op(dx, y)]",
        "return op(zero(x) if dx is None else dx, zero(y) if dy is None else dy)",
    )
)
first_only = edited("did", "lets only the first factor change, if it does")(
    ("terms += [] if dy is None else [op(x, dy)]", "terms += [op(x, dy)] if dx is None else []")
)
no_alpha = edited("did", "forgets alpha")(("op(dx, rest[0], **node.kwargs)", "op(dx, rest[0])"))
small = edited("did", "leaves a change smaller than its value, where it is broadcast to what does not change")(
    ("op(dx, rest[0], **node.kwargs)", "rest[0] if moved[0] is None else op(dx, rest[0], **node.kwargs)")
)
quotient = edited("did", "forgets the divisor's change")(("(dx - out * rest[0]) / args[1]", "dx / args[1]"))
alone = edited("did", "differentiates softmax element by element")(
    ("out * (dx - (out * dx).sum(dim, keepdim=True))", "out * dx * (1 - out)")
)
through_whole_numbers = edited("did", "lets changes pass whole numbers")(
    ("not out.is_floating_point()", "out.dtype == torch.bool")
)
mean_as_sum = edited("did", "sums where the forward graph has a mean")(
    (
        "return op(dx, *args[1:], **node.kwargs)",
        "return {aten.mean.dim: aten.sum.dim_IntList}.get(op, op)(dx, *args[1:], **node.kwargs)",
    )
)
never_kept = edited("did", "forgets that amax may keep its dimensions")(
    ("torch.where(chosen, dx, 0.0).sum(dim, keepdim)", "torch.where(chosen, dx, 0.0).sum(dim)"),
    ("chosen.sum(dim, keepdim)", "chosen.sum(dim)"),
)
sums_ties = edited("same", "adds the changes of equal largest elements")(("total / chosen.sum(dim, keepdim)", "total"))
first_at_tie = edited("same", "takes the first of two equal operands")(
    ("torch.where(x == y, tie, torch.where(x > y, dx, dy))", "torch.where(x >= y, dx, dy)")
)
slope_at_zero = edited("same", "gives relu the slope 1 at 0")(
    ("dx.masked_fill(out <= 0, 0)", "dx.masked_fill(args[0] < 0, 0)")
)
multiplied = edited("same", "multiplies with the condition")(
    ("return op(args[0], *rest)", "return rest[0] * args[0] + rest[1] * ~args[0]")
)
none_for_still = edited("valid", "has no derivative of an output that does not change")(
    ("for node in filter(is_float, outputs): ...", "for node in [n for n in outputs if n in changes]: ...")
)


@wrong("cost", "makes a pass for each input, and adds the derivatives")
def one_by_one(gm):
    inputs = gm.graph.find_nodes(op="placeholder")
    floats = [node for node in inputs if node.meta["val"].is_floating_point()]
    number = len(gm.graph.output_node().args[0])
    single = dual_numbers(gm)

    def run(*args):
        values, changes = args[: len(inputs)], args[len(inputs) :]
        total = None
        for i in range(len(floats)):
            each = [change if j == i else torch.zeros_like(change) for j, change in enumerate(changes)]
            outs = list(single(*values, *each))
            total = outs if total is None else [*total[:number], *map(operator.add, total[number:], outs[number:])]
        return list(single(*values)) if total is None else total

    return record(run, [node.meta["val"] for node in inputs + floats])


EQUIVALENT: dict[tuple[str, str], str] = {}
