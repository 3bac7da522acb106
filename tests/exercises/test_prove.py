"""Every exercise is proved as it is now, some are proved anew, and a proof fails where it must."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from autograder.authoring import answers, mutants
from autograder.authoring.answers import run_seed
from autograder.authoring.prove import prove
from autograder.authoring.source import ROOT
from autograder.proofs import imports, ledger
from autograder.proofs.wire import refusals
from passlab import exercises
from passlab.fx.cases import case, graph, nodes
from tests.support.amounts import DRAW, DRAWN_EXERCISES, FULL, NEW_SEEDS, SEEDS
from tests.support.proofs import assert_proved

_ALL = [exercise for day in exercises.days() for exercise in exercises.of_day(day)]
#: Those with a compiler first: they take longest, and no core should be left with one at the end.
EXERCISES = [exercise.id for exercise in sorted(_ALL, key=lambda exercise: exercise.flavour == "torch")]
DRAWN = random.Random(f"exercises {DRAW}").sample(EXERCISES, DRAWN_EXERCISES)


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_nothing_has_changed_since_the_proof(exercise_id):
    assert_proved(exercise_id)


#: Proves an exercise in a process of its own, and tells which of the project's modules that took.
FULL_PROOF = """
import json, sys
from autograder.proofs import wire

proof = wire.full_proof(sys.argv[1])
rows = [f"{row.kind} {row.name} {row.problem}: {row.message}" for row in proof.rows if row.problem]
modules = [name for name in sys.modules if name.partition(".")[0] in ("passlab", "autograder")]
print(json.dumps([proof.problems + rows, modules]))
"""


@pytest.mark.parametrize("exercise_id", EXERCISES if FULL else DRAWN)
def test_the_proof_holds(exercise_id):
    command = [sys.executable, "-c", FULL_PROOF, exercise_id]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    problems, modules = json.loads(done.stdout.splitlines()[-1])
    assert problems == []
    outside = {imports.path_of(name) for name in modules} - ledger.files(exercise_id) - {None}
    loaded = [path for path in outside if imports.read(path).code and not str(path).startswith(ledger.BYSTANDERS)]
    assert loaded == [], "the digest lacks these"


if FULL:  # in `make test-full`

    @pytest.mark.parametrize("seed", SEEDS[1:])
    @pytest.mark.parametrize("exercise_id", EXERCISES)
    def test_the_proof_holds_on_another_seed(proofs, exercise_id, seed):
        proof = proofs(exercise_id, seed)
        rows = [f"{row['kind']} {row['name']} {row['problem']}" for row in proof["rows"] if row["problem"]]
        assert proof["ok"], proof["problems"] + rows

    @pytest.mark.parametrize("exercise_id", EXERCISES)
    def test_right_answers_have_all_points_on_new_seeds(exercise_id, in_own_process):
        first = run_seed()
        assert in_own_process(exercise_id, refusals, exercise_id, range(first, first + NEW_SEEDS), True) == []


if FULL:  # in `make test-full`

    @pytest.mark.parametrize("exercise_id", EXERCISES)
    def test_no_mutant_survives_that_is_not_listed(exercise_id, in_own_process):
        report = in_own_process(exercise_id, mutants.try_all, exercise_id, 60)
        assert report.ok, [f"line {m.line}: {m.before.strip()} → {m.after.strip()}" for m in report.survivors]


def test_a_right_answer_that_is_refused_is_named_with_its_seed(monkeypatch):
    hidden = answers.hidden_cases

    def broken(exercise_id, seed):
        return [replace(case, build=lambda: (1, 2, 3)) if seed == 8 else case for case in hidden(exercise_id, seed)]

    monkeypatch.setattr(answers, "hidden_cases", broken)
    message = refusals("day01.count-kinds", [7, 8])
    assert message and all(
        sentence.startswith("seed 8: ") and "is right, but loses" in sentence for sentence in message
    )


def test_points_for_nothing_are_named_with_seed_and_case(monkeypatch):
    hidden = answers.hidden_cases

    def idle(exercise_id, seed):
        dead = graph(lambda m, x: torch.tanh(x), (2, 3))
        more = [case("nothing is dead", dead, did=[nodes(3, "It is unused.")])] if seed == 8 else []
        return [*hidden(exercise_id, seed), *more]

    monkeypatch.setattr(answers, "hidden_cases", idle)
    monkeypatch.setattr(answers, "load", lambda exercise_id: [])  # no answer of its own says anything about this
    [message] = refusals("day03.dce", [7, 8])
    assert message == "seed 8: unchanged must have no points: it does nothing, and keeps 'did' on 'nothing is dead'"
    [row] = [row for row in prove("day03.dce", 8).rows if row.problem]
    assert (row.name, row.kind) == ("unchanged", "unchanged") and row.points and "'nothing is dead'" in row.problem
