"""Convert the cell outputs that a worker reports into the format of notebook files.

Output types reserved for the grader, and anything of an unknown form, are dropped.
"""

from __future__ import annotations

from typing import Any

from autograder.engine.data import Ran
from autograder.engine.messages import MIMES, MOST_OUTPUTS
from autograder.engine.outcomes import printable

#: The limit, in characters, for the outputs of one cell.
MOST_STORED = 4 * 2**20
_TOO_MUCH = "… more outputs than are kept; they are not shown.\n"


def _text(value: Any) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _output(raw: Any) -> dict[str, Any] | None:
    kind = raw.get("output_type") if isinstance(raw, dict) else None
    if kind == "stream":
        name = "stderr" if raw.get("name") == "stderr" else "stdout"
        return {"output_type": "stream", "name": name, "text": _text(raw.get("text"))}
    if kind == "error":
        lines = raw.get("traceback")
        return {
            "output_type": "error",
            "ename": printable(raw.get("ename")),
            "evalue": _text(raw.get("evalue")),
            "traceback": [_text(line) for line in lines] if isinstance(lines, list) else [],
        }
    if kind in ("display_data", "execute_result") and isinstance(raw.get("data"), dict):
        data = {mime: _text(value) for mime, value in raw["data"].items() if mime in MIMES}
        node: dict[str, Any] = {"output_type": kind, "data": data, "metadata": {}}
        if kind == "execute_result":
            count = raw.get("execution_count")
            node["execution_count"] = count if type(count) is int else None
        return node if data else None
    return None


def size(outputs: Any) -> int:
    """Return about how many characters outputs take in a notebook."""
    if isinstance(outputs, dict):
        return 20 + sum(size(key) + size(value) for key, value in outputs.items())
    if isinstance(outputs, str):
        return len(outputs)
    return 10 + sum(map(size, outputs)) if isinstance(outputs, list) else 10


def ran(raw: Any, left: int = MOST_STORED) -> Ran:
    """Return the result of one cell from a worker's report, which is not trusted.

    left: the most characters of outputs that are kept, besides MOST_STORED; a sentence takes the place of the rest.
    """
    raw = raw if isinstance(raw, dict) else {}
    outputs, kept, left = raw.get("outputs"), [], min(left, MOST_STORED)
    for one in map(_output, outputs[:MOST_OUTPUTS] if isinstance(outputs, list) else []):
        if one and (left := left - size(one)) < 0:
            kept.append({"output_type": "stream", "name": "stdout", "text": _TOO_MUCH})
            break
        kept += [one] if one else []
    return Ran(kept, printable(raw.get("error")))


def from_file(raw: Any) -> list[dict[str, Any]]:
    """Return the stored outputs of a cell of a notebook file, in the form that `ran` produces."""
    shown = ran({"outputs": _join_lines(raw)}).outputs
    return [] if shown and shown[-1].get("text") == _TOO_MUCH else shown


def _join_lines(raw: Any) -> list[Any]:
    """Return the outputs with every text as one string: a notebook file may store it as a list of lines."""
    outputs = [dict(one) for one in raw[:MOST_OUTPUTS] if isinstance(one, dict)] if isinstance(raw, list) else []
    for output in outputs:
        output["text"] = _text_of(output.get("text"))
        if isinstance(output.get("data"), dict):
            output["data"] = {mime: _text_of(value) for mime, value in output["data"].items()}
    return outputs


def _text_of(value: Any) -> Any:
    lines = isinstance(value, list) and all(isinstance(line, str) for line in value)
    return "".join(value) if lines else value


def not_run(sentence: str) -> Ran:
    """Return the result of a cell that was skipped."""
    return Ran([{"output_type": "stream", "name": "stdout", "text": f"{sentence}\n"}])


def dead(sentence: str) -> Ran:
    """Return the result of a cell that ended the process, or had to be ended with it."""
    error = {
        "output_type": "error",
        "ename": "KernelDied",
        "evalue": sentence,
        "traceback": [f"KernelDied: {sentence}"],
    }
    return Ran([error], f"KernelDied: {sentence}", sentence)
