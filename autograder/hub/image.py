"""Container images of the course: `python -m autograder.hub.image`, or `make image`.

`learner` holds what `passlab bundle` makes, `instructor` the files of the project that are under version control. What
an image can contain is what `write_context` puts into the folder that it is built from.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from autograder.authoring import bundle, source
from autograder.hub.accounts import Refused
from passlab import course_paths, exercises

TARGETS = ("learner", "instructor")
CONTAINER = Path(__file__).with_name("container")
#: What a learner's server needs besides the course: the hub's part, and nbgrader's exchange.
_SERVER = ("jupyterhub", "nbgrader")
_BUILDERS = ("podman", "buildah", "docker")


def pins() -> dict[str, list[str]]:
    """Return file → the pinned packages in it: torch, what both images have, what the instructor's adds, and all.

    Those of the last file hold for what other packages bring along, too.
    """
    project = tomllib.loads((source.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = [*project["optional-dependencies"]["grade"], *project["optional-dependencies"]["hub"]]
    server = [pin for pin in extra if pin.split("==")[0] in _SERVER]
    every = [*project["dependencies"], *(pin for group in project["optional-dependencies"].values() for pin in group)]
    return {
        "torch.txt": [pin for pin in project["dependencies"] if pin.startswith("torch==")],
        "learner.txt": [*project["dependencies"], *server],
        "all.txt": [re.sub(r"\[\w+\]", "", pin) for pin in every],
        # setuptools builds the project itself
        "instructor.txt": ["setuptools>=77", *(pin for pin in extra if pin not in server)],
    }


def write_context(folder: Path, target: str) -> None:
    """Write the files that an image may contain into an empty folder. Raises Refused or BundleError."""
    shutil.copytree(CONTAINER, folder, dirs_exist_ok=True)
    (folder / "pins").mkdir()
    for name, lines in pins().items():
        (folder / "pins" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if target == "learner":
        shutil.copytree(CONTAINER.with_name("learner"), folder / "hub", ignore=shutil.ignore_patterns("__pycache__"))
        bundle.make(folder / "learner", sorted(exercises.days()))
    else:
        for name in _tracked():
            (folder / "instructor" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source.ROOT / name, folder / "instructor" / name)
    for path in folder.rglob("*"):  # the image's user is another than the files' owner
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _tracked() -> list[str]:
    """Return the files of the project that git knows or would take, without tests."""
    if course_paths.external_course():
        raise Refused("The instructor's image holds this project only: unset PASSLAB_COURSE.")
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", ".", ":!tests"]
    listed = subprocess.run(words, cwd=source.ROOT, capture_output=True, text=True)
    if listed.returncode:
        raise Refused(f"git cannot list the files of {source.ROOT}: {listed.stderr.strip()}")
    return [name for name in listed.stdout.split("\0") if (source.ROOT / name).is_file()]


def builder() -> list[str]:
    """Return the command of the program here that builds images. Raises Refused if there is none."""
    for name in _BUILDERS:
        if shutil.which(name):
            return [name, "build"]
    raise Refused("No podman, buildah or docker is on the PATH (Debian: apt install podman).")


def build(target: str, tag: str, words: list[str]) -> int:
    """Build an image, with further words for the builder. Return its exit status."""
    command = builder()
    with tempfile.TemporaryDirectory(prefix="passlab-image-") as scratch:
        folder = Path(scratch)
        write_context(folder, target)
        command += ["--target", target, "--tag", tag, "--file", str(folder / "Containerfile"), *words, str(folder)]
        return subprocess.call(command)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m autograder.hub.image",
        description="Build container images of the course. Words after -- go to podman, buildah or docker.",
    )
    parser.add_argument("target", nargs="?", choices=TARGETS, help="default: both")
    parser.add_argument("--prefix", default="passlab-", help="what comes before the target in the image's name")
    parser.add_argument("--context", type=Path, help="only write the folder that the image would be built from")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, words = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    if options.context and not options.target:
        parser.error("--context needs a target")
    try:
        if options.context:
            write_context(options.context, options.target)
            return
        for target in [options.target] if options.target else TARGETS:
            if status := build(target, f"{options.prefix}{target}", words):
                sys.exit(status)
    except (Refused, bundle.BundleError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
