"""Random programs: structured ones (reducible), and ones with jumps into loops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from passlab.dataflow.cfg import Block, Instruction, Program, Terminator
from passlab.dataflow.order import reverse_postorder

_BINARY = ("add", "sub", "mul", "min", "max", "lt", "eq")


def random_program(seed: int, size: int = 8, variables: int = 4, jumps: bool = False, shuffle: bool = False) -> Program:
    """Return a program of about `size` blocks with two parameters; the same for the same seed.

    All variables are assigned in the entry, so no run reads one without a value; a run may not end.
    jumps: blocks jump anywhere, also into loops. shuffle: the blocks after the entry are in random order.
    """
    rng = random.Random(seed)
    names = [f"v{i}" for i in range(variables)]
    start = [Instruction(name, "const", (), rng.randint(-3, 3)) for name in names]
    edges = _jumps(rng, size) if jumps else _structured(rng, size)
    blocks = []
    for i, targets in enumerate(edges):
        body = (start if i == 0 else []) + [_instruction(rng, names) for _ in range(rng.randint(0, 3))]
        if not targets:
            end = Terminator("return", tuple(rng.sample(names, min(2, variables))))
        elif len(set(targets)) == 1:
            end = Terminator("jump", (), (f"b{targets[0]}",))
        else:
            # Half of the conditions are parameters: a constant condition makes one target unreachable.
            condition = rng.choice(names if rng.random() < 0.5 else ("p", "q"))
            end = Terminator("branch", (condition,), tuple(f"b{t}" for t in targets))
        blocks.append(Block(f"b{i}", tuple(body), end))
    program = Program(f"drawn{seed % 1000}", ("p", "q"), tuple(blocks))
    reachable = set(reverse_postorder(program))
    entry, *rest = (block for block in blocks if block.name in reachable)
    if shuffle:
        rng.shuffle(rest)
    return replace(program, blocks=(entry, *rest))


def _instruction(rng: random.Random, names: Sequence[str]) -> Instruction:
    dest, kind = rng.choice(names), rng.random()
    if kind < 0.2:
        return Instruction(dest, "const", (), rng.randint(-3, 3))
    if kind < 0.35:
        return Instruction(dest, "copy", (rng.choice([*names, "p", "q"]),))
    if kind < 0.4:
        return Instruction("", "print", (rng.choice(names),))
    return Instruction(dest, rng.choice(_BINARY), (rng.choice([*names, "p", "q"]), rng.choice([*names, "p"])))


def _jumps(rng: random.Random, size: int) -> list[list[int]]:
    edges = [[i + 1, rng.randrange(1, size)] if rng.random() < 0.7 else [i + 1] for i in range(size - 1)]
    return [*edges, []]


def _structured(rng: random.Random, size: int) -> list[list[int]]:
    """Return the targets of each block of nested ifs and loops."""
    edges: list[list[int]] = [[]]

    def new() -> int:
        edges.append([])
        return len(edges) - 1

    def body(at: int, budget: int, depth: int) -> int:
        """Add about `budget` blocks from block `at` on; return the last one, which has no targets yet."""
        while budget >= 3:
            part = rng.randint(1, budget - 2) if depth < 3 else 1
            kind = rng.random()
            if kind < 0.4:  # if: at → then, else → join
                yes, no = new(), new()
                edges[at] = [yes, no]
                ends = body(yes, part // 2, depth + 1), body(no, part // 2, depth + 1)
                at = new()
                for end in ends:
                    edges[end] = [at]
                budget -= part + 2
            elif kind < 0.8:  # while: at → head → body → head, head → out
                head, inner = new(), new()
                edges[at] = [head]
                end = body(inner, part, depth + 1)
                out = new()
                edges[head], edges[end] = [inner, out], [head]
                at = out
                budget -= part + 2
            else:
                following = new()
                edges[at] = [following]
                at, budget = following, budget - 1
        return at

    body(0, size, 0)
    return edges
