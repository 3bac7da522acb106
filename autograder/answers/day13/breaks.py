"""Hidden cases and answers of day13.breaks."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day13.breaks import REASONS, case, expected
from passlab.judge import Case


def _function(*lines: str) -> str:
    return "\n".join(["def f(x, k):", *("    " + line for line in lines)])


class _Writer:
    """Writes a function line by line. All tensors have positive numbers, so that `taken` can be told from the text."""

    def __init__(self, rng: random.Random):
        self.rng, self.k, self.depth, self.names = rng, rng.randint(1, 3), 1, 0
        self.lines, self.taken = ["def f(x, k):"], {}

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def operation(self) -> None:
        method = self.rng.choice(("relu", "sigmoid", "tanh", "sqrt"))
        self.emit(self.rng.choice((f"y = y.{method}()", f"y = y + {self.rng.randint(1, 4)}", "y = y * k", "y = y + x")))

    def no_break(self) -> None:
        name = self.name("n")
        texts = (f"{name} = y.numel()", f"{name} = x.dim()", f"{name} = int(k)", f"{name} = k + 2", f"{name} = x[0]")
        self.emit(self.rng.choice((*texts, f"{name} = float(2)")))

    def stop(self) -> None:
        name = self.name("r")
        one = self.rng.choice(("print", "item", "foreign", "closed", "graph_break", "mask", "nonzero", "convert"))
        if one == "print":
            self.emit(self.rng.choice(("print(k)", "print(y, k)", "print()")))
        elif one == "foreign":
            self.emit(f"{name} = {self.rng.choice(('time.time', 'random.random'))}()")
        elif one == "graph_break":
            self.emit("graph_break()")
        elif one == "closed":
            self.emit("y = closed(y)")
        elif one == "nonzero":
            self.emit(f"{name} = y.nonzero()")
            self.emit(f"{name} = {name} + 1")
        elif one == "mask":
            self.emit(f"m{name} = y > 0")
            self.emit(f"{name} = y[m{name}]")
        else:
            self.emit(f"s{name} = y.sum()")
            of_tensor = f"{self.rng.choice(('int', 'float', 'bool'))}(s{name})"
            self.emit(f"{name} = " + (f"s{name}.item()" if one == "item" else of_tensor))

    def condition(self, depth: int) -> None:
        kind, sign = self.rng.choice(("tensor", "itself", "number", "shape", "known")), self.rng.choice("><")
        s, c = self.name("s"), self.name("c")
        if kind == "known":
            self.emit(f"{c} = k {sign} 2")
        elif kind == "shape":
            self.emit(f"{s} = y.numel()")
            self.emit(f"{c} = {s} {sign} 0")
        else:
            self.emit(f"{s} = y.sum()")
            if kind == "number":
                self.emit(f"{s} = {s}.item()")
            if kind != "itself":
                self.emit(f"{c} = {s} {sign} 0")
        self.emit(f"if {s if kind == 'itself' else c}:")
        if kind != "known":
            self.taken[len(self.lines)] = kind == "itself" or sign == ">"
        self.block(depth)
        if self.rng.random() < 0.5:
            self.emit("else:")
            self.block(depth)

    def block(self, depth: int) -> None:
        self.depth += 1
        self.some(self.rng.randint(1, 2), depth - 1)
        self.depth -= 1

    def some(self, steps: int, depth: int) -> None:
        self.rng.choice((self.operation, self.stop))()
        for _ in range(steps - 1):
            kind = self.rng.choice(("operation", "operation", "stop", "no_break", "condition"))
            if kind == "condition" and depth:
                self.condition(depth)
            else:
                getattr(self, kind if kind != "condition" else "operation")()

    def loop(self, stops: bool) -> None:
        i, c = self.name("i"), self.name("c")
        self.emit(f"for {i} in range({self.rng.choice(('k', 2, 3))}):")
        self.depth += 1
        self.emit(f"y = y + {i}")
        if stops:
            self.emit(f"{c} = {i} > {self.rng.randint(0, 2)}")
            self.emit(f"if {c}:")
            self.depth += 1
            self.stop()
            self.depth -= 1
        self.operation()
        self.depth -= 1


def _drawn(rng: random.Random, name: str, loop: bool | None = None) -> Case:
    """Return a case with at least two breaks. loop: with a loop in its middle, and whether it may have a break."""
    while True:
        writer = _Writer(rng)
        writer.emit("y = x + 1")
        writer.some(4, 2)
        if loop is not None:
            writer.loop(loop)
        writer.some(4, 2)
        writer.emit("return y")
        drawn = case(name, "\n".join(writer.lines), writer.k, writer.taken)
        if len(expected(*drawn.build())[0]) > 1:
            return drawn


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        case("no break at all", _function("n = x.dim()", "m = float(k)", "y = x * m", "b = k > 1", "if b:", "    y = y + n", "return y"), 2, about=("valid", "spared", "same")),  # noqa: E501
        case("nothing to capture", _function("print(k)", "return x")),
        case("an operation whose result is not used", _function("y = x.relu()", "print(k)", "z = x + k", "return x")),
        case("a row and a mask", _function("r = x[0]", "print(k)", "m = x > 0", "y = x[m]", "return y")),
        case("numbers of numbers", _function("s = x.sum()", "n = float(s)", "m = int(n)", "t = random.random()", "p = float(k)", "y = x * m", "return y")),  # noqa: E501
        case("the other side", _function("s = x.sum()", "c = s < 0", "if c:", "    print(k)", "else:", "    y = x + 1", "    n = s.item()", "return x"), taken={4: False}),  # noqa: E501
        case("a condition on a number of a tensor", _function("s = x.sum()", "n = bool(s)", "if n:", "    y = x.relu()", "    print(k)", "y = x + 1", "return y"), taken={4: True}),  # noqa: E501
        case("a condition on random numbers", _function("t = random.random()", "b = t > 0", "if b:", "    y = x + 1", "    graph_break()", "y = x * 2", "return y"), taken={4: True}),  # noqa: E501
        case("one break after the other", _function("y = x + 1", "i = y.nonzero()", "graph_break()", "y = closed(y)", "r = random.random()", "y = y * 2", "return y")),  # noqa: E501
        case("a break in the first turn", _function("y = x + 1", "for i in range(2):", "    y = y * 2", "    print(i)", "    y = y + 1", "graph_break()", "y = y + 1", "return y"), about=("valid", "spared", "same")),  # noqa: E501
        case("a loop that never turns", _function("y = x + 1", "for i in range(0):", "    print(i)", "graph_break()", "y = y * 2", "return y")),  # noqa: E501
        case("a break behind a number that is known", _function("y = x * k", "b = k > 1", "if b:", "    print(k)", "y = y + 1", "return y"), 2),  # noqa: E501
        case("a piece with the number of dimensions", _function("y = x + 1", "print(k)", "n = x.dim()", "print(n)", "m = y.numel()", "return y")),  # noqa: E501
        case("what a loop leaves behind", _function("y = x + 1", "for i in range(3):", "    b = i > 1", "    y = y * 2", "if b:", "    print(k)", "y = y + 1", "return y")),  # noqa: E501
        case("a loop that stops, and nothing after it", _function("y = x + 1", "print(k)", "for i in range(k):", "    print(i)", "return y")),  # noqa: E501
        case("a tensor decides in a loop", _function("print(k)", "y = x + 1", "graph_break()", "z = y + 1", "for i in range(k):", "    s = z.sum()", "    c = s > 0", "    if c:", "        z = z + 1", "z = closed(z)", "return z"), 2, {9: True}),  # noqa: E501
        case("k decides in a loop", _function("y = x + 1", "print(k)", "for i in range(3):", "    b = i > k", "    if b:", "        print(i)", "    y = y * 2", "print(k)", "y = y + 1", "return y"), 2),  # noqa: E501
        case("what nonzero returns", _function("i = x.nonzero()", "j = i + k", "print(k)", "return j")),
        case("what a mask leaves", _function("m = x > 0", "y = x[m]", "z = y * k", "print(k)", "return z")),
        case("half of k, cut off", _function("y = x + 1", "h = k * 0.5", "n = int(h)", "b = n > 0", "if b:", "    print(k)", "graph_break()", "return y"), 1),  # noqa: E501
        case("numbers before tensors", _function("y = k * x", "print(k)", "n = x.dim()", "z = n - x", "print(k)", "return x"), 2),  # noqa: E501
        case("a line without a name", _function("print(k)", "x.relu()", "print(k)", "return x")),
        case("a condition on zero", _function("n = k - 2", "if n:", "    print(k)", "graph_break()", "return x")),
        case("a condition on arithmetic of sizes", _function("y = x + 1", "n = y.numel()", "m = n - 3", "b = m > 0", "if b:", "    print(k)", "d = x.dim()", "c = d > 1", "if c:", "    graph_break()", "y = y * 2", "return y"), 2, {6: True, 10: True}),  # noqa: E501
        case("a side that stops in a loop", _function("print(k)", "y = x + 1", "graph_break()", "z = y * 2", "for i in range(k):", "    b = i > 0", "    if b:", "        z = closed(z)", "    z = z + 1", "print(k)", "return z"), 2),  # noqa: E501
        case("a loop in a loop", _function("y = x + 1", "print(k)", "for i in range(2):", "    for j in range(2):", "        y = y + j", "        print(j)", "return y")),  # noqa: E501
        case("k is less", _function("y = x + 1", "b = k < 3", "if b:", "    print(k)", "y = y + 1", "return y"), 2),
        case("whether k is 0", _function("y = x + 1", "b = bool(k)", "if b:", "    print(k)", "y = y + 1", "return y"), 2),  # noqa: E501
        case("k as a float", _function("y = x + 1", "f = float(k)", "b = f > 1", "if b:", "    print(k)", "y = y + 1", "return y"), 2),  # noqa: E501
        case("a known number less one of a tensor", _function("s = x.sum()", "n = s.item()", "m = k - n", "b = m < 0", "if b:", "    y = x + 1", "    print(k)", "y = x * 2", "return y"), 2, {6: True}),  # noqa: E501
        case("a number of a tensor decides in a loop", _function("s = x.sum()", "n = s.item()", "b = n > 0", "y = x + 1", "for i in range(k):", "    if b:", "        y = y * 2", "print(k)", "y = y + 1", "return y"), 2, {7: True}),  # noqa: E501
        *(_drawn(rng, f"drawn, {number}") for number in range(4)),
        *(_drawn(rng, f"drawn, with a loop, {number}", False) for number in range(2)),
        *(_drawn(rng, f"drawn, with a loop that may stop, {number}", True) for number in range(4)),
    ]  # fmt: skip


EQUIVALENT = {("operations + 1", "operations + 2"): "whether there are any is all that counts"}


# ---------------------------------------------------------------------------------------------------- answers


@right("one dictionary for all reasons, a stack of the statements to come, and exceptions for loops")
def by_stack(body, arguments, taken):
    kinds, breaks, pieces = dict(arguments), set(), [0]
    todo = [(line, False) for line in reversed(body)]
    fold = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
    fold |= {">": lambda a, b: a > b, "<": lambda a, b: a < b, "int": int, "float": float, "bool": bool}
    reasons = {("item", True): "number", ("nonzero", True): "size", ("closed", True): "disabled"}
    reasons |= {(name, True): "number" for name in ("int", "float", "bool")} | {
        ("[]", True): "size",
        ("if", True): "branch",
    }
    for tensor in (False, True):
        reasons |= {("print", tensor): "builtin", ("graph_break", tensor): "asked"}
        reasons |= {("time.time", tensor): "foreign", ("random.random", tensor): "foreign"}
    while todo:
        line, looped = todo.pop()
        if isinstance(line, tuple):
            kinds[line[0]] = line[1]
            continue
        operands = [kinds.get(o) if isinstance(o, str) else o for o in line.operands]
        reason = reasons.get((line.op, bool(operands) and operands[-1] == "tensor"))
        if reason and looped:
            return breaks, sum(piece > 0 for piece in pieces[:-1])
        if reason:
            breaks.add((line.line, reason))
            pieces.append(0)
        if line.op == "if":
            yes = taken[line.line] if operands[0] in ("tensor", None) else operands[0]
            todo += [(inner, looped) for inner in reversed(line.body if yes else line.orelse)]
        elif line.op == "for":
            for turn in reversed(range(operands[0])):
                todo += [(inner, True) for inner in reversed(line.body)] + [((line.result, turn), True)]
        elif line.op in ("dim", "numel", "return", "item", "print"):
            kinds[line.result] = None
        elif "tensor" in operands and reason != "number":
            kinds[line.result] = "tensor"
            pieces[-1] += not reason
        elif reason or None in operands:
            kinds[line.result] = None
        else:
            kinds[line.result] = fold[line.op](*operands)
    return breaks, sum(piece > 0 for piece in pieces)


@right("its lines in order, lists for pairs")
def in_lists(body, arguments, taken):
    pairs, count = by_stack(body, arguments, taken)
    return [list(pair) for pair in sorted(pairs)], count


nonzero_number = edited("same", "takes what nonzero returns for a number")(
    ('reason == "size"', 'reason == "size" and line.op == "[]"')
)
mask_number = edited("same", "takes what a mask leaves for a number")(
    ('reason == "size"', 'reason == "size" and line.op == "nonzero"')
)
never_cut = edited("spared", "takes int of a number for the number")(
    ("NUMBERS[line.op](*operands)", "operands[0] if line.op == 'int' else NUMBERS[line.op](*operands)")
)
named_only = edited("same", "counts operations with a name for their result")(
    ("operations + 1", "operations + bool(line.result)")
)
zero_is_true = edited("spared", "takes a condition on the number 0 for a true one")(
    ("line.body if yes else line.orelse", "line.body if yes is not False else line.orelse")
)
first_tensor = edited("same", "takes a line for an operation of the graph if its first operand is a tensor")(
    (""""tensor" in operands""", """operands[:1] == ["tensor"]"""),
    ("None in operands", "None in operands or 'tensor' in operands"),
)
numbers_counted = edited("same", "counts arithmetic on numbers that are not known")(
    ("None in operands", "None in operands and (operations := operations + 1)")
)
signs_alone = edited("did", "computes with known numbers by +, -, *, > and int, not by <, float and bool")(
    ("None in operands", "None in operands or line.op in ('<', 'float', 'bool')"),
    ("taken[line.line]", "taken.get(line.line, False)"),
)
first_known = edited("valid", "takes arithmetic for known if its first number is")(
    ("None in operands", "None in operands[:1]")
)
numbers_stop_loops = edited("did", "stops in a loop at an `if` on a number that is not known")(
    ("if reason and looped: ...", "if (reason or line.op == 'if' and None in operands) and looped: return False")
)


@wrong("did", "has capture stop at every line, for each reason")
def everywhere(body, arguments, taken):
    lines, waiting = [], list(body)
    while waiting:
        lines.append(waiting.pop())
        waiting += [*lines[-1].body, *lines[-1].orelse]
    return [(s.line, reason) for s in lines for reason in REASONS], 1


inner_loops_break = edited("spared", "finds breaks in a loop inside another")(
    ("walk(line.body, True)", "walk(line.body, not looped)")
)
any_if = edited("spared", "takes each `if` for a break, on a number, too")(
    (
        """if operands and operands[-1] == "tensor": ...""",
        """if line.op == "if" or operands and operands[-1] == "tensor": ...""",
    )
)
always_a_number = edited("spared", "takes int, float and bool of a number for breaks, too")(
    ("""if operands and operands[-1] == "tensor": ...""", """if line.op != "if" or operands[-1] == "tensor": ...""")
)
both_sides = edited("spared", "walks both sides of an `if`")(
    ("line.body if yes else line.orelse", "[*line.body, *line.orelse]")
)
first_operand = edited("spared", "looks at the first operand: x[0] is a mask")(
    ("""operands and operands[-1] == "tensor\"""", """operands and operands[0] == "tensor\"""")
)
nothing_known = edited("did", "takes numbers that are known for false ones")(
    ("yes = operands[0] if known else taken[line.line]", "yes = taken.get(line.line, False)")
)
loops_break = edited("spared", "finds breaks in loops as elsewhere")(
    ("walk(line.body, True)", "walk(line.body, looped)")
)
loops_alone = edited("spared", "leaves a loop that stops to Python, and goes on after it")(
    ("if not walk(line.body, True): ...", "if not walk(line.body, True): break")
)
loop_kept = edited("same", "counts the piece in which a loop stops")(
    ("graphs + (to_the_end and operations > 0)", "graphs + (operations > 0)")
)
all_pieces = edited("same", "counts a graph for each piece, with or without operations")(
    ("graphs, operations = graphs + (operations > 0), 0", "graphs, operations = graphs + 1, 0")
)
no_last = edited("same", "forgets the piece after the last break")(
    ("graphs + (to_the_end and operations > 0)", "graphs")
)
once = edited("did", "runs the body of a loop once")(("range(operands[0])", "range(min(1, operands[0]))"))
silent = edited("did", "knows no breaks but those on tensors")(("ALWAYS.get(line.op)", "None"))
loops_without_sides = edited("spared", "stops in a loop, but not on a side of an `if` in it")(
    ("walk(line.body if yes else line.orelse, looped)", "walk(line.body if yes else line.orelse, False)")
)
sizes_of_one = edited("did", "takes sizes for the number 1, instead of asking `taken`")(
    ("""("dim", "numel", "return")""", """("return",)"""),
    (""""tensor" in operands""", """"tensor" in operands and line.op not in ("dim", "numel")"""),
    ("NUMBERS[line.op](*operands)", "NUMBERS[line.op](*operands) if line.op in NUMBERS else 1"),
)
counted_sizes = edited("same", "takes dim and numel for operations of a graph")(
    ("""reason or line.op in ("dim", "numel", "return")""", """reason or line.op == "return\"""")
)
