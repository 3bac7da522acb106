"""Triton's interpreter with walls: a kernel reads and writes its arguments, and nothing else in this process.

    with interpreting(), bounded(tensors):
        kernel[grid](*tensors)

The interpreter computes addresses as Triton does and hands them to C++, which reads and writes wherever they point.
Here each read, write and atomic operation is compared with the memory of the arguments first, and a number is never
taken for an address.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

#: What `import triton` means inside `interpreting`: module name → module.
_modules: dict[str, Any] = {}


class OutOfBounds(IndexError):
    """A kernel read or wrote outside of its arguments."""


class _Memory:
    """A wrapper of the interpreter's functions in C++. `areas`: first and last address of each argument."""

    def __init__(self, native: Any):
        self._native = native
        self.MEM_SEMANTIC, self.RMW_OP = native.MEM_SEMANTIC, native.RMW_OP
        self.areas: list[tuple[int, int]] = []

    def load(self, pointers: np.ndarray, mask: np.ndarray, other: np.ndarray, dtype: np.dtype) -> np.ndarray:
        other = np.ascontiguousarray(other, dtype)
        self._check("reads", pointers, mask, other)
        return self._native.load(pointers, mask, other, dtype)

    def store(self, pointers: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        values = np.ascontiguousarray(values)
        self._check("writes", pointers, mask, values)
        self._native.store(pointers, values, mask)

    def atomic_cas(self, pointers: np.ndarray, expected: np.ndarray, values: np.ndarray, order: Any) -> np.ndarray:
        values, expected = np.ascontiguousarray(values), np.ascontiguousarray(expected)
        self._check("writes", pointers, np.ones(pointers.shape, bool), values, expected)
        return self._native.atomic_cas(pointers, expected, values, order)

    def atomic_rmw(self, op: Any, pointers: np.ndarray, values: np.ndarray, mask: np.ndarray, order: Any) -> np.ndarray:
        values = np.ascontiguousarray(values)
        self._check("writes", pointers, mask, values)
        return self._native.atomic_rmw(op, pointers, values, mask, order)

    def _check(self, verb: str, pointers: np.ndarray, mask: np.ndarray, *operands: np.ndarray) -> None:
        pointers, mask = np.asarray(pointers), np.asarray(mask)
        if pointers.dtype != np.uint64 or mask.dtype != np.bool_:
            raise OutOfBounds(f"it {verb} at {pointers.dtype} numbers, which are not addresses")
        if any(array.size != pointers.size for array in (mask, *operands)):
            raise OutOfBounds(f"it {verb} {operands[0].size} numbers at {pointers.size} places")
        size = max(array.itemsize for array in operands)
        valid = ~mask
        for first, last in self.areas:
            if last - first + 1 >= size:
                valid = valid | ((pointers >= first) & (pointers <= last + 1 - size))
        if not valid.all():
            count = int((~valid).sum())
            raise OutOfBounds(f"it {verb} outside of its arguments, {count} of {pointers.size} numbers at once")


def _area(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first and the last address of a tensor's numbers; the last is before the first for an empty one."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start - 1
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (steps + 1) * tensor.element_size() - 1


def _refuse_addresses(builder: type) -> None:
    """Have the interpreter refuse to take numbers for addresses, and addresses for numbers."""
    bitcast = builder.create_bitcast

    def is_address(dtype: Any) -> bool:
        return dtype.scalar.is_ptr()

    def create_bitcast(self: Any, source: Any, dtype: Any) -> Any:
        if is_address(source.dtype) != is_address(dtype):
            raise OutOfBounds("it takes a number for an address, or an address for a number")
        return bitcast(self, source, dtype)

    for name in ("create_bitcast", "create_int_to_ptr", "create_ptr_to_int"):
        setattr(builder, name, create_bitcast)


@contextlib.contextmanager
def interpreting() -> Iterator[None]:
    """Have `import triton` mean its interpreter inside.

    Triton decides when it is imported whether it interprets, and by then torch may have imported it to compile.
    """

    def own() -> dict[str, Any]:
        modules = sys.modules.items()
        return {name: m for name, m in modules if f"{name}.".startswith("triton.") and not name.startswith("triton._C")}

    def put(modules: dict[str, Any]) -> None:
        for name in own():
            del sys.modules[name]
        sys.modules.update(modules)

    others, before = own(), os.environ.get("TRITON_INTERPRET")
    put(_modules)
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        interpreter = importlib.import_module("triton.runtime.interpreter")
        if not isinstance(interpreter._interpreter, _Memory):
            interpreter._interpreter = _Memory(interpreter._interpreter)
            _refuse_addresses(interpreter.InterpreterBuilder)
        yield
    finally:
        _modules.update(own())
        put(others)
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before


@contextlib.contextmanager
def bounded(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Let kernels that are interpreted inside reach these tensors: used within `interpreting`."""
    memory = sys.modules["triton.runtime.interpreter"]._interpreter
    memory.areas = [_area(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]
    try:
        yield
    finally:
        memory.areas = []
