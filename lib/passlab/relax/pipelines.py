"""Use your own pass, fusion, schedule or tuner in TVM's pipeline for Relax; the other steps are TVM's own.

    mine = pipeline(before=[remove_dropout], fuse=my_fusion, schedule=cpu_schedule)
    vm = relax.VirtualMachine(tvm.compile(module, host(), relax_pipeline=mine), tvm.cpu())

    relax.register_pipeline("mine")(lambda: mine)            # now relax.get_pipeline("mine") returns it
    kernels(schedule=cpu_schedule)(module)                   # stop at the kernels: the part worth looking at
    tuned = tune(matmul, "metaschedule", trials=16)          # or your own tuner
    pipeline(schedule=[tuned, cpu_schedule])                 # the tuned kernels, and a rule for the rest

TVM's default pipeline for a CPU legalizes, folds, fuses, lowers and plans memory, and never touches a loop: the
schedule is left to you. Reading order: the pipeline, plugging in passes, rules for single kernels,
the rule `cpu_schedule`, tuning.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import itertools
import json
import logging
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from passlab.relax.cpu import cpu_schedule, host
from passlab.relax.folding import fold_constants

if TYPE_CHECKING:
    import tvm

#: A pass of TVM, or a function from module to module.
Step = Any
#: A rule schedules one kernel: it gets a PrimFunc and returns a PrimFunc, a Schedule, or None to leave it as it is.
Rule = Callable[[Any], Any]


__all__ = ["cpu_schedule", "host", "kernels", "pipeline", "schedule_pass", "stopwatch", "tune"]


# ------------------------------------------------------------------------------------------------ the pipeline


def kernels(
    target: Any = None,
    *,
    before: Sequence[Step] = (),
    after_legalize: Sequence[Step] = (),
    fuse: Step | bool = True,
    schedule: Rule | Sequence[Rule] | None = None,
) -> tvm.transform.Pass:
    """Return the first half of the pipeline: from operators to calls of fused, scheduled kernels.

    target: a TVM target or its name; by default `host()`. before: passes over operators, in this order.
    after_legalize: passes over calls of kernels, which have their patterns (AnnotateTIROpPattern) and no constant
    expressions. fuse: True for TVM's FuseOps and FuseTIR, False for no fusion, or a pass that replaces them (see
    passlab.relax.fusing). schedule: one rule for all kernels, or several: the first that returns something wins.

    The resulting module can be built with LegalizeOps alone: `builds.run_module(module, …, pipeline="none")`.
    """
    from passlab.relax import relax, tvm

    target = _target(target)
    steps = [*_plugged(before, "before"), relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    steps += [fold_constants(), *_plugged(after_legalize, "after_legalize")]
    if fuse is True:
        steps += [relax.transform.FuseOps(), relax.transform.FuseTIR()]
    elif fuse is not False:
        steps += _plugged([fuse], "fuse")
    if schedule is not None:
        rules = schedule if isinstance(schedule, list | tuple) else [schedule]
        steps.append(schedule_pass(*rules))
    return _sequence("kernels", target, steps, tvm)


def pipeline(target: Any = None, **parts: Any) -> tvm.transform.Pass:
    """Return the whole pipeline, for `tvm.compile(module, target, relax_pipeline=…)`. `parts`: see `kernels`."""
    from passlab.relax import relax, tvm

    target, first = _target(target), kernels(target, **parts)
    # relax.pipeline returns TVM's steps for a target, but omits one for a CPU
    own = relax.backend.cpu_generic.pipeline if target.kind.name == "llvm" else relax.pipeline
    dispatch, lower = own.library_dispatch_passes(target), own.dataflow_lower_passes(target)
    return _sequence("pipeline", target, [*dispatch, first, *lower, *own.finalize_passes(target)], tvm)


def _target(target: Any) -> tvm.target.Target:
    from passlab.relax import tvm

    return host() if target is None else target if isinstance(target, tvm.target.Target) else tvm.target.Target(target)


def _sequence(name: str, target: Any, steps: list, tvm: Any) -> tvm.transform.Pass:
    @tvm.transform.module_pass(opt_level=0, name=name)
    def run(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        with target:
            for step in steps:
                module = step(module)
        return module

    return run


# ------------------------------------------------------------------------------------------------ plugging in


def _plugged(steps: Sequence[Step], place: str) -> list[Callable]:
    """Wrap the learner's passes, so that each gives its name and place when it fails."""
    if not isinstance(steps, list | tuple):
        raise TypeError(f"{place} must be a list of passes; got {type(steps).__name__}.")
    for step in steps:
        if not callable(step):
            kinds = "a pass or a function from module to module"
            raise TypeError(f"A step of {place} must be {kinds}; {str(step)[:60]!r} is {type(step).__name__}.")
    return [functools.partial(_checked, step, f"The pass {_name(step)} in {place}") for step in steps]


def _checked(step: Step, step_name: str, module: tvm.IRModule) -> tvm.IRModule:
    from passlab.relax import relax, tvm

    with _saying(step_name):
        after = step(module)
    if not isinstance(after, tvm.IRModule):
        result = "None: end it with `return module`" if after is None else f"{type(after).__name__}, not an IRModule"
        raise TypeError(f"{step_name} returned {result}.")
    try:
        relax.analysis.well_formed(after)
    except Exception as error:
        raise ValueError(f"{step_name} returned a module that is not well-formed: {_last(error)}.") from error
    missing = {v.name_hint for v in module.functions if v.name_hint == "main"} - {v.name_hint for v in after.functions}
    if missing:
        raise ValueError(f"{step_name} returned a module without the function main.")
    return after


def _name(step: Any) -> str:
    info = getattr(step, "info", None)
    return str(getattr(info, "name", "") or getattr(step, "__name__", "") or type(step).__name__)


@contextlib.contextmanager
def _saying(name: str) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{name} raised {type(error).__name__}: {_last(error)}.") from error


def _last(error: BaseException) -> str:
    """Return the last line of a message: in TVM's long ones, it tells what is wrong."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    return lines[-1].rstrip(".")[:300] if lines else type(error).__name__


# ------------------------------------------------------------------------------------------------ rules for kernels


def schedule_pass(*rules: Rule) -> tvm.transform.Pass:
    """Return a pass that applies the rules to every kernel; the first that returns something wins.

    A rule gets a PrimFunc and returns one, or a Schedule of it, or None. It must not change the parameters. Raises
    TypeError for a rule that cannot be called.
    """
    from passlab.relax import tvm

    for rule in rules:
        if not callable(rule):
            raise TypeError(f"A rule must be a function from PrimFunc to PrimFunc; got {type(rule).__name__}.")

    @tvm.transform.module_pass(opt_level=0, name="schedule")
    def run(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        after = module.clone()
        for variable, function in module.functions.items():
            if isinstance(function, tvm.tirx.PrimFunc):
                tried = (_ruled(rule, function, variable.name_hint) for rule in rules)
                after.update_func(variable, next((new for new in tried if new is not None), function))
        return after

    return run


def _ruled(rule: Rule, function: Any, where: str) -> Any:
    """Apply a rule to a kernel and keep the kernel's attributes; return None if the rule leaves it."""
    from passlab.relax import tvm

    name = f"The rule {_name(rule)}, on {where},"
    with _saying(name):
        new = rule(function)
    if new is None:
        return None
    if isinstance(new, tvm.s_tir.Schedule):
        new = new.mod
    if isinstance(new, tvm.IRModule) and len(new.functions) == 1:
        (new,) = new.functions.values()
    if not isinstance(new, tvm.tirx.PrimFunc):
        raise TypeError(f"{name} returned {type(new).__name__}; return a PrimFunc, its Schedule, or None to leave it.")
    if _signature(new) != _signature(function):
        raise ValueError(f"{name} changed the parameters: {_signature(function)} became {_signature(new)}.")
    attributes = dict(function.attrs.items()) if function.attrs is not None else {}
    new = new.with_attrs({"tirx.noalias": True, **attributes})
    return new if "global_symbol" in attributes else new.without_attr("global_symbol")


def _signature(function: Any) -> str:
    types = [parameter.ty for parameter in function.params]
    return ", ".join(f"{t.dtype}{list(t.shape)}" if hasattr(t, "shape") else str(t.dtype) for t in types)


# ------------------------------------------------------------------------------------------------ tuning


@dataclass(frozen=True)
class TuningTrial:
    """One measurement. `what`: the tuner's name for it, say a configuration; `seconds` is inf if `error` tells why."""

    what: Any
    function: Any
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class Tuned:
    """A tuner's result for one kernel. As a rule for `schedule=` it replaces that kernel and leaves all others."""

    original: Any
    trials: tuple[TuningTrial, ...]

    @property
    def best(self) -> TuningTrial:
        """Return the fastest trial. Raises ValueError if none could be measured."""
        good = [trial for trial in self.trials if not trial.error]
        if not good:
            reason = f": {self.trials[0].error}" if self.trials else ""
            raise ValueError(f"None of the {len(self.trials)} trials could be measured{reason}")
        return min(good, key=lambda trial: trial.seconds)

    @property
    def curve(self) -> list[float]:
        """The best time so far, after each trial."""
        return list(itertools.accumulate((trial.seconds for trial in self.trials), min))

    def __call__(self, function: Any) -> Any:
        import tvm_ffi

        same = tvm_ffi.structural_equal(_bare(function), _bare(self.original))
        return self.best.function if same else None

    def __repr__(self) -> str:
        from passlab.measure import seconds

        return f"{len(self.trials)} trials, the best takes {seconds(self.best.seconds)}: {self.best.what}"


def _bare(function: Any) -> Any:
    """Return a kernel without its attributes."""
    names = list(function.attrs.keys()) if function.attrs is not None else []
    return functools.reduce(lambda bare, name: bare.without_attr(name), names, function)


#: A tuner proposes what to try next, (what, PrimFunc or Schedule), given the trials so far; None ends the search.
Tuner = Callable[[Any, Sequence[TuningTrial]], Any]


def tune(
    function: Any,
    tuner: Tuner | str,
    trials: int = 16,
    *,
    measure: Callable[[Any], float] | None = None,
    cost: Callable[[list], Sequence[float]] | None = None,
    target: Any = None,
    progress: Callable[[TuningTrial, int], None] | None = None,
) -> Tuned:
    """Search for a fast schedule of one PrimFunc by measuring candidates.

    tuner(function, history) returns what to measure next, as (what, PrimFunc or Schedule), or None to stop; history:
    a `TuningTrial` for each so far. "metaschedule" is TVM's own search; `cost` replaces its cost model: it gets modules
    and returns a score for each, higher for faster ones. (A very small kernel has few schedules, and the search for
    different ones is long.) measure(PrimFunc): seconds; by default each is built and timed in a separate process.
    progress(trial, number) is called after each trial; by default a line shows the progress. Raises TypeError for a
    tuner that returns something else.
    """
    target, history = _target(target), []
    report, measure = progress or _line(trials), measure or stopwatch(target)
    if tuner == "metaschedule":
        return Tuned(function, tuple(_metaschedule(function, trials, target, measure, cost, report)))
    if not callable(tuner):
        raise TypeError(f'A tuner must be a function of (function, history) or "metaschedule"; got {tuner!r}.')
    for number in range(1, trials + 1):
        with _saying(f"The tuner {_name(tuner)}, before trial {number},"):
            proposed = tuner(function, tuple(history))
        if proposed is None:
            break
        if not isinstance(proposed, tuple) or len(proposed) != 2:
            raise TypeError(f"The tuner {_name(tuner)} returned {str(proposed)[:60]}; return (what, PrimFunc) or None.")
        label, candidate = proposed
        candidate = _ruled(lambda _, candidate=candidate: candidate, function, f"{label}")
        history.append(_measured(label, candidate, measure))
        report(history[-1], number)
    return Tuned(function, tuple(history))


def _measured(label: Any, candidate: Any, measure: Callable[[Any], float]) -> TuningTrial:
    try:
        return TuningTrial(label, candidate, float(measure(candidate)))
    except (ValueError, RuntimeError) as error:
        return TuningTrial(label, candidate, math.inf, _last(error))


def stopwatch(target: Any = None, repeats: int = 5, seconds: float = 20.0) -> Callable[[Any], float]:
    """Return a function that builds a PrimFunc in another process and measures the least time of several runs.

    The PrimFunc's last parameter is its output. Raises RuntimeError if it cannot be built or run.
    """
    from passlab.relax import tvm
    from passlab.tvm.builds import run_module

    target = _target(target)

    def measure(function: Any) -> float:
        rng = np.random.default_rng(0)
        *inputs, _ = [parameter.ty for parameter in function.params]
        values = [rng.random([int(n) for n in t.shape]).astype(str(t.dtype)) for t in inputs]
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        built = run_module(module, [values], target=str(target), repeats=repeats, seconds=seconds)
        if not built.ok:
            raise RuntimeError(built.error)
        return min(built.times)

    return measure


def _line(trials: int) -> Callable[[TuningTrial, int], None]:
    """Show progress as one line that is overwritten: trial, time, best so far."""
    best, start = [math.inf], time.perf_counter()

    def report(trial: TuningTrial, number: int) -> None:
        from passlab.measure import seconds

        best[0] = min(best[0], trial.seconds)
        outcome = trial.error[:60] or seconds(trial.seconds)
        line = f"trial {number}/{trials}: {outcome}; best {seconds(best[0])}; {time.perf_counter() - start:.0f} s"
        print(f"\r{line:<100}", end="\n" if number == trials else "", file=sys.stderr, flush=True)

    return report


def _load_intrinsics() -> None:
    """Import what MetaSchedule imports at its start, in seconds instead of minutes.

    About a hundred decorators there call inspect.stack(), which looks up a source file for every frame; they need only
    the frames.
    """

    def stack(context: int = 1) -> list:
        frames, frame = [], sys._getframe(1)
        while frame:
            code = frame.f_code
            frames.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
            frame = frame.f_back
        return frames

    original, inspect.stack = inspect.stack, stack
    try:
        importlib.import_module("tvm.s_tir.tensor_intrin")
    finally:
        inspect.stack = original


def _metaschedule(
    function: Any, trials: int, target: Any, measure: Callable, cost: Callable | None, report: Callable
) -> list[TuningTrial]:
    """Run TVM's search: programs drawn from its rules, chosen by a cost model that learns from measurements."""
    import tvm_ffi
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as search

    from passlab.relax import tvm
    from passlab.tvm.reach import cores

    _load_intrinsics()
    # In a notebook TVM would show a pandas table after each round, and clear the cell's output.
    tvm_ffi.register_global_func("s_tir.meta_schedule.using_ipython", lambda: False, override=True)
    modules: list[Any] = []
    history: list[TuningTrial] = []

    @derived_object
    class Builder(search.builder.PyBuilder):
        """Only numbers the candidates: `measure` also builds them, in a process that already runs."""

        def build(self, inputs: list) -> list:
            numbers = range(len(modules), len(modules) + len(inputs))
            modules.extend(task.mod for task in inputs)
            return [search.builder.BuilderResult(str(number), None) for number in numbers]

    @derived_object
    class Runner(search.runner.PyRunner):
        def run(self, inputs: list) -> list:
            return [self.one(modules[int(task.artifact_path)]) for task in inputs]

        def one(self, module: Any) -> Any:
            (function,) = module.functions.values()
            trial = _measured(f"metaschedule's number {len(history) + 1}", function, measure)
            history.append(trial)
            report(trial, len(history))
            result = search.runner.RunnerResult(*((None, trial.error) if trial.error else ([trial.seconds], None)))
            return search.runner.RunnerFuture(lambda: True, lambda: result)

    @derived_object
    class Cost(search.cost_model.PyCostModel):
        def load(self, path: str) -> None: ...

        def save(self, path: str) -> None: ...

        def update(self, context: Any, candidates: list, results: list) -> None: ...

        def predict(self, context: Any, candidates: list) -> Any:
            return np.asarray(cost([candidate.sch.mod for candidate in candidates]), "float64")

    model = Cost() if cost else "xgb" if importlib.util.find_spec("xgboost") else "random"
    # The level of this very logger becomes that of TVM's console handler; its parent's does not matter.
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="passlab-") as folder:
        search.tune_tir(
            function,
            tvm.target.Target({**json.loads(str(target)), "num-cores": cores()}),
            folder,
            trials,
            num_trials_per_iter=min(trials, 8),
            builder=Builder(),
            runner=Runner(),
            cost_model=model,
            measure_callbacks=[search.measure_callback.AddToDatabase(), search.measure_callback.UpdateCostModel()],
            # TVM's default of 512 programs per generation is meant for thousands of trials
            strategy=search.search_strategy.EvolutionarySearch(
                population_size=64, init_min_unmeasured=16, genetic_num_iters=2
            ),
            num_tuning_cores=cores(),
            seed=0,
        )
    return history
