"""Hidden cases and answers of day06.constants."""

from __future__ import annotations

import random

from autograder.answers.day06._shared import drawn
from autograder.authoring.answers import edited, right, wrong
from passlab.dataflow import OPS, evaluate, parse
from passlab.exercises.day06._programs import ENTRY_IN_LOOP, FOR_EVER
from passlab.exercises.day06.constants import constant_case
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases

#: A condition that is neither 0 nor 1, products that overflow, and what has one value whatever x is.
NUMBERS = """
program numbers(x, n)
entry:
  c = const {c}
  big = const {big}
  zero = const 0
  square = mul big big
  nothing = mul x zero
  same = sub x x
  both = and zero x
  equal = eq x x
  branch c yes no
yes:
  way = const 1
  jump join
no:
  way = const 2
  jump join
join:
  d = add way square
  branch x more done
more:
  print nothing same both equal
  big = copy x
  jump done
done:
  return d way big
"""

#: A constant of the branch not taken must not reach the join; nor may what is known on one side only.
SIDES = parse("""
program sides(x, n)
entry:
  off = const 0
  k = const 7
  branch x one two
one:
  only = const 5
  branch off never three
never:
  k = const 8
  jump three
two:
  k = copy k
  jump three
three:
  chosen = select off x k
  r = add k k
  branch r four five
four:
  only = copy r
  jump five
five:
  return r chosen only
""")

#: Equal numbers that are two objects in Python.
LARGE = """
program large(x)
entry:
  branch x one two
one:
  k = const {k}
  jump join
two:
  half = const {half}
  k = add half half
  jump join
join:
  return k
"""


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    numbers = parse(NUMBERS.format(c=rng.choice((-1, 2, 3, 5)), big=rng.randint(50_000, 90_000)))
    half = rng.randint(10_000, 90_000)
    large = parse(LARGE.format(k=2 * half, half=half))
    programs = [*drawn(rng, 8, 12), *drawn(rng, 4, 9, jumps=True)]
    return [
        constant_case("numbers", numbers),
        constant_case("known on one side", SIDES),
        constant_case("large and equal on both sides", large),
        constant_case("the entry is in the loop", ENTRY_IN_LOOP),
        constant_case("no way to a return", FOR_EVER),
        *(constant_case(f"drawn, number {i + 1}", program) for i, program in enumerate(programs)),
    ]


# ---------------------------------------------------------------------------------------------------- answers

_ANY = object()


def _through(block, facts):
    """The facts after a block; a variable that may be anything has `_ANY`."""
    facts = dict(facts)
    for line in block.instructions:
        values = [facts.get(arg, _ANY) for arg in line.args]
        if line.op == "const":
            facts[line.dest] = line.value
        elif line.dest:
            unknown = line.op not in OPS or any(value is _ANY for value in values)
            facts[line.dest] = _ANY if unknown else evaluate(line.op, values)
    return facts


def _onward(block, facts):
    """The targets that may come next."""
    end = block.terminator
    condition = facts.get(end.args[0], _ANY) if end.kind == "branch" else _ANY
    return end.targets if condition is _ANY else end.targets[:1] if condition else end.targets[1:]


@right("Wegman and Zadeck's own way: a list of edges that can be taken, and no solver")
def by_edges(program):
    start = {name: _ANY for name in program.variables}
    facts, todo = {program.entry.name: start}, [program.entry.name]
    while todo:
        block = program[todo.pop()]
        after = _through(block, facts[block.name])
        for target in _onward(block, after):
            old = facts.get(target)
            new = dict(after) if old is None else {k: v if v == after[k] else _ANY for k, v in old.items()}
            if old is None or any(new[k] is not old[k] and new[k] != old[k] for k in new):
                facts[target] = new
                todo.append(target)
    return {
        block.name: None if block.name not in facts else {k: v for k, v in facts[block.name].items() if v is not _ANY}
        for block in program.blocks
    }


@right("begins with every block unreached, and makes rounds until nothing changes")
def by_rounds(program):
    names = [block.name for block in program.blocks]
    before, changed = dict.fromkeys(names), True
    before[names[0]] = {}
    while changed:
        changed = False
        for block in program.blocks:
            if before[block.name] is None:
                continue
            after = {k: v for k, v in _through(block, before[block.name]).items() if v is not _ANY}
            for target in _onward(block, after):
                old = before[target]
                new = after if old is None else dict(old.items() & after.items())
                changed |= new != old
                before[target] = new
    return before


_EDGE = "return after if target == end.targets[0 if after[end.args[0]] else 1] else None"
not_conditional = edited(
    "did", "all branches may go either way, and so every block has constants", (_EDGE, "return after")
)
pessimist = edited(
    "did",
    "before its first visit a block knows nothing: loops lose their constants",
    ("lambda p: {}, lambda p: None", "lambda p: {}, lambda p: {}"),
)
one_side = edited(
    "spared",
    "what is known on one side only is kept",
    (
        "{name: value for name, value in one.items() if other.get(name) == value}",
        "{n: v for n, v in {**other, **one}.items() if v == other.get(n, v)}",
    ),
)
one_is_true = edited("did", "only 1 is true", ("0 if after[end.args[0]] else 1", "0 if after[end.args[0]] == 1 else 1"))
no_wrap = edited(
    "spared",
    "numbers do not overflow; or x * 0, x & 0 and x == x are known, against the rules",
    ("evaluate(line.op, [known[arg] for arg in line.args])", "int(OPS[line.op](*[known[arg] for arg in line.args]))"),
)
no_copies = edited("did", "copies are not followed", ("line.op in OPS", 'line.op in OPS and line.op != "copy"'))
any_operand = edited(
    "spared",
    "an unknown operand counts as 0",
    ("line.op in OPS and ...", "line.op in OPS"),
    ("[known[arg] for arg in line.args]", "[known.get(arg, 0) for arg in line.args]"),
)
booleans = edited(
    "valid",
    "comparisons give True and False",
    ("evaluate(line.op, [known[arg] for arg in line.args])", "OPS[line.op](*[known[arg] for arg in line.args])"),
)
at_the_end = edited(
    "spared",
    "tells what is known at the ends of the blocks",
    ("return solve(program, analysis).before", "return solve(program, analysis).after"),
)


@wrong("did", "constants are those that are assigned once in the whole program")
def assigned_once(program):
    lines = [line for block in program.blocks for line in block.instructions]
    values = [line.dest for line in lines if line.dest] + list(program.parameters)
    once = {line.dest: line.value for line in lines if line.op == "const" and values.count(line.dest) == 1}
    reached = by_rounds(program)
    return {n: None if fact is None else {k: v for k, v in once.items() if k in fact} for n, fact in reached.items()}
