"""Random modules of linalg.generics on tensors: element-wise, broadcast, transposed, reducing, copying."""

from __future__ import annotations

import random

SIZES = {"a": 3, "b": 4, "c": 5}
_FLOATS = ("addf", "subf", "mulf")  # none that MLIR folds for equal operands


def random_module(seed: int, ops: int = 0) -> str:
    """Return the text of a module of some linalg.generics (default: 3 to 9) on tensors of f32."""
    draw = random.Random(seed)
    count = ops or draw.randint(3, 9)
    lines: list[str] = []
    values = [(f"%in{at}", tuple(draw.sample("abc", draw.choice((1, 2, 2, 3))))) for at in range(3)]
    inputs, used = list(values), set()
    for at in range(count):
        loops = draw.sample("abc", draw.choice((1, 2, 2, 3, 3)))
        fits = [value for value in values if set(value[1]) <= set(loops)]
        fits = fits[-4:] if draw.random() < 0.8 else fits
        if not fits:
            continue
        given = [draw.choice(fits) for _ in range(draw.choice((1, 1, 2, 2, 3)))]
        used |= {name for name, _ in given}
        reduced = set(draw.sample(loops, draw.randint(1, len(loops)))) if draw.random() < 0.25 else set()
        covered = set("".join("".join(axes) for _, axes in given))
        reduced &= covered
        out = [axis for axis in loops if axis not in reduced]
        draw.shuffle(out)
        lines += _generic(draw, at, loops, given, tuple(out), bool(reduced))
        values.append((f"%v{at}", tuple(out)))
    returned = [value for value in values[3:] if value[0] not in used] or values[-1:]
    arguments = ", ".join(f"{name}: {_type(axes)}" for name, axes in inputs)
    types = ", ".join(_type(axes) for _, axes in returned)
    body = "\n".join(f"  {line}" for line in lines)
    names = ", ".join(name for name, _ in returned)
    return f"func.func @main({arguments}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}"


def _type(axes: tuple[str, ...]) -> str:
    return f"tensor<{''.join(f'{SIZES[axis]}x' for axis in axes)}f32>"


def _generic(draw: random.Random, at: int, loops: list[str], given: list, out: tuple[str, ...], reduces: bool) -> list:
    dims = ", ".join(f"d{d}" for d in range(len(loops)))
    maps = ", ".join(
        f"affine_map<({dims}) -> ({', '.join(f'd{loops.index(axis)}' for axis in axes)})>"
        for axes in (*(axes for _, axes in given), out)
    )
    kinds = ", ".join('"parallel"' if axis in out else '"reduction"' for axis in loops)
    reads = reduces
    lines = [f"%e{at} = tensor.empty() : {_type(out)}"]
    if reads:
        lines += [f"%z{at} = arith.constant {float(draw.randint(0, 2))} : f32"]
        lines += [f"%i{at} = linalg.fill ins(%z{at} : f32) outs(%e{at} : {_type(out)}) -> {_type(out)}"]
    body, last = [], f"%x{at}_0"
    for k in range(1, len(given)):
        body.append(f"%t{at}_{k} = arith.{draw.choice(_FLOATS)} {last}, %x{at}_{k} : f32")
        last = f"%t{at}_{k}"
    if len(given) == 1 and draw.random() < 0.75:
        body.append(f"%n{at} = {draw.choice(('math.absf', 'arith.negf', 'math.tanh'))} {last} : f32")
        last = f"%n{at}"
    if draw.random() < 0.1 and not reduces:
        body += [f"%j{at} = linalg.index {draw.randrange(len(loops))} : index"]
        body += [f"%k{at} = arith.index_cast %j{at} : index to i32", f"%f{at} = arith.sitofp %k{at} : i32 to f32"]
        body += [f"%s{at} = arith.addf {last}, %f{at} : f32"]
        last = f"%s{at}"
    if reads:
        body.append(f"%r{at} = arith.addf {last}, %o{at} : f32")
        last = f"%r{at}"
    arguments = ", ".join([*(f"%x{at}_{k}: f32" for k in range(len(given))), f"%o{at}: f32"])
    names, types = ", ".join(name for name, _ in given), ", ".join(_type(axes) for _, axes in given)
    lines += [
        f"%v{at} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}",
        f"  ins({names} : {types}) outs(%{'i' if reads else 'e'}{at} : {_type(out)}) {{",
        f"^bb0({arguments}):",
        *body,
        f"linalg.yield {last} : f32",
        f"}} -> {_type(out)}",
    ]
    return lines
