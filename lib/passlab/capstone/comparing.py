"""Compare a compiled model with its graph: its results, and its speed.

    print(differing(compiled, inputs) or "the same")
    seconds_by_turns(compiled, before, inputs, rounds)

A kernel, a program with layouts and a built program each run in a process of their own if they may not run here
(`passlab.fx.isolation`). That process has the compiler's data and the inputs, but no expected results: the comparison,
and the clock, are on this side.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from passlab.capstone import library, triton
from passlab.capstone.building import Group, TritonStep, build, check_kernel, device_of, gpus, lower
from passlab.capstone.compiled import BadCompiled, Compiled, on
from passlab.capstone.triton import Triton
from passlab.equivalence.values import EXACT, Tolerance, compare
from passlab.fx.isolation import Process, ProcessLostError, confined, process_for, stateful
from passlab.fx.programs import copy_inputs, to_device

#: Inputs of a kernel besides the values of a run. Without infinities, on which torch's own operators disagree.
_SPECIAL = (1.0, math.nan, -2.0, 0.0, 0.5)
#: Tolerance for a program on a GPU, where torch lets convolutions round to ten bits.
_ON_GPU = Tolerance(2**-10)
#: Settings of glibc's mallopt, from <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
#: Seconds of CPU time in a round of timing, at least: a message with inputs and outputs takes one or two milliseconds.
_ROUND = 0.03

# ------------------------------------------------------------------------------------------------ the same function?


def differing(compiled: Compiled, inputs: Sequence[Any], device: str = "cpu") -> str:
    """Return how kernels and layouts differ from the graph, or "". Raises BadCompiled, ProcessLostError.

    Each group with a kernel that Triton can run, on a GPU or by its interpreter, runs both ways, on its inputs in a run
    and with NaN in them. On a GPU the program is built and compared, too. device: where all this runs, unless the
    inputs are on a GPU already.
    """
    device = str(device_of(inputs)) if device_of(inputs).type != "cpu" else device
    if compiled.kernels:
        groups = _reply(group_results(compiled, inputs, device), "groups", dict)
        kernels = _reply(kernel_results(compiled, inputs, groups, device), "kernels", dict)
        for head, runs in groups.items():
            if reason := _kernel_differs(head, runs, kernels.get(head)):
                return reason
    on_gpu = torch.device(device).type == "cuda"
    if not compiled.layouts and not on_gpu:
        return ""
    expected = _reply(results(compiled, inputs, device, "graph"), "output")
    exact = _ON_GPU if on_gpu else Tolerance.of(torch.float32, len(compiled.graph.graph.nodes))
    for variant, place in (("stored", "With its layouts"), ("built", f"On {device}")):
        if (variant == "stored" and not compiled.layouts) or (variant == "built" and not on_gpu):
            continue
        if differences := compare(expected, _reply(results(compiled, inputs, device, variant), "output"), exact):
            return f"{place} the program returns something else than its graph: {differences[0].sentence}."
    return ""


def _kernel_differs(head: str, groups: list, kernels: object) -> str:
    """Return how the runs of a kernel differ from those of its group, or "". Untrusted: other processes' data."""
    if type(kernels) is not list or len(kernels) != len(groups):
        raise ProcessLostError(f"the kernel of {head} gave no results")
    for (inputs, expected, nodes), (after, outputs) in zip(groups, kernels, strict=True):
        if compare(inputs, after, EXACT):
            return f"The Triton kernel of {head} writes into a tensor that it only reads."
        dtype = next((t.dtype for t in tree_leaves(expected) if t.is_floating_point()), torch.float32)
        if differences := compare(expected, outputs, Tolerance.of(dtype, nodes), "its result"):
            text = differences[0].sentence.replace(" before and ", " by torch and ").replace(" after", " by the kernel")
            return f"The Triton kernel of {head} computes something else than its group: {text}."
    return ""


def _reply(reply: Mapping[str, Any], field: str, kind: type = object) -> Any:
    """Return a field of a reply. Raises BadCompiled for a "broken" reply, ProcessLostError for a missing field."""
    if broken := reply.get("broken"):
        raise BadCompiled(str(broken))
    if field not in reply or not isinstance(reply[field], kind):
        raise ProcessLostError("the process that ran it gave no results")
    return reply[field]


def _copies_on(compiled: Compiled, inputs: Sequence[Any], device: str) -> tuple[Compiled, tuple]:
    """Return copies of both on a device, since a run may write into them."""
    graph = copy.deepcopy(compiled.graph)
    if device_of(inputs).type == torch.device(device).type:
        return replace(compiled, graph=graph), copy_inputs(tuple(inputs), device)
    return on(device, replace(compiled, graph=graph)), to_device(copy_inputs(tuple(inputs)), device)


def _back(value: Any) -> Any:
    """Return results on the CPU."""
    return tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), value)


@confined
def results(compiled: Compiled, inputs: Sequence[Any], device: str, variant: str) -> dict:
    """Return the "output" of one run of the "graph", of it "stored" by its layouts, or of the program "built"."""
    compiled, inputs = _copies_on(compiled, inputs, device)
    try:
        if variant == "built":
            program = build(compiled, inputs)
        elif variant == "stored":
            program = lower(compiled, inputs, lambda part, nodes, match, head: Group(part, nodes[-1].name))
        else:
            program = compiled.graph
        return {"output": _back(_seed_and_call(program, inputs))}
    except BadCompiled as error:
        return {"broken": str(error)}


@confined
def group_results(compiled: Compiled, inputs: Sequence[Any], device: str) -> dict:
    """Return as "groups" the inputs and results, by torch, of each group with a kernel that Triton can run there.

    Name of its first node → [inputs, results, number of nodes] twice, the second time with NaN among the numbers.
    """
    compiled, inputs = _copies_on(compiled, inputs, device)
    runs: dict[str, list] = {}
    try:
        _seed_and_call(
            lower(compiled, inputs, _choose(compiled, device, lambda *group: _Witness(runs, *group))), inputs
        )
    except BadCompiled as error:
        return {"broken": str(error)}
    return {"groups": _back(runs)}


@confined
def kernel_results(compiled: Compiled, inputs: Sequence[Any], groups: Mapping[str, list], device: str) -> dict:
    """Return as "kernels" each kernel's results on the inputs in `groups`, and these afterwards: [inputs, results]."""
    compiled, inputs = _copies_on(compiled, inputs, device)
    ran: dict[str, list] = {}

    def run(part: fx.GraphModule, name: str, head: str, kernel: Triton) -> nn.Module:
        step = TritonStep(part, name, head, kernel)
        for arguments, _, _ in groups.get(head, ()):
            arguments = to_device(copy_inputs(arguments), device)
            outputs = step(*arguments)
            ran.setdefault(head, []).append([arguments, outputs])
        return Group(part, name)

    try:
        with torch.no_grad():
            lower(compiled, inputs, _choose(compiled, device, run))
    except BadCompiled as error:
        return {"broken": str(error)}
    return {"kernels": _back(ran)}


def _choose(compiled: Compiled, device: str, make: Callable[[fx.GraphModule, str, str, Triton], nn.Module]) -> Callable:
    """Return a factory of steps for `lower`: it uses `make` for kernels that Triton can run on the device."""
    target, budget = torch.device(device), triton.MOST_PROGRAMS

    def step(part: fx.GraphModule, nodes: list[fx.Node], match: library.Epilogue | None, head: str) -> nn.Module:
        nonlocal budget
        name, kernel = nodes[-1].name, compiled.kernels.get(head)
        if kernel is None or not triton.runs_on(target):
            return Group(part, name)
        check_kernel(part, head, kernel)
        if target.type == "cpu":
            values = [node.meta.get("val") for node in part.graph.nodes]
            if kernel.programs > budget or any(getattr(value, "dtype", None) == torch.bfloat16 for value in values):
                return Group(part, name)
            budget -= kernel.programs
        return make(part, name, head, kernel)

    return step


class _Witness(Group):
    """A group that records its inputs and results."""

    def __init__(self, runs: dict[str, list], part: fx.GraphModule, name: str, head: str, kernel: Triton):
        super().__init__(part, name)
        self.runs = runs.setdefault(head, [])

    def forward(self, *inputs: Any) -> Any:
        if not any(isinstance(x, FakeTensor) for x in inputs):
            for arguments in (inputs, tree_map_only(torch.Tensor, _special, inputs)):
                arguments = list(tree_map_only(torch.Tensor, torch.clone, arguments))
                self.runs.append([arguments, self.gm(*arguments), len(self.gm.graph.nodes)])
        return super().forward(*inputs)


def _special(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        return x
    numbers = torch.tensor(_SPECIAL, dtype=x.dtype, device=x.device)
    return numbers[torch.arange(x.numel(), device=x.device) % len(_SPECIAL)].reshape(x.shape)


def _seed_and_call(call: Callable, inputs: Sequence[Any]) -> Any:
    with torch.no_grad(), torch.random.fork_rng(devices=gpus(device_of(inputs))):
        torch.manual_seed(0)
        return call(*inputs)


# ------------------------------------------------------------------------------------------------ how fast?


def seconds_by_turns(compiled: Compiled, before: fx.GraphModule, inputs: Sequence[Any], rounds: int) -> dict[str, Any]:
    """Return the seconds of CPU time of a call of the graph, "eager", and of the program, "mine": one for each round.

    Each side has a process of its own, whose time the kernel counts. In a round both get the same new inputs, and must
    return their outputs: "differs" is where the program's differ from the graph's, or "".

    Raises BadCompiled, ProcessLostError.
    """
    times: dict[str, list[float]] = {"eager": [], "mine": []}
    tolerance = Tolerance.of(torch.float32, len(compiled.graph.graph.nodes))
    with process_for(compiled.graph) as eager, process_for(compiled.graph) as own_process:
        sides = {"eager": eager, "mine": own_process}
        _reply({"done": True} | eager.call(prepare, Compiled(before), inputs, True), "done")
        _reply({"done": True} | own_process.call(prepare, compiled, inputs, False), "done")
        counts = {
            name: max(1, int(_ROUND / max(_timed(side, inputs, 10)[0] / 10, 1e-6))) for name, side in sides.items()
        }
        for _ in range(rounds):
            shuffled = tree_map_only(torch.Tensor, _shuffled, tuple(inputs))
            outputs = {}
            for name, side in sides.items():
                took, outputs[name] = _timed(side, shuffled, counts[name])
                times[name].append(took / counts[name])
            if differences := compare(outputs["eager"], outputs["mine"], tolerance):
                differs = f"While it is timed, the program returns something else: {differences[0].sentence}."
                return times | {"differs": differs}
    return times | {"differs": ""}


def _timed(process: Process, inputs: Sequence[Any], count: int) -> tuple[float, Any]:
    """Return the seconds of `count` calls, including all other work of the process, and the last call's output."""
    start = process.seconds()
    output = _reply(process.call(repeat, inputs, count), "output")
    return process.seconds() - start, output


def _shuffled(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same numbers in another order, laid out in the same way."""
    order = torch.from_numpy(np.random.default_rng().permutation(x.numel()))
    return torch.empty_like(x).copy_(x.flatten()[order].reshape(x.shape))


@stateful
def prepare(state: dict, compiled: Compiled, inputs: Sequence[Any], as_it_is: bool) -> dict:
    """Build a program for `repeat`, or take the graph `as_it_is`. Return why it cannot be built as "broken"."""
    keep_memory()
    inputs = tuple(inputs)
    try:
        state["call"] = call = compiled.graph if as_it_is else build(compiled, inputs, parallel=False)
    except BadCompiled as error:
        return {"broken": str(error)}
    with torch.no_grad(), one_thread():
        for _ in range(3):
            call(*inputs)
    return {}


@stateful
def repeat(state: dict, inputs: Sequence[Any], count: int) -> dict:
    """Call what `prepare` has built `count` times, and return the "output" of the last call."""
    with torch.no_grad(), one_thread():
        for _ in range(count):
            output = state["call"](*inputs)
    return {"output": output}


def keep_memory() -> None:
    """Keep the memory that this process frees, if its C library can.

    Otherwise glibc returns the memory of large tensors to the system, or not, depending on earlier frees, and eager's
    time varies threefold with the faults of new pages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for setting in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD) if mallopt else ():
        mallopt(setting, 2**30)


@contextlib.contextmanager
def one_thread():
    """Limit torch to one thread: several wait for each other on a busy machine, and waiting costs CPU time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
