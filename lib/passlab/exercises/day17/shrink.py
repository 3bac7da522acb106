"""Day 17, a smallest graph that fails for the same reason: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from passlab.exercises.day17._results import operations, why_not_a_program
from passlab.given.day17.shrink import OPERATIONS, Compiler, Fault, reason_of
from passlab.judge import Case, Finding, enough, plural

UNARY = ("tanh", "sigmoid", "neg", "abs", "sin", "cos", "relu")
BINARY = ("add", "sub", "mul", "maximum")
#: Rows and columns of most values.
SHAPE = (2, 3)

Term = Any


class Failing(NamedTuple):
    """A graph with its inputs, the faults of the compiler, and the fewest operations with which it fails like this."""

    gm: fx.GraphModule
    inputs: tuple[Tensor, ...]
    faults: tuple[Fault, ...]
    least: int


class Grower:
    """A graph that grows at random. `values`: nodes of `SHAPE`, or that broadcast with them."""

    def __init__(self, rng: random.Random):
        self.rng, self.graph = rng, fx.Graph()
        self.values = [self.graph.placeholder(name) for name in "xyz"]

    def call(self, name: str, *operands: Any) -> fx.Node:
        return self.graph.call_function(OPERATIONS[name], operands)

    def recent(self) -> fx.Node:
        """Return a value, mostly one of the last."""
        return self.values[-1 - min(int(self.rng.expovariate(0.5)), len(self.values) - 1)]

    def grow(self, count: int, without: Sequence[str] = ()) -> None:
        """Add `count` operations, none of those in `without`."""
        unary, binary = ([name for name in names if name not in without] for names in (UNARY, BINARY))
        for _ in range(count):
            if self.rng.random() < 0.5:
                node = self.call(self.rng.choice(unary), self.recent())
            else:
                node = self.call(self.rng.choice(binary), self.recent(), self.recent())
            self.values.append(self.call("tanh", node) if name_is(node, "mul", "add") else node)

    def plant(self, term: Term, binding: dict[str, fx.Node]) -> fx.Node:
        """Add a term whose variables are values of the graph: new ones where `binding` lacks them."""
        if isinstance(term, str):
            if term not in binding:
                binding[term] = self.call("sin", self.recent())
            return binding[term]
        name, *operands = term
        nodes = [self.plant(operand, binding) for operand in operands]
        rest = {"transpose": (0, 1), "sum": (0, True)}.get(name, ())
        binding.setdefault(f"inner {name}", node := self.call(name, *nodes, *rest))
        return node

    def turned(self) -> fx.Node:
        """Return a new value of `SHAPE` that is transposed."""
        return self.call("transpose", self.call("sin", self.recent()), 0, 1)

    def read(self, node: fx.Node, turned: bool = False) -> fx.Node:
        """Return a value that reads a node; one of another shape becomes a single number."""
        return (
            self.graph.call_function(torch.sum, (node, (0, 1), True))
            if turned or name_is(node, "sum")
            else self.call("neg", node)
        )

    def finish(self) -> fx.GraphModule:
        """Return everything that nothing reads, after a few more operations."""
        ends = [node for node in self.graph.nodes if not node.users and node.op != "placeholder"]
        self.graph.output(tuple(ends))
        return fx.GraphModule({}, self.graph)


def name_is(node: fx.Node, *names: str) -> bool:
    """Return whether a node calls one of the operations of these names."""
    return any(node.target is OPERATIONS[name] for name in names)


def size_of(term: Term) -> int:
    """Return how many operations a term has."""
    return 0 if isinstance(term, str) else 1 + sum(map(size_of, term[1:]))


def failing(seed: int, faults: Sequence[Fault], size: int, at: int = 0, turned: bool = False) -> Failing:
    """Return a graph of about `size` operations on which the fault number `at` is the first to show.

    turned: what its pattern reads was transposed.

    Patterns of the other faults are in the graph, too, after that of this one. Raises ValueError for a fault that does
    not show.
    """
    rng = random.Random(seed)
    own = faults[at]
    reason = reason_of(own[0], own[3])
    for _ in range(100):
        grower = Grower(rng)
        grower.grow(size // 3)
        binding: dict[str, fx.Node] = {name: grower.turned() for name in ("?x", "?y")} if turned else {}
        root = grower.plant(own[1], binding)
        if own[2] > 1:  # each inner operation has another reader
            grower.values += [grower.call("cos", node) for name, node in binding.items() if name.startswith("inner ")]
        grower.values.append(grower.read(root, turned))
        grower.grow(size // 3)
        for _, pattern, _, _ in faults:
            if pattern is not None and pattern is not own[1]:
                grower.values.append(grower.read(grower.plant(pattern, {})))
        grower.grow(size // 3)
        gm = grower.finish()
        generator = torch.Generator().manual_seed(rng.randrange(2**31))
        inputs = tuple(torch.randn(SHAPE, generator=generator) for _ in range(3))
        if Compiler(faults).failure(gm, inputs) == reason:
            return Failing(gm, inputs, tuple(faults), size_of(own[1]))
    raise ValueError(f"The fault {own} shows on no graph.")


def shrink_case(
    name: str, seed: int, faults: Sequence[Fault], size: int = 20, at: int = 0, turned: bool = False
) -> Case:
    """Return a case; see `failing`."""

    def build() -> tuple:
        failure = failing(seed, faults, size, at, turned)
        return failure.gm, failure.inputs, failure.faults

    return Case(name, build, expect=size_of(faults[at][1]))


#: A stage that has no kernel for an input that is returned.
LOWER: Fault = ("lower", None, 1, "an output has no kernel")


def cases() -> list[Case]:
    swapped = ("fold", ("sub", ("tanh", "?x"), "?y"), 1, ("sub", "?y", ("tanh", "?x")))
    missing = ("fuse", ("abs", ("neg", "?x")), 1, "KeyError: 'neg'")
    dropped = ("simplify", ("cos", ("abs", "?x")), 1, ("abs", "?x"))
    shared = ("fuse", ("mul", ("sigmoid", "?x"), "?y"), 2, ("mul", "?x", "?y"))
    product = ("fold", ("sub", ("mul", "?x", "?y"), ("neg", "?x")), 1, ("mul", "?x", "?y"))
    return [
        shrink_case("other results", 1, [swapped, LOWER]),
        shrink_case("an error, and another fault", 2, [missing, dropped]),
        shrink_case("an error without operations", 3, [LOWER, dropped, missing], at=1),
        shrink_case("three operations", 4, [product, missing, LOWER]),
        shrink_case("two readers", 5, [shared, missing], size=12),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    gm, inputs, faults = case.build()
    broken = why_not_a_program(value, "The graph", operations(gm))
    reason, first = "", Compiler(faults).failure(gm, inputs)
    if not broken:
        try:
            reason = Compiler(faults).failure(*value)
        except ValueError as error:
            broken = str(error)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    small = value[0]
    other = f"It fails for another reason: {reason}." if reason else "The compiler does not fail on it."
    yield Finding("same", reason == first, "" if reason == first else f"{other} The whole graph: {first}.", after=small)
    if reason != first:
        return
    unread = next((node.name for node in small.graph.find_nodes(op="placeholder") if not node.users), "")
    yield Finding("spared", not unread, f"Nothing reads the input {unread}.", after=small)
    count, least = operations(small), case.expect
    message = f"The graph has {plural(count, 'operation')}; {enough(least)} to fail for the same reason."
    yield Finding("did", count <= 2 * least, message, after=small)
    yield Finding("cost", count <= least, message, after=small)
