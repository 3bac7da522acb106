"""Day 9, element-wise fusion: visible cases and judge. The measure is what MLIR's own pass leaves of a module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from passlab.exercises.day09._generics import dims, tensor
from passlab.exercises.day09._passes import judge_pass
from passlab.judge import Case, Finding, core, is_or_are, listed, plural
from passlab.judge.expect import Expect
from passlab.mlir import MLIRError, parse, pipeline
from passlab.mlir.cases import counts, least
from passlab.mlir.rewriting import flags

FUSE = "linalg-fuse-elementwise-ops"


@dataclass(frozen=True)
class Node:
    """One linalg.generic: `name`, the `sizes` of its loops, of which the last `sums` are reductions, and so on.

    reads: (value, right side of the map). out: the dimensions of the result, in order; -1 is a side of length 1.
    op: of arith or math, from left to right over all that it reads; "" takes the first as it is, also where a sum would
    add up. init: the value with which the outs begin ("" for tensor.empty).
    """

    name: str
    sizes: tuple[int, ...]
    reads: tuple[tuple[str, str], ...]
    out: tuple[int, ...]
    op: str = "arith.addf"
    sums: int = 0
    init: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(1 if d < 0 else self.sizes[d] for d in self.out)


def program(inputs: Mapping[str, Sequence[int]], nodes: Sequence[Node], returned: Sequence[str]) -> str:
    """Return a module whose main takes the inputs, and computes the nodes one after the other.

    A sum without `init` begins with another input, that of its name and _start.
    """
    inputs = dict(inputs)
    inputs |= {f"{n.name}_start": n.shape for n in nodes if n.sums and n.op and not n.init}
    types = {name: tensor(shape) for name, shape in inputs.items()}
    lines = []
    for node in nodes:
        types[node.name] = kind = tensor(node.shape)
        rank, start = len(node.sizes), node.init or f"{node.name}_start"
        if start not in types:
            start = f"{node.name}_empty"
            lines.append(f"%{start} = tensor.empty() : {kind}")
        maps = [*(to for _, to in node.reads), ", ".join("0" if d < 0 else f"d{d}" for d in node.out)]
        args = [f"%a{i}" for i in range(len(node.reads))]
        used = [*args, "%acc"] if node.sums or node.init else args
        body, last = [], used[0]
        for at, other in enumerate((used[1:] or [""]) if node.op else []):
            # A sum adds up what it reads, whatever its operation is.
            op = "arith.addf" if other == "%acc" else node.op
            body.append(f"%v{at} = {op} {last}{f', {other}' if other else ''} : f32")
            last = f"%v{at}"
        each = [f'"{"reduction" if d >= rank - node.sums else "parallel"}"' for d in range(rank)]
        lines += [
            f"%{node.name} = linalg.generic {{indexing_maps = "
            f"[{', '.join(f'affine_map<({dims(rank)}) -> ({to})>' for to in maps)}], "
            f"iterator_types = [{', '.join(each)}]}} "
            f"ins({', '.join(f'%{n}' for n, _ in node.reads)} : {', '.join(types[n] for n, _ in node.reads)}) "
            f"outs(%{start} : {kind}) {{",
            f"^bb0({', '.join(f'{arg}: f32' for arg in [*args, '%acc'])}):",
            *(f"  {line}" for line in body),
            f"  linalg.yield {last} : f32",
            f"}} -> {kind}",
        ]
    parameters = ", ".join(f"%{name}: {types[name]}" for name in inputs)
    results = ", ".join(types[name] for name in returned)
    inside = "\n".join(f"  {line}" for line in lines)
    values = ", ".join(f"%{name}" for name in returned)
    return f"func.func @main({parameters}) -> ({results}) {{\n{inside}\n  return {values} : {results}\n}}\n"


def fusion_case(name: str, text: str, *about: str, stays: int = 0) -> Case:
    """Return a case; about: did where something has to be fused, spared where something must not be.

    stays: how many linalg.generics stay where a producer reads its outs: MLIR's pass fuses some of these.
    """
    did = [_as_few] if "did" in about else []
    fewest = least("linalg.generic", stays, "A producer that reads its outs may not be fused.") if stays else _not_fewer
    spared = [fewest, _computed_once, _flagged] if "spared" in about else []
    return Case(name, lambda: (parse(text, verified=False),), ("valid", "same", *about), expect=Expect(did, spared))


def _generics(module: ModuleOp) -> list[str]:
    """Return the names of the linalg.generics of a module: those of their results."""
    return [f"%{op.results[0].name_hint}" for op in module.walk() if op.name == "linalg.generic"]


def _fused_by_mlir(module: ModuleOp) -> list[str]:
    """Return the names of the linalg.generics that MLIR's pass leaves: a fused one has that of its last operation."""
    return _generics(pipeline(module, FUSE, trusted=True))


def _left(generics: list[str]) -> str:
    return f"{plural(len(generics), 'linalg.generic')} {is_or_are(len(generics))} left"


def _as_few(before: ModuleOp, after: ModuleOp) -> str | None:
    generics, fewest = _generics(after), _fused_by_mlir(before)
    if len(generics) <= len(fewest):
        return None
    excess = [name for name in generics if name not in fewest] or generics
    return f"{_left(generics)}, but MLIR's pass leaves {len(fewest)}: fuse {listed(excess)}."


def _not_fewer(before: ModuleOp, after: ModuleOp) -> str | None:
    generics, fewest = _generics(after), _fused_by_mlir(before)
    if len(generics) >= len(fewest):
        return None
    fused = [name for name in fewest if name not in generics] or fewest
    reason = f"{fused[0]} may not be fused" if len(fused) == 1 else f"not all of {listed(fused)} may be fused"
    return f"{_left(generics)}, but MLIR's pass leaves {len(fewest)}: {reason}."


def _computed_once(before: ModuleOp, after: ModuleOp) -> str | None:
    old, new = counts(before), counts(after)
    name = next((op for op in sorted(new) if op.startswith(("arith.", "math.")) and new[op] > old[op]), None)
    return name and f"{name} stands in {plural(new[name], 'place')}, before in {old[name]}: a value is computed again."


def _flagged(before: ModuleOp, after: ModuleOp) -> str | None:
    present = {(op.name, flags(op)) for op in after.walk()}
    flagged = [op for op in before.walk() if flags(op) and (op.name, flags(op)) not in present]
    return f"No {flagged[0].name} has the flags {listed(sorted(flags(flagged[0])))} any more." if flagged else None


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`, `same`, `did` and `spared`, as of every pass."""
    try:
        yield from judge_pass(case, value)
    except MLIRError as error:  # without IREE there is no pass of MLIR to compare with
        yield Finding("did", False, str(error))


ROW, BOTH, TURNED = "d0", "d0, d1", "d1, d0"


def cases() -> list[Case]:
    x = {"x": (3, 4), "y": (3, 4)}

    def full(name: str, *reads: tuple[str, str], op: str = "arith.addf", **options: Any) -> Node:
        return Node(name, (3, 4), reads, (0, 1), op, **options)

    a, b = full("a", ("x", BOTH), ("y", BOTH)), full("b", ("a", BOTH), op="math.exp")
    turned = Node("b", (4, 3), (("a", TURNED), ("v", "d0")), (0, 1), "arith.mulf")
    total = Node("b", (3, 4), (("a", BOTH),), (0,), "math.tanh", sums=1)
    rows = Node("a", (3, 4), (("x", BOTH),), (0,), sums=1)
    plain_b = full("b", ("a", BOTH), ("y", BOTH), op="arith.mulf")
    return [
        core(fusion_case("plain: a chain", program(x, [a, b, full("c", ("b", BOTH), op="math.tanh")], ["c"]), "did")),
        core(
            fusion_case(
                "plain: two producers",
                program(x, [a, full("b", ("y", BOTH), op="math.exp"), full("c", ("a", BOTH), ("b", BOTH))], ["c"]),
                "did",
            )
        ),
        core(fusion_case("plain: returned as well", program(x, [a, plain_b], ["a", "b"]), "spared")),
        core(
            fusion_case(
                "plain: two readers",
                program(x, [a, plain_b, full("c", ("a", BOTH), ("x", BOTH))], ["b", "c"]),
                "spared",
            )
        ),
        fusion_case("a chain", program(x, [a, b, full("c", ("b", BOTH), ("x", BOTH))], ["c"]), "did"),
        fusion_case("read through a transpose", program(x | {"v": (4,)}, [a, turned], ["b"]), "did"),
        fusion_case("into a sum", program(x, [a, total], ["b"]), "did"),
        fusion_case(
            "a sum stays", program(x, [rows, Node("b", (3,), (("a", ROW),), (0,), "math.sqrt")], ["b"]), "spared"
        ),
        fusion_case("read by two", program(x, [a, b, full("c", ("a", BOTH), op="math.tanh")], ["b", "c"]), "spared"),
        fusion_case("around it", program(x, [a, b, full("c", ("a", BOTH), ("b", BOTH))], ["c"]), "did"),
    ]
