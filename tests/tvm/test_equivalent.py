"""Modules of Relay and Relax against each other and against torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from tests.support.flavours import RELAY_HERE, each_flavour, python
from tests.support.modules import Relax, Relay

#: Two modules → whether they compute the same, and whether a note says that they were compared as they are written.
SIMPLIFIED = {
    ("x-x", "zeros"): (False, True),
    ("zeros", "x-x"): (False, True),
    ("log-log", "zeros"): (False, True),
    ("log-log", "twice log, subtracted"): (True, True),
    ("x*0", "zeros"): (False, True),
    ("x*0", "0*x"): (True, True),
    ("x==x", "1==1"): (False, True),
    ("exp(x)*exp(x)", "exp(x+x)"): (True, False),
}

EXPECTED = {
    "torch and module": True,
    "module and torch": True,
    "torch and module on given inputs": ["given (llvm)", "ordinary (llvm)"],
    "another torch model": "On random inputs (llvm), output at",
    "a model that fails": "after fails in torch: ",
    "other inputs": "`before` itself fails in torch: ",
    "passlab.equivalent": True,
    "nothing came back": "after is None: does the pass end with a return?",
    "text came back": "after is a str, not a program.",
    "no inputs": "equivalent has no inputs to try",
    "trials and devices": ["ordinary (llvm)"],
    "thorough": ["extreme (llvm)", "large (llvm)", "nonfinite (llvm)", "ordinary (llvm)", "structured (llvm)"],
    "counterexample": True,
    "node to look at": True,
    "small errors are measured": True,
    "tolerance of the caller": [False, True],
    "float16": [True, False],
    "integers": [True, False],
    "moved by rounding": True,
    "inf minus inf in a sum": True,
    "values of calls, where modules are not trusted": ["negative", "relu", "exp"],
    "a layout": True,
    "depth": [3, 3],
    "what TVM simplifies": SIMPLIFIED,
    "x * 0 in a kernel": [True, True],
    "shown": True,
    "smallest": True,
}
ACROSS = {"across": True, "across, another": False}


@each_flavour
def test_verdicts(flavour):
    expected = {**EXPECTED, **(ACROSS if RELAY_HERE and flavour == "relax" else {})}
    found = {name: check() for name, check in checks(flavour).items()}
    assert found.keys() == expected.keys()
    wrong = {}
    for name, want in expected.items():
        right = want in found[name] if isinstance(want, str) else found[name] == want
        if not right:
            wrong[name] = found[name]
    assert wrong == {}


#: Prints the module that Relay's importer makes of Net; Relax's TVM cannot be held beside it.
OF_RELAY = """
from passlab.tvm import builds, importers
from tests.tvm.test_equivalent import Net, given
print(builds.packed(importers.relay_module(Net().eval(), given())).text)
"""


def given() -> torch.Tensor:
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(5))


class Net(torch.nn.Module):
    def __init__(self, last: Callable = torch.relu):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.linear = torch.nn.Linear(3, 4)
        self.last = last

    def forward(self, x):
        return self.last(self.linear(x))


# ---------------------------------------------------------------------------------------------------- the checks


def checks(flavour: str) -> dict[str, Callable[[], Any]]:
    """Name → a function that gives something for EXPECTED."""
    import passlab
    from passlab.tvm import builds, importers, wire
    from passlab.tvm import equivalent as comparing
    from passlab.tvm.dialect import current_dialect
    from passlab.tvm.equivalent import equivalent_modules as same
    from passlab.tvm.modules import nodes

    make = Relay() if flavour == "relay" else Relax()
    load = importers.relay_module if flavour == "relay" else importers.relax_module
    x = given()
    net, other = Net().eval(), Net(lambda x: torch.relu(x) + 1e-3).eval()
    module = load(net, x)
    huge = torch.tensor([[3e38, 3e38, -3e38], [0.0, 0.0, 0.0]])  # its sum is inf, and twice -3e38 is -inf
    relu, leaky = make.module("relu"), make.module("leaky")

    def raised(work: Callable) -> str:
        try:
            work()
        except ValueError as error:
            return str(error)
        return "nothing"

    def counterexample() -> bool:
        """The inputs that are named do show the difference."""
        found = same(relu, leaky)
        (given,) = found.counterexample.values()
        outputs = [builds.run_module(m, [(given,)]).outputs[0][0] for m in (relu, leaky)]
        return list(found.counterexample) == ["x"] and not found and bool((outputs[0] != outputs[1]).any())

    def node_to_look_at() -> bool:
        """Its id is one of the view."""
        found = same(make.module("relu of negative"), make.module("relu of leaky"))
        node = passlab.view(make.module("relu of leaky")).node(found.first_diverging)
        return "leaky" in node.op

    def errors() -> bool:
        found = same(make.module("exp(x)*exp(x)"), make.module("exp(x+x)"), (x,), kinds=())
        return bool(found) and 0 < found.max_abs < 1e-4 and 1 <= found.max_ulp < 100 and 0 < found.mse < 1e-8

    def shown() -> bool:
        right, wrong = same(relu, make.module("relu")), same(relu, leaky)
        return (
            repr(right).startswith("the same function in ")
            and repr(wrong).startswith("not the same function. On random inputs (llvm), output at")
            and "<svg" in wrong._repr_html_()
        )

    def smallest() -> bool:
        """A pass that takes relu for the identity, on a module with more in it than that."""

        def fails(module: Any) -> bool:
            return not same(module, make.drop_relu(module), locate=False)

        found = passlab.shrink(make.module("long"), fails, budget=40)
        return len(nodes(found)) < len(nodes(make.module("long"))) and "relu" in str(found)

    def values_untrusted() -> list[str]:
        """The judge's builder reads the module that returns all values with every check, and runs it."""
        exposed = current_dialect().expose_calls(make.module("long"), 60)
        read = wire.read(builds.packed(exposed.module).text.encode())
        outputs = [torch.from_numpy(array) for array in builds.run_module(read, [(x,)]).outputs[0]]
        named = {"negative": -x, "relu": (-x).relu(), "exp": (-x).relu().exp()}
        return [next(n for n in named if torch.allclose(named[n], output)) for output in outputs]

    def simplified(one: str, other: str) -> tuple[bool, bool]:
        found = same(make.module(one), make.module(other))
        return bool(found), comparing.AS_WRITTEN in found.notes

    def built_already() -> list[bool]:
        """What FuseOps of Relay made is taken apart; Relax's kernels are not, which a note says."""
        found = same(make.module("x*0"), make.fused("x*0"))
        return [bool(found), {"relay": comparing.AS_WRITTEN, "relax": comparing.SIMPLIFIED}[flavour] in found.notes]

    @cache
    def of_relay() -> builds.Packed:
        return builds.Packed("relay", python(OF_RELAY))

    def across(model: Any) -> bool:
        return bool(same(of_relay(), load(model, x), (x,)))

    crossing = {"across": lambda: across(net), "across, another": lambda: across(other)}
    return {
        "torch and module": lambda: bool(same(net, module)),
        "module and torch": lambda: bool(same(module, net)),
        "torch and module on given inputs": lambda: list(same(net, module, (x,), kinds=("ordinary",)).trials),
        "another torch model": lambda: same(module, other).reason,
        "a model that fails": lambda: same(module, lambda a, b: a).reason,
        "other inputs": lambda: raised(lambda: same(net, module, (x[:, :2],))),
        "passlab.equivalent": lambda: bool(passlab.equivalent(net, module)),
        "nothing came back": lambda: passlab.equivalent(module, None).reason,
        "text came back": lambda: passlab.equivalent(module, "relu").reason,
        "no inputs": lambda: raised(lambda: same(net, builds.packed(module))),
        "trials and devices": lambda: list(
            passlab.equivalent(relu, make.module("relu"), trials=["ordinary"], devices=["cpu"]).trials
        ),
        "thorough": lambda: sorted(set(passlab.equivalent(relu, make.module("relu twice"), thorough=True).trials)),
        "counterexample": counterexample,
        "node to look at": node_to_look_at,
        "small errors are measured": errors,
        "tolerance of the caller": lambda: [
            bool(same(relu, leaky, (x,), kinds=())),
            bool(same(relu, leaky, (x,), kinds=(), atol=9.0)),
        ],
        "float16": lambda: [
            bool(same(make.module("x*0.1", "float16"), make.module("x/10", "float16"))),
            bool(same(make.module("x*0.1", "float16"), make.module("x*0.11", "float16"))),
        ],
        "integers": lambda: [
            bool(same(make.module("x+x", "int32"), make.module("x*2", "int32"))),
            bool(same(make.module("x+x", "int32"), make.module("x*3", "int32"))),
        ],
        "moved by rounding": lambda: bool(same(make.module("steps"), make.module("steps, inverse"), (x * 0 + 41,))),
        "inf minus inf in a sum": lambda: bool(
            same(make.module("sum"), make.module("sum of 2x / 2"), (huge,), kinds=())
        ),
        "values of calls, where modules are not trusted": values_untrusted,
        "a layout": lambda: (
            "transpose" in same(make.module("turned"), make.module("turned, leaky")).reason
            or "leaky" in same(make.module("turned"), make.module("turned, leaky")).reason
        ),
        "depth": lambda: [comparing.depth(make.module("long")), comparing.depth(make.fused("long"))],
        "what TVM simplifies": lambda: {pair: simplified(*pair) for pair in SIMPLIFIED},
        "x * 0 in a kernel": built_already,
        "shown": shown,
        "smallest": smallest,
        **(crossing if flavour == "relax" and RELAY_HERE else {}),
    }
