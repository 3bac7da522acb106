"""Tensors as raw bytes in messages, with their dtypes and shapes in the head."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

_DTYPES = {str(np.dtype(name)) for name in "bool float16 float32 float64".split()}  # noqa: SIM905
_DTYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def array_of(value: Any) -> np.ndarray:
    """Return a tensor of torch or TVM, an array or a number as an array. Raises ValueError for another dtype."""
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu().contiguous()
        if str(value.dtype) == "torch.bfloat16":
            import ml_dtypes
            import torch

            return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        value = value.numpy()
    elif hasattr(value, "numpy"):  # a tensor of TVM
        value = value.numpy()
    array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
    dtype_of(array.dtype.name)
    return array


def dtype_of(name: str) -> np.dtype:
    """Return NumPy's dtype of a name, "bfloat16" among them. Raises ValueError for one that no module takes."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name not in _DTYPES:
        raise ValueError(f"No module takes or returns tensors of dtype {name[:40]}.")
    return np.dtype(name)


def flat(part: Any) -> Any:
    """Return a part of a message: an array as its bytes (an empty or zero-dimensional one has no flat view)."""
    return part.reshape(-1).view(np.uint8) if isinstance(part, np.ndarray) else part


def spec(array: np.ndarray) -> list:
    """Return dtype and shape, as `arrays` reads them."""
    return [array.dtype.name, list(array.shape)]


def arrays(specs: Iterable[list], payload: memoryview) -> tuple[list[np.ndarray], memoryview]:
    """Return the arrays described by the specs, from the front of the payload, and the rest. Raises ValueError."""
    result = []
    for name, shape in specs:
        dtype = dtype_of(name)
        if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32:
            raise ValueError(f"{str(shape)[:60]} is not a shape.")
        size = math.prod(shape) * dtype.itemsize
        if size > len(payload):
            raise ValueError(f"A tensor of {size:,} bytes is missing.")
        result.append(np.frombuffer(payload[:size], dtype).reshape(shape))
        payload = payload[size:]
    return result, payload


def as_torch(array: np.ndarray) -> Any:
    """Return an output as a torch tensor that owns its memory."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))
