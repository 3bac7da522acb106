"""The parts that both readers of TVM's JSON share: its nodes in order, its tensors."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from passlab.process.refusal import Refused

MAX_DEPTH = 5_000  # a Relay call nests two levels; TVM itself builds chains of 4,000 calls

#: DLPack type code → the bit widths it may have.
_NUMBERS = {0: (8, 16, 32, 64), 1: (1, 8, 16, 32, 64), 2: (16, 32, 64), 4: (16,), 6: (8,)}
_TENSOR = struct.Struct("<QQiiiBBH")  # magic, reserved, device type and number, rank, type code, bits, lanes
_MAGIC = 0xDD5E40F096B4A13F


def in_order(nodes: list[dict], root: int, children: Callable[[int], Iterable[int]]) -> list[int]:
    """Return the nodes that `root` needs in post-order. Raises Refused for a cycle, a missing node or excess depth."""
    depth: dict[int, int] = {}
    open_, order, stack = set(), [], [root]
    while stack:
        at = stack[-1]
        if at in depth:
            stack.pop()
            continue
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < len(nodes):
            raise Refused(f"The module's JSON refers to a node that does not exist ({str(at)[:40]}).")
        needs = list(children(at))
        missing = [child for child in needs if child not in depth]
        if not missing:
            depth[at] = 1 + max((depth[child] for child in needs), default=0)
            if depth[at] > MAX_DEPTH:
                raise Refused(f"The module is nested more than {MAX_DEPTH:,} levels deep.")
            order.append(at)
            open_.discard(at)
            stack.pop()
        elif at in open_:
            raise Refused("The module's JSON is circular.")
        else:
            open_.add(at)
            stack.extend(missing)
    return order


class Tensor(NamedTuple):
    """A tensor of a module. `code`, `bits`: its DLPack type."""

    data: bytes
    shape: tuple[int, ...]
    code: int
    bits: int


def tensor(text: str) -> Tensor:
    """Read a tensor from TVM's base64. Raises Refused if it is damaged or of a kind that cannot travel."""
    try:
        data = base64.b64decode(text.replace("\n", ""), validate=True)
        magic, _, device, _, rank, code, bits, lanes = _TENSOR.unpack_from(data)
        if magic != _MAGIC or device != 1 or lanes != 1 or not 0 <= rank <= 16 or bits not in _NUMBERS.get(code, ()):
            raise Refused("A tensor in the module is of a kind that cannot travel.")
        *shape, size = struct.unpack_from(f"<{rank + 1}q", data, _TENSOR.size)
    except (binascii.Error, struct.error, UnicodeEncodeError):
        raise Refused("A tensor in the module is damaged.") from None
    body = data[_TENSOR.size + 8 * (rank + 1) :]
    if min(shape, default=1) < 0 or math.prod(shape) * -(-bits // 8) != size or size != len(body):
        raise Refused(f"A tensor in the module claims the shape {tuple(shape)} but holds {len(body):,} bytes.")
    return Tensor(body, tuple(shape), code, bits)
