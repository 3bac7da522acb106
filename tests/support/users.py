"""Run a command as a user who is not root, has no home, and is not in the list of users."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from autograder.toys.tiny import ROOT

#: $1: a home to hide; $2: an empty folder; then folders in that home to show, "--" and a command.
_SHOWN = """
set -e
home=$1 spare=$2
shift 2
count=0
for folder in "$@"; do
    [ "$folder" != -- ] || break
    count=$((count + 1))
    mkdir -p "$spare/$count"
    mount --bind "$folder" "$spare/$count"
done
[ "$count" = 0 ] || mount -t tmpfs -o mode=755 tmpfs "$home"
count=0
while [ "$1" != -- ]; do
    count=$((count + 1))
    mkdir -p "$1"
    mount --move "$spare/$count" "$1"
    shift
done
shift
unset HOME
exec setpriv --reuid 12345 --regid 12345 --clear-groups -- "$@"
"""


def ordinary(command: list[str], spare: Path) -> list[str]:
    """Return the command line that runs a command as an ordinary user; tests that root does not run do that already.

    Python and the project may lie in root's home: a mount namespace of the command's own shows them, and nothing else
    of that home. spare: an empty folder.
    """
    if os.geteuid() != 0:
        return ["env", "-u", "HOME", *command]
    if not shutil.which("unshare") or not shutil.which("setpriv"):
        pytest.skip("needs unshare and setpriv, to become another user")
    home = Path.home()
    inside = {Path(os.path.realpath(sys.base_prefix)), Path(sys.prefix), ROOT}
    inside = {path for path in inside if path.is_relative_to(home)}
    outermost = [str(path) for path in inside if not any(path != one and path.is_relative_to(one) for one in inside)]
    return ["unshare", "-m", "sh", "-c", _SHOWN, "sh", str(home), str(spare), *outermost, "--", *command]
