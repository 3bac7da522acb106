"""Are two programs equal over the real numbers? Evaluated on random numbers of a finite field: the integers modulo a
prime.

Sums, products and quotients of a program are rational functions of its inputs. If two of them are not the same, their
difference is one, of some degree d, which is 0 for at most d of P values of an input (Schwartz 1980, Zippel 1979). So a
program that agrees on random numbers is another function with chance d / P at most. A function such as exp, of which
only its name counts, is a random function on the field; a comparison is a random number, and `where(c, a, b)` is
c · a + (1 - c) · b.

Source of the idea: "Mirage: A Multi-Level Superoptimizer for Tensor Programs", Mengdi Wu and others, OSDI 2025.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.utils import _pytree as pytree

from passlab.proving.capture import INDICES, Unknown, capture, indices, move, moves, name

#: The prime: products of two numbers below it fit into 62 bits.
P = 2**31 - 1
#: How often programs are evaluated, on new numbers.
ROUNDS = 3
#: Most elements of all tensors, for that long evaluations take too long.
LARGEST = 5_000_000
#: Numerator and denominator of a number that is calculated with; others are only names.
SMALL = 2**15


#: Operators that are written with others, beside torch's core ones.
WRITTEN = (
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit_no_training _softmax "
    "_log_softmax gelu leaky_relu linalg_vector_norm var std var_mean"
)


class Equality(NamedTuple):
    """Whether two programs agree in the field, and if so, the largest chance that they are not equal over the reals.

    `place`: where they do not agree, an output and an element of it. `certain`: that they do not agree means that they
    are not equal over the reals, since there is no function of which only the name is known.
    """

    agree: bool
    chance: float = 0.0
    place: tuple[int, tuple[int, ...]] | None = None
    certain: bool = False


class Size(NamedTuple):
    """Bounds for one element: degree of numerator and denominator, and how many unknown functions it contains."""

    above: float = 1
    below: float = 0
    calls: float = 0

    def __mul__(self, other: Size) -> Size:  # type: ignore[override]
        return Size(self.above + other.above, self.below + other.below, self.calls + other.calls)

    def __add__(self, other: Size) -> Size:  # type: ignore[override]
        above = max(self.above + other.below, other.above + self.below)
        return Size(above, self.below + other.below, self.calls + other.calls)

    def sum_of(self, n: int) -> Size:
        return Size(self.above + (n - 1) * self.below, n * self.below, n * self.calls) if n else Size(0)


class Value(NamedTuple):
    """Elements in the field, and bounds for them."""

    data: Tensor
    size: Size


def equal(before: Callable, after: Callable, inputs: Sequence[Any], seed: int = 0) -> Equality:
    """Return whether two programs agree on random numbers of the field, for inputs of these shapes.

    Raise Unknown where one does what has no meaning over the reals, or is too large.
    """
    graphs = [capture(program, inputs, decompositions()) for program in (before, after)]
    chance = 1.0
    for number in range(ROUNDS):
        field, flat = Field(seed * ROUNDS + number), pytree.tree_leaves(tuple(inputs))
        left, right = (field.outputs(gm, flat) for gm in graphs)
        if len(left) != len(right):
            return Equality(False, certain=True)
        for at, (a, b) in enumerate(zip(left, right, strict=True)):
            if (place := _difference(a, b)) is not None:
                return Equality(False, place=(at, place), certain=not field.names)
        chance *= max([_chance(a, b) for a, b in zip(left, right, strict=True)], default=0.0)
    return Equality(True, min(1.0, chance))


@cache
def decompositions() -> dict:
    """Return operator → function that writes it with others."""
    written = get_decompositions([getattr(torch.ops.aten, name) for name in WRITTEN.split()])
    return {**core_aten_decompositions(), **written}


def _difference(a: Any, b: Any) -> tuple[int, ...] | None:
    if not isinstance(a, Value) or not isinstance(b, Value):
        return None if not isinstance(a, Value) and not isinstance(b, Value) and repr(a) == repr(b) else ()
    if a.data.shape != b.data.shape:
        return ()
    wrong = (a.data != b.data).nonzero()
    return tuple(wrong[0].tolist()) if len(wrong) else None


def _chance(a: Any, b: Any) -> float:
    """Return the chance that two elements which differ agree: the difference is 0, or two operands of functions are."""
    if not isinstance(a, Value):
        return 0.0
    degree = max(a.size.above + b.size.below, b.size.above + a.size.below)
    calls = a.size.calls + b.size.calls
    return min(1.0, (1 + calls**2) * degree / P)


class Field:
    """One evaluation. `seed` decides what the numbers and the functions are: the same for all programs."""

    def __init__(self, seed: int):
        self.seed = seed
        self.names: set[str] = set()  # of unknown functions

    def outputs(self, gm: fx.GraphModule, args: Sequence[Any]) -> list[Any]:
        """Return what a program returns on the random numbers of this evaluation."""
        total = sum(n.meta["val"].numel() for n in gm.graph.nodes if isinstance(n.meta.get("val"), Tensor))
        if total > LARGEST:
            raise Unknown(f"Its tensors have {total:,} elements together; the field takes at most {LARGEST:,}.")
        exact, values = indices(gm), dict[fx.Node, Any]()
        places = iter(enumerate(args))
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                place, example = next(places)
                whole = node in exact or not isinstance(example, Tensor)
                values[node] = example if whole else self.input(place, example)
            elif node.op == "get_attr":
                attribute = getattr(gm, str(node.target))
                values[node] = attribute if node in exact else self.tensor(attribute)
            elif node.op == "call_function":
                values[node] = self._call(node, values, node in exact)
        (output,) = gm.graph.find_nodes(op="output")
        results = [values[n] if isinstance(n, fx.Node) else n for n in list[Any](output.args[0])]
        return [self.tensor(r) if isinstance(r, Tensor) else r for r in results]

    def input(self, place: int, example: Tensor) -> Value:
        gen = torch.Generator().manual_seed((self.seed << 20) + place)
        return Value(torch.randint(1, P, example.shape, generator=gen), Size())

    def tensor(self, tensor: Tensor) -> Value:
        """Return a tensor's values in the field."""
        unique, back = torch.unique(tensor.detach(), return_inverse=True)
        numbers = torch.tensor([self.number(value) for value in unique.tolist()], dtype=torch.int64)
        return Value(numbers[back].reshape(tensor.shape), Size(1))

    def number(self, value: Any) -> int:
        """Return a number in the field. One that is not a small fraction is a random number of its own."""
        if isinstance(value, complex):
            raise Unknown("Complex numbers are not treated.")
        if isinstance(value, float) and not math.isfinite(value):
            raise Unknown(f"It has the number {value}, which is not real.")
        exact = fraction(value)
        if max(abs(exact.numerator), exact.denominator) <= SMALL:
            return exact.numerator * pow(exact.denominator, -1, P) % P
        sign = 1 if value > 0 else P - 1
        return sign * int(self.unknown(f"number {abs(exact)}")) % P

    def unknown(self, function: str, *operands: Tensor) -> Tensor:
        """Return what an unknown function gives: numbers that seem random, the same for the same operands."""
        self.names.add(function)
        state = torch.tensor(_seed(f"{self.seed} {function}"), dtype=torch.int64)
        for operand in operands:
            state = _mixed(state ^ operand)
        return _mixed(state) % P  # the remainder of torch has the sign of P

    # -------------------------------------------------------------------------------------------------------- calls

    def _call(self, node: fx.Node, values: dict[fx.Node, Any], exact: bool) -> Any:
        args: Any
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if not isinstance(node.target, torch._ops.OpOverload):
            raise Unknown(f"It calls {node.target}, which is not an operator of torch.")
        op, leaves = name(node), pytree.tree_leaves((args, kwargs), is_leaf=lambda x: isinstance(x, Value))
        fields = [leaf for leaf in leaves if isinstance(leaf, Value)]
        if not fields:  # indices, masks, arange: what does not depend on inputs
            result = node.target(*args, **kwargs)
            return result if exact or not isinstance(result, Tensor) else self.tensor(result)
        if moves(node) or op == "constant_pad_nd":
            return self._moved(node, op, args, kwargs, fields)
        rule = RULES.get(op)
        if rule is None or set(kwargs) - _OPTIONS or not _has_rule(node, op):
            return self._named(node, args, kwargs, fields)
        value = rule(self, *args, **{key: v for key, v in kwargs.items() if key in ("alpha", "beta")})
        return Value(value.data.reshape(node.meta["val"].shape), value.size)

    def value(self, operand: Any) -> Value:
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, Tensor):
            return self.tensor(operand)
        return Value(torch.tensor(self.number(operand)), Size(0))

    def _moved(self, node: fx.Node, op: str, args: Any, kwargs: Any, fields: list[Value]) -> Any:
        size = Size(*(max(parts) for parts in zip(*(v.size for v in fields), strict=True)))
        args = list(args)
        if op == "constant_pad_nd":
            args[2:] = [self.number(args[2] if len(args) > 2 else 0)]
        place = INDICES.get(op)
        if place is not None and any(isinstance(x, Value) for x in pytree.tree_leaves(args[place], is_leaf=_is_value)):
            return self._named(node, args, kwargs, fields)
        operands = pytree.tree_map(lambda x: x.data if isinstance(x, Value) else x, args, is_leaf=_is_value)
        if op in ("cat", "stack"):
            operands[0] = [self.value(part).data for part in args[0]]
        return pytree.tree_map(lambda t: Value(t, size), move(node, operands, kwargs))

    def _named(self, node: fx.Node, args: Any, kwargs: Any, fields: list[Value]) -> Any:
        """Return the value of a call of which only the name is known: element-wise, or a function of all it gets."""
        leaves, spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_value)
        text = f"{node.target} {[None if isinstance(x, (Value, Tensor)) else x for x in leaves]} {spec}"
        tensors = [self.value(x) for x in leaves if isinstance(x, (Value, Tensor))]
        meta = node.meta["val"]
        if torch.Tag.pointwise in node.target.tags and isinstance(meta, Tensor):  # type: ignore[union-attr]
            data = torch.broadcast_tensors(*(v.data for v in tensors))
            size = Size(1, 0, 1 + sum(v.size.calls for v in tensors))
            return Value(self.unknown(text, *data).reshape(meta.shape), _bounded(size, tensors))
        state, count = torch.tensor(0), sum(v.data.numel() for v in tensors)
        for v in tensors:
            for at, part in enumerate((torch.tensor(v.data.shape), v.data.flatten())):
                places = torch.arange(part.numel())
                state = self.unknown(f"{text} {at}", state, _mixed(part + _mixed(places)).sum())
        size = _bounded(Size(1, 0, 1 + count * max(v.size.calls + 1 for v in tensors)), tensors)

        def result(at: int, like: Any) -> Any:
            if not isinstance(like, Tensor):
                raise Unknown(f"{name(node)} returns a number that depends on values.")
            places = torch.arange(like.numel()).reshape(tuple(like.shape))
            return Value(self.unknown(f"{text} result {at}", state, places), size)

        if isinstance(meta, (tuple, list)):
            return [result(at, like) for at, like in enumerate(meta)]
        return result(0, meta)

    def function(self, text: str, *operands: Any) -> Value:
        """Return an element-wise function of which only the name is known."""
        values = [self.value(operand) for operand in operands]
        data = torch.broadcast_tensors(*(v.data for v in values))
        return Value(self.unknown(text, *data), _bounded(Size(1, 0, 1 + sum(v.size.calls for v in values)), values))


def _bounded(size: Size, operands: Sequence[Value]) -> Size:
    """Return the size of a new unknown, which carries the largest degree of the operands of its function along."""
    return Size(max([size.above, *(v.size.above for v in operands)]), max(v.size.below for v in operands), size.calls)


def _is_value(value: Any) -> bool:
    return isinstance(value, Value)


def _seed(text: str) -> int:
    """Return 62 bits that depend on a text, the same in each process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 2


def _mixed(x: Tensor) -> Tensor:
    """Return integers of 64 bits, mixed one to one: the last step of SplitMix64 (Steele, Lea and Flood 2014)."""
    x = (x ^ _shift(x, 30)) * -4658895280553007687
    x = (x ^ _shift(x, 27)) * -7723592293110705685
    return x ^ _shift(x, 31)


def _shift(x: Tensor, by: int) -> Tensor:
    """Return x shifted to the right, with zeros from the left."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def fraction(value: float) -> Fraction:
    """Return the simplest fraction that is rounded to a number: 1/3 for 0.3333333333333333."""
    exact = Fraction(value)
    for limit in (16, 256, 4096, SMALL):
        simple = exact.limit_denominator(limit)
        if float(simple) == value:
            return simple
    return exact


# ------------------------------------------------------------------------------------------------------- rules of calls


def _inverse(x: Tensor) -> Tensor:
    """Return 1/x, by Fermat's little theorem; 0 has none."""
    if not bool((x != 0).all()):
        raise Unknown("It divides by 0 over the reals.")
    return _power(x, P - 2)


def _power(x: Tensor, exponent: int) -> Tensor:
    result = torch.ones_like(x)
    while exponent:
        if exponent & 1:
            result = result * x % P
        x, exponent = x * x % P, exponent >> 1
    return result


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a product of matrices, in two halves of 16 bits: sums of products of 31 and 16 bits fit into 63."""
    if a.shape[-1] >= 2**15:
        raise Unknown(f"It adds {a.shape[-1]:,} products; at most {2**15 - 1:,} fit.")
    high, low = a >> 16, a & 0xFFFF
    return ((high @ b % P << 16) + low @ b % P) % P


def _add(field: Field, a: Any, b: Any, alpha: Any = 1, sign: int = 1) -> Value:
    a, b = field.value(a), field.value(b)
    factor = sign * field.number(alpha)
    return Value((a.data + factor * b.data) % P, a.size + b.size)


def _mul(field: Field, a: Any, b: Any) -> Value:
    a, b = field.value(a), field.value(b)
    return Value(a.data * b.data % P, a.size * b.size)


def _reciprocal(field: Field, a: Any) -> Value:
    a = field.value(a)
    return Value(_inverse(a.data), Size(a.size.below, a.size.above, a.size.calls))


def _product(field: Field, a: Any, b: Any) -> Value:
    a, b = field.value(a), field.value(b)
    return Value(product(a.data, b.data), (a.size * b.size).sum_of(a.data.shape[-1]))


def _sum(field: Field, a: Any, dims: Any = None, keep: bool = False, **_: Any) -> Value:
    a = field.value(a)
    dims = list(range(a.data.dim())) if dims is None or dims == [] else dims
    data = a.data.sum(dims, keep) % P  # at most 2**31 numbers below 2**31
    return Value(data, a.size.sum_of(max(1, a.data.numel() // max(1, data.numel()))))


def _variance(field: Field, a: Any, dims: Any = None, correction: Any = 1, **_: Any) -> Value:
    dims = dims or list(range(field.value(a).data.dim()))
    centred = _add(field, a, _mean(field, a, dims, True), sign=-1)
    total = _sum(field, _mul(field, centred, centred), dims)
    count = field.value(a).data.numel() // max(1, total.data.numel())
    return _mul(field, total, Fraction(1, count - int(correction))) if count > correction else _reciprocal(field, 0)


def _convolution(field: Field, x: Any, w: Any, bias: Any, *settings: Any) -> Value:
    stride, padding, dilation, transposed, _, groups = settings
    x, w = field.value(x), field.value(w)
    if transposed or len(stride) > 2:
        raise Unknown("Its convolution is transposed, or has three dimensions.")
    if len(stride) == 1:
        wide = [Value(v.data.unsqueeze(2), v.size) for v in (x, w)]
        value = _convolution(field, *wide, bias, [1, *stride], [0, *padding], [1, *dilation], False, None, groups)
        return Value(value.data.squeeze(2), value.size)
    kernel = tuple(w.data.shape[2:])
    patches = torch.nn.functional.unfold(
        x.data.double(), kernel, dilation, padding, stride
    ).long()  # exact: below 2**53
    n, places = len(patches), patches.shape[-1]
    matrix = w.data.reshape(groups, len(w.data) // groups, -1)
    data = product(matrix, patches.reshape(n, groups, -1, places)).reshape(n, len(w.data), places)
    sizes = [
        (size + 2 * pad - gap * (k - 1) - 1) // step + 1
        for size, pad, gap, k, step in zip(x.data.shape[2:], padding, dilation, kernel, stride, strict=True)
    ]
    value = Value(data.reshape(n, len(w.data), *sizes), (x.size * w.size).sum_of(matrix.shape[-1]))
    return value if bias is None else _add(field, value, Value(field.value(bias).data[:, None, None], Size()))


def _clamp(field: Field, a: Any, low: Any = None, high: Any = None) -> Value:
    a = field.value(a)
    for op, bound in (("maximum", low), ("minimum", high)):
        a = a if bound is None else _either(op)(field, a, bound)
    return a


def _largest(op: str) -> Callable[..., Value]:
    """Return the rule of the largest or smallest along dimensions: their order does not matter."""

    def rule(field: Field, a: Any, dims: Any = (), keep: bool = False) -> Value:
        a = field.value(a)
        dims = [d % a.data.dim() for d in ([dims] if isinstance(dims, int) else dims)] or list(range(a.data.dim()))
        rest = [d for d in range(a.data.dim()) if d not in dims]
        rows = a.data.permute(*rest, *dims).reshape(*(a.data.shape[d] for d in rest), -1).sort(-1).values
        size = _bounded(Size(1, 0, 1 + rows.shape[-1] * a.size.calls), [a])
        return Value(field.unknown(op, *rows.unbind(-1)), size)  # the caller restores dimensions that are kept

    return rule


def _mean(field: Field, a: Any, dims: Any = None, keep: bool = False, **_: Any) -> Value:
    a, total = field.value(a), _sum(field, a, dims, keep)
    count = a.data.numel() // max(1, total.data.numel())
    return _mul(field, total, Fraction(1, count) if count else 0)


def _pow(field: Field, a: Any, exponent: Any) -> Value:
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        if exponent == 0.5:
            return field.function("sqrt", a)
        if exponent == -0.5:
            return _reciprocal(field, field.function("sqrt", a))
        if exponent == int(exponent) and abs(exponent) <= 64:
            a, n = field.value(a), abs(int(exponent))
            value = Value(_power(a.data, n), Size(n * a.size.above, n * a.size.below, a.size.calls))
            return _reciprocal(field, value) if exponent < 0 else value
    return field.function("pow", a, exponent)


def _where(field: Field, c: Any, a: Any, b: Any) -> Value:
    c = field.value(c)
    return _add(field, _mul(field, c, a), _mul(field, _not(field, c), b))


def _not(field: Field, c: Any) -> Value:
    return _add(field, 1, c, sign=-1)


def _or(field: Field, a: Any, b: Any) -> Value:
    return _add(field, _add(field, a, b), _mul(field, a, b), sign=-1)


def _either(op: str) -> Callable[..., Value]:
    """Return the rule of a function whose operands may change places."""

    def rule(field: Field, a: Any, b: Any) -> Value:
        x, y = field.value(a), field.value(b)
        low, high = (f(*torch.broadcast_tensors(x.data, y.data)) for f in (torch.minimum, torch.maximum))
        return field.function(op, Value(low, x.size), Value(high, y.size))

    return rule


def _compare(op: str, swap: bool = False) -> Callable[..., Value]:
    return lambda field, a, b: field.function(op, *((b, a) if swap else (a, b)))


def _addmm(field: Field, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Value:
    return _add(field, _mul(field, c, beta), _mul(field, _product(field, a, b), alpha))


def _unary(op: str) -> Callable[..., Value]:
    return lambda field, a: field.function(op, a)


def _has_rule(node: fx.Node, op: str) -> bool:
    """Return whether a call means what the rule of its name says, for operands of these types."""
    dtypes, result = [n.meta["val"].dtype for n in node.all_input_nodes], node.meta["val"].dtype
    if op in _TRUTH:
        return all(dtype == torch.bool for dtype in dtypes)
    if op in _TO_TRUTH:
        return True
    if op == "_to_copy":  # no rounding to integers, and no bits cut off
        exact = result.is_floating_point or result.is_complex
        longer = not dtypes[0].is_floating_point and result.itemsize >= dtypes[0].itemsize and result != torch.bool
        return dtypes[0] == result or exact or longer
    return result != torch.bool


#: Options of calls that change no value over the reals.
_OPTIONS = {"alpha", "beta", "dtype", "layout", "device", "memory_format", "pin_memory"}
#: Those that have a rule for truth values only; and those whose results are truth values.
_TRUTH = {"bitwise_or", "bitwise_and", "bitwise_not", "logical_not", "logical_and", "logical_or"}
_TO_TRUTH = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "full_like", "zeros_like", "ones_like", "where"}
#: Name of an operator → its meaning over the reals.
RULES: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": lambda field, a, b, alpha=1: _add(field, a, b, alpha, -1),
    "rsub": lambda field, a, b, alpha=1: _add(field, b, a, alpha, -1),
    "mul": _mul,
    "div": lambda field, a, b: _mul(field, a, _reciprocal(field, b)),
    "neg": lambda field, a: _add(field, 0, a, sign=-1),
    "reciprocal": _reciprocal,
    "abs": lambda field, a: field.function("sqrt", _mul(field, a, a)),
    "square": lambda field, a: _mul(field, a, a),
    "pow": _pow,
    "sqrt": _unary("sqrt"),
    "rsqrt": lambda field, a: _reciprocal(field, field.function("sqrt", a)),
    "mm": _product,
    "bmm": _product,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "sum": _sum,
    "mean": _mean,
    "where": _where,
    "logical_not": _not,
    "logical_and": _mul,
    "logical_or": _or,
    "var": _variance,
    "convolution": _convolution,
    "clamp": _clamp,
    "clamp_min": lambda field, a, low: _clamp(field, a, low),
    "clamp_max": lambda field, a, high: _clamp(field, a, None, high),
    "hardtanh": lambda field, a, low=-1, high=1: _clamp(field, a, low, high),
    "relu": lambda field, a: _clamp(field, a, 0),
    "amax": _largest("amax"),
    "amin": _largest("amin"),
    "isnan": lambda field, a: _mul(field, a, 0),
    "bitwise_or": _or,
    "bitwise_and": _mul,
    "bitwise_not": _not,
    "maximum": _either("maximum"),
    "minimum": _either("minimum"),
    "eq": _either("eq"),
    "ne": lambda field, a, b: _not(field, _either("eq")(field, a, b)),
    "lt": _compare("lt"),
    "gt": _compare("lt", swap=True),
    "ge": lambda field, a, b: _not(field, field.function("lt", a, b)),
    "le": lambda field, a, b: _not(field, field.function("lt", b, a)),
    "_to_copy": lambda field, a: field.value(a),
    "full_like": lambda field, a, number: _add(field, _mul(field, a, 0), number),
    "zeros_like": lambda field, a: _mul(field, a, 0),
    "ones_like": lambda field, a: _add(field, _mul(field, a, 0), 1),
}
