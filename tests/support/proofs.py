"""What `make test` asks of everything that the ledger of proofs answers for."""

from __future__ import annotations

from functools import cache

from autograder.proofs import ledger


@cache
def _lines() -> dict[str, dict]:
    return ledger.read()


def assert_proved(name: str) -> None:
    """Fail unless an exercise or a notebook was proved as it is now."""
    line = _lines().get(name)
    assert line, f"{name} was never proved. Run `passlab prove --stale`, and commit autograder/ledger.json."
    assert line["digest"] == ledger.digest(name), (
        f"{name}, or something that it imports, has changed since its proof. "
        "Run `passlab prove --stale`, and commit autograder/ledger.json."
    )
