"""The codec between learner code and the trusted side: values as bytes, without pickle and without eval.

    payload = encode(value)          # raises Refused: what cannot travel, and where it is
    value = decode(payload)          # raises Refused for anything malformed; executes nothing from the payload
    fingerprint(payload)             # equal for values that differ only in the names of graph nodes

A payload is eight bytes of header, a JSON document (see `packing`) and, when there are tensors, a safetensors file with
their memory. Both directions use the same codec: arguments travel to the learner's code, its answers travel back.
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
from autograder.engine.wire.unpacking import unpack
from passlab.process.refusal import Refused

__all__ = ["Refused", "decode", "encode", "fingerprint"]

_MAGIC = b"PLW1"
_HEADER = struct.Struct("<4sI")  # magic, size of the document; the safetensors file follows the document
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def encode(value: Any) -> bytes:
    """Return the value as bytes. Raises Refused, with a message for the learner, if it cannot travel."""
    try:
        with torch.no_grad():
            document, storages = pack(value)
            text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            file = _file(storages)
    except Refused:
        raise
    except UnicodeEncodeError:
        raise Refused("The returned value contains text with half a character (a lone surrogate).") from None
    except RecursionError:
        raise Refused("The returned value is nested too deeply, or contains itself.") from None
    except Exception as error:  # an instance of a learner's class whose methods misbehave
        raise Refused(f"The returned value could not be read ({type(error).__name__}: {str(error)[:120]}).") from None
    if len(text) > kinds.DOCUMENT_BYTES or len(text) + len(file) > kinds.PAYLOAD_BYTES:
        raise Refused(f"The returned value is too large: more than {kinds.PAYLOAD_BYTES >> 20} MiB.")
    return _HEADER.pack(_MAGIC, len(text)) + text + file


def decode(payload: bytes) -> Any:
    """Return the value in `payload`. Raises Refused, and nothing else, for bytes that `encode` would not write."""
    try:
        text, file = _split(payload)
        document = _document(text)
        blobs = {name: part["data"] for name, part in safetensors.deserialize(file)} if file else {}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about experimental dtypes
            return unpack(document, blobs)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"The payload is malformed ({type(error).__name__}).") from None


def fingerprint(payload: bytes) -> str:
    """Return a SHA-256 digest that is equal for values that differ only in the names of graph nodes."""
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
    """Return the bytes of the storages as a safetensors file; b"" if there are none."""
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
        raise Refused("The payload does not start with a valid header.")
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
