"""Day 9, slots for buffers: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

from passlab.exercises.day05.reuse import ALLOWED, Memory, few, row, rule_bytes, shared
from passlab.judge import Case, Finding, shown
from passlab.judge.forms import why_not_a_dict
from passlab.mlir import parse
from passlab.mlir.modules import printed_lines

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Operation, SSAValue

#: Operations whose result is another name for the memory of an operand.
VIEWS = ("memref.subview", "memref.cast", "arith.select")


def program(*lines: str, parameters: str = "%x: memref<64xf32>, %y: memref<64xf32>", result: str = "") -> str:
    """Return the text of a function of these lines; %c0, %c1 and %c8 are numbers for loops, %zero is 0.0."""
    head = ["%c0 = arith.constant 0 : index", "%c1 = arith.constant 1 : index", "%c8 = arith.constant 8 : index"]
    head.append("%zero = arith.constant 0.0 : f32")
    body = "\n".join(f"  {line}" for text in (*head, *lines) for line in text.split("\n"))
    return f"func.func @main({parameters}){f' -> {result}' if result else ''} {{\n{body}\n}}"


def memref(size: int) -> str:
    return f"memref<{size}xf32>"


def alloc(*names: str, size: int = 64) -> str:
    return "\n".join(f"%{name} = memref.alloc() : {memref(size)}" for name in names)


def fill(name: str, size: int = 64) -> str:
    return f"linalg.fill ins(%zero : f32) outs(%{name} : {memref(size)})"


def copy(source: str, target: str, size: int = 64) -> str:
    return f"linalg.copy ins(%{source} : {memref(size)}) outs(%{target} : {memref(size)})"


def add(one: str, other: str, target: str, size: int = 64) -> str:
    kind, maps = memref(size), ", ".join(["affine_map<(i) -> (i)>"] * 3)
    head = f'linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}}'
    body = "^bb0(%l: f32, %r: f32, %old: f32):\n%s = arith.addf %l, %r : f32\nlinalg.yield %s : f32"
    return f"{head} ins(%{one}, %{other} : {kind}, {kind}) outs(%{target} : {kind}) {{\n{body}\n}}"


def part(name: str, source: str, size: int, width: int) -> str:
    """Return a view of the first elements of a buffer."""
    return f"%{name} = memref.subview %{source}[0] [{width}] [1] : {memref(size)} to {view(width)}"


def view(width: int) -> str:
    return f"memref<{width}xf32, strided<[1]>>"


def move(source: str, source_type: str, target: str, target_type: str) -> str:
    return f'"memref.copy"(%{source}, %{target}) : ({source_type}, {target_type}) -> ()'


def loop(*lines: str, i: str = "i") -> str:
    body = "\n".join(f"  {line}" for text in lines for line in text.split("\n"))
    return f"scf.for %{i} = %c0 to %c8 step %c1 {{\n{body}\n}}"


def exchange(one: str, other: str, results: str, *lines: str, size: int = 64) -> str:
    """Return a loop in which %p and %q are two buffers that change places after each turn; `results` names two."""
    kind = memref(size)
    body = "\n".join(
        f"  {line}" for text in (*lines, f"scf.yield %q, %p : {kind}, {kind}") for line in text.split("\n")
    )
    head = f"{results} = scf.for %k = %c0 to %c8 step %c1 iter_args(%p = %{one}, %q = %{other}) -> ({kind}, {kind})"
    return f"{head} {{\n{body}\n}}"


def drawn(rng: random.Random, steps: int, sizes: tuple[int, ...]) -> str:
    """Return the text of a program of this many steps, with loops in it and views between buffers of several sizes."""
    count = 0
    lines: list[str] = []
    hoisted: list[str] = []

    def name(kind: str) -> str:
        nonlocal count
        count += 1
        return f"{kind}{count}"

    def step(live: list[tuple[str, int]], depth: int) -> list[str]:
        if depth < 2 and rng.random() < 0.2:
            inner = list(live)
            body = [line for _ in range(rng.randint(2, 4)) for line in step(inner, depth + 1)]
            return [loop(*body, i=name("i"))]
        new, size = name("b"), rng.choice(sizes)
        block = []
        if depth and rng.random() < 0.3:
            hoisted.append(alloc(new, size=size))
        elif rng.random() < 0.4 and not depth:
            lines.insert(0, alloc(new, size=size))
        else:
            block.append(alloc(new, size=size))
        old, other = rng.choice(live[-4:])
        if size == other and rng.random() < 0.5:
            third = rng.choice([one for one in live if one[1] == size])
            block.append(add(old, third[0], new, size))
        elif size == other:
            block.append(copy(old, new, size))
        else:
            width = min(size, other)
            block += [fill(new, size), part(v := name("v"), old, other, width), part(w := name("v"), new, size, width)]
            block.append(move(v, view(width), w, view(width)))
        live.append((new, size))
        return block

    live = [("x", 64)]
    for _ in range(steps):
        block = step(live, 0)
        lines += [*hoisted, *block]
        hoisted.clear()
    last, size = live[-1]
    return program(*lines, f"return %{last} : {memref(size)}", result=memref(size))


CHAIN = program(
    *(alloc("a"), copy("x", "a"), alloc("b"), copy("a", "b"), alloc("c"), copy("b", "c"), copy("c", "y"), "return"),
)
HOISTED = program(alloc("a", "b", "c"), copy("x", "a"), copy("a", "b"), copy("b", "c"), copy("c", "y"), "return")
VIEWED = program(
    *(alloc("a"), fill("a"), part("v", "a", 64, 16), alloc("b"), copy("x", "b"), copy("b", "y")),
    *(alloc("c", size=16), move("v", view(16), "c", memref(16)), "return"),
)
#: `a` is written before the loop and read in each of its turns: nothing in the loop may take its slot.
TURNS = program(
    *(alloc("a"), copy("x", "a")),
    loop(alloc("b"), copy("a", "b"), alloc("c"), copy("b", "c"), add("c", "y", "y")),
    *(alloc("d"), copy("y", "d"), copy("d", "y"), "return"),
)
SWAPPED = program(
    *(alloc("a", "b"), copy("x", "a"), fill("b")),
    exchange("a", "b", "%r, %s", copy("p", "q")),
    *(alloc("c"), copy("y", "c"), copy("r", "y"), copy("c", "y"), "return"),
)
RETURNED = program(
    *(alloc("a"), copy("x", "a"), copy("a", "y"), alloc("b"), copy("y", "b"), copy("b", "y")),
    f"return %a : {memref(64)}",
    result=memref(64),
)


def reuse_case(name: str, text: str, about: tuple[str, ...] = ()) -> Case:
    """Return a case: the answer gets the module of this text."""
    return Case(name, lambda: (text,), about)


def cases() -> list[Case]:
    return [
        reuse_case("a chain", CHAIN),
        reuse_case("buffers made at the top", HOISTED),
        reuse_case("a view", VIEWED),
        reuse_case("a loop", TURNS),
        reuse_case("buffers that change places", SWAPPED),
        reuse_case("a buffer that is returned", RETURNED),
        reuse_case("a drawn program", drawn(random.Random(5), 8, (16, 64))),
    ]


@dataclass
class Life:
    """When a buffer is needed, in lines of the module as it is printed.

    `touches`: (first line, last line, why) of each operation that touches it.
    `why`: what makes it more than the line of an operation that names the buffer itself, or "".
    """

    size: int
    touches: list[tuple[int, int, str]]

    @property
    def start(self) -> int:
        return min(first for first, _, _ in self.touches)

    @property
    def end(self) -> int:
        return max(last for _, last, _ in self.touches)

    @property
    def why(self) -> str:
        return max(self.touches, key=lambda touch: touch[1])[2]

    def plain(self, line: int) -> bool:
        """Return whether the line is between two operations that name the buffer itself."""
        own = [first for first, _, reason in self.touches if not reason]
        return bool(own) and min(own) <= line <= max(own)


def lines_of(module: ModuleOp) -> dict[Operation, tuple[int, int]]:
    """Return the first line of each operation in the module as it is printed, and the last line of what is in it."""
    first = {op: line for line, op in printed_lines(module, False)[1]}
    return {op: (line, max(first[inner] for inner in op.walk() if inner in first)) for op, line in first.items()}


def may_be(module: ModuleOp) -> dict[SSAValue, set[SSAValue]]:
    """Return for each value of memref type the results of allocations whose memory it may be."""
    from xdsl.dialects import memref, scf

    aliases: dict[SSAValue, set[SSAValue]] = {}
    pairs: list[tuple[SSAValue, SSAValue]] = []  # (a value, what it may be)
    for op in module.walk():
        if isinstance(op, memref.AllocOp):
            aliases[op.memref] = {op.memref}
        elif op.name in VIEWS:
            pairs += [(op.results[0], operand) for operand in op.operands]
        elif isinstance(op, scf.ForOp):
            passed = op.body.block.last_op.operands
            for argument, result, first, later in zip(
                op.body.block.args[1:], op.results, op.iter_args, passed, strict=True
            ):
                pairs += [(one, value) for one in (argument, result) for value in (first, later)]
    while any(not aliases.get(value, set()) <= aliases.get(name, set()) for name, value in pairs):
        for name, value in pairs:
            aliases.setdefault(name, set()).update(aliases.get(value, set()))
    return aliases


def lives(module: ModuleOp) -> dict[str, Life]:
    """Return the life of each buffer, by its name, in the order of their starts."""
    from xdsl.dialects import scf

    lines, names = lines_of(module), may_be(module)
    spans: dict[str, Life] = {}
    for op in module.walk():
        if isinstance(op, scf.ForOp | scf.YieldOp) or op.name in VIEWS:
            continue  # another name does not use the memory
        for operand in op.operands:
            for buffer in names.get(operand, ()):
                at = op
                while at.parent_block() is not buffer.owner.parent_block():
                    at = at.parent_op()
                first, last, reason = *lines[at], ""
                if op.name == "func.return":
                    reason = "is returned"
                elif at is not op:
                    reason = f"is touched in the loop that begins in line {first}, whose next turn may read it"
                elif operand is not buffer:
                    reason = f"may be what %{operand.name_hint} means in line {first}"
                kind = buffer.type
                life = spans.setdefault(buffer.name_hint, Life(prod(kind.get_shape()) * kind.element_type.size, []))
                life.touches.append((first, last, reason))
    return dict(sorted(spans.items(), key=lambda one: one[1].start))


def memories(spans: Mapping[str, Life]) -> dict[str, Memory]:
    """Return the buffers as day 5's values: a step is a line."""
    return {name: Memory(row(name, life.start, 0, life.size), life.end + 1) for name, life in spans.items()}


def _invalid(value: Any, spans: Mapping[str, Life]) -> str:
    def each(name: str, slot: Any) -> str:
        if type(slot) is int and slot >= 0:
            return ""
        return f"The slot of %{name} is {shown(slot)}; slots are whole numbers from 0 on."

    form = "a dict from the name of a buffer to the number of its slot"
    kind = "the name of a buffer that memref.alloc makes (without its %)"
    return why_not_a_dict(value, form, spans, "slot", kind, each, label="%{}")


def clashes(spans: Mapping[str, Life], slot: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield (verdict, sentence) for each pair in one slot of which one would write over what is still needed."""
    for (first, old), (second, new) in combinations(spans.items(), 2):
        if slot[first] != slot[second] or old.end < new.start:
            continue
        pair = f"%{first} and %{second} share slot {slot[first]}, but"
        if old.plain(new.start):
            yield "same", f"{pair} in line {new.start} both are needed."
        else:
            yield "spared", f"{pair} %{first} is still needed in line {new.start}: it {old.why}."


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: a slot for each buffer. Same, spared: nothing is overwritten. Did, cost: few slots, few bytes."""
    (text,) = case.build()
    spans = lives(parse(text))
    broken = _invalid(value, spans)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    judged = shared(clashes(spans, value))
    yield from judged
    if not all(finding.ok for finding in judged):
        return
    buffers = memories(spans)
    yield few(value, buffers)
    widest: dict[int, int] = {}
    for name, life in spans.items():
        widest[value[name]] = max(widest.get(value[name], 0), life.size)
    total, rule = sum(widest.values()), rule_bytes(buffers)
    message = f"Your slots have {total} bytes in all; by the rule of the text they have {rule}."
    yield Finding("cost", total <= rule * ALLOWED, "" if total <= rule * ALLOWED else message)
