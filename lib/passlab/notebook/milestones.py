"""`milestones()`: a learner's own CSE, DCE and fusion of days 3 and 4 on real models, beside the course's and torch's.

The passes run in a process of their own (own_passes): a notebook may hold the other TVM.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from passlab import exercises
from passlab.notebook.project import load, load_progress, progress_file, root, save
from passlab.notebook.ui import Card, say, show
from passlab.process.clock import ran_out

#: Word for a pass → the exercise that it answers.
PASSES = {"CSE": "day03.cse", "DCE": "day03.dce", "fusion": "day04.chains"}
#: Models of the zoo on which the passes run.
MODELS = ("resnet18", "gpt", "vit")
#: How much CPU time a run may take, in seconds.
LIMIT = 600
#: Whose passes: the learner's, the course's small stages of day 3, torch's own.
WHOSE = ("yours", "the course's", "torch's")
#: What the columns are.
LEGEND = (
    "CSE and DCE: nodes of the ATen operations that make_fx records. Fused: kernels of the calls that trace finds; "
    "torch gives no groups, since it fuses while it generates code."
)


class Row(NamedTuple):
    """A model under one's passes. Counts are of nodes, and of calls that start a kernel each; None: not known."""

    model: str
    whose: str
    nodes: int
    cse: int | None
    dce: int | None
    calls: int
    kernels: int | None

    @property
    def line(self) -> str:
        cse, dce, kernels = ("–" if count is None else count for count in (self.cse, self.dce, self.kernels))
        nodes = f"{self.nodes:>5} nodes, CSE {cse:>4}, then DCE {dce:>4}"
        return f"{self.model:<10}{self.whose:<14}{nodes};  {self.calls:>4} calls, fused {kernels:>4}"


def milestones_file() -> Path:
    """Return the file beside the progress with the results of the last run."""
    return progress_file().with_name("milestones.json")


def milestones() -> None:
    """Run your CSE, DCE and fusion of days 3 and 4 on ResNet-18, GPT and ViT, and show what they save."""
    home = root()
    lacking = [f"Your {word} is not there yet: check({name!r}, …)." for word, name in PASSES.items() if not done(name)]
    if home is None or len(lacking) == len(PASSES):
        return show(say("Milestones run your own passes on real models. " + " ".join(lacking)))
    words = [word for word, name in PASSES.items() if done(name)]
    # By its name alone: what imports this file, and so each check of an exercise, does not depend on kernels and TVM.
    command = [sys.executable, "-m", f"{__package__}.own_passes", str(home / "work"), *words]
    ended = subprocess.run(command, cwd=home, capture_output=True, text=True)
    if ran_out(ended.returncode):
        return show(
            say(f"Your passes took more than {LIMIT} s on {', '.join(MODELS)}. A walk for each node may be why.")
        )
    try:
        result = json.loads(ended.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        reason = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        return show(say(f"The process with your passes ended before its time: {reason[:200]}"))
    save(milestones_file(), {"last": result})
    rows, notes = [Row(*row) for row in result["rows"]], [*lacking, *result["notes"], LEGEND]
    text = "\n".join([*(row.line for row in rows), *notes])
    show(Card(text, "milestones", rows=rows, notes=notes))


def done(exercise_id: str) -> bool:
    """Return whether the learner has all points of an exercise, or of its core."""
    record = load_progress()
    entries = [record.get(name, {}) for name in (exercise_id, exercise_id + exercises.CORE)]
    return any(entry.get("total") and entry.get("points", 0) >= entry["total"] for entry in entries)


def reached() -> str:
    """Return one sentence about the last run, or about a first one that is possible now; else ""."""
    rows = [Row(*row) for row in load(milestones_file()).get("last", {}).get("rows", ())]
    counts = [f"{row.model} {row.nodes} → {row.dce} nodes" for row in rows if row.whose == "yours" and row.dce]
    if counts:
        return f"Your passes on real models (milestones()): {', '.join(counts)}."
    if all(map(done, PASSES.values())):
        return "milestones() runs your CSE, DCE and fusion on ResNet-18, GPT and ViT."
    return ""
