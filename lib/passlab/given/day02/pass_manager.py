"""Day 2, a pass manager that names the culprit: the scenarios, and how an answer runs on one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from passlab.fx.judge import why_not_valid
from passlab.fx.manager import Pass, PassError
from passlab.given._plain import plain
from passlab.judge import Case, record


@record
@dataclass(frozen=True)
class Step:
    """One pass of a scenario. `does`: add or remove a node, rebuild the graph, break, forget, raise, blame, keep."""

    name: str
    does: str = "keep"
    requires: tuple[str, ...] = ()
    preserves: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@record
@dataclass(frozen=True)
class Scenario:
    """Passes to manage, and the lengths of the graphs on which one manager is run, one after the other."""

    steps: tuple[Step, ...]
    graphs: tuple[int, ...] = (3,)


def _line(length: int) -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(length):
        x = graph.call_function(torch.relu, (x,))
    graph.output(x)
    return fx.GraphModule(torch.nn.Module(), graph)


def size(gm: fx.GraphModule) -> int:
    """Analysis: how many nodes."""
    return len(gm.graph.nodes)


def inputs(gm: fx.GraphModule) -> tuple[str, ...]:
    """Analysis: the names of the inputs."""
    return tuple(n.name for n in gm.graph.nodes if n.op == "placeholder")


def users(gm: fx.GraphModule) -> tuple[int, ...]:
    """Analysis: how many users each node has."""
    return tuple(len(n.users) for n in gm.graph.nodes)


def unused(gm: fx.GraphModule) -> str | None:
    """Analysis: the name of the first input without a user, or None."""
    return next((n.name for n in gm.graph.nodes if n.op == "placeholder" and not n.users), None)


ANALYSES = {"size": size, "inputs": inputs, "users": users, "unused": unused}


def done_by(change: str, gm: fx.GraphModule) -> Any:
    """Do to a graph what a scenario's pass does."""
    *_, last, output = gm.graph.nodes
    if change == "add":
        with gm.graph.inserting_before(output):
            output.args = (gm.graph.call_function(torch.neg, (last,)),)
    elif change == "remove":
        last.replace_all_uses_with(last.args[0])
        gm.graph.erase_node(last)
    elif change == "rebuild":
        return _line(size(gm) - 3)
    elif change == "break":
        output.prepend(next(n for n in gm.graph.nodes if n.op == "placeholder"))
    elif change == "forget":
        return None
    elif change == "raise":
        raise KeyError("shape")
    elif change == "blame":  # as a pass does that runs a manager of its own
        raise PassError("inner", "an inner pass broke it")
    return gm


def graph_of(length: int) -> fx.GraphModule:
    """Return the graph of a run: a line, broken if the length is negative."""
    return done_by("break", _line(-length)) if length < 0 else _line(length)


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Build the scenario's passes, run the manager, and log what it called, in which order, with which arguments.

    A log entry is (what was called, its name, the size of the graph that it was given, the facts that it was given).
    """
    (scenario,) = case.build()
    log: list[tuple] = []

    def note(event: str, name: str, gm: Any, facts: Any = ()) -> None:
        log.append((event, name, size(gm) if isinstance(gm, fx.GraphModule) else None, plain(dict(facts), lists=False)))

    def analysis(name: str) -> Callable:
        def compute(gm: fx.GraphModule) -> Any:
            note("analysis", name, gm)
            return ANALYSES[name](gm)

        return compute

    def step(plan: Step) -> Pass:
        def run(gm: fx.GraphModule, facts: dict[str, Any]) -> Any:
            note("pass", plan.name, gm, facts)
            return done_by(plan.does, gm)

        return Pass(plan.name, run, plan.requires, plan.preserves, plan.after)

    def verify(gm: Any) -> str | None:
        note("verify", "verify", gm)
        return why_not_valid(None, gm) or None

    manager = answer([step(plan) for plan in scenario.steps], {n: analysis(n) for n in ANALYSES}, verify)
    runs = []
    for length in scenario.graphs:
        del log[:]
        run: dict[str, Any] = {"error": None}
        try:
            result = manager.run(graph_of(length))
            run["result"] = result if isinstance(result, fx.GraphModule) else f"a {type(result).__name__}"
            run["history"] = plain(manager.history, lists=False)
        except PassError as error:
            cause = type(error.__cause__).__name__ if error.__cause__ else None
            run |= {"error": "PassError", "culprit": str(error.culprit), "reason": str(error.reason), "cause": cause}
        except NotImplementedError:
            raise
        except Exception as error:
            run |= {"error": type(error).__name__, "reason": str(error)[:120]}
        runs.append(run | {"log": list(log)})
    return {"runs": runs}
