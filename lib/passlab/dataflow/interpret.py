"""What a program computes: the meaning that every analysis is checked against.

Numbers are whole and of 32 bits: what overflows wraps around. Comparisons give 1 or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from passlab.dataflow.cfg import Program

LOW, HIGH = -(2**31), 2**31 - 1

#: Operation → its meaning on numbers. All of them are pure; `print` is the only one with an effect.
OPS: dict[str, Callable[..., Any]] = {
    "copy": lambda a: a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "min": min,
    "max": max,
    "not": lambda a: not a,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "select": lambda c, a, b: a if c else b,
    "clamp": lambda low, a, high: min(max(low, a), high),
}

#: Operations whose operands may change places.
COMMUTATIVE = {"add", "mul", "min", "max", "and", "or", "eq", "ne"}

#: Other IRs' names for the same.
ALSO = {
    "subtract": "sub",
    "multiply": "mul",
    "negate": "neg",
    "minimum": "min",
    "maximum": "max",
    "compare.LT": "lt",
    "compare.LE": "le",
    "compare.GT": "gt",
    "compare.GE": "ge",
    "compare.EQ": "eq",
    "compare.NE": "ne",
    "__not__": "not",
    "__and__": "and",
    "__or__": "or",
    "convert": "copy",
}


def meaning(op: str) -> str:
    """Return the plain name of an operation: "aten::mul" and "stablehlo.multiply" are "mul"."""
    plain = op.removeprefix("aten::").removeprefix("prim::").removeprefix("stablehlo.")
    return ALSO.get(plain, plain)


def evaluate(op: str, values: Sequence[Any]) -> Any:
    """Return the result of an operation on numbers, wrapped to 32 bits. Raise ValueError for one without a meaning."""
    if (name := meaning(op)) not in OPS:
        raise ValueError(f"The interpreter has no meaning for {op!r}; it knows {', '.join(OPS)}.")
    result = OPS[name](*values)
    return result if isinstance(result, float) else (int(result) - LOW) % 2**32 + LOW


@dataclass
class Run:
    """What happened: the returned values (None if the fuel was used up), what was printed, and `trace`, the state of
    the variables at the start of each block that ran."""

    returned: tuple | None = None
    printed: list[Any] = field(default_factory=list)
    trace: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def run(program: Program, *arguments: Any, fuel: int = 1000) -> Run:
    """Run a program on its arguments, for at most `fuel` blocks.

    Raise ValueError for a wrong number of arguments, a variable that is read before it is assigned, or an operation
    without a meaning here.
    """
    if len(arguments) != len(program.parameters):
        wanted = ", ".join(program.parameters) or "no arguments"
        raise ValueError(f"{program.name} takes {wanted}; it was given {len(arguments)} argument(s).")
    state = dict(zip(program.parameters, arguments, strict=True))
    blocks = {block.name: block for block in program.blocks}
    result, block = Run(), program.entry

    def read(names: tuple[str, ...]) -> list[Any]:
        for name in names:
            if name not in state:
                raise ValueError(f"{program.name}: block {block.name} reads {name}, which has no value yet.")
        return [state[name] for name in names]

    for _ in range(fuel):
        result.trace.append((block.name, dict(state)))
        for line in block.instructions:
            if line.op == "print":
                result.printed.extend(read(line.args))
            elif line.op == "const":
                state[line.dest] = line.value
            else:
                state[line.dest] = evaluate(line.op, read(line.args))
        end = block.terminator
        values = read(end.args)
        if end.kind == "return":
            result.returned = tuple(values)
            break
        block = blocks[end.targets[0 if end.kind == "jump" or values[0] else 1]]
    return result
