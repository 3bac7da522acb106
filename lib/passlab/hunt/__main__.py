"""The command `python -m passlab.hunt TARGET`: search a compiler for faults, and print a report of each."""

from __future__ import annotations

import typer

from passlab.hunt import TARGETS, hunt

app = typer.Typer(add_completion=False)


@app.command()
def main(target: str, minutes: float = 5.0, graphs: int = 1_000_000, seed: int = 0, size: int = 10) -> None:
    """Search TARGET for faults and print a report of each. Minutes are of CPU time."""
    if target not in TARGETS:
        typer.echo(f"There is no target {target!r}. There are: {', '.join(TARGETS)}.", err=True)
        raise typer.Exit(2)
    faults = hunt(target, graphs, seed, size, minutes, tell=lambda sentence: typer.echo(sentence, err=True))
    for fault in faults:
        typer.echo(fault.report())
    typer.echo(f"{len(faults)} faults.")


if __name__ == "__main__":
    app()
