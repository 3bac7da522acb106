"""Hidden cases and answers of day16.egraph."""

from __future__ import annotations

import itertools
import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day16.egraph import Command, egraph_case
from passlab.judge import Case


def _adds(rng: random.Random, count: int, leaves: int = 4) -> list[Command]:
    commands: list[Command] = [("add", f"x{number}") for number in range(leaves)]
    for number in range(leaves, count):
        label, arity = rng.choice([("f", 1), ("g", 1), ("h", 2), ("k", 2)])
        commands.append(("add", label, *(rng.randrange(number) for _ in range(arity))))
    return commands


def drawn_commands(rng: random.Random, count: int, unions: int, questions: int) -> list[Command]:
    """Return commands in which unions and questions are spread over what is added."""
    commands = _adds(rng, count // 2)
    rest: list[Command] = _adds(rng, count)[count // 2 :]
    rest += [("union", rng.randrange(count // 2), rng.randrange(count // 2)) for _ in range(unions)]
    rest += [("same", rng.randrange(count // 2), rng.randrange(count // 2)) for _ in range(questions)]
    rng.shuffle(rest)
    added = iter(_adds(rng, count)[count // 2 :])  # numbers of terms must come before their uses
    return commands + [next(added) if command[0] == "add" else command for command in rest]


def _tower(rng: random.Random) -> list[Command]:
    """One union of two leaves makes all the floors of two towers equal, the highest last."""
    height = rng.randint(6, 9)
    commands: list[Command] = [("add", "a"), ("add", "b")]
    for floor in range(height):
        commands += [("add", "f", 2 * floor), ("add", "f", 2 * floor + 1)]
    return [*commands, ("same", 2 * height, 2 * height + 1), ("union", 0, 1), ("same", 2 * height, 2 * height + 1)]


def _downwards(rng: random.Random) -> list[Command]:
    """A union of late terms makes the users of early ones equal: one walk over all terms is not enough."""
    height = rng.randint(3, 5)
    commands: list[Command] = [("add", "c"), ("add", "a"), ("add", "b"), ("add", "g", 1), ("add", "g", 2)]
    number = 5
    sides = []
    for _ in range(height):  # r(pᵢ), r(qᵢ) for leaves that get equal to the g of the floor before
        commands += [("add", f"p{number}"), ("add", f"q{number}"), ("add", "r", number), ("add", "r", number + 1)]
        sides.append(number)
        number += 4
    commands += [("same", number - 2, number - 1)]
    before = (3, 4)
    for side in reversed(sides):
        commands += [("union", side, before[0]), ("union", side + 1, before[1])]
        before = (side + 2, side + 3)
    return [*commands, ("union", 1, 2), ("same", *before)]


def _loop(rng: random.Random) -> list[Command]:
    """f(f(f(a))) = a and f(f(f(f(f(a))))) = a, so f(a) = a."""
    commands: list[Command] = [("add", "b"), ("add", "a"), *(("add", "f", number) for number in range(1, 6))]
    two = [("union", 4, 1), ("union", 6, 1)]
    return [*commands, two[0], ("same", 5, 2), ("same", 2, 1), two[1], ("same", 2, 1), ("same", 1, 0)]


def _not_injective(rng: random.Random) -> list[Command]:
    """f(a) = f(b) does not make a and b equal."""
    a, b = rng.sample("abcd", 2)
    return [("add", a), ("add", b), ("add", "f", 0), ("add", "f", 1), ("union", 2, 3), ("same", 2, 3), ("same", 0, 1)]


def _labels(rng: random.Random) -> list[Command]:
    """Other labels, other orders and other numbers of operands are other e-nodes."""
    commands = [("add", "a"), ("add", "b"), ("add", "f", 0), ("add", "g", 0), ("add", "f", 0, 1), ("add", "f", 1, 0)]
    return [
        *commands,
        ("add", "f", 0, 0),
        ("same", 2, 3),
        ("same", 4, 5),
        ("union", 0, 1),
        ("same", 4, 5),
        ("same", 2, 6),
    ]


def _both_operands(rng: random.Random) -> list[Command]:
    """Two terms are congruent only if all their operands are equal."""
    commands = [*(("add", name) for name in "abcd"), ("add", "f", 0, 2), ("add", "f", 1, 3), ("union", 0, 1)]
    return [*commands, ("same", 4, 5), ("union", 2, 3), ("same", 4, 5)]


def _chain_of_unions(rng: random.Random) -> list[Command]:
    count = rng.randint(300, 400)
    order = rng.sample(range(count), count)
    unions = [("union", a, b) for a, b in itertools.pairwise(order)]
    commands = [*(("add", f"x{number}") for number in range(count)), *(("add", "f", number) for number in range(count))]
    return [*commands, *unions[1:], ("same", order[0], order[-1]), unions[0], ("same", count, 2 * count - 1)]


def _equal_terms(rng: random.Random) -> list[Command]:
    """Equal terms are equal before any union, leaves, too; of three operands each counts."""
    a, b = rng.sample("abcd", 2)
    commands: list[Command] = [("add", a), ("add", a), ("add", b), ("same", 0, 1), ("same", 0, 2)]
    commands += [("add", "f", 0), ("add", "f", 1), ("same", 3, 4)]
    commands += [("add", "h", 0, 1, 0), ("add", "h", 1, 1, 2), ("add", "h", 1, 0, 1), ("same", 5, 6), ("same", 5, 7)]
    return commands


def _against_the_order(rng: random.Random) -> list[Command]:
    """The last terms become equal first: each walk over all terms joins one pair, of f(a) and f(b), more."""
    height = rng.randint(15, 20)
    commands: list[Command] = [("add", f"{name}{number}") for number in range(height + 1) for name in "ab"]
    first = len(commands)
    for number in range(height):
        commands += [("add", "f", 2 * number + 2), ("add", "f", 2 * number + 3)]
    commands += [("union", 2 * number + side, first + 2 * number + side) for number in range(height) for side in (0, 1)]
    return [*commands, ("same", 0, 1), ("union", 2 * height, 2 * height + 1), ("same", 0, 1)]


def _alike() -> list[Command]:
    """Labels that differ in case, or run into a number, are other labels."""
    return [("add", "a"), ("add", "A"), ("add", "f1", 0), ("add", "f", 1, 0), ("same", 0, 1), ("same", 2, 3)]


def _said_again() -> list[Command]:
    """A union of terms that are equal changes nothing, and each term is equal to itself."""
    unions = [("union", a, b) for a, b in ((0, 1), (1, 2), (0, 2), (1, 1), (2, 0), (2, 1))]
    commands: list[Command] = [*(("add", name) for name in "abc"), *unions]
    return [*commands, ("same", 0, 1), ("same", 0, 2), ("same", 1, 1)]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        egraph_case("drawn", drawn_commands(rng, 30, 5, 6)),
        egraph_case("drawn, larger", drawn_commands(rng, 200, 30, 10)),
        egraph_case("drawn, no union", drawn_commands(rng, 40, 0, 4)),
        egraph_case("two towers", _tower(rng)),
        egraph_case("unions of late terms", _downwards(rng)),
        egraph_case("loops", _loop(rng)),
        egraph_case("equal results of unequal terms", _not_injective(rng)),
        egraph_case("labels, orders, numbers of operands", _labels(rng)),
        egraph_case("one operand, then the other", _both_operands(rng)),
        egraph_case("a chain of unions", _chain_of_unions(rng)),
        egraph_case("equal terms without a union", _equal_terms(rng)),
        egraph_case("equal from the last term to the first", _against_the_order(rng)),
        egraph_case("nothing", []),
        egraph_case("labels that look alike", _alike()),
        egraph_case(
            "a product, exchanged",
            [("add", "a"), ("add", "b"), ("add", "mul", 0, 1), ("add", "mul", 1, 0), ("same", 2, 3)],
        ),
        egraph_case("said again", _said_again()),
    ]


# ---------------------------------------------------------------------------------------------------- answers


class _EGraph:
    """Terms by their numbers, and the leader and the users of each class."""

    def __init__(self):
        self.leader, self.uses, self.known, self.nodes = [], [], {}, []

    def find(self, number):
        while self.leader[number] != number:
            self.leader[number] = number = self.leader[self.leader[number]]
        return number

    def canonical(self, number):
        label, *operands = self.nodes[number]
        return (label, *[self.find(operand) for operand in operands])

    def add(self, label, *operands):
        number = len(self.nodes)
        self.nodes.append((label, *operands))
        self.leader.append(number)
        self.uses.append([])
        for operand in operands:
            self.uses[self.find(operand)].append(number)
        self.union(self.known.setdefault(self.canonical(number), number), number)

    def union(self, a, b):
        work = [(a, b)]
        while work:
            a, b = map(self.find, work.pop())
            if a == b:
                continue
            if len(self.uses[a]) < len(self.uses[b]):
                a, b = b, a
            self.leader[b] = a
            for user in self.uses[b]:
                work.append((user, self.known.setdefault(self.canonical(user), user)))
            self.uses[a] += self.uses[b]


@right("keeps users of each class, and a worklist of classes that were joined")
def by_worklist(commands):
    terms, answers = _EGraph(), []
    for command, *operands in commands:
        if command == "add":
            terms.add(*operands)
        elif command == "union":
            terms.union(*operands)
        else:
            answers.append(terms.find(operands[0]) == terms.find(operands[1]))
    classes = {}
    for number in range(len(terms.nodes)):
        classes.setdefault(terms.find(number), set()).add(terms.canonical(number))
    return answers, {name: sorted(members) for name, members in classes.items()}


@right("keeps the class of each term in a list, and renames a whole class at once")
def by_renaming(commands):
    home, nodes, answers = [], [], []

    def rename(old, new):
        home[:] = [new if name == old else name for name in home]

    def close():
        progress = True
        while progress:
            progress, first = False, {}
            for number, (label, *operands) in enumerate(nodes):
                name = first.setdefault((label, *(home[operand] for operand in operands)), home[number])
                if name != home[number]:
                    rename(home[number], name)
                    progress = True

    changed = False
    for kind, *rest in commands:
        if kind == "add":
            nodes.append(rest)
            home.append(len(home))
            changed = True
        elif kind == "union":
            rename(home[rest[0]], home[rest[1]])
            changed = True
        else:
            if changed:
                close()
            changed = False
            answers.append(home[rest[0]] == home[rest[1]])
    close()
    return answers, {
        name: {(label, *(home[o] for o in ops)) for k, (label, *ops) in enumerate(nodes) if home[k] == name}
        for name in set(home)
    }


once = edited("did", "goes through the e-nodes only once")(("while changes: ...", "if changes: ..."))
ten_times = edited("did", "goes through the e-nodes at most ten times")(
    (
        "changes = True\nwhile changes: ...",
        "for _ in range(10):\n    first = {}\n    for number, node in enumerate(nodes):\n"
        "        other = first.setdefault(canonical(node), number)\n        if find(other) != find(number):\n"
        "            leader[find(number)] = find(other)",
    )
)
two_operands = edited("same", "compares the first two operands")(
    ("canonical(node), number", "canonical(node)[:3], number")
)
leaves_apart = edited("did", "keeps leaves apart that have the same label")(
    ("canonical(node), number", "(canonical(node) if node[1:] else number), number")
)
no_congruence = edited("did", "joins only what union names")(("changes = True\nwhile changes: ...", "pass"))
without_find = edited("did", "moves one term, not the class that it is in")(
    ("leader[find(a)] = find(b)", "leader[a] = find(b)")
)
stale = edited("did", "compares operands by the numbers they were added with")(
    ("canonical(node), number", "tuple(node), number")
)
any_order = edited("same", "sorts operands")(("(label, *map(find, operands))", "(label, *sorted(map(find, operands)))"))
no_label = edited("same", "looks at the operands only")(
    ("canonical(node), number", "canonical(node)[1:] or canonical(node), number")
)
any_case = edited("same", "does not see whether letters are small")(
    ("(label, *map(find, operands))", "(label.lower(), *map(find, operands))")
)
as_text = edited("same", "writes label and operands into one word, by which it knows an e-node")(
    ("canonical(node), number", "''.join(map(str, canonical(node))), number")
)
commutative = edited("same", "knows that the operands of mul may be exchanged")(
    ("(label, *map(find, operands))", "(label, *(sorted if label == 'mul' else list)(map(find, operands)))")
)
one_operand = edited("same", "joins terms whose first operands are equal")(
    ("canonical(node), number", "canonical(node)[:2], number")
)


@wrong("same", "makes all unions first, and then answers")
def unions_first(commands):
    return by_worklist(sorted(commands, key=lambda command: ["add", "union", "same"].index(command[0])))


@wrong("did", "answers before it restores congruence")
def without_closing(commands):
    leader, answers = [], []

    def find(number):
        while leader[number] != number:
            number = leader[number]
        return number

    for kind, *rest in commands:
        if kind == "add":
            leader.append(len(leader))
        elif kind == "union":
            leader[find(rest[0])] = find(rest[1])
        else:
            answers.append(find(rest[0]) == find(rest[1]))
    return answers, by_worklist(commands)[1]


@wrong("same", "takes operands of equal terms for equal: f(a) = f(b), so a = b")
def injective(commands):
    expanded = []
    added = [command for command in commands if command[0] == "add"]
    for command in commands:
        expanded.append(command)
        if command[0] == "union":
            (_, label, *a), (_, other, *b) = added[command[1]], added[command[2]]
            if label == other and len(a) == len(b):
                expanded += [("union", x, y) for x, y in zip(a, b, strict=True)]
    return by_worklist(expanded)


def ring(following, number):
    """Return the members of the ring of a number. following: number → the next of its ring."""
    numbers = [number]
    while following[numbers[-1]] != number:
        numbers.append(following[numbers[-1]])
    return numbers


@wrong("did", "links the terms of a class in a ring, which a union of equal terms cuts in two")
def rings(commands):
    following, nodes, answers = [], [], []

    def members(number):
        return ring(following, number)

    def canonical(number):
        label, *operands = nodes[number]
        return (label, *(min(members(operand)) for operand in operands))

    def join(a, b):
        following[a], following[b] = following[b], following[a]

    def close():
        changes = True
        while changes:
            changes, first = False, {}
            for number in range(len(nodes)):
                other = first.setdefault(canonical(number), number)
                if other not in members(number):
                    join(number, other)
                    changes = True

    for kind, *rest in commands:
        if kind == "add":
            nodes.append(rest)
            following.append(len(following))
        elif kind == "union":
            join(*rest)
        else:
            close()
            answers.append(rest[1] in members(rest[0]))
    close()
    classes = {}
    for number in range(len(nodes)):
        classes.setdefault(min(members(number)), set()).add(canonical(number))
    return answers, {name: list(members) for name, members in classes.items()}


@wrong("spared", "keeps the names of classes that were joined")
def old_names(commands):
    answers, classes = by_worklist(commands)
    count = sum(command[0] == "add" for command in commands)
    return answers, {number: classes.get(number, []) for number in range(count)}


@wrong("spared", "stores an e-node for each term")
def twice(commands):
    answers, classes = by_worklist(commands)
    homes = {node: name for name, nodes in classes.items() for node in nodes}
    where, stored = [], {name: [] for name in classes}
    for kind, *rest in commands:
        if kind == "add":
            node = (rest[0], *(where[operand] for operand in rest[1:]))
            where.append(homes[node])
            stored[homes[node]].append(node)
    return answers, stored
