"""Day 5, slots instead of offsets: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import Any

from passlab.judge import Case, Finding, enough, shown
from passlab.judge.forms import why_not_a_dict

#: The bytes of all slots may exceed those of the rule in the text by this much.
ALLOWED = 1.1


def row(
    name: str,
    lower: int,
    upper: int,
    size: int = 64,
    *operands: str,
    kind: str = "value",
    view_of: str | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Return a value as an answer gets it. `operands`: those of an element-wise operation."""
    place = {"lower": lower, "upper": upper, "size": size, "dtype": dtype}
    return {"name": name, **place, "kind": kind, "view_of": view_of, "elementwise": list(operands)}


def count_case(name: str, rows: Sequence[dict], *verdicts: str) -> Case:
    """Return a case whose slots are counted; `verdicts` are further verdicts."""
    about = ("valid", "same", "did", "spared", *verdicts)
    return Case(name, lambda: ([one | {"elementwise": list(one["elementwise"])} for one in rows],), about)


def bytes_case(name: str, rows: Sequence[dict]) -> Case:
    """Return a case without element-wise operations, whose bytes are counted, too."""
    return count_case(name, rows, "cost")


def drawn(rng: random.Random, steps: int, sizes: Sequence[int], inplace: bool = True) -> list[dict]:
    """Return a random program of `steps` steps, unordered. The last value is an output; others may be too."""
    rows: list[dict] = []
    for step in range(steps):
        kind, base, operands = "value", None, []
        live = [one["name"] for one in rows[-5:]]
        size = rng.choice(sizes)
        if inplace and step < 2:
            kind = "input"
        elif inplace and rng.random() < 0.6:
            operands = rng.sample(live, min(len(live), rng.choice([1, 2])))
            size = next(one["size"] for one in rows if one["name"] == operands[0])
        elif inplace and rng.random() < 0.5:
            base = rng.choice(live)
            size = next(one["size"] for one in rows if one["name"] == base)
        dtype = rng.choice(["float32", "float32", "float32", "int32"])
        rows.append(row(f"v{step}", step, step + 1, size, *operands, kind=kind, view_of=base, dtype=dtype))
        for one in rows[:-1]:
            if one["name"] in operands or one["name"] == base:
                one["upper"] = step + 1
    for one in rows:
        if one["upper"] == one["lower"] + 1:
            one["upper"] = min(steps, one["upper"] + rng.randint(0, 4))
        if one["kind"] == "value" and rng.random() < 0.1:
            one["kind"] = "output"
    rows[-1]["kind"] = "output"
    rng.shuffle(rows)
    return rows


#: relu and exp may run in place; the product of `b` with itself may not, and `e` cannot take over the caller's `x`.
CHAIN = [
    row("x", 0, 7, kind="input"),
    row("a", 1, 3),
    row("b", 2, 4, 64, "a"),
    row("c", 3, 5),
    row("d", 4, 6, 64, "c"),
    row("e", 5, 7, 64, "d", "x"),
    row("f", 6, 7, 64, "e", "x", kind="output"),
]
#: `v` looks at the memory of `a`, which therefore is live until `d` has read it.
VIEWS = [
    row("a", 0, 2, 48),
    row("v", 1, 5, 48, view_of="a"),
    row("b", 2, 4, 48),
    row("c", 3, 5, 48, "b"),
    row("d", 4, 6, 48, "v", "c"),
    row("e", 5, 6, 48, "d", kind="output"),
]
#: `y` is returned, so its memory is not given away, although `b` is the last to read it.
RETURNED = [row("a", 0, 2), row("y", 1, 3, 64, "a", kind="output"), row("b", 2, 4, 64, "y"), row("c", 3, 5, 64, "b")]
#: A small and a large slot become free; the small value comes first.
SIZES = [row("wide", 0, 2, 100), row("slim", 1, 2, 10), row("short", 2, 4, 10), row("long", 3, 4, 100, kind="output")]


def cases() -> list[Case]:
    rng = random.Random(4)
    return [
        count_case("a chain", CHAIN),
        count_case("a view", VIEWS),
        count_case("a result that is read", RETURNED),
        bytes_case("two sizes", SIZES),
        bytes_case("20 values of several sizes", drawn(rng, 20, (8, 64, 256, 1024), False)),
        count_case("a drawn program", drawn(rng, 16, (32, 64))),
    ]


@dataclass
class Memory:
    """What a value that owns memory needs: live in [lower, upper), where `upper` is infinite for what is returned."""

    row: dict[str, Any]
    upper: float
    viewed: bool = False

    def may_take(self, other: Memory) -> bool:
        """Return whether the operation that makes this may write into the memory of the other."""
        row, old = self.row, other.row
        return (
            old["name"] in row["elementwise"]
            and other.upper == row["lower"] + 1
            and not other.viewed
            and (row["size"], row["dtype"]) == (old["size"], old["dtype"])
        )


def memories(rows: Sequence[dict]) -> dict[str, Memory]:
    """Return what needs a slot, by its name, in the order in which it is made."""
    named = {one["name"]: one for one in rows}
    owners = {
        one["name"]: Memory(one, one["upper"])
        for one in sorted(rows, key=lambda one: one["lower"])
        if one["view_of"] is None and one["kind"] != "input"
    }
    for one in rows:
        owner = one
        while owner["view_of"] is not None:
            owner = named[owner["view_of"]]
        if memory := owners.get(owner["name"]):
            memory.upper = max(memory.upper, inf if one["kind"] == "output" else one["upper"])
            memory.viewed |= owner is not one
    return owners


def least_slots(owners: Mapping[str, Memory]) -> int:
    """Return the fewest slots: the most that are live in one step, without one if the step may run in place."""
    most = 0
    for new in owners.values():
        step = new.row["lower"]
        live = [one for one in owners.values() if one.row["lower"] <= step < one.upper]
        most = max(most, len(live) - any(new.may_take(one) for one in live))
    return most


def rule_bytes(owners: Mapping[str, Memory]) -> int:
    """Return the bytes of all slots by the rule of the text, which is for programs without element-wise operations."""
    width: list[int] = []
    until: list[float] = []
    for memory in owners.values():
        size = memory.row["size"]
        free = [slot for slot, end in enumerate(until) if end <= memory.row["lower"]]
        if not free:
            free = [len(width)]
            width.append(0)
            until.append(0)
        slot = min(free, key=lambda slot: (width[slot] < size, abs(width[slot] - size)))
        width[slot], until[slot] = max(width[slot], size), memory.upper
    return sum(width)


def _invalid(value: Any, owners: Mapping[str, Memory], named: Mapping[str, dict]) -> str:
    def each(name: str, slot: Any) -> str:
        if type(slot) is not int:
            return f"The slot of {name} is {shown(slot)}, of type {type(slot).__name__}; it must be an int."
        return "" if slot >= 0 else f"The slot of {name} is negative; slots are numbered from 0."

    for name in value if isinstance(value, dict) else ():
        if isinstance(name, str) and name in named and name not in owners:
            return f"{shown(name)} is an input or a view, and gets no slot."
    form = "a dict from the name of a value to the number of its slot"
    return why_not_a_dict(value, form, owners, "slot", "the name of a value", each)


def clashes(owners: Mapping[str, Memory], slot: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield (verdict, sentence) for each pair in one slot of which one would write over what is still needed."""
    for old, new in combinations(owners.values(), 2):
        one, other = old.row, new.row
        step = other["lower"]
        if slot[one["name"]] != slot[other["name"]] or old.upper <= step or new.may_take(old):
            continue
        pair = f"{one['name']} and {other['name']} share a slot, but"
        if other["lower"] >= one["upper"]:
            reason = "it is returned" if old.upper == inf else "a view of it is read later"
            yield "spared", f"{pair} {one['name']} is still needed in step {step}: {reason}."
        elif one["name"] in other["elementwise"]:
            yield "spared", f"{pair} {other['name']} may not be made in place in {one['name']}: {_why(old, new)}."
        else:
            yield "same", f"{pair} both are live in step {step}."


def _why(old: Memory, new: Memory) -> str:
    if old.upper == inf:
        return "that is returned"
    if old.upper > new.row["lower"] + 1:
        return "that is needed later"
    if old.viewed:
        return "that has a view"
    return f"one has {old.row['size']} bytes of {old.row['dtype']}, the other {new.row['size']} of {new.row['dtype']}"


def shared(clashes: Iterable[tuple[str, str]]) -> list[Finding]:
    """Return same and spared, from the (verdict, sentence) of each clash; the first of a verdict counts."""
    wrong: dict[str, str] = {}
    for verdict, sentence in clashes:
        wrong.setdefault(verdict, sentence)
    return [Finding(verdict, verdict not in wrong, wrong.get(verdict, "")) for verdict in ("same", "spared")]


def few(slots: Mapping[str, int], buffers: Mapping[str, Memory]) -> Finding:
    """Return the verdict on the number of slots."""
    used, least = len(set(slots.values())), least_slots(buffers)
    return Finding("did", used <= least, "" if used <= least else f"You use {used} slots; {enough(least)}.")


def judge(case: Case, value: Any) -> Iterator[Finding]:
    (rows,) = case.build()
    owners = memories(rows)
    broken = _invalid(value, owners, {one["name"]: one for one in rows})
    yield Finding("valid", not broken, broken)
    if broken:
        return
    judged = shared(clashes(owners, value))
    yield from judged
    if not all(finding.ok for finding in judged):
        return
    yield few(value, owners)
    if case.asks("cost"):
        widest: dict[int, int] = {}
        for name, memory in owners.items():
            widest[value[name]] = max(widest.get(value[name], 0), memory.row["size"])
        total, rule = sum(widest.values()), rule_bytes(owners)
        message = f"Your slots have {total} bytes in all; by the rule of the text they have {rule}."
        yield Finding("cost", total <= rule * ALLOWED, "" if total <= rule * ALLOWED else message)
