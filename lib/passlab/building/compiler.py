"""The interface between an IR's compiler and the process that builds and runs its modules.

`passlab.relay.compiler.COMPILER` is one. `passlab.graph.registry.compiler` finds them by the names of their packages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from passlab.process.error_text import last_line


class Unreachable(ImportError):
    """A compiler cannot be used in this process, or on this machine; the message has the reason and the remedy."""

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


class Compiler:
    """A compiler. Neither the class nor an instance loads it: that is left to the methods.

    `who` builds a module, in messages. `distribution`: the installed package whose version decides what modules
    compute, as do the `sources`, files of passlab. `own`: prefixes of the modules that only a process of this compiler
    imports.
    """

    who = "The compiler"
    distribution: str
    sources: tuple[str, ...]
    own: tuple[str, ...]

    # Any process

    def explain(self, text: str) -> str:
        """Return an error's text in words that help a learner."""
        return text

    # The engine's processes

    def prepare(self) -> None:
        """Do what must be done once outside the sandbox. Raises Unreachable if it cannot be done."""

    def start(self) -> None:
        """Load the compiler in a process that will fork: it may start no thread. Raises Unreachable."""

    def rehearse_notebook(self, net: Any, x: Any) -> None:
        """Use a small model of torch as notebooks do, to load everything that loads at first use."""

    def confine(self) -> None:
        """Parse untrusted modules in another process only, from now on."""

    # The process that builds

    def load(self) -> Callable[[str], Any]:
        """Load the compiler; return the function that makes a module of a text. Raises Unreachable."""
        raise NotImplementedError

    def parse_untrusted(self, text: str) -> Any:
        """Return the module of a stranger's text. Raises Failed."""
        raise NotImplementedError

    def rehearse(self) -> None:
        """Build a module, so that all children inherit what a first build loads and caches."""

    def build(self, module: Any, params: dict[str, np.ndarray], head: dict) -> Executor:
        """Build a module with the options in a request's head. Raises Failed, and the compiler's own errors."""
        raise NotImplementedError

    def why(self, error: Exception) -> str:
        """Return the message of a failed build or run, or ""."""
        return last_line(str(error))

    def targets(self) -> tuple[str, ...]:
        """Return the targets that modules can be built for and run on here."""
        return ("llvm",)

    def use_threads(self, count: int) -> None:
        """Limit kernels to `count` threads, at most the cores that the process may use."""

    def outputs(self, result: Any) -> list[np.ndarray]:
        """Return what an executor's run returned, flat."""
        return [np.asarray(value) for value in result]
