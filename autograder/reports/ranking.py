"""The ranks on a leaderboard, and the names shown there.

An entry is ranked by the geometric mean, over all models, of how many times as fast as eager it is; eager takes its
turns beside it. An entry without equivalence on some model has no rank, whatever its speed. Two entries tie if their
means differ by less than both of their spreads, so a rank is 1 + the number of entries that are faster beyond doubt.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Rows = Mapping[str, Mapping[str, Any]]

ADJECTIVES = (
    "amber", "azure", "brisk", "bronze", "calm", "clever", "coral", "crimson", "curious", "early", "emerald",
    "gentle", "golden", "happy", "indigo", "ivory", "jade", "keen", "lilac", "lively", "lucky", "mellow", "merry",
    "noble", "olive", "proud", "quick", "quiet", "ruby", "silver", "sunny", "swift",
)  # fmt: skip
ANIMALS = (
    "badger", "beaver", "bison", "crane", "dolphin", "eagle", "falcon", "ferret", "finch", "fox", "gecko", "heron",
    "ibis", "jay", "kestrel", "koala", "lark", "lemur", "lynx", "marten", "newt", "ocelot", "orca", "otter", "owl",
    "panda", "puffin", "raven", "robin", "seal", "stork", "wren",
)  # fmt: skip


def pseudonyms(learners: Iterable[str], salt: str, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return learner → a name that the id does not tell, together with the names that are `known` from earlier boards.

    Two learners never share one: the second gets a number as well.
    """
    names = dict(known or {})
    tokens = {one: hmac.digest(bytes.fromhex(salt), one.encode(), "sha256") for one in {*learners} - {*names}}
    for learner, token in sorted(tokens.items(), key=lambda item: item[1]):
        name = f"{ADJECTIVES[token[0] % len(ADJECTIVES)]} {ANIMALS[token[1] % len(ANIMALS)]}"
        names[learner] = name if name not in names.values() else f"{name} {int.from_bytes(token[2:5])}"
    return names


@dataclass
class Standing:
    """One line of the board. `state`: ranked, late, failed or withdrawn; `why` says more on the last three.

    `speedup`: over eager; `spread`: its relative uncertainty. `bytes`, `peak`, `launches`: as shares of eager's.
    `beyond`: whether it goes beyond the course's compiler (see `beyond`). `history`: earlier entries, oldest first.
    """

    name: str
    state: str
    rank: int | None = None
    tied: bool = False
    speedup: float | None = None
    spread: float = 0.0
    launches: float | None = None
    bytes: float | None = None
    peak: float | None = None
    why: str = ""
    beyond: bool = False
    rows: Rows = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()


def figures(rows: Rows, eager: Rows) -> dict[str, Any]:
    """Return speed-up, its spread, and shares of eager's launches, bytes and peak, as geometric means over models.

    Empty if a model has no time.
    """
    if not rows or any(not row.get("ratio") for row in rows.values()):
        return {}
    relative = [row["spread"] / row["seconds"] / 2 for row in rows.values()]
    return {
        "speedup": _mean([1 / row["ratio"] for row in rows.values()]),
        "spread": math.sqrt(sum(deviation * deviation for deviation in relative)) / len(relative),
    } | {quantity: _share(rows, eager, quantity) for quantity in ("launches", "bytes", "peak")}


def _mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _share(rows: Rows, eager: Rows, quantity: str) -> float | None:
    pairs = [(row.get(quantity), eager[model].get(quantity)) for model, row in rows.items()]
    ratios = [value / base for value, base in pairs if value and base]
    return _mean(ratios) if len(ratios) == len(pairs) else None


def standing(name: str, rows: Rows, eager: Rows, late: bool = False, failure: str = "", **more: Any) -> Standing:
    """Return the line of an entry, not ranked yet."""
    reasons: dict[str, list[str]] = {}
    for model, row in rows.items():
        if row.get("missing"):
            reasons.setdefault(row["missing"], []).append(model)
    failures = [f"{', '.join(models)}: {reason}" for reason, models in reasons.items()]
    if failure or failures or not rows:
        return Standing(name, "failed", why=failure or " ".join(failures) or "Nothing was measured.", rows=rows, **more)
    state, reason = ("late", "Handed in after the due date.") if late else ("ranked", "")
    return Standing(name, state, why=reason, rows=rows, **figures(rows, eager), **more)


def beyond(rows: Rows, course: Rows) -> bool:
    """Return whether an entry has fewer launches than the course's compiler on a model, and on none more launches or
    bytes. `course`: model → its row, of all models.
    """
    if not rows or any(
        not row.get("launches") or not course.get(model, {}).get("launches") for model, row in rows.items()
    ):
        return False
    within = all(
        row[quantity] <= course[model][quantity] for model, row in rows.items() for quantity in ("launches", "bytes")
    )
    return within and any(row["launches"] < course[model]["launches"] for model, row in rows.items())


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """Return the standings in the order of the page, with ranks: the ranked, the late, the failed, the withdrawn."""
    racing = [one for one in standings if one.state == "ranked"]
    for one in racing:
        one.rank = 1 + sum(_faster(other, one) for other in racing)
    for one in racing:
        one.tied = any(not _faster(one, other) and not _faster(other, one) for other in racing if other is not one)
    place = {"ranked": 0, "late": 1, "failed": 2, "withdrawn": 3}
    return sorted(standings, key=lambda s: (place[s.state], s.rank or 0, -(s.speedup or 0), s.name))


def _faster(one: Standing, other: Standing) -> bool:
    assert one.speedup and other.speedup, "only ranked entries are compared"
    return math.log(one.speedup / other.speedup) > one.spread + other.spread


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names on the Pareto front, the fastest first: no other point is as good in both and better in one."""
    best: list[str] = []
    least = math.inf
    for name, (_, memory) in sorted(points.items(), key=lambda item: item[1]):
        if memory < least:
            best.append(name)
            least = memory
    return best
