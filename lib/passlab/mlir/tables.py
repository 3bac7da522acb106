"""Tables: the operations that a program may hold, and the passes of MLIR that run by name."""

from __future__ import annotations

#: Dialect → its operations that a program may hold. The others cannot be lowered by the tools of the course, run
#: foreign code (llvm.inline_asm, func.call_indirect), or read memory outside the program's buffers.
ALLOWED: dict[str, frozenset[str]] = {
    dialect: frozenset(names.split())
    for dialect, names in {
        "builtin": "module unrealized_conversion_cast",
        "func": "func call return",
        "arith": """constant addi subi muli divsi divui remsi remui ceildivsi ceildivui floordivsi addui_extended
            mulsi_extended mului_extended andi ori xori shli shrsi shrui maxsi maxui minsi minui addf subf mulf divf
            remf negf maximumf minimumf maxnumf minnumf cmpi cmpf select extf extsi extui truncf trunci sitofp uitofp
            fptosi fptoui index_cast index_castui bitcast""",
        "math": """absf absi acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh ctlz ctpop cttz erf erfc
            exp exp2 expm1 floor fma fpowi ipowi isfinite isinf isnan isnormal log log10 log1p log2 powf round roundeven
            rsqrt sin sincos sinh sqrt tan tanh trunc""",
        "linalg": """generic yield index map reduce transpose broadcast elementwise contract fill copy dot matvec vecmat
            matmul batch_matmul batch_matvec batch_vecmat mmt4d batch_reduce_matmul conv_1d conv_2d conv_2d_nchw_fchw
            conv_2d_nhwc_hwcf conv_2d_nhwc_fhwc conv_2d_ngchw_fgchw conv_2d_ngchw_gfchw depthwise_conv_2d_nchw_chw
            depthwise_conv_2d_nhwc_hwc pooling_nchw_max pooling_nchw_sum pooling_nhwc_max pooling_nhwc_min
            pooling_nhwc_sum softmax pack unpack""",
        "tensor": """empty dim rank cast extract insert extract_slice insert_slice expand_shape collapse_shape reshape
            from_elements generate splat pad concat yield parallel_insert_slice gather scatter""",
        "scf": """for if while condition yield parallel reduce reduce.return forall forall.in_parallel execute_region
            index_switch""",
        "memref": """alloc alloca dealloc load store copy dim rank cast subview collapse_shape expand_shape
            reinterpret_cast transpose global get_global alloca_scope alloca_scope.return extract_strided_metadata
            assume_alignment""",
        "affine": "apply for if load store max min parallel yield linearize_index delinearize_index",
        "cf": "assert br cond_br switch",
        "bufferization": """alloc_tensor clone dealloc dealloc_tensor materialize_in_destination to_buffer
            to_tensor""",
        "ub": "poison",
    }.items()
}

#: Pass of MLIR → (the operation that it runs on, "" for any; its purpose). Others do not run: they may write files.
PASSES: dict[str, tuple[str, str]] = {
    "canonicalize": ("", "fold constants and apply every operation's own simplifications"),
    "cse": ("", "compute equal operations without effects once"),
    "inline": ("builtin.module", "put the bodies of functions where they are called"),
    "symbol-dce": ("", "remove private functions that are not called"),
    "loop-invariant-code-motion": ("", "move what does not change out of loops"),
    "strip-debuginfo": ("", "forget where operations came from"),
    "linalg-generalize-named-ops": ("", "write linalg.matmul and its like as linalg.generic"),
    "linalg-specialize-generic-ops": ("", "name the linalg.generics that have a name"),
    "linalg-morph-ops": ("", "turn named operations into generic ones, or back"),
    "linalg-fuse-elementwise-ops": ("", "merge linalg.generics by composing their indexing maps"),
    "linalg-fold-unit-extent-dims": ("", "drop dimensions of size 1"),
    "linalg-fold-into-elementwise": ("", "put transposes and broadcasts into the maps of their user"),
    "linalg-inline-scalar-operands": ("", "read single numbers inside the body"),
    "linalg-block-pack-matmul": ("", "pack the operands of a matmul in blocks"),
    "convert-elementwise-to-linalg": ("", "write arith and math on tensors as linalg.generic"),
    "convert-linalg-to-loops": ("", "write linalg on memrefs as scf.for"),
    "convert-linalg-to-affine-loops": ("", "write linalg on memrefs as affine.for"),
    "convert-linalg-to-parallel-loops": ("", "write linalg on memrefs as scf.parallel"),
    "one-shot-bufferize": ("builtin.module", "give every tensor a buffer, in place where that is safe"),
    "empty-tensor-to-alloc-tensor": ("", "make tensor.empty an allocation"),
    "eliminate-empty-tensors": ("builtin.module", "use the place that a result goes to from the start"),
    "buffer-hoisting": ("func.func", "allocate earlier, outside of branches"),
    "buffer-loop-hoisting": ("func.func", "allocate outside of loops"),
    "buffer-results-to-out-params": ("builtin.module", "write results into buffers that the caller gives"),
    "drop-equivalent-buffer-results": ("builtin.module", "do not return a buffer that was an argument"),
    "promote-buffers-to-stack": ("func.func", "put small buffers on the stack"),
    "ownership-based-buffer-deallocation": ("", "free each buffer exactly once, by who owns it"),
    "buffer-deallocation-simplification": ("", "free without asking where the owner is known"),
    "bufferization-lower-deallocations": ("", "write bufferization.dealloc as memref.dealloc"),
    "optimize-allocation-liveness": ("func.func", "free right after the last use"),
    "expand-strided-metadata": ("", "compute the offsets and strides of views"),
    "memref-expand": ("", "write compact memref operations in smaller steps"),
    "fold-memref-alias-ops": ("", "read and write the buffer behind a view"),
    "normalize-memrefs": ("builtin.module", "replace a buffer's layout map by its loads and stores"),
    "resolve-shaped-type-result-dims": ("", "compute the size of a result from the operands"),
    "reify-result-shapes": ("", "note the sizes of results in their types"),
    "affine-loop-fusion": ("", "run loops over the same points as one"),
    "affine-loop-tile": ("func.func", "split loops into blocks"),
    "affine-loop-unroll": ("func.func", "repeat the body instead of looping"),
    "affine-loop-unroll-jam": ("func.func", "unroll an outer loop into the inner one"),
    "affine-loop-invariant-code-motion": ("func.func", "move what does not change out of affine loops"),
    "affine-super-vectorize": ("func.func", "write inner loops with vectors"),
    "affine-scalrep": ("func.func", "keep what was stored in a value instead of loading it"),
    "affine-loop-normalize": ("func.func", "let loops count from 0 by 1"),
    "affine-parallelize": ("func.func", "make loops without dependences affine.parallel"),
    "affine-loop-coalescing": ("func.func", "make one loop of nested ones"),
    "affine-simplify-structures": ("func.func", "simplify affine maps and sets"),
    "affine-data-copy-generate": ("func.func", "copy what a loop uses into a small buffer"),
    "affine-expand-index-ops": ("", "write index arithmetic in smaller steps"),
    "lower-affine": ("", "write affine as scf, memref and arith"),
    "scf-parallel-loop-fusion": ("", "merge neighbouring scf.parallel loops"),
    "scf-parallel-loop-tiling": ("", "split scf.parallel loops into blocks"),
    "convert-scf-to-cf": ("", "write loops and branches as blocks and jumps"),
    "reconcile-unrealized-casts": ("", "remove casts that undo each other"),
    "transform-interpreter": ("builtin.module", "carry out the module's transform script"),
    "tosa-to-linalg": ("func.func", "write TOSA as linalg"),
}
