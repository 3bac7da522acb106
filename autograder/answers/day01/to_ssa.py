"""Hidden cases and answers of day01.to-ssa."""

from __future__ import annotations

import ast
import io
import itertools
import random
import re
import tokenize

from autograder.authoring.answers import right, wrong
from passlab.exercises.day01 import to_ssa as ssa
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _program(seed: int, lines: int = 8) -> str:
    """A random program of the language over few names, some of which look as if they were renamed already."""
    rng = random.Random(seed)
    names = rng.sample(["a", "b", "x", "y", "x_1", "x_2", "y1", "a_1", "x_"], 5)

    def atom() -> str:
        return rng.choice(
            [rng.choice(names), rng.choice(names), str(rng.randint(1, 9)), "box.x", 'table["a"]', "row[2]"]
        )

    def expression(depth: int = 2) -> str:
        kind = rng.random()
        if depth == 0 or kind < 0.25:
            return atom()
        if kind < 0.75:
            return f"({expression(depth - 1)} {rng.choice('+-*')} {expression(depth - 1)})"
        if kind < 0.85:
            return f"{expression(depth - 1)} {rng.choice(['//', '%'])} {rng.randint(2, 9)}"
        call = rng.choice(["f({0}, b={1})", "g(y={0}, x={1})", "max({0}, {1})", "g({0})"])
        return call.format(expression(depth - 1), expression(depth - 1))

    text = []
    for _ in range(lines):
        name, other = rng.sample(names, 2)
        form = rng.choice(["=", "=", "+=", "-=", "*=", "swap", "tuple", "chain"])
        if form == "swap":
            text.append(f"{name}, {other} = {other}, {expression(1)}")
        elif form == "tuple":
            text.append(f"{name}, ({other}, {name}) = {expression(1)}, ({expression(1)}, {expression(1)})")
        elif form == "chain":
            text.append(f"{name} = {other} = {expression(1)}")
        else:
            text.append(f"{name} {form} {expression()}")
    return "\n".join(text) + "\n"


def hidden(seed: int) -> list[Case]:
    texts = {
        "names that are taken": "x = x + 1\ny = x_1 + x\nx_1 = x - y\nx = x_1 * x_2\nx_1_1 = x_1\nx_1 = 3\n",
        "parentheses": "x *= y - 1\nx -= y - x\ny //= x + 7 - 4\ny %= 5 - 2\nx = -x\nx *= -x + y\n",
        "one name on both sides": "x -= x - 3\ny = x, x + 1\nx, y = y\nx += x * y\n",
        "several targets": "a = b = a + 1\na, b = b, a\n(a, c), b = (b, a + 2), c\nb, b = a, b + c\n",
        "words that are no variables": 'y = g(y=2, x=y)\nx = table["x"] - box.y\nbox = box.box + x\n',
        "functions are values too": "max = max(x, 3)\nf = f(max, b=max)\nx = f - max\n",
        "remarks and blank lines": "# x = 1\nx = 2  # x += 1\n\n\ny = x\nx = y + x ; y = x\n",
        "parts of names": "a = max(a, ab)\nab = a + abs(a)\nx = ab\nxx = x + a\nx = xx\n",
    }
    return [
        *(ssa.case(f"random program {i}", _program(seed * 10 + i)) for i in range(6)),
        *(ssa.case(name, text) for name, text in texts.items()),
        ssa.case("an empty program", "", ("valid",)),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _names(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


class _Rename(ast.NodeTransformer):
    def __init__(self, new):
        self.new = new

    def visit_Name(self, node):
        return ast.Name(self.new(node.id), node.ctx)


def _as_assign(statement):
    if not isinstance(statement, ast.AugAssign):
        return statement
    read = ast.Name(statement.target.id, ast.Load())
    return ast.Assign([statement.target], ast.BinOp(read, statement.op, statement.value))


def _rename(source, fresh, *, left_first=False, simultaneous=True, entry=None):
    """`fresh(name)` gives a new name. The mistakes: the left side first, tuples one after the other, inputs renamed."""
    tree, last, lines = ast.parse(source), {}, []
    given = {}

    def read(name):
        if name in last:
            return last[name]
        return given.setdefault(name, entry(name)) if entry else name

    def write(name):
        last[name] = fresh(name)
        return last[name]

    for statement in map(_as_assign, tree.body):
        pairs = [(statement.targets, statement.value)]
        target, value = statement.targets[0], statement.value
        if not simultaneous and isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = [([t], v) for t, v in zip(target.elts, value.elts, strict=True)]
        for targets, expression in pairs:
            if left_first:
                targets = [_Rename(write).visit(t) for t in targets]
            expression = _Rename(read).visit(expression)
            if not left_first:
                targets = [_Rename(write).visit(t) for t in targets]
            lines.append(ast.unparse(ast.fix_missing_locations(ast.Assign(targets, expression))))
    return "\n".join(lines) + "\n", last


def _counter(source):
    """Names that nobody has: v1, v2, … without those of the program."""
    taken = _names(ast.parse(source))
    free = (f"v{n}" for n in itertools.count(1) if f"v{n}" not in taken)
    return lambda name: next(free)


def _versions(start=1):
    numbers = {}

    def fresh(name):
        numbers[name] = numbers.get(name, start - 1) + 1
        return f"{name}_{numbers[name]}"

    return fresh


@right("numbers all values in one row, whatever they were called")
def one_row(source):
    return _rename(source, _counter(source))


@right("works on tokens; tuples are taken apart into single assignments, all of which read the old names")
def by_tokens(source):
    taken, last, lines, count = _names(ast.parse(source)), {}, [], itertools.count(1)

    def fresh(name):
        new = next(n for n in (f"{name}{'_' * i}{next(count)}" for i in itertools.count(2)) if n not in taken)
        taken.add(new)
        return new

    def read(text):
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string]
        words = []
        for i, token in enumerate(tokens):
            word = token.string
            field = i and tokens[i - 1].string == "."
            keyword = i + 1 < len(tokens) and tokens[i + 1].string == "=" and i and tokens[i - 1].string in "(,"
            words.append(last.get(word, word) if token.type == tokenize.NAME and not field and not keyword else word)
        return " ".join(words)

    for statement in ast.parse(source).body:
        if isinstance(statement, ast.AugAssign):
            text = ast.unparse(ast.fix_missing_locations(_as_assign(statement)))
            statement = ast.parse(text).body[0]
        parts = []
        for target in statement.targets:
            todo = [(target, statement.value)]
            while todo:
                left, value = todo.pop(0)
                if isinstance(left, ast.Tuple) and isinstance(value, ast.Tuple):
                    todo = [*zip(left.elts, value.elts, strict=True), *todo]
                else:
                    parts.append((left, read(ast.unparse(value))))
        for left, text in parts:
            for name in ast.walk(left):
                if isinstance(name, ast.Name):
                    last[name.id] = name.id = fresh(name.id)
            lines.append(f"{ast.unparse(left)} = {text}")
    return "\n".join(lines), last


@wrong("spared", "replaces words in the text: keywords, fields and strings are renamed as well")
def by_words(source):
    fresh, last, lines = _counter(source), {}, []
    for statement in map(_as_assign, ast.parse(source).body):
        value = re.sub(r"[A-Za-z_]\w*", lambda m: last.get(m[0], m[0]), ast.unparse(statement.value))
        for target in ast.walk(ast.Tuple(statement.targets)):
            if isinstance(target, ast.Name):
                last[target.id] = target.id = fresh(target.id)
        lines.append(" = ".join([*map(ast.unparse, statement.targets), value]))
    return "\n".join(lines), last


@wrong("spared", "the names that come in are given a number too, and then nothing defines them")
def inputs_renamed(source):
    fresh = _counter(source)
    return _rename(source, fresh, entry=lambda name: f"{name}_0")


@wrong("same", "gives the left side its new name before the right side is read")
def left_side_first(source):
    return _rename(source, _counter(source), left_first=True)


@wrong("same", "does the parts of a tuple one after the other: the second reads what the first wrote")
def one_after_the_other(source):
    return _rename(source, _counter(source), simultaneous=False)


@wrong("same", "writes x op= a + b as x op a + b: the parentheses are lost")
def no_parentheses(source):
    lines = []
    for statement in ast.parse(source).body:
        text = ast.unparse(statement)
        if isinstance(statement, ast.AugAssign):
            sign = re.search(r"(//|[-+*/%])=", text)
            name, value = text.split(f" {sign[0]} ", 1)
            text = f"{name} = {name} {sign[1]} {value}"
        lines.append(text)
    return _rename("\n".join(lines), _counter(source))


@wrong("same", "says where a name's first value is, not its last")
def first_not_last(source):
    first = {}
    fresh = _counter(source)

    def note(name):
        return first.setdefault(name, new) if (new := fresh(name)) is None else first.setdefault(name, new) and new

    text, _ = _rename(source, note)
    return text, first


@wrong("did", "x_1 is taken for free without a look: the program may have that name already")
def names_taken(source):
    return _rename(source, _versions())


@wrong("did", "the first assignment keeps the old name, also where a value of that name comes in")
def first_keeps_name(source):
    fresh, seen = _counter(source), set()

    def later(name):
        if name in seen:
            return fresh(name)
        seen.add(name)
        return name

    return _rename(source, later)


@wrong("did", "names are numbered by line, so two targets in one line share one")
def by_line(source):
    lines, last = [], {}
    for number, statement in enumerate(map(_as_assign, ast.parse(source).body)):
        value = _Rename(lambda name: last.get(name, name)).visit(statement.value)
        for target in ast.walk(ast.Tuple(statement.targets)):
            if isinstance(target, ast.Name):
                last[target.id] = target.id = f"{target.id}_line{number}"
        lines.append(ast.unparse(ast.fix_missing_locations(ast.Assign(statement.targets, value))))
    return "\n".join(lines), last


@wrong("cost", "copies what comes in into a first version of its own")
def copies_inputs(source):
    text, last = _rename(source, fresh := _counter(source))
    inputs = [name for name in sorted(_names(ast.parse(text))) if name in last]
    copies = {name: fresh(name) for name in inputs}
    renamed = _Rename(lambda name: copies.get(name, name)).visit(ast.parse(text))
    return "".join(f"{new} = {old}\n" for old, new in copies.items()) + ast.unparse(renamed), last


@wrong("cost", "puts a temporary in front of every assignment")
def temporaries(source):
    text, last = _rename(source, fresh := _counter(source))
    lines = []
    for statement in ast.parse(text).body:
        name = fresh("t")
        lines += [f"{name} = {ast.unparse(statement.value)}"]
        statement.value = ast.Name(name, ast.Load())
        lines += [ast.unparse(statement)]
    return "\n".join(lines), last


@wrong("valid", "keeps augmented assignments and renames in them")
def keeps_augmented(source):
    tree, fresh, last = ast.parse(source), _counter(source), {}
    for statement in tree.body:
        statement.value = _Rename(lambda name: last.get(name, name)).visit(statement.value)
        for target in ast.walk(ast.Tuple(getattr(statement, "targets", None) or [statement.target])):
            if isinstance(target, ast.Name):
                last[target.id] = target.id = fresh(target.id)
    return ast.unparse(tree), last


@wrong("valid", "returns the program and forgets where the last values are")
def text_only(source):
    return _rename(source, _counter(source))[0]
