"""Day 9, linalg to loops: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from passlab.equivalence.seeds import own_seed
from passlab.judge import Case, Finding, enough, plural
from passlab.mlir import MLIRError, name_of, parse, verify
from passlab.mlir.run import run

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

#: Loops, accesses and buffers other than those of the text.
SUBSTITUTES = (
    *("scf.parallel", "scf.forall", "scf.while", "affine.for", "affine.parallel"),
    *("affine.load", "affine.store", "memref.copy", "memref.alloca"),
)
#: The body of a product that is added up.
PRODUCT = "%p = arith.mulf %l, %r : f32\n%s = arith.addf %o, %p : f32\nlinalg.yield %s : f32"


def memref(*shape: int | str, dtype: str = "f32") -> str:
    """Return the type of a buffer; a size may be "?"."""
    return f"memref<{''.join(f'{side}x' for side in shape)}{dtype}>"


def generic(
    dims: int,
    reductions: Sequence[int],
    ins: Sequence[tuple[str, str, str]],
    outs: Sequence[tuple[str, str, str]],
    body: str,
    arguments: str,
) -> str:
    """Return the text of a linalg.generic. `ins`, `outs`: (value, type, results of its map)."""
    domain = ", ".join(f"d{dim}" for dim in range(dims))
    maps = ", ".join(f"affine_map<({domain}) -> ({results})>" for _, _, results in (*ins, *outs))
    kinds = ", ".join('"reduction"' if dim in reductions else '"parallel"' for dim in range(dims))

    def operands(word: str, some: Sequence[tuple[str, str, str]]) -> str:
        names, types = ", ".join(name for name, _, _ in some), ", ".join(type_ for _, type_, _ in some)
        return f" {word}({names} : {types})" if some else ""

    head = f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
    return f"{head}{operands('ins', ins)}{operands('outs', outs)} {{\n^bb0({arguments}):\n{body}\n}}"


def loops_case(
    name: str,
    parameters: Sequence[str],
    body: str,
    shapes: Sequence[tuple],
    expected: Callable,
    *about: str,
    end: str = "",
) -> Case:
    """Return a case: @main takes buffers of these types and returns nothing.

    shapes: of the arguments; () is a buffer without dimensions, None a number. expected: the arguments as it must leave
    them, computed by NumPy.
    """
    names = "abcdefgh"
    signature = ", ".join(f"%{name}: {type_}" for name, type_ in zip(names, parameters, strict=False))
    text = f"func.func @main({signature}) {{\n{body}\nreturn\n}}{end}"

    def inputs() -> tuple:
        rng = np.random.default_rng(own_seed(9))
        drawn = (rng.uniform(-2, 2, () if shape is None else shape) for shape in shapes)
        return tuple(
            float(array) if shape is None else array.astype(_dtype(type_))
            for shape, type_, array in zip(shapes, parameters, drawn, strict=True)
        )

    return Case(name, lambda: (text,), about, inputs, expected)


def _dtype(type_: str) -> str:
    return "int64" if "i64" in type_ else "float64" if "f64" in type_ else "float32"


MATMUL = generic(
    3,
    [2],
    [("%a", memref(5, 7), "d0, d2"), ("%b", memref(7, 3), "d2, d1")],
    [("%c", memref(5, 3), "d0, d1")],
    PRODUCT,
    "%l: f32, %r: f32, %o: f32",
)
SUMS = generic(
    2,
    [0],
    [("%a", memref(4, 6), "d1, d0")],
    [("%b", memref(4), "d1")],
    "%s = arith.addf %l, %o : f32\nlinalg.yield %s : f32",
    "%l: f32, %o: f32",
)
SCALED = f"""%one = arith.constant 1.0 : f32
linalg.fill ins(%one : f32) outs(%c : {memref(3, 5)})
""" + generic(
    2,
    [],
    [("%a", memref(5), "d1"), ("%b", "f32", "")],
    [("%c", memref(3, 5), "d0, d1")],
    PRODUCT,
    "%l: f32, %r: f32, %o: f32",
)
CONV = generic(
    2,
    [1],
    [("%a", memref(11), "d0 * 2 + d1"), ("%b", memref(3), "d1")],
    [("%c", memref(5), "d0")],
    PRODUCT,
    "%l: f32, %r: f32, %o: f32",
)
POSITIONS = generic(
    2,
    [],
    [],
    [("%a", memref(4, 5, dtype="i64"), "d0, d1")],
    "%i = linalg.index 0 : index\n%j = linalg.index 1 : index\n%k = arith.subi %j, %i : index\n"
    "%n = arith.index_cast %k : index to i64\nlinalg.yield %n : i64",
    "%o: i64",
)


def in_a_loop(inner: str) -> str:
    return f"""%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%c3 = arith.constant 3 : index
scf.for %turn = %c0 to %c3 step %c1 {{
{inner}
}}"""


def cases() -> list[Case]:
    f5x7, f7x3, f5x3 = memref(5, 7), memref(7, 3), memref(5, 3)
    return [
        loops_case(
            "a product", [f5x7, f7x3, f5x3], MATMUL, [(5, 7), (7, 3), (5, 3)], lambda a, b, c: (a, b, c + a @ b)
        ),
        loops_case(
            "a fill, a row and a number",
            [memref(5), "f32", memref(3, 5)],
            SCALED,
            [(5,), None, (3, 5)],
            lambda a, b, c: (a, b, np.broadcast_to(1 + a * np.float32(b), (3, 5))),
        ),
        loops_case(
            "a convolution",
            [memref(11), memref(3), memref(5)],
            CONV,
            [(11,), (3,), (5,)],
            lambda a, b, c: (a, b, c + np.lib.stride_tricks.sliding_window_view(a, 3)[::2] @ b),
        ),
        loops_case(
            "positions",
            [memref(4, 5, dtype="i64")],
            POSITIONS,
            [(4, 5)],
            lambda a: (np.arange(5)[None, :] - np.arange(4)[:, None],),
        ),
        loops_case(
            "in a loop",
            [memref(4, 6), memref(4)],
            in_a_loop(SUMS),
            [(4, 6), (4,)],
            lambda a, b: (a, b + 3 * a.sum(1)),
        ),
    ]


def structured(module: ModuleOp) -> list[Any]:
    """Return the operations that must become loops."""
    from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation

    return [op for op in module.walk() if isinstance(op, LinalgStructuredOperation)]


def others(module: ModuleOp) -> list[Any]:
    """Return the operations that are not linalg's, those in a body included."""
    return [op for op in module.walk() if not name_of(op).startswith("linalg.")]


def with_attributes(op: Any) -> tuple[str, ...]:
    """Return the name of an operation and its attributes as text."""
    return (name_of(op), *sorted(f"{key} = {value}" for key, value in (*op.properties.items(), *op.attributes.items())))


def most(module: ModuleOp) -> dict[str, int]:
    """Return operation → how many of it loops may have that waste nothing."""
    counts = Counter(name_of(op) for op in others(module))
    allowed = {name: counts[name] for name in ("scf.for", "memref.load", "memref.store", "memref.alloc", *SUBSTITUTES)}
    for op in structured(module):
        arguments = zip(op.operands, op.body.block.args, strict=True)
        allowed["scf.for"] += op.get_num_loops()
        allowed["memref.load"] += sum(
            bool(argument.uses) and operand.type.name == "memref" for operand, argument in arguments
        )
        allowed["memref.store"] += len(op.outputs)
    return allowed


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge an answer.

    `valid`: a module. `did`: no linalg. `same`: NumPy's result. `spared`: the rest. `cost`: no load or loop too many.
    """
    from xdsl.dialects.builtin import ModuleOp

    (text,) = case.build()
    before = parse(text)
    reason = ""
    if not isinstance(value, ModuleOp):
        reason = f"Return the module; got {type(value).__name__}."
    else:
        try:
            verify(value)
        except MLIRError as error:
            reason = str(error)
    yield Finding("valid", not reason, reason, before=before)
    if reason:
        return
    modules = {"before": before, "after": value}
    unlowered = [op for op in value.walk() if name_of(op).startswith("linalg.")]
    message = f"{name_of(unlowered[0])} is left." if unlowered else ""
    yield Finding("did", not unlowered, message, **modules)
    yield _spared(before, value, modules)
    if unlowered:
        return
    yield _same(case, value, modules)
    counts = Counter(name_of(op) for op in value.walk())
    over = [
        f"The module has {plural(counts[name], name)}; {enough(allowed)}."
        for name, allowed in most(before).items()
        if counts[name] > allowed
    ]
    yield Finding("cost", not over, over[0] if over else "", **modules)


def _spared(before: ModuleOp, after: ModuleOp, modules: dict) -> Finding:
    """Judge whether all operations but linalg's are there, with their attributes."""
    names = Counter(name_of(op) for op in after.walk())
    problems = [
        f"{name} is gone." for name, count in Counter(map(name_of, others(before))).items() if names[name] < count
    ]
    counts = Counter(map(with_attributes, after.walk()))
    for (name, *attributes), count in Counter(map(with_attributes, others(before))).items():
        if not problems and name != "func.func" and counts[name, *attributes] < count:
            present = {attribute for key in counts if key[0] == name for attribute in key}
            changed = [attribute for attribute in attributes if attribute not in present] or attributes
            problems.append(f"{name} has changed; it had {', '.join(changed) or 'no attributes'}.")
    heads = [
        [(op.sym_name, op.function_type) for op in module.ops if name_of(op) == "func.func"]
        for module in (before, after)
    ]
    if heads[0] != heads[1]:
        problems.append("The functions do not have the names and types that they had.")
    return Finding("spared", not problems, problems[0] if problems else "", **modules)


def _same(case: Case, value: ModuleOp, modules: dict) -> Finding:
    arguments = case.inputs()
    expected = [
        buffer
        for buffer, argument in zip(case.expect(*arguments), arguments, strict=True)
        if not isinstance(argument, float)
    ]
    try:
        results = run(value, *arguments)
    except MLIRError as error:
        return Finding("same", False, f"It does not run: {error}", **modules)
    for number, (right, result) in enumerate(zip(expected, results, strict=True)):
        close = np.isclose(result, right, rtol=1e-4, atol=1e-4)
        if not close.all():
            at = tuple(map(int, np.argwhere(~close)[0]))
            place = f"element [{', '.join(map(str, at))}]" if at else "the element"
            message = f"Buffer {number}: {place} is {result[at]:.6g}, and must be {right[at]:.6g}."
            return Finding("same", False, message, **modules)
    return Finding("same", True)
