"""Time candidates by turns on a shared machine, and print times with units."""

from __future__ import annotations

import gc
import html
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from passlab.fx.measure import machine_name, tensors


@dataclass(frozen=True)
class Row:
    """One candidate's times in seconds. `iqr`: third minus first quartile. `ratio`: to the first candidate."""

    name: str
    median: float
    iqr: float
    min: float
    ratio: float


@dataclass(frozen=True)
class Timing:
    """The result of `timed`; displays as a table. `timing["mine"].ratio`: its time over the first candidate's."""

    rows: tuple[Row, ...]
    device: str
    repeats: int

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"No candidate {name!r}; the candidates are {', '.join(row.name for row in self.rows)}.")

    def _cells(self) -> list[tuple[str, ...]]:
        head = ("", "median", "spread (IQR)", "minimum", f"ratio to {self.rows[0].name}")
        return [head] + [(r.name, *map(seconds, (r.median, r.iqr, r.min)), f"{r.ratio:.2f}") for r in self.rows]

    @property
    def _about(self) -> str:
        return f"{self.repeats} interleaved repeats on {self.device}"

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
        return "\n".join([*lines, self._about])

    def _repr_html_(self) -> str:
        rows = [
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            for tag, row in zip(["th"] + ["td"] * len(self.rows), self._cells(), strict=True)
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table>{body}<caption>{html.escape(self._about)}</caption></table>"


def seconds(t: float) -> str:
    """Return a time with three digits and its unit: 1.23 ms."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if t >= size:
            return f"{t / size:.3g} {unit}"
    return f"{t / 1e-9:.3g} ns"


def timed(candidates: Mapping[str, Callable], *inputs, repeats: int = 25, warmup: int = 3) -> Timing:
    """Time candidates against the first of them, so that the comparison holds even on a busy machine.

    Candidates are called with `inputs`, each `warmup` times first. Then, in each of `repeats` rounds, every candidate
    has a turn, in rotating order: what slows the machine down slows all of them. A turn repeats a fast candidate for
    at least half a millisecond. CUDA is synchronized before the clock is read. `ratio`: the median over the rounds of
    (candidate's time / first one's time in the same round). Raises RuntimeError where a candidate raises,
    TypeError for anything else than a dict of functions, and ValueError for fewer than 2 repeats or no warm-up.
    """
    if not isinstance(candidates, Mapping) or not candidates or not all(callable(f) for f in candidates.values()):
        raise TypeError('timed expects a dict of functions by name: timed({"eager": f, "mine": g}, x).')
    if repeats < 2 or warmup < 1:
        raise ValueError(f"timed expects at least 2 repeats and 1 warm-up; got {repeats} and {warmup}.")
    device, calls = torch.device("cpu"), {}
    for name, fn in candidates.items():
        try:
            for _ in range(warmup):
                result = fn(*inputs)
        except Exception as error:
            raise RuntimeError(f"timed: {name!r} raised {type(error).__name__}: {error}") from error
        device = next((t.device for t in tensors((result, inputs)) if t.device.type == "cuda"), device)
        calls[name] = max(1, math.ceil(5e-4 / max(_turn(fn, inputs, 1), 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    order, collecting = list(candidates), gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            for name in order:
                times[name].append(_turn(candidates[name], inputs, calls[name]))
            order.append(order.pop(0))
    finally:
        if collecting:
            gc.enable()
    first, rows = next(iter(times.values())), []
    for name, ts in times.items():
        low, mid, high = statistics.quantiles(ts, n=4, method="inclusive")
        ratio = statistics.median(t / base for t, base in zip(ts, first, strict=True))
        rows.append(Row(name, mid, high - low, min(ts), ratio))
    return Timing(tuple(rows), machine_name(device), repeats)


def _turn(fn: Callable, inputs: tuple, calls: int) -> float:
    """Seconds per call."""
    _synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        fn(*inputs)
    _synchronize()
    return (time.perf_counter() - start) / calls


def _synchronize() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
