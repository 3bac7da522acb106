"""Build the programs that learners' compilers describe, and measure them against each other.

    with ModelTimer() as race:
        rows = race.run("resnet18", arguments, {"ada": compiled, "bob": compiled})

A compiled model is data (`passlab.capstone.Compiled`), and still it is a learner's: its kernels are built and run in a
child that is confined like a worker, one for each model, in which all of its competitors take turns. Equivalence is the
verifier's to judge, before a race; here a program must give what eager gives, or it has no time. Times are claims of
the process that they were taken in: an operator that writes out of bounds could forge them, and nothing else.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import msgspec

from autograder.engine import sandbox, wire
from autograder.engine.messages import Raced, RacedRow, reader
from passlab.process.forking import settle
from passlab.process.messages import ClosedError, DeadlineError, MessageError, receive, send
from passlab.process.server import Server, request

#: torch.compile and TVM need more than a worker: memory, processes for the C++ compiler, files in /tmp.
LIMITS = sandbox.Limits(
    memory_mib=8192, cpu_s=1800, processes=128, files=1024, file_mib=256, tmp_mib=1024, inodes=20_000
)
#: The same on a GPU, whose driver reserves far more addresses than there is memory.
ON_GPU = replace(LIMITS, memory_mib=0, processes=256)
#: Seconds, by the clock, for one model with all its competitors; and for the process to start.
MODEL_SECONDS, START_SECONDS = 900.0, 120.0
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor"}
DIED = "Its program ended the process that ran it, or exceeded its limits."


class TimingError(Exception):
    """The process that races models did not start, or could not measure the baselines of a model."""


class ModelTimer:
    """Measures models until it is closed. `unsafe`: as in `Engine`. `leave_out`: baselines that do not take part.
    `device`: where the programs run, "cpu" or "cuda"."""

    def __init__(self, unsafe: bool = False, repeats: int = 25, leave_out: tuple[str, ...] = (), device: str = "cpu"):
        self.repeats, self.leave_out, self.said = repeats, leave_out, ""
        self.control, theirs = socket.socketpair()
        argv = [sys.executable, "-m", "passlab.process.forking", __name__, str(theirs.fileno())]
        self.process = sandbox.launch(
            "runner",
            argv,
            fds=[theirs.fileno()],
            readable=[str(sandbox.ROOT / "lib/passlab/capstone")],
            environment=ENVIRONMENT,
            unsafe=unsafe,
            device=device,
        )
        theirs.close()

    def __enter__(self) -> ModelTimer:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        with suppress(Exception):
            self.process.wait(5)
        self.process.kill()

    def run(self, arguments: bytes, compiled: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
        """Return competitor → its row, learners' as their names say. `arguments`: of the case, as they were sent.

        A row: `launches`, `bytes`, `peak` (or None), `seconds`, `spread`, `ratio` (or None), and `missing`, why there
        are none. A program that ends its process does not affect the others. Raises TimingError.
        """
        rows = self._together(arguments, compiled)
        if rows is None:
            alone = {name: self._together(arguments, {name: data}, quick=True) for name, data in compiled.items()}
            left = {name: data for name, data in compiled.items() if alone[name] is not None}
            rows = self._together(arguments, left)
            if rows is None:
                last = self.said.strip().splitlines()[-1:] or ["it printed nothing"]
                raise TimingError(f"The process that measures a model ended with every competitor ({last[0][:300]}).")
            fields = RacedRow.__struct_fields__
            rows |= {name: dict.fromkeys(fields) | {"missing": DIED} for name in compiled if name not in left}
        return rows

    def _together(self, arguments: bytes, compiled: Mapping[str, bytes], quick: bool = False) -> dict | None:
        """Return the rows of one child, or None if it ended or was too slow."""
        until = time.monotonic() + MODEL_SECONDS
        try:
            (sock, _), _ = request(self.control, time.monotonic() + START_SECONDS)
        except (OSError, ClosedError, MessageError, DeadlineError):
            raise TimingError("The process that races models did not start.") from None
        with sock:
            try:
                head = {"count": len(compiled), "repeats": 2 if quick else self.repeats}
                left_out = ["torch.compile", "TVM", "reference"] if quick else list(self.leave_out)
                send(sock, head | {"leave_out": left_out}, arguments, deadline=until)
                for data in compiled.values():
                    send(sock, {}, data, deadline=until)
                raced = receive(sock, until, 0, reader(Raced))[0]
            except (ClosedError, DeadlineError, MessageError):
                return None
        names = {f"learner {at}": name for at, name in enumerate(compiled)}
        if not names.keys() | {"eager"} <= raced.rows.keys():
            self.said = raced.said
            return None
        return {names.get(name, name): msgspec.to_builtins(row) for name, row in raced.rows.items()}


# ── In the child ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _answer(sock: socket.socket) -> None:
    """Measure one model: its arguments come first, then what each compiler made of it."""
    send(sock, {"ready": True})
    head, payload = receive(sock)
    gm, inputs = wire.decode(bytes(payload))
    compiled = []
    for _ in range(head["count"]):
        try:
            compiled.append(wire.decode(bytes(receive(sock)[1])))
        except wire.Refused as refused:
            compiled.append(refused)
    send(sock, {"rows": measure_all(gm, inputs, compiled, head["repeats"], head["leave_out"], sandbox.device())})


def measure_all(
    gm: Any, inputs: tuple, compiled: list[Any], repeats: int, leave_out: list[str], device: str = "cpu"
) -> dict[str, dict[str, Any]]:
    """Return competitor → row; the compiled models are called "learner 0", "learner 1", …"""
    import torch
    from torch.utils._pytree import tree_leaves

    from passlab.capstone import BASELINES, Compiled, Missing, build, compare, on
    from passlab.fx.programs import copy_inputs

    def called(program: Callable) -> list:
        """Return what a program gives, its random numbers drawn from the same state as those of all others."""
        torch.manual_seed(0)
        return tree_leaves(program(*copy_inputs(inputs, device)))

    expected = called(BASELINES["eager"](on(device, Compiled(gm)).graph, inputs))

    def build_program(made: Any, inputs: tuple) -> Callable:
        if not isinstance(made, Compiled):
            raise TypeError(f"what was handed over is not a Compiled: {made}")
        program = build(on(device, made), inputs)
        if not all(_close(one, other, torch) for one, other in zip(expected, called(program), strict=True)):
            raise ValueError("the program that was built gives other numbers than eager")
        return program

    def competitor(made: Any) -> Callable:
        def make(gm: Any, inputs: tuple) -> Callable:
            try:
                return build_program(made, inputs)
            except Exception as error:  # whatever its data does, it costs its own row
                raise Missing(f"No program: {str(error)[:800]}") from error

        return make

    learners = {f"learner {at}": made for at, made in enumerate(compiled)}
    competitors = {title: make for title, make in BASELINES.items() if title not in leave_out}
    competitors |= {name: competitor(made) for name, made in learners.items()}
    rows = compare(gm, inputs, competitors, learners, repeats, device)
    return {name: asdict(row) | {"missing": row.missing[:1000]} for name, row in rows.items()}


def _close(one: Any, other: Any, torch: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return one == other
    if not isinstance(other, torch.Tensor) or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4 * max(1.0, float(one.abs().max()) if one.numel() else 1.0))


def main(number: str) -> None:
    control = socket.socket(fileno=int(number))
    import torch

    import passlab.capstone  # noqa: F401  (so that what a compiler hands over can be read)

    torch.set_num_threads(1)
    settle()
    on_gpu = sandbox.device().startswith("cuda")
    Server(control, lambda keep: sandbox.enter(ON_GPU if on_gpu else LIMITS, keep, gpu=on_gpu), _answer).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
