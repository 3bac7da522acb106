"""Day 1, swapping ReLU for LeakyReLU: visible cases, look-alikes and the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.equivalence.trials import nearby
from passlab.exercises.day01._shared import line, net
from passlab.fx.cases import seeded
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.programs import Program
from passlab.given.day01.swap_relu import Clipped, Gate, ReLU, relu
from passlab.judge import Case, Finding, and_more

#: Every form in which these graphs call ReLU, and whether it is in place.
FUNCTIONS = {torch.relu: False, F.relu: False, torch.relu_: True}
METHODS = {"relu": False, "relu_": True}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, Clipped | Gate | ReLU) or super().is_leaf_module(module, name)


def graph_of(model: nn.Module) -> fx.GraphModule:
    """Return the model's graph, with the calls of this module's `relu` and of its layers kept as they are."""
    tracer = _Tracer(autowrap_functions=(relu,))
    return fx.GraphModule(model, tracer.trace(model))


def case(name: str, make: Callable[[], nn.Module], about: tuple[str, ...], slope: float = 0.1, shape=(3, 4)) -> Case:
    def inputs() -> tuple:
        return seeded(lambda: (torch.randn(shape),), 1)()

    return Case(name, lambda: (graph_of(seeded(make)()), slope), about, inputs)


def _three_forms() -> nn.Module:
    def forward(self, x):
        x = self.act(self.first(x))
        x = F.relu(self.second(x) - 0.5)
        return (x - 0.2).relu() + torch.relu(-x)

    return net(forward, first=nn.Linear(4, 4), act=nn.ReLU(), second=nn.Linear(4, 4))


def _in_place() -> nn.Module:
    def forward(self, x):
        a = self.linear(x)
        b = F.relu(input=a, inplace=True)
        c = b - 0.3
        d = self.act(c)
        e = d - 0.1
        e.relu_()
        return a + b, c * d, e

    return net(forward, linear=nn.Linear(4, 4), act=nn.ReLU(inplace=True))


def _shared() -> nn.Module:
    def forward(self, x):
        x = self.block(x)
        return self.block[1](x - 0.2)

    return net(forward, block=nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


def _look_alikes() -> nn.Module:
    def forward(self, x):
        a = F.relu6(4 * self.own(x)) + self.six(x)
        b = self.relu(x) + F.leaky_relu(x, 0.3)
        c = self.leaky(x).clamp(min=-0.1)
        return relu(x) + a, torch.relu(b - c)

    return net(forward, own=ReLU(), six=nn.ReLU6(), relu=nn.Tanh(), leaky=nn.LeakyReLU(0.2))


ALL = ("valid", "same", "did", "spared", "cost")


def cases() -> list[Case]:
    return [
        case("a function, a method and a module", _three_forms, ALL),
        case("in place", _in_place, ALL, 0.2),
        case("one module called twice", _shared, ALL, 0.05),
        case("look-alikes", _look_alikes, ALL),
    ]


class Leaky(fx.Interpreter):
    """Run a graph as if every ReLU in it were a LeakyReLU, and keep each node's value: the expected result."""

    def __init__(self, gm: fx.GraphModule, slope: float | None):
        super().__init__(gm, garbage_collect_values=False)
        self.slope, self.values = slope, {}

    def run_node(self, node: fx.Node) -> Any:
        place = in_place(node, self.module) if self.slope is not None else None
        if place is None:
            value = super().run_node(node)
        else:
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            value = F.leaky_relu(args[0] if args else kwargs["input"], self.slope, place)
        self.values[node.name] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


def _module(gm: nn.Module, path: str) -> nn.Module | None:
    try:
        return gm.get_submodule(path)
    except AttributeError:
        return None


def in_place(node: fx.Node, gm: nn.Module) -> bool | None:
    """Return whether this ReLU is in place; None if the node is not a ReLU."""
    if node.op == "call_module":
        called = _module(gm, node.target)
        return called.inplace if type(called) is nn.ReLU else None
    if node.op == "call_method":
        return METHODS.get(node.target)
    if node.op == "call_function" and node.target in FUNCTIONS:
        flag = node.kwargs.get("inplace", node.args[1] if len(node.args) > 1 else False)
        return FUNCTIONS[node.target] or bool(flag)
    return None


def _layer(module: nn.Module | None, old: nn.Module) -> str:
    """Describe a module with the parts that its class has in the old graph: a part that is new there is unused."""
    if module is None:
        return "None"
    known = {name for other in old.modules() if type(other) is type(module) for name, _ in other.named_children()}
    parts = [f"{name}: {_layer(part, old)}" for name, part in module.named_children() if name in known]
    return f"{module._get_name()}({', '.join([module.extra_repr(), *parts]).removeprefix(', ')})"


def _described(node: fx.Node, gm: nn.Module, old: nn.Module) -> str:
    """Describe what a node calls, regardless of where its operands come from."""
    if node.op == "call_module":
        return f"{node.op} {_layer(_module(gm, node.target), old)}"
    constants = [arg for arg in node.args if not isinstance(arg, fx.Node)] if node.op == "call_function" else []
    parts = (getattr(node.target, part, None) for part in ("__module__", "__name__"))
    target = node.target if isinstance(node.target, str) else ".".join(str(part) for part in parts if part)
    return f"{node.op} {target} {constants}"


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `same`: equal to the graph with leaking ReLUs. `did`: no ReLU is left. `spared`: the rest is as before."""
    before, slope = case.build()
    broken = why_not_valid(before, value)
    yield Finding("valid", not broken, broken, before=before)
    if broken:
        return
    after = rebuild(value)
    relus = [node for node in after.graph.nodes if in_place(node, after) is not None]
    did = ""
    if relus:
        form = {"call_function": "function", "call_method": "method", "call_module": "module"}[relus[0].op]
        names, first = and_more(n.name for n in relus), relus[0].name
        did = f"{names} still compute{'s' * (len(relus) == 1)} ReLU. {first} is the {form} form: {line(after, first)}."

    others = [node for node in before.graph.nodes if in_place(node, before) is None]
    surplus = Counter(_described(node, after, before) for node in after.graph.nodes)
    surplus.subtract(_described(node, before, before) for node in others)
    missing = [node for node in others if surplus[_described(node, before, before)] < 0]
    spared = ""
    if missing:
        callee = _described(missing[0], before, before).split(" ", 1)[1]
        spared = (
            f"{missing[0].name} calls {callee.strip(' []')}, which is not a ReLU, but it is missing from your graph."
        )

    message, mark = _differs(before, after, slope, case.inputs)
    reason = "" if did or spared else message  # those two name the cause, this one an effect
    yield Finding("same", not message, reason, before=before, after=after, mark=mark)
    yield Finding("did", not relus, did, before=before, after=after, mark=tuple(node.name for node in relus))
    yield Finding("spared", not missing, spared, before=before, after=after, mark=tuple(node.name for node in missing))

    old, new = len(before.graph.nodes), len(after.graph.nodes)
    message = f"The graph grew from {old} to {new} nodes; one LeakyReLU should replace one ReLU." if new > old else ""
    yield Finding("cost", new <= old, message, before=before, after=after)


def _differs(before: fx.GraphModule, after: fx.GraphModule, slope: float, inputs: Callable) -> tuple[str, tuple]:
    """Return where `after` differs from `before` with leaking ReLUs, and the first node that differs."""
    expected = Leaky(before, slope)
    trial = nearby(inputs())
    with torch.no_grad():
        want = expected.run(*trial)
    run = Program(after).run(nearby(inputs()), traced=True)
    if run.error:
        return f"Your graph does not run: {str(run.error).strip().splitlines()[0][:200].rstrip('.')}.", ()
    if _equal(want, run.output) and _equal(trial, run.inputs):
        return "", ()
    values = run.trace.values
    first = next((n for n, v in expected.values.items() if n in values and not _equal(v, values[n])), None)
    if first is None:
        return "Your graph gives different values from the old one with LeakyReLU in place of ReLU.", ()
    node = next(node for node in before.graph.nodes if node.name == first)
    reason = ""
    if any(in_place(used, before) for used in node.all_input_nodes) or any(in_place(u, before) for u in node.users):
        reason = " A ReLU next to it is in place and overwrites the old value. The LeakyReLU must do that too."
    return (
        f"With slope {slope:g}, {first} ({line(before, first)}) gives different values from the old graph with "
        f"LeakyReLU in place of ReLU.{reason}"
    ), (first,)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and torch.allclose(a, b, 1e-5, 1e-6, equal_nan=True)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return isinstance(b, tuple | list) and len(a) == len(b) and all(map(_equal, a, b))
    return a == b
