"""`passlab prove`: prove exercises and notebooks, print what came of it, and write what holds into the ledger."""

from __future__ import annotations

from functools import partial

from rich.console import Console

from autograder.authoring import answers, prove
from autograder.proofs import ledger, notebooks, wire


def main(
    names: list[str], stale: bool, with_notebooks: bool, as_json: bool, jobs: int, seed: int, seeds: int = 1
) -> int:
    """Prove these exercises, or all; return 1 if a proof fails. The other arguments are the options of the command."""
    chosen, notebook_names = prove.choose(names), []
    if names and not chosen:
        return 1
    if stale:
        changed = ledger.stale()
        chosen = [name for name in changed if name in chosen]
    if stale and not names:
        notebook_names = [name for name in changed if name.endswith(".py")]
    elif with_notebooks:
        notebook_names = [name for name in ledger.names() if name.endswith(".py")]
    if stale and not chosen + notebook_names:
        Console().print("Nothing has changed since its proof.")
        return 0
    status, digests = 0, {}

    def record(name: str, result: prove.Proof | list[str]) -> None:
        if isinstance(result, list) and not result:
            ledger.record(name, digests[name], {"cells": len(notebooks.cells(name))})
        elif isinstance(result, prove.Proof) and result.ok:
            kinds = [row.kind for row in result.rows]
            right = kinds.count("right") + kinds.count("reference")
            ledger.record(name, digests[name], {"wrong": kinds.count("wrong"), "right": right})

    if chosen or not stale:
        digests |= {name: ledger.digest(name) for name in chosen if not answers.missing(name)}
        task = partial(_full_proof, seed=seed, seeds=seeds)
        proofs = prove.for_each(chosen, task, jobs, Console(stderr=True), record)
        status = prove.print_proofs(proofs, as_json, seed, seeds)
    if notebook_names:
        digests |= {name: ledger.digest(name) for name in notebook_names}
        results = prove.for_each(notebook_names, notebooks.problems, jobs, Console(stderr=True), record)
        status |= _print_notebooks(notebook_names, results)
    return status


def _full_proof(name: str, seed: int, seeds: int) -> prove.Proof:
    """Return the proof of an exercise; while files are missing, it names them."""
    return prove.prove(name, seed) if answers.missing(name) else wire.full_proof(name, seed, seeds)


def _print_notebooks(names: list[str], results: list[list[str]]) -> int:
    """Print on standard error, beside JSON, what went wrong in notebooks; return 1 if anything did."""
    console = Console(stderr=True)
    for problem in (problem for problems in results for problem in problems):
        console.print(f"✗ {problem}", markup=False, highlight=False, soft_wrap=True)
    bad = [name for name, problems in zip(names, results, strict=True) if problems]
    console.print(f"{len(names)} notebooks run, {len(bad)} with problems{': ' if bad else ''}{', '.join(bad)}.")
    return 1 if bad else 0
