"""Real wafers as data: published numbers, with their sources."""

from __future__ import annotations

from dataclasses import dataclass

from passlab.wafer.machine import Machine


@dataclass(frozen=True)
class Wafer:
    """A wafer that was built: the grid that programs see, and published numbers.

    `cores`, `memory`: of the whole wafer, in bytes. `grid`: rows and columns that a program can use. `clock`: cycles a
    second. `sources`: where each number is from, or that it is derived or assumed.
    """

    name: str
    cores: int
    memory: float
    grid: tuple[int, int]
    clock: float
    sources: dict[str, str]

    @property
    def machine(self) -> Machine:
        """Return the grid as a machine of 48 KB a core, as all these wafers have."""
        return Machine(*self.grid, clock=self.clock, name=self.name)


ROCKI = "Rocki et al., Fast Stencil-Code Computation on a Wafer-Scale Processor, SC 2020, arXiv:2010.03660"
LUCZYNSKI = "Luczynski et al., Near-Optimal Wafer-Scale Reduce, HPDC 2024, arXiv:2404.15888"
ANANDTECH = "AnandTech, Cerebras Unveils Wafer Scale Engine Two, 2021 (a table of both generations)"

WSE1 = Wafer(
    "WSE-1",
    400_000,
    18e9,
    (602, 595),
    0.9e9,
    {
        "cores": ANANDTECH,
        "memory": ANANDTECH,
        "grid": ROCKI,
        "clock": f"derived from a measurement: 0.86 PFLOP/s, of 28.1 µs, are about a third of the peak ({ROCKI}), at 8 "
        "operations a core and cycle",
    },
)
WSE2 = Wafer(
    "WSE-2",
    850_000,
    40e9,
    (750, 994),
    850e6,
    {
        "cores": ANANDTECH,
        "memory": ANANDTECH,
        "grid": "Cerebras SDK 1.4.0 documentation, as quoted in public notes: about 750 x 994, 48 KB a core",
        "clock": "assumed: 850 MHz, as usual in papers on this machine",
        "ramp": LUCZYNSKI,
    },
)
#: Name → wafer, with the sources of its numbers.
WAFERS = {wafer.name: wafer for wafer in (WSE1, WSE2)}
