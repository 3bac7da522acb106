"""Hidden cases and answers of day01.to-ssa."""

from __future__ import annotations

import ast
import io
import itertools
import random
import re
import tokenize

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day01 import to_ssa as ssa
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _program(seed: int, lines: int = 8) -> str:
    """Return a random program of the language over few names, some of which look as if they were renamed already."""
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
        "numbers that meet": "x1 = x + 1\n" + "x = x + x1\n" * 12 + "x_1 = x\nx1 = x1 + x_1\n" + "x_ = x1\nx1_ = x_\n",
        "parentheses": "x *= y - 1\nx -= y - x\ny //= x + 7 - 4\ny %= 5 - 2\nx = -x\nx *= -x + y\n",
        "one name on both sides": "x -= x - 3\ny = x, x + 1\nx, y = y\nx += x * y\n",
        "several targets": "a = b = a + 1\n(a, c), b = (b, a + 2), c\nb, b = a, b + c\na = (c, a) = 1, 2\n",
        "words that are not variables": 'y = g(y=2, x=y)\nx = table["x"] - box.y\nbox = box.box + x\n',
        "functions are values too": "max = max(x, 3)\nf = f(max, b=max)\nx = f - max\n",
        "remarks and blank lines": "# x = 1\nx = 2  # x += 1\n\n\ny = x\nx = y + x ; y = x\n",
        "subscripts that are variables": "i = 1\ni = i + 1\nx = row[i] - row[i - 1]\ni = row[x - x]\n",
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


def _rename(source, fresh):
    """Return the program renamed and its last names; `fresh(name)` gives a new name."""
    last, lines = {}, []

    def write(name):
        last[name] = fresh(name)
        return last[name]

    for statement in map(_as_assign, ast.parse(source).body):
        value = _Rename(lambda name: last.get(name, name)).visit(statement.value)
        targets = [_Rename(write).visit(target) for target in statement.targets]
        lines.append(ast.unparse(ast.fix_missing_locations(ast.Assign(targets, value))))
    return "\n".join(lines) + "\n", last


def _counter(source):
    """Return a function that gives names not in the program: v1, v2, …"""
    names = _names(ast.parse(source))
    free = (f"v{n}" for n in itertools.count(1) if f"v{n}" not in names)
    return lambda name: next(free)


@right("numbers all values in one row, whatever they were called")
def one_row(source):
    return _rename(source, _counter(source))


@right("works on tokens; tuples are taken apart into single assignments, all of which read the old names")
def by_tokens(source):
    names, last, lines, count = _names(ast.parse(source)), {}, [], itertools.count(1)

    def fresh(name):
        new = next(n for n in (f"{name}{'_' * i}{next(count)}" for i in itertools.count(2)) if n not in names)
        names.add(new)
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


@wrong("same", "does the parts of a tuple one after the other: the second reads what the first wrote")
def one_after_the_other(source):
    lines = []
    for statement in map(_as_assign, ast.parse(source).body):
        target, value = statement.targets[0], statement.value
        tuples = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs = zip(target.elts, value.elts, strict=True) if tuples else ()
        parts = [ast.Assign([t], v) for t, v in pairs] or [statement]
        lines += [ast.unparse(ast.fix_missing_locations(part)) for part in parts]
    return _rename("\n".join(lines), _counter(source))


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


@wrong("cost", "copies what comes in into a first version of its own")
def copies_inputs(source):
    text, last = _rename(source, fresh := _counter(source))
    inputs = [name for name in sorted(_names(ast.parse(text))) if name in last]
    copies = {name: fresh(name) for name in inputs}
    renamed = _Rename(lambda name: copies.get(name, name)).visit(ast.parse(text))
    return "".join(f"{new} = {old}\n" for old, new in copies.items()) + ast.unparse(renamed), last


@wrong("cost", "writes `a = b = e` as `a = e` and `b = a`: the second is a copy")
def chains_as_copies(source):
    lines = []
    for statement in map(_as_assign, ast.parse(source).body):
        first, *others = statement.targets
        parts = [statement]
        if isinstance(first, ast.Name):
            parts = [ast.Assign([first], statement.value)]
            parts += [ast.Assign([target], ast.Name(first.id, ast.Load())) for target in others]
        lines += [ast.unparse(ast.fix_missing_locations(part)) for part in parts]
    return _rename("\n".join(lines), _counter(source))


@wrong("did", "drops `y = x` and reads x in place of y from then on: that removes a copy of the original")
def drops_copies(source):
    text, last = _rename(source, _counter(source))
    lines, same = [], {}
    for statement in ast.parse(text).body:
        value = _Rename(lambda name: same.get(name, name)).visit(statement.value)
        target = statement.targets[0]
        if len(statement.targets) == 1 and isinstance(target, ast.Name) and isinstance(value, ast.Name):
            same[target.id] = value.id
        else:
            lines.append(ast.unparse(ast.fix_missing_locations(ast.Assign(statement.targets, value))))
    return "\n".join(lines), {old: same.get(new, new) for old, new in last.items()}


plain_subscripts = edited("spared", "takes every subscript for a constant: the name in row[i] stays")(
    (
        "class Read(ast.NodeTransformer): ...",
        """
        class Read(ast.NodeTransformer):
            def visit_Subscript(self, node):
                return ast.Subscript(self.visit(node.value), node.slice, node.ctx)

            ...
        """,
    )
)
inputs_renamed = edited("spared", "numbers the names that come in, too, and then nothing defines them")(
    ("last.get(node.id, node.id)", 'last.get(node.id, f"{node.id}_0")')
)
left_side_first = edited("same", "gives the left side its new name before it reads the right side")(
    ("value = Read().visit(value)  #", "#"),
    ("[... for target in targets], value", "[... for target in targets], Read().visit(value)"),
)
first_not_last = edited("same", "returns where a name's first value is, not its last")(
    ("last: dict[str, str] = {}", "last, first = {}, {}"),
    ("last[node.id] = new", "last[node.id] = new\nfirst.setdefault(node.id, new)"),
    ('"".join(lines), last', '"".join(lines), first'),
)
names_taken = edited("did", "takes x_1 without a look whether the program has that name already")(
    ("{node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}", "set()")
)
first_keeps_name = edited("did", "the first assignment keeps the old name, even where a value of that name comes in")(
    ("names.add(new)", "new = new if node.id in last else node.id\nnames.add(new)")
)
text_only = edited("valid", "returns the program and forgets where the last values are")(
    ('"".join(lines), last', '"".join(lines)')
)


EQUIVALENT = {
    ("number = 1\nwhile ...: ...", "number = 2\nwhile ...: ..."): "the choice of names is free",
    ("number += 1", "number += 2"): "the choice of names is free",
}
