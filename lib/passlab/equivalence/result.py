"""What `equivalent` takes beside the programs, and what it answers."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from passlab.graph.registry import load
from passlab.judge.words import plural


@dataclass
class Equivalence:
    """The answer of `equivalent`: true when no trial told the two programs apart.

    `mse`, `max_abs` and `max_ulp` describe the trial that failed, else the worst of those in the inputs' own dtype.
    `first_diverging` names a node of `after` (or of `before`, where `after` has lost it). `counterexample` holds inputs
    that show the difference, `graph` and `graph_after` the smallest pair of graphs found that still differs. `notes`:
    what was not tried, and what changed without being an error.
    """

    ok: bool
    reason: str = ""
    mse: float = 0.0
    max_abs: float = 0.0
    max_ulp: float = 0.0
    first_diverging: str | None = None
    counterexample: dict[str, Any] | None = None
    graph: Any = None
    graph_after: Any = None
    devices: tuple[str, ...] = ()
    trials: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        if not self.ok:
            return f"not the same function. {self.reason}"
        return (
            f"the same function in {plural(len(self.trials), 'trial')} on {', '.join(self.devices)}: "
            f"mse {self.mse:.1e}, max abs {self.max_abs:.1e}, max ulp {self.max_ulp:.0f}"
        )

    def _repr_html_(self) -> str:
        text = f"<p>{html.escape(repr(self))}</p>"
        if self.graph is not None and self.graph_after is not None:
            with contextlib.suppress(Exception):  # without Graphviz only the text is shown
                text += load("drawing").diff(self.graph, self.graph_after).svg
        return text


@dataclass
class Proof:
    """The answer of `passlab.proving.prove`, and of `equivalent` with `prove=True`.

    `verdict`: "proved", "reals", "tested" or "refuted". `chance`: the largest one that "reals" is wrong. `reals`:
    whether they are equal over the reals, None if that is not known. `counterexample`: inputs on which the bits of the
    results differ, and `place`: a sentence about these. `max_abs`, `max_ulp`: the largest difference on all inputs that
    were tried, `trials` many. `why`: tier → the reason why it proved nothing. `assumes`: what a proof relies on.
    `seconds`: CPU time.
    """

    verdict: str
    chance: float = 0.0
    reals: bool | None = None
    counterexample: dict[str, Any] | None = None
    place: str = ""
    max_abs: float = 0.0
    max_ulp: float = 0.0
    trials: int = 0
    why: dict[str, str] = field(default_factory=dict)
    assumes: tuple[str, ...] = ()
    seconds: float = 0.0
    tests: Equivalence | None = None

    def __bool__(self) -> bool:
        return self.verdict != "refuted"

    @property
    def sentence(self) -> str:
        """The verdict as a sentence or two."""
        distance = f"at most {self.max_abs:.2g} ({self.max_ulp:.3g} ulp) here"
        if self.verdict == "proved":
            return "Proved for every input of these shapes."
        if self.verdict == "reals":
            return f"Equal over the reals; differs by rounding of {distance}."
        if self.verdict == "tested":
            return f"Tested on {plural(self.trials, 'input')}; differs by {distance}."
        algebra = {
            True: " Over the reals they are equal: the algebra is right, the numbers are not.",
            False: " They differ over the reals, too.",
            None: "",
        }
        return f"Not the same function.{algebra[self.reals]}"

    @property
    def reason(self) -> str:
        """Why they are not the same function, "" if they may be: as of `Equivalence`."""
        return "" if self else self.place or " ".join(self.why.values())

    def __repr__(self) -> str:
        lines = [self.sentence]
        if self.place:
            lines.append(self.place)
        if self.verdict == "reals":
            lines.append(f"The chance that they are not is at most {self.chance:.1g}.")
        lines += [f"Assumed: {text}." for text in self.assumes]
        lines += [f"{tier}: {reason}" for tier, reason in self.why.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        first, *rest = repr(self).split("\n")
        return f"<p><b>{html.escape(first)}</b><br>{'<br>'.join(map(html.escape, rest))}</p>"


@dataclass(frozen=True)
class Options:
    """The keyword arguments of `passlab.equivalent`, which explains them."""

    seed: int = 0
    atol: float | None = None
    rtol: float | None = None
    modes: Sequence[str] | None = None
    devices: Sequence[str] | None = None
    trials: Sequence[str] | None = None
    thorough: bool = False
    aliasing: bool | None = None
