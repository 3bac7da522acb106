"""What the trusted parts of the engine hand to each other. Plain data: every class here goes to JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One code cell of a notebook as it will be run, in order.

    `exercise`: the id of the exercise that this cell checks ("day03.cse"), and then `answer` is the expression handed
    to the check ("cse"); such a cell is not run, its verdict comes from the verifier. `graded`: another cell that
    nbgrader grades by itself, run as it is: points if it ends without an error. `idle`: the course's own, only shows
    something: not run. `calls`: the check cells (by index) whose answers the cell may call, if nothing graded depends
    on it: not run once one of these answers has run out of time or ended its process.
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
    """One notebook of one learner, ready to be run: locked cells come from the release already."""

    learner: str
    assignment: str
    notebook: str
    cells: tuple[Cell, ...]
    seed: int


@dataclass
class Ran:
    """What a cell gave: outputs as in a notebook file, and, if it did not end well, why ("NameError: …").

    `died`: the cell ended the Python process, or could not be interrupted; a sentence. `idle`: it was not run, and
    what the learner handed in is shown.
    """

    outputs: list[dict] = field(default_factory=list)
    error: str = ""
    died: str = ""
    idle: bool = False


@dataclass
class CaseResult:
    """One case of a question. `status`: ok, raised, timeout, died, refused. `lost`: the verdicts it lost.

    `fingerprint`: of the value that came back, the same for values that differ in node names alone; "" without one.
    """

    name: str
    hidden: bool
    status: str
    lost: tuple[str, ...] = ()
    fingerprint: str = ""


@dataclass
class Verdict:
    """What the verifier says about one question, fit to be shown to the learner.

    `verdicts`: name → held. `message`: the sentence shown first; `html`, `text`: the card, the shrunk counterexample
    drawn in it; no hidden case is named or shown whole. `misconception`: one line from the bank, or "".
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
    crash: str = ""  # why the question as a whole was lost: a crash, a time limit, memory
    seconds: float = 0.0  # that the answer took, all cases together
    cases: list[CaseResult] = field(default_factory=list)


@dataclass
class NotebookResult:
    """What came of a Job. `ran` and `verdicts` go by `Cell.index`. `failure`: why it could not be graded at all."""

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
    unsafe: bool = False  # graded without the whole sandbox, because it was asked for


def to_json(result: NotebookResult) -> dict[str, Any]:
    """A result as plain JSON data; keys of `ran` and `verdicts` become text."""
    data = asdict(result)
    for part in ("ran", "verdicts"):
        data[part] = {str(index): value for index, value in data[part].items()}
    return data


def verdict_from_json(data: dict[str, Any]) -> Verdict:
    """The inverse of `asdict` for a verdict."""
    cases = [CaseResult(**{**case, "lost": tuple(case["lost"])}) for case in data["cases"]]
    return Verdict(**{**data, "cases": cases})


def from_json(data: dict[str, Any]) -> NotebookResult:
    """The inverse of `to_json`."""
    ran = {int(index): Ran(**value) for index, value in data["ran"].items()}
    verdicts = {int(index): verdict_from_json(value) for index, value in data["verdicts"].items()}
    return NotebookResult(**{**data, "ran": ran, "verdicts": verdicts})
