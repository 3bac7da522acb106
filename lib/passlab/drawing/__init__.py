"""Pictures of graphs, for notebooks and for text.

    draw(gm)                                  # op, shape, dtype and bytes of every node, coloured by kind
    diff(before, after)                       # kept, added, removed, rewired, altered
    steps((gm, [node.name], "match") for …)   # a pass, match by match
    chart("bytes moved", {"before": 4096, "after": 1024}, "B")
    waterfall("kernels", {"as traced": 71, "folded": 51, "fused": 18})    # the change of each step
    roofline({"eager": (flops, nbytes, seconds)}, machine)       # programs under the roofs of a machine
    traffic({"eager": {"mul": 8e6, "add": 8e6}, "fused": {"mul_add": 8e6}})
    lattice(program, schedule, {"N": 6})      # iterations coloured by time; plot(…) does it for plain data
    slider(program, schedule, {"N": 6})       # the same, step by step
    gantt(buffers)                            # live ranges; arena(buffers, offsets) and arenas(…): offsets
    heat(cores, links)                        # the load of a mesh; placements(…): operations on cores
    playback(rows, columns, frames)           # a mesh over time, frame by frame
    flow(program, solution)                   # blocks of a control-flow graph, and the facts on its edges
    flow_steps(program, solution)             # a dataflow solver, visit by visit
    hasse(facts, merge)                       # the lattice of some facts
    joint_graph(forward, backward)            # a training step, with the cut between forward and backward graph

Reading order: `picture` (the result of all of these, and elements of SVG), `boxes` (the text on a node, and boxes as
DOT), `graphs` (draw), `difference` (diff), `player` (one of several states), `stepping` (steps), `axes` (pictures by
matplotlib), `charts` (chart), `waterfall` (waterfall), `roofline` (roofline, traffic), `lattice` (plot, lattice),
`timeline` (slider), `memory` (gantt, arena, arenas), `usage` (memory over time), `cachelines` (accesses of a warp and
of a loop), `mesh` (heat, placements, playback), `flow` (flow, flow_steps, hasse), `training` (joint_graph). `grouping`
draws a big graph in few boxes. Graphviz lays out the graphs: E. R. Gansner, E. Koutsofios, S. C. North, K.-P. Vo, "A
Technique for Drawing Directed Graphs", IEEE TSE 1993.
"""

from passlab.drawing.charts import chart
from passlab.drawing.difference import diff
from passlab.drawing.flow import FlowSteps, flow, flow_steps, hasse
from passlab.drawing.graphs import draw
from passlab.drawing.lattice import Lattice, lattice, plot
from passlab.drawing.memory import arena, arenas, gantt
from passlab.drawing.mesh import Frame, Playback, heat, placements, playback
from passlab.drawing.picture import Picture
from passlab.drawing.roofline import roofline, traffic
from passlab.drawing.stepping import Steps, steps
from passlab.drawing.timeline import Slider, slider
from passlab.drawing.training import joint_graph
from passlab.drawing.waterfall import waterfall

__all__ = ["FlowSteps", "Frame", "Lattice", "Picture", "Playback", "Slider", "Steps", "arena", "arenas", "chart"]
__all__ += [
    "diff",
    "draw",
    "flow",
    "flow_steps",
    "gantt",
    "hasse",
    "heat",
    "joint_graph",
    "lattice",
    "placements",
    "playback",
    "plot",
]
__all__ += ["roofline", "slider", "steps", "traffic", "waterfall"]
