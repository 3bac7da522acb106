"""Compiled loops: build a nest with the system's C compiler, count its misses with valgrind, and time it.

    counted(nest, "ikj", cache)      # misses of data in the first cache, by valgrind --tool=cachegrind
    seconds(nest, "ikj")             # processor time of the loops

cachegrind (N. Nethercote, J. Seward, "Valgrind: a framework for heavyweight dynamic binary instrumentation", PLDI 2007)
runs every instruction of a program on a model of two levels of caches. The misses outside the loops are counted in a
run without any turn, and subtracted.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from passlab.memory.cache import Cache, Nest

_PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct {{
{arrays}
}} memory __attribute__((aligned(1 << 20)));
{names}
{other}

int main(int count, char **words) {{
    int rounds = atoi(words[1]);
{walk}
    clock_t start = clock();
    for (int round = 0; round < rounds; round++) {{
{loops}
        __asm__ volatile("" : : "r"(&memory) : "memory"); /* the results count as used */
    }}
    clock_t end = clock();
{walk}
    printf("%.9f\\n", (double)(end - start) / CLOCKS_PER_SEC);
    return 0;
}}
"""
#: More bytes than a first cache has. A walk over them before and after the loops gives the rest of the program the same
#: cache for any loops.
_OTHER = "static volatile char other[1 << 22];"
_WALK = "    for (long at = 0; at < sizeof(other); at += 16) other[at];"
_TYPES = {4: "float", 8: "double"}


def missing() -> str:
    """Return which of the compiler and valgrind this machine lacks, as a sentence, or ""."""
    tools = " and ".join(name for name in ("cc", "valgrind") if shutil.which(name) is None)
    return f"{tools} was not found: install it (apt install gcc valgrind) to count misses." if tools else ""


def source(nest: Nest, order: Sequence[str], each: bool = True) -> str:
    """Return a C program that runs a nest, with its loops in an order, for the number of rounds in its argument.

    each: the arrays are volatile, so that each access of the statement stays a load or store, as `Nest.accesses` lists
    them. Otherwise the compiler may keep numbers in registers.
    """
    kind, page = ("volatile " if each else "") + _TYPES[nest.size], f"__attribute__((aligned({Nest.PAGE})))"
    arrays = [f"    {kind} {n}{''.join(f'[{e}]' for e in shape)} {page};" for n, shape in nest.arrays.items()]
    lines = []
    for depth, loop in enumerate(order):
        start, stop = nest.turns(loop)
        lines.append(f"{'    ' * (depth + 2)}for (long {loop} = {start}; {loop} < {stop}; {loop}++)")
    lines.append(f"{'    ' * (len(order) + 2)}{nest.body};")
    names = "\n".join(f"#define {name} memory.{name}" for name in nest.arrays)
    other, walk = (_OTHER, _WALK) if each else ("", "")
    return _PROGRAM.format(arrays="\n".join(arrays), names=names, other=other, walk=walk, loops="\n".join(lines))


@contextmanager
def _compiled(nest: Nest, order: Sequence[str], each: bool = True) -> Iterator[str]:
    if shutil.which("cc") is None:
        raise RuntimeError(missing())
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "nest")
        Path(folder, "nest.c").write_text(source(nest, order, each))
        _run(["cc", "-O1", "-o", str(program), f"{program}.c"])
        yield str(program)


def _run(command: list[str]) -> subprocess.CompletedProcess:
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed: {(process.stderr or process.stdout).strip()[:300]}")
    return process


def counted(nest: Nest, order: Sequence[str], cache: Cache) -> int:
    """Return cachegrind's count of the loops' data misses in the first cache.

    Raises RuntimeError without a compiler or valgrind, with the package to install, and ValueError for a cache whose
    sets or line are not a power of two.
    """
    for name in ("sets", "line"):
        if (value := getattr(cache, name)) & (value - 1):
            raise ValueError(f"cachegrind has caches whose {name} is a power of two; got {value}.")
    if reason := missing():
        raise RuntimeError(reason)
    geometry = f"{cache.bytes},{cache.ways},{cache.line}"
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--D1={geometry}"]
    command += [f"--LL={max(cache.bytes * 16, 2**22)},16,{cache.line}", "--cachegrind-out-file=/dev/null"]
    with _compiled(nest, order) as program:
        outputs = [_run([*command, program, rounds]).stderr for rounds in ("1", "0")]
    with_loops, without = (int(re.search(r"D1\s+misses:\s+([\d,]+)", s)[1].replace(",", "")) for s in outputs)
    return with_loops - without


def seconds(nest: Nest, order: Sequence[str], rounds: int = 3) -> float:
    """Return the processor time of the loops, the minimum of several runs. Raises RuntimeError without a compiler."""
    with _compiled(nest, order, each=False) as program:
        return min(float(_run([program, "1"]).stdout) for _ in range(rounds))
