"""Hidden cases and answers of day14.backward."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from math import inf, nan
from typing import Any

import torch
from torch import Tensor, fx

from autograder.authoring.answers import edited, right, wrong
from passlab.autodiff import CONSTANT, RULES, fit
from passlab.exercises.day14.backward import ALLOWED, EDGE, REFUSED, program
from passlab.exercises.day14.vjp import numbers, row
from passlab.given.day14.backward import record
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def parts(x: Any, w: Any) -> tuple:
    first, second, _ = x.split([1, 2, 1], 1)  # the last one is not used
    return (first * second).sum(1), second.mm(w), second


def both(x: Any) -> tuple:
    y = x.tanh()
    return y, y * 2, y  # an output that occurs twice


def chosen(x: Any) -> tuple:
    values, places = x.max(0, keepdim=True)
    return (x - values).exp().sum(), places, values.squeeze(0)


def constants(x: Any) -> tuple:
    ramp = torch.arange(3) + torch.ones(3)
    return x * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) * ramp, torch.zeros_like(x) + x


def one_by_two(x: Any, y: Any) -> tuple:
    return (x * y + x.double(),)


def mask(x: Any, m: Any, n: Any) -> tuple:
    return x.masked_fill(m, 3.0) * n, m.logical_not(), x.gather(1, n)


def no_floats(n: Any, m: Any) -> tuple:
    return n + m, n > m


def no_path(x: Any, y: Any) -> tuple:
    return (x > y).double(), (x.sign() * y.floor()), y.argmax()


def stacked(x: Any, y: Any) -> tuple:
    whole = torch.stack([x, y, x]).permute(2, 0, 1)
    return torch.cat([whole, x.t().unsqueeze(1)], 1).view(-1), whole.flip(0)


def norms(x: Any) -> tuple:
    return x / torch.linalg.vector_norm(x, 2, [1], True), x.mean([0], True).expand(2, -1)


def scatter(x: Any, i: Any) -> tuple:
    return (x[i] * x[i].sigmoid()).sum(1), x[:, i]


def rounded(x: Any) -> tuple:
    return x.long().double() * x, x.long() * x.sin()


def ties(x: Any, y: Any) -> tuple:
    return torch.minimum(x, y).amax(0), x.relu().sqrt(), torch.where(x > y, x, 0 * y)


def roots(x: Any) -> tuple:
    return (x * x).sum(1).sqrt(), torch.linalg.vector_norm(x, 2, [0]), x.clamp(min=0.0, max=1.0)


def sorted_up(x: Any, w: Any) -> tuple:
    z = x.mul(w)
    return z.sigmoid(), z.cumprod(1).tanh()


def two_unknown(x: Any, n: Any) -> tuple:
    many = n.cumprod(0)  # of whole numbers: no gradient has to pass it
    return many, torch.logcumsumexp(x * many, 0)


def dead_end(x: Any) -> tuple:
    return (x * 2).exp(), x.cumprod(0) > 1


def from_below(x: Any, n: Any) -> tuple:
    return torch.logcumsumexp(n.double(), 0) * x, n.cumprod(0)


LINES = {
    "cumprod": ("h", "y = torch.cumprod(z, 1)  # along the row"),
    "logcumsumexp": ("soft_7", "soft = soft.logcumsumexp(0)"),
}
NAMED = {"cumprod": ("cumprod", "y = z.product_so_far(1)")}
#: The elementary steps of drawn programs: two values → a value of the shape of the first.
STEPS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda x, y, w: x.tanh() + y,
    lambda x, y, w: x * y.sigmoid(),
    lambda x, y, w: torch.maximum(x, y) - y.abs(),
    lambda x, y, w: torch.softmax(x, 1) * y.sum(1, keepdim=True),
    lambda x, y, w: (x - y.mean([0])).sin(),
    lambda x, y, w: x.mm(w).tanh() * y,
    lambda x, y, w: torch.cat(list(x.split([1, w.shape[0] - 1], 1))[::-1], 1) * y.sum(0),
    lambda x, y, w: x.t().relu().sum(1) + y.cos(),
    lambda x, y, w: x / (1 + y * y),
    lambda x, y, w: torch.stack([x, y], 1).amax(1) * x.unsqueeze(0).expand(2, -1, -1).sum(0),
    lambda x, y, w: x.max(1, keepdim=True)[0] * torch.stack([x, y]).view(2, -1).sum([0]).view(y.shape),
    lambda x, y, w: torch.where(x > y, x * 2, y.neg()),
)


def drawn_program(rng: random.Random, name: str) -> Case:
    a, b = rng.randrange(2, 4), rng.randrange(2, 5)
    plan = [(rng.choice(STEPS), rng.randrange(3), rng.randrange(3)) for _ in range(6)]
    indices = rng.sample(range(3, 8), 2)

    def run(x: Any, y: Any, w: Any, v: Any) -> tuple:
        values = [x, y, v.expand(a, b)]
        for step, i, j in plan:  # mostly of the last values: a chain with forks
            values.append(step(values[-1 - i], values[-1 - j], w))
        return (*(values[i] for i in indices), values[-1])

    shapes = (a, b), (a, b), (b, b), (a, 1)
    return program(name, run, *(numbers(*shape, seed=rng.randrange(2**31)) / 2 for shape in shapes))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def drawn(*shape: int) -> Tensor:
        return numbers(*shape, seed=rng.randrange(2**31))

    x, y = drawn(2, 3), drawn(2, 3)
    whole = torch.tensor([rng.randrange(3) for _ in range(4)])
    return [
        program("parts, one of them unused", parts, drawn(3, 4), drawn(2, 2)),
        program("an output that occurs twice", both, x),
        program("a largest value and its place", chosen, drawn(3, 2)),
        program("constants", constants, x),
        program("two types", one_by_two, numbers(2, 3, dtype=torch.float32, seed=rng.randrange(99)), drawn(3)),
        program("masks and places", mask, x, drawn(2, 3) > 0, torch.tensor([[0, 2, 2], [1, 1, rng.randrange(3)]])),
        program("no floats", no_floats, whole, whole.flip(0)),
        program("outputs that no gradient reaches", no_path, x, y),
        program("lists, and views of views", stacked, x, y),
        program("norms and means", norms, x),
        program("by way of whole numbers", rounded, 3 * x),
        program("rows that are looked up twice", scatter, drawn(3, 3), whole),
        *(drawn_program(rng, f"drawn {n}") for n in range(3)),
        program("edges: ties", ties, row(0, 1, 1, -1, inf, nan), row(0, 1, 2, -1, inf, 1), about=EDGE),
        program("edges: roots and norms of 0", roots, torch.stack([row(0, 0, 1), row(0, 1, nan)]), about=EDGE),
        program("no rule, on one of two ways", sorted_up, x, y, about=REFUSED, lines=LINES, refused="cumprod"),
        program(
            "two without a rule, one in the way",
            two_unknown,
            x,
            whole[:2, None],
            about=REFUSED,
            lines=LINES,
            refused="logcumsumexp",
        ),
        program("no rule, one frame", sorted_up, x, y, about=REFUSED, lines=LINES, refused="cumprod", frames=1),
        program("no rule, with its own name", sorted_up, x, y, about=REFUSED, lines=NAMED, refused="cumprod"),
        program("no rule, behind it no floats", dead_end, x, about=ALLOWED, lines=LINES),
        program("no rule, before it no floats", from_below, drawn(4), whole, about=ALLOWED, lines=LINES),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- answers


def floats(node):
    value = node.meta["val"]
    return isinstance(value, Tensor) and value.dtype.is_floating_point


def on_the_way(nodes):
    """Return the outputs that have a gradient, and the nodes through which it comes to an input."""

    def carries(node):
        if node.op == "placeholder":
            return floats(node)
        if node.op != "call_function" or node.target in CONSTANT:
            return False
        if not floats(node) and type(node.meta["val"]) not in (tuple, list):
            return False
        return any(known[operand] for operand in node.all_input_nodes)

    known = {}
    for node in nodes[:-1]:
        known[node] = carries(node)
    ends = [n for n in nodes[-1].args[0] if floats(n)]
    todo, visited = list(ends), set()
    while todo:
        node = todo.pop()
        if node in visited or not known[node]:
            continue
        visited.add(node)
        todo += node.all_input_nodes
        if node.op == "call_function" and node.target is not operator.getitem and node.target not in RULES:
            last = node.meta["stack_trace"].rstrip().split("\n")[-1]
            raise ValueError(f"node {node.name}: no rule for {node.target}, called by {last}")
    return ends, visited


def all_values(gm, inputs, args):
    values = dict(zip(inputs, args, strict=False))
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            values[node] = getattr(gm, node.target)
        if node.op == "call_function":
            a, k = fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
            values[node] = node.target(*a, **k)
    return values


def added(pieces):
    """Return the sum of the pieces that are there, or None."""
    first, *others = [piece for piece in pieces if piece is not None] or [None]
    return sum(others, first)


def shares(node, g, values, way):
    """Yield what the rule of a node gives to each operand on the way."""
    a, k = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    for operand, back in zip(node.args, RULES[node.target].apply(g, values[node], *a, **k), strict=False):
        listed = isinstance(operand, list | tuple)
        for part, piece in zip(operand, back, strict=True) if listed and back else [(operand, back)]:
            if isinstance(part, fx.Node) and part in way and piece is not None:
                yield part, fit(piece, values[part])


@right("asks each node for its gradient, from the inputs down, and remembers the answers")
def on_demand(gm):
    nodes = list(gm.graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder"]
    outputs = list(nodes[-1].args[0])
    ends, reached = on_the_way(nodes)

    def run(*args):
        values, tangents = all_values(gm, inputs, args), args[len(inputs) :]
        rules, whole = {}, {}

        def of_rule(user):
            if user not in rules:
                rules[user] = list(shares(user, gradient(user), values, reached))
            return rules[user]

        def pieces(node):
            yield from (g for end, g in zip(ends, tangents, strict=True) if end is node)
            for user in node.users:
                if user.op == "call_function" and user in reached and gradient(user) is not None:
                    yield from (piece for part, piece in of_rule(user) if part is node)

        def slots(node):
            parts = {}
            for user in node.users:
                parts.setdefault(user.args[1], []).append(gradient(user) if user in reached else None)
            return tuple(added(parts.get(i, ())) for i in range(len(values[node])))

        def gradient(node):
            if node not in whole:
                if isinstance(values[node], Tensor):
                    whole[node] = added(pieces(node))
                else:
                    parts = slots(node)
                    whole[node] = parts if any(part is not None for part in parts) else None
            return whole[node]

        pairs = [(n, gradient(n)) for n in inputs if floats(n)]
        return [values[n] for n in outputs] + [
            values[n].new_zeros(values[n].shape) if g is None else g for n, g in pairs
        ]

    return record(run, [n.meta["val"] for n in inputs + ends])


@right("lets an interpreter run forward, and collects the pieces of each gradient before it adds them")
def collected(gm):
    inputs = gm.graph.find_nodes(op="placeholder")
    ends, way = on_the_way(list(gm.graph.nodes))

    def run(*args):
        runner = fx.Interpreter(gm, garbage_collect_values=False)
        results = list(runner.run(*args[: len(inputs)]))
        pieces = {node: [] for node in gm.graph.nodes}
        for node, tangent in zip(ends, args[len(inputs) :], strict=True):
            pieces[node].append(tangent)
        for node in reversed(gm.graph.nodes):
            if node.op != "call_function" or node not in way or not pieces[node]:
                continue
            value = runner.env[node]
            if isinstance(value, Tensor):
                g = added(pieces[node])
            else:
                g = tuple(added(t for i, t in pieces[node] if i == index) for index in range(len(value)))
            if node.target is operator.getitem:
                pieces[node.args[0]].append((node.args[1], g))
                continue
            for part, piece in shares(node, g, runner.env, way):
                pieces[part].append(piece)
        for node in filter(floats, inputs):
            results.append(added(pieces[node] or [runner.env[node].new_zeros(node.meta["val"].shape)]))
        return results

    return record(run, [node.meta["val"] for node in inputs + ends])


@wrong("cost", "follows each path from an output to an input by itself")
def path_by_path(gm):
    inputs = gm.graph.find_nodes(op="placeholder")
    ends, way = on_the_way(list(gm.graph.nodes))

    def run(*args):
        runner = fx.Interpreter(gm, garbage_collect_values=False)
        results = list(runner.run(*args[: len(inputs)]))
        env, grads = runner.env, {}
        todo = [(end, g) for end, g in zip(ends, args[len(inputs) :], strict=True) if end in way]
        while todo:
            node, g = todo.pop()
            if node.op == "placeholder":
                grads[node] = grads[node] + g if node in grads else g
                continue
            if node.target is operator.getitem:
                slots = [None] * len(env[node.args[0]])
                slots[node.args[1]] = g
                todo.append((node.args[0], tuple(slots)))
                continue
            todo += shares(node, g, env, way)
        return results + [grads.get(n, torch.zeros_like(env[n])) for n in filter(floats, inputs)]

    return record(run, [n.meta["val"] for n in inputs + ends])


overwrites = edited("did", "keeps only the last consumer's gradient")(
    ("gradient if old is None else old + gradient", "gradient")
)
in_place = edited("same", "adds gradients in place, into tensors that others have, too")(
    (
        "gradients[node] = gradient if old is None else old + gradient",
        "gradients[node] = gradient if old is None else old.add_(gradient)",
    )
)
one_tangent = edited("did", "gives an output that occurs twice its last tangent only")(
    (
        """
for node, tangent in zip(ends, args[len(inputs) :], strict=True):
    add(node, tangent)
""",
        """
gradients.update({n: t for n, t in zip(ends, args[len(inputs) :], strict=True) if n in way})
""",
    )
)
refuses_all = edited("spared", "refuses every operation without a rule, wherever it is")(
    (
        "node in needed and node in passed",
        "node.target not in CONSTANT",
    )
)
refuses_before = edited("spared", "refuses what only whole numbers pass")(
    (
        "node in needed and node in passed",
        "node in needed and node.target not in CONSTANT",
    )
)
first_line = edited("spared", "quotes the outermost line of the stack")(
    (
        "node.meta['stack_trace'].strip().splitlines()[-1]",
        "node.meta['stack_trace'].strip().splitlines()[1 if len(node.meta['stack_trace'].splitlines()) > 2 else -1]",
    )
)
nameless = edited("spared", "names the operation, not the node")(
    (
        "f'{node.name} has no rule: {line}'",
        "f'{node.target} has no rule: {line}'",
    )
)
ignores = edited("spared", "lets an operation without a rule pass no gradient")(
    ("raise ValueError(f'{node.name} has no rule: {line}')", "passed.discard(node)")
)
none_for_unused = edited("valid", "leaves out inputs that no output depends on")(
    ("gradients.setdefault(node, torch.zeros_like(values[node]))", "pass"),
    ("[gradients[n] for n in floats]", "[gradients[n] for n in floats if n in gradients]"),
)
whole_too = edited("valid", "returns gradients of whole numbers, too")(
    ("floats = [node for node in inputs if is_float(node)]", "floats = list(inputs)")
)


EQUIVALENT: dict[tuple[str, str], str] = {}
