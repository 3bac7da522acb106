"""Fusion by named groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from passlab.exercises.day08.policy import around
from passlab.relax import relax, tvm
from passlab.relax.cases import module, op
from passlab.relax.fusing import by, everything, fuse, illegal, nothing, prepare, price, program
from passlab.relax.pipelines import kernels
from passlab.tvm import builds
from passlab.tvm.wire import decode


def norm(e, x, w):
    y = e(op.tanh(e(op.multiply(x, x))))
    total = e(op.sum(y, axis=[1], keepdims=True))
    return e(op.divide(e(op.matmul(y, w)), total)), e(op.nn.relu(y))


@pytest.fixture(scope="module")
def made():
    return prepare(module(norm, (6, 8), (8, 8))())


@pytest.fixture(scope="module")
def there(made):
    return program(made)


@pytest.fixture(scope="module")
def names(there):
    return {op.kernel: op.name for op in there.ops.values()}


def test_every_legal_choice_computes_the_same(made, there):
    rng = np.random.default_rng(0)
    inputs = [(rng.random((6, 8), "float32"), rng.random((8, 8), "float32"))]
    expected = builds.run_module(made, inputs, pipeline="none").outputs[0]
    free = [name for name in there.ops if name not in there.returned]
    tried = 0
    for number in range(0, len(free) + 1, 2):
        for items in itertools.combinations(free, number):
            groups = around(there, {*items, *there.returned})
            if illegal(there, groups) is None:
                built = builds.run_module(by(lambda module, groups=groups: groups)(made), inputs, pipeline="none")
                assert built.ok, built.error
                assert len(built.kernels) == price(there, groups).kernels
                assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(built.outputs[0], expected, strict=True))
                tried += 1
    assert tried >= 5, tried


def test_what_cannot_be_a_group_says_why(made, there, names):
    tanh, total, product = names["tir_tanh"], names["sum"], names["matmul"]
    square, relu = names["multiply"], names["relu"]
    for groups, words in (
        ([(total, product, names["divide"])], "more than once"),
        ([(square, relu)], "2 results"),
        ([(tanh, relu)], "No kernel writes " + tanh),
        ([("lv99",)], "There is no operation 'lv99'"),
        ([(tanh, tanh)], "names an operation twice"),
        ([()], "is empty"),
        ([(tanh,), (tanh,)], "computing it twice gains nothing"),
        ("lv", "got str"),
        ([3], "got 3 (int)"),
    ):
        assert words in (illegal(there, groups) or ""), (groups, illegal(there, groups))
        if words != "got str":
            try:
                fuse(made, groups)
            except ValueError as error:
                assert words in str(error)
            else:
                raise AssertionError(groups)


def test_the_price_counts_what_is_done_again(made, there, names):
    tanh, product = names["tir_tanh"], names["matmul"]
    alone = price(there, nothing(made))
    assert alone.recomputed == 0 and alone.kernels == len(there.ops)
    merged = [(names["multiply"], tanh, product), (names["multiply"], tanh)]
    again = price(there, merged)
    elements = there.ops[tanh].elements
    of_one = there.ops[tanh].steps + there.ops[names["multiply"]].steps
    assert again.recomputed == of_one * 8 * elements, again  # eight columns, each computes all of them once more
    assert alone.kernels - again.kernels == 1
    assert price(there, everything(made)).kernels < alone.kernels


def test_fusing_leaves_its_module_as_it_was():
    def one(e, x):
        return e(op.maximum(x, x))

    before = prepare(module(one, (8, 8))())
    fuse(before, [])
    assert decode(f"relax\n{tvm.ir.save_json(before)}".encode())["main"].params


def norms(e, x, g, b):
    for _ in range(3):
        x = e(op.tanh(e(relax.TupleGetItem(e(op.nn.batch_norm(x, g, b, b, g, axis=1, training=False)), 0))))
    return x


@pytest.mark.parametrize("policy", [nothing, everything])
def test_a_model_with_batch_norms_fuses_whole(policy):
    """What TVM makes of a batch norm has names that the model has, too: an operation replaced another."""
    model, decompose = module(norms, (4, 6), (6,), (6,))(), relax.transform.DecomposeOpsForInference()
    canonical = tvm.transform.Sequential([decompose, relax.transform.CanonicalizeBindings()])
    rng = np.random.default_rng(0)
    inputs = [tuple(rng.random(shape, "float32") for shape in ((4, 6), (6,), (6,)))]
    expected = builds.run_module(model, inputs, pipeline="none").outputs[0]
    ready = prepare(model)
    for fused in (fuse(ready, policy(ready)), kernels(before=[canonical], fuse=by(policy))(model)):
        built = builds.run_module(fused, inputs, pipeline="none")
        assert built.ok and np.allclose(built.outputs[0][0], expected[0], atol=1e-5), built.error
    with pytest.raises(ValueError, match="has several results"):
        kernels(fuse=by(policy))(model)


def test_a_name_bound_twice_is_an_error_that_says_what_to_do():
    model = module(norms, (4, 6), (6,), (6,))()
    steps = [relax.transform.DecomposeOpsForInference(), relax.transform.CanonicalizeBindings()]
    with pytest.raises(ValueError, match=r"more than once.*call prepare"):
        program(tvm.transform.Sequential(steps)(model))
