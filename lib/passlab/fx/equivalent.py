"""Search for a difference between two torch programs: `passlab.equivalent` for everything that torch runs.

Compared, after the same seed, on copies (neither program nor the caller's tensors change): the outputs (structure,
shape, dtype, values), what was written into the inputs, into parameters and into buffers, and how far the random
generator moved. Gradients are not compared. Where the nodes of both compute the same (`passlab.fx.congruence`), no run
tells them apart: after the first, those that the caller did not ask for are left out, with a note.

**Rounding is not meaning.** `passlab.equivalence.values` derives how much numbers may differ. A right rewrite may also
reassociate: folding a batch norm into a convolution computes x·(w·s) for (x·w)·s. Three rules tell that from a wrong
rewrite.

1. Edge values are fed in float64 wherever `before` runs in it. 1e30 then multiplies without overflow, so inf and NaN
   are the mathematics of the program and not an accident of float32: `x*0 -> 0` and `x/x -> 1` are caught, a fold is
   not. Float64 also lowers the tolerance to about 1e-14, so that a forgotten eps of 1e-5 is seen. Where `after` holds
   float constants that `before` does not (a folded weight, rounded once), or the graph itself names a dtype, the unit
   of rounding is that of the program's own dtype, as it is where a program in bfloat16 is fed float32.
2. inf - inf inside a sum (matmul, convolution, mean, softmax, ...) depends on its order. Where one program gives NaN
   and the other inf, and the first node at which they diverge is such a sum, it decides nothing. (Fused attention skips
   rows without a finite score: there no value decides where `before` gives NaN or inf.)
3. Before a difference in values counts, `before` is run again with its parameters and inputs, of edge values the large
   ones, moved by a few units of rounding. Elements that move as far by themselves (ill-conditioned ones, ties before a
   rounding or an argmax) decide nothing. By chance one may not move; so all may differ as much as the others move,
   except on edge values in a graph without sums, where a huge neighbour would excuse anything.

The sign of a zero counts only where a later operation shows it: `x + 0 -> x` is right, `1/(x + 0) -> 1/x` is not.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from passlab.equivalence.comparison import Comparison, locating, tolerance, why_not_a_program
from passlab.equivalence.result import Equivalence, Options
from passlab.equivalence.seeds import own_seed
from passlab.equivalence.trials import DEFAULT, TRIALS, Trial, Trials, example_inputs
from passlab.equivalence.values import (
    EXACT,
    PACKED,
    SUMS,
    Difference,
    Errors,
    Tolerance,
    beyond_rounding,
    compare,
    identical,
    leaves,
    nan_or_inf,
    nonfinite,
    nudge,
    shape_of,
    unusual,
)
from passlab.fx import isolation
from passlab.fx.congruence import congruent
from passlab.fx.diverge import LARGEST, divergent_nodes, locate
from passlab.fx.isolation import ProcessLostError
from passlab.fx.nodes import op_name, why_not_ordered
from passlab.fx.programs import Program, Run, preserve_state
from passlab.judge.words import plural

#: Graphs with more nodes are slow to run: checks that cost several runs, or say little, are skipped.
LARGE = 500
#: How often edge values are nudged at most, each time in both directions.
NUDGES = 4


def equivalent(before: Callable, after: Callable, inputs: Any, options: Options) -> Equivalence:
    """Search for a trial that tells two torch programs apart. All arguments are those of `passlab.equivalent`.

    Raises ValueError for an argument that is not a program, and for an unknown mode or kind of trial.
    """
    if not _is_program(before):
        raise ValueError(
            f"equivalent compares programs; `before` is a {type(before).__name__}. It runs programs of torch, Relay, "
            "Relax and MLIR. Import another format first: ONNX by passlab.tvm.importers, StableHLO by "
            "passlab.mlir.imports, text by passlab.mlir.parse."
        )
    for names, known in ((options.trials, tuple(TRIALS)), (options.modes, ("eval", "train"))):
        for name in names or ():
            if name not in known:
                raise ValueError(f"equivalent does not know {name!r}; it knows {', '.join(known)}.")
    examples = _examples(before, inputs)
    if not _is_program(after):
        return Equivalence(False, f"after is {why_not_a_program(after)}")
    if reason := _why_not_a_graph(before):
        raise ValueError(f"equivalent cannot run `before`. {reason}")
    if reason := _why_not_a_graph(after):
        return Equivalence(False, f"after is not a program that can be run. {reason}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        programs = [Program(before, largest=LARGE)]
        try:
            programs.append(Program(after))
        except Exception as error:
            return Equivalence(False, f"after is not a program that can be run: {_summary(error)}")
        with preserve_state(*programs):
            return _Comparison(*programs, examples, options).run()


def _is_program(value: Any) -> bool:
    return callable(value) or type(value).__name__ == "ExportedProgram"


def _why_not_a_graph(program: Any) -> str:
    """Return why the graph of a GraphModule cannot run, or "": a rewrite may leave operands that it has erased."""
    return why_not_ordered(program.graph) if isinstance(program, fx.GraphModule) else ""


def _examples(before: Any, inputs: Any) -> list[tuple]:
    if inputs is None:
        example = example_inputs(before)
        if example is None:
            raise ValueError(
                "equivalent has no inputs to try: pass inputs=(tensor, ...), or make the graph with "
                "passlab.trace(model, *inputs), which keeps them."
            )
        return [example]
    if isinstance(inputs, Tensor):
        return [(inputs,)]
    if isinstance(inputs, list) and inputs and all(isinstance(x, tuple) for x in inputs):
        return inputs
    return [tuple(inputs)]


def _names(before: Any, number: int) -> list[str]:
    """Return the names of the inputs."""
    names: list[str] = []
    if isinstance(before, fx.GraphModule):
        names = [str(n.target).lstrip("*") for n in before.graph.find_nodes(op="placeholder")]
    else:
        with contextlib.suppress(TypeError, ValueError):
            names = list(inspect.signature(before.forward if isinstance(before, nn.Module) else before).parameters)
    return [names[i] if i < len(names) else f"input{i}" for i in range(number)]


def _summary(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0][:160]
    if isinstance(error, ProcessLostError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# ---------------------------------------------------------------------------------------------------- about a program

#: methods that change the dtype
CASTS = ("to", "float", "half", "bfloat16", "double", "type", "type_as")


def _op_name(program: Program, node: fx.Node) -> str:
    return op_name(node, program.module).lower()


def _calls(program: Program) -> Iterable[fx.Node]:
    return (n for n in program.graph.nodes if n.op.startswith("call_"))


def depth(program: Program) -> int:
    """Return the number of operations on the longest path; without a graph, the number of layers."""
    if program.graph is None:
        return max(16, len(list(program.module.modules())) if program.module is not None else 0)
    steps: dict[fx.Node, int] = {}
    for node in program.graph.nodes:
        steps[node] = max((steps.get(n, 0) for n in node.all_input_nodes), default=0) + node.op.startswith("call_")
    return max(1, *steps.values())


def _has_sums(program: Program) -> bool:
    if program.graph is None:
        return True
    names = {_op_name(program, node) for node in _calls(program)}
    return any(part in name for name in names for part in SUMS)


def _names_dtype(program: Program) -> bool:
    """Return whether part of the program may keep its own dtype when inputs and parameters are float64."""
    if program.graph is None:
        return True
    for node in _calls(program):
        if node.op == "call_method" and node.target in CASTS:
            return True
        if node.op == "call_module":
            if not type(program.module.get_submodule(node.target)).__module__.startswith("torch.nn"):
                return True
        elif any(isinstance(x, torch.dtype) for x in (*node.args, *node.kwargs.values())):
            return True
    return False


def _new_constants(before: Program, after: Program) -> int:
    """Count the float tensors that `after` holds and `before` does not, by value."""
    known: dict[tuple, list[Tensor]] = {}
    for *_, t in before.slots:
        known.setdefault((shape_of(t), t.dtype, t.device), []).append(t)
    return sum(
        t.is_floating_point()
        and not any(t is k or identical(t, k) for k in known.get((shape_of(t), t.dtype, t.device), ()))
        for *_, t in after.slots
    )


# ---------------------------------------------------------------------------------------------------- the comparison


class _Comparison(Comparison):
    """Two torch programs on trials that follow from their example inputs."""

    def __init__(self, before: Program, after: Program, examples: list[tuple], options: Options):
        super().__init__(options)
        self.before, self.after, self.examples = before, after, examples
        self.names = _names(before.fn, max(len(e) for e in examples))
        self.modes = [None] if options.modes is None else list(options.modes)
        tensors = [t for t in pytree.tree_leaves(examples) if isinstance(t, Tensor)]
        tensors += [t for *_, t in before.slots]
        self.unusual = any(unusual(t) for t in tensors)
        self.valueless = any(t.is_meta for t in tensors)
        floats = [t.dtype for t in tensors if t.is_floating_point() and t.dtype not in PACKED]
        self.native = max(set(floats), key=floats.count) if floats else None
        self.nodes = max(len(p.graph.nodes) if p.graph is not None else 0 for p in (before, after))
        self.depth = max(depth(before), depth(after))
        self.sums = _has_sums(before) or _has_sums(after)
        self.names_dtype = _names_dtype(before) or _names_dtype(after)
        self.writes = self.draws = False
        self.accepted = False  # whether `before` took the last trial
        self.congruent: bool | None = None  # whether a run of `before` is one of `after`; None before the first trial
        self.places = self._devices(str(next((t.device for t in tensors), "cpu")))

    @cached_property
    def constants(self) -> int:
        """The number of float tensors that `after` holds and `before` does not."""
        return _new_constants(self.before, self.after)

    def _devices(self, home: str) -> list[str]:
        """Return where to compare programs whose tensors are on the device `home`."""
        if self.options.devices is not None:
            return list(self.options.devices)
        if home == "cpu" and (device := isolation.device()) != home:
            if self._run(self.before, Trial("given", self.examples[0], device=device)).error is None:
                return [device]
            self.notes[f"compared on {home}: before does not run on {device}"] = None
        elif torch.accelerator.is_available() and not (self.before.isolated or self.after.isolated):
            present = torch.accelerator.current_accelerator().type
            return [home] if home.startswith(present) else [home, present]
        return [home]

    def run(self) -> Equivalence:
        """Compare how many inputs the programs take, then what they do."""
        if self.before.graph is not None and self.after.graph is not None:
            b, a = (len(p.graph.find_nodes(op="placeholder")) for p in (self.before, self.after))
            if b != a:
                difference = Difference(f"before takes {plural(b, 'input')} and after takes {a}", "signature")
                return self.failure(Trial("given", self.examples[0]), difference, Errors())
        return super().run()

    def batches(self) -> Iterator[list[Trial]]:
        """Yield single trials: whether `before` takes one decides about those after it."""
        for mode in self.modes:
            for device in self.places:
                names = self._kinds()
                if (mode, device) != (self.modes[0], self.places[0]):
                    names = [n for n in names if n in ("given", "double", "structured")]
                for trial in self._trials(names):
                    if self.congruent and trial.name != "given" and self._by_default():
                        self.notes["both compute the same by their nodes: no other trial can tell them apart"] = None
                        return
                    yield [replace(trial, mode=mode, device=device)]

    def _by_default(self) -> bool:
        return not (self.options.trials or self.options.thorough)

    def _kinds(self) -> list[str]:
        """Return the kinds of trials to make, and note which are left out."""
        names, thorough = list(self.options.trials or ()), self.options.thorough
        if not names:
            names = list(TRIALS if thorough else DEFAULT)
            if self.before.compiled or self.after.compiled:
                names = ["given"]
                self.notes["compiled programs are tried on the example inputs only: others would compile them anew"] = (
                    None
                )
            elif not thorough and self.nodes > LARGE:
                names.remove("half")
                self.notes[f"half: left out for graphs of more than {LARGE} nodes"] = None
        if self.valueless:
            self.notes["tensors on the device meta have no values: only shapes and dtypes are compared"] = None
        if self.unusual:
            names = ["given"]
            self.notes["programs of nested, quantized or packed tensors are tried on the example inputs only"] = None
        if self._specialized():
            names = [n for n in names if n not in ("structured", "sizes", "half", "float16")]
            self.notes["scripted and exported programs are tried in their own dtype, size and layout only"] = None
        return names

    def _specialized(self) -> bool:
        return self.before.specialized or self.after.specialized

    def _trials(self, names: list[str]) -> Iterator[Trial]:
        trials = Trials(self.examples, self.native, own_seed(self.options.seed), self.options.thorough)
        trials.double &= not self._specialized()
        for name in names:
            if name == "same tensor" and not self.writes:
                continue
            trials.spread = not self.draws
            for trial in trials.make(name):
                yield trial
                if name == "double" and not self.accepted:
                    trials.double = False
                if name == "sizes":
                    trials.resized = self.accepted

    def in_own_dtype(self, trial: Trial) -> bool:
        return trial.dtype is None

    def tolerance(self, trial: Trial) -> tuple[Tolerance, torch.dtype]:
        """Return the tolerance of a trial, and the dtype whose rounding it allows for."""
        dtype, steps = trial.dtype or self.native or torch.float32, self.depth
        if self.native is not None and torch.finfo(dtype).eps < torch.finfo(self.native).eps:  # rule 1
            if self.names_dtype:
                dtype = self.native
            elif self.constants:
                dtype, steps = self.native, self.constants
        return tolerance([dtype], steps, self.sums, self.options), dtype

    def _run(self, program: Program, trial: Trial, jitter: float = 0.0, traced: bool = False) -> Run:
        training = {"eval": False, "train": True}.get(trial.mode)
        if training is None and self.before.module is not None and not self.before.exported:
            flags = {m.training for m in self.before.module.modules()}
            training = flags.pop() if len(flags) == 1 else None
        kw = {"dtype": trial.dtype, "device": trial.device, "jitter": jitter, "training": training, "traced": traced}
        return program.run(trial.args, trial.seed, **kw)

    def outputs(self, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Run, Run]]:
        for trial in trials:
            b = self._run(self.before, trial)
            self.accepted = b.error is None
            if self.accepted and self.congruent:
                yield trial, b, b
            elif self.accepted:
                a = self._run(self.after, trial)
                yield trial, b, a
                if self.congruent is None:
                    self.congruent = self._one_run_is_enough(b, a)
            elif trial.name == "given" and not self.titles:
                raise ValueError(f"`before` itself fails on its example inputs: {_summary(b.error)}") from b.error
            else:
                self.notes[f"{trial.title}: left out, before does not accept it"] = None

    def _one_run_is_enough(self, b: Run, a: Run) -> bool:
        """Return whether both programs compute the same by their nodes, and have done so in these runs."""
        if self.options.modes is not None or self.places != ["cpu"] or self.nodes > LARGE:
            return False
        if self.before.isolated or self.after.isolated or b.state or a.state or b.drew or a.drew or self.writes:
            return False
        if compare(b.output, a.output, EXACT) or b.aliases != a.aliases:
            return False
        return congruent(self.before.fn, self.after.fn)

    def differences(self, trial: Trial, old: Run, new: Run, errors: Errors) -> list[Difference]:
        return self.differences_from(self.before, trial, old, new, errors)

    def differences_from(
        self, before: Program, trial: Trial, b: Run, a: Run, errors: Errors | None = None
    ) -> list[Difference]:
        """List the differences between run `b` of the program `before` and run `a` of another one, rounding excused."""
        if a.error is not None:
            return [Difference(f"after fails, which before does not: {_summary(a.error)}", "error")]
        tolerance, dtype = self.tolerance(trial)
        differences = compare(b.output, a.output, tolerance, "output", errors)
        differences += self._inputs(trial, b, a, tolerance) + self._state(b, a, tolerance)
        differences.sort(key=lambda d: d.part not in ("input", "state"))  # a write that only one does explains the rest
        if differences and all(d.bad is not None for d in differences):
            differences = self._beyond_rounding(before, trial, b, a, differences, torch.finfo(dtype).eps)
        self.draws |= b.drew or a.drew
        if not differences and not torch.equal(b.rng, a.rng):
            differences.append(Difference(_drew(b, a), "random"))
        return differences or self._aliases(b, a)

    def _inputs(self, trial: Trial, b: Run, a: Run, tolerance: Tolerance) -> list[Difference]:
        differences = []
        for name, old, x, y in zip(self.names, trial.args, b.inputs, a.inputs, strict=False):
            if isinstance(old, Tensor):
                old = old.to(x.device)
            wrote = [bool(compare(old, new, EXACT)) for new in (x, y)]
            self.writes |= any(wrote)
            if wrote == [True, True]:
                differences += compare(x, y, tolerance, f"what is written into the input {name}")
            elif any(wrote):
                writer, other = ("before", "after") if wrote[0] else ("after", "before")
                differences.append(
                    Difference(f"{writer} writes into its input {name}, {other} leaves it as it was", "input")
                )
        return differences

    def _state(self, b: Run, a: Run, tolerance: Tolerance) -> list[Difference]:
        differences = []
        for path in dict.fromkeys([*b.state, *a.state]):
            if path in b.state and path in a.state:
                differences += compare(b.state[path], a.state[path], tolerance, f"what is written into {path}")
            else:
                writer, other = ("before", "after") if path in b.state else ("after", "before")
                differences.append(Difference(f"{writer} writes into {path} when it runs, {other} does not", "state"))
        return differences

    def _beyond_rounding(
        self, before: Program, trial: Trial, b: Run, a: Run, differences: list[Difference], eps: float
    ) -> list[Difference]:
        """Apply rule 3: keep the differences beyond what rounding alone causes in the same elements."""
        if self.sums and before is self.before:
            self._excuse_sums(trial, b, a, differences)
        moved = self._nudged(before, trial, differences, 4 * eps)
        neighbours = self.sums or not trial.edge
        return beyond_rounding(differences, leaves(b.output), leaves(a.output), moved, neighbours)

    def _nudged(self, before: Program, trial: Trial, differences: list[Difference], by: float) -> Iterator[list]:
        """Yield the outputs of `before` on nudged inputs: one nudge and its opposite.

        Where edge values cancel, what is left may have either sign, and a nudge may keep it. So there are more nudges
        for edge values as long as they explain some of the elements that differ, and not all.
        """
        for seed in range(NUDGES if trial.edge else 1):
            number = _elements(differences)
            for signed in (by, -by):
                run = self._run(before, replace(trial, args=_jitter(trial, signed, seed)), signed)
                if run.error is None:
                    yield leaves(run.output)
            if not 0 < _elements(differences) < number:
                return

    def _excuse_sums(self, trial: Trial, b: Run, a: Run, differences: list[Difference]) -> None:
        """Apply rule 2, where it applies."""
        left, right = leaves(b.output), leaves(a.output)
        odd = [d for d in differences if d.part == "output" and (d.bad & nonfinite(left[d.leaf])).any()]
        ops = self._divergent_ops(trial) if odd else []
        for d in odd:
            if not ops or any(part in ops[0] for part in SUMS):
                d.bad = d.bad & ~nan_or_inf(left[d.leaf], right[d.leaf])
            if any("attention" in op for op in ops):  # a mask that was made for it may stand before it
                d.bad = d.bad & ~nonfinite(left[d.leaf])

    def _divergent_ops(self, trial: Trial) -> list[str]:
        """Return the names of the operations at which the programs diverge, in order; [] if unknown."""
        before, after = (self._with_graph(p) for p in (self.before, self.after))
        if before is None or after is None or max(len(p.graph.nodes) for p in (before, after)) > LARGEST:
            return []
        return [_op_name(after, n) for n in divergent_nodes(before, after, trial, self.tolerance(trial)[0], self._run)]

    def _aliases(self, b: Run, a: Run) -> list[Difference]:
        changed = [(i, home, "before") for i, home in b.aliases if (i, home) not in a.aliases]
        changed += [(i, home, "after") for i, home in a.aliases if (i, home) not in b.aliases]
        if not changed or self.options.aliasing is False:
            return []
        i, home, side = changed[0]
        if home.startswith("input "):  # a part cut out of a graph may have more inputs than the program
            at = int(home[6:])
            home = f"its input {self.names[at] if at < len(self.names) else at}"
        where = "output" if len(leaves(b.output)) == 1 else f"output {i}"
        sentence = f"{where} shares its memory with {home} only {side}"
        if self.options.aliasing or self.writes:
            return [Difference(sentence, "alias", i)]
        self.notes[sentence] = None
        return []

    def _with_graph(self, program: Program) -> Program | None:
        """Return the program with a graph: its own, or one traced from a copy (tracing writes into buffers)."""
        if program.graph is not None:
            return program
        with contextlib.suppress(Exception, SystemExit):
            if program.module is not None:
                return Program(fx.symbolic_trace(copy.deepcopy(program.fn)))
            if hasattr(program.fn, "__code__"):
                return Program(fx.symbolic_trace(program.fn))
            graph = fx.Graph()  # a builtin such as torch.relu
            graph.output(graph.call_function(program.fn, tuple(graph.placeholder(n) for n in self.names)))
            return Program(fx.GraphModule(nn.Module(), graph))
        return None

    def sentence(self, trial: Trial, difference: Difference) -> str:
        return f"{trial.phrase}, {difference.sentence}."

    def locate(self, result: Equivalence, trial: Trial, difference: Difference) -> None:
        if not locating():
            return
        before, after = (self._with_graph(p) for p in (self.before, self.after))
        if before and after and max(len(p.graph.nodes) for p in (before, after)) <= LARGEST:
            tolerance, _ = self.tolerance(trial)
            run, differences = self._run, self.differences_from
            place = locate(before, after, trial, difference, tolerance, run, differences, self.native)
            result.first_diverging, result.graph, result.graph_after = place.node, place.before, place.after
            if place.node:
                result.reason += f" Look at node {place.node}."


def _elements(differences: list[Difference]) -> int:
    """Return how many elements differ."""
    return sum(int(difference.bad.sum()) for difference in differences if difference.bad is not None)


def _jitter(trial: Trial, by: float, seed: int) -> tuple:
    """Move the inputs by up to `by`, relatively; of edge values only the large ones, which are not special cases."""
    gen, nudged = torch.Generator().manual_seed(seed), {}

    def move(t: Tensor) -> Tensor:
        if t.is_floating_point() and not unusual(t) and id(t) not in nudged:  # one tensor given twice stays one
            moved = nudge(t, by, gen)
            nudged[id(t)] = torch.where(t.double().abs() >= 10, moved, t) if trial.edge else moved
        return nudged.get(id(t), t)

    return pytree.tree_map_only(Tensor, move, trial.args)


def _drew(b: Run, a: Run) -> str:
    if b.drew and a.drew:
        text = "before and after draw different amounts of random numbers"
    else:
        text = (
            f"{'before' if b.drew else 'after'} draws random numbers and {'after' if b.drew else 'before'} draws none"
        )
    return f"{text}: later draws give other numbers"
