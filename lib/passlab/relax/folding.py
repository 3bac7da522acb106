"""FoldConstant of Relax, made fast: kernels that are alike are built once.

TVM's pass builds the kernel of each constant anew: 121 kernels for ResNet-18, of which 13 differ. That took most of the
time of a pipeline.
"""

from __future__ import annotations

from typing import Any


def fold_constants() -> Any:
    """Return a pass that does what TVM's FoldConstant does."""
    import tvm_ffi

    from passlab.relax import relax, tvm

    @tvm.transform.module_pass(opt_level=0, name="fold_constants")
    def run(module: Any, _: Any) -> Any:
        build = tvm.get_global_func("tirx.build")
        structure: Any = tvm_ffi.StructuralKey
        libraries: dict[tuple[Any, str], Any] = {}

        def build_once(kernel: Any, target: Any) -> Any:
            key = structure(kernel), str(target)
            if key not in libraries:
                libraries[key] = build(kernel, target)
            return libraries[key]

        tvm_ffi.register_global_func("tirx.build", build_once, override=True)
        try:
            return relax.transform.FoldConstant()(module)
        finally:
            tvm_ffi.register_global_func("tirx.build", build, override=True)

    return run
