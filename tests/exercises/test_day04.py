"""Day 4, the exercises about groups: chains, convex, groups. Reference answers against what they are to foretell.

What needs a TVM is below `# There` and runs in a process that holds it (see `in_own_process`).
"""

from __future__ import annotations

import pytest

from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases
from passlab import exercises
from passlab.judge import judge


@pytest.mark.parametrize("seed", range(3))
def test_the_groups_of_the_reference_are_those_of_fuse_ops_on_random_graphs(seed, in_own_process):
    wrong, groups, operations = in_own_process("day04.groups", groups_that_differ, range(60 * seed, 60 * seed + 60))
    assert wrong == []
    assert groups < 0.7 * operations, "something is fused"


def test_the_patterns_of_fx_are_those_of_relay(in_own_process):
    """Every operation that has a translation, on its own call."""
    differ, seen = in_own_process("day04.groups", patterns_that_differ)
    assert differ == {}
    assert {"relu", "add", "transpose", "cat", "sum", "conv2d", "softmax", "cumsum", "unsqueeze"} <= seen


def test_the_groups_of_kernels_written_down_by_hand(in_own_process):
    assert in_own_process("day04.groups", groups_by_hand) == {
        "reductions": [["exp"], ["relu", "sum_1"], ["relu_1"], ["softmax", "mul"], ["sum_2"]],
        "a fork": [["conv2d"], ["relu"], ["sigmoid"]],
        "a fork that joins again": [["conv2d", "relu", "sigmoid", "add"]],
        "pieces": [["exp", "chunk", "tanh", "cat", "relu"]],
    }


def test_an_operation_without_a_translation_is_named(in_own_process):
    assert "erfinv: there is no translation of erfinv to Relay." in in_own_process("day04.groups", untranslated)


def test_large_graphs_are_grouped_by_looking_at_few_nodes(in_own_process):
    """The reference looks at 256 nodes at most between a node and its post-dominator, however long the way is."""
    small, large = in_own_process("day04.groups", nodes_looked_at, (200, 2000))
    assert 0 < large < 15 * small


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"groups": []}, "Return a list of groups; got {'groups': []}."),
        ([["relu", "sum_1"], ["relu"]], "Node relu is in two groups, or twice in one."),
        (["relu"], "A group is a list of names of nodes; one here is 'relu'."),
        ([["relu", 7]], "A group holds 7, of type int; a node is called by its name."),
        ([["relu", "rleu"]], "A group holds 'rleu', and the graph has no node of that name."),
        ([["x", "relu"]], "A group holds 'x', which is not an operation."),
        ([["relu"]], "Node sum_1 is missing: a node that is not fused forms a group of one."),
    ],
)
def test_an_answer_that_is_no_grouping_is_told_so(answer, sentence, in_own_process):
    assert sentence in in_own_process("day04.groups", said_of, "day04.groups", answer)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (True, "The answer is None or a list of names of nodes; it is True."),
        ([], "The answer is None or a list of names of nodes; it is []."),
        (["exp", 7], "The answer holds 7, of type int; a node is called by its name."),
        (["expp"], "The answer holds 'expp', and the graph has no node of that name."),
        (None, "exp → sum_1 → truediv leads out of it and back"),
        (["sum_1"], "sum_1 is not in the group."),
        (["exp"], "exp has no effect, so it is not a reason."),
        (["exp", "truediv"], "Between exp and truediv your path has no node outside the group."),
        (["exp", "sum_1", "relu"], "A path must start and end in the group; relu is not in the group."),
        (["exp", "truediv", "truediv"], "truediv is in the middle of your path but also in the group"),
        (["exp", "relu", "truediv"], "relu neither reads exp nor has to stay behind it."),
    ],
)
def test_an_answer_that_shows_no_obstacle_is_told_why(answer, sentence, in_own_process):
    assert sentence in in_own_process("day04.convex", said_of, "day04.convex", answer)


def test_an_obstacle_is_found_where_no_order_of_steps_has_the_group_in_one(in_own_process):
    """The judge's search against the definition: some order keeps every pair and has the members side by side."""
    differ, refused = in_own_process("day04.convex", obstacles_by_definition, range(300))
    assert differ == [] and 50 < refused < 250


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("mul", "Return a list of groups; got 'mul'."),
        ([["mul", "add"], []], "A group is a list of names of nodes; one here is []."),
        ([["mul", 7]], "A group holds 7, of type int; a node is called by its name."),
        ([["mull"]], "A group holds 'mull', and the graph has no node of that name."),
        ([["x", "mul"]], "A group holds 'x', which is not an operation."),
        ([["mul", "add"], ["add"]], "Node add is in two groups, or twice in one."),
        ([], "add alone reads mul: they may share a kernel, but you keep them apart."),
        ([["mul", "add", "relu"], ["mul_1", "add_1"]], "mul_1 alone reads relu: they may share a kernel"),
        ([["mul", "relu"]], "The group (mul, relu) has a cycle: 'mul' leaves it, and the path through 'add' re-"),
    ],
)
def test_an_answer_that_makes_no_kernels_is_told_why(answer, sentence, in_own_process):
    assert sentence in in_own_process("day04.chains", said_of, "day04.chains", answer)


@pytest.mark.parametrize(
    ("case", "answer", "sentence"),
    [
        ("a value that leaves", [["mul", "relu", "tanh", "add"]], "relu is read by output, outside, and add is its"),
        (
            "softmax written out",
            [["sub", "exp"], ["sum_1"], ["truediv", "mul"]],
            "sum_1 is in a group, but it is not an",
        ),
        ("a dropout", [["mul", "relu"], ["dropout", "exp", "sub"]], "dropout is in a group, but it has an effect"),
        ("written in between", [["exp", "mul", "add"]], "exp is in a group, but it uses memory that the program"),
    ],
)
def test_a_group_that_goes_too_far_is_told_why(case, answer, sentence, in_own_process):
    assert sentence in in_own_process("day04.chains", spared_of, "day04.chains", case, answer)


def test_the_largest_groups_are_largest_whichever_way_they_are_found(in_own_process):
    """The judge's walk against merging pairs of groups for as long as one result is left."""
    assert in_own_process("day04.chains", chains_that_differ, range(200)) == []


# There


def said_of(exercise_id, answer):
    exercise = exercises.find(exercise_id)
    return judge(exercise, lambda *arguments: answer, exercise.cases()[:1]).failure.message


def spared_of(exercise_id, name, answer):
    [case] = [case for case in exercises.find(exercise_id).cases() if case.name == name]
    findings = judge(exercises.find(exercise_id), lambda *arguments: answer, [case]).findings
    return next(f.message for f in findings if f.verdict == "spared")


def chains_that_differ(seeds):
    from autograder.answers.day04.chains import merging, random_chains

    answer = answers.reference("day04.chains")

    def large(groups):
        return sorted(sorted(group) for group in groups if len(group) > 1)

    graphs = {seed: random_chains(seed, 6 + seed % 12, 0.2)() for seed in seeds}
    return [seed for seed, gm in graphs.items() if large(answer(gm)) != large(merging(gm))]


def groups_that_differ(seeds):
    from autograder.answers.day04.groups import random_program
    from passlab.exercises.day04.groups import operations, right_groups
    from passlab.relay.translate import in_post_order

    answer, wrong, groups, number = answers.reference("day04.groups"), [], 0, 0
    for seed in seeds:
        gm = in_post_order(random_program(seed, 4 + seed % 30)())
        nodes, right = operations(gm), right_groups(gm)
        groups, number = groups + len(right), number + len(nodes)
        own = ([name for name in group if name in nodes] for group in answer(gm))
        if sorted(sorted(group) for group in own if group) != sorted(map(sorted, right)):
            wrong.append(seed)
    return wrong, groups, number


def patterns_that_differ():
    from autograder.answers.day04.groups import random_program
    from passlab.exercises.day04.groups import cases as groups_cases
    from passlab.fx.patterns import canonical, pattern
    from passlab.relay.groups import calls
    from passlab.relay.translate import in_post_order, to_relay

    differ, seen = {}, set()
    by_hand = [case for case in hidden_cases("day04.groups", 0) if not case.name.startswith(("generated", "very long"))]
    graphs = [case.build()[0] for case in [*groups_cases(), *by_hand]]
    for gm in [*graphs, *(in_post_order(random_program(seed, 20)()) for seed in range(10))]:
        module, names = to_relay(gm)
        node_of = {n.name: n for n in gm.graph.nodes}
        for call, name in zip(calls(module), names, strict=True):
            seen.add(canonical(node_of[name]))
            if int(call.op.get_attr("TOpPattern")) != pattern(node_of[name]):
                differ[canonical(node_of[name])] = str(call.op.name)
    return differ, seen


def groups_by_hand():
    from passlab.exercises.day04.groups import cases as groups_cases
    from passlab.exercises.day04.groups import right_groups

    expected = ("reductions", "a fork", "a fork that joins again", "pieces")
    return {case.name: sorted(right_groups(*case.build())) for case in groups_cases() if case.name in expected}


def untranslated():
    import torch

    from passlab.fx.cases import graph
    from passlab.relay.translate import to_relay

    try:
        to_relay(graph(lambda m, x: torch.erfinv(x), (2, 3))())
    except ValueError as error:
        return str(error)


def nodes_looked_at(sizes):
    """How many nodes the reference finds between nodes and post-dominators, in towers of skip connections."""
    import torch
    from torch import fx

    answer, result = answers.reference("day04.groups"), []
    search = answer.__globals__["nodes_between"]
    for size in sizes:
        graph = fx.Graph()
        last, tower = graph.placeholder("x"), []
        for _ in range(size):
            tower.append(graph.call_function(torch.relu, (last,)))
            last = graph.call_function(torch.cumsum, (tower[-1], 0))
        for below in reversed(tower):
            last = graph.call_function(torch.add, (last, below))
        graph.output(last)
        looked = []

        def counted(n, sink, most, looked=looked):
            between = search(n, sink, most)
            looked.append(most if between is None else len(between))
            return between

        answer.__globals__["nodes_between"] = counted
        answer(fx.GraphModule({}, graph))
        result.append(sum(looked))
    return result


def obstacles_by_definition(seeds):
    """Graphs in which the judge says other than the definition, and in how many there is an obstacle."""
    import random

    import networkx

    from passlab import random_graph
    from passlab.exercises.day04.convex import waits_for, way_back

    differ, refused = [], 0
    for seed in seeds:
        gm, rng = random_graph(seed, 12, mutation=seed % 2 == 0), random.Random(seed)
        calls = [n.name for n in gm.graph.nodes if n.op.startswith("call_")]
        group = rng.sample(calls, min(len(calls), rng.randint(2, 4)))
        step = {n.name: "kernel" if n.name in group else n.name for n in gm.graph.nodes}
        edges = [(step[b.name], step[n.name]) for n, before in waits_for(gm).items() for b in before]
        steps = networkx.DiGraph(edge for edge in edges if edge[0] != edge[1])
        possible = networkx.is_directed_acyclic_graph(steps)
        refused += not possible
        if possible != (way_back(gm, group) is None):
            differ.append(seed)
    return differ, refused
