"""Day 17, one class for each fault: visible cases and judge."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, fx

from passlab.judge import Case, Finding, shown
from passlab.judge.expect import why_not_selective
from passlab.judge.forms import why_not_a_list

#: Operation → number of operands. All keep the shape and the type of their operands.
OPERATIONS = {
    torch.float32: {"add": 2, "mul": 2, "sub": 2, "maximum": 2, "tanh": 1, "neg": 1, "sin": 1, "abs": 1},
    torch.int64: {"add": 2, "mul": 2, "sub": 2, "maximum": 2, "neg": 1, "abs": 1},
}
#: Relative rounding of the compiler's float32.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Fault:
    """A fault of one kernel. `wrong`: "values", "form" or the message of an error, with {name} and {size} in it.

    `operations`: of the kernel, in order. `cut`: a wrong form has one row less; otherwise it is of another type.
    `integer`: the place of an operand that is of int64, where the kernel is of floats. `large`: the inputs of whole
    numbers are large. `cancels`: before the kernel, the graph subtracts a large x from x + y.
    """

    operations: tuple[str, ...]
    dtype: torch.dtype = torch.float32
    wrong: str = "values"
    cut: bool = False
    integer: int | None = None
    large: bool = False
    cancels: bool = False

    @property
    def kernel(self) -> tuple[tuple[str, ...], torch.dtype]:
        return self.operations, self.dtype


def _spelled(rng: random.Random, graph: fx.Graph, name: str, operands: Sequence[fx.Node]) -> fx.Node:
    """Return a node that calls an operation in one of its spellings."""
    spellings: list[tuple[str, Any]] = [("call_function", getattr(torch, name)), ("call_method", name)]
    if hasattr(operator, name):
        spellings.append(("call_function", getattr(operator, name)))
    op, target = rng.choice(spellings)
    return graph.create_node(op, target, tuple(operands))


def program(rng: random.Random, fault: Fault, last: str = "") -> tuple[fx.GraphModule, list[fx.Node]]:
    """Return a graph that calls a kernel, and the nodes of it. `last`: the operation that reads its result.

    Its inputs are x and y.
    """
    graph, kinds = fx.Graph(), OPERATIONS[fault.dtype]
    x, y = pool = [graph.placeholder("x"), graph.placeholder("y")]
    if fault.cancels:
        total = _spelled(rng, graph, "add", [x, y])
        pool = [y, _spelled(rng, graph, "sub", [total, x])]

    def grow(name: str, first: fx.Node) -> fx.Node:
        node = _spelled(rng, graph, name, [first, *(rng.choice(pool) for _ in range(kinds[name] - 1))])
        pool.append(node)
        return node

    others = [name for name in kinds if name not in fault.operations]
    for _ in range(rng.randint(0, 2) if fault.integer is None and not fault.large else 0):
        grow(rng.choice(others), pool[-1])
    first = pool[-1] if fault.integer is None else pool.pop(1 - fault.integer)  # y is the integer
    nodes = [grow(fault.operations[0], first)]
    for name in fault.operations[1:]:
        pool.remove(nodes[-1])  # one node reads it
        nodes.append(grow(name, nodes[-1]))
    node = grow(last or rng.choice(others), pool[-1])
    if fault.cut:  # a cut operand, and a whole one
        node = _spelled(rng, graph, "mul", [node, graph.find_nodes(op="placeholder")[0]])
    graph.output((node,))
    return fx.GraphModule({}, graph), nodes


def _called(node: fx.Node, env: dict[Any, Tensor]) -> Tensor:
    operands = [env[operand] for operand in node.args]
    function = getattr(Tensor, node.target) if isinstance(node.target, str) else node.target
    return function(*operands)


def compiled(gm: fx.GraphModule, nodes: Sequence[fx.Node], fault: Fault, inputs: Sequence[Tensor]) -> dict[str, Any]:
    """Return a failure: what a compiler with a fault in the kernel of these nodes leaves behind."""
    env: dict[Any, Tensor] = dict(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True))
    values: dict[str, Tensor] = {}
    error = ""
    for at, node in enumerate(gm.graph.nodes):
        if node in env or node.op == "output":
            continue
        try:
            right = _called(node, env)
        except Exception:
            error = f"'{node.name}': operands do not fit."
            break
        if node is nodes[-1]:
            if fault.wrong not in ("values", "form"):
                error = fault.wrong.format(name=node.name, size=right.numel() + at)
                break
            right = _spoilt(right, fault)
        elif right.is_floating_point():
            right = right * (1 + ROUNDING * (-1) ** at)
        env[node] = right
        if node not in nodes[:-1]:
            values[node.name] = right.clone()
    return {"graph": gm, "inputs": tuple(inputs), "values": values, "error": error}


def _spoilt(right: Tensor, fault: Fault) -> Tensor:
    if fault.wrong == "form":
        return right[:-1] if fault.cut else right.to(torch.float64)
    wrong = right.clone()
    wrong.view(-1)[-1] += 1
    return wrong


def _inputs(rng: random.Random, fault: Fault) -> list[Tensor]:
    """Return values of x and y. Of floats, the first of x is NaN."""
    shape, generator = (rng.randint(3, 4), rng.randint(2, 4)), torch.Generator().manual_seed(rng.randrange(10**6))
    whole = [torch.randint(-3, 4, shape, generator=generator) for _ in range(2)]
    if fault.dtype == torch.int64:
        return [10_000 * (part.abs() + 1) for part in whole] if fault.large else whole
    x, y = (torch.randn(shape, generator=generator) for _ in range(2))
    x[0, 0] = torch.nan
    if fault.cancels:
        x = 10_000 * x
    return [x, y if fault.integer is None else whole[1]]


def failures_case(name: str, seed: int, faults: Sequence[Fault], about: Sequence[str] = (), last: str = "") -> Case:
    """Return a case with a failure for each fault, in a drawn order. A fault may be there more than once.

    last: the operation that reads the result of each faulty kernel. Where each fault is there once, nothing is to be
    joined, and the case does not decide `did`.
    """
    if not any(is_same(one, other) for one, other in combinations(faults, 2)):
        about = ("valid", "spared")
    rng = random.Random(seed)
    order = rng.sample(faults, len(faults))
    drawn = [rng.randrange(10**6) for _ in order]

    def build() -> tuple[list[dict[str, Any]]]:
        failures = []
        for fault, number in zip(order, drawn, strict=True):
            own = random.Random(number)
            gm, nodes = program(own, fault, last)
            failures.append(compiled(gm, nodes, fault, _inputs(own, fault)))
        return (failures,)

    return Case(name, build, tuple(about), expect=order)


#: What the compiler says where it raises an error.
SHORT, LONG = "'{name}': {size} bytes are too few.", "no register for '{name}' after {size} values."
#: Messages with two names each, alike but for what is between these.
OVERLAP, WAIT = "'{name}' overlaps 'x'.", "'{name}' waits for 'x'."


def cases() -> list[Case]:
    tanh, add = Fault(("tanh",)), Fault(("add",))
    short, long = (Fault(("mul",), wrong=text) for text in (SHORT, LONG))
    return [
        failures_case("tanh or add, then neg", 1, [tanh, add, add, tanh], last="neg"),
        failures_case("two types", 2, [add, Fault(("add",), torch.int64), add, Fault(("add",), integer=0)]),
        failures_case("errors", 3, [short, long, short, Fault(("tanh",), wrong=SHORT)]),
        failures_case("a kernel of two operations", 4, [Fault(("mul", "add")), add, Fault(("mul", "add")), tanh]),
    ]


# --------------------------------------------------------------------------------------------------------------- judge


def is_same(one: Fault, other: Fault) -> bool:
    """Return whether two failures show one fault: the same kernel and kind, or the same place that raises."""
    if one.wrong not in ("values", "form"):
        return one.wrong == other.wrong
    return (one.kernel, one.wrong) == (other.kernel, other.wrong)


def why_not_classes(value: Any, number: int) -> str:
    """Return why a value is not a list of classes, each a list of numbers of failures, or ""."""
    if reason := why_not_a_list(value, "a list of classes"):
        return reason
    members: set[int] = set()
    for group in value:
        if not isinstance(group, list | tuple | set | frozenset) or not group:
            return f"A class is a list of numbers of failures; one here is {shown(group)}."
        for one in group:
            if type(one) is not int or one not in range(number):
                return f"A class holds {shown(one)}; the failures are the numbers 0 to {number - 1}."
            if one in members:
                return f"Failure {one} is in two classes, or twice in one."
            members.add(one)
    missing = sorted(set(range(number)) - members)
    return f"Failure {missing[0]} is in no class." if missing else ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    faults: Sequence[Fault] = case.expect
    broken = why_not_classes(value, len(faults))
    yield Finding("valid", not broken, broken)
    if broken:
        return
    home = {one: at for at, group in enumerate(value) for one in group}
    apart = mixed = ""
    different = joined = 0
    for one, other in combinations(range(len(faults)), 2):
        same, together = is_same(faults[one], faults[other]), home[one] == home[other]
        if same and not together:
            apart = apart or f"Failures {one} and {other} show the same fault, {told(faults[one])}, and are apart."
        different += not same
        joined += together and not same
        if together and not same:
            tail = f"{one} shows {told(faults[one])}, {other} shows {told(faults[other])}."
            mixed = mixed or f"Failures {one} and {other} are in one class: {tail}"
    apart = apart or why_not_selective(joined, different, "pairs of failures that show different faults")
    yield Finding("did", not apart, apart)
    yield Finding("spared", not mixed, mixed)


def told(fault: Fault) -> str:
    """Return what a fault is, as learners read it."""
    kernel = f"{', '.join(fault.operations)} of {str(fault.dtype).removeprefix('torch.')}"
    if fault.wrong in ("values", "form"):
        return f"a wrong {'value' if fault.wrong == 'values' else 'shape or type'} of the kernel {kernel}"
    return f"the error “{fault.wrong.format(name='…', size='…')}”"
