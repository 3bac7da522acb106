"""Hidden cases and answers of day12.compiler."""

from __future__ import annotations

import operator
import random

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.answers.day12.plan import no_reuse
from autograder.authoring.answers import edited, reference, right, wrong
from passlab.capstone import Compiled, groupable, grouped
from passlab.capstone.families import drawn, generated
from passlab.capstone.library import match
from passlab.exercises.day12._shared import graph_case, model_case
from passlab.exercises.day12.compiler import counted, noisy, traced
from passlab.fx.cases import graph, seeded
from passlab.fx.effects import effects, has_effects
from passlab.fx.judge import rebuild
from passlab.judge import Case
from passlab.memory.plan import planned

#: The families of models: of each half, one model is drawn.
IMAGES = ("convnet", "skip", "residual", "resnet18", "unet")
ROWS = ("mlp", "attention", "gpt", "vit", "lstm")
_ALL = ("valid", "same", "did", "cost")
_TRAP = ("valid", "same", "spared")


def training(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.relu(m.bn(m.conv(x)))


def trained_twice(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Two equal calls of a batch norm: in training each changes the running statistics."""
    y = m.conv(x)
    return m.bn(y) + m.bn(y)


def trained_aside(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Nothing uses what the batch norm returns, and in training it changes the running statistics."""
    y = m.conv(x)
    m.bn(y)
    return F.relu(y)


def drops(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A layer that drops, and one that does not."""
    return m.off(m.on(torch.tanh(m.lin(x)))) * 2 + 1


def read_twice(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = m.conv(x)
    return F.relu(m.bn(y)) + y


def unused_draw(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    torch.rand_like(x)
    return F.dropout(torch.tanh(x), 0.3, True)


def written_between(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A value is read before and after it is written, each time together with one that nothing writes."""
    y, z = x * 2, m.lin(x)
    early = y * z
    y.add_(x)
    return early + y * z


def copied(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Two equal values, of which one is written: the other is a copy."""
    z = m.lin(x)
    y, copy = torch.tanh(z), torch.tanh(z)
    y.add_(1)
    return y * copy


def cloned(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A clone of a value that is written."""
    y = m.lin(x)
    before = y.clone()
    y.add_(x)
    return y * before


def in_place(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """An activation writes into its operand, which is read again."""
    y = m.lin(x)
    return F.relu(y, inplace=True) - y * 2


def neutral(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A product with 1 makes numbers of Booleans."""
    positive = x > 0
    return (positive * 1 + (x > -1) * 1) * m.lin(x)


def written_constant(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What is written is made of a constant alone."""
    y = m.w * 2
    early = y + 1
    y.add_(x)
    return early * (y + 1)


def options(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Two calls that differ in an option by name."""
    y = m.lin(x)
    return torch.softmax(y, dim=0) + torch.softmax(y, dim=1)


def turned(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Two differences of the same operands."""
    y = m.lin(x)
    return torch.relu(x - y) + torch.relu(y - x)


def two_layers(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Two layers of one kind on the same value."""
    return m.one(x) * m.two(x)


def in_turn(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Four wide values, of which one is there at a time."""
    narrow = [(x * k) @ m.wide @ m.back for k in range(1, 5)]
    return narrow[0] + narrow[1] + narrow[2] + narrow[3]


def many_times(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A layer that is called four times on the same value."""
    return m.lin(x) * m.lin(x) + torch.sin(m.lin(x) / m.lin(x))


def unused_chain(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    m.lin(m.lin(m.lin(m.lin(x))))
    return torch.tanh(x) + 1


def unused_input(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + 1


def one_name(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A layer and a method of the same name."""
    return m.exp(x) + x.exp()


def one_stays(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The first batch norm stays, for its convolution is read twice; three more can be folded."""
    y = read_twice(m, x)
    return m.bn_3(m.conv_3(m.bn_2(m.conv_2(m.bn_1(m.conv_1(y))))))


def two_norms(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """One convolution that is called twice: each result has a batch norm of its own, and a copy would cost 7 KiB."""
    return F.relu(m.first(m.shared(x))) * m.second(m.shared(x + 1))


def across_a_write(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Two element-wise parts with a write between them, which both would cross as one kernel."""
    y = x * 2
    early = torch.sin(y) + 1
    y.add_(x)
    return early * (y + 1)


def crossing(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A product between two element-wise parts: the first and the last belong to different kernels."""
    y = torch.sigmoid(x) * 2
    z = (y @ m.w) + 1
    return torch.tanh(z * 3) + y


def beside_a_draw(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Two element-wise parts with a draw between them: what draws stays, and each part is one kernel."""
    y = torch.tanh(x) * 2 + 1
    return torch.sin(F.dropout(y, 0.5, True)) * 3 - x


def beside_a_write(m: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A value that is written, and an element-wise part that does not touch it."""
    y = m.lin(x)
    y.add_(x)
    return torch.sin(torch.tanh(x) * 2 + 1) * 3, y


def signs(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Two zeros that are equal, and whose signs are not."""
    y = m.lin(x)
    return torch.copysign(y, 0.0) * 2 - torch.copysign(y, -0.0)


def kinds(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Three ones that are equal, and whose sums with a Boolean are of three types."""
    positive = x > 0
    return (positive + True) + (positive + 1) * 3 * (positive + 1.0)


def batch_norm(tracked: bool = True, channels: int = 4) -> nn.BatchNorm2d:
    """A batch norm that changes its input, unlike a new one, and whose eps is not the usual one."""
    bn = nn.BatchNorm2d(channels, eps=0.1, track_running_stats=tracked)
    if tracked:
        bn.running_mean.normal_()
        bn.running_var.uniform_(0.2, 0.5)
    return bn


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def image(
        name: str,
        body,
        about: tuple[str, ...],
        train: bool,
        tracked: bool = True,
        norm_trains: bool = False,
        root_trains: bool = False,
    ) -> Case:
        layers = {
            "conv": lambda: nn.Conv2d(3, 4, 3, padding=1),
            "bn": lambda: batch_norm(tracked),
            **{f"conv_{n}": lambda: nn.Conv2d(4, 4, 3, padding=1) for n in (1, 2, 3)},
            **{f"bn_{n}": batch_norm for n in (1, 2, 3)},
            "shared": lambda: nn.Conv2d(3, 64, 3, padding=1),
            **{name: lambda: batch_norm(channels=64) for name in ("first", "second")},
        }
        make = seeded(graph(body, (2, 3, 9, 9), training=train, **layers), seed)

        def with_modes() -> fx.GraphModule:
            gm = make()
            if norm_trains:
                gm.bn.train()
            gm.training |= root_trains
            return gm

        return graph_case(name, with_modes, about)

    def one_drops() -> fx.GraphModule:
        layers = {"lin": lambda: nn.Linear(24, 24), "on": nn.Dropout, "off": nn.Dropout}
        gm = seeded(graph(drops, (16, 24), **layers), seed)()
        gm.on.train()
        return gm

    tried = [
        model_case(drawn(rng.choice(IMAGES), seed), _ALL),
        model_case(drawn(rng.choice(ROWS), seed), _ALL),
        graph_case("two parts around a product", seeded(graph(crossing, (8, 8), w=(8, 8)), seed), _ALL),
        image("batch norm in training", training, _TRAP, True),
        image("batch norm in training, called twice", trained_twice, _TRAP, True),
        image("batch norm in training that nothing uses", trained_aside, _TRAP, True),
        image("batch norm with an eps of its own", training, ("valid", "same"), False),
        image("batch norm in training, in a model that is not", training, _TRAP, False, norm_trains=True),
        image("batch norm without running statistics", training, ("valid", "same"), False, tracked=False),
        image("a convolution that is read twice, and three that are not", one_stays, _ALL, False),
        image("one convolution, two batch norms", two_norms, _TRAP, False),
        traced("a draw that nothing uses", unused_draw, _TRAP, seed, True),
        traced("dropout in training, drawn", noisy, _TRAP, seed, True),
        graph_case("a dropout in training, in a model that is not", one_drops, _TRAP),
        traced("a value is written between equal reads", written_between, _TRAP, seed),
        traced("two parts beside a draw", beside_a_draw, _ALL, seed, True),
        traced("a part beside a write", beside_a_write, _ALL, seed),
        image("batch norm in a model in training that is not", training, _ALL, False, root_trains=True),
        traced("zeros of two signs", signs, _TRAP, seed),
        traced("ones of three types", kinds, _TRAP, seed),
        traced("a write between two parts", across_a_write, _TRAP, seed),
        traced("calls with two options", options, _TRAP, seed),
        traced("differences both ways", turned, _TRAP, seed),
        graph_case(
            "two layers of one kind",
            seeded(graph(two_layers, (16, 24), one=lambda: nn.Linear(24, 24), two=lambda: nn.Linear(24, 24)), seed),
            _TRAP,
        ),
        graph_case(
            "a value made of a constant is written", seeded(graph(written_constant, (8, 8), w=(8, 8)), seed), _TRAP
        ),
        graph_case(
            "wide values one at a time", seeded(graph(in_turn, (16, 24), wide=(24, 400), back=(400, 24)), seed), _TRAP
        ),
        traced("the same layer four times", many_times, _ALL, seed),
        traced("a value is written, and its copy is not", copied, _TRAP, seed),
        traced("a clone of a value that is written", cloned, _TRAP, seed),
        traced("an activation in place", in_place, _TRAP, seed),
        traced("Booleans times one", neutral, _TRAP, seed),
        traced("a chain that nothing uses", unused_chain, _ALL, seed),
        graph_case(
            "a layer named like a method",
            seeded(graph(one_name, (8, 8), exp=lambda: nn.Linear(8, 8)), seed),
            ("valid", "same"),
        ),
        graph_case("an input that nothing uses", seeded(graph(unused_input, (8, 8), (4, 4)), seed), ("valid", "same")),
        model_case(generated(seed % 2**31 + 2, 30, random=False, views=False), _ALL),
        model_case(generated(seed % 2**31, 15), ("valid", "same")),
        model_case(generated(seed % 2**31 + 1, 15, mutation=True), ("valid", "same")),
    ]
    return list(map(counted, tried))


_KEPT = "return Compiled(gm, ...)"
_REFUSED, _WALK = "groupable refuses it anyway", "torch.fx allows to erase during a walk"
_EITHER = "which of two groups a node joins saves about the same"
#: Mutants of lines that both compilers of the day have.
BOTH = {
    ("gm = rebuild(gm)", "pass"): "the grader has a graph of its own",
    ("for bn in list(...): ...", "for bn in ...: ..."): _WALK,
    ("sorted(..., reverse=True)", "sorted(...)"): _EITHER,
    ("sorted(..., reverse=True)", "sorted(..., reverse=False)"): _EITHER,
    (
        "groups, home[node] = longer, at\nbreak",
        "groups, home[node] = longer, at\ncontinue",
    ): "a node that has joined a group is refused by every other one",
}
EQUIVALENT = BOTH | {
    ("gm.graph.erase_node(bn)", "pass"): "it is removed later, as whatever nothing uses",
    ("reversed(list(...))", "reversed(...)"): _WALK,
    ('not node.op.startswith("call_") or ...', "..."): _REFUSED,
    ("... or ... or node in busy", "... or ..."): _REFUSED,
    ("... or effects(node)", "..."): _REFUSED,
    ("... or ... or node in busy", "... and ... and node in busy"): _REFUSED,
    ("... or ... or node in busy", "False"): _REFUSED,
    ("*groups, [node.name]", "[node.name]"): "a group of one is legal beside any others",
    ("len(...) > 1", "len(...) >= 1"): "a kernel of one operation is a launch, as the call is",
}

# ---------------------------------------------------------------------------------------------------- answers


in_training = edited("same", "folds a batch norm in training, whose numbers come from the batch")(
    ("norm.training or not norm.track_running_stats", "not norm.track_running_stats"),
    ("fuse_conv_bn_eval(module(conv).eval(), norm)", "fuse_conv_bn_eval(module(conv).eval(), norm.eval())"),
)
asks_the_model = edited("same", "asks the model, and not the batch norm, whether it is in training")(
    ("norm.training or not norm.track_running_stats", "gm.training or not norm.track_running_stats"),
    ("fuse_conv_bn_eval(module(conv).eval(), norm)", "fuse_conv_bn_eval(module(conv).eval(), norm.eval())"),
)
usual_eps = edited("same", "folds every batch norm with the usual eps")(
    (
        "gm.add_submodule(..., ...)",
        """
        usual = nn.BatchNorm2d(norm.num_features)
        usual.load_state_dict(norm.state_dict())
        gm.add_submodule(f"folded_{conv.name}", fuse_conv_bn_eval(module(conv).eval(), usual.eval()))
        """,
    )
)
dropout_of_the_model = edited("same", "removes every dropout layer of a model that is not in training")(
    (
        "busy, first = ...",
        """
        for node in list(gm.graph.find_nodes(op="call_module")):
            if type(module(node)) is nn.Dropout and not gm.training:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
        busy, first = ...
        """,
    )
)
other_readers = edited("same", "folds into a convolution that something else reads, too")(
    ("type(module(conv)) is not nn.Conv2d or len(conv.users) != 1", "type(module(conv)) is not nn.Conv2d")
)
shared_in_place = edited("same", "folds into the convolution itself, which is called elsewhere, too")(
    ("... or calls.count(conv.target) > 1", "..."),
    (
        "gm.add_submodule(..., ...)",
        (
            "gm.add_submodule(..., module(conv))\nmade = ...\n"
            "module(conv).weight, module(conv).bias = made.weight, made.bias"
        ),
    ),
)
merges_draws = edited("same", "merges two draws of random numbers")(
    ("effects(node) or ... or ...", 'node.op in ("placeholder", "output") or ... or ...')
)
removes_clones = edited("same", "removes every clone, also one of a value that is written")(
    (
        "busy, first = ...",
        """
        for node in list(gm.graph.find_nodes(op="call_method", target="clone")):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
        busy, first = ...
        """,
    )
)
out_of_place = edited("same", "makes activations in place ordinary ones")(
    (
        "busy, first = ...",
        """
        for node in gm.graph.nodes:
            if "inplace" in node.kwargs:
                node.kwargs = {**node.kwargs, "inplace": False}
        busy, first = ...
        """,
    )
)
times_one = edited("same", "takes x * 1 for x, whatever the type of x")(
    (
        "busy, first = ...",
        """
        for node in list(gm.graph.nodes):
            if node.name.startswith("mul") and len(node.args) == 2 and node.args[1] == 1:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
        busy, first = ...
        """,
    )
)
merges_trained = edited("spared", "merges equal calls of a layer, also of a batch norm in training")(
    ("effects(node) or ... or ...", 'node.op != "call_module" and (effects(node) or ... or ...)'),
    ("node.replace_all_uses_with(first[key])", "node.replace_all_uses_with(first[key])\ngm.graph.erase_node(node)"),
)
drops_trained = edited("spared", "removes layers that nothing uses, also a batch norm in training")(
    ("not effects(node)", '(node.op == "call_module" or not effects(node))')
)
beside_nothing = edited("did", "leaves a graph alone in which something is written or drawn")(
    (
        "gm = rebuild(gm)",
        "gm = rebuild(gm)\nif any(effects(node) - {'signature'} for node in gm.graph.nodes):\n    return Compiled(gm)",
    )
)
not_in_training = edited("did", "leaves a model in training alone, whatever the mode of its layers")(
    ("gm = rebuild(gm)", "gm = rebuild(gm)\nif gm.training:\n    return Compiled(gm)")
)
across_writes = edited("same", "merges reads before and after a write")(("node in busy or ...", "node in busy"))
merges_zeros = edited("same", "takes 0.0 and -0.0 for one constant")(
    ("repr((node.args, node.kwargs))", 'repr((node.args, node.kwargs)).replace("-0.0", "0.0")')
)
merges_ones = edited("valid", "takes 1 and 1.0 for one constant")(
    ("repr((node.args, node.kwargs))", 'repr((node.args, node.kwargs)).replace("1.0", "1")')
)
merges_true = edited("same", "takes 1 and True for one constant")(
    ("repr((node.args, node.kwargs))", 'repr((node.args, node.kwargs)).replace("True", "1")')
)
merges_options = edited("same", "takes calls for one that differ in an option by name")(
    ("repr((node.args, node.kwargs))", "repr(node.args)")
)
merges_turned = edited("same", "takes a - b and b - a for one")(
    ("repr((node.args, node.kwargs))", "repr((sorted(map(repr, node.args)), node.kwargs))")
)
merges_layers = edited("same", "takes two layers of one kind for one")(
    ("(node.op, node.target, ...)", "(node.op, type(module(node)) if module(node) else node.target, ...)")
)
folds_written = edited("same", "computes ahead of time what a later write changes")(
    (
        "busy, first = ...",
        """
        for node in list(gm.graph.nodes):
            made = node.op == "call_function" and bool(node.args) and not node.kwargs
            if made and all(a.op == "get_attr" if isinstance(a, fx.Node) else type(a) is int for a in node.args):
                values = [getattr(gm, a.target) if isinstance(a, fx.Node) else a for a in node.args]
                if any(hasattr(v, "numel") and v.numel() < 100 for v in values):
                    gm.register_buffer(f"const_{node.name}", node.target(*values).detach().clone())
                    with gm.graph.inserting_before(node):
                        node.replace_all_uses_with(gm.graph.get_attr(f"const_{node.name}"))
        busy, first = ...
        """,
    )
)
drops_draws = edited("spared", "removes a draw that nothing uses: all later ones change")(
    ("not effects(node)", 'node.op not in ("placeholder", "output")')
)
no_groups = edited("did", "leaves every operation a launch of its own")((_KEPT, "return Compiled(gm)"))
pairs = edited("cost", "stops at two nodes: what a longer chain computes still goes through memory")(
    ("why_not(longer) is None", "len(groups[at]) < 2 and why_not(longer) is None")
)
returns_graph = edited("valid", "returns the graph, which is a module: code")((_KEPT, "return gm"))
one_group = edited("valid", "puts everything into one group")(
    (_KEPT, "return Compiled(gm, [[n for g in groups for n in g]])")
)
growing = edited("spared", "computes every constant ahead of time, however large it gets")(
    (
        "busy, first = ...",
        """
        for node in list(gm.graph.nodes):
            made = node.op == "call_function" and bool(node.args) and not node.kwargs
            if made and all(isinstance(a, fx.Node) and a.op == "get_attr" for a in node.args):
                value = node.target(*[getattr(gm, a.target) for a in node.args])
                gm.register_buffer(f"const_{node.name}", value.clone())
                with gm.graph.inserting_before(node):
                    node.replace_all_uses_with(gm.graph.get_attr(f"const_{node.name}"))
        busy, first = ...
        """,
    )
)


@wrong("same", "memorizes the result on the example, and returns it for all inputs")
def memorized(gm, inputs):
    with torch.no_grad(), torch.random.fork_rng():
        model = rebuild(gm)(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
    if not isinstance(model, torch.Tensor):
        return Compiled(gm)
    after = rebuild(gm)
    after.register_buffer("memory", model.detach())
    (output,) = after.graph.find_nodes(op="output")
    with after.graph.inserting_before(output):
        output.args = (after.graph.get_attr("memory"),)
    after.graph.eliminate_dead_code()
    return Compiled(after)


@wrong("valid", "gives every buffer a place of its own: the arena grows with the model")
def every_place_once(gm, inputs):
    model = reference("day12.compiler")(gm, inputs)
    return Compiled(model.graph, model.groups, plan=no_reuse(model.graph, model.groups, inputs))


@wrong("valid", "runs all that is ready before what needs it: every wide value is there at once")
def by_levels(gm, inputs):
    model = reference("day12.compiler")(gm, inputs)
    nodes, level = list(model.graph.graph.nodes), {}
    if has_effects(model.graph.graph):
        return model
    for node in nodes:
        level[node] = 1 + max((level[operand] for operand in node.all_input_nodes), default=0)
    at = model.graph.graph.find_nodes(op="placeholder")[-1]
    for node in sorted(nodes, key=lambda node: (node.op == "output", level[node])):
        if node.op != "placeholder":
            at.append(node)
            at = node
    model.graph.recompile()
    return model


@right("stores the weights of convolutions with channels last, which is done before the program runs")
def weights_last(gm, inputs):
    model = reference("day12.compiler")(gm, inputs)
    return Compiled(model.graph, model.groups, layouts=last(model.graph, inputs))


def last(gm, inputs):
    """Path → channels last, of the weights of convolutions, in a graph that neither draws nor writes.

    Not where the result is an image: it would be one with channels last, and be converted for the caller.
    """
    (output,) = _shaped(gm, inputs).graph.find_nodes(op="output")
    images = any(
        isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].ndim == 4 for node in output.all_input_nodes
    )
    called = {} if images or has_effects(gm.graph) else {n.target for n in gm.graph.find_nodes(op="call_module")}
    return {f"{path}.weight": [0, 2, 3, 1] for path in called if isinstance(gm.get_submodule(path), nn.Conv2d)}


@right("hands over a plan with it, and schedules")
def with_plan(gm, inputs):
    model = reference("day12.compiler")(gm, inputs)
    schedules = {group[0]: {"tile": 4096, "unroll": 4} for group in model.groups}
    steps = grouped(model.graph, model.groups, inputs)
    return Compiled(model.graph, model.groups, schedules, planned(steps, *inputs))


@right("groups what a library computes first, then the rest, and gives the nodes other names")
def library_first(gm, inputs):
    gm = reference("day12.compiler")(gm, inputs).graph
    graph, new = fx.Graph(), {}
    for at, node in enumerate(gm.graph.nodes):
        name = node.name if node.op in ("placeholder", "output") else f"step{at}"
        new[node] = graph.create_node(node.op, node.target, *_mapped(node, new), name=name, type_expr=node.type)
        new[node].meta = dict(node.meta)
    after = fx.GraphModule(gm, graph)
    after.training = gm.training
    why_not, groups, home = groupable(after, inputs), [], {}
    shapes = _shaped(after, inputs)
    for node in shapes.graph.nodes:
        if match(shapes, [node]) and not effects(node) and node.name not in home:
            chosen = [node]
            while len(chosen[-1].users) == 1 and match(shapes, [*chosen, *chosen[-1].users]):
                chosen += chosen[-1].users
            names = [n.name for n in chosen]
            if len(names) > 1 and why_not([*groups, names]) is None:
                home |= dict.fromkeys(names)
                groups.append(names)
    for node in after.graph.nodes:
        if node.op.startswith("call_") and node.name not in home and not effects(node):
            for operand in reversed(node.all_input_nodes):
                at = home.get(operand.name)
                if at is not None:
                    longer = [*groups[:at], [*groups[at], node.name], *groups[at + 1 :]]
                    if why_not(longer) is None:
                        groups, home[node.name] = longer, at
                        break
            else:
                if why_not([*groups, [node.name]]) is None:
                    home[node.name] = len(groups)
                    groups.append([node.name])
    moving = {operator.getitem, "transpose", "chunk", "unflatten", "flatten", "reshape", "view", "permute"}
    works = {node.name for node in after.graph.nodes if node.target not in moving}
    return Compiled(after, [group for group in groups if len(works & set(group)) > 1])


def _mapped(node, new):
    from torch.fx.node import map_arg

    return map_arg(node.args, new.__getitem__), map_arg(node.kwargs, new.__getitem__)


def _shaped(gm, inputs):
    from passlab.capstone.compiled import with_shapes

    return with_shapes(gm, inputs)
