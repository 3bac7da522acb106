"""Hidden cases and answers of day12.faster."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, reference, right, wrong
from passlab.capstone import Compiled, grouped
from passlab.exercises.day12.faster import chain_case, image_case
from passlab.judge import Case
from passlab.memory.plan import planned


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [chain_case(rng.choice((384, 512, 640)), rng.choice((768, 1024)), seed), image_case("residual", seed)]


# ---------------------------------------------------------------------------------------------------- answers

_RETURN = "return Compiled(gm, groups, plan=planned(grouped(gm, groups, inputs), *inputs))"

no_groups = edited("did", "leaves every operation a launch of its own", (_RETURN, "return Compiled(gm)"))
pairs = edited(
    "did",
    "stops at two nodes, so that most values go through memory",
    ("if why_not(longer) is None:", "if len(groups[at]) < 2 and why_not(longer) is None:"),
)
first_only = edited("did", "keeps the first group alone", (_RETURN, "return Compiled(gm, [g[:2] for g in groups[:1]])"))
slow_loops = edited(
    "valid",
    "asks for a knob that no schedule has",
    (_RETURN, 'return Compiled(gm, groups, {group[0]: {"threads": 64} for group in groups})'),
)
no_value = edited(
    "valid",
    "asks for tiles of a billion elements",
    (_RETURN, 'return Compiled(gm, groups, {group[0]: {"tile": 10**9} for group in groups})'),
)
wrong_plan = edited(
    "valid",
    "has a plan for the graph without its groups",
    (_RETURN, "return Compiled(gm, groups, plan=planned(gm, *inputs))"),
)
no_model = edited("valid", "returns the graph, which is code", (_RETURN, "return gm"))


@wrong("same", "leaves out what takes long: the last addition")
def leaves_out(gm, inputs):
    made = reference("day12.faster")(gm, inputs)
    (output,) = made.graph.graph.find_nodes(op="output")
    last = output.args[0]
    output.args = (last.all_input_nodes[0],)
    made.graph.graph.eliminate_dead_code()
    left = {node.name for node in made.graph.graph.nodes}
    return Compiled(made.graph, [g for g in ([n for n in group if n in left] for group in made.groups) if g])


@wrong("did", "hands over the model as it is")
def as_it_is(gm, inputs):
    return Compiled(gm)


@right("with schedules: short tiles, loops written out")
def with_schedules(gm, inputs):
    made = reference("day12.faster")(gm, inputs)
    schedules = {group[0]: {"tile": 4096, "unroll": 4} for group in made.groups}
    return Compiled(made.graph, made.groups, schedules, made.plan)


@right("without a plan of its own, and the groups in another order")
def other_order(gm, inputs):
    made = reference("day12.faster")(gm, inputs)
    groups = made.groups[::-1]
    return Compiled(made.graph, groups, plan=planned(grouped(made.graph, groups, inputs), *inputs))
