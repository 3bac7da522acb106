"""Programs: text form, what is not well-formed, orders and loops, what they compute, real programs that are read."""

from __future__ import annotations

from itertools import product

import pytest

from passlab.dataflow import (
    ANALYSES,
    CONSTANTS,
    Block,
    Instruction,
    Program,
    Terminator,
    evaluate,
    from_stablehlo,
    from_torchscript,
    loop_heads,
    parse,
    predecessors,
    random_program,
    reducible,
    reverse_postorder,
    run,
    show,
    solve,
    successors,
    why_not_a_program,
)
from passlab.dataflow.order import dominators
from passlab.exercises.day06._programs import COUNT, ENTRY_IN_LOOP, FOR_EVER, TWO_ENTRIES

DRAWN = [random_program(seed, 3 + seed % 9, jumps=seed % 2 == 1, shuffle=True) for seed in range(60)]


def block(name, end):
    return Block(name, (), end)


@pytest.mark.parametrize("program", DRAWN, ids=lambda p: p.name)
def test_drawn_programs_are_well_formed_and_survive_their_text(program):
    assert not why_not_a_program(program)
    assert parse(show(program)) == program
    assert set(reverse_postorder(program)) == {b.name for b in program.blocks}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The text is empty."),
        ("entry:", "Line 1, `entry:`: a program begins with"),
        ("program p()\nx = const 1", "Line 2, `x = const 1`: this is outside of all blocks."),
        ("program p()\nentry:\n  x = const", "Line 3, `x = const`: `const` takes one number"),
        ("program p()\nentry:\n  x = const y z", "Line 3, `x = const y z`: `const` takes one number"),
        ("program p()\nentry:\n  jump", "Line 3, `jump`: expected `jump block`."),
        ("program p(c)\nentry:\n  branch c a", "Line 3, `branch c a`: expected `branch condition block block`."),
        ("program p()\na:\n  x = const 1\nb:\n  return", "Line 4, `b:`: block a has no end."),
        ("program p()\na:\n  x = const 1", "The text ends inside block a."),
        ("program p()", "p has no block."),
        ("program p()\na:\n  return\na:\n  return", "Two blocks are called a."),
        ("program p()\na:\n  jump b", "Block a goes to b, and there is no block of that name."),
        ("program p(c)\na:\n  branch c a a", "Block a branches to a either way. Write `jump a`."),
        ("program p()\na:\n  x = neg y\n  return", "Block a: `x = neg y` reads y, which is neither a parameter"),
        ("program p()\na:\n  x = const [1]\n  return", "Block a: `x = const [1]`: a constant is a number or text"),
        ("program p()\na:\n  return y", "Block a: `return y` reads y, which is neither a parameter"),
    ],
)
def test_what_is_no_program_gets_a_sentence(text, sentence):
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (Terminator("goto", (), ("a",)), "Block a ends in `goto`. A block ends in jump, branch, return."),
        (Terminator("jump", (), ()), "Block a: a jump has 1 target(s), `jump` has 0."),
        (Terminator("jump", ("c",), ("a",)), "Block a: `jump c a`: a branch has one condition, a jump none."),
    ],
)
def test_terminators_that_cannot_be(end, sentence):
    assert why_not_a_program(Program("p", ("c",), (block("a", end),))) == sentence


def test_an_unknown_block_is_named():
    with pytest.raises(KeyError, match="count has no block 'nowhere'; its blocks are entry, loop"):
        COUNT["nowhere"]


def test_a_comment_is_no_instruction():
    text = "program p(x)  # a comment\n\nentry: # here\n  y = neg x # and there\n  return y"
    assert parse(text).entry.instructions == (Instruction("y", "neg", ("x",)),)


@pytest.mark.parametrize("program", DRAWN, ids=lambda p: p.name)
def test_reverse_postorder_visits_what_leads_to_a_block_before_it_but_for_loops(program):
    place = {name: i for i, name in enumerate(reverse_postorder(program))}
    heads = loop_heads(program)
    for block, targets in successors(program).items():
        assert all(place[t] > place[block] or t in heads for t in targets)
    backward = reverse_postorder(program, "backward")
    assert sorted(backward) == sorted(place)
    for name in backward[1:]:  # a start, or reached along an edge from an earlier one
        assert any(backward.index(t) < backward.index(name) for t in successors(program)[name]) or (
            program[name].terminator.kind == "return"
        )


def test_a_server_has_an_order_backward_too():
    order = reverse_postorder(FOR_EVER, "backward")
    assert sorted(order) == sorted(b.name for b in FOR_EVER.blocks) and order[0] == "stop"


@pytest.mark.parametrize("program", DRAWN, ids=lambda p: p.name)
def test_dominators_and_reducibility_by_removing_blocks(program):
    ahead, entry = successors(program), program.entry.name

    def reached(without):
        seen, todo = set(), [entry] if entry != without else []
        while todo:
            name = todo.pop()
            if name not in seen and name != without:
                seen.add(name)
                todo += ahead[name]
        return seen

    over = {b: {a for a in ahead if a == b or b not in reached(a)} for b in ahead}
    above = dominators(program)
    for name in ahead:
        chain, at = set(), name
        while at is not None:
            chain.add(at)
            at = above[at]
        assert chain == over[name]
    # Reducible (Hecht and Ullman 1974): without the edges to a dominator no cycle is left.
    left = {b: [t for t in ahead[b] if t not in over[b]] for b in ahead}
    removed = set()
    while free := [b for b in left if b not in removed and all(t in removed for t in left[b])]:
        removed.update(free)
    assert reducible(program) == (removed == set(left))


def test_structured_programs_are_reducible_and_others_need_not_be():
    assert all(reducible(random_program(seed, 12, shuffle=True)) for seed in range(40))
    assert not reducible(TWO_ENTRIES) and reducible(COUNT)
    assert predecessors(ENTRY_IN_LOOP)["entry"] == ["entry"]


def test_the_interpreter_follows_the_branches():
    assert run(COUNT, 7, 6).returned == (sum_of(7, 6),)
    assert run(FOR_EVER, 3, 1, fuel=9).returned is None and run(FOR_EVER, 3, 1, fuel=9).printed == [3] * 4
    assert run(FOR_EVER, 3, 0).returned == (-3,)


def sum_of(x, n):
    total = 0
    for i in range(n):
        total = total - x if total > 10 else total + i
    return total


def test_numbers_wrap_to_32_bits():
    assert evaluate("add", [2**31 - 1, 1]) == -(2**31) and evaluate("mul", [2**16, 2**16]) == 0
    assert evaluate("aten::lt", [1, 2]) == 1 and type(evaluate("lt", [1, 2])) is int


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        ("program p(x)\na:\n  return x", (), "p takes x; it was given 0 argument(s)."),
        ("program p()\na:\n  return", (1,), "p takes no arguments; it was given 1 argument(s)."),
        ("program p(x)\na:\n  t = const 'up'\n  y = add t x\n  return y", (1,), "add does not apply to 'up', 1."),
        ("program p(x)\na:\n  y = fft x\n  return y", (1,), "does not know 'fft'"),
        (
            "program p(x)\na:\n  branch x b c\nb:\n  y = neg x\n  jump c\nc:\n  return y",
            (0,),
            "block c reads y, which has no value yet",
        ),
    ],
)
def test_what_cannot_run_gets_a_sentence(text, arguments, sentence):
    with pytest.raises(ValueError) as caught:
        run(parse(text), *arguments)
    assert sentence in str(caught.value)


# ---------------------------------------------------------------------------------------------------- real programs


def scripted():
    import torch

    def swapped(x: int, n: int) -> int:
        y = n
        for i in range(n):
            x, y = y, x + i
            if x > 20:
                y = y - x
        while y > 9 and n > 0:
            y = y - n
        return x + y

    return swapped, torch.jit.script(swapped)


def test_torchscript_computes_the_same():
    plain, script = scripted()
    program = from_torchscript(script)
    assert not why_not_a_program(program) and program.name == "swapped" and parse(show(program)) == program
    for x, n in ((1, 0), (2, 5), (-3, 9), (40, 3)):
        assert run(program, x, n, fuel=5000).returned == (plain(x, n),)


def test_a_module_in_torchscript_is_read():
    import torch

    class Grow(torch.nn.Module):
        def forward(self, x):
            while bool(x.sum() < 10.0):
                x = torch.relu(x) + 1
            return x

    program = from_torchscript(torch.jit.script(Grow()))
    assert not why_not_a_program(program) and loop_heads(program) == {"loop"}
    assert "aten::relu" in {line.op for line in program["body"].instructions}


def test_stablehlo_computes_the_same():
    import jax
    from jax import lax

    def f(x, n):
        def body(carry):
            i, a, b = carry
            return i + 1, b, lax.cond(a > 10, lambda v: v - i, lambda v: v + x, a)

        return lax.while_loop(lambda carry: carry[0] < n, body, (0, x, n))[1:]

    program = from_stablehlo(jax.jit(f).lower(1, 1).as_text())
    assert not why_not_a_program(program) and loop_heads(program) == {"loop"}
    for x, n in ((1, 0), (2, 5), (7, 9)):
        assert run(program, x, n).returned == tuple(int(value) for value in f(x, n))


def test_a_switch_of_many_branches_becomes_a_chain():
    import jax
    from jax import lax

    def f(i, x, y, z):
        branches = [lambda: (x + y, y), lambda: (y * 2, x), lambda: (x - z, lax.cond(x > y, lambda: x, lambda: z))]
        a, b = lax.switch(i, branches)
        return lax.switch(b, [lambda: a, lambda: b, lambda: a + b, lambda: a - b])

    program = from_stablehlo(jax.jit(f).lower(0, 1, 2, 3).as_text())
    assert not why_not_a_program(program)
    assert "stablehlo.case" not in {line.op for block in program.blocks for line in block.instructions}
    assert solve(program, ANALYSES["liveness"]).before["entry"] == set(program.parameters), "all are read in a branch"
    for i, x, y, z in product((-1, 0, 1, 2, 5), (0, 3), (1, 2), (0, 3)):
        assert run(program, i, x, y, z).returned == (int(f(i, x, y, z)),)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("func.func @main(", "MLIR cannot parse this text"), ("module {}", "has no function (func.func)")],
)
def test_what_is_no_stablehlo_gets_a_sentence(text, sentence):
    with pytest.raises(ValueError) as caught:
        from_stablehlo(text)
    assert sentence in str(caught.value)


def test_text_is_a_constant_like_numbers():
    program = parse('program p(a)\nstart:\n  x = const "a"\n  y = const 3\n  z = add y a\n  return x z')
    assert why_not_a_program(program) == "" and run(program, 4).returned == ("a", 7)
    assert parse(str(program)) == program and solve(program, CONSTANTS).after["start"] == {"x": "a", "y": 3}
    with pytest.raises(ValueError, match="add does not apply to 3, 'b'"):
        run(program, "b")
    for analysis in ANALYSES.values():
        solve(program, analysis)
