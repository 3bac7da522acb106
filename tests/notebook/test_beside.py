"""The process beside: a notebook in which it is used runs in a kernel of its own; the tests look at its outputs."""

from __future__ import annotations

import os
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = {
    "load": "from passlab.notebook import beside",
    "say": """%%beside relax
import sys
from passlab.relax import relax, tvm
print("said there")
print("oh", file=sys.stderr)""",
    "module": """%%beside relax
import os
from passlab import draw
x = relax.Var("x", relax.TensorType((2, 4), "float32"))
build = relax.BlockBuilder()
with build.function("main", [x]):
    build.emit_func_output(build.emit(relax.op.nn.relu(x)))
module, here = build.get(), os.getpid()
draw(module)""",
    "display": "%%beside relax\nfrom IPython.display import HTML, display\ndisplay(HTML('<b>bold</b>'))\nhere * 0",
    "back": """import os
print(beside.view("relax", "module"), beside.value("relax", "here") == os.getpid())""",
    "wrong": "%%beside relax\ndef inner():\n    return 1 / 0\ninner()",
    "after": "%%beside relax\nhere > 0",
    "own text": "%%beside relax\nclass Text(str):\n    pass\nprint(Text('from a class of its own'))\nText('result')",
    "own value": "beside.value('relax', 'Text(1)')",
    "no value": "beside.value('relax', 'missing')",
    "dies": "%%beside relax\nos._exit(3)",
    "again": "%%beside relax\n'here' in globals()",
    "both": "%%beside relay relax\nimport tvm\ntvm.__version__[:4]",
    "typo": "%%beside relaks\n1",
    "tvm": "import sys\n'tvm' in sys.modules",
}


def outputs(cells: dict[str, str], folder, **env: str) -> dict[str, list]:
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells.values()])
    client = NotebookClient(nb, timeout=240, kernel_name="python3", allow_errors=True)
    client.execute(cwd=str(folder), env={**os.environ, **env})
    return {name: cell.outputs for name, cell in zip(cells, nb.cells, strict=True)}


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> dict[str, list]:
    return outputs(CELLS, tmp_path_factory.mktemp("notebook"))


def text(result: list) -> str:
    return "".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") + o.get("evalue", "") for o in result)


def test_what_is_printed_there_is_shown_here(shown):
    streams = {o.name: o.text for o in shown["say"]}
    assert streams == {"stdout": "said there\n", "stderr": "oh\n"}


def test_pictures_and_results_come_with_all_their_forms(shown):
    (picture,) = (o.data for o in shown["module"])
    assert "<svg" in picture.get("text/html", "") + picture.get("image/svg+xml", "")
    assert "R.nn.relu" in picture["text/plain"]
    assert [sorted(o.data) for o in shown["display"]] == [["text/html", "text/plain"], ["text/plain"]]


def test_text_of_a_class_that_is_not_here(shown):
    assert text(shown["own text"]) == "from a class of its own\n'result'"
    assert "cannot leave its process" in text(shown["own value"])


def test_graphs_and_values_come_back(shown):
    assert text(shown["back"]) == "Graph('main', Relax: 3 nodes: 1 compute, 2 data) False\n"


def test_an_error_fails_the_cell_with_the_traceback_from_there(shown):
    (error,) = (o for o in shown["wrong"] if o.output_type == "error")
    assert "ZeroDivisionError" in error.evalue and any("inner()" in line for line in error.traceback)
    assert not any("beside.py" in line for line in error.traceback)
    assert text(shown["after"]) == "True", "its variables are still there"
    assert "NameError" in text(shown["no value"])


def test_a_process_that_dies_is_named_and_replaced(shown):
    assert "exit status 3" in text(shown["dies"]) and "run its cells again" in text(shown["dies"])
    assert text(shown["again"]) == "False"


def test_a_cell_for_both_runs_in_both(shown):
    assert [o.data["text/plain"] for o in shown["both"]] == ["'0.17'", "'0.27'"]


def test_an_unknown_compiler_is_named(shown):
    assert "'relaks'" in text(shown["typo"]) and "relay or relax" in text(shown["typo"])


def test_the_notebook_itself_loads_no_tvm(shown):
    assert text(shown["tvm"]) == "False"


def test_where_it_cannot_be_reached_it_says_so_once(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import platform\nplatform.machine = lambda: 'arm64'\n")
    cells = {
        "load": "from passlab.notebook import beside",
        "first": "%%beside relay\n1 / 0",
        "second": "%%beside relay\n1 / 0",
        "view": "print(beside.view('relay', 'module'), beside.value('relay', '1'))",
    }
    result = outputs(cells, tmp_path, PYTHONPATH=str(tmp_path))
    assert "Linux on x86-64 only" in text(result["first"]) and "in this notebook do nothing" in text(result["first"])
    assert result["second"] == [] and text(result["view"]) == "None None\n"


def test_it_ends_with_the_process_that_started_it():
    code = "from passlab.notebook import beside; beside.run('relax', 'import os')\n"
    code += "print(beside.value('relax', 'os.getpid()'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    stays = subprocess.run(["ps", "-o", "stat=", "-p", done.stdout.strip()], capture_output=True, text=True).stdout
    assert not stays or stays.startswith("Z"), "it still runs"


def test_an_interrupt_stops_the_cell_and_keeps_the_variables():
    code = """
import os, signal, threading
from passlab.notebook import beside
beside.run("relax", "x = 5")
threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    beside.run("relax", "import time\\nwhile True: time.sleep(0.1)")
except beside.CellFailed as error:
    print(error)
print(beside.value("relax", "x"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["KeyboardInterrupt:", "5"], done.stderr


def test_where_no_kernel_can_be_started_one_sentence_says_so(monkeypatch):
    from jupyter_client.manager import KernelManager

    from passlab.notebook import beside

    def refused(*_, **__):
        raise PermissionError("no sockets here")

    monkeypatch.setattr(KernelManager, "start_kernel", refused)
    with pytest.raises(beside.CellFailed, match=r"A second process cannot be started here: no sockets here\."):
        beside.run("relax", "1")
