"""The process in which the judge's modules are built and run: it holds no secret, and its word is not taken.

    python -m autograder.engine.verifier.builder relax 5      (a flavour, and the socket of its requests)

The verifier must not run what a learner's pass returned: a module is its author's code, and TIR can write anywhere. So
the engine starts this process beside the verifier, in the sandbox that learner code runs in, and hands the verifier the
other end of its socket: `passlab.tvm.builds` asks there. For each request it forks a child, confined as a worker is,
that reads one module with the checks of `wire_tvm`, builds it, runs it and is gone.

What may be concluded from an answer? The outputs are what the module computed, or what it pretended to: either way they
come from the module and its inputs alone, as the child knows nothing else, and the verifier compares them with what
they must be. A module that has the right outputs ready for inputs that it cannot know computes them. Times, names of
kernels and allocations are claims of a process that the module may have taken over. What a judge can count it counts in
the module that came back; where a question is about speed itself, a module that writes out of its bounds with enough
skill can win that verdict, and nothing else.
"""

from __future__ import annotations

import gc
import socket
import sys
from typing import Any

from autograder.engine import sandbox
from autograder.engine.wire.refusal import Refused
from autograder.engine.wire.tvm import decode_module
from passlab.tvm import server as builder
from passlab.tvm.builds import MEMORY_GIB

#: More of TVM than a worker gets of Python; threads are few, as TVM has one here. Nobody waits for longer than cpu_s.
LIMITS = sandbox.Limits(memory_mib=MEMORY_GIB * 1024, cpu_s=600, processes=8)


def read(flavour: str, text: str) -> Any:
    """The module that a text stands for, checked."""
    try:
        return decode_module(f"{flavour}\n{text}".encode())
    except Refused as refused:
        raise builder.Failed(str(refused)) from None


def main(flavour: str, number: str) -> None:
    control = socket.socket(fileno=int(number))
    builder.load_tvm(flavour)
    builder.rehearse(flavour)
    gc.collect()
    gc.freeze()

    def answer(sock: socket.socket) -> None:
        builder.answer(sock, flavour, lambda text: read(flavour, text))

    builder.Server(control, lambda keep: sandbox.enter(LIMITS, keep), answer).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
