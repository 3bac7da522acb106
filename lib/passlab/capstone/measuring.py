"""Measure a compiled model against the baselines, all in turns, and keep the result as data.

entry = measure(gm, compiled, inputs, name="resnet18")
print(entry)
json.dumps(entry.to_json())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import fx

from passlab.capstone.baselines import BASELINES, Missing
from passlab.capstone.building import build
from passlab.capstone.comparing import differing
from passlab.capstone.compiled import BadCompiled, Compiled, on, other_outputs, output_types, why_not_compiled
from passlab.capstone.counting import counts
from passlab.equivalence import equivalent
from passlab.fx.programs import copy_inputs
from passlab.measure import seconds, timed

#: The compiled model's own row.
MINE = "mine"


@dataclass(frozen=True)
class Row:
    """One competitor on one model. Unknown values are None; `missing`: why a competitor did not run.

    `launches`, `bytes`, `peak`: see `Counts`; None for a compiler that hands over a finished program. `seconds`: the
    median of interleaved calls; `spread`: third minus first quartile; `ratio`: to eager's time, the median over the
    rounds.
    """

    name: str
    launches: int | None = None
    bytes: int | None = None
    peak: int | None = None
    seconds: float | None = None
    spread: float | None = None
    ratio: float | None = None
    missing: str = ""


@dataclass(frozen=True)
class Entry:
    """A model's comparison. `equivalent`: whether the compiled model computes the same; if not, `reason`, and its own
    row has no numbers."""

    model: str
    equivalent: bool
    reason: str
    rows: tuple[Row, ...]

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"No competitor {name!r}; there are {', '.join(row.name for row in self.rows)}.")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows": [asdict(row) for row in self.rows]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        return cls(data["model"], data["equivalent"], data["reason"], tuple(Row(**row) for row in data["rows"]))

    def __repr__(self) -> str:
        lines = [f"{self.model}: {'equivalent' if self.equivalent else self.reason}"]
        for row in self.rows:
            if row.missing:
                lines.append(f"  {row.name:14} {row.missing}")
                continue
            costs = f"{'launches, bytes and peak are not counted':46}"
            if row.launches is not None:
                costs = f"{row.launches:>5,} launches {row.bytes:>13,} bytes {row.peak:>11,} peak"
            lines.append(f"  {row.name:14} {costs}  {seconds(row.seconds)} ± {seconds(row.spread)} ({row.ratio:.2f})")
        return "\n".join(lines)


def measure(
    gm: fx.GraphModule,
    compiled: Compiled,
    inputs: Sequence[Any],
    baselines: Mapping[str, Callable] = BASELINES,
    name: str = "model",
    repeats: int = 25,
    device: str = "cpu",
) -> Entry:
    """Return the measurements of a compiled model and the baselines on these inputs.

    Equivalence is checked first: a model that computes something else is not built, and has no numbers. All competitors
    are timed in turns (`passlab.measure.timed`), eager first if present. Graph and inputs are on the CPU; device: where
    copies of them run.
    """
    inputs = tuple(inputs)
    reason = why_not_compiled(gm, compiled) or other_outputs(compiled, inputs, output_types(gm, inputs))
    if not reason:
        equivalence = equivalent(gm, compiled.graph, inputs)
        reason = "" if equivalence.ok else equivalence.reason

    def build_model(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        if reason:
            raise Missing(reason)
        try:
            model = on(device, compiled)
            if differs := differing(model, inputs):
                raise Missing(differs)
            return build(model, inputs)
        except BadCompiled as error:
            raise Missing(str(error)) from error

    rows = compare(gm, inputs, {**baselines, MINE: build_model}, {MINE: compiled}, repeats, device)
    missing = rows[MINE].missing
    return Entry(name, not missing, missing, tuple(rows.values()))


def compare(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    competitors: Mapping[str, Callable],
    compiled: Mapping[str, Compiled],
    repeats: int = 25,
    device: str = "cpu",
) -> dict[str, Row]:
    """Return name → row of competitors, each a function like a baseline; one that raises Missing has no numbers.

    They are made for copies of graph and inputs on the device, and timed there in turns; ratios are to the first.
    `compiled`: name → a competitor's Compiled, for its counts ("eager" and "reference" are known).
    """
    rows: dict[str, Row] = {}
    ready: dict[str, Callable] = {}
    graph = on(device, Compiled(gm)).graph if device != "cpu" else gm
    for name, make in competitors.items():
        try:
            ready[name] = make(graph, copy_inputs(inputs, device))
        except Missing as missing:
            rows[name] = Row(name, missing=str(missing))
    timing = timed(ready, *copy_inputs(inputs, device), repeats=repeats) if ready else {}
    for name in ready:
        program = compiled.get(name) or _baseline_program(name, gm, inputs)
        cost = counts(program, inputs).to_json() if program is not None else {}
        rows[name] = Row(name, **cost, seconds=timing[name].median, spread=timing[name].iqr, ratio=timing[name].ratio)
    return {name: rows[name] for name in competitors}


def _baseline_program(baseline: str, gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled | None:
    """Return the Compiled of a baseline, or None for a compiler without one."""
    from passlab.capstone.reference import compile

    if baseline == "eager":
        return Compiled(gm)
    return compile(gm, inputs) if baseline == "reference" else None
