"""Apply rewrite patterns until no one matches: the greedy driver, with benefits, and a limit for endless patterns.

    class AddZero(RewritePattern):
        \"\"\"x + 0 = x\"\"\"

        benefit = 2

        def match_and_rewrite(self, op, rewriter):
            if op.name == "arith.addi" and number(op.rhs) == 0:
                rewriter.replace(op, [], [op.lhs])

    rewrite(module, [AddZero()])  # Counter({'AddZero': 1})

The patterns are xDSL's. As in MLIR (`applyPatternsGreedily`, bottom up), operations are visited from the last to the
first, new and changed ones again, and dead operations are erased.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IndexType, IntegerAttr, IntegerType, ModuleOp, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern
from xdsl.transforms.dead_code_elimination import is_trivially_dead

#: The driver stops after this many rewrites, times one more than the operations of the module.
MOST = 50


class Endless(RuntimeError):
    """Patterns that always find something to rewrite."""


class Greedy(RewritePattern):
    """All patterns as one: of those that match an operation, the one with the largest benefit rewrites it."""

    def __init__(self, module: ModuleOp, patterns: Sequence[RewritePattern]):
        for pattern in patterns:
            if not isinstance(pattern, RewritePattern):
                remedy = f"; write {pattern.__name__}()" if isinstance(pattern, type) else ""
                raise TypeError(f"rewrite takes instances of RewritePattern; {pattern!r:.60} is not one{remedy}.")
        self.patterns = sorted(patterns, key=lambda pattern: -getattr(pattern, "benefit", 1))
        self.most = MOST * (1 + sum(1 for _ in module.walk()))
        self.log: list[str] = []
        self.last = ""
        self.error: Exception | None = None
        self.walker: PatternRewriteWalker | None = None

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if self.error or len(self.log) >= self.most:  # what a walker does with an exception hides it
            return
        if is_trivially_dead(op):
            rewriter.erase(op)
            return
        source = first_line(op) if len(self.log) == self.most - 1 else ""  # of the last one, which `_why` quotes
        for pattern in self.patterns:
            try:
                pattern.match_and_rewrite(op, rewriter)
            except Exception as error:
                self.error = error
                return
            if rewriter.has_done_action:
                self.log.append(type(pattern).__name__)
                self.last = source
                return


def rewrite(module: ModuleOp, patterns: Sequence[RewritePattern]) -> Counter[str]:
    """Rewrite a module in place until no pattern matches; return how often each pattern has rewritten something.

    A pattern may have a number `benefit` (default 1). Raises Endless, which names the patterns that never stop,
    TypeError for a value that is not a pattern, and any exception of a pattern.
    """
    return drive(module, Greedy(module, patterns))


def drive(module: ModuleOp, greedy: Greedy) -> Counter[str]:
    """Rewrite a module by patterns that are one: see `rewrite`."""
    greedy.walker = PatternRewriteWalker(greedy, walk_reverse=True)
    greedy.walker.rewrite_module(module)
    if greedy.error:
        raise greedy.error
    if len(greedy.log) >= greedy.most:
        raise Endless(_why(greedy.log, greedy.last))
    return Counter(greedy.log)


def _why(log: Sequence[str], last: str) -> str:
    names = sorted({*log[-MOST:]})
    cause = f"{names[0]} matches what it has made itself" if len(names) == 1 else f"{' and '.join(names)} take turns"
    return f"After {len(log)} rewrites the driver stopped: {cause}, without end. The last one was of `{last}`."


def first_line(op: Operation) -> str:
    """Return the first line of an operation's text, at most 80 characters."""
    return str(op).split("\n", 1)[0][:80]


def number(value: SSAValue) -> int | float | None:
    """Return the number of an arith.constant; None for another value and for tensors."""
    constant = value.owner
    if isinstance(constant, arith.ConstantOp) and isinstance(constant.value, IntegerAttr | FloatAttr):
        return constant.value.value.data
    return None


def constant(number: float, type: Attribute) -> arith.ConstantOp:
    """Return a new arith.constant of an integer, index or float type.

    An integer wraps to the bits of its type, 64 for index. A float beyond the range of its type is infinite. Raises
    TypeError for another type, and for a number that is not an integer where the type takes integers.
    """
    if isinstance(type, AnyFloat):
        try:
            return arith.ConstantOp(FloatAttr(float(number), type))
        except OverflowError:
            return arith.ConstantOp(FloatAttr(math.inf if number > 0 else -math.inf, type))
    if not isinstance(type, IntegerType | IndexType):
        raise TypeError(f"constant makes numbers of integer, index and float types, not of {type}.")
    if not isinstance(number, Integral):
        raise TypeError(f"constant: {number!r:.60} is not an integer, but {type} takes integers.")
    bits = i64 if isinstance(type, IndexType) else type
    wrapped = IntegerAttr(int(number), bits, truncate_bits=True)
    return arith.ConstantOp(IntegerAttr(wrapped.value, type))


def flags(op: Operation) -> frozenset[str]:
    """Return the flags of an arith operation: of fast-math (nnan, nsz, reassoc, …), or of overflow (nsw, nuw)."""
    attribute = op.properties.get("fastmath") or op.properties.get("overflowFlags")
    return frozenset(flag.value for flag in attribute.data) if attribute else frozenset()


def again(op: Operation, lhs: SSAValue, rhs: SSAValue, flags: Iterable[str] = ()) -> Operation:
    """Return a new operation of the same kind on two other values, with the given flags."""
    if "fastmath" in op.properties:
        return type(op)(lhs, rhs, flags=arith.FastMathFlagsAttr([arith.FastMathFlag(flag) for flag in sorted(flags)]))
    if "overflowFlags" in op.properties:
        kinds = [arith.IntegerOverflowFlag(flag) for flag in sorted(flags)]
        return type(op)(lhs, rhs, overflow=arith.IntegerOverflowAttr(kinds))
    return type(op)(lhs, rhs)
