"""lib/setup.sh on machines that lack something: stand-ins for python, pip, df and apt-get on an empty PATH."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "sh", "dirname", "cat", "cmp", "head", "tail", "awk", "sed", "grep", "mkdir", "cp", "chmod", "env", "rm", "uname",
)  # fmt: skip

PYTHON = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
*"sys.exit(sys.version_info"*) exit "${OLD:-0}" ;;
*python_version*) echo 3.9.2 ;;
*version_info*) echo 3.12 ;;
--version) echo Python 3.12.1 ;;
"-m venv"*)
    if [ -n "$VENV_SAYS" ] && [ ! -f "$here/venv-package" ]; then echo "$VENV_SAYS"; exit 1; fi
    mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
"-m pip --version") ;;
*" install "*)
    echo "$*" >>pip-calls
    [ -z "$PIP_SAYS" ] || { printf '%s\\n' "$PIP_SAYS" >&2; exit 1; } ;;
esac
"""


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def machine(tmp_path):
    """A project folder and an empty PATH; `machine(...)` runs the setup there."""
    project, path = tmp_path / "my project", tmp_path / "bin"
    (project / "lib").mkdir(parents=True)
    path.mkdir()
    for name in ("lib/setup.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    for tool in TOOLS:
        (path / tool).symlink_to(shutil.which(tool))
    script(path / "python3", PYTHON)
    script(path / "id", "#!/bin/sh\necho 1000\n")
    script(path / "df", '#!/bin/sh\necho head\necho "/dev/x 1 1 ${FREE_KIB:-90000000} 1% /"\n')
    for tool in ("dot", "bwrap", "c++"):
        script(path / tool, "#!/bin/sh\n")

    def run(folder=project, **env):
        env = {"PATH": str(path), **env}
        return subprocess.run(["sh", "lib/setup.sh"], cwd=folder, env=env, capture_output=True, text=True, timeout=60)

    run.project, run.path = project, path
    return run


def one_sentence(result) -> str:
    """What setup said when it stopped: one line, no traceback."""
    assert result.returncode == 1
    last = result.stderr.strip().split("\n")[-1]
    assert last.startswith("Setup stopped: ") and "Traceback" not in result.stderr
    return last


def test_sets_up_once_torch_first(machine):
    first = machine()
    assert first.returncode == 0, first.stderr
    torch, rest = (machine.project / "pip-calls").read_text().strip().split("\n")
    assert torch.split()[-1].startswith("torch==") and rest.endswith("--editable .[grade,book,hub,test,gpu]")
    again = machine()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len((machine.project / "pip-calls").read_text().strip().split("\n")) == 2


def test_changed_pins_are_installed(machine):
    machine()
    with (machine.project / "pyproject.toml").open("a") as out:
        out.write("# changed\n")
    assert "Installing the packages" in machine().stderr


def test_a_moved_project_gets_a_new_environment(machine):
    machine()
    moved = machine.project.with_name("moved")
    machine.project.rename(moved)
    said = machine(moved)
    assert said.returncode == 0 and "virtual environment" in said.stderr


def test_no_python(machine):
    (machine.path / "python3").unlink()
    assert "Python 3.11 or newer is needed" in one_sentence(machine())


def test_another_python_can_be_named(machine):
    other = machine.project / "other python"
    script(other, PYTHON)
    (machine.path / "python3").unlink()
    assert machine(PYTHON=str(other)).returncode == 0


UNRESOLVED = "WARNING: Retrying after NewConnectionError('[Errno -3] Temporary failure in name resolution')\n"
#: What is wrong → what the stand-ins are told for it, and what setup says.
STOPS = {
    "old Python": ({"OLD": "1"}, "python3 is 3.9.2"),
    "Python without venv": (
        {"VENV_SAYS": "The virtual environment was not created: ensurepip is not available."},
        "apt install python3.12-venv",
    ),
    "full disk before": ({"FREE_KIB": str(1024 * 1024)}, "has 1 GiB free"),
    "full disk while installing": ({"PIP_SAYS": "ERROR: [Errno 28] No space left on device"}, "disk is full"),
    "no network": (
        {"PIP_SAYS": UNRESOLVED + "ERROR: Could not find a version that satisfies the requirement torch"},
        "package index cannot be reached",
    ),
    "no build for this machine": (
        {"PIP_SAYS": "ERROR: No matching distribution found for torch==1"},
        "no build for this Python",
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_setup_stops_with_one_sentence(machine, name):
    env, sentence = STOPS[name]
    assert sentence in one_sentence(machine(**env))


def test_another_failure_names_the_log(machine):
    said = one_sentence(machine(PIP_SAYS="error: subprocess-exited-with-error\n  error: cannot build foo"))
    assert "cannot build foo" in said and ".venv/setup.log" in said


def test_a_failed_setup_is_taken_up_again(machine):
    machine(PIP_SAYS="ERROR: broken")
    assert machine().returncode == 0


@pytest.mark.parametrize(
    ("tool", "note", "again"),
    [
        ("dot", "Graphviz (dot) is missing", True),
        ("bwrap", "To grade, install it: apt install bubblewrap", False),
        ("c++", "no C++ compiler", None),
    ],
)
def test_what_is_missing_is_a_note(machine, tool, note, again):
    (machine.path / tool).unlink()
    result = machine()
    assert result.returncode == 0 and note in result.stderr
    if again is not None:
        second = machine().stderr
        assert note in second if again else second == ""


@pytest.mark.parametrize(("tool", "package"), [("dot", "graphviz"), ("bwrap", "bubblewrap")])
def test_what_is_missing_comes_by_apt_where_it_is_allowed(machine, tool, package):
    (machine.path / tool).unlink()
    script(machine.path / "id", "#!/bin/sh\necho 0\n")
    calls = machine.project / "apt-calls"
    script(machine.path / "apt-get", f'#!/bin/sh\necho "$*" >>"{calls}"\ncp "$0" "{machine.path}/{tool}"\n')
    result = machine()
    assert result.returncode == 0 and "missing" not in result.stderr
    assert calls.read_text().strip().endswith(package)


def test_bubblewrap_is_not_for_other_systems(machine):
    (machine.path / "bwrap").unlink()
    (machine.path / "uname").unlink()
    script(machine.path / "uname", "#!/bin/sh\necho Darwin\n")
    assert "bubblewrap" not in machine().stderr


def test_make_gives_a_home_where_there_is_none():
    probe = subprocess.run(
        ["make", "-s", "--eval", 'where: ; @echo "$$HOME"', "where"],
        cwd=ROOT,
        env=os.environ | {"HOME": "/dev/null/nowhere"},
        capture_output=True,
        text=True,
    )
    assert probe.stdout.strip() == str(ROOT / ".venv/home")


def test_help_lists_every_target():
    # Under `make test` a make of its own would say which folder it enters.
    make = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True)
    targets = ["help", "setup", "lab", "update", "grade", "test", "test-changed", "test-full", "quick", "bench"]
    targets += ["gpu", "book", "hub", "notebooks", "prove"]
    assert re.findall(r"^make ([\w-]+) ", make.stdout, re.M) == targets, make
