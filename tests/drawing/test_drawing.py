"""Pictures say what is in the graph, survive what is in it, and stay small."""

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passlab.drawing import chart, diff, draw, picture, steps
from passlab.drawing.boxes import COLOURS, LINES
from passlab.drawing.difference import match, status
from passlab.drawing.grouping import group
from passlab.drawing.picture import size
from passlab.graph import Graph, Node

needs_dot = pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz's dot is not installed")
SVG = "{http://www.w3.org/2000/svg}"


def graph(*lines: str, **attrs: dict) -> Graph:
    """`graph("x = input", "y = relu(x)")`; keyword arguments are the attributes of nodes."""
    nodes = []
    for line in lines:
        id, op, operands = re.fullmatch(r"(\w+) = (\w+)(?:\((.*)\))?", line).groups()
        inputs = tuple(filter(None, (operands or "").split(", ")))
        kind = "compute" if inputs else "data"
        nodes.append(Node(id, op, kind, inputs, (4, 8), "float32", 128, line, attrs.get(id, {})))
    return Graph("g", "test", tuple(nodes), (nodes[-1].id,) if nodes else ())


def words(svg: str) -> str:
    """All text that is seen, without the tips."""
    return "\n".join(it.text or "" for it in ET.fromstring(svg).iter(f"{SVG}text")).replace("\xa0", " ")


def boxes(svg: str) -> dict[str, ET.Element]:
    """The first word group of each box (the op) and the id, or the caption → its element."""
    elements = {}
    for it in ET.fromstring(svg).iter(f"{SVG}g"):
        if "node" in it.get("class", "").split():
            lines = [text.text.replace("\xa0", " ").strip() for text in it.iter(f"{SVG}text")]
            elements[" ".join(filter(None, lines))] = it
    return elements


def box(svg: str, start: str) -> ET.Element:
    (element,) = (it for text, it in boxes(svg).items() if text.startswith(start))
    return element


def changes(before: Graph, after: Graph) -> dict[str, str]:
    """Id in the second graph → what became of it; removed ids with a minus."""
    pairs = match(before, after)
    statuses = {node.id: "added" for node in after}
    statuses |= {new: status(before.node(old), after.node(new), pairs) for old, new in pairs.items()}
    return statuses | {f"-{node.id}": "removed" for node in before if node.id not in pairs}


SMALL = graph("x = input", "a = relu(x)", "b = tanh(a)", "c = add(a, b)")


# --- draw


@needs_dot
def test_a_node_shows_op_shape_dtype_and_bytes():
    text = words(draw(SMALL).svg)
    for word in ("relu", "tanh", "float32[4, 8] · 128 B"):
        assert word in text
        assert word in draw(SMALL).text


@needs_dot
def test_a_node_has_the_colours_of_its_kind_and_only_kinds_that_occur_are_explained():
    svg = draw(SMALL).svg
    shape = box(svg, "relu").find(f".//{SVG}path")
    assert (shape.get("stroke").upper(), shape.get("fill").upper()) == COLOURS["compute"]
    text = words(svg)
    assert "compute 3" in text and "data 1" in text
    assert "control" not in text and "memory" not in text and "shape" not in text


@needs_dot
def test_edges_are_numbered_only_where_the_order_of_operands_matters():
    def numbers(op):
        g = graph("x = input", "a = relu(x)", "b = tanh(x)", f"c = {op}(a, b)")
        return re.findall(r">([12])</text>", draw(g).svg)

    assert sorted(numbers("sub")) == ["1", "2"]
    assert numbers("add") == numbers("Add") == []


NASTY = "</text><script>alert(1)</script>"
WEIRD = 'a"b\n{x|y}\x00\\N<b>&amp;'


@needs_dot
@pytest.mark.parametrize("name", [NASTY, WEIRD, "]]>", "\ud800 \u202e", "é 漢 ×", "a -> b; }", "%", ""])
def test_names_draw_as_text(name):
    node = Node(name, name, "compute", ("x",), (2,), name, 8, name, {name: name}, name)
    g = Graph(name, name, (Node("x", "input", "data"), node), (name,))
    for drawing in (
        draw(g, title=name, mark=[name]),
        diff(SMALL, g, title=name),
        steps([(g, [name], name)], title=name),
    ):
        root = ET.fromstring(drawing.svg)  # well-formed
        assert not list(root.iter(f"{SVG}script")) and "<script" not in drawing.html
        shown = "".join(c if c.isprintable() else " " for c in name)
        assert any(shown.strip() in (it.text or "").replace("\xa0", " ") for it in root.iter(f"{SVG}text"))
        assert isinstance(drawing.text, str)


@needs_dot
def test_no_weight_and_no_long_text_gets_into_a_picture():
    torch = pytest.importorskip("torch")
    attrs = {"weight": torch.zeros(1000, 1000), "names": list(range(100_000)), "path": "p" * 100_000}
    drawing = draw(graph("x = input", "y = conv(x)", y=attrs))
    assert "weight=tensor[1000, 1000]" in words(drawing.svg)
    assert "…" in words(drawing.svg)
    assert len(drawing.svg) < 10_000 and len(drawing.text) < 1_000


@needs_dot
def test_an_attribute_whose_repr_fails_does_not_stop_the_picture():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no repr")

    g = graph("x = input", "y = conv(x)", y={"bad": Broken()})
    assert "bad=" in words(draw(g).svg)
    assert "y" in diff(g, g).text


@needs_dot
def test_marked_nodes_stand_out_and_foreign_marks_are_named():
    drawing = draw(SMALL, mark=["a", "nowhere"])
    width = {name: float(it.find(f".//{SVG}path").get("stroke-width", 1)) for name, it in boxes(drawing.svg).items()}
    marked = next(name for name in width if name.startswith("relu"))
    assert all(width[marked] > 2 * wide for name, wide in width.items() if name != marked)
    assert "nowhere" in drawing.note and "nowhere" in words(drawing.svg)
    assert "▸ a = relu(x)" in drawing.text
    assert draw(SMALL, mark="a").text == draw(SMALL, mark=["a"]).text
    assert draw(SMALL, mark=[SMALL.node("a")]).text == draw(SMALL, mark=["a"]).text


@needs_dot
def test_a_frame_stands_around_each_group_and_the_text_names_its_members():
    drawing = draw(SMALL, groups=[["a", "b"], [SMALL.node("c")], ["nowhere"]])
    frames = [it for it in ET.fromstring(drawing.svg).iter(f"{SVG}g") if "cluster" in it.get("class", "").split()]
    assert len(frames) == 2 and "group 2" in words(drawing.svg)
    assert "group 1: a, b" in drawing.text and "group 2: c" in drawing.text
    assert "nowhere" in drawing.note


@needs_dot
def test_a_frame_does_not_stop_a_large_graph_from_being_put_into_few_boxes():
    drawing = draw(tangle(5000), groups=[["n2500", "n2501"]])
    assert len(boxes(drawing.svg)) <= 200 and "5,000 nodes in" in drawing.note


@needs_dot
@pytest.mark.parametrize(
    "g",
    [
        graph(),
        graph("x = input"),
        graph("a = relu(b)", "b = tanh(a)"),
        graph("a = relu(a)"),
        Graph("g", "test", (Node("gone", "missing", "data"), Node("y", "relu", "compute", ("gone",))), ("y",)),
        Graph("g", "test", (Node("y", "relu", "compute", ("nowhere",)),), ("y",)),
    ],
    ids=["empty", "one node", "cycle", "self loop", "missing", "dangling"],
)
def test_broken_graphs_can_be_looked_at(g):
    for drawing in (draw(g), diff(g, SMALL), diff(SMALL, g), steps([g, SMALL]), draw(g, limit=1)):
        assert drawing.svg.startswith("<svg"), drawing.note


@needs_dot
def test_the_svg_stands_in_a_page_without_clashing():
    svg = draw(SMALL, title="One").svg
    root = ET.fromstring(svg)
    assert svg.startswith("<svg") and "<!--" not in svg and "<!DOCTYPE" not in svg
    assert root.get("role") == "img" and root.get("aria-label").startswith("One")
    assert root.find(f"{SVG}title").text == root.get("aria-label")
    assert not [it for it in root.iter() if it.get("id")]
    assert root.find(f".//{SVG}polygon").get("fill") == "white"  # opaque, for dark themes


@needs_dot
def test_the_mouse_shows_the_source_of_a_node():
    tips = [it.find(f"{SVG}title").text for it in boxes(draw(SMALL).svg).values()]
    assert any("c = add(a, b)" in tip for tip in tips)


def test_a_graph_module_draws_with_shapes_from_inputs():
    torch = pytest.importorskip("torch")
    gm = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU()))
    assert "float32[2, 5] · 40 B" in draw(gm, torch.zeros(2, 3)).text  # 2 * 5 * 4 bytes
    assert "float32" not in draw(gm).text


@needs_dot
def test_picture_in_a_notebook_is_html_with_text_beside_it():
    bundle = draw(SMALL)._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert "<svg" in bundle["text/html"] and "background:#fff" in bundle["text/html"]
    assert repr(draw(SMALL)) == bundle["text/plain"] == draw(SMALL).text


@needs_dot
def test_save_writes_what_the_suffix_says(tmp_path):
    drawing = draw(SMALL)
    assert drawing.save(tmp_path / "g.svg").read_text().startswith("<svg")
    assert drawing.save(tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    assert drawing.save(str(tmp_path / "g.txt")).read_text() == drawing.text + "\n"
    assert drawing.save(tmp_path / "g.dot").read_text().startswith("digraph")
    assert "<svg" in drawing.save(tmp_path / "g.html").read_text()
    with pytest.raises(ValueError, match=r"\.svg, \.png.*g\.gif"):
        drawing.save(tmp_path / "g.gif")


def test_without_graphviz_there_is_text_and_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(picture.shutil, "which", lambda _: None)
    drawing = draw(SMALL)
    assert drawing.svg == ""
    assert "install" in drawing.note and "graphviz" in drawing.note
    bundle = drawing._repr_mimebundle_()
    for form in bundle.values():
        assert "a = relu(x)" in form and "install" in form
    assert "a = relu(x)" in drawing.save(tmp_path / "g.txt").read_text()
    for form in ("svg", "png"):
        with pytest.raises(RuntimeError, match=r"not written.*install it"):
            drawing.save(tmp_path / f"g.{form}")
        assert not (tmp_path / f"g.{form}").exists()
    film = steps([(SMALL, ["a"], "first"), (SMALL, [], "second")])
    assert "install" in film.html and "a = relu(x)" in film.html and "second" in film.html


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for dot")
@pytest.mark.parametrize(
    ("script", "text"), [("sleep 30", "still working after"), ("echo 'syntax error' >&2; exit 1", "syntax error")]
)
def test_a_dot_that_hangs_or_fails_gives_text_and_a_sentence(monkeypatch, tmp_path, script, text):
    fake = tmp_path / "dot"
    fake.write_text(f'#!/bin/sh\nexec sh -c "exec {script}"\n' if "sleep" in script else f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(picture.shutil, "which", lambda _: str(fake))
    monkeypatch.setattr(picture, "WAIT_SECONDS", 1)
    drawing = draw(SMALL)
    assert drawing.svg == "" and text in drawing.note and "a = relu(x)" in drawing.html


def test_drawing_loads_no_compiler_and_no_widgets():
    heavy = "torch", "onnx", "jax", "matplotlib", "islpy", "ipywidgets"
    code = f"import sys, passlab.drawing; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


SIZES = {None: "", 0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 802816: "784 KiB", 3 << 40: "3 TiB"}


@pytest.mark.parametrize(("count", "text"), SIZES.items())
def test_bytes_are_for_people(count, text):
    assert size(count) == text


# --- many nodes


def blocks(count: int) -> Graph:
    """`count` residual blocks: conv → relu → conv → add."""
    lines, last = ["x = input"], "x"
    for i in range(count):
        lines += [f"c{i} = conv({last})", f"r{i} = relu(c{i})", f"d{i} = conv(r{i})", f"s{i} = add({last}, d{i})"]
        last = f"s{i}"
    return graph(*lines)


def tangle(count: int, seed: int = 0) -> Graph:
    """A random graph in which nothing repeats for long."""
    import random

    pick = random.Random(seed)
    lines = ["n0 = input"]
    for i in range(1, count):
        inputs = sorted({f"n{pick.randrange(max(0, i - 20), i)}" for _ in range(pick.choice([1, 1, 2]))})
        lines.append(f"n{i} = {pick.choice(['relu', 'tanh', 'mul', 'add', 'exp'])}({', '.join(inputs)})")
    return graph(*lines)


@needs_dot
def test_what_repeats_is_drawn_once():
    drawing = draw(blocks(1250))  # 5,001 nodes
    assert len(boxes(drawing.svg)) == 5
    assert "1,250 ×" in words(drawing.svg)
    edges = [it.find(f"{SVG}path") for it in ET.fromstring(drawing.svg).iter(f"{SVG}g") if it.get("class") == "edge"]
    dashed = [it for it in edges if it.get("stroke-dasharray")]
    # within a round: x→conv→relu→conv→add and x→add; into the next round, dashed: add→conv and add→add
    assert (len(edges), len(dashed)) == (7, 2)
    assert "5,001 nodes in 5 boxes" in drawing.note
    assert "5,001 nodes in 5 boxes" in words(drawing.svg).replace("\n", " ")
    assert f"… {5001 - LINES:,} more nodes" in drawing.text and len(drawing.text.split("\n")) < LINES + 5


@needs_dot
def test_five_thousand_nodes_fit_and_none_is_forgotten():
    drawing = draw(tangle(5000))
    elements = boxes(drawing.svg)
    assert len(elements) <= 200 and "5,000 nodes in" in drawing.note
    values = [re.match(r"([\d,]+) nodes", name) for name in elements]
    assert sum(int(it[1].replace(",", "")) if it else 1 for it in values) == 5000


@needs_dot
def test_marked_nodes_of_a_large_graph_stand_alone():
    elements = boxes(draw(tangle(5000), mark=["n2500"]).svg)
    assert any(re.search(r"\bn2500\b", name) for name in elements)


@needs_dot
def test_a_limit_of_ones_own_is_kept():
    assert len(boxes(draw(tangle(100), limit=20).svg)) <= 20
    assert len(boxes(draw(tangle(150)).svg)) == 150


@needs_dot
def test_many_edges_are_grouped_too():
    g = graph("n0 = input", *(f"n{i} = cat({', '.join(f'n{j}' for j in range(i))})" for i in range(1, 150)))
    assert len(boxes(draw(g).svg)) < 40


@needs_dot
def test_in_a_large_picture_weights_stand_inside_the_box_that_uses_them():
    lines, last = ["x = input"], "x"
    for i in range(40):
        lines += [f"w{i} = weight", f"m{i} = matmul({last}, w{i})"]
        last = f"m{i}"
    drawing = draw(graph(*lines))
    assert len(boxes(drawing.svg)) == 41  # x and 40 products
    assert "with float32[4, 8]" in words(drawing.svg) and "40 weights" in drawing.note
    marked = draw(graph(*lines), mark=["w3"])
    assert len(boxes(marked.svg)) == 42


dags = st.integers(2, 120).flatmap(
    lambda n: st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, n), max_size=2), st.booleans()),
        min_size=n,
        max_size=n,
    )
)


@given(dags, st.integers(4, 30))
def test_groups_partition_the_nodes_and_keep_the_order(rows, limit):
    names = {i: op for i, (op, _, _) in enumerate(rows)}
    edges = list({(j % i, i): 0 for i, (_, inputs, _) in enumerate(rows) if i for j in inputs})
    keep = [i for i, row in enumerate(rows) if row[2]][:3]
    groups = group(names, names, edges, keep, limit)
    where = {key: place for place, it in enumerate(groups) for key in it.keys}
    assert sorted(key for it in groups for key in it.keys) == sorted(names)
    assert all(where[a] <= where[b] for a, b in edges)
    for it in groups:
        each = sum(len(part.keys) for part in it.body)
        for i, key in enumerate(it.keys if it.body else ()):
            assert names[key] == names[it.keys[i % each]]  # every round is like the first


# --- diff


def test_equal_graphs_have_nothing_but_kept_nodes():
    assert set(changes(SMALL, SMALL).values()) == {"kept"}


def test_a_removed_node_leaves_its_consumer_rewired():
    after = graph("x = input", "a = relu(x)", "c = add(a, x)")
    assert changes(SMALL, after) == {"x": "kept", "a": "kept", "c": "rewired", "-b": "removed"}


def test_renaming_everything_changes_nothing():
    renamed = graph("p = input", "q = relu(p)", "r = tanh(q)", "s = add(q, r)")
    assert match(SMALL, renamed) == {"x": "p", "a": "q", "b": "r", "c": "s"}
    assert set(changes(SMALL, renamed).values()) == {"kept"}


def test_names_that_shift_when_a_graph_is_traced_again_do_not_confuse():
    before = graph("x = input", "relu = relu(x)", "a = sub(x, relu)", "relu_1 = relu(a)", "b = div(a, relu_1)")
    after = graph("x = input", "a = sub(x, x)", "relu = relu(a)", "b = div(a, relu)")
    assert match(before, after)["relu_1"] == "relu"
    assert changes(before, after) == {"x": "kept", "a": "rewired", "relu": "kept", "b": "kept", "-relu": "removed"}


def test_a_name_that_survives_is_believed():
    """relu(relu(x)) = relu(x): the pass took the first out and rewired the second; it renamed nothing."""
    before = graph("x = input", "relu = relu(x)", "relu_1 = relu(relu)", "y = exp(relu_1)")
    after = graph("x = input", "relu_1 = relu(x)", "y = exp(relu_1)")
    assert changes(before, after) == {"x": "kept", "relu_1": "rewired", "y": "kept", "-relu": "removed"}


def test_another_op_under_the_same_name_is_another_node():
    after = graph("x = input", "a = leaky_relu(x)", "b = tanh(a)", "c = add(a, b)")
    statuses = changes(SMALL, after)
    assert (statuses["-a"], statuses["a"], statuses["b"]) == ("removed", "added", "rewired")


def test_attributes_and_types_that_differ_are_altered():
    before, after = (graph("x = input", "y = conv(x)", y={"stride": stride}) for stride in (1, 2))
    assert changes(before, after)["y"] == "altered"
    assert "stride=1 → 2" in diff(before, after).text
    typed = Graph("g", "test", (Node("x", "input", "data", (), (2,), "float16"),), ("x",))
    assert changes(graph("x = input"), typed) == {"x": "altered"}
    untyped = Graph("g", "test", (Node("x", "input", "data", text="x = input"),), ("x",))
    assert changes(graph("x = input"), untyped) == {"x": "kept"}  # not known is not changed


def test_swapped_operands_are_a_change():
    before, after = (graph("x = input", "y = input", f"z = sub({operands})") for operands in ("x, y", "y, x"))
    assert changes(before, after)["z"] == "rewired"


def test_diff_as_text_reads_like_a_unified_diff():
    after = graph("x = input", "a = relu(x)", "e = exp(a)", "c = add(a, e)")
    lines = [" ".join(line.split()) for line in diff(SMALL, after, title="T").text.split("\n")]
    typed = "float32[4, 8] · 128 B"
    assert lines == [
        "T",
        "--- before test: 4 nodes, 512 B of values",
        "+++ after test: 4 nodes, 512 B of values",
        f"x = input {typed}",
        f"a = relu(x) {typed}",
        f"- b = tanh(a) {typed}",
        f"+ e = exp(a) {typed}",
        f"~ c = add(a, e) {typed} was c = add(a, b)",
    ]


def test_far_from_a_change_unchanged_nodes_are_counted():
    lines = ["n0 = input", *(f"n{i} = relu(n{i - 1})" for i in range(1, 100))]
    text = diff(graph(*lines), graph(*lines, "y = exp(n99)")).text
    assert "@@ 97 unchanged nodes @@" in text  # 100 kept, 3 of them beside the change
    assert len(text.split("\n")) == 2 + 1 + 3 + 1


@needs_dot
def test_a_difference_needs_no_colour():
    after = graph("x = input", "a = relu(x)", "e = exp(a)", "c = add(a, e)")
    svg = diff(SMALL, after).svg
    removed, added, wired = box(svg, "− tanh"), box(svg, "+ exp"), box(svg, "~ add")
    assert removed.find(f".//{SVG}path").get("stroke-dasharray")
    assert float(added.find(f".//{SVG}path").get("stroke-width")) > 2
    assert not added.find(f".//{SVG}path").get("stroke-dasharray")
    assert "was c = add(a, b)" in "".join(wired.itertext())
    edges = [it.find(f"{SVG}path") for it in ET.fromstring(svg).iter(f"{SVG}g") if it.get("class") == "edge"]
    dashed = [it for it in edges if it.get("stroke-dasharray")]
    bold = [it for it in edges if float(it.get("stroke-width", 1)) > 2]
    assert (len(edges), len(dashed), len(bold)) == (6, 2, 2)  # a→b→c gone, a→e→c new, x→a→c kept
    for word in ("kept 2", "added 1", "removed 1", "rewired 1"):
        assert word in words(svg)


@needs_dot
def test_the_changes_in_a_large_graph_stand_alone():
    before = tangle(5000)
    lines = [node.text for node in before if node.id != "n4999"]
    after = graph(*lines, "n4999 = fresh(n4998)")
    elements = boxes(diff(before, after).svg)
    assert any(name.startswith("+ fresh") for name in elements) and len(elements) <= 200


graphs = dags.map(
    lambda rows: graph(
        "n0 = input",
        *(
            f"n{i} = {op}({', '.join(sorted({f'n{j % i}' for j in [0, *inputs]}))})"
            for i, (op, inputs, _) in enumerate(rows)
            if i
        ),
    )
)


@given(graphs, graphs)
def test_a_match_is_one_to_one_between_nodes_of_one_op(before, after):
    pairs = match(before, after)
    assert len(set(pairs.values())) == len(pairs)
    assert all(before.node(old).op == after.node(new).op for old, new in pairs.items())
    assert match(before, before) == {node.id: node.id for node in before}


# --- steps


def film():
    return [
        (SMALL, ["b"], "tanh is not needed"),
        (graph("x = input", "a = relu(x)", "c = add(a, a)"), ["c"], "and gone"),
    ]


@needs_dot
def test_steps_need_no_script_and_show_the_first_state():
    html = steps(film(), title="Film").html
    assert "<script" not in html and " onclick" not in html
    assert len(re.findall(r"<input[^>]* checked>", html)) == 1
    assert re.search(r"<input[^>]*-0\"[^>]* checked>", html)
    assert html.index("tanh is not needed") < html.index("and gone")


@needs_dot
def test_one_drawing_holds_all_states():
    svg = steps(film()).svg
    assert box(svg, "tanh").get("class").split() == ["node", "mark0", "some", "in0"]
    assert box(svg, "add").get("class").split() == ["node", "mark1"]
    assert box(svg, "relu").get("class").split() == ["node"]


@needs_dot
def test_a_step_through_can_stand_on_a_page_twice():
    drawing = steps(film())
    ids = [set(re.findall(r'id="([^"]+)"', drawing.html)) for _ in range(2)]
    assert ids[0] and not ids[0] & ids[1]


def test_steps_as_text_tell_what_each_state_changed():
    text = steps(film(), title="Film").text
    assert text.startswith("Film\n1/2  tanh is not needed\n")
    assert "▸ b = tanh(a)" in text
    second = text[text.index("2/2") :]
    assert "and gone  ▸ c" in second and "- b = tanh(a)" in second and "~ c = add(a, a)" in second


def test_a_graph_that_is_changed_along_the_way_is_read_at_every_step():
    torch = pytest.importorskip("torch")
    gm = torch.fx.symbolic_trace(lambda x: torch.relu(torch.relu(x)))

    def passes():
        first, second = (node for node in gm.graph.nodes if node.op == "call_function")
        yield gm, [second.name], "two in a row"
        second.replace_all_uses_with(first)
        gm.graph.erase_node(second)
        yield gm, [first], "one is left"

    drawing = steps(passes())
    assert [len(graph) for graph, _, _ in drawing.frames] == [4, 3]
    assert drawing.frames[1][1] == {"relu"}


def test_steps_take_bare_graphs_say_what_they_left_out_and_want_at_least_one():
    assert "1/1" in steps([SMALL]).text
    drawing = steps((SMALL, [], f"state {i}") for i in range(150))
    assert len(drawing.frames) == 100 and "first 100 of 150 states" in drawing.note
    with pytest.raises(ValueError, match="no states"):
        steps([])


def test_steps_are_saved_as_a_page_or_as_text(tmp_path):
    drawing = steps(film())
    assert "tanh is not needed" in drawing.save(tmp_path / "film.html").read_text()
    with pytest.raises(ValueError, match=r"\.html, \.txt"):
        drawing.save(tmp_path / "film.svg")


# --- chart


def test_bars_are_as_long_as_their_figures_and_told_as_ratios():
    drawing = chart("bytes written", {"before": 4096, "after": 1024}, "B")
    text = words(drawing.svg)
    assert "4 KiB" in text and "1 KiB" in text and "× 0.25" in text
    groups = [it for it in ET.fromstring(drawing.svg).iter(f"{SVG}g") if it.find(f"{SVG}title") is not None]
    assert [it.findtext(f"{SVG}title") for it in groups] == ["before: 4 KiB", "after: 1 KiB"]
    widths = []
    for bar in groups:
        across = [float(x) for x in re.findall(r"[ML] ([\d.]+)", bar.find(f"{SVG}path").get("d"))]
        widths.append(max(across) - min(across))
    assert len(widths) == 2 and widths[1] == pytest.approx(widths[0] / 4, abs=2)
    after = drawing.text.split("\n")[2]
    assert after.count("█") * 4 == drawing.text.split("\n")[1].count("█") and "× 0.25" in after


@pytest.mark.parametrize("values", [{"a": 0, "b": 0}, {"a": -1.0, "b": 2}, {NASTY: 1, WEIRD: float(10**20)}])
def test_charts_of_odd_figures_draw(values):
    assert chart(NASTY, values, "ms").svg.startswith("<svg")


def test_a_chart_of_nothing_says_so():
    with pytest.raises(ValueError, match="no values"):
        chart("empty", {})
