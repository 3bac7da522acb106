"""A fault that was found: what fails, on how small a graph, and how to report it."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor, fx

from passlab.fx.effects import effects
from passlab.fx.nodes import op_name
from passlab.hunt.targets import Target, results


@dataclass
class Fault:
    """A fault of a target. `graph`: the smallest graph that shows it. `seeds`: of the graphs that showed it.

    `kind`: "values", "form" (shape, dtype or number of results), "crash", or the name of the exception. `second`: what
    another oracle says, "" if it does not agree; then it may be a false alarm.
    """

    target: Target
    kind: str
    message: str
    graph: fx.GraphModule
    second: str
    seeds: list[int] = field(default_factory=list)

    @property
    def operations(self) -> list[str]:
        """Return the names of the operations of the shrunk graph, in order."""
        return [op_name(node, self.graph) for node in self._calls]

    @property
    def _calls(self) -> list[fx.Node]:
        return [node for node in self.graph.graph.nodes if node.op.startswith("call_")]

    @property
    def signature(self) -> tuple:
        """Return what two failures must share to be taken for one fault.

        Of an error that is its message. Of other failures, the first of these that is there: the effects of what is
        left; its options; which operations occur more than once, on which types of numbers; the names of operations.
        """
        if self.kind not in ("values", "form"):
            return self.target.name, self.kind, _shape_of(self.message)
        does = {effect for node in self._calls for effect in effects(node)} - {"signature"}
        options = {key for node in self._calls for key, value in node.kwargs.items() if not isinstance(value, fx.Node)}
        again = {_numbers(node) for node in self._calls if self.operations.count(op_name(node, self.graph)) > 1}
        return self.target.name, *sorted(does or options or again or {self.kind, *self.operations})

    def report(self) -> str:
        """Return a report in Markdown, as the maintainers of the target may get it."""
        inputs = "\n".join(f"# {name}: {_form(x)}" for name, x in self._inputs())
        versions = ", ".join(f"{name} {version_of(name)}" for name in dict.fromkeys(("torch", self.target.package)))
        return (
            f"## {self.target.name}: {self.kind} with {', '.join(self.operations)}\n\n"
            f"{self.message}\n\n"
            f"Promised: {self.target.promise}\n\n"
            f"```python\n{inputs}\n{code_of(self.graph)}\n```\n\n"
            f"Second oracle: {self.second or 'does not agree'}. Versions: {versions}."
            + (f" Seeds of drawn_graph: {', '.join(map(str, self.seeds))}." if self.seeds else "")
            + "\n"
        )

    def _inputs(self) -> list[tuple[str, Tensor]]:
        names = [node.name for node in self.graph.graph.find_nodes(op="placeholder")]
        return list(zip(names, self.graph.meta["inputs"], strict=True))


def code_of(gm: fx.GraphModule) -> str:
    """Return the code of a graph as a person would write it: without "; x = None", by which fx frees values early."""
    code = re.sub(r";  \w+( = \w+)* = None", "", gm.code.strip())
    return re.sub(r"([(,] *\w+) = ", r"\1=", code).replace("'", '"')


def differ(before: Sequence[Tensor], after: Sequence[Tensor]) -> tuple[str, str] | None:
    """Return how two lists of results differ, as (kind, sentence), or None. Rounding is no difference."""
    if len(before) != len(after):
        return "form", f"It returns {len(after)} tensors instead of {len(before)}."
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            return "form", f"Output {i} is {_form(new)} instead of {_form(old)}."
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        wrong = ~torch.isclose(old.double(), new.double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        if wrong.any():
            at = tuple(int(place) for place in wrong.nonzero()[0])
            return "values", f"Output {i}{list(at)} is {new[at].item():.6g} instead of {old[at].item():.6g}."
    return None


def arbiter(gm: fx.GraphModule, after: Sequence[Tensor]) -> str:
    """Return what the graph in float64 says of results: "" unless they are off where those in float32 are not."""
    own = results(copy.deepcopy(gm), gm.meta["inputs"])
    try:
        exact = [x.to(like.dtype) for x, like in zip(_in_float64(gm), own, strict=True)]
    except Exception:  # it does not run, or returns another number of tensors: it cannot say
        return ""
    if differ(own, exact) or not differ(exact, after):
        return ""
    return "the graph in float64 agrees with eager, and not with the target"


def _in_float64(gm: fx.GraphModule) -> list[Tensor]:
    state = {name: widened(x) for name, x in gm.state_dict().items()}
    return results(lambda *args: torch.func.functional_call(gm, state, args), [widened(x) for x in gm.meta["inputs"]])


def widened(x: Tensor) -> Tensor:
    """Return floats as float64, and all other values as they are."""
    return x.double() if x.is_floating_point() else x


def _numbers(node: fx.Node) -> str:
    """Return the types of the numbers and lists that a node is called with."""
    kinds = (type(x) for x in node.args if not isinstance(x, fx.Node))
    return ", ".join("int" if kind is bool else kind.__name__ for kind in kinds) or "no numbers"


def _shape_of(message: str) -> str:
    """Return a message without numbers and names in quotes."""
    return re.sub(r"\d[\d.e+-]*|'[^']*'|\"[^\"]*\"|\b\w*_\w*\b", "…", message)[:80]


def _form(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


def version_of(package: str) -> str:
    """Return the version of an installed package, "" for one that is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
