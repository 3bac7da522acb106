"""Warm processes: what is imported once is not imported again, one thread, no GPU, and children that work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.engine import flavours
from tests.support.flavours import FLAVOURS

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["torch", *FLAVOURS, "mlir"]

WARM = """
import gc, json, os, sys
from autograder.engine import flavours
from tests.support.flavours import FLAVOURS
flavours.warm({name!r})
import torch
tasks = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 1
out, into = os.pipe()
gc.collect()
gc.freeze()  # as the runner does: a collection in the fork would otherwise copy every page that holds an object
if os.fork() == 0:
    gc.collect()
    before = set(sys.modules)
    net, x = flavours._rehearsal()
    net[0].weight.mul_(2)
    {run}
    right = bool(abs(got - net(x).numpy()).max() < 1e-5)
    try:
        rollup = open("/proc/self/smaps_rollup").read()
        private = sum(int(line.split()[1]) for line in rollup.split("\\n") if line.startswith("Private_Dirty")) // 1024
    except OSError:
        private = 0
    new = sorted(set(sys.modules) - before)
    os.write(into, json.dumps({{"right": right, "new": new, "private": private}}).encode())
    os._exit(0)
os.wait()
child = json.loads(os.read(out, 2**16))
print(json.dumps({{**child, "tasks": tasks, "threads": torch.get_num_threads(), "gpu": torch.cuda.is_initialized(),
    "tvm": sys.modules["tvm"].__version__ if "tvm" in sys.modules else ""}}))
"""

RUN = {
    "torch": "got = torch.fx.symbolic_trace(net)(x).numpy()",
    "relay": """
    from passlab.relay import relay, tvm
    from tvm.contrib import graph_executor
    module, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", x.shape)])
    executor = graph_executor.GraphModule(relay.build(module, "llvm", params=params)["default"](tvm.cpu()))
    executor.set_input("x", x.numpy())
    executor.run()
    got = executor.get_output(0).numpy()
""",
    "relax": """
    from passlab.relax import relax, tvm
    from tvm.relax.frontend.torch import from_exported_program
    module = from_exported_program(torch.export.export(net, (x,)))
    got = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())["main"](tvm.runtime.tensor(x.numpy()))[0].numpy()
""",
    "mlir": """
    from passlab.mlir import parse, pipeline
    from passlab.mlir.executors import smallest
    net, x = (lambda x: x + x), torch.arange(4.0)
    (add,) = (op for op in pipeline(parse(smallest()), "canonicalize").walk() if op.name == "arith.addf")
    got = sum(x.numpy() for _ in add.operands)
""",
}
READ_ONLY = ("bwrap", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--ro-bind", str(ROOT), str(ROOT))  # it may lie in /tmp
READ_ONLY += ("--dev", "/dev", "--proc", "/proc", "--unshare-all")


def confines() -> bool:
    """Does bubblewrap work here?"""
    return bool(shutil.which("bwrap")) and subprocess.run([*READ_ONLY, "true"], capture_output=True).returncode == 0


def warmed(name: str, *around: str) -> dict:
    """What a warm process of a flavour, and one child of it, say of themselves."""
    code = WARM.format(name=name, run=RUN[name].strip("\n").removeprefix("    "))
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'lib'}"}
    for variable in ("OMP_NUM_THREADS", "TVM_NUM_THREADS"):
        env.pop(variable, None)
    done = subprocess.run(
        [*around, sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().split("\n")[-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_of_a_warm_process_runs_a_model(name):
    message = warmed(name)
    assert message["right"]
    assert message["new"] == []  # nothing is imported by each notebook anew
    assert (message["tasks"], message["threads"], message["gpu"]) == (1, 1, False)
    assert message["tvm"][:4] == {"torch": "", "relay": "0.17", "relax": "0.27", "mlir": ""}[name]
    assert message["private"] < 150  # MiB of its own, of some 600


@pytest.mark.skipif(not confines(), reason="bubblewrap does not work here")
@pytest.mark.parametrize("name", NAMES)
def test_without_network_on_a_read_only_system(name):
    flavours.prepare(name)
    assert warmed(name, *READ_ONLY)["right"]


def test_preparing_relay_is_compiling_its_stub(monkeypatch):
    from passlab import relay

    called = []
    monkeypatch.setattr(relay, "prepare", lambda: called.append("relay"))
    for name in flavours.FLAVOURS:
        flavours.prepare(name)
    assert called == ["relay"]


def test_no_such_flavour_is_a_sentence():
    for function in (flavours.warm, flavours.prepare):
        with pytest.raises(ValueError, match=r"There is no flavour 'jax'; expected one of torch, relay, relax"):
            function("jax")
