"""The same machine, word by word and cycle by cycle: slow, plain, and what `simulate` is tested against."""

from __future__ import annotations

from passlab.wafer.program import Program


def stepped(program: Program, limit: int = 100_000) -> list[int]:
    """Return, for each message, the cycle after which its last word had been processed at its last core.

    RuntimeError if nothing moves any more, or after `limit` cycles.
    """
    ramp = program.machine.ramp
    routes = [program.cores[a:b].tolist() for a, b in zip(program.offsets, program.offsets[1:], strict=False)]
    drops = [program.drops[a:b].tolist() for a, b in zip(program.offsets, program.offsets[1:], strict=False)]
    words, work = program.words.tolist(), program.work.tolist()
    every = range(len(routes))
    parents = [[(p, s) for c, p, s in zip(program.child, program.parent, program.stream, strict=True) if c == m] for m in every]  # fmt: skip  # noqa: E501
    # passed[m][k]: the cycles in which the words of m left the k-th router of its route
    passed = [[[] for _ in route] for route in routes]
    owner: dict[tuple, int] = {}
    requests: dict[tuple, list[tuple[int, int]]] = {}

    def needs(m: int, k: int) -> list[tuple]:
        route = routes[m]
        link = [("link", route[k], route[k + 1])] if k + 1 < len(route) else []
        return link + ([("down", route[k])] if drops[m][k] else [])

    def processed(m: int, core: int, word: int) -> int | None:
        """Return the cycle in which a word is processed at a core, if that is known."""
        times = passed[m][routes[m].index(core)]
        return times[word] + ramp if word < len(times) else None

    def supply(m: int, word: int) -> int | None:
        """Return the cycle in which the source can send a word, if that is known."""
        source, ready = routes[m][0], 0
        for parent, streamed in parents[m]:
            seen = processed(parent, source, 0 if streamed else words[parent] - 1)
            if seen is None:
                return None
            ready = max(ready, seen if streamed else seen + 1)
        time = ready + work[m] + word
        for parent, streamed in parents[m]:
            if streamed:
                seen = processed(parent, source, word)
                if seen is None:
                    return None
                time = max(time, seen)
        return time

    def ask(now: int, m: int, what: tuple) -> None:
        if owner.get(what) != m and all(who != m for _, who in requests.setdefault(what, [])):
            requests[what].append((now, m))

    def grant() -> None:
        for what, waiting in requests.items():
            if what not in owner and waiting:
                owner[what] = min(waiting)[1]
                waiting.remove(min(waiting))

    for now in range(limit):
        if all(len(passed[m][-1]) == words[m] for m in every):
            return [passed[m][-1][-1] + ramp + 1 for m in every]
        for m in every:  # the last word passed in the cycle before: free what it left
            for k, times in enumerate(passed[m]):
                if len(times) == words[m] and times[-1] == now - 1:
                    for what in [*needs(m, k), *([("gate", routes[m][0])] if k == 0 else [])]:
                        del owner[what]
        for m in every:
            first = supply(m, 0)
            if first is not None and first + ramp + 1 == now:
                ask(now, m, ("gate", routes[m][0]))
        grant()
        for m in every:
            if owner.get(("gate", routes[m][0])) == m and not passed[m][0]:
                for what in needs(m, 0):
                    ask(now, m, what)
            for k in range(1, len(routes[m])):
                if passed[m][k - 1] and passed[m][k - 1][0] == now - 1:
                    for what in needs(m, k):
                        ask(now, m, what)
        grant()
        for m in every:
            for k in reversed(range(len(routes[m]))):
                word = len(passed[m][k])
                if word == words[m] or any(owner.get(what) != m for what in needs(m, k)):
                    continue
                if k == 0:
                    at = supply(m, word)
                    arrived = at is not None and at + ramp + 1 <= now
                else:
                    arrived = word < len(passed[m][k - 1]) and passed[m][k - 1][word] < now
                room = k + 1 == len(routes[m]) or word == len(passed[m][k + 1])
                if arrived and room:
                    passed[m][k].append(now)
    raise RuntimeError(f"The program has not ended after {limit} cycles.")
