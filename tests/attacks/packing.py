"""Packing: archives, folders and names that cost the grader more than they are, or that pass for somebody else's.

The notebook beside them is an ordinary one, so whatever is refused, its points stay.
"""

from __future__ import annotations

import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.attacks.attack import EARNED, Place, called, folder

_MIB = 2**20


def _bomb(method: int, mib: int) -> Callable[[Place], None]:
    """Zeros in an archive: with these methods, 64 KiB of it are unpacked at once."""

    def change(place: Place) -> None:
        with (
            zipfile.ZipFile(place.own / "day00.zip", "w", method) as packed,
            packed.open("day00/fx.ipynb", "w", force_zip64=True) as out,
        ):
            for _ in range(mib):
                out.write(bytes(_MIB))

    return change


def _many_archives(place: Place) -> None:
    """96 MiB each, in files too small for their ratio to be looked at."""
    folder = place.notebook.parent / "more"  # below the notebook, which counts then
    folder.mkdir()
    first = folder / "0.zip"
    with zipfile.ZipFile(first, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(24):
            packed.writestr(f"{number}/fx.ipynb", bytes(4 * _MIB))
    for number in range(1, 40):
        shutil.copy(first, folder / f"{number}.zip")


def _contents(place: Place) -> None:
    """A table of contents of 400,000 entries, which all are one."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    table = entry * 400_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65_535, 65_535, len(table), 0, 0)
    (place.own / "day00.zip").write_bytes(table + end)


def _odd_entries(place: Place) -> None:
    (place.notebook.parent / "more").mkdir()
    with zipfile.ZipFile(place.notebook.parent / "more/day00.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        names = ("day00/FX.IPYNB", "DAY00/fx.ipynb", "day00/fx.ipynb/fx.ipynb", "day00/f\nx.ipynb", "\u202e.ipynb")
        for name in (*names, "day00/" + "d/" * 50 + "fx.ipynb", "n" * 300 + ".ipynb", "day00/fx.ipynb\0.ipynb"):
            packed.writestr(name, b"{}")
        fifo = zipfile.ZipInfo("day00/pipe.ipynb")
        fifo.external_attr = 0o010666 << 16
        packed.writestr(fifo, b"")


def _strays(place: Place) -> None:
    for number in range(12_000):
        (place.own / f"stray {number}.ipynb").touch()


def _pipes(place: Place) -> None:
    os.mkfifo(place.own / "day00.zip")
    os.mkfifo(place.own / "more.ipynb")
    (place.own / "a").symlink_to("/dev/zero")
    (place.own / "b.zip").symlink_to("/dev/zero")


def _time(make: Callable[[Path], None]) -> Callable[[Place], None]:
    return lambda place: make(place.notebook.parent / "timestamp.txt") and None


def _long(path: Path) -> None:
    with path.open("wb") as out:
        out.truncate(2**40)


def _only_packed(place: Place) -> None:
    with zipfile.ZipFile(place.own / "homework.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(place.notebook, "day00/fx.ipynb")
    shutil.rmtree(place.notebook.parent)


#: As a spreadsheet or a page may read them, as the folder above, as another learner in other characters.
_NAMES = (
    " ..",
    " .",
    " .hidden",
    'x");alert("plattack");("',
    "<img src=x onerror=alert('plattack')>",
    "&#x3c;script&#x3e;plattack",
    "back\\slash",
    ";=cmd|' !A0",
    "\u200b=cmd|' !A0",
    "\u3000@SUM(1)",
    "\ufe66cmd|' !A0",
    "x;\u2003+1",
    "ZZ-AFTER",
    "zz\u2010after",
    "\uff4d-between",
    "m-betwee\u0301n",
)

ATTACKS = (
    folder("zip-bzip2", "an archive of bzip2 that unpacks to 800 MB in one piece", _bomb(zipfile.ZIP_BZIP2, 800)),
    folder("zip-lzma", "an archive of LZMA that unpacks to 300 MB", _bomb(zipfile.ZIP_LZMA, 300)),
    folder("zip-many", "forty archives, each of which unpacks to as much as one may", _many_archives),
    folder("zip-contents", "an archive with a table of contents of 400,000 entries", _contents),
    folder("zip-odd-entries", "entries that collide, nest, and have names of no file", _odd_entries),
    folder("zip-only", "control: nothing but an ordinary archive", _only_packed),
    folder("strays", "twelve thousand empty notebooks, each of them a sentence in the report", _strays),
    folder("pipes", "pipes and endless devices called like archives and notebooks", _pipes),
    folder("timestamp-pipe", "the time of handing in is a pipe", _time(os.mkfifo)),
    folder("timestamp-folder", "the time of handing in is a folder", _time(Path.mkdir)),
    folder("timestamp-long", "the time of handing in is a terabyte long", _time(_long)),
    *called("called", _NAMES),
)
assert all(attack.honest == EARNED for attack in ATTACKS)
