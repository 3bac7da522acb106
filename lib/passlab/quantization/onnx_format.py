"""A graph with quantize and dequantize as an ONNX model of QDQ form: QuantizeLinear and DequantizeLinear, opset 21.

    draw(to_onnx(qdq))

Weights are stored as integers. A runtime folds the pairs in its own way: its requantize is not that of
`passlab.quantization.semantics`, so results may differ by a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import fx

from passlab.fx.nodes import attribute, shape
from passlab.fx.patterns import canonical
from passlab.quantization.fold import window
from passlab.quantization.graphs import Node, argument, calls, nodes, reduced
from passlab.quantization.ops import dequantize, quantize
from passlab.quantization.semantics import QuantizationError

#: The version of ONNX's operators: the first with scales for blocks.
OPSET = 21
_TYPES = {4: TensorProto.INT4, 8: TensorProto.INT8}


def to_onnx(gm: fx.GraphModule) -> onnx.ModelProto:
    """Return a graph with pairs, moved or not but not folded, as an ONNX model. It needs shapes (`passlab.trace`).

    Raises QuantizationError for an operation that is not in WRITERS, grids of other than 4 or 8 bits, and values
    without a shape.
    """
    writer = _Writer(gm)
    for node in nodes(gm):
        writer.node(node)
    graph = helper.make_graph(writer.nodes, "quantized", writer.inputs, writer.outputs, writer.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    return model


class _Writer:
    def __init__(self, gm: fx.GraphModule):
        self.gm = gm
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.taken: set[str] = set()

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))

    def constant(self, name: str, value: Any) -> str:
        if name not in self.taken:
            self.taken.add(name)
            self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, node: Node) -> None:
        if node.op == "placeholder":
            self.inputs.append(helper.make_tensor_value_info(node.name, TensorProto.FLOAT, _sizes(node)))
        elif node.op == "output":
            for part in node.all_input_nodes:
                self.outputs.append(helper.make_tensor_value_info(part.name, TensorProto.FLOAT, _sizes(part)))
        elif node.op == "get_attr":
            if any(not calls(user, quantize, dequantize) for user in node.users):
                self.constant(node.name, attribute(self.gm, node.target).detach().numpy())
        elif calls(node, quantize, dequantize):
            self.grid(node)
        elif canonical(node) in WRITERS:
            WRITERS[canonical(node)](self, node)
        else:
            known = ", ".join(sorted(WRITERS))
            raise QuantizationError(
                f"{node.name} calls {canonical(node)}, which has no ONNX form here. Known: {known}."
            )

    def grid(self, node: Node) -> None:
        """Write a quantize or dequantize, or the integers of a weight in place of its quantize."""
        bits, group = argument(node, 3, "bits", 8), argument(node, 5, "group")
        if bits not in _TYPES:
            raise QuantizationError(f"{node.name} has {bits} bits, of which ONNX has no type: 4 or 8.")
        source = node.args[0]
        if calls(node, quantize) and source.op == "get_attr":
            scale = argument(node, 1, "scale")
            value = attribute(self.gm, str(scale.target)) if isinstance(scale, fx.Node) else scale
            integers = quantize(attribute(self.gm, source.target).detach(), value, *node.args[2:], **node.kwargs)
            self.constants.append(_integers(node.name, bits, integers.shape, integers.flatten().tolist()))
            return
        scale, zero = self.scale(node, bits)
        attributes: dict[str, Any] = (
            {"axis": argument(node, 4, "axis")} if argument(node, 4, "axis") is not None else {}
        )
        if group is not None:
            attributes = {"axis": len(_sizes(node)) - 1, "block_size": group}
        op = "QuantizeLinear" if calls(node, quantize) else "DequantizeLinear"
        self.add(op, node.name, source.name, scale, zero, **attributes)

    def scale(self, node: Node, bits: int) -> tuple[str, str]:
        """Return the names of a grid's scale and zero point."""
        scale, name = argument(node, 1, "scale"), f"{node.name}.scale"
        value = attribute(self.gm, str(scale.target)) if isinstance(scale, fx.Node) else torch.tensor(scale)
        self.constant(name, value.detach().numpy().astype(np.float32))
        points = [argument(node, 2, "zero_point", 0)] * value.numel()
        self.constants.append(_integers(f"{node.name}.zero", bits, value.shape, points))
        return name, f"{node.name}.zero"

    def parts(self, node: Node) -> list[str]:
        """Return the names of a node's operands; numbers become constants."""
        return [
            part.name if isinstance(part, fx.Node) else self.constant(f"{node.name}.{i}", np.float32(part))
            for i, part in enumerate(node.args)
        ]


def _integers(name: str, bits: int, sizes: Sequence[int], values: list[int]) -> onnx.TensorProto:
    return helper.make_tensor(name, _TYPES[bits], list(sizes), values)


def _sizes(node: Node) -> tuple[int, ...]:
    sizes = shape(node)
    if sizes is None:
        raise QuantizationError(f"{node.name} has no shape: trace the model with inputs, passlab.trace(model, x).")
    return sizes


def _simple(op: str, **attributes: Any) -> Callable[[_Writer, Node], None]:
    return lambda writer, node: writer.add(op, node.name, *writer.parts(node), **attributes)


def _unary(op: str, **attributes: Any) -> Callable[[_Writer, Node], None]:
    return lambda writer, node: writer.add(op, node.name, node.args[0].name, **attributes)


def _linear(writer: _Writer, node: Node) -> None:
    x, weight, bias = node.args[0], node.args[1], argument(node, 2, "bias")
    writer.add("Transpose", f"{node.name}.weight", weight.name, perm=[1, 0])
    product = node.name if bias is None else f"{node.name}.product"
    writer.add("MatMul", product, x.name, f"{node.name}.weight")
    if bias is not None:
        writer.add("Add", node.name, product, bias.name)


def _conv2d(writer: _Writer, node: Node) -> None:
    stride, padding, dilation, groups = window(node)
    parts = [part.name for part in (*node.args[:2], argument(node, 2, "bias")) if part is not None]
    attributes = {"strides": stride, "pads": [*padding, *padding], "dilations": dilation, "group": groups}
    writer.add("Conv", node.name, *parts, **attributes)


def _max_pool(writer: _Writer, node: Node) -> None:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    if node.op == "call_module":
        module = writer.gm.get_submodule(node.target)
        size, stride, padding, dilation, ceil = (getattr(module, name) for name in names)
    else:
        size, stride, padding, dilation, ceil = (argument(node, i, name) for i, name in enumerate(names, 1))
    values = [size, stride or size, padding or 0, dilation or 1]
    kernel, strides, pads, dilations = ([v, v] if isinstance(v, int) else list(v) for v in values)
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": [*pads, *pads], "dilations": dilations}
    writer.add("MaxPool", node.name, node.args[0].name, ceil_mode=int(bool(ceil)), **attributes)


def _mean(writer: _Writer, node: Node) -> None:
    dims, keep, _ = reduced(node)
    axes = writer.constant(f"{node.name}.axes", np.array(dims, dtype=np.int64))
    writer.add("ReduceMean", node.name, node.args[0].name, axes, keepdims=int(keep))


def _reshape(writer: _Writer, node: Node) -> None:
    sizes = writer.constant(f"{node.name}.shape", np.array(_sizes(node), dtype=np.int64))
    writer.add("Reshape", node.name, node.args[0].name, sizes)


def _transpose(writer: _Writer, node: Node) -> None:
    order = list(range(len(_sizes(node))))
    if canonical(node) == "permute":
        dims = node.args[1] if isinstance(node.args[1], list | tuple) else node.args[1:]
        order = [d % len(order) for d in dims]
    else:
        first, second = argument(node, 1, "dim0"), argument(node, 2, "dim1")
        order[first], order[second] = order[second], order[first]
    writer.add("Transpose", node.name, node.args[0].name, perm=order)


def _relu6(writer: _Writer, node: Node) -> None:
    ends = [writer.constant(f"{node.name}.{n}", np.float32(end)) for n, end in (("low", 0.0), ("high", 6.0))]
    writer.add("Clip", node.name, node.args[0].name, *ends)


def _layer_norm(writer: _Writer, node: Node) -> None:
    x, sizes, *rest = node.args
    parts = [part.name for part in (x, *rest[:2]) if part is not None]
    writer.add("LayerNormalization", node.name, *parts, axis=-len(sizes), epsilon=float(argument(node, 4, "eps", 1e-5)))


def _silu(writer: _Writer, node: Node) -> None:
    writer.add("Sigmoid", f"{node.name}.sigmoid", node.args[0].name)
    writer.add("Mul", node.name, node.args[0].name, f"{node.name}.sigmoid")


def _gelu(writer: _Writer, node: Node) -> None:
    tanh = "tanh" in (*node.args[1:], *node.kwargs.values())
    if node.op == "call_module":
        tanh = writer.gm.get_submodule(node.target).approximate == "tanh"
    writer.add("Gelu", node.name, node.args[0].name, approximate="tanh" if tanh else "none")


def _softmax(writer: _Writer, node: Node) -> None:
    writer.add("Softmax", node.name, node.args[0].name, axis=argument(node, 1, "dim"))


#: Operation → how it is written.
WRITERS: dict[str, Callable[[_Writer, Node], None]] = {
    "linear": _linear, "conv2d": _conv2d, "max_pool2d": _max_pool, "mean": _mean, "layer_norm": _layer_norm,
    "adaptive_avg_pool2d": _mean, "relu6": _relu6, "gelu": _gelu, "softmax": _softmax, "silu": _silu,
    **dict.fromkeys(("flatten", "reshape", "view", "unflatten", "squeeze", "unsqueeze"), _reshape),
    **dict.fromkeys(("transpose", "permute"), _transpose),
    **dict.fromkeys(("dropout", "identity", "contiguous"), _unary("Identity")),
    "relu": _unary("Relu"), "tanh": _unary("Tanh"), "sigmoid": _unary("Sigmoid"),
    "add": _simple("Add"), "sub": _simple("Sub"), "mul": _simple("Mul"), "div": _simple("Div"),
    "matmul": _simple("MatMul"), "pow": _simple("Pow"),
}  # fmt: skip
