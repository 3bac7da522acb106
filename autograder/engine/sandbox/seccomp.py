"""A seccomp filter: the kernel refuses system calls that no answer needs and that escapes rely on.

The filter is a small, hand-written BPF program over (number, machine, six arguments): one comparison per name.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable

from autograder.engine.sandbox import linux

#: Refused with EPERM, whatever the arguments.
DENIED = tuple(
    """
    mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    unshare setns
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd move_pages migrate_pages
    bpf perf_event_open io_uring_setup io_uring_enter io_uring_register userfaultfd
    add_key request_key keyctl
    memfd_create memfd_secret shmget shmat msgget semget mq_open remap_file_pages vmsplice
    socket bind connect listen
    open_by_handle_at name_to_handle_at fanotify_init inotify_init inotify_init1 lookup_dcookie cachestat
    kexec_load kexec_file_load init_module finit_module delete_module
    swapon swapoff reboot acct quotactl quotactl_fd vhangup syslog uselib personality
    iopl ioperm modify_ldt settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
    """.split()  # noqa: SIM905  (a table)
)
# All submissions see the same system files, so a lock, a watch or a hint on one, or what of it is in memory, would
# reach from one to another.
# socketpair stays: asyncio is built on it, and with bind and connect refused it leads nowhere else. memfd and System V
# shared memory are refused because no rlimit counts them.

_NEW = (
    linux.CLONE_NEWNS | linux.CLONE_NEWCGROUP | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC | linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWTIME
)  # fmt: skip
_KIND, _CHAR, _BLOCK = 0o170000, 0o020000, 0o060000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_LOCK = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
_ASK_LOCK = (5, 36, 1024, 1026)  # F_GETLK, F_OFD_GETLK, F_SETLEASE, F_NOTIFY
_HINT = (1035, 1036)  # F_GET_RW_HINT, F_SET_RW_HINT: before Linux 6.9 whoever reads a file may set its inode's hint

#: Refused for some arguments: (name, position of the argument, mask, refused value; None: any bit of the mask).
DENIED_IF = [
    ("clone", 0, _NEW & ~0xFF, None),  # the lowest byte is a signal there: CLONE_NEWTIME is clone3's and unshare's
    ("mknod", 1, _KIND, _CHAR),
    ("mknod", 1, _KIND, _BLOCK),
    ("mknodat", 2, _KIND, _CHAR),
    ("mknodat", 2, _KIND, _BLOCK),
    ("ioctl", 1, 0xFFFFFFFF, _TIOCSTI),  # typing into someone else's terminal
    ("ioctl", 1, 0xFFFFFFFF, _TIOCLINUX),
    *(("fcntl", 1, 0xFFFFFFFF, command) for command in (*_ASK_LOCK, *_HINT)),
]

#: Done without an effect: who locks a file of their own has it to themselves anyway.
PRETENDED = ["flock"]
PRETENDED_IF = [("fcntl", 1, 0xFFFFFFFF, command) for command in _LOCK]

#: Answered with ENOSYS: its flags lie behind a pointer, which a filter cannot follow; C libraries then use clone.
ABSENT = ["clone3"]

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _ANY, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000


def _instruction(code: int, value: int = 0, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def program(machine: str = platform.machine(), denied: Iterable[str] = DENIED) -> bytes:
    """Return the filter as the kernel expects it: an array of struct sock_filter. Raises OSError on other machines."""
    if machine not in _AUDIT:
        raise OSError(errno.ENOSYS, f"seccomp: no list of system calls for {machine}")
    numbers = linux.NUMBERS[machine]
    refuse, absent = _instruction(_RETURN, _ERRNO | errno.EPERM), _instruction(_RETURN, _ERRNO | errno.ENOSYS)
    done = _instruction(_RETURN, _ERRNO)  # error 0: the call returns 0
    number, audit, argument = 0, 4, 16  # offsets in struct seccomp_data
    code = [
        _instruction(_LOAD, audit),
        _instruction(_EQUAL, _AUDIT[machine], 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),  # 32-bit calls: other numbers, other meanings
        _instruction(_LOAD, number),
    ]
    if machine == "x86_64":
        code += [_instruction(_AT_LEAST, _X32, 0, 1), absent]
    for names, answer in ((denied, refuse), (ABSENT, absent), (PRETENDED, done)):
        for name in names:
            if name in numbers:  # iopl and the like exist only on x86
                code += [_instruction(_EQUAL, numbers[name], 0, 1), answer]
    rules = [*((rule, refuse) for rule in DENIED_IF), *((rule, done) for rule in PRETENDED_IF)]
    for (name, place, mask, value), answer in rules:
        if name in numbers:
            test = _instruction(_ANY, mask, 0, 1) if value is None else _instruction(_EQUAL, value, 0, 1)
            look = [_instruction(_LOAD, argument + 8 * place), _instruction(_AND, mask), test, answer]
            reload = _instruction(_LOAD, number)
            code += [_instruction(_EQUAL, numbers[name], 0, len(look) + 1), *look, reload]
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def install(denied: Iterable[str] = DENIED) -> None:
    """Put this process and its descendants under the filter for good, besides those that they are under.

    Raises OSError without seccomp.
    """
    instructions = program(denied=denied)
    buffer = ctypes.create_string_buffer(instructions, len(instructions))

    class Program(ctypes.Structure):  # struct sock_fprog
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    mode_filter = 2
    given = Program(len(instructions) // 8, ctypes.addressof(buffer))
    linux.prctl(linux.PR_SET_SECCOMP, mode_filter, ctypes.byref(given))
