"""Programs that must not run in this process.

A process with secrets calls `use(run)` once. From then on a returned program, which `mark` has marked, is run by `run`:
in another process, which gets the program and its inputs and knows nothing else. `Program.run` sees to that; any other
way to run a marked graph or module here raises `MustBeIsolatedError`.

`use(run, "cuda")` also gives that process every run on the GPU, this project's own programs too, and has `equivalent`
compare there what it would compare on the CPU.

The mark lies on every node of a graph (copies of a node keep it) and on every module, so that a graph is recognized
after edits, cuts and rebuilding. Without `use` nothing is marked, and programs run here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from torch import fx, nn

from passlab.process.clock import cpu_time

_MARK = "elsewhere"
_run: Callable | None = None
_device = "cpu"
_call: Callable | None = None
_open: Callable[[], Process] | None = None
#: name → a function that may be asked about a returned program: see `confined`
CONFINED: dict[str, Callable] = {}
#: name → a function that a `Process` may be asked to call: see `stateful`
STATEFUL: dict[str, Callable] = {}
_trusting = False


class MustBeIsolatedError(BaseException):
    """A returned program was about to run in a process with secrets. No judge is to catch it: it is a judge's bug."""


class ProcessLostError(Exception):
    """A program gave no result: the process that ran it crashed, or used up its time or memory."""


class Process:
    """A process that keeps something between calls. This one stands for it where programs may run here."""

    def __init__(self):
        self.state: dict[str, Any] = {}

    def call(self, function: Callable[..., dict], *arguments: Any) -> dict:
        """Return what a `stateful` function returns there. Raises ProcessLostError."""
        return function(self.state, *arguments)

    def seconds(self) -> float:
        """Return the seconds of CPU time that the process has spent. Raises ProcessLostError."""
        return cpu_time()

    def close(self) -> None:
        """End the process."""


def use(
    run: Callable,
    call: Callable | None = None,
    device: str = "cpu",
    open_process: Callable[[], Process] | None = None,
) -> None:
    """Run marked programs by `run` from now on; its arguments and its result are those of `Program.run`.

    call(name, arguments): call a function of `CONFINED` in a fresh process. open_process(): see `process_for`.
    device: where to compare programs whose tensors are on the CPU. If that is not "cpu", `run` runs all programs there.
    """
    global _run, _call, _device, _open
    _device = device
    if _run is None:
        fx.GraphModule.recompile = _guarded_compiler(fx.GraphModule.recompile)
        fx.Interpreter.run_node = _guarded_interpreter(fx.Interpreter.run_node)
    _run, _call, _open = run, call, open_process


def confined(function: Callable[..., dict]) -> Callable[..., dict]:
    """Declare a function that runs a program: where its first argument holds a marked graph, another process calls it.

    That argument is a record with a field `graph`; all arguments, and the dictionary that it returns, travel. The reply
    is a claim of a process that the program may have taken over. Raises ProcessLostError if there is none.
    """
    name = name_of(function)
    CONFINED[name] = function

    @functools.wraps(function)
    def called(compiled: Any, *arguments: Any) -> dict:
        if not is_marked(compiled.graph):
            return function(compiled, *arguments)
        return _call(name, (compiled, *arguments)) if _call is not None else refuse()

    return called


def stateful(function: Callable[..., dict]) -> Callable[..., dict]:
    """Declare a function that a `Process` may call: its first argument is a dictionary that the process keeps."""
    STATEFUL[name_of(function)] = function
    return function


def name_of(function: Callable) -> str:
    """Return the name under which a function is declared."""
    return f"{function.__module__}.{function.__qualname__}"


@contextmanager
def process_for(program: Any) -> Iterator[Process]:
    """Provide a process for one program: a fresh one where `use` was called, which holds nothing else."""
    if _open is None:
        yield refuse() if is_marked(program) else Process()
        return
    with closing(_open()) as process:
        yield process


@contextmanager
def trusting() -> Iterator[None]:
    """Leave programs unmarked that are decoded inside: they come from this project's own answers."""
    global _trusting
    outer, _trusting = _trusting, True
    try:
        yield
    finally:
        _trusting = outer


def mark(part: fx.Node | nn.Module) -> None:
    """Mark a part of a returned program: a node, or a module that is not a GraphModule."""
    if _run is None or _trusting:
        return
    if isinstance(part, fx.Node):
        part.meta[_MARK] = True
    else:
        part.__dict__["forward"] = refuse


def is_marked(program: Any) -> bool:
    """Return whether a program, or a part of it, was returned and may not run in this process."""
    if _run is None:
        return False
    if isinstance(program, fx.GraphModule) and _in(program.graph):
        return True
    modules = program.modules() if isinstance(program, nn.Module) else ()
    return any(vars(m).get("forward") is refuse for m in modules)


def device() -> str:
    """Return where programs whose tensors are on the CPU are to be compared: "cpu", unless `use` said otherwise."""
    return _device


def run(*args: Any, **how: Any) -> Any:
    """Run a marked program where it may run: see `use`."""
    return _run(*args, **how)


def refuse(self: Any = None, *_: Any, **__: Any) -> None:
    """Stand in for the `forward` of what may not run here. Always raises MustBeIsolatedError."""
    raise MustBeIsolatedError(
        "A returned program may not run in this process. Run it with passlab.fx.programs.Program."
    )


def _in(graph: fx.Graph) -> bool:
    return any(_MARK in node.meta for node in graph.nodes)


def _guarded_compiler(recompile: Callable) -> Callable:
    @functools.wraps(recompile)
    def guarded(gm: fx.GraphModule) -> Any:
        code = recompile(gm)
        if _in(gm.graph):
            type(gm).forward = refuse
        return code

    return guarded


def _guarded_interpreter(run_node: Callable) -> Callable:
    @functools.wraps(run_node)
    def guarded(interpreter: fx.Interpreter, node: fx.Node) -> Any:
        return refuse() if _MARK in node.meta else run_node(interpreter, node)

    return guarded
