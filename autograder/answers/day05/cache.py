"""Hidden cases and answers of day05.cache."""

from __future__ import annotations

import random
from itertools import permutations, product

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day05.cache import access, nest, product_of_matrices
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n = rng.choice([6, 7, 9])
    far = 4096 * rng.randint(1, 8)
    stencil = [access(16 * 8 * di + 8 * dj + 136, i=128, j=8) for di, dj in ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0))]
    drawn = [
        access(8 * rng.randint(0, 500), **{loop: 8 * rng.choice([0, 1, 1, 8, 16, 40]) for loop in "abc"})
        for _ in range(3)
    ]
    between = [access(far, i=8, j=64), access(0, i=8, j=64), access(far, i=8, j=64)]
    four = access(0, a=8, b=64, c=16, d=256)
    return [
        nest("four loops", dict(zip(rng.sample("abcd", 4), (2, 3, 4, 3), strict=True)), [four, access(far, b=8)], 2, 2),
        nest("the same access again, after another", {"i": 8, "j": 3}, between, 4, 1),
        nest("one loop, twice through", {"t": 2, "i": 12}, [access(0, i=64)], 2, 4),
        nest("a loop that comes back", {"i": 3, "j": 4}, [access(0, j=64), access(256), access(0, j=64)], 1, 3),
        nest("a hit keeps a line", {"i": 10}, [access(0), access(64, i=64)], 1, 2),
        nest("direct mapped", {"i": 6, "j": 6}, [access(0, i=64, j=8), access(1024, j=64)], 8, 1),
        nest("two arrays in one set", {"i": 16}, [access(0, i=8), access(4096, i=8)], 64, 1),
        nest("lines of 32 bytes", {"i": 8, "j": 8}, [access(32, i=64, j=8)], 4, 1, 32),
        nest("lines of 48 bytes", {"i": 6, "j": 12}, [access(0, i=96, j=8), access(960, j=96)], 2, 2, 48),
        nest("three sets", {"i": 6, "j": 8}, [access(0, i=64, j=192), access(far, i=64)], 3, 2),
        nest("a loop of one turn", {"i": 5, "n": 1, "j": 9}, [access(0, i=576, n=64, j=64)], 2, 2),
        nest("everything fits", {"i": 8, "j": 8}, [access(far, i=64, j=8), access(0, j=64, i=8)], 64, 8),
        nest("does not begin at a line", {"i": 8, "j": 9}, [access(24, i=72, j=8)], 2, 1),
        nest("a product", dict.fromkeys("kji", n), product_of_matrices(n, 1024), 4, rng.randint(1, 3)),
        nest("a product with arrays far apart", dict.fromkeys("jki", 8), product_of_matrices(8, far), 2, 3),
        nest("a stencil", {"i": 6, "j": 14}, [*stencil, access(8192 + 136, i=128, j=8)], 2, 3),
        nest("backwards", {"i": 9, "j": 9}, [access(8 * 80, i=-72, j=-8), access(8 * 8, j=-8)], 2, 2),
        nest("drawn", {"a": 6, "b": 5, "c": 7}, drawn, 4, 2),
        nest("more ways than it needs", {"i": 4, "j": 24}, [access(0, j=64)], 1, 24),
        nest("one way too few", {"i": 4, "j": 24}, [access(0, j=64)], 1, 23),
    ]


def _simulated(loops, accesses, cache, missed):
    """Misses of every order, where `missed(state, line)` says whether an access misses. `state` begins empty."""
    counts = {}
    for order in permutations(loops):
        count, state = 0, {}
        for turns in product(*(range(loops[name]) for name in order)):
            at = dict(zip(order, turns, strict=True))
            for one in accesses:
                address = one["start"] + sum(step * at[name] for name, step in one["steps"].items())
                count += missed(state, address // cache["line"])
        counts["".join(order)] = count
    return min(counts, key=counts.get), counts


@right("keeps the time of the last use of each line, and sends the one with the smallest away")
def by_times(loops, accesses, cache):
    def missed(state, line):
        time = state["now"] = state.get("now", 0) + 1
        used = state.setdefault(line % cache["sets"], {})
        new = line not in used
        used[line] = time
        if len(used) > cache["ways"]:
            del used[min(used, key=used.get)]
        return new

    return _simulated(loops, accesses, cache, missed)


@right("counts how many other lines of the set came since the last use of a line: it is still there if they are few")
def by_distance(loops, accesses, cache):
    def missed(state, line):
        past = state.setdefault(line % cache["sets"], [])
        since = set()
        for other in reversed(past):
            if other == line:
                break
            since.add(other)
        else:
            since = set(range(cache["ways"]))
        past.append(line)
        return len(since) >= cache["ways"]

    best, counts = _simulated(loops, accesses, cache, missed)
    return [best, counts]


@wrong("spared", "sends away the line that came first, even if it was used just now")
def first_in_first_out(loops, accesses, cache):
    def missed(state, line):
        lines = state.setdefault(line % cache["sets"], [])
        if line in lines:
            return False
        lines.append(line)
        del lines[: len(lines) - cache["ways"]]
        return True

    return _simulated(loops, accesses, cache, missed)


@wrong("did", "counts each line once: as if nothing ever had to go")
def endless(loops, accesses, cache):
    def first(state, line):
        new = line not in state
        state[line] = True
        return new

    return _simulated(loops, accesses, cache, first)


direct_mapped = edited("spared", "forgets the ways: each set holds one line")(('cache["ways"]', "1"))
set_of_address = edited("spared", "finds the set by the address in place of the line")(
    ('lines = sets[line % cache["sets"]]', 'lines = sets[address % cache["sets"]]')
)
masked_set = edited(
    "spared", "finds the set by the last bits of the line: as if the number of sets were a power of two"
)(('sets[line % cache["sets"]]', 'sets[line & cache["sets"] - 1]'))
shifted_line = edited("spared", "finds the line by a shift: as if its length were a power of two")(
    ('address // cache["line"]', 'address >> cache["line"].bit_length() - 1')
)
without_single_turns = edited("valid", "leaves out loops of one turn")(
    ("permutations(loops)", "permutations(l for l in loops if loops[l] > 1)")
)
still_warm = edited("did", "an order finds in the cache what the order before has left")(
    ('sets = [[] for _ in range(cache["sets"])]\nmissed = 0', "missed = 0"),
    (
        "for order in permutations(loops): ...",
        'sets = [[] for _ in range(cache["sets"])]\nfor order in permutations(loops): ...',
    ),
)
latest_goes = edited("spared", "sends away the line that was used latest")(("del lines[0]", "del lines[-1]"))
as_written = edited("cost", "names the order as written")(
    ("return min(misses, key=misses.get), misses", 'return "".join(loops), misses')
)


@wrong("valid", "returns the misses of the best order in place of those of all orders")
def best_only(loops, accesses, cache):
    best, counts = by_times(loops, accesses, cache)
    return best, counts[best]


each_once = edited("did", "an access that is there twice hits the second time, whatever comes between")(
    ("accesses", "[a for i, a in enumerate(accesses) if a not in accesses[:i]]")
)
six_orders = edited("valid", "six orders are all that there are")(("...(loops)", "list(...(loops))[:6]"))
