"""What `capture` records: graphs, breaks, guards and compilations, call by call."""

import pytest
import torch

from passlab import diff, draw, equivalent, view
from passlab.capture import REASONS, Capture, capture
from passlab.graph.model import why_not_ssa


def several(x, y):
    z = x.relu() + 1
    if z.sum() > 0:
        z = z * 2
    print("between")
    return (z + y.item()).sin()


def test_graphs_and_breaks_in_their_order(capsys):
    program = capture(several, torch.ones(3, 4), torch.tensor(2.0))
    assert capsys.readouterr().out == "between\n"
    assert [len(graph.graph.nodes) for graph in program.graphs] == [6, 3, 4]
    assert [at.reason for at in program.breaks] == ["branch", "builtin", "number"]
    assert [at.source for at in program.breaks][:2] == ["if z.sum() > 0:", 'print("between")']
    assert len({at.line for at in program.breaks}) == 3
    assert program.counts == [3]


def test_the_recorded_function_is_the_function():
    x, y = torch.randn(3, 4), torch.tensor(0.5)
    assert torch.equal(capture(several, x, y)(x, y), several(x, y))


def early(x):
    print(end="")
    return x + 1


def item(x):
    return x * float(x.sum())


def rows(x):
    return x[x > 0].sum()


@torch.compiler.disable
def closed(x):
    return x * 3


def calls_closed(x):
    return closed(x + 1) + 1


def asked(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def loop(x):
    while x.sum() < 20:
        x = x + 1
    return x


def copied(x):
    import copy

    return copy.deepcopy({"a": x})["a"] + 1


@pytest.mark.parametrize(
    ("function", "reasons"),
    [
        (early, ["builtin"]),
        (item, ["number"]),
        (rows, ["size"]),
        (calls_closed, ["disabled"]),
        (asked, ["asked"]),
        (loop, ["branch", "branch"]),
        (copied, ["other"]),
        (lambda x: x.relu(), []),
    ],
)
def test_each_reason(function, reasons):
    program = capture(function, torch.ones(3, 4))
    assert [at.reason for at in program.breaks] == reasons
    assert all(at.meaning in str(at) and at.reason in REASONS for at in program.breaks)


def scaled(x, k):
    return x * k


@pytest.mark.parametrize(
    ("calls", "counts"),
    [
        ([(3, 1), (3, 1)], [1, 0]),
        ([(3, 1), (3, 2), (3, 3)], [1, 1, 0]),  # the second number makes a symbol of it
        ([(3, 1), (4, 1), (5, 1)], [1, 1, 0]),  # the second size, too
        ([(3, 1), (4, 1), (1, 1), (6, 1)], [1, 1, 1, 0]),  # 1 is never a symbol
        ([(3, 1), (3, 2.5)], [1, 1]),
    ],
)
def test_what_compiles_again(calls, counts):
    program = Capture(scaled)
    for size, k in calls:
        program(torch.ones(size), k)
    assert program.counts == counts


def test_why_it_compiled_again():
    program = capture(scaled, torch.ones(3), 1)
    program(torch.ones(3).double(), 1)
    program(torch.ones(4), 1)
    assert [it.call for it in program.compilations] == [0, 1, 2]
    failed = [it.failed_guard for it in program.compilations]
    assert failed[0] == "" and failed[1] == "tensor 'x' dtype mismatch. expected Float, actual Double"
    assert "dtype mismatch" in failed[2] or "size mismatch" in failed[2]
    assert "compiled again, since this did not hold: tensor 'x' dtype mismatch" in draw(program).text


def test_guards_name_values_and_symbols():
    program = capture(scaled, torch.ones(3, 4), 7)
    program(torch.ones(5, 4), 7)
    first, second = ([str(guard) for guard in it.guards] for it in program.compilations)
    assert "k == 7" in first and "x: float32[3, 4] on cpu" in first
    assert any(text.startswith("x: float32[s") and text.endswith(", 4] on cpu") for text in second)
    assert "2 <= x.size()[0]" in second


def test_dynamic_is_passed_on():
    fixed, free = Capture(scaled, dynamic=False), None
    for size in (3, 4, 5):
        fixed(torch.ones(size), 1)
    free = Capture(scaled, dynamic=True)
    for size in (3, 4, 5):
        free(torch.ones(size), 1)
    assert (fixed.counts, free.counts) == ([1, 1, 1], [1, 0, 0])


def test_one_record_knows_nothing_of_another():
    assert [capture(scaled, torch.ones(n), 1).counts for n in (3, 4, 5)] == [[1]] * 3


def test_frames_that_run_as_python_are_told():
    def sizes(x):
        try:
            return x.nonzero().sum()
        except ValueError:
            return x

    program = capture(sizes, torch.ones(3))
    assert program.graphs == [] and program.counts == [0]
    assert program.compilations[0].error.startswith("Dynamic shape operator")


def test_an_error_of_the_function_is_raised_and_recorded_calls_stay():
    def strict(x):
        if x.shape[0] == 4:
            raise RuntimeError("four rows")
        return x + 1

    program = capture(strict, torch.ones(3))
    with pytest.raises(RuntimeError, match="four rows"):
        program(torch.ones(4))
    assert program.counts[0] == 1 and len(program.graphs) >= 1


def test_what_cannot_be_captured():
    with pytest.raises(TypeError, match="capture wants a function or a module and its inputs; got Tensor"):
        capture(torch.ones(3))


def test_the_view_is_one_graph_in_ssa_form():
    graph = view(capture(several, torch.ones(3, 4), torch.tensor(2.0)))
    assert why_not_ssa(graph) == ""
    ends = [node for node in graph if node.op == "break"]
    assert [node.kind for node in ends] == ["control"] * 3
    assert graph.consumers("0.break") == ("1.l_z_",) and graph.consumers("1.break") == ("2.break",)
    assert graph.outputs == ("3.sin",)


def test_graphs_of_different_calls_are_not_joined():
    program = capture(scaled, torch.ones(3), 1)
    program(torch.ones(3), 2)
    graph = view(program)
    assert len(graph.outputs) == 2 and not [node for node in graph if node.op == "break"]


def halved(x):
    x = x / 2
    print(end="")
    return x - 1


def caller(x):
    y = x.relu()
    return halved(y).sin() + y


def test_what_a_called_function_returns_goes_into_its_callers_rest():
    graph = view(capture(caller, torch.ones(3)))
    inputs = {node.id: node.inputs for node in graph}
    assert inputs["3.l_stack0_"] == ("2.sub",) and inputs["3.l_y_"] == ("0.break",)
    assert graph.outputs == ("3.add",)


def test_the_picture_has_frames_guards_and_breaks():
    picture = draw(capture(several, torch.ones(3, 4), torch.tensor(2.0)))
    assert picture.dot.count("subgraph cluster_") == 3
    assert "if x: float32[3, 4] on cpu" in picture.text
    assert picture.svg
    assert picture.text.index("0: several") < picture.text.index("1: several")


def test_captured_programs_are_values_for_equivalent_and_diff():
    program = capture(scaled, torch.ones(3, 4), 3)
    assert equivalent(lambda x: x * 3, lambda x: program(x, 3), (torch.ones(3, 4),))
    assert not equivalent(lambda x: x * 2, lambda x: program(x, 3), (torch.ones(3, 4),))
    other = capture(lambda x, k: x * k + 1, torch.ones(3, 4), 3)
    assert "+ " in diff(program, other).text
