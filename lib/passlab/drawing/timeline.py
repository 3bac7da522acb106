"""A slider through schedule time: which points have run, which run now. It works on a page without a kernel.

    slider(program, schedule, {"N": 6})            # HTML and CSS alone
    slider(program, schedule, {"N": 6}).live()     # ipywidgets: drag it, or let it play

Every point carries its step (`--t` in its style) and the picture the current one (`--now`): CSS compares them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from passlab.drawing.lattice import Lattice, Scene, scene_of, told
from passlab.drawing.picture import BLUE, CARD, INK, PALE, escape

#: A slider has at most this many places; with more steps, each place covers several.
PLACES = 100

_CSS = f"""
#ID{{color:{INK};font:14px/1.8 Helvetica,Arial,sans-serif;--now:0}}
#ID .pt{{opacity:clamp(.13,calc(var(--now) - var(--t) + 1),1)}}
#ID .dep{{opacity:clamp(0,calc(var(--now) - var(--t) + 1),1)}}
#ID .pt circle{{stroke-width:clamp(1px,calc(4px - 9px*max(var(--from) - var(--t),var(--t) - var(--now))),4px)}}
"""
_BUTTONS = f"""
#ID>.track{{display:flex;max-width:40rem;margin:6px 0}}
#ID>.track>label{{flex:1;height:14px;background:{BLUE};cursor:pointer;border-right:1px solid #fff}}
#ID>input{{position:absolute;opacity:0}}
#ID>input:focus-visible~.track{{outline:2px solid {BLUE};outline-offset:2px}}
#ID .said{{display:none;background:#f5f5f5;border:1px solid #ddd;border-radius:8px;padding:6px 8px}}
#ID .said label{{display:inline-block;cursor:pointer;background:#fff;border:1px solid #bbb;border-radius:6px;
padding:0 10px;margin:0 6px 0 0;user-select:none}}
#ID .said label.end{{opacity:.4;cursor:default}}
#ID small{{color:{PALE};padding-left:6px}}
"""


class Slider(Lattice):
    """A lattice with a slider. It displays as HTML that needs no kernel; `live()` returns a widget instead."""

    suffixes = (".html", ".txt")

    def __init__(self, scene: Scene, title: str = ""):
        super().__init__(scene, title)
        self.by = -(-(scene.last + 1) // PLACES)
        self.count = -(-(scene.last + 1) // self.by)

    def at(self, place: int) -> tuple[int, int, str]:
        """Return the first and last step of a place, and a sentence on what runs there."""
        first, last = place * self.by, min((place + 1) * self.by - 1, self.scene.last)
        now = [told(it) for it, step in self.scene.step.items() if first <= step <= last]
        done = sum(step <= last for step in self.scene.step.values())
        steps = f"Step {first}" if first == last else f"Steps {first} to {last}"
        more = f" and {len(now) - 6} more" if len(now) > 6 else ""
        return first, last, f"{steps}: {', '.join(now[:6])}{more} ({done} of {len(self.scene.step)} have run)"

    @property
    def html(self) -> str:
        one = f"pl{uuid.uuid4().hex[:8]}"  # new at every call, so that a slider can stand on a page twice
        rules, radios, track, said = [], [], [], []
        for place in range(self.count):
            first, last, words = self.at(place)
            words = escape(words)
            on = f"#{one}-{place}:checked~"
            rules.append(f"{on}.card{{--now:{last};--from:{first}}}{on}.said.at{place}{{display:block}}")
            rules.append(f"{on}.track>label:nth-child(n+{place + 2}){{background:#ddd}}")
            keys = 'data-lm-suppress-shortcuts="true"'  # JupyterLab leaves the arrow keys to the slider
            start = " checked" if place == self.count - 1 else ""
            radios.append(f'<input type="radio" name="{one}" id="{one}-{place}" title="{words}" {keys}{start}>')
            track.append(f'<label for="{one}-{place}" title="{words}"></label>')
            buttons = (
                f'<label for="{one}-{to}">{text}</label>'
                if 0 <= to < self.count
                else f'<label class="end">{text}</label>'
                for to, text in ((0, "◂◂"), (place - 1, "◂ back"), (place + 1, "next ▸"))
            )
            said.append(f'<div class="said at{place}">{"".join(buttons)}<small>{words}</small></div>')
        style = (_CSS + _BUTTONS).replace("ID", one) + "".join(rules)
        return (
            f'<div id="{one}"><style>{style}</style>{"".join(radios)}<div class="track">{"".join(track)}</div>'
            f'{"".join(said)}<div class="card" style="{CARD}">{self.svg}</div></div>'
        )

    def live(self) -> Any:
        """Return the slider as an ipywidgets widget with a play button. It needs a running kernel."""
        import ipywidgets as widgets

        one = f"pl{uuid.uuid4().hex[:8]}"
        last = self.count - 1
        play = widgets.Play(min=0, max=last, value=last, interval=max(80, min(600, 12000 // self.count)))
        bar = widgets.IntSlider(min=0, max=last, value=last, description="time", readout=False)
        widgets.jslink((play, "value"), (bar, "value"))
        style, said = widgets.HTML(), widgets.Label()

        def show(change: Any = None) -> None:
            first, until, words = self.at(bar.value)
            style.value = f"<style>{_CSS.replace('ID', one)}#{one}>.card{{--now:{until};--from:{first}}}</style>"
            said.value = words

        show()
        bar.observe(show, "value")
        picture = widgets.HTML(f'<div id="{one}"><div class="card" style="{CARD}">{self.svg}</div></div>')
        return widgets.VBox([widgets.HBox([play, bar, said]), style, picture])


def slider(
    program: Any,
    schedule: Any,
    sizes: Mapping[str, int],
    dependences: Any = None,
    tiles: int | None = None,
    violated: tuple[str, str] | None = None,
    fronts: int | None = None,
    title: str = "",
) -> Slider:
    """Draw the picture of `lattice` step by step: points that have run are coloured, current ones have a thick edge."""
    return Slider(scene_of(program, schedule, sizes, dependences, tiles, violated, fronts), title)
