"""Day 4, exercise 6: cases and judge of a cost model.

A situation is a graph and groups of its operations. It says of both sides what each of their kernels moves and
computes, so the judge needs a formula and no clock. On each machine of a case the better side is far ahead, whether
a kernel moves and computes at the same time or in turn.

What the lesson and the benchmark show besides is measured: `sides` builds both sides of a situation and times them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx

from passlab.fx.reader import trace
from passlab.given.day04.cost import MACHINE
from passlab.judge import Case, Finding, core
from passlab.judge.forms import why_not_of_type
from passlab.judge.words import plural

if TYPE_CHECKING:
    from passlab.relax.sides import Sides


class Kernel(NamedTuple):
    """What one kernel moves and computes. `elements`: of its result; `alive`: most values that it holds at a time."""

    bytes: int
    steps: int
    dear: int = 0
    alive: int = 1
    elements: int = 0

    def computes(self, machine: Mapping[str, float]) -> float:
        """Return its steps on a machine, those for exp and the like and for registers included."""
        spilled = 2 * max(0, self.alive - machine["registers"]) * self.elements
        return self.steps + self.dear * machine["dear"] + spilled


@dataclass(frozen=True)
class Situation:
    """A choice: is the function faster with these groups, or with a kernel for each operation?

    `apart` and `fused` are the kernels of the two sides. The name identifies the function: situations with the same
    name and shapes are timed once.
    """

    name: str
    function: Callable = field(compare=False)
    shapes: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[str, ...], ...] = ()
    apart: tuple[Kernel, ...] = field(default=(), compare=False)
    fused: tuple[Kernel, ...] = field(default=(), compare=False)

    def graph(self) -> fx.GraphModule:
        return trace(self.function, *(torch.ones(shape) for shape in self.shapes))

    def named(self, gm: fx.GraphModule) -> list[list[str]]:
        """Return the groups; one group of all operations if there are none."""
        return [list(group) for group in self.groups] or [[n.name for n in gm.graph.nodes if n.op == "call_function"]]

    def gain(self, machine: Mapping[str, float], overlap: bool = True) -> float:
        """Return the speedup of fusing on a machine, if its kernels move and compute at the same time, or in turn."""

        def takes(kernels: Sequence[Kernel]) -> float:
            both = [(k.bytes / machine["bandwidth"], k.computes(machine) * machine["step"]) for k in kernels]
            return sum(machine["launch"] + (max(each) if overlap else sum(each)) for each in both)

        return takes(self.apart) / takes(self.fused)


class Choice(NamedTuple):
    """A situation on a machine. `turned`: the number of the machine that turns the choice round, if the case has it."""

    situation: Situation
    machine: dict[str, float]
    turned: str = ""

    @property
    def fuse(self) -> bool:
        """Return whether fusing is right."""
        return self.situation.gain(self.machine) > 1


def chain(count: int) -> Callable:
    def function(x: Any) -> Any:
        for k in range(count):
            x = torch.relu(x) if k % 3 == 2 else x + 1.0 if k % 3 else x * 0.5
        return x

    return function


def element_wise(count: int, elements: int, dear: int = 0) -> tuple[Kernel, ...]:
    """Return kernels that compute one operation each on every element."""
    return (Kernel(8 * elements, elements),) * count + (Kernel(8 * elements, 0, elements),) * dear


def chained(name: str, count: int, n: int) -> Situation:
    fused = Kernel(8 * n, count * n)
    return Situation(f"a chain of {count} over {name}", chain(count), ((n,),), (), element_wise(count, n), (fused,))


def into_product(name: str, m: int, k: int, n: int) -> Situation:
    product = Kernel(4 * (m * k + k * n + m * n), 2 * m * k * n)
    return Situation(
        f"{name} of the operand of a product",
        lambda x, w: torch.matmul(DEAR[name](x), w),
        ((m, k), (k, n)),
        apart=(Kernel(8 * m * k, 0, m * k), product),
        fused=(product._replace(dear=m * k * n),),
    )


def along_rows(name: str, row: tuple[int, ...], m: int, n: int) -> Situation:
    few = math.prod(row)
    added = Kernel(4 * (few + 2 * m * n), m * n)
    return Situation(
        f"{name} of a row added to a matrix",
        lambda row, x: DEAR[name](row) + x,
        (row, (m, n)),
        apart=(Kernel(8 * few, 0, few), added),
        fused=(added._replace(dear=m * n),),
    )


def to_three(name: str, n: int, besides: int = 0) -> Situation:
    """Return a situation where three operations read one dear value, and other dear operations are in no group."""

    def function(x: Any) -> Any:
        value = DEAR[name](x)
        three = value + 1.0, torch.relu(value), value * 2.0
        return *three, *(torch.tanh(x + float(k)) for k in range(besides))

    rest = element_wise(besides, n, besides)
    return Situation(
        f"{name} with three consumers" + (f", and {2 * besides} operations in no group" if besides else ""),
        function,
        ((n,),),
        tuple((name, reader) for reader in ("add", "relu", "mul")),
        element_wise(3, n, 1) + rest,
        (Kernel(8 * n, n, n),) * 3 + rest,
    )


def to_two(name: str, n: int, middle: str = "abs") -> Situation:
    """Return a chain of three operations that two read: each of two kernels computes it."""

    def function(x: Any) -> Any:
        value = (DEAR | {"abs": torch.abs})[middle](x * 0.5 + 1.0)
        return value + 2.0, torch.relu(value)

    called, dear = ("abs_1", 0) if middle == "abs" else (middle, 1)
    return Situation(
        name,
        function,
        ((n,),),
        (("mul", "add", called, "add_1"), ("mul", "add", called, "relu")),
        element_wise(5 - dear, n, dear),
        (Kernel(8 * n, (4 - dear) * n, dear * n),) * 2,
    )


def sum_to_two(m: int, n: int) -> Situation:
    """Return the sums of long rows, read by two cheap operations: fused, the rows are read twice."""

    def function(x: Any) -> Any:
        value = torch.sum(x, -1, True)
        return value + 2.0, torch.relu(value)

    added = Kernel(4 * (m * n + m), m * n)
    groups = ("sum_1", "add"), ("sum_1", "relu")
    fused = (added._replace(steps=m * n + m),) * 2
    return Situation(
        "sums of rows with two consumers", function, ((m, n),), groups, (added, *element_wise(2, m)), fused
    )


def epilogue(m: int, k: int, n: int, dear: str = "") -> Situation:
    """Return three operations after a product, in one group with it; the operand of the product may be dear."""

    def function(x: Any, w: Any) -> Any:
        return torch.relu(torch.matmul(DEAR[dear](x) if dear else x, w) * 0.5 + 1.0)

    product = Kernel(4 * (m * k + k * n + m * n), 2 * m * k * n)
    before = element_wise(0, m * k, 1 if dear else 0)
    return Situation(
        "operations after a thin product" + (f", {dear} apart" if dear else ""),
        function,
        ((m, k), (k, n)),
        (("matmul", "mul", "add", "relu"),) if dear else (),
        (*before, product, *element_wise(3, m * n)),
        (*before, product._replace(steps=(2 * k + 3) * m * n)),
    )


def centred(name: str, m: int, n: int) -> Situation:
    """Return x minus the sums of its rows: fused, each element adds up its row."""
    apart = Kernel(4 * (m * n + m), m * n), Kernel(4 * (2 * m * n + m), m * n), *element_wise(1, m * n)
    fused = (Kernel(8 * m * n, (n + 2) * m * n),)
    return Situation(name, lambda x: torch.relu(x - torch.sum(x, -1, True)), ((m, n),), (), apart, fused)


def centred_by_powers(name: str, m: int, n: int) -> Situation:
    """Return x minus the sums of a dear operation on its rows: fused, each element computes its whole row."""
    rows = Kernel(4 * (m * n + m), m * n)
    centred = Kernel(4 * (2 * m * n + m), m * n)
    fused = (Kernel(8 * m * n, (n + 1) * m * n, n * m * n),)
    apart = (*element_wise(0, m * n, 1), rows, centred)
    function = lambda x: x - torch.sum(DEAR[name](x), -1, True)  # noqa: E731
    return Situation(f"sums of {name} used by every element", function, ((m, n),), (), apart, fused)


def centred_and_read(m: int, n: int) -> Situation:
    """Return the same with another consumer of the sums, which is in a group with them, too."""

    def function(x: Any) -> tuple:
        value = torch.sum(x, -1, True)
        return torch.relu(x - value), value + 2.0

    every = centred("", m, n)
    apart, (fused,) = (*every.apart, *element_wise(1, m)), every.fused
    groups = ("sum_1", "sub", "relu"), ("sum_1", "add")
    rows = Kernel(4 * (m * n + m), m * n + m)
    return Situation("a sum used by every element, and once", function, ((m, n),), groups, apart, (fused, rows))


def of_four(n: int) -> Situation:
    """Return four consumers of a chain that begins with four inputs: each of four kernels reads them all."""

    def function(a: Any, b: Any, c: Any, d: Any) -> tuple:
        value = chain(5)(a + b + c + d)
        return value + 2.0, torch.relu(value), value * 2.0, torch.abs(value)

    before = ("add", "add_1", "add_2", "mul", "add_3", "relu", "mul_1", "add_4")
    groups = tuple((*before, reader) for reader in ("add_5", "relu_1", "mul_2", "abs_1"))
    apart = (Kernel(12 * n, n),) * 3 + element_wise(9, n)
    return Situation(
        "four consumers of four inputs", function, ((n,),) * 4, groups, apart, (Kernel(20 * n, 9 * n),) * 4
    )


def shifted(m: int, n: int, k: int, operations: int = 0) -> Situation:
    """Return a matrix plus a column that is a product: fused, each element computes its element of the column.

    `operations`: how many operations follow.
    """
    product = Kernel(4 * (m * k + k + m), 2 * m * k)
    return Situation(
        "a product used by every element" + (f", and {operations} operations" if operations else ""),
        lambda x, a, b: chain(operations)(x + torch.matmul(a, b)),
        ((m, n), (m, k), (k, 1)),
        apart=(product, Kernel(4 * (2 * m * n + m), m * n), *element_wise(operations, m * n)),
        fused=(Kernel(4 * (m * k + k + 2 * m * n), (2 * k + 1 + operations) * m * n),),
    )


def scaled(m: int, n: int) -> Situation:
    """Return six operations on a few elements, the first three on a row that is added to a matrix."""
    return Situation(
        "sigmoid of a short row",
        lambda row, x: torch.abs(torch.sigmoid(torch.relu(row) * 2.0) + x) * 0.5,
        ((n,), (m, n)),
        apart=(*element_wise(2, n, 1), Kernel(4 * (n + 2 * m * n), m * n), *element_wise(2, m * n)),
        fused=(Kernel(4 * (n + 2 * m * n), 5 * m * n, m * n),),
    )


def many_alive(count: int, n: int) -> Situation:
    """Return a product of sums that is computed last, when every sum is there: none of them can be given up before."""

    def function(x: Any) -> Any:
        values = [x + float(k) for k in range(count)]
        product = values[0]
        for value in values[1:]:
            product = product * value
        return product

    steps = 2 * count - 1
    apart = element_wise(count, n) + (Kernel(12 * n, n),) * (count - 1)
    fused = (Kernel(8 * n, steps * n, alive=count, elements=n),)  # the sums; x is given up for the last of them
    return Situation(f"a product of {count} sums", function, ((n,),), (), apart, fused)


DEAR = {"exp": torch.exp, "erf": torch.erf, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


def situations(rng: random.Random) -> list[Situation]:
    """Return one of each kind, with random sizes such that one side is far ahead: fusing wins in seven, loses in six.

    Operands of a sum are not among them: there the schedule decides, not the amount of work.
    """
    one, two, third = (rng.choice(list(DEAR)) for _ in range(3))
    elements, few, long = rng.choice((60_000, 100_000)), rng.choice((32, 100, 500)), rng.choice((4, 5, 6))
    n, m, k = rng.choice((256, 384, 512)), rng.choice((32, 64)), rng.choice((4, 5, 6))
    return [
        chained("many elements", long, elements),
        into_product(one, m, 64, n),
        along_rows(two, (300,), n // 2, 300),
        chained("few elements", long + 1, few),
        centred("a sum used by every element", m, n + 128),
        to_two("a cheap chain with two consumers", elements),
        to_three(third, elements // 2),
        epilogue(128, k, 128),
        shifted(m, n, 256),
        scaled(4, 8),
        epilogue(128, k, 128, "exp"),
        centred("a sum of four elements used by four", 2, 4),
        to_three(third, elements // 2, 2),
    ]


def turned(rng: random.Random) -> list[Choice]:
    """Return pairs of choices: one number of the machine differs, and with it the better side."""
    n, rows = rng.choice((50_000, 80_000)), rng.choice((16, 24))
    dear = rng.choice(list(DEAR))
    idle = MACHINE | {"launch": 1e-9, "bandwidth": 1e15, "step": 1e-15}  # nothing on it takes long
    started = idle | {"launch": 1e-6}
    every, product = centred("a sum used by every element", rows, 64), shifted(rows, 64, 256, 4)

    def worth(situation: Situation, launches: float) -> float:
        """Return the step with which the fused kernel computes as long as this many launches take."""
        return launches * started["launch"] / situation.fused[0].steps

    turns = [
        ("launch", along_rows(dear, (300,), rows, 300), MACHINE | {"bandwidth": 1e12}, (1e-3, 1e-8)),
        ("launch", sum_to_two(rows, 20_000), idle | {"bandwidth": 2e10}, (1e-2, 1e-8)),
        ("bandwidth", to_two("a cheap chain with two consumers", n), MACHINE | {"launch": 1e-9}, (1e8, 1e13)),
        ("bandwidth", sum_to_two(rows, 20_000), idle | {"launch": 1e-5}, (1e14, 1e9)),
        ("step", centred("a sum used by every element", rows, 400), MACHINE | {"launch": 1e-9}, (1e-14, 1e-9)),
        *(
            ("dear", to_two(f"{name} with two consumers", n, name), MACHINE | {"launch": 1e-9}, (1, 2000))
            for name in DEAR
        ),
        ("registers", many_alive(rows, 24_000), idle | {"launch": 1e-6, "step": 1e-10}, (64, 2)),
        # Closer ones, which half or double of a term turns: what is read inside moves no bytes, ...
        ("bandwidth", to_three(dear, n), idle | {"launch": 1e-12, "step": 1e-13}, (1e9, 1e14)),
        ("bandwidth", of_four(n), idle | {"launch": 1e-12, "step": 1e-13}, (1e9, 1e14)),
        # ... a sum takes one step for a number, a product two, and so does a value that does not fit.
        ("step", every, started, (worth(every, 1.15), worth(every, 5))),
        ("step", product, started, (worth(product, 3.45), worth(product, 8))),
        ("registers", many_alive(40, 20_000), idle | {"launch": 1e-6, "step": 1e-10}, (64, 2)),
    ]
    return _pairs(turns)


def _pairs(turns: Sequence[tuple[str, Situation, dict[str, float], tuple[float, float]]]) -> list[Choice]:
    """Return two choices for each (number of the machine, situation, machine, values of the number)."""
    return [
        Choice(situation, machine | {number: value}, number)
        for number, situation, machine, values in turns
        for value in values
    ]


def plain_situations(rng: random.Random) -> list[Situation]:
    """Return situations of the core: element-wise operations on tensors of one shape, nothing read twice in a group."""
    one, two = (rng.choice(list(DEAR)) for _ in range(2))
    elements, few = rng.choice((60_000, 100_000)), rng.choice((32, 100, 500))
    return [
        chained("many elements", rng.choice((4, 5, 6)), elements),
        to_three(one, elements // 2),
        chained("few elements", rng.choice((5, 6, 7)), few),
        to_two("a cheap chain with two consumers", elements),
        to_three(two, elements // 2, 2),
    ]


def plain_pairs(rng: random.Random) -> list[Choice]:
    """Return pairs of choices of the core: one number of the machine differs, and with it the better side."""
    n, name = rng.choice((50_000, 80_000)), rng.choice(list(DEAR))
    rest = [other for other in DEAR if other != name]
    cheap, dear = to_two("a cheap chain with two consumers", n), to_two(f"{name} with two consumers", n, name)
    turns = [
        ("bandwidth", cheap, MACHINE | {"launch": 1e-9}, (1e8, 1e13)),
        ("dear", dear, MACHINE | {"launch": 1e-9}, (1, 2000)),
        ("launch", dear, MACHINE | {"bandwidth": 1e12}, (1e-2, 1e-8)),
        ("step", dear, MACHINE | {"launch": 1e-9}, (1e-14, 1e-9)),
        # Each of the others is dear, too.
        *(
            ("dear", to_two(f"{other} with two consumers", n, other), MACHINE | {"launch": 1e-9}, (1, 2000))
            for other in rest
        ),
    ]
    return _pairs(turns)


def plain_bytes(rng: random.Random) -> list[Choice]:
    """Return pairs of the core that half or double of the bytes turns: what is read inside a kernel moves none."""
    n, machine = rng.choice((50_000, 80_000)), MACHINE | {"launch": 1e-12, "step": 1e-13}
    both = to_three(rng.choice(list(DEAR)), n), of_four(n)
    return _pairs([("bandwidth", situation, machine, (1e9, 1e14)) for situation in both])


def cost_case(name: str, choices: Sequence[Choice]) -> Case:
    def build() -> tuple:
        graphs = [choice.situation.graph() for choice in choices]
        triples = zip(graphs, choices, strict=True)
        return ([(gm, choice.situation.named(gm), dict(choice.machine)) for gm, choice in triples],)

    about = ("valid", "cost") if any(choice.turned for choice in choices) else ("valid", "did", "spared")
    return Case(name, build, about, expect=tuple(choices))


def cases() -> list[Case]:
    laptop = [Choice(situation, MACHINE) for situation in situations(random.Random(0))[:5]]
    plain = [Choice(situation, MACHINE) for situation in plain_situations(random.Random(0))]
    return [
        core(cost_case("plain: element-wise operations", plain)),
        core(cost_case("plain: two graphs on two machines each", plain_pairs(random.Random(0))[:4])),
        cost_case("five choices", laptop),
        cost_case("the same graph on two machines", turned(random.Random(0))[:2]),
    ]


@cache
def sides(situation: Situation) -> Sides:
    """Return both sides of a situation, timed once."""
    from passlab.relax.sides import Sides

    gm, generator = situation.graph(), torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for shape in situation.shapes]
    both = Sides.of(gm, situation.named(gm), inputs)
    both.run()
    return both


def judge(case: Case, value: object) -> Iterator[Finding]:
    choices: tuple[Choice, ...] = case.expect
    answers = value if isinstance(value, list) else [value]
    broken = next(filter(None, (why_not_of_type(answer, "True (fuse) or False", bool) for answer in answers)), "")
    yield Finding("valid", not broken, broken)
    if broken:
        return
    pairs = list(zip(choices, answers, strict=True))
    for verdict in ("did", "spared", "cost"):
        part = [pair for pair in pairs if bool(pair[0].turned) is (verdict == "cost")]
        part = [pair for pair in part if verdict != "spared" or not pair[0].fuse]
        wrong = [choice for choice, fuse in part if fuse is not choice.fuse]
        if part:
            yield Finding(verdict, not wrong, _sentence(wrong[0], len(wrong), len(part)) if wrong else "")


def _sentence(choice: Choice, wrong: int, of: int) -> str:
    situation, machine = choice.situation, choice.machine
    where = f"where {choice.turned} is {machine[choice.turned]:g}" if choice.turned else "on this machine"
    sides = [
        f"{plural(len(kernels), 'kernel')}, {sum(k.bytes for k in kernels):,} bytes and "
        f"{sum(k.computes(machine) for k in kernels):,.0f} steps {name}"
        for name, kernels in (("apart", situation.apart), ("fused", situation.fused))
    ]
    right = "fuse" if choice.fuse else "do not fuse"
    return (
        f"{of - wrong} of {of} choices are right. For example, {situation.name}, {where}: {sides[0]}, {sides[1]}. "
        f"So {right}; your answer is {not choice.fuse}."
    )
