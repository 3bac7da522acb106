"""Record what Dynamo captures of a function, call by call.

Reading order: `capture`, the parts of a record, the recorder, why a graph ends, guards as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from passlab.capture import private
from passlab.judge.words import plural


def capture(f: Callable, *inputs: Any, dynamic: bool | None = None) -> Capture:
    """Return a record of how torch.compile captures `f` in the call `f(*inputs)`.

    The record is a function like `f`; each further call adds to it. dynamic: as of `torch.compile`; None makes a size a
    symbol once it was seen to vary, False never, True at once. What other calls of `torch.compile` made in this process
    is compiled anew when it is next used: a record starts with nothing compiled and nothing learned.

    Raises what `f` raises on these inputs.
    """
    program = Capture(f, dynamic)
    program(*inputs)
    return program


#: Why a graph ends before the function does: reason → what it means.
REASONS = {
    "branch": "an `if` or a `while` depends on the value of a tensor",
    "number": "a tensor becomes a Python number (`item`, `float`, `int`, `bool`, `tolist`)",
    "size": "the size of a result depends on the values of a tensor (`nonzero`, a mask as an index)",
    "builtin": "a function of Python that Dynamo cannot follow (`print`, `input`, `open`)",
    "foreign": "a function that Dynamo does not enter (C extensions, `time`, `random`, `warnings`)",
    "disabled": "a function under `torch.compiler.disable`",
    "asked": "`torch._dynamo.graph_break()` asks for it",
    "other": "something else, which `text` tells",
}

#: The start of Dynamo's own text → reason.
_STARTS = {
    "generic_jump": "branch",
    "Data-dependent branching": "branch",
    "Data dependent operator": "branch",
    "Unsupported Tensor.item() call": "number",
    "Tensor.tolist()": "number",
    "Dynamic shape operator": "size",
    "Failed to trace builtin operator": "builtin",
    "Attempted to call function marked as skipped": "foreign",
    "Skip calling `torch.compiler.disable()`d": "disabled",
    "Skip inlining `torch.compiler.disable()`d": "disabled",
    "Call to `torch._dynamo.graph_break()`": "asked",
}


@dataclass(frozen=True)
class Break:
    """A place where capture stops and Python goes on. `reason` is a key of REASONS; `text` is Dynamo's.

    `line` counts in `file` from 1; `source` is that line.
    """

    reason: str
    text: str
    file: str
    line: int
    source: str

    @property
    def meaning(self) -> str:
        """Return the reason as words, or Dynamo's text for a reason without words."""
        return self.text if self.reason == "other" else REASONS[self.reason]

    def __str__(self) -> str:
        return f"line {self.line}, `{self.source}`: {self.meaning}"


@dataclass(frozen=True)
class Guard:
    """A condition on which compiled code may be used again. `source`: what it is about ("x", "G['n']"; "" for the state
    of torch: gradients, devices). `kind`: Dynamo's type of guard. `text`: the condition."""

    source: str
    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass
class Compilation:
    """A frame (a function, or its rest after a break) that Dynamo has compiled, or has tried to.

    `graph`: its operations, or None where it has none. `inputs`: the values that the graph was compiled with, without
    data. `guards`: when the code may be used again. `ends`: the break at the end of its graph, or None if it returns.
    `failed_guard`: the guard of the newest earlier version of the frame that did not hold, or "". `call`: the number of
    the call, from 0. `error`: why the frame runs as plain Python, or "".
    """

    function: str
    call: int
    graph: fx.GraphModule | None = None
    inputs: tuple = ()
    guards: tuple[Guard, ...] = ()
    ends: Break | None = None
    failed_guard: str = ""
    error: str = ""


@dataclass
class Capture:
    """A function under torch.compile, with a record of what was compiled. Call it as the function itself.

    `backend`: what compiles the graphs; None runs them as they are. `compilations`: in the order in which they
    happened. `counts`: for each call, the number of graphs it compiled.
    """

    function: Callable
    dynamic: bool | None = None
    backend: Callable | None = None
    compilations: list[Compilation] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"capture wants a function or a module and its inputs; got {type(self.function).__name__}.")
        torch.compiler.reset()
        self._frames: dict[str, Compilation] = {}  # those of one call, by Dynamo's number
        self._stops: dict[str, list[private.Stop]] = {}  # the breaks met since the frame before
        self._sizes: dict[str, tuple] = {}  # shapes of the tensors that come into the frame
        self._compiled = torch.compile(
            self.function, backend=self._note, dynamic=self.dynamic, options={"guard_filter_fn": self._keep}
        )

    @property
    def name(self) -> str:
        """Return the name of the function, or the class of the module."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def graphs(self) -> list[fx.GraphModule]:
        """Return the captured graphs, in the order in which they were compiled."""
        return [record.graph for record in self.compilations if record.graph is not None]

    @property
    def breaks(self) -> list[Break]:
        """Return the graph breaks, in the order in which they were met."""
        return [record.ends for record in self.compilations if record.ends is not None]

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        private.forget()
        self._frames, self._stops = {}, {}
        try:
            with private.quiet(), private.own_errors():
                return self._compiled(*inputs, **options)
        finally:
            self._record()

    def _note(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        """Note the graph of the frame that is being compiled."""
        record = self._frame()
        record.graph, record.inputs, self._sizes = gm, tuple(inputs), private.sizes(gm)
        return gm.forward if self.backend is None else self.backend(gm, inputs)

    def _keep(self, entries: Sequence[Any]) -> list[bool]:
        """Note the guards of the frame that is being compiled. Dynamo asks which to keep: all."""
        record, earlier = self._frame(), sum(map(len, self._stops.values()))
        self._stops[private.compile_id()] = private.breaks()[earlier:]
        sizes = self._sizes if record.graph is not None else {}
        guards = (guard for row in private.guard_rows(entries) for guard in _guards(*row, sizes))
        record.guards = tuple({guard.text: guard for guard in guards}.values())
        return [True] * len(entries)

    def _frame(self) -> Compilation:
        return self._frames.setdefault(private.compile_id(), Compilation("", len(self.counts)))

    def _record(self) -> None:
        """Join Dynamo's reports on the frames of one call with the graphs and guards noted for them."""
        for report in private.reports():
            record = self._frames.get(report.id) or Compilation("", len(self.counts))
            record.function, record.failed_guard, record.error = report.function, report.failed_guard, report.error
            own = [stop for stop in self._stops.get(report.id, ()) if stop.function == report.function]
            record.ends = _break(own[-1]) if own else None
            self.compilations.append(record)
        self.counts.append(sum(record.graph is not None for record in self._frames.values()))

    def __repr__(self) -> str:
        parts = [plural(len(self.graphs), "graph"), plural(len(self.breaks), "break"), plural(len(self.counts), "call")]
        return f"Capture({self.name}: {', '.join(parts)})"


def _break(stop: private.Stop) -> Break:
    text = stop.text.strip().splitlines()[0]
    reason = next((reason for start, reason in _STARTS.items() if text.startswith(start)), "other")
    return Break(reason, text, stop.file, stop.line, stop.source)


#: Guards on the state of torch and on its own bookkeeping, which all compiled code has.
AMBIENT = {
    "AUTOGRAD_SAVED_TENSORS_HOOKS",
    "DEFAULT_DEVICE",
    "DETERMINISTIC_ALGORITHMS",
    "GLOBAL_STATE",
    "GRAD_MODE",
    "TORCH_FUNCTION_STATE",
}


#: Guards that hold for one object only.
_IDENTITY = {"CLOSURE_MATCH", "FUNCTION_MATCH", "ID_MATCH", "MODULE_MATCH", "OBJECT_MATCH"}
#: Names that Dynamo itself puts among a function's globals.
_OWN = ("G['__import_", "G['__builtins_dict__")


def _guards(source: str, kind: str, value: Any, code: Sequence[str], sizes: dict[str, tuple]) -> list[Guard]:
    """Return the conditions of one guard of Dynamo, in words or in Python; a tensor's own are checked in C++."""
    if kind in AMBIENT or source.startswith(_OWN):
        return []
    if kind == "TENSOR_MATCH" and isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        grad = ", with a gradient" if value.requires_grad else ""
        shape = ", ".join(map(str, sizes.get(source, value.shape)))
        return [Guard(source, kind, f"{source}: {dtype}[{shape}] on {value.device}{grad}")]
    if kind in _IDENTITY:
        return [Guard(source, kind, f"{source} is the same object")]
    return [Guard(source, kind, _plain(line)) for line in code]


def _plain(code: str) -> str:
    """Return "type(x) is int" for "___check_type_id(L['x'], 9406…), type=<class 'int'>", and x for L['x']."""
    code = re.sub(r"___check_(type|obj)_id\((.*), \d+\), type=<class '([\w.]+)'>", r"type(\2) is \3", code)
    return re.sub(r"L\['(\w+)'\]", r"\1", code)
