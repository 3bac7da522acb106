"""A hub for a small course: `make hub`'s own command, on a copy of /etc, so that no account is left on the machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from autograder.toys import tiny


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    for start in range(20000, 40000, count):
        with contextlib.ExitStack() as probes:
            try:
                for port in range(start, start + count):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return start
    raise OSError("no free ports")


def sealed(scratch: Path) -> list[str]:
    """Return the command before one that makes accounts: it writes to a copy of /etc, and its processes end with it."""
    shutil.copytree("/etc", scratch / "etc", symlinks=True, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    words = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", str(scratch / "etc"), "/etc"]
    return [*words, "--unshare-pid", "--proc", "/proc", "--die-with-parent", "--cap-add", "ALL", "--"]


def environment(course: Path, scratch: Path) -> dict[str, str]:
    port = free_ports(3)
    url = f"http://localhost:{port}"
    return tiny.environment(course) | {"PASSLAB_HUB": str(scratch / "hub"), "PASSLAB_HUB_URL": url}


@contextlib.contextmanager
def running(course: Path, scratch: Path, roster: str) -> Iterator[str]:
    """Run a hub for a roster in CSV; give its address. Its folder is `scratch/hub`."""
    if not (course / ".venv").exists():
        (course / ".venv").symlink_to(tiny.ROOT / ".venv")
    (scratch / "roster.csv").write_text(roster)
    env = environment(course, scratch)
    command = [*sealed(scratch), sys.executable, "-m", "autograder.hub", str(scratch / "roster.csv")]
    with (scratch / "hub.log").open("w") as log:
        hub = subprocess.Popen(
            command, cwd=course, env=env, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{env['PASSLAB_HUB_URL']}/hub/api"):
                break
            assert hub.poll() is None, (scratch / "hub.log").read_text()
            time.sleep(0.2)
        yield env["PASSLAB_HUB_URL"]
    finally:
        hub.kill()
        hub.wait(20)


def is_root() -> bool:
    return os.geteuid() == 0


class Person:
    """Somebody at a browser: logged in, with the server started."""

    def __init__(self, browser, url: str, name: str, password: str):
        self.name, self.server = name, url.replace("//", f"//{name}.") + f"/user/{name}"
        self.page = browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()
        self.page.set_default_timeout(120_000)
        self.elsewhere: list[str] = []  # what pages asked of the internet, and did not get
        self.page.route(re.compile(r"https?://(?!([\w-]+\.)*localhost[:/])"), self._refuse)
        self.page.goto(f"{url}/hub/login")
        self.page.fill("#username_input", name)
        self.page.fill("#password_input", password)
        self.page.click("#login_submit")
        self.page.wait_for_url(re.compile(r"/user/"))

    def _refuse(self, route) -> None:
        self.elsewhere.append(route.request.url)
        route.abort()

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        """Ask this person's server, with their cookies, as the page would."""
        script = """async ([method, path, body]) => {
            const headers = {"Content-Type": "application/json"}
            headers["X-XSRFToken"] = /(?:^|; )_xsrf=([^;]*)/.exec(document.cookie)[1]
            const answer = await fetch(path, {method, headers, body: body && JSON.stringify(body)})
            return [answer.status, await answer.text()]
        }"""
        status, text = self.page.evaluate(script, [method, f"{self.server}/{path}", body])
        assert status < 300, f"{method} {path}: {status} {text[:500]}"
        return json.loads(text) if text else {}
