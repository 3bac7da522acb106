"""Day 13, breaks: functions as statements, of which the cases are made."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from passlab.judge.travel import record

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Gt: ">", ast.Lt: "<"}


@record
@dataclass(frozen=True)
class Statement:
    """One line of a function.

    `line`: its number, from 1. `op`: what it does: a method ("relu", "item"), a sign ("+", ">"), "[]", a function
    ("print", "time.time"), "if", "for" or "return". `result`: the name that it assigns, or "". `operands`: names and
    numbers. `body`: the lines below an "if" or "for"; `orelse`: those below its "else".
    """

    line: int
    op: str
    result: str = ""
    operands: tuple[str | int | float, ...] = ()
    body: tuple[Statement, ...] = ()
    orelse: tuple[Statement, ...] = ()


def statements(source: str) -> tuple[Statement, ...]:
    """Return the statements of a function's source; each line may have one operation.

    Raises ValueError for a line that is none of these.

    >>> statements("def f(x):\\n    y = x.relu()\\n    print(y)\\n    return y")[0]
    Statement(line=2, op='relu', result='y', operands=('x',), body=(), orelse=())
    """
    function: Any = ast.parse(source).body[0]
    return _block(function.body)


def _block(lines: list[ast.stmt]) -> tuple[Statement, ...]:
    return tuple(_statement(line) for line in lines)


def _statement(line: ast.stmt) -> Statement:
    at = line.lineno
    match line:
        case ast.Assign([ast.Name(result)], value):
            op, operands = _operation(value, at)
            return Statement(at, op, result, operands)
        case ast.Expr(value):
            op, operands = _operation(value, at)
            return Statement(at, op, "", operands)
        case ast.If(test, body, orelse):
            return Statement(at, "if", "", (_operand(test, at),), _block(body), _block(orelse))
        case ast.For(ast.Name(result), ast.Call(ast.Name("range"), [count]), body, []):
            return Statement(at, "for", result, (_operand(count, at),), _block(body))
        case ast.Return(ast.Name() as value):
            return Statement(at, "return", "", (_operand(value, at),))
    raise _unreadable(line, at)


def _operation(value: ast.expr, at: int) -> tuple[str, tuple]:
    match value:
        case ast.BinOp(left, sign, right) | ast.Compare(left, [sign], [right]) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)], (_operand(left, at), _operand(right, at))
        case ast.Subscript(base, index):
            return "[]", (_operand(base, at), _operand(index, at))
        case ast.Call(ast.Name(name), operands):
            return name, tuple(_operand(operand, at) for operand in operands)
        case ast.Call(ast.Attribute(ast.Name("time" | "random" as module), name), []):
            return f"{module}.{name}", ()
        case ast.Call(ast.Attribute(ast.Name(base), name), []):
            return name, (base,)
    raise _unreadable(value, at)


def _operand(value: ast.expr, at: int) -> str | int | float:
    match value:
        case ast.Name(name):
            return name
        case ast.Constant(int() | float() as number):
            return number
    raise _unreadable(value, at)


def _unreadable(node: ast.AST, at: int) -> ValueError:
    text = ast.unparse(node).splitlines()[0]
    return ValueError(f"line {at}: `{text}` is not a statement of this language; write one operation")
