"""Resolve the pinned packages for each supported platform: `python -m autograder.authoring.resolve`.

uv reads what PyPI says about the packages, of every extra, and downloads none of them. How this machine configures pip
and uv is left out: a build that only this machine has would hide a conflict that everyone else meets.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
PYTHONS = ("3.11", "3.12", "3.13")
#: name → what uv calls it
PLATFORMS = {
    "Linux x86-64": "x86_64-unknown-linux-gnu",
    "Linux aarch64": "aarch64-unknown-linux-gnu",
    "macOS arm64": "aarch64-apple-darwin",
}
#: The oldest macOS that torch has wheels for.
MACOS = "14.0"
#: PyTorch's build without CUDA, which setup takes on Linux without an NVIDIA GPU, is not on PyPI.
CPU_TORCH = 192_000_000

#: The exit status where PyPI cannot be reached; a conflict gives 1.
UNCHECKED = 2

_UNREACHABLE = re.compile(r"Failed to fetch|error sending request")
_CUDA = re.compile(r"(nvidia|cuda)-(?!.*-cu12$)|torch$")


class NoNetworkError(Exception):
    """PyPI cannot be reached, so nothing is known about the pins."""


class Resolution(NamedTuple):
    """The packages for one Python on one platform, with the bytes of each; or why there are none."""

    platform: str
    python: str
    packages: dict[str, int]
    conflict: str = ""

    @property
    def download(self) -> int:
        return sum(self.packages.values())

    @property
    def cpu_download(self) -> int:
        """The download with PyPI's torch replaced by the build without CUDA."""
        return CPU_TORCH + sum(size for name, size in self.packages.items() if not _CUDA.match(name))


def resolve(platform: str, python: str, project: Path = PROJECT) -> Resolution:
    """Resolve the pins of a pyproject.toml on PyPI. Raises NoNetworkError, and FileNotFoundError without uv."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv) if uv.exists() else "uv", "pip", "compile", str(project), "--all-extras", "--no-config"]
    command += ["--python-version", python, "--python-platform", PLATFORMS[platform], "--python", sys.executable]
    command += ["--only-binary", ":all:", "--quiet", "--no-header", "--format", "pylock.toml"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("UV_") or name == "UV_CACHE_DIR"}
    process = subprocess.run(
        command, env=env | {"MACOSX_DEPLOYMENT_TARGET": MACOS}, capture_output=True, text=True, timeout=300
    )
    if _UNREACHABLE.search(process.stderr):
        raise NoNetworkError("PyPI cannot be reached: " + process.stderr.strip().split("\n")[-1].strip())
    if process.returncode:
        return Resolution(platform, python, {}, process.stderr.strip())
    packages = tomllib.loads(process.stdout)["packages"]
    # Where a package has several wheels that fit, they differ little.
    sizes = {package["name"]: max(wheel["size"] for wheel in package["wheels"]) for package in packages}
    return Resolution(platform, python, sizes)


def resolve_all(project: Path = PROJECT) -> list[Resolution]:
    """Resolve the pins for every supported platform and Python, at the same time. Raises as `resolve` does."""
    with ThreadPoolExecutor(3) as pool:
        cells = [(platform, python) for platform in PLATFORMS for python in PYTHONS]
        return list(pool.map(lambda cell: resolve(cell[0], cell[1], project), cells))


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def main() -> None:
    console = Console()
    try:
        resolutions = resolve_all()
    except NoNetworkError as error:
        console.print(f"Whether the pins can be installed elsewhere was not checked. {error}", markup=False)
        sys.exit(UNCHECKED)
    table = Table("platform", "Python", "packages", "download", "without CUDA", box=None)
    for each in resolutions:
        if each.conflict:
            table.add_row(each.platform, each.python, "[red]conflict[/]")
        else:
            cpu = _size(each.cpu_download) if each.platform.startswith("Linux") else ""
            table.add_row(each.platform, each.python, str(len(each.packages)), _size(each.download), cpu)
    console.print(table)
    conflicts = [each for each in resolutions if each.conflict]
    for each in conflicts:
        console.print(f"\n{each.platform}, Python {each.python}: {each.conflict}", markup=False, soft_wrap=True)
    if conflicts:
        sys.exit(
            f"\nThe pins in pyproject.toml contradict each other or have no wheel on {len(conflicts)} of "
            f"{len(resolutions)} platforms: change a pin, or give it a marker."
        )


if __name__ == "__main__":
    main()
