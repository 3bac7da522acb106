"""A process that loads much once and then forks: quick to load, cheap to fork.

    python -m passlab.process.forking MODULE ARGUMENTS…    # python -m MODULE ARGUMENTS…, without garbage collection
    settle()                                               # in MODULE, once all is loaded
    collapse()                                             # and in one that will fork more than forty times

While modules load, the garbage collector goes through all that is loaded again and again, and finds next to nothing:
torch and this library load in 2.8 s without it and in 4.1 s with it. In huge pages, what they take (300 MiB) is forked,
and given back at the child's end, in a third of the time; to put it there takes half a second.
"""

from __future__ import annotations

import ctypes
import gc
import runpy
import sys

#: madvise(2), Linux 6.1 and newer.
_MADV_COLLAPSE = 25
_HUGE = 2 * 2**20


def settle() -> None:
    """Collect garbage from now on, but leave alone what is there already, so that children share it."""
    gc.freeze()
    gc.enable()


def collapse() -> None:
    """Put this process's private memory into huge pages, where the kernel can."""
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as maps:
        areas = [line.split() for line in maps]
    for area, rights, _, _, inode, *name in areas:
        if rights != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(edge, 16) for edge in area.split("-"))
        for address in range(-(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE, _HUGE):
            madvise(address, _HUGE, _MADV_COLLAPSE)  # where it fails, the pages stay as they are


def main() -> None:
    gc.disable()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
