"""Hidden cases and answers of day09.nest."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day09._generics import generic
from passlab.exercises.day09.nest import INDEXED, SUM, TOTAL, nest_case
from passlab.judge import Case
from passlab.mlir.nests import expression

# ---------------------------------------------------------------------------------------------------- hidden cases

MAC = ["%v = arith.mulf %a, %b : f32", "%s = arith.addf %y, %v : f32", "%s"]
CONSTANT = ["%v = arith.constant 2.5 : f32", "%v"]
NAMELESS = ["%0 = arith.mulf %a, %a : f32", "%1 = arith.addf %a, %a : f32", "%v = arith.subf %0, %1 : f32", "%v"]
NAMED_AS_A_LOOP = ["%d0 = arith.mulf %a, %a : f32", "%d0"]
ONE_IN_VAIN = ["%v = arith.mulf %a, %a : f32", "%u = arith.addf %v, %a : f32", "%v"]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m, k = rng.sample(range(2, 6), 3)
    fixed = [
        nest_case("a rectangle transposed", generic("pp", [("d1, d0", (m, n))], [("d0, d1", (n, m))], ["%a"])),
        nest_case(
            "a window with steps", generic("pr", [("d0 * 2 + d1", (2 * n + k,)), ("d1", (k,))], [("d0", (n,))], MAC)
        ),
        nest_case("each element twice", generic("p", [("d0 floordiv 2", (n,))], [("d0", (2 * n,))], ["%a"])),
        nest_case(
            "the filter comes first", generic("pr", [("d1", (k,)), ("d0 + d1", (n + k - 1,))], [("d0", (n,))], MAC)
        ),
        nest_case("in a ring", generic("p", [("d0 mod 3", (3,))], [("d0", (3 * n,))], ["%a"])),
        nest_case("row 1", generic("p", [("1, d0", (3, m))], [("d0", (m,))], ["%a"])),
        nest_case("a number for all", generic("p", [("", None), ("d0", (n,))], [("d0", (n,))], SUM)),
        nest_case("a window in a ring", generic("pr", [("(d0 + d1) mod 3", (3,)), ("d1", (m,))], [("d0", (n,))], MAC)),
        nest_case(
            "half a window", generic("pr", [("(d0 + d1) floordiv 2", (n + m,)), ("d1", (m,))], [("d0", (n,))], MAC)
        ),
        nest_case(
            "turned, too",
            generic("pp", [("d0, d1", (n, m))], [("d0, d1", (n, m)), ("d1, d0", (m, n))], ["%a, %a"]),
        ),
        nest_case("outs exchanged", generic("p", [("d0", (n,))], [("d0", (n,)), ("d0", (n,))], ["%z, %y"])),
        nest_case(
            "a sum of squares by columns", generic("rp", [("d0, d1", (n, m)), ("d0, d1", (n, m))], [("d1", (m,))], MAC)
        ),
        nest_case("a loop that only the outs know", generic("pp", [("d0", (n,))], [("d1, d0", (m, n))], ["%a"])),
        nest_case(
            "the window comes first",
            generic("rpp", [("d0 + d1, d2", (n + m - 1, k)), ("d0", (n,))], [("d1, d2", (m, k))], MAC),
        ),
        nest_case("nothing to do", generic("pr", [("d0, d1", (0, m))], [("d0", (0,))], TOTAL)),
        nest_case("one column", generic("pr", [("d0, d1", (n, 1))], [("d0", (n,))], TOTAL)),
        nest_case("a constant", generic("pp", [], [("d0, d1", (n, m))], CONSTANT)),
        nest_case("yielded twice", generic("p", [("d0", (n,))], [("d0", (n,)), ("d0", (n,))], ["%a, %a"])),
        nest_case("a sum in reach of its index", generic("pr", [("d1", (m,))], [("d0", (n,))], _indexed_sum())),
        nest_case("again and again", generic("p", [("d0", (n,))], [("d0", (n,))], _squared(8))),
        nest_case("index", generic("pp", [("d0", (n,))], [("d0, d1", (n, m))], INDEXED)),
        nest_case("in order, and not a sum", generic("pr", [("d0, d1", (n, m))], [("d0, d1", (n, m))], ["%a"])),
        nest_case("the outs begin with an input", _begun(n)),
        nest_case("backwards", generic("p", [(f"d0 * -1 + {n - 1}", (n,))], [("d0", (n,))], ["%a"])),
        nest_case("values without names", generic("p", [("d0", (n,))], [("d0", (n,))], NAMELESS)),
        nest_case("a value named as a loop", generic("p", [("d0", (n,))], [("d0", (n,))], NAMED_AS_A_LOOP)),
        nest_case("the last operation is not used", generic("p", [("d0", (n,))], [("d0", (n,))], ONE_IN_VAIN)),
    ]
    return fixed + [nest_case(f"drawn, number {i + 1}", _drawn(rng)) for i in range(12)]


def _indexed_sum() -> list[str]:
    *first, _ = [line.replace("index 0", "index 1") for line in INDEXED]
    return [*first, "%s = arith.addf %v, %y : f32", "%s"]


def _begun(size: int) -> str:
    """Return a module that adds the sum of a vector to each of its elements: its outs begin with the vector."""
    return generic("pr", [("d1", (size,))], [("d0", (size,))], TOTAL).replace("(%A, %Y)", "(%A, %A)")


def _squared(times: int) -> list[str]:
    """Return a body in which each value is the difference of the last one and of the last one halved."""
    lines, last = ["%half = arith.constant 0.5 : f32"], "%a"
    for i in range(times):
        lines += [f"%h{i} = arith.mulf {last}, %half : f32", f"%s{i} = arith.subf {last}, %h{i} : f32"]
        last = f"%s{i}"
    return [*lines, last]


def _drawn(rng: random.Random) -> str:
    """Return a module of one linalg.generic with maps of all sorts."""
    rank = rng.randint(1, 3)
    sizes = rng.sample(range(2, 6), rank)
    kinds = "".join(rng.choice("ppr") for _ in range(rank))
    alone = [d for d in range(rank) if kinds[d] == "p"]
    rng.shuffle(alone)
    known = set(alone)
    ins = []
    for _ in range(rng.randint(1, 2)):
        to, shape = [], []
        for d in rng.sample(range(rank), rng.randint(1, rank)):
            other = rng.randrange(rank)
            text, size = rng.choice(
                [
                    (f"d{d}", sizes[d]),
                    (f"d{d}", sizes[d]),
                    (f"d{d} + d{other}", sizes[d] + sizes[other]),
                    (f"d{d} * 2 + d{other}", 2 * sizes[d] + sizes[other]),
                    (f"d{d} floordiv 2", sizes[d]),
                    (f"d{d} mod 2", 2),
                    ("0", rng.randint(1, 3)),
                ]
            )
            known |= {d} if text == f"d{d}" else set()
            to.append(text)
            shape.append(size)
        ins.append((", ".join(to), tuple(shape)))
    missing = [d for d in range(rank) if d not in known]
    ins.append((", ".join(f"d{d}" for d in missing), tuple(sizes[d] for d in missing)))
    names = [f"%{name}" for name in "abc"[: len(ins)]] + (["%y"] if "r" in kinds else [])
    lines = []
    while len(names) > 1:
        one, other = names.pop(rng.randrange(len(names))), names.pop(0)
        new = f"%t{len(lines)}"
        lines.append(f"{new} = arith.{rng.choice(['addf', 'subf', 'mulf', 'maximumf'])} {one}, {other} : f32")
        names.append(new)
    return generic(
        kinds, ins, [(", ".join(f"d{d}" for d in alone), tuple(sizes[d] for d in alone))], [*lines, names[0]]
    )


# ---------------------------------------------------------------------------------------------------- answers


def _only(module):
    return next(op for op in module.walk() if op.name == "linalg.generic")


def _loops(op):
    """Return the lines of the loops, one inside the other."""
    sizes = {}
    for operand, attr in zip(op.operands, op.indexing_maps.data, strict=True):
        shape = getattr(operand.type, "get_shape", tuple)()
        sizes |= {str(expr): size for expr, size in zip(attr.data.results, shape, strict=True)}
    return [
        " " * d + f"for d{d} in {'range' if 'reduction' in str(kind) else 'prange'}({sizes[f'd{d}']}):"
        for d, kind in enumerate(op.iterator_types.data)
    ]


def _place(op, k):
    """Return the element of the k-th operand that one turn reads or writes."""
    name = f"in{k}" if k < len(op.inputs) else f"out{k - len(op.inputs)}"
    where = [str(e).replace("floordiv", "//").replace("mod", "%") for e in op.indexing_maps.data[k].data.results]
    return f"{name}[{', '.join(where) or '()'}]"


@right("inlines what is used once, and asks each dimension for the first side that it indexes alone")
def inlined(module):
    op = _only(module)
    maps = [attr.data for attr in op.indexing_maps.data]
    names = [f"{kind}{i}" for kind, part in (("in", op.inputs), ("out", op.outputs)) for i in range(len(part))]

    def size(d):
        return next(
            operand.type.get_shape()[at]
            for operand, amap in zip(op.operands, maps, strict=True)
            for at, expr in enumerate(amap.results)
            if str(expr) == f"d{d}"
        )

    text, space = "", ""
    for d, kind in enumerate(op.iterator_types.data):
        text += f"{space}for d{d} in {'prange' if kind.data.value == 'parallel' else 'range'}({size(d)}):\n"
        space += " "
    where = [
        f"{name}[{', '.join(map(str, amap.results)).replace('floordiv', '//').replace('mod', '%') or '()'}]"
        for name, amap in zip(names, maps, strict=True)
    ]
    values = {}
    for argument, place in zip(op.body.block.args, where, strict=True):
        if argument.uses:
            text += f"{space}x{argument.index} = {place}\n"
            values[argument] = f"x{argument.index}"
    for number, inner in enumerate(op.body.block.ops):
        if inner.name == "linalg.yield":
            for at, value in enumerate(inner.operands):
                text += f"{space}{where[len(op.inputs) + at]} = {values[value]}\n"
            continue
        computed = expression(inner, *(values[v] for v in inner.operands))
        (result,) = inner.results
        if result.has_one_use():
            values[result] = f"({computed})"
        else:
            values[result] = f"t{number}"
            text += f"{space}t{number} = {computed}\n"
    return text


@right("reads an element where it is used, each time; what is written is named before the first write")
def read_where_used(module):
    op = _only(module)
    lines = _loops(op)
    inside = " " * len(lines)

    values = {argument: _place(op, argument.index) for argument in op.body.block.args}
    results = op.body.block.last_op.operands
    for number, inner in enumerate(op.body.block.ops):
        if inner is not op.body.block.last_op:
            lines.append(f"{inside}t{number} = {expression(inner, *(values[v] for v in inner.operands))}")
            values[inner.results[0]] = f"t{number}"
    lines += [f"{inside}r{k} = {values[value]}" for k, value in enumerate(results)]
    lines += [f"{inside}{_place(op, len(op.inputs) + k)} = r{k}" for k in range(len(results))]
    return "\n".join(lines)


always_identity = edited("same", "indexes every operand with the loops in order")(
    (
        '", ".join(str(expr) for expr in attr.data.results)',
        '", ".join(f"d{d}" for d, _ in enumerate(attr.data.results))',
    )
)
words_of_mlir = edited("valid", "leaves floordiv and mod as MLIR prints them")(
    ('...("mod", "%")', '", ".join(str(expr) for expr in attr.data.results)')
)
shape_of_first = edited("did", "takes the sizes from the first operand's shape")(
    ("isinstance(expr, ...)", "operand is op.operands[0] and isinstance(expr, ...)"), ("sizes[d]", "sizes.get(d, 1)")
)
only_inputs = edited("did", "looks for sizes at the ins only")(
    ("isinstance(expr, ...)", "operand in op.inputs and isinstance(expr, ...)"), ("sizes[d]", "sizes.get(d, 1)")
)
all_parallel = edited("spared", "declares every loop parallel")(
    ('"prange" if kind.data.value == "parallel" else "range"', '"prange"')
)
all_in_order = edited("spared", "declares no loop parallel")(
    ('"prange" if kind.data.value == "parallel" else "range"', '"range"')
)
parallel_if_written = edited(
    "spared", "declares a loop parallel if the out is indexed with it, whatever its iterator is"
)(('kind.data.value == "parallel"', "AffineDimExpr(d) in op.indexing_maps.data[-1].data.results"))
one_name_for_a_value = edited("same", "takes outs that begin with an input for that input: the sum so far is not read")(
    (
        "zip(places, op.body.block.args, strict=True)",
        "zip([places[list(op.operands).index(v)] for v in op.operands], op.body.block.args, strict=True)",
    )
)
not_read_first = edited(
    "same", "does not read before it writes: where outs are exchanged, the second gets its own value back"
)(
    (
        """            values[argument] = f"a{argument.index}"
            lines.append(f"{inside}{values[argument]} = {place}")
""",
        "            values[argument] = place\n",
    )
)
overwrites = edited("same", "overwrites the out with the sum's last term: takes the out's old value for 0")(
    (
        'lines.append(f"{inside}{values[argument]} = {place}")',
        "lines.append(f\"{inside}{values[argument]} = {place if place[0] == 'i' else 0}\")",
    )
)
last_operation = edited("same", "writes what the last operation computes, also where an earlier one is yielded")(
    ("values[value]", "values[value if value in op.body.block.args else result.prev_op.results[0]]")
)
names_of_values = edited("same", "tells values apart by their names in the program: some have none")(
    ("for k, inner in enumerate(body): ...", "for k, inner in ((one.results[0].name_hint, one) for one in body): ...")
)
no_minus = edited("same", "takes a number in a map for positive")(("str(expr)", "str(expr).replace('-', '')"))
no_brackets = edited("valid", "writes out0[] for an array without dimensions")(("index or '()'", "index"))
loops_reversed = edited("did", "writes the last dimension as the outermost loop")(
    (
        "inside, values = ...",
        "lines = ['    ' * d + line.strip() for d, line in enumerate(reversed(lines))]\ninside, values = ...",
    )
)


@wrong("cost", "inlines everything: what is used twice is computed twice")
def all_inlined(module):
    op = _only(module)
    lines = _loops(op)
    inside, values = " " * len(lines), {}
    for k, argument in enumerate(op.body.block.args):
        values[argument] = _place(op, k)
    for inner in op.body.block.ops:
        for result in inner.results:
            values[result] = f"({expression(inner, *(values[v] for v in inner.operands))})"
    results = inner.operands
    lines += [f"{inside}r{k} = {values[value]}" for k, value in enumerate(results)]
    outs = op.body.block.args[len(op.inputs) :]
    lines += [f"{inside}{values[out]} = r{k}" for k, out in enumerate(outs)]
    return "\n".join(lines)


@wrong("same", "calls values by their names in the program: one is called d0 there, and is no loop")
def named_as_in_the_program(module):
    op = _only(module)
    lines = _loops(op)
    inside, values = " " * len(lines), {argument: _place(op, argument.index) for argument in op.body.block.args}
    *body, result = op.body.block.ops
    for number, inner in enumerate(body):
        name = inner.results[0].name_hint or f"t{number}"
        lines.append(f"{inside}{name} = {expression(inner, *(values[v] for v in inner.operands))}")
        values[inner.results[0]] = name
    lines += [f"{inside}r{k} = {values[value]}" for k, value in enumerate(result.operands)]
    lines += [f"{inside}{_place(op, len(op.inputs) + k)} = r{k}" for k in range(len(op.outputs))]
    return "\n".join(lines)
