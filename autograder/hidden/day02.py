"""Day 2, hidden cases: `HIDDEN[exercise id](seed)` draws them anew for each seed."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from passlab import models
from passlab.exercises.cases_day02_compare import (
    Pair,
    Planted,
    conv,
    counterexample_cases,
    equivalent_cases,
    lost_cases,
    pair_case,
    planted_case,
)
from passlab.exercises.cases_day02_rewrites import (
    ATTRIBUTES,
    Rewrite,
    batch_norm,
    fold_cases,
    fuse_cases,
    op_of,
    program,
    rewrite_case,
    seeded,
)
from passlab.exercises.cases_day02_walks import Managed, Scenario, Step, chain, ladder, manager_cases, visitor_cases
from passlab.fx.generate import random_graph
from passlab.fx.ops import ConvReLU2d
from passlab.judge import Case

KEPT = ("valid", "same", "spared")

# ---------------------------------------------------------------------------------------------------- visitor


def _random_dag(rng: random.Random, size: int) -> tuple:
    """Fan-out, fan-in, dead ends, keyword operands; some targets without a callback."""
    graph = fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("sin")]
    for _ in range(size):
        picked = rng.choices(values[-12:], k=rng.choice((1, 1, 2, 2, 3)))
        kind = rng.randrange(4)
        if kind == 0:
            values.append(graph.call_method("sin", (picked[0],)))
        elif kind == 1:
            values.append(graph.call_function(torch.clamp, (picked[0],), {"min": picked[-1]}))
        elif kind == 2:
            values.append(graph.call_function(torch.cat, (picked,), {"dim": 0}))
        else:
            values.append(graph.call_function(operator.add, (picked[0], picked[-1])))
    root = graph.output(tuple(values[-3:]))
    keys = ["sin", torch.clamp, "placeholder", *rng.sample([operator.add, "output", "call_function"], 2)]
    return graph, root.name, tuple(keys)


def visitor(seed: int) -> list[Case]:
    """Random DAGs, a generated program, a very deep and a very repetitive graph."""

    def generated() -> tuple:
        gm = random_graph(seed, 40)
        keys = ["placeholder", "get_attr", "call_function", "call_method", "call_module", "output", torch.add]
        return gm.graph, next(n.name for n in gm.graph.nodes if n.op == "output"), tuple(keys)

    dags = [
        Case(f"random graph {i}", lambda i=i: _random_dag(random.Random(f"{seed}/{i}"), 10 + 25 * i)) for i in range(4)
    ]
    rungs = 60 + seed % 7
    deep = [("5,000 nodes deep", lambda: chain(5_000)), (f"{rungs} rungs", lambda: ladder(rungs))]
    return [
        *visitor_cases(),
        *dags,
        Case("a generated program", generated),
        *(Case(name, build, ("cost",)) for name, build in deep),
    ]


# ---------------------------------------------------------------------------------------------------- conv → relu


def _is_conv(gm: fx.GraphModule, node: fx.Node) -> bool:
    return node.op.startswith("call_") and op_of(gm, node) == "conv2d"


def conv_relu_pairs(gm: fx.GraphModule) -> tuple[str, ...]:
    """The fusible pairs of a graph without dead nodes: "conv → relu"."""
    pairs = []
    for node in gm.graph.nodes:
        if _is_conv(gm, node) and len(node.users) == 1:
            (user,) = node.users
            if user.op.startswith("call_") and op_of(gm, user) == "relu":
                pairs.append(f"{node.name} → {user.name}")
    return tuple(pairs)


def _random_conv(rng: random.Random, channels: int) -> nn.Conv2d:
    kernel, dilation = rng.choice(((1, 1), (3, 3), (3, 1))), rng.choice((1, 1, 2))
    groups, mode = rng.choice((1, 2, channels)), rng.choice(("zeros", "zeros", "reflect", "circular", "replicate"))
    padding = rng.choice((0, tuple(dilation * (k - 1) // 2 for k in kernel), "same"))
    stride = 1 if padding == "same" else rng.choice((1, 1, 2, (1, 2)))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "padding_mode": mode}
    return nn.Conv2d(channels, channels, kernel, bias=rng.random() < 0.6, **options)


def _random_net(rng: random.Random, layer: Callable, size: int) -> fx.GraphModule:
    """A net on four channels: `layer(rng, m, x)` after `layer`, with branches, joins and modules called again."""
    parts: dict[str, Any] = {"act": nn.ReLU()}
    channels = 4

    def fresh(kind: str, module: nn.Module) -> str:
        name = f"{kind}{len(parts)}"
        parts[name] = module
        return name

    graph = fx.Graph()
    image = graph.placeholder("x")
    open_, values = [image], {image: torch.randn(2, channels, 13, 11)}

    def add(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        real = [values[a] if isinstance(a, fx.Node) else a for a in args]
        if isinstance(target, str) and target in parts:
            node, value = graph.call_module(target, args, kwargs), parts[target](*real)
        elif isinstance(target, str):
            node, value = graph.call_method(target, args, kwargs), getattr(real[0], target)(*real[1:], **kwargs)
        else:
            node, value = graph.call_function(target, args, kwargs), target(*real, **kwargs)
        values[node] = value
        return node

    for _ in range(size):
        x = rng.choice(open_[-3:])
        if min(values[x].shape[2:]) < 6:
            x = image
        y = layer(rng, add, fresh, parts, x)
        mate = [v for v in open_ if v is not y and values[v].shape == values[y].shape]
        if mate and rng.random() < 0.4:
            y = add(operator.add, y, rng.choice(mate))
        open_.append(y)
    graph.output(tuple(v for v in open_ if not v.users) or (open_[-1],))
    root = nn.Module()
    for name, part in parts.items():
        root.add_module(name, part)
    gm = fx.GraphModule(root, graph).eval()
    gm.meta["inputs"] = (values[image],)
    return gm


def _conv_relu_layer(rng: random.Random, add: Callable, fresh: Callable, parts: dict, x: fx.Node) -> fx.Node:
    convs = [name for name in parts if name.startswith("conv")]
    if convs and rng.random() < 0.2:
        y = add(rng.choice(convs), x)
    elif rng.random() < 0.2:
        weight = nn.Conv2d(4, 4, 3).weight
        gets = fresh("conv", nn.Conv2d(4, 4, 3, bias=False))
        parts[gets].weight = weight
        y = add(gets, x)
    else:
        y = add(fresh("conv", _random_conv(rng, 4)), x)
    activation = rng.choice(("act", "relu", torch.relu, F.relu, F.relu, F.relu6, torch.tanh, None))
    z = y if activation is None else add(activation, y)
    return add(torch.sub, z, y) if rng.random() < 0.15 and z is not y else z


def _net_case(name: str, seed: str, layer: Callable, pairs: Callable, size: int) -> Case:
    def make() -> fx.GraphModule:
        return _random_net(random.Random(seed), layer, size)

    found = pairs(seeded(make)())
    case = rewrite_case(name, make, Rewrite(found, "all others are shared, in use elsewhere, or something else"))
    return case if found else rewrite_case(name, make, case.expect, *KEPT)


def _zoo_case(name: str, pairs: Callable) -> Case:
    def make() -> fx.GraphModule:
        return program_of(name)

    expect = Rewrite(pairs(make()), "nothing else in this model is such a pair")
    return rewrite_case(f"the model {name}", make, expect, *(() if expect.matches else KEPT))


def program_of(name: str) -> fx.GraphModule:
    """A zoo model, traced, with its inputs."""
    model = models.ZOO[name]
    gm = fx.symbolic_trace(model.build()).eval()
    gm.meta["inputs"] = tuple(model.inputs())
    return gm


def _generated_case(seed: int, pairs: Callable) -> Case:
    def make() -> fx.GraphModule:
        only = ("conv", "pointwise", "modules", "reduce", "outputs")
        gm = random_graph(seed, 40, only=only)
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return gm

    expect = Rewrite(pairs(make()), "nothing else in this graph is such a pair")
    return rewrite_case("a generated program", make, expect, *(() if expect.matches else KEPT))


def _doubles() -> fx.GraphModule:
    def body(m, x):
        x = torch.relu(input=m.block[0](x))
        x = m.block[2](m.block[1](input=x))
        return F.relu(F.conv2d(input=x, weight=m.weight, bias=m.bias, padding="same", groups=2), inplace=True)

    block = nn.Sequential(
        nn.Conv2d(3, 4, (1, 3), padding="same", dilation=2, padding_mode="replicate"),
        nn.Conv2d(4, 4, 3, stride=(2, 1), bias=False),
        nn.ReLU(inplace=True),
    ).double()
    parts = {"weight": nn.Parameter(torch.randn(4, 2, 3, 3).double()), "bias": nn.Parameter(torch.randn(4).double())}
    return program(body, torch.randn(2, 3, 7, 8).double(), block=block, **parts)


def _twice() -> fx.GraphModule:
    def body(m, x):
        y = m.relu(m.conv(x))
        return m.relu(m.conv(y)), m.relu(y), m.relu(m.pool(y))

    return program(
        body, torch.randn(1, 4, 6, 6), conv=nn.Conv2d(4, 4, 3, padding=1), relu=nn.ReLU(), pool=nn.AvgPool2d(2)
    )


def _fused_before() -> fx.GraphModule:
    def body(m, x):
        return torch.relu(m.fused(x)) + torch.relu(m.conv3(x.unsqueeze(2)).squeeze(2)), F.hardtanh(m.conv(x), 0.0, 1.0)

    parts = {"fused": ConvReLU2d(3, 4, 3), "conv3": nn.Conv3d(3, 4, (1, 3, 3)), "conv": nn.Conv2d(3, 4, 1)}
    return program(body, torch.randn(1, 3, 6, 6), **parts)


def _sum_and_conv() -> fx.GraphModule:
    """The ReLU is of a sum that has a convolution in it; the convolution's one user is not the ReLU."""

    def body(m, x):
        return torch.relu(m.conv1(x) + x) + torch.relu(torch.sigmoid(m.conv2(x)))

    return program(
        body, torch.randn(1, 4, 5, 5), conv1=nn.Conv2d(4, 4, 3, padding=1), conv2=nn.Conv2d(4, 4, 3, padding=1)
    )


def fuse(seed: int) -> list[Case]:
    """Random nets, models of the zoo, a generated program, traps."""
    nets = [_net_case(f"random net {i}", f"{seed}/{i}", _conv_relu_layer, conv_relu_pairs, 3 + 4 * i) for i in range(3)]
    traps = [
        rewrite_case(
            "float64, keywords, nested modules",
            _doubles,
            Rewrite(("block_0 → relu", "block_1 → block_2", "conv2d → relu_1")),
        ),
        rewrite_case(
            "one conv module, two pairs",
            _twice,
            Rewrite(("conv → relu", "conv_1 → relu_1"), "the last ReLUs are not of a convolution"),
        ),
        rewrite_case(
            "what is fused already, and a 3-D convolution",
            _fused_before,
            Rewrite(why="ConvReLU2d is a Conv2d by inheritance only, conv3 is a Conv3d, and hardtanh is no ReLU"),
            *KEPT,
        ),
        rewrite_case("a ReLU further down", _sum_and_conv, Rewrite(why="the ReLU is not of the convolution"), *KEPT),
    ]
    zoo = [_zoo_case(name, conv_relu_pairs) for name in ("skip", "residual")]
    return [*fuse_cases(), *nets, *traps, *zoo, _generated_case(seed, conv_relu_pairs)]


# ---------------------------------------------------------------------------------------------------- conv → batch norm


def conv_bn_pairs(gm: fx.GraphModule) -> tuple[str, ...]:
    """The pairs that can be folded in a graph without dead nodes."""
    calls = [n.target for n in gm.graph.nodes if n.op == "call_module"]
    pairs = []
    for node in gm.graph.nodes:
        if node.op == "call_module" and op_of(gm, node) == "batch_norm":
            norm, before = gm.get_submodule(node.target), node.all_input_nodes[0]
            if norm.training or not norm.track_running_stats or before.op != "call_module":
                continue
            if op_of(gm, before) == "conv2d" and len(before.users) == 1 and calls.count(before.target) == 1:
                pairs.append(f"{before.name} → {node.name}")
    return tuple(pairs)


def _conv_bn_layer(rng: random.Random, add: Callable, fresh: Callable, parts: dict, x: fx.Node) -> fx.Node:
    convs = [name for name in parts if name.startswith("conv")]
    again = convs and rng.random() < 0.15
    y = add(rng.choice(convs) if again else fresh("conv", _random_conv(rng, 4)), x)
    if rng.random() < 0.15:
        y = add(rng.choice((torch.relu, torch.tanh)), y)
    options = {"eps": rng.choice((1e-5, 1e-3, 0.2)), "affine": rng.random() < 0.7}
    options["track_running_stats"] = rng.random() < 0.85
    z = add(fresh("bn", batch_norm(4, **options).eval()), y)
    if rng.random() < 0.5:
        z = add("act", z)
    return add(torch.sub, z, y) if rng.random() < 0.15 else z


def _weight_read() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 3), "bn": batch_norm(4)}
    return program(lambda m, x: m.bn(m.conv(x)) + m.conv.weight.square().mean(), torch.randn(2, 3, 5, 5), **parts)


def _tied() -> fx.GraphModule:
    one, two = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
    two.weight = one.weight
    body = lambda m, x: m.two(torch.tanh(m.bn(m.one(x))))  # noqa: E731
    return program(body, torch.randn(2, 3, 5, 5), one=one, bn=batch_norm(3), two=two)


def _one_norm() -> fx.GraphModule:
    parts = {"one": nn.Conv2d(3, 3, 1), "two": nn.Conv2d(3, 3, 3, bias=False), "bn": batch_norm(3)}
    return program(lambda m, x: m.bn(m.two(torch.relu(m.bn(m.one(x))))), torch.randn(2, 3, 5, 5), **parts)


def _nested_doubles() -> fx.GraphModule:
    block = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, bias=False), batch_norm(4, eps=1e-2), nn.ReLU())
    block = nn.Sequential(block, nn.Conv2d(4, 2, 1, groups=2), batch_norm(2, affine=False, momentum=None)).double()
    return program(lambda m, x: m.block(x), torch.randn(2, 3, 9, 9).double(), block=block)


def _one_and_three() -> fx.GraphModule:
    parts = {
        "relu": nn.ReLU(),
        "up": nn.ConvTranspose2d(3, 3, 2, stride=2),
        "bn": batch_norm(3),
        "linear": nn.Linear(6, 6),
        "bn2": batch_norm(3),
    }
    return program(lambda m, x: m.bn2(m.linear(m.relu(m.bn(m.up(x))))), torch.randn(2, 3, 3, 3), **parts)


def fold(seed: int) -> list[Case]:
    """Random nets, models of the zoo, traps."""
    nets = [_net_case(f"random net {i}", f"{seed}/{i}", _conv_bn_layer, conv_bn_pairs, 3 + 3 * i) for i in range(3)]
    traps = [
        rewrite_case("the weight is read elsewhere too", _weight_read, Rewrite(("conv → bn",))),
        rewrite_case("two convolutions with one weight", _tied, Rewrite(("one → bn",))),
        rewrite_case(
            "one batch norm behind two convolutions", _one_norm, Rewrite(("one → bn", "two → bn_1")), *KEPT[:2]
        ),
        rewrite_case(
            "float64, nested modules",
            _nested_doubles,
            Rewrite(("block_0_0 → block_0_1", "block_1 → block_2")),
        ),
        rewrite_case(
            "no convolution in front",
            _one_and_three,
            Rewrite(why="a transposed convolution has its output channels elsewhere, and a Linear is none"),
            *KEPT,
        ),
    ]
    zoo = [_zoo_case(name, conv_bn_pairs) for name in ("convnet", "residual")]

    def training() -> fx.GraphModule:
        return program_of("convnet").train()

    kept = Rewrite(why="the model is in training, where a batch norm uses the statistics of the batch")
    return [*fold_cases(), *nets, *traps, *zoo, rewrite_case("a zoo model in training", training, kept, *KEPT)]


# ---------------------------------------------------------------------------------------------------- pass manager


def _plan(rng: random.Random) -> tuple[Scenario, Managed]:
    """A random pipeline, and what has to come of it by the rules of the exercise."""
    facts = ("size", "inputs", "users")
    keeps = {"add": ("inputs",), "remove": ("inputs",), "rebuild": ("inputs",), "keep": facts}
    steps, known, computed = [], set(), 0
    for i in range(rng.randint(3, 7)):
        does = rng.choice(("add", "remove", "rebuild", "keep", "keep"))
        requires = tuple(rng.sample(facts, rng.choice((0, 1, 2, 3))))
        preserves = tuple(fact for fact in keeps[does] if rng.random() < 0.7)
        after = tuple(rng.sample([s.name for s in steps], min(len(steps), rng.choice((0, 0, 1)))))
        steps.append(Step(f"pass{i}", does, requires, preserves, after))
        computed += len(set(requires) - known)
        known = (known | set(requires)) & set(preserves)
    return Scenario(tuple(steps), (rng.randint(9, 14), rng.randint(9, 14))), Managed(
        tuple(s.name for s in steps), analyses=computed
    )


def manager(seed: int) -> list[Case]:
    """Random pipelines that are right, and such with one culprit."""
    cases = manager_cases()
    for i in range(6):
        rng = random.Random(f"{seed}/{i}")
        scenario, expect = _plan(rng)
        cases.append(Case(f"random pipeline {i}", lambda s=scenario: (s,), ("did", "spared", "cost"), expect=expect))
        at, does = rng.randrange(len(scenario.steps)), ("break", "forget", "raise")[i % 3]
        old = scenario.steps[at]
        steps = (*scenario.steps[:at], Step(old.name, does, old.requires), *scenario.steps[at + 1 :])
        says = {"break": "before it is defined", "forget": "returned None", "raise": "shape"}[does]
        what = {"break": "broke the graph", "forget": "returned None", "raise": "raised KeyError('shape')"}[does]
        blame = Managed(tuple(s.name for s in steps[: at + 1]), old.name, says, f"{old.name} {what}")
        broken = Scenario(steps, scenario.graphs[:1])
        cases.append(Case(f"pipeline {i} with a culprit", lambda s=broken: (s,), ("valid",), expect=blame))
    return cases


# ---------------------------------------------------------------------------------------------------- equivalent


def _conv_bn(eps: float, folded_eps: float | None = None) -> fx.GraphModule:
    """conv → batch norm; with `folded_eps`, folded with that eps. The same weights at each call from one seed."""
    conv2d, norm = nn.Conv2d(3, 4, 3), batch_norm(4, eps=eps).eval()
    x = torch.randn(2, 3, 6, 6)
    if folded_eps is None:
        return program(lambda m, x: m.bn(m.conv(x)), x, conv=conv2d, bn=norm)
    scale = norm.weight / (norm.running_var + folded_eps).sqrt()
    conv2d.bias = nn.Parameter((conv2d.bias - norm.running_mean) * scale + norm.bias)
    conv2d.weight = nn.Parameter(conv2d.weight * scale.reshape(-1, 1, 1, 1))
    return program(lambda m, x: m.conv(x), x, conv=conv2d)


def _image() -> tuple[Tensor, ...]:
    return (torch.randn(2, 3, 6, 6),)


def _fold_pair(name: str, folded_eps: float, expect: Pair, seed: int) -> Case:
    before, after = seeded(lambda: _conv_bn(0.01), seed), seeded(lambda: _conv_bn(0.01, folded_eps), seed)
    return pair_case(name, lambda: before(), lambda: after(), _image, expect)


def _generated_pairs(seed: int) -> list[Case]:
    def same() -> fx.GraphModule:
        return random_graph(seed, 25, mutation=True)

    def other() -> fx.GraphModule:
        gm = same()
        output = next(n for n in gm.graph.nodes if n.op == "output")
        node = next(n for n in output.all_input_nodes if n.meta["tensor_meta"].dtype == torch.float32)
        with gm.graph.inserting_before(output):
            moved = gm.graph.call_function(torch.add, (node, 0.01))
        output.replace_input_with(node, moved)
        gm.recompile()
        return gm

    def case(name: str, after: Callable, expect: Pair, verdict: str) -> Case:
        return Case(name, lambda: (same(), after(), same().meta["inputs"]), (verdict,), expect=expect)

    cases = [case("a generated program and itself", same, Pair(True, "They are the same graph."), "spared")]
    floats = next(n for n in same().graph.nodes if n.op == "output").all_input_nodes
    if any(n.meta["tensor_meta"].dtype == torch.float32 for n in floats):
        cases.append(case("a generated program, moved", other, Pair(False, "One output is 0.01 off."), "did"))
    return cases


def equivalent(seed: int) -> list[Case]:
    """More ways to differ, and to look different."""
    rng = random.Random(seed)
    rows, columns = rng.randint(3, 7), rng.randint(40, 90)
    shift = rng.choice((0.25, 2.0, 3.0))

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Callable:
        return lambda: (torch.randn(*shape, dtype=dtype),)

    big = lambda: (torch.tensor([2**40, 7, -(2**53)]),)  # noqa: E731
    pick = rng.randrange(columns)
    cases = [
        pair_case(
            "a shift",
            lambda m, x: x.abs(),
            lambda m, x: x.abs() + shift,
            normal(rows, columns),
            Pair(False, f"One adds {shift}.", (shift, shift**2)),
        ),
        pair_case(
            "zeros as the example",
            lambda m, x: x * 2,
            lambda m, x: x * 3,
            lambda: (torch.zeros(rows, 4),),
            Pair(False, "2·0 = 3·0; on other numbers the programs differ."),
        ),
        pair_case(
            "one element of many",
            lambda m, x: x.sigmoid(),
            lambda m, x: x.sigmoid() + F.one_hot(torch.tensor(pick), columns) * 1e-3,
            normal(rows, columns),
            Pair(False, "One column is 1e-3 off: an average over many elements hides it."),
        ),
        pair_case(
            "large numbers only",
            lambda m, x: x,
            lambda m, x: x.clamp(-20, 20),
            normal(rows, columns),
            Pair(False, "They differ beyond 20: try large numbers too."),
        ),
        pair_case(
            "one more output",
            lambda m, x: (x, x + 1),
            lambda m, x: (x, x + 1, x),
            normal(4),
            Pair(False, "Two outputs before, three after."),
        ),
        pair_case(
            "another dtype",
            lambda m, x: x * 1,
            lambda m, x: x.double(),
            normal(4),
            Pair(False, "The values are equal, the dtype is not."),
        ),
        pair_case(
            "plus and minus infinity",
            lambda m, x: 1 / (x * 0).abs(),
            lambda m, x: -1 / (x * 0).abs(),
            normal(4),
            Pair(False, "One gives inf, the other -inf."),
        ),
        pair_case(
            "large integers",
            lambda m, x: x + 0,
            lambda m, x: x - (x == 2**40).long(),
            big,
            Pair(False, "Integers must be equal; 2**40 and 2**40 - 1 are close in float32 only."),
        ),
        pair_case(
            "infinity on both sides",
            lambda m, x: torch.exp(x * 1e4),
            lambda m, x: torch.exp(1e4 * x),
            normal(4, 5),
            Pair(True, "Both give inf and 0 at the same places; inf - inf is NaN."),
        ),
        pair_case(
            "booleans",
            lambda m, x: x > 0,
            lambda m, x: torch.gt(x, 0),
            normal(4, 5),
            Pair(True, "Both give the same booleans."),
        ),
        pair_case(
            "bfloat16",
            lambda m, x: x * 3,
            lambda m, x: x + x + x,
            normal(rows, columns, dtype=torch.bfloat16),
            Pair(True, "bfloat16 has 8 bits: two roundings may differ by a hundredth."),
        ),
        pair_case(
            "small numbers in another order",
            lambda m, x: (x * 1e-5).sum(1),
            lambda m, x: (x.flip(1) * 1e-5).sum(1),
            normal(rows, 300),
            Pair(True, "They add the same numbers in another order."),
        ),
        pair_case(
            "an example that is written over",
            lambda m, x: (x.mul_(2), x.sum())[1],
            lambda m, x: (x.mul_(2), x.sum())[1] * 1.0,
            normal(6),
            Pair(True, "Both double their input in place."),
        ),
        _fold_pair("a folded batch norm", 0.01, Pair(True, "Folding rounds the weights once more."), seed),
        _fold_pair("a batch norm folded without its eps", 0.0, Pair(False, "eps was left out."), seed),
    ]
    return [*equivalent_cases(), *cases, *_generated_pairs(seed)]


# ---------------------------------------------------------------------------------------------------- lost attribute

_OTHER = {"stride": 2, "padding": 2, "dilation": 2, "groups": 2, "padding_mode": "reflect"}
_DEFAULT = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "padding_mode": "zeros", "bias": False}


def _stack(rng: random.Random, lost: str | None, weights: str = "kept") -> list[tuple[dict, dict]]:
    """Convolutions with attributes drawn anew; one of them loses `lost`, another changes one without effect."""
    layers: list[tuple[dict, dict]] = []
    for _ in range(rng.randint(0, 2)):
        layers.append((conv(4, 4, padding=1, bias=rng.random() < 0.5), {}))
    keep = [a for a in _OTHER if rng.random() < 0.6 or a in (lost, "padding" if lost == "padding_mode" else lost)]
    odd = conv(4, 4, **{a: _OTHER[a] for a in keep})
    layers.append((odd, {} if lost is None else {lost: _DEFAULT[lost]}))
    harmless = rng.choice(
        [
            (conv(4, 4, padding="same", dilation=2), {"padding": 2}),
            (conv(4, 4, 1, padding_mode="reflect"), {"padding_mode": "zeros"}),
            (conv(4, 4, 1, dilation=3), {"dilation": 1}),
        ]
    )
    layers.insert(0 if rng.random() < 0.7 else len(layers), harmless)
    return layers


def lost(seed: int) -> list[Case]:
    """Each attribute lost in a random stack; groups also with weights that fit; stacks that only look different."""
    cases = []
    for name in (*ATTRIBUTES, None, None):
        rng = random.Random(f"{seed}/{name}/{len(cases)}")
        why = f"{name} is gone in one layer; what else looks different has no effect." if name else "Nothing was lost."
        expect = Planted(name, why)
        cases.append(planted_case(f"hidden pass {len(cases) + 1}", _stack(rng, name), 14, expect, seed))
    grouped = conv(4, 4, padding=1, groups=2)
    repeated = Planted("groups", "One group, its kernel repeated: each output now sees all inputs.", "repeated")
    block = Planted(None, "The kernel of one group has zeros between the old groups: the same function.", "block")
    cases.append(planted_case("groups, repeated", [(grouped, {"groups": 1})], 8, repeated, seed))
    cases.append(planted_case("groups, block by block", [(grouped, {"groups": 1})], 8, block, seed))
    return [*lost_cases(), *cases]


def counterexample(seed: int) -> list[Case]:
    """What a learner hands in is a graph; there is nothing to draw anew."""
    return counterexample_cases()


def fuse_silu(seed: int) -> list[Case]:
    from autograder.hidden import day02_relax  # needs Relax's TVM, which the other exercises' processes do without

    return day02_relax.fuse_silu(seed)


HIDDEN: dict[str, Callable[[int], list[Case]]] = {
    "day02.visitor": visitor,
    "day02.fuse-conv-relu": fuse,
    "day02.fold-batchnorm": fold,
    "day02.pass-manager": manager,
    "day02.equivalent": equivalent,
    "day02.lost-attribute": lost,
    "day02.counterexample": counterexample,
    "day02.fuse-silu": fuse_silu,
}
