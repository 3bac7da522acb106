"""Day 5, what a warp asks for: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from passlab.judge import Case, Finding, plural, shown
from passlab.judge.forms import why_not_a_list
from passlab.memory.cache import LINE, SECTOR, touched

#: Each lane wants at most 16 bytes, which are in two blocks at most.
MOST = 64


def load(name: str, addresses: Sequence[int | None], size: int = 4) -> Case:
    """Return the case of a load: an address in bytes for each of 32 lanes, None for one that is switched off.

    Where all are, there is nothing to count, and the case does not decide `did`: (0, 0) counts nothing.
    """
    about = () if any(at is not None for at in addresses) else ("valid", "spared")
    return Case(name, lambda: (list(addresses), size), about)


def cases() -> list[Case]:
    return [
        load("neighbours", [4 * lane for lane in range(32)]),
        load("every second float", [8 * lane for lane in range(32)]),
        load("neighbours, 16 bytes off", [16 + 4 * lane for lane in range(32)]),
        load("one address for all", [256] * 32),
        load("half of the warp", [4 * lane if lane < 16 else None for lane in range(32)]),
        load("not aligned", [6 + 8 * lane for lane in range(32)]),
    ]


def _invalid(value: Any) -> str:
    if wrong := why_not_a_list(value, "a pair, the numbers of sectors and of lines", 2):
        return wrong
    if bad := [n for n in value if type(n) is not int]:
        return f"Both numbers must be of type int; {shown(bad[0])} is of type {type(bad[0]).__name__}."
    small = all(0 <= n <= MOST for n in value)
    return "" if small else f"Both numbers must be from 0 to {MOST}: 32 lanes of 16 bytes cannot ask for more."


def judge(case: Case, value: Any) -> Iterator[Finding]:
    addresses, size = case.build()
    broken = _invalid(value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    for verdict in ("did", "spared"):
        message = ""
        for number, block, name in zip(value, (SECTOR, LINE), ("sector", "line"), strict=True):
            blocks = touched(addresses, size, block)
            if number < len(blocks) if verdict == "did" else number > len(blocks):
                first = f", the first at byte {blocks[0] * block}" if blocks else ""
                message = message or (
                    f"The lanes ask for {plural(len(blocks), name)} of {block} bytes{first}; you count {number}."
                )
        yield Finding(verdict, not message, message)
