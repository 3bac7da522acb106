"""Day 5, memory: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"memory": "torch"}

EXERCISES = (
    Exercise(
        id="day05.liveness",
        title="Live ranges",
        section="Live ranges",
        points={"valid": 1, "did": 4, "spared": 3},
        difficulty=2,
        minutes=35,
        hints=(
            "Run the graph with an fx.Interpreter whose run_node notes the step and the storages that the node "
            "touches: those of its operands, self.env[operand], and of its value. tree_leaves finds the tensors in a "
            "value, whether it is one tensor or a tuple.",
            "t.untyped_storage().data_ptr() identifies a storage as long as it is not freed, so keep every value: "
            "fx.Interpreter(gm, garbage_collect_values=False). A node made a storage if nothing before it touched it.",
            "Keep a dictionary data_ptr → [name, first step, last step, bytes]. Put the storages of the inputs, of "
            "gm.parameters() and of gm.buffers() in a set that is left alone, and leave out storages of 0 bytes. The "
            "output node is a node like any other, so what it returns lives to the last step.",
        ),
        helps={"valid": 3, "did": 2, "spared": 3},
        closed=(
            "passlab.memory.storages.storages",
            "passlab.memory.storages.recorded",
            "passlab.memory.storages._Recorder",
            "passlab.memory.liveness.liveness",
            "passlab.memory.liveness.ranges",
        ),
    ),
    Exercise(
        id="day05.offsets",
        title="Offsets in an arena",
        section="Offsets",
        points={"valid": 2, "did": 3, "spared": 2, "cost": 3},
        difficulty=3,
        minutes=35,
        hints=(
            "Place the buffers one after the other, largest first, each at the lowest offset where it meets no buffer "
            "that is already placed and lives at the same time. That is first fit. Round an offset up after you have "
            "found where the buffer below ends.",
            "Two buffers meet in time if a.lower < b.upper and b.lower < a.upper. To find a hole, go through the "
            "placed ones that meet the new one in time, by offset: floor = 0, and for each of them, if the new one "
            "ends at or below its offset, stop; otherwise floor = max(floor, its end), rounded up.",
            "No order is good everywhere: try several and keep the lowest arena. And try the other greedy rule, which "
            "chooses the buffer by its place: for each buffer that is left keep the lowest offset above all placed "
            "ones that it meets, and always place the buffer for which that is lowest. Break ties by start, by end, "
            "by area, by duration.",
        ),
        meaning={
            "valid": "no two live buffers overlap, and all are aligned",
            "did": "a model's arena is small enough",
            "spared": "no byte is wasted where that is easy",
            "cost": "a hard instance's arena is small enough",
        },
        helps={"valid": 1, "did": 2, "spared": 2, "cost": 3},
        closed=(
            "passlab.memory.allocate.first_fit",
            "passlab.memory.allocate.best_fit",
            "passlab.memory.allocate.colouring",
            "passlab.memory._fast.place",
            "passlab.memory.search.lowest_first",
            "passlab.memory.search.search",
            "passlab.memory.exact.exact",
            "passlab.memory.sections.smallest",
            "passlab.memory.sections.within",
            "passlab.memory.sections._Search",
        ),
    ),
    Exercise(
        id="day05.coalescing",
        title="The transactions of a warp",
        section="Memory transactions",
        points={"valid": 1, "did": 2, "spared": 2},
        difficulty=1,
        minutes=15,
        hints=(
            "Which bytes does a lane access? Which blocks of 32 bytes contain them, and which of 128?",
            "A lane that begins at byte a accesses the bytes a to a + size - 1. The block of byte b is number b // 32. "
            "A block counts once, however many lanes access it: collect the numbers in a set.",
            "{n for a in addresses if a is not None for n in range(a // 32, (a + size - 1) // 32 + 1)} are the "
            "sectors. Beware of `if a`: address 0 is an address.",
        ),
        helps={"did": 2, "spared": 2},
        closed=(
            "passlab.memory.cache.transactions",
            "passlab.memory.cache.touched",
            "passlab.drawing.cachelines.warp",
        ),
    ),
    Exercise(
        id="day05.reuse",
        title="Slots instead of offsets",
        section="TVM's planner",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3, "cost": 2},
        difficulty=2,
        minutes=35,
        stretch=True,
        hints=(
            "First find out how long the memory of each value is really needed: by itself, by its views, by the "
            "caller. Then go through the values as they are made. Which slots may the next one have?",
            "Go along view_of to the value that owns the memory, and keep for each owner the largest upper of all "
            "values in it; math.inf if one of them is an output. A slot is free for a value if its "
            "last owner is not needed beyond the value's lower. Only if no slot is free, open a new one.",
            "Besides the free slots a value may have slot[name] for each name in its elementwise, if that owner has "
            "a slot, no view, the same size and dtype, and is needed until lower + 1 exactly. Choose with "
            'min(slots, key=lambda s: (width[s] < value["size"], abs(width[s] - value["size"]))).',
        ),
        helps={"same": 1, "did": 2, "spared": 2, "cost": 3},
        closed=("passlab.memory.allocate.slots", "passlab.memory.allocate.colouring"),
    ),
    Exercise(
        id="day05.cache",
        title="Which loop order misses least?",
        section="Caches and the order of loops",
        points={"valid": 1, "did": 3, "spared": 3, "cost": 2},
        difficulty=2,
        minutes=30,
        stretch=True,
        hints=(
            "Run the nest on paper: itertools.permutations gives the orders, itertools.product the turns of an order. "
            "What does the cache have to remember about each of its sets?",
            "Keep a list of line numbers for each set, from the one that was used longest ago to the latest. A line "
            "that is found moves to the end. One that is not found is a miss: if the list is full, its first goes.",
            "For each order: begin with empty sets; for turn in product(*(range(loops[name]) for name in order)): for "
            "each access address = start + sum of steps[name] · the turn of that loop; line = address // cache['line'] "
            "belongs to set line % cache['sets'].",
        ),
        helps={"did": 2, "spared": 2, "cost": 3},
        closed=(
            "passlab.memory.cache.hits",
            "passlab.memory.cache.misses",
        ),
    ),
    Exercise(
        id="day05.order",
        title="An order with a low peak",
        section="The order changes the peak",
        points={"valid": 1, "did": 3, "cost": 4},
        difficulty=3,
        minutes=55,
        stretch=True,
        hints=(
            "Two questions in one: trees with many tasks, and graphs with few. For few tasks, how much memory is in "
            "use after some of them have run depends only on which, not on their order. How many such sets are there?",
            "Graphs: best peak of a set = the smaller of all ways to reach it by one more task, max(peak of the set "
            "before, bytes while that task runs). Trees: describe the best order of a subtree by segments (hill, "
            "valley): each climbs to the highest hill that is left, and ends at the lowest valley after it.",
            "Trees (Liu 1987): merge the segments of the children by hill - valley, the largest first, counting from "
            "what the other children hold at that time. Append the task itself, with hill = sizes of the children + "
            "size + scratch and valley = size. Then join two neighbours wherever the second hill is not lower or the "
            "second valley is not higher. Several outputs: merge their segments in the same way.",
        ),
        meaning={
            "did": "on graphs, the peak is nearly the lowest",
            "cost": "on trees, the peak is the lowest there is",
        },
        helps={"did": 2, "cost": 3},
        closed=(
            "passlab.memory.order.liu",
            "passlab.memory.order.search",
            "passlab.memory.order.beam",
            "passlab.memory.order.best_order",
        ),
    ),
    Exercise(
        id="day05.layout",
        title="A layout for each operation",
        section="Which layout?",
        points={"valid": 1, "did": 3, "cost": 3},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "Take the leaf of a tree. Its best layout depends on that of its only neighbour, and on nothing else. So "
            "for each layout of the neighbour you can say what the leaf costs, and take it out of the tree.",
            "In a graph, an operation with several neighbours can be taken out in the same way: for each combination "
            "of their layouts, note the least cost and which layout of its own gives it. That is a new table over the "
            "neighbours. Take out the operation with the fewest neighbours first.",
            "Keep a list of tables (names, {layouts: cost}): one for each operation, one for each edge. To take out v: "
            "collect the tables that name v, let scope be their other names, and for each product of layouts of scope "
            "store min over v's layouts of the sum of the tables. At the end go back in reverse and look the choices "
            "up.",
        ),
        helps={"did": 1, "cost": 2},
        closed=(
            "passlab.memory.layout.tree",
            "passlab.memory.layout.choose",
            "passlab.memory.layout.reduced",
            "passlab.memory.layout.every",
        ),
    ),
    Exercise(
        id="day05.remat",
        title="Rematerialisation",
        section="Rematerialisation",
        points={"valid": 1, "did": 3, "spared": 2, "cost": 3},
        difficulty=3,
        minutes=35,
        stretch=True,
        hints=(
            "What do you have to know at some moment to go on from there? Which results are there: not how they got "
            "there, and not what has run. The graphs are small.",
            "From such a state there are two kinds of steps: drop a result, for nothing, or run a task whose reads are "
            "there, for its cost, if its result and its scratch memory still fit. The cheapest way to a state in which "
            "all outputs are there is a shortest path.",
            "Dijkstra's algorithm: heapq with (work, frozenset of the results that are there, steps so far), from the "
            "empty set on. A set that has been taken from the queue before is not looked at again.",
        ),
        helps={"did": 2, "cost": 3},
        closed=(
            "passlab.memory.remat.rematerialise",
            "passlab.memory.remat.optimum",
            "passlab.memory.remat.shortest",
            "passlab.memory.remat.greedy",
            "passlab.memory.remat._greedy",
        ),
    ),
)
