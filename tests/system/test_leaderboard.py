"""The leaderboard of the sample class: what `passlab leaderboard` does, from compilers in notebooks to the page.

torch.compile and TVM take minutes to compile the models, so they stay out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from autograder.authoring import samples, source
from autograder.authoring.source import ROOT

OUT = ("torch.compile", "TVM")


def test_compilers_race_from_the_notebook_to_the_page(tmp_path):
    """A compiler that saves, one that was never written, and one that crashes: the first alone has a rank."""
    [capstone] = source.notebooks("day12")
    for learner in ("perfect", "untouched", "crash"):
        (folder := tmp_path / "class" / learner / "day12").mkdir(parents=True)
        (folder / f"{capstone.stem}.ipynb").write_text(samples.filled(capstone, samples.CLASS[learner].fill))
    command = [sys.executable, "-m", "passlab.cli", "leaderboard", str(tmp_path / "class"), "--names", "--seed", "1"]
    command += ["--draws", "1", "--repeats", "2", *(f"--without={name}" for name in OUT)]
    env = os.environ | {"PASSLAB_RUN": str(tmp_path / "run")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr + done.stdout
    result = json.loads((tmp_path / "run/leaderboard.json").read_text())
    perfect, *others = result["standings"]
    assert (perfect["name"], perfect["rank"], {one["state"] for one in others}) == ("perfect", 1, {"failed"})
    assert {one["name"]: one["why"] for one in others}["untouched"] == "No compiler was written."
    assert result["baselines"].keys() == perfect["rows"].keys() >= {"graph 1", "graph 2", "graph 3"}
    for model, row in perfect["rows"].items():
        eager = result["baselines"][model]["eager"]
        assert row["seconds"] > 0 and row["launches"] < eager["launches"] and row["bytes"] < eager["bytes"]
    page = (tmp_path / "run/leaderboard.html").read_text()
    assert ">perfect<" in page and "No compiler was written." in page


def test_a_gpu_that_is_missing_is_named():
    command = [sys.executable, "-m", "passlab.cli", "leaderboard", "--device", "cuda"]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode and "--device cuda needs" in done.stderr + done.stdout
