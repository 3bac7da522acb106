"""Linux system calls that Python does not wrap, by number: the sandbox's layers are built from them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (entry.split("=") for entry in text.split())}


#: machine → name → number, as in the kernel's headers. There is no sandbox on other machines.
NUMBERS = {
    "x86_64": _table(
        """
        capset=126 clone=56 clone3=435 ioctl=16 landlock_add_rule=445 landlock_create_ruleset=444
        landlock_restrict_self=446 mknod=133 mknodat=259 mount=165 mount_setattr=442 prctl=157 acct=163 add_key=248
        adjtimex=159 bind=49 bpf=321 chroot=161 clock_adjtime=305 clock_settime=227 connect=42 delete_module=176
        fanotify_init=300 finit_module=313 fsconfig=431 fsmount=432 fsopen=430 fspick=433 init_module=175
        io_uring_enter=426 io_uring_register=427 io_uring_setup=425 ioperm=173 iopl=172 kcmp=312 kexec_file_load=320
        kexec_load=246 keyctl=250 listen=50 lookup_dcookie=212 memfd_create=319 memfd_secret=447 migrate_pages=256
        modify_ldt=154 move_mount=429 move_pages=279 mq_open=240 msgget=68 name_to_handle_at=303 open_by_handle_at=304
        open_tree=428 perf_event_open=298 personality=135 pidfd_getfd=438 pivot_root=155 process_madvise=440
        process_vm_readv=310 process_vm_writev=311 ptrace=101 quotactl=179 quotactl_fd=443 reboot=169
        execve=59 execveat=322 fcntl=72 flock=73 inotify_init=253 inotify_init1=294 cachestat=451
        remap_file_pages=216 request_key=249 semget=64 setdomainname=171 sethostname=170 setns=308 settimeofday=164
        shmat=30 shmget=29 socket=41 swapoff=168 swapon=167 syslog=103 umount2=166 unshare=272 uselib=134
        userfaultfd=323 vhangup=153 vmsplice=278
        """
    ),
    "aarch64": _table(
        """
        capset=91 clone=220 clone3=435 ioctl=29 landlock_add_rule=445 landlock_create_ruleset=444
        landlock_restrict_self=446 mknodat=33 mount=40 mount_setattr=442 prctl=167 acct=89 add_key=217 adjtimex=171
        bind=200 bpf=280 chroot=51 clock_adjtime=266 clock_settime=112 connect=203 delete_module=106 fanotify_init=262
        finit_module=273 fsconfig=431 fsmount=432 fsopen=430 fspick=433 init_module=105 io_uring_enter=426
        io_uring_register=427 io_uring_setup=425 kcmp=272 kexec_file_load=294 kexec_load=104 keyctl=219 listen=201
        lookup_dcookie=18 memfd_create=279 memfd_secret=447 migrate_pages=238 move_mount=429 move_pages=239
        mq_open=180 msgget=186 name_to_handle_at=264 open_by_handle_at=265 open_tree=428 perf_event_open=241
        personality=92 pidfd_getfd=438 pivot_root=41 process_madvise=440 process_vm_readv=270 process_vm_writev=271
        ptrace=117 quotactl=60 quotactl_fd=443 reboot=142 remap_file_pages=234 request_key=218 semget=190
        execve=221 execveat=281 fcntl=25 flock=32 inotify_init1=26 cachestat=451
        setdomainname=162 sethostname=161 setns=268 settimeofday=170 shmat=196 shmget=194 socket=198 swapoff=225
        swapon=224 syslog=116 umount2=39 unshare=97 userfaultfd=282 vhangup=58 vmsplice=75
        """
    ),
}
NUMBER = NUMBERS.get(platform.machine(), {})

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x10000000, 0x20000000, 0x40000000, 0x80
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC = 1, 2, 4, 8, 0x1000, 0x4000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_GET_TID_ADDRESS = 1, 22, 24, 38, 40


class _C:
    """The C library. PyDLL keeps the GIL during a call: after a raw `clone` the child must still hold it."""

    library: ctypes.PyDLL | None = None

    @classmethod
    def get(cls) -> ctypes.PyDLL:
        if cls.library is None:
            cls.library = ctypes.PyDLL(None, use_errno=True)
            cls.library.syscall.restype = ctypes.c_long
        return cls.library


def call(name: str, *arguments) -> int:
    """Make the system call `name`. Raises OSError with the kernel's reason, ENOSYS on a machine without a table."""
    if name not in NUMBER:
        raise OSError(38, f"{name}: no system call number for {platform.system()} {platform.machine()}")
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = _C.get().syscall(ctypes.c_long(NUMBER[name]), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


@contextlib.contextmanager
def naming(thing: str) -> Iterator[None]:
    """Give an OSError of the body the name of what it is about: the kernel tells its number only."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, thing) from None


def prctl(option: int, first=0, second=0) -> int:
    return call("prctl", option, first, second, 0, 0)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    with naming(target):
        call("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, options.encode())


def make_read_only(path: str) -> None:
    """Make a mount and all mounts below it read-only in this mount namespace (Linux 5.12)."""
    read_only_nosuid = (ctypes.c_uint64 * 4)(1 | 2, 0, 0, 0)  # struct mount_attr: set, clear, propagation, namespace
    recursive = 0x8000
    with naming(path):
        call("mount_setattr", -100, os.fsencode(path), recursive, read_only_nosuid, ctypes.sizeof(read_only_nosuid))


def drop_capabilities() -> None:
    """Drop every capability for good, from the bounding set too, so that no program started later regains one."""
    for capability in range(64):
        with contextlib.suppress(OSError):  # unknown to this kernel, or not ours to drop
            prctl(PR_CAPBSET_DROP, capability)
    version3_self = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", version3_self, (ctypes.c_uint32 * 6)())


def fork_into(namespaces: int) -> int:
    """Fork as os.fork() does, with the child as process 1 of new `namespaces` (CLONE_NEW… flags). Raises OSError.

    One call does both: forking a process that holds torch costs 10 ms, and unshare would need a second fork to make
    process 1. Python's hooks around a fork run as in os.fork(). Of the C library's, only the thread id is reset; the
    rest matters in processes with several threads, and a warm parent has one.
    """
    sigchld, set_id, clear_id = 17, 0x01000000, 0x00200000
    where = ctypes.c_void_p()  # the address where the C library keeps this thread's id
    prctl(PR_GET_TID_ADDRESS, ctypes.byref(where))
    behind = (0, where) if platform.machine() == "aarch64" else (where, 0)  # 0: keep the thread's local storage
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    try:
        pid = call("clone", namespaces | set_id | clear_id | sigchld, 0, 0, *behind)
    except OSError:
        python.PyOS_AfterFork_Parent()
        raise
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    return pid
