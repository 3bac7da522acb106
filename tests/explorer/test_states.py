"""The program after each pass: what is computed, what failed, and where its nodes come from."""

import copy

import pytest
import torch
from torch import fx, nn

from passlab import explore, trace
from passlab.explorer.states import States
from passlab.fx.stages import STAGES


class Block(nn.Module):
    def forward(self, x):
        return torch.exp(x + 1)


class Repeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = Block(), Block()

    def forward(self, x):
        y = self.left(x)
        return y * self.right(x)


X = torch.randn(4)


def ops(state):
    return [node.op for node in state.program.graph]


def line_of(states, row):
    return [states.source.lines[i].text.strip() for i in states.lines(row)]


def test_each_pass_runs_on_the_program_that_the_one_before_it_left():
    states = States(Repeats(), (X,), ["cse", "dce"])
    assert ops(states.state((0,))) == ["placeholder", "add", "exp", "mul", "output"]
    assert states.state((0,)).summary == "2 removed, 1 rewired"
    assert not states.state((0, 1)).changed and states.state((1,)).program is states.first.program


def test_cost_and_verdict_of_each_program():
    states = States(Repeats(), (X,), ["cse"])
    before, after = states.figures(states.first), states.figures(states.state((0,)))
    assert (before.nodes, before.launches, after.nodes, after.launches) == (5, 5, 3, 3)
    assert before.bytes == (2 + 2 + 2 + 2 + 3) * 16 and after.bytes == (2 + 2 + 2) * 16
    assert states.verdict(states.state((0,)))[0] is True


def test_a_wrong_pass_is_told_from_a_right_one():
    def drop(gm):
        for node in gm.graph.find_nodes(op="call_function", target=torch.exp):
            node.replace_all_uses_with(node.args[0])
        return gm

    states = States(Repeats(), (X,), [drop, "dce"])
    same, why = states.verdict(states.state((0, 1)))
    assert same is False and why.startswith("not the same function")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda gm: 1 / 0, "It raised ZeroDivisionError: division by zero."),
        (lambda gm: gm.graph.lint(), "It returned None; a pass returns the program."),
        (lambda gm: gm.graph, "It returned Graph; a pass returns the program."),
        (lambda gm: [gm], "It returned list; a pass returns the program."),
    ],
)
def test_a_pass_that_fails_leaves_the_program_as_it_was(wrong, sentence):
    states = States(Repeats(), (X,), [wrong, "cse"])
    assert states.state((0,)).problem == sentence
    assert ops(states.state((0, 1))) == ops(states.state((1,)))


def test_a_program_that_does_not_run_is_a_state_with_its_reason():
    def swap(gm):
        node = next(iter(gm.graph.find_nodes(op="call_function", target=torch.exp)))
        node.target = torch.det
        return gm

    states = States(Repeats(), (X,), [swap, "cse"])
    state = states.state((0,))
    assert state.changed and "does not run on the inputs" in state.summary
    assert states.figures(state).launches is None and states.verdict(state)[0] is False
    assert states.state((0, 1)).program.graph is not None


def test_a_pass_may_return_what_torch_s_passes_return_and_keep_the_order_of_a_pass_manager():
    states = States(Repeats(), (X,), ["torch.CSEPass", "torch.eliminate_dead_code", "torch.const_fold"])
    assert ops(states.state((0,))) == ["placeholder", "add", "exp", "mul", "output"]
    assert not states.state((0, 1)).changed


def test_a_pass_that_changes_weights_only_has_changed_something():
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x)

    def zero(gm):
        gm.layer.weight.data.zero_()
        return gm

    model = Linear()
    weights = copy.deepcopy(model.state_dict())
    states = States(model, (X,), [zero])
    assert states.state((0,)).summary == "the same nodes, with other weights or attributes"
    assert states.verdict(states.state((0,)))[0] is False
    assert all(torch.equal(weights[name], t) for name, t in model.state_dict().items()), "a pass has a copy"


def test_a_state_is_computed_once_whatever_pipeline_leads_to_it():
    calls = []

    def idle(gm):
        calls.append("idle")
        return gm

    def merge(gm):
        calls.append("merge")
        return STAGES["cse"](gm)

    states = States(Repeats(), (X,), [idle, merge])
    states.state((0, 1)), states.state((1,)), states.state((1, 0)), states.state((0, 1))
    assert calls == ["idle", "merge", "idle"], "merge ran on one program only; idle on two"


def test_nodes_come_from_lines_of_source_inner_calls_last():
    states = States(Repeats(), (X,), ["cse"])
    rows = {row.id: row for row in states.first.rows}
    assert line_of(states, rows["add"]) == ["y = self.left(x)", "return torch.exp(x + 1)"]
    assert line_of(states, rows["mul"]) == ["return y * self.right(x)"]
    assert [states.module(rows[id]) for id in ("add", "exp_1", "mul")] == ["left", "right", ""]
    kept = next(row for row in states.state((0,)).rows if row.id == "exp")
    assert line_of(states, kept) == ["y = self.left(x)", "return torch.exp(x + 1)", "return y * self.right(x)"]
    assert [line.title for line in states.source.lines if line.title] == ["Repeats.forward", "Block.forward"]


def test_a_function_and_a_graph_without_source_are_programs_too():
    of_function = States(lambda x: torch.relu(x) * 2, (X,), [])
    assert ops(of_function.first) == ["placeholder", "relu", "mul", "output"]
    of_graph = States(trace(Repeats(), X), (X,), [])
    assert [line.text for line in of_graph.source.lines][:2] == ["x = input", "add = add(x, 1)"]
    assert of_graph.lines(of_graph.first.rows[1]) == [1]


def test_an_exported_program_has_its_source():
    states = States(torch.export.export(Repeats(), (X,)), (), [lambda program: program.run_decompositions()])
    multiplied = next(row for row in states.first.rows if row.id == "mul")
    assert line_of(states, multiplied) == ["return y * self.right(x)"]


def test_a_model_that_cannot_be_traced_is_refused_with_the_line():
    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ValueError, match=r"line \d+ of forward"):
        explore(Branches(), X)


def test_an_unknown_pass_is_refused_with_the_nearest_names():
    with pytest.raises(ValueError, match=r"knows no pass 'ces'.*Did you mean dce or cse"):
        explore(Repeats(), X, passes=["ces"])
    with pytest.raises(ValueError, match="names or functions; got int"):
        explore(Repeats(), X, passes=[3])


def test_passes_of_mlir_by_name():
    pytest.importorskip("iree.compiler")
    from passlab import mlir

    module = mlir.parse(
        "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %0 = arith.addf %a, %a : tensor<4xf32>\n  %1 = arith.addf %a, %a : tensor<4xf32>\n"
        "  %2 = arith.mulf %0, %1 : tensor<4xf32>\n  return %2 : tensor<4xf32>\n}"
    )
    states = States(module, (), ["cse", "canonicalize"])
    after = states.state((0,))
    assert after.summary == "1 removed, 1 rewired" and not states.state((0, 1)).changed
    assert states.figures(after).launches == states.figures(states.first).launches - 1
    assert states.figures(states.first).peak == 3 * 16
    assert states.verdict(after)[0] is True
    assert str(module).count("addf") == 2, "the module itself is left alone"


def test_the_catalogue_of_torch_runs_on_a_model_of_the_zoo():
    from passlab import models

    model = models.ZOO["residual"]
    states = States(model.build(), model.inputs(1), [])
    of_torch = [number for number, it in enumerate(states.passes) if it.takes == "fx" and not it.gives]
    assert len(of_torch) > 10
    for number in of_torch:
        state, name = states.state((number,)), states.passes[number].name
        assert not state.problem, f"{name}: {state.problem}"
        assert states.verdict(state)[0] is not False, name
    assert isinstance(states.first.program.value, fx.GraphModule)


class Layered(Repeats):
    """The same with a layer, whose weights travel beside the module of MLIR."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return super().forward(self.layer(x))


def other(gm):
    for node in gm.graph.find_nodes(op="call_function", target=torch.exp):
        node.target = torch.expm1
    return gm


def test_a_program_of_torch_goes_on_in_mlir_behind_a_conversion():
    pytest.importorskip("iree.compiler")
    names = [other, "cse", "to_mlir", "mlir.linalg-fuse-elementwise-ops"]
    states = States(Layered(), (torch.randn(2, 4),), names)
    arrived, fused = states.state((1, 2)), states.state((1, 2, 3))
    assert arrived.summary == "converted to MLIR" and not any(row.sign for row in arrived.rows)
    assert "linalg.matmul" in arrived.picture.svg, "the program itself, as there is no difference to draw"
    assert {row.sign for row in fused.rows} > {"+", "−"}
    # one addition, exponential and product of cse's program, each a kernel of its own, become one
    assert states.figures(arrived).launches - states.figures(fused).launches >= 2
    assert [states.verdict(state)[0] for state in (arrived, fused)] == [True, True]
    assert states.verdict(states.state((0, 1, 2)))[0] is False, "the first program is the one before all passes"

    exp = next(row for row in arrived.rows if "math.exp" in row.text)
    assert line_of(states, exp)[1:3] == ["y = self.left(x)", "return torch.exp(x + 1)"]
    mul = next(row for row in arrived.rows if "arith.mulf" in row.text)
    assert line_of(states, mul)[-1] == "return y * self.right(x)"


def test_a_pass_in_front_of_or_behind_its_own_ir_says_where_it_belongs():
    pytest.importorskip("iree.compiler")
    states = States(Repeats(), (X,), ["mlir.cse", "to_mlir", "cse"])
    before, behind = states.state((0,)), states.state((1, 2))
    assert before.problem == "It works on MLIR, and here the program is in torch.fx: put to_mlir before it."
    assert behind.problem == "It works on torch.fx, and here the program is in MLIR: move it up."
    assert behind.program is states.state((1,)).program, "and the program stays"


def test_a_conversion_without_inputs_asks_for_them():
    state = States(Repeats(), (), ["to_mlir"]).state((0,))
    assert state.problem == "A conversion needs example inputs: explore(model, x)."
