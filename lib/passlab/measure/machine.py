"""A machine in three numbers: how fast it moves bytes, how fast it computes, what a launch costs.

    machine = measure_machine()               # of this machine; Machine(bandwidth=1e10, flops=1e11, launch=1e-6)
    machine.ridge                             # operations per byte above which computing takes longer than moving
    machine.bound(flops, nbytes, launches=1)  # the least seconds for this work

The roofline model: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from passlab.fx.measure import machine_name
from passlab.measure.clock import seconds


@dataclass(frozen=True)
class Machine:
    """`bandwidth` in bytes/s to and from memory, `flops` in operations/s, `launch` in seconds for starting a kernel."""

    bandwidth: float
    flops: float
    launch: float = 0.0
    name: str = "a machine"

    def __post_init__(self):
        for field in ("bandwidth", "flops"):
            if not getattr(self, field) > 0:
                raise ValueError(f"Machine: {field} must be greater than 0; got {getattr(self, field)}.")
        if not self.launch >= 0:
            raise ValueError(f"Machine: launch must not be negative; got {self.launch}.")

    @property
    def ridge(self) -> float:
        """Return the arithmetic intensity (operations/byte) at which moving and computing take equally long."""
        return self.flops / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """Return the roof: the most operations/s at this arithmetic intensity (operations/byte)."""
        return min(self.flops, intensity * self.bandwidth)

    def bound(self, flops: float, nbytes: float, launches: int = 0) -> float:
        """Return the least seconds for `launches` kernels that together do `flops` operations and move `nbytes`."""
        return launches * self.launch + max(nbytes / self.bandwidth, flops / self.flops)

    def __repr__(self) -> str:
        moves, computes = f"{self.bandwidth / 1e9:.3g} GB/s", f"{self.flops / 1e9:.3g} Gflop/s"
        return f"{self.name}: {moves}, {computes}, {seconds(self.launch)} a launch, ridge at {self.ridge:.3g} flop/byte"


@cache
def measure_machine(device: str = "cpu") -> Machine:
    """Return this machine as torch sees it, measured once per process: the best of several runs of each.

    bandwidth: a copy of 64 MiB, read and written. flops: a float32 matrix product, 1024³ (4096³ on CUDA). launch: an
    operation on one element into an existing tensor.
    """
    home = torch.device(device)
    size = 1024 if home.type == "cpu" else 4096
    source, matrix = torch.ones(2**24, device=home), torch.ones(size, size, device=home)
    target, product, element = torch.empty_like(source), torch.empty_like(matrix), torch.ones(1, device=home)
    with torch.no_grad():
        copying = _best(lambda: target.copy_(source), 1, home)
        computing = _best(lambda: torch.mm(matrix, matrix, out=product), 1, home)
        launching = _best(lambda: torch.neg(element, out=element), 1000, home)
    return Machine(2 * source.nbytes / copying, 2 * size**3 / computing, launching, machine_name(home))


def _best(call: Callable[[], object], times: int, device: torch.device, rounds: int = 7) -> float:
    """Return the least seconds of a call."""

    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    best = float("inf")
    for _ in range(rounds):
        synchronize()
        start = time.perf_counter()
        for _ in range(times):
            call()
        synchronize()
        best = min(best, (time.perf_counter() - start) / times)
    return best
