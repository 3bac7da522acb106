"""The faults of docs/faults.md that Relax has."""

from __future__ import annotations

import pytest

from autograder.authoring.source import ROOT
from passlab.hunt.known import KNOWN

PAIRS = [(one, name) for one in KNOWN for name in one.targets if name.startswith("relax")]


@pytest.mark.parametrize(("one", "name"), PAIRS, ids=lambda part: getattr(part, "title", part))
def test_a_known_fault_is_there_and_two_oracles_agree(one, name):
    fault = one.fault(name)
    assert fault is not None and fault.second
    assert fault.report().split("\n")[0] in (ROOT / "docs/faults.md").read_text(encoding="utf-8")
