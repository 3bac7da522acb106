"""Hidden cases and answers of day02.pass-manager.

Most wrong answers are one working manager with one thing left out.
"""

from __future__ import annotations

import random

from autograder.authoring.answers import right, wrong
from passlab.exercises.day02.pass_manager import Managed, Scenario, Step
from passlab.exercises.day02.pass_manager import cases as visible
from passlab.fx.manager import PassError
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _plan(rng: random.Random) -> tuple[Scenario, Managed]:
    """A random pipeline, and what has to come of it by the rules of the exercise."""
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


def hidden(seed: int) -> list[Case]:
    """Random pipelines that are right, and such with one culprit."""
    cases = visible()
    for i in range(6):
        rng = random.Random(f"{seed}/{i}")
        scenario, expect = _plan(rng)
        cases.append(Case(f"random pipeline {i}", lambda s=scenario: (s,), ("did", "spared", "cost"), expect=expect))
        at, does = rng.randrange(len(scenario.steps)), ("break", "forget", "raise")[i % 3]
        old = scenario.steps[at]
        steps = (*scenario.steps[:at], Step(old.name, does, old.requires), *scenario.steps[at + 1 :])
        says = {"break": "before it is defined", "forget": "returned None", "raise": "shape"}[does]
        what = {"break": "broke the graph", "forget": "returned None", "raise": "raised KeyError('shape')"}[does]
        blame = Managed(tuple(s.name for s in steps[: at + 1]), old.name, says, f"{old.name} {what}")
        broken = Scenario(steps, scenario.graphs[:1])
        cases.append(Case(f"pipeline {i} with a culprit", lambda s=broken: (s,), ("valid",), expect=blame))
    return cases


# ---------------------------------------------------------------------------------------------------- answers


class _Manager:
    """A manager in small steps, each of which an answer below can get wrong."""

    def __init__(self, passes, analyses, verify):
        self.passes, self.analyses, self.verify = passes, analyses, verify
        self.history, self.facts = [], {}

    def run(self, gm):
        self.check_order()
        self.history, self.facts = [], {}
        self.check_input(gm)
        for p in self.passes:
            gm = self.run_one(p, gm)
        return gm

    def check_order(self):
        names = [p.name for p in self.passes]
        for i, p in enumerate(self.passes):
            for name in p.after:
                if name not in names[:i]:
                    raise PassError(p.name, f"{name} must come before it")

    def check_input(self, gm):
        sentence = self.verify(gm)
        if sentence is not None:
            raise PassError("input", sentence)

    def run_one(self, p, gm):
        before = len(gm.graph.nodes)
        facts = self.facts_for(p, gm)
        try:
            after = p.run(gm, facts)
        except Exception as error:
            raise PassError(p.name, str(error)) from error
        self.check_result(p, after)
        self.forget(p)
        self.history.append((p.name, before, len(after.graph.nodes)))
        return after

    def facts_for(self, p, gm):
        for name in p.requires:
            if name not in self.facts:
                self.facts[name] = self.analyses[name](gm)
        return {name: self.facts[name] for name in p.requires}

    def check_result(self, p, after):
        sentence = self.verify(after)
        if sentence is not None:
            raise PassError(p.name, sentence)

    def forget(self, p):
        for name in list(self.facts):
            if name not in p.preserves:
                del self.facts[name]


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
            kept = [name for name in p.preserves if name in facts and facts[name][0] == version]
            facts |= {name: (version + 1, facts[name][1]) for name in kept}
            if not sentence:
                self.history.append((p.name, size, len(gm.graph.nodes)))
        if sentence:
            raise PassError(culprit, sentence)
        return gm


@wrong("valid", "verifies once, at the end: the error names whoever came last")
class VerifiesAtTheEnd(_Manager):
    def run(self, gm):
        gm = super().run(gm)
        if sentence := self.verify(gm):
            raise PassError(self.passes[-1].name, sentence)
        return gm

    def check_result(self, p, after):
        pass


@wrong("valid", "verifies before each pass: the error names the pass that met the broken graph, not the culprit")
class BlamesTheVictim(_Manager):
    def check_input(self, gm):
        pass

    def run_one(self, p, gm):
        self.check_result(p, gm)
        return super().run_one(p, gm)


@wrong("valid", "does not verify what it is given: the first pass is blamed for a graph that was broken before")
class TrustsTheInput(_Manager):
    def check_input(self, gm):
        pass


@wrong("valid", "lets a pass's own exception through, without a name")
class LetsErrorsThrough(_Manager):
    def run_one(self, p, gm):
        before = len(gm.graph.nodes)
        after = p.run(gm, self.facts_for(p, gm))
        self.check_result(p, after)
        self.forget(p)
        self.history.append((p.name, before, len(after.graph.nodes)))
        return after


@wrong("valid", "prints what is wrong and goes on")
class OnlyPrints(_Manager):
    def check_result(self, p, after):
        if sentence := self.verify(after):
            print(p.name, sentence)


@wrong("valid", "does not look at `after`: a wrong order runs without a word")
class IgnoresOrder(_Manager):
    def check_order(self):
        pass


@wrong("valid", "checks the order pass by pass, when others have already changed the graph")
class ChecksOrderLate(_Manager):
    def check_order(self):
        pass

    def run_one(self, p, gm):
        done = [name for name, *_ in self.history]
        for name in p.after:
            if name not in done:
                raise PassError(p.name, f"{name} must come before it")
        return super().run_one(p, gm)


@wrong("did", "gives every pass the first graph: right as long as all passes edit in place")
class ForgetsTheNewGraph(_Manager):
    def run(self, gm):
        self.check_order()
        self.history, self.facts = [], {}
        self.check_input(gm)
        for p in self.passes:
            self.run_one(p, gm)
        return gm


@wrong("spared", "computes each analysis once: facts go stale when the graph changes")
class NeverForgets(_Manager):
    def forget(self, p):
        pass


@wrong("spared", "keeps facts from one run to the next")
class KeepsFactsBetweenRuns(_Manager):
    def run(self, gm):
        self.check_order()
        self.history = []
        self.check_input(gm)
        for p in self.passes:
            gm = self.run_one(p, gm)
        return gm

    def forget(self, p):
        if p is not self.passes[-1]:
            super().forget(p)


@wrong("spared", "reads `preserves` as the list of what to throw away")
class PreservesReversed(_Manager):
    def forget(self, p):
        for name in p.preserves:
            self.facts.pop(name, None)


@wrong("spared", "hands out all facts it has, not the ones that were asked for")
class HandsOutEverything(_Manager):
    def facts_for(self, p, gm):
        super().facts_for(p, gm)
        return dict(self.facts)


@wrong("cost", "computes what is required anew for every pass, preserved or not")
class AlwaysComputes(_Manager):
    def forget(self, p):
        self.facts = {}


@wrong("cost", "computes all analyses before every pass, whoever asks")
class ComputesAll(_Manager):
    def facts_for(self, p, gm):
        facts = {name: analysis(gm) for name, analysis in self.analyses.items()}
        return {name: facts[name] for name in p.requires}


@wrong("did", "history holds the names alone")
class HistoryOfNames(_Manager):
    def run_one(self, p, gm):
        after = super().run_one(p, gm)
        self.history[-1] = p.name
        return after
