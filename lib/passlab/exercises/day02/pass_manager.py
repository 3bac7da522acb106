"""Day 2, A pass manager that names the culprit: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx

from passlab.given.day02.pass_manager import ANALYSES, Scenario, Step, done_by, graph_of, size
from passlab.judge import Case, Finding, core, enough


@dataclass(frozen=True)
class Managed:
    """The expected outcome of a scenario: the passes that run and the number of analyses, or the culprit.

    `says`: a part of the error's reason. `what`: what happened, for the learner.
    """

    ran: tuple[str, ...] = ()
    culprit: str | None = None
    says: str = ""
    what: str = ""
    analyses: int | None = None


def judge(case: Case, value: dict[str, Any]) -> Iterator[Finding]:
    """Judge that passes run in order on each other's results, culprits are named, and facts are true and not redone."""
    (scenario,) = case.build()
    ok = {"did": True, "valid": True, "spared": True, "cost": True}
    for length, run in zip(scenario.graphs, value["runs"], strict=True):
        for verdict, message in _broken(case.expect, scenario.steps, length, run):
            if ok[verdict]:
                yield Finding(verdict, False, message)
            ok[verdict] = False
    for verdict, is_kept in ok.items():
        if is_kept:
            yield Finding(verdict, True)


def _broken(expect: Managed, steps: tuple[Step, ...], length: int, run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return (verdict, sentence) for each law that a run broke. The log is replayed from the graph that the run got."""
    ran = [name for event, name, *_ in run["log"] if event == "pass"]
    if expect.culprit is None and run["error"] is not None:
        yield "did", f"The manager raised {run['error']}, although every pass is correct: {run.get('reason', '')}"
        return
    if expect.culprit is not None:
        yield from _blamed(expect, run)
    if ran != list(expect.ran):
        where = "did" if expect.culprit is None else "valid"
        yield where, f"Expected these passes to run: {_listed(expect.ran)}; these ran: {_listed(ran)}."
        return
    plans, gm = {step.name: step for step in steps}, graph_of(length)
    computed, verified, last, history = set(), False, "the start", []
    for event, name, n, facts in run["log"]:
        at_hand = n == size(gm)
        if event == "verify":
            verified |= at_hand
        elif event == "analysis":
            computed |= {name} if at_hand else set()
        else:
            plan = plans[name]
            if not at_hand:
                yield (
                    "did",
                    f"Pass {name} received a graph of {n} nodes, but the pass before it returned one of {size(gm)}. "
                    f"Give each pass the graph that the one before it returned.",
                )
                return
            if not verified:
                yield "valid", f"The graph was not verified between {last} and {name}."
            yield from _untrue(plan, gm, facts, computed)
            computed, verified, last = computed & set(plan.preserves), False, name
            if name != expect.culprit:
                gm = done_by(plan.does, gm)
                history.append((name, n, size(gm)))
    if expect.culprit is None:
        if not verified and ran:
            yield "valid", f"The graph was not verified after {last}, the last pass that ran."
        yield from _history_findings(gm, history, run)
    yield from _costly(expect, run)


def _costly(expect: Managed, run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    count = sum(event == "analysis" for event, *_ in run["log"])
    if expect.analyses is not None and count > expect.analyses:
        yield (
            "cost",
            f"{count} analyses were computed; {enough(expect.analyses)}. "
            f"Compute an analysis when a pass requires it, and keep it as long as the passes preserve it.",
        )


def _untrue(plan: Step, gm: fx.GraphModule, facts: dict, computed: set[str]) -> Iterator[tuple[str, str]]:
    """Find what is wrong with the facts given to a pass. `computed`: facts that every pass since has preserved."""
    if set(facts) != set(plan.requires):
        yield "spared", f"Pass {plan.name} requires {_listed(plan.requires)} but received {_listed(facts)}."
    for fact in [fact for fact in plan.requires if fact in facts]:
        true = ANALYSES[fact](gm)
        drop = "After a pass, drop every analysis that it does not preserve."
        if facts[fact] != true:
            change = f"{fact} was {facts[fact]} and is now {true}"
            yield "spared", f"Pass {plan.name} received stale facts: {change}. {drop}"
        elif fact not in computed:
            was = f"{fact} was computed before a pass that does not preserve it"
            yield "spared", f"Pass {plan.name} received a fact that may be stale: {was}. {drop}"


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"


def _blamed(expect: Managed, run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if run["error"] is None:
        yield "valid", f"{expect.what}, but run returned without an error. Raise PassError({expect.culprit!r}, …)."
    elif run["error"] != "PassError":
        yield "valid", f"{expect.what}: run must raise PassError({expect.culprit!r}, …). It raised {run['error']}."
    elif run["culprit"] != expect.culprit:
        yield "valid", f"{expect.what}. Your error should name {expect.culprit}; it names {run['culprit']}."
    elif expect.says not in str(run["reason"]):
        yield "valid", f"{expect.what}. The reason should contain “{expect.says}”; yours is: {run['reason']}"
    elif expect.says == "shape" and run["cause"] != "KeyError":
        yield "valid", "The pass's own error got lost. Write `raise PassError(…) from error`."


def _history_findings(gm: fx.GraphModule, history: list[tuple], run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Find what is wrong with the graph and the history of a run."""
    result = run["result"]
    if not isinstance(result, fx.GraphModule) or str(result.graph) != str(gm.graph):
        answer_text = f"a graph of {size(result)} nodes" if isinstance(result, fx.GraphModule) else result
        yield "did", f"run should return the graph of the last pass, with {size(gm)} nodes; it returned {answer_text}."
    elif run["history"] != tuple(history):
        answer = list(run["history"]) if isinstance(run["history"], tuple) else run["history"]
        yield "did", f"history should be {history} (pass, nodes before, nodes after); yours is {answer}."


def cases() -> list[Case]:
    """Return the visible cases of the pass manager."""

    def case(name: str, *steps: Step, expect: Managed, about: tuple[str, ...], graphs: tuple[int, ...] = (3,)) -> Case:
        return Case(name, lambda: (Scenario(steps, graphs),), about, expect=expect)

    add, remove, rebuild = Step("grow", "add"), Step("shrink", "remove"), Step("rebuild", "rebuild")
    count = Step("count", requires=("size", "inputs"), preserves=("size", "inputs", "users"))
    return [
        core(
            case(
                "plain: three passes",
                *(add, rebuild, remove),
                expect=Managed(("grow", "rebuild", "shrink")),
                about=("did", "valid"),
            )
        ),
        core(
            case(
                "plain: the second pass breaks the graph",
                *(add, Step("muddle", "break"), remove),
                expect=Managed(("grow", "muddle"), "muddle", "before it is defined", "muddle broke the graph"),
                about=("valid",),
            )
        ),
        core(
            case(
                "plain: the input is broken",
                add,
                expect=Managed((), "input", "before it is defined", "The graph was broken before the first pass"),
                about=("valid",),
                graphs=(-4,),
            )
        ),
        case(
            "three passes in a row",
            *(add, rebuild, remove),
            expect=Managed(("grow", "rebuild", "shrink")),
            about=("did", "valid"),
        ),
        case(
            "the second of three passes breaks the graph",
            *(add, Step("muddle", "break"), remove),
            expect=Managed(("grow", "muddle"), "muddle", "before it is defined", "muddle broke the graph"),
            about=("valid",),
        ),
        case(
            "a pass returns nothing",
            *(Step("forgetful", "forget"), add),
            expect=Managed(("forgetful",), "forgetful", "returned None", "forgetful returned None"),
            about=("valid",),
        ),
        case(
            "a pass raises",
            *(add, Step("crash", "raise")),
            expect=Managed(("grow", "crash"), "crash", "shape", "crash raised KeyError('shape')"),
            about=("valid",),
        ),
        case(
            "the graph is broken before the first pass",
            add,
            expect=Managed((), "input", "before it is defined", "The graph was broken before the first pass"),
            about=("valid",),
            graphs=(-3,),
        ),
        case(
            "a pass stands before one that must come first",
            *(add, Step("late", after=("shrink",)), remove),
            expect=Managed((), "late", "shrink", "late stands before shrink, which it must follow"),
            about=("valid",),
        ),
        case(
            "facts that go stale, and facts that do not",
            *(count, Step("again", requires=("size",), preserves=("size", "inputs", "users"))),
            *(
                Step("grow", "add", requires=("size",), preserves=("inputs",)),
                Step("last", requires=("size", "inputs")),
            ),
            expect=Managed(("count", "again", "grow", "last"), analyses=3),
            about=("did", "spared", "cost"),
        ),
        case(
            "the same manager on a second graph",
            count,
            expect=Managed(("count",), analyses=2),
            about=("did", "spared"),
            graphs=(3, 6),
        ),
    ]
