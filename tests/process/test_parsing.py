import ast
import gc
import threading
import time

import pytest

from passlab.process.parsing import parse

SOURCE = "\n".join(f"def f{i}(x):\n    return [x + {i}, (x, {{x: -x}})]" for i in range(300))


@pytest.fixture
def switches():
    """Let another thread run in the middle of every garbage collection, and collect often."""

    def switch(*_):
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(switch)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(switch)


def test_threads_may_parse_at_the_same_time(switches):
    trees, failures = [], []

    def work():
        for _ in range(4):
            try:
                trees.append(ast.dump(parse(SOURCE)))
            except SystemError as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(trees) == {ast.dump(ast.parse(SOURCE))} and len(trees) == 16
