"""The figures that benchmarks yield, each with baseline and target, and helpers to measure them.

Ratios carry over to other machines, seconds do not: a target in seconds is for a laptop.
"""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from autograder.authoring.source import ROOT


@dataclass(frozen=True)
class Figure:
    """One line of the table. `held`: whether the target was met; None without a target or a measurement.

    The part of the benchmarks is entered where the parts are run.
    """

    what: str
    seen: str
    baseline: str = ""
    target: str = ""
    held: bool | None = None
    value: float | None = None
    part: str = ""


def at_most(what: str, value: float, limit: float, unit: str, baseline: str = "") -> Figure:
    """Return a figure that must not exceed a limit."""
    return Figure(what, f"{value:.3g}{unit}", baseline, f"≤ {limit:g}{unit}", value <= limit, value)


def at_least(what: str, value: float, limit: float, unit: str, baseline: str = "") -> Figure:
    """Return a figure that must reach a limit."""
    return Figure(what, f"{value:.3g}{unit}", baseline, f"≥ {limit:g}{unit}", value >= limit, value)


def not_measured(what: str, why: str) -> Figure:
    return Figure(what, f"not measured: {why}")


def versus(name: str, seconds: dict[str, float], one: str, other: str, least: float | None = None) -> Figure:
    """Return how many times as fast one candidate is as another. least: the target, if there is one."""
    ratio = seconds[other] / seconds[one]
    title = f"{name}: {one}, times as fast as {other}"
    baseline = f"{seconds[one] * 1e3:.3g} ms / {seconds[other] * 1e3:.3g} ms"
    if least is not None:
        return at_least(title, ratio, least, "x", baseline)
    return Figure(title, f"{ratio:.3g}x{'' if ratio >= 1 else f'; {other} wins'}", baseline, value=ratio)


def growth(name: str, seconds: dict[int, float], limit: float, note: str = "") -> Iterator[Figure]:
    """Yield the exponent with which time grows, if it was measured at several sizes."""
    if len(seconds) > 1:
        baseline = ", ".join(f"{size:,}: {value:.3g} s" for size, value in seconds.items()) + note
        yield at_most(f"{name}: growth, exponent of n", exponent(seconds), limit, "", baseline)


def exponent(times: dict[int, float]) -> float:
    """Return e in time ≈ c·n^e, by least squares on the logarithms."""
    xs, ys = [math.log(n) for n in times], [math.log(t) for t in times.values()]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


class Timed(NamedTuple):
    """A result, and the CPU seconds that it took."""

    result: Any
    seconds: float


def cpu(function: Callable[[], Any], rounds: int = 3) -> Timed:
    """Return the least CPU seconds of some runs, which a busy machine distorts less than wall time.

    A collection of garbage that walks 100,000 nodes would be charged to the function that triggers it.
    """
    runs = []
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            result = function()
            runs.append(Timed(result, time.process_time() - start))
        finally:
            gc.enable()
    return min(runs, key=lambda run: run.seconds)


def interleave(
    candidates: dict[str, Callable[[], Callable[[], Any]]],
    rounds: int,
    of: Callable[[Sequence[float]], float] = min,
) -> dict[str, float]:
    """Return name → CPU seconds of candidates that take turns, the least of all rounds or what `of` makes of them.

    A candidate first prepares its data, which is not timed, and returns the function to time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, prepare in candidates.items():
            try:
                seconds[name].append(cpu(prepare(), 1).seconds)
            except Exception as error:
                error.add_note(name)
                raise
    return {name: of(runs) for name, runs in seconds.items()}


# ── other processes ───────────────────────────────────────────────────────────────────────────────────────────────────


def apart(function: Callable[..., Iterator[Figure | str]], *arguments: Any) -> Iterator[Figure | str]:
    """Yield what a function of a module yields in a process of its own, as one process can hold only one TVM."""
    where = [function.__module__, function.__name__, json.dumps(arguments)]
    command = [sys.executable, "-W", "ignore", "-m", "autograder.bench.inside", *where]
    with (
        tempfile.TemporaryFile("w+") as noise,  # not a pipe: TVM writes more than a pipe buffers
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=noise, stdin=subprocess.DEVNULL, text=True, cwd=ROOT
        ) as process,
    ):
        yield from heard(process.stdout)
        if process.wait():
            noise.seek(0)
            last = noise.read().strip().splitlines()[-1:] or ["its process ended"]
            yield not_measured(f"the rest of {' '.join(map(str, (function.__name__, *arguments)))}", last[0][:200])


def tell(news: Figure | str) -> None:
    """Print a figure or a progress message as a line of JSON."""
    print(json.dumps(asdict(news) if isinstance(news, Figure) else {"news": news}), flush=True)


def heard(lines: Iterable[str]) -> Iterator[Figure | str]:
    """Yield what another process has told."""
    for line in lines:
        if line.startswith("{"):
            row = json.loads(line)
            yield row["news"] if "news" in row else Figure(**row)
