"""Questions on day 17: breaking compilers."""

from __future__ import annotations

import random

from passlab.reviews.programs import straight_line, text_of
from passlab.reviews.questions import Question, choose, kind

#: Equations that hold for every x, up to rounding, and equations that do not.
LAWS = (
    "torch.relu(2 * x) == 2 * torch.relu(x)",
    "torch.tanh(-x) == -torch.tanh(x)",
    "torch.softmax(x + 3, -1) == torch.softmax(x, -1)",
    "(x + 1).amax(-1) == x.amax(-1) + 1",
    "x.flip(-1).sum(-1) == x.sum(-1)",
    "x.flip(-1).sort().values == x.sort().values",
    "x.T.cumsum(0) == x.cumsum(1).T",
    "(x @ x.T).T == x @ x.T",
    "torch.sigmoid(-x) == 1 - torch.sigmoid(x)",
    "(2 * x).mean() == 2 * x.mean()",
)
NO_LAWS = (
    "torch.relu(-x) == -torch.relu(x)",
    "torch.sigmoid(2 * x) == 2 * torch.sigmoid(x)",
    "torch.softmax(2 * x, -1) == torch.softmax(x, -1)",
    "(2 * x).amax(-1) == x.amax(-1) + 2",
    "x.flip(-1).cumsum(-1) == x.cumsum(-1).flip(-1)",
    "x.flip(-1).argmax(-1) == x.argmax(-1)",
    "torch.exp(x + 1) == torch.exp(x) + 1",
    "(-x).sort().values == -x.sort().values",
    "(x * x).mean() == x.mean() * x.mean()",
)
#: Programs that draw random numbers, and programs that only look as if they did.
DRAW = (
    "x + torch.rand_like(x)",
    "F.dropout(x, 0.5, training=True)",
    "torch.bernoulli(torch.sigmoid(x))",
    "torch.empty_like(x).uniform_()",
    "x[torch.randperm(len(x))]",
    "torch.normal(x, 1.0)",
)
DRAW_NOTHING = (
    "x + torch.ones_like(x)",
    "F.dropout(x, 0.5, training=False)",
    "torch.round(torch.sigmoid(x))",
    "torch.empty_like(x).fill_(0.5)",
    "x[torch.arange(len(x)).flip(0)]",
    "torch.special.ndtr(x)",
)
OPERATIONS = ("add", "mul", "sub", "square", "reshape")


@kind("day17", "no-law")
def no_law(rng: random.Random) -> Question:
    """Which relation is not a law to test a compiler with."""
    answer = rng.choice(NO_LAWS)
    text = (
        "To test a compiler without a second one, run a program on two related inputs. Three of these relations hold "
        "for every float matrix x, up to rounding. Which one does not, so that a right compiler would be called wrong?"
    )
    reason = "A relation that fails on one x is not a law: try a row with numbers of both signs that is not sorted."
    return Question(text, answer, reason, choose(rng, answer, rng.sample(LAWS, 3)))


@kind("day17", "random")
def draws(rng: random.Random) -> Question:
    """Which program cannot be compared value by value."""
    answer = rng.choice(DRAW)
    text = "Which of these programs can an oracle not compare value by value, since a right compiler may draw anew?"
    reason = "It draws random numbers: the state of torch's generator has moved when it ends."
    return Question(text, answer, reason, choose(rng, answer, rng.sample(DRAW_NOTHING, 3)))


@kind("day17", "chance")
def chance(rng: random.Random) -> Question:
    """How many graphs have to be drawn."""
    one_in, percent = rng.randint(2, 30), rng.choice((90, 95, 99))
    count, missed, all_draws = 0, 1, 1
    while 100 * missed > (100 - percent) * all_draws:
        count, missed, all_draws = count + 1, missed * (one_in - 1), all_draws * one_in
    text = (
        f"A faulty pass fails on one in {one_in} of the graphs that a generator draws. What is the least number of "
        f"graphs for which the chance that it fails on at least one is {percent} % or more?"
    )
    return Question(text, count, f"n graphs miss it with a chance of (1 - 1/{one_in})ⁿ.")


@kind("day17", "cut-off")
def cut_off(rng: random.Random) -> Question:
    """What is left of a failing graph."""
    lines = straight_line(rng, 9)
    first, last = sorted(rng.sample(range(2, 9), 2))
    wrong, cut = lines[last].name, lines[first].name
    known = {line.name: line for line in lines}
    waiting, nodes = [wrong], set()
    while waiting:
        name = waiting.pop()
        if name in known and name not in nodes and name != cut:
            nodes.add(name)
            waiting += known[name].operands
    text = (
        f"{text_of(lines, *[line.name for line in lines[-2:]])}\n\nThe value of {wrong} is wrong. To shrink, return "
        f"{wrong} alone, make {cut} a new input that holds its value, and remove what is not used. How many operations "
        "are left?"
    )
    return Question(text, len(nodes), f"Left are {', '.join(sorted(nodes))}: {wrong}, and what it needs up to {cut}.")


@kind("day17", "triage")
def triage(rng: random.Random) -> Question:
    """How many faults a list of failures shows."""
    failures = []
    for number in range(rng.randint(5, 8)):
        first = rng.choice(OPERATIONS[:3])
        later = rng.choice(OPERATIONS)
        failures.append((f"failure {number + 1}", first, later, rng.choice(("float32", "int64"))))
    lines = "\n".join(
        f"{name}: {first} on {dtype} is the first wrong value, {later} is the output"
        for name, first, later, dtype in failures
    )
    answer = len({(first, dtype) for _, first, _, dtype in failures})
    text = (
        f"{lines}\n\nTwo failures are one fault if the same operation computes the first wrong value, on numbers of "
        "the same type. How many faults are these?"
    )
    return Question(text, answer, "What is computed from a wrong value is wrong, too, and says nothing of the fault.")
