"""What modules computed, on disk."""

from __future__ import annotations

import os
import socket

import numpy as np
import pytest

from passlab.building import cache, requests
from passlab.graph.registry import compiler

HEAD = {
    "do": "run",
    "text": 2,
    "target": "llvm",
    "level": 3,
    "config": {},
    "repeats": 0,
    "timed": False,
}
HEAD |= {"inputs": [[["float32", [2]]]]}
PARTS = [b"{}", np.ones(2, np.float32)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_an_answer_comes_back_as_it_was(folder):
    name = cache.key("relax", HEAD, PARTS)
    assert cache.load(name) is None
    cache.store(name, {"outputs": [1]}, b"bytes")
    message, payload = cache.load(name)
    assert message == {"outputs": [1]}
    assert bytes(payload) == b"bytes"
    assert [path.name for path in folder.iterdir()] == [name]


@pytest.mark.parametrize(
    "head, parts",
    [
        (HEAD | {"level": 2}, PARTS),
        (HEAD | {"target": "llvm -mcpu=x"}, PARTS),
        (HEAD | {"config": {"a": 1}}, PARTS),
        (HEAD, [b"[]", PARTS[1]]),
        (HEAD, [PARTS[0], np.zeros(2, np.float32)]),
    ],
)
def test_all_that_decides_the_outputs_is_in_the_key(head, parts):
    assert cache.key("relax", head, parts) != cache.key("relax", HEAD, PARTS)


def test_each_compiler_has_entries_of_its_own(monkeypatch):
    names = {cache.key(flavour, HEAD, PARTS) for flavour in ("relay", "relax")}
    monkeypatch.setattr(compiler("relay"), "distribution", "numpy")
    cache.circumstances.cache_clear()
    names.add(cache.key("relay", HEAD, PARTS))
    cache.circumstances.cache_clear()
    assert len(names) == 3


def test_nothing_is_kept_of_times_of_a_gpu_and_without_a_folder(monkeypatch):
    assert not cache.key("relax", HEAD | {"repeats": 5}, PARTS)
    assert not cache.key("relax", HEAD | {"timed": True}, PARTS)
    assert not cache.key("relax", HEAD | {"target": "cuda"}, PARTS)
    assert not cache.key("relax", {"do": "targets"}, [])
    monkeypatch.delenv(cache.FOLDER)
    assert not cache.key("relax", HEAD, PARTS)


@pytest.mark.parametrize("result", [b"", b"\0" * 8, b"\0" * 7 + b"\x02[", b"\xff" * 40])
def test_what_is_damaged_is_not_there(folder, result):
    folder.mkdir()
    (folder / "name").write_bytes(result)
    assert cache.load("name") is None


def test_the_least_recently_used_go_first(folder):
    for at, name in enumerate("abc"):
        cache.store(name, {}, bytes(100))
        os.utime(folder / name, (at, at))
    assert cache.load("a")
    cache.sweep(250)
    assert {path.name for path in folder.iterdir()} == {"a", "c"}


def test_where_nothing_can_be_written_nothing_happens(monkeypatch):
    monkeypatch.setenv(cache.FOLDER, "/proc/nowhere")
    cache.store("name", {}, b"")
    assert cache.load("name") is None


ANSWER = {"error": "", "stage": "", "kernels": ["add"], "times": [], "beside": [], "allocations": None}
ANSWER |= {"outputs": [[["float32", [2]]]]}


@pytest.fixture
def nobody():
    """A builder that has ended."""
    ours, theirs = socket.socketpair()
    theirs.close()
    requests.use("relax", ours)
    yield
    requests.end("relax")


def test_a_module_that_is_known_is_not_built(nobody):
    cache.store(cache.key("relax", HEAD, PARTS), ANSWER, np.array([1, 2], np.float32).tobytes())
    built = requests.ask("relax", HEAD, PARTS, 1.0)
    assert built.ok
    assert built.kernels == ("add",)
    assert built.outputs[0][0].tolist() == [1, 2]
    with pytest.raises(requests.Ended):
        requests.ask("relax", HEAD | {"level": 0}, PARTS, 1.0)


def test_an_entry_that_does_not_fit_is_not_believed(nobody):
    cache.store(cache.key("relax", HEAD, PARTS), ANSWER, b"short")
    with pytest.raises(requests.Ended):
        requests.ask("relax", HEAD, PARTS, 1.0)
