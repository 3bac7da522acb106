"""Find and load the library of Relay's TVM.

It is linked against CUDA even for machines without a GPU: two libraries come with wheels; a missing driver,
`libcuda.so.1`, is replaced by a stub whose functions all return "no device". The stub is compiled once (`prepare`) and
kept in the environment's folder, or in the user's cache if that folder is read-only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from passlab.building.compiler import Unreachable
from passlab.tvm.reach import cores, loaded

_INSTEAD = "The Relax day (day 8) shows the same ideas in today's TVM."

#: The functions of the driver that libtvm.so names (nm -D --undefined-only); 100 is CUDA_ERROR_NO_DEVICE.
_STUB = "".join(
    f"int {name}(void) {{ return 100; }}\n"
    for name in (
        "cuDeviceGetName",
        "cuFuncSetAttribute",
        "cuLaunchKernel",
        "cuMemsetD32_v2",
        "cuModuleGetFunction",
        "cuModuleGetGlobal_v2",
        "cuModuleLoadData",
        "cuModuleUnload",
    )
)
_STUB += 'int cuGetErrorName(int error, const char **name) { *name = "no device"; return 0; }\n'


def reach() -> ModuleType:
    """Load and return the module `tvm` (0.17). Raises Unreachable, with the reason in one sentence."""
    module = sys.modules.get("tvm")
    if module is None:
        return _load()
    if loaded() != "relay":
        raise Unreachable(
            f"This process uses the TVM of Relax ({module.__version__}), and one process can use only one TVM. "
            "Restart the kernel to work with Relay."
        )
    return module


def prepare() -> None:
    """Compile the stub if there is no driver: loading needs it, and a read-only process cannot write it.

    Raises Unreachable where Relay is not available.
    """
    _libraries()


def _load() -> ModuleType:
    folder, libraries = _folder(), _libraries()
    python = str(folder / "python")
    os.environ.setdefault("TVM_NUM_THREADS", str(cores()))
    os.environ["TOPHUB_LOCATION"] = "NONE"  # else relay.build downloads schedules
    inherited = os.environ.get("TVM_LIBRARY_PATH")
    os.environ["TVM_LIBRARY_PATH"] = str(folder / "build")
    sys.path.insert(0, python)
    try:
        for library in libraries:
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        with _without("xgboost"):  # its tuner takes the name of a class from there, a second and all of scikit-learn
            import tvm
            import tvm.relay
    except Exception as error:
        sys.path.remove(python)
        for name in [name for name in sys.modules if name == "tvm" or name.startswith("tvm.")]:
            del sys.modules[name]
        reason = str(error).split("\n")[0]
        raise Unreachable(f"Relay cannot be loaded here ({reason}). {_INSTEAD}") from error
    finally:  # today's TVM reads the variable too, and a child process may load that TVM
        del os.environ["TVM_LIBRARY_PATH"]
        if inherited is not None:
            os.environ["TVM_LIBRARY_PATH"] = inherited
    sys.modules.setdefault("onnx.mapping", _OnnxMapping("onnx.mapping"))
    logging.getLogger("autotvm").setLevel(logging.ERROR)  # the first build would recommend tuning
    compiler = importlib.import_module("tvm.relay.backend.te_compiler")
    compiler.libinfo = functools.cache(compiler.libinfo)  # read anew for every operator: a third of a small build
    return tvm


@contextlib.contextmanager
def _without(package: str) -> Iterator[None]:
    """Let imports of a package that is not loaded yet fail, as if it were not installed."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None
    try:
        yield
    finally:
        del sys.modules[package]


class _OnnxMapping(ModuleType):
    """The module `onnx.mapping`, which Relay's importer reads and onnx dropped in 1.15."""

    @functools.cached_property
    def TENSOR_TYPE_TO_NP_TYPE(self) -> dict:
        from onnx import helper

        return {kind: helper.tensor_dtype_to_np_dtype(kind) for kind in helper.get_all_tensor_dtypes()}


def _place(package: str) -> Path:
    """Return where a package is installed, without importing it. Raises Unreachable if it is not."""
    with contextlib.suppress(ModuleNotFoundError):  # the package above it is missing
        spec = importlib.util.find_spec(package)
        if spec is not None:
            return Path(next(iter(spec.submodule_search_locations)))
    raise Unreachable(f"Relay needs the package {package}, which is not installed. Run `make setup`.")


def _folder() -> Path:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        system = f"{platform.system()} on {platform.machine()}"
        raise Unreachable(f"Relay's TVM exists for Linux on x86-64 only, and this is {system}. {_INSTEAD}")
    return _place("bitblas") / "3rdparty" / "tvm"


def _libraries() -> list[str]:
    """Return the libraries, beyond the system's, that libtvm.so is linked against, in loading order."""
    _folder()
    nvrtc, runtime = _place("nvidia.cuda_nvrtc"), _place("nvidia.cuda_runtime")
    return [str(nvrtc / "lib/libnvrtc.so.12"), str(runtime / "lib/libcudart.so.12"), driver()]


def driver() -> str:
    """Return CUDA's driver library: the installed one, loaded, or else the path of the stub. Raises Unreachable."""
    try:
        ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
        return "libcuda.so.1"
    except OSError:
        return str(stub())


def stub() -> Path:
    """Return the compiled stub: an existing one, or a new one in the first writable folder.

    Raises Unreachable if none is writable.
    """
    name = f"passlab-no-cuda-{hashlib.sha256(_STUB.encode()).hexdigest()[:12]}.so"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folders = (Path(sys.prefix) / "lib", cache / "passlab")
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="passlab-", dir=folder) as scratch:
                library = _compile(Path(scratch))
                os.replace(library, folder / name)  # atomic: another process sees all of it or nothing
            return folder / name
    raise Unreachable(
        "Relay needs a small library, and the folders in which it could be kept are read-only: make "
        f"{' or '.join(map(str, folders))} writable."
    )


def _compile(scratch: Path) -> Path:
    source, library = scratch / "stub.c", scratch / "stub.so"
    source.write_text(_STUB)
    path = f"{os.environ.get('PATH', '')}{os.pathsep}{Path(sys.prefix) / 'bin'}"
    commands = [os.environ.get("CC", ""), "cc", "gcc", "clang", "c++", "g++"]
    for command in filter(None, map(shlex.split, commands)):
        if compiler := shutil.which(command[0], path=path):
            flags = ["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", str(source), "-o", str(library)]
            if subprocess.run([compiler, *command[1:], *flags], capture_output=True).returncode == 0:
                library.chmod(0o755)
                return library
    raise Unreachable(
        "Relay needs a C compiler once, and no working one was found (Debian: apt install gcc; conda: cxx-compiler). "
        + _INSTEAD
    )
