"""Grids for ranges, and ranges by calibration: the smallest and largest value of each node on some inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from passlab.dataflow.ranges import ranges
from passlab.quantization.semantics import Grid, QuantizationError, ends

#: The smallest scale: the smallest float32 that keeps all its digits.
LEAST_SCALE = 2.0**-126
#: How many values of a node `observe` keeps of each batch for percentiles.
SAMPLES = 4096

#: Name of a node → the smallest and the largest of its values.
Ranges = Mapping[str, tuple[float, float]]


def check_range(low: float, high: float, where: str = "A value") -> None:
    """Raise QuantizationError for a range that is empty, or has an end that is NaN or infinite."""
    if math.isnan(low) or math.isnan(high):
        raise QuantizationError(f"{where} has the range {low} … {high}: an end is NaN. Calibrate with numbers.")
    if low > high:
        raise QuantizationError(f"{where} has the range {low} … {high}, which is empty: calibrate with an input.")
    if math.isinf(low) or math.isinf(high):
        raise QuantizationError(
            f"{where} has the range {low} … {high}, which is infinite: clip it, or keep it in float."
        )


def grid(low: float, high: float, bits: int = 8, symmetric: bool = False, where: str = "A value") -> Grid:
    """Return the grid with the smallest scale that covers `low` … `high` and 0.

    0 is a number of every grid, because padding and relu need it exactly: a range on one side of 0 is extended to it.
    `symmetric`: zero point 0. The range 0 … 0 gets the scale 1. Raises QuantizationError for a range that is empty,
    infinite or NaN; `where` names the value in it.
    """
    check_range(low, high, where)
    low, high = min(low, 0.0), max(high, 0.0)
    first, last = ends(bits)
    span = max(-low, high) / last if symmetric else high / (last - first) - low / (last - first)
    if not span:
        return Grid(1.0, 0, bits)
    scale = max(_float32_up(span), LEAST_SCALE)
    if not math.isfinite(scale):
        raise QuantizationError(
            f"{where} has the range {low} … {high}, whose scale does not fit in a float32: keep it in float."
        )
    zero_point = 0 if symmetric else min(max(round(first - low / scale), first), last)
    return Grid(scale, zero_point, bits)


def _float32_up(value: float) -> float:
    """Return the smallest float32 that is not below a number."""
    near = torch.tensor(value, dtype=torch.float32)
    return float(near if float(near) >= value else torch.nextafter(near, torch.tensor(math.inf)))


def weight_scales(weight: Tensor, bits: int = 8, axis: int | None = 0, group: int | None = None) -> Tensor:
    """Return symmetric scales of a weight: one number; for `axis` a vector; for `group` one for each run of the last
    dimension. All zeros get the scale 1. Raises QuantizationError for weights that are NaN or infinite.
    """
    if not weight.isfinite().all():
        raise QuantizationError("A weight is NaN or infinite: no scale covers it.")
    if group is not None:
        if weight.shape[-1] % group:
            raise QuantizationError(f"{weight.shape[-1]} inputs cannot be cut into groups of {group}.")
        most = weight.abs().unflatten(-1, (-1, group)).amax(-1)
    elif axis is None:
        most = weight.abs().amax()
    else:
        most = weight.abs().transpose(0, axis).flatten(1).amax(1)
    scale = most / ends(bits)[1]
    return torch.where(most > 0, scale.clamp(min=LEAST_SCALE), 1.0)


class _Observer(fx.Interpreter):
    """Run a graph and note the ends, and a sample, of what each node returns."""

    def __init__(self, gm: fx.GraphModule, samples: bool):
        super().__init__(gm)
        self.lows: dict[str, list[float]] = {}
        self.highs: dict[str, list[float]] = {}
        self.samples: dict[str, list[Tensor]] | None = {} if samples else None

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel() and n.op != "output":
            low, high = value.aminmax()
            self.lows.setdefault(n.name, []).append(low.item())
            self.highs.setdefault(n.name, []).append(high.item())
            if self.samples is not None:
                flat = value.flatten()
                self.samples.setdefault(n.name, []).append(flat[:: max(1, len(flat) // SAMPLES)].clone())
        return value


def observe(gm: fx.GraphModule, batches: Iterable[tuple[Tensor, ...]], percentile: float | None = None) -> Ranges:
    """Return the range of each node's value on batches of inputs, by node name.

        observe(gm, [model.inputs(8, seed) for seed in range(4)])
        observe(gm, batches, percentile=99.9)      # the ends between which 99.9 % of the values lie

    Percentiles are those of at most SAMPLES values of each batch. Raises QuantizationError without a batch, for one
    without elements, and for a percentile that is not above 50 and at most 100.
    """
    if percentile is not None and not 50 < percentile <= 100:
        raise QuantizationError(f"percentile is {percentile}: it must be above 50 and at most 100.")
    observer = _Observer(gm, percentile is not None)
    with torch.no_grad():
        for number, batch in enumerate(batches):
            if empty := [place for place, x in enumerate(batch) if isinstance(x, Tensor) and not x.numel()]:
                raise QuantizationError(
                    f"Input {empty[0]} of batch {number} has no elements, so no range: leave it out."
                )
            observer.run(*batch)
    if not observer.lows:
        raise QuantizationError("No batch to calibrate with: all ranges are empty. Pass one tuple of inputs or more.")
    if observer.samples is not None and percentile is not None:
        share = (100 - percentile) / 200
        return {name: _quantiles(torch.cat(parts), share) for name, parts in observer.samples.items()}
    # min() of Python's floats may skip a NaN
    return {
        name: (float(torch.tensor(observer.lows[name]).min()), float(torch.tensor(observer.highs[name]).max()))
        for name in observer.lows
    }


def _quantiles(values: Tensor, share: float) -> tuple[float, float]:
    ordered = values.double().sort().values
    place = math.floor(share * (len(ordered) - 1))
    return float(ordered[place]), float(ordered[len(ordered) - 1 - place])


def proved_ranges(gm: fx.GraphModule, inputs: Ranges) -> Ranges:
    """Return ranges that hold for all inputs in the given ranges, from `passlab.dataflow.ranges`, as `observe` does.

    Raise QuantizationError for a range that is empty, infinite or NaN.
    """
    for name, (low, high) in inputs.items():
        check_range(low, high, name)
    return {name: (bounds.low, bounds.high) for name, bounds in ranges(gm, inputs).items()}
