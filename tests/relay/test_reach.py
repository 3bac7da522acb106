"""Reaching Relay. Each case has its own process, because one process uses one TVM."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

import pytest

here = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="Relay's TVM is for Linux on x86-64"
)

MODEL = """
import os, sys, torch
from passlab.relay import relay, tvm
from tvm.contrib import graph_executor
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
x = torch.ones(1, 3, 8, 8)
"""
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


@here
def test_a_torch_model_is_built_and_runs():
    load = 'mod, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", x.shape)])'
    assert python(MODEL + load + RUN) == "0.17.dev0 True"


@here
def test_a_build_gives_no_advice_to_tune():
    load = 'mod, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", x.shape)])'
    assert "have not been tuned" not in python(MODEL + "sys.stderr = sys.stdout\n" + load + RUN)


@here
def test_a_model_comes_in_through_onnx():
    load = """
import io, onnx, warnings
warnings.simplefilter("ignore")
file = io.BytesIO()
torch.onnx.export(net, (x,), file, input_names=["x"], dynamo=False, opset_version=13)
mod, params = relay.frontend.from_onnx(onnx.load_from_string(file.getvalue()), {"x": x.shape})
"""
    assert python(MODEL + load + RUN) == "0.17.dev0 True"


@here
def test_nothing_is_left_for_the_other_tvm():
    show = "print(os.environ.get('TVM_LIBRARY_PATH'), os.environ['TOPHUB_LOCATION'])"
    code = "import os; from passlab.relay import tvm; " + show
    assert python(code) == "None NONE"
    assert python(code, TVM_LIBRARY_PATH="/elsewhere") == "/elsewhere NONE"


@here
def test_one_process_uses_one_tvm():
    said = python("import passlab.relax; passlab.relax.reach()" + SAY)
    assert said.startswith("This process uses the TVM of Relax (0.27") and "Restart the kernel" in said
    assert python(SAY + "import tvm; print(tvm.__version__)") == "loaded\n0.17.dev0"


def test_other_platforms_are_told_where_to_go():
    said = python("import platform; platform.machine = lambda: 'arm64'" + SAY)
    assert said.startswith("Relay's TVM exists for Linux on x86-64 only") and "day 8" in said and "\n" not in said


def test_a_notebook_shows_the_sentence_and_no_traceback():
    cell = "from passlab.tvm.reach import Unreachable; raise Unreachable('One sentence.')"
    said = python(f"from IPython import InteractiveShell; InteractiveShell.instance().run_cell({cell!r})")
    assert "One sentence." in said and "Traceback" not in said


@here
def test_without_the_wheel_one_sentence_and_nothing_left_behind():
    said = python("import sys; sys.modules['nvidia.cuda_nvrtc'] = None; sys.modules['bitblas'] = None" + SAY)
    assert "not installed" in said and "make setup" in said and "\n" not in said
    said = python(
        "import sys; sys.modules['decorator'] = None" + SAY + "print([p for p in sys.path if 'bitblas' in p])"
    )
    assert said.startswith("Relay cannot be loaded here") and said.endswith("[]")


@here
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_stub_is_compiled_once_and_by_many_at_once(tmp_path):
    code = f"import sys; sys.prefix = {str(tmp_path)!r}; from passlab import relay; print(relay._stub())"
    racers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {racer.communicate(timeout=60)[0].strip() for racer in racers}
    assert len(said) == 1
    [stub] = (tmp_path / "lib").iterdir()
    before = stub.stat().st_mtime_ns
    assert python(code, PATH="/nowhere") == str(stub) in said  # found again, with no compiler about
    assert stub.stat().st_mtime_ns == before
    assert python(f"import ctypes; print(ctypes.CDLL({str(stub)!r}).cuLaunchKernel())") == "100"


@here
def test_the_users_cache_where_the_environment_is_read_only(tmp_path):
    (tmp_path / "lib").write_text("a file where the folder should be")
    code = f"import sys; sys.prefix = {str(tmp_path)!r}; from passlab import relay; print(relay._stub())"
    assert python(code, XDG_CACHE_HOME=str(tmp_path / "cache")).startswith(str(tmp_path / "cache" / "passlab"))
    (tmp_path / "cache2").write_text("")
    said = python(
        code.replace("print(relay._stub())", "relay._driver = relay._stub") + SAY,
        XDG_CACHE_HOME=str(tmp_path / "cache2"),
    )
    assert said.startswith("Relay needs a folder") and "read-only" in said


@here
def test_no_compiler_one_sentence(tmp_path):
    code = f"import sys; sys.prefix = {str(tmp_path)!r}; from passlab import relay; relay._driver = relay._stub"
    said = python(code + SAY, PATH="/nowhere", CC="")
    assert said.startswith("Relay needs a C compiler once") and "day 8" in said and "\n" not in said
