"""Quantization as passes: from floats to integers, with a stated semantics, and errors proved before anything runs.

    net = functional(trace(model, x))               # weights as nodes, batch norms folded
    qdq = move(insert(net, observe(net, batches)))  # quantize and dequantize around layers, and nowhere twice
    integers = fold(qdq)                            # int8 in, int8 out, int32 between: `stated(qdq, x)` bit for bit

Reading order: `semantics` (what an integer means), `ops` (what nodes call), `grids` (scales from ranges), then a pass
in each module: `insert`, `move`, `fold`, `migrate`, `plan`. `bounds` proves, `measures` counts, `picture` draws.
"""

from passlab.quantization.bounds import (
    Accumulator,
    LayerError,
    Overflow,
    accumulators,
    layer_errors,
    network_errors,
    output_error,
    overflow,
    overflowing_inputs,
)
from passlab.quantization.fold import fold, match, stated
from passlab.quantization.generate import random_network
from passlab.quantization.graphs import functional, layers_of
from passlab.quantization.grids import grid, observe, proved_ranges, weight_scales
from passlab.quantization.insert import insert
from passlab.quantization.measures import arithmetic, float_copies, weight_bytes
from passlab.quantization.migrate import migrate
from passlab.quantization.move import move
from passlab.quantization.ops import (
    dequantize,
    integer_add,
    integer_conv2d,
    integer_linear,
    integer_linear_int4,
    integer_matmul,
    integer_mean,
    lookup,
    quantize,
    rescale,
    unpack,
)
from passlab.quantization.pack import pack_int4
from passlab.quantization.picture import channels, clipping, errors
from passlab.quantization.plan import Plan, plan
from passlab.quantization.semantics import FixedPoint, Grid, QuantizationError, fixed_point, requantize

__all__ = [
    "Accumulator",
    "FixedPoint",
    "Grid",
    "LayerError",
    "Overflow",
    "Plan",
    "QuantizationError",
    "accumulators",
    "arithmetic",
    "channels",
    "clipping",
    "dequantize",
    "errors",
    "fixed_point",
    "float_copies",
    "fold",
    "functional",
    "grid",
    "insert",
    "integer_add",
    "integer_conv2d",
    "integer_linear",
    "integer_linear_int4",
    "integer_matmul",
    "integer_mean",
    "layer_errors",
    "layers_of",
    "lookup",
    "match",
    "migrate",
    "move",
    "network_errors",
    "observe",
    "output_error",
    "overflow",
    "overflowing_inputs",
    "pack_int4",
    "plan",
    "proved_ranges",
    "quantize",
    "random_network",
    "requantize",
    "rescale",
    "stated",
    "unpack",
    "weight_bytes",
    "weight_scales",
]
