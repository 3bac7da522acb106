"""Reaching Relax. Each case has its own process, because one process uses one TVM."""

from __future__ import annotations

import os
import subprocess
import sys


def python(code: str, **env: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_torch_model_is_compiled_and_runs():
    code = """
import torch
from passlab import models
from passlab.relax import relax, tvm
from tvm.relax.frontend.torch import from_exported_program
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
x = torch.ones(1, 3, 8, 8)
mod = from_exported_program(torch.export.export(net, (x,)))
vm = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
got = vm["main"](tvm.runtime.tensor(x.numpy()))[0].numpy()
print(tvm.__version__, bool(abs(got - net(x).detach().numpy()).max() < 1e-5))
"""
    assert python(code) == "0.27.0.post1 True"


def test_all_cores_unless_told():
    code = "import os; from passlab.relax import reach; from passlab.tvm.reach import cores; reach(); "
    code += "print(os.environ['TVM_NUM_THREADS'], cores())"
    few, have = python(code, TVM_NUM_THREADS="1").split()
    assert few == "1"
    code = "import os; del os.environ['TVM_NUM_THREADS']; " + code
    assert python(code).split() == [have, have]


def test_passlab_loads_no_tvm_by_itself():
    assert python("import sys, passlab, passlab.relax, passlab.relay; print('tvm' in sys.modules)") == "False"


def test_one_process_uses_one_tvm():
    said = python("""
import types, sys
sys.modules["tvm"] = types.SimpleNamespace(__version__="0.17.dev0")
try:
    from passlab.relax import tvm
except ImportError as error:
    print(error)
""")
    assert said.startswith("This process uses the TVM of Relay (0.17)") and "Restart the kernel" in said


def test_without_the_package_one_sentence():
    said = python("""
import sys
sys.modules["tvm_ffi"] = None
try:
    from passlab.relax import tvm
except ImportError as error:
    print(error)
""")
    assert said.startswith("Relax cannot be loaded here") and "make setup" in said and "\n" not in said
