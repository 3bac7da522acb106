"""The server that runs returned graphs for the verifier: see `autograder.engine.graphs`.

    python -m autograder.engine.runner.programs relax 5      (a flavour, and the socket of its requests)

Nothing is forked of it but children that run one question's graphs. A flavour of a compiler seldom has any, so its
server loads what it needs when the first request is there.
"""

from __future__ import annotations

import os
import socket
import sys


def _rehearse_compiled() -> None:
    """Count, build and time a compiled model as a child does, so that all children inherit what that loads."""
    import torch
    from torch import fx

    from passlab import capstone

    gm, inputs = fx.symbolic_trace(lambda x: torch.relu(x * 2)), (torch.ones(2, 2),)
    capstone.examined(capstone.Compiled(gm, [["mul", "relu"]]), inputs, gm, rounds=1)


def main(flavour: str, number: str) -> None:
    control = socket.socket(fileno=int(number))
    if flavour != "torch" and not control.recv(1, socket.MSG_PEEK):
        return
    from autograder.engine import graphs
    from autograder.engine.flavours import import_given, warm
    from passlab.process.forking import collapse, settle

    warm(flavour, notebooks=False)
    import_given(flavour)  # a graph may hold modules of these classes
    if flavour == "relax":
        _rehearse_compiled()
    settle()
    collapse()
    graphs.serve(control)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # what is loaded need not be taken apart
