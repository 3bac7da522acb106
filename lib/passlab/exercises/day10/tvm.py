"""Day 10, exercise 7: cases and judge of a schedule in terms of TVM's primitives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab import polyhedral
from passlab.exercises.day10._loops import Nest, kernel, other_order, same
from passlab.judge import Case, Finding

PRODUCT = """
for i in range(N):
    for j in range(M):
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
"""
TRANSPOSE = """
for i in range(N):
    for j in range(M):
        B[j, i] = A[i, j] + 1
"""


def tvm_case(name: str, source: str, schedule: str, can: bool = True, run: bool = False, **sizes: int) -> Case:
    """Return a case. `can`: splits and reorders can express the schedule; if not, the answer is None, or that order."""
    about = ("valid", "same", "did") if run else ("valid", "did") if can else ("spared",)

    def build() -> tuple:
        from passlab.relax import tvm

        program = polyhedral.parse(source)
        written = polyhedral.prim_func(program, program.schedule, sizes)
        return tvm.IRModule({"main": written}), schedule

    return Case(name, build, about, expect=Nest(source, schedule, sizes))


def cases() -> list[Case]:
    def product(name: str, times: str, **sizes: Any) -> Case:
        return tvm_case(name, PRODUCT, f"{{ S[i, j, k] -> [{times}] }}", **{"N": 10, "M": 7, "K": 5, **sizes})

    def transpose(name: str, times: str, **sizes: Any) -> Case:
        return tvm_case(name, TRANSPOSE, f"{{ S[i, j] -> [{times}] }}", **{"N": 11, "M": 9, **sizes})

    return [
        product("interchanged", "j, i, k"),
        product("tiles that divide", "floor(i/4), floor(j/3), k, i, j", run=True, N=8, M=6),
        product("tiles that do not divide", "floor(i/4), floor(j/3), k, i, j", run=True),
        transpose("tiles of tiles", "floor(i/8), floor(j/4), floor(i/2), j, i"),
        transpose("numbers in between", "0, floor(j/4), 1, i, 0, j"),
        transpose("what is known already", "floor(i/4), floor(i/8), j, i, floor(i/2)"),
        transpose("from the last row", "-i, j", can=False),
        transpose("skewed", "i + j, i", can=False),
        transpose("tiles that begin elsewhere", "floor((i + 1)/4), j, i", can=False),
        transpose("tiles that cut tiles", "floor(i/4), floor(i/6), j, i", can=False),
        transpose("by remainders", "i mod 4, floor(i/4), j", can=False),
        transpose("tiles that cut tiles, in one loop", "floor(i/4), floor(i/6), i, j", can=False),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    nest: Nest = case.expect
    program = nest.program
    can = case.asks("did")
    if not can and value is None:
        yield Finding("spared", True)
        return
    function, broken = kernel(value, program, nest.sizes)
    if broken and value is None:
        broken = f"Your function returned None, but splits and reorders can express {nest.schedule}."
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    wrong = other_order(function, polyhedral.order(program, nest.schedule, nest.sizes))
    if not can:
        message = f"Return None for {nest.schedule}, or loops in exactly that order. Your order is different. {wrong}"
        yield Finding("spared", not wrong, message if wrong else "")
        return
    yield Finding("did", not wrong, wrong or "")
    if case.asks("same"):
        yield same(function, nest)
