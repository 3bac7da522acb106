"""Which of the long files of tests run: all, if any code has changed since all of them passed; otherwise a share.

python -m tests.support.long       # runs all, and writes that down in tests/long.json if they passed

What is left out is drawn anew in each run, and printed in its head. Attacks have a draw of their own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

from autograder.authoring.source import ROOT
from autograder.proofs import imports, ledger
from tests.support import schedule
from tests.support.amounts import DRAW, FULL

PASSED = ROOT / "tests/long.json"
#: A file is long that takes so many seconds; of the long ones this part runs in any case.
LONG, SHARE = 20.0, 1 / 5
_ATTACKS = "tests/attacks/test_attacks.py"
#: What the tests start or read besides modules and their data.
_OTHERS = ("Makefile", "nbgrader_config.py", "lib/setup.sh", "course/*.py", "solutions/*/*.py")


def files() -> list[str]:
    """Return the long files of tests, as paths from the project's folder."""
    rows = schedule.table().items()
    return sorted(name for name, seconds in rows if seconds >= LONG and "::" not in name and name != _ATTACKS)


def digest() -> str:
    """Return the digest of the project's code and of its tests."""
    homes = (ROOT / "lib", "passlab"), (ROOT, "autograder"), (ROOT, "tests")
    paths = {path: home for home, top in homes for path in (home / top).rglob("*.py")}
    modules = [".".join(path.relative_to(home).with_suffix("").parts) for path, home in paths.items()]
    others = {path for pattern in _OTHERS for path in ROOT.glob(pattern)}
    code = imports.closure([name.removesuffix(".__init__") for name in modules])
    return ledger.digest_of((code | others) - {ROOT / "tests/attacks/proved.json"})


def left_out() -> list[str]:
    """Return the long files that do not run this time."""
    passed = ledger.read(PASSED)
    if FULL or os.environ.get("PYTEST_LONG") == "all" or passed.get("digest") != digest():
        return []
    known = [name for name in files() if name in passed["files"]]
    return sorted(random.Random(f"long {DRAW}").sample(known, len(known) - round(SHARE * len(known))))


def main() -> int:
    before, names = digest(), files()
    command = [sys.executable, "-m", "pytest", "-n", "3", *names]
    status = subprocess.call(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if status == 0:
        PASSED.write_text(json.dumps({"digest": before, "files": names}, indent=0) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
