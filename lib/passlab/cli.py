"""The `passlab` command: doctor, lab, update and progress; the instructor's commands are added by entry points."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points, requires
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from passlab import course_paths
from passlab.notebook.project import root

app = typer.Typer(help="PassLab: learn compiler passes by writing them.", no_args_is_help=True, add_completion=False)
console = Console()


def _fail(sentence: str) -> None:
    Console(stderr=True).print(sentence, soft_wrap=True, markup=False)
    raise typer.Exit(1)


def _course() -> Path:
    home = root()
    if home is None:
        _fail("This folder is not inside the project: no parent has `course` and `exercises`. Go to your clone of it.")
    return home


def _python() -> tuple[bool, str]:
    version = ".".join(map(str, sys.version_info[:3]))
    supported = (3, 11) <= sys.version_info < (3, 14)
    return supported, f"Python {version}" + ("" if supported else ": 3.11, 3.12 or 3.13 is needed")


def _packages() -> tuple[bool, str]:
    """Return whether the installed packages have the pinned versions, and the differences."""
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import Requirement

    wrong, count = [], 0
    for pin in map(Requirement, requires("passlab") or []):
        optional = pin.marker is not None and not pin.marker.evaluate({"extra": ""})
        try:
            release = version(pin.name)
        except PackageNotFoundError:
            if not optional:
                wrong.append(f"{pin.name} is missing")
            continue
        count += 1
        if not pin.specifier.contains(release.split("+")[0]):
            wrong.append(f"{pin.name} is {release}, not {pin.specifier}")
    return not wrong, "; ".join(wrong) + ": run `make setup`" if wrong else f"all {count} have the pinned versions"


def _tool(name: str, what_for: str, remedy: str):
    def look() -> tuple[bool, str]:
        path = shutil.which(name)
        return bool(path), path or f"not found ({what_for}): {remedy}"

    return look


def _headers() -> tuple[bool, str]:
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.exists():
        return True, str(header)
    return False, f"{header} not found (torch.compile): install Python's headers (Debian: apt install python3-dev)"


def _disk() -> tuple[bool, str]:
    free = shutil.disk_usage(root() or Path.cwd()).free / 2**30
    return free > 1, f"{free:.0f} GiB free" + ("" if free > 1 else ": free at least 1 GiB")


def _devices() -> tuple[bool, str]:
    import torch

    names = ["CPU"] + [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return True, f"torch {torch.__version__} on {', '.join(names)}"


def _grading() -> tuple[bool, str]:
    present = importlib.util.find_spec("nbgrader") is not None
    return present, "nbgrader is installed" if present else "nbgrader is not installed (only instructors need it)"


#: the checks of doctor: name → (needed?, function that returns whether it is in order and what it found)
LOOKS = {
    "python": (True, _python),
    "packages": (True, _packages),
    "graphviz": (
        True,
        _tool("dot", "pictures", "install Graphviz (Debian: apt install graphviz; macOS: brew install graphviz)"),
    ),
    "compiler": (False, _tool("c++", "torch.compile and later days", "install g++ (macOS: xcode-select --install)")),
    "headers": (False, _headers),
    "disk": (True, _disk),
    "devices": (True, _devices),
    "grading": (False, _grading),
}


def _looks() -> dict:
    """Return LOOKS with the rows that the entry points of group `passlab.doctor_checks` return."""
    looks = dict(LOOKS)
    for point in entry_points(group="passlab.doctor_checks"):
        try:
            looks |= point.load()()
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:160]}"
            looks[point.name] = (False, lambda reason=reason: (False, reason))
    return looks


@app.command()
def doctor() -> None:
    """Check this machine: show what is installed, what is missing, and how to fix it."""
    table = Table("", "what", "found", box=None)
    broken = []
    for name, (needed, look) in _looks().items():
        try:
            good, detail = look()
        except Exception as error:  # doctor is for broken installations: a failing import is a result too
            good, detail = False, f"{type(error).__name__}: {str(error)[:160]}"
        table.add_row("[green]✓[/]" if good else "[red]✗[/]" if needed else "[yellow]–[/]", name, detail)
        if needed and not good:
            broken.append(name)
    console.print(table)
    if broken:
        _fail(f"Required but missing or broken: {', '.join(broken)}.")


@app.command()
def lab(
    browser: bool = typer.Option(True, help="Open a browser window."),
    port: int = typer.Option(8888, help="The port to try first."),
    author: bool = typer.Option(False, help="With jupytext and nbgrader, and all files."),
) -> None:
    """Build the exercises, copy what is new into work/, and open the course in JupyterLab."""
    from passlab.notebook.workspace import build, prepare, writable_home

    home = _course()
    writable_home()
    for line in (*build(), *prepare(home)):
        console.print(line, markup=False, soft_wrap=True)
    command = [sys.executable, "-m", "jupyterlab", f"--port={port}", f"--ServerApp.root_dir={home}"]
    start = "work/course/index.ipynb"  # a course of one's own may have none
    if not (home / start).exists():
        start = "work" if (home / "work").exists() else ""
    command += [f"--LabApp.default_url=/lab/tree/{start}"] + ([] if browser else ["--no-browser"])
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    # The course works offline: this configuration keeps JupyterLab from checking for updates and news.
    everyone = Path(__file__).with_name("jupyter")
    paths = [] if author else [str(everyone / "learner")]
    paths += [str(everyone), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    environment = os.environ | {"JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}
    raise typer.Exit(subprocess.call(command, env=environment))


@app.command()
def update() -> None:
    """Get the newest version of the course. What you wrote and saved is kept."""
    from passlab.notebook import clone

    installed = (course_paths.PROJECT / "pyproject.toml").is_file()  # else from a wheel, for a class
    project = course_paths.PROJECT if installed else _course()
    pins = project / "pyproject.toml"
    before = pins.read_bytes()
    try:
        for line in clone.pull(project):
            console.print(line, markup=False, soft_wrap=True)
    except clone.UpdateError as error:
        _fail(f"Nothing is updated: {error}")
    # From here on the new version's own files do the work.
    if Path(sys.prefix).resolve() == (project / ".venv").resolve():
        if subprocess.call(["make", "--no-print-directory", "setup"], cwd=project):
            _fail("The new files are here, but their packages are not: run `make setup` again.")
    elif pins.read_bytes() != before:
        console.print("Packages may have changed: with conda, run `conda env update -f environment.yml`.", markup=False)
    raise typer.Exit(subprocess.call([sys.executable, "-m", "passlab.notebook.workspace"], cwd=project))


@app.command()
def progress(day: str = typer.Argument(None, help="One day only, for example day03.")) -> None:
    """Show a table of days and exercises with your points so far."""
    from passlab.notebook.overview import progress as show_progress

    show_progress(day)


def main() -> None:
    """Run the command, including the commands of entry points in the group `passlab.commands`."""
    gc.set_threshold(50_000)  # not after every 700 objects of the thousands that a command loads
    atexit.register(gc.freeze)  # what is loaded need not be looked through again while Python ends
    if os.path.expanduser("~") == "~":  # a user that the system does not list: Jupyter would raise an error
        os.environ["HOME"] = "/"
    try:
        course_paths.external_course()
    except NotADirectoryError as error:
        sys.exit(str(error))
    for point in entry_points(group="passlab.commands"):
        if len(sys.argv) > 1 and sys.argv[1] not in (point.name, "--help"):
            continue  # import only what the given command needs
        try:
            app.command(point.name)(point.load())
        except ImportError as error:
            if len(sys.argv) > 1 and sys.argv[1] == point.name:
                _fail(f"`passlab {point.name}` needs the instructor's part of the project: {error}. Run `make setup`.")
    app()


if __name__ == "__main__":
    main()
