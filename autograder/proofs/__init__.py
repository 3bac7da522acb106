"""Proofs of what learners get: exercises are judged right, lessons run. The ledger says what was proved as it is now.

imports      which files a module needs
ledger       digests of what was proved, in autograder/ledger.json
wire         the proof of an exercise, with values that travel as they do when a class is graded
notebooks    the proof of a notebook: it runs from a fresh kernel
command      `passlab prove`
"""
