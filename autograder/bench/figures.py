"""What a benchmark yields: figures, each beside its baseline and its target, and how they are taken.

Ratios travel between machines, seconds do not: a target in seconds is for a laptop.
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
    """One line of the table. `held`: was the target reached; None where there is none or nothing was measured."""

    part: str
    what: str
    seen: str
    baseline: str = ""
    target: str = ""
    held: bool | None = None
    value: float | None = None


def at_most(part: str, what: str, value: float, limit: float, unit: str, baseline: str = "") -> Figure:
    """A figure that has to stay at or under a limit."""
    return Figure(part, what, _number(value, unit), baseline, f"≤ {limit:g}{unit}", value <= limit, value)


def at_least(part: str, what: str, value: float, limit: float, unit: str, baseline: str = "") -> Figure:
    """A figure that has to reach a limit."""
    return Figure(part, what, _number(value, unit), baseline, f"≥ {limit:g}{unit}", value >= limit, value)


def skipped(part: str, what: str, why: str) -> Figure:
    return Figure(part, what, f"not measured: {why}")


def apart(part: str, module: str, *arguments: str) -> Iterator[Figure | str]:
    """What a module of benchmarks tells when it runs in a process of its own: one process holds only one TVM."""
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    with (
        tempfile.TemporaryFile("w+") as noise,  # not a pipe: TVM writes more than one holds
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
            yield skipped(part, f"the rest of {' '.join(arguments) or part}", last[0][:200])


def tell(news: Figure | str) -> None:
    """The other end of `apart`: a figure, or words on what goes on, as a line of JSON."""
    print(json.dumps(asdict(news) if isinstance(news, Figure) else {"news": news}), flush=True)


def _number(value: float, unit: str) -> str:
    return f"{value:.3g}{unit}"


def interleaved(candidates: dict[str, Callable[[], Callable[[], Any]]], rounds: int) -> dict[str, float]:
    """Name → least CPU seconds of this process, which a busy machine distorts less than the clock on the wall.

    A candidate first makes what it needs, off the clock, and returns what is timed.
    """
    best = dict.fromkeys(candidates, math.inf)
    for _ in range(rounds):
        for name, prepare in candidates.items():
            try:
                run = prepare()
                gc.collect()
                gc.disable()  # a collection that walks 100,000 nodes would be charged to whoever triggers it
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
    """The e of time ≈ c·n^e: least squares through the logarithms."""
    xs, ys = [math.log(n) for n in times], [math.log(t) for t in times.values()]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)
