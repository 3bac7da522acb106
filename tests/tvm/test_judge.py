"""The judge of passes over Relay and Relax modules."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.support import modules
from tests.support.flavours import each_flavour

#: Check → a part of the sentence; None: no sentence.
BOTH = {
    "itself": None,
    "rebuilt": None,
    "nothing": "returned None. End it with `return mod`",
    "a function": "returned a Function, not an IRModule",
    "a number": "returned an int, not an IRModule",
    "a pass": "returned another pass (FuseOps)",
    "empty": "no function main; it is empty",
    "no main": "no function main; it has f",
    "free variable": "main reads the variable z, which is never defined",
    "same name": "reads a variable x that is not its parameter x",
    "no such function": "main calls nowhere, and the module has no function of that name",
    "a hole": "visit_ method of your mutator return something",
    "dropped": "The parameter y was dropped: main took (x, y) and now takes (x)",
    "added": "The parameter z is new",
    "renamed": "The parameter y was renamed: main took (x, y) and now takes (x, z)",
    "reordered": "changed their order: main took (x, y) and now takes (y, x)",
    "retyped": "The parameter y has another type: it was",
    "another result": "main returned",
    "function for function": None,
    "module for function": "returned an IRModule, not a function",
    "crash": "While it looked (its process ended).",
    "endless": "While it looked (it did not end).",
    "same": None,
    "reassociated": None,
    "rounded": None,
    "other numbers": "On random inputs (llvm), output at",
    "other shape": "the shape of output is (2, 3) before and (3, 2) after",
    "other dtype": "the dtype of output is float32 before and float16 after",
    "more outputs": "there is 1 output before and 2 after",
    "named": "Look at",
    "lost": "Look for",
    "limited": None,
    "limited, with inf": "On inputs with inf and NaN (llvm), output at",
    "divided by itself": "On inputs with zeros, tiny and huge numbers (llvm)",
    "NaN on the way": None,
    "as torch": None,
    "not as torch": "against the torch model",
    "repaired": None,
    "not repaired": "On random inputs (llvm)",
    "before fails": "ValueError: `before` itself does not build",
    "built once": "1 run of before and 3 of after",
    "arguments": "unchanged",
    "equal": None,
    "first difference": "At main, ",
    "devices": "llvm",
    "verdicts of a right pass": "valid same did spared cost",
    "verdicts of a pass that returns nothing": "not valid",
    "verdicts of a wrong pass": "valid not same",
    "no such kind": "No kind of inputs 'odd'",
}
EXPECTED = {
    "relay": {
        **BOTH,
        "ill-typed": "not well-typed at add in main: ",
        "no attributes": "nn.softmax is called without its attributes",
        "other attributes": "nn.softmax is called with relay.attrs.LeakyReluAttrs; its attributes are",
        "parameter twice": "main has its parameter x twice",
        "result declared": "it returns Tensor[(7), float32], but its body is Tensor[(2, 3), float32]",
        "does not build": "The module that came back does not build for llvm",
        "not run": "did not run",
        "any size": "(5, 3) (7, 3)",
        "groups": "[('nn.dense', 'nn.relu'), ('sum',)]",
        "groups unfused": "[('nn.dense',), ('nn.relu',), ('sum',)]",
        "counts": "{'nn.dense': 1, 'nn.relu': 1, 'sum': 1}",
        "consumers": "add: 2, relu: result",
    },
    "relax": {
        **BOTH,
        "no type": "The ty of Expr R.add(x, x) is missing. Make expressions through the builder",
        "bound twice": "defined more than once. Give every binding its own variable",
        "dataflow": "used outside DataflowBlock",
        "does not build": "The module that came back does not build for llvm",
        "crash in a kernel": "The module that came back crashed on llvm",
        "endless kernel": "The module that came back took too long on llvm",
        "symbolic": "(5, 3) (7, 3)",
        "groups": "[('matmul', 'relu'), ('sum',)]",
        "groups unfused": "[('relax.matmul',), ('relax.nn.relu',), ('relax.sum',)]",
        "counts": "{'relax.matmul': 1, 'relax.nn.relu': 1, 'relax.sum': 1}",
        "counts of kernels": "{'matmul': 1, 'relu': 1, 'sum': 1}",
        "consumers": "lv: 2, gv: result",
    },
}


@pytest.fixture(scope="module")
def said() -> Callable[[str], dict[str, Any]]:
    """Flavour → what each check said."""
    return cache(lambda flavour: {name: check() for name, check in checks(flavour).items()})


@each_flavour
def test_every_check_says_what_it_should(said, flavour):
    result = said(flavour)
    assert result.keys() == EXPECTED[flavour].keys()
    wrong = {}
    for name, part in EXPECTED[flavour].items():
        sentence = result[name]
        if bool(sentence) if part is None else (not sentence or part not in sentence):
            wrong[name] = sentence
    assert wrong == {}


@each_flavour
def test_sentences_are_whole_and_plain(said, flavour):
    for name, sentence in said(flavour).items():
        assert not sentence or ("\n" not in sentence and "Traceback" not in sentence), name
        assert not sentence or not sentence.endswith(".."), name


# ---------------------------------------------------------------------------------------------------- the checks


def checks(flavour: str) -> dict[str, Callable[[], Any]]:
    """Name → a function that gives a sentence, or None."""
    import torch

    from passlab.judge import Case, Exercise
    from passlab.judge import judge as judge_answer
    from passlab.tvm import builds, judge

    make = Relay() if flavour == "relay" else Relax()
    before = make.start()
    valid, same = judge.why_not_valid, judge.why_not_same

    def looked(end: Callable[[], None]) -> Callable[[Any], None]:
        def work(tell):
            tell("While it looked")
            end()

        return work

    def failing(work: Callable[[], Any]) -> str | None:
        try:
            work()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def endless() -> None:
        while True:
            pass

    def built_once() -> str:
        """`before` is run on each input and on two that are moved, `after` on the input alone."""
        real, runs = builds.run_module, {1: 0, 3: 0}

        def counted(module, inputs, **more):
            runs[len(inputs)] += 1
            return real(module, inputs, **more)

        builds.run_module = counted
        try:
            for _ in range(3):
                same(make.alone("negative"), make.alone("leaky"), kinds=("ordinary",), locate=False)
        finally:
            builds.run_module = real
        return f"{runs[3]} run of before and {runs[1]} of after"

    def arguments() -> str:
        own, theirs = make.alone("relu"), make.alone("leaky")
        texts = [str(own), str(theirs)]
        valid(own, theirs), same(own, theirs), judge.first_difference(own, theirs)
        return "unchanged" if [str(own), str(theirs)] == texts else "changed"

    def verdicts(answer: Callable) -> str:
        def law(mod_before, mod_after, case):
            return None if judge.counts(mod_after) else "It has no calls."

        exercise = Exercise(
            id=f"day0{7 if flavour == 'relay' else 8}.test",
            title="",
            points=dict.fromkeys(("valid", "same", "did", "spared", "cost"), 1),
            difficulty=1,
            minutes=1,
            hints=(),
            cases=lambda: [Case("one", lambda: (make.start(),))],
            judge=judge.judge_pass(law, law, law, reference=lambda case: lambda x, y: torch.relu(x) + y),
        )
        values = judge_answer(exercise, answer).verdicts
        if not values["valid"]:
            return "not valid"
        return " ".join(verdict if ok else f"not {verdict}" for verdict, ok in values.items())

    def fill(x, y):
        return torch.relu(x) + y

    odd = {name: (lambda module=module: valid(before, module)) for name, module in make.odd().items()}
    return {
        "itself": lambda: valid(before, before),
        "rebuilt": lambda: valid(before, make.start()),
        "nothing": lambda: valid(before, None),
        "a function": lambda: valid(before, before["main"]),
        "a number": lambda: valid(before, 3),
        "function for function": lambda: valid(before["main"], make.start()["main"]),
        "module for function": lambda: valid(before["main"], before),
        **odd,
        "crash": lambda: judge._in_fork(looked(os.abort)),
        "endless": lambda: judge._in_fork(looked(endless), seconds=1),
        "same": lambda: same(before, make.start()),
        "reassociated": lambda: same(make.alone("x*w*s"), make.alone("x*(w*s)"), kinds=judge.ALL_KINDS),
        "rounded": lambda: same(make.alone("x*0.1"), make.alone("x/10"), kinds=judge.ALL_KINDS),
        "other numbers": lambda: same(make.alone("relu"), make.alone("leaky")),
        "other shape": lambda: same(make.alone("relu"), make.alone("transposed")),
        "other dtype": lambda: same(make.alone("relu"), make.alone("half")),
        "more outputs": lambda: same(make.alone("relu"), make.alone("twice")),
        "named": lambda: same(make.alone("relu of negative"), make.alone("relu of leaky")),
        "lost": lambda: same(make.alone("relu of negative"), make.alone("negative")),
        "limited": lambda: same(make.alone("relu"), make.alone("limited")),
        "limited, with inf": lambda: same(make.alone("relu"), make.alone("limited"), kinds=("nonfinite",)),
        "divided by itself": lambda: same(make.alone("x/x"), make.alone("ones"), kinds=("extreme",)),
        "NaN on the way": lambda: same(make.alone("relu of x/x"), make.alone("relu of 1"), kinds=("extreme",)),
        "as torch": lambda: same(before, make.start(), reference=fill),
        "not as torch": lambda: same(before, make.same_but_slightly(), reference=lambda x, y: torch.relu(x) - y),
        "repaired": lambda: same(None, make.start(), reference=fill),
        "not repaired": lambda: same(None, make.start(), reference=lambda x, y: fill(x, y) + 1),
        "before fails": lambda: failing(lambda: same(make.alone("unbuildable"), make.alone("relu"))),
        "does not build": lambda: same(make.alone("relu"), make.alone("unbuildable")),
        "built once": built_once,
        "arguments": arguments,
        "equal": lambda: judge.first_difference(before, make.start()),
        "first difference": lambda: judge.first_difference(make.alone("relu"), make.alone("negative")),
        "devices": judge.devices_note,
        "verdicts of a right pass": lambda: verdicts(lambda mod: make.start()),
        "verdicts of a pass that returns nothing": lambda: verdicts(lambda mod: None),
        "verdicts of a wrong pass": lambda: verdicts(lambda mod: make.wrong()),
        "no such kind": lambda: failing(lambda: judge.random_inputs(before, kinds=("odd",))),
        "groups": lambda: str(judge.groups(make.fused())),
        "groups unfused": lambda: str(judge.groups(make.net())),
        "counts": lambda: str(dict(sorted(judge.counts(make.net()).items()))),
        **make.own(),
    }


class Relay:
    """Small modules of Relay."""

    def __init__(self):
        from passlab.relay import relay, tvm

        self.relay, self.tvm, self.small = relay, tvm, modules.Relay()

    def var(self, name: str = "x", shape: tuple = (2, 3)) -> Any:
        return self.relay.var(name, shape=shape)

    def module(self, body: Any, params: list, **more: Any) -> Any:
        relay = self.relay
        return self.tvm.IRModule({relay.GlobalVar("main"): relay.Function(params, body, **more)})

    def start(self) -> Any:
        x, y = self.var("x"), self.var("y")
        return self.module(self.relay.add(self.relay.nn.relu(x), y), [x, y])

    def same_but_slightly(self) -> Any:
        x, y = self.var("x"), self.var("y")
        return self.module(self.relay.add(y, self.relay.nn.relu(x)), [x, y])

    def wrong(self) -> Any:
        x, y = self.var("x"), self.var("y")
        return self.module(self.relay.add(x, y), [x, y])

    def alone(self, what: str) -> Any:
        if what != "unbuildable":
            return self.small.module(what)
        relay, x = self.relay, self.var()
        return self.module(relay.nn.conv2d(relay.reshape(x, (1, 1, 2, 3)), relay.const([[[[1.0]]]], "float32")), [x])

    def ops(self, name: str) -> list[str]:
        return [f"nn.{name}"]

    def net(self) -> Any:
        relay, x, w = self.relay, self.var(), self.var("w", (4, 3))
        return self.module(relay.sum(relay.nn.relu(relay.nn.dense(x, w)), axis=1), [x, w])

    def fused(self) -> Any:
        transform, relay = self.relay.transform, self.relay
        x, w = self.var(), self.var("w", (4, 3))
        stopped = relay.annotation.stop_fusion(relay.nn.relu(relay.nn.dense(x, w)))
        module = transform.InferType()(self.module(relay.sum(stopped, axis=1), [x, w]))
        return transform.FuseOps(2)(module)

    def odd(self) -> dict[str, Any]:
        relay, tvm = self.relay, self.tvm
        x, y, z = (self.var(name) for name in "xyz")
        wide = self.var("y", (1, 3))
        good = relay.add(relay.nn.relu(x), y)
        call = relay.Call
        return {
            "a pass": relay.transform.FuseOps(),
            "empty": tvm.IRModule(),
            "no main": tvm.IRModule({relay.GlobalVar("f"): relay.Function([x, y], good)}),
            "free variable": self.module(relay.add(good, z), [x, y]),
            "same name": self.module(relay.add(self.var("x"), y), [x, y]),
            "no such function": self.module(call(relay.GlobalVar("nowhere"), [x]), [x, y]),
            "a hole": self.module(call(relay.op.get("nn.relu"), [None]), [x, y]),
            "dropped": self.module(relay.nn.relu(x), [x]),
            "added": self.module(good, [x, y, z]),
            "renamed": self.module(relay.add(relay.nn.relu(x), z), [x, z]),
            "reordered": self.module(good, [y, x]),
            "retyped": self.module(relay.add(relay.nn.relu(x), wide), [x, wide]),
            "another result": self.module(relay.sum(good), [x, y]),
            "ill-typed": self.module(relay.nn.relu(relay.add(relay.nn.relu(x), relay.transpose(y))), [x, y]),
            "no attributes": self.module(call(relay.op.get("nn.softmax"), [good]), [x, y]),
            "other attributes": self.module(
                call(relay.op.get("nn.softmax"), [good], relay.nn.leaky_relu(x, alpha=0.1).attrs), [x, y]
            ),
            "parameter twice": self.module(relay.nn.relu(x), [x, x]),
            "result declared": self.module(good, [x, y], ret_type=relay.TensorType((7,), "float32")),
        }

    def own(self) -> dict[str, Callable]:
        from passlab.tvm import judge

        relay = self.relay

        def not_run() -> str:
            """Two functions that call each other without end."""
            x = self.var()
            main, other = relay.GlobalVar("main"), relay.GlobalVar("other")
            ret = relay.TensorType((2, 3), "float32")
            module = self.tvm.IRModule(
                {
                    main: relay.Function([x], relay.Call(other, [x]), ret),
                    other: relay.Function([z := self.var("z")], relay.Call(main, [z]), ret),
                }
            )
            message = judge.why_not_same(self.alone("relu"), module, seconds=10)
            return "did not run" if message.startswith("The module that came back ") else message

        def any_size() -> str:
            x = relay.var("x", relay.TensorType((relay.Any(), 3), "float32"))
            module = self.module(relay.nn.relu(x), [x])
            return " ".join(str(a.shape) for (a,) in judge.random_inputs(module, kinds=("ordinary", "sizes")))

        def consumers() -> str:
            x = self.var()
            relu = relay.nn.relu(x)
            add = relay.add(relu, relu)
            body = relay.nn.relu(relay.add(add, relay.negative(add)))
            results = judge.consumers(self.module(body, [x]))
            return f"add: {len(results[add])}, relu: {'result' if results[body] == [None] else results[body]}"

        return {"not run": not_run, "any size": any_size, "consumers": consumers}


class Relax:
    """Small modules of Relax."""

    def __init__(self):
        from passlab.relax import relax, tvm

        self.relax, self.tvm, self.small = relax, tvm, modules.Relax()

    def var(self, name: str = "x", shape: tuple = (2, 3)) -> Any:
        return self.relax.Var(name, self.relax.TensorType(list(shape), "float32"))

    def module(self, body: Callable, params: list) -> Any:
        """`body(emit)` gives the result; emit(expression) binds it to a variable."""
        builder = self.relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                out = builder.emit_output(body(builder.emit))
            builder.emit_func_output(out)
        return builder.get()

    def raw(self, bindings: list, result: Any, params: list) -> Any:
        """A function as it is, without a builder that looks at it."""
        relax = self.relax
        body = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(v, e) for v, e in bindings])], result)
        type_ = relax.TensorType([2, 3], "float32")
        return self.tvm.IRModule({"main": relax.Function(params, body, type_).with_attr("global_symbol", "main")})

    def start(self) -> Any:
        x, y, op = self.var("x"), self.var("y"), self.relax.op
        return self.module(lambda e: op.add(e(op.nn.relu(x)), y), [x, y])

    def same_but_slightly(self) -> Any:
        x, y, op = self.var("x"), self.var("y"), self.relax.op
        return self.module(lambda e: op.add(y, e(op.nn.relu(x))), [x, y])

    def wrong(self) -> Any:
        x, y = self.var("x"), self.var("y")
        return self.module(lambda e: self.relax.op.add(x, y), [x, y])

    def alone(self, what: str) -> Any:
        return self.raw_kernel("missing") if what == "unbuildable" else self.small.module(what)

    def raw_kernel(self, what: str) -> Any:
        """main calls one kernel: that runs without end, writes far outside, or is not there."""
        from tvm.script import tirx as T

        relax = self.relax

        @T.prim_func(private=True, s_tir=True)
        def endless(a: T.Buffer((2, 3), "float32"), b: T.Buffer((2, 3), "float32")):
            while a[0, 0] == a[0, 0]:
                b[0, 0] = b[0, 0] + T.float32(1)

        @T.prim_func(private=True, s_tir=True)
        def outside(a: T.Buffer((2, 3), "float32"), b: T.Buffer((2, 3), "float32")):
            for i in range(1 << 16):
                b[i * 4096, 0] = a[0, 0]

        builder, x = relax.BlockBuilder(), self.var()
        kernel = None if what == "missing" else builder.add_func({"endless": endless, "outside": outside}[what], what)
        with builder.function("main", [x]):
            with builder.dataflow():
                type_ = relax.TensorType([2, 3], "float32")
                if kernel is None:
                    call = relax.call_dps_packed("nobody.has.this", [x], type_)
                else:
                    call = relax.call_tir(kernel, [x], type_)
                out = builder.emit_output(call)
            builder.emit_func_output(out)
        return builder.get()

    def ops(self, name: str) -> list[str]:
        return [f"relax.nn.{name}"]

    def net(self) -> Any:
        op, x, w = self.relax.op, self.var(), self.var("w", (3, 4))
        return self.module(lambda e: op.sum(e(op.nn.relu(e(op.matmul(x, w)))), axis=[1]), [x, w])

    def fused(self) -> Any:
        op, x, w = self.relax.op, self.var(), self.var("w", (3, 4))
        transform = self.relax.transform
        module = self.module(lambda e: op.sum(e(op.nn.relu(e(op.matmul(x, w)))), axis=[1]), [x, w])
        return transform.FuseOps()(transform.AnnotateTIROpPattern()(transform.LegalizeOps()(module)))

    def odd(self) -> dict[str, Any]:
        relax, op, raw = self.relax, self.relax.op, self.raw
        x, y, z = (self.var(name) for name in "xyz")
        wide = self.var("y", (1, 3))
        typed = relax.BlockBuilder().normalize
        out = self.var("out")
        inner = relax.DataflowVar("inner", relax.TensorType([2, 3], "float32"))
        start, type_ = self.start(), relax.TensorType([2, 3], "float32")
        nowhere = relax.Call(relax.GlobalVar("nowhere"), [x], ty_args=[type_])
        return {
            "a pass": relax.transform.FuseOps(),
            "empty": self.tvm.IRModule(),
            "no main": self.tvm.IRModule({"f": start["main"].with_attr("global_symbol", "f")}),
            "free variable": raw([(out, typed(op.add(x, z)))], out, [x, y]),
            "same name": raw([(out, typed(op.add(x, self.var("x"))))], out, [x, y]),
            "no such function": raw([(out, nowhere)], out, [x, y]),
            "a hole": raw([(out, relax.Call(self.tvm.ir.Op.get("relax.nn.relu"), [None]))], out, [x, y]),
            "dropped": self.module(lambda e: op.nn.relu(x), [x]),
            "added": self.module(lambda e: op.add(x, y), [x, y, z]),
            "renamed": self.module(lambda e: op.add(x, z), [x, z]),
            "reordered": self.module(lambda e: op.add(x, y), [y, x]),
            "retyped": self.module(lambda e: op.add(x, wide), [x, wide]),
            "another result": self.module(lambda e: op.sum(x), [x, y]),
            "no type": raw([(out, op.add(x, x))], out, [x, y]),
            "bound twice": raw([(out, typed(op.add(x, x))), (out, typed(op.add(x, y)))], out, [x, y]),
            "dataflow": raw([(inner, typed(op.add(x, x)))], inner, [x, y]),
        }

    def own(self) -> dict[str, Callable]:
        from passlab.tvm import judge

        relax, op = self.relax, self.relax.op

        def symbolic() -> str:
            n = self.tvm.tirx.Var("n", "int64")
            x = relax.Var("x", relax.TensorType([n, 3], "float32"))
            module = self.module(lambda e: op.nn.relu(x), [x])
            return " ".join(str(a.shape) for (a,) in judge.random_inputs(module, kinds=("ordinary", "sizes")))

        def consumers() -> str:
            x = self.var()
            module = self.module(lambda e: op.add(y := e(op.nn.relu(x)), e(op.add(y, y))), [x])
            results = judge.consumers(module)
            names = {var.name: readers for var, readers in results.items()}
            return f"lv: {len(names['lv'])}, gv: {'result' if names['gv'] == [None] else names['gv']}"

        def kernels() -> str:
            return str(dict(sorted(judge.counts(relax.transform.LegalizeOps()(self.net())).items())))

        relu = self.alone("relu")
        return {
            "crash in a kernel": lambda: judge.why_not_same(relu, self.raw_kernel("outside"), kinds=("ordinary",)),
            "endless kernel": lambda: judge.why_not_same(
                relu, self.raw_kernel("endless"), kinds=("ordinary",), seconds=3
            ),
            "symbolic": symbolic,
            "counts of kernels": kernels,
            "consumers": consumers,
        }
