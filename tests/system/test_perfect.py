"""The perfect notebooks of all days through the engine. Proofs judge in one process; a verifier's judge may do less."""

from __future__ import annotations

import csv
import os
import subprocess
import sys

from autograder.authoring import samples, source
from passlab import exercises


def test_the_perfect_learner_has_all_points(tmp_path):
    for day in exercises.days():
        for path in source.notebooks(day):
            notebook = tmp_path / "class" / "perfect" / day / f"{path.stem}.ipynb"
            notebook.parent.mkdir(parents=True, exist_ok=True)
            notebook.write_text(samples.filled(path, samples.CLASS["perfect"].fill), encoding="utf-8")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "passlab.cli", "grade", tmp_path / "class", "--seed", "7"]
    env = os.environ | {"PASSLAB_RUN": str(run)}
    result = subprocess.run(command, cwd=source.ROOT, env=env, capture_output=True, text=True, timeout=3600)
    assert result.returncode == 0, result.stderr + result.stdout
    with (run / "grades.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["question"] and row["points"]]
    graded = {(row["assignment"], row["question"]): float(row["points"]) / float(row["max_points"]) for row in rows}
    places = [name for day in exercises.days() for name in source.places(day)]  # a person reads the others
    checked = {tuple(exercises.whole(name).split(".")) for name in places}
    assert {name: graded.get(name) for name in checked} == dict.fromkeys(checked, 1)
