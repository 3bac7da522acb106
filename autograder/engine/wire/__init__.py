"""What travels between learner code and the trusted side: values as bytes, without pickle, without eval.

    payload = encode(value)          # raises Refused: what cannot travel, and where
    value = decode(payload)          # raises Refused for everything malformed; runs nothing that stands in it
    fingerprint(payload)             # the same for values that differ in the names of graph nodes alone

A payload is eight bytes of header, a JSON document (see `packing`) and, when there are tensors, a safetensors file with
their memory. Both directions use the same codec: cases travel to the learner's code as arguments, its answers back.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import warnings
from typing import Any

import safetensors.numpy
import torch

from autograder.engine.wire import kinds
from autograder.engine.wire.packing import pack
from autograder.engine.wire.refusal import Refused
from autograder.engine.wire.unpacking import unpack

__all__ = ["Refused", "decode", "encode", "fingerprint"]

_MAGIC = b"PLW1"
_HEADER = struct.Struct("<4sI")  # the rest after the document is the safetensors file
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def encode(value: Any) -> bytes:
    """The value as bytes. Raises Refused with a sentence for what cannot travel."""
    try:
        with torch.no_grad():
            document, storages = pack(value)
            text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            file = _file(storages)
    except Refused:
        raise
    except UnicodeEncodeError:
        raise Refused("What came back holds text with half of a character (a lone surrogate).") from None
    except RecursionError:
        raise Refused("What came back is nested too deeply, or holds itself.") from None
    except Exception as error:  # a class of the learner's that answers oddly
        raise Refused(f"What came back could not be read ({type(error).__name__}: {str(error)[:120]}).") from None
    if len(text) > kinds.DOCUMENT_BYTES or len(text) + len(file) > kinds.PAYLOAD_BYTES:
        raise Refused(f"What came back is too large: more than {kinds.PAYLOAD_BYTES >> 20} MiB.")
    return _HEADER.pack(_MAGIC, len(text)) + text + file


def decode(payload: bytes) -> Any:
    """The value that the bytes stand for. Raises Refused, and nothing else, for bytes that `encode` does not write."""
    try:
        text, file = _split(payload)
        document = _document(text)
        blobs = {name: part["data"] for name, part in safetensors.deserialize(file)} if file else {}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of dtypes that are experimental
            return unpack(document, blobs)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"The payload is malformed ({type(error).__name__}).") from None


def fingerprint(payload: bytes) -> str:
    """A digest that is the same for values that differ only in how the nodes of their graphs are called."""
    try:
        text, file = _split(payload)
        document = _document(text)
        for nodes, strays in document[-1]:
            for row in (*nodes, *strays):
                row[0] = ""
        plain = json.dumps(document, separators=(",", ":")).encode()
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"The payload is malformed ({type(error).__name__}).") from None
    return hashlib.sha256(plain + b"\0" + file).hexdigest()


def _file(storages: list[torch.UntypedStorage]) -> bytes:
    """The bytes of storages as a safetensors file; b"" if there are none."""
    arrays = {
        str(place): torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        for place, storage in enumerate(storages)
        if storage.device.type == "cpu" and storage.nbytes()
    }
    return safetensors.numpy.save(arrays) if arrays else b""


def _split(payload: bytes) -> tuple[bytes, bytes]:
    if len(payload) > kinds.PAYLOAD_BYTES + _HEADER.size or len(payload) < _HEADER.size:
        raise Refused("The payload is empty or too large.")
    magic, size = _HEADER.unpack_from(payload)
    if magic != _MAGIC or size > min(kinds.DOCUMENT_BYTES, len(payload) - _HEADER.size):
        raise Refused("The payload does not begin as one.")
    body = bytes(payload[_HEADER.size :])
    return body[:size], body[size:]


def _no_constant(name: str) -> None:
    raise Refused(f"The payload has {name} where a number belongs.")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _document(text: bytes) -> Any:
    document = _DECODER.decode(text.decode())
    if _SURROGATE.search(text):  # rare: an escape that may be half of a character
        json.dumps(document, ensure_ascii=False).encode()
    return document
