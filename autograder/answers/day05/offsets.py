"""Hidden cases and answers of day05.offsets."""

from __future__ import annotations

import random

import torch

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day05.offsets import easy_case, hard_case, model_case, shuffled, zoo
from passlab.judge import Case
from passlab.memory.buffers import MINIMALLOC, Buffer, instance

# ---------------------------------------------------------------------------------------------------- hidden cases

#: A model, whether it is trained, and the alignment.
MODELS = (("gpt", False, 64), ("unet", False, 256), ("lstm", False, 1), ("vit", False, 64), ("attention", True, 16))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    size, late = sorted(rng.sample(range(20, 900), 3), reverse=True), rng.randrange(50)
    hole = [Buffer("first", 0, 2, size[0]), Buffer("middle", 1, 4, size[1]), Buffer("late", 3, 5, size[2])]
    relay = [Buffer(f"t{i}", i * i, (i + 1) ** 2, size[0]) for i in range(9)]
    pairs = [Buffer(f"p{i}", i // 2, i // 2 + 1, 1 + size[1] % 60) for i in range(10)]
    full = [Buffer("a", 0, 2, size[1] | 1), Buffer("b", 1, 3, size[0] | 1)]
    full += [Buffer("empty", 0, 3, 0), Buffer("none", 1, 2, 0)]
    large = [Buffer("first", 0, 2, 2**33 + 1), Buffer("middle", 1, 4, 2**32 + 3), Buffer("late", 3, 5, 2**33 - 7)]
    cases = [
        easy_case("a drawn hole", shuffled([*hole, Buffer("empty", late, late + 1, 0)], rng)),
        easy_case("one after the other, drawn", shuffled(relay, rng)),
        easy_case("pairs, aligned to 64", shuffled(pairs, rng), 64),
        easy_case("no bytes where memory is full", shuffled(full, rng), 16),
        easy_case("a single buffer", [Buffer("alone", late, late + 1, size[0])], 32),
        easy_case("gigabytes", shuffled(large, rng)),
        easy_case("none", []),
    ]
    for name, training, alignment in MODELS:
        buffers = shuffled(zoo(name, training), rng)
        kind = "training" if training else "running"
        cases.append(model_case(f"{kind} {name}, aligned to {alignment}", lambda buffers=buffers: buffers, alignment))
    for letter in ("I", "K", *rng.sample([letter for letter in MINIMALLOC if letter not in "IK"], 2)):
        buffers = shuffled(instance(letter), rng)
        cases.append(hard_case(f"MiniMalloc's {letter}", lambda buffers=buffers: buffers))
    return cases


# ---------------------------------------------------------------------------------------------------- answers


def _meet(a, b):
    return a.lower < b.upper and b.lower < a.upper


def _up(number, alignment):
    return -(-number // alignment) * alignment


def _first_fit(buffers, alignment, order, meet=_meet, best=False):
    plan, placed = {}, []
    for buffer in sorted(buffers, key=order):
        floor, gaps = 0, []
        for other in sorted((b for b in placed if meet(b, buffer)), key=lambda b: plan[b.name]):
            if floor + buffer.size <= plan[other.name]:
                gaps.append((plan[other.name] - floor, floor))
            floor = max(floor, _up(plan[other.name] + other.size, alignment))
        chosen = min(gaps)[1] if gaps and best else gaps[0][1] if gaps else floor
        plan[buffer.name] = chosen
        placed.append(buffer)
    return plan


def _start(buffer):
    return buffer.lower, -buffer.size


def _size(buffer):
    return -buffer.size, buffer.lower


@right("fills the arena level by level: at each offset, all that can begin there, the widest first")
def skyline(buffers, alignment):
    def fill(key):
        left, plan = sorted(buffers, key=key), {}
        lowest = {b.name: 0 for b in buffers}
        while left:
            level = min(lowest[b.name] for b in left)
            for buffer in list(left):
                if lowest[buffer.name] == level:
                    plan[buffer.name] = level
                    left.remove(buffer)
                    for other in left:
                        if _meet(other, buffer):
                            lowest[other.name] = max(lowest[other.name], _up(level + buffer.size, alignment))
        return plan

    keys = [_start, _size, lambda b: -b.upper, lambda b: b.lower - b.upper]
    plans = [fill(key) for key in keys] + [_first_fit(buffers, alignment, key) for key in (_size, _start)]
    return min(plans, key=lambda plan: max((plan[b.name] + b.size for b in buffers), default=0))


@right("fills in both directions of time, and keeps the better plan")
def both_ways(buffers, alignment):
    end = max((b.upper for b in buffers), default=0)
    mirrored = [Buffer(b.name, end - b.upper, end - b.lower, b.size) for b in buffers]
    plans = [skyline(buffers, alignment), skyline(mirrored, alignment)]
    return min(plans, key=lambda plan: max((plan[b.name] + b.size for b in buffers), default=0))


@wrong("cost", "largest first is the best order, so one plan is enough, in the lowest hole or in the smallest")
def by_size(buffers, alignment):
    return _first_fit(buffers, alignment, _size)


@wrong("cost", "in the order in which the program makes them")
def by_start(buffers, alignment):
    return _first_fit(buffers, alignment, _start)


@wrong("did", "every buffer its own place, as if all lived at once")
def side_by_side(buffers, alignment):
    plan, at = {}, 0
    for buffer in buffers:
        plan[buffer.name] = at
        at = _up(at + buffer.size, alignment)
    return plan


@wrong("cost", "slots: a buffer takes a slot that is free, and each slot is as large as its largest buffer")
def by_slots(buffers, alignment):
    slots, plan = [], {}
    for buffer in sorted(buffers, key=_start):
        slot = next((s for s in slots if s["until"] <= buffer.lower), None)
        if slot is None:
            slots.append(slot := {"size": 0, "names": []})
        slot["until"] = buffer.upper
        slot["size"] = max(slot["size"], _up(buffer.size, alignment))
        slot["names"].append(buffer.name)
    at = 0
    for slot in slots:
        plan |= dict.fromkeys(slot["names"], at)
        at += slot["size"]
    return plan


@wrong("spared", "looks only above what is there: a hole below is never used")
def on_top(buffers, alignment):
    plan, placed = {}, []
    for buffer in sorted(buffers, key=_start):
        ends = [_up(max(plan[b.name] + b.size for b in placed), alignment)] if placed else [0]
        below = [b for b in placed if _meet(b, buffer)]
        plan[buffer.name] = 0 if not below else ends[0]
        placed.append(buffer)
    return plan


@wrong("valid", "computes in numbers of 32 bits, which have room for 24 bits of an offset")
def in_floats(buffers, alignment):
    return {
        name: int(torch.tensor(float(offset), dtype=torch.float32))
        for name, offset in skyline(buffers, alignment).items()
    }


touching = edited("spared", "a buffer that ends where another begins meets it")(
    (
        "other.lower < buffer.upper and buffer.lower < other.upper",
        "other.lower <= buffer.upper and buffer.lower <= other.upper",
    )
)
unaligned = edited("valid", "forgets the alignment")(
    ("-(-(plan[buffer.name] + buffer.size) // alignment) * alignment", "plan[buffer.name] + buffer.size")
)
only_at_the_start = edited("valid", "two buffers meet if one is live when the other begins")(
    ("other.lower < buffer.upper and buffer.lower < other.upper", "buffer.lower <= other.lower < buffer.upper")
)


@wrong("valid", "what has no bytes needs no place")
def without_empty(buffers, alignment):
    return skyline([b for b in buffers if b.size], alignment)


unit_each = edited("spared", "a buffer takes a unit of the alignment at least, also if it has no bytes")(
    ("plan[buffer.name] + buffer.size", "plan[buffer.name] + max(buffer.size, 1)")
)


@wrong("valid", "puts what has no bytes behind the rest, and does not align it")
def empty_ones_last(buffers, alignment):
    plan = skyline([b for b in buffers if b.size], alignment)
    end = max((plan[b.name] + b.size for b in buffers if b.size), default=0)
    return plan | {b.name: end for b in buffers if not b.size}


EQUIVALENT = {
    ("max(..., default=0)", "max(..., default=1)"): "without buffers both plans are empty, so either will do",
    ("-b.upper, -b.size", "-b.upper, b.size"): "which of several buffers with one end goes first is a matter of luck",
}
