"""Hidden cases and answers of day09.fusion."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import NamedTuple

from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import AffineMapAttr
from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter

from autograder.authoring.answers import edited, plain, right, something_to_do, wrong
from passlab.exercises.day09.fusion import BOTH, ROW, TURNED, Node, fusion_case, program
from passlab.judge import Case, core

# ---------------------------------------------------------------------------------------------------- hidden cases

UNARY = ["math.exp", "math.tanh", "math.absf"]
BINARY = ["arith.addf", "arith.mulf", "arith.subf"]


def drawn(rng: random.Random, size: int) -> str:
    """Return a program of `size` operations on matrices, transposed ones and vectors."""
    n, m = rng.sample(range(2, 6), 2)
    shapes = {"x": (n, m), "y": (n, m), "u": (n,), "v": (m,)}
    inputs, nodes = dict(shapes), []
    for at in range(size):
        sizes = rng.choice([(n, m), (n, m), (m, n), (n,), (m,)])
        ways = {sizes: BOTH, sizes[::-1]: TURNED, sizes[:1]: ROW, sizes[1:]: "d1"} if len(sizes) == 2 else {sizes: ROW}
        fitting = [name for name, shape in shapes.items() if shape in ways]
        recent = fitting[-3:]
        reads = tuple((name, ways[shapes[name]]) for name in rng.choices(recent, k=rng.randint(1, 2)))
        # A sum reads an argument of main, too: else its size may get lost, and what is fused depends on the order.
        sums = int(len(sizes) == 2 and rng.random() < 0.25)
        reads = (*reads[:1], rng.choice([(n, ways[shapes[n]]) for n in "xy"])) if sums else reads
        out = (0,) if sums or len(sizes) == 1 else rng.choice([(0, 1), (1, 0)])
        shape = tuple(sizes[d] for d in out)
        starts = [name for name, s in shapes.items() if s == shape and all(name != read for read, _ in reads)]
        init = rng.choice(starts) if starts and rng.random() < 0.15 else ""
        op = rng.choice(UNARY if len(reads) == 1 else BINARY)
        nodes.append(Node(f"t{at}", sizes, reads, out, op, sums, init))
        if not init:  # a producer that reads its outs: MLIR fuses it, and not always rightly
            shapes[f"t{at}"] = shape
    read = {name for node in nodes for name, _ in node.reads} | {node.init for node in nodes}
    returned = [node.name for node in nodes if node.name not in read]
    return program(inputs, nodes, returned)


def plain_drawn(rng: random.Random, size: int) -> str:
    """Return a program of `size` operations whose maps are all the identity.

    A value has one reader mostly; some are returned as well, and some are not read.
    """
    n, m = rng.sample(range(2, 6), 2)
    nodes, unread, returned = [], [], []
    for at in range(size):
        reads = [unread.pop(rng.randrange(len(unread))) for _ in range(rng.randint(0, 2)) if unread]
        reads += rng.sample("xy", rng.randint(not reads, 2 - len(reads)))
        rng.shuffle(reads)
        op = rng.choice(UNARY if len(reads) == 1 else BINARY)
        nodes.append(Node(f"t{at}", (n, m), tuple((name, BOTH) for name in reads), (0, 1), op))
        unread.append(f"t{at}")
        if rng.random() < 0.2:
            returned.append(f"t{at}")
    return program({"x": (n, m), "y": (n, m)}, nodes, sorted({*returned, *unread}))


def _backwards(size: int) -> str:
    """Return a program that writes a vector from its end, and reads it from its beginning."""
    nodes = [
        Node("a", (size,), (("u", "d0"),), (0,), "math.exp"),
        Node("b", (size,), (("a", "d0"),), (0,), "math.tanh"),
    ]
    return program({"u": (size,)}, nodes, ["b"]).replace("(d0)>], it", f"(d0 * -1 + {size - 1})>], it", 1)


def _filled(size: int) -> str:
    """Return a program that adds a vector of twos, computed by a linalg.generic without inputs."""
    nodes = [Node("a", (size,), (("u", "d0"),), (0,), ""), Node("b", (size,), (("a", "d0"), ("u", "d0")), (0,))]
    kinds, one_map = 'iterator_types = ["parallel"]', "affine_map<(d0) -> (d0)>"
    return (
        program({"u": (size,)}, nodes, ["b"])
        .replace(f"[{one_map}, {one_map}], {kinds}}} ins(%u : tensor<{size}xf32>)", f"[{one_map}], {kinds}}}", 1)
        .replace("(%a0: f32, %acc: f32)", "(%acc: f32)", 1)
        .replace("linalg.yield %a0", "%a0 = arith.constant 2.0 : f32\n    linalg.yield %a0", 1)
    )


def _of_integers(n: int, m: int) -> str:
    """Return a program whose first operation reads integers, and writes floats."""
    nodes = [
        Node("a", (n, m), (("x", BOTH),), (0, 1), "arith.sitofp"),
        Node("b", (n, m), (("a", BOTH), ("y", BOTH)), (0, 1)),
    ]
    floats, integers = f"tensor<{n}x{m}xf32>", f"tensor<{n}x{m}xi32>"
    return (
        program({"x": (n, m), "y": (n, m)}, nodes, ["b"])
        .replace(f"%x: {floats}", f"%x: {integers}")
        .replace(f"ins(%x : {floats}", f"ins(%x : {integers}")
        .replace("^bb0(%a0: f32", "^bb0(%a0: i32", 1)
        .replace("arith.sitofp %a0 : f32", "arith.sitofp %a0 : i32 to f32")
    )


#: Lines of a body: twice the whole part of %v0, which does not overflow.
_WHOLE = """  %w = arith.fptosi %v0 : f32 to i32
  %t = arith.addi %w, %w overflow<nsw> : i32
  %f = arith.sitofp %t : i32 to f32"""


#: Reads of whole inputs: two matrices, a vector along each dimension.
X, Y, U, V = ("x", BOTH), ("y", BOTH), ("u", ROW), ("v", "d1")


class _Sizes(NamedTuple):
    """Inputs of these sizes, and operations on matrices of n × m elements."""

    n: int
    m: int
    k: int

    @property
    def flat(self) -> dict[str, tuple[int, ...]]:
        return {"x": (self.n, self.m), "y": (self.n, self.m)}

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        return {"u": (self.n,), "v": (self.m,)}

    def one(self, name: str, *reads, out=(0, 1), op="arith.addf", sizes=(), **options) -> Node:
        return Node(name, sizes if sizes or out == () else (self.n, self.m), tuple(reads), out, op, **options)

    def product(self) -> Node:
        return self.one("a", X, Y, op="arith.mulf")


def hidden(seed: int) -> list[Case]:
    rng, plain_rng = random.Random(seed), random.Random(f"plain {seed}")
    s = _Sizes(*rng.sample(range(2, 6), 3))
    flat, a = s.flat, s.product()

    def draw(i: int) -> Case:
        return fusion_case(f"drawn, number {i + 1}", drawn(rng, 8), "did", "spared")

    def draw_plain(i: int) -> Case:
        return fusion_case(f"plain: drawn, number {i + 1}", plain_drawn(plain_rng, 6), "did", "spared")

    twice = [s.one("b", ("a", BOTH), op="math.exp"), s.one("c", ("a", BOTH), Y)]
    return [
        core(fusion_case("plain: read by two", program(flat, [a, *twice], ["b", "c"]), "spared")),
        core(fusion_case("plain: read and returned", program(flat, [a, twice[0]], ["b", "a"]), "spared")),
        *(core(something_to_do("day09.fusion", partial(draw_plain, i))) for i in range(4)),
        *_turned_cases(s),
        *_length_cases(s),
        *_map_cases(s),
        *_body_cases(s),
        *_part_cases(s),
        *_outs_cases(s),
        *_reader_cases(s),
        *(something_to_do("day09.fusion", partial(draw, i)) for i in range(8)),
    ]


def _turned_cases(s: _Sizes) -> list[Case]:
    """Return cases in which the dimensions of the two bodies have another order."""
    n, m, k = s
    flat, one, a, cube, three = s.flat, s.one, s.product(), {"z": (n, m, k)}, "d0, d1, d2"
    turned = one("a", ("z", three), sizes=(n, m, k), out=(1, 2, 0), op="math.exp")
    tanh = one("b", ("a", three), sizes=(m, k, n), out=(0, 1, 2), op="math.tanh")
    return [
        fusion_case("three dimensions, turned", program(cube, [turned, tanh], ["b"]), "did"),
        fusion_case(
            "a cube, turned in two ways",
            program(
                {"z": (n, n, n)},
                [
                    one("a", ("z", "d1, d0, d2"), sizes=(n, n, n), out=(1, 2, 0), op="math.exp"),
                    one("b", ("a", three), sizes=(n, n, n), out=(0, 1, 2), op="math.tanh"),
                ],
                ["b"],
            ),
            "did",
        ),
        fusion_case(
            "a sum that does not overflow, in the first body",
            program(flat, [a, one("b", ("a", BOTH), X)], ["b"]).replace(
                "  linalg.yield %v0", f"{_WHOLE}\n  linalg.yield %f", 1
            ),
            "did",
            "spared",
        ),
        fusion_case(
            "written transposed", program(flat, [one("a", X, Y, out=(1, 0)), one("b", ("a", TURNED), X)], ["b"]), "did"
        ),
    ]


def _length_cases(s: _Sizes) -> list[Case]:
    """Return cases of sums, whose length must be known from an input that is left."""
    n, m, _ = s
    vectors, one = s.vectors, s.one
    wide = one("a", U, op="math.exp")
    return [
        fusion_case(
            "a sum whose length is lost",
            program(vectors, [wide, one("b", ("a", BOTH), out=(0,), op="math.tanh", sums=1)], ["b"]),
            "spared",
        ),
        fusion_case(
            "a sum whose length is known",
            program(vectors, [wide, one("b", ("a", BOTH), V, out=(0,), op="arith.mulf", sums=1)], ["b"]),
            "did",
        ),
        fusion_case(
            "the length is known from another input",
            program(vectors, [wide, one("b", V, ("a", BOTH), out=(0,), op="arith.mulf", sums=1)], ["b"]),
            "did",
        ),
        fusion_case(
            "a sum whose length is only in a window",
            program(
                {"w": (n + m - 1,)},
                [
                    one("a", ("w", "d0 + d1"), op="math.exp"),
                    one("b", ("a", BOTH), out=(0,), op="math.tanh", sums=1),
                ],
                ["b"],
            ),
            "spared",
        ),
        fusion_case(
            "a sum whose length is only in a stride",
            program(
                {"w": (2 * n - 1 + m - 1,)},
                [
                    one("a", ("w", "d0 * 2 + d1"), op="math.exp"),
                    one("b", ("a", BOTH), out=(0,), op="math.tanh", sums=1),
                ],
                ["b"],
            ),
            "spared",
        ),
    ]


def _map_cases(s: _Sizes) -> list[Case]:
    """Return cases of constants in maps, and of bodies that only copy."""
    flat, one, a = s.flat, s.one, s.product()
    return [
        fusion_case("a constant in a map", program(flat, [a, one("b", ("a", BOTH), ("x", "0, d1"))], ["b"]), "did"),
        fusion_case(
            "the last of each row",
            program(flat, [one("a", X, out=(0,), op="", sums=1), one("b", ("a", "d0"), Y)], ["b"]),
            "spared",
        ),
        fusion_case(
            "the last of each row, as a column",
            program(flat, [one("a", X, out=(0, -1), op="", sums=1), one("b", ("a", "d0, 0"), Y)], ["b"]),
            "spared",
        ),
        fusion_case(
            "a transpose", program(flat, [one("a", X, out=(1, 0), op=""), one("b", ("a", TURNED), Y)], ["b"]), "did"
        ),
    ]


def _body_cases(s: _Sizes) -> list[Case]:
    """Return cases of bodies that few programs have. Who forgets one loses `valid` or `same`; `did` is about others."""
    n, m, _ = s
    flat, one, a = s.flat, s.one, s.product()
    return [
        fusion_case("integers are read", _of_integers(n, m)),
        fusion_case("a transposed copy of it", program(flat, [a, one("b", ("a", TURNED), sizes=(m, n), op="")], ["b"])),
        fusion_case(
            "an operation behind what is yielded",
            program(flat, [a, one("b", ("a", BOTH), X)], ["b"]).replace(
                "  linalg.yield %v0", "  %w = math.exp %v0 : f32\n  linalg.yield %v0"
            ),
        ),
    ]


def _part_cases(s: _Sizes) -> list[Case]:
    """Return cases in which a part of the producer's result is read, or all of a scalar."""
    n, m, _ = s
    flat, one, a = s.flat, s.one, s.product()
    return [
        fusion_case("a row of it", program(flat, [a, one("b", ("a", "0, d1"), X)], ["b"]), "did"),
        fusion_case(
            "a window of it",
            program(
                {"u": (n + m - 1,), "v": (m,), "x": (n, m)},
                [
                    one("a", U, sizes=(n + m - 1,), out=(0,), op="math.exp"),
                    one("b", ("a", "d0 + d1"), X, op="arith.mulf"),
                ],
                ["b"],
            ),
            "did",
        ),
        fusion_case("a producer without inputs", _filled(n), "did"),
        fusion_case(
            "a tensor without dimensions",
            program(
                flat | {"s": ()}, [one("a", ("s", ""), out=(), sizes=(), op="math.exp"), one("b", ("a", ""), X)], ["b"]
            ),
            "did",
        ),
    ]


def _outs_cases(s: _Sizes) -> list[Case]:
    """Return cases of what a body finds in its outs, of several reads, and of flags."""
    n = s.n
    flat, one, a = s.flat, s.one, s.product()
    update = one("b", X, init="a")
    both, triple = one("b", ("a", BOTH), X, init="a"), one("b", ("a", BOTH), ("a", BOTH), ("a", BOTH))
    pair = one("b", ("a", BOTH), ("a", BOTH), op="arith.subf")
    return [
        fusion_case("written backwards", _backwards(n), "spared"),
        fusion_case("the outs begin with it", program(flat, [a, update], ["b"]), "spared"),
        fusion_case(
            "it reads its outs",
            program(flat, [one("a", X, init="y"), one("b", ("a", BOTH), op="math.exp")], ["b"]),
            "spared",
            stays=2,
        ),
        fusion_case("an input, and the outs begin with it", program(flat, [a, both], ["b"]), "spared"),
        fusion_case("read twice alike", program(flat, [a, pair], ["b"]), "did"),
        fusion_case("read three times alike", program(flat, [a, triple], ["b"]), "did"),
        fusion_case(
            "flags in both bodies",
            program(flat, [a, one("b", ("a", BOTH), X)], ["b"])
            .replace("%a0, %a1 : f32", "%a0, %a1 fastmath<nnan,nsz> : f32", 1)
            .replace("arith.addf %a0, %a1 : f32", "arith.addf %a0, %a1 fastmath<reassoc> : f32", 1),
            "did",
            "spared",
        ),
    ]


def _reader_cases(s: _Sizes) -> list[Case]:
    """Return cases of several consumers and producers."""
    n = s.n
    flat, vectors, one, a = s.flat, s.vectors, s.one, s.product()
    square = one("a", ("s", BOTH), op="math.exp", sizes=(n, n))
    return [
        fusion_case(
            "read straight and turned",
            program({"s": (n, n)}, [square, one("b", ("a", BOTH), ("a", TURNED), sizes=(n, n))], ["b"]),
            "spared",
        ),
        fusion_case(
            "a row for all",
            program(
                flat | vectors, [one("a", U, sizes=(n,), out=(0,), op="math.exp"), one("b", ("a", "d0"), X)], ["b"]
            ),
            "did",
        ),
        fusion_case(
            "read and returned", program(flat, [a, one("b", ("a", BOTH), op="math.exp")], ["a", "b"]), "spared"
        ),
        fusion_case(
            "two producers",
            program(flat, [a, one("b", X, op="math.exp"), one("c", ("a", BOTH), ("b", BOTH), op="arith.subf")], ["c"]),
            "did",
        ),
        fusion_case(
            "a long chain",
            program(flat, [one(f"c{i}", (f"c{i - 1}" if i else "x", BOTH), Y) for i in range(9)], ["c8"]),
            "did",
        ),
        fusion_case(
            "around it twice",
            program(
                flat,
                [a, one("b", ("a", BOTH), op="math.exp"), one("c", ("b", BOTH), ("a", BOTH)), one("d", ("c", BOTH), X)],
                ["d"],
            ),
            "did",
        ),
        fusion_case(
            "a sum stays",
            program(flat, [one("a", X, out=(0,), op="math.exp", sums=1), one("b", ("a", "d0"), Y)], ["b"]),
            "spared",
        ),
        fusion_case(
            "five producers",
            program(
                flat,
                [
                    *(one(f"p{i}", X, op=op) for i, op in enumerate([*UNARY, "math.exp", "math.tanh"])),
                    one("b", *((f"p{i}", BOTH) for i in range(5)), op="arith.subf"),
                ],
                ["b"],
            ),
            "did",
        ),
        fusion_case(
            "a length that only the result has",
            program(
                vectors,
                [one("a", U, sizes=(n,), out=(0,), op="math.exp"), one("b", ("a", "d0"), op="math.tanh")],
                ["b"],
            ),
            "did",
        ),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _maps(op):
    return [attr.data for attr in op.indexing_maps.data]


def _members(op, most=99):
    """Return the operations that become one with `op`: operation → the map from the loops of `op` to its own."""
    members = {op: AffineMap.identity(len(op.iterator_types.data))}
    while len(members) < most and (member := _one_more(op, members)):
        members.update(member)
    return members


def _one_more(op, members):
    for member, turn in members.items():
        for value, amap in zip(member.inputs, _maps(member), strict=False):
            producer = value.owner
            if not isinstance(producer, GenericOp) or producer in members or producer.body.block.args[-1].uses:
                continue
            *_, out = _maps(producer)
            if out.inverse_permutation() is None or len(out.results) != out.num_dims:
                continue
            reads = [(use.operation, use.index) for use in value.uses]
            if not all(reader in members and at < len(reader.inputs) for reader, at in reads):
                continue
            ways = {_maps(reader)[at].compose(members[reader]) for reader, at in reads}
            new = {producer: out.inverse_permutation().compose(amap.compose(turn))}
            if len(ways) == 1 and _sized(op, members | new):
                return new
    return None


def _sized(op, members):
    """Return whether each loop of `op` indexes a side of some operand alone."""
    maps = [*_maps(op)[-1:], *(amap for _, amap, _ in _inputs(members))]
    return {e.position for amap in maps for e in amap.results if hasattr(e, "position")} == set(range(maps[0].num_dims))


def _inputs(members):
    """Yield (value, map, argument) of what the members read from outside."""
    for member, turn in members.items():
        for value, amap, argument in zip(member.inputs, _maps(member), member.body.block.args, strict=False):
            if value.owner not in members:
                yield value, amap.compose(turn), argument


def _fused(op, members):
    """Put one operation in the place of its members."""
    values, inputs, block = {}, {}, Block()
    for value, amap, argument in _inputs(members):
        if (value, amap) not in inputs:
            inputs[value, amap] = block.insert_arg(argument.type, len(inputs))
        values[argument] = inputs[value, amap]
    values[op.body.block.args[-1]] = block.insert_arg(op.body.block.args[-1].type, len(inputs))
    order = [inner for inner in op.parent.ops if inner in members]
    results = {}
    for member in order:
        for value, argument in zip(member.inputs, member.body.block.args, strict=False):
            if value in results:
                values[argument] = results[value]
        *body, result = member.body.block.ops
        for inner in body:
            block.add_op(inner.clone(values))
        results[member.results[0]] = values[result.operands[0]]
    block.add_op(YieldOp(results[op.results[0]]))
    maps = [AffineMapAttr(amap) for _, amap in inputs] + [op.indexing_maps.data[-1]]
    fused = GenericOp([v for v, _ in inputs], op.outputs, Region(block), maps, op.iterator_types.data, op.result_types)
    Rewriter.replace_op(op, fused)
    for member in reversed(order[:-1]):
        member.detach()
        member.erase()
    return fused


@plain("puts one body behind the other: all maps are the identity")
def bodies(module):
    for op in list(module.walk()):
        if isinstance(op, GenericOp):
            while places := [
                at for at, v in enumerate(op.inputs) if v.has_one_use() and isinstance(v.owner, GenericOp)
            ]:
                op = _joined(op, places[0])
    return module


def _joined(op, place):
    producer, rest = op.inputs[place].owner, [at for at in range(len(op.inputs)) if at != place]
    inputs = [*producer.inputs, *(op.inputs[at] for at in rest)]
    block = Block(arg_types=[op.body.block.args[-1].type] * (len(inputs) + 1))
    arguments = [*producer.body.block.args[:-1], *(op.body.block.args[at] for at in rest), op.body.block.args[-1]]
    values = dict(zip(arguments, block.args, strict=True))
    *body, last = producer.body.block.ops
    block.add_ops([inner.clone(values) for inner in body])
    values[op.body.block.args[place]] = values[last.operands[0]]
    block.add_ops([inner.clone(values) for inner in op.body.block.ops])
    maps = [op.indexing_maps.data[-1]] * (len(inputs) + 1)
    new = GenericOp(inputs, op.outputs, Region(block), maps, op.iterator_types.data, op.result_types)
    Rewriter.replace_op(op, new)
    producer.detach()
    producer.erase()
    return new


@right("gathers all members of a group first, from the last operation backward, and builds it once")
def groups(module):
    for f in module.ops:
        finished = set()
        while op := next(
            (op for op in reversed(f.body.block.ops) if isinstance(op, GenericOp) and op not in finished), None
        ):
            members = _members(op)
            finished.add(_fused(op, members) if len(members) > 1 else op)
    return module


@right("two operations at a time, from the start of the program, until there are no more")
def pairs(module):
    def one_more():
        for op in module.walk():
            if isinstance(op, GenericOp) and len(members := _members(op, 2)) == 2:
                _fused(op, members)
                return True
        return False

    while one_more():
        pass
    return module


forward = edited("same", "composes with the map of the result, not with its inverse")(
    ("out.inverse_permutation().compose(read)", "out.compose(read)")
)
composed_backwards = edited("same", "composes two permutations in the wrong order")(
    (
        "[amap.compose(turned) for amap in maps]",
        "[turned.compose(amap) if turned.num_dims == len(amap.results) == amap.num_dims == len(turned.results) "
        "else amap.compose(turned) for amap in maps]",
    )
)
may_overflow = edited("spared", "copies a producer's body without what it promises about overflow")(
    (
        "for inner in body:\n    block.add_op(inner.clone(values))",
        "for inner in body:\n    block.add_op(inner.clone(values))\n"
        "    block.last_op.properties.pop('overflowFlags', None)",
    )
)
maps_of_reader = edited("same", "takes the consumer's map for what the producer reads")(
    ("[amap.compose(turned) for amap in maps]", "[read for amap in maps]")
)
twins_stay = edited("did", "does not merge equal inputs before it looks for producers")(
    ("            op = rebuilt(op)\n", "")
)
only_once = edited("did", "fuses one producer for each consumer", core=True)(
    ("while (which := fusible(op)) is not None: ...", "if (which := fusible(op)) is not None: ...")
)
inputs_only = edited("did", "takes a loop for known only if an input tells its length, and not by the result")(
    ("*maps[which + 1 :]", "*maps[which + 1 : -1]")
)
any_mention = edited("spared", "takes a loop for known if a map mentions it anywhere")(
    (
        "{expr.position for amap in left for expr in amap.results if isinstance(expr, AffineDimExpr)}",
        "{dim for amap in left for dim in amap.used_dims()}",
    )
)
identity_only = edited("did", "fuses only what is written in the order of the loops")(
    ("out.data.is_projected_permutation()", "out.data == type(out.data).identity(out.data.num_dims)")
)
some_loops = edited("did", "fuses no producer of a single number")(
    ("len(out.data.results) == out.data.num_dims", "0 < len(out.data.results) == out.data.num_dims")
)
no_sums = edited("did", "does not fuse into a sum")(
    ("enumerate(op.inputs)", "enumerate(() if 'reduction' in str(op.iterator_types) else op.inputs)")
)
copies = edited("spared", "fuses a producer into each of its readers", core=True)(
    ("... and value.has_one_use()", "..."),
    (
        "if ...:\n    ...\n    producer.erase()",
        "if ... and not producer.results[0].uses:\n    ...\n    producer.erase()",
    ),
)
from_its_outs = edited("spared", "fuses what the consumer reads as an input, though its outs begin with it, too")(
    (
        "... and value.has_one_use()",
        "... and len([use for use in value.uses if use.index < len(use.operation.inputs)]) == 1",
    ),
    (
        "if ...:\n    ...\n    producer.erase()",
        "if ... and not producer.results[0].uses:\n    ...\n    producer.erase()",
    ),
)
left_behind = edited("did", "leaves the producer behind")(
    ("        producer.detach()\n        producer.erase()\n", "        pass\n")
)
floats_only = edited("valid", "gives each argument of a body the type of the result")(
    ("block.insert_arg(argument.type, len(inputs))", "block.insert_arg(initial.type, len(inputs))")
)
made_by_operations = edited("valid", "looks for the operation that computes what is yielded, and an argument has none")(
    (
        "for inner in op.body.block.ops:\n    block.add_op(inner.clone(values))",
        """for inner in op.body.block.ops:
    if isinstance(inner, YieldOp) and which is not None:
        inner.operands[0].owner.results[0]
    block.add_op(inner.clone(values))""",
    )
)
yields_the_last = edited("same", "takes for the producer's result what its body computes last")(
    (
        "values[result.operands[0]]",
        "block.last_op.results[0] if body else values[result.operands[0]]",
    )
)
nothing = edited("valid", "returns nothing")(("    return module\n", ""))


@wrong("spared", "writes the bodies without their flags")
def unflagged(module):
    for op in groups(module).walk():
        if "fastmath" in op.properties:
            op.properties["fastmath"] = FastMathFlagsAttr("none")
    return module


@wrong("did", "merges two equal inputs, and leaves three alone")
def two_alike(module):
    counts = [Counter(zip(op.inputs, _maps(op), strict=False)) for op in module.walk() if isinstance(op, GenericOp)]
    return module if any(count > 2 for reads in counts for count in reads.values()) else groups(module)


@wrong("did", "goes through the module twice, each time with one producer for each consumer")
def twice_through(module):
    for _ in range(2):
        for op in list(module.walk()):
            if isinstance(op, GenericOp) and op.parent and len(members := _members(op, 2)) == 2:
                _fused(op, members)
    return module


@wrong("did", "returns the module as it is", core=True)
def unchanged(module):
    return module


EQUIVALENT = {
    ("list(module.walk())", "module.walk()"): "xDSL's walk survives the replacement of where it is",
    ("maps[0].num_dims", "maps[1].num_dims"): "all maps have the same loops",
}
