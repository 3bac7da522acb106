"""The laws of days 3, 4, 7 and 9, and what is known of each: `decide` computes it, `table` writes it as Markdown.

    python -m passlab.proving.laws          # writes docs/laws.md anew

A law is two programs of the same inputs. For each type of its inputs it holds always, or under the weakest of the
stated preconditions, or not: then an input shows it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.equivalence import Proof
from passlab.proving.proof import prove

#: Types for which laws of numbers are decided.
TYPES = {"float32": torch.float32, "float16": torch.float16, "int32": torch.int32, "int64": torch.int64}
_MATRIX = ((4, 4), (4, 4), (4, 4))


class Law(NamedTuple):
    """`left` and `right`: programs. `days`: where it is. `shapes`: of its inputs, (1,) for a law of numbers.

    `ifs`: names of preconditions that it is stated with.
    """

    text: str
    left: Callable
    right: Callable
    days: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ((1,),)
    ifs: tuple[str, ...] = ()

    @property
    def of_numbers(self) -> bool:
        return all(shape == (1,) for shape in self.shapes)


#: Name → what an input must satisfy.
CONDITIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "is not −0": lambda x: (x != 0) | ~torch.signbit(x),
    "is not NaN": lambda x: x == x,
    "is not ∞": lambda x: ~(x == math.inf),
    "is not 0": lambda x: x != 0,
    "is neither ∞ nor −0": lambda x: ~(x == math.inf) & ((x != 0) | ~torch.signbit(x)),
    "is finite": lambda x: abs(x) < math.inf,
    "is finite and not 0": lambda x: (abs(x) < math.inf) & (x != 0),
    "is finite and its sign is +": lambda x: (abs(x) < math.inf) & ~torch.signbit(x),
    "> 0": lambda x: x > 0,
}
_ZERO = ("is not −0", "is not NaN", "is not 0", "is finite", "is finite and not 0", "is finite and its sign is +")
_TWO, _THREE = ((1,), (1,)), ((1,), (1,), (1,))


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, -1) @ v


def _layer_norm(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


def _batch_norm(x: Tensor, mean: Tensor, var: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return (x - mean) / torch.sqrt(var * var + 1e-5) * scale + shift


def _folded(x: Tensor, mean: Tensor, var: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    factor = scale / torch.sqrt(var * var + 1e-5)
    return x * factor + (shift - mean * factor)


#: Every law of the four days that is one of values; the table in docs/laws.md has a row for each.
LAWS = (
    Law("x + 0 = x", lambda x: x + 0, lambda x: x, (3, 9), ifs=_ZERO),
    Law("x + 0.0 = x", lambda x: x + 0.0, lambda x: x, (3, 9), ifs=_ZERO),
    Law("x + (−0.0) = x", lambda x: x + -0.0, lambda x: x, (9,)),
    Law("x − 0 = x", lambda x: x - 0, lambda x: x, (3,)),
    Law("x · 1 = x", lambda x: x * 1, lambda x: x, (3, 9)),
    Law("x · 1.0 = x", lambda x: x * 1.0, lambda x: x, (3,)),
    Law("x / 1 = x", lambda x: x / 1, lambda x: x, (3,)),
    Law("x ** 1 = x", lambda x: x**1, lambda x: x, (3,)),
    Law("x ** 2 = x · x", lambda x: x**2, lambda x: x * x, (3,)),
    Law("x · 0 = 0", lambda x: x * 0, torch.zeros_like, (3, 9), ifs=_ZERO),
    Law("x − x = 0", lambda x: x - x, torch.zeros_like, (3,), ifs=_ZERO),
    Law("x / x = 1", lambda x: x / x, torch.ones_like, (3,), ifs=_ZERO),
    Law("exp(log x) = x", lambda x: x.log().exp(), lambda x: x, (3,), ifs=("> 0",)),
    Law("log(exp x) = x", lambda x: x.exp().log(), lambda x: x, (3,), ifs=("is finite",)),
    Law("√(x · x) = |x|", lambda x: torch.sqrt(x * x), abs, (3,), ifs=_ZERO),
    Law("−(−x) = x", lambda x: x.neg().neg(), lambda x: x, (3,)),
    Law("x + (−y) = x − y", lambda x, y: x + (-y), lambda x, y: x - y, (3,), _TWO),
    Law("x − y = x + (−1) · y", lambda x, y: x - y, lambda x, y: x + -1 * y, (9,), _TWO),
    Law("|−x| = |x|", lambda x: abs(-x), abs, (3,)),
    Law("||x|| = |x|", lambda x: abs(abs(x)), abs, (3,)),
    Law("relu(relu x) = relu x", lambda x: x.relu().relu(), torch.relu, (3,)),
    Law(
        "relu x = min(max(x, 0), largest)",
        torch.relu,
        lambda x: x.clamp(0, _most(x)),
        (7,),
        ifs=("is not ∞", "is not −0", "is neither ∞ nor −0"),
    ),
    Law("x / 4 = x · 0.25", lambda x: x / 4, lambda x: x * 0.25, (3, 7)),
    Law("x / 3 = x · (1 / 3)", lambda x: x / 3, lambda x: x * (1 / 3), (3, 7), ifs=("is finite",)),
    Law("x · 2 = x + x", lambda x: x * 2, lambda x: x + x, (3, 9)),
    Law("x · 2 = x << 1", lambda x: x * 2, lambda x: x << 1, (9,)),
    Law("(x · 2) · 4 = x · 8", lambda x: x * 2 * 4, lambda x: x * 8, (3, 9)),
    Law("(x · 3) · 5 = x · 15", lambda x: x * 3 * 5, lambda x: x * 15, (3, 9), ifs=("is finite",)),
    Law("(x + 1) + 2 = x + 3", lambda x: x + 1 + 2, lambda x: x + 3, (9,), ifs=("is finite",)),
    Law("x + y = y + x", lambda x, y: x + y, lambda x, y: y + x, (3, 9), _TWO),
    Law("x · y = y · x", lambda x, y: x * y, lambda x, y: y * x, (3, 9), _TWO),
    Law("(x + y) + z = x + (y + z)", lambda x, y, z: x + y + z, lambda x, y, z: x + (y + z), (9,), _THREE),
    Law("(x · y) · z = x · (y · z)", lambda x, y, z: x * y * z, lambda x, y, z: x * (y * z), (9,), _THREE),
    Law("x · y + x · z = x · (y + z)", lambda x, y, z: x * y + x * z, lambda x, y, z: x * (y + z), (3,), _THREE),
    Law("where(c, x, x) = x", lambda x, y: torch.where(y > 0, x, x), lambda x, y: x, (3,), _TWO),
    Law("exp x · exp y = exp(x + y)", lambda x, y: x.exp() * y.exp(), lambda x, y: (x + y).exp(), (7,), _TWO),
    Law(
        "GELU: x / 2 · (1 + erf(x / √2))",
        lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        lambda x: F.gelu(x),
        (3, 7),
        ((64,),),
    ),
    Law(
        "GELU with tanh = GELU with erf",
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.gelu(x),
        (3,),
        ((64,),),
    ),
    Law("(xᵀ)ᵀ = x", lambda x: x.t().t(), lambda x: x, (3,), ((3, 4),)),
    Law("reshape twice = reshape", lambda x: x.reshape(6, 2).reshape(4, 3), lambda x: x.reshape(4, 3), (3,), ((3, 4),)),
    Law("(x · y)ᵀ = yᵀ · xᵀ, of matrices", lambda x, y: (x @ y).t(), lambda x, y: y.t() @ x.t(), (9,), _MATRIX[:2]),
    Law(
        "x · wᵀ + b = linear(x, w, b)",
        lambda x, w, b: x @ w.t() + b,
        lambda x, w, b: F.linear(x, w, b),
        (4, 7),
        ((4, 4), (4, 4), (4,)),
    ),
    Law(
        "2 · A · B + C / 2 = addmm(C, A, B, β = ½, α = 2)",
        lambda a, b, c: 2.0 * (a @ b) + c * 0.5,
        lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2.0),
        (4,),
        _MATRIX,
    ),
    Law(
        "A · B + 0 · C = addmm(C, A, B, β = 0)",
        lambda a, b, c: a @ b + 0 * c,
        lambda a, b, c: torch.addmm(c, a, b, beta=0),
        (4,),
        _MATRIX,
    ),
    Law(
        "softmax(q · kᵀ / √d) · v = attention(q, k, v)",
        _attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        (4,),
        ((1, 1, 4, 4),) * 3,
    ),
    Law("(x − mean) / √(var + ε) = layer_norm(x)", _layer_norm, lambda x: F.layer_norm(x, (8,)), (4,), ((4, 8),)),
    Law("batch norm = x · s + (β − μ · s)", _batch_norm, _folded, (4, 7), ((4, 8), *((8,),) * 4)),
    Law(
        "conv(x, w) · s = conv(x, w · s)",
        lambda x, w, s: F.conv2d(x, w) * s[:, None, None],
        lambda x, w, s: F.conv2d(x, w * s[:, None, None, None]),
        (4, 7),
        ((1, 2, 5, 5), (3, 2, 3, 3), (3,)),
    ),
    Law(
        "matrix · [x, y] = [matrix · x, matrix · y]",
        lambda m, x, y: m @ torch.cat([x, y], 1),
        lambda m, x, y: torch.cat([m @ x, m @ y], 1),
        (4,),
        _MATRIX,
    ),
)


def _most(x: Tensor) -> float:
    return torch.finfo(x.dtype).max if x.dtype.is_floating_point else torch.iinfo(x.dtype).max


class Decision(NamedTuple):
    """What is known of a law for a type. `condition`: the weakest stated one under which it is proved, if any.

    `proof`: without it; None where the law cannot be applied. `seconds`: of the longest proof.
    """

    proof: Proof | None
    condition: str = ""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """One phrase for the table."""
        if self.proof is None:
            return "—"
        shown = self.proof.place.split(": before")[0].removeprefix("For ")
        example = f": {shown}" if "=" in shown else ""
        if self.proof.verdict == "proved":
            return "always"
        if self.condition:
            return f"if {self.condition}; not{example}"
        if self.proof.reals:
            differ = "; floats differ" if self.proof.counterexample else ""
            return f"over the reals; not{example}" if example else f"over the reals{differ}"
        if self.proof.verdict == "refuted":
            return f"no{example}"
        return f"tested; not{example}" if example else "tested"


def decide(law: Law, dtype: torch.dtype, budget: float = 2.0) -> Decision:
    """Return what is known of a law for inputs of a type. budget: seconds for the solver, for each proof."""
    gen = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(shape, generator=gen).mul(3).to(dtype) for shape in law.shapes)
    try:
        before, after = law.left(*inputs), law.right(*inputs)
    except (RuntimeError, NotImplementedError):
        return Decision(None)
    if before.dtype != after.dtype:
        return Decision(None)
    left, right = (law.left, law.right) if law.of_numbers else map(fx.symbolic_trace, (law.left, law.right))
    proof = prove(left, right, inputs, budget=budget, tests=not law.of_numbers)
    seconds = proof.seconds
    if proof.verdict == "proved" or not dtype.is_floating_point:
        return Decision(proof, seconds=seconds)
    for name in weakest_first(law.ifs):
        under = prove(law.left, law.right, inputs, budget=budget, tests=False, when=_all_inputs(CONDITIONS[name]))
        seconds = max(seconds, under.seconds)
        if under.verdict == "proved":
            return Decision(proof, f"{'x' if len(inputs) == 1 else 'each input'} {name}", seconds)
    return Decision(proof, seconds=seconds)


def _all_inputs(condition: Callable[[Tensor], Tensor]) -> Callable[..., list[Tensor]]:
    return lambda *inputs: [condition(x) for x in inputs]


def weakest_first(names: Sequence[str]) -> list[str]:
    """Return preconditions by how many of the 65,536 numbers of float16 satisfy them, most first."""
    return sorted(names, key=_satisfied, reverse=True)


@cache
def _satisfied(name: str) -> int:
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    return int(CONDITIONS[name](every).sum())


def table(laws: Sequence[Law] = LAWS, budget: float = 2.0) -> str:
    """Return a table of laws in Markdown, with a column for each type."""
    lines = [f"| law | days | {' | '.join(TYPES)} |", f"|---|---|{'---|' * len(TYPES)}"]
    return "\n".join([*lines, *(row(law, budget) for law in laws)])


def row(law: Law, budget: float = 2.0) -> str:
    """Return the row of a law; one of tensors is decided for float32 only."""
    types = [dtype for dtype in TYPES.values() if law.of_numbers or dtype == torch.float32]
    cells = [decide(law, dtype, budget).text for dtype in types]
    cells += [""] * (len(TYPES) - len(cells))
    text = law.text.replace("|", "\\|").replace("*", "\\*")
    return f"| {text} | {', '.join(map(str, law.days))} | {' | '.join(cells)} |"


# ------------------------------------------------------------------------------------------------- laws that are terms

_OF_TORCH = "matmul relu exp log sqrt tanh abs maximum minimum where"
#: Name of a label → the function that it stands for, in terms such as ("add", "?x", 1.0).
FUNCTIONS: dict[str, Callable] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "pow", "neg")},
    **{name: getattr(torch, name) for name in _OF_TORCH.split()},
    "transpose": torch.t,
}


def program(term: Any, names: Sequence[str]) -> fx.GraphModule:
    """Return the program of a term, whose inputs have these names ("?x" is the input x).

    Raise ValueError for a variable without a name among them, and for a label that stands for no function.
    """
    graph = fx.Graph()
    inputs = {name: graph.placeholder(name.lstrip("?")) for name in names}

    def value(part: Any) -> Any:
        if isinstance(part, str):
            if part not in inputs:
                raise ValueError(f"The variable {part} is unbound: the inputs are {', '.join(names)}.")
            return inputs[part]
        if not isinstance(part, tuple):
            return part
        if len(part) == 1 and getattr(part[0], "kind", "") == "number":  # as passlab.egraph.programs writes numbers
            return float(part[0].name) if not part[0].name.lstrip("-").isdigit() else int(part[0].name)
        if part[0] not in FUNCTIONS:
            raise ValueError(f"A term applies {part[0]!r}, which is none of {', '.join(FUNCTIONS)}.")
        return graph.call_function(FUNCTIONS[part[0]], tuple(map(value, part[1:])))

    graph.output(value(term))
    return fx.GraphModule({}, graph)


def inputs_of(term: Any) -> list[str]:
    """Return the variables of a term, in the order in which they occur."""
    if isinstance(term, str):
        return [term]
    parts = [inputs_of(part) for part in term[1:]] if isinstance(term, tuple) else []
    return list(dict.fromkeys(name for part in parts for name in part))


def prove_terms(
    left: Any, right: Any, dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (1,), **options: Any
) -> Proof:
    """Return the proof of a law whose sides are terms. See `program` and `prove`, which takes `options`.

    Raise ValueError where the right side has a variable that the left one does not bind.
    """
    names = inputs_of(left)
    gen = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(shape, generator=gen).mul(3).to(dtype) for _ in names)
    return prove(program(left, names), program(right, names), inputs, **options)


_PAGE = """# Laws, and what is known of them

Computed by `python -m passlab.proving.laws`; do not edit. The laws are those of days 3, 4, 7 and 9. A cell says what
was proved, bit by bit, for all numbers of a type: a NaN equals a NaN, 0.0 is not −0.0, and integers wrap around. A law
with a precondition has the weakest of those that `passlab.proving.laws` states for it. "Over the reals": in a finite
field; of floating point an input is shown for which the bits differ, or none was found. "Tested": neither could be
decided. Laws of tensors are decided for float32; "—": the two sides have different types there, or cannot be computed.

{}
"""


def main() -> None:
    from passlab.course_paths import PROJECT

    (PROJECT / "docs" / "laws.md").write_text(_PAGE.format(table()), encoding="utf-8")


if __name__ == "__main__":
    main()
