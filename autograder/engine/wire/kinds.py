"""What may travel between learner code and the trusted side, and how much of it: limits and names.

Everything that is looked up while a payload is read stands in a table made here from the real objects. A name from a
payload is a key into such a table and nothing else: it is never imported, and never followed with getattr.
"""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

import torch

from passlab.exercises.day01._shared import TooMuch
from passlab.exercises.day01.propagate import Raised
from passlab.exercises.day02.pass_manager import Scenario, Step

PAYLOAD_BYTES = 64 * 2**20
DOCUMENT_BYTES = 32 * 2**20  # the JSON in it; ten thousand nodes with shapes take about 2 MiB
TENSOR_BYTES = 2**30  # of all tensors, each as large as its shape says
NODES = 100_000
ITEMS = 4_000_000  # entries of all lists, tuples, dicts and sets together
TENSORS = 100_000
MODULES = 10_000  # and as many graphs
DEPTH = 64
DIMENSIONS = 64
NAME = 1_000  # characters of a name or a path
DIGITS = 10_000  # hexadecimal digits of a whole number

#: Those of ordinary tensors; the quantized ones (qint8, quint4x2, …) need a scale and a zero point beside them.
DTYPES = {
    name.removeprefix("torch."): dtype
    for name, dtype in sorted((str(d), d) for d in vars(torch).values() if isinstance(d, torch.dtype))
    if not name.startswith("torch.q")
}
FORMATS = {
    str(f): f for f in (torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)
}
LAYOUTS = {str(x): x for x in vars(torch).values() if isinstance(x, torch.layout)}

#: Classes that may stand for themselves: as the annotation of a node, as the kind of value that was seen at it.
CLASSES = {
    "Tensor": torch.Tensor,
    "Parameter": torch.nn.Parameter,
    "Size": torch.Size,
    "NoneType": type(None),
    "Any": Any,
    "Node": torch.fx.Node,
    "Graph": torch.fx.Graph,
    "GraphModule": torch.fx.GraphModule,
} | {c.__name__: c for c in (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, range)}

#: The records of exercises: cases hand them to an answer, or the answer's run gives them back.
RECORDS = {c.__name__: c for c in (TooMuch, Raised, Scenario, Step)}

#: What is read of node.meta by the judge and by the readers; what else a tracer or a pass notes there stays behind.
NOTES = ("tensor_meta", "type", "val", "example_value")

#: Tags of what may be an operand of a node. Its repr becomes code, so nothing whose repr quotes other things is here.
OPERANDS = frozenset(["i", "f", "c", "t", "l", "d", "sl", "r", "...", "dt", "mf", "lo", "dv", "sz", "T", "n"])

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: torch.fx marks the lines of the code it generates with this, and drops each line that holds it.
_MARK = "# COUNTER:"


def is_word(name: Any) -> bool:
    """May `name` stand in Python code as a name? (What it names becomes code: nodes, keywords, placeholders.)"""
    return type(name) is str and len(name) <= NAME and bool(_WORD.match(name)) and not keyword.iskeyword(name)


def is_parameter(name: Any) -> bool:
    """May `name` be the target of a placeholder: a parameter of Python, perhaps with one or two stars?"""
    if type(name) is not str or len(name) > NAME:
        return False
    bare = name[2:] if name.startswith("**") else name.removeprefix("*")
    return bare.isidentifier() and not keyword.iskeyword(bare) and bare.isprintable()


def is_path(path: Any) -> bool:
    """May `path` name a part of a module: "block.0.weight"? What is no name in Python stands quoted in the code."""
    if type(path) is not str or len(path) > NAME or not path.isprintable() or '"' in path or "\\" in path:
        return False
    return is_text(path) and ".__" not in f".{path}"


def is_text(text: str) -> bool:
    """May `text` stand in Python code as a string?"""
    return _MARK not in text


def kind(value: object) -> str:
    """What to call a value in a sentence: "a generator", "a numpy.ndarray"."""
    cls = type(value)
    module = str(getattr(cls, "__module__", ""))
    ours = module in ("builtins", "__main__") or hasattr(builtins, str(cls.__name__))
    name = cls.__name__ if ours else f"{module.split('.')[0]}.{cls.__name__}"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"[:80]
