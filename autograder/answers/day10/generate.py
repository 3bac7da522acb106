"""Hidden cases and answers of day10.generate.

Most wrong answers are the reference with one step of its walk changed.
"""

from __future__ import annotations

import inspect
import random

import islpy as isl

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day10.generate import (
    EITHER,
    EVERY_FIFTH,
    FIFTHS,
    LINE,
    RECTANGLE,
    SIEVE,
    SOLVE,
    STENCIL,
    TRIANGLE,
    TWO_LOOPS,
    generate_case,
)
from passlab.judge import Case
from passlab.polyhedral.codegen import children, expression
from passlab.relax import tvm

# ---------------------------------------------------------------------------------------------------- hidden cases

#: Near its corner the triangle has rows without a multiple of 3.
THIRDS = """
for i in range(N):
    for j in range(N - i):
        if (j - i) % 3 == 0:
            C[i, j] = A[j, i] - 1
"""


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.sample(range(6, 12), 2)
    a, b, c = rng.randrange(2, 5), rng.randrange(2, 5), rng.choice((-3, -2, 2, 3))
    tiles = f"{{ S[i, j] -> [floor((i - {a}j)/{b + 1}), i - {a}j, j] }}"
    both = f"{{ S[i, j] -> [floor((i - 3j)/{a + 3}), floor((i + j)/{b}), i - 3j, j] }}"
    schedule = f"{{ S[i] -> [{a}i, 0]; T[i, j] -> [{a + 1}i + {b}, j + 1] }}"
    remainders = f"{{ S[i, j] -> [i mod {a}, i, j] }}"
    diagonals = "{ S[i, j] -> [floor(i/4), floor(j/3), i + j, i] }"
    once = "{ S[t, i] -> [floor(t/3), floor((t + i)/4), t, t + i] }"
    tile = f"floor(i/{b})"
    solve = f"{{ S[i] -> [{tile}, i, 0, 0]; T[i, j] -> [{tile}, i, 1, j]; U[i] -> [{tile}, i, 2, 0] }}"
    fifths = f"{{ S[i] -> [floor(i/{a + 2}), i, 0]; T[i] -> [floor(i/{a + 2}), i, 1] }}"
    odd_back = f"{{ S[i] -> [i] : i % 2 = 0; S[i] -> [{2 * n} - i] : i % 2 = 1 }}"
    return [
        generate_case("skewed tiles of a rectangle", RECTANGLE, tiles, run=False, N=n, M=m),
        generate_case("tiles skewed both ways", RECTANGLE, both, N=7, M=9),
        generate_case("a triangle, stretched", TRIANGLE, f"{{ S[i, j] -> [{c}i + j, j] }}", N=n),
        generate_case("a lattice, by remainders", EVERY_FIFTH, remainders, run=False, N=n, M=m),
        generate_case("a triangular solve in tiles", SOLVE, solve, N=n),
        generate_case("two statements far apart", TWO_LOOPS, schedule, N=n),
        generate_case("one iteration", STENCIL, once, run=False, T=1, N=3),
        generate_case("one branch or the other", EITHER, "{ S[i] -> [-i]; T[i] -> [-i] }", N=20 + n),
        generate_case("a branch in a branch", FIFTHS, fifths, N=20),
        generate_case("a sieve by diagonals", SIEVE, "{ S[i, j] -> [i - j, i] }", N=n, M=m),
        generate_case("odd ones from the end", LINE, odd_back, N=2 * n + 1),
        generate_case("a stencil by fronts", STENCIL, "{ S[t, i] -> [2t + i, t] }", T=n, N=m),
        # One loop ends at the least of four numbers, and the loop in it begins at the largest of three.
        generate_case("diagonals in tiles", RECTANGLE, diagonals, run=False, N=9, M=8),
        generate_case("rows in steps, some of them empty", THIRDS, "{ S[i, j] -> [i, j] }", N=8),
    ]


EQUIVALENT = {
    ("node.for_is_degenerate()", "False"): "a loop of one turn does no harm",
    (
        "{op.eq: tirx.EQ, op.le: tirx.LE, op.lt: tirx.LT, op.ge: tirx.GE, op.gt: tirx.GT}",
        "{op.eq: tirx.EQ, op.le: tirx.LE, op.ge: tirx.GE, op.gt: tirx.GT}",
    ): "isl writes <= for whole numbers",
    (
        "{op.eq: tirx.EQ, op.le: tirx.LE, op.lt: tirx.LT, op.ge: tirx.GE, op.gt: tirx.GT}",
        "{op.eq: tirx.EQ, op.le: tirx.LE, op.lt: tirx.LT, op.ge: tirx.GE}",
    ): "isl writes >= for whole numbers",
}

# ---------------------------------------------------------------------------------------------------- answers

tir = tvm.tirx
OP = isl.ast_expr_op_type


def parts(operation):
    return [operation.get_op_arg(at) for at in range(operation.get_op_n_arg())]


MEANING = {
    OP.add: lambda a, b: a + b,
    OP.sub: lambda a, b: a - b,
    OP.mul: lambda a, b: a * b,
    OP.min: tir.min,
    OP.max: tir.max,
    OP.eq: tir.EQ,
    OP.le: tir.LE,
    OP.lt: tir.LT,
    OP.ge: tir.GE,
    OP.gt: tir.GT,
    **dict.fromkeys((OP.div, OP.fdiv_q, OP.pdiv_q), lambda a, b: a // b),
    **dict.fromkeys((OP.pdiv_r, OP.zdiv_r), lambda a, b: a % b),
    **dict.fromkeys((OP.and_, OP.and_then), tir.all),
    **dict.fromkeys((OP.or_, OP.or_else), tir.any),
}
CHOICES = (OP.select, OP.cond)


class Walk:
    """A right walk, of which a subclass can override a step."""

    meaning = MEANING

    def __init__(self, statement):
        self.statement = statement

    def of(self, node, values):
        kinds = isl.ast_node_type
        match node.get_type():
            case kinds.block:
                return tir.SeqStmt([self.of(child, values) for child in children(node)])
            case kinds.if_:
                branch, test = self.of(node.if_get_then_node(), values), self.number(node.if_get_cond(), values)
                other = self.of(node.if_get_else_node(), values) if node.if_has_else_node() else None
                return tir.IfThenElse(test, branch, other)
            case kinds.for_:
                return self.loop(node, values)
        call = parts(node.user_get_expr())
        return self.statement(call[0].get_id().get_name(), [self.number(part, values) for part in call[1:]])

    def loop(self, node, values):
        name = node.for_get_iterator().get_id().get_name()
        first = self.number(node.for_get_init(), values)
        if node.for_is_degenerate():
            return self.of(node.for_get_body(), {**values, name: first})
        step = node.for_get_inc().get_val().to_python()
        stop = self.number(parts(node.for_get_cond())[1], values) + self.inclusive(node.for_get_cond())
        return self.serial_loop(name, first, stop, step, node.for_get_body(), values)

    def inclusive(self, condition):
        return int(condition.get_op_type() == OP.le)

    def serial_loop(self, name, first, stop, step, body, values):
        turn = tir.Var(name, "int32")
        inside = self.of(body, {**values, name: first + turn * step})
        return tir.For(turn, 0, (stop - first + step - 1) // step, tir.ForKind.SERIAL, inside)

    def number(self, value, values):
        if value.get_type() == isl.ast_expr_type.int:
            return tir.const(value.get_val().to_python(), "int32")
        if value.get_type() == isl.ast_expr_type.id:
            return values[value.get_id().get_name()]
        return self.applied(value.get_op_type(), [self.number(part, values) for part in parts(value)])

    def applied(self, kind, numbers):
        if kind == OP.minus:
            return -numbers[0]
        if kind in CHOICES:
            return tir.Select(*numbers)
        result = numbers[0]
        for other in numbers[1:]:
            result = self.meaning[kind](result, other)
        return result


@right("loops turn often enough for these sizes, in steps of 1, and isl's condition stands around their bodies")
def with_conditions(node, statement):
    class LongLoops(Walk):
        def serial_loop(self, name, first, stop, step, body, values):
            turn = tir.Var(name, "int32")
            index = first + turn * step
            inside = tir.IfThenElse(index < stop, self.of(body, {**values, name: index}), None)
            return tir.For(turn, 0, 64, tir.ForKind.SERIAL, inside, step=tir.const(1, "int32"))

    return LongLoops(statement).of(node, {})


@right("evaluates isl's expressions as Python text, with TensorIR's variables for the names")
def by_text(node, statement):
    import ast

    names = {"min": fold(tir.min), "max": fold(tir.max)}

    class Evaluation(Walk):
        def number(self, value, values):
            if value.get_type() == isl.ast_expr_type.op and value.get_op_type() not in (OP.and_, OP.or_):
                kinds = (OP.eq, OP.le, OP.lt, OP.ge, OP.gt, *CHOICES)
                if value.get_op_type() not in kinds:
                    return tir.const(0, "int32") + eval(ast.unparse(expression(value)), names, values)
            return super().number(value, values)

    return Evaluation(statement).of(node, {})


@right("divides as C does where isl knows that rounding makes no difference, and chooses without evaluating both")
def as_in_c_where_allowed(node, statement):
    class DivisionAsInC(Walk):
        meaning = MEANING | {
            **dict.fromkeys((OP.div, OP.pdiv_q), tir.truncdiv),
            **dict.fromkeys((OP.pdiv_r, OP.zdiv_r), tir.truncmod),
        }

        def applied(self, kind, numbers):
            return tir.if_then_else(*numbers) if kind in CHOICES else super().applied(kind, numbers)

    return DivisionAsInC(statement).of(node, {})


@right("unrolls the loops that turn a constant number of times")
def unrolled(node, statement):
    class UnrolledLoops(Walk):
        def serial_loop(self, name, first, stop, step, body, values):
            loop = super().serial_loop(name, first, stop, step, body, values)
            if not isinstance(loop.extent, tir.IntImm):
                return loop
            return tir.For(loop.loop_var, 0, loop.extent, tir.ForKind.UNROLLED, loop.body)

    return UnrolledLoops(statement).of(node, {})


def fold(function):
    def of_all(first, *rest):
        for other in rest:
            first = function(first, other)
        return first

    return of_all


@wrong("valid", "lets the library build the loops")
def by_the_library(node, statement):
    return inspect.getclosurevars(statement).nonlocals["builder"].statement(node, {})


@wrong("did", "a bound is the first number outside, as in range: the last turn of every <= loop is missing")
def as_range(node, statement):
    class ExclusiveBounds(Walk):
        def inclusive(self, condition):
            return 0

    return ExclusiveBounds(statement).of(node, {})


@wrong("did", "min and max are of two numbers")
def of_two(node, statement):
    class BinaryChoice(Walk):
        def applied(self, kind, numbers):
            return super().applied(kind, numbers[:2] if kind in (OP.min, OP.max) else numbers)

    return BinaryChoice(statement).of(node, {})


extent_as_end = edited("did", "the second field of For is its end, not its extent")(
    ("(last - first) // step", "last // step")
)
step_of_one = edited("did", "loops go up by one: the increment is not looked at")(
    ("node.for_get_inc().get_val().to_python()", "1")
)


no_branches = edited("did", "conditions are for speed: the loops have the right bounds anyway")(
    (
        "tirx.IfThenElse(test, loops(node.if_get_then_node(), statement, values), other)",
        "loops(node.if_get_then_node(), statement, values)",
    )
)
drops_else = edited("did", "a condition has one branch: else is dropped")(
    ("loops(node.if_get_else_node(), statement, values) if node.if_has_else_node() else None", "None")
)
first_of_block = edited("did", "of a block only the first part is walked")(("tirx.SeqStmt(parts)", "parts[0]"))
as_in_c = edited("did", "division rounds towards zero, as in C, also for negative numbers")(
    ("lambda a, b: a // b", "tirx.truncdiv")
)
empty_rows = edited("did", "rounds the number of turns toward zero: a loop that begins after its end has one")(
    ("(last - first) // step + 1", "tirx.truncdiv(last - first, tirx.const(step, 'int32')) + 1")
)
new_variables = edited(
    "valid", "a new variable of the same name at each use, or loops with a start and a step, which TVM shifts"
)(("step * turn", 'step * tirx.Var(name, "int32")'))
all_unrolled = edited("same", "unrolls all loops, also those that turn a different number of times each time")(
    ("tirx.ForKind.SERIAL", "tirx.ForKind.UNROLLED")
)
at_once = edited("did", "the loops are parallel, so their turns have no order")(
    ("tirx.ForKind.SERIAL", "tirx.ForKind.PARALLEL")
)


@wrong("valid", "hands over the loops as text")
def as_text(node, statement):
    return node.to_C_str()
