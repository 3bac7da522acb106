"""FoldConstant of Relax, made fast: kernels that are alike are built once, and without LLVM's optimizations.

    with build_once():
        folded = relax.transform.FoldConstant()(module)

TVM's pass builds the kernel of each constant anew: 121 kernels for ResNet-18, of which 13 differ. That took most of the
time of a pipeline. Each runs once for each constant, which takes less time than to optimize it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def build_once() -> Iterator[None]:
    """Let passes that compute constants keep the kernels that they build, until the block ends."""
    import tvm_ffi

    from passlab.relax import tvm

    build = tvm.get_global_func("tirx.build")
    structure: Any = tvm_ffi.StructuralKey
    plain = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    libraries: dict[Any, Any] = {}

    def build_or_find(kernel: Any, _target: Any) -> Any:
        key = structure(kernel)
        if key not in libraries:
            libraries[key] = build(kernel, plain)
        return libraries[key]

    tvm_ffi.register_global_func("tirx.build", build_or_find, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func("tirx.build", build, override=True)


def fold_constants() -> Any:
    """Return a pass, for a pipeline, that is TVM's FoldConstant in such a block."""
    from passlab.relax import relax, tvm

    @tvm.transform.module_pass(opt_level=0, name="fold_constants")
    def run(module: Any, _: Any) -> Any:
        with build_once():
            return relax.transform.FoldConstant()(module)

    return run
