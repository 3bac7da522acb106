"""The functions and methods that nodes of a graph may call, by name.

The tables are built once from the real packages, of the names in `operators` and a few more. They contain functions
from tensors and numbers to tensors and numbers, and nothing that loads, saves, opens files, runs code, takes a class or
a raw address, reaches beyond its tensors' memory, or changes the state of the whole process.
"""

from __future__ import annotations

import builtins
import math
import operator
import types
from collections import ChainMap
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from autograder.engine.wire.operators import BARRED_ARGUMENTS, INTO, OPERATORS
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
_FACTORIES = """arange as_tensor bartlett_window blackman_window broadcast_shapes can_cast empty
    empty_permuted empty_strided eye fill full hamming_window hann_window kaiser_window linspace logspace normal ones
    promote_types rand rand_like randint randint_like randn randn_like randperm range result_type scalar_tensor tensor
    tril_indices triu_indices vander zeros is_tensor _assert"""
_MORE_F = "hardsigmoid hardswish sigmoid tanh upsample upsample_bilinear upsample_nearest"
#: Functions and methods of torch that are no operators of aten themselves, but are made of some.
_COMPOSED = """_assert as_tensor broadcast_shapes is_tensor lu pca_lowrank svd_lowrank
    sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum tensor unique unravel_index
    adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices affine_grid
    cross_entropy dropout1d dropout2d dropout3d fold gaussian_nll_loss grid_sample gumbel_softmax interpolate
    local_response_norm logsigmoid lp_pool1d lp_pool2d lp_pool3d multi_head_attention_forward
    multilabel_soft_margin_loss normalize softmin softsign tanhshrink triplet_margin_with_distance_loss upsample
    upsample_bilinear upsample_nearest
    bfloat16 bool byte cdouble cfloat char cpu dim_order double element_size float half int long ndimension nelement
    requires_grad_ short tolist type"""
#: A module of torch → how the names of its operators begin in aten.
_PREFIX = {"torch.linalg": "linalg_", "torch.fft": "fft_", "torch.special": "special_"}

_FUNCTIONS = (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType, type)


def _overridable() -> set[Callable]:
    """Return the functions of torch that take a tensor, as listed by torch.overrides."""
    overridable: set[Callable] = set()
    for functions in torch.overrides.get_overridable_functions().values():
        overridable.update(f for f in functions if type(f) in _FUNCTIONS)
    return overridable


def _functions() -> dict[str, Callable]:
    table: dict[str, Callable] = {f"operator.{n}": getattr(operator, n) for n in _OPERATORS.split()}
    table |= {f"math.{n}": f for n, f in vars(math).items() if isinstance(f, types.BuiltinFunctionType)}
    table |= {f"builtins.{n}": getattr(builtins, n) for n in _BUILTINS.split()}
    listed = _overridable()
    for space in (torch, F, torch.linalg, torch.fft, torch.special):
        prefix = space.__name__
        for name, function in vars(space).items():
            in_place = name.endswith("_") and callable(getattr(space, name[:-1], None))
            known = type(function) in _FUNCTIONS[:2] and (function in listed or in_place)
            if known and not name.startswith("_") and _computes(name, _PREFIX.get(prefix, "")):
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
    return frozenset(filter(_computes, names))


def _computes(name: str, prefix: str = "") -> bool:
    """Return whether a function or method of this name is an operator that a graph may call, or made of some."""
    return f"{prefix}{name}".removesuffix("_") in OPERATORS or name in _COMPOSED.split()


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
    names = set()
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        base, _, overload = name.partition(".")
        if space == "aten" and base.removesuffix("_") in OPERATORS:
            names |= {base, f"{base}.{overload or 'default'}"}
    return frozenset(names)


@cache
def _aten_operator(name: str) -> Callable | None:
    """Return the operator for a name from `_aten`; None if Python does not have it, or it has a barred argument."""
    packet: Any = torch.ops.aten
    try:
        for part in name.split("."):
            packet = getattr(packet, part)
    except AttributeError:  # known to the dispatcher, but not to Python
        return None
    if isinstance(packet, torch._ops.OpOverload) and any(map(_is_barred, packet._schema.arguments)):
        if any(a.name in BARRED_ARGUMENTS or a.name != "out" for a in packet._schema.arguments if _is_barred(a)):
            return None
        return packet if name.partition(".")[0] in INTO else None
    return packet


def _is_barred(argument: Any) -> bool:
    return argument.is_out or argument.name in BARRED_ARGUMENTS


def barred_argument(target: object, names: Iterable[str]) -> str | None:
    """Return the first keyword argument, of these names, that the target of a node may not be given, or None."""
    written = set()
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads = (getattr(target, name)._schema.arguments for name in target.overloads())
        written = {a.name for arguments in overloads for a in arguments if a.is_out}
    called = target if isinstance(target, str) else getattr(target, "__name__", "").partition(".")[0]
    for name in names:
        if name in BARRED_ARGUMENTS or (name in written and name != "out") or (name == "out" and called not in INTO):
            return name
    return None


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
