"""The builder: builds and runs modules for the judge. It holds no secrets and is not trusted.

    python -m autograder.engine.verifier.builder relax 5      (a flavour, and the socket of its requests)

The verifier must not run what a learner's pass returned: a module is its author's code, and TIR can write anywhere. So
the engine starts this process beside the verifier, in the sandbox for learner code, and gives the verifier the other
end of its socket, for `passlab.building.requests`. For each request it forks a child, confined like a worker, that
reads one module with the checks of its IR (`Compiler.parse_untrusted`), builds it, runs it and exits.

What does a reply prove? The outputs are what the module computed or pretended to compute: either way they come from the
module and its inputs alone, since the child knows nothing else, and the verifier compares them with the expected ones.
A module that returns the right outputs for inputs it cannot know computes them. Names of kernels and allocations are
claims of a process that the module may have taken over: a judge counts whatever it can in the returned module. Where a
question is about speed, the module and the one beside it have a child each, and the time is what the kernel says of it.
"""

from __future__ import annotations

import os
import socket
import sys

from autograder.engine import sandbox
from passlab.building import server as builder
from passlab.building.requests import MEMORY_GIB
from passlab.graph.registry import compiler
from passlab.process.error_text import last_line
from passlab.process.forking import collapse, settle
from passlab.process.server import Server

#: More memory than a worker gets; few threads, as TVM has one here. No request may take longer than cpu_s.
LIMITS = sandbox.Limits(memory_mib=MEMORY_GIB * 1024, cpu_s=600, processes=8)


def main(flavour: str, number: str) -> None:
    control = socket.socket(fileno=int(number))
    own = compiler(flavour)
    own.load()
    own.rehearse()
    settle()
    collapse()

    def answer(sock: socket.socket) -> None:
        builder.answer(sock, own, own.parse_untrusted)

    Server(control, lambda keep: sandbox.enter(LIMITS, keep), answer, last_line).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # as `passlab.building.server` ends
