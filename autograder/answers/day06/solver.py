"""Hidden cases and answers of day06.solver."""

from __future__ import annotations

import random

from autograder.answers.day06._shared import corridor, drawn
from autograder.authoring.answers import edited, right, wrong
from passlab.dataflow import ANALYSES, parse, predecessors, reverse_postorder, successors
from passlab.exercises.day06._programs import COUNT, ENTRY_IN_LOOP, FOR_EVER, TWO_ENTRIES
from passlab.exercises.day06.constants import OPTIMIST
from passlab.exercises.day06.solver import solver_case
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases

#: The entry adds nothing to the facts: what comes after it must be visited all the same.
QUIET = parse("""
program quiet()
entry:
  jump first
first:
  a = const 3
  jump last
last:
  b = neg a
  return b
""")

#: Each return gets the boundary: after it, nothing will be computed.
TWO_RETURNS = parse("""
program early(x, y)
entry:
  branch x early late
early:
  a = neg x
  return a
late:
  b = add x y
  return b
""")

#: Without a return, no block gets the boundary: what the loop leaves alone stays as it was initially.
NO_RETURN = parse("""
program daemon(x, n)
entry:
  y = neg x
  jump serve
serve:
  n = add n x
  jump again
again:
  print n
  jump serve
""")

_ROOMS = "".join(f"h{i}:\n  v{i} = neg go\n  branch go h{i - 1} h{i + 1}\n" for i in range(1, 8))
_TAIL = "".join(f"t{i}:\n  jump t{i + 1}\n" for i in range(30))
#: Definitions come to the head of a loop one by one: the blocks behind it wait until the loop has all of them.
TRICKLE = parse(f"""
program trickle(go)
entry:
  jump h0
h0:
  v0 = neg go
  branch go t0 h1
{_ROOMS}h8:
  v8 = neg go
  jump h7
{_TAIL}t30:
  return v0
""")


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    names = [name for name in ANALYSES if name != "intervals"]  # intervals need `widen`
    fixed = [
        solver_case("the entry is in the loop: reaching definitions", ENTRY_IN_LOOP, "reaching definitions"),
        solver_case("the entry is in the loop: available expressions", ENTRY_IN_LOOP, "available expressions"),
        solver_case("no way to a return: anticipated expressions", FOR_EVER, "anticipated expressions"),
        solver_case("an entry that adds nothing", QUIET, "reaching definitions"),
        solver_case("a switch that stays off", OPTIMIST, "constants"),
        solver_case("backward and on every way", COUNT, "anticipated expressions"),
        solver_case("two returns", TWO_RETURNS, "anticipated expressions"),
        solver_case("no return at all", NO_RETURN, "anticipated expressions"),
        solver_case("a jump into a loop", TWO_ENTRIES, "dominators"),
        solver_case("a corridor, backward", corridor(40), "liveness"),
        solver_case("a corridor, forward", corridor(40), "constants"),
        solver_case("a loop with a long way on", TRICKLE, "reaching definitions"),
    ]
    small = [
        solver_case(f"drawn, number {i + 1}: {name}", program, name)
        for i, program in enumerate([*drawn(rng, 3, 12), *drawn(rng, 2, 9, jumps=True)])
        for name in names
    ]
    large = [
        solver_case(f"many blocks in any order: {name}", program, name)
        for program, name in zip(drawn(rng, 3, 150), ("liveness", "reaching definitions", "dominators"), strict=True)
    ]
    return [*fixed, *small, *large]


# ---------------------------------------------------------------------------------------------------- answers


class _Facts:
    """What the right answers share: the equations, without an order of visits."""

    def __init__(self, program, analysis):
        self.program, self.analysis = program, analysis
        self.forward = analysis.direction == "forward"
        ahead, behind = successors(program), predecessors(program)
        self.sources, self.readers = (behind, ahead) if self.forward else (ahead, behind)
        self.ends = {program.entry.name} if self.forward else {name for name in ahead if not ahead[name]}
        self.blocks = {block.name: block for block in program.blocks}
        self.came = {name: analysis.initial(program) for name in self.blocks}
        self.went = dict(self.came)
        self.log = []

    def visit(self, name):
        analysis = self.analysis
        self.log.append(name)
        facts = [self.went[source] for source in self.sources[name]]
        if analysis.edge:
            edges = zip(self.sources[name], facts, strict=True)
            facts = [analysis.edge(self.blocks[source], name, fact) for source, fact in edges]
        facts += [analysis.boundary(self.program)] if name in self.ends else []
        fact = analysis.initial(self.program)
        for other in facts:
            fact = analysis.merge(other, fact)
        self.came[name], old = fact, self.went[name]
        self.went[name] = analysis.transfer(self.blocks[name], fact)
        return self.went[name] != old

    def result(self):
        facts = (self.came, self.went) if self.forward else (self.went, self.came)
        return (*facts, self.log)


@right("a set of waiting blocks, of which it takes the first in reverse post-order")
def first_of_a_set(program, analysis):
    facts = _Facts(program, analysis)
    place = {name: i for i, name in enumerate(reverse_postorder(program, analysis.direction))}
    waiting = set(place)
    while waiting:
        name = min(waiting, key=place.get)
        waiting.remove(name)
        if facts.visit(name):
            waiting.update(facts.readers[name])
    return list(facts.result())


@right("a list of flags in reverse post-order; after a change that leads back it goes on from there")
def flags(program, analysis):
    facts = _Facts(program, analysis)
    order = reverse_postorder(program, analysis.direction)
    place = {name: i for i, name in enumerate(order)}
    dirty, at = [True] * len(order), 0
    while at < len(order):
        onward = at + 1
        if dirty[at]:
            dirty[at] = False
            if facts.visit(order[at]):
                for reader in facts.readers[order[at]]:
                    dirty[place[reader]] = True
                    onward = min(onward, place[reader])
        at = onward
    before, after, log = facts.result()
    return before, after, tuple(log)


_START = "fact = analysis.boundary(program) if starts else analysis.initial(program)"
_AGAIN = """        if outputs[name] != old:
            for reader in readers[name]:
                if place[reader] not in waiting:
                    heapq.heappush(waiting, place[reader])
"""

unions = edited("did", "facts merge by union, whatever the analysis says")(
    ("analysis.merge(fact, incoming)", "fact | incoming")
)
no_boundary = edited("did", "the boundary is not used")((_START, "fact = analysis.initial(program)"))
boundary_everywhere = edited("did", "every block starts from the boundary")(
    (_START, "fact = analysis.boundary(program)")
)
no_edges = edited("did", "the edge function is not called")(("... if analysis.edge else ...", "... if False else ..."))
one_round = edited("did", "one round in the right order, and loops are not visited again")((_AGAIN, ""))
one_source = edited("did", "reads only the first of the sources")(("sources[name]", "sources[name][:1]"))
always_forward = edited("did", "facts always flow forward, or start and end are merely exchanged at the end")(
    ('forward = analysis.direction == "forward"', "forward = True")
)
last_is_exit = edited("did", "backward, the boundary is at the last block of the text only")(
    ("not successors_of[name]", "name == program.blocks[-1].name")
)
first_is_exit = edited("did", "backward, in a program without a return the first block of the order gets the boundary")(
    ("not successors_of[name]", "not successors_of[name] or all(successors_of.values()) and name == order[0]")
)
order_of_text = edited("cost", "blocks are visited in the order of the text")(
    ("reverse_postorder(program, analysis.direction)", "list(blocks)")
)
queue = edited("cost", "what waits longest comes first")(
    ("order[heapq.heappop(waiting)]", "order[waiting.pop(0)]"),
    ("heapq.heappush(waiting, place[reader])", "waiting.append(place[reader])"),
)
twice_in_line = edited("cost", "a block that waits already is put in line once more")(
    ("if place[reader] not in waiting: ...", "if True: ...")
)
three_visits = edited("did", "a block is visited three times at most")(
    ("if outputs[name] != old: ...", "if outputs[name] != old and log.count(name) < 3: ...")
)
told_once = edited("same", "tells each block once, to look cheap")(
    ("while waiting: ...", "while waiting: ...\nlog = order")
)


@wrong("cost", "rounds over all blocks until nothing changes")
def rounds(program, analysis):
    facts = _Facts(program, analysis)
    while sum([facts.visit(block.name) for block in program.blocks]):
        pass
    return facts.result()


@wrong("valid", "returns the facts alone")
def facts_alone(program, analysis):
    facts = _Facts(program, analysis)
    while sum([facts.visit(name) for name in reverse_postorder(program, analysis.direction)]):
        pass
    return facts.came, facts.went
