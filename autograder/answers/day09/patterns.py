"""Hidden cases and answers of day09.patterns."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith
from xdsl.pattern_rewriter import RewritePattern

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day09._generics import generic
from passlab.exercises.day09._passes import keeps
from passlab.exercises.day09.patterns import (
    NO_LAW,
    REGROUPED,
    SIX,
    TIMES_ZERO,
    ZERO,
    at_most,
    only,
    pattern_case,
    scalars,
    stays,
)
from passlab.judge import Case
from passlab.mlir.rewriting import again, constant, flags, number

# ---------------------------------------------------------------------------------------------------- hidden cases

ONE_TO_MERGE = "Two operations with constants become one."
READ_TWICE = "The inner operation is read elsewhere, too: it stays, and the other one takes its operand."
TWO_OPERATIONS = "No law is about two different operations."
PROMISE = "Only one of the two operations had it."
NEW_PROMISE = "The operation that it replaces had no such flag."
KEPT = "The operations that it replaces had it, each of them."
OVERFLOWS = "That x + c and (x + c) + d do not overflow says nothing of c + d."
FLOATS = "a = addf -0.0 x; b = mulf 1 a; c = addf 0.5 b <reassoc>; d = addf c 0.25 <reassoc>; e = mulf d 2"
INTEGERS = "a = addi 0 x; b = muli 1 a; c = addi 3 b; d = addi c 4; e = muli d 2"
OTHERS = "nnan,ninf,nsz,arcp,contract,afn"
CHAIN = "; ".join(f"v{i} = addi {f'v{i - 1}' if i else 'x'} {i + 1}" for i in range(30))


#: A function of a case's name, its lines, and what `pattern_case` takes: the case of a function of two scalars.
Law = Callable[..., Case]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.sample(range(3, 40), 2)
    a, b = rng.choice(["addi", "muli"]), rng.choice(["addf", "mulf"])
    floats = rng.choice(["f32", "f64"])

    def law(name: str, lines: str, *, kind: str = floats, results: int = 1, **options: Any) -> Case:
        return pattern_case(name, scalars(lines, kind=kind, results=results, parameters="x y"), **options)

    return [
        *_promises(law, floats),
        *_zeros_and_ones(law, n),
        *_merged(law, n, m, b),
        *_kept(law, n, m, a),
        *_doubled(law, n),
        *_bodies(law, rng),
    ]


def _promises(law: Law, floats: str) -> list[Case]:
    """Return cases of operations that change, and whose flags may not promise more than before."""
    return [
        law("exchanged, no promise", "a = addf 3 x", spared=only(why=NEW_PROMISE)),
        law("exchanged, no promise, integers", "a = addi 3 x", kind="i32", spared=only(why=NEW_PROMISE)),
        law("doubled, no promise", "a = mulf x 2", spared=only(why=NEW_PROMISE)),
        law("exchanged products, no promise", "a = mulf 3 x", spared=only(why=NEW_PROMISE)),
        law("exchanged products, no promise, integers", "a = muli 3 x", kind="i32", spared=only(why=NEW_PROMISE)),
        law("exchanged, one promise", "a = addf 3 x <nsz>; b = mulf 5 a <nsz>", spared=only("nsz", why=NEW_PROMISE)),
        law(
            "exchanged, one promise, integers",
            "a = addi 3 x <nuw>; b = muli 5 a <nuw>",
            kind="i32",
            spared=only("nuw", why=NEW_PROMISE),
        ),
        law("doubled, no promise, integers", "a = muli x 2", kind="i32", spared=only(why=NEW_PROMISE)),
        law("doubled, one promise", "a = mulf x 2 <ninf>", spared=only("ninf", why=NEW_PROMISE)),
        law("doubled, one promise, integers", "a = muli x 2 <nsw>", kind="i32", spared=only("nsw", why=NEW_PROMISE)),
        *(
            law(
                f"merged, no promise, {op}",
                f"a = {op} x 3 {allowed}; b = {op} a 5 {allowed}",
                kind=kind,
                spared=only(*promise, why=NEW_PROMISE),
            )
            for op, kind, promise, allowed in (
                ("addi", "i32", (), ""),
                ("muli", "i32", (), ""),
                ("addf", floats, ("reassoc",), "<reassoc>"),
                ("mulf", floats, ("reassoc",), "<reassoc>"),
            )
        ),
    ]


def _zeros_and_ones(law: Law, n: int) -> list[Case]:
    """Return cases of operands that change nothing, or make the result zero."""
    return [
        law(
            "back again, and read in between",
            f"a = addi x {n}; b = addi a -{n}",
            kind="i32",
            results=2,
            did=at_most("addi", 1),
        ),
        law(
            "halved and doubled, and read in between",
            "a = mulf x 0.25 <reassoc>; b = mulf a 4 <reassoc>",
            results=2,
            did=at_most("mulf", 1),
        ),
        law(
            "no law is about them, floats",
            "a = divf x 1; b = subf a 0.0; c = divf b 3; d = divf c 5",
            spared=(*stays("divf", 3, "No law is about divf."), *stays("subf", 1, "No law is about subf.")),
        ),
        law(
            "no law is about them, integers",
            "a = ori x 0; b = xori a 0; c = ori b 1; d = ori c 2",
            kind="i32",
            spared=(*stays("ori", 3, "No law is about ori."), *stays("xori", 1, "No law is about xori.")),
        ),
        law("minus zero on the left", "a = addf -0.0 x; b = mulf 1.0 a", did=at_most()),
        law("zero, allowed", "a = addf x 0.0 <nsz>", did=at_most()),
        law("zero on the left, allowed", "a = addf 0.0 x <nsz>", did=at_most()),
        law("zero, another flag", "a = addf x 0.0 <nnan,ninf>", spared=stays("addf", 1, ZERO)),
        law("zero times, integer", "a = muli 0 x; b = addi a y", kind="i32", did=at_most("muli")),
        law("times zero, no flag", "a = mulf x 0.0", spared=stays("mulf", 1, TIMES_ZERO)),
        law("times zero, one flag", "a = mulf x 0.0 <nsz>", spared=stays("mulf", 1, TIMES_ZERO)),
        law("times minus zero, allowed", "a = mulf -0.0 x <nsz,nnan,ninf>", did=at_most()),
    ]


def _merged(law: Law, n: int, m: int, b: str) -> list[Case]:
    """Return cases of two constants in a row. b: an operation of floats."""
    return [
        law("products that wrap", f"a = muli x {n}; b = muli a {m + 90}", kind="i16", did=at_most("", 1, ONE_TO_MERGE)),
        law("a wrapped constant", "a = muli x 100; b = muli 5 a", kind="i8", did=at_most("", 1, ONE_TO_MERGE)),
        law(
            "regrouped, allowed", f"a = {b} {n} x <reassoc>; b = {b} a {m} <reassoc>", did=at_most("", 1, ONE_TO_MERGE)
        ),
        law(
            "three in a row, allowed",
            f"a = {b} x 3 <reassoc,nsz>; b = {b} a 4 <reassoc>; c = {b} b 5 <reassoc>",
            did=at_most("", 1, ONE_TO_MERGE),
        ),
        law("only the first", f"a = {b} x {n} <reassoc>; b = {b} a {m}", spared=stays(b, 2, REGROUPED)),
        law("only the second", f"a = {b} x {n}; b = {b} a {m} <reassoc>", spared=stays(b, 2, REGROUPED)),
        law(
            "a promise of the first",
            "a = addf x 3 <reassoc,nnan>; b = addf a 4 <reassoc>",
            spared=only("reassoc", why=PROMISE),
        ),
        law(
            "a promise of the second",
            "a = addf x 3 <reassoc>; b = addf a 4 <reassoc,ninf>",
            spared=only("reassoc", why=PROMISE),
        ),
        law(
            "no overflow",
            "a = addi x 9 <nsw>; b = addi a 9 <nsw>",
            kind="i32",
            did=at_most("", 1),
            spared=only(why=OVERFLOWS),
        ),
        law(
            "no overflow, unsigned",
            "a = addi x 9 <nuw>; b = addi a 9 <nuw>",
            kind="i32",
            spared=only(why=OVERFLOWS),
        ),
    ]


def _kept(law: Law, n: int, m: int, a: str) -> list[Case]:
    """Return cases that no law is about. a: an operation of integers."""
    return [
        law(
            "a sum and a product",
            f"a = addi x {n}; b = muli a {m}",
            kind="i32",
            spared=stays("addi", 1, TWO_OPERATIONS),
        ),
        law(
            "a product and a sum",
            f"a = muli x {n}; b = addi a {m}",
            kind="i32",
            spared=stays("muli", 1, TWO_OPERATIONS),
        ),
        law(
            "a difference",
            "a = subi x 0; b = subi a 7; c = subi b 9",
            kind="i32",
            spared=stays("subi", 2, "No law is about subi."),
        ),
        law("one more", "a = addi x 1; b = muli a y", kind="i32", spared=stays("addi", 1, "x + 1 is not x.")),
        law("two constants times", f"a = {a} {n} {m}; b = {a} a x", kind="i32", spared=stays(a, 2, NO_LAW)),
        law("two constants, floats", "a = mulf 3 5; b = mulf a x", spared=stays("mulf", 2, NO_LAW)),
        law("no constants", f"a = {a} x y; b = {a} a x", kind="i32", spared=stays(a, 2, NO_LAW)),
        law(
            "a constant in between",
            f"a = addi x {n}; b = addi a y; c = addi b {m}",
            kind="i32",
            spared=stays("addi", 3, "Only neighbours merge."),
        ),
        law("read twice", f"a = addi x {n}; b = addi a {m}", kind="i32", results=2, spared=at_most("", 2, READ_TWICE)),
        law("minus one times", "a = muli x -1", kind="i32", spared=stays("muli", 1, "x · (−1) is not x.")),
        law("minus one times, floats", "a = mulf x -1", spared=stays("mulf", 1, "x · (−1) is not x.")),
        law("minus two times", "a = muli x -2", kind="i32", spared=stays("muli", 1, "x · (−2) is not x + x.")),
    ]


def _doubled(law: Law, n: int) -> list[Case]:
    """Return cases of x · 2, and of several laws one after the other."""
    return [
        law("doubled, floats", "a = mulf 2.0 x", did=at_most("mulf")),
        law("doubled, i16", "a = muli 2 x", kind="i16", did=at_most("muli")),
        law("six times, floats", "a = mulf x 3 <reassoc>; b = mulf 2 a <reassoc>", cost=at_most("", 1, SIX)),
        law("many times", f"a = muli x {n}; b = muli a 2", kind="i32", cost=at_most("", 1, SIX)),
        *(
            law(f"all laws, {kind}", FLOATS, kind=kind, did=(*at_most("mulf"), *at_most("addf", 2)))
            for kind in ("f16", "f32", "f64")
        ),
        *(
            law(f"all laws, {kind}", INTEGERS, kind=kind, did=(*at_most("muli"), *at_most("addi", 2)))
            for kind in ("index", "i64")
        ),
        law("three constants", "a = addi 1 2; b = addi a 3", kind="i32", did=at_most("addi", 1, ONE_TO_MERGE)),
        law(
            "doubled, then merged",
            "a = mulf 3 2 <reassoc>; b = addf a 4 <reassoc>",
            did=(*at_most("mulf"), *at_most("addf", 1, ONE_TO_MERGE)),
        ),
        law("merged to zero, allowed", "a = addf x 3 <reassoc,nsz>; b = addf a -3 <reassoc,nsz>", did=at_most()),
        law(
            "merged to times zero, allowed",
            "a = mulf x 3 <reassoc,nnan,nsz>; b = mulf a 0 <reassoc,nnan,nsz>",
            did=at_most(),
        ),
        law("a long chain", CHAIN, kind="i32", did=at_most("", 1, ONE_TO_MERGE)),
        law("sums that wrap, i32", "a = addi x 2147483647; b = addi a 5", kind="i32", did=at_most("", 1, ONE_TO_MERGE)),
        law(
            "products that wrap, i64",
            "a = muli x 4611686018427387905; b = muli a 6",
            kind="i64",
            did=at_most("", 1, ONE_TO_MERGE),
        ),
        law("a constant plus zero", f"a = addi {n} 0; b = addi a x", kind="i32", did=at_most("addi", 1)),
        law("a constant plus minus zero", f"a = addf {n} -0.0", did=at_most()),
        law("a constant times one", f"a = muli {n} 1; b = muli a x", kind="i32", did=at_most("muli", 1)),
        law("a constant times zero", f"a = muli {n} 0", kind="i32", did=at_most()),
        law("a constant doubled", f"a = muli {n} 2", kind="i32", did=at_most("muli")),
        *(
            law(
                f"every promise but reassoc, {op}",
                f"a = {op} x 3 <{OTHERS}>; b = {op} a 5 <{OTHERS}>",
                spared=stays(op, 2, REGROUPED),
            )
            for op in ("addf", "mulf")
        ),
        law("four times", "a = mulf x 4", spared=stays("mulf", 1, "No law is about x · 4.")),
        law("four times, integers", "a = muli x 4", kind="i32", spared=stays("muli", 1, "No law is about x · 4.")),
    ]


def _bodies(law: Law, rng: random.Random) -> list[Case]:
    """Return cases of bodies of linalg.generics, and drawn ones."""
    # the inner operation stands outside of the body in which the other one reads it
    sevens = "".join(f"  %c{n} = arith.constant {n} : i32\n" for n in (7, 3)) + "  %s = arith.addi %c7, %c3 : i32\n"
    merged = ["%c = arith.constant 4 : i32", "%t = arith.addi %s, %c : i32", "%u = arith.addi %t, %a : i32", "%u"]
    across = generic("p", [("d0", (4,))], [("d0", (4,))], merged, "i32").replace("  %r = ", f"{sevens}  %r = ", 1)
    inside = ["%z = arith.constant -0.0 : f32", "%s = arith.addf %z, %a : f32", "%t = arith.addf %s, %y : f32", "%t"]
    return [
        pattern_case("in a body", generic("pr", [("d0, d1", (3, 4))], [("d0", (3,))], inside), did=at_most("addf", 1)),
        *(pattern_case(f"drawn, number {i + 1}", _drawn(rng)) for i in range(8)),
        law(
            "every promise, kept",
            f"a = mulf x 3 <reassoc,{OTHERS}>; b = mulf a 5 <reassoc,{OTHERS}>; c = addf 7 y <reassoc,{OTHERS}>; "
            f"d = mulf y 2 <reassoc,{OTHERS}>",
            results=3,
            did=(*at_most("mulf", 1), keeps(("reassoc", *OTHERS.split(",")), KEPT)),
        ),
        pattern_case("from around a body", across, did=at_most("addi", 2, ONE_TO_MERGE)),
    ]


def _drawn(rng: random.Random) -> str:
    """Return a function of two scalars without flags: the result has to be the same to the bit."""
    kind = rng.choice(["i8", "i16", "i32", "f32"])
    ops = ["addf", "mulf", "subf"] if kind == "f32" else ["addi", "muli", "subi"]
    numbers = ["0", "1", "2", "3", "-1", *(["-0.0", "0.5"] if kind == "f32" else ["7"])]
    names, lines = ["x", "y"], []
    for i in range(8):
        one, other = rng.choice(names), rng.choice([*names, *rng.sample(numbers, 3)])
        pair = [one, other] if rng.random() < 0.7 else [other, one]
        lines.append(f"v{i} = {rng.choice(ops)} {pair[0]} {pair[1]}")
        names = [*names[-2:], f"v{i}"]
    return scalars("; ".join(lines), "x y", kind)


# ---------------------------------------------------------------------------------------------------- answers

ADD, MULTIPLY = ("arith.addi", "arith.addf"), ("arith.muli", "arith.mulf")


class _Laws(RewritePattern):
    """All laws, one after the other."""

    def match_and_rewrite(self, op, rewriter):
        if op.name not in ADD + MULTIPLY:
            return
        c, promised, integer = number(op.rhs), flags(op), op.name.endswith("i")
        if number(op.lhs) is not None and c is None:
            rewriter.replace(op, again(op, op.rhs, op.lhs, promised))
        elif c == (op.name in MULTIPLY) and (c or integer or "nsz" in promised or str(c) == "-0.0"):
            rewriter.replace(op, [], [op.lhs])
        elif op.name in MULTIPLY and c == 0 and (integer or {"nsz", "nnan"} <= promised):
            rewriter.replace(op, [], [op.rhs])
        elif c is not None and self.inner(op):
            inner = op.lhs.owner
            merged = constant(c + number(inner.rhs) if op.name in ADD else c * number(inner.rhs), op.rhs.type)
            rewriter.replace(
                op, [merged, again(op, inner.lhs, merged.result, () if integer else promised & flags(inner))]
            )
        elif op.name in MULTIPLY and c == 2:
            rewriter.replace(op, arith.AddiOp(op.lhs, op.lhs) if integer else arith.AddfOp(op.lhs, op.lhs, op.fastmath))

    def inner(self, op):
        inner = op.lhs.owner
        fits = getattr(inner, "name", None) == op.name and number(inner.rhs) is not None
        return fits and (op.name.endswith("i") or ("reassoc" in flags(op) and "reassoc" in flags(inner)))


@right("one class with all laws in the right order, so that no benefit is needed")
def one_class():
    return [_Laws()]


class _One(RewritePattern):
    """A law as a function (op, c, d, whether both sides are integers) → what replaces the operation, or None."""

    def __init__(self, benefit, law):
        self.benefit, self.law = benefit, law

    def match_and_rewrite(self, op, rewriter):
        if op.name in ADD + MULTIPLY:
            replacement = self.law(op, number(op.rhs), op.name.endswith("i"))
            if replacement is not None:
                rewriter.replace(op, *replacement)


def _swap(op, c, integer):
    return ([again(op, op.rhs, op.lhs, flags(op))],) if number(op.lhs) is not None and c is None else None


def _unit(op, c, integer):
    unit = 1 if op.name in MULTIPLY else 0
    signed = integer or unit or "nsz" in flags(op) or (c is not None and math.copysign(1, c) == -1)
    return ([], [op.lhs]) if c == unit and signed else None


def _nothing(op, c, integer):
    free = integer or not {"nnan", "nsz"} - flags(op)
    return ([], [op.rhs]) if op.name in MULTIPLY and c == 0 and free else None


def _merge(op, c, integer):
    inner = op.lhs.owner
    if c is None or not isinstance(inner, type(op)) or number(inner.rhs) is None:
        return None
    both = frozenset() if integer else flags(op).intersection(flags(inner))
    if not integer and "reassoc" not in both:
        return None
    d = number(inner.rhs)
    merged = constant(d + c if op.name in ADD else d * c, op.rhs.type)
    return ([merged, again(op, inner.lhs, merged.result, both)],)


def _double(op, c, integer):
    if op.name in ADD or c != 2:
        return None
    return ([arith.AddiOp(op.lhs, op.lhs) if integer else arith.AddfOp(op.lhs, op.lhs, op.fastmath)],)


@right("one class for all laws, which are functions")
def functions():
    laws = {_swap: 9, _unit: 8, _nothing: 7, _merge: 6, _double: 5}
    return tuple(_One(benefit, law) for law, benefit in laws.items())


merges_without_wrapping = edited("did", "does not merge integers whose sum or product needs more than 32 bits")(
    (
        '"reassoc" in both or isinstance(c, int)',
        '"reassoc" in both or isinstance(c, int) and abs(c * d if op.name in MULTIPLY else c + d) < 2**31',
    )
)
no_constant_for_x = edited("did", "takes x for a value that is not constant: 7 + 0 stays")(
    (
        "zero or (op.name in MULTIPLY and number(op.rhs) == 1)",
        "number(op.lhs) is None and (zero or (op.name in MULTIPLY and number(op.rhs) == 1))",
    )
)
constants_not_doubled = edited("did", "does not double an integer constant")(
    (
        "op.name in MULTIPLY and number(op.rhs) == 2",
        "op.name in MULTIPLY and number(op.rhs) == 2 and not isinstance(number(op.lhs), int)",
    )
)
some_types = edited("did", "doubles numbers of 32 bits, and small integers")(
    ("number(op.rhs) == 2", "number(op.rhs) == 2 and str(op.rhs.type) in ('f32', 'i8', 'i16', 'i32')")
)
other_promises = edited("spared", "regroups floats that are no NaN and whose zeros have no sign")(
    ('"reassoc" in both', '"reassoc" in both or both >= {"nnan", "nsz"}')
)
swaps_for_ever = edited("valid", "swaps two constants for ever")(("... and number(op.rhs) is None", "..."))
any_zero = edited("spared", "x + 0.0 = x, whatever the sign: 0.0 == -0.0 is true")(
    ('math.copysign(1, number(op.rhs)) < 0 or "nsz" in flags(op)', "True")
)
no_zero = edited("did", "x + 0.0 = x for integers only")(
    ('math.copysign(1, number(op.rhs)) < 0 or "nsz" in flags(op)', "False")
)
times_zero = edited("spared", "x · 0.0 = 0.0, whatever x is")(
    ('op.name == "arith.muli" or flags(op) >= {"nnan", "nsz"}', "True")
)
zero_is_x = edited("same", "x · 0 = x")(("rewriter.replace(op, [], [op.rhs])", "rewriter.replace(op, [], [op.lhs])"))
always_regroups = edited("spared", "regroups floats without being allowed to")(
    ('("reassoc" in both or isinstance(c, int))', "True")
)
all_promises = edited("spared", "gives the new operation the flags of either")(
    ("... & flags(op) - ...", "(... | flags(op)) - ...")
)
keeps_nsw = edited("spared", "promises that the new sum does not overflow")(('flags(op) - {"nsw", "nuw"}', "flags(op)"))
any_inner = edited("same", "merges with whatever stands inside")(
    ('getattr(op.lhs.owner, "name", "") != op.name', 'getattr(op.lhs.owner, "name", "") not in ADD + MULTIPLY')
)
single_readers = edited("did", "merges only with an operation that nothing else reads")(
    (
        '... or getattr(op.lhs.owner, "name", "") != op.name',
        '... or getattr(op.lhs.owner, "name", "") != op.name or not op.lhs.has_one_use()',
    )
)
signless = edited("spared", "says of the operation that stands for two that the sign of zero does not matter")(
    (
        "again(op, inner.lhs, merged.result, both)",
        "again(op, inner.lhs, merged.result, both | ({'nsz'} if 'reassoc' in both else set()))",
    )
)
wraps_not = edited("spared", "promises that exchanged integers do not overflow")(
    (
        "again(op, op.rhs, op.lhs, flags(op))",
        "again(op, op.rhs, op.lhs, flags(op) | ({'nuw'} if op.name.endswith('i') else set()))",
    )
)
regroups_only = edited("did", "of the flags that both operations have keeps reassoc alone")(
    ('flags(op) - {"nsw", "nuw"}', 'flags(op) & {"reassoc"}')
)
no_contract = edited(
    "did", "of the flags that both operations have keeps those by which a law of the table is allowed"
)(('flags(op) - {"nsw", "nuw"}', 'flags(op) & {"reassoc", "nnan", "nsz"}'))
same_block = edited("did", "merges only operations of one block")(
    (
        '... or getattr(op.lhs.owner, "name", "") != op.name',
        '... or getattr(op.lhs.owner, "name", "") != op.name or op.lhs.owner.parent is not op.parent',
    )
)
one_variable = edited("did", "merges with constants only where there is a variable")(
    ("c is not None and d is not None", "c is not None and d is not None and number(inner.lhs) is None")
)
only_of_i32_and_f32 = edited("did", "knows i32, f32 and their like, and leaves index, f16 and f64 alone")(
    (
        "return [ConstantRight(), Neutral(), Zero(), Merge(), Double()]",
        "return [type(kind.__name__, (kind,), {'match_and_rewrite': lambda self, op, rewriter, kind=kind: "
        "kind.match_and_rewrite(self, op, rewriter) if op.results and str(op.results[0].type) not in "
        "('index', 'f16', 'f64') else None})() for kind in (ConstantRight, Neutral, Zero, Merge, Double)]",
    )
)
doubles_bare = edited("did", "doubles without the flags of the product")(
    ("arith.AddfOp(op.lhs, op.lhs, op.fastmath)", "arith.AddfOp(op.lhs, op.lhs)")
)
no_benefit = edited("cost", "doubles before it merges")(("    benefit = 2\n", "    benefit = 0\n"))
double_promises = edited("spared", "doubles with every promise that there is")(
    ("op.fastmath", "arith.FastMathFlagsAttr('fast')")
)
no_swap = edited("did", "looks for constants on the right only")(("ConstantRight(), Neutral()", "Neutral()"))
doubles_all = edited("same", "takes every product with a constant for a double")(
    ("number(op.rhs) == 2", "number(op.rhs)")
)
classes = edited("valid", "returns the classes, not instances")(
    ("[ConstantRight(), Neutral(), Zero(), Merge(), Double()]", "[ConstantRight, Neutral, Zero, Merge, Double]")
)


class _Halve(RewritePattern):
    """x + x = x · 2"""

    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.addi" and op.lhs is op.rhs:
            two = constant(2, op.rhs.type)
            rewriter.replace(op, [two, arith.MuliOp(op.lhs, two.result)])


@wrong("valid", "knows the law of doubling in both directions, which take turns")
def back_and_forth():
    return [*functions(), _Halve()]


EQUIVALENT = {
    ("math.copysign(1, ...) < 0", "math.copysign(1, ...) < 1"): "copysign gives 1 or -1",
    ("math.copysign(1, ...) < 0", "math.copysign(1, ...) <= 0"): "copysign gives 1 or -1",
    ("1, number(op.rhs)", "2, number(op.rhs)"): "only the sign is looked at",
    ("benefit = 2", "benefit = 3"): "any benefit above that of Double will do",
    ("benefit = 2", "pass"): "of equal benefits the first of the list wins: Merge is before Double, as the law asks",
}
