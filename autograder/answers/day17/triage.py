"""Hidden cases and answers of day17.triage."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day17.triage import LONG, OVERLAP, SHORT, WAIT, Fault, failures_case
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rows, whole = torch.float32, torch.int64

    def values(*operations: str, dtype: torch.dtype = rows) -> Fault:
        return Fault(operations, dtype)

    def form(*operations: str, dtype: torch.dtype = rows, cut: bool = False) -> Fault:
        return Fault(operations, dtype, "form", cut)

    def error(operation: str, text: str, dtype: torch.dtype = rows) -> Fault:
        return Fault((operation,), dtype, text)

    names = ["add", "mul", "sub", "maximum", "tanh", "sin"]

    def mixed(operation: str, wrong: str = "values") -> list[Fault]:
        return [Fault((operation,), wrong=wrong, integer=place) for place in (None, 0, 1)]

    drawn = [values(name) for name in names] + [form("neg"), values("neg"), values("abs"), values("abs", dtype=whole)]
    start = 100 * seed
    pairs = [values("mul", "add"), values("add", "mul"), values("sub", "mul")]
    return [
        failures_case("one kernel, six graphs", start, [values("sub")] * 6, ("valid", "did")),
        failures_case("one kernel of whole numbers", start + 1, [values("maximum", dtype=whole)] * 5, ("valid", "did")),
        failures_case("read by the same operation", start + 2, [values(name) for name in names] * 2, last="abs"),
        failures_case("type and value", start + 3, [form("mul"), values("mul")] * 3),
        failures_case("types of whole numbers", start + 4, [form("abs", dtype=whole), values("abs", dtype=whole)] * 2),
        failures_case("two types", start + 5, [values("sub"), values("sub", dtype=whole)] * 3),
        failures_case("a float and an integer", start + 17, [*mixed("mul"), values("mul", dtype=whole)] * 2),
        failures_case("types of a float and an integer", start + 18, [*mixed("sub", "form"), form("neg")] * 2),
        failures_case("a wrong shape, and its consequence", start + 6, [form("sin", cut=True), form("sin")] * 3),
        failures_case(
            "a consequence, and an error", start + 7, [form("add", cut=True), form("add"), error("add", SHORT)] * 2
        ),
        failures_case("one place raises, in three kernels", start + 8, [error(name, SHORT) for name in names[:3]] * 2),
        failures_case("two places raise", start + 9, [error("mul", SHORT), error("mul", LONG)] * 3),
        failures_case("an error or a value", start + 10, [error("tanh", LONG), values("tanh")] * 2),
        failures_case("kernels of two operations", start + 11, pairs * 2),
        failures_case("alone, and in a kernel", start + 12, [*pairs[:2], values("mul"), values("add")] * 2),
        failures_case("three in a kernel", start + 13, [values("mul", "add", "tanh"), values("add", "tanh")] * 2),
        failures_case(
            "integers within a kernel",
            start + 19,
            [Fault(("neg", "mul"), integer=0), values("neg", "mul"), Fault(("abs", "add"), integer=0)] * 2,
        ),
        failures_case("drawn", start + 14, drawn),
        failures_case("drawn, some twice", start + 15, [*drawn, *drawn[3:7], error("sin", LONG), error("add", LONG)]),
        failures_case("a single failure", start + 16, [values("mul")], ("valid", "did")),
        failures_case(
            "large whole numbers",
            start + 20,
            [Fault(kernel, whole, large=True) for kernel in (("mul",), ("mul", "neg"))] * 2,
        ),
        failures_case(
            "rounding that grows",
            start + 21,
            [Fault((name,), cancels=True) for name in ("tanh", "sin")] * 2,
            last="abs",
        ),
        failures_case("two names in a message", start + 22, [error("add", OVERLAP), error("add", WAIT)] * 2),
    ]


# ---------------------------------------------------------------------------------------------------- answers


class _Replay(fx.Interpreter):
    """Runs a graph on the compiler's values, until one is wrong."""

    def __init__(self, failure):
        super().__init__(failure["graph"], garbage_collect_values=False)
        self.extra_traceback = False
        self.known, self.pending, self.culprit = failure["values"], [], None

    def run_node(self, n):
        right = super().run_node(n)
        if n.op in ("placeholder", "output") or self.culprit:
            return right
        self.pending.append(n.target if isinstance(n.target, str) else n.target.__name__)
        if n.name not in self.known:
            return right
        kernel, self.pending, value = " ".join(self.pending), [], self.known[n.name]
        if value.shape != right.shape or value.dtype != right.dtype:
            self.culprit = f"{kernel} {right.dtype} form"
            return value
        slack = 1e-3 * (1 + right.abs().nan_to_num()) * right.is_floating_point()
        if not bool(((value - right).abs().nan_to_num() <= slack).all()):
            self.culprit = f"{kernel} {right.dtype}"
        return value


@right("runs an interpreter on the compiler's values; a kernel is what was run since the last value")
def replayed(failures):
    classes = defaultdict(list)
    for at, failure in enumerate(failures):
        replay = _Replay(failure)
        with contextlib.suppress(Exception):
            replay.run(*failure["inputs"])
        classes[replay.culprit or _words(failure["error"])].append(at)
    return [tuple(members) for members in classes.values()]


def _words(text):
    return " ".join(word for word in re.split(r"'.*?'", re.sub("[0-9]", "", text)))


@right("asks of each value, back from it, what it is computed from")
def backwards(failures):
    return _grouped(failures, _culprit)


def _culprit(failure):
    nodes = list(failure["graph"].graph.nodes)
    known = dict(zip([n.name for n in nodes], failure["inputs"], strict=False)) | failure["values"]

    def computed(n):
        """The value of a node, and the operations back to values that are known."""
        parts = [(known[o.name], "") if o.name in known else computed(o) for o in n.args]
        first, *others = (value for value, _ in parts)
        value = getattr(first, n.target)(*others) if n.op == "call_method" else n.target(first, *others)
        return value, "".join(text for _, text in parts) + f"{_name(n)} "

    for n in nodes[2:-1]:
        if n.name not in failure["values"]:
            continue
        value, text = computed(n)
        form, own = ((x.shape, x.dtype) for x in (value, known[n.name]))
        if form != own:
            return text, value.dtype, "form"
        slack = 1e-3 if value.is_floating_point() else 0
        if not torch.isclose(value, known[n.name], rtol=slack, atol=slack).logical_or(value.isnan()).all():
            return text, value.dtype, ""
    return _words(failure["error"])


def _grouped(failures, key):
    classes = defaultdict(list)
    for at, failure in enumerate(failures):
        classes[key(failure)].append(at)
    return list(classes.values())


def _name(node):
    return getattr(node.target, "__name__", node.target)


@wrong("did", "takes the operations of the whole graph for the fault")
def by_graph(failures):
    return _grouped(failures, lambda one: tuple(sorted({_name(n) for n in one["graph"].graph.nodes})))


@wrong("did", "one class for each failure")
def each_alone(failures):
    return [[at] for at in range(len(failures))]


@wrong("spared", "one class for all")
def all_one(failures):
    return [list(range(len(failures)))]


@wrong("spared", "looks at the last node, where it comes out")
def by_last(failures):
    return _grouped(failures, lambda one: _name(list(one["graph"].graph.nodes)[-2]))


@wrong("did", "takes an error for the fault before it looks at values")
def error_first(failures):
    return _grouped(failures, lambda one: _words(one["error"]) if one["error"] else _culprit(one))


texts_alike = edited("spared", "takes all errors for one")(("return 'error', ...", "return 'error'"))
numbers_differ = edited("did", "keeps the numbers of a message")((r"""r"'[^']*'|\d+" """, r"""r"'[^']*'" """))
names_differ = edited("did", "keeps the names in a message")((r"""r"'[^']*'|\d+" """, r"""r"\d+" """))
types_within = edited("did", "knows a kernel by the types of all its results")(
    ("kernels[node] = kernel", "kernels[node] = (*kernel, right.dtype)")
)
one_type = edited("spared", "asks which operation is wrong, and not of which type")(
    ("return 'values', kernel, right.dtype", "return 'values', kernel")
)
one_kind = edited("spared", "takes a wrong type for a wrong value")(
    ("return 'form', kernel, right.dtype", "return 'values', kernel, right.dtype")
)
first_type = edited("did", "asks of which type the first operand is")(
    ("return 'values', kernel, right.dtype", "return 'values', kernel, values[node.args[0]].dtype")
)
last_type = edited("did", "asks of which type the last operand is")(
    ("return 'values', kernel, right.dtype", "return 'values', kernel, values[node.args[-1]].dtype")
)
last_only = edited("spared", "of a kernel, takes the last operation")(("(*sum(within, ()), name)", "(name,)"))
spelled = edited("did", "takes two spellings for two operations")(
    ("getattr(node.target, '__name__', node.target)", "str(node.target)")
)
exact = edited("did", "takes rounding for a fault")(
    (
        "torch.allclose(value, right, rtol=slack, atol=slack, equal_nan=True)",
        "torch.allclose(value, right, rtol=0, atol=1e-12, equal_nan=True)",
    )
)
nan_differs = edited("did", "takes NaN for a fault")(
    (
        "torch.allclose(value, right, rtol=slack, atol=slack, equal_nan=True)",
        "torch.allclose(value, right, rtol=slack, atol=slack, equal_nan=False)",
    )
)
whole_numbers_round = edited("spared", "allows rounding for whole numbers, too")(
    ("slack = 1e-4 if right.is_floating_point() else 0", "slack = 1e-4")
)
right_operands = edited("spared", "compares with a right run, to which roundings add up")(
    (
        "value = values[node] = failure['values'].get(node.name, right)",
        "values[node], value = right, failure['values'].get(node.name, right)",
    )
)
to_the_last_quote = edited("spared", "takes all from the first quote of a message to the last for one name")(
    (r"""r"'[^']*'|\d+" """, r"""r"'.*'|\d+" """)
)
