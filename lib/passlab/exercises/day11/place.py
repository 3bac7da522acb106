"""Day 11, a place for everything: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from passlab.exercises.day11._zoo import network
from passlab.judge import Case, Finding, shown
from passlab.judge.forms import why_not_a_dict
from passlab.wafer.machine import Machine

MEMORY = 48 * 1024
Operations = Sequence[dict[str, Any]]


def plain(family: str, seed: int) -> list[dict[str, Any]]:
    """Return a network's operations as plain data."""
    return [
        {"name": o.name, "weights": o.weights, "window": o.window, "result": o.result} for o in network(family, seed)
    ]


def each(operation: dict[str, Any], rows: int, columns: int) -> int:
    """Return the bytes that each core of a rectangle holds."""
    shares = (operation["weights"], rows * columns), (operation["window"], columns), (operation["result"], rows)
    return sum(-(-size // parts) for size, parts in shares)


def place_case(name: str, operations: Operations, rows: int, columns: int, about: str, memory: int = MEMORY) -> Case:
    return Case(name, lambda: ([dict(o) for o in operations], rows, columns, memory), ("valid", about, "spared"))


def op(name: str, weights: int = 0, window: int = 0, result: int = 0) -> dict[str, Any]:
    return {"name": name, "weights": weights, "window": window, "result": result}


#: `wide` needs two columns for its window, `tall` two rows for its result; the two small ones share a core.
SHAPES = [op("wide", 400, 1200, 100), op("tall", 400, 100, 1200), op("one", 300, 50, 50), op("two", 200, 50, 50)]


def cases() -> list[Case]:
    return [
        place_case("four operations", SHAPES, 3, 4, "did", 1000),
        place_case("shared cores", SHAPES, 2, 3, "cost", 1000),
        place_case("a GPT block", plain("gpt", 1), 4, 6, "did"),
        place_case("a small ResNet", plain("resnet", 1), 9, 12, "cost"),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    operations, rows, columns, memory = case.build()
    broken = _broken(operations, value, Machine(rows, columns))
    yield Finding("valid", not broken, broken)
    if broken:
        return
    load: dict[tuple[int, int], int] = {}
    names: dict[tuple[int, int], list[str]] = {}
    cut = ""
    for operation in operations:
        top, left, high, wide = value[operation["name"]]
        if high * wide > 1 and each(operation, 1, 1) <= memory and not cut:
            whole = each(operation, 1, 1)
            cut = (
                f"{operation['name']} is cut into {high} × {wide}, and fits on one core: {whole:,} of {memory:,} bytes."
            )
        for core in ((r, c) for r in range(top, top + high) for c in range(left, left + wide)):
            load[core] = load.get(core, 0) + each(operation, high, wide)
            names.setdefault(core, []).append(operation["name"])
    full = max(load, key=load.get)
    holders = ", ".join(names[full][:4]) + (f" and {len(names[full]) - 4} more" if len(names[full]) > 4 else "")
    fits = load[full] <= memory
    message = f"Core {full} would hold {load[full]:,} bytes of {holders}; its memory is {memory:,}."
    verdict = "cost" if case.asks("cost") else "did"
    yield Finding(verdict, fits, "" if fits else message)
    yield Finding("spared", not cut, cut)


def _broken(operations: Operations, value: Any, machine: Machine) -> str:
    """Return why a value does not give each operation a rectangle on the grid, or ""."""

    def each(name: str, rectangle: Any) -> str:
        if not isinstance(rectangle, list | tuple) or len(rectangle) != 4 or any(type(x) is not int for x in rectangle):
            return f"{name}: a place is (row, column, rows, columns), four whole numbers; {shown(rectangle)} is not."
        top, left, high, wide = rectangle
        if not (0 < high <= machine.rows and 0 < wide <= machine.columns):
            return f"{name}: no rectangle of {shown(high)} × {shown(wide)} cores lies on this grid."
        for corner in ((top, left), (top + high - 1, left + wide - 1)):
            if any(abs(x) > 10**9 for x in corner):
                return f"{name}: {shown(corner)} is far off the grid."
            if off := machine.why_not_a_core(corner):
                return f"{name}: {off}"
        return ""

    names = [operation["name"] for operation in operations]
    form = "a dictionary, name → (row, column, rows, columns)"
    return why_not_a_dict(value, form, names, "place", "an operation", each)
