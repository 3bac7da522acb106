"""Which attacks are tried: all, if anything they depend on has changed since all were tried; otherwise a share.

python -m tests.attacks      # tries all, and writes that down in proved.json if every wall held
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

from autograder.authoring.source import ROOT
from autograder.proofs import imports, ledger
from tests.attacks import CORPUS
from tests.attacks.attack import Attack
from tests.support.amounts import DRAW, FULL

#: What grades a submission: the command, and what its processes start with.
GRADER = (
    "autograder.commands",
    "autograder.engine.runner.warm",
    "autograder.engine.sandbox.__main__",
    "autograder.engine.verifier.builder",
    "autograder.engine.verifier.process",
)
PROVED = Path(__file__).with_name("proved.json")
#: Of each kind, this part is drawn in each run, and besides all that SECURITY.md names.
SHARE = 0.15
_NAMED = re.compile(r"`([^`]+)`")


def digest() -> str:
    """Return the digest of all that an attack, and what holds it back, depends on."""
    return ledger.digest_of(imports.closure([*GRADER, "tests.attacks.test_attacks"]) - {PROVED})


def extent() -> str:
    """Return whether "all" attacks are tried or a "share". A run of all tests asks once, for all of its workers."""
    if FULL:
        return "all"
    if known := os.environ.get("PYTEST_ATTACKS"):
        return known
    return "share" if ledger.read(PROVED).get("digest") == digest() else "all"


def tried() -> dict[str, tuple[Attack, ...]]:
    """Return kind → the attacks of this run."""
    if extent() == "all":
        return CORPUS
    named = {*_NAMED.findall((ROOT / "autograder/SECURITY.md").read_text(encoding="utf-8"))}
    return {
        kind: tuple(attack for attack in attacks if attack.name in named | _drawn(kind, attacks))
        for kind, attacks in CORPUS.items()
    }


def _drawn(kind: str, attacks: tuple[Attack, ...]) -> set[str]:
    number = max(2, round(SHARE * len(attacks)))
    return {attack.name for attack in random.Random(f"{kind} {DRAW}").sample(attacks, min(number, len(attacks)))}
