"""What this machine has of what `make gpu` uses, looked up without importing torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from typing import Any

PYTHONS, TORCH = ((3, 11), (3, 13)), (2, 11)
#: Package → what goes without it.
WANTED = {
    "triton": "Triton kernels and their speed",
    "tvm": "TVM's CUDA half",
    "networkx": "day 4's groups",
    "scipy": "orders and plans of day 5",
    "onnx": "day 1's ONNX graphs, which are not run on a GPU",
}


def version(package: str) -> str:
    """Return the version of a package, or ""."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?" if importlib.util.find_spec(package) else ""


def unfit(interpret: bool) -> str:
    """Return why nothing can be done here, in one sentence with the remedy, or ""."""
    interpreter = f"This is {sys.executable}, Python {sys.version.split()[0]}"
    other = "Name another Python: make gpu PYTHON=/path/to/python."
    if missing := [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is None]:
        return f"{interpreter}; it has no {' and no '.join(missing)}. {other}"
    import torch

    if interpret or torch.cuda.is_available():
        return ""
    if torch.version.cuda is None:
        reason = f"{interpreter}; its torch {torch.__version__} was built without CUDA. {other}"
    else:
        reason = f"{interpreter}; torch {torch.__version__} finds no NVIDIA GPU (does nvidia-smi list one?)."
    return f"{reason} Without a GPU, --interpret checks what a CPU can."


def facts() -> dict[str, Any]:
    """Return what the figures depend on, for the JSON file."""
    import torch

    values: dict[str, Any] = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": version("triton"),
        "tvm": version("apache-tvm") if importlib.util.find_spec("tvm") else "",
        "cores": os.cpu_count(),
    }
    if torch.cuda.is_available():
        about = torch.cuda.get_device_properties(0)
        values |= {
            "gpu": about.name,
            "capability": f"{about.major}.{about.minor}",
            "memory": about.total_memory,
            "cuda": torch.version.cuda,
        }
    return values


def compiler() -> str:
    """Return the path of the C compiler that Triton uses to make its launchers, or ""."""
    return os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "")


def lacks() -> list[tuple[str, str]]:
    """Return (what is missing or untried, what goes without it)."""
    from autograder.gpu.speed import ncu

    gaps = [
        (f"the package {name}", consequence)
        for name, consequence in WANTED.items()
        if importlib.util.find_spec(name) is None
    ]
    if not compiler():
        gaps.append(("a C compiler (gcc or clang)", "Triton kernels and torch.compile"))
    if ncu() is None:
        gaps.append(("ncu, NVIDIA's profiler of kernels", "counting coalescing; the clock stands in"))
    if shutil.which("dot") is None:
        gaps.append(("Graphviz", "nothing here, which draws no graph"))
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        gaps.append(("a Python from 3.11 to 3.13", f"nothing known: {sys.version.split()[0]} is untried"))
    numbers = tuple(int(n) for n in version("torch").split("+")[0].split(".")[:2] if n.isdigit())
    if numbers < TORCH:
        gaps.append((f"torch 2.11 or newer: this is {version('torch')}", "nothing known: older ones are untried"))
    return gaps
