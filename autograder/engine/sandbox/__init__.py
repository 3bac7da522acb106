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
import queue
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
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from autograder.engine.sandbox import cgroups, landlock, linux, seccomp
from autograder.engine.sandbox.cgroups import Group
from passlab import place

ROOT = Path(__file__).resolve().parents[3]

#: The library without what a judge compares with: of the exercises, only the lists that learners read.
_GIVEN = (
    *("*.py", "exercises/__init__.py", "exercises/*/__init__.py"),
    *("dataflow", "drawing", "equivalence", "formats", "fx", "given", "graph", "judge", "kernels", "measure"),
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
_FOR_GPU = ("/sys/devices", "/sys/bus/pci", "/sys/module")
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
    inodes: int = 2000
    stack_mib: int = 8


# ── Level 1: a trusted process that sees only its part ────────────────────────────────────────────────────────────────


def _visible(role: str) -> set[str]:
    """Return the paths a role may read: the system, Python with its packages, and its part of the project."""
    python = [path for prefix in (sys.base_prefix, sys.prefix) for path in (prefix, os.path.realpath(prefix))]
    part = [path for root in _roots() for pattern in READABLE[role] for path in glob.glob(str(root / pattern))]
    paths = [*SYSTEM, *(f"/etc/{name}" for name in ETC), *python, *part]
    return {path for path in paths if os.path.exists(path)}


def _roots() -> list[Path]:
    """Return the folders of the project and, if it lies elsewhere, of the course."""
    return list(dict.fromkeys((ROOT, place.course())))


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
        **({"PASSLAB_COURSE": str(own)} if (own := place.own()) else {}),
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
    if os.geteuid() != 0:
        return [*command, "--unshare-user", "--"]
    # Started by root, bubblewrap keeps all capabilities; changing the user drops them.
    user = str(USERS[role])
    drop = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    return [*command, "--", *drop, "--"]


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

_NAMESPACES = linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS


def device() -> str:
    """Return the device that graphs run on, in a process that `launch` has started."""
    return os.environ.get(_DEVICE, "cpu")


def enter(limits: Limits = Limits(), keep: Iterable[int] = (), gpu: bool = False) -> int:
    """Fork a confined child, as os.fork() would: return 0 in the child, the child's pid in the parent.

    For a single-threaded process that `launch` started as "runner". keep: file descriptors that stay open in the child;
    standard input, output and error go to /dev/null unless listed. gpu: let the GPU through, if the runner sees one.
    The child is process 1 of its namespace: when it ends, every process of the submission ends with it, and signals
    from inside reach it only if it handles them.
    Raises OSError where there are no namespaces; the child exits with NOT_CONFINED where another layer fails. In a
    process launched as unsafe, layers that fail are skipped.
    """
    unsafe = _UNSAFE in os.environ
    before_mib, user, group = address_space_mib(), os.geteuid(), os.getegid()
    try:
        pid = linux.fork_into(_NAMESPACES)
        apart = True
    except OSError:
        if not unsafe:
            raise
        pid, apart = os.fork(), False
    if pid:
        return pid
    try:
        readable, nodes = json.loads(os.environ[_SEEN]), json.loads(os.environ[_NODES])
        more = _FOR_GPU if gpu else ()
        if gpu and _SHOWN in os.environ:
            del os.environ["CUDA_VISIBLE_DEVICES"]
            if (shown := json.loads(os.environ[_SHOWN])) is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = shown
        os.setsid()
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        steps = [lambda: _map_user(user, group), lambda: _mounts(limits, readable, nodes, gpu)] if apart else []
        for step in (
            *steps,
            lambda: _rlimits(limits, before_mib),
            lambda: landlock.restrict((*readable, *more), ("/tmp", *DEVICES, *(nodes if gpu else ()))),
            linux.drop_capabilities,
            seccomp.install,
            lambda: _descriptors(set(keep)),
        ):
            _apply(step, unsafe)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"The worker could not be confined. {type(error).__name__}: {error}\n".encode())
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
    _apply(lambda: landlock.restrict(readable, remaining(writable, given)), unsafe=True)
    if programs:
        _apply(lambda: seccomp.install(("execve", "execveat")), unsafe=True)


def _apply(step: Callable[[], object], unsafe: bool) -> None:
    try:
        step()
    except OSError:
        if not unsafe:
            raise


def address_space_mib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * mmap.PAGESIZE // 2**20


def _map_user(user: int, group: int) -> None:
    """Map one user and one group into the new user namespace: those that this process has outside."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text)


def _mounts(limits: Limits, readable: Iterable[str], nodes: Iterable[str], gpu: bool) -> None:
    """Make everything read-only except for a fresh, small /tmp, and empty /proc; hide the GPU, unless `gpu`."""
    Path("/proc/self/oom_score_adj").write_text("1000")  # when memory runs out, kill the submission first
    try:
        linux.make_read_only("/")
    except OSError as error:
        if error.errno != errno.ENOSYS:  # before Linux 5.12: bubblewrap has already mounted everything read-only
            raise
    in_tmp = {path: os.open(path, os.O_PATH) for path in readable if path.startswith("/tmp/")}
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", "/tmp", "tmpfs", flags, f"size={limits.tmp_mib}m,nr_inodes={limits.inodes},mode=0700")
    for path, fd in in_tmp.items():  # where the project itself lies in /tmp
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).touch()
        linux.mount(f"/proc/self/fd/{fd}", path, "", linux.MS_BIND | linux.MS_REC)
        os.close(fd)
    for node in () if gpu else nodes:
        over = ("tmpfs", flags | linux.MS_RDONLY, "size=4k") if os.path.isdir(node) else ("", linux.MS_BIND, "")
        linux.mount("tmpfs" if over[0] else "/dev/null", node, *over)
    if not gpu:  # Landlock leaves the driver a few files of it
        linux.mount("tmpfs", "/proc", "tmpfs", flags | linux.MS_RDONLY, "size=4k,mode=0555")
    os.chdir("/tmp")


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


def cgroup(name: str, limits: Limits) -> contextlib.AbstractContextManager[Group]:
    """Return a control group for one submission (see `cgroups`): it counts all its processes and its /tmp together."""
    return cgroups.cgroup(name, limits.memory_mib + limits.tmp_mib, limits.processes)


# ── The layers that hold on this machine ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Layer:
    """The result of testing one layer here. `sentence`: what it guarantees or, if it does not hold, the remedy."""

    name: str
    holds: bool
    needed: bool
    sentence: str


#: layer → (needed?, what it guarantees, the risk and the remedy where it does not hold)
LAYERS = {
    "bubblewrap": (
        True,
        "learner code sees the system, Python and lib/passlab without the judges of exercises; no network",
        "learner code could read hidden cases and use the network: install bubblewrap "
        "(Debian: apt install bubblewrap); in a container, allow it namespaces "
        "(docker run --security-opt seccomp=unconfined --cap-add SYS_ADMIN)",
    ),
    "own user": (
        True,
        f"learner code runs as users {USERS['runner']} and {USERS['verifier']}, who own nothing",
        "learner code runs as you: only root can start it as another user",
    ),
    "namespaces": (
        True,
        "each submission sees only its own processes, and they all end with it",
        "submissions could reach each other's processes and leave some running: allow user namespaces "
        "(sysctl kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces=10000; "
        "on older Debians kernel.unprivileged_userns_clone=1)",
    ),
    "seccomp": (
        True,
        f"{len(seccomp.DENIED)} system calls are refused, among them socket, ptrace, mount and bpf",
        "learner code can make every system call: grade on Linux (x86-64 or ARM64) with CONFIG_SECCOMP_FILTER",
    ),
    "landlock": (
        False,
        f"file access is restricted a second time (ABI {landlock.abi() if sys.platform == 'linux' else 0})",
        "only mounts restrict file access: a kernel with Landlock (Linux 5.13, in `lsm=`) does it a second time",
    ),
    "rlimits": (
        True,
        "memory, processes, open files and file sizes are limited",
        "learner code can use up all memory or all processes: grade on Linux 5.14 or newer",
    ),
    "own tmp": (
        True,
        "each submission has its own /tmp of limited size and can write nowhere else",
        "learner code can fill the disk: this layer needs the namespaces above",
    ),
    "cgroup": (
        False,
        "memory and processes are limited for each submission as a whole",
        "memory is limited for each process of a submission, not for the submission as a whole: grade as root, "
        "or in a separate control group (systemd-run --user --scope -p Delegate=yes passlab grade …)",
    ),
}


def layers() -> list[Layer]:
    """Test each layer on this machine, in under a second: a confined process tries what the layer forbids."""
    try:
        held, why = _probe(unsafe=False), ""
    except OSError as error:
        why = str(error)
        try:
            held = _probe(unsafe=True)
        except OSError:
            held = {}
    held["cgroup"] = _cgroup_holds()
    found = []
    for name, (needed, good, remedy) in LAYERS.items():
        holds = held.get(name, False)
        sentence = good if holds else f"{remedy}; the error was: {why}" if why and name == "bubblewrap" else remedy
        needed = needed and (name != "own user" or os.geteuid() == 0)
        found.append(Layer(name, holds, needed, f"{sentence[0].upper()}{sentence[1:]}."))
    return found


def missing() -> list[str]:
    """Return one sentence, with its remedy, for each required layer that does not hold on this machine."""
    return [f"The layer “{one.name}” is missing. {one.sentence}" for one in layers() if one.needed and not one.holds]


def looks() -> dict[str, tuple[bool, Callable[[], tuple[bool, str]]]]:
    """Return the rows for `passlab doctor`. None of them is required there: learners do not grade."""
    return {f"sandbox: {one.name}": (False, lambda one=one: (one.holds, one.sentence)) for one in layers()}


def _cgroup_holds() -> bool:
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with cgroup("probe", Limits()) as group, subprocess.Popen(sleep) as sleeper:
        try:
            group.add(sleeper.pid)
            return sleeper.pid in group.pids()
        except OSError:
            return False
        finally:
            sleeper.kill()


def _probe(unsafe: bool) -> dict[str, bool]:
    """Return layer → whether it holds. Raises OSError with the last line of the error output if nothing starts."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-m", "autograder.engine.sandbox", str(theirs.fileno()), str(os.geteuid())]
        try:
            process = launch("runner", argv, fds=[theirs.fileno()], errors=subprocess.PIPE, unsafe=unsafe)
        except FileNotFoundError as error:
            raise OSError(f"{error.filename} is not installed") from None
        theirs.close()
        _, errors = process.communicate()
        said = b"".join(iter(lambda: ours.recv(2**16), b""))
    if process.returncode or not said.endswith(b"}"):
        raise OSError(errors.decode(errors="replace").strip().rpartition("\n")[2] or "no message")
    return json.loads(said)


_TRIAL = Limits(memory_mib=64, processes=8, files=64, file_mib=8, tmp_mib=1, inodes=64)


def _is_refused(attempt: Callable[[], object], *numbers: int) -> bool:
    try:
        attempt()
    except OSError as error:
        return error.errno in numbers
    return False


def _too_much() -> bool:
    """Return whether memory beyond the limit and one process too many are both refused."""
    memory = _is_refused(lambda: mmap.mmap(-1, (_TRIAL.memory_mib + 1) * 2**20), errno.ENOMEM)
    children = []
    try:
        for _ in range(_TRIAL.processes + 1):
            children.append(os.fork())
            if not children[-1]:
                signal.pause()
    except BlockingIOError:
        return memory
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
    return False


def _trials() -> dict[str, bool]:
    """Return layer → whether it refused what it forbids to this process, which `enter` has confined."""
    return {
        "namespaces": os.getpid() == 1 and not os.path.exists("/proc/self"),
        "seccomp": _is_refused(lambda: linux.call("unshare", 0), errno.EPERM),  # a no-op that needs no privilege
        "landlock": _is_refused(lambda: os.listdir("/dev"), errno.EACCES),
        "rlimits": _too_much(),
        "own tmp": _is_refused(lambda: Path("/tmp/large").write_bytes(bytes(2 * 2**20)), errno.ENOSPC)
        and _is_refused(lambda: Path("/dev/small").touch(), errno.EROFS, errno.EACCES),
    }


def run_probe(sock: socket.socket, grader: int) -> None:
    """Try what the layers forbid in a confined process and report over `sock`: the launched side of `_probe`."""
    held = {
        "bubblewrap": not (ROOT / "autograder" / "commands.py").exists() and len(socket.if_nameindex()) == 1,
        "own user": os.geteuid() != grader,
    }
    pid = enter(_TRIAL, keep=[sock.fileno()])
    if not pid:
        sock.sendall(json.dumps(held | _trials()).encode())
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
