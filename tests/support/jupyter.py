"""A Jupyter server on a course, and formgrader in a browser."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from autograder.toys import tiny
from autograder.toys.browser import QUIET, chromium


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _get(url: str) -> str:
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=600) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}"
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


@contextmanager
def serving(course: Path) -> Iterator[Callable[[str], str]]:
    """Start a server in a course. Gives a function from a path to its text, with `address` for the path's URL."""
    port = _free_port()
    command = [sys.executable, "-m", "jupyter", "server", "--no-browser", f"--port={port}", "--ServerApp.token=t"]
    with (course / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--allow-root", "--ServerApp.ip=127.0.0.1"],
            cwd=course,
            env=tiny.environment(course),
            stdout=log,
            stderr=log,
        )

    def page(path: str) -> str:
        return _get(page.address(path))

    page.address = f"http://127.0.0.1:{port}/{{}}?token=t".format
    yield page
    process.terminate()
    process.wait(60)


@contextmanager
def browsing(address: str) -> Iterator[Page]:
    """Open a submission in formgrader, in a browser that reaches nothing but the server, and wait until it is ready."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(120_000)
        page.set_extra_http_headers({"Authorization": "token t"})
        page.route(re.compile(r"https?://(?!127\.0\.0\.1)"), lambda route: route.abort())
        page.goto(address)
        page.wait_for_function("MathJax.loaded")  # then formgrader selects the first box
        yield page
        browser.close()
