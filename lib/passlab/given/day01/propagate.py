"""Day 1, shapes and dtypes without data: how an answer runs on a case, and the watch on data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from passlab.given.day01._shared import TooMuch
from passlab.judge import Case, record


@record
@dataclass(frozen=True)
class Raised:
    """In place of a value: the answer raised this."""

    error: str


class _DataRun(BaseException):
    """Raised inside an answer that computes with data."""


class Watch(TorchDispatchMode):
    """Stop the first operation that creates or computes a tensor with real elements. Copying weights is allowed."""

    harmless: ClassVar = {
        "detach", "alias", "clone", "copy_", "_to_copy", "lift_fresh", "lift_fresh_copy", "set_", "view",
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
    }  # fmt: skip

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if name not in self.harmless:
            device = kwargs.get("device") or (None if inputs else "cpu")
            makes = device is not None and torch.device(device).type != "meta" and self._elements(args, inputs) > 1
            if makes or any(map(self._real, inputs)):
                raise _DataRun(name)
        return func(*args, **kwargs)

    @staticmethod
    def _elements(args: tuple, inputs: list[torch.Tensor]) -> int:
        """Return how many elements a function that creates a tensor, such as zeros or ones_like, would create."""
        sizes = [arg for arg in args if isinstance(arg, list | tuple) and all(isinstance(n, int) for n in arg)]
        return max([torch.Size(size).numel() for size in sizes] + [t.numel() for t in inputs], default=1)

    @staticmethod
    def _real(tensor: torch.Tensor) -> bool:
        from torch._subclasses.fake_tensor import FakeTensor

        return not isinstance(tensor, FakeTensor) and tensor.device.type != "meta" and tensor.numel() > 1


def call(answer: Callable, case: Case) -> Any:
    """Run an answer on a case. An error is a valid answer; in a case about cost, watch for real data.

    An answer could switch the watch off. It gains nothing: one of the cases has 64 GiB of weights, and no data.
    """
    gm, *inputs = case.build()
    try:
        if "cost" not in case.about:
            return answer(gm, *inputs)
        with Watch():
            return answer(gm, *inputs)
    except _DataRun:
        return TooMuch("data")
    except Exception as error:
        if isinstance(error, NotImplementedError) and not str(error):
            raise
        return Raised(f"{type(error).__name__}: {error}")
