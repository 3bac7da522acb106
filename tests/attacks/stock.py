"""What nbgrader's own way gives to the attacks: checks in the learner's kernel, no sandbox.

    python -m tests.attacks.stock [attack …]     (half an hour for all; prints a line for each)

This is where `forges_stock` comes from. Attacks that would harm this machine, crash, or exhaust it are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from autograder.toys import tiny
from tests.attacks import CORPUS, field
from tests.attacks.attack import Attack

_KINDS = ("patching", "reading", "escaping")
_CONFIG = """
c = get_config()
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError()"}
c.Execute.timeout = 60
"""


def fit() -> dict[str, Attack]:
    """The attacks that are tried."""
    chosen = (attack for kind in _KINDS for attack in CORPUS[kind])
    return {attack.name: attack for attack in chosen if not attack.harms and not attack.folder}


def points(folder: Path, attacks: dict[str, Attack]) -> Iterator[tuple[str, float]]:
    """An attack's name, and what nbgrader gives it. Each has a gradebook of its own, which it may well damage."""
    ground = field.prepare(folder / "course", attacks)
    field.hand_in(ground, 9)
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda name: (name, _graded(ground.course, folder, name)), attacks)


def _graded(course: Path, folder: Path, name: str) -> float:
    home = folder / name
    for part, path in (("source", "solutions/day00"), (f"submitted/{name}", f"class/{name}/day00")):
        shutil.copytree(course / path, home / part / "day00", ignore=shutil.ignore_patterns("*.py"))
    (home / "nbgrader_config.py").write_text(_CONFIG)
    env = tiny.environment(course) | {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder)}
    for words in (["generate_assignment", "day00"], ["autograde", "day00", "--student", name]):
        command = [sys.executable, "-m", "nbgrader", *words]
        with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs, and gives nothing
            subprocess.run(command, cwd=home, env=env, capture_output=True, timeout=100)
    show = (
        "from nbgrader.api import Gradebook\n"
        f"book = Gradebook('sqlite:///{home}/gradebook.db')\n"
        f"print('POINTS', book.find_submission('day00', {name!r}).score)\n"
    )
    output = subprocess.run([sys.executable, "-c", show], cwd=home, env=env, capture_output=True, text=True).stdout
    match = re.search(r"POINTS (.*)", output)
    return float(match[1]) if match else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.stock", description=__doc__.split("\n")[0])
    parser.add_argument("attacks", nargs="*", metavar="attack", help="the name of one to try; all by default")
    names = parser.parse_args().attacks
    with tempfile.TemporaryDirectory() as where:
        tried = {name: attack for name, attack in fit().items() if name in names or not names}
        for name, got in points(Path(where), tried):
            told = "forged" if got > tried[name].honest else ""
            wrong = "" if bool(told) == tried[name].forges_stock else "(the corpus says otherwise)"
            print(f"{name:24} {got:4g} of {tried[name].honest:g} {told} {wrong}", flush=True)
