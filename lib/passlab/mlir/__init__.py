"""MLIR: read, checked, drawn, compared, generated, and sent through MLIR's own passes.

    module = parse(text)                        # an xDSL module
    print(text(pipeline(module, "linalg-fuse-elementwise-ops")))

A program is xDSL's `builtin.ModuleOp`, Python objects that a pass may rewrite. What xDSL lacks (the whole syntax,
MLIR's own verifier and passes) runs through IREE's bindings. Both load when first used.

`modules`: text, verification, passes, limits. `tables`: what a program may hold, and the passes. `reader`, `picture`:
the view and the drawing. `measure`: launches, bytes, flops. `equivalent`, `generate`, `shrink`, `cases`: comparing
programs and making them. `imports`: models of torch.
"""

from passlab.mlir.modules import (
    ALLOWED,
    PASSES,
    MLIRError,
    context,
    copy,
    from_iree,
    generic,
    name_of,
    parse,
    passes,
    pipeline,
    text,
    to_iree,
    verify,
)

__all__ = [
    "ALLOWED",
    "PASSES",
    "MLIRError",
    "context",
    "copy",
    "from_iree",
    "generic",
    "name_of",
    "parse",
    "passes",
    "pipeline",
    "text",
    "to_iree",
    "verify",
]
