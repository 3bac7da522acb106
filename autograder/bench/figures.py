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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from autograder.authoring.source import ROOT


@dataclass(frozen=True)
class Figure:
    """One line of the table. `held`: whether the target was met; None without a target or a measurement."""

    part: str
    what: str
    seen: str
    baseline: str = ""
    target: str = ""
    held: bool | None = None
    value: float | None = None


def at_most(part: str, what: str, value: float, limit: float, unit: str, baseline: str = "") -> Figure:
    """Return a figure that must not exceed a limit."""
    return Figure(part, what, _number(value, unit), baseline, f"≤ {limit:g}{unit}", value <= limit, value)


def at_least(part: str, what: str, value: float, limit: float, unit: str, baseline: str = "") -> Figure:
    """Return a figure that must reach a limit."""
    return Figure(part, what, _number(value, unit), baseline, f"≥ {limit:g}{unit}", value >= limit, value)


def not_measured(part: str, what: str, why: str) -> Figure:
    return Figure(part, what, f"not measured: {why}")


def apart(part: str, module: str, *arguments: str) -> Iterator[Figure | str]:
    """Yield what a module of benchmarks yields in a separate process: one process can hold only one TVM."""
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    with (
        tempfile.TemporaryFile("w+") as noise,  # not a pipe: TVM writes more than a pipe buffers
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=noise, stdin=subprocess.DEVNULL, text=True, cwd=ROOT
        ) as process,
    ):
        for line in process.stdout:
            if line.startswith("{"):
                said = json.loads(line)
                yield said["news"] if "news" in said else Figure(**said)
        if process.wait():
            noise.seek(0)
            last = noise.read().strip().splitlines()[-1:] or ["its process ended"]
            yield not_measured(part, f"the rest of {' '.join(arguments) or part}", last[0][:200])


def tell(news: Figure | str) -> None:
    """Print a figure or a progress message as a line of JSON: the other end of `apart`."""
    print(json.dumps(asdict(news) if isinstance(news, Figure) else {"news": news}), flush=True)


def _number(value: float, unit: str) -> str:
    return f"{value:.3g}{unit}"


def interleave(candidates: dict[str, Callable[[], Callable[[], Any]]], rounds: int) -> dict[str, float]:
    """Return name → least CPU seconds of this process, which a busy machine distorts less than wall time.

    A candidate first prepares its data, which is not timed, and returns the function to time.
    """
    best = dict.fromkeys(candidates, math.inf)
    for _ in range(rounds):
        for name, prepare in candidates.items():
            try:
                run = prepare()
                gc.collect()
                gc.disable()  # a collection that walks 100,000 nodes would be charged to the candidate that triggers it
                start = time.process_time()
                run()
                best[name] = min(best[name], time.process_time() - start)
            except Exception as error:
                error.add_note(name)
                raise
            finally:
                gc.enable()
    return best


def exponent(times: dict[int, float]) -> float:
    """Return e in time ≈ c·n^e, by least squares on the logarithms."""
    xs, ys = [math.log(n) for n in times], [math.log(t) for t in times.values()]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)
