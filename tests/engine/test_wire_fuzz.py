"""The codec against payloads that an attacker wrote: decode gives a value or raises Refused, and no code is run."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import struct
import time

import numpy
import pytest
import safetensors.numpy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import fx, nn

from autograder.engine.wire import Refused, decode, encode, fingerprint, kinds, targets
from autograder.engine.wire.symbols import Symbols
from passlab import trace


def payload(value, storages=(), tensors=(), shapes=(), modules=(), graphs=(), file=b""):
    """A payload written by hand: the value and the tables that it refers to."""
    document = [value, *map(list, (storages, tensors, shapes, modules, graphs))]
    return raw(json.dumps(document).encode(), file)


def raw(text, file=b""):
    return struct.pack("<4sI", b"PLW1", len(text)) + text + file


def blob(size):
    return safetensors.numpy.save({"0": numpy.zeros(size, numpy.uint8)})


def row(name="x", op="placeholder", target="x", args=("t",), kwargs=("d",), kind=None, notes=("d",), foreign=False):
    return [name, op, target, list(args), list(kwargs), kind, list(notes), foreign]


RELU = ["fn", "torch.relu"]


def graph(*rows, strays=()):
    return payload(["G", 0], graphs=[[list(rows), list(strays)]])


def module(*rows, parameters=(), buffers=(), children=(), held=(), inner=(), called="GraphModule"):
    """A GraphModule with these nodes and parts; `inner`: modules that stand before it in the table."""
    parts = [False, *map(list, (parameters, buffers, children, held))]
    gm = ["GraphModule", *parts, 0, called, ["d"]]
    return payload(["M", len(inner)], modules=[*inner, gm], graphs=[[list(rows), []]])


def tensor(size, shape, stride, offset=0, dtype="float32", flags=0, device="cpu"):
    return payload(["T", 0], [[size, device]], [[0, dtype, shape, stride, offset, flags]], file=blob(size))


def relu(**over):
    return row(**{"name": "relu", "op": "call_function", "target": RELU, "args": ["t", ["n", 0]]} | over)


DEEP = "[" * 100_000 + "]" * 100_000
NESTED = 1
for _ in range(80):
    NESTED = ["t", NESTED]
PLAIN = ["torch.nn.ReLU", False, [], [], [], []]

HOSTILE = {
    "nothing": b"",
    "no document": b"PLW1\xff\xff\xff\xff",
    "another beginning": b"PICK" + encode(1)[4:],
    "a document that is no JSON": raw(b"[1,"),
    "a document that is no text": raw(b"[\xff\xfe]"),
    "deep JSON": raw(DEEP.encode()),
    "a short document": raw(b"[1]"),
    "NaN as a number": raw(b"[NaN,[],[],[],[],[]]"),
    "Infinity": raw(b"[-Infinity,[],[],[],[],[]]"),
    "a number of 5000 digits": raw(b"[" + b"9" * 5000 + b",[],[],[],[],[]]"),
    "a number of 4000 digits": raw(b"[" + b"9" * 4000 + b",[],[],[],[],[]]"),
    "half of a character": raw(b'["\\ud800",[],[],[],[],[]]'),
    "a JSON object": payload({"a": 1}),
    "an unknown tag": payload(["eval", "1"]),
    "no tag": payload([]),
    "a tag that is no text": payload([["t"], 1]),
    "nested 80 deep": payload(NESTED),
    "a key that cannot be one": payload(["d", ["l"], 1]),
    "the same key twice": payload(["d", 1, 2, True, 3]),
    "a key without a value": payload(["d", 1]),
    "a module that is not there": payload(["M", 0]),
    "a negative place": payload(["T", -1], [[4, "cpu"]], [[0, "uint8", [4], [1], 0, 0]], file=blob(4)),
    "a place that is true": payload(["T", True], [[4, "cpu"]], [[0, "uint8", [4], [1], 0, 0]] * 2, file=blob(4)),
    "a hexadecimal bomb": payload(["i", "f" * 20_000]),
    "a function that loads": payload(["fn", "torch.load"]),
    "a function of os": payload(["fn", "os.system"]),
    "a dunder function": payload(["fn", "builtins.__import__"]),
    "an aten operator that opens a file": payload(["fn", "aten.from_file"]),
    "an aten attribute": payload(["fn", "aten.__class__"]),
    "a class that is in no table": payload(["ty", "type"]),
    "a record that is none": payload(["rec", "Path", "x"]),
    "a record with too many fields": payload(["rec", "Raised", "a", "b", "c"]),
    "a device that is none": payload(["dv", "cpu; rm"]),
    "an operand outside": payload(["n", 0]),
    "a node of no graph": payload(["N", 0, 0]),
    "an ONNX model that is none": payload(["o", "////"]),
    "a terabyte from one byte": tensor(4, [2**40], [0]),
    "2^70 elements": tensor(4, [2**35, 2**35], [0, 0]),
    "an overflowing shape": tensor(4, [2**62, 4, 0], [1, 1, 1]),
    "a tensor beyond its memory": tensor(4, [2], [1]),
    "an offset beyond": tensor(4, [1], [1], offset=1),
    "a huge offset of nothing": tensor(4, [0], [1], offset=2**61),
    "a negative stride": tensor(8, [2], [-1], offset=1),
    "a negative size": tensor(8, [-1], [1]),
    "a fractional size": tensor(8, [1.0], [1]),
    "a thousand dimensions": tensor(4, [1] * 1000, [1] * 1000),
    "fewer strides than sizes": tensor(4, [1, 1], [1]),
    "an integer that wants a gradient": tensor(8, [1], [1], dtype="int64", flags=1),
    "a conjugate of a real": tensor(4, [1], [1], flags=4),
    "flags that are none": tensor(4, [1], [1], flags=16),
    "a dtype that is none": tensor(4, [1], [1], dtype="qint8"),
    "on a GPU": tensor(4, [1], [1], device="cuda"),
    "memory that is not in the file": payload(["T", 0], [[8, "cpu"]], [[0, "int8", [8], [1], 0, 0]], file=blob(4)),
    "memory without a file": payload(["T", 0], [[8, "cpu"]], [[0, "int8", [8], [1], 0, 0]]),
    "a file whose header lies": payload(0, file=struct.pack("<Q", 2**60) + b"{}"),
    "a file whose offsets lie": payload(
        0, file=struct.pack("<Q", 60) + b'{"0":{"dtype":"U8","shape":[9],"data_offsets":[0,99999999]}}'
    ),
    "an opcode that is none": graph(row(op="root")),
    "an opcode that is a list": graph(row(op=["t"])),
    "a name that is a number": graph(row(name=5)),
    "an endless name": graph(row(name="x" * 2000)),
    "an input called as code": graph(row(target="x): import os; (y")),
    "an input called as a keyword": graph(row(target="import")),
    "an input with three stars": graph(row(target="***x")),
    "a path out of the code": graph(row(op="get_attr", target='a"); print("')),
    "a path with a backslash": graph(row(op="get_attr", target="a\\")),
    "a path over two lines": graph(row(op="call_module", target="a\nimport os")),
    "a path to a dunder": graph(row(op="get_attr", target="linear.__class__")),
    "a method that writes": graph(row(op="call_method", target="tofile")),
    "a method that maps": graph(row(op="call_method", target="apply_")),
    "a private method": graph(row(op="call_method", target="_make_subclass")),
    "a method with dots": graph(row(op="call_method", target="relu.__globals__")),
    "a function by a path": graph(row(op="call_function", target=["fn", "torch.serialization.load"])),
    "a function that is text": graph(row(op="call_function", target="torch.relu")),
    "getattr of anything": graph(row(), relu(target=["fn", "builtins.getattr"], args=["t", ["n", 0], "__class__"])),
    "getattr by a node": graph(row(), relu(target=["fn", "builtins.getattr"], args=["t", ["n", 0], ["n", 0]])),
    "getattr of nothing": graph(row(), relu(target=["fn", "builtins.getattr"])),
    "a keyword as code": graph(row(), relu(kwargs=["d", "a=print(1), b", 1])),
    "a keyword that is none": graph(row(), relu(kwargs=["d", "import", 1])),
    "a keyword that is a number": graph(row(), relu(kwargs=["d", 1, 1])),
    "operands that are a list": graph(row(), relu(args=["l", 1])),
    "a module as operand": graph(row(), relu(args=["t", ["M", 0]])),
    "a graph as operand": graph(row(), relu(args=["t", ["G", 0]])),
    "a function as operand": graph(row(), relu(args=["t", RELU])),
    "a set as operand": graph(row(), relu(args=["t", ["s", 1]])),
    "a mark as operand": graph(row(), relu(args=["t", "# COUNTER: 3"])),
    "an operand of nowhere": graph(row(), relu(args=["t", ["n", 2]])),
    "operands nested 80 deep": graph(row(), relu(args=["t", NESTED])),
    "a type that is code": graph(row(kind=["ty", "os.system"])),
    "notes under another key": graph(row(notes=["d", "is_wrapped", True])),
    "notes with a module": graph(row(notes=["d", "val", ["M", 0]])),
    "a stray without a name": graph(row(), strays=[[None, True]]),
    "a graph that is none": payload(["G", 0], graphs=[5]),
    "a method as an attribute": module(row(op="get_attr", target="forward")),
    "a method as a module": module(row(op="call_module", target="to_folder", args=["t", "/tmp/x"])),
    "a field of torch's": module(row(op="get_attr", target="_modules")),
    "a module that is its own child": module(children=[["a", ["M", 0]]]),
    "a child that is a number": module(children=[["a", 5]]),
    "a parameter that is none": module(parameters=[["a", 1]]),
    "a child with a dot": module(children=[["a.b", None]]),
    "a child called __class__": module(children=[["__class__", None]]),
    "two children of one name": module(children=[["a", None], ["a", None]]),
    "a setting for forward": module(held=[["forward", RELU]]),
    "a setting for _graph": module(held=[["_graph", 1]]),
    "a setting for __class__": module(held=[["__class__", 1]]),
    "a setting for a compiled call": module(held=[["_compiled_call_impl", RELU]]),
    "a class that is code": module(called="A: pass\nimport os\nclass B"),
    "a layer that hides its weights": payload(
        ["M", 0],
        storages=[[0, "cpu"]],
        tensors=[[0, "float32", [0], [1], 0, 0]],
        modules=[["torch.nn.Linear", False, [], [], [], [["weight", ["T", 0]]]]],
    ),
    "a module of no table": payload(["M", 0], modules=[["os.system", False, [], [], [], []]]),
    "a ReLU with another forward": payload(["M", 0], modules=[[*PLAIN[:5], [["forward", RELU]]]]),
    "a training flag that is text": payload(["M", 0], modules=[["torch.nn.ReLU", "yes", [], [], [], []]]),
    "weights that are not there": payload(
        ["M", 0], modules=[["torch.nn.LSTM", False, [], [], [], [["_flat_weights_names", 5]]]]
    ),
}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_payload_is_refused(text):
    start = time.process_time()
    with pytest.raises(Refused):
        decode(HOSTILE[text])
    assert time.process_time() - start < 20, "milliseconds; without limits some take minutes"


def test_what_is_written_by_hand_here_is_near_to_what_is_accepted():
    """The hostile payloads are refused for what they say, not for how they are written."""
    assert decode(tensor(8, [2], [1])).shape == (2,)
    assert [n.name for n in decode(graph(row(), relu())).nodes] == ["x", "relu"]
    assert [n.name for n in decode(graph(row(), relu(name="x"), relu(name="a b"))).nodes] == ["x", "x_1", "a_b"]
    rows = row(), relu(), row("output", "output", "output", ["t", ["n", 1]])
    gm = decode(module(*rows, children=[["a", ["M", 0]]], inner=[PLAIN]))
    assert gm(torch.tensor(-1.0)) == 0 and isinstance(gm.a, nn.ReLU)


def test_too_many_nodes_and_too_large_payloads_are_refused(monkeypatch):
    monkeypatch.setattr(kinds, "NODES", 10)
    with pytest.raises(Refused, match="more than 10 nodes"):
        decode(graph(*[row(f"x{i}", target=f"x{i}") for i in range(11)]))
    with pytest.raises(Refused, match="more than 10 nodes"):
        graph_of_eleven = fx.Graph()
        for i in range(11):
            graph_of_eleven.placeholder(f"x{i}")
        encode(graph_of_eleven)
    monkeypatch.setattr(kinds, "PAYLOAD_BYTES", 100)
    with pytest.raises(Refused, match="too large"):
        decode(encode(1) + b" " * 200)


NAMES = st.sampled_from(["x", "print", "class", "x y", "a\nb", "é", "_", "1", "torch", "x_1", "__import__('os')", ""])


@settings(suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(NAMES, min_size=2, max_size=6),
    texts=st.lists(st.text(max_size=30) | st.floats() | st.integers() | st.booleans() | st.none(), max_size=4),
    path=st.sampled_from(["a", "a-1.b", "0.x y", "a.(b)#", "'", "print(1)"]) | st.text(max_size=12),
    key=st.sampled_from(["dim", "out", "_"]) | st.text(max_size=8),
    kind=st.text(max_size=12),
)
def test_no_text_of_a_payload_becomes_code(names, texts, path, key, kind):
    """What torch.fx makes of an accepted graph is one function, of assignments, whose calls are those of its nodes."""
    operands = [["f", str(v)] if isinstance(v, float) and not math.isfinite(v) else v for v in texts]
    rows = [row(names[0], target="x", kind=kind)]
    rows += [relu(name=name, args=["t", ["n", 0], *operands], kwargs=["d", key, 1]) for name in names[1:]]
    rows.append(row("m", "call_module", path, ["t", ["n", 1]]))
    rows.append(row("output", "output", "output", ["t", ["n", len(rows) - 1]]))
    try:
        code = decode(module(*rows)).graph.python_code("self").src
    except Refused:
        return
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef) and [a.arg for a in function.args.args] == ["self", "x"]
    assert all(isinstance(line, ast.Assign | ast.AnnAssign | ast.Return) for line in function.body)
    called = {ast.unparse(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)}
    assert all(c in ("torch.relu", "getattr") or c.startswith(("self.", "getattr(")) for c in called), called


def seeds():
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.lstm = nn.Conv2d(1, 2, 3), nn.LSTM(2, 2)

        def forward(self, x):
            y, _ = self.lstm(self.conv(x).flatten(2).mean(2))
            return torch.where(y > 0.5, y[..., :1], y.to(torch.float64)), x.shape[0]

    gm = trace(Model(), torch.randn(2, 1, 4, 4))
    sizes, sized = Symbols(), fx.symbolic_trace(lambda x: x.relu())
    for node in sized.graph.nodes:
        rows = sizes.size("s0 - 1", 3)
        node.meta.update(val=sizes.tensor((rows, 2), (2, 1), torch.float32, True), example_value=rows)
    values = (
        gm,
        sized,
        {"a": [(1, 2.5), {3, "é"}], (1,): torch.arange(6).reshape(2, 3).t()},
        next(iter(gm.graph.nodes)),
    )
    return [encode(v) for v in values]


PAYLOADS = seeds()
ODD = [None, True, -1, 0, 1, 2**40, 2**62, 2**63, 1.5, "", "x", "t", "n", "M", "G", "torch.nn.ReLU", "output", {}, []]
ODD += [["t"], ["n", 0], ["M", 0], ["T", 0], ["G", 0], ["N", 0, 1], ["fn", "torch.neg"], ["ty", "Tensor"], ["f", "nan"]]
ODD += [["sy", "s0", 3], ["sy", "s0 - 1", 4], ["ft", ["l", 2], ["l", 1], ["dt", "int8"], False]]


def mutated(value, chance):
    """`value` with something else in one place or several."""
    if chance.random() < 0.01:
        return chance.choice(ODD)
    if type(value) is not list:
        return value
    items = [mutated(v, chance) for v in value]
    if items and chance.random() < 0.02:
        items[chance.randrange(len(items))] = chance.choice(items)
    if items and chance.random() < 0.01:
        del items[chance.randrange(len(items))]
    return items


@settings(suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.sampled_from(PAYLOADS))
def test_a_changed_document_is_a_value_or_refused(chance, sent):
    size = struct.unpack_from("<4sI", sent)[1]
    document = json.loads(sent[8 : 8 + size])
    _either(raw(json.dumps(mutated(document, chance)).encode(), sent[8 + size :]))


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(PAYLOADS),
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=5),
    st.integers(0, 50),
)
def test_changed_and_missing_bytes_give_a_value_or_are_refused(sent, changes, cut):
    harmed = bytearray(sent)
    for at, byte in changes:
        harmed[at % len(harmed)] = byte
    _either(bytes(harmed[: len(harmed) - cut]))


def _either(harmed):
    """Decode what may be anything; what comes out can be encoded, and fingerprints raise no more than decode does."""
    for read in (decode, fingerprint):
        try:
            value = read(harmed)
        except Refused:
            continue
        if read is decode:
            with contextlib.suppress(Refused):
                encode(value)
            if isinstance(value, fx.GraphModule):
                for at in value.graph.nodes:
                    assert at.op != "call_function" or not callable(at.target) or targets.name_of(at.target)
