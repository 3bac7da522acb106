"""Predict the run time of operators: the roofline, and a model fitted to measurements.

    rows = load()                            # measured operators of the zoo; see `Row`
    machine, others = load_machine(), [r for r in rows if r.model != "vit"]
    predict = fit(others, machine)           # a fitted model that has not seen the ViT
    score(predict(unseen), [r.seconds for r in unseen])

    python -m passlab.dataflow.predict FILE  # measure this machine and write its table

Reading order: a row and its features, measurements, the two predictions, their scores. The measured times are in
`operators.csv` beside this file, with the machine in its first lines.
"""

from __future__ import annotations

import csv
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passlab.fx.measure import tensors
from passlab.fx.nodes import op_name
from passlab.measure.machine import Machine, measure_machine
from passlab.models import ZOO

DATA = Path(__file__).with_name("operators.csv")

#: Operation → kind. Other operations, such as views, are not predicted.
KINDS = {
    "Linear": "linear", "Conv2d": "conv", "ConvTranspose2d": "conv_transpose", "matmul": "matmul",
    "add": "add", "mul": "mul", "relu": "relu", "ReLU": "relu", "ReLU6": "relu6", "tanh": "tanh", "Tanh": "tanh",
    "sigmoid": "sigmoid", "Sigmoid": "sigmoid", "pow": "pow", "GELU": "gelu", "BatchNorm2d": "batch_norm",
    "LayerNorm": "layer_norm", "softmax": "softmax", "max_pool2d": "max_pool", "MaxPool2d": "max_pool",
    "adaptive_avg_pool2d": "avg_pool", "mean": "mean", "cat": "cat", "stack": "cat", "interpolate": "interpolate",
}  # fmt: skip
ADDS = ("linear", "conv", "conv_transpose", "depthwise", "matmul")

#: Model → shapes of the inputs for measuring its operators, batch first.
SIZES = {
    "mlp": [(b, 16) for b in (1, 16, 256, 2048)],
    "convnet": [(b, 3, s, s) for b in (1, 4, 16) for s in (16, 32, 64)],
    "skip": [(b, 3, s, s) for b in (1, 4, 16) for s in (16, 32, 64)],
    "residual": [(b, 8, s, s) for b in (1, 4, 16) for s in (8, 16, 32, 64)],
    "resnet18": [(b, 3, s, s) for b in (1, 2, 4) for s in (32, 64, 96)],
    "resnet50": [(b, 3, s, s) for b in (1, 2) for s in (32, 64, 96)],
    "mobilenetv2": [(b, 3, s, s) for b in (1, 2, 4) for s in (32, 64, 96)],
    "unet": [(b, 1, s, s) for b in (1, 2, 4) for s in (32, 64, 128)],
    "attention": [(b, t, 16) for b in (1, 4, 16) for t in (8, 32, 128)],
    "gpt": [(b, 16, 64) for b in (1, 2, 8, 32, 128)],
    "vit": [(b, 3, 32, 32) for b in (1, 2, 8, 32)],
    "lstm": [(b, 6, 16) for b in (1, 8, 64, 512)],
}
#: Number of small random networks that are measured in addition to the zoo.
RANDOM_NETWORKS = 300
#: Their largest number of elements in an activation.
LARGEST = 2**18


# ---------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    """One operator call: its kind, its features, and its measured time.

    flops: arithmetic operations. nbytes: bytes of operands, weights and result. inner: products per element of the
    result (1 without a sum). outputs: elements of the result. width: channels of the result. window: points of a
    convolution's or pooling's window. copied: 1 if an operand is not contiguous. module: 1 for a call of a module,
    which costs Python a little more than a function.
    """

    model: str
    sizes: str
    node: str
    kind: str
    flops: float
    nbytes: float
    inner: float
    outputs: float
    width: float
    window: float
    copied: float
    module: float
    seconds: float


def describe(node: fx.Node, gm: fx.GraphModule, operands: Sequence[torch.Tensor], result: torch.Tensor) -> dict | None:
    """Return the features of a call, without model, sizes and seconds, or None for an unknown kind."""
    name = op_name(node, gm)
    if name not in KINDS:
        return None
    module = gm.get_submodule(node.target) if node.op == "call_module" else None
    weights = [] if module is None else [*module.parameters(), *module.buffers()]
    kind, image = KINDS[name], result.dim() == 4
    if kind == "conv" and module.groups == result.shape[1] > 1:
        kind = "depthwise"
    window = math.prod(_pair(module.kernel_size)) if hasattr(module, "kernel_size") else 1
    if kind in ("linear", "conv", "depthwise"):
        inner = module.weight[0].numel()
    elif kind == "conv_transpose":
        inner = module.in_channels
    elif kind == "matmul":
        inner = operands[0].shape[-1]
    else:
        inner = max(1, operands[0].numel() // max(result.numel(), 1))
    return {
        "node": node.name,
        "kind": kind,
        "flops": float((2 if kind in ADDS else 1) * inner * result.numel()),
        "nbytes": float(sum(t.nbytes for t in [*operands, *weights, result])),
        "inner": float(inner),
        "outputs": float(result.numel()),
        "width": float(result.shape[1 if image else -1]),
        "window": float(window),
        "copied": float(not all(t.is_contiguous() for t in operands)),
        "module": float(module is not None),
    }


def _pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else size


# ---------------------------------------------------------------------------------------------------- measuring


class _Stopwatch(fx.Interpreter):
    """Run a graph and record the minimum time and the features of each call."""

    def __init__(self, gm: fx.GraphModule):
        super().__init__(gm)
        self.least: dict[str, float] = {}
        self.features: dict[str, dict] = {}

    def run_node(self, n: fx.Node) -> Any:
        if not n.op.startswith("call_"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        call = getattr(self, n.op)
        start = time.perf_counter()
        result = call(n.target, args, kwargs)
        seconds = time.perf_counter() - start
        self.least[n.name] = min(seconds, self.least.get(n.name, math.inf))
        new = n.name not in self.features and isinstance(result, torch.Tensor)
        if new and (row := describe(n, self.module, tensors((args, kwargs)), result)):
            self.features[n.name] = row
        return result


def measure(name: str, model: nn.Module, shape: tuple[int, ...], rounds: int = 30) -> Iterator[Row]:
    """Yield a row for each operator of a model, with the minimum time of `rounds` runs of the graph on one thread.

    Each round runs all operators, so the caches hold the operands that they hold in use.
    """
    gm = fx.symbolic_trace(model)
    watch = _Stopwatch(gm)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            for _ in range(rounds):
                watch.run(x)
    finally:
        torch.set_num_threads(threads)
    sizes = "x".join(map(str, shape))
    for node, row in watch.features.items():
        yield Row(model=name, sizes=sizes, seconds=watch.least[node], **row)


class Images(nn.Module):
    """Convolutions, norms, activations and poolings of random sizes, with skip connections."""

    def __init__(self, rng: random.Random, channels: int, wide: int, stride: int):
        super().__init__()
        kernel, deep = rng.choice((1, 1, 3, 3, 5, 7)), rng.choice((1, 3, 3))
        mid = max(2, int(wide * rng.choice((0.25, 0.5, 1, 2))))
        self.conv1 = nn.Conv2d(channels, wide, kernel, stride, kernel // 2, bias=rng.random() < 0.5)
        self.bn, self.act = nn.BatchNorm2d(wide), rng.choice((nn.ReLU, nn.ReLU6, nn.Sigmoid))()
        self.conv2 = nn.Conv2d(wide, mid, 1, bias=False)
        self.conv3 = nn.Conv2d(mid, mid, deep, 1, deep // 2, groups=rng.choice((1, mid)), bias=False)
        self.bn3, self.act3 = nn.BatchNorm2d(mid), rng.choice((nn.ReLU, nn.ReLU6, nn.Tanh))()
        self.conv4 = nn.Conv2d(mid, wide, rng.choice((1, 1, 3)), padding="same", bias=False)
        self.bn4, self.pool = nn.BatchNorm2d(wide), nn.MaxPool2d(*rng.choice(((2, 2, 0), (3, 2, 1))))
        self.up = nn.ConvTranspose2d(wide, max(1, wide // 2), 2, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.act(self.bn(self.conv1(x)))
        y = self.act3(self.bn3(self.conv3(self.conv2(x))))
        y = F.relu(self.bn4(self.conv4(y)) + x)
        z = F.max_pool2d(y, 2)
        y = torch.cat([y, F.interpolate(z, scale_factor=2.0)], 1)
        return self.up(z), self.pool(x), y.mean((2, 3)), F.adaptive_avg_pool2d(x, 1)


class Tokens(nn.Module):
    """Matrix products, norms, gates and functions of random sizes on (batch, tokens, width)."""

    def __init__(self, rng: random.Random, tokens: int, width: int):
        super().__init__()
        wide = 2 * rng.choice((4, 16, 32, 64, 100, 128, 256, 500))
        self.norm, self.linear, self.back = nn.LayerNorm(width), nn.Linear(width, wide), nn.Linear(wide // 2, width)
        self.act, self.heads = rng.choice((nn.GELU, nn.Tanh, nn.Sigmoid, nn.ReLU))(), rng.choice((1, 2, 4))
        self.register_buffer("mask", torch.zeros(tokens, tokens))

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.act(self.linear(self.norm(x))).chunk(2, -1)
        y = torch.sigmoid(left) * torch.tanh(right)
        y = 0.5 * y * (1 + torch.tanh(y + 0.1 * y**3))
        y = torch.relu(self.back(y)) + x
        q, k = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (x, y))
        scores = (q @ k.transpose(-2, -1) * 0.1 + self.mask).softmax(-1)
        return torch.stack([(scores @ k).transpose(1, 2).flatten(2), x], 1)


def random_network(number: int) -> tuple[nn.Module, tuple[int, ...]]:
    """Return a small random network and the shape of its input: training data in addition to the zoo's."""
    rng = random.Random(number)
    if number % 2:
        tokens, width = rng.choice((1, 4, 8, 16, 17, 33, 64, 128)), rng.choice((4, 8, 16, 32, 64, 128, 256))
        batch = rng.choice([b for b in (1, 2, 4, 8, 16, 32, 64, 128, 512) if b * tokens * width <= LARGEST])
        return Tokens(rng, tokens, width).eval(), (batch, tokens, width)
    side = rng.choice((2, 2, 4, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96))
    stride, batch = rng.choice((1, 2)) if side % 4 == 0 else 1, rng.choice((1, 1, 2, 4, 8))
    numbers = batch * side * side
    wide = rng.choice([w for w in (4, 8, 16, 24, 32, 64, 96, 160, 320, 512, 960) if w * numbers <= LARGEST or w < 16])
    channels = rng.choice([c for c in (1, 3, 8, 16, 32, 64, 128, 256) if c * numbers <= LARGEST or c < 8])
    return Images(rng, channels, wide, stride).eval(), (batch, channels, side, side)


def load(path: Path = DATA) -> list[Row]:
    """Return the measured rows of a table. Raise ValueError with the number of an invalid line."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    types = {f.name: str if f.type == "str" else float for f in fields(Row)}
    rows = []
    for number, line in enumerate(csv.DictReader(lines), 1):
        try:
            rows.append(Row(**{name: types[name](value) for name, value in line.items()}))
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(f"Row {number} of {path.name} is invalid ({error}): measure the table again.") from None
    return rows


def load_machine(path: Path = DATA) -> Machine:
    """Return the machine of a table, from its first lines."""
    facts = _facts(path)
    return Machine(*(float(facts[name]) for name in ("bandwidth", "flops", "launch")), facts["name"])


def load_noise(path: Path = DATA) -> float:
    """Return the median relative difference between two measurements of the same operators, see `write`."""
    return float(_facts(path)["noise"])


def _facts(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line[1:].split("=", 1) for line in lines if line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


#: Name, model, and shape of the input.
Network = tuple[str, nn.Module, tuple[int, ...]]


def measure_often(networks: Sequence[Network], visits: int, rounds: int) -> tuple[Machine, list[tuple[Row, Row]]]:
    """Return the machine, and for each operator the rows of its least times in two halves of the visits.

    Each network is measured in many visits, minutes apart, of a few rounds each, and the minimum counts: other load on
    the machine slows a visit, and seldom all of them. How the halves differ is the noise. visits: at least 2.
    """
    machines = []
    halves: tuple[dict[tuple[str, str, str], Row], ...] = ({}, {})
    for visit in range(visits):
        machines.append(measure_machine.__wrapped__())  # not its cached result
        least = halves[visit % 2]
        for name, model, shape in networks:
            for row in measure(name, model, shape, rounds):
                key = (row.model, row.sizes, row.node)
                least[key] = min(row, least.get(key, row), key=lambda r: r.seconds)
    machine = Machine(
        max(m.bandwidth for m in machines), max(m.flops for m in machines), min(m.launch for m in machines)
    )
    return machine, [(row, halves[1][key]) for key, row in halves[0].items()]


def write(path: Path, visits: int = 20, rounds: int = 6) -> None:
    """Measure all of `SIZES`, the random networks and the machine, and write the table.

    `noise` is the median relative difference between the least times of two halves of the visits.
    """
    torch.set_num_threads(1)
    zoo = [(name, ZOO[name].build(), shape) for name, shapes in SIZES.items() for shape in shapes]
    drawn = [(f"drawn{number}", *random_network(number)) for number in range(RANDOM_NETWORKS)]
    machine, pairs = measure_often([*zoo, *drawn], visits, rounds)
    facts = {
        "name": f"{_processor()}, 1 thread, torch {torch.__version__}",
        "bandwidth": machine.bandwidth,
        "flops": machine.flops,
        "launch": machine.launch,
        "runs of each": visits * rounds,
        "noise": statistics.median(abs(a.seconds / b.seconds - 1) for a, b in pairs),
    }
    with path.open("w", encoding="utf-8", newline="") as out:
        out.writelines(f"# {name} = {value}\n" for name, value in facts.items())
        table = csv.writer(out, lineterminator="\n")
        table.writerow(f.name for f in fields(Row))
        for pair in pairs:
            row = min(pair, key=lambda r: r.seconds)
            values = (getattr(row, f.name) for f in fields(Row))
            table.writerow(f"{v:.6g}" if isinstance(v, float) else v for v in values)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "a CPU"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "a CPU")


# ---------------------------------------------------------------------------------------------------- predicting

Predict = Callable[[Sequence[Row]], list[float]]


def roofline(rows: Iterable[Row], machine: Machine) -> list[float]:
    """Return the roofline bound of each operator in seconds: a launch, and the maximum of moving and computing
    (S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009)."""
    return [machine.bound(row.flops, row.nbytes, 1) for row in rows]


def features(row: Row, machine: Machine) -> list[float]:
    """Return numbers for a regression: logarithms of sizes, and the kind as a one-hot vector."""
    amounts = [row.flops, row.nbytes, row.inner, row.outputs, row.width, row.window, row.flops / row.nbytes]
    amounts.append(row.outputs / row.width)
    logs = [*(math.log(max(amount, 1e-3)) for amount in amounts), math.log(machine.bound(row.flops, row.nbytes, 1))]
    return [*logs, row.copied, row.module, *(float(row.kind == k) for k in sorted({*KINDS.values(), "depthwise"}))]


Context = Callable[[Row], Sequence[float]]


def in_network(rows: Iterable[Row]) -> Context:
    """Return a function from each of these rows to numbers about its network: logarithms of the number, operations and
    bytes of its operators, and of its batch.

    Little that runs between two runs of an operator leaves more of it in the caches; and torch computes a convolution
    of one image in another way than one of several. These numbers tell families of networks apart: leave them out where
    a family is not in the fit.
    """
    networks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        networks.setdefault((row.model, row.sizes), []).append(row)
    numbers = {}
    for (model, sizes), members in networks.items():
        amounts = [
            len(members),
            sum(r.flops for r in members),
            sum(r.nbytes for r in members),
            int(sizes.split("x")[0]),
        ]
        numbers[model, sizes] = [math.log(amount) for amount in amounts]
    return lambda row: numbers[row.model, row.sizes]


def fit(rows: Sequence[Row], machine: Machine, seed: int = 0, context: Context = lambda row: ()) -> Predict:
    """Return a predictor fitted to measured rows: boosted trees for log(seconds / roofline).

    The trees learn the error of the roofline. Their parameters were chosen by cross-validation over the random networks
    alone. (Gradient boosting: J. Friedman, Annals of Statistics 29(5), 2001. Learned cost models of this kind: T. Chen
    et al., Learning to Optimize Tensor Programs, NeurIPS 2018.) context: more features of a row, such as `in_network`.
    Raise ValueError for fewer than two rows.
    """
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor

    if len(rows) < 2:
        raise ValueError(f"fit needs at least 2 measured operators; got {len(rows)}.")
    errors = [math.log(row.seconds / bound) for row, bound in zip(rows, roofline(rows, machine), strict=True)]
    trees = HistGradientBoostingRegressor(
        max_iter=400, learning_rate=0.06, min_samples_leaf=5, loss="absolute_error", random_state=seed
    )

    def numbers(rows: Sequence[Row]) -> Any:
        return np.array([[*features(row, machine), *context(row)] for row in rows])

    trees.fit(numbers(rows), np.array(errors))

    def predict(unseen: Sequence[Row]) -> list[float]:
        logs = trees.predict(numbers(unseen)) if unseen else []
        return [bound * math.exp(log) for bound, log in zip(roofline(unseen, machine), logs, strict=True)]

    return predict


# ---------------------------------------------------------------------------------------------------- scores


@dataclass(frozen=True)
class Score:
    """The quality of predictions. error: median of |predicted - measured| / measured. rank: Spearman's correlation."""

    error: float
    rank: float

    def __str__(self) -> str:
        return f"median error {self.error:.0%}, rank correlation {self.rank:.3f}"


def score(predicted: Sequence[float], measured: Sequence[float]) -> Score:
    """Compare predicted with measured seconds. Raise ValueError for different numbers of both, or fewer than two."""
    import numpy as np

    if len(predicted) != len(measured) or len(measured) < 2:
        raise ValueError(f"score got {len(predicted)} predictions for {len(measured)} times: give as many, at least 2.")
    guess, true = np.asarray(predicted, float), np.asarray(measured, float)
    ranks = [_ranks(values) for values in (guess, true)]
    constant = min(np.ptp(r) for r in ranks) == 0  # all ranks are equal
    rank = 0.0 if constant else float(np.corrcoef(*ranks)[0, 1])
    return Score(float(np.median(np.abs(guess - true) / true)), rank)


def _ranks(values: Any) -> Any:
    """Return the rank of each number of an array, from 1, with the mean rank for equal ones, as SciPy's `rankdata`
    does (whose import takes longer than all else here)."""
    import numpy as np

    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def without(rows: Iterable[Row], unseen: Sequence[Row]) -> list[Row]:
    """Return the rows that neither belong to a network in `unseen` nor have the features of one of its rows.

    Networks share operators (every ResNet has the same first convolution), and a row with a fitted twin is not unseen.
    """
    models, features = {row.model for row in unseen}, {astuple(row)[3:-1] for row in unseen}
    return [row for row in rows if row.model not in models and astuple(row)[3:-1] not in features]


def unseen(rows: Sequence[Row], machine: Machine) -> dict[Row, float]:
    """Return each zoo operator's prediction by a model that was fitted `without` the operator's network."""
    predictions: dict[Row, float] = {}
    for model in SIZES:
        if network := [row for row in rows if row.model == model]:
            predictions |= dict(zip(network, fit(without(rows, network), machine)(network), strict=True))
    return predictions


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
