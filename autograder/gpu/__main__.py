"""`make gpu`: run each part in a process of its own, print a table, and write a JSON file.

python -m autograder.gpu                        # all parts; exit code 1 if something is wrong, 2 without a GPU
python -m autograder.gpu kernels --json k.json  # one part
python -m autograder.gpu --interpret            # what a CPU can do, without a GPU
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from autograder.bench.figures import Figure, heard, not_measured, tell
from autograder.gpu import machine
from autograder.gpu.job import Job

ROOT = Path(__file__).resolve().parents[2]
#: Part → (module:function, seconds that it may take). Together less than nine minutes, starts included.
PARTS = {
    "arena": ("plans:plans", 40),
    "kernels": ("kernels:kernels", 100),
    "speed": ("speed:speed", 90),
    "tvm": ("tvm_cuda:tvm_cuda", 60),
    "capstone": ("capstone:capstone", 75),
    "judging": ("judging:judging", 170),
}
#: Seconds that a part may take beyond its time before it is ended.
GRACE = 5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m autograder.gpu", description="Check and measure on an NVIDIA GPU.")
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; default: all")
    parser.add_argument("--interpret", action="store_true", help="without a GPU: what a CPU and an interpreter can do")
    parser.add_argument("--json", type=Path, default=Path("build/gpu.json"), help="the file for the figures")
    parser.add_argument("--seed", type=int, default=0, help="the seed of hidden cases and samples")
    parser.add_argument("--sample", type=int, default=0, help="most checks of a part; default: all")
    parser.add_argument("--seconds", type=float, default=0.0, help="for each part; default: its own budget")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; expected any of {', '.join(PARTS)}")
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    if options.here:
        return here(options)
    if reason := machine.unfit(options.interpret):
        print(reason, file=sys.stderr)
        return 2
    begin, figures, took = time.monotonic(), [], {}
    figures += [replace(not_measured(subject, reason), part="machine") for subject, reason in machine.lacks()]
    for part in options.parts or PARTS:
        start = time.monotonic()
        for news in apart(part, options):
            if isinstance(news, Figure):
                figures.append(replace(news, part=part))
                news = f"{news.what}: {news.seen}"
            print(f"{time.monotonic() - begin:4.0f} s  {part}: {news}", file=sys.stderr, flush=True)
        took[part] = time.monotonic() - start
        figures.append(time_figure(part, took[part], limit(part, options)))
    facts = machine.facts() | {"seconds": round(time.monotonic() - begin, 1)}
    print(table(figures, facts))
    write(options.json, figures, facts)
    return 1 if any(wrong(figure) for figure in figures) else 0


def limit(part: str, options: argparse.Namespace) -> float:
    return options.seconds or PARTS[part][1]


def time_figure(part: str, took: float, limit: float) -> Figure:
    return Figure(part, f"{took:.0f} s", f"its budget is {limit:.0f} s", value=took, part="time")


def wrong(figure: Figure) -> bool:
    """Return whether a figure says that something is wrong. Speed that falls short of a goal is only missed."""
    goal = figure.part == "speed" and figure.target.startswith(("≤", "≥")) and "difference" not in figure.what
    return figure.held is False and not goal


def apart(part: str, options: argparse.Namespace) -> Iterator[Figure | str]:
    """Yield what a part yields, in a process of its own: one that fails, hangs or spoils the GPU costs only itself."""
    command = [sys.executable, "-W", "ignore", "-m", "autograder.gpu", part, "--here"]
    command += [f"--{name}={getattr(options, name)}" for name in ("seed", "sample")]
    command += [f"--seconds={limit(part, options)}", *(["--interpret"] if options.interpret else [])]
    paths = [str(ROOT), str(ROOT / "lib"), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    late, noise = threading.Event(), []

    def end() -> None:
        late.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    reader = threading.Thread(target=lambda: noise.extend(process.stderr.readlines()[-50:]), daemon=True)
    timer = threading.Timer(limit(part, options) + GRACE, end)
    reader.start()
    timer.start()
    try:
        yield from heard(process.stdout)
        code = process.wait()
    finally:
        timer.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started, too
    reader.join(5)
    if late.is_set():
        yield not_measured(f"the rest of {part}", f"it was ended after its {limit(part, options):.0f} s")
    elif code:
        last = [line.strip() for line in noise if line.strip()][-1:] or [f"exit code {code}"]
        yield Figure(f"the rest of {part}", f"its process ended: {last[0][:300]}", held=False)


def here(options: argparse.Namespace) -> int:
    """Run one part in this process, and print its figures as lines of JSON."""
    warnings.simplefilter("ignore")
    [part] = options.parts
    module, _, function = PARTS[part][0].partition(":")
    job = Job("cpu" if options.interpret else "cuda", time.monotonic() + options.seconds, options.seed, options.sample)
    try:
        for news in getattr(importlib.import_module(f"autograder.gpu.{module}"), function)(job):
            tell(news)
    except ModuleNotFoundError as error:
        tell(not_measured(f"the rest of {part}", f"the package {error.name} is missing here"))
    return 0


def table(figures: Sequence[Figure], facts: dict) -> str:
    """Return the figures as text in columns, what is missing at its end."""
    lacking = [f for f in figures if f.seen.startswith("not measured")]
    rows = [("part", "what", "seen", "target", "", "details")]
    for f in (f for f in figures if f not in lacking):
        verdict = {True: "held", False: "wrong" if wrong(f) else "missed", None: ""}[f.held]
        rows.append(tuple(" ".join(text.split()) for text in (f.part, f.what, f.seen, f.target, verdict, f.baseline)))
    widths = [min(max(len(row[i]) for row in rows), 70) for i in range(5)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[5]]).rstrip() for row in rows
    ]
    lines += ["", "Not measured, or missing:"] if lacking else []
    lines += [f"  {f.part}: {f.what}: {f.seen.removeprefix('not measured: ')}" for f in lacking]
    count = sum(map(wrong, figures))
    missed = sum(f.held is False for f in figures) - count
    successes = sum(f.held is True for f in figures)
    lines += ["", f"{successes} held, {count} wrong, {missed} missed, {len(lacking)} not measured. {facts}"]
    return "\n".join(lines)


def write(path: Path, figures: Sequence[Figure], facts: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": facts, "figures": [asdict(f) for f in figures]}, indent=1) + "\n")
    print(f"Written to {path}.")


if __name__ == "__main__":
    sys.exit(main())
