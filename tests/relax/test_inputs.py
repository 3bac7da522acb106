"""Inputs that are drawn for Relax modules."""

from __future__ import annotations

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from passlab.tvm.inputs import random_inputs


@I.ir_module
class Cast:
    @R.function
    def main(x: R.Tensor((1, "n"), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
        n, k = T.int64(), T.int64()
        y = R.reshape(x, R.shape([n, 1]))
        z = R.match_cast(y, R.Tensor((k, 1), "float32"))
        w: R.Tensor((k, 1), "float32") = R.reshape(z, R.shape([k, 1]))
        v: R.Tensor((n, 1), "float32") = R.reshape(w, R.shape([n, 1]))
        return v


def test_only_sizes_of_parameters_are_chosen():
    """A size that `match_cast` defines follows from others: n = 5 and k = 7 would not fit together."""
    ((x,),) = random_inputs(Cast, kinds=("ordinary",))
    assert x.shape == (1, 5)
