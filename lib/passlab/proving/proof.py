"""Whether two programs are the same function, and how far that is proved: for every input, over the reals, or tested.

    proof = prove(before, after, inputs)

Three tiers are asked in turn, and the answer says which of them spoke:

1. `terms` and `smt`: every element of the results is a term over the elements of the inputs, bit by bit. If the solver
   finds no input for which two of them differ, the programs are the same function on inputs of these shapes.
2. `field`: the programs are equal over the reals, but for a chance that is stated. What they differ by is rounding.
3. `equivalence`: they agree on the inputs that were tried.

Inputs that show a difference are run, never believed: a solver's model says what the difference would be if functions
such as exp were any functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from passlab.equivalence import Proof, equivalent
from passlab.equivalence.trials import example_inputs
from passlab.equivalence.values import Errors, Tolerance, compare, dtype_name, leaves
from passlab.proving import field as over_reals
from passlab.proving import smt
from passlab.proving.capture import Unknown, capture
from passlab.proving.patterns import bit_patterns
from passlab.proving.terms import Terms

#: How many inputs of ordinary numbers are run, besides the examples, where the algebra agrees.
ORDINARY = 3
#: Most pairs of terms that are given to the solver; programs with more are left to the other tiers.
PAIRS = 64


def prove(
    before: Callable,
    after: Callable,
    inputs: Any = None,
    *,
    budget: float = 2.0,
    when: Callable | None = None,
    tests: bool = True,
    seed: int = 0,
) -> Proof:
    """Return whether two programs are the same function, and what is known of that.

    inputs: a tuple of examples; a proof holds for their shapes and dtypes, and for the values of those that say which
    elements are taken (indices). Default: those of `passlab.equivalent`. budget: seconds for the solver. when: a
    program of the same inputs that returns truth values; only inputs for which all are true count. tests: whether to
    run the third tier.

    Raise ValueError where there are no inputs to try, or `before` fails on them.
    """
    start = time.process_time()
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    inputs = example_inputs(before) if inputs is None else tuple(inputs)
    if inputs is None:
        raise ValueError("prove has no inputs: pass inputs=(tensor, ...), which say what shapes a proof is about.")
    search = _Search(before, after, inputs, when, seed)
    proof = search.prove(budget)
    if proof.verdict == "tested":
        if tests and when is None:
            proof.tests = equivalent(before, after, inputs, seed=seed)
        search.judge(proof)
    proof.seconds = time.process_time() - start
    return proof


class _Search:
    """Two programs, and what is known of them so far."""

    def __init__(self, before: Callable, after: Callable, inputs: tuple, when: Callable | None, seed: int):
        self.before, self.after, self.inputs, self.when, self.seed = before, after, inputs, when, seed
        self.terms = Terms()
        self.errors, self.tried, self.far, self.undefined = Errors(), 0, False, False
        self.ordinary = 0  # inputs of ordinary numbers that have been run
        self.shown: tuple[dict[str, Any], str] | None = None
        self.results: tuple[list, list] = ([], [])

    def prove(self, budget: float) -> Proof:
        """Return what the first two tiers say."""
        proof = Proof("tested")
        try:
            pairs, conditions = self._pairs()
        except Unknown as reason:
            proof.why["bit by bit"] = str(reason)
        else:
            if pairs == []:
                return self._proved()
            self._try_patterns()
            if pairs is None:
                proof.why["bit by bit"] = "The results have other shapes, or other types."
                return Proof("refuted", why=proof.why)
            elif self.shown:
                proof.why["bit by bit"] = "There are inputs for which the results differ."
            elif self._decide(pairs, conditions, budget, proof):
                return self._proved()
        try:
            answer = over_reals.equal(self.before, self.after, self.inputs, self.seed)
            proof.reals, proof.chance = answer.agree or (False if answer.certain else None), answer.chance
            if answer.agree:
                self._try_ordinary()
            else:
                proof.why["over the reals"] = _where(answer)
        except Unknown as reason:
            proof.why["over the reals"] = str(reason)
        return proof

    def _proved(self) -> Proof:
        names = sorted({str(t.data[0]) for t in self.terms.terms if t.op == "opaque"})
        alike = f"of equal operands, {', '.join(names)} gives equal results, bit by bit" if names else ""
        return Proof("proved", reals=True, assumes=(alike,) if alike else ())

    def _pairs(self) -> tuple[list[tuple[int, int]] | None, list[int]]:
        """Return the pairs of terms that must be equal, None where the results do not even have the same form."""
        flat = pytree.tree_leaves(self.inputs)
        graphs = [capture(program, self.inputs) for program in (self.before, self.after)]
        self.work = sum(250 + n.meta["val"].numel() for g in graphs for n in g.graph.nodes if _is_tensor(n))
        before, after = self.results = self.terms.results(graphs[0], flat), self.terms.results(graphs[1], flat)
        conditions: list[int] = []
        if self.when is not None:
            for truth, _ in self.terms.results(capture(self.when, self.inputs), flat):
                conditions += truth.flatten().tolist()
        if len(before) != len(after):
            return None, conditions
        pairs: dict[tuple[int, int], None] = {}
        for a, b in zip(before, after, strict=True):
            if not (isinstance(a, tuple) and isinstance(b, tuple)):
                if repr(a) != repr(b):
                    return None, conditions
                continue
            if a[0].shape != b[0].shape or a[1] != b[1]:
                return None, conditions
            rows = torch.stack([a[0].flatten(), b[0].flatten()], 1)
            pairs |= dict.fromkeys(map(tuple, rows[rows[:, 0] != rows[:, 1]].unique(dim=0).tolist()))
        return list(pairs), conditions

    def _decide(self, pairs: list[tuple[int, int]], conditions: list[int], budget: float, proof: Proof) -> bool:
        """Ask the solver about each pair, of those that differ by the names of their inputs only once."""
        queries: dict[Any, tuple[tuple[int, int], list[int]]] = {}
        for pair in pairs:
            names: dict[int, int] = {}
            shape = tuple(self._shape(number, names) for number in pair)
            own = [number for number in conditions if self._inputs(number) <= names.keys()]
            queries.setdefault((shape, tuple(self._shape(number, names) for number in own)), (pair, own))
            if len(queries) > PAIRS:
                proof.why["bit by bit"] = f"More than {PAIRS} elements differ in how they are computed."
                return False
        start = time.process_time()
        for pair, own in queries.values():
            left = max(0.0, budget - (time.process_time() - start))
            answer = smt.equal(self.terms, [pair], own, left)
            if answer.verdict == "refuted" and not self._run(self._filled(answer.values)):
                proof.why["bit by bit"] = self._unshown(pair)
                return False
            if answer.verdict != "proved":
                reason = answer.why or "There are inputs for which the results differ"
                proof.why["bit by bit"] = reason[0].upper() + reason[1:] + "."
                return False
        return True

    def _shape(self, number: int, names: dict[int, int]) -> Any:
        """Return a term with its inputs numbered in the order in which they occur, and parts that come again, too."""
        steps, known, todo = list[Any](), dict[int, int](), [number]
        while todo:
            at = todo[-1]
            term = self.terms.terms[at]
            waiting = [n for n in term.operands if n not in known]
            todo += reversed(waiting)
            if waiting:
                continue
            todo.pop()
            if at in known:
                continue
            known[at] = len(steps)
            if term.op == "input" or (term.op == "opaque" and not term.operands):
                names.setdefault(at, len(names))
                steps.append(("input", term.dtype, names[at]))
            else:
                steps.append((term.op, term.dtype, tuple(known[n] for n in term.operands), repr(term.data)))
        return tuple(steps)

    def _unshown(self, pair: tuple[int, int]) -> str:
        """Return why a counterexample makes no difference when it is run."""
        calls = {str(term.data[0]) for term in self.terms.below(*pair) if term.op == "opaque"}
        if not calls:
            return "The solver's counterexample makes no difference on this machine."
        return f"It depends on how {', '.join(sorted(calls))} computes, of which a proof knows nothing."

    def _inputs(self, number: int) -> set[int]:
        names: dict[int, int] = {}
        self._shape(number, names)
        return set(names)

    # ----------------------------------------------------------------------------------------------------- trying

    def _filled(self, values: Mapping[int, Any]) -> tuple:
        """Return the example inputs with the values of a model in place of some elements."""
        leaves, spec = pytree.tree_flatten(self.inputs)
        leaves = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        for number, value in values.items():
            place, at = self.terms.terms[number].data
            leaves[place] = leaves[place].contiguous()
            leaves[place].view(-1)[at] = value
        return tuple(pytree.tree_unflatten(leaves, spec))

    def _try_patterns(self) -> None:
        """Run both programs on inputs of all kinds of bits, until they differ by more than rounding."""
        for kind, args in bit_patterns(self.inputs, self.work, self.seed):
            self._run(args, ordinary=kind == "plain")
            self.ordinary += kind == "plain"
            if self.far:
                return

    def _try_ordinary(self) -> None:
        """Run both programs on the examples and on ordinary numbers, if they have not been: whatever the algebra says,
        one of them may have no value there, such as 0/0."""
        self._run(self.inputs, ordinary=True)
        if self.ordinary >= ORDINARY:  # the first of these are among the patterns
            return
        kinds = bit_patterns(self.inputs, self.work, self.seed)
        plain = (args for kind, args in kinds if kind == "plain")
        for args in islice(plain, self.ordinary, ORDINARY):
            self._run(args, ordinary=True)

    def _run(self, args: tuple, ordinary: bool = False) -> bool:
        """Return whether the bits of the results differ for these inputs; note how far, if these are ordinary."""
        try:
            with torch.no_grad():
                if self.when is not None and not all(bool(t.all()) for t in leaves(self.when(*_copy(args)))):
                    return False
                old, new = (p(*_copy(args)) for p in (self.before, self.after))
        except Exception:
            return False
        self.tried += 1
        if (difference := _bits_differ(old, new)) is None:
            return False
        at, x, y, index = difference
        dtype = x.dtype if x.dtype.is_floating_point else torch.float64
        errors = Errors()
        far = bool(compare(old, new, Tolerance(64 * torch.finfo(dtype).eps, 0.0, False), "output", errors))
        undefined = False
        if ordinary:
            self.errors.include(errors.mse, errors.max_abs, errors.max_ulp)
            undefined = bool((x.isnan() != y.isnan()).any())
        if self.shown is None or (far and not self.far) or (undefined and not self.undefined):
            self.shown = self._named(args), self._sentence(args, at, x, y, index)
        self.far |= far
        self.undefined |= undefined
        return True

    def _named(self, args: tuple) -> dict[str, Any]:
        named = [_names(program, len(args)) for program in (self.before, self.after)]
        return dict(zip(named[named[0][0] == "input0"] if args else [], args, strict=True))

    def _sentence(self, args: tuple, at: int, x: Tensor, y: Tensor, index: tuple[int, ...]) -> str:
        """Return both values of an element, and the elements of the inputs that it depends on, if these are few."""
        values = f"before gives {x[index].item()!r}, after {y[index].item()!r}"
        used: dict[int, int] = {}
        for results in self.results:
            self._shape(int(results[at][0][index]), used)
        terms = [self.terms.terms[number] for number in used]
        if len(terms) > 4 or any(term.op != "input" for term in terms):
            return f"For the counterexample: {values} at {list(index)} ({dtype_name(x)})."
        named, flat = list(self._named(args)), pytree.tree_leaves(args)
        parts = []
        for term in sorted(terms, key=lambda term: term.data):
            place, number = term.data
            name = named[place] if len(flat) == len(named) else f"input{place}"
            parts.append(f"{name} = {flat[place].flatten()[number].item()!r}")
        return f"For {', '.join(parts)}: {values} ({dtype_name(x)})."

    def judge(self, proof: Proof) -> None:
        """Add what the tests say, and decide."""
        if self.shown:
            proof.counterexample, proof.place = self.shown
        proof.max_abs, proof.max_ulp, proof.trials = self.errors.max_abs, self.errors.max_ulp, self.tried
        result = proof.tests
        if result is not None:
            proof.trials += len(result.trials)
            proof.max_abs, proof.max_ulp = max(proof.max_abs, result.max_abs), max(proof.max_ulp, result.max_ulp)
            if not result.ok:
                proof.verdict, proof.why["tests"] = "refuted", result.reason
                proof.counterexample = proof.counterexample or result.counterexample
                return
        if self.undefined and proof.reals:
            proof.verdict, proof.reals = "refuted", False
            proof.why["over the reals"] = "Equal where both have a value; for ordinary numbers, one of them has none."
        elif proof.reals:
            proof.verdict = "reals"
        elif self.far and (result is None or not any(term.op == "opaque" for term in self.terms.terms)):
            proof.verdict = "refuted"


def _copy(args: tuple) -> tuple:
    return pytree.tree_map_only(Tensor, lambda t: t.detach().clone(), args)


def _bits_differ(old: Any, new: Any) -> tuple[int, Tensor, Tensor, tuple[int, ...]] | None:
    """Return the first place where two results differ, NaN aside: the output, both tensors, the element."""
    for at, (x, y) in enumerate(zip(leaves(old), leaves(new), strict=False)):
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)) or x.shape != y.shape or x.dtype != y.dtype:
            continue
        same = x == y
        if x.dtype.is_floating_point:
            same = (same & (x.signbit() == y.signbit())) | (x.isnan() & y.isnan())
        if not same.all():
            return at, x, y, tuple((~same).nonzero()[0].tolist())
    return None


def _names(program: Any, number: int) -> list[str]:
    names = []
    if isinstance(program, fx.GraphModule):
        names = [str(n.target) for n in program.graph.find_nodes(op="placeholder")]
    elif hasattr(program, "__code__"):
        names = list(program.__code__.co_varnames[: program.__code__.co_argcount])
    return [names[i] if i < len(names) else f"input{i}" for i in range(number)]


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), Tensor)


def _where(answer: Any) -> str:
    if answer.place is None:
        return "They return different numbers of values."
    at, index = answer.place
    return f"On random numbers of the field, output {at} differs{f' at {list(index)}' if index else ''}."
