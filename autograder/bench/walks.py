"""Which files a check and a submission go through, as a profile hook sees it.

    python -m autograder.bench.walks check            # a wrong answer to day03.cse, checked for the second time
    python -m autograder.bench.walks grade FOLDER     # `passlab grade FOLDER`, as far as it handles a submission

The last line printed is a list in JSON: the files, in order. A file is entered where a function of it is called from
another file. It counts once for each function, and calls that follow each other count as one stay.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

#: The file of the grader that leads a submission from one part to the next.
CONDUCTOR = "grading/class_run.py"


class Walk:
    """A profile hook that notes the files of a package in the order in which calls lead into them.

    inside: note only what is called, directly or not, by this file. one: a folder of the package that counts as a file.
    """

    def __init__(self, package: ModuleType, inside: str = "", one: str = ""):
        self.home, self.inside, self.one = Path(package.__file__).parent, inside, one
        self.stays: list[str] = []
        self._known: set[tuple[str, int]] = set()
        self._files: dict[str, str] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        file = self._file(frame.f_code)
        function = file, frame.f_code.co_firstlineno
        if event != "call" or not file or file == self.inside or function in self._known:
            return
        callers, caller = [], frame.f_back
        while caller is not None:
            callers.append(self._file(caller.f_code))
            caller = caller.f_back
        if file == next(filter(None, callers), "") or (self.inside and self.inside not in callers):
            return
        self._known.add(function)
        if self.stays[-1:] != [file]:
            self.stays.append(file)

    def _file(self, code: CodeType) -> str:
        """Return the file of a function, "" for one outside the package and for a module that is being imported."""
        if code.co_name == "<module>":
            return ""
        if code.co_filename not in self._files:
            path = Path(code.co_filename)
            inside = path.suffix == ".py" and path.is_relative_to(self.home)
            name = path.relative_to(self.home).as_posix() if inside else ""
            self._files[code.co_filename] = self.one if self.one and name.startswith(f"{self.one}/") else name
        return self._files[code.co_filename]


def wrong_cse(gm: Any) -> Any:
    """Merge calls that look alike: effects and random draws do not matter to it."""
    firsts: dict[tuple, Any] = {}
    for node in [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]:
        first = firsts.setdefault((node.op, node.target, str(node.args)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


def follow(walk: Walk, run: Callable[[], Any]) -> None:
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        with contextlib.suppress(SystemExit):
            run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> None:
    import autograder
    import passlab

    if sys.argv[1] == "check":
        from passlab import check

        walk = Walk(passlab)
        check("day03.cse", wrong_cse)  # so that what is imported or made once is there
        follow(walk, lambda: check("day03.cse", wrong_cse))
    else:
        from passlab.cli import main as command

        walk = Walk(autograder, CONDUCTOR, one="engine")
        follow(walk, command)
    print(json.dumps(walk.stays))


if __name__ == "__main__":
    main()
