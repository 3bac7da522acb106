"""Hidden cases and answers of day04.attention.

Most wrong answers are the reference with one check left out.
"""

from __future__ import annotations

import math
import operator
import random
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.answers.day03._shared import zoo
from autograder.answers.day04._shared import few_calls, written_graphs
from autograder.authoring.answers import edited, reference, right, wrong
from passlab.exercises.day04._shared import calls
from passlab.exercises.day04.attention import attention_at_most, attention_made, attentions, causal
from passlab.fx.cases import case, graph
from passlab.fx.effects import effects, written
from passlab.fx.patterns import canonical
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases

INF = math.inf

SCORES = (lambda q, kt: q @ kt, lambda q, kt: torch.matmul(q, kt), lambda q, kt: q.matmul(kt))
VALUES = (lambda p, v: p @ v, lambda p, v: torch.matmul(p, v), lambda p, v: p.matmul(v))
KEYS = (
    lambda k, rank: k.transpose(-1, -2),
    lambda k, rank: torch.transpose(k, rank - 2, -1),
    lambda k, rank: k.mT,
    lambda k, rank: k.permute(*range(rank - 2), rank - 1, rank - 2),
    lambda k, rank: torch.permute(k, (*range(rank - 2), -1, -2)),
)
SCALES = (
    (lambda q: q, lambda s: s),
    (lambda q: q * 0.3, lambda s: s),
    (lambda q: q / 3, lambda s: s),
    (lambda q: q, lambda s: 0.7 * s),
    (lambda q: q, lambda s: s.div(math.sqrt(5))),
    (lambda q: torch.mul(q, 0.9), lambda s: torch.div(s, 2)),
)
MASKS = (
    lambda m, s: s,
    lambda m, s: s + m.mask,
    lambda m, s: torch.add(m.mask, s),
    lambda m, s: s + m.bias,
    lambda m, s: s.masked_fill(m.hidden, -INF),
    lambda m, s: torch.masked_fill(s, m.hidden, float("-inf")),
    lambda m, s: torch.where(m.seen, s, -INF),
    lambda m, s: torch.where(m.hidden, -INF, s),
)
SOFTMAXES = (
    lambda m, s, rank: torch.softmax(s, -1),
    lambda m, s, rank: F.softmax(s, dim=rank - 1),
    lambda m, s, rank: s.softmax(dim=-1),
    lambda m, s, rank: torch.softmax(input=s, dim=-1),
    lambda m, s, rank: m.softmax(s),
)
DROPOUTS = (
    lambda m, p: p,
    lambda m, p: m.drop(p),
    lambda m, p: F.dropout(p, 0.0, True),
    lambda m, p: F.dropout(m.drop(p), 0.2, training=False),
    lambda m, p: F.dropout(input=p, p=0.4, training=False),
)


TABLES = SCORES, KEYS, SCALES, MASKS, SOFTMAXES, DROPOUTS, VALUES


def of_zoo(name: str) -> Case:
    number = len(attentions(reference("day04.attention")(zoo(name)())))
    return case(f"zoo: {name}", zoo(name), did=[attention_made(number, "The zoo writes attention out.")])


EVERY = [tuple(table[i % len(table)] for table in TABLES) for i in range(max(map(len, TABLES)))]
FOUR = (2, 2, 4, 4)
UPPER = ~torch.ones(4, 4, dtype=torch.bool).tril()
BLIND = UPPER.clone()
BLIND[2] = True


@case(
    "one behind the other, and a scaled query that both read",
    graph(..., (2, 4, 4), mask=causal(4)),
    did=[attention_made(2, "The scaled query may be read twice: it stays as it is, or is not needed.")],
)
def twice(m: Any, x: fx.Proxy) -> fx.Proxy:
    half = x * 0.5
    for _ in range(2):
        x = torch.softmax(half @ x.mT + m.mask, -1) @ x
    return x


@case(
    "a row that sees nothing",
    graph(..., (2, 4, 6), (2, 4, 6), hidden=BLIND),
    did=[attention_made(1, "A row without a finite score is NaN before, and free.")],
)
def dark(m: Any, q: fx.Proxy, k: fx.Proxy) -> fx.Proxy:
    return torch.softmax((q @ k.mT).masked_fill(m.hidden, -INF), -1) @ k


@case(
    "dropouts that are off in training",
    graph(..., FOUR, FOUR, FOUR, training=True, off=lambda: nn.Dropout(0.0), still=lambda: nn.Dropout(0)),
    did=[attention_made(1, "A dropout with p=0 draws nothing, in training neither.")],
)
def switched_off(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    return m.off(m.still(torch.dropout(torch.softmax(q @ k.mT, -1), 0.5, False))) @ v


@case(
    "a functional dropout that draws",
    graph(..., FOUR, FOUR, FOUR),
    spared=[attention_at_most(0, "F.dropout(…, training=True) draws, whatever mode the model is in.")],
)
def drawing(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    p = F.dropout(torch.softmax(q @ k.mT * 0.5, -1), 0.25, True)
    return p @ v


@case(
    "shapes and dtypes",
    graph(
        ...,
        FOUR,
        (2, 1, 4, 4),
        (1, 2, 4, 4),
        torch.arange(64).reshape(FOUR) % 3,
        row=(4,),
        many=(3, 1, 1, 4, 4),
        heads=(3, 1, 4, 4),
        whole=torch.arange(16).reshape(4, 4),
    ),
    spared=[attention_at_most(0, "Look at the shapes of masks, the leading dimensions, and the dtypes.")],
)
def shapes(m: Any, x: fx.Proxy, k: fx.Proxy, one: fx.Proxy, n: fx.Proxy) -> tuple:
    s = 0.5
    return (
        torch.softmax(x @ x.mT * s + m.row, -1) @ x,
        torch.softmax(x @ x.mT * s + m.many, -1) @ x,
        torch.softmax(x @ k.mT * s, -1) @ k,
        torch.softmax(x @ x.permute(1, 0, 3, 2) * s, -1) @ x,
        torch.softmax(x @ x.permute(0, 1, 2, 3) * s, -1) @ x,
        torch.softmax(x @ x.transpose(3, -1) * s, -1) @ x,
        torch.softmax(x @ x.roll(2, 3) * s, -1) @ x,
        torch.softmax(x @ x.real * s, -1) @ x,
        torch.softmax(x @ x.mT * s, 2) @ x,
        torch.softmax(x @ x.mT * s + m.whole, -1) @ x,
        torch.softmax(one @ one.mT * s + m.heads, -1) @ one,
        torch.softmax(n @ n.mT * s, -1) @ x,
    )


@case(
    "all dimensions of the keys in reverse",
    graph(..., (4, 4, 4), (3, 3, 3, 3)),
    spared=[attention_at_most(0, "T reverses all dimensions, not only the last two.")],
)
def reversed_keys(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return torch.softmax(x @ x.T * 0.5, -1) @ x, torch.softmax(y @ y.T * 0.5, -1) @ y


@case(
    "values that are their own operands",
    graph(..., (2, 4, 4), bias=(4, 4), softmax=lambda: nn.Softmax(-1)),
    spared=[attention_at_most(0, "Probabilities and scores that are read twice have to be there.")],
)
def read_twice(m: Any, x: fx.Proxy) -> tuple:
    p, s = torch.softmax(x @ x.mT, -1), x @ x.mT
    values = [
        F.dropout(torch.softmax(x @ x.mT, -1), 0.5, False),
        m.softmax(x @ x.mT),
        x @ x.mT * 0.5,
        x @ x.mT / 3,
    ]
    ends = values[0] @ x, values[1] @ x, torch.softmax(values[2], -1) @ x, torch.softmax(values[3] + m.bias, -1) @ x
    return p @ p, torch.softmax(s + s, -1) @ x, *ends, *values


@case(
    "other constants and orders",
    graph(..., FOUR, hidden=UPPER, temperature=torch.tensor(0.7), bias=(4, 4)),
    spared=[attention_at_most(0, "None of these is attention as the law has it.")],
)
def constants(m: Any, x: fx.Proxy) -> tuple:
    s = 0.5
    return (
        torch.softmax(x @ x.mT * m.temperature, -1) @ x,
        torch.softmax(1 / (x @ x.mT), -1) @ x,
        torch.softmax((x @ x.mT * s).masked_fill(m.hidden, -10000.0), -1) @ x,
        torch.softmax(torch.where(m.hidden, x @ x.mT * s, 0.0), -1) @ x,
        torch.softmax(x @ x.mT * s, -1).masked_fill(m.hidden, 0.0) @ x,
        torch.softmax((x @ x.mT).masked_fill(m.hidden, -INF) * s, -1) @ x,
        torch.softmax(torch.add(x @ x.mT, m.bias, alpha=2), -1) @ x,
        torch.log_softmax(x @ x.mT * s, -1) @ x,
        torch.softmax(torch.div(x @ x.mT, 0.3, rounding_mode="floor"), -1) @ x,
        torch.softmax(torch.where(m.hidden, 1.0, -INF), -1) @ x,
        torch.softmax(x @ x.mT + 1.0, -1) @ x,
        torch.softmax(x @ x.mT, -1, torch.float32) @ x,
        torch.softmax(x @ x.mT, dim=-1, dtype=torch.float32) @ x,
    )


@case(
    "written in between",
    graph(..., FOUR, FOUR, FOUR),
    spared=[attention_at_most(0, "The program writes into q, and into scores, before they are used up.")],
)
def written_program(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    p = torch.softmax(q @ k.mT * 0.5, -1)
    q.add_(1)
    s = k @ v.mT
    s.mul_(2)
    return p @ v, torch.softmax(s, -1) @ k


@case(
    "inputs, parameters and modules called like operations",
    graph(
        ...,
        *[FOUR] * 4,
        bmm=lambda: nn.Bilinear(4, 4, 4),
        softmax=lambda: nn.LogSoftmax(-1),
        transpose=FOUR,
        add=FOUR,
    ),
    spared=[attention_at_most(0, "A name says nothing: look at what a node calls.")],
)
def names(m: Any, matmul: fx.Proxy, softmax: fx.Proxy, mul: fx.Proxy, div: fx.Proxy) -> tuple:
    values = torch.softmax(m.bmm(mul, div.mT), -1) @ matmul, m.softmax(mul @ div.mT) @ matmul
    return *values, torch.softmax(mul @ m.transpose * 0.5, -1) @ m.add, softmax @ div


@case(
    "inputs called mul and div",
    graph(..., *[FOUR] * 3),
    did=[attention_made(1, "A name says nothing: look at what a node calls.")],
)
def named(m: Any, mul: fx.Proxy, div: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    return torch.softmax(mul @ div.mT, -1) @ v


@case("operands of products and masks by name", graph(..., *[FOUR] * 3, bias=(4, 4), hidden=UPPER))
def by_name(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    return (
        torch.matmul(torch.softmax(q @ k.mT, -1), other=v),
        torch.softmax(torch.matmul(q, other=k.mT), -1) @ v,
        torch.softmax(q @ torch.transpose(k, dim0=-1, dim1=-2), -1) @ v,
        torch.softmax(torch.mul(q @ k.mT, other=0.5), -1) @ v,
        torch.softmax(torch.add(q @ k.mT, other=m.bias), -1) @ v,
        torch.softmax((q @ k.mT).masked_fill(mask=m.hidden, value=-INF), -1) @ v,
        torch.softmax(torch.where(condition=m.hidden, input=q @ k.mT, other=m.bias), -1) @ v,
        torch.softmax(q @ k.mT / 0.0, -1) @ v,
    )


@case(
    "a mask for each head",
    graph(..., *[FOUR] * 3, bias=FOUR),
    did=[attention_made(1, "A mask may have all dimensions of the scores.")],
)
def for_each_head(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    return torch.softmax(q @ k.mT + m.bias, -1) @ v


@case(
    "one of two reads what is written",
    graph(..., (2, 4, 4)),
    did=[attention_made(1, "The second reads nothing that is written.")],
    spared=[attention_at_most(1, "The program writes into the scaled q of the first.")],
)
def one_of_two(m: Any, x: fx.Proxy) -> tuple:
    q = x * 0.5
    q.add_(1)
    return torch.softmax(q @ x.mT, -1) @ x, torch.softmax(torch.tanh(x) @ torch.exp(x).mT, -1) @ torch.exp(x)


@case(
    "a result is written before the next attention ends",
    graph(..., (2, 4, 4)),
    did=[attention_made(1, "The first reads nothing that is written.")],
    spared=[attention_at_most(1, "The program adds 1 to what the second reads, before its last product.")],
)
def written_result(m: Any, x: fx.Proxy) -> tuple:
    y = torch.softmax(x @ x.mT, -1) @ x
    p = torch.softmax(y @ x.mT, -1)
    y.add_(1)
    return p @ x, y


@case(
    "every step a method",
    graph(..., *[(2, 4, 4)] * 3, bias=(4, 4)),
    did=[attention_made(1, "A method is the same op as the function.")],
)
def methods(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    return q.bmm(k.transpose(1, 2)).mul(0.5).add(m.bias).softmax(-1).bmm(v)


@case(
    "two dimensions, and five",
    graph(..., (4, 3), (2, 2, 2, 4, 3)),
    spared=[attention_at_most(0, "q, k and v are of three or four dimensions.")],
)
def ranks(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return torch.softmax(x @ x.mT * 0.5, -1) @ x, torch.softmax(y @ y.mT * 0.5, -1) @ y


@case(
    "dropouts that draw by default",
    graph(..., FOUR, FOUR, FOUR, training=True, drop=lambda: nn.Dropout(0.5)),
    spared=[attention_at_most(0, "F.dropout draws unless it is told otherwise, a module in training, too.")],
)
def by_default(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    return F.dropout(torch.softmax(q @ k.mT, -1), 0.25) @ v, m.drop(torch.softmax(k @ q.mT, -1)) @ v


@case(
    "scores that others read before the scale or the mask",
    graph(..., FOUR, FOUR, FOUR, hidden=UPPER),
    spared=[attention_at_most(0, "The scores have another reader, so they must be kept.")],
)
def scores_read(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    s, t = q @ k.mT, q @ v.mT
    ends = torch.softmax(s * 0.5, -1) @ v, torch.softmax(t.masked_fill(m.hidden, -INF), -1) @ k
    return *ends, s.sum(-1), t.amax(-1)


@case(
    "a boolean mask that is added",
    graph(..., FOUR, FOUR, FOUR, hidden=UPPER),
    spared=[attention_at_most(0, "A boolean tensor that is added adds 0 and 1.")],
)
def bool_added(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    return torch.softmax(m.hidden + q @ k.mT, -1) @ v


@case(
    "plus infinity, and divisions that round",
    graph(..., FOUR, FOUR, FOUR, hidden=UPPER),
    spared=[attention_at_most(0, "A mask hides with -inf, and // rounds.")],
)
def rounds(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    filled = torch.softmax((q @ k.mT).masked_fill(m.hidden, INF), -1) @ v
    return filled, torch.softmax(q @ k.mT // 0.5, -1) @ v, torch.softmax(torch.floor_divide(q @ k.mT, 2), -1) @ v


@case(
    "values of other leading dimensions",
    graph(..., FOUR, FOUR, (1, 2, 4, 4)),
    spared=[attention_at_most(0, "q, k and v have the same leading dimensions; here v is broadcast.")],
)
def v_broadcast(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    return torch.softmax(q @ k.mT, -1) @ v


@case(
    "an added mask of half precision",
    graph(..., FOUR, FOUR, FOUR, torch.zeros(4, 4, dtype=torch.float16)),
    spared=[attention_at_most(0, "A mask that is added has the dtype of q.")],
)
def half_mask(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy, mask: fx.Proxy) -> fx.Proxy:
    return torch.softmax(q @ k.mT + mask, -1) @ v


@case(
    "softmax without a dimension",
    graph(..., FOUR, (2, 4, 4), softmax=nn.Softmax),
    spared=[attention_at_most(0, "Without a dimension, softmax takes the first or the second, not the last.")],
)
def no_dimension(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return F.softmax(x @ x.mT) @ x, m.softmax(y @ y.mT) @ y


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    tokens, others, width, values = rng.sample((3, 4, 5, 6), 4)
    allowed = torch.ones(tokens, others, dtype=torch.bool).tril(1)
    parts = {
        "mask": torch.zeros(tokens, others).masked_fill(~allowed, -INF),
        "bias": (1, others),
        "hidden": ~allowed,
        "seen": allowed,
        "softmax": lambda: nn.Softmax(-1),
        "drop": lambda: nn.Dropout(0.3),
    }

    def drawn(name: str, plan: list[tuple]) -> Case:
        rank = rng.choice((3, 4))

        def body(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
            ends = []
            for scores, keys, (before, behind), mask, softmax, dropout, product in plan:
                s = mask(m, behind(scores(before(q), keys(k, rank))))
                ends.append(product(dropout(m, softmax(m, s, rank)), v))
            return tuple(ends)

        batch = (2, 3)[: rank - 2]
        build = graph(body, (*batch, tokens, width), (*batch, others, width), (*batch, others, values), **parts)
        return case(
            name,
            build,
            did=[attention_made(len(plan), "Every step of the formula has several spellings.")],
            cost=[calls(few_calls("day04.attention", build), "One node for each attention.")],
        )

    def written_operand(which: int, filled: bool) -> Case:
        """Write into one operand alone, after the scores have been masked."""

        def body(m: Any, a: fx.Proxy, b: fx.Proxy, c: fx.Proxy, d: fx.Proxy) -> fx.Proxy:
            q, k, v, mask = values = [torch.abs(x) for x in (a, b, c, d)]
            mask = values[3] = mask > 0.5 if filled else mask
            s = q @ k.mT * 0.5
            s = s.masked_fill(mask, -INF) if filled else s + mask
            p = torch.softmax(s, -1)
            values[which].zero_()
            return p @ v

        name = ("q", "k", "v", "the mask")[which] + (" of masked_fill" if filled else "")
        return case(
            f"only {name} is overwritten",
            graph(body, *[(2, 4, 4)] * 4),
            spared=[attention_at_most(0, f"The program writes into {name}, and the op would read it at the end.")],
        )

    return [
        drawn("every spelling", EVERY),
        *(drawn(f"drawn, number {i + 1}", [tuple(map(rng.choice, TABLES)) for _ in range(3)]) for i in range(4)),
        *map(of_zoo, ("gpt", "vit")),
        twice,
        dark,
        switched_off,
        drawing,
        shapes,
        reversed_keys,
        read_twice,
        constants,
        written_program,
        *(written_operand(which, False) for which in range(4)),
        written_operand(3, True),
        names,
        named,
        by_name,
        for_each_head,
        one_of_two,
        written_result,
        methods,
        ranks,
        by_default,
        scores_read,
        bool_added,
        rounds,
        v_broadcast,
        *written_graphs(rng),
        half_mask,
        no_dimension,
    ]


EQUIVALENT = {
    ("q, k, v, mask", "q, v, mask"): "the transposition of k is one of `inner`, and shares its memory",
    ("list(gm.graph.nodes)", "gm.graph.nodes"): "torch.fx allows to erase during a walk",
    ("gm.recompile()", "pass"): "the judge compiles the graph anew",
    ("mask is None", "False"): "None is the op's default",
    ("[scores] if mask else []", "[scores] if True else []"): "without a mask the scores are one of `nodes`",
    ("product is not node", "True"): "a node that is in the list twice is erased once",
    ("q is not left", "True"): "the op reads q, so it is not erased",
}

# ---------------------------------------------------------------------------------------------------- answers

PRODUCTS = ("matmul", "bmm")


def _is(node, *names):
    return isinstance(node, fx.Node) and canonical(node) in names


def _shape(node):
    meta = node.meta.get("tensor_meta") if isinstance(node, fx.Node) else None
    return tuple(getattr(meta, "shape", ()))


def _dtype(node):
    return getattr(node.meta.get("tensor_meta"), "dtype", None) if isinstance(node, fx.Node) else None


def _operands(node, *names):
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


class _Walk:
    """Up from the product with v, by the names of the operations: what was found, and the nodes that it replaces."""

    def __init__(self, gm):
        self.gm, self.memory = gm, written(gm.graph)

    def take(self, node):
        """Note a node between the scores and the end; False where it must stay."""
        self.own.append(node)
        reader = next(iter(node.users))
        return len(node.users) == 1 and sum(a is node for a in (*reader.args, *reader.kwargs.values())) == 1

    def find(self, node):
        """Return (q, k, v, mask, turn, scale) or None."""
        if not _is(node, *PRODUCTS) or node.kwargs:
            return None
        self.own = []
        at, v = node.args
        while _is(at, "dropout") and not effects(at) and self.take(at):
            at = at.args[0] if at.args else at.kwargs["input"]
        at = self.softmax(at)
        if at is None:
            return None
        start = list(self.own)
        for scores, mask, turn in self.masks(at):
            self.own = list(start)
            if mask is not None and not self.take(at):
                continue
            product = self.scores(scores)
            if product and self.fits(*product[:2], v, mask, at):
                q, k, scale = product
                return None if self.memory & {q, k, v, mask, *self.own} else (q, k, v, mask, turn, scale)
        return None

    def softmax(self, at):
        if not _is(at, "softmax") or not self.take(at):
            return None
        if at.op == "call_module":
            options = {"dim": self.gm.get_submodule(at.target).dim}
        else:
            options = _operands(at, "input", "dim")
        last = options.get("dim") in (-1, len(_shape(at)) - 1) and len(at.args) <= 2
        return _operands(at, "input")["input"] if last and options.get("dtype") is None else None

    def masks(self, at):
        if _is(at, "add") and not at.kwargs:
            a, b = at.args
            yield from ((s, m, False) for s, m in ((a, b), (b, a)) if _dtype(m) == _dtype(s))
        if _is(at, "masked_fill"):
            operands = _operands(at, "input", "mask", "value")
            if operands["value"] == -math.inf:
                yield operands["input"], operands["mask"], True
        if _is(at, "where") and len(at.args) == 3:
            mask, a, b = at.args
            if b == -math.inf:
                yield a, mask, False
            if a == -math.inf:
                yield b, mask, True
        yield at, None, False

    def times(self, node):
        if _is(node, "mul", "div") and not node.kwargs:
            a, b = node.args
            if isinstance(b, int | float) and (b or _is(node, "mul")):
                return a, float(b) if _is(node, "mul") else 1 / b
            if isinstance(a, int | float) and _is(node, "mul"):
                return b, float(a)
        return node, 1.0

    def scores(self, at):
        """Return (q, k, scale)."""
        product, scale = self.times(at)
        if product is not at and not self.take(at):
            return None
        if not _is(product, *PRODUCTS) or product.kwargs or not self.take(product):
            return None
        left, right = product.args
        k = self.keys(right)
        if k is None:
            return None
        q, factor = self.times(left)
        self.own += [right] if q is left else [right, left]
        return q, k, scale * factor

    def keys(self, node):
        rank = len(_shape(node))
        order = list(range(rank))
        if _is(node, "getattr") and node.args[1] == "mT":
            order[-2:] = order[:-3:-1]
        elif _is(node, "transpose") and not node.kwargs:
            a, b = node.args[1:]
            order[a], order[b] = order[b], order[a]
        elif _is(node, "permute") and not node.kwargs:
            dims = node.args[1] if isinstance(node.args[1], tuple | list) else node.args[1:]
            order = [d % rank for d in dims]
        return node.args[0] if rank and order == [*range(rank - 2), rank - 1, rank - 2] else None

    def fits(self, q, k, v, mask, scores):
        if len(_shape(q)) not in (3, 4) or not _dtype(q).is_floating_point:
            return False
        if not _dtype(q) == _dtype(k) == _dtype(v):
            return False
        if not _shape(q)[:-2] == _shape(k)[:-2] == _shape(v)[:-2]:
            return False
        rows = (*_shape(q)[:-1], _shape(k)[-2])
        return mask is None or (_shape(scores) == rows and 2 <= len(_shape(mask)) <= len(rows))

    def replace(self, node, new):
        new.meta = dict(node.meta)
        if node in self.memory:
            self.memory.add(new)
        node.replace_all_uses_with(new)
        for dead in (node, *self.own):
            if not dead.users:
                self.gm.graph.erase_node(dead)


@right("turns masks with ~, and notes what it replaces while it walks")
def by_walk(gm):
    walk = _Walk(gm)
    for node in list(gm.graph.nodes):
        match = walk.find(node)
        if match is None:
            continue
        q, k, v, mask, turn, scale = match
        with gm.graph.inserting_before(node):
            if turn:
                mask = gm.graph.call_function(operator.invert, (mask,))
            options = {"attn_mask": mask, "scale": scale}
            new = gm.graph.call_function(F.scaled_dot_product_attention, (q, k, v), options)
        walk.replace(node, new)
    gm.recompile()
    return gm


@right("goes on from each softmax down to the product with v, and asks the walk from there")
def from_the_softmax(gm):
    walk = _Walk(gm)
    for softmax in [node for node in gm.graph.nodes if _is(node, "softmax")]:
        end = softmax
        while len(end.users) == 1 and (end is softmax or _is(end, "dropout")):
            (end,) = end.users
        match = walk.find(end)
        if match is None or softmax not in walk.own:
            continue
        q, k, v, mask, turn, scale = match
        with gm.graph.inserting_before(end):
            mask = gm.graph.call_method("logical_not", (mask,)) if turn else mask
            new = gm.graph.call_function(F.scaled_dot_product_attention, (q, k, v, mask, 0.0, False), {"scale": scale})
        walk.replace(end, new)
    gm.recompile()
    return gm


@wrong("same", "says no scale where the program has none: the op then divides by the root of the width")
def default_scale(gm):
    for node in by_walk(gm).graph.nodes:
        if node.target is F.scaled_dot_product_attention and node.kwargs["scale"] == 1.0:
            node.kwargs = {"attn_mask": node.kwargs["attn_mask"]}
    gm.recompile()
    return gm


mask_upside_down = edited("same", "passes the mask of masked_fill on as it is")(
    ("(scores, mask, True)", "(scores, mask, False)")
)
drops_dropout = edited("same", "takes every dropout away, also in training")(("... or effects(node)", "..."))
any_readers = edited(
    "spared", "does not ask who else reads scores and probabilities: they are computed, and the op beside them"
)(
    (
        "class Scores(NamedTuple): ...",
        "class Scores(NamedTuple): ...\nread_once = lambda node: isinstance(node, fx.Node)",
    )
)
low_is_infinite = edited("spared", "takes any very negative number for minus infinity")(
    ("(value == -math.inf)", "(value < -1000)")
)
any_infinity = edited("spared", "takes plus infinity for minus infinity, too")(
    ("(value == -math.inf)", "math.isinf(value)")
)
floors = edited("same", "divides by // like by /")(
    ('forms("div", operator.truediv)', '(*forms("div", operator.truediv), *forms("floor_divide", operator.floordiv))')
)
any_values = edited("spared", "compares the leading dimensions of q and k, not those of v")(
    ("shape_of(q)[:-2] == shape_of(k)[:-2] == shape_of(v)[:-2]", "shape_of(q)[:-2] == shape_of(k)[:-2]")
)
any_transposition = edited("same", "takes any transposition of k for the right one, and a softmax over any dimension")(
    ("... if other == ... else None", "...")
)
reverses_keys = edited("same", "takes x.T for x.mT: of more than two dimensions it reverses all")(
    ('node.args[1] == "mT"', 'node.args[1] in ("T", "mT")')
)
any_mask = edited(
    "same", "takes masks of any shape, where the op wants at least two dimensions; or any order of the last two"
)(("shape_of(scores) == rows and (mask is None or 2 <= len(shape_of(mask)) <= len(rows))", "True"))
ignores_writes = edited("same", "does not ask what is written in between")(
    ("memory = written(gm.graph)", "memory = set()")
)
operators_alone = edited("did", "knows an addition of scores and mask as + and torch.add, but not as a method")(
    ('forms("add", operator.add)', "(torch.add, operator.add)")
)
asks_once = edited("same", "asks once what is written, and does not look at the new nodes")(
    ("memory = written(gm.graph)", "memory = start"),
    ("for node in list(gm.graph.nodes): ...", "start = written(gm.graph)\nfor node in list(gm.graph.nodes):\n    ..."),
)
any_rank = edited("spared", "takes q, k and v of any rank: matrices, or five dimensions")(
    ("len(shape_of(q)) not in (3, 4)", "len(shape_of(q)) < 2")
)
query_stays_scaled = edited("cost", "leaves the scaling of q in the graph, one more pass over it")(
    ("q, more = times_number(left)", "q, more = left, 1.0")
)
adds_booleans = edited(
    "same", "hands an added boolean mask on: the program adds 0 and 1, the op looks where it is True"
)(("dtype_of(mask) == dtype_of(scores)", "dtype_of(mask) in (dtype_of(scores), torch.bool)"))
any_float = edited("same", "adds a mask of any floating-point dtype: the op wants that of q")(
    ("dtype_of(mask) == dtype_of(scores)", "dtype_of(mask).is_floating_point")
)
no_dimension_is_last = edited("same", "takes softmax without a dimension for one over the last")(
    (
        'arguments.get("dim") if plain else None',
        '(-1 if arguments.get("dim") is None else arguments["dim"]) if plain else None',
    )
)
one_side = edited("did", "scores on the left, numbers and masks on the right")(
    ("((a, b), (b, a))", "((a, b),)"), ("(node.args, node.args[::-1])", "(node.args,)")
)
dropout_in_the_way = edited("did", "gives up at every dropout, also at one that does nothing")(
    ("is_dropout(at)", "False")
)
returns_nothing = edited("valid", "forgets to return the graph")(("return gm", "pass"))
