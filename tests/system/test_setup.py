"""lib/setup.sh on machines that lack something: stand-ins for python, pip, df and apt-get on an empty PATH."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
from functools import partial
from pathlib import Path

import pytest

from autograder.authoring import resolve

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "sh", "dirname", "cat", "cmp", "head", "tail", "awk", "sed", "grep", "mkdir", "cp", "chmod", "env", "rm", "uname",
    "timeout",
)  # fmt: skip

#: A stand-in for Python and, as a copy in .venv/bin, for the pip there. BUILDS are the builds of torch on pip's own
#: indexes, CPU_BUILDS those on the index for builds without CUDA.
PYTHON = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
-ESc*) echo {version} ;;
"-m venv"*)
    if [ -n "$VENV_SAYS" ] && [ ! -f "$here/venv-package" ]; then echo "$VENV_SAYS"; exit 1; fi
    rm -rf .venv
    mkdir -p .venv/bin .venv/lib/python{minor}/site-packages/pip-1.dist-info && cp "$0" .venv/bin/python
    echo pip >.venv/lib/python{minor}/site-packages/pip-1.dist-info/INSTALLER ;;
*Python.h*) [ -z "$NO_HEADERS" ] ;;
*"index versions"*"--index-url"*) echo "Available versions: ${{CPU_BUILDS-2.14.0+cpu, {torch}+cpu, 2.9.1+cpu}}" ;;
*"index versions"*) echo "Available versions: ${{BUILDS-2.14.0, {torch}, 2.9.1}}" ;;
*" install "*)
    echo "$*" >>pip-calls
    [ -z "$PIP_SAYS" ] || {{ printf '%s\\n' "$PIP_SAYS" >&2; exit 1; }}
    echo "Collecting torch"
    echo "Downloading torch-{torch}.whl (526.6 MB)"
    echo "Downloading small-1.whl (30 kB)"
    echo "Installing collected packages: small, torch" ;;
esac
"""
TORCH = re.search(r'"torch==(.*?)"', (ROOT / "pyproject.toml").read_text())[1]


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def python(path: Path, version: str = "3.12.1") -> None:
    script(path, PYTHON.format(version=version, minor=version.rpartition(".")[0], torch=TORCH))


@pytest.fixture
def machine(tmp_path):
    """A project folder and an empty PATH; `machine(...)` runs the setup there."""
    project, path = tmp_path / "my project", tmp_path / "bin"
    (project / "lib").mkdir(parents=True)
    (project / "autograder").mkdir()
    path.mkdir()
    for name in ("lib/setup.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    for tool in TOOLS:
        (path / tool).symlink_to(shutil.which(tool))
    python(path / "python3")
    script(path / "id", "#!/bin/sh\necho 1000\n")
    script(path / "df", '#!/bin/sh\necho head\necho "/dev/x 1 1 ${FREE_KIB:-90000000} 1% /"\n')
    for tool in ("dot", "bwrap", "c++"):
        script(path / tool, "#!/bin/sh\n")

    def run(folder=project, **env):
        env = {"PATH": str(path), "PASSLAB_TORCH": "cpu", **env}
        return subprocess.run(["sh", "lib/setup.sh"], cwd=folder, env=env, capture_output=True, text=True, timeout=600)

    run.project, run.path = project, path
    return run


def one_sentence(result) -> str:
    """What setup said when it stopped: one line, no traceback."""
    assert result.returncode == 1
    last = result.stderr.strip().split("\n")[-1]
    assert last.startswith("Setup stopped: ") and "Traceback" not in result.stderr
    return last


def calls(machine) -> list[str]:
    """Return what pip was told to install, a call each."""
    return (machine.project / "pip-calls").read_text().strip().split("\n")


def test_sets_up_once_torch_first(machine):
    first = machine()
    assert first.returncode == 0, first.stderr
    torch, rest = calls(machine)
    assert f" torch=={TORCH} " in torch and rest.endswith("--editable .[grade,book,hub,test,gpu]")
    again = machine()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(calls(machine)) == 2


def test_says_before_it_starts_what_it_takes_and_then_each_phase(machine):
    output = machine().stderr.split("\n")
    assert output[0] == "Creating a virtual environment with Python 3.12.1 in .venv"
    assert "torch without CUDA: 1.2 GB to download" in output[1] and "5 GiB in .venv" in output[1]
    assert output[2:] == [
        f"  downloading torch-{TORCH}.whl (526.6 MB)",
        "  unpacking",
        f"  downloading torch-{TORCH}.whl (526.6 MB)",
        "  unpacking",
        "Compiling the packages",
        "",
    ]


def test_nothing_is_written_where_nothing_is_to_be_done(machine):
    machine()
    before = {path: path.stat().st_mtime_ns for path in [machine.project, *machine.project.rglob("*")]}
    assert machine().returncode == 0
    assert {path: path.stat().st_mtime_ns for path in [machine.project, *machine.project.rglob("*")]} == before


def test_a_link_to_the_project_is_the_same_project(machine):
    machine()
    link = machine.project.with_name("link")
    link.symlink_to(machine.project)
    assert machine(link, PWD=str(link)).stderr == ""


def test_changed_pins_are_installed(machine):
    machine()
    with (machine.project / "pyproject.toml").open("a") as out:
        out.write("# changed\n")
    assert "Installing the packages" in machine().stderr


def test_a_moved_project_gets_a_new_environment(machine):
    machine()
    moved = machine.project.with_name("moved")
    machine.project.rename(moved)
    message = machine(moved)
    assert message.returncode == 0 and "virtual environment" in message.stderr


def test_the_environment_of_another_project_is_not_made_anew_through_a_link(machine):
    machine()
    other = machine.project.with_name("other")
    shutil.copytree(machine.project, other, ignore=shutil.ignore_patterns(".venv"))
    (other / ".venv").symlink_to(machine.project / ".venv")
    sentence = one_sentence(machine(other))
    assert str(machine.project) in sentence and "Remove the link (rm .venv)" in sentence
    assert machine().stderr == "", "what it links to is as it was"


# Which Python


def test_no_python(machine):
    (machine.path / "python3").unlink()
    assert "Python 3.11, 3.12 or 3.13 is needed ( no python3 on the PATH;" in one_sentence(machine())


@pytest.mark.parametrize("version", ["3.10.13", "3.14.0", "2.7.18"])
def test_a_python_that_is_not_supported_is_passed_over(machine, version):
    python(machine.path / "python3", version)
    assert f"python3 is {version}" in one_sentence(machine())
    python(machine.path / "python3.13", "3.13.0")
    assert "with Python 3.13.0" in machine().stderr


@pytest.mark.parametrize("version", [f"{each}.5" for each in resolve.PYTHONS])
def test_each_supported_python_is_taken(machine, version):
    python(machine.path / "python3", version)
    assert machine().returncode == 0 and machine().stderr == ""


def test_another_python_can_be_named(machine):
    other = machine.project / "other python"
    python(other, "3.13.0")
    message = machine(PYTHON=str(other))
    assert message.returncode == 0 and "with Python 3.13.0" in message.stderr


def test_a_named_python_is_never_replaced_by_another(machine):
    old, broken = machine.project / "old", machine.project / "broken"
    python(old, "3.9.2")
    script(broken, "#!/bin/sh\necho 'libpython3.12.so: cannot open' >&2\nexit 127\n")
    assert "/nope, and there is no such program" in one_sentence(machine(PYTHON="/nope"))
    assert f"{old}, which is Python 3.9.2. Python 3.11, 3.12 or 3.13" in one_sentence(machine(PYTHON=str(old)))
    assert "does not run: libpython3.12.so: cannot open" in one_sentence(machine(PYTHON=str(broken)))
    machine()
    assert "no such program" in one_sentence(machine(PYTHON="/nope"))


def test_an_environment_keeps_its_python(machine):
    machine()
    other = machine.project / "other"
    python(other, "3.13.0")
    assert ".venv holds Python 3.12.1, and PYTHON names 3.13.0. Remove .venv" in one_sentence(
        machine(PYTHON=str(other))
    )
    assert machine(PYTHON=str(machine.path / "python3")).stderr == ""


@pytest.mark.parametrize("change", ["removed", "upgraded"])
def test_an_environment_whose_python_is_gone_is_made_anew(machine, change):
    machine()
    base = machine.project / ".venv/bin/python"
    base.unlink()
    if change == "removed":
        base.symlink_to("/nope")
    else:
        python(base, "3.13.0")
    message = machine()
    assert message.returncode == 0 and "virtual environment with Python 3.12.1" in message.stderr
    assert machine().stderr == ""


# Which torch


@pytest.mark.parametrize(
    ("env", "option", "sentence"),
    [
        ({}, "--extra-index-url https://download.pytorch.org/whl/cpu", "with torch without CUDA: 1.2 GB"),
        ({"PASSLAB_TORCH_INDEX": "http://here/cpu"}, "--extra-index-url http://here/cpu", "torch without CUDA: 1.2 GB"),
        ({"CPU_BUILDS": ""}, "", "does not answer, so torch comes with CUDA: 3.6 GB to download instead of 1.2 GB"),
        ({"CPU_BUILDS": "2.12.0+cpu"}, "", "does not answer, so torch comes with CUDA"),
        ({"BUILDS": f"{TORCH}+cpu, {TORCH}"}, "", "the torch without CUDA that pip is configured for: 1.2 GB"),
        ({"BUILDS": f"2.14.0, {TORCH}+cu126, {TORCH}"}, "", f"that pip is configured for, {TORCH}+cu126: 3.6 GB"),
        ({"PASSLAB_TORCH": "cuda"}, "", "with torch with CUDA: 3.6 GB"),
    ],
    ids=["index", "named index", "no answer", "other versions", "pip's own", "pip's own with CUDA", "CUDA wanted"],
)
def test_torch_comes_without_cuda_if_it_can(machine, env, option, sentence):
    message = machine(**env)
    torch, rest = calls(machine)
    assert message.returncode == 0 and sentence in message.stderr
    assert torch.partition(f" torch=={TORCH}")[2].strip() == option and "index-url" not in rest


def test_an_nvidia_gpu_wants_cuda(machine):
    script(machine.path / "nvidia-smi", "#!/bin/sh\n")
    assert "with torch with CUDA" in machine(PASSLAB_TORCH="").stderr


def test_other_systems_have_one_torch(machine):
    (machine.path / "uname").unlink()
    script(machine.path / "uname", "#!/bin/sh\necho Darwin\n")
    message = machine()
    assert "with torch: 0.7 GB" in message.stderr and "index-url" not in calls(machine)[0]


def test_an_environment_keeps_its_torch(machine):
    machine()
    (machine.project / f".venv/lib/python3.12/site-packages/torch-{TORCH}+cpu.dist-info").mkdir()
    assert ".venv holds torch without CUDA. Remove .venv" in one_sentence(machine(PASSLAB_TORCH="cuda"))
    assert machine().stderr == ""
    assert "it can be cpu or cuda" in one_sentence(machine(PASSLAB_TORCH="gpu"))


# What stops it


UNRESOLVED = "WARNING: Retrying after NewConnectionError('[Errno -3] Temporary failure in name resolution')\n"
#: What is wrong → what the stand-ins are told for it, and what setup says.
STOPS = {
    "Python without venv": (
        {"VENV_SAYS": "The virtual environment was not created: ensurepip is not available."},
        "apt install python3.12-venv",
    ),
    "full disk before": ({"FREE_KIB": str(6 * 1024 * 1024)}, "need about 7 GiB, but the disk of"),
    "full disk while installing": ({"PIP_SAYS": "ERROR: [Errno 28] No space left on device"}, "disk is full"),
    "no network": (
        {"PIP_SAYS": UNRESOLVED + "ERROR: Could not find a version that satisfies the requirement torch"},
        "package index cannot be reached",
    ),
    "unknown certificate": (
        {"PIP_SAYS": "WARNING: Retrying after SSLError(SSLCertVerificationError('[SSL: CERTIFICATE_VERIFY_FAILED]'))"},
        "name its certificate in PIP_CERT",
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
    output = one_sentence(machine(PIP_SAYS="error: subprocess-exited-with-error\n  error: cannot build foo"))
    assert "cannot build foo" in output and ".venv/setup.log" in output


def test_a_failed_setup_is_taken_up_again(machine):
    machine(PIP_SAYS="ERROR: broken")
    again = machine()
    assert again.returncode == 0 and "virtual environment" not in again.stderr


def test_what_was_half_written_when_setup_was_killed_is_written_again(machine):
    machine(PIP_SAYS="killed")
    packages = machine.project / ".venv/lib/python3.12/site-packages"
    half, whole = packages / f"torch-{TORCH}.dist-info", packages / "numpy-2.dist-info"
    for package in (half, whole):
        package.mkdir()
    (whole / "INSTALLER").write_text("pip")
    assert machine().returncode == 0
    assert whole.exists() and not half.exists() and "torch==" in calls(machine)[1]


def test_an_environment_of_a_python_that_is_not_supported_is_made_anew(machine):
    machine()
    python(machine.project / ".venv/bin/python", "3.14.0")
    assert ".venv holds Python 3.14.0; 3.11, 3.12 or 3.13 is needed.\nCreating" in machine().stderr


def test_an_environment_that_was_half_made_is_made_anew(machine):
    (machine.project / ".venv/bin").mkdir(parents=True)
    python(machine.project / ".venv/bin/python")
    assert "Creating a virtual environment" in machine().stderr


def test_ctrl_c_says_how_to_go_on(machine):
    python = machine.path / "python3"
    python.write_text(python.read_text().replace('echo "Collecting torch"', "kill -INT 0; exit 130"))
    env = {"PATH": f"{machine.path}", "PASSLAB_TORCH": "cpu"}
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a run in the background ignores it, and so do we
    setup = subprocess.run(
        ["sh", "lib/setup.sh"],
        cwd=machine.project,
        env=env,
        capture_output=True,
        text=True,
        start_new_session=True,
        preexec_fn=heed,
    )
    assert setup.returncode == 130 and setup.stderr.endswith("The same command continues it.\n")


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


def test_missing_headers_of_python_are_a_note(machine):
    assert "headers" not in machine().stderr
    (machine.project / ".venv/passlab-setup").unlink()
    result = machine(NO_HEADERS="1")
    assert result.returncode == 0 and "apt install python3-dev" in result.stderr


@pytest.mark.parametrize(("tool", "package"), [("dot", "graphviz"), ("bwrap", "bubblewrap")])
def test_what_is_missing_comes_by_apt_where_it_is_allowed(machine, tool, package):
    (machine.path / tool).unlink()
    script(machine.path / "id", "#!/bin/sh\necho 0\n")
    calls = machine.project / "apt-calls"
    script(machine.path / "apt-get", f'#!/bin/sh\necho "$*" >>"{calls}"\ncp "$0" "{machine.path}/{tool}"\n')
    result = machine()
    assert result.returncode == 0 and "missing" not in result.stderr
    assert calls.read_text().strip().endswith(package)


def test_learners_of_a_class_get_the_wheel_and_nothing_for_grading(machine):
    (machine.project / "autograder").rmdir()
    (machine.path / "bwrap").unlink()
    wheel = machine.project / "lib/passlab-0.1.0+a-py3-none-any.whl"
    wheel.touch()
    first = machine()
    assert first.returncode == 0 and "bubblewrap" not in first.stderr, first.stderr
    assert calls(machine)[-1].endswith(f" lib/{wheel.name}")
    assert machine().stderr == "" and len(calls(machine)) == 2
    wheel.rename(wheel.with_name("passlab-0.1.0+b-py3-none-any.whl"))  # a newer bundle
    assert machine().returncode == 0 and calls(machine)[-1].endswith("+b-py3-none-any.whl")


def test_bubblewrap_is_not_for_other_systems(machine):
    (machine.path / "bwrap").unlink()
    (machine.path / "uname").unlink()
    script(machine.path / "uname", "#!/bin/sh\necho Darwin\n")
    assert "bubblewrap" not in machine().stderr


@pytest.mark.parametrize(
    ("variable", "value", "seen"), [("HOME", "/dev/null/nowhere", str(ROOT / ".venv/home")), ("PYTHONPATH", "/lib", "")]
)
def test_make_gives_a_home_where_there_is_none_and_no_other_packages(variable, value, seen):
    probe = subprocess.run(
        ["make", "-s", "--eval", f'where: ; @echo "$${variable}"', "where"],
        cwd=ROOT,
        env=os.environ | {variable: value},
        capture_output=True,
        text=True,
    )
    assert probe.stdout.strip() == seen


def test_help_lists_every_target():
    # Under `make test` a make of its own would say which folder it enters.
    make = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True)
    targets = ["help", "setup", "lab", "update", "grade", "test", "test-changed", "test-full", "quick", "bench"]
    targets += ["gpu", "book", "hub", "image", "notebooks", "prove"]
    assert re.findall(r"^make ([\w-]+) ", make.stdout, re.M) == targets, make
