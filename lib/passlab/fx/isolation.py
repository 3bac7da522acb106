"""Programs that must not run in this process.

A process with secrets calls `use(run)` once. From then on `Program.run` passes each returned program, which `mark` has
marked, to `run`: it runs in another process, which gets the program and its inputs and knows nothing else. Any other
way to run a marked graph or module in this process raises `MustBeIsolatedError`.

`use(run, "cuda")` also gives that process every run on the GPU, this project's own programs too, and `equivalent`
compares on the GPU the programs that it would compare on the CPU.

Every node of a graph (copies of a node included) and every module is marked, so that a graph is recognized after edits,
cuts and rebuilding. Without `use` nothing is marked, and programs run in this process.
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
#: name → a function that may run a returned program in another process: see `confined`
CONFINED: dict[str, Callable] = {}
#: name → a function that a `Process` may call: see `stateful`
STATEFUL: dict[str, Callable] = {}
_trusting = False


class MustBeIsolatedError(BaseException):
    """A returned program was about to run in a process with secrets: a bug of the judge, which must not catch this."""


class ProcessLostError(Exception):
    """A program gave no result: the process that ran it crashed, or used up its time or memory."""


class Process:
    """A process that keeps state between calls. This class is the current process, where programs may run in it."""

    def __init__(self):
        self.state: dict[str, Any] = {}

    def call(self, function: Callable[..., dict], *arguments: Any) -> dict:
        """Call a `stateful` function in the process and return its result. Raises ProcessLostError."""
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
    """Declare a function that runs a program: if that is a marked graph, another process calls the function.

    The program is the first argument: a GraphModule, or a record with one as its field `graph`. All arguments are sent
    to that process, and the dictionary that the function returns is sent back. Do not trust it: the program may control
    the process. Raises ProcessLostError if the process gives no reply, or if the function raises there.
    """
    name = name_of(function)
    CONFINED[name] = function

    @functools.wraps(function)
    def called(program: Any, *arguments: Any) -> dict:
        if not is_marked(program if isinstance(program, fx.GraphModule) else program.graph):
            return function(program, *arguments)
        return _call(name, (program, *arguments)) if _call is not None else refuse()

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
    """Provide a process for one program: after `use`, a fresh one with no other program; otherwise this process."""
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
    """Return the device on which to compare programs whose tensors are on the CPU: "cpu", unless `use` set another."""
    return _device


def run(*args: Any, **options: Any) -> Any:
    """Run a marked program in the process for such programs: see `use`."""
    return _run(*args, **options)


def refuse(self: Any = None, *_: Any, **__: Any) -> None:
    """Replace the `forward` of a program that may not run in this process. Always raises MustBeIsolatedError."""
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
