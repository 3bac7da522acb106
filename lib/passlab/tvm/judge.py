"""Judge passes over modules of Relay and Relax, whichever TVM this process holds.

`judge_pass` makes the judge of an exercise whose answer is `pass(mod) -> mod`. Its laws query modules with `counts`,
`groups`, `consumers` and `first_difference` (passlab.tvm.modules). Checking a module (`valid`) may end the
process in TVM's C++, so a fork does it; running one (`same`) runs its author's code, so passlab.tvm.builds does it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from passlab.judge import Case, Finding, pass_judge
from passlab.judge.expect import Law
from passlab.process.clock import end_after, ran_out
from passlab.tvm.dialect import current_dialect, own
from passlab.tvm.equivalent import devices_note, equivalent_modules
from passlab.tvm.inputs import ALL_KINDS, KINDS, random_inputs
from passlab.tvm.modules import (
    bindings,
    consumers,
    counts,
    equal_types,
    first_difference,
    functions,
    groups,
    has_composite,
    is_function,
    is_module,
    is_primitive,
    nodes,
    short,
    signature,
    type_of,
    typed,
)

__all__ = [
    "ALL_KINDS",
    "KINDS",
    "bindings",
    "consumers",
    "counts",
    "devices_note",
    "first_difference",
    "functions",
    "groups",
    "has_composite",
    "is_function",
    "is_module",
    "is_primitive",
    "judge_pass",
    "nodes",
    "random_inputs",
    "signature",
    "type_of",
    "typed",
    "why_not_open",
    "why_not_same",
    "why_not_valid",
]


def why_not_valid(before: Any, after: Any) -> str:
    """Return why `after` is not a valid result of a pass over `before`, as one sentence, or "".

    Checks, in this order: None or another type returned (a function is right where `before` is one); no `main`;
    missing parts; undefined variables; types that do not fit (InferType) and other violations of well-formedness; a
    changed signature: parameters dropped, added, renamed, reordered or retyped, another result. Neither argument is
    changed. TVM's checks run in a fork; a crash there is a reason, too. `before` None: there is no signature to keep.
    """
    dialect = current_dialect()
    tvm = dialect.tvm
    a_function = is_function(before)
    expected = f"a function of {dialect.NAME.capitalize()}" if a_function else "an IRModule"
    if after is None:
        return f"The pass returned None. End it with `return {'fn' if a_function else 'mod'}`."
    if isinstance(after, tvm.ir.transform.Pass):
        return f"The pass returned another pass ({after.info.name}). Apply it: `return that(mod)`."
    if a_function and is_module(after):
        return 'The pass returned an IRModule, not a function. Return its function: `return mod["main"]`.'
    if not a_function and is_function(after):
        return (
            "The pass returned a Function, not an IRModule. Put it into the module and return that: "
            '`mod["main"] = fn; return mod`.'
        )
    if not (is_function(after) if a_function else is_module(after)):
        return f"The pass returned {_a(after)}, not {expected}."
    # not by `module["main"] = after`, which already checks the function and may crash
    module = tvm.IRModule({tvm.ir.GlobalVar("main"): after}) if a_function else after
    own("valid")  # imported here once, and not in every fork
    broken = _in_fork(lambda tell: _check(module, tell))
    if broken or before is None:
        return broken
    return _signature_change(typed(before), typed(after))


def _a(value: Any) -> str:
    kind = type(value).__name__
    article = "an" if kind[:1] in "AEIOUaeiou" else "a"
    return f"{article} {kind}"


class InvalidModuleError(Exception):
    """A module is not valid; the message is for the learner."""


def _check(module: Any, tell: Callable[[str], None]) -> None:
    """Raise InvalidModuleError unless the module is valid. `tell` records the step, in case TVM crashes in it."""
    names = [var.name_hint for var in module.functions]
    if "main" not in names:
        has = f"it has {', '.join(sorted(names))}" if names else "it is empty"
        raise InvalidModuleError(f"The module has no function main; {has}.")
    if module["main"] is None:
        raise InvalidModuleError(
            "main is None: the pass over functions returned nothing. End it with `return` and the function."
        )
    if "main" not in functions(module):
        raise InvalidModuleError(
            f"main is {_a(module['main'])}, not a function of {current_dialect().NAME.capitalize()}."
        )
    own("valid").check(module, names, tell)


HOLE = (
    "an expression has None where one of its parts belongs: does every visit_ method of your mutator return something?"
)


def unbound(where: str, name: str, parameters: Iterable[str]) -> str:
    if name in parameters:
        return (
            f"{where} reads a variable {name} that is not its parameter {name} but another object of that name: "
            "use the parameter itself."
        )
    return f"{where} reads the variable {name}, which is never defined: it is neither a parameter nor bound."


def last_line(error: BaseException) -> str:
    """Return the message of a TVMError, without the C++ stack above it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    start = next((i for i in range(len(lines) - 1, -1, -1) if re.match(r"\w*(Error|Exception): ", lines[i])), 0)
    text = re.sub(r"^\w+(Error|Exception): ", "", " ".join(lines[start:]).strip())
    return re.sub(r"^Check failed: \(.*?\) is false: ", "", text) or type(error).__name__


def _in_fork(work: Callable[[Callable[[str], None]], None], seconds: int = 20) -> str:
    """Do `work(tell)` in a fork; return its InvalidModuleError's message, the last step before a crash, or ""."""
    try:
        reading, writing = os.pipe()
        pid = os.fork()
    except (AttributeError, OSError):  # Windows, or no process available: do it here
        steps: list[str] = []
        try:
            work(steps.append)
        except InvalidModuleError as error:
            return str(error)
        return ""
    if pid == 0:
        end = "\0"
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            for fd in (0, 1, 2):
                os.dup2(quiet, fd)
            os.closerange(3, writing)  # inherited sockets would stay open as long as it lives
            os.closerange(writing + 1, 2**16)
            end_after(seconds)
            work(lambda doing: os.write(writing, f"{doing}\n".encode()))
            end = "\0fine"
        except InvalidModuleError as error:
            end = f"\0{error}"
        except BaseException as error:
            end = f"\0TVM could not check the module: {type(error).__name__}: {short(last_line(error), 300)}"
        finally:
            os.write(writing, end.encode(errors="replace")[:8000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        output = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    doing, _, end = output.partition("\0")
    if end == "fine":
        return ""
    if end:
        return end
    last = doing.strip().splitlines()[-1] if doing.strip() else "TVM crashed while it checked the module"
    return f"{last} ({'it did not end' if ran_out(status) else 'its process ended'})."


def why_not_open(before: Any, after: Any, kernels: Callable[[Any], bool] | None = None) -> str:
    """Return where `after` calls functions that `before` does not, in one sentence, or "".

    Laws count the calls of operators in the text of a module. An operator in a function counts once, however often the
    function is called, and one in a kernel of TIR does not count. `kernels` tells which functions the exercise lets an
    answer call; the exercise's laws inspect those.
    """

    def calls(module: Any) -> list[str]:
        named = {var.name_hint: f for var, f in module.functions.items()} if is_module(module) else {}
        sentences = []
        for name, function in functions(module).items():
            for callee in current_dialect().function_calls(function):
                title = str(getattr(callee, "name_hint", ""))
                target = named.get(title, callee)
                if not (kernels and is_function(target) and kernels(target)):
                    sentences.append(f"{name} calls {title or 'a function'}")
        return sentences

    old, new = calls(before), calls(after)
    if len(new) <= len(old):
        return ""
    where = next((call for call in new if call not in old), new[-1])
    cure = "Give the function the attributes that the text names, or write" if kernels else "Write"
    return f"{where}, which hides operators from the laws. {cure} its operators in place of the call."


def _signature_change(before: Any, after: Any) -> str:
    _, old, old_result = signature(before)
    _, new, new_result = signature(after)
    was, current = [name for name, _ in old], [name for name, _ in new]
    took = f"main took ({', '.join(was)}) and now takes ({', '.join(current)})"
    if was != current:
        dropped, added = [n for n in was if n not in current], [n for n in current if n not in was]
        if len(was) == len(current) and not dropped:
            return f"The parameters changed their order: {took}. Callers give them by position."
        if len(was) == len(current):
            return f"The parameter {dropped[0]} was renamed: {took}. Keep the parameters' own variables."
        if dropped:
            return f"The parameter {dropped[0]} was dropped: {took}. Keep parameters even when nothing reads them."
        return f"The parameter {(added or current)[0]} is new: {took}. No caller gives it a value."
    for (name, old_type), (_, new_type) in zip(old, new, strict=True):
        if not equal_types(old_type, new_type):
            was, current = short(str(old_type)), short(str(new_type))
            return f"The parameter {name} has another type: it was {was} and is now {current}."
    if not equal_types(old_result, new_result):
        return f"main returned {short(str(old_result))} and now returns {short(str(new_result))}."
    return ""


# ---------------------------------------------------------------------------------------------------- same, the judge


def why_not_same(
    before: Any, after: Any, inputs: Sequence[Any] | None = None, reference: Callable | None = None, **options: Any
) -> str:
    """Return how `after` differs from `before`, built and run on every available target, as one sentence, or "".

    before      None: compare with `reference` only, for an exercise that repairs a wrong module.
    inputs      a tuple of arrays or tensors, a list of such tuples, or None: random ones from the types of main.
    reference   a torch model (or function) that `after` must also agree with, on the given or ordinary inputs.
    options     kinds: further inputs to try (`KINDS`; () for only the given ones; add "nonfinite" where the law is
                about inf and NaN). targets, atol, rtol, seed, and the options of builds.run_module: see
                `passlab.tvm.equivalent.equivalent_modules`.

    `before` is built once, however often it is compared. Raises ValueError where `before` itself does not run, which is
    a bug in the exercise.
    """
    if before is None and reference is None:
        raise ValueError("why_not_same has nothing to compare with: give `before` or a reference.")
    if before is None:
        before, reference = reference, None
    reason = equivalent_modules(before, after, inputs, reference=reference, **options).reason
    return re.sub("^after ", "The module that came back ", reason)


def judge_pass(
    did: Law,
    spared: Law | None = None,
    cost: Law | None = None,
    *,
    reference: Callable[[Case], Callable] | None = None,
    kernels: Callable[[Any], bool] | None = None,
    **options: Any,
) -> Callable[[Case, object], Iterator[Finding]]:
    """Return the judge of a pass over modules: valid, then same, then the exercise's own laws.

    A case's first built argument is the module (or function) before the pass; its `inputs()` are a tuple, or a list of
    tuples. `reference(case)` returns a torch model. `kernels`: see `why_not_open`. Other keyword arguments go to
    `why_not_same`. Laws see typed modules. A case that does not ask about `same` does not run its modules.
    """

    def well_formed(before: Any, after: Any) -> Finding:
        broken = why_not_valid(before, after) or why_not_open(before, after, kernels)
        return Finding("valid", False, broken, before=before) if broken else Finding("valid", True)

    def sameness(before: Any, after: Any, case: Case) -> Finding:
        inputs = case.inputs() if case.inputs else None
        difference = why_not_same(before, after, inputs, reference(case) if reference else None, **options)
        return Finding("same", not difference, difference, before=before, after=after)

    return pass_judge(well_formed, lambda before, value: (typed(before), typed(value)), sameness, did, spared, cost)
