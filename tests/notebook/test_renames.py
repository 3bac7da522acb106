"""Notebooks of the first release still import what they imported."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

#: Every import of the library in the lessons and exercises of the first release, by the compiler that it loads.
IMPORTS = {
    "torch": """
from passlab import (
    beside, builds, bytes_moved, chart, check, cost, diff, draw, equivalent, exercises, kernels, launches, models,
    peak_memory, polyhedral, progress, rewrites, steps, timed, trace, view
)
from passlab.builds import run_module, targets
from passlab.drawing import lattice, plot, roofline, slider, traffic
from passlab.drawing.roofline import roofline, traffic
from passlab.effects import EFFECTS, effects, memory_order, written
from passlab.exercises import find
from passlab.exercises.cases_day10_nests import as_python
from passlab.graph import Graph, KINDS, Node, Table, table
from passlab.importers import relax_module, relay_from_onnx, relay_module, to_onnx
from passlab.judge_tvm import random_inputs
from passlab.kernels import fused
from passlab.layout import NCHW, NHWC, converts, is_image, wants
from passlab.machine import measure_machine
from passlab.measure import peak_memory, seconds
from passlab.measure_tvm import allocations, bytes_moved, cost, launches, runner
from passlab.op_patterns import Pattern, canonical, pattern
from passlab.ops import ConvReLU2d, conv2d_relu, linear_act
from passlab.passes import Analysis, Pass, PassError
from passlab.polyhedral import (
    NotAffine, PROGRAMS, ast, compiled, dependences, depth, distribute, fixed, fuse, interchange, legal,
    not_a_schedule, order, pairs, parallel, parse, prim_func, python_source, random_arrays, reference, reverse,
    run_python, skew, tile, times, violated, visits
)
from passlab.postdominators import nodes_between, post_dominators
from passlab.stages import STAGES
from passlab.structure_tvm import consumers, counts, groups
from passlab.suspects import SUSPECTS
""",
    "relax": """
from passlab.exercises.cases_day04_cost import MACHINE, sides, situations
from passlab.exercises.cases_day08_tuner import tuner_cases
from passlab.exercises.cases_day10_tile import SOURCES
from passlab.fusing import everything, fuse, illegal, nothing, prepare, price, program
from passlab.kernel_schedule import on_cpu
from passlab.pipelines import cpu_schedule, host, kernels, pipeline, tune
from passlab.relax import relax, tvm
""",
    "relay": """
from passlab.exercises.cases_day04_groups import zoo
from passlab.relay import relay, tvm
""",
}
HERE = ["torch", "relax"] + ["relay"] * (sys.platform == "linux" and platform.machine() == "x86_64")


@pytest.mark.parametrize("flavour", HERE)
def test_every_name_is_still_found(flavour):
    done = subprocess.run([sys.executable, "-c", IMPORTS[flavour]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_gone_is_said_with_its_new_module():
    import passlab.effects

    with pytest.raises(AttributeError, match=r"passlab\.effects is now passlab\.fx\.effects, which has no 'nothing'"):
        _ = passlab.effects.nothing
