"""Day 9, from a linalg.generic to its loop nest: visible cases, and a judge that runs the loops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import linalg
from xdsl.dialects.builtin import ModuleOp, TensorType

from passlab.exercises.day09._generics import generic, numbers
from passlab.exercises.day09._numpy import bounds, dtype, evaluate
from passlab.judge import Case, Finding, plural, there_are
from passlab.mlir import parse
from passlab.mlir.nests import Access, Iteration, Nest, NestError, run
from passlab.mlir.nests import parse as read

Operation = linalg.ops.GenericOp


def nest_case(name: str, text: str, *about: str) -> Case:
    return Case(name, lambda: (parse(text, verified=False),), about and ("valid", *about))


def cases() -> list[Case]:
    mul = ["%v = arith.mulf %a, %b : f32"]
    mac = [*mul, "%s = arith.addf %y, %v : f32", "%s"]
    picked = [
        "%zero = arith.constant 0.0 : f32",
        "%c = arith.cmpf ogt, %a, %zero : f32",
        "%v = arith.select %c, %a, %zero : f32",
        "%v",
    ]
    return [
        nest_case(
            "a transposed sum", generic("pp", [("d0, d1", (3, 4)), ("d1, d0", (4, 3))], [("d0, d1", (3, 4))], SUM)
        ),
        nest_case("relu", generic("p", [("d0", (5,))], [("d0", (5,))], picked)),
        nest_case(
            "a matrix product",
            generic("ppr", [("d0, d2", (3, 4)), ("d2, d1", (4, 2))], [("d0, d1", (3, 2))], mac),
        ),
        nest_case("a convolution", generic("pr", [("d0 + d1", (7,)), ("d1", (3,))], [("d0", (5,))], mac)),
        nest_case("every second element", generic("p", [("d0 * 2", (9,))], [("d0", (5,))], ["%a"])),
        nest_case("each element twice", generic("p", [("d0 floordiv 2", (3,))], [("d0", (6,))], ["%a"])),
        nest_case("a sum of everything", generic("rr", [("d0, d1", (3, 2))], [("", ())], TOTAL)),
        nest_case("no loop at all", generic("", [("", ()), ("", ())], [("", ())], SUM)),
        nest_case(
            "a value that is used again",
            generic("p", [("d0", (4,))], [("d0", (4,))], ["%v = arith.mulf %a, %a : f32", *_doubled(6)]),
        ),
        nest_case("where it stands", generic("pp", [("d1", (4,))], [("d0, d1", (3, 4))], INDEXED)),
        nest_case("two results", generic("p", [("d0", (4,))], [("d0", (4,)), ("d0", (4,))], ["%y, %a"])),
    ]


SUM = ["%v = arith.addf %a, %b : f32", "%v"]
TOTAL = ["%v = arith.addf %a, %y : f32", "%v"]
INDEXED = [
    "%i = linalg.index 0 : index",
    "%n = arith.index_cast %i : index to i32",
    "%f = arith.sitofp %n : i32 to f32",
    "%v = arith.mulf %a, %f : f32",
    "%v",
]


def _doubled(times: int) -> list[str]:
    """Return lines of a body that adds %v to itself again and again."""
    names = ["%v", *(f"%v{i}" for i in range(times))]
    return [*(f"{new} = arith.addf {old}, {old} : f32" for old, new in itertools.pairwise(names)), names[-1]]


# ---------------------------------------------------------------------------------------------------- judge


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge the nest.

    `valid`: it is a loop nest. `did`: the loops are right. `same`: it leaves the right numbers. `spared`: what is
    parallel stays so, and nothing is read in vain. `cost`: no operation is done twice.
    """
    (module,) = case.build()
    (op,) = (op for op in module.walk() if isinstance(op, Operation))
    try:
        if not isinstance(value, str):
            kind = "None" if value is None else f"of type {type(value).__name__}"
            raise NestError(f"Return the loop nest as text; the result is {kind}.")
        nest = read(value)
        if not nest.statements:
            raise NestError("The nest has no statement.")
    except NestError as error:
        yield Finding("valid", False, str(error), before=module)
        return
    yield Finding("valid", True)
    sizes = [size for _, size in sorted(bounds(op).items())]
    wrong = _other_loops(nest, sizes)
    yield Finding("did", not wrong, wrong, before=module)
    if wrong:
        return
    wrong, in_vain = _other_numbers(module, op, nest)
    yield Finding("same", not wrong, wrong, before=module)
    if not wrong:
        in_vain = in_vain or _other_kinds(nest, op)
        yield Finding("spared", not in_vain, in_vain, before=module)
        yield _cost(op, nest, module)


def _other_loops(nest: Nest, sizes: Sequence[int]) -> str:
    if len(nest.loops) != len(sizes):
        maps = f"the maps have {plural(len(sizes), 'dimension')}, each a loop"
        return f"{there_are(len(nest.loops), 'loop')}; {maps}."
    for d, (loop, size) in enumerate(zip(nest.loops, sizes, strict=True)):
        if loop.size != size:
            return (
                f"Loop number {d}, over {loop.name}, runs {loop.size} times; d{d} takes {plural(size, 'value')}. Which "
                f"operand has a side that its map indexes with d{d} alone?"
            )
    return ""


def names_of(op: Operation) -> list[str]:
    """Return the names of the operands: in0, in1, …, out0, …"""
    return [f"in{i}" for i in range(len(op.inputs))] + [f"out{i}" for i in range(len(op.outputs))]


def _arrays(op: Operation) -> dict[str, np.ndarray]:
    """Return an array for each operand: equal ones, and not the same, where operands are the same value."""
    arrays, operands = {}, list(op.operands)
    for name, operand in zip(names_of(op), operands, strict=True):
        seed = operands.index(operand)
        shape = operand.type.get_shape() if isinstance(operand.type, TensorType) else ()
        arrays[name] = numbers(shape, seed).astype(dtype(operand.type))
    return arrays


def _other_numbers(module: ModuleOp, op: Operation, nest: Nest) -> tuple[str, str]:
    """Return where the nest goes wrong when it runs, or ""; and what it reads although the body does not, or ""."""
    arrays = _arrays(op)
    want = evaluate(module, *arrays.values())
    in_vain = strange = ""
    try:
        for iteration in run(nest, arrays):
            uses, idle, written = _accesses(op, iteration)
            if unused := [a for a in iteration.reads if a in idle and a not in uses]:
                in_vain = in_vain or f"At {iteration}, {unused[0]} is read, and the body makes no use of it."
            if strange:
                continue
            for kind, actual, right in (
                ("reads", set(iteration.reads) - idle, uses),
                ("writes", set(iteration.writes), written),
            ):
                if actual != right:
                    strange = (
                        f"At {iteration}, the nest {kind} {_accesses_text(actual)}, "
                        f"the operation {_accesses_text(right)}."
                    )
    except NestError as error:
        return str(error), ""
    for name, right in zip(names_of(op)[len(op.inputs) :], want, strict=True):
        off = ~np.isclose(arrays[name], right, rtol=1e-4, atol=1e-4, equal_nan=True)
        if off.any():
            at = tuple(map(int, np.argwhere(off)[0]))
            afterwards = f"Afterwards, {Access(name, at)} is {arrays[name][at]:.6g}; expected {right[at]:.6g}."
            return f"{strange or 'Each iteration reads and writes the right elements.'} {afterwards}", ""
    return "", in_vain


def _accesses_text(accesses: set[Access]) -> str:
    return ", ".join(sorted(map(str, accesses))) or "nothing"


def _accesses(op: Operation, iteration: Iteration) -> tuple[set[Access], set[Access], set[Access]]:
    """Return the accesses of one iteration: reads that the body uses, the other operands' elements, and writes."""
    point = [int(at) for at in iteration.point.values()]
    places = [
        Access(name, tuple(expr.eval(point, []) for expr in amap.data.results))
        for name, amap in zip(names_of(op), op.indexing_maps.data, strict=True)
    ]
    used = [bool(argument.uses) for argument in op.body.block.args]
    uses = {place for place, use in zip(places, used, strict=True) if use}
    return uses, {place for place in places if place not in uses}, set(places[len(op.inputs) :])


def _other_kinds(nest: Nest, op: Operation) -> str:
    for d, (loop, kind) in enumerate(zip(nest.loops, op.iterator_types.data, strict=True)):
        parallel = kind.data.value == "parallel"
        if loop.parallel != parallel:
            return (
                f"The iterator of d{d} is {kind.data.value!r}; the loop over {loop.name} should be a "
                f"{'prange' if parallel else 'range'}."
            )
    return ""


#: Operations of a body that the nest does not have.
_FREE = ("arith.constant", "linalg.index", "linalg.yield")


def _cost(op: Operation, nest: Nest, module: ModuleOp) -> Finding:
    most = sum(inner.name not in _FREE for inner in op.body.block.ops)
    number = nest.operations()
    repeated, times = nest.repeated()
    remedy = (
        f"`{repeated}` is computed {times} times: give its value a name."
        if repeated
        else "Leave out each operation that the body does not have, and name each value that is used twice."
    )
    message = f"An iteration of the nest does {plural(number, 'operation')}; the body has {most}. {remedy}"
    return Finding("cost", number <= most, message, before=module)
