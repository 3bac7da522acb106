"""Hidden cases and answers of day05.remat."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

from autograder.answers.day05._shared import reads_counted_twice
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day05._tasks import drawn, there_and_back, until
from passlab.exercises.day05.remat import ALLOWED, enough_memory, least_work, squeezed, squeezed_case, tight
from passlab.judge import Case
from passlab.memory.tasks import Task, peak, work


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def training(count: int) -> tuple[list[Task], int]:
        def draw() -> tuple:
            tasks = there_and_back(rng, count)
            return tasks, squeezed(rng, tasks)

        return until(draw, lambda pair: pair[1] is not None)

    def least(tasks: list[Task]) -> int:
        """The smallest budget that a schedule keeps."""
        high = peak(tasks, [task.name for task in tasks])
        return next(b for b in range(1, high + 1) if least_work(tuple(tasks), b) is not None)

    def costs_more(tasks: list[Task]) -> bool:
        once = work(tasks, [task.name for task in tasks])
        return least_work(tuple(tasks), least(tasks)) > ALLOWED * once

    chain = until(lambda: there_and_back(rng, 4), costs_more)
    graph = until(lambda: drawn(rng, 8), costs_more)
    dear = [Task("dear", (), 6, cost=50), Task("cheap", (), 6, cost=1), Task("use", ("dear", "cheap"), 2, cost=1)]
    dear += [Task("wide", ("use",), 9, cost=1), Task("slim", ("wide",), 1, cost=1)]
    dear += [Task("end", ("slim", "dear", "cheap"), 1, cost=1)]
    roomy = [replace(task, scratch=5) if task.name == "cheap" else task for task in dear]
    runs = [Task("dear", (), 8, cost=50), Task("one", (), 4), Task("two", (), 4)]
    rng.shuffle(runs)
    sources = tuple(task.name for task in runs)
    runs += [Task("use", sources, 1), Task("wide", ("use",), 9), Task("slim", ("wide",), 1)]
    runs += [Task("end", ("slim", *sources), 1)]
    double = [replace(task, reads=(*task.reads, *task.reads[-1:])) for task in chain]
    aside = until(lambda: [Task("side", (), 6, cost=9), *there_and_back(rng, 4)], costs_more)
    early = [Task("out", (), 10), Task("in", (), 1, 10), Task("end", ("in",), 1)]
    free = [Task("free", (), 4, cost=0), Task("use", ("free",), 3, cost=2), Task("end", ("use", "free"), 1, cost=2)]
    spare = [Task("in", (), 3, cost=4), Task("out", ("in",), 5, cost=4), Task("mid", ("in",), 2, cost=1)]
    nothing = [replace(task, cost=1 if task.name == "dear" else 0) for task in runs]
    twice = [Task("kept", (), 5), Task("x", (), 5), Task("x·x", ("x", "x"), 1), Task("end", ("kept", "x·x"), 1)]
    return [
        tight("training, 4 steps", *training(4)),
        tight("training, 5 steps", *training(5)),
        tight("training, with the least memory", chain, least(chain)),
        tight("a graph, with the least memory", graph, least(graph)),
        tight("what is cheap goes", dear, 17),
        tight("what is cheap has no room to run again", roomy, 17),
        tight("two cheap runs cost less than one dear run", runs, 18),
        tight("tasks that read a result twice", double, least(double)),
        tight("an output at the side", aside, least(aside)),
        tight("an early output leaves no room", early, 15),
        squeezed_case(rng, "drawn, number 1", 8),
        squeezed_case(rng, "drawn, number 2", 9),
        squeezed_case(rng, "drawn, number 3", 10),
        enough_memory("training, with enough memory", there_and_back(rng, 4)),
        enough_memory("drawn, with enough memory", drawn(rng, 9)),
        enough_memory("two outputs", [*spare, Task("late", ("mid",), 4, 1, 2)]),
        enough_memory("a task that costs nothing", free),
        enough_memory("one task", [Task("only", (), 4, 2)]),
        enough_memory("a result that is read twice is live once", twice),
        tight("two runs that cost nothing cost less than one run", nothing, 18),
    ]


EQUIVALENT = {
    ("0, frozenset()", "1, frozenset()"): "only differences between works matter",
    ("task.name not in live and ...", "..."): "to run what is there leads nowhere new",
}

# ---------------------------------------------------------------------------------------------------- answers


def _search(tasks, budget, cost=lambda task: task.cost, scratch=True, final=True, distinct=set):
    """Dijkstra's algorithm with bits for sets; or None. `final`: outputs must be there at the end."""
    number = {task.name: i for i, task in enumerate(tasks)}
    needs = [sum(1 << number[r] for r in distinct(task.reads)) for task in tasks]
    outputs = sum(1 << i for i, task in enumerate(tasks) if not any(task.name in other.reads for other in tasks))
    queue, closed, count = [(0, 0, 0, 0, None)], set(), 0
    while queue:
        done, _, ran, live, path = heapq.heappop(queue)
        if (ran, live) in closed:
            continue
        closed.add((ran, live))
        if ran == len(tasks) and (live & outputs == outputs or not final):
            steps = []
            while path:
                path, name = path
                steps.append(name)
            return steps[::-1]
        used = sum(task.size for i, task in enumerate(tasks) if live >> i & 1)
        for i, task in enumerate(tasks[: ran + 1]):
            count += 1
            if live >> i & 1:
                heapq.heappush(queue, (done, count, ran, live ^ 1 << i, path))
            elif needs[i] & live == needs[i] and used + task.size + task.scratch * scratch <= budget:
                state = ran + (i == ran), live | 1 << i, (path, task.name)
                heapq.heappush(queue, (done + cost(task), count, *state))
    return None


@right("first runs come in the order as given; sets as bits, and a tuple for a list")
def as_bits(tasks, budget):
    return tuple(_search(tasks, budget))


@right("the order as given where it fits, and the search only where it does not")
def order_first(tasks, budget):
    order = [task.name for task in tasks]
    if peak(tasks, order) <= budget:
        return order
    return _search(tasks, budget)


@wrong("did", "keeps everything, or drops what was used longest ago, whether what is left fits or not")
def as_given(tasks, budget):
    return [task.name for task in tasks]


@wrong("spared", "keeps nothing: everything that is read is made again each time")
def keeps_nothing(tasks, budget):
    named, steps = {task.name: task for task in tasks}, []

    def run(name, depth):
        if depth > 12 or len(steps) > 500:
            return
        for read in named[name].reads:
            run(read, depth + 1)
        steps.append(name)

    for task in tasks:
        if task.name not in steps or not any(task.name in other.reads for other in tasks):
            run(task.name, 0)
    return steps


@wrong("cost", "counts runs in place of work: what is dear is made again as readily as what is cheap")
def runs_not_work(tasks, budget):
    return _search(tasks, budget, cost=lambda task: 1)


@wrong("cost", "counts each run as work of 1 at least, also of a task that costs nothing")
def nothing_costs_one(tasks, budget):
    return _search(tasks, budget, cost=lambda task: max(1, task.cost))


@wrong("spared", "counts a result that is read twice as two while its reader runs")
def counted_twice(tasks, budget):
    return _search(reads_counted_twice(tasks), budget) or _search(tasks, budget)


@wrong("did", "forgets the scratch memory")
def no_scratch(tasks, budget):
    return _search(tasks, budget, scratch=False)


@wrong("valid", "adds the bits of the reads: a result that is read twice becomes another one")
def bits_added(tasks, budget):
    return _search(tasks, budget, distinct=list) or [task.name for task in tasks[:-1]]


result_only = edited("did", "forgets that a result takes room while it is made")(
    ("used + task.size + task.scratch", "used")
)
last_only = edited("valid", "takes the last task for the only output")(("outputs <= live", "tasks[-1].name in live"))


@wrong("did", "lets go of outputs that are ready, or never makes one again at the end")
def outputs_dropped(tasks, budget):
    return _search(tasks, budget, final=False)


@wrong("did", "lets an output end with its own step when it asks whether the budget suffices for the order as given")
def outputs_end(tasks, budget):
    live, fits = [], True
    for i, task in enumerate(tasks):
        fits &= sum(t.size for t in [*live, task]) + task.scratch <= budget
        later = {read for t in tasks[i + 1 :] for read in t.reads}
        live = [t for t in [*live, task] if t.name in later]
    return [task.name for task in tasks] if fits else order_first(tasks, budget)


@wrong("spared", "runs a task that costs nothing once more, since that is free")
def free_again(tasks, budget):
    steps = order_first(tasks, budget)
    return [task.name for task in tasks if not task.reads and not task.cost][:1] + steps


@wrong("valid", "makes a dropped result again, but not what that needs")
def shallow(tasks, budget):
    steps, live = [], {}
    for task in tasks:
        steps += [read for read in task.reads if read not in live]
        live |= {read: 1 for read in task.reads} | {task.name: 1}
        steps.append(task.name)
        while sum(t.size for t in tasks if t.name in live) > budget // 2:
            live.pop(next(iter(live)))
        steps = steps[1:] if len(steps) == 3 else steps
    return steps


@wrong("spared", "runs each task again right before each reader, even if its result is there")
def always_again(tasks, budget):
    steps, inputs = [], {task.name for task in tasks if not task.reads}
    for task in tasks:
        steps += [read for read in task.reads if read in inputs and steps[-1:] != [read]]
        steps.append(task.name)
    return steps
