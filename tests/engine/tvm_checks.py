"""Checks of the codec for TVM's modules, each in a fork of a warm process: python tests/engine/tvm_checks.py relay

Prints JSON: name of the check → how its process ended, and what it said. One process uses one TVM, hence the script.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import warnings

from autograder.engine import flavours
from passlab.process.refusal import Refused
from passlab.tvm.wire import MAX_NODES, carries, decode, encode

FLAVOUR = sys.argv[1]
REFUSED, OTHER, SECONDS, DAMAGED = 3, 4, 30, 100


def child(work) -> dict:
    """What `work()` says in a process of its own, and how that process ended: 0, REFUSED, OTHER, or minus a signal."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = OTHER
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.alarm(SECONDS)
            message, code = work(), 0
        except Refused as error:
            message, code = str(error), REFUSED
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        finally:
            os.write(into, str(message).encode()[:4000])
            os._exit(code)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        message = pipe.read().decode(errors="replace")
    return {"code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "said": message}


class Graph:
    """A module's JSON, to be tampered with: `nodes` of a type, one of them with changes, and the payload of it all."""

    def __init__(self, module):
        self.json = json.loads(encode(module).partition(b"\n")[2])
        self.nodes = self.json["nodes"]
        self.key = "type_key" if FLAVOUR == "relay" else "type"

    def of(self, kind: str) -> list[int]:
        return [at for at, node in enumerate(self.nodes) if node[self.key] == kind]

    def payload(self) -> bytes:
        return f"{FLAVOUR}\n{json.dumps(self.json)}".encode()


def tampered(module, change):
    """A check: the module is decoded with `change(graph)` made to its JSON."""

    def work():
        graph = Graph(module)
        text = change(graph)
        return decode(text if isinstance(text, bytes) else graph.payload())

    return work


def fuzz(module) -> str:
    """Damaged payloads: how many of their processes ended in which way; in full what should not have been."""
    draw, payload, ends = random.Random(7), encode(module), {}
    for number in range(DAMAGED):
        damage = (flipped, cut, rewired, rewired)[number % 4]
        damaged = damage(draw, payload)
        end = child(lambda damaged=damaged: decode(damaged))
        if end["code"] in (OTHER, -signal.SIGALRM):
            return f"{damage.__name__}, number {number}, ended with {end}"
        key = {0: "decoded", REFUSED: "refused"}.get(end["code"], "died")
        ends[key] = ends.get(key, 0) + 1
    return json.dumps(ends)


def flipped(draw: random.Random, payload: bytes) -> bytes:
    damaged = bytearray(payload)
    for _ in range(draw.choice((1, 3))):
        damaged[draw.randrange(6, len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def cut(draw: random.Random, payload: bytes) -> bytes:
    return payload[: draw.randrange(len(payload))]


def rewired(draw: random.Random, payload: bytes) -> bytes:
    """JSON that is whole, in which some numbers are others: nodes take the place of nodes."""
    head, _, text = payload.partition(b"\n")
    graph = json.loads(text)
    for _ in range(draw.choice((1, 2, 5))):
        data = {}
        while not data:
            node = draw.choice(graph["nodes"])
            data = node.get("attrs") or node.get("data")
            data = data if isinstance(data, dict | list) else {}
        at = draw.choice(list(data) if isinstance(data, dict) else range(len(data)))
        other = draw.randrange(len(graph["nodes"]))
        data[at] = str(other) if isinstance(data[at], str) else other
    return head + b"\n" + json.dumps(graph).encode()


# Relay


def relay_checks() -> dict:
    import torch

    from passlab.relay import relay, tvm

    executor = __import__("tvm.contrib.graph_executor", fromlist=["_"])
    net, x = flavours._rehearsal()
    module, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", x.shape)])
    module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
    module = relay.transform.InferType()(module)

    def run(module):
        built = executor.GraphModule(relay.build(module, "llvm")["default"](tvm.cpu()))
        built.set_input("x", x.numpy())
        built.run()
        return built.get_output(0).numpy()

    def round_trip(module):
        back = decode(encode(module))
        assert carries(back) and carries(back["main"]) and not carries("main")
        assert tvm.ir.structural_equal(back["main"], module["main"], map_free_vars=True)
        return float(abs(run(back) - net(x).numpy()).max())

    def fused():
        with tvm.transform.PassContext(opt_level=3), tvm.target.Target("llvm"):
            passes = [relay.transform.SimplifyInference(), relay.transform.FoldConstant(), relay.transform.FuseOps(2)]
            return round_trip(tvm.transform.Sequential(passes)(module))

    def odd_kinds():
        y = relay.var("y", shape=(relay.Any(), 2), dtype="float16")
        branch = relay.If(relay.const(True), relay.Tuple([y, y])[1], relay.add(y, relay.const(float("inf"), "float16")))
        steps = relay.cast(relay.arange(relay.const(2.0)), "float16")
        body = relay.Let(z := relay.var("z"), branch, relay.add(z, steps))
        function = relay.Function([y], body).with_attr("note", 'é"\n').with_attr("Composite", "a.b")
        function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
        back = decode(encode(function))
        assert tvm.ir.structural_equal(back, function) and back.attrs["note"] == 'é"\n'

    def swap_op(name):
        def change(graph):
            graph.nodes[next(at for at in graph.of("Op") if graph.nodes[at]["repr_str"] == "nn.relu")]["repr_str"] = (
                name
            )

        return change

    def put(kind, field, value):
        def change(graph):
            expected = graph.of(kind)[0]
            text = str(graph.of("runtime.String")[0])
            graph.nodes[expected]["attrs"][field] = text if value == "a text" else value

        return change

    def circular(graph):
        call = graph.of("relay.Call")[0]
        graph.nodes[int(graph.nodes[call]["attrs"]["args"])]["data"] = [call]

    def retyped(graph):
        graph.nodes[graph.of("relay.Function")[0]]["type_key"] = "tir.PrimFunc"

    def short_tensor(graph):
        graph.json["b64ndarrays"][0] = graph.json["b64ndarrays"][1]

    def lying_tensor(graph):
        text = graph.json["b64ndarrays"][0]
        graph.json["b64ndarrays"][0] = text[: len(text) // 8 * 4]

    elsewhere = module["main"].with_attr("Compiler", "ccompiler")
    deep = x_ = relay.var("x", shape=(1,))
    for _ in range(3000):
        deep = relay.nn.relu(deep)
    deep = tvm.IRModule.from_expr(relay.Function([x_], deep))
    return {
        "round trip": lambda: round_trip(module),
        "optimized": fused,
        "odd kinds": odd_kinds,
        "debug": tampered(module, swap_op("debug")),
        "call_lowered": tampered(module, swap_op("call_lowered")),
        "vm op": tampered(module, swap_op("vm.invoke_tvm_op")),
        "tir op": tampered(module, swap_op("tir.call_extern")),
        "relax op": tampered(module, swap_op("relax.call_pure_packed")),
        "no such op": tampered(module, swap_op("no_such_operator")),
        "compiler": lambda: decode(encode(tvm.IRModule.from_expr(elsewhere))),
        "confused settings": tampered(module, put("relay.attrs.Conv2DAttrs", "strides", "a text")),
        "confused arguments": tampered(module, put("relay.Call", "args", "a text")),
        "confused operator": tampered(module, put("relay.Call", "op", "a text")),
        "far away": tampered(module, put("relay.Call", "args", "99999")),
        "negative": tampered(module, put("relay.Call", "args", "-1")),
        "no number": tampered(module, put("relay.Call", "args", None)),
        "circular": tampered(module, circular),
        "unknown type": tampered(module, retyped),
        "ill typed": tampered(module, short_tensor),
        "lying tensor": tampered(module, lying_tensor),
        "too deep": lambda: decode(encode(deep)),
        "fuzz": lambda: fuzz(tvm.IRModule.from_expr(module["main"])),  # without the types that importers add
    }


# Relax


def relax_checks() -> dict:
    import torch

    from passlab.relax import relax, tvm

    frontend = __import__("tvm.relax.frontend.torch", fromlist=["_"])
    net, x = flavours._rehearsal()
    module = frontend.from_exported_program(torch.export.export(net, (x,)))
    legal = relax.transform.LegalizeOps()(module)

    def round_trip(module):
        back = decode(encode(module))
        assert carries(back) and carries(back["main"]) and not carries("main")
        tvm.ir.assert_structural_equal(back, module, map_free_vars=True)
        actual = relax.VirtualMachine(tvm.compile(back, "llvm"), tvm.cpu())["main"](tvm.runtime.tensor(x.numpy()))
        return float(abs(actual[0].numpy() - net(x).numpy()).max())

    def optimized():
        with tvm.target.Target("llvm"):
            return round_trip(relax.get_pipeline("zero")(module))

    def planned():
        steps = ["ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite", "StaticPlanBlockMemory"]
        back = tvm.transform.Sequential([getattr(relax.transform, step)() for step in steps])(legal)
        tvm.ir.assert_structural_equal(decode(encode(back)), back)

    def scheduled():
        schedule = tvm.s_tir.Schedule(legal)
        schedule.work_on("relu")
        loops = schedule.get_loops(schedule.get_sblock("compute"))
        schedule.parallel(schedule.fuse(*loops[:2]))
        schedule.vectorize(schedule.get_loops(schedule.get_sblock("compute"))[-1])
        return round_trip(schedule.mod)

    def parsed():
        script = __import__("tvm.script", fromlist=["_"])
        return round_trip(script.from_source(module.script(show_meta=True)))

    def swap(kind, old, new):
        def change(graph):
            at = next(at for at in graph.of(kind) if graph.nodes[at]["data"] == old)
            graph.nodes[at]["data"] = new

        return change

    def retype(old, new):
        def change(graph):
            graph.nodes[graph.of(old)[0]]["type"] = new

        return change

    def twice(graph):
        """The operator's name twice: what was checked must be what TVM reads."""
        return graph.payload().replace(
            b'"data": "relax.nn.relu"', b'"data": "relax.call_py_func", "data": "relax.nn.relu"'
        )

    def same_name_twice():
        back = tampered(module, twice)()
        assert "call_py_func" not in back.script() and "relu" in back.script()

    def circular(graph):
        graph.nodes[graph.of("ffi.Array")[0]]["data"] = graph.of("ffi.Array")[:1]

    def root(graph):
        graph.json["root_index"] = graph.of("ffi.Array")[0]

    def lying_tensor(graph):
        node = graph.nodes[graph.of("ffi.Tensor")[0]]
        node["data"] = node["data"][: len(node["data"]) // 8 * 4]

    def unbound(graph):
        """A function whose parameters are gone: its body uses a variable that nothing binds."""
        function = graph.nodes[graph.of("relax.expr.Function")[0]]["data"]
        graph.nodes[function["params"]]["data"] = []

    def extern():
        argument = relax.Var("x", relax.TensorType([2], "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [argument]):
            call = relax.call_pure_packed("os.system", argument, ty_args=[relax.TensorType([2], "float32")])
            builder.emit_func_output(builder.emit(call))
        return decode(encode(builder.get()))

    calls = ("call_pure_packed", "call_dps_packed", "call_inplace_packed", "call_py_func", "call_builtin_with_ctx")
    natives = ("call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin", "tvm_call_packed")
    natives += ("call_ffi_kernel", "address_of", "tvm_struct_set", "tvm_access_ptr", "ptx.ld", "cuda.func_call")
    return {
        "round trip": lambda: round_trip(module),
        "with TensorIR": lambda: round_trip(legal),
        "optimized": optimized,
        "planned": planned,
        "scheduled": scheduled,
        "parsed from a script": parsed,
        "a packed function": extern,
        **{name: tampered(module, swap("ir.Op", "relax.nn.relu", f"relax.{name}")) for name in calls},
        **{name: tampered(legal, swap("ir.Op", "tirx.sqrt", f"tirx.{name}")) for name in natives},
        "closure": tampered(module, swap("ir.Op", "relax.nn.relu", "relax.invoke_closure")),
        "pragma C": tampered(legal, swap("ffi.String", "tirx.noalias", "pragma_import_c")),
        "pragma LLVM": tampered(legal, swap("ffi.String", "tirx.noalias", "pragma_import_llvm")),
        "extern function": tampered(module, retype("relax.expr.Function", "relax.expr.ExternFunc")),
        "python object": tampered(module, retype("relax.expr.Function", "ffi.OpaquePyObject")),
        "unknown type": tampered(module, retype("ir.DictAttrs", "target.Target")),
        "confused": tampered(module, retype("ffi.Array", "ffi.Map")),
        "name twice": same_name_twice,
        "circular": tampered(module, circular),
        "no module": tampered(module, root),
        "lying tensor": tampered(module, lying_tensor),
        "not well-formed": tampered(module, unbound),
        "fuzz": lambda: fuzz(module),
        "fuzz TensorIR": lambda: fuzz(legal),
    }


def common(flavour: str) -> dict:
    """Payloads that are wrong before TVM comes in."""
    other = {"relay": b"relax", "relax": b"relay"}[flavour]
    own = flavour.encode() + b"\n"
    return {
        "empty": lambda: decode(b""),
        "no flavour": lambda: decode(b'{"nodes": []}'),
        "the other flavour": lambda: decode(other + b'\n{"nodes": []}'),
        "no JSON": lambda: decode(own + b"\xff{"),
        "a list": lambda: decode(own + b"[1]"),
        "no nodes": lambda: decode(own + b'{"root": "0", "root_index": 0, "nodes": []}'),
        "nested JSON": lambda: decode(own + b"[" * 100_000),
        "many nodes": lambda: decode(own + b'{"nodes": [' + b"{}," * MAX_NODES + b"{}]}"),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    flavours.warm(FLAVOUR)
    checks = relay_checks() if FLAVOUR == "relay" else relax_checks()
    results = {}
    for name, check in {**checks, **common(FLAVOUR)}.items():
        results[name] = {"code": 0, "said": check()} if name.startswith("fuzz") else child(check)
    print(json.dumps(results))
