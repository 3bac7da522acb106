"""An engine in a tiny course, and what it said of a class."""

from __future__ import annotations

import json

from autograder.toys import tiny

#: Grades notebooks given as {learner: [[kind, source], …]}: kind "" for a cell, else the name of a question. A third
#: part holds more fields of a cell.
DRIVER = """
import json, sys, threading
from autograder.engine.data import Cell, Job, to_json
from autograder.engine import engine as module
from autograder.engine.engine import Engine

order = json.loads(sys.stdin.read())
module.CELL_SECONDS = order["seconds"]
module.CELL_GRACE = module.GRACE = 2.0  # the other tests take their share of the machine
found = {}
with Engine(jobs=2) as engine:
    def grade(learner, cells):
        made = []
        for index, (kind, source, *more) in enumerate(cells):
            exercise = f"day00.{kind}" if kind else ""
            made.append(Cell(index, f"cell-{index}", source, exercise, kind.replace("-", "_"), **dict(*more)))
        found[learner] = to_json(engine.grade(Job(learner, "day00", "tiny", tuple(made), order["seed"])))
    threads = [threading.Thread(target=grade, args=item) for item in order["class"].items()]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print("RESULT" + json.dumps(found))
"""


def grade(course, submissions: dict[str, list], seed: int = 3, seconds: float = 2) -> dict[str, dict]:
    """Grade in one engine. learner → NotebookResult as JSON."""
    order = json.dumps({"class": submissions, "seed": seed, "seconds": seconds})
    ended = tiny.run(course, "-c", DRIVER, input=order)
    assert "RESULT" in ended.stdout, ended.stderr
    return json.loads(ended.stdout.split("RESULT")[1])


def points(result: dict) -> list[float]:
    return [verdict["points"] for verdict in result["verdicts"].values()]
