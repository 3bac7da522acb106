"""The limits and names of values that may travel between learner code and the trusted side.

Everything that is looked up while reading a payload is in a table built here from the real objects. A name from a
payload is only a key into such a table: it is never imported and never resolved with getattr.
"""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

import torch

from passlab.judge import travel

PAYLOAD_BYTES = 64 * 2**20
DOCUMENT_BYTES = 32 * 2**20  # the JSON in it; ten thousand nodes with shapes take about 2 MiB
TENSOR_BYTES = 2**30  # of all tensors, computed from their shapes
NODES = 100_000
ITEMS = 4_000_000  # entries of all lists, tuples, dicts and sets together
TENSORS = 100_000
MODULES = 10_000  # and the same number of graphs
DEPTH = 64
DIMENSIONS = 64
NAME = 1_000  # characters of a name or a path
DIGITS = 10_000  # hexadecimal digits of a whole number

#: The dtypes of ordinary tensors; quantized ones (qint8, quint4x2, …) would need a scale and a zero point as well.
DTYPES = {
    name.removeprefix("torch."): dtype
    for name, dtype in sorted((str(d), d) for d in vars(torch).values() if isinstance(d, torch.dtype))
    if not name.startswith("torch.q")
}
FORMATS = {
    str(f): f for f in (torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)
}
LAYOUTS = {str(x): x for x in vars(torch).values() if isinstance(x, torch.layout)}

#: Classes that may travel as values: annotations of nodes, and the kind of value observed at a node.
CLASSES = {
    "Tensor": torch.Tensor,
    "Parameter": torch.nn.Parameter,
    "Size": torch.Size,
    "NoneType": type(None),
    "Any": Any,
    "Node": torch.fx.Node,
    "Graph": torch.fx.Graph,
    "GraphModule": torch.fx.GraphModule,
    "SymInt": torch.SymInt,
    "SymFloat": torch.SymFloat,
    "SymBool": torch.SymBool,
} | {c.__name__: c for c in (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, range)}

#: The records of exercises, which cases pass to an answer or an answer returns.
RECORDS = travel.RECORDS

#: The keys of node.meta that judges and readers use; everything else in it does not travel.
NOTES = ("tensor_meta", "type", "val", "example_value")

#: Tags of values that may be operands of a node. torch.fx writes their repr into code, so each has a safe repr.
OPERANDS = frozenset(["i", "f", "c", "t", "l", "d", "sl", "r", "...", "dt", "mf", "lo", "dv", "sz", "T", "n"])

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: torch.fx marks lines of its generated code with this, and drops every line that contains it.
_MARK = "# COUNTER:"


def is_word(name: Any) -> bool:
    """Return whether `name` may be written into Python code as an identifier (of a node, keyword or placeholder)."""
    return type(name) is str and len(name) <= NAME and bool(_WORD.match(name)) and not keyword.iskeyword(name)


def is_parameter(name: Any) -> bool:
    """Return whether `name` may be the target of a placeholder: a Python parameter, with up to two stars."""
    if type(name) is not str or len(name) > NAME:
        return False
    bare = name[2:] if name.startswith("**") else name.removeprefix("*")
    return bare.isidentifier() and not keyword.iskeyword(bare) and bare.isprintable()


def is_path(path: Any) -> bool:
    """Return whether `path` may name a part of a module ("block.0.weight"). In code, "0" is written as a string."""
    if type(path) is not str or len(path) > NAME or not path.isprintable() or '"' in path or "\\" in path:
        return False
    return is_text(path) and ".__" not in f".{path}"


def is_text(text: str) -> bool:
    """Return whether `text` may be written into Python code as a string."""
    return _MARK not in text


def kind(value: object) -> str:
    """Return the kind of a value with its article: "a generator", "a numpy.ndarray"."""
    cls = type(value)
    module = str(getattr(cls, "__module__", ""))
    ours = module in ("builtins", "__main__") or hasattr(builtins, str(cls.__name__))
    name = cls.__name__ if ours else f"{module.split('.')[0]}.{cls.__name__}"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"[:80]
