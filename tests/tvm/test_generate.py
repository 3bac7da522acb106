"""Random modules and their shrinking. Each flavour has its own process, because one process uses one TVM."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FLAVOURS = [
    pytest.param(
        "relay",
        marks=pytest.mark.skipif(
            sys.platform != "linux" or platform.machine() != "x86_64", reason="Relay's TVM is for Linux on x86-64"
        ),
    ),
    "relax",
]

START = """
import numpy as np
from collections import Counter
from passlab.tvm import generate, modules
from passlab.tvm.builds import run_module
from passlab.tvm.generate import FEATURES
from passlab.tvm.shrink import shrink
from passlab.{flavour}.generate import random_{flavour} as make
from passlab.{flavour} import {flavour} as ir, tvm
def params(module):
    found = [(p.type_annotation if {relay} else p.ty) for p in module["main"].params]
    return [(tuple(int(n) for n in t.shape), str(t.dtype)) for t in found]
def inputs(module, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda s, d: (rng.integers(-3, 4, s) if d == "int32" else rng.standard_normal(s)).astype(d)
    return tuple(draw(*p) for p in params(module))
def names(module): return Counter(n.removeprefix("relax.") for n in modules.counts(module).elements())
def well_typed(module):
    if {relay}: return ir.transform.InferType()(module)
    ir.analysis.well_formed(module)
    return module
"""


def python(flavour: str, code: str, timeout: int = 280) -> str:
    """What a fresh interpreter of that flavour prints."""
    done = subprocess.run(
        [sys.executable, "-c", START.format(flavour=flavour, relay=flavour == "relay") + code],
        env={**os.environ, "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_two_hundred_seeds_are_well_typed_and_varied(flavour):
    code = """
seen, shapes = Counter(), set()
for seed in range(200):
    module = make(seed, 6 + seed % 14)
    well_typed(module)
    calls = names(module)
    assert calls.total() >= 1, seed
    seen += calls
    shapes.add(tuple(params(module)))
needed = "nn.conv2d nn.batch_norm nn.max_pool2d nn.softmax take where split sum tanh floor_divide reshape strided_slice"
assert not [name for name in needed.split() if not seen[name]], seen
assert len(shapes) > 20, len(shapes)
print(len(seen))
"""
    assert int(python(flavour, code)) > 30


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_same_seed_same_module_in_every_process(flavour):
    code = """
import hashlib
for seed in range(12):
    module = make(seed)
    text = module.astext(show_meta_data=True) if %r == "relay" else module.script(show_meta=True)
    print(hashlib.sha256(text.encode()).hexdigest())
"""
    first = python(flavour, code % flavour)
    assert first == python(flavour, code % flavour)
    assert len(set(first.split())) == 12


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_sample_builds_and_means_the_same_optimised_and_not(flavour):
    code = """
plain = {"level": 0} if %r == "relay" else {"pipeline": "none"}
for seed in range(3, 9):
    module = make(seed)
    one, other = run_module(module, [inputs(module)], **plain), run_module(module, [inputs(module)])
    assert one.ok and other.ok, (seed, one.error, other.error)
    for x, y in zip(one.outputs[0], other.outputs[0], strict=True):
        assert np.isfinite(x).all(), seed
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3, err_msg=str(seed))
"""
    python(flavour, code % flavour)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_features_choose_what_occurs(flavour):
    code = """
for seed in range(20):
    assert "nn.conv2d" not in names(make(seed, features=("pointwise", "reduce")))
assert any(names(make(seed, features=("conv",)))["nn.conv2d"] > 1 for seed in range(20))
for wrong in (("convs",), ("outputs",)):
    try:
        make(0, features=wrong)
    except (TypeError, ValueError) as error:
        print(error)
"""
    unknown, empty = python(flavour, code).splitlines()
    assert unknown.startswith("There is no feature 'convs'. There are: pointwise, ")
    assert empty == "A random module needs a feature that makes calls, such as pointwise."


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_shrinking_finds_the_one_call_that_a_planted_fault_needs(flavour):
    code = """
found = 0
for seed in range(60):
    module = make(seed, 20)
    for fault in ("nn.softmax", "take", "nn.conv2d"):
        if names(module)[fault] and found < 12:
            small = shrink(module, lambda m: names(m)[fault] > 0, 200)
            well_typed(small)
            assert dict(names(small)) == {fault: 1}, (seed, fault, small)
            assert params(small) == params(module)
            found += 1
bare = shrink(module := make(1, 20), lambda m: names(m).total() > 0, drop_parameters=True)
assert names(bare).total() == 1 and len(params(bare)) < len(params(module)), bare
print(found)
"""
    assert int(python(flavour, code)) == 12


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_shrinking_keeps_two_calls_that_belong_together_and_stays_in_its_budget(flavour):
    code = """
def fails(m):                         # a softmax whose result is read twice
    global asked
    asked += 1
    reads = modules.consumers(m)
    key = lambda n: n.expr if n.var is None else n.var
    return any(len(reads.get(key(n), ())) > 1 for n in modules.nodes(m, "main") if "softmax" in n.name)
for seed in range(400):
    asked = 0
    module = make(seed, 14, features=("reduce", "diamond", "pointwise", "dead"))
    if fails(module):
        small = shrink(module, fails, 120)
        assert asked <= 122 and fails(small) and names(small).total() <= 4, small
        break
else:
    raise AssertionError("no seed has one")
try:
    shrink(module, lambda m: False)
except ValueError as error:
    print(error)
"""
    assert python(flavour, code).startswith("shrink needs a module that fails")
