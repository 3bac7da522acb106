"""Real loops: compile a nest with the C compiler of the system, count its misses with valgrind, take its time.

    counted(nest, "ikj", cache)      # misses of data in the first cache, by valgrind --tool=cachegrind
    seconds(nest, "ikj")             # processor time of the loops

cachegrind (N. Nethercote, J. Seward, "Valgrind: a framework for heavyweight dynamic binary instrumentation", PLDI 2007)
runs every instruction of a program on a model of two levels of caches. What the program does besides its loops is
counted in a run without any turn, and taken off.
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
#: More bytes than a first cache has. A walk over them before and after the loops leaves the rest of the program with
#: the same cache, whatever the loops did to it.
_OTHER = "static volatile char other[1 << 22];"
_WALK = "    for (long at = 0; at < sizeof(other); at += 16) other[at];"
_TYPES = {4: "float", 8: "double"}


def missing() -> str:
    """Return what counting lacks on this machine, as a sentence, or ""."""
    absent = [name for name in ("cc", "valgrind") if shutil.which(name) is None]
    what = " and ".join(absent)
    return f"{what} was not found: install it (apt install gcc valgrind) to count misses." if absent else ""


def source(nest: Nest, order: Sequence[str], each: bool = True) -> str:
    """Return a C program that runs a nest, with its loops in an order, as often as its argument says.

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
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[:300]}")
    return done


def counted(nest: Nest, order: Sequence[str], cache: Cache) -> int:
    """Return the misses of data in the first cache that cachegrind counts for the loops.

    Raises RuntimeError where there is no compiler or no valgrind, with what to install.
    """
    if said := missing():
        raise RuntimeError(said)
    geometry = f"{cache.bytes},{cache.ways},{cache.line}"
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--D1={geometry}"]
    command += [f"--LL={max(cache.bytes * 16, 2**22)},16,{cache.line}", "--cachegrind-out-file=/dev/null"]
    with _compiled(nest, order) as program:
        found = []
        for rounds in ("1", "0"):
            said = _run([*command, program, rounds]).stderr
            found.append(int(re.search(r"D1\s+misses:\s+([\d,]+)", said)[1].replace(",", "")))
    return found[0] - found[1]


def seconds(nest: Nest, order: Sequence[str], rounds: int = 3) -> float:
    """Return the processor time of the loops, the least of several runs. Raises RuntimeError without a compiler."""
    with _compiled(nest, order, each=False) as program:
        return min(float(_run([program, "1"]).stdout) for _ in range(rounds))
