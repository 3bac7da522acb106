"""Reaching Relay and Relax. Each case has a process of its own, because it is about what loading a TVM does to one."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.support.flavours import python, relay_here

MODEL = """
import os, sys, torch
from passlab.relay import relay, tvm
from tvm.contrib import graph_executor
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
x = torch.ones(1, 3, 8, 8)
"""
TRACED = 'mod, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", x.shape)])'
RUN = """
built = relay.build(mod, "llvm", params=params)
run = graph_executor.GraphModule(built["default"](tvm.cpu()))
run.set_input("x", x.numpy())
run.run()
print(tvm.__version__, bool(abs(run.get_output(0).numpy() - net(x).detach().numpy()).max() < 1e-5))
"""
SAY = """
try:
    from passlab.relay import tvm
    print("loaded")
except ImportError as error:
    print(error)
"""


@relay_here
def test_relay_builds_and_runs_a_torch_model():
    assert python(MODEL + TRACED + RUN) == "0.17.dev0 True"


@relay_here
def test_relays_build_gives_no_advice_to_tune():
    assert "have not been tuned" not in python(MODEL + "sys.stderr = sys.stdout\n" + TRACED + RUN)


@relay_here
def test_a_model_comes_into_relay_through_onnx():
    load = """
import io, onnx, warnings
warnings.simplefilter("ignore")
file = io.BytesIO()
torch.onnx.export(net, (x,), file, input_names=["x"], dynamo=False, opset_version=13)
mod, params = relay.frontend.from_onnx(onnx.load_from_string(file.getvalue()), {"x": x.shape})
"""
    assert python(MODEL + load + RUN) == "0.17.dev0 True"


@relay_here
def test_relay_leaves_nothing_for_the_other_tvm():
    show = "print(os.environ.get('TVM_LIBRARY_PATH'), os.environ['TOPHUB_LOCATION'])"
    code = "import os; from passlab.relay import tvm; " + show
    assert python(code) == "None NONE"
    assert python(code, TVM_LIBRARY_PATH="/elsewhere") == "/elsewhere NONE"


@relay_here
def test_relay_is_refused_where_relax_is():
    output = python("import passlab.relax; passlab.relax.reach()" + SAY)
    assert output.startswith("This process uses the TVM of Relax (0.27") and "Restart the kernel" in output
    assert python(SAY + "import tvm; print(tvm.__version__)") == "loaded\n0.17.dev0"


def test_other_platforms_are_told_where_to_go():
    output = python("import platform; platform.machine = lambda: 'arm64'" + SAY)
    assert output.startswith("Relay's TVM exists for Linux on x86-64 only") and "day 8" in output and "\n" not in output


def test_a_notebook_shows_the_sentence_and_no_traceback():
    cell = "from passlab.building.compiler import Unreachable; raise Unreachable('One sentence.')"
    output = python(f"from IPython import InteractiveShell; InteractiveShell.instance().run_cell({cell!r})")
    assert "One sentence." in output and "Traceback" not in output


@relay_here
def test_without_relays_wheel_one_sentence_and_nothing_left_behind():
    output = python("import sys; sys.modules['nvidia.cuda_nvrtc'] = None; sys.modules['bitblas'] = None" + SAY)
    assert "not installed" in output and "make setup" in output and "\n" not in output
    output = python(
        "import sys; sys.modules['decorator'] = None" + SAY + "print([p for p in sys.path if 'bitblas' in p])"
    )
    assert output.startswith("Relay cannot be loaded here") and output.endswith("[]")


@relay_here
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_stub_is_compiled_once_and_by_many_at_once(tmp_path):
    code = f"import sys; sys.prefix = {str(tmp_path)!r}; from passlab.relay import library; print(library.stub())"
    racers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    output = {racer.communicate(timeout=600)[0].strip() for racer in racers}
    assert len(output) == 1
    [stub] = (tmp_path / "lib").iterdir()
    before = stub.stat().st_mtime_ns
    assert python(code, PATH="/nowhere") == str(stub) in output  # found again, with no compiler about
    assert stub.stat().st_mtime_ns == before
    assert python(f"import ctypes; print(ctypes.CDLL({str(stub)!r}).cuLaunchKernel())") == "100"


@relay_here
def test_the_users_cache_where_the_environment_is_read_only(tmp_path):
    (tmp_path / "lib").write_text("a file where the folder should be")
    code = f"import sys; sys.prefix = {str(tmp_path)!r}; from passlab.relay import library; print(library.stub())"
    assert python(code, XDG_CACHE_HOME=str(tmp_path / "cache")).startswith(str(tmp_path / "cache" / "passlab"))
    (tmp_path / "cache2").write_text("")
    output = python(
        code.replace("print(library.stub())", "library.driver = library.stub") + SAY,
        XDG_CACHE_HOME=str(tmp_path / "cache2"),
    )
    assert "could be kept are read-only" in output and str(tmp_path / "lib") in output


@relay_here
def test_without_a_compiler_one_sentence(tmp_path):
    code = (
        f"import sys; sys.prefix = {str(tmp_path)!r}; from passlab.relay import library; library.driver = library.stub"
    )
    output = python(code + SAY, PATH="/nowhere", CC="")
    assert output.startswith("Relay needs a C compiler once") and "day 8" in output and "\n" not in output


# Relax


def test_relax_compiles_and_runs_a_torch_model():
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


def test_relax_uses_all_cores_unless_told():
    code = "import os; from passlab.relax import reach; from passlab.tvm.reach import cores; reach(); "
    code += "print(os.environ['TVM_NUM_THREADS'], cores())"
    few, have = python(code, TVM_NUM_THREADS="1").split()
    assert few == "1"
    code = "import os; del os.environ['TVM_NUM_THREADS']; " + code
    assert python(code).split() == [have, have]


def test_passlab_loads_no_tvm_by_itself():
    assert python("import sys, passlab, passlab.relax, passlab.relay; print('tvm' in sys.modules)") == "False"


SAY_RELAX = SAY.replace("relay", "relax")


def test_relax_is_refused_where_relay_is():
    stub = 'import types, sys; sys.modules["tvm"] = types.SimpleNamespace(__version__="0.17.dev0")'
    output = python(stub + SAY_RELAX)
    assert output.startswith("This process uses the TVM of Relay (0.17)") and "Restart the kernel" in output


def test_without_relaxs_package_one_sentence():
    output = python("import sys; sys.modules['tvm_ffi'] = None" + SAY_RELAX)
    assert output.startswith("Relax cannot be loaded here") and "make setup" in output and "\n" not in output
