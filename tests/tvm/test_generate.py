"""Random modules and their shrinking."""

from __future__ import annotations

import hashlib
from collections import Counter
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from passlab.tvm import modules
from passlab.tvm.builds import run_module
from passlab.tvm.shrink import shrink
from tests.support.flavours import each_flavour, python


@pytest.fixture
def ir(flavour):
    """`make` draws a module, `check` raises where it is not well-typed; `plain`: how to build it as it is."""
    if flavour == "relay":
        from passlab.relay import relay as ir
        from passlab.relay.generate import random_relay as make

        check, plain = ir.transform.InferType(), {"level": 0}
    else:
        from passlab.relax import relax as ir
        from passlab.relax.generate import random_relax as make

        check, plain = ir.analysis.well_formed, {"pipeline": "none"}
    return SimpleNamespace(flavour=flavour, make=make, check=check, plain=plain)


def params(ir, module):
    results = [p.type_annotation if ir.flavour == "relay" else p.ty for p in module["main"].params]
    return [(tuple(int(n) for n in t.shape), str(t.dtype)) for t in results]


def inputs(ir, module, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(
        (rng.integers(-3, 4, shape) if dtype == "int32" else rng.standard_normal(shape)).astype(dtype)
        for shape, dtype in params(ir, module)
    )


def names(module):
    return Counter(name.removeprefix("relax.") for name in modules.counts(module).elements())


@each_flavour
def test_two_hundred_seeds_are_well_typed_and_varied(ir):
    seen, shapes = Counter(), set()
    for seed in range(200):
        module = ir.make(seed, 6 + seed % 14)
        ir.check(module)
        calls = names(module)
        assert calls.total() >= 1, seed
        seen += calls
        shapes.add(tuple(params(ir, module)))
    needed = "nn.conv2d nn.batch_norm nn.max_pool2d nn.softmax take where split sum tanh floor_divide reshape"
    assert not [name for name in [*needed.split(), "strided_slice"] if not seen[name]], seen
    assert len(shapes) > 20 and len(seen) > 30


@each_flavour
def test_no_slice_leaves_an_empty_dimension_from_which_nothing_can_be_taken(ir):
    ir.check(ir.make(567, 12, ("views", "reduce")))


def texts(flavour: str) -> str:
    """Prints of some modules."""
    make = getattr(import_module(f"passlab.{flavour}.generate"), f"random_{flavour}")
    drawn = [make(seed) for seed in range(12)]
    shown = [m.astext(show_meta_data=True) if flavour == "relay" else m.script(show_meta=True) for m in drawn]
    return " ".join(hashlib.sha256(text.encode()).hexdigest() for text in shown)


@each_flavour
def test_same_seed_same_module_in_every_process(flavour):
    digests = python(f"from tests.tvm.test_generate import texts\nprint(texts({flavour!r}))")
    assert digests == texts(flavour)
    assert len(set(digests.split())) == 12


@each_flavour
def test_a_sample_builds_and_means_the_same_optimized_and_not(ir):
    for seed in range(3, 9):
        module = ir.make(seed)
        arguments = [inputs(ir, module)]
        one, other = run_module(module, arguments, **ir.plain), run_module(module, arguments)
        assert one.ok and other.ok, (seed, one.error, other.error)
        for x, y in zip(one.outputs[0], other.outputs[0], strict=True):
            assert np.isfinite(x).all(), seed
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3, err_msg=str(seed))


@each_flavour
def test_features_choose_what_occurs(ir):
    for seed in range(20):
        assert "nn.conv2d" not in names(ir.make(seed, features=("pointwise", "reduce")))
    assert any(names(ir.make(seed, features=("conv",)))["nn.conv2d"] > 1 for seed in range(20))
    with pytest.raises(TypeError, match=r"^No feature 'convs'\. The features are pointwise, "):
        ir.make(0, features=("convs",))
    with pytest.raises(ValueError, match=r"^A random module needs a feature that makes calls, such as pointwise\.$"):
        ir.make(0, features=("outputs",))


@each_flavour
def test_shrinking_finds_the_one_call_that_a_planted_fault_needs(ir):
    count = 0
    for seed in range(60):
        module = ir.make(seed, 20)
        for fault in ("nn.softmax", "take", "nn.conv2d"):
            if names(module)[fault] and count < 12:
                small = shrink(module, lambda m, fault=fault: names(m)[fault] > 0, 200)
                ir.check(small)
                assert dict(names(small)) == {fault: 1}, (seed, fault, small)
                assert params(ir, small) == params(ir, module)
                count += 1
    assert count == 12
    module = ir.make(1, 20)
    bare = shrink(module, lambda m: names(m).total() > 0, drop_parameters=True)
    assert names(bare).total() == 1 and len(params(ir, bare)) < len(params(ir, module)), bare


@each_flavour
def test_shrinking_keeps_two_calls_that_belong_together_and_stays_in_its_budget(ir):
    requests = 0

    def fails(module):
        """It has a softmax whose result is read twice."""
        nonlocal requests
        requests += 1
        reads = modules.consumers(module)
        results = [n.expr if n.var is None else n.var for n in modules.nodes(module, "main") if "softmax" in n.name]
        return any(len(reads.get(key, ())) > 1 for key in results)

    features = ("reduce", "diamond", "pointwise", "dead")
    module = next(m for m in (ir.make(seed, 14, features=features) for seed in range(400)) if fails(m))
    requests = 0
    small = shrink(module, fails, 120)
    assert requests <= 121 and fails(small) and names(small).total() <= 4, small
    with pytest.raises(ValueError, match=r"^shrink expects a module that fails"):
        shrink(module, lambda m: False)
