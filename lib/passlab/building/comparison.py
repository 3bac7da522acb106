"""Compare two modules, or a module and a torch model: each side is built once and run on all inputs.

    ModuleComparison(before, after, inputs_for(parameters, 0, KINDS), Options()).run()

**Rounding is not meaning.** The tolerance follows from dtype and depth (`passlab.equivalence.values`). A difference is
ignored if `before` changes as much when its inputs change by a few units of rounding, and, in modules that add numbers
up, if one side is NaN and the other inf (inf - inf depends on the order of a sum).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from passlab.building.inputs import nudged, tensor
from passlab.equivalence.comparison import Comparison, locating, tolerance
from passlab.equivalence.result import Equivalence, Options
from passlab.equivalence.trials import TRIALS
from passlab.equivalence.values import Difference, Errors, Tolerance, beyond_rounding, compare, leaves, nan_or_inf
from passlab.fx.equivalent import depth
from passlab.fx.programs import Program


class ModuleTrial(NamedTuple):
    """Inputs of one kind, and the target to run on ("cpu": there is only this one)."""

    kind: str
    args: tuple
    device: str

    @property
    def title(self) -> str:
        return self.kind + self.where

    @property
    def where(self) -> str:
        return "" if self.device == "cpu" else f" ({self.device})"

    @property
    def edge(self) -> bool:
        """Whether the inputs hold huge numbers, which would excuse a difference in their neighbours."""
        return self.kind == "extreme"


class Failure(Exception):
    """A side has no outputs. The text completes a sentence that starts with its name; `stage`: see `Built`."""

    def __init__(self, text: str, stage: str = "run"):
        super().__init__(text)
        self.stage = stage


class Value(NamedTuple):
    """A tensor or number that a module computes: its id in the view, and the operation that computes it."""

    id: str
    op: str
    tensor: Tensor


class Side(Protocol):
    """The adapter of an IR for one program. `module`: None if it cannot be inspected."""

    module: Any

    def names(self) -> list[str]:
        """Return the names of the inputs."""

    def depth(self) -> int:
        """Return the number of operations on the longest path."""

    def sums(self) -> bool:
        """Return whether the program may add up several numbers."""

    def dtypes(self) -> set[torch.dtype]:
        """Return the float dtypes in the program."""

    def outputs(self, inputs: Sequence[tuple], target: str) -> list[list[Tensor]]:
        """Return the outputs for each tuple of inputs. Raises Failure."""

    def values(self, inputs: tuple) -> list[Value] | None:
        """Return the intermediate values of the program, or None if it cannot be taken apart."""


class TorchSide:
    """A torch model, which runs on the CPU, whatever the target."""

    module = None

    def __init__(self, model: Callable):
        self.model = model

    def names(self) -> list[str]:
        return []

    def depth(self) -> int:
        return depth(Program(self.model))

    def sums(self) -> bool:
        return True

    def dtypes(self) -> set[torch.dtype]:
        state = [*self.model.parameters(), *self.model.buffers()] if isinstance(self.model, torch.nn.Module) else []
        return {t.dtype for t in state if t.is_floating_point()}

    def outputs(self, inputs: Sequence[tuple], target: str) -> list[list[Tensor]]:
        try:
            with torch.no_grad():
                outputs = [self.model(*(tensor(x).clone() for x in args)) for args in inputs]
        except Exception as error:
            text = str(error).strip().split("\n")[0][:200]
            raise Failure(f"fails in torch: {type(error).__name__}: {text}") from error
        return [[t.detach() for t in leaves(output) if isinstance(t, Tensor)] for output in outputs]

    def values(self, inputs: tuple) -> None:
        return None


class Expected(NamedTuple):
    """The outputs of `before` for one trial. `nudged()`: those for its inputs moved by rounding, up and down."""

    outputs: list[Tensor]
    nudged: Callable[[], list[list[Tensor]]]


class ModuleComparison(Comparison):
    """Two sides and the inputs to run them on, as (kind, inputs). An IR may word the messages in its own way."""

    #: kind of inputs → the first words of a message
    phrases: ClassVar[dict[str, str]] = {
        **TRIALS,
        "ordinary": "On random inputs",
        "structured": "On inputs that are a ramp",
    }
    #: how a message calls the second module
    second = "after"
    #: where to look: at an operation that only `after` has, or at one that only `before` has
    look = (
        "Look at {id} of after, {op}: no operation before has its value.",
        "Look for {id} of before, {op}: no operation after has its value.",
    )

    def __init__(
        self,
        before: Side,
        after: Side,
        inputs: list[tuple[str, tuple]],
        options: Options,
        targets: Sequence[str] = ("cpu",),
        locate: bool = True,
    ):
        super().__init__(options)
        self.before, self.after, self.inputs, self.targets, self.locates = before, after, inputs, targets, locate
        sides = before, after
        dtypes = {t.dtype for t in map(tensor, inputs[0][1]) if t.is_floating_point()}
        dtypes |= before.dtypes() | after.dtypes()
        self.tolerance = tolerance(dtypes, max(s.depth() for s in sides), any(s.sums() for s in sides), options)
        self.names = next((side.names() for side in sides if side.module is not None), [])

    def batches(self) -> Iterator[list[ModuleTrial]]:
        """Yield all trials for each target."""
        for target in self.targets:
            yield [ModuleTrial(kind, args, target) for kind, args in self.inputs]

    def outputs(self, trials: Sequence[ModuleTrial]) -> Iterator[tuple[ModuleTrial, Expected, Any]]:
        """Yield the outputs, or a Failure in place of those of `after`."""
        trials, expected = self._accepted(trials)
        try:
            outputs: Sequence[Any] = self.outputs_of_after(trials, expected)
        except Failure as failure:
            outputs = [failure] * len(trials)
        yield from zip(trials, expected, outputs, strict=True)

    def _accepted(self, trials: Sequence[ModuleTrial]) -> tuple[Sequence[ModuleTrial], list[Expected]]:
        """Return the trials that `before` accepts: all, or those without edge values, with a note about that."""
        target, ordinary = trials[0].device, [trial for trial in trials if trial.kind in ("given", "ordinary")]
        try:
            return trials, self.expected([trial.args for trial in trials], target)
        except Failure as failure:
            if failure.stage not in ("run", "crash") or len(ordinary) in (0, len(trials)):
                raise ValueError(f"`before` itself {failure}") from failure
        self.notes[f"edge values were left out on {target}: the module before does not take them"] = None
        return self._accepted(ordinary)

    def expected(self, inputs: list[tuple], target: str) -> list[Expected]:
        """Return the outputs of `before`. Raises Failure."""
        outputs = self.before.outputs(inputs, target)
        return [
            Expected(out, lambda args=args: self.before.outputs([nudged(args, 1), nudged(args, -1)], target))
            for args, out in zip(inputs, outputs, strict=True)
        ]

    def outputs_of_after(self, trials: Sequence[ModuleTrial], expected: list[Expected]) -> list[list[Tensor]]:
        """Return the outputs of `after`. Raises Failure."""
        return self.after.outputs([trial.args for trial in trials], trials[0].device)

    def in_own_dtype(self, trial: ModuleTrial) -> bool:
        return trial.kind not in ("extreme", "nonfinite")

    def differences(self, trial: ModuleTrial, old: Expected, new: Any, errors: Errors) -> list[Difference]:
        if isinstance(new, Failure):
            return [Difference(f"{self.second} {new}", "error")]
        if len(old.outputs) != len(new):
            return [Difference(f"there {_outputs(len(old.outputs))} before and {len(new)} after")]
        return self.beyond_rounding(trial, old.outputs, new, errors, old.nudged)

    def beyond_rounding(
        self,
        trial: ModuleTrial,
        old: list[Tensor],
        new: list[Tensor],
        errors: Errors,
        moved: Callable[[], list[list[Tensor]]],
    ) -> list[Difference]:
        """Return the differences that rounding does not explain. moved(): the old outputs for inputs moved by it."""
        differences = compare(old, new, self.tolerance, "output", errors)
        if not differences or any(d.bad is None for d in differences):
            return [d for d in differences if d.bad is None]
        for d in differences if self.tolerance.sums else ():
            d.bad = d.bad & ~nan_or_inf(old[d.leaf], new[d.leaf])
        return beyond_rounding(differences, old, new, moved(), self.tolerance.sums or not trial.edge)

    def sentence(self, trial: ModuleTrial, difference: Difference) -> str:
        if difference.part == "error":
            return difference.sentence
        explained = f"; rounding explains {self.tolerance.rtol:.1e} of its size" * (difference.bad is not None)
        return f"{self.phrases[trial.kind]}{trial.where}, {difference.sentence}{explained}."

    def locate(self, result: Equivalence, trial: ModuleTrial, difference: Difference) -> None:
        """Note the modules, and the first operation of `after` whose value `before` does not compute."""
        result.counterexample = {name: tensor(x) for name, x in result.counterexample.items()}
        if difference.part == "error" or None in (self.before.module, self.after.module):
            return
        result.graph, result.graph_after = self.before.module, self.after.module
        if self.locates and locating():
            with contextlib.suppress(Exception):  # the module cannot be taken apart: the message must do
                if place := self._first_divergent(trial.args):
                    result.first_diverging = place[0]
                    result.reason += f" {place[1]}"

    def _first_divergent(self, inputs: tuple) -> tuple[str, str] | None:
        """Return where the modules differ first: the id of a node in the view of one of them, and a message.

        That is the first operation of `after`, operands first, whose value no operation of `before` has; otherwise the
        last one of `before` whose value `after` does not compute. Values in another order count as equal if the shape
        differs as well: a pass may change the layout.
        """
        old, new = self.before.values(inputs), self.after.values(inputs)
        if old is None or new is None:
            return None
        known = [tensor(x) for x in inputs]
        for id, op, value in new:
            if not any(agree(other, value, self.tolerance) for other in (*(v.tensor for v in old), *known)):
                return id, self.look[0].format(id=id, op=op)
        for id, op, value in reversed(old):
            if not any(agree(value, other, self.tolerance) for other in (*(v.tensor for v in new), *known)):
                return id, self.look[1].format(id=id, op=op)
        return None


def agree(a: Tensor, b: Tensor, tolerance: Tolerance) -> bool:
    """Return whether two tensors hold the same numbers, in another order if their shapes differ."""
    if a.shape != b.shape and a.numel() == b.numel() and a.dtype == b.dtype:
        a, b = a.flatten().sort()[0], b.flatten().sort()[0]
    return not compare(a, b, tolerance)


def _outputs(n: int) -> str:
    return "is 1 output" if n == 1 else f"are {n} outputs"
