# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Day 16 · All rewrites at once: exercises
#
# Six questions. The core is questions 1, 2 and 3, about 110 minutes; the rest, about 115 minutes, is stretch: harder, and
# for extra credit. Read the lesson first: [day16_saturation.ipynb](../../course/day16_saturation.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day16.egraph")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.
#
# A term is a tuple: a label, then its operands, which are terms. `("a",)` has no operands. In a pattern a text that begins
# with "?" is a variable: `("mul", "?x", ("2",))`.

# %%
import itertools

import torch
from ortools.sat.python import cp_model

from passlab import check, hint, progress
from passlab.egraph import EGraph
from passlab.given.day16.laws import every
from passlab.given.day16.laws import value as numbers_of

# %% [markdown]
# ## 1 · An e-graph
#
# Write an e-graph that follows commands. Terms are numbered: the first `add` makes term 0, the next one term 1, and so
# on, even if an equal term exists.
#
# | command | what it does |
# |---|---|
# | `("add", label, *operands)` | makes a term: a label, and the numbers of earlier terms |
# | `("union", a, b)` | makes the terms a and b equal |
# | `("same", a, b)` | asks: are the terms a and b equal by now? |
#
# Two terms are equal if a union says so, or by congruence: if they have the same label and the same number of operands,
# each equal to the one in its place. Whatever follows from these is equal, too.


# %%
def egraph(commands: list[tuple]) -> tuple[list[bool], dict[int, list[tuple]]]:
    """Follow commands; return the answers, and the classes at the end.

    In:  commands: see above. There are at most 1,000.
    Out: - for each `same`, in order, True or False. Unions after it do not count.
         - class -> its e-nodes. Equal terms are in one class, others are not. Call a
           class by a whole number of your choice, for instance a term that is in it. An
           e-node is a tuple: a label, then for each operand the name of its class. For
           each term there is one, and no e-node occurs twice.

    Example: for add a, add b, add f(0), add f(1), union 0 1, the classes may be
             {0: [("a",), ("b",)], 2: [("f", 0)]}.
    """
    ### BEGIN SOLUTION
    leader, nodes, answers = [], [], []

    def find(number):
        while leader[number] != number:
            number = leader[number]
        return number

    def canonical(node):
        label, *operands = node
        return (label, *map(find, operands))

    def rebuild():
        changes = True
        while changes:
            changes, first = False, {}
            for number, node in enumerate(nodes):
                other = first.setdefault(canonical(node), number)
                if find(other) != find(number):
                    leader[find(number)] = find(other)
                    changes = True

    for kind, *rest in commands:
        if kind == "add":
            leader.append(len(nodes))
            nodes.append(rest)
        elif kind == "union":
            a, b = rest
            leader[find(a)] = find(b)
        else:
            rebuild()
            a, b = rest
            answers.append(find(a) == find(b))
    rebuild()
    classes = {}
    for number, node in enumerate(nodes):
        classes.setdefault(find(number), {})[canonical(node)] = True
    return answers, {name: list(members) for name, members in classes.items()}
    ### END SOLUTION


# %%
check("day16.egraph", egraph)

# %% [markdown]
# ## 2 · Saturation
#
# Take the library's e-graph, and apply laws to it. Of an `EGraph` you need:
#
# | | |
# |---|---|
# | `add_term(term)`, `add(label, *numbers)` | adds a term, or an e-node; returns its number |
# | `union(a, b)` | joins two classes; returns whether they were two |
# | `find(number)` | the class of a term |
# | `rebuild()` | restores congruence, after unions |
# | `nodes` | after `rebuild`: class → its e-nodes, each a label and classes |
# | `len(graph)` | the number of e-nodes |
#
# A law is a pair of patterns, and is applied from left to right: for each class and each way in which the left side matches
# it, the term of the right side is added and joined with that class. The left side is not a variable alone, and has all
# variables of the right side; the right side may be a variable. A variable that occurs twice stands for one class.


# %%
def saturate(
    terms: list[tuple], laws: list[tuple], most: int, rounds: int
) -> tuple[str, int, int, list[int]]:
    """Apply laws in rounds until nothing is new, or to a limit.

    In a round, all laws are matched against the graph as it is; then all these matches
    are applied; then the graph is rebuilt.

    In:  terms: what is in the graph at first.
         laws: pairs (left side, right side) of patterns.
         most, rounds: limits; there is at least one round.
    Out: - why it stopped. After each round look, in this order, for
           "nodes": there are more than `most` e-nodes;
           "saturated": no union of the round joined two classes;
           "rounds": it was the last round that is allowed.
         - how many rounds there were, with the last one.
         - how many e-nodes there are.
         - for each term the number of its class, as in the graph at the end.
    Not to be called: passlab.egraph.laws.saturate, passlab.egraph.laws.matches,
         passlab.egraph.laws.new_matches, passlab.egraph.search.search,
         passlab.egraph.discover.follows.

    Example: x * 1 = x, on ("mul", ("a",), ("1",)), takes two rounds: the second one
             finds nothing new. There are 3 e-nodes.
    """
    ### BEGIN SOLUTION
    graph = EGraph()
    numbers = [graph.add_term(term) for term in terms]
    stop, count = "", 0
    while not stop:
        count += 1
        pending = []
        for left, right in laws:
            for number in graph.nodes:
                for binding in matches(graph, left, number, {}):
                    pending.append((number, right, binding))
        unions = 0
        for number, right, binding in pending:
            unions += graph.union(number, instance(graph, right, binding))
        graph.rebuild()
        if len(graph) > most:
            stop = "nodes"
        elif unions == 0:
            stop = "saturated"
        elif count == rounds:
            stop = "rounds"
    return stop, count, len(graph), [graph.find(number) for number in numbers]


def matches(graph, pattern, number, binding):
    """The bindings, with this one in them, by which a class matches a pattern."""
    if isinstance(pattern, str):
        if binding.get(pattern, number) == number:
            yield {**binding, pattern: number}
        return
    for label, *operands in graph.nodes[number]:
        if label == pattern[0] and len(operands) == len(pattern) - 1:
            bindings = [binding]
            for part, operand in zip(pattern[1:], operands, strict=True):
                bindings = [
                    b for old in bindings for b in matches(graph, part, operand, old)
                ]
            yield from bindings


def instance(graph, pattern, binding):
    """Add what a pattern stands for to the graph, and return its number."""
    if isinstance(pattern, str):
        return binding[pattern]
    operands = [instance(graph, part, binding) for part in pattern[1:]]
    return graph.add(pattern[0], *operands)
    ### END SOLUTION


# %%
check("day16.saturate", saturate)

# %% [markdown]
# ## 3 · The weakest precondition
#
# A law is proved for a type if both sides are the same for all its numbers. float16 has 65,536 numbers, and int8 has 65,536
# pairs of numbers: you can try them all. From `passlab.given.day16.laws` you have `value`, here called `numbers_of`, which
# computes a term for all inputs at once, and `every`, which returns all inputs:

# %%
numbers = every(torch.float16, "?x")
print(numbers["?x"].shape, numbers_of(("lt", ("mul", "?x", 2), 1), numbers).sum())


# %%
def weakest(
    left: tuple,
    right: tuple,
    conditions: dict[str, tuple],
    numbers: dict[str, torch.Tensor],
) -> tuple[bool, list[str] | dict[str, float]]:
    """Find the weakest precondition under which a law holds, or refute the law.

    A precondition is a choice of conditions, none, some or all: an input must satisfy
    all that are chosen. It is enough if both sides of the law are the same for each
    such input, bit by bit: a NaN is the same as any NaN, but 0.0 is not -0.0. The
    weakest one admits the most inputs.

    In:  left, right: terms; a variable or a number alone is a term, too.
         conditions: name -> a term that is true or false. At most six; some input
             satisfies all of them.
         numbers: variable -> its values, in all inputs.
    Out: (True, names of the conditions of the weakest precondition that is enough); any
             of them, if several admit as many inputs.
         (False, an input) if no precondition is enough: variable -> number. It
             satisfies all conditions, and the sides are not the same.

    Example: for x * 0 = 0 and float16, "the sign of x is +" and "x is finite" are
             enough together. "x > 0" and "x is finite" are, too, but do not admit 0.
    """
    ### BEGIN SOLUTION
    one, other = numbers_of(left, numbers), numbers_of(right, numbers)
    same = (one == other) & (one.signbit() == other.signbit())
    same |= one.isnan() & other.isnan()
    masks = {name: numbers_of(term, numbers) for name, term in conditions.items()}
    most, best = -1, None
    for count in range(len(masks) + 1):
        for names in itertools.combinations(masks, count):
            where = torch.ones_like(same)
            for name in names:
                where &= masks[name]
            if not (where & ~same).any() and where.sum() > most:
                most, best = where.sum(), list(names)
    if best is not None:
        return True, best
    # the last choice was that of all conditions
    i = (where & ~same).nonzero()[0].item()
    return False, {name: values[i].item() for name, values in numbers.items()}
    ### END SOLUTION


# %%
check("day16.laws", weakest)

# %% [markdown]
# ## 4 · The cheapest term · stretch
#
# Saturation leaves a graph of classes; what runs is one term. To choose it, take an e-node for each class that is used:
# for the roots, and for the operands of the e-nodes taken. A choice in which a class needs itself makes no term.
#
# What does a choice cost? There are two answers. **As trees**: an e-node costs what its label costs, plus the cost of each
# of its operands, which is paid as often as it occurs; the roots are added up. **With shared parts**: a class that is
# used counts once, however many operands and roots use it.
#
# The graph comes as data: `{1: [("mul", 2, 3), ("add", 2, 2)], 2: [("x",)], 3: [("2",)]}` has three classes, whose names
# are whole numbers; an e-node is a label and the classes of its operands. The order of the classes means nothing.


# %%
def extract(
    classes: dict[int, list[tuple]],
    roots: list[int],
    cost: dict[str, int],
    shared: bool,
) -> dict[int, tuple]:
    """Choose e-nodes so that the terms of the roots cost as little as possible.

    In:  classes: class -> its e-nodes. From each class a term can be made, but there
             may be loops. If shared is False, up to 200 classes, otherwise up to 50.
         roots: the classes that are wanted.
         cost: what each label costs, a whole number, 0 or more.
         shared: whether a class that is used several times counts once.
    Out: class -> one of its e-nodes, at least for the roots and the operands of what is
         taken. Entries for other classes are not looked at. Any of the cheapest
         choices will do.
    Not to be called: passlab.egraph.extract.cheapest,
         passlab.egraph.extract.cheapest_shared.

    Example: above, {1: ("add", 2, 2), 2: ("x",)} costs add + 2 * x as a tree, and
             add + x with shared parts.
    """
    ### BEGIN SOLUTION
    choice, total, changes = {}, {}, True
    while changes:
        changes = False
        for number, nodes in classes.items():
            for node in nodes:
                label, *operands = node
                if all(operand in total for operand in operands):
                    price = cost[label] + sum(total[operand] for operand in operands)
                    if number not in total or price < total[number]:
                        choice[number], total[number] = node, price
                        changes = True
    if not shared:
        return choice

    model = cp_model.CpModel()
    used = {number: model.new_bool_var("") for number in classes}
    # the operands of what is taken are on lower levels: no loops
    level = {number: model.new_int_var(0, len(classes), "") for number in classes}
    takes = {}
    for number, nodes in classes.items():
        for node in nodes:
            take = takes[number, node] = model.new_bool_var("")
            for operand in node[1:]:
                model.add_implication(take, used[operand])
                model.add(level[operand] < level[number]).only_enforce_if(take)
        model.add(sum(takes[number, node] for node in nodes) == used[number])
    for root in roots:
        model.add(used[root] == 1)
    model.minimize(sum(cost[node[0]] * take for (_, node), take in takes.items()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.solve(model)
    return {
        number: node for (number, node), take in takes.items() if solver.value(take)
    }
    ### END SOLUTION


# %%
check("day16.extract", extract)

# %% [markdown]
# ## 5 · Why two terms are equal · stretch
#
# A chain of laws is a proof that is easy to check: each step changes one term into the next. A step is
# `(name, place, back)`: the name of a law; the place in the term where it is applied; and whether the law is read from
# right to left. A place is a tuple of numbers, which lead from the whole term, `()`, to a part of it: `(0,)` is the first
# operand, `(0, 1)` the second operand of the first.
#
# A law has a name and two sides, and both sides have the same variables. Where one side matches a part, with one term for
# each variable, the other side with these terms takes its place. A side may be a variable alone: it matches any term.
#
# | | term | step to it |
# |---|---|---|
# | start | `("neg", ("mul", ("2",), ("a",)))` | |
# | | `("neg", ("mul", ("a",), ("2",)))` | `("swap", (0,), False)` |
# | end | `("neg", ("add", ("a",), ("a",)))` | `("double", (0,), False)` |
#
# Here the laws are `("swap", ("mul", "?x", "?y"), ("mul", "?y", "?x"))` and
# `("double", ("mul", "?x", ("2",)), ("add", "?x", "?x"))`. From the end to the start, the steps are the same, in reverse
# and with `back=True`.


# %%
def chain(
    laws: list[tuple], start: tuple, end: tuple, most: int
) -> list[tuple[str, tuple[int, ...], bool]] | None:
    """Find a chain of laws that leads from one term to another.

    In:  laws: (name, left side, right side); the names are different.
         start, end: terms of at most 15 labels.
         most: how many steps are allowed, 6 or fewer. There may be dozens of terms one
             step from a term: from one end alone, six steps take too long.
    Out: the steps, in order, at most `most`; [] if both terms are the same. None if
         there is no such chain. Any chain that is short enough will do.
    Not to be called: passlab.egraph.graph.EGraph.explain.

    Example: the table above.
    """

    ### BEGIN SOLUTION
    def match(pattern, term, binding):
        if isinstance(pattern, str):
            return binding.setdefault(pattern, term) == term
        if (pattern[0], len(pattern)) != (term[0], len(term)):
            return False
        return all(
            match(part, operand, binding)
            for part, operand in zip(pattern[1:], term[1:], strict=True)
        )

    def filled(pattern, binding):
        if isinstance(pattern, str):
            return binding[pattern]
        return (pattern[0], *(filled(part, binding) for part in pattern[1:]))

    def steps_from(term):
        for name, left, right in laws:
            for back, one, other in ((False, left, right), (True, right, left)):
                binding = {}
                if match(one, term, binding):
                    yield (name, (), back), filled(other, binding)
        for i, operand in enumerate(term[1:]):
            for (name, place, back), new in steps_from(operand):
                yield (name, (i, *place), back), (*term[: i + 1], new, *term[i + 2 :])

    chains = [{start: []}, {end: []}]  # from each end: term -> chain that leads to it
    edges = [[start], [end]]
    for left in range(most, -1, -1):
        for term in chains[0].keys() & chains[1].keys():
            rest = [(name, place, not back) for name, place, back in chains[1][term]]
            return chains[0][term] + rest[::-1]
        if left:
            side = 0 if len(edges[0]) < len(edges[1]) else 1
            edge, known = [], chains[side]
            for term in edges[side]:
                for step, new in steps_from(term):
                    if new not in known:
                        known[new] = [*known[term], step]
                        edge.append(new)
            edges[side] = edge
    return None
    ### END SOLUTION


# %%
check("day16.proof", chain)

# %% [markdown]
# ## 6 · Laws found by evaluation · stretch
#
# Given some operations on square matrices: which laws hold? Write down all small terms and compute each on random numbers.
# Terms that give the same are equal, but for a tiny chance, if the numbers come from a large field: here the whole numbers
# modulo the prime `P`. Most of these equations say nothing new: they follow from smaller ones.
#
# From `passlab.given.day16.discover` you have
#
# | name | what it is |
# |---|---|
# | `ARITY` | operation → how many operands it has: 1 or 2 |
# | `value(term, numbers)` | what a term gives. `numbers`: variable → a tensor of whole numbers from 0 to P − 1, of shape (n, n) |
# | `follows(left, right, laws)` | whether an equation follows from laws: saturation, within limits, brings both sides together |
# | `variables(term)` | the set of the variables of a term |
#
# `mul` multiplies element by element, `matmul` as matrices do; `relu` stands for a function of each element of which only
# the name is known. A term is a variable, `"?x"`, or a tuple: an operation and its operands.

# %%
from passlab.given.day16.discover import ARITY, P, follows, value, variables

ARITY


# %%
def discover(operations: list[str], names: list[str], most: int) -> list[tuple]:
    """Find laws of which all others follow.

    In:  operations: those that may occur.
         names: the variables, such as "?x".
         most: how many operations a side of a law may have, 2 or 3.
    Out: laws, each a pair (left, right) of terms. The left side is not a variable
         alone, and has all variables of the right side.
         - Each law is true: it holds for all square matrices, and for any relu.
         - They are complete: every true law of this form follows from yours, directly
           or by way of others. Here the limits are more generous.
         - None is left over: follows(left, right, all your other laws) is False for
           each, with the others in the order of your list.
         There are at most 1,200 terms.
    Time: 10 s of computing for each test case.
         The work of `follows` grows with the laws that it is given.
    Not to be called: passlab.egraph.discover.discover,
         passlab.egraph.discover.candidates, passlab.egraph.discover.enumerate_terms.

    Example: for ["mul"], three variables and two operations, commutativity and
             associativity are enough: ("mul", "?x", "?y") = ("mul", "?y", "?x"), and
             ("mul", ("mul", "?x", "?y"), "?z") = ("mul", "?x", ("mul", "?y", "?z")).
    """
    ### BEGIN SOLUTION
    levels = [names]  # terms by the number of their operations
    for count in range(1, most + 1):
        level = []
        for name in operations:
            if ARITY[name] == 1:
                level += [(name, term) for term in levels[count - 1]]
            else:
                for k in range(count):
                    pairs = itertools.product(levels[k], levels[count - 1 - k])
                    level += [(name, a, b) for a, b in pairs]
        levels.append(level)

    numbers = {name: torch.randint(P, (3, 3)) for name in names}
    smallest, laws = {}, []
    for left in itertools.chain(*levels):  # from small to large
        key = tuple(value(left, numbers).flatten().tolist())
        right = smallest.setdefault(key, left)
        if variables(right) <= variables(left) and not follows(left, right, laws):
            laws.append((left, right))
    for law in laws[::-1]:  # an early law may follow from later ones
        rest = [other for other in laws if other != law]
        if follows(*law, rest):
            laws = rest
    return laws
    ### END SOLUTION


# %%
check("day16.discover", discover)

# %%
progress("day16")
