"""The types of the names in `HOME`, which this package imports when they are first used."""

from passlab import models as models
from passlab.capture import backend as backend
from passlab.drawing import chart as chart
from passlab.drawing import diff as diff
from passlab.drawing import draw as draw
from passlab.drawing import steps as steps
from passlab.equivalence import equivalent as equivalent
from passlab.equivalence import shrink as shrink
from passlab.explorer import explore as explore
from passlab.fx.generate import random_graph as random_graph
from passlab.fx.reader import trace as trace
from passlab.graph import view as view
from passlab.measure import bytes_moved as bytes_moved
from passlab.measure import cost as cost
from passlab.measure import launches as launches
from passlab.measure import peak_memory as peak_memory
from passlab.measure import timed as timed
from passlab.notebook.guesses import guess as guess
from passlab.notebook.milestones import milestones as milestones
from passlab.notebook.overview import progress as progress
from passlab.notebook.reviews import answer as answer
from passlab.notebook.reviews import fast_track as fast_track
from passlab.notebook.reviews import review as review
from passlab.notebook.ui import check as check
from passlab.notebook.ui import hint as hint
from passlab.notebook.ui import smaller as smaller
from passlab.notebook.ui import solution as solution

__version__: str
HOME: dict[str, str]
_MODULES: tuple[str, ...]
__all__: list[str]
