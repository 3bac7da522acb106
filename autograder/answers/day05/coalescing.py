"""Hidden cases and answers of day05.coalescing."""

from __future__ import annotations

import random

import numpy as np

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day05.coalescing import load
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    base, shift = 128 * rng.randint(1, 50), rng.randint(1, 31)
    stride = 4 * rng.randint(3, 40)
    lanes = list(range(32))
    rng.shuffle(lanes)
    some = [rng.randrange(4096) if rng.random() < 0.6 else None for _ in range(32)]
    patterns = {
        "nothing at all": ([None] * 32, 4),
        "one lane, at byte 0": ([None] * 31 + [0], 4),
        "one lane, across the edge of a line": ([None] * 7 + [base - 1] + [None] * 24, 2),
        "one lane, up to the edge of a sector": ([base + 16] + [None] * 31, 16),
        "neighbours of 16 bytes": ([base + 16 * lane for lane in range(32)], 16),
        "neighbours, not aligned": ([base + shift + 4 * lane for lane in range(32)], 4),
        "bytes": ([base + lane for lane in range(32)], 1),
        "a stride": ([base + stride * lane for lane in range(32)], 4),
        "backwards": ([base + 4 * (31 - lane) for lane in range(32)], 4),
        "neighbours, mixed up": ([base + 4 * lane for lane in lanes], 4),
        "two addresses": ([base + 4096 * (lane % 2) for lane in range(32)], 8),
        "far apart": ([base, base + 2**40, *([None] * 30)], 4),
        "as far apart as can be": ([base, 2**47 + base, *([None] * 30)], 4),
        "far out": ([2**40 + base + 96 * lane for lane in range(32)], 4),
        "elements of 12 bytes": ([base + shift + 12 * lane for lane in range(32)], 12),
        "a sector of each line": ([base + 128 * lane + 96 for lane in range(32)], 8),
        "12 bytes, up to the edge of a sector": ([base + 32 * lane + 20 for lane in range(32)], 12),
        "3 bytes, the last across the edge of a sector": ([base + 30] + [None] * 31, 3),
        "5 bytes, the last across the edge of a sector": ([base + 28] + [None] * 31, 5),
        "15 bytes, the last across the edge of a line": ([base - 14] + [None] * 31, 15),
        "two lanes, both across the edge of a sector": ([base + 30, base + 31] + [None] * 30, 4),
        "anywhere": ([rng.randrange(2**16) for _ in range(32)], rng.choice([1, 2, 4, 8, 16])),
        "anywhere, with a mask": (some, 8),
    }
    return [load(name, addresses, size) for name, (addresses, size) in patterns.items()]


@right("counts byte by byte")
def by_bytes(addresses, size):
    nbytes = {at + k for at in addresses if at is not None for k in range(size)}
    return [len({byte // 32 for byte in nbytes}), len({byte // 128 for byte in nbytes})]


@right("goes through the sorted addresses once, and needs the last byte of each only")
def sorted_once(addresses, size):
    counts = []
    for block in (32, 128):
        count, last = 0, -1
        for at in sorted(at for at in addresses if at is not None):
            for n in (at // block, (at + size - 1) // block):
                count += n > last
                last = max(n, last)
        counts.append(count)
    return tuple(counts)


first_byte = edited("did", "looks at the first byte of each element only")(
    ("(at + size - 1) // block + 1", "at // block + 1")
)
up_to_size = edited("spared", "counts the byte behind the element, too: the last one is at + size - 1")(
    ("(at + size - 1) // block + 1", "(at + size) // block + 1")
)
truth = edited("did", "takes address 0 for no address")(("at is not None", "at"))
for_each_lane = edited("spared", "counts a transaction for each lane, also where two want the same block")(
    ("numbers = set()", "numbers = []"), ("numbers.update", "numbers.extend")
)


@wrong("did", "divides the bytes that are wanted by the size of a block: as if they lay side by side from an edge on")
def side_by_side(addresses, size):
    nbytes = len({at + k for at in addresses if at is not None for k in range(size)})
    return -(-nbytes // 32), -(-nbytes // 128)


@wrong("spared", "takes everything from the lowest address to the highest")
def the_span(addresses, size):
    some = [at for at in addresses if at is not None] or [0]
    low, high = min(some), max(some) + size - 1
    return high // 32 - low // 32 + 1, high // 128 - low // 128 + 1


@wrong("spared", "lets a lane that is switched off ask for address 0")
def mask_is_zero(addresses, size):
    return by_bytes([at or 0 for at in addresses], size)


@wrong("did", "keeps addresses in float32, which has 24 bits: far out, neighbours become one")
def as_floats(addresses, size):
    first = np.array([at for at in addresses if at is not None], dtype=np.float32)
    numbers = []
    for block in (32, 128):
        blocks = {int(at + k) // block for at in first for k in (0, size - 1)}
        numbers.append(len(blocks))
    return tuple(numbers)


@wrong("did", "four sectors make a line, whichever they are")
def four_to_a_line(addresses, size):
    sectors = by_bytes(addresses, size)[0]
    return sectors, -(-sectors // 4)


@wrong("spared", "rounds the size up to a power of two")
def rounded_size(addresses, size):
    return by_bytes(addresses, 1 << (size - 1).bit_length())


@wrong("did", "takes an odd size for the even one below it: elements have 2, 4, 8 bytes, or 1")
def even_size(addresses, size):
    return by_bytes(addresses, max(1, size // 2 * 2))


@wrong("did", "keeps 44 bits of each address, where the text allows 48")
def fewer_bits(addresses, size):
    return by_bytes([at if at is None else at % 2**44 for at in addresses], size)


@wrong("spared", "counts a block again after another: two lanes that cross one edge want four sectors")
def changes(addresses, size):
    counts = []
    for block in (32, 128):
        some = sorted(at for at in addresses if at is not None)
        numbers = [n for at in some for n in range(at // block, (at + size - 1) // block + 1)]
        counts.append(len([n for n, last in zip(numbers, [None, *numbers], strict=False) if n != last]))
    return tuple(counts)


@wrong("spared", "moves whole lines: four sectors for each")
def whole_lines(addresses, size):
    lines = by_bytes(addresses, size)[1]
    return 4 * lines, lines


@wrong("valid", "returns the numbers of the sectors and lines in place of how many there are")
def which(addresses, size):
    nbytes = {at + k for at in addresses if at is not None for k in range(size)}
    return sorted({byte // 32 for byte in nbytes}), sorted({byte // 128 for byte in nbytes})
