"""Questions on days 13 and 14: torch.compile, and training as a pass."""

from __future__ import annotations

import math
import random

from passlab.reviews.programs import Line, straight_line, text_of
from passlab.reviews.questions import Question, kind

#: Operation → what its gradient reads: its operands ("in"), its result ("out") or nothing.
SAVES = {"sin": "in", "exp": "out", "tanh": "out", "sigmoid": "out", "relu": "out", "neg": "", "add": "", "mul": "in"}


@kind("day13", "versions")
def versions(rng: random.Random) -> Question:
    """How many versions of a function are compiled."""
    sizes = [rng.choice((0, 1, 2, 3, 4, 5)) for _ in range(rng.randint(4, 7))]
    kinds = [n if n in (0, 1, sizes[0]) else "any" for n in sizes]
    text = (
        f"torch.compile(lambda x: x * 2) is called with vectors of the sizes {', '.join(map(str, sizes))}. A second "
        "size makes it a symbol, which stands for 2 or more. How many versions are compiled?"
    )
    reason = "The first size has a version; 0 and 1 have their own; one with a symbol serves the rest."
    return Question(text, len({*kinds}), reason)


@kind("day13", "functional")
def functional(rng: random.Random) -> Question:
    """What a tensor holds after writes into views."""
    values = [rng.randint(1, 9) for _ in range(5)]
    memory, views = list(values), {"x": list(range(5))}
    lines = []
    for name in "abcde":
        source = rng.choice(list(views))
        if len(views[source]) > 2 and rng.random() < 0.5:
            start = rng.choice((0, 1))
            step = rng.choice((1, 2))
            views[name] = views[source][start::step]
            lines.append(f"{name} = {source}[{start}::{step}]")
        else:
            by = rng.randint(2, 9)
            write = rng.random() < 0.7
            if write:
                for at in views[source]:
                    memory[at] += by
                lines.append(f"{source}.add_({by})")
            else:
                views[name] = [len(memory) + i for i in range(len(views[source]))]
                memory += [memory[at] + by for at in views[source]]
                lines.append(f"{name} = {source} + {by}")
    name = rng.choice(list(views))
    at = rng.randrange(len(views[name]))
    text = f"x = torch.tensor({values})\n" + "\n".join(lines) + f"\n\nWhich number is {name}[{at}] in the end?"
    return Question(
        text, memory[views[name][at]], "A slice is a view: a write through either is seen by both. A sum is new."
    )


@kind("day13", "graphs")
def graphs(rng: random.Random) -> Question:
    """How many graphs Dynamo captures."""
    steps = [rng.choice(("compute", "compute", "print", "item")) for _ in range(rng.randint(4, 7))]
    words = {"compute": "y = (y + 1).relu()", "print": "print('here')", "item": "y = y * y.sum().item()"}
    count, pending = 0, False
    for step in steps:
        if step == "print":
            count, pending = count + pending, False
        elif step == "item":  # the sum ends one graph, the product begins the next
            count, pending = count + 1, True
        else:
            pending = True
    text = (
        "def f(y):\n"
        + "\n".join(f"    {words[step]}" for step in [*steps, "compute"])
        + "\n    return y\n\nDynamo breaks "
        "at each print and at each .item(). How many graphs with operations does it capture?"
    )
    return Question(
        text, count + 1, "A graph ends at a break if it has operations by then; the last one ends with the function."
    )


@kind("day14", "gradient")
def gradient(rng: random.Random) -> Question:
    """What the gradient of a program is."""
    lines = straight_line(rng, 4, ops=("add", "sub", "mul", "neg"))
    at = {"x": rng.randint(-3, 3), "y": rng.randint(-3, 3)}
    value = dict(at)
    for line in lines:
        a, b = value[line.operands[0]], value[line.operands[-1]]
        value[line.name] = {"add": a + b, "sub": a - b, "mul": a * b, "neg": -a}[line.op]
    grad = dict.fromkeys(value, 0) | {"d": 1}
    for line in reversed(lines):
        g = grad[line.name]
        one, other = (*line.operands, line.operands[0])[:2]
        if line.op == "mul":
            factors = (value[other], value[one])
        else:
            factors = {"add": (1, 1), "sub": (1, -1), "neg": (-1, 0)}[line.op]
        grad[one] += g * factors[0]
        grad[other] += g * factors[1]
    text = f"{text_of(lines, 'd')}\n\nAt x = {at['x']}, y = {at['y']}: what is the derivative of d with respect to x?"
    reason = "Backwards, a value that is used twice adds both gradients: " + ", ".join(
        f"{n}: {g}" for n, g in grad.items()
    )
    return Question(text, grad["x"], f"{reason}.")


@kind("day14", "saved")
def saved(rng: random.Random) -> Question:
    """Which values a training step saves."""
    lines: list[Line] = []
    last = "x"
    for name in "abcde":
        op = rng.choice(list(SAVES))
        lines.append(
            Line(name, op, (last, rng.choice(["x", *"abcde"[: len(lines)]])) if op in ("add", "mul") else (last,))
        )
        last = name
    answer: set[str] = set()
    for line in lines:
        answer |= {"in": {*line.operands}, "out": {line.name}, "": set()}[SAVES[line.op]]
    text = (
        f"{text_of(lines, 'e')}\n\nThe gradient of x is wanted, and nothing is computed twice. Which of the values x "
        "and a to e does the forward graph save for the backward graph?"
    )
    reason = "sin and mul read their operands again; exp, tanh, sigmoid and relu their results; add and neg nothing."
    return Question(text, frozenset(answer), reason)


@kind("day14", "fit")
def fit(rng: random.Random) -> Question:
    """How many gradients a broadcast adds."""
    full = [rng.choice((2, 3, 4, 5)) for _ in range(rng.randint(2, 4))]
    small = [size if rng.random() < 0.5 else 1 for size in full][rng.randint(0, 1) :]
    answer = math.prod(full) // math.prod(small)
    text = (
        f"A bias of shape {small} is added to a tensor of shape {full}. How many numbers are added up in each element "
        "of the bias's gradient?"
    )
    return Question(
        text,
        answer,
        f"{math.prod(full)} gradients flow into {math.prod(small)} elements.",
    )
