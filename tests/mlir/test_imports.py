"""Models of torch and StableHLO arrive in linalg, and compute there what they did."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from autograder.toys.tiny import ROOT
from passlab import models, view
from passlab.mlir import MLIRError, text, verify
from passlab.mlir.cases import counts
from passlab.mlir.imports import from_stablehlo, from_torch
from passlab.mlir.modules import MISSING
from passlab.mlir.run import run


@pytest.mark.parametrize("name", ["tiny", "convnet", "attention"])
def test_models_of_the_zoo_compute_the_same_in_linalg(name):
    model, inputs = models.ZOO[name].build(), models.ZOO[name].inputs()
    arrived = from_torch(model, *inputs)
    verify(arrived.module)
    (result,) = run(arrived.module, *arrived.arrays)
    np.testing.assert_allclose(result, model(*inputs).numpy(), rtol=1e-4, atol=1e-5)
    assert len(arrived.arrays) == 1 + len(arrived.weights) and "torch.aten" in arrived.before
    assert {name.split(".")[0] for name in counts(arrived.module)} <= {
        "builtin",
        "func",
        "linalg",
        "arith",
        "math",
        "tensor",
    }


def test_arguments_are_named_after_inputs_and_weights():
    arrived = from_torch(models.ZOO["mlp"].build(), *models.ZOO["mlp"].inputs())
    head = text(arrived.module).splitlines()[1]
    assert "%input:" in head or "%x:" in head
    assert "%w0_weight:" in head and arrived.weights[0] == "0.weight"
    assert view(arrived.module).node("%w0_weight").op == "argument"


def test_constants_arrive_whatever_their_numbers():
    class Constants(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(600).reshape(200, 3).t())
            self.register_buffer("chosen", torch.arange(200) % 3 == 0)
            self.register_buffer("small", torch.arange(200).to(torch.uint8))
            self.register_buffer("none", torch.zeros(0, 200, dtype=torch.int32))
            self.half = torch.linspace(-1, 1, 200).to(torch.bfloat16)  # no buffer

        def forward(self, x):
            rows = torch.cat([self.table, self.none])
            return torch.where(self.chosen, x * rows, self.half.float()), rows + self.small

    model, x = Constants(), torch.randn(3, 200)
    arrived = from_torch(model, x)
    for result, expected in zip(run(arrived.module, *arrived.arrays), model(x), strict=True):
        np.testing.assert_allclose(result, expected.numpy(), rtol=1e-6)


def test_a_batch_norm_may_be_the_output():
    model, x = torch.nn.BatchNorm2d(3).eval(), torch.randn(2, 3, 4, 4)
    model.running_mean.copy_(torch.arange(3.0))
    arrived = from_torch(model, x)
    np.testing.assert_allclose(run(arrived.module, *arrived.arrays)[0], model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_what_does_not_arrive_is_a_sentence():
    class Unruly(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(MLIRError, match="Unruly does not reach MLIR"):
        from_torch(Unruly(), torch.ones(2))
    with pytest.raises(MLIRError, match=r"torch\.nn\.Module; this is a int"):
        from_torch(5)
    with pytest.raises(MLIRError, match="training mode"):
        from_torch(torch.nn.Sequential(torch.nn.Dropout()), torch.ones(2))


def test_stablehlo_of_jax_becomes_linalg():
    import jax
    import jax.numpy as jnp

    def softmax(x):
        e = jnp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    lowered = jax.jit(softmax).lower(x)
    module = from_stablehlo(lowered)
    np.testing.assert_allclose(run(module, x)[0], softmax(x), rtol=1e-5)
    assert text(from_stablehlo(lowered.as_text())) == text(module)
    with pytest.raises(MLIRError, match="this is a int"):
        from_stablehlo(5)


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("stablehlo.nonsense", "'stablehlo.nonsense' is unknown"),
        ("stablehlo.reshape %x : (tensor<2xf32>) -> tensor<3xf32>", "number of output elements"),
        (
            "stablehlo.custom_call @f(%x) {has_side_effect = true} : (tensor<2xf32>) -> tensor<2xf32>",
            "failed to legalize",
        ),
    ],
    ids=["parsed", "verified", "lowered"],
)
def test_what_stablehlo_is_refused_for_has_a_place(operation, words):
    with pytest.raises(MLIRError) as refused:
        from_stablehlo(f"func.func @main(%x: tensor<2xf32>) {{\n  %y = {operation}\n  return\n}}")
    message = str(refused.value)
    assert message.startswith(f"The StableHLO, line 2, column 8, `%y = {operation}`: ") and words in message
    assert (refused.value.line, refused.value.column) == (2, 8)


_WITHOUT_IREE = """
import sys
sys.modules["iree.compiler"] = None
from passlab.notebook import beside
beside.view = lambda flavour, name: None
"""


def test_the_first_lesson_goes_on_without_iree(tmp_path):
    cells = re.split(r"^# %%( tags=.*)?", (ROOT / "course/day01_graphs.py").read_text(), flags=re.MULTILINE)[::2]
    code = [cell for cell in cells if not cell.startswith((" [markdown]", "beside"))]
    until = next(i for i, cell in enumerate(code) if cell.strip().startswith("rows ="))
    lesson = tmp_path / "lesson.py"
    lesson.write_text("\n".join([_WITHOUT_IREE, *code[: until + 1], "print(*rows, sep=', ')"]))
    done = subprocess.run([sys.executable, lesson], capture_output=True, text=True, timeout=240)
    assert done.stdout.count(MISSING) == 1, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "torch.fx, TorchScript, torch.export, ONNX, StableHLO, HLO"


_TOGETHER = """
import {first}
import torch, jax, jax.numpy as jnp
{tvm}
from passlab import view
from passlab.mlir import parse, pipeline, verify
source = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{ return %a : tensor<4xf32> }}"
verify(pipeline(parse(source), "canonicalize"))
assert len(view(parse(source))) == 2 and len(view(jax.jit(jnp.tanh).lower(jnp.zeros(3)))) == 3
assert float(torch.ones(2).sum()) == 2
print("together")
"""
RELAX = "from passlab.relax import relax; assert relax.Var"
RELAY = "from passlab.relay import relay; assert relay.var('x')"


@pytest.mark.parametrize(
    ("first", "tvm"),
    [("iree.compiler.ir", RELAX), ("jax", RELAY)],
    ids=["mlir first, with Relax", "jax first, with Relay"],
)
def test_mlir_lives_with_torch_jax_and_a_tvm_in_one_process(first, tvm):
    done = subprocess.run(
        [sys.executable, "-c", _TOGETHER.format(first=first, tvm=tvm)], capture_output=True, text=True, timeout=180
    )
    assert done.stdout.strip().endswith("together"), done.stderr[-2000:]


def test_passlab_imports_neither_xdsl_nor_iree():
    ask = "import sys, passlab, passlab.mlir; assert not {'xdsl', 'iree.compiler', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", ask], check=True, timeout=600)


def test_a_complex_constant_of_stablehlo_is_shown():
    kind = "tensor<2xcomplex<f32>>"
    text = (
        f"func.func @main(%a: {kind}) -> {kind} {{\n"
        f"%c = stablehlo.constant dense<[(1.0, 2.0), (3.0, 4.0)]> : {kind}\n"
        f"%d = stablehlo.add %a, %c : {kind}\nreturn %d : {kind}\n}}"
    )
    (constant,) = (node for node in view(text).nodes if node.op == "stablehlo.constant")
    assert "(1.0" in str(constant.attrs["value"])


def test_text_in_the_dialect_torch_says_what_lowers_it():
    model = models.ZOO["tiny"]
    imported = from_torch(model.build(), *model.inputs())
    with pytest.raises(ValueError, match=r"as a StableHLO module\. .* torch's by passlab\.mlir\.imports\.from_torch"):
        view(imported.before)
