"""A learner's own passes on real models: which are run, what they save, and what is said of wrong ones."""

import json
import signal
import subprocess
import textwrap
from types import SimpleNamespace

import pytest

from passlab import milestones as show_milestones
from passlab.fx.stages import STAGES
from passlab.notebook import milestones, own_passes
from passlab.notebook.milestones import Row
from passlab.notebook.own_passes import answer_in, measure
from passlab.notebook.project import remember

FINISHED = {"day03.cse-core": 7, "day03.dce": 5, "day04.chains": 11}


def notebook(*cells):
    rows = [{"cell_type": "code", "source": textwrap.dedent(cell).splitlines(keepends=True)} for cell in cells]
    return {"cells": [{"cell_type": "markdown", "source": ["no code"]}, *rows]}


def test_an_answer_is_taken_with_the_definitions_above_it_and_nothing_else_is_run():
    ran = []
    import builtins

    builtins.passlab_ran = ran  # a name that all code sees
    nb = notebook(
        "%matplotlib inline",
        "import math\nHALF = 0.5\nlost = no_such_name + 1",
        "passlab_ran.append('a demo')\nwith open('x'): pass",
        "def cse(gm):\n    return math.floor(gm * HALF)",
        "check('day03.cse-core', cse)",
        "def cse(gm):\n    return 'later'",
    )
    try:
        assert answer_in(nb, "day03.cse")(9) == 4 and ran == []
    finally:
        del builtins.passlab_ran
    for cells in ([], ["check('day03.cse', cse)"], ["def dce(gm): ...", "check('day03.dce', dce)"]):
        with pytest.raises(LookupError, match=r"no answer to day03\.cse"):
            answer_in(notebook(*cells), "day03.cse")


def same(gm):
    return gm


def negated(gm):
    from torch import neg

    output = next(n for n in gm.graph.nodes if n.op == "output")
    with gm.graph.inserting_before(output):
        output.args = (gm.graph.call_function(neg, output.args),)
    gm.recompile()
    return gm


def failing(gm):
    raise KeyError("mul")


def apart(gm):
    calls = [n.name for n in gm.graph.nodes if n.op == "call_module"]
    return [[calls[0], calls[-1]]]


def test_what_passes_save_is_counted_and_wrong_ones_get_a_sentence(monkeypatch):
    monkeypatch.setattr(own_passes, "MODELS", ("residual",))
    own = {"right": {"CSE": same, "DCE": STAGES["dce"], "fusion": lambda gm: []}}
    own |= {"wrong": {"CSE": negated, "DCE": failing, "fusion": apart}, "bare": {}}
    (right, wrong, bare), notes = measure(own)
    assert right.cse == right.nodes > right.dce, "make_fx leaves dead code, and these passes share no value"
    assert right.kernels == right.calls
    assert (wrong.cse, wrong.dce, wrong.kernels) == (bare.cse, bare.dce, bare.kernels) == (None, None, None)
    assert notes[0] == "residual, wrong: CSE changes what the model computes."
    assert notes[1] == "residual, wrong: DCE fails: KeyError: 'mul'"
    assert notes[2].startswith("residual, wrong: fusion: ") and len(notes) == 3


@pytest.fixture
def course(monkeypatch, tmp_path):
    """A learner's folder in which one of the three notebooks is missing. Runs happen in this process."""
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "work/progress.json"))
    monkeypatch.setattr(milestones, "root", lambda: tmp_path)
    monkeypatch.setattr(own_passes, "MODELS", ("residual",))
    cells = ["def cse(gm): return gm", "check('day03.cse', cse)", "def dce(gm): return gm", "check('day03.dce', dce)"]
    (tmp_path / "work/day03").mkdir(parents=True)
    (tmp_path / "work/day03/optimizations.ipynb").write_text(json.dumps(notebook(*cells)))

    def run(command, capture_output, **options):
        import io
        from contextlib import redirect_stdout

        with redirect_stdout(io.StringIO()) as out:
            own_passes.main(command[3], command[4:])
        return SimpleNamespace(stdout=f"a line of the learner's\n{out.getvalue()}", stderr="", returncode=0)

    monkeypatch.setattr(subprocess, "run", run)


def test_without_own_passes_one_sentence_says_which_are_needed(course, capsys):
    show_milestones()
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and all(name in out for name in ("day03.cse", "day03.dce", "day04.chains"))
    remember("day03.dce", points=4, total=5, attempts=1)
    assert not milestones.done("day03.dce"), "not all points"


def test_milestones_run_what_is_checked_and_progress_remembers_it(course, capsys):
    assert milestones.reached() == ""
    for name in ("day03.cse-core", "day03.dce"):
        remember(name, points=FINISHED[name], total=FINISHED[name])
    show_milestones()
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["residual"] * 3
    assert "Your fusion is not there yet: check('day04.chains', …)." in out
    assert "residual" in milestones.reached() and "milestones()" in milestones.reached()
    remember("day04.chains", points=11, total=11)
    show_milestones()
    assert "Your fusion is not in day04/fusion.ipynb" in capsys.readouterr().out


def test_progress_says_when_a_first_run_is_possible(course):
    for name, points in FINISHED.items():
        remember(name, points=points, total=points)
    assert milestones.reached().startswith("milestones() runs your CSE")


def test_a_process_that_ends_or_takes_too_long_is_told_in_one_sentence(course, monkeypatch, capsys):
    remember("day03.dce", points=5, total=5)
    ended = SimpleNamespace(stdout="", stderr="x\nMemoryError\n", returncode=1)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: ended)
    show_milestones()
    assert "ended before its time: MemoryError" in capsys.readouterr().out
    ended.returncode = -signal.SIGPROF
    show_milestones()
    assert "more than 600 s" in capsys.readouterr().out


def test_a_row_shows_what_is_not_known():
    assert "CSE    –, then DCE    3" in Row("mlp", "yours", 9, None, 3, 4, None).line
