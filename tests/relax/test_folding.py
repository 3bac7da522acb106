"""Constants are folded as by TVM's pass, with fewer builds."""

from __future__ import annotations

import pytest
import tvm_ffi

from passlab import models
from passlab.relax import relax, tvm
from passlab.relax.folding import build_once, fold_constants
from passlab.tvm.importers import relax_module

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def legal():
    zoo = models.ZOO["residual"]
    passes = relax.transform
    steps = [passes.DecomposeOpsForInference(), passes.CanonicalizeBindings(), passes.LegalizeOps()]
    return tvm.transform.Sequential(steps)(relax_module(zoo.build(), *zoo.inputs(batch=1)))


@pytest.fixture
def builds():
    """The kernels that are built, in order."""
    build, kernels = tvm.get_global_func("tirx.build"), []

    def record(kernel, target):
        kernels.append(kernel)
        return build(kernel, target)

    tvm_ffi.register_global_func("tirx.build", record, override=True)
    yield kernels
    tvm_ffi.register_global_func("tirx.build", build, override=True)


def test_the_module_is_that_of_tvm(legal):
    assert tvm_ffi.structural_equal(fold_constants()(legal), relax.transform.FoldConstant()(legal))


def test_kernels_that_are_alike_are_built_once(legal, builds):
    with build_once():
        relax.transform.FoldConstant()(legal)
    distinct = {tvm_ffi.StructuralKey(kernel) for kernel in builds}
    once = len(builds)
    relax.transform.FoldConstant()(legal)
    assert once == len(distinct) < len(builds) - once
