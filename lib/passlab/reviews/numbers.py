"""Questions on days 15 and 16: fewer bits, and equality saturation."""

from __future__ import annotations

import random
from fractions import Fraction

import torch

from passlab.egraph import EGraph, cheapest
from passlab.quantization import grid, pack_int4, quantize
from passlab.reviews.questions import Question, kind

#: Operation → its cost.
COSTS = {"add": 2, "mul": 3, "shift": 1, "div": 6}


@kind("day15", "quantize")
def on_grid(rng: random.Random) -> Question:
    """Which integer a number becomes."""
    scale, zero = Fraction(1, rng.choice((2, 4, 8))), rng.randint(-20, 20)
    value = Fraction(rng.randint(-640, 640), 16)
    answer = int(quantize(torch.tensor(float(value)), float(scale), zero))
    text = (
        f"A grid of 8 bits, −128 to 127, has the scale {float(scale):g} and the zero point {zero}. Which integer does "
        f"{float(value):g} become? (Halves round to the even number.)"
    )
    reason = f"{float(value):g} / {float(scale):g} is {float(value / scale):g}; round, add {zero}, and clip."
    return Question(text, answer, reason)


@kind("day15", "zero-point")
def zero_point(rng: random.Random) -> Question:
    """Where zero lies on a grid."""
    while True:
        low, high = rng.randint(-20, 5), rng.randint(-4, 20)
        ends = min(low, 0), max(high, 0)
        if low < high and abs((255 * -ends[0] / (ends[1] - ends[0])) % 1 - 0.5) > 0.01:
            break
    answer = grid(low, high).zero_point
    text = (
        f"Values lie between {low} and {high}. The grid of 8 bits, −128 to 127, that covers them and 0 has the scale "
        "(high − low) / 255. Which integer is 0?"
    )
    reason = f"The grid covers {ends[0]} … {ends[1]}: −128 + {-ends[0]} · 255 / {ends[1] - ends[0]}, rounded."
    return Question(text, answer, reason)


@kind("day15", "accumulator")
def accumulator(rng: random.Random) -> Question:
    """How many bits a sum needs."""
    count, weight, value = rng.randint(1, 4096), 2 ** rng.randint(2, 7) - 1, 2 ** rng.randint(3, 8) - 1
    largest = count * weight * value
    text = (
        f"{count} products of weights in −{weight}..{weight} and values in 0..{value} are added in a signed integer. "
        "How many bits does it need at least?"
    )
    return Question(text, largest.bit_length() + 1, f"The sum can be {largest:,}, and one bit is the sign.")


@kind("day15", "pack")
def pack(rng: random.Random) -> Question:
    """Which byte holds two numbers."""
    pair = [rng.randint(-8, 7) for _ in range(2)]
    byte = int(pack_int4(torch.tensor(pair, dtype=torch.int8))[0])
    text = f"The int4 numbers {pair[0]} and {pair[1]} share a byte, the first in its low half. What is it, 0 to 255?"
    return Question(text, byte, f"The halves are {pair[0] % 16} and {pair[1] % 16}: low + 16 · high.")


def _terms(rng: random.Random, count: int) -> list[tuple]:
    pool: list[tuple] = [("a",), ("b",), ("c",)]
    for _ in range(count):
        pool.append(("f", rng.choice(pool)) if rng.random() < 0.5 else ("g", rng.choice(pool), rng.choice(pool)))
    return pool


def _text(term: tuple) -> str:
    return f"{term[0]}({', '.join(map(_text, term[1:]))})" if len(term) > 1 else str(term[0])


@kind("day16", "classes")
def classes(rng: random.Random) -> Question:
    """How many classes congruence leaves."""
    terms, graph = _terms(rng, 5), EGraph()
    for term in terms:
        graph.add_term(term)
    one, other = rng.sample(terms, 2)
    before = len(graph.nodes)
    graph.union(graph.add_term(one), graph.add_term(other))
    graph.rebuild()
    text = (
        "\n".join(map(_text, terms)) + f"\n\nAn e-graph holds these terms and their parts. Then {_text(one)} = "
        f"{_text(other)} is stated, and congruence restored. How many classes are left?"
    )
    return Question(
        text,
        len(graph.nodes),
        f"There were {before}: equal operands make equal terms.",
    )


@kind("day16", "sharing")
def sharing(rng: random.Random) -> Question:
    """How many e-nodes terms need."""
    term, graph = max(_terms(rng, 6), key=lambda term: len(_text(term))), EGraph()
    graph.add_term(term)
    text = f"{_text(term)}\n\nHow many e-nodes does an e-graph need for this term, all its parts included?"
    return Question(text, len(graph), "A part that occurs several times is stored once.")


@kind("day16", "cheapest")
def cheapest_term(rng: random.Random) -> Question:
    """What the cheapest term costs."""
    graph, lines = EGraph(), []
    ids = {"x": graph.add("x"), "y": graph.add("y")}
    written: set[tuple] = set()  # a form in two classes would make them one
    for name in "pqr":
        forms: list[tuple] = []
        while not forms or rng.random() < 0.5:
            op = rng.choice(list(COSTS))
            form = (op, *(rng.choice(list(ids)) for _ in range(1 if op == "shift" else 2)))
            if form not in written and len(forms) < 3:
                forms.append(form)
                written.add(form)
        numbers = [graph.add(op, *(ids[name] for name in operands)) for op, *operands in forms]
        for number in numbers[1:]:
            graph.union(numbers[0], number)
        graph.rebuild()
        ids[name] = numbers[0]
        lines.append(f"{name}: " + " or ".join(f"{op}({', '.join(operands)})" for op, *operands in forms))
    _, cost = cheapest(graph, ids["r"], lambda label: COSTS.get(str(label), 0))
    text = (
        "\n".join(lines) + f"\n\nEach line is a class and its members. Costs: "
        f"{', '.join(f'{op} {price}' for op, price in COSTS.items())}; x and y are free. What does the cheapest term "
        "of r cost, if a part counts each time it is used?"
    )
    return Question(text, cost, "From p to r, take the member whose operation and operands are cheapest together.")
