"""Writing: gradebook, other submissions, releases, packages, the home, the engine itself."""

from __future__ import annotations

from tests.attacks.attack import MARK, Attack, answer, cell, read

#: Tries to leave a file, and a line in a file that is there.
_LEAVE = f"""
import os

def leave(path):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a") as out:
            out.write("\\n# {MARK}\\n")
        print("wrote", path)
    except OSError as error:
        print(type(error).__name__)
"""


def _leaving(name: str, tries: str, code: str, **more) -> Attack:
    return (answer if "def dce" in code else cell)(name, tries, _LEAVE + code, **more)


ATTACKS = read(
    r"""
# %% cell gradebook-write harms
# own scores are set to full, others' to nothing, and a trigger sees to it that it stays so
import glob, sqlite3
trigger = '''create trigger plattack after update on grade begin
    update grade set auto_score = 5, needs_manual_grade = 0; end'''
for path in {*glob.glob("@COURSE@/**/*.db", recursive=True), "@COURSE@/autograder/run/gradebook.db"}:
    try:
        with sqlite3.connect(path, timeout=0.5) as book:
            book.execute("update grade set auto_score = 0")
            book.execute(trigger)
    except sqlite3.Error as error:
        print(type(error).__name__)

# %% leaving builds-write
# what modules computed, kept for later gradings, is read and replaced
import glob
for path in [*glob.glob("@COURSE@/.cache/**", recursive=True), "@COURSE@/.cache/passlab-builds/plattack"]:
    leave(path)

# %% cell submissions-write harms
# the submissions of others are emptied
import glob, os
for path in glob.glob("@CLASS@/*/day00/*") + glob.glob("@COURSE@/autograder/run/*/*/day00/*"):
    for way in (lambda: open(path, "w").close(), lambda: os.unlink(path), lambda: os.chmod(path, 0)):
        try:
            way()
        except OSError as error:
            print(type(error).__name__)

# %% leaving course-write harms
# released notebooks, solutions, hidden cases and settings are changed
for name in (
    "exercises/day00/fx.ipynb", "solutions/day00/fx.py", "solutions/day00/fx.ipynb", "autograder/answers/day00/dce.py",
    "autograder/nbgrader_config.py", "nbgrader_config.py", "autograder/commands.py", "lib/passlab/judge/__init__.py",
    "autograder/run/grades.csv", "autograder/run/feedback/zz-after/day00/fx.html", "conftest.py",
):
    leave(f"@COURSE@/{name}")

# %% leaving engine-write harms
# the engine's own code is changed for the next learner, in source and as compiled files
import importlib.util, sys
for name, module in list(sys.modules.items()):
    path = getattr(module, "__file__", None)
    if path and name.startswith(("autograder", "passlab")):
        leave(path)
        leave(importlib.util.cache_from_source(path))

# %% leaving site-packages-write harms
# a .pth file and a sitecustomize are put where the next Python will run them
import site, sysconfig, torch
for folder in {*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib"), torch.__path__[0]}:
    leave(f"{folder}/plattack.pth")
    leave(f"{folder}/sitecustomize.py")

# %% leaving home-write harms
# start-up files of shell, IPython, Jupyter, git and ssh are left in the home
for home in {"@HOME@", os.path.expanduser("~"), "/home/plattack"}:
    for name in (
        ".profile.plattack", ".ipython/profile_default/startup/plattack.py", ".jupyter/plattack.py", ".ssh/plattack",
        ".local/share/jupyter/kernels/plattack/kernel.json", ".config/matplotlib/plattack", ".cache/torch/plattack",
    ):
        leave(f"{home}/{name}")

# %% leaving system-write harms
# files are left in /etc, /usr, /var, /run, /opt, /srv, /sys, /dev and at the root
for folder in (
    "/etc/cron.d", "/etc", "/usr/lib", "/usr/local/bin", "/var/tmp", "/var/spool/cron", "/run", "/opt", "/srv",
    "/sys/fs/cgroup", "/dev", "/dev/shm", "/mnt", "/media", "/boot", "",
):
    leave(f"{folder}/plattack")

# %% leaving everywhere harms
# whatever folder can be seen is tried
seen = 0
for folder, below, files in os.walk("/"):
    below[:] = [name for name in below if name not in ("proc", "sys", "site-packages", "dist-packages")]
    if folder.count("/") > 4:
        below.clear()
    if os.access(folder, os.W_OK):
        leave(f"{folder}/plattack-everywhere")
        seen += 1
    if seen > 200:
        break

# %% leaving proc-root harms
# files of others are reached through /proc: the root, the working directory and open files of their processes
for pid in {1, 2, os.getppid(), "self"}:
    for way in ("root", "cwd", "root/@COURSE@", "fd/0", "fd/3", "fd/5"):
        leave(f"/proc/{pid}/{way}/plattack-proc")
for path, text in (("/proc/self/oom_score_adj", "-1000"), ("/proc/sys/kernel/core_pattern", "|/tmp/plattack")):
    try:
        open(path, "w").write(text)
    except OSError as error:
        print(type(error).__name__)

# %% leaving mount harms
# the system is mounted again to be written to, bound elsewhere, or left by chroot and new namespaces
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
MS_REMOUNT, MS_BIND = 32, 4096
os.makedirs("/tmp/plattack-root", exist_ok=True)
print(libc.unshare(0x10000000), libc.unshare(0x00020000), libc.setns(3, 0))
for where in (b"/", b"@COURSE@", b"/usr", b"/tmp"):
    print(libc.mount(None, where, None, MS_REMOUNT, None), ctypes.get_errno())
    print(libc.mount(where, b"/tmp/plattack-root", None, MS_BIND, None), libc.umount2(where, 2))
print(libc.chroot(b"/tmp/plattack-root"), libc.pivot_root(b"/tmp", b"/tmp"))
leave("@COURSE@/plattack-mounted")

# %% leaving another-user harms
# the process becomes another user: setuid 0, groups, capabilities, set-user-id programs
import subprocess
for way in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0]), lambda: os.setgid(0)):
    try:
        way()
        print("became", os.getresuid())
    except OSError as error:
        print(type(error).__name__)
for command in ("su -c id", "sudo -n id", "mount", "newuidmap", "pkexec id", "unshare -Ur id"):
    try:
        print(subprocess.run(command.split(), capture_output=True, timeout=1, stdin=subprocess.DEVNULL).returncode)
    except (OSError, subprocess.SubprocessError) as error:
        print(type(error).__name__)
leave("@COURSE@/plattack-root")

# %% leaving write-while-judged harms
# the same while a case is put to an answer
def dce(gm):
    leave("@CLASS@/zz-after/day00/fx.ipynb")
    for folder in ("@COURSE@", "@CLASS@", "@HOME@", "/var/tmp", "/dev/shm"):
        leave(f"{folder}/plattack-late")
    return gm
""",
    leaving=_leaving,
)
