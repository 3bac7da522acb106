"""Hidden cases and answers of day03.gelu."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.answers.day03._shared import Build, zoo
from autograder.authoring.answers import edited, plain, reference, right, something_to_do
from passlab import random_graph
from passlab.exercises.day03.gelu import expect_gelus, expect_no_gelu, gelus
from passlab.fx.cases import call, case, graph, nodes
from passlab.fx.effects import written
from passlab.judge import Case, core, drawn

# ---------------------------------------------------------------------------------------------------- hidden cases


SLOPE, CUBIC, ROOT = math.sqrt(2 / math.pi), 0.044715, math.sqrt(2)
ORDER = "Products and sums may be written in any order and grouped in any way."
NEVER = "None of these formulas is GELU: look at every constant, sign, power, option and dtype."
ANSWER = reference("day03.gelu")


@drawn
def plain_orders(rng: random.Random) -> Iterable[Case]:
    flips = rng.choice(list(itertools.product((True, False), repeat=3))[:-1])

    def ordered(flip: bool, a: Any, b: Any, op: Callable) -> Any:
        return op(b, a) if flip else op(a, b)

    def forms(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
        results = []
        for z, (first, second, third) in ((x * y, flips), (x + 1, flips[::-1])):
            gate = ordered(first, 1.0, torch.erf(z / ROOT), operator.add)
            results.append(ordered(second, ordered(third, 0.5, z, operator.mul), gate, operator.mul))
        return results[0] + results[1]

    reason = "The operands of + and * may stand either way round."
    yield core(case("plain: drawn orders", graph(forms, (2, 3), (2, 3)), did=[expect_gelus(2, 0, reason)]))


@core
@case("plain: another x", graph(..., (2, 3), (2, 3)), spared=[expect_no_gelu("Both formulas have x and y in them.")])
def plain_other(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return (0.5 * x) * (1 + torch.erf(y / ROOT)), (x * 0.5) * (torch.erf((x + y) / ROOT) + 1)


@core
@case(
    "plain: more near-misses",
    graph(..., (2, 3)),
    spared=[expect_no_gelu("None of these formulas is GELU: look at every constant, and every operation.")],
)
def plain_near(m: Any, x: fx.Proxy) -> tuple:
    return (
        (x * 0.25) * (1 + torch.erf(x / ROOT)),
        (0.5 * x) * (1 - torch.erf(x / ROOT)),
        (0.5 * x) * (1 * torch.erf(x / ROOT)),
        (0.5 * x) * (1 + torch.erf(x * ROOT)),
        (0.5 * x) * (1 + torch.erf(ROOT / x)),
        (0.5 + x) * (1 + torch.erf(x / ROOT)),
    )


class Spelling:
    """Both forms of GELU, with products and sums in an order and with calls that are drawn."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)

    def one_of(self, *choices: Callable) -> Any:
        return self.rng.choice(choices)()

    def product(self, *parts: Any) -> Any:
        """Return the product of the parts, multiplied two at a time."""

        def join(a: Any, b: Any) -> Any:
            if isinstance(a, fx.Proxy) and self.rng.random() < 0.4:
                return self.one_of(lambda: torch.mul(a, b), lambda: a.mul(b))
            return a * b

        rest = list(parts)
        while len(rest) > 1:
            a, b = (rest.pop(self.rng.randrange(len(rest))) for _ in range(2))
            rest.append(join(a, b))
        return rest[0]

    def total(self, a: Any, b: Any) -> Any:
        return self.one_of(lambda: a + b, lambda: b + a, lambda: torch.add(b, a))

    def erf(self, z: fx.Proxy) -> fx.Proxy:
        inner = self.one_of(lambda: z / ROOT, lambda: self.product(z, 0.70710678), lambda: z.div(1.4142135623730951))
        erf = self.rng.choice((torch.erf, torch.special.erf, lambda t: t.erf()))
        gate = self.total(erf(inner), self.rng.choice((1, 1.0)))
        return self.one_of(
            lambda: self.product(0.5, z, gate), lambda: self.product(z, gate) / 2, lambda: self.product(z / 2, gate)
        )

    def tanh(self, z: fx.Proxy) -> fx.Proxy:
        def cube() -> Any:
            return self.one_of(lambda: z**3, lambda: torch.pow(z, 3.0), lambda: self.product(z, z, z), lambda: z.pow(3))

        inner = self.one_of(
            lambda: self.product(SLOPE, self.total(z, self.product(CUBIC, cube()))),
            lambda: self.product(z, 0.7978845608, self.total(self.product(CUBIC, z, z), 1.0)),
        )
        return self.product(0.5, z, self.total(torch.tanh(inner), 1))


@drawn
def spellings(rng: random.Random) -> Iterable[Case]:
    def spelled(seed: int) -> Build:
        def forms(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
            gelu, h = Spelling(seed), torch.sigmoid(x) * 3
            return gelu.erf(x) * gelu.tanh(y) + gelu.erf(h) + gelu.tanh(h - 1)

        return graph(forms, (2, 3), (2, 3))

    for i in range(5):
        rng.random()
        build = spelled(rng.randrange(10**9))
        yield case(f"drawn, number {i + 1}", build, did=[expect_gelus(2, 2, ORDER)], cost=[nodes(13, "One node each.")])


@drawn
def random_graphs(rng: random.Random) -> Iterable[Case]:
    def draw(title: str) -> Case:
        seed = rng.randrange(10**6)

        def build() -> fx.GraphModule:
            return random_graph(seed, 60, only=("gelu", "pointwise"))

        erf, tanh = (len(nodes) for nodes in gelus(ANSWER(build())).values())
        return case(title, build, did=[expect_gelus(erf, tanh, ORDER)])

    for i in range(3):
        yield something_to_do("day03.gelu", partial(draw, f"generated, number {i + 1}"))


gpt = case("GPT", zoo("gpt"), did=[expect_gelus(0, 1, "The block's MLP has the tanh form.")])


@case(
    "half of it is read elsewhere",
    graph(..., (2, 3)),
    did=[expect_gelus(2, 0, "What else reads the gate keeps it.")],
)
def shared(m: Any, x: fx.Proxy) -> tuple:
    gate = 1 + torch.erf(x / ROOT)
    return 0.5 * x * gate, gate * 3, gate * x / 2, 0.5 * x * (1 + torch.erf(input=x / ROOT))


@case(
    "a gate that is written",
    graph(..., (2, 3)),
    spared=[expect_no_gelu("The program writes into erf(…) and into x / 2: what is read later is another value.")],
)
def written_program(m: Any, x: fx.Proxy) -> tuple:
    gate, half = torch.erf(x / ROOT), 0.5 * x
    first = half * (1 + gate)
    gate.mul_(2)
    half.add_(1)
    return first, half * (1 + gate)


@case("minus signs", graph(..., (2, 3), (2, 3)), did=[expect_gelus(2, 2, "A minus is a factor of -1.")])
def signs(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    gate = torch.erf(-(-x / ROOT)) - (-1)
    return (
        gate * x - 0.5 * x * gate,
        -((-y) * (((-y).neg() * SLOPE - (-SLOPE * CUBIC) * y**3).tanh() + 1) / 2),
        0.5 * y - torch.sub(0, y).mul(0.5) * torch.erf(torch.div(y, ROOT)),
        torch.neg(x * -0.5) * (1 + call(F.tanh, SLOPE * x.sub(-CUBIC * x * x * x))),
    )


@case("times one", graph(..., (2, 3), (2, 3)), did=[expect_gelus(1, 1, "1.0 * x, 2 * x / 2 and x ** 1 are x.")])
def times_one(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    erf, tanh = torch.special.erf(1.0 * x / ROOT), torch.tanh(SLOPE * (y * 2 / 2 + CUBIC * (y**1) ** 3))
    return 0.5 * x * (1 + erf), y.pow(1) * 0.5 * (tanh + 1)


@case(
    "constants that are nearly right",
    graph(..., (2, 3)),
    spared=[expect_no_gelu("Each formula has a constant that is off in its fifth digit or before.")],
)
def nearly(m: Any, x: fx.Proxy) -> tuple:
    return (
        0.5 * x * (1 + torch.erf(x * 0.70711)),
        0.5 * x * (1 + torch.erf(x / 1.41421)),
        0.5 * x * (1 + torch.tanh(0.79788 * (x + CUBIC * x**3))),
        0.5 * x * (1 + torch.tanh(SLOPE * (x + 0.044717 * x**3))),
        0.50001 * x * (1 + torch.erf(x / ROOT)),
        0.5 * x * (1.00001 + torch.erf(x / ROOT)),
    )


@case("seven digits", graph(..., (2, 3), (2, 3)), did=[expect_gelus(2, 1, "Seven significant digits of it are right.")])
def seven_digits(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return (
        0.5 * x * (1 + torch.erf(x * 0.7071068)),
        0.5 * y * (1 + torch.erf(y / 1.414214)),
        0.5 * x * (1 + torch.tanh(0.7978846 * (x + CUBIC * x**3))),
    )


@case(
    "off in the sixth digit",
    graph(..., (2, 3)),
    spared=[expect_no_gelu("Each formula has a constant that is off in its sixth digit.")],
)
def six_digits(m: Any, x: fx.Proxy) -> tuple:
    return (
        0.5 * x * (1 + torch.erf(x * 0.707105)),
        0.5 * x * (1 + torch.tanh(0.797883 * (x + CUBIC * x**3))),
        0.500001 * x * (1 + torch.erf(x / ROOT)),
    )


@case(
    "two formulas with one erf",
    graph(..., (2, 3)),
    did=[expect_gelus(2, 0, "One erf may belong to several formulas.")],
)
def one_erf(m: Any, x: fx.Proxy) -> tuple:
    erf = torch.erf(x / ROOT)
    return 0.5 * x * (1 + erf), x * torch.relu(x), x / 2 * erf + x * 0.5


@case(
    "modules with misleading names",
    graph(..., (2, 3), erf=nn.Tanh, tanh=nn.Sigmoid, mul=nn.ReLU),
    spared=[expect_no_gelu("The module called erf is a tanh, that called tanh a sigmoid, that called mul a ReLU.")],
)
def modules(m: Any, x: fx.Proxy) -> tuple:
    product = 0.5 * m.mul(x) * (1 + torch.erf(x / ROOT))
    return 0.5 * x * (1 + m.erf(x / ROOT)), 0.5 * x * (1 + m.tanh(SLOPE * (x + CUBIC * x**3))), product


@case(
    "inputs with misleading names",
    graph(..., (2, 3), (2, 3)),
    did=[expect_gelus(1, 0, "An input called mul is no product, and one called tanh is no tanh.")],
)
def inputs(m: Any, mul: fx.Proxy, tanh: fx.Proxy) -> tuple:
    return 0.5 * mul * (1 + torch.erf(mul / ROOT)), 0.5 * mul * (1 + tanh)


@case(
    "quotients and powers of x",
    graph(..., (2, 3), (2, 3)),
    spared=[expect_no_gelu("None of these formulas is GELU.")],
)
def no_polynomials(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return (
        0.5 * x * (1 + torch.erf(x / y)),
        0.5 * x * (1 + torch.erf(x / 0.0)),
        0.5 * x * (1 + torch.erf(x**y)),
        0.5 * x * (1 + torch.erf((x * x) ** 3)),
        0.5 * x * (1 + torch.erf(x**0.5 / ROOT)),
        0.5 * x * (1 + torch.tanh(SLOPE * (x + CUBIC * x**-3))),
        0.5 * x * (1 + torch.tanh(SLOPE * (x + CUBIC * 3**x))),
        0.5 / x * (1 + torch.erf(x / ROOT)),
        0.5 * x - (1 + torch.erf(x / ROOT)),
    )


@case("more near-misses", graph(..., (2, 3), torch.arange(3)), spared=[expect_no_gelu(NEVER)])
def traps(m: Any, x: fx.Proxy, n: fx.Proxy) -> tuple:
    return (
        0.5 * x * torch.add(1, torch.erf(x / ROOT), alpha=2),
        torch.div(x, 2, rounding_mode="floor") * (1 + torch.erf(x / ROOT)),
        0.5 * x * (1 + torch.erf(x / ROOT) * x),
        0.5 * x * (1 + torch.tanh(x / ROOT)),
        0.5 * x * (1 + torch.erf(SLOPE * (x + CUBIC * x**3))),
        0.5 * x * (1 + torch.tanh(SLOPE * (x - CUBIC * x**3))),
        0.5 * x + (1 + torch.erf(x / ROOT)),
        0.5 * x * (1 + torch.erf(0.707 * x)),
        0.5 * x * (2 + torch.erf(x / ROOT)),
        0.5 * n * (1 + torch.erf(n / ROOT)),
        (1 + torch.erf(x / ROOT)) * 0.5,
    )


@case("a formula of a negated value", graph(..., (2, 3)), did=[expect_gelus(1, 1, "x may be a negated value, too.")])
def negated(m: Any, x: fx.Proxy) -> tuple:
    h = -x
    return 0.5 * h * (1 + torch.erf(h / ROOT)), 0.5 * h * (1 + torch.tanh(SLOPE * (h + CUBIC * h**3)))


@case("a minus without another one", graph(..., (2, 3)), spared=[expect_no_gelu(NEVER)])
def lone_minus(m: Any, x: fx.Proxy) -> tuple:
    return (
        0.5 * x * (1 + torch.erf(-x / ROOT)),
        0.5 * x * (1 - torch.erf(x / ROOT)),
        -0.5 * x * (1 + torch.erf(x / ROOT)),
        0.5 * x * (1 + torch.tanh(-SLOPE * (x + CUBIC * x**3))),
    )


# ---------------------------------------------------------------------------------------------------- answers

MUL, ADD, SUB = (operator.mul, torch.mul, "mul"), (operator.add, torch.add, "add"), (operator.sub, torch.sub, "sub")
DIV, NEG, POW = (operator.truediv, torch.div, "div"), (operator.neg, torch.neg, "neg"), (operator.pow, torch.pow, "pow")
ERF, TANH = (torch.erf, torch.special.erf, "erf"), (torch.tanh, F.tanh, "tanh")


class _Points:
    """Evaluate formulas at points. `gate`: a node that is a second unknown, or None to compute erf and tanh, too."""

    def __init__(self, gm):
        self.memory = written(gm.graph)

    def value(self, node, known, depth=10):
        """Return the value of `node` from those of the nodes in `known`, or None."""
        if not isinstance(node, fx.Node):
            return torch.tensor(node, dtype=torch.float64) if isinstance(node, int | float) else None
        if node in self.memory or node in known or not _is_known(node) or node.kwargs or not depth:
            return None if node in self.memory else known.get(node)
        a, *rest = (self.value(arg, known, depth - 1) for arg in node.args)
        if a is None or None in rest:
            return None
        return getattr(a, node.target)(*rest) if isinstance(node.target, str) else node.target(a, *rest)


KNOWN = {*MUL, *ADD, *SUB, *DIV, *NEG, *POW, *ERF, *TANH}


def _is_known(node):
    return node.op in ("call_function", "call_method") and node.target in KNOWN


POINTS = torch.tensor([-3.0, -1.25, -0.5, 0.75, 1.5, 2.75], dtype=torch.float64)


def _floating(x):
    meta = x.meta.get("tensor_meta")
    return hasattr(meta, "dtype") and meta.dtype.is_floating_point


def _near(node, step, depth):
    nodes, layer = {}, [node]
    for _ in range(depth):
        layer = [n for at in layer for n in step(at)]
        nodes |= dict.fromkeys(layer)
    return list(nodes)


def _match(gm, is_gelu):
    """Replace y by GELU of x wherever `is_gelu(y, gate, x, form)`."""
    for gate in list(gm.graph.nodes):
        form = "none" if gate.target in ERF else "tanh" if gate.target in TANH else None
        if form is None or not _is_known(gate) or gate.kwargs:
            continue
        tops = _near(gate, lambda n: [u for u in n.users if _is_known(u)], 5)
        below = _near(gate, lambda n, gate=gate: n.all_input_nodes if n is gate or _is_known(n) else [], 7)
        for top in tops:
            x = next((x for x in below if _floating(x) and is_gelu(top, gate, x, form)), None)
            if x is not None:
                with gm.graph.inserting_before(top):
                    new = gm.graph.call_function(F.gelu, (x,), {"approximate": form})
                new.meta = dict(top.meta)
                top.replace_all_uses_with(new)
                gm.graph.erase_node(top)
    gm.recompile()
    return gm


@right("evaluates the formula at a few points, and compares with what GELU gives there")
def by_probing(gm):
    points = _Points(gm)

    def is_gelu(top, gate, x, form):
        values = points.value(top, {x: POINTS})
        return values is not None and torch.allclose(values, F.gelu(POINTS, approximate=form), rtol=0, atol=3e-7)

    return _match(gm, is_gelu)


@right("takes the gate for a second unknown, and evaluates what is below and above it")
def in_two_halves(gm):
    points, gates = _Points(gm), torch.linspace(-0.7, 0.9, len(POINTS), dtype=torch.float64)

    def close(values, target):
        return values is not None and torch.allclose(values, target, rtol=1e-6, atol=0)

    def is_gelu(top, gate, x, form):
        cube = 0.044715 * POINTS**3 if form == "tanh" else 0
        inner = (POINTS + cube) * math.sqrt(2 / math.pi if form == "tanh" else 1 / 2)
        whole = 0.5 * POINTS * (1 + gates)
        below, above = points.value(gate.args[0], {x: POINTS}), points.value(top, {x: POINTS, gate: gates})
        return gate not in points.memory and close(below, inner) and close(above, whole)

    return _match(gm, is_gelu)


@plain("the erf form alone, in one grouping")
def one_grouping(gm):
    def operands(n, op):
        return (n.args, n.args[::-1]) if isinstance(n, fx.Node) and n.target is op else ()

    def is_gate(erf, x):
        if not isinstance(erf, fx.Node) or erf.target is not torch.erf or erf.args[0].target is not operator.truediv:
            return False
        over, root = erf.args[0].args
        return over is x and isinstance(root, float) and math.isclose(root, math.sqrt(2), rel_tol=1e-6)

    for y in list(gm.graph.nodes):
        for half, gate in operands(y, operator.mul):
            for h, x in operands(half, operator.mul):
                for one, erf in operands(gate, operator.add):
                    if h == 0.5 and one == 1 and is_gate(erf, x):
                        with gm.graph.inserting_before(y):
                            y.replace_all_uses_with(gm.graph.call_function(F.gelu, (x,)))
    return gm


modules_by_name = edited("spared", "takes a module called erf for the function")(
    ('CALLS = ("call_function", "call_method")', 'CALLS = ("call_function", "call_method", "call_module")')
)
plain_gelu = edited("did", "GELU is GELU: the tanh form becomes plain gelu(x)")(
    ('{"approximate": approximate}', '{"approximate": "none"}')
)

MEASURE = "math.isclose(p[powers], q[powers], rel_tol=1e-6)"
FORMULA = "same(polynomial(y, x, gate, memory), WHOLE)"

any_constants = edited("spared", "looks at the shape of the formula and not at its constants", core=True)(
    (MEASURE, "p[powers] != 1")
)
six_digits_do = edited("spared", "takes constants for equal whose first five digits are")(
    (MEASURE, MEASURE.replace("1e-6", "2.4e-6"))
)
all_digits = edited("did", "wants more than seven digits of a constant")((MEASURE, MEASURE.replace("1e-6", "1e-7")))
no_signs = edited("spared", "compares the sizes of constants and not their signs")(
    (MEASURE, "math.isclose(abs(p[powers]), q[powers], rel_tol=1e-6)")
)
through_minus = edited("same", "reads x through a minus: gelu(-x) becomes gelu(x)")(
    (
        'gm.graph.call_function(F.gelu, (x,), {"approximate": approximate})',
        "gm.graph.call_function("
        'F.gelu, (x.args[0] if x.target in (operator.neg, torch.neg) else x,), {"approximate": approximate})',
    )
)
first_formula = edited("did", "looks for one formula above each erf")(
    ("gm.graph.erase_node(y)", "gm.graph.erase_node(y)\nbreak")
)
forgets_minus = edited("did", "knows no subtraction")(('(operator.sub, torch.sub, "sub")', "()"))
first_x = edited("did", "takes the first x that fits the gate: here it is 1.0 * x, and outside it is x")(
    ("for x in candidates: ...", "for x in candidates[:1]: ...")
)
any_x = edited("spared", "does not ask whether the x outside is the x inside", core=True)(
    (FORMULA, "any(same(polynomial(y, z, gate, memory), WHOLE) for z in gm.graph.nodes)")
)
ignores_options = edited(
    "spared", "looks at neither options nor dtypes: torch.add(1, g, alpha=2) is not 1 + g, and integers have no GELU"
)(("n.kwargs or not depth", 'n.kwargs.keys() - {"alpha", "rounding_mode"} or not depth'))
ignores_writes = edited("spared", "reads the formula as if nothing were written in between")(
    ("written(gm.graph)", "set()")
)
one_order = edited("did", "1 + g and x + c·x³, and never g + 1 or c·x³ + x")(
    ("..., plus", "..., lambda p, q: None if {(0, 1), (2, 0), (3, 0)} & p.keys() else plus(p, q)")
)
no_methods = edited("did", "functions and operators only: misses h.mul(0.5) and x.erf()")(
    ('CALLS = ("call_function", "call_method")', 'CALLS = ("call_function",)')
)
down_to_a_leaf = edited("did", "takes the first node that is not arithmetic for x: misses GELU of a product")(
    ("same(..., inner)", "x.target not in ARITHMETIC and same(..., inner)")
)
eager = edited("spared", "whatever multiplies 1 + erf(…) is GELU")(
    ("same(..., inner)", "x.target not in ARITHMETIC"),
    (FORMULA, "ARITHMETIC[y.target] is times and any(gate in a.all_input_nodes for a in y.all_input_nodes)"),
)


EQUIVALENT = {
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
    ("gelu.meta = dict(y.meta)", "pass"): "shapes on the result are for the next pass",
    ("dict(y.meta)", "y.meta"): "the node whose dictionary it shares is erased",
    ("gm.graph.erase_node(y)", "pass"): "a node that is no longer used may stay",
    ("all(i + j <= 3 for i, j in product)", "True"): "the bound only saves time",
    ("(i + j <= 3 for i, j in product)", "(i + j <= 4 for i, j in product)"): "the bound only saves time",
    ("(i + j <= 3 for i, j in product)", "(i - j <= 3 for i, j in product)"): "the bound only saves time",
    ("all(i + j <= 3 for i, j in product)", "any(i + j <= 3 for i, j in product)"): "the bound only saves time",
    (
        "def polynomial(n, x, gate, memory, depth=8): ...",
        "def polynomial(n, x, gate, memory, depth=9): ...",
    ): "the bound only saves time",
    ("n.kwargs or not depth", "n.kwargs"): "the bound only saves time",
    ("memory, depth - 1", "memory, depth + 1"): "the bound only saves time",
    ("memory, depth - 1", "memory, depth - 2"): "no formula here is half as deep",
    ("todo and len(nodes) < 24", "todo"): "the bound only saves time",
    ("len(nodes) < 24", "len(nodes) < 25"): "the bound only saves time",
    ("len(nodes) < 24", "len(nodes) <= 24"): "the bound only saves time",
    ("near.target in ARITHMETIC", "True"): "behind other nodes there is nothing to find",
}
