"""Programs that are drawn, for the hidden cases of day 6."""

from __future__ import annotations

import random

from passlab.dataflow import Program, parse, random_program


def drawn(rng: random.Random, count: int, size: int, jumps: bool = False) -> list[Program]:
    """Return some programs of about `size` blocks, which stand in any order."""
    return [
        random_program(rng.randrange(10**9), size, variables=rng.randint(3, 6), jumps=jumps, shuffle=True)
        for _ in range(count)
    ]


def corridor(length: int) -> Program:
    """Return a row of blocks in which each may go to both of its neighbours, with a way out at either end.

    Facts of both ends pass through all of it, one forward and one backward in whatever order the blocks are visited, so
    that the number of rounds grows with the length.
    """
    names = ["left", *(f"h{i}" for i in range(length)), "right"]
    rooms = [
        f"{h}:\n  branch go {after} {before}" for before, h, after in zip(names, names[1:], names[2:], strict=False)
    ]
    return parse(f"""
program corridor(go, x, y)
entry:
  k = const 7
  j = const 8
  jump h{length // 2}
left:
  k = add k x
  branch go h0 west
right:
  j = add j x
  branch go h{length - 1} east
{chr(10).join(rooms)}
west:
  a = neg y
  return a k
east:
  b = neg x
  return b j
""")
