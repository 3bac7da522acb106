"""Questions on day 5: live ranges, offsets, orders, caches."""

from __future__ import annotations

import random

from passlab.judge.words import plural
from passlab.memory.allocate import ORDERS, first_fit
from passlab.memory.buffers import Buffer, height, lower_bound
from passlab.memory.cache import Cache, misses, transactions
from passlab.memory.tasks import Task, peak
from passlab.reviews.programs import straight_line, text_of
from passlab.reviews.questions import Question, kind


def _buffers(rng: random.Random, count: int) -> list[Buffer]:
    starts = [rng.randint(0, 5) for _ in range(count)]
    return [
        Buffer(name, s, s + rng.randint(1, 4), rng.randint(1, 6)) for name, s in zip("abcdefgh", starts, strict=False)
    ]


def _table(buffers: list[Buffer]) -> str:
    rows = (f"{b.name}: {b.size} B, live in the steps {', '.join(map(str, range(b.lower, b.upper)))}" for b in buffers)
    return "\n".join(rows)


@kind("day05", "peak")
def peak_of_order(rng: random.Random) -> Question:
    """The peak of an order."""
    lines = straight_line(rng, 6, inputs=("x",), ops=("add", "mul", "relu"))
    sizes = {line.name: rng.randint(1, 5) for line in lines}
    tasks = [Task(line.name, tuple({*line.operands} - {"x"}), sizes[line.name]) for line in lines]
    ends = [line.name for line in lines if not any(line.name in other.operands for other in lines)]
    text = (
        f"{text_of(lines, *ends)}\n\nSizes of the results: "
        f"{', '.join(f'{name} {size}' for name, size in sizes.items())}. x is not counted. While a line runs, its "
        "operands and its result are live; a result is free after its last reader, and what is returned stays. "
        "What is the peak?"
    )
    return Question(text, peak(tasks, [line.name for line in lines]), "Add up what is live while each line runs.")


@kind("day05", "lower-bound")
def bound(rng: random.Random) -> Question:
    """How small an arena can be at best."""
    buffers = _buffers(rng, 6)
    text = f"{_table(buffers)}\n\nNo arena for them is smaller than how many bytes?"
    return Question(text, lower_bound(buffers), "In each step the live buffers must fit beside each other.")


@kind("day05", "first-fit")
def fit(rng: random.Random) -> Question:
    """The arena that first fit needs."""
    buffers = _buffers(rng, 5)
    order = [b.name for b in sorted(buffers, key=ORDERS["size"])]
    offsets = first_fit(buffers, ORDERS["size"])
    text = (
        f"{_table(buffers)}\n\nFirst fit places them in the order {', '.join(order)}, each at the lowest offset where "
        "it overlaps no placed buffer that is live with it. How many bytes has the arena?"
    )
    reason = "Offsets: " + ", ".join(f"{name} {at}" for name, at in offsets.items()) + "."
    return Question(text, height(buffers, offsets), reason)


@kind("day05", "cache")
def cache_misses(rng: random.Random) -> Question:
    """How many accesses miss a small cache."""
    cache = Cache(sets=rng.choice((1, 2)), ways=rng.choice((1, 2)), line=4)
    addresses = [rng.randint(0, 15) for _ in range(9)]
    text = (
        f"A cache has {plural(cache.sets, 'set')} of {plural(cache.ways, 'line')}, each of 4 "
        "bytes, and evicts the line that was used least recently. Line n is in set n modulo the number of sets. It is "
        f"empty at first. How many of these one-byte accesses miss?\n\n{' '.join(map(str, addresses))}"
    )
    reason = f"Their lines are {' '.join(str(a // 4) for a in addresses)}."
    return Question(text, misses(addresses, 1, cache), reason)


@kind("day05", "sectors")
def sectors(rng: random.Random) -> Question:
    """How many sectors a warp loads."""
    stride, offset = rng.choice((1, 1, 2, 3, 4, 8, 16)), rng.choice((0, 0, 1, 4, 8))
    index = f"{stride} · lane + {offset}" if offset else f"{stride} · lane"
    text = (
        f"The 32 lanes of a warp load the floats x[{index}], 4 bytes each; x starts at a line. Memory delivers sectors "
        "of 32 bytes. How many?"
    )
    addresses = [4 * (stride * lane + offset) for lane in range(32)]
    answer = len(transactions(addresses).sectors)
    return Question(
        text, answer, f"The lanes touch bytes {addresses[0]} to {addresses[-1] + 3}, in steps of {4 * stride}."
    )


@kind("day05", "banks")
def banks(rng: random.Random) -> Question:
    """How many steps a shared memory takes."""
    stride = rng.choice((1, 2, 3, 4, 6, 8, 12, 16, 31, 32, 33, 48))
    counts = [0] * 32
    for lane in range(32):
        counts[stride * lane % 32] += 1
    text = (
        f"32 lanes read the words number {stride} · lane of a shared memory with 32 banks; word n is in bank n modulo "
        "32, and in a step each bank delivers one word. How many steps does it take?"
    )
    reason = (
        "The bank that most lanes ask needs a step for each of them: strides with a common divisor with 32 collide."
    )
    return Question(text, max(counts), reason)
