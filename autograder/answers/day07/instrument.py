"""Hidden cases and answers of day07.instrument.

Most wrong answers are one working log with a method that remembers too little.
"""

from __future__ import annotations

import random
import time

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day07.instrument import logged, normed, twice, two_functions
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import program

# ---------------------------------------------------------------------------------------------------- hidden cases

PASSES = (
    "SimplifyInference",
    "EliminateCommonSubexpr",
    "DeadCodeElimination",
    "ToANormalForm",
    "ToGraphNormalForm",
    "CanonicalizeOps",
    "FastMath",
    "FoldScaleAxis",
    "FuseOps",
)


def with_a_primitive() -> tvm.IRModule:
    """Return two functions, of which @half is a kernel already."""
    module = two_functions()
    half = next(var for var in module.functions if var.name_hint == "half")
    module[half] = module[half].with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return relay.transform.InferType()(module)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def steps() -> tuple[str, ...]:
        chosen = rng.sample(PASSES[:-1], 4)  # FuseOps last: few passes take what it makes
        return (*chosen, "FuseOps")

    network, shared = program(normed, (1, 3, 6, 6), *[(4,)] * 4), program(twice, (3, 2))
    return [
        *(logged(f"level {level}", rng.choice((network, shared)), steps(), level=level) for level in range(4)),
        logged("level 4", rng.choice((network, shared)), (*steps(), "FastMath"), level=4),  # which only then runs
        logged("two functions", two_functions, ("ToANormalForm", "FastMath", "FuseOps")),
        logged("three contexts", shared, ("FuseOps",), ("FastMath", "Fails"), steps()),
        logged("the first pass fails", network, ("Fails", "FuseOps")),
        logged("beside a kernel", two_functions, ("AddKernel", "SimplifyInference", "DropKernels")),
        logged("before the first context", shared),
        logged("a sequence in a sequence", network, ("SimplifyInference + FoldScaleAxis", "FuseOps")),
        logged("a wait in a sequence", network, ("SimplifyInference + Waits", "FuseOps")),
        logged("the same pass three times", network, ("SimplifyInference",) * 3),
        logged("no function of Relay", tvm.IRModule, ("AddKernel", "Waits", "DropKernels")),
        logged("a function that is Primitive", with_a_primitive, ("SimplifyInference", "FuseOps")),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _calls(expr):
    """Return the calls in an expression, walked by hand, each once."""
    visited, todo = set(), [expr]
    while todo:
        at = todo.pop()
        if at in visited or isinstance(at, tvm.ir.Op):
            continue
        visited.add(at)
        if isinstance(at, relay.Call):
            todo += [at.op, *at.args]
        elif isinstance(at, relay.Tuple):
            todo += list(at.fields)
        elif isinstance(at, relay.TupleGetItem):
            todo.append(at.tuple_value)
        elif isinstance(at, relay.Let):
            todo += [at.value, at.body]
        elif isinstance(at, relay.Function):
            todo.append(at.body)
    return [expr for expr in visited if isinstance(expr, relay.Call)]


class _Log:
    """Rows hold their own start until they end; the depth is counted up and down."""

    def __init__(self):
        self.rows, self.depth = [], 0

    def enter_pass_ctx(self):
        self.rows, self.depth = [], 0

    def size(self, mod):
        return sum(len(_calls(f)) for f in mod.functions.values() if isinstance(f, relay.Function))

    def run_before_pass(self, mod, info):
        row = {"name": info.name, "depth": self.depth, "before": self.size(mod), "after": None, "seconds": None}
        self.rows.append({**row, "start": time.perf_counter()})
        self.depth += 1

    def run_after_pass(self, mod, info):
        self.depth -= 1
        row = next(row for row in reversed(self.rows) if row["depth"] == self.depth and row["after"] is None)
        row["after"], row["seconds"] = self.size(mod), time.perf_counter() - row["start"]


@right("counts the depth, and walks expressions by hand")
@tvm.instrument.pass_instrument
class Counting(_Log):
    pass


@right("writes down events and makes rows of them when asked")
@tvm.instrument.pass_instrument
class Events(_Log):
    def enter_pass_ctx(self):
        self.events = []

    def run_before_pass(self, mod, info):
        self.events.append((info.name, self.size(mod), time.perf_counter()))

    def run_after_pass(self, mod, info):
        self.events.append((None, self.size(mod), time.perf_counter()))

    @property
    def rows(self):
        rows, running = [], []
        for name, size, instant in self.events:
            if name is None:
                row, start = running.pop()
                row.update(after=size, seconds=instant - start)
            else:
                rows.append({"name": name, "depth": len(running), "before": size, "after": None, "seconds": None})
                running.append((rows[-1], instant))
        return rows

    @rows.setter
    def rows(self, value):
        self.events = value


@wrong("did", "what has no function of Relay is not Relay's: its passes get no row")
@tvm.instrument.pass_instrument
class RelayAlone(_Log):
    def run_after_pass(self, mod, info):
        super().run_after_pass(mod, info)
        if not any(isinstance(f, relay.Function) for f in mod.functions.values()):
            self.rows.pop()


@wrong("did", "a function that is Primitive is one kernel: its calls do not count")
@tvm.instrument.pass_instrument
class NoKernels(_Log):
    def size(self, mod):
        functions = [f for f in mod.functions.values() if isinstance(f, relay.Function)]
        return sum(len(_calls(f)) for f in functions if not (f.attrs and "Primitive" in f.attrs))


@wrong("same", "should_run says what is worth a row: what it turns down does not run at all")
@tvm.instrument.pass_instrument
class Choosy(_Log):
    def should_run(self, mod, info):
        return info.name != "FuseOps"


AtTheEnd = edited("did", "rows are written when a run ends, or nested runs are not told from the others")(
    ("self.rows.append(row)\n        ", ""),
    ('row["after"] = size(mod)', 'row["after"] = size(mod)\nself.rows.append(row)'),
)
ByName = edited("did", "one row for each name: a pass that runs twice has written over itself")(
    (
        "self.rows.append(row)",
        'self.rows[:] = [*(r for r in self.rows if r["name"] != info.name or r["after"] is None), row]',
    )
)


@wrong("did", "ends the last run of that name: it may be nested in another of the same name")
@tvm.instrument.pass_instrument
class LastOfName(_Log):
    def run_after_pass(self, mod, info):
        self.depth -= 1
        row = next(row for row in reversed(self.rows) if row["name"] == info.name)
        row["after"], row["seconds"] = self.size(mod), time.perf_counter() - row["start"]


MainOnly = edited("did", "a module is its main")(("mod.functions.values()", '[mod["main"]]'))
OperatorsOnly = edited("did", "only operators are called")(
    ("isinstance(e, relay.Call)", "isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op)")
)


@wrong("did", "forgets that a pass which failed is still open, or goes on with the rows of the context before")
@tvm.instrument.pass_instrument
class StillOpen(_Log):
    def enter_pass_ctx(self):
        self.rows = []


Exclusive = edited("did", "the time of a run without what is nested in it, where the whole was asked")(
    (
        "time.perf_counter() - start",
        'max(0.0, time.perf_counter() - start - sum(r["seconds"] for r in self.rows[self.rows.index(row) + 1 :]))',
    )
)
NoTime = edited("did", "gives every run no time at all, or the time of the processor, which does not count a wait")(
    ("time.perf_counter() - start", "0.0")
)


@wrong("valid", "only names; or none: should_run gives nothing back where TVM wants a yes or a no, and stops")
@tvm.instrument.pass_instrument
class NamesOnly(_Log):
    def run_before_pass(self, mod, info):
        self.rows.append({"name": info.name})

    def run_after_pass(self, mod, info):
        pass
