"""Day 7, a pass instrument: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from passlab.exercises.day07._shared import Witness
from passlab.given.day07.instrument import PAUSE, run
from passlab.judge import Case, Finding
from passlab.judge.forms import excerpt
from passlab.relay import relay, tvm
from passlab.relay.cases import field, let, number, program, tuple_of, weight
from passlab.tvm.judge import first_difference

COLUMNS = ("name", "depth", "before", "after", "seconds")


def record_of(events: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return the rows, without times, for these events."""
    rows: list[dict[str, Any]] = []
    running: list[dict[str, Any]] = []
    for name, calls in events:
        if name:
            rows.append({"name": name, "depth": len(running), "before": calls, "after": None})
            running.append(rows[-1])
        else:
            running.pop()["after"] = calls
    return rows


def _why_not_a_log(value: Any) -> str:
    """Return why the answer is not an instrument with rows of the right form."""
    if not isinstance(value, dict):
        return "The answer must be an instrument with `rows`."
    if not isinstance(rows := value.get("rows"), list):
        return f"`rows` must be a list of dicts; it is {excerpt(rows)}."
    for at, row in enumerate(rows):
        missing = [column for column in COLUMNS if column not in row] if isinstance(row, dict) else COLUMNS
        if missing:
            return f"Row {at} has no {missing[0]!r}; a row has {', '.join(COLUMNS)}."
        whole = [type(row["depth"]), type(row["before"]), type(row["after"] or 0)]
        if not isinstance(row["name"], str) or set(whole) != {int}:
            return f"Row {at} must have a str as name and ints as depth, before and after; it is {excerpt(row)}."
        if not isinstance(row["seconds"], int | float | None) or not (row["seconds"] or 0) >= 0:
            return f"Row {at} must have a number or None as seconds; it has {excerpt(row['seconds'])}."
    return ""


def _missed(rows: list[dict], right: list[dict]) -> str | None:
    """Return where the log differs from the events, or None."""
    for at in range(max(len(rows), len(right))):
        name = right[at]["name"] if at < len(right) else None
        if at >= len(rows) or rows[at]["name"] != name:
            entry = f"Row {at} of the log is {rows[at]['name']}" if at < len(rows) else f"The log ends after {at} rows"
            event = f"the next pass that begins is {name}" if name else f"only {len(right)} runs of passes begin"
            return f"{entry}; {event}."
        row, record = rows[at], right[at]
        if row["depth"] != record["depth"]:
            inside = f"nested in {record['depth']} others" if record["depth"] else "the outermost"
            return f"Row {at}, {name}, is {inside}: its depth is {record['depth']}, not {row['depth']}."
    for at, (row, record) in enumerate(zip(rows, right, strict=True)):
        for column, when in (("before", "begins"), ("after", "ends")):
            if row[column] != record[column]:
                if record[column] is None:
                    return f"Row {at}, {row['name']}, never ends: it raises an error. Its {column!r} is None."
                return (
                    f"When {row['name']} in row {at} {when} the module has {record[column]} calls; "
                    f"the log says {row[column]}."
                )
    return None


def _impossible(rows: list[dict], elapsed: float) -> str | None:
    """Return which times are impossible, or None. `elapsed`: how long all the passes took."""
    for at, row in enumerate(rows):
        if (row["after"] is None) != (row["seconds"] is None):
            return (
                f"Row {at}, {row['name']}, must have seconds if it has ended, otherwise None; it has {row['seconds']}."
            )
        end = next((i for i in range(at + 1, len(rows)) if rows[i]["depth"] <= row["depth"]), len(rows))
        inside = sum(r["seconds"] or 0 for r in rows[at + 1 : end] if r["depth"] == row["depth"] + 1)
        if row["seconds"] is not None and row["seconds"] > elapsed:
            return f"Row {at}, {row['name']}, took {row['seconds']:.6f} s, but all the passes took {elapsed:.6f} s."
        if row["name"] == "Waits" and row["seconds"] is not None and row["seconds"] < 0.9 * PAUSE:
            return f"Row {at}, Waits, took {row['seconds']:.6f} s, but it sleeps {PAUSE} s: ask a clock."
        if row["seconds"] is not None and inside > row["seconds"]:
            return (
                f"Row {at}, {row['name']}, took {row['seconds']:.6f} s, but the runs nested in it took {inside:.6f} s: "
                f"a run takes at least as long as everything nested in it."
            )
    return None


def judge(case: Case, value: Any) -> Iterator[Finding]:
    module, contexts, level = case.build()
    reason = _why_not_a_log(value)
    yield Finding("valid", not reason, reason)
    if reason:
        return
    witness = Witness()
    alone, right = run(module, contexts, level, witness), record_of(witness.events)
    changed = _changed(alone, value.get("module"))
    yield Finding("same", not changed, changed, before=alone)
    missed = _missed(value["rows"], right) or _impossible(value["rows"], value["elapsed"])
    yield Finding("did", missed is None, missed or "")


def _changed(alone: tvm.IRModule | None, logged: Any) -> str:
    if alone is None:
        return ""
    if not isinstance(logged, tvm.IRModule):
        return "With your instrument the passes returned no module."
    difference = first_difference(alone, logged, ("without the instrument the module", "with it the module"))
    if not difference:
        return ""
    return f"With your instrument the result differs. {difference} Does should_run return False? Is the module edited?"


def logged(name: str, build: Callable[[], tvm.IRModule], *contexts: tuple[str, ...], level: int = 3) -> Case:
    return Case(name, lambda: (build(), contexts, level))


def normed(x: relay.Var, gamma: relay.Var, beta: relay.Var, mean: relay.Var, var: relay.Var) -> relay.Expr:
    """Return conv, batch norm, relu, without constants that would take time to fold."""
    conv = relay.nn.conv2d(x, weight(4, 3, 3, 3), channels=4, kernel_size=(3, 3), padding=(1, 1))
    return relay.nn.relu(relay.nn.batch_norm(conv, gamma, beta, mean, var)[0])


def twice(x: relay.Var) -> relay.Expr:
    """Return values that are read several times, so that there are more paths than calls."""
    y = relay.tanh(x) + relay.tanh(x)
    for _ in range(3):
        y = y * y + y
    return let(relay.exp(y), lambda _: field(tuple_of(y, relay.sqrt(y)), 0))


def two_functions() -> tvm.IRModule:
    """Return a module whose main calls @half twice."""
    half, x = relay.GlobalVar("half"), relay.var("x", shape=(2, 3))
    inner = relay.var("z", shape=(2, 3))
    module = tvm.IRModule({half: relay.Function([inner], relay.exp(inner) * number(0.5), x.type_annotation)})
    module["main"] = relay.Function([x], half(half(x)) + number(1), x.type_annotation)
    return relay.transform.InferType()(module)


def cases() -> list[Case]:
    network, shared = program(normed, (1, 3, 4, 4), *[(4,)] * 4), program(twice, (2, 3))
    return [
        logged("one after the other", shared, ("EliminateCommonSubexpr", "DeadCodeElimination", "FuseOps")),
        logged("a pass that is a sequence", network, ("SimplifyInference", "FoldScaleAxis", "FuseOps")),
        logged("two functions, at level 1", two_functions, ("FoldConstant", "ToANormalForm", "FuseOps"), level=1),
        logged("the context after one that failed", shared, ("InferType", "Fails", "FuseOps"), ("SimplifyInference",)),
        logged("a pass that waits", shared, ("SimplifyInference", "Waits")),
        logged("a pass that fails", shared, ("SimplifyInference", "Fails", "FuseOps")),
    ]
