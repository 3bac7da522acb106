"""Scheduled kernels travel: TIR as te.create_prim_func makes it, and a Relax module with its loops tiled."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from passlab import models
from passlab.exercises.day08.schedule import naive
from passlab.tvm.importers import relax_module
from passlab.relax.pipelines import cpu_schedule, kernels
from passlab.relax import tvm
from autograder.engine.wire.tvm import decode_module, encode_module

model = relax_module(models.ZOO["tiny"].build(), *models.ZOO["tiny"].inputs())
for module in (tvm.IRModule({"main": naive(5, 6, 7)}), cpu_schedule(naive(64, 64, 64)).mod,
               kernels(schedule=cpu_schedule)(model)):
    tvm.ir.assert_structural_equal(module, decode_module(encode_module(module)))
print("all came back")
"""


def test_scheduled_kernels_travel():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == "all came back", done.stderr[-2000:]
