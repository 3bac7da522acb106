"""Grading with --device: refused without a GPU, judged where it says, and told in both pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from autograder import commands
from autograder.engine import sandbox
from autograder.engine.data import NotebookResult, Verdict, from_json, only_on_the_cpu
from autograder.reports.report import Facts, report
from tests.engine.test_sandbox import Warm, can_sandbox
from tests.reports.test_feedback import make, text_of

ROOT = Path(__file__).resolve().parents[2]


# Before anything is graded


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_graded(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "passlab.cli", "grade", "--device", "cuda", str(tmp_path / "class")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PASSLAB_RUN": str(tmp_path / "run")},
    )
    assert ran.returncode == 1 and re.match(r"--device cuda needs (a torch with CUDA|an NVIDIA GPU)", ran.stderr)
    assert "does not exist" not in ran.stderr and not (tmp_path / "run").exists()


def test_each_reason_has_its_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert commands.no_device("cpu", "") == ""
    assert commands.no_device("tpu", "") == "There is no device 'tpu'. Expected cpu or cuda."
    assert "--scheduler" in commands.no_device("cuda", "tls://here:8786")
    for built, message in ((None, "a torch with CUDA"), ("12.8", "an NVIDIA GPU")):
        monkeypatch.setattr(torch.version, "cuda", built)
        assert message in commands.no_device("cuda", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert commands.no_device("cuda", "") == ""


# In the engine

DRIVER = """
import json, sys
from autograder.engine.data import Cell, Job, to_json
from autograder.engine.engine import Engine

answer, device = json.loads(sys.stdin.read())
cells = (Cell(0, "answer", answer), Cell(1, "check", "", "day03.dce", "dce"))
with Engine(jobs=1, unsafe=True, device=device) as engine:
    found = [engine.grade(Job(learner, "day03", "optimizations", cells, 3)) for learner in ("ada", "bob")]
print("RESULT" + json.dumps([to_json(one) for one in found]))
"""


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_a_verdict_says_where_it_was_judged(device):
    """ "cpu:0" stands in for a GPU: another name for where this machine computes."""
    order = json.dumps(["def dce(gm):\n    return gm", device])
    ran = subprocess.run([sys.executable, "-c", DRIVER], cwd=ROOT, input=order, capture_output=True, text=True)
    assert "RESULT" in ran.stdout, ran.stderr
    for result in json.loads(ran.stdout.split("RESULT")[1]):  # the second from findings that are kept
        (verdict,) = from_json(result).verdicts.values()
        assert verdict.verdicts["same"] and not verdict.verdicts["did"] and verdict.devices == [device], verdict


# In the sandbox


@pytest.mark.skipif(not can_sandbox(), reason="bubblewrap is not installed, or has no namespaces here")
def test_a_device_is_let_through_to_whom_it_is_for(monkeypatch, request):
    folder = tempfile.TemporaryDirectory(dir="/var/tmp")  # not in /tmp, of which a worker has one of its own
    request.addfinalizer(folder.cleanup)
    node = Path(folder.name) / "nvidia0"
    node.write_text("a GPU")
    node.chmod(0o666)
    monkeypatch.setattr(sandbox, "GPU", f"{folder.name}/nvidia*")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    look = f"raise ValueError(open({str(node)!r}).read() + ' ' + str(os.path.exists('/proc/self/status')))"
    for device, off, worker, graphs in (
        ("cuda", "", "ValueError:  False", "ValueError: a GPU True"),  # a worker reads /dev/null in its place
        ("cuda", "landlock", "ValueError:  False", "ValueError: a GPU True"),
        ("cuda", "mounts", "PermissionError", "ValueError: a GPU True"),
        ("cpu", "", "FileNotFoundError", "FileNotFoundError"),
    ):
        for gpu, message in ((False, worker), (True, graphs)):
            one = Warm(*off.split(), device=device, gpu=gpu)
            try:
                assert one.attempt(look)[0].startswith(message), (device, off, gpu)
                if device == "cuda":
                    shown = one.attempt("raise ValueError(os.environ['CUDA_VISIBLE_DEVICES'])")[0]
                    assert shown == f"ValueError: {'3' if gpu else ''}"
                if gpu and not off:
                    message = one.attempt("raise ValueError(open('/proc/1/cmdline').read())")[0]
                    assert message.startswith(("PermissionError", "FileNotFoundError")), "other processes are hidden"
            finally:
                one.close()


# In the pages


def verdict(exercise: str, *devices: str) -> Verdict:
    return Verdict(exercise, 1.0, 1.0, 0, {"same": True}, devices=list(devices))


def test_both_pages_say_what_was_judged_on_the_cpu_only():
    results = [verdict("day03.dce", "cpu"), verdict("day03.cse", "cpu", "cuda"), verdict("day01.levels")]
    assert [only_on_the_cpu(one) for one in results] == [True, False, False]
    result = NotebookResult("ada", "day03", "optimizations", 0, verdicts=dict(enumerate(results)))
    page = report([], [result], Facts())
    message = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    assert "judged on a GPU the verdict “equivalent” of day03.cse " in message
    assert "judged on the CPU only the verdict “equivalent” of day03.dce " in message
    nb, graded = make()
    line = "The verdict “equivalent” was judged on the CPU only: day03.dce."
    from autograder.reports.feedback import feedback

    for devices, shown in ((["cpu"], True), (["cuda"], False), ([], False)):
        graded.verdicts[2].devices = devices
        assert (line in text_of(feedback(nb, graded))) is shown
