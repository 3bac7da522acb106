"""`make quick`: of each folder of tests the files that take least, each compiler's in a run of its own, all at once.
Types are checked beside them, if an earlier check has left its results.

python -m tests.support.quick            # run them
python -m tests.support.quick --list     # print them
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import TVM
from tests.support import schedule, types

HERE = Path(__file__).parents[1]
#: Seconds of tests that each folder gets, as `tests/seconds.json` has them. Its cheapest file is run in any case.
SHARE = 1.5


def folders() -> dict[str, list[Path]]:
    """Return folder → its files of tests; those that lie in tests/ itself count as a folder."""
    found: dict[str, list[Path]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        found.setdefault(path.relative_to(HERE).parts[0] if path.parent != HERE else "", []).append(path)
    return found


def chosen() -> dict[str, list[Path]]:
    """Return folder → the files to run."""
    known, files = schedule.table(), {}
    for folder, paths in folders().items():
        cost = {path: known.get(f"tests/{path.relative_to(HERE).as_posix()}", SHARE) for path in paths}
        cheapest = sorted(paths, key=lambda path: (cost[path], path))
        total, files[folder] = 0.0, cheapest[:1]
        for path in cheapest:
            total += cost[path]
            if total <= SHARE and path not in files[folder]:
                files[folder].append(path)
    return files


def runs() -> dict[str, list[str]]:
    """Return the TVM to hold → files: a process can hold one TVM."""
    by_tvm: dict[str, list[str]] = {"none": []}
    for folder, paths in chosen().items():
        for tvm in TVM.get(folder, ("none",)):
            if tvm != "relay" or schedule.RELAY:
                by_tvm.setdefault(tvm, []).extend(map(str, paths))
    return by_tvm


def main() -> int:
    if "--list" in sys.argv[1:]:
        print("\n".join(f"{tvm}: {file}" for tvm, files in runs().items() for file in files))
        return 0
    python = [sys.executable, "-m", "pytest", "-q", "--no-header"]
    started = {
        tvm: subprocess.Popen(
            [*python, "-n", "2" if tvm == "none" else "0", "--tvm", tvm, *files],
            stdout=None if tvm == "none" else subprocess.PIPE,
            stderr=None if tvm == "none" else subprocess.STDOUT,
            text=True,
        )
        for tvm, files in runs().items()
    }
    status = types.main() if types.CACHE.is_dir() else 0  # the first check takes most of a minute: `make test` makes it
    for tvm, process in started.items():
        printed = process.communicate()[0]
        print(f"\nWith the TVM of {tvm.capitalize()}:\n{printed}" if printed else "", end="")
        status |= process.returncode
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
