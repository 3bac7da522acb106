"""Are two programs the same function? Both are run on inputs chosen to tell them apart, and everything is compared.

    result = equivalent(before, after)            # GraphModules, nn.Modules or plain functions
    assert result, result.reason

What is compared, after the same `manual_seed`, on copies (neither program nor the caller's tensors change): the outputs
(structure, shape, dtype, values), what was written into the inputs, what was written into parameters and buffers, and
how far the random generator moved. With `aliasing=True`, also which outputs share memory with which inputs.

**Tolerance.** One operation rounds once, by at most u = eps/2 of its result. A sum of k terms collects errors that grow
like sqrt(k)·u, but so does the size of the sum, so relative to the root mean square (rms) of a tensor one operation still
costs a few u. The errors of d operations in a row are independent and add like sqrt(d) (Higham and Mary, SIAM J. Sci.
Comput. 2019). Two elements agree when

    |a - b| <= rtol·|b| + atol,    rtol = 16·eps·sqrt(d),    atol = rtol·rms(b),

with d the depth of the graph; 16·eps = 32 u leaves room for the largest of many elements. Integers and booleans must be
equal. NaN equals NaN; inf must have the same sign; -0 equals 0 (its sign counts where a later operation shows it).

**Rounding is not meaning.** A right rewrite reassociates: folding a batch norm into a convolution computes x·(w·s) for
(x·w)·s. Three rules keep that apart from a wrong rewrite.

1. Edge values are fed in float64 wherever `before` runs in it. 1e30 then multiplies without overflow, so inf and NaN in
   the output are the mathematics of the program and not an accident of float32: `x*0 -> 0` and `x/x -> 1` are caught, a
   fold is not. Float64 also lowers the tolerance to about 1e-15, so that a forgotten eps of 1e-5 is seen; where `after`
   holds float constants that `before` has not (a folded weight, rounded once), the unit stays that of the constants.
2. Where `before` gives NaN or inf and the graph holds sums (matmul, convolution, mean, softmax, ...), `after` may give
   another one of them: inf - inf inside a sum depends on its order. It must not give a finite number.
3. Before a difference in values counts, `before` is run again with its parameters, and on ordinary inputs also its
   inputs, moved by a few u. Elements that move as far by themselves (ill-conditioned ones, ties before a rounding or an
   argmax) decide nothing.
"""

from __future__ import annotations

import contextlib
import html
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

#: name of a trial → what it feeds. The ones after "half" run only when asked for, or when `thorough`.
TRIALS = {
    "given": "the example inputs as they are",
    "double": "normal random numbers, in float64",
    "extreme": "0, -0, denormal, tiny and huge numbers, in float64",
    "nonfinite": "inf, -inf and NaN among ordinary numbers, in float64",
    "structured": "ones, ramps, one-hot and identity-like tensors that are not contiguous",
    "sizes": "another batch size and other spatial sizes",
    "half": "normal random numbers in bfloat16",
    "same tensor": "one tensor for two arguments (only where something is written in place)",
    "ordinary": "normal random numbers",
    "float16": "normal random numbers in float16",
}
DEFAULT = tuple(TRIALS)[:8]


@dataclass
class Equivalence:
    """The answer of `equivalent`: true when no trial told the two programs apart.

    `mse`, `max_abs` and `max_ulp` describe the trial that failed, else the worst of the trials in the inputs' own dtype.
    `graph` and `graph_after` are the smallest pair of graphs found that still differs. `notes` says what was not tried
    and what changed without being an error.
    """

    ok: bool
    reason: str = ""
    mse: float = 0.0
    max_abs: float = 0.0
    max_ulp: float = 0.0
    first_diverging: str | None = None
    counterexample: dict[str, Any] | None = None
    graph: fx.GraphModule | None = None
    graph_after: fx.GraphModule | None = None
    devices: tuple[str, ...] = ()
    trials: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        if self.ok:
            return (
                f"same function: {len(self.trials)} trials on {', '.join(self.devices)}; "
                f"mse {self.mse:.1e}, max abs {self.max_abs:.1e}, max ulp {self.max_ulp:.0f}"
            )
        return f"not the same function: {self.reason}"

    def _repr_html_(self) -> str:
        text = f"<p>{html.escape(repr(self))}</p>"
        if self.graph is None or self.graph_after is None:
            return text
        try:
            from passlab.drawing import diff

            return text + diff(self.graph, self.graph_after).svg
        except Exception:  # without Graphviz the sentence has to do
            return text


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
) -> Equivalence:
    """Run `before` and `after` on the same inputs and say whether, and where, they part.

    inputs    a tuple of examples (tensors, numbers, nested lists), a list of such tuples, or None: then
              `before.meta["inputs"]`, else the shapes on its placeholders.
    modes     "eval", "train" or both; default: the mode `before` is in.
    devices   default: where the example inputs lie, and every accelerator that is present.
    trials    names out of `TRIALS`; default: the first eight. A trial whose inputs `before` itself rejects is left out,
              and `notes` says so. `thorough` adds the others and three more seeds.
    aliasing  True: an output that shares memory with an input in one program only is a difference. False: it is not.
              None: it is one where either program writes in place (elsewhere only a note, since no value can show it).
    atol, rtol replace the tolerances that follow from dtype and depth (see the module's text).

    Raises ValueError when there are no inputs to try, or when `before` fails on its own example inputs.
    """
    return _Search(before, after, inputs, seed, atol, rtol, modes, devices, trials, thorough, aliasing).run()


# ---------------------------------------------------------------------------------------------------- inputs


def example_inputs(program: Any) -> list[tuple] | None:
    """The example inputs a GraphModule carries: `meta["inputs"]`, or zeros-free numbers of its placeholders' shapes."""
    if not isinstance(program, fx.GraphModule):
        return None
    if "inputs" in program.meta:
        return [tuple(program.meta["inputs"])]
    gen, made = torch.Generator().manual_seed(0), []
    for node in program.graph.find_nodes(op="placeholder"):
        meta = node.meta.get("tensor_meta") or node.meta.get("val")
        if meta is None:
            return None
        made.append(_draw(torch.empty(tuple(meta.shape), dtype=meta.dtype), gen))
    return [tuple(made)]


def _examples(before: Any, inputs: Any) -> list[tuple]:
    if inputs is None:
        found = example_inputs(before)
        if found is None:
            raise ValueError(
                "equivalent has no inputs to try: pass inputs=(tensor, ...), or make the graph with "
                "passlab.trace(model, *inputs), which keeps them."
            )
        return found
    if isinstance(inputs, Tensor):
        return [(inputs,)]
    if isinstance(inputs, list) and inputs and all(isinstance(x, tuple) for x in inputs):
        return inputs
    return [tuple(inputs)]


def _names(before: Any, count: int) -> list[str]:
    names: list[str] = []
    if isinstance(before, fx.GraphModule):
        names = [str(n.target).lstrip("*") for n in before.graph.find_nodes(op="placeholder")]
    else:
        with contextlib.suppress(TypeError, ValueError):
            names = list(inspect.signature(before.forward if isinstance(before, nn.Module) else before).parameters)
    return (names + [f"input{i}" for i in range(len(names), count)])[:count]


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _draw(like: Tensor, gen: torch.Generator, shape: Sequence[int] | None = None, dtype=None) -> Tensor:
    """Random numbers in the place of `like`: normal ones, or integers out of its range (they may be indices)."""
    shape = tuple(like.shape if shape is None else shape)
    if like.is_complex():
        return torch.randn(shape, generator=gen, dtype=torch.complex128).to(like.dtype)
    if like.is_floating_point():
        return torch.randn(shape, generator=gen, dtype=torch.float64).to(dtype or like.dtype)
    if like.dtype == torch.bool:
        return torch.rand(shape, generator=gen) < 0.5
    low, high = (int(like.min()), int(like.max())) if like.numel() else (0, 0)
    return torch.randint(low, high + 1, shape, generator=gen).to(like.dtype)


def _fill(like: Tensor, values: Sequence[float], step: int, dtype: torch.dtype) -> Tensor:
    """A float tensor shaped as `like` that walks through `values`, from the `step`-th on, in strides of 2·step + 1."""
    at = torch.arange(like.numel()) * (2 * step + 1) + step
    return torch.tensor(values, dtype=torch.float64)[at % len(values)].to(dtype).reshape(like.shape)


def _extremes(dtype: torch.dtype, wide: bool) -> list[float]:
    """Finite values at the edges. `wide`: there is room above, so that products of huge ones do not overflow."""
    huge = 1e30 if wide else torch.finfo(dtype).max ** 0.25
    return [
        0.0,
        1.5,
        -0.0,
        huge,
        1e-40 if wide else torch.finfo(dtype).tiny / 4,
        -1.0,
        -huge,
        100.0,
        -1e-8,
        1.0,
        -100.0,
    ]


NONFINITE = [math.inf, 1.0, math.nan, -2.0, 0.0, -math.inf, 0.5]


def _structured(like: Tensor, kind: int) -> Tensor:
    shape, n = tuple(like.shape), like.numel()
    kind %= 4
    if kind == 0:
        return torch.ones(shape, dtype=like.dtype)
    if kind == 1:
        return (torch.arange(n, dtype=torch.float64) / max(n, 1) - 0.25).to(like.dtype).reshape(shape)
    if kind == 2 and like.dim() >= 2:
        return torch.eye(*shape[-2:], dtype=like.dtype).expand(shape).clone()
    one_hot = torch.zeros(n, dtype=like.dtype)
    one_hot[n // 2 : n // 2 + 1] = 1
    return one_hot.reshape(shape)


def _strided(t: Tensor) -> Tensor:
    """The same values where no two neighbours lie side by side in memory."""
    if t.dim() == 0 or t.numel() == 0:
        return t
    wide = torch.zeros(*t.shape[:-1], 2 * t.shape[-1], dtype=t.dtype)
    wide[..., ::2] = t
    return wide[..., ::2]


def _copy(args: tuple, device: str | None = None) -> tuple:
    """A copy of the inputs with the same strides; arguments that share memory share it in the copy, too."""
    storages: dict[int, Any] = {}

    def copy(t: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        if device is not None and t.device.type != torch.device(device).type:
            key = id(t)
            if key not in storages:
                storages[key] = t.detach().to(device, copy=True)
            return storages[key]
        if type(t) is not Tensor or t.layout != torch.strided or t.is_conj() or t.is_neg():
            return t.detach().clone()
        storage = t.untyped_storage()
        key = storage.data_ptr()
        if key not in storages or key == 0:
            storages[key] = storage.clone()
        return t.new_empty(0).set_(storages[key], t.storage_offset(), t.size(), t.stride())

    return pytree.tree_map(copy, args)


# ---------------------------------------------------------------------------------------------------- programs


@dataclass
class _Run:
    """What one run of a program left behind."""

    output: Any = None
    inputs: tuple = ()
    state: dict[str, Tensor] = field(default_factory=dict)
    rng: Tensor | None = None
    aliases: list[tuple] = field(default_factory=list)
    error: Exception | None = None


class _Program:
    """A callable and its parameters and buffers. Every run sees copies of these: the originals are never written to."""

    def __init__(self, fn: Any):
        self.fn = _fresh(fn)
        self.module = self.fn if isinstance(self.fn, nn.Module) else None
        self.opaque = not isinstance(self.fn, fx.GraphModule)
        self.slots: list[tuple[str, dict, str, Tensor]] = []
        self.rnns: list[nn.Module] = []
        self._copies: dict[tuple, list[Tensor]] = {}
        seen_module = self.module is not None and not isinstance(self.module, torch.jit.ScriptModule)
        for path, m in self.module.named_modules() if seen_module else ():
            if isinstance(getattr(m, "_flat_weights_names", None), list):
                self.rnns.append(m)
            for home in (m._parameters, m._buffers, m.__dict__):
                for key, t in home.items():
                    if isinstance(t, Tensor):
                        self.slots.append((f"{path}.{key}".lstrip("."), home, key, t))

    @property
    def is_compiled(self) -> bool:
        return hasattr(self.fn, "_orig_mod") or hasattr(self.fn, "_torchdynamo_orig_callable")

    def _state(self, dtype: torch.dtype | None, device: str, jitter: float) -> list[Tensor]:
        key = (dtype, device)
        if key in self._copies and not jitter:
            return self._copies[key]
        made: dict[int, Tensor] = {}
        for _, _, _, t in self.slots:
            if id(t) not in made:
                made[id(t)] = _recast(t, dtype, device, jitter)
        copies = [made[id(t)] for _, _, _, t in self.slots]
        if not jitter:
            self._copies[key] = copies
        return copies

    def _put(self, tensors: Iterable[Tensor]) -> None:
        for (_, home, key, _), t in zip(self.slots, tensors, strict=True):
            home[key] = t
        for m in self.rnns:  # they keep a second list of their weights
            m.__dict__["_flat_weights"] = [getattr(m, n, None) for n in m._flat_weights_names]

    def run(self, args: tuple, dtype: torch.dtype | None, device: str, seed: int, jitter: float = 0.0) -> _Run:
        """Call the program on `args` (which it may write to), with its state in `dtype` on `device`."""
        copies = self._state(dtype, device, jitter)
        versions = [t._version for t in copies]
        result = _Run(inputs=args)
        self._put(copies)
        try:
            _seed_generators(seed)
            with torch.no_grad():
                # A GraphModule's own __call__ prints where it failed; here a failure is an answer.
                call = nn.Module.__call__ if isinstance(self.fn, fx.GraphModule) else lambda fn, *a: fn(*a)
                result.output = call(self.fn, *args)
        except Exception as error:
            result.error = error
        finally:
            result.rng = _rng_state(device)
            for (path, home, key, original), t, version in zip(self.slots, copies, versions, strict=True):
                now = home.get(key)
                if isinstance(now, Tensor) and (now is not t or now._version != version):
                    result.state[path] = now
                    self._copies.pop((dtype, device), None)
                home[key] = original
            self._put([t for _, _, _, t in self.slots])
        if result.error is None:
            result.aliases = _aliases(
                result.output, args, [(p, t) for (p, *_), t in zip(self.slots, copies, strict=True)]
            )
        return result


def _fresh(fn: Any) -> Any:
    """The program its nodes describe: an edited graph counts without `recompile()`."""
    if type(fn).__name__ == "ExportedProgram":
        return fn.module()
    if isinstance(fn, fx.GraphModule):
        stale = True
        with contextlib.suppress(Exception):
            stale = fn.graph.python_code("self").src != fn._code
        if stale:
            made = fx.GraphModule(fn, fn.graph)
            made.training = fn.training
            made.meta.update(fn.meta)
            return made
    return fn


def _recast(t: Tensor, dtype: torch.dtype | None, device: str, jitter: float = 0.0) -> Tensor:
    to = t.dtype
    if dtype is not None and t.is_floating_point():
        to = dtype
    elif dtype is not None and t.is_complex():
        to = torch.complex128 if dtype == torch.float64 else t.dtype
    made = t.detach().to(device, to, copy=True)
    if jitter and made.is_floating_point():
        made = made * (1 + jitter * (2 * torch.rand(made.shape, device=device, dtype=made.dtype) - 1))
    return nn.Parameter(made, requires_grad=t.requires_grad) if type(t) is nn.Parameter else made


def _seed_generators(seed: int) -> None:
    """`torch.manual_seed` without its search for devices that are not there."""
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():
        torch.get_device_module().manual_seed_all(seed)


def _rng_state(device: str) -> Tensor:
    return torch.get_rng_state() if device == "cpu" else torch.get_device_module(device).get_rng_state()


def _aliases(output: Any, args: tuple, state: list[tuple[str, Tensor]]) -> list[tuple]:
    """For every tensor in the output: which input or parameter it shares memory with, if any."""
    homes: dict[int, str] = {}
    for path, t in state:
        if t.layout == torch.strided and t.numel():
            homes[t.untyped_storage().data_ptr()] = f"{path} of the module"
    for i, t in enumerate(pytree.tree_leaves(args)):
        if isinstance(t, Tensor) and t.layout == torch.strided and t.numel():
            homes[t.untyped_storage().data_ptr()] = f"input {i}"
    found = []
    for i, t in enumerate(pytree.tree_leaves(output)):
        if isinstance(t, Tensor) and t.layout == torch.strided and t.numel():
            home = homes.get(t.untyped_storage().data_ptr())
            if home is not None:
                found.append((i, home))
    return found


# ---------------------------------------------------------------------------------------------------- comparing


@dataclass
class _Difference:
    """One way in which two runs differ. `soft`: numbers, which rounding may explain; else there is no excuse."""

    sentence: str
    soft: bool = False
    bad: Tensor | None = None
    leaf: int = 0
    part: str = "output"


@dataclass
class _Errors:
    mse: float = 0.0
    max_abs: float = 0.0
    max_ulp: float = 0.0

    def worst(self, other: _Errors) -> None:
        self.mse = max(self.mse, other.mse)
        self.max_abs = max(self.max_abs, other.max_abs)
        self.max_ulp = max(self.max_ulp, other.max_ulp)


def _rms(x: Tensor) -> float:
    x = x[torch.isfinite(x)].abs()
    top = float(x.max()) if x.numel() else 0.0
    return top * float(((x / top) ** 2).mean().sqrt()) if top else 0.0


def ulps(a: Tensor, b: Tensor) -> Tensor:
    """How many representable numbers lie between a and b, element by element (same float dtype; -0 and 0 are one)."""
    ints = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]

    def line(t: Tensor) -> Tensor:
        bits = t.contiguous().view(ints).to(torch.int64)
        low = torch.iinfo(ints).min
        return torch.where(bits < 0, low - bits, bits)

    return (line(a).double() - line(b).double()).abs()


def _wide(t: Tensor) -> Tensor:
    t = t.detach()
    if t.layout != torch.strided:
        t = t.to_dense()
    if t.is_quantized:
        t = t.dequantize()
    t = t.cpu().resolve_conj().resolve_neg()
    if t.is_complex():
        t = torch.view_as_real(t)
    return t.double() if t.is_floating_point() else t


@dataclass(frozen=True)
class _Tolerance:
    rtol: float
    atol: float | None
    sums: bool
    """Does the program hold sums (rule 2)?"""

    def bad(self, b: Tensor, a: Tensor) -> Tensor:
        """Where `a` is not `b`, for float64 tensors."""
        finite = torch.isfinite(b) & torch.isfinite(a)
        atol = self.atol
        if atol is None:
            scale = _rms(b)
            atol = self.rtol * (scale if self.sums else min(scale, 1.0))
        wrong = finite & ((a - b).abs() > atol + self.rtol * b.abs())
        odd = ~finite & ~(torch.isnan(a) & torch.isnan(b)) & (a != b)
        if self.sums:
            odd &= torch.isfinite(a) | torch.isfinite(b)
        return wrong | odd


def _compare(b: Any, a: Any, tol: _Tolerance, part: str, errors: _Errors | None = None) -> list[_Difference]:
    """The differences between two values: nested tuples, lists, dicts of tensors and plain objects."""
    b_leaves, b_spec = pytree.tree_flatten(_plain(b))
    a_leaves, a_spec = pytree.tree_flatten(_plain(a))
    if b_spec != a_spec:
        return [_Difference(f"the {part} has another structure: before gives {_shape_of(b)}, after {_shape_of(a)}")]
    found = []
    for i, (x, y) in enumerate(zip(b_leaves, a_leaves, strict=True)):
        name = part if len(b_leaves) == 1 else f"{part} {i}"
        difference = _compare_leaf(x, y, tol, name, errors)
        if difference:
            difference.leaf, difference.part = i, part
            found.append(difference)
    return found


def _compare_leaf(b: Any, a: Any, tol: _Tolerance, name: str, errors: _Errors | None) -> _Difference | None:
    if not (isinstance(b, Tensor) and isinstance(a, Tensor)):
        return None if _same_object(b, a, tol) else _Difference(f"{name}: before gives {_brief(b)}, after {_brief(a)}")
    if b.dtype != a.dtype:
        return _Difference(f"the dtype of {name} changed from {_dtype(b)} to {_dtype(a)}")
    if b.shape != a.shape:
        return _Difference(f"the shape of {name} changed from {tuple(b.shape)} to {tuple(a.shape)}")
    if b.device != a.device:
        return _Difference(f"{name} lies on {a.device}, before it lay on {b.device}")
    if b.is_meta or b is a or torch.equal(b, a):
        return None
    x, y = _wide(b), _wide(a)
    if not x.is_floating_point():
        bad = x != y
    else:
        bad = tol.bad(x, y)
        if errors is not None:
            delta = torch.where(torch.isfinite(x) & torch.isfinite(y), (x - y).abs(), 0.0)
            ulp = ulps(a, b) if b.layout == torch.strided and not b.is_complex() and not b.is_quantized else delta * 0
            ulp = ulp.cpu()[torch.isfinite(x) & torch.isfinite(y)] if ulp.shape == x.shape else ulp
            errors.worst(
                _Errors(float((delta**2).mean()), float(delta.max()), float(ulp.max()) if ulp.numel() else 0.0)
            )
    if not bad.any():
        return None
    return _Difference(_where(x, y, bad, name), True, bad)


def _where(x: Tensor, y: Tensor, bad: Tensor, name: str) -> str:
    delta = torch.where(bad, (x.double() - y.double()).abs().nan_to_num(math.inf, math.inf), -1.0)
    at = tuple(int(i) for i in torch.unravel_index(delta.argmax(), bad.shape)) if bad.dim() else ()
    place = f" at {list(at)}" if at else ""
    many = f" in {int(bad.sum())} of {bad.numel()} elements; most" if bad.numel() > 1 else ""
    return f"{name} differs{many}{place}: before {_number(x[at])}, after {_number(y[at])}"


def _steady(x: Tensor, y: Tensor, moved: Tensor) -> Tensor:
    """Where the step from x to y is more than what the step from x to `moved`, made by rounding alone, explains."""
    if not x.is_floating_point():
        return x == moved
    shift = torch.where(torch.isfinite(x) & torch.isfinite(moved), (x - moved).abs(), 0.0)
    far = ~((x - y).abs() <= 16 * shift.clamp(min=_rms(shift)))  # NaN counts as far
    return far & (torch.isfinite(x) == torch.isfinite(moved))


def _same_object(b: Any, a: Any, tol: _Tolerance) -> bool:
    if isinstance(b, float) and isinstance(a, float):
        return not bool(tol.bad(torch.tensor(b, dtype=torch.float64), torch.tensor(a, dtype=torch.float64)))
    if type(b) is not type(a):
        return False
    with contextlib.suppress(Exception):
        return bool(b == a) or type(b).__eq__ is object.__eq__
    return True


def _plain(value: Any) -> Any:
    """FX's immutable lists and dicts, torch.Size and named results as the ordinary ones."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, dict) and type(value).__name__ in ("dict", "immutable_dict", "OrderedDict"):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _dtype(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


def _number(x: Any) -> str:
    return f"{float(x):.7g}" if x.is_floating_point() else str(x.item())


def _brief(x: Any) -> str:
    return f"a {_dtype(x)} tensor" if isinstance(x, Tensor) else repr(x)[:60]


def _shape_of(x: Any) -> str:
    if isinstance(x, Tensor):
        return "a tensor"
    if isinstance(x, (tuple, list)):
        return f"a {'tuple' if isinstance(x, tuple) else 'list'} of {len(x)}"
    if isinstance(x, dict):
        return f"a dict with {', '.join(map(repr, list(x)[:5]))}"
    return f"a {type(x).__name__}"


# ---------------------------------------------------------------------------------------------------- what is known of a graph

#: parts of the names of operations that add several numbers up
SUMS = ("conv", "linear", "mm", "matmul", "einsum", "sum", "mean", "norm", "softmax", "attention", "pool", "var", "std")
SUMS += (
    "lstm",
    "gru",
    "rnn",
    "dot",
    "interpolate",
    "loss",
    "logsumexp",
    "bilinear",
    "trapz",
    "baddbmm",
    "addmv",
    "std",
)

CASTS = ("to", "float", "half", "bfloat16", "double", "type", "type_as")


def _op_name(gm: fx.GraphModule, node: fx.Node) -> str:
    if node.op == "call_module":
        return type(gm.get_submodule(node.target)).__name__.lower()
    return str(getattr(node.target, "__name__", node.target)).lower()


def _depth(program: _Program) -> int:
    if program.opaque:
        leaves = sum(1 for m in program.module.modules() if not list(m.children())) if program.module else 0
        return max(16, leaves)
    depth: dict[fx.Node, int] = {}
    for node in program.fn.graph.nodes:
        inputs = max((depth.get(n, 0) for n in node.all_input_nodes), default=0)
        depth[node] = inputs + (node.op.startswith("call"))
    return max(1, *depth.values())


def _has_sums(program: _Program) -> bool:
    if program.opaque:
        return True
    ops = (_op_name(program.fn, n) for n in program.fn.graph.nodes if n.op.startswith("call"))
    return any(part in op or op == "__matmul__" for op in ops for part in SUMS)


def _casts(program: _Program) -> bool:
    """Does the graph name a dtype, so that float64 inputs do not make all of it float64?"""
    if program.opaque:
        return True
    for node in program.fn.graph.nodes:
        if node.op.startswith("call"):
            if node.op == "call_method" and node.target in CASTS:
                return True
            if any(isinstance(x, torch.dtype) for x in pytree.tree_leaves((node.args, node.kwargs))):
                return True
            if node.op == "call_module" and not type(program.fn.get_submodule(node.target)).__module__.startswith(
                "torch."
            ):
                return True
    return False


def _new_constants(before: _Program, after: _Program) -> int:
    """How many float tensors `after` holds that `before` does not, by value."""
    known: dict[tuple, list[Tensor]] = {}
    same = {id(t) for _, _, _, t in before.slots}
    for _, _, _, t in before.slots:
        known.setdefault((t.shape, t.dtype), []).append(t)
    count = 0
    for _, _, _, t in after.slots:
        if id(t) in same or not t.is_floating_point():
            continue
        if not any(torch.equal(t, k) for k in known.get((t.shape, t.dtype), ()) if k.device == t.device):
            count += 1
    return count


# ---------------------------------------------------------------------------------------------------- the search


@dataclass
class _Trial:
    """Inputs for both programs, and how to read what comes back."""

    name: str
    args: tuple
    dtype: torch.dtype | None
    device: str
    mode: str | None
    edge: bool = False
    seed: int = 0

    @property
    def title(self) -> str:
        extra = [
            x for x in (f"{self.mode} mode" if self.mode else "", "" if self.device == "cpu" else self.device) if x
        ]
        dtypes = sorted({_dtype(t) for t in pytree.tree_leaves(self.args) if isinstance(t, Tensor)})
        return f"{self.name} ({', '.join(dtypes + extra)})" if dtypes + extra else self.name


class _Differs(Exception):
    def __init__(
        self, sentence: str, trial: _Trial, difference: _Difference | None = None, errors: _Errors | None = None
    ):
        super().__init__(sentence)
        self.trial, self.difference, self.errors = trial, difference, errors or _Errors()


class _Search:
    def __init__(self, before, after, inputs, seed, atol, rtol, modes, devices, trials, thorough, aliasing):
        if not callable(before) and type(before).__name__ != "ExportedProgram":
            raise ValueError(f"equivalent compares programs; `before` is {type(before).__name__}.")
        self.given = (before, after)
        self.examples = _examples(before, inputs)
        self.seed, self.atol, self.rtol = seed, atol, rtol
        self.thorough, self.aliasing = thorough, aliasing
        self.modes = [None] if modes is None else list(modes)
        unknown = [x for x in trials or () if x not in TRIALS] + [m for m in modes or () if m not in ("eval", "train")]
        if unknown:
            raise ValueError(f"There is no trial or mode {unknown[0]!r}: trials are {', '.join(TRIALS)}.")
        self.wanted = trials
        self.devices = devices
        self.notes: list[str] = []
        self.done: list[str] = []
        self.errors = _Errors()
        self.writes = False

    def run(self) -> Equivalence:
        before, after = self.given
        if not callable(after) and type(after).__name__ != "ExportedProgram":
            hint = " Does the pass end with a return?" if after is None else ""
            return Equivalence(
                False, f"after is {'None' if after is None else type(after).__name__}, not a program.{hint}"
            )
        arity = self._arity()
        if arity:
            return Equivalence(False, arity)
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            stack.enter_context(_quiet_generators())
            stack.enter_context(_exact_cuda())
            try:
                self.before = _Program(before)
                self.after = _Program(after)
            except Exception as error:
                return Equivalence(False, f"after cannot be run: {_said(error)}.")
            stack.enter_context(_flags(self.before, self.after))
            self._learn()
            try:
                for trial in self._trials():
                    self._try(trial)
            except _Differs as failure:
                return self._explain(failure)
        return Equivalence(
            True,
            "",
            self.errors.mse,
            self.errors.max_abs,
            self.errors.max_ulp,
            devices=tuple(self.used),
            trials=tuple(self.done),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _arity(self) -> str | None:
        before, after = self.given
        if isinstance(before, fx.GraphModule) and isinstance(after, fx.GraphModule):
            b, a = (len(gm.graph.find_nodes(op="placeholder")) for gm in self.given)
            if b != a:
                return f"before takes {b} input{'s' * (b != 1)}, after takes {a}."
        return None

    def _learn(self) -> None:
        leaves = [t for t in pytree.tree_leaves(self.examples) if isinstance(t, Tensor)]
        home = leaves[0].device if leaves else next((t.device for *_, t in self.before.slots), torch.device("cpu"))
        self.home = str(home)
        if self.devices is None:
            present = [] if not torch.accelerator.is_available() else [str(torch.accelerator.current_accelerator())]
            self.devices = [self.home, *(d for d in present if d != home.type)]
        self.used: list[str] = []
        floats = [t.dtype for t in leaves if t.is_floating_point()]
        floats += [t.dtype for *_, t in self.before.slots if t.is_floating_point()]
        self.native = max(set(floats), key=floats.count) if floats else None
        self.depth = max(_depth(self.before), _depth(self.after))
        self.sums = _has_sums(self.before) or _has_sums(self.after)
        self.constants = _new_constants(self.before, self.after)
        self.rounds = _casts(self.before) or _casts(self.after)

    def _unit(self, trial: _Trial) -> tuple[float, float]:
        """(eps, number of roundings in a row) of a trial."""
        dtype = trial.dtype or self.native or torch.float32
        if dtype == torch.float64 and self.native not in (None, torch.float64):
            own = torch.finfo(self.native).eps
            if self.rounds:
                return own, self.depth
            if self.constants:
                return own, self.constants
        return torch.finfo(dtype).eps, self.depth

    def _tolerance(self, trial: _Trial) -> _Tolerance:
        eps, steps = self._unit(trial)
        rtol = 16 * eps * math.sqrt(steps) if self.rtol is None else self.rtol
        return _Tolerance(rtol, self.atol, self.sums)

    # ---- making trials

    def _trials(self) -> Iterable[_Trial]:
        wanted = list(self.wanted or (TRIALS if self.thorough else DEFAULT))
        if self.wanted is None and (self.before.is_compiled or self.after.is_compiled):
            wanted = ["given"]
            self.notes.append("compiled programs are tried on the given inputs only: others would compile them again")
        for m, mode in enumerate(self.modes):
            for d, device in enumerate(self.devices):
                names = wanted if m == d == 0 else [n for n in wanted if n in ("given", "double", "structured")]
                for trial in self._trials_for(names, mode, device):
                    yield trial
                    if device not in self.used:
                        self.used.append(device)

    def _trials_for(self, names: list[str], mode: str | None, device: str) -> Iterable[_Trial]:
        native, seeds = self.native, range(self.seed, self.seed + (4 if self.thorough else 1))
        self.double_runs = native is not None
        if "given" in names:
            for args in self.examples:
                yield _Trial("given", args, None, device, mode, seed=self.seed)
        args = self.examples[0]
        for seed in seeds:
            if "double" in names and self.double_runs:
                yield _Trial("double", self._random(args, seed, torch.float64), torch.float64, device, mode, seed=seed)
            if "ordinary" in names or ("double" in names and not self.double_runs):
                yield _Trial("ordinary", self._random(args, seed), None, device, mode, seed=seed)
        dtype = torch.float64 if self.double_runs else None
        has_floats = any(_is_float(t) for t in pytree.tree_leaves(args))
        for name in ("extreme", "nonfinite"):
            if name in names:
                for i in range(self._rounds(args) if has_floats else 1):
                    yield _Trial(name, self._edges(args, name, i, dtype), dtype, device, mode, True, self.seed)
        if "structured" in names and has_floats:
            kinds = range(4) if self.thorough else (1,)
            for kind in kinds:
                made = self._each_float(args, lambda t, k, kind=kind: _structured(t, k + kind))
                yield _Trial(
                    "structured", pytree.tree_map_only(Tensor, _strided, made), None, device, mode, True, self.seed
                )
        if "sizes" in names:
            yield from self._sizes(args, device, mode)
        for name, low in (("half", torch.bfloat16), ("float16", torch.float16)):
            if name in names and native is not None:
                if native == low:
                    low = torch.float32
                yield _Trial(name, self._random(args, self.seed, low), low, device, mode, seed=self.seed)
        if "same tensor" in names and self.writes:
            same = self._same(args)
            if same is not None:
                yield _Trial("same tensor", same, None, device, mode, seed=self.seed)

    def _rounds(self, args: tuple) -> int:
        """How many fills it takes until the smallest float input has seen most edge values."""
        smallest = min(t.numel() for t in pytree.tree_leaves(args) if _is_float(t))
        return max(1, min(4, math.ceil(8 / max(smallest, 1))))

    def _random(self, args: tuple, seed: int, dtype: torch.dtype | None = None) -> tuple:
        gen = torch.Generator().manual_seed(seed + 1)
        return pytree.tree_map_only(Tensor, lambda t: _draw(t, gen, dtype=dtype), args)

    def _each_float(self, args: tuple, make: Callable[[Tensor, int], Tensor]) -> tuple:
        gen, k = torch.Generator().manual_seed(self.seed + 2), iter(range(10**9))
        return pytree.tree_map_only(
            Tensor, lambda t: make(t, next(k)) if t.is_floating_point() else _draw(t, gen), args
        )

    def _edges(self, args: tuple, name: str, i: int, dtype: torch.dtype | None) -> tuple:
        def fill(t: Tensor, k: int) -> Tensor:
            to = dtype or t.dtype
            wide = to == torch.float64 and self.native != torch.float64
            values = NONFINITE if name == "nonfinite" else _extremes(to, wide or to == torch.float64)
            return _fill(t, values, k + 3 * i, to)

        return self._each_float(args, fill)

    def _sizes(self, args: tuple, device: str, mode: str | None) -> Iterable[_Trial]:
        tensors = [t for t in pytree.tree_leaves(args) if isinstance(t, Tensor) and t.dim()]
        if not tensors:
            return
        batch = tensors[0].shape[0]

        def resize(spatial: bool) -> tuple:
            gen = torch.Generator().manual_seed(self.seed + 3)

            def one(t: Tensor) -> Tensor:
                shape = list(t.shape)
                if shape and shape[0] == batch:
                    shape[0] += 1
                if spatial and len(shape) == 4:
                    shape[2:] = [shape[2] + 1, shape[3] + 3]
                return _draw(t, gen, shape)

            return pytree.tree_map_only(Tensor, one, args)

        if any(t.dim() == 4 for t in tensors):
            trial = _Trial("sizes", resize(True), None, device, mode, seed=self.seed)
            yield trial
            if trial.title in self.done:
                return
        yield _Trial("sizes", resize(False), None, device, mode, seed=self.seed)

    def _same(self, args: tuple) -> tuple | None:
        for i, t in enumerate(args):
            for j in range(i):
                s = args[j]
                if isinstance(t, Tensor) and isinstance(s, Tensor) and s.shape == t.shape and s.dtype == t.dtype:
                    return tuple(s if k == i else x for k, x in enumerate(args))
        return None

    # ---- trying

    def _run(self, program: _Program, trial: _Trial, args: tuple | None = None, jitter: float = 0.0) -> _Run:
        training = {"eval": False, "train": True}.get(trial.mode)
        if training is None and self.before.module is not None:
            flags = {m.training for m in self.before.module.modules()}
            training = flags.pop() if len(flags) == 1 else None
        if training is not None and program.module is not None:
            for m in program.module.modules():
                m.training = training
        copies = _copy(trial.args if args is None else args, trial.device)
        device = trial.device.split(":")[0]
        return program.run(copies, trial.dtype, device, trial.seed, jitter)

    def _try(self, trial: _Trial) -> None:
        b = self._run(self.before, trial)
        if b.error is not None:
            if trial.name == "given":
                raise ValueError(
                    f"equivalent cannot compare: `before` itself fails on the inputs given: {_said(b.error)}."
                ) from b.error
            if trial.name == "double":
                self.double_runs = False
            self.notes.append(f"{trial.title}: left out, before does not accept it")
            return
        a = self._run(self.after, trial)
        if a.error is not None:
            raise _Differs(f"after fails where before does not: {_said(a.error)}", trial)
        self.done.append(trial.title)
        tol, errors = self._tolerance(trial), _Errors()
        differences = _compare(b.output, a.output, tol, "output", errors)
        differences += self._written(trial, b, a, tol)
        differences += self._state(b, a, tol)
        hard = [d for d in differences if not d.soft]
        if not hard and differences:
            hard = self._excuse(trial, b, a, differences)
        if trial.dtype is None:
            self.errors.worst(errors)
        if hard:
            raise _Differs(hard[0].sentence, trial, hard[0], errors)
        if not torch.equal(b.rng, a.rng):
            raise _Differs(self._drew(trial, b, a), trial, _Difference("rng", part="rng"), errors)
        self._alias(trial, b, a, errors)

    def _written(self, trial: _Trial, b: _Run, a: _Run, tol: _Tolerance) -> list[_Difference]:
        found = []
        names = _names(self.given[0], len(trial.args))
        pristine = _copy(trial.args, trial.device)
        for name, old, x, y in zip(names, pristine, b.inputs, a.inputs, strict=True):
            exact = _Tolerance(0.0, 0.0, False)
            b_wrote, a_wrote = bool(_compare(old, x, exact, name)), bool(_compare(old, y, exact, name))
            self.writes |= b_wrote or a_wrote
            if b_wrote and not a_wrote:
                found.append(_Difference(f"before writes into its input {name} in place, after leaves it as it was"))
            elif a_wrote and not b_wrote:
                found.append(_Difference(f"after writes into its input {name} in place, before leaves it as it was"))
            elif b_wrote:
                found += _compare(x, y, tol, f"what is written into the input {name}")
        return found

    def _state(self, b: _Run, a: _Run, tol: _Tolerance) -> list[_Difference]:
        found = []
        for program, run in ((self.before, b), (self.after, a)):
            originals = {path: t for path, _, _, t in program.slots}
            for path in [p for p, t in run.state.items() if _unchanged(originals[p], t)]:
                del run.state[path]
        for path in [*b.state, *(p for p in a.state if p not in b.state)]:
            if path not in a.state:
                found.append(_Difference(f"before updates {path} when it runs, after does not"))
            elif path not in b.state:
                found.append(_Difference(f"after updates {path} when it runs, before does not"))
            else:
                found += _compare(b.state[path], a.state[path], tol, f"the update of {path}")
        return found

    def _excuse(self, trial: _Trial, b: _Run, a: _Run, differences: list[_Difference]) -> list[_Difference]:
        """Rule 3: what is left of the differences once elements that rounding alone moves as far are set aside."""
        eps, _ = self._unit(trial)
        for k in range(2):
            gen = torch.Generator().manual_seed(k)

            def nudge(t: Tensor, gen=gen) -> Tensor:
                noise = 2 * torch.rand(t.shape, generator=gen, dtype=torch.float64) - 1
                return (t.double().cpu() * (1 + 4 * eps * noise)).to(t.dtype) if t.is_floating_point() else t

            args = trial.args if trial.edge else pytree.tree_map_only(Tensor, nudge, trial.args)
            moved = self._run(self.before, trial, args, jitter=4 * eps)
            values = [pytree.tree_leaves(_plain(run.output)) for run in (b, a, moved)]
            for d in differences:
                if d.part == "output" and moved.error is None:
                    x, y, z = (v[d.leaf] for v in values)
                    if x.shape == z.shape:
                        d.bad = d.bad & _steady(_wide(x), _wide(y), _wide(z))
        return [d for d in differences if d.bad.any()]

    def _drew(self, trial: _Trial, b: _Run, a: _Run) -> str:
        idle = torch.Generator().manual_seed(trial.seed).get_state()
        if torch.equal(a.rng, idle):
            return "before draws random numbers, after draws none: whatever draws next gets other numbers"
        if torch.equal(b.rng, idle):
            return "after draws random numbers, before draws none: whatever draws next gets other numbers"
        return "before and after draw different amounts of random numbers: whatever draws next gets other numbers"

    def _alias(self, trial: _Trial, b: _Run, a: _Run, errors: _Errors) -> None:
        if b.aliases == a.aliases or self.aliasing is False:
            return
        names = _names(self.given[0], len(trial.args))

        def say(who: str, i: int, home: str) -> str:
            if home.startswith("input ") and int(home[6:]) < len(names):
                home = f"its input {names[int(home[6:])]}"
            return f"output {i} of {who} shares memory with {home}, the other program returns a new tensor"

        new = [say("after", *x) for x in a.aliases if x not in b.aliases]
        new += [say("before", *x) for x in b.aliases if x not in a.aliases]
        if self.aliasing or self.writes:
            raise _Differs(new[0], trial, _Difference(new[0], part="alias"), errors)
        self.notes.append(new[0])

    # ---- explaining

    def _explain(self, failure: _Differs) -> Equivalence:
        trial = failure.trial
        names = _names(self.given[0], len(trial.args))
        result = Equivalence(
            False,
            f"On {trial.title} inputs {failure}.",
            failure.errors.mse,
            failure.errors.max_abs,
            failure.errors.max_ulp,
            counterexample=dict(zip(names, _copy(trial.args), strict=True)),
            devices=tuple(self.used or [trial.device]),
            trials=(*self.done, *([trial.title] if trial.title not in self.done else [])),
            notes=tuple(dict.fromkeys(self.notes)),
        )
        return result


def _unchanged(old: Tensor, new: Tensor) -> bool:
    if old.shape != new.shape:
        return False
    return torch.equal(old.to(new.device, new.dtype), new)


def _said(error: Exception) -> str:
    text = str(error).strip().split("\n")[0][:160]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextlib.contextmanager
def _quiet_generators():
    """Leave every random generator as it was."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextlib.contextmanager
def _exact_cuda():
    """No TF32 while comparing: it rounds float32 products to 10 bits."""
    if not torch.cuda.is_available():
        yield
        return
    old = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = old


@contextlib.contextmanager
def _flags(*programs: _Program):
    """Put the training flags back, module by module."""
    saved = [(m, m.training) for p in programs if p.module is not None for m in p.module.modules()]
    try:
        yield
    finally:
        for m, training in saved:
            m.training = training
