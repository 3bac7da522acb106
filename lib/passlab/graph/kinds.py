"""The kinds of operations: one table per vocabulary, one row of names per kind. A name in no row computes."""

from __future__ import annotations


def _by_name(rows: dict[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in rows.items() for name in names.split()}


#: Functions and methods of PyTorch, by their bare names: for torch.fx, TorchScript's aten:: and torch.export's aten.
TORCH = _by_name(
    {
        "data": """tensor as_tensor scalar_tensor zeros ones full empty arange linspace logspace eye zeros_like
            ones_like full_like empty_like new_zeros new_ones new_full new_empty new_tensor lift_fresh_copy""",
        "shape": """reshape reshape_as view view_as permute transpose t numpy_T matrix_H mT swapaxes swapdims movedim
            moveaxis adjoint flatten unflatten ravel squeeze unsqueeze expand expand_as expand_copy broadcast_to
            broadcast_tensors repeat repeat_interleave tile cat concat concatenate stack hstack vstack dstack
            column_stack split split_with_sizes chunk tensor_split unsafe_split unsafe_chunk unbind getitem select
            narrow slice index_select gather take take_along_dim flip fliplr flipud roll rot90 pad constant_pad_nd
            pixel_shuffle pixel_unshuffle channel_shuffle unfold im2col as_strided diagonal tril triu size dim
            ndimension numel shape getattr stride is_contiguous len sym_size sym_stride sym_numel detach alias
            view_as_real view_as_complex real imag unsafe_view _unsafe_view _reshape_alias slice_scatter
            select_scatter""",
        "control": """cond while_loop map map_impl scan associative_scan _assert _assert_async _assert_scalar
            _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size""",
        "memory": "clone contiguous copy to_copy _to_copy cpu cuda pin_memory lift",
    }
)

#: Functions of Python's `operator` that write into their first operand.
WRITING_OPERATORS = frozenset(
    """setitem delitem iadd isub imul itruediv ifloordiv imod imatmul ipow iand ior ixor ilshift irshift iconcat
    """.split()  # noqa: SIM905
)

#: Leaf modules of torch.nn, by class name.
MODULES = _by_name(
    {
        "shape": """Flatten Unflatten Identity PixelShuffle PixelUnshuffle ChannelShuffle Fold Unfold ConstantPad1d
            ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d
            ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d CircularPad3d""",
    }
)

#: TorchScript's own operations, without the prefix prim::.
PRIM = _by_name(
    {
        "data": "Param Return Constant GetAttr ListConstruct TupleConstruct DictConstruct",
        "shape": "ListUnpack TupleUnpack TupleIndex TupleSlice ConstantChunk shape ConstantMKLDNNTensor",
        "control": "If Loop With RaiseException CallMethod CallFunction PythonOp fork Closure Enter Exit Print",
        "memory": "SetAttr",
    }
)

ONNX = _by_name(
    {
        "data": "input initializer output Constant ConstantOfShape EyeLike Range",
        "shape": """Reshape Transpose Squeeze Unsqueeze Flatten Expand Tile Concat Split Slice Gather GatherElements
            GatherND Pad DepthToSpace SpaceToDepth ReverseSequence Shape Size Identity Compress Trilu CenterCropPad
            ConcatFromSequence SequenceAt SequenceConstruct SequenceInsert SequenceErase SequenceLength SplitToSequence
            Unique Optional OptionalGetElement OptionalHasElement""",
        "control": "If Loop Scan SequenceMap",
    }
)

#: StableHLO and the few operations of `func` around it, without the dialect.
STABLEHLO = _by_name(
    {
        "data": "argument constant iota create_token return",
        "shape": """broadcast_in_dim broadcast dynamic_broadcast_in_dim reshape dynamic_reshape transpose slice
            dynamic_slice real_dynamic_slice dynamic_update_slice concatenate pad dynamic_pad reverse gather
            dynamic_gather tuple get_tuple_element get_dimension_size set_dimension_size bitcast_convert real imag
            optimization_barrier unpack""",
        "control": "while case if call custom_call_region after_all",
    }
)

HLO = _by_name(
    {
        "data": "parameter constant iota",
        "shape": """broadcast reshape dynamic-reshape transpose slice dynamic-slice dynamic-update-slice concatenate pad
            reverse gather tuple get-tuple-element get-dimension-size set-dimension-size bitcast bitcast-convert
            real imag opt-barrier""",
        "control": "while conditional call after-all async-start async-done async-update",
        "memory": "copy copy-start copy-done",
    }
)

#: MLIR's operations, with their dialects, and "argument". (A dialect's operations in no row: `MLIR_DIALECTS`.)
MLIR = _by_name(
    {
        "data": """argument arith.constant tensor.empty tensor.splat tensor.from_elements tensor.generate linalg.fill
            linalg.index func.return ub.poison llvm.mlir.constant llvm.mlir.undef llvm.mlir.zero llvm.mlir.poison
            llvm.return""",
        "shape": """linalg.transpose linalg.broadcast memref.dim memref.rank memref.cast memref.subview memref.transpose
            memref.collapse_shape memref.expand_shape memref.reinterpret_cast memref.extract_strided_metadata
            builtin.unrealized_conversion_cast""",
        "control": """affine.for affine.if affine.parallel func.call llvm.br llvm.cond_br llvm.switch llvm.call
            memref.alloca_scope""",
        "memory": "linalg.copy affine.load affine.store llvm.load llvm.store llvm.alloca",
    }
)
MLIR_DIALECTS = {"tensor": "shape", "scf": "control", "cf": "control", "memref": "memory", "bufferization": "memory"}

#: Operators of Relay and Relax (without the prefix relax.), the functions of TVM's runtime, and the PrimFuncs that
#: LegalizeOps names after the operator they carry out.
TVM = _by_name(
    {
        "data": """zeros ones full zeros_like ones_like full_like arange eye eye_like dyn.zeros dyn.ones dyn.full
            null_value""",
        "shape": """reshape dyn.reshape reshape_like contrib_reverse_reshape transpose permute_dims squeeze dyn.squeeze
            expand_dims dyn.expand_dims nn.batch_flatten flatten concatenate concat stack split take gather gather_nd
            gather_elements index_tensor strided_slice dyn.strided_slice dynamic_strided_slice slice_like broadcast_to
            dyn.broadcast_to broadcast_to_like repeat tile dyn.tile reverse flip reverse_sequence meshgrid
            layout_transform auto_scheduler_layout_transform meta_schedule_layout_transform nn.pad dyn.nn.pad
            nn.mirror_pad pad nn.space_to_depth nn.depth_to_space nn.space_to_batch_nd nn.batch_to_space_nd
            nn.pixel_shuffle sliding_window reinterpret shape_of ndarray_size size shape_to_tensor tensor_to_shape
            vm.shape_of vm.reshape_tensor memory.view tril triu trilu matrix_set_diag annotation.stop_fusion
            annotation.compiler_begin annotation.compiler_end on_device hint_on_device vm.builtin.match_shape
            vm.builtin.make_shape vm.builtin.reshape""",
        "control": """invoke_closure invoke_pure_closure make_closure assert_op print debug vm.builtin.check_tensor_info
            vm.builtin.check_shape_info vm.builtin.check_tuple_info vm.builtin.check_prim_value_info""",
        "memory": """copy device_copy to_vdevice memory.alloc_storage memory.alloc_tensor memory.kill
            memory.kill_tensor memory.kill_storage memory.ensure_zero_offset builtin.alloc_tensor vm.alloc_storage
            vm.alloc_tensor vm.kill_object vm.builtin.alloc_shape_heap vm.builtin.copy""",
    }
)
