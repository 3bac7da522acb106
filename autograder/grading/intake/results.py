"""Write what the engine found into a repaired notebook, for nbgrader and for feedback."""

from __future__ import annotations

from typing import Any

import msgspec
import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.engine.data import NotebookResult, Ran, Verdict
from autograder.grading.intake.cells import is_autograded, is_run, nbgrader_meta

#: Marks the grader's verdict in a check cell's outputs.
VERDICT = "application/vnd.passlab.verdict+json"
#: The texts that feedback shows for a cell that was not run.
AS_HANDED_IN = "Not run for the grade; as handed in:"
NOT_RUN = "Not run for the grade."


def fill(nb: NotebookNode, result: NotebookResult) -> None:
    """Write the outputs of a result into a repaired notebook, in place, as a run would have left them.

    nbgrader reads the points of a check cell from its last output and gives full points to a cell without outputs, so a
    graded cell without a result gets an error.
    """
    count = 0
    for index, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        handed_in, cell.outputs, cell.execution_count = cell.outputs, [], None
        verdict, ran = result.verdicts.get(index), result.ran.get(index)
        if is_run(cell):
            count += 1
            cell.execution_count = count
        if verdict is not None:
            cell.outputs = _verdict_outputs(verdict, float(nbgrader_meta(cell).get("points", verdict.total)), count)
        elif ran is not None and ran.idle:
            note = f"{AS_HANDED_IN if handed_in else NOT_RUN}\n"
            cell.outputs = [_output("stream", name="stdout", text=note), *_numbered(handed_in, count)]
        elif ran is not None:
            cell.outputs = _ran_outputs(ran, cell, count)
        elif is_autograded(cell):
            cell.outputs = [dead_output(f"This question was not graded: {result.failure or 'its cell did not run.'}")]


def dead_output(why: str) -> NotebookNode:
    """Return the output of a cell that ended the Python process."""
    return _output("error", ename="KernelDied", evalue=why, traceback=[f"KernelDied: {why}"])


def _output(kind: str, **parts: Any) -> NotebookNode:
    """Return an output, which `nbformat.v4.new_output` would also validate."""
    return nbformat.from_dict({"output_type": kind, **parts})


def _verdict_outputs(verdict: Verdict, most: float, count: int) -> list[NotebookNode]:
    """Return a verdict as the outputs of its check cell: the card, then the points or the error."""
    facts = {k: v for k, v in msgspec.to_builtins(verdict).items() if k not in ("cases", "html", "text")}
    data = {VERDICT: facts, "text/plain": verdict.text or verdict.message or verdict.crash, "text/html": verdict.html}
    card = _output("display_data", data={mime: value for mime, value in data.items() if value}, metadata={})
    points = min(max(round(verdict.points, 4), 0.0), most)
    if verdict.crash and not points:
        return [card, dead_output(verdict.crash)]
    number = {"text/plain": repr(points)}
    return [card, _output("execute_result", data=number, metadata={}, execution_count=count)]


def _numbered(outputs: list[NotebookNode], count: int) -> list[NotebookNode]:
    for output in outputs:
        if output.output_type == "execute_result":
            output.execution_count = count
    return outputs


def _ran_outputs(ran: Ran, cell: NotebookNode, count: int) -> list[NotebookNode]:
    """Return the outputs of a cell that ran.

    nbgrader counts text on stderr as an error and the last result as points. In a graded cell, text therefore goes to
    stdout, and a result that nbgrader cannot use as points is only displayed.
    """
    outputs = [nbformat.from_dict(output) for output in ran.outputs]
    for output in outputs:
        output.get("data", {}).pop(VERDICT, None)  # reserved for the grader
        if output.output_type == "execute_result":
            output.execution_count = count
        if is_autograded(cell) and output.output_type == "stream":
            output.name = "stdout"
        elif is_autograded(cell) and output.output_type == "execute_result" and not _fair(output, cell):
            output.output_type = "display_data"
            del output["execution_count"]
    failed = any(output.output_type == "error" for output in outputs)
    if ran.died and not failed:
        outputs.append(dead_output(ran.died))
    elif ran.error and not failed:
        outputs.append(_output("error", ename="Error", evalue=ran.error, traceback=[ran.error]))
    return outputs


def _fair(output: NotebookNode, cell: NotebookNode) -> bool:
    """Return whether nbgrader can read this result. It fails without text, and on more points than the maximum."""
    try:
        return not float(output.data["text/plain"]) > float(nbgrader_meta(cell)["points"])
    except ValueError:
        return True
    except KeyError:
        return False
