"""A synthetic class: results as the engine gives them, for tests and for the load of a whole class.

    results = make(learners=1000, seed=7)

Every learner has a skill, every question a difficulty; what is not right is not written, crashed, too slow or one of
the misconceptions in `WRONG`, the first ones more often. The same arguments give the same class.
"""

from __future__ import annotations

import random

from autograder.engine.data import CaseResult, NotebookResult, Ran, Verdict
from autograder.grading.recorder import Score

#: Assignment, its notebook, and its questions with their points.
COURSE = {
    ("day01", "graphs"): {"count-kinds": 4, "levels": 6, "residual-edges": 6, "to-ssa": 8, "swap-relu": 4},
    ("day02", "passes"): {"visitor": 5, "fold-batchnorm": 8, "fuse-conv-relu": 8, "pass-manager": 6},
    ("day03", "optimizations"): {"constant-folding": 10, "dce": 8, "cse": 10, "simplify": 12, "pipeline": 8, "gelu": 9},
}

#: What a wrong answer shows, and the verdicts it loses.
WRONG = [
    ("merges random ops: every call draws new numbers", ("same", "spared")),
    ("looks at one node at a time and never at its users", ("did",)),
    ("forgets the keywords of a call", ("same",)),
    ("stops after one sweep, though one change makes room for another", ("cost",)),
    ("", ("valid", "same", "did")),
]
WEIGHTS = {"valid": 0.1, "same": 0.3, "did": 0.3, "spared": 0.2, "cost": 0.1}


def _verdict(rng: random.Random, exercise: str, total: float, skill: float, seed: int) -> Verdict:
    weights = {name: round(total * share, 2) for name, share in WEIGHTS.items()}
    verdict = Verdict(exercise, 0.0, total, seed, dict.fromkeys(weights, False), seconds=rng.lognormvariate(-3, 0.8))
    if rng.random() < 0.08:
        verdict.attempted, verdict.message = False, "Not written yet: it still raises NotImplementedError."
        return verdict
    if rng.random() < 0.02:
        verdict.crash = rng.choice(["It ran out of time.", "Its process ended: segmentation fault.", "Out of memory."])
        verdict.message, verdict.seconds = verdict.crash, 10.0
        return verdict
    lost: tuple[str, ...] = ()
    if rng.random() > skill:
        place = min(int(rng.expovariate(0.9)), len(WRONG) - 1)
        verdict.misconception, lost = WRONG[place]
        verdict.message = "relu_1 is gone, and its value is still read."
    verdict.verdicts = {name: name not in lost for name in weights}
    verdict.points = 0.0 if "did" in lost else round(sum(w for name, w in weights.items() if name not in lost), 2)
    hidden = [CaseResult(f"case {n}", n > 1, "ok", lost, f"f{len(lost)}{n}") for n in range(4)]
    said = f"{exercise}: {verdict.points:g} of {total:g} points"
    verdict.cases, verdict.text, verdict.html = hidden, said, f"<div>{said}</div>"
    return verdict


def make(learners: int, seed: int = 0, run_seed: int = 20240229) -> list[NotebookResult]:
    """The results of `learners` learners × the notebooks of `COURSE`, in the order of the learners."""
    rng = random.Random(seed)
    results = []
    for number in range(learners):
        learner, skill = f"learner-{number:04}", rng.betavariate(5, 2)
        for (assignment, notebook), questions in COURSE.items():
            result = NotebookResult(learner, assignment, notebook, run_seed, seconds=rng.lognormvariate(-1.8, 0.4))
            result.cpu_seconds, result.peak_mib = result.seconds * 0.8, rng.uniform(30, 90)
            for place, (question, points) in enumerate(questions.items()):
                result.ran[3 * place + 1] = Ran()
                name = f"{assignment}.{question}"
                result.verdicts[3 * place + 2] = _verdict(rng, name, float(points), skill, run_seed)
            results.append(result)
    return results


def scores(results: list[NotebookResult]) -> dict[tuple[str, str], list[Score]]:
    """The same class as the gradebook has it: (learner, assignment) → scores."""
    found: dict[tuple[str, str], list[Score]] = {}
    for result in results:
        for verdict in result.verdicts.values():
            question = verdict.exercise.split(".")[1]
            score = Score(result.notebook, question, verdict.points, verdict.total, seed=verdict.seed, verdict=verdict)
            found.setdefault((result.learner, result.assignment), []).append(score)
    return found
