"""The ledger: what a proof depends on, and when it is stale."""

from __future__ import annotations

import pytest

from autograder.authoring import source
from autograder.proofs import imports, ledger


@pytest.mark.parametrize(
    "path",
    [
        "lib/passlab/exercises/day03/simplify.py",
        "lib/passlab/exercises/day03/__init__.py",
        "autograder/answers/day03/simplify.py",
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
    before = ledger.digest("day03.simplify")
    monkeypatch.setattr(ledger, "_content", lambda file: b"other" if file == changed else content(file))
    assert ledger.digest("day03.simplify") != before


@pytest.mark.parametrize(
    "path", ["lib/passlab/exercises/day03/dce.py", "lib/passlab/wafer/model.py", "autograder/engine/sandbox/seccomp.py"]
)
def test_other_files_do_not_matter(path):
    assert (source.ROOT / path).exists() and source.ROOT / path not in ledger.files("day03.simplify")


def test_a_pin_makes_every_proof_stale(monkeypatch):
    before = ledger.digest("day03.simplify")
    monkeypatch.setattr(ledger, "_pins", lambda: b"torch==2.14.0")
    assert ledger.digest("day03.simplify") != before


def test_imports_are_seen_wherever_they_stand(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(
        '"""passlab.wafer is only named here."""\n'
        "import passlab.judge\n\n\ndef later():\n    from passlab.memory import plan\n\n\n"
        'WORDS = ["-m", "passlab.cli"]\nfrom passlab import draw\n'
    )
    result = imports.read(path).imports
    assert {"passlab", "passlab.judge", "passlab.memory", "passlab.cli", "passlab.drawing"} <= result
    assert "passlab.wafer" not in result


def test_code_in_a_text_is_not_prose(tmp_path):
    path = tmp_path / "some.py"
    path.write_text('"""Prose."""\n\n# why\nCODE = """\n# %% a cell\n\nx = 1\n"""\nx = 1  # beside\n')
    assert imports.read(path).code == 'CODE = """\n# %% a cell\n\nx = 1\n"""\nx = 1  # beside'


def test_an_exercise_depends_on_what_it_closes():
    reference, file = (source.ROOT / "lib/passlab" / path for path in ("capstone/reference.py", "memory/plan.py"))
    assert {reference, file} <= ledger.files("day03.dce"), "the module that is loaded to close one of its functions"
    assert not {reference, file} & ledger.files("day03.simplify")


def test_an_exercise_depends_on_the_solutions_that_its_bank_builds_from():
    paths = {path.relative_to(source.ROOT).as_posix() for path in ledger.files("day17.generate")}
    solutions = {path for path in paths if path.startswith("solutions")}
    assert solutions == {"solutions/day03/optimizations.py", "solutions/day17/breaking.py"}


def test_an_exercise_depends_on_its_compiler_and_not_on_others():
    def packages(name: str) -> set[str]:
        paths = (path.relative_to(source.ROOT).parts for path in ledger.files(name))
        return {parts[2] for parts in paths if parts[:2] == ("lib", "passlab") and len(parts) > 3}

    assert {"fx", "judge", "equivalence"} <= packages("day03.simplify") - {"relay", "relax", "mlir"}
    assert not packages("day03.simplify") & {"relay", "relax", "mlir", "tvm"}
    assert {"relay", "tvm"} <= packages("day07.cse") and "relax" not in packages("day07.cse")
    assert "mlir" in packages("day09.fusion")
