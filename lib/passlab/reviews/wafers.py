"""Questions on days 11 and 12: grids of cores, and how a compiler is judged."""

from __future__ import annotations

import math
import random

from passlab.reviews.questions import Question, choose, kind
from passlab.wafer import FORMULAS, Machine, Message, program, simulate


@kind("day11", "message")
def message(rng: random.Random) -> Question:
    """How long a message takes."""
    columns, words, ramp = rng.randint(3, 12), rng.randint(1, 40), rng.choice((1, 2, 3))
    machine = Machine(1, columns, ramp=ramp)
    sent = Message(machine.route((0, 0), (0, columns - 1)), words)
    cycles = simulate(program(machine, [sent])).cycles
    text = (
        f"A message of {words} words crosses an idle line of {columns} cores from end to end. A core to its router, "
        f"and back, takes {ramp} cycles; a word crosses a link in one, and words follow each other. How many cycles?"
    )
    return Question(text, cycles, f"words + cores + 2 · ramp = {words} + {columns} + 2 · {ramp}.")


@kind("day11", "reduce")
def reduce(rng: random.Random) -> Question:
    """Which reduce is fastest."""
    while True:
        cores, words = 2 ** rng.randint(2, 8), 2 ** rng.randint(0, 12)
        cycles = {name: float(form(cores, words)) for name, form in FORMULAS.items()}
        first, second, *_ = sorted(cycles.values())
        if second > 1.3 * first:
            break
    answer = min(cycles, key=cycles.__getitem__)
    text = f"{words:,} words are to be added over a line of {cores} cores. Which reduce is the fastest?"
    reason = ", ".join(f"{name} {value:,.0f}" for name, value in cycles.items()) + " cycles."
    return Question(text, answer, reason, tuple(FORMULAS))


@kind("day11", "traffic-of-placement")
def traffic(rng: random.Random) -> Question:
    """What a placement costs."""
    machine = Machine(4, 4)
    cores = rng.sample([(r, c) for r in range(4) for c in range(4)], 4)
    edges = [(a, b, rng.randint(1, 9)) for a, b in ("AB", "BC", "CD", "AD") if rng.random() < 0.9]
    answer = sum(words * machine.distance(cores["ABCD".index(a)], cores["ABCD".index(b)]) for a, b, words in edges)
    text = (
        "\n".join(f"{name} is on core {core}" for name, core in zip("ABCD", cores, strict=True))
        + "\n"
        + "\n".join(f"{a} sends {b} {words} words" for a, b, words in edges)
        + "\n\nCores are (row, column). How many words times hops is that, along rows and columns?"
    )
    return Question(text, answer, "Each message counts its words times the distance in rows and in columns.")


@kind("day11", "stage")
def stage(rng: random.Random) -> Question:
    """How long a pipeline takes."""
    times, examples = [rng.randint(1, 9) for _ in range(rng.randint(3, 5))], rng.randint(2, 8)
    answer = sum(times) + (examples - 1) * max(times)
    text = (
        f"A pipeline has {len(times)} stages on their own cores, of {', '.join(map(str, times))} cycles. {examples} "
        "examples stream through it, each entering a stage when it is free. When is the last one done?"
    )
    reason = f"The first takes {sum(times)} cycles; after that one more is done every {max(times)}, the slowest stage."
    return Question(text, answer, reason)


@kind("day12", "mean")
def mean(rng: random.Random) -> Question:
    """What the mean speed-up is."""
    while True:
        logs = [rng.randint(-2, 3) for _ in range(rng.choice((2, 3)))]
        if sum(logs) % len(logs) == 0:
            break
    shares = [2.0**-log for log in logs]
    answer = 2.0 ** (sum(logs) // len(logs))
    others = [
        str(value) for value in {answer * 2, answer / 2, sum(2.0**log for log in logs) / len(logs)} if value != answer
    ]
    text = (
        f"On {len(logs)} models a compiler takes {', '.join(f'{share:g}' for share in shares)} of eager's time. "
        "What is the geometric mean of its speed-ups?"
    )
    reason = f"The speed-ups are {', '.join(f'{2.0**log:g}' for log in logs)}; multiply them, and take the root."
    choices = choose(rng, f"{answer:g}", [f"{float(other):g}" for other in sorted(others)])
    return Question(text, f"{answer:g}", reason, choices)


@kind("day12", "front")
def front(rng: random.Random) -> Question:
    """Which entries are on the Pareto front."""
    points = {name: (rng.randint(1, 9), rng.randint(1, 9)) for name in "ABCDE"}
    best: float = math.inf
    answer: set[str] = set()
    for name, (time, memory) in sorted(points.items(), key=lambda item: item[1]):
        if memory < best or any(points[other] == (time, memory) for other in answer):
            best = min(best, memory)
            answer.add(name)
    rows = "\n".join(f"{name}: {time} ms, {memory} MB" for name, (time, memory) in points.items())
    text = f"{rows}\n\nWhich are on the front: no other is at least as good in both and better in one?"
    return Question(
        text, frozenset(answer), "Sort by time; on the front is what needs less memory than all faster ones."
    )


@kind("day12", "share")
def share(rng: random.Random) -> Question:
    """What a faster part gains."""
    total = 100
    part, factor = 10 * rng.randint(1, 9), rng.choice((2, 5, 10))
    text = (
        f"A model takes {total} ms, {part} of them in operations that a compiler makes {factor} times as fast. How "
        "many ms does the model take then?"
    )
    answer = total - part + part // factor
    return Question(text, answer, f"{total - part} ms stay, and {part} become {part // factor}.")
