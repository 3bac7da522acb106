"""Write cases over MLIR modules: a program, and the expectations of a pass over it.

    sums = case("a sum and its product", program(text), did=[most("linalg.generic", 1, "Two operations fuse.")])

An expectation is a function (before, after) → None, or a message that says what is wrong. It counts operations, and
asks neither for names nor for an order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from passlab import judge
from passlab.judge import Case, Expect, Finding, pass_judge, plural
from passlab.judge.expect import Expectation, Law
from passlab.mlir.equivalent import equivalent_modules
from passlab.mlir.modules import MLIRError, is_iree, name_of, parse, verify
from passlab.mlir.reader import as_module, functions

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

# ---------------------------------------------------------------------------------------------------- programs


def program(source: str) -> Callable[[], ModuleOp]:
    """Return a function that makes a new module of a text at every call."""
    return lambda: parse(source)


def counts(module: Any) -> Counter[str]:
    """Return how often each operation occurs, in regions too."""
    return Counter(name_of(op) for op in as_module(module).walk())


# ---------------------------------------------------------------------------------------------------- expectations


#: Operations that compute nothing.
_IDLE = ("builtin.module", "func.func", "func.return", "arith.constant", "linalg.yield", "tensor.empty")


def most(op: str, limit: int, why: str) -> Expectation:
    """Expect at most `limit` operations `op`; "" stands for all that compute."""

    def count(after: ModuleOp) -> tuple[int, str]:
        ops = [o for o in as_module(after).walk() if (name_of(o) == op if op else name_of(o) not in _IDLE)]
        last = str(ops[-1]).splitlines()[0] if ops else ""
        return len(ops), f"{plural(len(ops), f'{op} operation'.strip())}, among them `{last:.80}`"

    return judge.at_most(limit, why, count)


def least(op: str, limit: int, why: str) -> Expectation:
    """Expect at least `limit` operations `op`."""
    return judge.at_least(limit, why, plural(limit, f"{op} operation"), lambda after: counts(after)[op])


# ---------------------------------------------------------------------------------------------------- judging


def why_not_valid(before: ModuleOp | None, after: Any) -> str:
    """Return why `after` is not a valid result of a pass over `before`, as a sentence, or "".

    Checked are its type, `verify`, and the signature of each function of `before`, if there is one.
    """
    from xdsl.dialects.builtin import ModuleOp

    if after is None:
        return "The pass returned None. End it with `return module`."
    if not isinstance(after, ModuleOp) and not is_iree(after):
        kind = type(after).__name__
        return f"The pass returned {'an' if kind[:1] in 'AEIOUaeiou' else 'a'} {kind}, not a module of MLIR."
    try:
        after = as_module(after)
        verify(after)
    except MLIRError as error:
        return str(error)
    if before is None:
        return ""
    present = functions(after)
    for name, function in functions(before).items():
        if name not in present:
            return f"The function @{name} is gone."
        old, new = (str(f.properties["function_type"]) for f in (function, present[name]))
        if old != new:
            return f"The type of @{name} was {old} and is {new}: a pass keeps what a function takes and returns."
    return ""


def judge_pass(
    did: Law,
    spared: Law | None = None,
    cost: Law | None = None,
    *,
    signature: bool = True,
    **options: Any,
) -> Callable[[Case, object], Iterator[Finding]]:
    """Return the judge of a pass over modules: valid, then same, then the exercise's own laws.

    A case's first built argument is the module before the pass; its `inputs()` are a tuple, or a list of tuples.
    signature: whether the types of functions must stay (lowering to buffers changes them). Other keyword arguments go
    to `equivalent_modules`.
    """

    def well_formed(before: Any, after: Any) -> Finding:
        broken = why_not_valid(before if signature else None, after)
        return Finding("valid", not broken, broken, before=before)

    def sameness(before: Any, after: Any, case: Case) -> Finding:
        result = equivalent_modules(before, after, case.inputs() if case.inputs else None, **options)
        return Finding("same", bool(result), result.reason, before=before, after=after)

    return pass_judge(
        well_formed, lambda before, value: (as_module(before), as_module(value)), sameness, did, spared, cost
    )


def expecting(**options: Any) -> Callable[[Case, object], Iterator[Finding]]:
    """Return the judge: valid, same, then the expectations. Keyword arguments go to `judge_pass`."""
    return judge.expecting(judge_pass, **options)


def case(
    name: str, build: Callable[[], ModuleOp], *rest: Any, run: bool = True, **expect: Sequence[Expectation]
) -> Case:
    """Return a case about exactly the verdicts with expectations, besides valid and (if it is run) same.

    rest: the answer's further arguments.
    """
    about = ("valid", *(["same"] if run else []), *expect)
    return Case(name, lambda: (build(), *rest), about, expect=Expect(**expect))
