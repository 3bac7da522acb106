"""Compare two modules of Relay or Relax, or a module and a torch model, by building and running them.

    result = equivalent_modules(before, after)         # also passlab.equivalent(before, after)
    assert result, result.reason

Modules are built and run by `passlab.tvm.builds`, in another process, on every available target. A module has one
dtype, so unlike for torch programs (`passlab.equivalence`) edge values have that dtype: huge ones are the fourth
root of its largest number. inf and NaN are tried only on request, since TVM's result for them depends on the order
of operands in `max` and on how a kernel was vectorized.

TVM replaces x − x and x · 0 by 0 and x == x by true, also where x is NaN or inf: two modules that both hold such a call
would agree because of this error. If one does, both are compared again, built as they are written: every call in a
kernel of its own, whose operands are different buffers. This comparison decides, on inf and NaN too unless TVM does not
define an operator's result for them (max, relu, pooling, …). A note tells that it was made, or was not possible. The
loops of a kernel in TIR are not inspected.

`passlab.building.comparison` tells rounding from a difference. Edge values for which a call inside `before` gives NaN
but its result is a number are ignored: the result of a max, min or clip of NaN is up to TVM.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from passlab.building.arrays import as_torch
from passlab.building.comparison import Expected, Failure, ModuleComparison, ModuleTrial, TorchSide, Value
from passlab.building.inputs import ALL_KINDS, KINDS, inputs_like, nudged, tensor
from passlab.equivalence.comparison import why_not_a_program
from passlab.equivalence.result import Equivalence, Options
from passlab.equivalence.seeds import own_seed
from passlab.equivalence.values import SUMS, Difference, Errors
from passlab.tvm import builds
from passlab.tvm.dialect import current_dialect
from passlab.tvm.inputs import inputs_of
from passlab.tvm.modules import counts, functions, is_function, is_module, nodes, signature, type_of, typed

#: the trials where one side is torch's: TVM's kernels and torch's overflow at different places
_MIXED = ("ordinary", "structured", "sizes")

#: Parts of the names of operators whose result on NaN TVM does not define.
_OPEN = (
    "max",
    "min",
    "relu",
    "clip",
    "pool",
    "sort",
    "topk",
    "sign",
    "round",
    "floor",
    "ceil",
    "where",
    "cast",
    "astype",
)

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
        return Equivalence(False, f"after is {why_not_a_program(after)}")
    sides = _side(before, "before", run), _side(after, "after", run)
    exact = kinds is None and sides[0].flavour == sides[1].flavour
    if kinds is None:
        kinds = KINDS if exact else _MIXED
    modules = [side.module for side in sides if side.module is not None]
    if inputs is None and not modules:
        raise ValueError("equivalent has no inputs to try: pass inputs=(array, ...).")

    def drawn(kinds: Sequence[str]) -> list[tuple[str, tuple]]:
        from_seed = own_seed(seed)
        return inputs_of(modules[0], from_seed, kinds) if inputs is None else inputs_like(inputs, from_seed, kinds)

    trials = drawn(kinds)
    options = Options(seed, atol, rtol)
    targets = tuple(targets or _targets(*sides))

    def compared(sides: Sequence[Any], trials: list[tuple[str, tuple]]) -> tuple[_Comparison, Equivalence]:
        comparison = _Comparison(sides[0], sides[1], trials, options, targets, locate)
        comparison.reference = reference
        return comparison, comparison.run()

    comparison, result = compared(sides, trials)
    if comparison.failed or comparison.is_unchanged() or not any(side.is_simplified() for side in sides):
        return result
    if exact and not any(side.leaves_nan_open() for side in sides):
        trials += [trial for trial in drawn(("nonfinite",)) if trial[0] == "nonfinite"]
    with contextlib.suppress(Exception):  # not every module can be built so
        comparison, written = compared([side.as_written() for side in sides], trials)
        if not comparison.failed:
            written.notes += (AS_WRITTEN,)
            return written
    result.notes += (SIMPLIFIED,)
    return result


#: The notes about calls that TVM simplifies.
AS_WRITTEN = "x − x, x · 0 and x == x were compared as they are written: TVM would simplify them"
SIMPLIFIED = "not seen: x − x, x · 0 and x == x of NaN or inf, which TVM simplified before they were compared"


def equivalent(before: Any, after: Any, inputs: Any, options: Options) -> Equivalence:
    """Compare for `passlab.equivalent`. Devices are TVM's targets; modes and aliasing are ignored."""
    targets = None if options.devices is None else [{"cpu": "llvm"}.get(name, name) for name in options.devices]
    kinds = options.trials or (ALL_KINDS if options.thorough else None)
    tolerances = {"seed": options.seed, "atol": options.atol, "rtol": options.rtol}
    return equivalent_modules(before, after, inputs, kinds=kinds, targets=targets, **tolerances)


def devices_note() -> str:
    """Return a sentence for a report's notes: the devices on which modules were run."""
    targets = builds.targets()
    without = "" if "cuda" in targets else "; there is no GPU that TVM can use here, so cuda was not tried"
    return f"Modules were built and run on {' and '.join(targets)}{without}."


# ---------------------------------------------------------------------------------------------------- sides


def depth(module: Any) -> int:
    """Return the number of calls on the longest path through `main`, calls inside fused functions included."""
    inside = functions(module)
    return max(1, current_dialect().depth(inside)) if "main" in inside else 1


class _Module:
    """A side that TVM builds and runs. run: options of builds.run_module."""

    def __init__(self, value: Any, run: dict[str, Any]):
        self.module = None if isinstance(value, builds.Packed) else typed(value)
        self.packed = builds.packed(value)
        self.flavour = self.packed.flavour
        self.run = run

    @cached_property
    def written(self) -> Any | None:
        """The module in a form in which TVM simplifies no call; None if it simplifies no call of it anyway."""
        return None if self.module is None else current_dialect().as_written(self.module)

    def is_simplified(self) -> bool:
        return self.written is not None

    def as_written(self) -> _Module:
        """Return this side, built call by call. Raises ValueError for a module of the other TVM or with kernels."""
        if self.module is None or current_dialect().hides_sums(list(counts(self.module))):
            raise ValueError("This module cannot be split into single calls: its kernels are already built.")
        params = {} if self.packed.params is None else {"params": self.packed.params}
        return _Module(self.written or self.module, self.run | params | current_dialect().BARE)

    def leaves_nan_open(self) -> bool:
        """Return whether TVM leaves open if an operator gives NaN or a number for a NaN."""
        return self.module is None or any(part in name for name in counts(self.module) for part in _OPEN)

    def names(self) -> list[str]:
        return [name for name, _ in signature(self.module).parameters]

    def depth(self) -> int:
        return _UNKNOWN_DEPTH if self.module is None else depth(self.module)

    def sums(self) -> bool:
        if self.module is None:
            return True
        names = [name.lower() for name in counts(self.module)]
        return current_dialect().hides_sums(names) or not names or any(part in name for name in names for part in SUMS)

    def dtypes(self) -> set[torch.dtype]:
        """Return the float dtypes of a module's inputs, results and calls."""
        if self.module is None:
            return set()
        _, params, result = signature(self.module)
        types = [result, *(type_ for _, type_ in params)]
        types += [type_of(n.var if n.var is not None else n.expr) for n in nodes(self.module)]
        names = {name for type_ in types for name in current_dialect().dtypes(type_)}
        dtypes = (getattr(torch, name, None) for name in names)
        return {dtype for dtype in dtypes if isinstance(dtype, torch.dtype) and dtype.is_floating_point}

    def outputs(self, inputs: Sequence[tuple], target: str) -> list[list[Tensor]]:
        built = builds.run_module(self.packed, inputs, target=target, **self.run)
        if not built.ok:
            doing = {
                "build": f"does not build for {target}",
                "run": f"builds for {target}, and fails when it runs",
                "crash": f"crashed on {target}",
                "timeout": f"took too long on {target}",
            }[built.stage]
            text = re.sub(r"^TVM cannot (build|run) the module: ", "", built.error)
            raise Failure(f"{doing}: {text.rstrip('.')}.", built.stage)
        return [[as_torch(array) for array in arrays] for arrays in built.outputs]

    def values(self, inputs: tuple) -> list[Value] | None:
        return values(self.module, inputs)


def values(module: Any, inputs: tuple, most: int = _MOST_SEARCHED) -> list[Value] | None:
    """Return the value of each call in `main`.

    None for a module of more calls than `most` or with control flow, and where the module that returns all values does
    not build.
    """
    opened = current_dialect().expose_calls(module, most)
    if opened is None:
        return None
    built = builds.run_module(opened.module, [inputs], seconds=20.0, **current_dialect().BARE)
    if not built.ok:
        return None
    outputs = [as_torch(array) for array in built.outputs[0]]
    return [Value(id, name, t) for (id, name), t in zip(opened.calls, outputs, strict=True)]


class _Torch(TorchSide):
    packed, flavour = None, "torch"

    def is_simplified(self) -> bool:
        return False

    def as_written(self) -> _Torch:
        return self

    def leaves_nan_open(self) -> bool:
        return False


def _side(value: Any, name: str, run: dict[str, Any]) -> _Module | _Torch:
    if takes(value):
        return _Module(value, run)
    if callable(value):
        return _Torch(value)
    raise ValueError(f"equivalent compares modules and torch models; `{name}` is a {type(value).__name__}.")


def _targets(*sides: _Module | _Torch) -> tuple[str, ...]:
    """Return the targets on which every side that is a module can run."""
    names = [builds.targets(side.flavour) for side in sides if side.packed is not None] or [("llvm",)]
    return tuple(name for name in names[0] if all(name in others for others in names))


# ---------------------------------------------------------------------------------------------------- comparing

_MOST_CACHED = 64
#: digest of module and inputs → the outputs of `before`: the same case is judged many times
_cache: OrderedDict[str, list[list[Tensor]]] = OrderedDict()


class _Comparison(ModuleComparison):
    """Adds a torch model that `after` must also agree with, and edge values for which TVM defines no result."""

    before: _Module | _Torch
    after: _Module | _Torch
    reference: Callable | None = None
    #: whether a side does not build or run, or gives other outputs in number or type
    failed = False
    look = (
        "Look at {id}, {op}: no call before has its value.",
        "Look for {id} of before, {op}: no call after has its value.",
    )

    def expected(self, inputs: list[tuple], target: str) -> list[Expected]:
        """Return the outputs of `before`, all from one build: TVM takes long to build, and little to run."""
        every = [args for x in inputs for args in (x, nudged(x, 1), nudged(x, -1))]
        outputs = self._cached(inputs, every, target) if self.before.packed else self.before.outputs(every, target)
        triples = (outputs[at : at + 3] for at in range(0, len(outputs), 3))
        return [Expected(first, lambda moved=moved: moved) for first, *moved in triples]

    def _cached(self, inputs: list[tuple], every: list[tuple], target: str) -> list[list[Tensor]]:
        key = _digest(self.before.packed, inputs, target, self.before.run)
        if key not in _cache:
            _cache[key] = self.before.outputs(every, target)
            if len(_cache) > _MOST_CACHED:
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        return _cache[key]

    def outputs_of_after(self, trials: Sequence[ModuleTrial], expected: list[Expected]) -> list[list[Tensor]]:
        if self.is_unchanged():  # the pass returned its input, which has just been run
            return [outputs for outputs, _ in expected]
        return super().outputs_of_after(trials, expected)

    def is_unchanged(self) -> bool:
        old, new = self.before.packed, self.after.packed
        return None not in (old, new) and old.text == new.text and not (old.params or new.params)

    def differences(self, trial: ModuleTrial, old: Expected, new: Any, errors: Errors) -> list[Difference]:
        differences = super().differences(trial, old, new, errors)
        if (
            differences
            and trial.kind in ("structured", "extreme")
            and self._swallows_nan(differences[0], old.outputs, trial.args)
        ):
            self.notes["edge values for which a call inside the module before gives NaN were ignored"] = None
            return []
        return differences or list(self._from_reference(trial, new, errors))

    def _swallows_nan(self, difference: Difference, old: list[Tensor], inputs: tuple) -> bool:
        """Return whether `before` gives numbers where the sides differ, but NaN in one of its calls."""
        if difference.bad is None or self.before.module is None:
            return False
        if bool(old[difference.leaf][difference.bad].isnan().any()):
            return False
        values = self.before.values(inputs)
        return any(v.tensor.is_floating_point() and bool(v.tensor.isnan().any()) for v in values or ())

    def failure(self, trial: ModuleTrial, difference: Difference, errors: Errors) -> Equivalence:
        self.failed = difference.bad is None
        return super().failure(trial, difference, errors)

    def _from_reference(self, trial: ModuleTrial, new: list[Tensor], errors: Errors) -> Iterator[Difference]:
        """Yield the differences from the torch model's outputs."""
        if self.reference is None or trial.kind not in ("given", "ordinary", "sizes") or self.is_unchanged():
            return
        (right,) = TorchSide(self.reference).outputs([trial.args], trial.device)
        for d in self.beyond_rounding(trial, right, new, errors, list):
            sentence = d.sentence.replace(" before", " in torch", 1)
            yield replace(d, sentence=f"against the torch model {sentence}")


def _digest(packed: builds.Packed, inputs: list[tuple], target: str, run: dict[str, Any]) -> str:
    digest = hashlib.sha256(f"{packed.flavour}\0{target}\0{sorted(run.items(), key=str)}\0{packed.text}".encode())
    for t in [tensor(x) for values in (*inputs, (packed.params or {}).values()) for x in values]:
        digest.update(f"{t.dtype}{tuple(t.shape)}".encode())
        digest.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    return digest.hexdigest()
