"""The functions and methods that nodes of a graph may call, by name.

The tables are built once from the real packages. They contain functions from tensors and numbers to tensors and
numbers, and nothing that loads, saves, opens files, runs code, takes a class or a raw address, or changes the state of
the whole process.
"""

from __future__ import annotations

import builtins
import math
import operator
import types
from collections import ChainMap
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F

from passlab.fx import ops
from passlab.judge import travel

#: Attributes that `getattr` may read in a graph, besides the fields of torch.return_types (torch.max(…, dim), …).
_ATTRIBUTES = "shape dtype device layout ndim T mT H mH real imag data requires_grad itemsize nbytes is_cuda is_meta"

_OPERATORS = """abs add and_ concat contains eq floordiv ge getitem gt index inv invert is_ is_not le lshift lt matmul
    mod mul ne neg not_ or_ pos pow rshift setitem sub truediv truth xor
    iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor"""
_BUILTINS = """abs all any bool complex dict divmod float getattr int len list max min pow range round set slice sum
    tuple"""

#: Functions of torch that torch.overrides does not list because they take no tensor; most of them create one.
_FACTORIES = """arange as_strided as_tensor bartlett_window blackman_window broadcast_shapes can_cast empty
    empty_permuted empty_strided eye fill full hamming_window hann_window kaiser_window linspace logspace normal ones
    promote_types rand rand_like randint randint_like randn randn_like randperm range result_type scalar_tensor tensor
    tril_indices triu_indices vander zeros is_tensor _assert"""
_MORE_F = "hardsigmoid hardswish sigmoid tanh upsample upsample_bilinear upsample_nearest"
_BARRED_FUNCTIONS = ("autocast", "fbgemm_", "miopen_", "mkldnn_", "cudnn_", "quantized_", "set_")

_BARRED_METHODS = """apply_ map_ map2_ register_hook register_post_accumulate_grad_hook retain_grad backward reinforce
    module_load as_subclass new new_tensor set_ storage untyped_storage storage_type data_ptr const_data_ptr
    share_memory_ is_shared numpy record_stream pin_memory is_pinned cuda ipu xpu mtia sparse_resize_
    sparse_resize_and_clear_"""

#: The aten operators with a leading underscore that are allowed, and the prefixes of those that are not.
_ATEN_INNER = """_softmax _log_softmax _to_copy _unsafe_view _reshape_alias _assert_async _assert_scalar
    _assert_tensor_metadata _adaptive_avg_pool2d _adaptive_avg_pool3d _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    _scaled_dot_product_flash_attention_for_cpu _conj _neg_view"""
_ATEN_BARRED = """autocast fbgemm_ miopen_ mkldnn_ cudnn_ quantized_ set from_file data is_pinned is_vulkan pin_memory
    record_stream sparse_resize retain requires_grad get_gradients output_nr"""

_FUNCTIONS = (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType, type)


def _overridable() -> set[Callable]:
    """Return the functions of torch that take a tensor, as listed by torch.overrides."""
    found = set()
    for functions in torch.overrides.get_overridable_functions().values():
        found.update(f for f in functions if type(f) in _FUNCTIONS)
    return found


def _functions() -> dict[str, Callable]:
    table: dict[str, Callable] = {f"operator.{n}": getattr(operator, n) for n in _OPERATORS.split()}
    table |= {f"math.{n}": f for n, f in vars(math).items() if isinstance(f, types.BuiltinFunctionType)}
    table |= {f"builtins.{n}": getattr(builtins, n) for n in _BUILTINS.split()}
    listed = _overridable()
    for space in (torch, F, torch.linalg, torch.fft, torch.special):
        prefix = space.__name__
        for name, function in vars(space).items():
            barred = name.startswith(("_", *_BARRED_FUNCTIONS)) or type(function) not in _FUNCTIONS[:2]
            in_place = name.endswith("_") and isinstance(getattr(space, name[:-1], None), Callable)
            if not barred and (function in listed or in_place):
                table[f"{prefix}.{name}"] = function
    table |= {f"torch.{n}": getattr(torch, n) for n in _FACTORIES.split()}
    table |= {f"torch.nn.functional.{n}": getattr(F, n) for n in _MORE_F.split()}
    table |= {f"torch.fft.{n}": getattr(torch.fft, n) for n in ("fftfreq", "rfftfreq")}
    table |= {f"torch.Tensor.{n}": getattr(torch.Tensor, n) for n in sorted(METHODS)}
    table |= {f"passlab.fx.ops.{n}": getattr(ops, n) for n in ("conv2d_relu", "linear_act", "add_layer_norm")}
    return table


def _methods() -> frozenset[str]:
    methods = (types.MethodDescriptorType, types.FunctionType)
    names = {n for n in dir(torch.Tensor) if not n.startswith("_") and type(getattr(torch.Tensor, n)) in methods}
    return frozenset(names.difference(_BARRED_METHODS.split()))


def _attributes() -> frozenset[str]:
    """Return `_ATTRIBUTES` and the fields of torch.return_types: values, indices, sign, logabsdet, …"""
    fields = set(_ATTRIBUTES.split())
    for cls in vars(torch.return_types).values():
        if isinstance(cls, type) and issubclass(cls, tuple):
            fields |= {n for n, v in vars(cls).items() if type(v) is types.MemberDescriptorType}
    return frozenset(n for n in fields if not n.startswith("_"))


@cache
def _aten() -> frozenset[str]:
    """Return the dispatcher's names of aten operators, with and without overload: "add.Tensor", "relu.default"."""
    names, shown, barred = set(), _ATEN_INNER.split(), tuple(_ATEN_BARRED.split())
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        base, _, overload = name.partition(".")
        hidden = base.startswith("_") and base not in shown
        if space == "aten" and not hidden and not base.startswith(barred):
            names |= {base, f"{base}.{overload or 'default'}"}
    return frozenset(names)


@cache
def _aten_operator(name: str) -> Callable | None:
    """Return the operator for a name from `_aten`, or None if Python does not have it."""
    packet = torch.ops.aten
    try:
        for part in name.split("."):
            packet = getattr(packet, part)
    except AttributeError:  # known to the dispatcher, but not to Python
        return None
    return packet


METHODS = _methods()
ATTRIBUTES = _attributes()
_OWN = _functions()
#: The functions of this module, and those that exercises declare.
FUNCTIONS = ChainMap(_OWN, travel.FUNCTIONS)
#: id of a function → its first name. By identity, since equal built-in functions may have different names.
_NAMES = {id(function): name for name, function in reversed(_OWN.items())}


def name_of(target: object) -> str | None:
    """Return the name under which a call target travels, or None if it is not in the tables."""
    if type(target) in _FUNCTIONS:
        return _NAMES.get(id(target)) or travel.name_in(travel.FUNCTIONS, target)
    if type(target) in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
        space, _, name = str(target).partition(".")
        if space == "aten" and name in _aten() and _aten_operator(name) is target:
            return f"aten.{name}"
    return None


def by_name(name: str) -> Callable | None:
    """Return the call target with this name, or None if the tables do not have it."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name.startswith("aten.") and name[5:] in _aten():
        return _aten_operator(name[5:])
    return None
