"""Day 4, exercise 6: cases and judge of a cost model. Both sides of every choice are built and timed by the judge.

A situation is a graph and groups of its operations. `passlab.relax.fusing` makes a kernel of each group: it computes
one value, and everything else in the group in place, as often as it is read there. Both sides get the same rule of
scheduling, run one after the other on one core, which disturbs the clock least, and count with their least times.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import fx

from passlab.fx.reader import trace
from passlab.judge import Case, Finding
from passlab.measure import seconds
from passlab.tvm import builds

#: The machine that an answer receives, with the numbers of an ordinary laptop. The question explains them.
MACHINE = {"bandwidth": 2e10, "launch": 1e-6, "step": 1e-10, "dear": 30, "registers": 16}
#: Sides that differ by less than this factor are equally good.
CLOSE = 1.2
#: The share of choices that must be right: of all, and of those for which fusing (or not fusing) is better.
MOST, MANY = 0.9, 0.75
#: Another program may take a core in the middle of a measurement: only several failures in a row are one.
ROUNDS = 4


@dataclass(frozen=True)
class Situation:
    """A choice: is the function faster with these groups, or with a kernel for each operation?

    The name identifies the function: situations with the same name and shapes are timed once.
    """

    name: str
    function: Callable = field(compare=False)
    shapes: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[str, ...], ...] = ()

    def graph(self) -> fx.GraphModule:
        return trace(self.function, *(torch.ones(shape) for shape in self.shapes))

    def named(self, gm: fx.GraphModule) -> list[list[str]]:
        """Return the groups; one group of all operations if there are none."""
        return [list(group) for group in self.groups] or [[n.name for n in gm.graph.nodes if n.op == "call_function"]]


def chain(count: int) -> Callable:
    def function(x: Any) -> Any:
        for k in range(count):
            x = torch.relu(x) if k % 3 == 2 else x + 1.0 if k % 3 else x * 0.5
        return x

    return function


def into_product(dear: Callable) -> Callable:
    return lambda x, w: torch.matmul(dear(x), w)


def along_rows(dear: Callable) -> Callable:
    return lambda row, x: dear(row) + x


def to_three(dear: Callable) -> Callable:
    def function(x: Any) -> Any:
        value = dear(x)
        return value + 1.0, torch.relu(value), value * 2.0

    return function


def to_two(x: Any) -> Any:
    value = torch.abs(x * 0.5 + 1.0)
    return value + 2.0, torch.relu(value)


def epilogue(x: Any, w: Any) -> Any:
    return torch.relu(torch.matmul(x, w) * 0.5 + 1.0)


def after_exp(x: Any, w: Any) -> Any:
    return epilogue(torch.exp(x), w)


def centred(x: Any) -> Any:
    return torch.relu(x - torch.sum(x, -1, True))


def shifted(x: Any, a: Any, b: Any) -> Any:
    return x + torch.matmul(a, b)


def scaled(row: Any, x: Any) -> Any:
    return torch.abs(torch.sigmoid(torch.relu(row) * 2.0) + x) * 0.5


DEAR = {"exp": torch.exp, "erf": torch.erf, "sigmoid": torch.sigmoid}


def situations(rng: random.Random) -> list[Situation]:
    """Return one of each kind, with random sizes such that one side is far ahead: fusing wins in seven, loses in five.

    Operands of a sum are not among them: there the schedule decides, not the amount of work.
    """
    one, two, third = (rng.choice(list(DEAR)) for _ in range(3))
    many, few, long = rng.choice((60_000, 100_000)), rng.choice((32, 100, 500)), rng.choice((4, 5, 6))
    n, m, k = rng.choice((256, 384, 512)), rng.choice((32, 64)), rng.choice((4, 5, 6))
    ends = ("mul", "add", "abs_1", "add_1"), ("mul", "add", "abs_1", "relu")
    thirds = tuple((third, reader) for reader in ("add", "relu", "mul"))
    after = (("matmul", "mul", "add", "relu"),)
    return [
        Situation(f"a chain of {long} over many elements", chain(long), ((many,),)),
        Situation(f"{one} of the operand of a product", into_product(DEAR[one]), ((m, 64), (64, n))),
        Situation(f"{two} of a row added to a matrix", along_rows(DEAR[two]), ((300,), (n // 2, 300))),
        Situation(f"a chain of {long + 1} over few elements", chain(long + 1), ((few,),)),
        Situation("a sum used by every element", centred, ((m, n + 128),)),
        Situation("a cheap chain with two consumers", to_two, ((many,),), ends),
        Situation(f"{third} with three consumers", to_three(DEAR[third]), ((many // 2,),), thirds),
        Situation("operations after a thin product", epilogue, ((128, k), (k, 128))),
        Situation("a product used by every element", shifted, ((m, n), (m, 256), (256, 1))),
        Situation("sigmoid of a short row", scaled, ((8,), (4, 8))),
        Situation("operations after a thin product, exp apart", after_exp, ((128, k), (k, 128)), after),
        Situation("a sum of four elements used by four", centred, ((2, 4),)),
    ]


def cost_case(name: str, choices: Sequence[Situation]) -> Case:
    def build() -> tuple:
        graphs = [choice.graph() for choice in choices]
        return ([(gm, choice.named(gm), dict(MACHINE)) for gm, choice in zip(graphs, choices, strict=True)],)

    return Case(name, build, expect=tuple(choices))


def cases() -> list[Case]:
    return [cost_case("five choices", situations(random.Random(0))[:5])]


def call(answer: Callable, case: Case) -> list:
    return [answer(*choice) for choice in case.build()[0]]


_AS_RELAX = {
    operator.add: "add", operator.sub: "subtract", operator.mul: "multiply", torch.abs: "abs", torch.relu: "nn.relu",
    torch.exp: "exp", torch.erf: "erf", torch.tanh: "tanh", torch.sigmoid: "sigmoid", torch.matmul: "matmul",
}  # fmt: skip


def as_relax(gm: fx.GraphModule) -> Any:
    """Return the graph as a Relax module whose bindings have the names of the nodes."""
    from passlab.relax import relax

    builder, values = relax.BlockBuilder(), {}
    for node in gm.graph.find_nodes(op="placeholder"):
        shape = tuple(node.meta["tensor_meta"].shape)
        values[node] = relax.Var(node.name, relax.TensorType(shape, "float32"))
    (returned,) = gm.graph.output_node().args
    with builder.function("main", list(values.values())):
        with builder.dataflow():
            for node in gm.graph.nodes:
                if node.op == "call_function":
                    emit = builder.emit_output if node is returned else builder.emit
                    values[node] = emit(_expression(node, values), node.name)
            result = values[returned] if isinstance(returned, fx.Node) else None
            if result is None:
                result = builder.emit_output(relax.Tuple([values[node] for node in returned]))
        builder.emit_func_output(result)
    return builder.get()


def _expression(node: fx.Node, values: dict) -> Any:
    from passlab.relax import relax

    if node.target is torch.sum:
        return relax.op.sum(values[node.args[0]], axis=[node.args[1]], keepdims=node.args[2])
    operands = [values[a] if isinstance(a, fx.Node) else relax.const(a, "float32") for a in node.args]
    return operator.attrgetter(_AS_RELAX[node.target])(relax.op)(*operands)


@dataclass
class Sides:
    """The two modules of a situation, and the shortest time of each so far, in seconds."""

    modules: tuple[Any, Any]
    inputs: list[torch.Tensor]
    apart: float = float("inf")
    fused: float = float("inf")

    def run(self) -> None:
        """Time another round. Raise RuntimeError if a side cannot be built or run."""
        for name, module in zip(("apart", "fused"), self.modules, strict=True):
            built = builds.run_module(
                module, [self.inputs], target=_target(), pipeline="none", repeats=3, threads=1, seconds=20
            )
            if not built.ok:
                raise RuntimeError(f"The module of the judge did not run: {built.error}")
            setattr(self, name, min(getattr(self, name), *built.times))

    @property
    def gain(self) -> float:
        """The speedup of fusing."""
        return self.apart / self.fused

    def wrong(self, choice: bool) -> bool:
        """Return whether the other side is clearly faster than this choice."""
        return self.gain < 1 / CLOSE if choice else self.gain > CLOSE


@cache
def sides(situation: Situation) -> Sides:
    """Return both sides of a situation, timed once."""
    from passlab.relax.fusing import fuse, prepare
    from passlab.relax.pipelines import cpu_schedule, kernels

    gm = situation.graph()
    module, groups = prepare(as_relax(gm)), situation.named(gm)
    scheduled = kernels(fuse=False, schedule=cpu_schedule)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for shape in situation.shapes]
    made = Sides((scheduled(module), scheduled(fuse(module, groups, in_place))), inputs)
    made.run()
    return made


def in_place(kernel: Any) -> Any:
    """Return a kernel's loops as the schedule needs them: element-wise operations are computed where they are read.

    Sums go inside the loops that read them, unless there is one for each element: then the schedule puts the reader
    after each tile of sums, as it does where there is no reader.
    """
    from passlab.relax import tvm
    from passlab.relax.fusing import merged

    schedule = tvm.s_tir.Schedule(kernel)
    *before, last = schedule.get_child_blocks(schedule.get_sblock("root"))
    sums = [block for block in before if schedule.get(block).init is not None]
    if any(_sizes(schedule.get(block)) != _sizes(schedule.get(last)) for block in sums):
        return merged(kernel)
    for block in before:
        if block not in sums:
            schedule.compute_inline(block)
    return schedule.mod["main"]


def _sizes(block: Any) -> list[int]:
    """Return the lengths of the loops that are not reductions."""
    return [int(axis.dom.extent) for axis in block.iter_vars if int(axis.iter_type) == 0]


@cache
def _target() -> str:
    from passlab.relax.pipelines import host

    return str(host())


def judge(case: Case, value: object) -> Iterator[Finding]:
    choices: tuple[Situation, ...] = case.expect
    odd = [it for it in value if not isinstance(it, bool)] if isinstance(value, list) else [value]
    yield Finding("valid", not odd, f"Return True (fuse) or False; your answer is {str(odd[0])[:60]}." if odd else "")
    if odd:
        return
    found = []
    for situation, choice in zip(choices, value, strict=True):
        measured = sides(situation)
        for _ in range(ROUNDS - 1):
            if not measured.wrong(choice):
                break
            measured.run()
        found.append((situation, choice, measured, measured.wrong(choice)))
    for verdict, share, wanted in (("did", MANY, True), ("spared", MANY, False), ("cost", MOST, None)):
        about = [it for it in found if wanted is None or (it[2].gain > 1) is wanted]
        wrong = [it for it in about if it[3]]
        short = len(about) - len(wrong) < share * len(about)
        yield Finding(verdict, not short, _said(wrong, len(about)) if short else "")


def _said(wrong: list[tuple], of: int) -> str:
    situation, choice, measured, _ = wrong[0]
    did = "you fuse it" if choice else "you do not fuse it"
    times = f"{seconds(measured.apart)} apart and {seconds(measured.fused)} fused"
    return f"{of - len(wrong)} of {of} choices are right. For example, {situation.name}: it takes {times}, but {did}."
