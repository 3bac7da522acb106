"""Hidden cases and answers of day04.measure.

A small pricing of kernels with a term of it exchanged.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import fx

from autograder.authoring.answers import right, wrong
from passlab.exercises.day04.measure import MACHINE, measure_case
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def drawn_graph(seed: int, size: int) -> Callable:
    """A function of a matrix, a row and a weight: element-wise operations, sums, a product at times."""

    def function(x, row, weight):
        rng = random.Random(seed)
        wide, narrow = [x], []
        for _ in range(size):
            a = rng.choice(wide[-3:])
            kind = rng.choice(("one", "two", "row", "sum", "narrow", "product"))
            if kind == "sum":
                narrow.append(rng.choice((torch.sum, torch.mean, torch.amax))(a, -1, True))
            elif kind == "product":
                wide.append(torch.matmul(a, weight))
            elif kind == "two":
                wide.append(a * rng.choice(wide))
            elif kind == "narrow" and narrow:
                wide.append(a - narrow.pop())
            elif kind == "row":
                wide.append(a + row)
            else:
                wide.append(rng.choice((torch.exp, torch.relu, torch.tanh))(a))
        for unread in narrow:
            wide[-1] = wide[-1] / unread
        ends = [v for v in wide[1:-1] if rng.random() < 0.2]
        return (*ends, wide[-1] * 2.0)

    return function


def runs_of(rng: random.Random, gm: fx.GraphModule) -> list[list[str]]:
    """Calls that follow each other as groups; some stay alone. What nobody reads is in none."""
    groups: list[list[str]] = [[]]
    for node in gm.graph.nodes:
        if node.op.startswith("call_"):
            if rng.random() < 0.3:
                groups.append([])
            groups[-1].append(node.name)
    return [group for group in groups if len(group) > 1]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.choice((24, 40, 72)), rng.choice((17, 33, 65))

    def drawn(number: int, machine: dict) -> Case:
        draw, chosen = rng.randrange(10**6), rng.randrange(10**6)
        name, function = f"drawn, number {number + 1}", drawn_graph(draw, 8)

        def groups(gm: fx.GraphModule) -> list[list[str]]:
            return runs_of(random.Random(chosen), gm)

        return measure_case(name, function, [(n, m), (m,), (m, m)], groups, machine)

    def gate(x, weight, bias):
        y = torch.matmul(x, weight)
        return y * torch.sigmoid(y + bias)

    def means(x):
        centred = x - torch.mean(x, -1, True)
        return centred * torch.rsqrt(torch.mean(centred * centred, -1, True) + 1e-5), centred

    def unread(x):
        y = x * 2.0
        torch.abs(y), torch.exp(y)
        return torch.relu(y)

    def steps(x):
        return torch.relu(x * 2.0 + 1.0)

    slow = {"bandwidth": 2e9, "flops": 5e8, "launch": 1e-6}
    fast = {"bandwidth": 2e12, "flops": 6e13, "launch": 4e-6}
    level = {"bandwidth": 8e9, "flops": 3e9, "launch": 1e-6}  # its ridge is the intensity of `steps` in one kernel
    return [
        measure_case("a norm by hand", means, [(n, m)], [("mean", "sub"), ("mul", "mean_1", "add", "rsqrt", "mul_1")]),
        measure_case("a gate", gate, [(2 * n, m), (m, n), (n,)], [("add", "sigmoid", "mul")], slow),
        measure_case("no groups", gate, [(n, m), (m, n), (n,)], [], fast),
        measure_case("values that nobody reads", unread, [(n, m)], [("mul", "abs_1")], unread=True),
        measure_case("on the ridge", steps, [(n, m)], [("mul", "add", "relu")], level),
        measure_case("no elements", steps, [(0, m)], [("mul", "add")]),
        measure_case("no calls", lambda x: x, [(n,)], []),
        *(drawn(number, machine) for number, machine in enumerate((MACHINE, slow, fast))),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _numel(node):
    return node.meta["tensor_meta"].shape.numel()


def _size(node, kernel=None):
    return _numel(node) * node.meta["tensor_meta"].dtype.itemsize


def _ops(node):
    if node.target is torch.matmul:
        return 2 * node.args[0].meta["tensor_meta"].shape[-1] * _numel(node)
    return _numel(node.args[0] if node.target in (torch.sum, torch.mean, torch.amax) else node)


def _moved(kernel, size=_size):
    read = {a for node in kernel for a in node.all_input_nodes if a not in kernel}
    written = {node for node in kernel if any(user not in kernel for user in node.users)}
    return sum(size(node, kernel) for node in read | written)


def _seconds(moved, done, machine):
    pairs = zip(moved, done, strict=True)
    return sum(machine["launch"] + max(b / machine["bandwidth"], f / machine["flops"]) for b, f in pairs)


def _intensity(moved, done):
    return sum(done) / sum(moved) if any(moved) else 0.0


def _roof(moved, done, machine):
    return "memory" if _intensity(moved, done) < machine["flops"] / machine["bandwidth"] else "compute"


def _measure(gm, groups, machine, moved_by=_moved, ops=_ops, seconds=_seconds, roof=_roof, counted=None):
    nodes = {node.name: node for node in gm.graph.nodes}
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    together = [[nodes[name] for name in group] for group in groups]
    inside = list(itertools.chain(*together))
    rows = {}
    for name, kernels in (
        ("before", [[node] for node in calls]),
        ("after", together + [[node] for node in calls if node not in inside]),
    ):
        moved = [moved_by(kernel) for kernel in kernels]
        done = [sum(map(ops, kernel)) if counted is None else counted(kernel) for kernel in kernels]
        rows[name] = {
            "launches": len(kernels),
            "bytes": sum(moved),
            "flops": sum(done),
            "intensity": _intensity(moved, done),
            "seconds": seconds(moved, done, machine),
            "roof": roof(moved, done, machine),
        }
    return rows


@right("goes through the edges of the graph once for each way of grouping, with a number for each node's kernel")
def by_edges(gm, groups, machine):
    def row(home):
        moved, done = defaultdict(dict), defaultdict(int)
        for node in gm.graph.nodes:
            if node.name in home:
                done[home[node.name]] += _ops(node)
            for user in node.users:
                there, here = home.get(user.name), home.get(node.name)
                if here != there:
                    for kernel in (here, there):
                        if kernel is not None:
                            moved[kernel][node.name] = _size(node)
        nbytes = {kernel: sum(sizes.values()) for kernel, sizes in moved.items()}
        total, flops = sum(nbytes.values()), sum(done.values())
        times = [max(nbytes[k] / machine["bandwidth"], done[k] / machine["flops"]) for k in done]
        return {
            "launches": len(done),
            "bytes": total,
            "flops": flops,
            "intensity": flops / max(total, 1),
            "seconds": len(done) * machine["launch"] + sum(times),
            "roof": "compute" if total and flops * machine["bandwidth"] >= total * machine["flops"] else "memory",
        }

    alone = {node.name: node.name for node in gm.graph.nodes if node.op.startswith("call_")}
    return {"before": row(alone), "after": row(alone | {name: k for k, group in enumerate(groups) for name in group})}


@right("prices all calls alone, and takes off what each group saves")
def by_savings(gm, groups, machine):
    before = _measure(gm, [], machine)["before"]
    nodes = {node.name: node for node in gm.graph.nodes}
    after = dict(before)

    def bound(kernel):
        return max(_moved(kernel) / machine["bandwidth"], sum(map(_ops, kernel)) / machine["flops"])

    for group in groups:
        members = [nodes[name] for name in group]
        after["launches"] -= len(members) - 1
        after["bytes"] -= sum(_moved([node]) for node in members) - _moved(members)
        after["seconds"] -= sum(machine["launch"] + bound([node]) for node in members)
        after["seconds"] += machine["launch"] + bound(members)
    after["intensity"] = after["flops"] / after["bytes"] if after["bytes"] else 0.0
    after["roof"] = "memory" if after["intensity"] < machine["flops"] / machine["bandwidth"] else "compute"
    return {"before": before, "after": after}


@wrong("did", "an operand that two operations of a kernel read is read twice")
def every_read(gm, groups, machine):
    def moved(kernel):
        read = [a for node in kernel for a in node.all_input_nodes if a not in kernel]
        written = [node for node in kernel if any(user not in kernel for user in node.users)]
        return sum(map(_size, read + written))

    return _measure(gm, groups, machine, moved_by=moved)


@wrong("did", "a broadcast operand is read as often as the result has elements")
def broadcast_in_full(gm, groups, machine):
    def size(node, kernel):
        reads = [user for user in node.users if user in kernel and user.target is not torch.matmul]
        largest = max([_numel(node), *(_numel(user) for user in reads)]) if node not in kernel else _numel(node)
        return largest * node.meta["tensor_meta"].dtype.itemsize

    return _measure(gm, groups, machine, moved_by=lambda kernel: _moved(kernel, size))


@wrong("did", "a kernel writes all that it computes, also what stays inside")
def writes_everything(gm, groups, machine):
    def moved(kernel):
        read = {a for node in kernel for a in node.all_input_nodes if a not in kernel}
        return sum(map(_size, read | set(kernel)))

    return _measure(gm, groups, machine, moved_by=moved)


@wrong("did", "a kernel writes what is not read inside it, also what nobody reads")
def writes_the_unread(gm, groups, machine):
    def moved(kernel):
        read = {a for node in kernel for a in node.all_input_nodes if a not in kernel}
        written = {node for node in kernel if not node.users or any(user not in kernel for user in node.users)}
        return sum(map(_size, read | written))

    return _measure(gm, groups, machine, moved_by=moved)


@wrong("did", "a kernel writes its last value, whoever reads the others")
def writes_the_last(gm, groups, machine):
    def moved(kernel):
        read = {a for node in kernel for a in node.all_input_nodes if a not in kernel}
        return sum(map(_size, read | {kernel[-1]}))

    return _measure(gm, groups, machine, moved_by=moved)


@wrong("did", "every number takes four bytes")
def four_bytes(gm, groups, machine):
    return _measure(gm, groups, machine, moved_by=lambda kernel: _moved(kernel, lambda node, _: 4 * _numel(node)))


@wrong("did", "counts the groups only: what is in none is no kernel")
def groups_only(gm, groups, machine):
    rows = _measure(gm, groups, machine)
    rows["after"]["launches"] = len(groups)
    return rows


@wrong("spared", "a fused kernel does the operations of its last call alone")
def fewer_operations(gm, groups, machine):
    return _measure(gm, groups, machine, counted=lambda kernel: _ops(kernel[-1]))


@wrong("spared", "multiplying and adding is one operation: a product has k, not 2·k")
def half_a_product(gm, groups, machine):
    def ops(node):
        return _ops(node) // 2 if node.target is torch.matmul else _ops(node)

    return _measure(gm, groups, machine, ops=ops)


@wrong("spared", "a sum does an operation for each element that it writes")
def cheap_sums(gm, groups, machine):
    return _measure(gm, groups, machine, ops=lambda n: _ops(n) if n.target is torch.matmul else _numel(n))


@wrong("cost", "first all bytes are moved, then the operations are done")
def one_after_the_other(gm, groups, machine):
    def seconds(moved, done, machine):
        return len(moved) * machine["launch"] + sum(moved) / machine["bandwidth"] + sum(done) / machine["flops"]

    return _measure(gm, groups, machine, seconds=seconds)


@wrong("cost", "one maximum over the whole program, as if the kernels ran at the same time")
def one_maximum(gm, groups, machine):
    def seconds(moved, done, machine):
        return len(moved) * machine["launch"] + max(sum(moved) / machine["bandwidth"], sum(done) / machine["flops"])

    return _measure(gm, groups, machine, seconds=seconds)


@wrong("cost", "forgets that kernels have to be started")
def no_launches(gm, groups, machine):
    return _measure(gm, groups, machine | {"launch": 0.0})


@wrong("cost", "names the roof the wrong way round: much intensity, much memory")
def upside_down(gm, groups, machine):
    other = {"memory": "compute", "compute": "memory"}
    return _measure(gm, groups, machine, roof=lambda *given: other[_roof(*given)])


@wrong("cost", "at the ridge itself memory still decides")
def memory_at_the_ridge(gm, groups, machine):
    def roof(moved, done, machine):
        return "memory" if _intensity(moved, done) <= machine["flops"] / machine["bandwidth"] else "compute"

    return _measure(gm, groups, machine, roof=roof)


@wrong("cost", "where no byte moves the intensity has no bound, and so the operations decide")
def endless_intensity(gm, groups, machine):
    rows = _measure(gm, groups, machine)
    for row in rows.values():
        if not row["bytes"]:
            row.update(intensity=float("inf"), roof="compute")
    return rows


@wrong("valid", "divides by the bytes, also where none moves")
def divides_by_nothing(gm, groups, machine):
    rows = _measure(gm, groups, machine)
    for row in rows.values():
        row["intensity"] = row["flops"] / row["bytes"]
    return rows


@wrong("valid", "a pair of rows instead of a dictionary")
def a_pair(gm, groups, machine):
    return tuple(_measure(gm, groups, machine).values())
