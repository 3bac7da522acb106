"""Are two programs the same function? Both are run on inputs chosen to tell them apart, and everything is compared.

    result = equivalent(before, after)            # GraphModules, nn.Modules, plain functions, modules of TVM
    assert result, result.reason

Each IR has its search (`passlab.fx.equivalent`, `passlab.tvm.equivalent`). They share `values`: the tolerance, and when
a difference is rounding.
"""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from passlab.graph.registry import load, part

__all__ = ["Equivalence", "equivalent", "shrink"]


_locating = True


@contextlib.contextmanager
def unlocated() -> Iterator[None]:
    """Do not search for the place where two programs part, which takes more runs: its caller shows no place."""
    global _locating
    before, _locating = _locating, False
    try:
        yield
    finally:
        _locating = before


def locating() -> bool:
    """Return whether to search for the place where two programs part."""
    return _locating


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
            f"the same function in {len(self.trials)} trials on {', '.join(self.devices)}: "
            f"mse {self.mse:.1e}, max abs {self.max_abs:.1e}, max ulp {self.max_ulp:.0f}"
        )

    def _repr_html_(self) -> str:
        text = f"<p>{html.escape(repr(self))}</p>"
        if self.graph is not None and self.graph_after is not None:
            with contextlib.suppress(Exception):  # without Graphviz only the text is shown
                text += load("drawing").diff(self.graph, self.graph_after).svg
        return text


def equivalent(
    before: Callable,
    after: Callable,
    inputs: Any = None,
    *,
    seed: int = 0,
    atol: float | None = None,
    rtol: float | None = None,
    modes: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
    trials: Sequence[str] | None = None,
    thorough: bool = False,
    aliasing: bool | None = None,
) -> Equivalence:
    """Run `before` and `after` on the same inputs and return whether, and where, they differ.

    inputs      a tuple of examples (tensors, numbers, nested lists), a list of such tuples, or None: then
                `before.meta["inputs"]`, else random ones of the shapes noted on its placeholders.
    modes       "eval", "train" or both; default: the mode `before` is in.
    devices     default: those of the example inputs, and the accelerator if there is one.
    trials      names from `passlab.fx.trials.TRIALS`; default: its first eight. A trial whose inputs `before` itself
                rejects is skipped, with a note. `thorough` adds the others and three more seeds.
    aliasing    whether an output that shares memory with an input in one program only is a difference. Default: yes
                where a program writes into its inputs; elsewhere a note, since no value shows it.
    atol, rtol  replace the tolerances that follow from dtype and depth.

    A GraphModule is run from its nodes, even if `recompile()` was forgotten (`before` up to `LARGE` nodes).

    Modules of Relay and Relax, on one side or on both, are built and run by TVM: see `passlab.tvm.equivalent`, also for
    the names of their trials. Their `devices` are TVM's targets; modes and aliasing mean nothing to them.

    Raises ValueError when there are no inputs to try, or when `before` fails on its own example inputs. A failure of
    `after` is a result, not an exception.
    """
    own = (part(side, "equivalent") for side in (before, after))
    torch = load("fx.equivalent")
    # an IR compares its programs with torch's too, and torch knows only its own
    search = next((found for found in own if found not in (None, torch)), torch)
    return search.equivalent(
        before,
        after,
        inputs,
        seed=seed,
        atol=atol,
        rtol=rtol,
        modes=modes,
        devices=devices,
        trials=trials,
        thorough=thorough,
        aliasing=aliasing,
    )


def shrink(program: Any, fails: Callable[[Any], bool], budget: int = 500, **options: Any) -> Any:
    """Return the smallest program found for which `fails(program)` is still true; `program` itself is left alone.

        shrink(gm, lambda g: not equivalent(g, my_pass(copy.deepcopy(g))))

    Where `fails` raises, the program counts as not failing. At most `budget` calls. options depend on the IR: see
    `passlab.fx.shrink` and `passlab.tvm.shrink`. Raises ValueError when `fails(program)` is false.
    """
    return part(program, "shrink", "fx").shrink(program, fails, budget, **options)
