"""The loop that every IR shares: run both programs on trials until one tells them apart.

The package of an IR derives its adapter from `Comparison`: which trials there are, how both programs run on them, and
which differences rounding does not explain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from passlab.equivalence.result import Equivalence, Options
from passlab.equivalence.values import Difference, Errors, Tolerance

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


class Trial(Protocol):
    """One tuple of inputs for both programs. `title`: its name in a report."""

    args: tuple
    device: str

    @property
    def title(self) -> str: ...


class Comparison:
    """Two programs, and what is known about them so far.

    names: those of the inputs, which may be fewer than there are inputs.
    """

    names: Sequence[str] = ()

    def __init__(self, options: Options):
        self.options = options
        self.errors = Errors()
        self.devices: dict[str, None] = {}
        self.titles: list[str] = []
        self.notes: dict[str, None] = {}

    def batches(self) -> Iterable[Sequence[Any]]:
        """Yield the trials, in batches that run together. One is asked for when all before it have been compared."""
        raise NotImplementedError

    def outputs(self, trials: Sequence[Any]) -> Iterable[tuple[Any, Any, Any]]:
        """Yield (trial, output of before, output of after) for the trials that `before` accepts.

        Raises ValueError where `before` does not even run on ordinary inputs.
        """
        raise NotImplementedError

    def differences(self, trial: Any, old: Any, new: Any, errors: Errors) -> list[Difference]:
        """Return the differences that rounding does not explain, the one to report first; add to the errors."""
        raise NotImplementedError

    def in_own_dtype(self, trial: Any) -> bool:
        """Return whether a trial's errors count for the result: it is ordinary numbers in the inputs' own dtype."""
        return True

    def sentence(self, trial: Any, difference: Difference) -> str:
        """Return the reason to report."""
        raise NotImplementedError

    def locate(self, result: Equivalence, trial: Any, difference: Difference) -> None:
        """Note in the result the graphs, and where they diverge."""

    def run(self) -> Equivalence:
        """Return whether no trial tells the programs apart."""
        for trials in self.batches():
            for trial, old, new in self.outputs(trials):
                errors = Errors()
                differences = self.differences(trial, old, new, errors)
                if differences:
                    return self.failure(trial, differences[0], errors)
                if self.in_own_dtype(trial):
                    self.errors.include(errors.mse, errors.max_abs, errors.max_ulp)
                self.titles.append(trial.title)
                self.devices[trial.device] = None
        return self._result(True, "", self.errors)

    def failure(self, trial: Any, difference: Difference, errors: Errors) -> Equivalence:
        """Return the result for a trial that tells the programs apart."""
        self.titles.append(trial.title)
        self.devices[trial.device] = None
        result = self._result(False, self.sentence(trial, difference), errors)
        names = [*self.names, *(f"input{i}" for i in range(len(self.names), len(trial.args)))]
        result.counterexample = dict(zip(names, trial.args, strict=False))
        self.locate(result, trial, difference)
        return result

    def _result(self, ok: bool, reason: str, errors: Errors) -> Equivalence:
        result = Equivalence(ok, reason, errors.mse, errors.max_abs, errors.max_ulp)
        result.devices, result.trials, result.notes = tuple(self.devices), tuple(self.titles), tuple(self.notes)
        return result


def tolerance(dtypes: Iterable[torch.dtype], depth: int, sums: bool, options: Options) -> Tolerance:
    """Return the tolerance for the coarsest of these dtypes, unless the options say another."""
    coarsest = max(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)
    derived = Tolerance.of(coarsest, depth, sums)
    return replace(derived, rtol=derived.rtol if options.rtol is None else options.rtol, atol=options.atol)


def why_not_a_program(value: Any) -> str:
    """Return what was returned in place of a program, to complete "after is …"."""
    return "None: does the pass end with a return?" if value is None else f"a {type(value).__name__}, not a program."
