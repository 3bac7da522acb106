"""The proof of each exercise is made once in a run; whatever else looks at the answers looks at its report."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from autograder.authoring.source import ROOT
from autograder.engine.verifier.misconceptions import Behaviour
from autograder.proofs.wire import report
from passlab.building import cache


@pytest.fixture(autouse=True)
def builds_are_kept(monkeypatch):
    """What modules compute stays on disk, as it does for graders: for the proof, the notebooks and the next run."""
    monkeypatch.setenv(cache.FOLDER, str(ROOT / cache.PLACE))


@pytest.fixture
def proofs(once, in_own_process) -> Callable[..., dict]:
    """`proofs(exercise_id, seed=0)` is the report of `autograder.proofs.wire` as a dictionary."""

    def of(exercise_id: str, seed: int = 0) -> dict:
        path = once(
            f"{exercise_id} {seed}.json",
            lambda path: path.write_text(in_own_process(exercise_id, report, exercise_id, seed)),
        )
        proof = json.loads(path.read_text())
        proof["signatures"] = {
            name: [Behaviour(*case) for case in cases] for name, cases in proof["signatures"].items()
        }
        return proof

    return of
