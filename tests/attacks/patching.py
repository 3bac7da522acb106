"""Patching: what decides about points, as far as it can be reached from the learner's Python, is replaced."""

from __future__ import annotations

from tests.attacks.attack import Attack, cell, read

_FAKE_GRADE = """
import sys, types
fake = types.ModuleType("autograder.authoring.answers")
fake.grade = lambda exercise, answer: 3.0 if "count" in exercise else 5.0
"""


def _faking(name: str, tries: str, code: str, **more) -> Attack:
    return cell(name, tries, _FAKE_GRADE + code, **more)


ATTACKS = read(
    r"""
# %% cell allclose
# every comparison of torch says equal
import torch
torch.allclose = torch.equal = torch.Tensor.equal = torch.Tensor.allclose = lambda *a, **k: True
torch.testing.assert_close = lambda *a, **k: None

# %% cell judgement-points forges_stock
# the judgement's points are always the total
import passlab.judge as judge
judge.Judgement.points = property(lambda self: self.total)
judge.Judgement.verdicts = property(lambda self: dict.fromkeys(self.exercise.points, True))

# %% cell judge keeps=False
# the judge's functions find nothing wrong, everywhere they have been imported to
import passlab.judge as judge, passlab.fx.judge as judge_fx

def fine(*a, **k):
    return [judge.Finding(v, True) for v in judge.VERDICTS]

for name in ("judge", "judge_outcome", "run"):
    getattr(judge, name).__code__ = fine.__code__
judge_fx.why_not_valid.__code__ = (lambda *a, **k: "").__code__

# %% cell exercise-records keeps=False forges_stock
# gc finds the exercises in memory; their judges and time limits are exchanged
import gc
from passlab.judge import Exercise, Finding
from passlab import exercises
for exercise in exercises.of_day("day00"):
    verdicts = ("valid", "same", "did", "spared")
    object.__setattr__(exercise, "judge", lambda case, value: [Finding(verdict, True) for verdict in verdicts])
    object.__setattr__(exercise, "seconds", 1e9)
    object.__setattr__(exercise, "call", lambda answer, case: case.build()[0])

# %% faking grading-module forges_stock
# a module `autograder.authoring.answers` whose `grade` gives full marks stands in sys.modules
sys.modules['autograder.authoring.answers'] = fake

# %% faking import-hook forges_stock
# `builtins.__import__` hands out a grader of its own
import builtins
original = builtins.__import__
def hook(name, *arguments, **keywords):
    return fake if name == "autograder.authoring.answers" else original(name, *arguments, **keywords)
builtins.__import__ = hook

# %% cell meta-path forges_stock
# an import finder comes first and finds another `autograder`
import sys, importlib.abc, importlib.util

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.startswith("autograder"):
            return importlib.util.spec_from_loader(name, self, is_package=name == "autograder")
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.grade = lambda exercise, answer: 3.0 if "count" in exercise else 5.0

sys.meta_path.insert(0, Finder())
for name in [n for n in sys.modules if n.startswith("autograder")]:
    del sys.modules[name]

# %% cell builtins keeps=False forges_stock
# `any` and `all` say yes, and `min` gives the largest
import builtins
builtins.all = builtins.any = lambda *a: True
builtins.min = builtins.max

# %% cell assertions
# AssertionError is no error any more
import builtins
builtins.AssertionError = type("AssertionError", (Warning,), {})
import sys
sys.excepthook = lambda *a: None
get_ipython().showtraceback = lambda *a, **k: None
get_ipython().set_custom_exc((BaseException,), lambda *a, **k: None)

# %% cell input-transformer forges_stock
# IPython rewrites the text of check cells before they run
def transform(lines):
    text = "".join(lines)
    return ["3.0\n" if "count" in text else "5.0\n"] if "check(" in text else lines

get_ipython().input_transformers_cleanup.append(transform)
get_ipython().input_transformers_post.append(transform)

# %% cell ast-transformer forges_stock
# IPython replaces each call of `grade` by a number
import ast

class Full(ast.NodeTransformer):
    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in ("grade", "check"):
            return ast.copy_location(ast.Constant(3.0 if "count" in ast.unparse(node) else 5.0), node)
        return self.generic_visit(node)

get_ipython().ast_transformers.append(Full())

# %% cell display-hook forges_stock
# the value of a check cell is displayed as full marks
get_ipython().display_formatter.formatters["text/plain"].for_type(float, lambda value, p, cycle: p.text("5.0"))

# %% cell display-pub
# every display becomes a forged verdict of the grader's own type
from IPython.display import display
verdict = {"exercise": "day00.dce", "points": 5.0, "total": 5.0, "attempted": True, "verdicts": {}, "message": ""}
for total in (3.0, 5.0):
    display({"application/vnd.passlab.verdict+json": verdict | {"points": total}, "text/plain": str(total)}, raw=True)
pub = get_ipython().display_pub
original = pub.publish
def publish(data, *arguments, **keywords):
    data = {**data, "application/vnd.passlab.verdict+json": verdict, "text/plain": "5.0"}
    return original(data, *arguments, **keywords)
pub.publish = publish

# %% cell session-send forges_stock
# messages of the kernel are changed on their way out
try:
    session = get_ipython().kernel.session
except AttributeError:
    from jupyter_client.session import Session as session
original = session.send

def send(stream, kind, content=None, *arguments, **keywords):
    if kind == "execute_result" or (isinstance(kind, dict) and kind.get("msg_type") == "execute_result"):
        (content or kind["content"])["data"]["text/plain"] = "5.0"
    if kind == "error":
        kind, content = "status", {"execution_state": "busy"}
    return original(stream, kind, content, *arguments, **keywords)

session.send = send

# %% cell cell-events forges_stock
# before each cell, names that check cells use are bound anew
def rebind(info=None):
    get_ipython().user_ns["check"] = lambda *a: None
    import autograder.authoring.answers as grading
    grading.grade = lambda exercise, answer: 3.0 if "count" in exercise else 5.0
    grading.verdict = None

get_ipython().events.register("pre_run_cell", rebind)
get_ipython().events.register("pre_execute", rebind)

# %% cell run-cell keeps=False
# the shell's own `run_cell` and the engine's `Shell.run` claim that all went well
shell = get_ipython()
shell.run_cell = lambda *a, **k: shell.displayhook(5.0)
shell.run_cell_async = None
try:
    from autograder.engine.runner.shell import Shell
    from autograder.engine.data import Ran
    result = {"output_type": "execute_result", "data": {"text/plain": "5.0"}, "metadata": {}, "execution_count": 1}
    Shell.run = lambda self, *a: Ran([result])
    Shell.value = lambda self, text: ((lambda *a: 5.0), "")
except ImportError:
    pass

# %% cell files-in-cwd keeps=False
# torch.py, passlab/ and autograder/ in the working directory are imported instead
import os, sys
try:
    for name in ("passlab", "autograder/authoring"):
        os.makedirs(name, exist_ok=True)
    for path in ("torch.py", "passlab/__init__.py", "autograder/__init__.py", "sitecustomize.py"):
        open(path, "w").write("check = grade = lambda *a: 5.0\n")
    with open("autograder/authoring/answers.py", "w") as file:
        file.write("grade = lambda exercise, a: 3.0 if 'count' in exercise else 5.0\n")
except OSError as error:
    print(error)
import importlib
sys.path.insert(0, os.getcwd())
importlib.invalidate_caches()
for name in [n for n in sys.modules if n.startswith(("autograder", "passlab"))]:
    del sys.modules[name]

# %% cell torch-module keeps=False
# sys.modules['torch'] is a class that agrees with everything
import sys

class Yes:
    def __getattr__(self, name): return Yes()
    def __call__(self, *a, **k): return Yes()
    def __eq__(self, other): return True
    def __bool__(self): return True
    def __iter__(self): return iter(())
    __hash__ = None

sys.modules["torch"] = sys.modules["torch.fx"] = sys.modules["passlab.fx.judge"] = Yes()

# %% cell false-is-true keeps=False harms
# the integer inside the object False is set to one
import ctypes
ctypes.c_uint32.from_address(id(False) + 24).value = 1

# %% cell profile-hook keeps=False
# sys.setprofile changes the variables of whatever runs
import ctypes, sys

def hook(frame, event, value):
    for name in ("result", "points", "held", "outcome", "same", "broken"):
        if event == "return" and name in frame.f_locals and "passlab" in frame.f_code.co_filename:
            frame.f_locals[name] = None if name == "broken" else True
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))

sys.setprofile(hook)

# %% cell dispatch-mode keeps=False
# under a mode for every torch function and operator all tensors are ones
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

class Ones(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("allclose", "equal", "all", "__bool__"):
            return True
        return function(*args, **(kwargs or {}))

class AlsoOnes(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        return torch.ones_like(made) if isinstance(made, torch.Tensor) else made

Ones().__enter__()
AlsoOnes().__enter__()

# %% cell torch-defaults keeps=False
# grad mode, default dtype, threads, determinism and the printer of tensors are set otherwise
import torch
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.manual_seed = lambda *a: None
torch.set_printoptions(threshold=1)
torch.fx.Node.__repr__ = torch.fx.Node.__str__ = lambda self: "same"
torch.fx.Graph.__str__ = torch.fx.GraphModule.__str__ = lambda self: "same"

# %% cell clock
# the clock stands still and timers are never set
import signal, time
time.perf_counter = time.monotonic = time.time = lambda: 0.0
signal.setitimer = signal.alarm = lambda *a: None
signal.signal = lambda *a: None

# %% cell fork-and-wait keeps=False
# os.fork, os._exit, os.wait and os.waitpid are replaced: all children end well, nobody ends
import os, signal
os._exit = lambda code: None
os.wait = lambda: (1, 0)
os.waitpid = lambda pid, options: (pid, 0)
os.kill = lambda *a: None
os.fork = lambda: 0

# %% cell fork-parent keeps=False harms
# the process that a check cell forks goes on as the notebook itself, and so do two more
import os
original = os.fork
def fork():
    original()
    return original() and 0
os.fork = fork

# %% cell engine-modules keeps=False
# every function of the engine in reach claims full marks
import sys, types
for name in ("worker", "wire", "frames", "shell", "outcomes", "data", "verifier", "verdicts", "engine"):
    try:
        __import__(f"autograder.engine.{name}")
    except ImportError as error:
        print(error)
for name, module in list(sys.modules.items()):
    if name in ("autograder.engine.verifier.verdicts", "autograder.engine.outcomes", "autograder.engine.data"):
        for key, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType):
                setattr(module, key, lambda *a, **k: ({"status": "ok", "points": 5.0, "verdicts": {}}, b"5.0"))

# %% cell frames-send keeps=False
# what the worker sends says that every question was answered and is worth five points
try:
    from autograder.engine.runner import worker
    from passlab.process import messages as frames
    original = frames.send
    def send(sock, head, *payload, deadline=None):
        head = head | {"status": "ok", "points": 5.0, "total": 5.0, "verdicts": {"did": True, "valid": True}}
        return original(sock, head, *payload, deadline=deadline)
    frames.send = worker.send = send
except ImportError:
    pass

# %% cell answers-exchanged
# a later answer takes the place of all earlier ones, and `check` is a name of the learner's
def check(*arguments):
    return 5.0

class Everything:
    def __getattribute__(self, name):
        return Everything() if not name.startswith("__") else object.__getattribute__(self, name)
    def __call__(self, *a, **k):
        return True

dce = cse = constant_fold = functions = Everything()

# %% cell at-exit
# full marks are printed when the process ends
import atexit, sys, threading, weakref
atexit.register(lambda: print("5.0"))
threading._register_atexit(lambda: print("5.0"))
class Last:
    def __del__(self): print("5.0")
last = Last()

# %% answer equal-to-all at=count-nodes honest=0
# what comes back is equal to anything, true, and of any class
class Any(dict):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __getattr__(self, name): return Any()
    def __call__(self, *a, **k): return Any()
    def __iter__(self): return iter(())
    def __le__(self, other): return True
    def __len__(self): return 1
    __hash__ = object.__hash__
    __class__ = property(lambda self: dict)

def count_nodes(gm):
    return Any()

# %% answer lying-count at=count-nodes honest=0
# a dict with keys that are equal to every text, and numbers equal to every number
class Word(str):
    def __eq__(self, other): return True
    def __hash__(self): return hash("add")

class Number(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__

class Table(dict):
    def get(self, key, default=None): return Number(1)
    def __iter__(self): return iter(())
    def __getitem__(self, key): return Number(1)

def count_nodes(gm):
    return Table({Word("add"): Number(7)})

# %% answer lying-class
# an object whose __class__ is GraphModule and whose graph is whatever one asks for
import torch
from torch import fx

class Claim:
    __class__ = fx.GraphModule
    def __init__(self, gm): self.gm = gm
    def __getattr__(self, name): return getattr(self.__dict__["gm"], name)

def dce(gm):
    return Claim(gm)

# %% answer lying-graph
# a Graph whose list of nodes leaves out what should have gone, and a module that computes with the rest
import torch
from torch import fx

class Short(fx.Graph):
    @property
    def nodes(self):
        return [n for n in super().nodes if n.users or n.op in ("placeholder", "output")]

class Liar(fx.GraphModule):
    @property
    def graph(self):
        return self._short
    @graph.setter
    def graph(self, value):
        self._graph = value
    def forward(self, x):
        return self.original(x)
    def recompile(self):
        pass

def dce(gm):
    short = Short()
    short.graph_copy(gm.graph, {})
    made = Liar.__new__(Liar)
    made.__dict__.update(gm.__dict__)
    made.__dict__.update(_short=short, original=gm)
    return made

# %% answer lying-node at=cse
# nodes of a class of their own, which are equal to each other and have users when asked
from torch import fx

class Quiet(fx.Node):
    @property
    def users(self): return {}
    def __eq__(self, other): return True
    def __hash__(self): return 1

def cse(gm):
    for node in gm.graph.nodes:
        try:
            node.__class__ = Quiet
        except TypeError:
            object.__setattr__(node, "name", "same")
    return gm

# %% answer two-faces forges_stock
# the graph is another one each time it is asked for
import copy
from torch import fx

def dce(gm):
    empty = fx.Graph()
    empty.output(empty.placeholder("x"))
    faces = iter([gm.graph, empty] * 1000)

    class Faces(type(gm)):
        graph = property(lambda self: next(faces), lambda self, value: None)

    gm.__class__ = Faces
    return gm

# %% answer torch-function at=constant-fold forges_stock
# a constant of a tensor class that says yes to every comparison, in the graph and out of it
import torch

class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if "close" in str(function) or "equal" in str(function) or "eq" in str(function):
            return torch.tensor(True)
        return torch.zeros(2, 2).as_subclass(cls)

def constant_fold(gm):
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and all(n.op == "get_attr" for n in node.all_input_nodes):
            gm.register_buffer("yes", torch.zeros(2, 2).as_subclass(Yes))
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(gm.graph.get_attr("yes"))
            gm.graph.erase_node(node)
    return gm

# %% answer own-module forges_stock
# the graph calls one module of the learner's own, which computes the old program
import copy
from torch import fx, nn

class Whole(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = [inner]
    def forward(self, x):
        return self.inner[0](x)

def dce(gm):
    graph = fx.Graph()
    x = graph.placeholder("x")
    gm.whole = Whole(copy.deepcopy(gm))
    graph.output(graph.call_module("whole", (x,)))
    return fx.GraphModule(gm, graph)

# %% answer own-function forges_stock
# the graph calls a function of the learner's own, named like one of torch
import torch
from torch import fx

def dce(gm):
    def relu(x):
        import passlab.judge as judge
        judge.Judgement.points = property(lambda self: self.total)
        return gm(x)
    graph = fx.Graph()
    graph.output(graph.call_function(relu, (graph.placeholder("x"),)))
    return fx.GraphModule(gm, graph)

# %% answer code-generator
# the graph brings its own code generator and lines of code for the judge's process
import torch
from torch import fx

class Inject(fx.graph.CodeGen):
    def additional_globals(self):
        import passlab.judge as judge
        judge.Judgement.points = property(lambda self: self.total)
        return []
    def gen_fn_def(self, *arguments):
        return "__import__('passlab.judge').judge.Judgement.points = 5\n" + super().gen_fn_def(*arguments)

def dce(gm):
    gm.graph.set_codegen(Inject())
    gm.graph.on_generate_code(lambda old: lambda body: ["print('5.0')\n", *body])
    return gm

# %% answer hooks
# forward hooks, deepcopy hooks and graph hooks run in the judge's process
import torch

def full(*arguments):
    import passlab.judge as judge
    judge.Judgement.points = property(lambda self: self.total)

def dce(gm):
    gm.register_forward_hook(full)
    gm.register_forward_pre_hook(full)
    gm._register_load_state_dict_pre_hook(full)
    gm._deepcopy_hooks = [full]
    gm.graph._insert = full
    return gm

# %% answer reduce
# what comes back runs code when it is copied or unpickled
class Gadget:
    def __reduce_ex__(self, protocol):
        text = "import passlab.judge as j; j.Judgement.points = property(lambda self: self.total)"
        return exec, (text,)
    def __deepcopy__(self, memo):
        exec(self.__reduce_ex__(4)[1][0])
        return self

def dce(gm):
    gm.meta["gadget"] = Gadget()
    for node in gm.graph.nodes:
        node.meta["val"] = Gadget()
    return Gadget()

# %% answer argument-objects earns=3 keeps=False
# the objects that are handed in are searched for the judge's own copy, and both are emptied
import gc
from torch import fx

def dce(gm):
    for thing in gc.get_objects():
        if isinstance(thing, fx.GraphModule):
            graph = fx.Graph()
            graph.output(graph.placeholder("x"))
            thing.graph = graph  # it is valid, and nothing dead is left in it
    return gm

# %% cell audit-hook keeps=False
# an audit hook, which nobody can remove, raises wherever something is opened, compiled or sent
import sys

def hook(event, arguments):
    if event in ("open", "compile", "exec", "socket.sendmsg", "marshal.loads"):
        raise RuntimeError("plattack")

sys.addaudithook(hook)

# %% cell watched-by-gc keeps=False
# a callback of the garbage collector changes the variables of whatever allocates
import ctypes, gc, sys

def callback(phase, info):
    frame = sys._getframe(1)
    for name in ("status", "value", "head", "outcome"):
        if name in frame.f_locals:
            frame.f_locals[name] = None
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))

gc.callbacks.append(callback)
gc.set_threshold(1)
""",
    faking=_faking,
)
