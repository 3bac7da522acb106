"""What exercises of several days ask of a kernel in TensorIR."""

from __future__ import annotations

#: Operations of TIR that run code from elsewhere.
FOREIGN = ("call_extern", "call_pure_extern", "call_packed", "call_cpacked", "call_llvm", "lookup_param", "inline_asm")
