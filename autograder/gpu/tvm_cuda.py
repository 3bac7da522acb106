"""TVM's half: its kernels run on the GPU, and their CUDA C is compiled by NVRTC for GPUs that are not here.

TVM writes CUDA C without a GPU, and NVRTC compiles it to PTX without one. A wheel of TVM that was built without CUDA
cannot run the kernels; then the table says so.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F

from autograder.bench.figures import Figure, not_measured
from autograder.gpu.job import Job
from passlab.equivalence.values import Tolerance, compare

ARCHITECTURES = ("sm_80", "sm_90")
#: What TVM has to know of a GPU that is not here.
LIMITS = {"max_threads_per_block": 1024, "thread_warp_size": 32, "max_shared_memory_per_block": 49152}

#: Groups of every kind: element-wise, broadcast, reduced, with several results.
GROUPS: dict[str, tuple[Callable, tuple[tuple[int, ...], ...]]] = {
    "chain": (lambda x: torch.relu(x * 1.5 + 0.25) * 0.75 + 0.5, ((1000, 512),)),
    "broadcast": (lambda x, y: torch.relu(x * 2 + y).tanh(), ((1000, 512), (512,))),
    "softmax": (lambda x: x.softmax(-1) * 2, ((100, 300),)),
    "layer norm": (lambda x: torch.relu(F.layer_norm(x, x.shape[-1:])), ((64, 257),)),
    "two results": (lambda x: (x + 1, x * 2), ((33, 65),)),
    "GELU": (lambda x: F.gelu(x), ((1023,),)),
}
DTYPES = (torch.float32, torch.float16)


def tvm_cuda(job: Job) -> Iterator[Figure | str]:
    if importlib.util.find_spec("tvm") is None:
        yield not_measured("TVM's CUDA half", "the package tvm (apache-tvm) is missing here")
        return
    from passlab.relax import tvm

    yield from compile_ptx(job)
    if job.interpret:
        yield not_measured("TVM's kernels, run", "there is no GPU")
    elif not tvm.cuda(0).exist:
        yield not_measured("TVM's kernels, run", "this TVM was built without CUDA")
    else:
        yield from _run(job)


def _run(job: Job) -> Iterator[Figure | str]:
    """Compare TVM's kernels on the GPU with eager torch."""
    from passlab.kernels import Kernel

    good = 0
    for name, (function, shapes) in GROUPS.items():
        for dtype in DTYPES:
            inputs = [torch.randn(shape, device=job.device).to(dtype) for shape in shapes]
            expected = function(*inputs)
            try:
                results = Kernel(torch.fx.symbolic_trace(function))(*inputs)
            except Exception as error:
                lines = str(error).strip().splitlines() or [""]
                yield Figure(f"{name}, {dtype}", f"wrong: it does not run: {lines[-1][:200]}", held=False)
                continue
            if differences := compare(expected, results, Tolerance.of(dtype, 8)):
                yield Figure(f"{name}, {dtype}", f"wrong: {differences[0].sentence}", held=False)
            else:
                good += 1
    yield Figure("TVM's kernels on the GPU: as eager torch", f"{good} of {len(GROUPS) * len(DTYPES)}")


def source(name: str, dtype: torch.dtype, architecture: str) -> str:
    """Return the CUDA C of a group."""
    from passlab.kernels import code, schedule
    from passlab.kernels.primitives import primitives
    from passlab.relax import tvm

    function, shapes = GROUPS[name]
    target = tvm.target.Target({"kind": "cuda", "arch": architecture} | LIMITS, host="llvm")
    program = primitives(torch.fx.symbolic_trace(function), [torch.randn(shape).to(dtype) for shape in shapes])
    scheduled = schedule.on_cuda(code.tensor_ir(program, partial=False), target)
    with target:
        built = tvm.tirx.build(tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")}), target)
    return built.imports[0].inspect_source()


class Nvrtc:
    """NVIDIA's run-time compiler, from its wheel, with the headers of CUDA and of its C++ library from theirs.

    The wheels of CUDA 13 share one folder; torch brings them without the C++ library, which is then that of the
    toolkit in CUDA_HOME. Raises FileNotFoundError where one is missing.
    """

    def __init__(self):
        if folder := _folder("cu13"):
            library, toolkit = folder / "lib/libnvrtc.so.13", Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
            standard = next((at for at in (folder, toolkit) if (at / "include/cccl/cuda/std").is_dir()), None)
            if standard is None:
                raise FileNotFoundError(
                    f"the package nvidia-cuda-cccl is missing here, and {toolkit} has no include/cccl"
                )
            self.headers = [folder / "include", standard / "include/cccl"]
            for part in library.parent.glob("libnvrtc-builtins.so.13*"):
                ctypes.CDLL(str(part))  # NVRTC finds it only if it is loaded
        else:
            library = _wheel("cuda_nvrtc") / "lib/libnvrtc.so.12"
            self.headers = [_wheel(name) / "include" for name in ("cuda_runtime", "cuda_cccl")]
        self.library = ctypes.CDLL(str(library))

    def ptx(self, text: str, architecture: str) -> str:
        """Return the PTX of CUDA C. Raises ValueError with the compiler's first words."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
        options = [f"--gpu-architecture={architecture.replace('sm_', 'compute_')}"]
        options += [f"--include-path={folder}" for folder in self.headers]
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        try:
            if self.library.nvrtcCompileProgram(program, len(options), array):
                raise ValueError(self._text(program, size, "ProgramLog").strip()[:400])
            return self._text(program, size, "PTX")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, size: ctypes.c_size_t, name: str) -> str:
        self._call(f"nvrtcGet{name}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{name}", program, text)
        return text.value.decode(errors="replace")

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self.library, name)(*arguments):
            raise RuntimeError(f"{name} failed with code {code}.")


def _folder(name: str) -> Path | None:
    """Return a folder in which NVIDIA's wheels put their files, or None."""
    try:
        spec = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return None
    return Path(next(iter(spec.submodule_search_locations or ()))) if spec else None


def _wheel(name: str) -> Path:
    """Return the folder of one of NVIDIA's wheels of CUDA 12. Raises FileNotFoundError."""
    if folder := _folder(name):
        return folder
    raise FileNotFoundError(f"the package nvidia-{name.replace('_', '-')}-cu12 is missing here")


def compile_ptx(job: Job) -> Iterator[Figure | str]:
    """Compile TVM's CUDA C to PTX for each architecture."""
    try:
        nvrtc = Nvrtc()
    except OSError as error:
        yield not_measured("CUDA C to PTX", str(error))
        return
    names = list(GROUPS)[: job.sample or None]
    for architecture in ARCHITECTURES:
        sizes = []
        for name in names:
            for dtype in DTYPES:
                try:
                    text = nvrtc.ptx(source(name, dtype, architecture), architecture)
                except ValueError as error:
                    yield Figure(f"{name}, {dtype}, {architecture}", f"wrong: {error}", held=False)
                    continue
                if f".target {architecture}" not in text or ".entry" not in text:
                    yield Figure(f"{name}, {dtype}, {architecture}", "wrong: no kernel in the PTX", held=False)
                    continue
                sizes.append(len(text))
        about = f"{sum(sizes):,} characters, by NVRTC"
        every = len(names) * len(DTYPES)
        share = f"{len(sizes)} of {every}"
        yield Figure(f"CUDA C of TVM's kernels to PTX for {architecture}", share, about, "all", len(sizes) == every)
