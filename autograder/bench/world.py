"""`make bench`, part world: files and networks that others wrote, put through the library.

The node tests of the installed `onnx`, as they are and imported into Relax; MLIR of this course on every level; and the
architectures of torchvision and timm, without weights, if they are installed (`pip install --no-deps torchvision timm`;
the course does not need them). Each step either works, or refuses with a sentence. What torch, TVM or Python raised
itself is a fault, and so is a program that is not equivalent to itself.
"""

from __future__ import annotations

import contextlib
import linecache
import operator
import re
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from autograder.bench.figures import Figure, apart, at_most, not_measured

#: How many kinds of refusals a figure names, the most frequent first.
KINDS = 4
#: Of the node tests, each so-manieth is built by TVM, which takes half a second.
EVERY = 8

#: Architectures of torchvision, one of each family, with the sides of their images.
TORCHVISION = {
    **dict.fromkeys(("alexnet", "vgg11", "resnet18", "resnext50_32x4d", "densenet121", "mnasnet0_5"), 64),
    **dict.fromkeys(("mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1"), 64),
    **dict.fromkeys(("efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "googlenet"), 64),
    **dict.fromkeys(("inception_v3", "vit_b_32", "swin_t", "swin_v2_t", "maxvit_t"), 224),
}
#: The same of timm.
TIMM = {
    **dict.fromkeys(("resnet18", "resnext26ts", "seresnext26d_32x4d", "resnest14d", "res2net50_14w_8s"), 64),
    **dict.fromkeys(("convnext_atto", "convnextv2_atto", "efficientnet_lite0", "tf_efficientnetv2_b0"), 64),
    **dict.fromkeys(("mobilenetv3_small_050", "mobilenetv4_conv_small", "mnasnet_small", "fbnetc_100"), 64),
    **dict.fromkeys(("regnetx_002", "regnety_002", "densenet121", "dla34", "vovnet39a", "ghostnet_100"), 64),
    **dict.fromkeys(("hardcorenas_a", "repvgg_a0", "nf_regnet_b0", "lcnet_050", "fastvit_t8"), 64),
    **dict.fromkeys(("vit_tiny_patch16_224", "deit_tiny_patch16_224", "mixer_s32_224", "resmlp_12_224"), 224),
    **dict.fromkeys(("gmlp_ti16_224", "convmixer_768_32", "poolformer_s12", "pvt_v2_b0", "cait_xxs24_224"), 224),
    **dict.fromkeys(("xcit_nano_12_p16_224", "levit_128s", "visformer_tiny", "edgenext_xx_small"), 224),
    **dict.fromkeys(("swin_tiny_patch4_window7_224", "coatnet_nano_rw_224"), 224),
    "maxvit_rmlp_pico_rw_256": 256,
}

Step = Callable[[Any], Any]


class Source(NamedTuple):
    """Values of one kind. make: a name → a function that returns the value. steps: what each is put through."""

    what: str
    make: Mapping[str, Callable[[], Any]]
    steps: Mapping[str, Step]


def world(largest: int) -> Iterator[Figure | str]:
    yield from apart(onnx_models)
    yield from apart(imported_models)
    yield from apart(mlir_texts)
    yield from apart(networks, "torchvision")
    yield from apart(networks, "timm")


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Tally:
    """What came of values: step → how many passed, step → kinds of refusals with their counts, and the faults."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.refusals: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.faults: list[str] = []

    def attempt(self, step: str, name: str, function: Callable[[], Any]) -> Any:
        """Return what a function returns, or None if it refuses, fails, or says that a program is not itself."""
        try:
            value = function()
        except Exception as error:
            if is_refusal(error):
                self.refusals[step][kind_of(str(error))] += 1
            else:
                self.faults.append(f"{step}, {name}: {type(error).__name__}: {str(error).strip()[:120]}")
            return None
        if value is False:
            self.faults.append(f"{step}, {name}: no")
            return None
        self.passed[step] += 1
        return value

    def refused(self, step: str) -> str:
        """Return how many values a step refused, with the most frequent sentences."""
        kinds = self.refusals[step]
        if not kinds:
            return ""
        frequent = "; ".join(f"{count} × {kind}" for kind, count in kinds.most_common(KINDS))
        return f"{sum(kinds.values())} refused, {len(kinds)} kinds of sentence: {frequent}"


def tried(source: Source) -> Iterator[Figure | str]:
    """Put the values of a source through its steps, and yield what came of it."""
    tally, start, whole = Tally(), time.process_time(), len(source.make)
    for number, (name, make) in enumerate(source.make.items()):
        if number % 100 == 0:
            yield f"{source.what}: {number} of {whole}"
        value = tally.attempt("made", name, make)
        if value is None:
            continue
        for step, function in source.steps.items():
            tally.attempt(step, name, partial(function, value))
    for step in ("made", *source.steps):
        seen = f"{tally.passed[step]:,} of {whole:,}"
        yield Figure(f"{source.what}: {step}", seen, tally.refused(step), value=tally.passed[step])
    about = [*tally.faults[:KINDS], f"{time.process_time() - start:.0f} s of CPU"]
    yield at_most(f"{source.what}: raw exceptions", len(tally.faults), 0, "", "; ".join(about))


def is_refusal(error: BaseException) -> bool:
    """Return whether a line of the library raised an exception, with a sentence; not torch, TVM or Python."""
    import passlab

    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace is None or not isinstance(error, ValueError | TypeError | RuntimeError) or not str(error).strip():
        return False
    place = Path(trace.tb_frame.f_code.co_filename)
    line = linecache.getline(str(place), trace.tb_lineno).strip()
    return place.is_relative_to(Path(passlab.__file__).parent) and line.startswith("raise")


def kind_of(sentence: str) -> str:
    """Return a sentence without its names and numbers."""
    sentence = re.sub(r"'[^']*'|`[^`]*`|\[[^\]]*\]|\btest_\w+", "…", sentence)
    return re.sub(r"\d+(?:\.\d+)?", "N", " ".join(sentence.split()))[:160]


# ── sources ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _node_tests() -> dict[str, Any]:
    """Return name → model of the node tests of ONNX."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their expected values overflow and divide by zero
        return {case.name: case.model for case in collect_testcases(None)}


def _drawn(value: Any, *inputs: Any) -> Any:
    from passlab import draw

    return draw(value, *inputs).text


def _itself(program: Any) -> bool:
    from passlab import equivalent

    return bool(equivalent(program, program))


def onnx_models() -> Iterator[Figure | str]:
    from passlab import bytes_moved, view

    tests = _node_tests()
    models = {name: partial(tests.get, name) for name in tests}
    yield from tried(Source("ONNX's node tests", models, {"view": view, "draw": _drawn, "bytes_moved": bytes_moved}))


def imported_models() -> Iterator[Figure | str]:
    from passlab import cost, view
    from passlab.tvm.importers import relax_from_onnx

    models = {name: partial(relax_from_onnx, model) for name, model in list(_node_tests().items())[::EVERY]}
    steps: dict[str, Step] = {"view": view, "draw": _drawn, "cost": cost, "equivalent to itself": _itself}
    yield from tried(Source(f"every {EVERY}th of ONNX's node tests, in Relax", models, steps))


def mlir_texts() -> Iterator[Figure | str]:
    """The programs of day 9's exercises, and networks of the zoo on each level of lowering."""
    from passlab import bytes_moved, mlir, view
    from passlab.mlir import modules

    if modules.native() is None:
        yield not_measured("texts of MLIR", "iree-base-compiler has no package for this system")
        return
    programs = _mlir_programs()
    dialects: Counter[str] = Counter()
    for text in programs.values():
        dialects.update(set(re.findall(r"\b(arith|math|tensor|linalg|scf|memref|affine|cf|stablehlo|torch)\.\w", text)))
    yield Figure("texts of MLIR, by dialect", ", ".join(f"{name} {count}" for name, count in dialects.most_common()))
    texts = {name: partial(str, text) for name, text in programs.items()}
    yield from tried(Source("texts of MLIR", texts, {"view": view, "draw": _drawn, "bytes_moved": bytes_moved}))
    parsed = {
        name: partial(mlir.parse, text)
        for name, text in programs.items()
        if not re.search(r"\b(stablehlo|torch|llvm)\.", text)
    }
    steps: dict[str, Step] = {"view": view, "bytes_moved": bytes_moved, "equivalent to itself": _itself}
    yield from tried(Source("modules of MLIR", parsed, steps))


def _mlir_programs() -> dict[str, str]:
    from autograder.authoring.answers import hidden_cases
    from passlab import exercises, mlir, models
    from passlab.mlir.lowering import lowering_stages

    texts = {}
    for exercise in exercises.of_day("day09"):
        for case in [*exercise.cases(), *hidden_cases(exercise.id, 0)]:
            value = next(iter(case.build()), None)
            if type(value).__name__ == "ModuleOp":
                texts[f"{exercise.id}, {case.name}"] = mlir.text(value)
    for name in ("mlp", "convnet", "attention"):
        model = models.ZOO[name]
        for stage in lowering_stages(model.build(), *model.inputs(1))[:-1]:
            texts[f"{name}, {stage.name}"] = stage.value if isinstance(stage.value, str) else mlir.text(stage.value)
    with contextlib.suppress(ImportError):
        import jax
        import jax.numpy as jnp

        x = jnp.ones((3, 4))
        for name in ("tanh", "sort", "cumsum", "argmax", "linalg.norm", "fft.fft"):
            function = operator.attrgetter(name)(jnp)
            texts[f"jax.numpy.{name}"] = jax.jit(function).lower(x).as_text()
    return texts


def networks(library: str) -> Iterator[Figure | str]:
    """Architectures traced, exported and scripted."""
    import torch

    load, sides = {"torchvision": (_torchvision, TORCHVISION), "timm": (_timm, TIMM)}[library]
    try:
        build = load()
    except ImportError:
        yield not_measured(f"architectures of {library}", "it is not installed, and the course does not need it")
        return
    torch.set_num_threads(1)
    for form in ("traced", "exported", "scripted"):
        makes = {name: _network(build, name, side, form) for name, side in sides.items()}
        yield from tried(Source(f"{library}, {form}", makes, _steps(form)))


class _Network(NamedTuple):
    program: Any
    x: Any


def _network(build: Callable[[str], Any], name: str, side: int, form: str) -> Callable[[], _Network]:
    import torch

    from passlab import trace

    def make() -> _Network:
        torch.manual_seed(0)
        model, x = build(name).requires_grad_(False).eval(), torch.randn(1, 3, side, side)
        if form == "traced":
            return _Network(trace(model, x), x)
        if form == "exported":
            return _Network(torch.export.export(model, (x,)), x)
        return _Network(torch.jit.trace(model, x), x)

    return make


def _steps(form: str) -> dict[str, Step]:
    from passlab import cost, equivalent, view
    from passlab.dataflow.ranges import ranges
    from passlab.dataflow.shapes import shapes

    steps: dict[str, Step] = {
        "view": lambda n: view(n.program, n.x),
        "draw": lambda n: _drawn(n.program, n.x),
        "equivalent to itself": lambda n: bool(equivalent(n.program, n.program, (n.x,), trials=("given",))),
    }
    if form != "scripted":
        steps["cost"] = lambda n: cost(n.program, n.x)
    if form == "traced":
        steps["shapes"] = lambda n: shapes(n.program, {_input(n): ("b", 3, *n.x.shape[2:])})
        steps["ranges"] = lambda n: ranges(n.program, {_input(n): (-1.0, 1.0)})
    return steps


def _input(network: _Network) -> str:
    return next(node.target for node in network.program.graph.nodes if node.op == "placeholder")


def _timm() -> Callable[[str], Any]:
    _torchvision()  # timm loads it
    import timm

    return timm.create_model


def _torchvision() -> Callable[[str], Any]:
    """Import torchvision, also where its compiled operators do not fit this torch: no network of the list has any."""
    import torch

    try:
        import torchvision
    except RuntimeError:  # operator torchvision::nms does not exist
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _OPERATORS.append(library)
        import torchvision
    kw = {"googlenet": {"aux_logits": False, "init_weights": False}, "inception_v3": {"init_weights": False}}
    return lambda name: torchvision.models.get_model(name, weights=None, **kw.get(name, {}))


#: Torch forgets operators when their library is collected.
_OPERATORS: list[Any] = []
