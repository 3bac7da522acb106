"""Hidden cases and answers of day04.codegen.

Most wrong answers are the reference with one expression or buffer changed.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day04.codegen import codegen_case, half, numbers, positive, whole
from passlab.fx.cases import call
from passlab.judge import Case
from passlab.relax import tvm

# ---------------------------------------------------------------------------------------------------- hidden cases


def drawn_group(seed: int, size: int) -> Callable:
    """Return a function of three inputs and element-wise operations at random; some values are used twice."""

    def function(x, y, z):
        rng = random.Random(seed)
        values = [x, y, z]
        for _ in range(size):
            a, b = rng.choice(values[-4:]), rng.choice(values)
            kind = rng.choice(("add", "sub", "mul", "one", "dear", "number", "larger", "where"))
            if kind in ("add", "sub", "mul"):
                values.append(getattr(operator, kind)(a, b))
            elif kind == "one":
                values.append(rng.choice((torch.abs, torch.relu, operator.neg))(a))
            elif kind == "dear":
                values.append(rng.choice((torch.tanh, torch.sigmoid))(a))
            elif kind == "number":
                values.append(rng.choice((a + 2, 0.25 * a, 1 - a, a / 3)))
            elif kind == "larger":
                values.append(rng.choice((torch.maximum, torch.minimum))(a, b))
            else:
                values.append(torch.where(rng.choice((x, y, z)) > 0.25, a, rng.choice((b, 1.5))))
        return values[-1] + (x + y + z) * 0.5  # has the shape of all three

    return function


def squares(x):
    for _ in range(18):
        x = x * x * 0.5
    return x


def waves(x):
    for _ in range(12):
        x = torch.tanh(x) + x
    return x


def halves(x, y):
    return (torch.where(x > y, x * 2, -y), torch.tanh(x) * y)


def rounds(x):
    return x.to(torch.float16).to(torch.float32) * 0.001


def nans(x, y):
    return torch.minimum(x, y) + torch.relu(torch.maximum(y, x)), torch.where(x < y, x, -y), torch.relu(x - y)


def twice(x, unused):
    y = torch.sqrt(torch.abs(x))
    return y, y


def returned_as_it_is(x, y):
    return x, x + y


def chosen(mask, x):
    return torch.where(mask, x, -x), mask * x, mask.to(torch.float32) - x


def of_whole_numbers(n, m):
    return torch.abs(n) - m, torch.relu(n), -n + 2, torch.maximum(n, m), torch.minimum(n, 3 * m)


def made_real(n, x):
    return torch.tanh(n), torch.sigmoid(n) + torch.exp(n * 0), torch.maximum(n, x), torch.sqrt(n * n)


HALVED = torch.tensor((0.1, 2048.0, 0.2, -0.1), dtype=torch.float16)
LARGE = torch.tensor((2**24 + 1, -(2**24) - 3, 7, 2**30 + 1), dtype=torch.int32)
COUNTS = torch.tensor((0, 2049, 256, -1), dtype=torch.int32)


@codegen_case("compared with itself", ..., numbers(11), half(11, dtype=torch.float16))
def itself(x, h):
    return torch.where(x == x, x, 0.5), h == h, torch.where(x < x, 1.0, -x)


WIDE = torch.tensor((2**24 + 1, -(2**24) - 3, 2**24 + 3, 7), dtype=torch.int32)
EXTREME = torch.tensor((math.inf, 0.0, 0.75, -0.5), dtype=torch.float16)
WIDER = torch.tensor((100000.0, 1e-10, 0.75, 0.25), dtype=torch.bfloat16)
NEXT = torch.tensor((2**24, -(2**24) - 4, 2**24 + 3, -7), dtype=torch.int32)


@codegen_case("NaN in minimum and maximum, each of them returned", ..., numbers(3, 9), numbers(9))
def each_returned(x, y):
    return [torch.minimum(x, y), torch.maximum(x, y), torch.sqrt(x)]


@codegen_case("a row and a column of one length, subtracted both ways", ..., numbers(6, 1), numbers(6))
def both_ways(x, y):
    return x - y, y - x


@codegen_case("whole numbers beside fractions", ..., whole(5, 9), numbers(9))
def beside_fractions(n, x):
    return n * 0.5, 0.5 - n, n + x, x * (n > 2)


@codegen_case("a choice between whole numbers and fractions", ..., whole(5, 9), numbers(9))
def chosen_fractions(n, x):
    return torch.where(x > 0, n, 0.1), torch.where(x > 0, n, x)


@codegen_case("whole numbers that float32 rounds", ..., WIDE, NEXT)
def wider_than_float32(n, m):
    return n + m, n * 3, torch.abs(n), torch.relu(n), torch.maximum(n, m), torch.minimum(n, m), n == m, n < m


@codegen_case("a float32 number without dimensions beside float16", ..., HALVED, torch.tensor(0.1))
def beside_a_scalar(h, x):
    return h == x, h > x, h < x


@codegen_case("a comparison with its number on the left", ..., numbers(11))
def number_first(x):
    return call(operator.gt, 0.25, x), torch.where(call(operator.lt, 0.5, x), x, 0.1)


@codegen_case("too large for float16, and not for bfloat16", ..., 100000 * numbers(7), edges=False)
def large(x):
    return x.to(torch.bfloat16).to(torch.float32) * 0.001


@codegen_case("to the type that it has", ..., torch.tensor((300.0, -400.0, 2.0, 0.5), dtype=torch.float16))
def the_same_type(h):
    return (h * h).to(torch.float16) * 0.001


@codegen_case("a bool beside numbers", ..., numbers(5, 9) > 0, whole(5, 9), numbers(9))
def beside_a_bool(mask, n, x):
    return mask + n, n * mask, mask < x, mask == n


@codegen_case("float16 beside bfloat16 and whole numbers", ..., EXTREME, WIDER, whole(4), edges=False)
def beside_halves(h, b, n):
    return h == b, h < b, h + b, h * n


@codegen_case("infinite and negative numbers, and zeros to divide by", ..., numbers(5, 9), whole(5, 9), whole(9))
def extremes(x, n, m):
    return torch.where(x > 0, x, -math.inf), x < math.inf, n * -3 + -2, n / m


@codegen_case("a fraction beside bfloat16", ..., torch.tensor((0.1, 0.2, -0.1, 8.0), dtype=torch.bfloat16), edges=False)
def beside_bfloat16(b):
    return b == 0.1, b < 0.1, b > -0.1


@codegen_case("a number of more than 24 bits", ..., LARGE)
def wide_number(n):
    return n - 16777217, n == 16777217, torch.where(n > 16777216, n, 1073741823)


@codegen_case("whole numbers beside a fraction that is whole", ..., WIDE)
def whole_fraction(n):
    return n == 16777216.0, n > 16777216.0


@codegen_case("whole numbers too large for float16", ..., LARGE, edges=False)
def to_half(n):
    return n.to(torch.float16).to(torch.float32) * 0.001


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.choice((7, 13, 29)), rng.choice((3, 11, 17))

    def casts(x, n):
        return (x * 1000).to(torch.int32) + n, (x > n)

    def conditions(n, x):
        return torch.where(n == 3, n, 0) / (n * n + 1), torch.where(x < n, 1.0, 0.0) * 2.5

    def compared(x, n):
        return x == 0.1, x < 0.1, x == 2049, x == n

    def truths(x, n):
        return torch.where(x.to(torch.bool), 1.0, 0.0) + n.to(torch.bool) * 2.0

    sizes = ((n, 1, m), (m,), (4, 1))
    return [
        codegen_case("squares of squares", squares, numbers(n)),
        codegen_case("each value used twice, and dear", waves, numbers(n), about=("valid", "spared", "did", "cost")),
        codegen_case("NaN on either side", nans, numbers(n, m), numbers(m)),
        codegen_case("float16", halves, half(n, m, dtype=torch.float16), half(m, dtype=torch.float16)),
        codegen_case("float16 and float32", halves, half(n, m, dtype=torch.float16), numbers(m)),
        codegen_case("bfloat16 and a number without dimensions", halves, half(m), half(), edges=False),
        codegen_case("float16 beside what it cannot hold", compared, HALVED, COUNTS),
        itself,
        codegen_case("to bool", truths, torch.tensor((0.5, 0.0, -0.25, 2.0)), COUNTS),
        codegen_case("one over minus nothing", lambda x: 1 / -x, numbers(n, 2)),
        codegen_case("one over the size of nothing", lambda x: 1 / torch.abs(x), numbers(2, n)),
        codegen_case("to whole numbers", casts, numbers(n, m), whole(m), edges=False),
        codegen_case("too large for float16 in between", rounds, 100000 * numbers(n), edges=False),
        codegen_case("one value returned twice, an input unused", twice, numbers(2, n), numbers(3)),
        codegen_case("an input is returned", returned_as_it_is, numbers(n, m), numbers(m)),
        codegen_case("an input of bool", chosen, numbers(n, m) > 0, numbers(n, m)),
        codegen_case("all that whole numbers can do", of_whole_numbers, whole(n, m), whole(m)),
        codegen_case("whole numbers of more than 24 bits", lambda n: torch.where(n > 0, n - 2, -n), LARGE),
        codegen_case("functions of whole numbers", made_real, whole(n, m), numbers(m)),
        codegen_case("whole numbers and a half", conditions, whole(n, m), numbers(n, m)),
        beside_a_bool,
        beside_halves,
        extremes,
        each_returned,
        both_ways,
        beside_fractions,
        chosen_fractions,
        wider_than_float32,
        beside_a_scalar,
        number_first,
        large,
        the_same_type,
        beside_bfloat16,
        wide_number,
        whole_fraction,
        to_half,
        codegen_case("no rows", halves, numbers(m, 0, n), numbers(n)),
        codegen_case("five dimensions", lambda x, y: x - y, numbers(2, 1, 3, 1, 2), numbers(5, 1, 2, 1)),
        *(
            codegen_case(
                f"drawn, number {i + 1}",
                drawn_group(rng.randrange(10**6), 9),
                *(positive(*size) if i else numbers(*size) for size in sizes),
                edges=False,  # TVM takes x - x for 0, also where x is infinite
            )
            for i in range(3)
        ),
    ]


EQUIVALENT = {
    (
        '...((1,), ..., node.name, scope="local", layout=None)',
        "...((1,), ..., node.name, layout=None)",
    ): "TVM keeps one element in a register all the same",
    (
        '...((1,), ..., node.name, scope="local", layout=None)',
        '...((1,), ..., node.name, scope="local")',
    ): "only the layouts of parameters are looked at",
    ("reversed(...)", "..."): "the order of the loops is free",
    ("(torch.float16, ...)", "(...,)"): "LLVM computes in float16, too, and rounds as torch does",
    ('torch.empty(..., dtype=..., device="meta")', "torch.empty(..., dtype=...)"): "only its type is asked for",
    ("a > b, TIR.isnan(a)", "a >= b, TIR.isnan(a)"): "of two equal values either will do",
    ("a < b, TIR.isnan(a)", "a <= b, TIR.isnan(a)"): "of two equal values either will do",
    ("a < TIR.const(0, a.ty.dtype)", "a <= TIR.const(0, a.ty.dtype)"): "of two equal values either will do",
    ("tuple(meta.shape)", "meta.shape"): "a shape is a tuple",
    (
        "... if compares else values[a]",
        "... if True else values[a]",
    ): "what rounds after each operation does as eager torch",
    ("... if compares else a", "... if True else a"): "a number may be rounded to the type that it meets",
}

# ---------------------------------------------------------------------------------------------------- answers

TIR = tvm.tirx


def _meta(node):
    return node.meta["tensor_meta"]


def _name(dtype):
    return str(dtype).removeprefix("torch.")


def _wide(dtype):
    return "float32" if dtype in (torch.float16, torch.bfloat16) else _name(dtype)


def _select(compare):
    return lambda a, b: TIR.Select(TIR.Or(compare(a, b), TIR.isnan(a)), a, b)


TABLE = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "neg", "gt", "lt")},
    **{name: getattr(TIR, name) for name in ("abs", "exp", "tanh", "sigmoid", "sqrt")},
    "eq": lambda a, b: TIR.And(a.equal(b), TIR.Not(TIR.isnan(a))),
    "relu": lambda a: TIR.Select(a < TIR.const(0, a.ty.dtype), TIR.const(0, a.ty.dtype), a),
    "maximum": _select(operator.gt),
    "minimum": _select(operator.lt),
}


def _aligned(loops, shape):
    return [0 if n == 1 else loop for loop, n in zip(loops[len(loops) - len(shape) :], shape, strict=True)]


def _compared(node):
    """Return the type in which a comparison works."""
    sides = [torch.empty(_meta(a).shape, dtype=_meta(a).dtype, device="meta") if isinstance(a, fx.Node) else a
             for a in node.args]  # fmt: skip
    return torch.result_type(*sides)


def _number(a, dtype, compares):
    """Return a number beside an operand: rounded to the type of the comparison, if there is one."""
    return torch.tensor(a, dtype=dtype).item() if compares else a


def _expression(node, values):
    name = node.target if isinstance(node.target, str) else node.target.__name__
    dtype = _meta(node).dtype
    if name == "to":
        return values[node.args[0]].astype(_name(dtype)).astype(_wide(dtype))
    compares = name in ("gt", "lt", "eq")
    dtype = _compared(node) if compares else dtype
    work = _wide(dtype)
    operands = node.args[1:] if name == "where" else node.args
    operands = [
        values[a].astype(_name(dtype) if compares else work).astype(work)
        if isinstance(a, fx.Node)
        else TIR.const(_number(a, dtype, compares), work)
        for a in operands
    ]
    return TIR.Select(values[node.args[0]], *operands) if name == "where" else TABLE[name](*operands)


def _outputs(gm):
    (returned,) = gm.graph.output_node().args
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def _buffer(name, node):
    return TIR.decl_buffer(tuple(_meta(node).shape), _name(_meta(node).dtype), name, layout=None)


def _kernel(gm, registers=True, finish=None):
    """Return the generator. `registers`: each value is in one; else its expression is repeated wherever it is read."""
    outputs = _outputs(gm)
    shape = tuple(_meta(outputs[0]).shape)
    loops = [TIR.Var(f"i{k}", "int32") for k in range(len(shape))]
    places, values, lines = [], {}, []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            places.append(_buffer(node.name, node))
            values[node] = TIR.BufferLoad(places[-1], _aligned(loops, _meta(node).shape))
        elif node.op != "output":
            values[node] = _expression(node, values)
            if registers:
                register = TIR.decl_buffer((1,), str(values[node].ty.dtype), node.name, scope="local", layout=None)
                lines += [TIR.AllocBuffer(register), TIR.BufferStore(register, values[node], [0])]
                values[node] = TIR.BufferLoad(register, [0])
    targets = [_buffer(f"out{k}", node) for k, node in enumerate(outputs)]
    for place, node in zip(targets, outputs, strict=True):
        lines.append(TIR.BufferStore(place, values[node].astype(_name(_meta(node).dtype)), loops))
    if finish:
        return finish(places, targets, loops, lines, shape)
    return TIR.PrimFunc([*places, *targets], _nest(loops, shape, lines))


def _nest(loops, shape, lines):
    body = TIR.SeqStmt(lines) if len(lines) > 1 else lines[0]
    for loop, n in reversed(list(zip(loops, shape, strict=True))):
        body = TIR.For(loop, 0, n, TIR.ForKind.SERIAL, body)
    return body


_TYPES = {"bool": "T.bool", "int32": "T.int32", "float32": "T.float32"}
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "gt": ">", "lt": "<"}


def _in_text(number):
    return number if math.isfinite(number) else f"'{number}'"


def _tvmscript(name, operands, zero, first):
    """Return the text of an operation. first: that of its first operand's value, as it is."""
    if name in _SYMBOLS:
        return f"{operands[0]} {_SYMBOLS[name]} {operands[1]}"
    if name == "eq":
        return f"T.And({operands[0]} == {operands[1]}, T.Not(T.isnan({operands[0]})))"
    if name == "where":
        return f"T.Select({first}, {operands[1]}, {operands[2]})"
    if name == "relu":
        return f"T.Select({operands[0]} < {zero}, {zero}, {operands[0]})"
    if name in ("maximum", "minimum"):
        sign = ">" if name == "maximum" else "<"
        a, b = operands
        return f"T.Select(T.Or({a} {sign} {b}, T.isnan({a})), {a}, {b})"
    return f"-{operands[0]}" if name == "neg" else f"T.{name}({operands[0]})"


@right("a text of TVMScript, parsed at the end")
def as_text(gm):
    outputs, places = _outputs(gm), []
    loops = [f"i{k}" for k in range(len(_meta(outputs[0]).shape))]
    values, lines = {}, []

    def index(indices):
        return ", ".join(map(str, indices)) or "()"

    for node in gm.graph.nodes:
        dtype = None if node.op == "output" else _meta(node).dtype
        if node.op == "placeholder":
            places.append((f"p_{node.name}", node))
            values[node] = f"p_{node.name}[{index(_aligned(loops, _meta(node).shape))}]"
        elif node.op != "output":
            name = node.target if isinstance(node.target, str) else node.target.__name__
            compares = name in ("gt", "lt", "eq")
            inner = _compared(node) if compares else dtype
            work = _wide(inner)
            first = _name(inner) if compares else work
            operands = [f"T.Cast('{work}', T.Cast('{first}', {values[a]}))" if isinstance(a, fx.Node)
                     else f"{_TYPES[work]}({_in_text(_number(a, inner, compares))})"
                     for a in node.args if not isinstance(a, torch.dtype)]  # fmt: skip
            text = (
                f"T.Cast('{work}', T.Cast('{_name(dtype)}', {values[node.args[0]]}))"
                if name == "to"
                else _tvmscript(name, operands, f"{_TYPES[work]}(0)", values.get(node.args[0]))
            )
            kind = "bool" if dtype == torch.bool else work
            lines += [f"v_{node.name} = T.alloc_local((1,), '{kind}')", f"v_{node.name}[0] = {text}"]
            values[node] = f"v_{node.name}[0]"
    for k, node in enumerate(outputs):
        places.append((f"out{k}", node))
        lines.append(f"out{k}[{index(loops)}] = T.Cast('{_name(_meta(node).dtype)}', {values[node]})")
    operands = ", ".join(f"{n}: T.Buffer({tuple(_meta(at).shape)}, '{_name(_meta(at).dtype)}')" for n, at in places)
    text = ["@T.prim_func(s_tir=True)", f"def main({operands}):"]
    for depth, (loop, n) in enumerate(zip(loops, _meta(outputs[0]).shape, strict=True), 1):
        text.append("    " * depth + f"for {loop} in range({n}):")
    text += ["    " * (len(loops) + 1) + line for line in lines]
    return tvm.script.from_source("\n".join(text))


@right("one loop over all elements, from whose number the indices follow")
def one_loop(gm):
    def finish(places, targets, loops, lines, shape):
        at, rest = TIR.Var("at", "int32"), 1
        indices = {}
        for loop, n in reversed(list(zip(loops, shape, strict=True))):
            indices[loop] = TIR.floormod(TIR.floordiv(at, rest), max(n, 1))
            rest *= max(n, 1)
        body = TIR.SeqStmt([TIR.Bind(loop, index) for loop, index in indices.items()] + lines)
        total = rest if 0 not in shape else 0
        return TIR.PrimFunc([*places, *targets], TIR.For(at, 0, total, TIR.ForKind.SERIAL, body))

    return _kernel(gm, finish=finish)


@right("the outermost loop in parallel, and an IRModule")
def parallel(gm):
    def finish(places, targets, loops, lines, shape):
        body = _nest(loops, shape, lines)
        if loops:
            body = TIR.For(body.loop_var, 0, shape[0], TIR.ForKind.PARALLEL, body.body)
        return tvm.IRModule({"main": TIR.PrimFunc([*places, *targets], body)})

    return _kernel(gm, finish=finish)


@wrong("cost", "writes out every value wherever it is read: what is used twice is computed twice")
def inlined(gm):
    return _kernel(gm, registers=False)


@wrong("did", "a loop nest for each operation, and a whole tensor between two of them")
def one_nest_each(gm):
    places, buffers, nests = [], {}, []
    outputs = _outputs(gm)
    targets = [_buffer(f"out{k}", node) for k, node in enumerate(outputs)]
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            places.append(_buffer(node.name, node))
            buffers[node] = places[-1]
        elif node.op != "output":
            dtype = _meta(node).dtype
            shape = tuple(_meta(node).shape)
            loops = [TIR.Var(f"{node.name}_{k}", "int32") for k in range(len(shape))]
            values = {a: TIR.BufferLoad(buffers[a], _aligned(loops, _meta(a).shape)) for a in node.all_input_nodes}
            buffers[node] = TIR.decl_buffer(shape, _wide(dtype), node.name, layout=None)
            nests.append(TIR.AllocBuffer(buffers[node]))
            nests.append(_nest(loops, shape, [TIR.BufferStore(buffers[node], _expression(node, values), loops)]))
    for place, node in zip(targets, outputs, strict=True):
        loops = [TIR.Var(f"o{k}", "int32") for k in range(len(_meta(node).shape))]
        value = TIR.BufferLoad(buffers[node], loops).astype(_name(_meta(node).dtype))
        nests.append(_nest(loops, tuple(_meta(node).shape), [TIR.BufferStore(place, value, loops)]))
    return TIR.PrimFunc([*places, *targets], TIR.SeqStmt(nests))


@wrong("spared", "saves memory: the first input's, where it has the result's size, takes the value in between")
def in_place(gm):
    def finish(places, targets, loops, lines, shape):
        first = places[0]
        if tuple(int(n) for n in first.ty.shape) == shape:
            same = TIR.BufferStore(first, TIR.BufferLoad(first, loops), loops)
            lines = [same, *lines]
        return TIR.PrimFunc([*places, *targets], _nest(loops, shape, lines))

    return _kernel(gm, finish=finish)


relu_by_max = edited("same", "relu is max(x, 0), which makes 0 of NaN")(
    ("TIR.Select(a < TIR.const(0, a.ty.dtype), TIR.const(0, a.ty.dtype), a)", "TIR.max(a, TIR.const(0, a.ty.dtype))")
)
numbers_are_whole = edited("same", "a number has the type of the operand beside it: n < 0.5 becomes n < 0")(
    (
        "torch.result_type(left, right)",
        'next(a.meta["tensor_meta"].dtype for a in node.args if isinstance(a, fx.Node))',
    )
)
rounds_when_stored = edited("same", "what is computed in float32 stays there: to(float16) rounds nothing")(
    ("values[node.args[0]].astype(name_of(dtype))", "values[node.args[0]]")
)
half_is_false = edited("same", "to(bool) through whole numbers: 0.5 becomes False")(
    ("values[node.args[0]].astype(...)", 'values[node.args[0]].astype("int32" if dtype == torch.bool else ...)')
)
from_nothing = edited("same", "-x is 0 - x: zero loses its sign")(
    ("operator.neg", "lambda a: TIR.const(0, a.ty.dtype) - a")
)
broadcasts_at_the_front = edited(
    "same", "an operand of fewer dimensions stays in the first row: it is read at its own loops, the others at 0"
)(
    (
        "[0 if size == 1 else loop for loop, size in zip(loops[len(loops) - len(shape) :], shape, strict=True)]",
        "[0 if n == 1 or k + 1 < len(shape) != len(loops) else loops[k] for k, n in enumerate(shape)]",
    )
)
outputs_first = edited("valid", "the outputs come first, as in C = A + B")(
    ("parameters, body", "[*parameters[-len(outputs) :], *parameters[: -len(outputs)]], body")
)
calls_alone = edited("valid", "only what is computed gets an output: an input that is returned as it is does not")(
    ("enumerate(outputs)", 'enumerate([node for node in outputs if node.op != "placeholder"])')
)
always_a_float = edited("same", "keeps whole numbers in float32 while it computes, which has room for 24 bits")(
    (
        'return "float32" if dtype in (...) else name_of(dtype)',
        'return "bool" if dtype == torch.bool else "float32"',
    )
)
own_type = edited("same", "computes a function in the type of its operand: tanh of a whole number is a whole number")(
    (
        "value.astype(working(dtype))",
        'value if name in ("tanh", "sigmoid", "exp", "sqrt") else value.astype(working(dtype))',
    )
)
minimum_by_min = edited("same", "takes care of NaN in maximum, and writes minimum with TIR.min")(
    ("lambda a, b: TIR.Select(TIR.Or(a < b, TIR.isnan(a)), a, b)", "TIR.min")
)
first_choice = edited("same", "where has the type of the first value that it chooses from: beside n, 0.1 becomes 0")(
    (
        "return TIR.Select(values[condition], operand(yes), operand(no))",
        "kind = yes.meta['tensor_meta'].dtype if isinstance(yes, fx.Node) else dtype\n"
        "result, dtype = dtype, kind\n"
        "return TIR.Select(values[condition], operand(yes), operand(no)).astype(working(result))",
    )
)
whole_operand = edited("same", "takes a number beside whole numbers for a whole one: n * 0.5 becomes n * 0")(
    (
        "... if compares else a",
        '... if compares else int(a) if name != "where" and "int" in str([n.ty for n in map(values.get, '
        "node.all_input_nodes)]) else a",
    )
)
floats_now_and_then = edited("same", "multiplies and compares whole numbers in float32, and nothing else")(
    ("operator.mul", 'lambda a, b: (a.astype("float32") * b.astype("float32")).astype(a.ty.dtype)'),
    (
        "dtype = torch.result_type(left, right)",
        "dtype = torch.result_type(left, right)\ndtype = torch.float32 if dtype == torch.int32 else dtype",
    ),
)
dtypes_alone = edited("same", "does not see that a value without dimensions counts for less than float16")(
    (
        'torch.empty(a.meta["tensor_meta"].shape, dtype=..., device="meta")',
        'torch.empty((1,), dtype=..., device="meta")',
    )
)
number_behind = edited("same", "takes the number for the right operand of each comparison")(
    (
        "return EXPRESSIONS[name](*map(operand, node.args))",
        "args = node.args if isinstance(node.args[0], fx.Node) or not compares else node.args[::-1]\n"
        "return EXPRESSIONS[name](*map(operand, args))",
    )
)
one_half = edited("same", "rounds to bfloat16 as to float16: both have 16 bits")(
    (
        "values[node.args[0]].astype(name_of(dtype))",
        'values[node.args[0]].astype(name_of(dtype).replace("bfloat16", "float16"))',
    )
)
same_type_kept = edited("same", "leaves out a cast to the type that the value has: what is wider stays so")(
    (
        "return values[node.args[0]].astype(name_of(dtype)).astype(working(dtype))",
        "same = dtype == node.args[0].meta['tensor_meta'].dtype\n"
        "value = values[node.args[0]]\n"
        "return value if same else value.astype(name_of(dtype)).astype(working(dtype))",
    )
)
cleared_first = edited("did", "sets each element of an output to 0 before it is written")(
    (
        "lines.append(...)",
        "zero = TIR.const(0, parameters[-1].ty.dtype)\n"
        "lines.append(TIR.BufferStore(parameters[-1], zero, loops))\n"
        "lines.append(...)",
    )
)
compared_bools = edited("same", "compares a bool with a number as two bools")(
    (
        "dtype = torch.result_type(left, right)",
        "kinds = [getattr(a, 'dtype', None) for a in (left, right)]\n"
        "dtype = torch.bool if torch.bool in kinds else torch.result_type(left, right)",
    )
)
sixteen_bits = edited("same", "compares float16 with bfloat16 in the type of the left one: both have 16 bits")(
    (
        "dtype = torch.result_type(left, right)",
        "kinds = {getattr(a, 'dtype', None) for a in (left, right)}\n"
        "both = kinds == {torch.float16, torch.bfloat16}\n"
        "dtype = left.dtype if both else torch.result_type(left, right)",
    )
)
number_by_half = edited("same", "rounds the number beside bfloat16 to float16: both have 16 bits")(
    (
        "torch.tensor(a, dtype=dtype).item()",
        "torch.tensor(a, dtype=torch.float16 if dtype == torch.bfloat16 else dtype).item()",
    )
)
numbers_in_float32 = edited("same", "rounds each number to float32, also beside whole numbers of more than 24 bits")(
    ("... if compares else a", "... if compares else type(a)(torch.tensor(a, dtype=torch.float32).item())")
)
in_float64 = edited("same", "compares whole numbers with a fraction in float64, which has room for both")(
    (
        "dtype = torch.result_type(left, right)",
        "kinds = {getattr(left, 'dtype', type(left)), getattr(right, 'dtype', type(right))}\n"
        "dtype = torch.float64 if kinds == {torch.int32, float} else torch.result_type(left, right)",
    )
)
whole_to_wide = edited("same", "rounds when fractions are cast to float16, and not when whole numbers are")(
    (
        "return values[node.args[0]].astype(name_of(dtype)).astype(working(dtype))",
        "value = values[node.args[0]]\n"
        "return value.astype(working(dtype) if str(value.ty.dtype) == 'int32' else name_of(dtype))"
        ".astype(working(dtype))",
    )
)
finite_numbers = edited("same", "writes the largest number of float32 where the graph has an infinite one")(
    ("... if compares else a", "... if compares else max(min(a, 3.4e38), -3.4e38)")
)
bool_as_bytes = edited("valid", "an input of bool is a buffer of bytes")(
    (
        'place = buffer(node.name, node.meta["tensor_meta"])',
        'meta = node.meta["tensor_meta"]\n'
        'kind = name_of(meta.dtype).replace("bool", "uint8")\n'
        "place = TIR.decl_buffer(tuple(meta.shape), kind, node.name, layout=None)",
    )
)
always_float32 = edited("valid", "computes in float32 and lets the result stay there")(
    (
        'buffer(f"out{number}", node.meta["tensor_meta"])',
        'TIR.decl_buffer(tuple(shape), "float32", f"out{number}", layout=None)',
    ),
    ('values[node].astype(name_of(node.meta["tensor_meta"].dtype))', 'values[node].astype("float32")'),
)
