"""Day 9: the judge of a pass over modules that NumPy can run, and expectations about its result."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation

from passlab.equivalence.seeds import own_seed
from passlab.exercises.day09._generics import numbers
from passlab.exercises.day09._numpy import Unknown, dtype, evaluate
from passlab.judge import Case, Finding
from passlab.judge.expect import Expectation
from passlab.mlir.rewriting import flags

Arrays = list[np.ndarray]


def main_of(module: ModuleOp) -> func.FuncOp | None:
    """Return the function main of a module, or None."""
    return next((op for op in module.ops if isinstance(op, func.FuncOp) and op.sym_name.data == "main"), None)


def valid(before: ModuleOp, value: Any) -> str:
    """Return why a value is not a module that could stand for another one, or ""."""
    if not isinstance(value, ModuleOp):
        kind = "None: does it end with `return module`?" if value is None else f"of type {type(value).__name__}."
        return f"Return the module; the result is {kind}"
    if wrong := unsound(value):
        return wrong
    main, expected = main_of(value), main_of(before)
    if main is None or main.function_type != expected.function_type:
        return f"The function main must keep its type, {expected.function_type}."
    return ""


def unsound(module: ModuleOp) -> str:
    """Return what is wrong with the module, by xDSL's verifier, or "".

    MLIR's own verifier is not asked: where answers are graded, that takes another process for each module.
    """
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except Exception as error:
            message = next(iter(str(error).strip().splitlines()), "it is not well-formed")
            return f"`{_line(op)}`: {message.rstrip('.')}."
    return ""


def _line(op: Operation) -> str:
    line = str(op).strip().splitlines()[0]
    return line if len(line) <= 60 else f"{line[:60]}…"


def promised(allowed: Collection[str], why: str) -> Expectation:
    """Expect that no operation of the result has a flag besides those that are allowed."""

    def expectation(before: ModuleOp, after: ModuleOp) -> str | None:
        for op in after.walk():
            if new := sorted(flags(op) - set(allowed)):
                return f"`{op!s}` has the flag {new[0]}. {why}"
        return None

    return expectation


def keeps(required: Collection[str], why: str) -> Expectation:
    """Expect that each operation of the result that may have flags has those that are required."""

    def expectation(before: ModuleOp, after: ModuleOp) -> str | None:
        for op in after.walk():
            if "fastmath" in op.properties and (lost := sorted(set(required) - flags(op))):
                return f"`{op!s}` lacks the flag {lost[0]}. {why}"
        return None

    return expectation


# ---------------------------------------------------------------------------------------------------- the same results

_ORDINARY = (1.5, -2.25, 3.0, 0.75, -7.0)
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan)


def inputs_for(module: ModuleOp) -> Arrays:
    """Return inputs for main: whole numbers for tensors; for scalars all combinations of special and ordinary numbers.

    What the flags of its operations exclude is left out: NaN and infinity for nnan and ninf, all special numbers where
    sums may be regrouped, and numbers that overflow where a flag says that nothing does.
    """
    arguments = main_of(module).body.block.args
    if any(isinstance(argument.type, TensorType) for argument in arguments):
        shapes = [argument.type.get_shape() for argument in arguments]
        return [
            numbers(shape, seed).astype(dtype(a.type))
            for seed, (shape, a) in enumerate(zip(shapes, arguments, strict=True))
        ]
    promised = set().union(*(flags(op) for op in module.walk()))
    columns, draw = [], np.random.default_rng(own_seed(0))
    for argument in arguments:
        kind = dtype(argument.type)
        if kind.kind == "f":
            plain = "reassoc" in promised
            free = [v for v in _SPECIAL if not plain and not (promised & {"nnan", "ninf"} and not abs(v) <= 1)]
            columns.append(np.array([*_ORDINARY, *free, *draw.integers(-40, 41, 2) / 4], kind))
        else:
            ends = np.iinfo(kind)
            wide = [] if promised & {"nsw", "nuw"} else [ends.min, ends.max, ends.max // 2 + 1, ends.min + 3]
            columns.append(np.array([0, 1, 2, 3, 5, *wide] + ([] if "nuw" in promised else [-1, -4]), kind))
    rows = list(itertools.product(*columns))
    return [np.array([row[i] for row in rows], column.dtype) for i, column in enumerate(columns)]


def difference(before: ModuleOp, after: ModuleOp, inputs: Arrays) -> str:
    """Return where two modules give different results, or ""."""
    arguments = main_of(before).body.block.args
    tensors = any(isinstance(argument.type, TensorType) for argument in arguments)
    promised = set().union(*(flags(op) for op in before.walk()))
    try:
        expected, results = evaluate(before, *inputs), evaluate(after, *inputs)
    except Unknown as error:
        return str(error)
    for at, (right, result) in enumerate(zip(expected, results, strict=True)):
        right, result = np.broadcast_arrays(right, result)
        off = ~_equal(right, result, promised | ({"reassoc"} if tensors else set()))
        if not off.any():
            continue
        place = tuple(map(int, np.argwhere(off)[0]))
        noun = f"result {at}" if len(expected) > 1 else "the result"
        if not tensors:
            names = [argument.name_hint or f"argument {i}" for i, argument in enumerate(arguments)]
            values = ", ".join(f"{n} = {_number_text(x[place[0]])}" for n, x in zip(names, inputs, strict=True))
            where = f"With {values}, {noun}" if place else f"{noun.capitalize()}"
        else:
            where = f"{noun.capitalize()}{f' at [{chr(44).join(map(str, place))}]' if place else ''}"
        return f"{where} was {_number_text(right[place])}; now it is {_number_text(result[place])}."
    return ""


def _equal(one: np.ndarray, other: np.ndarray, promised: set[str]) -> np.ndarray:
    if one.dtype.kind != "f":
        return one == other
    if "reassoc" in promised:
        return np.isclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return same if "nsz" in promised else same & ((np.signbit(one) == np.signbit(other)) | np.isnan(one))


def _number_text(number: Any) -> str:
    return f"{float(number):.6g}" if np.asarray(number).dtype.kind == "f" else str(int(number))


# ---------------------------------------------------------------------------------------------------- judge


def judge_pass(case: Case, value: Any) -> Iterator[Finding]:
    """Judge a pass on a case with an `Expect`: valid, same, and then the expectations of the other verdicts."""
    (before,) = case.build()
    wrong = valid(before, value)
    yield Finding("valid", not wrong, wrong, before=before)
    if wrong:
        return
    findings = []
    for verdict in ("did", "spared", "cost"):
        expectations: Sequence[Expectation] = getattr(case.expect, verdict)
        sentence = next((s for expectation in expectations if (s := expectation(before, value))), "")
        findings.append(Finding(verdict, not sentence, sentence, before=before, after=value))
    wrong = difference(before, value, inputs_for(before))
    spared = findings[1]
    message = f"{spared.message} {wrong}" if wrong and not spared.ok else wrong
    yield Finding("same", not wrong, message, before=before, after=value)
    yield from findings
