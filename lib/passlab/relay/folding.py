"""FoldConstant of Relay, made fast: kernels that are alike are built once, and without LLVM's optimizations.

    with build_once():
        folded = relay.transform.FoldConstant()(module)

TVM's pass builds the kernel of each constant anew: 180 kernels for ResNet-18 after SimplifyInference, of which 28
differ. Each runs once for each constant, which takes less time than to optimize it. A dictionary that is given to
several blocks keeps the kernels from one block to the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from passlab.relay import tvm

#: By the hash of kernels: these, and the library built from them.
Libraries = dict[int, list[tuple[Any, Any]]]


@contextlib.contextmanager
def build_once(libraries: Libraries | None = None) -> Iterator[None]:
    """Let passes that compute constants keep the kernels that they build: in `libraries`, or until the block ends."""
    build = tvm.get_global_func("relay.backend.build")
    libraries = {} if libraries is None else libraries
    plain = tvm.target.Target("llvm -opt-level=0")

    def build_or_find(kernels: Any, _target: Any, host: Any = None) -> Any:
        alike = libraries.setdefault(tvm.ir.structural_hash(kernels), [])
        for built, library in alike:
            if tvm.ir.structural_equal(built, kernels):
                return library
        alike.append((kernels, build(kernels, plain, host)))
        return alike[-1][1]

    tvm.register_func("relay.backend.build", build_or_find, override=True)
    try:
        yield
    finally:
        tvm.register_func("relay.backend.build", build, override=True)
