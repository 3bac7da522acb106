"""The forms of the messages that come out of confined processes: fields, types, sizes.

    head, payload = receive(sock, deadline, form=reader(Outcome))

Nothing else reads such a message. What does not fit raises `MessageError` before anything looks at it, and so is its
sender's failure; what no field asks for is skipped and never built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from autograder.engine.data import Verdict
from passlab.judge import VERDICTS
from passlab.process.messages import MessageError

#: The MIME types that a learner's cell may show.
MIMES = (
    "text/plain",
    "text/html",
    "text/markdown",
    "text/latex",
    "image/png",
    "image/jpeg",
    "image/svg+xml",
)
MOST_OUTPUTS = 1_000

Place = Annotated[int, Meta(ge=0, lt=2**31)]
Amount = Annotated[float, Meta(ge=0, lt=2**53)]
#: A sentence, and what a cell shows.
Words = Annotated[str, Meta(max_length=4_000)]
Shown = Annotated[str, Meta(max_length=8 * 2**20)]

# From a worker


class Stream(Struct, tag_field="output_type", tag="stream"):
    name: Literal["stdout", "stderr"]
    text: Shown


class Failed(Struct, tag_field="output_type", tag="error"):
    ename: Words
    evalue: Shown
    traceback: Annotated[list[Shown], Meta(max_length=200)]


Bundle = msgspec.defstruct(
    "Bundle",
    [(f"form{at}", Shown | None, msgspec.field(name=mime, default=None)) for at, mime in enumerate(MIMES)],
    omit_defaults=True,
)


class Display(Struct, tag_field="output_type", tag="display_data"):
    data: Bundle  # type: ignore[valid-type]  # defined by its table


class Result(Struct, tag_field="output_type", tag="execute_result"):
    data: Bundle  # type: ignore[valid-type]  # defined by its table
    execution_count: Place | None = None


class Cell(Struct):
    outputs: Annotated[list[Stream | Failed | Display | Result], Meta(max_length=MOST_OUTPUTS)]
    error: Shown


class Begun(Struct):
    """A cell starts."""

    at: Place


class Ran(Struct):
    """A cell has ended."""

    index: Place
    ran: Cell


class Done(Struct):
    """All cells have ended."""

    done: bool


class Ended(Struct):
    """A process that ran answers has ended."""

    code: Annotated[int, Meta(ge=-64, le=255)]


class Outcome(Struct):
    """What an answer did on a case. The payload is the value."""

    status: Literal["ok", "stub", "raised", "timeout", "refused", "missing", "died"]
    error: Words
    printed: Annotated[int, Meta(ge=0, lt=2**53)]
    seconds: Amount
    in_place: bool


# From the warm parent


class Forked(Struct):
    pid: Annotated[int, Meta(gt=0, lt=2**31)]


class Used(Struct):
    cpu_seconds: Amount


# From a process that runs a returned graph


class GraphRan(Struct):
    """What a graph did: see `passlab.fx.programs.Run` and `Trace`. The payload holds the values.

    `error`: the type and the text of its exception. `ended`: the exit code, if its process has ended instead, after
    `spent` CPU seconds. `lost`: whether the process can run nothing more on its device.
    """

    error: tuple[Words, Words] | None = None
    lost: bool = False
    drew: bool = False
    aliases: list[tuple[Place, Words]] = []
    draws: list[Words] = []
    writes: list[Words] = []
    failed: Words | None = None
    ended: Annotated[int, Meta(ge=-64, le=255)] | None = None
    spent: Amount = 0.0


# From a process that races models


class RacedRow(Struct):
    """A competitor's figures on one model: see `timing.ModelTimer.run`."""

    launches: Annotated[int, Meta(ge=0, lt=2**53)] | None
    bytes: Annotated[int, Meta(ge=0, lt=2**53)] | None
    peak: Annotated[int, Meta(ge=0, lt=2**53)] | None
    seconds: Annotated[float, Meta(gt=0, lt=1e6)] | None
    spread: Annotated[float, Meta(ge=0, lt=1e6)] | None
    ratio: Annotated[float, Meta(gt=0, lt=1e9)] | None
    missing: Words


class Raced(Struct):
    """The rows of a race. `ended`: the exit code, if its process has ended instead, with what it printed."""

    rows: dict[Words, RacedRow] = {}
    ended: Annotated[int, Meta(ge=-64, le=255)] | None = None
    said: Shown = ""


# From the verifier


class Ready(Struct):
    ready: bool


class Cases(Struct):
    """The cases of an exercise. The arguments of each follow, as payloads."""

    about: list[list[Literal[VERDICTS]]]  # type: ignore[valid-type]  # a tuple of texts
    visible: Place
    seconds: Amount


class Judged(Struct):
    verdicts: list[Verdict]


# From a child of the verifier


class Kept(Struct):
    """Findings on one value, as (verdict, ok, message, case)."""

    findings: list[tuple[Literal[VERDICTS], bool, str, str]]  # type: ignore[valid-type]  # a tuple of texts
    fingerprint: str
    drawn: tuple[str, str] | None
    devices: list[str] = []


class Found(Struct):
    """Verdicts by place, and what may be used again: see `verdicts.CaseFindings` and `verdicts.Mistakes`."""

    verdicts: dict[int, Verdict]
    fresh: list[tuple[tuple[str, int, int, str], Kept]]
    mistakes: list[tuple[tuple[str, int, str, int], tuple[str, list[str], str]]]


Message = TypeVar("Message")
#: msgspec completes a form when a decoder first needs it; a thread that finds another at it meets null pointers.
_COMPLETING = threading.Lock()


@cache
def reader(form: type[Message]) -> Callable[[bytes], Message]:
    """Return a function that makes a message of this form of JSON text, or raises MessageError."""
    with _COMPLETING:
        decode = msgspec.json.Decoder(form).decode

    def read(text: bytes) -> Message:
        try:
            return decode(text)
        except (ValueError, RecursionError):  # msgspec's own are ValueErrors
            raise MessageError(f"no message of the form {form.__name__}") from None

    return read
