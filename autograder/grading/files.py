"""Reading what strangers handed in: ordinary files only, through no link, up to a limit; and archives of them."""

from __future__ import annotations

import errno
import gzip
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MIB = 2**20
#: No honest notebook of this course comes near it.
MAX_BYTES = 20 * MIB
#: A class in one archive, and what one learner's archive may hold.
CLASS_BYTES, CLASS_FILES = 8 * 1024 * MIB, 100_000
LEARNER_BYTES, LEARNER_FILES = 100 * MIB, 2_000

_RATIO, _RATIO_FROM = 200, 4 * MIB  # text shrinks to a tenth, seldom to a hundredth
_CHUNK = 2**16
_MOST_NOTES = 50


class Damaged(Exception):
    """Something handed in that cannot be read. The message says what is wrong with it."""


def open_plain(path: Path) -> BinaryIO:
    """Open a file without following a link anywhere on its way. Raises Damaged for links, devices, pipes and the like.

    A file with a second name (a hard link) is read like a copy: whoever made the link could have copied, and refusing
    it would cost whoever the other name belongs to.
    """
    path = Path(os.path.abspath(path))
    folder = None
    try:
        # From folder to folder, so that nothing on the way can be exchanged after it was looked at.
        for part in path.parts[:-1]:
            flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
            inner = os.open(part, flags, dir_fd=folder)
            if folder is not None:
                os.close(folder)
            folder = inner
        # O_NONBLOCK: to open a pipe that nobody writes to must not wait.
        handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Damaged(f"{path.name} is a link, or lies behind one, and was not followed.") from None
        raise Damaged(f"{path.name} cannot be read: {error.strerror}.") from None
    finally:
        if folder is not None:
            os.close(folder)
    about = os.fstat(handle)
    if stat.S_ISREG(about.st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise Damaged(f"{path.name} is no ordinary file (a folder, a pipe or a device).")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """What a file holds, if it is an ordinary one with no more than `limit` bytes. Raises Damaged."""
    with open_plain(path) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise Damaged(f"{path.name} cannot be read: {error.strerror}.") from None
    if len(data) > limit:
        size = f"{limit // MIB} MiB" if limit >= MIB else f"{limit} bytes"
        raise Damaged(f"{path.name} has more than {size}; it is not read.")
    return data


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The same as text in UTF-8, with or without a byte-order mark."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Damaged(f"{path.name} is not text in UTF-8.") from None


def shown(name: str) -> str:
    """A name that a stranger chose, fit for a sentence."""
    name = "".join(ch if ch.isprintable() else "?" for ch in name)
    return name if len(name) <= 120 else f"{name[:60]}…{name[-50:]}"


# Archives


class _Refused(Exception):
    """Why an entry is left out."""


class _Stop(Exception):
    """Why nothing more is read from an archive."""


def unpack(path: Path, into: Path, suffixes: tuple[str, ...], total: int, most: int) -> list[str]:
    """Unpack the files of a .zip or .tar.gz that end in one of `suffixes` into an empty folder.

    What is left out is told, one sentence each. Sizes are counted while reading, whatever the headers say; archives in
    the archive are files like others. Raises Damaged if it is no archive at all.
    """
    notes: list[str] = []
    count = written = 0
    taken: set[str] = set()

    def note(sentence: str) -> None:
        if len(notes) < _MOST_NOTES:
            notes.append(f"{shown(path.name)}: {sentence}")
        elif len(notes) == _MOST_NOTES:
            notes.append(f"{shown(path.name)}: more entries were left out; only the first {_MOST_NOTES} are named.")

    with open_plain(path) as file:
        try:
            for name, entry in (_zipped if path.suffix.lower() == ".zip" else _tarred)(file, path.name):
                count += 1
                if count > most:
                    raise _Stop(f"it has more than {most:,} entries; the rest was not read.")
                try:
                    parts = _parts(name)
                    entry.check()
                    if not parts or not parts[-1].lower().endswith(suffixes):
                        continue
                    if (known := "/".join(parts).casefold()) in taken:
                        raise _Refused("it is there twice; the first one was taken.")
                    taken.add(known)
                    written += _write(entry, into.joinpath(*parts), min(MAX_BYTES, total - written))
                except _Refused as why:
                    note(f"{shown(name)} was left out: {why}")
                if written >= total:
                    raise _Stop(f"it unpacks to more than {total // MIB} MiB; the rest was not read.")
        except _Stop as why:
            note(str(why))
    return notes


def _parts(name: str) -> list[str]:
    """The folders and the name of an entry. Raises _Refused for what does not stay below the folder it is put in."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or "\\" in name or ".." in parts or any(re.match(r"[A-Za-z]:", part) for part in parts):
        raise _Refused("its name leads out of the archive's folder.")
    if not name.isprintable() or len(parts) > 20 or any(len(part.encode("utf-8", "replace")) > 255 for part in parts):
        raise _Refused("no file can have its name.")
    return parts


def _write(entry: _Entry, target: Path, limit: int) -> int:
    """Write one entry, at most `limit` bytes of it. How many there were."""
    size, out = 0, None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        out = target.open("xb")
        for chunk in entry.chunks():
            size += len(chunk)
            if size > limit:
                raise _Refused(f"it unpacks to more than {limit / MIB:.0f} MiB.")
            if size > _RATIO_FROM and size > _RATIO * entry.packed():
                raise _Refused(f"it unpacks to more than {_RATIO} times its size.")
            out.write(chunk)
        out.close()
        return size
    except Exception as error:
        if out:
            out.close()
            target.unlink()
        if isinstance(error, _Refused | _Stop):
            raise
        # Damage shows in many ways: zipfile raises a dozen kinds of errors, tarfile some more.
        raise _Refused(f"it cannot be unpacked ({shown(str(error)) or type(error).__name__}).") from None


class _Entry:
    """One entry of an archive: may it be unpacked, what does it hold, how long is it packed?"""

    def __init__(self, check, chunks, packed):
        self.check, self.chunks, self.packed = check, chunks, packed


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _zipped(file: BinaryIO, name: str) -> Iterator[tuple[str, _Entry]]:
    try:
        archive = zipfile.ZipFile(file)
    except Exception as error:
        raise Damaged(f"{shown(name)} is damaged: it cannot be read as a zip archive ({error}).") from None
    with archive:
        for info in archive.infolist():

            def check(info=info):
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise _Refused("it is a link or a device, no ordinary file.")
                if info.flag_bits & 1:
                    raise _Refused("it is encrypted.")

            def chunks(info=info):
                with archive.open(info) as inner:
                    yield from _pieces(inner)

            if not info.is_dir():
                # `orig_filename`: what stands in the archive, before zipfile cuts and changes it.
                yield info.orig_filename, _Entry(check, chunks, lambda info=info: info.compress_size)


class _Counted:
    """The unpacked bytes of a .tar.gz. Reading stops where they are far too many for what was packed."""

    def __init__(self, file: BinaryIO, packed: BinaryIO):
        self.file, self.packed, self.size = file, packed, 0

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.size += len(data)
        if self.size > _RATIO_FROM and self.size > _RATIO * self.packed.tell():
            raise _Stop(f"it unpacks to more than {_RATIO} times its size; the rest was not read.")
        return data


def _tarred(file: BinaryIO, name: str) -> Iterator[tuple[str, _Entry]]:
    started = False
    try:
        with tarfile.open(fileobj=_Counted(gzip.GzipFile(fileobj=file), file), mode="r|") as archive:
            for info in archive:
                started = True

                def check(info=info):
                    if not (info.isreg() or info.isdir()) or info.issparse():
                        raise _Refused("it is a link or a device, no ordinary file.")

                def chunks(info=info):
                    return _pieces(archive.extractfile(info))

                if not info.isdir():
                    yield info.name, _Entry(check, chunks, lambda: MAX_BYTES)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        if not started:
            raise Damaged(f"{shown(name)} is damaged: it cannot be read as a .tar.gz ({error}).") from None
        raise _Stop(f"it is damaged further on ({error}); the rest was not read.") from None
