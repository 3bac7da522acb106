"""Returned graphs run in a disposable process, with the results that they have here, and nowhere else."""

from __future__ import annotations

import copy
import faulthandler
import os
import signal
import socket
import time
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.engine import graphs, wire
from passlab import trace
from passlab.equivalence import equivalent
from passlab.fx import isolation
from passlab.fx.judge import rebuild
from passlab.fx.programs import RUNS, Program
from passlab.fx.suspects import SUSPECTS
from passlab.process.messages import ClosedError, send

#: In an input: what to do instead of running the graph. (The process does not check what a graph does, so neither does
#: this stand-in for an operator that goes astray.)
CRASH, LOOP, FORGE, HALF, WAIT, LOST = 1e9, 2e9, 3e9, 4e9, 5e9, 6e9


def _astray(sock: socket.socket, honest):
    def ran(programs, requests):
        value = float(requests["args"][0].flatten()[0])
        if value == CRASH:
            os.kill(os.getpid(), signal.SIGSEGV)
        if value == LOOP:
            time.sleep(60)
        if value == WAIT:
            time.sleep(1.5)
        if value == FORGE:
            send(sock[0], {"aliases": [["x", 1]]}, b"")
        if value == HALF:
            send(sock[0], {}, wire.encode([1, (), {}, None, {}, []]))
        head, payload = honest(programs, requests)
        return head | {"lost": head["lost"] or value == LOST}, payload

    return ran


@pytest.fixture(scope="module")
def server():
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            faulthandler.disable()
            ours.close()
            sock = [None]
            honest, answer = graphs._ran, graphs._answer

            def remembering(its):
                sock[0] = its
                answer(its)

            graphs._answer, graphs._rehearse = remembering, lambda: None
            graphs._ran = _astray(sock, honest)
            graphs.sandbox.enter = lambda limits, keep=(), gpu=False: os.fork()
            graphs.serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    yield ours
    ours.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture(params=["cpu"])
def process(server, monkeypatch, request):
    """A disposable process, in a process that may not run returned graphs. Parameter: the device to compare on."""
    for cls, name in ((fx.GraphModule, "recompile"), (fx.Interpreter, "run_node")):
        monkeypatch.setattr(cls, name, getattr(cls, name))
    monkeypatch.setattr(isolation, "_run", None)
    monkeypatch.setattr(isolation, "_open", None)
    monkeypatch.setattr(isolation, "_device", "cpu")
    monkeypatch.setattr(graphs, "_trusted", None)
    graphs.use(server, request.param)
    graphs.allow(graphs.SECONDS)
    process = graphs.Disposable()
    with process:
        yield process
    process.close()
    if graphs._trusted is not None:
        graphs._trusted.close()
    isolation._run = isolation._open = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.lstm = nn.BatchNorm1d(4), nn.Dropout(0.5), nn.LSTM(4, 4)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, y):
        h = self.drop(self.norm(x))
        self.count.add_(1)
        y.mul_(2)
        h, _ = self.lstm(h)
        return {"h": h, "same": x, "view": y[:1]}, (h.max(1), x.shape), 3


def net(training: bool = True) -> fx.GraphModule:
    torch.manual_seed(0)
    return fx.symbolic_trace(Net().train(training))


def returned(gm):
    return wire.decode(wire.encode(gm))


def args(value: float = 1.0) -> tuple:
    return torch.full((3, 4), value), torch.arange(8.0).reshape(2, 4)


@pytest.mark.parametrize("training", [None, False, True])
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_a_run_there_is_a_run_here(process, training, dtype):
    arguments = tuple(t.to(dtype or t.dtype) for t in args())
    for traced in (False, True):
        how = {"dtype": dtype, "training": training, "traced": traced}
        local, remote = (Program(gm).run(arguments, 5, **how) for gm in (net(), returned(net())))
        assert local.error is None and remote.error is None
        assert_same(local.output, remote.output)
        assert_same(local.inputs, remote.inputs)
        assert_same(local.state, remote.state)
        assert local.aliases == remote.aliases and local.drew == remote.drew and torch.equal(local.rng, remote.rng)
        if traced:
            assert_same(local.trace.values, remote.trace.values)
            assert_same(dict(local.trace.draws), dict(remote.trace.draws))
            assert local.trace.writes == remote.trace.writes and local.trace.failed == remote.trace.failed


def assert_same(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_a_failure_is_told_in_the_same_words(process):
    def forward(x):
        return torch.relu(x) @ x

    gm = fx.symbolic_trace(forward)
    local, remote = (Program(g).run((torch.ones(2, 3),), traced=True) for g in (gm, returned(gm)))
    assert (type(local.error).__name__, str(local.error)) == (type(remote.error).__name__, str(remote.error))
    assert local.trace.failed == remote.trace.failed == "matmul" and remote.trace.values.keys() == {"x", "relu"}
    assert str(equivalent(lambda x: x, gm, (torch.ones(2, 3),)).reason) == str(
        equivalent(lambda x: x, returned(gm), (torch.ones(2, 3),)).reason
    )


def test_equivalent_finds_the_same_there(process):
    before = trace(nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.ones(2, 4))
    after = copy.deepcopy(before)
    assert equivalent(before, rebuild(returned(after)))
    gelu = next(n for n in after.graph.nodes if n.target == "1")
    with after.graph.inserting_after(gelu):
        gelu.replace_all_uses_with(after.graph.call_function(F.gelu, (gelu.args[0],), {"approximate": "tanh"}))
    local, remote = (equivalent(before, gm) for gm in (rebuild(after), rebuild(returned(after))))
    assert not local.ok and (local.reason, local.first_diverging) == (remote.reason, remote.first_diverging)


def test_a_graph_that_a_judge_has_rewritten_runs_there(process):
    gm = rebuild(returned(fx.symbolic_trace(lambda x, y: torch.relu(x + y))))
    gm = SUSPECTS["fuse_add_relu"](gm)
    assert "add_relu" in str(gm.graph)
    assert Program(gm).run((torch.ones(2), torch.ones(2))).output.tolist() == [2, 2]


def _runs(gm):
    yield "call", lambda: gm(*args())
    yield "forward", lambda: gm.forward(*args())
    yield "interpreter", lambda: fx.Interpreter(gm).run(*args())
    yield "transformer", lambda: fx.Transformer(gm).transform()
    yield "trace", lambda: fx.symbolic_trace(gm)
    yield "rebuilt", lambda: rebuild(gm)(*args())
    yield "copied", lambda: copy.deepcopy(gm)(*args())
    yield "copied graph", lambda: fx.GraphModule(gm, copy.deepcopy(gm.graph))(*args())
    yield "module", lambda: gm.norm(args()[0])
    yield "parts", lambda: rebuild(gm).lstm(args()[0])


def test_nothing_else_runs_a_returned_graph_here(process):
    for name, runs in _runs(returned(net(False))):
        with pytest.raises(isolation.MustBeIsolatedError):
            runs()
            raise AssertionError(name)
    for name, runs in _runs(net(False)):  # the project's own graphs run as ever
        assert runs() is not None, name


def test_an_edited_graph_is_still_a_returned_one(process):
    gm = rebuild(returned(net(False)))
    for node in list(gm.graph.nodes):
        if node.op.startswith("call_") and not node.users:
            gm.graph.erase_node(node)
    with gm.graph.inserting_before(gm.graph.output_node()):
        gm.graph.output_node().args = (gm.graph.call_function(torch.relu, (next(iter(gm.graph.nodes)),)),)
    gm.recompile()
    with pytest.raises(isolation.MustBeIsolatedError):
        gm(*args())


def test_our_own_answers_run_here(process):
    with isolation.trusting():
        gm = returned(net(False))
    assert gm(*args()) is not None and not process.running


def test_outside_a_process_none_runs(process):
    gm = returned(net(False))
    with graphs.Disposable():
        pass
    with pytest.raises(isolation.MustBeIsolatedError):
        Program(gm).run(args())


@pytest.mark.parametrize(
    ("value", "said"),
    [(CRASH, "segmentation fault"), (LOOP, "used up its time"), (FORGE, "wrote into"), (HALF, "wrote into")],
)
def test_a_graph_that_goes_astray_gives_no_result_and_the_next_one_runs(process, value, said):
    gm, count = returned(net(False)), graphs.unsteady
    if value == LOOP:
        graphs.allow(1)
    run = Program(gm).run(args(value), traced=True)
    assert isinstance(run.error, isolation.ProcessLostError) and said in str(run.error) and graphs.unsteady == count + 1
    assert run.output is None and run.trace.values == {}
    graphs.allow(graphs.SECONDS)
    assert Program(gm).run(args()).error is None


def test_a_process_that_lost_its_device_is_replaced(process):
    gm, count = returned(doubling()), graphs.unsteady
    first = Program(gm).run((torch.full((2,), LOST),))
    assert first.error is None and first.output.tolist() == [2 * LOST] * 2, "what it replied counts"
    assert not process.running and graphs.unsteady == count
    assert Program(gm).run((torch.ones(2),)).output.tolist() == [2, 2] and process.running


def test_a_run_whose_failure_spoiled_the_device_is_a_run_that_failed(process, monkeypatch):
    """A failed assertion on a GPU is raised by whatever waits for it, such as the copy of the results."""

    def waits(run):
        raise RuntimeError("device-side assert triggered")

    monkeypatch.setattr(graphs, "_on_cpu", waits)
    monkeypatch.setattr(graphs, "_usable", lambda device: False)
    requests = {"program": doubling(), "args": (torch.ones(2),), "seed": 0, "dtype": None, "device": "cpu"}
    head, payload = graphs._ran([], requests | {"jitter": 0.0, "training": None, "traced": False})
    assert head["lost"] and head["error"] == ("RuntimeError", "device-side assert triggered")
    form = graphs.GraphRan(**{**head, "error": tuple(head["error"])})
    run = graphs._read_run(form, wire.decode(payload), 1, None)
    assert str(run.error) == "device-side assert triggered" and run.output is None


def test_whether_a_device_still_computes(monkeypatch):
    assert graphs._usable("cpu") and graphs._usable("meta")

    def synchronize():
        raise RuntimeError("device-side assert triggered")

    for works in (True, False):
        device = SimpleNamespace(synchronize=(lambda: None) if works else synchronize)
        monkeypatch.setattr(torch, "get_device_module", lambda name, device=device: device)
        assert graphs._usable("cuda") is works


def test_a_gpu_is_started_before_anybody_pays(monkeypatch):
    events = []

    def receive(*_):
        raise ClosedError("the client is gone")

    monkeypatch.setattr(graphs.sandbox, "device", lambda: "cuda")
    monkeypatch.setattr(graphs, "_rehearse", events.append)
    monkeypatch.setattr(graphs, "send", lambda sock, head: events.append(head))
    monkeypatch.setattr(graphs, "receive", receive)
    with pytest.raises(ClosedError):
        graphs._answer(None)
    assert events == ["cuda", {"ready": True}]


def test_time_is_for_all_graphs_of_a_question(process):
    graphs.allow(0)
    assert "it was not run" in str(Program(returned(net(False))).run(args()).error)
    assert not process.running


def test_a_graph_pays_for_what_it_computes_and_not_for_what_others_do(process):
    graphs.allow(1)
    assert Program(returned(net(False))).run(args(WAIT)).error is None, "1.5 s went by, in which it computed nothing"
    assert graphs._seconds_left > 0.5


@isolation.stateful
def spend(state: dict, seconds: float) -> dict:
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass
    state["calls"] = state.get("calls", 0) + 1
    return {"calls": state["calls"], "pid": os.getpid()}


def test_a_process_of_ones_own_keeps_its_state_and_its_time_is_counted_outside(process):
    with isolation.process_for(net()) as one, isolation.process_for(net()) as other:
        before = one.seconds()
        first, second = one.call(spend, 0.2), one.call(spend, 0.1)
        assert (first["calls"], second["calls"], other.call(spend, 0.0)["calls"]) == (1, 2, 1)
        assert len({first["pid"], other.call(spend, 0.0)["pid"], os.getpid()}) == 3
        assert 0.3 <= one.seconds() - before < 3 and other.seconds() < one.seconds()
        os.kill(first["pid"], signal.SIGSEGV)
        with pytest.raises(isolation.ProcessLostError, match="ended the process"):
            one.call(spend, 0.0)


def test_where_programs_may_run_a_process_is_this_one():
    with isolation.process_for(net()) as local:
        before = local.seconds()
        assert local.call(spend, 0.1)["calls"] == 1 and local.call(spend, 0.0)["calls"] == 2
        assert local.seconds() - before >= 0.1


# On a GPU: "cpu:0" stands in for one, as another name for where this machine computes.


@pytest.mark.parametrize("process", ["cpu:0"], indirect=True)
def test_on_a_device_all_programs_run_there_and_ours_apart_from_a_learners(process):
    RUNS.clear()
    result = equivalent(net(False), returned(net(False)), args())
    assert result and result.devices == ("cpu:0",) and set(RUNS) == {"cpu:0"}
    wrong = equivalent(doubling(), returned(fx.symbolic_trace(lambda x: x * 2 + 1)), (torch.ones(3),))
    assert not wrong and "is 2 before and 3 after" in wrong.reason and set(RUNS) == {"cpu:0"}
    ours, theirs = graphs._trusted, process
    assert ours is not theirs and ours.running and theirs.running
    assert all(isolation.is_marked(program.fn) for program in theirs.programs)
    assert not any(isolation.is_marked(program.fn) for program in ours.programs)


@pytest.mark.parametrize("process", ["meta"], indirect=True)
def test_what_does_not_run_on_the_device_is_compared_on_the_cpu(process):
    """The device "meta" computes no values, so nothing comes back from it."""
    RUNS.clear()
    result = equivalent(doubling(), returned(doubling()), (torch.ones(3),))
    assert result and result.devices == ("cpu",) and set(+RUNS) == {"cpu"}
    assert "compared on cpu: before does not run on meta" in result.notes


def test_a_graph_cannot_choose_its_device(process):
    run = Program(returned(doubling())).run((torch.ones(3),), device="cuda")
    assert "returned graphs run on cpu only" in str(run.error)


def doubling():
    return fx.symbolic_trace(lambda x: x * 2)
