"""The judge: run an answer on cases and say which of five laws it kept.

Reading order: verdicts (the vocabulary, and a case above its program), running, guards (what surrounds an answer while
it runs), expect (the laws of a pass), words (for messages), forms (of answers), travel (which objects may leave the
process that ran an answer).
"""

from passlab.judge.expect import Expect, at_least, at_most, expecting, law_of, pass_judge, too_many
from passlab.judge.guards import OutOfTime, TimeLimit
from passlab.judge.running import (
    conclude,
    judge,
    judge_outcome,
    out_of_time,
    plain_numbers,
    run,
    scalar,
    why_not_an_answer,
)
from passlab.judge.travel import function_travels, module_travels, record
from passlab.judge.verdicts import (
    MEANING,
    VERDICTS,
    WORDS,
    Case,
    Core,
    Exercise,
    Finding,
    Judgement,
    Outcome,
    Written,
    as_decorator,
    call_answer,
    cases_in,
    core,
    drawn,
)
from passlab.judge.words import and_more, enough, is_or_are, listed, plural, shown, there_are, times

__all__ = [
    "MEANING",
    "VERDICTS",
    "WORDS",
    "Case",
    "Core",
    "Exercise",
    "Expect",
    "Finding",
    "Judgement",
    "OutOfTime",
    "Outcome",
    "TimeLimit",
    "Written",
    "and_more",
    "as_decorator",
    "at_least",
    "at_most",
    "call_answer",
    "cases_in",
    "conclude",
    "core",
    "drawn",
    "enough",
    "expecting",
    "function_travels",
    "is_or_are",
    "judge",
    "judge_outcome",
    "law_of",
    "listed",
    "module_travels",
    "out_of_time",
    "pass_judge",
    "plain_numbers",
    "plural",
    "record",
    "run",
    "scalar",
    "shown",
    "there_are",
    "times",
    "too_many",
    "why_not_an_answer",
]
