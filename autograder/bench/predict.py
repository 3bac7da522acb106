"""`make bench`, part predict: run times of operators not seen, ranges against runs, shapes against torch.export.

The measured times are those stored with the library, so the figures do not depend on how busy the machine is; only the
operators of small networks, and of those for the shares within ±10 %, are timed now.

nn-Meter (L. L. Zhang et al., "nn-Meter: Towards Accurate Latency Prediction of Deep-Learning Model Inference on Diverse
Edge Devices", MobiSys 2021) reports 99.0 % of 26,000 models within ±10 % on a mobile CPU.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

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

#: Networks of each family that are predicted, and other ones of it to learn from.
HELD_OUT, KNOWN = 20, 30
#: Visits to each of them, and runs in a visit.
VISITS, ROUNDS = 4, 5
#: A prediction is right if it is off by no more than this share.
RIGHT = 0.1


def predict(largest: int) -> Iterator[Figure | str]:
    yield from times()
    yield from now()
    yield from shares()
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


def shares() -> Iterator[Figure | str]:
    """The share of drawn networks whose predicted time is right, by family: the sum of their operators, timed now.

    The sizes of a family's networks are drawn. None that is predicted is in the fit; other ones of its family are, as
    in nn-Meter's, but not in the last figure. There the fit gets no numbers about a network: from these, which hardly
    change within a family, the trees learn what is special about each, and nothing about one that they have not seen.
    """
    from passlab.capstone.families import FAMILIES, drawn
    from passlab.dataflow.predict import fit, in_network, measure_often, random_network

    models = {f"{family} {n}": drawn(family, n) for family in FAMILIES for n in range(HELD_OUT + KNOWN)}
    networks: Any = [(name, model.make(), tuple(model.inputs[0].shape)) for name, model in models.items()]
    networks += [(f"drawn {n}", *random_network(n)) for n in range(DRAWN)]
    yield f"timing {len(networks)} networks, {VISITS} visits"
    machine, pairs = measure_often(networks, VISITS, ROUNDS)
    runs: dict[str, list] = {}
    for pair in pairs:
        runs.setdefault(pair[0].model, []).append(pair)
    rows = {name: [min(pair, key=lambda row: row.seconds) for pair in run] for name, run in runs.items()}
    context = in_network(row for run in rows.values() for row in run)
    unseen = {family: [f"{family} {n}" for n in range(HELD_OUT)] for family in FAMILIES}
    held_out = {name for names in unseen.values() for name in names}

    def fitted(without: str = "") -> Any:
        known = [run for name, run in rows.items() if name not in held_out and name.split()[0] != without]
        return fit([row for run in known for row in run], machine, context=(lambda row: ()) if without else context)

    predict, errors = fitted(), []
    strangers: dict[str, list[float]] = {}
    begin = time.perf_counter()
    predicted = {name: predict(rows[name]) for name in sorted(held_out)}
    took = (time.perf_counter() - begin) / len(predicted)
    for family, names in unseen.items():
        off = [_off(predicted[name], rows[name]) for name in names]
        errors += off
        noise = statistics.median(_noise(runs[name]) for name in names)
        base = f"noise {noise:.1%}; {_misses(names, predicted, rows)}"
        yield Figure(f"{family}: networks within ±{RIGHT:.0%}", _share(off), base, value=_right(off))
        yield f"fitting without {family}"
        stranger = fitted(without=family)
        strangers[family] = [_off(stranger(rows[name]), rows[name]) for name in names]
    base = f"{len(errors)} networks that are not in the fit; nn-Meter: 99 % of 26,000, on a mobile CPU"
    yield at_least(f"networks within ±{RIGHT:.0%}", 100 * _right(errors), 90, "%", base)
    middle = 100 * statistics.median(map(abs, errors))
    yield at_most("a drawn network's run time: median error", middle, 5, "%", f"{took * 1e3:.1f} ms a prediction")
    errors = [error for off in strangers.values() for error in off]
    base = ", ".join(f"{family} {statistics.median(off):+.0%}" for family, off in strangers.items())
    sizes = sorted({len(run) for name, run in rows.items() if name.startswith("drawn")})
    base = f"median errors: {base}; in the fit, drawn ones have {' or '.join(map(str, sizes))} operators: in smaller"
    base += " networks the caches hold more"
    yield Figure("the same, of families that are not in the fit", _share(errors), base, value=_right(errors))


def _off(predicted: Sequence[float], rows: Sequence[Any]) -> float:
    """Return by which share of a network's time its prediction is too much."""
    return sum(predicted) / sum(row.seconds for row in rows) - 1


def _noise(pairs: Sequence[tuple[Any, Any]]) -> float:
    """Return how much a network's times in two halves of the visits differ."""
    one, other = (sum(pair[half].seconds for pair in pairs) for half in (0, 1))
    return abs(one / other - 1)


def _right(errors: Sequence[float]) -> float:
    return sum(abs(error) <= RIGHT for error in errors) / len(errors)


def _share(errors: Sequence[float]) -> str:
    return f"{_right(errors):.0%}, median {statistics.median(map(abs, errors)):.1%}"


def _misses(names: Sequence[str], predicted: dict[str, list[float]], rows: dict[str, list]) -> str:
    """Return which operators the networks that are predicted wrong owe that to, with their part in the error."""
    off: Counter[str] = Counter()
    for name in names:
        if abs(error := _off(predicted[name], rows[name])) > RIGHT:
            for seconds, row in zip(predicted[name], rows[name], strict=True):
                off[row.kind] += (seconds - row.seconds) / error / sum(r.seconds for r in rows[name])
    missed = sum(off.values())  # each network's parts add up to 1
    parts = ", ".join(f"{kind} {part / missed:.0%}" for kind, part in off.most_common(2))
    return f"{missed:.0f} missed, by {parts}" if off else "none missed"


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
            does = runs(module, [tuple(sizes)])
            counts[0] += found.accepts(dict(zip(names, sizes, strict=True))) == does
            counts[1] += runs(program, [tuple(sizes)]) == does
        seen = f"{counts[0]} of 16 sizes as the network runs"
        yield Figure(f"{name}: {len(found.constraints)} constraints", seen, f"torch.export: {counts[1]} of 16")
        ours, theirs, total = ours + counts[0], theirs + counts[1], total + 16
    yield at_least("sizes judged as the networks run", ours / total, 1, "", f"torch.export: {theirs / total:.3f}")
