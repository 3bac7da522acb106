"""Day 1, straight-line Python to SSA: visible cases, an evaluator, and the judge.

A returned program is text from a learner, so it is never executed: a small evaluator walks its syntax tree and supports
only the language of the exercise.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from passlab.judge import Case, Finding, and_more
from passlab.judge.forms import why_not_a_list, why_not_of_type

#: What the programs read without defining it, besides numbers: functions, an object with fields, a table, a list.
WORLD: dict[str, Any] = {
    "max": max,
    "min": min,
    "abs": abs,
    "f": lambda a, b=1: 3 * a - b,
    "g": lambda x=2, y=3: x * 10 + y,
    "box": SimpleNamespace(x=11, y=13, box=17),
    "table": {"x": 19, "y": 23, "a": 29},
    "row": (31, 37, 41, 43),
}

_BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_LANGUAGE = (
    ast.Module, ast.Assign, ast.Name, ast.Load, ast.Store, ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.Call,
    ast.keyword, ast.Attribute, ast.Subscript, *_BINARY, *_UNARY,
)  # fmt: skip

#: Numbers are kept below this, in both programs alike, so that no program makes numbers of a million digits.
_PRIME = (1 << 61) - 1
_LONGEST = 200_000


def case(name: str, source: str, about: tuple[str, ...] = ("valid", "same", "did", "spared", "cost")) -> Case:
    return Case(name, lambda: (source,), about)


def cases() -> list[Case]:
    return [
        case("a name used again", "y = x + 1\nx = y * 2\ny = x - y\n"),
        case("augmented assignments", "x -= y - 1\nx *= x + 2\ny = x\ny += x\n"),
        case("a name that is taken", "x = x + 1\ny = x_1 + x\nx_1 = y\n"),
        case("a swap", "a, b = b, a + b\na, b = b, a + b\nc = a - 2 * b\n"),
        case("look-alikes of a name", 'x = f(x, b=max(x, 2))\ny = g(x=x, y=box.x)\nx = table["x"] + x + y\n'),
    ]


def parse(text: str) -> tuple[ast.Module | None, str]:
    """Return the syntax tree of a program in the exercise's language, or None and the reason."""
    try:
        return _parse(text)
    except (RecursionError, MemoryError):
        return None, "The program is nested too deeply."


def _parse(text: str) -> tuple[ast.Module | None, str]:
    if len(text) > _LONGEST:
        return None, f"The program has {len(text):,} characters; at most {_LONGEST:,} are allowed."
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return (
            None,
            f"The program is not valid Python{f', line {line}' if line else ''}: {str(error).split(' (')[0][:120]}.",
        )
    for statement in tree.body:
        text = ast.unparse(statement)[:80]
        if isinstance(statement, ast.AugAssign):
            return None, f"`{text}` reads and writes one name, so it cannot be SSA. Spell the operator out."
        if not isinstance(statement, ast.Assign):
            return (
                None,
                f"`{text}` is not an assignment. Write one statement, `name = expression` or `a, b = …`, per line.",
            )
        for target in statement.targets:
            if not all(isinstance(node, ast.Name | ast.Tuple | ast.Store) for node in ast.walk(target)):
                return None, f"`{text}` assigns to something that is not a name."
        for node in ast.walk(statement):
            if not isinstance(node, _LANGUAGE):
                return None, f"`{text}` contains a {type(node).__name__}, which the original program does not."
    return tree, ""


def lowered(source: str) -> ast.Module:
    """Return the original with `x op= e` written as `x = x op (e)`, which is the same for numbers."""
    tree = ast.parse(source)
    for i, statement in enumerate(tree.body):
        if isinstance(statement, ast.AugAssign):
            read = ast.Name(statement.target.id, ast.Load())
            tree.body[i] = ast.Assign([statement.target], ast.BinOp(read, statement.op, statement.value))
    return ast.fix_missing_locations(tree)


def assigned(tree: ast.Module) -> list[str]:
    """Return every assigned name, once for each assignment."""
    return [n.id for s in tree.body for t in s.targets for n in ast.walk(t) if isinstance(n, ast.Name)]


def copies(tree: ast.Module) -> list[str]:
    """Return the assignments of a bare name to a name as text, those inside tuples among them."""
    statements = [statement for statement in tree.body if isinstance(statement, ast.Assign)]
    pairs = [(target, statement.value) for statement in statements for target in statement.targets]
    names = []
    while pairs:
        target, value = pairs.pop(0)
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs += zip(target.elts, value.elts, strict=False)
        elif isinstance(target, ast.Name) and isinstance(value, ast.Name):
            names.append(f"{target.id} = {value.id}")
    return names


def read_first(tree: ast.Module) -> list[str]:
    """Return the names that are read before they are assigned: the program's inputs, in order."""
    known, free = set(), {}
    for statement in tree.body:
        for node in ast.walk(statement.value):
            if isinstance(node, ast.Name) and node.id not in known:
                free[node.id] = None
        known |= {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return list(free)


def run(tree: ast.Module, env: dict[str, Any]) -> dict[str, Any]:
    """Return the values of all names after the program. Raise ValueError with a message where it cannot continue."""
    env = dict(env)
    for statement in tree.body:
        try:
            value = evaluate(statement.value, env)
            for target in statement.targets:
                _bind(target, value, env)
        except ValueError as error:
            raise ValueError(f"`{ast.unparse(statement)[:80]}`: {error}") from None
        except Exception as error:
            raise ValueError(f"`{ast.unparse(statement)[:80]}`: {type(error).__name__}: {str(error)[:100]}") from None
    return env


def _bind(target: ast.expr, value: Any, env: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        env[target.id] = value
        return
    if not isinstance(value, tuple) or len(value) != len(target.elts):
        raise ValueError(f"{len(target.elts)} names on the left do not match the right side")
    for part, item in zip(target.elts, value, strict=True):
        _bind(part, item, env)


def evaluate(node: ast.expr, env: dict[str, Any]) -> Any:
    """Return the value of an expression. Only numbers, tuples and the contents of `WORLD` can occur."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in env:
            raise ValueError(f"{node.id} has no value at this point")
        return env[node.id]
    if isinstance(node, ast.Tuple):
        return tuple(evaluate(part, env) for part in node.elts)
    if isinstance(node, ast.BinOp):
        return _small(_BINARY[type(node.op)](_number(node.left, env), _number(node.right, env)))
    if isinstance(node, ast.UnaryOp):
        return _UNARY[type(node.op)](_number(node.operand, env))
    if isinstance(node, ast.Call):
        called = evaluate(node.func, env)
        if not any(called is known for known in WORLD.values() if callable(known)):
            raise ValueError(f"{ast.unparse(node.func)[:40]} is not a function here")
        args = [_number(arg, env) for arg in node.args]
        return _small(called(*args, **{word.arg: _number(word.value, env) for word in node.keywords if word.arg}))
    if isinstance(node, ast.Attribute):
        fields = vars(owner) if isinstance(owner := evaluate(node.value, env), SimpleNamespace) else {}
        if node.attr not in fields:
            raise ValueError(f"{ast.unparse(node)[:40]} does not exist")
        return fields[node.attr]
    return evaluate(node.value, env)[evaluate(node.slice, env)]


def _number(node: ast.expr, env: dict[str, Any]) -> int | float:
    value = evaluate(node, env)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{ast.unparse(node)[:40]} is {type(value).__name__}, not a number")
    return value


def _small(value: int | float) -> int | float:
    return value % _PRIME if isinstance(value, int) and abs(value) >= _PRIME else value


def worlds(names: list[str]) -> Iterator[dict[str, Any]]:
    """Return three sets of values for a program's inputs; no two names share a value."""
    numbers = [name for name in names if name not in WORLD]
    for start, step in ((5, 7), (101, 13), (-4, -11)):
        yield WORLD | {name: start + step * i for i, name in enumerate(numbers)}


def words(tree: ast.Module) -> Counter:
    """Count field names, keywords and constants: the words of a program that renaming must not touch."""
    words_of_text: Counter = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            words_of_text[f"the field .{node.attr}"] += 1
        elif isinstance(node, ast.keyword):
            words_of_text[f"the keyword {node.arg}="] += 1
        elif isinstance(node, ast.Constant):
            words_of_text[f"the constant {node.value!r}"] += 1
    return words_of_text


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `same`: final values. `did`: one assignment per name. `spared`: inputs and words. `cost`: no copies."""
    before = lowered(case.build()[0])
    after, broken = _program(value, before)
    yield Finding("valid", after is not None, broken)
    if after is None:
        return
    last = value[1]
    times, inputs = Counter(assigned(after)), read_first(before)
    old, new = len(assigned(before)), sum(times.values())
    duplicate = next((name for name, number in times.items() if number > 1), None)
    clash = next((name for name in inputs if name in times), None)
    did = ""
    if duplicate:
        did = f"{duplicate} is assigned {times[duplicate]} times. In SSA every assignment defines a new name."
    elif clash:
        did = (
            f"{clash} is an input and is also assigned: that makes two definitions of one name. "
            f"The input keeps the name; the first assignment needs a new one."
        )
    elif new < old:
        did = f"{old} assignments became {new}: each assignment in the original gives exactly one new name."

    unknown = [name for name in read_first(after) if name not in inputs and name not in times]
    changed = words(before)
    changed.subtract(words(after))
    absent = next((word for word, number in changed.items() if number > 0), None)
    spared = ""
    if unknown:
        spared = (
            f"Your program reads {unknown[0]}, which nothing defines. The inputs are "
            f"{and_more(inputs)}; they keep their names, functions included."
        )
    elif absent:
        spared = f"The original contains {absent}, and yours does not: only names of variables may change."

    message = _unequal(before, after, last)
    yield Finding("same", not message, "" if did or spared else message)  # those two name the cause
    yield Finding("did", not did, did)
    yield Finding("spared", not spared, spared)

    have, want = copies(after), len(copies(before))
    message = ""
    if new > old:
        message = f"{old} assignments became {new}: SSA needs a new name for each assignment, but no copies."
    elif len(have) > want:
        message = f"`name = name`: {want} in the original, {len(have)} in yours ({and_more(have)}). SSA adds no copies."
    yield Finding("cost", not message, message)


def _program(value: Any, before: ast.Module) -> tuple[ast.Module | None, str]:
    form = "the program's text, and a dict from each old name to its last new name"
    if reason := why_not_a_list(value, form, 2):
        return None, reason
    text, last = value
    if reason := why_not_of_type(text, f"{form}: first a text", str) or why_not_of_type(
        last, f"{form}: then a dict", dict
    ):
        return None, reason
    tree, broken = parse(text)
    if tree is None:
        return None, broken
    names = dict.fromkeys(assigned(before))
    if missing := [name for name in names if name not in last]:
        return None, f"The dict has no entry for {missing[0]}; every name that the original assigns needs one."
    if extra := [name for name in last if name not in names]:
        return None, f"The dict has an entry for {str(extra[0])[:40]!r}, which the original never assigns."
    known = {*assigned(tree), *read_first(before)}
    for old, new in last.items():
        if new not in known:
            return (
                None,
                f"Your dict says that the last {old} is {str(new)[:40]!r}, but your program never defines that name.",
            )
    return tree, ""


def _unequal(before: ast.Module, after: ast.Module, last: dict[str, str]) -> str:
    """Return the first final value that differs, with the inputs that show it, or ""."""
    inputs = read_first(before)
    for world in worlds(inputs):
        want = run(before, world)
        values = ", ".join(f"{name} = {world[name]}" for name in inputs if name not in WORLD) or "no inputs"
        try:
            have = run(after, world)
        except ValueError as error:
            return f"With {values}, your program stops at {error}."
        for old, new in last.items():
            if have[new] != want[old]:
                return (
                    f"With {values}, the original ends with {old} = {want[old]}; in your program {new}, "
                    f"the last {old}, is {have[new]}."
                )
    return ""
