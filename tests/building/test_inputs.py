"""Inputs for the parameters of a module."""

from __future__ import annotations

import pytest

from passlab.building.inputs import inputs_for
from passlab.building.parameters import Parameter


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "uint32", "float16", "bfloat16", "float64"])
def test_an_input_has_the_dtype_of_its_parameter(dtype):
    trials = inputs_for(lambda size: [Parameter("x", (2, 3), dtype, False)], 0, ("ordinary", "structured"))
    assert {str(x.dtype).removeprefix("torch.") for _, (x,) in trials} == {dtype}


@pytest.mark.parametrize("dtype", ["int2", "uint4", "float8_e5m2", "float8_e4m3fnuz", "complex64", "object"])
def test_a_dtype_that_no_input_can_have_is_refused_with_a_remedy(dtype):
    with pytest.raises(ValueError, match=f"parameter x of dtype {dtype}. Give the parameter one of NumPy's numbers"):
        inputs_for(lambda size: [Parameter("x", (2, 3), dtype, False)], 0, ("ordinary",))


def test_a_parameter_of_unknown_dtype_needs_inputs():
    with pytest.raises(ValueError, match="parameter x: its dtype is not known"):
        inputs_for(lambda size: [Parameter("x", (), "", False)], 0, ("ordinary",))
