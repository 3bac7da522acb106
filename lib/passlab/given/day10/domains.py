"""Day 10, domains and accesses: how an answer runs on a case, and how a nest is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from passlab.given.day10._isl import (
    as_text,
    errors_in_words,
)
from passlab.judge import Case

Nest = dict[str, Any]


def as_python(nest: Nest) -> str:
    """Return a loop nest as Python loops, for display; statements are calls."""

    def lines(body: list[dict], indent: str) -> Iterator[str]:
        for item in body:
            if "statement" in item:
                writes, reads = (", ".join(item[kind]) for kind in ("writes", "reads"))
                yield f"{indent}{writes} = {item['statement']}({reads})".replace("[]", "[()]")
                continue
            start, stop, step = item.get("range", ("", "", 1))
            head = f"for {item['loop']} in range({start}, {stop}, {step})" if "loop" in item else f"if {item['if']}"
            yield f"{indent}{head}:"
            yield from lines(item["body"], indent + "    ")

    return "\n".join(lines(nest["body"], ""))


@errors_in_words
def call(answer: Callable, case: Case) -> Any:
    return as_text(answer(*case.build()))
