"""Are two terms equal for all values of their inputs? Decided by z3, an SMT solver, bit by bit.

Floats are those of IEEE 754, rounded to nearest, with NaN, infinities, subnormal numbers and both zeros; one NaN is as
good as another, and 0.0 is not -0.0. Integers wrap around. A function of which nothing is known is any function, and
so is what `maximum` returns for 0.0 and -0.0, which depends on the machine.

The limit is z3's count of its own steps, so that a busy machine reaches the same verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
            return self._function(term.data, operands, sort)
        from_dtype = self.terms.terms[term.operands[0]].dtype
        if term.op == "cast":
            return self._cast(operands[0], from_dtype, term.dtype)
        work = self.terms.terms[term.operands[-1]].dtype
        kind = "float" if work in _FLOATS else "int" if work in _INTS else "bool"
        write = getattr(self, f"_{kind}_{term.op}", None) or getattr(self, f"_any_{term.op}", None)
        if write is None:
            return self._function((term.op, str(work)), operands, sort)
        if kind == "int":
            return write(*operands, signed=work != torch.uint8)
        return write(*operands)

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

    def _function(self, key: Any, operands: list, sort: Any) -> Any:
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
        return self._function(("cast", str(before), str(after)), [value], self.sort(after))  # undefined if too large

    # ------------------------------------------------------------------------------------------ floats

    def _float_add(self, a: Any, b: Any) -> Any:
        return z3.fpAdd(self.rounding, a, b, self.context)

    def _float_sub(self, a: Any, b: Any) -> Any:
        return z3.fpSub(self.rounding, a, b, self.context)

    def _float_mul(self, a: Any, b: Any) -> Any:
        return z3.fpMul(self.rounding, a, b, self.context)

    def _float_div(self, a: Any, b: Any) -> Any:
        return z3.fpDiv(self.rounding, a, b, self.context)

    def _float_neg(self, a: Any) -> Any:
        return z3.fpNeg(a, self.context)

    def _float_abs(self, a: Any) -> Any:
        return z3.fpAbs(a, self.context)

    def _float_sqrt(self, a: Any) -> Any:
        return z3.fpSqrt(self.rounding, a, self.context)

    def _float_reciprocal(self, a: Any) -> Any:
        return self._float_div(z3.FPVal(1.0, None, a.sort(), self.context), a)

    def _float_rsqrt(self, a: Any) -> Any:
        return self._float_reciprocal(self._float_sqrt(a))

    def _float_maximum(self, a: Any, b: Any) -> Any:
        return self._extreme("maximum", a, b, self._float_lt(a, b))

    def _float_minimum(self, a: Any, b: Any) -> Any:
        return self._extreme("minimum", a, b, self._float_lt(b, a))

    def _extreme(self, op: str, a: Any, b: Any, second: Any) -> Any:
        """Return `b` if `second`, else `a`; NaN if one is; of two zeros, one, by the sign of `a`."""
        first, other = (self._function((op, sign, str(a.sort())), [], z3.BoolSort(self.context)) for sign in "-+")
        tie = z3.If(z3.fpIsNegative(a, self.context), first, other)
        zeros = z3.And(z3.fpIsZero(a, self.context), z3.fpIsZero(b, self.context))
        ordered = z3.If(second, b, z3.If(z3.And(zeros, tie), b, a))
        nan = z3.fpIsNaN
        return z3.If(nan(a, self.context), a, z3.If(nan(b, self.context), b, ordered))

    def _float_relu(self, a: Any) -> Any:
        zero = z3.FPVal(0.0, None, a.sort(), self.context)
        return self._extreme("relu", a, zero, self._float_lt(a, zero))

    def _float_eq(self, a: Any, b: Any) -> Any:
        return z3.fpEQ(a, b, self.context)

    def _float_ne(self, a: Any, b: Any) -> Any:
        return z3.Not(z3.fpEQ(a, b, self.context))

    def _float_lt(self, a: Any, b: Any) -> Any:
        return z3.fpLT(a, b, self.context)

    def _float_le(self, a: Any, b: Any) -> Any:
        return z3.fpLEQ(a, b, self.context)

    def _float_gt(self, a: Any, b: Any) -> Any:
        return z3.fpGT(a, b, self.context)

    def _float_ge(self, a: Any, b: Any) -> Any:
        return z3.fpGEQ(a, b, self.context)

    def _float_isnan(self, a: Any) -> Any:
        return z3.fpIsNaN(a, self.context)

    def _float_signbit(self, a: Any) -> Any:
        of_nan = self._function(("signbit", str(a.sort())), [], z3.BoolSort(self.context))
        return z3.If(z3.fpIsNaN(a, self.context), of_nan, z3.fpIsNegative(a, self.context))

    # ------------------------------------------------------------------------------------------ integers

    def _int_add(self, a: Any, b: Any, signed: bool) -> Any:
        return a + b

    def _int_sub(self, a: Any, b: Any, signed: bool) -> Any:
        return a - b

    def _int_mul(self, a: Any, b: Any, signed: bool) -> Any:
        return a * b

    def _int_neg(self, a: Any, signed: bool) -> Any:
        return -a

    def _int_abs(self, a: Any, signed: bool) -> Any:
        return z3.If(a < 0, -a, a) if signed else a

    def _int_relu(self, a: Any, signed: bool) -> Any:
        return z3.If(a < 0, z3.BitVecVal(0, a.size(), self.context), a) if signed else a

    def _int_lt(self, a: Any, b: Any, signed: bool) -> Any:
        return a < b if signed else z3.ULT(a, b)

    def _int_le(self, a: Any, b: Any, signed: bool) -> Any:
        return a <= b if signed else z3.ULE(a, b)

    def _int_gt(self, a: Any, b: Any, signed: bool) -> Any:
        return self._int_lt(b, a, signed)

    def _int_ge(self, a: Any, b: Any, signed: bool) -> Any:
        return self._int_le(b, a, signed)

    def _int_eq(self, a: Any, b: Any, signed: bool) -> Any:
        return a == b

    def _int_ne(self, a: Any, b: Any, signed: bool) -> Any:
        return a != b

    def _int_maximum(self, a: Any, b: Any, signed: bool) -> Any:
        return z3.If(self._int_lt(a, b, signed), b, a)

    def _int_minimum(self, a: Any, b: Any, signed: bool) -> Any:
        return z3.If(self._int_lt(b, a, signed), b, a)

    def _int_where(self, condition: Any, a: Any, b: Any, signed: bool) -> Any:
        return z3.If(condition, a, b)

    def _int_isnan(self, a: Any, signed: bool) -> Any:
        return z3.BoolVal(False, self.context)

    def _int_bitwise_and(self, a: Any, b: Any, signed: bool) -> Any:
        return a & b

    def _int_bitwise_or(self, a: Any, b: Any, signed: bool) -> Any:
        return a | b

    def _int_bitwise_xor(self, a: Any, b: Any, signed: bool) -> Any:
        return a ^ b

    def _int_bitwise_not(self, a: Any, signed: bool) -> Any:
        return ~a

    def _int_bitwise_left_shift(self, a: Any, b: Any, signed: bool) -> Any:
        return a << b

    # ------------------------------------------------------------------------------------------ truth values

    def _any_where(self, condition: Any, a: Any, b: Any) -> Any:
        return z3.If(condition, a, b)

    def _bool_logical_not(self, a: Any) -> Any:
        return z3.Not(a)

    def _bool_logical_and(self, a: Any, b: Any) -> Any:
        return z3.And(a, b)

    def _bool_logical_or(self, a: Any, b: Any) -> Any:
        return z3.Or(a, b)

    def _bool_logical_xor(self, a: Any, b: Any) -> Any:
        return z3.Xor(a, b)

    _bool_bitwise_not, _bool_bitwise_and = _bool_logical_not, _bool_logical_and
    _bool_bitwise_or, _bool_bitwise_xor = _bool_logical_or, _bool_logical_xor
    _bool_mul, _bool_add = _bool_logical_and, _bool_logical_or

    def _bool_eq(self, a: Any, b: Any) -> Any:
        return a == b

    def _bool_ne(self, a: Any, b: Any) -> Any:
        return a != b
