"""Questions on days 7 to 9: Relay, Relax and MLIR. None of them needs TVM."""

from __future__ import annotations

import random

from passlab.reviews.questions import Question, choose, kind

#: Operator → its pattern: 0 element-wise, 2 injective, 3 reduction, 4 with loops of its own.
PATTERNS = {"relu": 0, "exp": 0, "negative": 0, "transpose": 2, "sum": 3, "dense": 4}
#: Pass of Relay → the level from which on it runs.
LEVELS = {
    "SimplifyInference": 0,
    "FuseOps": 0,
    "FoldConstant": 2,
    "EliminateCommonSubexpr": 3,
    "AlterOpLayout": 3,
    "FastMath": 4,
}


def fused(patterns: list[int]) -> list[int]:
    """Return for each operator of a chain the number of its kernel's last operator: the rules of Relay's FuseOps.

    Source: TVM 0.17, src/relay/transforms/fuse_ops.cc, phases 0 and 1, for operators with one reader each.
    """
    count = len(patterns)
    root, kernel = list(range(count)), list(patterns)  # kernel: the pattern of what ends here

    def last(i: int) -> int:
        return i if root[i] == i else last(root[i])

    for phase in (0, 1):
        for i in range(count - 1):
            target = last(i + 1)
            if kernel[i] == 4:
                fits = phase == 0 and patterns[i + 1] == 0 and kernel[target] <= 1
            elif kernel[i] == 0:
                fits = patterns[i + 1] in (0, 2, 3) and kernel[target] <= 4
            else:
                fits = kernel[i] == 2 and phase == 1 and kernel[target] <= 2
            if fits and last(i) != target:
                if max(kernel[last(i)], patterns[i]) > 2:  # a kernel has one anchor: a reduction, or loops of its own
                    kernel[target] = max(kernel[target], kernel[last(i)])
                root[last(i)] = target
    return [last(i) for i in range(count)]


@kind("day07", "fuse-ops")
def fuse_ops(rng: random.Random) -> Question:
    """How many kernels FuseOps leaves."""
    ops: list[str] = []
    for _ in range(rng.randint(4, 7)):  # a product needs a matrix, and a sum leaves a column
        ops.append(rng.choice([op for op in PATTERNS if op != "dense" or "sum" not in ops]))
    kernels = fused([PATTERNS[op] for op in ops])
    text = (
        f"x → {' → '.join(ops)}\n\nx is a matrix; sum adds the numbers of each row, and leaves a column. How "
        "many kernels does Relay's FuseOps leave?"
    )
    groups = " | ".join(
        "+".join(op for op, k in zip(ops, kernels, strict=True) if k == each) for each in dict.fromkeys(kernels)
    )
    return Question(text, len({*kernels}), f"They are {groups}.")


@kind("day07", "shared")
def shared(rng: random.Random) -> Question:
    """How many calls a Relay expression has."""
    lines, calls = [], {"x": 0}
    parts: dict[str, frozenset[str]] = {"x": frozenset()}
    for name in "abcd":
        left, right = rng.choice(list(parts)), rng.choice(list(parts))
        nested = rng.random() < 0.4
        inner = f"exp({left})" if nested else left
        lines.append(f"{name} = add({inner}, {right})")
        own = {name, f"exp in {name}"} if nested else {name}
        parts[name] = parts[left] | parts[right] | own
        calls[name] = len(parts[name])
    text = (
        "\n".join(lines)
        + "\n\nThese lines of Python build Relay expressions from the variable x. How many calls has d?"
    )
    reason = "A Python name is one call, however often it is used; two calls that are written alike are two."
    return Question(text, calls["d"], reason)


@kind("day07", "context")
def context(rng: random.Random) -> Question:
    """Which passes a context runs."""
    level = rng.randint(0, 4)
    required, disabled = (rng.sample(list(LEVELS), rng.randint(0, 2)) for _ in range(2))
    required = [name for name in required if name not in disabled]
    answer = frozenset(n for n, at in LEVELS.items() if n not in disabled and (at <= level or n in required))
    table = "\n".join(f"{name}: level {at}" for name, at in LEVELS.items())
    text = (
        f"{table}\n\nA Sequential of these passes of Relay runs under PassContext(opt_level={level}, "
        f"required_pass={required}, disabled_pass={disabled}). Which of them run?"
    )
    return Question(text, answer, "A pass runs from its level on, or if it is required; not if it is disabled.")


@kind("day08", "split")
def split(rng: random.Random) -> Question:
    """How many turns of a split loop are idle."""
    extents = [rng.randint(5, 40) for _ in range(2)]
    factors = [rng.choice((4, 8, 16)) for _ in range(2)]
    turns = [-(-n // f) * f for n, f in zip(extents, factors, strict=True)]
    text = (
        f"A schedule splits the loop i of {extents[0]} turns by {factors[0]}, and inside of it j of {extents[1]} "
        f"turns by {factors[1]}: [None, {factors[0]}] and [None, {factors[1]}]. How often does the innermost body find "
        "by its condition that there is nothing to do?"
    )
    answer = turns[0] * turns[1] - extents[0] * extents[1]
    return Question(
        text, answer, f"It is reached {turns[0]} · {turns[1]} times, for {extents[0]} · {extents[1]} elements."
    )


@kind("day08", "turn")
def turn(rng: random.Random) -> Question:
    """Which element a schedule visits next."""
    n, m, tile = 4 * rng.randint(1, 3), 4 * rng.randint(1, 3), rng.choice((2, 4))
    order = rng.sample(["i_out", "j", "i_in"], 3)
    extents = {"i_out": n // tile, "j": m, "i_in": tile}
    number = rng.randrange(n * m)
    at, rest = {}, number
    for name in reversed(order):
        rest, at[name] = divmod(rest, extents[name])
    answer = f"i = {at['i_out'] * tile + at['i_in']}, j = {at['j']}"
    others: set[str] = set()
    while len(others) < 3:
        others.add(f"i = {rng.randrange(n)}, j = {rng.randrange(m)}")
        others.discard(answer)
    text = (
        f"for i in range({n}), for j in range({m}). i is split into i_out and i_in by [None, {tile}], and the loops "
        f"are reordered, from outside: {', '.join(order)}. Which element is number {number}, counted from 0?"
    )
    return Question(
        text, answer, f"There {', '.join(f'{k} = {v}' for k, v in at.items())}.", choose(rng, answer, [*others])
    )


@kind("day08", "symbolic")
def symbolic(rng: random.Random) -> Question:
    """What a symbolic reshape leaves."""
    a, b, c = (rng.choice((2, 3, 4, 6)) for _ in range(3))
    keep = rng.choice((1, a, b, a * b))
    times = a * b * c // keep
    text = (
        f"x has the shape (n, {a}, {b}, {c}), for any n. It is reshaped to ({f'n * {keep}' if keep > 1 else 'n'}, k) "
        "without losing elements. What is k?"
    )
    return Question(
        text,
        times,
        f"There are n · {a * b * c} elements, and {keep} · n rows.",
    )


@kind("day09", "loop-turns")
def loop_turns(rng: random.Random) -> Question:
    """How often the body of a nest runs."""
    loops = [(rng.randint(0, 5), rng.randint(6, 20), rng.randint(1, 4)) for _ in range(2)]
    turns = [max(0, -(-(high - low) // step)) for low, high, step in loops]
    text = "\n".join(
        f"{'  ' * i}scf.for %{name} = %c{low} to %c{high} step %c{step} {{"
        for i, (name, (low, high, step)) in enumerate(zip("ij", loops, strict=True))
    )
    text += "\n    …\n  }\n}\n\nHow often does the innermost body run? (%c5 is the constant 5.)"
    return Question(
        text, turns[0] * turns[1], f"The loops have {turns[0]} and {turns[1]} turns: the upper bound is left out."
    )


@kind("day09", "indexing")
def indexing(rng: random.Random) -> Question:
    """Which element an affine map reads."""
    forms = rng.sample(["i + j", "i", "j", "2 * i", "k", "j + k", "3 * k + 1"], 2)
    outer = rng.sample(["a + b", "b", "a", "2 * b"], 2)
    values = {name: rng.randint(0, 5) for name in "ijk"}
    inner = [eval(form, {}, values) for form in forms]
    point = [eval(form, {}, dict(zip("ab", inner, strict=True))) for form in outer]
    text = (
        f"f = affine_map<(i, j, k) -> ({', '.join(forms)})>, g = affine_map<(a, b) -> ({', '.join(outer)})>\n\nA fused "
        f"operation reads with g after f. It reads element (row, column) at i, j, k = "
        f"{', '.join(str(values[name]) for name in 'ijk')}. What is 100 · row + column?"
    )
    return Question(text, 100 * point[0] + point[1], f"f gives {tuple(inner)}, and g of that {tuple(point)}.")


@kind("day09", "in-place")
def in_place(rng: random.Random) -> Question:
    """How many copies bufferization needs."""
    lines, tensors = [], ["x"]
    for number in range(5):
        source = rng.choice(tensors)
        if rng.random() < 0.6:
            name = "abcde"[number]
            lines.append((name, "set", source, number))
            tensors.append(name)
        else:
            lines.append((f"s{number}", "sum", source, number))
    uses = [source for _, _, source, _ in lines]
    results = [name for name, *_ in lines if name not in uses]
    copies = [
        name for i, (name, op, source, _) in enumerate(lines) if op == "set" and source in [*uses[i + 1 :], *results]
    ]
    body = "\n".join(
        f"{name} = {source} with element {at} set to {at + 10}" if op == "set" else f"{name} = sum of {source}"
        for name, op, source, at in lines
    )
    text = (
        f"{body}\nreturn {', '.join(results)}\n\nEach line makes a new tensor or a number. Bufferization writes into "
        "the old tensor where nothing reads it afterwards; x, too, may be overwritten. How many copies are needed?"
    )
    reason = f"Copied for: {', '.join(copies) or 'none'}. There the old tensor is read later, or returned."
    return Question(text, len(copies), reason)
