"""The three ways to run a module, in a process that it may end: IREE, C, and xDSL's interpreter.

For the process that builds: loader, smallest, build. The caller's side is `passlab.mlir.run`.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from passlab.building.compiler import Executor, Failed
from passlab.mlir.ccode import RANK, ROW

#: MLIR's name of an element type → NumPy's.
DTYPES = {"f16": "float16", "f32": "float32", "f64": "float64", "i1": "bool", "index": "int64"}
DTYPES |= {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}

FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-input-demote-f64-to-f32=false",
)
#: As in MLIR, integers wrap, and there is no fused multiply-add except math.fma.
_CC = "cc -shared -fPIC -march=native -fwrapv -ffp-contract=off -fno-math-errno -fno-strict-aliasing -w"

#: A place in an error: a line of the text that was built.
LINE = "⟨line {}⟩"


def loader() -> Callable[[str], str]:
    """Load IREE, if installed, on one thread, and return `str`: a module stays text until it runs.

    The process forks afterwards, so it must not have a second thread. It parses, verifies and optimizes a module, so
    that its children inherit the dialects and MLIR's context.
    """
    try:
        from iree.compiler.api import _initializeGlobalCL

        _initializeGlobalCL("passlab", "--mlir-disable-threading")
        import iree.runtime  # noqa: F401
    except ImportError:  # no wheel: C and xDSL's interpreter still run
        pass
    from passlab.mlir import ccode, modules  # noqa: F401

    for dialect in modules.DIALECTS:
        modules.context().get_optional_dialect(dialect)
    module = modules.parse(smallest())
    if modules.native() is not None:
        modules.pipeline(module, "canonicalize")
    return str


def smallest() -> str:
    """Return a module that computes x + x."""
    return (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %y = arith.addf %x, %x : tensor<4xf32>\n  return %y : tensor<4xf32>\n}"
    )


def build(text: str, params: dict[str, np.ndarray], head: dict) -> Executor:
    """Build a module. params: {"code": bytes} of an earlier build, in place of the text."""
    return _BY[head["by"]](text, params.get("code"), head)


class _Compiled:
    """A built module. The first run returns its code as one more output, if the request's head says to keep it."""

    def __init__(self, text: str, code: np.ndarray | None, head: dict):
        self.head, self.code_sent = head, not head["keep"]
        self.code = self.compile(text) if code is None else code.tobytes()
        self.load()

    def compile(self, text: str) -> bytes:
        raise NotImplementedError

    def load(self) -> None:
        """Make the code ready to run."""

    def outputs(self, results: list[Any]) -> list[Any]:
        if self.code_sent:
            return results
        self.code_sent = True
        return [*results, np.frombuffer(self.code, np.uint8)]

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], None]:
        return [], None


class _Iree(_Compiled):
    """A module of tensors, compiled by IREE for this processor and run on one thread."""

    def compile(self, text: str) -> bytes:
        try:
            from iree.compiler.api import Output, Session, Source
        except ImportError:
            raise Failed(no_iree("to run tensor programs")) from None
        with _capture_stderr() as stderr:
            session = Session()
            session.set_flags(*FLAGS, f"--iree-llvmcpu-embedded-linker-path={_linker()}")
            source, call = Source.wrap_buffer(session, text.encode() + b"\0"), session.invocation()
            call.enable_console_diagnostics()
            success = call.parse_source(source) and call.execute()
        if not success:
            raise Failed(complaint(stderr[0], "IREE"))
        with tempfile.TemporaryDirectory() as folder:  # a sandbox forbids files in memory
            output = Output.open_file(f"{folder}/module")
            call.output_vm_bytecode(output)
            output.keep()
            output.close()
            return Path(folder, "module").read_bytes()

    def load(self) -> None:
        import iree.runtime as runtime

        self.runtime = runtime
        config = runtime.Config("local-sync")
        self.device = config.device
        context = runtime.SystemContext(config=config)
        module = runtime.VmModule.copy_buffer(context.instance, self.code)
        context.add_vm_module(module)
        self.function = context.modules[module.name][self.head["function"]]

    def call(self, values: list[np.ndarray]) -> Callable[[], list[Any]]:
        arguments = [
            _number(value) if kind == "scalar" else self.runtime.asdevicearray(self.device, value)
            for kind, value in zip(self.head["arguments"], values, strict=True)
        ]
        dtypes = self.head["results"]

        def once() -> list[Any]:
            results = self.function(*arguments)
            results = list(results) if isinstance(results, tuple | list) else [results] * (len(dtypes) == 1)
            pairs = zip(results, dtypes, strict=True)
            scalars = [_scalar(value, dtype) if isinstance(value, int | float) else value for value, dtype in pairs]
            return self.outputs(scalars)

        return once


def _linker() -> Path:
    """Return IREE's linker. The sandbox's empty /proc hides it from IREE, as it hides its library from the linker."""
    from iree.compiler import _mlir_libs

    folder = Path(_mlir_libs.__file__).parent
    os.environ["LD_LIBRARY_PATH"] = str(folder)
    return folder / "iree-lld"


def _number(value: np.ndarray) -> int | float:
    return int(value) if value.dtype == bool else value.item()


def _scalar(value: int | float, dtype: str) -> np.ndarray:
    """Return a number as an array. IREE's own machine holds i1 in 32 bits, and leaves a carry there."""
    return np.asarray(value & 1 if dtype == "bool" else value, dtype)


class _C(_Compiled):
    """A module of buffers and loops, as C by `passlab.mlir.ccode`. Without results, its buffers are what it returns."""

    def compile(self, text: str) -> bytes:
        from passlab.mlir import ccode, modules

        try:
            source = ccode.source(modules.parse(text, allowed=None), self.head["function"], self.head["checks"])
        except modules.MLIRError as error:
            raise Failed(str(error)) from None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            (path / "m.c").write_text(source)
            level = "-O1" if self.head["checks"] else "-O3"
            try:
                process = subprocess.run(
                    [*shlex.split(_CC), level, "m.c", "-o", "m.so", "-lm"], cwd=folder, capture_output=True, text=True
                )
            except FileNotFoundError:
                raise Failed(
                    "No C compiler was found, and loops on buffers run as C (Debian: apt install gcc)."
                ) from None
            if process.returncode:
                raise Failed(f"The C compiler rejects what the module became: {complaint(process.stderr, 'cc')}")
            return (path / "m.so").read_bytes()

    def load(self) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(self.code)
            file.flush()
            self.library = ctypes.CDLL(file.name)

    def call(self, values: list[np.ndarray]) -> Callable[[], list[Any]]:
        arrays = [np.array(value, order="C") for value in values]  # alive as long as the function
        dtypes = self.head["results"]
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        sizes = [(ctypes.c_int64 * max(array.ndim, 1))(*array.shape) for array in arrays]
        shapes = (ctypes.c_void_p * len(arrays))(*(ctypes.addressof(row) for row in sizes))
        rows = (ctypes.c_int64 * (ROW * max(len(dtypes), 1)))()
        message = ctypes.create_string_buffer(400)
        run = self.library.passlab_main

        def once() -> list[Any]:
            if run(pointers, shapes, rows, message):
                raise Failed(message.value.decode(errors="replace"))
            if not dtypes:
                return self.outputs(
                    [a for kind, a in zip(self.head["arguments"], arrays, strict=True) if kind == "memref"]
                )
            return self.outputs([_result(rows, at * ROW, dtype) for at, dtype in enumerate(dtypes)])

        once.sizes = sizes  # `shapes` points into them
        return once


def _result(words: Any, at: int, dtype: str) -> np.ndarray:
    """Return a copy of a result: its row begins at a place of `made`."""
    pointer, _, rank = words[at : at + 3]
    sizes, strides = words[at + 3 : at + 3 + rank], words[at + 3 + RANK : at + 3 + RANK + rank]
    kind = np.dtype(dtype)
    if 0 in sizes:
        return np.zeros(sizes, kind)
    reach = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)) + 1
    flat = np.frombuffer((ctypes.c_char * (reach * kind.itemsize)).from_address(pointer), kind)
    return np.lib.stride_tricks.as_strided(flat, sizes, [step * kind.itemsize for step in strides]).copy()


class _Interpreter:
    """xDSL's interpreter: Python, one element at a time; f32 is computed in f64 and rounded when it is stored."""

    def __init__(self, text: str, code: np.ndarray | None, head: dict):
        from xdsl.interpreter import Interpreter
        from xdsl.interpreters import register_implementations
        from xdsl.interpreters.math import MathFunctions

        from passlab.mlir import modules

        module = modules.parse(text, allowed=None)
        if modules.native() is not None:
            module = modules.pipeline(module, "linalg-generalize-named-ops")
        self.interpreter, self.head = Interpreter(module), head
        register_implementations(self.interpreter, modules.context())
        self.interpreter.register_implementations(MathFunctions())
        name = head["function"]
        function = next(op for op in module.ops if getattr(getattr(op, "sym_name", None), "data", None) == name)
        self.types = list(function.function_type.inputs)

    def call(self, values: list[np.ndarray]) -> Callable[[], list[Any]]:
        from xdsl.utils.exceptions import InterpretationError

        arguments = [_interpreter_value(type_, value) for type_, value in zip(self.types, values, strict=True)]

        def once() -> list[Any]:
            try:
                results = self.interpreter.call_op(self.head["function"], tuple(arguments))
            except (InterpretationError, NotImplementedError) as error:
                raise Failed(f"xDSL's interpreter cannot run the module: {str(error).splitlines()[0][:200]}") from None
            if not self.head["results"]:
                pairs = zip(self.head["arguments"], arguments, values, strict=True)
                return [np.array(g.data, v.dtype).reshape(v.shape) for kind, g, v in pairs if kind == "memref"]
            return [
                np.array(v.data if hasattr(v, "data") else v, dtype).reshape(v.shape if hasattr(v, "shape") else ())
                for v, dtype in zip(results, self.head["results"], strict=True)
            ]

        return once

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], None]:
        return [], None


def _interpreter_value(type_: Any, value: np.ndarray) -> Any:
    from xdsl.interpreters.builtin import xtype_for_el_type
    from xdsl.interpreters.shaped_array import ShapedArray
    from xdsl.interpreters.utils.ptr import TypedPtr

    if not hasattr(type_, "element_type"):
        return value.item()
    kind = xtype_for_el_type(type_.element_type, 64)
    return ShapedArray(TypedPtr.new(value.reshape(-1).tolist(), xtype=kind), list(value.shape))


class _Passes:
    """The module after each of MLIR's own passes in the head's "steps", as text; without steps it is only verified."""

    def __init__(self, text: str, code: np.ndarray | None, head: dict):
        from passlab.mlir import modules

        try:
            module = modules.parse(text, allowed=modules.ALLOWED if head["strict"] else None)
            if head["verified"]:
                modules.verify(module)
            after = modules.passes(module, head["steps"]) if head["steps"] else []
        except modules.MLIRError as error:
            raise Failed(str(error)) from None
        self.after = [np.frombuffer(modules.generic(result).encode(), np.uint8) for result in after]

    def call(self, values: list[np.ndarray]) -> Callable[[], list[Any]]:
        return lambda: self.after

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], None]:
        return [], None


_BY = {"iree": _Iree, "c": _C, "interpreter": _Interpreter, "passes": _Passes}


def no_iree(purpose: str) -> str:
    where = "there is no package of it for this system: use Linux or macOS, or by='c' for loops"
    return f"IREE is needed {purpose}, and {where}."


#: An error: its line in the text, the message before the operation's name, the name, the message after it.
_NAMED = re.compile(r":(\d+):\d+: error: ([^\n]*?)'([a-z_]+\.[\w.]+)'(?: op)?([^\n]*)")


def complaint(output: str, compiler: str) -> str:
    """Return a compiler's first error as a sentence that names the operation, and its place (see `run.with_places`)."""
    if match := _NAMED.search(output):
        line, before, name, after = match.groups()
        reason = (before.replace("operation ", "") + after.split(": %")[0]).strip(" :")
        return f"{compiler} cannot lower {name} {LINE.format(line)}: {reason[:200]}."
    errors = (
        [line for line in output.splitlines() if "error:" in line] or output.strip().splitlines() or ["no reason given"]
    )
    return f"{compiler} cannot build the module: {errors[0].split('error:')[-1].strip()[:250]}."


@contextmanager
def _capture_stderr() -> Iterator[list[str]]:
    """Collect what native code writes to standard error: the list holds its text at the end of the block."""
    output, stderr = [""], os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield output
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            output[0] = file.read(2**16).decode(errors="replace")
