"""What this project takes from inside Dynamo: each name by itself, so that a new torch tells what it changed."""

import torch
from functorch.compile import default_partition, make_boxed_func

from passlab.capture import private


def compiled(f, *inputs, note=lambda gm: None, keep=None):
    """Compile and run f, and call note(gm) on each graph."""
    torch.compiler.reset()
    private.forget()

    def backend(gm, example):
        note(gm)
        return gm.forward

    options = {"guard_filter_fn": keep} if keep else None
    with private.quiet():
        return torch.compile(f, backend=backend, options=options)(*inputs)


def branch(x):
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    return y


def test_breaks_have_their_function_and_line():
    compiled(branch, torch.ones(3))
    (stop,) = private.breaks()
    assert (stop.function, stop.source) == ("branch", "if y.sum() > 0:")
    assert stop.file == __file__
    assert stop.text.startswith("generic_jump")


def test_reports_join_with_the_number_of_the_frame():
    numbers = []
    compiled(branch, torch.ones(3), note=lambda gm: numbers.append(private.compile_id()))
    reports = private.reports()
    assert [report.id for report in reports] == numbers and len(set(numbers)) == 2
    assert {report.function for report in reports} == {"branch"}
    assert not any(report.error or report.failed_guard for report in reports)


def test_a_frame_that_is_not_compiled_has_an_error():
    def sizes(x):
        try:
            return x.nonzero().sum()
        except ValueError:
            return x

    compiled(sizes, torch.ones(3))
    assert [report.error.partition("\n")[0] for report in private.reports()] == ["Dynamic shape operator"]


def test_failed_guard_are_told_without_their_source():
    def scaled(x, k):
        return x * k

    torch.compiler.reset()
    private.forget()
    function = torch.compile(scaled, backend=lambda gm, example: gm.forward)
    function(torch.ones(3), 1)
    function(torch.ones(3), 2)
    assert [report.failed_guard for report in private.reports()] == ["", "k == 1"]


def test_sizes_are_those_of_the_inputs_with_symbols():
    sizes = []
    torch.compiler.reset()
    function = torch.compile(
        lambda x: x * x.shape[0],
        backend=lambda gm, example: sizes.append(private.sizes(gm)) or gm.forward,
        dynamic=True,
    )
    function(torch.ones(3, 4))
    ((source, shape),) = sizes[0].items()
    assert source == "x" and len(shape) == 2
    assert all(isinstance(dim, torch.SymInt) for dim in shape)


def test_guards_have_a_source_a_type_a_value_and_code():
    rows = []

    def keep(entries):
        rows.extend(private.guard_rows(entries))
        return [True] * len(entries)

    compiled(lambda x, k: x * k, torch.ones(3), 7, keep=keep)
    assert ("k", "CONSTANT_MATCH", 7, ("L['k'] == 7",)) in rows
    assert any(source == "x" and kind == "TENSOR_MATCH" and value.shape == (3,) for source, kind, value, _ in rows)


def test_aot_autograd_makes_both_graphs():
    kinds = []

    def note(kind):
        return lambda gm, example: kinds.append(kind) or boxed(gm)

    def split(joint, example, *, num_fwd_outputs, **known):
        from functorch.compile import default_partition

        kinds.append(("joint", num_fwd_outputs))
        return default_partition(joint, example, num_fwd_outputs=num_fwd_outputs, **known)

    from functorch.compile import make_boxed_func as boxed

    torch.compiler.reset()
    backend = private.lowered(note("forward"), note("backward"), note("inference"), split)
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: x.sin(), backend=backend)(x).sum().backward()
    torch.compile(lambda x: x.cos(), backend=backend)(torch.ones(3))
    assert kinds == [("joint", 1), "forward", "backward", "inference"]
    assert torch.allclose(x.grad, torch.ones(3).cos())


def test_the_inputs_that_a_graph_writes_are_known_while_it_is_compiled():
    from functorch.compile import default_partition
    from functorch.compile import make_boxed_func as boxed

    seen = []

    def note(gm, example):
        seen.append(private.written_inputs())
        return boxed(gm)

    def write(x, y):
        z = x.sin()  # Dynamo orders inputs by their first use
        y.mul_(2)
        return z + y

    torch.compiler.reset()
    f = torch.compile(write, backend=private.lowered(note, note, note, default_partition))
    f(torch.ones(3), torch.ones(3))
    torch.compile(lambda x: x.sin(), backend=private.lowered(note, note, note, default_partition))(torch.ones(3))
    assert seen == [[1], []]


def test_inputs_that_are_overwritten_behind_a_joint_graph_are_known():
    names = []

    def split(joint, inputs, **known):
        names.extend(node.name for node in private.overwritten(joint))
        return default_partition(joint, inputs, **known)

    def scaled(x, m):
        y = x * m.sin()
        m.mul_(2)
        return y.sum()

    def boxed(gm, inputs):
        return make_boxed_func(gm)

    torch.compiler.reset()
    backend = private.lowered(boxed, boxed, boxed, split)
    torch.compile(scaled, backend=backend)(torch.ones(3, requires_grad=True), torch.ones(3)).backward()
    assert names == ["primals_1"]  # Dynamo takes m first, as it is read first
