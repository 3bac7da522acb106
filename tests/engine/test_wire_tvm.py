"""TVM's modules as data: what is honest comes back equal and computes the same; all else is refused in a sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from passlab.process.refusal import Refused
from passlab.tvm import wire as codec
from passlab.tvm.reach import loaded
from tests.support.flavours import FLAVOURS, checked

#: Check → a part of what the refusal says.
RELAY = {
    "debug": "the operator debug",
    "call_lowered": "the operator call_lowered",
    "vm op": "the operator vm.invoke_tvm_op",
    "tir op": "the operator tir.call_extern",
    "relax op": "the operator relax.call_pure_packed",
    "no such op": "not registered",
    "compiler": "asks for an external compiler",
    "confused settings": "expected Object but got str",
    "confused arguments": "converting argument 1",
    "confused operator": "converting argument 0",
    "far away": "does not exist (99999)",
    "negative": "does not exist (-1)",
    "no number": "damaged",
    "circular": "circular",
    "unknown type": "type tir.PrimFunc, which cannot travel",
    "ill typed": "not well-typed",
    "lying tensor": "claims the shape (4, 3, 3, 3)",
    "too deep": "5,000 levels",
}
NATIVE = ("call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin", "tvm_call_packed")
NATIVE += ("call_ffi_kernel", "address_of", "tvm_struct_set", "tvm_access_ptr", "ptx.ld", "cuda.func_call")
CALLS = ("call_pure_packed", "call_dps_packed", "call_inplace_packed", "call_py_func", "call_builtin_with_ctx")
RELAX = {
    **{name: f"the operator tirx.{name}" for name in NATIVE},
    **{name: f"the operator relax.{name}" for name in CALLS},
    "closure": "the operator relax.invoke_closure",
    "a packed function": "type relax.expr.ExternFunc, which cannot travel",
    "pragma C": "code in another language",
    "pragma LLVM": "code in another language",
    "extern function": "type relax.expr.ExternFunc, which cannot travel",
    "python object": "type ffi.OpaquePyObject, which cannot travel",
    "unknown type": "type target.Target, which cannot travel",
    "confused": "Cannot convert",
    "circular": "circular",
    "no module": "neither a module nor a function",
    "lying tensor": "claims the shape (4, 3, 3, 3)",
    "not well-formed": "not well-formed",
}
BOTH = {
    "empty": "not a Relay or Relax module",
    "no flavour": "not a Relay or Relax module",
    "the other flavour": "where none is expected",
    "no JSON": "damaged",
    "a list": "no list of nodes",
    "no nodes": "",
    "nested JSON": "damaged",
    "many nodes": "1,000,001 nodes",
}


def found(flavour: str) -> dict:
    """What `tvm_checks.py` found."""
    return checked(Path(__file__).with_name("tvm_checks.py"), flavour)


HONEST = [(flavour, name) for flavour in ("relay", "relax") for name in ("round trip", "optimized")]
HONEST += [("relax", name) for name in ("with TensorIR", "scheduled", "parsed from a script")]


@pytest.mark.parametrize(("flavour", "name"), [one for one in HONEST if one[0] in FLAVOURS])
def test_a_module_comes_back_equal_and_computes_what_torch_computes(flavour, name):
    check = found(flavour)[name]
    assert check["code"] == 0, check["said"]
    assert float(check["said"]) < 1e-5


SAME = [("relay", "odd kinds"), ("relax", "planned"), ("relax", "name twice")]


@pytest.mark.parametrize(("flavour", "name"), [one for one in SAME if one[0] in FLAVOURS])
def test_a_module_comes_back_equal(flavour, name):
    assert found(flavour)[name] == {"code": 0, "said": "None"}


HOSTILE = [("relay", *one) for one in (RELAY | BOTH).items()] + [("relax", *one) for one in (RELAX | BOTH).items()]


@pytest.mark.parametrize(("flavour", "name", "part"), [one for one in HOSTILE if one[0] in FLAVOURS])
def test_what_is_not_honest_is_refused(flavour, name, part):
    check = found(flavour)[name]
    assert check["code"] == 3, check
    assert part in check["said"] and "\n" not in check["said"] and len(check["said"]) < 400


FUZZED = [("relay", "fuzz"), ("relax", "fuzz"), ("relax", "fuzz TensorIR")]


@pytest.mark.parametrize(("flavour", "name"), [one for one in FUZZED if one[0] in FLAVOURS])
def test_damage_is_refused_or_costs_its_own_process(flavour, name):
    ends = json.loads(found(flavour)[name]["said"])  # else it says which one ended otherwise, or hung
    assert sum(ends.values()) == 100 and ends["refused"] >= 50
    assert ends.get("died", 0) <= 20


def test_every_check_is_looked_at():
    looked = {flavour: set() for flavour in FLAVOURS}
    for flavour, name, *_ in [*HONEST, *SAME, *HOSTILE, *FUZZED]:
        looked.get(flavour, set()).add(name)
    assert {flavour: set(found(flavour)) for flavour in FLAVOURS} == looked


def test_without_tvm_nothing_is_a_module():
    assert "tvm" not in sys.modules or loaded()
    assert not codec.carries(3)
    with pytest.raises(Refused, match="not a Relay or Relax module"):
        codec.decode(b"neither")


def test_too_large_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(codec, "MAX_BYTES", 10)
    with pytest.raises(Refused, match="the limit is"):
        codec.decode(b"relax\n" + b" " * 10)
