"""Hidden cases and answers of day06.gvn."""

from __future__ import annotations

import random
from itertools import product

from autograder.answers.day06._shared import drawn
from autograder.authoring.answers import edited, right, wrong
from passlab.dataflow import COMMUTATIVE, OPS, Analysis, parse, reverse_postorder, solve, successors
from passlab.exercises.day06.gvn import gvn_case
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases

#: Equal constants, a chain of equal values, an operation that must not be turned round, a holder that is overwritten.
CHAIN = parse("""
program chain(x, y)
entry:
  a = const 4
  b = const 4
  c = sub x a
  d = sub x b
  e = sub b x
  f = mul c y
  g = mul d y
  h = neg f
  k = neg g
  f = add x y
  c = copy x
  m = mul d y
  c = add c a
  x = add x b
  n = neg x
  p = neg c
  return e h k m n p
""")

#: A loop that does not touch what was computed before it, and one that does.
LOOP = parse("""
program around(x, y)
entry:
  a = mul x y
  b = add x y
  i = copy x
  jump loop
loop:
  c = mul x y
  d = add i y
  branch i body done
body:
  i = add i c
  e = mul y x
  print e
  jump loop
done:
  f = mul x y
  g = add i y
  return c d f g b
""")

#: Two constants that differ, prints between operations, a copy whose name changes the order of operands, and one
#: that outlives what it was copied from.
PRINTS = parse("""
program prints(x, y)
entry:
  p = const 4
  q = const 9
  r = sub x p
  s = sub x q
  print x
  d = add x y
  print x
  e = sub x y
  f = sub x y
  z = copy x
  b = add z y
  g = mul r z
  h = mul r x
  t = max x y
  u = copy t
  t = neg x
  w = max x y
  return d e f r s b g h t u w
""")


#: A result that is computed into the variable that holds it, and comparisons that must not be turned round.
AGAIN = parse("""
program again(x, y)
entry:
  a = add x y
  a = add x y
  p = lt x y
  q = lt y x
  r = le x y
  s = le y x
  return a p q r s
""")

#: The same equations come from both ways by other names: p equals q, a is the sum, and one is 1.
JOIN = parse("""
program join(x, y, z)
entry:
  branch z left right
left:
  p = copy x
  q = copy x
  a = add x y
  one = const 1
  jump both
right:
  q = copy y
  p = copy y
  x = copy z
  a = add x y
  one = const 1
  jump both
both:
  r = sub p z
  s = sub q z
  b = add x y
  k = const 1
  c = sub k z
  d = sub one z
  return r s b c d
""")

#: An operand that is overwritten by the result, and back to the entry, where nothing is known at first.
OVERWRITTEN = parse("""
program overwritten(x, y)
entry:
  a = sub x y
  x = sub x y
  b = sub x y
  y = neg y
  c = neg y
  y = neg y
  branch b entry done
done:
  d = neg y
  e = sub x y
  return a b c d e
""")

#: Three operands: the last one differs, or the first one, and the first two change places.
CHOICES = parse("""
program choices(c, x, y, z)
entry:
  a = select c x y
  b = select c x z
  d = select x c y
  e = select c y x
  f = select c x y
  g = select z x y
  return a b d e f g
""")


#: What the body assigns reaches the head after all blocks were visited once: the body is visited again.
SECOND_WAY = parse("""
program second(x, y, n)
entry:
  a = add x y
  b = mul x y
  m = copy n
  jump head
head:
  branch n body done
body:
  c = add x y
  x = copy c
  n = copy m
  m = sub m m
  jump head
done:
  d = mul x y
  return a b d
""")


#: All operations that commute, and some that do not, each with its operands the other way round.
TURNED = parse(
    "\n".join(
        [
            "program turned(x, y)",
            "entry:",
            *(f"  {op}_ = {op} x y" for op in (*sorted(COMMUTATIVE), "ge", "gt")),
            *(f"  {op}_2 = {op} y x" for op in (*sorted(COMMUTATIVE), "ge", "gt")),
            "  return x",
        ]
    )
)

#: What four variables hold is redundant once.
HOLDERS = parse("""
program holders(x, y)
entry:
  a = add x y
  b = copy a
  c = add y x
  d = copy x
  e = add d y
  f = clamp x a y
  g = clamp d c y
  h = clamp a x y
  return a b c e f g h
""")

#: Results that no variable holds any more: in the same block, computed into another variable and into the same one, and
#: in the next block.
GONE = parse("""
program gone(x, y)
entry:
  a = add x y
  b = mul x y
  c = sub x y
  a = neg y
  d = add y x
  b = neg x
  b = mul x y
  c = copy x
  jump next
next:
  e = sub x y
  c = add x y
  return a b c d e
""")

#: A new value moves on by one variable in each turn: d and e differ only after the fourth.
SHIFTED = parse("""
program shifted(a, y)
entry:
  b = copy a
  c = copy a
  d = copy a
  e = copy a
  jump loop
loop:
  t = add d y
  u = add e y
  e = copy d
  d = copy c
  c = copy b
  b = copy a
  a = add a y
  branch y loop done
done:
  return t u
""")


#: The last operand is assigned in between.
LAST = parse("""
program last(x, y, z)
entry:
  a = sub x y
  b = select x y z
  z = neg z
  c = select x y z
  y = neg y
  d = sub x y
  return a b c d
""")

#: Comparisons and `not`, each twice, and a clamp with its limits the other way round.
TWICE = parse("""
program twice(x, y, z)
entry:
  a = lt x y
  b = le x y
  c = gt x y
  d = ge x y
  e = not x
  f = clamp x y z
  a = lt x y
  b = le x y
  c = gt x y
  d = ge x y
  e = not x
  g = clamp z y x
  return a b c d e f g
""")

#: A result that is printed, one operand twice, a copy of a variable to itself, a copied last operand, a parameter that
#: holds a result, and constants that differ in the sign.
KEPT = parse("""
program kept(x, y, z)
entry:
  a = add x x
  print a
  a = add x x
  x = copy x
  a = add x x
  b = select x y z
  c = copy z
  b = select x y c
  z = mul x y
  b = mul x y
  a = const 3
  b = const -3
  c = sub x a
  a = sub x b
  return a b c z
""")

#: Constants that end in the same byte.
BYTES = parse("""
program bytes(x, y)
entry:
  a = const 3
  b = const 259
  c = add x a
  d = add x b
  return c d
""")

#: Constants that Python gives one hash, and equal ones that are not one object.
HASHES = parse("""
program hashes(x, y)
entry:
  a = const -1
  b = const -2
  c = add x a
  d = add x b
  a = const 1000
  b = const 1000
  e = sub x a
  f = sub x b
  return c d e f
""")


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    programs = [*drawn(rng, 8, 9), *drawn(rng, 4, 7, jumps=True)]
    return [
        gvn_case("a chain", CHAIN),
        gvn_case("around a loop", LOOP),
        gvn_case("prints", PRINTS),
        gvn_case("again", AGAIN),
        gvn_case("by other names on both ways", JOIN),
        gvn_case("operands that are overwritten", OVERWRITTEN),
        gvn_case("choices", CHOICES),
        gvn_case("the second way round", SECOND_WAY),
        gvn_case("operands the other way round", TURNED),
        gvn_case("several holders", HOLDERS),
        gvn_case("no holder any more", GONE),
        gvn_case("handed on from turn to turn", SHIFTED),
        gvn_case("the last operand is assigned", LAST),
        gvn_case("comparisons twice", TWICE),
        gvn_case("what keeps a value", KEPT),
        gvn_case("constants of one byte and of two", BYTES),
        gvn_case("constants of one hash", HASHES),
        *(gvn_case(f"drawn, number {i + 1}", program) for i, program in enumerate(programs)),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _computed(line):
    if line.op == "const":
        return ("const", line.value)
    return (line.op, *(sorted(line.args) if line.op in COMMUTATIVE else line.args))


class _Classes:
    """Variable → number of its value, and (op, numbers) → number: a value that no variable holds is dropped."""

    def __init__(self, of=(), table=()):
        self.of, self.table = dict(of), dict(table)

    def __eq__(self, other):
        return isinstance(other, _Classes) and self.plain() == other.plain()

    def plain(self):
        """The classes as sets of variables, and what is computed from them: equal whatever the numbers are."""
        values = {}
        for name, number in self.of.items():
            values.setdefault(number, set()).add(name)
        values = {number: frozenset(names) for number, names in values.items()}
        labels = {number: str(sorted(names)) for number, names in values.items()}
        rows = set()
        for (op, args), n in self.table.items():
            words = [labels.get(a, a) for a in args]
            rows.add((op, *(sorted(words) if op in COMMUTATIVE else words), labels[n]))
        return frozenset(values.values()), frozenset(rows)

    def number(self, line, fresh):
        if line.op == "copy":
            return self.of[line.args[0]]
        if line.op == "const":
            return self.table.setdefault(("const", (f"#{line.value}",)), fresh())
        args = [self.of[arg] for arg in line.args]
        return self.table.setdefault((line.op, tuple(sorted(args) if line.op in COMMUTATIVE else args)), fresh())

    def cleared(self):
        values = set(self.of.values())
        self.table = {
            (op, args): n
            for (op, args), n in self.table.items()
            if n in values and all(a in values or isinstance(a, str) for a in args)
        }
        return self


def _both(one, other):
    """Two variables stay equal if they are on both sides: their value is numbered by the pair of numbers."""
    if one is None or other is None:
        return other if one is None else one
    numbers = {}

    def pair(a, b):
        return numbers.setdefault((a, b), len(numbers))

    of = {name: pair(one.of[name], other.of[name]) for name in one.of.keys() & other.of.keys()}
    table = {}
    for (op, args), n in one.table.items():
        for (op2, args2), n2 in other.table.items():
            orders = [args2, args2[::-1]] if op in COMMUTATIVE else [args2]
            for turned in orders if op == op2 and (n, n2) in numbers else ():
                if op == "const":
                    if args == args2:
                        table[op, args] = numbers[n, n2]
                elif all(p in numbers for p in zip(args, turned, strict=True)):
                    pairs = [numbers[p] for p in zip(args, turned, strict=True)]
                    table[op, tuple(sorted(pairs) if op in COMMUTATIVE else pairs)] = numbers[n, n2]
    return _Classes(of, table)


def _walk(block, before, claims=None):
    state = _Classes(before.of, before.table)
    count = [max([n for n in state.of.values()], default=0)]

    def fresh():
        count[0] += 1
        return count[0]

    for i, line in enumerate(block.instructions):
        for arg in line.args:
            state.of.setdefault(arg, fresh())
        if not line.dest:
            continue
        number = state.number(line, fresh)
        holders = sorted(name for name, n in state.of.items() if n == number)
        if claims is not None and holders and line.op not in ("const", "copy"):
            claims.append((block.name, i, holders[-1]))
        state.of[line.dest] = number
        state.cleared()
    return state


def _start(program):
    return _Classes({name: i for i, name in enumerate(program.variables)})


@right("numbers for values, and pairs of numbers where ways meet")
def numbered(program):
    start = _start(program)
    analysis = Analysis(
        "numbers",
        "forward",
        lambda p: start,
        lambda p: None,
        _both,
        lambda block, before: None if before is None else _walk(block, before),
    )
    facts, claims = solve(program, analysis).before, []
    for block in program.blocks:
        if facts[block.name] is not None:
            _walk(block, facts[block.name], claims)
    return claims


@right("begins with all equations there could be, and strikes out what does not hold")
def struck_out(program):
    lines = {_computed(line) for block in program.blocks for line in block.instructions if line.dest}
    shapes = {(value[0], len(value) - 1) for value in lines if value[0] not in ("const", "copy")}
    values = {("copy", name) for name in program.variables} | {value for value in lines if value[0] == "const"}
    for op, count in shapes:
        for args in product(program.variables, repeat=count):
            values.add((op, *(sorted(args) if op in COMMUTATIVE else args)))
    top = frozenset((name, value) for name in program.variables for value in values if value != ("copy", name))

    def holds(equations, line):
        """The equations after a line. Which of them hold is asked of classes, built anew from the ones before."""
        return frozenset(_after(equations, line))

    def transfer(block, before):
        for line in block.instructions:
            before = holds(before, line)
        return before

    analysis = Analysis("all", "forward", lambda p: frozenset(), lambda p: top, frozenset.intersection, transfer)
    facts, claims = solve(program, analysis).before, []
    for block in program.blocks:
        equations = facts[block.name]
        for i, line in enumerate(block.instructions):
            holders = [name for name, value in equations if value == _computed(line)]
            if holders and line.op not in ("const", "copy", "print"):
                claims.append((block.name, i, max(holders)))
            equations = holds(equations, line)
    return claims


def _after(equations, line):
    """For each equation that holds of the old values, the ones that it gives of the new ones."""
    if not line.dest:
        return equations
    value = _computed(line)
    equal = {name for name, e in equations if e == value} | ({value[1]} if value[0] == "copy" else set())
    if line.dest in equal:
        return equations  # it is assigned the value that it has
    survivors = {
        (name, e) for name, e in equations if name != line.dest and (e[0] == "const" or line.dest not in e[1:])
    }
    new = set(survivors)
    for name in equal - {line.dest}:
        new |= {(name, ("copy", line.dest)), (line.dest, ("copy", name))}
        new |= {(line.dest, e) for other, e in survivors if other == name}
        for other, e in survivors:
            if e[0] == "const":
                continue
            places = [i for i in range(1, len(e)) if e[i] == name]
            for swaps in product((False, True), repeat=len(places)):
                args = list(e[1:])
                for place, take in zip(places, swaps, strict=True):
                    args[place - 1] = line.dest if take else name
                for holder in {other, *([line.dest] if other == name else [])}:
                    new.add((holder, (e[0], *(sorted(args) if e[0] in COMMUTATIVE else args))))
    if value[0] in ("const",) or line.dest not in value[1:]:
        if value != ("copy", line.dest):
            new.add((line.dest, value))
        new |= {(line.dest, e) for e in _variants(value, equal, survivors) if e != ("copy", line.dest)}
    else:
        new |= {(line.dest, e) for e in _variants(value, equal, equations) if line.dest not in e[1:]}
    return {(name, e) for name, e in new if e != ("copy", name)}


def _variants(value, equal, equations):
    """A right side with each operand replaced by variables that equal it."""
    if value[0] == "const":
        return {value}
    ways = [[arg, *(e[1] for name, e in equations if name == arg and e[0] == "copy")] for arg in value[1:]]
    return {(value[0], *(sorted(args) if value[0] in COMMUTATIVE else args)) for args in product(*ways)}


no_copies = edited("did", "copies are not followed")(
    ('new = complete(equations | {("", computed(line))})', 'new = equations | {("", computed(line))}')
)
not_turned = edited("did", "add x y and add y x are two different values")(
    ("return (line.op, *(sorted(line.args) if line.op in COMMUTATIVE else line.args))", "return (line.op, *line.args)"),
    ("return (op, *(sorted(args) if op in COMMUTATIVE else args))", "return (op, *args)"),
)
sums_turned = edited("did", "only sums and products commute")(
    (
        "sorted(line.args) if line.op in COMMUTATIVE else line.args",
        "sorted(line.args) if line.op in ('add', 'mul') else line.args",
    ),
    ("sorted(args) if op in COMMUTATIVE else args", "sorted(args) if op in ('add', 'mul') else args"),
)
last_operands = edited("spared", "looks at the last two operands of a select")(
    (
        "sorted(line.args) if line.op in COMMUTATIVE else line.args",
        "sorted(line.args) if line.op in COMMUTATIVE else line.args[-2:]",
    )
)
every_holder = edited("valid", "names every variable that holds the result")(
    ("claims.append((block.name, i, holds[0]))", "claims.extend((block.name, i, name) for name in holds)")
)
all_turned = edited("spared", "sub x y and sub y x are the same value")(
    ("sorted(line.args) if line.op in COMMUTATIVE else line.args", "sorted(line.args)"),
    ("sorted(args) if op in COMMUTATIVE else args", "sorted(args)"),
)
operands_stay = edited("spared", "an assignment to an operand is overlooked")(
    ("... and line.dest not in value[1:]", "...")
)
last_stays = edited("spared", "an assignment to the first operand only makes a result another value")(
    ("... and line.dest not in value[1:]", "... and line.dest not in value[1:2]")
)
no_comparisons = edited("did", "a comparison is not an operation that can be redundant")(
    ('line.op != "copy"', 'line.op not in ("copy", "lt", "le", "gt", "ge")')
)
without_sign = edited("spared", "constants that differ in the sign are equal")(
    ('return ("const", line.value)', 'return ("const", abs(line.value))')
)
last_bytes = edited("spared", "keeps the last byte of a constant")(
    ('return ("const", line.value)', 'return ("const", line.value % 256)')
)
by_hash = edited("spared", "takes constants for equal if their hashes are")(
    ('return ("const", line.value)', 'return ("const", hash(line.value))')
)
by_identity = edited("did", "takes constants for equal if they are the same object")(
    ('return ("const", line.value)', 'return ("const", id(line.value))')
)
one_way = edited("spared", "what holds on one of the ways is enough")(("return a & b", "return complete(a | b)"))
pessimist = edited("did", "before its first visit a block has no equations: loops lose theirs")(
    ("lambda p: frozenset(), lambda p: None", "lambda p: frozenset(), lambda p: frozenset()")
)
no_constants = edited("did", "two variables with the same constant are not equal")(
    ("value == twin", 'value == twin and value[0] != "const"')
)


def _visited(program, times):
    facts, ways, claims = {program.entry.name: _start(program)}, successors(program), []
    for name in reverse_postorder(program) * times:
        after = _walk(program[name], facts[name])
        for target in ways[name]:
            facts[target] = _both(facts.get(target), after)
    for block in program.blocks:
        _walk(block, facts[block.name], claims)
    return claims


@wrong("spared", "visits each block once, and does not return to what a loop changes behind its head")
def one_visit(program):
    return _visited(program, 1)


@wrong("spared", "visits each block three times, and does not ask whether anything still changes")
def three_visits(program):
    return _visited(program, 3)


@wrong("did", "block by block")
def local(program):
    claims = []
    for block in program.blocks:
        _walk(block, _start(program), claims)
    return claims


@wrong("spared", "an operation is redundant if its text occurred before")
def by_text(program):
    holders, claims = {}, []
    for block in program.blocks:
        for i, line in enumerate(block.instructions):
            if line.op in ("const", "copy", "print"):
                continue
            if _computed(line) in holders:
                claims.append((block.name, i, holders[_computed(line)]))
            holders.setdefault(_computed(line), line.dest)
    return claims


@wrong("spared", "names the result's own variable where no other holds the value any more")
def own_variable(program):
    claims = {(block, i): name for block, i, name in numbered(program)}
    for block in program.blocks:
        known = set()
        for i, line in enumerate(block.instructions):
            if line.op in OPS and line.op != "copy" and _computed(line) in known:
                claims.setdefault((block.name, i), line.dest)
            known = {e for e in known | {_computed(line)} if line.dest not in e[1:]}
    return [(*place, name) for place, name in claims.items()]


@wrong("valid", "names the operations alone")
def operations_alone(program):
    return [entry[:2] for entry in numbered(program)]


EQUIVALENT = {
    ("before is not None", "True"): "no program has a block that cannot be reached",
    ("equations is not None", "True"): "no program has a block that cannot be reached",
    ('op == "const"', "False"): "a number is never the name of a variable",
    ('("const", line.value)', "(line.value,)"): "a number alone is unlike all other right sides, too",
}
