"""Hidden cases and answers of day06.liveness."""

from __future__ import annotations

import random
from dataclasses import replace

from autograder.answers.day06._shared import corridor, drawn
from autograder.authoring.answers import edited, right, wrong
from passlab.dataflow import parse, predecessors, successors
from passlab.exercises.day06._programs import ENTRY_IN_LOOP, program_case
from passlab.judge import Case

#: What only a branch, a print or a return reads; a parameter that is never read; a value read and assigned at once.
ENDS = parse("""
program ends(flag, unused, seen, kept)
entry:
  old = neg kept
  old = add old old
  print kept seen
  jump next
next:
  branch flag yes no
yes:
  flag = copy kept
  kept = mul kept kept
  jump no
no:
  return flag kept
""")

#: A block that no run gets to, and a loop that never ends: both have live variables.
ASIDE = parse("""
program aside(x, n)
entry:
  branch n loop done
loop:
  print x
  jump loop
never:
  k = neg x
  print k
  jump done
done:
  return n
""")

#: Each variable is read in one way alone: by a branch, a return, either operand of a print, one of three operands, an
#: operation of no use.
ONE_READ = parse("""
program once(c, r, p, q, x, y, z, d)
entry:
  branch c shown not_shown
shown:
  print p q
  jump last
not_shown:
  s = select x y z
  jump last
last:
  useless = neg d
  return r
""")

#: On one path s is read and never assigned. No run takes it, since both branches have the same condition.
NO_VALUE = parse("""
program unassigned(c)
entry:
  branch c one two
one:
  s = neg c
  jump two
two:
  branch c three four
three:
  print s
  jump four
four:
  return c
""")

#: Once the first block has run, only the way back to it leads to reads of x and n.
BACK_TO_ENTRY = parse("""
program again(x, n)
entry:
  s = add x x
  n = sub n s
  branch n back done
back:
  print s
  jump entry
done:
  return s
""")

#: Variables with the names of blocks, of an operation, and of the text in a constant: none of them is read.
ALIKE = parse("""
program alike(loop, done, add, text)
entry:
  n = const 'text'
  branch n loop done
loop:
  n = add n n
  jump done
done:
  return n
""")

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    programs = [*drawn(rng, 4, 10), *drawn(rng, 3, 9, jumps=True), *drawn(rng, 1, 60)]
    fixed = [
        program_case("every kind of read", ENDS),
        program_case("one read of each", ONE_READ),
        program_case("a path that never assigns", NO_VALUE),
        program_case("a corridor", corridor(40)),
        program_case("the entry is in the loop", ENTRY_IN_LOOP),
        program_case("a block that nothing leads to, and no end", ASIDE),
        program_case("back to the entry", BACK_TO_ENTRY),
        program_case("names that are no reads", ALIKE),
    ]
    return [*fixed, *(program_case(f"drawn, number {i + 1}", program) for i, program in enumerate(programs))]


# ---------------------------------------------------------------------------------------------------- answers


def _use_and_kill(block):
    """The variables that a block reads before it assigns them, and those that it assigns."""
    use, kill = set(), set()
    for line in block.instructions:
        use |= set(line.args) - kill
        kill |= {line.dest} if line.dest else set()
    return use | set(block.terminator.args) - kill, kill


@right("the textbook's sets, use and kill, and rounds over all blocks")
def textbook(program):
    after = {block.name: set() for block in program.blocks}
    before = {block.name: set() for block in program.blocks}
    changed = True
    while changed:
        changed = False
        for block in program.blocks:
            use, kill = _use_and_kill(block)
            new = set().union(*(before[target] for target in block.terminator.targets))
            live = use | (new - kill)
            changed |= live != before[block.name] or new != after[block.name]
            after[block.name], before[block.name] = new, live
    return {name: [before[name], after[name]] for name in before}


@right("variable by variable: from each block that reads it, back through blocks that do not assign it")
def by_variable(program):
    into, ahead = predecessors(program), successors(program)
    parts = {block.name: _use_and_kill(block) for block in program.blocks}
    before = {name: set() for name in parts}
    for variable in program.variables:
        todo = [name for name, (use, _) in parts.items() if variable in use]
        while todo:
            name = todo.pop()
            if variable not in before[name]:
                before[name].add(variable)
                todo += [other for other in into[name] if variable not in parts[other][1]]
    return {name: (sorted(before[name]), sorted(set().union(*(before[t] for t in ahead[name])))) for name in before}


kill_last = edited("did", "x = add x 1 ends the life of the x that it reads")(
    ("for line in ...:\n    ...\n    live.update(line.args)", "for line in ...:\n    live.update(line.args)\n    ...")
)
no_ends = edited("did", "what a branch or a return reads is forgotten")(
    ("set(after) | set(block.terminator.args)", "set(after)")
)
forward = edited("did", "facts flow forward")(('"liveness", "backward"', '"liveness", "forward"'))
no_prints = edited("did", "a print is overlooked")(
    ("live.update(line.args)", "live.update(line.args if line.dest else ())")
)
one_print = edited("did", "a print has one operand")(
    ("live.update(line.args)", "live.update(line.args if line.dest else line.args[:1])")
)
no_branches = edited("did", "what a branch reads is forgotten")(
    (
        "set(after) | set(block.terminator.args)",
        "set(after) | set(block.terminator.args[block.terminator.kind == 'branch' :])",
    )
)
two_operands = edited("did", "an operation has two operands")(("live.update(line.args)", "live.update(line.args[:2])"))
of_use = edited("did", "what an operation reads counts only if its result is live")(
    ("live.discard(line.dest)", "used = not line.dest or line.dest in live\nlive.discard(line.dest)"),
    ("live.update(line.args)", "live.update(line.args if used else ())"),
)
no_kill = edited("spared", "an assignment does not end a life, or everything is live at a return")(
    ("live.discard(line.dest)", "pass")
)
exchanged = edited("did", "start and end exchanged")(
    ("(solution.before[name], solution.after[name])", "(solution.after[name], solution.before[name])")
)


@wrong("spared", "every variable that the block mentions is live in it")
def mentioned(program):
    live = textbook(program)
    for block in program.blocks:
        live[block.name][0] = live[block.name][0] | {arg for line in block.instructions for arg in line.args}
    return live


@wrong("did", "only within each block: nothing flows between them")
def local(program):
    return {block.name: (_use_and_kill(block)[0], set()) for block in program.blocks}


@wrong("did", "before the first line only parameters can be live")
def parameters_alone(program):
    live, entry = textbook(program), program.entry.name
    return live | {entry: [live[entry][0] & set(program.parameters), live[entry][1]]}


def _rounds(program, number):
    """The sets after some rounds over all blocks, from the last one in the text to the first."""
    before = {block.name: set() for block in program.blocks}
    after = dict(before)
    for _ in range(number):
        for block in reversed(program.blocks):
            use, kill = _use_and_kill(block)
            after[block.name] = set().union(*(before[target] for target in block.terminator.targets))
            before[block.name] = use | (after[block.name] - kill)
    return {name: (before[name], after[name]) for name in before}


@wrong("did", "three rounds over the blocks are enough")
def three_rounds(program):
    return _rounds(program, 3)


@wrong("valid", "only the sets at the starts, or live only if it is read on every way")
def starts_alone(program):
    return {name: pair[0] for name, pair in textbook(program).items()}


@wrong("did", "what a block reads does not count if nothing leads to it")
def led_to(program):
    into, live = predecessors(program), textbook(program)
    aside = [name for name in live if not into[name] and name != program.entry.name]
    return live | {name: [live[name][1], live[name][1]] for name in aside}


@wrong("did", "nothing leads back to the entry")
def entered_once(program):
    blocks = []
    for block in program.blocks:
        targets = tuple(target for target in block.terminator.targets if target != program.entry.name)
        blocks.append(replace(block, terminator=replace(block.terminator, targets=targets)))
    return textbook(replace(program, blocks=tuple(blocks)))


words = edited("spared", "takes each word of a line that is the name of a variable for a read of it")(
    ("live.update(line.args)", "live.update({line.op, line.value, *line.args} & set(program.variables))"),
    (
        "set(after) | set(block.terminator.args)",
        "set(after) | {*block.terminator.args, *block.terminator.targets} & set(program.variables)",
    ),
)


@right("searches backward through the points of the program from the reads of one variable, without a solver")
def by_search(program):
    before, reads, assigned = {}, {}, {}
    for block in program.blocks:
        lines = [*block.instructions, block.terminator]
        for i, line in enumerate(lines):
            assigned[block.name, i] = getattr(line, "dest", "")
            for variable in line.args:
                reads.setdefault(variable, []).append((block.name, i))
            following = [(block.name, i + 1)] if i + 1 < len(lines) else [(t, 0) for t in block.terminator.targets]
            for point in following:
                before.setdefault(point, []).append((block.name, i))
    live = set()
    for variable, todo in reads.items():
        while todo:
            point = todo.pop()
            if (point, variable) not in live:
                live.add((point, variable))
                todo += [p for p in before.get(point, []) if assigned[p] != variable]
    at = {b.name: {v for v in reads if ((b.name, 0), v) in live} for b in program.blocks}
    return {b.name: (at[b.name], set().union(*(at[t] for t in b.terminator.targets))) for b in program.blocks}
