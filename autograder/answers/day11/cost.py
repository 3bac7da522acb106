"""Hidden cases and answers of day11.cost."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np

from autograder.authoring.answers import edited, right
from passlab.exercises.day11.cost import along, messages_case
from passlab.judge import Case
from passlab.wafer import TREES, Message, reduce_messages


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    row = tuple((3, column) for column in range(3, 3 + rng.randint(6, 9)))
    words = rng.randint(5, 40)
    ways = [
        along((3, 3), (3, 6), words=3),
        along((5, 6), (3, 6), words=3),
        along((3, 6), (9, 9), waits=(0, 1), words=2),
    ]
    late = reduce_messages(TREES["tree"](8), words)
    order = list(range(len(late)))
    rng.shuffle(order)
    new = {old: place for place, old in enumerate(order)}
    mixed = [
        Message(m.route, m.words, tuple(new[i] for i in m.waits), tuple(new[i] for i in m.streams))
        for m in (late[old] for old in order)
    ]
    far = [along((0, 0), (0, 9), words=2), along((9, 9), (9, 8), words=2), along((9, 8), (9, 7), waits=(1,), words=1)]
    deep = [
        along((0, 0), (0, 1)),
        along((0, 1), (0, 2), streams=(0,)),
        along((9, 2), (0, 2)),
        along((0, 2), (0, 3), waits=(1, 2)),
    ]
    return [
        messages_case("a core that sends more than any receives", [along((4, 4), end, words=words) for end in ((4, 7), (7, 4), (1, 4))]),  # noqa: E501
        messages_case("a core that receives more than any sends", [along(end, (4, 4), words=words) for end in ((4, 7), (7, 4), (1, 4))]),  # noqa: E501
        messages_case("there and back", [along((2, 2), (2, 6), words=words), along((2, 6), (2, 2), waits=(0,), words=words)]),  # noqa: E501
        messages_case("one link for two", [along((2, 2), (2, 6), words=words), along((2, 3), (2, 5), words=1)]),
        messages_case("the longer of two ways counts", ways, rng.randint(0, 4)),
        messages_case("the longest way is not the longest chain", far, rng.randint(0, 4)),
        messages_case("messages in any order", mixed, 3),
        messages_case("a multicast with few drops", [Message(row, words, drops=(row[2], row[-1])), along(row[2], (4, 5), words=words, streams=(0,))]),  # noqa: E501
        messages_case("a multicast with many drops", [Message(row, words, drops=row[1:]), *(along(core, row[-1], words=1) for core in row[2:-1])]),  # noqa: E501
        messages_case(
            "a core that receives a copy, and more",
            [Message(row, words, drops=row[1:-2:2] + row[-1:]), along((9, 4), row[1], words=words // 2)],
        ),
        messages_case("a core that waits for a short way and a deep one", deep, 1),
        messages_case("routes with a turn of their own", [along((0, 0), (5, 0), (5, 5), (2, 5), words=words)], 0),
        messages_case("a star", reduce_messages(TREES["star"](rng.randint(6, 12)), rng.randint(2, 30))),
        messages_case("two phases", reduce_messages(TREES["two-phase"](16), rng.choice([2, 200]))),
        messages_case(
            "waits for words that go on beyond it",
            [Message(row, words, drops=row[1:]), along(row[2], (9, 1), words=words, waits=(0,))],
        ),
        messages_case(
            "waits for what has waited",
            [
                along((0, 0), (0, 4)),
                along((0, 4), (4, 4), words=words, waits=(0,)),
                along((4, 4), (4, 6), waits=(1,)),
                along((12, 0), (12, 7)),
            ],
        ),
        messages_case(
            "each message waits for the one after it",
            [along((4, 4), (4, 9), waits=(1,)), along((0, 4), (4, 4), words=words, waits=(2,)), along((0, 0), (0, 4))],
        ),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- answers


@right("everything in arrays; the longest ways by relaxing until nothing changes")
def relaxed(messages, ramp):
    number = {}
    for m in messages:
        for core in m.route:
            number.setdefault(tuple(core), len(number))
    out, into, used = np.zeros(len(number)), np.zeros(len(number)), np.zeros((len(number),) * 2, bool)
    energy = 0
    for m in messages:
        places = [number[tuple(core)] for core in m.route]
        out[places[0]] += m.words
        into[[number[tuple(core)] for core in m.targets]] += m.words
        used[places[:-1], places[1:]] = True
        energy += m.words * (len(places) - 1)
    way, depth = np.zeros(len(messages), int), np.ones(len(messages), int)
    for _ in messages:
        for i, m in enumerate(messages):
            for j in m.waits + m.streams:
                way[i] = max(way[i], way[j] + messages[j].route.index(m.route[0]))
                depth[i] = max(depth[i], depth[j] + 1)
    distance = max(w + len(m.route) - 1 for w, m in zip(way, messages, strict=True))
    c, n = max(out.max(), into.max()), int(used.sum())
    cycles = max(c, energy / n + distance) + (2 * ramp + 1) * depth.max()
    return {"contention": int(c), "energy": energy, "links": n, "distance": int(distance), "depth": int(depth.max()), "cycles": float(cycles)}  # fmt: skip  # noqa: E501


@right("the words of each core and the links in dictionaries; every chain walked to its end")
def walked(messages, ramp):
    links, sends, gets = {}, {}, {}
    for m in messages:
        for hop in pairwise(m.route):
            links[hop] = links.get(hop, 0) + m.words
        sends[m.source] = sends.get(m.source, 0) + m.words
        for core in m.targets:
            gets[core] = gets.get(core, 0) + m.words
    children = {i: [] for i in range(len(messages))}
    for i, m in enumerate(messages):
        for j in (*m.waits, *m.streams):
            children[j].append(i)
    best = [0, 0]

    def go(i, way, deep):
        best[:] = max(best[0], way + len(messages[i].route) - 1), max(best[1], deep)
        for child in children[i]:
            go(child, way + messages[i].route.index(messages[child].source), deep + 1)

    for i, m in enumerate(messages):
        if not m.waits and not m.streams:
            go(i, 0, 1)
    c = {"contention": max(*sends.values(), *gets.values()), "energy": sum(links.values()), "links": len(links)}
    c |= {"distance": best[0], "depth": best[1]}
    c["cycles"] = (2 * ramp + 1) * best[1] + max(c["contention"], c["energy"] / len(links) + best[0])
    return c


together = edited("did", "adds what a core sends to what it receives")(('"out", ...', "..."), ('"in", core', "core"))
copies = edited("did", "a multicast's words cross each link once for each target")(
    ("... * len(hops)", "... * len(hops) * len(message.targets)")
)
both_ways = edited("did", "takes both directions of a link for one")(
    ("used.update(hops)", "used.update(map(frozenset, hops))")
)
busy_links = edited("did", "counts a link as often as it is used")(
    ("used, energy = set(), 0", "used, energy = [], 0"), ("used.update(hops)", "used.extend(hops)")
)
messages_words = edited("did", "counts words and not words times links")(
    ("energy += message.words * len(hops)", "energy += message.words")
)
streams_only = edited("same", "forgets what is waited for")(("(*message.waits, *message.streams)", "message.streams"))
waits_only = edited("same", "forgets what is streamed")(("(*message.waits, *message.streams)", "message.waits"))
ways_of_streams = edited("same", "depth counts what is waited for, and distance only what is streamed")(
    ("way = max(way, so_far + ...)", "way = max(way, (so_far + ...) * (parent in message.streams))")
)
whole_way = edited("same", "adds the whole way of a message that is waited for, also beyond the core that waits")(
    (
        "way = max(way, so_far + ...)",
        """
        route = messages[parent].route
        way = max(way, so_far + (len(route) - 1 if parent in message.waits else route.index(message.source)))
        """,
    )
)
one_back = edited("same", "adds the way of the message before, and not of those before that")(
    ("so_far + messages[parent].route.index(...)", "messages[parent].route.index(...)")
)
own_only = edited("same", "distance is the longest route of a message alone")(("before(i)[0] + ...", "..."))
last_only = edited("same", "the way of a message that others wait for does not count, though it goes on beyond them")(
    (
        "max(before(i)[0] + ... - 1 for i in everything)",
        "max(before(i)[0] + ... - 1 for i in everything if not any(i in m.waits + m.streams for m in messages))",
    )
)
in_the_list = edited("same", "takes messages as they are listed: one that is listed later has no way and no depth yet")(
    ("(*message.waits, *message.streams)", "[p for p in (*message.waits, *message.streams) if p < number]")
)
sums_up = edited("same", "depth is the number of messages that wait")(
    ("max(before(i)[1] for i in everything)", "len(messages)")
)
one_ramp = edited("cost", "a message passes one ramp")(("(2 * ramp + 1)", "(ramp + 1)"))
no_max = edited("cost", "adds contention and flow")(('max(c["contention"], flow)', '(c["contention"] + flow)'))
