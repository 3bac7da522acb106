"""The ledger: what a proof depends on, when it is stale, and that only a proof that holds is written down."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from autograder.authoring import source
from autograder.proofs import imports, ledger
from tests.support import tiny

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


@pytest.mark.parametrize(
    "path",
    [
        "lib/passlab/exercises/day03/cse.py",
        "lib/passlab/exercises/day03/__init__.py",
        "autograder/answers/day03/cse.py",
        "autograder/answers/day03/_shared.py",
        "solutions/day03/optimizations.py",
        "lib/passlab/judge/running.py",
        "lib/passlab/fx/equivalent.py",
        "autograder/authoring/prove.py",
        "autograder/engine/wire/packing.py",
    ],
)
def test_a_proof_is_stale_when_a_file_changes_that_it_depends_on(path, monkeypatch):
    changed, content = source.ROOT / path, ledger._content
    before = ledger.digest("day03.cse")
    monkeypatch.setattr(ledger, "_content", lambda file: b"other" if file == changed else content(file))
    assert ledger.digest("day03.cse") != before


@pytest.mark.parametrize(
    "path", ["lib/passlab/exercises/day03/dce.py", "lib/passlab/wafer/model.py", "autograder/engine/sandbox/seccomp.py"]
)
def test_other_files_do_not_matter(path):
    assert (source.ROOT / path).exists() and source.ROOT / path not in ledger.files("day03.cse")


def test_a_pin_makes_every_proof_stale(monkeypatch):
    before = ledger.digest("day03.cse")
    monkeypatch.setattr(ledger, "_pins", lambda: b"torch==2.14.0")
    assert ledger.digest("day03.cse") != before


def test_a_proof_that_fails_is_not_written(proved):
    before = lines(proved)
    with edited(proved, JUDGE, "value == case.expect", "value != case.expect"):
        assert prove(proved, "--stale", "--exercise", "double").returncode == 1
        assert lines(proved) == before and "day00.double" in stale(proved)


def test_a_notebook_that_runs_is_written_and_one_that_does_not_is_named(proved):
    (proved / "course/lesson.py").write_text(tiny.HEADER + "# %%\nimport passlab.judge\n\n1 + 1\n")
    (proved / "course/broken.py").write_text(tiny.HEADER + "# %%\n1 / 0\n")
    done = prove(proved, "--stale")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    names = lines(proved).keys()
    assert "course/lesson.py" in names and "course/broken.py" not in names
    for name in ("lesson", "broken"):
        (proved / f"course/{name}.py").unlink()


def test_imports_are_seen_wherever_they_stand(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(
        '"""passlab.wafer is only named here."""\n'
        "import passlab.judge\n\n\ndef later():\n    from passlab.memory import plan\n\n\n"
        'WORDS = ["-m", "passlab.cli"]\nfrom passlab import draw\n'
    )
    found = imports.read(path).imports
    assert {"passlab", "passlab.judge", "passlab.memory", "passlab.cli", "passlab.drawing"} <= found
    assert "passlab.wafer" not in found


def test_code_in_a_text_is_not_prose(tmp_path):
    path = tmp_path / "some.py"
    path.write_text('"""Prose."""\n\n# why\nCODE = """\n# %% a cell\n\nx = 1\n"""\nx = 1  # beside\n')
    assert imports.read(path).code == 'CODE = """\n# %% a cell\n\nx = 1\n"""\nx = 1  # beside'


def test_an_exercise_depends_on_its_compiler_and_not_on_others():
    def packages(name: str) -> set[str]:
        paths = (path.relative_to(source.ROOT).parts for path in ledger.files(name))
        return {parts[2] for parts in paths if parts[:2] == ("lib", "passlab") and len(parts) > 3}

    assert {"fx", "judge", "equivalence"} <= packages("day03.cse") - {"relay", "relax", "mlir"}
    assert not packages("day03.cse") & {"relay", "relax", "mlir", "tvm"}
    assert {"relay", "tvm"} <= packages("day07.cse") and "relax" not in packages("day07.cse")
    assert "mlir" in packages("day09.fusion")
