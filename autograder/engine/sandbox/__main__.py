"""The process that tests the sandbox from inside: see `_probe`."""

import socket
import sys

from autograder.engine.sandbox import run_probe

run_probe(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
