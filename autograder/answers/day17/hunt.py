"""Hidden cases and answers of day17.hunt."""

from __future__ import annotations

import itertools
import random

import torch
from torch import fx, nn

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day17.hunt import fault_case
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    names = ["add", "mul", "div", "getitem"]
    fold = rng.sample(["item", "getattr"], 2)
    return [
        fault_case("cse, without add", "cse", ["add"]),
        fault_case("cse, without four", "cse", names),
        fault_case("cse, drawn", "cse", rng.sample(names, 2)),
        fault_case("operators, without one", "operators", [rng.choice(["add", "sub", "div"])]),
        *(
            fault_case(f"operators, without {one} and {other}", "operators", [one, other])
            for one, other in itertools.combinations(["add", "sub", "div"], 2)
        ),
        fault_case("const-fold, without one", "const-fold", fold[:1]),
        fault_case("const-fold, without the other", "const-fold", fold[1:]),
        fault_case("merge-matmul", "merge-matmul"),
        fault_case("fuse, without Linear", "fuse", ["Linear"]),
        fault_case("fuse, without Conv2d", "fuse", ["Conv2d"]),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _traced(forward, **parts):
    root = type("Root", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(root, name, part)
    return fx.symbolic_trace(root)


_X, _WHOLE = torch.linspace(-2, 3, 12).view(3, 4), torch.arange(12).view(3, 4)


def _linear(**how):
    torch.manual_seed(0)
    return {"layer": nn.Linear(4, 4), "norm": nn.BatchNorm1d(4, **how).eval()}


@right("other faults: powers, keywords, a size that becomes a tensor, batch norm without weights")
def other_faults(target, without):
    if target == "cse":
        return _traced(lambda m, x: (torch.pow(x, 2), torch.pow(x, 2.0))), (_WHOLE,)
    if target == "operators":
        name = next(name for name in ("div", "sub", "add") if name not in without)
        keyword = {"rounding_mode": "trunc"} if name == "div" else {"alpha": -1}
        return _traced(lambda m, x, y: getattr(torch, name)(x, y, **keyword)), (_X, 2 * _X + 1)
    if target == "const-fold" and "item" in without:
        return _traced(lambda m, x: x.to(m.w.dtype), w=nn.Parameter(_X.half())), (_X,)
    if target == "const-fold":
        return _traced(lambda m, x: x + m.w.item(), w=nn.Parameter(torch.tensor(2.5))), (_X,)
    if target == "merge-matmul":
        two = _traced(lambda m, x, y, z: (torch.matmul(x, other=z), torch.matmul(y, other=z)))
        return two, (_X, _X + 1, torch.eye(4))
    if "Linear" not in without:
        return _traced(lambda m, x: m.norm(m.layer(x)), **_linear(affine=False)), (_X,)
    torch.manual_seed(0)
    layer, norm = nn.Conv1d(2, 2, 1), nn.BatchNorm1d(2).eval()
    norm.running_var *= 4
    return _traced(lambda m, x: m.norm(m.layer(m.layer(x))), layer=layer, norm=norm), (torch.ones(1, 2, 3),)


def _fails(target, gm, inputs):
    """Whether the real pass changes what a graph computes, or raises."""
    from passlab.hunt import TARGETS
    from passlab.hunt.search import failure

    gm.meta["inputs"] = inputs
    return failure(TARGETS[target], gm) is not None


@right("tries operations, numbers and keywords until the pass fails")
def by_search(target, without):
    def programs():
        numbers = [1, 2, 1.0]
        for name in ("add", "sub", "mul", "rsub"):
            for one, other in itertools.combinations(numbers, 2):
                yield _twins(getattr(torch, name), one, other), (_WHOLE,)
        for name, value in itertools.product(("sub", "add", "div"), (1, 2)):
            keyword = {"rounding_mode": "floor"} if name == "div" else {"alpha": value}
            yield _keyword(getattr(torch, name), keyword), (_X, _X + 1)
        for forward in (lambda m, x: x * m.w.item(), lambda m, x: x + m.w, lambda m, x: x.type(m.w.dtype)):
            yield _traced(forward, w=nn.Parameter(torch.tensor(3.0))), (_X,)

    for gm, inputs in programs():
        if any(getattr(node.target, "__name__", node.target) in without for node in gm.graph.nodes):
            continue
        if _fails(target, gm, inputs):
            return gm, list(inputs)
    return other_faults(target, without)


def _twins(op, one, other):
    return _traced(lambda m, x: (op(x, one), op(x, other)))


def _keyword(op, keyword):
    return _traced(lambda m, x, y: op(x, y, **keyword))


@wrong("did", "returns a graph on which the pass is right")
def no_fault(target, without):
    return _traced(lambda m, x: (torch.sin(x), torch.cos(x))), [_X]


@wrong("did", "takes rounding for a fault")
def rounding(target, without):
    if target != "fuse" or "Linear" in without:
        return other_faults(target, without)
    parts = _linear()
    parts["norm"].running_mean += 0.3
    exact = parts["norm"](parts["layer"](_X)).detach()
    gm = _traced(
        lambda m, x: torch.mul(torch.sub(m.norm(m.layer(x)), m.exact), 1e7), exact=nn.Parameter(exact), **parts
    )
    return gm, [_X]


@wrong("did", "leaves layers in training, where fuse refuses them: the graph runs in evaluation mode")
def in_training(target, without):
    if target != "fuse":
        return other_faults(target, without)
    layers, x = (_linear(), _X) if "Linear" not in without else _convolution()
    return _traced(lambda m, x: m.norm(m.layer(x)), **layers).train(), [x]


def _convolution():
    torch.manual_seed(0)
    return {"layer": nn.Conv1d(2, 2, 1), "norm": nn.BatchNorm1d(2)}, torch.linspace(-1, 1, 12).view(2, 2, 3)


@wrong("spared", "lets the graph write, so that the pass promises nothing")
def writes(target, without):
    if target != "cse":
        return other_faults(target, without)
    return _traced(lambda m, x: (torch.sin(x), x.add_(1), torch.sin(x))), [_X]


@wrong("spared", "lets the graph draw random numbers")
def draws(target, without):
    if target != "const-fold":
        return other_faults(target, without)
    return _traced(lambda m, x: x + torch.bernoulli(m.w), w=nn.Parameter(_X / 10 + 0.5)), [_X]


@wrong("spared", "makes a tensor without values")
def without_values(target, without):
    if target != "merge-matmul":
        return other_faults(target, without)
    empty = _traced(lambda m, x, y: (torch.matmul(torch.empty_like(x), y), torch.matmul(x, y)))
    return empty, [_X, torch.eye(4)]


@wrong("cost", "keeps what the fault does not need")
def large(target, without):
    gm, inputs = other_faults(target, without)
    with gm.graph.inserting_before(gm.graph.output_node()):
        value = gm.graph.find_nodes(op="placeholder")[0]
        results = gm.graph.output_node().args[0]
        for _ in range(3):
            value = gm.graph.call_method("neg", (value,))
        gm.graph.output_node().args = ((*(results if isinstance(results, tuple) else (results,)), value),)
    gm.recompile()
    return gm, inputs


@wrong("valid", "returns the graph without inputs")
def alone(target, without):
    return other_faults(target, without)[0]


@wrong("valid", "returns inputs on which the graph does not run")
def no_run(target, without):
    gm, inputs = other_faults(target, without)
    return gm, [torch.ones(5, 7, 2, 2, 2) for _ in inputs]


@wrong("valid", "returns more numbers than any fault needs")
def many_numbers(target, without):
    gm, inputs = other_faults(target, without)
    return gm, [x.repeat(100, *[1] * (x.ndim - 1)) for x in inputs]


any_name = edited("spared", "forgets what the graph must do without")(("names.isdisjoint(without)", "names"))
one_type = edited("did", "repeats the call with the same number, which is the same value")(
    ("torch.add(x, 1), torch.add(x, 1.0)", "torch.add(x, 1), torch.add(x, 1)")
)
