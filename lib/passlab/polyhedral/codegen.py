"""Generate loops from an order, as isl's AST and as Python source, and run them."""

from __future__ import annotations

import ast as python
import re
import textwrap
from collections.abc import Mapping

import islpy as isl
import numpy as np

from passlab.polyhedral.program import Program, at_sizes, pairs
from passlab.polyhedral.schedules import Schedule, depth, schedule_of, why_not_a_schedule


def ast(program: Program, schedule: Schedule, sizes: Mapping[str, int] | None = None) -> isl.AstNode:
    """Return loops that visit the iterations in the order of a schedule; `.to_C_str()` shows them as C.

    The loop over dimension d of the times has the variable t{d} (another letter where the program uses t); a dimension
    of one value needs no loop. sizes: numbers for parameters, which saves bounds and branches. Raise ValueError for
    anything but a schedule of the program.
    """
    schedule = schedule_of(schedule)
    if reason := why_not_a_schedule(program, schedule):
        raise ValueError(reason)
    schedule = schedule.intersect_domain(program.domain)
    if sizes:
        schedule = at_sizes(program, schedule, sizes).gist_params(_exactly(program, sizes))
    names_used = " ".join([*program.arrays, *program.parameters])
    letter = next(letter for letter in "tuvwxyz" if not re.search(rf"\b{letter}\d", names_used))
    names = isl.IdList.alloc(isl.DEFAULT_CONTEXT, depth(schedule))
    for dim in range(depth(schedule)):
        names = names.add(isl.Id(f"{letter}{dim}"))
    context = _exactly(program, sizes) if sizes else isl.Set("{ : }")
    return isl.AstBuild.from_context(context).set_iterators(names).node_from_schedule_map(schedule)


def _exactly(program: Program, sizes: Mapping[str, int]) -> isl.Set:
    equal = " and ".join(f"{name} = {int(sizes[name])}" for name in program.parameters)
    return isl.Set(f"[{', '.join(program.parameters)}] -> {{ : {equal} }}")


# ── Python ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def python_source(program: Program, schedule: Schedule, sizes: Mapping[str, int] | None = None) -> str:
    """Return the loops as Python source, in the style of the program's own.

    It runs with the arrays and sizes as names, and can be parsed again unless it branches on several statements.
    """
    module = python.Module(_statements(ast(program, schedule, sizes), program), [])
    return python.unparse(python.fix_missing_locations(module)) + "\n"


def _statements(node: isl.AstNode, program: Program) -> list[python.stmt]:
    kind = isl.ast_node_type
    match node.get_type():
        case kind.block:
            return [line for child in children(node) for line in _statements(child, program)]
        case kind.for_:
            loop = Loop(node)
            body = _statements(loop.body, program)
            stop = plus(loop.last, 1)
            numbers = [stop] if python.unparse(loop.first) == "0" and loop.step == 1 else [loop.first, stop]
            if loop.step != 1:
                numbers.append(python.Constant(loop.step))
            call = python.Call(python.Name("range"), numbers, [])
            return [python.For(python.Name(loop.name), call, body, [])]
        case kind.if_:
            test = expression(node.if_get_cond())
            else_ = _statements(node.if_get_else_node(), program) if node.if_has_else_node() else []
            return [python.If(test, _statements(node.if_get_then_node(), program), else_)]
        case kind.user:
            return [body_at(program, *called(node))]
    raise ValueError(f"Cannot turn a node of isl's AST of type {node.get_type()} into loops.")


class Loop:
    """A loop of isl's AST: its variable, first and last value, step and body."""

    def __init__(self, node: isl.AstNode):
        self.name = node.for_get_iterator().get_id().get_name()
        self.dim = int(self.name[1:])
        self.first = expression(node.for_get_init())
        self.step, self.body = node.for_get_inc().get_val().to_python(), node.for_get_body()
        if node.for_is_degenerate():
            self.last = self.first
            return
        condition = node.for_get_cond()
        bound = expression(condition.get_op_arg(1))
        strict = condition.get_op_type() == isl.ast_expr_op_type.lt
        self.last = plus(bound, -1) if strict else bound


def children(node: isl.AstNode) -> list[isl.AstNode]:
    """Return the nodes of a block, in order."""
    nodes = node.block_get_children()
    return [nodes.get_ast_node(at) for at in range(nodes.n_ast_node())]


def called(node: isl.AstNode) -> tuple[str, list[python.expr]]:
    """Return the name of the statement that a leaf of isl's AST runs, and its iteration."""
    call = node.user_get_expr()
    arguments = [expression(call.get_op_arg(at)) for at in range(1, call.get_op_n_arg())]
    return call.get_op_arg(0).get_id().get_name(), arguments


def body_at(program: Program, name: str, iteration: list[python.expr]) -> python.stmt:
    """Return the assignment of a statement at an iteration given by expressions."""
    statement = program[name]
    (node,) = python.parse(statement.body).body
    return _Renamed(dict(zip(statement.iterators, iteration, strict=True))).visit(node)


class _Renamed(python.NodeTransformer):
    def __init__(self, values: Mapping[str, python.expr]):
        self.values = values

    def visit_Name(self, node: python.Name) -> python.expr:
        return self.values.get(node.id, node)

    def visit_Subscript(self, node: python.Subscript) -> python.expr:
        node.slice = _folded(self.visit(node.slice))  # the array's name stays
        return node


# ── Expressions of isl as Python's ────────────────────────────────────────────────────────────────────────────────────

_OP = isl.ast_expr_op_type
_BINARY = {
    _OP.add: python.Add,
    _OP.sub: python.Sub,
    _OP.mul: python.Mult,
    _OP.div: python.FloorDiv,  # the division is exact
    _OP.fdiv_q: python.FloorDiv,
    _OP.pdiv_q: python.FloorDiv,  # the dividend is not negative
    _OP.pdiv_r: python.Mod,
    _OP.zdiv_r: python.Mod,  # only ever compared with 0
}
_COMPARED = {_OP.eq: python.Eq, _OP.le: python.LtE, _OP.lt: python.Lt, _OP.ge: python.GtE, _OP.gt: python.Gt}
_JOINED = {_OP.and_: python.And, _OP.and_then: python.And, _OP.or_: python.Or, _OP.or_else: python.Or}
_CALLED = {_OP.max: "max", _OP.min: "min"}


def expression(node: isl.AstExpr) -> python.expr:
    """Translate an expression of isl's AST to Python. Raises ValueError for one without a counterpart."""
    match node.get_type():
        case isl.ast_expr_type.int:
            return _number(node.get_val().to_python())
        case isl.ast_expr_type.id:
            return python.Name(node.get_id().get_name())
    kind = node.get_op_type()
    parts = [expression(node.get_op_arg(at)) for at in range(node.get_op_n_arg())]
    if kind in _BINARY:
        return _folded(python.BinOp(parts[0], _BINARY[kind](), parts[1]))
    if kind in _COMPARED:
        return python.Compare(parts[0], [_COMPARED[kind]()], parts[1:])
    if kind in _JOINED:
        return python.BoolOp(_JOINED[kind](), parts)
    if kind in _CALLED:
        return python.Call(python.Name(_CALLED[kind]), parts, [])
    if kind == _OP.minus:
        return python.UnaryOp(python.USub(), parts[0])
    if kind in (_OP.cond, _OP.select):
        return python.IfExp(*parts)
    raise ValueError(f"An expression of isl's AST of type {kind} has no counterpart in Python.")


def _folded(node: python.expr) -> python.expr:
    """Simplify the sums of an expression: (t0 + 1) - 1 is t0."""
    if isinstance(node, python.Tuple):
        return python.Tuple([_folded(part) for part in node.elts])
    terms, constant = _sum(node)
    total = None
    for part, factor in sorted(terms.values(), key=lambda term: term[1] < 0):  # t1 - t0 rather than -t0 + t1
        if factor:
            total = _plus(total, part, factor)
    if total is None:
        return _number(constant)
    return _plus(total, python.Constant(1), constant) if constant else total


def _sum(node: python.expr) -> tuple[dict[str, tuple[python.expr, int]], int]:
    """Split an expression into its terms, text → (term, factor), and a constant."""
    match node:
        case python.Constant(value=int(value)):
            return {}, value
        case python.UnaryOp(op=python.USub()):
            return _scaled(_sum(node.operand), -1)
        case python.BinOp(op=python.Mult()):
            left, right = _sum(node.left), _sum(node.right)
            if not left[0]:
                return _scaled(right, left[1])
            if not right[0]:
                return _scaled(left, right[1])
        case python.BinOp(op=python.Add() | python.Sub() as operator):
            terms, constant = _sum(node.left)
            addends, number = _scaled(_sum(node.right), 1 if isinstance(operator, python.Add) else -1)
            for text, (part, factor) in addends.items():
                terms[text] = part, terms.get(text, (part, 0))[1] + factor
            return terms, constant + number
        case python.BinOp(op=python.FloorDiv() | python.Mod()):
            node = python.BinOp(_folded(node.left), node.op, _folded(node.right))
        case python.Call():
            node = python.Call(node.func, [_folded(argument) for argument in node.args], [])
    return {python.unparse(node): (node, 1)}, 0


def _scaled(total: tuple[dict, int], by: int) -> tuple[dict[str, tuple[python.expr, int]], int]:
    terms, constant = total
    return {text: (part, factor * by) for text, (part, factor) in terms.items()}, constant * by


def _plus(total: python.expr | None, part: python.expr, factor: int) -> python.expr:
    """Return total + factor · part, in the usual notation."""
    size = abs(factor)
    unit = isinstance(part, python.Constant)
    times = python.Constant(size) if unit else part if size == 1 else python.BinOp(_number(size), python.Mult(), part)
    if total is None:
        return times if factor > 0 else python.UnaryOp(python.USub(), times)
    return python.BinOp(total, python.Add() if factor > 0 else python.Sub(), times)


def plus(node: python.expr, number: int) -> python.expr:
    """Add a number to an expression; to a minimum, in each of its parts."""
    if isinstance(node, python.Call):
        return python.Call(node.func, [plus(argument, number) for argument in node.args], [])
    return _folded(python.BinOp(node, python.Add(), python.Constant(number)))


def constant(node: python.expr) -> int | None:
    """Return the value of a constant expression, or None."""
    terms, number = _sum(node)
    return None if any(factor for _, factor in terms.values()) else number


def _number(value: int) -> python.expr:
    return python.Constant(value) if value >= 0 else python.UnaryOp(python.USub(), python.Constant(-value))


# ── Running ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def reference(program: Program, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run the program's own source on copies of the arrays and return the copies."""
    return run_python(program.source, sizes, arrays)


def run_python(source: str, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run Python source on copies of the arrays and return the copies."""
    arrays = {name: array.copy() for name, array in arrays.items()}
    exec(compile(textwrap.dedent(source), "<loops>", "exec"), {"sqrt": np.sqrt, "exp": np.exp, **sizes, **arrays})
    return arrays


def random_arrays(program: Program, sizes: Mapping[str, int], seed: int = 0, dtype: str = "float32") -> dict:
    """Return arrays for a program, with numbers from 1 to 2, so that no statement divides by 0."""
    draw = np.random.default_rng(seed)
    return {name: draw.uniform(1, 2, shape).astype(dtype) for name, shape in program.shapes(sizes).items()}


def order(program: Program, schedule: Schedule, sizes: Mapping[str, int]) -> list[tuple[str, tuple[int, ...]]]:
    """List the iterations at given (small) sizes, ("S", (0, 1)), in the order of their times."""
    return [instance for _, instance in times(program, schedule, sizes)]


def times(program: Program, schedule: Schedule, sizes: Mapping[str, int]) -> list[tuple[tuple, tuple[str, tuple]]]:
    """List (time, iteration) for each iteration at given sizes, in the order of their times."""
    schedule = at_sizes(program, schedule_of(schedule).intersect_domain(program.domain), sizes)
    return sorted((time, iteration) for iteration, (_, time) in pairs(schedule, {}))
