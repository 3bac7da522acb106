"""Modules from a body: the types that a case may give its inputs."""

from __future__ import annotations

import pytest

from passlab.relax import tvm
from passlab.relax.cases import module, op


@pytest.mark.parametrize(
    ("type_", "shape", "dtype"),
    [((), (), "float32"), ((2, 3), (2, 3), "float32"), (((), "int64"), (), "int64"), (((2,), "int8"), (2,), "int8")],
)
def test_a_type_is_a_shape_or_a_shape_and_a_dtype(type_, shape, dtype):
    built = module(lambda emit, x: emit(op.add(x, x)), type_)()
    (x,) = built["main"].params
    assert tuple(int(size) for size in x.ty.shape) == shape and x.ty.dtype == dtype
    tvm.relax.analysis.well_formed(built)
