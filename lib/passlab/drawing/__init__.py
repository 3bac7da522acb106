"""Pictures of graphs, for notebooks and for text.

    draw(gm)                                  # op, shape, dtype and bytes of every node, coloured by kind
    diff(before, after)                       # kept, added, removed, rewired, altered
    steps((gm, [node.name], "match") for …)   # a pass, match by match
    chart("bytes moved", {"before": 4096, "after": 1024}, "B")
    roofline({"eager": (flops, nbytes, seconds)}, machine)       # programs under the roofs of a machine
    traffic({"eager": {"mul": 8e6, "add": 8e6}, "fused": {"mul_add": 8e6}})
    lattice(program, schedule, {"N": 6})      # iterations coloured by time; plot(…) does it for plain data
    slider(program, schedule, {"N": 6})       # the same, step by step

Reading order: `picture` (what all of these return), `boxes` (the text on a node, and how boxes become DOT),
`graphs` (draw, diff), `stepping` (steps), `axes` (pictures by matplotlib), `charts` (chart), `roofline` (roofline,
traffic), `lattice` (plot, lattice), `timeline` (slider). `matching` pairs the nodes of two graphs, `grouping` draws a
big graph in few boxes. The layout of graphs is Graphviz's: E. R. Gansner, E. Koutsofios,
S. C. North, K.-P. Vo, "A Technique for Drawing Directed Graphs", IEEE TSE 1993.
"""

from passlab.drawing.charts import chart
from passlab.drawing.graphs import diff, draw
from passlab.drawing.lattice import Lattice, lattice, plot
from passlab.drawing.picture import Picture
from passlab.drawing.roofline import roofline, traffic
from passlab.drawing.stepping import Steps, steps
from passlab.drawing.timeline import Slider, slider

__all__ = ["Lattice", "Picture", "Slider", "Steps", "chart", "diff", "draw"]
__all__ += ["lattice", "plot", "roofline", "slider", "steps", "traffic"]
