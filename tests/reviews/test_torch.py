"""What the questions on torch.compile say is what torch does."""

from __future__ import annotations

import re

import pytest
import torch

from passlab.capture import Capture, capture
from passlab.reviews import draw


@pytest.mark.parametrize("seed", range(12))
def test_as_many_versions_are_compiled_as_the_answer_says(seed):
    question = draw("versions", seed)
    program = Capture(lambda x: x * 2)
    for size in re.search(r"sizes (.*?)\.", question.text)[1].split(", "):
        program(torch.ones(int(size)))
    assert len(program.compilations) == question.answer, question.text


@pytest.mark.parametrize("seed", range(12))
def test_dynamo_captures_as_many_graphs_as_the_answer_says(seed, tmp_path, monkeypatch):
    question = draw("graphs", seed)
    (tmp_path / f"drawn{seed}.py").write_text(question.text.partition("\n\n")[0])
    monkeypatch.syspath_prepend(tmp_path)
    function = __import__(f"drawn{seed}").f
    assert len(capture(function, torch.ones(3)).graphs) == question.answer, question.text
