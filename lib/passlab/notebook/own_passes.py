"""A learner's own passes on real models: `python -m passlab.notebook.own_passes WORK CSE DCE fusion`.

The passes are taken from the notebooks in `work/`, with the definitions and imports above them. CSE and DCE run on the
ATen operations that `make_fx` records, with the dead code that it leaves; fusion groups the calls that `trace` finds.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from passlab import exercises
from passlab.notebook.cells import check_call
from passlab.notebook.milestones import LIMIT, MODELS, PASSES, WHOSE, Row
from passlab.process.clock import end_after
from passlab.process.parsing import parse


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
    from passlab.fx import torch_passes
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
    torchs = {"CSE": torch_passes.merge, "DCE": torch_passes.eliminate}
    rows, remarks = measure(dict(zip(WHOSE, (own, course, torchs), strict=True)))
    print(json.dumps({"rows": rows, "notes": notes + remarks}))


if __name__ == "__main__":
    end_after(LIMIT)
    main(sys.argv[1], sys.argv[2:])
