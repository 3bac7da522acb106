"""Every exercise on torch.fx, its graphs compared on the GPU: reference, wrong and right answers, all five verdicts.

As in `passlab grade --device cuda`, an answer has its case on the CPU, and where the judge compares two graphs, it runs
both on the GPU. The proof is that of `passlab prove`: reference and right answers get every point, and each wrong
answer loses the verdict that it names.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from autograder.authoring import answers, source
from autograder.authoring.prove import prove
from autograder.bench.figures import Figure, not_measured
from autograder.gpu.job import Job, each
from passlab import exercises
from passlab.fx import isolation
from passlab.fx.programs import RUNS, Program
from passlab.judge import VERDICTS, Case

#: The days whose exercises are on torch.fx; what takes longest begins first.
DAYS = ("day12", *(f"day{n:02}" for n in (*range(1, 7), 11, *range(13, 18))))
#: Exercises on torch.fx that are for the CPU alone, and why.
CPU_ONLY = {"day12.faster": "its limits are shares of CPU time; the part capstone times compiled models on the GPU"}


def has_graph(case: Case) -> bool:
    """Return whether a case holds a graph; of one that cannot be built the proof tells. Raises ImportError."""
    try:
        parts = pytree.tree_leaves(case.build())
    except ImportError:
        raise
    except Exception:
        return True
    return any(isinstance(part, fx.GraphModule) for part in parts)


class _Absent(ModuleType):
    """Stands in for a package that is missing here and that a notebook imports: whatever uses it fails."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__spec__, self.__path__ = ModuleSpec(name, None), []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self.__name__}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise ModuleNotFoundError(f"{self.__name__} is missing here")


def stand_in(exercise_id: str) -> list[str]:
    """Let notebooks import IPython, and that of an exercise other packages that are missing here; return their names.

    An answer is made with all that its notebook imports, of which it uses little. Cases may need answers of others.
    """
    path = source.find(exercise_id).path
    missing = []
    if importlib.util.find_spec("IPython") is None:
        sys.modules |= {name: _Absent(name) for name in ("IPython", "IPython.display")}
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            aliases = [(alias.name, []) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            aliases = [(statement.module, [alias.name for alias in statement.names])]
        else:
            continue
        for name, parts in aliases:
            try:
                module = import_module(name)
                for part in parts:
                    getattr(module, part, None)  # passlab.relax looks for its compiler here
            except ImportError:
                missing.append(name)
                sys.modules[name] = _Absent(name)
                for end in range(1, name.count(".") + 1):
                    whole = name.rsplit(".", end)[0]
                    sys.modules.setdefault(whole, _Absent(whole))
    return missing


def prove_on(exercise_id: str, device: str, seed: int) -> dict[str, Any]:
    """Return how an exercise's answers were judged on a device; {"lacks": why} where it cannot be judged here.

    This process then compares all graphs there: give it to one exercise.
    """
    report: dict[str, Any] = {"exercise": exercise_id}
    exercise = exercises.find(exercise_id)
    missing = stand_in(exercise_id)
    try:
        cases = [*exercise.cases(), *answers.hidden_cases(exercise_id, seed)]
        graphs = sum(map(has_graph, cases))  # this imports what cases need, which is not an answer's time either
    except ImportError as error:
        return report | {"lacks": str(error).split(". ")[0]}
    if not graphs:
        return report
    (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).cpu()  # the first call takes seconds
    isolation.use(Program.run_here, device=device)
    RUNS.clear()
    proof = prove(exercise_id, seed, brief=True)
    problems = list(proof.problems)
    problems += [f"{row.kind} {row.name} {row.problem}. {row.message}" for row in proof.rows if row.problem]
    compiler = f"passlab.{exercise.flavour}"
    if problems and compiler in missing:
        return report | {"lacks": f"some of its answers need {compiler}, whose compiler is missing here"}
    kinds = Counter("right" if row.kind == "reference" else row.kind for row in proof.rows)
    return report | {
        "graphs": graphs,
        "answers": dict(kinds),
        "problems": problems,
        "verdicts": list(exercise.points),
        "runs": dict(RUNS),
    }


def judging(job: Job) -> Iterator[Figure | str]:
    """Judge the answers to all exercises on torch.fx; each exercise has a process of its own."""
    device = "cpu:0" if job.interpret else job.device
    names = [e.id for day in DAYS for e in exercises.of_day(day) if e.flavour != "mlir" and e.id not in CPU_ONLY]
    names = names[: job.sample] if job.sample else names
    yield f"{len(names)} exercises"
    yield from (not_measured(name, reason) for name, reason in CPU_ONLY.items())
    totals, verdicts, runs, visited, without = Counter(), set(), Counter(), 0, []
    stops = replace(job, until=job.until - 3)
    for row in each(stops, prove_on, [(name, device, job.seed) for name in names], most=16, apart=True):
        visited += 1
        if isinstance(row, RuntimeError):
            yield Figure(str(row).rstrip("."), "its process ended", held=False)
            continue
        name = row["exercise"]
        if "lacks" in row:
            yield not_measured(name, row["lacks"])
            continue
        if not (row.get("problems") or row.get("runs", {}).get(device)):
            without.append(name)
            continue
        totals.update(row["answers"])
        runs.update(row["runs"])
        verdicts.update(row["verdicts"])
        good = max(sum(row["answers"].values()) - len(row["problems"]), 0)
        ran = [f"{count:,} runs on {where}" for where, count in sorted(row["runs"].items())]
        about = ", ".join([f"{row['graphs']} cases with graphs", *ran])
        yield Figure(f"{name}: answers judged as they should be", str(good), about, "all", not row["problems"], good)
        for problem in row["problems"][:5]:
            yield Figure(name, f"wrong: {problem[:400]}", held=False)
    if visited < len(names):
        yield not_measured(f"{len(names) - visited} of {len(names)} exercises", "the time of this part was over")
    if without:
        yield Figure("exercises that compare no graphs there", str(len(without)), ", ".join(sorted(without)))
    about = ", ".join(f"{totals[kind]} {kind}" for kind in ("right", "wrong", "stub"))
    about += f"; verdicts {', '.join(v for v in VERDICTS if v in verdicts)}"
    yield Figure("answers judged", str(totals.total()), about, value=float(totals.total()))
    ran = ", ".join(f"{count:,} on {where}" for where, count in sorted(runs.items())) or "none"
    where = torch.cuda.get_device_name() if not job.interpret else "the CPU"
    yield Figure("runs of graphs", ran, f"the device is {where}", value=float(runs[device]))
