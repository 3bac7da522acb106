"""How much is tried: `make test` tries what finds most, `make test-full` (PASSLAB_TESTS=full) ten times as much, and
everything that the ledger of proofs answers for."""

import os
import secrets

FULL = os.environ.get("PASSLAB_TESTS") == "full"
#: Random graphs or payloads for each property.
EXAMPLES = 500 if FULL else 50
#: How often a grader is killed in the test of crash safety, and a recorder in its own.
KILLS = 50 if FULL else 4
#: Exercises and notebooks that are proved anew in each run, whatever the ledger says.
DRAWN_EXERCISES, DRAWN_NOTEBOOKS = 2, 1
#: What decides which these are, and which attacks and long files of tests are tried. A run is repeated by PYTEST_DRAW
#: with the text in the head.
DRAW = os.environ.setdefault("PYTEST_DRAW", secrets.token_hex(4))
#: Seeds with which the hidden cases of the proof are drawn.
SEEDS = (0, 1) if FULL else (0,)
#: New seeds in each run, on which right answers must have all points.
NEW_SEEDS = 50 if FULL else 3
#: How often each lesson is run; from the second time on under load, with other random numbers.
LESSONS = 30 if FULL else 1
#: What the random numbers of each test begin with. A failure is repeated by PYTEST_RANDOM with the number in the head.
RANDOM = os.environ.setdefault("PYTEST_RANDOM", secrets.token_hex(4) if FULL else "0")
