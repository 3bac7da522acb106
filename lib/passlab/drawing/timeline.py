"""A slider through schedule time: past and current points. It works on a page without a kernel.

    slider(program, schedule, {"N": 6})            # HTML and CSS alone
    slider(program, schedule, {"N": 6}).live()     # ipywidgets: drag it, or let it play

The style of a point has its step (`--t`), that of the picture the current one (`--now`), and CSS compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from passlab.drawing.lattice import Lattice, Scene, scene_of, spell
from passlab.drawing.picture import escape
from passlab.drawing.player import State, live, player

#: Maximum number of places of a slider; with more steps, each place covers several.
PLACES = 100

_CSS = """
#ID{--now:0}
#ID .pt{opacity:clamp(.13,calc(var(--now) - var(--t) + 1),1)}
#ID .dep{opacity:clamp(0,calc(var(--now) - var(--t) + 1),1)}
#ID .pt circle{stroke-width:clamp(1px,calc(4px - 9px*max(var(--from) - var(--t),var(--t) - var(--now))),4px)}
"""


class Slider(Lattice):
    """A lattice with a slider. It displays as HTML that needs no kernel; `live()` returns a widget instead."""

    suffixes = (".html", ".txt")

    def __init__(self, scene: Scene, title: str = ""):
        super().__init__(scene, title)
        self.by = -(-(scene.last + 1) // PLACES)
        self.count = -(-(scene.last + 1) // self.by)

    def at(self, place: int) -> tuple[int, int, str]:
        """Return the first and last step of a place, and a sentence with its points."""
        first, last = place * self.by, min((place + 1) * self.by - 1, self.scene.last)
        running = [spell(key) for key, step in self.scene.step.items() if first <= step <= last]
        count = sum(step <= last for step in self.scene.step.values())
        steps = f"Step {first}" if first == last else f"Steps {first} to {last}"
        rest = f" and {len(running) - 6} more" if len(running) > 6 else ""
        return first, last, f"{steps}: {', '.join(running[:6])}{rest} ({count} of {len(self.scene.step)} have run)"

    @property
    def html(self) -> str:
        states = []
        for place in range(self.count):
            first, last, words = self.at(place)
            rules = f"ON.card{{--now:{last};--from:{first}}}"
            states.append(State(words, f"<small>{escape(words)}</small>", rules))
        return player(states, self.svg, _CSS, start=self.count - 1, track=True)

    def live(self) -> Any:
        """Return the slider as an ipywidgets widget with a play button. It needs a running kernel."""

        def at(place: int) -> tuple[str, str]:
            first, last, words = self.at(place)
            return f"#ID>.card{{--now:{last};--from:{first}}}", words

        return live(self.count, self.count - 1, at, self.svg, _CSS)


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
