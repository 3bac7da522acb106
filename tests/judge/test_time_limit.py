"""The limit on an answer's time, and imports."""

import contextlib
import importlib
import itertools
import math
import signal
import sys
import time

import pytest

from passlab.judge import guards
from passlab.process import clock


def slow_to_import(seconds, folder, monkeypatch):
    """Make a module `slow_to_import` that takes CPU time.

    Between two signals 0.2 s may pass: an import that has to meet one goes on for much longer than that.
    """
    (folder / "slow_to_import.py").write_text(
        f"import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end:\n    pass\n"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "slow_to_import", raising=False)


@pytest.mark.parametrize("waits", [50, 0])
def test_a_limit_waits_for_an_import_to_end(tmp_path, monkeypatch, waits):
    """Interrupted, it would leave behind what it had imported by then, half made, for all that follows."""
    slow_to_import(0.5, tmp_path, monkeypatch)
    monkeypatch.setattr(guards, "IMPORT_WAITS", waits)
    with pytest.raises(guards.OutOfTime), guards.TimeLimit(0.1):
        importlib.import_module("slow_to_import")
        while True:
            pass
    assert (sys.modules.pop("slow_to_import", None) is not None) is (waits > 0)


def alarm_early(monkeypatch):
    """Have the clock's alarm ring while there is CPU time left, as on a busy machine.

    Only CPU time counts then: for an alarm this early, a process that others keep waiting for 60 ms would be idle.
    """
    monkeypatch.setattr(clock, "PATIENCE", 0.1)
    monkeypatch.setattr(clock, "LONGEST", math.inf)


@pytest.mark.parametrize("work", [0.4, 5.0])
def test_behind_a_slow_import_the_limit_begins_anew_once(tmp_path, monkeypatch, work):
    """On a busy machine a compiler took 20 s to load, and the answer was told that it had used up its time."""
    slow_to_import(1.6, tmp_path, monkeypatch)
    alarm_early(monkeypatch)

    def answer():
        importlib.import_module("slow_to_import")
        end = time.process_time() + work
        while time.process_time() < end:
            pass
        return "done"

    late = pytest.raises(guards.OutOfTime) if work > 1 else contextlib.nullcontext()
    with late, guards.TimeLimit(0.6):
        assert answer() == "done"


def test_a_signal_that_was_pending_does_not_end_the_limit_that_began_anew(tmp_path, monkeypatch):
    """Behind an import both signals may be pending: the first begins the limit anew, the second is of the old one."""
    slow_to_import(1.6, tmp_path, monkeypatch)
    with open(tmp_path / "slow_to_import.py", "a") as module:
        # They are sent to this thread: what a timer sends, any other thread may take.
        module.write(
            "import signal, threading\n"
            "signals = signal.SIGALRM, signal.SIGPROF\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, signals)\n"
            "for s in signals:\n    signal.pthread_kill(threading.get_ident(), s)\n"
        )
    alarm_early(monkeypatch)
    with guards.TimeLimit(0.6):
        module = importlib.import_module("slow_to_import")
        assert signal.sigpending().issuperset(module.signals)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, module.signals)


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGPROF])
def test_a_signal_while_a_limit_begins_or_ends_leaves_no_timer_on(monkeypatch, number):
    """Raised there, the exception left before the timers were off, and came again in the middle of what followed."""
    own, before, sent = signal.setitimer, signal.getsignal(number), []

    def late(*arguments):
        left = own(*arguments)
        if callable(signal.getsignal(number)):
            sent.append(number)
            signal.raise_signal(number)
        return left

    monkeypatch.setattr(guards, "_set_timer", late)
    monkeypatch.setattr(guards, "cpu_time", itertools.count().__next__)  # it is over as soon as it has begun
    with guards.TimeLimit(0.5):
        pass
    assert len(sent) >= 4
    assert signal.getitimer(signal.ITIMER_PROF) == signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(number) is before


def test_a_limit_goes_on_after_one_inside_it():
    with pytest.raises(guards.OutOfTime), guards.TimeLimit(0.4):
        with guards.TimeLimit(5.0):
            pass
        while True:
            pass
