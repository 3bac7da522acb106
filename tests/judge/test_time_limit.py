"""The limit on an answer's time, and imports."""

import importlib
import sys

import pytest

from passlab.judge import running


@pytest.mark.parametrize("waits", [50, 0])
def test_a_limit_waits_for_an_import_to_end(tmp_path, monkeypatch, waits):
    """Interrupted, it would leave behind what it had imported by then, half made, for all that follows."""
    text = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end:\n    pass\n"
    (tmp_path / "slow_to_import.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(running, "IMPORT_WAITS", waits)
    with pytest.raises(running.OutOfTime), running.time_limit(60, busy=0.1):
        importlib.import_module("slow_to_import")
        while True:
            pass
    assert (sys.modules.pop("slow_to_import", None) is not None) is (waits > 0)
