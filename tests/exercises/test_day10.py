"""Day 10, exercises 1 to 4: their cases against loops that are run, sentences for broken answers, texts that are traps.

Cases that are drawn ask the reference answers, whose notebook loads TVM: what is below `# There` runs elsewhere.
"""

from __future__ import annotations

import pytest

from autograder.answers.day10.skew import least
from autograder.authoring.answers import hidden_cases
from passlab import exercises
from passlab.exercises.day10 import _isl
from passlab.exercises.day10.skew import STENCILS
from passlab.given.day10.domains import as_python
from tests.support.judged import lost_with


def right(exercise_id, **changed):
    """What is expected in the first case, with some parts changed."""
    return exercises.find(exercise_id).cases()[0].expect | changed


# ---------------------------------------------------------------------------------------------------- sentences

MATMUL = "[N, M, K] -> { Zero[i, j] : 0 <= i < N and 0 <= j < M; Add[i, j, k] : 0 <= i < N and 0 <= j < M "


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        ({"order": "{ }"}, "valid", "'order' is not one of the keys domain, reads, writes, schedule."),
        ({"reads": ["{ }"]}, "valid", "reads must be an isl.UnionMap or the like, or its text; it is of type list."),
        ({"domain": "{ S[i] -> [i] }"}, "valid", "isl cannot read domain as a UnionSet: '{ S[i] -> [i] }'."),
        ({"domain": MATMUL + "and 0 < k < K }"}, "did", "domain lacks Add[0, 0, 0] (N = 1, M = 1, K = 1), but this"),
        (
            {"domain": MATMUL + "and 0 <= k <= K }"},
            "spared",
            "domain contains Add[0, 0, 0] (N = 1, M = 1, K = 0), but this",
        ),
        ({"writes": "{ Zero[i, j] -> C[i, j] }"}, "did", "writes lacks Add[0, 0, 0] → C[0, 0]"),
        ({"schedule": "{ Add[i, j, k] -> [i, j, k] }"}, "same", "The schedule gives no time to Zero[0, 0]"),
        (
            {"schedule": "{ Zero[i, j] -> [i, j]; Add[i, j, k] -> [i, j, k] }"},
            "same",
            "The times of Zero have 2 numbers, those of Add 3",
        ),
        (
            {"schedule": "{ Zero[i, j] -> [i, j, 0]; Add[i, j, k] -> A[i, j, k] }"},
            "same",
            "have tuples with different names",
        ),
        (
            {"schedule": "{ Zero[i, j] -> [i, j, 0, 0]; Add[i, j, k] -> [i, j, 1, k]; Add[i, j, k] -> [i, j, 2, k] }"},
            "same",
            "The schedule gives more than one time to Add[0, 0, 0]",
        ),
        (
            {"schedule": "{ Zero[i, j] -> [i, j, 0]; Add[i, j, k] -> [i, j, k] }"},
            "same",
            "In Zero[0, 0] → Add[0, 0, 0] (N = 1, M = 1, K = 1) the first runs before the second, but not",
        ),
    ],
)
def test_domains_are_told_what_is_wrong_with_them(value, verdict, sentence):
    result = lost_with("day10.domains", right("day10.domains", **value))
    assert result[0] == verdict and sentence in result[1], result


def test_what_is_no_dictionary_is_told_so():
    keys = "domain, reads, writes, schedule"
    returned = "End every path of the function with `return`."
    assert lost_with("day10.domains", None)[1] == f"Return a dictionary with the keys {keys}; got None. {returned}"
    assert lost_with("day10.domains", {"domain": "{ }"})[1] == "The key 'reads' has no entry."
    assert lost_with("day10.dependences", "{ }")[1].endswith("; got '{ }'.")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"flow": "{ }"}, "flow lacks S[1] → S[2] (N = 3)."),
        ({"anti": "[N] -> { S[i] -> S[i - 1] : 2 <= i < N }"}, "the first does not run before the second."),
        ({"anti": "[N] -> { S[i] -> S[i + 1] : 0 <= i < N }"}, "one of the two instances does not run."),
        ({"anti": "[N] -> { S[i] -> S[i + 1] : 1 <= i < N - 1 }"}, "the first reads no cell that the second writes."),
        ({"flow": "[N] -> { S[i] -> S[j] : 1 <= i < j < N }"}, "the first writes no cell that the second reads."),
    ],
)
def test_dependences_are_told_which_pair_is_wrong_and_why(value, sentence):
    result = lost_with("day10.dependences", right("day10.dependences", **value))
    assert sentence in result[1], result


def test_a_value_that_was_overwritten_is_told_so():
    name = "a scalar that is used again"
    [case] = [case for case in exercises.find("day10.dependences").cases() if case.name == name]
    result = lost_with("day10.dependences", case.expect | {"values": case.expect["flow"]}, name)
    assert result[0] == "spared" and "another instance writes that cell in between" in result[1]


INTERCHANGED = "jacobi-1d: interchange"


@pytest.mark.parametrize(
    ("value", "name", "verdict", "sentence"),
    [
        (
            None,
            INTERCHANGED,
            "did",
            "the first runs at [2, 0], the second at [1, 1], but the second depends on the first",
        ),
        (None, "matmul: all k at once", "did", "both run at the same time"),
        ("{ S[0, 2] -> S[1, 1] : N > 9 }", INTERCHANGED, "valid", "isl cannot read The pair as a UnionMap"),
        ("[T, N] -> { S[0, 2] -> S[1, 1] : T > 9 }", INTERCHANGED, "valid", "more than one pair"),
        ("{ }", INTERCHANGED, "valid", "Your function returned an empty map."),
        (("S[0, 2]", "S[1, 1]"), INTERCHANGED, "valid", "it is of type tuple"),
        ("[T, N] -> { S[1, 1] -> S[0, 2] : T = 9 and N = 9 }", INTERCHANGED, "did", "is not a dependence."),
        ("[T, N] -> { S[0, 1] -> S[1, 2] : T = 9 and N = 9 }", INTERCHANGED, "did", "the right order"),
        ("[T, N] -> { S[0, 2] -> S[1, 1] : T = 2 and N = 3 }", INTERCHANGED, "did", "is not a dependence."),
        (
            "{ S[0, 2] -> S[1, 1] }",
            INTERCHANGED,
            "did",
            "a dependence only for some N and T: return the pair with numbers",
        ),
        ("[T] -> { S[0, 2] -> S[1, 1] : T = 9 }", INTERCHANGED, "did", "a dependence only for some N: "),
        ("{ S[1, 1] -> S[0, 2] }", INTERCHANGED, "did", "S[1, 1] → S[0, 2] is not a dependence."),
        ("[N] -> { S[0, 0, 0] -> S[0, 0, 1] : N = 2 }", "matmul: k outermost", "spared", "the right order"),
    ],
)
def test_a_pair_that_is_no_reason_is_told_so(value, name, verdict, sentence):
    result = lost_with("day10.legality", value, name)
    assert result[0] == verdict and sentence in result[1], result


def test_any_violated_pair_will_do():
    assert lost_with("day10.legality", "[T, N] -> { S[7, 5] -> S[8, 4] : T = 9 and N = 9 }", INTERCHANGED) is None


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        ("{ S[t, i] -> [t + i] }", "valid", "A time must have 2 numbers"),
        ("{ S[t, i] -> [t, t] }", "valid", "both run at the same time, [0, 0]: give each instance a different time."),
        ("{ S[t, i] -> [t, t + i] : t > 0 }", "valid", "The schedule gives no time to S[0, 1]"),
        ("{ S[t, i] -> [i, t] }", "same", "the first runs at [2, 0], the second at [1, 1]: not legal."),
        (
            "{ S[t, i] -> [t, i] }",
            "did",
            "the first runs at [0, 2], the second at [1, 1]: it goes backwards in dimension 1",
        ),
        ("{ S[t, i] -> [t, 100t + i] }", "cost", "Dependences reach 1 + 101 = 102 steps"),
        ("{ S[t, i] -> [t, t*t + i] }", "valid", "isl cannot read The schedule as a UnionMap"),
    ],
)
def test_a_band_that_does_not_tile_is_told_why(value, verdict, sentence):
    result = lost_with("day10.skew", value)
    assert result[0] == verdict and sentence in result[1], result


# ---------------------------------------------------------------------------------------------------- traps


def heavy(n):
    """Conditions with so many cases that isl does not get to the end of them."""
    names = ", ".join(f"e{k}" for k in range(n))
    cases = " and ".join(f"(e{k} < t - {k} or e{k} > i + {k})" for k in range(n))
    return f"{{ S[t, i] -> [t, i] : exists ({names} : {cases}) }}"


def large_numbers(n):
    """Few conditions, with steps that take isl a millisecond each."""
    names = ", ".join(f"e{k}" for k in range(n))
    sums = [f"{k + 3}*{'ti'[k % 2]} - {2 * k + 7}*e{k} + {5 * k + 1}*e{(k + 1) % n}" for k in range(n)]
    inside = " and ".join(f"{-k - 999} <= {one} <= {k + 900}" for k, one in enumerate(sums))
    return f"{{ S[t, i] -> [t, t + i] : exists ({names} : {inside}) }}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{ S[t, i] -> [t, i] " + " " * 30_000 + "}", "30,0"),
        (f"{{ S[t, i] -> [{'t, ' * 5000} i] }}", "a bracket with more than 64 numbers"),
        (f"[{', '.join(f'p{k}' for k in range(3000))}] -> {{ S[t, i] -> [t, i] }}", "more than 64 numbers"),
        (heavy(16), "isl gave up on your answer after"),
        (large_numbers(6), "isl gave up on your answer after"),
        ("{ S[t, i] -> [t, i] : " + "exists (a : " * 1500 + "a > t" + ")" * 1500 + " }", "isl cannot read"),
        ("{ S[t, i] -> [t, " + "floor((" * 800 + "i" + " + 1)/2)" * 800 + "] }", "digits)"),
        ("\0{ S[t, i] -> [t, i] }", "isl cannot read"),
        ("", "isl cannot read"),
    ],
)
def test_a_text_that_is_a_trap_gets_a_sentence_and_the_next_is_judged(text, sentence):
    verdict, result = lost_with("day10.skew", text, "jacobi-1d")
    assert verdict == "valid" and sentence in result
    assert lost_with("day10.skew", "{ S[t, i] -> [t, t + i] }", "jacobi-1d") is None


def test_what_isl_takes_long_for_is_tried_with_more_steps(monkeypatch):
    monkeypatch.setattr(_isl, "FEW", 50)
    assert lost_with("day10.skew", "{ S[t, i] -> [t, t + i] }", "jacobi-1d") is None
    monkeypatch.setattr(_isl, "OPERATIONS", 400)
    assert "gave up on your answer after 400 steps" in lost_with("day10.skew", "{ S[t, i] -> [t, t + i] }")[1]


# ---------------------------------------------------------------------------------------------------- by hand


def sizes(parameters, n):
    """Some sizes for the parameters, none of them alike."""
    return {name: max(0, n - k) for k, name in enumerate(parameters)}


def by_running(nest, n):
    """What Python runs of a nest, in order: [(instance, cells read, cells written)]."""
    events = []
    around = {}

    def walk(body, iterators):
        for item in body:
            if "statement" in item:
                around[item["statement"]] = iterators, len(item["writes"])
            else:
                walk(item["body"], [*iterators, item["loop"]] if "loop" in item else iterators)

    walk(nest["body"], [])

    class Array:
        read: list = []  # noqa: RUF012 (what was read since the last statement, of all arrays)

        def __init__(self, name):
            self.name = name

        def cell(self, at):
            return self.name, at if isinstance(at, tuple) else (at,)

        def __getitem__(self, at):
            Array.read.append(self.cell(at))

        def __setitem__(self, at, _):
            events[-1][2].append(self.cell(at))

    def statement(name):
        iterators, writes = around[name]

        def run(*_):
            events.append(((name, tuple(names[i] for i in iterators)), list(Array.read), []))
            Array.read.clear()
            return [None] * writes

        return run

    names = sizes(nest["parameters"], n) | {name: statement(name) for name in around}
    names |= {name: Array(name) for name in "ABCDLbrsx"}
    exec(as_python(nest), names)
    return events


def cells(events, which):
    return {(event[0], cell) for event in events for cell in event[which]}


def points(text, at):
    """The instances, or the pairs, of isl text at given sizes, by isl's own enumeration."""
    import islpy as isl

    from passlab.polyhedral import fixed, pairs

    if "->" in text.split("{")[1]:
        return set(pairs(fixed(isl.UnionMap(text), at), {}))
    relation = isl.UnionSet(text).identity()
    return {pair[0] for pair in pairs(fixed(relation, at), {})}


def differs_from_running(case):
    """What of the expectation is not what Python runs, at some small sizes."""
    import islpy as isl

    [nest] = case.build()
    for n in (0, 1, 2, 5, 8):
        at = sizes(nest["parameters"], n)
        events = by_running(nest, n)
        inside = isl.UnionSet(case.expect["domain"])
        access = {part: str(isl.UnionMap(case.expect[part]).intersect_domain(inside)) for part in ("reads", "writes")}
        times = sorted((time[1], one) for one, time in points(
            str(isl.UnionMap(case.expect["schedule"]).intersect_domain(inside)), at))  # fmt: skip
        results = {
            "domain": points(case.expect["domain"], at) == {event[0] for event in events},
            "reads": points(access["reads"], at) == cells(events, 1),
            "writes": points(access["writes"], at) == cells(events, 2),
            "schedule": [one for _, one in times] == [event[0] for event in events],
        }
        if not all(results.values()):
            return f"{case.name}, N = {n}: {results}"
    return None


def dependences_by_hand(case, n):
    """The four kinds at one size, by looking at every pair of instances."""
    import islpy as isl

    from passlab.polyhedral import fixed, pairs

    domain, *maps = case.build()
    at = {"N": n, "T": n, "M": n}
    inside = fixed(isl.UnionSet(domain), at)
    reads, writes, schedule = ([*pairs(isl.UnionMap(m).intersect_domain(inside), {})] for m in maps)
    when = {one: time[1] for one, time in schedule}
    results = {"flow": set(), "anti": set(), "output": set(), "values": set()}
    for kind, first, second in (("flow", writes, reads), ("anti", reads, writes), ("output", writes, writes)):
        results[kind] = {(a, b) for a, cell in first for b, other in second if cell == other and when[a] < when[b]}
    for target, cell in reads:
        before = [(when[one], one) for one, other in writes if other == cell and when[one] < when[target]]
        if before:
            results["values"].add((max(before)[1], target))
    return results


def differs_by_hand(case):
    for n in (1, 3, 4, 6):
        at = {"N": n, "T": n, "M": n}
        for kind, pairs in dependences_by_hand(case, n).items():
            if points(case.expect[kind], at) != pairs:
                return f"{case.name}, N = {n}: {kind}"
    return None


def order_by_hand(case, n):
    """Is the order kept at one size? Looks at every dependence."""
    import islpy as isl

    dependences, schedule = case.build()
    at = {"N": n, "T": n, "M": n}
    result = points(dependences, at)
    instances = {one for pair in result for one in pair}
    domain = isl.UnionSet("{ }")
    for name, one in instances:
        domain = domain.union(isl.UnionSet(f"{{ {name}[{', '.join(map(str, one))}] }}"))
    when = {one: time[1] for one, time in points(str(isl.UnionMap(schedule).intersect_domain(domain)), at)}
    return all(when[a] < when[b] for a, b in result)


@pytest.mark.parametrize("case", exercises.find("day10.domains").cases(), ids=lambda case: case.name)
def test_domains_of_visible_cases_are_what_python_runs(case):
    assert differs_from_running(case) is None


@pytest.mark.parametrize("case", exercises.find("day10.dependences").cases(), ids=lambda case: case.name)
def test_dependences_of_visible_cases_are_those_found_pair_by_pair(case):
    assert differs_by_hand(case) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["domains", "dependences"])
def test_drawn_cases_are_what_python_runs(name, seed, in_own_process):
    result = in_own_process("day10.skew", drawn_that_differ, f"day10.{name}", seed)
    assert result == []


@pytest.mark.parametrize("case", exercises.find("day10.legality").cases(), ids=lambda case: case.name)
def test_a_visible_case_says_rightly_whether_it_is_legal(case):
    n = 6 if "matmul" in case.name else 35 if "tiles" in case.name else 9
    assert order_by_hand(case, n) == case.expect


def test_the_reaches_of_visible_cases_are_the_least():
    assert {name: least(nest.vectors) for name, (nest, _) in STENCILS.items()} == {
        n: r for n, (_, r) in STENCILS.items()
    }
    assert least([(1, 1), (1, 2)]) == 2, "a drift is taken back: i - t"


# There


def drawn_that_differ(exercise_id, seed):
    differs = differs_from_running if exercise_id == "day10.domains" else differs_by_hand
    return [item for case in hidden_cases(exercise_id, seed) if (item := differs(case))]
