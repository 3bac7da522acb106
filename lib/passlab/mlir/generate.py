"""Random MLIR modules that verify and run by construction.

    module = random_module(7)                            # the same in every process
    random_module(7, size=30, features=("pointwise", "reduce"))
    random_module(7, features=("pointwise", "reduce", "calls", "affine"))

Programs are linalg on tensors of small odd sizes, with what a careless pass gets wrong: values with several users,
broadcasts and transposes in the maps, permuted results, destinations that are read, reductions before and after
element-wise operations, equal expressions, loops and branches around tensors. On demand they call functions, or MLIR's
own passes write them on buffers, with or without affine loops. Values stay finite and of moderate size on moderate
inputs.
"""

from __future__ import annotations

import itertools
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
        self.values = [it for it in arguments if it.shape]
        tries = 0
        while self.made < size and tries < 40 * size:
            tries += 1
            self.rng.choices([make for _, make in rows], [weight for weight, _ in rows])[0](self)
        results = self._results(len(arguments))
        takes = ", ".join(f"{it.name}: {'i1' if it.of == 'i1' else it.type}" for it in arguments)
        types = ", ".join(it.type for it in results)
        names = ", ".join(it.name for it in results)
        head = f"func.func @main({takes}) -> ({types}) {{"
        return "\n".join([head, *self.lines, f"  return {names} : {types}", "}", *(it for _, it in self.functions), ""])

    def _results(self, many: int) -> list[Value]:
        made = self.values[many - ("branches" in self.on) :] or [self.pointwise_on(self.values[:1])]
        ends = [it for it in made if not it.uses] or made[-1:]
        if "outputs" not in self.on:
            return ends[-1:]
        kept = [it for it in ends if "dead" not in self.on or self.rng.random() < 0.8][-3:] or ends[-1:]
        return [*kept, self.rng.choice(kept)] if self.rng.random() < 0.15 else kept

    # -- writing

    def say(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def name(self) -> str:
        return f"%v{next(self.numbers)}"

    def value(self, shape: Sequence[int], of: str = "f32", bound: float = 4.0, keep: bool = True) -> Value:
        made = Value(self.name(), tuple(shape), of, bound)
        size = 1
        for dim in shape:
            size *= dim
        if keep and size <= _LARGEST:
            self.values.append(made)
        return made

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
        drawn = self.rng.choice((0.5, -1.5, 2.0, 0.25, 3.0)) if value is None else value
        name = self.name()
        self.say(f"{name} = arith.constant {drawn:e} : f32")
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
        given = ", ".join(f"d{i}" for i in range(loops))
        maps = [f"affine_map<({given}) -> ({', '.join(f'd{i}' for i in at)})>" for _, at in reads]
        place, made, at = out
        maps.append(f"affine_map<({given}) -> ({', '.join(f'd{i}' for i in at)})>")
        kinds = ", ".join('"reduction"' if i in reduced else '"parallel"' for i in range(loops))
        names, types = ", ".join(v.name for v, _ in reads), ", ".join(v.type for v, _ in reads)
        self.say(f"{made.name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}}")
        self.say(f"    ins({names} : {types}) outs({place} : {made.type}) {{")
        elements = [self.name() for _ in reads]
        last = self.name()
        arguments = [f"{name}: {v.of}" for name, (v, _) in zip(elements, reads, strict=True)]
        self.say(f"^bb0({', '.join([*arguments, f'{last}: {made.of}'])}):")
        self.depth += 1
        self.say(f"linalg.yield {body(elements, last)} : {made.of}")
        self.depth -= 1
        self.say(f"}} -> {made.type}")
        for it, _ in reads:
            it.uses += 1
        self.made += 1
        return made

    def scalar(self, names: list[str], bounds: list[float]) -> tuple[str, float]:
        """Write one to three operations on floats that use all names; return the last value and its bound."""
        pool = list(zip(names, bounds, strict=True))
        many = self.rng.choice((1, 1, 2, 3))
        while len(pool) > 1 or many > 0:
            op = self.rng.choice([op for op, (n, _) in _FLOATS.items() if n == 2 or many > 0])
            takes, bound = _FLOATS[op]
            if takes == 2 and len(pool) == 1:
                pool.append(pool[0] if self.rng.random() < 0.5 else (self.number(), 3.0))
            used = [pool.pop(0) for _ in range(takes)]
            if self.rng.random() < 0.3:
                used.reverse()
            made, far = self.name(), bound(*(b for _, b in used))
            self.say(f"{made} = {op} {', '.join(n for n, _ in used)} : f32")
            if far > _TOO_FAR:
                squashed, far = self.name(), 1.0
                self.say(f"{squashed} = math.tanh {made} : f32")
                made = squashed
            pool.append((made, far))
            many -= 1
        return pool[0]

    def pointwise_on(
        self, reads: list[Value], ways: list[Sequence[int]] | None = None, result: Sequence[int] = ()
    ) -> Value:
        """Write an element-wise linalg.generic over the loops of the first value."""
        shape = reads[0].shape
        loops = range(len(shape))
        at = list(result) or list(loops)
        place = self.empty([shape[i] for i in at])
        made = self.value([shape[i] for i in at])
        ways = ways or [list(loops)] * len(reads)

        def body(elements: list[str], last: str) -> str:
            name, made.bound = self.scalar(elements, [it.bound for it in reads])
            return name

        return self.generic(list(zip(reads, ways, strict=True)), (place, made, at), len(shape), body)


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
    way = [w.rng.choice(fits)]
    if w.rng.random() < 0.6:
        w.pointwise_on([x, low], [[0, 1], way])
        return
    made, place = w.value(x.shape, bound=low.bound), w.empty(x.shape)
    dims = [i for i in range(2) if i not in way]
    w.say(f"{made.name} = linalg.broadcast ins({low.name}:{low.type}) outs({place}:{made.type}) dimensions = {dims}")
    low.uses += 1
    w.made += 1


@_adds("transpose", 1.5)
def _transpose(w: _Writer) -> None:
    x = w.pick(rank=2)
    other = w.pick(shape=x.shape[::-1]) if x else None
    if x is None:
        return
    if other is not None and w.rng.random() < 0.5:
        w.pointwise_on([x, other], [[0, 1], [1, 0]])
    elif w.rng.random() < 0.5:
        w.pointwise_on([x], result=[1, 0])
    else:
        place = w.empty(x.shape[::-1])
        made = w.value(x.shape[::-1], bound=x.bound)
        types = f"ins({x.name}:{x.type}) outs({place}:{made.type})"
        w.say(f"{made.name} = linalg.transpose {types} permutation = [1, 0]")
        x.uses += 1
        w.made += 1


@_adds("reduce", 1.5)
def _reduce(w: _Writer) -> None:
    x = w.pick(rank=2)
    if x is None:
        return
    gone = w.rng.choice((0, 1))
    place = w.filled([x.shape[1 - gone]])
    op, far = w.rng.choice((("arith.addf", x.bound * x.shape[gone]), ("arith.maximumf", x.bound)))
    made = w.value([x.shape[1 - gone]], bound=far)

    def body(elements: list[str], last: str) -> str:
        name = w.name()
        w.say(f"{name} = {op} {elements[0]}, {last} : f32")
        return name

    w.generic([(x, [0, 1])], (place, made, [1 - gone]), 2, body, [gone])
    if far > _TOO_FAR:
        w.values.remove(made)
        w.pointwise_on([made])


@_adds("matmul")
def _matmul(w: _Writer) -> None:
    a = w.pick(rank=2)
    b = next(
        (it for it in reversed(w.values) if a and it.of == "f32" and len(it.shape) == 2 and it.shape[0] == a.shape[1]),
        None,
    )
    if b is None or a.bound * b.bound * a.shape[1] > _TOO_FAR**2:
        return
    shape = (a.shape[0], b.shape[1])
    place = w.filled(shape)
    made = w.value(shape, bound=a.bound * b.bound * a.shape[1])
    reads = f"ins({a.name}, {b.name} : {a.type}, {b.type})"
    w.say(f"{made.name} = linalg.matmul {reads} outs({place} : {made.type}) -> {made.type}")
    a.uses += 1
    b.uses += 1
    w.made += 1


@_adds("tensors", 0.7)
def _tensors(w: _Writer) -> None:
    x = w.pick()
    op = w.rng.choice(("arith.addf", "arith.mulf", "arith.maximumf", "math.tanh"))
    takes, bound = _FLOATS[op]
    reads = [x, w.pick(shape=x.shape)][:takes]
    far = bound(*(it.bound for it in reads))
    if far > _TOO_FAR:
        return
    made = w.value(x.shape, bound=far)
    w.say(f"{made.name} = {op} {', '.join(it.name for it in reads)} : {made.type}")
    for it in reads:
        it.uses += 1
    w.made += 1


@_adds("repeat")
def _repeat(w: _Writer) -> None:
    x = w.pick()
    y = w.pick(shape=x.shape)
    ops = w.rng.choice((("arith.addf", "arith.addf"), ("arith.mulf", "arith.mulf"), ("arith.addf", "arith.subf")))
    for op in ops:
        place = w.empty(x.shape)
        made = w.value(x.shape, bound=_FLOATS[op][1](x.bound, y.bound))
        loops = list(range(len(x.shape)))

        def body(elements: list[str], last: str, op: str = op) -> str:
            name = w.name()
            w.say(f"{name} = {op} {', '.join(elements)} : f32")
            return name

        w.generic([(x, loops), (y, loops)], (place, made, loops), len(loops), body)


@_adds("identity", 0.7)
def _identity(w: _Writer) -> None:
    x = w.pick()
    op, by = w.rng.choice((("arith.addf", 0.0), ("arith.mulf", 1.0), ("arith.subf", 0.0)))
    place, made = w.empty(x.shape), w.value(x.shape, bound=x.bound)
    loops = list(range(len(x.shape)))

    def body(elements: list[str], last: str) -> str:
        one, name = w.number(by), w.name()
        w.say(f"{name} = {op} {elements[0]}, {one} : f32")
        return name

    w.generic([(x, loops)], (place, made, loops), len(loops), body)


@_adds("index", 0.7)
def _index(w: _Writer) -> None:
    x = w.pick()
    place, made = w.empty(x.shape), w.value(x.shape, bound=x.bound + 8)
    loops = list(range(len(x.shape)))

    def body(elements: list[str], last: str) -> str:
        at, whole, real, name = (w.name() for _ in range(4))
        w.say(f"{at} = linalg.index {w.rng.choice(loops)} : index")
        w.say(f"{whole} = arith.index_cast {at} : index to i32")
        w.say(f"{real} = arith.sitofp {whole} : i32 to f32")
        w.say(f"{name} = arith.addf {elements[0]}, {real} : f32")
        return name

    w.generic([(x, loops)], (place, made, loops), len(loops), body)


@_adds("integers", 0.8)
def _integers(w: _Writer) -> None:
    n = w.pick("i32")
    if n is None:
        return
    loops = list(range(len(n.shape)))
    how = w.rng.choice(("same", "float", "choose"))
    x = w.pick(shape=n.shape)
    if how == "same":
        other = w.pick("i32", shape=n.shape)
        place, made = w.empty(n.shape, "i32"), w.value(n.shape, "i32", n.bound)

        def body(elements: list[str], last: str) -> str:
            name = w.name()
            w.say(f"{name} = arith.{w.rng.choice(('andi', 'ori', 'maxsi', 'xori'))} {elements[0]}, {elements[1]} : i32")
            return name

        w.generic([(n, loops), (other, loops)], (place, made, loops), len(loops), body)
    elif how == "float" or x is None:
        place, made = w.empty(n.shape), w.value(n.shape, bound=8.0)

        def body(elements: list[str], last: str) -> str:
            name = w.name()
            w.say(f"{name} = arith.sitofp {elements[0]} : i32 to f32")
            return name

        w.generic([(n, loops)], (place, made, loops), len(loops), body)
    else:
        place, made = w.empty(n.shape), w.value(n.shape, bound=x.bound)

        def body(elements: list[str], last: str) -> str:
            two, test, zero, name = w.name(), w.name(), w.number(0.0), w.name()
            w.say(f"{two} = arith.constant 2 : i32")
            w.say(f"{test} = arith.cmpi slt, {elements[0]}, {two} : i32")
            w.say(f"{name} = arith.select {test}, {elements[1]}, {zero} : f32")
            return name

        w.generic([(n, loops), (x, loops)], (place, made, loops), len(loops), body)


@_adds("loops", 0.6)
def _loops(w: _Writer) -> None:
    x = w.pick()
    if w.depth > 1:
        return
    zero, one, top = (w.name() for _ in range(3))
    for name, number in ((zero, 0), (one, 1), (top, w.rng.choice((1, 2, 3)))):
        w.say(f"{name} = arith.constant {number} : index")
    start = w.pick(shape=x.shape)
    made, at, carried = w.value(x.shape, bound=1.0, keep=False), w.name(), w.name()
    bounds = f"{at} = {zero} to {top} step {one}"
    w.say(f"{made.name} = scf.for {bounds} iter_args({carried} = {start.name}) -> ({made.type}) {{")
    start.uses += 1
    inside = Value(carried, x.shape, bound=max(start.bound, 1.0))
    _block(w, [inside, x], made)
    w.say("}")
    w.values.append(made)


@_adds("branches", 0.6)
def _branches(w: _Writer) -> None:
    x = w.pick()
    if w.depth > 1:
        return
    y = w.pick(shape=x.shape)
    made = w.value(x.shape, bound=1.0, keep=False)
    w.say(f"{made.name} = scf.if %flag -> ({made.type}) {{")
    _block(w, [x, y], made)
    w.say("} else {")
    _block(w, [y], made)
    w.say("}")
    w.values.append(made)


@_adds("calls")
def _calls(w: _Writer) -> None:
    x = w.pick()
    y = w.pick(shape=x.shape)
    known = [number for number, (shape, _) in enumerate(w.functions) if shape == x.shape]
    if not known or w.rng.random() < 0.5:
        known = [len(w.functions)]
        w.functions.append((x.shape, _function(w, f"@part{known[0]}", x.shape)))
    made = w.value(x.shape, bound=1.0)
    types = f"({x.type}, {y.type}) -> {made.type}"
    w.say(f"{made.name} = func.call @part{w.rng.choice(known)}({x.name}, {y.name}) : {types}")
    x.uses += 1
    y.uses += 1
    w.made += 1


def _function(w: _Writer, name: str, shape: tuple[int, ...]) -> str:
    """Return the text of a private function of two tensors."""
    outside, w.lines, w.depth = w.lines, [], 0
    reads, result = [Value(w.name(), shape), Value(w.name(), shape)], Value("", shape)
    takes = ", ".join(f"{it.name}: {it.type}" for it in reads)
    w.say(f"func.func private {name}({takes}) -> {result.type} {{")
    _block(w, reads, result, end="func.return")
    w.say("}")
    written, w.lines, w.depth = "\n".join(w.lines), outside, 1
    return written


def _block(w: _Writer, reads: list[Value], made: Value, end: str = "scf.yield") -> None:
    """Write a region that ends with an element-wise operation on some values, squashed."""
    outside = list(w.values)
    w.depth += 1
    inner = w.pointwise_on(reads)
    place, last = w.empty(made.shape), w.value(made.shape, bound=1.0)
    loops = list(range(len(made.shape)))

    def body(elements: list[str], _: str) -> str:
        name = w.name()
        w.say(f"{name} = math.tanh {elements[0]} : f32")
        return name

    w.generic([(inner, loops)], (place, last, loops), len(loops), body)
    w.say(f"{end} {last.name} : {made.type}")
    w.depth -= 1
    w.values = outside
