"""Operators that a graph may call stay within their tensors' memory. See autograder/bench/operators.py."""

from __future__ import annotations

import pytest
import torch

from autograder.bench import operators
from autograder.engine.wire import targets

pytestmark = pytest.mark.skipif(not operators.available(), reason="needs a C compiler and glibc")

_ASTRAY = "_reshape_alias.default as_strided_.default native_batch_norm.default median.dim"
#: They reach beyond their tensors, and no graph may call them.
ASTRAY = (
    "aten._reshape_alias.default",
    "aten.as_strided_.default",
    "aten.native_batch_norm.default",
    "aten.median.dim",
)


def test_the_search_finds_what_reaches_beyond_and_none_of_it_may_be_called():
    match = {ended.name: ended.signal for ended in operators.search(ASTRAY, 300)}
    assert match == dict.fromkeys(ASTRAY, "SIGSEGV")
    assert not any(map(targets.by_name, ASTRAY))


def test_a_sample_of_what_may_be_called_stays_within():
    """Each 15th operator, and what takes indices; `python -m autograder.bench.operators` tries all of them for long."""
    names = list(operators.searchable())
    indexed = ("gather", "scatter", "index", "take", "put", "embedding", "select", "resize", "unfold", "grid_sampler")
    sample = names[::15] + [name for name in names if name.startswith(tuple(f"aten.{word}" for word in indexed))]
    assert len(names) > 1_000 and len(sample) > 100
    assert list(operators.search(dict.fromkeys(sample), 25)) == []


#: Arguments that switch checks off or say where to write: (target of a call_function, keyword argument).
BARRED = [
    (torch.sum, "out"),
    (torch.max, "out"),
    (torch.sparse_coo_tensor, "check_invariants"),
    (torch.segment_reduce, "unsafe"),
    (torch.ops.aten.max_pool2d_with_indices_backward, "grad_input"),
    (torch.ops.aten.max, "max_values"),
    ("masked_fill_", "out"),
]


@pytest.mark.parametrize(("target", "name"), BARRED)
def test_arguments_that_are_not_checked_are_barred(target, name):
    assert targets.barred_argument(target, ["dim", name]) == name


def test_element_by_element_out_may_be_given():
    assert targets.barred_argument(torch.add, ["alpha", "out"]) is None
    assert targets.by_name("aten.add.out") is torch.ops.aten.add.out
    assert targets.by_name("aten.sum.IntList_out") is None and targets.by_name("aten.max.dim_max") is None


def test_what_unchecked_operators_are_called_is_in_no_table():
    banned = "segment_reduce ctc_loss fractional_max_pool2d native_batch_norm embedding_bag as_strided as_strided_ lstm"
    names = {name.rpartition(".")[2] for name in targets.FUNCTIONS} | targets.METHODS
    assert not names & set(banned.split())
    assert not [name for name in (*names, *targets._aten()) if "backward" in name]
