"""Imports only go down: the contracts of `[tool.importlinter]` in pyproject.toml."""

from __future__ import annotations

import shutil

from importlinter.cli import EXIT_STATUS_ERROR, EXIT_STATUS_SUCCESS, lint_imports

from autograder.authoring.source import ROOT
from autograder.toys import tiny


def test_every_import_goes_down():
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == EXIT_STATUS_SUCCESS


def test_an_import_that_goes_up_is_found(tmp_path):
    course = tiny.machinery(tmp_path / "course")
    shutil.copy(ROOT / "pyproject.toml", course)
    effects = course / "lib/passlab/fx/effects.py"
    effects.write_text(
        f"{effects.read_text()}\n\ndef held():\n    from passlab.tvm.reach import loaded\n\n    return loaded()\n"
    )
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    broken = tiny.run(course, "-c", code)
    assert broken.returncode == EXIT_STATUS_ERROR and "passlab.fx.effects -> passlab.tvm.reach" in broken.stdout
