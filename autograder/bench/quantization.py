"""`make bench`, part quantization: integers, bytes and errors of networks, folds bit by bit, time of the passes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial
from typing import Any

from autograder.bench.figures import Figure, at_least, at_most, cpu, growth, not_measured

#: The networks, and the batch in which they are calibrated and measured.
MODELS, BATCH, CALIBRATION = ("resnet18", "mobilenetv2", "gpt", "vit"), 20, 4
#: Drawn inputs of each network.
INPUTS = 1_000
#: The stated budget: the root mean square of an error over that of the outputs.
BUDGET = 0.10
#: Generated networks whose fold is compared with the definition.
GRAPHS = 500
#: Layers of the smallest generated network whose passes are timed; each next one has four times as many.
LAYERS = 700


def quantization(largest: int) -> Iterator[Figure | str]:
    yield from models()
    yield from folds()
    yield from peers()
    yield from times(largest)


def models() -> Iterator[Figure | str]:
    """The share of integers, bytes, float copies and errors of each network."""
    for name in MODELS:
        yield f"{name}: quantizing"
        yield from model(name)


def model(name: str) -> Iterator[Figure | str]:
    from passlab.quantization import arithmetic, float_copies, fold, insert, layer_errors, move, observe, weight_bytes

    net, inputs = prepared(name)
    batches = [inputs(BATCH, seed) for seed in range(CALIBRATION)]
    qdq = move(insert(net, observe(net, batches)))
    integers = fold(qdq)
    counted, nbytes = arithmetic(integers), weight_bytes(integers)
    baseline = f"{counted.integer:,} of {counted.integer + counted.floating:,}"
    yield at_least(f"{name}: multiply-adds in int8, share", counted.share, 0.95, "", baseline)
    baseline = f"{nbytes.stored:,} B / {nbytes.floating:,} B"
    yield at_most(f"{name}: bytes of weights / float32's", nbytes.ratio, 0.27, "", baseline)
    before = f"{len(float_copies(insert(net, observe(net, batches[:1]))))} before move and fold"
    yield at_most(f"{name}: float copies between integer layers", len(float_copies(integers)), 0, "", before)
    yield f"{name}: {INPUTS} inputs"
    baseline = f"{INPUTS:,} inputs that calibration has not seen"
    yield at_most(f"{name}: error, rms over rms of the outputs", error(net, integers, inputs), BUDGET, "", baseline)
    yield f"{name}: errors of each layer"
    rows = layer_errors(qdq, batches[:1]).values()
    broken = sum(row.measured > row.bound or row.searched > row.bound for row in rows)
    yield at_most(f"{name}: layers with an error above the bound", broken, 0, "", f"{len(rows)} layers")
    closest = sorted(row.searched / row.bound for row in rows)[len(rows) // 2]
    yield at_least(f"{name}: error found by search / bound, median of the layers", closest, 0.8, "")


def prepared(name: str) -> tuple[Any, Any]:
    """Return a network of the zoo with its weights as nodes, and its inputs by batch and seed."""
    from passlab import trace
    from passlab.models import ZOO
    from passlab.quantization import functional

    row = ZOO[name]
    return functional(trace(row.build(), *row.inputs(BATCH))), row.inputs


def error(net: Any, integers: Any, inputs: Any) -> float:
    """Return the error over all drawn inputs, with seeds other than those of the calibration."""
    import torch

    wrong = right = 0.0
    with torch.no_grad():
        for seed in range(INPUTS // BATCH):
            x = inputs(BATCH, 1000 + seed)
            y = net(*x).double()
            wrong += float((integers(*x) - y).square().sum())
            right += float(y.square().sum())
    return (wrong / right) ** 0.5


def folds() -> Iterator[Figure | str]:
    """How many generated networks compute something else in integers than the definition, in any bit."""
    from passlab.quantization import fold, insert, move, observe, random_network, stated

    wrong = []
    for seed in range(GRAPHS):
        yield f"fold of random network {seed}"
        net = random_network(seed, 4 + seed % 12)
        x = net.meta["inputs"]
        qdq = move(insert(net, observe(net, [x])))
        if not fold(qdq)(*x).equal(stated(qdq, *x)):
            wrong.append(seed)
    yield at_most(
        f"random networks of {GRAPHS} whose fold differs in a bit", len(wrong), 0, "", ", ".join(map(str, wrong))
    )


def peers() -> Iterator[Figure | str]:
    """The same network by onnxruntime and by torchao, where they are installed."""
    for package, version, what in (("onnxruntime", "1.32.0", "static quantization"), ("torchao", "0.18.0", "PT2E")):
        if importlib.util.find_spec(package) is None:
            why = f"{package} is not installed: pip install {package}=={version}"
            yield not_measured(f"{package}'s {what} on ResNet-18", why)
    if importlib.util.find_spec("onnxruntime") is not None:
        yield "onnxruntime: quantizing"
        yield from onnxruntime("resnet18")
    if importlib.util.find_spec("torchao") is not None:
        yield "torchao: quantizing"
        yield from torchao("resnet18")


def onnxruntime(name: str) -> Iterator[Figure | str]:
    """The error, bytes and integers of onnxruntime's static quantization, calibrated with the same inputs.

    Activations are uint8: with int8 it computes on x86 only those convolutions in integers that a ReLU follows.
    """
    import tempfile
    from pathlib import Path

    import torch
    from onnxruntime import InferenceSession, SessionOptions
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    net, inputs = prepared(name)

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter([{"x": inputs(BATCH, seed)[0].numpy()} for seed in range(CALIBRATION)])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as folder:
        before, after, runs = (str(Path(folder) / f"{which}.onnx") for which in ("before", "after", "runs"))
        torch.onnx.export(net, inputs(BATCH), before, input_names=["x"], dynamo=False)
        how = {"per_channel": True, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(before, after, Reader(), quant_format=QuantFormat.QDQ, **how)
        options = SessionOptions()
        options.optimized_model_filepath, options.log_severity_level = runs, 3
        session, size = InferenceSession(after, options), Path(after).stat().st_size / Path(before).stat().st_size
        integer, every = multiply_adds(runs, inputs(BATCH)[0].numpy())

    def integers(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])

    yield Figure(f"{name}: error of onnxruntime's static quantization", f"{error(net, integers, inputs):.3g}")
    yield Figure(f"{name}: bytes of onnxruntime's file / float32's", f"{size:.3g}")
    yield _share(name, "onnxruntime", integer, every, "of the layers in the optimized graph")


#: Operation of onnxruntime's graphs → whether it multiplies integers, and which of its inputs are weights.
ONNX_LAYERS: dict[str, tuple[bool, int]] = {
    **dict.fromkeys(("Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul"), (False, 1)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat"), (True, 1)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QGemm"), (True, 3)),
}


def multiply_adds(path: str, x: Any) -> tuple[int, int]:
    """Return the multiply-adds of integers and of all numbers in the layers of an ONNX file, for an input."""
    import math

    import onnx
    from onnxruntime import InferenceSession

    model = onnx.load(path)
    weights = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in weights:
            weights[node.output[0]] = weights[node.input[0]]
    layers = [node for node in model.graph.node if node.op_type in ONNX_LAYERS]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in layers)
    counted = {False: 0, True: 0}
    for node, y in zip(layers, InferenceSession(model.SerializeToString()).run(None, {"x": x}), strict=True):
        integer, place = ONNX_LAYERS[node.op_type]
        shape = weights[node.input[place]]
        channels = shape[0] if "Conv" in node.op_type else y.shape[-1]
        counted[integer] += y.size * math.prod(shape) // channels
    return counted[True], sum(counted.values())


def _share(name: str, peer: str, integer: int, every: int, of: str) -> Figure:
    share = integer / every
    return Figure(f"{name}: multiply-adds in int8 by {peer}, share", f"{share:.3g}", f"{integer:,} of {every:,} {of}")


def torchao(name: str) -> Iterator[Figure | str]:
    """The error, bytes and integers of torchao's PT2E flow with its quantizer for x86, calibrated with the same inputs.

    Its quantizer finds layers by `meta["source_fn_stack"]`, which a strict export notes: of another one of ResNet-18,
    it passes over all convolutions and says nothing.
    """
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    from passlab.fx.nodes import attribute

    net, inputs = prepared(name)
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    observed = prepare_pt2e(torch.export.export(net, inputs(BATCH), strict=True).module(), quantizer)
    for seed in range(CALIBRATION):
        observed(*inputs(BATCH, seed))
    integers = convert_pt2e(observed)
    counted = {False: 0, True: 0}
    for node in integers.graph.nodes:
        if str(node.target) in ("aten.conv2d.default", "aten.linear.default"):
            whole = all("dequantize" in str(operand.target) for operand in node.args[:2])
            stored = node.args[1].args[0] if whole else node.args[1]
            counted[whole] += node.meta["val"].numel() * attribute(integers, stored.target)[0].numel()
    yield Figure(f"{name}: error of torchao's PT2E", f"{error(net, integers, inputs):.3g}")
    size = _bytes(integers) / _bytes(net)
    yield Figure(f"{name}: bytes of weights of torchao's PT2E / float32's", f"{size:.3g}")
    yield _share(name, "torchao's PT2E", counted[True], sum(counted.values()), "between dequantize and quantize")


def _bytes(module: Any) -> int:
    """Return the bytes of all tensors that a module holds."""
    return sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))


def times(largest: int) -> Iterator[Figure | str]:
    """CPU time of the passes, for generated networks of up to `largest` nodes."""
    from passlab.quantization import fold, insert, move, observe, random_network

    seconds: dict[str, dict[int, float]] = {"insert": {}, "move": {}, "fold": {}}
    layers = LAYERS
    while True:
        yield f"{layers} layers: drawing a network"
        net = random_network(1, layers)
        size = len(net.graph.nodes)
        if size > largest and len(seconds["insert"]) > 1:
            break
        ranges = observe(net, [net.meta["inputs"]])
        yield f"{size} nodes: the passes"
        inserted = cpu(partial(insert, net, ranges), 1)
        moved = cpu(partial(move, inserted.result), 1)
        folded = cpu(partial(fold, moved.result), 1)
        for name, timed in (("insert", inserted), ("move", moved), ("fold", folded)):
            seconds[name][size] = timed.seconds
        layers *= 4
    for name, measured in seconds.items():
        yield from growth(name, measured, 1.1)
