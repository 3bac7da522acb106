"""Run a program without changing it: on copies of its inputs, parameters and buffers.

program = Program(gm)
run = program.run(inputs, seed=0)        # run.output, run.inputs, run.state, run.rng, run.aliases, run.error
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from passlab.equivalence.values import identical, nudge, unusual
from passlab.fx import isolation

#: Larger tensors count as written if their version counter moved (batch norm's statistics do not move theirs).
_SMALL = 10_000
#: Device → the number of runs that gave a result, in this process or on its behalf.
RUNS: Counter[str] = Counter()


@dataclass
class Trace:
    """A record of one run: each node's value at that moment, and the nodes that moved the random generator or wrote."""

    graph: fx.Graph
    values: dict[str, Any] = field(default_factory=dict)
    draws: list[tuple[str, Tensor]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    failed: str | None = None


@dataclass
class Run:
    """The result of one run.

    `inputs`: the arguments after the run. `state`: parameters and buffers the run has written, path → new value.
    `rng`: the state of the random generator afterwards; `drew`: whether it moved. `aliases`: (number of an output, the
    name of the value that shares its memory). `trace`: of the nodes, for a traced run.
    """

    output: Any = None
    inputs: tuple = ()
    state: dict[str, Tensor] = field(default_factory=dict)
    rng: Tensor | None = None
    drew: bool = False
    aliases: list[tuple[int, str]] = field(default_factory=list)
    error: BaseException | None = None
    trace: Trace | None = None


class _Tracer(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule, trace: Trace, device: str):
        super().__init__(gm)
        self.extra_traceback = False
        self.trace, self.device, self.state = trace, device, rng_state(device)

    def run_node(self, n: fx.Node) -> Any:
        self.trace.failed = n.name
        if n.op == "placeholder":
            value = super().run_node(n)
        else:
            operands = [self.env[i] for i in n.all_input_nodes if isinstance(self.env[i], Tensor)]
            versions = [t._version for t in operands]
            value = super().run_node(n)
            if any(t._version != v for t, v in zip(operands, versions, strict=True)):
                self.trace.writes.append(n.name)
        state = rng_state(self.device)
        if not torch.equal(state, self.state):
            self.trace.draws.append((n.name, state))
            self.state = state
        # A copy, since a later operation may write into it.
        self.trace.values[n.name] = pytree.tree_map_only(Tensor, lambda t: t.detach().clone(), value)
        self.trace.failed = None
        return value


class Program:
    """A callable with its parameters and buffers. A run replaces them by copies and puts them back.

    `isolated`: whether it must not run in this process, so that `run` has another one do it.
    """

    def __init__(self, fn: Any, largest: float = math.inf):
        """`largest`: a graph of more nodes is not checked for edits since it was compiled."""
        self.exported = type(fn).__name__ == "ExportedProgram"
        self.isolated = isolation.is_marked(fn)
        self.fn = fn if self.isolated else current(fn, largest)
        self.module = self.fn if isinstance(self.fn, nn.Module) else None
        self.graph = self.fn.graph if isinstance(self.fn, fx.GraphModule) else None
        self.slots: list[tuple[str, dict, str, Tensor]] = []  # path, the dict that holds it, its key there, the tensor
        self.rnns: list[nn.Module] = []
        self._copies: dict[tuple, list[Tensor]] = {}
        self.scripted = isinstance(self.fn, torch.jit.ScriptModule)
        for path, m in self.module.named_modules() if self.module is not None and not self.scripted else ():
            if isinstance(getattr(m, "_flat_weights_names", None), list):
                self.rnns.append(m)
            for home in (m._parameters, m._buffers, m.__dict__):
                for key, t in home.items():
                    if isinstance(t, Tensor):
                        self.slots.append((f"{path}.{key}".lstrip("."), home, key, t))

    @property
    def specialized(self) -> bool:
        """Return whether it is made for one dtype, size and layout of its inputs (scripted and exported programs)."""
        return self.scripted or self.exported or hasattr(self.fn, "_guards_fn")

    @property
    def compiled(self) -> bool:
        return hasattr(self.fn, "_orig_mod") or hasattr(self.fn, "_torchdynamo_orig_callable")

    def run(
        self,
        args: tuple,
        seed: int = 0,
        *,
        dtype: torch.dtype | None = None,
        device: str = "cpu",
        jitter: float = 0.0,
        training: bool | None = None,
        traced: bool = False,
    ) -> Run:
        """Call the program on a copy of `args`, after seeding the random generators.

        `dtype`: convert float parameters and buffers to it. `jitter`: move parameters by up to this
        relative amount. `training`: the mode to put all modules in; None leaves each in its own. `traced`: run a graph
        node by node and record their values. An exception that the program raises is kept in `error`.
        """
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        options |= {"jitter": jitter, "training": training, "traced": traced}
        elsewhere = self.isolated or (device != "cpu" and device == isolation.device())
        result = isolation.run(self, args, seed, **options) if elsewhere else self.run_here(args, seed, **options)
        RUNS[device] += result.error is None
        return result

    def run_here(self, args: tuple, seed: int, *, device: str, **options: Any) -> Run:
        """Do what `run` does, in this process.

        After a failed assertion or an index out of range a process cannot use its GPU any more. So a program whose
        tensors are on the CPU runs there first, and on a GPU only if that succeeds.
        """
        tensors = [*pytree.tree_leaves(args), *(slot[-1] for slot in self.slots)]
        if is_accelerator(device) and all(t.device.type == "cpu" for t in tensors if isinstance(t, Tensor)):
            run = self._run_once(args, seed, device="cpu", **options)
            if run.error is not None:
                return run
        return self._run_once(args, seed, device=device, **options)

    def _run_once(
        self,
        args: tuple,
        seed: int,
        *,
        dtype: torch.dtype | None,
        device: str,
        jitter: float,
        training: bool | None,
        traced: bool,
    ) -> Run:
        if training is not None and self.module is not None:
            for m in self.module.modules():
                m.training = training
        args = copy_inputs(args, device)
        copies = self._state(dtype, device, jitter)
        versions = [t._version for t in copies]
        result = Run(inputs=args, trace=Trace(self.graph) if traced else None)
        self._put(copies)
        try:
            seed_generators(seed)
            start = rng_state(device)
            # New tensors are created on the inputs' device.
            with torch.no_grad(), contextlib.nullcontext() if device == "cpu" else torch.device(device):
                call = _Tracer(self.fn, result.trace, device).run if traced else partial(_call, self.fn)
                result.output = call(*args)
        except (Exception, SystemExit) as error:
            result.error = error
        finally:
            result.rng = rng_state(device)
            result.drew = not torch.equal(result.rng, start)
            for (path, home, key, original), t, version in zip(self.slots, copies, versions, strict=True):
                tensor = home.get(key)
                touched = tensor is not t or tensor._version != version
                if isinstance(tensor, Tensor) and not jitter and (touched or tensor.numel() <= _SMALL):
                    changed = not _equal(original, tensor)
                    if changed:
                        result.state[path] = tensor
                    if changed or touched:
                        self._copies.pop((dtype, device), None)
            self._put(t for *_, t in self.slots)
        if result.error is None:
            result.aliases = _aliases(result.output, args, [(s[0], t) for s, t in zip(self.slots, copies, strict=True)])
        return result

    def _state(self, dtype: torch.dtype | None, device: str, jitter: float) -> list[Tensor]:
        if (dtype, device) in self._copies and not jitter:
            return self._copies[dtype, device]
        copy_of: dict[int, Tensor] = {}  # a tensor in two places gets one copy
        for *_, t in self.slots:
            if id(t) not in copy_of:
                copy_of[id(t)] = _recast(t, dtype, device, jitter)
        copies = [copy_of[id(t)] for *_, t in self.slots]
        if not jitter:
            self._copies[dtype, device] = copies
        return copies

    def _put(self, tensors: Iterable[Tensor]) -> None:
        for (_, home, key, _), t in zip(self.slots, tensors, strict=True):
            home[key] = t
        for m in self.rnns:  # they keep a second list of their weights
            m.__dict__["_flat_weights"] = [getattr(m, n, None) for n in m._flat_weights_names]


def is_accelerator(device: str) -> bool:
    """Return whether a device is one that a process can lose, such as a GPU."""
    return torch.device(device).type not in ("cpu", "meta")


def current(fn: Any, largest: float = math.inf) -> Any:
    """Return the program that a graph's nodes describe: edits count even without `recompile()`.

    The check costs several runs of the graph; one with more nodes than `largest` is taken as it is.
    """
    if type(fn).__name__ == "ExportedProgram":
        return fn.module()
    if isinstance(fn, torch.jit.ScriptModule):  # its tensors cannot be replaced, so all of it is copied
        return copy.deepcopy(fn)
    if not isinstance(fn, fx.GraphModule) or len(fn.graph.nodes) > largest:
        return fn
    if fn.graph.python_code("self").src != fn.code:
        program = fx.GraphModule(fn, fn.graph)
        program.training = fn.training
        program.meta.update(fn.meta)
        return program
    return fn


def _call(fn: Callable, *args: Any) -> Any:
    # A GraphModule's own __call__ prints where it failed; here a failure is a result.
    return nn.Module.__call__(fn, *args) if isinstance(fn, fx.GraphModule) else fn(*args)


def copy_inputs(args: Any, device: str = "cpu") -> Any:
    """Copy nested inputs with the same strides; tensors that share memory share it in the copy, too."""
    storages: dict[int, Any] = {}
    copies: dict[int, Tensor] = {}
    kind = torch.device(device).type

    def copied(t: Tensor) -> Tensor:
        rare = type(t) is not Tensor or t.layout != torch.strided or t.is_conj() or t.is_neg() or unusual(t)
        if rare or t.device.type != kind:
            if id(t) not in copies:
                copies[id(t)] = t.detach().to(device, copy=True)
            return copies[id(t)]
        storage = t.untyped_storage()
        key = storage.data_ptr()
        if key not in storages or not key:
            storages[key] = storage.clone()
        return t.new_empty(0).set_(storages[key], t.storage_offset(), t.size(), t.stride())

    if type(args) is tuple and all(type(a) is Tensor for a in args):
        return tuple(copied(a) for a in args)
    return pytree.tree_map_only(Tensor, copied, args)


def to_device(value: Any, device: str) -> Any:
    """Return tensors and modules in nested containers on a device; a module is moved in place."""

    def move(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.to(device)
        if isinstance(part, nn.Module):
            part.to(device)
            for module in part.modules():
                for name, value in vars(module).items():
                    if isinstance(value, Tensor):  # a constant that is not a buffer
                        setattr(module, name, value.to(device))
            if isinstance(part, fx.GraphModule) and "inputs" in part.meta:
                part.meta["inputs"] = to_device(part.meta["inputs"], device)
        return part

    return pytree.tree_map(move, value)


def _recast(t: Tensor, dtype: torch.dtype | None, device: str, jitter: float) -> Tensor:
    to = dtype if dtype is not None and t.is_floating_point() else t.dtype
    if dtype == torch.float64 and t.is_complex():
        to = torch.complex128
    result = t.detach().to(device, to, copy=True)
    if jitter and result.is_floating_point():
        result = nudge(result, jitter, torch.Generator().manual_seed(0))
    return nn.Parameter(result, requires_grad=t.requires_grad) if type(t) is nn.Parameter else result


def _equal(old: Tensor, new: Tensor) -> bool:
    return identical(old.detach().to(new.device, new.dtype), new.detach())


def _aliases(output: Any, args: tuple, state: list[tuple[str, Tensor]]) -> list[tuple[int, str]]:
    def memory(t: Any) -> int:
        strided = isinstance(t, Tensor) and t.layout == torch.strided and t.numel() and not t.is_meta
        return t.untyped_storage().data_ptr() if strided else 0

    outputs = [memory(t) for t in pytree.tree_leaves(output)]
    if not any(outputs):
        return []
    homes = {memory(t): path for path, t in state}
    homes |= {memory(t): f"input {i}" for i, a in enumerate(args) for t in pytree.tree_leaves(a)}
    return [(i, homes[at]) for i, at in enumerate(outputs) if at and at in homes]


@contextlib.contextmanager
def needing_gradients(module: nn.Module) -> Iterator[None]:
    """Let all parameters of a module need a gradient, and put them back."""
    flags = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    module.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def seed_generators(seed: int) -> None:
    """Do `torch.manual_seed` without its search for missing devices."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def rng_state(device: str = "cpu") -> Tensor:
    """Return the state of the generator that random operations on `device` draw from."""
    if device.startswith(("cpu", "meta")):
        return torch.get_rng_state()
    return torch.get_device_module(device).get_rng_state()


@contextlib.contextmanager
def preserve_state(*programs: Program):
    """Restore what runs change outside a program's tensors: random generators, training flags, TF32 (off inside)."""
    flags = [(m, m.training) for p in programs if p.module is not None for m in p.module.modules()]
    cuda = torch.cuda.is_available()
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn) if cuda else ()
    tf32 = [b.allow_tf32 for b in backends]
    try:
        for b in backends:
            b.allow_tf32 = False  # it rounds float32 products to 10 bits
        # A GPU that nothing has used yet has no generator to restore, and a process that forks must not touch it.
        used = cuda and torch.cuda.is_initialized()
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if used else []):
            yield
    finally:
        for b, old in zip(backends, tf32, strict=True):
            b.allow_tf32 = old
        for m, training in flags:
            m.training = training
