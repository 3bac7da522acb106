"""The plain data that the trusted parts of the engine exchange: every class here converts to JSON and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True)
class Cell:
    """One code cell of a notebook, in the order of execution.

    `exercise`: for a check cell, the id of its exercise ("day03.cse"); `answer` is then the expression passed to the
    check ("cse"). A check cell is not run; its verdict comes from the verifier. `graded`: another cell that nbgrader
    grades automatically; it is run unchanged and gets its points if it ends without an error. `idle`: a cell of the
    course that only shows something; it is not run. `calls`: indices of the check cells whose answers this cell may
    call, if nothing graded depends on it; it is not run once one of these answers has timed out or ended its process.
    """

    index: int  # place among all cells of the notebook, text cells counted
    name: str  # the nbgrader grade_id, or the cell's id
    source: str
    exercise: str = ""
    answer: str = ""
    graded: bool = False
    idle: bool = False
    calls: tuple[int, ...] = ()


@dataclass(frozen=True)
class Job:
    """One notebook of one learner, ready to run: its locked cells have been replaced by those of the release."""

    learner: str
    assignment: str
    notebook: str
    cells: tuple[Cell, ...]
    seed: int


@dataclass
class Ran:
    """The result of a cell: outputs as in a notebook file and, if it failed, the error ("NameError: …").

    `died`: a sentence if the cell ended the Python process or could not be interrupted. `idle`: the cell was not run,
    and the submitted outputs are shown.
    """

    outputs: list[dict] = field(default_factory=list)
    error: str = ""
    died: str = ""
    idle: bool = False


@dataclass
class CaseResult:
    """The result of one test case. `status`: ok, raised, timeout, died or refused. `lost`: the verdicts that failed.

    `fingerprint`: of the returned value, equal for values that differ only in node names; "" without a value.
    """

    name: str
    hidden: bool
    status: str
    lost: tuple[str, ...] = ()
    fingerprint: str = ""


@dataclass
class Verdict:
    """The verifier's result for one question. It may be shown to the learner: all that its texts say of hidden cases is
    the verdicts, and one of a few ways to end (`verdicts.ENDED_ON_HIDDEN`).

    `verdicts`: name → held. `message`: the sentence shown first. `html`, `text`: the card, with a drawing if the
    case is a visible one. `misconception`: one line, or "". `devices`: where the graphs ran that `same` compares.
    `unbuilt`: the names of cases that could not be built, and so cost nothing; only instructors see them.
    """

    exercise: str
    points: float
    total: float
    seed: int
    verdicts: dict[str, bool] = field(default_factory=dict)
    message: str = ""
    attempted: bool = True
    html: str = ""
    text: str = ""
    misconception: str = ""
    crash: str = ""  # why the whole question was lost: a crash, the time limit, the memory limit
    seconds: float = 0.0  # wall time of the answer, all test cases together
    cases: list[CaseResult] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    unbuilt: list[str] = field(default_factory=list)


@dataclass
class NotebookResult:
    """The result of a Job. The keys of `ran` and `verdicts` are `Cell.index`. `failure`: why it was not graded."""

    learner: str
    assignment: str
    notebook: str
    seed: int
    ran: dict[int, Ran] = field(default_factory=dict)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    failure: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0
    unsafe: bool = False  # graded without the complete sandbox, as the user requested


def only_on_the_cpu(verdict: Verdict) -> bool:
    """Return whether the two functions were compared, and on no GPU."""
    return bool(verdict.devices) and all(device.startswith("cpu") for device in verdict.devices)


def to_json(result: NotebookResult) -> dict[str, Any]:
    """Return a result as plain JSON data; the keys of `ran` and `verdicts` become text."""
    return msgspec.to_builtins(result, str_keys=True)


def verdict_from_json(data: dict[str, Any]) -> Verdict:
    """Return the verdict that `msgspec.to_builtins` turned into `data`."""
    cases = [CaseResult(**{**case, "lost": tuple(case["lost"])}) for case in data["cases"]]
    return Verdict(**{**data, "cases": cases})


def from_json(data: dict[str, Any]) -> NotebookResult:
    """Return the result that `to_json` turned into `data`."""
    ran = {int(index): Ran(**value) for index, value in data["ran"].items()}
    verdicts = {int(index): verdict_from_json(value) for index, value in data["verdicts"].items()}
    return NotebookResult(**{**data, "ran": ran, "verdicts": verdicts})
