"""`milestones()`: a learner's own CSE, DCE and fusion of days 3 and 4 on real models, beside the course's and torch's.

The passes are taken from the notebooks in `work/`, with the definitions and imports above them, and run in a process of
their own: a notebook may hold the other TVM. CSE and DCE run on the ATen operations that `make_fx` records, with the
dead code that it leaves; fusion groups the calls that `trace` finds.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

from passlab import exercises
from passlab.notebook.cells import check_call
from passlab.notebook.project import load, load_progress, progress_file, root, save
from passlab.notebook.ui import Card, say, show
from passlab.process.parsing import parse

#: Word for a pass → the exercise that it answers.
PASSES = {"CSE": "day03.cse", "DCE": "day03.dce", "fusion": "day04.chains"}
#: Models of the zoo on which the passes run.
MODELS = ("resnet18", "gpt", "vit")
#: How long a run may take, in seconds.
LIMIT = 600
#: Whose passes: the learner's, the course's small stages of day 3, torch's own.
WHOSE = ("yours", "the course's", "torch's")
#: What the columns are.
LEGEND = (
    "CSE and DCE: nodes of the ATen operations that make_fx records. Fused: kernels of the calls that trace finds; "
    "torch gives no groups, since it fuses while it generates code."
)


class Row(NamedTuple):
    """A model under one's passes. Counts are of nodes, and of calls that start a kernel each; None: not known."""

    model: str
    whose: str
    nodes: int
    cse: int | None
    dce: int | None
    calls: int
    kernels: int | None

    @property
    def line(self) -> str:
        cse, dce, kernels = ("–" if count is None else count for count in (self.cse, self.dce, self.kernels))
        nodes = f"{self.nodes:>5} nodes, CSE {cse:>4}, then DCE {dce:>4}"
        return f"{self.model:<10}{self.whose:<14}{nodes};  {self.calls:>4} calls, fused {kernels:>4}"


def milestones_file() -> Path:
    """Return the file beside the progress with the results of the last run."""
    return progress_file().with_name("milestones.json")


def milestones() -> None:
    """Run your CSE, DCE and fusion of days 3 and 4 on ResNet-18, GPT and ViT, and show what they save."""
    home = root()
    lacking = [f"Your {word} is not there yet: check({name!r}, …)." for word, name in PASSES.items() if not done(name)]
    if home is None or len(lacking) == len(PASSES):
        return show(say("Milestones run your own passes on real models. " + " ".join(lacking)))
    words = [word for word, name in PASSES.items() if done(name)]
    command = [sys.executable, "-m", __name__, str(home / "work"), *words]
    try:
        ended = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=LIMIT)
        result = json.loads(ended.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return show(
            say(f"Your passes took more than {LIMIT} s on {', '.join(MODELS)}. A walk for each node may be why.")
        )
    except (ValueError, IndexError):
        reason = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        return show(say(f"The process with your passes ended before its time: {reason[:200]}"))
    save(milestones_file(), {"last": result})
    rows, notes = [Row(*row) for row in result["rows"]], [*lacking, *result["notes"], LEGEND]
    text = "\n".join([*(row.line for row in rows), *notes])
    show(Card(text, "milestones", rows=rows, notes=notes))


def done(exercise_id: str) -> bool:
    """Return whether the learner has all points of an exercise, or of its core."""
    record = load_progress()
    entries = [record.get(name, {}) for name in (exercise_id, exercise_id + exercises.CORE)]
    return any(entry.get("total") and entry.get("points", 0) >= entry["total"] for entry in entries)


def reached() -> str:
    """Return one sentence about the last run, or about a first one that is possible now; else ""."""
    rows = [Row(*row) for row in load(milestones_file()).get("last", {}).get("rows", ())]
    counts = [f"{row.model} {row.nodes} → {row.dce} nodes" for row in rows if row.whose == "yours" and row.dce]
    if counts:
        return f"Your passes on real models (milestones()): {', '.join(counts)}."
    if all(map(done, PASSES.values())):
        return "milestones() runs your CSE, DCE and fusion on ResNet-18, GPT and ViT."
    return ""


def answer_in(notebook: dict, exercise_id: str) -> Callable:
    """Return a learner's answer, defined as in a notebook: its cells' imports, definitions and assignments are run, up
    to the check. What fails is left out. Raises LookupError where there is no answer."""
    scope: dict[str, Any] = {"__name__": "answers"}
    for text in ("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"):
        call = check_call(text)
        if call and exercises.whole(call.exercise) == exercise_id:
            with suppress(Exception):
                return eval(compile(ast.Expression(call.answer), exercise_id, "eval"), scope)
            break
        for statement in _definitions(text):
            with suppress(Exception), redirect_stdout(sys.stderr):
                exec(compile(ast.Module([statement], []), exercise_id, "exec"), scope)
    raise LookupError(f"The notebook has no answer to {exercise_id} above its check.")


def _definitions(text: str) -> Iterator[ast.stmt]:
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    with suppress(SyntaxError):  # a cell with magics
        yield from (statement for statement in parse(text).body if isinstance(statement, kinds))


class Broken(Exception):
    """A pass that fails on a model, or changes what it computes: a sentence."""


def _recorded(name: str) -> Any:
    """Return a model of the zoo as the ATen operations that it runs, with dead code, and its inputs."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from passlab import models

    inputs = models.ZOO[name].inputs(1)
    return make_fx(models.ZOO[name].build())(*inputs), inputs


def _checked(word: str, run: Callable, gm: Any, inputs: tuple) -> Any:
    """Return what a pass makes of a copy of a graph. Raises Broken if it fails or computes something else."""
    import copy

    import torch

    expected = gm(*inputs)
    try:
        after = run(copy.deepcopy(gm))
        torch.testing.assert_close(after(*inputs), expected)
    except AssertionError:
        raise Broken(f"{word} changes what the model computes.") from None
    except Exception as error:
        raise Broken(f"{word} fails: {type(error).__name__}: {str(error)[:120]}") from error
    return after


def _torch_cse(gm: Any) -> Any:
    from torch.fx.passes.dialect.common.cse_pass import CSEPass

    result = CSEPass()(gm)
    return result.graph_module if result else gm


def _torch_dce(gm: Any) -> Any:
    gm.graph.eliminate_dead_code()
    return gm


def _course_fusion(gm: Any) -> list[list[str]]:
    groups: dict[Any, list[str]] = {}
    for node, last in exercises.module(PASSES["fusion"]).largest_groups(gm).items():
        groups.setdefault(last, []).append(node.name)
    return list(groups.values())


def _kernels(fusion: Callable, gm: Any) -> int:
    """Return how many kernels the calls of a graph are, fused. Raises Broken for groups that cannot be kernels."""
    from passlab.kernels.groups import illegal

    try:
        groups = [list(group) for group in fusion(gm)]
    except Exception as error:
        raise Broken(f"fusion fails: {type(error).__name__}: {str(error)[:120]}") from error
    if reason := illegal(gm, [group for group in groups if len(group) > 1]):
        raise Broken(f"fusion: {reason}")
    return _calls(gm) - sum(len(group) - 1 for group in groups)


def _calls(gm: Any) -> int:
    return sum(node.op.startswith("call") for node in gm.graph.nodes)


def measure(passes: dict[str, dict[str, Callable]]) -> tuple[list[Row], list[str]]:
    """Return the rows of all models, and sentences about what went wrong. passes: whose → word of `PASSES` → pass."""
    from passlab import models, trace

    rows, notes = [], []
    for name in MODELS:
        recorded, inputs = _recorded(name)
        traced = trace(models.ZOO[name].build(), *models.ZOO[name].inputs(1))
        for whose, own in passes.items():
            graph, counts = recorded, dict.fromkeys(PASSES)
            for word, run in own.items():
                try:
                    if word == "fusion":
                        counts[word] = _kernels(run, traced)
                    else:
                        graph = _checked(word, run, graph, inputs)
                        counts[word] = len(graph.graph.nodes)
                except Broken as broken:
                    notes.append(f"{name}, {whose}: {broken}")
            nodes, calls = len(recorded.graph.nodes), _calls(traced)
            rows.append(Row(name, whose, nodes, counts["CSE"], counts["DCE"], calls, counts["fusion"]))
    return rows, notes


def main(work: str, words: list[str]) -> None:
    """Run the passes of a learner's notebooks below `work`, and print the result as the last line, in JSON."""
    from passlab.fx.stages import STAGES

    own, notes = {}, []
    for word in words:
        exercise = exercises.find(PASSES[word])
        path = Path(work, exercise.day, f"{exercise.notebook}.ipynb")
        try:
            own[word] = answer_in(json.loads(path.read_text(encoding="utf-8")), exercise.id)
        except (OSError, ValueError, LookupError) as error:
            notes.append(f"Your {word} is not in {path.parent.name}/{path.name}: {error}")
    course = {"CSE": STAGES["cse"], "DCE": STAGES["dce"], "fusion": _course_fusion}
    torchs = {"CSE": _torch_cse, "DCE": _torch_dce}
    rows, more = measure(dict(zip(WHOSE, (own, course, torchs), strict=True)))
    print(json.dumps({"rows": rows, "notes": notes + more}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
