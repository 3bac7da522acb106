"""Build and run modules of Relay, Relax and MLIR in another process, because a compiler may end the one it runs in.

    from passlab.tvm.builds import run_module
    built = run_module(module, [(x,)])         # built once, run on each tuple of inputs
    built.outputs[0][0], built.kernels, built.error

A helper process for each compiler starts at the first use and stays. For every request it forks a child that builds,
runs and replies over the request's socket: a crash, too much memory or an endless loop costs that request only. Modules
travel as TVM's JSON or MLIR's text, tensors as raw bytes; nothing is pickled.

A reply comes from a process that ran the module's code. Outputs can be compared with expected ones; times and kernel
names are claims, to be trusted as far as the module is.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from passlab.process.messages import Gone, receive, send
from passlab.process.server import request
from passlab.tvm import cache
from passlab.tvm.reach import Unreachable, loaded

__all__ = ["Built", "Ended", "Packed", "allow", "as_torch", "packed", "run_module", "targets", "use", "warm_up"]

FLAVOURS = ("relay", "relax", "mlir")
#: Flavour → what builds its modules, for messages.
COMPILERS = {"relay": "TVM", "relax": "TVM", "mlir": "The compiler"}
PIPELINES = (None, "none")
MEMORY_GIB = 4
#: Seconds a helper may take to load TVM and accept a request.
_START_SECONDS = 120.0
#: Up to so many bytes of module and tensors LLVM takes longer to optimize the code than the code to run.
SMALL = 2**20
#: Bytes of tensors in one message.
MOST_TENSORS = 2**30
_MOST_TEXT = 300

_DTYPES = {str(np.dtype(name)) for name in "bool float16 float32 float64".split()}  # noqa: SIM905
_DTYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Packed:
    """A module as data, also of the TVM that this process does not hold. `params`: by name, bound when built."""

    flavour: str
    text: str
    params: Mapping[str, np.ndarray] | None = None


@dataclass(frozen=True)
class Built:
    """The result of a build. `outputs`: for each tuple of inputs the outputs, flat.

    `error`: "" or a message, and the `stage` of the failure: build, run, crash or timeout. `kernels`: names of the
    kernels that one run launches, in order. `times`: seconds of single runs, `beside`: those of each module beside it;
    see run_module. `allocations`: how many buffers one run allocates for its results, and their bytes, where TVM
    reports them.
    """

    outputs: list[list[np.ndarray]]
    error: str = ""
    stage: str = ""
    kernels: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    beside: tuple[tuple[float, ...], ...] = ()
    allocations: tuple[int, int] | None = None

    @property
    def ok(self) -> bool:
        return not self.error


def packed(module: Any, params: Mapping[str, Any] | None = None) -> Packed:
    """Return a module or function as data. Raises TypeError for anything else."""
    if isinstance(module, Packed):
        return module
    tvm = sys.modules.get("tvm")
    if tvm is None or not isinstance(module, tvm.IRModule | tvm.ir.BaseFunc):
        raise TypeError(f"run_module expects an IRModule or a function of TVM; got {type(module).__name__}.")
    if not isinstance(module, tvm.IRModule):
        module = tvm.IRModule.from_expr(module)
    return Packed(loaded(), tvm.ir.save_json(module), {name: _array(value) for name, value in (params or {}).items()})


def run_module(
    module: Any,
    inputs: Iterable[Sequence[Any]],
    *,
    target: str = "llvm",
    function: str = "main",
    pipeline: str | None = None,
    level: int = 3,
    disabled: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    repeats: int = 0,
    timed: bool = False,
    beside: Sequence[Any] = (),
    threads: int = 0,
    seconds: float = 60.0,
) -> Built:
    """Build a module once and run it on each tuple of inputs (NumPy arrays, torch tensors or numbers).

    level, disabled, config: of the PassContext for the build. pipeline (Relax): None is TVM's default for the target,
    "none" only lowers operators to loops (nothing is folded or fused). params: values for parameters, by name. repeats:
    number of further runs, on the first inputs and warm, that the clock times. timed: measure the runs on the inputs
    instead, for a verdict that depends on it; see below. threads: per kernel, 0 for one per core. seconds: limit for
    everything, once TVM is loaded.

    Where `timed`, `times[i]` is the CPU time that all threads of the process spent on the run that made `outputs[i]`:
    other programs do not add to it, a second core does not shorten it. Copying is not part of it. Whoever passes
    different inputs for each run and compares all outputs leaves nothing to a kernel that skips work done before.
    beside: modules of the same signature to compare with, built by TVM's default pipeline. Each runs in the same
    process, right after each run that is timed and on the same inputs: `beside[k][i]` and `times[i]` meet the machine
    in the same moment. (A neighbour on the core can make one slower than a second later, to less than half.)

    A module of TIR alone is called with the inputs and a buffer for each remaining parameter, which is an output.
    Raises Unreachable where that TVM cannot be used on this machine.
    """
    if pipeline not in PIPELINES:
        raise ValueError(f"No pipeline {pipeline!r}: pass None for TVM's default, or 'none' to legalize only.")
    module, others = packed(module, params), [packed(other).text.encode() for other in beside]
    bound = {name: _array(value) for name, value in {**(module.params or {}), **(params or {})}.items()}
    given = [[_array(value) for value in values] for values in inputs]
    text = module.text.encode()
    size = len(text) + sum(array.nbytes for array in [*bound.values(), *(a for arrays in given for a in arrays)])
    head = {
        "do": "run",
        "text": len(text),
        "params": {name: spec(array) for name, array in bound.items()},
        "inputs": [[spec(array) for array in arrays] for arrays in given],
        "target": target,
        "function": function,
        "pipeline": pipeline,
        "level": level,
        "disabled": list(disabled),
        "config": dict(config or {}),
        "repeats": repeats,
        "timed": timed,
        "beside": [len(other) for other in others],
        "threads": threads,
        "optimize": bool(repeats) or timed or size > SMALL,
    }
    parts = [text, *others, *bound.values(), *(a for arrays in given for a in arrays)]
    return ask(module.flavour, head, parts, seconds)


def targets(flavour: str | None = None) -> tuple[str, ...]:
    """Return the targets that modules can be built for and run on here: ("llvm",), or ("llvm", "cuda").

    flavour: which TVM; default, the one that this process holds.
    """
    flavour = flavour or _held()
    if flavour not in _found:
        tried = ask(flavour, {"do": "targets"}, [], 60.0)  # a crash means that there is no such device
        _found[flavour] = ("llvm", *(name for name in tried.kernels if name == "cuda"))
    return _found[flavour]


_found: dict[str, tuple[str, ...]] = {}


def warm_up(flavour: str | None = None) -> None:
    """Start the helper for a flavour, which then loads TVM in the background."""
    with contextlib.suppress(OSError):
        _helper(flavour or _held())


def as_torch(array: np.ndarray) -> Any:
    """Return an output as a torch tensor that owns its memory."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _held() -> str:
    return loaded() or "relax"


# ── Tensors as bytes ──────────────────────────────────────────────────────────────────────────────────────────────────


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu().contiguous()
        if str(value.dtype) == "torch.bfloat16":
            import ml_dtypes
            import torch

            return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        value = value.numpy()
    elif hasattr(value, "numpy"):  # a tensor of TVM
        value = value.numpy()
    array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
    dtype_of(array.dtype.name)
    return array


def dtype_of(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name not in _DTYPES:
        raise ValueError(f"No module takes or returns tensors of dtype {name[:40]}.")
    return np.dtype(name)


def flat(part: Any) -> Any:
    """Return a part of a message: an array as its bytes (an empty or zero-dimensional one has no flat view)."""
    return part.reshape(-1).view(np.uint8) if isinstance(part, np.ndarray) else part


def spec(array: np.ndarray) -> list:
    return [array.dtype.name, list(array.shape)]


def arrays(specs: Iterable[list], payload: memoryview) -> tuple[list[np.ndarray], memoryview]:
    """Return the arrays described by the specs, from the front of the payload, and the rest. Raises ValueError."""
    made = []
    for name, shape in specs:
        dtype = dtype_of(name)
        if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32:
            raise ValueError(f"{str(shape)[:60]} is not a shape.")
        size = math.prod(shape) * dtype.itemsize
        if size > len(payload):
            raise ValueError(f"A tensor of {size:,} bytes is missing.")
        made.append(np.frombuffer(payload[:size], dtype).reshape(shape))
        payload = payload[size:]
    return made, payload


# ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_helpers: dict[str, tuple[socket.socket, subprocess.Popen | None]] = {}
_lock = threading.RLock()


#: Seconds of builds and runs that this process may still wait for; see `allow`.
_allowed = math.inf
#: How many results so far were of the moment: times, or none because time or memory ran out.
unsteady = 0


class Ended(BaseException):
    """The build process died. Judges must let this propagate: it says nothing about a module."""


def use(flavour: str, control: socket.socket) -> None:
    """Send requests to the running builder at the other end of `control` instead of starting a helper."""
    _helpers[flavour] = (control, None)


def allow(seconds: float) -> None:
    """Set the total seconds to wait for all modules from now on; a module beyond that has timed out."""
    global _allowed
    _allowed = seconds


def _helper(flavour: str) -> socket.socket:
    """Return the socket over which a helper takes requests: each is one byte that carries the request's own socket."""
    if flavour not in FLAVOURS:
        raise ValueError(f"No flavour {flavour!r}; choose relay, relax or mlir.")
    if not hasattr(os, "fork"):
        raise Unreachable("Modules are built and run in a forked process; this system cannot fork. Use Linux or WSL.")
    with _lock:
        if flavour not in _helpers:
            ours, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(
                    # -P: no module in the current folder shadows one that TVM imports
                    [sys.executable, "-P", "-m", "passlab.tvm.server", flavour, str(theirs.fileno())],
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # so that Ctrl-C does not reach it
                )
            if not _helpers:
                atexit.register(_end, os.getpid())
            _helpers[flavour] = (ours, process)
        return _helpers[flavour][0]


def _environment() -> dict[str, str]:
    path = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _end(owner: int) -> None:
    """Close the helpers' sockets, which ends them."""
    if os.getpid() == owner:
        for flavour in list(_helpers):
            _drop(flavour)


def _drop(flavour: str) -> None:
    control, process = _helpers.pop(flavour)
    control.close()
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


def ask(flavour: str, head: dict, parts: list, seconds: float) -> Built:
    """Return the reply to a request. head, parts: see `passlab.tvm.server`; seconds: for everything.

    Raises Unreachable, Ended.
    """
    global unsteady
    built = _asked(flavour, head, parts, seconds)
    unsteady += bool(head.get("repeats") or head.get("timed")) or built.stage in ("crash", "timeout")
    return built


def _asked(flavour: str, head: dict, parts: list, seconds: float) -> Built:
    name = cache.key(flavour, head, parts)
    if name and (known := cache.load(name)):
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, OverflowError):
            return _built(*known, head)
    for _ in range(2):
        control = _helper(flavour)
        try:
            with _request(control) as sock:
                return _talk(flavour, control, sock, head, parts, seconds, name)
        except (OSError, Gone):  # killed, or out of memory
            _give_up(flavour, control)
    return Built([], "The process that builds modules ended twice. Try again.", "crash")


def _request(control: socket.socket) -> socket.socket:
    """Return a new socket to a child that is ready for a request. Raises Gone, OSError, Unreachable."""
    ours, said = request(control, time.monotonic() + _START_SECONDS)
    if "unreachable" in said:
        ours.close()
        raise Unreachable(said["unreachable"])
    return ours


def _give_up(flavour: str, control: socket.socket) -> None:
    """Forget a helper that has ended, unless another thread already has; the next request starts a new one."""
    with _lock:
        if flavour in _helpers and _helpers[flavour][0] is control:
            if _helpers[flavour][1] is None:
                raise Ended
            _drop(flavour)


def _talk(
    flavour: str, control: socket.socket, sock: socket.socket, head: dict, parts: list, seconds: float, name: str
) -> Built:
    """Make one request. Closing the socket ends the child that serves it. name: of its entry in the cache."""
    global _allowed
    stage, start, seconds = "build", time.monotonic(), min(seconds, _allowed)
    deadline = start + seconds
    try:
        with contextlib.suppress(Gone):  # the cause is read next
            send(sock, head, *map(flat, parts), deadline=deadline)
        while True:
            said, payload = receive(sock, deadline, MOST_TENSORS)
            if "ended" in said:
                return Built([], _ended(COMPILERS[flavour], stage, said["ended"], _text(said["said"])), "crash")
            if "error" in said:
                built = _built(said, payload, head)
                if name and built.ok:
                    cache.store(name, said, payload)
                return built
            stage = "run" if said["stage"] == "run" else "build"
    except TimeoutError:
        doing = (
            "The module was still running" if stage == "run" else f"{COMPILERS[flavour]} was still building the module"
        )
        return Built([], f"{doing} after {max(seconds, 0):.3g} s.", "timeout")
    except (Gone, ValueError, TypeError, LookupError, AttributeError, OverflowError):
        _request(control).close()  # raises if it was the helper that ended
        return Built([], "The module wrote into the connection of the process that ran it.", "crash")
    finally:
        _allowed -= time.monotonic() - start


def _built(said: dict, payload: memoryview, head: dict) -> Built:
    """Parse a reply. Untrusted: the module itself may have written it. Raises ValueError, TypeError, KeyError."""
    error, stage = _text(said["error"]), said["stage"]
    if error:
        if stage not in ("build", "run"):
            raise ValueError(stage)
        return Built([], error, stage)
    outputs, runs = [], len(head.get("inputs", ()))
    for specs in said["outputs"]:
        found, payload = arrays(specs, payload)
        outputs.append(found)
    if len(outputs) != runs or payload:
        raise ValueError(f"Expected the outputs of {runs} runs and nothing else.")
    kernels = tuple(_text(name) for name in said["kernels"])
    times, *others = (tuple(float(second) for second in row) for row in [said["times"], *said["beside"]])
    if head.get("timed") and [*map(len, (times, *others))] != [runs] * (1 + len(head["beside"])):
        raise ValueError("Expected the seconds of each run.")
    count = said["allocations"]
    allocations = None if count is None else (int(count[0]), int(count[1]))
    return Built(outputs, "", "", kernels, times, tuple(others), allocations)


def _text(said: Any) -> str:
    """Return another process's text, short and printable. Raises ValueError for anything else."""
    if not isinstance(said, str):
        raise ValueError(f"Expected text; got {type(said).__name__}.")
    return "".join(c if c.isprintable() else " " for c in said[:_MOST_TEXT]).strip()


_SIGNALS = {signal.SIGSEGV: "segmentation fault", signal.SIGABRT: "abort", signal.SIGKILL: "killed"}


def _ended(who: str, stage: str, code: Any, said: str) -> str:
    """Return a message about how a child ended."""
    built = f"{who} ended the process while it built the module"
    who = "The module ended its process while it ran" if stage == "run" else built
    if type(code) is not int:
        raise ValueError(f"Expected an exit code; got {type(code).__name__}.")
    if "bad_alloc" in said or "out of memory" in said.lower() or "Cannot allocate memory" in said:
        return too_much(stage)
    how = _SIGNALS.get(-code, f"signal {-code}" if code < 0 else f"exit code {code}")
    return f"{who} ({how}){': ' + said if said else ''}."


def too_much(stage: str) -> str:
    doing = "The module needed" if stage == "run" else "To build the module took"
    return f"{doing} more than {MEMORY_GIB} GiB of memory."
