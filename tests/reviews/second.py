"""A second computation of each answer, from the text and the choices that the learner reads.

None calls what the question's own answer comes from.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import networkx
import torch

from passlab.reviews.questions import Question

Program = list[tuple[str, str, list[str]]]
SECOND: dict[str, Callable[[Question], Any]] = {}


def second(name: str) -> Callable:
    def register(function: Callable[[Question], Any]) -> Callable[[Question], Any]:
        SECOND[name] = function
        return function

    return register


def program(text: str) -> Program:
    """Return the lines `name = op(operands)` of a text. Names of keywords are left out of the operands."""
    lines = re.findall(r"^(\w+) = (\w+)\((.*)\)$", text, re.M)
    return [(name, op, re.findall(r"[\w.-]+(?!\w*=)", re.sub(r"'\w*'", "", operands))) for name, op, operands in lines]


def returned(text: str) -> list[str]:
    return [word.strip() for word in re.search(r"^return (.*)$", text, re.M)[1].split(",")]


def asked(text: str) -> str:
    """Return the question itself, the last paragraph."""
    return text.rpartition("\n\n")[2]


def numbers(text: str) -> list[int]:
    return [int(word.replace("−", "-")) for word in re.findall(r"[-−]?\d+", text.replace(",", ""))]


def graph(lines: Program, *more: tuple[str, str]) -> networkx.DiGraph:
    """Return the arrows from operands to their readers, and the results to "the output"."""
    known = {name for name, *_ in lines}
    net = networkx.DiGraph()
    net.add_nodes_from(known)
    net.add_edges_from((word, name) for name, _, words in lines for word in words if word in known)
    net.add_edges_from(more)
    return net


def depends(lines: Program, name: str) -> set[str]:
    """Return what a name depends on, by recursion, with itself."""
    operands = {line[0]: line[2] for line in lines}
    return {name}.union(*(depends(lines, word) for word in operands.get(name, [])))


def read(name: str, text: str) -> bool:
    return bool(re.search(rf"\b{name}\b", text))


# Days 1 and 2


@second("readers")
def readers(q: Question) -> int:
    name = re.search(r"read (\w+)\?", q.text)[1]
    rights = [line.partition("(")[2] if " = " in line else line[6:] for line in q.text.split("\n\n")[0].split("\n")]
    return sum(read(name, right) for right in rights)


SHAPES = re.findall(
    r"\w+",
    "reshape view transpose permute t unsqueeze squeeze flatten slice getitem flip split cat chunk expand stack "
    "narrow swapaxes movedim unbind select size",
)


@second("kinds-of-node")
def kinds_of_node(q: Question) -> int:
    return sum(op in SHAPES for _, op, _ in program(q.text))


@second("bytes")
def nbytes(q: Question) -> int:
    shape, dtype = re.search(r"shape ([\d×]+) and the dtype (\w+)", q.text).groups()
    return torch.empty(*map(int, shape.split("×")), dtype=getattr(torch, dtype)).untyped_storage().nbytes()


@second("orders")
def orders(q: Question) -> int:
    lines = program(q.text)
    names = [name for name, *_ in lines]
    reads = {name: set(words) & set(names) for name, _, words in lines}
    return sum(
        all(reads[name] <= set(order[:i]) for i, name in enumerate(order)) for order in itertools.permutations(names)
    )


@second("silu")
def silu(q: Question) -> set[str]:
    pattern = r"^(\w) = mul\((?:(s), (x)|(x), (s)|(t), (y)|(y), (t))\)$"
    return {match[0] for match in re.findall(pattern, q.text, re.M)}


@second("visits")
def visits(q: Question) -> int:
    operands = {name: words for name, _, words in program(q.text)}

    def walk(name: str) -> int:
        return 1 + sum(map(walk, operands.get(name, [])))

    return walk("f")


@second("one-reader")
def one_reader(q: Question) -> set[str]:
    net = graph(program(q.text), *((name, "out") for name in returned(q.text)))
    ops = {name: op for name, op, _ in program(q.text)}
    return {name for name in "abc" if [ops.get(reader) for reader in net[name]] == ["relu"]}


@second("post-order")
def post_order(q: Question) -> str:
    reads = {name: set(words) - {"x"} for name, _, words in program(q.text)}
    [right] = [c for c in q.choices if all(reads[n] <= set(c.split()[:i]) for i, n in enumerate(c.split()))]
    return right


# Day 3


@second("dead-code")
def dead_code(q: Question) -> set[str]:
    lines = program(q.text)
    live = set().union(*(depends(lines, name) for name in returned(q.text)))
    return {name for name, op, _ in lines if op not in ("input", "weight")} - live


def run_with_writes(lines: Program, result: str) -> Any:
    value = {"x": torch.tensor(1.234567, dtype=torch.float64)}
    for name, op, (source, number) in lines:
        if source not in value:
            return None
        value[name] = getattr(value[source], op)(float(number))
        if op == "add_":
            del value[name]
    return value[result].item() if result in value else None


@second("effects")
def effects(q: Question) -> set[str]:
    """Which lines can go one by one from the end, by running what is left; a write may need its target."""
    lines, [result] = program(q.text), returned(q.text)
    right, left = run_with_writes(lines, result), lines
    for line in reversed(lines):
        fewer = [other for other in left if other is not line]
        if run_with_writes(fewer, result) == right:
            left = fewer
    return {line[0] for line in lines} - {line[0] for line in left}


@second("cse")
def cse(q: Question) -> int:
    operands = {name: (op, words) for name, op, words in program(q.text)}

    def tree(name: str) -> str:
        if name not in operands:
            return name
        op, words = operands[name]
        parts = [tree(word) for word in words]
        return f"{op}({','.join(sorted(parts) if op in ('add', 'mul') else parts)})"

    return len({tree(name) for name in operands})


@second("folding")
def folding(q: Question) -> set[str]:
    lines = program(q.text)
    draws = {name for name, op, _ in lines if op == "rand_like"}
    return {name for name, op, _ in lines if op != "weight" and not depends(lines, name) & ({"x"} | draws)}


def number_of(text: str) -> float:
    return float(text.replace("infinity", "inf"))


@second("laws")
def laws(q: Question) -> str:
    import numpy as np

    x = np.float32(number_of(re.search(r"the float (\S+)\.", q.text)[1]))

    def value(side: str) -> Any:
        return np.float32(eval(re.sub(r"(\d+\.\d+|\d+)", r"np.float32(\1)", side), {"x": x, "np": np}))

    def holds(law: str) -> bool:
        with np.errstate(all="ignore"):
            left, right = map(value, law.split(" = "))
        return bool(np.isnan(left) and np.isnan(right)) or left.tobytes() == right.tobytes()

    [wrong] = [law for law in q.choices if not holds(law)]
    return wrong


@second("layouts")
def layouts(q: Question) -> int:
    """The least over all choices of the free layouts."""
    ops = q.text.split("\n")[0].split(" → ")
    fixed = {"input (NCHW)": "N", "output (NCHW)": "N", "softmax": "N", "conv": "C"}
    choices = itertools.product(*(fixed.get(op, "NC") for op in ops))
    return min(sum(a != b for a, b in itertools.pairwise(choice)) for choice in choices)


@second("fixpoint")
def fixpoint(q: Question) -> int:
    lines = program(q.text)
    return sum("x" in depends(lines, name) and name in depends(lines, "g") for name, *_ in lines)


# Day 4


@second("traffic")
def traffic(q: Question) -> int:
    nbytes = 4 * numbers(re.search(r"results have ([\d,]+) floats", q.text)[1])[0]
    moved = sum(nbytes * (len(set(words)) + 1) for _, _, words in program(q.text))
    kernel = nbytes + nbytes
    return moved - kernel


@second("post-dominator")
def post_dominator(q: Question) -> str:
    lines = program(q.text)
    net = graph(lines, *((name, "the output") for name in returned(q.text)))
    start = re.search(r"paths from (\w+) to", q.text)[1]
    paths = list(networkx.all_simple_paths(net, start, "the output"))
    common = set(paths[0]).intersection(*paths) - {start}
    return next(name for name in paths[0] if name in common)


@second("convex")
def convex(q: Question) -> str:
    net = graph(program(q.text))
    group = re.search(r"Can (.*) run as", q.text)[1].split(", ")
    net.add_nodes_from(group)
    for one, other in itertools.permutations(group, 2):
        for path in networkx.all_simple_paths(net, one, other):
            if set(path) - set(group):
                return "no"
    return "yes"


@second("roofline")
def roofline(q: Question) -> str:
    bandwidth, peak, nbytes, flops = numbers(q.text)
    return "memory" if Fraction(nbytes, bandwidth) > Fraction(flops, peak) else "arithmetic"


@second("recomputing")
def recomputing(q: Question) -> int:
    rows, inner, inner_, columns = numbers(q.text)[:4]
    assert inner == inner_
    return sum(1 for _ in itertools.product(range(rows), range(columns), range(inner)))


# Day 5


def table(text: str) -> dict[str, tuple[int, set[int]]]:
    rows = re.findall(r"^(\w): (\d+) B, live in the steps (.*)$", text, re.M)
    return {name: (int(size), set(numbers(steps.replace(",", " ")))) for name, size, steps in rows}


@second("peak")
def peak(q: Question) -> int:
    lines, results = program(q.text), returned(q.text)
    sizes = {name: int(size) for name, size in re.findall(r"(\w) (\d+)", asked(q.text))}
    most = 0
    for i, (name, _, words) in enumerate(lines):
        later = {word for _, _, others in lines[i + 1 :] for word in others} | set(results)
        live = {name} | set(words) | ({line[0] for line in lines[:i]} & later)
        most = max(most, sum(sizes[each] for each in live - {"x"}))
    return most


@second("lower-bound")
def lower_bound(q: Question) -> int:
    return max(sum(size for size, live in table(q.text).values() if step in live) for step in range(20))


@second("first-fit")
def first_fit(q: Question) -> int:
    rows, taken, top = table(q.text), set(), 0
    for name in re.search(r"in the order (.*), each at", q.text)[1].split(", "):
        size, live = rows[name]
        at = next(at for at in range(99) if not taken & {(step, at + i) for step in live for i in range(size)})
        taken |= {(step, at + i) for step in live for i in range(size)}
        top = max(top, at + size)
    return top


@second("cache")
def cache(q: Question) -> int:
    sets, ways = numbers(q.text)[:2]
    content: list[OrderedDict] = [OrderedDict() for _ in range(sets)]
    count = 0
    for address in numbers(asked(q.text)):
        line = address // 4
        ways_of = content[line % sets]
        count += line not in ways_of
        ways_of.pop(line, None)
        ways_of[line] = True
        while len(ways_of) > ways:
            ways_of.pop(next(iter(ways_of)))
    return count


@second("sectors")
def sectors(q: Question) -> int:
    index = re.search(r"x\[(.*)\]", q.text)[1].replace("·", "*")
    return len({eval(index, {"lane": lane}) // 8 for lane in range(32)})


@second("banks")
def banks(q: Question) -> int:
    return math.gcd(int(re.search(r"number (\d+) ·", q.text)[1]), 32)


# Day 6


def blocks_of(text: str) -> dict[str, list[str]]:
    """Return block → its lines."""
    blocks: dict[str, list[str]] = {}
    for line in text.split("\n\n")[0].split("\n")[1:]:
        if line.endswith(":"):
            blocks[line[:-1]] = current = []
        else:
            current.append(line.strip())
    return blocks


@second("live")
def live(q: Question) -> set[str]:
    """A variable is live if a walk finds a read of it before an assignment."""
    blocks = blocks_of(q.text)
    start = re.search(r"start of (\w+)\?", q.text)[1]

    def is_live(variable: str) -> bool:
        seen, todo = set(), [start]
        while todo:
            block = todo.pop()
            if block in seen:
                continue
            seen.add(block)
            for line in blocks[block]:
                target, _, right = line.rpartition(" = ")
                words = right.split()
                reads = (
                    words[1:]
                    if target or words[0] in ("return", "print")
                    else words[1:2]
                    if words[0] == "branch"
                    else []
                )
                if variable in reads:
                    return True
                if target == variable:
                    break
            else:
                todo += [word for word in blocks[block][-1].split() if word in blocks]
        return False

    return {word for word in set(re.findall(r"\b(v\d|p|q)\b", q.text)) if is_live(word)}


@second("dominators")
def dominators(q: Question) -> set[str]:
    """A block dominates another if that is not reached without it."""
    edges = {a: re.findall(r"\w+", b) for a, b in re.findall(r"^(\w+) → (.*)$", q.text, re.M)}
    net = networkx.DiGraph((a, b) for a, targets in edges.items() for b in targets)
    entry, target = next(iter(edges)), re.search(r"Which blocks, (\w+) itself", q.text)[1]

    def without(block: str) -> bool:
        rest = net.subgraph(set(net) - {block})
        return entry in rest and networkx.has_path(rest, entry, target)

    return {block for block in edges if block != target and not without(block)}


@second("interval")
def interval(q: Question) -> int:
    """Every number between the bounds, each time a variable is used."""
    values = {n: range(int(a), int(b) + 1) for n, a, b in re.findall(r"(\w) is in (-?\d+)\.\.(-?\d+)", q.text)}
    for name, left, op, right in re.findall(r"^(\w) = (\w) ([-+*]) (\w)$", q.text, re.M):
        results = {eval(f"a {op} b", {"a": a, "b": b}) for a in set(values[left]) for b in set(values[right])}
        values[name] = range(min(results), max(results) + 1)
    return values["c"][-1]


@second("join")
def join(q: Question) -> set[str]:
    from passlab.dataflow import CONSTANTS, parse, solve

    return set(solve(parse(q.text.split("\n\n")[0]), CONSTANTS).before["done"]) & set("abcde")


@second("broadcast")
def broadcast(q: Question) -> int:
    shapes = [ast.literal_eval(shape) for shape in re.findall(r"\[[^\]]*\]", q.text)]
    one, other = (torch.empty(shape, device="meta") for shape in shapes)
    return (one + other).numel()


@second("visiting")
def visiting(q: Question) -> str:
    """The reverse of an order in which a depth-first walk leaves the blocks, for some order of successors."""
    edges = re.findall(r"(\w) → (\w)", q.text)
    orders = set()
    for arrangement in itertools.permutations(edges):
        left: list[str] = []

        def walk(block: str, seen: set[str], arrangement: tuple = arrangement, left: list[str] = left) -> None:
            seen.add(block)
            for a, b in arrangement:
                if a == block and b not in seen:
                    walk(b, seen)
            left.append(block)

        walk("a", set())
        orders.add(" ".join(reversed(left)))
    [right] = [choice for choice in q.choices if choice in orders]
    return right


# Days 7 to 9


@second("fuse-ops")
def fuse_ops(q: Question) -> int:
    """As an expression: a product and what follows it; moves and element-wise operations, but not those that lead to a
    sum; a sum with these. `test_tvm` asks TVM itself."""
    letters = {"relu": "e", "exp": "e", "negative": "e", "transpose": "t", "sum": "s", "dense": "d"}
    word = "".join(letters[op] for op in q.text.split("\n")[0].split(" → ")[1:])
    return len(re.findall(r"de*|(?:t|e(?!e*s))+|e*s", word))


@second("shared")
def shared(q: Question) -> int:
    class Expr(tuple):
        __hash__, __eq__ = object.__hash__, object.__eq__

    names: dict[str, Any] = {"x": Expr(), "add": lambda *args: Expr(args), "exp": lambda *args: Expr(args)}
    exec(q.text.split("\n\n")[0], names)
    seen, todo = set(), [names["d"]]
    while todo:
        expr = todo.pop()
        if expr and id(expr) not in seen:
            seen.add(id(expr))
            todo += expr
    return len(seen)


@second("context")
def context(q: Question) -> set[str]:
    levels = {name: int(level) for name, level in re.findall(r"^(\w+): level (\d)$", q.text, re.M)}
    level = int(re.search(r"opt_level=(\d)", q.text)[1])
    required, disabled = (ast.literal_eval(part) for part in re.findall(r"_pass=(\[.*?\])", q.text))
    running = {name for name in levels if levels[name] <= level}
    return (running | set(required)) - set(disabled)


@second("split")
def split(q: Question) -> int:
    n, a, m, b = numbers(q.text)[:4]
    idle = 0
    for i_out, i_in in itertools.product(range(math.ceil(n / a)), range(a)):
        for j_out, j_in in itertools.product(range(math.ceil(m / b)), range(b)):
            idle += not (i_out * a + i_in < n and j_out * b + j_in < m)
    return idle


@second("turn")
def turn(q: Question) -> str:
    n, m, tile = (int(re.search(p, q.text)[1]) for p in (r"i in range\((\d+)", r"j in range\((\d+)", r"None, (\d+)"))
    order = re.search(r"from outside: (.*?)\. Which", q.text)[1].split(", ")
    number = int(re.search(r"number (\d+),", q.text)[1])
    ranges = {"i_out": range(n // tile), "i_in": range(tile), "j": range(m)}
    point = list(itertools.product(*(ranges[name] for name in order)))[number]
    at = dict(zip(order, point, strict=True))
    return f"i = {at['i_out'] * tile + at['i_in']}, j = {at['j']}"


@second("symbolic")
def symbolic(q: Question) -> int:
    a, b, c = numbers(re.search(r"\(n, (.*?)\)", q.text)[1].replace(",", " "))
    keep = re.search(r"to \(n(?: \* (\d+))?, k\)", q.text)[1]
    return torch.empty(5, a, b, c, device="meta").reshape(5 * int(keep or 1), -1).shape[1]


@second("loop-turns")
def loop_turns(q: Question) -> int:
    loops = re.findall(r"%c(\d+) to %c(\d+) step %c(\d+)", q.text)
    return math.prod(len(range(*map(int, loop))) for loop in loops)


@second("indexing")
def indexing(q: Question) -> int:
    f, g = re.findall(r"-> \((.*?)\)>", q.text)
    i, j, k = numbers(re.search(r"i, j, k = (.*?)\.", q.text)[1].replace(",", " "))
    source = f"(lambda a, b: ({g}))(*(lambda i, j, k: ({f}))({i}, {j}, {k}))"
    row, column = eval(source)
    return 100 * row + column


@second("in-place")
def in_place(q: Question) -> int:
    """The least set of copies with which running in place gives the right results."""
    lines = q.text.split("\nreturn ")[0].split("\n")
    sets = [re.fullmatch(r"(\w+) = (\w+) with element (\d+) set to (\d+)", line) for line in lines]
    reads = [re.fullmatch(r"(\w+) = sum of (\w+)", line) for line in lines]

    def run(copied: set[int]) -> list:
        value: dict[str, Any] = {"x": [100, 200, 300, 400, 500, 600]}
        for i, (change, total) in enumerate(zip(sets, reads, strict=True)):
            if change:
                tensor = list(value[change[2]]) if i in copied else value[change[2]]
                tensor[int(change[3])] = int(change[4])
                value[change[1]] = tensor
            else:
                value[total[1]] = sum(value[total[2]])
        return [value[name] for name in returned(q.text)]

    every = {i for i, change in enumerate(sets) if change}
    right = run(every)
    sizes = range(len(every) + 1)
    return next(k for k in sizes for some in itertools.combinations(every, k) if run(set(some)) == right)


# Day 10


def accesses(text: str) -> list[tuple[tuple[int, int], list[tuple[int, int]]]]:
    """Return for each iteration of a nest, at a small size: where it is, and the cells that it reads."""
    reads = re.findall(r"A\[i(?: ([-+]) (\d))?, j(?: ([-+]) (\d))?\]", text.partition(" = ")[2].split("\n")[0])
    shifts = [(int(f"{a}{b}" or 0), int(f"{c}{d}" or 0)) for a, b, c, d in reads]
    return [((i, j), [(i + a, j + b) for a, b in shifts]) for i in range(1, 6) for j in range(1, 6)]


def result(text: str, order: Callable[[tuple[int, int]], Any]) -> dict:
    """Run a nest on numbers in some order of its iterations."""
    rng = random.Random(0)
    cells = {(i, j): rng.randrange(10**6) for i in range(8) for j in range(8)}
    for (i, j), reads in sorted(accesses(text), key=lambda item: order(item[0])):
        cells[i, j] = (sum(3 * cells[cell] for cell in reads) + 7 * i + 13 * j) % 1_000_003
    return cells


@second("interchange")
def interchange(q: Question) -> str:
    return "yes" if result(q.text, lambda at: at) == result(q.text, lambda at: at[::-1]) else "no"


@second("reversal")
def reversal(q: Question) -> str:
    dim = "ij".index(re.search(r"loop over (\w) run", q.text)[1])
    backwards = result(q.text, lambda at: tuple(-n if d == dim else n for d, n in enumerate(at)))
    return "yes" if backwards == result(q.text, lambda at: at) else "no"


@second("parallel")
def parallel(q: Question) -> set[str]:
    """A loop may if no two of its turns share a cell that one of them writes."""
    free = {"i", "j"}
    for (one, reads), (other, others) in itertools.permutations(accesses(q.text), 2):
        if one in others or other in reads or one == other:
            if one[0] != other[0]:
                free.discard("i")
            elif one[1] != other[1]:
                free.discard("j")
    return free


@second("iterations")
def iterations(q: Question) -> int:
    source = q.text.split("\n\n")[0].replace("        S", "        count.append(1)")
    names: dict[str, Any] = {"count": []}
    exec(source, names)
    return len(names["count"])


@second("tiles")
def tiles(q: Question) -> int:
    n, m, a, b = numbers(q.text)[:4]
    sizes = Counter((i // a, j // b) for i in range(n) for j in range(m))
    return sum(size < a * b for size in sizes.values())


# Days 11 and 12


@second("message")
def message(q: Question) -> int:
    words, cores, ramp = numbers(q.text)[:3]
    return words + cores + 2 * ramp


@second("reduce")
def reduce(q: Question) -> str:
    """By simulation; large ones by what the days' lesson says of the five numbers: depth, contention, distance."""
    from passlab.wafer import TREES, Machine, program, simulate
    from passlab.wafer import reduce_messages as messages

    words, cores = numbers(q.text)[:2]
    cycles = {}
    for name, tree in TREES.items():
        if cores * words <= 4096:
            cycles[name] = simulate(program(Machine(1, cores), messages(tree(cores), words))).cycles
        else:
            from passlab.wafer import numbers as five

            cycles[name] = five(tree(cores), words).cycles()
    return min(cycles, key=cycles.__getitem__)


@second("traffic-of-placement")
def traffic_of_placement(q: Question) -> int:
    at = {name: (int(r), int(c)) for name, r, c in re.findall(r"(\w) is on core \((\d), (\d)\)", q.text)}
    grid = networkx.grid_2d_graph(4, 4)
    sent = re.findall(r"(\w) sends (\w) (\d) words", q.text)
    return sum(int(words) * networkx.shortest_path_length(grid, at[a], at[b]) for a, b, words in sent)


@second("stage")
def stage(q: Question) -> int:
    """Example by example, stage by stage."""
    times = numbers(re.search(r"of ([\d, ]+) cycles", q.text)[1].replace(",", " "))
    free = [0] * len(times)
    for _ in range(int(re.search(r"(\d+) examples", q.text)[1])):
        done = 0
        for i, time in enumerate(times):
            done = free[i] = max(done, free[i]) + time
    return done


@second("mean")
def mean(q: Question) -> str:
    shares = [float(w) for w in re.search(r"takes (.*) of eager", q.text)[1].split(", ")]
    return f"{math.exp(-sum(map(math.log, shares)) / len(shares)):g}"


@second("front")
def front(q: Question) -> set[str]:
    points = {n: (int(t), int(m)) for n, t, m in re.findall(r"(\w): (\d) ms, (\d) MB", q.text)}

    def beaten(name: str) -> bool:
        t, m = points[name]
        return any(a <= t and b <= m and (a, b) != (t, m) for a, b in points.values())

    return {name for name in points if not beaten(name)}


@second("share")
def share(q: Question) -> int:
    total, part, factor = numbers(q.text)[:3]
    return round(total * ((1 - part / total) + part / total / factor))


# Days 13 and 14


@second("versions")
def versions(q: Question) -> int:
    """Guards, call by call: a version serves its own size or, if its size is a symbol, all from 2 on."""
    compiled: list[Any] = []
    for size in numbers(re.search(r"sizes (.*?)\.", q.text)[1].replace(",", " ")):
        if size not in compiled and not ("n" in compiled and size > 1):
            compiled.append(size if size < 2 or not compiled else "n")
    return len(compiled)


@second("functional")
def functional(q: Question) -> int:
    names: dict[str, Any] = {"torch": torch}
    exec(q.text.split("\n\n")[0], names)
    return int(eval(re.search(r"is (\w\[\d\])", q.text)[1], names))


@second("graphs")
def graphs(q: Question) -> int:
    """Cut the lines at what breaks: each piece with an operation is a graph."""
    lines = q.text.replace("    y = y * y.sum().item()", "    y.sum()\n    BREAK\n    y * n").replace(
        "    print('here')", "    BREAK"
    )
    pieces = lines.split("\n\n")[0].removeprefix("def f(y):").replace("return y", "").split("BREAK")
    return sum("y" in piece for piece in pieces)


@second("gradient")
def gradient(q: Question) -> int:
    """Forwards: each value with its derivative."""
    at = re.search(r"At x = (-?\d+), y = (-?\d+)", q.text)
    value = {"x": (int(at[1]), 1), "y": (int(at[2]), 0)}
    for name, op, words in program(q.text):
        (a, da), (b, db) = value[words[0]], value[words[-1]]
        value[name] = {
            "add": (a + b, da + db),
            "sub": (a - b, da - db),
            "mul": (a * b, da * b + a * db),
            "neg": (-a, -da),
        }[op]
    return value["d"][1]


@second("saved")
def saved(q: Question) -> set[str]:
    """What autograd saves."""
    value = {"x": torch.tensor([0.3], requires_grad=True)}
    places: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        places.append(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        for name, op, words in program(q.text):
            value[name] = getattr(torch, op)(*(value[word] for word in words))
    return {name for name, tensor in value.items() if tensor.data_ptr() in places}


@second("fit")
def fit(q: Question) -> int:
    small, full = (ast.literal_eval(shape) for shape in re.findall(r"\[[^\]]*\]", q.text))
    bias = torch.zeros(small, requires_grad=True)
    (torch.zeros(full) + bias).sum().backward()
    return int(bias.grad.flatten()[0])


# Days 15 and 16


@second("quantize")
def quantize(q: Question) -> int:
    scale, zero, value = re.search(r"scale (\S+) and the zero point (\S+)\. Which integer does (\S+) ", q.text).groups()
    return min(max(round(Fraction(value) / Fraction(scale)) + int(zero), -128), 127)


@second("zero-point")
def zero_point(q: Question) -> int:
    low, high = numbers(q.text)[:2]
    grid = [min(low, 0) + Fraction(i, 255) * (max(high, 0) - min(low, 0)) for i in range(256)]
    return min(range(256), key=lambda i: abs(grid[i])) - 128


@second("accumulator")
def accumulator(q: Question) -> int:
    count, _, weight, _, value = numbers(q.text.replace("..", " "))[:5]
    worst = count * weight * value
    return next(bits for bits in range(1, 64) if -(2 ** (bits - 1)) <= -worst and worst < 2 ** (bits - 1))


@second("pack")
def pack(q: Question) -> int:
    first, other = re.search(r"numbers (-?\d) and (-?\d)", q.text).groups()
    return int(f"{int(other) & 15:x}{int(first) & 15:x}", 16)


def term(text: str) -> tuple:
    """Return "f(g(a, b))" as a tuple."""

    def of(node: ast.expr) -> tuple:
        return (node.func.id, *map(of, node.args)) if isinstance(node, ast.Call) else (node.id,)

    return of(ast.parse(text, mode="eval").body)


def parts(whole: tuple) -> set[tuple]:
    return {whole}.union(*map(parts, whole[1:]))


@second("classes")
def classes(q: Question) -> int:
    """A partition of all terms, made coarser until it is a congruence."""
    every = set().union(*(parts(term(line)) for line in q.text.split("\n\n")[0].split("\n")))
    one, other = map(term, re.search(r"Then (.*) = (.*) is stated", q.text).groups())
    of = {each: each for each in every}

    def merge(a: tuple, b: tuple) -> None:
        a, b = of[a], of[b]
        of.update({each: b for each in every if of[each] == a})

    merge(one, other)
    changed = True
    while changed:
        changed = False
        for a, b in itertools.combinations(every, 2):
            alike = len(a) > 1 and len(a) == len(b) and a[0] == b[0]
            if of[a] != of[b] and alike and all(of[x] == of[y] for x, y in zip(a[1:], b[1:], strict=True)):
                merge(a, b)
                changed = True
    return len(set(of.values()))


@second("sharing")
def sharing(q: Question) -> int:
    return len(parts(term(q.text.split("\n\n")[0])))


@second("cheapest")
def cheapest(q: Question) -> int:
    """The least over all trees, written out."""
    price = {op: int(n) for op, n in re.findall(r"(\w+) (\d)", re.search(r"Costs: (.*); x and", q.text)[1])}
    costs: dict[str, int] = {"x": 0, "y": 0}
    for name, forms in re.findall(r"^(\w): (.*)$", q.text, re.M):
        members = re.findall(r"(\w+)\((.*?)\)", forms)
        costs[name] = min(price[op] + sum(costs[word] for word in words.split(", ")) for op, words in members)
    return costs["r"]


# ------------------------------------------------------------------------------------------------------------- day 17


def value(source: str, x: torch.Tensor) -> torch.Tensor:
    """Return the value of an expression of a question."""
    return eval(source, {"torch": torch, "F": torch.nn.functional, "x": x})


@second("no-law")
def no_law(q: Question) -> str:
    x = torch.tensor([[0.5, -1.5, 2.0], [1.0, 3.0, -0.25], [-2.0, 0.75, 0.5]], dtype=torch.float64)
    (wrong,) = [
        choice for choice in q.choices if not torch.allclose(*(value(side, x) + 0.0 for side in choice.split(" == ")))
    ]
    return wrong


@second("random")
def draws(q: Question) -> str:
    drawing = []
    for choice in q.choices:
        state = torch.get_rng_state()
        value(choice, torch.ones(3))
        drawing += [choice] if not torch.equal(state, torch.get_rng_state()) else []
    (choice,) = drawing
    return choice


@second("chance")
def chance(q: Question) -> int:
    one_in, percent = numbers(q.text)
    miss = 1 - Fraction(1, one_in)
    count = math.ceil(math.log(1 - percent / 100) / math.log(miss) - 1e-9)
    assert miss**count <= Fraction(100 - percent, 100) < miss ** (count - 1)
    return count


@second("cut-off")
def cut_off(q: Question) -> int:
    wrong, cut = re.search(r"value of (\w) is wrong.*make (\w) a new", q.text).groups()
    net = graph(program(q.text))
    net.remove_edges_from(list(net.in_edges(cut)))
    return len((networkx.ancestors(net, wrong) | {wrong}) - {cut})


@second("triage")
def triage(q: Question) -> int:
    return len(set(re.findall(r": (\w+ on \w+) is the first", q.text)))
