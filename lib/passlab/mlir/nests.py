"""Loop nests as text: the meaning of a linalg.generic as loops that can be read, checked and run.

    for d0 in prange(4):
        for d1 in range(8):
            v0 = in0[d0, d1] * in1[d1]
            out0[d0] = out0[d0] + v0

The iterations of `prange` may run in any order (the word is Numba's), those of `range` only upwards. The arrays are
the operands of the linalg.generic: in0, in1, … (ins) and out0, … (outs); the element of one without dimensions is
`in0[()]`. The language only looks like Python: the text is parsed and interpreted, never executed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from passlab.judge.words import plural

#: Longer texts are not read, and nests that take more steps are not run.
CHARACTERS, STEPS = 200_000, 500_000

#: operation of a body → the same in the language of the nests
EXPRESSIONS: dict[str, str] = {
    "arith.addf": "{} + {}",
    "arith.subf": "{} - {}",
    "arith.mulf": "{} * {}",
    "arith.divf": "{} / {}",
    "arith.negf": "-{}",
    "arith.maximumf": "max({}, {})",
    "arith.minimumf": "min({}, {})",
    "arith.addi": "{} + {}",
    "arith.subi": "{} - {}",
    "arith.muli": "{} * {}",
    "arith.maxsi": "max({}, {})",
    "arith.minsi": "min({}, {})",
    "arith.select": "select({}, {}, {})",
    "arith.index_cast": "int({})",
    "arith.sitofp": "float({})",
    "math.exp": "exp({})",
    "math.tanh": "tanh({})",
    "math.sqrt": "sqrt({})",
    "math.absf": "abs({})",
}
#: the predicates of comparisons, in the order of their numbers
_PREDICATES = {
    "arith.cmpi": ("==", "!=", "<", "<=", ">", ">="),
    "arith.cmpf": ("", "==", ">", ">=", "<", "<="),
}


class NestError(ValueError):
    """A text that is not a loop nest, or one that cannot be run."""


def expression(op: Any, *operands: str) -> str:
    """Return an operation of a body as an expression of the nests' language.

    `operands`: the names of its operands. A constant is its number, `linalg.index 1` is `d1`. Raises NestError for an
    operation that the language lacks.
    """
    if op.name == "arith.constant":
        return repr(op.value.value.data)
    if op.name == "linalg.index":
        return f"d{op.dim.value.data}"
    if op.name in _PREDICATES:
        return f"{operands[0]} {_PREDICATES[op.name][op.predicate.value.data]} {operands[1]}"
    if op.name not in EXPRESSIONS:
        raise NestError(f"The language of loop nests has no word for {op.name}.")
    return EXPRESSIONS[op.name].format(*operands)


# ---------------------------------------------------------------------------------------------------- reading

_BINARY: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLS: dict[str, tuple[int, Callable]] = {
    "max": (2, np.maximum),
    "min": (2, np.minimum),
    "select": (3, lambda c, a, b: a if c else b),
    "int": (1, lambda a: np.asarray(a).astype(np.int64)[()]),
    "float": (1, np.float64),
    "exp": (1, np.exp),
    "tanh": (1, np.tanh),
    "sqrt": (1, np.sqrt),
    "abs": (1, abs),
}
_LOOPS = ("range", "prange")


@dataclass(frozen=True)
class Loop:
    """One loop: its variable, how often it runs, and whether its iterations may run in any order."""

    name: str
    size: int
    parallel: bool


@dataclass(frozen=True)
class Nest:
    """A loop nest: its loops from the outermost to the innermost, and the statements of the innermost."""

    loops: tuple[Loop, ...]
    statements: tuple[ast.Assign, ...]
    source: str = field(repr=False, default="")

    def operations(self) -> int:
        """Return the number of operations of an iteration, without those of its indices."""
        return sum(_operations(statement.value) for statement in self.statements)

    def repeated(self) -> tuple[str, int]:
        """Return the expression with an operation that occurs most often, and how often; ("", 0) if none does twice."""
        keys: dict[tuple, int] = {}
        same: dict[int, list[ast.AST]] = {}

        def key(part: Any) -> Any:
            """Return a key that is equal for equal expressions; enter those of operations into `same`."""
            if isinstance(part, list):
                return tuple(map(key, part))
            if not isinstance(part, ast.AST):
                return repr(part)
            if isinstance(part, ast.Subscript):  # the operations of indices do not count
                return ast.unparse(part)
            short = keys.setdefault((type(part), *(key(value) for _, value in ast.iter_fields(part))), len(keys))
            if _is_operation(part):
                same.setdefault(short, []).append(part)
            return short

        for statement in self.statements:
            key(statement.value)
        nodes = max(same.values(), key=len, default=[])
        return (ast.unparse(nodes[0]), len(nodes)) if len(nodes) > 1 else ("", 0)


def parse(source: str) -> Nest:
    """Read a loop nest. Raises NestError, which names the line."""
    if len(source) > CHARACTERS:
        raise NestError(f"The text has {len(source):,} characters; {CHARACTERS:,} are the most that are read.")
    try:
        return _read(source, ast.parse(source).body)
    except NestError:
        raise
    except (MemoryError, RecursionError):
        raise NestError("An expression of the text is nested too deeply to be read.") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"Line {line}, `{_line(source, line)}`," if line else "The text"
        raise NestError(f"{where} cannot be read: {getattr(error, 'msg', None) or error}.") from None


def _read(source: str, body: list[ast.stmt]) -> Nest:
    loops: list[Loop] = []
    while len(body) == 1 and isinstance(body[0], ast.For):
        loops.append(_loop(body[0], source, loops))
        body = body[0].body
    for statement in body:
        if isinstance(statement, ast.For):
            raise _odd(
                statement, source, "a loop beside something else: the nest is perfect, all statements are inside"
            )
        _check_statement(statement, source)
    return Nest(tuple(loops), tuple(body), source)


def _line(source: str, number: int) -> str:
    lines = source.splitlines()
    return lines[number - 1].strip()[:60] if 0 < number <= len(lines) else ""


def _odd(node: ast.AST, source: str, reason: str) -> NestError:
    return NestError(f"Line {node.lineno}, `{_line(source, node.lineno)}`: {reason}.")


def _loop(node: ast.For, source: str, outside: Sequence[Loop]) -> Loop:
    match node:
        case ast.For(
            target=ast.Name(id=name),
            iter=ast.Call(func=ast.Name(id=kind), args=[ast.Constant(value=int(size))], keywords=[]),
            orelse=[],
        ) if kind in _LOOPS and not isinstance(size, bool):
            if any(name == loop.name for loop in outside):
                raise _odd(node, source, f"{name} is the variable of a loop outside it, too")
            return Loop(name, size, kind == "prange")
    raise _odd(node, source, "a loop is `for d0 in range(4):` or `for d0 in prange(4):`, with a number")


def _check_statement(node: ast.stmt, source: str) -> None:
    match node:
        case ast.Assign(targets=[ast.Name()], value=value):
            _check(value, source)
        case ast.Assign(targets=[ast.Subscript(value=ast.Name()) as place], value=value):
            _check(place, source)
            _check(value, source)
        case _:
            raise _odd(node, source, "a statement is `v0 = …` or `out0[…] = …`")


def _check(node: ast.expr, source: str) -> None:
    """Raise NestError for an expression that the language lacks."""
    match node:
        case ast.Name():
            return
        case ast.Constant(value=int(value) | float(value)) if abs(value) < 2**31 and not isinstance(value, bool):
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            parts = [left, right]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            parts = [operand]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            parts = [left, right]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in _CALLS and len(args) == _CALLS[name][0]
        ):
            parts = args
        case ast.Subscript(value=ast.Name(), slice=where):
            parts = _places(where)
        case _:
            raise _odd(node, source, f"`{ast.unparse(node)[:40]}` is not part of the language of loop nests")
    for part in parts:
        _check(part, source)


def _places(where: ast.expr) -> list[ast.expr]:
    return list(where.elts) if isinstance(where, ast.Tuple) else [where]


def _operations(node: ast.AST) -> int:
    """Return the number of operations of an expression, without those of its indices."""
    parts: Iterable[ast.AST] = [] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)
    return _is_operation(node) + sum(map(_operations, parts))


def _is_operation(node: ast.AST) -> bool:
    """Return whether a node computes something; a negative number does not."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.Call) and not negative


# ---------------------------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class Access:
    """One read or write: the array, and the place in it."""

    array: str
    at: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(map(str, self.at)) or '()'}]"


@dataclass
class Iteration:
    """One iteration: the values of the loop variables, and what it read and wrote."""

    point: dict[str, int]
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.point.items()) or "the only iteration"


def run(nest: Nest, arrays: Mapping[str, np.ndarray]) -> Iterator[Iteration]:
    """Run a nest on arrays, which it changes, and yield each iteration when it is done.

    Raises NestError for an unknown name and for an index out of bounds.
    """
    size = sum(1 for statement in nest.statements for _ in ast.walk(statement))
    total = math.prod(max(loop.size, 0) for loop in nest.loops) * max(size, 1)
    if total > STEPS:
        raise NestError(f"The loops take {total:,} steps; {STEPS:,} are the most that are tried.")
    for index in np.ndindex(*(max(loop.size, 0) for loop in nest.loops)):
        iteration = Iteration({loop.name: np.int64(at) for loop, at in zip(nest.loops, index, strict=True)})
        names: dict[str, Any] = dict(iteration.point)
        for statement in nest.statements:
            value = _value(statement.value, names, arrays, iteration, nest)
            match statement.targets[0]:
                case ast.Name(id=name):
                    names[name] = value
                case place:
                    access = _place(place, names, arrays, iteration, nest)
                    iteration.writes.append(access)
                    arrays[access.array][access.at] = value
        yield iteration


def _place(node: ast.Subscript, names: dict, arrays: Mapping, point: Iteration, nest: Nest) -> Access:
    name = node.value.id
    if name not in arrays:
        raise _odd(node, nest.source, f"{name} is not one of the arrays {', '.join(arrays)}")
    at = tuple(_value(part, names, arrays, point, nest) for part in _places(node.slice))
    if not all(isinstance(part, int | np.integer) for part in at):
        raise _odd(node, nest.source, "an index is a whole number; divide with //")
    access, shape = Access(name, tuple(map(int, at))), arrays[name].shape
    if len(at) != len(shape):
        raise _odd(node, nest.source, f"{name} has {plural(len(shape), 'dimension')}, not {len(at)}")
    if not all(0 <= part < size for part, size in zip(access.at, shape, strict=True)):
        raise NestError(f"At {point}, `{ast.unparse(node)}` is {access}, outside {name}, whose shape is {shape}.")
    return access


def _value(node: ast.expr, names: dict, arrays: Mapping, point: Iteration, nest: Nest) -> Any:
    def part(inner: ast.expr) -> Any:
        return _value(inner, names, arrays, point, nest)

    match node:
        case ast.Constant(value=value):
            return np.float64(value) if isinstance(value, float) else np.int64(value)
        case ast.Name(id=name):
            if name not in names:
                raise _odd(node, nest.source, f"nothing gives {name} a value before it is read")
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            with np.errstate(all="ignore"):
                return _BINARY[type(op)](part(left), part(right))
        case ast.UnaryOp(operand=operand):
            return -part(operand)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARE[type(op)](part(left), part(right))
        case ast.Call(func=ast.Name(id=name), args=args):
            with np.errstate(all="ignore"):
                return _CALLS[name][1](*map(part, args))
        case ast.Subscript():
            access = _place(node, names, arrays, point, nest)
            point.reads.append(access)
            return arrays[access.array][access.at]
    raise AssertionError(ast.dump(node))
