"""Exhausting: more processes, memory, disk, output, time than one submission may have.

Sizes are bounded, so that a machine that holds nothing back survives them; the worst of them run in the sandbox alone.
Memory and disk are asked for 6 GiB: more than any limit, less than the machine has.
"""

from __future__ import annotations

from tests.attacks.attack import read

ATTACKS = read(
    r"""
# %% cell fork-bomb keeps=False harms
# processes that make processes, several hundred of them
import os, time
for _ in range(9):
    try:
        os.fork()
    except OSError:
        pass
if os.getpid() != os.getpgid(0):
    time.sleep(0.2)

# %% answer fork-bomb-in-answer harms
# the same while a case is put to an answer, each child staying for a minute
import os, time

def dce(gm):
    for _ in range(400):
        try:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        except OSError:
            pass
    return gm

# %% cell threads keeps=False harms
# hundreds of threads that compute for ever outlive the cell
import threading
def spin():
    while True:
        pass
made = 0
try:
    for _ in range(300):
        threading.Thread(target=spin, daemon=True).start()
        made += 1
except RuntimeError:
    pass
print(made)

# %% cell left-behind harms
# processes detach themselves (double fork, setsid, another program) to stay when the cell is done
import os, subprocess, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
try:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "plattack"], start_new_session=True)
    subprocess.Popen(["setsid", "nohup", "sleep", "300"], env={"PLATTACK": "plattack"})
except OSError as error:
    print(type(error).__name__)

# %% answer left-behind-by-answer harms
# the same from an answer, ignoring every signal there is
import os, signal, time

def dce(gm):
    if os.fork() == 0:
        os.setsid()
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        time.sleep(300)
        os._exit(0)
    return gm

# %% cell memory keeps=False harms
# memory is taken and written to until there is no more
held = []
try:
    for _ in range(6 * 16):
        held.append(bytearray(b"1") * 2**26)
except MemoryError:
    print(len(held))
    held = None

# %% answer memory-in-answer harms
# a tensor of a terabyte, then many small ones
import torch

def dce(gm):
    try:
        torch.ones(2**38)
    except RuntimeError:
        pass
    held = [torch.ones(2**24) for _ in range(6 * 16)]
    return gm

# %% cell shared-memory keeps=False harms
# shared mappings, which no limit on a process's own memory counts, from several processes
import mmap, os
for _ in range(4):
    if os.fork() == 0:
        held = []
        try:
            for _ in range(6 * 4):
                board = mmap.mmap(-1, 2**26)
                board[:] = b"1" * 2**26
                held.append(board)
        finally:
            os._exit(0)
try:
    while True:
        os.wait()
except ChildProcessError:
    pass

# %% cell memfd keeps=False harms
# files in memory that have no name
import os
made = 0
try:
    held = [os.memfd_create("plattack") for _ in range(8)]
    for fd in held:
        for _ in range(6 * 2):
            made += os.write(fd, b"1" * 2**26)
except OSError as error:
    print(type(error).__name__, made)

# %% cell disk harms
# large files in every folder that takes them
import os
made = 0
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", ".", "@HOME@", "@COURSE@"):
    for number in range(6 * 4):
        try:
            with open(f"{folder}/plattack-{number}", "wb") as out:
                for _ in range(16):
                    made += out.write(b"1" * 2**24)
        except OSError:
            break
print(made)

# %% cell sparse-file harms
# one file of eight exabytes, and links and folders without end
import os
for way in (
    lambda: os.truncate(os.open("/tmp/plattack-sparse", os.O_CREAT | os.O_RDWR), 2**62),
    lambda: [os.makedirs(f"{'/tmp' + '/plattack' * n}") for n in range(1, 300)],
    lambda: [os.link("/tmp/plattack-sparse", f"/tmp/plattack-{n}") for n in range(20_000)],
):
    try:
        way()
    except OSError as error:
        print(type(error).__name__)

# %% cell inodes harms
# fifty thousand empty files
made = 0
try:
    for made in range(50_000):
        open(f"/tmp/plattack-{made}", "w").close()
except OSError:
    pass
print(made)

# %% cell open-files keeps=False harms
# as many open files as there may be, and some more
import os
held = []
try:
    while len(held) < 100_000:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    print(len(held))
for fd in held[-20:]:
    os.close(fd)

# %% cell stdout-flood
# 200 MB are printed, in one piece and in many
import os, sys
print("x" * 100_000_000)
for _ in range(1000):
    sys.stdout.write("spam " * 10_000)
for _ in range(800):
    os.write(1, b"y" * 65_536)

# %% cell stderr-flood
# errors, warnings and log lines by the hundred thousand
import logging, os, sys, warnings
warnings.simplefilter("always")
for number in range(3_000):
    warnings.warn(f"{number} " * 50)
    logging.error("%s", "z" * 500)
for _ in range(1000):
    os.write(2, b"y" * 65_536)
    sys.stderr.write("oh " * 10_000)

# %% cell display-flood
# ten thousand displays, one of 100 MB, tables, pictures and updates
from IPython.display import HTML, Image, clear_output, display
for number in range(10_000):
    display({"text/plain": "x" * 100, "text/html": "<b>" * 30}, raw=True, display_id=str(number))
display(HTML("<p>" * 30_000_000))
display({"image/png": b"1" * 50_000_000}, raw=True)
display({"application/json": [[[]]] * 500_000}, raw=True)
for _ in range(1000):
    display({"text/plain": "again"}, raw=True, display_id="1", update=True)

# %% cell display-mischief
# displays that are no text: classes that lie about it, huge keys, loops, control characters
from IPython.display import display
class Text(str):
    def __len__(self): return 3
    def encode(self, *a): return b"x" * 10**8
loop = {}
loop["loop"] = loop
for data in (
    {Text("text/plain"): Text("y" * 10**6)}, {"text/plain": loop}, {"k" * 10**7: "v"}, {"application/json": loop},
    {"text/plain": "\ud800\x00\x1b[2J\u202e"}, {"text/plain": float("nan")}, {1: 2},
    {"image/svg+xml": "<svg " * 10**6},
):
    try:
        get_ipython().display_pub.publish(data)
    except Exception as error:
        print(type(error).__name__)

# %% answer prints-in-answer
# an answer prints without end until it is stopped
import os

def dce(gm):
    while True:
        print("x" * 1_000_000)
        os.write(1, b"y" * 65_536)

# %% cell loop
# a loop without end
while True:
    pass

# %% cell stubborn-loop
# a loop that swallows whatever is raised in it, and sets every timer back
import signal
while True:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True:
            pass
    except BaseException:
        pass

# %% answer stubborn-answer
# the same in an answer
import signal

def dce(gm):
    while True:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            while True:
                pass
        except BaseException:
            pass

# %% answer sleeping-answer
# an answer that sleeps for ten minutes, every time
import time

def dce(gm):
    try:
        time.sleep(600)
    except BaseException:
        time.sleep(600)

# %% answer long-c-call
# one call into C that takes years: a regular expression, a power, a sum
import re

def dce(gm):
    re.match("(a+)+$", "a" * 60 + "b")
    return 7 ** 7 ** 12

def cse(gm):
    return sum(range(10**13))

# %% answer recursion
# recursion without a limit, in Python and in what prints and compares
import sys

def dce(gm):
    sys.setrecursionlimit(10**9)
    return dce(gm)

def cse(gm):
    deep = []
    for _ in range(10**5):
        deep = [deep]
    return repr(deep)

def functions(gm):
    deep = ()
    for _ in range(10**5):
        deep = (deep,)
    return deep

# %% answer huge-graph
# a graph of 200,000 nodes
import torch

def dce(gm):
    with gm.graph.inserting_before():
        for _ in range(200_000):
            gm.graph.create_node("call_function", torch.relu, (1,), name="n")
    return gm

# %% answer long-names
# nodes, targets and texts of 50 MB
def dce(gm):
    for node in gm.graph.nodes:
        node.name = "n" * 50_000_000
    return gm

def cse(gm):
    gm.graph.create_node("get_attr", "a." * 25_000_000)
    return gm

def functions(gm):
    return "x" * 200_000_000

# %% answer billion-laughs
# a list that holds one list ten times, and so on: small here, a terabyte when it is written down
def dce(gm):
    a = [1] * 10
    for _ in range(40):
        a = [a] * 10
    next(iter(gm.graph.nodes)).meta["val"] = a
    return a

def cse(gm):
    a = [1] * 10
    for _ in range(40):
        a = [a] * 10
    gm.meta["inputs"] = a
    return gm

# %% answer expanded-tensor at=constant-fold
# a constant of one element with the shape of a trillion
import torch

def constant_fold(gm):
    for node in list(gm.graph.nodes):
        if node.op == "get_attr":
            setattr(gm, node.target, torch.zeros(1).expand(10**6, 10**6))
    return gm

# %% answer huge-number at=count-nodes honest=0
# whole numbers with a hundred million digits, counted as nodes
def count_nodes(gm):
    return {"add": 1 << 400_000_000}

# %% answer memory-of-the-judge
# a well-formed graph that takes 300 GB when the judge runs it
import torch

def dce(gm):
    with gm.graph.inserting_after(next(iter(gm.graph.nodes))):
        big = gm.graph.call_function(torch.ones, ((300_000, 300_000),))
    out = [n for n in gm.graph.nodes if n.op == "output"][0]
    with gm.graph.inserting_before(out):
        gm.graph.call_function(torch.sum, (big,))
    return gm

# %% answer time-of-the-judge
# a well-formed graph that computes for minutes when the judge runs it
import torch

def dce(gm):
    out = [n for n in gm.graph.nodes if n.op == "output"][0]
    with gm.graph.inserting_before(out):
        big = gm.graph.call_function(torch.ones, ((4_000, 4_000),))
        for _ in range(2_000):
            big = gm.graph.call_function(torch.matmul, (big, big))
    return gm
"""
)
