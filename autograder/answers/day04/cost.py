"""Hidden cases and answers of day04.cost.

Most wrong answers leave out or change one term of a model.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from autograder.authoring.answers import edited, plain, right, wrong
from passlab.exercises.day04.cost import DEAR as FUNCTIONS
from passlab.exercises.day04.cost import (
    MACHINE,
    Choice,
    Kernel,
    Situation,
    centred_and_read,
    centred_by_powers,
    chained,
    cost_case,
    element_wise,
    into_product,
    many_alive,
    plain_bytes,
    plain_pairs,
    plain_situations,
    situations,
    to_three,
    turned,
)
from passlab.judge import Case, core

# ---------------------------------------------------------------------------------------------------- hidden cases


def doubled(rungs: int, n: int) -> Situation:
    """Return a ladder, relu(x) + x again and again: fused, each rung computes the one below it twice."""

    def function(x: Any) -> Any:
        for _ in range(rungs):
            x = torch.relu(x) + x
        return x

    singles = element_wise(rungs, n) + (Kernel(12 * n, n),) * rungs
    fused = (Kernel(8 * n, 2 * (2**rungs - 1) * n, alive=2, elements=n),)
    return Situation(f"a ladder of {rungs} rungs", function, ((n,),), (), singles, fused)


def to_many(count: int, n: int) -> Situation:
    """Return a chain of `count` cheap operations that as many others read: each of their kernels computes it."""

    def function(x: Any) -> Any:
        for _ in range(count):
            x = torch.abs(x)
        return tuple(torch.neg(x) for _ in range(count))

    def name(of: str, at: int) -> str:
        return f"{of}_{at}" if at else of

    chain = tuple(name("abs", at + 1) for at in range(count))
    groups = tuple((*chain, name("neg", at)) for at in range(count))
    fused = (Kernel(8 * n, (count + 1) * n),) * count
    title = f"a chain of {count} with {count} consumers"
    return Situation(title, function, ((n,),), groups, element_wise(2 * count, n), fused)


#: Kernels start and move at once, and a step for each of 20,000 elements takes as long as a launch.
COMPUTING = MACHINE | {"launch": 1e-6, "bandwidth": 1e15, "step": 1e-6 / 20_000}
MOVING = MACHINE | {"launch": 1e-12}


def moving(situation: Situation, *bytes_per_step: float) -> list[Choice]:
    """Return choices on machines that move so many bytes in the time of a step."""
    machines = (MOVING | {"bandwidth": number / MOVING["step"]} for number in bytes_per_step)
    return [Choice(situation, machine, "bandwidth") for machine in machines]


def keeping(count: int, *steps_and_registers: tuple[float, int]) -> list[Choice]:
    """Return choices about a product of `count` sums on machines with such steps, in launches, and registers."""
    situation = many_alive(count, 20_000)
    return [
        Choice(situation, COMPUTING | {"step": COMPUTING["step"] * step, "registers": registers}, "registers")
        for step, registers in steps_and_registers
    ]


def plain_few(rng: random.Random) -> list[Choice]:
    """Return a long tensor, a short one, and exp, which is dear, read three times."""
    n = rng.randrange(40_000, 120_000, 1000)
    few = [
        chained("many elements", rng.randrange(4, 8), n),
        chained("few elements", rng.randrange(4, 8), rng.randrange(20, 500)),
        to_three("exp", n // 2),
    ]
    rng.shuffle(few)
    return [Choice(situation, MACHINE) for situation in few]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    slower = rng.choice((0.5, 3.0, 10.0))
    machine = MACHINE | {
        "bandwidth": MACHINE["bandwidth"] / slower,
        "launch": MACHINE["launch"] * slower,
        "step": MACHINE["step"] * slower,
    }
    choices = [Choice(situation, machine) for situation in situations(rng)]
    dear, free = rng.choice(list(FUNCTIONS)), {"bandwidth": 1e15, "launch": 2.5e-6, "registers": 2}
    few = into_product(dear, 64, 4, 1), into_product(dear, 64, 64, 16), centred_and_read(32, 384)
    choices += [Choice(situation, machine) for situation in (*few, centred_by_powers(dear, 16, 16))]
    choices.append(Choice(doubled(rng.randint(11, 13), 50_000), machine))
    choices.append(Choice(chained("many elements", 24, 50_000), MACHINE | free))  # needs one register
    pairs = turned(rng)
    # A value that does not fit is put away and fetched once, however long it waits.
    waits = MACHINE | {"bandwidth": 1e15, "launch": 2.2e-6, "registers": 30}
    pairs.append(Choice(many_alive(40, 20_000), waits, "registers"))
    rng.shuffle(choices)
    rng.shuffle(pairs)
    plain_choices = [Choice(situation, machine) for situation in plain_situations(rng)]
    plain_choices.append(Choice(chained("many elements", 24, 50_000), MACHINE | free | {"registers": 16}))
    simple = plain_pairs(rng)
    rng.shuffle(plain_choices)
    rng.shuffle(simple)
    return [
        core(cost_case("plain: one of each kind", plain_choices)),
        core(cost_case("plain: three choices, drawn", plain_few(random.Random(seed + 1)))),
        core(cost_case("plain: four numbers of the machine decide", simple)),
        core(cost_case("plain: what kernels read and write", plain_bytes(rng))),
        cost_case("one of each kind", choices),
        cost_case("each number of the machine decides", pairs),
        # A number has four bytes: twice or half as many turn the ladder.
        core(cost_case("plain: a few bytes in a step", moving(to_many(12, 50_000), 1 / 2.7, 1 / 0.6))),
        cost_case("a few bytes in a step", moving(doubled(8, 50_000), 1 / 4.4, 1 / 2.3)),
        # One value more than there are registers takes two steps, no value less does.
        cost_case("one register more or less", keeping(3, (12.0, 2), (2.4, 3))),
        cost_case("most values do not fit", keeping(40, (0.62, 2))),
        cost_case("a quarter of the values does not fit", keeping(40, (1.5, 30))),
    ]


EQUIVALENT = {
    (
        "... < sum(... for kernel in singles)",
        "... <= sum(... for kernel in singles)",
    ): "you are asked only where one side takes at least 1.3 times as long",
    ("4 * elements(node)", "5 * elements(node)"): "you are asked only where one side takes at least 1.3 times as long",
    ("2 * max(0, ...)", "3 * max(0, ...)"): "you are asked only where one side takes at least 1.3 times as long",
    ("...(kernel, 0)", "...(kernel, 1)"): "you are asked only where one side takes at least 1.3 times as long",
    ("....shape[-1]", "....shape[(1)]"): "products are of two matrices",
    ("alive, most = set(), 0", "alive, most = set(), 1"): "every operation reads something",
}

# ---------------------------------------------------------------------------------------------------- answers

DEAR = (torch.exp, torch.erf, torch.tanh, torch.sigmoid)


def _numel(node):
    return node.meta["tensor_meta"].shape.numel()


def _added_up(node):
    if node.target is torch.matmul:
        return node.args[0].meta["tensor_meta"].shape[-1]
    return _numel(node.args[0]) // _numel(node) if node.target is torch.sum else 1


def _steps(node, machine):
    if node.target in DEAR:
        return machine["dear"]
    return (2 if node.target is torch.matmul else 1) * _added_up(node)


def _result(kernel):
    return next(node for node in kernel if not any(user in kernel for user in node.users))


def _times(kernel):
    """Return how often each node is computed, from the readers' side."""
    times = {}
    for node in reversed(kernel):
        readers = [user for user in node.users if user in kernel]
        times[node] = sum(times[user] * _added_up(user) for user in readers) if readers else _numel(node)
    return times


def _moved(kernel):
    read = {a for node in kernel for a in node.all_input_nodes if a not in kernel}
    return 4 * sum(map(_numel, {_result(kernel), *read}))


def _kernels(gm, groups):
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    grouped = {name for group in groups for name in group}
    fused = [[node for node in calls if node.name in group] for group in groups]
    return [[node] for node in calls], fused + [[node] for node in calls if node.name not in grouped]


def _spilled(kernel, machine, beyond=max):
    """Return two steps for each value of an element beyond the registers: one to put it away, one to fetch it."""
    alive, excess = set(), []
    for node in reversed(kernel):
        before = (alive - {node}) | set(node.all_input_nodes)
        excess.append(max(0, len(alive | {node}) - machine["registers"], len(before) - machine["registers"]))
        alive = before
    return 2 * beyond(excess) * _numel(_result(kernel))


def _work(kernel, machine, beyond=max):
    steps = sum(n * _steps(node, machine) for node, n in _times(kernel).items())
    return steps + _spilled(kernel, machine, beyond)


def _seconds(kernel, machine, combine=max, beyond=max):
    computing = _work(kernel, machine, beyond) * machine["step"]
    return machine["launch"] + combine(_moved(kernel) / machine["bandwidth"], computing)


def _choose(gm, groups, machine, price=_seconds, **terms):
    singles, fused = _kernels(gm, groups)
    return bool(sum(price(k, machine, **terms) for k in fused) < sum(price(k, machine, **terms) for k in singles))


@plain("computes each element of a group once, and never runs out of registers")
def element_wise_only(gm, groups, machine):
    calls = {node.name: node for node in gm.graph.nodes if node.op == "call_function"}

    def seconds(names):
        nodes = [calls[name] for name in names]
        read = {operand for node in nodes for operand in node.all_input_nodes} - set(nodes)
        n = _numel(nodes[-1])
        steps = sum(machine["dear"] if node.target in DEAR else 1 for node in nodes)
        return machine["launch"] + max(4 * n * (1 + len(read)) / machine["bandwidth"], steps * n * machine["step"])

    rest = [[name] for name in calls if not any(name in group for group in groups)]
    return sum(map(seconds, [*groups, *rest])) < sum(seconds([name]) for name in calls)


@right("moves first and computes then: the sum of the terms, not the longer one")
def in_turn(gm, groups, machine):
    return _choose(gm, groups, machine, combine=lambda moving, computing: moving + computing)


@right("sets what is computed again against what is not started and not moved")
def balance(gm, groups, machine):
    singles, fused = _kernels(gm, groups)
    repeats = sum(_work(kernel, machine) for kernel in fused) - sum(_work(kernel, machine) for kernel in singles)
    saved = (len(singles) - len(fused)) * machine["launch"]
    saved += (sum(map(_moved, singles)) - sum(map(_moved, fused))) / machine["bandwidth"]
    return saved > repeats * machine["step"]


@right("each operand that is read twice is moved twice")
def no_cache(gm, groups, machine):
    def price(kernel, machine):
        reads = [a for node in kernel for a in node.all_input_nodes if a not in kernel]
        moved = 4 * sum(map(_numel, [_result(kernel), *reads]))
        return _seconds(kernel, machine) + max(0.0, moved - _moved(kernel)) / machine["bandwidth"] / 10

    return _choose(gm, groups, machine, price=price)


@wrong(
    "spared",
    "fuses whatever can be fused: counts bytes or launches only, and what is computed again is free",
    core=True,
)
def always(gm, groups, machine):
    return True


@wrong(
    "did", "never fuses, or not a product or a small tensor: what is computed once needs to be computed once", core=True
)
def never(gm, groups, machine):
    return False


@wrong("cost", "knows one laptop by heart, and does not look at the machine", core=True)
def by_heart(gm, groups, machine):
    return _choose(gm, groups, MACHINE)


no_launch = edited("cost", "a launch costs nothing")(('machine["launch"] + ...', "..."))
no_bytes = edited("cost", "memory is as fast as it needs to be")(('moved / machine["bandwidth"]', "0.0"))
elements_for_bytes = edited("cost", "counts elements in place of bytes", core=True)(
    ("4 * elements(node)", "elements(node)")
)
double_numbers = edited("cost", "a number takes eight bytes, as those of Python")(
    ("4 * elements(node)", "8 * elements(node)")
)
four_steps = edited("cost", "putting a value away takes two steps, and fetching it two more")(
    ("2 * max(0, ...)", "4 * max(0, ...)")
)
one_free = edited(
    "cost", "a result needs a register beside those of its operands, also of those read for the last time"
)(("most_alive(kernel) - ...", "most_alive(kernel) + 1 - ..."))
all_put_away = edited("cost", "when there are too many values, all of them are put away")(
    (
        "2 * max(0, most_alive(kernel) - ...)",
        '2 * (most_alive(kernel) if most_alive(kernel) > machine["registers"] else 0)',
    )
)
read_only = edited(
    "cost", "counts what is read and not what is written, or what stays inside a kernel, too", core=True
)(("{result, *read}", "read"))
all_alive = edited("did", "a value stays in its register to the end")(("alive - {node}", "alive"))


exp_is_cheap = edited("spared", "all operations cost the same: exp is one instruction")(('machine["dear"]', "1"))


few_are_dear = edited("cost", "exp and tanh are dear, erf and sigmoid are not", core=True)(
    ("(torch.exp, torch.erf, torch.tanh, torch.sigmoid)", "(torch.exp, torch.tanh)")
)
sum_reads_one = edited("spared", "a sum reads one element of its operand for each of its own")(
    ("times[node] * added_up(node)", "times[node] * (added_up(node) if node.target is torch.matmul else 1)")
)


@wrong("cost", "a value that does not fit is put away and fetched again by each operation")
def fetched_each_time(gm, groups, machine):
    return _choose(gm, groups, machine, beyond=sum)


@wrong("spared", "a value in two groups is computed once")
def once(gm, groups, machine):
    earlier = set()
    only = [[name for name in group if not (name in earlier or earlier.add(name))] for group in groups]
    return _choose(gm, [group for group in only if group], machine)


groups_only = edited("spared", "forgets operations in no group")(
    ("[[node] for [node] in singles if node.name not in grouped]", "[]")
)


@wrong("did", "looks at the program alone, not at the machine: nothing may be computed more than once")
def nothing_again(gm, groups, machine):
    _, fused = _kernels(gm, groups)
    return all(count <= _numel(node) for kernel in fused for node, count in _times(kernel).items())


@wrong("valid", "returns the seconds that fusing saves")
def seconds_saved(gm, groups, machine):
    singles, fused = _kernels(gm, groups)
    return sum(_seconds(k, machine) for k in singles) - sum(_seconds(k, machine) for k in fused)
