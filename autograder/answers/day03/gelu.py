"""Hidden cases and answers of day03.gelu."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from autograder.answers.day03._shared import Build, zoo
from autograder.authoring.answers import edited, reference, right, wrong
from passlab import random_graph
from passlab.exercises.day03.gelu import gelus, made, none_made
from passlab.fx.cases import case, graph, nodes
from passlab.fx.effects import written
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    slope, cubic, root = math.sqrt(2 / math.pi), 0.044715, math.sqrt(2)
    order = "Products and sums may be written in any order and grouped in any way."

    def shuffled(parts: list, join: Callable) -> Any:
        """The parts joined two at a time, in an order drawn from the seed."""
        parts = list(parts)
        while len(parts) > 1:
            a, b = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
            parts.append(join(a, b))
        return parts[0]

    def product(*parts: Any) -> Any:
        def join(a: Any, b: Any) -> Any:
            if isinstance(a, fx.Proxy) and rng.random() < 0.4:
                return rng.choice((lambda: torch.mul(a, b), lambda: a.mul(b)))()
            return a * b

        return shuffled(list(parts), join)

    def total(a: Any, b: Any) -> Any:
        return rng.choice((lambda: a + b, lambda: b + a, lambda: torch.add(b, a)))()

    def drawn(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
        def erf(z: fx.Proxy) -> fx.Proxy:
            inner = rng.choice((lambda: z / root, lambda: product(z, 0.70710678), lambda: z.div(1.4142135623730951)))()
            gate = total(rng.choice((torch.erf, torch.special.erf, lambda t: t.erf()))(inner), rng.choice((1, 1.0)))
            return rng.choice(
                (lambda: product(0.5, z, gate), lambda: product(z, gate) / 2, lambda: product(z / 2, gate))
            )()

        def tanh(z: fx.Proxy) -> fx.Proxy:
            cubes = (lambda: z**3, lambda: torch.pow(z, 3.0), lambda: product(z, z, z), lambda: z.pow(3))
            inner = rng.choice(
                (
                    lambda: product(slope, total(z, product(cubic, rng.choice(cubes)()))),
                    lambda: product(z, 0.7978845608, total(product(cubic, z, z), 1.0)),
                )
            )()
            return product(0.5, z, total(torch.tanh(inner), 1))

        h = torch.sigmoid(x) * 3
        return erf(x) * tanh(y) + erf(h) + tanh(h - 1)

    def drawn_build(state: Any) -> Build:
        trace_it = graph(drawn, (2, 3), (2, 3))

        def build() -> fx.GraphModule:
            rng.setstate(state)
            return trace_it()

        return build

    def states(number: int) -> list:
        found = []
        for _ in range(number):
            rng.random()
            found.append(random.Random(rng.randrange(10**9)).getstate())
        return found

    def shared(m: Any, x: fx.Proxy) -> tuple:
        gate = 1 + torch.erf(x / root)
        return 0.5 * x * gate, gate * 3, gate * x / 2

    def traps(m: Any, x: fx.Proxy, n: fx.Proxy) -> tuple:
        return (
            0.5 * x * torch.add(1, torch.erf(x / root), alpha=2),
            torch.div(x, 2, rounding_mode="floor") * (1 + torch.erf(x / root)),
            0.5 * x * (1 + torch.erf(x / root) * x),
            0.5 * x * (1 + torch.tanh(x / root)),
            0.5 * x * (1 + torch.erf(slope * (x + cubic * x**3))),
            0.5 * x * (1 + torch.tanh(slope * (x - cubic * x**3))),
            0.5 * x + (1 + torch.erf(x / root)),
            0.5 * x * (1 + torch.erf(0.707 * x)),
            0.5 * x * (2 + torch.erf(x / root)),
            0.5 * n * (1 + torch.erf(n / root)),
            (1 + torch.erf(x / root)) * 0.5,
        )

    def written(m: Any, x: fx.Proxy) -> tuple:
        gate, half = torch.erf(x / root), 0.5 * x
        first = half * (1 + gate)
        gate.mul_(2)
        half.add_(1)
        return first, half * (1 + gate)

    never = "None of these formulas is GELU: look at every constant, sign, power, option and dtype."
    cases = [
        case(f"drawn, number {i + 1}", drawn_build(state), did=[made(2, 2, order)], cost=[nodes(13, "One node each.")])
        for i, state in enumerate(states(5))
    ]
    answer = reference("day03.gelu")
    for i in range(3):
        which = rng.randrange(10**6)

        def build(which: int = which) -> fx.GraphModule:
            return random_graph(which, 60, only=("gelu", "pointwise"))

        erf, tanh = (len(found) for found in gelus(answer(build())).values())
        cases.append(case(f"generated, number {i + 1}", build, did=[made(erf, tanh, order)]))
    return [
        *cases,
        case("GPT", zoo("gpt"), did=[made(0, 1, "The block's MLP has the tanh form.")]),
        case(
            "half of it is read elsewhere",
            graph(shared, (2, 3)),
            did=[made(2, 0, "What else reads the gate keeps it.")],
        ),
        case(
            "a gate that is written",
            graph(written, (2, 3)),
            spared=[none_made("The program writes into erf(…) and into x / 2: what is read later is another value.")],
        ),
        case("more near-misses", graph(traps, (2, 3), torch.arange(3)), spared=[none_made(never)]),
    ]


# ---------------------------------------------------------------------------------------------------- answers

MUL, ADD, SUB = (operator.mul, torch.mul, "mul"), (operator.add, torch.add, "add"), (operator.sub, torch.sub, "sub")
DIV, NEG, POW = (operator.truediv, torch.div, "div"), (operator.neg, torch.neg, "neg"), (operator.pow, torch.pow, "pow")
ERF, TANH = (torch.erf, torch.special.erf, "erf"), (torch.tanh, F.tanh, "tanh")


class _Matcher:
    def __init__(self, memory):
        self.memory = memory

    def is_(self, node, op):
        return isinstance(node, fx.Node) and node.target in op and node not in self.memory and not node.kwargs

    def factors(self, node, stop):
        """Return (number, [other factors]) of a product, as flat as it gets; nodes in `stop` are taken whole."""
        if not isinstance(node, fx.Node):
            return node, []
        if node in stop:
            return 1, [node]
        if self.is_(node, NEG):
            number, rest = self.factors(node.args[0], stop)
            return -number, rest
        if self.is_(node, MUL):
            (a, p), (b, q) = (self.factors(arg, stop) for arg in node.args)
            return a * b, p + q
        if self.is_(node, DIV) and not isinstance(node.args[1], fx.Node):
            number, rest = self.factors(node.args[0], stop)
            return number / node.args[1], rest
        if self.is_(node, POW) and node.args[1] in (1, 2, 3) and node.args[0] in stop:
            return 1, [node.args[0]] * int(node.args[1])
        return 1, [node]

    def terms(self, node):
        """Return the operands of a sum, both ways round."""
        return (node.args, node.args[::-1]) if self.is_(node, ADD) else ()

    def cubic(self, inner, x):
        """inner = √(2/π) (x + 0.044715 x³), as a product with that sum, or with x (1 + 0.044715 x²)."""
        number, rest = self.factors(inner, {x})
        if not _near(number, math.sqrt(2 / math.pi)):
            return False
        for total in rest:
            others = list(rest)
            others.remove(total)
            for first, second in self.terms(total):
                c, xs = self.factors(second, {x})
                powers = len(xs) if all(f is x for f in xs) else 0
                if not _near(c, 0.044715):
                    continue
                if first is x and not others and powers == 3:
                    return True
                if not isinstance(first, fx.Node) and first == 1 and others == [x] and powers == 2:
                    return True
        return False

    def linear(self, inner, x):
        number, rest = self.factors(inner, {x})
        return rest == [x] and _near(number, math.sqrt(0.5))

    def find(self, top):
        """Return (x, approximate) if `top` is GELU of x, else None."""
        if not (self.is_(top, MUL) or self.is_(top, DIV)):
            return None
        _, shallow = self.factors(top, set())
        for total in shallow:
            for one, gate in self.terms(total):
                form = "none" if self.is_(gate, ERF) else "tanh" if self.is_(gate, TANH) else None
                if form is None or isinstance(one, fx.Node) or one != 1:
                    continue
                for x in self.below(gate.args[0]):
                    fits = self.linear(gate.args[0], x) if form == "none" else self.cubic(gate.args[0], x)
                    number, rest = self.factors(top, {x, total})
                    if fits and _near(number, 0.5) and sorted(map(id, rest)) == sorted((id(x), id(total))):
                        return x, form
        return None

    def below(self, node):
        found, todo = {}, [node]
        while todo and len(found) < 24:
            at = todo.pop(0)
            found[at] = None
            todo += at.all_input_nodes if any(self.is_(at, op) for op in (MUL, ADD, DIV, POW, NEG)) else []
        return list(found)


def _near(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


def _floating(x):
    meta = x.meta.get("tensor_meta")
    return hasattr(meta, "dtype") and meta.dtype.is_floating_point


def _match(gm, *dropped):
    matcher = _Matcher(written(gm.graph))
    for node in list(gm.graph.nodes):
        found = matcher.find(node) if node.op.startswith("call") else None
        if found is None or found[0] in matcher.memory or not _floating(found[0]):
            continue
        x, approximate = found
        with gm.graph.inserting_before(node):
            form = "none" if "tanh form" in dropped else approximate
            new = gm.graph.call_function(F.gelu, (x,), {"approximate": form})
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
    gm.recompile()
    return gm


@right("flattens products into a number and a list of factors")
def flatten(gm):
    return _match(gm)


@right("evaluates the formula at a few points, and compares with what GELU gives there")
def by_probing(gm):
    points = [-3.0, -1.25, -0.5, 0.75, 1.5, 2.75]
    known, memory = {*MUL, *ADD, *SUB, *DIV, *NEG, *POW, *ERF, *TANH}, written(gm.graph)

    def value(node, x, point, depth=10):
        if not isinstance(node, fx.Node):
            return node if isinstance(node, int | float) else None
        if node in memory:
            return None
        if node is x:
            return point
        if node.target not in known or node.kwargs or not depth:
            return None
        args = [value(arg, x, point, depth - 1) for arg in node.args]
        if None in args:
            return None
        a, *b = (torch.as_tensor(arg, dtype=torch.float64) for arg in args)
        return (getattr(a, node.target) if isinstance(node.target, str) else lambda *r: node.target(a, *r))(*b)

    def is_gelu(node, x, form):
        for point in points:
            seen = value(node, x, point)
            wanted = F.gelu(torch.tensor(point, dtype=torch.float64), approximate=form)
            if seen is None or abs(float(seen) - float(wanted)) > 3e-7:
                return False
        return True

    def near(node, step, depth):
        found, layer = {}, [node]
        for _ in range(depth):
            layer = [n for at in layer for n in step(at)]
            found |= dict.fromkeys(layer)
        return list(found)

    for gate in list(gm.graph.nodes):
        form = "none" if gate.target in ERF else "tanh" if gate.target in TANH else None
        if form is None:
            continue
        tops = near(gate, lambda n: [u for u in n.users if u.target in known], 5)
        below = near(gate, lambda n, gate=gate: n.all_input_nodes if n is gate or n.target in known else [], 6)
        below = [x for x in below if _floating(x)]
        for top in [n for n in tops if n.target in {*MUL, *DIV}]:
            x = next((x for x in below if is_gelu(top, x, form)), None)
            if x is not None:
                with gm.graph.inserting_before(top):
                    new = gm.graph.call_function(F.gelu, (x,), {"approximate": form})
                new.meta = dict(top.meta)
                top.replace_all_uses_with(new)
                gm.graph.erase_node(top)
    return gm


@wrong("did", "GELU is GELU: the tanh form becomes plain gelu(x)")
def plain_gelu(gm):
    return _match(gm, "tanh form")


MEASURE = "math.isclose(p[powers], q[powers], rel_tol=1e-6)"
FORMULA = "same(polynomial(y, x, gate, memory), WHOLE)"
INNER = "if same(polynomial(gate.args[0], x, None, memory), inner)"

any_constants = edited(
    "spared", "looks at the shape of the formula and not at its constants", (MEASURE, "p[powers] != 1")
)
two_digits = edited("spared", "takes constants within one per cent: 0.0447, 0.707", ("rel_tol=1e-6", "rel_tol=1e-2"))
any_x = edited(
    "spared",
    "does not ask whether the x outside is the x inside",
    (FORMULA, "any(same(polynomial(y, z, gate, memory), WHOLE) for z in gm.graph.nodes)"),
)
ignores_options = edited(
    "spared",
    "takes torch.add(1, g, alpha=2) for 1 + g, and a division that rounds down for one that does not",
    ("n.kwargs or not depth", 'n.kwargs.keys() - {"alpha", "rounding_mode"} or not depth'),
)
ignores_writes = edited(
    "spared", "reads the formula as if nothing were written in between", ("written(gm.graph)", "set()")
)
takes_integers = edited("spared", "integers have a GELU, too", (" and floating(x)", ""))
one_order = edited(
    "did",
    "1 + g and x + c·x³, and never g + 1 or c·x³ + x",
    ('"add"), plus', '"add"), lambda p, q: None if {(0, 1), (2, 0), (3, 0)} & p.keys() else plus(p, q)'),
)
no_methods = edited(
    "did",
    "functions and operators only: misses h.mul(0.5) and x.erf()",
    ("if gate.target", 'if gate.op == "call_method" or gate.target'),
    ("if n.target", 'if n.op == "call_method" or n.target'),
)
textbook = edited(
    "did",
    "knows the formula in one spelling, the textbook's",
    (FORMULA, f'{FORMULA} and [getattr(arg, "args", 0) for arg in y.args] == [(0.5, x), (1, gate)]'),
)
down_to_a_leaf = edited(
    "did",
    "takes the first node that is not arithmetic for x: misses GELU of a product",
    (INNER, f"if x.target not in ARITHMETIC and {INNER[3:]}"),
)
eager = edited(
    "spared",
    "whatever multiplies 1 + erf(…) is GELU",
    (INNER, "if x.target not in ARITHMETIC"),
    (FORMULA, "ARITHMETIC[y.target] is times and any(gate in a.all_input_nodes for a in y.all_input_nodes)"),
)
