"""The faults in docs/faults.md are those that the pinned versions of torch and IREE have."""

from __future__ import annotations

import sys

import pytest

from autograder.authoring.source import ROOT
from passlab.hunt import TARGETS
from passlab.hunt.faults import code_of, version_of
from passlab.hunt.known import KNOWN

PAGE = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
PAIRS = [(one, name) for one in KNOWN for name in one.targets if name not in ("relax", "relax-fx")]


@pytest.mark.parametrize(("one", "name"), PAIRS, ids=lambda part: getattr(part, "title", part))
def test_a_known_fault_is_there_and_two_oracles_agree(one, name):
    if not version_of(TARGETS[name].package):
        pytest.skip(f"{TARGETS[name].package} is not installed")
    if "Python 3.12" in one.title and sys.version_info >= (3, 12):
        assert one.fault(name) is None
        return
    fault = one.fault(name)
    assert fault is not None and fault.second
    assert fault.report().split("\n")[0] in PAGE and one.title[1:] in PAGE and code_of(fault.graph) in PAGE


def test_there_are_five_distinct_faults_of_three_targets():
    assert len(KNOWN) >= 5 and len({name for one in KNOWN for name in one.targets}) >= 3
