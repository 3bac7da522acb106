"""`make bench`, part predict: run times of operators not seen, ranges against runs, shapes against torch.export.

The measured times are those stored with the library, so the figures do not depend on how busy the machine is; only the
last line of run times is of operators that are timed now.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import fx

from autograder.bench.figures import Figure, at_least, at_most
from passlab import models, trace

#: Networks that are timed now → the shapes of their inputs, and how many drawn ones to learn from.
SMALL = {
    "mlp": (64, 16),
    "convnet": (4, 3, 32, 32),
    "residual": (4, 8, 32, 32),
    "attention": (4, 32, 16),
    "gpt": (2, 16, 64),
    "lstm": (8, 6, 16),
}
DRAWN = 150


def predict(largest: int) -> Iterator[Figure | str]:
    yield from times()
    yield from now()
    yield from sound()
    yield from exports()


def times() -> Iterator[Figure | str]:
    """Each network of the zoo by a model fitted without it and without all operators that are the same as one of its
    own in other networks; the roofline alone beside it."""
    from passlab.dataflow.predict import SIZES, load, load_machine, load_noise, roofline, score, unseen, without

    rows, machine, noise = load(), load_machine(), load_noise()
    what = "the same operators, measured twice: median difference"
    yield Figure(what, f"{noise:.1%}", f"least times of two halves of the visits; {len(rows)} operators", value=noise)
    yield "fitting, each time without one network"
    errors = unseen(rows, machine)
    for name in SIZES:
        mine = [row for row in rows if row.model == name]
        true = [row.seconds for row in mine]
        fitted, alone = score([errors[row] for row in mine], true), score(roofline(mine, machine), true)
        twins = sum(row.model != name for row in rows) - len(without(rows, mine))
        base = f"roofline alone: {alone}; fitted without them and {twins} equal ones of other networks"
        yield Figure(f"{name}, not seen: {len(mine)} operators", str(fitted), base)
    zoo = list(errors)
    true = [row.seconds for row in zoo]
    fitted, alone = score([errors[row] for row in zoo], true), score(roofline(zoo, machine), true)
    what = "operators of networks not seen, nor equal ones in others"
    yield at_most(f"{what}: median error", 100 * fitted.error, 15, "%", f"roofline alone: {alone.error:.0%}")
    yield at_least(f"{what}: rank correlation", fitted.rank, 0.9, "", f"roofline alone: {alone.rank:.3f}")
    networks: dict[tuple[str, str], list] = {}
    for row in zoo:
        networks.setdefault((row.model, row.sizes), []).append(row)
    runs = list(networks.values())
    true = [sum(row.seconds for row in run) for run in runs]
    fitted = score([sum(errors[row] for row in run) for run in runs], true)
    alone = score([sum(roofline(run, machine)) for run in runs], true)
    base = f"{len(runs)} networks and sizes; roofline: {alone.error:.0%}"
    yield at_most("a whole network's run time, not seen: median error", 100 * fitted.error, 15, "%", base)
    what = "a whole network's run time, not seen: rank correlation"
    yield at_least(what, fitted.rank, 0.9, "", f"roofline: {alone.rank:.3f}")


def now() -> Iterator[Figure | str]:
    """Operators of small networks by a model fitted to drawn networks; all of them timed now, on this machine."""
    from passlab.dataflow.predict import fit, measure, random_network, roofline, score, without
    from passlab.measure.machine import measure_machine

    yield "timing small networks"
    machine = measure_machine.__wrapped__()  # measured now, not what it has cached
    new = [row for name, shape in SMALL.items() for row in measure(name, models.ZOO[name].build(), shape)]
    rows = [row for number in range(DRAWN) for row in measure(f"drawn{number}", *random_network(number), rounds=10)]
    old, true = without(rows, new), [row.seconds for row in new]
    fitted, alone = score(fit(old, machine)(new), true), score(roofline(new, machine), true)
    base = f"roofline alone: {alone}; fitted to {len(old)} operators of {DRAWN} drawn networks"
    yield Figure(f"{', '.join(SMALL)}, timed now: {len(new)} operators", str(fitted), base, value=fitted.error)


def sound() -> Iterator[Figure | str]:
    """Values of the zoo's networks on inputs in a range, random ones and corners, that leave the computed ranges."""
    from passlab.dataflow.precision import values
    from passlab.dataflow.ranges import ranges

    total = outside = 0
    for name, model in models.ZOO.items():
        yield f"ranges of {name}"
        inputs = model.inputs(1)
        gm = trace(model.build(), *inputs)
        intervals = ranges(gm, {n.target: (-1.0, 1.0) for n in gm.graph.nodes if n.op == "placeholder"})
        for seed in range(4):
            rng = torch.Generator().manual_seed(seed)
            drawn = (2 * torch.rand(x.shape, generator=rng) - 1 for x in inputs)
            given = tuple(x.sign() if seed % 2 else x for x in drawn)
            with torch.no_grad():
                seen = values(gm, {}, *given)
            for node, range_ in intervals.items():
                if isinstance(seen[node], torch.Tensor):
                    total += 1
                    outside += not range_.low <= float(seen[node].min()) <= float(seen[node].max()) <= range_.high
    yield at_most("values of the zoo outside their ranges", outside, 0, "", f"{total} values of nodes")


def exports() -> Iterator[Figure | str]:
    """For each network, sizes at which our constraints and torch.export's program say what running the network says."""
    from passlab.dataflow.shapes import exported, runs, shapes

    ours = theirs = total = 0
    for name, model in models.ZOO.items():
        if name == "resnet50":
            continue  # resnet18's operations once more
        yield f"shapes of {name}"
        module, (x,) = model.build(), model.inputs(2)
        names = [f"s{k}" for k in range(x.dim())]
        gm = fx.symbolic_trace(module)
        found = shapes(gm, {next(n.target for n in gm.graph.nodes if n.op == "placeholder"): names})
        program = exported(module, (x,)).module()
        rng, counts = random.Random(0), [0, 0]
        for _ in range(16):
            sizes = [rng.choice((n, n, n, n + 1, 2 * n, 4, 5)) for n in x.shape]
            does = runs(module, [sizes])
            counts[0] += found.accepts(dict(zip(names, sizes, strict=True))) == does
            counts[1] += runs(program, [sizes]) == does
        seen = f"{counts[0]} of 16 sizes as the network runs"
        yield Figure(f"{name}: {len(found.constraints)} constraints", seen, f"torch.export: {counts[1]} of 16")
        ours, theirs, total = ours + counts[0], theirs + counts[1], total + 16
    yield at_least("sizes judged as the networks run", ours / total, 1, "", f"torch.export: {theirs / total:.3f}")
