"""How much extra credit counts in the grades that leave this project."""

from __future__ import annotations

from traitlets import Bool, Float
from traitlets.config import Configurable


class ExtraCredit(Configurable):
    """What points for stretch questions add to a grade in canvas.csv and moodle.csv.

    The gradebook, the report and the feedback have them in full, apart from those of the core.
    """

    weight = Float(1.0, min=0.0, help="What a point of extra credit counts, such as 0.5.").tag(config=True)
    most = Float(
        None, allow_none=True, min=0.0, help="The most it adds, as a share of the core's maximum: 0.1 is a tenth."
    ).tag(config=True)
    own_column = Bool(False, help="Export it as a column of its own, and grades without it.").tag(config=True)

    def counted(self, points: float, core: float) -> float:
        """Return what these points of extra credit count. core: the maximum of the core."""
        weighted = self.weight * points
        return weighted if self.most is None else min(weighted, self.most * core)
