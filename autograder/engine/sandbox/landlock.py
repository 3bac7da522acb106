"""Landlock: kernel rules for the files a process may access, independent of mounts and file modes (Linux 5.13)."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from autograder.engine.sandbox import linux

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _DEVICE_IOCTL = 1 << 14, 1 << 15
_READING = _EXECUTE | _READ | _LIST
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE_IOCTL  # the rights a rule on a single file may list
_CHAR_AND_BLOCK = (1 << 6) | (1 << 11)
_TCP = 3  # bind, connect
_SCOPES = 3  # abstract sockets, signals


def abi() -> int:
    """Return the kernel's Landlock ABI version; 0 without Landlock."""
    version = 1
    try:
        return linux.call("landlock_create_ruleset", 0, 0, version)
    except OSError:
        return 0


def _rights(version: int) -> int:
    """Return all file access rights that this ABI version handles."""
    rights = (1 << 13) - 1
    for since, bit in ((2, 1 << 13), (3, _TRUNCATE), (5, _DEVICE_IOCTL)):
        rights |= bit if version >= since else 0
    return rights


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Restrict this process and its descendants to reading below `readable` and reading and writing below `writable`.

    Where the kernel can, this also forbids TCP (ABI 4) and signals and abstract sockets to outside processes (ABI 6).
    Paths that do not exist are skipped. Raises OSError without Landlock.
    """
    version = abi()
    if not version:
        raise OSError(38, "landlock: not available in this kernel")
    rights = _rights(version)
    handled = (ctypes.c_uint64 * 3)(rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 * (3 if version >= 6 else 2 if version >= 4 else 1)
    ruleset = linux.call("landlock_create_ruleset", handled, size, 0)
    try:
        for paths, wanted in ((readable, _READING), (writable, rights & ~_CHAR_AND_BLOCK)):
            for path in paths:
                _allow(ruleset, path, wanted & rights)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    class Beneath(ctypes.Structure):  # struct landlock_path_beneath_attr
        _pack_ = 1
        _layout_ = "ms"
        _fields_ = [("rights", ctypes.c_uint64), ("folder", ctypes.c_int32)]

    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            rights &= _ON_FILES
        path_beneath = 1
        with linux.naming(path):
            linux.call("landlock_add_rule", ruleset, path_beneath, ctypes.byref(Beneath(rights, folder)), 0)
    finally:
        os.close(folder)
