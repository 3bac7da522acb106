"""One control group per submission, which limits the memory and the number of all its processes together.

The grader creates it below its own group, so limits on the grader itself still apply. Version 2 is used where the
grader's group may have subgroups, version 1 where the controllers' folders are writable; elsewhere only rlimits apply.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: The group that the grader moves into when its own group gets subgroups (version 2).
_OWN = "passlab-grader"
_NEEDED = {"memory", "pids"}
_USED = ("memory", "pids", "cpuacct")


@dataclass(frozen=True)
class Group:
    """The processes of one submission. `folders`: controller → its folder, all the same in version 2; may be empty."""

    folders: dict[str, Path]
    v2: bool = False

    def __bool__(self) -> bool:
        return bool(self.folders)

    def _every(self) -> set[Path]:
        return set(self.folders.values())

    def add(self, pid: int) -> None:
        """Move a process, and whatever it starts from now on, into the group."""
        for folder in self._every():
            (folder / "cgroup.procs").write_text(str(pid))

    def pids(self) -> set[int]:
        """Return the ids of the group's processes."""
        return {int(line) for folder in self._every() for line in (folder / "cgroup.procs").read_text().split()}

    def peak_mib(self) -> float:
        """Return the peak memory, files in /tmp included; 0.0 where the kernel does not tell (v2 before 5.19)."""
        return _number(self.folders, "memory", "memory.peak" if self.v2 else "memory.max_usage_in_bytes") / 2**20

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes, ended ones included; 0.0 where the kernel does not tell."""
        if not self.v2:
            return _number(self.folders, "cpuacct", "cpuacct.usage") / 1e9
        stat = dict(line.split() for line in (self.folders["memory"] / "cpu.stat").read_text().splitlines())
        return int(stat["usage_usec"]) / 1e6

    def kill(self, seconds: float = 5.0) -> None:
        """Kill every process in the group. Raises TimeoutError if some are left after `seconds`."""
        for folder in self._every():
            if (folder / "cgroup.kill").exists():  # version 2, Linux 5.14
                (folder / "cgroup.kill").write_text("1")
        end = time.monotonic() + seconds
        while left := self.pids():
            for pid in left - {0}:  # 0: a process outside this process's pid namespace
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > end:
                names = ", ".join(folder.name for folder in self._every())
                raise TimeoutError(f"{len(left)} processes of the control group {names} are still there after SIGKILL.")
            time.sleep(0.002)

    def remove(self) -> None:
        for folder in self._every():
            for _ in range(100):  # a group stays busy for a moment after its last process ended
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)


def _number(folders: dict[str, Path], controller: str, name: str) -> int:
    try:
        return int((folders[controller] / name).read_text())
    except (KeyError, FileNotFoundError):
        return 0


def _hierarchies() -> dict[str, Path]:
    """Return controller → this process's folder in its hierarchy; the key of version 2 is ""."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    mounts: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        kind, _, options = after.split(" ")[:3]
        top, where = before.split(" ")[3:5]
        names = [""] if kind == "cgroup2" else [n for n in _USED if n in options.split(",")] if kind == "cgroup" else []
        for name in names:  # in a container only the part of the hierarchy below `top` is mounted
            below = own.get(name, "/").removeprefix(top.rstrip("/"))
            mounts[name] = Path(where) / below.lstrip("/")
    return mounts


@cache
def parents(pid: int) -> tuple[dict[str, Path], bool]:
    """Return the folders in which this process may create groups, by controller, and whether they are version 2.

    pid: this process; only the key of the cache. Raises OSError with what is missing.
    """
    mounts = _hierarchies()
    if mounts.keys() >= _NEEDED:
        folders = {name: folder for name, folder in mounts.items() if name and os.access(folder, os.W_OK)}
        if not folders.keys() >= _NEEDED:
            raise OSError(f"{mounts['memory']} and {mounts['pids']} are not both writable")
        v2 = False
    elif "" in mounts:
        folders, v2 = dict.fromkeys(_NEEDED, _delegate(mounts[""])), True
    else:
        raise OSError("no control groups are mounted")
    _sweep(set(folders.values()))
    return folders, v2


def _delegate(folder: Path) -> Path:
    """Make the grader's group (version 2) delegate its controllers to its subgroups, and return it.

    A group that delegates controllers may not contain processes itself, so a grader that is alone in its group first
    moves into a subgroup. Raises OSError where that is not possible.
    """
    if folder.name == _OWN:
        return folder.parent
    if not set((folder / "cgroup.controllers").read_text().split()) >= _NEEDED:
        raise OSError(f"{folder} has no memory and pids controllers")
    handed_down = folder / "cgroup.subtree_control"
    if set(handed_down.read_text().split()) >= _NEEDED:
        return folder
    if (folder / "cgroup.procs").read_text().split() == [str(os.getpid())]:
        (folder / _OWN).mkdir(exist_ok=True)
        (folder / _OWN / "cgroup.procs").write_text(str(os.getpid()))
    handed_down.write_text("+memory +pids")
    return folder


def _prefix() -> str:
    """Return how the names of groups begin that graders in this namespace of processes make: a grader in a container
    may have groups in the same folder, and the number of its process says nothing here."""
    return f"passlab-{os.stat('/proc/self/ns/pid').st_ino}"


def _sweep(folders: set[Path]) -> None:
    """Remove the empty groups that killed graders left."""
    for folder in folders:
        for group in folder.glob(f"{_prefix()}-*-*"):
            grader = group.name.split("-")[2]
            if grader.isdigit() and not Path("/proc", grader).exists():
                with contextlib.suppress(OSError):
                    group.rmdir()


def make(name: str, memory_mib: int, processes: int) -> Group:
    """Create a group below the grader's own. Raises OSError where that is not possible."""
    folders, v2 = parents(os.getpid())
    name = f"{_prefix()}-{os.getpid()}-{name}"
    group = Group({controller: folder / name for controller, folder in folders.items()}, v2)
    try:
        for folder in set(group.folders.values()):
            folder.mkdir()
        memory, pids, size = group.folders["memory"], group.folders["pids"], memory_mib * 2**20
        if v2:
            (memory / "memory.max").write_text(str(size))
            _write_if_present(memory / "memory.swap.max", 0)
        else:
            (memory / "memory.limit_in_bytes").write_text(str(size))
            _write_if_present(memory / "memory.memsw.limit_in_bytes", size)
        (pids / "pids.max").write_text(str(processes))
    except OSError:
        group.remove()
        raise
    return group


def _write_if_present(path: Path, value: int) -> None:
    if path.exists():  # only where the kernel accounts for swap
        path.write_text(str(value))


@contextlib.contextmanager
def cgroup(name: str, memory_mib: int, processes: int) -> Iterator[Group]:
    """Provide a group for one submission; on exit its processes are killed and it is removed.

    Without control groups the Group is empty: it is false, and `add` does nothing.
    """
    try:
        group = make(name, memory_mib, processes)
    except OSError:
        group = Group({})
    try:
        yield group
    finally:
        group.kill()
        group.remove()
