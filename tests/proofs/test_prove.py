"""`passlab prove` on a small course: only a proof that holds is written into the ledger."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from autograder.toys import tiny

#: Enough answers for a proof of day00.double that holds.
ANSWERS = "from autograder.authoring.answers import right, wrong\n" + "".join(
    f'\n\n@{kind}\ndef {name}(x):\n    return {value}\n'
    for name, kind, value in (
        *((f"adds_{n}", f'wrong("did", "adds {n}")', f"x + {n}") for n in range(3, 8)),
        ("nothing", 'wrong("spared", "gives nothing")', "None"),
        ("shifts", 'right("shifts")', "x << 1"),
        ("sums", 'right("sums")', "sum([x, x])"),
    )
)  # fmt: skip
JUDGE = "lib/passlab/exercises/day00/_shared.py"


@pytest.fixture(scope="module")
def proved(course):
    """The course, with a proof of day00.double in its ledger."""
    path = "autograder/answers/day00/double.py"
    (course / path).write_text(tiny.FILES[path] + ANSWERS)
    done = prove(course, "--exercise", "double")
    assert done.returncode == 0, done.stdout + done.stderr
    return course


def prove(course, *options: str):
    return tiny.run(course, "-m", "passlab.cli", "prove", *options)


def lines(course) -> dict:
    return json.loads((course / "autograder/ledger.json").read_text())


@contextlib.contextmanager
def edited(course, path: str, before: str, after: str) -> Iterator[None]:
    """Another text in a file, for as long as the block lasts."""
    text = (course / path).read_text()
    assert text.count(before) == 1
    (course / path).write_text(text.replace(before, after))
    yield
    (course / path).write_text(text)


def stale(course) -> list[str]:
    code = "from autograder.proofs import ledger; print(*ledger.stale())"
    return tiny.run(course, "-c", code).stdout.split()


def test_a_proof_that_holds_is_written_with_its_counts(proved):
    line = lines(proved)["day00.double"]
    assert (line["wrong"], line["right"]) == (6, 3) and len(line["digest"]) == 16
    assert "day00.double" not in stale(proved) and "day00.shout" in stale(proved)
    again = prove(proved, "--stale", "--exercise", "double")
    assert again.returncode == 0 and "Nothing has changed since its proof." in again.stdout


def test_a_proof_that_fails_is_not_written(proved):
    before = lines(proved)
    with edited(proved, JUDGE, "value == case.expect", "value != case.expect"):
        assert prove(proved, "--stale", "--exercise", "double").returncode == 1
        assert lines(proved) == before and "day00.double" in stale(proved)


TWINS = """

@wrong("did", "adds 2")
def adds_two(x):
    return x + 2


@wrong("did", "2 is all that comes")
def four(x):
    return 4
"""


def test_a_wrong_answer_that_behaves_as_another_is_named(proved):
    path, before = "autograder/answers/day00/double.py", lines(proved)
    with edited(proved, path, "return sum([x, x])\n", "return sum([x, x])\n" + TWINS):
        done = prove(proved, "--json", "--exercise", "double")
    assert {row["name"]: row["problem"] for row in json.loads(done.stdout)[0]["rows"] if row["problem"]} == {
        "four": "behaves as adds_two: it loses the same verdicts on the same cases. "
        "Keep one of them, or add a case that tells them apart"
    }
    assert done.returncode == 1 and lines(proved) == before


def test_where_hidden_cases_are_skipped_they_still_tell_answers_apart(proved):
    code = "from autograder.authoring.prove import prove; print([r.problem for r in prove('double', brief=True).rows])"
    assert set(eval(tiny.run(proved, "-c", code).stdout)) == {""}


def test_a_notebook_that_runs_is_written_and_one_that_does_not_is_named(proved):
    (proved / "course/lesson.py").write_text(tiny.HEADER + "# %%\nimport passlab.judge\n\n1 + 1\n")
    (proved / "course/broken.py").write_text(tiny.HEADER + "# %%\n1 / 0\n")
    done = prove(proved, "--stale")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    names = lines(proved).keys()
    assert "course/lesson.py" in names and "course/broken.py" not in names
    for name in ("lesson", "broken"):
        (proved / f"course/{name}.py").unlink()
