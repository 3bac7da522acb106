"""Day 9: modules of one linalg.generic, told by its maps, and the arrays they run on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from passlab.equivalence.seeds import own_seed

_KINDS = {"p": "parallel", "r": "reduction"}


def dims(count: int) -> str:
    return ", ".join(f"d{i}" for i in range(count))


def tensor(shape: Sequence[int] | None, element: str = "f32") -> str:
    """Return the type of an operand; the element itself for no shape."""
    if shape is None:
        return element
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def generic(
    kinds: str,
    ins: Sequence[tuple[str, Sequence[int] | None]],
    outs: Sequence[tuple[str, Sequence[int]]],
    body: Sequence[str],
    element: str = "f32",
) -> str:
    """Return a module whose main takes all operands of one linalg.generic and returns its results.

    kinds: a letter for each loop, p for parallel and r for reduction. ins, outs: for each operand the right side of its
    map, without parentheses, and its shape. body: lines of MLIR, the last one what is yielded; the arguments of the
    block are %a, %b, … (ins) and %y, %z (outs).
    """
    maps = ", ".join(f"affine_map<({dims(len(kinds))}) -> ({to})>" for to, _ in [*ins, *outs])
    names = [*"abcdef"[: len(ins)], *"yzw"[: len(outs)]]
    types = [tensor(shape, element) for _, shape in [*ins, *outs]]
    parameters = ", ".join(f"%{name.upper()}: {kind}" for name, kind in zip(names, types, strict=True))
    results = types[len(ins) :]
    together = results[0] if len(results) == 1 else f"({', '.join(results)})"
    one_by_one = "%r" if len(results) == 1 else ", ".join(f"%r#{i}" for i in range(len(results)))
    arguments = ", ".join(f"%{name.upper()}" for name in names)
    each = ", ".join(f"#linalg.iterator_type<{_KINDS[k]}>" for k in kinds)
    # The generic form: xDSL 0.74 cannot read what it prints for a linalg.generic with two results.
    lines = [
        f"func.func @main({parameters}) -> {together} {{",
        f'  %r{f":{len(results)}" if len(results) > 1 else ""} = "linalg.generic"({arguments}) '
        f"<{{indexing_maps = [{maps}], iterator_types = [{each}], "
        f"operandSegmentSizes = array<i32: {len(ins)}, {len(outs)}>}}> ({{",
        f"  ^bb0({', '.join(f'%{name}: {element}' for name in names)}):",
        *(f"    {line}" for line in body[:-1]),
        f"    linalg.yield {body[-1]} : {', '.join([element] * len(results))}",
        f"  }}) : ({', '.join(types)}) -> {together}",
        f"  return {one_by_one} : {', '.join(results)}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def numbers(shape: Sequence[int], seed: int, element: str = "f32") -> np.ndarray:
    """Return small whole numbers, different ones nearby, so that an element read from the wrong place shows."""
    drawn = np.random.default_rng(own_seed(seed)).integers(-9, 10, tuple(shape))
    return drawn.astype({"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}[element])
