"""Primitives on single numbers, as expressions of TensorIR: a table with a rule for each kind of number.

    apply("sub", node, (a, b), "float32")       # the row "sub", the column for floats

A rule says what TVM's own operator gets wrong, where it does: TVM simplifies as if floats were real numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from torch import fx

from passlab.kernels.primitives import constant


class Scalars:
    """The operands of a primitive on one element, all of one dtype; of a single one `b` is `a`.

    vectorized: prefer steps that LLVM can vectorize to calls of the C library.
    """

    def __init__(self, args: Sequence[Any], node: fx.Node, dtype: str, vectorized: bool):
        from passlab.relax import tvm

        self.T, self.args, self.node, self.dtype, self.vectorized = tvm.tirx, args, node, dtype, vectorized
        self.a, self.b = args[0], args[-1]

    @property
    def known(self) -> Any:
        """The value of `b`, if it is a constant of the program."""
        return constant(self.node.args[-1])

    @cached_property
    def same(self) -> bool:
        """Whether a and b are one expression."""
        return _same(self.a, self.b)

    def number(self, value: Any, dtype: str = "") -> Any:
        return self.T.const(value, dtype or self.dtype)

    @property
    def zero(self) -> Any:
        return self.number(0)

    @property
    def one(self) -> Any:
        return self.number(1)

    @property
    def is_nan(self) -> Any:
        return self.T.isnan(self.a)

    @property
    def is_finite(self) -> Any:
        return self.T.abs(self.a) < self.number(math.inf)

    def library(self, name: str) -> Any:
        """Call a function of the C library for which TVM has no operator."""
        return self.T.call_pure_extern(self.dtype, name + "f" * (self.dtype == "float32"), *self.args)


#: How often the vectorizable form of a function holds its operand, with its names expanded.
COPIES = {"exp": 26, "tanh": 41, "erf": 255}

Rule = Callable[[Scalars], Any]


class Rules(NamedTuple):
    """How a primitive is computed.

    Without a rule for integers, these stay as they are (they are round already); without one for floats, TVM's operator
    of that name is right; without one for booleans, that for integers is taken.
    """

    integer: Rule | None = None
    floating: Rule | None = None
    boolean: Rule | None = None


def apply(name: str, node: fx.Node, args: Sequence[Any], dtype: str, vectorized: bool = True) -> Any:
    """Return the primitive `name` of expressions that have this dtype. `node`: the call, for its constants."""
    rules = RULES.get(name, Rules())
    if dtype == "bool":
        x = Scalars([arg.astype("int8") for arg in args], node, "int8", vectorized)
        rule = rules.boolean or rules.integer
    else:
        x = Scalars(args, node, dtype, vectorized)
        rule = rules.integer
    if dtype.startswith("float"):
        return rules.floating(x) if rules.floating else getattr(x.T, name)(*args)
    return rule(x) if rule else x.a


def negate(T: Any, truth: Any) -> Any:
    """Negate without TVM's Not, which inverts the comparison and so is true for a NaN."""
    return T.EQ(truth.astype("int8"), T.const(0, "int8"))


def _same(a: Any, b: Any) -> bool:
    """Return whether two expressions are equal. TVM raises TypeError where they read different inputs."""
    from tvm_ffi import structural_equal

    try:
        return structural_equal(a, b)
    except TypeError:
        return False


# ------------------------------------------------------------------------------------------------ rules


def _difference(x: Scalars) -> Any:
    """TVM simplifies x - x to 0, which is wrong for inf and NaN."""
    return x.T.Select(x.is_finite, x.zero, x.number(math.nan)) if x.same else x.a - x.b


def _product(x: Scalars) -> Any:
    """TVM simplifies 0 · x to 0, which is wrong for inf and NaN, and for the sign of a zero."""
    number = constant(x.node.args[0])
    if number == 0:
        x.a, x.b = x.b, x.a
    elif (number := x.known) != 0:
        return x.a * x.b
    sign = -x.a if math.copysign(1, number) < 0 else x.a
    return x.T.Select(x.is_finite, x.T.copysign(x.b, sign), x.number(math.nan))


def _quotient(x: Scalars) -> Any:
    """TVM refuses a division by 0."""
    return x.a * x.number(math.copysign(math.inf, x.known)) if x.known == 0 else x.a / x.b


def _remainder(x: Scalars) -> Any:
    """The C library's remainder has the sign of the dividend; this one has that of the divisor."""
    T, left = x.T, x.library("fmod")
    variable = T.Var("left", left.ty)
    other = T.any(T.all(variable < x.zero, x.b > x.zero), T.all(variable > x.zero, x.b < x.zero))
    return T.Let(variable, left, T.Select(other, variable + x.b, variable))


#: Powers that need no call of pow.
_POWERS: dict[float, Rule] = {
    -2: lambda x: x.one / (x.a * x.a),
    -1: lambda x: x.one / x.a,
    -0.5: lambda x: x.one / x.T.sqrt(x.a),
    0: lambda x: x.one,
    0.5: lambda x: x.T.sqrt(x.a),
    1: lambda x: x.a,
    2: lambda x: x.a * x.a,
    3: lambda x: x.a * x.a * x.a,
}


def _power(x: Scalars) -> Any:
    return _POWERS[x.known](x) if x.known in _POWERS else x.T.pow(x.a, x.b)


def _sign(x: Scalars) -> Any:
    minus_one = x.zero - x.one if "int" in x.dtype else -x.one
    return x.T.Select(x.a > x.zero, x.one, x.T.Select(x.a < x.zero, minus_one, x.zero))


def _sign_bit(x: Scalars) -> Any:
    bits = f"int{x.dtype[5:]}"
    return (x.T.reinterpret(bits, x.a) < x.number(0, bits)).astype(x.dtype)


def _not_equal(x: Scalars) -> Any:
    """TVM's != is false for a NaN."""
    return x.is_nan if x.same else negate(x.T, x.T.EQ(x.a, x.b))


def _unless_same(truth: bool, rule: Rule) -> Rule:
    """Return a comparison of integers, which is known where both are one expression."""
    return lambda x: x.number(truth, "bool") if x.same else rule(x)


def _unless_nan(rule: Rule) -> Rule:
    """Return a comparison of floats: x = x is false for a NaN, but TVM simplifies it to true."""
    return lambda x: negate(x.T, x.is_nan) if x.same else rule(x)


def _unless_unit(unit: Callable[[Scalars], Any], rule: Rule) -> Rule:
    """Return a division by a constant; by 1 and -1 it is `unit`: the least number divided by -1 traps."""
    return lambda x: unit(x) if abs(x.known) == 1 else rule(x)


def _truth(operator: str) -> Rule:
    """Return a bitwise operator on booleans, which are 0 and 1."""
    return lambda x: x.T.NE(getattr(x.T, operator)(x.a, x.b), x.zero)


_AND, _OR = _truth("bitwise_and"), _truth("bitwise_or")


def _polynomial(x: Any, factors: Sequence[float]) -> Any:
    """Evaluate by Horner's rule, highest power first."""
    from passlab.relax import tvm

    value = tvm.tirx.const(factors[0], "float32")
    for factor in factors[1:]:
        value = value * x + tvm.tirx.const(factor, "float32")
    return value


#: ln 2 in two parts; the product of the first with a whole number of up to 8 bits is exact.
_LN_2 = (0.693359375, -2.12194440e-4)


def _exponential(T: Any, value: Any) -> Any:
    """Compute exp in vectorizable steps: 2ⁿ · p(rest) for the whole number n closest to value / ln 2, where p is
    Taylor's polynomial: off by less than 6e-9 of the result, for a rest of at most half of ln 2."""
    c, i = functools.partial(T.const, dtype="float32"), functools.partial(T.const, dtype="int32")
    v, n, rest = (T.Var(name, value.ty) for name in ("power", "n", "rest"))
    whole, first = T.Var("whole", i(0).ty), T.Var("first", i(0).ty)
    bounded = T.max(T.min(v, c(89)), c(-104))  # beyond, the result is inf or 0
    series = _polynomial(rest, [1 / math.factorial(k) for k in range(7, -1, -1)])

    def power_of_2(n: Any) -> Any:
        return T.reinterpret("float32", T.shift_left(n + i(127), i(23)))

    result = series * power_of_2(first) * power_of_2(whole - first)  # 2^n itself may be beyond float32
    result = T.Let(whole, n.astype("int32"), T.Let(first, T.shift_right(whole, i(1)), result))
    result = T.Let(rest, bounded - n * c(_LN_2[0]) - n * c(_LN_2[1]), result)
    result = T.Let(n, T.nearbyint(bounded * c(1 / math.log(2))), result)
    return T.Let(v, value, T.Select(T.isnan(v), v, result))


def _exp(x: Scalars) -> Any:
    return _exponential(x.T, x.a) if x.vectorized and x.dtype == "float32" else x.T.exp(x.a)


def _tanh(x: Scalars) -> Any:
    """Compute tanh in vectorizable steps: a polynomial near 0, elsewhere 1 - 2 / (exp(2|x|) + 1)."""
    T, c = x.T, functools.partial(x.T.const, dtype="float32")
    if not x.vectorized or x.dtype != "float32":
        return T.tanh(x.a)
    v, size = T.Var("given", x.a.ty), T.abs
    square = v * v
    near = _polynomial(
        square, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
    )
    far = T.copysign(c(1) - c(2) / (_exponential(T, size(v) * c(2)) + c(1)), v)
    return T.Let(v, x.a, T.Select(size(v) < c(0.625), near * square * v + v, far))


def _erf(x: Scalars) -> Any:
    """Compute erf in vectorizable steps: a polynomial near 0, elsewhere 1 - exp(another)."""
    T, c = x.T, functools.partial(x.T.const, dtype="float32")
    if not x.vectorized or x.dtype != "float32":
        return T.erf(x.a)
    v, size = T.Var("given", x.a.ty), T.Var("size", x.a.ty)
    square = v * v
    near = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
    far = (-1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1, -6.34846687e-1)
    exponent = _polynomial(size, (*far, -1.28717512e-1)) * size + size * c(-1)
    outside = T.copysign(c(1) - _exponential(T, exponent), v)
    value = T.Select(size < c(0.927734375), _polynomial(square, near) * v + v, outside)
    return T.Let(v, x.a, T.Let(size, T.min(T.abs(v), c(10)), T.Select(T.isnan(v), v, value)))


# ------------------------------------------------------------------------------------------------ the table

#: primitive → its rules for integers, floats, booleans
RULES: dict[str, Rules] = {
    "add": Rules(lambda x: x.a + x.b, lambda x: x.a + x.b, _OR),
    "sub": Rules(lambda x: x.a - x.b, _difference),
    "mul": Rules(lambda x: x.a * x.b, _product, _AND),
    "div": Rules(
        _unless_unit(lambda x: x.a if x.known == 1 else x.zero - x.a, lambda x: x.T.truncdiv(x.a, x.b)), _quotient
    ),
    "fmod": Rules(_unless_unit(lambda x: x.zero, lambda x: x.T.truncmod(x.a, x.b)), lambda x: x.library("fmod")),
    "remainder": Rules(_unless_unit(lambda x: x.zero, lambda x: x.T.floormod(x.a, x.b)), _remainder),
    "pow": Rules(lambda x: math.prod([x.a] * int(x.known), start=x.one), _power),
    "neg": Rules(lambda x: x.zero - x.a, lambda x: -x.a),
    "abs": Rules(lambda x: x.T.Select(x.a < x.zero, x.zero - x.a, x.a), lambda x: x.T.abs(x.a)),
    "sign": Rules(_sign, _sign),
    "signbit": Rules(lambda x: (x.a < x.zero).astype(x.dtype), _sign_bit),
    "isfinite": Rules(lambda x: x.number(True, "bool"), lambda x: x.is_finite),
    "reciprocal": Rules(None, lambda x: x.one / x.a),
    "rsqrt": Rules(None, lambda x: x.one / x.T.sqrt(x.a)),
    "exp": Rules(None, _exp),
    "expm1": Rules(None, lambda x: x.library("expm1")),
    "log1p": Rules(None, lambda x: x.library("log1p")),
    "round": Rules(None, lambda x: x.T.nearbyint(x.a)),  # to even, as torch does
    "tanh": Rules(None, _tanh),
    "erf": Rules(None, _erf),
    # a NaN wins, which TVM's max and min lose
    "maximum": Rules(lambda x: x.T.max(x.a, x.b), lambda x: x.T.Select(x.T.any(x.is_nan, x.a > x.b), x.a, x.b), _OR),
    "minimum": Rules(lambda x: x.T.min(x.a, x.b), lambda x: x.T.Select(x.T.any(x.is_nan, x.a < x.b), x.a, x.b), _AND),
    "bitwise_not": Rules(lambda x: x.T.bitwise_not(x.a), None, lambda x: x.T.EQ(x.a, x.zero)),
    "bitwise_and": Rules(lambda x: x.T.bitwise_and(x.a, x.b), None, _AND),
    "bitwise_or": Rules(lambda x: x.T.bitwise_or(x.a, x.b), None, _OR),
    "bitwise_xor": Rules(lambda x: x.T.bitwise_xor(x.a, x.b), None, _unless_same(False, lambda x: x.T.NE(x.a, x.b))),
    "eq": Rules(_unless_same(True, lambda x: x.T.EQ(x.a, x.b)), _unless_nan(lambda x: x.T.EQ(x.a, x.b))),
    "ne": Rules(_unless_same(False, lambda x: x.T.NE(x.a, x.b)), _not_equal),
    "lt": Rules(_unless_same(False, lambda x: x.a < x.b), lambda x: x.a < x.b),
    "le": Rules(_unless_same(True, lambda x: x.a <= x.b), _unless_nan(lambda x: x.a <= x.b)),
    "gt": Rules(_unless_same(False, lambda x: x.a > x.b), lambda x: x.a > x.b),
    "ge": Rules(_unless_same(True, lambda x: x.a >= x.b), _unless_nan(lambda x: x.a >= x.b)),
}
