"""The process in which modules are built and run: `builds` starts it and asks, with a socket for each request.

    python -m passlab.tvm.server relax 5      (a flavour, and the number of the socket over which requests come)

It loads TVM and never runs a kernel itself, so that it has one thread and may fork. A child answers one request.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import re
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from passlab.process.messages import Gone, receive, send
from passlab.tvm.builds import MEMORY_GIB, MOST_TENSORS, arrays, dtype_of, flat, spec, too_much

#: How much is kept of what a child writes to its standard error.
_MOST_SAID = 2**14
#: A time is that of so many runs that they take this long, in seconds.
_LONG_ENOUGH = 1e-3

# ── The parent: a child for each request ──────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class _Child:
    """`sock`: the child answers over it; the parent only sees whether somebody still waits. `noise`: what the child
    prints, and that it has ended."""

    pid: int
    sock: socket.socket
    noise: int
    said: bytes = b""


class Server:
    """Answers requests until `control` is closed.

    fork(keep): as os.fork, where the child has none but these open files. answer(sock): what the child does.
    """

    def __init__(
        self, control: socket.socket, fork: Callable[[list[int]], int], answer: Callable[[socket.socket], None]
    ):
        self.control, self.fork, self.answer = control, fork, answer
        self.children: dict[int, _Child] = {}
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)

    def serve(self) -> None:
        while True:
            for fd, _ in self.poll.poll():
                if fd in self.children:
                    self._heard(self.children[fd], fd)
                elif fd == self.control.fileno():
                    data, fds, _, _ = socket.recv_fds(self.control, 1, 1)
                    if not data:
                        for child in set(self.children.values()):
                            self._finish(child)
                        return
                    for sock in fds:
                        self._start(socket.socket(fileno=sock))

    def _start(self, sock: socket.socket) -> None:
        noise, theirs = os.pipe()
        try:
            pid = self.fork([sock.fileno(), theirs])
        except OSError:
            for fd in (noise, theirs):
                os.close(fd)
            sock.close()
            return
        if pid == 0:
            _work(sock, theirs, self.answer)
        os.close(theirs)
        self.children[noise] = self.children[sock.fileno()] = _Child(pid, sock, noise)
        self.poll.register(noise, select.POLLIN)
        self.poll.register(sock, 0)  # that the other side has hung up is told in any case

    def _heard(self, child: _Child, fd: int) -> None:
        said = os.read(fd, 2**16) if fd == child.noise else b""
        if said:
            child.said = (child.said + said)[-_MOST_SAID:]
        else:  # it has ended, or nobody waits for it any more
            self._finish(child)

    def _finish(self, child: _Child) -> None:
        for fd in (child.noise, child.sock.fileno()):
            self.poll.unregister(fd)
            del self.children[fd]
        os.close(child.noise)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        said = telling(child.said.decode(errors="replace"))
        with contextlib.suppress(Gone, TimeoutError):
            send(child.sock, {"ended": code, "said": said}, deadline=time.monotonic() + 1)
        child.sock.close()


def _work(sock: socket.socket, noise: int, answer: Callable[[socket.socket], None]) -> None:
    """The child: answer, and end."""
    try:
        os.dup2(noise, 1)
        os.dup2(noise, 2)
        os.close(noise)
        answer(sock)
    except (Gone, TimeoutError):
        pass
    except BaseException as error:
        os.write(2, f"\n{type(error).__name__}: {error}".encode())
        os._exit(1)
    os._exit(0)


# ── The child ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Failed(Exception):
    """A module cannot be built or run; the message is a sentence."""


def answer(
    sock: socket.socket, flavour: str, load: Callable[[str], Any], limit: Callable[[], None] = lambda: None
) -> None:
    """Answer the request that comes over the socket.

    load(text): the module that a text stands for. limit(): limits the memory, except for a GPU, whose driver reserves
    any number of TiB.
    """
    send(sock, {"ready": True})
    head, payload = receive(sock, None, MOST_TENSORS)
    if head["do"] == "targets":
        send(sock, _reply(kernels=("llvm", *(["cuda"] if _cuda_works(flavour) else []))))
        return
    stage = "build"
    if "cuda" not in head["target"]:
        limit()
    try:
        text, payload = payload[: head["text"]], payload[head["text"] :]
        params, payload = arrays(head["params"].values(), payload)
        given = []
        for specs in head["inputs"]:
            found, payload = arrays(specs, payload)
            given.append(found)
        send(sock, {"stage": "build"})
        module = load(str(text, "utf-8"))
        program = _BUILD[flavour](module, dict(zip(head["params"], params, strict=True)), head)
        stage = "run"
        send(sock, {"stage": "run"})
        if head["threads"]:
            _use_threads(head["threads"])
        outputs = [[_flat_array(leaf) for leaf in _leaves(program.run(values))] for values in given]
        kernels, allocations = program.trace(given[0]) if given else ((), None)
        times = tuple(_times(program, given[0], head["repeats"])) if given else ()
    except Failed as error:
        send(sock, {"error": str(error), "stage": stage})
    except MemoryError:
        send(sock, {"error": too_much(stage), "stage": stage})
    except Exception as error:
        if "bad_alloc" in str(error):
            said = too_much(stage)
        else:
            why = telling(_diagnoses[0] if _diagnoses else str(error)) or type(error).__name__
            said = f"TVM cannot {stage} the module: {why}."
        send(sock, {"error": said, "stage": stage})
    else:
        reply = _reply([[spec(array) for array in found] for found in outputs], kernels, times, allocations)
        send(sock, reply, *(flat(array) for found in outputs for array in found))


def _reply(outputs=(), kernels=(), times=(), allocations=None) -> dict:
    return {
        "error": "",
        "stage": "",
        "outputs": list(outputs),
        "kernels": list(kernels),
        "times": list(times),
        "allocations": allocations,
    }


#: What Relay's type checker found wrong: its errors only say that it did.
_diagnoses: list[str] = []

#: Lines of an error of TVM that say where in its source it happened.
_STACK = re.compile(r"Traceback|File \"|\[bt\]|Stack trace|at |\d+: |\^+$|[-=!]{3,}|#\d+ |note: run with")

_PLACE = re.compile(r"(what\(\):\s+)?(\[[\d:]+\] \S+:\d+: )?(\w+Error: )?(Check failed: \(.*?\) is false: ?)?(?=.)")


def telling(text: str) -> str:
    """The line of an error, or of what a process wrote, that says most: the last one that is no part of a stack."""
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line and not _STACK.match(line)]
    return _PLACE.sub("", lines[-1]).rstrip(".")[:250] if lines else ""


def _use_threads(count: int) -> None:
    """Let TVM's kernels use so many threads, of those that the process may use."""
    import tvm

    big_cores = 1
    tvm.get_global_func("runtime.config_threadpool")(big_cores, count)


def _times(program: Any, values: list, repeats: int) -> Iterator[float]:
    """Seconds of one run, `repeats` times."""
    if not repeats:
        return
    again = program.again(values)
    again()  # the first run may start threads
    start = time.perf_counter()
    again()
    number = max(1, math.ceil(_LONG_ENOUGH / max(time.perf_counter() - start, 1e-7)))
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            again()
        yield (time.perf_counter() - start) / number


def _leaves(value: Any) -> Iterator[Any]:
    """The tensors in what came out, nested in tuples."""
    if type(value).__name__ in ("Array", "ADT", "list", "tuple"):
        for at in range(len(value)):
            yield from _leaves(value[at])
    else:
        yield value


def _flat_array(value: Any) -> np.ndarray:
    """A tensor of TVM, a shape or a number as an array."""
    if type(value).__name__ in ("Shape", "ShapeTuple"):
        return np.array([int(n) for n in value], np.int64)
    if not hasattr(value, "numpy"):
        return np.asarray(value)
    array = np.asarray(value.numpy(), order="C")
    return array.view(dtype_of("bfloat16")) if str(value.dtype) == "bfloat16" else array  # 0.17 says uint16


def _bytes(dtype: Any) -> int:
    """How many bytes a number of TVM's takes: bool may be called uint1."""
    bits = re.search(r"\d+$", str(dtype))
    return -(-int(bits[0]) // 8) if bits else 1


def _device(tvm: Any, target: Any) -> Any:
    return tvm.device(target.kind.name if target.kind.name != "llvm" else "cpu", 0)


def _try(flavour: str, target: str) -> Any:
    """A small module (x + x), built."""
    if flavour == "relay":
        from passlab.relay import relay, tvm

        x = relay.var("x", shape=(4,))
        module = tvm.IRModule.from_expr(relay.Function([x], relay.add(x, x)))
    else:
        from passlab.relax import relax

        builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([4], "float32"))
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(relax.op.add(x, x)))
        module = builder.get()
    head = {"target": target, "function": "main", "pipeline": None, "level": 3, "disabled": [], "config": {}}
    return _BUILD[flavour](module, {}, head)


def rehearse(flavour: str) -> None:
    """Build a module, so that what a first build fills and finds is there for all children."""
    _try(flavour, "llvm")


def _cuda_works(flavour: str) -> bool:
    """Is there a device for CUDA that a module can be built for and run on?"""
    with contextlib.suppress(Exception):
        if sys.modules["tvm"].cuda(0).exist:
            (found,) = _leaves(_try(flavour, "cuda").run([np.ones(4, np.float32)]))
            return bool((found.numpy() == 2).all())
    return False


def _context(tvm: Any, head: dict) -> Any:
    return tvm.transform.PassContext(opt_level=head["level"], disabled_pass=head["disabled"], config=head["config"])


# Relax


class _Relax:
    """A Relax module, built. Its parameters say what the inputs are: tensors, tuples of them, shapes, numbers."""

    def __init__(self, module: Any, params: dict[str, np.ndarray], head: dict):
        from passlab.relax import relax, tvm

        self.tvm, self.relax, self.function = tvm, relax, head["function"]
        target = _relax_target(tvm, head["target"])
        if not any(global_.name_hint == self.function for global_ in module.functions):
            raise Failed(f"The module has no function {self.function}.")
        if params:
            module = relax.transform.BindParams(self.function, params)(module)
        self.types = [param.ty for param in module[self.function].params]
        self.own = {global_.name_hint for global_ in module.functions}
        pipeline = relax.get_default_pipeline(target) if head["pipeline"] is None else _legal(tvm, relax, target)
        with _context(tvm, head):
            self.executable = tvm.compile(module, target, relax_pipeline=pipeline)
        self.device = _device(tvm, target)
        self.vm = relax.VirtualMachine(self.executable, self.device)

    def _arguments(self, values: list[np.ndarray]) -> list[Any]:
        left = list(values)
        made = [self._argument(type_, left) for type_ in self.types]
        if left:
            raise Failed(f"The function {self.function} takes {len(values) - len(left)} inputs; {len(values)} came.")
        return made

    def _argument(self, type_: Any, left: list[np.ndarray]) -> Any:
        if isinstance(type_, self.tvm.ir.TupleType):
            return [self._argument(field, left) for field in type_.fields]
        if not left:
            raise Failed(f"The function {self.function} takes more inputs than came.")
        value = left.pop(0)
        if isinstance(type_, self.relax.ShapeType):
            return self.tvm.runtime.ShapeTuple([int(n) for n in value])
        if isinstance(type_, self.tvm.ir.PrimType):
            return value.item()
        return self.tvm.runtime.tensor(value, self.device)

    def run(self, values: list[np.ndarray]) -> Any:
        return self.vm[self.function](*self._arguments(values))

    def again(self, values: list[np.ndarray]) -> Callable[[], None]:
        function, arguments = self.vm[self.function], self._arguments(values)

        def once() -> None:
            function(*arguments)
            self.device.sync()

        return once

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], list[int]]:
        """The kernels of one run, and the count and bytes of the storage that it takes."""
        kernels, allocations = [], [0, 0]

        def note(_function: Any, name: str, before: bool, _result: Any, *arguments: Any) -> None:
            if not before:
                return
            if name == "vm.builtin.alloc_storage":
                allocations[0] += 1
                allocations[1] += math.prod(arguments[1]) * _bytes(arguments[3])
            # A kernel may have any name, these too; the machine's own are functions that TVM knows.
            machinery = name.startswith(("vm.builtin.", "shape_func")) and name not in self.own
            if not machinery:
                kernels.append(name)

        vm = self.relax.VirtualMachine(self.executable, self.device)
        vm.set_instrument(note)
        vm[self.function](*self._arguments(values))
        return kernels, allocations


class _Tir:
    """A module of TIR alone: called with the inputs and a fresh buffer for each parameter that is left."""

    def __init__(self, module: Any, params: dict[str, np.ndarray], head: dict):
        from passlab.relax import tvm

        self.tvm, self.name = tvm, head["function"]
        target = _relax_target(tvm, head["target"])
        if not any(global_.name_hint == self.name for global_ in module.functions):
            raise Failed(f"The module has no function {self.name}.")
        self.signature = module[self.name]
        with _context(tvm, head):
            self.function = tvm.compile(module, target)[self.name]
        self.device = _device(tvm, target)

    def _arguments(self, values: list[np.ndarray]) -> tuple[list[Any], list[Any]]:
        """All arguments, and those of them that are outputs."""
        params, solver, made = self.signature.params, importlib.import_module("tvm.sym").Analyzer(), []
        if len(values) > len(params):
            raise Failed(f"The function {self.name} takes {len(params)} parameters; {len(values)} inputs came.")
        for param, value in zip(params, values, strict=False):
            if isinstance(param.ty, self.tvm.ir.PrimType):
                solver.bind(param, self.tvm.tirx.const(value.item(), str(param.ty.dtype)))
                made.append(value.item())
                continue
            shape, dtype = param.ty.shape, str(param.ty.dtype)
            if len(shape) != value.ndim or dtype != value.dtype.name:
                want, came = f"{dtype} with {len(shape)} axes", f"{value.dtype.name} with {value.ndim}"
                raise Failed(f"The parameter {param.name} of {self.name} is {want}; {came} came.")
            for size, n in zip(shape, value.shape, strict=True):
                if isinstance(size, self.tvm.tirx.Var):
                    solver.bind(size, self.tvm.tirx.const(n, str(size.ty.dtype)), True)
            made.append(self.tvm.runtime.tensor(value, self.device))
        outputs = [self._buffer(param, solver) for param in list(params)[len(values) :]]
        return made + outputs, outputs

    def _buffer(self, param: Any, solver: Any) -> Any:
        """A buffer full of NaN, or of -1: what a schedule forgets to set must be seen."""
        shape = [getattr(solver.simplify(size), "value", None) for size in param.ty.shape]
        if None in shape:
            raise Failed(f"The size of {param.name}, an output of {self.name}, does not follow from the inputs.")
        dtype = dtype_of(str(param.ty.dtype))
        filled = np.ones(shape, dtype) if dtype == np.bool_ else np.full(shape, -1).astype(dtype)
        if dtype.kind not in "biu":
            filled = np.full(shape, math.nan).astype(dtype)
        return self.tvm.runtime.tensor(filled, self.device)

    def run(self, values: list[np.ndarray]) -> Any:
        arguments, outputs = self._arguments(values)
        self.function(*arguments)
        self.device.sync()
        return outputs

    def again(self, values: list[np.ndarray]) -> Callable[[], None]:
        arguments, _ = self._arguments(values)

        def once() -> None:
            self.function(*arguments)
            self.device.sync()

        return once

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], None]:
        return [self.name], None


def _relax_target(tvm: Any, name: str) -> Any:
    if name == "cuda":
        return tvm.target.Target.from_device(tvm.cuda(0))
    return tvm.target.Target(name)


def _legal(tvm: Any, relax: Any, target: Any) -> Any:
    """TVM's own steps from operators to a program, without those that fold and fuse."""
    steps = [relax.transform.LegalizeOps()]
    if target.kind.name == "cuda":
        dlight = importlib.import_module("tvm.s_tir.dlight")
        steps.append(dlight.ApplyDefaultSchedule(dlight.gpu.Fallback()))

    @tvm.transform.module_pass(opt_level=0)
    def legal(module: Any, _: Any) -> Any:
        with target:
            return tvm.transform.Sequential([*steps, relax.get_pipeline("default_build")])(module)

    return legal


def _relax(module: Any, params: dict[str, np.ndarray], head: dict) -> Any:
    from passlab.relax import relax

    functions = [function for _, function in module.functions.items()]
    return (_Relax if any(isinstance(one, relax.Function) for one in functions) else _Tir)(module, params, head)


# Relay


class _Graph:
    """A Relay module in the graph executor, which knows all shapes."""

    def __init__(self, module: Any, params: dict[str, np.ndarray], head: dict, target: Any):
        from passlab.relay import relay, tvm

        self.tvm, self.count = tvm, len(module["main"].params)
        with _context(tvm, head):
            built = relay.build(module, target, params=params)
        self.device = _device(tvm, target)
        self.graph = json.loads(built.get_graph_json())
        self.module = importlib.import_module("tvm.contrib.graph_executor").GraphModule(built["default"](self.device))
        self.names = [param.name_hint for param in module["main"].params if param.name_hint not in params]

    def run(self, values: list[np.ndarray]) -> list[Any]:
        if len(values) != len(self.names):
            raise Failed(f"The function takes {len(self.names)} inputs; {len(values)} came.")
        for name, value in zip(self.names, values, strict=True):
            if self.module.module["get_input_index"](name) >= 0:  # one that nothing uses is not there
                self._set(name, value)
        self.module.run()
        self.device.sync()
        return [self.module.get_output(at).copyto(self.tvm.cpu()) for at in range(self.module.get_num_outputs())]

    def _set(self, name: str, value: np.ndarray) -> None:
        wanted = self.module.get_input(name)
        if tuple(wanted.shape) != value.shape or wanted.dtype != value.dtype.name:
            raise Failed(
                f"The input {name} is {wanted.dtype} of shape {tuple(wanted.shape)}; "
                f"{value.dtype.name} of {value.shape} came."
            )
        self.module.set_input(name, self.tvm.nd.array(value))

    def again(self, values: list[np.ndarray]) -> Callable[[], None]:
        def once() -> None:
            self.module.run()
            self.device.sync()

        return once

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], list[int]]:
        """What the executor's plan says: its kernels, and the pieces of memory that their results share."""
        nodes, attrs, starts = self.graph["nodes"], self.graph["attrs"], self.graph["node_row_ptr"]
        kernels, pieces = [], {}
        for at, node in enumerate(nodes):
            if node["op"] != "tvm_op":
                continue
            name = node["attrs"]["func_name"]
            if name not in ("__nop", "__copy"):
                kernels.append(name.removeprefix("tvmgen_default_"))
            for entry in range(starts[at], starts[at + 1]):
                size = math.prod(attrs["shape"][1][entry]) * _bytes(attrs["dltype"][1][entry])
                piece = attrs["storage_id"][1][entry]
                pieces[piece] = max(size, pieces.get(piece, 0))
        return kernels, [len(pieces), sum(pieces.values())]


class _Machine:
    """A Relay module in Relay's virtual machine, which knows branches and shapes that are told only by the inputs."""

    def __init__(self, module: Any, params: dict[str, np.ndarray], head: dict, target: Any):
        from passlab.relay import tvm

        self.tvm, vm = tvm, importlib.import_module("tvm.relay.backend.vm")
        with _context(tvm, head):
            self.executable = vm.compile(module, target, params=params)
        self.device = _device(tvm, target)
        self.vm = importlib.import_module("tvm.runtime.vm").VirtualMachine(self.executable, self.device)

    def run(self, values: list[np.ndarray]) -> Any:
        return self.vm.run(*(self.tvm.nd.array(value, self.device) for value in values))

    def again(self, values: list[np.ndarray]) -> Callable[[], None]:
        def once() -> None:
            self.run(values)
            self.device.sync()

        return once

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], None]:
        """The kernels that it has, in no order of a run."""
        names = (name.removeprefix("vm_mod_") for name in self.executable.primitive_ops)
        return [name for name in names if not name.startswith("shape_func")], None


def _relay(module: Any, params: dict[str, np.ndarray], head: dict) -> Any:
    from passlab.relay import relay, tvm

    if not any(global_.name_hint == head["function"] for global_ in module.functions):
        raise Failed(f"The module has no function {head['function']}.")
    functions = {global_: function for global_, function in module.functions.items()}
    main = next((global_ for global_ in functions if global_.name_hint == "main"), tvm.ir.GlobalVar("main"))
    functions[main] = _own_names(relay, module[head["function"]], params)
    module = relay.transform.InferType()(tvm.IRModule(functions))
    target = tvm.target.Target(head["target"])
    return (_Machine if _needs_machine(relay, tvm, module["main"]) else _Graph)(module, params, head, target)


def _own_names(relay: Any, function: Any, params: dict[str, np.ndarray]) -> Any:
    """The function with a name of its own for each parameter: inputs are set by name."""
    names = [param.name_hint for param in function.params]
    if len(set(names)) == len(names):
        return function
    fresh = {
        param: param if param.name_hint in params else relay.Var(f"input_{at}", param.type_annotation)
        for at, param in enumerate(function.params)
    }
    body = relay.bind(function.body, fresh)
    return relay.Function(list(fresh.values()), body, function.ret_type, function.type_params, function.attrs)


def _needs_machine(relay: Any, tvm: Any, main: Any) -> bool:
    """Does the function branch, call another, or have sizes that only the inputs tell?"""
    found = []

    def look(node: Any) -> None:
        calls = isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.GlobalVar)
        typed = isinstance(node, relay.Var | relay.Call)
        if isinstance(node, relay.If) or calls or (typed and relay.ty.is_dynamic(node.checked_type)):
            found.append(node)

    relay.analysis.post_order_visit(main, look)
    return bool(found)


_BUILD = {"relay": _relay, "relax": _relax}

# ── The process that `builds` starts ──────────────────────────────────────────────────────────────────────────────────


def _fork(keep: list[int]) -> int:
    pid = os.fork()
    if pid == 0:
        _die_with_parent()
        kept = sorted({0, 1, 2, *keep})
        for last, fd in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            if fd > last + 1:  # os.closerange(0, 0) closes everything
                os.closerange(last + 1, fd)
    return pid


def _die_with_parent() -> None:
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _limit_memory() -> None:
    """Beyond what TVM itself takes, where the system can tell that."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as statm:
        most = int(statm.read().split()[0]) * resource.getpagesize() + MEMORY_GIB * 2**30
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def load_tvm(flavour: str) -> Callable[[str], Any]:
    """Load TVM; the function that makes modules of text. Raises Unreachable."""
    sys.modules["torch"] = None  # TVM imports torch where it finds it: a second, and 200 MB
    if flavour == "relay":
        from passlab.relay import tvm

        for name in ("tvm.contrib.graph_executor", "tvm.relay.backend.vm", "tvm.runtime.vm"):
            importlib.import_module(name)
        tvm.ir.diagnostics.override_renderer(lambda found: _diagnoses.extend(one.message for one in found.diagnostics))
    else:
        from passlab.relax import tvm

        importlib.import_module("tvm.sym")
    return tvm.ir.load_json


def main(flavour: str, number: str) -> None:
    from passlab.relax import Unreachable

    control = socket.socket(fileno=int(number))
    try:
        load = load_tvm(flavour)
    except Unreachable as why:
        said = str(why)
        Server(control, _fork, lambda sock: send(sock, {"unreachable": said})).serve()
        return
    rehearse(flavour)
    gc.collect()
    gc.freeze()
    Server(control, _fork, lambda sock: answer(sock, flavour, load, _limit_memory)).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
