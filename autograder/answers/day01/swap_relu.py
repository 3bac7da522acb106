"""Hidden cases and answers of day01.swap-relu."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.authoring.answers import edited, right, wrong
from passlab import models, random_graph
from passlab.exercises.day01 import swap_relu as swapping
from passlab.exercises.day01._shared import net
from passlab.fx.cases import seeded
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _overwrites() -> nn.Module:
    def forward(self, x):
        a = x * 2
        b = F.relu(a, True)
        c = a - 0.25
        torch.relu_(c)
        d = c - 0.25
        d.relu_()
        e = F.relu(d - 0.5, inplace=False)
        f = self.block.act(e - 0.1)
        return a * b, c, d, f, e, (f - 0.2).relu(), e.relu()

    return net(forward, block=nn.ModuleDict({"act": nn.ReLU(inplace=True)}))


def _others() -> nn.Module:
    def forward(self, relu):
        a = F.rrelu(relu) + F.celu(relu) + F.elu(relu)
        b = self.prelu(a).clamp(min=0.0)
        c = torch.maximum(b, a) + F.threshold(a, 0.0, 0.0)
        return self.clipped(c - 1), self.ReLU(a), F.leaky_relu(a, 0.01), self.stack(relu)

    parts = dict(prelu=nn.PReLU(), clipped=swapping.Clipped(), ReLU=nn.GELU())
    return net(forward, **parts, stack=nn.Sequential(nn.ReLU(), nn.LeakyReLU(0.3), nn.ReLU6(), swapping.ReLU()))


def _inside() -> nn.Module:
    return net(lambda self, x: self.gate(self.act(x)) - torch.relu(x), gate=swapping.Gate(), act=nn.ReLU())


def _used_by_layers() -> nn.Module:
    """Return two ReLUs that the graph shares with layers: one under the layer's name, one under a name of its own."""
    other = swapping.Gate()

    def forward(self, x):
        return self.gate(x) - self.gate.act(x - 0.1), self.act(x) + self.other(-x)

    return net(forward, gate=swapping.Gate(), act=other.act, other=other)


def _by_position() -> fx.GraphModule:
    """Return F.relu(x, True) and F.relu(x, False) with positional flags: tracing writes keywords."""
    graph = fx.Graph()
    a = graph.call_function(torch.mul, (graph.placeholder("x"), 2))
    b = graph.call_function(F.relu, (a, True))
    c = graph.call_function(torch.sub, (b, 0.5))
    graph.output((a, b, c, graph.call_function(F.relu, (c, False))))
    return fx.GraphModule(nn.Module(), graph)


def _twice() -> nn.Module:
    shared = nn.ReLU()

    def forward(self, x):
        return self.first(self.linear(self.first(x))) - self.second(-x) + torch.relu(input=x)

    return net(forward, first=shared, second=shared, linear=nn.Linear(4, 4))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    untouched = ("valid", "same", "spared", "cost")
    cases = []

    def add(name: str, build: Callable, inputs: Callable, about: tuple = swapping.ALL, slopes=(0.02, 0.4)) -> None:
        slope = rng.uniform(*slopes)
        cases.append(Case(name, lambda: (build(), slope), about, inputs))

    for i in range(3):
        only = ("pointwise", "modules", "dead", "names", "outputs")
        build = partial(random_graph, seed * 10 + i, 30, only=only, mutation=i == 2)
        gm = build()
        has_one = any(swapping.in_place(node, gm) is not None for node in gm.graph.nodes)
        inputs = lambda build=build: tuple(t.clone() for t in build().meta["inputs"])  # noqa: E731
        add(f"random graph {i}", build, inputs, swapping.ALL if has_one else untouched)
    for name in ("convnet", "mlp", "residual"):
        add(name, lambda name=name: fx.symbolic_trace(models.ZOO[name].build()), models.ZOO[name].inputs)
    for name, make, slopes in (
        ("overwritten tensors", _overwrites, (0.02, 0.4)),
        ("activations of all sorts", _others, (0.02, 0.4)),
        ("one module under two names", _twice, (1.1, 2.0)),
        ("a ReLU inside a layer", _inside, (-0.5, -0.1)),
        ("ReLUs that layers use, too", _used_by_layers, (0.5, 0.9)),
    ):
        inputs = seeded(lambda: (torch.randn(3, 4),), seed)
        add(name, lambda make=make: swapping.graph_of(seeded(make)()), inputs, slopes=slopes)
    add("in place by position", _by_position, seeded(lambda: (torch.randn(3, 4),), seed))
    return cases


# ---------------------------------------------------------------------------------------------------- answers

FUNCTIONS = (torch.relu, torch.relu_, F.relu)


def _in_place(node, gm):
    """Return whether a ReLU works in place; None if the node is not a ReLU."""
    if node.op == "call_module":
        module = gm.get_submodule(node.target)
        return module.inplace if type(module) is nn.ReLU else None
    if node.op == "call_method":
        return {"relu": False, "relu_": True}.get(node.target)
    if node.op == "call_function" and node.target in FUNCTIONS:
        return node.target is torch.relu_ or bool(node.kwargs.get("inplace", (*node.args, 0, 0)[1]))
    return None


def _operand(node):
    return node.args[0] if node.args else node.kwargs["input"]


def _replace(gm, node, target, args):
    with gm.graph.inserting_before(node):
        new = gm.graph.call_function(target, args)
    node.replace_all_uses_with(new)
    gm.graph.erase_node(node)


@wrong("spared", "swaps the ReLUs inside the layers that the graph calls, too")
def inside_layers(gm, slope):
    for module in list(gm.modules()):
        for name, part in module.named_children():
            if type(part) is nn.ReLU:
                setattr(module, name, nn.LeakyReLU(slope, part.inplace))
    return _swap(gm, slope)


@wrong("spared", "sets LeakyReLU in the place of a module that a layer uses, too")
def in_its_place(gm, slope):
    for node in gm.graph.nodes:
        if node.op == "call_module" and _in_place(node, gm) is not None:
            gm.set_submodule(node.target, nn.LeakyReLU(slope, _in_place(node, gm)))
    return _swap(gm, slope)


@right("sets a LeakyReLU beside the old module, inside a layer if that is where it was")
def beside_the_old(gm, slope):
    for node in gm.graph.nodes:
        if node.op == "call_module" and _in_place(node, gm) is not None:
            gm.add_submodule(f"{node.target}_leaky", nn.LeakyReLU(slope, _in_place(node, gm)))
            node.target += "_leaky"
    return _swap(gm, slope)


@wrong("same", "reads inplace from keywords only")
def keywords_only(gm, slope):
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in FUNCTIONS:
            node.args = node.args[:1]
    return _swap(gm, slope)


def _swap(gm, slope, forms=("call_function", "call_method", "call_module")):
    for node in list(gm.graph.nodes):
        kind = _in_place(node, gm)
        if kind is not None and node.op in forms:
            _replace(gm, node, F.leaky_relu, (_operand(node), slope, kind))
    gm.recompile()
    return gm


@right("builds a new graph with a Transformer, one method for each form")
def by_transformer(gm, slope):
    class Leak(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target in (torch.relu, torch.relu_):
                kwargs = dict(kwargs, inplace=target is torch.relu_)
            elif target is not F.relu:
                return super().call_function(target, args, kwargs)
            return super().call_function(leak, args, kwargs)

        def call_method(self, target, args, kwargs):
            if target not in ("relu", "relu_"):
                return super().call_method(target, args, kwargs)
            return super().call_function(leak, args, {"inplace": target == "relu_"})

        def call_module(self, target, args, kwargs):
            module = self.submodules[target]
            if type(module) is not nn.ReLU:
                return super().call_module(target, args, kwargs)
            return super().call_function(leak, args, {"inplace": module.inplace})

    def leak(input, inplace=False):
        return F.leaky_relu(input, slope, inplace)

    new = Leak(gm).transform()
    for node in new.graph.nodes:
        if node.target is leak:
            inplace = node.kwargs.get("inplace", (*node.args, False)[1] if len(node.args) > 1 else False)
            node.target, node.args, node.kwargs = F.leaky_relu, (_operand(node), slope, inplace), {}
    new.recompile()
    return new


@right("keeps each form: modules become modules, functions functions; nodes are changed where they stand")
def form_by_form(gm, slope):
    for node in gm.graph.nodes:
        inplace = _in_place(node, gm)
        if inplace is None:
            continue
        if node.op == "call_module":
            name = f"{node.target.replace('.', '_')}_leaky"
            gm.add_submodule(name, nn.LeakyReLU(slope, inplace))
            node.target = name
        else:
            operand = _operand(node)
            node.op, node.target = "call_function", F.leaky_relu
            node.args, node.kwargs = (operand,), {"negative_slope": slope, "inplace": inplace}
    return gm


@wrong("did", "the method form is forgotten")
def no_methods(gm, slope):
    return _swap(gm, slope, forms=("call_function", "call_module"))


@wrong("cost", "spells LeakyReLU out in three nodes")
def spelled_out(gm, slope):
    for node in list(gm.graph.nodes):
        if _in_place(node, gm) is False:
            with gm.graph.inserting_before(node):
                low = gm.graph.call_function(torch.clamp, (_operand(node),), {"max": 0.0})
                low = gm.graph.call_function(torch.mul, (low, slope))
                high = gm.graph.call_function(torch.clamp, (_operand(node),), {"min": 0.0})
            _replace(gm, node, torch.add, (low, high))
    return _swap(gm, slope)


functional_only = edited("did", "knows no function but F.relu")(("(torch.relu, torch.relu_, F.relu)", "(F.relu,)"))
first_call_only = edited(
    "did", "takes a module as done once it has been swapped; its second call still finds the old one"
)(
    ("for node in ...: ...", "done = set()\nfor node in ...: ..."),
    ("... is nn.ReLU", "... is nn.ReLU and node.target not in done"),
    ("inplace = module.inplace", "done.add(node.target)\ninplace = module.inplace"),
)
never_in_place = edited("same", "forgets that the old ReLU worked in place, or sees that in the keyword inplace alone")(
    ("bool(inplace)", "False")
)
default_slope = edited("same", "gives modules the default slope of nn.LeakyReLU")(
    ("slope", '0.01 if node.op == "call_module" else slope')
)


def _also(condition):
    """Return an edit: calls of something `called` that fits the condition are taken for ReLUs, too."""
    called = 'gm.get_submodule(node.target) if node.op == "call_module" else node.target'
    test = f'node.op.startswith("call") and (called := {called}) and {condition}'
    return "continue", f"if {test}:\n    inplace = False\nelse:\n    continue"


by_node_name = edited("spared", "goes by a node's name: swaps whatever is called relu in the graph")(
    _also('node.name.rstrip("_0123456789") == "relu"')
)
by_substring = edited("spared", "searches for 'relu' in the text of the target: relu6 and leaky_relu have it too")(
    _also('"relu" in str(called).lower()')
)
returns_nothing = edited("valid", "returns nothing, or erases the old node before it hands over its users")(
    ("return gm", "return None")
)

EQUIVALENT = {
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
}
