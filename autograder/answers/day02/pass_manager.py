"""Hidden cases and answers of day02.pass-manager."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, plain, right, wrong
from passlab.exercises.day02.pass_manager import Managed, Scenario, Step
from passlab.exercises.day02.pass_manager import cases as visible
from passlab.fx.manager import PassError
from passlab.judge import Case, core

# ---------------------------------------------------------------------------------------------------- hidden cases


def _plan(rng: random.Random) -> tuple[Scenario, Managed]:
    """Return a random pipeline, and what has to come of it by the rules of the exercise."""
    facts = ("size", "inputs", "users")
    keeps = {"add": ("inputs",), "remove": ("inputs",), "rebuild": ("inputs",), "keep": facts}
    steps, known, computed = [], set(), 0
    for i in range(rng.randint(3, 7)):
        does = rng.choice(("add", "remove", "rebuild", "keep", "keep"))
        requires = tuple(rng.sample(facts, rng.choice((0, 1, 2, 3))))
        preserves = tuple(fact for fact in keeps[does] if rng.random() < 0.7)
        after = tuple(rng.sample([s.name for s in steps], min(len(steps), rng.choice((0, 0, 1)))))
        steps.append(Step(f"pass{i}", does, requires, preserves, after))
        computed += len(set(requires) - known)
        known = (known | set(requires)) & set(preserves)
    return Scenario(tuple(steps), (rng.randint(9, 14), rng.randint(9, 14))), Managed(
        tuple(s.name for s in steps), analyses=computed
    )


def _plain_pipelines(seed: int) -> list[Case]:
    rng = random.Random(f"{seed}/plain")
    steps = [Step(f"pass{i}", rng.choice(("add", "remove", "rebuild"))) for i in range(rng.randint(4, 6))]
    names = tuple(step.name for step in steps)
    good = Scenario(tuple(steps), (9, 12))
    cases = [Case("plain: a pipeline", lambda: (good,), ("did", "valid"), expect=Managed(names))]
    for does, says, fault in (
        ("break", "before it is defined", "broke the graph"),
        ("forget", "returned None", "returned None"),
    ):
        at = rng.randrange(len(steps))
        broken = Scenario((*steps[:at], Step(names[at], does), *steps[at + 1 :]), (9,))
        expect = Managed(names[: at + 1], names[at], says, f"{names[at]} {fault}")
        cases.append(Case(f"plain: a pass that {fault}", lambda s=broken: (s,), ("valid",), expect=expect))
    return [core(case) for case in cases]


def _fixed_facts() -> list[Case]:
    """Return pipelines that each show one law of facts, and one that runs a pass twice."""

    def pipeline(name: str, *steps: Step, analyses: int | None = None) -> Case:
        expect = Managed(tuple(step.name for step in steps), analyses=analyses)
        return Case(name, lambda: (Scenario(steps),), ("did", "spared", "cost"), expect=expect)

    def first(fact: str) -> Step:
        return Step("first", requires=(fact,), preserves=(fact,))

    def last(fact: str) -> Step:
        return Step("last", requires=(fact,))

    return [
        pipeline("a graph as it was, and no fact preserved", first("size"), Step("look"), last("size"), analyses=2),
        pipeline(
            "a new graph, and a fact preserved",
            *(first("inputs"), Step("rebuild", "rebuild", preserves=("inputs",)), last("inputs")),
            analyses=1,
        ),
        pipeline("a fact that is None", first("unused"), last("unused"), analyses=1),
        pipeline("a pass that runs twice", Step("grow", "add"), Step("rebuild", "rebuild"), Step("grow", "add")),
    ]


def hidden(seed: int) -> list[Case]:
    """Return random pipelines that are right, and such with one culprit."""
    nested = Managed(("grow", "nested"), "nested", "an inner pass broke it", "nested raised PassError('inner', …)")
    inner = Scenario((Step("grow", "add"), Step("nested", "blame"), Step("shrink", "remove")))
    missing = Managed((), "late", "absent", "late must come after absent, which is not in the list")
    second = Managed((), "late", "shrink", "late stands before shrink, which it must follow")
    nothing = Managed((), "input", "before it is defined", "The graph was broken, and no pass was there to run")
    itself = Managed((), "grow", "grow", "grow must come after itself, which nothing can")
    alone = Scenario((Step("grow", "add", after=("grow",)),))

    def pipeline(*after: str, graph: int = 3) -> Scenario:
        return Scenario((Step("grow", "add"), Step("late", after=after), Step("shrink", "remove")), (graph,))

    cases = [
        *visible(),
        *_plain_pipelines(seed),
        Case("a pass after itself", lambda: (alone,), ("valid",), expect=itself),
        Case("a pass after one that is not there", lambda: (pipeline("absent"),), ("valid",), expect=missing),
        Case(
            "a pass after two, of which one stands behind it",
            lambda: (pipeline("grow", "shrink"),),
            ("valid",),
            expect=second,
        ),
        Case("no pass, and a broken graph", lambda: (Scenario((), (-3,)),), ("valid",), expect=nothing),
        Case("a wrong order, and a broken graph", lambda: (pipeline("shrink", graph=-3),), ("valid",), expect=second),
    ]
    cases += [Case("a pass that runs a manager of its own", lambda: (inner,), ("valid",), expect=nested)]
    cases += _fixed_facts()
    for i in range(6):
        rng = random.Random(f"{seed}/{i}")
        scenario, expect = _plan(rng)
        cases.append(Case(f"random pipeline {i}", lambda s=scenario: (s,), ("did", "spared", "cost"), expect=expect))
        at, does = rng.randrange(len(scenario.steps)), ("break", "forget", "raise")[i % 3]
        old = scenario.steps[at]
        steps = (*scenario.steps[:at], Step(old.name, does, old.requires), *scenario.steps[at + 1 :])
        says = {"break": "before it is defined", "forget": "returned None", "raise": "shape"}[does]
        fault = {"break": "broke the graph", "forget": "returned None", "raise": "raised KeyError('shape')"}[does]
        blame = Managed(tuple(s.name for s in steps[: at + 1]), old.name, says, f"{old.name} {fault}")
        broken = Scenario(steps, scenario.graphs[:1])
        cases.append(Case(f"pipeline {i} with a culprit", lambda s=broken: (s,), ("valid",), expect=blame))
    return cases


# ---------------------------------------------------------------------------------------------------- answers


class _Manager:
    def __init__(self, passes, analyses, verify):
        self.passes, self.analyses, self.verify = passes, analyses, verify
        self.history, self.facts = [], {}

    def run(self, gm):
        self.check_order()
        self.history, self.facts = [], {}
        self.check("input", gm)
        for p in self.passes:
            gm = self.run_one(p, gm)
        return gm

    def check_order(self):
        names = [p.name for p in self.passes]
        for i, p in enumerate(self.passes):
            for name in p.after:
                if name not in names[:i]:
                    raise PassError(p.name, f"{name} must come before it")

    def check(self, culprit, gm):
        sentence = self.verify(gm)
        if sentence is not None:
            raise PassError(culprit, sentence)

    def run_one(self, p, gm):
        before = len(gm.graph.nodes)
        for name in p.requires:
            if name not in self.facts:
                self.facts[name] = self.analyses[name](gm)
        try:
            after = p.run(gm, {name: self.facts[name] for name in p.requires})
        except Exception as error:
            raise PassError(p.name, str(error)) from error
        self.check_result(p, after)
        for name in self.facts.keys() - set(p.preserves):
            del self.facts[name]
        self.history.append((p.name, before, len(after.graph.nodes)))
        return after

    def check_result(self, p, after):
        self.check(p.name, after)


@right("in small methods, with the facts kept on the manager")
class InMethods(_Manager):
    pass


@right("gives every fact the number of the graph it is about, instead of dropping facts")
class Versioned:
    def __init__(self, passes, analyses, verify):
        self.passes, self.analyses, self.verify, self.history = list(passes), analyses, verify, []

    def run(self, gm):
        places = {p.name: i for i, p in enumerate(self.passes)}
        late = [(p, n) for i, p in enumerate(self.passes) for n in p.after if places.get(n, i) >= i]
        if late:
            raise PassError(late[0][0].name, f"needs {late[0][1]} before it")
        self.history, facts = [], {}
        culprit, sentence = "input", self.verify(gm)
        for version, p in enumerate(self.passes):
            if sentence:
                break
            size = len(gm.graph.nodes)
            for name in p.requires:
                if facts.get(name, (-1, None))[0] != version:
                    facts[name] = (version, self.analyses[name](gm))
            try:
                gm = p.run(gm, {name: facts[name][1] for name in p.requires})
            except Exception as error:
                raise PassError(p.name, f"{type(error).__name__}({error})") from error
            culprit, sentence = p.name, self.verify(gm)
            names = [name for name in p.preserves if name in facts and facts[name][0] == version]
            facts |= {name: (version + 1, facts[name][1]) for name in names}
            if not sentence:
                self.history.append((p.name, size, len(gm.graph.nodes)))
        if sentence:
            raise PassError(culprit, sentence)
        return gm


@plain("runs and verifies: no facts, no order, no errors of passes")
class RunsAndVerifies:
    def __init__(self, passes, analyses, verify):
        self.passes, self.verify = passes, verify

    def run(self, gm):
        self.history = []
        if broken := self.verify(gm):
            raise PassError("input", broken)
        for p in self.passes:
            before = len(gm.graph.nodes)
            gm = p.run(gm, {})
            if broken := self.verify(gm):
                raise PassError(p.name, broken)
            self.history.append((p.name, before, len(gm.graph.nodes)))
        return gm


@wrong("valid", "verifies once, at the end: the error names whoever came last", core=True)
class VerifiesAtTheEnd(_Manager):
    def run(self, gm):
        gm = super().run(gm)
        if sentence := self.verify(gm):
            raise PassError(self.passes[-1].name, sentence)
        return gm

    def check_result(self, p, after):
        pass


CHECK = "if broken := self.verify(gm):\n                raise PassError(p.name, broken)\n            "
FORGET = "facts = {name: fact for name, fact in facts.items() if name in p.preserves}"
NOTE = "self.history.append((p.name, before, len(gm.graph.nodes)))"

BlamesTheVictim = edited(
    "valid", "verifies before each pass: blames the pass that met the broken graph, not the culprit"
)(
    ('raise PassError("input", broken)', "pass"),
    (CHECK, ""),
    ("before = ...", "if broken := self.verify(gm):\n    raise PassError(p.name, broken)\nbefore = ..."),
)
TrustsTheInput = edited(
    "valid", "does not verify its input: blames the first pass for a graph that was broken before", core=True
)(('raise PassError("input", broken)', "pass"))
LetsErrorsThrough = edited("valid", "lets a pass's own exception through, without a name")(("Exception", "PassError"))
IgnoresOrder = edited("valid", "does not look at `after`: a wrong order runs without a word")(
    ('raise PassError(p.name, f"it must come after {missing}")', "pass")
)
ForgetsTheNewGraph = edited(
    "did", "gives every pass the first graph: right as long as all passes edit in place", core=True
)(
    ("self.history, facts = [], {}", "self.history, facts, first = [], {}, gm"),
    ("....append(...)", "....append(...)\ngm = first"),
)
NeverForgets = edited("spared", "computes each analysis once: facts are outdated once the graph changes")(
    ("{name: fact for name, fact in ... if name in p.preserves}", "{name: fact for name, fact in ...}")
)
KeepsFactsBetweenRuns = edited("spared", "keeps facts from one run to the next")(
    ("self.history, facts = [], {}", 'self.history, facts = [], getattr(self, "facts", {})'),
    ("facts = ...", "self.facts = facts\nfacts = ..."),
)
HandsOutEverything = edited("spared", "hands out all facts it has, not just those in `requires`")(
    ("{name: facts[name] for name in p.requires}", "dict(facts)")
)
AlwaysComputes = edited("cost", "computes what is required anew for every pass, preserved or not")(
    (FORGET, "facts = {}")
)
HistoryOfNames = edited("did", "history holds the names alone")((NOTE, "self.history.append(p.name)"))
LooksAtTheFirstName = edited("valid", "looks at the first name in `after` only")(("set(p.after)", "set(p.after[:1])"))
ForgivesAnAbsentName = edited("valid", "checks the order only between passes that are in the list")(
    ("set(p.after) - seen", "(set(p.after) & {q.name for q in self.passes}) - seen")
)
VerifiesBeforeTheOrder = edited("valid", "verifies the input before it looks at the order")(
    (
        "seen: set[str] = set()",
        'if broken := self.verify(gm):\n    raise PassError("input", broken)\nseen: set[str] = set()',
    )
)
VerifiesWithPasses = edited("valid", "verifies its input only if there is a pass to run")(
    (
        'if broken := self.verify(gm):\n    raise PassError("input", broken)',
        'if self.passes and (broken := self.verify(gm)):\n    raise PassError("input", broken)',
    )
)
KeepsFactsOfEqualSize = edited("spared", "drops facts only when the number of nodes has changed")(
    (FORGET, FORGET + " if before != len(gm.graph.nodes) else facts")
)
DropsFactsOfNewGraphs = edited("cost", "drops all facts when a pass returns a new graph, preserved or not")(
    ("gm = p.run(gm, ...)", "old = gm\ngm = p.run(gm, ...)"),
    (FORGET, FORGET + " if gm is old else {}"),
)
TakesNoneForNoFact = edited("cost", "takes a fact that is None for one that is not known")(
    ("name not in facts", "facts.get(name) is None")
)
OncePerName = edited("did", "runs a pass once, though it stands in the list twice")(
    ("before = ...", "if p.name in [name for name, *_ in self.history]:\n    continue\nbefore = ...")
)
