"""Hidden cases and answers of day05.order."""

from __future__ import annotations

import random
from dataclasses import replace

from autograder.answers.day05._shared import reads_counted_twice
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day05._tasks import tree, until
from passlab.exercises.day05.order import badly_ordered, graph_case, lowest, tree_case
from passlab.judge import Case
from passlab.memory.order import liu, postorder
from passlab.memory.tasks import Task, peak


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def takes_turns(tasks: list[Task]) -> bool:
        return peak(tasks, postorder(tasks)) > lowest(tuple(tasks), True)

    def doubled(tasks: list[Task]) -> list[Task]:
        return [replace(task, reads=(*task.reads, *task.reads[:1])) for task in tasks]

    def mixed(tasks: list[Task]) -> list[Task]:
        return rng.sample(tasks, len(tasks))

    turns = [until(lambda: tree(rng, 14), takes_turns) for _ in range(3)]
    deep = [Task("d0", (), rng.randint(1, 9))]
    deep += [Task(f"d{i}", (f"d{i - 1}",), rng.randint(1, 9), rng.randint(0, 9)) for i in range(1, 60)]
    several = tree(rng, 30)[:-1]  # without the last task, all that it read is output
    valleys = [Task("wide", (), 20), Task("thin", ("wide",), 1), Task("out", ("thin",), rng.randint(7, 9))]
    valleys += [Task("high", (), 18), Task("low", ("high",), 1), Task("result", ("low",), rng.randint(6, 8))]

    def resized() -> list[Task]:
        return [replace(task, size=rng.randint(1, 20)) for task in turns[0]]

    again = until(resized, lambda tasks: peak(tasks, liu(turns[0])) > lowest(tuple(tasks), True))
    uneven = [Task("a", (), 8), Task("b", (), 2), Task("c", ("a", "b"), 20), Task("d", ("a", "b"), 1)]
    uneven += [Task("e", ("a",), 2), Task("f", (), 8)]
    outputs = [Task("large", (), 20, 10), Task("small", (), 1, 24)]
    scratch = [Task("a", (), 2, 20), Task("b", (), 9), Task("c", (), 4, 3), Task("end", ("a", "b", "c"), 1)]
    squared = [Task("p", (), 10), Task("p·p", ("p", "p"), 1), Task("q", (), 14), Task("r", ("q",), 2)]
    squared.append(Task("end", ("p·p", "r"), 1))
    shared = [Task("s", (), 1), Task("p", ("s",), 10), Task("p·p", ("p", "p"), 6)]
    shared += [Task("q", ("s",), 16), Task("r", ("q",), 2), Task("end", ("p·p", "r"), 1)]
    twice = doubled(badly_ordered(rng, 9))
    crossed = [Task("p", (), 14), Task("x", ("p",), 8), Task("s", (), 2, 30)]
    crossed += [Task("one", ("x", "s"), 1), Task("two", ("s",), 1)]
    inputs = [Task(f"in{i}", (), rng.randint(1, 9)) for i in range(10)]
    readers = [Task(name, tuple(task.name for task in inputs), 2) for name in ("one", "two")]
    extra = [Task("kept", (), 12), *badly_ordered(rng, 9)]
    return [
        tree_case("one task", [Task("only", (), 5)]),
        tree_case("a long chain", deep),
        tree_case("a large tree", tree(rng, 60)),
        tree_case("a bushy tree", tree(rng, 50, 8)),
        tree_case("several outputs", several),
        tree_case("two outputs take turns", valleys),
        tree_case("the output that leaves less comes first", mixed(outputs)),
        tree_case("listed in any order", mixed(tree(rng, 30))),
        tree_case("scratch memory decides", scratch),
        tree_case("a result is read twice", squared),
        *(tree_case(f"subtrees take turns, number {i + 1}", tasks) for i, tasks in enumerate(turns)),
        tree_case("subtrees take turns, number 1, with other sizes", again),
        *(graph_case(f"drawn, number {i + 1}", badly_ordered(rng)) for i in range(4)),
        graph_case("drawn, listed in any order", mixed(badly_ordered(rng))),
        graph_case("drawn, with an output at the side", extra),
        graph_case("scratch memory decides in a graph", crossed),
        graph_case("a low sum and a high peak", uneven),
        graph_case("many inputs that all are needed", [*inputs, *readers]),
        graph_case("drawn, with results that are read twice", twice),
        graph_case("drawn, small", badly_ordered(rng, 7)),
        tree_case("a large tree, in which results are read twice", doubled(tree(rng, 50))),
        graph_case("a result that is read twice is live once in a graph, too", shared),
    ]


EQUIVALENT = {
    ("valley <= ...", "valley < ..."): "a segment that leaves what the one before leaves may run later",
    ("hill >= ...", "hill > ..."): "a segment that climbs as high as the one before may run later",
    ("task.name not in done and ...", "..."): "to run what has run leads nowhere new",
    ("0, frozenset()", "1, frozenset()"): "some task needs a byte",
}

# ---------------------------------------------------------------------------------------------------- answers


def _readers(tasks):
    return {task.name: [t for t in tasks if task.name in t.reads] for task in tasks}


def _sorted(tasks):
    order = []
    while len(order) < len(tasks):
        ran = {task.name for task in order}
        order += [task for task in tasks if task not in order and ran.issuperset(task.reads)]
    return order


def _best_first(tasks, settle=True, scratch=True, distinct=set):
    """Branch and bound on sets of tasks as bits. What frees as much as it makes, and fits, runs at once."""
    import heapq

    tasks = _sorted(tasks)
    number = {task.name: i for i, task in enumerate(tasks)}
    reads = [sum(1 << number[r] for r in distinct(task.reads)) for task in tasks]
    after = [sum(1 << number[t.name] for t in readers) for readers in _readers(tasks).values()]
    extra = [task.scratch if scratch else 0 for task in tasks]

    def run(i, ran, live):
        ran |= 1 << i
        live += tasks[i].size
        used_bytes = live + extra[i]
        return (
            used_bytes,
            ran,
            live - sum(tasks[number[r]].size for r in set(tasks[i].reads) if not after[number[r]] & ~ran),
        )

    queue, closed, count = [(0, 0, 0, 0, ())], set(), 0
    while queue:
        high, _, ran, live, steps = heapq.heappop(queue)
        if ran == (1 << len(tasks)) - 1:
            return [tasks[i].name for i in steps]
        if ran in closed:
            continue
        closed.add(ran)
        ready = [i for i in range(len(tasks)) if not ran >> i & 1 and not reads[i] & ~ran]
        for i in ready:
            used_bytes, *state = run(i, ran, live)
            if settle and used_bytes <= high and state[1] <= live:
                ready = [i]
                break
        for i in ready:
            used_bytes, state, left = run(i, ran, live)
            count += 1
            heapq.heappush(queue, (max(high, used_bytes), -state.bit_count() * 10**6 + count, state, left, (*steps, i)))


@right("one search for trees and graphs: a task that fits and frees as much as it makes runs at once")
def one_search(tasks):
    readers = _readers(tasks)
    if len(tasks) > 20 and all(len(after) <= 1 for after in readers.values()):
        return _by_pieces(tasks)
    return _best_first(tasks)


def _by_pieces(tasks, outputs_stay=True):
    """Liu's algorithm with steps in place of segments: profiles of single steps, cut at their valleys when merged."""
    named = {task.name: task for task in _sorted(tasks)}

    def pieces(profile):
        start = 0
        while start < len(profile):
            hill = max(high for high, _, _ in profile[start:])
            at = max(i for i in range(start, len(profile)) if profile[i][0] == hill)
            valley = min(low for _, low, _ in profile[at:])
            end = max(i for i in range(at, len(profile)) if profile[i][1] == valley) + 1
            yield hill - valley, profile[start:end]
            start = end

    def merged(profiles):
        queue = [(-gain, k, n, part) for k, p in enumerate(profiles) for n, (gain, part) in enumerate(pieces(p))]
        valleys, result = [0] * len(profiles), []
        for _, k, _, part in sorted(queue, key=lambda piece: piece[:3]):
            others = sum(valleys) - valleys[k]
            result += [(others + high, others + low, name) for high, low, name in part]
            valleys[k] = part[-1][1]
        return result

    profiles = {}
    for name, task in named.items():
        inputs = sum(named[read].size for read in {*task.reads})
        profiles[name] = merged([profiles.pop(read) for read in dict.fromkeys(task.reads)])
        left = task.size if outputs_stay or any(name in other.reads for other in tasks) else 0
        profiles[name].append((inputs + task.size + task.scratch, left, name))
    return [name for _, _, name in merged(list(profiles.values()))]


@right("Liu's algorithm on profiles of single steps, and a search for graphs; a tuple for a list")
def on_profiles(tasks):
    if all(len(after) <= 1 for after in _readers(tasks).values()):
        return tuple(_by_pieces(tasks))
    return tuple(_best_first(tasks, settle=False))


@wrong("valid", "takes the order as listed")
def as_listed(tasks):
    return [task.name for task in tasks]


@wrong("did", "sorts the tasks so that they can run, and stops there")
def as_sorted(tasks):
    return [task.name for task in _sorted(tasks)]


def _postorder(tasks, key):
    named, order, readers = {task.name: task for task in tasks}, [], _readers(tasks)

    def visit(name):
        if name not in order:
            for read in sorted(named[name].reads, key=key(named), reverse=True):
                visit(read)
            order.append(name)

    for name in [name for name, after in readers.items() if not after]:
        visit(name)
    return order


@wrong("cost", "numbers of Sethi and Ullman: as if all results had one size")
def registers(tasks):
    def need(named):
        def of(name):
            below = sorted((of(read) for read in named[name].reads), reverse=True)
            return max([1, *(n + i for i, n in enumerate(below))])

        return of

    return _postorder(tasks, need)


@wrong("cost", "the best postorder, or the highest segment first: one subtree ends before the next begins")
def best_postorder(tasks):
    tree_ = all(len(after) <= 1 for after in _readers(tasks).values())
    if not tree_:
        return _best_first(tasks)
    peaks, named = {}, {task.name: task for task in tasks}
    for task in _sorted(tasks):
        live, high = 0, 0
        for read in sorted({*task.reads}, key=lambda n: named[n].size - peaks[n]):
            high, live = max(high, live + peaks[read]), live + named[read].size
        peaks[task.name] = max(high, live + task.size + task.scratch)
    return _postorder(tasks, lambda named: lambda name: peaks[name] - named[name].size)


@wrong("did", "always runs the ready task that changes the memory in use least")
def greedy(tasks):
    order, ran, readers = [], set(), _readers(tasks)
    while len(order) < len(tasks):

        def change(task):
            freed = [r for r in task.reads if all(t.name in ran or t is task for t in readers[r])]
            return task.size - sum(next(t.size for t in tasks if t.name == r) for r in freed)

        ready = [task for task in tasks if task.name not in ran and ran.issuperset(task.reads)]
        order.append(min(ready, key=change).name)
        ran.add(order[-1])
    return order


no_scratch = edited("cost", "forgets the scratch memory in trees")(
    ("inputs + task.size + task.scratch", "inputs + task.size")
)


@wrong("did", "forgets the scratch memory in graphs")
def no_scratch_in_graphs(tasks):
    if all(len(after) <= 1 for after in _readers(tasks).values()):
        return _by_pieces(tasks)
    return _best_first(tasks, scratch=False)


counted_twice = edited("cost", "counts a result that is read twice as two")(
    ("size[read] for read in {*task.reads}", "size[read] for read in task.reads")
)


@wrong("did", "in a graph, counts a result that is read twice as two while its reader runs")
def counted_twice_in_graphs(tasks):
    if all(len(after) <= 1 for after in _readers(tasks).values()):
        return _by_pieces(tasks)
    return _best_first(reads_counted_twice(tasks))


@wrong("valid", "adds the bits of the reads: a result that is read twice becomes another one")
def bits_added(tasks):
    if all(len(after) <= 1 for after in _readers(tasks).values()):
        return _by_pieces(tasks)
    return _best_first(tasks, distinct=list) or []


@wrong("cost", "takes a result that is read twice for one with two readers: its tree is a graph, too large to search")
def two_readers(tasks):
    once = all(len({*task.reads}) == len(task.reads) for task in tasks)
    return on_profiles(tasks) if once or len(tasks) < 20 else greedy(tasks)


@wrong("cost", "takes an output for dead once its task has run: which tree comes first does not matter to the others")
def outputs_end(tasks):
    tree_ = all(len(after) <= 1 for after in _readers(tasks).values())
    return _by_pieces(tasks, outputs_stay=False) if tree_ else _best_first(tasks)


@wrong("did", "searches a graph's orders for the least sum of what the steps use, not for the lowest peak")
def least_sum(tasks):
    readers = _readers(tasks)
    if all(len(after) <= 1 for after in readers.values()):
        return _by_pieces(tasks)
    best = {frozenset(): (0, ())}
    for _ in tasks:
        longer = {}
        for ran, (total, steps) in best.items():
            waiting = {read for task in tasks if task.name not in ran for read in task.reads}
            live = sum(t.size for t in tasks if t.name in ran and (t.name in waiting or not readers[t.name]))
            for task in tasks:
                if task.name not in ran and ran.issuperset(task.reads):
                    path = (total + live + task.size + task.scratch, (*steps, task.name))
                    longer[ran | {task.name}] = min(path, longer.get(ran | {task.name}, path))
        best = longer
    return list(best[frozenset(readers)][1])


by_hill = edited("cost", "merges segments by their hills alone")(("v - h", "-h"))
no_joins = edited("cost", "joins no segments: each task is one")(("stack and (...)", "False"))


@wrong("valid", "leaves out what nothing reads but the last task")
def without_outputs(tasks):
    order = _best_first(tasks) if len(tasks) < 20 else _by_pieces(tasks)
    last = order[-1]
    return [name for name in order if name == last or any(name in task.reads for task in tasks)][:-1]
