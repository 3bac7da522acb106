"""Day 6, symbolic shapes: visible cases, and a judge that runs the graph at many sizes and compares."""

from __future__ import annotations

import ast
import copy
import itertools
import operator
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.equivalence.seeds import own_seed
from passlab.fx.cases import graph
from passlab.judge import Case, Finding, as_decorator, shown

#: What a formula may hold, and what it means.
OPERATORS: dict[type, Callable[[int, int], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.GtE: operator.ge, ast.Gt: operator.gt, ast.LtE: operator.le,
    ast.Lt: operator.lt,
}  # fmt: skip
LONGEST = 400
#: The large sizes that are tried, and in how many of the small ones at which the graph runs.
LARGE, STARTS = (17, 24, 30, 100, 257, 1024, 5040, 10_007), 3


class _Bad(ValueError):
    """A formula that cannot be read, with the reason."""


def compiled(text: Any, symbols: set[str], law: bool) -> Callable[[Mapping[str, int]], int]:
    """Return a function from sizes to the value of a formula; law: it is a comparison. Raise _Bad for other text."""
    if type(text) is int and not law:
        return lambda sizes: text
    if not isinstance(text, str) or len(text) > LONGEST:
        raise _Bad(f"{shown(text)} is not a formula: write a number or text of at most {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Bad(f"{text[:60]!r} cannot be read") from None
    if isinstance(tree, ast.Compare) != law:
        raise _Bad(f"{text[:60]!r} is {'not ' if law else ''}a comparison")
    return _part(tree, symbols, text)


def _part(tree: ast.AST, symbols: set[str], text: str) -> Callable[[Mapping[str, int]], int]:
    if isinstance(tree, ast.Constant) and type(tree.value) is int and abs(tree.value) < 10**9:
        return lambda sizes: tree.value
    if isinstance(tree, ast.Name) and tree.id in symbols:
        return lambda sizes: sizes[tree.id]
    if isinstance(tree, ast.Name):
        raise _Bad(f"{text[:60]!r} uses {tree.id}, which is not a size of an input")
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        inner = _part(tree.operand, symbols, text)
        return lambda sizes: -inner(sizes)
    sides = ()
    if isinstance(tree, ast.BinOp):
        sides, op = (tree.left, tree.right), tree.op
    elif isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        sides, op = (tree.left, tree.comparators[0]), tree.ops[0]
    if not sides or type(op) not in OPERATORS:
        raise _Bad(f"{text[:60]!r} holds something else than names, numbers, + - * // % and one comparison")
    one, other = (_part(side, symbols, text) for side in sides)
    act = OPERATORS[type(op)]
    return lambda sizes: act(one(sizes), other(sizes))


def tried(gm: fx.GraphModule, inputs: Mapping[str, list]) -> Iterator[tuple[dict[str, int], dict | None]]:
    """Yield sizes to try, and the shapes that the graph has there (see `ran`): small ones, then large ones.

    Small are all up to 9 for one or two symbols, and a sample of them for more. For large ones, one symbol or all that
    are equal change in sizes at which the graph runs.
    """
    symbols = sorted({size for sizes in inputs.values() for size in sizes if isinstance(size, str)})
    running = []
    for sizes in _small(symbols):
        shapes = ran(gm, inputs, sizes)
        running += [sizes] if shapes is not None else []
        yield sizes, shapes
    rng = random.Random(own_seed(6))
    for sizes in rng.sample(running, min(STARTS, len(running))):
        groups = {(name,) for name in symbols} | {tuple(n for n in symbols if sizes[n] == sizes[m]) for m in symbols}
        for group, large in itertools.product(sorted(groups), LARGE):
            larger = sizes | dict.fromkeys(group, large)
            yield larger, ran(gm, inputs, larger)


def _small(symbols: list[str]) -> Iterator[dict[str, int]]:
    if len(symbols) <= 2:
        every = itertools.product(range(2, 10), repeat=len(symbols))
        yield from (dict(zip(symbols, sizes, strict=True)) for sizes in every)
        return
    rng = random.Random(own_seed(6))
    for _ in range(80):  # many of them with sizes that are equal, or one the double of another
        base = rng.randint(2, 9)
        yield {name: rng.choice((base, base, base, 2 * base, rng.randint(2, 9))) for name in symbols}


class _Shapes(fx.Interpreter):
    """Run a graph without data, and keep the shape of each value."""

    def __init__(self, gm: fx.GraphModule):
        super().__init__(gm)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op != "output":
            self.shapes[n.name] = tuple(result.shape)
        return result


def ran(gm: fx.GraphModule, inputs: Mapping[str, list], sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]] | None:
    """Return node → shape at these sizes, or None where the graph does not run. `gm` is on the meta device."""
    run = _Shapes(gm)
    try:
        run.run(*(torch.empty([sizes.get(s, s) for s in shape], device="meta") for shape in inputs.values()))
    except Exception:
        return None
    return run.shapes


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Same: shapes are right where the graph runs. Did: sizes at which it fails are refused. Spared: others are not."""
    gm, inputs = case.build()
    names = [n.name for n in gm.graph.nodes if n.op != "output"]
    symbols = {size for sizes in inputs.values() for size in sizes if isinstance(size, str)}
    try:
        shapes, laws = _read(value, names, symbols)
    except _Bad as bad:
        yield Finding("valid", False, f"{bad}.", before=gm)
        return
    yield Finding("valid", True)
    meta = copy.deepcopy(gm).to("meta")
    wrong, missed, refused = ("", ""), "", ""
    for sizes, result in tried(meta, inputs):
        where = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        try:
            broken = next((text for text, law in laws.items() if not law(sizes)), None)
        except ZeroDivisionError:
            yield Finding("valid", False, f"At {where} one of your constraints divides by zero.", before=gm)
            return
        if result is None and broken is None:
            missed = missed or f"At {where} the graph does not run, and your constraints allow it."
        if result is None:
            continue
        if broken is not None:
            refused = refused or f"At {where} the graph runs, and your constraint {broken} refuses it."
        for name in names if not wrong[0] else ():
            try:
                answer = tuple(size(sizes) for size in shapes[name])
            except ZeroDivisionError:
                answer = "a division by zero"
            if answer != result[name]:
                wrong = name, f"At {where} the shape of {name} is {result[name]}; your formulas give {answer}."
                break
    yield Finding("same", not wrong[0], wrong[1], before=gm, mark=(wrong[0],) if wrong[0] else ())
    yield Finding("did", not missed, missed, before=gm)
    yield Finding("spared", not refused, refused, before=gm)


def _read(value: Any, names: list[str], symbols: set[str]) -> tuple[dict[str, list[Callable]], dict[str, Callable]]:
    if not isinstance(value, dict) or set(value) != {"shapes", "constraints"}:
        raise _Bad(f'The answer is a dictionary with "shapes" and "constraints"; it is {shown(value)}')
    shapes, laws = value["shapes"], value["constraints"]
    if not isinstance(shapes, dict) or not isinstance(laws, list | tuple) or len(laws) > 200:
        raise _Bad('"shapes" must be a dictionary, and "constraints" a list of at most 200 comparisons')
    formulas = {}
    for name in names:
        if not isinstance(shapes.get(name), list | tuple):
            raise _Bad(f'Node {name} has no shape in "shapes": give it a list of sizes')
        formulas[name] = [compiled(size, symbols, law=False) for size in shapes[name]]
    return formulas, {str(law): compiled(law, symbols, law=True) for law in laws}


@as_decorator
def symbolic(name: str, build: Callable[[], fx.GraphModule], *about: str, **inputs: list) -> Case:
    """Return a case. about: the verdicts that it decides besides valid, same and spared."""
    return Case(name, lambda: (build(), {k: list(v) for k, v in inputs.items()}), ("valid", "same", "spared", *about))


def layer(m: Any, x: Any) -> Any:
    return torch.relu(m.layer(x))


def sums(m: Any, x: Any, y: Any) -> Any:
    return torch.relu(x + y) * m.w


def product(m: Any, x: Any, y: Any) -> Any:
    return (x @ y).transpose(1, 2)


def joined(m: Any, x: Any, y: Any) -> Any:
    return torch.cat([x, y], 1)


def folded(m: Any, x: Any) -> Any:
    return torch.tanh(x.reshape(-1, 4)).flatten(0)


def pooled(m: Any, x: Any) -> Any:
    return F.max_pool2d(x, 3).flatten(1)


def cases() -> list[Case]:
    return [
        symbolic("a layer", graph(layer, (2, 8), layer=lambda: nn.Linear(8, 5)), "did", x=["n", "k"]),
        symbolic("a sum", graph(sums, (2, 3), (2, 3), w=(3,)), "did", x=["n", "k"], y=["m", "k"]),
        symbolic("a product", graph(product, (2, 3, 4), (4, 5)), "did", x=["b", "n", "k"], y=["m", 5]),
        symbolic("joined", graph(joined, (2, 3), (2, 4)), "did", x=["n", "k"], y=["m", "j"]),
        symbolic("folded", graph(folded, (2, 6, 2)), "did", x=["n", "k", 2]),
        symbolic("pooled", graph(pooled, (2, 3, 6, 6)), "did", x=[2, 3, "h", "w"]),
    ]
