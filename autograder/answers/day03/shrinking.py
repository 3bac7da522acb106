"""Hidden cases and answers of day03.shrinking."""

from __future__ import annotations

import operator

import torch
from torch import fx, nn

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day03.shrinking import cases as visible
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    """Return the same three: the answer is a program, and there is nothing to hide."""
    return visible()


# ---------------------------------------------------------------------------------------------------- answers


def _program(rounds, delay=True):
    """Return relus and wheres for simplify, cse and dce, and constants for fold."""
    root, graph = nn.Module(), fx.Graph()
    root.register_buffer("w", torch.linspace(-1, 1, 12).reshape(3, 4))
    call, x = graph.call_function, graph.placeholder("x")
    w, again = graph.get_attr("w"), graph.get_attr("w")
    a = b = x
    for i in range(rounds):
        chosen = call(torch.where, (call(operator.gt, (x, i)), a, b))
        a, b = call(torch.relu, (chosen,)), call(torch.relu, (a if delay else chosen,))
    result = call(operator.add, (a, b))
    mask = call(operator.lt, (x, 0))
    for constant in [w, call(torch.where, (mask, w, w)), call(torch.where, (mask, w, again))][:rounds]:
        result = call(operator.add, (result, call(operator.mul, (call(torch.tanh, (constant,)), 2))))
    graph.output(result)
    return fx.GraphModule(root, graph)


class _Chain(nn.Module):
    """The same idea written as a model and traced: tanh in the chain, and the last sweep's targets innermost."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds = rounds
        self.w = nn.Parameter(torch.full((3, 4), 0.5), requires_grad=False)

    def forward(self, x):
        twice = x.tracer.create_proxy("get_attr", "w", (), {})
        constants = [self.w, torch.where(x > 7, self.w, self.w), torch.where(x > 8, twice, self.w)]
        left = right = torch.exp(x)
        for i in range(self.rounds):
            where = torch.where(x < i, left, right)
            left, right = torch.tanh(where), torch.tanh(left)
        outputs = [torch.neg(torch.neg(left)) * right]
        for i in range(self.rounds):
            outputs.append(outputs[-1] - (torch.neg(constants[i]) + 1))
        return tuple(outputs)


@right("a model that is traced, with several outputs")
def traced(rounds):
    return fx.symbolic_trace(_Chain(rounds))


class _ByHand(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.w = nn.Parameter(torch.full((3, 4), -0.25), requires_grad=False)
        self.v = nn.Parameter(torch.full((3, 4), 0.75), requires_grad=False)
        self.body = forward

    def forward(self, x):
        return self.body(self, x)


def _one(m, x):
    a, b = torch.exp(x), torch.exp(x)
    return torch.where(x > 0, a, a) + b + (m.w + m.v) * m.w


def _two(m, x):
    a, b = torch.exp(torch.where(x > 0, x, x)), torch.exp(x)
    c, d = torch.sin(torch.where(x > 1, a, b)), torch.sin(a)
    return c, d, x + (m.w + m.v) * 2, x * (torch.neg(torch.where(x > 2, m.w, m.w)) + m.v)


def _three(m, x):
    again = x.tracer.create_proxy("get_attr", "w", (), {})
    e, f, *rest = _two(m, x)
    late = torch.where(x > 3, again, m.w)
    return torch.cos(torch.where(x > 4, f, e)), torch.cos(f), *rest, x - (late * late + late)


@right("three programs written out by hand")
def by_hand(rounds):
    return fx.symbolic_trace(_ByHand((_one, _two, _three)[rounds - 1]))


@wrong("did", "a target for each stage, all open from the start: the second sweep finds nothing")
def all_at_once(rounds):
    return _program(rounds, delay=False)


@wrong("same", "a weight that is narrower than the condition: where(c, w, w) has another shape than w")
def broadcasting(rounds):
    root, graph = nn.Module(), fx.Graph()
    root.register_buffer("w", torch.ones(4))
    call, x, w = graph.call_function, graph.placeholder("x"), graph.get_attr("w")
    chosen = call(torch.where, (call(operator.gt, (x, 0)), w, w))
    graph.output((chosen, call(torch.relu, (x,))))
    return fx.GraphModule(root, graph)


@wrong("valid", "returns the model and not its graph")
def not_traced(rounds):
    return _Chain(rounds)


one_op = edited("did", "an expression of one op for fold: the constant is not smaller than the op was")(
    ("call(operator.mul, (call(torch.tanh, (constant,)), 2))", "call(torch.tanh, (constant,))")
)
two_at_most = edited("did", "has work for two sweeps at most, whatever the number")(
    ("root, graph = ...", "rounds = min(rounds, 2)\nroot, graph = ...")
)
padded = edited("cost", "fills up with nodes that no stage touches")(
    ("...(result)", "for _ in range(60):\n    result = call(torch.sigmoid, (result,))\n...(result)")
)


EQUIVALENT = {
    ("torch.linspace(-1, 1, 12)", "torch.linspace((1), 1, 12)"): "any numbers do",
    ("torch.linspace(-1, 1, 12)", "torch.linspace(-2, 1, 12)"): "any numbers do",
    ("torch.linspace(-1, 1, 12)", "torch.linspace(-1, 2, 12)"): "any numbers do",
    ("call(torch.tanh, (constant,)), 2", "call(torch.tanh, (constant,)), 3"): "any factor does",
}
