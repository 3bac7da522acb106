"""Types are checked, and no function becomes too complex: what tests/types.json and tests/complexity.json allow."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support import complexity, ratchet, types

CLEAN = ("passlab.graph", "passlab.judge", "passlab.process", "passlab.equivalence", "autograder.engine",
         "autograder.grading", "autograder.reports", "autograder.authoring", "autograder.commands")  # fmt: skip


@pytest.fixture(scope="module")
def type_errors() -> dict[str, list[str]]:
    if sys.platform != "linux":
        pytest.skip("the numbers of tests/types.json are those of Linux, where all libraries are installed")
    return types.errors()


def test_the_core_has_no_type_errors(type_errors):
    assert [line for package in CLEAN for line in type_errors.get(package, [])] == []


def test_no_package_has_more_type_errors_than_recorded(type_errors):
    assert ratchet.problems(types.LIMITS, {package: len(lines) for package, lines in type_errors.items()}) == []


def test_no_function_is_more_complex_than_recorded():
    assert ratchet.problems(complexity.LIMITS, complexity.complex_functions()) == []


def test_no_function_is_above_twenty():
    limits = json.loads(complexity.LIMITS.read_text())
    assert [name for name, number in limits.items() if name.endswith("complexity") and number > 20] == []


def test_a_function_with_many_branches_is_counted(tmp_path):
    branches = "\n".join(f"    if x == {i}:\n        x += {i}" for i in range(13))
    (tmp_path / "branches.py").write_text(f"def f(x):\n{branches}\n    return x\n")
    assert complexity.complex_functions([tmp_path]) == {f"{tmp_path.as_posix()}/branches.py: f, complexity": 14}


def test_a_number_may_not_rise_and_is_lowered_when_it_falls(tmp_path):
    limits = tmp_path / "limits.json"
    limits.write_text('{"a": 2, "b": 2, "c": 2, "d": 1}')
    counted = {"a": 3, "b": 2, "c": 1, "e": 1}
    assert ratchet.problems(limits, counted) == [
        "a: 3, but limits.json allows 2.",
        "c: 1, and limits.json still allows 2: lower it with --write.",
        "d: 0, and limits.json still allows 1: lower it with --write.",
        "e: 1, but limits.json allows 0.",
    ]
    ratchet.lower(limits, counted)
    assert json.loads(limits.read_text()) == {"a": 2, "b": 2, "c": 1}
