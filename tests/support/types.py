"""Check types with mypy: no package may have more errors than tests/types.json allows.

python -m tests.support.types            # prints the errors of packages that have too many
python -m tests.support.types --write    # lowers the numbers of tests/types.json

mypy keeps its results in .cache/mypy, and needs no network.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict

from autograder.authoring.source import ROOT
from tests.support import ratchet

LIMITS = ROOT / "tests/types.json"
CACHE = ROOT / ".cache/mypy"
#: "lib/passlab/fx/nodes.py:12: error: …" is an error in "passlab.fx".
_ERROR = re.compile(r"(?:lib/)?(passlab|autograder)/(\w+)\S*\.py:\d+: error: ")


def errors() -> dict[str, list[str]]:
    """Return package → the lines of its errors."""
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", f"--cache-dir={CACHE}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode not in (0, 1):
        raise RuntimeError(f"mypy could not check the types: {run.stderr or run.stdout}")
    lines: dict[str, list[str]] = defaultdict(list)
    for line in run.stdout.splitlines():
        if match := _ERROR.match(line):
            lines[f"{match[1]}.{match[2]}"].append(line)
    return dict(lines)


def main() -> int:
    lines, limits = errors(), json.loads(LIMITS.read_text(encoding="utf-8"))
    for package, found in lines.items():
        if len(found) > limits.get(package, 0):
            print("\n".join(found))
    return ratchet.main(LIMITS, {package: len(found) for package, found in lines.items()})


if __name__ == "__main__":
    sys.exit(main())
