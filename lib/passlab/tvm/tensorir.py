"""Read TensorIR: a PrimFunc is loops around blocks. A block is a node; its value is the buffer that it writes.

Works with both TVMs. What is an SBlock today was a Block in 0.17, and a buffer is a variable today.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm

from passlab.graph import Graph
from passlab.graph.assemble import Builder, Type, several, tensor_type
from passlab.tvm.reach import loaded

if loaded() == "relay":
    from tvm.tir import BlockRealize, For, IntImm, IterVar
else:
    from tvm.s_tir import SBlockRealize as BlockRealize
    from tvm.tirx import For, IntImm, IterVar


def read(function: Any, *inputs: Any) -> Graph:
    """Return the view of a PrimFunc: its buffer parameters, and its blocks in the order in which they run.

    Raises ValueError if it has no blocks.
    """
    name = dict(function.attrs.items()).get("global_symbol", "main") if function.attrs is not None else "main"
    build = Builder(str(name), "TensorIR")
    realized_blocks = [(loops, realized.block) for loops, realized in blocks(function.body)]
    if not realized_blocks:
        raise ValueError(f"The PrimFunc {name} has no blocks left to view: view it before it is lowered.")
    buffers = list(_parameters(function))
    written: set[str] = set()
    read_first: set[str] = set()
    for _, block in realized_blocks:
        read_first |= {_buffer(region).name for region in block.reads} - written
        written |= {_buffer(region).name for region in block.writes}
    writer: dict[str, str] = {}  # name of a buffer → id of the node that wrote it last
    for buffer in buffers:
        if buffer.name in read_first or buffer.name not in written:
            shape, dtype, _ = type = _type(buffer)
            text = f"{buffer.name}: {dtype}{list(shape)}"
            writer[buffer.name] = build.add(buffer.name, "Buffer", "data", (), type, text, ours=True)
    for loops, block in realized_blocks:
        attrs = {"loops": "×".join(map(_extent, loops))}
        if reduces := [axis.var.name for axis in block.iter_vars if axis.iter_type == IterVar.CommReduce]:
            attrs["reduces"] = ", ".join(reduces)
        reads = [_buffer(region).name for region in block.reads]
        writes = {_buffer(region).name: _buffer(region) for region in block.writes}
        text = f"{', '.join(writes)} = {block.name_hint}({', '.join(reads)}), loops {attrs['loops']}"
        inputs = [writer[name] for name in reads if name in writer]
        type = several(map(_type, writes.values()))
        id = build.add(block.name_hint, block.name_hint, "compute", inputs, type, text, attrs, ours=True)
        writer |= dict.fromkeys(writes, id)
    build.outputs = [writer[buffer.name] for buffer in buffers if buffer.name in written]
    return build.graph(function.script())


def _parameters(function: Any) -> Iterator[Any]:
    """Yield the buffers among the parameters."""
    for parameter in function.params:
        buffer = function.buffer_map.get(parameter) if hasattr(function, "buffer_map") else parameter
        if hasattr(buffer, "shape"):
            yield buffer


def _buffer(region: Any) -> Any:
    return region.buffer if hasattr(region, "buffer") else region.source


def _extent(loop: For) -> str:
    return str(loop.extent.value if isinstance(loop.extent, IntImm) else loop.extent)


def blocks(statement: Any, loops: tuple[For, ...] = ()) -> Iterator[tuple[tuple[For, ...], BlockRealize]]:
    """Yield (the enclosing loops, the block with the values of its iterators) for each innermost block."""
    if isinstance(statement, BlockRealize):
        inner = list(blocks(statement.block.body, loops))
        yield from inner or [(loops, statement)]
        return
    if isinstance(statement, For):
        loops = (*loops, statement)
    parts = [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    for part in (*parts, *getattr(statement, "seq", ())):
        if part is not None:
            yield from blocks(part, loops)


def _type(buffer: Any) -> Type:
    shape = [dim.value if isinstance(dim, IntImm) else str(dim) for dim in buffer.shape]
    dtype = tvm.DataType(str(buffer.dtype))
    return tensor_type(shape, str(buffer.dtype), 1 if str(dtype) == "bool" else dtype.bits * dtype.lanes / 8)
