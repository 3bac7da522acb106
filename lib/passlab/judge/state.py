"""Put back what an answer, or the program that it returned, changed in this process.

Without this one wrong answer spoils the next right one: a graph whose nodes say `meta["is_wrapped"]` enters a function
into torch.fx's table of wrapped functions as soon as it is compiled, and from then on every trace in the process fails.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType


@contextlib.contextmanager
def preserve_process_state() -> Iterator[None]:
    """Restore the process's state at the end: seeds, folder, environment, and torch's modes, hooks and tables."""
    undo = [*_python(), *_numpy(), *_torch()]
    try:
        yield
    finally:
        for put_back in reversed(undo):
            with contextlib.suppress(Exception):  # a folder that is gone, say; the others are put back all the same
                put_back()


def _python() -> Iterator[Callable[[], None]]:
    state, folder, variables, limit = random.getstate(), os.getcwd(), dict(os.environ), sys.getrecursionlimit()
    collects = gc.isenabled()

    def put_back() -> None:
        random.setstate(state)
        sys.setrecursionlimit(max(limit, sys.getrecursionlimit()))  # a compiler that is loaded meanwhile raises it
        (gc.enable if collects else gc.disable)()
        if os.environ != variables:
            os.environ.clear()
            os.environ.update(variables)

    yield put_back
    yield lambda: None if os.getcwd() == folder else os.chdir(folder)


def _numpy() -> Iterator[Callable[[], None]]:
    if numpy := sys.modules.get("numpy"):
        state, errors = numpy.random.get_state(), numpy.geterr()
        yield lambda: numpy.random.set_state(state)
        yield lambda: numpy.seterr(**errors) and None


def _torch() -> Iterator[Callable[[], None]]:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_rng_state"):  # not there, or still being imported
        return
    for read, write in (
        (torch.get_rng_state, torch.set_rng_state),
        (torch.is_grad_enabled, torch._C._set_grad_enabled),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.get_default_dtype, torch.set_default_dtype),
    ):
        yield _setting(read, write)
    yield from _modes(torch)
    for module, prefix in (("torch.nn.modules.module", "_global_"), ("torch.fx._symbolic_trace", "_wrapped_")):
        if home := sys.modules.get(module):
            yield from _tables(home, prefix)


def _setting(read: Callable, write: Callable) -> Callable[[], None]:
    before = read()
    return lambda: None if _same(read(), before) else write(before)


def _same(a: object, b: object) -> bool:
    return a is b or (type(a) in (bool, int, str) and a == b)


def _modes(torch: ModuleType) -> Iterator[Callable[[], None]]:
    """Leave the modes that were entered and not left; a default device is one of them."""

    def leave(length: Callable[[], int], pop: Callable, before: int) -> None:
        while length() > before:
            pop()

    for kind in ("function", "dispatch"):
        length, pop = getattr(torch._C, f"_len_torch_{kind}_stack"), getattr(torch._C, f"_pop_torch_{kind}_stack")
        yield partial(leave, length, pop, length())
    yield _setting(lambda: str(torch.get_default_device()), torch.set_default_device)


def _tables(home: ModuleType, prefix: str) -> Iterator[Callable[[], None]]:
    """Give the module's tables of this prefix the entries that they have now."""

    def put_back(table: dict | list, entries: dict | list) -> None:
        if table != entries:
            table.clear()
            (table.update if isinstance(table, dict) else table.extend)(entries)

    for name, table in vars(home).items():
        if name.startswith(prefix) and isinstance(table, dict | list):
            yield partial(put_back, table, table.copy())
