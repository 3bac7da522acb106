"""Errors and accumulators, bounded for all inputs in range before anything runs; and inputs that come close.

    accumulators(qdq)["conv1"].bits                 # the bits that this layer's sums need, whatever the input
    layer_errors(qdq)["conv1"].bound                # the error of one layer on all inputs on its grid
    output_error(net, qdq, {"x": (-1.0, 1.0)})      # the error of the network for all inputs in range

A layer is Σ w · x + b for each output, with the inputs of one output in a row, whether it is a linear or a convolution.
On a grid each x is between two ends, so that the largest value of a sum takes the one end where the factor is positive
and the other where it is negative: this is interval arithmetic as in `passlab.dataflow.ranges`, and exact for one
layer. Through several layers it is not: it forgets that the errors of a layer's inputs have a common cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.dataflow.ranges import Range, ranges
from passlab.fx.nodes import attribute, shape
from passlab.fx.patterns import canonical
from passlab.quantization.fold import Match, Stated, layer_of, layers, scale_of, window
from passlab.quantization.graphs import Node, argument, calls, kind, moves, nodes, operands, source
from passlab.quantization.ops import dequantize, quantize
from passlab.quantization.semantics import QuantizationError, ends, requantize, wrapped

#: How many neighbours of bad inputs the search tries.
TRIES = 8
#: The rounding error of a float32.
UNIT = 2.0**-24


class _Row(NamedTuple):
    """A layer as rows: what `bounds` needs of it. Weights are (outputs, inputs of one output), in float64."""

    match: Match
    q: Node
    weight: Tensor  # what the float graph has
    bias: Tensor
    integers: Tensor  # w of the integers
    integer_bias: Tensor
    layer: Any
    input: Node  # the dequantize that it reads


def _rows(gm: fx.GraphModule) -> dict[str, _Row]:
    """Return name → rows for each linear and convolution of a graph with pairs."""
    result = {}
    for q, match in layers(gm):
        if match.kind not in ("linear", "conv2d"):
            continue
        layer = layer_of(gm, match, q)
        source = argument(match.node, 1, "weight").args[0].args[0]
        weight = attribute(gm, source.target).detach().double().flatten(1)
        bias = argument(match.node, 2, "bias")
        zeros = torch.zeros(len(weight), dtype=torch.float64)
        real = zeros if bias is None else attribute(gm, bias.target).detach().double()
        whole = zeros if layer.bias is None else layer.bias.double()
        integers = layer.weight.double().flatten(1)
        result[match.node.name] = _Row(match, q, weight, real, integers, whole, layer, operands(match.node)[0])
    return result


def _ends_of(dq: Node) -> tuple[int, int]:
    """Return the smallest and largest q - zero_point of a grid."""
    low, high = ends(argument(dq, 3, "bits", 8))
    return low - dq.args[2], high - dq.args[2]


def _extreme(factors: Tensor, low: float, high: float) -> Tensor:
    """Return the inputs, each `low` or `high`, that make Σ factors · inputs largest in each row."""
    return torch.where(factors > 0, high, low).to(torch.float64)


# ------------------------------------------------------------------------------------------------------- accumulators


class Accumulator(NamedTuple):
    """The least and the largest value of a layer's sums, partial ones included, in any order."""

    low: int
    high: int

    @property
    def bits(self) -> int:
        """Return how many bits a signed integer needs for all of them."""
        return max(self.high, -self.low - 1).bit_length() + 1


def accumulators(gm: fx.GraphModule) -> dict[str, Accumulator]:
    """Return layer → bounds of its accumulators, for all inputs on its grid. `gm`: a graph with pairs, not folded.

    The bounds are exact: one output reaches each of them. With 4 bits, a group of inputs is a sum of its own.
    """
    result = {}
    for name, row in _rows(gm).items():
        low, high = _ends_of(row.input)
        weight, bias = row.integers, row.integer_bias
        if row.layer.multiplier.dim() == 2:
            weight, bias = weight.reshape(-1, argument(row.match.node.args[1], 5, "group")), torch.zeros(1)
        most = (weight * _extreme(weight, low, high)).sum(1) + bias.clamp(min=0)
        least = (weight * _extreme(-weight, low, high)).sum(1) + bias.clamp(max=0)
        result[name] = Accumulator(int(least.min()), int(most.max()))
    return result


class Overflow(NamedTuple):
    """Inputs of one output of a layer for which its accumulator is too narrow: int8, the sum, what is held of it."""

    output: int
    inputs: Tensor
    sum: int
    held: int


def overflow(gm: fx.GraphModule, name: str, bits: int = 32) -> Overflow | None:
    """Return inputs for which the sum of a layer leaves an accumulator of `bits` bits; None if none can.

    Raises QuantizationError for a name that is not a linear or convolution of `gm`, a graph with pairs, and for
    one with 4 bits, whose groups have accumulators of their own.
    """
    row = _row(gm, name)
    low, high = _ends_of(row.input)
    for sign in (1, -1):
        inputs = _extreme(sign * row.integers, low, high)
        sums = (row.integers * inputs).sum(1) + row.integer_bias
        output = int((sign * sums).argmax())
        total = int(sums[output])
        sum_in_bits = int(wrapped(torch.tensor(total), bits))
        if sum_in_bits != total:
            integers = (inputs[output] + row.input.args[2]).to(torch.int8)
            return Overflow(output, integers, total, sum_in_bits)
    return None


def overflowing_inputs(
    net: fx.GraphModule, qdq: fx.GraphModule, name: str, inputs: Mapping[str, tuple[float, float]], bits: int = 32,
    rounds: int = 20,
) -> tuple[Tensor, ...] | None:  # fmt: skip
    """Return inputs of a network, in range, for which a sum of layer `name` leaves an accumulator of `bits` bits.

    `net`: the float graph, with shapes; `qdq`: that graph with pairs. A search: from drawn inputs, each input goes to
    the end of its range at which the gradient says that one output of the layer grows. None if it finds nothing: that
    proves nothing, a bound of `accumulators` does. Raises QuantizationError as `overflow` does.
    """
    row = _row(qdq, name)
    if overflow(qdq, name, bits) is None:
        return None
    generator = torch.Generator().manual_seed(0)
    places = [node for node in nodes(net) if node.op == "placeholder"]
    ranges_ = [inputs[str(node.target)] for node in places]
    for turn in range(rounds):
        drawn = [torch.rand(shape(node) or (), generator=generator) for node in places]
        values = [low + (high - low) * x for x, (low, high) in zip(drawn, ranges_, strict=True)]
        for _ in range(4):
            if _overflows(qdq, row, values, bits):
                return tuple(values)
            gradients = _gradients(net, name, values, 1 if turn % 2 else -1)
            values = [torch.where(g > 0, high, low) for g, (low, high) in zip(gradients, ranges_, strict=True)]
    return None


def _gradients(net: fx.GraphModule, name: str, values: list[Tensor], sign: int) -> list[Tensor]:
    """Return the gradients of the largest output of a node, or of the smallest one's negative, by the inputs."""
    run = fx.Interpreter(net, garbage_collect_values=False)
    leaves = [value.detach().requires_grad_() for value in values]
    with torch.enable_grad():
        run.run(*leaves)
        node = next(node for node in nodes(net) if node.name == name)
        largest = (sign * run.env[node]).max()
        gradients = torch.autograd.grad(largest, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)]


def _overflows(qdq: fx.GraphModule, row: _Row, values: list[Tensor], bits: int) -> bool:
    run = Stated(qdq)
    with torch.no_grad():
        run.run(*values)
    x = run.env[row.input.args[0]].long() - row.input.args[2]
    bias = None if row.layer.bias is None else row.layer.bias.long()
    settings = () if row.match.kind == "linear" else window(row.match.node)
    sums = (F.linear if row.match.kind == "linear" else F.conv2d)(x, row.layer.weight.long(), bias, *settings)
    return not wrapped(sums, bits).equal(sums)


def _row(gm: fx.GraphModule, name: str) -> _Row:
    rows = _rows(gm)
    if name not in rows:
        raise QuantizationError(f"{name!r} is not a quantized linear or convolution; there are {', '.join(rows)}.")
    if rows[name].layer.multiplier.dim() == 2:
        raise QuantizationError(f"{name} has an accumulator for each group of its int4 weights: see accumulators(gm).")
    return rows[name]


# --------------------------------------------------------------------------------------------------- error of a layer


class LayerError(NamedTuple):
    """The largest error of a layer's result, in real numbers: what data show, what a search finds, what is proved.

    The error is that of the integers against the float layer on the same inputs, saturated at the ends of the same
    grid. `step`: the scale of the result. `measured`: 0 without data.
    """

    measured: float
    searched: float
    bound: float
    step: float


def layer_errors(gm: fx.GraphModule, batches: Iterable[tuple] = ()) -> dict[str, LayerError]:
    """Return layer → its errors for each linear and convolution with 8 bits of a graph with pairs, not folded.

    `batches`: tuples of inputs of the network, for `measured`.
    """
    rows = {name: row for name, row in _rows(gm).items() if row.layer.multiplier.dim() == 1}
    measured = _measured(gm, rows, batches)
    return {name: LayerError(measured[name], _searched(row), _bound(row), row.q.args[1]) for name, row in rows.items()}


def _errors_of_parameters(row: _Row) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the integers minus those of the float layer, times the factors that follow."""
    scale = row.input.args[1] * row.match.scale
    grid = _weight_scale(row)
    return (row.integers * grid[:, None] - row.weight) * scale, (
        row.integer_bias * grid * scale - row.bias * row.match.scale
    )


def _weight_scale(row: _Row) -> Tensor:
    value = scale_of(row.q.graph.owning_module, row.match.node.args[1])
    return value.double().expand(len(row.weight))


def _bound(row: _Row) -> float:
    """Return a bound of a layer's error: weights and bias, rounding of the result, and the fixed-point factor."""
    low, high = _ends_of(row.input)
    weight, bias = _errors_of_parameters(row)
    most = (weight * _extreme(weight, low, high)).sum(1) + bias
    least = (weight * _extreme(-weight, low, high)).sum(1) + bias
    step = row.q.args[1]
    sums = (row.integers.abs() * max(high, -low)).sum(1) + row.integer_bias.abs()
    exact = row.input.args[1] * _weight_scale(row) * row.match.scale / step
    rounded = torch.ldexp(row.layer.multiplier.double(), -row.layer.shift.double())
    return float((torch.maximum(most, -least) + sums * (exact - rounded).abs() * step).max()) + step / 2


def _evaluate(row: _Row, inputs: Tensor) -> Tensor:
    """Return the error of each output o on inputs[o], integers minus zero point in float64."""
    sums = (row.integers * inputs).sum(1) + row.integer_bias
    end = row.q.args[2], row.match.low, row.match.high
    out = requantize(wrapped(sums.long()), row.layer.multiplier, row.layer.shift, *end, axis=0)
    return _real(row, out) - _real_layer(row, inputs)


def _real(row: _Row, out: Tensor) -> Tensor:
    return (out.double() - row.q.args[2]) * row.q.args[1]


def _real_layer(row: _Row, inputs: Tensor) -> Tensor:
    """Return what the float layer returns, saturated at the ends of the result's grid."""
    value = ((row.weight * inputs).sum(1) * row.input.args[1] + row.bias) * row.match.scale
    low, high = (_real(row, torch.tensor(end)) for end in (row.match.low, row.match.high))
    return value.clamp(low, high)


def _searched(row: _Row) -> float:
    """Return the largest error on inputs built for each output: those that are worst for its weights' errors.

    A result that saturates shows no error. So where it would, the inputs are changed to their other end one by one,
    those first whose change costs the least error for the most of the result. Some neighbours of these inputs follow,
    whose results may lie nearer to a half.
    """
    generator = torch.Generator().manual_seed(0)
    low, high = _ends_of(row.input)
    weight, _ = _errors_of_parameters(row)
    worst = 0.0
    for sign in (1, -1):
        inputs = _extreme(sign * weight, low, high)
        inside = _inside(row, weight, inputs, low, high)
        near = [_nearby(inside, generator, low, high) for _ in range(TRIES)]
        for candidate in (inputs, inside, *near):
            worst = max(worst, float(_evaluate(row, candidate).abs().max()))
    return worst


def _nearby(inputs: Tensor, generator: torch.Generator, low: int, high: int) -> Tensor:
    """Return inputs of which one in eight is moved by a step or two: their results are rounded elsewhere."""
    moved = torch.randint(-2, 3, inputs.shape, generator=generator)
    few = torch.rand(inputs.shape, generator=generator) < max(1 / 8, 1 / inputs.shape[1])
    return (inputs + moved * few).clamp(low, high)


def _inside(row: _Row, weight: Tensor, inputs: Tensor, low: int, high: int) -> Tensor:
    """Return inputs with as few changes, cheapest first, as bring each output inside the ends of its grid."""
    value = ((row.weight * inputs).sum(1) * row.input.args[1] + row.bias) * row.match.scale
    least, most = (float(_real(row, torch.tensor(end))) for end in (row.match.low, row.match.high))
    excess = torch.where(value > most, value - most, torch.where(value < least, value - least, 0.0))
    other = torch.where(inputs == high, low, high)
    change = row.weight * (other - inputs) * row.input.args[1] * row.match.scale
    helps = change * excess[:, None] < 0
    cost = torch.where(helps, weight.abs() / change.abs().clamp(min=1e-300), math.inf)
    order = cost.argsort(1)
    total = torch.where(helps, change.abs(), 0.0).gather(1, order).cumsum(1)
    number = torch.searchsorted(total, excess.abs()[:, None]) + (excess != 0)[:, None]
    flips = torch.zeros_like(helps).scatter(1, order, torch.arange(helps.shape[1]) < number)
    return torch.where(flips & helps, other.double(), inputs)


class _Measurer(Stated):
    """Run a graph with pairs in integers, and note the largest error of each layer on what it reads."""

    def __init__(self, gm: fx.GraphModule, rows: Mapping[str, _Row]):
        super().__init__(gm)
        self.rows = {row.q: (name, row) for name, row in rows.items()}
        self.worst = dict.fromkeys(rows, 0.0)

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self.rows:
            name, row = self.rows[n]
            error = _real(row, value) - self._float(row)
            self.worst[name] = max(self.worst[name], float(error.abs().max()))
        return value

    def _float(self, row: _Row) -> Tensor:
        """Return what the float layer makes of the same inputs, saturated."""
        node = row.match.node
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
        weight = self.env[node.args[1].args[0].args[0]]
        value = node.target(args[0], weight, *args[2:], **kwargs).double() * row.match.scale
        low, high = (float(_real(row, torch.tensor(end))) for end in (row.match.low, row.match.high))
        return value.clamp(low, high)


def _measured(gm: fx.GraphModule, rows: Mapping[str, _Row], batches: Iterable[tuple]) -> dict[str, float]:
    measurer = _Measurer(gm, rows)
    with torch.no_grad():
        for batch in batches:
            measurer.run(*batch)
    return measurer.worst


# ------------------------------------------------------------------------------------------------- error of a network


def output_error(net: fx.GraphModule, qdq: fx.GraphModule, inputs: Mapping[str, tuple[float, float]]) -> float:
    """Return a bound of |integers - floats| of the network's first output, for all inputs in range.

    `net`: the float graph; `qdq`: what `insert` made of it, not yet moved or folded (the laws of `move` are exact).
    Raises QuantizationError for a node that has no rule in RULES.
    """
    return max(network_errors(net, qdq, inputs)[node.name] for node in qdq.graph.output_node().all_input_nodes)


def network_errors(
    net: fx.GraphModule, qdq: fx.GraphModule, inputs: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """Return name of a node of `qdq` → bound of its error against the same node of `net`, for all inputs in range."""
    bounds = ranges(net, inputs)
    errors: dict[Node, float] = {}
    names: dict[Node, str] = {}  # node → the node of `net` whose value it stands for
    for node in nodes(qdq):
        if calls(node, quantize, dequantize):
            names[node] = names[node.args[0]]
        else:
            names[node] = node.name
        errors[node] = _error(_Step(qdq, node, errors, names, bounds))
    return {node.name: error for node, error in errors.items()}


class _Step(NamedTuple):
    """A node with what is known: errors of nodes before it, and ranges of the float network."""

    gm: fx.GraphModule
    node: Node
    errors: Mapping[Node, float]
    names: Mapping[Node, str]
    bounds: Mapping[str, Range]

    def range(self, node: Node) -> Range:
        return self.bounds.get(self.names[node], Range(0.0, 0.0))

    def largest(self, node: Any) -> float:
        return self.range(node).largest if isinstance(node, fx.Node) else abs(float(node))

    def error(self, node: Any) -> float:
        return self.errors[node] if isinstance(node, fx.Node) else 0.0


def _error(step: _Step) -> float:
    node = step.node
    exact = not any(step.errors[n] for n in node.all_input_nodes) and not (kind(node) and _has_integers(node))
    if node.op in ("placeholder", "get_attr", "output") or (exact and not calls(node, quantize)):
        return 0.0
    if calls(node, quantize):
        return _quantize_error(step)
    if calls(node, dequantize):
        return step.error(node.args[0])
    if kind(node) in ("linear", "conv2d"):
        return _weighted_error(step)
    if moves(node) or canonical(node) in ("cat", "stack"):
        return max(step.errors[n] for n in node.all_input_nodes)
    rule = RULES.get(canonical(node)) or RULES.get(kind(node))
    if rule is None:
        raise QuantizationError(
            f"{node.name} calls {canonical(node)}, of whose error there is no rule: add one to "
            f"passlab.quantization.bounds.RULES."
        )
    return rule(step)


def _has_integers(node: Node) -> bool:
    return kind(node) in ("linear", "conv2d") and calls(node.args[1], dequantize)


def _quantize_error(step: _Step) -> float:
    """Return the error behind a quantize: half a step, and how far values are outside the grid."""
    node = step.node
    if argument(node, 4, "axis") is not None or argument(node, 5, "group") is not None:
        return 0.0  # a weight: its error is in the layer's rule
    scale, zero = node.args[1:3]
    low, high = (scale * (end - zero) for end in ends(argument(node, 3, "bits", 8)))
    error, bounds = step.error(node.args[0]), step.range(node.args[0])
    outside = max(0.0, bounds.high + error - high, low - (bounds.low - error))
    return error + max(scale / 2 * (1 + 2**-20), outside)


def _weighted_error(step: _Step) -> float:
    """Return e · Σ|ŵ| + max |Σ (ŵ - w) · x| + |b̂ - b|, the largest of all outputs, for the error e of the inputs x."""
    node = step.node
    x, dq = node.args[:2]
    real = dq.args[0].args[0] if calls(dq, dequantize) else dq
    weight = attribute(step.gm, real.target).detach().flatten(1).double()
    rounded, bias = weight, torch.zeros(len(weight), dtype=torch.float64)
    if _has_integers(node):
        scale = attribute(step.gm, dq.args[1].target)
        value = attribute(step.gm, real.target).detach()
        rounded = dequantize(quantize(value, scale, *dq.args[2:], **dq.kwargs), scale, *dq.args[2:], **dq.kwargs)
        rounded = rounded.flatten(1).double()
        if argument(node, 2, "bias") is not None and scale.dim() == 1:
            bias = scale.double() * source(x).args[1] / 2
    magnitude = rounded.abs().sum(1)
    size = step.largest(x)
    rounding = 2 * (weight.shape[1] + 8) * UNIT * weight.abs().sum(1) * size  # of the float network's sums
    fixed = 2.0**-30 * magnitude * (size + step.error(x))
    change, bounds = rounded - weight, step.range(x)
    most = [(change * _extreme(sign * change, bounds.low, bounds.high)).sum(1).abs() for sign in (1, -1)]
    error = step.error(x) * magnitude + torch.maximum(*most) + bias + rounding + fixed
    return float(error.max())


def _product_error(step: _Step, terms: int = 1) -> float:
    """Return the error of a sum of products a · b: a · e_b + b · e_a + e_a · e_b for each."""
    a, b = step.node.args[:2]
    first, second = step.error(a), step.error(b)
    return terms * (step.largest(a) * second + step.largest(b) * first + first * second)


def _matmul_error(step: _Step) -> float:
    sizes = shape(step.node.args[0])
    if sizes is None:
        raise QuantizationError(f"{step.node.name} has no shapes: trace the model with inputs.")
    rounding = 2 * (sizes[-1] + 8) * UNIT * step.range(step.node).partial
    return _product_error(step, sizes[-1]) + rounding


def _power_error(step: _Step) -> float:
    base, exponent = step.node.args
    if not isinstance(exponent, int) or exponent < 1:
        raise QuantizationError(f"{step.node.name} is a power with the exponent {exponent}: bounded are 1, 2, 3, …")
    return exponent * (step.largest(base) + step.error(base)) ** (exponent - 1) * step.error(base)


def _lipschitz(slope: float) -> Any:
    """Return the rule of a function of one value whose slope is at most `slope`."""
    return lambda step: slope * max(step.errors[n] for n in step.node.all_input_nodes)


def _width(step: _Step) -> float:
    """Return the width of a range that holds whatever the inputs are."""
    bounds = step.range(step.node)
    return bounds.high - bounds.low


def _sum_error(step: _Step) -> float:
    return sum(step.error(part) for part in step.node.args[:2])


#: Operation → bound of its error, from those of its operands.
RULES: dict[str, Any] = {
    "add": _sum_error, "sub": _sum_error, "mul": _product_error, "matmul": _matmul_error, "pow": _power_error,
    "relu": _lipschitz(1), "relu6": _lipschitz(1), "hardtanh": _lipschitz(1), "clamp": _lipschitz(1),
    "mean": _lipschitz(1), "adaptive_avg_pool2d": _lipschitz(1), "avg_pool2d": _lipschitz(1), "abs": _lipschitz(1),
    "tanh": _lipschitz(1), "sigmoid": _lipschitz(0.25), "gelu": _lipschitz(1.13), "silu": _lipschitz(1.1),
    "hardswish": _lipschitz(1.5), "hardsigmoid": _lipschitz(1 / 6), "neg": _lipschitz(1), "leaky_relu": _lipschitz(1),
    # The largest row sum of its derivative is 2 p (1 - p), at most a half; and it is never outside 0 … 1.
    "softmax": lambda step: min(1.0, _lipschitz(0.5)(step)),
    "layer_norm": _width,  # √(n - 1) at most, whatever it reads
}  # fmt: skip
