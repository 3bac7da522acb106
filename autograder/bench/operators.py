"""Search for operators that a graph may call and that reach beyond their tensors' memory.

    python -m autograder.bench.operators [TRIALS] [NAME…]      (names such as aten.add.Tensor)

Each operator is called with hostile arguments: indices, sizes and strides that are huge or negative, shapes that do not
fit, empty and overlapping tensors, wrong dtypes. The allocator under torch puts every block, temporaries and outputs
included, against pages that may not be touched, so that a step beyond ends the process, which is a child of its own.
Whatever ended it is printed: the operator, the signal and the number of the trial. Needs a C compiler and glibc.
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GUARD = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#define PAGE 4096UL
#define TOTAL (1UL << 36)
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
static char *arena, *next;
static uint32_t pages[TOTAL / PAGE];
static int on;
void guard(int flag) {
    if (!arena) {
        arena = mmap(0, TOTAL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        next = arena;
    }
    on = flag;
}
int posix_memalign(void **out, size_t align, size_t size) {
    size_t room = (size + PAGE - 1) & ~(PAGE - 1);
    if (!room) room = PAGE;
    if (!on || size > (1UL << 24)) return (*out = __libc_memalign(align, size)) ? 0 : ENOMEM;
    char *page = __atomic_fetch_add(&next, room + PAGE, __ATOMIC_SEQ_CST) + PAGE;
    if (page + room + PAGE > arena + TOTAL || mprotect(page, room, PROT_READ | PROT_WRITE)) return ENOMEM;
    memset(page, 0x5a, room);
    pages[(page - arena) / PAGE] = room / PAGE;
    *out = page + ((room - size) & ~7UL);
    return 0;
}
void free(void *block) {
    char *page = (char *)((uintptr_t)block & ~(PAGE - 1));
    if (!arena || page < arena || page >= arena + TOTAL) { __libc_free(block); return; }
    size_t room = pages[(page - arena) / PAGE] * PAGE;
    madvise(page, room, MADV_DONTNEED);
    mprotect(page, room, PROT_NONE);
}
"""

#: Seconds of one trial, after which it is given up, and how often that may happen to one operator.
SECONDS, MOST_SLOW = 0.5, 4
_NUMBERS = (0, 1, 2, 3, -1, -2, 5, 7, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
_SHAPES = (
    (),
    (0,),
    (1,),
    (3,),
    (8,),
    (2, 3),
    (3, 3),
    (3, 2),
    (2, 0),
    (2, 3, 4),
    (4, 4, 4),
    (1, 2, 4, 4),
    (2, 2, 3, 3, 3),
)
_WORDS = (
    "mean",
    "sum",
    "none",
    "max",
    "prod",
    "reflect",
    "constant",
    "nearest",
    "zeros",
    "linear",
    "left",
    "L",
    "trunc",
)


@dataclass(frozen=True)
class Crash:
    """An operator that ended its process, in a trial, by a signal."""

    name: str
    signal: str
    trial: int


def available() -> bool:
    """Return whether the search can run here."""
    return sys.platform == "linux" and bool(shutil.which("cc"))


def search(names: Iterable[str], trials: int) -> Iterator[Crash]:
    """Yield the operators that end their process in one of `trials` trials each, with the first such trial."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "guard.so")
        command = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=_GUARD, text=True, check=True)
        Path(folder, "names").write_text("\n".join(names))
        environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
        argv = [sys.executable, "-m", "autograder.bench.operators", "--here", folder, str(trials)]
        with subprocess.Popen(argv, env=environment, text=True, stdout=subprocess.PIPE) as process:
            for line in process.stdout:
                name, ending, at = line.split()
                yield Crash(name, ending, int(at))
        if process.returncode:
            raise RuntimeError(f"The search ended with exit code {process.returncode}.")


def _here(folder: str, trials: int) -> None:
    """Try all operators in children of this process, which has the guarding allocator."""
    import ctypes
    import warnings

    import torch

    from autograder.engine.wire import targets

    warnings.simplefilter("ignore")
    guard = ctypes.CDLL(str(Path(folder, "guard.so"))).guard
    names = Path(folder, "names").read_text().split()
    place = mmap.mmap(-1, 8)
    operators = [targets.by_name(name) or _operator(name) for name in names]
    start, last, slow = 0, len(names) * trials, Counter()
    torch.set_grad_enabled(False)
    while start < last:
        pid = os.fork()
        if pid == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            most = 2**37 + 2**33
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            guard(1)
            for at in range(start, last):
                place[:] = at.to_bytes(8, "little")
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
                _try(operators[at // trials], random.Random(f"{names[at // trials]} {at % trials}"))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == 0:
            return
        at = int.from_bytes(place[:], "little")
        start = at + 1
        slow[at // trials] += status == -signal.SIGALRM
        if status != -signal.SIGALRM:
            ending = signal.Signals(-status).name if status < 0 else f"exit-{status}"
            print(names[at // trials], ending, at % trials, flush=True)
        if status != -signal.SIGALRM or slow[at // trials] == MOST_SLOW:
            start = (at // trials + 1) * trials


def _operator(name: str) -> Any:
    """Return an operator that the tables do not have."""
    import torch

    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def _try(operator: Any, rng: random.Random) -> None:
    try:
        shape = rng.choice(_SHAPES)
        args, kwargs = [], {}
        for argument in operator._schema.arguments:
            if argument.has_default_value() and rng.random() < 0.4:
                if not argument.kwarg_only:
                    args.append(argument.default_value)
                continue
            value = _draw(str(argument.real_type), shape, rng)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        out = operator(*args, **kwargs)
        for tensor in out if isinstance(out, (tuple, list)) else (out,):  # a wrong view is seen when it is read
            if hasattr(tensor, "sum"):
                tensor.sum()
    except (Exception, SystemExit):
        pass


def _draw(kind: str, shape: tuple[int, ...], rng: random.Random) -> Any:
    """Return a value of a type of a schema: "Tensor", "Optional[int]", "List[Tensor]", …"""
    if kind.startswith("Optional["):
        return None if rng.random() < 0.4 else _draw(kind[9:-1], shape, rng)
    if kind.startswith("List["):
        length = rng.choice((len(shape), len(shape), 1, 2, 2, 3, 0))
        return [_draw(kind[5:-1], shape, rng) for _ in range(length)]
    if kind == "Tensor":
        return _tensor(shape if rng.random() < 0.6 else rng.choice(_SHAPES), rng)
    if kind in ("int", "SymInt"):
        return rng.choice(_NUMBERS if rng.random() < 0.3 else (*shape, 0, 1, 2, 3))
    if kind in ("number", "Scalar"):
        return rng.choice((*_NUMBERS, 0.5, float("nan"), float("inf")))
    if kind == "float":
        return rng.choice((0.0, 0.5, 1.0, 2.0, -1.0, 1e30, float("nan"), float("inf")))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "str":
        return rng.choice(_WORDS)
    return None


def _tensor(shape: tuple[int, ...], rng: random.Random) -> Any:
    import torch

    count = 1
    for size in shape:
        count *= size
    kind = rng.random()
    if kind < 0.55:
        dtype = rng.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.complex64))
        values = [rng.choice((0.0, 0.3, 1.0, 2.5, -1.0, -7.0, 1e30, float("inf"), float("nan"))) for _ in range(count)]
        if rng.random() < 0.5:
            values = [rng.random() for _ in range(count)]
    elif kind < 0.9:
        dtype = rng.choice((torch.int64, torch.int64, torch.int32))
        tame = rng.random() < 0.4
        most = torch.iinfo(dtype).max
        choices = (0, 1, 2) if tame else [n for n in _NUMBERS if -most <= n <= most]
        values = [rng.choice(choices) for _ in range(count)]
    else:
        dtype = rng.choice((torch.bool, torch.uint8))
        values = [rng.randrange(2) for _ in range(count)]
    t = torch.tensor(values, dtype=dtype).reshape(shape)
    choice = rng.random()
    if choice < 0.1 and shape:
        return t[..., :1].expand(shape) if 0 not in shape else t
    if choice < 0.2:
        return t.permute(tuple(reversed(range(len(shape)))))
    if choice < 0.25 and count:
        return t.flatten()[-1:].expand(shape or (1,))
    return t


def searchable() -> Iterator[str]:
    """Yield the names of all overloads of aten that a graph may call."""
    from autograder.engine.wire import targets

    for name in sorted(targets._aten()):
        if "." in name and targets._aten_operator(name) is not None:
            yield f"aten.{name}"


def main(args: list[str]) -> None:
    if args[:1] == ["--here"]:
        _here(args[1], int(args[2]))
        return
    trials, names = int(args[0]) if args else 300, args[1:] or list(searchable())
    faults = []
    for ended in search(names, trials):
        faults.append(ended)
        print(f"{ended.name:60} {ended.signal} in trial {ended.trial}", flush=True)
    print(f"{len(names):,} operators, up to {len(names) * trials:,} calls: {len(faults)} ended their process")


if __name__ == "__main__":
    main(sys.argv[1:])
