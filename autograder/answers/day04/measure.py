"""Hidden cases and answers of day04.measure.

Most wrong answers are the reference with one term changed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day04.measure import MACHINE, measure_case
from passlab.judge import Case, cases_in

# ---------------------------------------------------------------------------------------------------- hidden cases


def drawn_graph(seed: int, size: int) -> Callable:
    """Return a function of a matrix, a row and a weight: element-wise operations, sums, a product at times."""

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
    """Return calls that follow each other as groups; some stay alone. Unused calls are in none."""
    groups: list[list[str]] = [[]]
    for node in gm.graph.nodes:
        if node.op.startswith("call_"):
            if rng.random() < 0.3:
                groups.append([])
            groups[-1].append(node.name)
    return [group for group in groups if len(group) > 1]


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


def batched(x, y, weight):
    return torch.matmul(torch.matmul(x, y), weight)


def backwards(x, row):
    return 1.0 / (row - x)


def named(x, row):
    return torch.add(input=torch.abs(x), other=row).sigmoid()


def all_named(x, weight):
    return torch.mean(input=torch.matmul(other=weight, input=x), dim=-1)


def over_any(x):
    return torch.sum(x * 2.0), torch.amax(x, 0), torch.mean(x, (0, 1))


def vectors(x, column, row):
    return torch.matmul(x, column) * 2.0, torch.matmul(row, row) + 1.0


def of_types(x, weights, counts):
    return torch.where(counts > 2, torch.relu(x), weights), weights * 2.0


def mixed_kernels(x, weight):
    return torch.abs(torch.matmul(x, weight)) * 2.0


def broadcast_batches(x, y, many):
    return torch.matmul(x, y), torch.matmul(many, y)


def read_by_unused(x):
    torch.exp(x * 2.0)
    return torch.relu(x)


def in_a_dict(x):
    y = torch.abs(x * 2.0)
    return {"y": y, "more": [y, torch.exp(y)]}


def read_outside_first(x):
    y = torch.abs(x)
    return torch.exp(y), torch.relu(y)


SLOW = {"bandwidth": 2e9, "flops": 5e8, "launch": 1e-6}
FAST = {"bandwidth": 2e12, "flops": 6e13, "launch": 4e-6}
EVEN = {"bandwidth": 1e10, "flops": 1e10, "launch": 1e-9}  # as many operations as bytes take the same time
LEVEL = {"bandwidth": 8e9, "flops": 3e9, "launch": 1e-6}  # its ridge is the intensity of `steps` in one kernel


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.choice((24, 40, 72)), rng.choice((17, 33, 65))

    def drawn(number: int, machine: dict) -> Case:
        draw, chosen = rng.randrange(10**6), rng.randrange(10**6)
        name, function = f"drawn, number {number + 1}", drawn_graph(draw, 8)

        def groups(gm: fx.GraphModule) -> list[list[str]]:
            return runs_of(random.Random(chosen), gm)

        return measure_case(name, function, [(n, m), (m,), (m, m)], groups, machine)

    return [
        *cases_in(__name__),
        measure_case("a norm by hand", means, [(n, m)], [("mean", "sub"), ("mul", "mean_1", "add", "rsqrt", "mul_1")]),
        measure_case("a gate", gate, [(2 * n, m), (m, n), (n,)], [("add", "sigmoid", "mul")], SLOW),
        measure_case("products of a batch", batched, [(3, n, m), (3, m, 5), (5, n)], [("matmul", "matmul_1")]),
        measure_case("a small operand comes first", backwards, [(n, m), (m,)], [("sub", "truediv")]),
        measure_case("operands by name", named, [(n, m), (m,)], [("abs_1", "add")]),
        measure_case("products and means by name", all_named, [(n, m), (m, 9)], [("matmul", "mean")]),
        measure_case("sums over any dimensions", over_any, [(n, m)], [("mul", "sum_1"), ("amax", "mean")]),
        measure_case("products of vectors", vectors, [(n, m), (m,), (m,)], [("matmul", "mul")]),
        measure_case(
            "tensors of three types and bool",
            of_types,
            [((n, m), torch.float16), ((n, m), torch.float64), ((m,), torch.int64)],
            [("gt", "where")],
            EVEN,
        ),
        measure_case("one kernel computes, one moves", mixed_kernels, [(n, 512), (512, m)], [("abs_1", "mul")], EVEN),
        measure_case("no groups", gate, [(n, m), (m, n), (n,)], [], FAST),
        measure_case("unused values", unread, [(n, m)], [("mul", "abs_1")], unread=True),
        measure_case("on the ridge", steps, [(n, m)], [("mul", "add", "relu")], LEVEL),
        measure_case("no elements", steps, [(0, m)], [("mul", "add")]),
        measure_case(
            "a matrix, and a batch of one, times a batch", broadcast_batches, [(n, m), (3, m, 5), (1, n, m)], []
        ),
        measure_case("a row and a column", lambda x, y: torch.exp(x * y), [(n, 1), (m,)], [("mul", "exp")]),
        measure_case("a value that only an unused call reads", read_by_unused, [(n, m)], [], unread=True),
        measure_case("a group in another order", lambda x: torch.sum(torch.exp(x), -1), [(n, m)], [("sum_1", "exp")]),
        measure_case("read outside, then inside", read_outside_first, [(n, m)], [("abs_1", "relu")]),
        measure_case("results in a dict, one of them twice", in_a_dict, [(n, m)], [("mul", "abs_1")]),
        measure_case("no calls", lambda x: x, [(n,)], []),
        *(drawn(number, machine) for number, machine in enumerate((MACHINE, SLOW, FAST))),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _numel(node):
    return node.meta["tensor_meta"].shape.numel()


def _size(node):
    return _numel(node) * node.meta["tensor_meta"].dtype.itemsize


def _ops(node):
    first = node.args[0] if node.args else node.kwargs["input"]
    if node.target is torch.matmul:
        return 2 * first.meta["tensor_meta"].shape[-1] * _numel(node)
    return _numel(first if node.target in (torch.sum, torch.mean, torch.amax) else node)


def _moved(kernel):
    read = {a for node in kernel for a in node.all_input_nodes if a not in kernel}
    written = {node for node in kernel if any(user not in kernel for user in node.users)}
    return sum(map(_size, read | written))


def _by_edges(gm, groups, machine, read=lambda node, user: node.name):
    """Price by the edges of the graph. `read`: the key under which a kernel has an operand; each key is read once."""

    def row(home):
        moved, operations = defaultdict(dict), defaultdict(int)
        for node in gm.graph.nodes:
            if node.name in home:
                operations[home[node.name]] += _ops(node)
            for user in node.users:
                target, source = home.get(user.name), home.get(node.name)
                if source != target:
                    moved[source][node.name] = _size(node)
                    moved[target][read(node, user)] = _size(node)
        moved.pop(None, None)  # what is in no kernel: inputs and the output
        nbytes = {kernel: sum(sizes.values()) for kernel, sizes in moved.items()}
        total, flops = sum(nbytes.values()), sum(operations.values())
        times = [max(nbytes[k] / machine["bandwidth"], operations[k] / machine["flops"]) for k in operations]
        return {
            "launches": len(operations),
            "bytes": total,
            "flops": flops,
            "intensity": flops / max(total, 1),
            "seconds": len(operations) * machine["launch"] + sum(times),
            "roof": "compute" if total and flops * machine["bandwidth"] >= total * machine["flops"] else "memory",
        }

    alone = {node.name: node.name for node in gm.graph.nodes if node.op.startswith("call_")}
    return {"before": row(alone), "after": row(alone | {name: k for k, group in enumerate(groups) for name in group})}


@right("goes through the edges of the graph once for each way of grouping, with a number for each node's kernel")
def by_edges(gm, groups, machine):
    return _by_edges(gm, groups, machine)


@right("prices all calls alone, and takes off what each group saves")
def by_savings(gm, groups, machine):
    before = by_edges(gm, [], machine)["before"]
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
    return _by_edges(gm, groups, machine, read=lambda node, user: (node.name, user.name))


operands_by_position = edited("did", "reads operands given by position, but none given by name")(
    ("node.all_input_nodes", "node.args"),
    ("operand not in kernel", "isinstance(operand, fx.Node) and operand not in kernel"),
)
broadcast_in_full = edited("did", "a broadcast operand is read as often as the result has elements")(
    (
        "sum(nbytes_of(node) for node in read | written)",
        "sum(map(nbytes_of, written)) + sum(max(nbytes_of(n) for n in [node, *node.users]"
        " if n is node or n in kernel and n.target is not torch.matmul) for node in read)",
    )
)
writes_everything = edited("did", "a kernel writes all that it computes, also what stays inside")(
    ("{node for node in kernel if any(user not in kernel for user in node.users)}", "set(kernel)")
)
writes_the_last = edited("did", "a kernel writes only its last value, although others are read outside")(
    ("{node for node in kernel if any(user not in kernel for user in node.users)}", "{kernel[-1]}")
)
four_bytes = edited("did", "every number takes four bytes")(("meta.dtype.itemsize", "4"))
arithmetic_only = edited("spared", "a comparison is no operation: only arithmetic counts")(
    ("return elements", 'return 0 if node.meta["tensor_meta"].dtype == torch.bool else elements'),
)
groups_only = edited("did", "counts the groups only: calls in no group are left out")(
    ("row(together, machine)", 'row(together, machine) | {"launches": len(groups)}')
)
half_a_product = edited("spared", "multiplying and adding is one operation: a product has k, not 2·k")(
    ("2 * ....shape[-1]", "....shape[-1]")
)
no_batch = edited(
    "spared", "takes the sizes of a batch's product where a matrix has them, or counts one product out of the batch"
)(("return ... * elements", 'elements = math.prod(node.meta["tensor_meta"].shape[-2:])\nreturn ... * elements'))
cheap_sums = edited("spared", "a sum does one operation per element that it writes")(
    ("(torch.sum, torch.mean, torch.amax)", "()")
)
along_the_rows = edited("spared", "takes each sum for one along the last dimension")(
    (
        'if node.target in (torch.sum, torch.mean, torch.amax):\n    return first.meta["tensor_meta"].shape.numel()',
        "if node.target in (torch.sum, torch.mean, torch.amax):\n"
        '    return elements * first.meta["tensor_meta"].shape[-1]',
    )
)
of_matrices = edited("spared", "takes each product for one of matrices: m·k·n from the shapes of the operands")(
    (
        'return 2 * first.meta["tensor_meta"].shape[-1] * elements',
        'sizes = [a.meta["tensor_meta"].shape for a in (first, *node.args[1:], *node.kwargs.values())]\n'
        "return 2 * sizes[0].numel() * sizes[1][-1]",
    )
)


@wrong("spared", "takes the first of the operands that it finds for the left one, whatever its name")
def first_found(gm, groups, machine):
    table = by_edges(gm, groups, machine)
    for node in gm.graph.find_nodes(op="call_function", target=torch.matmul):
        left = node.all_input_nodes[0].meta["tensor_meta"].shape
        extra = 2 * left[-1] * _numel(node) - _ops(node)
        table["before"]["flops"] += extra
        table["after"]["flops"] += extra
    return table


batch_of_the_left = edited("spared", "takes the batch of a product from its left operand")(
    (
        "return 2 * ....shape[-1] * elements",
        'left, right = (a.meta["tensor_meta"].shape for a in (first, node.args[1] if len(node.args) > 1 else '
        'node.kwargs["other"]))\n'
        "return 2 * left.numel() * (right[-1] if len(right) > 1 else 1)",
    )
)
largest_operand = edited("spared", "an element-wise call has as many elements as its largest operand")(
    (
        "return elements",
        'return max(a.meta["tensor_meta"].shape.numel() for a in node.all_input_nodes)',
    )
)
unused_readers = edited("did", "does not write what only unused calls read")(
    ("user not in kernel", "user not in kernel and (user.users or user.op == 'output')")
)
last_by_name = edited("did", "where a kernel has one result, takes the last name of the group for it")(
    (
        "sum(nbytes_of(node) for node in read | written)",
        "sum(nbytes_of(n) for n in read | ({kernel[-1]} if len(written) == 1 else written))",
    )
)
last_reader = edited("did", "asks only the last reader of a value if it is outside")(
    ("any(user not in kernel for user in node.users)", "any(user not in kernel for user in [*node.users][-1:])")
)
results_in_a_tuple = edited("did", "finds results in a tuple or alone, and not in a dict")(
    (
        "any(user not in kernel for user in node.users)",
        'any(user not in kernel and (user.op != "output" or user.args[0] is node or node in tuple(user.args[0]))'
        " for user in node.users)",
    )
)
overlapping_kernels = edited("cost", "the longer of all bytes and all operations, as if kernels overlapped")(
    (
        "sum(... for nbytes, flops in each)",
        'machine["launch"] * len(each) + max(moved / machine["bandwidth"], done / machine["flops"])',
    )
)
one_after_the_other = edited("cost", "first all bytes are moved, then the operations are done")(
    ('machine["launch"] + ...', 'machine["launch"] + nbytes / machine["bandwidth"] + flops / machine["flops"]')
)
upside_down = edited("cost", "swaps the roofs: high intensity means bound by memory")(
    ("intensity < ...", "intensity >= ...")
)
divides_by_nothing = edited("valid", "divides by the bytes, also where none moves")(("... if moved else 0.0", "..."))
