"""Hidden cases and answers of day13.one-graph."""

from __future__ import annotations

import math
import operator
import random
from typing import Any

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day13.one_graph import Step, case, step
from passlab.given.day13.one_graph import If
from passlab.judge import Case


def trap(rng: random.Random, names: str) -> Step:
    """Return a step on the first of some tensors, in which one branch is undefined where the other is taken."""
    c = round(rng.uniform(-1, 1), 1)
    predicate, body, safe = rng.choice(
        [
            (lambda x, *_: x.amin() > c, lambda x: torch.sqrt(x - c), c + 2),
            (lambda x, *_: x.amax() < c, lambda x: torch.log(c - x), c - 2),
            (lambda x, *_: (x - c).abs().amin() > 0, lambda x: 1 / (x - c), c + 1),
            (lambda x, *_: x.amax() < 2 + c, lambda x: torch.exp(x * 400) * x, c),
        ]
    )
    scale = rng.choice((0.5, -1.5))
    last = len(names) - 1
    there = lambda *state: (*state[1:], body(state[0]) + state[last])  # noqa: E731
    elsewhere = lambda *state: (*state[1:], state[0] * scale)  # noqa: E731
    values = [safe] + [0.5] * last
    if rng.random() < 0.5:
        return step(names, lambda *state: torch.logical_not(predicate(*state)), elsewhere, there, safe=values)
    return step(names, predicate, there, elsewhere, safe=values)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def drawn(number: int) -> Case:
        names, own = "xyz"[: rng.randint(1, 3)], rng.randrange(2**31)
        length = rng.randint(2, 4)
        states = [[[rng.choice((-1, -0.5, 0.0, 0.3, 1.0, 3.0)) for _ in range(3)] for _ in names] for _ in range(5)]

        def steps() -> list[Step]:
            draw = random.Random(own)
            return [trap(draw, names) for _ in range(length)]

        return case(f"drawn, number {number}", steps, *states)

    turns = rng.randint(3, 5)
    base = round(rng.uniform(0.3, 0.9), 2)
    return [
        *(drawn(at + 1) for at in range(5)),
        case(
            "a loop that counts down",
            lambda: counted(turns, base),
            *([[1.0, base], [float(n)]] for n in range(turns + 1)),
        ),
        case("a long chain", chain, [[0.5]], [[-0.5]]),
        case(
            "what is not finite stays where it is",
            infinite,
            [[math.inf, 1.0], [2.0]],
            [[1.0, 2.0], [-1.0]],
            [[math.nan, 1.0], [3.0]],
        ),
        case("the branch of the no", lambda: otherwise(base), [[0.0, base]], [[1.0, 2.0]]),
        case("a loop, then a branch", mixed, [[0.5], [0.0]], [[6.0], [1.0]], [[-7.0], [2.0]]),
        case(
            "no turn at all",
            lambda: [step("x", lambda x: x.sum() > 100, lambda x: (x * x,), 3, safe=[0.0])],
            [[1.0, base]],
        ),
        case(
            "a branch that fails on what the other takes",
            lambda: indexed(4),
            *([[0.5, base, -2.0], [float(n)]] for n in (4, 5, 7, 8)),
        ),
        case(
            "a turn that fails where the loop ends",
            indexed_turns,
            *([[0.5, base, -2.0], [float(n)]] for n in (3, 4, 6)),
        ),
        case("a long predicate", questioned, [[base], [0.5], [-1.0]], [[-base], [0.5], [-1.0]]),
        case("one long branch of four tensors", branched, *([[x], [0.5], [-1.0], [2.0]] for x in (base, -base))),
        case("a long turn of four tensors", turned, *([[x], [0.5], [-1.0], [2.0]] for x in (base, -base))),
        case(
            "a safe number below 0",
            lambda: indexed(-8),
            *([[0.5, base, -2.0], [float(n)]] for n in (-8, -7, -5, -4)),
        ),
        case(
            "a safe number that is not whole",
            lambda: indexed(11, 0.5),
            *([[0.5, base, -2.0], [n]] for n in (5.5, 6.0, 7.0, 7.5)),
        ),
        case(
            "operands in lists and under keywords",
            gathered,
            *([[x, 2.0, base], [-3.0, 1.0, 0.5]] for x in (0.5, 4.0)),
        ),
        case("a tensor under a keyword", under_keywords, [[base], [1.0]], [[-base], [1.0]]),
        case(
            "a safe number of the first tensor",
            lambda: indexed_first(4),
            *([[float(n)], [0.5, base, -2.0]] for n in (4, 5, 7, 8)),
        ),
        case(
            "safe numbers of two steps",
            lambda: [*indexed(20, 0.25), *indexed(4)],
            *([[0.5, base, -2.0], [float(n)]] for n in (5, 5.25)),
        ),
        case(
            "a loop of many turns",
            lambda: [step("x", lambda x: x.sum() < 11.5, lambda x: (x + 1,), 12, safe=[0.0])],
            [[0.25]],
            [[base]],
        ),
        case("a loop that begins at infinity", inverted, [[math.inf, 2.0]], [[base, 0.5]]),
        case("a tensor that nothing reads", unread, [[base], [1.0]], [[-base], [1.0]]),
        case("a branch that is taken and gives infinity", divided, [[base, 0.0]], [[-1.0, 0.5]]),
    ]


def counted(turns: int, base: float) -> list[Step]:
    return [
        step("xn", lambda x, n: n.sum() > 0.5, lambda x, n: (x * base + torch.sqrt(n), n - 1), turns, safe=[0.0, 1.0])
    ]


def chain() -> list[Step]:
    return [step("x", lambda x: x.sum() > 0, lambda x: (x - 1,), lambda x: (x * -2 + 0.1,), safe=[0.0])] * 7


def infinite() -> list[Step]:
    """Return a step whose state is replaced where it is not finite: then the other branch may not see it."""
    predicate = lambda x, y: y.sum() > 0  # noqa: E731
    return [
        step("xy", predicate, lambda x, y: (y * 2 + torch.zeros_like(x), y), lambda x, y: (x * 3, y), safe=[1.0, 1.0])
    ]


def otherwise(base: float) -> list[Step]:
    return [step("x", lambda x: x.amin() <= 0, lambda x: (x + base,), lambda x: (torch.sqrt(x),), safe=[1.0])]


def _at(x: Any, n: Any, first: int) -> Any:
    """Multiply by the element whose number is n, counted from `first`; any other n is an error."""
    return x * torch.index_select(x, 0, n.long() - first)


def indexed(first: int, unit: float = 1.0) -> list[Step]:
    """Return a step on x and n in which x is read at n / unit - first, or two less.

    Only the second of the safe numbers is such an n for both branches.
    """
    return [
        step(
            "xn",
            lambda x, n: n.sum() < (first + 1.5) * unit,
            lambda x, n: (_at(x, n / unit, first), n),
            lambda x, n: (_at(x, n / unit, first + 2), n),
            safe=[-7.0, (first + 2) * unit],
        )
    ]


def indexed_turns() -> list[Step]:
    return [step("xn", lambda x, n: n.sum() > 3.5, lambda x, n: (_at(x, n, 4), n - 1), 3, safe=[-7.0, 5.0])]


def questioned() -> list[Step]:
    """Return a step whose predicate has many more calls than its branches."""

    def predicate(x, y, z):
        for _ in range(20):
            x = torch.sin(x)
        return x.sum() > 0

    return [step("xyz", predicate, lambda x, y, z: (y, z, x), lambda x, y, z: (z, x, y), safe=[0.0, 0.0, 0.0])]


def _waves(x: Any) -> Any:
    for _ in range(40):
        x = torch.sin(x)
    return x


def branched() -> list[Step]:
    """Return a step with one branch of many more calls than the rest."""
    yes = lambda x, y, z, w: (_waves(x), x, y, z)  # noqa: E731
    return [step("xyzw", positive_first, yes, lambda *state: state, safe=[0.0] * 4)]


def turned() -> list[Step]:
    """Return a loop whose turn has many more calls than its predicate."""
    return [step("xyzw", positive_first, lambda x, y, z, w: (_waves(x) - 1, x, y, z), 2, safe=[0.0] * 4)]


def positive_first(x: Any, *others: Any) -> Any:
    return x.sum() > 0


def gathered() -> list[Step]:
    """Return steps whose calls have operands in lists and keyword arguments."""
    return [
        step(
            "xy",
            lambda x, y: torch.cat([x, y]).sum(dim=0) > 3,
            lambda x, y: (torch.stack([x, y]).sum(dim=0), torch.cumsum(y, dim=0)),
            lambda x, y: (x - x.mean(dim=0, keepdim=True), torch.clamp(y, min=0.25)),
            safe=[0.0, 0.0],
        )
    ]


def under_keywords() -> list[Step]:
    """Return a step with a tensor of the state under a keyword."""
    return [
        step("xy", positive_first, lambda x, y: (torch.clamp(x, max=y), x), lambda x, y: (y, x - y), safe=[0.0, 0.0])
    ]


def indexed_first(first: int) -> list[Step]:
    """Return the step of `indexed` with the tensors in the other order, and so the safe numbers."""
    return [
        step(
            "nx",
            lambda n, x: n.sum() < first + 1.5,
            lambda n, x: (n, _at(x, n, first)),
            lambda n, x: (n, _at(x, n, first + 2)),
            safe=[first + 2.0, -7.0],
        )
    ]


def unread() -> list[Step]:
    """Return a step that replaces a tensor without a look at it."""
    return [step("xy", positive_first, lambda x, y: (x * 2, x), lambda x, y: (-x, x + 1), safe=[0.0, 0.0])]


def inverted() -> list[Step]:
    """Return a loop whose first turn may take infinity to 0."""
    return [step("x", lambda x: x.amax() > 1, lambda x: (1 / x,), 1, safe=[1.0])]


def divided() -> list[Step]:
    """Return a step whose first branch may divide by 0 although it is taken."""
    return [step("x", positive_first, lambda x: (1 / x,), lambda x: (-x,), safe=[1.0])]


def mixed() -> list[Step]:
    loop = step("xn", lambda x, n: x.abs().sum() > 1, lambda x, n: (x / 2, n + 1), 4, safe=[1.0, 1.0])
    return [
        loop,
        step("xn", lambda x, n: n.sum() > 0.5, lambda x, n: (x / n, n), lambda x, n: (x, n - x), safe=[1.0, 1.0]),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _state(steps: Any) -> tuple[fx.Graph, list]:
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    first = steps[0].predicate.graph.find_nodes(op="placeholder")
    return graph, [fx.Proxy(graph.placeholder(node.target), tracer) for node in first]


def _done(graph: fx.Graph, state: Any) -> fx.GraphModule:
    graph.output(tuple(x.node for x in state))
    return fx.GraphModule({}, graph)


def _where(p, yes, no):
    return [torch.where(p, a, b) for a, b in zip(yes, no, strict=True)]


@right("calls the graphs with proxies, with safe values in tensors")
def by_proxies(steps):
    graph, state = _state(steps)

    def shielded(p, safe):
        return [torch.where(p, x, torch.full_like(x, s)) for x, s in zip(state, safe, strict=True)]

    for node in steps:
        for _ in range(getattr(node, "most", 1)):
            p = node.predicate(*state)
            if isinstance(node, If):
                no = node.no(*shielded(torch.logical_not(p), node.safe))
                state = _where(p, node.yes(*shielded(p, node.safe)), no)
            else:
                turn = node.body(*shielded(p, node.safe))
                state = _where(p, turn, state)
    return _done(graph, state)


@right("a loop goes on only where it went on before")
def by_going_on(steps):
    graph, state = _state(steps)
    for node in steps:
        if isinstance(node, If):
            p = node.predicate(*state)
            a = node.yes(*_where(p, state, node.safe))
            b = node.no(*_where(p, node.safe, state))
            state = _where(p, a, b)
            continue
        going = None
        for _ in range(node.most):
            p = node.predicate(*state)
            going = p if going is None else torch.logical_and(going, p)
            turn = node.body(*(torch.where(going, x, s) for x, s in zip(state, node.safe, strict=True)))
            state = [torch.where(going, *pair) for pair in zip(turn, state, strict=True)]
    return _done(graph, state)


late = edited("did", "computes both branches on the state itself: values may be right, gradients are not")(
    ("inline(step.yes, choose(p, state, step.safe))", "inline(step.yes, state)"),
    ("inline(step.no, choose(p, step.safe, state))", "inline(step.no, state)"),
    ("inline(step.body, choose(p, state, step.safe))", "inline(step.body, state)"),
)
late_no = edited("did", "protects only the branch behind the if, not that behind the else")(
    ("inline(step.no, choose(p, step.safe, state))", "inline(step.no, state)")
)
late_loop = edited("did", "does not protect the turns of a loop that are not taken")(
    ("inline(step.body, choose(p, state, step.safe))", "inline(step.body, state)")
)
SAFE = "{}: a branch that is not taken may fail on it"
ones = edited("same", SAFE.format("takes 1 for every safe number"))(
    ("inline(step.yes, choose(p, state, step.safe))", "inline(step.yes, choose(p, state, [1.0] * len(state)))"),
    ("inline(step.no, choose(p, step.safe, state))", "inline(step.no, choose(p, [1.0] * len(state), state))"),
    ("inline(step.body, choose(p, state, step.safe))", "inline(step.body, choose(p, state, [1.0] * len(state)))"),
)
first_for_all = edited("same", SAFE.format("takes the first safe number for all tensors"))(
    ("inline(step.yes, choose(p, state, step.safe))", "inline(step.yes, choose(p, state, step.safe[:1] * len(state)))")
)
zeros_in_loops = edited("same", SAFE.format("takes 0 for every safe number of a loop"))(
    ("inline(step.body, choose(p, state, step.safe))", "inline(step.body, choose(p, state, [0.0] * len(state)))")
)
predicate_for_each = edited("cost", "computes the predicate of an if once more for each tensor")(
    (
        "state = choose(p, yes, no)",
        "state = [choose(inline(step.predicate, state), [a], [b])[0] for a, b in zip(yes, no, strict=True)]",
    )
)
branch_for_each = edited("cost", "computes a branch of an if once for each tensor")(
    (
        "yes = inline(step.yes, choose(p, state, step.safe))",
        "yes = [inline(step.yes, choose(p, state, step.safe))[at] for at in range(len(state))]",
    )
)
turn_for_each = edited("cost", "computes a turn of a loop once for each tensor")(
    (
        "turn = inline(step.body, choose(p, state, step.safe))",
        "turn = [inline(step.body, choose(p, state, step.safe))[at] for at in range(len(state))]",
    )
)
size_of_safe = edited("same", SAFE.format("takes a safe number without its sign"))(
    ("inline(step.yes, choose(p, state, step.safe))", "inline(step.yes, choose(p, state, map(abs, step.safe)))"),
    ("inline(step.no, choose(p, step.safe, state))", "inline(step.no, choose(p, map(abs, step.safe), state))"),
    ("inline(step.body, choose(p, state, step.safe))", "inline(step.body, choose(p, state, map(abs, step.safe)))"),
)
whole_safe = edited("same", SAFE.format("cuts a safe number to a whole one"))(
    ("inline(step.yes, choose(p, state, step.safe))", "inline(step.yes, choose(p, state, map(int, step.safe)))"),
    ("inline(step.no, choose(p, step.safe, state))", "inline(step.no, choose(p, map(int, step.safe), state))"),
    ("inline(step.body, choose(p, state, step.safe))", "inline(step.body, choose(p, state, map(int, step.safe)))"),
)
COPY = "return graph.graph_copy(part.graph, dict(zip(places, values, strict=True)))"
ONE_BY_ONE = """
env = dict(zip(places, values, strict=True))
for node in part.graph.nodes:
    args = {args}
    if node.op == "output":
        return tuple(args[0]) if isinstance(args[0], list | tuple) else args[0]
    if node.op != "placeholder":
        env[node] = graph.create_node(node.op, node.target, args, {kwargs})
"""
no_keywords = edited("same", "forgets the keyword arguments of a call when it copies the graph")(
    (COPY, ONE_BY_ONE.format(args="fx.node.map_arg(node.args, env.__getitem__)", kwargs="{}"))
)
outer_operands = edited("same", "does not look for operands in lists when it copies the graph")(
    (
        COPY,
        ONE_BY_ONE.format(
            args="tuple(env.get(x, x) if isinstance(x, fx.Node) else tuple(env[y] for y in x)"
            ' if node.op == "output" else x for x in node.args)',
            kwargs="node.kwargs",
        ),
    )
)
keyword_numbers = edited("same", "keeps only numbers under keywords when it copies the graph")(
    (
        COPY,
        ONE_BY_ONE.format(
            args="fx.node.map_arg(node.args, env.__getitem__)",
            kwargs="{k: x for k, x in node.kwargs.items() if not isinstance(x, fx.Node)}",
        ),
    )
)
last_for_all = edited("same", SAFE.format("takes the last safe number for all tensors"))(
    ("inline(step.yes, choose(p, state, step.safe))", "inline(step.yes, choose(p, state, step.safe[-1:] * len(state)))")
)
first_step_safe = edited("same", SAFE.format("takes the safe numbers of the first step for all"))(
    ("inline(step.yes, choose(p, state, step.safe))", "inline(step.yes, choose(p, state, steps[0].safe))"),
    ("inline(step.no, choose(p, step.safe, state))", "inline(step.no, choose(p, steps[0].safe, state))"),
    ("inline(step.body, choose(p, state, step.safe))", "inline(step.body, choose(p, state, steps[0].safe))"),
)
fewer_inputs = edited("valid", "takes out of the graph what is not used, inputs, too")(
    (
        "return fx.GraphModule({}, graph)",
        "for node in reversed(graph.nodes):\n"
        "    if not node.users and node.op != 'output':\n"
        "        graph.erase_node(node)\n"
        "return fx.GraphModule({}, graph)",
    )
)
few_turns = edited("same", "unrolls no loop more than ten times")(("range(step.most)", "range(min(step.most, 10))"))
finite_only = edited("same", "takes the other value where that of the branch that is taken is not finite")(
    (
        "state = choose(p, yes, no)",
        "finite = [graph.call_function(torch.isfinite, (a,)) for a in yes]\n"
        "both = [graph.call_function(torch.logical_and, (p, f)) for f in finite]\n"
        "state = [choose(q, [a], [b])[0] for q, a, b in zip(both, yes, no, strict=True)]",
    )
)
a_turn_less = edited("same", "lets a loop turn once less")(("range(step.most)", "range(step.most - 1)"))
exchanged = edited("same", "exchanges the branches")(("state = choose(p, yes, no)", "state = choose(p, no, yes)"))
a_list = edited("valid", "returns the last state as a list")(("tuple(state)", "state"))
returns_nothing = edited("valid", "forgets to return the graph")(("return fx.GraphModule({}, graph)", "pass"))


@wrong("same", "asks the predicate of a loop once, before the first turn")
def asked_once(steps):
    graph, state = _state(steps)
    for node in steps:
        p = node.predicate(*state)
        for _ in range(getattr(node, "most", 1)):
            a = (node.yes if isinstance(node, If) else node.body)(*_where(p, state, node.safe))
            b = node.no(*_where(p, node.safe, state)) if isinstance(node, If) else state
            state = _where(p, a, b)
    return _done(graph, state)


def _product(p, yes, no):
    p = p.double()
    return [a * p + b * (1 - p) for a, b in zip(yes, no, strict=True)]


def _masked(steps, choose, choose_turn):
    """Run every branch and turn on safe inputs where it does not count. `choose_turn`: chooses behind a turn."""
    graph, state = _state(steps)
    for node in steps:
        for _ in range(getattr(node, "most", 1)):
            p = node.predicate(*state)
            if isinstance(node, If):
                state = choose(p, node.yes(*choose(p, state, node.safe)), node.no(*choose(p, node.safe, state)))
            else:
                state = choose_turn(p, node.body(*choose(p, state, node.safe)), state)
    return _done(graph, state)


@wrong("same", "multiplies by the predicate: 0 times inf is NaN")
def by_masks(steps):
    return _masked(steps, _product, _product)


@wrong("same", "multiplies by the predicate behind the turns of a loop: 0 times inf is NaN")
def masked_turns(steps):
    return _masked(steps, _where, _product)


@wrong("valid", "puts the control flow into a function of Python, and calls that")
def hidden_flow(steps):
    graph, state = _state(steps)

    def run(*state):
        for node in steps:
            for _ in range(getattr(node, "most", 1)):
                if node.predicate(*state):
                    state = (node.yes if isinstance(node, If) else node.body)(*state)
                elif isinstance(node, If):
                    state = node.no(*state)
        return state

    call = graph.call_function(run, tuple(x.node for x in state))
    graph.output(tuple(graph.call_function(operator.getitem, (call, at)) for at in range(len(state))))
    return fx.GraphModule({}, graph)


@wrong("cost", "follows every path to its end, and chooses there")
def by_paths(steps):
    graph, first = _state(steps)

    def rest(at, state, turn=0):
        if at == len(steps):
            return state
        node = steps[at]
        if not isinstance(node, If) and turn == node.most:
            return rest(at + 1, state)
        p = node.predicate(*state)
        branch = _where(p, state, node.safe)
        if isinstance(node, If):
            return _where(p, rest(at + 1, node.yes(*branch)), rest(at + 1, node.no(*_where(p, node.safe, state))))
        state = _where(p, node.body(*branch), state)
        return rest(at, state, turn + 1)

    return _done(graph, rest(0, first))
