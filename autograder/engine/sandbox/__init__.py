"""The sandbox: where learner code runs, in layers that each hold without the others.

Two levels. `launch` starts a long-lived, trusted process (the warm parent "runner", the "verifier") under bubblewrap:
it sees the system, the Python packages and its own part of the project, as a separate user, without a network.
`enter` is the warm parent's fork: the child runs a submission, with namespaces, an empty /proc, a small /tmp,
Landlock, a seccomp filter and rlimits on top. `cgroup` limits all processes of a submission together, from outside.

`layers` tests each layer on this machine; `missing` lists the required ones that fail, each with its remedy.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import mmap
import os
import platform
import queue
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import IO, NamedTuple

from autograder.engine.sandbox import cgroups, landlock, linux, seccomp
from autograder.engine.sandbox.cgroups import Group
from passlab import course_paths

ROOT = Path(__file__).resolve().parents[3]

#: The library without what a judge compares with: of the exercises, only the lists that learners read.
_GIVEN = (
    *("*.py", "exercises/__init__.py", "exercises/*/__init__.py"),
    *("autodiff", "capture", "dataflow", "drawing", "egraph", "equivalence", "formats", "fx", "given", "graph"),
    "judge",
    *("explorer", "hunt", "kernels", "measure", "proving", "quantization", "reviews"),
    *("building", "capstone", "memory", "mlir", "notebook", "polyhedral", "process", "relax", "relay", "tvm", "wafer"),
)
#: role → what it sees of the project (glob patterns below ROOT). No role sees the gradebook, submissions or tests.
READABLE = {
    "runner": (
        *(f"lib/passlab/{p}" for p in _GIVEN),
        "autograder/__init__.py",
        "autograder/engine/*.py",
        *(
            f"autograder/engine/{p}"
            for p in ("sandbox", "wire", "runner", "verifier/__init__.py", "verifier/builder.py")
        ),
    ),
    "verifier": (
        "lib/passlab",
        "solutions",
        "autograder/*.py",
        *(f"autograder/{p}" for p in ("engine", "authoring", "answers")),
    ),
}
#: role → the user it runs as when started by root: one that owns no file and no other process.
USERS = {"runner": 61001, "verifier": 61002}
#: What a confined process sees of the system: no /home, /root, /var, /run, /srv or /mnt; of /etc what programs need, of
#: /sys the number of processors and the size of a huge page.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store"),
    *("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage"),
)
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime", "nsswitch.conf")
_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
#: With `--device cuda`, what a process that runs graphs has besides: the devices, and what the driver reads. Workers
#: run learner code beside them, and see none of it.
GPU = "/dev/nvidia*"
_FOR_GPU: tuple[str, ...] = ("/sys/devices", "/sys/bus/pci", "/sys/module")
_FOR_GPU += tuple(f"/proc/{name}" for name in ("self", "driver", "devices", "modules", "cpuinfo", "meminfo", "sys/vm"))

#: Variables that pass from `launch` to `enter`: whether layers may be missing, the readable paths (JSON), the device
#: that graphs run on, the paths of the GPU's devices (JSON), and CUDA_VISIBLE_DEVICES as it was (JSON).
_UNSAFE, _SEEN, _DEVICE, _NODES = "PASSLAB_UNSAFE", "PASSLAB_READABLE", "PASSLAB_DEVICE", "PASSLAB_GPU"
_SHOWN = "PASSLAB_GPU_SHOWN"
#: Exit status of a worker that could not be confined. The reason is on the warm parent's standard error.
NOT_CONFINED = 125


@dataclass(frozen=True)
class Limits:
    """The resources of one submission. `memory_mib`: per process, on top of the warm parent's own; see `cgroup`; 0 sets
    no limit."""

    memory_mib: int = 1024
    cpu_s: int = 120  # of each process
    processes: int = 32  # threads count
    files: int = 256  # open at once, in each process
    file_mib: int = 32  # the size of one file
    tmp_mib: int = 64  # all files together
    inodes: int = 2000  # files and folders together
    stack_mib: int = 8


# ── Level 1: a trusted process that sees only its part ────────────────────────────────────────────────────────────────


def _visible(role: str) -> set[str]:
    """Return the paths a role may read: the system, Python with its packages, and its part of the project."""
    python = [path for prefix in (sys.base_prefix, sys.prefix) for path in (prefix, os.path.realpath(prefix))]
    part = [path for root in _roots() for pattern in READABLE[role] for path in map(str, root.glob(pattern))]
    paths = [*SYSTEM, *(f"/etc/{name}" for name in ETC), *python, *part]
    return {path for path in paths if os.path.exists(path)}


def _roots() -> list[Path]:
    """Return the folders of the project and, if it lies elsewhere, of the course."""
    return list(dict.fromkeys((ROOT, course_paths.course())))


def _environment(paths: Iterable[str], extra: Mapping[str, str]) -> dict[str, str]:
    return {
        "PATH": f"{sys.prefix}/bin:{_PROGRAMS}",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "USER": "learner",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "TVM_NUM_THREADS": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'lib'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        **({"PASSLAB_COURSE": str(own)} if (own := course_paths.external_course()) else {}),
        _SEEN: json.dumps(list(paths)),
        **extra,
    }


def _bubblewrap(
    role: str, paths: Iterable[str], writable: Iterable[str], filter_fd: int | None, nodes: Iterable[str] = ()
) -> list[str]:
    """Return the command line that goes before the program's own. nodes: devices to let through.

    Raises FileNotFoundError without bubblewrap.
    """
    own = "--unshare-pid --unshare-ipc --unshare-uts --unshare-net --unshare-cgroup-try --new-session"
    program = shutil.which("bwrap", path=f"{os.environ.get('PATH', '')}:{_PROGRAMS}")
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "bwrap")
    command = [program, *own.split(), "--die-with-parent", "--hostname", "passlab"]
    command += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--chmod", "1777", "/tmp"]
    made, bound = {"/", "/tmp"}, ["/dev", "/proc"]

    def make_parents(path: str) -> None:
        for folder in map(str, reversed(Path(path).parents)):
            if folder not in made and not any(Path(folder).is_relative_to(one) for one in bound):
                command.extend(["--perms", "0755", "--dir", folder])  # bubblewrap's own default may be 0700
                made.add(folder)

    roots = {str(root) for root in _roots()}
    for path in sorted({*paths, *roots}):  # a folder before its contents, so that no mount hides an earlier one
        make_parents(path)
        if path in roots:  # hidden even when it lies in a visible folder, such as /usr/src
            command += ["--tmpfs", path]
            made.add(path)
            bound = [one for one in bound if not Path(path).is_relative_to(one)]  # its own folders are new there
        elif path in SYSTEM and os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind", path, path]
            bound.append(path)
    for node in nodes:
        make_parents(node)
        command += ["--dev-bind", node, node]
    for path in writable:
        make_parents(path)
        command += ["--bind", path, path]
    for path in (*sorted(roots), "/dev", "/"):
        command += ["--remount-ro", path]
    command += ["--chdir", "/tmp"]
    if filter_fd is not None:
        command += ["--seccomp", str(filter_fd)]
    return [*command, *_unprivileged(role)]


def _unprivileged(role: str) -> list[str]:
    """Return the end of bubblewrap's command line, so that the program has no capabilities."""
    if os.geteuid() != 0:
        return ["--unshare-user", "--"]
    # Started by root, bubblewrap keeps all capabilities; changing the user drops them.
    user = str(USERS[role])
    drop = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    return ["--", *drop, "--"]


def launch(
    role: str,
    argv: Sequence[str],
    *,
    fds: Iterable[int] = (),
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    errors: int | IO | None = None,
    unsafe: bool = False,
    device: str = "cpu",
) -> subprocess.Popen:
    """Start a trusted, long-lived process that sees only its part of the project and has a private /tmp.

    role: "runner" (may confine its children further, see `enter`) or "verifier" (cannot create namespaces).
    fds: open files to hand over, under the same numbers. readable: additional readable paths. writable: folders that it
    may write; they belong to its user from then on. environment: additional variables. errors: where its standard error
    goes. unsafe: start a plain process in a clean environment instead. device: where graphs are to run; on "cuda" a
    runner sees the GPU, and those of its forks that ask for it (`enter`). The process and all its descendants end with
    this process. Raises FileNotFoundError without bubblewrap.
    """
    paths = sorted({*_visible(role), *map(str, readable)})
    gpu = role == "runner" and device.startswith("cuda")
    nodes = sorted(glob.glob(GPU)) if gpu else []
    variables = _environment(paths, {_DEVICE: device, _NODES: json.dumps(nodes)} | dict(environment or {}))
    if gpu:  # a process that forks must not touch the GPU; `enter` shows it to those that may
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        variables |= {"CUDA_VISIBLE_DEVICES": "", _SHOWN: json.dumps(shown)}
        if "LD_LIBRARY_PATH" in os.environ:  # where the driver's libraries may be
            variables["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    if unsafe:
        return _start([*argv], variables | {_UNSAFE: "1"}, tuple(fds), errors)
    for path in writable:
        os.makedirs(path, mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(path, USERS[role], USERS[role])
    with tempfile.TemporaryFile() as program:
        if role == "verifier":
            program.write(seccomp.program())
            program.seek(0)
        seen = {*paths, *(path for path in _FOR_GPU if gpu and path.startswith("/sys/") and os.path.exists(path))}
        command = _bubblewrap(role, seen, writable, program.fileno() if role == "verifier" else None, nodes)
        return _start([*command, *argv], variables, (*fds, program.fileno()), errors)


def _start(command: list[str], variables: dict[str, str], fds: tuple[int, ...], errors) -> subprocess.Popen:
    """Call Popen in a thread that outlives the process: --die-with-parent refers to the thread that started it."""
    started: queue.SimpleQueue = queue.SimpleQueue()

    def stay() -> None:
        try:
            process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stderr=errors, pass_fds=fds)
        except BaseException as error:
            started.put(error)
            return
        started.put(process)
        with contextlib.suppress(ChildProcessError):  # it has ended and was waited for elsewhere
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=stay, daemon=True, name=f"keeps {command[0]}").start()
    process = started.get()
    if isinstance(process, BaseException):
        raise process
    return process


# ── Level 2: the warm parent's fork ───────────────────────────────────────────────────────────────────────────────────

_PLAIN = linux.MS_NOSUID | linux.MS_NODEV
_NAMESPACES = linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS


def device() -> str:
    """Return the device that graphs run on, in a process that `launch` has started."""
    return os.environ.get(_DEVICE, "cpu")


def enter(
    limits: Limits = Limits(),
    keep: Iterable[int] = (),
    gpu: bool = False,
    failures: dict[str, OSError] | None = None,
) -> int:
    """Fork a confined child, as os.fork() would: return 0 in the child, the child's pid in the parent.

    For a single-threaded process that `launch` started as "runner". keep: file descriptors that stay open in the child;
    standard input, output and error go to /dev/null unless listed. gpu: let the GPU through, if the runner sees one.
    The child is process 1 of its namespace: when it ends, every process of the submission ends with it, and signals
    from inside reach it only if it handles them.
    Raises OSError where there are no namespaces; the child exits with NOT_CONFINED where another required layer fails.
    In a process launched as unsafe, layers that fail are skipped. failures: skip them here, too, and enter in the child
    layer → its error.
    """
    lenient = failures is not None or _UNSAFE in os.environ
    failures = {} if failures is None else failures
    before_mib, user, group = address_space_mib(), os.geteuid(), os.getegid()
    _bound_in_tmp(os.environ.get(_SEEN, "[]"))  # once here, not in every child
    try:
        pid = linux.fork_into(_NAMESPACES)
    except OSError as error:
        if not lenient:
            raise
        failures["namespaces"] = error
        pid = os.fork()
    if pid:
        return pid
    layer = ""
    try:
        readable, nodes = json.loads(os.environ[_SEEN]), json.loads(os.environ[_NODES])
        more = _FOR_GPU if gpu else ()
        if gpu and _SHOWN in os.environ:
            del os.environ["CUDA_VISIBLE_DEVICES"]
            if (shown := json.loads(os.environ[_SHOWN])) is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = shown
        os.setsid()
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        apart = [
            ("namespaces", lambda: _map_user(user, group)),
            ("own tmp", lambda: _mounts(limits, _bound_in_tmp(os.environ[_SEEN]), nodes, gpu)),
            ("namespaces", lambda: _hide_processes(gpu)),
        ]
        for layer, step in (
            *(() if failures else apart),
            ("rlimits", lambda: _rlimits(limits, before_mib)),
            ("landlock", lambda: landlock.restrict((*readable, *more), ("/tmp", *DEVICES, *(nodes if gpu else ())))),
            ("namespaces", linux.drop_capabilities),
            ("seccomp", seccomp.install),
            ("bubblewrap", lambda: _descriptors(set(keep))),
        ):
            try:
                step()
            except OSError as error:
                if not lenient and (LAYERS[layer].needed or error.errno != errno.ENOSYS):
                    raise
                failures.setdefault(layer, error)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"The worker could not be confined ({layer}). {type(error).__name__}: {error}\n".encode())
        os._exit(NOT_CONFINED)
    return 0


def drop_access(*folders: Path | str, programs: bool = False) -> None:
    """Take these folders from this process and its descendants for good, and with `programs` starting programs, too.

    For a process confined by `enter`. Does nothing where the layer is missing that could do it. What is read-only stays
    where a folder is writable: the project itself may lie in /tmp.
    """

    def remaining(paths: Iterable[str], gone: set[str]) -> list[str]:
        return [path for path in paths if not any(Path(path).is_relative_to(folder) for folder in gone)]

    given, writable = {str(folder) for folder in folders}, {"/tmp", *DEVICES}
    readable = remaining(json.loads(os.environ[_SEEN]), given - writable)
    with contextlib.suppress(OSError):
        landlock.restrict(readable, remaining(writable, given))
    if programs:
        with contextlib.suppress(OSError):
            seccomp.install(("execve", "execveat"))


def address_space_mib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * mmap.PAGESIZE // 2**20


def _map_user(user: int, group: int) -> None:
    """Map one user and one group into the new user namespace: those that this process has outside."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with linux.naming(f"/proc/self/{name}"):
            Path("/proc/self", name).write_text(text)


def _mounts(limits: Limits, bound: Iterable[str], nodes: Iterable[str], gpu: bool) -> None:
    """Make everything read-only except for a fresh, small /tmp, with the paths `bound` in it; hide the GPU, unless
    `gpu`."""
    Path("/proc/self/oom_score_adj").write_text("1000")  # when memory runs out, kill the submission first
    try:
        linux.make_read_only("/")
    except OSError as error:
        if error.errno != errno.ENOSYS:  # before Linux 5.12: bubblewrap has already mounted everything read-only
            raise
    in_tmp = {path: os.open(path, os.O_PATH) for path in bound}
    # The inodes of /tmp itself and of what leads to these paths are not the submission's.
    own = {"/tmp", *in_tmp, *(str(folder) for path in in_tmp for folder in Path(path).parents[:-2])}
    inodes = limits.inodes + len(own)
    linux.mount("tmpfs", "/tmp", "tmpfs", _PLAIN, f"size={limits.tmp_mib}m,nr_inodes={inodes},mode=0700")
    for path, fd in in_tmp.items():  # where the project itself lies in /tmp
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).touch()
        linux.mount(f"/proc/self/fd/{fd}", path, "", linux.MS_BIND | linux.MS_REC)
        os.close(fd)
    for node in () if gpu else nodes:
        over = ("tmpfs", _PLAIN | linux.MS_RDONLY, "size=4k") if os.path.isdir(node) else ("", linux.MS_BIND, "")
        linux.mount("tmpfs" if over[0] else "/dev/null", node, *over)
    os.chdir("/tmp")


@cache
def _bound_in_tmp(seen: str) -> list[str]:
    """Return the paths in /tmp that a child's own /tmp shows, of readable ones (JSON).

    A project in /tmp is one of them: what `launch` has mounted there is its readable part alone.
    """
    roots = [] if _UNSAFE in os.environ else _roots()
    paths = [Path(path) for path in json.loads(seen) if path.startswith("/tmp/")]
    return _outermost({str(next(filter(path.is_relative_to, roots), path)) for path in paths})


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that lie in none of the others."""
    outer: list[str] = []
    for path in sorted(paths, key=lambda path: Path(path).parts):
        if not outer or not Path(path).is_relative_to(outer[-1]):
            outer.append(path)
    return outer


def _hide_processes(gpu: bool) -> None:
    """Empty /proc, unless `gpu`: the driver reads a few files of it, and Landlock leaves it those."""
    if not gpu:
        linux.mount("tmpfs", "/proc", "tmpfs", _PLAIN | linux.MS_RDONLY, "size=4k,mode=0555")


def _rlimits(limits: Limits, before_mib: int) -> None:
    mib = 2**20
    wanted = {
        "AS": (before_mib + limits.memory_mib) * mib,
        "NPROC": limits.processes,
        "NOFILE": limits.files,
        "FSIZE": limits.file_mib * mib,
        "STACK": limits.stack_mib * mib,
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "SIGPENDING": 256,  # of all that the runner's user may have, so that no submission takes what others need
        "CPU": limits.cpu_s,  # soft limit = hard limit: SIGKILL at once
    }
    if not limits.memory_mib:
        del wanted["AS"]
    for name, value in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with linux.naming(f"RLIMIT_{name}"):
            resource.setrlimit(kind, (value, value))


def _descriptors(keep: set[int]) -> None:
    """Close all descriptors except `keep`, and open the missing standard ones on /dev/null."""
    start = 0
    for fd in [*sorted(keep), 2**20]:
        os.closerange(start, fd)
        start = fd + 1
    null = os.open(os.devnull, os.O_RDWR)  # the lowest free number
    for fd in {0, 1, 2} - keep - {null}:
        os.dup2(null, fd)
    if null > 2:
        os.close(null)
    else:
        os.set_inheritable(null, True)


# ── A worker, seen from outside ───────────────────────────────────────────────────────────────────────────────────────


def pid_of(sock: socket.socket) -> int:
    """Return the id, in this process's namespace, of the peer that calls `announce`. The kernel vouches for it.

    Raises OSError (TimeoutError after the socket's own timeout) if the peer does not answer.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    try:
        sock.sendall(b"?")
        answer, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(struct.calcsize("3i")))
    finally:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    for level, kind, data in ancillary:
        if answer and (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return struct.unpack("3i", data)[0]
    raise ConnectionError("The worker ended before it announced its process id.")


def announce(sock: socket.socket) -> None:
    """Answer `pid_of`; called by the worker."""
    if sock.recv(1):
        sock.sendall(b"!")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, its children and theirs so far, those included that they have waited for.

    A process that has ended counts as 0.
    """
    seconds = 0.0
    with contextlib.suppress(OSError):  # it has ended, or the kernel does not list children
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        seconds += sum(cpu_seconds(int(child)) for child in children)
    return seconds


def cgroup(name: str, limits: Limits) -> contextlib.AbstractContextManager[Group]:
    """Return a control group for one submission (see `cgroups`): it counts all its processes and its /tmp together."""
    return cgroups.cgroup(name, limits.memory_mib + limits.tmp_mib, limits.processes)


# ── The layers that hold on this machine ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Layer:
    """The result of testing one layer here. `sentence`: what it guarantees or, if it does not hold, why and the remedy.

    tried: whether it could be tested. One that could not be does not hold.
    """

    name: str
    holds: bool
    needed: bool
    sentence: str
    tried: bool = True


class _Row(NamedTuple):
    """What is said about a layer: whether it is required, what it guarantees, the risk without it, what it needs.

    `needs`: a function where that depends on this machine, so that nothing is asked for that is here; "" if all is.
    """

    needed: bool
    good: str
    risk: str
    needs: str | Callable[[], str]


def _bubblewrap_needs() -> str:
    leave = (
        "leave to make namespaces and to mount /proc in them, which a container has to be given (podman run "
        "--security-opt seccomp=unconfined --security-opt unmask=ALL; docker run --security-opt seccomp=unconfined "
        "--security-opt systempaths=unconfined --security-opt apparmor=unconfined; see docs/containers.md)"
    )
    return leave if shutil.which("bwrap") else "bubblewrap (Debian: apt install bubblewrap)"


def _own_user_needs() -> str:
    if os.geteuid() != 0:
        return "root"
    if not shutil.which("setpriv"):
        return "setpriv (Debian: apt install util-linux)"
    ids = " and ".join(map(str, USERS.values()))
    return (
        f"leave to become users {ids}, which a container or user namespace has to be given (CAP_SETUID and CAP_SETGID, "
        "and these numbers in its map of users), and a project that others may read (chmod -R a+rX)"
    )


def _rlimits_needs() -> str:
    version = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
    return "" if version >= (5, 14) else f"Linux 5.14 or newer (this is {platform.release()})"


def _cgroup_needs() -> str:
    if os.geteuid() != 0:
        return "root, or a separate control group (systemd-run --user --scope -p Delegate=yes passlab grade …)"
    return "a control group that may be written, which a container has to be given (/sys/fs/cgroup, not read-only)"


_USER_NAMESPACES = (
    "user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces=10000; on older "
    "Debians kernel.unprivileged_userns_clone=1)"
)
LAYERS: dict[str, _Row] = {
    "bubblewrap": _Row(
        True,
        "learner code sees the system, Python and lib/passlab without the judges of exercises; no network",
        "learner code could read hidden cases and use the network",
        _bubblewrap_needs,
    ),
    "own user": _Row(
        True,
        f"learner code runs as users {USERS['runner']} and {USERS['verifier']}, who own nothing",
        "learner code runs as you",
        _own_user_needs,
    ),
    "namespaces": _Row(
        True,
        "each submission sees only its own processes, and they all end with it",
        "submissions could reach each other's processes and leave some running",
        _USER_NAMESPACES,
    ),
    "seccomp": _Row(
        True,
        f"{len(seccomp.DENIED)} system calls are refused, among them socket, ptrace, mount and bpf",
        "learner code can make every system call",
        "Linux (x86-64 or ARM64) with CONFIG_SECCOMP_FILTER",
    ),
    "landlock": _Row(
        False,
        f"file access is restricted a second time (ABI {landlock.abi() if sys.platform == 'linux' else 0})",
        "only mounts restrict file access",
        "a kernel with Landlock (Linux 5.13, in `lsm=`)",
    ),
    "rlimits": _Row(
        True,
        "memory, processes, open files and file sizes are limited",
        "learner code can use up all memory or all processes",
        _rlimits_needs,
    ),
    "own tmp": _Row(
        True,
        "each submission has its own /tmp of limited size and can write nowhere else",
        "learner code can fill the disk",
        _USER_NAMESPACES,
    ),
    "cgroup": _Row(
        False,
        "memory and processes are limited for each submission as a whole",
        "memory is limited for each process of a submission, not for the submission as a whole",
        _cgroup_needs,
    ),
}
#: layer → the layer without which it cannot be tried.
_BUILT_ON = {"own tmp": "namespaces", "rlimits": "own user"}


def layers() -> list[Layer]:
    """Test each layer on this machine, in under a second: a confined process tries what the layer forbids."""
    reasons = _reasons()
    broken = next((name for name in LAYERS if reasons.get(name)), "")
    rows = []
    for name, row in LAYERS.items():
        if name not in reasons:
            below = _BUILT_ON.get(name, "")
            sentence = f"could not be tried, because “{below if reasons.get(below) else broken}” failed"
        elif reason := reasons[name]:
            needs = row.needs if isinstance(row.needs, str) else row.needs()
            sentence = f"{row.risk}: {reason}{f'. This layer needs {needs}' if needs else ''}"
        else:
            sentence = row.good
        needed = row.needed and (name != "own user" or os.geteuid() == 0)
        sentence = f"{sentence[0].upper()}{sentence[1:]}."
        rows.append(Layer(name, reasons.get(name) == "", needed, sentence, name in reasons))
    return rows


def missing() -> list[str]:
    """Return a sentence for each required layer that does not hold on this machine, with the reason and the remedy."""
    lacking = [one for one in layers() if one.needed and not one.holds]
    sentences = [f"The layer “{one.name}” is missing. {one.sentence}" for one in lacking if one.tried]
    untried: dict[str, list[str]] = {}
    for one in lacking:
        if not one.tried:
            untried.setdefault(one.sentence, []).append(f"“{one.name}”")
    # Several that could not be tried for the same reason are one sentence.
    return [
        *sentences,
        *(f"{', '.join(names)}: {sentence[0].lower()}{sentence[1:]}" for sentence, names in untried.items()),
    ]


def doctor_checks() -> dict[str, tuple[bool, Callable[[], tuple[bool, str]]]]:
    """Return the rows for `passlab doctor`. None of them is required there: learners do not grade."""
    return {f"sandbox: {one.name}": (False, partial(_row_of, one)) for one in layers()}


def _row_of(layer: Layer) -> tuple[bool, str]:
    return layer.holds, layer.sentence


def _reasons() -> dict[str, str]:
    """Return layer → why it does not hold on this machine, "" where it does. What could not be tried is left out."""
    try:
        reasons = _probe()
    except _ProbeError as failure:
        reasons = {failure.layer: str(failure)}
        with contextlib.suppress(_ProbeError):
            reasons |= _probe(unsafe=True)
    reasons["cgroup"] = _no_cgroup()
    return reasons


def _no_cgroup() -> str:
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with cgroup("probe", Limits()) as group, subprocess.Popen(sleep) as sleeper:
        try:
            group.add(sleeper.pid)
            return "" if sleeper.pid in group.pids() else "there is none for this process"
        except OSError as error:
            return str(error)
        finally:
            sleeper.kill()


class _ProbeError(Exception):
    """The process that tries the layers did not start, or ended early. The message is its last line of errors.

    layer: the one that kept it from starting.
    """

    def __init__(self, layer: str, reason: str):
        super().__init__(reason)
        self.layer = layer


#: How the last line of errors begins → the layer that kept a process from starting.
_CULPRITS = {
    **dict.fromkeys(("bwrap: execvp setpriv", "setpriv: ", "PermissionError: "), "own user"),
    "": "bubblewrap",
}


def _probe(unsafe: bool = False) -> dict[str, str]:
    """Return layer → why it does not hold for a confined process that tried it, "" where it does.

    unsafe: start that process without the layers of `launch`. Raises _ProbeError.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-m", "autograder.engine.sandbox", str(theirs.fileno()), str(os.geteuid())]
        try:
            process = launch("runner", argv, fds=[theirs.fileno()], errors=subprocess.PIPE, unsafe=unsafe)
        except FileNotFoundError as error:
            raise _ProbeError("bubblewrap", f"{error.filename} is not installed") from None
        theirs.close()
        _, errors = process.communicate()
        report = b"".join(iter(lambda: ours.recv(2**16), b""))
    if process.returncode or not report.endswith(b"}"):
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        layer = next(layer for start, layer in _CULPRITS.items() if last.startswith(start))
        raise _ProbeError(layer, last or f"the process that tries the layers ended with {process.returncode}")
    return json.loads(report)


#: As for a submission, except for what takes long to use up.
_TRIAL = replace(Limits(), processes=8, tmp_mib=1)


def _is_refused(attempt: Callable[[], object], *numbers: int) -> bool:
    try:
        attempt()
    except OSError as error:
        return error.errno in numbers
    return False


def _fork_too_often() -> None:
    children = []
    try:
        for _ in range(_TRIAL.processes + 1):
            children.append(os.fork())
            if not children[-1]:
                signal.pause()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


#: (layer, what it keeps a confined process from doing, the attempt, how the kernel refuses it)
_TRIALS = (
    ("namespaces", "see the processes outside", lambda: os.kill(os.getppid() or -1, 0), (errno.ESRCH,)),
    ("namespaces", "read about processes", lambda: os.stat("/proc/self"), (errno.ENOENT,)),
    ("seccomp", "make the system call unshare", lambda: linux.call("unshare", 0), (errno.EPERM,)),  # a no-op
    ("landlock", "list /dev", lambda: os.listdir("/dev"), (errno.EACCES,)),
    ("rlimits", "take more memory", lambda: mmap.mmap(-1, (_TRIAL.memory_mib + 1) * 2**20), (errno.ENOMEM,)),
    ("rlimits", "start more processes", _fork_too_often, (errno.EAGAIN,)),
    ("own tmp", "fill /tmp", lambda: Path("/tmp/large").write_bytes(bytes(2 * 2**20)), (errno.ENOSPC,)),
    ("own tmp", "write to /dev", lambda: Path("/dev/small").touch(), (errno.EROFS, errno.EACCES)),
)


def run_probe(sock: socket.socket, grader: int) -> None:
    """Try what the layers forbid in a confined process and report over `sock`: the launched side of `_probe`."""
    reasons = {}
    if _UNSAFE not in os.environ:
        shown = (ROOT / "autograder" / "commands.py").exists() or len(socket.if_nameindex()) > 1
        reasons["bubblewrap"] = "a process could see the grader's files or the network" if shown else ""
        reasons["own user"] = f"a process ran as user {grader}" if os.geteuid() == grader else ""
    failures: dict[str, OSError] = {}
    pid = enter(_TRIAL, keep=[sock.fileno()], failures=failures)
    if not pid:
        reasons |= {layer: str(error) for layer, error in failures.items()}
        for layer, deed, attempt, numbers in _TRIALS:
            if not reasons.get(layer):
                reasons[layer] = "" if _is_refused(attempt, *numbers) else f"a confined process could {deed}"
        untried = {layer for layer, below in _BUILT_ON.items() if below in failures}
        if os.geteuid() == 0:  # Linux does not count root's processes
            untried.add("rlimits")
        sock.sendall(json.dumps({layer: why for layer, why in reasons.items() if layer not in untried}).encode())
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
