"""FoldConstant of Relay, made fast: kernels that are alike are built once.

    with build_once():
        folded = relay.transform.FoldConstant()(module)

TVM's pass builds the kernel of each constant anew: 180 kernels for ResNet-18 after SimplifyInference, of which 28
differ. A dictionary that is given to several blocks keeps the kernels from one block to the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from passlab.relay import tvm

#: By the hash of kernels and target: these, and the library built from them.
Libraries = dict[int, list[tuple[Any, Any]]]


@contextlib.contextmanager
def build_once(libraries: Libraries | None = None) -> Iterator[None]:
    """Let passes that compute constants keep the kernels that they build: in `libraries`, or until the block ends."""
    build = tvm.get_global_func("relay.backend.build")
    libraries = {} if libraries is None else libraries

    def build_or_find(kernels: Any, target: Any, host: Any = None) -> Any:
        alike = libraries.setdefault(tvm.ir.structural_hash((kernels, target)), [])
        for built, library in alike:
            if tvm.ir.structural_equal(built, (kernels, target)):
                return library
        alike.append(((kernels, target), build(kernels, target, host)))
        return alike[-1][1]

    tvm.register_func("relay.backend.build", build_or_find, override=True)
    try:
        yield
    finally:
        tvm.register_func("relay.backend.build", build, override=True)
