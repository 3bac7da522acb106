"""Random modules in which linalg.generics and reshapes of tensors alternate."""

from __future__ import annotations

import random
from math import prod

_OPS = ("addf", "subf", "mulf")  # with math.tanh and math.sin, none that MLIR folds in a row


def random_reshapes(seed: int, ops: int = 0) -> str:
    """Return the text of a module of some generics, expand_shapes and collapse_shapes (default: 4 to 12)."""
    draw = random.Random(seed)
    shapes = [tuple(draw.choice((1, 2, 3, 4)) for _ in range(draw.choice((2, 3, 4)))) for _ in range(2)]
    values = [(f"%in{at}", shape) for at, shape in enumerate(shapes)]
    lines, used = [], set()
    for at in range(ops or draw.randint(4, 12)):
        recent = values[-3:] if draw.random() < 0.7 else values
        name, shape = draw.choice(recent)
        kind = draw.choice(("join", "split", "map", "map", "two", "sum", "row"))
        if kind == "join" and len(shape) > 1:
            start = draw.randrange(len(shape) - 1)
            end = draw.randint(start + 2, len(shape))
            made = (*shape[:start], prod(shape[start:end]), *shape[end:])
            lines.append(
                f"%v{at} = tensor.collapse_shape {name} {_axes(start, end, len(shape))} : {_into(shape, made)}"
            )
        elif kind == "split" and shape and len(shape) < 5:
            start = draw.randrange(len(shape))
            factor = draw.choice([n for n in range(1, shape[start] + 1) if shape[start] % n == 0])
            made = (*shape[:start], factor, shape[start] // factor, *shape[start + 1 :])
            sizes = ", ".join(map(str, made))
            axes = _axes(start, start + 2, len(made))
            lines.append(f"%v{at} = tensor.expand_shape {name} {axes} output_shape [{sizes}] : {_into(shape, made)}")
        elif kind == "sum" and len(shape) > 1:
            gone = draw.randrange(len(shape))
            made = (*shape[:gone], *shape[gone + 1 :])
            lines += _generic(draw, at, shape, [(name, range(len(shape)))], [d for d in range(len(shape)) if d != gone])
        else:
            given = [(name, list(range(len(shape))))]
            like = [value for value in values if value[1] == shape]
            rows = [value for value in values if value[1] == shape[-1:]] if shape else []
            if kind == "two" or not rows:
                given.append((draw.choice(like)[0], list(range(len(shape)))))
            elif kind == "row":
                given.append((draw.choice(rows)[0], [len(shape) - 1]))
            order = draw.sample(range(len(shape)), len(shape))
            if draw.random() < 0.4:
                order = sorted(order)
            if 1 in shape and draw.random() < 0.3:  # a map with a constant, through which no loop is split
                given[0] = (name, [0 - 1 if size == 1 else d for d, size in enumerate(shape)])
            made = tuple(shape[d] for d in order)
            lines += _generic(draw, at, shape, given, order)
            used |= {value for value, _ in given}
        used.add(name)
        values.append((f"%v{at}", made))
    returned = [value for value in values[2:] if value[0] not in used]
    arguments = ", ".join(f"{name}: {_type(shape)}" for name, shape in values[:2])
    types, names = ", ".join(_type(shape) for _, shape in returned), ", ".join(name for name, _ in returned)
    body = "\n".join(f"  {line}" for line in lines)
    return f"func.func @main({arguments}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}"


def _type(shape: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}f32>"


def _into(shape: tuple[int, ...], made: tuple[int, ...]) -> str:
    return f"{_type(shape)} into {_type(made)}"


def _axes(start: int, end: int, rank: int) -> str:
    groups = [[d] for d in range(start)] + [list(range(start, end))] + [[d] for d in range(end, rank)]
    return str(groups)


def _map(loops: int, picked: list[int]) -> str:
    results = ", ".join("0" if d < 0 else f"d{d}" for d in picked)
    return f"affine_map<({', '.join(f'd{d}' for d in range(loops))}) -> ({results})>"


def _generic(draw: random.Random, at: int, shape: tuple, given: list, out: list[int]) -> list[str]:
    loops, made = len(shape), tuple(shape[d] for d in out)
    sums = len(out) < loops
    kinds = ", ".join('"parallel"' if d in out else '"reduction"' for d in range(loops))
    maps = ", ".join(_map(loops, list(picked)) for picked in (*(picked for _, picked in given), out))
    lines = [f"%e{at} = tensor.empty() : {_type(made)}"]
    if sums:
        lines += [f"%z{at} = arith.constant 0.0 : f32"]
        lines += [f"%i{at} = linalg.fill ins(%z{at} : f32) outs(%e{at} : {_type(made)}) -> {_type(made)}"]
        body = [f"%y{at} = arith.addf %x{at}_0, %o{at} : f32"]
    elif len(given) == 2:
        body = [f"%y{at} = arith.{draw.choice(_OPS)} %x{at}_0, %x{at}_1 : f32"]
    else:
        body = [f"%y{at} = {draw.choice(('math.tanh', 'math.sin'))} %x{at}_0 : f32"]
    if draw.random() < 0.1 and loops and not sums:
        body += [f"%j{at} = linalg.index {draw.randrange(loops)} : index"]
        body += [f"%k{at} = arith.index_cast %j{at} : index to i32", f"%f{at} = arith.sitofp %k{at} : i32 to f32"]
        body += [f"%s{at} = arith.addf %y{at}, %f{at} : f32"]
    last = body[-1].split()[0]
    names = ", ".join(name for name, _ in given)
    types = ", ".join(_type(tuple(1 if d < 0 else shape[d] for d in picked)) for _, picked in given)
    arguments = ", ".join([*(f"%x{at}_{k}: f32" for k in range(len(given))), f"%o{at}: f32"])
    return [
        *lines,
        f"%v{at} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}",
        f"  ins({names} : {types}) outs(%{'i' if sums else 'e'}{at} : {_type(made)}) {{",
        f"^bb0({arguments}):",
        *body,
        f"linalg.yield {last} : f32",
        f"}} -> {_type(made)}",
    ]
