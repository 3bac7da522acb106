"""Scheduled kernels travel: TIR as te.create_prim_func makes it, and a Relax module with its loops tiled."""

from __future__ import annotations

from passlab import models
from passlab.exercises.day08.schedule import naive
from passlab.relax import tvm
from passlab.relax.pipelines import cpu_schedule, kernels
from passlab.tvm.importers import relax_module
from passlab.tvm.wire import decode, encode


def test_scheduled_kernels_travel():
    model = relax_module(models.ZOO["tiny"].build(), *models.ZOO["tiny"].inputs())
    scheduled = cpu_schedule(naive(64, 64, 64)).mod
    for module in (tvm.IRModule({"main": naive(5, 6, 7)}), scheduled, kernels(schedule=cpu_schedule)(model)):
        tvm.ir.assert_structural_equal(module, decode(encode(module)))
