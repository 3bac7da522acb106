"""An interpreter for programs: the reference for every analysis.

Numbers are 32-bit integers that wrap around. Comparisons give 1 or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from passlab.dataflow.cfg import Program

LOW, HIGH = -(2**31), 2**31 - 1

#: Operation → a function on numbers. All of them are pure; only `print` has an effect.
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

#: Commutative operations.
COMMUTATIVE = {"add", "mul", "min", "max", "and", "or", "eq", "ne"}

#: Other IRs' names of operations → ours.
ALIASES = {
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
    return ALIASES.get(plain, plain)


def evaluate(op: str, values: Sequence[Any]) -> Any:
    """Return the result of an operation on numbers, wrapped to 32 bits; text is only copied and compared.

    Raise ValueError for an unknown operation, or operands that it does not apply to.
    """
    if (name := meaning(op)) not in OPS:
        raise ValueError(f"The interpreter does not know {op!r}; it knows {', '.join(OPS)}.")
    try:
        result = OPS[name](*values)
    except TypeError:
        raise ValueError(f"{op} does not apply to {', '.join(map(repr, values)) or 'no operands'}.") from None
    return result if isinstance(result, float | str) else (int(result) - LOW) % 2**32 + LOW


@dataclass
class Run:
    """A run: the returned values (None if the fuel was used up), the printed values, and `trace`, the values of the
    variables at the start of each block that ran."""

    returned: tuple | None = None
    printed: list[Any] = field(default_factory=list)
    trace: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def run(program: Program, *arguments: Any, fuel: int = 1000) -> Run:
    """Run a program on its arguments, for at most `fuel` blocks.

    Raise ValueError for a wrong number of arguments, a variable that is read before it is assigned, or an unknown
    operation.
    """
    if len(arguments) != len(program.parameters):
        parameters = ", ".join(program.parameters) or "no arguments"
        raise ValueError(f"{program.name} takes {parameters}; it was given {len(arguments)} argument(s).")
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
        for instr in block.instructions:
            if instr.op == "print":
                result.printed.extend(read(instr.args))
            elif instr.op == "const":
                state[instr.dest] = instr.value
            else:
                state[instr.dest] = evaluate(instr.op, read(instr.args))
        end = block.terminator
        values = read(end.args)
        if end.kind == "return":
            result.returned = tuple(values)
            break
        block = blocks[end.targets[0 if end.kind == "jump" or values[0] else 1]]
    return result
