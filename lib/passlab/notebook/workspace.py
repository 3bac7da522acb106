"""The learner's own copies of the exercises, in `work/`. What a learner wrote is never overwritten."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path


def _release(path: Path) -> str | None:
    """Return the release stamped into a notebook; None if it has no stamp or cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["metadata"]["passlab"]["release"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _copy(source: Path, target: Path) -> None:
    """Copy to a name that does not exist yet, atomically, and never over another file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(source.read_bytes())
        os.chmod(fresh, 0o644)
        try:
            os.link(fresh, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            with target.open("xb") as out:
                out.write(source.read_bytes())
    finally:
        os.unlink(fresh)


def prepare(root: Path) -> list[str]:
    """Copy every released exercise that is not in `root/work` yet; put a newer release beside an older copy.

    Return one line for each thing done, to be shown. Raises OSError if `work` cannot be written.
    """
    notes = []
    for source in sorted((root / "exercises").glob("day*/*.ipynb")):
        target = root / "work" / source.parent.name / source.name
        name, release = f"work/{source.parent.name}/{source.name}", _release(source)
        if not target.exists():
            _copy(source, target)
            notes.append(f"{name} is your copy of a new exercise.")
            continue
        if release is None or _release(target) == release:
            continue
        beside = target.with_name(f"{source.stem}.release-{release}.ipynb")
        if not beside.exists():
            _copy(source, beside)
            notes.append(
                f"There is a newer release of {name}. Yours is untouched; the new one is {beside.name} beside it."
            )
    return notes


def writable_home() -> None:
    """Give Jupyter, IPython and matplotlib a temporary folder if the home folder is read-only."""
    home = Path(os.path.expanduser("~"))
    if os.access(home, os.W_OK):
        return
    spare = Path(tempfile.mkdtemp(prefix="passlab-"))
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        os.environ.setdefault(name, str(spare / name.lower()))
    os.environ.setdefault("XDG_CACHE_HOME", str(spare / "cache"))
