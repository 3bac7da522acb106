"""Parse plain Python loops into a program: their domains, accesses and order."""

from __future__ import annotations

import ast
import re
import textwrap

import islpy as isl

from passlab.polyhedral.program import Program, Statement

#: The functions that a statement may call; numpy, or Python, and TensorIR share these names.
FUNCTIONS = ("max", "min", "abs", "sqrt", "exp")
_NAMES = "STUVWXYZPQRO"
_RESERVED = {"exists", "floor", "ceil", "mod", "max", "min", "rat", "infty", "infinity", "nan", "true", "false", "abs"}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=", ast.NotEq: "!="}


class NotAffine(ValueError):
    """A loop, subscript or condition is outside the polyhedral model; the message is a sentence."""


def parse(source: str, name: str = "main") -> Program:
    """Parse loops over `range` whose bounds and subscripts are affine in loop variables and parameters.

        parse('''
        for i in range(1, N):
            A[i] = A[i - 1] + B[2 * i]
        ''')

    Names in bounds and subscripts that no loop defines are parameters; `//` and `%` by a number, `min`, `max` and an
    `if` on such expressions are allowed. A number in memory is an array of one cell, alpha[0]. Raise NotAffine, naming
    the statement or loop and its line, for anything else.
    """
    text = textwrap.dedent(source).strip("\n") + "\n"
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise NotAffine(f"Line {error.lineno} is not Python: {error.msg}.") from None
    reader = _Reader(tree)
    reader.block(tree.body, [], [], [0])
    if not reader.found:
        raise NotAffine("These loops contain no statement: write an assignment such as A[i] = B[i] + 1.")
    return reader.program(text, name)


class _Reader:
    """Collects statements, the conditions under which they run, and their place in time.

    A time is [position, loop, position, loop, …, position]: the position among the statements and loops of one level,
    then the iteration of that loop.
    """

    def __init__(self, tree: ast.Module):
        self.found: list[tuple[str, ast.stmt, list[str], list[str], list]] = []
        self.ranks: dict[str, int] = {}
        self.parameters: dict[str, int] = {}  # name → line of its first use
        self.numbers: dict[str, str] = {}  # name that a statement computes with → which statement
        self.loops = {n.target.id for n in ast.walk(tree) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        self.free = [letter for letter in _NAMES if letter not in names]

    # Control flow: loops, branches, assignments

    def block(self, body: list[ast.stmt], loops: list[str], conditions: list[str], time: list) -> None:
        for position, node in enumerate(body):
            self.statement(node, loops, conditions, [*time[:-1], time[-1] + position])

    def statement(self, node: ast.stmt, loops: list[str], conditions: list[str], time: list) -> None:
        match node:
            case ast.For():
                self.loop(node, loops, conditions, time)
            case ast.If():
                test = self.condition(node.test, loops, f"The condition in line {node.lineno}")
                self.block(node.body, loops, [*conditions, test], [*time, 0])
                self.block(node.orelse, loops, [*conditions, f"not {test}"], [*time, len(node.body)])
            case ast.Assign() | ast.AugAssign():
                self.assignment(node, loops, conditions, time)
            case ast.Pass():
                pass
            case ast.While():
                raise NotAffine(
                    f"Line {node.lineno} is a while loop, whose iterations cannot be counted in advance: "
                    "write `for i in range(…)`."
                )
            case ast.Break() | ast.Continue() | ast.Return():
                word = type(node).__name__.lower()
                raise NotAffine(f"Line {node.lineno} leaves a loop with {word}: put the condition into the bounds.")
            case _:
                raise NotAffine(
                    f"Line {node.lineno}, `{_short(node)}`, is neither a loop nor an assignment to an array's element."
                )

    def loop(self, node: ast.For, loops: list[str], conditions: list[str], time: list) -> None:
        if not isinstance(node.target, ast.Name):
            raise NotAffine(f"The loop in line {node.lineno} has several variables: use one, over a range.")
        name = node.target.id
        self.named(name, node.lineno)
        label = f"The loop over {name} (line {node.lineno})"
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            raise NotAffine(f"{label} runs over `{_short(call)}`, which is not a range.")
        if call.keywords or not 1 <= len(call.args) <= 3:
            raise NotAffine(f"{label} needs range(stop), range(start, stop) or range(start, stop, step).")
        if node.orelse:
            raise NotAffine(f"{label} has an else: move its body behind the loop.")
        if name in loops:
            raise NotAffine(f"{label} reuses the variable of an enclosing loop: give it another name.")
        start, stop = ([ast.Constant(0), *call.args] if len(call.args) == 1 else call.args)[:2]
        step = _number(call.args[2]) if len(call.args) == 3 else 1
        if not step:
            raise NotAffine(f"{label} has the step `{_short(call.args[2])}`: a step must be a number, and not 0.")
        low = self.affine(start, loops, f"{label} begins at")
        high = self.affine(stop, loops, f"{label} ends before")
        bounds = f"{low} <= {name} < {high}" if step > 0 else f"{high} < {name} <= {low}"
        if abs(step) > 1:
            bounds += f" and ({name} - ({low})) mod {abs(step)} = 0"
        turn = name if step > 0 else f"-{name}"
        self.block(node.body, [*loops, name], [*conditions, bounds], [*time, turn, 0])

    def assignment(self, node: ast.Assign | ast.AugAssign, loops: list[str], conditions: list[str], time: list) -> None:
        name = self.free.pop(0) if self.free else f"S{len(self.found)}"
        label = f"The statement {name} (line {node.lineno})"
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) != 1 or isinstance(targets[0], ast.Tuple | ast.List):
            raise NotAffine(f"{label} assigns to several targets at once: write one statement for each.")
        (target,) = targets
        if not isinstance(target, ast.Subscript):
            raise NotAffine(
                f"{label} writes {_short(target)}, which is not an array element: write {_short(target)}[0], "
                "so that iterations that share it can be seen."
            )
        if isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            raise NotAffine(f"{label} updates with an operator other than +, -, * and /.")
        writes = [self.access(target, loops, label)]
        reads = [*writes] if isinstance(node, ast.AugAssign) else []
        self.value(node.value, loops, label, reads)
        self.found.append((name, node, loops, conditions, time, dict.fromkeys(reads), writes))

    # Values: array elements, numbers, and operations that Python and TensorIR share

    def value(self, node: ast.expr, loops: list[str], label: str, reads: list[str]) -> None:
        match node:
            case ast.Subscript():
                reads.append(self.access(node, loops, label))
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                self.value(node.left, loops, label, reads)
                self.value(node.right, loops, label, reads)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                self.value(node.operand, loops, label, reads)
            case ast.Call(func=ast.Name(id=function), keywords=[]) if function in FUNCTIONS:
                for argument in node.args:
                    self.value(argument, loops, label, reads)
            case ast.Constant(value=int() | float()):
                pass
            case ast.Name(id=name) if name not in self.loops:
                self.named(name, node.lineno)
                self.numbers.setdefault(name, label)
            case ast.Name():
                self.affine(node, loops, f"{label} computes with")
            case ast.Call(func=ast.Name(id=function)):
                raise NotAffine(f"{label} calls {function}; the functions known here are {', '.join(FUNCTIONS)}.")
            case _:
                raise NotAffine(
                    f"{label} computes `{_short(node)}`; write it with +, -, *, / and {', '.join(FUNCTIONS)}."
                )

    def access(self, node: ast.Subscript, loops: list[str], label: str) -> str:
        if not isinstance(node.value, ast.Name):
            raise NotAffine(f"{label} has `{_short(node)}`: write the subscripts in one bracket, A[i, j].")
        array = node.value.id
        self.named(array, node.lineno)
        subscripts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(part, ast.Slice) for part in subscripts):
            raise NotAffine(f"{label} takes a slice, `{_short(node)}`: write the loop over it.")
        if self.ranks.setdefault(array, len(subscripts)) != len(subscripts):
            raise NotAffine(f"{label} gives {array} {len(subscripts)} subscripts; earlier it has {self.ranks[array]}.")
        parts = [self.affine(part, loops, f"{label} takes {array} at") for part in subscripts]
        return f"{array}[{', '.join(parts)}]"

    # Affine expressions and conditions, as isl writes them

    def affine(self, node: ast.expr, loops: list[str], where: str) -> str:
        """Return the expression in isl's syntax. `where` begins the message for an expression that is not affine."""

        def inner(part: ast.expr) -> str:
            return self.affine(part, loops, where)

        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return str(value)
            case ast.Name(id=name) if name in loops or name not in self.loops:
                if name not in loops:
                    self.named(name, node.lineno)
                    self.parameters.setdefault(name, node.lineno)
                return name
            case ast.UnaryOp(op=ast.USub()):
                return f"-({inner(node.operand)})"
            case ast.BinOp(op=ast.Add() | ast.Sub() as operator):
                return f"({inner(node.left)} {'+' if isinstance(operator, ast.Add) else '-'} {inner(node.right)})"
            case ast.BinOp(op=ast.Mult()) if (factor := _number(node.left)) is not None:
                return f"{factor} * ({inner(node.right)})"
            case ast.BinOp(op=ast.Mult()) if (factor := _number(node.right)) is not None:
                return f"{factor} * ({inner(node.left)})"
            case ast.BinOp(op=ast.FloorDiv()) if (divisor := _number(node.right) or 0) > 0:
                return f"floor(({inner(node.left)}) / {divisor})"
            case ast.BinOp(op=ast.Mod()) if (divisor := _number(node.right) or 0) > 0:
                return f"(({inner(node.left)}) mod {divisor})"
            case ast.Call(func=ast.Name(id="min" | "max" as function), keywords=[]) if len(node.args) > 1:
                return f"{function}({', '.join(map(inner, node.args))})"
        raise NotAffine(f"{where} `{_short(node)}`, which is not affine: {_why_not_affine(node)}.")

    def condition(self, node: ast.expr, loops: list[str], where: str) -> str:
        match node:
            case ast.BoolOp():
                word = " and " if isinstance(node.op, ast.And) else " or "
                return "(" + word.join(self.condition(part, loops, where) for part in node.values) + ")"
            case ast.Compare() if all(type(operator) in _COMPARE for operator in node.ops):
                parts = [self.affine(part, loops, f"{where} compares") for part in [node.left, *node.comparators]]
                signs = [_COMPARE[type(operator)] for operator in node.ops]
                pairs = zip(parts, signs, parts[1:], strict=False)
                return "(" + " and ".join(f"{left} {sign} {right}" for left, sign, right in pairs) + ")"
            case _:
                raise NotAffine(f"{where}, `{_short(node)}`, is not a comparison of affine expressions.")

    def named(self, name: str, line: int) -> None:
        if name.lower() in _RESERVED or not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
            raise NotAffine(f"{name} (line {line}) cannot be a name here: use letters, but not a keyword of isl.")

    # Putting it together

    def program(self, source: str, name: str) -> Program:
        for clash in self.parameters.keys() & self.ranks.keys():
            raise NotAffine(f"{clash} (line {self.parameters[clash]}) is both an array and a size: rename one of them.")
        for name, label in self.numbers.items():
            if name not in self.parameters:
                raise NotAffine(
                    f"{label} computes with {name}, which is neither the variable of a loop nor a size in a bound: "
                    f"write {name}[0], an array of one cell."
                )
        head = f"[{', '.join(self.parameters)}] -> "
        statements = []
        for label, node, loops, conditions, _, reads, writes in self.found:
            at = f"{label}[{', '.join(loops)}]"
            constraint = f" : {' and '.join(conditions)}" if conditions else ""
            domain = isl.Set(f"{head}{{ {at}{constraint} }}")

            def relation(cells, at=at, domain=domain) -> isl.UnionMap:
                text = "; ".join(f"{at} -> {cell}" for cell in cells)
                return isl.UnionMap(f"{head}{{ {text} }}").intersect_domain(isl.UnionSet.from_set(domain))

            statements.append(
                Statement(label, domain, relation(reads), relation(writes), ast.unparse(node), node.lineno)
            )
        times = [[str(part) for part in time] for _, _, _, _, time, _, _ in self.found]
        longest = max(map(len, times))
        times = [time + ["0"] * (longest - len(time)) for time in times]
        varying = [at for at in range(longest) if len({time[at] for time in times}) > 1 or not times[0][at].isdigit()]
        parts = [
            f"{label}[{', '.join(loops)}] -> [{', '.join(time[at] for at in varying)}]"
            for (label, _, loops, *_), time in zip(self.found, times, strict=True)
        ]
        schedule = isl.UnionMap(f"{head}{{ {'; '.join(parts)} }}")
        return Program(tuple(statements), self.ranks, schedule, tuple(self.parameters), source, name=name)


def _why_not_affine(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return f"{name} is the variable of a loop that does not enclose it"
        case ast.BinOp(op=ast.Mult()):
            return "it multiplies two expressions that are not numbers"
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod()):
            return "it divides by something that is not a positive number"
        case ast.BinOp(op=ast.Div()):
            return "/ gives fractions; use // for the integer part"
        case ast.Subscript():
            return "its value is in memory and is known only at run time"
        case ast.Constant():
            return "it is not a whole number"
    return "only sums of loop variables and parameters, times numbers, are"


def _number(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    return None


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).split("\n")[0]
    return text if len(text) <= 60 else text[:59] + "…"
