"""Are two terms equal for all values of their inputs? Decided by z3, an SMT solver, bit by bit.

Floats are those of IEEE 754, rounded to nearest, with NaN, infinities, subnormal numbers and both zeros; one NaN is as
good as another, and 0.0 is not -0.0. Integers wrap around. A function of which nothing is known is any function, and
so is what `maximum` returns for 0.0 and -0.0, which depends on the machine.

The limit is z3's count of its own steps, so that a busy machine reaches the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from passlab.proving.terms import Term, Terms

try:
    import z3
except ImportError:  # there is no wheel for Linux on ARM
    z3 = None

#: z3's steps for a second of CPU time, fewer than it takes here; and how many times as long a busy machine may take.
STEPS, BUSY = 2_000_000, 60
#: dtype → bits of exponent and of significand, with the hidden one
_FLOATS = {torch.float16: (5, 11), torch.bfloat16: (8, 8), torch.float32: (8, 24), torch.float64: (11, 53)}
_INTS = {torch.int8: 8, torch.uint8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64}


class Answer(NamedTuple):
    """What z3 says. `verdict`: "proved", "refuted" or "undecided". `values`: number of an input's term → its value.

    `why`: of an undecided one, a clause.
    """

    verdict: str
    values: Mapping[int, Any] = MappingProxyType({})
    why: str = ""


class Untreated(Exception):
    """A dtype or a function that is not translated."""


def equal(terms: Terms, pairs: Sequence[tuple[int, int]], conditions: Sequence[int], seconds: float) -> Answer:
    """Return whether both terms of each pair are equal wherever the terms `conditions`, truth values, are all true."""
    if z3 is None:
        return Answer("undecided", why="z3-solver is not installed")
    writer = _Writer(terms)
    try:
        different = z3.Or([writer(a) != writer(b) for a, b in pairs])
        assumed = [writer(number) for number in conditions]
    except Untreated as reason:
        return Answer("undecided", why=str(reason))
    solver = z3.Solver(ctx=writer.context)
    solver.set("rlimit", max(1, int(STEPS * seconds)))
    solver.set("timeout", max(1, int(1000 * BUSY * seconds)))
    solver.add(different, *assumed)
    verdict = solver.check()
    if verdict == z3.unsat:
        return Answer("proved")
    if verdict == z3.unknown:
        return Answer("undecided", why=f"the solver did not decide within {seconds:.3g} s")
    model = solver.model()
    return Answer("refuted", {number: writer.value(model, number) for number in writer.inputs()})


class _Writer:
    """Writes terms as expressions of z3, in a context of its own, which makes its steps the same each time."""

    def __init__(self, terms: Terms):
        self.terms, self.context = terms, z3.Context()
        self.rounding = z3.RNE(self.context)
        self.known: dict[int, Any] = {}
        self.functions: dict[Any, Any] = {}

    def __call__(self, number: int) -> Any:
        """Return the expression of a term."""
        todo = [number]
        while todo:
            waiting = [n for n in self.terms.terms[todo[-1]].operands if n not in self.known]
            todo += waiting
            if not waiting:
                at = todo.pop()
                self.known[at] = self._written(at, self.terms.terms[at])
        return self.known[number]

    def inputs(self) -> list[int]:
        """Return the terms that are inputs, of those that were written."""
        return [number for number in self.known if self.terms.terms[number].op == "input"]

    def value(self, model: Any, number: int) -> Any:
        """Return the number that an input is in a model."""
        dtype, expression = self.terms.terms[number].dtype, self.known[number]
        if dtype == torch.bool:
            return z3.is_true(model.eval(expression, model_completion=True))
        if dtype in _INTS:
            bits = model.eval(expression, model_completion=True)
            return bits.as_long() if dtype == torch.uint8 else bits.as_signed_long()
        if z3.is_true(model.eval(z3.fpIsNaN(expression, self.context), model_completion=True)):
            return float("nan")
        bits = model.eval(z3.fpToIEEEBV(expression, self.context), model_completion=True).as_signed_long()
        whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        return torch.tensor(bits, dtype=whole).view(dtype).item()

    def sort(self, dtype: torch.dtype) -> Any:
        if dtype == torch.bool:
            return z3.BoolSort(self.context)
        if dtype in _INTS:
            return z3.BitVecSort(_INTS[dtype], self.context)
        if dtype in _FLOATS:
            return z3.FPSort(*_FLOATS[dtype], self.context)
        raise Untreated(f"values of type {str(dtype).removeprefix('torch.')} are not treated")

    def _written(self, number: int, term: Term) -> Any:
        sort = self.sort(term.dtype)
        if term.op == "input":
            return z3.Const(f"v{number}", sort)
        if term.op == "constant":
            return self._constant(term.data, term.dtype)
        operands = [self.known[n] for n in term.operands]
        if term.op == "opaque":
            return self.function(term.data, operands, sort)
        from_dtype = self.terms.terms[term.operands[0]].dtype
        if term.op == "cast":
            return self._cast(operands[0], from_dtype, term.dtype)
        work = self.terms.terms[term.operands[-1]].dtype
        write = _operations(work).get(term.op)
        if write is None:
            return self.function((term.op, str(work)), operands, sort)
        return write(self, *operands)

    def _constant(self, value: Any, dtype: torch.dtype) -> Any:
        if dtype == torch.bool:
            return z3.BoolVal(bool(value), self.context)
        if dtype in _INTS:
            return z3.BitVecVal(int(value), _INTS[dtype], self.context)
        sort = self.sort(dtype)
        if value != value:
            return z3.fpNaN(sort)
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        pattern = torch.tensor(value, dtype=dtype).view(bits).item()
        return z3.fpBVToFP(z3.BitVecVal(pattern, 8 * dtype.itemsize, self.context), sort, self.context)

    def function(self, key: Any, operands: list, sort: Any) -> Any:
        if key not in self.functions:
            sorts = [operand.sort() for operand in operands]
            name = f"f{len(self.functions)}"
            self.functions[key] = z3.Function(name, *sorts, sort) if sorts else z3.Const(name, sort)
        return self.functions[key](*operands) if operands else self.functions[key]

    def _cast(self, value: Any, before: torch.dtype, after: torch.dtype) -> Any:
        if before in _FLOATS and after in _FLOATS:
            return z3.fpFPToFP(self.rounding, value, self.sort(after), self.context)
        if after == torch.bool:
            return z3.Not(z3.fpIsZero(value, self.context), self.context) if before in _FLOATS else value != 0
        if before == torch.bool:
            return z3.If(value, self._constant(1, after), self._constant(0, after), self.context)
        if before in _INTS and after in _INTS:
            wider = _INTS[after] - _INTS[before]
            if wider <= 0:
                return z3.Extract(_INTS[after] - 1, 0, value) if wider else value
            return z3.ZeroExt(wider, value) if before == torch.uint8 else z3.SignExt(wider, value)
        if before in _INTS:
            convert = z3.fpUnsignedToFP if before == torch.uint8 else z3.fpSignedToFP
            return convert(self.rounding, value, self.sort(after), self.context)
        return self.function(("cast", str(before), str(after)), [value], self.sort(after))  # undefined if too large

    # ------------------------------------------------------------------------------------------ for the tables below

    def number(self, like: Any, value: float) -> Any:
        """Return a number of the sort of another."""
        return z3.FPVal(value, None, like.sort(), self.context)

    def extreme(self, op: str, a: Any, b: Any, second: Any) -> Any:
        """Return `b` if `second`, else `a`; NaN if one is; of two zeros, one, by the sign of `a`."""
        first, other = (self.function((op, sign, str(a.sort())), [], z3.BoolSort(self.context)) for sign in "-+")
        tie = z3.If(z3.fpIsNegative(a, self.context), first, other)
        zeros = z3.And(z3.fpIsZero(a, self.context), z3.fpIsZero(b, self.context))
        ordered = z3.If(second, b, z3.If(z3.And(zeros, tie), b, a))
        nan = z3.fpIsNaN
        return z3.If(nan(a, self.context), a, z3.If(nan(b, self.context), b, ordered))

    def signbit(self, a: Any) -> Any:
        """Return whether a float is negative; of NaN, nothing is known."""
        of_nan = self.function(("signbit", str(a.sort())), [], z3.BoolSort(self.context))
        return z3.If(z3.fpIsNaN(a, self.context), of_nan, z3.fpIsNegative(a, self.context))


_Operations = dict[str, Callable[..., Any]]

#: Operation → a function of the writer and the operands, for those of any type.
_ANY: _Operations = {
    "where": lambda w, condition, a, b: z3.If(condition, a, b),
    "eq": lambda w, a, b: a == b,
    "ne": lambda w, a, b: a != b,
}
#: The same for floats,
_OF_FLOATS: _Operations = _ANY | {
    "add": lambda w, a, b: z3.fpAdd(w.rounding, a, b, w.context),
    "sub": lambda w, a, b: z3.fpSub(w.rounding, a, b, w.context),
    "mul": lambda w, a, b: z3.fpMul(w.rounding, a, b, w.context),
    "div": lambda w, a, b: z3.fpDiv(w.rounding, a, b, w.context),
    "neg": lambda w, a: z3.fpNeg(a, w.context),
    "abs": lambda w, a: z3.fpAbs(a, w.context),
    "sqrt": lambda w, a: z3.fpSqrt(w.rounding, a, w.context),
    "reciprocal": lambda w, a: z3.fpDiv(w.rounding, w.number(a, 1.0), a, w.context),
    "rsqrt": lambda w, a: z3.fpDiv(w.rounding, w.number(a, 1.0), z3.fpSqrt(w.rounding, a, w.context), w.context),
    "maximum": lambda w, a, b: w.extreme("maximum", a, b, z3.fpLT(a, b, w.context)),
    "minimum": lambda w, a, b: w.extreme("minimum", a, b, z3.fpLT(b, a, w.context)),
    "relu": lambda w, a: w.extreme("relu", a, w.number(a, 0.0), z3.fpLT(a, w.number(a, 0.0), w.context)),
    "eq": lambda w, a, b: z3.fpEQ(a, b, w.context),
    "ne": lambda w, a, b: z3.Not(z3.fpEQ(a, b, w.context)),
    "lt": lambda w, a, b: z3.fpLT(a, b, w.context),
    "le": lambda w, a, b: z3.fpLEQ(a, b, w.context),
    "gt": lambda w, a, b: z3.fpGT(a, b, w.context),
    "ge": lambda w, a, b: z3.fpGEQ(a, b, w.context),
    "isnan": lambda w, a: z3.fpIsNaN(a, w.context),
    "signbit": lambda w, a: w.signbit(a),
}
#: for signed integers,
_OF_SIGNED: _Operations = _ANY | {
    "add": lambda w, a, b: a + b,
    "sub": lambda w, a, b: a - b,
    "mul": lambda w, a, b: a * b,
    "neg": lambda w, a: -a,
    "abs": lambda w, a: z3.If(a < 0, -a, a),
    "relu": lambda w, a: z3.If(a < 0, z3.BitVecVal(0, a.size(), w.context), a),
    "lt": lambda w, a, b: a < b,
    "le": lambda w, a, b: a <= b,
    "gt": lambda w, a, b: b < a,
    "ge": lambda w, a, b: b <= a,
    "maximum": lambda w, a, b: z3.If(a < b, b, a),
    "minimum": lambda w, a, b: z3.If(b < a, b, a),
    "isnan": lambda w, a: z3.BoolVal(False, w.context),
    "bitwise_and": lambda w, a, b: a & b,
    "bitwise_or": lambda w, a, b: a | b,
    "bitwise_xor": lambda w, a, b: a ^ b,
    "bitwise_not": lambda w, a: ~a,
    "bitwise_left_shift": lambda w, a, b: a << b,
}
#: for unsigned ones,
_OF_UNSIGNED: _Operations = _OF_SIGNED | {
    "abs": lambda w, a: a,
    "relu": lambda w, a: a,
    "lt": lambda w, a, b: z3.ULT(a, b),
    "le": lambda w, a, b: z3.ULE(a, b),
    "gt": lambda w, a, b: z3.ULT(b, a),
    "ge": lambda w, a, b: z3.ULE(b, a),
    "maximum": lambda w, a, b: z3.If(z3.ULT(a, b), b, a),
    "minimum": lambda w, a, b: z3.If(z3.ULT(b, a), b, a),
}
#: and for truth values.
_OF_BOOLS: _Operations = _ANY | {
    "logical_xor": lambda w, a, b: z3.Xor(a, b),
    "bitwise_xor": lambda w, a, b: z3.Xor(a, b),
    **dict.fromkeys(("logical_not", "bitwise_not"), lambda w, a: z3.Not(a)),
    **dict.fromkeys(("logical_and", "bitwise_and", "mul"), lambda w, a, b: z3.And(a, b)),
    **dict.fromkeys(("logical_or", "bitwise_or", "add"), lambda w, a, b: z3.Or(a, b)),
}


def _operations(dtype: torch.dtype) -> _Operations:
    if dtype in _FLOATS:
        return _OF_FLOATS
    if dtype in _INTS:
        return _OF_UNSIGNED if dtype == torch.uint8 else _OF_SIGNED
    return _OF_BOOLS
