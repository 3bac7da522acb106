"""Views of modules: what holds of Relay and of Relax. (What is their own is in tests/relay and tests/relax.)"""

from __future__ import annotations

from importlib import import_module

import pytest

from passlab import draw, models, view
from passlab.tvm import importers
from tests.support.flavours import each_flavour
from tests.support.views import plain


@each_flavour
@pytest.mark.parametrize("in_a_module", [False, True])
def test_a_primfunc_shows_its_blocks(flavour, in_a_module):
    tvm = import_module(f"passlab.{flavour}").tvm
    te = import_module("tvm.te")
    A = te.placeholder((8, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    B = te.compute((8, 4), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((8,), lambda i: te.sum(B[i, k], axis=k), name="C")
    function = te.create_prim_func([A, C])
    seen = plain(tvm.IRModule({"f": function}) if in_a_module else function)
    nodes = seen["nodes"]
    assert list(nodes) == ["A", "B", "C"] and nodes["C"][2] == ["B"] and seen["outputs"] == ["C"]
    assert nodes["C"][6] == {"loops": "8×4", "reduces": "v_k"} and nodes["C"][3:5] == ["float32[8]", 32]


@each_flavour
def test_an_empty_module_says_so(flavour):
    tvm = import_module(f"passlab.{flavour}").tvm
    with pytest.raises(ValueError) as error:
        view(tvm.IRModule())
    assert str(error.value) == f"This module has no {flavour.title()} function, so there is no graph to view."


@each_flavour
def test_a_large_model_is_drawn(flavour):
    net = models.ZOO["resnet18"]
    module = getattr(importers, f"{flavour}_module")(net.build().eval(), *net.inputs())
    drawn = draw(module)
    assert len(view(module)) > 150 and len(drawn.svg) > 10_000 and "weights and constants" in drawn.note
