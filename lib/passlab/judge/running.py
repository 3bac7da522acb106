"""Run an answer on cases and collect the findings.

Running (`run`) and judging (`judge_outcome`) share only `Outcome`, so that different processes can do them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import sys
import sysconfig
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from passlab.graph.registry import compiler
from passlab.judge.guards import Closed, OutOfTime, TimeLimit, preserve_process_state, reopen
from passlab.judge.travel import RECORDS
from passlab.judge.verdicts import WORDS, Case, Exercise, Finding, Judgement, Outcome
from passlab.judge.words import plural
from passlab.process.error_text import reason


class _Quiet(io.TextIOBase):
    """A stream that counts printed characters and discards them: 100 MB of prints cost no memory."""

    def __init__(self):
        self.printed = 0

    def writable(self):
        return True

    def write(self, text):
        self.printed += len(text)
        return len(text)


#: Folders of code that is not the learner's: this library, Python's own and installed packages.
_OTHERS = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
#: Compilers put frames of their C++ code into Python's tracebacks.
_NOT_PYTHON = (".cc", ".cpp", ".h", ".pyx", ".pxi", "<unknown>")


def _where(error: BaseException) -> str:
    """Return the last line of the learner's own code in a traceback: " (line 7 of dce)"."""
    place, tb = "", error.__traceback__
    while tb:
        file = tb.tb_frame.f_code.co_filename
        if tb.tb_lineno and not file.startswith(_OTHERS) and not file.endswith(_NOT_PYTHON):
            place = f" (line {tb.tb_lineno} of {tb.tb_frame.f_code.co_name})"
        tb = tb.tb_next
    return place


def _error_sentence(exercise: Exercise, error: BaseException) -> str:
    """Return the sentence of an error, without a compiler's stack and places: ": it must be a number"."""
    text, own = reason(error), compiler(exercise.flavour)
    text = own.explain(text) if own else text
    return f": {text}" if text else ""


def out_of_time(exercise: Exercise) -> str:
    return f"It used up its {exercise.seconds:g} s: it is too slow, or one of its loops never ends."


def run(exercise: Exercise, answer: Callable, case: Case) -> Outcome:
    """Run an answer on one case and return the outcome. Never raises for anything the answer does."""
    quiet, start = _Quiet(), time.perf_counter()
    originals: list[Any] = []
    closed = Closed(exercise.closed)

    def outcome(status, value=None, error=""):
        in_place = value is not None and any(value is argument for argument in originals)
        return Outcome(status, value, error, quiet.printed, time.perf_counter() - start, in_place)

    def build():
        with reopen():
            arguments = case.build()
        originals.extend(arguments)
        return arguments

    try:
        with (
            preserve_process_state(),
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
            warnings.catch_warnings(),
            closed,
        ):
            warnings.simplefilter("ignore")
            with TimeLimit(exercise.seconds):
                return outcome("ok", plain_numbers(exercise.call(answer, replace(case, build=build))))
    except NotImplementedError as error:
        if str(error):
            sentence = f"It raised NotImplementedError: {error}{_where(error)}."
            return outcome("raised", error=sentence)
        return outcome("stub", error="Not written yet: it still raises NotImplementedError.")
    except OutOfTime:
        return outcome("timeout", error=out_of_time(exercise))
    except KeyboardInterrupt:
        raise
    except RecursionError:
        sentence = "It went too deep (RecursionError): is there a call without end, or a value inside itself?"
        return outcome("raised", error=sentence)
    except BaseException as error:  # an answer may raise SystemExit and the like, too
        kind = type(error).__name__
        return outcome("raised", error=f"It raised {kind}{_error_sentence(exercise, error)}{_where(error)}.")


# NumPy's numbers become Python's own before a judge sees them, so that judges may ask `type(x) is int`: `np.int64(3)`
# is the integer 3, `np.float64(0.5)` a float, `np.bool_(True)` a bool. Grading's wire does the same on its way.
# (NumPy's strings are of type str already.)

#: Values nested more deeply are left as they are: some contain themselves.
DEPTH = 60

#: What holds numbers, and so does what is derived from it: a `defaultdict` is a dict.
_CONTAINERS = (OrderedDict, dict, list, tuple, set, frozenset)


def scalar(value: Any) -> Any:
    """Return a number of NumPy as Python's; anything else as it is."""
    numpy = sys.modules.get("numpy")  # without it there is none of its numbers
    return value.item() if numpy is not None and isinstance(value, (numpy.number, numpy.bool_)) else value


def plain_numbers(value: Any, depth: int = 0) -> Any:
    """Return a value with `scalar` of all that its lists, tuples, sets, dicts and records hold.

    Containers without a number of NumPy are returned themselves; none is edited. One of a derived class that has such
    numbers becomes a plain one: a named tuple a tuple.
    """
    kind = type(value)
    if depth > DEPTH or kind in (int, float, bool, str):
        return value
    if RECORDS.get(kind.__name__) is kind:
        return _record(value, depth)
    base: Any = next((base for base in type.mro(kind) if base in _CONTAINERS), None)
    if base is None:
        return scalar(value)
    parts = list(base.items(value) if base in (OrderedDict, dict) else base.__iter__(value))
    if base in (OrderedDict, dict):
        plain = [(plain_numbers(key, depth + 1), plain_numbers(one, depth + 1)) for key, one in parts]
        same = all(a is c and b is d for (a, b), (c, d) in zip(parts, plain, strict=True))
    else:
        plain = [plain_numbers(one, depth + 1) for one in parts]
        same = all(a is b for a, b in zip(parts, plain, strict=True))
    return value if same else base(plain)


def _record(value: Any, depth: int) -> Any:
    fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    plain = {name: plain_numbers(one, depth + 1) for name, one in fields.items()}
    changed = {name: one for name, one in plain.items() if one is not fields[name]}
    if changed:
        value = copy.copy(value)
        for name, one in changed.items():
            object.__setattr__(value, name, one)  # a record may be frozen
    return value


def judge_outcome(exercise: Exercise, case: Case, outcome: Outcome) -> list[Finding]:
    """Return the findings on one case. A verdict that the case is about and the judge did not reach counts as lost."""
    about = [v for v in (case.about or exercise.points) if v in exercise.points]
    first = "valid" if "valid" in exercise.points else "did"
    if outcome.status == "ok":
        findings: list[Finding] = []
        try:
            # torch.fx prints a traceback when a graph fails; findings say it
            with preserve_process_state(), contextlib.redirect_stderr(_Quiet()):
                findings.extend(exercise.judge(case, outcome.value))
        except Exception as error:  # the judge broke on the value: the answer is wrong, and no traceback is shown
            odd = f"The judge could not read the returned value ({type(error).__name__}: {str(error)[:120]})."
            findings.append(Finding(first, False, odd))
        findings = [f for f in findings if f.verdict in exercise.points and (f.verdict in about or not f.ok)]
    else:
        findings = [Finding(first, False, outcome.error)]
    reached = {f.verdict for f in findings}
    findings += [Finding(v, False) for v in about if v not in reached]
    return [f if f.case else replace(f, case=case.name) for f in findings]


def why_not_an_answer(exercise: Exercise, answer: Any) -> str:
    """Return why `answer` cannot be tested (it is not a function), or ""."""
    is_module = any(base.__module__ == "torch.nn.modules.module" for base in type(answer).__mro__)
    if callable(answer) and not is_module:
        return ""
    return f"check expects your function itself, without a call; got {type(answer).__name__}."


def judge(exercise: Exercise, answer: Callable, cases: Sequence[Case] | None = None, visible: int = 0) -> Judgement:
    """Return the judgement of `answer` on `cases` (default: the exercise's visible ones).

    visible: how many of them are visible, where hidden ones follow.
    """
    if reason := why_not_an_answer(exercise, answer):
        return Judgement(exercise, [Finding("did", False, reason)])
    cases = exercise.cases() if cases is None else cases
    return conclude(exercise, cases, (_run_if_built(exercise, answer, case) for case in cases), visible=visible)


def _run_if_built(exercise: Exercise, answer: Callable, case: Case) -> Outcome:
    """Run an answer on a case; where the case's own `build` raises, the outcome is that, whatever the answer did.

    Grading does not ask this of a process that runs answers: there, an answer could make `build` fail.
    """
    broken: list[str] = []

    def build() -> tuple:
        try:
            return case.build()
        except Exception as error:
            broken.append(f"{type(error).__name__}: {reason(error)}")
            raise

    outcome = run(exercise, answer, replace(case, build=build))
    return Outcome("unbuilt", error=broken[0]) if broken else outcome


def conclude(
    exercise: Exercise,
    cases: Sequence[Case],
    outcomes: Iterable[Outcome],
    findings: Callable[[Exercise, Case, Outcome], list[Finding]] = judge_outcome,
    unbuilt: Sequence[Case] = (),
    visible: int = 0,
) -> Judgement:
    """Return the judgement of all cases. `outcomes`: in their order; it may end early, after a crash.

    Stops taking outcomes after a stub or a timeout. Whatever the cases without an outcome are about is lost: a verdict
    is earned only where every case that is about it was judged. A case that cannot be built is the course's fault and
    costs nothing: it is left out, unless no case is left: then nothing was judged, and nothing is earned.
    `unbuilt`: those that were left out of `cases` before. `visible`: as in `judge`.
    """
    start = time.perf_counter()
    result = Judgement(exercise)
    printed, in_place, judged, out = 0, False, 0, list(unbuilt)
    for case, outcome in zip(cases, outcomes, strict=False):
        if judged == visible:
            result.visible = len(result.findings)
        printed += outcome.printed
        in_place |= outcome.in_place
        judged += 1
        if outcome.status == "unbuilt":
            out.append(case)
            continue
        if outcome.status == "stub" and not result.findings:
            result.attempted = False
            result.findings.append(Finding("did", False, outcome.error, case.name))
            break
        result.findings += findings(exercise, case, outcome)
        if outcome.status in ("stub", "timeout"):
            break
    result.unbuilt = [case.name for case in out]
    if out and result.attempted:
        rest = [case for case in cases if not any(case is one for one in out)]
        free = [v for v in exercise.points if rest and not any(case.asks(v) for case in rest)]
        result.findings += [Finding(v, True, case=case.name) for case in out for v in free if case.asks(v)]
        result.notes.append(
            f"{plural(len(out), 'case')} of the course could not be built and cost{'s' * (len(out) == 1)} no points."
            if rest
            else "None of the course's cases could be built: nothing was judged, and nothing is earned."
        )
    left = cases[judged:]
    result.findings += [Finding(v, False, case=case.name) for case in left for v in exercise.points if case.asks(v)]
    if left and result.attempted:
        result.notes.append(
            "The cases after the one that it did not finish were not tried: what they are about is lost."
        )
    if in_place:
        result.notes.append(
            "Your code returns the graph it was given. That is allowed: the judge compares with its own copy."
        )
    if printed >= 10_000:
        least = 10 ** (len(str(printed)) - 1)
        result.notes.append(f"Your code printed {least:,} characters or more while it was checked; they are not shown.")
    if not result.points and any(result.verdicts.values()):
        every = "every hidden case" if any(f.ok for f in result.findings if f.verdict == "did") else "every case"
        result.notes.append(
            f"No law counts as long as “{WORDS['did']}” is lost on {every}: doing nothing keeps the others."
        )
    result.seconds = time.perf_counter() - start
    return result
