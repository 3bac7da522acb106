"""What a fork of a zygote leaves in the terminal."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace

import pytest

from autograder.engine import zygote
from passlab.process.messages import send


def over_messages(flavour: str, number: str) -> None:
    send(socket.socket(fileno=int(number)), {"ready": True})


def over_the_socket(flavour: str, number: str) -> None:
    socket.socket(fileno=int(number)).send(b"ready")


def status(main) -> int:
    """Run `main` as the process of a flavour whose engine has ended, and return its exit status."""
    engine, own = socket.socketpair()
    with own:
        engine.close()
        pid = os.fork()
        if pid == 0:
            zygote._run(SimpleNamespace(main=main), "torch", [os.dup(own.fileno())])
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("main", [over_messages, over_the_socket])
def test_a_process_that_still_loads_when_the_engine_ends_is_silent(main, capfd):
    assert status(main) == 1
    assert capfd.readouterr().err == ""


def test_another_error_is_told(capfd):
    assert status(lambda flavour, number: 1 / 0) == 1
    assert "ZeroDivisionError: division by zero" in capfd.readouterr().err
