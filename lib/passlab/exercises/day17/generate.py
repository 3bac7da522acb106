"""Day 17, graphs that expose faulty passes: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, fx
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from passlab.exercises.day17._faulty import FAULTY, RIGHT
from passlab.exercises.day17._results import differ, why_not_a_program
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.programs import Program, Run, preserve_state
from passlab.judge import Case, Finding, plural
from passlab.judge.forms import why_not_a_list

#: The most graphs for one pass, and the most operations in each.
GRAPHS, OPERATIONS = 50, 20

Pass = Callable[[fx.GraphModule], Any]


class Suspects(NamedTuple):
    """Faulty versions of a pass, each with what is wrong about it, and a right one. `tell`: may messages name them?"""

    right: Pass
    faulty: Mapping[str, Pass]
    tell: bool = False


class Sample:
    """A returned graph with its inputs. `run`: what it does."""

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[Tensor]):
        self.gm, self.inputs = rebuild(gm), tuple(inputs)
        self.run: Run = Program(self.gm).run(self.inputs, traced=True)
        self.fair: dict[Pass, bool] = {}
        for node in self.gm.graph.nodes if self.run.error is None else ():
            value = self.run.trace.values.get(node.name)  # type: ignore[union-attr]
            node.meta.pop("tensor_meta", None)
            if isinstance(value, Tensor):
                node.meta["tensor_meta"] = _extract_tensor_metadata(value)

    def shows(self, run_pass: Pass) -> bool:
        """Return whether a pass raises on this graph, or makes an invalid or another program of it."""
        copy = rebuild(self.gm)
        before = str(copy.graph)
        try:
            after = run_pass(copy)
        except Exception:
            return True
        if not isinstance(after, fx.GraphModule) or why_not_valid(self.gm, after):
            return True
        if str(after.graph) == before:
            return False
        return bool(differ(self.run, Program(rebuild(after)).run(self.inputs)))

    def exposes(self, faulty: Pass, right: Pass) -> bool:
        """Return whether a faulty pass goes wrong on this graph, and the right one does not."""
        if not self.shows(faulty):
            return False
        if right not in self.fair:
            self.fair[right] = not self.shows(right)
        return self.fair[right]


def hidden_from(suspects: Suspects, samples: Sequence[Sample]) -> list[str]:
    """Return the names of the faulty passes that no sample exposes."""
    return [
        name
        for name, faulty in suspects.faulty.items()
        if not any(sample.exposes(faulty, suspects.right) for sample in samples)
    ]


def generate_case(name: str, suspects: Suspects) -> Case:
    """Return a case for a pass of that name."""
    return Case(name, lambda: (name,), expect=suspects)


def cases() -> list[Case]:
    return [generate_case(name, Suspects(RIGHT[name], faulty, tell=True)) for name, faulty in FAULTY.items()]


def why_not_graphs(value: Any) -> str:
    """Return why a value is not a list of pairs of a graph and its inputs, within the limits, or ""."""
    if reason := why_not_a_list(value, "a list of pairs, a graph and its inputs"):
        return reason
    if len(value) > GRAPHS:
        return f"There are {len(value)} graphs; at most {GRAPHS} are allowed."
    return next(filter(None, (why_not_a_program(pair, f"Graph {i}", OPERATIONS) for i, pair in enumerate(value))), "")


def judge(case: Case, value: Any) -> Iterator[Finding]:
    if reason := why_not_graphs(value):
        yield Finding("valid", False, reason)
        return
    samples: list[Sample] = []
    for i, (gm, inputs) in enumerate(value):
        with preserve_state():
            samples.append(Sample(gm, inputs))
        if error := samples[-1].run.error:
            yield Finding("valid", False, f"Graph {i} does not run on its inputs: {str(error)[:200]}", before=gm)
            return
    yield Finding("valid", True)
    suspects: Suspects = case.expect
    with preserve_state():
        missed = hidden_from(suspects, samples)
    total = len(suspects.faulty)
    message = f"{total - len(missed)} of {plural(total, 'faulty pass', 'faulty passes')} are exposed."
    if missed and suspects.tell:
        message += f" One that is not: {missed[0]}."
    yield Finding("did", len(missed) <= total / 2, message)
    yield Finding("spared", len(missed) <= total / 4, message)
    yield Finding("cost", len(missed) <= 1, message)
