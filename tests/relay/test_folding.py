"""Constants are folded as by TVM's pass, with fewer builds."""

from __future__ import annotations

import pytest

from passlab import models
from passlab.relay import relay, tvm
from passlab.relay.folding import build_once
from passlab.tvm.importers import relay_module


@pytest.fixture(scope="module")
def simple():
    zoo = models.ZOO["residual"]
    return relay.transform.SimplifyInference()(relay_module(zoo.build(), *zoo.inputs(batch=1)))


@pytest.fixture
def builds():
    """The kernels that are built, in order."""
    build, kernels = tvm.get_global_func("relay.backend.build"), []

    def record(*args):
        kernels.append(args[0])
        return build(*args)

    tvm.register_func("relay.backend.build", record, override=True)
    yield kernels
    tvm.register_func("relay.backend.build", build, override=True)


def test_the_module_is_that_of_tvm(simple):
    with build_once():
        folded = relay.transform.FoldConstant()(simple)
    assert tvm.ir.structural_equal(folded, relay.transform.FoldConstant()(simple))


def test_kernels_that_are_alike_are_built_once(simple, builds):
    with build_once():
        relay.transform.FoldConstant()(simple)
    once = len(builds)
    distinct = {tvm.ir.structural_hash(kernel) for kernel in builds}
    relay.transform.FoldConstant()(simple)
    assert once == len(distinct) < len(builds) - once


def test_tvm_builds_as_before_afterwards(simple, builds):
    with pytest.raises(KeyError), build_once():
        raise KeyError
    relay.transform.FoldConstant()(simple)
    count = len(builds)
    relay.transform.FoldConstant()(simple)
    assert len(builds) == 2 * count


def test_a_dictionary_keeps_kernels_from_one_block_to_the_next(simple, builds):
    libraries = {}
    for _ in range(2):
        with build_once(libraries):
            folded = relay.transform.FoldConstant()(simple)
    assert len(builds) == sum(map(len, libraries.values())) == len({tvm.ir.structural_hash(k) for k in builds})
    assert tvm.ir.structural_equal(folded, relay.transform.FoldConstant()(simple))
