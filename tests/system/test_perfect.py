"""The perfect notebooks of each day through the engine. Proofs judge in one process; a verifier's judge may do less."""

from __future__ import annotations

import csv
import os
import subprocess
import sys

import pytest

from autograder.authoring import samples, source
from passlab import exercises


@pytest.mark.parametrize("day", exercises.days())
def test_the_perfect_learner_has_all_points(tmp_path, day):
    for path in source.notebooks(day):
        notebook = tmp_path / "class" / "perfect" / day / f"{path.stem}.ipynb"
        notebook.parent.mkdir(parents=True, exist_ok=True)
        notebook.write_text(samples.filled(path, samples.CLASS["perfect"].fill), encoding="utf-8")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "passlab.cli", "grade", tmp_path / "class", "--assignment", day, "--seed", "7"]
    env = os.environ | {"PASSLAB_RUN": str(run)}
    result = subprocess.run(command, cwd=source.ROOT, env=env, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stderr + result.stdout
    with (run / "grades.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["question"]]
    graded = {row["question"]: float(row["points"]) / float(row["max_points"]) for row in rows if row["points"]}
    checked = {exercises.whole(name).split(".")[1] for name in source.places(day)}  # a person reads the others
    assert {name: graded.get(name) for name in checked} == dict.fromkeys(checked, 1)
