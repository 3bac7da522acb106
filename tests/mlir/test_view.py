"""MLIR modules as graphs, as pictures, and as differences."""

from __future__ import annotations

import pytest

from passlab import diff, draw, view
from passlab.graph import table, why_not_ssa
from passlab.mlir import MLIRError, parse, pipeline, to_iree
from passlab.mlir.reader import read
from tests.mlir.programs import CHAIN, LOOPS


def test_each_operation_is_a_node_with_its_region_as_a_block():
    graph = view(parse(CHAIN))
    assert graph.ir == "MLIR" and graph.outputs == ("%relu",) and not why_not_ssa(graph)
    assert graph.node("%sum").op == "linalg.generic" and graph.node("%sum").type == "float32[4, 8]"
    assert graph.node("%sum").inputs == ("%a", "%b", "%e", "%s")
    assert graph.node("%s").attrs["block"] == "%sum:body" and graph.node("%s").kind == "compute"
    assert graph.node("%x").inputs == ("%a",) and "%a[d0, d1]" in graph.node("%x").text
    assert graph.node("%c").attrs["value"] == 0.0
    assert graph.counts() == {"compute": 4, "data": 10, "shape": 0, "control": 0, "memory": 0}


def test_linalg_may_be_read_without_bodies():
    graph = read(parse(CHAIN), bodies=False)
    assert len(graph) == 6 and graph.node("%relu").attrs["applies"] == "constant, maximumf"


def test_loops_and_branches_are_control_with_blocks():
    graph = view(parse(LOOPS))
    assert graph.node("%sum").kind == "control" and not why_not_ssa(graph)
    assert graph.node("%d").attrs["block"] == "%sum:body/%row:body/%y:then"
    assert set(graph.node("%y").inputs) == {"%p", "%d", "%zero"}
    assert graph.node("%acc").inputs == ("%zero",) and graph.node("%i").inputs == ()
    assert graph.node("%x").kind == "memory"
    other = [node for node in graph if node.attrs.get("block") == "@other"]
    assert [node.op for node in other] == ["argument", "func.return"]


def test_writing_into_a_buffer_is_noted():
    source = (
        "func.func @main(%m: memref<4xf32>, %x: f32, %i: index) { memref.store %x, %m[%i] : memref<4xf32>\n return }"
    )
    assert "changes a value" in why_not_ssa(view(parse(source)))


def test_jumps_pass_their_operands_to_blocks():
    source = """func.func @main(%p: i1, %x: f32, %y: f32) -> f32 {
      cf.cond_br %p, ^bb1(%x : f32), ^bb2
    ^bb1(%z: f32):
      return %z : f32
    ^bb2:
      cf.br ^bb1(%y : f32) }"""
    graph = view(parse(source))
    assert graph.node("%z").inputs == ("%x", "%y")
    assert {"cf.br", "cf.cond_br"} <= {node.op for node in graph if node.kind == "control"}


def test_modules_of_iree_are_read_and_drawn_alike():
    module = parse(CHAIN)
    values = to_iree(module)
    assert [node.op for node in view(values)] == [node.op for node in view(module)]
    assert "linalg.generic" in draw(values).text


def test_a_module_without_functions_is_refused():
    with pytest.raises(MLIRError, match="no function"):
        view(parse("module {}"))


def test_the_picture_frames_each_region():
    picture = draw(parse(LOOPS), title="loops")
    assert (
        picture.dot.count("subgraph cluster_") == 2 + 2 + 1 + 1
    )  # functions, loops, the branch, the arm that computes
    assert "%i = 0 to 4 step 1" in picture.dot and picture.svg.startswith("<svg")
    assert "%c4" not in picture.dot  # a bound stands at the head of its loop
    assert "      %d = arith.mulf" in picture.text


def test_the_picture_draws_an_operand_to_the_argument_that_takes_it():
    graph, picture = view(parse(CHAIN)), draw(parse(CHAIN))
    shown = {node.id: node for node in graph}
    assert "%a[d0, d1]" in picture.dot and shown["%o"].inputs == ("%e",)
    assert "%o</b>" not in picture.dot  # a destination that the body does not read is a dashed line instead
    assert picture.dot.count("style=dashed") == 2


def test_the_picture_shows_the_order_where_values_do_not():
    module = parse(
        """func.func @main(%a: memref<4xf32>, %b: memref<4xf32>) {
          %z = arith.constant 0.0 : f32
          linalg.fill ins(%z : f32) outs(%b : memref<4xf32>)
          linalg.copy ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
          return
        }"""
    )
    for drawn, arrows in (
        (draw(module), 2),  # fill → copy → return
        (draw(pipeline(module, "convert-linalg-to-loops, canonicalize")), 4),  # two ends of turns; loop → loop → return
        (draw(parse(CHAIN)), 0),
    ):
        assert drawn.dot.count("style=dotted") == arrows
        assert ("Dotted arrows" in drawn.note) == bool(arrows)
    assert "ltail=cluster_" in draw(pipeline(module, "convert-linalg-to-loops")).dot


def test_a_large_module_is_drawn_without_bodies_and_a_huge_one_in_groups():
    from tests.mlir.generate import random_module

    assert "tensor.empty is not drawn" in draw(random_module(1, 20)).note
    assert "nodes in" in draw(random_module(1, 300, ["pointwise"])).note


def test_a_difference_shows_what_changed_inside_a_region():
    module = parse(CHAIN)
    other = parse(CHAIN.replace("arith.maximumf", "arith.minimumf"))
    message = diff(module, other)
    assert "- %m = arith.maximumf" in message.text and "+ %m = arith.minimumf" in message.text
    assert "  %s = arith.addf" in message.text


def test_a_difference_of_fusion_keeps_the_body_that_moved():
    module = parse(CHAIN)
    message = diff(module, pipeline(module, "linalg-fuse-elementwise-ops, canonicalize"))
    lines = message.text.splitlines()
    assert any(line.startswith("- %sum = linalg.generic") for line in lines)
    assert any(line.startswith("  %s = arith.addf") for line in lines)
    assert any(line.startswith("~ %relu = linalg.generic") for line in lines) and message.svg.startswith("<svg")


def test_the_same_module_has_no_difference():
    message = diff(parse(CHAIN), parse(CHAIN)).text
    assert not [line for line in message.splitlines()[2:] if line[0] in "+-~≠"]


def test_the_table_knows_the_levels_of_mlir():
    row = table([view(parse(CHAIN)), view(parse(LOOPS))]).rows[-1]
    assert row[0] == "MLIR" and "scf.for, scf.if" in row[5].replace("scf.if, scf.for", "scf.for, scf.if")


def test_the_arguments_of_a_map_take_its_operands():
    source = """func.func @main(%a: tensor<4xf32>, %e: tensor<4xf32>) -> tensor<4xf32> {
      %m = "linalg.map"(%a, %e) ({
      ^bb0(%x: f32, %o: f32):
        %y = math.absf %x : f32
        linalg.yield %y : f32
      }) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      return %m : tensor<4xf32> }"""
    graph = view(parse(source))
    (values,) = [node for node in graph if node.inputs == ("%arg0",) and node.op == "argument"]
    assert values.attrs["block"].endswith(":body") and graph.consumers(values.id)


def test_text_of_mlir_is_read_as_its_module_is():
    assert [node.text for node in view(CHAIN)] == [node.text for node in view(parse(CHAIN))]
