"""An explorer as a widget of JupyterLab, as a page without a kernel, and as text."""

from __future__ import annotations

import html
import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from passlab.drawing.boxes import fit, heading
from passlab.drawing.picture import size
from passlab.explorer.passes import language
from passlab.explorer.states import Key, State, States
from passlab.process.error_text import reason

#: Where this variable is set, an explorer is shown as a page that needs no kernel: in the book.
RECORDED = "PASSLAB_RECORDED"
#: Up to this number of passes, a page has every choice of them; beyond, the first few, and all but one.
ALL_CHOICES = 5
#: A graph of more nodes is drawn on request.
DRAWN = 120
_HERE = Path(__file__).parent


def explore(model: Any, *inputs: Any, passes: Sequence[str | Callable[[Any], Any]] | None = None) -> Explorer:
    """Explore what passes do to a program: in any order, each on or off.

        explore(model, x)                            # every pass of the catalogue, all off
        explore(model, x, passes=[my_cse, "dce"])    # these are on; the rest of the catalogue follows
        print(explore(model, x, passes=[my_cse]))    # in words

    model: a torch module or function, which is traced, or a value of any IR; it is not changed. passes: functions from
    a program to a program, or names from the catalogue of its IR: this course's and torch's passes, TVM's, MLIR's.
    "to_relax", "to_relay" and "to_mlir" convert a torch program; passes of the other IR follow: "relax.FuseOps".
    After each pass: the difference to the program before, the cost, and whether it computes the same as the first. A
    pass that raises, or returns no program, is shown with the reason. Raises ValueError for an unknown name or a model
    that cannot be traced.
    """
    return Explorer(States(model, inputs, passes))


class Explorer:
    """The result of `explore`. `text` says all that the widget shows; `html` is a page with its states."""

    def __init__(self, states: States):
        self.states = states
        graph = states.first.program.graph
        self.title = f"Passes on {graph.name}"
        self.on: Key = tuple(range(states.on))

    def __repr__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        """The source, the passes that are on, and each state: cost, verdict, and what changed, with its lines."""
        states = self.states
        lines = [self.title, "", "Source"]
        for line in states.source.lines:
            lines += [f"  {line.title}"] if line.title else []
            lines.append(f"  {line.number:>4}  {line.text}")
        lines += ["", f"Passes: {self._code(self.on)}"]
        reached = {language(states.first.program.value), *(item.gives for item in states.passes[: states.on])}
        others = [item.name for item in states.passes[states.on :] if item.takes in reached]
        lines += [f"Off: {', '.join(others)}"] if others else []
        for n in range(len(self.on) + 1):
            lines += ["", *self._step(self.on[:n])]
        return "\n".join(lines)

    def _step(self, key: Key) -> Iterator[str]:
        state, states = self.states.state(key), self.states
        name = f"{len(key)} {states.passes[key[-1]].name}" if key else f"0 start: {heading(state.program.graph)}"
        if key and not state.changed:
            yield f"{name}: {state.problem or 'changes nothing'}"
            return
        yield f"{name}: {state.summary}" if key else f"{name}{f'. {state.problem}' if state.problem else ''}"
        costs = states.figures(state)
        yield f"  {_number(costs.nodes)} nodes, {_number(costs.launches)} launches, " + (
            f"{size(costs.bytes) or '?'} moved, {size(costs.peak) or '?'} at the peak"
        )
        if key:
            yield f"  {states.verdict(state)[1]}"
        rows = [row for row in state.rows if row.sign or not state.boxes]
        yield from fit([f"  {row.sign or ' '} {row.text}{self._whence(row)}" for row in rows])
        if key and (unchanged := len(state.rows) - len(rows)):
            yield f"    {unchanged} unchanged"

    def _whence(self, row: Any) -> str:
        source = self.states.source.lines
        numbers = ", ".join(str(source[i].number) for i in self.states.lines(row))
        return f"  {row.changes}".rstrip() + (f"  ← {numbers}" if numbers else "")

    def _code(self, key: Key) -> str:
        """Return a list of passes in Python, as an answer may name them."""
        return f"[{', '.join(self.states.passes[i].code for i in key)}]"

    def data(self, keys: Sequence[Key], live: bool) -> dict[str, Any]:
        """Return what the script needs to show the states of some keys."""
        states = self.states
        one: dict[int, tuple[int, State]] = {}
        steps = {}
        for key in keys:
            state = states.state(key)
            one.setdefault(id(state), (len(one), state))
            steps[_name(key)] = one[id(state)][0]
        listed = states.passes if live else states.passes[: states.on]
        return {
            "title": self.title,
            "live": live,
            "drawn": DRAWN,
            "source": [[line.number, line.text, line.title] for line in states.source.lines],
            "passes": [[item.name, item.code, item.about, item.takes, item.gives] for item in listed],
            "language": language(states.first.program.value),
            "on": states.on,
            "steps": steps,
            "states": [self.told(state, live) for _, state in one.values()],
        }

    def told(self, state: State, live: bool) -> dict[str, Any]:
        """Return a state for the script. A live one gets its verdict, figures and picture later."""
        if not state.changed:
            return {"say": state.problem or "changes nothing", "failed": bool(state.problem), "same": True}
        states, program = self.states, state.program
        rows = [[row.sign, row.id, row.text, row.changes, states.lines(row), states.module(row)] for row in state.rows]
        recorded = not live and len(program.graph) <= DRAWN
        return {
            "say": state.summary or heading(program.graph),
            "failed": bool(state.problem),
            "figures": None if live else list(states.figures(state)),
            "verdict": None if live else states.verdict(state),
            "picture": state.picture.html if recorded else None,
            "rows": rows,
        }

    @cached_property
    def widget(self) -> Any:
        """The widget; it asks this process for the states of passes that are switched on."""
        import anywidget
        import traitlets

        class Widget(anywidget.AnyWidget):
            _esm = f"{_script()}\nexport default {{ render({{ model, el }}) {{ live(model, el); }} }};"
            _css = (_HERE / "explorer.css").read_text(encoding="utf-8")
            data = traitlets.Dict().tag(sync=True)

        widget = Widget(data=self.data([self.on[:n] for n in range(len(self.on) + 1)], True))
        widget.on_msg(lambda sender, message, buffers: sender.send(self.answer(message)))
        return widget

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer the script: `what` is "state", "verdict", "figures" or "picture" of the state of a `key`."""
        question, key = message["what"], message["key"]
        try:
            state = self.states.state(tuple(int(i) for i in key.split(",") if i))
            if question == "state":
                value: Any = self.told(state, True)
            elif question == "figures":
                value = list(self.states.figures(state))
            else:
                value = self.states.verdict(state) if question == "verdict" else state.picture.html
        except Exception as error:
            return {"what": "error", "key": key, "value": f"{type(error).__name__}: {reason(error)}"}
        return {"what": question, "key": key, "value": value}

    @property
    def html(self) -> str:
        """A page without a kernel: every choice of up to five passes; of more, the first few, and all but one."""
        one = f"explorer{uuid.uuid4().hex[:8]}"
        data = json.dumps(self.data(recorded(self.states.on), False), separators=(",", ":")).replace("<", "\\u003c")
        style = (_HERE / "explorer.css").read_text(encoding="utf-8")
        show = f'explorer(document.getElementById("{one}"), {data}, null);'
        text = f"<noscript><pre>{html.escape(self.text)}</pre></noscript>"
        return f'<style>{style}</style><div id="{one}">{text}</div><script>(() => {{{_script()}{show}}})();</script>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        if os.environ.get(RECORDED):
            return {"text/html": self.html, "text/plain": self.text}
        bundle = self.widget._repr_mimebundle_(include=include, exclude=exclude)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        hint = "It needs a running kernel, and JupyterLab with anywidget; print(explore(…)) shows it as text."
        return ({**data, "text/plain": f"{self.title}. {hint}"}, *rest) if rest else {**data, "text/plain": hint}


def recorded(count: int) -> list[Key]:
    """Return the keys of a page: choices of passes in their order, and what leads there."""
    every = range(count)
    if count <= ALL_CHOICES:
        return [key for n in range(count + 1) for key in itertools.combinations(every, n)]
    full = [tuple(every), *(tuple(i for i in every if i != out) for out in every)]
    return sorted({key[:n] for key in full for n in range(len(key) + 1)}, key=lambda key: (len(key), key))


def _script() -> str:
    return (_HERE / "explorer.js").read_text(encoding="utf-8")


def _name(key: Key) -> str:
    return ",".join(map(str, key))


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"
