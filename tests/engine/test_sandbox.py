"""What a confined process tries, and what comes of it: refused with the layers on, done with the right ones off.

A stand-alone script plays the warm parent: it confines a child for each attempt, and the child says what came of it.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from autograder.engine import engine, sandbox
from autograder.engine.sandbox import cgroups, landlock, seccomp
from autograder.engine.sandbox.linux import NUMBERS
from tests.support import users


def can_sandbox() -> bool:
    """Does this machine allow what the sandbox is made of? Asked without the code under test, which might be broken."""
    bare = ["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(bare, stderr=subprocess.DEVNULL).returncode == 0


pytestmark = pytest.mark.skipif(not can_sandbox(), reason="bubblewrap is not installed, or has no namespaces here")
ROOT = sandbox.ROOT

WARM = """
import ctypes, errno, glob, json, mmap, os, signal, socket, stat, sys, time, traceback
from pathlib import Path
from autograder.engine import sandbox
from autograder.engine.sandbox import landlock, linux, seccomp

sock, off, gpu = socket.socket(fileno=int(sys.argv[1])), sys.argv[2].split(), sys.argv[3] == "True"
for place, name in dict(seccomp=(seccomp, "install"), landlock=(landlock, "restrict"), rlimits=(sandbox, "_rlimits"),
        mounts=(sandbox, "_mounts"), hiding=(sandbox, "_hide_processes"), capabilities=(linux, "drop_capabilities"),
        descriptors=(sandbox, "_descriptors")).items():
    if place in off:
        setattr(*name, lambda *_: None)
if "no-landlock" in off:
    landlock.abi = lambda: 0
if "pids" in off:
    sandbox._NAMESPACES &= ~linux.CLONE_NEWPID

libc = ctypes.CDLL(None, use_errno=True)
def must(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

os.dup2(os.open("/dev/null", os.O_RDONLY), 77)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind("\\0passlab-warm-parent")
processes = lambda: len([p for p in os.listdir("/proc") if p.isdigit()])

def tell(told):
    sock.send(json.dumps(told).encode())

tell("ready")
while order := sock.recv(2**20):
    order = json.loads(order)
    alone = processes()
    pid = sandbox.enter(sandbox.Limits(**order["limits"]), keep=[sock.fileno()], gpu=gpu)
    if not pid:
        try:
            exec(order["source"], globals() | order["known"])
            tell("did it")
        except BaseException as error:
            tell(f"{type(error).__name__}: {error}")
        os._exit(0)
    if order["kill"]:
        order["kill"] and time.sleep(order["kill"])
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    tell({"exit": os.waitstatus_to_exitcode(status), "left": processes() - alone})
"""


SILENCE = "it ended without a word"


class Warm:
    """A warm parent, sandboxed, with the layers in `off` turned off; `bubblewrap` among them: launched without.

    `device`: of the parent; `gpu`: whether its children may use it."""

    def __init__(self, *off: str, device: str = "cpu", gpu: bool = False, **environment: str):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(60)
        argv = [sys.executable, "-c", WARM, str(theirs.fileno()), " ".join(off), str(gpu)]
        unsafe = "bubblewrap" in off
        how = {"environment": environment, "unsafe": unsafe, "device": device}
        self.process = sandbox.launch("runner", argv, fds=[theirs.fileno()], **how)
        theirs.close()
        assert self.hear() == "ready"

    def hear(self):
        return json.loads(self.sock.recv(2**20) or json.dumps(SILENCE))

    def attempt(self, source: str, kill: float = 0, known: dict | None = None, **limits) -> tuple[str | None, dict]:
        """What an attempt in a confined child said, and how the child ended."""
        order = {"source": textwrap.dedent(source), "kill": kill, "limits": limits, "known": known or {}}
        self.sock.send(json.dumps(order).encode())
        message = self.hear()
        return (None, message) if isinstance(message, dict) else (message, self.hear())

    def close(self):
        self.sock.close()
        self.process.wait(60)


@contextlib.contextmanager
def warm(*off: str):
    one = Warm(*off)
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def whole():
    with warm() as one:
        yield one


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """What an attempt may know: where things are outside."""
    secret = tmp_path_factory.mktemp("class") / "gradebook.db"
    secret.write_text("100 points")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {"root": str(ROOT), "home": str(Path.home()), "secret": str(secret), "port": server.getsockname()[1]}


KILLS = """
parent = os.getppid()
os.kill({}, signal.SIGKILL)
time.sleep(0.2)
if os.getppid() == parent:
    raise PermissionError("it is still there")
"""

#: attempt → (the layers that refuse it, one after the other; code that raises where it is refused)
ATTEMPTS = {
    "connect to a port of this machine": (
        "bubblewrap seccomp landlock", "socket.create_connection(('127.0.0.1', port), 2)"
    ),
    "read the gradebook": ("bubblewrap landlock mounts", "open(secret).read()"),
    "read hidden cases": ("bubblewrap landlock mounts", "open(root + '/autograder/answers/day01/levels.py').read()"),
    "read solutions": ("bubblewrap landlock mounts", "os.listdir(root + '/solutions')"),
    "read the grader's tests": ("bubblewrap landlock mounts", "os.listdir(root + '/tests')"),
    "read the repository": ("bubblewrap landlock mounts", "os.open(root + '/.git', os.O_RDONLY)"),
    "read the home folder": ("bubblewrap landlock mounts", "os.listdir(home)"),
    "read /etc/passwd": ("bubblewrap landlock mounts", "open('/etc/passwd').read()"),
    "write to /dev/shm": ("bubblewrap landlock mounts", "it = Path('/dev/shm/passlab-test'); it.touch(); it.unlink()"),
    "fill /tmp": ("mounts", "[Path(f'/tmp/{i}').write_bytes(bytes(20 << 20)) for i in range(4)]"),
    "fill /tmp with empty files": ("mounts", "[Path(f'/tmp/{i}').touch() for i in range(2001)]"),
    "write one large file": ("rlimits", "Path('/tmp/one').write_bytes(bytes(33 << 20))"),
    "fork without end": (
        "rlimits",
        """
        for _ in range(40):
            if not os.fork():
                signal.pause()
        """,
    ),
    "take memory": ("rlimits", "mmap.mmap(-1, 1100 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"),
    "take shared memory": ("rlimits", "mmap.mmap(-1, 1100 << 20)"),
    "take memory with memfd": ("seccomp", "os.memfd_create('large')"),
    "take System V memory": ("seccomp", "must(libc.shmget(0, 1 << 20, 0o1600))"),
    "open many files": ("rlimits", "[os.open('/dev/null', os.O_RDONLY) for _ in range(300)]"),
    "trace a process": ("seccomp", "must(libc.ptrace(0, 0, 0, 0))"),
    "read a process's memory": ("seccomp", "must(libc.process_vm_readv(os.getpid(), None, 0, None, 0, 0))"),
    "kill every process": ("pids landlock", KILLS.format("-1")),
    "kill the parent": ("pids landlock", KILLS.format("parent")),
    "make a namespace": ("seccomp", "must(libc.unshare(linux.CLONE_NEWUSER))"),
    "fork into a namespace": (
        "seccomp",
        """
        if not must(libc.syscall(linux.NUMBER["clone"], linux.CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)):
            os._exit(0)
        """,
    ),
    "fork into a namespace with clone3": (
        "seccomp",
        """
        libc.syscall(linux.NUMBER["clone3"], 0, 0)
        if ctypes.get_errno() == errno.ENOSYS:
            raise OSError("there is no clone3")
        """,
    ),
    "mount": ("seccomp landlock capabilities", "linux.mount('tmpfs', '/tmp', 'tmpfs', 0, '')"),
    "enter a namespace": (
        "seccomp",
        """
        libc.setns(-1, 0)
        if ctypes.get_errno() == errno.EPERM:  # it would say EBADF
            raise OSError("refused")
        """,
    ),
    "reach the parent by an abstract socket": (
        "seccomp landlock",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].connect('\\0passlab-warm-parent')",
    ),
    "offer an abstract socket": (
        "seccomp", "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].bind('\\0passlab-worker')"
    ),
    "read about processes": ("hiding landlock", "open('/proc/self/status').read()"),
    "use a file left open by the parent": ("descriptors", "os.fstat(77)"),
    "hold a lock that others see": (
        "seccomp",
        """
        import fcntl
        one, other = open(os.__file__), open(os.__file__)
        fcntl.flock(one, fcntl.LOCK_EX)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise OSError("nobody sees it")
        """,
    ),
    "see a byte that others have locked": (
        "seccomp",
        """
        import fcntl, struct
        one, other, form = open(os.__file__), open(os.__file__), "hhqqi4x"
        fcntl.fcntl(one, 37, struct.pack(form, fcntl.F_RDLCK, 0, 7, 1, 0))  # F_OFD_SETLK
        seen = fcntl.fcntl(other, 36, struct.pack(form, fcntl.F_WRLCK, 0, 7, 1, 0))  # F_OFD_GETLK
        if struct.unpack(form, seen)[0] == fcntl.F_UNLCK:
            raise OSError("nobody sees it")
        """,
    ),
    "watch what others open": ("seccomp", "must(libc.inotify_init1(0))"),
    "read a hint that others may leave on a file": (
        "seccomp",
        """
        import fcntl
        fcntl.fcntl(open(os.__file__), 1035, bytes(8))  # F_GET_RW_HINT
        """,
    ),
    "queue signals until nobody else can": (
        "rlimits",
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, [40])
        for _ in range(1000):
            must(libc.sigqueue(os.getpid(), 40, None))
        """,
    ),
    "gain a capability back": ("capabilities seccomp", "os.chroot('/tmp')"),  # seccomp refuses chroot as well
}  # fmt: skip


@pytest.mark.parametrize("name", ATTEMPTS)
def test_what_is_forbidden_is_refused(name, whole, known):
    message, end = whole.attempt(ATTEMPTS[name][1], known=known)
    assert message not in ("did it", None), f"A confined process could {name}."
    assert not message.startswith(("NameError", "SyntaxError", "TypeError", "AttributeError")), message
    assert end == {"exit": 0, "left": 0}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_without_its_layers_the_same_attempt_succeeds(name, known):
    """Otherwise the test above would hold for a reason of its own."""
    layers, source = ATTEMPTS[name]
    with warm(*layers.split()) as open_one:
        message, _ = open_one.attempt(source, known=known)
    assert message == (SILENCE if "kill" in name else "did it")  # with the warm parent goes all of its sandbox


#: attempts that several layers refuse, each by itself
ALONE = [
    ("connect to a port of this machine", "bubblewrap landlock"),
    ("connect to a port of this machine", "seccomp landlock"),
    ("connect to a port of this machine", "bubblewrap seccomp"),
    ("read /etc/passwd", "bubblewrap mounts"),
    ("read /etc/passwd", "landlock mounts"),
    ("kill every process", "landlock"),
    ("kill every process", "pids"),
    ("mount", "seccomp landlock"),
    ("mount", "landlock capabilities"),
    ("mount", "seccomp capabilities"),
    ("reach the parent by an abstract socket", "seccomp"),
    ("reach the parent by an abstract socket", "landlock"),
    ("read about processes", "hiding"),
    ("read about processes", "landlock"),
]


@pytest.mark.parametrize(("name", "off"), ALONE)
def test_each_layer_refuses_by_itself(name, off, known):
    left = set(ATTEMPTS[name][0].split()) - set(off.split())
    version = 6 if "kill" in name or "abstract" in name else 4 if "connect" in name else 1
    if left == {"landlock"} and landlock.abi() < version:
        pytest.skip(f"this kernel's Landlock (ABI {landlock.abi()}) does not cover it yet")
    with warm(*off.split()) as one:
        said, _ = one.attempt(ATTEMPTS[name][1], known=known)
    assert said not in ("did it", None)


def test_whoever_locks_a_file_of_their_own_may(whole):
    source = """
        import fcntl, sqlite3
        file = open('/tmp/own file', 'w')
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        base = sqlite3.connect('/tmp/own database')
        base.execute('create table a (b)')
        with base:
            base.execute('insert into a values (1)')
        assert base.execute('select b from a').fetchall() == [(1,)]
        """
    message, _ = whole.attempt(source)
    assert message == "did it"


def test_nothing_but_tmp_can_be_written(whole):
    message, _ = whole.attempt(
        """
        places = ["/", "/usr", "/etc", "/dev", "/dev/shm", "/dev/pts", "/proc", "/sys/devices/system/cpu", "/work"]
        places += [sys.prefix, sys.base_prefix, str(sandbox.ROOT), str(sandbox.ROOT / "lib/passlab"), "/home", "/root"]
        done = []
        for place in places:
            if place.startswith("/tmp/"):  # the project may lie there: its place in this /tmp is nobody else's
                continue
            try:
                Path(place, "planted").touch()
                done.append(place)
            except OSError:
                pass
        Path("/tmp/mine").write_text("mine")
        os.mkfifo("/tmp/fifo")
        for made in (stat.S_IFCHR, stat.S_IFBLK):
            try:
                os.mknod("/tmp/device", made | 0o600, os.makedev(1, 1))
                done.append(made)
            except OSError:
                pass
        for device in ("/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/vda", "/dev/sda", "/dev/ptmx", "/dev/tty"):
            try:
                os.open(device, os.O_RDWR)
                done.append(device)
            except OSError:
                pass
        assert not done, done
        """
    )
    assert message == "did it"


def test_one_submission_finds_nothing_of_the_one_before(whole):
    assert whole.attempt("Path('/tmp/message').write_text('the answer')")[0] == "did it"
    assert whole.attempt("print(open('/tmp/message').read())")[0].startswith("FileNotFoundError")


def test_the_environment_is_clean_and_the_standard_files_lead_nowhere(monkeypatch):
    monkeypatch.setenv("GRADEBOOK_PASSWORD", "hunter2")
    with warm() as one:
        said, _ = one.attempt(
            """
            assert "GRADEBOOK_PASSWORD" not in os.environ, "environment"
            assert os.environ["HOME"] == os.environ["TMPDIR"] == os.getcwd() == "/tmp"
            assert os.read(0, 1) == b"" and os.write(1, b"x") == os.write(2, b"x") == 1
            assert [os.readlink for fd in (0, 1, 2) if os.fstat(fd).st_rdev != os.makedev(1, 3)] == []
            assert os.geteuid() != 0 and os.getgroups() in ([], [os.getegid()]), os.getgroups()
            """
        )
    assert said == "did it"


DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        libc.prctl(1, 0)  # no signal when the parent dies
        while True:
            time.sleep(60)
    os._exit(0)
time.sleep(0.1)
"""


@pytest.mark.parametrize("end", ["it ends", "it is killed"])
def test_nothing_is_left_behind(end, whole):
    killed = end == "it is killed"
    _, ended = whole.attempt(DAEMON + ("while True: time.sleep(60)" if killed else ""), kill=0.3 if killed else 0)
    assert ended == {"exit": -signal.SIGKILL if killed else 0, "left": 0}


def test_without_process_ids_of_its_own_a_daemon_stays():
    with warm("pids") as one:
        assert one.attempt(DAEMON)[1]["left"] > 0


@pytest.mark.parametrize(
    ("source", "status"),
    [("os._exit(7)", 7), ("ctypes.string_at(0)", -signal.SIGSEGV), ("while True: pass", -signal.SIGKILL)],
)
def test_how_the_child_ended_is_told(source, status, whole):
    assert whole.attempt(source, cpu_s=1) == (None, {"exit": status, "left": 0})


def test_the_c_library_of_a_confined_child_knows_its_thread(whole):
    """It compares the id it keeps with those of other threads, which are small numbers in a namespace of their own."""
    message, _ = whole.attempt(
        """
        where = ctypes.c_void_p()
        linux.prctl(linux.PR_GET_TID_ADDRESS, ctypes.byref(where))
        assert ctypes.c_int.from_address(where.value).value == os.getpid() == 1
        """
    )
    assert message == "did it"


def test_a_child_that_cannot_be_confined_runs_nothing():
    with warm() as one:
        said, end = one.attempt("tell('ran')", tmp_mib=-1)
    assert said is None
    assert end == {"exit": sandbox.NOT_CONFINED, "left": 0}


# ── level 1 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_as(role: str, source: str, **more) -> str:
    """What a launched process prints on its standard error."""
    process = sandbox.launch(role, [sys.executable, "-c", textwrap.dedent(source)], errors=subprocess.PIPE, **more)
    return process.communicate(timeout=600)[1].decode()


def test_each_role_sees_its_part_of_the_project():
    look = f"""
        import os, sys
        print(sorted(os.listdir({str(ROOT)!r})), sorted(os.listdir({str(ROOT / "autograder")!r})), file=sys.stderr)
    """
    runner, verifier = run_as("runner", look), run_as("verifier", look)
    assert "'solutions'" not in runner and "['__init__.py', 'engine']" in runner
    assert "'solutions'" in verifier and "'answers'" in verifier
    for name in (".git", "tests", "exercises", "work"):
        assert f"'{name}'" not in runner + verifier


def test_a_worker_sees_every_package_of_the_library_but_the_judges():
    packages = {path.parent.name for path in ROOT.glob("lib/passlab/*/__init__.py")} - {"exercises"}
    assert {name for name in packages if f"lib/passlab/{name}" not in sandbox.READABLE["runner"]} == set()


def test_the_verifier_can_make_no_namespace_and_the_runner_can():
    source = """
        import ctypes, sys
        print(ctypes.CDLL(None).unshare(0x10000000), file=sys.stderr)
    """
    assert run_as("verifier", source) == "-1\n"
    assert run_as("runner", source) == "0\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes as another user")
def test_started_by_root_each_role_is_a_user_of_its_own_without_capabilities():
    source = """
        import os, sys
        caps = [line for line in open("/proc/self/status") if line.startswith("Cap")]
        print(os.getresuid(), os.getresgid(), {line.split()[1] for line in caps}, file=sys.stderr)
    """
    for role, user in sandbox.USERS.items():
        assert run_as(role, source) == f"{(user,) * 3} {(user,) * 3} {{'{'0' * 16}'}}\n"


def test_more_paths_and_variables_can_be_given(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "model").write_text("weights")
    tmp_path.chmod(0o700)
    source = "import os; os.write(2, open(os.environ['MODEL']).read().encode())"
    arguments = {"readable": [tmp_path / "inside"], "environment": {"MODEL": str(tmp_path / "inside" / "model")}}
    assert run_as("runner", source, **arguments) == "weights"


def test_a_writable_folder_is_there_for_its_process_alone(tmp_path):
    folder = tmp_path / "kept"
    write = f"open({str(folder / 'entry')!r}, 'w').write('kept')"
    assert run_as("verifier", write, writable=[str(folder)]) == ""
    assert (folder / "entry").read_text() == "kept"
    look = f"import os, sys; print(os.path.exists({str(folder)!r}), file=sys.stderr)"
    assert run_as("runner", look) == run_as("verifier", look) == "False\n"


def test_what_modules_computed_is_out_of_sight_of_learners():
    items = Path(engine.BUILDS)
    assert not [path for path in sandbox._visible("runner") if items.is_relative_to(path)]


def test_what_is_visible_in_tmp_stays_visible_in_the_small_tmp(tmp_path):
    """A project that itself lies in /tmp, as under a test."""
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "module.py").write_text("x = 1")
    source = f"""
        import os
        from autograder.engine import sandbox
        pid = sandbox.enter(sandbox.Limits())
        if not pid:
            text = open({str(tmp_path / "part" / "module.py")!r}).read()
            try:
                open({str(tmp_path / "part" / "planted")!r}, "w")
            except OSError:
                os._exit(len(text))
            os._exit(99)
        os.write(2, str(os.waitstatus_to_exitcode(os.wait()[1])).encode())
    """
    assert run_as("runner", source, readable=[tmp_path / "part"]) == "5"


def test_a_course_in_tmp_shows_a_submission_its_readable_part_alone(tmp_path, monkeypatch):
    for name in ("lib/passlab/given/day01", "solutions/day01", "autograder/answers/day01"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("PASSLAB_COURSE", str(tmp_path))
    source = f"""
        import json, os
        from autograder.engine import sandbox
        if not sandbox.enter(sandbox.Limits(), keep=[2]):
            seen, done = [path[0] for path in os.walk({str(tmp_path)!r})], []
            for path in seen:
                try:
                    done.append(os.open(path + "/planted", os.O_WRONLY | os.O_CREAT))
                except OSError:
                    pass
            os.write(2, json.dumps([sorted(os.path.relpath(path, seen[0]) for path in seen), done]).encode())
            os._exit(0)
        os.wait()
    """
    part = [".", "lib", "lib/passlab", "lib/passlab/given", "lib/passlab/given/day01"]
    assert json.loads(run_as("runner", source)) == [part, []]


@pytest.mark.parametrize("part", ["", "a long way/to/the/project"])
def test_a_submission_has_all_inodes_and_bytes_wherever_the_project_lies(part, tmp_path):
    """What leads to the project in /tmp takes inodes, too: as many paths as a clone has, and one that holds others."""
    paths = [tmp_path / part / f"module{n}" for n in range(100)] if part else []
    for path in paths:
        (path / "inner").mkdir(parents=True)
    source = """
        import json, os
        from autograder.engine import sandbox
        limits = sandbox.Limits(inodes=70, tmp_mib=1)
        failures, (reader, writer) = {}, os.pipe()
        if not sandbox.enter(limits, keep=[writer], failures=failures):
            counts = []
            for attempt in (lambda n: open(f"/tmp/{n}", "w").close(), lambda n: os.write(file, bytes(4096))):
                count = 0
                try:
                    while count < 1000:
                        attempt(count)
                        count += 1
                except OSError as error:
                    counts.append([count, error.errno])
                file = os.open("/tmp/0", os.O_WRONLY)
            os.write(writer, json.dumps([counts, list(failures)]).encode())
            os._exit(0)
        os.close(writer)
        os.wait()
        os.write(2, os.read(reader, 1000))
    """
    readable = [*paths, *(path / "inner" for path in paths[:3])]
    assert json.loads(run_as("runner", source, readable=readable)) == [[[70, 28], [256, 28]], []]


GRADER = """
import os, socket, sys
from autograder.engine import sandbox
ours, theirs = socket.socketpair()
source = '''
import os, socket, sys, time
from autograder.engine import sandbox
sock = socket.socket(fileno=int(sys.argv[1]))
if sandbox.enter(sandbox.Limits(), keep=[sock.fileno()]):
    os.wait()
sandbox.announce(sock)
time.sleep(600)
'''
process = sandbox.launch("runner", [sys.executable, "-c", source, str(theirs.fileno())], fds=[theirs.fileno()])
theirs.close()
print(process.pid, sandbox.pid_of(ours), flush=True)
process.wait()
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_when_the_grader_is_killed_nothing_stays():
    grader = subprocess.Popen([sys.executable, "-c", GRADER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    bubblewrap, worker = map(int, grader.stdout.readline().split())
    assert not gone(bubblewrap) and not gone(worker)
    grader.kill()
    grader.wait()
    until = time.monotonic() + 600
    while not (gone(bubblewrap) and gone(worker)) and time.monotonic() < until:
        time.sleep(0.02)
    left = [pid for pid in (bubblewrap, worker) if not gone(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_a_launched_process_outlives_the_thread_that_launched_it():
    import threading

    started = []
    thread = threading.Thread(target=lambda: started.append(Warm()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert started[0].attempt("pass")[0] == "did it"
    started[0].close()


def test_a_worker_is_known_by_its_real_process_id_and_cannot_claim_another(whole):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if not child:
            sandbox.announce(theirs)
            os._exit(0)
        assert sandbox.pid_of(ours) == child
        os.waitpid(child, 0)
    message, _ = whole.attempt(
        """
        import struct
        a, b = socket.socketpair()
        b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        claim = struct.pack("3i", 2, os.getuid(), os.getgid())
        a.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, claim)])
        """
    )
    assert message.startswith("PermissionError")


def test_a_worker_that_says_nothing_is_found_out():
    ours, theirs = socket.socketpair()
    theirs.shutdown(socket.SHUT_WR)
    with ours, theirs, pytest.raises(ConnectionError, match="ended before"):
        sandbox.pid_of(ours)


# ── what learners do must work ────────────────────────────────────────────────────────────────────────────────────────

USUAL = """
import os, socket, subprocess, sys, time
import torch
torch.set_num_threads(1)
torch.nn.Linear(8, 8)(torch.ones(2, 8)).sum().backward()
import matplotlib.pyplot
from IPython.core.interactiveshell import InteractiveShell
from passlab import draw
from autograder.engine import sandbox

def cost(fork):
    start = time.perf_counter()
    if not (pid := fork()):
        os._exit(0)
    os.waitpid(pid, 0)
    return 1000 * (time.perf_counter() - start)

bare = sorted(cost(os.fork) for _ in range(21))[10]
confined = sorted(cost(sandbox.enter) for _ in range(21))[10]
reader, writer = os.pipe()
pid = sandbox.enter(keep=[writer])
if not pid:
    os.dup2(writer, 2)
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    result = shell.run_cell(sys.argv[1])
    told = "it worked" if result.success else repr(result.error_in_exec or result.error_before_exec)
    os.write(writer, told.encode())
    os._exit(0)
os.close(writer)
said = b"".join(iter(lambda: os.read(reader, 4096), b""))
os.waitpid(pid, 0)
sys.stderr.write(f"{bare:.1f} {confined:.1f} {said.decode()}")
"""

CELL = """
import asyncio, concurrent.futures, multiprocessing, tempfile
import matplotlib.pyplot as plt
import torch, torch.fx
from passlab import draw

def f(x): return torch.relu(x @ x.T) + 1
traced = torch.fx.symbolic_trace(f)
assert torch.equal(traced(torch.ones(3, 3)), f(torch.ones(3, 3)))
torch.nn.Conv2d(3, 16, 3)(torch.randn(1, 3, 32, 32)).sum().backward()
assert "<svg" in draw(traced).html, "Graphviz"
figure, axes = plt.subplots()
axes.plot([1, 2, 3])
figure.savefig(tempfile.mktemp(suffix=".png"))
asyncio.run(asyncio.sleep(0))
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(abs, [-1, 2])) == [1, 2]
import subprocess
assert subprocess.run(["sh", "-c", "echo hello | tr a-z A-Z"], capture_output=True, text=True).stdout == "HELLO\\n"
"""


def test_cells_with_torch_graphs_and_figures_run_inside():
    process = sandbox.launch("runner", [sys.executable, "-W", "ignore", "-c", USUAL, CELL], errors=subprocess.PIPE)
    output = process.communicate(timeout=120)[1].decode()
    bare, confined, rest = output.split(" ", 2)
    print(f"a fork of a process with torch: {bare} ms bare, {confined} ms confined")
    assert rest == "it worked", output


# ── control groups ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def divisible():
    try:
        cgroups.parents(os.getpid())
    except OSError as error:
        pytest.skip(f"no control groups: {error}")


@pytest.fixture
def group(divisible):
    with sandbox.cgroup(f"test-{time.monotonic_ns()}", sandbox.Limits(memory_mib=64, tmp_mib=0, processes=8)) as one:
        assert one
        yield one


def start_in(group, source: str) -> subprocess.Popen:
    """A plain process that joins the group before it runs `source`."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import os, sys, time; sys.stdin.read(1)\n" + textwrap.dedent(source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    group.add(process.pid)
    process.stdin.write(b"!")
    process.stdin.close()
    return process


def test_the_memory_of_all_processes_of_a_group_is_limited_together(group):
    source = """
        for _ in range(4):
            if not os.fork():
                held = b"x" * (30 << 20)
                time.sleep(60)
        while True:
            os._exit(os.WTERMSIG(os.wait()[1]))
    """
    process = start_in(group, source)
    assert process.wait(60) in (signal.SIGKILL, -signal.SIGKILL)
    assert 32 < group.peak_mib() <= 64.5


def test_the_processes_of_a_group_are_limited_together(group):
    source = """
        import signal
        for n in range(20):
            try:
                if not os.fork():
                    signal.pause()
            except BlockingIOError:
                os._exit(n)
    """
    assert start_in(group, source).wait(60) == 7


def test_a_group_tells_its_processor_time_and_is_killed_whole(group):
    process = start_in(group, "if os.fork(): os.fork()\nwhile True: pass")
    until = time.monotonic() + 600
    while group.cpu_seconds() < 0.2 and time.monotonic() < until:
        time.sleep(0.02)
    assert 0.2 <= group.cpu_seconds() < 20
    assert len(group.pids()) == 3
    group.kill()
    assert group.pids() == set()
    assert process.wait(60) == -signal.SIGKILL


def test_at_its_end_a_group_is_killed_and_removed(divisible):
    with sandbox.cgroup("short", sandbox.Limits()) as one:
        folders = list(one.folders.values())
        process = start_in(one, "time.sleep(60)")
    assert process.wait(60) == -signal.SIGKILL
    assert folders and not [folder for folder in folders if folder.exists()]


def test_where_there_are_no_control_groups_the_context_holds_nothing(monkeypatch):
    def none(*_):
        raise OSError("no control groups are mounted")

    monkeypatch.setattr(cgroups, "make", none)
    with sandbox.cgroup("none", sandbox.Limits()) as one:
        one.add(os.getpid())
        assert (bool(one), one.peak_mib(), one.cpu_seconds(), one.pids()) == (False, 0.0, 0.0, set())


def test_version_2_groups_are_written_as_the_kernel_wants_them(monkeypatch, tmp_path):
    """On folders made up here: few machines that run the tests can divide a group of version 2."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(cgroups, "_hierarchies", lambda: {"": tmp_path})
    cgroups.parents.cache_clear()
    try:
        group = cgroups.make("two", 64, 8)
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids"
        assert (tmp_path / "passlab-grader" / "cgroup.procs").read_text() == str(os.getpid())
        folder = next(tmp_path.glob(f"passlab-*-{os.getpid()}-two"))
        assert (folder / "memory.max").read_text() == str(64 * 2**20)
        assert (folder / "pids.max").read_text() == "8"
        (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
        (folder / "memory.peak").write_text(f"{3 * 2**20}\n")
        assert (group.cpu_seconds(), group.peak_mib()) == (1.5, 3.0)
        (folder / "cgroup.procs").write_text("")
        (folder / "cgroup.kill").write_text("")
        group.kill()
        assert (folder / "cgroup.kill").read_text() == "1"
    finally:
        cgroups.parents.cache_clear()


def test_a_killed_graders_empty_groups_are_swept(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getpid()):
        (tmp_path / f"{cgroups._prefix()}-{pid}-7").mkdir()
    cgroups._sweep({tmp_path})
    assert [path.name for path in tmp_path.iterdir()] == [f"{cgroups._prefix()}-{os.getpid()}-7"]


IN_A_CONTAINER = """
import os, sys
from autograder.engine.sandbox import cgroups

for _ in range(500):  # more than the processes with small numbers that run outside
    if not os.fork():
        os._exit(0)
    os.wait()
if not os.fork():
    group = cgroups.make("held", 64, 8)
    print("ready", flush=True)
    sys.stdin.read()
    print(*(folder.exists() for folder in group.folders.values()), flush=True)
    group.remove()
    os._exit(0)
os.wait()
"""


def test_the_groups_of_a_grader_in_another_container_are_not_swept(divisible):
    words = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid", "--proc", "/proc"]
    command = [*words, "--die-with-parent", "--cap-add", "ALL", "--", sys.executable, "-c", IN_A_CONTAINER]
    other = subprocess.Popen(command, cwd=sandbox.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "ready\n"
    cgroups._sweep(set(cgroups.parents(os.getpid())[0].values()))
    assert set(other.communicate(timeout=600)[0].split()) == {"True"}


# ── what is said about it ─────────────────────────────────────────────────────────────────────────────────────────────


def test_all_layers_are_looked_at():
    result = sandbox.layers()
    assert [layer.name for layer in result] == list(sandbox.LAYERS)
    assert all(layer.holds for layer in result if layer.needed)


@pytest.fixture
def no_bubblewrap(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda *_, **__: None)


def test_without_bubblewrap_it_is_named_with_the_remedy(no_bubblewrap):
    message = sandbox.missing()
    assert message and "apt install bubblewrap" in message[0] and "bwrap is not installed" in message[0]
    assert sandbox.doctor_checks()["sandbox: bubblewrap"][0] is False
    assert sandbox.doctor_checks()["sandbox: bubblewrap"][1]()[0] is False


#: Stands in for `python -m autograder.engine.sandbox`: the same trials, with one function replaced.
TRIED = """
import errno, os, socket, sys
from autograder.engine import sandbox
from autograder.engine.sandbox import landlock, linux, seccomp

def fail(*_):
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), "/the/place")

{} = {}
sandbox.run_probe(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
"""
#: the function that carries out a step of `enter` → (its layer, the layers that cannot be tried without it)
STEPS = {
    "linux.fork_into": ("namespaces", {"own tmp"}),
    "sandbox._map_user": ("namespaces", {"own tmp"}),
    "sandbox._hide_processes": ("namespaces", {"own tmp"}),
    "linux.drop_capabilities": ("namespaces", {"own tmp"}),
    "sandbox._mounts": ("own tmp", set()),
    "sandbox._rlimits": ("rlimits", set()),
    "landlock.restrict": ("landlock", set()),
    "seccomp.install": ("seccomp", set()),
    "sandbox._descriptors": ("bubblewrap", set()),
}


def replaced(monkeypatch, function: str, by: str) -> dict[str, sandbox.Layer]:
    """The layers of this machine by name, as tried by a process that has `by` in place of a function."""
    real = sandbox.launch

    def launch(role, argv, **more):
        assert argv[1:3] == ["-m", "autograder.engine.sandbox"]
        return real(role, [sys.executable, "-c", TRIED.format(function, by), *argv[3:]], **more)

    monkeypatch.setattr(sandbox, "launch", launch)
    return {layer.name: layer for layer in sandbox.layers()}


def lacking(result: dict[str, sandbox.Layer]) -> set[str]:
    """The layers that do not hold, without those that few machines lend to whoever runs the tests."""
    return {name for name, layer in result.items() if not layer.holds and (layer.needed or name == "landlock")}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_is_named_with_its_reason_and_no_other(step, monkeypatch):
    layer, untried = STEPS[step]
    result = replaced(monkeypatch, step, "fail")
    assert lacking(result) == {layer} | untried
    assert "[Errno 18] Invalid cross-device link: '/the/place'" in result[layer].sentence and result[layer].tried
    for name in untried:
        assert not result[name].tried and result[name].sentence == f"Could not be tried, because “{layer}” failed."
    message = " ".join(sandbox.missing())
    assert message.count("/the/place") == (1 if result[layer].needed else 0)
    assert {name for name in sandbox.LAYERS if f"“{name}”" in message} == {
        n for n in lacking(result) if result[n].needed
    }


#: what takes effect of a layer away without an error → (what stands in its place, the layer)
NOTHING = "lambda *_: None"
HOLLOW = {
    "sandbox._NAMESPACES": ("sandbox._NAMESPACES & ~linux.CLONE_NEWPID", "namespaces"),
    "sandbox._hide_processes": (NOTHING, "namespaces"),
    "sandbox._mounts": (NOTHING, "own tmp"),
    "sandbox._rlimits": (NOTHING, "rlimits"),
    "landlock.restrict": (NOTHING, "landlock"),
    "seccomp.install": (NOTHING, "seccomp"),
}


@pytest.mark.parametrize("step", HOLLOW)
def test_a_layer_that_refuses_nothing_is_found_out(step, monkeypatch):
    by, layer = HOLLOW[step]
    result = replaced(monkeypatch, step, by)
    assert lacking(result) == {layer}
    assert "a confined process could " in result[layer].sentence


def test_a_process_that_sees_all_is_found_out(monkeypatch):
    real = sandbox._bubblewrap

    def seeing_all(role, paths, *rest):
        return real(role, {*paths, str(ROOT / "autograder")}, *rest)

    monkeypatch.setattr(sandbox, "_bubblewrap", seeing_all)
    message = sandbox.missing()
    assert len(message) == 1 and "“bubblewrap”" in message[0] and "could see the grader's files" in message[0]


#: what goes wrong with bubblewrap's command → (the change to it, the layer, its reason)
COMMANDS = {
    "bubblewrap cannot mount": (
        lambda command: [command[0], "--ro-bind", "/nowhere", "/nowhere", *command[1:]],
        "bubblewrap", "bwrap: Can't find source path /nowhere: No such file or directory",
    ),
    "bubblewrap does not start": (
        lambda command: ["/bin/false", *command[1:]],
        "bubblewrap", "the process that tries the layers ended with 1",
    ),
    "the user cannot be changed": (
        lambda command: [word.replace(str(sandbox.USERS["runner"]), "no-such-user") for word in command],
        "own user", "setpriv: ",
    ),
    "there is no setpriv": (
        lambda command: [word.replace("setpriv", "setpriv-nowhere") for word in command],
        "own user", "bwrap: execvp setpriv-nowhere: No such file or directory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_what_keeps_a_process_from_starting_is_named_and_the_rest_is_tried_without_it(name, monkeypatch):
    change, layer, reason = COMMANDS[name]
    if os.geteuid() != 0 and layer == "own user":
        pytest.skip("only root starts processes as another user")
    real = sandbox._bubblewrap
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda *arguments: change(real(*arguments)))
    results = {one.name: one for one in sandbox.layers()}
    # Without another user, a process of root's is left, and Linux does not count those.
    assert lacking(results) == ({"bubblewrap", "own user", "rlimits"} if os.geteuid() == 0 else {"bubblewrap"})
    assert reason in results[layer].sentence and results[layer].tried
    for untried in lacking(results) - {layer}:
        assert not results[untried].tried
        assert results[untried].sentence == f"Could not be tried, because “{layer}” failed."


@pytest.fixture(params=["a folder of its own", "a visible folder", "/dev"])
def project(request, tmp_path, monkeypatch):
    """A copy of the project somewhere else, which is the one that is launched."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if request.param == "/dev" else tmp_path))
    for name in ("autograder", "lib"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (tmp_path, folder):
        path.chmod(0o755)
    if request.param == "a visible folder":
        monkeypatch.setattr(sandbox, "SYSTEM", (*sandbox.SYSTEM, str(tmp_path)))
    monkeypatch.setattr(sandbox, "ROOT", folder)
    yield folder
    shutil.rmtree(folder)


def test_the_project_may_lie_anywhere(project):
    assert sandbox.missing() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes as another user")
def test_a_project_that_others_may_not_read_is_named(project):
    subprocess.run(["chmod", "-R", "go-rwx", str(project / "autograder"), str(project / "lib")], check=True)
    message = sandbox.missing()[0]
    assert message.startswith("The layer “own user” is missing.") and "chmod -R a+rX" in message
    assert f"Permission denied: '{project}/" in message


def test_where_nothing_starts_the_reason_is_given_once(no_bubblewrap, monkeypatch):
    monkeypatch.setattr(sandbox.sys, "executable", "/bin/false")
    results = {one.name: one for one in sandbox.layers()}
    assert [name for name, one in results.items() if one.tried] in (["bubblewrap"], ["bubblewrap", "cgroup"])
    first, rest = sandbox.missing()
    assert "bwrap is not installed" in first and rest.count("could not be tried") == 1 and "“rlimits”" in rest
    assert rest.endswith(": could not be tried, because “bubblewrap” failed.")


def test_the_cpu_time_of_a_process_is_that_of_its_tree_and_not_that_of_the_clock():
    busy = "import time; end = 0.3 + time.process_time()\nwhile time.process_time() < end: pass"
    child = f"{busy}\nprint(flush=True); input()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-Sc', {child!r}])"
    with subprocess.Popen([sys.executable, "-Sc", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # both wait now
        used = sandbox.cpu_seconds(process.pid)
        time.sleep(0.5)
        assert used >= 0.3 and sandbox.cpu_seconds(process.pid) < used + 0.1
        process.communicate(b"\n")
    assert sandbox.cpu_seconds(process.pid) == 0.0


def test_a_container_is_to_be_started_as_the_page_on_containers_says(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: f"/usr/bin/{name}")
    rows = re.findall(r"^\| (podman|docker) \| `(.*)` \|$", Path("docs/containers.md").read_text(), re.MULTILINE)
    assert [tool for tool, _ in rows] == ["podman", "docker"]
    for tool, options in rows:
        sentence = re.search(rf"{tool} run ([^;]*);", sandbox._bubblewrap_needs())
        assert set(sentence[1].split()) == set(options.split())


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("6.18.0-rc1", ""),
        ("5.14", ""),
        ("5.10.0-21-amd64", ". This layer needs Linux 5.14 or newer (this is 5.10.0-21-amd64)"),
    ],
)
def test_a_kernel_that_is_new_enough_is_not_asked_for(monkeypatch, release, said):
    monkeypatch.setattr(sandbox.platform, "release", lambda: release)
    result = replaced(monkeypatch, "sandbox._rlimits", NOTHING)["rlimits"].sentence
    assert result.endswith(f"a confined process could take more memory{said}.")


@pytest.mark.skipif(os.geteuid() != 0, reason="what root is told")
def test_root_is_not_told_to_be_root(monkeypatch):
    change, _, _ = COMMANDS["the user cannot be changed"]
    real = sandbox._bubblewrap
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda *arguments: change(real(*arguments)))
    monkeypatch.setattr(sandbox, "_no_cgroup", lambda: "there is none for this process")
    results = {one.name: one.sentence for one in sandbox.layers()}
    for layer in ("own user", "cgroup"):
        assert "This layer needs " in results[layer] and "root" not in results[layer] and "apt" not in results[layer]


def test_a_kernel_without_landlock_grades(monkeypatch):
    """It is not required, so a submission's process has to do without, and nothing else."""
    with warm("no-landlock") as one:
        assert one.attempt("pass") == ("did it", {"exit": 0, "left": 0})
        assert one.attempt("os.listdir('/dev')")[0] == "did it"


def test_unsafe_runs_without_bubblewrap_and_keeps_what_holds(no_bubblewrap, known):
    with warm("bubblewrap") as one:
        assert one.attempt("print('fine')")[0] == "did it"
        assert one.attempt(ATTEMPTS["read the gradebook"][1], known=known)[0] != "did it"
        assert one.attempt(ATTEMPTS["take memory"][1])[0].startswith("OSError: [Errno 12]")


def test_an_ordinary_user_loses_only_what_needs_root(tmp_path):
    look = "[(one.name, one.holds, one.needed) for one in sandbox.layers()]"
    source = f"import json; from autograder.engine import sandbox; print(json.dumps({look}))"
    command = users.ordinary([sys.executable, "-c", source], tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {name for name, holds, _ in result if not holds} <= {"own user", "cgroup", "landlock"}, result
    assert not [name for name, holds, needed in result if needed and not holds]


def test_the_two_machines_system_calls_agree_where_linux_numbers_them_alike():
    """From 424 on every machine has the same numbers."""
    intel, arm = NUMBERS["x86_64"], NUMBERS["aarch64"]
    late = [name for name in intel if intel[name] >= 424]
    assert len(late) > 12 and all(arm[name] == intel[name] for name in late)
    assert set(seccomp.DENIED) - set(intel) == set()
    assert set(seccomp.DENIED) - set(arm) == {"uselib", "iopl", "ioperm", "modify_ldt", "inotify_init"}
    assert len(seccomp.program("aarch64")) % 8 == 0
    with pytest.raises(OSError, match="riscv64") as error:
        seccomp.program("riscv64")
    assert error.value.errno == errno.ENOSYS


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
def test_libseccomp_knows_the_system_calls_by_the_same_numbers(machine, arch):
    """Debian's package manager brings libseccomp; the numbers of calls newer than it are its own (-1)."""
    library = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    seen = {name: library.seccomp_syscall_resolve_name_arch(arch, name.encode()) for name in NUMBERS[machine]}
    known = {name: number for name, number in seen.items() if number >= 0}
    assert len(known) > len(seen) - 4
    assert known == {name: NUMBERS[machine][name] for name in known}
