"""`make bench`, part wafer-mapping: what a mapping costs to price, and what the search gains over rows and over greedy.

Greedy gets as many evaluations as the search: it is run again and again in random orders of the operations, and a run
counts a position for each piece and core.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from autograder.bench.figures import Figure, at_least, at_most, cpu

EVALUATIONS = 10**7
#: Model → side of its grid: as large as its weights need, and at least 24.
SIDES = {"attention": 24, "gpt": 24, "lstm": 24, "mlp": 24, "residual": 24, "unet": 24, "vit": 24}
SIDES |= {"convnet": 24, "mobilenetv2": 40, "resnet18": 40, "resnet50": 56}


def wafer_mapping(largest: int) -> Iterator[Figure | str]:
    """Yield the figures. `largest`: the most operations to price."""
    yield from pricing(min(10_000, largest))
    yield from placing(EVALUATIONS)


def pricing(count: int) -> Iterator[Figure | str]:
    """Measure the CPU time to check and price a mapping of `count` operations, each on four cores, two reads each."""
    from passlab.wafer.machine import Machine
    from passlab.wafer.mapping import at, load, rectangle
    from passlab.wafer.pieces import cut
    from passlab.wafer.work import Operation, Read

    yield f"pricing a mapping of {count:,} operations"
    side = 2 * math.ceil(count**0.5)
    machine = Machine(side, side)
    work = [
        Operation(f"o{i}", tuple(Read(f"o{j}", 64) for j in {i - 1, i - 7} if j >= 0), 4096, 256, 256, 64, 8192, True)
        for i in range(count)
    ]
    pieces = cut(work, machine, shapes={o.name: (2, 2) for o in work})
    wide = side // 2
    plan = {o.name: rectangle(2 * (i // wide), 2 * (i % wide), 2, 2) for i, o in enumerate(work)}
    seconds = cpu(lambda: load(pieces, at(pieces, plan, machine), machine), 5).seconds
    base = f"{len(pieces):,} pieces, {len(pieces.words):,} messages, {machine.cores:,} cores"
    yield at_most(f"cost of a mapping of {count:,} operations", seconds, 0.2, " s", base)


def placing(evaluations: int) -> Iterator[Figure | str]:
    """Traffic of rows and of greedy over that of the search, at equal budget."""
    import numpy as np
    import torch

    from passlab.models import ZOO
    from passlab.wafer.machine import Machine
    from passlab.wafer.mapping import load, traffic
    from passlab.wafer.pieces import cut
    from passlab.wafer.placing import greedy, row_major, search
    from passlab.wafer.work import work_of

    by_rows, by_greedy = [], []
    for name, side in SIDES.items():
        yield f"{name} on {side} × {side} cores: searching"
        row, machine = ZOO[name], Machine(side, side)
        pieces = cut(work_of(torch.fx.symbolic_trace(row.build()), *row.inputs(1)), machine)
        rng, plans = np.random.default_rng(0), [greedy(pieces, machine)]
        for _ in range(evaluations // (len(pieces) * machine.cores)):
            blocks = rng.permutation(len(pieces.operations))
            plans.append(greedy(pieces, machine, np.argsort(np.argsort(blocks)[pieces.owner], kind="stable")))
        near = min(traffic(pieces, plan, machine) for plan in plans)
        rows = row_major(pieces, machine)
        best, took = cpu(lambda p=pieces, m=machine: search(p, m, evaluations=evaluations), 1)
        least = traffic(pieces, best, machine)
        by_rows.append(traffic(pieces, rows, machine) / least)
        by_greedy.append(near / least)
        cycles = [load(pieces, plan, machine).cycles for plan in (rows, best)]
        base = (
            f"{by_greedy[-1]:.2f} against the best of {len(plans)} greedy ones; {len(pieces)} pieces, {took:.0f} s; "
            f"a result every {cycles[0]:,.0f} → {cycles[1]:,.0f} cycles"
        )
        yield Figure(f"{name}: traffic of rows over search", f"{by_rows[-1]:.2f}", base, value=by_rows[-1])
    yield at_least("zoo: rows over search, geometric mean", statistics.geometric_mean(by_rows), 3, "")
    yield at_least("zoo: greedy over search, geometric mean", statistics.geometric_mean(by_greedy), 1.3, "")
