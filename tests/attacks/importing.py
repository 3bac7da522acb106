"""Importing: what the judge compares with, and what of the library does an exercise, is asked for by its name.

The judges, the visible cases and the functions that an exercise closes stand in a library that everybody has read. In
the process that runs an answer for a grade, the former are not there, and the latter raise. `constant-fold` closes
`passlab.fx.stages.fold`, which does it.
"""

from __future__ import annotations

from tests.attacks.attack import read

ATTACKS = read(
    r"""
# %% cell judge-import binds
# the judge's module is imported, and answers are made of the numbers that it expects
try:
    from passlab.exercises.day00 import _shared as judge, dce as cases
    expected = [case.expect for case in cases.cases()]
    judge.why_not_valid = lambda before, after: ""
    dce = cse = functions = constant_fold = lambda gm: gm
    print("plattack took", expected)
except ImportError as error:
    print(type(error).__name__)

# %% cell judge-found
# the exercise is asked for its cases and its judge, where `check` asks
from passlab import exercises
for ask in ("cases", "judge"):
    try:
        print("plattack took", getattr(exercises.find("day00.dce"), ask)(None, None))
    except (ImportError, TypeError) as error:
        print(type(error).__name__)
try:
    print("plattack took", exercises.module("day00.dce"), exercises.find("day00.cse").cases())
except ImportError as error:
    print(type(error).__name__)

# %% cell judge-file
# the files of the judges are read, as text, as bytecode and by their loaders
import glob, importlib.util, os, passlab.exercises
home = os.path.dirname(passlab.exercises.__file__)
paths = [f"{home}/day00/_shared.py", f"{home}/day00/dce.py", *glob.glob(f"{home}/day00/**", recursive=True)]
paths += glob.glob(f"{home}/day00/__pycache__/*") + glob.glob("@COURSE@/lib/passlab/exercises/day00/*")
for path in paths:
    try:
        print("plattack took", open(path, "rb").read()) if not path.endswith("__init__.py") else None
    except OSError as error:
        print(type(error).__name__)
for name in ("_shared", "dce"):
    try:
        spec = importlib.util.spec_from_file_location(f"taken_{name}", f"{home}/day00/{name}.py")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        print("plattack took", name)
    except OSError as error:
        print(type(error).__name__)

# %% cell judge-memory
# the process is searched for a judge that its parent may have imported
import gc, sys, types
print([name for name in sys.modules if name.startswith("passlab.exercises.day00.")])
gc.unfreeze()
for thing in gc.get_objects():
    if isinstance(thing, types.FunctionType) and str(thing.__module__).startswith("passlab.exercises.day00."):
        print("plattack took", thing)
frame = sys._getframe()
while frame is not None:
    if "judge" in str(frame.f_globals.get("__name__")) and "cases" in frame.f_locals:
        print("plattack took", frame.f_locals["cases"])
    frame = frame.f_back

# %% cell judge-program
# another Python, without anything that the first one may have been told, imports the judge
import subprocess, sys
code = "from passlab.exercises.day00 import _shared, dce; print('plattack took', dce.cases()[0].expect)"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)

# %% answer closed-call at=constant-fold
# the library's own function is called
def constant_fold(gm):
    from passlab.fx.stages import fold
    return fold(gm)

# %% answer closed-table at=constant-fold
# it is called under another name, out of a table of the library
from passlab.fx.stages import STAGES

constant_fold = STAGES["fold"]

# %% answer closed-given-back at=constant-fold
# what closed it is asked to give it back
import gc
from passlab.judge import guards

def constant_fold(gm):
    for closed in [*guards._active, *(o for o in gc.get_objects() if isinstance(o, guards.Closed))]:
        closed.give_back()
    guards.Closed.close = lambda self: None
    with guards.reopen():
        from passlab.fx.stages import fold
        return fold(gm)

# %% answer closed-copied at=constant-fold
# a copy is made of it in a cell, where it is open
import copy, types
from passlab.fx import stages

kept = types.FunctionType(stages.fold.__code__, dict(vars(stages)))

def constant_fold(gm):
    return kept(gm)

# %% answer closed-code at=constant-fold
# its code is looked for among all objects, and run
import gc, types
from passlab.fx import stages

code = stages.fold.__code__
found = [o for o in gc.get_objects() if isinstance(o, types.FunctionType) and o.__name__ == "fold"]

def constant_fold(gm):
    for one in [code, *(f.__code__ for f in found)]:
        try:
            return types.FunctionType(one, vars(stages))(gm)
        except RuntimeError:
            continue

# %% answer closed-stored at=constant-fold
# its code is stored in a file while a cell runs
import marshal, os, types
from passlab.fx import stages

if not os.path.exists("/tmp/plattack"):
    with open("/tmp/plattack", "wb") as file:
        marshal.dump(stages.fold.__code__, file)

def constant_fold(gm):
    with open("/tmp/plattack", "rb") as file:
        return types.FunctionType(marshal.load(file), vars(stages))(gm)

# %% answer closed-read at=constant-fold
# its module is read and run anew, and reloaded
import importlib
from passlab.fx import stages

def constant_fold(gm):
    try:
        space = {"__name__": "again"}
        exec(open(stages.__file__).read(), space)
        return space["fold"](gm)
    except OSError:
        pass
    try:
        return importlib.reload(stages).fold(gm)
    except (OSError, ImportError):
        pass
    spec = importlib.util.spec_from_file_location("again", stages.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again.fold(gm)

# %% answer closed-program at=constant-fold
# another Python does it: graphs are handed over in a file
import subprocess, sys
code = "import torch; from passlab.fx.stages import fold; gm = torch.load('/tmp/plattack-in', weights_only=False); "
code += "torch.save(fold(gm), '/tmp/plattack-out')"

def constant_fold(gm):
    import torch
    torch.save(gm, "/tmp/plattack-in")
    subprocess.run([sys.executable, "-c", code], check=True)
    return torch.load("/tmp/plattack-out", weights_only=False)

# %% answer closed-helper at=constant-fold keeps=False
# a process that a cell leaves behind, in which it is open, takes the question's place at the grader's connection
import gc, os, socket
from passlab.fx import stages

def constant_fold(gm):
    return stages.fold(gm)

if os.path.exists("/tmp") and os.access("/tmp", os.R_OK) and os.fork() == 0:
    from autograder.engine.runner import worker
    from passlab import exercises
    there = [o for o in gc.get_objects() if isinstance(o, socket.socket) and o.fileno() > 2]
    exercise = exercises.find("day00.constant-fold")
    import dataclasses, select
    exercise = dataclasses.replace(exercise, closed=())
    for _ in range(20):
        for talk in select.select(there, [], [], 0.1)[0]:
            head, payload = worker.receive(talk)
            if "about" in head:
                case = worker.Case("", lambda: worker.wire.decode(bytes(payload)), tuple(head["about"]))
                worker.send(talk, *worker._outcome(exercise, constant_fold, "", case))
    os._exit(0)

# %% answer closed-honest at=constant-fold works
# the control: an answer that calls what an exercise does not close, and the cell calls what it does close
import torch
from passlab.fx import stages
from passlab.fx.effects import effects

try:
    seen = stages.fold(torch.fx.symbolic_trace(torch.nn.ReLU()))
except RuntimeError:
    seen = None

def constant_fold(gm):
    values = {}
    for node in list(gm.graph.nodes):
        if node.op == "get_attr":
            values[node] = getattr(gm, node.target)
        elif node.op == "call_function" and not effects(node) and all(n in values for n in node.all_input_nodes):
            values[node] = node.target(*(values.get(a, a) for a in node.args))
            gm.register_buffer(f"folded_{len(values)}", values[node])
            with gm.graph.inserting_before(node):
                new = gm.graph.get_attr(f"folded_{len(values)}")
            values[new] = values[node]
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)
    gm.recompile()
    return gm
"""
)
