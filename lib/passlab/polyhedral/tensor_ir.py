"""Generate TensorIR loops from a schedule, and list the iterations that a TensorIR function visits."""

from __future__ import annotations

import ast as python
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import islpy as isl
import numpy as np

from passlab.polyhedral.codegen import Loop, ast, body_at, called, children, constant, expression, plus, random_arrays
from passlab.polyhedral.dependences import dependences
from passlab.polyhedral.program import Program, Statement, at_sizes
from passlab.polyhedral.schedules import Schedule, depth

if TYPE_CHECKING:
    import tvm

# TVM's kinds of block variables
_DATA_PARALLEL, _REDUCTION, _OPAQUE = 0, 2, 4


def prim_func(
    program: Program,
    schedule: Schedule,
    sizes: Mapping[str, int],
    parallel: Collection[int] = (),
    vectorize: Collection[int] = (),
    unroll: Collection[int] = (),
    dtype: str = "float32",
) -> tvm.tirx.PrimFunc:
    """Return the loops of a schedule as a TensorIR function. Its parameters are the program's arrays, in the order of
    `program.arrays`, each both input and output.

    parallel, vectorize, unroll: dimensions of the times whose loops to mark. A vectorized or unrolled loop needs a
    known trip count: where a tile can be cut off at the border, a plain loop is added for such tiles. Every statement
    is a block with the statement's name and its iteration as values, so that TVM can schedule the function further.
    Raise ValueError for anything but a schedule of the program.
    """
    dims = depth(schedule)
    for dim in [*parallel, *vectorize, *unroll]:
        if not 0 <= dim < dims:
            raise ValueError(f"There is no dimension {dim} to mark: the times of this schedule have {dims}.")
    builder = _Builder(program, sizes, dtype, {"parallel": parallel, "vectorize": vectorize, "unroll": unroll})
    return builder.function(builder.statement(ast(program, schedule, sizes), builder.sizes))


def by_hand(program: Program, sizes: Mapping[str, int], dtype: str = "float32") -> tuple[Callable, Callable]:
    """Return the two helpers that a hand-written generator needs: `statement(name, values)` makes the block that runs a
    statement at an iteration given by TensorIR expressions, `function(body)` a function like those of `prim_func`.
    """
    builder = _Builder(program, sizes, dtype, {})

    def statement(name: str, values: Sequence[Any]) -> tvm.tirx.Stmt:
        names = [python.Name(f"value {number}") for number in range(len(values))]
        return builder.block(name, names, {variable.id: value for variable, value in zip(names, values, strict=True)})

    return statement, builder.function


def compiled(
    program: Program,
    schedule: Schedule,
    sizes: Mapping[str, int],
    arrays: Mapping[str, np.ndarray] | None = None,
    **marks: Any,
) -> Callable[[], dict[str, np.ndarray]]:
    """Compile the loops of a schedule for this machine; return a function that runs them and returns the arrays.

        timed({"as written": compiled(p, p.schedule, sizes), "tiled": compiled(p, tiles, sizes, parallel=[0])})

    It keeps copies of the arrays (random ones if none are given); each call works on the result of the last one.
    """
    from passlab.relax import tvm
    from passlab.relax.pipelines import host

    arrays = random_arrays(program, sizes) if arrays is None else arrays
    function = tvm.compile(prim_func(program, schedule, sizes, **marks), host())["main"]
    tensors = {name: tvm.runtime.tensor(arrays[name]) for name in program.arrays}
    views = {name: np.from_dlpack(tensor) for name, tensor in tensors.items()}

    def run() -> dict[str, np.ndarray]:
        function(*tensors.values())
        return views

    return run


class _Builder:
    """Builds TensorIR from isl's AST."""

    def __init__(self, program: Program, sizes: Mapping[str, int], dtype: str, marks: Mapping[str, Collection[int]]):
        from passlab.relax import tvm

        self.tvm, self.tir, self.program, self.dtype, self.marks = tvm, tvm.tirx, program, dtype, marks
        self.sizes = {name: sizes[name] for name in program.parameters}
        shapes = program.shapes(sizes)
        self.buffers = {name: self.tir.decl_buffer(shapes[name], dtype, name, layout=None) for name in program.arrays}
        self.kinds = {statement.name: iterator_kinds(program, statement) for statement in program.statements}
        self.extents = {statement.name: self._extents(statement) for statement in program.statements}

    def _extents(self, statement: Statement) -> list[tuple[int, int]]:
        domain = at_sizes(self.program, statement.domain, self.sizes)
        if domain.is_empty():
            return []
        ends = [(domain.dim_min_val(at), domain.dim_max_val(at)) for at in range(len(statement.iterators))]
        return [(low.to_python(), high.to_python() - low.to_python() + 1) for low, high in ends]

    def function(self, body: tvm.tirx.Stmt) -> tvm.tirx.PrimFunc:
        s_tir = self.tvm.s_tir
        root = s_tir.SBlock([], [], [], "root", body)
        function = self.tir.PrimFunc(list(self.buffers.values()), s_tir.SBlockRealize([], True, root))
        return function.with_attrs({"global_symbol": "main", "tirx.noalias": True, "s_tir": True})

    def statement(self, node: isl.AstNode, values: Mapping[str, Any]) -> tvm.tirx.Stmt:
        kind = isl.ast_node_type
        match node.get_type():
            case kind.block:
                return self.tir.SeqStmt([self.statement(child, values) for child in children(node)])
            case kind.for_:
                return self.loop(Loop(node), values)
            case kind.if_:
                test = self.number(expression(node.if_get_cond()), values)
                else_ = self.statement(node.if_get_else_node(), values) if node.if_has_else_node() else None
                return self.tir.IfThenElse(test, self.statement(node.if_get_then_node(), values), else_)
            case kind.user:
                return self.block(*called(node), values)
        raise ValueError(f"Cannot turn a node of isl's AST of type {node.get_type()} into loops.")

    def loop(self, loop: Loop, values: Mapping[str, Any]) -> tvm.tirx.Stmt:
        """Return a loop with the marks of its dimension. It begins at 0: in loops that do not, TVM 0.27
        (CanonicalizeLoop) shifts the uses of the variable in blocks, but not in the bounds of inner loops.
        """
        kinds = self.tir.ForKind
        first = self.number(loop.first, values)
        turns = self.number(plus(loop.last, 1), values) - first
        turns = self.tvm.sym.Analyzer().simplify((turns + loop.step - 1) // loop.step)

        def for_loop(turns: Any, kind: Any) -> tvm.tirx.Stmt:
            variable = self.tir.Var(loop.name, "int32")
            body = self.statement(loop.body, {**values, loop.name: first + variable * loop.step})
            return self.tir.For(variable, 0, turns, kind, body)

        marks = [kind for kind, dims in self.marks.items() if loop.dim in dims]
        if not marks:
            return for_loop(turns, kinds.SERIAL)
        if marks[0] == "parallel":
            return for_loop(turns, kinds.PARALLEL)
        kind = {"vectorize": kinds.VECTORIZED, "unroll": kinds.UNROLLED}[marks[0]]
        if isinstance(turns, self.tir.IntImm):
            return for_loop(turns, kind)
        bound = _most_turns(loop)
        if bound is None:
            return for_loop(turns, kinds.SERIAL)
        return self.tir.IfThenElse(turns == bound, for_loop(bound, kind), for_loop(turns, kinds.SERIAL))

    def block(self, name: str, iteration: list[python.expr], values: Mapping[str, Any]) -> tvm.tirx.Stmt:
        """Return the block of a statement at an iteration; its variables are those of the statement."""
        statement, tir, s_tir, ir = self.program[name], self.tir, self.tvm.s_tir, self.tvm.ir
        inner, variables = dict(self.sizes), []
        for iterator, kind, (low, extent) in zip(
            statement.iterators, self.kinds[name], self.extents[name], strict=True
        ):
            inner[iterator] = tir.Var(iterator, "int32")
            variables.append(tir.IterVar(ir.Range.from_min_extent(low, extent), inner[iterator], kind))
        node = body_at(self.program, name, [python.Name(iterator) for iterator in statement.iterators])
        target = node.targets[0] if isinstance(node, python.Assign) else node.target
        value = node.value if isinstance(node, python.Assign) else python.BinOp(target, node.op, node.value)
        buffer, indices = self.element(target, inner)
        store = tir.BufferStore(buffer, self.value(value, inner), indices)

        def regions(nodes: list[python.Subscript]) -> list[Any]:
            unique = {python.unparse(node): self.element(node, inner) for node in nodes}
            point = ir.Range.from_min_extent
            return [tir.BufferRegion(buffer, [point(at, 1) for at in indices]) for buffer, indices in unique.values()]

        reads = [node for node in python.walk(value) if isinstance(node, python.Subscript)]
        block = s_tir.SBlock(variables, regions(reads), regions([target]), name, store)
        return s_tir.SBlockRealize([self.number(part, values) for part in iteration], True, block)

    # Expressions

    def element(self, node: python.Subscript, values: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        parts = node.slice.elts if isinstance(node.slice, python.Tuple) else [node.slice]
        return self.buffers[node.value.id], [self.number(part, values) for part in parts]

    def number(self, node: python.expr, values: Mapping[str, Any]) -> Any:
        """Translate an integer or boolean expression: a subscript, bound or condition."""
        tir = self.tir
        match node:
            case python.Constant(value=value):
                return tir.const(value, "int32")
            case python.Name(id=name):
                value = values[name]
                return tir.const(value, "int32") if isinstance(value, int) else value
            case python.UnaryOp(op=python.USub()):
                return -self.number(node.operand, values)
            case python.BinOp():
                left, right = self.number(node.left, values), self.number(node.right, values)
                return _WHOLE[type(node.op)](left, right)
            case python.Compare():
                left, right = self.number(node.left, values), self.number(node.comparators[0], values)
                return _COMPARED[type(node.ops[0])](left, right)
            case python.BoolOp():
                join = tir.all if isinstance(node.op, python.And) else tir.any
                return join(*(self.number(part, values) for part in node.values))
            case python.IfExp():
                return tir.Select(*(self.number(part, values) for part in (node.test, node.body, node.orelse)))
            case python.Call(func=python.Name(id="min" | "max" as function)):
                return reduce(getattr(tir, function), (self.number(part, values) for part in node.args))
        raise ValueError(f"`{python.unparse(node)}` is not an integer expression of TensorIR.")

    def value(self, node: python.expr, values: Mapping[str, Any]) -> Any:
        """Translate the right-hand side of a statement."""
        tir = self.tir
        match node:
            case python.Subscript():
                return tir.BufferLoad(*self.element(node, values))
            case python.Constant(value=value):
                return tir.const(value, self.dtype)
            case python.Name():
                return self.number(node, values).astype(self.dtype)
            case python.UnaryOp():
                value = self.value(node.operand, values)
                return -value if isinstance(node.op, python.USub) else value
            case python.BinOp():
                return _REAL[type(node.op)](self.value(node.left, values), self.value(node.right, values))
            case python.Call(func=python.Name(id=function)):
                operands = [self.value(part, values) for part in node.args]
                if function in ("abs", "sqrt", "exp"):
                    return getattr(tir, function)(operands[0])
                return reduce(getattr(tir, function), operands)
        raise ValueError(f"`{python.unparse(node)}` has no counterpart in TensorIR.")


_WHOLE = {
    python.Add: lambda a, b: a + b,
    python.Sub: lambda a, b: a - b,
    python.Mult: lambda a, b: a * b,
    python.FloorDiv: lambda a, b: a // b,
    python.Mod: lambda a, b: a % b,
}
_REAL = {**_WHOLE, python.Div: lambda a, b: a / b}
_COMPARED = {
    python.Eq: lambda a, b: a == b,
    python.LtE: lambda a, b: a <= b,
    python.Lt: lambda a, b: a < b,
    python.GtE: lambda a, b: a >= b,
    python.Gt: lambda a, b: a > b,
}


def _most_turns(loop: Loop) -> int | None:
    """Bound the trip count of a loop from max(…) to min(…), if two of their parts are a fixed distance apart."""

    def parts(node: python.expr) -> list[python.expr]:
        return node.args if isinstance(node, python.Call) else [node]

    pairs = [(low, high) for low in parts(loop.first) for high in parts(loop.last)]
    distances = [constant(python.BinOp(high, python.Sub(), low)) for low, high in pairs]
    return min((distance // loop.step + 1 for distance in distances if distance is not None), default=None)


def iterator_kinds(program: Program, statement: Statement) -> list[int]:
    """Return TVM's kind for each loop around a statement: data-parallel, reduction, or opaque."""
    union = isl.UnionSet.from_set(statement.domain)
    own = dependences(program).intersect_domain(union).intersect_range(union)
    if own.is_empty():
        return [_DATA_PARALLEL] * len(statement.iterators)
    update = isinstance(python.parse(statement.body).body[0], python.AugAssign)
    same_element = statement.writes.apply_range(statement.writes.reverse())
    kind = _REDUCTION if update and own.is_subset(same_element) else _OPAQUE
    distances = isl.Set.from_union_set(own.deltas())
    still = [distances.plain_get_val_if_fixed(isl.dim_type.set, at) for at in range(len(statement.iterators))]
    return [_DATA_PARALLEL if value.is_zero() else kind for value in still]


# ── The iterations of a function ──────────────────────────────────────────────────────────────────────────────────────


class TooMany(ValueError):
    """A function visits more iterations than allowed, or its loops turn too often."""


def visits(function: Any, most: int | None = None, turns: int | None = None) -> list[tuple[str, tuple[int, ...]]]:
    """List the iterations that a TensorIR function visits, ("S", (0, 1)), in order: its innermost blocks and their
    values.

    Parallel, vectorized and unrolled loops are walked in sequence. Raise ValueError for a bound or branch that depends
    on values in memory or divides by 0, and TooMany for more than `most` iterations, or for loops that turn more than
    `turns` times in all.
    """
    lines, iterations = _Walker().lines(function.body, "  "), []
    code = "\n".join(["def walk(note):", *lines, "  return"])
    count = itertools.count()

    def limited(loop: range) -> Iterator[int]:
        for turn in loop:
            if next(count) == turns:
                raise TooMany(f"The loops of the function turn more than {turns:,} times.")
            yield turn

    names: dict[str, Any] = {"quotient": _quotient, "remainder": _remainder, "turns": limited if turns else iter}
    exec(compile(code, "<visits>", "exec"), names)

    def note(name: str, *values: int) -> None:
        if len(iterations) == most:
            raise TooMany(f"The function visits more than {most:,} iterations.")
        iterations.append((name, values))

    try:
        names["walk"](note)
    except ZeroDivisionError:
        raise ValueError("A bound or a branch of the function divides by 0.") from None
    return iterations


def _quotient(a: int, b: int) -> int:
    """Return a / b, rounded towards zero."""
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _remainder(a: int, b: int) -> int:
    return a - _quotient(a, b) * b


class _Walker:
    """Translates the loops of a TensorIR function to Python that notes the iterations. Variables are renamed v0, v1, …,
    so that no name of the (untrusted) function reaches the Python text."""

    def __init__(self):
        self.names: dict[Any, str] = {}

    def lines(self, node: Any, indent: str) -> list[str]:
        kind, deeper = type(node).__name__, indent + "  "
        match kind:
            case "SeqStmt":
                return [line for part in node.seq for line in self.lines(part, indent)]
            case "For":
                low, extent = self.text(node.min), self.text(node.extent)
                step = self.text(node.step) if node.step is not None else "1"
                head = f"{indent}for {self.name(node.loop_var)} in turns(range({low}, {low} + {extent}, {step})):"
                return [head, *self.lines(node.body, deeper)]
            case "IfThenElse":
                lines = [f"{indent}if {self.text(node.condition)}:", *self.lines(node.then_case, deeper)]
                if node.else_case is not None:
                    lines += [f"{indent}else:", *self.lines(node.else_case, deeper)]
                return lines
            case "SBlockRealize":
                return [f"{indent}if {self.text(node.predicate)}:", *self.block(node, deeper)]
            case "AttrStmt":
                return self.lines(node.body, indent)
            case "BufferStore" | "Evaluate":
                return [f"{indent}pass"]
        raise ValueError(f"Cannot walk a function with a {kind}: only loops, branches and blocks are supported.")

    def block(self, node: Any, indent: str) -> list[str]:
        block = node.block
        values = [self.text(value) for value in node.iter_values]
        bound = [f"{indent}{self.name(v.var)} = {value}" for v, value in zip(block.iter_vars, values, strict=True)]
        body = self.lines(block.body, indent)
        if any("note(" in line for line in body) or block.name_hint == "root":
            return [*bound, *body]
        arguments = [repr(str(block.name_hint)), *(self.name(variable.var) for variable in block.iter_vars)]
        return [*bound, f"{indent}note({', '.join(arguments)})"]

    def name(self, variable: Any) -> str:
        return self.names.setdefault(variable, f"v{len(self.names)}")

    def text(self, node: Any) -> str:
        kind = type(node).__name__
        if kind == "IntImm":
            return str(int(node.value))
        if kind in ("Var", "SizeVar"):
            if node not in self.names:
                raise ValueError(f"The variable {node.name} has no value before the function runs.")
            return self.names[node]
        if kind in _PYTHON:
            parts = [getattr(node, field) for field in ("a", "b") if hasattr(node, field)]
            return _PYTHON[kind].format(*map(self.text, parts))
        if kind == "Select":
            return f"({self.text(node.true_value)} if {self.text(node.condition)} else {self.text(node.false_value)})"
        if kind == "Call" and node.op.name == "prim.if_then_else":
            test, then_, else_ = map(self.text, node.args)
            return f"({then_} if {test} else {else_})"
        if kind == "Cast":
            return self.text(node.value)
        raise ValueError(f"The expression {str(node)[:60]} has no value before the function runs.")


_PYTHON = {
    **{name: f"({{}} {sign} {{}})" for name, sign in {"Add": "+", "Sub": "-", "Mul": "*", "And": "and"}.items()},
    **{name: f"({{}} {sign} {{}})" for name, sign in {"LT": "<", "LE": "<=", "GT": ">", "GE": ">="}.items()},
    **{name: f"({{}} {sign} {{}})" for name, sign in {"EQ": "==", "NE": "!=", "Or": "or"}.items()},
    **{name: f"({{}} {sign} {{}})" for name, sign in {"FloorDiv": "//", "FloorMod": "%"}.items()},
    **{"Div": "quotient({}, {})", "Mod": "remainder({}, {})"},
    **{"Min": "min({}, {})", "Max": "max({}, {})", "Not": "(not {})"},
}
