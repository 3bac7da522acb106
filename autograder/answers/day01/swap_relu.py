"""Hidden cases and answers of day01.swap-relu."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.authoring.answers import right, wrong
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


def hidden(seed: int) -> list[Case]:
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
                lambda make=make: swapping.graph_of(seeded(make)()),
                about,
                rng.uniform(0.02, 0.4),
                seeded(lambda: (torch.randn(3, 4),), seed),
            )
        )
    return cases


# ---------------------------------------------------------------------------------------------------- answers

FUNCTIONS = (torch.relu, torch.relu_, F.relu)


def _in_place(node, gm):
    """None if the node is no ReLU, else whether it works in place."""
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


def _swap(gm, slope, wanted=_in_place, forms=("call_function", "call_method", "call_module"), keep=bool):
    for node in list(gm.graph.nodes):
        found = wanted(node, gm)
        if found is not None and node.op in forms:
            _replace(gm, node, F.leaky_relu, (_operand(node), slope, keep(found)))
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


@wrong("did", "looks at modules alone")
def modules_only(gm, slope):
    return _swap(gm, slope, forms=("call_module",))


@wrong("did", "of the functions only F.relu is known")
def functional_only(gm, slope):
    def wanted(node, gm):
        return None if node.target in (torch.relu, torch.relu_) else _in_place(node, gm)

    return _swap(gm, slope, wanted)


@wrong("did", "a module is done when it was swapped once; its second call still finds the old one")
def first_call_only(gm, slope):
    done = set()

    def wanted(node, gm):
        found = _in_place(node, gm)
        if node.op == "call_module" and node.target in done:
            return None
        done.add(node.target)
        return found

    return _swap(gm, slope, wanted)


@wrong("same", "forgets that the old ReLU worked in place")
def never_in_place(gm, slope):
    return _swap(gm, slope, keep=lambda found: False)


@wrong("same", "asks for the keyword inplace, and not for relu_ and positions")
def in_place_by_keyword(gm, slope):
    def wanted(node, gm):
        found = _in_place(node, gm)
        by_name = node.op == "call_method" or len(node.args) > 1 or node.target is torch.relu_
        return False if found is not None and by_name else found

    return _swap(gm, slope, wanted)


@wrong("same", "modules get the slope that nn.LeakyReLU has by itself")
def default_slope(gm, slope):
    for node in gm.graph.nodes:
        if node.op == "call_module" and _in_place(node, gm) is not None:
            gm.set_submodule(node.target, nn.LeakyReLU(inplace=gm.get_submodule(node.target).inplace))
    return _swap(gm, slope)


@wrong("same", "writes x.leaky_relu(slope), which tensors do not have")
def leaky_method(gm, slope):
    for node in gm.graph.nodes:
        if node.op == "call_method" and _in_place(node, gm) is not None:
            node.target, node.args = "leaky_relu", (_operand(node), slope)
    return _swap(gm, slope)


@wrong("spared", "goes by a node's name: whatever is called relu in the graph is swapped")
def by_node_name(gm, slope):
    def wanted(node, gm):
        found = _in_place(node, gm)
        named = node.op.startswith("call") and node.name.rstrip("_0123456789") == "relu"
        return False if found is None and named else found

    return _swap(gm, slope, wanted)


@wrong("spared", "compares __name__: somebody's own function relu and class ReLU are swapped")
def by_target_name(gm, slope):
    def wanted(node, gm):
        called = type(gm.get_submodule(node.target)) if node.op == "call_module" else node.target
        found = _in_place(node, gm)
        return False if found is None and getattr(called, "__name__", "") in ("relu", "ReLU") else found

    return _swap(gm, slope, wanted)


@wrong("spared", "searches for 'relu' in the text of the target: relu6 and leaky_relu have it too")
def by_substring(gm, slope):
    def wanted(node, gm):
        called = gm.get_submodule(node.target) if node.op == "call_module" else node.target
        found = _in_place(node, gm)
        return False if found is None and node.op.startswith("call") and "relu" in str(called).lower() else found

    return _swap(gm, slope, wanted)


@wrong("spared", "isinstance takes subclasses of nn.ReLU for ReLU")
def subclasses_too(gm, slope):
    def wanted(node, gm):
        if node.op == "call_module" and isinstance(module := gm.get_submodule(node.target), nn.ReLU):
            return module.inplace
        return _in_place(node, gm)

    return _swap(gm, slope, wanted)


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


@wrong("valid", "edits the graph and returns nothing")
def returns_nothing(gm, slope):
    _swap(gm, slope)


@wrong("valid", "erases the old node and leaves its readers behind")
def readers_left(gm, slope):
    for node in list(gm.graph.nodes):
        if _in_place(node, gm) is not None:
            with gm.graph.inserting_before(node):
                gm.graph.call_function(F.leaky_relu, (_operand(node), slope))
            gm.graph.erase_node(node)
    return gm
