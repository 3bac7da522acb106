"""Building and running modules in another process: what they compute, and what becomes of those that misbehave."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from passlab.building import requests
from passlab.building.arrays import flat, spec
from passlab.process.messages import receive, send
from passlab.process.server import Server
from tests.support.flavours import FLAVOURS, checked, each_flavour

EQUAL = """equals torch|built once, run twice|timed, each run|as data|of float64|of float32|of float16|of bfloat16
|of int64|of int8|of uint8|of bool|not fused|symbolic|parameters by name|after all of that|forked
|killed""".replace("\n", "").split("|")
ONLY = {"relax": ["a shape and a number", "TIR", "TIR that leaves gaps"], "relay": ["a branch", "one name for all"]}

#: (flavour or both, what was built) → stage, and how its sentence begins or, after …, goes on.
FAILED = {
    ("relax", "too few inputs"): ("run", "The function main takes more inputs than it got."),
    ("relay", "too few inputs"): ("run", "The function takes 2 inputs; got 1."),
    ("relax", "another shape"): ("run", "…shape[1] mismatch"),
    ("relay", "another shape"): ("run", "The input x0 is float32 of shape (3, 4); got float32 of (3, 2)."),
    ("relax", "another type"): ("run", "…expect Tensor with dtype float32 but get float64."),
    ("relay", "another type"): ("run", "The input x0 is float32 of shape (3, 4); got float64 of (3, 4)."),
    ("both", "no such function"): ("build", "The module has no function other."),
    ("both", "no such target"): ("build", 'TVM cannot build the module: Target kind "abacus" is not defined.'),
    ("both", "no module"): ("build", "TVM cannot build the module:"),
    ("relax", "ill-typed"): ("build", "TVM cannot build the module:"),
    ("relay", "ill-typed"): (
        "build",
        "TVM cannot build the module: Incompatible broadcast type TensorType([4], float32)",
    ),
    ("relax", "out of bounds"): ("crash", "The module ended its process while it ran (segmentation fault)."),
    ("relax", "abort"): ("crash", "The module ended its process while it ran (abort)."),
    ("relay", "too deep"): ("crash", "TVM ended the process while it built the module (segmentation fault)."),
    ("relax", "exit"): ("crash", "The module ended its process while it ran (exit code 0)."),
    ("both", "endless"): ("timeout", "The module was still running after 2 s."),
    ("relax", "memory"): ("run", "The module needed more than 4 GiB of memory."),
    ("relay", "memory"): ("build", "To build the module took more than 4 GiB of memory."),
}


def found(flavour: str) -> dict:
    """What `build_checks.py` found."""
    return checked(Path(__file__).with_name("build_checks.py"), flavour, TVM_NUM_THREADS="2")


@pytest.mark.parametrize(
    ("flavour", "name"), [(flavour, name) for flavour in FLAVOURS for name in [*EQUAL, *ONLY[flavour]]]
)
def test_it_computes_what_torch_computes(flavour, name):
    message = found(flavour)[name]
    assert message["right"], message["error"]


@pytest.mark.parametrize(
    ("flavour", "name"), [(f, name) for f in FLAVOURS for kind, name in FAILED if kind in (f, "both")]
)
def test_what_goes_wrong_is_a_sentence_about_that_request(flavour, name):
    stage, sentence = FAILED.get((flavour, name)) or FAILED["both", name]
    message = found(flavour)[name]
    assert message["stage"] == stage
    assert sentence[1:] in message["error"] if sentence[0] == "…" else message["error"].startswith(sentence), message[
        "error"
    ]
    assert "\n" not in message["error"] and message["error"].endswith(".")


@each_flavour
def test_kernels_and_storage_are_those_of_one_run(flavour):
    fused, separate = found(flavour)["built once, run twice"], found(flavour)["not fused"]
    relu = "relu" if flavour == "relax" else "nn_relu"
    assert fused["kernels"] == [f"fused_add_{relu}", f"{'fused_' if flavour == 'relay' else ''}subtract"]
    assert len(separate["kernels"]) == 3
    assert fused["allocations"] == [2, 96], "two outputs of 3x4 float32"
    assert fused["times"] == 3 and separate["times"] == 0
    assert found(flavour)["timed, each run"]["times"] == 2
    assert fused["beside"] == []


@each_flavour
def test_what_runs_beside_a_module_has_times_outputs_and_kernels_too(flavour):
    timed = found(flavour)["timed, each run"]
    assert timed["beside"] == [2, 2] and timed["beside kernels"] == [2, 2] and timed["beside alike"]


@pytest.mark.parametrize(("flavour", "name"), [("relax", "shape_func"), ("relax", "shape_func_of_mine")])
def test_a_kernel_is_counted_whatever_it_is_called(flavour, name):
    message = found(flavour)[f"a kernel called {name}"]
    assert message["right"] and message["kernels"] == [name]


@each_flavour
def test_requests_do_not_wait_for_each_other(flavour):
    assert found(flavour)["at once"] == {"right": True, "error": "The module was still running after 2 s."}


@each_flavour
def test_nobody_works_for_somebody_who_has_left(flavour):
    assert found(flavour)["interrupted"]["left"] == []


@each_flavour
def test_a_helper_that_is_killed_is_replaced_and_a_fork_shares_it(flavour):
    assert found(flavour)["killed"]["another"]
    assert found(flavour)["forked"]["code"] == 0


@each_flavour
def test_the_helper_has_one_thread_and_ends_with_its_owner(flavour):
    assert found(flavour)["threads"] == 1
    assert not _alive(found(flavour)["helper"])


def test_the_helper_ends_also_when_its_owner_is_killed():
    code = "from passlab.building import requests\nrequests.targets('relax')\nimport os\n"
    code += "print(requests.helper('relax').pid, flush=True)\nos.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    until = time.monotonic() + 600
    while _alive(int(done.stdout)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(int(done.stdout))


def _alive(pid: int) -> bool:
    try:
        return "passlab.building.server" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def test_a_file_beside_the_notebook_does_not_take_the_place_of_a_module(tmp_path):
    (tmp_path / "ctypes.py").write_text("raise SystemExit('this is not the module')")
    code = "from passlab.tvm import builds\nprint(builds.run_module(builds.Packed('relax', '{}'), []).stage)"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "build\n", done.stdout + done.stderr


def test_what_is_no_module_is_said_at_once():
    from passlab.tvm import builds

    with pytest.raises(TypeError, match="expects an IRModule or a function of TVM; got int"):
        builds.run_module(3, [])
    with pytest.raises(ValueError, match="No pipeline 'zero'"):
        builds.run_module(builds.Packed("relax", ""), [], pipeline="zero")
    with pytest.raises(ValueError, match="no run is timed: also pass timed=True, or omit beside"):
        builds.run_module(builds.Packed("relax", ""), [], beside=[builds.Packed("relax", "")])
    with pytest.raises(ValueError, match="No module takes or returns tensors of dtype complex64"):
        builds.run_module(builds.Packed("relax", ""), [(np.ones(1, "complex64"),)])


@pytest.mark.parametrize(
    "answer",
    [
        {"error": ""},
        {"error": 7, "stage": "run"},
        {"error": "Oh.", "stage": "judge"},
        {"error": "", "outputs": [[["float32", [2]]]]},
        {"error": "", "outputs": [[["float32", [-1]]]]},
        {"error": "", "outputs": [[["float32", [10**30]]]]},
        {"error": "", "outputs": [[["object", [1]]]]},
        {"error": "", "outputs": []},
        {"error": "", "outputs": [[]], "kernels": [7]},
        {"error": "", "outputs": [[]], "kernels": 7},
        {"error": "", "outputs": [[]], "times": ["never"]},
        {"error": "", "outputs": [[]], "allocations": [1]},
        {"error": "", "outputs": [[]], "beside": [{"outputs": [[]], "kernels": [], "times": []}]},
        {"stage": 7, "outputs": None},
        {"ended": "now", "said": ""},
        {"ended": 0},
        [],
    ],
)
def test_an_answer_that_a_module_has_made_up_is_none(answer):
    control, other = socket.socketpair()
    whole = {"kernels": [], "times": [], "beside": [], "allocations": None, "stage": ""}
    answer = answer if not isinstance(answer, dict) or "outputs" not in answer else whole | answer
    builder = threading.Thread(target=_answering, args=(other, answer))
    builder.start()
    requests.use("relax", control)
    built = requests.ask("relax", {"inputs": [[]]}, [], 5.0)
    requests.end("relax")
    builder.join()
    assert (built.stage, built.ok) == ("crash", False)
    assert built.error == "The module wrote into the connection of the process that ran it."


def _answering(control: socket.socket, answer) -> None:
    """A builder that gives this answer to the first request, and only says that it is there to others."""
    answers = [answer]
    with control:
        while True:
            data, fds, _, _ = socket.recv_fds(control, 1, 1)
            if not data:
                return
            with socket.socket(fileno=fds[0]) as sock:
                send(sock, {"number": 1})
                send(sock, {"ready": True})
                if answers:
                    send(sock, answers.pop())


def _by_turns(sock: socket.socket, hidden: str) -> None:
    """A child whose module takes 5 ms for a run, or 25 ms where it hopes that they do not count."""
    send(sock, {"ready": True})
    text = bytes(receive(sock)[1][:4])
    send(sock, {"stage": "run"})
    out = np.ones(4, np.float32)
    while True:
        requests, _ = receive(sock)
        what = requests["do"]
        start, lies = time.process_time(), text == b"mine" and what == hidden
        _spend(0.025 if lies else 0.005 if what == "run" else 0)
        replies = {
            "run": {"seconds": 0.0 if lies else time.process_time() - start},
            "give": {"outputs": [spec(out)]},
            "tell": {"kernels": [], "allocations": None},
        }
        send(sock, replies.get(what, {}), *([flat(out)] if what == "give" else []))


def _spend(seconds: float) -> None:
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


@pytest.mark.parametrize(("hidden", "least"), [("", 0.005), ("take", 0.02), ("run", 0.02), ("give", 0.02)])
def test_what_a_timed_module_spends_counts_wherever_it_spends_it(hidden, least):
    control, other = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        control.close()
        Server(other, lambda keep: os.fork(), lambda sock: _by_turns(sock, hidden)).serve()
        os._exit(0)
    other.close()
    requests.use("relax", control)
    values = np.ones(4, np.float32)
    head = {"do": "run", "text": 4, "params": {}, "inputs": [[spec(values)]] * 5, "target": "llvm", "beside": [5]}
    built = requests.ask("relax", head | {"timed": True, "repeats": 0}, [b"mine", b"other", *[values] * 5], 30.0)
    requests.end("relax")
    os.waitpid(pid, 0)
    assert built.error == "" and len(built.times) == 5 and len(built.beside) == 1
    assert least <= statistics.median(built.times) < least + 0.01
    assert 0.005 <= statistics.median(built.beside[0].times) < 0.015


def test_a_request_is_limited_in_cpu_time_and_not_by_the_clock(monkeypatch):
    """One that waits two of its seconds, since the machine is busy, is not lost."""
    control, other = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        control.close()

        def answer(sock: socket.socket) -> None:
            send(sock, {"ready": True})
            receive(sock)
            time.sleep(2)
            whole = {"kernels": [], "times": [], "beside": [], "allocations": None, "stage": "", "error": ""}
            send(sock, whole | {"outputs": []})

        Server(other, lambda keep: os.fork(), answer).serve()
        os._exit(0)
    other.close()
    requests.use("relax", control)
    built = requests.ask("relax", {"inputs": []}, [], 1.0)
    requests.end("relax")
    os.waitpid(pid, 0)
    assert built.ok


@pytest.mark.parametrize(
    ("rows", "how", "optimized"),
    [(4, {}, False), (4, {"repeats": 3}, True), (4, {"timed": True}, True), (2**18 + 1, {}, True)],
    ids=["small", "repeated", "timed", "large"],
)
def test_llvm_optimizes_what_is_timed_or_large(monkeypatch, rows, how, optimized):
    from passlab.tvm import builds

    heads = []
    monkeypatch.setattr(requests, "ask", lambda flavour, head, *rest: heads.append(head) or requests.Built([]))
    builds.run_module(builds.Packed("relax", "{}"), [(np.ones(rows, np.float32),)], **how)
    assert heads[0]["optimize"] is optimized


def test_cpu_time_is_fine_grained_where_it_is_limited():
    """A limit of CPU time makes the process clock tick; the runs of a confined module take microseconds."""
    code = (
        "import resource; from passlab.process.clock import cpu_time\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (600, 600))\n"
        "def run():\n"
        "    start = cpu_time()\n"
        "    sum(range(20_000))\n"
        "    return cpu_time() - start\n"
        "print(sum(run() > 0 for _ in range(100)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 95
