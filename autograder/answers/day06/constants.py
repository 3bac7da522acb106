"""Hidden cases and answers of day06.constants."""

from __future__ import annotations

import random

from autograder.answers.day06._shared import corridor, drawn
from autograder.authoring.answers import edited, right, wrong
from passlab.dataflow import OPS, evaluate, parse
from passlab.exercises.day06._programs import ENTRY_IN_LOOP, FOR_EVER
from passlab.exercises.day06.constants import constants_case
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


ONE_OPERAND, THREE_OPERANDS = ("copy", "neg", "not"), ("select", "clamp")

#: Every operation of one or two operands, all of them known.
EVERY = f"""
program every(x, n)
entry:
  a = const {{a}}
  b = const {{b}}
  zero = const 0
{chr(10).join(f"  {op}_ = {op} a b" for op in OPS if op not in (*ONE_OPERAND, *THREE_OPERANDS))}
  copied = copy a
  minus = neg b
  no = not a
  yes = not zero
  least = const -2147483648
  wrapped = neg least
  jump done
done:
  return a
"""

#: The operations of three operands.
CHOICES = """
program choices(x, n)
entry:
  a = const {a}
  b = const {b}
  zero = const 0
  first = select a zero b
  second = select zero zero b
  inside = clamp zero a b
  above = clamp zero b a
  below = clamp a zero b
  jump done
done:
  return a
"""

#: A parameter that is assigned a constant, and one that is no longer known: the entry is the head of the loop.
ASSIGNED = parse("""
program assigned(x, n)
entry:
  m = copy n
  branch m one two
one:
  x = const 5
  n = const 0
  jump both
two:
  x = const 5
  n = copy x
  jump both
both:
  y = add x x
  branch n entry last
last:
  return x y n
""")

#: A block that no block leads to, and that leads on: it has no say.
ASIDE = parse("""
program aside(x)
entry:
  k = const 4
  jump done
never:
  k = const 5
  jump done
done:
  return k
""")

#: What follows without knowing all operands, but not by the rules; nor is x known where eq x k is true.
UNKNOWN = parse("""
program unknown(x, n)
entry:
  k = const 7
  low = const -2147483648
  one = const 1
  least = min x low
  most = max low x
  either = or x one
  never = lt x low
  alike = eq x k
  branch alike yes no
yes:
  print x
  jump no
no:
  return least most either never
""")

#: A block that is its own loop assigns a constant the value that it has, and selects one of two that are equal.
ITSELF = parse("""
program itself(x)
entry:
  k = const 4
  jump loop
loop:
  j = copy k
  k = const 4
  either_way = select x j k
  x = sub x k
  branch x loop done
done:
  return k j
""")


#: All operands are known, and one is 0, or both are one variable.
KNOWN = """
program known(x, n)
entry:
  a = const {a}
  zero = const 0
  nothing = mul zero a
  same = sub a a
  neither = and a zero
  jump done
done:
  return nothing same neither
"""

_CHAIN = 12
#: Each round of the loop loses one more variable: v11 comes from x, v10 from v11, and so on.
FORGETS = parse(f"""
program forgets(x)
entry:
{chr(10).join(f"  v{i} = const 7" for i in range(_CHAIN))}
  jump loop
loop:
{chr(10).join(f"  v{i} = copy v{i + 1}" for i in range(_CHAIN - 1))}
  v{_CHAIN - 1} = copy x
  x = sub x v0
  branch x loop done
done:
  return v0
""")


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    numbers = parse(NUMBERS.format(c=rng.choice((-1, 2, 3, 5)), big=rng.randint(50_000, 90_000)))
    half, small, great = rng.randint(10_000, 90_000), rng.randint(3, 9), rng.randint(20, 90)
    large = parse(LARGE.format(k=2 * half, half=half))
    programs = [*drawn(rng, 8, 12), *drawn(rng, 4, 9, jumps=True)]
    return [
        constants_case("numbers", numbers),
        constants_case("known on one side", SIDES),
        constants_case("large and equal on both sides", large),
        constants_case("every operation", parse(EVERY.format(a=small, b=great))),
        constants_case("three operands", parse(CHOICES.format(a=small, b=great))),
        constants_case("a parameter that is assigned", ASSIGNED),
        constants_case("a block that nothing leads to", ASIDE),
        constants_case("operands that are not known", UNKNOWN),
        constants_case("a loop that assigns the same again", ITSELF),
        constants_case("a corridor", corridor(40)),
        constants_case("the entry is in the loop", ENTRY_IN_LOOP),
        constants_case("no way to a return", FOR_EVER),
        *(constants_case(f"drawn, number {i + 1}", program) for i, program in enumerate(programs)),
        constants_case("a product with a 0, of known numbers", parse(KNOWN.format(a=small))),
        constants_case("a loop that forgets one variable in each round", FORGETS),
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
not_conditional = edited("did", "all branches may go either way, and so every block has constants")(
    (_EDGE, "return after")
)
pessimist = edited("did", "before its first visit a block knows nothing: loops lose their constants")(
    ("lambda p: {}, lambda p: None", "lambda p: {}, lambda p: {}")
)
one_side = edited("spared", "what is known on one side only is kept")(
    (
        "{name: value for name, value in a.items() if b.get(name) == value}",
        "{n: v for n, v in {**b, **a}.items() if v == b.get(n, v)}",
    )
)
one_is_true = edited("did", "only 1 is true")(("0 if after[end.args[0]] else 1", "0 if after[end.args[0]] == 1 else 1"))
no_wrap = edited("spared", "numbers do not overflow; or x * 0, x & 0 and x == x are known, against the rules")(
    ("evaluate(line.op, [values[arg] for arg in line.args])", "int(OPS[line.op](*[values[arg] for arg in line.args]))")
)
no_copies = edited("did", "copies are not followed")(("line.op in OPS", 'line.op in OPS and line.op != "copy"'))
no_parameters = edited("did", "a parameter is never known, though it is assigned")(
    ("values = dict(before)", "values = {name: before[name] for name in before if name not in parameters}"),
    ("def merge(a, b): ...", "parameters = program.parameters\ndef merge(a, b): ..."),
)
two_operands = edited("did", "an operation with three operands is not known")(
    ("line.op in OPS and ...", "line.op in OPS and line.args[2:] == () and ...")
)
zero_operand = edited("did", "a product with a 0 is not known, even if the other factor is")(
    (
        "line.op in OPS and ...",
        "not (line.op == 'mul' and 0 in map(values.get, line.args)) and line.op in OPS and ...",
    )
)
arithmetic = edited("did", "knows the operations of the lesson alone")(
    (
        "line.op in OPS and ...",
        "line.op in ('add', 'sub', 'mul', 'neg', 'copy', 'lt', 'eq', 'and', 'min', 'max') and ...",
    )
)
by_choice = edited("spared", "a select with a known condition is known if the operand that it takes is")(
    (
        "line.op in OPS and ...",
        "line.op == 'select' and values.get(line.args[0]) == 0 and line.args[2] in values or line.op in OPS and ...",
    ),
    ("[values[arg] for arg in line.args]", "[values.get(arg, 0) for arg in line.args]"),
)
equal_choices = edited("spared", "a select between two equal constants is known, whatever its condition")(
    (
        "line.op in OPS and ...",
        "line.op == 'select' and values.get(line.args[1], '') == values.get(line.args[2]) or line.op in OPS and ...",
    ),
    ("[values[arg] for arg in line.args]", "[values.get(arg, 0) for arg in line.args]"),
)
no_wrap_below = edited("spared", "the least number can be negated")(
    (
        "evaluate(line.op, [values[arg] for arg in line.args])",
        "-values[line.args[0]] if line.op == 'neg' else evaluate(line.op, [values[arg] for arg in line.args])",
    )
)
bounds = edited("spared", "the minimum of anything and the least number is known")(
    (
        "line.op in OPS and ...",
        "line.op == 'min' and -(2**31) in map(values.get, line.args) or line.op in OPS and ...",
    ),
    ("[values[arg] for arg in line.args]", "[values.get(arg, -(2**31)) for arg in line.args]"),
)
any_operand = edited("spared", "an unknown operand counts as 0")(
    ("line.op in OPS and ...", "line.op in OPS"),
    ("[values[arg] for arg in line.args]", "[values.get(arg, 0) for arg in line.args]"),
)
booleans = edited("valid", "comparisons give True and False")(
    ("evaluate(line.op, [values[arg] for arg in line.args])", "OPS[line.op](*[values[arg] for arg in line.args])")
)
at_the_end = edited("spared", "tells what is known at the ends of the blocks")(
    ("return solve(program, analysis).before", "return solve(program, analysis).after")
)


@wrong("spared", "where eq x k is true, x is k")
def refined(program):
    facts = by_rounds(program)
    for block in program.blocks:
        tests = [line for line in block.instructions if line.op == "eq" and line.dest in block.terminator.args]
        if block.terminator.kind == "branch" and tests and facts[block.name] is not None:
            after, target = _through(block, facts[block.name]), block.terminator.targets[0]
            values = [after.get(arg, _ANY) for arg in tests[-1].args]
            if facts[target] is not None and values.count(_ANY) == 1:
                names = [arg for arg, value in zip(tests[-1].args, values, strict=True) if value is _ANY]
                facts[target] = facts[target] | dict.fromkeys(names, next(v for v in values if v is not _ANY))
    return facts


@wrong("did", "what a block that is its own loop assigns is not known at its start")
def own_loops(program):
    facts = by_rounds(program)
    for block in program.blocks:
        if block.name in block.terminator.targets and facts[block.name] is not None:
            assigned = {line.dest for line in block.instructions}
            facts[block.name] = {k: v for k, v in facts[block.name].items() if k not in assigned}
    return facts


def _rounds(program, count):
    before = dict.fromkeys(block.name for block in program.blocks)
    before[program.entry.name] = {}
    for _ in range(count):
        for block in program.blocks:
            if before[block.name] is not None:
                after = {k: v for k, v in _through(block, before[block.name]).items() if v is not _ANY}
                for target in _onward(block, after):
                    old = before[target]
                    before[target] = after if old is None else dict(old.items() & after.items())
    return before


@wrong("spared", "three rounds over the blocks are enough")
def three_rounds(program):
    return _rounds(program, 3)


@wrong("spared", "as many rounds over the blocks as there are blocks are enough")
def rounds_by_blocks(program):
    return _rounds(program, max(4, len(program.blocks)))


@wrong("did", "constants are those that are assigned once in the whole program")
def assigned_once(program):
    lines = [line for block in program.blocks for line in block.instructions]
    values = [line.dest for line in lines if line.dest] + list(program.parameters)
    once = {line.dest: line.value for line in lines if line.op == "const" and values.count(line.dest) == 1}
    reached = by_rounds(program)
    return {n: None if fact is None else {k: v for k, v in once.items() if k in fact} for n, fact in reached.items()}
