"""What each element of a program's results is: a term over the elements of its inputs.

A tensor becomes a tensor of numbers of terms. What moves elements (views, gathers, concatenations) is run on these as
it is; what computes makes new terms, element by element, and a term that is there keeps its number. So two elements
with one number are equal whatever the inputs are. A call that is not computed element by element (a product of
matrices, a sum) is a function of all its operands, of which only this is known: equal operands give equal results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from passlab.proving.capture import INDICES, Unknown, indices, move, moves, name

#: Most elements of all tensors of a program together.
LARGEST = 200_000


class Term(NamedTuple):
    """An element: what it is made of, by number. `op`: "input", "constant", "cast", "opaque", or an ATen name.

    `data`: of an input (its place among the inputs, the place of the element); of a constant, a number; else what the
    call has besides its operands.
    """

    op: str
    dtype: torch.dtype
    operands: tuple[int, ...]
    data: Any = None


_NAMES = (
    "add sub mul div neg abs relu sqrt rsqrt reciprocal maximum minimum clamp clamp_min clamp_max where eq ne lt le gt "
    "ge logical_not logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not "
    "bitwise_left_shift pow isnan signbit rsub square"
)
#: Names of element-wise functions that a proof knows, with the names that mean the same.
KNOWN = {name: name for name in _NAMES.split()}
KNOWN |= {"__lshift__": "bitwise_left_shift"}
KNOWN |= {f"__{name}__": f"bitwise_{name}" for name in ("and", "or", "xor")}
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COMPARE = {"eq", "ne", "lt", "le", "gt", "ge"}
_LOGIC = {"logical_not", "logical_and", "logical_or", "logical_xor"}
_COMMUTE = {"add", "mul", "eq", "ne", "logical_and", "logical_or", "bitwise_and", "bitwise_or", "bitwise_xor"}


class Terms:
    """All terms of some programs, each once."""

    def __init__(self) -> None:
        self.terms: list[Term] = []
        self._numbers: dict[Any, int] = {}
        self._calls: dict[Any, int] = {}

    def add(self, op: str, dtype: torch.dtype, operands: Sequence[int] = (), data: Any = None) -> int:
        """Return the number of a term; a call of numbers is what torch computes for them."""
        key = (op, dtype, tuple(operands), _exact(data))
        if key not in self._numbers:
            self._numbers[key] = len(self.terms)
            self.terms.append(Term(op, dtype, tuple(operands), data))
        return self._numbers[key]

    def constant(self, value: Any, dtype: torch.dtype) -> int:
        """Return the number of a constant of a dtype; it is rounded to it."""
        return self.add("constant", dtype, (), torch.tensor(value, dtype=dtype).item())

    def value(self, number: int) -> Any:
        """Return the number that a term is, None if it is not a constant."""
        return self.terms[number].data if self.terms[number].op == "constant" else None

    def inputs(self, place: int, like: Tensor) -> Tensor:
        """Return the elements of an input."""
        numbers = [self.add("input", like.dtype, (), (place, at)) for at in range(like.numel())]
        return torch.tensor(numbers, dtype=torch.int64).reshape(like.shape)

    def held(self, tensor: Tensor) -> Tensor:
        """Return the elements of a tensor whose values are known."""
        flat = tensor.detach().flatten()
        bits = flat.view(_BITS[flat.dtype.itemsize]) if flat.is_floating_point() else flat
        unique, back = torch.unique(bits, return_inverse=True)
        values = (unique.view(flat.dtype) if flat.is_floating_point() else unique).tolist()
        numbers = torch.tensor([self.constant(value, tensor.dtype) for value in values], dtype=torch.int64)
        return numbers[back].reshape(tensor.shape)

    def cast(self, number: int, dtype: torch.dtype) -> int:
        """Return a term converted to a dtype."""
        term = self.terms[number]
        if term.dtype == dtype:
            return number
        if term.op == "constant":
            return self.add("constant", dtype, (), torch.tensor(term.data, dtype=term.dtype).to(dtype).item())
        return self.add("cast", dtype, (number,))

    def below(self, *numbers: int) -> list[Term]:
        """Return some terms and all that they are made of."""
        reached, todo = set(numbers), list(numbers)
        while todo:
            operands = set(self.terms[todo.pop()].operands) - reached
            reached |= operands
            todo += operands
        return [self.terms[number] for number in sorted(reached)]

    # ------------------------------------------------------------------------------------------------------ programs

    def results(self, gm: fx.GraphModule, args: Sequence[Any]) -> list[Any]:
        """Return what a captured program returns: of a tensor its elements, with its dtype. See `run`."""
        (output,) = gm.graph.find_nodes(op="output")
        values, returned = self.run(gm, args), list[Any](output.args[0])
        flat = [values[n] if isinstance(n, fx.Node) else n for n in returned]
        metas = [n.meta["val"] if isinstance(n, fx.Node) else None for n in returned]
        return [(v, m.dtype) if isinstance(m, Tensor) else v for v, m in zip(flat, metas, strict=True)]

    def run(self, gm: fx.GraphModule, args: Sequence[Any]) -> dict[fx.Node, Any]:
        """Return the elements of each node's tensor. args: the flat inputs; of indices, only these are treated."""
        size = sum(n.meta["val"].numel() for n in gm.graph.nodes if isinstance(n.meta.get("val"), Tensor))
        if size > LARGEST:
            raise Unknown(f"Its tensors have {size:,} elements together; at most {LARGEST:,} are looked at one by one.")
        exact, values = indices(gm), dict[fx.Node, Any]()
        places = iter(enumerate(args))
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                place, example = next(places)
                if not isinstance(example, Tensor):
                    values[node] = example
                elif node in exact:
                    values[node] = self.held(example)
                else:
                    values[node] = self.inputs(place, example)
            elif node.op == "get_attr":
                values[node] = self.held(getattr(gm, str(node.target)))
            elif node.op == "call_function":
                values[node] = self._call(node, values)
        return values

    def _call(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        args: Any
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if not isinstance(node.target, torch._ops.OpOverload):
            raise Unknown(f"It calls {node.target}, which is not an operator of torch.")
        op = name(node)
        if moves(node):
            return self._move(node, op, args, kwargs)
        if not any(isinstance(leaf, fx.Node) for leaf in pytree.tree_leaves((node.args, node.kwargs))):
            return self.held(node.target(*node.args, **node.kwargs))
        if op in ("_to_copy", "to", "prims.convert_element_type") and isinstance(node.meta.get("val"), Tensor):
            return self._each([args[0]], lambda a: self.cast(a, node.meta["val"].dtype))
        if op in ("full_like", "zeros_like", "ones_like", "new_zeros", "new_ones", "new_full", "scalar_tensor"):
            return self._filled(node, op)
        if op == "constant_pad_nd":
            fill = self.constant(args[2] if len(args) > 2 else 0, node.meta["val"].dtype)
            return torch.ops.aten.constant_pad_nd.default(args[0], args[1], fill)
        if op in ("tril", "triu"):
            mask = getattr(torch.ones(args[0].shape, dtype=torch.bool), op)(*args[1:])
            return torch.where(mask, args[0], self.constant(0, node.meta["val"].dtype))
        if torch.Tag.pointwise in node.target.tags and isinstance(node.meta.get("val"), Tensor):
            return self._pointwise(node, op, args, kwargs)
        return self._opaque(node, args, kwargs)

    def _filled(self, node: fx.Node, op: str) -> Tensor:
        like: Tensor = node.meta["val"]
        value: Any = {"zeros_like": 0, "new_zeros": 0, "ones_like": 1, "new_ones": 1}.get(op)
        if value is None:
            value = node.args[0] if op == "scalar_tensor" else node.args[1 + (op == "new_full")]
        if isinstance(value, fx.Node):
            raise Unknown(f"{op} takes its number from a tensor.")
        return torch.full(tuple(like.shape), self.constant(value, like.dtype))

    def _move(self, node: fx.Node, op: str, args: Any, kwargs: Any) -> Any:
        """Run what moves elements, on numbers of terms, if its indices are constants."""
        args, place = list(args), INDICES.get(op)
        if place is not None:
            known = pytree.tree_map_only(Tensor, self._constants, args[place])
            if any(part is Ellipsis for part in pytree.tree_leaves(known)):
                return self._opaque(node, args, kwargs)
            args[place] = known
        return move(node, args, kwargs)

    def _constants(self, numbers: Tensor) -> Any:
        """Return the values of elements that are constants, an ellipsis if some are not."""
        values = [self.value(number) for number in numbers.flatten().tolist()]
        if None in values:
            return ...
        dtype = torch.bool if values and isinstance(values[0], bool) else torch.int64
        return torch.tensor(values, dtype=dtype).reshape(numbers.shape)

    def _each(self, operands: Sequence[Any], make: Callable[..., int]) -> Tensor:
        """Return what `make` makes of each tuple of elements of operands, which are broadcast; others are the same."""
        tensors = torch.broadcast_tensors(*(t for t in operands if isinstance(t, Tensor)))
        rows = torch.stack([t.flatten() for t in tensors], 1)
        unique, back = torch.unique(rows, dim=0, return_inverse=True)
        places = [at for at, operand in enumerate(operands) if isinstance(operand, Tensor)]
        numbers = []
        for row in unique.tolist():
            each = list(operands)
            for place, number in zip(places, row, strict=True):
                each[place] = _Number(number)
            numbers.append(make(*each))
        return torch.tensor(numbers, dtype=torch.int64)[back].reshape(tensors[0].shape)

    def _pointwise(self, node: fx.Node, op: str, args: Any, kwargs: Any) -> Tensor:
        known, result = KNOWN.get(op), node.meta["val"].dtype
        operands = list(args)
        metas = [n.meta["val"] if isinstance(n, fx.Node) else n for n in node.args]
        extra = {key: value for key, value in kwargs.items() if value is not None}
        work = _working_type(known, metas, result, extra) if known else None
        if known and work is not None:
            return self._each(operands, lambda *each: self._known_call(known, work, result, each, extra))
        return self._each(operands, lambda *each: self._unknown_call(str(node.target), result, each, extra))

    def _known_call(self, op: str, work: torch.dtype, result: torch.dtype, each: Sequence, extra: dict) -> int:
        """Return the term of a function that proofs know, with its operands converted to the dtype it works in."""
        each = list(each)
        if op == "rsub":
            op, each[:2] = "sub", each[1::-1]
        if op == "square":
            op, each = "mul", each * 2
        if op == "where":
            numbers = [self.cast(each[0], torch.bool), *(self._operand(part, work) for part in each[1:])]
        elif op == "pow":
            return self._power(work, each)
        else:
            numbers = [self._operand(part, work) for part in each if part is not None]
            if op in ("clamp", "clamp_min", "clamp_max"):
                return self._clamp(op, work, each)
        if (alpha := extra.get("alpha", 1)) != 1:
            numbers[1] = self.call("mul", work, work, [numbers[1], self.constant(alpha, work)])
        return self.call(op, work, result, numbers)

    def _operand(self, part: Any, work: torch.dtype) -> int:
        return self.cast(part, work) if isinstance(part, _Number) else self.constant(part, work)

    def _clamp(self, op: str, work: torch.dtype, each: Sequence) -> int:
        bounds = {"clamp": each[1:], "clamp_min": each[1:2], "clamp_max": [None, *each[1:2]]}[op]
        number = self._operand(each[0], work)
        for limit, bound in zip(("maximum", "minimum"), bounds, strict=False):
            if bound is not None:
                number = self.call(limit, work, work, [number, self._operand(bound, work)])
        return number

    def _power(self, work: torch.dtype, each: Sequence) -> int:
        """Return a power that torch computes with products, roots and quotients; of others only the name is known."""
        base, exponent = self._operand(each[0], work), each[1]
        if not isinstance(exponent, _Number) and exponent in (0, 1, 2, 3, 0.5, -1, -0.5, -2) and work.is_floating_point:
            one = self.constant(1, work)
            square = self.call("mul", work, work, [base, base])
            return {
                0: lambda: one,
                1: lambda: base,
                2: lambda: square,
                3: lambda: self.call("mul", work, work, [square, base]),
                0.5: lambda: self.call("sqrt", work, work, [base]),
                -1: lambda: self.call("reciprocal", work, work, [base]),
                -0.5: lambda: self.call("rsqrt", work, work, [base]),
                -2: lambda: self.call("reciprocal", work, work, [square]),
            }[exponent]()
        if not isinstance(exponent, _Number) and exponent in (1, 2, 3):
            number = base
            for _ in range(int(exponent) - 1):
                number = self.call("mul", work, work, [number, base])
            return number
        return self.call("pow", work, work, [base, self._operand(exponent, work)])

    def call(self, op: str, work: torch.dtype, result: torch.dtype, numbers: Sequence[int]) -> int:
        """Return the term of a known function of operands of one dtype; of constants, what torch computes."""
        values = [self.value(number) for number in numbers]
        if None not in values:
            dtypes = [self.terms[number].dtype for number in numbers]
            return self.constant(_computed(op, values, dtypes), result)
        if op == "mul" and work.is_floating_point and -1 in values:  # exactly, and fewer steps for the solver
            return self.call("neg", work, result, [numbers[1 - values.index(-1)]])
        if op in _COMMUTE:
            numbers = sorted(numbers)
        return self.add(op, result, numbers)

    def _unknown_call(self, op: str, result: torch.dtype, each: Sequence, extra: dict) -> int:
        data = [None if isinstance(part, _Number) else _exact(part) for part in each]
        numbers = [part for part in each if isinstance(part, _Number)]
        return self.add("opaque", result, numbers, (op, tuple(data), tuple(sorted(map(str, extra.items())))))

    def _opaque(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """Return the elements of a call that is not computed element by element."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        dtypes = [n.meta["val"].dtype for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
        parts = [
            (leaf.shape, leaf.flatten().numpy().tobytes()) if isinstance(leaf, Tensor) else leaf for leaf in leaves
        ]
        key = (str(node.target), tuple(map(_exact, parts)), str(spec), tuple(dtypes))
        call = self._calls.setdefault(key, len(self._calls))
        count = iter(range(1 << 62))

        def elements(like: Any) -> Tensor:
            if not isinstance(like, Tensor):
                raise Unknown(f"{name(node)} returns a number that depends on values.")
            at = next(count)
            numbers = [self.add("opaque", like.dtype, (), (str(node.target), call, at, i)) for i in range(like.numel())]
            return torch.tensor(numbers, dtype=torch.int64).reshape(tuple(like.shape))

        return pytree.tree_map(elements, node.meta["val"])


class _Number(int):
    """The number of a term, as an operand; other operands are Python numbers."""


def _exact(value: Any) -> Any:
    """Return a key that tells 1, 1.0, True and 0.0, -0.0 apart, and takes one NaN for another."""
    return (type(value).__name__, repr(value)) if isinstance(value, (bool, int, float)) else value


def _working_type(op: str, metas: Sequence[Any], result: torch.dtype, extra: dict) -> torch.dtype | None:
    """Return the dtype to which a function converts its operands, None where a proof does not know it."""
    if set(extra) - {"alpha"}:
        return None
    metas = [meta for meta in metas if meta is not None]
    if op in _LOGIC:
        return torch.bool
    work = result
    if op in _COMPARE or op in ("isnan", "signbit"):
        work = metas[0].dtype if len(metas) == 1 else torch.result_type(*(_plain(meta) for meta in metas))
    if op == "where":
        metas = metas[1:]
    if op == "bitwise_left_shift" and (isinstance(metas[1], Tensor) or not 0 <= metas[1] < 8 * work.itemsize):
        return None
    if op == "pow" and (isinstance(metas[0], (int, float)) or isinstance(metas[1], Tensor)):
        return None
    if work.is_complex or (work.is_floating_point and extra.get("alpha", 1) not in (1, -1)):  # rounded once, not twice
        return None
    if work in (torch.float16, torch.bfloat16):  # torch computes in float32: a number is not rounded to half first
        if op == "rsqrt":
            return None
        for meta in metas:
            wider = isinstance(meta, Tensor) and meta.dtype.is_floating_point and meta.dtype != work
            inexact = isinstance(meta, (int, float)) and _inexact(meta, work)
            if wider or inexact or (op == "pow" and isinstance(meta, float | int) and meta in (3, -0.5, -2)):
                return None
    return work


def _plain(meta: Any) -> Any:
    return torch.empty(meta.shape, dtype=meta.dtype, device="meta") if isinstance(meta, Tensor) else meta


def _inexact(value: float, dtype: torch.dtype) -> bool:
    rounded = torch.tensor(float(value), dtype=torch.float64).to(dtype).item()
    return rounded != value and value == value


def _computed(op: str, values: Sequence[Any], dtypes: Sequence[torch.dtype]) -> Any:
    tensors = [torch.tensor(value, dtype=dtype) for value, dtype in zip(values, dtypes, strict=True)]
    return getattr(torch, op)(*tensors).item()
