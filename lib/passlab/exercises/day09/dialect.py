"""Day 9, a dialect of one's own: visible cases and judge."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from passlab.equivalence.seeds import own_seed
from passlab.judge import Case, Finding, shown
from passlab.mlir import MLIRError, name_of, pipeline, verify
from passlab.mlir.run import run

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

#: On buffers a program runs as C, which is compiled faster than tensors are. Named operations of linalg, and those of
#: arith on tensors, become generics first.
TO_BUFFERS = (
    "convert-elementwise-to-linalg, linalg-generalize-named-ops, "
    "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map}"
)
#: Characters of a sentence; a printed module is not a sentence.
SENTENCE = 400


def tensor(*shape: int, dtype: str = "f32") -> str:
    return f"tensor<{''.join(f'{side}x' for side in shape)}{dtype}>"


def op(result: str, name: str, operands: str, types: Sequence[str], kind: str, **properties: str) -> str:
    """Return an operation in generic syntax: op("y", "nn.sum", "%x", [...], "tensor<2xf32>", axis="1 : i64")."""
    inside = ", ".join(f"{key} = {value}" for key, value in properties.items())
    return f'%{result} = "{name}"({operands}) {f"<{{{inside}}}> " if inside else ""}: ({", ".join(types)}) -> {kind}'


def dense(result: str, x: str, w: str, b: str, rows: int, width: int, height: int) -> str:
    kinds = [tensor(rows, width), tensor(height, width), tensor(height)]
    return op(result, "nn.dense", f"%{x}, %{w}, %{b}", kinds, tensor(rows, height))


def leaky(result: str, x: str, slope: float, *shape: int) -> str:
    return op(result, "nn.leaky_relu", f"%{x}", [tensor(*shape)], tensor(*shape), slope=f"{slope!r} : f32")


def total(result: str, x: str, axis: int, *shape: int) -> str:
    sides = [side for dim, side in enumerate(shape) if dim != axis]
    return op(result, "nn.sum", f"%{x}", [tensor(*shape)], tensor(*sides), axis=f"{axis} : i64")


def program(*lines: str, arguments: Sequence[str], returned: str, result: str) -> str:
    signature = ", ".join(f"%{name}: {kind}" for name, kind in zip("xwbvc", arguments, strict=False))
    body = "\n".join(f"  {line}" for line in (*lines, f"return %{returned} : {result}"))
    return f"func.func @main({signature}) -> {result} {{\n{body}\n}}"


def refused(name: str, text: str, *words: str | int, fits: Sequence[int] = ()) -> Case:
    """Return a case that must be refused, with a sentence in which these words and numbers occur.

    fits: sizes of operands that keep all rules, which must not occur in it.
    """
    return Case(name, lambda: (text,), ("valid", "did"), None, (tuple(map(str, words)), tuple(map(str, fits))))


def lowered(name: str, text: str, inputs: Callable[[], tuple], expected: Callable) -> Case:
    """Return a case that must be lowered, and compute what NumPy does."""
    return Case(name, lambda: (text,), ("valid", "same", "spared"), inputs, expected)


def drawn(*shapes: Sequence[int], special: bool = False) -> Callable[[], tuple]:
    """Return a function that draws inputs; `special`: with NaN and infinities in the first."""

    def inputs() -> tuple:
        rng = np.random.default_rng(own_seed(4))
        arrays = [rng.uniform(-2, 2, shape).astype("float32") for shape in shapes]
        if special:
            arrays[0].reshape(-1)[:3] = np.nan, np.inf, -np.inf
        return tuple(arrays)

    return inputs


def leaky_relu(x: np.ndarray, slope: float) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where(x > 0, x, np.float32(slope) * x)


PERCEPTRON = program(
    dense("h", "x", "w", "b", 2, 3, 4),
    leaky("a", "h", 0.25, 2, 4),
    total("y", "a", 1, 2, 4),
    arguments=[tensor(2, 3), tensor(4, 3), tensor(4)],
    returned="y",
    result=tensor(2),
)
NARROW = program(
    op("y", "nn.dense", "%x, %w, %b", [tensor(2, 3), tensor(4, 5), tensor(4)], tensor(2, 4)),
    arguments=[tensor(2, 3), tensor(4, 5), tensor(4)],
    returned="y",
    result=tensor(2, 4),
)
STEEP = program(leaky("y", "x", 1.5, 6), arguments=[tensor(6)], returned="y", result=tensor(6))
BEYOND = program(
    op("y", "nn.sum", "%x", [tensor(2, 3)], tensor(2), axis="2 : i64"),
    arguments=[tensor(2, 3)],
    returned="y",
    result=tensor(2),
)
UNKNOWN = program(
    op("y", "nn.swish", "%x", [tensor(6)], tensor(6)), arguments=[tensor(6)], returned="y", result=tensor(6)
)


def cases() -> list[Case]:
    return [
        lowered(
            "a perceptron",
            PERCEPTRON,
            drawn((2, 3), (4, 3), (4,)),
            lambda x, w, b: leaky_relu(x @ w.T + b, 0.25).sum(1),
        ),
        refused("x is too narrow for w", NARROW, "nn.dense", 3, 5),
        refused("a slope above 1", STEEP, "nn.leaky_relu", 1.5),
        refused("an axis too many", BEYOND, "nn.sum", 2),
        refused("an operation that the dialect does not have", UNKNOWN, "nn.swish"),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge an answer.

    `valid`: a module that verifies, or a sentence. `did`: refused. `spared`: lowered. `same`: it computes the network.
    """
    from xdsl.dialects.builtin import ModuleOp

    reason = ""
    if not isinstance(value, ModuleOp | str):
        reason = f"Return the lowered module, or a sentence (str); got {shown(value)} of type {type(value).__name__}."
    elif isinstance(value, str) and "func.func" in value:
        reason = "Return the lowered module itself, not its text."
    elif isinstance(value, str) and not 0 < len(value.strip()) <= SENTENCE:
        reason = f"A sentence has 1 to {SENTENCE} characters; yours has {len(value.strip())}."
    elif isinstance(value, ModuleOp):
        rest = [name_of(one) for one in value.walk() if name_of(one).startswith("nn.")]
        reason = f"{rest[0]} is not lowered: what comes back must hold no operation of nn." if rest else _broken(value)
    yield Finding("valid", not reason, reason)
    if reason:
        return
    if case.asks("did"):
        yield _refusal(case, value)
    elif isinstance(value, str):
        yield Finding("spared", False, f"{case.name}: it keeps all rules, but you refuse it: {shown(value, 200)}.")
    else:
        yield Finding("spared", True)
        yield _same(case, value)


def _broken(module: ModuleOp) -> str:
    try:
        verify(module)
    except MLIRError as error:
        return str(error)
    return ""


def _refusal(case: Case, value: ModuleOp | str) -> Finding:
    if not isinstance(value, str):
        return Finding("did", False, f"{case.name}: this is not valid, but you lower it.")
    words, fits = case.expect
    message = ""
    if missing := [word for word in words if not _mentions(value, word)]:
        message = f"your sentence does not mention {' and '.join(missing)}"
    elif needless := [size for size in fits if _mentions(value, size)]:
        message = f"your sentence mentions {' and '.join(needless)}, where nothing is wrong"
    return Finding("did", not message, message and f"{case.name}: {message}: {shown(value, 200)}.")


def _mentions(sentence: str, word: str) -> bool:
    return bool(re.search(rf"(?<![\w.]){re.escape(word)}(?![\w]|\.\d)", sentence))


def _same(case: Case, value: ModuleOp) -> Finding:
    if broken := _reads_nothing(value) or _meets(value):
        return Finding("same", False, broken, after=value)
    arrays = case.inputs()
    right = np.asarray(case.expect(*arrays))
    try:
        (array,) = run(pipeline(value, TO_BUFFERS), *arrays, by="c")
    except MLIRError as error:
        return Finding("same", False, f"It does not run: {error}", after=value)
    if array.shape != right.shape:
        return Finding("same", False, f"The result has the shape {array.shape}, not {right.shape}.", after=value)
    close = np.isclose(array, right, rtol=1e-4, atol=1e-4, equal_nan=True)
    if close.all():
        return Finding("same", True)
    at = tuple(map(int, np.argwhere(~close)[0]))
    message = f"{case.name}: element {list(at)} of the result is {array[at]:.6g}, and must be {right[at]:.6g}."
    return Finding("same", False, message, after=value)


def _reads_nothing(module: ModuleOp) -> str:
    """Return a sentence about an operation that reads what tensor.empty made, or ""."""
    for one in module.walk():
        outputs = getattr(one, "outputs", ()) if name_of(one).startswith("linalg.") else ()
        for output, argument in zip(
            outputs, one.regions[0].block.args[-len(outputs) :] if outputs else (), strict=True
        ):
            if argument.uses and getattr(output.owner, "name", "") == "tensor.empty":
                return (
                    f"A {name_of(one)} reads the output that it starts with, and that comes from tensor.empty, which "
                    "holds nothing: fill it first."
                )
    return ""


def _meets(module: ModuleOp) -> str:
    """Return a sentence about a dimension called parallel although its turns meet in an element, or ""."""
    for one in module.walk():
        if name_of(one) == "linalg.generic":
            written = [attribute.data for attribute in one.indexing_maps.data[len(one.inputs) :]]
            for dim, kind in enumerate(one.iterator_types.data):
                if kind.data.value == "parallel" and any(dim not in map.used_dims() for map in written):
                    return f"A linalg.generic calls d{dim} parallel, and all turns along it write the same element."
    return ""
