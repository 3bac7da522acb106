"""A second process beside the notebook's: one process can use only one TVM, and a lesson may show two.

    from passlab.notebook import beside  # makes the magic known

    %%beside relax
    module = …                       # this cell runs in the other process, and is shown here; `relay relax` in both

    beside.view("relax", "module")   # the passlab graph of the variable `module` there

A process is started when a flavour ("relay" or "relax") is first used, keeps its variables from cell to cell, and ends
with the notebook's. Where the compiler is not available, the first cell for it explains why, and all do nothing.
"""

from __future__ import annotations

import atexit
import base64
import importlib
import pickle
import queue
import sys
import tempfile
from collections.abc import Iterator
from subprocess import Popen
from typing import TYPE_CHECKING, Any, cast

from passlab.graph import Graph
from passlab.notebook.ui import say, show

if TYPE_CHECKING:
    from jupyter_client.provisioning import LocalProvisioner

FLAVOURS = ("relay", "relax")
#: Values travel pickled, which is safe here: both processes are the learner's own.
_PICKLED = "application/x-python-pickle"


class CellFailed(Exception):
    """A cell failed in the process beside; shown with the traceback from there."""

    def __init__(self, sentence: str, traceback: list[str]):
        super().__init__(sentence)
        self.traceback = traceback

    def _render_traceback_(self) -> list[str]:
        return self.traceback


class _Beside:
    """The kernel for a flavour. `unreachable`: why its compiler cannot be used there, or ""."""

    def __init__(self, flavour: str):
        from jupyter_client.kernelspec import KernelSpecManager
        from jupyter_client.manager import KernelManager

        self.flavour = flavour
        self.folder = tempfile.TemporaryDirectory(prefix="passlab-")  # its sockets, which only this user can open
        self.manager = KernelManager(
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),  # which leaves one kernel: that of this Python
            transport="ipc",
            connection_file=f"{self.folder.name}/kernel.json",
        )
        self.client = self.manager.client()
        atexit.register(self.end)
        try:
            self.manager.start_kernel(extra_arguments=["--colors=nocolor", "--HistoryManager.enabled=False"])
            self.client.load_connection_info(self.manager.get_connection_info())
            self.client.start_channels(stdin=False, hb=False)
            self.client.wait_for_ready()
        except Exception as error:
            self.end()
            sentence = f"A second process cannot be started here: {error}."
            raise CellFailed(sentence, [sentence]) from error
        self.unreachable = self.call(f"begin({flavour!r})")
        if self.unreachable:
            self.end()

    @property
    def alive(self) -> bool:
        return self.manager.has_kernel and self._process().poll() is None

    def _process(self) -> Popen:
        process = cast("LocalProvisioner", self.manager.provisioner).process
        assert process, "the kernel has been started"
        return process

    def call(self, call: str) -> Any:
        """Call a function of this module there; return the value it passes to `bring`."""
        try:
            return self.run(f"__import__({__name__!r}, fromlist=['bring']).{call}")
        except CellFailed as failed:
            raise CellFailed(str(failed), [str(failed)]) from None

    def run(self, cell: str) -> Any:
        """Run a cell there and show its outputs here; return the value it passes to `bring`. Raises CellFailed."""
        while self.client.shell_channel.msg_ready():  # replies to earlier cells, whose outputs have been shown
            self.client.shell_channel.get_msg()
        request = self.client.execute(cell, allow_stdin=False)
        pickled = failure = None
        for kind, content in self._messages(request):
            if kind == "stream":
                getattr(sys, content["name"]).write(content["text"])
            elif kind == "error":
                failure = CellFailed(f"{content['ename']}: {content['evalue']}", content["traceback"])
            elif kind in ("display_data", "execute_result"):
                if _PICKLED in content["data"]:
                    pickled = content["data"][_PICKLED]
                else:
                    _display(content["data"], content["metadata"])
        if failure:
            raise failure
        try:
            return pickle.loads(base64.b64decode(pickled)) if pickled else None
        except (ImportError, AttributeError) as error:  # its class is not known here
            sentence = f"This value cannot leave its process ({error}): fetch numbers, arrays or text instead."
            raise TypeError(sentence) from None

    def _messages(self, request: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield kind and content of the messages about a request, until it is done. Raises CellFailed."""
        while True:
            try:
                message = self.client.iopub_channel.get_msg(timeout=0.5)
            except KeyboardInterrupt:
                self.manager.interrupt_kernel()
                continue
            except queue.Empty:
                if not self.alive:
                    raise self._ended() from None
                continue
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "status" and content["execution_state"] == "idle":
                return
            yield kind, content

    def _ended(self) -> CellFailed:
        """Clean up after a kernel that has ended, and return the error to raise."""
        code = self._process().returncode
        sentence = (
            f"The second process, for {self.flavour}, ended (exit status {code}), and its variables are gone: "
            "run its cells again from the first."
        )
        self.end()
        return CellFailed(sentence, [sentence])

    def end(self) -> None:
        """Stop the kernel and remove its files. (It also ends by itself, a second after this process.)"""
        atexit.unregister(self.end)
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.folder.cleanup()


_running: dict[str, _Beside] = {}


def _reached(flavour: str) -> _Beside | None:
    """Return the process for a flavour, started if need be; None, explained once, where its compiler is unavailable."""
    if flavour not in FLAVOURS:
        raise ValueError(f"No compiler {flavour!r} for a second process; choose {' or '.join(FLAVOURS)}.")
    other = _running.get(flavour)
    if other is None or not (other.unreachable or other.alive):
        other = _running[flavour] = _Beside(flavour)
        if other.unreachable:
            show(say(f"{other.unreachable} The cells for {flavour.capitalize()} in this notebook do nothing."))
    return None if other.unreachable else other


def run(flavours: str, cell: str) -> None:
    """Run a cell in the process of a flavour, or of several ("relay relax"), and show its outputs here.

    Raises CellFailed when it fails there.
    """
    for flavour in flavours.split():
        if other := _reached(flavour):
            other.run(cell)


def value(flavour: str, expression: str) -> Any:
    """Return the value of an expression there: numbers, arrays, text. None where the compiler is unavailable."""
    other = _reached(flavour)
    return other.call(f"bring({expression})") if other else None


def view(flavour: str, expression: str) -> Graph | None:
    """Return `passlab.view` of an expression there. None where the compiler is unavailable."""
    other = _reached(flavour)
    return other.call(f"bring_view({expression})") if other else None


def _display(data: dict, metadata: dict) -> None:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if shell:
        shell.display_pub.publish(data=data, metadata=metadata)
    else:
        print(data.get("text/plain", ""))


def load_ipython_extension(shell: Any) -> None:
    """Register `%%beside` with an IPython shell."""
    shell.register_magic_function(lambda line, cell: run(line, cell), "cell", "beside")


# Functions that the second process runs


def begin(flavour: str) -> None:
    """Load the compiler for a flavour; bring the reason why it cannot be loaded, or ""."""
    from passlab.building.compiler import Unreachable

    try:
        importlib.import_module(f"passlab.{flavour}").reach()
    except Unreachable as error:
        bring(str(error))
    else:
        bring("")


def bring(value: Any) -> None:
    """Pass a value to the notebook's own process."""
    _display({_PICKLED: base64.b64encode(pickle.dumps(value)).decode()}, {})


def bring_view(value: Any) -> None:
    from passlab.graph import view

    bring(view(value))


if _here := sys.modules.get("IPython") and sys.modules["IPython"].get_ipython():
    load_ipython_extension(_here)
