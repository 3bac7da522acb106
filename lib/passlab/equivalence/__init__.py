"""Are two programs the same function? Both are run on inputs chosen to tell them apart, and everything is compared.

    result = equivalent(before, after)            # GraphModules, nn.Modules, plain functions, modules of TVM
    assert result, result.reason

Reading order: values (the tolerance, and when a difference is rounding), trials (the inputs), seeds (what they are
drawn from), comparison (the loop), result (its answer). Each IR has an adapter: `passlab.fx.equivalent`,
`passlab.tvm.equivalent`, `passlab.mlir.equivalent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from passlab.equivalence.result import Equivalence, Options, Proof
from passlab.graph.registry import load, part

__all__ = ["Equivalence", "Proof", "equivalent", "shrink"]


@overload
def equivalent(
    before: Callable,
    after: Callable,
    inputs: Any = None,
    *,
    seed: int = ...,
    atol: float | None = ...,
    rtol: float | None = ...,
    modes: Sequence[str] | None = ...,
    devices: Sequence[str] | None = ...,
    trials: Sequence[str] | None = ...,
    thorough: bool = ...,
    aliasing: bool | None = ...,
    prove: Literal[False] = ...,
) -> Equivalence: ...


@overload
def equivalent(
    before: Callable, after: Callable, inputs: Any = None, *, seed: int = ..., prove: Literal[True]
) -> Proof: ...


def equivalent(
    before: Callable,
    after: Callable,
    inputs: Any = None,
    *,
    seed: int = 0,
    atol: float | None = None,
    rtol: float | None = None,
    modes: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
    trials: Sequence[str] | None = None,
    thorough: bool = False,
    aliasing: bool | None = None,
    prove: bool = False,
) -> Equivalence | Proof:
    """Run `before` and `after` on the same inputs and return whether, and where, they differ.

    inputs      a tuple of examples (tensors, numbers, nested lists), a list of such tuples, or None: then
                `before.meta["inputs"]`, else random ones of the shapes noted on its placeholders.
    modes       "eval", "train" or both; default: the mode `before` is in.
    devices     default: those of the example inputs, and the accelerator if there is one.
    trials      names from `passlab.equivalence.trials.TRIALS`; default: its first eight. A trial whose inputs `before`
                itself rejects is skipped, with a note. `thorough` adds the others and three more seeds. By default, two
                graphs whose nodes compute the same are tried on the examples only.
    aliasing    whether an output that shares memory with an input in one program only is a difference. Default: yes
                where a program writes into its inputs; elsewhere a note, since no value shows it.
    atol, rtol  replace the tolerances that follow from dtype and depth.
    prove       ask first for a proof for every input, then for one over the reals, and run tests only where there is
                none. The answer is a `Proof`. Of the other keywords, only `seed` counts then.

    A GraphModule is run from its nodes, even if `recompile()` was forgotten (`before` up to `LARGE` nodes).

    Modules of Relay and Relax, on one side or on both, are built and run by TVM: see `passlab.tvm.equivalent`, also for
    the names of their trials. Their `devices` are TVM's targets; modes and aliasing mean nothing to them.

    Raises ValueError when there are no inputs to try, or when `before` fails on its own example inputs. A failure of
    `after` is a result, not an exception.
    """
    if prove:
        return load("proving").prove(before, after, inputs, seed=seed)
    options = Options(seed, atol, rtol, modes, devices, trials, thorough, aliasing)
    own = (part(side, "equivalent") for side in (before, after))
    torch = load("fx.equivalent")
    # an IR compares its programs with torch's too, and torch knows only its own
    search = next((search for search in own if search not in (None, torch)), torch)
    return search.equivalent(before, after, inputs, options)


def shrink(program: Any, fails: Callable[[Any], bool], budget: int = 500, **options: Any) -> Any:
    """Return the smallest program found for which `fails(program)` is still true; `program` itself is left alone.

        shrink(gm, lambda g: not equivalent(g, my_pass(copy.deepcopy(g))))

    Where `fails` raises, the program counts as not failing. At most `budget` calls. options depend on the IR: see
    `passlab.fx.shrink` and `passlab.tvm.shrink`. Raises ValueError when `fails(program)` is false.
    """
    search = part(program, "shrink", "fx") or load("fx.shrink")
    return search.shrink(program, fails, budget, **options)
