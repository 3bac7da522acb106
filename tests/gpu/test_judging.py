"""What is judged on a GPU, and what says why it is not."""

from autograder.bench.figures import Figure
from autograder.gpu import judging
from autograder.gpu.job import Job
from passlab import exercises


def test_every_exercise_on_torch_is_judged_or_says_why_not(monkeypatch):
    requests = []
    monkeypatch.setattr(
        judging, "each", lambda job, task, items, **_: requests.extend(name for name, *_ in items) or []
    )
    rows = [row for row in judging.judging(Job("cpu", 0)) if isinstance(row, Figure)]
    every = [exercise for day in exercises.days() for exercise in exercises.of_day(day)]
    assert {exercise.id for exercise in every if exercise.flavour == "torch"} <= {*requests}
    assert {"day12.compiler", "day12.plan"} <= {*requests} and "day12.faster" not in requests
    assert {row.what for row in rows if "shares of CPU time" in row.seen} == {"day12.faster"}
