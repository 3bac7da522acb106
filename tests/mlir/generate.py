"""Random MLIR modules that verify and run by construction.

    module = random_module(7)                            # the same in every process
    random_module(7, size=30, features=("pointwise", "reduce"))
    random_module(7, features=("pointwise", "reduce", "calls", "affine"))

Programs are linalg on tensors of small odd sizes, with the traps of a careless pass: values with several users,
broadcasts and transposes in the maps, permuted results, destinations that are read, reductions before and after
element-wise operations, equal expressions, loops and branches around tensors. On demand they call functions, or MLIR's
own passes write them on buffers, with or without affine loops. Values stay finite and of moderate size on moderate
inputs.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from passlab.mlir.modules import parse, pipeline, text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

#: feature → what it adds to a module
FEATURES = {
    "pointwise": "element-wise linalg.generics of one to three operands",
    "broadcast": "operands of lower rank, read by a map that drops loops; linalg.broadcast",
    "transpose": "operands and results whose maps permute the loops; linalg.transpose",
    "reduce": "sums and maxima over some of the loops",
    "matmul": "linalg.matmul on a filled destination",
    "tensors": "arith and math on whole tensors",
    "repeat": "an expression once more, as it was or with another operation",
    "identity": "x + 0, x * 1, x - 0",
    "index": "linalg.index in a body",
    "integers": "i32 tensors, comparisons, conversions",
    "loops": "scf.for that carries a tensor",
    "branches": "scf.if that chooses a tensor",
    "dead": "values that nothing uses",
    "outputs": "several results, one perhaps twice",
    "calls": "func.call of private functions",
    "buffers": "memrefs in place of tensors; results are returned, or written into the last arguments",
    "affine": "buffers, with affine loops in place of linalg",
}
#: The features that are on where none are named: programs on tensors, in one function.
TENSORS = tuple(name for name in FEATURES if name not in ("calls", "buffers", "affine"))

_OUT = "buffer-results-to-out-params{modify-public-functions=true}"

_TABLE: list[tuple[str, float, Callable]] = []
_TOO_FAR = 50.0  # a value with a larger bound is squashed
_LARGEST = 400  # elements of a value that others may use
_SIZES = (3, 4, 5, 7)

#: Scalar operation on floats → (operands, the bound of its result).
_FLOATS = {
    "arith.addf": (2, lambda a, b: a + b),
    "arith.subf": (2, lambda a, b: a + b),
    "arith.mulf": (2, lambda a, b: a * b),
    "arith.maximumf": (2, max),
    "arith.minimumf": (2, max),
    "arith.negf": (1, lambda a: a),
    "math.absf": (1, lambda a: a),
    "math.tanh": (1, lambda a: 1.0),
    "math.floor": (1, lambda a: a + 1),
}


@dataclass(eq=False)
class Value:
    """A tensor: its name, sizes, element type, a bound on its elements, and how many use it."""

    name: str
    shape: tuple[int, ...]
    of: str = "f32"
    bound: float = 4.0
    uses: int = 0

    @property
    def type(self) -> str:
        return f"tensor<{'x'.join(map(str, (*self.shape, self.of)))}>"


def random_module(seed: int, size: int = 8, features: Sequence[str] | None = None) -> ModuleOp:
    """Return a random module with a function `main` of about `size` operations; the same for the same arguments.

    features: names from `FEATURES`, default `TENSORS`. Raises ValueError for an unknown one, and MLIRError for buffers
    where MLIR's own passes are missing.
    """
    return parse(random_text(seed, size, features), f"random module {seed}")


def random_text(seed: int, size: int = 8, features: Sequence[str] | None = None) -> str:
    """Return the text of `random_module`."""
    writer = _Writer(seed, features)
    tensors = writer.grow(size)
    return text(_buffers(writer, tensors)) if writer.on & {"buffers", "affine"} else tensors


def _buffers(w: _Writer, tensors: str) -> ModuleOp:
    """Return a module on buffers that does the same as one on tensors."""
    from passlab.mlir.lowering import BUFFERIZE

    loops = BUFFERIZE.replace("}", " allow-return-allocs-from-loops=1}")
    steps = ["convert-elementwise-to-linalg", "linalg-generalize-named-ops", loops]
    if w.rng.random() < 0.5:
        steps.append(_OUT)
    if "affine" in w.on:
        steps.append("convert-linalg-to-affine-loops")
    return pipeline(parse(tensors), ", ".join([*steps, "canonicalize"]))


class _Writer:
    """A module under construction, as lines of text."""

    def __init__(self, seed: int, features: Sequence[str] | None):
        if unknown := [name for name in features or () if name not in FEATURES]:
            raise ValueError(f"No feature {unknown[0]!r}. The features are {', '.join(FEATURES)}.")
        self.on = set(TENSORS if features is None else features)
        self.rng, self.numbers = random.Random(seed), itertools.count()
        self.lines: list[str] = []
        self.functions: list[tuple[tuple[int, ...], str]] = []  # the shape of its arguments, its text
        self.values: list[Value] = []
        self.depth, self.made = 1, 0

    def grow(self, size: int) -> str:
        rows = [(weight, make) for feature, weight, make in _TABLE if feature in self.on]
        if not rows:
            raise ValueError("A random module needs a feature that makes operations, such as pointwise.")
        two = self.rng.sample(_SIZES, 2)
        arguments = [
            Value("%x", tuple(two)),
            Value("%y", tuple(two)),
            Value("%row", (two[1],)),
            Value("%z", (two[1], two[0])),
        ]
        if "integers" in self.on:
            arguments.append(Value("%n", tuple(two), "i32"))
        if "branches" in self.on:
            arguments.append(Value("%flag", (), "i1"))
        self.values = [value for value in arguments if value.shape]
        tries = 0
        while self.made < size and tries < 40 * size:
            tries += 1
            self.rng.choices([make for _, make in rows], [weight for weight, _ in rows])[0](self)
        results = self._results(len(arguments))
        takes = ", ".join(f"{value.name}: {'i1' if value.of == 'i1' else value.type}" for value in arguments)
        types = ", ".join(value.type for value in results)
        names = ", ".join(value.name for value in results)
        head = f"func.func @main({takes}) -> ({types}) {{"
        functions = [text for _, text in self.functions]
        return "\n".join([head, *self.lines, f"  return {names} : {types}", "}", *functions, ""])

    def _results(self, count: int) -> list[Value]:
        results = self.values[count - ("branches" in self.on) :] or [self.pointwise_on(self.values[:1])]
        ends = [value for value in results if not value.uses] or results[-1:]
        if "outputs" not in self.on:
            return ends[-1:]
        chosen = [value for value in ends if "dead" not in self.on or self.rng.random() < 0.8][-3:] or ends[-1:]
        return [*chosen, self.rng.choice(chosen)] if self.rng.random() < 0.15 else chosen

    # -- writing

    def say(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def name(self) -> str:
        return f"%v{next(self.numbers)}"

    def value(self, shape: Sequence[int], of: str = "f32", bound: float = 4.0, keep: bool = True) -> Value:
        value = Value(self.name(), tuple(shape), of, bound)
        if keep and math.prod(shape) <= _LARGEST:
            self.values.append(value)
        return value

    def pick(self, of: str = "f32", rank: int | None = None, shape: tuple | None = None) -> Value | None:
        """Return a value of that kind, mostly a late, unused one."""
        fit = [
            it
            for it in self.values
            if it.of == of and (rank is None or len(it.shape) == rank) and shape in (None, it.shape)
        ]
        fresh = [it for it in fit if not it.uses]
        pool = fresh if fresh and self.rng.random() < 0.7 else fit
        return self.rng.choice(pool[-6:]) if pool else None

    def number(self, value: float | None = None) -> str:
        number = self.rng.choice((0.5, -1.5, 2.0, 0.25, 3.0)) if value is None else value
        name = self.name()
        self.say(f"{name} = arith.constant {number:e} : f32")
        return name

    def empty(self, shape: Sequence[int], of: str = "f32") -> str:
        name = self.name()
        self.say(f"{name} = tensor.empty() : {Value('', tuple(shape), of).type}")
        return name

    def filled(self, shape: Sequence[int], value: float = 0.0) -> str:
        number, empty, name = self.number(value), self.empty(shape), self.name()
        type = Value("", tuple(shape)).type
        self.say(f"{name} = linalg.fill ins({number} : f32) outs({empty} : {type}) -> {type}")
        return name

    def generic(
        self,
        reads: Sequence[tuple[Value, Sequence[int]]],
        out: tuple[str, Value, Sequence[int]],
        loops: int,
        body: Callable[[list[str], str], str],
        reduced: Sequence[int] = (),
    ) -> Value:
        """Write a linalg.generic. reads: (value, the loop of each of its dimensions); out: (destination, result,
        loops); body: (names of the elements read, of the destination's) → the name that it yields."""
        dims = ", ".join(f"d{i}" for i in range(loops))
        maps = [f"affine_map<({dims}) -> ({', '.join(f'd{i}' for i in at)})>" for _, at in reads]
        place, result, at = out
        maps.append(f"affine_map<({dims}) -> ({', '.join(f'd{i}' for i in at)})>")
        kinds = ", ".join('"reduction"' if i in reduced else '"parallel"' for i in range(loops))
        names, types = ", ".join(v.name for v, _ in reads), ", ".join(v.type for v, _ in reads)
        self.say(f"{result.name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}}")
        self.say(f"    ins({names} : {types}) outs({place} : {result.type}) {{")
        elements = [self.name() for _ in reads]
        last = self.name()
        arguments = [f"{name}: {v.of}" for name, (v, _) in zip(elements, reads, strict=True)]
        self.say(f"^bb0({', '.join([*arguments, f'{last}: {result.of}'])}):")
        self.depth += 1
        self.say(f"linalg.yield {body(elements, last)} : {result.of}")
        self.depth -= 1
        self.say(f"}} -> {result.type}")
        for value, _ in reads:
            value.uses += 1
        self.made += 1
        return result

    def single(self, op: str, types: str = "f32") -> Callable[[list[str], str], str]:
        """Return a body of one operation on the elements read."""

        def body(elements: list[str], last: str) -> str:
            name = self.name()
            self.say(f"{name} = {op} {', '.join(elements)} : {types}")
            return name

        return body

    def over(
        self, reads: list[Value], body: Callable[[list[str], str], str], of: str = "f32", bound: float = 4.0
    ) -> Value:
        """Write a linalg.generic over values of one shape, all read in the order of the loops."""
        shape, loops = reads[0].shape, list(range(len(reads[0].shape)))
        place, result = self.empty(shape, of), self.value(shape, of, bound)
        return self.generic([(value, loops) for value in reads], (place, result, loops), len(loops), body)

    def scalar(self, names: list[str], bounds: list[float]) -> tuple[str, float]:
        """Write one to three operations on floats that use all names; return the last value and its bound."""
        pool = list(zip(names, bounds, strict=True))
        count = self.rng.choice((1, 1, 2, 3))
        while len(pool) > 1 or count > 0:
            op = self.rng.choice([op for op, (n, _) in _FLOATS.items() if n == 2 or count > 0])
            takes, bound = _FLOATS[op]
            if takes == 2 and len(pool) == 1:
                pool.append(pool[0] if self.rng.random() < 0.5 else (self.number(), 3.0))
            operands = [pool.pop(0) for _ in range(takes)]
            if self.rng.random() < 0.3:
                operands.reverse()
            result, limit = self.name(), bound(*(b for _, b in operands))
            self.say(f"{result} = {op} {', '.join(n for n, _ in operands)} : f32")
            if limit > _TOO_FAR:
                squashed, limit = self.name(), 1.0
                self.say(f"{squashed} = math.tanh {result} : f32")
                result = squashed
            pool.append((result, limit))
            count -= 1
        return pool[0]

    def pointwise_on(
        self, reads: list[Value], ways: list[Sequence[int]] | None = None, result: Sequence[int] = ()
    ) -> Value:
        """Write an element-wise linalg.generic over the loops of the first value."""
        shape = reads[0].shape
        loops = range(len(shape))
        at = list(result) or list(loops)
        place = self.empty([shape[i] for i in at])
        value = self.value([shape[i] for i in at])
        ways = ways or [list(loops)] * len(reads)

        def body(elements: list[str], last: str) -> str:
            name, value.bound = self.scalar(elements, [it.bound for it in reads])
            return name

        return self.generic(list(zip(reads, ways, strict=True)), (place, value, at), len(shape), body)


def _adds(feature: str, weight: float = 1.0) -> Callable[[Callable], Callable]:
    """Enter a function that adds operations to a module in the table."""

    def enter(make: Callable) -> Callable:
        _TABLE.append((feature, weight, make))
        return make

    return enter


@_adds("pointwise", 3)
def _pointwise(w: _Writer) -> None:
    x = w.pick()
    others = [w.pick(shape=x.shape) for _ in range(w.rng.choice((0, 1, 1, 2)))]
    w.pointwise_on([x, *others])


@_adds("broadcast", 1.5)
def _broadcast(w: _Writer) -> None:
    x, low = w.pick(rank=2), w.pick(rank=1)
    fits = [i for i in range(2) if x and low and x.shape[i] == low.shape[0]]
    if not fits:
        return
    axes = [w.rng.choice(fits)]
    if w.rng.random() < 0.6:
        w.pointwise_on([x, low], [[0, 1], axes])
        return
    result, place = w.value(x.shape, bound=low.bound), w.empty(x.shape)
    dims = [i for i in range(2) if i not in axes]
    w.say(
        f"{result.name} = linalg.broadcast ins({low.name}:{low.type}) outs({place}:{result.type}) dimensions = {dims}"
    )
    low.uses += 1
    w.made += 1


@_adds("transpose", 1.5)
def _transpose(w: _Writer) -> None:
    x = w.pick(rank=2)
    partner = w.pick(shape=x.shape[::-1]) if x else None
    if x is None:
        return
    if partner is not None and w.rng.random() < 0.5:
        w.pointwise_on([x, partner], [[0, 1], [1, 0]])
    elif w.rng.random() < 0.5:
        w.pointwise_on([x], result=[1, 0])
    else:
        place = w.empty(x.shape[::-1])
        result = w.value(x.shape[::-1], bound=x.bound)
        types = f"ins({x.name}:{x.type}) outs({place}:{result.type})"
        w.say(f"{result.name} = linalg.transpose {types} permutation = [1, 0]")
        x.uses += 1
        w.made += 1


@_adds("reduce", 1.5)
def _reduce(w: _Writer) -> None:
    x = w.pick(rank=2)
    if x is None:
        return
    axis = w.rng.choice((0, 1))
    place = w.filled([x.shape[1 - axis]])
    op, limit = w.rng.choice((("arith.addf", x.bound * x.shape[axis]), ("arith.maximumf", x.bound)))
    result = w.value([x.shape[1 - axis]], bound=limit)

    def body(elements: list[str], last: str) -> str:
        return w.single(op)([elements[0], last], last)

    w.generic([(x, [0, 1])], (place, result, [1 - axis]), 2, body, [axis])
    if limit > _TOO_FAR:
        w.values.remove(result)
        w.pointwise_on([result])


@_adds("matmul")
def _matmul(w: _Writer) -> None:
    a = w.pick(rank=2)
    matrices = [value for value in reversed(w.values) if value.of == "f32" and len(value.shape) == 2]
    b = next((value for value in matrices if a and value.shape[0] == a.shape[1]), None)
    if b is None or a.bound * b.bound * a.shape[1] > _TOO_FAR**2:
        return
    shape = (a.shape[0], b.shape[1])
    place = w.filled(shape)
    result = w.value(shape, bound=a.bound * b.bound * a.shape[1])
    reads = f"ins({a.name}, {b.name} : {a.type}, {b.type})"
    w.say(f"{result.name} = linalg.matmul {reads} outs({place} : {result.type}) -> {result.type}")
    a.uses += 1
    b.uses += 1
    w.made += 1


@_adds("tensors", 0.7)
def _tensors(w: _Writer) -> None:
    x = w.pick()
    op = w.rng.choice(("arith.addf", "arith.mulf", "arith.maximumf", "math.tanh"))
    takes, bound = _FLOATS[op]
    reads = [x, w.pick(shape=x.shape)][:takes]
    limit = bound(*(value.bound for value in reads))
    if limit > _TOO_FAR:
        return
    result = w.value(x.shape, bound=limit)
    w.say(f"{result.name} = {op} {', '.join(value.name for value in reads)} : {result.type}")
    for value in reads:
        value.uses += 1
    w.made += 1


@_adds("repeat")
def _repeat(w: _Writer) -> None:
    x = w.pick()
    y = w.pick(shape=x.shape)
    ops = w.rng.choice((("arith.addf", "arith.addf"), ("arith.mulf", "arith.mulf"), ("arith.addf", "arith.subf")))
    for op in ops:
        w.over([x, y], w.single(op), bound=_FLOATS[op][1](x.bound, y.bound))


@_adds("identity", 0.7)
def _identity(w: _Writer) -> None:
    x = w.pick()
    op, by = w.rng.choice((("arith.addf", 0.0), ("arith.mulf", 1.0), ("arith.subf", 0.0)))

    def body(elements: list[str], last: str) -> str:
        number, name = w.number(by), w.name()
        w.say(f"{name} = {op} {elements[0]}, {number} : f32")
        return name

    w.over([x], body, bound=x.bound)


@_adds("index", 0.7)
def _index(w: _Writer) -> None:
    x = w.pick()

    def body(elements: list[str], last: str) -> str:
        at, integer, real, name = (w.name() for _ in range(4))
        w.say(f"{at} = linalg.index {w.rng.choice(range(len(x.shape)))} : index")
        w.say(f"{integer} = arith.index_cast {at} : index to i32")
        w.say(f"{real} = arith.sitofp {integer} : i32 to f32")
        w.say(f"{name} = arith.addf {elements[0]}, {real} : f32")
        return name

    w.over([x], body, bound=x.bound + 8)


@_adds("integers", 0.8)
def _integers(w: _Writer) -> None:
    n = w.pick("i32")
    if n is None:
        return
    result = w.rng.choice(("same", "float", "choose"))
    x = w.pick(shape=n.shape)
    if result == "same":
        operands = [n, w.pick("i32", shape=n.shape)]
        op = w.rng.choice(("andi", "ori", "maxsi", "xori"))
        w.over(operands, w.single(f"arith.{op}", "i32"), "i32", n.bound)
    elif result == "float" or x is None:
        w.over([n], w.single("arith.sitofp", "i32 to f32"), bound=8.0)
    else:

        def body(elements: list[str], last: str) -> str:
            two, test, zero, name = w.name(), w.name(), w.number(0.0), w.name()
            w.say(f"{two} = arith.constant 2 : i32")
            w.say(f"{test} = arith.cmpi slt, {elements[0]}, {two} : i32")
            w.say(f"{name} = arith.select {test}, {elements[1]}, {zero} : f32")
            return name

        w.over([n, x], body, bound=x.bound)


@_adds("loops", 0.6)
def _loops(w: _Writer) -> None:
    x = w.pick()
    if w.depth > 1:
        return
    zero, step, top = (w.name() for _ in range(3))
    for name, number in ((zero, 0), (step, 1), (top, w.rng.choice((1, 2, 3)))):
        w.say(f"{name} = arith.constant {number} : index")
    start = w.pick(shape=x.shape)
    result, at, carried = w.value(x.shape, bound=1.0, keep=False), w.name(), w.name()
    bounds = f"{at} = {zero} to {top} step {step}"
    w.say(f"{result.name} = scf.for {bounds} iter_args({carried} = {start.name}) -> ({result.type}) {{")
    start.uses += 1
    carried_value = Value(carried, x.shape, bound=max(start.bound, 1.0))
    _block(w, [carried_value, x], result)
    w.say("}")
    w.values.append(result)


@_adds("branches", 0.6)
def _branches(w: _Writer) -> None:
    x = w.pick()
    if w.depth > 1:
        return
    y = w.pick(shape=x.shape)
    result = w.value(x.shape, bound=1.0, keep=False)
    w.say(f"{result.name} = scf.if %flag -> ({result.type}) {{")
    _block(w, [x, y], result)
    w.say("} else {")
    _block(w, [y], result)
    w.say("}")
    w.values.append(result)


@_adds("calls")
def _calls(w: _Writer) -> None:
    x = w.pick()
    y = w.pick(shape=x.shape)
    fitting = [number for number, (shape, _) in enumerate(w.functions) if shape == x.shape]
    if not fitting or w.rng.random() < 0.5:
        fitting = [len(w.functions)]
        w.functions.append((x.shape, _function(w, f"@part{fitting[0]}", x.shape)))
    result = w.value(x.shape, bound=1.0)
    types = f"({x.type}, {y.type}) -> {result.type}"
    w.say(f"{result.name} = func.call @part{w.rng.choice(fitting)}({x.name}, {y.name}) : {types}")
    x.uses += 1
    y.uses += 1
    w.made += 1


def _function(w: _Writer, name: str, shape: tuple[int, ...]) -> str:
    """Return the text of a private function of two tensors."""
    lines, w.lines, w.depth = w.lines, [], 0
    reads, result = [Value(w.name(), shape), Value(w.name(), shape)], Value("", shape)
    takes = ", ".join(f"{value.name}: {value.type}" for value in reads)
    w.say(f"func.func private {name}({takes}) -> {result.type} {{")
    _block(w, reads, result, end="func.return")
    w.say("}")
    source, w.lines, w.depth = "\n".join(w.lines), lines, 1
    return source


def _block(w: _Writer, reads: list[Value], result: Value, end: str = "scf.yield") -> None:
    """Write a region that ends with an element-wise operation on some values, squashed."""
    values = list(w.values)
    w.depth += 1
    last = w.over([w.pointwise_on(reads)], w.single("math.tanh"), bound=1.0)
    w.say(f"{end} {last.name} : {result.type}")
    w.depth -= 1
    w.values = values
