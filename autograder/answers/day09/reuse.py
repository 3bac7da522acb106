"""Hidden cases and answers of day09.reuse."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day09.reuse import (
    add,
    alloc,
    copy,
    drawn,
    exchange,
    fill,
    loop,
    memref,
    move,
    part,
    program,
    reuse_case,
    view,
)
from passlab.judge import Case

#: What a case of a single rule is about, which few programs need. An answer that forgets it has unsafe slots, and not
#: too many of them.
RARE = ("valid", "same", "spared")


def _filled(name: str, of: str) -> str:
    """Return a new buffer of a type (without "memref<"), filled with a number."""
    number = {"i8": "%one", "f64": "%two", "f32": "%zero"}[element := of.split("x")[-1]]
    return (
        f"%{name} = memref.alloc() : memref<{of}>\nlinalg.fill ins({number} : {element}) outs(%{name} : memref<{of}>)"
    )


def _onto_itself(name: str, of: str) -> str:
    """Return the copy of a buffer of a type (without "memref<") onto itself."""
    return f'"memref.copy"(%{name}, %{name}) : (memref<{of}>, memref<{of}>) -> ()'


def _other_out(n: int) -> str:
    """Return a loop into which a goes; b comes out, or a if there is no turn."""
    kind = memref(n)
    body = f"{copy('y', 'p', n)}\nscf.yield %b : {kind}"
    return f"%r = scf.for %k = %c0 to %c8 step %c1 iter_args(%p = %a) -> ({kind}) {{\n{body}\n}}"


def _through(n: int) -> str:
    """Return a loop through which a and b go, each to its own result."""
    kind = memref(n)
    body = f"{copy('p', 'q', n)}\nscf.yield %p, %q : {kind}, {kind}"
    passed = "%p = %a, %q = %b"
    return f"%r, %s = scf.for %k = %c0 to %c8 step %c1 iter_args({passed}) -> ({kind}, {kind}) {{\n{body}\n}}"


class _Lines(NamedTuple):
    """Lines of programs about buffers of n elements, of few and of many."""

    n: int
    slim: int
    wide: int

    @property
    def kind(self) -> str:
        return memref(self.n)

    def straight(self, *lines: str, result: str = "", returned: str = "") -> str:
        """Return the program of these lines."""
        end = f"return %{returned} : {result}" if returned else "return"
        parameters = f"%x: {self.kind}, %y: {self.kind}, %flag: i1"
        return program(*lines, end, parameters=parameters, result=result)

    def fresh(self, name: str, source: str) -> str:
        """Return a new buffer, written from another one."""
        return f"{alloc(name, size=self.n)}\n{copy(source, name, self.n)}"

    def to_y(self, name: str) -> str:
        return copy(name, "y", self.n)

    def cast(self, name: str, source: str) -> str:
        return f'%{name} = "memref.cast"(%{source}) : ({self.kind}) -> memref<?xf32>'

    def select(self, name: str, one: str, other: str) -> str:
        return f"%{name} = arith.select %flag, %{one}, %{other} : {self.kind}"

    def of(self, name: str, size: int = 0) -> str:
        """Return a new buffer of `size` or n elements, filled."""
        return f"{alloc(name, size=size or self.n)}\n{fill(name, size or self.n)}"

    def sized(self, a: int, b: int, c: int, d: int) -> str:
        """Return buffers of these sizes, of which a and b live together, then c and d."""
        both = [part("v", "a", a, 1), part("w", "b", b, 1), move("v", view(1), "w", view(1))]
        later = [part("t", "c", c, 1), part("u", "d", d, 1), move("t", view(1), "u", view(1))]
        return self.straight(self.of("a", a), self.of("b", b), *both, self.of("c", c), self.of("d", d), *later)

    def typed(self, *types: str) -> str:
        """Return two pairs, one after the other: buffers of these types (without "memref<")."""
        first, second = [[*zip(names, pair, strict=True)] for names, pair in (("ab", types[:2]), ("cd", types[2:]))]
        return self.straight(
            "%one = arith.constant 1 : i8\n%two = arith.constant 2.0 : f64",
            *(_filled(*buffer) for buffer in first), *(_onto_itself(*buffer) for buffer in first),
            *(_filled(*buffer) for buffer in second), *(_onto_itself(*buffer) for buffer in second),
        )  # fmt: skip

    def rotated(self, *lines: str) -> str:
        """Return a loop around which a, b and c go."""
        kinds = f"{self.kind}, {self.kind}, {self.kind}"
        body = "\n".join((copy("y", "p", self.n), *lines, f"scf.yield %q, %o, %p : {kinds}"))
        passed = "%p = %a, %q = %b, %o = %c"
        return f"%r, %s, %t = scf.for %k = %c0 to %c8 step %c1 iter_args({passed}) -> ({kinds}) {{\n{body}\n}}"

    def case(self, name: str, *lines: str, about: tuple[str, ...] = ()) -> Case:
        return reuse_case(name, self.straight(*lines), about)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    t = _Lines(8 * rng.randint(2, 20), rng.randint(4, 8), rng.randint(100, 200))
    drawn_cases = [reuse_case(f"drawn, {k} steps", drawn(rng, k, (t.slim, 64, t.wide))) for k in (8, 12, 16, 20)]
    return [*_alias_cases(t), *_loop_cases(t), *_passed_cases(t), *_result_cases(t), *_size_cases(t), *drawn_cases]


def _alias_cases(t: _Lines) -> list[Case]:
    """Return cases without loops: of views, casts and choices."""
    n, slim = t.n, t.slim
    return [
        t.case("one after the other", *(t.fresh(f"t{i}", f"t{i - 1}" if i else "x") for i in range(5)), t.to_y("t4")),
        t.case(
            "allocated at the top",
            alloc("c", "b", "a", size=n),
            copy("x", "a", n),
            copy("a", "b", n),
            copy("b", "c", n),
            t.to_y("c"),
        ),
        t.case(
            "three at once", t.fresh("a", "x"), t.fresh("b", "x"), t.fresh("c", "x"), add("a", "b", "c", n), t.to_y("c")
        ),
        t.case(
            "a view lives longer",
            t.of("a"),
            part("v", "a", n, slim),
            t.fresh("b", "x"),
            t.to_y("b"),
            t.of("c", slim),
            move("v", view(slim), "c", memref(slim)),
        ),
        t.case(
            "a cast lives longer",
            t.of("a"),
            t.cast("v", "a"),
            t.fresh("b", "x"),
            t.to_y("b"),
            f"linalg.copy ins(%v : memref<?xf32>) outs(%y : {t.kind})",
            about=RARE,
        ),
        t.case(
            "a cast of a choice",
            t.of("a"),
            t.of("d"),
            t.select("s", "a", "d"),
            t.cast("v", "s"),
            t.fresh("b", "x"),
            t.to_y("b"),
            t.fresh("e", "x"),
            t.to_y("e"),
            f"linalg.copy ins(%v : memref<?xf32>) outs(%y : {t.kind})",
            about=RARE,
        ),
        t.case(
            "one of two",
            t.fresh("a", "x"),
            t.fresh("b", "x"),
            t.select("s", "a", "b"),
            t.fresh("c", "x"),
            t.to_y("c"),
            t.fresh("d", "x"),
            t.to_y("d"),
            t.to_y("s"),
            about=RARE,
        ),
        *(
            t.case(f"{what} that nothing uses", t.of("a"), t.of("b"), t.of("c"), line, t.to_y("c"))
            for what, line in {
                "a view": part("v", "a", n, slim),
                "a cast": t.cast("v", "a"),
                "a choice": t.select("v", "a", "b"),
                "a loop": exchange("a", "b", "%r, %s", size=n),
            }.items()
        ),
    ]


def _loop_cases(t: _Lines) -> list[Case]:
    """Return cases of buffers in loops."""
    n, slim = t.n, t.slim
    return [
        t.case("read in each turn", t.fresh("a", "x"), loop(t.fresh("b", "a"), t.fresh("c", "b"), t.to_y("c"))),
        t.case(
            "left for the next turn",
            alloc("a", "b", size=n),
            loop(copy("x", "a", n), t.to_y("a"), copy("x", "b", n), t.to_y("b")),
        ),
        t.case(
            "left for the next turn, two loops",
            loop(alloc("a", "b", size=n), loop(copy("x", "a", n), t.to_y("a"), copy("x", "b", n), t.to_y("b"), i="j")),
        ),
        t.case(
            "left for the next turn of the outer loop",
            alloc("a", "b", size=n),
            loop(loop(copy("x", "a", n), t.to_y("a"), i="j"), loop(copy("x", "b", n), t.to_y("b"), i="k")),
            about=RARE,
        ),
        t.case(
            "new in each turn",
            loop(t.fresh("a", "x"), t.to_y("a"), t.fresh("b", "x"), t.to_y("b")),
            t.fresh("c", "x"),
            t.to_y("c"),
            loop(t.fresh("d", "x")),
        ),
        t.case("before and after a loop", t.fresh("a", "x"), loop(t.fresh("b", "x"), t.to_y("b")), t.to_y("a")),
        t.case("only before a loop", t.fresh("a", "x"), t.to_y("a"), loop(t.fresh("b", "x"), t.to_y("b"))),
        t.case(
            "a view in a loop",
            t.of("a"),
            loop(part("v", "a", n, slim), t.of("b", slim), move("b", memref(slim), "v", view(slim)), t.of("c")),
        ),
    ]


def _passed_cases(t: _Lines) -> list[Case]:
    """Return cases of buffers that go into loops, and out of them."""
    n = t.n
    return [
        t.case(
            "passed on",
            t.of("a"),
            t.of("b"),
            exchange("a", "b", "%r, %s", t.fresh("c", "q"), t.to_y("c"), size=n),
            t.fresh("d", "x"),
            t.to_y("d"),
            t.to_y("s"),
        ),
        t.case(
            "in, and not out",
            t.of("a"),
            t.of("b"),
            exchange("a", "b", "%r, %s", copy("x", "q", n), size=n),
            t.fresh("d", "x"),
            t.to_y("d"),
        ),
        t.case(
            "in, and only out",
            t.of("a"),
            t.of("b"),
            exchange("a", "b", "%r, %s", size=n),
            t.fresh("d", "x"),
            t.to_y("d"),
            t.to_y("r"),
        ),
        t.case(
            "in, or out of the loop",
            t.of("a"),
            t.of("b"),
            _other_out(n),
            t.fresh("d", "x"),
            t.to_y("d"),
            t.to_y("r"),
            about=RARE,
        ),
        t.case("two through a loop", t.of("a"), t.of("b"), _through(n), t.fresh("d", "x"), t.to_y("d"), t.to_y("r")),
        t.case(
            "around a loop", t.of("a"), t.of("b"), t.of("c"), t.rotated(), t.fresh("d", "x"), t.to_y("d"), t.to_y("s")
        ),
        t.case(
            "around a loop, in it",
            t.of("a"),
            t.of("b"),
            t.of("c"),
            t.rotated(t.fresh("d", "x"), t.to_y("d")),
            about=RARE,
        ),
    ]


def _result_cases(t: _Lines) -> list[Case]:
    """Return cases of what main returns, of types, and of a program without buffers."""
    n, slim = t.n, t.slim
    return [
        reuse_case(
            "returned",
            t.straight(
                t.fresh("a", "x"),
                t.to_y("a"),
                t.fresh("b", "x"),
                t.to_y("b"),
                t.fresh("c", "x"),
                t.to_y("c"),
                result=t.kind,
                returned="a",
            ),
        ),
        reuse_case(
            "a view is returned",
            t.straight(
                t.fresh("a", "x"),
                part("v", "a", n, slim),
                t.fresh("b", "x"),
                t.to_y("b"),
                result=view(slim),
                returned="v",
            ),
        ),
        reuse_case(
            "returned, and last",
            t.straight(t.fresh("a", "x"), t.to_y("a"), t.fresh("b", "x"), result=t.kind, returned="b"),
        ),
        # numbers of elements and bytes are ordered differently
        reuse_case(
            "of several types", t.typed(f"{30 * slim}xi8", f"{20 * slim}xf64", f"{20 * slim}xi8", f"{20 * slim}xf64")
        ),
        reuse_case("of no dimensions", t.typed("f32", f"{slim}xf32", "f32", f"{slim}xf32"), ("valid", "cost")),
        t.case("none", t.to_y("x")),
    ]


def _size_cases(t: _Lines) -> list[Case]:
    """Return cases of which buffer takes whose place. Sizes of one side, or their sum, are ordered differently from the
    number of elements."""
    slim, wide, rows = t.slim, t.wide, 20 + t.slim
    sizes = {
        "a small buffer first": (wide, slim, slim, wide),
        "a large buffer first": (slim, wide, wide, slim),
        "the nearest one is too small": (wide, 3 * wide, wide * 9 // 5, wide),
        "the larger one grows": (wide, slim, wide + 9, slim),
        "the larger one grows, and is the second": (slim, wide, wide + 9, slim),
    }
    upright = t.typed(f"{rows + 20}x2xf32", f"10x{rows}xf32", "8x4xf32", f"10x{rows}xf32")
    turned = t.typed(f"2x{rows + 20}xf32", f"{rows}x10xf32", "4x8xf32", f"{rows}x10xf32")
    cases = [reuse_case(name, t.sized(*order)) for name, order in sizes.items()]
    return [*cases, reuse_case("of two dimensions", upright), reuse_case("of two dimensions, turned", turned)]


EQUIVALENT = {
    ("width.append(0)", "width.append(1)"): "it becomes the size of the buffer, which is no less",
    ("busy_until.append(0)", "busy_until.append(1)"): "it is set to the end of the buffer",
}

# ---------------------------------------------------------------------------------------------------- answers


def _buffers(module):
    """Return a table: value → names of buffers, by passing sets along until nothing changes."""
    aliases = {op.results[0]: {op.results[0].name_hint} for op in module.walk() if op.name == "memref.alloc"}
    grew = True
    while grew:
        grew = False
        for op in module.walk():
            if op.name == "scf.for":
                inner = op.regions[0].block
                ways = [(inner.args[1 + i], s) for i, s in enumerate(op.operands[3:])]
                ways += [(inner.args[1 + i], s) for i, s in enumerate(inner.last_op.operands)]
                ways += [(op.results[i], inner.args[1 + i]) for i in range(len(op.results))]
            elif op.name in ("memref.subview", "memref.cast", "arith.select"):
                ways = [(op.results[0], operand) for operand in op.operands]
            else:
                continue
            for to, source in ways:
                extra = aliases.get(source, set()) - aliases.get(to, set())
                if extra:
                    aliases.setdefault(to, set()).update(extra)
                    grew = True
    return aliases


def _uses(module):
    """Return a table: buffer → (first, last) moments; each operation has one for its start, and one for its end."""
    buffers, clock, span = _buffers(module), 0, {}
    home = {op.results[0].name_hint: op.parent for op in module.walk() if op.name == "memref.alloc"}

    def visit(block, around):
        nonlocal clock
        touched = []
        for op in block.ops:
            begin, inner = clock, []
            clock += 1
            for region in op.regions:
                for one in region.blocks:
                    inner += visit(one, [*around, block])
            if op.name not in ("memref.subview", "memref.cast", "arith.select", "scf.for", "scf.yield"):
                inner += [name for operand in op.operands for name in buffers.get(operand, ())]
            clock += 1
            for name in inner:
                if home[name] is block:
                    first, _ = span.get(name, (begin, 0))
                    span[name] = (first, clock)
                else:
                    touched.append(name)
        return touched

    for function in module.ops:
        visit(function.regions[0].block, [])
    return span


def _bytes(module):
    sizes = {}
    for op in module.walk():
        if op.name == "memref.alloc":
            kind = op.results[0].type
            sizes[op.results[0].name_hint] = math.prod(kind.get_shape()) * (kind.element_type.bitwidth // 8)
    return sizes


@right("passes names along edge by edge, measures time in both ends of each operation, keeps a pool of free slots")
def pools(module):
    size, free, busy, slot, count = _bytes(module), [], [], {}, 0
    for name, (begin, end) in sorted(_uses(module).items(), key=lambda one: one[1]):
        for one in [one for one in busy if one[0] <= begin]:
            busy.remove(one)
            free.append(one[1:])
        free.sort()
        chosen = next((one for one in free if one[0] >= size[name]), free[-1] if free else None)
        if chosen:
            free.remove(chosen)
        else:
            count += 5
            chosen = (0, count)
        slot[name] = chosen[1]
        busy.append((end, max(chosen[0], size[name]), chosen[1]))
    return slot


@right("builds the graph of conflicts first, and colours it in the order of the starts")
def colours(module):
    span, size = _uses(module), _bytes(module)
    clash = {a: {b for b in span if b != a and span[a][0] < span[b][1] and span[b][0] < span[a][1]} for a in span}
    members = []
    for name in sorted(span, key=span.get):
        open_to = [slot for slot in members if not clash[name] & set(slot)]
        wide = {id(slot): max(size[one] for one in slot) for slot in open_to}
        fits = [slot for slot in open_to if wide[id(slot)] >= size[name]]
        if fits:
            min(fits, key=lambda slot: wide[id(slot)]).append(name)
        elif open_to:
            max(open_to, key=lambda slot: wide[id(slot)]).append(name)
        else:
            members.append([name])
    return {name: number for number, slot in enumerate(members) for name in slot}


@wrong("did", "gives every buffer a slot of its own")
def each_its_own(module):
    return {name: number for number, name in enumerate(_bytes(module))}


@wrong("same", "puts everything into one slot")
def all_in_one(module):
    return dict.fromkeys(_bytes(module), 0)


@wrong("valid", "names buffers as they are printed, with %")
def with_percent(module):
    return {f"%{name}": slot for name, slot in pools(module).items()}


_CHOICE = "(width[n] < size, abs(width[n] - size))"
no_views = edited("spared", "takes a view for memory of its own")(
    ('op.name in ("memref.subview", "memref.cast", "arith.select")', "False")
)
no_loop_names = edited("spared", "does not see that a loop renames buffers, or thinks only of its first turn")(
    ("isinstance(op, scf.ForOp)", "False")
)
no_turns = edited("spared", "takes a loop for straight code: what the next turn reads is overwritten")(
    (
        "            first, last = number[at], max(number[inner] for inner in at.walk())",
        "            first = last = number[op]",
    )
)
outermost = edited(
    "did", "lets every use in a loop count for the whole outermost loop, also of what is new in each turn"
)(
    (
        "at.parent_block() is not buffer.parent_block()",
        "at.parent_op() is not None and at.parent_op().name != 'func.func'",
    )
)
innermost = edited("spared", "lets a use count for the innermost loop around it, and not for those further out")(
    (
        "while at.parent_block() is not buffer.parent_block(): ...",
        "if at.parent_block() is not buffer.parent_block(): ...",
    )
)
returned_ends = edited("spared", "does not count a return as a use")(
    ('"scf.for", "scf.yield"', '"scf.for", "scf.yield", "func.return"')
)
handed_over = edited("same", "lets an operation write over what it reads")(
    ("until < start", "until <= max(number[inner] for inner in [*number][start].walk())")
)
mixed = edited("did", "each result of a loop may be any buffer that the loop passes on")(
    ("zip(value, after, strict=True)", "((name, other) for name in value for other in after)")
)
no_numbers = edited("valid", "multiplies the sizes, of which there must be one")(
    (
        "math.prod(buffer.memref.type.get_shape())",
        "__import__('functools').reduce(lambda one, other: one * other, buffer.memref.type.get_shape())",
    )
)
one_side = edited("cost", "takes the first size for the number of elements")(
    ("math.prod(buffer.memref.type.get_shape())", "buffer.memref.type.get_shape()[0]")
)
added_sizes = edited("cost", "adds the bytes of an element instead of multiplying by them")(
    (
        "math.prod(buffer.memref.type.get_shape()) * buffer.memref.type.element_type.size",
        "math.prod(buffer.memref.type.get_shape()) + buffer.memref.type.element_type.size",
    )
)
any_free = edited("cost", "takes the first free slot")((_CHOICE, "n"))
