"""Interfaces for building and running modules: the same few verbs for each executor of any compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Unreachable(ImportError):
    """A compiler cannot be used in this process, or on this machine; the message says why and what to do."""

    def _render_traceback_(self) -> list[str]:  # a notebook shows the message alone
        return [str(self)]


class Failed(Exception):
    """A module cannot be built or run; the message is for the learner."""


class Executor(Protocol):
    """A built module, in a process that it may end."""

    def call(self, values: list[np.ndarray]) -> Callable[[], Any]:
        """Return a function that runs on copies of these inputs, waits for the device, and returns the outputs, nested
        as the module returns them. They may be overwritten by its next call, or the next function's."""

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], list[int] | None]:
        """Return the kernels of one run, and the count and bytes of its allocations, where known."""
