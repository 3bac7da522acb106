"""Proofs that two programs are the same function (see `proof`): bit by bit, over the reals, or by tests."""

from passlab.equivalence import Proof
from passlab.proving.capture import Unknown
from passlab.proving.proof import prove

__all__ = ["Proof", "Unknown", "prove"]
