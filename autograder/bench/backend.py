"""`make bench`, part backend: forward and backward of the zoo behind torch.compile, beside eager and Inductor."""

from __future__ import annotations

import copy
import operator
import shutil
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from autograder.bench.figures import Figure, apart, at_most, interleave, not_measured

#: How often forward and backward run, by turns.
ROUNDS = 9


def backend(largest: int) -> Iterator[Figure | str]:
    yield from apart(behind, largest)


def behind(largest: int, only: Sequence[str] = ()) -> Iterator[Figure | str]:
    """Launches, bytes and time of forward and backward behind torch.compile, and of eager, for each network.

    Times are CPU time on one thread, medians of runs that take turns. only: names.
    """
    import torch

    from passlab.models import ZOO

    torch.set_num_threads(1)
    rows: list[dict[str, float]] = []
    for name in only or ZOO:
        yield f"{name}: compiling"
        model = ZOO[name].build().requires_grad_(True)
        inputs = ZOO[name].inputs()
        rows.append({})
        for figure in network(name, model, inputs):
            if isinstance(figure, Figure) and figure.value is not None:
                rows[-1][figure.what.partition(": ")[2]] = figure.value
            yield figure
    for column, limit in (("launches over eager's", 0.5), ("bytes over eager's", 0.7)):
        reached = sum(row.get(column, 9) <= limit for row in rows)
        yield Figure(f"networks with {column} at most {limit}", f"{reached} of {len(rows)}", value=reached)


def network(name: str, model: Any, inputs: tuple) -> Iterator[Figure | str]:
    import torch

    from passlab.capstone import training

    backends = {"kernels": training.reference(), "program": training.built()}
    steps: dict[str, Callable[[], list]] = {"eager": partial(step, model, model, inputs)}
    results = {"eager": steps["eager"]()}
    eager = of_eager(steps["eager"])
    for backend, function in backends.items():
        torch.compiler.reset()
        compiled = torch.compile(model, backend=function)
        steps[backend] = partial(step, compiled, model, inputs)
        results[backend] = steps[backend]()
        yield f"{name}: {backend} compiled"
    exact = in_float64(model, inputs)
    error = apart_by(exact, results["eager"])
    for backend in ("kernels", "program"):
        base = f"of the largest number, beside float64; eager's {error:.2g}"
        yield at_most(f"{name}: {backend}, error", apart_by(exact, results[backend]), max(1e-3, 2 * error), "", base)
    stages = backends["kernels"].stages
    if eager[1] <= COMPARED:
        yield f"{name}: comparing the graphs"
        yield from same(name, stages)
    yield from quantities(name, eager, stages)
    if reason := why_not_inductor():
        yield not_measured(f"{name}: time of Inductor", reason)
    else:
        torch.compiler.reset()
        inductor = torch.compile(model)
        yield f"{name}: Inductor"
        steps["Inductor"] = partial(step, inductor, model, inputs)
        steps["Inductor"]()
        for backend, function in backends.items():  # the reset has dropped them
            steps[backend] = partial(step, torch.compile(model, backend=function), model, inputs)
            steps[backend]()
    yield f"{name}: timing"
    seconds = interleave({backend: partial(_prepared, run) for backend, run in steps.items()}, ROUNDS, median)
    shown = ", ".join(f"{backend} {value * 1e3:.3g} ms" for backend, value in seconds.items())
    spent = where(backends["kernels"].stages[:2])
    for backend in ("kernels", "program"):
        for other in ("eager", "Inductor"):
            if other in seconds:
                ratio = seconds[backend] / seconds[other]
                loses = f"; {shares(seconds['kernels'], spent)}" if ratio > 1 else ""
                yield Figure(f"{name}: time of {backend} over {other}'s", f"{ratio:.3g}x", shown + loses, value=ratio)


def quantities(name: str, eager: Sequence[int], stages: Sequence[Any]) -> Iterator[Figure]:
    """Yield launches and bytes of a network's two graphs beside eager's, and what no kernels avoid."""
    own = [sum(counts) for counts in zip(*(of_stage(stage.after) for stage in stages), strict=True)]
    for at, quantity, limit in ((0, "launches", 0.5), (1, "bytes", 0.7)):
        calls = own[at + 2]
        base = f"{own[at]:,} of {eager[at]:,}; {calls / eager[at]:.2f} in matrix products and convolutions"
        if quantity == "bytes":
            alone, any_cut = least(stages) / eager[at], least(stages, saved=False) / eager[at]
            base += f"; inputs and results of the two graphs alone {alone:.2f}, with nothing saved {any_cut:.2f}"
            base += "; with these products and convolutions as calls no kernels move less than "
            base += f"{fewest_bytes(stages) / eager[at]:.2f}"
        else:
            base += "; " + ", ".join(f"{number} {kind}" for kind, number in kinds(stages).items())
            base += f"; with these products and convolutions as calls no kernels are fewer than {fewest(stages)}"
        yield at_most(f"{name}: {quantity} over eager's", own[at] / eager[at], limit, "", base)
        rest = max(1, eager[at] - eager[at + 2])
        others = (own[at] - calls) / rest
        base = f"{own[at] - calls:,} of {rest:,}"
        yield at_most(
            f"{name}: {quantity} over eager's, all but matrix products and convolutions", others, limit, "", base
        )


def shares(seconds: float, spent: dict[str, float]) -> str:
    """Return the shares of the time of a step with kernels, the largest first, which is where it loses.

    spent: what the nodes of the graphs take, by kind. The rest is outside of them: guards, autograd, calls of graphs.
    """
    inside = sum(spent.values())
    parts = {"outside the nodes": max(0.0, seconds - inside), **spent}
    total = max(seconds, inside)
    largest = sorted(parts.items(), key=lambda part: -part[1])
    return "of the time with kernels " + ", ".join(f"{value / total:.0%} {kind}" for kind, value in largest)


#: The bytes that a step of eager moves in the networks whose graphs are compared by `equivalent`.
COMPARED = 2**20


def same(name: str, stages: Sequence[Any]) -> Iterator[Figure | str]:
    """Whether each graph computes the same as before the passes, on finite numbers."""
    from passlab import equivalent

    for stage in stages:
        outcome = equivalent(stage.before, stage.after, trials=("given", "ordinary", "extreme"))
        title = f"{name}: the {stage.kind} graph computes what it did"
        yield at_most(title, int(not outcome), 0, "", "by `equivalent`" if outcome else str(outcome)[:200])


def kinds(stages: Sequence[Any]) -> Counter[str]:
    """Return what the launches of the graphs after the passes are: kind → how many."""
    from passlab.measure import bytes_moved

    number: Counter[str] = Counter()
    for stage in stages:
        launched = bytes_moved(stage.after).detail
        number.update(_kind(stage.after, node) for node in stage.after.graph.nodes if node.name in launched)
    return number


def fewest(stages: Sequence[Any]) -> int:
    """Return the launches that no kernels avoid, with the products and convolutions that are calls of the library.

    A kernel cannot go on beyond a call that reads its results: on one path, operations between two calls are a launch.
    """
    return sum(sum(map(is_library, stage.after.graph.nodes)) + _alternations(stage) for stage in stages)


def _alternations(stage: Any) -> int:
    """Return the most launches besides library calls on one path of a graph, each between two calls or at an end."""
    from torch import fx

    from passlab.capstone.training import PASSES, fuse, is_free

    copy = fx.Graph()
    copy.output(copy.graph_copy(stage.before.graph, {}))
    gm = fx.GraphModule(stage.before, copy)
    for rewrite in PASSES:
        gm = gm if rewrite is fuse else rewrite(gm) or gm
    library = {node.name for node in stage.after.graph.nodes if is_library(node)}
    paths: dict[Any, tuple[int, bool]] = {}  # node → the most launches on a path to it, and whether the last one ended
    for node in gm.graph.nodes:
        paths[node] = launches, ended = max((paths[operand] for operand in node.all_input_nodes), default=(0, True))
        if node.name in library:
            paths[node] = launches, True
        elif node.op == "call_function" and not is_free(node):
            paths[node] = launches + ended, False
    return max(launches for launches, _ in paths.values())


def _kind(gm: Any, node: Any) -> str:
    from passlab.kernels.groups import example_inputs
    from passlab.kernels.primitives import primitives, reduces

    if node.op != "call_module":
        return "matrix products and convolutions" if is_library(node) else "other operations"
    part = gm.get_submodule(node.target).gm
    program = primitives(part, example_inputs(part))
    return "kernels that reduce" if reduces(program) else "kernels without a reduction"


def least(stages: Sequence[Any], saved: bool = True) -> int:
    """Return the bytes of what graphs are given and return, which any kernels would move.

    saved: whether what the forward graph saves for the backward graph counts, but for weights and inputs; another cut
    saves other values. Without, no cut and no kernel moves less.
    """
    from passlab.autodiff.partition import memory

    graphs = [stage.after if saved else stage.before for stage in stages]
    backward = [node.name for stage in stages if stage.kind == "backward" for node in _inputs(stage.before)]
    between = set() if saved else {name for name in backward if not name.startswith(("primals", "tangents"))}
    total = 0
    for gm in graphs:
        (output,) = gm.graph.find_nodes(op="output")
        places = {node.name for node in gm.graph.find_nodes(op="placeholder")}
        read = filter(None, (memory(node) for node in _inputs(gm) if node.name not in between))
        written = filter(None, (memory(node) for node in output.all_input_nodes if node.name not in between))
        values = dict(read) | {name: size for name, size in written if name not in places}
        total += sum(values.values())
    return total


def fewest_bytes(stages: Sequence[Any]) -> int:
    """Return the bytes that no kernels avoid, with the products and convolutions that are calls of the library.

    These read their operands and write their results. What else reads an input of a graph or a result of a call reads
    it once at least, and what is no such result, but is returned or an operand of a call, is written once.
    """
    return sum(of_stage(stage.after)[3] + sum(_between(stage.after).values()) for stage in stages)


def _between(gm: Any) -> dict[tuple[str, str], int]:
    """Return ("read" or "written", memory) → bytes of what passes between all but the library's calls and the rest."""
    from passlab.autodiff.partition import memory
    from passlab.fx.effects import viewed

    nodes = {node.name: node for node in gm.graph.nodes}

    def elsewhere(name: str) -> bool:
        node = nodes[name]
        whole = node.all_input_nodes[0] if node.target is operator.getitem else node
        return node.op == "placeholder" or is_library(whole)

    moved = {}
    for node in gm.graph.nodes:
        if viewed(node) is not None or node.op == "placeholder":
            continue
        for name, size in filter(None, map(memory, node.all_input_nodes)):
            if is_library(node) or node.op == "output":
                if not elsewhere(name):
                    moved["written", name] = size
            elif elsewhere(name):
                moved["read", name] = size
    return moved


def _inputs(gm: Any) -> list:
    """Return the inputs of a graph that it reads, and not only returns."""
    places = gm.graph.find_nodes(op="placeholder")
    return [node for node in places if any(user.op != "output" for user in node.users)]


def _prepared(run: Callable[[], list]) -> Callable[[], list]:
    return run


def where(stages: Sequence[Any]) -> dict[str, float]:
    """Return what the nodes of graphs with kernels spend their CPU time on: how many of a kind → seconds, medians."""
    import torch
    from torch import fx

    from passlab.kernels import Kernel

    class Watch(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            begin = time.process_time()
            value = super().run_node(node)
            took[node].append(time.process_time() - begin)
            return value

    seconds: dict[str, float] = defaultdict(float)
    number: Counter[str] = Counter()
    took: dict[Any, list[float]] = {}
    for stage in stages:
        took = {node: [] for node in stage.after.graph.nodes}
        with torch.no_grad():
            for _ in range(ROUNDS):
                Watch(stage.after).run(*numbers(stage.after))
        for node, all_of in took.items():
            kind = "other operations and views"
            if node.op == "call_module" and isinstance(stage.after.get_submodule(node.target), Kernel):
                kind = "kernels"
            elif is_library(node):
                kind = "matrix products and convolutions"
            if node.op.startswith("call_"):
                seconds[kind] += median(all_of)
                number[kind] += 1
    return {f"in {number[kind]} {kind}": seconds[kind] for kind in seconds}


def numbers(gm: Any) -> list:
    """Return inputs for a graph: floats around 1, of which every root and quotient is finite, and zeros elsewhere."""
    import torch

    values = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    inputs = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype).zero_() for v in values]
    return [t.uniform_(0.5, 1.5) if t.is_floating_point() else t for t in inputs]


def is_library(node: Any) -> bool:
    """Return whether a node is a matrix product or a convolution."""
    from passlab.fx.nodes import name_of

    return node.op == "call_function" and name_of(node.target) in LIBRARY


def step(f: Callable, model: Any, inputs: tuple) -> list:
    """Return the result and the gradients of one step of training, from a given gradient of the result."""
    import torch

    model.zero_grad(set_to_none=True)
    y = f(*inputs)
    y.backward(torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype))
    return [y.detach(), *(parameter.grad for parameter in model.parameters())]


def in_float64(model: Any, inputs: tuple) -> list:
    """Return what `step` does, computed in float64."""
    import torch

    wide = copy.deepcopy(model).to(torch.float64)
    return step(wide, wide, tuple(x.double() if x.is_floating_point() else x for x in inputs))


def apart_by(expected: list, results: list) -> float:
    """Return the largest difference, over the largest number of that tensor."""
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in zip(results, expected, strict=True)
    )


def of_eager(run: Callable[[], Any]) -> tuple[int, int, int, int]:
    """Return launches and bytes of a run, and those of its matrix products and convolutions, as `of_stage` does."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    moved: list[tuple[str, int]] = []

    def memory(tensor: torch.Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def size(tensors: list[torch.Tensor]) -> int:
        return sum(t.numel() * t.element_size() for t in {id(t): t for t in tensors}.values())

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            out = func(*args, **(kwargs or {}))
            reads, results = (
                [t for t in tree_leaves(at) if isinstance(t, torch.Tensor)] for at in ((args, kwargs), out)
            )
            fresh = [t for t in results if memory(t) not in set(map(memory, reads))]
            if func._schema.is_mutable or (fresh and "empty" not in func._schema.name):
                written = fresh or results
                moved.append((func._schema.name.removeprefix("aten::"), size(reads) + size(written)))
            return out

    with Watch():
        run()
    library = [count for name, count in moved if name in LIBRARY]
    own = [(name, count) for name, count in moved if name not in OUTSIDE]
    return len(own), sum(count for _, count in own), len(library), sum(library)


def of_stage(gm: Any) -> tuple[int, int, int, int]:
    """Return launches and bytes of a graph, and those of its matrix products and convolutions."""
    from passlab.measure import bytes_moved, cost

    moved, started = bytes_moved(gm).detail, cost(gm).launches
    library = {node.name for node in gm.graph.nodes if is_library(node)}
    own = {name: count for name, count in moved.items() if name in library}
    return started, sum(moved.values()), len(own), sum(own.values())


#: What `step` itself calls, before the backward pass.
OUTSIDE = {"linspace"}
LIBRARY = {"mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward"}


def why_not_inductor() -> str:
    """Return why Inductor cannot compile for the CPU here, or ""."""
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        return "Inductor needs a C++ compiler"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return "Inductor needs the headers of Python"
    return ""
