"""Translate a program in primitives to one TensorIR function.

    program = primitives(gm, inputs)
    function = tensor_ir(program)        # tvm.tirx.PrimFunc: inputs in order, then outputs

Fusing is inlining: a value of the group is an expression where it is used, not a buffer. A value with more than one use
gets a name in the expression (`T.Let`), so that nothing is computed twice in one loop. The result of a reduction is a
buffer, as all of a row has to be read before its sum is known. So is what is reduced and read again, and what a product
reads, where each element is used for many of the result (`stored`).

Reading order: memory layout, what is stored, expressions, the function, its elements, its reductions. How a primitive
computes one number is in `passlab.kernels.scalars`; `passlab.kernels.schedule` then arranges the loops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from passlab.kernels.primitives import CONSTANTS, POSITIONS, REDUCTIONS, VIEWS, Unsupported, _words, constant, name_of
from passlab.kernels.scalars import COPIES, apply, negate

if TYPE_CHECKING:
    import tvm

#: A sum over at least this many elements is split into partial sums: for vector registers, and because a float sum that
#: keeps growing loses small addends.
LONG, LANES, RUN = 64, 16, 512
#: Limit on the operations of an expression with its names expanded: TVM 0.27 expands them while lowering.
WRITTEN_OUT = 2**19
#: The same limit for functions that have a vectorizable form of many operations: beyond it, they are library calls.
VECTORIZED = 2**14


# ------------------------------------------------------------------------------------------------ where tensors lie


@dataclass(frozen=True)
class Layout:
    """How a kernel sees an input: with its shape if it is contiguous, else as the `span` elements it covers, where
    element (i, j, …) has the index `skip + i·strides[0] + j·strides[1] + …`.

    Vector loads need memory that starts at a multiple of ALIGNED bytes: `skip` elements before the tensor.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    skip: int = 0

    @property
    def flat(self) -> bool:
        return self.skip > 0 or self.strides != _dense(self.shape)

    @property
    def span(self) -> int:
        return self.skip + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as the kernel takes it, in the same memory."""
        if not self.flat:
            return tensor
        return tensor.as_strided((self.span,), (1,), tensor.storage_offset() - self.skip)


#: The bytes of the widest vector register: the alignment of memory that is read in vectors.
ALIGNED = 64


def elements_skipped(tensor: torch.Tensor) -> int | None:
    """Return how many elements before a tensor its memory is aligned; None if it never is."""
    past = tensor.data_ptr() % ALIGNED
    elements = past // tensor.element_size()
    return elements if past % tensor.element_size() == 0 and elements <= tensor.storage_offset() else None


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor; a dimension of size 1 gets its neighbour's stride."""
    return tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))


def layout(tensor: torch.Tensor, skip: int = 0) -> Layout:
    strides = [d if n == 1 else s for n, s, d in zip(tensor.shape, tensor.stride(), _dense(tensor.shape), strict=True)]
    return Layout(tuple(tensor.shape), tuple(strides), skip)


def order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the dimensions from slowest to fastest in memory: (0, 2, 3, 1) for channels last."""
    sizes, strides = tensor.shape, tensor.stride()
    dims = sorted(range(tensor.ndim), key=lambda d: (-strides[d], d))
    if tuple(strides[d] for d in dims if sizes[d] > 1) != tuple(
        s for d, s in zip(dims, _dense([sizes[d] for d in dims]), strict=True) if sizes[d] > 1
    ):
        return tuple(range(tensor.ndim))  # it overlaps or has holes: its copy is contiguous
    return tuple(dims)


def result_layout(node: fx.Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the (order of dimensions, strides) of a kernel's result: those that torch would give it."""
    shape, reduction = _shape(node), name_of(node.target) in REDUCTIONS
    dims = tuple(range(len(shape))) if reduction else order(node.meta["val"])
    steps = dict(zip(dims, _dense([shape[d] for d in dims]), strict=True))
    return dims, tuple(steps[d] for d in range(len(shape)))


def results(program: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes whose values the kernel writes, each once; outputs that are inputs are passed through."""
    (output,) = program.graph.find_nodes(op="output")
    return [n for n in dict.fromkeys(output.args[0]) if isinstance(n, fx.Node) and n.op != "placeholder"]


def operands(program: fx.GraphModule) -> list[tuple[int, fx.Node]]:
    """Return (position, placeholder) of the inputs that the kernel reads, not of those it only returns."""
    return [
        (at, node)
        for at, node in enumerate(program.graph.find_nodes(op="placeholder"))
        if any(user.op != "output" for user in node.users)
    ]


# ------------------------------------------------------------------------------------------------ what is stored


def is_product(node: fx.Node) -> bool:
    """Return whether a node sums products of two operands, each element of which takes part in several: such a sum is
    not split, as its vectors are neighbours in the result."""
    if node.op != "call_function" or name_of(node.target) != "sum":
        return False
    summed: Any = node.args[0]
    if summed.op != "call_function" or name_of(summed.target) not in ("mul", "where"):
        return False
    factors = [a for a in summed.args if isinstance(a, fx.Node) and a.meta["val"].ndim and constant(a) is None]
    size = summed.meta["val"].numel()
    return len(factors) == 2 and all(_behind_views(a).meta["val"].numel() < size for a in factors)


def _behind_views(node: Any) -> fx.Node:
    while node.op == "call_function" and name_of(node.target) in VIEWS:
        node = node.args[0]
    return node


#: What more than one stage needs, and takes more operations, is computed once.
CHEAP = 8


def stored(program: fx.GraphModule) -> set[fx.Node]:
    """Return the nodes, besides reductions, whose values a kernel holds in buffers: what is reduced and read again, and
    what products and windows read."""
    several = {node for node in _reduced_and_read(program) if _is_stored(node)}
    read: list[Any] = [a for node in program.graph.nodes if is_product(node) for a in node.args[0].all_input_nodes]
    read += [node for node in program.graph.nodes if node.op == "call_function" and name_of(node.target) == "unfold"]
    if not read:
        return several
    several |= {node for node in map(_behind_views, read) if _is_stored(node)}
    work: dict[fx.Node, int] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and name_of(node.target) not in REDUCTIONS:
            work[node] = 1 + sum(work.get(a, 0) for a in node.all_input_nodes)
            if _is_stored(node) and len(node.users) > 1 and work[node] > CHEAP:
                several.add(node)
            if node in several:
                work[node] = 0
    return several


def _reduced_and_read(program: fx.GraphModule) -> set[fx.Node]:
    """Return the floats that are reduced and that another stage reads again.

    Computed twice, a value may differ by a rounding, since LLVM contracts `a·b - c` to one operation: softmax would
    find no element that is the maximum, and divide 0 by 0.
    """
    reductions = [n for n in program.graph.nodes if n.op == "call_function" and name_of(n.target) in REDUCTIONS]
    sources = {_behind_views(node.args[0]) for node in reductions if _is_float(_dtype(node))}
    return {node for node in sources if len(_readers(node)) > 1}


def _readers(node: fx.Node) -> set[fx.Node]:
    """Return the users of a value that are not views, also through views."""
    views = {user for user in node.users if user.op == "call_function" and name_of(user.target) in VIEWS}
    return (node.users.keys() - views).union(*map(_readers, views))


def _is_stored(node: fx.Node) -> bool:
    plain = node.op == "call_function" and name_of(node.target) not in REDUCTIONS | VIEWS | CONSTANTS | {"iota"}
    return plain and node.meta["val"].dtype != torch.bool and constant(node) is None


# ------------------------------------------------------------------------------------------------ expressions


def _dtype(node: fx.Node) -> str:
    return str(node.meta["val"].dtype).removeprefix("torch.")


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


#: Primitives whose expression holds each operand once, unchanged.
_READ_ONCE = _words(
    "add mul div neg abs reciprocal rsqrt sqrt exp exp2 log where convert_element_type clone sum amax amin prod"
)


def _buffer_type(dtype: str) -> str:
    """Return a buffer's type. TVM's bfloat16 does not work with names in expressions: its 16 bits are handled here."""
    return "uint16" if dtype == "bfloat16" else dtype


def _is_float(dtype: str) -> bool:
    return "float" in dtype


class _Body:
    """Builds the expression of one element of a stage. `named` holds the named values, in order.

    names: whether there are any. TVM allows none in the index of an element.
    """

    def __init__(self, function: _Function, names: bool = True):
        self.function, self.names, self.named, self.known, self.sizes = function, names, [], {}, {}

    def value(self, node: fx.Node, at: tuple) -> Any:
        """Return the expression for element `at` of a node's value."""
        key = (node, tuple(i if isinstance(i, int) else id(i) for i in at))
        if key not in self.known:
            self.known[key] = (self._compute(node, at), at)  # `at` too: ids are unique only among live objects
        return self.known[key][0]

    def _compute(self, node: fx.Node, at: tuple) -> Any:
        if node in self.function.buffers:
            return self.function.read(node, at)
        if (number := constant(node)) is not None:
            return self.function.number(number, _dtype(node))
        if name_of(node.target) in REDUCTIONS:
            return self.function.reduce(node)(*at)
        if node in self.function.stored:
            return self.function.store(node)(*at)
        return self.element(node, at)

    def element(self, node: fx.Node, at: tuple) -> Any:
        """Return the expression of an element by its operands, also if the value is stored."""
        name = name_of(node.target)
        if name in VIEWS:
            source = node.args[0]
            return self.value(source, source_index(node, _shape(source), at))
        if name in ("cat", "constant_pad_nd", *POSITIONS):
            return self._bind_name(node, getattr(self, f"_{name.strip('_')}")(node, at))
        args, vectorized = [self._operand(node, a, at) for a in node.args], self._is_vectorized(node)
        return self._bind_name(node, self.function.pointwise(node, name, args, vectorized))

    def _operand(self, node: fx.Node, operand: Any, at: tuple) -> Any:
        if isinstance(operand, fx.Node):
            return self.value(operand, at if operand.meta["val"].ndim else ())
        if isinstance(operand, bool | int | float):
            tensors = [a for a in node.args if isinstance(a, fx.Node) and _dtype(a) != "bool"]
            return self.function.number(operand, _dtype(tensors[0]) if tensors else _dtype(node))
        return operand

    def _clamped(self, index: Any, size: int) -> Any:
        """Return an index within a dimension: both sides of a choice are read."""
        T = self.function.tirx
        return max(0, min(index, size - 1)) if isinstance(index, int) else T.max(T.min(index, size - 1), 0)

    def _cat(self, node: fx.Node, at: tuple) -> Any:
        args: Any = node.args
        parts, d = [a for a in args[0] if a.meta["val"].numel()], (*args[1:], 0)[0] % len(at)
        result, end = None, _shape(node)[d]
        for part in reversed(parts):
            begin = end - _shape(part)[d]
            value = self.value(part, (*at[:d], self._clamped(at[d] - begin, end - begin), *at[d + 1 :]))
            result = value if result is None else self._chosen(at[d] < end, value, result)
            end = begin
        return result

    def _chosen(self, condition: Any, value: Any, other: Any) -> Any:
        value, other = self.function.opaque(value), self.function.opaque(other)
        if isinstance(condition, bool):
            return value if condition else other
        return self.function.tirx.Select(condition, value, other)

    def _constant_pad_nd(self, node: fx.Node, at: tuple) -> Any:
        args: Any = node.args
        source, pads, *filled = args
        before = [0] * (len(at) - len(pads) // 2) + list(pads[::2])[::-1]
        places: list[Any] = []
        inside: Any = True
        for i, skip, size, n in zip(at, before, _shape(source), _shape(node), strict=True):
            places.append(self._clamped(i - skip, size) if n != size or skip else i)
            conditions = ([i >= skip] if skip > 0 else []) + ([i < skip + size] if skip + size < n else [])
            for condition in conditions:
                inside = condition if inside is True else self.function.tirx.all(inside, condition)
        number = self.function.number((*filled, 0)[0], _dtype(node))
        return self._chosen(inside, self.value(source, tuple(places)), number)

    def _iota(self, node: fx.Node, at: tuple) -> Any:
        options: Any = node.kwargs
        index = at[0] * options["step"] + options["start"]
        dtype = _dtype(node)
        return self.function.number(index, dtype) if isinstance(index, int) else index.astype(dtype)

    def _unsafe_index(self, node: fx.Node, at: tuple) -> Any:
        args: Any = node.args
        source, indices = args
        numbers = [d for d, index in enumerate(indices) if index is not None]
        ndim = max(indices[d].meta["val"].ndim for d in numbers)
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise Unsupported(node.meta["of"], "it indexes dimensions that are not neighbours")
        common = at[numbers[0] : numbers[0] + ndim]
        places = [*at[: numbers[0]], *(0 for _ in numbers), *at[numbers[0] + ndim :]]
        for d in numbers:
            shape = _shape(indices[d])
            position = tuple(0 if n == 1 else i for n, i in zip(shape, common[ndim - len(shape) :], strict=True))
            index = _Body(self.function, names=False).value(indices[d], position)
            places[d] = self._clamped(index, _shape(source)[d])
        return self.value(source, tuple(places))

    def _bind_name(self, node: fx.Node, value: Any) -> Any:
        """Name the value if it is used again, or if TVM would simplify it as a real number: it turns (x + y) - y into x
        and `not x < y` into x >= y."""
        reads = [user for user in node.users for operand in user.args if operand is node]
        if not self.names:
            return value
        if len(reads) < 2 and all(user.op == "output" or name_of(user.target) in _READ_ONCE for user in node.users):
            return value
        function, truth = self.function, _dtype(node) == "bool"
        value = value.astype("int8") if truth else value
        variable = function.tirx.Var(node.name, value.ty)
        self.named.append((variable, value))
        if self._written_out(node) > WRITTEN_OUT:
            reason = "with its names expanded, which TVM does, it has millions of operations: split the group"
            raise Unsupported(node.meta["of"], reason)
        return function.tirx.NE(variable, function.number(0, "int8")) if truth else variable

    def _written_out(self, node: fx.Node) -> int:
        """Count the operations of the value with all names expanded."""
        if node not in self.sizes:
            copies = COPIES.get(name_of(node.target), 1) if self._is_vectorized(node) else 1
            self.sizes[node] = copies * self._operands_written_out(node)
        return self.sizes[node]

    def _operands_written_out(self, node: fx.Node) -> int:
        inside = node.op == "call_function" and name_of(node.target) not in REDUCTIONS
        operands = [a for a in node.args if inside and isinstance(a, fx.Node) and a not in self.function.stored]
        return 1 + sum(map(self._written_out, operands))

    def _is_vectorized(self, node: fx.Node) -> bool:
        """Return whether to compute a function in vectorizable steps, which hold its operand many times."""
        copies = COPIES.get(name_of(node.target), 1)
        return self.function.vectorized and copies * self._operands_written_out(node) <= VECTORIZED

    def whole(self, value: Any) -> Any:
        """Bind the names around the expression."""
        for variable, named in reversed(self.named):
            value = self.function.tirx.Let(variable, named, value)
        return value


def source_index(node: fx.Node, source: tuple, at: tuple) -> tuple:
    """Map element `at` of a view to its element in the viewed tensor, which has the shape `source`."""
    args: Any = node.args
    name, shape = name_of(node.target), _shape(node)
    if name == "broadcast_in_dim":
        return tuple(0 if n == 1 else at[d] for n, d in zip(source, args[2], strict=True))
    if name == "expand":
        return tuple(0 if n == 1 else i for n, i in zip(source, at[len(at) - len(source) :], strict=True))
    if name in ("transpose", "permute"):
        places = {d % len(source): i for d, i in zip(args[1], at, strict=True)}
        return tuple(places[d] for d in range(len(source)))
    if name == "t":
        return tuple(reversed(at))
    if name == "select":
        d, index = args[1] % len(source), args[2] % source[args[1]]
        return (*at[:d], index, *at[d:])
    if name == "slice":
        d, start, _, step = (*args[1:], *(0, 0, None, 1)[len(args) - 1 :])
        d, start = d % len(source), slice(start, None, 1).indices(source[d])[0]
        return tuple(i * step + start if e == d and (start or step != 1) else i for e, i in enumerate(at))
    if name in ("alias", "detach"):
        return at
    if name == "unfold":
        d, _, step = args[1] % len(source), *args[2:]
        return tuple(i * step + at[-1] if e == d else i for e, i in enumerate(at[:-1]))
    if name == "flip":
        turned = {d % len(source) for d in args[1]}
        return tuple(source[d] - 1 - i if d in turned else i for d, i in enumerate(at))
    return _reshape_index(source, shape, at)


def _reshape_index(source: tuple, shape: tuple, at: tuple) -> tuple:
    """Map element `at` of a tensor of this shape to the element of a tensor of shape `source`, as reshape does."""
    index, left, right = [], 0, 0
    while left < len(source):
        if source[left] == 1:
            index.append(0)
            left += 1
        elif right < len(shape) and shape[right] == 1:
            right += 1
        elif source[left] == shape[right]:
            index.append(at[right])
            left, right = left + 1, right + 1
        else:  # the shortest runs of dimensions with the same number of elements
            ends, counts = [left + 1, right + 1], [source[left], shape[right]]
            while counts[0] != counts[1]:
                side = counts[0] > counts[1]
                counts[side] *= (source, shape)[side][ends[side]]
                ends[side] += 1
            number = 0
            for n, i in zip(shape[right : ends[1]], at[right : ends[1]], strict=True):
                number = number * n + i
            below = counts[0]
            for n in source[left : ends[0]]:
                below //= n
                index.append(number // below % n)
            left, right = ends
    return tuple(index)


# ------------------------------------------------------------------------------------------------ the function


class _Function:
    """Translates a program to TensorIR: which nodes are buffers, and how to compute them."""

    def __init__(self, program: fx.GraphModule, names: Sequence[str], skips: Sequence[int], partial: bool):
        from passlab.relax import tvm

        self.tvm, self.te, self.tirx = tvm, tvm.te, tvm.tirx
        self.program, self.partial, self.stored = program, partial, stored(program)
        tensors = [node.meta["val"] for node in program.graph.nodes if node.op != "output"]
        #: a cast to bfloat16 holds its operand several times, too
        self.vectorized = partial and all(x.dtype != torch.bfloat16 for x in tensors)
        self.buffers: dict[fx.Node, Any] = {}
        self.layouts: dict[fx.Node, Layout] = {}
        for (at, node), name in zip(operands(program), names, strict=True):
            strides = self.layouts[node] = layout(node.meta["val"], skips[at] if skips else 0)
            self.buffers[node] = self.te.placeholder(
                (strides.span,) if strides.flat else strides.shape, _buffer_type(_dtype(node)), name
            )

    def read(self, node: fx.Node, at: tuple) -> Any:
        view = self.layouts.get(node)
        if view is None or not view.flat:
            return self.buffers[node](*at)
        steps = [i * s for i, s in zip(at, view.strides, strict=True) if s and not (isinstance(i, int) and i == 0)]
        return self.buffers[node](sum(steps, view.skip))

    def number(self, value: float, dtype: str) -> Any:
        if dtype == "bfloat16":
            return self.tirx.const(
                torch.tensor(value, dtype=torch.bfloat16).view(torch.int16).item() & 0xFFFF, "uint16"
            )
        return self.tirx.const(bool(value) if dtype == "bool" else value, dtype)

    def opaque(self, value: Any) -> Any:
        """Return a zero as a call: where TVM sees one, it simplifies its product with inf to 0."""
        if not isinstance(value, self.tirx.FloatImm) or value.value != 0:
            return value
        dtype = "float64" if value.ty.dtype == "float64" else "float32"  # there is no such call for halves
        number, sign = (self.tirx.const(x, dtype) for x in (value.value, math.copysign(1, value.value)))
        return self.tirx.copysign(number, sign).astype(value.ty.dtype)

    # ---- one element

    def pointwise(self, node: fx.Node, name: str, args: list, vectorized: bool) -> Any:
        """Apply the primitive `name` to expressions. vectorized: in steps that LLVM can vectorize, if there are any."""
        T, source = self.tirx, node.args[0]
        dtype = _dtype(source) if isinstance(source, fx.Node) else _dtype(node)
        if name == "convert_element_type":
            return self.cast(args[0], dtype, _dtype(node))
        if name in ("clone", "view_of"):
            return args[0]
        if name == "where":
            return T.Select(*args)
        if dtype in ("float16", "bfloat16"):
            wide = apply(name, node, [self.cast(a, dtype, "float32") for a in args], "float32", vectorized)
            return wide if _dtype(node) == "bool" else self.cast(wide, "float32", dtype)
        return apply(name, node, args, dtype, vectorized)

    def cast(self, value: Any, source: str, dtype: str) -> Any:
        T = self.tirx
        if source == dtype:
            return value
        if source == "bfloat16":
            bits = T.shift_left(value.astype("uint32"), T.const(16, "uint32"))
            return self.cast(T.reinterpret("float32", bits), "float32", dtype)
        if dtype == "bool":
            return negate(T, T.EQ(value, self.number(0, source)))
        if dtype != "bfloat16":
            return value.astype(dtype)
        value = value if source == "float32" else value.astype("float32")
        single, bits = T.Var("given", value.ty), T.Var("bits", T.const(0, "uint32").ty)
        u = functools.partial(T.const, dtype="uint32")
        even = T.bitwise_and(T.shift_right(bits, u(16)), u(1))  # to nearest, ties to even
        rounded = T.shift_right(bits + even + u(0x7FFF), u(16)).astype("uint16")
        chosen = T.Select(T.isnan(single), T.const(0x7FC0, "uint16"), rounded)
        return T.Let(single, value, T.Let(bits, T.reinterpret("uint32", single), chosen))

    # ---- what is stored, reductions

    def store(self, node: fx.Node) -> Any:
        """Return the buffer of a value that several elements or stages read."""
        if node not in self.buffers:

            def element(*at: Any) -> Any:
                body = _Body(self)
                return body.whole(body.element(node, at))

            self.buffers[node] = self.te.compute(_shape(node), element, node.name)
        return self.buffers[node]

    def reduce(self, node: fx.Node) -> Any:
        """Return the buffer of a reduction, in one stage, or in several for a long sum."""
        if node not in self.buffers:
            source, dims = node.args[0], {d % len(_shape(node.args[0])) for d in node.args[1]}
            sizes = _shape(source)
            rows = [n for d, n in enumerate(sizes) if d not in dims]
            columns = [sizes[d] for d in sorted(dims)]

            def first(body: _Body, row: tuple, inner: tuple) -> Any:
                rows_left, inner_left = iter(row), iter(inner)
                return body.value(
                    source, tuple(next(inner_left if d in dims else rows_left) for d in range(len(sizes)))
                )

            last_is_fast = self.partial and not is_product(node) and dims and max(dims) == len(sizes) - 1
            result = self._stages(node, rows, columns, first, last_is_fast)
            if not self.partial and name_of(node.target) in ("amax", "amin") and _is_float(_dtype(node)):
                result = self._with_nan(node, rows, columns, first, result)
            self.buffers[node] = result
        return self.buffers[node]

    def _with_nan(self, node: fx.Node, rows: list[int], sizes: list[int], value: Callable, result: Any) -> Any:
        """Count NaNs beside a maximum: TVM's own, shared by the threads of a GPU, loses them."""
        te, T, dtype, body = self.te, self.tirx, _dtype(node), _Body(self)
        axes = [te.reduce_axis((0, n), f"{node.name}_k") for n in sizes]
        one, zero = self.number(1, dtype), self.number(0, dtype)

        def count(*row: Any) -> Any:
            element = body.whole(value(body, row, tuple(axis.var for axis in axes)))
            return te.sum(T.Select(T.isnan(element), one, zero), axis=axes)

        counted = te.compute(tuple(rows), count, f"{node.name}_nan")
        nan = self.number(math.nan, dtype)
        return te.compute(
            tuple(rows), lambda *row: T.Select(counted(*row) > zero, nan, result(*row)), f"{node.name}_or_nan"
        )

    def _stages(self, node: fx.Node, rows: list[int], sizes: list[int], value: Callable, partial: bool) -> Any:
        """Reduce over the sizes `sizes`; `value(body, row, inner)` is an element.

        A long size is cut into `runs` runs of `lanes` adjacent elements; each lane of each run is reduced separately,
        then the partial results, from the innermost out.
        """
        te, body = self.te, _Body(self)
        *outer, size = sizes or [1]
        if not partial or not sizes or (size < LONG and not outer):
            axes = [te.reduce_axis((0, n), f"{node.name}_k") for n in sizes]

            def whole(*row: Any) -> Any:
                return self._combine(node, body.whole(value(body, row, tuple(axis.var for axis in axes))), axes)

            return te.compute(tuple(rows), whole, node.name)
        lanes = _divisor(size, LANES) if size >= LONG else 1
        lanes = lanes if lanes >= 4 else 1
        run = _divisor(size // lanes, RUN) if size // lanes > 2 * RUN else size // lanes
        if run < 8 <= size // lanes:  # a long size without such divisors: the last run is padded
            lanes, run = LANES, RUN
        runs = -(-size // (lanes * run))
        remaining = [*outer, *([runs] if runs > 1 else []), *([lanes] if lanes > 1 else [])]
        axis = te.reduce_axis((0, run), f"{node.name}_k")

        def element(*at: Any) -> Any:
            row, inner = at[: len(rows)], at[len(rows) :]
            place = inner[len(outer)] * run + axis.var if runs > 1 else axis.var
            place = place * lanes + inner[-1] if lanes > 1 else place
            if lanes * run * runs == size:
                return self._combine(node, body.whole(value(body, row, (*inner[: len(outer)], place))), [axis])
            inside = body.whole(value(body, row, (*inner[: len(outer)], self.tirx.min(place, size - 1))))
            return self._combine(node, self.tirx.Select(place < size, inside, self._neutral(node)), [axis])

        stage = te.compute((*rows, *remaining), element, f"{node.name}_part" if remaining else node.name)
        if not remaining:
            return stage
        return self._stages(node, rows, remaining, lambda _, row, inner: stage(*row, *inner), partial)

    def _combine(self, node: fx.Node, value: Any, axes: list) -> Any:
        te, T, name, dtype = self.te, self.tirx, name_of(node.target), _dtype(node)
        if name == "sum":
            return te.sum(value, axis=axes)
        above = name == "amax"
        if not self.partial and name != "prod":
            return (te.max if above else te.min)(value, axis=axes)

        def keep(x: Any, y: Any) -> Any:
            if name == "prod":
                return x * y
            if not _is_float(dtype):
                return T.max(x, y) if above else T.min(x, y)
            new = T.Var("new", y.ty)  # TVM's max loses a NaN
            return T.Let(new, y, T.Select(T.any(T.isnan(x), x > new if above else x < new), x, new))

        return T.comm_reducer(keep, lambda _: self._neutral(node), name=name)(value, axis=axes)

    def _neutral(self, node: fx.Node) -> Any:
        """Return the neutral element of a reduction."""
        name, dtype = name_of(node.target), node.meta["val"].dtype
        if name in ("sum", "prod"):
            return self.number(int(name == "prod"), _dtype(node))
        if dtype.is_floating_point:
            return self.number(-math.inf if name == "amax" else math.inf, _dtype(node))
        return self.number(torch.iinfo(dtype).min if name == "amax" else torch.iinfo(dtype).max, _dtype(node))

    # ---- all of it

    def outputs(self) -> Iterator[list[Any]]:
        """Yield the output tensors for each of `results`; those of one shape and order share their loops."""
        nests: dict[tuple, list[fx.Node]] = {}
        tensors: dict[fx.Node, Any] = {}
        for node in results(self.program):
            if name_of(node.target) in REDUCTIONS:
                tensors[node] = self.reduce(node)
            elif node in self.stored and result_layout(node)[0] == tuple(range(len(_shape(node)))):
                tensors[node] = self.store(node)
            else:
                nests.setdefault((_shape(node), result_layout(node)[0]), []).append(node)
        for (shape, dims), nodes in nests.items():
            tensors |= zip(nodes, self._nest(shape, dims, nodes), strict=True)
        return [tensors[node] for node in results(self.program)]

    def _nest(self, shape: tuple, dims: tuple, nodes: list[fx.Node]) -> list[Any]:
        def elements(*inside: Any) -> tuple:
            places = dict(zip(dims, inside, strict=True))
            at = tuple(places[d] for d in range(len(shape)))
            bodies = [_Body(self) for _ in nodes]
            return tuple(body.whole(body.value(node, at)) for body, node in zip(bodies, nodes, strict=True))

        name = nodes[0].name if len(nodes) == 1 else "out"
        tensors = self.te.compute(tuple(shape[d] for d in dims), elements, name)
        return tensors if isinstance(tensors, list | tuple) or len(nodes) > 1 else [tensors]


def _divisor(size: int, most: int) -> int:
    """Return the largest divisor of at most `most`."""
    return max(d for d in range(1, min(size, most) + 1) if size % d == 0)


def tensor_ir(
    program: fx.GraphModule, names: Sequence[str] | None = None, skips: Sequence[int] = (), *, partial: bool = True
) -> tvm.tirx.PrimFunc:
    """Return the program as one unscheduled TensorIR function. Parameters: the tensors it reads, then its outputs.

    names: of the tensors it reads. skips: for each input, how many elements before it its parameter starts.
    partial: split long sums into partial ones, and use vectorizable tanh and erf, as suits a CPU.
    """
    names = names or [node.name for _, node in operands(program)]
    function = _Function(program, names, skips, partial)
    outputs = function.outputs()
    inputs = [function.buffers[node] for _, node in operands(program)]
    return function.te.create_prim_func([*inputs, *outputs])
