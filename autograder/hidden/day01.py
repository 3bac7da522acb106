"""Day 1: the cases that learners do not see, drawn from a seed: generated graphs, zoo models, hand-made traps."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab import models, random_graph, trace
from passlab.exercises import cases_day01_onnx as exporting
from passlab.exercises import cases_day01_shapes as shapes
from passlab.exercises import cases_day01_ssa as ssa
from passlab.exercises import cases_day01_swap as swapping
from passlab.exercises.cases_day01 import net, seeded, traced
from passlab.judge import Case

# ------------------------------------------------------------------------------------------------------- graphs


def _zoo(name: str, **arguments) -> Callable[[], tuple]:
    """A model of the zoo as a graph with shapes."""

    def build() -> tuple:
        make = getattr(models, name) if arguments else models.ZOO[name].build
        return (trace(make(**arguments), *models.ZOO[name].inputs()),)

    return build


def _random(seed: int, size: int, **features) -> Callable[[], tuple]:
    """A random graph, traced again so that numbers and tuples have their tensor_meta too."""

    def build() -> tuple:
        gm = random_graph(seed, size, **features)
        return (trace(gm, *gm.meta["inputs"]),)

    return build


# -------------------------------------------------------------------------------------------------- count-kinds


def _in_place() -> nn.Module:
    def forward(self, x, y):
        x = self.drop(F.relu(x * 2, inplace=True))
        x = self.tail(x).mul_(y)
        torch._assert(x.size(0) > 1, "more than one row")
        return torch.sigmoid_(x + y.shape[0]).contiguous(), F.relu(y, inplace=False).clone()

    return net(forward, drop=nn.Dropout(inplace=False), tail=nn.Sequential(nn.Flatten(), nn.Hardtanh(inplace=True)))


def _tuples() -> nn.Module:
    def forward(self, x):
        half, whole = x.to(torch.float16), x.to(torch.float64)
        a, b, c = half.split(2, -1)
        rows = torch.stack([a, b, c]).unflatten(1, (1, -1)).squeeze(1)
        return rows.expand(3, 2, 2), whole > 0, x.unsqueeze(0)[0], self.table

    return net(forward, table=torch.arange(5))


def _misleading() -> nn.Module:
    def forward(self, flatten, output):
        x = self.cat.chunk(flatten) + self.contiguous
        return self.add_(x), self.size(output), output.flatten().sum()

    parts = dict(cat=nn.ModuleDict({"chunk": nn.Linear(4, 4)}), add_=nn.Softplus(), size=nn.Flatten())
    return net(forward, **parts, contiguous=torch.ones(4))


def count_kinds(seed: int) -> list[Case]:
    plain = ("pointwise", "modules", "reduce", "conv", "names", "outputs", "dead")
    both = ("valid", "did")
    return [
        *(Case(f"random graph {i}", _random(seed * 10 + i, 20, only=plain), both) for i in range(2)),
        Case("attention", _zoo("attention"), both),
        Case("a network with a skip", _zoo("skip"), both),
        Case("in place and not", traced(_in_place, (2, 4), (2, 4)), ("valid", "did", "spared")),
        Case("tuples, numbers, dtypes", traced(_tuples, (2, 6)), both),
        Case("misleading names", traced(_misleading, (2, 4), (2, 3)), ("valid", "spared")),
    ]


# ---------------------------------------------------------------------------------- residual-edges and levels


def _tangle(seed: int, size: int = 14) -> Callable[[], tuple]:
    """Additions of every form over a few values that are read again and again, with look-alikes between them."""

    def build() -> tuple:
        rng = random.Random(seed)
        graph = fx.Graph()
        pool = [graph.placeholder("x"), graph.placeholder("y")]
        # A block that is there for every seed.
        pool.append(graph.call_function(torch.add, (pool[0], graph.call_function(torch.tanh, (pool[0],)))))
        for _ in range(size):
            a, b = rng.choice(pool[-4:]), rng.choice(pool)
            number = [graph.call_method("size", (a, 0))] if rng.random() < 0.3 else []
            made = rng.choice(
                [
                    lambda a=a, b=b: graph.call_function(torch.add, (a,), {"other": b}),
                    lambda a=a, b=b: graph.call_function(operator.add, (b, a)),
                    lambda a=a, b=b: graph.call_method("add", (a, b), {"alpha": 2}),
                    lambda a=a, n=number: graph.call_function(operator.add, (a, *(n or [1]))),
                    lambda a=a, b=b, n=number: graph.call_method("expand", (b, *(n or [2]), -1)),
                    lambda a=a, b=b: graph.call_function(operator.sub, (a, b)),
                    lambda a=a, b=b: graph.call_function(torch.maximum, (a, b)),
                    lambda a=a, b=b: graph.call_function(torch.sum, (graph.call_function(torch.stack, ([a, b],)), 0)),
                    lambda a=a: graph.call_function(torch.sigmoid, (a,)),
                    lambda a=a: graph.call_method("cos", (a,)),
                ]
            )()
            pool.append(made)
        graph.output((pool[-1], pool[-2]))
        return (trace(fx.GraphModule(nn.Module(), graph), torch.randn(2, 4), torch.randn(2, 4)),)

    return build


def _through_tuples() -> nn.Module:
    def forward(self, x):
        left, right = torch.split(x, 2, -1)
        y = torch.cat([right, left], dim=-1).add(x)
        z = self.weight + torch.tanh(self.weight)
        return (y + z).add_(torch.cos(y)), torch.add(self.scale, x, alpha=0.5)

    return net(forward, weight=nn.Parameter(torch.ones(4)), scale=torch.ones(4))


def _iadd() -> tuple:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator.mul, (x, 2))
    z = graph.call_function(operator.iadd, (graph.call_method("neg", (y,)), y))
    graph.output(graph.call_function(operator.isub, (z, x)))
    return (trace_as_is(fx.GraphModule(nn.Module(), graph), torch.randn(2, 4)),)


def trace_as_is(gm: fx.GraphModule, *inputs: torch.Tensor) -> fx.GraphModule:
    """Shapes on the nodes that are there; tracing would turn `iadd` into `add`."""
    fx.passes.shape_prop.ShapeProp(gm).propagate(*inputs)
    return gm


def _numbers_between() -> nn.Module:
    def forward(self, x, y):
        rows = x.shape[0]
        spread = self.token.expand(rows, -1)
        count = y.size(0) + 1
        return x + spread, y + count, (x + x).mul(x), torch.cat([y, y.neg()], 0) - count

    return net(forward, token=nn.Parameter(torch.ones(1, 4)))


def residual_edges(seed: int) -> list[Case]:
    did, both, spared = ("valid", "did"), ("valid", "did", "spared"), ("valid", "spared")
    return [
        *(Case(f"tangle {i}", _tangle(seed * 10 + i), both) for i in range(4)),
        *(Case(f"random graph {i}", _random(seed * 10 + i, 30, mutation=False), spared) for i in range(2)),
        Case("a transformer block", _zoo("gpt"), did),
        Case("inverted residuals", _zoo("mobilenetv2"), both),
        Case("a U-Net", _zoo("unet"), spared),
        Case("an unrolled LSTM", _zoo("lstm"), spared),
        Case("by way of tuples", traced(_through_tuples, (2, 4)), both),
        Case("an addition that writes", _iadd, both),
        Case("numbers between tensors", traced(_numbers_between, (2, 4), (3, 4)), spared),
    ]


def _nothing_to_do() -> nn.Module:
    return net(lambda self, x: x)


def _constants() -> tuple:
    """Nodes without operands, operands in slices, and a node that is read twice by one reader."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    ones = graph.call_function(torch.ones, (2, 4))
    rows = graph.call_method("size", (x, 0))
    last = graph.call_function(operator.sub, (rows, 1))
    cut = graph.call_function(operator.getitem, (x, (slice(last, None), slice(None))))
    both = graph.call_function(torch.add, (ones, ones))
    graph.call_function(torch.cos, (x,))
    graph.output({"a": graph.call_function(torch.mul, (), {"input": both, "other": cut}), "b": rows})
    return (fx.GraphModule(nn.Module(), graph),)


def levels(seed: int) -> list[Case]:
    both = ("valid", "did", "spared")
    return [
        *(Case(f"random graph {i}", _random(seed * 10 + i, 20, mutation=False), both) for i in range(3)),
        *(Case(f"tangle {i}", _tangle(seed * 10 + i), both) for i in range(2)),
        Case("attention", _zoo("attention"), both),
        Case("a convolution net with a skip", _zoo("skip"), both),
        Case("an unrolled LSTM", _zoo("lstm"), both),
        Case("no operands, operands in slices", _constants, both),
        Case("nothing to do", traced(_nothing_to_do, (2,)), ("valid",)),
    ]


# --------------------------------------------------------------------------------------------------- match-onnx


def _image_block(rng: random.Random) -> nn.Module:
    """Some layers on an image, a gate now and then, and the input added at the end."""
    parts, steps = {}, []
    for i in range(rng.randint(4, 7)):
        kind = rng.choice(["conv", "conv norm", "conv norm", "norm", "act", "act", "drop", "gate", "twice"])
        name = f"{kind[:4].strip()}{i}"
        if kind in ("conv", "conv norm", "twice"):
            parts[name] = nn.Conv2d(3, 3, 3, padding=1, bias=rng.random() < 0.5)
        if kind in ("conv norm", "norm", "twice"):
            parts[f"{name}n"] = exporting.trained_norm(3)
        if kind == "act":
            parts[name] = rng.choice([nn.SiLU, nn.SiLU, nn.ReLU, nn.ReLU6, nn.GELU, nn.Sigmoid])()
        if kind == "drop":
            parts[name] = rng.choice([nn.Dropout, nn.Identity])()
        if kind == "gate":
            parts[name], parts[f"{name}p"] = nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d(1)
        steps.append((kind, name))
    shortcut = rng.random() < 0.5
    if shortcut:
        parts |= dict(shortcut=nn.Conv2d(3, 3, 1), shortcut_norm=exporting.trained_norm(3))
    written_out = rng.random() < 0.5
    tail = rng.choice([torch.relu, F.relu, lambda y: y])

    def forward(self, x):
        y = torch.sigmoid(x) * x if written_out else x
        for kind, name in steps:
            part = getattr(self, name, None)
            if kind == "twice":
                z = part(y)
                y = getattr(self, f"{name}n")(z) + z
            elif kind == "gate":
                y = y * torch.sigmoid(part(getattr(self, f"{name}p")(y)))
            else:
                y = part(y) if part is not None else y
                y = getattr(self, f"{name}n")(y) if hasattr(self, f"{name}n") else y
        return tail(y + (self.shortcut_norm(self.shortcut(x)) if shortcut else x))

    return net(forward, **parts)


def _token_block(rng: random.Random) -> nn.Module:
    """The MLP of a transformer block, once or twice, with some activation."""
    times, acts = rng.choice((1, 2)), [nn.GELU, nn.SiLU, nn.ReLU, nn.GELU]
    parts = {}
    for i in range(times):
        parts |= {f"norm{i}": nn.LayerNorm(4), f"up{i}": nn.Linear(4, 6), f"act{i}": rng.choice(acts)()}
        parts |= {f"down{i}": nn.Linear(6, 4), f"drop{i}": nn.Dropout(), f"again{i}": nn.GELU()}

    def forward(self, x):
        for i in range(times):
            y = getattr(self, f"act{i}")(getattr(self, f"up{i}")(getattr(self, f"norm{i}")(x)))
            y = getattr(self, f"drop{i}")(getattr(self, f"down{i}")(y))
            x = torch.add(y, x) if i else x + getattr(self, f"again{i}")(y)
        return x

    return net(forward, **parts)


def _ends_in_dropout() -> nn.Module:
    def forward(self, x):
        return self.drop(self.identity(self.norm(self.conv(x)) + self.other(x)))

    parts = dict(conv=nn.Conv2d(3, 3, 1), norm=exporting.trained_norm(3), other=nn.Conv2d(3, 3, 1))
    return net(forward, **parts, identity=nn.Identity(), drop=nn.Dropout())


def match_onnx(seed: int) -> list[Case]:
    both, image, tokens = ("valid", "did", "spared"), (1, 3, 4, 4), (1, 2, 4)

    def drawn(make: Callable[[random.Random], nn.Module], i: int) -> Callable[[], nn.Module]:
        return lambda: make(random.Random(seed * 100 + i))

    cases = []
    for i in range(6):
        options = dict(fold=i % 3 != 2, gelu_is_one=i % 2 == 0, seed=seed * 10 + i)
        cases.append(exporting.case(f"image block {i}", drawn(_image_block, i), image, ("valid",), **options))
    for i in range(3):
        options = dict(gelu_is_one=i == 2, seed=seed * 10 + i)
        cases.append(exporting.case(f"token block {i}", drawn(_token_block, i), tokens, both, **options))
    return [
        *cases,
        exporting.case("renamed and reordered", exporting.conv_block, (1, 2, 4, 4), both, seed=seed),
        exporting.case("ends in a dropout", _ends_in_dropout, image, both, seed=seed + 1),
    ]


# ---------------------------------------------------------------------------------------------------- swap-relu


def _overwrites() -> nn.Module:
    def forward(self, x):
        a = x * 2
        b = F.relu(a, True)
        c = a - 0.25
        torch.relu_(c)
        d = c - 0.25
        d.relu_()
        e = F.relu(d - 0.5, inplace=False)
        return a * b, c, d, self.block.act(e - 0.1), e

    return net(forward, block=nn.ModuleDict({"act": nn.ReLU(inplace=True)}))


def _others() -> nn.Module:
    def forward(self, relu):
        a = F.rrelu(relu) + F.celu(relu) + F.elu(relu)
        b = self.prelu(a).clamp(min=0.0)
        c = torch.maximum(b, a) + F.threshold(a, 0.0, 0.0)
        return self.clipped(c - 1), self.ReLU(a), F.leaky_relu(a, 0.01), self.stack(relu)

    parts = dict(prelu=nn.PReLU(), clipped=swapping.Clipped(), ReLU=nn.GELU())
    return net(forward, **parts, stack=nn.Sequential(nn.ReLU(), nn.LeakyReLU(0.3), nn.ReLU6(), swapping.ReLU()))


def _twice() -> nn.Module:
    shared = nn.ReLU()

    def forward(self, x):
        return self.first(self.linear(self.first(x))) - self.second(-x) + torch.relu(input=x)

    return net(forward, first=shared, second=shared, linear=nn.Linear(4, 4))


def _swap_case(name: str, build: Callable[[], fx.GraphModule], about: tuple, slope: float, inputs: Callable) -> Case:
    return Case(name, lambda: (build(), slope), about, inputs)


def swap_relu(seed: int) -> list[Case]:
    rng = random.Random(seed)
    everything, untouched = swapping.ALL, ("valid", "same", "spared", "cost")
    cases = []
    for i in range(3):
        first = seed * 10 + i
        features = dict(only=("pointwise", "modules", "dead", "names", "outputs"), mutation=i == 2)

        def build(first=first, features=features) -> fx.GraphModule:
            return random_graph(first, 30, **features)

        def inputs(build=build) -> tuple:
            return tuple(t.clone() for t in build().meta["inputs"])

        gm = build()
        has_one = any(swapping.in_place(node, gm) is not None for node in gm.graph.nodes)
        about = everything if has_one else untouched
        cases.append(_swap_case(f"random graph {i}", build, about, rng.uniform(0.02, 0.4), inputs))
    for name, about in (("convnet", everything), ("mlp", everything), ("residual", everything)):
        cases.append(
            _swap_case(
                name,
                lambda name=name: fx.symbolic_trace(models.ZOO[name].build()),
                about,
                rng.uniform(0.02, 0.4),
                models.ZOO[name].inputs,
            )
        )
    for name, make, about in (
        ("overwritten tensors", _overwrites, everything),
        ("activations of all sorts", _others, everything),
        ("one module under two names", _twice, everything),
    ):
        cases.append(
            _swap_case(
                name,
                lambda make=make: swapping.graph_of(seeded(make)),
                about,
                rng.uniform(0.02, 0.4),
                lambda: seeded(lambda: (torch.randn(3, 4),), seed),
            )
        )
    return cases


# ---------------------------------------------------------------------------------------------------- propagate


def _pipeline(rng: random.Random) -> tuple[Callable[[], nn.Module], tuple]:
    """Convolution with odd attributes, pooling, a view by size, and products with transposes."""
    channels, stride, dilation, ceil = rng.choice((2, 4)), rng.choice((1, 2)), rng.choice((1, 2)), rng.random() < 0.5
    batch, side = rng.choice((1, 3)), rng.choice((11, 14))

    def forward(self, x):
        x = self.pool(F.relu(self.norm(self.conv(x))))
        y = x.flatten(2).transpose(1, -1)
        z = torch.matmul(y, y.transpose(-2, -1)) @ y
        return z.mean(dim=1, keepdim=True).to(torch.float64), (z * 2).sum(), y.reshape(y.size(0), -1)

    def make() -> nn.Module:
        conv = nn.Conv2d(channels, 6, (3, 2), stride, (1, 0), dilation, groups=2)
        return net(forward, conv=conv, norm=nn.BatchNorm2d(6), pool=nn.MaxPool2d(3, 2, 1, ceil_mode=ceil))

    return make, ((batch, channels, side, side), torch.float32)


def _promotions() -> nn.Module:
    def forward(self, a, b, flags):
        c = a * 1.5 + b
        d = (b - 3) / 2
        e = flags + flags
        f = self.wide + a
        g = b * self.scalar
        return c, d, e + b, f > 0, g, a.sum(), b.sum(dim=0), b.float().mean(-1), flags.sum(), c.argmax(dim=0)

    return net(forward, wide=nn.Parameter(torch.ones(3, dtype=torch.float64)), scalar=torch.tensor(2.0))


def _pieces() -> nn.Module:
    def forward(self, x):
        parts = x.chunk(3, dim=1)
        y = torch.cat(tensors=(parts[-1], parts[0]), dim=-1)
        z = y[:, None, ..., ::2] + x[0, 0]
        return self.norm(torch.flatten(z, start_dim=1, end_dim=-2)), z.view(x.size(0), -1).relu()

    return net(forward, norm=nn.LayerNorm(2))


def _outside(what: str) -> Callable[[], nn.Module]:
    def forward(self, x):
        y = torch.relu(x)
        if what == "function":
            return (F.gelu(y) + x).relu()
        if what == "method":
            return y.softmax(-1) @ x
        if what == "subclass":
            return self.quiet(y)
        if what == "module":
            return self.act(y)
        y.cumsum(0)  # nothing reads it
        return y

    parts = dict(quiet=nn.modules.linear.NonDynamicallyQuantizableLinear(4, 4), act=nn.ReLU6())
    return lambda: net(forward, **parts)


def _unfit(what: str) -> Callable[[], nn.Module]:
    def forward(self, x, y):
        a = x + x
        if what == "add":
            return a + (a + y)
        if what == "cat":
            return torch.cat([a, torch.cat([a, y], 1)], 0)
        if what == "view":
            return a.view(x.size(1), -1).view(3, -1) * 2
        return torch.matmul(a, y).relu()

    return lambda: net(forward)


def propagate(seed: int) -> list[Case]:
    rng = random.Random(seed)
    make, image = _pipeline(rng)
    f32, f16, i64 = torch.float32, torch.float16, torch.int64
    width = rng.choice((3, 6))
    square = ((4, 4), f32)

    def zoo(name: str) -> Case:
        inputs = models.ZOO[name].inputs()
        return shapes.case(name, models.ZOO[name].build, *((tuple(t.shape), t.dtype) for t in inputs))

    def stop(name: str, make: Callable, *inputs: tuple, at: str) -> Case:
        return shapes.case(name, make, *inputs, stop=at)

    two = ((4, 4), f32), ((5, 3), f32)
    return [
        shapes.case("a pipeline", make, image),
        shapes.case("promotions", _promotions, ((2, 3), f16), ((2, 3), i64), ((2, 3), torch.bool)),
        shapes.case("pieces", _pieces, ((2, width, 2), f32)),
        zoo("mlp"),
        zoo("residual"),
        shapes.case(
            "no data: promotions", _promotions, ((2, 3), f16), ((2, 3), i64), ((2, 3), torch.bool), about=("cost",)
        ),
        shapes.case("no data: a pipeline", make, image, about=("cost",)),
        stop("a function", _outside("function"), square, at="gelu"),
        stop("a method", _outside("method"), square, at="softmax"),
        stop("a subclass", _outside("subclass"), square, at="quiet"),
        stop("a module", _outside("module"), square, at="act"),
        stop("a node that nobody reads", _outside("dead"), square, at="cumsum"),
        stop("additions", _unfit("add"), *two, at="add_1"),
        stop("concatenations", _unfit("cat"), *two, at="cat"),
        stop("views", _unfit("view"), *two, at="view_1"),
        stop("products", _unfit("matmul"), *two, at="matmul"),
    ]


# ------------------------------------------------------------------------------------------------------- to-ssa


def _program(seed: int, lines: int = 8) -> str:
    """A random program of the language over few names, some of which look as if they were renamed already."""
    rng = random.Random(seed)
    names = rng.sample(["a", "b", "x", "y", "x_1", "x_2", "y1", "a_1", "x_"], 5)

    def atom() -> str:
        return rng.choice(
            [rng.choice(names), rng.choice(names), str(rng.randint(1, 9)), "box.x", 'table["a"]', "row[2]"]
        )

    def expression(depth: int = 2) -> str:
        kind = rng.random()
        if depth == 0 or kind < 0.25:
            return atom()
        if kind < 0.75:
            return f"({expression(depth - 1)} {rng.choice('+-*')} {expression(depth - 1)})"
        if kind < 0.85:
            return f"{expression(depth - 1)} {rng.choice(['//', '%'])} {rng.randint(2, 9)}"
        call = rng.choice(["f({0}, b={1})", "g(y={0}, x={1})", "max({0}, {1})", "g({0})"])
        return call.format(expression(depth - 1), expression(depth - 1))

    text = []
    for _ in range(lines):
        name, other = rng.sample(names, 2)
        form = rng.choice(["=", "=", "+=", "-=", "*=", "swap", "tuple", "chain"])
        if form == "swap":
            text.append(f"{name}, {other} = {other}, {expression(1)}")
        elif form == "tuple":
            text.append(f"{name}, ({other}, {name}) = {expression(1)}, ({expression(1)}, {expression(1)})")
        elif form == "chain":
            text.append(f"{name} = {other} = {expression(1)}")
        else:
            text.append(f"{name} {form} {expression()}")
    return "\n".join(text) + "\n"


def to_ssa(seed: int) -> list[Case]:
    texts = {
        "names that are taken": "x = x + 1\ny = x_1 + x\nx_1 = x - y\nx = x_1 * x_2\nx_1_1 = x_1\nx_1 = 3\n",
        "parentheses": "x *= y - 1\nx -= y - x\ny //= x + 7 - 4\ny %= 5 - 2\nx = -x\nx *= -x + y\n",
        "one name on both sides": "x -= x - 3\ny = x, x + 1\nx, y = y\nx += x * y\n",
        "several targets": "a = b = a + 1\na, b = b, a\n(a, c), b = (b, a + 2), c\nb, b = a, b + c\n",
        "words that are no variables": 'y = g(y=2, x=y)\nx = table["x"] - box.y\nbox = box.box + x\n',
        "functions are values too": "max = max(x, 3)\nf = f(max, b=max)\nx = f - max\n",
        "remarks and blank lines": "# x = 1\nx = 2  # x += 1\n\n\ny = x\nx = y + x ; y = x\n",
        "parts of names": "a = max(a, ab)\nab = a + abs(a)\nx = ab\nxx = x + a\nx = xx\n",
    }
    return [
        *(ssa.case(f"random program {i}", _program(seed * 10 + i)) for i in range(6)),
        *(ssa.case(name, text) for name, text in texts.items()),
        ssa.case("an empty program", "", ("valid",)),
    ]


#: exercise → the hidden cases drawn from a seed
def read_relay(seed: int) -> list[Case]:
    from autograder.hidden import day01_relay  # needs Relay's TVM, which the other exercises' processes do without

    return day01_relay.read_relay(seed)


HIDDEN: dict[str, Callable[[int], list[Case]]] = {
    "day01.count-kinds": count_kinds,
    "day01.residual-edges": residual_edges,
    "day01.levels": levels,
    "day01.match-onnx": match_onnx,
    "day01.swap-relu": swap_relu,
    "day01.propagate": propagate,
    "day01.to-ssa": to_ssa,
    "day01.read-relay": read_relay,
}
