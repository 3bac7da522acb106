"""Compare two modules of Relay or Relax, or a module and a torch model, by building and running them.

    result = equivalent_modules(before, after)         # also passlab.equivalent(before, after)
    assert result, result.reason

Modules are built and run by `passlab.tvm.builds`, in another process, on every available target. A module has one
dtype, so unlike for torch programs (`passlab.equivalence`) edge values come in that dtype: huge ones are the fourth
root of its largest number. inf and NaN are tried only on request, since TVM's result for them depends on the order
of operands in `max` and on how a kernel was vectorized.

**Rounding is not meaning.** The tolerance follows from dtype and depth (`passlab.equivalence.values`). A difference is
set aside where `before` moves as far by itself when its inputs are moved by a few units of rounding, and where one
gives NaN and the other inf in a module that adds numbers up (inf - inf depends on the order of a sum). So are edge
values on which a call of `before` gives NaN and its result is a number: a max, min or clip of NaN is what TVM makes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from passlab.building.arrays import as_torch
from passlab.equivalence import Equivalence, locating
from passlab.equivalence.values import SUMS, Difference, Errors, Tolerance, beyond_rounding, compare, leaves, nan_or_inf
from passlab.fx.equivalent import depth as torch_depth
from passlab.fx.programs import Program
from passlab.fx.trials import TRIALS
from passlab.tvm import builds
from passlab.tvm.dialect import current_dialect
from passlab.tvm.inputs import ALL_KINDS, KINDS, after_example, check_kinds, inputs_of, nudged_inputs, plain, tensor
from passlab.tvm.modules import counts, functions, is_function, is_module, nodes, signature, type_of, typed

#: the trials where one side is torch's: TVM's kernels and torch's overflow at different places
_MIXED = ("ordinary", "structured", "sizes")
_PHRASES = {**TRIALS, "ordinary": "On random inputs", "structured": "On inputs that are a ramp"}

#: Modules with more calls are not searched for the place where they differ.
_MOST_SEARCHED = 60
#: Assumed depth of a program whose graph cannot be inspected.
_UNKNOWN_DEPTH = 16


def takes(value: Any) -> bool:
    """Return whether `value` is an IRModule or function of this process's TVM, or a packed one of either TVM."""
    return isinstance(value, builds.Packed) or is_module(value) or is_function(value)


def equivalent_modules(
    before: Any,
    after: Any,
    inputs: Any = None,
    *,
    reference: Callable | None = None,
    kinds: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
    locate: bool = True,
    **run: Any,
) -> Equivalence:
    """Run both on the same inputs and return whether, and where, they differ.

    before, after   modules or functions of the TVM that this process holds, `builds.packed` ones of either TVM, or
                    torch models (anything callable on tensors).
    inputs          a tuple of arrays or tensors, a list of such tuples, or None: random ones.
    reference       a torch model that `after` must also agree with, on given and ordinary inputs.
    kinds           inputs to try besides those given: names from `ALL_KINDS`; () for none.
    targets         default: `builds.targets()`, llvm and (where there is a GPU) cuda.
    atol, rtol      replace the tolerances that follow from dtype and depth.
    locate          on a difference, find the call at which two modules differ first (two more builds).
    run             for builds.run_module: level, pipeline, disabled, config, function, seconds.

    `first_diverging` of the result is the id of a node of passlab.view(after); `graph`, `graph_after` are the modules.
    Raises ValueError when there are no inputs to try, and when `before` itself does not run on ordinary ones. A failure
    of `after` is a result, not an exception.
    """
    if not takes(after) and not callable(after):
        found = "None: does the pass end with a return?" if after is None else f"a {type(after).__name__}, no program."
        return Equivalence(False, f"after is {found}")
    comparison = _Comparison(before, after, inputs, kinds, seed, atol, rtol, run)
    result = comparison.run(tuple(targets or comparison.targets()), reference)
    if not result and locate and locating():
        comparison.locate(result)
    return result


def equivalent(
    before: Any,
    after: Any,
    inputs: Any = None,
    *,
    devices: Sequence[str] | None = None,
    trials: Sequence[str] | None = None,
    thorough: bool = False,
    modes: Any = None,
    aliasing: Any = None,
    **how: Any,
) -> Equivalence:
    """Compare for `passlab.equivalent`. Devices are TVM's targets; modes and aliasing are ignored."""
    targets = None if devices is None else [{"cpu": "llvm"}.get(name, name) for name in devices]
    kinds = trials or (ALL_KINDS if thorough else None)
    return equivalent_modules(before, after, inputs, kinds=kinds, targets=targets, **how)


def devices_note() -> str:
    """Return a sentence for a report's notes: the devices on which modules were run."""
    found = builds.targets()
    without = "" if "cuda" in found else "; there is no GPU that TVM can use here, so cuda was not tried"
    return f"Modules were built and run on {' and '.join(found)}{without}."


# ---------------------------------------------------------------------------------------------------- tolerance


def depth(module: Any) -> int:
    """Return the number of calls on the longest path through `main`, calls inside fused functions included."""
    inside = functions(module)
    return max(1, current_dialect().depth(inside)) if "main" in inside else 1


def _sums(module: Any) -> bool:
    """Return whether the module may sum numbers."""
    names = [name.lower() for name in counts(module)]
    return current_dialect().hides_sums(names) or not names or any(part in name for name in names for part in SUMS)


def _dtypes(module: Any) -> set[torch.dtype]:
    """Return the float dtypes of a module's inputs, results and calls."""
    _, params, result = signature(module)
    types = [type_ for _, type_ in params] + [result]
    types += [type_of(n.var if n.var is not None else n.expr) for n in nodes(module)]
    text = " ".join(map(str, types))
    return {getattr(torch, name) for name in set(re.findall(r"\b(bfloat16|float16|float32|float64)\b", text))}


# ---------------------------------------------------------------------------------------------------- sides


class _Failed(Exception):
    """One side produced no outputs. `args[0]` completes a sentence that starts with its name."""


class _Module:
    """A side that TVM builds and runs."""

    torch = False

    def __init__(self, value: Any):
        self.own = None if isinstance(value, builds.Packed) else typed(value)
        self.packed = builds.packed(value)
        self.flavour = self.packed.flavour

    def depth(self) -> int:
        return _UNKNOWN_DEPTH if self.own is None else depth(self.own)

    def sums(self) -> bool:
        return self.own is None or _sums(self.own)

    def dtypes(self) -> set[torch.dtype]:
        return set() if self.own is None else _dtypes(self.own)

    def outputs(self, inputs: list[tuple], target: str, run: dict) -> list[list[Tensor]]:
        built = builds.run_module(self.packed, inputs, target=target, **run)
        if not built.ok:
            doing = {
                "build": f"does not build for {target}",
                "run": f"builds for {target}, and fails when it runs",
                "crash": f"crashed on {target}",
                "timeout": f"took too long on {target}",
            }[built.stage]
            said = re.sub(r"^TVM cannot (build|run) the module: ", "", built.error)
            raise _Failed(f"{doing}: {said.rstrip('.')}.", built.stage)
        return [[as_torch(array) for array in arrays] for arrays in built.outputs]


class _Torch:
    """A side that torch runs, on the CPU, whatever the target."""

    torch, own, packed, flavour = True, None, None, "torch"

    def __init__(self, model: Callable):
        self.model = model

    def depth(self) -> int:
        return torch_depth(Program(self.model))

    def sums(self) -> bool:
        return True

    def dtypes(self) -> set[torch.dtype]:
        state = [*self.model.parameters(), *self.model.buffers()] if isinstance(self.model, torch.nn.Module) else []
        return {t.dtype for t in state if t.is_floating_point()}

    def outputs(self, inputs: list[tuple], target: str, run: dict) -> list[list[Tensor]]:
        try:
            with torch.no_grad():
                ran = [self.model(*(tensor(x).clone() for x in given)) for given in inputs]
        except Exception as error:
            said = str(error).strip().split("\n")[0][:200]
            raise _Failed(f"fails in torch: {type(error).__name__}: {said}", "run") from error
        return [[t.detach() for t in leaves(output) if isinstance(t, Tensor)] for output in ran]


def _side(value: Any, which: str) -> _Module | _Torch:
    if takes(value):
        return _Module(value)
    if callable(value):
        return _Torch(value)
    raise ValueError(f"equivalent compares modules and torch models; `{which}` is a {type(value).__name__}.")


# ---------------------------------------------------------------------------------------------------- comparing

_MOST_CACHED = 64
#: what `before` gave, by the content of module and inputs: the same case is judged again and again
_cache: OrderedDict[str, list[list[Tensor]]] = OrderedDict()


class _Comparison:
    """Two sides, the inputs to run them on, and the tolerance between their outputs."""

    def __init__(self, before, after, inputs, kinds, seed, atol, rtol, run):
        self.before = _side(before, "before")
        self.after = _side(after, "after")
        self.given = before, after
        self.run_with = run
        mixed = self.before.flavour != self.after.flavour
        kinds = (_MIXED if mixed else KINDS) if kinds is None else kinds
        self.trials = self._trials(inputs, kinds, seed)
        sides = (self.before, self.after)
        floats = set().union(*(side.dtypes() for side in sides))
        floats |= {t.dtype for t in map(tensor, self.trials[0][1]) if t.is_floating_point()}
        coarsest = max(floats or {torch.float32}, key=lambda dtype: torch.finfo(dtype).eps)
        steps, sums = max(side.depth() for side in sides), any(side.sums() for side in sides)
        derived = Tolerance.of(coarsest, steps, sums)
        self.tolerance = replace(derived, rtol=derived.rtol if rtol is None else rtol, atol=atol)

    def _trials(self, inputs: Any, kinds: Sequence[str], seed: int) -> list[tuple[str, tuple]]:
        """Return (kind, inputs) to run on: those given, and the other kinds in the same shapes and dtypes."""
        pattern = next((side.own for side in (self.before, self.after) if side.own is not None), None)
        if inputs is None:
            if pattern is None:
                raise ValueError("equivalent has no inputs to try: pass inputs=(array, ...).")
            return inputs_of(pattern, seed, kinds or ("ordinary",))
        check_kinds(kinds)
        if isinstance(inputs, Tensor | np.ndarray):
            inputs = (inputs,)
        several = isinstance(inputs, list) and inputs and all(isinstance(x, tuple) for x in inputs)
        given = inputs if several else [tuple(inputs)]
        rest = after_example(tuple(map(tensor, given[0])), seed, [kind for kind in kinds if kind != "sizes"])
        return [("given", x) for x in given] + [(kind, tuple(map(plain, x))) for kind, x in rest]

    def targets(self) -> tuple[str, ...]:
        """Return the targets on which every side that is a module can run."""
        sides = [side for side in (self.before, self.after) if not side.torch]
        found = [builds.targets(side.flavour) for side in sides] or [("llvm",)]
        return tuple(name for name in found[0] if all(name in names for names in found))

    def run(self, targets: tuple[str, ...], reference: Callable | None) -> Equivalence:
        errors, done, self.notes = Errors(), [], []

        def result(reason: str = "", far: Errors = errors, **more: Any) -> Equivalence:
            seen = {"devices": targets, "trials": tuple(done), "notes": tuple(dict.fromkeys(self.notes))}
            return Equivalence(not reason, reason, far.mse, far.max_abs, far.max_ulp, **seen, **more)

        for target in targets:
            expected = self._reference_outputs(target)
            if self._is_unchanged():  # the pass returned its input, which has just been run
                done += [f"{kind} ({target})" for kind, _ in self.trials]
                continue
            try:
                got = self.after.outputs([x for _, x in self.trials], target, self.run_with)
            except _Failed as failed:
                return result(f"after {failed.args[0]}", counterexample=self._by_name(self.trials[0][1]))
            for at, (kind, given) in enumerate(self.trials):
                right, far = None, errors if kind not in ("extreme", "nonfinite") else Errors()
                if reference is not None and kind in ("given", "ordinary", "sizes"):
                    (right,) = _Torch(reference).outputs([given], target, {})
                for found, against in self._differences(expected[3 * at : 3 * at + 3], right, got[at], far):
                    if kind in ("structured", "extreme") and self._swallows_nan(found, expected[3 * at], given):
                        self.notes.append(
                            "edge values were set aside that are NaN on the way through the module before"
                        )
                        break
                    done.append(f"{kind} ({target})")
                    allowed = f"; rounding explains {self.tolerance.rtol:.1e} of its size" * (found.bad is not None)
                    return result(
                        f"{_PHRASES[kind]} ({target}), {against}{found.sentence}{allowed}.",
                        far,
                        counterexample=self._by_name(given),
                        graph=self.before.own,
                        graph_after=self.after.own,
                    )
                done.append(f"{kind} ({target})")
        return result()

    def _swallows_nan(self, found: Difference, old: list[Tensor], given: tuple) -> bool:
        """Return whether `before` gives numbers where the sides differ, and NaN in a call on the way."""
        if found.bad is None or self.before.own is None or bool(old[found.leaf][found.bad].isnan().any()):
            return False
        values = _values(self.before.own, given)
        return any(t.is_floating_point() and bool(t.isnan().any()) for *_, t in values or ())

    def _is_unchanged(self) -> bool:
        sent, came = self.before.packed, self.after.packed
        return None not in (sent, came) and sent.text == came.text and not (sent.params or came.params)

    def _by_name(self, inputs: tuple) -> dict[str, Tensor]:
        """Return inputs by the names of the parameters, where one side knows these."""
        own = next((side.own for side in (self.before, self.after) if side.own is not None), None)
        names = [name for name, _ in signature(own).parameters] if own is not None else []
        return {names[i] if i < len(names) else f"input{i}": tensor(x) for i, x in enumerate(inputs)}

    def _reference_outputs(self, target: str) -> list[list[Tensor]]:
        """Return the outputs of `before`: for each trial on its inputs, and on these nudged up and down.

        Trials of edge values that `before` itself rejects are dropped, with a note.
        """
        try:
            return self._outputs(target)
        except _Failed as failed:
            plain = [(kind, x) for kind, x in self.trials if kind in ("given", "ordinary")]
            if failed.args[1] not in ("run", "crash") or not plain or len(plain) == len(self.trials):
                raise ValueError(f"`before` itself {failed.args[0]}") from failed
        self.trials = plain
        try:
            outputs = self._outputs(target)
        except _Failed as failed:
            raise ValueError(f"`before` itself {failed.args[0]}") from failed
        self.notes.append(f"edge values were left out on {target}: the module before does not take them")
        return outputs

    def _outputs(self, target: str) -> list[list[Tensor]]:
        inputs = [moved for _, x in self.trials for moved in (x, nudged_inputs(x, 1), nudged_inputs(x, -1))]
        if self.before.torch:
            return self.before.outputs(inputs, target, self.run_with)
        key = _digest(self.before.packed, [x for _, x in self.trials], target, self.run_with)
        if key not in _cache:
            _cache[key] = self.before.outputs(inputs, target, self.run_with)
            if len(_cache) > _MOST_CACHED:
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        return _cache[key]

    def _differences(
        self, expected: list[list[Tensor]], right: list[Tensor] | None, got: list[Tensor], errors: Errors
    ) -> Iterator[tuple[Difference, str]]:
        """Yield the differences from the outputs of `before`, then of the reference, with words for the message."""
        old, *moved = expected
        if len(old) != len(got):
            yield Difference(f"there {_outputs(len(old))} before and {len(got)} after"), ""
            return
        for d in self._beyond_rounding(compare(old, got, self.tolerance, "output", errors), old, got, moved):
            yield d, ""
        if right is not None:
            for d in self._beyond_rounding(compare(right, got, self.tolerance, "output", errors), right, got, []):
                yield replace(d, sentence=d.sentence.replace(" before", " in torch", 1)), "against the torch model "

    def _beyond_rounding(self, found: list[Difference], old: list, new: list, moved: list) -> list[Difference]:
        """Return the differences that rounding does not explain."""
        if any(d.bad is None for d in found):
            return [d for d in found if d.bad is None]
        for d in found if self.tolerance.sums else ():
            d.bad = d.bad & ~nan_or_inf(old[d.leaf], new[d.leaf])
        return beyond_rounding(found, old, new, moved)

    def locate(self, result: Equivalence) -> None:
        """Note in the result, if possible, the first call of `after` whose value `before` does not compute."""
        if self.before.own is None or self.after.own is None or result.graph is None:
            return
        with contextlib.suppress(Exception):  # the module cannot be taken apart: the message must do
            given = tuple(plain(t) for t in result.counterexample.values())
            place = first_parting(self.before.own, self.after.own, given, self.tolerance)
            if place:
                result.first_diverging = place[0]
                result.reason += f" {place[1]}"


def _outputs(n: int) -> str:
    return "is 1 output" if n == 1 else f"are {n} outputs"


def _digest(sent: Any, inputs: list[tuple], target: str, run: dict) -> str:
    digest = hashlib.sha256(f"{sent.flavour}\0{target}\0{sorted(run.items(), key=str)}\0{sent.text}".encode())
    arrays = [tensor(x) for values in (*inputs, (sent.params or {}).values()) for x in values]
    for t in arrays:
        digest.update(f"{t.dtype}{tuple(t.shape)}".encode())
        digest.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------------- where they part


def first_parting(before: Any, after: Any, inputs: tuple, tolerance: Tolerance) -> tuple[str, str] | None:
    """Return where two modules differ first: the id of a node in the view of one of them, and a message.

    That is the first call of `after`, operands first, whose value no call of `before` has; otherwise the last call of
    `before` whose value `after` does not compute. Values in another order count as equal if the shape differs as well:
    a pass may change the layout. None for a module of more than 60 calls or with control flow, and where the module
    that returns all values does not build.
    """
    seen = [_values(module, inputs) for module in (before, after)]
    if None in seen:
        return None
    old, new = ([value for *_, value in found] + [*map(tensor, inputs)] for found in seen)
    for id, name, value in seen[1]:
        if not any(_agree(other, value, tolerance) for other in old):
            return id, f"Look at {id}, {name}: no call before has its value."
    for id, name, value in reversed(seen[0]):
        if not any(_agree(value, other, tolerance) for other in new):
            return id, f"Look for {id} of before, {name}: no call after has its value."
    return None


def _agree(one: Tensor, other: Tensor, tolerance: Tolerance) -> bool:
    if one.shape != other.shape and one.numel() == other.numel() and one.dtype == other.dtype:
        one, other = one.flatten().sort()[0], other.flatten().sort()[0]
    return not compare(one, other, tolerance)


def _values(module: Any, inputs: tuple) -> list[tuple[str, str, Tensor]] | None:
    """Return the value of each call in `main`: id of its node in the view, operator, tensor."""
    opened = current_dialect().expose_calls(module, _MOST_SEARCHED)
    if opened is None:
        return None
    built = builds.run_module(opened.module, [inputs], seconds=20.0, **current_dialect().BARE)
    if not built.ok:
        return None
    outputs = [as_torch(array) for array in built.outputs[0]]
    return [(id, name, t) for (id, name), t in zip(opened.calls, outputs, strict=True)]
