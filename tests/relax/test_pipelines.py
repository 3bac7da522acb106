"""The pipeline with parts of one's own."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from passlab import models
from passlab.relax import relax, tvm
from passlab.relax.pipelines import cpu_schedule, host, kernels, pipeline, schedule_pass, tune
from passlab.tvm.importers import relax_module

pytestmark = pytest.mark.filterwarnings("ignore")


def run(module, x, **parts):
    vm = relax.VirtualMachine(tvm.compile(module, host(), relax_pipeline=pipeline(**parts)), tvm.cpu())
    out = vm["main"](*(tvm.runtime.tensor(t.numpy()) for t in x))
    return (out if hasattr(out, "numpy") else out[0]).numpy()


def matmul(n, m, k, dtype="float32"):
    a, b = te.placeholder((n, k), dtype, "A"), te.placeholder((k, m), dtype, "B")
    r = te.reduce_axis((0, k), "k")
    return te.create_prim_func([a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")])


def loops(function, kind):
    return function.script().count(f"T.{kind}(")


def refused(act):
    try:
        act()
    except (TypeError, ValueError) as error:
        return str(error)
    return "nothing was raised"


def test_scheduled_models_compute_what_torch_does():
    steps = relax.transform
    channels_last = [
        steps.DecomposeOpsForInference(),
        steps.CanonicalizeBindings(),
        steps.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}),
        steps.Normalize(),
    ]
    for name in ("convnet", "residual", "attention", "lstm"):
        model, x = models.ZOO[name].build(), models.ZOO[name].inputs(3)
        module = relax_module(model, *x)
        for before in ([], channels_last):
            actual = run(module, x, before=before, schedule=cpu_schedule)
            assert np.allclose(actual, model(*x).numpy(), atol=1e-5), (name, before)


def test_the_schedule_changes_loops_and_nothing_else():
    rng = np.random.default_rng(0)
    for shape in ((256, 256, 256), (1, 1000, 64), (37, 41, 43), (8, 257, 5), (1, 1, 7)):
        for dtype in ("float32", "float64", "int32"):
            before = matmul(*shape, dtype)
            after = schedule_pass(cpu_schedule)(tvm.IRModule({"main": before}))["main"]
            n, m, k = shape
            a, b = (rng.integers(-9, 9, s).astype(dtype) for s in ((n, k), (k, m)))
            arguments = [tvm.runtime.tensor(v) for v in (a, b, np.zeros((n, m), dtype))]
            tvm.compile(tvm.IRModule({"main": after}), host())["main"](*arguments)
            assert np.array_equal(arguments[2].numpy(), a @ b), (shape, dtype)
    assert loops(matmul(256, 256, 256), "vectorized") == 0
    scheduled = cpu_schedule(matmul(256, 256, 256)).mod["main"]
    assert loops(scheduled, "vectorized") >= 1 and loops(scheduled, "parallel") == 1
    assert loops(cpu_schedule(matmul(8, 8, 8)).mod["main"], "parallel") == 0  # too short for a second core


def test_what_it_cannot_schedule_it_leaves():
    n = tvm.tirx.Var("n", "int64")
    x = te.placeholder((n, n), name="x")
    r = te.reduce_axis((0, n), "r")
    function = te.create_prim_func([x, te.compute((n,), lambda i: te.sum(x[i, r], axis=r), "s")])
    after = schedule_pass(cpu_schedule)(tvm.IRModule({"main": function}))
    arguments = np.random.rand(5, 5).astype("float32")
    out = tvm.runtime.tensor(np.zeros(5, "float32"))
    tvm.compile(after, host())["main"](tvm.runtime.tensor(arguments), out)
    assert np.allclose(out.numpy(), arguments.sum(1))

    total = te.reduce_axis((0, 7), "t")
    v = te.placeholder((7,), name="v")
    whole = te.create_prim_func([v, te.compute((), lambda: te.sum(v[total], axis=total), "s")])
    assert schedule_pass(cpu_schedule)(tvm.IRModule({"main": whole}))["main"].script() == whole.script()


def test_parts_are_called_in_their_place():
    model, x = models.ZOO["convnet"].build(), models.ZOO["convnet"].inputs()
    module, seen = relax_module(model, *x), []

    def look(place):
        def step(module):
            seen.append((place, "call_tir" in module.script(), "fused" in module.script()))
            return module

        return step

    def rule(function):
        seen.append(("schedule", True, True))

    kernels(before=[look("before")], after_legalize=[look("legal")], schedule=rule)(module)
    assert seen[:2] == [("before", False, False), ("legal", True, False)]
    assert set(seen[2:]) == {("schedule", True, True)}

    def count(**parts):
        return len(kernels(**parts)(module).functions)

    def own(module):
        return relax.transform.FuseTIR()(relax.transform.FuseOps()(module))

    assert count(fuse=False) > count() == count(fuse=own)
    relax.register_pipeline("mine")(lambda: pipeline(schedule=cpu_schedule))
    vm = relax.VirtualMachine(tvm.compile(module, host(), relax_pipeline=relax.get_pipeline("mine")), tvm.cpu())
    out = vm["main"](tvm.runtime.tensor(x[0].numpy()))
    assert np.allclose((out if hasattr(out, "numpy") else out[0]).numpy(), model(*x).numpy(), atol=1e-5)


def test_mistakes_have_sentences():
    module = relax_module(models.ZOO["tiny"].build(), *models.ZOO["tiny"].inputs())

    def forgets(module): ...
    def breaks(module):
        raise KeyError("lost")

    def number(function):
        return 7

    def other(function):
        return matmul(3, 4, 5)

    def drops(module):
        return tvm.IRModule({"other": module["main"].with_attr("global_symbol", "other")})

    for act, message in (
        (lambda: kernels(before=[forgets])(module), "The pass forgets in before returned None: end it"),
        (lambda: kernels(before=[breaks])(module), "The pass breaks in before raised KeyError"),
        (lambda: kernels(before=[drops])(module), "without the function main"),
        (lambda: kernels(before=forgets), "before must be a list of passes; got function"),
        (lambda: kernels(after_legalize=[3]), "A step of after_legalize must be"),
        (lambda: kernels(schedule=number)(module), "returned int; return a PrimFunc"),
        (lambda: kernels(schedule=other)(module), "changed the parameters"),
        (lambda: kernels(schedule=breaks)(module), "The rule breaks, on "),
        (lambda: tune(matmul(4, 4, 4), "magic"), "A tuner must be a function"),
        (lambda: tune(matmul(4, 4, 4), lambda f, h: 3, measure=lambda f: 1.0), "return (what, PrimFunc) or None"),
    ):
        assert message in refused(act), refused(act)


def test_a_tuner_of_ones_own():
    product, message = matmul(64, 64, 64), []

    def tuner(function, history):
        assert [trial.what for trial in history] == list(range(len(history)))
        if len(history) < 3:
            schedule = tvm.s_tir.Schedule(function)
            i, j, k = schedule.get_loops(schedule.get_sblock("C"))
            if len(history) == 1:
                schedule.reorder(i, k, j)
            return len(history), schedule

    def measure(function):  # the order of the loops, as a time
        if len(message) == 2:
            raise RuntimeError("no such machine")
        return 2.0 - (function.script().index("i, k, j") > 0 if "i, k, j" in function.script() else 0)

    result = tune(product, tuner, 5, measure=measure, progress=lambda trial, n: message.append(n))
    assert message == [1, 2, 3] and result.best.what == 1 and result.curve == [2.0, 1.0, 1.0]
    assert result.trials[2].error == "no such machine" and "3 trials" in repr(result)
    module = tvm.IRModule({"hit": product.with_attr("global_symbol", "hit"), "miss": matmul(3, 3, 3)})
    after = schedule_pass(result)(module)
    assert "i, k, j" in after["hit"].script() and after["miss"].script() == module["miss"].script()
    real = tune(product, tuner, 2, progress=lambda *_: None)
    assert all(0 < trial.seconds < 1 for trial in real.trials), real.trials


def test_metaschedule_with_a_measure_and_a_cost_model_of_ones_own():
    product, requests, message = matmul(256, 256, 256), [], []

    def measure(function):
        return 1 / (1 + function.script().count("unroll"))

    def cost(modules):
        requests.append(len(modules))
        return [module.script().count("unroll") for module in modules]

    result = tune(product, "metaschedule", 2, measure=measure, cost=cost, progress=lambda trial, n: message.append(n))
    assert message == [1, 2] and requests, (message, requests)
    assert result.best.seconds == min(measure(trial.function) for trial in result.trials)
    a, b = (np.random.rand(256, 256).astype("float32") for _ in "ab")
    arguments = [tvm.runtime.tensor(v) for v in (a, b, np.zeros((256, 256), "float32"))]
    tvm.compile(tvm.IRModule({"main": result.best.function}), host())["main"](*arguments)
    assert np.allclose(arguments[2].numpy(), a @ b, atol=1e-3)
