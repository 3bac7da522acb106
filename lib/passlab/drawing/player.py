"""A picture with several states, one at a time: buttons and arrow keys in plain HTML and CSS.

player([State("one", "<b>1/2</b>", "ON .a{display:block}"), …], picture)     # no kernel, no scripts, nothing to load
live(…)                                                                      # ipywidgets: drag it, or let it play
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from passlab.drawing.picture import BLUE, CARD, INK, PALE, escape

#: The frame of the picture, with or without buttons.
_FRAME = f"""#ID{{color:{INK};background:#fff;color-scheme:light;border-radius:8px;padding:2px 6px;
font:14px/1.8 Helvetica,Arial,sans-serif}}"""
_BUTTONS = f"""
#ID>input{{margin:4px 3px;accent-color:{BLUE};cursor:pointer;vertical-align:middle}}
#ID .bars>div{{display:none;color:{INK}}}
#ID .bars{{background:#f5f5f5;border:1px solid #ddd;border-radius:8px;padding:6px 8px}}
#ID .bars label{{display:inline-block;cursor:pointer;background:#fff;border:1px solid #bbb;border-radius:6px;
padding:0 10px;margin:0 6px 0 0;user-select:none}}
#ID .bars label.end{{color:{PALE};background:none;border-style:dashed;cursor:default}}
#ID small{{color:{PALE};padding-left:6px}}
"""
_TRACK = f"""
#ID>.track{{display:flex;max-width:40rem;margin:6px 0}}
#ID>.track>label{{flex:1;height:14px;background:{BLUE};cursor:pointer;border-right:1px solid #fff}}
#ID>input{{position:absolute;opacity:0}}
#ID>input:focus-visible~.track{{outline:2px solid {BLUE};outline-offset:2px}}
"""


class State(NamedTuple):
    """A state of a picture. `name`: for screen readers. `caption`: HTML beside the buttons. `rules`: CSS that shows it,
    in which ON stands for the selector of the player in this state."""

    name: str
    caption: str
    rules: str


def player(
    states: Sequence[State], picture: str, style: str = "", title: str = "", start: int = 0, track: bool = False
) -> str:
    """Return HTML of a picture that shows one state at a time.

    `style`: CSS of the picture, in which #ID stands for the player. `track`: a bar with a segment for each state and a
    button to the first, in place of radio buttons. The picture is in an element of the class "card".
    """
    one = f"pl{uuid.uuid4().hex[:8]}"  # new at every call, so that a player can stand on a page twice
    ways = [(0, "◂◂")] * track
    rules, radios, places, bars = [], [], [], []
    for i, state in enumerate(states):
        on, name = f"#{one}-{i}:checked~", escape(state.name or f"{i + 1} of {len(states)}")
        rules.append(f"{on}.bars .at{i}{{display:block}}{state.rules.replace('ON', on)}")
        start_here = " checked" if i == start else ""
        keys = 'data-lm-suppress-shortcuts="true"'  # JupyterLab then passes the arrow keys to the player
        radios.append(
            f'<input type="radio" name="{one}" id="{one}-{i}" title="{name}" aria-label="{name}" {keys}{start_here}>'
        )
        if track:
            rules.append(f"{on}.track>label:nth-child(n+{i + 2}){{background:#ddd}}")
            places.append(f'<label for="{one}-{i}" title="{name}"></label>')
        buttons = (
            f'<label for="{one}-{to}">{text}</label>' if 0 <= to < len(states) else f'<label class="end">{text}</label>'
            for to, text in (*ways, (i - 1, "◂ back"), (i + 1, "next ▸"))
        )
        bars.append(f'<div class="at{i}">{"".join(buttons)}{state.caption}</div>')
    css = (_FRAME + _BUTTONS + _TRACK * track + style).replace("#ID", f"#{one}") + "".join(rules)
    name = f'<div style="font-weight:bold">{escape(title)}</div>' if title else ""
    bar = f'<div class="track">{"".join(places)}</div>' if track else ""
    return (
        f'<div id="{one}"><style>{css}</style>{name}{"".join(radios)}{bar}'
        f'<div class="bars">{"".join(bars)}</div><div class="card" tabindex="0" style="{CARD}">{picture}</div></div>'
    )


def live(count: int, start: int, at: Callable[[int], tuple[str, str]], picture: str, style: str = "") -> Any:
    """Return a player as an ipywidgets widget that plays by itself; it needs a running kernel.

    `at(i)`: CSS that shows state i, with #ID as in `player`, and its caption.
    """
    import ipywidgets as widgets

    one, last = f"pl{uuid.uuid4().hex[:8]}", count - 1
    play = widgets.Play(min=0, max=last, value=start, interval=max(80, min(600, 12000 // count)))
    bar = widgets.IntSlider(min=0, max=last, value=start, description="time", readout=False)
    widgets.jslink((play, "value"), (bar, "value"))
    rendered, caption = widgets.HTML(), widgets.Label()

    def show(change: Any = None) -> None:
        rules, caption.value = at(bar.value)
        rendered.value = f"<style>{(_FRAME + style + rules).replace('#ID', f'#{one}')}</style>"

    show()
    bar.observe(show, "value")
    card = widgets.HTML(f'<div id="{one}"><div class="card" style="{CARD}">{picture}</div></div>')
    return widgets.VBox([widgets.HBox([play, bar, caption]), rendered, card])
