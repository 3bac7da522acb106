"""Bank of day04.chains. Most wrong answers are one working walk with a rule bent, or left out."""

from __future__ import annotations

from autograder.bank import right, wrong
from passlab.fx.effects import written
from passlab.fx.patterns import Pattern, canonical, pattern


def _fits(gm, most=Pattern.BROADCAST, memory=True):
    """The operations that may be in a group."""
    touched = written(gm.graph) if memory else set()
    return {n for n in gm.graph.nodes if pattern(n) <= most and touched.isdisjoint([n, *n.all_input_nodes])}


def _grouped(gm, last):
    groups = {}
    for n in gm.graph.nodes:
        if n in last:
            groups.setdefault(last[n], []).append(n.name)
    return [group for group in groups.values() if len(group) > 1]


def _walk(gm, fits):
    """Each node to the group of its readers, if it is one."""
    last = {}
    for n in reversed(gm.graph.nodes):
        if n in fits:
            found = {last.get(reader) for reader in n.users}
            last[n] = found.pop() if len(found) == 1 and None not in found else n
    return _grouped(gm, last)


@right("begins with groups of one, and merges two for as long as that gives one result")
def merging(gm):
    fits = _fits(gm)
    groups = [{n} for n in gm.graph.nodes if n in fits]
    again = True
    while again:
        again = False
        for group in groups:
            readers = {r for n in group for r in n.users} - group
            whole = next((g for g in groups if g is not group and readers and readers <= g), None)
            if whole is not None:
                whole |= group
                groups.remove(group)
                again = True
                break
    order = [n.name for n in gm.graph.nodes]
    return [sorted((n.name for n in g), key=order.index) for g in groups]


@right("a walk from every node that ends a group to what it reads, again and again; groups of one listed, too")
def growing(gm):
    fits, found = _fits(gm), []
    taken = set()
    for end in reversed(gm.graph.nodes):
        if end not in fits or end in taken:
            continue
        group, grown = {end}, True
        while grown:
            below = {a for n in group for a in n.all_input_nodes} - group
            grown = {a for a in below if a in fits and a.users and set(a.users) <= group}
            group |= grown
        taken |= group
        found.append(tuple(n.name for n in gm.graph.nodes if n in group))
    return found


@wrong("cost", "only values with one reader: what is read twice inside ends the group")
def one_reader(gm):
    fits, last = _fits(gm), {}
    for n in reversed(gm.graph.nodes):
        if n in fits:
            readers = list(n.users)
            last[n] = last[readers[0]] if len(readers) == 1 and readers[0] in fits else n
    return _grouped(gm, last)


@wrong("spared", "joins a node with its first reader, whoever else reads it")
def first_reader(gm):
    fits, last = _fits(gm), {}
    for n in reversed(gm.graph.nodes):
        if n in fits:
            reader = next(iter(n.users), None)
            last[n] = last.get(reader, n)
    return _grouped(gm, last)


@wrong("spared", "everything that is connected by element-wise operations is one group: values leave the middle")
def connected(gm):
    fits, last = _fits(gm), {}
    for n in gm.graph.nodes:
        if n in fits:
            near = [last[a] for a in n.all_input_nodes if a in last]
            last[n] = n
            last = {m: n if end in near else end for m, end in last.items()}
    return _grouped(gm, last)


@wrong("spared", "forgets memory: fuses what reads a value that the program writes into")
def memory_unseen(gm):
    return _walk(gm, _fits(gm, memory=False))


@wrong("spared", "takes reductions and shapes with it: all up to COMM_REDUCE")
def all_patterns(gm):
    return _walk(gm, _fits(gm, most=Pattern.COMM_REDUCE))


@wrong("spared", "goes by names, and forgets effects: a dropout that draws and a relu in place are in groups")
def by_name(gm):
    more = {n for n in gm.graph.nodes if canonical(n) in ("dropout", "relu", "rand_like", "add_")}
    return _walk(gm, _fits(gm, memory=False) | more)


@wrong("did", "only operations whose operands all have the shape of the result: broadcasting ends a group")
def no_broadcast(gm):
    def shape(n):
        return getattr(n.meta.get("tensor_meta"), "shape", None)

    fits = {n for n in _fits(gm) if all(shape(a) == shape(n) for a in n.all_input_nodes)}
    return _walk(gm, fits)


@wrong("did", "only operations of one operand: what reads two values ends a group")
def one_operand(gm):
    return _walk(gm, {n for n in _fits(gm) if len(n.all_input_nodes) == 1})


@wrong("did", "ELEMWISE alone: no sums and no products")
def element_wise_alone(gm):
    return _walk(gm, _fits(gm, most=Pattern.ELEMWISE))


@wrong("did", "pairs: each operation with the next one, and then it stops")
def pairs(gm):
    return [group[:2] for group in _walk(gm, _fits(gm))]


@wrong("cost", "walks from the first node to the last and never merges two groups that meet")
def never_merges(gm):
    groups, of = [], {}
    for group in _walk(gm, _fits(gm)):
        of |= dict.fromkeys(group, len(of))
    for n in gm.graph.nodes:
        if n.name not in of:
            continue
        mine = [g for g in groups for a in n.all_input_nodes if a.name == g[-1] and of[a.name] == of[n.name]]
        if mine:
            mine[0].append(n.name)
        else:
            groups.append([n.name])
    return groups


@wrong("did", "stops a group where something else stands between its nodes in the text")
def by_the_text(gm):
    fits, groups = _fits(gm), [[]]
    joined = [set(g) for g in _walk(gm, fits)]
    for n in gm.graph.nodes:
        last = groups[-1]
        if n in fits and last and any({last[-1], n.name} <= g for g in joined):
            last.append(n.name)
        else:
            groups.append([n.name] if n in fits else [])
    return [group for group in groups if group]


@wrong("valid", "gives nodes instead of their names")
def nodes_themselves(gm):
    node_of = {n.name: n for n in gm.graph.nodes}
    return [[node_of[name] for name in group] for group in _walk(gm, _fits(gm))]


@wrong("valid", "puts the inputs of a kernel into its group")
def with_inputs(gm):
    node_of = {n.name: n for n in gm.graph.nodes}
    found = []
    for group in _walk(gm, _fits(gm)):
        read = [a.name for name in group for a in node_of[name].all_input_nodes]
        found.append(list(dict.fromkeys([*read, *group])))
    return found
