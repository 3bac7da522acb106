"""Hidden cases and answers of day09.dialect."""

from __future__ import annotations

import random

import numpy as np

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day09.dialect import (
    dense,
    drawn,
    leaky,
    leaky_relu,
    lowered,
    program,
    refused,
    tensor,
    total,
)
from passlab.exercises.day09.dialect import (
    op as written,
)
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    b, i, o, more = rng.sample(range(2, 10), 4)
    slope = rng.choice([0.125, 0.375, 0.625, 0.875])
    steep = rng.choice([1.25, 1.5, 2.5])

    def broken_dense(x=(b, i), w=(o, i), bias=(o,), result=(b, o), kinds=()):
        sides = {"x": x, "w": w, "b": bias, "result": result}
        types = {name: tensor(*side, dtype="f64" if name in kinds else "f32") for name, side in sides.items()}
        arguments = [types["x"], types["w"], types["b"]]
        line = written("y", "nn.dense", "%x, %w, %b", arguments, types["result"])
        return program(line, arguments=arguments, returned="y", result=types["result"])

    def alone(name, argument, result, **properties):
        line = written("y", name, "%x", [argument], result, **properties)
        return program(line, arguments=[argument], returned="y", result=result)

    def single(line, argument, result):
        return program(line, arguments=[argument], returned="y", result=result)

    one, wide, double = tensor(i), tensor(b, i, o), tensor(i, dtype="f64")
    half = "0.5 : f32"
    hidden_sum = program(
        leaky("t", "x", slope, b, i),
        written("y", "nn.sum", "%t", [tensor(b, i)], tensor(b), axis="2 : i64"),
        arguments=[tensor(b, i)],
        returned="y",
        result=tensor(b),
    )
    return [
        refused("x and w do not fit", broken_dense(w=(o, more)), "nn.dense", i, more),
        refused("w and b do not fit", broken_dense(bias=(more,)), "nn.dense", o, more),
        refused("too many rows", broken_dense(result=(more, o)), "nn.dense", b, more),
        refused("too many columns", broken_dense(result=(b, more)), "nn.dense", o, more),
        refused("x has a dimension too many", broken_dense(x=(1, 1, i)), "nn.dense", 3),
        refused("w has a dimension too few", broken_dense(w=(i,)), "nn.dense", 1),
        refused("b has a dimension too many", broken_dense(bias=(o, 1)), "nn.dense", 2),
        refused("the result has a dimension too many", broken_dense(result=(b, o, 1)), "nn.dense"),
        refused("other elements", broken_dense(kinds=("x", "w", "b", "result")), "nn.dense", "f64"),
        *[
            refused(f"{name} of f64", broken_dense(kinds=(name,)), "nn.dense", "f64")
            for name in ("x", "w", "b", "result")
        ],
        refused("one number as b", broken_dense(bias=(1,)), "nn.dense", o, 1),
        refused("NaN for a slope", alone("nn.leaky_relu", one, one, slope="0x7FC00000 : f32"), "nn.leaky_relu"),
        refused("a slope above 1", alone("nn.leaky_relu", one, one, slope=f"{steep} : f32"), "nn.leaky_relu", steep),
        refused("a slope below 0", alone("nn.leaky_relu", one, one, slope="-0.25 : f32"), "nn.leaky_relu", 0.25),
        refused("another size", alone("nn.leaky_relu", one, tensor(more), slope=half), "nn.leaky_relu", i, more),
        refused("another dimension", alone("nn.leaky_relu", one, tensor(i, more), slope=half), "nn.leaky_relu"),
        refused("f64 in", alone("nn.leaky_relu", double, one, slope=half), "nn.leaky_relu", "f64"),
        refused("f64 out", alone("nn.leaky_relu", one, double, slope=half), "nn.leaky_relu", "f64"),
        refused("an axis too many", alone("nn.sum", wide, tensor(b, i), axis="3 : i64"), "nn.sum", 3),
        refused("the axis after the last one", alone("nn.sum", wide, wide, axis="3 : i64"), "nn.sum", 3),
        refused("an axis below 0", alone("nn.sum", wide, tensor(b, i), axis="-1 : i64"), "nn.sum", 1),
        refused("the wrong side is left", alone("nn.sum", tensor(b, i), tensor(i), axis="1 : i64"), "nn.sum", b, i),
        refused("sides exchanged", alone("nn.sum", wide, tensor(o, i), axis="0 : i64"), "nn.sum", i, o),
        refused("a dimension too many is left", alone("nn.sum", wide, tensor(i), axis="0 : i64"), "nn.sum"),
        refused("a size differs", alone("nn.sum", wide, tensor(b, more), axis="1 : i64"), "nn.sum", o, more),
        refused("sums of f64", alone("nn.sum", tensor(b, i, dtype="f64"), tensor(b), axis="1 : i64"), "nn.sum", "f64"),
        refused("the second operation", hidden_sum, "nn.sum", 2),
        refused("not in the dialect", alone("nn.flatten", wide, wide), "nn.flatten"),
        refused(
            "w and b do not fit, x does", broken_dense((71, 83), (97, 83), (89,), (71, 97)), "nn.dense", 97, 89,
            fits=(71, 83),
        ),
        refused(
            "b has a dimension too many, x has not", broken_dense((71, 83), (97, 83), (97, 1), (71, 97)), "nn.dense", 2,
            fits=(71, 83),
        ),
        refused(
            "the second side differs", alone("nn.leaky_relu", tensor(71, 83), tensor(71, 89), slope=half),
            "nn.leaky_relu", 83, 89, fits=(71,),
        ),
        refused(
            "the last side differs", alone("nn.sum", tensor(71, 83, 97), tensor(71, 89), axis="1 : i64"),
            "nn.sum", 97, 89, fits=(71,),
        ),
        refused("w turned", broken_dense(w=(i, o)), "nn.dense", i, o),
        refused("the result turned", broken_dense(result=(o, b)), "nn.dense", b, o),
        refused("the result in one dimension", broken_dense(result=(b * o,)), "nn.dense"),
        refused("turned", alone("nn.leaky_relu", tensor(b, i), tensor(i, b), slope=half), "nn.leaky_relu", b, i),
        refused("flattened", alone("nn.leaky_relu", tensor(b, i), tensor(b * i), slope=half), "nn.leaky_relu"),
        refused("another dimension of 1", alone("nn.leaky_relu", one, tensor(1, i), slope=half), "nn.leaky_relu"),
        refused("what is left, flattened", alone("nn.sum", wide, tensor(i * o), axis="0 : i64"), "nn.sum"),
        refused("no slope", alone("nn.leaky_relu", one, one)),
        refused("no axis", alone("nn.sum", tensor(b, i), tensor(b))),
        refused("the slope is a whole number", alone("nn.leaky_relu", one, one, slope="1 : i64")),
        refused("not a tensor", alone("nn.sum", "f32", tensor(), axis="0 : i64")),
        refused("nothing reads it", program(
            written("t", "nn.sum", "%x", [one], tensor(), axis="1 : i64"), arguments=[one], returned="x", result=one),
            "nn.sum", 1),
        lowered(
            "dense",
            program(dense("y", "x", "w", "b", b, i, o), arguments=[tensor(b, i), tensor(o, i), tensor(o)], returned="y",
                    result=tensor(b, o)),
            drawn((b, i), (o, i), (o,)), lambda x, w, bias: x @ w.T + bias,
        ),
        lowered(
            "dense, all sizes equal",
            program(dense("y", "x", "w", "b", b, b, b), arguments=[tensor(b, b), tensor(b, b), tensor(b)], returned="y",
                    result=tensor(b, b)),
            drawn((b, b), (b, b), (b,)), lambda x, w, bias: x @ w.T + bias,
        ),
        lowered(
            "dense, all sizes 1",
            program(dense("y", "x", "w", "b", 1, 1, 1), arguments=[tensor(1, 1), tensor(1, 1), tensor(1)], returned="y",
                    result=tensor(1, 1)),
            drawn((1, 1), (1, 1), (1,)), lambda x, w, bias: x @ w.T + bias,
        ),
        lowered(
            "dense, zeros and infinities",
            program(dense("y", "x", "w", "b", b, i, o), arguments=[tensor(b, i), tensor(o, i), tensor(o)], returned="y",
                    result=tensor(b, o)),
            lambda: _infinite(b, i, o), _product,
        ),
        lowered("a flat slope", single(leaky("y", "x", 0.0, b, i), tensor(b, i), tensor(b, i)),
                drawn((b, i), special=True), lambda x: leaky_relu(x, 0.0)),
        lowered("a slope of 1", single(leaky("y", "x", 1.0, b, i), tensor(b, i), tensor(b, i)), drawn((b, i)),
                lambda x: leaky_relu(x, 1.0)),
        lowered("NaN and infinity", single(leaky("y", "x", slope, b, i, o), wide, wide), drawn((b, i, o), special=True),
                lambda x: leaky_relu(x, slope)),
        lowered("a single number", single(leaky("y", "x", slope), tensor(), tensor()), drawn(()),
                lambda x: leaky_relu(x, slope)),
        *[
            lowered(f"sums along {axis}", single(total("y", "x", axis, b, i, o), wide, tensor(*left)), drawn((b, i, o)),
                    lambda x, axis=axis: x.sum(axis))
            for axis, left in enumerate([(i, o), (b, o), (b, i)])
        ],
        lowered("the sum of one dimension", single(total("y", "x", 0, i), one, tensor()), drawn((i,)),
                lambda x: x.sum(0)),
        lowered("twice the same", program(
            leaky("s", "x", 0.5, b, i), leaky("t", "s", slope, b, i), total("u", "t", 0, b, i), total("y", "u", 0, i),
            arguments=[tensor(b, i)], returned="y", result=tensor()), drawn((b, i)),
            lambda x: leaky_relu(leaky_relu(x, 0.5), slope).sum()),
        lowered("one value, two readers", program(
            leaky("s", "x", slope, b, b), dense("y", "s", "s", "w", b, b, b),
            arguments=[tensor(b, b), tensor(b)], returned="y", result=tensor(b, b)), drawn((b, b), (b,)),
            lambda x, w: leaky_relu(x, slope) @ leaky_relu(x, slope).T + w),
        lowered("a size twice", single(total("y", "x", 2, b, i, b), tensor(b, i, b), tensor(b, i)), drawn((b, i, b)),
                lambda x: x.sum(2)),
        lowered("numbers of other types", program(
            written("t", "nn.leaky_relu", "%x", [tensor(b, i)], tensor(b, i), slope="0.5 : f64"),
            written("y", "nn.sum", "%t", [tensor(b, i)], tensor(b), axis="1 : i32"),
            arguments=[tensor(b, i)], returned="y", result=tensor(b)), drawn((b, i)),
            lambda x: leaky_relu(x, 0.5).sum(1)),
        lowered("a sum that nothing reads", program(
            total("t", "x", 0, i), leaky("y", "x", slope, i), arguments=[one], returned="y", result=one), drawn((i,)),
            lambda x: leaky_relu(x, slope)),
        lowered("nothing of nn", program(arguments=[one], returned="x", result=one), drawn((i,)), np.asarray),
    ]  # fmt: skip


def _infinite(b: int, i: int, o: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, w and a bias for nn.dense with zeros and infinities: w has one where x has the other, and the bias."""
    x, w, bias = drawn((b, i), (o, i), (o,))()
    x[0, 0], w[0, 0], bias[0] = 0, np.inf, -np.inf
    x[-1, -1], w[-1, -1] = np.inf, 0
    return x, w, bias


def _product(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return x · wᵀ + b, with each product: 0 · ∞ is NaN."""
    with np.errstate(invalid="ignore"):
        return (x[:, None] * w).sum(2) + bias


EQUIVALENT = {
    ("dims = list(...)", "dims = (...)"): "a range can be walked through more than once",
    ("....data, ...", "....data, (range(len(op.x.type.get_shape())))"): "a range can be walked through more than once",
    ("op.detach()\nop.erase()", "op.detach()\npass"): "what is detached is not in the module any more",
    ("dim == axis", "True"): "turns in order compute the same, and no law says which dimensions must be parallel",
}

# ---------------------------------------------------------------------------------------------------- answers


_NAMES = ("nn.dense", "nn.leaky_relu", "nn.sum")


def _check_by_table(op):
    """Check all rules in one function; return a sentence or None."""
    types = [value.type for value in (*op.operands, *op.results)]
    for kind in types:
        if not hasattr(kind, "element_type"):
            return f"{op.name} works on tensors, not on {kind}."
        if str(kind.element_type) != "f32":
            return f"{op.name} works on f32, not on {kind.element_type}."
    sides = [list(kind.get_shape()) for kind in types]
    if op.name == "nn.dense":
        for side, rank in zip(sides, (2, 2, 1, 2), strict=True):
            if len(side) != rank:
                return f"{op.name}: an operand or result has {len(side)} dimensions instead of {rank}."
        (r, c), (o, i), (bias,), (r2, o2) = sides
        pairs = [(c, i), (o, bias), (r, r2), (o, o2)]
    elif op.name == "nn.leaky_relu":
        slope = op.properties["slope"].value.data
        if slope not in (0, 1) and not 0 < slope < 1:
            return f"{op.name}: slope {slope:g} should lie between 0 and 1."
        if len(sides[0]) != len(sides[1]):
            return f"{op.name}: {len(sides[0])} dimensions become {len(sides[1])}."
        pairs = list(zip(*sides, strict=True))
    else:
        axis = op.properties["axis"].value.data
        if axis not in range(len(sides[0])):
            return f"{op.name}: there is no axis {axis} of {len(sides[0])}."
        del sides[0][axis]
        if len(sides[0]) != len(sides[1]):
            return f"{op.name}: what is left has the shape {sides[0]}, not {sides[1]}."
        pairs = list(zip(*sides, strict=True))
    wrong_pairs = [pair for pair in pairs if pair[0] != pair[1]]
    return f"{op.name}: {wrong_pairs[0][0]} is not {wrong_pairs[0][1]}." if wrong_pairs else None


_PROPERTIES = {"nn.dense": {}, "nn.leaky_relu": {"slope": "FloatAttr"}, "nn.sum": {"axis": "IntegerAttr"}}


def _module(text):
    """Return a module with unregistered operations of nn, checked by a table."""
    from xdsl.parser import Parser

    from passlab import mlir

    module = Parser(mlir.context(allow_unregistered=True), text).parse_module()
    for op in module.walk():
        if op.name != "builtin.unregistered":
            continue
        name = op.attributes["op_name__"].data
        if name not in _NAMES:
            return f"{name} is not an operation of nn."
        for key, kind in _PROPERTIES[name].items():
            if type(op.properties.get(key)).__name__ != kind:
                return f"{name} needs a {key}."
    return module


class _Named:
    """What the table looks at."""

    def __init__(self, op):
        self.name, self.operands, self.results = op.attributes["op_name__"].data, op.operands, op.results
        self.properties = op.properties


@right("has no classes: checks unregistered operations by a table, and writes text that is parsed again")
def by_text(text):
    from passlab import mlir

    module = _module(text)
    if isinstance(module, str):
        return module
    function = next(iter(module.ops))
    names, lines = {}, ["%zero = arith.constant 0.0 : f32"]
    for number, argument in enumerate(function.body.block.args):
        names[argument] = f"%a{number}"
    head = ", ".join(f"{names[one]}: {one.type}" for one in function.body.block.args)
    for number, op in enumerate(function.body.block.ops):
        if op.name == "func.return":
            lines.append(f"func.return {names[op.operands[0]]} : {op.operands[0].type}")
            continue
        sentence = _check_by_table(_Named(op))
        if sentence:
            return sentence
        name, kind = op.attributes["op_name__"].data, op.results[0].type
        rank = len(op.operands[0].type.get_shape())
        operands = [names[one] for one in op.operands]
        types = [str(one.type) for one in op.operands]
        lines.append(f"%e{number} = tensor.empty() : {kind}")
        dims = ", ".join(f"d{d}" for d in range(rank))

        def emit(result, maps, kinds, ins, in_types, out, body, arguments, kind=kind):
            maps = ", ".join(f"affine_map<({m[0]}) -> ({m[1]})>" for m in maps)
            kinds = ", ".join(f'"{k}"' for k in kinds)
            ins = f"ins({', '.join(ins)} : {', '.join(in_types)}) " if ins else ""
            lines.append(
                f"{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} {ins}"
                f"outs({out} : {kind}) {{\n^bb0({arguments}):\n{body}\n}} -> {kind}"
            )

        fill = f"%f{number} = linalg.fill ins(%zero : f32) outs(%e{number} : {kind}) -> {kind}"
        if name == "nn.leaky_relu":
            slope = op.properties["slope"].value.data
            body = (
                f"%s{number} = arith.constant {slope:e} : f32\n%c{number} = arith.cmpf ogt, %x{number}, %zero : f32\n"
                f"%m{number} = arith.mulf %x{number}, %s{number} : f32\n"
                f"%r{number} = arith.select %c{number}, %x{number}, %m{number} : f32\nlinalg.yield %r{number} : f32"
            )
            emit(f"%v{number}", [(dims, dims)] * 2, ["parallel"] * rank, operands, types, f"%e{number}", body,
                 f"%x{number}: f32, %o{number}: f32")  # fmt: skip
        elif name == "nn.sum":
            axis = op.properties["axis"].value.data
            left = ", ".join(f"d{d}" for d in range(rank) if d != axis)
            kinds = ["reduction" if d == axis else "parallel" for d in range(rank)]
            lines.append(fill)
            body = f"%r{number} = arith.addf %x{number}, %o{number} : f32\nlinalg.yield %r{number} : f32"
            emit(f"%v{number}", [(dims, dims), (dims, left)], kinds, operands, types, f"%f{number}", body,
                 f"%x{number}: f32, %o{number}: f32")  # fmt: skip
        else:
            lines.append(fill)
            three = "i, j, k"
            body = (
                f"%p{number} = arith.mulf %x{number}, %w{number} : f32\n"
                f"%r{number} = arith.addf %p{number}, %o{number} : f32\nlinalg.yield %r{number} : f32"
            )
            emit(f"%p{number}x", [(three, "i, k"), (three, "j, k"), (three, "i, j")],
                 ["parallel", "parallel", "reduction"], operands[:2], types[:2], f"%f{number}", body,
                 f"%x{number}: f32, %w{number}: f32, %o{number}: f32")  # fmt: skip
            body = f"%q{number} = arith.addf %x{number}, %w{number} : f32\nlinalg.yield %q{number} : f32"
            emit(f"%v{number}", [("i, j", "i, j"), ("i, j", "j"), ("i, j", "i, j")], ["parallel"] * 2,
                 [f"%p{number}x", operands[2]], [str(kind), types[2]], f"%e{number}", body,
                 f"%x{number}: f32, %w{number}: f32, %o{number}: f32")  # fmt: skip
        names[op.results[0]] = f"%v{number}"
    result = function.function_type.outputs.data[0]
    body = "\n".join(lines)
    return mlir.parse(f"func.func @main({head}) -> {result} {{\n{body}\n}}")


_LEAK = "return build.insert(arith.SelectOp(positive, arguments[0], below)).result"


def _edited(*changes):
    from autograder.authoring.source import answer_of

    return answer_of("day09.dialect", changes=changes)


@right("sums from zero, and adds the bias afterwards")
def bias_last(text):
    change = (
        "return structured(build, [op.x, op.w], start, [[0, 2], [1, 2], [0, 1]], kinds, product)",
        """
        zero = build.insert(arith.ConstantOp(FloatAttr(0.0, f32))).result
        start = build.insert(FillOp([zero], [empty], [empty.type])).results[0]
        sums = structured(build, [op.x, op.w], start, [[0, 2], [1, 2], [0, 1]], kinds, product)
        return structured(
            build, [sums, op.b], empty, [[0, 1], [1], [0, 1]], ["parallel"] * 2, lambda b, a: added(b, a[:2])
        )
        """,
    )
    return _edited(change)(text)


@wrong("did", "lowers whatever it can parse")
def believes_all(text):
    return _edited(("        module.verify()\n", ""))(text)


@wrong("did", "refuses with a sentence that says nothing")
def says_nothing(text):
    result = _edited()(text)
    return "This is not valid." if isinstance(result, str) else result


@wrong("did", "lists all sizes of the operation, whatever is wrong")
def lists_all(text):
    import re

    result = _edited()(text)
    line = next((line for line in text.splitlines() if isinstance(result, str) and result[:7] in line), "")
    return f"{result}; {', '.join(re.findall(r'[0-9]+', line.split(':')[-1]))}" if line else result


@wrong("did", "compares numbers of elements, not sizes")
def counts_elements(text):
    return _edited(
        (
            'agree_all(self, "x and the result", shape(self, self.x), shape(self, self.result))',
            'agree(self, "elements", math.prod(shape(self, self.x)), math.prod(shape(self, self.result)))',
        )
    )(text)


@wrong("valid", "returns the module as text")
def as_text(text):
    result = _edited()(text)
    return result if isinstance(result, str) else str(result)


@wrong("spared", "refuses everything")
def refuses_all(text):
    return "nn.dense, nn.leaky_relu, nn.sum: something does not fit."


whole_shapes = edited("did", "lists all sizes of two shapes that differ in one")(
    ('agree(op, f"a size of {what}", one, other)', 'agree(op, f"the sizes of {what}", str(sides), str(others))')
)
from_the_end = edited("did", "takes a negative axis, as Python does")(
    ("0 <= axis < len(sides)", "-len(sides) <= axis < len(sides)")
)
only_columns = edited("did", "checks that x and w fit, and not the bias")(
    ('        agree(self, "the rows of w and the size of b", height, bias)\n', "")
)
any_result = edited("did", "believes what the text says of the result")(
    ('        agree(self, "the rows of x and of the result", rows, up)\n', "")
)
as_relu = edited("same", "takes the larger of x and slope · x: wrong where x is infinite and the slope 0")(
    (_LEAK, "return build.insert(arith.MaximumfOp(arguments[0], below)).result")
)
any_operand = edited("valid", "asks an operand for its sizes that is not a tensor")(
    ("x = operand_def(TensorType)\naxis = prop_def(IntegerAttr)", "x = operand_def()\naxis = prop_def(IntegerAttr)")
)
unread_believed = edited("did", "verifies what is left once nothing reads what is dead")(
    (
        "module.verify()",
        "for op in reversed([*module.walk()]):\n    if op.name in LOWERINGS and not op.results[0].uses:\n"
        "        op.detach()\n        op.erase()\nmodule.verify()",
    )
)
unread_left = edited("valid", "lowers what is read, and leaves the rest")(
    (
        "[op for op in module.walk() if op.name in LOWERINGS]",
        "[op for op in module.walk() if op.name in LOWERINGS and op.results[0].uses]",
    )
)
by_size = edited("spared", "takes away the first size that is as large as that of the axis")(
    ("sides[:axis] + sides[axis + 1 :]", "[side for n, side in enumerate(sides) if n != sides.index(sides[axis])]")
)
wide_axis = edited("spared", "takes an axis of 64 bits only, as the examples have")(
    ("not 0 <= axis < len(sides)", "str(self.axis.type) != 'i64' or not 0 <= axis < len(sides)")
)
sparse_weights = edited("same", "leaves out the products of weights that are 0")(
    (
        "return build.insert(arith.AddfOp(total, build.insert(arith.MulfOp(x, w)))).result",
        "zero = build.insert(arith.ConstantOp(FloatAttr(0.0, f32))).result\n"
        "more = build.insert(arith.AddfOp(total, build.insert(arith.MulfOp(x, w)))).result\n"
        "return build.insert(\n"
        "    arith.SelectOp(build.insert(arith.CmpfOp(w, zero, 'oeq')).result, total, more)\n).result",
    )
)
no_bias = edited("same", "starts with the bias in its first column")(("[[1], [0, 1]]", "[[0], [0, 1]]"))
last_axis = edited("same", "sums along the last dimension")(("dim == axis", "dim == len(dims) - 1"))
