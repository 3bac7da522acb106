"""Log in with the passwords of `accounts`; start each person's server as a system user, a learner's in a view.

The instructor's server is an ordinary one: it runs as the owner of the project, in the project. A learner's server runs
as the learner, and bubblewrap shows it the system, the packages, the library, the lessons, its own home folder and the
exchange of its section. What is not in this list is not there: solutions, hidden cases, the gradebook, other homes.
"""

from __future__ import annotations

import os
import pwd
import resource
import secrets
import subprocess
import sys
from pathlib import Path

from jupyterhub.auth import Authenticator
from jupyterhub.spawner import LocalProcessSpawner, set_user_setuid

from autograder.hub import accounts
from passlab import course_paths

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc")
_SETTINGS = Path(__file__).with_name("learner")
_SHOWN_SETTINGS = "/passlab"  # where a learner's server sees them
#: The limits of a learner: processes and threads, and bytes in /tmp, which is memory.
PROCESSES, TEMPORARY = 2_000, 2**30


class Passwords(Authenticator):
    """The passwords in accounts.csv, read at each login: `make hub` may add learners while the hub runs."""

    async def authenticate(self, handler, data):
        account = accounts.read().get(data["username"])
        right = secrets.compare_digest((account.password if account else "").encode(), data["password"].encode())
        return account.id if account and right else None


def view(learner: str, section: str) -> list[str]:
    """Return the command that runs another one as this learner, where only the learner's part of the machine exists."""
    user, home = pwd.getpwnam(learner), accounts.home(learner)
    exchange = accounts.folder() / "exchange"
    shown = [*map(Path, {sys.prefix, sys.base_prefix}), course_paths.PROJECT / "lib"]
    if own := course_paths.external_course():
        shown.append(own / "lib")
    shown = [path for path in shown if not path.is_relative_to("/usr")]
    course = exchange / accounts.course_id(section)
    words = [accounts.program("bwrap", "bubblewrap"), "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    words += ["--perms", "1777", "--size", str(TEMPORARY), "--tmpfs", "/tmp"]
    for path in _SYSTEM:
        words += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    for path in dict.fromkeys(parent for end in (*shown, home, course) for parent in reversed(end.parents)):
        if path != Path("/") and not any(path.is_relative_to(one) for one in shown):
            words += ["--perms", "1777" if path == exchange else "0755", "--dir", str(path)]
    for path in shown:
        words += ["--ro-bind", str(path), str(path)]
    words += [
        "--ro-bind",
        str(_SETTINGS),
        _SHOWN_SETTINGS,
        "--bind",
        str(home),
        str(home),
        "--bind",
        str(course),
        str(course),
    ]
    words += ["--ro-bind", str(course_paths.course() / "course"), str(home / "course"), "--chdir", str(home), "--"]
    # Started by root, bubblewrap keeps all capabilities; changing the user drops them.
    words += [accounts.program("setpriv", "util-linux"), "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid)]
    return [*words, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    Path("/proc/self/oom_score_adj").write_text("500")  # where memory runs out, a learner's process ends, not the hub


class Spawner(LocalProcessSpawner):
    """Start a person's server. The instructor's named servers are the sections."""

    def start(self):
        name, own = self.user.name, course_paths.external_course()
        if name == accounts.instructor():
            section, runs = self.name, "autograder/run"
            self.cmd, self.notebook_dir = [sys.executable, str(_SETTINGS / "server.py")], str(course_paths.course())
            self.popen_kwargs = {"cwd": course_paths.course(), "stdin": subprocess.DEVNULL}
            self.args = ["--allow-root", "--KernelManager.transport=ipc"]
            own_settings = {
                "PASSLAB_RUN": f"{runs}/{section}" if section else runs,
                "JUPYTER_CONFIG_PATH": str(course_paths.PROJECT / "lib/passlab/jupyter"),
            }
            self.default_url = "/formgrader/manage_assignments"
        else:
            section, home = accounts.read()[name].section, accounts.home(name)
            self.popen_kwargs = {"stdin": subprocess.DEVNULL}  # not root's terminal, which it could read
            self.cmd = [*view(name, section), sys.executable, f"{_SHOWN_SETTINGS}/server.py"]
            self.notebook_dir = str(home)
            self.default_url = "/lab/tree/course/index.ipynb"
            own_settings = {
                "MALLOC_ARENA_MAX": "1",
                "JUPYTER_CONFIG_PATH": _SHOWN_SETTINGS,
                "JUPYTER_RUNTIME_DIR": "/tmp/jupyter",
                "PASSLAB_PROGRESS": str(home / "work/progress.json"),
            }
        self.environment = own_settings | {
            "JUPYTER_PREFER_ENV_PATH": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PASSLAB_COURSE_ID": accounts.course_id(section),
            "PASSLAB_EXCHANGE": str(accounts.folder() / "exchange"),
            **({"PASSLAB_COURSE": str(own)} if own else {}),
        }
        return super().start()

    def user_env(self, env):
        """Add the shell of terminals and of `!`, which a learner's account does not name."""
        env = super().user_env(env)
        return env if self.user.name == accounts.instructor() else env | {"SHELL": "/bin/bash"}

    def make_preexec_fn(self, name):
        return set_user_setuid(name, chdir=False) if name == accounts.instructor() else _limits
